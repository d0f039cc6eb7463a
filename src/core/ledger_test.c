/* core/ledger_test.c: amounts add up, and nothing is ever promised twice. */
#include "base/base_testlib.h"
#include "base/clock.h"
#include "core/ledger.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct amounts some(struct rng *r)
{
        return (struct amounts){ (int64_t)rng_below(r, 64000), (int64_t)rng_below(r, 1u << 30),
                                 (int64_t)rng_below(r, UINT64_C(1) << 40) };
}

/* R: E1 A7 */
static void what_was_reserved_is_released_exactly(void **state)
{
        (void)state;
        struct rng r;
        rng_seed(&r, 1);
        for (int round = 0; round < 200; round++) {
                struct ledger l = { .total = { 64000, INT64_C(1) << 40, INT64_C(1) << 50 } };
                struct amounts held[50];
                for (int i = 0; i < 50; i++)
                        ledger_reserve(&l, held[i] = some(&r));
                struct amounts left = ledger_free(&l);
                for (int i = 0; i < 50; i++)
                        left = amounts_add(left, held[i]);
                assert_true(amounts_equal(left, l.total));
                for (int i = 49; i >= 0; i--)
                        ledger_release(&l, held[(i * 7) % 50]);
                assert_true(amounts_equal(l.reserved, (struct amounts){ 0 }));
        }
}

/* R: E1 */
static void free_may_be_negative_after_a_node_has_shrunk(void **state)
{
        (void)state;
        struct ledger l = { .total = { 1000, 4 * GIB, 0 }, .reserved = { 3000, 1 * GIB, 2 * GIB } };
        struct amounts left = ledger_free(&l);
        assert_int_equal(left.cpu_milli, -2000);
        assert_int_equal(left.mem_bytes, 3 * GIB);
        assert_int_equal(left.disk_bytes, -2 * GIB);
        assert_false(amounts_fit((struct amounts){ 0 }, left)); /* not even nothing */
        assert_true(
            amounts_fit((struct amounts){ 0, 3 * GIB, 0 }, (struct amounts){ 0, 3 * GIB, 0 }));
        assert_false(
            amounts_fit((struct amounts){ 0, 3 * GIB + 1, 0 }, (struct amounts){ 0, 3 * GIB, 0 }));
}

static void release_too_much(void)
{
        struct ledger l = { .total = { 10, 10, 10 }, .reserved = { 5, 5, 5 } };
        ledger_release(&l, (struct amounts){ 6, 0, 0 });
}

static void overflow(void)
{
        amounts_add((struct amounts){ INT64_MAX, 0, 0 }, (struct amounts){ 1, 0, 0 });
}

static void too_many_bytes(void)
{
        Pb__Resources r = PB__RESOURCES__INIT;
        r.memory_mb = INT64_MAX / 2;
        amounts_of(&r);
}

/* R: E1 */
static void a_ledger_that_would_lie_ends_the_process(void **state)
{
        (void)state;
        assert_aborts(release_too_much, "L2: released more than was reserved");
        assert_aborts(overflow, "L2: a sum of amounts overflows");
        assert_aborts(too_many_bytes, "L2: an amount overflows");
}

/* R: A9 C35 */
static void amounts_from_a_store_are_looked_at_first(void **state)
{
        (void)state;
        Pb__Resources r = PB__RESOURCES__INIT;
        assert_true(resources_are_sane(NULL));
        assert_true(resources_are_sane(&r));
        r.cpu = -1;
        assert_false(resources_are_sane(&r));
        r.cpu = 0;
        r.disk_gb = INT64_C(1) << 31;
        assert_false(resources_are_sane(&r));
        assert_false(node_resources_are_sane(NULL));
        assert_true(amounts_can_add((struct amounts){ 1, 2, 3 }, (struct amounts){ 4, 5, 6 }));
        assert_false(
            amounts_can_add((struct amounts){ 1, INT64_MAX, 3 }, (struct amounts){ 4, 5, 6 }));
        assert_true(amounts_can_add((struct amounts){ 0, INT64_C(1) << 60, 0 },
                                    (struct amounts){ 0, INT64_C(1) << 60, 0 }));
        assert_false(amounts_can_add((struct amounts){ 0, INT64_C(1) << 61, 0 },
                                     (struct amounts){ 0, 1, 0 }));
}

/* R: C15 */
static void utilisation_is_the_mean_of_cpu_and_memory(void **state)
{
        (void)state;
        struct ledger l = { .total = { 4000, 8 * GIB, 0 } };
        assert_int_equal(ledger_utilisation(&l), 0);
        l.reserved.cpu_milli = 2000;
        assert_int_equal(ledger_utilisation(&l), UTIL_ONE / 2);
        l.reserved.mem_bytes = 4 * GIB;
        assert_int_equal(ledger_utilisation(&l), UTIL_ONE);
        l.reserved.disk_bytes = 100 * GIB; /* does not count */
        assert_int_equal(ledger_utilisation(&l), UTIL_ONE);
        l.reserved = (struct amounts){ 400000, 800 * GIB, 0 };
        assert_true(ledger_utilisation(&l) == INT32_MAX); /* full, however far beyond */
        struct ledger nothing = { 0 };
        assert_true(ledger_utilisation(&nothing) == INT32_MAX);
}

/* R: C15 */
static void utilisation_grows_with_what_is_reserved(void **state)
{
        (void)state;
        struct rng r;
        rng_seed(&r, 2);
        for (int i = 0; i < 2000; i++) {
                struct ledger l = { .total = { 1 + (int64_t)rng_below(&r, 128000),
                                               1 + (int64_t)rng_below(&r, UINT64_C(1) << 40), 0 } };
                uint32_t before = 0;
                for (int k = 0; k < 20; k++) {
                        uint32_t now = ledger_utilisation(&l);
                        assert_true(now >= before && now <= INT32_MAX);
                        before = now;
                        ledger_reserve(&l, some(&r));
                }
        }
}

/* R: C1 */
static void amounts_survive_the_way_through_a_record(void **state)
{
        (void)state;
        Pb__Resources r = PB__RESOURCES__INIT;
        r.cpu = 250;
        r.memory_mb = 1537;
        r.disk_gb = 3;
        Pb__Resources back = amounts_to_resources(amounts_of(&r));
        assert_true(back.cpu == 250 && back.memory_mb == 1537 && back.disk_gb == 3);
        assert_true(amounts_equal(amounts_of(NULL), (struct amounts){ 0 }));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_was_reserved_is_released_exactly),
                cmocka_unit_test(free_may_be_negative_after_a_node_has_shrunk),
                cmocka_unit_test(a_ledger_that_would_lie_ends_the_process),
                cmocka_unit_test(amounts_from_a_store_are_looked_at_first),
                cmocka_unit_test(utilisation_is_the_mean_of_cpu_and_memory),
                cmocka_unit_test(utilisation_grows_with_what_is_reserved),
                cmocka_unit_test(amounts_survive_the_way_through_a_record),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
