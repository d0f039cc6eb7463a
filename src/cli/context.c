/* cli/context.c: berth login, berth context: which server is meant, and as whom (profile.h). */
#include "cli/client.h"
#include "cli/profile.h"
#include "cli/verbs.h"
#include "model/pb.h"
#include "model/validate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define CONTEXTS_MAX 1000

struct login_options {
        const char *name;
};

static const struct opt login_rows[] = {
        OPT(struct login_options, OPT_TEXT, name, .name = "name", .arg = "NAME",
            .help = "what the context is called (the server's host)"),
};

/* From the terminal, without showing it, or the first line of a pipe. */
static const char *ask_token(struct cli *cli)
{
        struct termios before, silent;
        bool tty = isatty(0) && tcgetattr(0, &before) == 0;
        char line[512] = "";
        if (tty) {
                cli_say(cli, "Token: ");
                silent = before;
                silent.c_lflag &= ~(tcflag_t)ECHO;
                (void)tcsetattr(0, TCSAFLUSH, &silent);
        }
        if (!fgets(line, sizeof(line), stdin))
                line[0] = 0;
        if (tty) {
                (void)tcsetattr(0, TCSAFLUSH, &before);
                cli_say(cli, "\n");
        }
        line[strcspn(line, " \t\r\n")] = 0;
        return line[0] ? arena_strdup(&cli->arena, line) : NULL;
}

static char *absolute(struct cli *cli, const char *path)
{
        char *whole = path ? realpath(path, NULL) : NULL,
             *copy = arena_strdup(&cli->arena, whole  ? whole
                                               : path ? path
                                                      : "");
        free(whole);
        return copy;
}

static const char *name_of(struct cli *cli, const char *address)
{
        char *name = arena_strndup(&cli->arena, address, strcspn(address, ","));
        char *colon = strrchr(name, ':');
        if (colon && !strchr(colon, ']'))
                *colon = 0;
        for (char *p = name; *p; p++)
                if (strchr("[]:", *p))
                        *p = '-';
        while (*name == '-')
                name++;
        return name;
}

static void put(struct cli *cli, Pb__Profile *p, Pb__ProfileContext *c)
{
        Pb__ProfileContext **list =
            arena_new_n(&cli->arena, Pb__ProfileContext *, p->n_contexts + 1);
        size_t n = 0;
        for (size_t i = 0; i < p->n_contexts; i++)
                if (!str_eq(p->contexts[i]->name, c->name))
                        list[n++] = p->contexts[i];
        list[n++] = c;
        p->contexts = list;
        p->n_contexts = n;
        p->current = c->name;
}

static int login_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct login_options *o = values;
        Pb__Profile *p;
        Pb__ProfileContext c = PB__PROFILE_CONTEXT__INIT;
        Pb__Empty nothing = PB__EMPTY__INIT;
        const char *token = NULL;
        if (args->n != 1)
                return usage_error(cli, err, "berth login ADDRESS");
        cli->common.server = args->at[0];
        int r = profile_read(&cli->arena, &p, err);
        if (r < 0 || (r = client_token(cli, &token, err)) < 0)
                return r;
        c.name = (char *)(o->name ? o->name : name_of(cli, args->at[0]));
        if (!id_is_valid(c.name))
                return usage_error(
                    cli, err,
                    "%s is no name for a context: letters, digits, '.', '_' and '-' (--name)",
                    c.name);
        if (!profile_find(p, c.name) && p->n_contexts >= CONTEXTS_MAX)
                return err_set(err, ERR_LIMIT, .msg = "there are too many contexts",
                               .hint = "berth context rm NAME");
        if (!token && !cli->common.tls_cert)
                token = ask_token(cli);
        cli->common.token = token;
        const Pb__ClusterInfo *cluster = client_call(cli, &cli->arena, "GetCluster", &nothing,
                                                     &pb__cluster_info__descriptor, err);
        if (!cluster)
                return -(int)err->code;
        c.server = arena_strdup(&cli->arena, client_address(cli, NULL));
        c.token = (char *)(token ? token : "");
        c.tls_ca = absolute(cli, cli->common.tls_ca);
        c.tls_cert = absolute(cli, cli->common.tls_cert);
        c.tls_key = absolute(cli, cli->common.tls_key);
        put(cli, p, &c);
        if ((r = profile_write(&cli->arena, p, err)) < 0)
                return r;
        cli_out(cli, "context/%s: cluster %s at %s; in use from now on\n", c.name,
                cluster->cluster_id, c.server);
        return 0;
}

