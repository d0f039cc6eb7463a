/* store/conformance_test.c: what every store must do. One suite, run for each factory in the table
 * at the end.
 *
 * A new store adds a factory (how to make an empty one, open it, age its schema, clean up) and
 * nothing else.
 */
#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "events.pb-c.h"
#include "model/event.h"
#include "model/pb.h"
#include "store/etcd_testkit.h"
#include "store/memory.h"
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture;

struct factory {
        const char *name;
        void (*make)(struct fixture *f);
        int (*open)(struct fixture *f, struct store **ret_store, struct err *err);
        void (*set_schema)(struct fixture *f, int schema); /* while closed */
        void (*clean)(struct fixture *f);
        bool shared; /* other processes reach it too */
};

struct fixture {
        const struct factory *factory;
        struct store *s;
        struct err err;
        char dir[PATH_MAX];
        struct memory_disk *disk;
};

/* ---- sqlite ---- */

static void sqlite_make(struct fixture *f)
{
        const char *tmp = getenv("TMPDIR");
        snprintf(f->dir, sizeof(f->dir), "%s/store-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(f->dir));
}

static const char *sqlite_url(struct fixture *f)
{
        return fmt("sqlite:%s/sub/berth.db", f->dir);
}
static int sqlite_open_it(struct fixture *f, struct store **ret_store, struct err *err)
{
        return store_open(sqlite_url(f), true, ret_store, err);
}

static void sqlite_set_schema(struct fixture *f, int schema)
{
        sqlite3 *db;
        assert_int_equal(sqlite3_open(strchr(sqlite_url(f), ':') + 1, &db), SQLITE_OK);
        assert_int_equal(
            sqlite3_exec(db, fmt("PRAGMA user_version = %d", schema), NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
}

static void sqlite_clean(struct fixture *f)
{
        assert_int_equal(dir_remove(f->dir, NULL), 0);
}

/* ---- memory ---- */

static void memory_make(struct fixture *f)
{
        f->disk = memory_disk_create();
}
static int memory_open_it(struct fixture *f, struct store **ret_store, struct err *err)
{
        return memory_open(f->disk, ret_store, err);
}
static void memory_age(struct fixture *f, int schema)
{
        memory_set_schema(f->disk, schema);
}
static void memory_clean(struct fixture *f)
{
        memory_disk_destroy(f->disk);
}

/* ---- etcd: one real member for all tests, a prefix for each ---- */

#define ETCD_TTL_SECONDS 1

static struct etcd_process etcd;

static void etcd_make(struct fixture *f)
{
        static int number;
        if (!etcd.pid)
                etcd_process_start(&etcd);
        snprintf(f->dir, sizeof(f->dir), "/test-%d", ++number);
}

static int etcd_opened; /* by turns with one commit under way and with several */

/* Opens and leads. A leader that died is believed until its lease has run out. */
static int etcd_open_it(struct fixture *f, struct store **ret_store, struct err *err)
{
        struct store *s = NULL;
        int r = store_open(fmt("etcd://127.0.0.1:%d%s%s", etcd.port, f->dir,
                               etcd_opened++ % 2 ? "?in-flight=3" : ""),
                           true, &s, err);
        if (r == 0 && (r = store_lead(s, fmt("test, pid %d", (int)getpid()), ETCD_TTL_SECONDS, 2500,
                                      err)) < 0) {
                store_close(s);
                s = NULL;
        }
        if (r == 0)
                *ret_store = s;
        return r;
}

static void etcd_set_schema(struct fixture *f, int schema)
{
        assert_int_equal(
            system(fmt(
                "ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:%d put %s/meta/schema %d >/dev/null",
                etcd.port, f->dir, schema)),
            0);
}

static void etcd_clean(struct fixture *f _unused_) {}

static const struct factory factories[] = {
        { "sqlite", sqlite_make, sqlite_open_it, sqlite_set_schema, sqlite_clean, true },
        { "memory", memory_make, memory_open_it, memory_age, memory_clean, false },
        { "etcd", etcd_make, etcd_open_it, etcd_set_schema, etcd_clean, true },
};

/* ---- small words for the tests ---- */

static int setup(void **state)
{
        struct fixture *f = mem_must(sizeof(*f));
        f->factory = *state;
        f->factory->make(f);
        assert_int_equal(f->factory->open(f, &f->s, &f->err), 0);
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;
        store_close(f->s);
        f->factory->clean(f);
        mem_free(f);
        return 0;
}

static void reopen(struct fixture *f)
{
        store_close(TAKE_PTR(f->s));
        int r = f->factory->open(f, &f->s, &f->err);
        if (r < 0)
                fail_msg("reopen: %s", err_line(&f->err));
}

/* Events expected_head+1 .. new_head, the i-th with the text "<prefix><seq>". */
static int commit(struct fixture *f, uint64_t expected, size_t n_events, const char *prefix,
                  const struct store_record *records, size_t n_records)
{
        struct store_event events[64];
        char text[64][32];
        assert_true(n_events <= ARRAY_LEN(events));
        for (size_t i = 0; i < n_events; i++) {
                uint64_t seq = expected + 1 + i;
                int len =
                    snprintf(text[i], sizeof(text[i]), "%s%llu", prefix, (unsigned long long)seq);
                events[i] = (struct store_event){ seq, text[i], (size_t)len };
        }
        struct store_batch batch = { expected, expected + n_events, events, n_events,
                                     records,  n_records,           0 };
        f->err = (struct err){ 0 };
        return store_commit(f->s, &batch, &f->err);
}

static struct store_record put(const char *key, const char *value)
{
        return (struct store_record){ key, value, strlen(value) };
}
static struct store_record removal(const char *key)
{
        return (struct store_record){ key, NULL, 0 };
}

static int print_record(void *ctx, const struct store_record *r, struct err *err _unused_)
{
        assert_non_null(r->data);
        str_addf(ctx, "%s=%.*s ", r->key, (int)r->len, (const char *)r->data);
        return 0;
}

static void records_are(struct fixture *f, uint64_t head, const char *expected)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        uint64_t found = UINT64_MAX;
        int r = store_load(f->s, print_record, &text, &found, &f->err);
        if (r < 0)
                fail_msg("load: %s", err_line(&f->err));
        assert_string_equal(str_c(&text), expected);
        assert_int_equal(found, head);
        assert_int_equal(store_head(f->s), head);
        /* a reader sees the same, beside the store's own thread (R: C35) */
        _cleanup_(store_reader_closep) struct store_reader *reader = NULL;
        str_clear(&text);
        assert_int_equal(store_reader_open(f->s, &reader, &f->err), 0);
        assert_int_equal(store_reader_records(reader, print_record, &text, &found, &f->err), 0);
        assert_int_equal(found, head);
        assert_int_equal(text.len, strlen(expected)); /* in any order */
}

static int print_event(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        str_addf(ctx, "%llu:%.*s ", (unsigned long long)e->seq, (int)e->len, (const char *)e->data);
        return 0;
}

static void events_are(struct fixture *f, uint64_t since, bool backwards, const char *expected)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        _cleanup_(store_reader_closep) struct store_reader *r = NULL;
        assert_int_equal(store_reader_open(f->s, &r, &f->err), 0);
        assert_int_equal(store_reader_events(r, since, backwards, print_event, &text, &f->err), 0);
        assert_string_equal(str_c(&text), expected);
}

static void checkpoint_is(struct fixture *f, uint64_t seq, const char *expected)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        uint64_t found = UINT64_MAX;
        assert_int_equal(store_load_checkpoint(f->s, print_record, &text, &found, &f->err), 0);
        assert_string_equal(str_c(&text), expected);
        assert_int_equal(found, seq);
}

