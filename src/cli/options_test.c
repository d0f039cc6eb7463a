/* cli/options_test.c: command lines, read. */
#include "cli/options.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct values {
        bool watch, tty;
        const char *output, *wait, *server;
        struct text_list labels;
        int64_t limit, timeout_ms, cpu_milli, memory_bytes;
};

static const struct opt rows[] = {
        OPT(struct values, OPT_FLAG, watch, .letter = 'w', .name = "watch", .help = "go on"),
        OPT(struct values, OPT_FLAG, tty, .letter = 't', .name = "tty", .help = "a terminal"),
        OPT(struct values, OPT_TEXT, output, .letter = 'o', .name = "output",
            .choices = "table|json", .help = "format"),
        OPT(struct values, OPT_MAYBE, wait, .name = "wait", .arg = "STATE", .help = "wait"),
        OPT(struct values, OPT_TEXT, server, .name = "server", .arg = "ADDR",
            .env = "BERTH_SERVER,OLD_SERVER", .help = "address"),
        OPT(struct values, OPT_LIST, labels, .letter = 'l', .name = "label", .arg = "K=V",
            .help = "label"),
        OPT(struct values, OPT_INT, limit, .letter = 'n', .name = "limit", .arg = "N", .min = 1,
            .max = 100, .env = "LIMIT", .help = "limit"),
        OPT(struct values, OPT_DURATION, timeout_ms, .name = "timeout", .arg = "D", .help = "time"),
        OPT(struct values, OPT_MILLI, cpu_milli, .name = "cpu", .arg = "CORES", .help = "cores"),
        OPT(struct values, OPT_BYTES, memory_bytes, .name = "memory", .arg = "SIZE",
            .help = "memory"),
};

static const char *env_server, *env_old, *env_limit;

static const char *fake_env(const char *name)
{
        return str_eq(name, "BERTH_SERVER") ? env_server
               : str_eq(name, "OLD_SERVER") ? env_old
               : str_eq(name, "LIMIT")      ? env_limit
                                            : NULL;
}

struct parsed {
        struct arena arena;
        struct values v;
        struct args args;
        struct err err;
        size_t used;
        int r;
};

static int setup(void **state)
{
        struct parsed *p = test_calloc(1, sizeof(*p));
        env_server = env_old = env_limit = NULL;
        *state = p;
        return 0;
}

static int teardown(void **state)
{
        struct parsed *p = *state;
        arena_fini(&p->arena);
        test_free(p);
        return 0;
}

static void parse(struct parsed *p, bool takes_command, bool stop, const char *const *words)
{
        size_t n = 0;
        while (words[n])
                n++;
        struct opt_table table = { .rows = rows, .n = ARRAY_LEN(rows), .values = &p->v };
        struct options_spec spec = { .tables = &table,
                                     .n_tables = 1,
                                     .takes_command = takes_command,
                                     .stop_at_argument = stop,
                                     .getenv = fake_env };
        p->r = options_parse(&spec, words, n, &p->arena, &p->args, &p->used, &p->err);
}
#define PARSE(p, ...)                                                                              \
        parse(p, false, false, (const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL })

static void options_and_arguments_come_in_any_order(void **state)
{
        struct parsed *p = *state;
        PARSE(p, "nodes", "-o", "json", "a", "--watch", "b", "--limit=7");
        assert_int_equal(p->r, 0);
        assert_int_equal(p->args.n, 3);
        assert_string_equal(p->args.at[0], "nodes");
        assert_string_equal(p->args.at[2], "b");
        assert_string_equal(p->v.output, "json");
        assert_true(p->v.watch);
        assert_int_equal(p->v.limit, 7);
}

static void values_come_after_a_space_an_equals_sign_or_nothing(void **state)
{
        struct parsed *p = *state;
        PARSE(p, "--output", "table", "-ojson", "-n=5", "-n9");
        assert_int_equal(p->r, 0);
        assert_string_equal(p->v.output, "json");
        assert_int_equal(p->v.limit, 9);
        PARSE(p, "--server=", "--label=a=b=c");
        assert_int_equal(p->r, 0);
        assert_string_equal(p->v.server, "");
        assert_string_equal(p->v.labels.at[0], "a=b=c");
}

