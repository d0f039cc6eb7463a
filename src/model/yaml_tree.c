/* model/yaml_tree.c: see yaml_tree.h. Events only, like manifest.c, and for the same reasons; the C
 * stack is not used for depth. */
#include "model/yaml_tree.h"
#include "base/mem.h"
#include "model/json.h"
#include "model/manifest.h"
#include "model/shape.h"
#include <string.h>
#include <yaml.h>

struct builder {
        yaml_parser_t parser;
        const char *name;
        unsigned first_line, events, depth;
        struct arena *arena;
        struct err *err;
        struct yaml_node *root, *at; /* at: the open list or map */
        const char *key;             /* read, its value is next */
};

static int fail_line(struct builder *b, unsigned line, const char *what, const char *hint)
{
        return err_set(b->err, ERR_INVALID, .msg = fmt("%.100s:%u: %s", b->name, line, what),
                       .hint = hint);
}

/* Where a node stands: "services.web.ports[0]". */
static void add_path(const struct yaml_node *n, struct str *out)
{
        if (!n || !n->up)
                return;
        add_path(n->up, out);
        if (n->key)
                str_addf(out, "%s%s", out->len ? "." : "", n->key);
        else
                str_addf(out, "[%zu]", n->index);
}

int yaml_fail(const char *name, const struct yaml_node *at, const char *what, const char *hint,
              struct err *err)
{
        _cleanup_(str_finip) struct str path = STR_INIT;

        add_path(at, &path);
        return err_set(err, ERR_INVALID,
                       .msg = fmt("%.100s:%u: %s%s%s", name, at->line, str_c(&path),
                                  path.len ? ": " : "", what),
                       .hint = hint, .path = str_c(&path));
}

struct yaml_node *yaml_get(const struct yaml_node *map, const char *key)
{
        for (size_t i = 0; map && map->kind == YAML_MAP && i < map->n; i++)
                if (str_eq(map->at[i]->key, key))
                        return map->at[i];
        return NULL;
}

bool yaml_is_null(const struct yaml_node *n)
{
        return !n || (n->kind == YAML_TEXT && n->plain &&
                      (n->text[0] == 0 || str_eq(n->text, "~") || str_eq(n->text, "null") ||
                       str_eq(n->text, "Null") || str_eq(n->text, "NULL")));
}

static void push(struct builder *b, struct yaml_node *parent, struct yaml_node *child)
{
        if ((parent->n & (parent->n - 1)) == 0) { /* at 0, 1, 2, 4, ...: doubled */
                struct yaml_node **more =
                    arena_new_n(b->arena, struct yaml_node *, parent->n ? parent->n * 2 : 1);

                if (parent->n)
                        memcpy(more, parent->at, parent->n * sizeof(*more));
                parent->at = more;
        }
        child->index = parent->n;
        parent->at[parent->n++] = child;
}

static int add_node(struct builder *b, enum yaml_kind kind, unsigned line, struct yaml_node **ret)
{
        struct yaml_node *n = arena_new(b->arena, struct yaml_node);

        n->kind = kind;
        n->line = line;
        n->up = b->at;
        if (b->at && b->at->kind == YAML_MAP) {
                n->key = b->key;
                b->key = NULL;
        }
        if (b->at)
                push(b, b->at, n);
        else if (b->root)
                return fail_line(b, line, "expected one document only", NULL);
        else
                b->root = n;
        if (kind != YAML_TEXT)
                b->at = n;
        *ret = n;
        return 0;
}

static int take_key(struct builder *b, const char *text, size_t len, unsigned line, bool plain)
{
        if (!str_is_utf8(text, len))
                return fail_line(b, line, "a key must be text without NUL", NULL);
        if (plain && str_eq(text, "<<"))
                return fail_line(b, line, "merge keys (<<) are not allowed",
                                 "write the values out");
        if (yaml_get(b->at, text))
                return fail_line(b, line, fmt("the key %.60s is there twice", text), NULL);
        b->key = arena_strndup(b->arena, text, len);
        return 0;
}

static int take_event(struct builder *b, const yaml_event_t *e, bool *ret_end)
{
        unsigned line = b->first_line + (unsigned)e->start_mark.line;
        struct yaml_node *n;
        const char *text;
        bool wants_key = b->at && b->at->kind == YAML_MAP && !b->key;
        int r;

        switch (e->type) {
        case YAML_ALIAS_EVENT:
                return fail_line(b, line, "aliases (*name) are not allowed", "write the value out");
        case YAML_SCALAR_EVENT:
                if (e->data.scalar.anchor || e->data.scalar.tag)
                        return fail_line(b, line,
                                         "anchors (&name) and tags (!name) are not allowed",
                                         "write the value out");
                text = (const char *)e->data.scalar.value;
                if (wants_key)
                        return take_key(b, text, e->data.scalar.length, line,
                                        e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE);
                if (!str_is_utf8(text, e->data.scalar.length))
                        return fail_line(b, line, "text must be UTF-8 without NUL", NULL);
                r = add_node(b, YAML_TEXT, line, &n);
                if (r == 0) {
                        n->text = arena_strndup(b->arena, text, e->data.scalar.length);
                        n->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
                }
                return r;
        case YAML_SEQUENCE_START_EVENT:
        case YAML_MAPPING_START_EVENT:
                if (wants_key)
                        return fail_line(b, line, "a key must be plain text", NULL);
                if (e->type == YAML_SEQUENCE_START_EVENT
                        ? e->data.sequence_start.anchor || e->data.sequence_start.tag
                        : e->data.mapping_start.anchor || e->data.mapping_start.tag)
                        return fail_line(b, line,
                                         "anchors (&name) and tags (!name) are not allowed",
                                         "write the value out");
                if (++b->depth > MANIFEST_MAX_DEPTH)
                        return fail_line(b, line,
                                         fmt("nested more than %d levels deep", MANIFEST_MAX_DEPTH),
                                         NULL);
                return add_node(b, e->type == YAML_SEQUENCE_START_EVENT ? YAML_LIST : YAML_MAP,
                                line, &n);
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
                b->depth--;
                b->at = b->at->up;
                return 0;
        case YAML_STREAM_END_EVENT:
                *ret_end = true;
                return 0;
        default:
                return 0;
        }
}

