/* cli/cli.h: what every verb of the berth binary has in common.
 *
 * A verb is one file with one `const struct verb`: its usage, its options as a table, and the
 * function that does it. verbs.c lists them all; help, the man page and shell completion come from
 * the same rows, so that they cannot disagree with what the verb accepts.
 *
 * A verb's function returns the exit status (0 and more), or a negative number with err set: main
 * prints it to stderr as
 *
 *      error: MESSAGE
 *        DETAIL
 *      hint: HINT
 *
 * and exits with 1 failed, 2 usage, 3 auth, 4 not found, 5 conflict, 6 retryable, 7 internal
 * (err_exit_status()).
 */
#ifndef BERTH_CLI_CLI_H
#define BERTH_CLI_CLI_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "cli/options.h"
#include "cli/term.h"

struct client;
struct verb;

struct common_options {
        const char *server;                      /* --server or BERTH_SERVER; NULL: see client.h */
        const char *tls_ca, *tls_cert, *tls_key; /* PEM files; none of the three: in the clear */
        const char *token, *token_file;          /* see client.h */
        bool help, no_color;
};

struct cli {
        const char *program; /* as the user typed it */
        const struct verb *verb;
        struct common_options common;
        struct term out, errs;
        struct arena arena;    /* for what lives as long as the verb */
        struct client *client; /* opened at the first call */
        /* of the address that was found; NULL: it came from elsewhere */
        struct Pb__ProfileContext *context;
        /* why an address that is there is not used; NULL: there is none */
        const char *distrust;
        /* of the last failed call, for reports of internal errors */
        char request_id[64];
        bool quiet; /* completion: never say anything */
};

enum verb_group {
        VERBS_WORKLOADS,
        VERBS_NODES,
        VERBS_CLUSTER,
        VERBS_PROGRAMS,
        VERBS_OTHER,
        _VERB_GROUP_MAX
};

struct verb {
        const char *name;
        const char *args;     /* "NAME..." */
        const char *summary;  /* a few words, for the list of verbs */
        const char *text;     /* some sentences; may be NULL */
        const char *examples; /* lines without "berth" before them are comments; may be NULL */
        const struct opt *options;
        size_t n_options;
        const void *defaults; /* a struct of values_size; NULL: all zero */
        size_t values_size;
        int (*run)(struct cli *cli, const void *values, const struct args *args, struct err *err);
        enum verb_group group;
        bool takes_command; /* -- cmd... */
        bool offline;       /* talks to no server: has no --server */
        bool hidden;
        bool raw; /* the words go to it unread, in args->at (completion, sim) */
        /* its arguments: 'w' workloads, 'n' nodes, 'r' kinds and then names, 'v' verbs, 0: none */
        char completes;
        const char *words; /* or these: "bash|zsh|fish" */
};

/* in the order of the help; ends with NULL */
extern const struct verb *const verbs[];
/* NULL with a suggestion in err; err may be NULL */
const struct verb *verb_find(const char *name, struct err *err);
extern const struct opt common_rows[];
extern const size_t n_common_rows;

/* Runs a verb with the words after it; prints errors. Returns the exit status. */
int cli_run(struct cli *cli, const struct verb *verb, const char *const *words, size_t n);
/* The same for a whole command line without the program's name: [options] VERB [arguments]
 * [options]. */
int cli_main(struct cli *cli, const char *const *words, size_t n);
void cli_init(struct cli *cli, const char *program);
void cli_fini(struct cli *cli);

/* error / detail / hint, to stderr. */
void cli_report(const struct cli *cli, const struct err *err);
/* printf to stdout or stderr. The output's own faults end the process with status 1 (0 for a closed
 * pipe): nobody could act on them. */
void cli_out(const struct cli *cli, const char *format, ...) _printf_(2, 3);
void cli_out_str(const struct cli *cli, const struct str *text);
void cli_say(const struct cli *cli, const char *format, ...) _printf_(2, 3);

/* help.c */
void help_all(struct str *out);
void help_verb(const struct cli *cli, const struct verb *verb, struct str *out);
void man_page(struct str *out);

/* ERR_INVALID with the verb's usage as detail and "berth help VERB" as hint. */
int usage_error(const struct cli *cli, struct err *err, const char *format, ...) _printf_(3, 4);
/* "workload" for wl, w, workloads...; NULL if it is no kind. Kinds: workload, node, event. */
const char *kind_of(const char *word);

#endif
