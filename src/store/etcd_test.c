/* store/etcd_test.c: what only the store in etcd can suffer: lost answers, another leader, members
 * that die or hang. With a real etcd, and a proxy before it where a fault must come at a certain
 * moment. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "events.pb-c.h"
#include "model/pb.h"
#include "records.pb-c.h"
#include "store/etcd_client.h"
#include "store/etcd_testkit.h"
#include "store/store.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS (60 * 1000000000LL)

static struct etcd_process etcd;

struct fixture {
        struct etcd_proxy *proxy;
        char prefix[32];
        struct store *s; /* through the proxy, and leads */
        struct err err;
};

static int setup_with(void **state, const char *options)
{
        static int number;
        struct fixture *f = mem_must(sizeof(*f));
        snprintf(f->prefix, sizeof(f->prefix), "/t%d", ++number);
        f->proxy = etcd_proxy_start(etcd.port);
        if (store_open(
                fmt("etcd://127.0.0.1:%d%s%s", etcd_proxy_port(f->proxy), f->prefix, options), true,
                &f->s, &f->err) < 0 ||
            store_lead(f->s, "test", 60, 5000, &f->err) < 0)
                fail_msg("%s", err_line(&f->err));
        *state = f;
        return 0;
}

static int setup(void **state)
{
        return setup_with(state, "?in-flight=3");
}

/* As it is by itself: one is under way, and the next one waits with the client for its end. */
static int setup_default(void **state)
{
        return setup_with(state, "");
}

static int teardown(void **state)
{
        struct fixture *f = *state;
        etcd_proxy_hold(f->proxy, false, false);
        store_close(f->s);
        etcd_proxy_stop(f->proxy);
        mem_free(f);
        return 0;
}

/* ---- words ---- */

static void ctl(const char *words)
{
        _cleanup_(str_finip) struct str line = STR_INIT;
        str_addf(&line, "ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:%d %s >/dev/null", etcd.port,
                 words);
        assert_int_equal(system(str_c(&line)), 0);
}

struct step {
        struct store_event event;
        struct store_record record;
        struct store_batch batch;
        char text[32], key[32];
};

static const struct store_batch *step_make(struct step *t, uint64_t expected)
{
        snprintf(t->text, sizeof(t->text), "e%llu", (unsigned long long)expected + 1);
        snprintf(t->key, sizeof(t->key), "/k/%llu", (unsigned long long)expected % 7);
        t->event = (struct store_event){ expected + 1, t->text, strlen(t->text) };
        t->record = (struct store_record){ t->key, t->text, strlen(t->text) };
        t->batch = (struct store_batch){ expected, expected + 1, &t->event, 1, &t->record, 1, 0 };
        return &t->batch;
}

static void submit(struct fixture *f, struct step *t, uint64_t expected)
{
        if (store_submit(f->s, step_make(t, expected), &f->err) < 0)
                fail_msg("submit: %s", err_line(&f->err));
}

static void settles(struct fixture *f, int expected)
{
        f->err = (struct err){ 0 };
        int r = store_settle(f->s, -1, &f->err);
        if (r != expected)
                fail_msg("settle: %d, expected %d: %s", r, expected, err_line(&f->err));
}

/* Asks etcd itself, past the proxy. */
static void head_becomes(struct fixture *f, uint64_t head)
{
        for (int64_t end_ns = clock_mono_ns() + PATIENCE_NS;;) {
                _cleanup_(store_closep) struct store *s = NULL;
                assert_int_equal(store_open(fmt("etcd://127.0.0.1:%d%s", etcd.port, f->prefix),
                                            false, &s, &f->err),
                                 0);
                if (store_head(s) == head)
                        return;
                assert_true(clock_mono_ns() < end_ns);
                nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
        }
}

struct tail {
        uint64_t next;
};
static int tail_one(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        struct tail *t = ctx;
        assert_int_equal(e->seq, t->next);
        const char *text = fmt("e%llu", (unsigned long long)e->seq);
        assert_int_equal(e->len, strlen(text));
        assert_memory_equal(e->data, text, e->len);
        t->next++;
        return 0;
}

