/* model/scalar.c: single values as text: numbers, cores, times, base64, UTF-8. Declared in
 * shape.h. */
#include "base/clock.h"
#include "model/json_private.h"
#include "model/shape.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int shape_parse_int(const char *text, size_t len, int64_t min, uint64_t max, void *ret64)
{
        const char *p = text, *end = text + len;
        bool negative = p < end && *p == '-';
        uint64_t v = 0;

        p += negative;
        if (p == end || (*p == '0' && end - p > 1))
                return -1;
        for (; p < end; p++) {
                if (*p < '0' || *p > '9')
                        return -1;
                if (__builtin_mul_overflow(v, 10u, &v) ||
                    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
                        return -1;
        }
        if (negative) {
                if (v > (uint64_t)INT64_MAX + 1 || (int64_t)(0 - v) < min)
                        return -1;
                v = 0 - v;
        } else if (v > max)
                return -1;
        memcpy(ret64, &v, sizeof(v));
        return 0;
}

/* -?int[.frac][(e|E)[+-]exp], as JSON has it. Everything that is exact in thousandths is taken
 * (1.500, 25e-2), nothing else. */
int shape_parse_cpu(const char *text, size_t len, int64_t *ret_milli)
{
        const char *p = text, *end = text + len;
        bool negative = p < end && *p == '-';
        int64_t v = 0, exponent = 3, e = 0;
        unsigned zeros = 0;
        bool digits = false, fraction = false;

        p += negative;
        for (; p < end && ((*p >= '0' && *p <= '9') || (*p == '.' && !fraction && digits)); p++) {
                if (*p == '.') {
                        fraction = true;
                        continue;
                }
                digits = true;
                exponent -= fraction;
                /* applied when another digit follows: 1.5000000000000000000000 is no overflow */
                if (*p == '0') {
                        if (zeros++ > 400)
                                return -1;
                        continue;
                }
                for (; zeros > 0; zeros--)
                        if (v != 0 && __builtin_mul_overflow(v, 10, &v))
                                return -1;
                if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *p - '0', &v))
                        return -1;
        }
        exponent += zeros;
        if (!digits || p[-1] == '.')
                return -1;
        if (p < end && (*p == 'e' || *p == 'E')) {
                bool down = ++p < end && *p == '-';
                p += p < end && (*p == '-' || *p == '+');
                if (p == end)
                        return -1;
                for (; p < end && *p >= '0' && *p <= '9'; p++)
                        if (e < 10000)
                                e = e * 10 + (*p - '0');
                exponent += down ? -e : e;
        }
        if (p != end)
                return -1;
        for (; v != 0 && exponent > 0; exponent--)
                if (__builtin_mul_overflow(v, 10, &v))
                        return -1;
        /* v ends in a digit that is not 0: a smaller fraction than thousandths is left */
        if (v != 0 && exponent < 0)
                return -1;
        *ret_milli = negative ? -v : v;
        return 0;
}

size_t shape_cpu_text(int64_t milli, char buf[SCALAR_ROOM])
{
        char *end = cpu_text(buf, milli);

        *end = '\0';
        return (size_t)(end - buf);
}

static int parse_double(const char *text, size_t len, double *ret)
{
        char buf[64], *end;

        if (len == 0 || len >= sizeof(buf) || !strchr("-0123456789", text[0]))
                return -1;
        memcpy(buf, text, len);
        buf[len] = '\0';
        if (strpbrk(buf, "xXpPnNiI")) /* hexadecimal, nan, inf */
                return -1;
        *ret = strtod(buf, &end);
        return *end || *ret - *ret != 0 ? -1 : 0;
}

static int parse_time(const char *text, size_t len, bool quoted, int64_t *ret)
{
        if (!quoted && shape_parse_int(text, len, 0, INT64_MAX / 1000, ret) == 0)
                return 0;
        return time_parse(text, len, ret);
}

static int parse_bytes(const char *text, size_t len, ProtobufCBinaryData *ret, struct arena *arena)
{
        uint8_t *data = arena_alloc(arena, len / 4 * 3 + 3);
        size_t n;

        if (base64_decode(text, len, data, &n) < 0)
                return -1;
        ret->data = data;
        ret->len = n;
        return 0;
}

int shape_parse(const struct shape_field *f, const char *text, size_t len, bool quoted, void *slot,
                struct arena *arena)
{
        int64_t min, v;
        uint64_t max;
        double d;
        char buf[64];

