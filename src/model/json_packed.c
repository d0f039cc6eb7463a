/* model/json_packed.c: packed messages to JSON text, without unpacking them. See json.h.
 *
 * A message is scanned once for which fields are where, and they are written in the descriptor's order, each from its bytes. What our own packing never writes is not known here, and
 * is left to those who unpack: fields that this program does not know, that are there twice or in pieces, or that are zero and yet there; the kinds that no record has.
 */
#include "base/wire.h"
#include "model/json.h"
#include "model/json_private.h"
#include "records.pb-c.h"
#include <string.h>

#define FIELDS_MAX 64 /* that are set in one message; more are left to json_write() */
#define DEPTH_MAX 32

struct bytes {
        const uint8_t *at, *end;
};

/* A field that is there. Of repeated ones: all elements, with their tags; of others: the value alone. */
struct place {
        const struct shape_field *f;
        struct bytes value;
        unsigned index;
};

static inline bool take_varint(struct bytes *b, uint64_t *ret)
{
        return varint_take(&b->at, b->end, ret);
}

static inline bool take_length(struct bytes *b, struct bytes *ret)
{
        uint64_t n;

        if (!take_varint(b, &n) || n > (uint64_t)(b->end - b->at))
                return false;
        *ret = (struct bytes){ b->at, b->at + n };
        b->at += n;
        return true;
}

