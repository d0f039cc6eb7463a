/* model/pb.c: see pb.h. */
#include "model/pb.h"
#include "base/mem.h"
#include "base/wire.h"
#include "model/json_private.h"
#include "model/path.h"
#include "model/shape.h"
#include <stdlib.h>
#include <string.h>

ProtobufCMessage *pb_new(struct arena *arena, const ProtobufCMessageDescriptor *type)
{
        ProtobufCMessage *m = arena_alloc(arena, type->sizeof_message);

        type->message_init(m);
        return m;
}

/* ---- packed form ---- */

/* The look over foreign bytes before protobuf-c gets them. protobuf-c 1.4 has no limit on nesting,
 * does not check UTF-8, and cuts strings at a NUL. */
struct scan {
        struct err *err;
        unsigned messages, depth;
        bool unknown; /* there are fields that we do not know */
};

static int scan_fail(struct scan *s, const struct path_step *at, const char *what)
{
        char path[PATH_TEXT_LEN];

        path_text(at, path);
        return err_set(s->err, ERR_INVALID,
                       .msg = path[0] ? fmt("%s: %s", path, what) : fmt("the message: %s", what),
                       .path = path);
}

static int scan_message(struct scan *s, const ProtobufCMessageDescriptor *type, const uint8_t *p,
                        const uint8_t *end, const struct path_step *at);

/* The value of a known or unknown field (d NULL); *p is behind the tag. */
static int scan_field(struct scan *s, const ProtobufCFieldDescriptor *d, unsigned wire,
                      const uint8_t **p, const uint8_t *end, const struct path_step *at)
{
        struct wire_value v;

        if (wire != WIRE_TYPE_VARINT && wire != WIRE_TYPE_64BIT && wire != WIRE_TYPE_BYTES &&
            wire != WIRE_TYPE_32BIT)
                return scan_fail(s, at, "unknown wire type");
        if (!wire_take(p, end, wire, &v))
                return scan_fail(s, at, "the packed form is cut off");
        if (d && wire == WIRE_TYPE_BYTES) {
                if (d->type == PROTOBUF_C_TYPE_STRING && !str_is_utf8((const char *)v.at, v.n))
                        return scan_fail(s, at, "expected UTF-8 text without NUL");
                if (d->type == PROTOBUF_C_TYPE_MESSAGE)
                        return scan_message(s, d->descriptor, v.at, *p, at);
        }
        if (d && d->type == PROTOBUF_C_TYPE_ENUM && d->label != PROTOBUF_C_LABEL_REPEATED &&
            wire == PROTOBUF_C_WIRE_TYPE_VARINT && (int64_t)v.n != (int32_t)v.n)
                return scan_fail(s, at, "the value is out of range");
        return 0;
}

static int scan_message(struct scan *s, const ProtobufCMessageDescriptor *type, const uint8_t *p,
                        const uint8_t *end, const struct path_step *at)
{
        const ProtobufCFieldDescriptor *last = NULL;
        size_t index = 0; /* in a run of elements of the same field */

        if (++s->messages > PB_MAX_MESSAGES)
                return scan_fail(s, at, "too many messages in one");
        if (++s->depth > PB_MAX_DEPTH)
                return scan_fail(s, at, "nested too deep");
        while (p < end) {
                struct path_step step = { .up = at }, element = { .up = &step };
                const struct path_step *where = &step;
                const ProtobufCFieldDescriptor *d;
                uint64_t tag;
                int rc;

                if (!varint_take(&p, end, &tag) || tag >> 3 == 0 || tag >> 32 != 0)
                        return scan_fail(s, at, "the packed form is broken");
                d = protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
                step.name = d ? d->name : "unknown";
                step.name_len = strlen(step.name);
                s->unknown = s->unknown || !d;
                index = d == last ? index + 1 : 0;
                last = d;
                if (d && d->label == PROTOBUF_C_LABEL_REPEATED) {
                        element.index = index;
                        where = &element;
                }
                if (d && (tag & 7) != shape_wire_type(d->type) &&
                    !(d->label == PROTOBUF_C_LABEL_REPEATED &&
                      (tag & 7) == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED))
                        return scan_fail(s, &step, "wrong wire type");
                rc = scan_field(s, d, (unsigned)(tag & 7), &p, end, where);
                if (rc < 0)
                        return rc;
        }
        s->depth--;
        return 0;
}

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *type, const void *data,
                                size_t len, struct arena *arena)
{
        struct arena_allocator a = arena_allocator(arena);

        return protobuf_c_message_unpack(type, (ProtobufCAllocator *)(void *)&a, len,
                                         data ? data : "");
}

