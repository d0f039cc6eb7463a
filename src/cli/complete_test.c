/* cli/complete_test.c: what the shells are offered. */
#include "cli/complete.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void fake_names(void *ctx, char kind, const char *prefix, struct str *out)
{
        (void)ctx;
        str_addf(out, "%c:%s\n", kind, prefix);
}

static const char *complete(struct str *out, const char *const *words)
{
        size_t n = 0;
        while (words[n])
                n++;
        str_clear(out);
        complete_words(words, n, fake_names, NULL, out);
        return str_c(out);
}
#define COMPLETE(...) complete(&out, (const char *const[]){ __VA_ARGS__, NULL })

static void verbs_come_first(void **state)
{
        struct str out = STR_INIT;
        (void)state;
        assert_string_equal(COMPLETE("ap"), "apply\tmake or change workloads from a file\n");
        assert_non_null(strstr(COMPLETE(""), "\nget\t"));
        assert_null(strstr(COMPLETE(""), "__"));
        assert_string_equal(COMPLETE("--server", "x:1", "vers"),
                            "version\tversions of this command and of the server\n");
        assert_string_equal(COMPLETE("nonsense", ""), "");
        str_fini(&out);
}

static void options_and_their_values(void **state)
{
        struct str out = STR_INIT;
        (void)state;
        assert_string_equal(COMPLETE("get", "--no-h"),
                            "--no-headers\tleave out the table's header\n");
        assert_string_equal(COMPLETE("get", "nodes", "-o", "j"), "json\n");
        assert_string_equal(COMPLETE("get", "--output=y"), "--output=yaml\n");
        /* as bash splits it */
        assert_string_equal(COMPLETE("get", "--output", "=", "y"), "yaml\n");
        assert_string_equal(COMPLETE("get", "--output", "="), "table\nwide\njson\nyaml\nname\n");
        assert_string_equal(COMPLETE("apply", "-f", ""), ":files\n");
        assert_string_equal(COMPLETE("get", "workloads", "--node", "n"), "n:n\n");
        assert_non_null(strstr(COMPLETE("stop", "--"), "--server\t"));
        str_fini(&out);
}

static void arguments_are_names_of_the_right_kind(void **state)
{
        struct str out = STR_INIT;
        (void)state;
        assert_string_equal(COMPLETE("stop", "he"), "w:he\n");
        assert_string_equal(COMPLETE("stop", "a", "--wait", "b"), "w:b\n");
        assert_string_equal(COMPLETE("drain", ""), "n:\n");
        assert_string_equal(COMPLETE("get", "n"), "nodes\n");
        assert_string_equal(COMPLETE("get", "nodes", "x"), "n:x\n");
        assert_string_equal(COMPLETE("describe", "wl", "x"), "w:x\n");
        assert_string_equal(COMPLETE("delete", "node", "x"), "n:x\n");
        assert_string_equal(COMPLETE("help", "expl"),
                            "explain\twhy a workload is where it is, or nowhere\n");
        assert_string_equal(COMPLETE("completion", ""), "bash\nzsh\nfish\n");
        assert_string_equal(COMPLETE("completion", "bash", ""), "");
        str_fini(&out);
}

static void after_two_dashes_comes_a_command(void **state)
{
        struct str out = STR_INIT;
        (void)state;
        assert_string_equal(COMPLETE("run", "x", "--", "--he"), ":files\n");
        assert_string_equal(COMPLETE("stop", "--", "x"), "");
        str_fini(&out);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(verbs_come_first),
                cmocka_unit_test(options_and_their_values),
                cmocka_unit_test(arguments_are_names_of_the_right_kind),
                cmocka_unit_test(after_two_dashes_comes_a_command),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
