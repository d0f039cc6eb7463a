/* cli/adopt.c: berth adopt: takes over what a node runs and the records do not know. */
#include "cli/client.h"
#include "cli/names.h"
#include "cli/verbs.h"

static int adopt_run(struct cli *cli, const void *values _unused_, const struct args *args,
                     struct err *err)
{
        Pb__AdoptRequest q = PB__ADOPT_REQUEST__INIT;
        if (args->n == 0)
                return usage_error(cli, err, "which node?");
        q.id = (char *)args->at[0];
        q.workload_ids = (char **)(args->at + 1);
        q.n_workload_ids = args->n - 1;
        Pb__AdoptResponse *r =
            client_call(cli, &cli->arena, "AdoptNode", &q, &pb__adopt_response__descriptor, err);
        if (!r)
                return -(int)err->code;
        for (size_t i = 0; i < r->n_adopted; i++)
                cli_out(cli, "workload/%s adopted\n", r->adopted[i]);
        for (size_t i = 0; i < r->n_refused; i++)
                cli_out(cli, "workload/%s\n", r->refused[i]);
        if (!r->n_adopted || r->n_refused)
                cli_say(cli, "node/%s: %s\n", q.id, r->message);
        return r->n_refused ? err_set(err, ERR_FAILED,
                                      .msg = fmt("%zu of %zu could not be adopted", r->n_refused,
                                                 r->n_refused + r->n_adopted))
                            : 0;
}

const struct verb verb_adopt = {
        .name = "adopt",
        .args = "NODE [ID...]",
        .summary = "take over what a node runs and nobody knows",
        .text = "Units that a node runs and the server's records do not know become workloads as "
                "they are: with their definition, without "
                "a restart. A node that belongs to "
                "another cluster (or whose server lost its store) is taken over with all that it "
                "runs; berth get nodes shows such nodes. "
                "That word counts once, for an hour at most.",
        .examples = "  berth adopt node-3\n"
                    "  berth adopt node-3 web db",
        .run = adopt_run,
        .group = VERBS_NODES,
        .completes = 'n',
};
