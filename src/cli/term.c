/* cli/term.c: terminals and text on them. See term.h. */
#include "cli/term.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void term_init(struct term *t, int fd)
{
        struct winsize size = { 0 };
        const char *kind = getenv("TERM"), *columns = getenv("COLUMNS");

        *t = (struct term){ .fd = fd, .is_tty = isatty(fd) == 1 };
        if (!t->is_tty)
                return;
        t->colour = str_empty(getenv("NO_COLOR")) && !str_empty(kind) && !str_eq(kind, "dumb");
        t->columns = 80;
        uint64_t given = 0;
        if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
                t->columns = size.ws_col;
        else if (columns && str_parse_u64(columns, &given) == 0 && given > 0 && given < 10000)
                t->columns = (unsigned)given;
}

const char *tint_on(const struct term *t, enum tint tint)
{
        static const char *const codes[] = { "",         "\033[32m", "\033[33m",
                                             "\033[31m", "\033[2m",  "\033[1m" };
        return t->colour ? codes[tint] : "";
}

const char *tint_off(const struct term *t, enum tint tint)
{
        return t->colour && tint != TINT_NONE ? "\033[0m" : "";
}

int term_write_raw(const struct term *t, const void *data, size_t len, struct err *err)
{
        const char *p = data;
        while (len > 0) {
                ssize_t n = write(t->fd, p, len);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN) { /* somebody gave us a non-blocking descriptor */
                        (void)poll(&(struct pollfd){ .fd = t->fd, .events = POLLOUT }, 1, -1);
                        continue;
                }
                if (n < 0 && errno == EPIPE)
                        _exit(0);
                if (n < 0)
                        return err_sys(err, errno, "cannot write the output");
                p += n;
                len -= (size_t)n;
        }
        return 0;
}

/* own: text of ours, with colours. */
static void clean(struct str *out, const char *p, size_t len, bool own)
{
        for (size_t at = 0; at < len;) {
                size_t n = str_utf8_len(p + at, len - at);
                /* our own colours are control characters */
                bool fine = n == 1 && (own || p[at] == '\n' || p[at] == '\t');
                if (n && (fine || !str_is_control(p + at, n)))
                        str_add(out, p + at, n);
                /* a line break of another system */
                else if (!(n == 1 && p[at] == '\r' && at + 1 < len && p[at + 1] == '\n'))
                        str_addc(out, '?');
                at += n ? n : 1;
        }
}

int term_write(const struct term *t, const void *data, size_t len, struct err *err)
{
        if (!t->is_tty)
                return term_write_raw(t, data, len, err);
        _cleanup_(str_finip) struct str out = STR_INIT;
        clean(&out, data, len, true);
        return term_write_raw(t, str_c(&out), out.len, err);
}

/* Bytes at the end that may be the beginning of a character (or of a line break) whose rest is
 * still to come. */
static size_t unfinished(const char *p, size_t len)
{
        if (len && p[len - 1] == '\r')
                return 1;
        for (size_t n = 1; n <= 3 && n <= len; n++) {
                unsigned char c = (unsigned char)p[len - n];
                if ((c & 0xc0) == 0x80)
                        continue;
                size_t whole = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
                return whole > n ? n : 0;
        }
        return 0;
}

void term_clean(struct str *out, struct term_tail *tail, const void *data, size_t len, bool last)
{
        _cleanup_(str_finip) struct str all = STR_INIT;
        str_add(&all, tail->bytes, tail->n);
        str_add(&all, data, len);
        size_t rest = last ? 0 : unfinished(str_c(&all), all.len);
        clean(out, str_c(&all), all.len - rest, false);
        memcpy(tail->bytes, str_c(&all) + all.len - rest, rest);
        tail->n = (unsigned)rest;
}

