/* model/pb_pack.c: packing in one pass.
 *
 * protobuf-c walks a message twice, once for its size and once for its bytes, and this server packs
 * each change six times over (events, records, plans, answers). Here the bytes are written from the
 * end to the beginning: when a nested message has been written its length is known, and is put
 * before it. The buffer is on the stack; what does not fit gets one of its size, and the few kinds
 * of fields that our messages do not have go to protobuf-c. Both give the same bytes (pb_test.c).
 *
 * Text that is not UTF-8 (a message that was cut inside a character) is mended here, since a peer,
 * and the store at its next start, would refuse the whole message for it.
 */
#include "base/mem.h"
#include "base/str.h"
#include "base/wire.h"
#include "model/pb.h"
#include "model/shape.h"
#include <string.h>

#define ROOM 16384

struct writer {
        uint8_t *first, *at; /* what is written begins at `at` */
        bool as_is;          /* text is not mended */
};

static bool put_message(struct writer *w, const ProtobufCMessage *m, const struct shape *shape);

static inline bool put_bytes(struct writer *w, const void *data, size_t len)
{
        if ((size_t)(w->at - w->first) < len)
                return false;
        w->at -= len;
        memcpy(w->at, data, len);
        return true;
}

static inline bool put_varint(struct writer *w, uint64_t v)
{
        if (v < 0x80 && w->at > w->first) { /* as most lengths and numbers are */
                *--w->at = (uint8_t)v;
                return true;
        }
        size_t n = varint_size(v);

        if ((size_t)(w->at - w->first) < n)
                return false;
        w->at -= n;
        varint_put(w->at, v);
        return true;
}

/* Two bytes are stored, and one or both of them kept: what is before them is yet to be written. */
static inline bool put_tag(struct writer *w, const struct wire_field *f)
{
        if (w->at - w->first < 2)
                return false;
        memcpy(w->at - 2, f->tag, 2);
        w->at -= f->tag_len;
        return true;
}

static inline bool is_ascii(const uint8_t *p, size_t len)
{
        uint64_t seen = 0, word;

        for (; len >= 8; p += 8, len -= 8) {
                memcpy(&word, p, 8);
                seen |= word;
        }
        for (; len > 0; p++, len--)
                seen |= *p;
        return (seen & 0x8080808080808080u) == 0;
}

static inline bool put_text(struct writer *w, const struct wire_field *f, const char *text,
                            size_t len)
{
        if (!put_bytes(w, text, len))
                return false;
        if (!w->as_is && !is_ascii(w->at, len))
                str_mend_utf8((char *)w->at, len);
        return put_varint(w, len) && put_tag(w, f);
}

static inline bool put_binary(struct writer *w, const struct wire_field *f, const void *data,
                              size_t len)
{
        return put_bytes(w, data, len) && put_varint(w, len) && put_tag(w, f);
}

static uint64_t number_at(enum wire_kind kind, const void *at)
{
        switch (kind) {
        case WIRE_BOOL:
                return *(const protobuf_c_boolean *)at != 0;
        case WIRE_UINT32:
                return *(const uint32_t *)at;
        case WIRE_INT32:
                return (uint64_t)(int64_t) * (const int32_t *)at;
        default:
                return *(const uint64_t *)at;
        }
}

static bool put_sub(struct writer *w, const struct wire_field *f, const ProtobufCMessage *m,
                    const struct shape *shape)
{
        const uint8_t *end = w->at;

        return put_message(w, m, shape) && put_varint(w, (uint64_t)(end - w->at)) && put_tag(w, f);
}

/* One value with its tag, zero or not. */
static bool put_element(struct writer *w, const struct wire_field *f, const void *at,
                        const struct shape *sub)
{
        const ProtobufCBinaryData *b = at;
        const char *text;

        switch ((enum wire_kind)f->kind) {
        case WIRE_TEXT:
                text = *(char *const *)at;
                return put_text(w, f, text ? text : "", text ? strlen(text) : 0);
        case WIRE_MESSAGE:
                return put_sub(w, f, *(ProtobufCMessage *const *)at, sub);
        case WIRE_BYTES:
                return put_binary(w, f, b->data, b->len);
        case WIRE_FIXED64:
                return put_bytes(w, at, 8) && put_tag(w, f); /* little-endian, as this machine is */
        case WIRE_OTHER:
                return false;
        default:
                return put_varint(w, number_at((enum wire_kind)f->kind, at)) && put_tag(w, f);
        }
}

