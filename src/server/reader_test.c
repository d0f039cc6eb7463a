/* server/reader_test.c: history from a store, forwards, backwards and along a workload's chain. */
#include "server/reader.h"

#include "base/mem.h"
#include "model/pb.h"
#include "store/store.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define EVENTS 300

struct fixture {
        struct store *store;
        struct store_reader *reader;
        uint64_t last[3]; /* newest event of w0, w1, w2 */
};

/* Event n is about workload w(n % 3); every tenth names no workload. With audits every seventh
 * is one. */
static void fill(struct fixture *f, bool audits)
{
        for (uint64_t n = 1; n <= EVENTS; n++) {
                Pb__Event e = PB__EVENT__INIT;
                char id[16];
                snprintf(id, sizeof(id), "w%d", (int)(n % 3));
                e.seq = n;
                e.type = n % 2 ? PB__EVENT_TYPE__E__WorkloadScheduled
                               : PB__EVENT_TYPE__E__WorkloadStarted;
                if (audits && n % 7 == 0)
                        e.type = PB__EVENT_TYPE__E__WorkloadExec;
                if (n % 10) {
                        e.workload_id = id;
                        e.prev = f->last[n % 3];
                        f->last[n % 3] = n;
                }
                e.node_id = (char *)"n1";
                struct str s = STR_INIT;
                struct err err = { 0 };
                pb_pack(&s, &e.base);
                struct store_event ev = { n, s.buf, s.len };
                struct store_batch b = {
                        .expected_head = n - 1, .new_head = n, .events = &ev, .n_events = 1
                };
                if (store_commit(f->store, &b, &err) < 0)
                        fail_msg("commit: %s", err_line(&err));
                str_fini(&s);
        }
}

static int setup(void **state)
{
        struct fixture *f = mem_must(sizeof(*f));
        assert_int_equal(store_open("memory:", true, &f->store, NULL), 0);
        assert_int_equal(store_reader_open(f->store, &f->reader, NULL), 0);
        fill(f, false);
        *state = f;
        return 0;
}

/* The log begins with 101; below it only the audits are left. */
static int setup_pruned(void **state)
{
        struct fixture *f = mem_must(sizeof(*f));
        assert_int_equal(store_open("memory:", true, &f->store, NULL), 0);
        assert_int_equal(store_reader_open(f->store, &f->reader, NULL), 0);
        fill(f, true);
        assert_int_equal(store_checkpoint(f->store, NULL), 0);
        assert_int_equal(store_prune(f->store, STORE_KEEP_LOG(EVENTS - 100), 1000, NULL, NULL),
                         100);
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;
        store_reader_close(f->reader);
        store_close(f->store);
        mem_free(f);
        return 0;
}

static struct history_job *run(struct fixture *f, enum history_kind kind, struct history_job want)
{
        struct history_job *job = history_job_new(kind, 1);
        job->filter = want.filter;
        job->since = want.since;
        job->before = want.before;
        job->newest_first = want.newest_first;
        job->limit = want.limit ? want.limit : 1000;
        job->chain = want.chain;
        job->hops = want.hops;
        job->json = want.json;
        job->head = EVENTS;
        history_run(f->reader, job);
        assert_int_equal(job->err.code, ERR_OK);
        return job;
}

static Pb__ListEventsResponse *list(struct fixture *f, struct arena *arena, struct history_job want)
{
        struct history_job *job = run(f, HISTORY_LIST, want);
        ProtobufCMessage *m = NULL;
        assert_int_equal(pb_unpack(&pb__list_events_response__descriptor, job->body.buf,
                                   job->body.len, arena, &m, NULL),
                         0);
        history_job_free(job);
        return (Pb__ListEventsResponse *)m;
}

/* R: C29 */
static void pages_forwards_cover_everything_once(void **state)
{
        struct fixture *f = *state;
        struct arena arena = ARENA_INIT;
        uint64_t since = 0, seen = 0;
        for (int page = 0; page < 20; page++) {
                Pb__ListEventsResponse *r =
                    list(f, &arena, (struct history_job){ .since = since, .limit = 32 });
                for (size_t i = 0; i < r->n_items; i++)
                        assert_int_equal(r->items[i]->seq, ++seen);
                assert_true(r->next_since >= since);
                since = r->next_since;
                if (r->n_items < 32)
                        break;
        }
        assert_int_equal(seen, EVENTS);
        assert_int_equal(since, EVENTS);
        arena_fini(&arena);
}

/* R: C29 */
static void pages_backwards_cover_everything_once(void **state)
{
        struct fixture *f = *state;
        struct arena arena = ARENA_INIT;
        uint64_t before = 0, expected = EVENTS;
        for (int page = 0; page < 20; page++) {
                Pb__ListEventsResponse *r = list(
                    f, &arena,
                    (struct history_job){ .before = before, .newest_first = true, .limit = 32 });
                for (size_t i = 0; i < r->n_items; i++)
                        assert_int_equal(r->items[i]->seq, expected--);
                before = r->next_since;
                if (before == 0)
                        break;
        }
        assert_int_equal(expected, 0);
        arena_fini(&arena);
}

/* R: C29 */
static void a_chain_gives_what_a_scan_gives(void **state)
{
        struct fixture *f = *state;
        struct arena arena = ARENA_INIT;
        for (int backwards = 0; backwards < 2; backwards++)
                for (uint32_t limit = 5; limit <= 1000; limit *= 14) {
                        struct history_job want = { .filter.workload = "w1",
                                                    .limit = limit,
                                                    .newest_first = backwards,
                                                    .since = 20,
                                                    .before = 250 };
                        Pb__ListEventsResponse *scan = list(f, &arena, want);
                        want.chain = f->last[1];
                        Pb__ListEventsResponse *chain = list(f, &arena, want);
                        assert_int_equal(scan->n_items, chain->n_items);
                        assert_true(scan->n_items > 0);
                        for (size_t i = 0; i < scan->n_items; i++)
                                assert_int_equal(scan->items[i]->seq, chain->items[i]->seq);
                }
        arena_fini(&arena);
}

