/* model/pb_pack.c: packing in one pass.
 *
 * protobuf-c walks a message twice, once for its size and once for its bytes, and this server packs each change six times over (events, records, plans, answers). Here the
 * bytes are written from the end to the beginning: when a nested message has been written its length is known, and is put before it. The buffer is on the stack; what
 * does not fit, and the few kinds of fields that our messages do not have, goes to protobuf-c. Both give the same bytes (pb_test.c).
 */
#include "model/pb.h"
#include <string.h>

#define ROOM 16384

struct writer {
        uint8_t *first, *at; /* what is written begins at `at` */
};

static bool put_message(struct writer *w, const ProtobufCMessage *m);

static bool put_bytes(struct writer *w, const void *data, size_t len)
{
        if ((size_t)(w->at - w->first) < len)
                return false;
        w->at -= len;
        memcpy(w->at, data, len);
        return true;
}

static bool put_varint(struct writer *w, uint64_t v)
{
        if (v < 0x80 && w->at > w->first) {
                *--w->at = (uint8_t)v;
                return true;
        }
        uint8_t bytes[10];
        size_t n = 0;
        for (; v >= 0x80; v >>= 7)
                bytes[n++] = (uint8_t)(v | 0x80);
        bytes[n++] = (uint8_t)v;
        return put_bytes(w, bytes, n);
}

static bool put_tag(struct writer *w, uint32_t id, unsigned wire)
{
        return put_varint(w, (uint64_t)id << 3 | wire);
}