static int build(struct builder *b)
{
        bool end = false;
        int r = 0;

        while (r == 0 && !end) {
                yaml_event_t e;

                if (!yaml_parser_parse(&b->parser, &e)) {
                        const char *problem = b->parser.problem ? b->parser.problem : "bad YAML";

                        return fail_line(b, b->first_line + (unsigned)b->parser.problem_mark.line,
                                         problem,
                                         strstr(problem, "cannot start any token")
                                             ? "indent with spaces, not with tabs"
                                             : "look at the indentation, the quotes and the "
                                               "brackets near this line");
                }
                if (++b->events > MANIFEST_MAX_EVENTS)
                        r = fail_line(b, b->first_line + (unsigned)e.start_mark.line,
                                      fmt("more than %d values", MANIFEST_MAX_EVENTS), NULL);
                else
                        r = take_event(b, &e, &end);
                yaml_event_delete(&e);
        }
        if (r == 0 && !b->root)
                r = fail_line(b, b->first_line, "there is nothing in it", NULL);
        return r;
}

int yaml_tree_read(const char *name, unsigned first_line, const char *text, size_t len,
                   struct arena *arena, struct yaml_node **ret, struct err *err)
{
        struct builder b = { .name = name, .first_line = first_line, .arena = arena, .err = err };
        int r;

        if (len > MANIFEST_MAX_BYTES)
                return err_set(err, ERR_INVALID, .msg = fmt("%.100s: the text is too long", name),
                               .detail = fmt("%zu bytes, at most %d", len, MANIFEST_MAX_BYTES));
        if (!yaml_parser_initialize(&b.parser))
                return err_set(err, ERR_NOMEM, .msg = "no memory to read YAML");
        yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&b.parser, (const unsigned char *)(len ? text : ""), len);
        r = build(&b);
        yaml_parser_delete(&b.parser);
        if (r == 0)
                *ret = b.root;
        return r;
}

/* ---- writing ---- */

/* What JSON takes as a number: no leading zeros or plus, no hex, no .5 */
static bool is_json_number(const char *s)
{
        s += *s == '-';
        if (*s == '0')
                s++;
        else if (*s >= '1' && *s <= '9')
                s += strspn(s, "0123456789");
        else
                return false;
        if (*s == '.') {
                size_t n = strspn(++s, "0123456789");

                if (n == 0)
                        return false;
                s += n;
        }
        if (*s == 'e' || *s == 'E') {
                s++;
                s += *s == '+' || *s == '-';
                size_t n = strspn(s, "0123456789");

                if (n == 0)
                        return false;
                s += n;
        }
        return *s == 0;
}

static const char *bool_of(const char *s)
{
        static const char *const yes[] = { "true", "True", "TRUE" }, *const no[] = { "false",
                                                                                     "False",
                                                                                     "FALSE" };

        for (size_t i = 0; i < ARRAY_LEN(yes); i++)
                if (str_eq(s, yes[i]) || str_eq(s, no[i]))
                        return str_eq(s, yes[i]) ? "true" : "false";
        return NULL;
}

/* Depth is bounded by MANIFEST_MAX_DEPTH. */
void yaml_write_json(const struct yaml_node *n, struct str *out)
{
        if (n->kind == YAML_TEXT) {
                if (yaml_is_null(n))
                        str_adds(out, "null");
                else if (n->plain && (is_json_number(n->text) || bool_of(n->text)))
                        str_adds(out, bool_of(n->text) ? bool_of(n->text) : n->text);
                else
                        json_write_string(out, n->text, strlen(n->text));
                return;
        }
        str_addc(out, n->kind == YAML_LIST ? '[' : '{');
        for (size_t i = 0; i < n->n; i++) {
                if (i)
                        str_addc(out, ',');
                if (n->kind == YAML_MAP) {
                        json_write_string(out, n->at[i]->key, strlen(n->at[i]->key));
                        str_addc(out, ':');
                }
                yaml_write_json(n->at[i], out);
        }
        str_addc(out, n->kind == YAML_LIST ? ']' : '}');
}
