/* model/yaml_write.c: messages as YAML, for people and for reading back. See manifest.h.
 *
 * A text stands without quotes only if no YAML reader could take it for anything else. Texts of
 * several lines become literal blocks where that is exact; everything else is in double quotes with
 * escapes.
 */
#include "model/json.h"
#include "model/json_private.h"
#include "model/manifest.h"
#include "model/pb.h"
#include "model/shape.h"
#include <string.h>

#define MAX_DEPTH 100
#define LONG_KEY 120 /* YAML allows 1024 characters before the colon */

static bool is_letter(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_plain_text(const char *s, size_t len)
{
        static const char *const taken[] = { "y",    "n",     "yes",  "no",   "on",  "off",
                                             "true", "false", "null", "none", "nan", "inf" };

        if (len == 0 || !(is_letter(s[0]) || s[0] == '/' || s[0] == '_') || s[len - 1] == ' ')
                return false;
        for (size_t i = 0; i < len; i++)
                if (!is_letter(s[i]) && !(s[i] >= '0' && s[i] <= '9') &&
                    !strchr("_./@%+=~^- ", s[i]))
                        return false;
        for (size_t i = 0; i < ARRAY_LEN(taken); i++)
                if (str_case_eq(s, taken[i]))
                        return false;
        return true;
}

/* May stand for itself in a YAML stream, and is no line break. */
static bool is_shown(uint32_t c)
{
        if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff)
                return false;
        return c < 0xd800 || (c >= 0xe000 && c <= 0xfffd) || c >= 0x10000;
}

