/* store/sqlite_crash_test.c: kill -9 and power loss at any moment lose nothing that was
 * acknowledged and leave no half batch.
 *
 * Each event says which record it puts or removes and where its batch ends, so afterwards the
 * records must equal the events folded over the checkpoint, and the head must be the end of a
 * batch. For kill -9 a child commits as fast as it can and reports each head through a pipe once
 * the store has acknowledged it; power is lost in the lossy file layer, at every kind of operation.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "events.pb-c.h"
#include "store/lossy_vfs.h"
#include "store/sqlite_store.h"
#include "store/store.h"
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUNDS 30
#define BATCH_MAX 600 /* enough for the longer log of a store under load */
#define KEYS (4 * BATCH_MAX + 100)
#define LARGE_BYTES 2400

#define AUDITED(seq) ((seq) % 50 == 7) /* kept for ever, whatever happens to the others */

struct op {               /* what an event says; a record's value is that event's sequence */
        uint8_t front[4]; /* of a packed event: type and time */
        uint64_t batch_end;
        uint32_t key;
        bool remove;
};

/* ---- commits ---- */

/* Some small batches, and then some large ones. */
static int commit_random(struct store *s, struct rng *rng, uint64_t *head)
{
        static union {
                struct op op;
                char bytes[LARGE_BYTES];
        } ops[BATCH_MAX];
        static struct store_event events[BATCH_MAX];
        static struct store_record records[BATCH_MAX];
        static char keys[BATCH_MAX][16];
        static uint64_t values[BATCH_MAX];
        bool is_large = *head / (8 * BATCH_MAX) % 2;
        size_t n = is_large ? BATCH_MAX / 2 + (size_t)rng_below(rng, BATCH_MAX / 2) + 1
                            : (size_t)rng_below(rng, 63) + 1;
        uint32_t key = (uint32_t)rng_below(rng, KEYS);
        for (size_t i = 0; i < n; i++) {
                /* BATCH_MAX steps of at most 4: never round to the same key */
                key = (key + 1 + (uint32_t)rng_below(rng, 4)) % KEYS;
                values[i] = *head + 1 + i;
                uint8_t type = AUDITED(values[i]) ? PB__EVENT_TYPE__E__WorkloadExec
                                                  : PB__EVENT_TYPE__E__WorkloadStarted;
                ops[i].op = (struct op){
                        { 2 << 3, type, 3 << 3, 1 }, *head + n, key, rng_chance(rng, 300000)
                };
                snprintf(keys[i], sizeof(keys[i]), "/k/%04u", key);
                events[i] = (struct store_event){ values[i], &ops[i],
                                                  is_large ? sizeof(ops[i]) : sizeof(ops[i].op) };
                bool remove = ops[i].op.remove;
                records[i] = (struct store_record){ keys[i], remove ? NULL : &values[i],
                                                    remove ? 0 : sizeof(values[i]) };
        }
        int r = store_commit(s, &(struct store_batch){ *head, *head + n, events, n, records, n, 0 },
                             NULL);
        if (r == 0)
                *head += n;
        return r;
}

/* ---- kill -9: the child ---- */

static void child_main(const char *path, uint64_t seed, int report_fd)
{
        struct store *s = NULL;
        struct rng rng;
        rng_seed(&rng, seed);
        if (store_open(path, true, &s, NULL) < 0)
                _exit(1);
        uint64_t head = store_head(s);
        for (;;) {
                if (commit_random(s, &rng, &head) < 0 ||
                    write(report_fd, &head, sizeof(head)) != sizeof(head))
                        _exit(2);
                if (rng_chance(&rng, 100000) &&
                    store_prune(s, STORE_KEEP_LOG(400), 300, NULL, NULL) < 0)
                        _exit(3);
        }
}

/* ---- the check ---- */

struct fold {
        uint64_t values[KEYS]; /* 0: no such record */
        uint64_t at, batch_end;
};

static int fold_record(void *ctx, const struct store_record *r, struct err *err _unused_)
{
        struct fold *fold = ctx;
        unsigned key;
        assert_int_equal(sscanf(r->key, "/k/%u", &key), 1);
        assert_int_equal(r->len, sizeof(uint64_t));
        memcpy(&fold->values[key], r->data, sizeof(uint64_t));
        return 0;
}

