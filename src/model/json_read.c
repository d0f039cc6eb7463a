/* model/json_read.c: JSON text to messages, in one pass. See json.h.
 *
 * The reader descends with the type's shape in hand, so it knows at each byte what must come;
 * nothing is built but the message itself. Invariants:
 *   (1) r->p never passes r->end; every read of *r->p is behind a test, since the text need not end
 *       in NUL.
 *   (2) The C stack is bounded by JSON_MAX_DEPTH frames; the arena by JSON_MAX_MESSAGES messages
 *       and a small multiple of the text.
 *   (3) r->at is the path of the value being read; every function leaves it as it found it, on
 *       success.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "google/protobuf/timestamp.pb-c.h"
#include "model/json.h"
#include "model/json_private.h"
#include "model/path.h"
#include "model/pb.h"
#include "model/shape.h"
#include <string.h>

struct reader {
        const char *p, *end, *start;
        struct arena *arena;
        struct err *err;
        const struct path_step *at;
        unsigned flags, depth, messages;
};

struct slice {
        const char *s;
        size_t len;
};

static int read_message(struct reader *r, const struct shape *s, ProtobufCMessage **ret);
static int skip_value(struct reader *r);

/* ---- errors ---- */

static const char *place(const struct reader *r, const char *where)
{
        unsigned line = 1, column = 1;

        for (const char *p = r->start; p < where; p++) {
                if (*p == '\n') {
                        line++;
                        column = 1;
                } else if ((*p & 0xc0) != 0x80)
                        column++;
        }
        return fmt("line %u, column %u", line, column);
}

static int fail_at(struct reader *r, const char *where, const char *what, const char *hint)
{
        char path[PATH_TEXT_LEN];

        path_text(r->at, path);
        return err_set(r->err, ERR_INVALID, .msg = path[0] ? fmt("%s: %s", path, what) : what,
                       .detail = place(r, where), .hint = hint, .path = path);
}

/* What stands at p, in words. */
static const char *found(const struct reader *r, const char *p)
{
        if (p >= r->end)
                return "the end of the text";
        switch (*p) {
        case '"':
                return "a string";
        case '{':
                return "an object";
        case '[':
                return "an array";
        case 't':
        case 'f':
                return "true or false";
        case 'n':
                return "null";
        default:
                break;
        }
        if ((*p >= '0' && *p <= '9') || *p == '-') {
                size_t n = 0;
                while (p + n < r->end && n < 40 && p[n] && strchr("0123456789+-.eE", p[n]))
                        n++;
                return fmt("%.*s", (int)n, p);
        }
        if (*p > 0x20 && *p < 0x7f)
                return fmt("'%c'", *p);
        return "a character that cannot stand there";
}

static int fail_expected(struct reader *r, const char *where, const char *expected)
{
        return fail_at(r, where, fmt("expected %s, got %s", expected, found(r, where)), NULL);
}

/* ---- tokens ---- */

static inline void skip_space(struct reader *r)
{
        while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
                r->p++;
}

static inline bool next_is(struct reader *r, char c)
{
        skip_space(r);
        return r->p < r->end && *r->p == c;
}

static inline bool take(struct reader *r, char c)
{
        if (!next_is(r, c))
                return false;
        r->p++;
        return true;
}

static bool take_word(struct reader *r, const char *word)
{
        size_t n = strlen(word);

        if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0)
                return false;
        r->p += n;
        return true;
}

static int read_hex4(struct reader *r, const char *p, unsigned *ret)
{
        unsigned v = 0;

        for (int i = 0; i < 4; i++) {
                char c = p + i < r->end ? p[i] : 'x';
                unsigned d;
                if (c >= '0' && c <= '9')
                        d = (unsigned)(c - '0');
                else if (c >= 'a' && c <= 'f')
                        d = (unsigned)(c - 'a') + 10;
                else if (c >= 'A' && c <= 'F')
                        d = (unsigned)(c - 'A') + 10;
                else
                        return fail_at(r, p, "\\u must be followed by four hexadecimal digits",
                                       NULL);
                v = v << 4 | d;
        }
        *ret = v;
        return 0;
}

