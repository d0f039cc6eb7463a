/* cli/cli_test.c: whole command lines, as far as they need no server: what is printed where, and
 * the exit status. */
#include "base/file.h"
#include "cli/client.h"
#include "cli/verbs.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static FILE *out_file, *err_file;
static char out_text[65536], err_text[65536];

static void take(FILE *f, char *text, size_t size)
{
        rewind(f);
        size_t n = fread(text, 1, size - 1, f);
        text[n] = '\0';
        fclose(f);
}

static int run(const char *const *words)
{
        struct cli cli;
        size_t n = 0;
        while (words[n])
                n++;
        cli_init(&cli, "berth");
        out_file = tmpfile();
        err_file = tmpfile();
        cli.out = (struct term){ .fd = fileno(out_file) };
        cli.errs = (struct term){ .fd = fileno(err_file) };
        int status = cli_main(&cli, words, n);
        cli_fini(&cli);
        take(out_file, out_text, sizeof(out_text));
        take(err_file, err_text, sizeof(err_text));
        return status;
}
#define RUN(...) run((const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL })

static void no_words_give_the_help(void **state)
{
        (void)state;
        assert_int_equal(RUN(), 0);
        assert_non_null(strstr(out_text, "Usage: berth VERB"));
        assert_string_equal(err_text, "");
        assert_int_equal(RUN("--help"), 0);
        assert_int_equal(RUN("help"), 0);
}

/* R: A9 */
static void a_wrong_command_is_a_usage_error_with_a_suggestion(void **state)
{
        (void)state;
        assert_int_equal(RUN("gte", "nodes"), 2);
        assert_string_equal(err_text,
                            "error: unknown command 'gte'\nhint: did you mean berth get?\n");
        assert_string_equal(out_text, "");
}

/* R: A9 */
static void a_wrong_option_points_to_the_help(void **state)
{
        (void)state;
        assert_int_equal(RUN("get", "nodes", "--limit", "x"), 2);
        assert_string_equal(
            err_text,
            "error: bad value 'x' for --limit\n  expected a whole number\nhint: berth help get\n");
        assert_int_equal(RUN("get", "nodes", "--lmit", "3"), 2);
        assert_string_equal(err_text,
                            "error: unknown option '--lmit'\nhint: did you mean --limit?\n");
}

static void every_verb_explains_itself(void **state)
{
        (void)state;
        for (size_t i = 0; verbs[i]; i++) {
                if (verbs[i]->hidden || verbs[i]->raw)
                        continue;
                assert_int_equal(RUN(verbs[i]->name, "--help"), 0);
                assert_non_null(strstr(out_text, fmt("Usage: berth %s", verbs[i]->name)));
                for (size_t k = 0; k < verbs[i]->n_options; k++)
                        if (verbs[i]->options[k].help)
                                assert_non_null(
                                    strstr(out_text, fmt("--%s", verbs[i]->options[k].name)));
                if (verbs[i]->examples)
                        assert_non_null(strstr(out_text, "Examples\n"));
                assert_int_equal(RUN("help", verbs[i]->name), 0);
        }
}

/* Two options with one letter or name in one verb: the second could never be reached. */
static void no_verb_has_an_option_twice(void **state)
{
        (void)state;
        for (size_t i = 0; verbs[i]; i++) {
                const struct verb *v = verbs[i];
                size_t n = v->n_options + n_common_rows;
                for (size_t a = 0; a < n; a++)
                        for (size_t b = 0; b < a; b++) {
                                const struct opt *x = a < v->n_options
                                                          ? &v->options[a]
                                                          : &common_rows[a - v->n_options];
                                const struct opt *y = b < v->n_options
                                                          ? &v->options[b]
                                                          : &common_rows[b - v->n_options];
                                bool common_only_online =
                                    v->offline && (a >= v->n_options || b >= v->n_options);
                                if (x->letter && x->letter == y->letter)
                                        fail_msg("%s: -%c stands for %s and %s", v->name, x->letter,
                                                 x->name, y->name);
                                if (strcmp(x->name, y->name) == 0 && !common_only_online)
                                        fail_msg("%s: --%s is there twice", v->name, x->name);
                        }
        }
}

/* R: A9 */
static void a_server_that_is_away_is_retryable_and_says_what_was_tried(void **state)
{
        (void)state;
        assert_int_equal(RUN("get", "nodes", "--server", "127.0.0.1:1"), 6);
        assert_non_null(strstr(err_text, "error: cannot reach the server at 127.0.0.1:1\n"));
        assert_non_null(strstr(err_text, "address from --server\n"));
        assert_non_null(strstr(err_text, "hint: start one with ./run or `berth dev`, or set "
                                         "BERTH_SERVER=host:port (its gRPC address)\n"));
        assert_int_equal(RUN("--server", "127.0.0.1:1", "stop", "hello"), 6);
        setenv("BERTH_SERVER", "127.0.0.1:2", 1);
        assert_int_equal(RUN("cluster"), 6);
        assert_non_null(strstr(err_text, "127.0.0.1:2"));
        assert_non_null(strstr(err_text, "address from BERTH_SERVER\n"));
        /* the option wins, also before the verb */
        assert_int_equal(RUN("--server", "127.0.0.1:1", "cluster"), 6);
        assert_non_null(strstr(err_text, "127.0.0.1:1"));
        unsetenv("BERTH_SERVER");
}

