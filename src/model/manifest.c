/* model/manifest.c: YAML events to messages. See manifest.h.
 *
 * libyaml's events only: its document API takes quadratic time on hostile input, and aliases are
 * refused before they could be expanded. Invariants:
 *   (1) At most MANIFEST_MAX_EVENTS events are taken, and the C stack is bounded by
 *       MANIFEST_MAX_DEPTH.
 *   (2) r->event is the event in hand; every read function is entered with the first event of its
 *       node in hand and leaves with the last one.
 *   (3) Nothing that outlives r->event points into it.
 */
#include "model/manifest.h"
#include "model/json.h"
#include "model/json_private.h"
#include "model/kube.h"
#include "model/path.h"
#include "model/pb.h"
#include "model/shape.h"
#include <stdio.h>
#include <string.h>
#include <yaml.h>

struct yaml {
        yaml_parser_t parser;
        yaml_event_t event;
        const char *name;
        struct arena *arena;
        struct err *err;
        const struct path_step *at;
        unsigned events, depth;
};

static int read_message(struct yaml *r, const struct shape *s, ProtobufCMessage **ret);

/* ---- errors and events ---- */

static int fail_at(struct yaml *r, yaml_mark_t mark, const char *what, const char *hint)
{
        char path[PATH_TEXT_LEN];

        path_text(r->at, path);
        return err_set(r->err, ERR_INVALID,
                       .msg = fmt("%.100s:%zu:%zu: %s%s%s", r->name, mark.line + 1, mark.column + 1,
                                  path, path[0] ? ": " : "", what),
                       .hint = hint, .path = path);
}

static int fail(struct yaml *r, const char *what, const char *hint)
{
        return fail_at(r, r->event.start_mark, what, hint);
}

