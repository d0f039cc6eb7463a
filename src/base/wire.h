/* base/wire.h: the wire format of protobuf, for those who read or write it by hand.
 *
 * A message is a row of fields; a field is a tag (number << 3 | type) and a value. Numbers, tags
 * and lengths are varints: seven bits in each byte, the low ones first, and the top bit set in all
 * bytes but the last.
 *
 * Limits: a varint has at most VARINT_MAX bytes, what follows is not read. Bits beyond 64 are
 * dropped, and one that is longer than it must be is taken, as protobuf's libraries do. Nothing is
 * read at or behind `end`, however wrong the bytes are.
 */
#ifndef BERTH_BASE_WIRE_H
#define BERTH_BASE_WIRE_H

#include "base/str.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VARINT_MAX 10                  /* bytes */
#define WIRE_HEAD_MAX (2 * VARINT_MAX) /* bytes: what wire_put_head() writes */

enum wire_type {
        WIRE_TYPE_VARINT = 0,
        WIRE_TYPE_64BIT = 1,
        /* a length, and that many bytes: text, bytes, messages, packed numbers */
        WIRE_TYPE_BYTES = 2,
        WIRE_TYPE_32BIT = 5,
};

/* Reads the varint at *p and moves *p behind it. False: it is cut off, or too long; *ret is not
 * set. */
static inline bool varint_take(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
        uint64_t v = 0;

        if (*p < end && **p < 0x80) { /* as most tags, lengths and numbers are */
                *ret = *(*p)++;
                return true;
        }
        for (unsigned shift = 0; shift < 7 * VARINT_MAX && *p < end; shift += 7) {
                uint8_t b = *(*p)++;
                v |= (uint64_t)(b & 0x7f) << shift;
                if (b < 0x80) {
                        *ret = v;
                        return true;
                }
        }
        return false;
}

/* How many bytes varint_put() writes. */
static inline size_t varint_size(uint64_t v)
{
        return (size_t)(70 - __builtin_clzll(v | 1)) / 7;
}

/* Writes up to VARINT_MAX bytes, and says how many. */
static inline size_t varint_put(uint8_t *p, uint64_t v)
{
        size_t n = 0;

        for (; v >= 0x80; v >>= 7)
                p[n++] = (uint8_t)(v | 0x80);
        p[n++] = (uint8_t)v;
        return n;
}

/* What stands before the bytes of a field that has a length. Writes up to WIRE_HEAD_MAX bytes. */
static inline size_t wire_put_head(uint8_t *p, uint32_t field, size_t len)
{
        size_t n = varint_put(p, (uint64_t)field << 3 | WIRE_TYPE_BYTES);

        return n + varint_put(p + n, len);
}

/* Appends such a field: how a message is put together from pieces that are packed already. */
static inline void wire_add(struct str *out, uint32_t field, const void *data, size_t len)
{
        uint8_t head[WIRE_HEAD_MAX];

        str_add(out, head, wire_put_head(head, field, len));
        str_add(out, data, len);
}

/* A value: a number, or bytes. */
struct wire_value {
        const uint8_t *at; /* where its bytes begin: behind the length, if it has one */
        uint64_t n;        /* of a varint: the number; else how many bytes there are */
};

/* Reads the value behind a tag and moves *p behind it. False: it is cut off, or of no known
 * type. */
static inline bool wire_take(const uint8_t **p, const uint8_t *end, unsigned type,
                             struct wire_value *ret)
{
        uint64_t n = type == WIRE_TYPE_64BIT ? 8 : 4;

        ret->at = *p;
        if (type == WIRE_TYPE_VARINT)
                return varint_take(p, end, &ret->n);
        if (type == WIRE_TYPE_BYTES) {
                if (!varint_take(p, end, &n))
                        return false;
                ret->at = *p;
        } else if (type != WIRE_TYPE_64BIT && type != WIRE_TYPE_32BIT)
                return false;
        if (n > (uint64_t)(end - *p))
                return false;
        ret->n = n;
        *p += n;
        return true;
}

#endif
