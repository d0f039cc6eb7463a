/* core/tally_test.c: a tally says what a plain array says. */
#include "base/clock.h"
#include "core/tally.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* R: C17 */
static void it_counts_as_an_array_does(void **state)
{
        (void)state;
        for (uint64_t seed = 1; seed <= 30; seed++) {
                struct rng g;
                struct tally t = { 0 };
                uint32_t plain[400] = { 0 }, keys = 1 + (uint32_t)(seed * 10), used = 0;
                uint64_t total = 0;
                rng_seed(&g, seed);
                for (unsigned i = 0; i < 20000; i++) {
                        uint32_t k = (uint32_t)rng_below(&g, keys);
                        bool add = !plain[k] || rng_below(&g, 2);
                        used += add && !plain[k];
                        plain[k] += add ? 1u : -1u;
                        used -= !plain[k];
                        total += add ? 1u : UINT64_MAX;
                        assert_int_equal(tally_add(&t, k * 1024, add ? 1 : -1), plain[k]);
                        uint32_t look = (uint32_t)rng_below(&g, keys);
                        assert_int_equal(tally_get(&t, look * 1024), plain[look]);
                        assert_int_equal(t.len, used);
                        assert_int_equal(t.total, total);
                }
                for (uint32_t k = 0; k < keys; k++)
                        assert_int_equal(tally_get(&t, k * 1024), plain[k]);
                tally_fini(&t);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(it_counts_as_an_array_does) };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