static uint64_t first_event(struct fixture *f)
{
        _cleanup_(store_reader_closep) struct store_reader *r = NULL;
        assert_int_equal(store_reader_open(f->s, &r, &f->err), 0);
        return store_reader_first(r);
}

/* ---- the suite ---- */

/* R: A4 */
static void empty_store_has_head_zero_and_nothing_in_it(void **state)
{
        struct fixture *f = *state;
        records_are(f, 0, "");
        events_are(f, 0, false, "");
        events_are(f, 0, true, "");
        checkpoint_is(f, 0, "");
        assert_int_equal(first_event(f), 0);
        assert_int_equal(store_schema(f->s), STORE_SCHEMA_FIRST);
        assert_int_equal(store_integrity(f->s, &f->err), 0);
        assert_true(store_limits(f->s).max_ops > 0 && store_limits(f->s).max_bytes > 0);
        reopen(f);
        records_are(f, 0, "");
}

/* R: A3 A4 */
static void events_and_records_of_a_batch_are_there_after_reopen(void **state)
{
        struct fixture *f = *state;
        struct store_record records[] = { put("/workloads/b", "2"), put("/nodes/n1", "x"),
                                          put("/workloads/a", "1") };
        assert_int_equal(commit(f, 0, 3, "e", records, 3), 0);
        for (int i = 0; i < 2; i++) {
                records_are(f, 3, "/nodes/n1=x /workloads/a=1 /workloads/b=2 ");
                events_are(f, 0, false, "1:e1 2:e2 3:e3 ");
                reopen(f);
        }
        assert_int_equal(commit(f, 3, 1, "e", NULL, 0), 0);
        events_are(f, 0, false, "1:e1 2:e2 3:e3 4:e4 ");
}

static void batch_of_events_only(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(commit(f, 0, 5, "x", NULL, 0), 0);
        records_are(f, 5, "");
        events_are(f, 0, false, "1:x1 2:x2 3:x3 4:x4 5:x5 ");
}

static void batch_of_records_only_puts_and_removes_and_leaves_the_head(void **state)
{
        struct fixture *f = *state;
        struct store_record first[] = { put("/a", "1"), put("/b", "2"), put("/c", "3") };
        assert_int_equal(commit(f, 0, 0, "", first, 3), 0);
        records_are(f, 0, "/a=1 /b=2 /c=3 ");
        struct store_record second[] = { removal("/b"), put("/a", "longer than before"),
                                         removal("/never-there"), put("/d", "") };
        assert_int_equal(commit(f, 0, 0, "", second, 4), 0);
        records_are(f, 0, "/a=longer than before /c=3 /d= ");
        reopen(f);
        struct store_record third[] = { put("/b", "again"), removal("/a"), removal("/d") };
        assert_int_equal(commit(f, 0, 0, "", third, 3), 0);
        records_are(f, 0, "/b=again /c=3 ");
}

/* A store opened again and written to without being loaded must still find the records that are
 * there. */
static void records_are_replaced_without_a_load_in_between(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(
            commit(f, 0, 1, "e", (struct store_record[]){ put("/a", "1"), put("/b", "1") }, 2), 0);
        reopen(f);
        assert_int_equal(
            commit(f, 1, 1, "e",
                   (struct store_record[]){ put("/a", "2"), removal("/b"), put("/c", "2") }, 3),
            0);
        reopen(f);
        records_are(f, 2, "/a=2 /c=2 ");
        assert_int_equal(store_integrity(f->s, &f->err), 0);
}

static void bytes_come_back_as_they_were_given(void **state)
{
        struct fixture *f = *state;
        char big[300000], key[1025];
        for (size_t i = 0; i < sizeof(big); i++)
                big[i] = (char)(i * 7 + (i >> 8));
        memset(key, 'k', sizeof(key) - 1);
        key[0] = '/'; /* as all have */
        key[sizeof(key) - 1] = 0;
        struct store_event events[] = { { 1, big, sizeof(big) }, { 2, "\0\0", 2 }, { 3, NULL, 0 } };
        struct store_record record = { key, big, sizeof(big) };
        struct store_batch batch = { 0, 3, events, 3, &record, 1, 0 };
        assert_int_equal(store_commit(f->s, &batch, &f->err), 0);
        reopen(f);
        _cleanup_(str_finip) struct str text = STR_INIT, expected = STR_INIT;
        print_record(&expected, &record, NULL);
        uint64_t head;
        assert_int_equal(store_load(f->s, print_record, &text, &head, &f->err), 0);
        assert_int_equal(text.len, expected.len);
        assert_memory_equal(str_c(&text), str_c(&expected), text.len);
        /* the last event has no bytes: the same batch again is still recognised */
        assert_int_equal(store_commit(f->s, &batch, &f->err), 0);
        batch.events =
            (struct store_event[]){ { 1, big, sizeof(big) }, { 2, "\0\0", 2 }, { 3, "x", 1 } };
        assert_int_equal(store_commit(f->s, &batch, &f->err), -ERR_CONFLICT);
}

/* R: A5 */
static void same_batch_again_is_recognised_and_applied_once(void **state)
{
        struct fixture *f = *state;
        struct store_record one[] = { put("/a", "1") }, two[] = { put("/a", "2"), put("/b", "2") };
        assert_int_equal(commit(f, 0, 2, "e", one, 1), 0);
        assert_int_equal(commit(f, 2, 2, "e", two, 2), 0);
        assert_int_equal(commit(f, 2, 2, "e", two, 2), 0);
        reopen(f);
        assert_int_equal(commit(f, 2, 2, "e", two, 2), 0);
        assert_int_equal(store_head(f->s), 4);
        events_are(f, 0, false, "1:e1 2:e2 3:e3 4:e4 ");
        records_are(f, 4, "/a=2 /b=2 ");
        /* the one before is not the last any more */
        assert_int_equal(commit(f, 0, 2, "e", one, 1), -ERR_CONFLICT);
        /* and goes on from there */
        assert_int_equal(commit(f, 4, 1, "e", (struct store_record[]){ removal("/a") }, 1), 0);
        records_are(f, 5, "/b=2 ");
}

/* R: A4 C33 */
static void wrong_expected_head_changes_nothing(void **state)
{
        struct fixture *f = *state;
        struct store_record record = put("/a", "1"), other = put("/b", "other");
        assert_int_equal(commit(f, 0, 2, "e", &record, 1), 0);
        assert_int_equal(commit(f, 0, 1, "e", &other, 1), -ERR_CONFLICT);
        /* new_head fits, the last event does not */
        assert_int_equal(commit(f, 1, 1, "f", &other, 1), -ERR_CONFLICT);
        assert_int_equal(commit(f, 3, 1, "e", &other, 1), -ERR_CONFLICT);
        assert_int_equal(commit(f, 7, 0, "", &other, 1), -ERR_CONFLICT);
        assert_int_equal(commit(f, 1, 0, "", NULL, 0), -ERR_CONFLICT);
        assert_true(f->err.msg[0] && f->err.detail[0] && f->err.hint[0]);
        assert_int_equal(commit(f, 2, 0, "", NULL, 0), 0);
        records_are(f, 2, "/a=1 ");
        events_are(f, 0, false, "1:e1 2:e2 ");
}

