/* model/json_write.c: messages to JSON text. See json.h.
 *
 * There is one writer, and it reads packed messages: what is answered, listed and stored is packed
 * already, and to unpack it costs more than to write it (docs/decisions/one-json-writer.md). A
 * message in memory is packed first.
 *
 * A message is scanned once for which fields are where. Then they are written in the descriptor's
 * order, or by name, each from its bytes. Only what protobuf-c would take for the same message is
 * written: a field that is there twice or in pieces is left to those who unpack.
 */
#include "base/array.h"
#include "base/wire.h"
#include "model/json.h"
#include "model/json_private.h"
#include "model/pb.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where text is written is kept in a local variable, and given from one to the next: in memory it
 * would be read again after each byte. NULL: it cannot be written. */
struct writer {
        struct str *s;
        char *end; /* of what s has room for, but for the closing NUL */
        unsigned flags, level;
        bool whole; /* rather nothing than a message without the fields that are not known here */
};

/* ---- room ---- */

static char *grow(struct writer *w, char *at, size_t more)
{
        w->s->len = (size_t)(at - w->s->buf);
        str_reserve(w->s, more + 1);
        w->end = w->s->buf + w->s->cap - 1;
        return w->s->buf + w->s->len;
}

static inline char *room_for(struct writer *w, char *at, size_t more)
{
        return __builtin_expect((size_t)(w->end - at) < more, 0) ? grow(w, at, more) : at;
}

static inline char *write_char(struct writer *w, char *at, char c)
{
        at = room_for(w, at, 1);
        *at++ = c;
        return at;
}

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

static inline char *newline(struct writer *w, char *at)
{
        if (__builtin_expect(w->flags & JSON_PRETTY, 0)) {
                at = room_for(w, at, 1 + 2 * (size_t)w->level);
                *at++ = '\n';
                memset(at, ' ', 2 * (size_t)w->level);
                at += 2 * (size_t)w->level;
        }
        return at;
}

/* ---- where the fields are ---- */

struct found {
        uint64_t set[SHAPE_MAX_FIELDS / 64]; /* by position in the descriptor */
        struct wire_value value
            /* of those that are set. Of repeated ones: all elements, with their tags; of others:
             * the value alone */
            [SHAPE_MAX_FIELDS];
};

static inline bool is_there(const struct found *x, unsigned i)
{
        return x->set[i / 64] >> i % 64 & 1;
}

/* Its position; n_fields: it is not known. */
static inline unsigned find_field(const struct shape *s, uint64_t id)
{
        unsigned i = 0;

        if (id < SHAPE_IDS && s->by_id[id])
                return s->by_id[id] - 1u;
        while (i < s->n_fields && s->type->fields[i].id != id)
                i++;
        return i;
}

static bool find_fields(const struct writer *w, const struct shape *s, struct wire_value m,
                        struct found *x)
{
        const uint8_t *p = m.at, *end = p + m.n;
        unsigned last = UINT32_MAX;

        for (unsigned i = 0; i * 64 < s->n_fields; i++)
                x->set[i] = 0;
        while (p < end) {
                const uint8_t *from = p;
                struct wire_value v;
                uint64_t tag;
                if (!varint_take(&p, end, &tag) || !wire_take(&p, end, tag & 7, &v))
                        return false;
                unsigned i = find_field(s, tag >> 3);
                if (i == s->n_fields && w->whole)
                        return false;
                if (i == s->n_fields)
                        continue;
                const struct wire_field *f = &s->wire[i];
                if ((tag & 7) != f->wire)
                        return false;
                if (f->run && i == last) {
                        x->value[i].n = (uint64_t)(p - x->value[i].at);
                        continue;
                }
                if (is_there(x, i))
                        return false;
                x->value[i] = f->run ? (struct wire_value){ from, (uint64_t)(p - from) } : v;
                x->set[i / 64] |= UINT64_C(1) << i % 64;
                last = i;
        }
        return true;
}

/* Takes the next element off the front of a repeated field. */
static bool take_element(const struct shape_field *f, const struct wire_field *wf,
                         struct wire_value *rest, struct wire_value *ret)
{
        const uint8_t *p = rest->at, *end = p + rest->n;
        uint64_t tag = f->element;

