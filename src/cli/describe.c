/* cli/describe.c: berth describe: everything about one workload or node, for people. */
#include "base/clock.h"
#include "cli/events.h"
#include "cli/facts.h"
#include "cli/kinds.h"
#include "cli/names.h"
#include "cli/verbs.h"
#include "model/json.h"
#include "model/pb.h"
#include <inttypes.h>
#include <stdio.h>

struct describe_options {
        struct output_options output;
        int64_t events;
};

static const struct describe_options defaults = { .events = 10 };

static const struct opt rows[] = {
        OPT(struct describe_options, OPT_INT, events, .name = "events", .arg = "N", .max = 1000,
            .help = "how many of the last events to show (10)"),
        OUTPUT_ROWS(struct describe_options, output),
};

static const char *when(int64_t at_ms)
{
        char time[TIME_TEXT_LEN], age[32];
        int64_t now = clock_wall_ms();
        if (at_ms > now)
                return fmt("%s (in %s)", time_format(time, at_ms),
                           str_age(age, sizeof(age), at_ms - now));
        return at_ms > 0 ? fmt("%s (%s ago)", time_format(time, at_ms),
                               age_words(age, sizeof(age), now, at_ms))
                         : "";
}

static void map_fact(struct str *out, const char *name, const void *entries, size_t n)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        map_words(&text, entries, n);
        fact(out, name, str_c(&text));
}

static void workload_status(struct str *out, const struct cli *cli, const Pb__Workload *w)
{
        const Pb__WorkloadStatus *s = w->status;
        char info[WORDS_LEN];
        if (!s)
                return;
        enum tint tint = phase_tint(s->phase);
        str_addf(out, "%-*s%s%s%s\n", FACT_WIDTH, "Status:", tint_on(&cli->out, tint),
                 phase_name(s->phase), tint_off(&cli->out, tint));
        fact(out, "Info", workload_info(w, clock_wall_ms(), info));
        fact(out, "Actual", json_enum_name(&pb__actual_state__e__descriptor, (int)s->actual_state));
        fact(out, "Desired",
             json_enum_name(&pb__desired_state__e__descriptor, (int)w->desired_state));
        fact(out, "Health", s->health);
        fact(out, "Progress", s->progress);
        fact(out, "Node", w->assigned_node);
        fact(out, "Started", when(s->started_at));
        fact(out, "Finished", when(s->finished_at));
        if (s->exit_code)
                fact(out, "Exit code", fmt("%" PRId64, s->exit_code->value));
        if (s->signal)
                fact(out, "Signal", fmt("%" PRId64, s->signal->value));
        fact(out, "Restarts", s->restarts ? fmt("%d", s->restarts) : "");
        fact(out, "Reason", s->reason ? reason_name(s->reason) : "");
        fact(out, "Failure", s->failure_reason);
}

