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

/* Most texts are short, and a call of memcpy() costs more than they do. */
static inline void put_short(struct str *s, const void *data, size_t n)
{
        room(s, n);
        char *to = s->buf + s->len;
        const char *from = data;
        s->len += n;
        if (n > 32 || n < 8)
                memcpy(to, from, n);
        else if (n > 16) {
                __builtin_memcpy(to, from, 16);
                __builtin_memcpy(to + n - 16, from + n - 16, 16);
        } else {
                __builtin_memcpy(to, from, 8);
                __builtin_memcpy(to + n - 8, from + n - 8, 8);
        }
}

/* "name": */
static inline void put_name(struct str *s, const struct shape_field *f)
{
        room(s, f->quoted_len + SHAPE_QUOTED_PAD);
        __builtin_memcpy(s->buf + s->len, f->quoted, SHAPE_QUOTED_PAD);
        if (f->quoted_len > SHAPE_QUOTED_PAD)
                memcpy(s->buf + s->len, f->quoted, f->quoted_len);
        s->len += f->quoted_len;
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
void json_put_scalar(struct str *out, const struct shape_field *f, const void *slot); /* without the closing NUL */

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