static void the_address_comes_from_the_data_directory(void **state)
{
        (void)state;
        struct err err = { 0 };
        char dir[256];
        const char *tmp = getenv("TMPDIR"), *text = "http=127.0.0.1:3\ngrpc=127.0.0.1:4\n";
        (void)snprintf(dir, sizeof(dir), "%s/berth-cli-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(dir));
        assert_int_equal(
            file_write_atomic(fmt("%s/server.address", dir), text, strlen(text), 0600, &err), 0);
        setenv("BERTH_DATA", dir, 1);
        assert_int_equal(RUN("cluster"), 6);
        assert_non_null(strstr(err_text, "cannot reach the server at 127.0.0.1:4"));
        assert_non_null(strstr(err_text, "/server.address"));
        unsetenv("BERTH_DATA");
        dir_remove(dir, NULL);
        struct cli cli = { .common.server = "example" };
        assert_string_equal(client_address(&cli, NULL), "example:8085");
        cli.common.server = "[::1]";
        assert_string_equal(client_address(&cli, NULL), "[::1]:8085");
        arena_fini(&cli.arena);
}

/* R: A9 */
static void usage_is_checked_before_the_server_is_asked(void **state)
{
        (void)state;
        static const char *const bad[][6] = {
                { "run" },
                { "run", "x" },
                { "run", "x", "--env", "novalue", "--", "true" },
                { "run", "x", "--cpu", "lots", "--", "true" },
                { "apply" },
                { "get" },
                { "get", "pods" },
                { "get", "nodes", "--node", "x" },
                { "get", "workloads", "-l", "a=(" },
                { "stop" },
                { "stop", "node", "x" },
                { "exec", "x" },
                { "explain" },
                { "logs" },
                { "logs", "a", "b" },
                { "drain" },
                { "events", "extra" },
                { "events", "--type", "NodeLots" },
                { "delete" },
                { "delete", "x", "--all" },
                { "completion", "tcsh" },
                { "server", "--heartbeat", "1ms" },
                { "agent", "--nodes", "5" },
                { "dev", "--port", "70000" },
        };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                assert_int_equal(run(bad[i]), 2);
                assert_true(strncmp(err_text, "error: ", 7) == 0);
                assert_string_equal(out_text, "");
        }
}

/* R: A9 */
static void a_mistake_in_any_document_sends_nothing(void **state)
{
        (void)state;
        struct err err = { 0 };
        char path[] = "/tmp/berth-apply-XXXXXX";
        const char *text =
            "id: good\nspec: {command: [a]}\n---\nid: bad\nspec: {command: [a], colour: red}\n";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, &err), 0);
        /* The server is not there: a look at the file comes first, so the error is about the
         * file. */
        assert_int_equal(RUN("apply", "-f", path, "--server", "127.0.0.1:1"), 2);
        assert_non_null(strstr(err_text, "colour"));
        text = "id: twice\nspec: {command: [a]}\n---\nid: twice\nspec: {command: [b]}\n";
        assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, &err), 0);
        assert_int_equal(RUN("apply", "-f", path, "--server", "127.0.0.1:1"), 2);
        assert_non_null(strstr(err_text, "is there twice"));
        assert_int_equal(RUN("apply", "-f", "/nonexistent/file"), 2);
        close(fd);
        unlink(path);
}

static void the_man_page_is_what_the_table_says(void **state)
{
        (void)state;
        struct str page = STR_INIT, file = STR_INIT;
        man_page(&page);
        for (size_t i = 0; verbs[i]; i++)
                if (!verbs[i]->hidden)
                        assert_non_null(strstr(str_c(&page), fmt(".SS berth %s", verbs[i]->name)));
        assert_int_equal(file_read(MAN_PAGE, 1 << 20, &file, NULL), 0);
        if (strcmp(str_c(&file), str_c(&page)) != 0)
                fail_msg("packaging/berth.1 is out of date: build/berth __man > packaging/berth.1");
        str_fini(&page);
        str_fini(&file);
}

static void completion_scripts_name_the_hidden_verb(void **state)
{
        (void)state;
        static const char *const shells[] = { "bash", "zsh", "fish" };
        for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
                assert_int_equal(RUN("completion", shells[i]), 0);
                assert_non_null(strstr(out_text, "__complete"));
        }
}

static void versions_do_not_need_a_server(void **state)
{
        (void)state;
        assert_int_equal(RUN("--version"), 0);
        assert_non_null(strstr(out_text, "berth " BERTH_VERSION "\n"));
        assert_int_equal(RUN("version", "--server", "127.0.0.1:1"), 0);
        assert_int_equal(RUN("version", "--client"), 0);
        assert_string_equal(out_text, "berth " BERTH_VERSION "\n");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(no_words_give_the_help),
                cmocka_unit_test(a_wrong_command_is_a_usage_error_with_a_suggestion),
                cmocka_unit_test(a_wrong_option_points_to_the_help),
                cmocka_unit_test(every_verb_explains_itself),
                cmocka_unit_test(no_verb_has_an_option_twice),
                cmocka_unit_test(a_server_that_is_away_is_retryable_and_says_what_was_tried),
                cmocka_unit_test(the_address_comes_from_the_data_directory),
                cmocka_unit_test(usage_is_checked_before_the_server_is_asked),
                cmocka_unit_test(a_mistake_in_any_document_sends_nothing),
                cmocka_unit_test(the_man_page_is_what_the_table_says),
                cmocka_unit_test(completion_scripts_name_the_hidden_verb),
                cmocka_unit_test(versions_do_not_need_a_server),
        };
        unsetenv("BERTH_SERVER");
        setenv("BERTH_DATA", "/nonexistent", 1);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