/* R: A9 */
static void malformed_batches_are_refused_and_change_nothing(void **state)
{
        struct fixture *f = *state;
        struct store_event gap[] = { { 1, "a", 1 }, { 3, "b", 1 } }, none[] = { { 1, NULL, 4 } };
        char key[1026];
        memset(key, 'k', sizeof(key) - 1);
        key[sizeof(key) - 1] = 0;
        struct store_record twice[] = { put("/a", "1"), put("/b", "1"), put("/a", "2") },
                            empty = put("", "1"), too_long = put(key, "1");
        struct store_batch bad[] = {
                { 0, 2, gap, 2, NULL, 0, 0 },       { 0, 3, gap, 2, NULL, 0, 0 },
                { 5, 4, gap, 2, NULL, 0, 0 },       { 0, 1, none, 1, NULL, 0, 0 },
                { 0, 0, NULL, 0, twice, 3, 0 },     { 0, 0, NULL, 0, &empty, 1, 0 },
                { 0, 0, NULL, 0, &too_long, 1, 0 },
        };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                assert_int_equal(store_commit(f->s, &bad[i], &f->err), -ERR_INTERNAL);
                assert_true(f->err.detail[0]);
        }
        records_are(f, 0, "");
}

/* R: A9 A11 */
static void batches_above_the_limits_are_refused(void **state)
{
        struct fixture *f = *state;
        struct store_limits limits = store_limits(f->s);
        size_t n = limits.max_ops + 1;
        _cleanup_(mem_freep) struct store_event *events = mem_must(n * sizeof(*events));
        for (size_t i = 0; i < n; i++)
                events[i] = (struct store_event){ i + 1, "e", 1 };
        struct store_batch batch = { 0, n, events, n, NULL, 0, 0 };
        assert_int_equal(store_commit(f->s, &batch, &f->err), -ERR_LIMIT);
        batch.n_events = batch.new_head = limits.max_ops;
        assert_int_equal(store_commit(f->s, &batch, &f->err), 0);
        _cleanup_(mem_freep) char *large = mem_must(limits.max_bytes);
        struct store_record record = { "/large", large, limits.max_bytes };
        assert_int_equal(commit(f, limits.max_ops, 0, "", &record, 1), -ERR_LIMIT);
        record.len -= strlen("/large");
        assert_int_equal(commit(f, limits.max_ops, 0, "", &record, 1), 0);
}

/* ---- several under way ---- */

/* One event "<prefix><seq>" and up to one record each. */
struct step {
        struct store_event event;
        struct store_record record;
        struct store_batch batch;
        char text[32], value[32];
};

static const struct store_batch *step_make(struct step *t, uint64_t expected, const char *key)
{
        snprintf(t->text, sizeof(t->text), "e%llu", (unsigned long long)expected + 1);
        snprintf(t->value, sizeof(t->value), "%llu", (unsigned long long)expected + 1);
        t->event = (struct store_event){ expected + 1, t->text, strlen(t->text) };
        t->record = put(key, t->value);
        t->batch = (struct store_batch){ expected, expected + 1, &t->event, 1, &t->record, 1, 0 };
        return &t->batch;
}

/* R: A4 A5 */
static void batches_under_way_settle_in_their_order(void **state)
{
        struct fixture *f = *state;
        size_t depth = store_limits(f->s).in_flight;
        struct step steps[STORE_IN_FLIGHT_MAX];
        uint64_t head = 0, done = 0;
        assert_true(depth >= 1 && depth <= STORE_IN_FLIGHT_MAX);
        assert_int_equal(store_settle(f->s, -1, &f->err), 0); /* nothing is under way */
        while (done < 60) {
                while (store_in_flight(f->s) < depth && head < 60) {
                        assert_int_equal(store_submit(f->s,
                                                      step_make(&steps[head % STORE_IN_FLIGHT_MAX],
                                                                head, "/last"),
                                                      &f->err),
                                         0);
                        head++;
                }
                assert_true(store_in_flight(f->s) < depth ||
                            store_submit(f->s, &steps[0].batch, &f->err) == -ERR_INTERNAL);
                int r = store_settle(f->s, 60000, &f->err);
                if (r != 1)
                        fail_msg("settle: %d %s", r, err_line(&f->err));
                assert_int_equal(store_head(f->s), ++done);
        }
        assert_int_equal(store_stats(f->s).commits, 60);
        records_are(f, 60, "/last=60 ");
        events_are(f, 57, false, "58:e58 59:e59 60:e60 ");
        assert_int_equal(store_integrity(f->s, &f->err), 0);
        reopen(f);
        records_are(f, 60, "/last=60 ");
}

/* A batch without events moves no head by which the next could tell that it happened. */
static void batches_without_events_keep_their_place_among_others(void **state)
{
        struct fixture *f = *state;
        size_t depth = store_limits(f->s).in_flight;
        for (uint64_t head = 0; head < 20; head++) {
                struct step first, last;
                struct store_record records[] = { put("/a", "of the records"), removal("/b") };
                struct store_batch middle = { head + 1, head + 1, NULL, 0, records, 2, 0 };
                struct store_batch nothing = { head + 1, head + 1, NULL, 0, NULL, 0, 0 };
                const struct store_batch *chain[] = { step_make(&first, head, "/a"), &middle,
                                                      &nothing, step_make(&last, head + 1, "/b") };
                for (size_t sent = 0, done = 0; done < ARRAY_LEN(chain); done++) {
                        for (; sent < ARRAY_LEN(chain) && sent - done < depth; sent++)
                                assert_int_equal(store_submit(f->s, chain[sent], &f->err), 0);
                        assert_int_equal(store_settle(f->s, -1, &f->err), 1);
                }
                head++;
                records_are(f, head + 1,
                            fmt("/a=of the records /b=%llu ", (unsigned long long)head + 1));
        }
}

/* R: A4 C33 */
static void nothing_behind_a_batch_that_failed_is_applied(void **state)
{
        struct fixture *f = *state;
        size_t depth = store_limits(f->s).in_flight;
        struct step steps[STORE_IN_FLIGHT_MAX], next;
        assert_int_equal(commit(f, 0, 2, "x", NULL, 0), 0);
        for (uint64_t i = 0; i < depth; i++)
                /* the first expects 1 */
                assert_int_equal(store_submit(f->s, step_make(&steps[i], 1 + i, "/wrong"), &f->err),
                                 0);
        assert_int_equal(store_settle(f->s, -1, &f->err), -ERR_CONFLICT);
        assert_int_equal(store_in_flight(f->s), 0);
        assert_int_equal(store_settle(f->s, -1, &f->err), 0);
        records_are(f, 2, "");
        /* one that does not follow is refused, and takes nothing from those under way */
        assert_int_equal(store_submit(f->s, step_make(&next, 2, "/a"), &f->err), 0);
        if (depth > 1)
                assert_int_equal(store_submit(f->s, step_make(&steps[0], 4, "/wrong"), &f->err),
                                 -ERR_INTERNAL);
        /* not beside others */
        assert_int_equal(store_commit(f->s, &steps[0].batch, &f->err), -ERR_INTERNAL);
        assert_int_equal(store_settle(f->s, -1, &f->err), 1);
        records_are(f, 3, "/a=3 ");
        /* what is under way when a store is closed is wholly there or not at all */
        for (uint64_t i = 0; i < depth; i++)
                assert_int_equal(store_submit(f->s, step_make(&steps[i], 3 + i, "/a"), &f->err), 0);
        reopen(f);
        uint64_t head = store_head(f->s);
        assert_true(head >= 3 && head <= 3 + depth);
        records_are(f, head, fmt("/a=%llu ", (unsigned long long)head));
}