static void flags_stand_together_and_can_be_denied(void **state)
{
        struct parsed *p = *state;
        PARSE(p, "-wt");
        assert_true(p->v.watch && p->v.tty);
        PARSE(p, "--watch=false", "-wto", "json");
        assert_int_equal(p->r, 0);
        assert_true(p->v.watch);
        PARSE(p, "--watch=false");
        assert_false(p->v.watch);
        PARSE(p, "--watch=perhaps");
        assert_int_equal(p->r, -ERR_INVALID);
}

static void two_dashes_end_the_options(void **state)
{
        struct parsed *p = *state;
        parse(p, true, false,
              (const char *const[]){ "hello", "-w", "--", "sh", "-c", "--watch", "--", NULL });
        assert_int_equal(p->r, 0);
        assert_int_equal(p->args.n, 1);
        assert_true(p->args.has_command);
        assert_int_equal(p->args.n_command, 4);
        assert_string_equal(p->args.command[1], "-c");
        assert_null(p->args.command[4]);
        PARSE(p, "a", "--", "-b"); /* a verb without a command: more arguments */
        assert_int_equal(p->args.n, 2);
        assert_string_equal(p->args.at[1], "-b");
}

static void a_lone_dash_is_an_argument(void **state)
{
        struct parsed *p = *state;
        PARSE(p, "-", "--server", "-");
        assert_int_equal(p->r, 0);
        assert_string_equal(p->args.at[0], "-");
        assert_string_equal(p->v.server, "-");
}

static void an_optional_value_is_taken_only_with_an_equals_sign(void **state)
{
        struct parsed *p = *state;
        PARSE(p, "--wait", "hello");
        assert_string_equal(p->v.wait, "");
        assert_int_equal(p->args.n, 1);
        PARSE(p, "--wait=Stopped");
        assert_string_equal(p->v.wait, "Stopped");
}

static void lists_keep_every_value_in_order(void **state)
{
        struct parsed *p = *state;
        PARSE(p, "-l", "a=1", "--label", "b=2", "-lc=3", "--label=d=4", "-l", "e=5");
        assert_int_equal(p->v.labels.n, 5);
        for (size_t i = 0; i < 5; i++)
                assert_int_equal(p->v.labels.at[i][0], "abcde"[i]);
}

/* R: A9 */
static void a_list_has_a_limit(void **state)
{
        struct parsed *p = *state;
        const char **words = test_calloc(OPTIONS_LIST_MAX + 2, sizeof(*words));
        for (size_t i = 0; i <= OPTIONS_LIST_MAX; i++)
                words[i] = "-lx=1";
        parse(p, false, false, words);
        assert_int_equal(p->r, -ERR_INVALID);
        words[OPTIONS_LIST_MAX] = NULL;
        memset(&p->v, 0, sizeof(p->v));
        parse(p, false, false, words);
        assert_int_equal(p->r, 0);
        assert_int_equal(p->v.labels.n, OPTIONS_LIST_MAX);
        test_free(words);
}

static void numbers_durations_cores_and_sizes_are_read_with_their_units(void **state)
{
        struct parsed *p = *state;
        PARSE(p, "--timeout", "1h30m", "--cpu", "0.5", "--memory", "64M");
        assert_int_equal(p->r, 0);
        assert_int_equal(p->v.timeout_ms, 5400000);
        assert_int_equal(p->v.cpu_milli, 500);
        assert_int_equal(p->v.memory_bytes, 64 << 20);
        PARSE(p, "--timeout", "250ms", "--cpu", "250m", "--memory", "1.5G");
        assert_int_equal(p->v.timeout_ms, 250);
        assert_int_equal(p->v.cpu_milli, 250);
        assert_int_equal(p->v.memory_bytes, 1536LL << 20);
}

/* R: A9 */
static void a_bad_value_is_named_with_what_was_expected(void **state)
{
        struct parsed *p = *state;
        static const char *const bad[][2] = { { "--timeout", "soon" }, { "--cpu", "many" },
                                              { "--memory", "-3" },    { "--limit", "x" },
                                              { "--limit", "101" },    { "--limit", "0" },
                                              { "-o", "xml" } };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                PARSE(p, bad[i][0], bad[i][1]);
                assert_int_equal(p->r, -ERR_INVALID);
                assert_non_null(strstr(p->err.msg, bad[i][1]));
                assert_non_null(strstr(p->err.msg, bad[i][0]));
                assert_non_null(strstr(p->err.detail, "expected"));
        }
}

