/* model/canon.h: the one form of a message that is hashed: JSON with sorted keys and without white
 * space, and SHA-256 over it. Thread-safe. */
#ifndef BERTH_MODEL_CANON_H
#define BERTH_MODEL_CANON_H

#include "base/str.h"
#include "records.pb-c.h"

#define CANON_HASH_LEN 71 /* "sha256:" and 64 hex digits */
#define REVISION_LEN 16   /* "rev-" and 12 hex digits */

/* Appends. Maps are written in sorted order whether or not they are sorted in memory. */
void canon_json(struct str *out, const ProtobufCMessage *m);
const char *canon_hash_bytes(const void *data, size_t len, char ret[CANON_HASH_LEN + 1]);
const char *canon_hash(const ProtobufCMessage *m, char ret[CANON_HASH_LEN + 1]);

/* Over what a user may define: type, spec, resources, labels, node_selector, restart, ttl_seconds,
 * stop_grace_seconds, tenant and the retry policy. Neither id, desired_state nor anything that the
 * server owns changes it. */
const char *workload_revision(const Pb__Workload *w, char ret[REVISION_LEN + 1]);

#endif
