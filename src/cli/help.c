/* cli/help.c: help and the man page, made from the table of verbs. */
#include "cli/verbs.h"
#include <ctype.h>
#include <string.h>

static const char *const group_titles[] = { "Workloads", "Nodes", "Cluster", "Programs", "Other" };

void help_all(struct str *out)
{
        str_adds(out, "berth gives work its place on machines, and keeps it there.\n\nUsage: berth "
                      "VERB [arguments] [options]\n");
        for (size_t g = 0; g < _VERB_GROUP_MAX; g++) {
                str_addf(out, "\n%s\n", group_titles[g]);
                for (size_t i = 0; verbs[i]; i++)
                        if (verbs[i]->group == g && !verbs[i]->hidden)
                                str_addf(out, "  %-12s %s\n", verbs[i]->name, verbs[i]->summary);
        }
        str_adds(out, "\nberth help VERB says more. A NAME may be the unique beginning of one.\n"
                      "The server is found by --server, BERTH_SERVER, BERTH_DATA, the context of "
                      "berth login, ./.berth/server.address, or "
                      "at 127.0.0.1:8085.\n"
                      "Exit status: 0 ok, 1 failed, 2 usage, 3 auth, 4 not found, 5 conflict, 6 "
                      "try again, 7 internal.\n");
}

static void usage_line(const struct verb *v, struct str *out)
{
        str_addf(out, "berth %s", v->name);
        if (v->args)
                str_addf(out, " %s", v->args);
        if (v->n_options)
                str_adds(out, " [options]");
}

static struct opt_table common_table(const struct verb *v)
{
        size_t skip = 0;
        while (v->offline && !str_eq(common_rows[skip].name, "no-color"))
                skip++;
        return (struct opt_table){ .rows = common_rows + skip, .n = n_common_rows - skip };
}

void help_verb(const struct cli *cli, const struct verb *v, struct str *out)
{
        const struct term *t = &cli->out;
        str_addf(out, "%sberth %s%s: %s\n\nUsage: ", tint_on(t, TINT_BOLD), v->name,
                 tint_off(t, TINT_BOLD), v->summary);
        if (v->takes_command) { /* the command comes last */
                const char *dashes = strstr(v->args, " --");
                str_addf(out, "berth %s %.*s [options]%s", v->name,
                         dashes ? (int)(dashes - v->args) : (int)strlen(v->args), v->args,
                         dashes ? dashes : "");
        } else {
                usage_line(v, out);
        }
        str_adds(out, "\n");
        if (v->text)
                str_addf(out, "\n%s\n", v->text);
        struct opt_table own = { .rows = v->options, .n = v->n_options }, common = common_table(v);
        if (own.n) {
                str_adds(out, "\nOptions\n");
                options_describe(&own, out);
        }
        if (!v->raw) {
                str_adds(out, v->offline ? "\nOptions that every verb has\n"
                                         : "\nOptions that every verb has\n");
                options_describe(&common, out);
        }
        if (v->examples)
                str_addf(out, "\nExamples\n%s\n", v->examples);
}

static int help_run(struct cli *cli, const void *values _unused_, const struct args *args,
                    struct err *err)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        if (args->n > 1)
                return usage_error(cli, err, "one command at a time");
        if (args->n == 0) {
                help_all(&text);
        } else {
                const struct verb *v = verb_find(args->at[0], err);
                if (!v)
                        return -(int)err->code;
                help_verb(cli, v, &text);
        }
        cli_out_str(cli, &text);
        return 0;
}

const struct verb verb_help = {
        .name = "help",
        .args = "[VERB]",
        .summary = "what a command does, its options and examples",
        .run = help_run,
        .group = VERBS_OTHER,
        .offline = true,
        .completes = 'v',
};

/* ---- berth.1 ---- */

/* roff: backslashes and dashes that must stay as they are, and lines that would start a request. */
static void roff(struct str *out, const char *text)
{
        bool at_start = true;
        for (const char *p = text; *p; p++) {
                if (at_start && (*p == '.' || *p == '\''))
                        str_adds(out, "\\&");
                if (*p == '\\')
                        str_adds(out, "\\e");
                else if (*p == '-')
                        str_adds(out, "\\-");
                else
                        str_addc(out, *p);
                at_start = *p == '\n';
        }
}

