/* base/str.c: the growable buffer, and the readers of small values that people write.
 *
 * The readers take the whole text or refuse it: no white space, no sign where none makes sense, no
 * overflow, and no locale.
 */
#include "base/str.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define DISTANCE_MAX_LEN 128

void str_fini(struct str *s)
{
        mem_free(s->buf);
        *s = STR_INIT;
}

void str_clear(struct str *s)
{
        s->len = 0;
        if (s->buf)
                s->buf[0] = '\0';
}

void str_reserve(struct str *s, size_t more)
{
        must(more < PTRDIFF_MAX - s->len, "a string fits into the address space");
        size_t need = s->len + more + 1;

        if (need <= s->cap)
                return;
        size_t cap = s->cap < 32 ? 64 : s->cap * 2;
        if (cap < need)
                cap = need;
        s->buf = mem_must_resize(s->buf, cap);
        s->buf[s->len] = '\0';
        s->cap = cap;
}

void str_add(struct str *s, const void *data, size_t len)
{
        str_reserve(s, len);
        if (len > 0)
                memcpy(s->buf + s->len, data, len);
        s->len += len;
        s->buf[s->len] = '\0';
}

void str_adds(struct str *s, const char *text)
{
        str_add(s, text, text ? strlen(text) : 0);
}

void str_addc(struct str *s, char c)
{
        str_reserve(s, 1);
        s->buf[s->len++] = c;
        s->buf[s->len] = '\0';
}

void str_addf(struct str *s, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        str_addvf(s, format, ap);
        va_end(ap);
}

void str_addvf(struct str *s, const char *format, va_list ap)
{
        va_list again;

        str_reserve(s, 64);
        va_copy(again, ap);
        size_t room = s->cap - s->len;
        int n = vsnprintf(s->buf + s->len, room, format, ap);
        must(n >= 0, "a format can be printed");
        if ((size_t)n >= room) {
                str_reserve(s, (size_t)n);
                vsnprintf(s->buf + s->len, (size_t)n + 1, format, again);
        }
        va_end(again);
        s->len += (size_t)n;
}

void str_add_u64(struct str *s, uint64_t v)
{
        char digits[20];
        size_t at = sizeof(digits);

        do {
                digits[--at] = (char)('0' + v % 10);
                v /= 10;
        } while (v > 0);
        str_add(s, digits + at, sizeof(digits) - at);
}

