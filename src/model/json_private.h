/* model/json_private.h: pieces of the JSON codec that the rest of model/ builds on. Not for
 * others. */
#ifndef BERTH_MODEL_JSON_PRIVATE_H
#define BERTH_MODEL_JSON_PRIVATE_H

#include "base/clock.h"
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

/* "name": at `to`, where there is room for SHAPE_QUOTED_PAD bytes more than it has; the end of
 * it. */
static inline char *name_text(char *to, const struct shape_field *f)
{
        __builtin_memcpy(to, f->quoted, SHAPE_QUOTED_PAD);
        if (__builtin_expect(f->quoted_len > SHAPE_QUOTED_PAD, 0))
                memcpy(to, f->quoted, f->quoted_len);
        return to + f->quoted_len;
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

/* Numbers and times: written at `to`, where there are SCALAR_ROOM bytes; the end of it. */
static inline char *u64_text(char *to, uint64_t v)
{
        static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930"
                                    "31323334353637383940414243444546474849"
                                    "50515253545556575859606162636465666768697071727374757677787980"
                                    "81828384858687888990919293949596979899";
        char buf[40], *end = buf + 20, *p = end; /* so many bytes are copied, whatever is in them */

        for (; v >= 100; v /= 100) {
                p -= 2;
                __builtin_memcpy(p, pairs + v % 100 * 2, 2);
        }
        if (v >= 10) {
                p -= 2;
                __builtin_memcpy(p, pairs + v * 2, 2);
        } else
                *--p = (char)('0' + v);
        __builtin_memcpy(to, p, 20);
        return to + (end - p);
}

static inline char *i64_text(char *to, int64_t v)
{
        if (v < 0)
                *to++ = '-';
        return u64_text(to, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

static inline char *cpu_text(char *to, int64_t milli)
{
        uint64_t v = milli < 0 ? 0 - (uint64_t)milli : (uint64_t)milli;
        unsigned part = (unsigned)(v % 1000);

        if (milli < 0)
                *to++ = '-';
        to = u64_text(to, v / 1000);
        if (part == 0)
                return to;
        char frac[4] = { '.', (char)('0' + part / 100), (char)('0' + part / 10 % 10),
                         (char)('0' + part % 10) };
        __builtin_memcpy(to, frac, 4);
        return to + (frac[3] != '0' ? 4 : frac[2] != '0' ? 3 : 2);
}

static inline char *quoted_time(char *to, int64_t ms)
{
        *to = '"';
        to = time_put(to + 1, ms);
        *to = '"';
        return to + 1;
}

/* The name of a value of an enum, or NULL: it is of a newer peer. */
static inline const char *enum_name(const struct shape_enum *names, int value, size_t *ret_len)
{
        /* They are sorted, and mostly without gaps. */
        unsigned n = names->type->n_values,
                 first = n ? (unsigned)value - (unsigned)names->type->values[0].value : 0;
        bool direct = first < n && names->type->values[first].value == value;

        for (unsigned i = direct ? first : 0; i < n; i++)
                if (names->type->values[i].value == value && names->names[i]) {
                        *ret_len = names->lens[i];
                        return names->names[i];
                }
        return NULL;
}

/* The value of a field, compact: all of it, or one scalar at slot. */
void json_write_field(struct str *out, const struct shape_field *f, const ProtobufCMessage *m);
void json_write_scalar(struct str *out, const struct shape_field *f, const void *slot);

/* Sorts the entries by key; the key that is there twice, or NULL. */
struct pb_entry;
const char *pb_entries_sort(struct pb_entry **entries, size_t n);

/* pb_normalise_maps() for a message that stands at this path. */
struct path_step;
struct err;
int pb_normalise_maps_at(ProtobufCMessage *m, const struct path_step *at, struct err *err);

#endif
