/* cli/explain.c: berth explain: why a workload is where it is, or why it is nowhere. */
#include "base/clock.h"
#include "cli/facts.h"
#include "cli/kinds.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include <inttypes.h>

struct explain_options {
        struct output_options output;
};

static const struct opt rows[] = { OUTPUT_ROWS(struct explain_options, output) };

static void reasons_table(const struct cli *cli, const Pb__Explanation *e, struct str *out)
{
        static const struct table_column columns[] = { { .title = "NODES", .right = true },
                                                       { .title = "REASON" },
                                                       { .title = "FOR EXAMPLE", .weight = 1 } };
        _cleanup_(table_destroyp) struct table *t = table_create(columns, ARRAY_LEN(columns));
        for (size_t i = 0; i < e->n_reasons; i++) {
                table_addf(t, TINT_NONE, "%d", e->reasons[i]->nodes);
                table_add(t, reason_name(e->reasons[i]->reason), TINT_BAD);
                table_add(t, e->reasons[i]->example, TINT_NONE);
        }
        table_print(t, &(struct table_style){ .term = &cli->out }, out);
}

static void candidates_table(const struct cli *cli, const Pb__Explanation *e, bool wide,
                             struct str *out)
{
        static const struct table_column columns[] = {
                { .title = "NODE", .weight = 9 },          { .title = "FITS" },
                { .title = "UTILISATION", .right = true }, { .title = "REASON" },
                { .title = "DETAIL", .weight = 1 },
        };
        _cleanup_(table_destroyp) struct table *t = table_create(columns, ARRAY_LEN(columns));
        size_t shown = 0;
        for (size_t i = 0; i < e->n_candidates && (wide || shown < 10); i++, shown++) {
                const Pb__Candidate *c = e->candidates[i];
                table_add(t, c->node_id, c->chosen ? TINT_BOLD : TINT_NONE);
                table_add(t,
                          c->chosen     ? "chosen"
                          : c->feasible ? "yes"
                                        : "no",
                          c->feasible || c->chosen ? TINT_GOOD : TINT_BAD);
                if (c->feasible || c->chosen)
                        table_addf(t, TINT_NONE, "%" PRId64 ".%" PRId64 "%%", c->score / 10000,
                                   c->score / 1000 % 10);
                else
                        table_add(t, NULL, TINT_NONE);
                table_add(t, c->reason ? reason_name(c->reason) : NULL, TINT_NONE);
                table_add(t, c->detail, TINT_NONE);
        }
        table_print(t, &(struct table_style){ .term = &cli->out }, out);
        if (shown < e->n_candidates)
                str_addf(out, "... and %zu more; -o wide shows them\n", e->n_candidates - shown);
}

static void print_failure(const Pb__Explanation *e, int64_t now_ms, struct str *out)
{
        const Pb__LastFailure *f = e->last_failure;
        char age[32];
        const char *code = f->signal      ? fmt(", signal %" PRId64, f->signal->value)
                           : f->exit_code ? fmt(", exit code %" PRId64, f->exit_code->value)
                                          : "";
        fact(out, "Last failure",
             fmt("%s%s%s%s%s", str_empty(f->message) ? "failed" : f->message, code,
                 str_empty(f->node_id) ? "" : " on ", str_empty(f->node_id) ? "" : f->node_id,
                 f->failed_at ? fmt(", %s ago", age_words(age, sizeof(age), now_ms, f->failed_at))
                              : ""));
        char tries[32];
        if (e->attempts)
                fact(out, "Failures",
                     tries_words(tries, sizeof(tries), e->attempts, e->max_attempts));
}

