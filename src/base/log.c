/* base/log.c: a line is put together on the stack and written with one write(2).
 *
 * No heap, no stdio and no lock: a line can be logged when memory is short, and threads do not wait
 * for each other. A line has at most 4,096 bytes, which is what a pipe takes without mixing it with
 * another writer's. What does not fit is cut at a whole character, and the line then ends in
 * truncated=true; a JSON line stays valid JSON.
 *
 * Invariant: (1) Until the end of the line is written, len <= LINE_BYTES - TAIL_BYTES + 1 (the
 * quote after a value that was cut), so the end always fits.
 */
#include "base/log.h"

#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES ((size_t)4096)
#define TAIL_BYTES ((size_t)32) /* closing quote, the mark, brace, newline */

struct line {
        char buf[LINE_BYTES];
        size_t len;
        enum log_format format;
        bool cut;
};

static atomic_int min_level = LOG_INFO;
static atomic_int line_format = LOG_FORMAT_LOGFMT;
static atomic_int out_fd = STDERR_FILENO;

static const char *const level_names[] = { "debug", "info", "warn", "error" };

static size_t room(const struct line *l)
{
        return l->len < LINE_BYTES - TAIL_BYTES ? LINE_BYTES - TAIL_BYTES - l->len : 0;
}

/* All of it or nothing. */
static bool put(struct line *l, const char *text, size_t len)
{
        if (len > room(l)) {
                l->cut = true;
                return false;
        }
        memcpy(l->buf + l->len, text, len);
        l->len += len;
        return true;
}

static void put_tail(struct line *l, const char *text)
{
        size_t len = strlen(text);

        must(len <= LINE_BYTES - l->len, "(1) the end of a line always fits");
        memcpy(l->buf + l->len, text, len);
        l->len += len;
}

/* One character, escaped for a text in quotes, in either format. n is 0 for a byte that is not
 * UTF-8. */
