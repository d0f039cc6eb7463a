/* cli/config.c: berth config check: later with a configuration file; today what the environment and the defaults come to. */
#include "cli/client.h"
#include "cli/verbs.h"
#include <stdlib.h>

static void check_table(const struct cli *cli, const struct verb *verb, unsigned *problems)
{
        struct err err = { 0 };
        struct args args = { 0 };
        struct arena arena = ARENA_INIT;
        void *values = arena_alloc(&arena, verb->values_size + 1);
        if (verb->defaults)
                __builtin_memcpy(values, verb->defaults, verb->values_size);
        struct opt_table table = { .rows = verb->options, .n = verb->n_options, .values = values };
        struct options_spec spec = { .tables = &table, .n_tables = 1 };
        if (options_parse(&spec, NULL, 0, &arena, &args, NULL, &err) < 0) {
                ++*problems;
                cli_report(cli, &err);
        }
        arena_fini(&arena);
}

static int config_run(struct cli *cli, const void *values _unused_, const struct args *args, struct err *err)
{
        unsigned problems = 0;
        const char *source = NULL;
        if (args->n != 1 || !str_eq(args->at[0], "check"))
                return usage_error(cli, err, "berth config check");
        check_table(cli, &verb_server, &problems);
        check_table(cli, &verb_agent, &problems);
        const char *address = client_address(cli, &source);
        cli_out(cli, "server %s (%s)\n", address, source);
        if (problems)
                cli_out(cli, "%u problem%s in the environment\n", problems, problems == 1 ? "" : "s");
        else
                cli_out(cli, "the environment is fine\n");
        return problems ? 2 : 0;
}

const struct verb verb_config = {
        .name = "config",
        .args = "check",
        .summary = "check the settings in the environment",
        .run = config_run,
        .group = VERBS_CLUSTER,
        .words = "check",
};