static uint32_t decode(const unsigned char *p, unsigned w)
{
        switch (w) {
        case 1:
                return p[0];
        case 2:
                return (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
        case 3:
                return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
        default:
                return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
                       (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
        }
}

static void write_quoted(struct str *out, const char *s, size_t len)
{
        const unsigned char *p = (const unsigned char *)s, *end = p + len;

        str_addc(out, '"');
        while (p < end) {
                unsigned w = utf8_next(p, end);
                uint32_t c = w ? decode(p, w) : 0xfffd;
                if (!w)
                        str_adds(out, "\xef\xbf\xbd");
                else if (c == '"' || c == '\\')
                        str_addf(out, "\\%c", (char)c);
                else if (c == '\n')
                        str_adds(out, "\\n");
                else if (c == '\t')
                        str_adds(out, "\\t");
                else if (c == '\r')
                        str_adds(out, "\\r");
                else if (is_shown(c))
                        str_add(out, p, w);
                else
                        /* all that is not shown is below U+10000 */
                        str_addf(out, "\\u%04X", (unsigned)c);
                p += w ? w : 1;
        }
        str_addc(out, '"');
}

/* Several lines of shown characters, the first one not indented, at most one line break at the
 * end. */
static bool is_block_text(const char *s, size_t len)
{
        const unsigned char *p = (const unsigned char *)s, *end = p + len;

        if (len < 2 || !memchr(s, '\n', len - 1) || s[0] == ' ' || s[0] == '\n' || s[0] == '\t' ||
            (s[len - 1] == '\n' && s[len - 2] == '\n'))
                return false;
        while (p < end) {
                unsigned w = utf8_next(p, end);
                if (w == 0 || (*p != '\n' && !is_shown(decode(p, w))))
                        return false;
                p += w;
        }
        return true;
}

static void indent(struct str *out, unsigned level)
{
        for (unsigned i = 0; i < level; i++)
                str_adds(out, "  ");
}

static void write_block(struct str *out, const char *s, size_t len, unsigned level)
{
        bool ends = s[len - 1] == '\n';

        str_adds(out, ends ? "|" : "|-");
        len -= ends;
        while (len > 0) {
                const char *nl = memchr(s, '\n', len);
                size_t n = nl ? (size_t)(nl - s) : len;
                str_addc(out, '\n');
                if (n > 0) {
                        indent(out, level);
                        str_add(out, s, n);
                }
                s += n;
                len -= n;
                s += nl != NULL;
                len -= nl != NULL;
        }
}

/* level is that of the lines of a block. */
static void write_text(struct str *out, const char *s, unsigned level)
{
        size_t len;

        s = s ? s : "";
        len = strlen(s);
        if (is_plain_text(s, len))
                str_add(out, s, len);
        else if (is_block_text(s, len))
                write_block(out, s, len, level);
        else
                write_quoted(out, s, len);
}

static void write_members(struct str *out, const ProtobufCMessage *m, unsigned level,
                          bool first_inline);

static bool is_empty(const ProtobufCMessage *m)
{
        const struct shape *s = shape_of(m->descriptor);

        for (unsigned i = 0; i < s->n_fields; i++)
                if (shape_count(&s->fields[i], m) > 0)
                        return false;
        return true;
}

static void write_scalar(struct str *out, const struct shape_field *f, const void *slot,
                         unsigned level)
{
        struct str json = STR_INIT;

        switch (f->kind) {
        case SHAPE_STRING:
                write_text(out, *(char *const *)slot, level);
                return;
        case SHAPE_TIME:
        case SHAPE_ENUM:
                json_write_scalar(&json, f, slot);
                if (json.len >= 2 && json.buf[0] == '"') /* such names and times need no quotes */
                        str_add(out, json.buf + 1, json.len - 2);
                else
                        str_add(out, json.buf, json.len);
                str_fini(&json);
                return;
        default:
                json_write_scalar(out, f, slot);
        }
}

static void write_map(struct str *out, const struct pb_entry *const *entries, size_t n,
                      unsigned level)
{
        for (size_t i = 0; i < n; i++) {
                const char *key = entries[i]->key;
                size_t len = strlen(key);
                str_addc(out, '\n');
                indent(out, level);
                if (len > LONG_KEY)
                        str_adds(out, "? ");
                if (is_plain_text(key, len))
                        str_add(out, key, len);
                else
                        write_quoted(out, key, len);
                if (len > LONG_KEY) {
                        str_addc(out, '\n');
                        indent(out, level);
                }
                str_adds(out, ": ");
                write_text(out, entries[i]->value, level + 1);
        }
}

static void write_list(struct str *out, const struct shape_field *f, const ProtobufCMessage *m,
                       size_t n, unsigned level)
{
        bool any = false;

        for (size_t i = 0; i < n; i++) {
                const void *slot = shape_at(f, m, i);
                if (f->kind == SHAPE_ENUM && *(const int *)slot == 0)
                        continue;
                str_addc(out, '\n');
                indent(out, level);
                str_adds(out, "- ");
                any = true;
                if (f->kind != SHAPE_MESSAGE) {
                        write_scalar(out, f, slot, level + 1);
                        continue;
                }
                const ProtobufCMessage *sub = *(ProtobufCMessage *const *)slot;
                if (is_empty(sub))
                        str_adds(out, "{}");
                else
                        write_members(out, sub, level + 1, true);
        }
        if (!any)
                str_adds(out, " []");
}

/* Lines "key: value" without a line break at the end; the first one goes on where the output is if
 * first_inline is set. */
static void write_members(struct str *out, const ProtobufCMessage *m, unsigned level,
                          bool first_inline)
{
        const struct shape *s = shape_of(m->descriptor);

        for (unsigned i = 0; level < MAX_DEPTH && i < s->n_fields; i++) {
                const struct shape_field *f = &s->fields[i];
                size_t n = shape_count(f, m);
                if (n == 0)
                        continue;
                if (!first_inline) {
                        str_addc(out, '\n');
                        indent(out, level);
                }
                first_inline = false;
                str_adds(out, f->field->name);
                str_addc(out, ':');
                if (f->kind == SHAPE_MAP)
                        write_map(out, *(const struct pb_entry *const *const *)shape_slot(f, m), n,
                                  level + 1);
                else if (f->repeated)
                        write_list(out, f, m, n, level + 1);
                else if (f->kind == SHAPE_MESSAGE) {
                        const ProtobufCMessage *sub = *(ProtobufCMessage *const *)shape_slot(f, m);
                        if (is_empty(sub))
                                str_adds(out, " {}");
                        else
                                write_members(out, sub, level + 1, false);
                } else {
                        str_addc(out, ' ');
                        write_scalar(out, f, shape_slot(f, m), level + 1);
                }
        }
}

void yaml_write(struct str *out, const ProtobufCMessage *m)
{
        if (is_empty(m))
                str_adds(out, "{}");
        else
                write_members(out, m, 0, true);
        str_addc(out, '\n');
}