static const char *found(const struct yaml *r)
{
        switch (r->event.type) {
        case YAML_SCALAR_EVENT:
                if (r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
                        return r->event.data.scalar.length
                                   ? fmt("%.60s", (const char *)r->event.data.scalar.value)
                                   : "nothing";
                if (memchr(r->event.data.scalar.value, 0, r->event.data.scalar.length))
                        return "a text with a zero byte in it";
                return fmt("\"%.60s\"", (const char *)r->event.data.scalar.value);
        case YAML_SEQUENCE_START_EVENT:
                return "a list";
        case YAML_MAPPING_START_EVENT:
                return "an object";
        default:
                return "the end";
        }
}

static int fail_parser(struct yaml *r)
{
        const yaml_parser_t *p = &r->parser;
        bool tab = p->problem && strstr(p->problem, "cannot start any token");
        bool start = p->problem && strstr(p->problem, "document start");

        if (p->error == YAML_MEMORY_ERROR)
                return err_set(r->err, ERR_NOMEM, .msg = "no memory to read the manifest");
        if (p->error == YAML_READER_ERROR)
                return err_set(
                    r->err, ERR_INVALID,
                    .msg = fmt("%.100s: %s", r->name, p->problem ? p->problem : "cannot be read"),
                    .detail = fmt("at byte %zu", p->problem_offset),
                    .hint = "manifests are UTF-8 text");
        return fail_at(r, p->problem_mark,
                       fmt("%s%s%s", p->problem ? p->problem : "bad YAML", p->context ? ", " : "",
                           p->context ? p->context : ""),
                       tab ? "indent with spaces, not with tabs"
                       : start
                           ? "several documents are separated by a line with ---"
                           : "look at the indentation, the quotes and the brackets near this line");
}

/* The next event is in hand. What would make one node mean another, or name a type, is refused
 * here. */
static int next(struct yaml *r)
{
        const unsigned char *anchor = NULL, *tag = NULL;

        yaml_event_delete(&r->event);
        if (!yaml_parser_parse(&r->parser, &r->event))
                return fail_parser(r);
        if (++r->events > MANIFEST_MAX_EVENTS)
                return fail(r, fmt("more than %d values in one manifest", MANIFEST_MAX_EVENTS),
                            "split it into several files");
        switch (r->event.type) {
        case YAML_ALIAS_EVENT:
                return fail(r, "aliases (*name) are not allowed", "write the value out");
        case YAML_SCALAR_EVENT:
                anchor = r->event.data.scalar.anchor;
                tag = r->event.data.scalar.tag;
                break;
        case YAML_SEQUENCE_START_EVENT:
                anchor = r->event.data.sequence_start.anchor;
                tag = r->event.data.sequence_start.tag;
                r->depth++;
                break;
        case YAML_MAPPING_START_EVENT:
                anchor = r->event.data.mapping_start.anchor;
                tag = r->event.data.mapping_start.tag;
                r->depth++;
                break;
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
                r->depth--;
                break;
        default:
                break;
        }
        if (anchor)
                return fail(r, "anchors (&name) are not allowed", "write the value out");
        if (tag)
                return fail(r, "tags (!name) are not allowed", NULL);
        if (r->depth > MANIFEST_MAX_DEPTH)
                return fail(r, fmt("nested more than %d levels deep", MANIFEST_MAX_DEPTH), NULL);
        return 0;
}

/* ---- values ---- */

static bool is_plain(const struct yaml *r)
{
        return r->event.type == YAML_SCALAR_EVENT &&
               r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static bool is_null(const struct yaml *r)
{
        const char *s;

        if (!is_plain(r))
                return false;
        s = (const char *)r->event.data.scalar.value;
        return s[0] == '\0' || str_eq(s, "~") || str_eq(s, "null") || str_eq(s, "Null") ||
               str_eq(s, "NULL");
}

/* What to tell somebody whose scalar was not taken. slot: where it would have gone. */
static const char *scalar_hint(const struct yaml *r, const struct shape_field *f, void *slot)
{
        const char *text = (const char *)r->event.data.scalar.value, *name = f->field->name, *near;
        int64_t bytes;

        if (f->kind == SHAPE_ENUM) {
                near = shape_enum_suggest(f->names, text, strlen(text));
                return near ? fmt("did you mean %s?", near) : NULL;
        }
        if (!is_plain(r) && f->kind != SHAPE_TIME &&
            shape_parse(f, text, r->event.data.scalar.length, false, slot, r->arena) == 0)
                return "take the quotes away";
        if ((str_ends(name, "_mb") || str_ends(name, "_gb") || str_ends(name, "_kb")) &&
            str_parse_bytes(text, &bytes) == 0) {
                unsigned shift = str_ends(name, "_kb") ? 10 : str_ends(name, "_mb") ? 20 : 30;
                return fmt("%s is a plain number: write %lld", name,
                           (long long)((bytes + (1ll << shift) - 1) >> shift));
        }
        if (memchr(r->event.data.scalar.value, 0, r->event.data.scalar.length))
                return "leave out \\u0000 and \\0";
        return NULL;
}

/* One value that is no list; the first event of it is in hand. */
static int read_value(struct yaml *r, const struct shape_field *f, void *slot)
{
        bool quoted = !is_plain(r) || f->kind == SHAPE_TIME;

        if (f->kind == SHAPE_MESSAGE) {
                if (r->event.type != YAML_MAPPING_START_EVENT)
                        return fail(r, fmt("expected an object, got %s", found(r)), NULL);
                return read_message(r, f->shape, slot);
        }
        if (r->event.type != YAML_SCALAR_EVENT)
                return fail(r, fmt("expected %s, got %s", shape_expected(f), found(r)), NULL);
        if (is_null(r))
                return fail(r, fmt("expected %s, got nothing", shape_expected(f)),
                            "write \"\" for an empty text");
        if (shape_parse(f, (const char *)r->event.data.scalar.value, r->event.data.scalar.length,
                        quoted, slot, r->arena) < 0)
                return fail(r, fmt("expected %s, got %s", shape_expected(f), found(r)),
                            scalar_hint(r, f, slot));
        return 0;
}

static int read_list(struct yaml *r, const struct shape_field *f, ProtobufCMessage *m)
{
        struct shape_list list = { .f = f, .arena = r->arena };
        struct path_step step = { .up = r->at };
        int rc;

        if (r->event.type != YAML_SEQUENCE_START_EVENT)
                return fail(r, fmt("expected a list, got %s", found(r)),
                            is_plain(r)
                                ? fmt("write [%.60s]", (const char *)r->event.data.scalar.value)
                                : NULL);
        r->at = &step;
        while ((rc = next(r)) == 0 && r->event.type != YAML_SEQUENCE_END_EVENT) {
                step.index = list.len;
                rc = read_value(r, f, shape_list_push(&list));
                if (rc < 0)
                        return rc;
        }
        if (rc < 0)
                return rc;
        r->at = step.up;
        shape_list_end(&list, m);
        return 0;
}

/* The key in hand, copied. */
static int read_key(struct yaml *r, const char **ret, size_t *ret_len)
{
        if (r->event.type != YAML_SCALAR_EVENT)
                return fail(r, "a key must be plain text", NULL);
        if (!str_is_utf8((const char *)r->event.data.scalar.value, r->event.data.scalar.length))
                return fail(r, "a key must be text without NUL", NULL);
        if (is_plain(r) && str_eq((const char *)r->event.data.scalar.value, "<<"))
                return fail(r, "merge keys (<<) are not allowed", "write the values out");
        *ret_len = r->event.data.scalar.length;
        *ret = arena_strndup(r->arena, (const char *)r->event.data.scalar.value, *ret_len);
        return 0;
}

static int read_map(struct yaml *r, const struct shape_field *f, ProtobufCMessage *m)
{
        struct shape_list list = { .f = f, .arena = r->arena };
        struct path_step step = { .up = r->at };
        yaml_mark_t mark = r->event.start_mark;
        const char *twice;
        int rc;

        if (r->event.type != YAML_MAPPING_START_EVENT)
                return fail(r, fmt("expected an object, got %s", found(r)), NULL);
        while ((rc = next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
                struct pb_entry *e = (struct pb_entry *)pb_new(r->arena, f->shape->type);
                const char *key;
                rc = read_key(r, &key, &step.name_len);
                if (rc < 0)
                        return rc;
                step.name = e->key = (char *)key;
                r->at = &step;
                rc = next(r);
                if (rc == 0)
                        rc = read_value(r, &f->shape->fields[1], &e->value);
                if (rc < 0)
                        return rc;
                r->at = step.up;
                *(struct pb_entry **)shape_list_push(&list) = e;
        }
        if (rc < 0)
                return rc;
        twice = pb_entries_sort((struct pb_entry **)(void *)list.at, list.len);
        if (twice) {
                step.name = twice;
                step.name_len = strlen(twice);
                r->at = &step;
                return fail_at(r, mark, "the key is there twice", NULL);
        }
        shape_list_end(&list, m);
        return 0;
}

static int fail_unknown(struct yaml *r, const struct shape *s, const char *key, size_t len)
{
        const char *near = shape_suggest(s, key, len);
        struct str all = STR_INIT;
        int rc;

        str_adds(&all, "fields here: ");
        for (unsigned i = 0; i < s->n_fields; i++)
                str_addf(&all, "%s%s", i ? ", " : "", s->fields[i].field->name);
        rc = fail(r, near ? fmt("unknown field, did you mean %s", near) : "unknown field",
                  str_c(&all));
        str_fini(&all);
        return rc;
}

/* The key of a member is in hand. */
static int read_member(struct yaml *r, const struct shape *s, ProtobufCMessage *m, uint64_t *seen)
{
        struct path_step step = { .up = r->at };
        const struct shape_field *f;
        unsigned i;
        int rc = read_key(r, &step.name, &step.name_len);

        if (rc < 0)
                return rc;
        r->at = &step;
        f = shape_find(s, step.name, step.name_len, 0);
        if (!f)
                return fail_unknown(r, s, step.name, step.name_len);
        i = (unsigned)(f - s->fields);
        if (seen[i / 64] & 1ull << i % 64)
                return fail(r, "the field is there twice", NULL);
        seen[i / 64] |= 1ull << i % 64;
        rc = next(r);
        if (rc < 0)
                return rc;
        if (is_null(r))
                rc = 0;
        else if (f->kind == SHAPE_MAP)
                rc = read_map(r, f, m);
        else if (f->repeated)
                rc = read_list(r, f, m);
        else {
                if (shape_mark(f, m) < 0)
                        return fail(r, "another field that excludes this one is set", NULL);
                rc = read_value(r, f, shape_slot(f, m));
        }
        if (rc == 0)
                r->at = step.up;
        return rc;
}

/* MAPPING-START is in hand. */
static int read_message(struct yaml *r, const struct shape *s, ProtobufCMessage **ret)
{
        uint64_t seen[SHAPE_MAX_FIELDS / 64] = { 0 };
        ProtobufCMessage *m = pb_new(r->arena, s->type);
        int rc;

        while ((rc = next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
                rc = read_member(r, s, m, seen);
                if (rc < 0)
                        return rc;
        }
        if (rc < 0)
                return rc;
        *ret = m;
        return 0;
}

/* ---- documents ---- */

struct found_items {
        struct manifest_item *items;
        size_t len, cap;
};

static int add_item(struct yaml *r, struct found_items *to, Pb__Workload *w, size_t line)
{
        if (to->len == MANIFEST_MAX_WORKLOADS)
                return fail(r,
                            fmt("more than %d workloads in one manifest", MANIFEST_MAX_WORKLOADS),
                            "split it into several files");
        if (to->len == to->cap) {
                size_t cap = to->cap ? to->cap * 2 : 8;
                struct manifest_item *items = arena_new_n(r->arena, struct manifest_item, cap);
                if (to->len > 0)
                        memcpy(items, to->items, to->len * sizeof(*items));
                to->items = items;
                to->cap = cap;
        }
        to->items[to->len++] = (struct manifest_item){ .workload = w, .line = (unsigned)line + 1 };
        return 0;
}

/* kind, apiVersion: 1 if the key was one of these and its value was good, 0 if it is another
 * key. */
static int read_header(struct yaml *r, const char *key, size_t len)
{
        struct path_step step = { .up = r->at, .name = key, .name_len = len };
        bool kind = str_eq(key, "kind"), version = str_eq(key, "apiVersion");
        const char *value;
        int rc;

        if (!kind && !version)
                return 0;
        r->at = &step;
        rc = next(r);
        if (rc < 0)
                return rc;
        value = r->event.type == YAML_SCALAR_EVENT ? (const char *)r->event.data.scalar.value : "";
        if (kind && !str_eq(value, "Workload") && !str_eq(value, "List"))
                return fail(r, fmt("expected Workload, got %s", found(r)),
                            "berth applies documents of kind Workload, Pod, and Deployment with "
                            "one replica; kind may be left out");
        if (version && !str_starts(value, "berth"))
                return fail(r, fmt("expected berth/v1, got %s", found(r)),
                            "apiVersion may be left out");
        r->at = step.up;
        return 1;
}

static int read_workload(struct yaml *r, struct found_items *to, bool may_be_list);

/* SEQUENCE-START is in hand. */
static int read_workloads(struct yaml *r, struct found_items *to)
{
        struct path_step step = { .up = r->at };
        int rc;

        r->at = &step;
        for (; (rc = next(r)) == 0 && r->event.type != YAML_SEQUENCE_END_EVENT; step.index++) {
                if (r->event.type != YAML_MAPPING_START_EVENT)
                        return fail(r, fmt("expected a workload, got %s", found(r)), NULL);
                rc = read_workload(r, to, false);
                if (rc < 0)
                        return rc;
        }
        if (rc == 0)
                r->at = step.up;
        return rc;
}

static int read_items(struct yaml *r, struct found_items *to)
{
        struct path_step step = { .up = r->at, .name = "items", .name_len = 5 };
        int rc = next(r);

        if (rc < 0)
                return rc;
        r->at = &step;
        if (is_null(r))
                rc = 0;
        else if (r->event.type != YAML_SEQUENCE_START_EVENT)
                return fail(r, fmt("expected a list of workloads, got %s", found(r)), NULL);
        else
                rc = read_workloads(r, to);
        if (rc == 0)
                r->at = step.up;
        return rc;
}

static int skip_scalar(struct yaml *r)
{
        int rc = next(r);

        if (rc == 0 && r->event.type != YAML_SCALAR_EVENT)
                return fail(r, fmt("expected a number or a text, got %s", found(r)), NULL);
        return rc;
}

/* MAPPING-START is in hand. A list has `items`, and what else a list of the API has: total,
 * next_cursor, resource_version, which mean nothing here. */
static int read_workload(struct yaml *r, struct found_items *to, bool may_be_list)
{
        const struct shape *s = shape_of(&pb__workload__descriptor);
        uint64_t seen[SHAPE_MAX_FIELDS / 64] = { 0 };
        ProtobufCMessage *m = pb_new(r->arena, s->type);
        size_t line = r->event.start_mark.line;
        bool list = false;
        int rc;

        while ((rc = next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
                const char *key = "";
                size_t len = 0;
                rc = read_key(r, &key, &len);
                if (rc == 0)
                        rc = read_header(r, key, len);
                if (rc > 0)
                        continue;
                if (rc == 0 && may_be_list && !list && str_eq(key, "items")) {
                        list = true;
                        rc = read_items(r, to);
                } else if (rc == 0 && may_be_list &&
                           (str_eq(key, "total") || str_eq(key, "next_cursor") ||
                            (list && str_eq(key, "resource_version"))))
                        rc = skip_scalar(r);
                else if (rc == 0)
                        rc = read_member(r, s, m, seen);
                if (rc < 0)
                        return rc;
        }
        if (rc < 0)
                return rc;
        return list ? 0 : add_item(r, to, (Pb__Workload *)m, line);
}

static int begin(struct yaml *r, const char *text, size_t len)
{
        if (len > MANIFEST_MAX_BYTES)
                return err_set(r->err, ERR_INVALID,
                               .msg = fmt("%.100s: the manifest is too long", r->name),
                               .detail = fmt("%zu bytes, at most %d", len, MANIFEST_MAX_BYTES),
                               .hint = "split it into several files");
        if (!yaml_parser_initialize(&r->parser))
                return err_set(r->err, ERR_NOMEM, .msg = "no memory to read the manifest");
        yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&r->parser, (const unsigned char *)(len ? text : ""), len);
        return 0;
}

static void yaml_finip(struct yaml *r)
{
        yaml_event_delete(&r->event);
        yaml_parser_delete(&r->parser);
}

/* DOCUMENT-START was taken; reads the root and DOCUMENT-END. */
static int read_document(struct yaml *r, struct found_items *to)
{
        int rc = next(r);

        if (rc < 0)
                return rc;
        if (is_null(r))
                rc = 0;
        else if (r->event.type == YAML_MAPPING_START_EVENT)
                rc = read_workload(r, to, true);
        else if (r->event.type == YAML_SEQUENCE_START_EVENT)
                rc = read_workloads(r, to);
        else
                return fail(r, fmt("expected a workload, got %s", found(r)),
                            "a manifest looks like: id: web, spec: {command: [...]}");
        return rc < 0 ? rc : next(r);
}

/* ---- documents in other words (kube.h) ---- */

/* Which documents are Pods or Deployments. A document's kind can stand anywhere in it, so that the
 * whole is looked through once more, and only when the word is there. */
struct foreign {
        size_t document;
        size_t first_line, end_line; /* from 0; end: the line after it */
};
struct foreign_list {
        struct foreign *at;
        size_t len, cap;
};

static void note_foreign(struct arena *arena, struct foreign_list *list, struct foreign one)
{
        if (list->len == list->cap) {
                struct foreign *more =
                    arena_new_n(arena, struct foreign, list->cap ? list->cap * 2 : 8);

                if (list->len)
                        memcpy(more, list->at, list->len * sizeof(*more));
                list->at = more;
                list->cap = list->cap ? list->cap * 2 : 8;
        }
        list->at[list->len++] = one;
}

static bool is_kind_of_pod(const yaml_event_t *e)
{
        const char *value = e->type == YAML_SCALAR_EVENT ? (const char *)e->data.scalar.value : "";

        return str_eq(value, "Pod") || str_eq(value, "Deployment");
}

/* What is wrong with the text is found by whoever reads it for real. */
static void find_foreign(const char *text, size_t len, struct arena *arena,
                         struct foreign_list *ret)
{
        yaml_parser_t parser;
        unsigned depth = 0, events = 0, members = 0;
        struct foreign now = { 0 };
        bool pod = false, kind_next = false, end = false;

        if (!memmem(text, len, "kind", 4) ||
            (!memmem(text, len, "Pod", 3) && !memmem(text, len, "Deployment", 10)) ||
            !yaml_parser_initialize(&parser))
                return;
        yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
        while (!end && ++events <= MANIFEST_MAX_EVENTS) {
                yaml_event_t e;

                if (!yaml_parser_parse(&parser, &e))
                        break;
                bool opens =
                    e.type == YAML_MAPPING_START_EVENT || e.type == YAML_SEQUENCE_START_EVENT;
                bool closes = e.type == YAML_MAPPING_END_EVENT || e.type == YAML_SEQUENCE_END_EVENT;

                if (opens && depth == 0)
                        now.first_line = e.start_mark.line;
                /* keys and values of the root by turns */
                if (depth == 1 && (e.type == YAML_SCALAR_EVENT || opens)) {
                        if (members++ % 2 == 0)
                                kind_next = e.type == YAML_SCALAR_EVENT &&
                                            str_eq((const char *)e.data.scalar.value, "kind");
                        else if (kind_next)
                                pod = is_kind_of_pod(&e);
                }
                depth += opens;
                depth -= closes && depth > 0;
                if (e.type == YAML_DOCUMENT_END_EVENT) {
                        now.end_line = e.start_mark.line + (e.start_mark.column > 0);
                        if (pod)
                                note_foreign(arena, ret, now);
                        pod = false;
                        members = 0;
                        now.document++;
                }
                end = e.type == YAML_STREAM_END_EVENT;
                yaml_event_delete(&e);
        }
        yaml_parser_delete(&parser);
}

static const char *line_at(const char *text, size_t len, size_t line)
{
        const char *p = text, *end = text + len;

        for (; line > 0 && p < end; line--) {
                const char *newline = memchr(p, '\n', (size_t)(end - p));

                p = newline ? newline + 1 : end;
        }
        return p;
}

/* DOCUMENT-START was taken; the document is gone through, and read by kube.c. */
static int read_foreign(struct yaml *r, const char *text, size_t len, const struct foreign *f,
                        struct found_items *to)
{
        const char *from = line_at(text, len, f->first_line),
                   *until = line_at(text, len, f->end_line);
        Pb__Workload *w = NULL;
        int rc;

        do
                rc = next(r);
        while (rc == 0 && r->event.type != YAML_DOCUMENT_END_EVENT);
        if (rc == 0)
                rc = kube_workload_read(r->name, (unsigned)f->first_line + 1, from,
                                        (size_t)(until - from), r->arena, &w, r->err);
        return rc < 0 ? rc : add_item(r, to, w, f->first_line);
}

/* JSON proper: libyaml does not know surrogate pairs, so what is valid JSON is read as such. */
static bool read_as_json(const char *text, size_t len, struct arena *arena, struct manifest *ret)
{
        ProtobufCMessage *m;
        size_t i = 0;

        while (i < len && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t'))
                i++;
        if (i == len || text[i] != '{' ||
            json_read(&pb__workload__descriptor, text, len, MANIFEST_MAX_BYTES, 0, arena, &m,
                      NULL) < 0)
                return false;
        ret->items = arena_new(arena, struct manifest_item);
        ret->items[0] = (struct manifest_item){ .workload = (Pb__Workload *)m, .line = 1 };
        ret->n_items = 1;
        return true;
}

int manifest_read(const char *name, const char *text, size_t len, struct arena *arena,
                  struct manifest *ret, struct err *err)
{
        _cleanup_(yaml_finip) struct yaml r = { .name = name, .arena = arena, .err = err };
        struct found_items found_here = { 0 };
        struct foreign_list foreign = { 0 };
        size_t document = 0, at = 0;
        int rc;

        if (read_as_json(text, len, arena, ret))
                return 0;
        rc = begin(&r, text, len);
        if (rc == 0)
                find_foreign(text, len, arena, &foreign);
        if (rc == 0)
                rc = next(&r); /* STREAM-START */
        while (rc == 0) {
                rc = next(&r);
                if (rc < 0 || r.event.type == YAML_STREAM_END_EVENT)
                        break;
                if (at < foreign.len && foreign.at[at].document == document)
                        rc = read_foreign(&r, text, len, &foreign.at[at++], &found_here);
                else
                        rc = read_document(&r, &found_here);
                document++;
        }
        if (rc < 0)
                return rc;
        *ret = (struct manifest){ .items = found_here.items, .n_items = found_here.len };
        return 0;
}

int yaml_read(const ProtobufCMessageDescriptor *type, const char *name, const char *text,
              size_t len, struct arena *arena, ProtobufCMessage **ret_message, struct err *err)
{
        _cleanup_(yaml_finip) struct yaml r = { .name = name, .arena = arena, .err = err };
        ProtobufCMessage *m;
        int rc = begin(&r, text, len);

        for (int i = 0; rc == 0 && i < 3; i++) /* STREAM-START, DOCUMENT-START, the root */
                rc = next(&r);
        if (rc < 0)
                return rc;
        if (r.event.type != YAML_MAPPING_START_EVENT)
                return fail(&r, fmt("expected an object, got %s", found(&r)), NULL);
        rc = read_message(&r, shape_of(type), &m);
        for (int i = 0; rc == 0 && i < 2; i++) /* DOCUMENT-END, STREAM-END */
                rc = next(&r);
        if (rc < 0)
                return rc;
        if (r.event.type != YAML_STREAM_END_EVENT)
                return fail(&r, "expected one document only", NULL);
        *ret_message = m;
        return 0;
}

/* ---- lines ---- */

struct line_search {
        const char *want;
        size_t best_len; /* of the longest beginning of want that was met */
        unsigned line;
};

static void note_line(struct yaml *r, struct line_search *s)
{
        char path[PATH_TEXT_LEN];
        size_t n = strlen(path_text(r->at, path));
        char after = strncmp(path, s->want, n) == 0 ? s->want[n] : 'x';
        if ((after == '\0' || after == '.' || after == '[' || n == 0) &&
            (n > s->best_len || s->line == 0)) {
                s->best_len = n;
                s->line = (unsigned)r->event.start_mark.line + 1;
        }
}

/* The first event of a value is in hand. */
static int search_value(struct yaml *r, struct line_search *s)
{
        struct path_step step = { .up = r->at };
        char name[PATH_TEXT_LEN];
        bool map = r->event.type == YAML_MAPPING_START_EVENT;
        int rc = 0;

        note_line(r, s);
        if (!map && r->event.type != YAML_SEQUENCE_START_EVENT)
                return 0;
        for (; (rc = next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT &&
               r->event.type != YAML_SEQUENCE_END_EVENT;
             step.index++) {
                if (map) {
                        if (r->event.type != YAML_SCALAR_EVENT)
                                return -1;
                        (void)snprintf(name, sizeof(name), "%s",
                                       (const char *)r->event.data.scalar.value);
                        step.name = name;
                        step.name_len = strlen(name);
                        if ((rc = next(r)) < 0)
                                return rc;
                }
                r->at = &step;
                rc = search_value(r, s);
                r->at = step.up;
                if (rc < 0)
                        return rc;
        }
        return rc;
}

unsigned yaml_line(const char *text, size_t len, const char *path)
{
        struct err ignored = { 0 };
        _cleanup_(yaml_finip) struct yaml r = { .name = "", .err = &ignored };
        struct line_search s = { .want = path };
        int rc = begin(&r, text, len);

        for (int i = 0; rc == 0 && i < 3; i++) /* STREAM-START, DOCUMENT-START, the root */
                rc = next(&r);
        if (rc == 0)
                (void)search_value(&r, &s);
        return s.line;
}
