/* tests/restore_cuts.c: `restore --force` on the embedded store, killed before each of its system
 * calls, and with each of them failing: what is there afterwards is the old store or the new one,
 * whole, and never nothing. R: A5 A9. Line E4
 *
 * The old store is one whose server was killed: most of it is in its log. The process that restores
 * is a child that this one traces, and ends at the n-th entry into the kernel, for every n until it
 * has come to its end.
 *
 * Whoever was interrupted tries again, and may be interrupted again: for each state of the folder
 * that a cut leaves, a second restore is cut at each of its calls as well. This is done with a
 * sound store and with a damaged one, which keeps its log beside it, byte for byte.
 */
#include "fault_point.h"

#include "base/err.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/map.h"
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
                struct store_batch b = { n - 1, n, &event, 1, &record, 1, 0 };
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
        if (store_open(path, true, &s, &err) < 0 || store_load(s, see, &seen, &head, &err) < 0 ||
            store_integrity(s, &err) < 0)
                fail_msg("%s: %s", path, err_line(&err));
        store_close(s);
        if (!(head == OLD_HEAD && seen.old == OLD_HEAD && seen.new == 0) &&
            !(head == NEW_HEAD && seen.new == NEW_HEAD &&seen.old == 0))
                fail_msg("%s is neither store: head %llu, %u old and %u new records", path,
                         (unsigned long long)head, seen.old, seen.new);
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
                bool ok = store_open(in("old", "berth.db"), true, &s, &err) == 0 &&
                          commit_up_to(s, OLD_HEAD, "old") == 0;
                _exit(ok ? 0 : 1);
        }
        int status;
        assert_true(waitpid(pid, &status, 0) == pid && status == 0);
        struct stat log;
        assert_int_equal(stat(in("old", "berth.db-wal"), &log), 0);
        assert_true(log.st_size > 4096);
}

static void copy(const char *from, const char *to)
{
        assert_int_equal(
            system(fmt("rm -rf %s/%s && cp -a %s/%s %s/%s", top, to, top, from, top, to)), 0);
}

static void copy_old(const char *dir)
{
        copy("old", dir);
}

static void overwrite(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
        close(fd);
}

