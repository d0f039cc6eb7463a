/* agent/health_test.c: when checks begin, and what makes a unit healthy or not. */
#include "agent/health.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct health with(int interval, int failures, int start)
{
        Pb__Health spec = PB__HEALTH__INIT;
        struct health h;

        spec.port = 80;
        spec.interval_seconds = interval;
        spec.failures = failures;
        spec.start_seconds = start;
        health_init(&h, &spec, 1000, 1000);
        return h;
}

static bool check(struct health *h, int64_t now, bool ok)
{
        assert_true(health_begin(h, now));
        return health_result(h, ok, now + 10);
}

/* R: C6 */
static void checks_come_one_interval_apart_and_one_at_a_time(void **state)
{
        struct health h = with(10, 3, 0);

        (void)state;
        assert_int_equal(health_next_ms(&h), 2000);
        assert_false(health_begin(&h, 1999));
        assert_true(health_begin(&h, 2000));
        assert_false(health_begin(&h, 20000)); /* still under way */
        assert_int_equal(health_next_ms(&h), INT64_MAX);
        assert_true(health_result(&h, true, 3000));
        assert_int_equal(health_next_ms(&h), 12000);
        assert_true(health_begin(&h, 12000));
        health_result(&h, true, 30000); /* took longer than the interval */
        assert_int_equal(health_next_ms(&h), 30000);
        assert_false(health_result(&h, false, 30001)); /* nothing was under way */
}

/* R: C6 */
static void failures_in_a_row_make_it_unhealthy_for_good(void **state)
{
        struct health h = with(1, 3, 0);

        (void)state;
        assert_true(check(&h, 2000, true));
        assert_int_equal(h.state, HEALTH_HEALTHY);
        assert_false(check(&h, 3000, false));
        assert_false(check(&h, 4000, false));
        assert_false(check(&h, 5000, true)); /* not in a row */
        assert_false(check(&h, 6000, false));
        assert_false(check(&h, 7000, false));
        assert_true(check(&h, 8000, false));
        assert_int_equal(h.state, HEALTH_UNHEALTHY);
        assert_int_equal(health_next_ms(&h), INT64_MAX);
        assert_false(health_begin(&h, 100000));
}

/* R: C6 */
static void failures_while_it_starts_do_not_count(void **state)
{
        struct health h = with(1, 2, 60);

        (void)state;
        for (int64_t now = 2000; now < 60000; now += 1000)
                assert_false(check(&h, now, false));
        assert_int_equal(h.state, HEALTH_UNKNOWN);
        assert_false(check(&h, 62000, false));
        assert_true(check(&h, 63000, false));
        assert_int_equal(h.state, HEALTH_UNHEALTHY);

        h = with(1, 2, 60);
        assert_true(check(&h, 2000, true)); /* the start is over */
        assert_false(check(&h, 3000, false));
        assert_true(check(&h, 4000, false));
}

/* R: C6 */
static void what_is_not_said_has_a_default(void **state)
{
        struct health h = with(0, 0, 0);

        (void)state;
        assert_int_equal(h.interval_ms, 10000);
        assert_int_equal(h.timeout_ms, 2000);
        assert_int_equal(h.failures_max, 3);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(checks_come_one_interval_apart_and_one_at_a_time),
                cmocka_unit_test(failures_in_a_row_make_it_unhealthy_for_good),
                cmocka_unit_test(failures_while_it_starts_do_not_count),
                cmocka_unit_test(what_is_not_said_has_a_default),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
