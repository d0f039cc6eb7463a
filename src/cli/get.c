/* cli/get.c: berth get nodes|workloads|events: lists, and with --watch what changes in them. */
#include "base/array.h"
#include "base/clock.h"
#include "base/map.h"
#include "cli/events.h"
#include "cli/follow.h"
#include "cli/names.h"
#include "cli/verbs.h"
#include "model/json.h"
#include "model/selector.h"
#include <string.h>

struct get_options {
        struct output_options output;
        const char *selector, *status, *node, *type, *since, *workload;
        int64_t limit;
        bool watch;
};

static const struct get_options defaults = { .limit = 0 };

static const struct opt rows[] = {
        OPT(struct get_options, OPT_TEXT, selector, .letter = 'l', .name = "selector",
            .arg = "SELECTOR", .help = "only with these labels: app=web,tier!=db,canary,!old"),
        OPT(struct get_options, OPT_TEXT, status, .letter = 's', .name = "status", .arg = "STATUS",
            .help = "only in this state: Running, Pending, Ready, ..."),
        OPT(struct get_options, OPT_TEXT, node, .name = "node", .arg = "NAME", .completes = 'n',
            .help = "only on (events: about) this node"),
        OPT(struct get_options, OPT_TEXT, workload, .name = "workload", .arg = "NAME",
            .completes = 'w', .help = "events: only about this workload"),
        OPT(struct get_options, OPT_TEXT, type, .name = "type", .arg = "TYPE,...",
            .help = "events: only these types"),
        OPT(struct get_options, OPT_TEXT, since, .name = "since", .arg = "10m|SEQ",
            .help = "events: of the last ten minutes, or after that number"),
        OPT(struct get_options, OPT_FLAG, watch, .letter = 'w', .name = "watch",
            .help = "go on with what changes; Ctrl-C ends it"),
        OPT(struct get_options, OPT_INT, limit, .name = "limit", .arg = "N",
            .help = "at most this many (all; events: the last 50)"),
        OUTPUT_ROWS(struct get_options, output),
};

struct seen {
        char *id;
        uint64_t version;
};

struct getter {
        struct cli *cli;
        const struct get_options *opt;
        const struct kind *kind;
        struct text_list names;   /* empty: all */
        const char *node;         /* full id */
        struct selector selector; /* for what changes later */
        struct output output;
        struct arena scratch;
        /* what was printed last, so that an event without a visible change prints nothing */
        ARRAY(struct seen) seen;
        struct map by_id;
};

static struct map_key seen_key(const void *ctx, uint32_t index)
{
        const struct getter *g = ctx;
        return (struct map_key){ g->seen.at[index].id, strlen(g->seen.at[index].id) };
}

static uint64_t version_of(const struct kind *kind, const ProtobufCMessage *m)
{
        return kind == &kind_workload ? ((const Pb__Workload *)m)->resource_version
                                      : ((const Pb__Node *)m)->resource_version;
}

/* True if this version was not printed before. */
static bool is_news(struct getter *g, const char *id, uint64_t version)
{
        uint32_t i = map_get(&g->by_id, id, strlen(id));
        if (i == MAP_NONE) {
                i = (uint32_t)g->seen.len;
                *array_push(&g->seen) = (struct seen){ .id = mem_strdup(id) };
                map_put(&g->by_id, i);
        } else if (g->seen.at[i].version == version) {
                return false;
        }
        g->seen.at[i].version = version;
        return true;
}

static int fetch_named(struct getter *g, struct arena *arena, struct listing *ret, struct err *err)
{
        ret->items = arena_new_n(arena, ProtobufCMessage *, g->names.n + 1);
        ret->version = UINT64_MAX;
        for (size_t i = 0; i < g->names.n; i++) {
                ProtobufCMessage *m =
                    g->kind == &kind_workload
                        ? (ProtobufCMessage *)workload_named(g->cli, arena, g->names.at[i], err)
                        : (ProtobufCMessage *)node_named(g->cli, arena, g->names.at[i], err);
                if (!m)
                        return -(int)err->code;
                char buf[WORDS_LEN];
                /* from here on by its full id */
                g->names.at[i] = arena_strdup(&g->cli->arena, g->kind->id(m, buf));
                ret->items[ret->n++] = m;
                if (version_of(g->kind, m) < ret->version)
                        ret->version = version_of(g->kind, m);
        }
        return 0;
}