static void records_come_ordered_by_key(void **state)
{
        struct fixture *f = *state;
        struct rng rng;
        rng_seed(&rng, 7);
        char keys[500][24], last[24] = "";
        struct store_record records[500];
        for (int i = 0; i < 500; i++) {
                snprintf(keys[i], sizeof(keys[i]), "/w/%016llx",
                         (unsigned long long)rng_next(&rng));
                records[i] = put(keys[i], keys[i]);
        }
        for (int i = 0; i < 500; i += 50)
                assert_int_equal(commit(f, (uint64_t)i / 50, 1, "e", records + i, 50), 0);
        _cleanup_(str_finip) struct str text = STR_INIT;
        assert_int_equal(store_load(f->s, print_record, &text, NULL, &f->err), 0);
        int n = 0;
        for (char *save = NULL, *word = strtok_r(text.buf, " ", &save); word;
             word = strtok_r(NULL, " ", &save), n++) {
                char *equals = strchr(word, '=');
                *equals = 0;
                assert_string_equal(word, equals + 1);
                assert_true(strcmp(last, word) < 0);
                snprintf(last, sizeof(last), "%s", word);
        }
        assert_int_equal(n, 500);
}

static int refuse(void *ctx _unused_, const struct store_record *r _unused_, struct err *err)
{
        return err_set(err, ERR_CORRUPT, .msg = "no");
}

static void load_stops_when_told(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(commit(f, 0, 1, "e", (struct store_record[]){ put("/a", "1") }, 1), 0);
        assert_int_equal(store_load(f->s, refuse, NULL, NULL, &f->err), -ERR_CORRUPT);
        assert_string_equal(f->err.msg, "no");
        records_are(f, 1, "/a=1 ");
}

/* ---- readers ---- */

static int stop_at(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        return e->seq == *(uint64_t *)ctx ? 42 : 0;
}
static int fail_at(void *ctx, const struct store_event *e, struct err *err)
{
        return e->seq == *(uint64_t *)ctx ? err_set(err, ERR_CANCELLED, .msg = "enough") : 0;
}

/* R: C29 */
static void tail_goes_forward_and_backward_from_anywhere(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(commit(f, 0, 5, "e", NULL, 0), 0);
        events_are(f, 0, false, "1:e1 2:e2 3:e3 4:e4 5:e5 ");
        events_are(f, 3, false, "4:e4 5:e5 ");
        events_are(f, 5, false, "");
        events_are(f, 99, false, "");
        events_are(f, UINT64_MAX, false, "");
        events_are(f, 0, true, "5:e5 4:e4 3:e3 2:e2 1:e1 ");
        events_are(f, 3, true, "2:e2 1:e1 ");
        events_are(f, 1, true, "");
        events_are(f, 99, true, "5:e5 4:e4 3:e3 2:e2 1:e1 ");
        events_are(f, UINT64_MAX, true, "5:e5 4:e4 3:e3 2:e2 1:e1 ");
        _cleanup_(store_reader_closep) struct store_reader *r = NULL;
        assert_int_equal(store_reader_open(f->s, &r, &f->err), 0);
        uint64_t at = 3;
        assert_int_equal(store_reader_events(r, 0, false, stop_at, &at, &f->err), 42);
        assert_int_equal(store_reader_events(r, 0, true, fail_at, &at, &f->err), -ERR_CANCELLED);
        _cleanup_(str_finip) struct str text = STR_INIT;
        assert_int_equal(store_reader_event(r, 4, print_event, &text, &f->err), 0);
        assert_string_equal(str_c(&text), "4:e4 ");
        assert_int_equal(store_reader_event(r, 6, print_event, &text, &f->err), -ERR_NOT_FOUND);
        assert_int_equal(store_reader_event(r, 0, print_event, &text, &f->err), -ERR_NOT_FOUND);
        assert_int_equal(store_reader_first(r), 1);
        /* a reader that stays open sees what comes */
        assert_int_equal(commit(f, 5, 1, "e", NULL, 0), 0);
        str_clear(&text);
        assert_int_equal(store_reader_events(r, 5, false, print_event, &text, &f->err), 0);
        assert_string_equal(str_c(&text), "6:e6 ");
}

static int in_order(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        uint64_t *next = ctx;
        assert_int_equal(e->seq, (*next)++);
        return 0;
}

static void tail_of_many_events_has_no_seams(void **state)
{
        struct fixture *f = *state;
        for (uint64_t head = 0; head < 64 * 20; head += 64)
                assert_int_equal(commit(f, head, 64, "e", NULL, 0), 0);
        _cleanup_(store_reader_closep) struct store_reader *r = NULL;
        assert_int_equal(store_reader_open(f->s, &r, &f->err), 0);
        uint64_t next = 1;
        assert_int_equal(store_reader_events(r, 0, false, in_order, &next, &f->err), 0);
        assert_int_equal(next, 64 * 20 + 1);
}

static int commit_from_callback(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        return commit(ctx, e->seq, 1, "e", NULL, 0) == 0 ? 42 : -ERR_INTERNAL;
}

static void commits_go_on_while_a_reader_reads(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(commit(f, 0, 1, "e", NULL, 0), 0);
        _cleanup_(store_reader_closep) struct store_reader *r = NULL;
        assert_int_equal(store_reader_open(f->s, &r, &f->err), 0);
        for (uint64_t since = 0; since < 9; since++)
                assert_int_equal(
                    store_reader_events(r, since, false, commit_from_callback, f, &f->err), 42);
        assert_int_equal(store_head(f->s), 10);
}

/* ---- checkpoints ---- */

/* R: C29 */
static void prune_keeps_the_newest_and_what_follows_the_checkpoint(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(
            commit(f, 0, 50, "e", (struct store_record[]){ put("/a", "1"), put("/b", "1") }, 2), 0);
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        checkpoint_is(f, 50, "/a=1 /b=1 ");
        assert_int_equal(
            commit(f, 50, 10, "e", (struct store_record[]){ put("/c", "2"), removal("/a") }, 2), 0);
        checkpoint_is(f, 50, "/a=1 /b=1 ");

        assert_int_equal(store_prune(f->s, STORE_KEEP_LOG(100), 1000, NULL, &f->err), 0);
        assert_int_equal(first_event(f), 1);
        assert_int_equal(store_prune(f->s, STORE_KEEP_LOG(40), 0, NULL, &f->err), 0);
        assert_int_equal(store_prune(f->s, STORE_KEEP_LOG(40), 15, NULL, &f->err), 15);
        assert_int_equal(first_event(f), 16);
        assert_int_equal(store_prune(f->s, STORE_KEEP_LOG(40), 15, NULL, &f->err), 5);
        assert_int_equal(first_event(f), 21);
        assert_int_equal(store_prune(f->s, STORE_KEEP_LOG(40), 15, NULL, &f->err), 0);
        assert_int_equal(store_integrity(f->s, &f->err), 0);
        events_are(f, 57, false, "58:e58 59:e59 60:e60 ");
        events_are(f, 23, true, "22:e22 21:e21 ");
        _cleanup_(store_reader_closep) struct store_reader *r = NULL;
        assert_int_equal(store_reader_open(f->s, &r, &f->err), 0);
        assert_int_equal(store_reader_event(r, 20, print_event, NULL, &f->err), -ERR_NOT_FOUND);
        store_reader_close(TAKE_PTR(r));

        reopen(f);
        records_are(f, 60, "/b=1 /c=2 ");
        checkpoint_is(f, 50, "/a=1 /b=1 ");
        assert_int_equal(first_event(f), 21);
        assert_int_equal(commit(f, 60, 1, "e", NULL, 0), 0);
}

