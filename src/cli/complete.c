/* cli/complete.c: berth __complete, which the shells' scripts call. Everything comes from the
 * tables of verbs and options, names from the server. */
#include "cli/complete.h"
#include "cli/client.h"
#include "cli/verbs.h"
#include <string.h>

#define NAMES_MAX 200

struct line {
        const struct verb *verb; /* NULL: not there yet */
        struct options_spec spec;
        struct opt_table tables[2];
        const struct opt *pending; /* the word before is this option and wants a value */
        const char *first;         /* first argument */
        size_t n_arguments;
        bool after_dashes;
};

static void offer(struct str *out, const char *before, const char *word, size_t len,
                  const char *prefix, const char *what)
{
        size_t prefix_len = strlen(prefix);
        if (len < prefix_len || strncasecmp(word, prefix, prefix_len) != 0)
                return;
        str_adds(out, before);
        str_add(out, word, len);
        if (what)
                str_addf(out, "\t%s", what);
        str_addc(out, '\n');
}

static void offer_choices(struct str *out, const char *before, const char *choices,
                          const char *prefix)
{
        for (const char *p = choices; p && *p;) {
                size_t len = strcspn(p, "|");
                offer(out, before, p, len, prefix, NULL);
                p += len + (p[len] == '|');
        }
}

static void set_verb(struct line *l, const struct verb *v)
{
        l->verb = v;
        l->tables[0] =
            (struct opt_table){ .rows = v ? v->options : NULL, .n = v ? v->n_options : 0 };
        l->tables[1] = (struct opt_table){ .rows = common_rows, .n = n_common_rows };
        l->spec = (struct options_spec){ .tables = l->tables, .n_tables = 2 };
}

static const struct opt *option_at(const struct line *l, const char *word)
{
        if (word[0] != '-' || word[1] == '\0' || str_eq(word, "--"))
                return NULL;
        if (word[1] != '-')
                return options_find_letter(&l->spec, word[strlen(word) - 1], NULL);
        size_t len = strcspn(word + 2, "=");
        return options_find(&l->spec, word + 2, len, NULL);
}

/* Reads the words before the cursor. */
static void read_line(struct line *l, const char *const *words, size_t n)
{
        set_verb(l, NULL);
        for (size_t i = 0; i < n; i++) {
                const char *w = words[i];
                if (l->after_dashes)
                        continue;
                if (str_eq(w, "=")) /* bash splits at '=' */
                        continue;
                if (l->pending) {
                        l->pending = NULL;
                        continue;
                }
                if (str_eq(w, "--")) {
                        l->after_dashes = true;
                } else if (w[0] == '-' && w[1]) {
                        const struct opt *o = option_at(l, w);
                        bool splits = i + 1 < n && str_eq(words[i + 1], "=");
                        l->pending =
                            o && !strchr(w, '=') && (opt_takes_value(o) || splits) ? o : NULL;
                } else if (!l->verb) {
                        const struct verb *v = verb_find(w, NULL);
                        set_verb(l, v);
                        l->after_dashes = !v; /* unknown command: nothing to say */
                } else if (l->n_arguments++ == 0) {
                        l->first = w;
                }
        }
}

static void offer_options(const struct line *l, const char *prefix, struct str *out)
{
        for (size_t t = 0; t < 2; t++)
                for (size_t i = 0; i < l->tables[t].n; i++) {
                        const struct opt *o = &l->tables[t].rows[i];
                        if (o->help)
                                offer(out, "--", o->name, strlen(o->name),
                                      strlen(prefix) > 2 ? prefix + 2 : "", o->help);
                }
}

static void offer_value(const struct opt *o, const char *before, const char *prefix,
                        complete_names_fn names, void *ctx, struct str *out)
{
        if (o->choices)
                offer_choices(out, before, o->choices, prefix);
        else if (o->completes == 'f')
                str_adds(out, ":files\n");
        else if (o->completes && !*before)
                names(ctx, o->completes, prefix, out);
}

static void offer_verbs(const char *prefix, struct str *out)
{
        for (size_t i = 0; verbs[i]; i++)
                if (!verbs[i]->hidden)
                        offer(out, "", verbs[i]->name, strlen(verbs[i]->name), prefix,
                              verbs[i]->summary);
}