/* Events 1 to n are there, each once and as it was given, and the store is sound. */
static void holds_events(struct fixture *f, uint64_t n)
{
        _cleanup_(store_reader_closep) struct store_reader *r = NULL;
        struct tail t = { 1 };
        assert_int_equal(store_reader_open(f->s, &r, &f->err), 0);
        assert_int_equal(store_reader_events(r, 0, false, tail_one, &t, &f->err), 0);
        assert_int_equal(t.next, n + 1);
        assert_int_equal(store_head(f->s), n);
        assert_int_equal(store_integrity(f->s, &f->err), 0);
}

/* ---- the chain ---- */

/* R: A5 C33 */
static void answers_that_are_lost_are_found_out(void **state)
{
        struct fixture *f = *state;
        struct step steps[4];
        submit(f, &steps[0], 0);
        settles(f, 1);
        etcd_proxy_hold(f->proxy, false, true);
        for (uint64_t i = 1; i < 4; i++)
                submit(f, &steps[i], i);
        head_becomes(f, 4); /* all of them happened, and nobody was told */
        etcd_proxy_cut(f->proxy);
        etcd_proxy_hold(f->proxy, false, false);
        for (uint64_t i = 1; i < 4; i++)
                settles(f, 1);
        holds_events(f, 4);
}

/* R: A5 C33 */
static void a_chain_that_was_given_up_is_found_out_when_it_is_sent_again(void **state)
{
        struct fixture *f = *state;
        struct step steps[4];
        etcd_proxy_hold(f->proxy, false, true);
        for (uint64_t i = 0; i < 3; i++)
                submit(f, &steps[i], i);
        head_becomes(f, 3);
        settles(f, -ERR_UNAVAILABLE);
        assert_int_equal(store_in_flight(f->s), 0);
        etcd_proxy_cut(f->proxy);
        etcd_proxy_hold(f->proxy, false, false);
        for (uint64_t i = 0; i < 4; i++) /* and one that is new */
                submit(f, &steps[i], i);
        for (uint64_t i = 0; i < 4; i++)
                settles(f, 1);
        holds_events(f, 4);
        /* now that all is known, an old batch is a conflict again */
        assert_int_equal(store_commit(f->s, &steps[1].batch, &f->err), -ERR_CONFLICT);
}

/* R: A4 C33 */
static void a_conflict_in_the_middle_stops_what_is_behind_it(void **state)
{
        struct fixture *f = *state;
        struct step steps[4];
        etcd_proxy_hold(f->proxy, false, true);
        submit(f, &steps[0], 0);
        head_becomes(f, 1);
        ctl(fmt("put %s/meta/head 99", f->prefix)); /* somebody meddles */
        for (uint64_t i = 1; i < 4; i++)
                submit(f, &steps[i], i);
        etcd_proxy_hold(f->proxy, false, false);
        settles(f, 1);
        settles(f, -ERR_CONFLICT);
        assert_int_equal(store_in_flight(f->s), 0);
        ctl(fmt("put %s/meta/head 1", f->prefix));
        holds_events(f, 1);
}

/* R: C33 */
static void another_leader_in_the_middle_stops_what_is_behind(void **state)
{
        struct fixture *f = *state;
        struct step steps[4];
        _cleanup_(store_closep) struct store *other = NULL;
        etcd_proxy_hold(f->proxy, false, true);
        submit(f, &steps[0], 0);
        head_becomes(f, 1);
        ctl(fmt("del %s/meta/leader", f->prefix)); /* as if its lease had run out */
        assert_int_equal(
            store_open(fmt("etcd://127.0.0.1:%d%s", etcd.port, f->prefix), false, &other, &f->err),
            0);
        assert_int_equal(store_lead(other, "the other", 60, 5000, &f->err), 0);
        for (uint64_t i = 1; i < 4; i++)
                submit(f, &steps[i], i);
        etcd_proxy_hold(f->proxy, false, false);
        settles(f, 1);
        settles(f, -ERR_CONFLICT);
        assert_non_null(strstr(f->err.detail, "the other"));
        assert_int_equal(store_commit(other, step_make(&steps[1], 1), &f->err), 0);
        head_becomes(f, 2);
}