        if ((wf->run && !varint_take(&p, end, &tag)) || !wire_take(&p, end, tag & 7, ret))
                return false;
        *rest = (struct wire_value){ p, (uint64_t)(end - p) };
        return true;
}

/* A number in the form that it has in memory: doubles and floats as their bits. */
static inline uint64_t number_of(const struct shape_field *f, struct wire_value b)
{
        uint64_t v = 0;

        if (f->element == WIRE_TYPE_VARINT)
                return f->size == 4 && f->kind != SHAPE_BOOL ? (uint32_t)b.n : b.n;
        memcpy(&v, b.at, b.n); /* little-endian, as this machine is */
        return v;
}

/* ---- texts ---- */

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

static char *write_special(struct writer *w, char *at, struct wire_value b)
{
        if (memchr(b.at, 0, b.n)) /* what is behind it would be lost with protobuf-c */
                return NULL;
        w->s->len = (size_t)(at - w->s->buf);
        put_string(w->s, (const char *)b.at, b.n);
        return grow(w, w->s->buf + w->s->len, 0);
}

static inline char *write_text(struct writer *w, char *at, struct wire_value b)
{
        if (plain_until(b.at, b.at + b.n) != b.at + b.n)
                return write_special(w, at, b);
        at = room_for(w, at, b.n + 2);
        *at++ = '"';
        at = copy_short(at, b.at, b.n);
        *at++ = '"';
        return at;
}

static char *write_bytes(struct writer *w, char *at, struct wire_value b)
{
        w->s->len = (size_t)(at - w->s->buf);
        putc1(w->s, '"');
        base64_write(w->s, b.at, b.n);
        putc1(w->s, '"');
        return grow(w, w->s->buf + w->s->len, 0);
}

/* ---- numbers: there is room for a scalar ---- */

static char *write_name(struct writer *w, char *at, const struct shape_enum *names, int value)
{
        size_t n;
        const char *name = enum_name(names, value, &n);

        at = room_for(w, at, (name ? n : 0) + SCALAR_ROOM);
        if (!name)
                return i64_text(at, value); /* of a newer peer */
        *at++ = '"';
        at = copy_short(at, name, n);
        *at++ = '"';
        return at;
}

static char *write_double(char *at, double d, int digits)
{
        if (d - d != 0) /* nan and inf have no JSON */
                return copy_short(at, "null", 4);
        return at + snprintf(at, SCALAR_ROOM, "%.*g", digits, d);
}

static char *write_wide(const struct writer *w, char *at, uint64_t v, bool is_signed)
{
        bool quoted = w->flags & JSON_INT64_AS_STRING;

        if (quoted)
                *at++ = '"';
        at = is_signed ? i64_text(at, (int64_t)v) : u64_text(at, v);
        if (quoted)
                *at++ = '"';
        return at;
}

static char *write_number(struct writer *w, char *at, const struct shape_field *f, uint64_t v)
{
        double d;
        float narrow;

        switch (f->kind) {
        case SHAPE_BOOL:
                return copy_short(at, v ? "true" : "false", v ? 4 : 5);
        case SHAPE_INT32:
                return i64_text(at, (int32_t)v);
        case SHAPE_UINT32:
                return u64_text(at, (uint32_t)v);
        case SHAPE_TIME:
                return quoted_time(at, (int64_t)v);
        case SHAPE_CPU:
                return cpu_text(at, (int64_t)v);
        case SHAPE_ENUM:
                return write_name(w, at, f->names, (int)(uint32_t)v);
        case SHAPE_FLOAT:
                memcpy(&narrow, &v, sizeof(narrow));
                return write_double(at, (double)narrow, 9);
        case SHAPE_DOUBLE:
                memcpy(&d, &v, sizeof(d));
                return write_double(at, d, 17);
        default:
                return write_wide(w, at, v, f->kind == SHAPE_INT64);
        }
}

/* ---- values ---- */

static char *write_message(struct writer *w, char *at, const struct shape *s, struct wire_value b);

/* A message that looks like a number: IntValue, or google.protobuf.Timestamp, of which what lies
 * outside the years 1 to 9999 comes out as their edge. */
static char *write_wrapped(struct writer *w, char *at, const struct shape_field *f,
                           struct wire_value b)
{
        const int64_t far = INT64_C(400000000000);
        struct found x;
        int64_t v[2] = { 0 };