/* R: C29 A14 */
static void what_is_kept_below_the_log_belongs_to_a_workloads_history(void **state)
{
        struct fixture *f = *state;
        struct arena arena = ARENA_INIT;
        for (int backwards = 0; backwards < 2; backwards++)
                for (uint32_t limit = 3; limit <= 1000; limit *= 7) {
                        struct history_job want = { .filter.workload = "w1",
                                                    .limit = limit,
                                                    .newest_first = backwards };
                        size_t seen = 0, below = 0;
                        for (int page = 0; page < 2 * EVENTS; page++) {
                                want.chain = 0;
                                Pb__ListEventsResponse *scan = list(f, &arena, want);
                                want.chain = f->last[1];
                                Pb__ListEventsResponse *chain = list(f, &arena, want);
                                assert_int_equal(scan->n_items, chain->n_items);
                                for (size_t i = 0; i < scan->n_items; i++) {
                                        assert_int_equal(scan->items[i]->seq, chain->items[i]->seq);
                                        below += chain->items[i]->seq <= 100;
                                }
                                seen += chain->n_items;
                                if (chain->n_items < limit)
                                        break;
                                *(backwards ? &want.before : &want.since) = chain->next_since;
                        }
                        assert_int_equal(below, 4); /* 7, 28, 49 and 91: 70 names no workload */
                        assert_int_equal(seen, 4 + 60);
                }
        arena_fini(&arena);
}

/* R: C29 */
static void a_chunk_is_cut_at_the_released_head(void **state)
{
        struct fixture *f = *state;
        struct history_job *job = run(
            f, HISTORY_CHUNK, (struct history_job){ .since = 100, .before = 151, .json = true });
        assert_int_equal(job->items.len, 50);
        assert_int_equal(job->items.at[0].seq, 101);
        assert_int_equal(job->items.at[49].seq, 150);
        assert_true(job->end);
        assert_memory_equal(job->body.buf + job->items.at[49].at, "{\"seq\":150", 10);
        history_job_free(job);
        struct history_job started = { .since = 100, .before = 301, .limit = 10 };
        event_filter_add_type(&started.filter, PB__EVENT_TYPE__E__WorkloadStarted);
        job = run(f, HISTORY_CHUNK, started);
        assert_int_equal(job->items.len, 10);
        assert_false(job->end);
        assert_int_equal(job->scanned, 120);
        history_job_free(job);
}

/* However few hops are allowed: page by page everything of the workload comes, in order and once,
 * both ways.  R: C29. Line E5 */
static void a_chain_that_is_cut_goes_on_where_it_was(void **state)
{
        struct fixture *f = *state;
        struct arena arena = ARENA_INIT;
        for (int backwards = 0; backwards < 2; backwards++)
                for (uint32_t hops = 1; hops < 100; hops += 7) {
                        struct history_job want = { .filter = { .workload = (char *)"w1" },
                                                    .newest_first = backwards,
                                                    .limit = 10 };
                        Pb__ListEventsResponse *all =
                            list(f, &arena,
                                 (struct history_job){ .filter = want.filter,
                                                       .newest_first = backwards });
                        size_t seen = 0;
                        want.hops = hops;
                        for (int page = 0; page < 2 * EVENTS; page++) {
                                want.chain = f->last[1];
                                Pb__ListEventsResponse *r = list(f, &arena, want);
                                for (size_t i = 0; i < r->n_items; i++, seen++) {
                                        assert_true(seen < all->n_items);
                                        assert_int_equal(r->items[i]->seq, all->items[seen]->seq);
                                }
                                if (backwards)
                                        want.before = r->next_since;
                                else
                                        want.since = r->next_since;
                                if (backwards ? r->next_since == 0 : r->next_since >= EVENTS)
                                        break;
                        }
                        assert_int_equal(seen, all->n_items);
                        assert_true(seen > 50);
                        arena_reset(&arena);
                }
        arena_fini(&arena);
}

/* R: A11. Line E5 */
static void a_job_ends_with_its_deadline_and_with_whoever_waits(void **state)
{
        struct fixture *f = *state;
        for (int i = 0; i < 4; i++) {
                struct history_job *job = history_job_new(HISTORY_LIST, 1);
                job->limit = 1000;
                job->chain = i % 2 ? f->last[1] : 0;
                if (i < 2)
                        job->deadline_ms = 1; /* long ago */
                else {
                        job->waiter = mem_must(sizeof(*job->waiter));
                        atomic_store(&job->waiter->refs, 2);
                        struct history_waiter *waits = job->waiter;
                        history_leave(&waits);
                        assert_null(waits);
                }
                history_run(f->reader, job);
                assert_int_equal(job->err.code, ERR_DEADLINE);
                assert_int_equal(job->body.len, 0);
                history_job_free(job);
        }
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(pages_forwards_cover_everything_once),
                T(pages_backwards_cover_everything_once),
                T(a_chain_gives_what_a_scan_gives),
                T(a_chain_that_is_cut_goes_on_where_it_was),
                T(a_job_ends_with_its_deadline_and_with_whoever_waits),
                T(a_chunk_is_cut_at_the_released_head),
                cmocka_unit_test_setup_teardown(
                    what_is_kept_below_the_log_belongs_to_a_workloads_history, setup_pruned,
                    teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
