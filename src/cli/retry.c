/* cli/retry.c: berth retry: do not wait for the back-off, and forget earlier failures. */
#include "cli/kinds.h"
#include "cli/names.h"
#include "cli/verbs.h"
#include "cli/wait.h"

struct retry_options {
        struct wait_options wait;
};

static const struct opt rows[] = { WAIT_ROWS(struct retry_options, wait) };

static int retry_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct retry_options *o = values;
        struct text_list names;
        int r = names_of_kind(cli, &cli->arena, "workload", args, &names, err);
        for (size_t i = 0; r == 0 && i < names.n; i++) {
                Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
                struct wait_goal goal;
                Pb__Workload *w = workload_named(cli, &cli->arena, names.at[i], err);
                if (!w)
                        return -(int)err->code;
                ref.id = w->id;
                Pb__Phase__E was = w->status ? w->status->phase : PB__PHASE__E__unset;
                bool waits = was == PB__PHASE__E__RetryPending || was == PB__PHASE__E__Failed ||
                             was == PB__PHASE__E__Completed;
                w = client_call(cli, &cli->arena, "RetryWorkload", &ref, &pb__workload__descriptor,
                                err);
                if (!w)
                        return -(int)err->code;
                if (waits)
                        cli_out(cli, "workload/%s is tried again\n", w->id);
                else
                        cli_out(cli, "workload/%s is %s: there is nothing to try again\n", w->id,
                                phase_name(was));
                r = wait_goal_parse(o->wait.state, wait_goal_started(w), &goal, err);
                if (r == 0 && o->wait.state)
                        r = wait_for(cli, (const char *const[]){ w->id }, 1, &goal,
                                     o->wait.timeout_ms, err);
        }
        return r;
}

const struct verb verb_retry = {
        .name = "retry",
        .args = "NAME...",
        .summary = "try failed or waiting workloads again, now",
        .examples = "  berth retry hello --wait",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct retry_options),
        .run = retry_run,
        .group = VERBS_WORKLOADS,
        .completes = 'w',
};
