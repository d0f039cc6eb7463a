/* store/etcd_codec.h: values in etcd, which people read with etcdctl: JSON for every kind of record
 * that berth knows.
 *
 * What is not known, or would not come back the same (bytes that do not parse, fields of a newer
 * berth), or would be much larger (control characters), is stored as it is behind a zero byte.
 * /nodes/<id>/status is the bare word.
 */
#ifndef BERTH_STORE_ETCD_CODEC_H
#define BERTH_STORE_ETCD_CODEC_H

#include "base/arena.h"
#include "base/str.h"

/* Appends the value for this key (without the store's prefix). */
void etcd_encode(struct str *out, const char *key, const void *data, size_t len);
/* The same, never as JSON: as it is behind a zero byte. */
void etcd_encode_packed(struct str *out, const char *key, const void *data, size_t len);
/* The other way; the bytes live in the arena, or are those of value. A value that does not parse is
 * given as it is: whoever loads it finds that it makes no sense, and says so. */
void etcd_decode(struct arena *arena, const char *key, const void *value, size_t value_len,
                 const void **ret_data, size_t *ret_len);

#endif
