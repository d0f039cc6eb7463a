/* cli/children_test.c: the processes of `berth dev`. The children are this test itself, run again
 * with another first word. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/children.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct bench {
        char dir[256];
        struct cli cli;
        struct progress progress;
        struct children children;
};

static int setup(void **state)
{
        struct bench *b = test_calloc(1, sizeof(*b));
        const char *tmp = getenv("TMPDIR");
        (void)snprintf(b->dir, sizeof(b->dir), "%s/berth-children-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(b->dir));
        cli_init(&b->cli, "berth");
        b->cli.quiet = true;
        progress_init(&b->progress, &b->cli);
        children_init(&b->children, b->dir, &b->progress);
        *state = b;
        return 0;
}

static int teardown(void **state)
{
        struct bench *b = *state;
        children_stop(&b->children, 0, b->children.n, 1000, 100);
        dir_remove(b->dir, NULL);
        cli_fini(&b->cli);
        test_free(b);
        return 0;
}

static struct child *start(struct bench *b, const char *name, const char *mode)
{
        struct err err = { 0 };
        struct child *c = children_add(&b->children, &b->cli.arena, name,
                                       (const char *const[]){ "test", mode, NULL });
        assert_int_equal(child_start(&b->children, c, &err), 0);
        return c;
}

/* Until the child's log holds a line: it is ready. */
static void await_log(struct bench *b, const char *name)
{
        for (int i = 0; i < 6000; i++) {
                struct str text = STR_INIT;
                (void)file_read(fmt("%s/%s.log", b->dir, name), 65536, &text, NULL);
                bool ready = strstr(str_c(&text), "ready") != NULL;
                str_fini(&text);
                if (ready)
                        return;
                (void)poll(NULL, 0, 10);
        }
        fail_msg("%s never became ready", name);
}

static void children_stop_on_sigterm_and_stay_stopped(void **state)
{
        struct bench *b = *state;
        struct child *c = start(b, "node-1", "sleep");
        await_log(b, "node-1");
        assert_int_equal(children_stop(&b->children, 0, 1, 10000, 100), 0);
        assert_int_equal(c->pid, 0);
        assert_true(WIFSIGNALED(c->status));
        assert_string_equal(child_end_words(c->status), "signal 15 (Terminated)");
}

static void a_stubborn_child_is_killed_when_patience_ends(void **state)
{
        struct bench *b = *state;
        start(b, "node-1", "stubborn");
        await_log(b, "node-1");
        assert_int_equal(children_stop(&b->children, 0, 1, 200, 100), 1);
}

static void a_second_interrupt_hurries(void **state)
{
        struct bench *b = *state;
        start(b, "node-1", "stubborn");
        await_log(b, "node-1");
        kill(getpid(), SIGINT); /* blocked: taken by children_wait */
        int64_t begin = clock_mono_ns();
        assert_int_equal(children_stop(&b->children, 0, 1, 60000, 100), 1);
        assert_true(clock_mono_ns() - begin < INT64_C(20000000000));
        assert_int_equal(b->children.interrupts, 1);
}

static void a_child_that_ends_by_itself_is_started_again_with_back_off(void **state)
{
        struct bench *b = *state;
        struct child *c = start(b, "node-1", "fail");
        pid_t first = c->pid;
        while (c->ends == 0)
                children_wait(&b->children, 1000);
        assert_int_equal(WEXITSTATUS(c->status), 3);
        assert_int_equal(c->pid, 0);
        assert_int_equal(c->backoff_ms, 2000); /* the next one; this one is 1 s */
        while (c->ends == 1)
                children_wait(&b->children, 5000);
        assert_int_not_equal(c->pid, first);
        assert_int_equal(c->backoff_ms, 4000);
}

static void what_an_earlier_dev_left_behind_is_ended(void **state)
{
        struct bench *b = *state;
        struct err err = { 0 };
        struct child *c = start(b, "node-1", "sleep");
        pid_t pid = c->pid;
        await_log(b, "node-1");
        assert_true(process_start_time(pid) > 0);
        assert_int_equal(children_clear_leftovers(b->dir, &b->progress, &err), 0);
        c->stop = true;
        while (c->pid)
                children_wait(&b->children, 1000);
        assert_int_equal(process_start_time(pid), 0);
}

static void a_pid_that_is_somebody_elses_by_now_is_left_alone(void **state)
{
        struct bench *b = *state;
        struct err err = { 0 };
        struct child *c = start(b, "node-1", "sleep");
        await_log(b, "node-1");
        const char *line = fmt("%d %llu node-1\n", (int)c->pid,
                               (unsigned long long)process_start_time(c->pid) + 1);
        assert_int_equal(
            file_write_atomic(fmt("%s/dev.children", b->dir), line, strlen(line), 0600, &err), 0);
        assert_int_equal(children_clear_leftovers(b->dir, &b->progress, &err), 0);
        assert_true(process_start_time(c->pid) > 0);
}

/* The kernel ends them: a dev that is killed leaves nobody behind. */
static void children_die_with_their_parent(void **state)
{
        struct bench *b = *state;
        pid_t middle = fork();
        if (middle == 0) {
                struct err err = { 0 };
                /* a test that fails leaves nobody behind either */
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                struct child *c = children_add(&b->children, &b->cli.arena, "node-1",
                                               (const char *const[]){ "test", "sleep", NULL });
                _exit(child_start(&b->children, c, &err) < 0 ? 1 : (pause(), 0));
        }
        await_log(b, "node-1");
        struct str list = STR_INIT;
        /* the child may write its log before the one that started it has written down its pid */
        for (int i = 0;
             i < 3000 && file_read(fmt("%s/dev.children", b->dir), 4096, &list, NULL) < 0; i++)
                (void)poll(NULL, 0, 10);
        pid_t pid = atoi(str_c(&list));
        str_fini(&list);
        if (pid <= 1)
                kill(middle, SIGKILL); /* or it would hold the test's output open for ever */
        assert_true(pid > 1);
        kill(middle, SIGKILL);
        assert_int_equal(waitpid(middle, NULL, 0), middle);
        for (int i = 0; i < 6000 && process_start_time(pid); i++)
                (void)poll(NULL, 0, 10);
        assert_int_equal(process_start_time(pid), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(int argc, char **argv)
{
        if (argc > 1) {
                if (strcmp(argv[1], "fail") == 0)
                        return 3;
                if (strcmp(argv[1], "stubborn") == 0)
                        (void)signal(SIGTERM, SIG_IGN);
                (void)!write(1, "ready\n", 6);
                for (;;)
                        pause();
        }
        const struct CMUnitTest tests[] = {
                T(children_stop_on_sigterm_and_stay_stopped),
                T(a_stubborn_child_is_killed_when_patience_ends),
                T(a_second_interrupt_hurries),
                T(a_child_that_ends_by_itself_is_started_again_with_back_off),
                T(what_an_earlier_dev_left_behind_is_ended),
                T(a_pid_that_is_somebody_elses_by_now_is_left_alone),
                T(children_die_with_their_parent),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
