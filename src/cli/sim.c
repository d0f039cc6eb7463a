/* cli/sim.c: berth sim: hands its words to src/sim, which reads them itself. */
#include "cli/verbs.h"
#ifdef BERTH_HAVE_SIM
#include "sim/sim.h"
#endif

static int sim_verb(struct cli *cli, const void *values _unused_, const struct args *args,
                    struct err *err)
{
#ifdef BERTH_HAVE_SIM
        (void)err;
        char **argv = arena_new_n(&cli->arena, char *, args->n + 1);
        for (size_t i = 0; i < args->n; i++)
                argv[i] = (char *)args->at[i];
        return sim_main((int)args->n, argv);
#else
        (void)cli, (void)args;
        return err_set(err, ERR_UNSUPPORTED, .msg = "this build has no simulator");
#endif
}

const struct verb verb_sim = {
        .name = "sim",
        .args = "[--seed N] [--servers N] [--nodes N] [--workloads N] [--hours N] [--faults LIST]",
        .summary = "a whole cluster in one process, with faults, from a seed",
        .examples = "  berth sim --seed 7 --nodes 50 --workloads 500 --hours 24 --faults "
                    "crash,partition,delay,dup,restart\n"
                    "  berth sim --seeds 1000 --jobs 2 --nodes 6 --workloads 20 --hours 1\n"
                    "  berth sim --seed 7 --servers 3 --exclusive 50",
        .run = sim_verb,
        .group = VERBS_PROGRAMS,
        .offline = true,
        .raw = true,
};