static void newer_checkpoint_replaces_the_older(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        checkpoint_is(f, 0, "");
        for (uint64_t i = 0; i < 5; i++) {
                _cleanup_(str_finip) struct str expected = STR_INIT;
                char value[8];
                snprintf(value, sizeof(value), "%d", (int)i);
                assert_int_equal(
                    commit(f, i, 1, "e", (struct store_record[]){ put("/a", value) }, 1), 0);
                assert_int_equal(store_checkpoint(f->s, &f->err), 0);
                if (i == 2)
                        reopen(f);
                str_addf(&expected, "/a=%s ", value);
                checkpoint_is(f, i + 1, str_c(&expected));
        }
        assert_int_equal(store_integrity(f->s, &f->err), 0);
}

static void prune_takes_its_checkpoint_by_itself(void **state)
{
        struct fixture *f = *state;
        struct store_record record = put("/a", "1");
        for (uint64_t head = 0; head < 640; head += 64)
                assert_int_equal(commit(f, head, 64, "e", &record, 1), 0);
        int64_t removed = 0, deadline_ns = clock_mono_ns() + 20000000000LL;
        while (removed < 540 && clock_mono_ns() < deadline_ns) {
                int64_t n = store_prune(f->s, STORE_KEEP_LOG(100), 200, NULL, &f->err);
                assert_true(n >= 0 && n <= 200);
                removed += n;
                if (n == 0)
                        sched_yield();
        }
        assert_int_equal(removed, 540);
        assert_int_equal(first_event(f), 541);
        assert_int_equal(store_prune(f->s, STORE_KEEP_LOG(100), 200, NULL, &f->err), 0);
        checkpoint_is(f, 640, "/a=1 ");
        /* a few more events do not buy another copy of everything */
        assert_int_equal(commit(f, 640, 20, "e", NULL, 0), 0);
        assert_true(store_prune(f->s, STORE_KEEP_LOG(100), 200, NULL, &f->err) >= 0);
        checkpoint_is(f, 640, "/a=1 ");
}

static void last_event_is_never_pruned(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(commit(f, 0, 10, "e", NULL, 0), 0);
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        assert_int_equal(store_prune(f->s, STORE_KEEP_LOG(1), 1000, NULL, &f->err), 9);
        assert_int_equal(store_prune(f->s, STORE_KEEP_LOG(1), 1000, NULL, &f->err), 0);
        assert_int_equal(first_event(f), 10);
        reopen(f);
        records_are(f, 10, "");
        assert_int_equal(commit(f, 9, 1, "e", NULL, 0), 0); /* S3 still works */
}

/* ---- classes of events ---- */

#define EXEC PB__EVENT_TYPE__E__WorkloadExec
#define STARTED PB__EVENT_TYPE__E__WorkloadStarted
/* when the first event happened; each comes a second after the one before */
#define T0 INT64_C(1771286400000)

/* Real events this time: n after the head, those in `audits` (ended by 0) are of a class of
 * their own. */
static void commit_real(struct fixture *f, size_t n, const uint64_t *audits)
{
        struct arena a = ARENA_INIT;
        for (uint64_t head = store_head(f->s), end = head + n; head < end;) {
                struct store_event events[64];
                size_t k = 0;
                for (; k < ARRAY_LEN(events) && head + k < end; k++) {
                        uint64_t seq = head + 1 + k;
                        Pb__Event e = PB__EVENT__INIT;
                        e.seq = seq;
                        e.type = STARTED;
                        for (const uint64_t *p = audits; p && *p; p++)
                                if (*p == seq)
                                        e.type = EXEC;
                        e.timestamp = T0 + (int64_t)seq * 1000;
                        e.workload_id = (char *)"w";
                        events[k].seq = seq;
                        events[k].data = pb_pack_arena(&a, &e.base, &events[k].len);
                }
                struct store_batch batch = { head, head + k, events, k, NULL, 0, 0 };
                int r = store_commit(f->s, &batch, &f->err);
                if (r < 0)
                        fail_msg("commit: %s", err_line(&f->err));
                head += k;
                arena_reset(&a);
        }
        arena_fini(&a);
}

static struct store_retention keeping(uint64_t log, uint64_t audit)
{
        return (struct store_retention){
                .now_ms = T0 + INT64_C(1000000000),
                .of = { [EVENT_LIFECYCLE].events = log, [EVENT_AUDIT].events = audit }
        };
}

/* Until there is nothing more to do; a checkpoint may be on its way. */
static struct store_pruned prune_all(struct fixture *f, const struct store_retention *keep)
{
        struct store_pruned all = { 0 }, some;
        int64_t n;
        while ((n = store_prune(f->s, keep, 50, &some, &f->err)) > 0) {
                assert_true(n <= 50);
                all.left += some.left;
                all.removed += some.removed;
        }
        if (n < 0)
                fail_msg("prune: %s", err_line(&f->err));
        return all;
}

static int print_seq(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        struct event_peek p;
        assert_true(event_peek(e->data, e->len, &p));
        assert_int_equal(p.seq, e->seq); /* as it was given */
        str_addf(ctx, "%llu%s ", (unsigned long long)e->seq, p.type == EXEC ? "!" : "");
        return 0;
}

static void sequences_are(struct fixture *f, uint64_t since, bool backwards, const char *expected)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        _cleanup_(store_reader_closep) struct store_reader *r = NULL;
        assert_int_equal(store_reader_open(f->s, &r, &f->err), 0);
        assert_int_equal(store_reader_events(r, since, backwards, print_seq, &text, &f->err), 0);
        assert_string_equal(str_c(&text), expected);
}

/* R: A14 C29 */
static void audit_events_outlive_a_flood_of_others(void **state)
{
        struct fixture *f = *state;
        const uint64_t audits[] = { 5, 6, 90, 196, 0 };
        struct store_retention keep = keeping(5, 100);
        commit_real(f, 200, audits);
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        struct store_pruned done = prune_all(f, &keep);
        assert_int_equal(done.left, 195);
        assert_int_equal(done.removed, 192);
        assert_int_equal(store_stats(f->s).kept[EVENT_AUDIT], 3);
        for (int i = 0; i < 2; i++) {
                sequences_are(f, 0, false, "5! 6! 90! 196! 197 198 199 200 ");
                sequences_are(f, 5, false, "6! 90! 196! 197 198 199 200 ");
                sequences_are(f, 89, false, "90! 196! 197 198 199 200 ");
                sequences_are(f, 198, false, "199 200 ");
                sequences_are(f, 200, false, "");
                sequences_are(f, 0, true, "200 199 198 197 196! 90! 6! 5! ");
                sequences_are(f, 91, true, "90! 6! 5! ");
                sequences_are(f, 6, true, "5! ");
                sequences_are(f, 5, true, "");
                assert_int_equal(first_event(f), 196);
                assert_int_equal(store_integrity(f->s, &f->err), 0);
                _cleanup_(store_reader_closep) struct store_reader *r = NULL;
                _cleanup_(str_finip) struct str text = STR_INIT;
                uint64_t at = 6;
                assert_int_equal(store_reader_open(f->s, &r, &f->err), 0);
                assert_int_equal(store_reader_event(r, 90, print_seq, &text, &f->err), 0);
                assert_string_equal(str_c(&text), "90! ");
                assert_int_equal(store_reader_event(r, 91, print_seq, &text, &f->err),
                                 -ERR_NOT_FOUND);
                assert_int_equal(store_reader_events(r, 0, false, stop_at, &at, &f->err), 42);
                assert_int_equal(store_reader_events(r, 0, true, fail_at, &at, &f->err),
                                 -ERR_CANCELLED);
                store_reader_close(TAKE_PTR(r));
                reopen(f);
        }
        commit_real(f, 200, NULL);
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        assert_int_equal(prune_all(f, &keep).removed, 199); /* 196 to 395 without 196 */
        sequences_are(f, 0, false, "5! 6! 90! 196! 396 397 398 399 400 ");
        assert_int_equal(store_prune(f->s, &keep, 50, NULL, &f->err), 0);
        assert_int_equal(store_integrity(f->s, &f->err), 0);
}

