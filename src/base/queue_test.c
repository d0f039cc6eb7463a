/* base/queue_test.c: what must hold between threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/queue.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static char a, b, c, d; /* items */

/* A burst of heartbeats must not make every call be refused. R: A11 */
static void priority_cannot_take_all_the_room_of_the_rest(void **state _unused_)
{
        int item;
        struct queue *q = queue_create(4, 2, NULL, NULL);
        size_t urgent = 0, rest = 0;
        while (queue_push_priority(q, &item))
                urgent++;
        assert_int_equal(urgent, 4);
        assert_true(queue_has_room(q));
        while (queue_push(q, &item))
                rest++;
        assert_int_equal(rest, 2);
        assert_false(queue_has_room(q));
        void *out[8];
        assert_int_equal(queue_pop_many(q, out, 8, 0), 6);
        for (rest = 0; queue_push(q, &item);)
                rest++;
        assert_int_equal(rest, 4);
        queue_destroy(q, NULL);
}

/* R: A11 */
static void the_rest_cannot_fill_the_share_of_priority(void **state _unused_)
{
        struct queue *q = queue_create(2, 1, NULL, NULL);
        void *items[8];

        assert_true(queue_push(q, &a));
        assert_true(queue_push(q, &b));
        assert_false(queue_push(q, &c));
        assert_true(queue_push_priority(q, &c));
        assert_false(queue_push_priority(q, &d));
        assert_int_equal(queue_len(q), 3);
        assert_int_equal(queue_pop_many(q, items, 8, 0), 3);
        assert_true(items[0] == &a && items[1] == &b && items[2] == &c);
        assert_int_equal(queue_pop_many(q, items, 8, 0), 0);
        queue_destroy(q, NULL);
}

static void order_is_kept_when_the_ring_wraps(void **state _unused_)
{
        struct queue *q = queue_create(3, 2, NULL, NULL);
        uintptr_t in = 1, out = 1;
        void *items[2];

        for (int round = 0; round < 50; round++) {
                while (round % 3 ? queue_push(q, (void *)in) : queue_push_priority(q, (void *)in))
                        in++;
                size_t n = queue_pop_many(q, items, 2, -1);
                assert_int_equal(n, 2);
                for (size_t i = 0; i < n; i++)
                        assert_int_equal((uintptr_t)items[i], out++);
        }
        queue_destroy(q, NULL);
}

static void count(void *ctx)
{
        atomic_fetch_add((atomic_int *)ctx, 1);
}

static void notify_comes_when_it_turns_non_empty_and_on_close(void **state _unused_)
{
        atomic_int n = 0;
        struct queue *q = queue_create(4, 0, count, &n);
        void *items[4];

        queue_push(q, &a);
        queue_push(q, &b);
        assert_int_equal(n, 1);
        queue_pop_many(q, items, 1, 0);
        queue_push(q, &c);
        assert_int_equal(n, 1);
        queue_pop_many(q, items, 4, 0);
        queue_push_priority(q, &a);
        assert_int_equal(n, 2);
        queue_close(q);
        queue_close(q);
        assert_int_equal(n, 3);
        queue_destroy(q, NULL);
}

/* R: A11 */
static void a_quiet_push_tells_nobody_until_the_wake(void **state _unused_)
{
        atomic_int n = 0;
        struct queue *q = queue_create(1, 1, count, &n);
        void *items[4];

        queue_wake(q);
        assert_int_equal(n, 0); /* nothing to tell */
        assert_true(queue_push_quiet(q, &a, false));
        assert_false(queue_push_quiet(q, &b, false)); /* the limits are the same */
        assert_true(queue_push_quiet(q, &b, true));
        assert_int_equal(n, 0);
        queue_wake(q);
        assert_int_equal(n, 1);
        assert_int_equal(queue_pop_many(q, items, 4, 0), 2);
        assert_ptr_equal(items[0], &a);
        assert_ptr_equal(items[1], &b);
        queue_close(q);
        assert_false(queue_push_quiet(q, &a, true));
        queue_destroy(q, NULL);
}

