/* base/str_test.c: what must hold for strings and for values that people write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static void a_buffer_always_ends_in_nul(void **state _unused_)
{
        struct str s = STR_INIT;

        assert_string_equal(str_c(&s), "");
        str_clear(&s);
        str_add(&s, "a\0b", 3);
        assert_int_equal(s.len, 3);
        assert_memory_equal(s.buf, "a\0b", 4);
        str_clear(&s);
        assert_string_equal(str_c(&s), "");
        for (int i = 0; i < 1000; i++) {
                str_addc(&s, 'x');
                assert_int_equal(s.buf[s.len], 0);
        }
        str_clear(&s);
        str_adds(&s, NULL);
        str_adds(&s, "n=");
        str_add_u64(&s, UINT64_MAX);
        str_addc(&s, ' ');
        str_add_i64(&s, INT64_MIN);
        str_add_i64(&s, 0);
        str_addf(&s, " %s %d", "text", 5);
        assert_string_equal(s.buf, "n=18446744073709551615 -92233720368547758080 text 5");
        str_fini(&s);
        assert_null(s.buf);
}

static void long_formats_fit(void **state _unused_)
{
        struct str s = STR_INIT;
        char text[500];

        memset(text, 'y', sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        for (int n = 55; n < 75; n++) { /* around the first guess of room */
                str_clear(&s);
                str_addf(&s, "%.*s", n, text);
                assert_int_equal(s.len, n);
                assert_int_equal(strlen(s.buf), n);
        }
        str_addf(&s, "%s%s", text, text);
        assert_int_equal(strlen(s.buf), 74 + 998);
        str_fini(&s);
}

static void a_taken_buffer_is_never_null(void **state _unused_)
{
        struct str s = STR_INIT;
        _cleanup_(mem_freep) char *empty = str_take(&s);

        assert_string_equal(empty, "");
        str_adds(&s, "mine");
        _cleanup_(mem_freep) char *text = str_take(&s);
        assert_string_equal(text, "mine");
        assert_null(s.buf);
        assert_int_equal(s.len + s.cap, 0);
}

static void comparisons_take_null_as_empty(void **state _unused_)
{
        assert_true(str_eq(NULL, "") && str_eq(NULL, NULL) && str_eq("a", "a") &&
                    !str_eq("a", NULL));
        assert_true(str_empty(NULL) && str_empty("") && !str_empty("a"));
        assert_true(str_starts("node-1", "node") && str_starts("x", "") &&
                    !str_starts("no", "node") && !str_starts(NULL, "n"));
        assert_true(str_ends("a.yaml", ".yaml") && str_ends("x", "") && !str_ends("l", ".yaml") &&
                    !str_ends(NULL, "n"));
        assert_true(str_case_eq("Info", "iNFO") && str_case_eq(NULL, "") &&
                    !str_case_eq("info", "inf") && !str_case_eq("[", "{"));
}

/* R: A9 */
static void only_good_utf8_is_text(void **state _unused_)
{
        static const struct {
                const char *s;
                size_t len;
                bool good;
        } cases[] = {
                { "", 0, true },
                { "plain ascii of some length", 26, true },
                { "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x9A\xA2", 9, true },
                { "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF", 18,
                  true },
                { "a\0b", 3, false },
                { "eight by\0te words", 17, false },
                { "eight byte\x80words and", 20, false },
                { "\xC0\x80", 2, false },         /* NUL, too long */
                { "\xC1\xBF", 2, false },         /* too long */
                { "\xE0\x9F\xBF", 3, false },     /* too long */
                { "\xF0\x8F\xBF\xBF", 4, false }, /* too long */
                { "\xED\xA0\x80", 3, false },     /* half a pair */
                { "\xF4\x90\x80\x80", 4, false }, /* beyond the last */
                { "\xF5\x80\x80\x80", 4, false },
                { "\xE2\x82", 2, false }, /* cut */
                { "\xE2\x28\xA1", 3, false },
                { "\xFF", 1, false },
        };
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                char *exact = mem_dup(cases[i].s, cases[i].len); /* the sanitizer watches the end */
                assert_int_equal(str_is_utf8(exact, cases[i].len), cases[i].good);
                mem_free(exact);
        }
}

struct number_case {
        const char *s;
        int64_t value; /* BAD: refused */
};
#define BAD INT64_MIN

static void check_numbers(int (*parse)(const char *, int64_t *), const struct number_case *cases)
{
        for (; cases->s; cases++) {
                int64_t v = 4711;
                int r = parse(cases->s, &v);
                if (r != (cases->value == BAD ? -1 : 0) ||
                    v != (cases->value == BAD ? 4711 : cases->value))
                        fail_msg("\"%s\" gave %d, %lld", cases->s, r, (long long)v);
        }
        int64_t v;
        assert_int_equal(parse(NULL, &v), -1);
}

