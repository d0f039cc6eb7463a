/* model/pb.h: what protobuf-c leaves out: messages in arenas, maps, copies, and a walk over all
 * fields.
 *
 * Thread-safe as far as the messages and arenas are not shared.
 */
#ifndef BERTH_MODEL_PB_H
#define BERTH_MODEL_PB_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include <protobuf-c/protobuf-c.h>

#define PB_MAX_DEPTH 64
#define PB_MAX_MESSAGES 500000 /* in one message, counted with everything nested */

/* An empty message. */
ProtobufCMessage *pb_new(struct arena *arena, const ProtobufCMessageDescriptor *type);

/* From bytes that a peer sent: before anything is allocated, lengths, nesting, wire types, UTF-8
 * (no NUL) and the number of messages are checked; the error names the field's path. ERR_INVALID.
 * Unknown fields are allowed, and dropped. data is not kept. */
int pb_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
              struct arena *arena, ProtobufCMessage **ret_message, struct err *err);
/* From bytes that we wrote ourselves (the store): no check beyond protobuf-c's. ERR_CORRUPT. */
int pb_unpack_own(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                  struct arena *arena, ProtobufCMessage **ret_message, struct err *err);
/* Appends the packed form; deterministic, for maps are arrays of entries here. */
void pb_pack(struct str *out, const ProtobufCMessage *m);
/* The same, but text that is not UTF-8 stays as it is: for those who read it at once, and mend it
 * themselves. */
void pb_pack_as_is(struct str *out, const ProtobufCMessage *m);
void *pb_pack_arena(struct arena *arena, const ProtobufCMessage *m, size_t *ret_len);
/* The same with more bytes after it: a packed message may be written in pieces. */
void *pb_pack_before(struct arena *arena, const ProtobufCMessage *m, const void *tail,
                     size_t tail_len, size_t *ret_len);

/* A deep copy that shares nothing with m. Unknown fields are not copied. */
ProtobufCMessage *pb_clone(struct arena *arena, const ProtobufCMessage *m);
/* Same type and same fields; unknown fields do not count, "" equals NULL. */
bool pb_equal(const ProtobufCMessage *a, const ProtobufCMessage *b);

/* ---- maps: arrays of pointers to entries, whatever their C type is ---- */

struct pb_entry {
        ProtobufCMessage base;
        char *key, *value;
};

/* pb_map_get(w->labels, w->n_labels, "zone"): the value, or NULL. Any order. */
const char *pb_map_get(const void *entries, size_t n, const char *key);
/* pb_map_set(arena, &w->base, "labels", "zone", "a"): replaces, or inserts in sorted order. The
 * field must be a map of m. */
void pb_map_set(struct arena *arena, ProtobufCMessage *m, const char *field, const char *key,
                const char *value);
/* All entries of another message's map (pb_map_copy(arena, &w->base, "labels", h->labels,
 * h->n_labels)), in their order; texts are shared. For many entries: setting them one by one costs
 * the square of their number. */
void pb_map_copy(struct arena *arena, ProtobufCMessage *m, const char *field, const void *entries,
                 size_t n);
/* Sorts every map in the tree by key, in place; two equal keys are refused with the path. */
int pb_normalise_maps(ProtobufCMessage *m, struct err *err);

/* Is the field set (non-zero, non-empty)? How many values has it? */
size_t pb_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field);

#endif
