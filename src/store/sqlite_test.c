/* store/sqlite_test.c: what holds for the SQLite store beyond the conformance suite: files and
 * locks, damage, full disks, failing syncs. */
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
        char dir[PATH_MAX - 64], path[PATH_MAX];
        struct err err;
};

static int setup(void **state)
{
        struct fixture *f = mem_must(sizeof(*f));
        const char *tmp = getenv("TMPDIR");
        snprintf(f->dir, sizeof(f->dir), "%s/sqlite-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(f->dir));
        snprintf(f->path, sizeof(f->path), "%s/data/berth.db", f->dir);
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(dir_remove(f->dir, NULL), 0);
        mem_free(f);
        return 0;
}

static struct store *open_it(struct fixture *f)
{
        struct store *s = NULL;
        if (store_open(f->path, true, &s, &f->err) < 0)
                fail_msg("open: %s", err_line(&f->err));
        return s;
}

/* One event and one record "/r/<head>" of the given size. */
static int commit(struct store *s, uint64_t head, size_t bytes, struct err *err)
{
        static char data[1 << 20];
        char key[32];
        snprintf(key, sizeof(key), "/r/%08llu", (unsigned long long)head);
        struct store_event event = { head + 1, key, strlen(key) };
        struct store_record record = { key, data, bytes };
        return store_commit(s, &(struct store_batch){ head, head + 1, &event, 1, &record, 1, 0 },
                            err);
}

static int count(void *ctx, const struct store_record *r _unused_, struct err *err _unused_)
{
        ++*(uint64_t *)ctx;
        return 0;
}

static uint64_t count_records(struct store *s)
{
        uint64_t n = 0;
        struct err err = { 0 };
        if (store_load(s, count, &n, NULL, &err) < 0)
                fail_msg("load: %s", err_line(&err));
        return n;
}

static void sql(const char *path, const char *text)
{
        sqlite3 *db;
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
}

static unsigned mode_of(const char *path)
{
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        return st.st_mode & 07777;
}

/* ---- files ---- */

static void folder_and_files_are_the_owners_alone(void **state)
{
        struct fixture *f = *state;
        mode_t old = umask(0);
        struct store *s = open_it(f);
        umask(old);
        assert_int_equal(commit(s, 0, 10, NULL), 0);
        assert_int_equal(mode_of(fmt("%s/data", f->dir)), 0700);
        assert_int_equal(mode_of(f->path), 0600);
        assert_int_equal(mode_of(fmt("%s-wal", f->path)), 0600);
        assert_int_equal(mode_of(fmt("%s.lock", f->path)), 0600);
        store_close(s);
        /* a clean close leaves one file (and the lock) */
        assert_false(file_exists(fmt("%s-wal", f->path)));
}

static void missing_store_is_not_created_unasked(void **state)
{
        struct fixture *f = *state;
        struct store *s = NULL;
        assert_int_equal(store_open(f->path, false, &s, &f->err), -ERR_NOT_FOUND);
        assert_true(f->err.hint[0]);
        assert_false(file_exists(fmt("%s/data", f->dir)));
        store_close(open_it(f));
        assert_int_equal(store_open(f->path, false, &s, &f->err), 0);
        store_close(s);
        /* an empty file is no store either */
        assert_int_equal(truncate(f->path, 0), 0);
        s = NULL;
        assert_int_equal(store_open(f->path, false, &s, &f->err), -ERR_NOT_FOUND);
}

/* R: A9 */
static void bad_addresses_are_refused(void **state)
{
        struct fixture *f = *state;
        struct store *s = NULL;
        static const char *const bad[] = {
                "", "redis:/x", "sqlite:", "memory:x", "/tmp/", "sqlite:/tmp/x?vfs=no-such-layer"
        };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                assert_int_equal(store_open(bad[i], true, &s, &f->err), -ERR_INVALID);
                assert_true(f->err.msg[0] && f->err.hint[0]);
        }
        assert_int_equal(store_open("/proc/no/such.db", true, &s, &f->err) < 0, 1);
        assert_null(s);
}

