/* cli/options.h: one table of options per verb, and the reader of a command line.
 *
 * A verb declares a struct for its options and a table of rows that say where in that struct each
 * option goes. Values come from the verb's defaults, then from the environment (rows with env),
 * then from the command line, each overriding the one before.
 *
 * Accepted: --name value, --name=value, -n value, -nvalue, -n=value, flags in one word (-it),
 * --flag=false, options and arguments in any order, "--" to end the options. A lone "-" is an
 * argument. A wrong name is answered with the nearest right one.
 *
 * Everything that is handed out points into argv, the environment or the arena that the caller
 * gave.
 */
#ifndef BERTH_CLI_OPTIONS_H
#define BERTH_CLI_OPTIONS_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#define OPTIONS_LIST_MAX 1000 /* values of one repeated option */

struct text_list {
        const char **at;
        size_t n;
};

enum opt_kind {
        OPT_FLAG,     /* bool */
        OPT_TEXT,     /* const char * */
        OPT_MAYBE,    /* const char *: --wait gives "", --wait=Running gives "Running" */
        OPT_LIST,     /* struct text_list: may be given several times */
        OPT_INT,      /* int64_t within min..max */
        OPT_DURATION, /* int64_t, milliseconds */
        OPT_MILLI,    /* int64_t, thousandths ("0.5", "250m") */
        OPT_BYTES,    /* int64_t ("64M", "1G") */
};

struct opt {
        const char *name;
        const char *help;    /* one line; NULL: hidden */
        const char *arg;     /* what the value is called, e.g. "FILE"; NULL for flags */
        const char *choices; /* "table|wide|json": checked, completed */
        /* environment variable (or two, comma-separated) that gives the value when the option is
         * not there */
        const char *env;
        size_t offset;
        int64_t min, max; /* OPT_INT; both 0: 0 and more */
        enum opt_kind kind;
        char letter;    /* 0: none */
        char completes; /* values to complete: 'w' workloads, 'n' nodes, 'f' files */
};

/* Shorthand for rows: OPT(struct get_options, OPT_FLAG, watch, .letter = 'w', .name = "watch",
 * .help = "...") */
#define OPT(type, kind_, field, ...)                                                               \
        {                                                                                          \
                .kind = (kind_), .offset = offsetof(type, field), __VA_ARGS__                      \
        }

struct opt_table {
        const struct opt *rows;
        size_t n;
        /* the struct that the rows' offsets refer to; it already holds the defaults */
        void *values;
        bool no_env; /* the environment has been read already */
};

struct args {
        const char **at; /* arguments before "--" (and after it, unless the verb takes a command) */
        size_t n;
        const char **command; /* what follows "--"; NULL-terminated */
        size_t n_command;
        bool has_command; /* there was a "--" */
};

struct options_spec {
        const struct opt_table *tables; /* looked up in this order */
        size_t n_tables;
        bool takes_command; /* keep what follows "--" apart */
        /* the first argument ends the options (used before the verb) */
        bool stop_at_argument;
        const char *(*getenv)(const char *name); /* NULL: the process's environment */
};

/* Reads words[0..n). ret_used, if not NULL, gets the number of words read (less than n only with
 * stop_at_argument). Fails with ERR_INVALID and a sentence for the user. */
int options_parse(const struct options_spec *spec, const char *const *words, size_t n,
                  struct arena *arena, struct args *ret_args, size_t *ret_used, struct err *err);

/* The row of "name" or of the letter, and in ret_table, if not NULL, its table; NULL if unknown. */
const struct opt *options_find(const struct options_spec *spec, const char *name, size_t len,
                               const struct opt_table **ret_table);
const struct opt *options_find_letter(const struct options_spec *spec, char letter,
                                      const struct opt_table **ret_table);
static inline bool opt_takes_value(const struct opt *o)
{
        return o->kind != OPT_FLAG && o->kind != OPT_MAYBE;
}

/* "  -l, --selector K=V   only these labels" lines, aligned. */
void options_describe(const struct opt_table *table, struct str *out);

#endif