/* R: A12 */
static void a_closed_queue_takes_nothing_and_gives_what_it_has(void **state _unused_)
{
        struct queue *q = queue_create(4, 1, NULL, NULL);
        void *items[4];

        assert_true(queue_push(q, &a));
        assert_false(queue_is_closed(q));
        queue_close(q);
        assert_true(queue_is_closed(q));
        assert_false(queue_push(q, &b));
        assert_false(queue_push_priority(q, &b));
        assert_int_equal(queue_pop_many(q, items, 4, -1), 1);
        assert_int_equal(queue_pop_many(q, items, 4, -1), 0);
        queue_destroy(q, NULL);
}

static void what_is_left_is_freed(void **state _unused_)
{
        struct queue *q = queue_create(3, 0, NULL, NULL);
        void *items[2];

        for (int round = 0; round < 2; round++)
                for (int i = 0; i < 2; i++)
                        if (round == 0 || queue_pop_many(q, items, 1, 0)) {
                                if (round)
                                        mem_free(items[0]);
                                queue_push(q, mem_must(10));
                        }
        queue_destroy(q, mem_free);
        queue_destroy(NULL, mem_free);
}

static void a_wait_ends_at_its_time(void **state _unused_)
{
        struct queue *q = queue_create(1, 0, NULL, NULL);
        void *items[1];
        int64_t start = clock_mono_ns();

        assert_int_equal(queue_pop_many(q, items, 1, 20), 0);
        assert_true(clock_mono_ns() - start >= 20 * INT64_C(1000000));
        queue_push(q, &a);
        assert_int_equal(queue_pop_many(q, items, 1, INT64_MAX), 1);
        queue_destroy(q, NULL);
}

static void *wait_for_close(void *arg)
{
        void *items[1];

        return (void *)(uintptr_t)(queue_pop_many(arg, items, 1, -1) + 100);
}

static void close_wakes_who_waits(void **state _unused_)
{
        struct queue *q = queue_create(1, 0, NULL, NULL);
        pthread_t t;
        void *ret;

        assert_int_equal(pthread_create(&t, NULL, wait_for_close, q), 0);
        queue_close(q);
        pthread_join(t, &ret);
        assert_int_equal((uintptr_t)ret, 100);
        queue_destroy(q, NULL);
}

#define PRODUCERS 4
#define EACH 5000

struct item {
        int from, number;
};

static void *produce(void *arg)
{
        struct queue *q = ((void **)arg)[0];
        int from = (int)(uintptr_t)((void **)arg)[1];

        for (int i = 0; i < EACH; i++) {
                struct item *item = mem_must(sizeof(*item));
                *item = (struct item){ from, i };
                while (!(i % 10 ? queue_push(q, item) : queue_push_priority(q, item)))
                        sched_yield();
        }
        return NULL;
}

static void each_producer_is_heard_in_order(void **state _unused_)
{
        struct queue *q = queue_create(64, 8, NULL, NULL);
        pthread_t threads[PRODUCERS];
        void *args[PRODUCERS][2], *items[16];
        int next[PRODUCERS] = { 0 };

        for (size_t i = 0; i < PRODUCERS; i++) {
                args[i][0] = q;
                args[i][1] = (void *)(uintptr_t)i;
                assert_int_equal(pthread_create(&threads[i], NULL, produce, args[i]), 0);
        }
        for (size_t got = 0; got < (size_t)PRODUCERS * EACH;) {
                size_t n = queue_pop_many(q, items, 16, 60000);
                assert_true(n > 0);
                for (size_t i = 0; i < n; i++) {
                        struct item *item = items[i];
                        assert_int_equal(item->number, next[item->from]++);
                        mem_free(item);
                }
                got += n;
        }
        for (size_t i = 0; i < PRODUCERS; i++)
                pthread_join(threads[i], NULL);
        assert_int_equal(queue_len(q), 0);
        queue_destroy(q, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_rest_cannot_fill_the_share_of_priority),
                cmocka_unit_test(priority_cannot_take_all_the_room_of_the_rest),
                cmocka_unit_test(order_is_kept_when_the_ring_wraps),
                cmocka_unit_test(notify_comes_when_it_turns_non_empty_and_on_close),
                cmocka_unit_test(a_quiet_push_tells_nobody_until_the_wake),
                cmocka_unit_test(a_closed_queue_takes_nothing_and_gives_what_it_has),
                cmocka_unit_test(what_is_left_is_freed),
                cmocka_unit_test(a_wait_ends_at_its_time),
                cmocka_unit_test(close_wakes_who_waits),
                cmocka_unit_test(each_producer_is_heard_in_order),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