/* R: A14 C29 */
static void a_class_loses_its_own_oldest_only(void **state)
{
        struct fixture *f = *state;
        uint64_t audits[151] = { 0 };
        for (size_t i = 0; i < 150; i++)
                audits[i] = 2 * i + 1; /* every other one */
        struct store_retention keep = keeping(10, 4);
        commit_real(f, 300, audits);
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        assert_int_equal(prune_all(f, &keep).removed, 286);
        sequences_are(f, 0, false,
                      "283! 285! 287! 289! 291! 292 293! 294 295! 296 297! 298 299! 300 ");
        assert_int_equal(store_stats(f->s).kept[EVENT_AUDIT], 4);
        reopen(f);
        keep.of[EVENT_AUDIT].events = 2; /* counted anew */
        assert_int_equal(prune_all(f, &keep).removed, 2);
        sequences_are(f, 290, true, "289! 287! ");
        assert_int_equal(store_stats(f->s).kept[EVENT_AUDIT], 2);
        assert_int_equal(store_integrity(f->s, &f->err), 0);
}

/* Waits for a checkpoint that prune takes by itself. */
static void prune_until_first_is(struct fixture *f, const struct store_retention *keep,
                                 uint64_t first)
{
        int64_t deadline_ns = clock_mono_ns() + 20000000000LL;
        while (first_event(f) != first && clock_mono_ns() < deadline_ns) {
                assert_true(store_prune(f->s, keep, 1000, NULL, &f->err) >= 0);
                sched_yield();
        }
        assert_int_equal(first_event(f), first);
}

/* R: C29 */
static void what_is_too_old_goes_by_its_class(void **state)
{
        struct fixture *f = *state;
        const uint64_t audits[] = { 3, 40, 95, 0 };
        commit_real(f, 100, audits);
        struct store_retention keep = {
                .of = { [EVENT_LIFECYCLE].age_ms = 100000, [EVENT_AUDIT].age_ms = 1000000 }
        };
        keep.now_ms = T0 + 101 * 1000;
        /* the first one is exactly that old */
        assert_int_equal(store_prune(f->s, &keep, 1000, NULL, &f->err), 0);
        assert_int_equal(store_prune_again_ms(&keep), 12500);
        keep.now_ms = T0 + 191 * 1000;
        /* without any other event: it takes a checkpoint for it */
        prune_until_first_is(f, &keep, 91);
        sequences_are(f, 0, false, "3! 40! 91 92 93 94 95! 96 97 98 99 100 ");
        keep.now_ms = T0 + 5000 * 1000;
        prune_until_first_is(f, &keep, 100); /* the last one stays, whatever its age */
        while (store_prune(f->s, &keep, 1000, NULL, &f->err) > 0)
                ;
        sequences_are(f, 0, false, "100 "); /* 95 was too old when it left */
        assert_int_equal(store_prune(f->s, &keep, 1000, NULL, &f->err), 0);
        assert_int_equal(store_integrity(f->s, &f->err), 0);
}

/* R: A14 */
static void what_is_kept_apart_goes_at_its_age_without_any_commit(void **state)
{
        struct fixture *f = *state;
        const uint64_t audits[] = { 3, 40, 0 };
        commit_real(f, 100, audits);
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        struct store_retention keep = keeping(10, 0);
        keep.of[EVENT_AUDIT].age_ms = 1000000;
        keep.now_ms = T0 + 900 * 1000;
        assert_int_equal(prune_all(f, &keep).removed, 88);
        sequences_are(f, 91, true, "40! 3! ");
        keep.now_ms = T0 + 1030 * 1000;
        assert_int_equal(prune_all(f, &keep).removed, 1);
        sequences_are(f, 91, true, "40! ");
        /* old enough, and not looked at yet: an eighth of its age has not passed */
        keep.now_ms += 20 * 1000;
        assert_int_equal(prune_all(f, &keep).removed, 0);
        keep.now_ms += 125 * 1000;
        assert_int_equal(prune_all(f, &keep).removed, 1);
        sequences_are(f, 91, true, "");
}

struct reading {
        struct fixture *f;
        const struct store_retention *keep;
        uint64_t prune_at, last;
        struct str audits;
};

static int prune_while_reading(void *ctx, const struct store_event *e, struct err *err)
{
        struct reading *r = ctx;
        assert_true(e->seq > r->last);
        r->last = e->seq;
        if (event_class_of(event_type(e->data, e->len)) == EVENT_AUDIT)
                print_seq(&r->audits, e, err);
        if (e->seq == r->prune_at)
                (void)prune_all(r->f, r->keep);
        return 0;
}

/* R: C29 A14 (S7) */
static void what_leaves_the_log_while_it_is_read_is_read_all_the_same(void **state)
{
        struct fixture *f = *state;
        const uint64_t audits[] = { 5, 100, 101, 700, 1500, 1999, 0 };
        struct store_retention keep = keeping(10, 100);
        struct reading reading = { .f = f, .keep = &keep, .prune_at = 100 };
        commit_real(f, 2000, audits);
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        _cleanup_(store_reader_closep) struct store_reader *r = NULL;
        assert_int_equal(store_reader_open(f->s, &r, &f->err), 0);
        assert_int_equal(store_reader_events(r, 0, false, prune_while_reading, &reading, &f->err),
                         0);
        assert_int_equal(reading.last, 2000);
        assert_string_equal(str_c(&reading.audits), "5! 100! 101! 700! 1500! 1999! ");
        assert_int_equal(first_event(f), 1991);
        str_fini(&reading.audits);
}

/* More than a page of them, between others that go. */
/* R: C29 A14 */
static void random_prunes_agree_with_a_model(void **state)
{
        struct fixture *f = *state;
        struct rng rng;
        rng_seed(&rng, 5);
        struct store_retention keep = keeping(100, 170);
        ARRAY(uint64_t) audits = { 0 };
        for (int round = 0; round < 12; round++) {
                uint64_t batch[200], head = store_head(f->s);
                size_t n = 50 + (size_t)rng_below(&rng, 140), k = 0;
                for (uint64_t seq = head + 1; seq <= head + n; seq++)
                        if (rng_chance(&rng, 400000)) {
                                batch[k++] = seq;
                                *array_push(&audits) = seq;
                        }
                batch[k] = 0;
                commit_real(f, n, batch);
                if (rng_chance(&rng, 700000))
                        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
                if (rng_chance(&rng, 300000))
                        reopen(f);
                (void)prune_all(f, &keep);
                assert_int_equal(store_integrity(f->s, &f->err), 0);
                /* of the audits below the floor the newest 170, and then the log */
                uint64_t first = first_event(f);
                size_t below = 0;
                while (below < audits.len && audits.at[below] < first)
                        below++;
                _cleanup_(str_finip) struct str forward = STR_INIT, text = STR_INIT;
                for (size_t i = below > 170 ? below - 170 : 0; i < below; i++)
                        str_addf(&forward, "%llu! ", (unsigned long long)audits.at[i]);
                for (uint64_t seq = first, i = below; seq <= store_head(f->s); seq++) {
                        bool audit = i < audits.len && audits.at[i] == seq;
                        str_addf(&forward, "%llu%s ", (unsigned long long)seq, audit ? "!" : "");
                        i += audit;
                }
                sequences_are(f, 0, false, str_c(&forward));
        }
        assert_true(store_stats(f->s).kept[EVENT_AUDIT] > 128);
        array_fini(&audits);
}