void str_add_i64(struct str *s, int64_t v)
{
        if (v < 0)
                str_addc(s, '-');
        str_add_u64(s, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

char *str_take(struct str *s)
{
        str_reserve(s, 0);
        char *buf = s->buf;
        *s = STR_INIT;
        return buf;
}

bool str_eq(const char *a, const char *b)
{
        return strcmp(a ? a : "", b ? b : "") == 0;
}

bool str_empty(const char *s)
{
        return !s || !*s;
}

bool str_starts(const char *s, const char *prefix)
{
        if (prefix && !s)
                s = "";
        for (; prefix && *prefix; s++, prefix++)
                if (*s != *prefix)
                        return false;
        return true;
}

bool str_ends(const char *s, const char *suffix)
{
        size_t len = s ? strlen(s) : 0, n = suffix ? strlen(suffix) : 0;

        return n == 0 || (n <= len && memcmp(s + len - n, suffix, n) == 0);
}

static char lower(char c)
{
        return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool str_case_eq(const char *a, const char *b)
{
        if (!a)
                a = "";
        if (!b)
                b = "";
        for (; *a && lower(*a) == lower(*b); a++, b++)
                ;
        return *a == '\0' && *b == '\0';
}

size_t str_utf8_len(const char *s, size_t len)
{
        const unsigned char *p = (const unsigned char *)s;
        size_t n;
        uint32_t c, least;

        if (len == 0)
                return 0;
        if (p[0] < 0x80)
                return 1;
        if (p[0] >= 0xC2 && p[0] <= 0xDF)
                n = 2, c = p[0] & 0x1Fu, least = 0x80;
        else if ((p[0] & 0xF0) == 0xE0)
                n = 3, c = p[0] & 0x0Fu, least = 0x800;
        else if (p[0] >= 0xF0 && p[0] <= 0xF4)
                n = 4, c = p[0] & 0x07u, least = 0x10000;
        else
                return 0;
        if (len < n)
                return 0;
        for (size_t i = 1; i < n; i++) {
                if ((p[i] & 0xC0) != 0x80)
                        return 0;
                c = c << 6 | (p[i] & 0x3Fu);
        }
        return c >= least && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF) ? n : 0;
}

void str_mend_utf8(char *s, size_t len)
{
        for (size_t i = 0; i < len;) {
                size_t n = str_utf8_len(s + i, len - i);
                if (n == 0)
                        s[i] = '?';
                i += n ? n : 1;
        }
}

bool str_is_utf8(const char *s, size_t len)
{
        size_t i = 0;

        while (i < len) {
                uint64_t word;
                /* Eight ASCII characters at once, none of them NUL: most text is nothing else. */
                if (len - i >= 8) {
                        memcpy(&word, s + i, 8);
                        if (((word | (word - 0x0101010101010101u)) & 0x8080808080808080u) == 0) {
                                i += 8;
                                continue;
                        }
                }
                size_t n = s[i] ? str_utf8_len(s + i, len - i) : 0;
                if (n == 0)
                        return false;
                i += n;
        }
        return true;
}

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

/* Reads digits at *p (at least one) and moves *p behind them. */
static int read_digits(const char **p, uint64_t *ret_value)
{
        uint64_t v = 0;
        const char *s = *p;

        if (!is_digit(*s))
                return -1;
        for (; is_digit(*s); s++)
                if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
                    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
                        return -1;
        *p = s;
        *ret_value = v;
        return 0;
}

int str_parse_u64(const char *s, uint64_t *ret_value)
{
        uint64_t v;

        if (!s || read_digits(&s, &v) < 0 || *s)
                return -1;
        *ret_value = v;
        return 0;
}

int str_parse_i64(const char *s, int64_t *ret_value)
{
        uint64_t v;
        bool negative = s && *s == '-';

        if (!s || str_parse_u64(s + negative, &v) < 0)
                return -1;
        if (v > (uint64_t)INT64_MAX + negative)
                return -1;
        *ret_value = negative ? (int64_t)(0 - v) : (int64_t)v;
        return 0;
}

/* A decimal number in parts: whole + fraction / scale. At most 9 decimals; "1.", "." and "" are
 * none. */
struct decimal {
        uint64_t whole, fraction, scale;
};

static int read_decimal(const char **p, struct decimal *ret)
{
        struct decimal d = { .scale = 1 };
        const char *s = *p;

        if (*s != '.' && read_digits(&s, &d.whole) < 0)
                return -1;
        if (*s == '.') {
                const char *start = ++s;
                if (read_digits(&s, &d.fraction) < 0 || s - start > 9)
                        return -1;
                for (; start < s; start++)
                        d.scale *= 10;
        }
        *p = s;
        *ret = d;
        return 0;
}

/* d * unit, in whole steps. A rest is refused, or rounded up if round_up. */
static int decimal_times(struct decimal d, uint64_t unit, bool round_up, int64_t *ret)
{
        unsigned __int128 part = (unsigned __int128)d.fraction * unit;
        uint64_t rest = (uint64_t)(part % d.scale);
        uint64_t value;

        if (rest > 0 && !round_up)
                return -1;
        if (__builtin_mul_overflow(d.whole, unit, &value) ||
            __builtin_add_overflow(value, (uint64_t)(part / d.scale) + (rest > 0), &value) ||
            value > INT64_MAX)
                return -1;
        *ret = (int64_t)value;
        return 0;
}

int str_parse_milli(const char *s, int64_t *ret_milli)
{
        struct decimal d;

        if (!s || read_decimal(&s, &d) < 0)
                return -1;
        if (str_eq(s, "m"))
                return d.scale == 1 ? decimal_times(d, 1, false, ret_milli) : -1;
        return *s == '\0' && d.scale <= 1000 ? decimal_times(d, 1000, false, ret_milli) : -1;
}

int str_parse_bytes(const char *s, int64_t *ret_bytes)
{
        static const char prefixes[] = "kmgtpe";
        struct decimal d;
        uint64_t unit = 1;

        if (!s || read_decimal(&s, &d) < 0)
                return -1;
        const char *prefix = *s ? strchr(prefixes, lower(*s)) : NULL;
        if (prefix) {
                unit <<= 10 * (prefix - prefixes + 1);
                s++;
                if (*s == 'i')
                        s++;
        }
        if (*s == 'B')
                s++;
        /* Part of a byte makes sense only as the rest of a larger unit: 1.1G is rounded up, 1.5 is
         * a mistake. */
        return *s == '\0' ? decimal_times(d, unit, unit > 1, ret_bytes) : -1;
}

int str_parse_duration_ms(const char *s, int64_t *ret_ms)
{
        static const struct {
                const char *name;
                int64_t ms;
        } units[] = {
                { "d", 86400000 }, { "h", 3600000 }, { "ms", 1 }, { "m", 60000 }, { "s", 1000 }
        };
        int64_t sum = 0, last_unit = INT64_MAX;

        if (!s)
                return -1;
        do {
                struct decimal d;
                int64_t part, unit = 0;

                if (read_decimal(&s, &d) < 0)
                        return -1;
                for (size_t i = 0; i < ARRAY_LEN(units) && unit == 0; i++)
                        if (str_starts(s, units[i].name)) {
                                unit = units[i].ms;
                                s += strlen(units[i].name);
                        }
                if (unit == 0 && last_unit == INT64_MAX && *s == '\0')
                        unit = 1000;
                /* Each unit once, the larger first: "30m1h" is more likely a slip than a wish. */
                if (unit == 0 || unit >= last_unit ||
                    decimal_times(d, (uint64_t)unit, false, &part) < 0 ||
                    __builtin_add_overflow(sum, part, &sum))
                        return -1;
                last_unit = unit;
        } while (*s);
        *ret_ms = sum;
        return 0;
}

const char *str_age(char *buf, size_t size, int64_t ms)
{
        int64_t s = ms > 0 ? ms / 1000 : 0;

        if (s < 60)
                snprintf(buf, size, "%llds", (long long)s);
        else if (s < 3600)
                snprintf(buf, size, "%lldm", (long long)(s / 60));
        else if (s < 86400)
                snprintf(buf, size, "%lldh", (long long)(s / 3600));
        else
                snprintf(buf, size, "%lldd", (long long)(s / 86400));
        return buf;
}

static unsigned min_of(unsigned a, unsigned b)
{
        return a < b ? a : b;
}

/* Optimal string alignment over three rows. */
static unsigned distance(const char *a, size_t len_a, const char *b, size_t len_b, unsigned max,
                         bool fold_case)
{
        unsigned rows[3][DISTANCE_MAX_LEN + 1];
        unsigned *before = rows[0], *above = rows[1], *row = rows[2];

        for (size_t j = 0; j <= len_b; j++)
                above[j] = (unsigned)j;
        for (size_t i = 1; i <= len_a; i++) {
                unsigned least = row[0] = (unsigned)i;
                char ca = fold_case ? lower(a[i - 1]) : a[i - 1];
                for (size_t j = 1; j <= len_b; j++) {
                        char cb = fold_case ? lower(b[j - 1]) : b[j - 1];
                        unsigned d =
                            min_of(min_of(above[j], row[j - 1]) + 1, above[j - 1] + (ca != cb));
                        if (i > 1 && j > 1) {
                                char pa = fold_case ? lower(a[i - 2]) : a[i - 2],
                                     pb = fold_case ? lower(b[j - 2]) : b[j - 2];
                                if (ca == pb && pa == cb)
                                        d = min_of(d, before[j - 2] + 1);
                        }
                        row[j] = d;
                        least = min_of(least, d);
                }
                /* Nothing below is nearer: a transposition reaches back two rows, but costs one
                 * more than what it found there. */
                if (least > max)
                        return max + 1;
                unsigned *spare = before;
                before = above;
                above = row;
                row = spare;
        }
        return min_of(above[len_b], max + 1);
}

static unsigned distance_within(const char *a, const char *b, unsigned max, bool fold_case)
{
        size_t len_a = a ? strlen(a) : 0, len_b = b ? strlen(b) : 0;

        max = min_of(max, DISTANCE_MAX_LEN);
        if ((len_a > len_b ? len_a - len_b : len_b - len_a) > max || len_a > DISTANCE_MAX_LEN ||
            len_b > DISTANCE_MAX_LEN)
                return max + 1;
        return distance(a, len_a, b, len_b, max, fold_case);
}

unsigned str_distance(const char *a, const char *b, unsigned max)
{
        return distance_within(a, b, max, false);
}

static bool starts_folded(const char *s, const char *prefix)
{
        for (; *prefix; s++, prefix++)
                if (lower(*s) != lower(*prefix))
                        return false;
        return true;
}

const char *str_suggest(const char *word, const char *const *list)
{
        size_t len = word ? strlen(word) : 0;
        unsigned near = len <= 3 ? 1 : len <= 6 ? 2 : 3;
        unsigned best_distance = near + 1;
        const char *best = NULL;

        if (len == 0)
                return NULL;
        for (; *list; list++) {
                unsigned d = distance_within(word, *list, near, true);
                size_t candidate_len = strlen(*list);
                /* A word of which nothing is left was not a slip of the finger. */
                if (d > 0 && (d >= candidate_len || d >= len))
                        d = near + 1;
                /* A beginning ("work" of "workloads") is a wish too, after any real neighbour. */
                if (d > near && len >= 2 && starts_folded(*list, word))
                        d = near;
                if (d < best_distance) {
                        best_distance = d;
                        best = *list;
                }
        }
        return best;
}

bool str_is_control(const char *s, size_t n)
{
        const unsigned char *p = (const unsigned char *)s;
        if (n == 1)
                return p[0] < 0x20 || p[0] == 0x7f;
        if (n == 2)
                return (p[0] == 0xc2 && p[1] < 0xa0) || (p[0] == 0xd8 && p[1] == 0x9c); /* U+061C */
        if (n != 3 || p[0] != 0xe2)
                return false;
        /* U+200E, 200F, 202A-202E */
        return (p[1] == 0x80 && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xaa && p[2] <= 0xae))) ||
               /* U+2066-2069 */
               (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9);
}