        if (!find_fields(w, f->shape, b, &x))
                return NULL;
        for (unsigned i = 0; i < f->shape->n_fields && i < 2; i++)
                v[i] = is_there(&x, i) ? (int64_t)number_of(&f->shape->fields[i], x.value[i]) : 0;
        if (f->kind == SHAPE_INT_VALUE)
                return write_wide(w, at, (uint64_t)v[0], true);
        v[0] = v[0] > far ? far : v[0] < -far ? -far : v[0];
        return quoted_time(at, v[0] * 1000 + (int32_t)v[1] / 1000000);
}

/* There is room for a scalar. */
static inline char *write_value(struct writer *w, char *at, const struct shape_field *f,
                                struct wire_value b)
{
        switch (f->kind) {
        case SHAPE_STRING:
                return write_text(w, at, b);
        case SHAPE_BYTES:
                return write_bytes(w, at, b);
        case SHAPE_MESSAGE:
                return write_message(w, at, f->shape, b);
        case SHAPE_INT_VALUE:
        case SHAPE_TIMESTAMP:
                return write_wrapped(w, at, f, b);
        default:
                return write_number(w, at, f, number_of(f, b));
        }
}

/* An enum that is zero has no name and says nothing. */
static bool is_said(const struct shape_field *f, struct wire_value b)
{
        return f->kind != SHAPE_ENUM || number_of(f, b) != 0;
}

static char *write_array(struct writer *w, char *at, const struct shape_field *f,
                         const struct wire_field *wf, struct wire_value b)
{
        bool deep = f->kind == SHAPE_MESSAGE, wide = w->flags & JSON_PRETTY && !deep;
        char before = '[';
        struct wire_value value;

        w->level++;
        while (at && b.n > 0) {
                if (!take_element(f, wf, &b, &value))
                        return NULL;
                if (!is_said(f, value))
                        continue;
                at = room_for(w, at, SCALAR_ROOM + 2);
                *at++ = before;
                if (wide && before == ',')
                        *at++ = ' ';
                before = ',';
                if (deep)
                        at = newline(w, at);
                at = write_value(w, room_for(w, at, SCALAR_ROOM), f, value);
        }
        w->level--;
        if (!at)
                return NULL;
        return write_char(w, deep ? newline(w, at) : at, ']');
}

struct entry {
        struct wire_value key, value;
};

/* Each of the two may be empty, and then is not there. */
static bool take_entry(const struct writer *w, const struct shape_field *f,
                       const struct wire_field *wf, struct wire_value *b, struct entry *ret)
{
        struct wire_value both;
        struct found x;

        if (!take_element(f, wf, b, &both) || !find_fields(w, f->shape, both, &x))
                return false;
        ret->key = is_there(&x, 0) ? x.value[0] : (struct wire_value){ both.at, 0 };
        ret->value = is_there(&x, 1) ? x.value[1] : (struct wire_value){ both.at, 0 };
        return true;
}

static int entry_order(const void *a, const void *b)
{
        const struct wire_value *x = &((const struct entry *)a)->key,
                                *y = &((const struct entry *)b)->key;
        int r = memcmp(x->at, y->at, x->n < y->n ? x->n : y->n);

        return r ? r : x->n < y->n ? -1 : x->n > y->n;
}

static char *write_entry(struct writer *w, char *at, const struct entry *e, char before)
{
        at = newline(w, write_char(w, at, before));
        if (!(at = write_text(w, at, e->key)))
                return NULL;
        at = write_char(w, at, ':');
        if (w->flags & JSON_PRETTY)
                at = write_char(w, at, ' ');
        return write_text(w, at, e->value);
}

static char *write_sorted_map(struct writer *w, char *at, const struct shape_field *f,
                              const struct wire_field *wf, struct wire_value b)
{
        ARRAY(struct entry) all = { 0 };
        bool ok = true;

        while (ok && b.n > 0)
                ok = take_entry(w, f, wf, &b, array_push(&all));
        if (ok)
                qsort(all.at, all.len, sizeof(all.at[0]), entry_order);
        for (size_t i = 0; ok && at && i < all.len; i++)
                at = write_entry(w, at, &all.at[i], i ? ',' : '{');
        array_fini(&all);
        return ok ? at : NULL;
}