/* R: A9 */
static void whole_numbers_are_read_exactly(void **state _unused_)
{
        int64_t i;
        uint64_t u = 0;

        check_numbers(str_parse_i64, (const struct number_case[]){
                                         { "0", 0 },
                                         { "-0", 0 },
                                         { "007", 7 },
                                         { "-12", -12 },
                                         { "9223372036854775807", INT64_MAX },
                                         { "9223372036854775808", BAD },
                                         { "-9223372036854775809", BAD },
                                         { "99999999999999999999999", BAD },
                                         { "", BAD },
                                         { "-", BAD },
                                         { "--1", BAD },
                                         { "+1", BAD },
                                         { " 1", BAD },
                                         { "1 ", BAD },
                                         { "1x", BAD },
                                         { "0x10", BAD },
                                         { "1.0", BAD },
                                         { 0 },
                                     });
        assert_int_equal(str_parse_i64("-9223372036854775808", &i), 0);
        assert_true(i == INT64_MIN);
        assert_int_equal(str_parse_u64("18446744073709551615", &u), 0);
        assert_true(u == UINT64_MAX);
        assert_int_equal(str_parse_u64("18446744073709551616", &u), -1);
        assert_int_equal(str_parse_u64("-1", &u), -1);
        assert_int_equal(str_parse_u64("", &u), -1);
}

static void cpu_is_read_in_thousandths(void **state _unused_)
{
        check_numbers(str_parse_milli, (const struct number_case[]){
                                           { "1.5", 1500 },
                                           { "250m", 250 },
                                           { "2", 2000 },
                                           { "0.001", 1 },
                                           { ".5", 500 },
                                           { "1.500", 1500 },
                                           { "0", 0 },
                                           { "9223372036854775807m", INT64_MAX },
                                           { "9223372036854775.807", INT64_MAX },
                                           { "9223372036854775.808", BAD },
                                           { "9223372036854775808m", BAD },
                                           { "1.0001", BAD },
                                           { "1.5m", BAD },
                                           { "1.", BAD },
                                           { ".", BAD },
                                           { "", BAD },
                                           { "m", BAD },
                                           { "-1", BAD },
                                           { "1M", BAD },
                                           { "1mm", BAD },
                                           { "1e3", BAD },
                                           { "1,5", BAD },
                                           { 0 },
                                       });
}

static void sizes_are_read_in_powers_of_1024(void **state _unused_)
{
        check_numbers(str_parse_bytes, (const struct number_case[]){
                                           { "512M", 512 << 20 },
                                           { "2Gi", INT64_C(2) << 30 },
                                           { "1073741824", 1073741824 },
                                           { "1.5G", INT64_C(3) << 29 },
                                           { "1.1K", 1127 }, /* 1126.4 */
                                           { "64k", 65536 },
                                           { "64KiB", 65536 },
                                           { "64kB", 65536 },
                                           { "1m", 1 << 20 },
                                           { "10B", 10 },
                                           { "0", 0 },
                                           { "7Ei", INT64_C(7) << 60 },
                                           { "8Ei", BAD },
                                           { "7.9999E", INT64_C(9223256744704315124) },
                                           { "9223372036854775807", INT64_MAX },
                                           { "9223372036854775808", BAD },
                                           { "1.5", BAD },
                                           { "1.0", 1 },
                                           { "1 M", BAD },
                                           { "M", BAD },
                                           { "-1M", BAD },
                                           { "1MM", BAD },
                                           { "1i", BAD },
                                           { "1Mib", BAD },
                                           { "1X", BAD },
                                           { "1.0000000001G", BAD },
                                           { "", BAD },
                                           { 0 },
                                       });
}

static void durations_are_read_in_milliseconds(void **state _unused_)
{
        check_numbers(str_parse_duration_ms, (const struct number_case[]){
                                                 { "90", 90000 },
                                                 { "90s", 90000 },
                                                 { "5m", 300000 },
                                                 { "2h", 7200000 },
                                                 { "1d", 86400000 },
                                                 { "250ms", 250 },
                                                 { "1h30m", 5400000 },
                                                 { "1d2h3m4s5ms", 93784005 },
                                                 { "1.5h", 5400000 },
                                                 { "0.25", 250 },
                                                 { "0", 0 },
                                                 { "9223372036854775807ms", INT64_MAX },
                                                 { "9223372036854775807s", BAD },
                                                 { "106751991167d8h", BAD },
                                                 { "0.5ms", BAD },
                                                 { "30m1h", BAD },
                                                 { "1m1m", BAD },
                                                 { "1h30", BAD },
                                                 { "30 s", BAD },
                                                 { "-5s", BAD },
                                                 { "s", BAD },
                                                 { "5S", BAD },
                                                 { "5min", BAD },
                                                 { "", BAD },
                                                 { 0 },
                                             });
}