static inline bool take_value(struct bytes *b, unsigned wire, struct bytes *ret)
{
        uint64_t v;

        if (wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
                return take_length(b, ret);
        ret->at = b->at;
        if (wire == PROTOBUF_C_WIRE_TYPE_VARINT) {
                if (!take_varint(b, &v))
                        return false;
        } else if (wire == PROTOBUF_C_WIRE_TYPE_64BIT && b->end - b->at >= 8)
                b->at += 8;
        else
                return false;
        ret->end = b->at;
        return true;
}

/* ---- where the fields are ------------------------------------------------------------------------------------------------------------------ */

static inline int find_field(const struct shape *s, uint64_t id)
{
        if (id < SHAPE_IDS && s->by_id[id])
                return s->by_id[id] - 1;
        for (unsigned i = 0; i < s->n_fields; i++)
                if (s->type->fields[i].id == id)
                        return (int)i;
        return -1;
}

/* The next field, which has to be one that is known here: its index, its tag and its value. -1: it is not. */
static inline int take_field(const struct shape *s, struct bytes *b, uint64_t *ret_tag, struct bytes *ret_value)
{
        uint64_t tag;
        int index;

        if (!take_varint(b, &tag) || (index = find_field(s, tag >> 3)) < 0)
                return -1;
        if ((tag & 7) != s->wire[index].wire || !take_value(b, tag & 7, ret_value))
                return -1;
        *ret_tag = tag;
        return index;
}

/* In the descriptor's order, which is mostly the one in which they come. */
static struct place *place_add(struct place *places, unsigned *n, unsigned index)
{
        unsigned i = *n;

        while (i > 0 && places[i - 1].index > index)
                i--;
        if (*n == FIELDS_MAX || (i > 0 && places[i - 1].index == index))
                return NULL;
        if (i < *n)
                memmove(&places[i + 1], &places[i], (*n - i) * sizeof(*places));
        ++*n;
        return &places[i];
}

static int find_fields(const struct shape *s, struct bytes b, struct place *places)
{
        unsigned n = 0;
        struct place *last = NULL;

        while (b.at < b.end) {
                const uint8_t *from = b.at;
                struct bytes value;
                uint64_t tag;
                int index = take_field(s, &b, &tag, &value);
                if (index < 0)
                        return -1;
                const struct wire_field *w = &s->wire[index];
                if (last && last->index == (unsigned)index && w->repeated && !w->packed) {
                        last->value.end = b.at;
                        continue;
                }
                last = place_add(places, &n, (unsigned)index);
                if (!last)
                        return -1;
                *last =
                    (struct place){ &s->fields[index], w->repeated && !w->packed ? (struct bytes){ from, b.at } : value, (unsigned)index };
        }
        return (int)n;
}

/* ---- their values -------------------------------------------------------------------------------------------------------------------------- */

/* Where text is written is kept in a local variable, and given from one to the next: in memory it would be read again after each byte. NULL: it cannot be written. */
struct out {
        struct str *s;
        char *end; /* of what s has room for, but for the closing NUL */
};

static char *grow(struct out *o, char *at, size_t more)
{
        o->s->len = (size_t)(at - o->s->buf);
        str_reserve(o->s, more + 1);
        o->end = o->s->buf + o->s->cap - 1;
        return o->s->buf + o->s->len;
}

static inline char *room_for(struct out *o, char *at, size_t more)
{
        return __builtin_expect((size_t)(o->end - at) < more, 0) ? grow(o, at, more) : at;
}

static char *write_message(struct out *o, char *at, const struct shape *s, struct bytes b, unsigned depth);

/* Most texts are short, and a call of memcpy() costs more than they do. */
static inline char *copy_short(char *at, const void *from, size_t n)
{
        const char *p = from;

        if (n > 32)
                memcpy(at, p, n);
        else if (n > 16) {
                __builtin_memcpy(at, p, 16);
                __builtin_memcpy(at + n - 16, p + n - 16, 16);
        } else if (n >= 8) {
                __builtin_memcpy(at, p, 8);
                __builtin_memcpy(at + n - 8, p + n - 8, 8);
        } else if (n >= 4) {
                __builtin_memcpy(at, p, 4);
                __builtin_memcpy(at + n - 4, p + n - 4, 4);
        } else if (n > 0) {
                at[0] = p[0];
                at[n / 2] = p[n / 2];
                at[n - 1] = p[n - 1];
        }
        return at + n;
}

static char *write_special(struct out *o, char *at, struct bytes b)
{
        size_t n = (size_t)(b.end - b.at);

        if (memchr(b.at, 0, n)) /* what is behind it would be lost with protobuf-c */
                return NULL;
        o->s->len = (size_t)(at - o->s->buf);
        json_write_string(o->s, (const char *)b.at, n);
        return grow(o, o->s->buf + o->s->len, 0);
}

static inline char *write_text(struct out *o, char *at, struct bytes b)
{
        size_t n = (size_t)(b.end - b.at);

        if (plain_until(b.at, b.end) != b.end)
                return write_special(o, at, b);
        at = room_for(o, at, n + 2);
        *at++ = '"';
        at = copy_short(at, b.at, n);
        *at++ = '"';
        return at;
}

static char *write_name(struct out *o, char *at, const struct shape_enum *names, int value)
{
        size_t n;
        const char *name = enum_name(names, value, &n);

        at = room_for(o, at, (name ? n : 0) + SCALAR_ROOM);
        if (!name)
                return i64_text(at, value);
        *at++ = '"';
        at = copy_short(at, name, n);
        *at++ = '"';
        return at;
}

/* There is room for a scalar. Zeros are left out, unless they are in an array, and enums that are zero there, too. */
static char *write_number(struct out *o, char *at, const struct shape_field *f, uint64_t v, bool in_array)
{
        if (f->size == 4 && f->kind != SHAPE_BOOL)
                v = (uint32_t)v;
        if (v == 0 && (!in_array || f->kind == SHAPE_ENUM))
                return NULL;
        switch (f->kind) {
        case SHAPE_BOOL:
                __builtin_memcpy(at, v ? "true" : "fals", 4);
                at[4] = 'e';
                return at + (v ? 4 : 5);
        case SHAPE_INT32:
                return i64_text(at, (int32_t)v);
        case SHAPE_INT64:
                return i64_text(at, (int64_t)v);
        case SHAPE_UINT32:
        case SHAPE_UINT64:
                return u64_text(at, v);
        case SHAPE_TIME:
                return quoted_time(at, (int64_t)v);
        case SHAPE_CPU:
                return cpu_text(at, (int64_t)v);
        case SHAPE_ENUM:
                return write_name(o, at, f->names, (int)(uint32_t)v);
        default:
                return NULL;
        }
}

static char *write_int_value(char *at, struct bytes b)
{
        uint64_t tag, v = 0;

        if (b.at < b.end && (!take_varint(&b, &tag) || tag != 1 << 3 || !take_varint(&b, &v) || b.at < b.end))
                return NULL;
        return i64_text(at, (int64_t)v);
}

static char *write_bytes(struct out *o, char *at, struct bytes b)
{
        o->s->len = (size_t)(at - o->s->buf);
        putc1(o->s, '"');
        base64_write(o->s, b.at, (size_t)(b.end - b.at));
        putc1(o->s, '"');
        return grow(o, o->s->buf + o->s->len, 0);
}

/* There is room for a scalar. */
static inline char *write_one(struct out *o, char *at, const struct shape_field *f, struct bytes b, bool in_array, unsigned depth)
{
        uint64_t v;

        switch (f->kind) {
        case SHAPE_STRING:
                return in_array || b.at < b.end ? write_text(o, at, b) : NULL;
        case SHAPE_BYTES:
                return in_array || b.at < b.end ? write_bytes(o, at, b) : NULL;
        case SHAPE_MESSAGE:
                return write_message(o, at, f->shape, b, depth);
        case SHAPE_INT_VALUE:
                return write_int_value(at, b);
        case SHAPE_TIMESTAMP:
        case SHAPE_FLOAT:
        case SHAPE_DOUBLE:
        case SHAPE_MAP:
                return NULL;
        default:
                if (f->field->type == PROTOBUF_C_TYPE_FIXED64)
                        memcpy(&v, b.at, 8); /* little-endian, as this machine is */
                else if (!take_varint(&b, &v))
                        return NULL;
                return write_number(o, at, f, v, in_array);
        }
}

static char *write_packed_numbers(struct out *o, char *at, const struct shape_field *f, struct bytes b)
{
        uint64_t v;

        if (b.at == b.end)
                return NULL;
        for (char before = '['; b.at < b.end; before = ',') {
                at = room_for(o, at, SCALAR_ROOM + 1);
                *at++ = before;
                if (!take_varint(&b, &v) || !(at = write_number(o, at, f, v, true)))
                        return NULL;
        }
        at = room_for(o, at, 1);
        *at++ = ']';
        return at;
}

/* An entry of a map: its key and its value, each of which may be empty and then is not there. */
static char *write_entry(struct out *o, char *at, struct bytes b)
{
        struct bytes key = { b.at, b.at }, value = key;

        if (b.at < b.end && *b.at == (1 << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) && (b.at++, !take_length(&b, &key)))
                return NULL;
        if (b.at < b.end && *b.at == (2 << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) && (b.at++, !take_length(&b, &value)))
                return NULL;
        if (b.at < b.end || !(at = write_text(o, at, key)))
                return NULL;
        at = room_for(o, at, 1);
        *at++ = ':';
        return write_text(o, at, value);
}

static char *write_repeated(struct out *o, char *at, const struct shape_field *f, struct bytes b, unsigned depth)
{
        bool map = f->kind == SHAPE_MAP;
        struct bytes value;
        uint64_t tag;

        for (char before = map ? '{' : '['; b.at < b.end; before = ',') {
                at = room_for(o, at, SCALAR_ROOM + 1);
                *at++ = before;
                if (!take_varint(&b, &tag) || !take_value(&b, tag & 7, &value))
                        return NULL;
                at = map ? write_entry(o, at, value) : write_one(o, at, f, value, true, depth);
                if (!at)
                        return NULL;
        }
        at = room_for(o, at, 1);
        *at++ = map ? '}' : ']';
        return at;
}

/* With what is before it, its name and room for a scalar behind that. */
static inline char *write_field(struct out *o, char *at, char before, const struct shape_field *f, const struct wire_field *w,
                                struct bytes b, unsigned depth)
{
        at = room_for(o, at, 1 + (size_t)f->quoted_len + SHAPE_QUOTED_PAD + SCALAR_ROOM);
        *at++ = before;
        at = name_text(at, f);
        return !w->repeated ? write_one(o, at, f, b, false, depth + 1)
               : w->packed  ? write_packed_numbers(o, at, f, b)
                            : write_repeated(o, at, f, b, depth + 1);
}

/* Those between two fields that are there, or behind the last one. */
static char *write_zeros(struct out *o, char *at, const struct shape *s, unsigned from, unsigned to, char *before)
{
        for (unsigned i = from; i < to; i++) {
                const struct shape_field *f = &s->fields[i];
                if (!f->zero)
                        continue;
                at = room_for(o, at, 1 + (size_t)f->quoted_len + SHAPE_QUOTED_PAD + SCALAR_ROOM);
                *at++ = *before;
                *before = ',';
                at = name_text(at, f);
                at = copy_short(at, f->zero, strlen(f->zero));
        }
        return at;
}

static char *write_end(struct out *o, char *at, bool empty)
{
        at = room_for(o, at, 2);
        if (empty)
                *at++ = '{';
        *at++ = '}';
        return at;
}

/* A workload's record is packed in two pieces: what the core knows of it, and behind that its definition. */
static bool comes_in_pieces(const struct shape *s)
{
        return s->type == &pb__workload__descriptor;
}

/* What is nested nearly always has its fields in order, so that nothing needs to be noted. NULL and *ret_again: it has not. */
static char *write_in_order(struct out *o, char *at, const struct shape *s, struct bytes b, unsigned depth, bool *ret_again)
{
        int last = -1;
        char before = '{';

        while (b.at < b.end) {
                const uint8_t *from = b.at;
                struct bytes value;
                uint64_t tag, next;
                int index = take_field(s, &b, &tag, &value);
                if (index < 0)
                        return NULL;
                const struct wire_field *w = &s->wire[index];
                if (index <= last) {
                        *ret_again = true;
                        return NULL;
                }
                if (w->repeated && !w->packed) { /* all that follow each other */
                        for (struct bytes more = b; more.at < more.end && take_varint(&more, &next) && next == tag; b = more)
                                if (!take_value(&more, tag & 7, &value))
                                        return NULL;
                        value = (struct bytes){ from, b.at };
                }
                if (s->has_zeros)
                        at = write_zeros(o, at, s, (unsigned)(last + 1), (unsigned)index, &before);
                at = write_field(o, at, before, &s->fields[index], w, value, depth);
                if (!at)
                        return NULL;
                before = ',';
                last = index;
        }
        if (s->has_zeros)
                at = write_zeros(o, at, s, (unsigned)(last + 1), s->n_fields, &before);
        return write_end(o, at, before == '{');
}

static char *write_in_pieces(struct out *o, char *at, const struct shape *s, struct bytes b, unsigned depth)
{
        struct place places[FIELDS_MAX + 1];
        int n = find_fields(s, b, places);

        if (n < 0)
                return NULL;
        char before = '{';
        unsigned next = 0;
        for (int i = 0; i < n && at; i++, before = ',') {
                if (s->has_zeros)
                        at = write_zeros(o, at, s, next, places[i].index, &before);
                at = write_field(o, at, before, places[i].f, &s->wire[places[i].index], places[i].value, depth);
                next = places[i].index + 1;
        }
        if (at && s->has_zeros)
                at = write_zeros(o, at, s, next, s->n_fields, &before);
        return at ? write_end(o, at, before == '{') : NULL;
}

static char *write_message(struct out *o, char *at, const struct shape *s, struct bytes b, unsigned depth)
{
        size_t before = (size_t)(at - o->s->buf);
        bool again = comes_in_pieces(s);

        if (depth >= DEPTH_MAX)
                return NULL;
        if (!again && ((at = write_in_order(o, at, s, b, depth, &again)) || !again))
                return at;
        return write_in_pieces(o, o->s->buf + before, s, b, depth);
}

static struct bytes bytes_of(const void *data, size_t len)
{
        const uint8_t *at = len ? data : (const uint8_t *)"";

        return (struct bytes){ at, at + len };
}

bool json_write_packed(struct str *out, const ProtobufCMessageDescriptor *type, const void *data, size_t len)
{
        size_t before = out->len;
        struct out o = { .s = out };
        char *at = NULL;

        str_reserve(out, 1);
        o.end = out->buf + out->cap - 1;
        at = write_message(&o, out->buf + before, shape_of(type), bytes_of(data, len), 0);
        out->len = at ? (size_t)(at - out->buf) : before;
        out->buf[out->len] = '\0';
        return at != NULL;
}

/* The value of a field that is there; at == end: it is not. */
static struct bytes find_value(const ProtobufCMessageDescriptor *type, struct bytes b, const char *name, unsigned wire)
{
        const struct shape *s = shape_of(type);
        const struct shape_field *f = shape_find(s, name, strlen(name), 0);
        struct bytes value;
        uint64_t tag;

        while (f && b.at < b.end && take_varint(&b, &tag) && take_value(&b, tag & 7, &value))
                if (tag == (f->field->id << 3 | wire))
                        return value;
        return (struct bytes){ b.end, b.end };
}

uint64_t json_packed_number(const ProtobufCMessageDescriptor *type, const void *data, size_t len, const char *field)
{
        struct bytes b = find_value(type, bytes_of(data, len), field, PROTOBUF_C_WIRE_TYPE_VARINT);
        uint64_t v;

        return take_varint(&b, &v) ? v : 0;
}

const char *json_packed_text(const ProtobufCMessageDescriptor *type, const void *data, size_t len, const char *field, size_t *ret_len)
{
        struct bytes b = find_value(type, bytes_of(data, len), field, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);

        *ret_len = (size_t)(b.end - b.at);
        return (const char *)b.at;
}
