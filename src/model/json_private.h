/* model/json_private.h: pieces of the JSON codec that the rest of model/ builds on. Not for others. */
#ifndef BERTH_MODEL_JSON_PRIVATE_H
#define BERTH_MODEL_JSON_PRIVATE_H

#include "base/mem.h"
#include "model/shape.h"
#include <string.h>

#define JSON_WRITE_MAX_DEPTH 100

/* Into the buffer's spare room, without the closing NUL, which finish() sets. */
static inline void room(struct str *s, size_t more)
{
        if (__builtin_expect(s->cap < s->len + more + 1, 0))
                str_reserve(s, more + 1);
}

static inline void put(struct str *s, const void *data, size_t n)
{
        room(s, n);
        memcpy(s->buf + s->len, data, n);
        s->len += n;
}

static inline void putc1(struct str *s, char c)
{
        room(s, 1);
        s->buf[s->len++] = c;
}

static inline void finish(struct str *s)
{
        room(s, 0);
        s->buf[s->len] = '\0';
}

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