static void print(const struct cli *cli, const Pb__Explanation *e, bool wide)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        char age[32];
        int64_t now_ms = clock_wall_ms();

        str_addf(&out, "%s%s%s is %s%s%s", tint_on(&cli->out, TINT_BOLD), e->workload_id,
                 tint_off(&cli->out, TINT_BOLD), tint_on(&cli->out, phase_tint(e->phase)),
                 phase_name(e->phase), tint_off(&cli->out, phase_tint(e->phase)));
        if (!str_empty(e->summary)) {
                str_adds(&out, ": ");
                text_clean(&out, e->summary);
        }
        str_addc(&out, '\n');
        if (e->placement && !str_empty(e->placement->node_id)) {
                const Pb__Placement *p = e->placement;
                if (p->reason == PB__REASON__E__adopted)
                        fact(&out, "Adopted on",
                             fmt("%s %s ago; it ran there already", p->node_id,
                                 age_words(age, sizeof(age), now_ms, p->placed_at)));
                else
                        fact(&out, "Placed on",
                             fmt("%s %s ago, %s at %" PRId64 ".%" PRId64 "%% utilisation",
                                 p->node_id, age_words(age, sizeof(age), now_ms, p->placed_at),
                                 p->candidates ? fmt("chosen from %d node%s", p->candidates,
                                                     p->candidates == 1 ? "" : "s")
                                               : "the best one",
                                 p->score / 10000, p->score / 1000 % 10));
                fact(&out, "Because",
                     p->reason && p->reason != PB__REASON__E__placed &&
                             p->reason != PB__REASON__E__adopted
                         ? reason_name(p->reason)
                         : NULL);
                fact(&out, "Before", p->previous_node);
        }
        if (!str_empty(e->came_from) && e->moved_because)
                fact(&out, "Moved",
                     fmt("away from %s: %s", e->came_from, reason_name(e->moved_because)));
        if (e->last_failure)
                print_failure(e, now_ms, &out);
        if (!str_empty(e->next))
                fact(&out, "Next",
                     e->next_at > now_ms ? fmt("%s (in %s)", e->next,
                                               str_age(age, sizeof(age), e->next_at - now_ms))
                                         : e->next);
        fact(&out, "Nodes", fmt("%d, of which %d could take it", e->nodes, e->feasible));
        if (e->n_reasons) {
                section(&out, cli, "Why not");
                reasons_table(cli, e, &out);
        }
        if (e->nearest_miss && !str_empty(e->nearest_miss->node_id)) {
                str_addc(&out, '\n');
                fact(&out, "Nearest miss",
                     fmt("%s: %s%s%s", e->nearest_miss->node_id,
                         reason_name(e->nearest_miss->reason),
                         str_empty(e->nearest_miss->detail) ? "" : ", ",
                         e->nearest_miss->detail ? e->nearest_miss->detail : ""));
        }
        if (e->n_would_fit_if)
                section(&out, cli, "It would fit if");
        for (size_t i = 0; i < e->n_would_fit_if; i++) {
                str_adds(&out, "  ");
                text_clean(&out, e->would_fit_if[i]);
                str_addc(&out, '\n');
        }
        if (e->n_history)
                section(&out, cli, "What led here");
        for (size_t i = 0; i < e->n_history; i++) {
                str_adds(&out, "  ");
                text_clean(&out, e->history[i]);
                str_addc(&out, '\n');
        }
        if (e->n_candidates) {
                section(&out, cli, "Candidates");
                candidates_table(cli, e, wide, &out);
        }
        cli_out_str(cli, &out);
}

static int explain_run(struct cli *cli, const void *values, const struct args *args,
                       struct err *err)
{
        const struct explain_options *o = values;
        enum output_format format = output_format(&o->output);
        struct text_list names;
        int r = names_of_kind(cli, &cli->arena, "workload", args, &names, err);
        for (size_t i = 0; r == 0 && i < names.n; i++) {
                Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
                Pb__Workload *w = workload_named(cli, &cli->arena, names.at[i], err);
                if (!w)
                        return -(int)err->code;
                ref.id = w->id;
                Pb__Explanation *e = client_call(cli, &cli->arena, "ExplainWorkload", &ref,
                                                 &pb__explanation__descriptor, err);
                if (!e)
                        return -(int)err->code;
                if (i && format != OUTPUT_JSON && format != OUTPUT_NAME)
                        cli_out(cli, "%s\n", format == OUTPUT_YAML ? "---" : "");
                if (format >= OUTPUT_JSON)
                        output_object(cli, format, "workload", w->id, &e->base);
                else
                        print(cli, e, format == OUTPUT_WIDE);
        }
        return r;
}

const struct verb verb_explain = {
        .name = "explain",
        .args = "NAME...",
        .summary = "why a workload is where it is, or nowhere",
        .text = "For each node the reason that speaks against it, the nearest miss and what would "
                "make it fit; for a placed workload the\n"
                "candidates' scores (utilisation when chosen, lower is better). For one that moved "
                "or failed also what led here: the last "
                "failure,\n"
                "how often it was tried and when it is tried again, the node it came from and why.",
        .examples = "  berth explain hello",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct explain_options),
        .run = explain_run,
        .group = VERBS_WORKLOADS,
        .completes = 'w',
};