static void workload_spec(struct str *out, const Pb__Workload *w)
{
        _cleanup_(str_finip) struct str command = STR_INIT;
        char cpu[32], memory[32];
        fact(out, "Type", json_enum_name(&pb__workload_type__e__descriptor, (int)w->type));
        fact(out, "Tenant", w->tenant);
        fact(out, "Exclusive",
             w->exclusive == PB__EXCLUSIVE__E__movable
                 ? "at most one copy; moves when its agent's lease has run out"
             : w->exclusive == PB__EXCLUSIVE__E__pinned ? "at most one copy; pinned to its node"
                                                        : "");
        fact(out, "Priority", w->priority ? fmt("%d", w->priority) : "");
        fact(out, "Revision", w->revision_id);
        if (w->spec) {
                command_words(&command, w->spec->command, w->spec->n_command);
                fact(out, "Image", w->spec->image);
                fact(out, "Command", str_c(&command));
                fact(out, "Directory", w->spec->workdir);
                fact(out, "User", w->spec->user);
                for (size_t i = 0; i < w->spec->n_env; i++)
                        fact(out, i ? "" : "Environment",
                             fmt("%s=%s", w->spec->env[i]->key, w->spec->env[i]->value));
        }
        if (w->resources)
                fact(out, "Asks for",
                     fmt("%s cpu, %s memory, %" PRId64 "Gi disk",
                         cores_words(cpu, sizeof(cpu), w->resources->cpu),
                         mib_words(memory, sizeof(memory), w->resources->memory_mb),
                         w->resources->disk_gb));
        fact(out, "Restart", json_enum_name(&pb__restart__e__descriptor, (int)w->restart));
        if (w->retry) {
                char tries[32];
                bool no_end = w->retry->max_attempts == 0 || w->retry->max_attempts == INT32_MAX;
                tries_words(tries, sizeof(tries), w->retry->attempts, w->retry->max_attempts);
                fact(out, "Retries", fmt("%s%s", tries, no_end ? ", without end" : ""));
        }
        if (w->ttl_seconds)
                fact(out, "Kept for", fmt("%d s after it has finished", w->ttl_seconds));
        fact(out, "Stop grace", w->stop_grace_seconds ? fmt("%d s", w->stop_grace_seconds) : "");
        map_fact(out, "Node labels", w->node_selector, w->n_node_selector);
        map_fact(out, "Labels", w->labels, w->n_labels);
}

static void describe_workload(struct str *out, const struct cli *cli, const Pb__Workload *w)
{
        fact(out, "Workload", w->id);
        workload_status(out, cli, w);
        section(out, cli, "Definition");
        workload_spec(out, w);
        if (w->placement && !str_empty(w->placement->node_id)) {
                const Pb__Placement *p = w->placement;
                section(out, cli, "Placement");
                fact(out, "Node", p->node_id);
                fact(out, "Since", when(p->placed_at));
                if (p->reason == PB__REASON__E__adopted)
                        fact(out, "Chosen from", "none: it ran there already, and was adopted");
                else
                        fact(out, "Chosen from",
                             fmt("%s at %" PRId64 ".%" PRId64 "%% utilisation",
                                 p->candidates ? fmt("%d node%s", p->candidates,
                                                     p->candidates == 1 ? "" : "s")
                                               : "all that could take it",
                                 p->score / 10000, p->score / 1000 % 10));
                fact(out, "Before", p->previous_node);
        }
        section(out, cli, "Record");
        if (w->metadata) {
                fact(out, "Created", when(w->metadata->created_at));
                fact(out, "Changed", when(w->metadata->updated_at));
                if (!str_empty(w->metadata->last_action))
                        fact(out, "Last action",
                             fmt("%s, %s", w->metadata->last_action,
                                 when(w->metadata->last_action_at)));
                fact(out, "Last error", w->metadata->last_error);
        }
        fact(out, "Version", fmt("%" PRIu64, w->resource_version));
        if (w->token && w->token->seq)
                fact(out, "Token", fmt("%" PRIu64 ".%" PRIu64, w->token->epoch, w->token->seq));
}

static void describe_drain(struct str *out, const struct cli *cli, const Pb__Drain *d)
{
        section(out, cli, "Drain");
        fact(out, "Started", when(d->started_at));
        if (d->deadline_at)
                fact(out, "Deadline", when(d->deadline_at));
        if (d->finished_at)
                fact(out, "Finished", when(d->finished_at));
        fact(out, "Progress", fmt("%d of %d moved, %d left", d->moved, d->units_at_start, d->left));
        for (size_t i = 0; i < d->n_blockers; i++)
                fact(out, i ? "" : "Cannot move",
                     fmt("%s: %s", d->blockers[i]->workload_id,
                         str_empty(d->blockers[i]->detail) ? reason_name(d->blockers[i]->reason)
                                                           : d->blockers[i]->detail));
}