static char *write_map(struct writer *w, char *at, const struct shape_field *f,
                       const struct wire_field *wf, struct wire_value b)
{
        w->level++;
        if (w->flags & JSON_SORTED)
                at = write_sorted_map(w, at, f, wf, b);
        else
                for (char before = '{'; at && b.n > 0; before = ',') {
                        struct entry e;
                        at = take_entry(w, f, wf, &b, &e) ? write_entry(w, at, &e, before) : NULL;
                }
        w->level--;
        return at ? write_char(w, newline(w, at), '}') : NULL;
}

/* ---- messages ---- */

static bool array_shows_nothing(const struct shape_field *f, const struct wire_field *wf,
                                struct wire_value b)
{
        struct wire_value value;

        while (f->kind == SHAPE_ENUM && b.n > 0)
                if (!take_element(f, wf, &b, &value) || is_said(f, value))
                        return false; /* broken bytes are found when they are written */
        return b.n == 0;
}

/* Zeros and empty texts are left out also where they are spelled out, unless absence would say
 * something else. */
static inline bool shows_nothing(const struct shape_field *f, const struct wire_field *wf,
                                 struct wire_value b)
{
        if (wf->repeated)
                return array_shows_nothing(f, wf, b);
        if (wf->wire == WIRE_TYPE_BYTES)
                return b.n == 0 && !f->shape && !f->presence;
        return number_of(f, b) == 0 && !f->presence;
}

/* What stands before the field, its name, and room for a scalar behind that. */
static inline char *write_head(struct writer *w, char *at, const struct shape_field *f, char before)
{
        size_t more = (size_t)f->quoted_len + SHAPE_QUOTED_PAD + SCALAR_ROOM + 2;

        at = room_for(w, at, more);
        *at++ = before;
        if (w->flags & JSON_PRETTY)
                at = room_for(w, newline(w, at), more);
        at = name_text(at, f);
        if (w->flags & JSON_PRETTY)
                *at++ = ' ';
        return at;
}

static inline char *write_field(struct writer *w, char *at, const struct shape_field *f,
                                const struct wire_field *wf, struct wire_value b)
{
        return f->kind == SHAPE_MAP ? write_map(w, at, f, wf, b)
               : wf->repeated       ? write_array(w, at, f, wf, b)
                                    : write_value(w, at, f, b);
}

/* Nothing, if there is nothing to be shown. */
static inline char *write_member(struct writer *w, char *at, const struct shape *s, unsigned i,
                                 const struct found *x, char *before)
{
        const struct shape_field *f = &s->fields[i];
        const struct wire_field *wf = &s->wire[i];
        bool shown = is_there(x, i) && !shows_nothing(f, wf, x->value[i]);

        if (!shown && !(f->zero && w->flags & JSON_ZEROS))
                return at;
        at = write_head(w, at, f, *before);
        *before = ',';
        return shown ? write_field(w, at, f, wf, x->value[i])
                     : copy_short(at, f->zero, strlen(f->zero));
}

static char *write_message(struct writer *w, char *at, const struct shape *s, struct wire_value b)
{
        struct found x;
        char before = '{';

        /* only a recursive type could be so deep */
        if (w->level >= JSON_WRITE_MAX_DEPTH || !find_fields(w, s, b, &x))
                return NULL;
        w->level++;
        if (w->flags & JSON_SORTED)
                for (unsigned i = 0; at && i < s->n_fields; i++) {
                        unsigned k = s->type->fields_sorted_by_name[i];
                        if (is_there(&x, k) || w->flags & JSON_ZEROS)
                                at = write_member(w, at, s, k, &x, &before);
                }
        else
                for (unsigned from = 0; from < s->n_fields; from += 64) {
                        uint64_t left =
                            x.set[from / 64] | (w->flags & JSON_ZEROS ? s->zeros[from / 64] : 0);
                        for (; at && left; left &= left - 1)
                                at = write_member(w, at, s, from + (unsigned)__builtin_ctzll(left),
                                                  &x, &before);
                }
        w->level--;
        if (!at)
                return NULL;
        at = before == '{' ? write_char(w, at, '{') : newline(w, at);
        return write_char(w, at, '}');
}

