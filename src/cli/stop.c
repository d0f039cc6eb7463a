/* cli/stop.c: berth stop, berth start: the wish that a workload runs, or does not. */
#include "cli/names.h"
#include "cli/verbs.h"
#include "cli/wait.h"

struct stop_options {
        struct wait_options wait;
};

static const struct opt rows[] = { WAIT_ROWS(struct stop_options, wait) };

static int set_desired(struct cli *cli, const struct stop_options *o, const struct args *args,
                       Pb__DesiredState__E state, const char *done, struct err *err)
{
        struct text_list names;
        struct wait_goal goal = { 0 };
        int r = names_of_kind(cli, &cli->arena, "workload", args, &names, err);
        const char **ids = arena_new_n(&cli->arena, const char *, args->n + 1);
        for (size_t i = 0; r == 0 && i < names.n; i++) {
                Pb__SetDesiredRequest q = PB__SET_DESIRED_REQUEST__INIT;
                Pb__Workload *w = workload_named(cli, &cli->arena, names.at[i], err);
                if (!w)
                        return -(int)err->code;
                q.id = w->id;
                q.desired_state = state;
                bool already = w->desired_state == state;
                w = client_call(cli, &cli->arena, "SetDesired", &q, &pb__workload__descriptor, err);
                if (!w)
                        return -(int)err->code;
                cli_out(cli, "workload/%s %s%s\n", w->id, already ? "is already " : "", done);
                ids[i] = w->id;
                if (i == 0)
                        r = wait_goal_parse(
                            o->wait.state,
                            state == PB__DESIRED_STATE__E__Stopped
                                ? (struct wait_goal){ .phase = PB__PHASE__E__Stopped }
                                : wait_goal_started(w),
                            &goal, err);
        }
        return r == 0 && o->wait.state ? wait_for(cli, ids, names.n, &goal, o->wait.timeout_ms, err)
                                       : r;
}

static int stop_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        return set_desired(cli, values, args, PB__DESIRED_STATE__E__Stopped, "stopped", err);
}

static int start_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        return set_desired(cli, values, args, PB__DESIRED_STATE__E__Running, "started", err);
}

const struct verb verb_stop = {
        .name = "stop",
        .args = "NAME...",
        .summary = "stop workloads; they stay on record",
        .examples = "  berth stop hello --wait",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct stop_options),
        .run = stop_run,
        .group = VERBS_WORKLOADS,
        .completes = 'w',
};

const struct verb verb_start = {
        .name = "start",
        .args = "NAME...",
        .summary = "start workloads that were stopped",
        .examples = "  berth start hello --wait",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct stop_options),
        .run = start_run,
        .group = VERBS_WORKLOADS,
        .completes = 'w',
};