static int fetch(struct getter *g, struct arena *arena, struct listing *ret, struct err *err)
{
        if (g->names.n)
                return fetch_named(g, arena, ret, err);
        if (g->kind == &kind_node) {
                Pb__ListNodesRequest q = PB__LIST_NODES_REQUEST__INIT;
                q.selector = (char *)(g->opt->selector ? g->opt->selector : "");
                q.status = (char *)(g->opt->status ? g->opt->status : "");
                return list_nodes_all(g->cli, arena, &q, g->opt->limit, ret, err);
        }
        Pb__ListWorkloadsRequest q = PB__LIST_WORKLOADS_REQUEST__INIT;
        q.selector = (char *)(g->opt->selector ? g->opt->selector : "");
        q.status = (char *)(g->opt->status ? g->opt->status : "");
        q.node = (char *)(g->node ? g->node : "");
        return list_workloads_all(g->cli, arena, &q, g->opt->limit, ret, err);
}

/* ---- --watch ---- */

static bool is_wanted(const struct getter *g, const char *id, const ProtobufCMessage *m)
{
        bool named = g->names.n == 0;
        for (size_t i = 0; i < g->names.n; i++)
                named |= str_eq(g->names.at[i], id);
        if (!named || !m)
                return named;
        if (g->kind == &kind_node) {
                const Pb__Node *n = (const Pb__Node *)m;
                return selector_match(&g->selector, n->labels, n->n_labels) &&
                       (!g->opt->status ||
                        str_case_eq(g->opt->status, json_enum_name(&pb__node_status__e__descriptor,
                                                                   (int)n->status)));
        }
        const Pb__Workload *w = (const Pb__Workload *)m;
        return selector_match(&g->selector, w->labels, w->n_labels) &&
               (!g->node || str_eq(g->node, w->assigned_node)) &&
               (!g->opt->status ||
                (w->status && str_case_eq(g->opt->status, phase_name(w->status->phase))));
}

static int on_event(void *ctx, const ProtobufCMessage *message, struct err *err)
{
        struct getter *g = ctx;
        const Pb__Event *e = (const Pb__Event *)message;
        bool workloads = g->kind == &kind_workload;
        const char *id = workloads ? e->workload_id : e->node_id;
        if (str_empty(id))
                return 0;
        if (!workloads && !str_empty(e->workload_id) &&
            e->type != PB__EVENT_TYPE__E__WorkloadScheduled &&
            e->type != PB__EVENT_TYPE__E__UnitRemoved)
                return 0; /* a unit's life changes nothing that the node's row shows */
        if (!is_wanted(g, id, NULL))
                return 0;
        arena_reset(&g->scratch);
        struct err own = { 0 };
        ProtobufCMessage *m =
            workloads ? (ProtobufCMessage *)workload_by_id(g->cli, &g->scratch, id, &own)
                      : (ProtobufCMessage *)node_by_id(g->cli, &g->scratch, id, &own);
        Pb__Workload gone = PB__WORKLOAD__INIT;
        Pb__Node gone_node = PB__NODE__INIT;
        if (!m && own.code != ERR_NOT_FOUND) {
                *err = own;
                return -(int)own.code;
        }
        if (!m) {
                gone.id = gone_node.id = (char *)id;
                gone.desired_state = PB__DESIRED_STATE__E__Deleted;
                bool was_shown = map_get(&g->by_id, id, strlen(id)) != MAP_NONE;
                if (was_shown && is_news(g, id, 0))
                        output_item(&g->output, workloads ? &gone.base : &gone_node.base,
                                    clock_wall_ms());
                return 0;
        }
        bool was_shown = map_get(&g->by_id, id, strlen(id)) != MAP_NONE;
        uint64_t version = version_of(g->kind, m);
        if ((is_wanted(g, id, m) || was_shown) &&
            is_news(g, id, workloads ? version : version ^ e->seq))
                output_item(&g->output, m, clock_wall_ms());
        return 0;
}

static int watch(struct getter *g, const struct listing *list, struct err *err)
{
        Pb__ListEventsRequest q = PB__LIST_EVENTS_REQUEST__INIT;
        char buf[WORDS_LEN];
        g->output.stream = true;
        output_list(&g->output, list->items, list->n, clock_wall_ms());
        for (size_t i = 0; i < list->n; i++)
                (void)is_news(g, g->kind->id(list->items[i], buf),
                              version_of(g->kind, list->items[i]));
        q.since = list->version == UINT64_MAX ? 0 : list->version;
        return follow_events(g->cli, &q, on_event, g, err);
}