static void links_to_one_store_meet_at_one_lock(void **state)
{
        struct fixture *f = *state;
        struct store *s = open_it(f), *second = NULL;
        char link_path[PATH_MAX + 16];
        snprintf(link_path, sizeof(link_path), "%s/link.db", f->dir);
        assert_int_equal(symlink(f->path, link_path), 0);
        assert_int_equal(store_open(link_path, true, &second, &f->err), -ERR_CONFLICT);
        assert_non_null(strstr(f->err.detail, fmt("pid %d", (int)getpid())));
        store_close(s);
}

/* A child that was forked while the store was open, and lives on, must not keep the next server
 * out. */
static void forked_child_does_not_inherit_the_lock(void **state)
{
        struct fixture *f = *state;
        struct store *s = open_it(f);
        int fds[2];
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        pid_t child = fork();
        if (child == 0) {
                char c;
                close(fds[1]);
                _exit(read(fds[0], &c, 1) == 0 ? 0 : 1); /* until the parent closes its end */
        }
        store_close(s);
        s = open_it(f);
        store_close(s);
        close(fds[0]);
        close(fds[1]);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
}

/* ---- damage ---- */

static void other_files_are_refused_and_left_alone(void **state)
{
        struct fixture *f = *state;
        struct store *s = NULL;
        snprintf(f->path, sizeof(f->path), "%s/other.db", f->dir);
        sql(f->path, "CREATE TABLE t(x); INSERT INTO t VALUES(1)");
        assert_int_equal(store_open(f->path, true, &s, &f->err), -ERR_CORRUPT);
        assert_non_null(strstr(f->err.msg, "not a store of berth"));
        assert_true(f->err.hint[0]);
        snprintf(f->path, sizeof(f->path), "%s/text", f->dir);
        static const char text[] = "just some text that is long enough not to be taken for an "
                                   "empty database file, is it not? yes.\n";
        assert_int_equal(file_write_atomic(f->path, text, sizeof(text) - 1, 0600, &f->err), 0);
        assert_int_equal(store_open(f->path, true, &s, &f->err), -ERR_CORRUPT);
        _cleanup_(str_finip) struct str now = STR_INIT;
        assert_int_equal(file_read(f->path, 1000, &now, &f->err), 0);
        assert_string_equal(str_c(&now), text);
}

static void overwrite(const char *path, off_t from, size_t len)
{
        _cleanup_(mem_freep) char *junk = mem_must(len);
        memset(junk, 0xa5, len);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, junk, len, from), len);
        close(fd);
}

/* R: C35 */
static void damage_is_reported_as_such(void **state)
{
        struct fixture *f = *state;
        struct store *s = open_it(f);
        for (uint64_t head = 0; head < 100; head++)
                assert_int_equal(commit(s, head, 1000, NULL), 0);
        store_close(s);
        overwrite(f->path, 6 * 4096, 20 * 4096);
        s = NULL;
        int r = store_open(f->path, true, &s, &f->err);
        if (r == 0) {
                uint64_t n = 0;
                assert_int_equal(store_integrity(s, &f->err), -ERR_CORRUPT);
                assert_true(f->err.detail[0] && f->err.hint[0]);
                r = store_load(s, count, &n, NULL, &f->err);
                store_close(s);
        }
        assert_int_equal(r, -ERR_CORRUPT);
        assert_non_null(strstr(f->err.hint, "backup"));
}

static void integrity_names_what_is_wrong(void **state)
{
        struct fixture *f = *state;
        static const struct {
                const char *sql, *msg;
        } faults[] = {
                { "DELETE FROM events WHERE seq = 5", "events are missing" },
                { "DELETE FROM events WHERE seq < 4", "since the store's checkpoint are missing" },
                { "INSERT INTO records SELECT 1000, key, data FROM records LIMIT 1", "twice" },
        };
        for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
                snprintf(f->path, sizeof(f->path), "%s/%zu.db", f->dir, i);
                struct store *s = open_it(f);
                for (uint64_t head = 0; head < 10; head++)
                        assert_int_equal(commit(s, head, 10, NULL), 0);
                assert_int_equal(store_integrity(s, &f->err), 0);
                store_close(s);
                sql(f->path, faults[i].sql);
                s = open_it(f);
                assert_int_equal(store_integrity(s, &f->err), -ERR_CORRUPT);
                assert_non_null(strstr(f->err.msg, faults[i].msg));
                store_close(s);
        }
        struct store *s = NULL;
        sql(f->path, "UPDATE meta SET value = 7 WHERE key = 'head'");
        assert_int_equal(store_open(f->path, true, &s, &f->err), -ERR_CORRUPT);
}