const struct verb verb_login = {
        .name = "login",
        .args = "ADDRESS [--name NAME]",
        .summary = "remember a server and a token, and use them from now on",
        .text = "Tries them first. The token comes from --token-file, BERTH_TOKEN or --token, else "
                "it is asked for. They are kept as a "
                "context in "
                "${XDG_CONFIG_HOME:-~/.config}/berth/config, which only you can read; a context's "
                "token goes to its own server and to no "
                "other. A server that is not on this machine needs TLS (--tls-ca FILE): a token "
                "never travels in the clear.",
        .examples = "  berth login berth.example:8085 --tls-ca ca.pem --token-file ann.token\n"
                    "  berth login 127.0.0.1:8085 --name lab",
        .options = login_rows,
        .n_options = ARRAY_LEN(login_rows),
        .values_size = sizeof(struct login_options),
        .run = login_run,
        .group = VERBS_CLUSTER,
};

static int list(struct cli *cli, const Pb__Profile *p)
{
        if (!p->n_contexts)
                cli_say(cli, "no contexts; berth login ADDRESS makes one\n");
        for (size_t i = 0; i < p->n_contexts; i++) {
                const Pb__ProfileContext *c = p->contexts[i];
                cli_out(cli, "%s %s\t%s\t%s\n", str_eq(c->name, p->current) ? "*" : " ", c->name,
                        c->server,
                        !str_empty(c->tls_ca) || !str_empty(c->tls_cert) ? "tls" : "clear");
        }
        return 0;
}

static int context_run(struct cli *cli, const void *values _unused_, const struct args *args,
                       struct err *err)
{
        const char *word = args->n ? args->at[0] : "ls";
        Pb__Profile *p;
        int r = profile_read(&cli->arena, &p, err);
        if (r < 0)
                return r;
        if (args->n <= 1 && (str_eq(word, "ls") || str_eq(word, "list")))
                return list(cli, p);
        if (args->n != 2 || (!str_eq(word, "use") && !str_eq(word, "rm")))
                return usage_error(
                    cli, err,
                    "berth context ls, berth context use NAME (or none), or berth context rm NAME");
        bool none = str_eq(word, "use") && str_eq(args->at[1], "none");
        if (!none && !profile_find(p, args->at[1]))
                return err_set(err, ERR_NOT_FOUND,
                               .msg = fmt("there is no context %s", args->at[1]),
                               .hint = "berth context ls shows those that there are");
        if (str_eq(word, "use"))
                p->current = (char *)(none ? "" : args->at[1]);
        else {
                size_t n = 0;
                for (size_t i = 0; i < p->n_contexts; i++)
                        if (!str_eq(p->contexts[i]->name, args->at[1]))
                                p->contexts[n++] = p->contexts[i];
                p->n_contexts = n;
                if (str_eq(p->current, args->at[1]))
                        p->current = "";
        }
        if ((r = profile_write(&cli->arena, p, err)) < 0)
                return r;
        cli_out(cli, "context/%s %s\n", args->at[1],
                str_eq(word, "rm") ? "removed"
                : none             ? "is in use"
                                   : "is in use");
        return 0;
}

const struct verb verb_context = {
        .name = "context",
        .args = "ls | use NAME | rm NAME",
        .summary = "which of the servers that you logged in to is used",
        .text = "Commands take --server, BERTH_SERVER or BERTH_DATA first, then the context in "
                "use, then ./.berth/server.address. "
                "berth context use none goes back to the last.",
        .examples = "  berth context ls\n"
                    "  berth context use lab",
        .run = context_run,
        .group = VERBS_CLUSTER,
        .offline = true,
        .words = "ls|use|rm",
};
