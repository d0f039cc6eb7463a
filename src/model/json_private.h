/* model/json_private.h: pieces of the JSON codec that the rest of model/ builds on. Not for others. */
#ifndef BERTH_MODEL_JSON_PRIVATE_H
#define BERTH_MODEL_JSON_PRIVATE_H

#include "base/mem.h"
#include "model/shape.h"

#define JSON_WRITE_MAX_DEPTH 100

/* The value of a field, compact: all of it, or one scalar at slot. */
void json_write_field(struct str *out, const struct shape_field *f, const ProtobufCMessage *m);
void json_write_scalar(struct str *out, const struct shape_field *f, const void *slot);

/* For qsort over arrays of struct pb_entry *. */
int pb_entry_order(const void *a, const void *b);

/* Sorts the entries by key; the key that is there twice, or NULL. */
struct pb_entry;
const char *pb_entries_sort(struct pb_entry **entries, size_t n);

/* pb_normalise_maps() for a message that stands at this path. */
struct path_step;
struct err;
int pb_normalise_maps_at(ProtobufCMessage *m, const struct path_step *at, struct err *err);

#endif