static void describe_node(struct str *out, const struct cli *cli, const Pb__Node *n)
{
        _cleanup_(str_finip) struct str types = STR_INIT;
        enum tint tint = node_tint(n->status);
        fact(out, "Node", n->id);
        str_addf(out, "%-*s%s%s%s\n", FACT_WIDTH, "Status:", tint_on(&cli->out, tint),
                 node_status_name(n), tint_off(&cli->out, tint));
        fact(out, "Reason", n->status_reason);
        fact(out, "Since", when(n->status_updated_at));
        fact(out, "Set by", n->status_updated_by);
        if (n->expelled_at)
                fact(out, "Expelled", when(n->expelled_at));
        fact(out, "Wish", json_enum_name(&pb__node_wish__e__descriptor, (int)n->wish));
        for (size_t i = 0; i < n->n_taints; i++)
                fact(out, i ? "" : "Taints",
                     fmt("%s%s%s:%s", n->taints[i]->key, str_empty(n->taints[i]->value) ? "" : "=",
                         n->taints[i]->value,
                         json_enum_name(&pb__taint_effect__e__descriptor,
                                        (int)n->taints[i]->effect)));
        fact(out, "Heartbeat", when(n->last_heartbeat));
        fact(out, "Connected", n->connected ? "yes" : "no");
        if (n->reports_held_at)
                fact(out, "Taken late",
                     fmt("%s: it says something else all the time", when(n->reports_held_at)));
        if (n->twin_refused_at)
                fact(out, "Turned away",
                     fmt("%s: another agent with this node id", when(n->twin_refused_at)));
        fact(out, "Registered", when(n->registered_at));
        fact(out, "Agent", n->agent_version);
        fact(out, "Endpoint", n->agent_endpoint);
        fact(out, "Address", n->ip);
        for (size_t i = 0; i < n->n_supported_workload_types; i++) {
                const char *name = json_enum_name(&pb__workload_type__e__descriptor,
                                                  (int)n->supported_workload_types[i]);
                str_addf(&types, "%s%s", i ? ", " : "", name ? name : "?");
        }
        fact(out, "Types", str_c(&types));
        for (size_t i = 0; i < n->n_unsupported; i++)
                fact(out, "Does not run",
                     json_enum_name(&pb__workload_type__e__descriptor, (int)n->unsupported[i]));
        map_fact(out, "Labels", n->labels, n->n_labels);
        map_fact(out, "By operator", n->operator_labels, n->n_operator_labels);
        if (n->capacity)
                fact(out, "At most",
                     fmt("%g cores, %lld MiB memory, %lld GiB disk (0: no bound)",
                         (double)n->capacity->cpu / 1000, (long long)n->capacity->memory_mb,
                         (long long)n->capacity->disk_gb));
        fact(out, "Units", fmt("%d", n->units));
        if (n->tombstones)
                fact(out, "Old copies", fmt("%d to be removed", n->tombstones));
        for (size_t i = 0; i < n->n_strangers; i++)
                fact(out, i ? "" : "Unknown", n->strangers[i]);
        if (n->n_strangers)
                fact(out, "", fmt("berth adopt %s takes them over", n->id));
        fact(out, "Adopted from", n->adopted_from);
        if (n->adopt_until)
                fact(
                    out, "Taken over",
                    fmt("with all that it runs, when its agent comes by %s", when(n->adopt_until)));
        if (n->drain)
                describe_drain(out, cli, n->drain);
        if (!n->resources)
                return;
        section(out, cli, "Resources");
        static const struct table_column columns[] = { { .title = "" },
                                                       { .title = "TOTAL", .right = true },
                                                       { .title = "RESERVED", .right = true },
                                                       { .title = "FREE", .right = true },
                                                       { .title = "USED NOW", .right = true } };
        _cleanup_(table_destroyp) struct table *t = table_create(columns, ARRAY_LEN(columns));
        const Pb__NodeResources *r = n->resources;
        const struct {
                const char *name;
                int64_t total, reserved, used;
                char unit;
        } lines[] = { { "cpu", r->cpu_total, r->cpu_allocated, r->cpu_used, 'c' },
                      { "memory", r->memory_total, r->memory_allocated, r->memory_used, 'm' },
                      { "disk", r->disk_total, r->disk_allocated, r->disk_used, 'd' } };
        /* a server from before does not say */
        bool used_known = r->used_known || r->cpu_used || r->memory_used || r->disk_used;
        for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
                int64_t figures[] = { lines[i].total, lines[i].reserved,
                                      lines[i].total - lines[i].reserved, lines[i].used };
                table_add(t, lines[i].name, TINT_NONE);
                for (size_t k = 0; k < ARRAY_LEN(figures); k++) {
                        char buf[32];
                        if (k == 3 && !used_known) {
                                table_add(t, "-", TINT_NONE);
                                continue;
                        }
                        table_add(
                            t,
                            lines[i].unit == 'c'
                                ? cores_words(buf, sizeof(buf), figures[k])
                                : mib_words(buf, sizeof(buf),
                                            lines[i].unit == 'd' ? figures[k] * 1024 : figures[k]),
                            TINT_NONE);
                }
        }
        table_print(t, &(struct table_style){ .term = &cli->out }, out);
}