int term_write_foreign(const struct term *t, struct term_tail *tail, const void *data, size_t len,
                       struct err *err)
{
        if (!t->is_tty)
                return term_write_raw(t, data, len, err);
        _cleanup_(str_finip) struct str out = STR_INIT;
        term_clean(&out, tail, data, len, false);
        return term_write_raw(t, str_c(&out), out.len, err);
}

int term_print(const struct term *t, const struct str *text, struct err *err)
{
        return term_write(t, str_c(text), text->len, err);
}

/* ---- UTF-8 ---- */

/* One code point at p (not at its end); its length in bytes. Broken bytes give -1 and length 1. */
static size_t decode(const unsigned char *p, int32_t *ret)
{
        static const int32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        size_t n = p[0] < 0x80             ? 1
                   : (p[0] & 0xe0) == 0xc0 ? 2
                   : (p[0] & 0xf0) == 0xe0 ? 3
                   : (p[0] & 0xf8) == 0xf0 ? 4
                                           : 0;
        *ret = -1;
        if (n == 0)
                return 1;
        int32_t c = n == 1 ? p[0] : p[0] & (0x7f >> n);
        for (size_t i = 1; i < n; i++) {
                if ((p[i] & 0xc0) != 0x80) /* the NUL at the end stops here as well */
                        return 1;
                c = (c << 6) | (p[i] & 0x3f);
        }
        if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
                return 1;
        *ret = c;
        return n;
}

struct range {
        int32_t first, last;
};

static bool within(const struct range *ranges, size_t n, int32_t c)
{
        for (size_t i = 0; i < n; i++)
                if (c >= ranges[i].first && c <= ranges[i].last)
                        return true;
        return false;
}

/* Not wcwidth(3): that depends on the locale, and output must not. */
static size_t columns_of(int32_t c)
{
        static const struct range none[] = {
                { 0x300, 0x36f },   { 0x483, 0x489 },   { 0x591, 0x5bd },   { 0x610, 0x61a },
                { 0x64b, 0x65f },   { 0x1ab0, 0x1aff }, { 0x1dc0, 0x1dff }, { 0x200b, 0x200f },
                { 0x20d0, 0x20ff }, { 0xfe00, 0xfe0f }, { 0xfe20, 0xfe2f }, { 0xfeff, 0xfeff }
        };
        static const struct range two[] = { { 0x1100, 0x115f },   { 0x2e80, 0x303e },
                                            { 0x3041, 0xa4cf },   { 0xac00, 0xd7a3 },
                                            { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },
                                            { 0xff00, 0xff60 },   { 0xffe0, 0xffe6 },
                                            { 0x1f300, 0x1f64f }, { 0x1f680, 0x1f6ff },
                                            { 0x1f900, 0x1f9ff }, { 0x20000, 0x3fffd } };
        if (c < 0x300)
                return 1;
        return within(none, ARRAY_LEN(none), c) ? 0 : within(two, ARRAY_LEN(two), c) ? 2 : 1;
}

size_t text_fit(const char *text, size_t width)
{
        const unsigned char *p = (const unsigned char *)text;
        size_t used = 0, bytes = 0;
        while (p[bytes]) {
                int32_t c;
                size_t n = decode(p + bytes, &c), w = columns_of(c);
                if (used + w > width)
                        break;
                used += w;
                bytes += n;
        }
        return bytes;
}

size_t text_width(const char *text)
{
        const unsigned char *p = (const unsigned char *)text;
        size_t width = 0;
        while (*p) {
                int32_t c;
                p += decode(p, &c);
                width += columns_of(c);
        }
        return width;
}

void text_clean(struct str *out, const char *text)
{
        const unsigned char *p = (const unsigned char *)(text ? text : "");
        while (*p) {
                int32_t c;
                size_t n = decode(p, &c);
                if (c == '\n' || c == '\t' || c == '\r')
                        str_addc(out, ' ');
                else if (c < 0 || str_is_control((const char *)p, n))
                        str_addc(out, '?');
                else
                        str_add(out, p, n);
                p += n;
        }
}
