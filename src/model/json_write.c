/* model/json_write.c: messages to JSON text. See json.h.
 *
 * Everything goes through put() (json_private.h), which writes into the buffer's spare room directly; the closing NUL is set once, at the end.
 */
#include "base/clock.h"
#include "google/protobuf/timestamp.pb-c.h"
#include "model/json.h"
#include "model/json_private.h"
#include "model/pb.h"
#include "model/shape.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct writer {
        struct str *out;
        unsigned flags;
        unsigned level;
};

static void ends_at(struct str *s, const char *end)
{
        s->len = (size_t)(end - s->buf);
}

static char *scalar_room(struct str *s)
{
        room(s, SCALAR_ROOM);
        return s->buf + s->len;
}

static void put_u64(struct str *s, uint64_t v)
{
        ends_at(s, u64_text(scalar_room(s), v));
}

static void put_i64(struct str *s, int64_t v)
{
        ends_at(s, i64_text(scalar_room(s), v));
}

static void put_special(struct str *out, const unsigned char **p, const unsigned char *end)
{
        static const char hex[] = "0123456789abcdef";
        unsigned char c = **p;
        char esc[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
        unsigned w;

        if (c >= 0x80) {
                w = utf8_next(*p, end);
                put(out, w ? (const void *)*p : "\xef\xbf\xbd", w ? w : 3);
                *p += w ? w : 1;
                return;
        }
        ++*p;
        switch (c) {
        case '"':
        case '\\':
                esc[1] = (char)c;
                break;
        case '\b':
                esc[1] = 'b';
                break;
        case '\f':
                esc[1] = 'f';
                break;
        case '\n':
                esc[1] = 'n';
                break;
        case '\r':
                esc[1] = 'r';
                break;
        case '\t':
                esc[1] = 't';
                break;
        default:
                put(out, esc, 6);
                return;
        }
        put(out, esc, 2);
}

static void put_string(struct str *out, const char *text, size_t len)
{
        const unsigned char *p = (const unsigned char *)text, *end = p + len;

        putc1(out, '"');
        while (p < end) {
                const unsigned char *from = p;
                p = plain_until(p, end);
                put(out, from, (size_t)(p - from));
                if (p < end)
                        put_special(out, &p, end);
        }
        putc1(out, '"');
}

static void newline(struct writer *w)
{
        if (w->flags & JSON_PRETTY) {
                putc1(w->out, '\n');
                for (unsigned i = 0; i < w->level; i++)
                        put(w->out, "  ", 2);
        }
}

static void put_time(struct str *out, int64_t ms)
{
        ends_at(out, quoted_time(scalar_room(out), ms));
}

/* Of google.protobuf.Timestamp. What lies outside the years 1 to 9999 comes out as their edge. */
static void put_timestamp(struct str *out, const Google__Protobuf__Timestamp *t)
{
        int64_t far = INT64_C(400000000000);
        int64_t s = t->seconds > far ? far : t->seconds < -far ? -far : t->seconds;

        put_time(out, s * 1000 + t->nanos / 1000000);
}

static void put_double(struct str *out, double d, int digits)
{
        char buf[40];

        if (d - d != 0) { /* nan and inf have no JSON */
                put(out, "null", 4);
                return;
        }
        int n = snprintf(buf, sizeof(buf), "%.*g", digits, d);
        put(out, buf, (size_t)n);
}

static void put_wide(struct writer *w, int64_t v, bool is_signed)
{
        bool quoted = w->flags & JSON_INT64_AS_STRING;

        if (quoted)
                putc1(w->out, '"');
        if (is_signed)
                put_i64(w->out, v);
        else
                put_u64(w->out, (uint64_t)v);
        if (quoted)
                putc1(w->out, '"');
}

static void write_message(struct writer *w, const struct shape *s, const ProtobufCMessage *m);

static void write_enum(struct writer *w, const struct shape_enum *names, int value)
{
        size_t len;
        const char *name = enum_name(names, value, &len);

        if (name) {
                putc1(w->out, '"');
                put(w->out, name, len);
                putc1(w->out, '"');
                return;
        }
        put_i64(w->out, value); /* of a newer peer */
}

static void write_value(struct writer *w, const struct shape_field *f, const void *slot)
{
        switch (f->kind) {
        case SHAPE_BOOL:
                if (*(const protobuf_c_boolean *)slot)
                        put(w->out, "true", 4);
                else
                        put(w->out, "false", 5);
                break;
        case SHAPE_INT32:
                put_i64(w->out, *(const int32_t *)slot);
                break;
        case SHAPE_UINT32:
                put_u64(w->out, *(const uint32_t *)slot);
                break;
        case SHAPE_INT64:
                put_wide(w, *(const int64_t *)slot, true);
                break;
        case SHAPE_UINT64:
                put_wide(w, *(const int64_t *)slot, false);
                break;
        case SHAPE_FLOAT:
                put_double(w->out, (double)*(const float *)slot, 9);
                break;
        case SHAPE_DOUBLE:
                put_double(w->out, *(const double *)slot, 17);
                break;
        case SHAPE_TIME:
                put_time(w->out, *(const int64_t *)slot);
                break;
        case SHAPE_CPU:
                ends_at(w->out, cpu_text(scalar_room(w->out), *(const int64_t *)slot));
                break;
        case SHAPE_ENUM:
                write_enum(w, f->names, *(const int *)slot);
                break;
        case SHAPE_STRING: {
                const char *s = *(char *const *)slot;
                put_string(w->out, s ? s : "", s ? strlen(s) : 0);
                break;
        }
        case SHAPE_BYTES: {
                const ProtobufCBinaryData *b = slot;
                putc1(w->out, '"');
                base64_write(w->out, b->data, b->len);
                putc1(w->out, '"');
                break;
        }
        case SHAPE_INT_VALUE: {
                const ProtobufCMessage *m = *(ProtobufCMessage *const *)slot;
                put_wide(w, *(const int64_t *)((const char *)m + f->shape->type->fields[0].offset), true);
                break;
        }
        case SHAPE_TIMESTAMP:
                put_timestamp(w->out, *(Google__Protobuf__Timestamp *const *)slot);
                break;
        case SHAPE_MESSAGE:
                write_message(w, f->shape, *(ProtobufCMessage *const *)slot);
                break;
        case SHAPE_MAP:
                break;
        }
}

static void write_map(struct writer *w, const struct pb_entry *const *entries, size_t n)
{
        const struct pb_entry **sorted = NULL;
        bool in_order = true;

        for (size_t i = 1; i < n && in_order; i++)
                in_order = strcmp(entries[i - 1]->key, entries[i]->key) < 0;
        if (!in_order && w->flags & JSON_SORTED) {
                sorted = mem_must(n * sizeof(*sorted));
                memcpy(sorted, entries, n * sizeof(*sorted));
                qsort(sorted, n, sizeof(*sorted), pb_entry_order);
                entries = sorted;
        }
        putc1(w->out, '{');
        w->level++;
        for (size_t i = 0; i < n; i++) {
                if (i > 0)
                        putc1(w->out, ',');
                newline(w);
                put_string(w->out, entries[i]->key, strlen(entries[i]->key));
                putc1(w->out, ':');
                if (w->flags & JSON_PRETTY)
                        putc1(w->out, ' ');
                put_string(w->out, entries[i]->value, strlen(entries[i]->value));
        }
        w->level--;
        newline(w);
        putc1(w->out, '}');
        mem_free(sorted);
}

static void write_array(struct writer *w, const struct shape_field *f, const ProtobufCMessage *m, size_t n)
{
        bool deep = f->kind == SHAPE_MESSAGE;
        bool any = false;

        putc1(w->out, '[');
        w->level++;
        for (size_t i = 0; i < n; i++) {
                const void *slot = shape_at(f, m, i);
                if (f->kind == SHAPE_ENUM && *(const int *)slot == 0) /* has no name, says nothing */
                        continue;
                if (any)
                        put(w->out, ", ", w->flags & JSON_PRETTY && !deep ? 2 : 1);
                if (deep)
                        newline(w);
                write_value(w, f, slot);
                any = true;
        }
        w->level--;
        if (deep && any)
                newline(w);
        putc1(w->out, ']');
}

static void write_field(struct writer *w, const struct shape_field *f, const ProtobufCMessage *m, size_t n)
{
        if (f->kind == SHAPE_MAP)
                write_map(w, *(const struct pb_entry *const *const *)shape_slot(f, m), n);
        else if (f->repeated)
                write_array(w, f, m, n);
        else
                write_value(w, f, shape_slot(f, m));
}

/* An array of enums that are all unset shows nothing, so it is left out like any empty one. */
static bool shows_nothing(const struct shape_field *f, const ProtobufCMessage *m, size_t n)
{
        if (f->kind != SHAPE_ENUM || !f->repeated)
                return n == 0;
        for (size_t i = 0; i < n; i++)
                if (*(const int *)shape_at(f, m, i) != 0)
                        return false;
        return true;
}

static void write_message(struct writer *w, const struct shape *s, const ProtobufCMessage *m)
{
        bool any = false;

        if (w->level >= JSON_WRITE_MAX_DEPTH) { /* only a recursive type could get here */
                put(w->out, "{}", 2);
                return;
        }
        putc1(w->out, '{');
        w->level++;
        for (unsigned i = 0; i < s->n_fields; i++) {
                unsigned k = w->flags & JSON_SORTED ? s->type->fields_sorted_by_name[i] : i;
                bool unset = shape_is_unset(&s->wire[k], m);
                if (unset && !(s->has_zeros && w->flags & JSON_ZEROS))
                        continue;
                const struct shape_field *f = &s->fields[k];
                size_t n = unset ? 0 : shape_count(f, m);
                bool nothing = unset || shows_nothing(f, m, n);
                if (nothing && !(f->zero && w->flags & JSON_ZEROS))
                        continue;
                if (any)
                        putc1(w->out, ',');
                any = true;
                newline(w);
                room(w->out, f->quoted_len + SHAPE_QUOTED_PAD);
                ends_at(w->out, name_text(w->out->buf + w->out->len, f));
                if (w->flags & JSON_PRETTY)
                        putc1(w->out, ' ');
                if (nothing)
                        put(w->out, f->zero, strlen(f->zero));
                else
                        write_field(w, f, m, n);
        }
        w->level--;
        if (any)
                newline(w);
        putc1(w->out, '}');
}

void json_write(struct str *out, const ProtobufCMessage *m, unsigned flags)
{
        struct writer w = { .out = out, .flags = flags };

        write_message(&w, shape_of(m->descriptor), m);
        finish(out);
}

void json_write_field(struct str *out, const struct shape_field *f, const ProtobufCMessage *m)
{
        struct writer w = { .out = out };

        write_field(&w, f, m, shape_count(f, m));
        finish(out);
}

void json_write_scalar(struct str *out, const struct shape_field *f, const void *slot)
{
        struct writer w = { .out = out };

        write_value(&w, f, slot);
        finish(out);
}

void json_write_string(struct str *out, const char *text, size_t len)
{
        put_string(out, text, len);
        finish(out);
}

const char *json_enum_name(const ProtobufCEnumDescriptor *type, int value)
{
        size_t len;

        return enum_name(shape_enum_of(type), value, &len);
}

int json_enum_value(const ProtobufCEnumDescriptor *type, const char *name, bool any_case, int *ret_value)
{
        const struct shape_enum *e = shape_enum_of(type);

        if (!name)
                return -1;
        if (shape_enum_find(e, name, strlen(name), ret_value) == 0)
                return 0;
        for (unsigned i = 0; any_case && i < type->n_values; i++)
                if (e->names[i] && str_case_eq(e->names[i], name)) {
                        *ret_value = type->values[i].value;
                        return 0;
                }
        return -1;
}

const char *json_enum_list(const ProtobufCEnumDescriptor *type)
{
        return shape_enum_of(type)->list;
}

const char *json_enum_suggest(const ProtobufCEnumDescriptor *type, const char *name)
{
        return shape_enum_suggest(shape_enum_of(type), name, strlen(name));
}