static int last_events(struct cli *cli, bool node, const char *id, int64_t limit, struct err *err)
{
        Pb__ListEventsRequest q = PB__LIST_EVENTS_REQUEST__INIT;
        struct listing list = { 0 };
        struct output output;
        if (limit == 0)
                return 0;
        /* its own history; a server of before knows the node only, and tells of its units as
         * well */
        if (node) {
                q.node = (char *)id;
                q.subject = arena_printf(&cli->arena, "node/%s", id);
        } else
                q.workload = (char *)id;
        int r = list_events(cli, &cli->arena, &q, limit, &list, err);
        if (r < 0)
                return r;
        _cleanup_(str_finip) struct str title = STR_INIT;
        section(&title, cli, "Last events");
        if (list.n == 0)
                str_adds(&title, "none\n");
        cli_out_str(cli, &title);
        output_init(&output, cli, &kind_event, &(struct output_options){ 0 });
        if (list.n)
                output_list(&output, list.items, list.n, clock_wall_ms());
        output_fini(&output);
        return 0;
}

static int describe_one(struct cli *cli, const struct describe_options *o, bool node,
                        const char *name, struct err *err)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        enum output_format format = output_format(&o->output);
        Pb__Workload *w = node ? NULL : workload_named(cli, &cli->arena, name, err);
        Pb__Node *n = node ? node_named(cli, &cli->arena, name, err) : NULL;
        if (!w && !n)
                return -(int)err->code;
        const char *id = w ? w->id : n->id;
        if (format >= OUTPUT_JSON) {
                output_object(cli, format, node ? "node" : "workload", id, w ? &w->base : &n->base);
                return 0;
        }
        if (w)
                describe_workload(&out, cli, w);
        else
                describe_node(&out, cli, n);
        cli_out_str(cli, &out);
        return last_events(cli, node, id, o->events, err);
}

static int describe_run(struct cli *cli, const void *values, const struct args *args,
                        struct err *err)
{
        const char *kind = NULL;
        struct text_list names;
        int r = names_with_kind(cli, &cli->arena, "workload", args, &kind, &names, err);
        if (r == 0 && names.n == 0)
                return usage_error(cli, err, "describe what?");
        if (r == 0 && str_eq(kind, "event"))
                return usage_error(cli, err, "events are shown by berth events -o yaml");
        for (size_t i = 0; r == 0 && i < names.n; i++) {
                if (i)
                        cli_out(cli, "\n");
                r = describe_one(cli, values, str_eq(kind, "node"), names.at[i], err);
        }
        return r;
}

const struct verb verb_describe = {
        .name = "describe",
        .args = "[workload|node] NAME...",
        .summary = "everything about a workload or a node",
        .examples = "  berth describe hello\n"
                    "  berth describe node node-1",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct describe_options),
        .run = describe_run,
        .group = VERBS_WORKLOADS,
        .completes = 'r',
};