/* Fields of newer peers would travel on into records and hashes. */
static void drop_unknown(ProtobufCMessage *m)
{
        const struct shape *s = shape_of(m->descriptor);

        m->n_unknown_fields = 0;
        m->unknown_fields = NULL;
        for (unsigned i = 0; i < s->n_fields; i++) {
                const struct shape_field *f = &s->fields[i];
                if (shape_is_unset(&s->wire[i], m) || f->field->type != PROTOBUF_C_TYPE_MESSAGE)
                        continue;
                size_t n = shape_count(f, m);
                for (size_t k = 0; k < n; k++)
                        drop_unknown(
                            *(ProtobufCMessage **)(f->field->label == PROTOBUF_C_LABEL_REPEATED
                                                       ? shape_at(f, m, k)
                                                       : shape_slot(f, m)));
        }
}

int pb_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
              struct arena *arena, ProtobufCMessage **ret_message, struct err *err)
{
        struct scan s = { .err = err };
        const uint8_t *bytes = data ? data : (const uint8_t *)"";
        ProtobufCMessage *m;
        int rc = scan_message(&s, type, bytes, bytes + len, NULL);

        if (rc < 0)
                return rc;
        m = unpack(type, data, len, arena);
        if (!m)
                return err_set(err, ERR_INVALID,
                               .msg = fmt("the bytes are no %s", type->short_name));
        if (s.unknown)
                drop_unknown(m);
        *ret_message = m;
        return 0;
}

int pb_unpack_own(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                  struct arena *arena, ProtobufCMessage **ret_message, struct err *err)
{
        ProtobufCMessage *m = unpack(type, data, len, arena);

        if (!m)
                return err_set(err, ERR_CORRUPT,
                               .msg = fmt("stored bytes are no %s", type->short_name),
                               .detail = fmt("%zu bytes", len));
        *ret_message = m;
        return 0;
}

/* ---- copies ---- */

static void clone_value(struct arena *arena, const struct shape_field *f, void *to,
                        const void *from)
{
        const ProtobufCBinaryData *b;
        const char *text;

        switch (f->kind) {
        case SHAPE_STRING:
                text = *(char *const *)from;
                *(char **)to =
                    text && text[0] ? arena_strdup(arena, text) : (char *)protobuf_c_empty_string;
                break;
        case SHAPE_BYTES:
                b = from;
                *(ProtobufCBinaryData *)to =
                    (ProtobufCBinaryData){ b->len,
                                           b->len ? arena_dup(arena, b->data, b->len) : NULL };
                break;
        case SHAPE_MESSAGE:
        case SHAPE_INT_VALUE:
        case SHAPE_TIMESTAMP:
        case SHAPE_MAP:
                *(ProtobufCMessage **)to = pb_clone(arena, *(ProtobufCMessage *const *)from);
                break;
        default:
                memcpy(to, from, f->size);
        }
}

