/* cli/fence.c: berth fence, berth release: an operator's word that what is exclusive does not run
 * somewhere any more (docs/fencing.md). */
#include "cli/client.h"
#include "cli/names.h"
#include "cli/verbs.h"

struct fence_options {
        bool sure;
};

static const struct opt rows[] = {
        OPT(struct fence_options, OPT_FLAG, sure, .name = "i-know-it-is-dead",
            .help = "required: nothing of it runs any more, for certain (the machine is off, or "
                    "was looked at)"),
};

static int be_sure(const struct fence_options *o, const char *what, struct err *err)
{
        if (o->sure)
                return 0;
        return err_set(err, ERR_INVALID, .msg = fmt("this starts a second copy if %s", what),
                       .hint =
                           "look at the machine, or switch it off; then say --i-know-it-is-dead");
}

static int fence_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        struct text_list names;
        int r = names_of_kind(cli, &cli->arena, "node", args, &names, err);
        if (r == 0)
                r = be_sure(values, "the node is only cut off and not dead", err);
        return r == 0 ? node_calls(cli, &names, "FenceNode", " fenced", err) : r;
}

static int release_run(struct cli *cli, const void *values, const struct args *args,
                       struct err *err)
{
        struct text_list names;
        int r = names_of_kind(cli, &cli->arena, "workload", args, &names, err);
        if (r == 0)
                r = be_sure(values, "an earlier one still runs", err);
        for (size_t i = 0; r == 0 && i < names.n; i++) {
                Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
                Pb__Workload *w = workload_named(cli, &cli->arena, names.at[i], err);
                if (!w)
                        return -(int)err->code;
                ref.id = w->id;
                w = client_call(cli, &cli->arena, "ReleaseWorkload", &ref,
                                &pb__workload__descriptor, err);
                if (!w)
                        return -(int)err->code;
                cli_out(cli, "workload/%s released\n", w->id);
        }
        return r;
}

const struct verb verb_fence = {
        .name = "fence",
        .args = "NODE... --i-know-it-is-dead",
        .summary = "say that a silent node is off: nothing exclusive waits for it",
        .text = "An exclusive workload that was on a silent node starts elsewhere only when that "
                "node's lease has run out for certain. If "
                "you know that the machine is off, this "
                "need not be waited for. Pinned workloads stay: berth release moves one. It is an "
                "event with your name.",
        .examples = "  berth fence node-3 --i-know-it-is-dead",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct fence_options),
        .run = fence_run,
        .group = VERBS_NODES,
        .completes = 'n',
};

const struct verb verb_release = {
        .name = "release",
        .args = "NAME... --i-know-it-is-dead",
        .summary = "say that no earlier copy of an exclusive workload runs",
        .text = "It is then started elsewhere at once. For a pinned workload whose node is gone "
                "for good this is the only way: it starts "
                "without what was on that node. "
                "It is an event with your name.",
        .examples = "  berth release db --i-know-it-is-dead",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct fence_options),
        .run = release_run,
        .group = VERBS_WORKLOADS,
        .completes = 'w',
};
