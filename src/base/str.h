/* base/str.h: a growable buffer of bytes, and small string functions.
 *
 * The buffer always ends in a NUL that is not counted in len. Growing never fails (mem_must).
 */
#ifndef BERTH_BASE_STR_H
#define BERTH_BASE_STR_H

#include "base/macros.h"
#include <stdarg.h>

struct str {
        char *buf; /* NULL while empty and never grown; use str_c() to read */
        size_t len, cap;
};

#define STR_INIT ((struct str){ 0 })

void str_fini(struct str *s);
void str_clear(struct str *s); /* keeps the memory */
void str_reserve(struct str *s, size_t more);
void str_add(struct str *s, const void *data, size_t len);
void str_adds(struct str *s, const char *text);
void str_addc(struct str *s, char c);
void str_addf(struct str *s, const char *format, ...) _printf_(2, 3);
void str_addvf(struct str *s, const char *format, va_list ap) _printf_(2, 0);
void str_add_u64(struct str *s, uint64_t v);
void str_add_i64(struct str *s, int64_t v);
char *str_take(struct str *s); /* gives the buffer away (free with mem_free); never NULL */
static inline const char *str_c(const struct str *s)
{
        return s->buf ? s->buf : "";
}
static inline void str_finip(struct str *s)
{
        str_fini(s);
}

bool str_eq(const char *a, const char *b); /* NULL equals "" */
bool str_empty(const char *s);             /* NULL or "" */
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
bool str_case_eq(const char *a, const char *b); /* ASCII */
bool str_is_utf8(const char *s, size_t len);    /* valid UTF-8 without NUL */
/* bytes that are not part of a valid character become '?' */
void str_mend_utf8(char *s, size_t len);
/* The valid character of n bytes at s does something to a terminal instead of showing: a control
 * character (also U+0080 to U+009F), or one that turns the direction of writing. */
bool str_is_control(const char *s, size_t n);
/* bytes of the valid character at s: 1 to 4; 0 if there is none */
size_t str_utf8_len(const char *s, size_t len);
/* whole string, decimal, no overflow; 0 or -1 */
int str_parse_i64(const char *s, int64_t *ret_value);
int str_parse_u64(const char *s, uint64_t *ret_value);
/* "1.5" -> 1500, "250m" -> 250, "2" -> 2000: thousandths; at most 3 decimals. 0 or -1 */
int str_parse_milli(const char *s, int64_t *ret_milli);
/* "512M", "2Gi", "1073741824", "1.5G": bytes; powers of 1024 in every case. 0 or -1 */
int str_parse_bytes(const char *s, int64_t *ret_bytes);
/* "90", "90s", "5m", "2h", "1d", "250ms", "1h30m": milliseconds; a bare number is seconds. 0 or
 * -1 */
int str_parse_duration_ms(const char *s, int64_t *ret_ms);
/* "3s", "4m", "2h", "3d": short age for tables. Into buf. */
const char *str_age(char *buf, size_t size, int64_t ms);
/* Edit distance (Levenshtein with transposition), for suggestions; max + 1 for all that is farther,
 * or longer than 128. */
unsigned str_distance(const char *a, const char *b, unsigned max);
/* The candidate nearest to word if near enough to suggest, else NULL. list ends with NULL. */
const char *str_suggest(const char *word, const char *const *list);

#endif
