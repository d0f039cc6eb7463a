/* base/clock.c: the system's time and randomness, and RFC 3339.
 *
 * The dates are computed here from days, by the 400-year cycle of the calendar: gmtime and timegm
 * read the environment and differ between C libraries.
 */
#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define MS_PER_DAY INT64_C(86400000)
#define CORRECT_EVERY_MS 1000 /* the wall clock is looked at this often */
#define CORRECT_SHARE 100     /* and followed by at most one part in this many */
/* both clocks are cut to milliseconds, so they seem to differ by one now and then */
#define CORRECT_IGNORE_MS 1

#define TIME_MIN_MS INT64_C(-62135596800000) /* 0001-01-01T00:00:00Z */
#define TIME_MAX_MS INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */

static int64_t read_clock_ns(clockid_t id)
{
        struct timespec t;

        must(clock_gettime(id, &t) == 0, "the system has a clock");
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_wall_ms(void)
{
        return read_clock_ns(CLOCK_REALTIME) / 1000000;
}

int64_t clock_mono_ns(void)
{
        return read_clock_ns(CLOCK_MONOTONIC);
}

int64_t clock_steady_ns(void)
{
        return read_clock_ns(CLOCK_BOOTTIME);
}

int64_t clock_follow(struct clock *c, int64_t wall_ms, int64_t mono_ms)
{
        int64_t passed = mono_ms - c->anchor_mono_ms;
        int64_t now = c->anchor_wall_ms + passed;

        if (passed >= CORRECT_EVERY_MS) {
                int64_t most = passed / CORRECT_SHARE;
                int64_t away = wall_ms - now;
                int64_t step = away > most ? most : away < -most ? -most : away;
                if (away >= -CORRECT_IGNORE_MS && away <= CORRECT_IGNORE_MS)
                        step = 0;
                now += step;
                c->offset_ms = away - step;
                c->anchor_wall_ms = now;
                c->anchor_mono_ms = mono_ms;
        }
        /* After a step back by up to 1 %, time stands until it has caught up with what was last
         * said. */
        if (now < c->last_ms)
                now = c->last_ms;
        c->last_ms = now;
        return now;
}

static int64_t system_now_ms(struct clock *c)
{
        return clock_follow(c, clock_wall_ms(), clock_mono_ns() / 1000000);
}

void clock_init_at(struct clock *c, int64_t wall_ms, int64_t mono_ms)
{
        *c = (struct clock){ .now_ms = system_now_ms,
                             .anchor_wall_ms = wall_ms,
                             .anchor_mono_ms = mono_ms,
                             .last_ms = wall_ms };
}

void clock_init_system(struct clock *c)
{
        clock_init_at(c, clock_wall_ms(), clock_mono_ns() / 1000000);
}

static uint64_t rotate_left(uint64_t x, int k)
{
        return x << k | x >> (64 - k);
}

void rng_seed(struct rng *r, uint64_t seed)
{
        for (size_t i = 0; i < ARRAY_LEN(r->s); i++) {
                uint64_t z = seed += 0x9E3779B97F4A7C15u;
                z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
                z = (z ^ z >> 27) * 0x94D049BB133111EBu;
                r->s[i] = z ^ z >> 31;
        }
}

void rng_seed_system(struct rng *r)
{
        uint64_t seed;

        random_bytes(&seed, sizeof(seed));
        rng_seed(r, seed);
}

uint64_t rng_next(struct rng *r)
{
        uint64_t *s = r->s;
        uint64_t result = rotate_left(s[1] * 5, 7) * 9;
        uint64_t t = s[1] << 17;

        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = rotate_left(s[3], 45);
        return result;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
        must(n > 0, "a number is drawn from at least one");
        /* The high half of x * n is even over 0..n-1 once the first 2^64 mod n low halves are
         * thrown away. */
        uint64_t unfair = (0 - n) % n;
        for (;;) {
                unsigned __int128 product = (unsigned __int128)rng_next(r) * n;
                if ((uint64_t)product >= unfair)
                        return (uint64_t)(product >> 64);
        }
}

bool rng_chance(struct rng *r, uint32_t per_million)
{
        return rng_below(r, 1000000) < per_million;
}

void random_bytes(void *buf, size_t len)
{
        char *p = buf;

        while (len > 0) {
                ssize_t n = getrandom(p, len, 0);
                if (n < 0 && errno == EINTR)
                        continue;
                must(n > 0, "the system gives random bytes");
                p += n;
                len -= (size_t)n;
        }
}

/* Days since 1970-01-01 of a date in years 1 to 9999. Years start in March here, so that the leap
 * day is the last of its year. */
static int64_t days_of_date(int64_t year, int64_t month, int64_t day)
{
        int64_t y = month > 2 ? year : year - 1;
        int64_t m = month > 2 ? month - 3 : month + 9;

        return y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
}

static void date_of_days(int64_t days, int64_t *ret_year, int64_t *ret_month, int64_t *ret_day)
{
        int64_t d = days + 719468; /* since 0000-03-01 */
        int64_t cycle = d / 146097;
        int64_t in_cycle = d % 146097;
        int64_t y = (in_cycle - in_cycle / 1460 + in_cycle / 36524 - in_cycle / 146096) / 365;
        int64_t in_year = in_cycle - (365 * y + y / 4 - y / 100);
        int64_t m = (5 * in_year + 2) / 153;

        *ret_day = in_year - (153 * m + 2) / 5 + 1;
        *ret_month = m < 10 ? m + 3 : m - 9;
        *ret_year = cycle * 400 + y + (*ret_month <= 2);
}

static char *put_digits(char *to, int64_t value, int n)
{
        for (int i = n - 1; i >= 0; i--, value /= 10)
                to[i] = (char)('0' + value % 10);
        return to + n;
}

/* "2026-02-17T08:30:00" of the second that begins so many seconds after TIME_MIN_MS. */
static void put_second(char *p, int64_t second)
{
        int64_t in_day = second % (MS_PER_DAY / 1000);
        int64_t year, month, day;

        date_of_days(second / (MS_PER_DAY / 1000) + TIME_MIN_MS / MS_PER_DAY, &year, &month, &day);
        p = put_digits(p, year, 4);
        *p++ = '-';
        p = put_digits(p, month, 2);
        *p++ = '-';
        p = put_digits(p, day, 2);
        *p++ = 'T';
        p = put_digits(p, in_day / 3600, 2);
        *p++ = ':';
        p = put_digits(p, in_day / 60 % 60, 2);
        *p++ = ':';
        put_digits(p, in_day % 60, 2);
}

char *time_put(char buf[TIME_TEXT_LEN], int64_t unix_ms)
{
        enum { SECOND_LEN = 19 };
        static _Thread_local struct {
                int64_t second; /* + 1, so that zeros are nothing */
                char text[SECOND_LEN];
        } last; /* a record has many times, mostly of one second */
        int64_t ms = unix_ms < TIME_MIN_MS   ? TIME_MIN_MS
                     : unix_ms > TIME_MAX_MS ? TIME_MAX_MS
                                             : unix_ms;
        int64_t since = ms - TIME_MIN_MS; /* not negative, so that division cuts the right way */
        int64_t second = since / 1000, left = since % 1000;

        if (last.second != second + 1) {
                put_second(last.text, second);
                last.second = second + 1;
        }
        memcpy(buf, last.text, SECOND_LEN);
        char *p = buf + SECOND_LEN;
        if (left) {
                *p++ = '.';
                p = put_digits(p, left, 3);
        }
        *p++ = 'Z';
        *p = '\0';
        return p;
}

const char *time_format(char buf[TIME_TEXT_LEN], int64_t unix_ms)
{
        time_put(buf, unix_ms);
        return buf;
}

/* Reads exactly n digits with a value of least to most, then the character after (0: none
 * wanted). */
static bool take(const char **p, const char *end, int n, int64_t least, int64_t most, char after,
                 int64_t *ret)
{
        int64_t v = 0;

        if (end - *p < n + (after != 0))
                return false;
        for (; n > 0; n--, (*p)++) {
                if (**p < '0' || **p > '9')
                        return false;
                v = v * 10 + (**p - '0');
        }
        if (after && *(*p)++ != after)
                return false;
        *ret = v;
        return v >= least && v <= most;
}

static int64_t days_in_month(int64_t year, int64_t month)
{
        static const char days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
        bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

        return days[month - 1] + (month == 2 && leap);
}

/* ".123456789" if it is there; what is finer than a millisecond is cut. */
static bool take_fraction(const char **p, const char *end, int64_t *ret_ms)
{
        int64_t ms = 0, weight = 100;
        int n = 0;

        if (*p < end && **p == '.') {
                for ((*p)++; *p < end && **p >= '0' && **p <= '9' && n <= 9;
                     (*p)++, n++, weight /= 10)
                        ms += (**p - '0') * weight;
                if (n == 0 || n > 9)
                        return false;
        }
        *ret_ms = ms;
        return true;
}

/* "Z" or "+01:00", to the end. */
static bool take_offset(const char *p, const char *end, int64_t *ret_minutes)
{
        int64_t hours, minutes;

        if (p == end)
                return false;
        char sign = *p++;
        if (sign == 'Z' || sign == 'z') {
                *ret_minutes = 0;
                return p == end;
        }
        if ((sign != '+' && sign != '-') || !take(&p, end, 2, 0, 23, ':', &hours) ||
            !take(&p, end, 2, 0, 59, 0, &minutes))
                return false;
        *ret_minutes = (hours * 60 + minutes) * (sign == '-' ? -1 : 1);
        return p == end;
}

int time_parse(const char *s, size_t len, int64_t *ret_unix_ms)
{
        const char *p = s, *end = s + len;
        int64_t year, month, day, hour, minute, second, ms, offset_minutes;

        if (!take(&p, end, 4, 1, 9999, '-', &year) || !take(&p, end, 2, 1, 12, '-', &month) ||
            !take(&p, end, 2, 1, 31, 0, &day) || day > days_in_month(year, month))
                return -1;
        if (p == end || (*p != 'T' && *p != 't'))
                return -1;
        p++;
        if (!take(&p, end, 2, 0, 23, ':', &hour) || !take(&p, end, 2, 0, 59, ':', &minute) ||
            !take(&p, end, 2, 0, 60, 0, &second) || !take_fraction(&p, end, &ms) ||
            !take_offset(p, end, &offset_minutes))
                return -1;

        int64_t minutes =
            days_of_date(year, month, day) * 1440 + hour * 60 + minute - offset_minutes;
        /* A leap second is the last of a UTC day; Unix time gives it the number of the second after
         * it. */
        if (second == 60 && (minutes + 1) % 1440 != 0)
                return -1;
        int64_t unix_ms = minutes * 60000 + second * 1000 + ms;
        if (unix_ms < TIME_MIN_MS || unix_ms > TIME_MAX_MS)
                return -1;
        *ret_unix_ms = unix_ms;
        return 0;
}