ProtobufCMessage *pb_clone(struct arena *arena, const ProtobufCMessage *m)
{
        const struct shape *s = shape_of(m->descriptor);
        ProtobufCMessage *copy = pb_new(arena, m->descriptor);

        for (unsigned i = 0; i < s->n_fields; i++) {
                if (shape_is_unset(&s->wire[i], m))
                        continue;
                const struct shape_field *f = &s->fields[i];
                size_t n = shape_count(f, m);
                if (n == 0)
                        continue;
                if (f->field->label == PROTOBUF_C_LABEL_REPEATED) {
                        char *at = arena_alloc(arena, n * f->size);
                        for (size_t k = 0; k < n; k++)
                                clone_value(arena, f, at + k * f->size, shape_at(f, m, k));
                        *(void **)shape_slot(f, copy) = at;
                        *(size_t *)((char *)copy + f->field->quantifier_offset) = n;
                        continue;
                }
                clone_value(arena, f, shape_slot(f, copy), shape_slot(f, m));
                shape_mark(f, copy);
        }
        return copy;
}

static bool equal_value(const struct shape_field *f, const void *a, const void *b)
{
        const ProtobufCBinaryData *x = a, *y = b;

        switch (f->kind) {
        case SHAPE_STRING:
                return str_eq(*(char *const *)a, *(char *const *)b);
        case SHAPE_BYTES:
                return x->len == y->len && (x->len == 0 || memcmp(x->data, y->data, x->len) == 0);
        case SHAPE_MESSAGE:
        case SHAPE_INT_VALUE:
        case SHAPE_TIMESTAMP:
        case SHAPE_MAP:
                return pb_equal(*(ProtobufCMessage *const *)a, *(ProtobufCMessage *const *)b);
        case SHAPE_BOOL:
                return !*(const protobuf_c_boolean *)a == !*(const protobuf_c_boolean *)b;
        default:
                return memcmp(a, b, f->size) == 0;
        }
}

bool pb_equal(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
        const struct shape *s;

        if (a == b)
                return true;
        if (!a || !b || a->descriptor != b->descriptor)
                return false;
        s = shape_of(a->descriptor);
        for (unsigned i = 0; i < s->n_fields; i++) {
                const struct shape_field *f = &s->fields[i];
                bool repeated = f->field->label == PROTOBUF_C_LABEL_REPEATED;
                size_t n = shape_count(f, a);
                if (n != shape_count(f, b))
                        return false;
                for (size_t k = 0; k < n; k++)
                        if (!equal_value(f, repeated ? shape_at(f, a, k) : shape_slot(f, a),
                                         repeated ? shape_at(f, b, k) : shape_slot(f, b)))
                                return false;
        }
        return true;
}

/* ---- maps ---- */

static const char *text_of(const char *s)
{
        return s ? s : "";
}

static int entry_order(const void *a, const void *b)
{
        const struct pb_entry *x = *(const struct pb_entry *const *)a,
                              *y = *(const struct pb_entry *const *)b;

        return strcmp(text_of(x->key), text_of(y->key));
}

const char *pb_entries_sort(struct pb_entry **entries, size_t n)
{
        bool sorted = true;

        for (size_t i = 1; i < n && sorted; i++)
                sorted = entry_order(&entries[i - 1], &entries[i]) < 0;
        if (sorted)
                return NULL;
        qsort(entries, n, sizeof(*entries), entry_order);
        for (size_t i = 1; i < n; i++)
                if (entry_order(&entries[i - 1], &entries[i]) == 0)
                        return text_of(entries[i]->key);
        return NULL;
}

const char *pb_map_get(const void *entries, size_t n, const char *key)
{
        const struct pb_entry *const *e = entries;

        for (size_t i = 0; i < n; i++)
                if (str_eq(e[i]->key, key))
                        return text_of(e[i]->value);
        return NULL;
}

static const struct shape_field *map_field(const ProtobufCMessage *m, const char *field)
{
        const struct shape_field *f = shape_find(shape_of(m->descriptor), field, strlen(field), 0);

        must(f && f->kind == SHAPE_MAP, "the field is a map of this message");
        return f;
}

