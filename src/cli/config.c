/* cli/config.c: berth config check: the configuration file, and what the environment says beside
 * it. */
#include "model/config.h"
#include "cli/client.h"
#include "cli/verbs.h"
#include <stdlib.h>

struct found {
        const struct cli *cli;
        unsigned problems;
};

static void check_table(struct found *f, const struct verb *verb)
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
                f->problems++;
                cli_report(f->cli, &err);
        }
        arena_fini(&arena);
}

static void on_problem(void *ctx, const struct err *err)
{
        struct found *f = ctx;
        f->problems++;
        cli_report(f->cli, err);
}

/* 1: it is wrong, 0: it is fine. */
static unsigned check_file(struct cli *cli, const char *path)
{
        struct arena arena = ARENA_INIT;
        struct found f = { .cli = cli };
        struct err err = { 0 };
        Pb__ServerConfig *c = NULL;
        if (config_load(path, &arena, &c, on_problem, &f, &err) >= 0)
                cli_out(cli, "%s is fine: %zu rule%s, %zu webhook%s\n", path, c->n_rules,
                        c->n_rules == 1 ? "" : "s", c->n_webhooks, c->n_webhooks == 1 ? "" : "s");
        else
                cli_out(cli, "%u problem%s in %s\n", f.problems, f.problems == 1 ? "" : "s", path);
        arena_fini(&arena);
        return f.problems;
}

static int config_run(struct cli *cli, const void *values _unused_, const struct args *args,
                      struct err *err)
{
        struct found f = { .cli = cli };
        const char *source = NULL;
        if (args->n < 1 || args->n > 2 || !str_eq(args->at[0], "check"))
                return usage_error(cli, err, "berth config check [FILE]");
        const char *path = args->n == 2 ? args->at[1] : getenv("BERTH_CONFIG");
        unsigned wrong = str_empty(path) ? 0 : check_file(cli, path);
        if (args->n == 2)
                return wrong ? 2 : 0;
        check_table(&f, &verb_server);
        check_table(&f, &verb_agent);
        const char *address = client_address(cli, &source);
        cli_out(cli, "server %s (%s)\n", address, source);
        if (f.problems)
                cli_out(cli, "%u problem%s in the environment\n", f.problems,
                        f.problems == 1 ? "" : "s");
        else
                cli_out(cli, "the environment is fine\n");
        return f.problems || wrong ? 2 : 0;
}

const struct verb verb_config = {
        .name = "config",
        .args = "check [FILE]",
        .summary = "check a configuration file, or the settings in the environment",
        .text = "Names file, line and path of everything that is wrong. Without FILE: that of "
                "BERTH_CONFIG, if it is set, and the environment.",
        .examples = "  berth config check /etc/berth/berth.yaml",
        .run = config_run,
        .group = VERBS_CLUSTER,
        .words = "check",
};