/* ---- the verb ---- */

static int get_objects(struct getter *g, struct err *err)
{
        struct arena arena = ARENA_INIT;
        struct listing list = { 0 };
        const struct get_options *o = g->opt;
        int r = fetch(g, &arena, &list, err);
        if (r == 0 && o->watch)
                r = watch(g, &list, err);
        else if (r == 0 && g->names.n == 1 &&
                 (g->output.format == OUTPUT_JSON || g->output.format == OUTPUT_YAML))
                output_object(g->cli, g->output.format, g->kind->name, g->names.at[0],
                              list.items[0]);
        else if (r == 0 && list.n == 0 && g->output.format <= OUTPUT_WIDE)
                cli_say(g->cli, "no %ss%s\n", g->kind->name,
                        o->selector || o->status || o->node ? " like that" : "");
        else if (r == 0)
                output_list(&g->output, list.items, list.n, clock_wall_ms());
        if (r == 0 && list.more && !o->watch)
                cli_say(g->cli, "there are more: --limit %lld cut the list\n", (long long)o->limit);
        arena_fini(&arena);
        return r;
}

static int get_events(struct cli *cli, const struct get_options *o, const struct text_list *names,
                      struct err *err)
{
        struct events_options e = { .output = o->output,
                                    .since = o->since,
                                    .type = o->type,
                                    .workload = o->workload,
                                    .node = o->node,
                                    .limit = o->limit ? o->limit : 50,
                                    .follow = o->watch };
        if (o->selector || o->status)
                return usage_error(cli, err, "events have no labels and no status");
        if (names->n > 1)
                return usage_error(cli, err, "one workload at a time");
        if (names->n)
                e.workload = names->at[0];
        return events_print(cli, &e, err);
}

static int get_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct get_options *o = values;
        struct getter g = { .cli = cli, .opt = o };
        const char *kind = args->n ? kind_of(args->at[0]) : NULL;
        int r;

        if (args->n == 0)
                return usage_error(cli, err, "get what: workloads, nodes or events?");
        if (kind) {
                g.names = (struct text_list){ .at = args->at + 1, .n = args->n - 1 };
        } else if ((r = names_with_kind(cli, &cli->arena, NULL, args, &kind, &g.names, err)) < 0) {
                return r; /* workload/hello */
        }
        if (!kind) {
                static const char *const kinds[] = { "workloads", "nodes", "events", NULL };
                const char *near = str_suggest(args->at[0], kinds);
                return err_set(err, ERR_INVALID, .msg = fmt("there is no kind '%s'", args->at[0]),
                               .detail = "kinds are workloads, nodes and events",
                               .hint = near ? fmt("did you mean berth get %s?", near)
                                            : fmt("berth get workload %s", args->at[0]));
        }
        if (str_eq(kind, "event"))
                return get_events(cli, o, &g.names, err);
        if (o->type || o->since || o->workload)
                return usage_error(cli, err, "--type, --since and --workload are for events");
        g.kind = str_eq(kind, "node") ? &kind_node : &kind_workload;
        if (g.kind == &kind_node && o->node)
                return usage_error(
                    cli, err, "--node is for workloads and events; nodes are named as arguments");
        if (o->node) {
                Pb__Node *n = node_named(cli, &cli->arena, o->node, err);
                if (!n)
                        return -(int)err->code;
                g.node = n->id;
        }
        if ((r = selector_parse(&cli->arena, o->selector, &g.selector, err)) < 0)
                return r;
        output_init(&g.output, cli, g.kind, &o->output);
        map_init(&g.by_id, seen_key, &g);
        r = get_objects(&g, err);
        for (size_t i = 0; i < g.seen.len; i++)
                mem_free(g.seen.at[i].id);
        array_fini(&g.seen);
        map_fini(&g.by_id);
        arena_fini(&g.scratch);
        output_fini(&g.output);
        return r;
}

const struct verb verb_get = {
        .name = "get",
        .args = "workloads|nodes|events [NAME...]",
        .summary = "list workloads, nodes or events",
        .text = "Short names: wl, w; no; ev. With --watch rows are printed again when they change.",
        .examples = "  berth get workloads\n"
                    "  berth get workloads -l app=web --status Running -o wide\n"
                    "  berth get nodes -o json\n"
                    "  berth get workload hello -o yaml\n"
                    "  berth get workloads --watch",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct get_options),
        .run = get_run,
        .group = VERBS_WORKLOADS,
        .completes = 'r',
};
