/* tests/restore_cuts.c: `restore --force` on the embedded store, killed before each of its system calls, and with each of
 * them failing: what is there afterwards is the old store or the new one, whole, and never nothing. R: A5 A9. Line E4
 *
 * The old store is one whose server was killed: most of it is in its log. The process that restores is a child that this
 * one traces, and ends at the n-th entry into the kernel, for every n until it has come to its end.
 */
#include "fault_point.h"

#include "base/err.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define OLD_HEAD 3
#define NEW_HEAD 5
#define CUTS_MAX 20000

static char top[256];
static struct err err;

static const char *in(const char *dir, const char *name)
{
        return fmt("%s/%s/%s", top, dir, name);
}

/* ---- stores ---- */

/* Every event with a record of its own. */
static int commit_up_to(struct store *s, uint64_t head, const char *value)
{
        for (uint64_t n = store_head(s) + 1; n <= head; n++) {
                char key[32];
                snprintf(key, sizeof(key), "/k/%llu", (unsigned long long)n);
                struct store_event event = { n, value, strlen(value) };
                struct store_record record = { key, value, strlen(value) };
                struct store_batch b = { n - 1, n, &event, 1, &record, 1 };
                int r = store_commit(s, &b, &err);
                if (r < 0)
                        return r;
        }
        return 0;
}

struct seen {
        unsigned old, new;
};

static int see(void *ctx, const struct store_record *r, struct err *e)
{
        struct seen *seen = ctx;
        (void)e;
        seen->old += r->len == 3 && memcmp(r->data, "old", 3) == 0;
        seen->new += r->len == 3 && memcmp(r->data, "new", 3) == 0;
        return 0;
}

/* Whose it is; what a server that starts on it finds. */
static uint64_t head_of(const char *path)
{
        struct store *s;
        struct seen seen = { 0 };
        uint64_t head = 0;
        err = (struct err){ 0 };
        if (store_open(path, true, &s, &err) < 0 || store_load(s, see, &seen, &head, &err) < 0 || store_integrity(s, &err) < 0)
                fail_msg("%s: %s", path, err_line(&err));
        store_close(s);
        if (!(head == OLD_HEAD && seen.old == OLD_HEAD && seen.new == 0) && !(head == NEW_HEAD && seen.new == NEW_HEAD &&seen.old == 0))
                fail_msg("%s is neither store: head %llu, %u old and %u new records", path, (unsigned long long)head, seen.old, seen.new);
        return head;
}

/* As `berth restore --force` does it. */
static int restore(const char *path)
{
        struct store *to;
        err = (struct err){ 0 };
        int r = store_restore_open(path, true, &to, &err);
        if (r < 0)
                return r;
        r = commit_up_to(to, NEW_HEAD, "new");
        if (r < 0)
                store_close(to);
        else
                r = store_restore_done(to, NULL, &err);
        return r;
}

/* A store whose process is killed: what it committed is in its log. */
static void make_old(void)
{
        assert_int_equal(mkdir(in("old", ""), 0700), 0);
        pid_t pid = fork();
        if (pid == 0) {
                struct store *s;
                bool ok = store_open(in("old", "berth.db"), true, &s, &err) == 0 && commit_up_to(s, OLD_HEAD, "old") == 0;
                _exit(ok ? 0 : 1);
        }
        int status;
        assert_true(waitpid(pid, &status, 0) == pid && status == 0);
        struct stat log;
        assert_int_equal(stat(in("old", "berth.db-wal"), &log), 0);
        assert_true(log.st_size > 4096);
}

static void copy_old(const char *dir)
{
        assert_int_equal(system(fmt("rm -rf %s/%s && cp -a %s/old %s/%s", top, dir, top, top, dir)), 0);
}

/* ---- what must be so after each ---- */

/* The old one is kept in any case: where it was, or aside. Names of one file are not two stores. */
static void check(const char *dir, bool told_done, const char *what)
{
        _cleanup_(mem_freep) char *path = mem_strdup(in(dir, "berth.db"));
        struct stat st, other;
        if (stat(path, &st) < 0)
                fail_msg("%s: there is no store", what);
        uint64_t head = head_of(path);
        if (told_done && head != NEW_HEAD)
                fail_msg("%s: told that it is done, and the old one is there", what);
        DIR *d = opendir(in(dir, ""));
        bool kept = head == OLD_HEAD;
        for (struct dirent *e; (e = readdir(d));) {
                _cleanup_(mem_freep) char *name = mem_strdup(in(dir, e->d_name));
                if (!str_starts(e->d_name, "berth.db.before-") || strchr(e->d_name + 16, '.') || strstr(e->d_name, "-wal") ||
                    strstr(e->d_name, "-shm"))
                        continue;
                assert_int_equal(stat(name, &other), 0);
                if (other.st_ino != st.st_ino)
                        kept |= head_of(name) == OLD_HEAD;
        }
        closedir(d);
        if (!kept)
                fail_msg("%s: the old store is gone", what);
        /* and it can be done again */
        if (restore(path) < 0)
                fail_msg("%s: again: %s", what, err_line(&err));
        assert_int_equal(head_of(path), NEW_HEAD);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_nlink, 1);
}