static void offer_argument(const struct line *l, const char *prefix, complete_names_fn names,
                           void *ctx, struct str *out)
{
        const struct verb *v = l->verb;
        if (v->words && l->n_arguments == 0)
                offer_choices(out, "", v->words, prefix);
        else if (v->completes == 'f')
                str_adds(out, ":files\n");
        else if (v->completes == 'v' && l->n_arguments == 0)
                offer_verbs(prefix, out);
        else if (v->completes == 'r' && l->n_arguments == 0)
                offer_choices(out, "",
                              str_eq(v->name, "get") ? "workloads|nodes|events" : "workload|node",
                              prefix);
        else if (v->completes == 'r')
                names(ctx, str_eq(kind_of(l->first), "node") ? 'n' : 'w', prefix, out);
        else if (v->completes == 'w' || v->completes == 'n')
                names(ctx,
                      l->n_arguments > 0 && kind_of(l->first) && str_eq(kind_of(l->first), "node")
                          ? 'n'
                          : v->completes,
                      prefix, out);
}

void complete_words(const char *const *words, size_t n, complete_names_fn names, void *ctx,
                    struct str *out)
{
        struct line l = { 0 };
        if (n == 0)
                return;
        const char *current = words[n - 1];
        read_line(&l, words, n - 1);
        if (str_eq(current, "=") && n > 1) { /* "--output" "=" and the cursor */
                const struct opt *o = option_at(&l, words[n - 2]);
                if (o)
                        offer_value(o, "", "", names, ctx, out);
                return;
        }
        const char *equals = current[0] == '-' && current[1] == '-' ? strchr(current, '=') : NULL;
        if (l.after_dashes) {
                if (l.verb && l.verb->takes_command)
                        str_adds(out, ":files\n");
        } else if (l.pending) {
                offer_value(l.pending, "", current, names, ctx, out);
        } else if (equals && option_at(&l, current)) {
                offer_value(option_at(&l, current),
                            fmt("%.*s", (int)(equals + 1 - current), current), equals + 1, names,
                            ctx, out);
        } else if (current[0] == '-') {
                offer_options(&l, current, out);
        } else if (!l.verb) {
                offer_verbs(current, out);
        } else {
                offer_argument(&l, current, names, ctx, out);
        }
}

/* ---- the hidden verb ---- */

static void live_names(void *ctx, char kind, const char *prefix, struct str *out)
{
        struct cli *cli = ctx;
        struct err ignored = { 0 };
        if (kind == 'n') {
                Pb__ListNodesRequest q = PB__LIST_NODES_REQUEST__INIT;
                q.prefix = (char *)prefix;
                q.limit = NAMES_MAX;
                Pb__ListNodesResponse *list =
                    client_call(cli, &cli->arena, "ListNodes", &q,
                                &pb__list_nodes_response__descriptor, &ignored);
                for (size_t i = 0; list && i < list->n_items; i++)
                        str_addf(out, "%s\n", list->items[i]->id);
        } else if (kind == 'w') {
                Pb__ListWorkloadsRequest q = PB__LIST_WORKLOADS_REQUEST__INIT;
                q.prefix = (char *)prefix;
                q.limit = NAMES_MAX;
                Pb__ListWorkloadsResponse *list =
                    client_call(cli, &cli->arena, "ListWorkloads", &q,
                                &pb__list_workloads_response__descriptor, &ignored);
                for (size_t i = 0; list && i < list->n_items; i++)
                        str_addf(out, "%s\n", list->items[i]->id);
        }
}

static int complete_run(struct cli *cli, const void *values _unused_, const struct args *args,
                        struct err *err _unused_)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        /* nobody wants an error between two key presses; and not to wait long either */
        cli->quiet = true;
        for (size_t i = 0; i + 1 < args->n; i++) /* the server that the line names */
                if (str_eq(args->at[i], "--server"))
                        cli->common.server = args->at[i + 1];
                else if (str_starts(args->at[i], "--server="))
                        cli->common.server = args->at[i] + strlen("--server=");
        complete_words(args->at, args->n, live_names, cli, &out);
        cli_out_str(cli, &out);
        return 0;
}

const struct verb verb_complete = { .name = "__complete",
                                    .summary = "for the shells",
                                    .run = complete_run,
                                    .group = VERBS_OTHER,
                                    .hidden = true,
                                    .raw = true };