/* R: A4 A5 C33 */
static void a_long_chain_over_a_shaky_connection_has_no_gap_and_nothing_twice(void **state)
{
        struct fixture *f = *state;
        enum { N = 400 };
        struct step steps[STORE_IN_FLIGHT_MAX];
        struct rng rng;
        uint64_t done = 0, sent = 0;
        size_t depth = store_limits(f->s).in_flight;
        rng_seed(&rng, 3);
        while (done < N) {
                for (; sent < N && sent - done < depth; sent++)
                        submit(f, &steps[sent % STORE_IN_FLIGHT_MAX], sent);
                if (rng_chance(&rng, 60000)) {
                        etcd_proxy_hold(f->proxy, rng_chance(&rng, 500000),
                                        rng_chance(&rng, 500000));
                        nanosleep(&(struct timespec){ .tv_nsec = (long)rng_below(&rng, 4000000) },
                                  NULL);
                        etcd_proxy_cut(f->proxy);
                        etcd_proxy_hold(f->proxy, false, false);
                }
                int r = store_settle(f->s, (int64_t)rng_below(&rng, 3), &f->err);
                if (r == -ERR_UNAVAILABLE)
                        sent = done; /* all of them again */
                else if (r < 0)
                        fail_msg("settle: %s", err_line(&f->err));
                else
                        done += (uint64_t)r;
        }
        holds_events(f, N);
}

/* Two commits are submitted; etcd has done the first, and its answer is held back. */
static void hold_answer_to_first_of_two(struct fixture *f, struct step steps[static 2])
{
        etcd_proxy_hold(f->proxy, false, true);
        submit(f, &steps[0], 0);
        submit(f, &steps[1], 1);
        head_becomes(f, 1);
}

/* R: A4 C33 */
static void the_next_one_leaves_when_the_one_before_has_ended(void **state)
{
        struct fixture *f = *state;
        struct step steps[2];
        assert_int_equal(store_limits(f->s).in_flight, 2);
        hold_answer_to_first_of_two(f, steps);
        /* no answer, and the second one has not left */
        assert_int_equal(store_settle(f->s, 100, &f->err), 0);
        head_becomes(f, 1);
        etcd_proxy_hold(f->proxy, false, false);
        head_becomes(f, 2); /* before anybody has asked what became of the first one */
        settles(f, 1);
        settles(f, 1);
        holds_events(f, 2);
}

/* R: A5 C33 */
static void the_next_one_does_not_leave_when_the_one_before_has_failed(void **state)
{
        struct fixture *f = *state;
        struct step steps[2];
        hold_answer_to_first_of_two(f, steps);
        settles(f, -ERR_UNAVAILABLE);
        assert_int_equal(store_in_flight(f->s), 0);
        etcd_proxy_cut(f->proxy);
        etcd_proxy_hold(f->proxy, false, false);
        head_becomes(f, 1);
        submit(f, &steps[0], 0);
        submit(f, &steps[1], 1);
        settles(f, 1);
        settles(f, 1);
        holds_events(f, 2);
}

/* R: A4 C33 */
static void the_next_one_fails_when_somebody_has_come_between(void **state)
{
        struct fixture *f = *state;
        struct step steps[2];
        hold_answer_to_first_of_two(f, steps);
        ctl(fmt("put %s/meta/head 99", f->prefix));
        etcd_proxy_hold(f->proxy, false, false);
        settles(f, 1);
        settles(f, -ERR_CONFLICT);
        assert_int_equal(store_in_flight(f->s), 0);
        ctl(fmt("put %s/meta/head 1", f->prefix));
        holds_events(f, 1);
}

/* As many small ones as a batch takes, and behind them the largest workload that there may be: etcd
 * takes it, with the limit that it has by itself. R: A11 */
