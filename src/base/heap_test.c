/* base/heap_test.c: what must hold for deadlines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/heap.h"

static void deadlines_come_in_order_and_ties_by_id(void **state _unused_)
{
        struct heap h = { 0 };

        heap_set(&h, 7, 100);
        heap_set(&h, 3, 100);
        heap_set(&h, 5, 50);
        heap_set(&h, 900, -1);
        assert_int_equal(heap_next_ms(&h), -1);
        assert_int_equal(heap_pop(&h), 900);
        assert_int_equal(heap_pop(&h), 5);
        assert_int_equal(heap_pop(&h), 3);
        assert_int_equal(heap_pop(&h), 7);
        assert_int_equal(heap_next_ms(&h), HEAP_NEVER);
        heap_fini(&h);
}

static void a_deadline_can_be_moved_and_removed(void **state _unused_)
{
        struct heap h = { 0 };

        heap_unset(&h, 4);
        assert_int_equal(heap_get(&h, 4), HEAP_NEVER);
        for (uint32_t id = 0; id < 10; id++)
                heap_set(&h, id, 10 * (int64_t)id);
        heap_set(&h, 9, 5);
        heap_set(&h, 0, 95);
        heap_unset(&h, 1);
        heap_set(&h, 2, HEAP_NEVER);
        assert_int_equal(h.len, 8);
        assert_int_equal(heap_get(&h, 9), 5);
        assert_int_equal(heap_get(&h, 1), HEAP_NEVER);
        assert_int_equal(heap_pop(&h), 9);
        assert_int_equal(heap_pop(&h), 3);
        for (uint32_t id = 4; id <= 8; id++)
                assert_int_equal(heap_pop(&h), id);
        assert_int_equal(heap_pop(&h), 0);
        heap_fini(&h);
}

#define IDS 300

static uint32_t first_of(const int64_t at[IDS])
{
        uint32_t first = 0;

        for (uint32_t id = 1; id < IDS; id++)
                if (at[id] < at[first])
                        first = id;
        return first;
}

static void invariants_hold(const struct heap *h)
{
        for (uint32_t i = 0; i < h->len; i++) {
                assert_int_equal(h->pos[h->entries[i].id], i + 1);
                if (i > 0)
                        assert_true(h->entries[(i - 1) / 2].at_ms <= h->entries[i].at_ms);
        }
}

static void it_agrees_with_a_plain_table(void **state _unused_)
{
        struct heap h = { 0 };
        struct rng rng;
        int64_t at[IDS];

        rng_seed(&rng, 1);
        for (uint32_t id = 0; id < IDS; id++)
                at[id] = HEAP_NEVER;
        for (int step = 0; step < 20000; step++) {
                uint32_t id = (uint32_t)rng_below(&rng, IDS);
                uint64_t what = rng_below(&rng, 10);
                if (what < 6) {
                        at[id] = (int64_t)rng_below(&rng, 100);
                        heap_set(&h, id, at[id]);
                } else if (what < 8) {
                        at[id] = HEAP_NEVER;
                        heap_unset(&h, id);
                } else if (h.len > 0) {
                        id = heap_pop(&h);
                        assert_int_equal(id, first_of(at));
                        at[id] = HEAP_NEVER;
                }
                assert_int_equal(heap_next_ms(&h), at[first_of(at)]);
                assert_int_equal(heap_get(&h, id), at[id]);
                if (step % 100 == 0)
                        invariants_hold(&h);
        }
        heap_fini(&h);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(deadlines_come_in_order_and_ties_by_id),
                cmocka_unit_test(a_deadline_can_be_moved_and_removed),
                cmocka_unit_test(it_agrees_with_a_plain_table),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
