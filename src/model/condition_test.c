/* model/condition_test.c: what rules may wait for, and what they may not. */
#include "base/str.h"
#include "model/condition.h"
#include "records.pb-c.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct condition parse(const char *text)
{
        struct condition c = { 0 };
        struct err err = { 0 };
        if (condition_parse(text, &c, &err) < 0)
                fail_msg("%s: %s", text, err.msg);
        return c;
}

/* R: C30 */
static void conditions_mean_what_they_say(void **state)
{
        (void)state;
        struct condition c = parse("node.cpu > 85% for 5m");
        assert_true(c.about_nodes);
        assert_int_equal(c.n_terms, 1);
        assert_int_equal(c.terms[0].figure, FIGURE_NODE_CPU);
        assert_int_equal(c.terms[0].op, COMPARE_GT);
        assert_int_equal(c.terms[0].value, 85000);
        assert_int_equal(c.for_ms, 300000);
        c = parse("workload.failures>=3");
        assert_false(c.about_nodes);
        assert_int_equal(c.terms[0].op, COMPARE_GE);
        assert_int_equal(c.terms[0].value, 3);
        assert_int_equal(c.for_ms, 0);
        c = parse("  node.status == notready  and node.units != 0 for 1h30m ");
        assert_int_equal(c.n_terms, 2);
        assert_int_equal(c.terms[0].value, PB__NODE_STATUS__E__NotReady);
        assert_int_equal(c.for_ms, 5400000);
        assert_int_equal(parse("workload.pending > 10m").terms[0].value, 600000);
        assert_int_equal(parse("workload.phase == Failed").terms[0].value, PB__PHASE__E__Failed);
        assert_int_equal(parse("node.memory_reserved <= 0.5%").terms[0].value, 500);
}

/* R: C30 A9 */
static void bad_conditions_are_refused_with_words(void **state)
{
        static const char *const all[] = {
                "",
                "cpu > 3",
                "node.cpu",
                "node.cpu >",
                "node.cpu > 85",
                "node.cpu > 850000%",
                "node.cpu > -1%",
                "node.cpu => 85%",
                "node.cpu > 85% for",
                "node.cpu > 85% for ever",
                "node.cpu > 85% for 5m now",
                "node.cpu > 85% or node.cpu < 3%",
                "node.cpu > 85% and workload.failures > 1",
                "node.status > Ready",
                "node.status == Asleep",
                "workload.phase == 3",
                "workload.pending == 5m",
                "workload.failures >= -1",
                "workload.failures >= three",
                "node.cpu > 1% and node.cpu > 1% and node.cpu > 1% and node.cpu > 1% and node.cpu "
                "> 1%",
                "node."
                "cpuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu "
                "> 1%",
        };
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                struct condition c = { .for_ms = 77 };
                struct err err = { 0 };
                if (condition_parse(all[i], &c, &err) >= 0)
                        fail_msg("taken: %s", all[i]);
                assert_int_equal(err.code, ERR_INVALID);
                assert_true(err.msg[0] != 0);
                assert_int_equal(c.for_ms, 77); /* set only on success */
        }
        struct err err = { 0 };
        struct condition c;
        assert_true(condition_parse("node.memroy > 3%", &c, &err) < 0);
        assert_non_null(strstr(err.hint, "node.memory"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(conditions_mean_what_they_say),
                cmocka_unit_test(bad_conditions_are_refused_with_words),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