static void commit_full_batch(struct fixture *f, bool control)
{
        struct store_limits limits = store_limits(f->s);
        size_t n = limits.batch_ops / 2 - 1, bytes = 0;
        struct arena a = ARENA_INIT;
        struct store_event *events = arena_new_n(&a, struct store_event, n);
        struct store_record *records = arena_new_n(&a, struct store_record, n);
        char *text = arena_alloc(&a, 256 * 1024);
        memset(text, 'x', 256 * 1024);
        for (size_t i = 0; i < 256 * 1024; i += 8)
                text[i] = '"';
        text[256 * 1024 - 1] = 0;
        char *ones = arena_alloc(&a, 16 * 1024); /* as JSON six times as long */
        memset(ones, 1, 16 * 1024 - 1);
        for (size_t i = 0; i < n; i++) {
                Pb__Event e = PB__EVENT__INIT;
                Pb__Workload w = PB__WORKLOAD__INIT;
                Pb__Spec spec = PB__SPEC__INIT;
                size_t len;
                w.id = e.workload_id = arena_printf(&a, "w%zu", i);
                w.revision_id = "sha256:9f86d081884c7d659a2feaa0c55ad015";
                w.resource_version = e.seq = i + 1;
                e.type = PB__EVENT_TYPE__E__WorkloadApplied;
                e.timestamp = 1790000000000;
                e.node_id = "node-of-some-length-12345";
                if (i == n - 1) {
                        w.spec = &spec;
                        spec.image = text;
                        e.workload = &w;
                } else if (control && bytes + 2 * 15000 < limits.batch_bytes) {
                        w.assigned_node = e.message = arena_strndup(&a, ones, 15000);
                } else if (bytes < limits.batch_bytes) {
                        w.assigned_node = e.message =
                            "text of some length, so that a batch has as many bytes as it may have";
                }
                void *data = pb_pack_arena(&a, &e.base, &len);
                events[i] = (struct store_event){ i + 1, data, len };
                bytes += len;
                data = pb_pack_arena(&a, &w.base, &len);
                records[i] =
                    (struct store_record){ arena_printf(&a, "/workloads/%s", w.id), data, len };
                bytes += len;
        }
        assert_true(bytes > limits.batch_bytes + 512 * 1024);
        uint64_t head = store_head(f->s);
        assert_int_equal(head, 0);
        struct store_batch batch = { head, n, events, n, records, n, 0 };
        assert_int_equal(store_submit(f->s, &batch, &f->err), 0);
        settles(f, 1);
        assert_int_equal(store_head(f->s), n);
        arena_fini(&a);
}

static void a_full_batch_and_the_largest_workload_are_one_request(void **state)
{
        commit_full_batch(*state, false);
}

/* What would be too long as JSON is stored as it is. */
static void a_batch_that_is_too_large_as_json_is_one_request_too(void **state)
{
        struct fixture *f = *state;
        commit_full_batch(f, true);
        /* and is known again when it is sent again, as after an answer that was lost */
        assert_int_equal(store_integrity(f->s, &f->err), 0);
        f->err = (struct err){ 0 };
}

struct seen {
        pthread_mutex_t lock;
        uint64_t n, bytes;
        int64_t revision;
};

static void see(void *ctx, const struct etcd_watch_event *e)
{
        struct seen *seen = ctx;
        if (e->compacted)
                return;
        pthread_mutex_lock(&seen->lock);
        assert_true(e->revision > seen->revision); /* one for each revision here */
        seen->revision = e->revision;
        seen->n++;
        seen->bytes += e->kv->value.len;
        pthread_mutex_unlock(&seen->lock);
}

/* etcd sends whoever is behind a thousand revisions at once: that may be more than any message that
 * is taken. R: C1 */
static void a_watch_that_is_far_behind_gets_everything(void **state)
{
        struct fixture *f = *state;
        enum { N = 150, BYTES = 500000 };
        _cleanup_(mem_freep) char *large = mem_must(BYTES);
        memset(large, 'x', BYTES);
        for (uint64_t head = 0; head < N; head++) {
                struct step t;
                step_make(&t, head);
                t.record = (struct store_record){ "/large", large, BYTES };
                if (store_commit(f->s, &t.batch, &f->err) < 0)
                        fail_msg("commit: %s", err_line(&f->err));
        }
        struct seen seen = { .lock = PTHREAD_MUTEX_INITIALIZER };
        char address[64], key[64], end[64];
        snprintf(address, sizeof(address), "127.0.0.1:%d", etcd.port);
        snprintf(key, sizeof(key), "%s/large", f->prefix);
        snprintf(end, sizeof(end), "%s/largf", f->prefix);
        struct etcd_client_options opt = { .endpoints = address };
        struct etcd_client *c;
        assert_int_equal(etcd_client_create(&opt, &c, &f->err), 0);
        etcd_watch_start(c, ETCD_WATCH_META, key, end, 1, see, &seen);
        for (int64_t end_ns = clock_mono_ns() + PATIENCE_NS;;) {
                pthread_mutex_lock(&seen.lock);
                uint64_t n = seen.n;
                pthread_mutex_unlock(&seen.lock);
                if (n == N)
                        break;
                assert_true(clock_mono_ns() < end_ns);
                nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
        }
        etcd_watch_stop(c, ETCD_WATCH_META);
        etcd_client_destroy(c);
        assert_true(seen.bytes >= (uint64_t)N * BYTES);
}

/* ---- reading it all ---- */