static int64_t number(const char *path, const char *query)
{
        sqlite3 *db;
        sqlite3_stmt *q;
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_prepare_v2(db, query, -1, &q, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_step(q), SQLITE_ROW);
        int64_t n = sqlite3_column_int64(q, 0);
        sqlite3_finalize(q);
        sqlite3_close(db);
        return n;
}

/* Events that are kept apart are in a table that it does not look at: the schema is the same,
 * and its log has no gap. */
/* R: A10 A14 */
static void a_berth_from_before_finds_the_store_as_it_knows_it(void **state)
{
        struct fixture *f = *state;
        struct store *s = open_it(f);
        const char *tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'";
        for (uint64_t seq = 1; seq <= 40; seq++) {
                struct store_event e = { seq,
                                         seq % 9 == 0 ? "\x10\x4a\x18\x01" : "\x10\x11\x18\x01",
                                         4 };
                assert_int_equal(
                    store_commit(s, &(struct store_batch){ seq - 1, seq, &e, 1, NULL, 0, 0 },
                                 &f->err),
                    0);
                if (seq == 7) {
                        assert_int_equal(store_checkpoint(s, &f->err), 0);
                        assert_int_equal(store_prune(s, STORE_KEEP_LOG(2), 100, NULL, &f->err), 5);
                        /* nothing had to be kept yet */
                        assert_int_equal(number(f->path, tables), 5);
                }
        }
        assert_int_equal(store_checkpoint(s, &f->err), 0);
        assert_int_equal(store_prune(s, STORE_KEEP_LOG(6), 100, NULL, &f->err), 29);
        store_close(s);
        assert_int_equal(number(f->path, "PRAGMA user_version"), 1);
        assert_int_equal(number(f->path, tables), 6);
        assert_int_equal(number(f->path, "SELECT count(*) FROM kept"), 3);
        assert_int_equal(number(f->path, "SELECT min(seq) FROM events"), 35);
        assert_int_equal(number(f->path, "SELECT max(seq) - min(seq) + 1 - count(*) FROM events"),
                         0);
        /* and what it does to it: it prunes its log, and the other events stay */
        sql(f->path, "DELETE FROM events WHERE seq < 38");
        s = open_it(f);
        assert_int_equal(store_integrity(s, &f->err), 0);
        assert_int_equal(store_prune(s, STORE_KEEP_LOG(2), 100, NULL, &f->err), 1);
        assert_int_equal(store_stats(s).kept[EVENT_AUDIT], 3);
        store_close(s);
        sql(f->path, "UPDATE kept SET seq = 39 WHERE seq = 9");
        s = open_it(f);
        assert_int_equal(store_integrity(s, &f->err), -ERR_CORRUPT);
        assert_non_null(strstr(f->err.msg, "kept apart"));
        store_close(s);
}

/* Somebody edits the file with the sqlite3 shell while the server runs: rows are found again, none
 * is written twice. */
static void foreign_writes_are_noticed(void **state)
{
        struct fixture *f = *state;
        struct store *s = open_it(f);
        assert_int_equal(commit(s, 0, 10, NULL), 0);
        sql(f->path, "DELETE FROM records; INSERT INTO records VALUES(77, '/r/00000001', x'00')");
        assert_int_equal(commit(s, 1, 10, NULL), 0);
        assert_int_equal(count_records(s), 1);
        assert_int_equal(store_integrity(s, &f->err), 0);
        sql(f->path,
            "UPDATE meta SET value = 3 WHERE key = 'head'; INSERT INTO events VALUES(3, x'00')");
        assert_int_equal(commit(s, 2, 10, &f->err), -ERR_CONFLICT);
        store_close(s);
}