static void man_options(const struct opt_table *table, struct str *out)
{
        for (size_t i = 0; i < table->n; i++) {
                const struct opt *o = &table->rows[i];
                if (!o->help)
                        continue;
                str_adds(out, ".TP\n.B ");
                if (o->letter)
                        str_addf(out, "\\-%c, ", o->letter);
                str_adds(out, "\\-\\-");
                roff(out, o->name);
                const char *arg = o->arg ? o->arg : o->choices;
                if (o->kind != OPT_FLAG)
                        str_addf(out, o->kind == OPT_MAYBE ? "[=%s]" : " %s", arg ? arg : "VALUE");
                str_addc(out, '\n');
                roff(out, o->help);
                if (o->env)
                        str_addf(out, " (environment: %s)", o->env);
                str_addc(out, '\n');
        }
}

static void man_verb(const struct verb *v, struct str *out)
{
        str_addf(out, ".SS berth %s ", v->name);
        roff(out, v->args ? v->args : "");
        str_addc(out, '\n');
        str_addf(out, "%c", toupper((unsigned char)v->summary[0]));
        roff(out, v->summary + 1);
        str_adds(out, ".\n");
        if (v->text) {
                str_adds(out, ".PP\n");
                roff(out, v->text);
                str_addc(out, '\n');
        }
        struct opt_table own = { .rows = v->options, .n = v->n_options };
        man_options(&own, out);
        if (v->examples) {
                str_adds(out, ".PP\n.nf\n");
                roff(out, v->examples);
                str_adds(out, "\n.fi\n");
        }
}

void man_page(struct str *out)
{
        str_adds(out, ".\\\" Generated from the table of verbs: berth __man > packaging/berth.1\n");
        str_addf(out, ".TH BERTH 1 \"\" \"berth %s\" \"User Commands\"\n", BERTH_VERSION);
        str_adds(out, ".SH NAME\nberth \\- gives work its place on machines, and keeps it there\n"
                      ".SH SYNOPSIS\n.B berth\n.I VERB\n[arguments] [options]\n"
                      ".SH DESCRIPTION\nberth is a cluster's control plane, its node agent and its "
                      "command line in one program.\n"
                      "A NAME may be the unique beginning of one. Options and arguments may stand "
                      "in any order;\n\\-\\- ends the options.\n");
        for (size_t g = 0; g < _VERB_GROUP_MAX; g++) {
                str_addf(out, ".SH %s\n", group_titles[g]);
                for (size_t i = 0; verbs[i]; i++)
                        if (verbs[i]->group == g && !verbs[i]->hidden)
                                man_verb(verbs[i], out);
        }
        struct opt_table common = { .rows = common_rows, .n = n_common_rows };
        str_adds(out, ".SH OPTIONS OF EVERY VERB\n");
        man_options(&common, out);
        str_adds(out, ".SH EXIT STATUS\n0 ok, 1 failed, 2 usage, 3 authentication or permission, 4 "
                      "not found, 5 conflict,\n"
                      "6 retryable (server away, time is up, out of memory), 7 internal error.\n.B "
                      "berth exec\ngives the exit status of "
                      "the command.\n"
                      ".SH FILES\n.TP\n.B ${BERTH_DATA:\\-./.berth}/server.address\nwhere the "
                      "server of this directory listens\n"
                      ".SH ENVIRONMENT\n.TP\n.B BERTH_SERVER\nthe server's gRPC address\n.TP\n.B "
                      "BERTH_DATA\nthe data directory\n"
                      ".TP\n.B NO_COLOR\nno colour\n");
}

static int man_run(struct cli *cli, const void *values _unused_, const struct args *args _unused_,
                   struct err *err _unused_)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        man_page(&text);
        cli_out_str(cli, &text);
        return 0;
}

const struct verb verb_man = { .name = "__man",
                               .summary = "the man page",
                               .run = man_run,
                               .group = VERBS_OTHER,
                               .hidden = true,
                               .offline = true };
