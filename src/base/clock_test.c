/* base/clock_test.c: what must hold for time, dates and chance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOUR INT64_C(3600000)
#define START INT64_C(1771286400000) /* 2026-02-17 */

static void time_goes_with_the_monotonic_clock(void **state _unused_)
{
        struct clock c;

        clock_init_at(&c, START, 500);
        assert_int_equal(clock_follow(&c, START, 500), START);
        for (int64_t ms = 0; ms < 100000; ms += 7)
                assert_int_equal(clock_follow(&c, START + ms + (ms / 7) % 3 - 1, 500 + ms),
                                 START + ms);
}

/* R: C11 */
static void a_jump_forward_is_followed_by_one_percent(void **state _unused_)
{
        struct clock c;
        int64_t last = START;

        clock_init_at(&c, START, 0);
        for (int64_t mono = 0; mono <= 99 * HOUR; mono += 250) {
                int64_t now = clock_follow(&c, START + HOUR + mono, mono);
                assert_in_range(now - last, 0, 250 + 10);
                assert_in_range(now - START - mono, 0, mono / 100);
                last = now;
        }
        assert_int_equal(c.offset_ms, HOUR / 100);
        assert_int_equal(clock_follow(&c, START + HOUR + 101 * HOUR, 101 * HOUR),
                         START + 102 * HOUR);
        assert_int_equal(c.offset_ms, 0);
}

/* R: C11 */
static void a_jump_back_only_slows_it(void **state _unused_)
{
        struct clock c;
        int64_t last = START;

        clock_init_at(&c, START, 0);
        for (int64_t mono = 250; mono <= 99 * HOUR; mono += 250) {
                int64_t now = clock_follow(&c, START - HOUR + mono, mono);
                assert_in_range(now - last, 240, 250);
                last = now;
        }
        assert_int_equal(c.offset_ms, -HOUR / 100);
}

static void it_never_goes_back_whatever_the_wall_clock_says(void **state _unused_)
{
        struct clock c;
        struct rng rng;
        int64_t last = START, mono = 0;

        rng_seed(&rng, 5);
        clock_init_at(&c, START, 0);
        for (int i = 0; i < 200000; i++) {
                int64_t passed = (int64_t)rng_below(&rng, rng_chance(&rng, 10000) ? 100000 : 30);
                mono += passed;
                int64_t now = clock_follow(&c, (int64_t)rng_below(&rng, (uint64_t)START * 2), mono);
                assert_true(now >= last);
                assert_true(now - last <= passed + (passed + 1000) / 100 + 1);
                last = now;
        }
        assert_true(last - START >= mono * 98 / 100 && last - START <= mono * 102 / 100);
}

static void the_system_clock_is_near_the_wall(void **state _unused_)
{
        struct clock c;

        clock_init_system(&c);
        int64_t now = clock_now_ms(&c);
        assert_in_range(now - clock_wall_ms() + 5000, 0, 10000);
        assert_true(clock_now_ms(&c) >= now);
        assert_true(clock_mono_ns() > 0);
}

static void known_dates_are_written(void **state _unused_)
{
        char buf[TIME_TEXT_LEN];

        assert_string_equal(time_format(buf, 0), "1970-01-01T00:00:00Z");
        assert_string_equal(time_format(buf, START + 123), "2026-02-17T00:00:00.123Z");
        assert_string_equal(time_format(buf, -1), "1969-12-31T23:59:59.999Z");
        assert_string_equal(time_format(buf, 951782400000), "2000-02-29T00:00:00Z");
        assert_string_equal(time_format(buf, INT64_MIN), "0001-01-01T00:00:00Z");
        assert_string_equal(time_format(buf, INT64_MAX), "9999-12-31T23:59:59.999Z");
}