static bool put_escaped(struct line *l, const char *s, size_t n)
{
        static const char hex[] = "0123456789abcdef";
        if (n == 0)
                return put(l, "\xEF\xBF\xBD", 3); /* U+FFFD, the mark for what could not be read */
        if (*s == '"' || *s == '\\')
                return put(l, (const char[]){ '\\', *s }, 2);
        if (!str_is_control(s,
                            /* a value must not be able to move the cursor of the terminal that
                             * shows it, nor to turn its text round */
                            n))
                return put(l, s, n);
        if (*s == '\n' || *s == '\r' || *s == '\t')
                return put(l, *s == '\n' ? "\\n" : *s == '\r' ? "\\r" : "\\t", 2);
        const unsigned char *p = (const unsigned char *)s;
        unsigned c = n == 1   ? p[0]
                     : n == 2 ? (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu)
                              : (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
        return put(l,
                   (const char[]){ '\\', 'u', hex[c >> 12 & 15], hex[c >> 8 & 15], hex[c >> 4 & 15],
                                   hex[c & 15] },
                   6);
}

static void put_quoted(struct line *l, const char *s)
{
        size_t left = strnlen(s, LINE_BYTES);

        if (!put(l, "\"", 1))
                return;
        while (left > 0) {
                size_t n = str_utf8_len(s, left);
                if (!put_escaped(l, s, n))
                        break;
                s += n ? n : 1;
                left -= n ? n : 1;
        }
        put_tail(l, "\"");
}

/* logfmt: whether a value can stand without quotes. */
static bool is_plain(const char *s)
{
        size_t left = strnlen(s, LINE_BYTES);

        if (left == 0)
                return false;
        while (left > 0) {
                size_t n = str_utf8_len(s, left);
                if (n == 0 || str_is_control(s, n) || *s == ' ' || *s == '=' || *s == '"')
                        return false;
                s += n;
                left -= n;
        }
        return true;
}

static void put_text(struct line *l, const char *s)
{
        if (l->format == LOG_FORMAT_LOGFMT && is_plain(s) && put(l, s, strlen(s)))
                return;
        put_quoted(l, s);
}

static void put_int(struct line *l, int64_t v)
{
        char digits[21];
        size_t at = sizeof(digits);
        uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;

        do {
                digits[--at] = (char)('0' + u % 10);
                u /= 10;
        } while (u > 0);
        if (v < 0)
                digits[--at] = '-';
        put(l, digits + at, sizeof(digits) - at);
}

/* logfmt has no way to quote a key. */
static void put_key(struct line *l, const char *key)
{
        for (; *key; key++)
                put(l, *key > ' ' && *key < 0x7F && *key != '=' && *key != '"' ? key : "_", 1);
}

static void put_field(struct line *l, const struct log_field *f)
{
        const char *key = f->key ? f->key : "?";
        size_t start = l->len;

        if (l->format == LOG_FORMAT_JSON) {
                put(l, ",", l->len > 1);
                put_quoted(l, key);
                put(l, ":", 1);
        } else {
                put(l, " ", l->len > 0);
                put_key(l, key);
                put(l, "=", 1);
        }
        /* A key without room for any number behind it is left out whole; escaped, it may be far
         * longer than it was. */
        if (room(l) < 24) {
                l->len = start;
                l->cut = true;
                return;
        }
        if (f->kind == 'i')
                put_int(l, f->i);
        else if (f->kind == 'b')
                put(l, f->i ? "true" : "false", f->i ? 4 : 5);
        else if (f->s || l->format == LOG_FORMAT_LOGFMT)
                put_text(l, f->s ? f->s : "");
        else
                put(l, "null", 4);
}

/* Always with milliseconds, so that lines sort by their text. */
static const char *timestamp(char buf[TIME_TEXT_LEN])
{
        time_format(buf, clock_wall_ms());
        if (strlen(buf) == strlen("2026-02-17T00:00:00Z"))
                strcpy(buf + strlen(buf) - 1, ".000Z");
        return buf;
}

static void write_line(const char *data, size_t len)
{
        int fd = atomic_load_explicit(&out_fd, memory_order_relaxed);

        /* A full non-blocking pipe loses the line: logging must never hold up the work. */
        while (len > 0) {
                ssize_t n = write(fd, data, len);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return;
                data += n;
                len -= (size_t)n;
        }
}

void log_setup(enum log_level min, enum log_format format, int fd)
{
        atomic_store(&min_level, min);
        atomic_store(&line_format, format);
        atomic_store(&out_fd, fd);
}

void log_set_level(enum log_level min)
{
        atomic_store(&min_level, min);
}

int log_level_parse(const char *name, enum log_level *ret)
{
        for (size_t i = 0; name && i < ARRAY_LEN(level_names); i++)
                if (str_case_eq(name, level_names[i])) {
                        *ret = (enum log_level)i;
                        return 0;
                }
        return -1;
}

bool log_enabled(enum log_level level)
{
        return (int)level >= atomic_load_explicit(&min_level, memory_order_relaxed);
}

void log_write(enum log_level level, const char *msg, const struct log_field *fields)
{
        int saved_errno = errno;
        struct line l;
        char ts[TIME_TEXT_LEN];

        if ((unsigned)level >= ARRAY_LEN(level_names))
                level = LOG_ERROR;
        l.len = 0;
        l.cut = false;
        l.format = (enum log_format)atomic_load_explicit(&line_format, memory_order_relaxed);
        if (l.format == LOG_FORMAT_JSON)
                put(&l, "{", 1);
        put_field(&l, &LOG_S("ts", timestamp(ts)));
        put_field(&l, &LOG_S("level", level_names[level]));
        put_field(&l, &LOG_S("msg", msg ? msg : ""));
        for (; fields && fields->kind; fields++)
                put_field(&l, fields);
        if (l.cut)
                put_tail(&l,
                         l.format == LOG_FORMAT_JSON ? ",\"truncated\":true" : " truncated=true");
        put_tail(&l, l.format == LOG_FORMAT_JSON ? "}\n" : "\n");
        write_line(l.buf, l.len);
        errno = saved_errno;
}
