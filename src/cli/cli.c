/* cli/cli.c: finds the verb, reads its options, runs it, prints what went wrong. See cli.h. */
#include "cli/cli.h"
#include "base/mem.h"
#include "cli/client.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct opt common_rows[] = {
        OPT(struct common_options, OPT_TEXT, server, .name = "server", .arg = "ADDR",
            .env = "BERTH_SERVER", .help = "the server's gRPC address, host:port"),
        OPT(struct common_options, OPT_TEXT, tls_ca, .name = "tls-ca", .arg = "FILE",
            .env = "BERTH_TLS_CA", .completes = 'f',
            .help = "talk TLS; certificates that vouch for the server"),
        OPT(struct common_options, OPT_TEXT, tls_cert, .name = "tls-cert", .arg = "FILE",
            .env = "BERTH_TLS_CERT", .completes = 'f', .help = "this client's certificate"),
        OPT(struct common_options, OPT_TEXT, tls_key, .name = "tls-key", .arg = "FILE",
            .env = "BERTH_TLS_KEY", .completes = 'f', .help = "and its key"),
        OPT(struct common_options, OPT_TEXT, token_file, .name = "token-file", .arg = "FILE",
            .env = "BERTH_TOKEN_FILE", .completes = 'f',
            .help = "the token that says who you are is in this file"),
        OPT(struct common_options, OPT_TEXT, token, .name = "token", .arg = "TOKEN",
            .env = "BERTH_TOKEN",
            .help = "the token itself; a file or the environment shows it to fewer eyes"),
        OPT(struct common_options, OPT_FLAG, no_color, .name = "no-color",
            .help = "no colour, even on a terminal"),
        OPT(struct common_options, OPT_FLAG, help, .letter = 'h', .name = "help",
            .help = "show this help"),
};
const size_t n_common_rows = ARRAY_LEN(common_rows);
#define N_SERVER_ROWS 4 /* the first ones, which verbs without a server do not have */

/* ---- output ---- */

static void put(const struct cli *cli, const struct term *term, const struct str *text)
{
        struct err err = { 0 };
        if (term_print(term, text, &err) == 0)
                return;
        if (term == &cli->out)
                cli_report(cli, &err);
        exit(1);
}

void cli_out_str(const struct cli *cli, const struct str *text)
{
        put(cli, &cli->out, text);
}

static void put_format(const struct cli *cli, const struct term *term, const char *format,
                       va_list ap) _printf_(3, 0);
static void put_format(const struct cli *cli, const struct term *term, const char *format,
                       va_list ap)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        str_addvf(&text, format, ap);
        put(cli, term, &text);
}

void cli_out(const struct cli *cli, const char *format, ...)
{
        va_list ap;
        va_start(ap, format);
        put_format(cli, &cli->out, format, ap);
        va_end(ap);
}

void cli_say(const struct cli *cli, const char *format, ...)
{
        va_list ap;
        if (cli->quiet)
                return;
        va_start(ap, format);
        put_format(cli, &cli->errs, format, ap);
        va_end(ap);
}

void cli_report(const struct cli *cli, const struct err *err)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        const struct term *t = &cli->errs;
        if (cli->quiet)
                return;
        str_addf(&text, "%serror:%s ", tint_on(t, TINT_BAD), tint_off(t, TINT_BAD));
        text_clean(&text, err->msg[0] ? err->msg : err_code_name(err->code));
        str_addc(&text, '\n');
        for (const char *p = err->detail; *p;) { /* a detail may have several lines */
                size_t len = strcspn(p, "\n");
                _cleanup_(mem_freep) char *line = mem_strndup(p, len);
                str_adds(&text, "  ");
                text_clean(&text, line);
                str_addc(&text, '\n');
                p += len + (p[len] == '\n');
        }
        if (err->path[0] && !strstr(err->msg, err->path) && !strstr(err->detail, err->path))
                str_addf(&text, "  at %s\n", err->path);
        if (err->code == ERR_INTERNAL && cli->request_id[0])
                str_addf(&text, "  request %s\n", cli->request_id);
        if (err->hint[0]) {
                str_addf(&text, "%shint:%s ", tint_on(t, TINT_BOLD), tint_off(t, TINT_BOLD));
                text_clean(&text, err->hint);
                str_addc(&text, '\n');
        }
        (void)term_print(t, &text, NULL);
}

/* ---- running a verb ---- */