static char *put_utf8(char *out, unsigned c)
{
        if (c < 0x80)
                *out++ = (char)c;
        else if (c < 0x800) {
                *out++ = (char)(0xc0 | c >> 6);
                *out++ = (char)(0x80 | (c & 63));
        } else if (c < 0x10000) {
                *out++ = (char)(0xe0 | c >> 12);
                *out++ = (char)(0x80 | (c >> 6 & 63));
                *out++ = (char)(0x80 | (c & 63));
        } else {
                *out++ = (char)(0xf0 | c >> 18);
                *out++ = (char)(0x80 | (c >> 12 & 63));
                *out++ = (char)(0x80 | (c >> 6 & 63));
                *out++ = (char)(0x80 | (c & 63));
        }
        return out;
}

/* One escape, *p after the backslash. */
static int read_escape(struct reader *r, const char **p, char **out)
{
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *known;
        unsigned c, low;
        int rc;

        if (*p >= r->end)
                return fail_at(r, *p, "the string does not end", NULL);
        if (**p != 'u') {
                known = **p ? strchr(from, **p) : NULL;
                if (!known)
                        return fail_at(r, *p, "unknown escape in a string",
                                       "write \\\\ for a backslash");
                *(*out)++ = to[known - from];
                ++*p;
                return 0;
        }
        rc = read_hex4(r, *p + 1, &c);
        if (rc < 0)
                return rc;
        *p += 5;
        if (c == 0)
                return fail_at(r, *p - 6, "a string must not contain \\u0000", NULL);
        if (c >= 0xdc00 && c <= 0xdfff)
                return fail_at(r, *p - 6, "half of a surrogate pair", NULL);
        if (c >= 0xd800 && c <= 0xdbff) {
                if (r->end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
                        return fail_at(r, *p - 6, "half of a surrogate pair", NULL);
                rc = read_hex4(r, *p + 2, &low);
                if (rc < 0)
                        return rc;
                if (low < 0xdc00 || low > 0xdfff)
                        return fail_at(r, *p - 6, "half of a surrogate pair", NULL);
                *p += 6;
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }
        *out = put_utf8(*out, c);
        return 0;
}

/* The slow way, for strings with escapes: [from, close) is the raw text between the quotes, already
 * known to be UTF-8. */
static int unescape(struct reader *r, const char *from, const char *close, struct slice *ret)
{
        /* an escape is never shorter than what it means */
        char *buf = arena_alloc(r->arena, (size_t)(close - from) + 1), *out = buf;

        for (const char *p = from; p < close;) {
                const char *run = memchr(p, '\\', (size_t)(close - p));
                size_t n = (size_t)((run ? run : close) - p);
                memcpy(out, p, n);
                out += n;
                p += n;
                if (run) {
                        p++;
                        int rc = read_escape(r, &p, &out);
                        if (rc < 0)
                                return rc;
                }
        }
        *ret = (struct slice){ buf, (size_t)(out - buf) };
        return 0;
}

/* r->p is at the opening quote. The slice points into the text, or, if there were escapes, into the
 * arena. */
static int read_string(struct reader *r, struct slice *ret)
{
        const unsigned char *from = (const unsigned char *)r->p + 1, *p = from,
                            *end = (const unsigned char *)r->end;
        bool escapes = false;

        for (;;) {
                p = plain_until(p, end);
                if (p >= end)
                        return fail_at(r, r->p, "the string does not end", NULL);
                if (*p == '"')
                        break;
                if (*p == '\\') {
                        escapes = true;
                        p += p + 1 < end ? 2 : 1;
                        continue;
                }
                if (*p < 0x20)
                        return fail_at(r, (const char *)p, "a control character in a string",
                                       "write it as an escape, such as \\n");
                unsigned w = utf8_next(p, end);
                if (w == 0)
                        return fail_at(r, (const char *)p, "the text is not UTF-8", NULL);
                p += w;
        }
        r->p = (const char *)p + 1;
        if (escapes)
                return unescape(r, (const char *)from, (const char *)p, ret);
        *ret = (struct slice){ (const char *)from, (size_t)(p - from) };
        return 0;
}

static inline const char *digits(const char *p, const char *end)
{
        while (p < end && *p >= '0' && *p <= '9')
                p++;
        return p;
}

/* The number at r->p by JSON's grammar; its text. */
static int read_number(struct reader *r, struct slice *ret)
{
        const char *p = r->p, *end = r->end, *from;

        p += p < end && *p == '-';
        from = p;
        p = digits(p, end);
        if (p == from)
                return fail_at(r, r->p, "expected digits", NULL);
        if (*from == '0' && p - from > 1)
                return fail_at(r, r->p, "a number must not begin with 0", NULL);
        if (p < end && *p == '.') {
                from = ++p;
                p = digits(p, end);
                if (p == from)
                        return fail_at(r, r->p, "expected digits after the point", NULL);
        }
        if (p < end && (*p == 'e' || *p == 'E')) {
                p++;
                p += p < end && (*p == '+' || *p == '-');
                from = p;
                p = digits(p, end);
                if (p == from)
                        return fail_at(r, r->p, "expected digits in the exponent", NULL);
        }
        *ret = (struct slice){ r->p, (size_t)(p - r->p) };
        r->p = p;
        return 0;
}

static int enter(struct reader *r)
{
        if (++r->depth > JSON_MAX_DEPTH)
                return fail_at(r, r->p, fmt("nested more than %d levels deep", JSON_MAX_DEPTH),
                               NULL);
        return 0;
}

static int count_message(struct reader *r)
{
        char path[PATH_TEXT_LEN];

        if (++r->messages <= JSON_MAX_MESSAGES)
                return 0;
        return err_set(r->err, ERR_INVALID, .msg = "too many objects in one request",
                       .detail = fmt("at most %d", JSON_MAX_MESSAGES),
                       .path = path_text(r->at, path));
}

/* After a member or element: 1 another follows, 0 closed, negative error. */
static int more(struct reader *r, char close, const char *expected)
{
        if (take(r, ',')) {
                skip_space(r);
                return 1;
        }
        if (take(r, close))
                return 0;
        return fail_expected(r, r->p, expected);
}

static int read_key(struct reader *r, struct slice *ret)
{
        int rc;

        if (!next_is(r, '"'))
                return fail_expected(r, r->p, "a key in quotes");
        rc = read_string(r, ret);
        if (rc < 0)
                return rc;
        if (!take(r, ':'))
                return fail_expected(r, r->p, "':' after the key");
        skip_space(r);
        return 0;
}

/* ---- skipping (JSON_IGNORE_UNKNOWN) ---- */

static int skip_members(struct reader *r, char close)
{
        struct slice key;
        int rc = enter(r);

        if (rc < 0)
                return rc;
        r->p++;
        if (take(r, close)) {
                r->depth--;
                return 0;
        }
        do {
                rc = close == '}' ? read_key(r, &key) : 0;
                if (rc == 0)
                        rc = skip_value(r);
                if (rc == 0)
                        rc = more(r, close, close == '}' ? "',' or '}'" : "',' or ']'");
        } while (rc > 0);
        r->depth--;
        return rc;
}

static int skip_value(struct reader *r)
{
        struct slice ignored;

        skip_space(r);
        if (r->p >= r->end)
                return fail_expected(r, r->p, "a value");
        switch (*r->p) {
        case '"':
                return read_string(r, &ignored);
        case '{':
                return skip_members(r, '}');
        case '[':
                return skip_members(r, ']');
        case 't':
        case 'f':
        case 'n':
                if (take_word(r, "true") || take_word(r, "false") || take_word(r, "null"))
                        return 0;
                break;
        default:
                if (*r->p == '-' || (*r->p >= '0' && *r->p <= '9'))
                        return read_number(r, &ignored);
        }
        return fail_at(r, r->p, "expected a value", NULL);
}

/* ---- values ---- */

static int read_int(struct reader *r, const struct shape_field *f, int64_t *ret)
{
        const char *from = r->p;
        struct slice text;
        int64_t min;
        uint64_t max;
        int rc;

        if (r->flags & JSON_INT64_AS_STRING && next_is(r, '"'))
                rc = read_string(r, &text);
        else if (r->p < r->end && (*r->p == '-' || (*r->p >= '0' && *r->p <= '9')))
                rc = read_number(r, &text);
        else
                return fail_expected(r, from, shape_expected(f));
        if (rc < 0)
                return rc;
        shape_limits(f, &min, &max);
        if (text.len == 2 && memcmp(text.s, "-0", 2) == 0)
                *ret = 0;
        else if (shape_parse_int(text.s, text.len, min, max, ret) < 0)
                return fail_expected(r, from, shape_expected(f));
        return 0;
}

static int read_real(struct reader *r, const struct shape_field *f, void *slot)
{
        const char *from = r->p;
        struct slice text;
        int rc;

        if (r->p >= r->end || !(*r->p == '-' || (*r->p >= '0' && *r->p <= '9')))
                return fail_expected(r, from, shape_expected(f));
        rc = read_number(r, &text);
        if (rc < 0)
                return rc;
        rc = f->kind == SHAPE_CPU ? shape_parse_cpu(text.s, text.len, slot)
                                  : shape_parse(f, text.s, text.len, false, slot, r->arena);
        return rc < 0 ? fail_expected(r, from, shape_expected(f)) : 0;
}

static int read_enum(struct reader *r, const struct shape_field *f, int *slot, struct slice text,
                     const char *from)
{
        const char *near;

        if (shape_enum_find(f->names, text.s, text.len, slot) == 0)
                return 0;
        if (r->flags & JSON_IGNORE_UNKNOWN) {
                *slot = 0;
                return 0;
        }
        near = shape_enum_suggest(f->names, text.s, text.len);
        return fail_at(r, from,
                       fmt("unknown value \"%.*s\", expected %s",
                           (int)(text.len < 64 ? text.len : 64), text.s, shape_expected(f)),
                       near ? fmt("did you mean %s?", near) : NULL);
}

static int read_text(struct reader *r, const struct shape_field *f, void *slot)
{
        const char *from = r->p;
        struct slice text;
        int64_t number;
        int rc;

        if (r->p >= r->end || *r->p != '"') {
                if (f->kind == SHAPE_ENUM && r->flags & JSON_IGNORE_UNKNOWN && r->p < r->end &&
                    *r->p >= '0' && *r->p <= '9') {
                        rc = read_number(r, &text);
                        if (rc < 0)
                                return rc;
                        if (shape_parse_int(text.s, text.len, 0, INT32_MAX, &number) < 0)
                                return fail_expected(r, from, shape_expected(f));
                        *(int *)slot = (int)number;
                        return 0;
                }
                return fail_expected(r, from, shape_expected(f));
        }
        rc = read_string(r, &text);
        if (rc < 0)
                return rc;
        switch (f->kind) {
        case SHAPE_ENUM:
                return read_enum(r, f, slot, text, from);
        case SHAPE_STRING:
                *(char **)slot = text.s >= r->start && text.s < r->end
                                     ? arena_strndup(r->arena, text.s, text.len)
                                     : (char *)text.s;
                return 0;
        case SHAPE_TIME:
                rc = time_parse(text.s, text.len, slot);
                break;
        default:
                rc = shape_parse(f, text.s, text.len, true, slot, r->arena);
        }
        return rc < 0 ? fail_at(r, from, fmt("expected %s", shape_expected(f)), NULL) : 0;
}

static int read_timestamp(struct reader *r, const struct shape_field *f, ProtobufCMessage **slot)
{
        const char *from = r->p;
        struct slice text;
        int64_t ms;
        int rc;

        if (r->p >= r->end || *r->p != '"')
                return fail_expected(r, from, shape_expected(f));
        rc = read_string(r, &text);
        if (rc < 0)
                return rc;
        if (time_parse(text.s, text.len, &ms) < 0)
                return fail_at(r, from, fmt("expected %s", shape_expected(f)), NULL);
        Google__Protobuf__Timestamp *t =
            (Google__Protobuf__Timestamp *)pb_new(r->arena, f->shape->type);
        t->seconds = ms / 1000 - (ms % 1000 < 0); /* nanos are never negative */
        t->nanos = (int32_t)(ms - t->seconds * 1000) * 1000000;
        *slot = &t->base;
        return 0;
}

/* One value that is no array and no map; r->p is at its first character. */
static int read_value(struct reader *r, const struct shape_field *f, void *slot)
{
        int64_t v = 0;
        int rc;

        switch (f->kind) {
        case SHAPE_BOOL:
                if (take_word(r, "true"))
                        *(protobuf_c_boolean *)slot = 1;
                else if (take_word(r, "false"))
                        *(protobuf_c_boolean *)slot = 0;
                else
                        return fail_expected(r, r->p, shape_expected(f));
                return 0;
        case SHAPE_INT32:
        case SHAPE_INT64:
        case SHAPE_UINT32:
        case SHAPE_UINT64:
                if (f->is_limit && take_word(r, "\"" LIMIT_WORD "\"")) {
                        *(int32_t *)slot = INT32_MAX;
                        return 0;
                }
                rc = read_int(r, f, &v);
                if (rc == 0 && f->is_limit)
                        v = shape_limit_of(v);
                if (rc == 0)
                        memcpy(slot, &v, f->size);
                return rc;
        case SHAPE_INT_VALUE:
                rc = read_int(r, f, &v);
                if (rc == 0) {
                        ProtobufCMessage *m = pb_new(r->arena, f->shape->type);
                        *(int64_t *)shape_slot(&f->shape->fields[0], m) = v;
                        *(ProtobufCMessage **)slot = m;
                }
                return rc;
        case SHAPE_FLOAT:
        case SHAPE_DOUBLE:
        case SHAPE_CPU:
                return read_real(r, f, slot);
        case SHAPE_TIME:
        case SHAPE_ENUM:
        case SHAPE_STRING:
        case SHAPE_BYTES:
                return read_text(r, f, slot);
        case SHAPE_TIMESTAMP:
                return read_timestamp(r, f, slot);
        case SHAPE_MESSAGE:
                if (r->p >= r->end || *r->p != '{')
                        return fail_expected(r, r->p, shape_expected(f));
                return read_message(r, f->shape, slot);
        case SHAPE_MAP:
                break;
        }
        return err_set(r->err, ERR_INTERNAL, .msg = "a map is no plain value");
}

static int read_array(struct reader *r, const struct shape_field *f, ProtobufCMessage *m)
{
        struct shape_list list = { .f = f, .arena = r->arena };
        struct path_step step = { .up = r->at };
        int rc;

        if (r->p >= r->end || *r->p != '[')
                return fail_expected(r, r->p, "an array");
        rc = enter(r);
        if (rc < 0)
                return rc;
        r->p++;
        r->at = &step;
        rc = take(r, ']') ? 0 : 1;
        while (rc > 0) {
                step.index = list.len;
                rc = read_value(r, f, shape_list_push(&list));
                if (rc == 0)
                        rc = more(r, ']', "',' or ']'");
        }
        if (rc < 0)
                return rc;
        shape_list_end(&list, m);
        r->at = step.up;
        r->depth--;
        return 0;
}

static int read_map_entry(struct reader *r, const struct shape_field *f, struct pb_entry **ret)
{
        struct path_step step = { .up = r->at };
        struct pb_entry *e;
        struct slice key;
        int rc = read_key(r, &key);

        if (rc < 0)
                return rc;
        rc = count_message(r);
        if (rc < 0)
                return rc;
        e = (struct pb_entry *)pb_new(r->arena, f->shape->type);
        e->key = arena_strndup(r->arena, key.s, key.len);
        step.name = e->key;
        step.name_len = key.len;
        r->at = &step;
        rc = read_text(r, &f->shape->fields[1], &e->value);
        if (rc < 0)
                return rc;
        r->at = step.up;
        *ret = e;
        return 0;
}

static int read_map(struct reader *r, const struct shape_field *f, ProtobufCMessage *m)
{
        struct shape_list list = { .f = f, .arena = r->arena };
        const char *from = r->p, *twice;
        int rc;

        if (r->p >= r->end || *r->p != '{')
                return fail_expected(r, r->p, shape_expected(f));
        rc = enter(r);
        if (rc < 0)
                return rc;
        r->p++;
        rc = take(r, '}') ? 0 : 1;
        while (rc > 0) {
                rc = read_map_entry(r, f, shape_list_push(&list));
                if (rc == 0)
                        rc = more(r, '}', "',' or '}'");
        }
        if (rc < 0)
                return rc;
        twice = pb_entries_sort((struct pb_entry **)(void *)list.at, list.len);
        if (twice) {
                struct path_step step = { .up = r->at, .name = twice, .name_len = strlen(twice) };
                r->at = &step;
                return fail_at(r, from, "the key is there twice", NULL);
        }
        shape_list_end(&list, m);
        r->depth--;
        return 0;
}

static int fail_unknown(struct reader *r, const struct shape *s, struct slice key,
                        const char *where)
{
        const char *near = shape_suggest(s, key.s, key.len);
        struct str all = STR_INIT;
        int rc;

        str_adds(&all, s->n_fields ? "fields here: " : "no fields are allowed here");
        for (unsigned i = 0; i < s->n_fields; i++)
                str_addf(&all, "%s%s", i ? ", " : "", s->fields[i].field->name);
        rc = fail_at(r, where, near ? fmt("unknown field, did you mean %s", near) : "unknown field",
                     str_c(&all));
        str_fini(&all);
        return rc;
}

/* Protobuf's JSON has two names for a field: workload_id and workloadId. Readers of foreign
 * messages take both. */
static const struct shape_field *find_field(const struct shape *s, struct slice key,
                                            unsigned expect)
{
        const struct shape_field *f = shape_find(s, key.s, key.len, expect);
        char snake[128];
        size_t n = 0;

        if (f || !s->foreign)
                return f;
        for (size_t i = 0; i < key.len && n < sizeof(snake) - 2; i++) {
                char c = key.s[i];
                if (c >= 'A' && c <= 'Z') {
                        snake[n++] = '_';
                        c = (char)(c - 'A' + 'a');
                }
                snake[n++] = c;
        }
        return shape_find(s, snake, n, expect);
}

/* One "key": value of a message. expect is the position of the field that would come next in the
 * descriptor's order. */
static int read_member(struct reader *r, const struct shape *s, ProtobufCMessage *m, uint64_t *seen,
                       unsigned *expect)
{
        struct path_step step = { .up = r->at };
        const struct shape_field *f;
        const char *from = r->p;
        struct slice key;
        unsigned i;
        int rc = read_key(r, &key);

        if (rc < 0)
                return rc;
        step.name = key.s;
        step.name_len = key.len;
        r->at = &step;
        f = find_field(s, key, *expect);
        if (!f) {
                rc = r->flags & JSON_IGNORE_UNKNOWN ? skip_value(r) : fail_unknown(r, s, key, from);
                r->at = step.up;
                return rc;
        }
        i = (unsigned)(f - s->fields);
        *expect = i + 1;
        if (seen[i / 64] & 1ull << i % 64)
                return fail_at(r, from, "the field is there twice", NULL);
        seen[i / 64] |= 1ull << i % 64;
        if (r->p < r->end && *r->p == 'n' && take_word(r, "null"))
                rc = 0;
        else if (f->kind == SHAPE_MAP)
                rc = read_map(r, f, m);
        else if (f->repeated)
                rc = read_array(r, f, m);
        else {
                if (shape_mark(f, m) < 0)
                        return fail_at(r, from, "another field that excludes this one is set",
                                       NULL);
                rc = read_value(r, f, shape_slot(f, m));
        }
        if (rc == 0)
                r->at = step.up;
        return rc;
}

/* r->p is at the '{'. */
static int read_message(struct reader *r, const struct shape *s, ProtobufCMessage **ret)
{
        uint64_t seen[SHAPE_MAX_FIELDS / 64] = { 0 };
        ProtobufCMessage *m;
        unsigned expect = 0;
        int rc = enter(r);

        if (rc == 0)
                rc = count_message(r);
        if (rc < 0)
                return rc;
        m = pb_new(r->arena, s->type);
        r->p++;
        rc = take(r, '}') ? 0 : 1;
        while (rc > 0) {
                rc = read_member(r, s, m, seen, &expect);
                if (rc == 0)
                        rc = more(r, '}', "',' or '}'");
        }
        if (rc < 0)
                return rc;
        r->depth--;
        *ret = m;
        return 0;
}

int json_read(const ProtobufCMessageDescriptor *type, const char *text, size_t len,
              size_t max_bytes, unsigned flags, struct arena *arena, ProtobufCMessage **ret_message,
              struct err *err)
{
        struct reader r = { .p = text,
                            .end = text + len,
                            .start = text,
                            .arena = arena,
                            .err = err,
                            .flags = flags };
        ProtobufCMessage *m;
        int rc;

        if (len > max_bytes)
                return err_set(err, ERR_INVALID, .msg = "the text is too long",
                               .detail = fmt("%zu bytes, at most %zu", len, max_bytes));
        if (!next_is(&r, '{'))
                return fail_expected(&r, r.p, "an object");
        rc = read_message(&r, shape_of(type), &m);
        if (rc < 0)
                return rc;
        skip_space(&r);
        if (r.p < r.end)
                return fail_at(&r, r.p, "there is something after the end of the object", NULL);
        *ret_message = m;
        return 0;
}

/* ---- bare text ---- */

int json_set_text(ProtobufCMessage *m, const char *name, const char *text, struct arena *arena,
                  struct err *err)
{
        const struct shape *s = shape_of(m->descriptor);
        const struct shape_field *f = shape_find(s, name, strlen(name), 0);
        struct path_step step = { .name = name, .name_len = strlen(name) };
        struct reader r = {
                .p = text, .end = text, .start = text, .arena = arena, .err = err, .at = &step
        };
        uint64_t value[2] = { 0 };

        if (!f)
                return fail_unknown(&r, s, (struct slice){ name, strlen(name) }, text);
        if (f->kind == SHAPE_MESSAGE || f->kind == SHAPE_MAP)
                return fail_at(&r, text, "cannot be given as plain text", NULL);
        if (shape_parse(f, text, strlen(text), false, value, arena) < 0)
                return fail_at(&r, text, fmt("expected %s, got \"%.64s\"", shape_expected(f), text),
                               NULL);
        if (f->repeated) {
                size_t n = shape_count(f, m);
                struct shape_list list = { .f = f,
                                           .arena = arena,
                                           .at = n ? shape_at(f, m, 0) : NULL,
                                           .len = n,
                                           .cap = n };
                memcpy(shape_list_push(&list), value, f->size);
                shape_list_end(&list, m);
                return 0;
        }
        if (shape_mark(f, m) < 0)
                return fail_at(&r, text, "another field that excludes this one is set", NULL);
        memcpy(shape_slot(f, m), value, f->size);
        return 0;
}
