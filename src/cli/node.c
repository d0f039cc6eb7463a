/* cli/node.c: berth node VERB ...: everything about nodes under one word; the verbs are those of
 * their own files. */
#include "cli/verbs.h"
#include <string.h>

static const struct {
        const char *word, *verb, *kind; /* kind: a word that the verb needs before the names */
} forms[] = {
        { "ls", "get", "nodes" },         { "list", "get", "nodes" },
        { "get", "get", "nodes" },        { "describe", "describe", "node" },
        { "show", "describe", "node" },   { "cordon", "cordon", NULL },
        { "uncordon", "uncordon", NULL }, { "drain", "drain", NULL },
        { "disable", "disable", NULL },   { "adopt", "adopt", NULL },
        { "forget", "delete", "node" },   { "fence", "fence", NULL },
        { "taint", "taint", NULL },       { "expel", "expel", NULL },
        { "label", "label", NULL },       { "capacity", "capacity", NULL },
        { "evict", "evict", NULL },
};

static int node_run(struct cli *cli, const void *values _unused_, const struct args *args,
                    struct err *err)
{
        const char *names[ARRAY_LEN(forms) + 1] = { NULL };
        if (args->n == 0)
                return usage_error(cli, err, "do what with nodes?");
        if (str_eq(args->at[0], "--help") || str_eq(args->at[0], "-h")) {
                _cleanup_(str_finip) struct str text = STR_INIT;
                help_verb(cli, cli->verb, &text);
                cli_out_str(cli, &text);
                return 0;
        }
        for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
                names[i] = forms[i].word;
                if (!str_eq(forms[i].word, args->at[0]))
                        continue;
                const char **words = arena_new_n(&cli->arena, const char *, args->n + 1);
                size_t n = 0;
                if (forms[i].kind)
                        words[n++] = forms[i].kind;
                for (size_t k = 1; k < args->n; k++)
                        words[n++] = args->at[k];
                return cli_run(cli, verb_find(forms[i].verb, NULL), words, n);
        }
        const char *near = str_suggest(args->at[0], names);
        return usage_error(cli, err, "there is no berth node %s%s", args->at[0],
                           near ? fmt("; did you mean %s?", near) : "");
}

const struct verb verb_node = {
        .name = "node",
        .args = "ls|describe|cordon|uncordon|drain|disable|taint|label|capacity|adopt|fence|evict|"
                "expel|forget [NODE...] [OPTIONS]",
        .summary = "all of the above for nodes, under one word",
        .text = "berth node drain is berth drain, berth node ls is berth get nodes, berth node "
                "forget is berth delete node, and so on.",
        .examples = "  berth node ls\n"
                    "  berth node drain node-2 --deadline 10m --wait",
        .run = node_run,
        .group = VERBS_NODES,
        .raw = true,
        .words = "ls|describe|cordon|uncordon|drain|disable|taint|label|capacity|adopt|fence|evict|"
                 "expel|forget",
};