static void database_held_by_another_program_is_waited_for_and_then_reported(void **state)
{
        struct fixture *f = *state;
        struct store *s = open_it(f);
        sqlite3 *other;
        assert_int_equal(sqlite3_open(f->path, &other), SQLITE_OK);
        assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(commit(s, 0, 10, &f->err), -ERR_UNAVAILABLE);
        assert_true(f->err.hint[0] && f->err.retry_after_ms > 0);
        assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(other);
        assert_int_equal(commit(s, 0, 10, &f->err), 0);
        store_close(s);
}

/* ---- full disks ---- */

/* Commits until the disk is full, makes room, sends the same batch again. In a child, since limits
 * and mounts are its own. Exits 0 if all is well. */
#define CHECK(cond)                                                                                \
        do {                                                                                       \
                if (!(cond)) {                                                                     \
                        fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #cond,             \
                                err_line(&err));                                                   \
                        _exit(1);                                                                  \
                }                                                                                  \
        } while (0)

static void fill_and_recover(const char *path, void (*make_room)(void *), void *ctx)
{
        struct store *s = NULL;
        struct err err = { 0 };
        uint64_t head = 0, seq = 99;
        int r;
        CHECK(store_open(path, true, &s, &err) == 0);
        CHECK(commit(s, head++, 100, &err) == 0);
        CHECK(store_checkpoint(s, &err) == 0);
        while ((r = commit(s, head, 20000, &err)) == 0 && head < 10000)
                head++;
        CHECK(r == -ERR_UNAVAILABLE && err.detail[0] && err.hint[0] && err.retry_after_ms > 0);
        CHECK(store_head(s) == head && count_records(s) == head); /* reads go on */
        CHECK(commit(s, head, 20000, &err) == -ERR_UNAVAILABLE);
        CHECK(store_checkpoint(s, &err) == -ERR_UNAVAILABLE);
        CHECK(store_load_checkpoint(s, count, &(uint64_t){ 0 }, &seq, &err) == 0 && seq == 1);
        make_room(ctx);
        CHECK(commit(s, head, 20000, &err) == 0);
        CHECK(store_head(s) == head + 1 && count_records(s) == head + 1);
        CHECK(store_checkpoint(s, &err) == 0);
        CHECK(store_integrity(s, &err) == 0);
        store_close(s);
        CHECK(store_open(path, true, &s, &err) == 0);
        CHECK(count_records(s) == head + 1);
        store_close(s);
        _exit(0);
}

static void raise_limit(void *ctx _unused_)
{
        struct rlimit limit;
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_FSIZE, &limit);
}