static void ages_are_short(void **state _unused_)
{
        char buf[32];

        assert_string_equal(str_age(buf, sizeof(buf), -5), "0s");
        assert_string_equal(str_age(buf, sizeof(buf), 3999), "3s");
        assert_string_equal(str_age(buf, sizeof(buf), 59999), "59s");
        assert_string_equal(str_age(buf, sizeof(buf), 60000), "1m");
        assert_string_equal(str_age(buf, sizeof(buf), 7200000), "2h");
        assert_string_equal(str_age(buf, sizeof(buf), 3 * INT64_C(86400000)), "3d");
        assert_string_equal(str_age(buf, sizeof(buf), INT64_MAX), "106751991167d");
        assert_string_equal(str_age(buf, 3, 59999), "59");
}

static void distance_counts_slips(void **state _unused_)
{
        char long_text[200];

        assert_int_equal(str_distance("", "", 5), 0);
        assert_int_equal(str_distance(NULL, "ab", 5), 2);
        assert_int_equal(str_distance("kitten", "sitting", 5), 3);
        assert_int_equal(str_distance("drian", "drain", 5), 1);
        assert_int_equal(str_distance("abcd", "badc", 5), 2);
        assert_int_equal(str_distance("kitten", "sitting", 2), 3);
        assert_int_equal(str_distance("kitten", "sitting", 1), 2);
        assert_int_equal(str_distance("a", "b", 0), 1);
        assert_int_equal(str_distance("a", "a", 0), 0);
        assert_int_equal(str_distance("short", "a much longer text than that", 3), 4);
        assert_int_equal(str_distance("abc", "xyz", UINT_MAX), 3);
        memset(long_text, 'x', 199);
        long_text[199] = '\0';
        assert_int_equal(str_distance(long_text, long_text, 3), 4);
}

/* The limit only cuts: it never changes what is below it. */
static void distance_is_symmetric_and_its_limit_only_cuts(void **state _unused_)
{
        struct rng rng;

        rng_seed(&rng, 4);
        for (int round = 0; round < 5000; round++) {
                char x[10] = "", y[10] = "";
                for (uint64_t i = 0, n = rng_below(&rng, 9); i < n; i++)
                        x[i] = (char)('a' + rng_below(&rng, 3));
                for (uint64_t i = 0, n = rng_below(&rng, 9); i < n; i++)
                        y[i] = (char)('a' + rng_below(&rng, 3));
                unsigned d = str_distance(x, y, 100);
                assert_int_equal(str_distance(y, x, 100), d);
                for (unsigned max = 0; max < 10; max++)
                        assert_int_equal(str_distance(x, y, max), d <= max ? d : max + 1);
        }
}

static void a_typo_gets_a_suggestion_and_nonsense_none(void **state _unused_)
{
        static const char *const verbs[] = { "apply",     "delete",  "describe", "drain", "events",
                                             "exec",      "explain", "get",      "logs",  "nodes",
                                             "retry",     "run",     "start",    "stop",  "version",
                                             "workloads", NULL };

        assert_string_equal(str_suggest("drian", verbs), "drain");
        assert_string_equal(str_suggest("aply", verbs), "apply");
        assert_string_equal(str_suggest("DELETE", verbs), "delete");
        assert_string_equal(str_suggest("wrokload", verbs), "workloads");
        assert_string_equal(str_suggest("workload", verbs), "workloads");
        assert_string_equal(str_suggest("work", verbs), "workloads");
        assert_string_equal(str_suggest("desc", verbs), "describe");
        assert_string_equal(str_suggest("lgs", verbs), "logs");
        assert_string_equal(str_suggest("gte", verbs), "get");
        assert_string_equal(str_suggest("strat", verbs), "start");
        assert_string_equal(str_suggest("stpo", verbs), "stop");
        assert_null(str_suggest("", verbs));
        assert_null(str_suggest(NULL, verbs));
        assert_null(str_suggest("x", verbs));
        assert_null(str_suggest("quux", verbs));
        assert_null(str_suggest("teleport", verbs));
        assert_null(str_suggest("get", (const char *const[]){ NULL }));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_buffer_always_ends_in_nul),
                cmocka_unit_test(long_formats_fit),
                cmocka_unit_test(a_taken_buffer_is_never_null),
                cmocka_unit_test(comparisons_take_null_as_empty),
                cmocka_unit_test(only_good_utf8_is_text),
                cmocka_unit_test(whole_numbers_are_read_exactly),
                cmocka_unit_test(cpu_is_read_in_thousandths),
                cmocka_unit_test(sizes_are_read_in_powers_of_1024),
                cmocka_unit_test(durations_are_read_in_milliseconds),
                cmocka_unit_test(ages_are_short),
                cmocka_unit_test(distance_counts_slips),
                cmocka_unit_test(distance_is_symmetric_and_its_limit_only_cuts),
                cmocka_unit_test(a_typo_gets_a_suggestion_and_nonsense_none),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