/* R: A14 A10 */
static void a_copy_has_what_is_kept_apart(void **state)
{
        struct fixture *f = *state, other = { .factory = f->factory };
        const uint64_t audits[] = { 5, 6, 90, 196, 0 };
        struct store_retention keep = keeping(5, 100);
        commit_real(f, 199, audits);
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        commit_real(f, 1, audits);
        (void)prune_all(f, &keep);
        struct memory_disk *disk = memory_disk_create();
        struct store *middle = NULL;
        assert_int_equal(memory_open(disk, &middle, &f->err), 0);
        if (store_copy(f->s, middle, NULL, NULL, &f->err) < 0)
                fail_msg("copy: %s", err_line(&f->err));
        other.factory->make(&other);
        assert_int_equal(other.factory->open(&other, &other.s, &other.err), 0);
        if (store_copy(middle, other.s, NULL, NULL, &f->err) < 0)
                fail_msg("copy back: %s", err_line(&f->err));
        sequences_are(&other, 0, false, "5! 6! 90! 196! 197 198 199 200 ");
        checkpoint_is(&other, 199, "");
        assert_int_equal(first_event(&other), 196);
        assert_int_equal(store_integrity(other.s, &f->err), 0);
        reopen(&other);
        keep.of[EVENT_AUDIT].events = 1;
        assert_int_equal(prune_all(&other, &keep).removed, 2);
        commit_real(&other, 1, NULL);
        sequences_are(&other, 197, true, "196! 90! ");
        store_close(other.s);
        other.factory->clean(&other);
        store_close(middle);
        memory_disk_destroy(disk);
}

/* ---- opening ---- */

/* R: A10 */
static void newer_schema_is_refused_with_a_sentence(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(commit(f, 0, 1, "e", (struct store_record[]){ put("/a", "1") }, 1), 0);
        store_close(TAKE_PTR(f->s));
        f->factory->set_schema(f, STORE_SCHEMA + 1);
        assert_int_equal(f->factory->open(f, &f->s, &f->err), -ERR_CONFLICT);
        assert_string_equal(f->err.msg, "the store was written by a newer berth");
        assert_non_null(strstr(f->err.detail, fmt("schema %d", STORE_SCHEMA + 1)));
        assert_true(f->err.hint[0]);
        assert_null(f->s);
        f->factory->set_schema(f, STORE_SCHEMA);
        assert_int_equal(f->factory->open(f, &f->s, &f->err), 0);
        records_are(f, 1, "/a=1 ");
}

/* With the batch that needs it, and not without: what was refused raises nothing. R: A10 */
static void the_schema_grows_with_a_commit(void **state)
{
        struct fixture *f = *state;
        struct store_event e = { 1, "e1", 2 };
        struct store_record a = put("/a", "1");
        struct store_batch wrong = { 5, 6,           &(struct store_event){ 6, "x", 1 }, 1, &a,
                                     1, STORE_SCHEMA };
        assert_int_equal(store_commit(f->s, &wrong, &f->err), -ERR_CONFLICT);
        reopen(f);
        assert_int_equal(store_schema(f->s), STORE_SCHEMA_FIRST);
        struct store_batch right = { 0, 1, &e, 1, &a, 1, STORE_SCHEMA };
        assert_int_equal(store_commit(f->s, &right, &f->err), 0);
        assert_int_equal(store_schema(f->s), STORE_SCHEMA);
        reopen(f);
        assert_int_equal(store_schema(f->s), STORE_SCHEMA);
        records_are(f, 1, "/a=1 ");
        assert_int_equal(commit(f, 1, 1, "e", NULL, 0), 0); /* it stays */
        reopen(f);
        assert_int_equal(store_schema(f->s), STORE_SCHEMA);
}

/* R: A4 */
static void second_opener_is_refused_while_the_first_lives(void **state)
{
        struct fixture *f = *state;
        struct store *second = NULL;
        assert_int_equal(f->factory->open(f, &second, &f->err), -ERR_CONFLICT);
        assert_true(f->err.msg[0] && f->err.detail[0] && f->err.hint[0]);
        assert_null(second);
        /* the refusal took nothing from the first */
        assert_int_equal(commit(f, 0, 1, "e", NULL, 0), 0);
        assert_int_equal(f->factory->open(f, &second, &f->err), -ERR_CONFLICT);
        reopen(f);
}