static int fold_event(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        struct fold *fold = ctx;
        struct op op;
        assert_true(e->len == sizeof(op) || e->len == LARGE_BYTES);
        memcpy(&op, e->data, sizeof(op));
        assert_int_equal(e->seq, ++fold->at);
        fold->values[op.key] = op.remove ? 0 : e->seq;
        fold->batch_end = op.batch_end;
        return 0;
}

static int follow_audits(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        uint64_t *next = ctx;
        if (AUDITED(e->seq)) {
                assert_int_equal(e->seq, *next);
                *next += 50;
        }
        return 0;
}

static uint64_t check(const char *path, uint64_t acknowledged, int round)
{
        struct store *s = NULL;
        struct store_reader *reader = NULL;
        struct err err = { 0 };
        struct fold records = { 0 }, folded = { 0 };
        uint64_t head = 0, audit = 7;
        if (store_open(path, false, &s, &err) < 0 ||
            store_load(s, fold_record, &records, &head, &err) < 0 ||
            store_load_checkpoint(s, fold_record, &folded, &folded.at, &err) < 0 ||
            store_integrity(s, &err) < 0 || store_reader_open(s, &reader, &err) < 0 ||
            store_reader_events(reader, folded.at, false, fold_event, &folded, &err) < 0 ||
            store_reader_events(reader, 0, false, follow_audits, &audit, &err) < 0)
                fail_msg("round %d: %s", round, err_line(&err));
        assert_true(head >= acknowledged);
        assert_int_equal(folded.at, head);
        assert_true(audit > head); /* each one is there, in the log or apart from it. R: A14 */
        if (folded.batch_end)
                assert_int_equal(folded.batch_end, head);
        assert_memory_equal(records.values, folded.values, sizeof(records.values));
        store_reader_close(reader);
        store_close(s);
        return head;
}

static uint64_t run_and_kill(const char *path, uint64_t seed, int64_t live_ms)
{
        int fds[2], status;
        uint64_t head, last = 0;
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        pid_t child = fork();
        if (child == 0) {
                close(fds[0]);
                child_main(path, seed, fds[1]);
        }
        close(fds[1]);
        /* alive and committing */
        assert_int_equal(read(fds[0], &last, sizeof(last)), sizeof(last));
        int64_t end_ns = clock_mono_ns() + live_ms * 1000000;
        while (clock_mono_ns() < end_ns) {
                struct pollfd p = { .fd = fds[0], .events = POLLIN };
                if (poll(&p, 1, 1) == 1 && read(fds[0], &head, sizeof(head)) == sizeof(head))
                        last = head;
        }
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        while (read(fds[0], &head, sizeof(head)) == sizeof(head))
                last = head;
        close(fds[0]);
        return last;
}

