/* cli/options.c: reads a command line by tables of options. See options.h. */
#include "cli/options.h"
#include "base/array.h"
#include <stdlib.h>
#include <string.h>

struct reader {
        const struct options_spec *spec;
        struct arena *arena;
};

static const struct opt *find(const struct options_spec *spec, const char *name, size_t len,
                              char letter, const struct opt_table **ret_table)
{
        for (size_t t = 0; t < spec->n_tables; t++)
                for (size_t i = 0; i < spec->tables[t].n; i++) {
                        const struct opt *o = &spec->tables[t].rows[i];
                        if (name ? strlen(o->name) == len && memcmp(o->name, name, len) == 0
                                 : o->letter == letter) {
                                if (ret_table)
                                        *ret_table = &spec->tables[t];
                                return o;
                        }
                }
        return NULL;
}

const struct opt *options_find(const struct options_spec *spec, const char *name, size_t len,
                               const struct opt_table **ret_table)
{
        return find(spec, name, len, 0, ret_table);
}

const struct opt *options_find_letter(const struct options_spec *spec, char letter,
                                      const struct opt_table **ret_table)
{
        return find(spec, NULL, 0, letter, ret_table);
}

static int unknown_option(const struct reader *r, const char *word, size_t len, struct err *err)
{
        const char *names[256];
        size_t n = 0;
        for (size_t t = 0; t < r->spec->n_tables; t++)
                for (size_t i = 0; i < r->spec->tables[t].n && n + 1 < ARRAY_LEN(names); i++)
                        if (r->spec->tables[t].rows[i].help)
                                names[n++] = r->spec->tables[t].rows[i].name;
        names[n] = NULL;
        const char *bare = arena_strndup(r->arena, word, len);
        while (*bare == '-')
                bare++;
        const char *near = str_suggest(bare, names);
        return err_set(err, ERR_INVALID, .msg = fmt("unknown option '%.*s'", (int)len, word),
                       .hint = near ? fmt("did you mean --%s?", near) : NULL);
}

/* As the user knows it: "--selector", "BERTH_SERVER". */
static int bad_value(const char *what, const char *value, const char *expected, struct err *err)
{
        return err_set(err, ERR_INVALID, .msg = fmt("bad value '%s' for %s", value, what),
                       .detail = expected);
}

static bool is_choice(const char *choices, const char *value)
{
        size_t len = strlen(value);
        for (const char *p = choices; *p;) {
                size_t n = strcspn(p, "|");
                if (n == len && strncasecmp(p, value, n) == 0)
                        return true;
                p += n + (p[n] == '|');
        }
        return false;
}

static int parse_flag(const char *what, const char *value, bool *ret, struct err *err)
{
        static const char *const yes[] = { "true", "1", "yes", "on" }, *const no[] = { "false", "0",
                                                                                       "no", "off",
                                                                                       "" };
        for (size_t i = 0; i < ARRAY_LEN(yes); i++)
                if (str_case_eq(value, yes[i])) {
                        *ret = true;
                        return 0;
                }
        for (size_t i = 0; i < ARRAY_LEN(no); i++)
                if (str_case_eq(value, no[i])) {
                        *ret = false;
                        return 0;
                }
        return bad_value(what, value, "expected true or false", err);
}

static int append(struct reader *r, struct text_list *list, const char *value, const char *what,
                  struct err *err)
{
        if (list->n >= OPTIONS_LIST_MAX)
                return err_set(err, ERR_INVALID, .msg = fmt("%s is given too often", what),
                               .detail = fmt("at most %d times", OPTIONS_LIST_MAX));
        /* Grown by doubling at powers of two, in the arena: the old copy is small and goes with
         * it. */
        if ((list->n & (list->n - 1)) == 0) {
                const char **grown = arena_new_n(r->arena, const char *, list->n ? list->n * 2 : 1);
                if (list->n)
                        memcpy(grown, list->at, list->n * sizeof(*grown));
                list->at = grown;
        }
        list->at[list->n++] = value;
        return 0;
}