int usage_error(const struct cli *cli, struct err *err, const char *format, ...)
{
        _cleanup_(str_finip) struct str msg = STR_INIT;
        va_list ap;
        va_start(ap, format);
        str_addvf(&msg, format, ap);
        va_end(ap);
        const struct verb *v = cli->verb;
        return err_set(err, ERR_INVALID, .msg = str_c(&msg),
                       .detail =
                           v ? fmt("usage: berth %s %s", v->name, v->args ? v->args : "") : NULL,
                       .hint = v ? fmt("berth help %s", v->name) : "berth help");
}

const char *kind_of(const char *word)
{
        static const char *const kinds[][6] = { { "workload", "workloads", "wl", "w" },
                                                { "node", "nodes", "no" },
                                                { "event", "events", "ev" } };
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
                for (size_t i = 0; i < ARRAY_LEN(kinds[k]) && kinds[k][i]; i++)
                        if (str_eq(word, kinds[k][i]))
                                return kinds[k][0];
        return NULL;
}

void cli_init(struct cli *cli, const char *program)
{
        *cli = (struct cli){ .program = program, .arena = ARENA_INIT };
        term_init(&cli->out, 1);
        term_init(&cli->errs, 2);
}

void cli_fini(struct cli *cli)
{
        client_close(cli);
        arena_fini(&cli->arena);
}

static int parse_words(struct cli *cli, const struct verb *verb, const char *const *words, size_t n,
                       void *values, struct args *args, struct err *err)
{
        if (verb->raw) {
                *args = (struct args){ .at = (const char **)words, .n = n };
                return 0;
        }
        size_t skip = verb->offline ? N_SERVER_ROWS : 0;
        struct opt_table tables[] = {
                { .rows = verb->options, .n = verb->n_options, .values = values },
                { .rows = common_rows + skip,
                  .n = n_common_rows - skip,
                  .values = &cli->common,
                  .no_env = true }
        };
        struct options_spec spec = { .tables = tables,
                                     .n_tables = 2,
                                     .takes_command = verb->takes_command };
        int r = options_parse(&spec, words, n, &cli->arena, args, NULL, err);
        if (r < 0 && !err->hint[0])
                err_set(err, err->code, .msg = fmt("%s", err->msg),
                        .detail = fmt("%s", err->detail), .hint = fmt("berth help %s", verb->name));
        return r;
}

int cli_run(struct cli *cli, const struct verb *verb, const char *const *words, size_t n)
{
        struct err err = { 0 };
        struct args args = { 0 };
        void *values = arena_alloc(&cli->arena, verb->values_size + 1);
        if (verb->defaults)
                memcpy(values, verb->defaults, verb->values_size);
        cli->verb = verb;
        int r = parse_words(cli, verb, words, n, values, &args, &err);
        if (cli->common.no_color)
                cli->out.colour = cli->errs.colour = false;
        if (r == 0 && cli->common.help) {
                _cleanup_(str_finip) struct str text = STR_INIT;
                help_verb(cli, verb, &text);
                cli_out_str(cli, &text);
                return 0;
        }
        if (r == 0)
                r = verb->run(cli, values, &args, &err);
        if (r >= 0)
                return r;
        if (err.code == ERR_OK) /* a verb said "failed" without saying why: never silently */
                err_set(&err, ERR_INTERNAL, .msg = fmt("%s failed", verb->name));
        cli_report(cli, &err);
        return err_exit_status(err.code);
}

/* berth [options] VERB ...: the options that every verb has may also come first. */
int cli_main(struct cli *cli, const char *const *words, size_t n)
{
        struct err err = { 0 };
        struct args args = { 0 };
        size_t used = 0;
        struct opt_table table = { .rows = common_rows,
                                   .n = n_common_rows,
                                   .values = &cli->common };
        struct options_spec spec = { .tables = &table, .n_tables = 1, .stop_at_argument = true };
        int r = 0;

        if (n > 0 && (str_eq(words[0], "--version") || str_eq(words[0], "-V")))
                return cli_run(cli, verb_find("version", NULL), words + 1, n - 1);
        r = options_parse(&spec, words, n, &cli->arena, &args, &used, &err);
        const struct verb *verb = r == 0 && used < n ? verb_find(words[used], &err) : NULL;
        if (r == 0 && used >= n) {
                _cleanup_(str_finip) struct str text = STR_INIT;
                help_all(&text);
                cli_out_str(cli, &text);
                return 0;
        }
        if (!verb) {
                cli_report(cli, &err);
                return err_exit_status(err.code);
        }
        return cli_run(cli, verb, words + used + 1, n - used - 1);
}