#define SMALL 3000
/* of 500 KiB: more than one message may have, and they come when pages have grown */
#define LARGE 200
#define LARGE_FROM 2000
#define LARGE_BYTES (500u << 10)
#define PER_COMMIT 500

static uint32_t n_large;

static size_t bytes_of(uint32_t i)
{
        return i >= LARGE_FROM && i < LARGE_FROM + n_large ? LARGE_BYTES + i % 7 : 20 + i % 50;
}

/* /k/000000 and so on: what is in them is told by their number. */
static void fill(struct fixture *f, uint32_t large_ones)
{
        n_large = large_ones;
        static char values[PER_COMMIT][80], large[LARGE_BYTES + 8], keys[PER_COMMIT][16];
        uint64_t head = 0;
        for (uint32_t i = 0; i < SMALL + n_large;) {
                struct store_record records[PER_COMMIT];
                size_t n = 0;
                do {
                        size_t len = bytes_of(i);
                        char *value = len >= LARGE_BYTES ? large : values[n];
                        memset(value, 'a' + (int)(i % 26), len);
                        snprintf(keys[n], sizeof(keys[n]), "/k/%06u", i);
                        records[n] = (struct store_record){ keys[n], value, len };
                        n++, i++;
                } while (n < PER_COMMIT && i < SMALL + n_large && bytes_of(i) < LARGE_BYTES &&
                         records[n - 1].len < LARGE_BYTES);
                struct store_event event = { head + 1, "e", 1 };
                struct store_batch batch = { head, head + 1, &event, 1, records, n, 0 };
                if (store_commit(f->s, &batch, &f->err) < 0)
                        fail_msg("%s", err_line(&f->err));
                head++;
        }
}

static int find_next(void *ctx, const struct store_record *r, struct err *err _unused_)
{
        uint32_t *next = ctx;
        if (!str_starts(r->key, "/k/"))
                return 0;
        assert_string_equal(r->key, fmt("/k/%06u", *next));
        assert_int_equal(r->len, bytes_of(*next));
        const char *data = r->data;
        assert_true(data[0] == 'a' + (char)(*next % 26) && data[r->len - 1] == data[0]);
        ++*next;
        return 0;
}

static void loads_all(struct fixture *f, struct store *s)
{
        uint32_t next = 0;
        uint64_t head;
        if (store_load(s, find_next, &next, &head, &f->err) < 0)
                fail_msg("%s", err_line(&f->err));
        assert_int_equal(next, SMALL + n_large);
        assert_int_equal(head, store_head(f->s));
}

static void *let_go(void *ctx)
{
        nanosleep(&(struct timespec){ .tv_sec = 3 }, NULL);
        etcd_proxy_hold(ctx, false, false);
        return NULL;
}

/* R: A4 */
static void many_records_of_all_sizes_are_read_back_whole(void **state)
{
        struct fixture *f = *state;
        fill(f, LARGE);
        loads_all(f, f->s);
}

static void a_load_that_takes_long_says_how_far_it_is(void **state)
{
        struct fixture *f = *state;
        FILE *lines = tmpfile();
        char text[4096];
        pthread_t thread;
        fill(f, 0);
        etcd_proxy_hold(f->proxy, true, false);
        assert_int_equal(pthread_create(&thread, NULL, let_go, f->proxy), 0);
        log_setup(LOG_INFO, LOG_FORMAT_LOGFMT, fileno(lines));
        loads_all(f, f->s);
        log_setup(LOG_INFO, LOG_FORMAT_LOGFMT, 2);
        pthread_join(thread, NULL);
        rewind(lines);
        text[fread(text, 1, sizeof(text) - 1, lines)] = 0;
        fclose(lines);
        /* with head, leader and schema; the first range is empty, and the line is due after it */
        if (!strstr(text, fmt("msg=\"loading from etcd\" records=0 of=%d", SMALL + 3)))
                fail_msg("\"%s\"", text);
}

static void how_many_may_be_under_way_is_checked(void **state)
{
        struct fixture *f = *state;
        static const char *const bad[] = { "0", "9", "-1", "x", "" };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                struct store *s = NULL;
                f->err = (struct err){ 0 };
                assert_int_equal(store_open(fmt("etcd://127.0.0.1:%d%s?in-flight=%s", etcd.port,
                                                f->prefix, bad[i]),
                                            false, &s, &f->err),
                                 -ERR_INVALID);
                assert_non_null(strstr(f->err.hint, "1 to 8"));
        }
        assert_int_equal(store_limits(f->s).in_flight, 4);
}