        switch (f->kind) {
        case SHAPE_BOOL:
                if (quoted || !((len == 4 && memcmp(text, "true", 4) == 0) ||
                                (len == 5 && memcmp(text, "false", 5) == 0)))
                        return -1;
                *(protobuf_c_boolean *)slot = len == 4;
                return 0;
        case SHAPE_INT32:
        case SHAPE_UINT32:
        case SHAPE_INT64:
        case SHAPE_UINT64:
                shape_limits(f, &min, &max);
                if (f->is_limit && len == strlen(LIMIT_WORD) && memcmp(text, LIMIT_WORD, len) == 0)
                        v = INT32_MAX;
                else if (quoted || shape_parse_int(text, len, min, max, &v) < 0)
                        return -1;
                else if (f->is_limit)
                        v = shape_limit_of(v);
                memcpy(slot, &v, f->size); /* little end first: see the static assertion below */
                return 0;
        case SHAPE_FLOAT:
        case SHAPE_DOUBLE:
                if (quoted || parse_double(text, len, &d) < 0)
                        return -1;
                if (f->kind == SHAPE_FLOAT)
                        *(float *)slot = (float)d;
                else
                        *(double *)slot = d;
                return 0;
        case SHAPE_TIME:
                return parse_time(text, len, quoted, slot);
        case SHAPE_CPU:
                if (shape_parse_cpu(text, len, slot) == 0)
                        return 0;
                if (len >= sizeof(buf) || memchr(text, '\0', len))
                        return -1;
                memcpy(buf, text, len);
                buf[len] = '\0';
                return str_parse_milli(buf, slot);
        case SHAPE_ENUM:
                return shape_enum_find(f->names, text, len, slot);
        case SHAPE_STRING:
                if (!str_is_utf8(text, len))
                        return -1;
                *(char **)slot = arena_strndup(arena, text, len);
                return 0;
        case SHAPE_BYTES:
                return parse_bytes(text, len, slot, arena);
        case SHAPE_INT_VALUE:
                if (quoted || shape_parse_int(text, len, INT64_MIN, INT64_MAX, &v) < 0)
                        return -1;
                ProtobufCMessage *m = arena_alloc(arena, f->shape->type->sizeof_message);
                f->shape->type->message_init(m);
                *(int64_t *)((char *)m + f->shape->type->fields[0].offset) = v;
                *(ProtobufCMessage **)slot = m;
                return 0;
        case SHAPE_MESSAGE:
        case SHAPE_TIMESTAMP:
        case SHAPE_MAP:
                break;
        }
        return -1;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "shape_parse copies the low bytes of an integer");

int base64_decode(const char *text, size_t len, uint8_t *ret, size_t *ret_len)
{
        uint32_t bits = 0;
        unsigned n_bits = 0;
        size_t n = 0;

        if (len % 4 == 0 && len > 0 && text[len - 1] == '=')
                len -= text[len - 2] == '=' ? 2 : 1;
        if (len % 4 == 1)
                return -1;
        for (size_t i = 0; i < len; i++) {
                char c = text[i];
                unsigned v;
                if (c >= 'A' && c <= 'Z')
                        v = (unsigned)(c - 'A');
                else if (c >= 'a' && c <= 'z')
                        v = (unsigned)(c - 'a') + 26;
                else if (c >= '0' && c <= '9')
                        v = (unsigned)(c - '0') + 52;
                else if (c == '+' || c == '-')
                        v = 62;
                else if (c == '/' || c == '_')
                        v = 63;
                else
                        return -1;
                bits = (bits << 6 | v) & 0xffffff;
                n_bits += 6;
                if (n_bits >= 8) {
                        n_bits -= 8;
                        ret[n++] = (uint8_t)(bits >> n_bits);
                }
        }
        if (bits & ((1u << n_bits) - 1)) /* stray bits: the same bytes would have two texts */
                return -1;
        *ret_len = n;
        return 0;
}

void base64_write(struct str *out, const uint8_t *data, size_t len)
{
        static const char letters[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        char quad[4];

        str_reserve(out, len / 3 * 4 + 4);
        for (size_t i = 0; i < len; i += 3) {
                size_t left = len - i;
                uint32_t v = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                             (left > 2 ? data[i + 2] : 0);
                quad[0] = letters[v >> 18];
                quad[1] = letters[v >> 12 & 63];
                quad[2] = left > 1 ? letters[v >> 6 & 63] : '=';
                quad[3] = left > 2 ? letters[v & 63] : '=';
                str_add(out, quad, 4);
        }
}

unsigned utf8_next(const unsigned char *p, const unsigned char *end)
{
        size_t left = (size_t)(end - p);

        if (left == 0)
                return 0;
        if (p[0] < 0x80)
                return 1;
        if (p[0] >= 0xc2 && p[0] <= 0xdf)
                return left > 1 && (p[1] & 0xc0) == 0x80 ? 2 : 0;
        if ((p[0] & 0xf0) == 0xe0) {
                if (left < 3 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80)
                        return 0;
                /* overlong; surrogates */
                return (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ? 0 : 3;
        }
        if (p[0] >= 0xf0 && p[0] <= 0xf4) {
                if (left < 4 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80 ||
                    (p[3] & 0xc0) != 0x80)
                        return 0;
                /* overlong; above U+10FFFF */
                return (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f) ? 0 : 4;
        }
        return 0;
}