/* value NULL: a flag, or an option whose value may be left out, without a value. */
static int store_value(struct reader *r, const struct opt_table *table, const struct opt *o,
                       const char *value, const char *what, struct err *err)
{
        void *to = (char *)table->values + o->offset;
        int64_t number = 0;

        if (o->choices && value && *value && !is_choice(o->choices, value))
                return bad_value(what, value, fmt("expected one of %s", o->choices), err);
        switch (o->kind) {
        case OPT_FLAG:
                if (value)
                        return parse_flag(what, value, to, err);
                *(bool *)to = true;
                return 0;
        case OPT_MAYBE:
                *(const char **)to = value ? value : "";
                return 0;
        case OPT_TEXT:
                *(const char **)to = value;
                return 0;
        case OPT_LIST:
                return append(r, to, value, what, err);
        case OPT_INT: {
                int64_t max = o->min == 0 && o->max == 0 ? INT64_MAX : o->max;
                if (str_parse_i64(value, &number) < 0)
                        return bad_value(what, value, "expected a whole number", err);
                if (number < o->min || number > max)
                        return bad_value(what, value,
                                         fmt("expected a number from %lld to %lld",
                                             (long long)o->min, (long long)max),
                                         err);
                break;
        }
        case OPT_DURATION:
                if (str_parse_duration_ms(value, &number) < 0 || number < 0)
                        return bad_value(what, value, "expected a duration like 30s, 5m, 1h30m",
                                         err);
                break;
        case OPT_MILLI:
                if (str_parse_milli(value, &number) < 0 || number < 0)
                        return bad_value(what, value, "expected cores like 0.5, 2 or 250m", err);
                break;
        case OPT_BYTES:
                if (str_parse_bytes(value, &number) < 0 || number < 0)
                        return bad_value(what, value, "expected a size like 64M, 1G or 1073741824",
                                         err);
                break;
        }
        *(int64_t *)to = number;
        return 0;
}

static int read_environment(struct reader *r, struct err *err)
{
        for (size_t t = 0; t < r->spec->n_tables; t++)
                for (size_t i = 0; i < r->spec->tables[t].n && !r->spec->tables[t].no_env; i++) {
                        const struct opt *o = &r->spec->tables[t].rows[i];
                        for (const char *p = o->env; p && *p;) {
                                size_t len = strcspn(p, ",");
                                const char *name = arena_strndup(r->arena, p, len);
                                const char *value =
                                    r->spec->getenv ? r->spec->getenv(name) : getenv(name);
                                if (!str_empty(value)) {
                                        int k = store_value(r, &r->spec->tables[t], o, value, name,
                                                            err);
                                        if (k < 0)
                                                return k;
                                        break; /* the first name that is set wins */
                                }
                                p += len + (p[len] == ',');
                        }
                }
        return 0;
}

/* words[*i] is a long option; *i moves on if the value is the next word. */
static int read_long(struct reader *r, const char *const *words, size_t n, size_t *i,
                     struct err *err)
{
        const char *name = words[*i] + 2, *equals = strchr(name, '=');
        size_t len = equals ? (size_t)(equals - name) : strlen(name);
        const struct opt_table *table = NULL;
        const struct opt *o = options_find(r->spec, name, len, &table);
        if (!o)
                return unknown_option(r, words[*i], len + 2, err);
        const char *what = fmt("--%s", o->name), *value = equals ? equals + 1 : NULL;
        if (!value && opt_takes_value(o)) {
                if (*i + 1 >= n || str_eq(words[*i + 1], "--"))
                        return err_set(err, ERR_INVALID, .msg = fmt("%s needs a value", what),
                                       .detail = fmt("%s %s", what, o->arg ? o->arg : "VALUE"));
                value = words[++*i];
        }
        return store_value(r, table, o, value, what, err);
}