static bool put_text(struct writer *w, uint32_t id, const void *data, size_t len)
{
        return put_bytes(w, data, len) && put_varint(w, len) && put_tag(w, id, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
}

static size_t size_of(ProtobufCType type)
{
        switch (type) {
        case PROTOBUF_C_TYPE_BOOL:
                return sizeof(protobuf_c_boolean);
        case PROTOBUF_C_TYPE_ENUM:
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_UINT32:
                return 4;
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_UINT64:
        case PROTOBUF_C_TYPE_FIXED64:
                return 8;
        case PROTOBUF_C_TYPE_BYTES:
                return sizeof(ProtobufCBinaryData);
        default:
                return sizeof(void *);
        }
}

/* The value of a varint field. */
static uint64_t number_at(ProtobufCType type, const void *at)
{
        switch (type) {
        case PROTOBUF_C_TYPE_BOOL:
                return *(const protobuf_c_boolean *)at != 0;
        case PROTOBUF_C_TYPE_UINT32:
                return *(const uint32_t *)at;
        case PROTOBUF_C_TYPE_ENUM:
        case PROTOBUF_C_TYPE_INT32:
                return (uint64_t)(int64_t) * (const int32_t *)at; /* negative ones have ten bytes */
        default:
                return *(const uint64_t *)at;
        }
}

/* One value with its tag, whatever it is. */
static bool put_value(struct writer *w, const ProtobufCFieldDescriptor *f, const void *at)
{
        const ProtobufCBinaryData *b;
        const char *text;
        const uint8_t *end;

        switch (f->type) {
        case PROTOBUF_C_TYPE_STRING:
                text = *(char *const *)at;
                return text ? put_text(w, f->id, text, strlen(text)) : put_text(w, f->id, "", 0);
        case PROTOBUF_C_TYPE_MESSAGE:
                end = w->at;
                return put_message(w, *(ProtobufCMessage *const *)at) && put_varint(w, (uint64_t)(end - w->at)) &&
                       put_tag(w, f->id, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
        case PROTOBUF_C_TYPE_BYTES:
                b = at;
                return put_text(w, f->id, b->data, b->len);
        case PROTOBUF_C_TYPE_BOOL:
        case PROTOBUF_C_TYPE_ENUM:
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_UINT64:
                return put_varint(w, number_at(f->type, at)) && put_tag(w, f->id, PROTOBUF_C_WIRE_TYPE_VARINT);
        case PROTOBUF_C_TYPE_FIXED64:
                return put_bytes(w, at, 8) && put_tag(w, f->id, PROTOBUF_C_WIRE_TYPE_64BIT); /* little-endian, as this machine is */
        default:
                return false;
        }
}

static bool put_packed(struct writer *w, const ProtobufCFieldDescriptor *f, const char *at, size_t n, size_t size)
{
        const uint8_t *end = w->at;

        for (size_t i = n; i-- > 0;)
                if (!put_varint(w, number_at(f->type, at + i * size)))
                        return false;
        return put_varint(w, (uint64_t)(end - w->at)) && put_tag(w, f->id, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
}

static bool put_repeated(struct writer *w, const ProtobufCFieldDescriptor *f, const ProtobufCMessage *m)
{
        size_t n = *(const size_t *)((const char *)m + f->quantifier_offset), size = size_of(f->type);
        const char *at = *(char *const *)((const char *)m + f->offset);

        if (n == 0)
                return true;
        if (f->flags & PROTOBUF_C_FIELD_FLAG_PACKED)
                return f->type != PROTOBUF_C_TYPE_FIXED64 && size <= 8 && put_packed(w, f, at, n, size);
        for (size_t i = n; i-- > 0;)
                if (!put_value(w, f, at + i * size))
                        return false;
        return true;
}

/* proto3: what is zero or empty is left out. */
static bool is_zero(const ProtobufCFieldDescriptor *f, const void *at)
{
        const char *text;

        switch (f->type) {
        case PROTOBUF_C_TYPE_STRING:
                text = *(char *const *)at;
                return !text || !text[0];
        case PROTOBUF_C_TYPE_BOOL:
                return !*(const protobuf_c_boolean *)at;
        case PROTOBUF_C_TYPE_ENUM:
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_FIXED32:
        case PROTOBUF_C_TYPE_SFIXED32:
                return *(const uint32_t *)at == 0;
        case PROTOBUF_C_TYPE_FLOAT:
                return *(const float *)at == 0;
        case PROTOBUF_C_TYPE_DOUBLE:
                return *(const double *)at == 0;
        default: /* 64 bits, a pointer, or the length of bytes */
                return *(const uint64_t *)at == 0;
        }
}

static bool put_message(struct writer *w, const ProtobufCMessage *m)
{
        const ProtobufCMessageDescriptor *type = m->descriptor;

        if (m->n_unknown_fields > 0)
                return false;
        for (unsigned i = type->n_fields; i-- > 0;) {
                const ProtobufCFieldDescriptor *f = &type->fields[i];
                const void *at = (const char *)m + f->offset;
                if (f->label == PROTOBUF_C_LABEL_REPEATED) {
                        if (!put_repeated(w, f, m))
                                return false;
                } else if (f->label != PROTOBUF_C_LABEL_NONE || (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)) {
                        return false;
                } else if (!is_zero(f, at) && !put_value(w, f, at)) {
                        return false;
                }
        }
        return true;
}

void pb_pack(struct str *out, const ProtobufCMessage *m)
{
        uint8_t room[ROOM];
        struct writer w = { room, room + ROOM };

        if (put_message(&w, m)) {
                str_add(out, w.at, (size_t)(room + ROOM - w.at));
                return;
        }
        size_t n = protobuf_c_message_get_packed_size(m);
        str_reserve(out, n + 1);
        protobuf_c_message_pack(m, (uint8_t *)out->buf + out->len);
        out->len += n;
        out->buf[out->len] = '\0';
}

void *pb_pack_before(struct arena *arena, const ProtobufCMessage *m, const void *tail, size_t tail_len, size_t *ret_len)
{
        uint8_t room[ROOM], *data;
        struct writer w = { room, room + ROOM };
        size_t n;

        if (put_message(&w, m)) {
                n = (size_t)(room + ROOM - w.at);
                data = arena_alloc(arena, n + tail_len ? n + tail_len : 1);
                memcpy(data, w.at, n);
        } else {
                n = protobuf_c_message_get_packed_size(m);
                data = arena_alloc(arena, n + tail_len ? n + tail_len : 1);
                protobuf_c_message_pack(m, data);
        }
        if (tail_len > 0)
                memcpy(data + n, tail, tail_len);
        *ret_len = n + tail_len;
        return data;
}

void *pb_pack_arena(struct arena *arena, const ProtobufCMessage *m, size_t *ret_len)
{
        return pb_pack_before(arena, m, NULL, 0, ret_len);
}