/* ---- killed ---- */

/* 1: it came to its end; 0: it was killed at its n-th call; -1: nobody may trace here. */
static int run_until(const char *path, unsigned n)
{
        pid_t pid = fork();
        if (pid == 0) {
                if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
                        _exit(77);
                raise(SIGSTOP);
                _exit(restore(path) < 0 ? 1 : 0);
        }
        int status;
        unsigned stops = 0;
        assert_true(waitpid(pid, &status, 0) == pid);
        if (!WIFSTOPPED(status) || ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) < 0)
                return -1;
        for (int signal_number = 0;;) {
                ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal_number);
                assert_true(waitpid(pid, &status, 0) == pid);
                if (!WIFSTOPPED(status))
                        break;
                signal_number = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
                if (!signal_number && stops++ % 2 == 0 && stops / 2 + 1 == n) { /* before it is made */
                        kill(pid, SIGKILL);
                        waitpid(pid, &status, 0);
                        return 0;
                }
        }
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return 1;
}

static void killed_before_any_of_its_system_calls(void **state)
{
        (void)state;
        _cleanup_(mem_freep) char *path = mem_strdup(in("cut", "berth.db"));
        unsigned n = 1;
        int r = 0;
        for (; n < CUTS_MAX && r == 0; n++) {
                copy_old("cut");
                r = run_until(path, n);
                if (r < 0) {
                        print_message("# nobody may trace a process here: not tried\n");
                        skip();
                }
                check("cut", r == 1, fmt("killed before call %u", n));
        }
        assert_int_equal(r, 1);
        assert_true(n > 100);
        print_message("# killed before each of %u system calls\n", n - 2);
}

/* ---- failing ---- */

static void with_any_of_its_system_calls_failing(void **state)
{
        (void)state;
        unsigned n = 1;
        for (bool fired = true; fired; n++) {
                copy_old("fail");
                _cleanup_(mem_freep) char *path = mem_strdup(in("fail", "berth.db"));
                pid_t pid = fork();
                if (pid == 0) {
                        fault_arm(FAULT_CALL, n);
                        int r = restore(path);
                        bool did = fault_disarm() != NULL;
                        _exit((r < 0 ? 1 : 0) | (did ? 2 : 0));
                }
                int status;
                assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
                fired = WEXITSTATUS(status) & 2;
                check("fail", !(WEXITSTATUS(status) & 1), fmt("call %u failed", n));
        }
        assert_true(n > 30);
        print_message("# each of %u system calls failed\n", n - 2);
}

/* ---- what is no store ---- */

static void overwrite(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
        close(fd);
}

static unsigned count_aside(const char *dir, const char *tail, off_t least)
{
        struct stat st;
        unsigned n = 0;
        DIR *d = opendir(in(dir, ""));
        for (struct dirent *e; (e = readdir(d));) {
                size_t len = strlen(e->d_name), skip = strlen(tail);
                n += str_starts(e->d_name, "berth.db.before-") && len > skip && strcmp(e->d_name + len - skip, tail) == 0 &&
                     stat(in(dir, e->d_name), &st) == 0 && st.st_size >= least;
        }
        closedir(d);
        return n;
}

/* A damaged one makes way as well; a log without its store is kept, and does not get into the new one. */
static void what_cannot_be_folded_is_kept_as_it_is(void **state)
{
        static const char noise[] =
            "this is neither a database nor the log of one, whatever its name says: nobody can read it, and it is longer than "
            "the head of either of them";
        (void)state;
        for (int without = 0; without < 2; without++) {
                copy_old("bad");
                _cleanup_(mem_freep) char *path = mem_strdup(in("bad", "berth.db"));
                if (without)
                        assert_int_equal(unlink(path), 0);
                else {
                        overwrite(path, noise);
                        overwrite(in("bad", "berth.db-wal"), noise);
                }
                if (restore(path) < 0)
                        fail_msg("%s", err_line(&err));
                assert_int_equal(head_of(path), NEW_HEAD);
                assert_int_equal(count_aside("bad", without ? "-wal" : "", 4096), 1);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(killed_before_any_of_its_system_calls),
                cmocka_unit_test(with_any_of_its_system_calls_failing),
                cmocka_unit_test(what_cannot_be_folded_is_kept_as_it_is),
        };
        /* Nothing here depends on what a disk keeps, and syncs are most of what it costs. */
        const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
        snprintf(top, sizeof(top), "%s/restore-cuts-XXXXXX", tmp ? tmp : "/tmp");
        must(mkdtemp(top) != NULL, "a temporary folder");
        make_old();
        int failed = cmocka_run_group_tests(tests, NULL, NULL);
        (void)dir_remove(top, NULL);
        return failed;
}