static void a_missing_value_is_an_error(void **state)
{
        struct parsed *p = *state;
        PARSE(p, "a", "--output");
        assert_int_equal(p->r, -ERR_INVALID);
        assert_string_equal(p->err.msg, "--output needs a value");
        PARSE(p, "-o");
        assert_int_equal(p->r, -ERR_INVALID);
        PARSE(p, "--output", "--", "x");
        assert_int_equal(p->r, -ERR_INVALID);
}

/* R: A9 */
static void a_typo_gets_a_suggestion(void **state)
{
        struct parsed *p = *state;
        PARSE(p, "--outptu", "json");
        assert_int_equal(p->r, -ERR_INVALID);
        assert_string_equal(p->err.msg, "unknown option '--outptu'");
        assert_string_equal(p->err.hint, "did you mean --output?");
        PARSE(p, "--zzzzzzzz=3");
        assert_string_equal(p->err.msg, "unknown option '--zzzzzzzz'");
        assert_string_equal(p->err.hint, "");
        PARSE(p, "-wx");
        assert_int_equal(p->r, -ERR_INVALID);
        assert_non_null(strstr(p->err.msg, "-x"));
}

static void the_environment_gives_way_to_the_command_line(void **state)
{
        struct parsed *p = *state;
        env_old = "old:1";
        PARSE(p, "a");
        assert_string_equal(p->v.server, "old:1");
        env_server = "env:1"; /* the first of two names wins */
        PARSE(p, "a");
        assert_string_equal(p->v.server, "env:1");
        PARSE(p, "--server", "arg:1");
        assert_string_equal(p->v.server, "arg:1");
        env_limit = "1000";
        PARSE(p, "a");
        assert_int_equal(p->r, -ERR_INVALID);
        assert_non_null(strstr(p->err.msg, "LIMIT"));
}

static void options_before_the_verb_stop_at_it(void **state)
{
        struct parsed *p = *state;
        parse(p, false, true,
              (const char *const[]){ "--server", "x:1", "get", "--nonsense", NULL });
        assert_int_equal(p->r, 0);
        assert_int_equal(p->used, 2);
        assert_string_equal(p->v.server, "x:1");
}

static void the_help_lists_every_option_aligned(void **state)
{
        (void)state;
        static const struct opt few[] = {
                OPT(struct values, OPT_FLAG, watch, .letter = 'w', .name = "watch",
                    .help = "go on"),
                OPT(struct values, OPT_TEXT, server, .name = "server", .arg = "ADDR",
                    .env = "BERTH_SERVER", .help = "address"),
                OPT(struct values, OPT_MAYBE, wait, .name = "wait", .arg = "STATE", .help = "wait"),
                OPT(struct values, OPT_INT, limit, .name = "hidden"),
        };
        struct str out = STR_INIT;
        options_describe(&(struct opt_table){ .rows = few, .n = ARRAY_LEN(few) }, &out);
        assert_string_equal(str_c(&out), "  -w, --watch         go on\n"
                                         "      --server ADDR   address [BERTH_SERVER]\n"
                                         "      --wait[=STATE]  wait\n");
        str_fini(&out);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
        const struct CMUnitTest tests[] = {
                T(options_and_arguments_come_in_any_order),
                T(values_come_after_a_space_an_equals_sign_or_nothing),
                T(flags_stand_together_and_can_be_denied),
                T(two_dashes_end_the_options),
                T(a_lone_dash_is_an_argument),
                T(an_optional_value_is_taken_only_with_an_equals_sign),
                T(lists_keep_every_value_in_order),
                T(a_list_has_a_limit),
                T(numbers_durations_cores_and_sizes_are_read_with_their_units),
                T(a_bad_value_is_named_with_what_was_expected),
                T(a_missing_value_is_an_error),
                T(a_typo_gets_a_suggestion),
                T(the_environment_gives_way_to_the_command_line),
                T(options_before_the_verb_stop_at_it),
                T(the_help_lists_every_option_aligned),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