/* R: A3 A5 */
static void kill_9_loses_nothing_acknowledged_and_leaves_no_half_batch(void **state _unused_)
{
        char dir[PATH_MAX - 64], path[PATH_MAX];
        const char *tmp = getenv("TMPDIR");
        struct rng rng;
        rng_seed_system(&rng); /* the moments are random; what must hold is not */
        snprintf(dir, sizeof(dir), "%s/crash-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof(path), "%s/berth.db", dir);
        uint64_t last = 0;
        for (int round = 0; round < ROUNDS; round++) {
                uint64_t acknowledged =
                    run_and_kill(path, rng_next(&rng), (int64_t)rng_below(&rng, 60));
                assert_true(acknowledged > last);
                check(path, acknowledged, round);
                last = acknowledged;
        }
        print_message("# %d rounds, head %llu\n", ROUNDS, (unsigned long long)last);
        assert_int_equal(dir_remove(dir, NULL), 0);
}

/* ---- power loss ---- */

static int64_t longest_log; /* in pages of 4 KiB */

static void look_at_log(const char *url)
{
        struct stat st;
        const char *file = strchr(url, ':') + 1;
        if (stat(fmt("%.*s-wal", (int)(strchr(file, '?') - file), file), &st) == 0 &&
            st.st_size / 4096 > longest_log)
                longest_log = st.st_size / 4096;
}

/* Commits until the machine dies. The last acknowledged head. */
static uint64_t run_until_dead(const char *url, struct rng *rng, uint64_t acknowledged)
{
        struct store *s = NULL;
        struct err err = { 0 };
        int r = store_open(url, true, &s, &err);
        if (r < 0) {
                if (!lossy_is_dead())
                        fail_msg("open: %s", err_line(&err));
                return acknowledged;
        }
        uint64_t head = store_head(s);
        assert_true(head >= acknowledged);
        for (int i = 0; i < 500 && commit_random(s, rng, &head) == 0; i++) {
                acknowledged = head;
                look_at_log(url);
                if (rng_chance(rng, 200000))
                        store_prune(s, STORE_KEEP_LOG(400), 300, NULL, NULL);
                if (rng_chance(rng, 20000))
                        store_checkpoint(s, NULL);
        }
        store_close(s);
        return acknowledged;
}

/* What a restarted server has read it may have told others, so it must not vanish when the power
 * goes next. Gives the head that was read. */
static uint64_t load_and_die(const char *url, uint64_t acknowledged)
{
        struct store *s = NULL;
        struct err err = { 0 };
        struct fold records = { 0 };
        uint64_t head = 0;
        lossy_cut(-1);
        if (store_open(url, false, &s, &err) < 0 ||
            store_load(s, fold_record, &records, &head, &err) < 0)
                fail_msg("after a crash: %s", err_line(&err));
        assert_true(head >= acknowledged);
        lossy_cut(0);
        store_close(s);
        return head;
}

#define POWER_DIR (PATH_MAX - 64)

static void begin(char dir[static POWER_DIR], char url[static PATH_MAX], struct rng *rng)
{
        const char *tmp = getenv("TMPDIR");
        lossy_register();
        snprintf(dir, POWER_DIR, "%s/power-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(dir));
        snprintf(url, PATH_MAX, "sqlite:%s/berth.db?vfs=lossy", dir);
        lossy_cut(-1);
        assert_true(run_until_dead(url, rng, 0) > 0);
        lossy_forget();
}

/* Cut at each operation in turn, the same ones every time; then all that was not synced is lost. */
/* R: A3 A5 */
static void what_was_read_after_a_crash_stays(void **state _unused_)
{
        char dir[POWER_DIR], url[PATH_MAX];
        struct rng rng;
        uint64_t known = 0;
        unsigned seen = 0;
        rng_seed(&rng, 1);
        begin(dir, url, &rng);
        for (int cut = 0; cut < 120; cut++) {
                lossy_cut(cut);
                uint64_t acknowledged = run_until_dead(url, &rng, known);
                uint64_t read = load_and_die(url, acknowledged);
                seen += read > acknowledged;
                lossy_power_loss(NULL);
                lossy_cut(-1);
                known = check(url, read, cut);
                lossy_forget();
        }
        assert_true(seen > 0); /* a commit was in the log, and nobody had been told */
        assert_int_equal(dir_remove(dir, NULL), 0);
}

/* R: A3 A5 */
static void
power_loss_loses_nothing_acknowledged_or_read_and_leaves_no_half_batch(void **state _unused_)
{
        char dir[POWER_DIR], url[PATH_MAX];
        struct rng rng;
        uint64_t known = 0;
        rng_seed_system(&rng);
        begin(dir, url, &rng);
        longest_log = 0;
        for (int round = 0; round < 150; round++) {
                lossy_cut((int64_t)rng_below(&rng, rng_chance(&rng, 500000) ? 400 : 12000));
                known = run_until_dead(url, &rng, known);
                if (rng_chance(&rng, 500000))
                        known = load_and_die(url, known);
                lossy_power_loss(&rng);
                lossy_cut(-1);
                known = check(url, known, round);
                lossy_forget();
        }
        print_message("# 150 rounds, head %llu, log of %lld pages\n", (unsigned long long)known,
                      (long long)longest_log);
        /* the power was also lost while a log of a store under load was folded */
        assert_true(longest_log > LOG_PAGES_BULK);
        assert_int_equal(dir_remove(dir, NULL), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(kill_9_loses_nothing_acknowledged_and_leaves_no_half_batch),
                cmocka_unit_test(what_was_read_after_a_crash_stays),
                cmocka_unit_test(
                    power_loss_loses_nothing_acknowledged_or_read_and_leaves_no_half_batch),
        };
        log_setup(LOG_ERROR, LOG_FORMAT_LOGFMT, 2); /* a dying disk gives many warnings */
        return cmocka_run_group_tests_name("store_crash", tests, NULL, NULL);
}