static void every_day_of_9999_years_goes_both_ways(void **state _unused_)
{
        char buf[TIME_TEXT_LEN];
        int64_t first, last, back;
        struct rng rng;

        rng_seed(&rng, 6);
        assert_int_equal(time_parse("0001-01-01T00:00:00Z", 20, &first), 0);
        assert_int_equal(time_parse("9999-12-31T23:59:59.999Z", 24, &last), 0);
        for (int64_t day = first; day <= last; day += 86400000) {
                int64_t ms = day + (int64_t)rng_below(&rng, 86400000);
                time_format(buf, ms);
                if (time_parse(buf, strlen(buf), &back) != 0 || back != ms)
                        fail_msg("%lld gave %s and %lld", (long long)ms, buf, (long long)back);
        }
}

static void the_c_library_agrees(void **state _unused_)
{
        char buf[TIME_TEXT_LEN], want[64];
        struct rng rng;

        rng_seed(&rng, 7);
        for (int i = 0; i < 20000; i++) {
                int64_t s = (int64_t)rng_below(&rng, 253402300799 + 62135596800) - 62135596800;
                time_t t = (time_t)s;
                struct tm tm;
                gmtime_r(&t, &tm);
                char year[8] = { (char)('0' + (tm.tm_year + 1900) / 1000),
                                 (char)('0' + (tm.tm_year + 1900) / 100 % 10),
                                 (char)('0' + (tm.tm_year + 1900) / 10 % 10),
                                 (char)('0' + (tm.tm_year + 1900) % 10) };
                strcpy(want, year);
                strftime(want + 4, sizeof(want) - 4, "-%m-%dT%H:%M:%SZ", &tm);
                assert_string_equal(time_format(buf, s * 1000), want);
        }
}

/* R: A9 */
static void rfc3339_is_read_and_nothing_else(void **state _unused_)
{
        static const struct {
                const char *s;
                int64_t ms; /* -1: refused */
        } cases[] = {
                { "2026-02-17T00:00:00Z", START },
                { "2026-02-17t00:00:00z", START },
                { "2026-02-17T01:00:00+01:00", START },
                { "2026-02-16T18:30:00-05:30", START },
                { "2026-02-17T00:00:00-00:00", START },
                { "2026-02-17T00:00:00.1Z", START + 100 },
                { "2026-02-17T00:00:00.123456789Z", START + 123 },
                { "2026-02-17T00:00:00.1239Z", START + 123 },
                { "2024-02-29T00:00:00Z", 1709164800000 },
                { "2016-12-31T23:59:60Z", 1483228800000 },
                { "2017-01-01T00:59:60+01:00", 1483228800000 },
                { "2016-12-31T23:58:60Z", -1 },
                { "2026-02-17T00:00:00.1234567890Z", -1 },
                { "2026-02-17T00:00:00.Z", -1 },
                { "2026-02-17T00:00:00", -1 },
                { "2026-02-17T00:00Z", -1 },
                { "2026-02-17 00:00:00Z", -1 },
                { "2026-02-17", -1 },
                { "2026-02-29T00:00:00Z", -1 },
                { "1900-02-29T00:00:00Z", -1 },
                { "2026-04-31T00:00:00Z", -1 },
                { "2026-13-01T00:00:00Z", -1 },
                { "2026-00-01T00:00:00Z", -1 },
                { "2026-01-00T00:00:00Z", -1 },
                { "2026-02-17T24:00:00Z", -1 },
                { "2026-02-17T00:60:00Z", -1 },
                { "2026-02-17T00:00:61Z", -1 },
                { "2026-02-17T00:00:00+24:00", -1 },
                { "2026-02-17T00:00:00+01:60", -1 },
                { "2026-02-17T00:00:00+0100", -1 },
                { "2026-02-17T00:00:00+01", -1 },
                { "2026-02-17T00:00:00Zx", -1 },
                { " 2026-02-17T00:00:00Z", -1 },
                { "+026-02-17T00:00:00Z", -1 },
                { "0000-12-31T00:00:00Z", -1 },
                { "0001-01-01T00:00:00+00:01", -1 },
                { "9999-12-31T23:59:59-00:01", -1 },
                { "9999-12-31T23:59:60Z", -1 },
                { "12026-02-17T00:00:00Z", -1 },
                { "", -1 },
        };
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                size_t len = strlen(cases[i].s);
                int64_t ms = -1;
                char *exact = malloc(len + 1); /* no NUL within reach */
                memcpy(exact, cases[i].s, len);
                exact = realloc(exact, len ? len : 1);
                if (time_parse(exact, len, &ms) != (cases[i].ms == -1 ? -1 : 0) ||
                    ms != cases[i].ms)
                        fail_msg("%s gave %lld", cases[i].s, (long long)ms);
                for (size_t cut = 0; cut < len; cut++)
                        assert_int_equal(time_parse(exact, cut, &ms),
                                         cases[i].s[len - 1] == 'x' && cut == len - 1 ? 0 : -1);
                free(exact);
        }
}