/* Neither it nor its log can be read; of the rest of both, somebody may still find something. */
static void make_bad(const char *dir)
{
        static const char noise[] = "this is neither a database nor the log of one, whatever its "
                                    "name says: nobody can read it, and it is longer than "
                                    "the head of either of them";
        copy_old(dir);
        overwrite(in(dir, "berth.db"), noise);
        overwrite(in(dir, "berth.db-wal"), noise);
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
                if (!str_starts(e->d_name, "berth.db.before-") || strchr(e->d_name + 16, '.') ||
                    strstr(e->d_name, "-wal") || strstr(e->d_name, "-shm"))
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

/* Stopped before its first call; negative: nobody may trace here. */
static pid_t start_traced(const char *path)
{
        pid_t pid = fork();
        if (pid == 0) {
                if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
                        _exit(77);
                raise(SIGSTOP);
                _exit(restore(path) < 0 ? 1 : 0);
        }
        int status;
        assert_true(waitpid(pid, &status, 0) == pid);
        if (!WIFSTOPPED(status) || ptrace(PTRACE_SETOPTIONS, pid, NULL,
                                          (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) < 0)
                return -1;
        return pid;
}

/* Goes on, with this signal, until it stops at a call or a signal. False: it has ended. */
static bool is_stopped_again(pid_t pid, int signal_number, int *ret_status)
{
        ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal_number);
        assert_true(waitpid(pid, ret_status, 0) == pid);
        return WIFSTOPPED(*ret_status);
}

/* 1: it came to its end; 0: it was killed at its n-th call; -1: nobody may trace here. */
static int run_until(const char *path, unsigned n)
{
        int status;
        unsigned stops = 0;
        pid_t pid = start_traced(path);
        if (pid < 0)
                return -1;
        for (int signal_number = 0; is_stopped_again(pid, signal_number, &status);) {
                signal_number = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
                /* before it is made */
                if (!signal_number && stops++ % 2 == 0 && stops / 2 + 1 == n) {
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

/* ---- killed, and killed again ---- */

static uint64_t bytes_hash(const char *path)
{
        struct str text = STR_INIT;
        if (file_read(path, SIZE_MAX / 2, &text, &err) < 0)
                return 0;
        uint64_t hash = hash64(str_c(&text), text.len);
        str_fini(&text);
        return hash;
}

static bool ends(const char *name, const char *tail)
{
        size_t len = strlen(name), n = strlen(tail);
        return len >= n && strcmp(name + len - n, tail) == 0;
}

static bool is_aside(const char *name)
{
        return str_starts(name, "berth.db.before-");
}

/* What lies in a folder, as far as the next restore can tell one from another: of what was being
 * made, that it is there. Names of times, and numbers of files, are none of it. */
static uint64_t state_of(const char *dir)
{
        uint64_t hash = 0;
        struct stat st, store = { 0 };
        (void)stat(in(dir, "berth.db"), &store);
        DIR *d = opendir(in(dir, ""));
        for (struct dirent *e; (e = readdir(d));) {
                if (e->d_name[0] == '.' || ends(e->d_name, ".lock"))
                        continue;
                bool is_new = str_starts(e->d_name, "berth.db.restoring"),
                     aside = is_aside(e->d_name), log = ends(e->d_name, "-wal");
                _cleanup_(mem_freep) char *path = mem_strdup(in(dir, e->d_name));
                assert_int_equal(stat(path, &st), 0);
                uint64_t one = aside ? hash64(log ? "aside-wal" : "aside", log ? 9 : 5)
                                     : hash64(e->d_name, strlen(e->d_name));
                if (!is_new && !ends(e->d_name, "-shm")) {
                        one = hash64_mix(one, bytes_hash(path));
                        one = hash64_mix(one,
                                         (uint64_t)(st.st_ino == store.st_ino) << 32 | st.st_nlink);
                }
                hash += one; /* in whatever order they come */
        }
        closedir(d);
        return hash;
}

/* The damaged store and its log are one pair of names, whatever else is there: what is kept of one
 * is of no use without the other. */
static void check_pair(const char *dir, const char *what)
{
        uint64_t store = bytes_hash(in("bad", "berth.db")),
                 log = bytes_hash(in("bad", "berth.db-wal"));
        unsigned pairs = 0;
        DIR *d = opendir(in(dir, ""));
        for (struct dirent *e; (e = readdir(d));) {
                _cleanup_(mem_freep) char *name = mem_strdup(e->d_name),
                                          *path = mem_strdup(in(dir, name));
                if (is_aside(name) && ends(name, "-wal") && bytes_hash(path) == log) {
                        name[strlen(name) - 4] = 0;
                        if (bytes_hash(in(dir, name)) != store)
                                fail_msg("%s: %s is the log of nothing", what, e->d_name);
                } else if ((is_aside(name) || str_eq(name, "berth.db")) && !ends(name, "-wal") &&
                           !ends(name, "-shm"))
                        pairs +=
                            bytes_hash(path) == store && bytes_hash(fmt("%s-wal", path)) == log;
        }
        closedir(d);
        if (pairs == 0)
                fail_msg("%s: the old store is not there with its log", what);
}

/* A store that is not with its log is opened by nobody; a new one is whole. */
static void check_bad(const char *dir, bool told_done, const char *what)
{
        _cleanup_(mem_freep) char *path = mem_strdup(in(dir, "berth.db"));
        struct stat st;
        struct store *s;
        check_pair(dir, what);
        if (stat(path, &st) < 0)
                fail_msg("%s: there is no store", what);
        bool is_old = bytes_hash(path) == bytes_hash(in("bad", "berth.db"));
        if (is_old && told_done)
                fail_msg("%s: told that it is done, and the old one is there", what);
        if (!is_old)
                assert_int_equal(head_of(path), NEW_HEAD);
        else if (!file_exists(in(dir, "berth.db-wal"))) {
                err = (struct err){ 0 };
                if (store_open(path, true, &s, &err) >= 0 ||
                    !strstr(err.msg, "a restore was interrupted"))
                        fail_msg("%s: opened without its log: %s", what, err_line(&err));
                check_pair(dir, what);
        }
        /* and it can be done again */
        if (restore(path) < 0)
                fail_msg("%s: again: %s", what, err_line(&err));
        assert_int_equal(head_of(path), NEW_HEAD);
        check_pair(dir, what);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_nlink, 1);
}

/* A restore of what is in `from`, in `dir`: before each of its system calls, and after the last,
 * the folder is looked at, and each state of it that is new is copied and given to fn: what a
 * process that is killed there leaves. */
struct cuts {
        const char *old;  /* of what flavour it is */
        const char *snap; /* where copies go */
        void (*fn)(const struct cuts *cuts, unsigned call, bool done);
        unsigned first; /* of the second restore: where the first was cut */
        uint64_t seen[256];
        unsigned n_seen;
        unsigned n_below; /* states of second restores */
};

static void look(struct cuts *cuts, const char *dir, unsigned call, bool done)
{
        uint64_t state = hash64_mix(state_of(dir), done);
        for (unsigned i = 0; i < cuts->n_seen; i++)
                if (cuts->seen[i] == state)
                        return;
        assert_true(cuts->n_seen < ARRAY_LEN(cuts->seen));
        cuts->seen[cuts->n_seen++] = state;
        copy(dir, cuts->snap);
        cuts->fn(cuts, call, done);
}

static void look_at_each_call(struct cuts *cuts, const char *from, const char *dir)
{
        _cleanup_(mem_freep) char *path = mem_strdup(in(dir, "berth.db"));
        int status;
        unsigned stops = 0;
        copy(from, dir);
        pid_t pid = start_traced(path);
        if (pid < 0) {
                print_message("# nobody may trace a process here: not tried\n");
                skip();
        }
        for (int signal_number = 0; is_stopped_again(pid, signal_number, &status);) {
                signal_number = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
                if (!signal_number && stops++ % 2 == 0)
                        look(cuts, dir, stops / 2 + 1, false);
        }
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        look(cuts, dir, stops / 2 + 1, true);
}

static void cut_twice(const struct cuts *cuts, unsigned call, bool done)
{
        _cleanup_(mem_freep) char *what = mem_strdup(
            fmt("%s: cut before call %u, and then before call %u", cuts->old, cuts->first, call));
        (str_eq(cuts->old, "bad") ? check_bad : check)(cuts->snap, done, what);
}

static void cut_once(const struct cuts *cuts, unsigned call, bool done)
{
        struct cuts second = { .old = cuts->old, .snap = "snap2", .fn = cut_twice, .first = call };
        (void)done;
        look_at_each_call(&second, cuts->snap, "again");
        ((struct cuts *)cuts)->n_below += second.n_seen;
}

static void killed_again(const char *old)
{
        struct cuts cuts = { .old = old, .snap = "snap1", .fn = cut_once };
        look_at_each_call(&cuts, old, "half");
        assert_true(cuts.n_seen > 5);
        print_message(
            "# %s: a first restore leaves %u states where it is cut, a second one after these %u\n",
            old, cuts.n_seen, cuts.n_below);
}

static void killed_and_killed_again(void **state)
{
        (void)state;
        killed_again("old");
}

static void a_damaged_store_stays_with_its_log_however_often_it_is_cut(void **state)
{
        (void)state;
        killed_again("bad");
}

/* ---- failing ---- */

static void failing(const char *old,
                    void (*check_one)(const char *dir, bool told_done, const char *what))
{
        unsigned n = 1;
        for (bool fired = true; fired; n++) {
                copy(old, "fail");
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
                _cleanup_(mem_freep) char *what = mem_strdup(fmt("%s: call %u failed", old, n));
                check_one("fail", !(WEXITSTATUS(status) & 1), what);
        }
        assert_true(n > 30);
        print_message("# each of %u system calls failed\n", n - 2);
}

static void with_any_of_its_system_calls_failing(void **state)
{
        (void)state;
        failing("old", check);
        failing("bad", check_bad);
}

/* ---- what is no store ---- */

static unsigned count_aside(const char *dir, const char *tail, off_t least)
{
        struct stat st;
        unsigned n = 0;
        DIR *d = opendir(in(dir, ""));
        for (struct dirent *e; (e = readdir(d));) {
                size_t len = strlen(e->d_name), skip = strlen(tail);
                n += str_starts(e->d_name, "berth.db.before-") && len > skip &&
                     strcmp(e->d_name + len - skip, tail) == 0 &&
                     stat(in(dir, e->d_name), &st) == 0 && st.st_size >= least;
        }
        closedir(d);
        return n;
}

/* A damaged one makes way as well; a log without its store is kept, and does not get into the new
 * one. */
static void what_cannot_be_folded_is_kept_as_it_is(void **state)
{
        (void)state;
        _cleanup_(mem_freep) char *path = mem_strdup(in("odd", "berth.db"));
        enum { DAMAGED, WITHOUT, EMPTY, N };
        for (int how = 0; how < N; how++) {
                copy(how == DAMAGED ? "bad" : "old", "odd");
                if (how == WITHOUT)
                        assert_int_equal(unlink(path), 0);
                if (how == EMPTY)
                        assert_int_equal(truncate(path, 0), 0);
                if (restore(path) < 0)
                        fail_msg("%s", err_line(&err));
                assert_int_equal(head_of(path), NEW_HEAD);
                if (how == DAMAGED)
                        check_pair("odd", "damaged");
                else
                        assert_int_equal(count_aside("odd", "-wal", 4096), 1);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(killed_before_any_of_its_system_calls),
                cmocka_unit_test(a_damaged_store_stays_with_its_log_however_often_it_is_cut),
                cmocka_unit_test(killed_and_killed_again),
                cmocka_unit_test(with_any_of_its_system_calls_failing),
                cmocka_unit_test(what_cannot_be_folded_is_kept_as_it_is),
        };
        /* Nothing here depends on what a disk keeps, and syncs are most of what it costs. */
        const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
        snprintf(top, sizeof(top), "%s/restore-cuts-XXXXXX", tmp ? tmp : "/tmp");
        must(mkdtemp(top) != NULL, "a temporary folder");
        make_old();
        make_bad("bad");
        int failed = cmocka_run_group_tests(tests, NULL, NULL);
        (void)dir_remove(top, NULL);
        return failed;
}
