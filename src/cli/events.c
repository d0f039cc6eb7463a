/* cli/events.c: berth events: what happened, in order; --follow goes on with what happens. */
#include "cli/events.h"
#include "base/clock.h"
#include "cli/follow.h"
#include "cli/names.h"
#include "cli/verbs.h"
#include "model/json.h"
#include <string.h>

static const struct events_options defaults = { .limit = 50 };

static const struct opt rows[] = {
        OPT(struct events_options, OPT_FLAG, follow, .letter = 'f', .name = "follow",
            .help = "go on with what happens; Ctrl-C ends it"),
        OPT(struct events_options, OPT_TEXT, since, .name = "since", .arg = "10m|SEQ",
            .help = "events of the last ten minutes, or after that number"),
        OPT(struct events_options, OPT_TEXT, type, .letter = 't', .name = "type", .arg = "TYPE,...",
            .help = "only these types, e.g. NodeLost,Rescheduled"),
        OPT(struct events_options, OPT_TEXT, workload, .name = "workload", .arg = "NAME",
            .completes = 'w', .help = "only about this workload"),
        OPT(struct events_options, OPT_TEXT, node, .name = "node", .arg = "NAME", .completes = 'n',
            .help = "only about this node"),
        OPT(struct events_options, OPT_TEXT, rule, .name = "rule", .arg = "NAME",
            .help = "only alerts and webhooks of this automation rule"),
        OPT(struct events_options, OPT_INT, limit, .letter = 'n', .name = "limit", .arg = "N",
            .help = "at most this many (50; 0: all)"),
        OUTPUT_ROWS(struct events_options, output),
};

static int on_event(void *ctx, const ProtobufCMessage *m, struct err *err _unused_)
{
        output_item(ctx, m, clock_wall_ms());
        return 0;
}

/* Names of types in any case; a wrong one gets a suggestion rather than an empty list. */
static int check_types(struct cli *cli, const char *text, const char **ret_types, struct err *err)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        const ProtobufCEnumDescriptor *d = &pb__event_type__e__descriptor;
        for (const char *p = text; *p;) {
                size_t len = strcspn(p, ",");
                const char *name = arena_strndup(&cli->arena, p, len);
                int value = 0;
                if (len && json_enum_value(d, name, true, &value) < 0) {
                        const char *near = json_enum_suggest(d, name);
                        return err_set(err, ERR_INVALID,
                                       .msg = fmt("there are no events of type '%s'", name),
                                       .detail = json_enum_list(d),
                                       .hint = near ? fmt("did you mean %s?", near) : NULL);
                }
                if (len)
                        str_addf(&out, "%s%s", out.len ? "," : "", json_enum_name(d, value));
                p += len + (p[len] == ',');
        }
        *ret_types = arena_strdup(&cli->arena, str_c(&out));
        return 0;
}

/* A name that no longer exists may still have events: only a unique beginning of a living one is
 * completed. */
static const char *full_name(struct cli *cli, const char *kind, const char *word)
{
        struct err ignored = { 0 };
        if (str_eq(kind, "node")) {
                Pb__Node *n = node_named(cli, &cli->arena, word, &ignored);
                return n ? n->id : word;
        }
        Pb__Workload *w = workload_named(cli, &cli->arena, word, &ignored);
        return w ? w->id : word;
}

int events_print(struct cli *cli, const struct events_options *o, struct err *err)
{
        Pb__ListEventsRequest q = PB__LIST_EVENTS_REQUEST__INIT;
        struct arena arena = ARENA_INIT;
        struct listing list = { 0 };
        struct output output;
        int r = 0;

        if (o->type && (r = check_types(cli, o->type, (const char **)&q.type, err)) < 0)
                return r;
        if (o->since && (r = events_since(cli, o->since, &q.since, err)) < 0)
                return r;
        if (o->workload)
                q.workload = (char *)full_name(cli, "workload", o->workload);
        if (o->node)
                q.node = (char *)full_name(cli, "node", o->node);
        if (o->rule)
                q.rule = (char *)o->rule;
        output_init(&output, cli, &kind_event, &o->output);
        bool since_start = o->since && q.since == 0; /* all there is, from the oldest on */
        r = list_events(cli, &arena, &q, o->since && (o->follow || since_start) ? 0 : o->limit,
                        &list, err);
        output.stream = o->follow;
        if (r == 0 && list.n == 0 && !o->follow && output.format <= OUTPUT_WIDE)
                cli_say(cli, "no events\n");
        else if (r == 0)
                output_list(&output, list.items, list.n, clock_wall_ms());
        arena_fini(&arena);
        if (r == 0 && o->follow) {
                q.since = list.version;
                q.before = 0;
                q.newest_first = false;
                q.limit = 0;
                r = follow_events(cli, &q, on_event, &output, err);
        }
        output_fini(&output);
        return r;
}

static int events_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        if (args->n)
                return usage_error(cli, err, "unexpected argument '%s'", args->at[0]);
        return events_print(cli, values, err);
}

const struct verb verb_events = {
        .name = "events",
        .summary = "what happened, and with --follow what happens",
        .examples = "  berth events --follow\n"
                    "  berth events --since 10m --type NodeLost,Rescheduled\n"
                    "  berth events --workload hello -o json",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct events_options),
        .run = events_run,
        .group = VERBS_CLUSTER,
};