/* R: C35 */
static void failed_write_is_reported_and_the_batch_can_be_sent_again(void **state)
{
        struct fixture *f = *state;
        int status;
        pid_t child = fork();
        if (child == 0) {
                struct rlimit limit;
                signal(SIGXFSZ, SIG_IGN);
                getrlimit(RLIMIT_FSIZE, &limit);
                limit.rlim_cur = 700 * 1024;
                setrlimit(RLIMIT_FSIZE, &limit);
                fill_and_recover(f->path, raise_limit, NULL);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
}

static void remove_ballast(void *ctx)
{
        unlink(ctx);
}

/* R: C35 */
static void full_disk_is_reported_and_the_batch_can_be_sent_again(void **state)
{
        struct fixture *f = *state;
        int status;
        pid_t child = fork();
        if (child == 0) {
                char ballast[PATH_MAX], zeros[65536] = { 0 };
                snprintf(ballast, sizeof(ballast), "%s/ballast", f->dir);
                if (unshare(CLONE_NEWNS) < 0 ||
                    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                    mount("tmpfs", f->dir, "tmpfs", 0, "size=8m") < 0)
                        _exit(77); /* no right to mount */
                int fd = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                for (int i = 0; i < 6 * 16; i++)
                        if (write(fd, zeros, sizeof(zeros)) != sizeof(zeros))
                                _exit(78);
                close(fd);
                fill_and_recover(f->path, remove_ballast, ballast);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                print_message("# not run: no right to mount a small tmpfs\n");
        else
                assert_int_equal(status, 0);
}

/* ---- checkpoints beside commits ---- */

/* The copying thread and the commits share a connection; the view must be of one moment although
 * records change all the while. */
static int check_moment(void *ctx, const struct store_record *r, struct err *err _unused_)
{
        uint64_t *moment = ctx, value;
        assert_int_equal(r->len, 8);
        memcpy(&value, r->data, 8);
        if (*moment)
                assert_int_equal(value, *moment);
        *moment = value;
        return 0;
}

static void checkpoint_beside_commits_is_of_one_moment(void **state)
{
        struct fixture *f = *state;
        struct store *s = open_it(f);
        char keys[200][16];
        struct store_record records[200];
        uint64_t head = 0, seq = 0, taken = 0, last_seq = 0;
        int64_t deadline_ns = clock_mono_ns() + 60000000000LL;
        for (int i = 0; i < 200; i++)
                snprintf(keys[i], sizeof(keys[i]), "/k/%03d", i);
        while (taken < 3 && clock_mono_ns() < deadline_ns) {
                struct store_event event = { head + 1, "e", 1 };
                uint64_t value = head + 1;
                for (int i = 0; i < 200; i++)
                        records[i] = (struct store_record){ keys[i], &value, sizeof(value) };
                if (store_commit(
                        s, &(struct store_batch){ head, head + 1, &event, 1, records, 200, 0 },
                        &f->err) < 0)
                        fail_msg("commit: %s", err_line(&f->err));
                head++;
                if (head % 8 == 0)
                        assert_true(store_prune(s, STORE_KEEP_LOG(2), 100, NULL, &f->err) >=
                                    0); /* wants a checkpoint only once in 200 events */
                if (head % 250 == 0) {
                        sched_yield();
                        uint64_t moment = 0;
                        assert_int_equal(
                            store_load_checkpoint(s, check_moment, &moment, &seq, &f->err), 0);
                        assert_int_equal(seq, moment);
                        taken += seq > last_seq;
                        last_seq = seq;
                }
        }
        assert_true(taken >= 3);
        assert_int_equal(store_integrity(s, &f->err), 0);
        store_close(s);
}

/* A close in the middle of a copy gives it up; the old checkpoint stays valid. */
static void close_gives_up_a_checkpoint_half_way(void **state)
{
        struct fixture *f = *state;
        struct store *s = open_it(f);
        uint64_t head = 0, seq = 99, n = 0;
        assert_int_equal(commit(s, head++, 10, NULL), 0);
        assert_int_equal(store_checkpoint(s, &f->err), 0);
        struct store_record records[1000];
        char keys[1000][16], value[700] = { 0 };
        for (int round = 0; round < 8; round++) {
                struct store_event events[1000];
                for (int i = 0; i < 1000; i++) {
                        snprintf(keys[i], sizeof(keys[i]), "/k/%05d", round * 1000 + i);
                        records[i] = (struct store_record){ keys[i], value, sizeof(value) };
                        events[i] = (struct store_event){ head + 1 + (uint64_t)i, "e", 1 };
                }
                assert_int_equal(store_commit(s,
                                              &(struct store_batch){ head, head + 1000, events,
                                                                     1000, records, 1000, 0 },
                                              &f->err),
                                 0);
                head += 1000;
        }
        /* not worth it yet: 8,000 events for 8,001 records */
        assert_true(store_prune(s, STORE_KEEP_LOG(1), 1, NULL, &f->err) >= 0);
        assert_int_equal(commit(s, head++, 10, NULL), 0);
        assert_int_equal(commit(s, head++, 10, NULL), 0);
        assert_int_equal(commit(s, head++, 10, NULL), 0);
        assert_int_equal(commit(s, head++, 10, NULL), 0);
        assert_true(store_prune(s, STORE_KEEP_LOG(1), 1, NULL, &f->err) >= 0);
        store_close(s);
        s = open_it(f);
        assert_int_equal(store_load_checkpoint(s, count, &n, &seq, &f->err), 0);
        assert_true((seq == 1 && n == 1) || (seq == head && n == head));
        assert_int_equal(store_checkpoint(s, &f->err), 0);
        n = 0;
        assert_int_equal(store_load_checkpoint(s, count, &n, &seq, &f->err), 0);
        assert_true(seq == head && n == count_records(s));
        store_close(s);
}

/* ---- space ---- */

#define PEAK 600

static int64_t file_bytes(const char *path)
{
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        return st.st_size;
}

/* A peak of 600 records of 32 KiB, of which 30 are left. */
static void make_peak(struct fixture *f, struct store *s)
{
        uint64_t head = 0;
        for (; head < PEAK; head++)
                assert_int_equal(commit(s, head, 32768, &f->err), 0);
        for (unsigned i = 0; i < PEAK; i++)
                if (i % 20 != 0) {
                        char key[32];
                        snprintf(key, sizeof(key), "/r/%08u", i);
                        struct store_event event = { head + 1, key, strlen(key) };
                        struct store_record gone = { key, NULL, 0 };
                        assert_int_equal(store_commit(s,
                                                      &(struct store_batch){ head, head + 1, &event,
                                                                             1, &gone, 1, 0 },
                                                      &f->err),
                                         0);
                        head++;
                }
}

static unsigned shrink_all(struct fixture *f, struct store *s)
{
        unsigned calls = 0;
        int r;
        while ((r = store_shrink(s, &f->err)) > 0)
                assert_true(++calls < 1000);
        assert_int_equal(r, 0);
        return calls;
}

/* The file stayed at its peak for ever. R: A6 C29 */
static void unused_space_is_given_back(void **state)
{
        struct fixture *f = *state;
        struct store *s = open_it(f);
        make_peak(f, s);
        store_close(s); /* folds the log */
        s = open_it(f);
        int64_t peak = file_bytes(f->path);
        assert_true(peak > PEAK * 32768);
        assert_true(shrink_all(f, s) > 10); /* in small steps */
        assert_int_equal(count_records(s), PEAK / 20);
        assert_int_equal(store_integrity(s, &f->err), 0);
        assert_int_equal(shrink_all(f, s), 0);
        assert_true(file_bytes(f->path) < peak / 3);
        store_close(s);
        s = open_it(f);
        assert_int_equal(count_records(s), PEAK / 20);
        store_close(s);
}

/* A store of a version that could not shrink does so at its next start. R: A10 */
static void a_store_from_before_shrinks_too(void **state)
{
        struct fixture *f = *state;
        sqlite3 *db = NULL;
        store_close(open_it(f));
        assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
        assert_int_equal(
            sqlite3_exec(db, "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM",
                         NULL, NULL, NULL),
            SQLITE_OK);
        sqlite3_close(db);
        struct store *s = open_it(f);
        make_peak(f, s);
        assert_int_equal(shrink_all(f, s), 0); /* it cannot */
        store_close(s);
        int64_t peak = file_bytes(f->path);
        s = open_it(f);
        assert_int_equal(count_records(s), PEAK / 20);
        assert_int_equal(store_integrity(s, &f->err), 0);
        store_close(s);
        assert_true(file_bytes(f->path) < peak / 3);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(folder_and_files_are_the_owners_alone, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(missing_store_is_not_created_unasked, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(bad_addresses_are_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(links_to_one_store_meet_at_one_lock, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(forked_child_does_not_inherit_the_lock, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(other_files_are_refused_and_left_alone, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(damage_is_reported_as_such, setup, teardown),
                cmocka_unit_test_setup_teardown(integrity_names_what_is_wrong, setup, teardown),
                cmocka_unit_test_setup_teardown(a_berth_from_before_finds_the_store_as_it_knows_it,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(foreign_writes_are_noticed, setup, teardown),
                cmocka_unit_test_setup_teardown(
                    database_held_by_another_program_is_waited_for_and_then_reported, setup,
                    teardown),
                cmocka_unit_test_setup_teardown(
                    failed_write_is_reported_and_the_batch_can_be_sent_again, setup, teardown),
                cmocka_unit_test_setup_teardown(
                    full_disk_is_reported_and_the_batch_can_be_sent_again, setup, teardown),
                cmocka_unit_test_setup_teardown(checkpoint_beside_commits_is_of_one_moment, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(close_gives_up_a_checkpoint_half_way, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(unused_space_is_given_back, setup, teardown),
                cmocka_unit_test_setup_teardown(a_store_from_before_shrinks_too, setup, teardown),
        };
        return cmocka_run_group_tests_name("store_sqlite", tests, NULL, NULL);
}
