/* net/grpc_wire.h: gRPC's small encodings, free of any connection: pure functions on bytes.
 * Internal to src/net. */
#ifndef BERTH_NET_GRPC_WIRE_H
#define BERTH_NET_GRPC_WIRE_H

#include "base/str.h"
#include "net/grpc.h"

/* grpc-message: printable ASCII but '%' as it is, the rest as %XX. */
void grpc_percent_encode(struct str *out, const char *text, size_t len);
/* Never fails: what is not an escape stays as it is (as the protocol asks for). Bytes that are not
 * UTF-8 become '?'. */
void grpc_percent_decode(struct str *out, const char *text, size_t len);

/* Values of "-bin" headers: base64 without padding; both are accepted. 0 or -1. */
void grpc_base64_encode(struct str *out, const void *data, size_t len);
int grpc_base64_decode(struct str *out, const char *text, size_t len);

/* grpc-timeout: at most eight digits and a unit. 0 or -1. Anything beyond a year is a year. */
const char *grpc_timeout_format(char buf[static 16], int64_t timeout_ms);
int grpc_timeout_parse(const char *text, size_t len, int64_t *ret_ms);

/* A list of names and values in one buffer: one allocation per call instead of two per header. */
#define META_MAX 128
struct meta_entry {
        const char *name, *value; /* both NUL-terminated */
        size_t name_len, value_len;
};
void meta_add(struct str *blob, const char *name, size_t name_len, const void *value,
              size_t value_len);
bool meta_next(const struct str *blob, size_t *at, struct meta_entry *ret);
const char *meta_find(const struct str *blob, const char *name, size_t *ret_len);
/* A header as it came: decodes "-bin"; one that cannot be decoded is left out. */
void meta_add_received(struct str *blob, const char *name, size_t name_len, const char *value,
                       size_t value_len);
/* A user's metadata as it goes out: encodes "-bin", leaves out what HTTP/2 forbids. */
void meta_add_outgoing(struct str *blob, const struct grpc_metadata *list);

enum grpc_status grpc_status_from_http(int http_status);
enum grpc_status grpc_status_from_reset(uint32_t h2_error);

#endif