void pb_map_set(struct arena *arena, ProtobufCMessage *m, const char *field, const char *key,
                const char *value)
{
        const struct shape_field *f = map_field(m, field);
        struct pb_entry **old = *(struct pb_entry ***)shape_slot(f, m), **entries, *e;
        size_t n = shape_count(f, m), at = 0;

        for (size_t i = 0; i < n; i++)
                if (str_eq(old[i]->key, key)) {
                        old[i]->value = arena_strdup(arena, value);
                        return;
                }
        while (at < n && strcmp(text_of(old[at]->key), key) < 0)
                at++;
        e = (struct pb_entry *)pb_new(arena, f->shape->type);
        e->key = arena_strdup(arena, key);
        e->value = arena_strdup(arena, value);
        entries = arena_new_n(arena, struct pb_entry *, n + 1);
        for (size_t i = 0; i < n; i++)
                entries[i + (i >= at)] = old[i];
        entries[at] = e;
        *(struct pb_entry ***)shape_slot(f, m) = entries;
        *(size_t *)((char *)m + f->field->quantifier_offset) = n + 1;
}

void pb_map_copy(struct arena *arena, ProtobufCMessage *m, const char *field, const void *entries,
                 size_t n)
{
        const struct shape_field *f = map_field(m, field);
        const struct pb_entry *const *from = entries;
        struct pb_entry **to = arena_new_n(arena, struct pb_entry *, n + 1);

        for (size_t i = 0; i < n; i++) {
                to[i] = (struct pb_entry *)pb_new(arena, f->shape->type);
                to[i]->key = from[i]->key;
                to[i]->value = from[i]->value;
        }
        *(struct pb_entry ***)shape_slot(f, m) = to;
        *(size_t *)((char *)m + f->field->quantifier_offset) = n;
}

static int normalise(ProtobufCMessage *m, const struct path_step *at, unsigned depth,
                     struct err *err)
{
        const struct shape *s = shape_of(m->descriptor);
        char path[PATH_TEXT_LEN];

        if (depth > PB_MAX_DEPTH)
                return err_set(err, ERR_INVALID, .msg = "nested too deep",
                               .path = path_text(at, path));
        for (unsigned i = 0; i < s->n_fields; i++) {
                if (shape_is_unset(&s->wire[i], m))
                        continue;
                const struct shape_field *f = &s->fields[i];
                struct path_step step = { .up = at,
                                          .name = f->field->name,
                                          .name_len = f->name_len };
                size_t n = f->field->type == PROTOBUF_C_TYPE_MESSAGE ? shape_count(f, m) : 0;
                if (n == 0)
                        continue;
                if (f->kind == SHAPE_MAP) {
                        const char *twice =
                            pb_entries_sort(*(struct pb_entry ***)shape_slot(f, m), n);
                        if (twice) {
                                struct path_step key = { .up = &step,
                                                         .name = twice,
                                                         .name_len = strlen(twice) };
                                return err_set(
                                    err, ERR_INVALID,
                                    .msg = fmt("%s: the key is there twice", path_text(&key, path)),
                                    .path = path);
                        }
                        continue;
                }
                for (size_t k = 0; k < n; k++) {
                        struct path_step element = { .up = &step, .index = k };
                        int rc = normalise(*(ProtobufCMessage **)(f->repeated ? shape_at(f, m, k)
                                                                              : shape_slot(f, m)),
                                           f->repeated ? &element : &step, depth + 1, err);
                        if (rc < 0)
                                return rc;
                }
        }
        return 0;
}

int pb_normalise_maps(ProtobufCMessage *m, struct err *err)
{
        return normalise(m, NULL, 0, err);
}

int pb_normalise_maps_at(ProtobufCMessage *m, const struct path_step *at, struct err *err)
{
        return normalise(m, at, 0, err);
}

size_t pb_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
        return shape_count(&shape_of(m->descriptor)->fields[field - m->descriptor->fields], m);
}