/* ---- the doors ---- */

static char *begin(struct writer *w, struct str *out)
{
        w->s = out;
        str_reserve(out, SCALAR_ROOM + 1);
        w->end = out->buf + out->cap - 1;
        return out->buf + out->len;
}

static bool end(struct writer *w, char *at, size_t before)
{
        w->s->len = at ? (size_t)(at - w->s->buf) : before;
        w->s->buf[w->s->len] = '\0';
        return at != NULL;
}

static struct wire_value bytes_of(const void *data, size_t len)
{
        return (struct wire_value){ len ? data : (const uint8_t *)"", len };
}

bool json_write_packed(struct str *out, const ProtobufCMessageDescriptor *type, const void *data,
                       size_t len, unsigned flags)
{
        struct writer w = { .flags = flags, .whole = true };
        size_t before = out->len;

        return end(&w, write_message(&w, begin(&w, out), shape_of(type), bytes_of(data, len)),
                   before);
}

void json_write(struct str *out, const ProtobufCMessage *m, unsigned flags)
{
        _cleanup_(str_finip) struct str packed = STR_INIT;
        struct writer w = { .flags = flags };
        char *at = begin(&w, out);

        pb_pack_as_is(&packed, m);
        at = write_message(&w, at, shape_of(m->descriptor), bytes_of(packed.buf, packed.len));
        must(end(&w, at, 0), "what was packed here can be read");
}

void json_write_field(struct str *out, const struct shape_field *f, const ProtobufCMessage *m)
{
        _cleanup_(str_finip) struct str packed = STR_INIT;
        const struct shape *s = shape_of(m->descriptor);
        const struct wire_field *wf = &s->wire[f - s->fields];
        struct writer w = { 0 };
        char *at = begin(&w, out);
        struct found x;

        pb_pack_as_is(&packed, m);
        must(find_fields(&w, s, bytes_of(packed.buf, packed.len), &x) &&
                 is_there(&x, (unsigned)(f - s->fields)),
             "the field is set");
        must(end(&w, write_field(&w, at, f, wf, x.value[f - s->fields]), 0),
             "what was packed here can be read");
}

void json_write_scalar(struct str *out, const struct shape_field *f, const void *slot)
{
        _cleanup_(str_finip) struct str packed = STR_INIT;
        const ProtobufCBinaryData *data = slot;
        struct writer w = { 0 };
        char *at = begin(&w, out);

        if (f->kind == SHAPE_INT_VALUE || f->kind == SHAPE_TIMESTAMP) {
                pb_pack_as_is(&packed, *(ProtobufCMessage *const *)slot);
                at = write_value(&w, at, f, bytes_of(packed.buf, packed.len));
        } else if (f->kind == SHAPE_BYTES)
                at = write_bytes(&w, at, bytes_of(data->data, data->len));
        else
                at = write_number(&w, at, f,
                                  f->size == 4 ? *(const uint32_t *)slot : *(const uint64_t *)slot);
        must(end(&w, at, 0), "what was packed here can be read");
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

int json_enum_value(const ProtobufCEnumDescriptor *type, const char *name, bool any_case,
                    int *ret_value)
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

/* ---- single fields of packed messages ---- */

/* n of bytes is 0, and of a number as well: it is not there. */
static struct wire_value find_value(const ProtobufCMessageDescriptor *type, const void *data,
                                    size_t len, const char *name, unsigned wire)
{
        const struct shape *s = shape_of(type);
        const struct shape_field *f = shape_find(s, name, strlen(name), 0);
        struct wire_value value, all = bytes_of(data, len);
        const uint8_t *p = all.at, *end = p + len;
        uint64_t tag;

        while (f && varint_take(&p, end, &tag) && wire_take(&p, end, tag & 7, &value))
                if (tag == (f->field->id << 3 | wire))
                        return value;
        return (struct wire_value){ all.at, 0 };
}

uint64_t json_packed_number(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                            const char *field)
{
        return find_value(type, data, len, field, WIRE_TYPE_VARINT).n;
}

const char *json_packed_text(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                             const char *field, size_t *ret_len)
{
        struct wire_value v = find_value(type, data, len, field, WIRE_TYPE_BYTES);

        *ret_len = v.n;
        return (const char *)v.at;
}