static bool put_repeated(struct writer *w, const struct wire_field *f, const ProtobufCMessage *m,
                         const struct shape *sub)
{
        size_t n = *(const size_t *)((const char *)m + f->n_offset);
        const char *at = *(char *const *)((const char *)m + f->offset);
        const uint8_t *end = w->at;

        if (n == 0)
                return true;
        for (size_t i = n; i-- > 0;)
                if (f->packed ? !put_varint(w, number_at((enum wire_kind)f->kind, at + i * f->size))
                              : !put_element(w, f, at + i * f->size, sub))
                        return false;
        return !f->packed || (put_varint(w, (uint64_t)(end - w->at)) && put_tag(w, f));
}

/* proto3: what is zero or empty is left out. */
static bool put_plain(struct writer *w, const struct wire_field *f, const void *at,
                      const struct shape *sub)
{
        const char *text;
        uint64_t v;

        switch ((enum wire_kind)f->kind) {
        case WIRE_TEXT:
                text = *(char *const *)at;
                return !text || !text[0] || put_text(w, f, text, strlen(text));
        case WIRE_MESSAGE:
                return !*(ProtobufCMessage *const *)at ||
                       put_sub(w, f, *(ProtobufCMessage *const *)at, sub);
        case WIRE_BYTES:
                return ((const ProtobufCBinaryData *)at)->len == 0 || put_element(w, f, at, sub);
        case WIRE_FIXED64:
                return *(const uint64_t *)at == 0 || put_element(w, f, at, sub);
        case WIRE_OTHER:
                return false;
        default:
                v = number_at((enum wire_kind)f->kind, at);
                return v == 0 || (put_varint(w, v) && put_tag(w, f));
        }
}

static bool put_message(struct writer *w, const ProtobufCMessage *m, const struct shape *shape)
{
        if (m->n_unknown_fields > 0)
                return false;
        for (unsigned i = shape->n_fields; i-- > 0;) {
                const struct wire_field *f = &shape->wire[i];
                if (shape_is_unset(f, m))
                        continue;
                bool ok =
                    f->repeated
                        ? f->kind != WIRE_OTHER && put_repeated(w, f, m, shape->fields[i].shape)
                        : put_plain(w, f, (const char *)m + f->offset, shape->fields[i].shape);
                if (!ok)
                        return false;
        }
        return true;
}

/* What did not fit on the stack, into n bytes, which is what it takes. */
static void pack_large(const ProtobufCMessage *m, uint8_t *data, size_t n, bool as_is)
{
        uint8_t *room = mem_bytes(n + 1); /* put_tag() wants two bytes for a tag of one */
        struct writer w = { room, room + n + 1, as_is };

        if (put_message(&w, m, shape_of(m->descriptor)) && w.at == room + 1)
                memcpy(data, w.at, n);
        else
                protobuf_c_message_pack(m, data);
        mem_free(room);
}

static void pack(struct str *out, const ProtobufCMessage *m, bool as_is)
{
        uint8_t room[ROOM];
        struct writer w = { room, room + ROOM, as_is };

        if (put_message(&w, m, shape_of(m->descriptor))) {
                str_add(out, w.at, (size_t)(room + ROOM - w.at));
                return;
        }
        size_t n = protobuf_c_message_get_packed_size(m);
        str_reserve(out, n + 1);
        pack_large(m, (uint8_t *)out->buf + out->len, n, as_is);
        out->len += n;
        out->buf[out->len] = '\0';
}

void pb_pack(struct str *out, const ProtobufCMessage *m)
{
        pack(out, m, false);
}

void pb_pack_as_is(struct str *out, const ProtobufCMessage *m)
{
        pack(out, m, true);
}

void *pb_pack_before(struct arena *arena, const ProtobufCMessage *m, const void *tail,
                     size_t tail_len, size_t *ret_len)
{
        uint8_t room[ROOM], *data;
        struct writer w = { room, room + ROOM, false };
        size_t n;

        if (put_message(&w, m, shape_of(m->descriptor))) {
                n = (size_t)(room + ROOM - w.at);
                data = arena_bytes(arena, n + tail_len ? n + tail_len : 1);
                memcpy(data, w.at, n);
        } else {
                n = protobuf_c_message_get_packed_size(m);
                data = arena_bytes(arena, n + tail_len ? n + tail_len : 1);
                pack_large(m, data, n, false);
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
