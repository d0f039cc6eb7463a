/* Tests of model/selector.h. */
#include "base/str.h"
#include "model/pb.h"
#include "model/random_message.h"
#include "model/selector.h"
#include "records.pb-c.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static bool matches(const char *selector, const char *const labels[][2], size_t n)
{
        struct arena arena = ARENA_INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        struct selector s;
        struct err err = { 0 };
        bool yes;

        for (size_t i = 0; i < n; i++)
                pb_map_set(&arena, &w.base, "labels", labels[i][0], labels[i][1]);
        if (selector_parse(&arena, selector, &s, &err) < 0)
                fail_msg("%s: %s", selector ? selector : "NULL", err_line(&err));
        yes = selector_match(&s, w.labels, w.n_labels);
        arena_fini(&arena);
        return yes;
}

/* R: A11 */
static void all_terms_must_hold(void **state)
{
        static const char *const labels[][2] = {
                { "app", "web" }, { "zone", "a" }, { "berth.io/kind", "x" }, { "empty", "" }
        };
        static const struct {
                const char *selector;
                bool yes;
        } cases[] = {
                { NULL, true },
                { "", true },
                { "  ", true },
                { "app=web", true },
                { "app==web", true },
                { " app = web , zone = a ", true },
                { "app=db", false },
                { "app!=db", true },
                { "app!=web", false },
                { "none!=web", true },
                { "app", true },
                { "none", false },
                { "!app", false },
                { "!none", true },
                { "zone in (a,b)", true },
                { "zone in (b, c)", false },
                { "none in (a)", false },
                { "zone notin (b,c)", true },
                { "zone notin (a)", false },
                { "none notin (a)", true },
                { "zone in(a),app=web,!none", true },
                { "berth.io/kind=x", true },
                { "empty=", true },
                { "empty", true },
                { "app=", false },
                { "in=a", false },
                { "in", false },
                { "notin in (a)", false },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
                if (matches(cases[i].selector, labels, ARRAY_LEN(labels)) != cases[i].yes)
                        fail_msg("%s", cases[i].selector);
}

/* R: A9 */
static void bad_selectors_say_where(void **state)
{
        static const char *const bad[] = { ",",    "a=b,",   "a=b,,c",   "=a",         "a=b c",
                                           "a in", "a in (", "a in (a",  "a in (a b)", "a!b",
                                           "a=-",  "!a=b",   "(a)",      "a in a",     "a in (a)b",
                                           "/a",   "a//b=c", "a in (a,", "\xc3\xa9=a", "a=\xff",
                                           "!",    "!!a" };
        struct arena arena = ARENA_INIT;
        struct selector s;
        struct err err = { 0 };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (selector_parse(&arena, bad[i], &s, &err) != -ERR_INVALID)
                        fail_msg("%s was taken", bad[i]);
        assert_int_equal(selector_parse(&arena, "app=web,x y", &s, &err), -ERR_INVALID);
        assert_non_null(strstr(err.msg, "at character 11"));
        arena_fini(&arena);
}

static void limits_and_random_texts(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT;
        struct selector s;
        struct err err = { 0 };
        struct rng rng;

        (void)state;
        for (int i = 0; i <= SELECTOR_MAX_TERMS; i++)
                str_adds(&text, i ? ",a" : "a");
        assert_int_equal(selector_parse(&arena, str_c(&text), &s, &err), -ERR_INVALID);
        while (text.len <= SELECTOR_MAX_BYTES)
                str_addc(&text, ' ');
        assert_int_equal(selector_parse(&arena, str_c(&text), &s, &err), -ERR_INVALID);
        rng_seed(&rng, 3);
        for (int i = 0; i < 5000; i++) {
                static const char pieces[] = "aab=!,() \tin-./";
                str_clear(&text);
                for (uint64_t n = rng_below(&rng, 30); n > 0; n--)
                        str_addc(&text, pieces[rng_below(&rng, sizeof(pieces) - 1)]);
                if (selector_parse(&arena, str_c(&text), &s, &err) == 0)
                        (void)selector_match(&s, NULL, 0);
                arena_reset(&arena);
        }
        str_fini(&text);
        arena_fini(&arena);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(all_terms_must_hold),
                cmocka_unit_test(bad_selectors_say_where),
                cmocka_unit_test(limits_and_random_texts),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