/* R: A2 */
static void a_seed_gives_the_same_numbers_everywhere(void **state _unused_)
{
        struct rng r;

        rng_seed(&r, 1234567); /* the published values of splitmix64 */
        assert_true(r.s[0] == 6457827717110365317u && r.s[1] == 3203168211198807973u);
        assert_true(r.s[2] == 9817491932198370423u && r.s[3] == 4593380528125082431u);
        r = (struct rng){ { 1, 2, 3, 4 } }; /* the published values of xoshiro256** */
        assert_true(rng_next(&r) == 11520 && rng_next(&r) == 0 && rng_next(&r) == 1509978240);
        assert_true(rng_next(&r) == 1215971899390074240u);
}

static void chances_are_even(void **state _unused_)
{
        uint32_t seen[7] = { 0 }, yes = 0;
        struct rng r;

        rng_seed(&r, 8);
        for (int i = 0; i < 70000; i++)
                seen[rng_below(&r, 7)]++;
        for (size_t i = 0; i < ARRAY_LEN(seen); i++)
                assert_in_range(seen[i], 9600, 10400);
        for (int i = 0; i < 100; i++) {
                assert_int_equal(rng_below(&r, 1), 0);
                assert_true(rng_below(&r, (UINT64_C(1) << 63) + 1) <= UINT64_C(1) << 63);
                assert_false(rng_chance(&r, 0));
                assert_true(rng_chance(&r, 1000000));
        }
        for (int i = 0; i < 100000; i++)
                yes += rng_chance(&r, 250000);
        assert_in_range(yes, 24000, 26000);
}

static void the_system_gives_other_bytes_each_time(void **state _unused_)
{
        unsigned char a[1000] = { 0 }, b[1000] = { 0 };
        struct rng x, y;

        random_bytes(a, sizeof(a));
        random_bytes(b, sizeof(b));
        assert_memory_not_equal(a, b, sizeof(a));
        assert_memory_not_equal(a + 900, b + 900, 100);
        random_bytes(a, 0);
        rng_seed_system(&x);
        rng_seed_system(&y);
        assert_true(rng_next(&x) != rng_next(&y));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(time_goes_with_the_monotonic_clock),
                cmocka_unit_test(a_jump_forward_is_followed_by_one_percent),
                cmocka_unit_test(a_jump_back_only_slows_it),
                cmocka_unit_test(it_never_goes_back_whatever_the_wall_clock_says),
                cmocka_unit_test(the_system_clock_is_near_the_wall),
                cmocka_unit_test(known_dates_are_written),
                cmocka_unit_test(every_day_of_9999_years_goes_both_ways),
                cmocka_unit_test(the_c_library_agrees),
                cmocka_unit_test(rfc3339_is_read_and_nothing_else),
                cmocka_unit_test(a_seed_gives_the_same_numbers_everywhere),
                cmocka_unit_test(chances_are_even),
                cmocka_unit_test(the_system_gives_other_bytes_each_time),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