static int count_keys(const char *from, const char *end)
{
        _cleanup_(str_finip) struct str line = STR_INIT;
        char text[32] = "";
        str_addf(&line,
                 "ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:%d get %s %s --keys-only | grep -c /",
                 etcd.port, from, end);
        FILE *p = popen(str_c(&line), "r");
        assert_non_null(p);
        assert_non_null(fgets(text, sizeof(text), p));
        (void)pclose(p);
        return atoi(text);
}

/* It reads events from /events/0... on, and records around /events/: what is kept apart is in
 * neither, and what it removes before a restore has it all. */
/* R: A10 A14 */
static void a_berth_from_before_never_comes_across_what_is_kept_apart(void **state)
{
        struct fixture *f = *state;
        char from[3][64], end[2][64];
        for (uint64_t seq = 1; seq <= 40; seq++) {
                struct store_event e = { seq,
                                         seq % 9 == 0 ? "\x10\x4a\x18\x01" : "\x10\x11\x18\x01",
                                         4 };
                assert_int_equal(
                    store_commit(f->s, &(struct store_batch){ seq - 1, seq, &e, 1, NULL, 0, 0 },
                                 &f->err),
                    0);
        }
        assert_int_equal(store_checkpoint(f->s, &f->err), 0);
        for (int64_t left = 34, n; left > 0; left -= n)
                assert_true((n = store_prune(f->s, STORE_KEEP_LOG(6), 100, NULL, &f->err)) > 0);
        snprintf(from[0], sizeof(from[0]), "%s/", f->prefix);
        snprintf(from[1], sizeof(from[1]), "%s/events/", f->prefix);
        snprintf(from[2], sizeof(from[2]), "%s/events/%020d", f->prefix, 0);
        snprintf(end[0], sizeof(end[0]), "%s/events0", f->prefix);
        snprintf(end[1], sizeof(end[1]), "%s0", f->prefix);
        int records = count_keys(from[0], from[1]) + count_keys(end[0], end[1]);
        assert_int_equal(count_keys(from[2], end[0]), 6);
        assert_int_equal(count_keys(from[1], from[2]), 3);
        assert_int_equal(count_keys(from[0], end[1]), records + 6 + 3);
        store_close(f->s);
        f->s = NULL;
        struct store *to;
        assert_int_equal(store_restore_open(fmt("etcd://127.0.0.1:%d%s", etcd.port, f->prefix),
                                            true, &to, &f->err),
                         0);
        assert_int_equal(count_keys(from[1], end[0]), 0);
        assert_int_equal(store_restore_done(to, NULL, &f->err), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
                T(answers_that_are_lost_are_found_out),
                T(a_chain_that_was_given_up_is_found_out_when_it_is_sent_again),
                T(a_conflict_in_the_middle_stops_what_is_behind_it),
                T(another_leader_in_the_middle_stops_what_is_behind),
                T(a_long_chain_over_a_shaky_connection_has_no_gap_and_nothing_twice),
                T(a_full_batch_and_the_largest_workload_are_one_request),
                T(a_batch_that_is_too_large_as_json_is_one_request_too),
                T(a_watch_that_is_far_behind_gets_everything),
                T(many_records_of_all_sizes_are_read_back_whole),
                T(a_load_that_takes_long_says_how_far_it_is),
                T(how_many_may_be_under_way_is_checked),
                T(a_berth_from_before_never_comes_across_what_is_kept_apart),
#undef T
#define T(name) cmocka_unit_test_setup_teardown(name, setup_default, teardown)
                T(the_next_one_leaves_when_the_one_before_has_ended),
                T(the_next_one_does_not_leave_when_the_one_before_has_failed),
                T(the_next_one_fails_when_somebody_has_come_between),
                { "over_a_shaky_connection_as_it_is_by_default",
                  a_long_chain_over_a_shaky_connection_has_no_gap_and_nothing_twice, setup_default,
                  teardown, NULL },
#undef T
        };
        if (!etcd_is_installed()) {
                print_message("# etcd is not installed: not tested on it\n");
                return 77;
        }
        etcd_process_start(&etcd);
        int failed = cmocka_run_group_tests(tests, NULL, NULL);
        etcd_process_clean(&etcd);
        return failed;
}
