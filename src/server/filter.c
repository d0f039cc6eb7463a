/* server/filter.c: see filter.h. */
#include "server/filter.h"

#include "base/str.h"
#include "model/json.h"
#include <stdio.h>
#include <string.h>

static bool same(const char *want, const char *text, size_t len)
{
        return !want || (strlen(want) == len && memcmp(want, text ? text : "", len) == 0);
}

bool event_matches(const struct event_filter *f, const struct event_peek *p)
{
        if (f->by_type &&
            (p->type >= EVENT_TYPES_MAX || !(f->types[p->type / 64] >> (p->type % 64) & 1)))
                return false;
        return same(f->workload, p->workload, p->workload_len) &&
               same(f->node, p->node, p->node_len) && same(f->rule, p->rule, p->rule_len) &&
               !(f->own_node && p->workload_len);
}

void event_filter_add_type(struct event_filter *f, Pb__EventType__E type)
{
        f->types[(unsigned)type / 64] |= UINT64_C(1) << ((unsigned)type % 64);
        f->by_type = true;
}

static const char *copy_text(const char *text, struct arena *arena)
{
        return text ? arena_strdup(arena, text) : NULL;
}

struct event_filter event_filter_copy(const struct event_filter *f, struct arena *arena)
{
        struct event_filter copy = *f;
        copy.workload = copy_text(f->workload, arena);
        copy.node = copy_text(f->node, arena);
        copy.rule = copy_text(f->rule, arena);
        return copy;
}

static int bad_type(const char *name, struct err *err)
{
        const char *near = json_enum_suggest(&pb__event_type__e__descriptor, name);
        return err_set(err, ERR_INVALID, .msg = "there is no such event type",
                       .detail = fmt("\"%.64s\"", name), .path = "type",
                       .hint = near ? fmt("did you mean %s?", near)
                                    : "GET /openapi.json lists them (schema Event, field type)");
}

static int parse_types(const char *text, struct event_filter *f, struct err *err)
{
        char name[64];
        for (const char *p = text; *p;) {
                size_t n = strcspn(p, ",");
                snprintf(name, sizeof(name), "%.*s", (int)(n < sizeof(name) ? n : sizeof(name) - 1),
                         p);
                int value = 0;
                if (n > 0) {
                        if (n >= sizeof(name) ||
                            json_enum_value(&pb__event_type__e__descriptor, name, true, &value) <
                                0 ||
                            value < 0 || value >= EVENT_TYPES_MAX)
                                return bad_type(name, err);
                        event_filter_add_type(f, (Pb__EventType__E)value);
                }
                p += n;
                p += *p == ',';
        }
        return 0;
}

int event_filter_parse(const Pb__ListEventsRequest *req, struct arena *arena,
                       struct event_filter *ret, struct err *err)
{
        struct event_filter f = { 0 };
        if (!str_empty(req->type)) {
                int r = parse_types(req->type, &f, err);
                if (r < 0)
                        return r;
        }
        f.workload = str_empty(req->workload) ? NULL : req->workload;
        f.node = str_empty(req->node) ? NULL : req->node;
        f.rule = str_empty(req->rule) ? NULL : req->rule;
        if (!str_empty(req->subject)) {
                const char *id = strchr(req->subject, '/');
                f.own_node = str_starts(req->subject, "node/");
                if (!id || !id[1] || (!f.own_node && !str_starts(req->subject, "workload/")))
                        return err_set(err, ERR_INVALID,
                                       .msg = "there are no events of such a subject",
                                       .detail = fmt("\"%.64s\"", req->subject), .path = "subject",
                                       .hint = "workload/NAME or node/NAME");
                *(f.own_node ? &f.node : &f.workload) = id + 1;
        }
        *ret = event_filter_copy(&f, arena);
        return 0;
}