/* words[*i] is one dash and one or more letters. */
static int read_short(struct reader *r, const char *const *words, size_t n, size_t *i,
                      struct err *err)
{
        for (const char *p = words[*i] + 1; *p; p++) {
                const struct opt_table *table = NULL;
                const struct opt *o = options_find_letter(r->spec, *p, &table);
                if (!o)
                        return p == words[*i] + 1
                                   ? unknown_option(r, words[*i], strlen(words[*i]), err)
                                   : err_set(
                                         err, ERR_INVALID,
                                         .msg = fmt("unknown option '-%c' in '%s'", *p, words[*i]));
                const char *what = fmt("-%c", *p), *value = NULL;
                if (!opt_takes_value(o) && p[1] != '=') {
                        int k = store_value(r, table, o, NULL, what, err);
                        if (k < 0)
                                return k;
                        continue;
                }
                if (p[1])
                        value = p + 1 + (p[1] == '=');
                else if (*i + 1 < n && !str_eq(words[*i + 1], "--"))
                        value = words[++*i];
                else
                        return err_set(err, ERR_INVALID, .msg = fmt("%s needs a value", what),
                                       .detail = fmt("%s %s", what, o->arg ? o->arg : "VALUE"));
                return store_value(r, table, o, value, what, err);
        }
        return 0;
}

int options_parse(const struct options_spec *spec, const char *const *words, size_t n,
                  struct arena *arena, struct args *ret_args, size_t *ret_used, struct err *err)
{
        struct reader r = { .spec = spec, .arena = arena };
        struct args args = { .at = arena_new_n(arena, const char *, n + 1),
                             .command = arena_new_n(arena, const char *, n + 1) };

        int k = read_environment(&r, err);
        if (k < 0)
                return k;
        size_t i = 0;
        for (; i < n; i++) {
                const char *w = words[i];
                if (str_eq(w, "--")) {
                        args.has_command = true;
                        i++;
                        break;
                }
                if (w[0] != '-' || w[1] == '\0') {
                        if (spec->stop_at_argument)
                                break;
                        args.at[args.n++] = w;
                        continue;
                }
                k = w[1] == '-' ? read_long(&r, words, n, &i, err)
                                : read_short(&r, words, n, &i, err);
                if (k < 0)
                        return k;
        }
        for (; i < n && args.has_command; i++)
                if (spec->takes_command)
                        args.command[args.n_command++] = words[i];
                else
                        args.at[args.n++] = words[i];
        *ret_args = args;
        if (ret_used)
                *ret_used = i;
        return 0;
}

static void opt_head(const struct opt *o, struct str *out)
{
        if (o->letter)
                str_addf(out, "  -%c, ", o->letter);
        else
                str_adds(out, "      ");
        str_addf(out, "--%s", o->name);
        const char *arg = o->arg ? o->arg : o->choices;
        if (o->kind == OPT_MAYBE)
                str_addf(out, "[=%s]", arg ? arg : "VALUE");
        else if (o->kind != OPT_FLAG)
                str_addf(out, " %s", arg ? arg : "VALUE");
}

void options_describe(const struct opt_table *table, struct str *out)
{
        size_t width = 0;
        for (size_t i = 0; i < table->n; i++) {
                _cleanup_(str_finip) struct str head = STR_INIT;
                opt_head(&table->rows[i], &head);
                if (table->rows[i].help && head.len > width && head.len <= 36)
                        width = head.len;
        }
        for (size_t i = 0; i < table->n; i++) {
                const struct opt *o = &table->rows[i];
                if (!o->help)
                        continue;
                _cleanup_(str_finip) struct str head = STR_INIT;
                opt_head(o, &head);
                if (head.len <= width)
                        str_addf(out, "%-*s  %s", (int)width, str_c(&head), o->help);
                else
                        str_addf(out, "%s\n%*s  %s", str_c(&head), (int)width, "", o->help);
                if (o->env)
                        str_addf(out, " [%s]", o->env);
                str_addc(out, '\n');
        }
}
