/* model/json_packed.c: packed messages to JSON text, without unpacking them. See json.h.
 *
 * A message is scanned once for which fields are where, and they are written in the descriptor's order, each from its bytes. What our own packing never writes is not known here, and
 * is left to those who unpack: fields that this program does not know, that are there twice or in pieces, or that are zero and yet there; the kinds that no record has.
 */
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

static bool write_message(struct str *out, const struct shape *s, struct bytes b, unsigned depth);

static inline bool take_varint(struct bytes *b, uint64_t *ret)
{
        uint64_t v = 0;

        for (unsigned shift = 0; shift < 64 && b->at < b->end; shift += 7) {
                uint8_t c = *b->at++;
                v |= (uint64_t)(c & 0x7f) << shift;
                if (c < 0x80) {
                        *ret = v;
                        return true;
                }
        }
        return false;
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

static inline unsigned wire_type(const struct wire_field *w)
{
        return w->packed || w->kind >= WIRE_TEXT ? PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED
               : w->kind == WIRE_FIXED64         ? PROTOBUF_C_WIRE_TYPE_64BIT
                                                 : PROTOBUF_C_WIRE_TYPE_VARINT;
}

/* The next field, which has to be one that is known here: its index, its tag and its value. -1: it is not. */
static inline int take_field(const struct shape *s, struct bytes *b, uint64_t *ret_tag, struct bytes *ret_value)
{
        uint64_t tag;
        int index;

        if (!take_varint(b, &tag) || (index = find_field(s, tag >> 3)) < 0)
                return -1;
        const struct wire_field *w = &s->wire[index];
        if (w->kind == WIRE_OTHER || (tag & 7) != wire_type(w) || !take_value(b, tag & 7, ret_value))
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

static bool write_number(struct str *out, const struct shape_field *f, uint64_t v, bool in_array)
{
        union {
                int32_t i32;
                uint32_t u32;
                uint64_t u64;
                protobuf_c_boolean b;
        } slot;
        bool zero;

        if (f->kind == SHAPE_BOOL)
                zero = !(slot.b = v != 0);
        else if (f->size == 4)
                zero = (slot.u32 = (uint32_t)v) == 0;
        else
                zero = (slot.u64 = v) == 0;
        if (zero && (!in_array || f->kind == SHAPE_ENUM))
                return false;
        json_put_scalar(out, f, &slot);
        return true;
}

static bool write_text(struct str *out, struct bytes b)
{
        size_t n = (size_t)(b.end - b.at);

        if (plain_until(b.at, b.end) == b.end) {
                room(out, n + 2);
                putc1(out, '"');
                put_short(out, b.at, n);
                putc1(out, '"');
                return true;
        }
        if (memchr(b.at, 0, n)) /* what is behind it would be lost with protobuf-c */
                return false;
        json_write_string(out, (const char *)b.at, n);
        return true;
}

static bool write_int_value(struct str *out, const struct shape_field *f, struct bytes b)
{
        uint64_t tag, v = 0;

        if (b.at < b.end && (!take_varint(&b, &tag) || tag != 1 << 3 || !take_varint(&b, &v) || b.at < b.end))
                return false;
        json_put_scalar(out, &f->shape->fields[0], &v);
        return true;
}

static bool write_one(struct str *out, const struct shape_field *f, struct bytes b, bool in_array, unsigned depth)
{
        uint64_t v;

        switch (f->kind) {
        case SHAPE_STRING:
                return (in_array || b.at < b.end) && write_text(out, b);
        case SHAPE_BYTES:
                if (!in_array && b.at == b.end)
                        return false;
                putc1(out, '"');
                base64_write(out, b.at, (size_t)(b.end - b.at));
                putc1(out, '"');
                return true;
        case SHAPE_MESSAGE:
                return write_message(out, f->shape, b, depth);
        case SHAPE_INT_VALUE:
                return write_int_value(out, f, b);
        case SHAPE_TIMESTAMP:
        case SHAPE_FLOAT:
        case SHAPE_DOUBLE:
        case SHAPE_MAP:
                return false;
        default:
                if (f->field->type == PROTOBUF_C_TYPE_FIXED64)
                        memcpy(&v, b.at, 8); /* little-endian, as this machine is */
                else if (!take_varint(&b, &v))
                        return false;
                return write_number(out, f, v, in_array);
        }
}

static bool write_packed_numbers(struct str *out, const struct shape_field *f, struct bytes b)
{
        uint64_t v;

        if (b.at == b.end)
                return false;
        for (char before = '['; b.at < b.end; before = ',') {
                putc1(out, before);
                if (!take_varint(&b, &v) || !write_number(out, f, v, true))
                        return false;
        }
        putc1(out, ']');
        return true;
}

/* An entry of a map: its key and its value, each of which may be empty and then is not there. */
static bool write_entry(struct str *out, struct bytes b)
{
        struct bytes key = { b.at, b.at }, value = key;

        if (b.at < b.end && *b.at == (1 << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) && (b.at++, !take_length(&b, &key)))
                return false;
        if (b.at < b.end && *b.at == (2 << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) && (b.at++, !take_length(&b, &value)))
                return false;
        if (b.at < b.end || !write_text(out, key))
                return false;
        putc1(out, ':');
        return write_text(out, value);
}

static bool write_repeated(struct str *out, const struct shape_field *f, struct bytes b, unsigned depth)
{
        bool map = f->kind == SHAPE_MAP;
        struct bytes value;
        uint64_t tag;

        for (char before = map ? '{' : '['; b.at < b.end; before = ',') {
                putc1(out, before);
                if (!take_varint(&b, &tag) || !take_value(&b, tag & 7, &value) ||
                    !(map ? write_entry(out, value) : write_one(out, f, value, true, depth)))
                        return false;
        }
        putc1(out, map ? '}' : ']');
        return true;
}

static bool write_field(struct str *out, const struct shape_field *f, const struct wire_field *w, struct bytes b, unsigned depth)
{
        put_name(out, f);
        return !w->repeated ? write_one(out, f, b, false, depth + 1)
               : w->packed  ? write_packed_numbers(out, f, b)
                            : write_repeated(out, f, b, depth + 1);
}

/* A workload's record is packed in two pieces: what the core knows of it, and behind that its definition. */
static bool comes_in_pieces(const struct shape *s)
{
        return s->type == &pb__workload__descriptor;
}

/* What is nested nearly always has its fields in order, so that nothing needs to be noted. 0: it has not, and nothing was written; -1: it cannot be written. */
static int write_in_order(struct str *out, const struct shape *s, struct bytes b, unsigned depth)
{
        size_t before = out->len;
        int last = -1;

        while (b.at < b.end) {
                const uint8_t *from = b.at;
                struct bytes value;
                uint64_t tag, next;
                int index = take_field(s, &b, &tag, &value);
                if (index < 0)
                        return -1;
                const struct wire_field *w = &s->wire[index];
                if (index <= last) {
                        out->len = before;
                        return 0;
                }
                if (w->repeated && !w->packed) { /* all that follow each other */
                        for (struct bytes more = b; more.at < more.end && take_varint(&more, &next) && next == tag; b = more)
                                if (!take_value(&more, tag & 7, &value))
                                        return -1;
                        value = (struct bytes){ from, b.at };
                }
                putc1(out, last < 0 ? '{' : ',');
                if (!write_field(out, &s->fields[index], w, value, depth))
                        return -1;
                last = index;
        }
        if (last < 0)
                putc1(out, '{');
        putc1(out, '}');
        return 1;
}

static bool write_message(struct str *out, const struct shape *s, struct bytes b, unsigned depth)
{
        struct place places[FIELDS_MAX + 1];
        int done = depth >= DEPTH_MAX ? -1 : depth && !comes_in_pieces(s) ? write_in_order(out, s, b, depth) : 0;
        int n = done ? done : find_fields(s, b, places);

        if (done || n < 0)
                return n > 0;
        for (int i = 0; i < n; i++) {
                putc1(out, i ? ',' : '{');
                if (!write_field(out, places[i].f, &s->wire[places[i].index], places[i].value, depth))
                        return false;
        }
        if (n == 0)
                putc1(out, '{');
        putc1(out, '}');
        return true;
}

static struct bytes bytes_of(const void *data, size_t len)
{
        const uint8_t *at = len ? data : (const uint8_t *)"";

        return (struct bytes){ at, at + len };
}

bool json_write_packed(struct str *out, const ProtobufCMessageDescriptor *type, const void *data, size_t len)
{
        size_t before = out->len;

        bool ok = write_message(out, shape_of(type), bytes_of(data, len), 0);
        if (!ok)
                out->len = before;
        finish(out);
        return ok;
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