/* R: A4 */
static void second_process_is_refused_while_the_first_lives(void **state)
{
        struct fixture *f = *state;
        int status;
        pid_t child = fork();
        if (child == 0) {
                struct store *second = NULL;
                struct err err = { 0 };
                int r = f->factory->open(f, &second, &err);
                _exit(r == -ERR_CONFLICT && strstr(err.detail, fmt("pid %d", (int)getppid())) ? 0
                                                                                              : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(commit(f, 0, 1, "e", NULL, 0), 0);
}

/* R: A4 A5 */
static void store_is_free_again_after_kill_9_of_its_holder(void **state)
{
        struct fixture *f = *state;
        store_close(TAKE_PTR(f->s));
        int pipe_fds[2], status;
        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        pid_t child = fork();
        if (child == 0) {
                char ok = f->factory->open(f, &f->s, NULL) == 0 &&
                          commit(f, 0, 3, "e", (struct store_record[]){ put("/a", "1") }, 1) == 0;
                if (write(pipe_fds[1], &ok, 1) != 1)
                        _exit(1);
                for (;;)
                        pause();
        }
        char ok = 0;
        assert_int_equal(read(pipe_fds[0], &ok, 1), 1);
        assert_int_equal(ok, 1);
        assert_int_equal(f->factory->open(f, &f->s, &f->err), -ERR_CONFLICT);
        assert_non_null(strstr(f->err.detail, fmt("pid %d", (int)child)));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(f->factory->open(f, &f->s, &f->err), 0);
        records_are(f, 3, "/a=1 ");
        close(pipe_fds[0]);
        close(pipe_fds[1]);
}

static void stats_count_what_was_committed(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(commit(f, 0, 2, "e", (struct store_record[]){ put("/a", "123") }, 1), 0);
        assert_int_equal(commit(f, 9, 1, "e", NULL, 0), -ERR_CONFLICT);
        assert_int_equal(commit(f, 2, 0, "", NULL, 0), 0); /* nothing to do is no commit (A6) */
        struct store_stats stats = store_stats(f->s);
        assert_int_equal(stats.commits, 1);
        assert_int_equal(stats.events, 2);
        assert_int_equal(stats.records, 1);
        assert_int_equal(stats.bytes, 2 + 2 + 2 + 3);
        assert_true(stats.last_commit_us >= 0);
}

/* Random batches against a model: a plain array of what must be there. */
/* R: A3 A5 */
static void random_batches_agree_with_a_model(void **state)
{
        struct fixture *f = *state;
        struct rng rng;
        rng_seed(&rng, 11);
        char model[40][16] = { { 0 } };
        uint64_t head = 0;
        for (int round = 0; round < 200; round++) {
                struct store_record records[40];
                char keys[40][8], values[40][16];
                size_t n = 0, n_events = (size_t)rng_below(&rng, 4);
                for (int k = 0; k < 40; k++) {
                        if (!rng_chance(&rng, 200000))
                                continue;
                        snprintf(keys[n], sizeof(keys[n]), "/k/%02d", k);
                        snprintf(values[n], sizeof(values[n]), "%u",
                                 (unsigned)rng_below(&rng, 1000000));
                        bool gone = rng_chance(&rng, 300000);
                        records[n] = gone ? removal(keys[n]) : put(keys[n], values[n]);
                        snprintf(model[k], sizeof(model[k]), "%s", gone ? "" : values[n]);
                        n++;
                }
                assert_int_equal(commit(f, head, n_events, "e", records, n), 0);
                head += n_events;
                if (rng_chance(&rng, 50000))
                        reopen(f);
                if (rng_chance(&rng, 50000))
                        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
                if (rng_chance(&rng, 100000))
                        assert_true(store_prune(f->s, STORE_KEEP_LOG(20), 10, NULL, &f->err) >= 0);
        }
        _cleanup_(str_finip) struct str expected = STR_INIT;
        for (int k = 0; k < 40; k++)
                if (model[k][0])
                        str_addf(&expected, "/k/%02d=%s ", k, model[k]);
        records_are(f, head, str_c(&expected));
        assert_int_equal(store_integrity(f->s, &f->err), 0);
}

/* Into a store of its own kind and back from a store in memory: the same events, records,
 * checkpoint and head. */
/* R: A4 A10 */
static void a_copy_is_the_same_store(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(
            commit(f, 0, 30, "e",
                   (struct store_record[]){ put("/a", "1"), put("/b", "1"), put("/gone", "1") }, 3),
            0);
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        assert_int_equal(
            commit(f, 30, 20, "e",
                   (struct store_record[]){ put("/b", "2"), removal("/gone"), put("/c", "2") }, 3),
            0);
        assert_int_equal(store_prune(f->s, STORE_KEEP_LOG(25), 10, NULL, &f->err), 10);
        struct memory_disk *disk = memory_disk_create();
        struct store *middle = NULL;
        assert_int_equal(memory_open(disk, &middle, &f->err), 0);
        if (store_copy(f->s, middle, NULL, NULL, &f->err) < 0)
                fail_msg("copy: %s", err_line(&f->err));
        assert_int_equal(store_integrity(middle, &f->err), 0);
        struct fixture other = { .factory = f->factory };
        other.factory->make(&other);
        assert_int_equal(other.factory->open(&other, &other.s, &other.err), 0);
        if (store_copy(middle, other.s, NULL, NULL, &f->err) < 0)
                fail_msg("copy back: %s", err_line(&f->err));
        records_are(&other, 50, "/a=1 /b=2 /c=2 ");
        checkpoint_is(&other, 30, "/a=1 /b=1 /gone=1 ");
        assert_int_equal(first_event(&other), 11);
        events_are(&other, 47, false, "48:e48 49:e49 50:e50 ");
        assert_int_equal(store_integrity(other.s, &f->err), 0);
        /* not empty any more */
        assert_int_equal(store_copy(middle, other.s, NULL, NULL, &f->err), -ERR_CONFLICT);
        reopen(&other);
        assert_int_equal(commit(&other, 50, 1, "e", NULL, 0), 0);
        store_close(other.s);
        other.factory->clean(&other);
        store_close(middle);
        memory_disk_destroy(disk);
}

/* clang-format off */
#define T(name) { .label = #name, .test = name }
#define SHARED(name) { .label = #name, .test = name, .shared = true }
/* clang-format on */
static const struct {
        const char *label;
        CMUnitTestFunction test;
        bool shared; /* only for stores that other processes reach too */
} suite[] = {
        T(empty_store_has_head_zero_and_nothing_in_it),
        T(events_and_records_of_a_batch_are_there_after_reopen),
        T(batch_of_events_only),
        T(batch_of_records_only_puts_and_removes_and_leaves_the_head),
        T(records_are_replaced_without_a_load_in_between),
        T(bytes_come_back_as_they_were_given),
        T(same_batch_again_is_recognised_and_applied_once),
        T(wrong_expected_head_changes_nothing),
        T(malformed_batches_are_refused_and_change_nothing),
        T(batches_above_the_limits_are_refused),
        T(batches_under_way_settle_in_their_order),
        T(batches_without_events_keep_their_place_among_others),
        T(nothing_behind_a_batch_that_failed_is_applied),
        T(records_come_ordered_by_key),
        T(load_stops_when_told),
        T(tail_goes_forward_and_backward_from_anywhere),
        T(tail_of_many_events_has_no_seams),
        T(commits_go_on_while_a_reader_reads),
        T(prune_keeps_the_newest_and_what_follows_the_checkpoint),
        T(newer_checkpoint_replaces_the_older),
        T(prune_takes_its_checkpoint_by_itself),
        T(last_event_is_never_pruned),
        T(audit_events_outlive_a_flood_of_others),
        T(a_class_loses_its_own_oldest_only),
        T(what_is_too_old_goes_by_its_class),
        T(what_is_kept_apart_goes_at_its_age_without_any_commit),
        T(what_leaves_the_log_while_it_is_read_is_read_all_the_same),
        T(random_prunes_agree_with_a_model),
        T(a_copy_has_what_is_kept_apart),
        T(newer_schema_is_refused_with_a_sentence),
        T(the_schema_grows_with_a_commit),
        T(second_opener_is_refused_while_the_first_lives),
        SHARED(second_process_is_refused_while_the_first_lives),
        SHARED(store_is_free_again_after_kill_9_of_its_holder),
        T(stats_count_what_was_committed),
        T(random_batches_agree_with_a_model),
        T(a_copy_is_the_same_store),
};

int main(void)
{
        static struct CMUnitTest tests[ARRAY_LEN(suite) * ARRAY_LEN(factories)];
        static char names[ARRAY_LEN(tests)][128];
        size_t n = 0;
        for (size_t i = 0; i < ARRAY_LEN(factories); i++) {
                if (strcmp(factories[i].name, "etcd") == 0 && !etcd_is_installed()) {
                        print_message("# etcd is not installed: not tested on it\n");
                        continue;
                }
                for (size_t j = 0; j < ARRAY_LEN(suite); j++) {
                        if (suite[j].shared && !factories[i].shared)
                                continue;
/* cannot follow threads that a forked child starts, and the store in etcd has one */
#ifdef __SANITIZE_THREAD__
                        if (suite[j].shared && strcmp(factories[i].name, "etcd") == 0)
                                continue;
#endif
                        snprintf(names[n], sizeof(names[n]), "%s_%s", factories[i].name,
                                 suite[j].label);
                        tests[n] = (struct CMUnitTest){ names[n], suite[j].test, setup, teardown,
                                                        (void *)(uintptr_t)&factories[i] };
                        n++;
                }
        }
        int failed = _cmocka_run_group_tests("store_conformance", tests, n, NULL, NULL);
        etcd_process_clean(&etcd);
        return failed;
}
