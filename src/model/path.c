/* model/path.c: see path.h. */
#include "model/path.h"
#include "model/shape.h"
#include <stdio.h>
#include <string.h>

struct text {
        char *buf;
        size_t len;
};

static void add(struct text *t, const char *s, size_t n)
{
        if (t->len + n >= PATH_TEXT_LEN)
                n = PATH_TEXT_LEN - 1 - t->len;
        memcpy(t->buf + t->len, s, n);
        t->len += n;
}

static bool is_plain(const char *s, size_t n)
{
        if (n == 0 || n > 63)
                return false;
        for (size_t i = 0; i < n; i++) {
                char c = s[i];
                if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '-'))
                        return false;
        }
        return true;
}

/* A key as the user wrote it, cut to 63 bytes; what cannot be shown becomes '?', so that a path
 * never breaks a terminal or a log line. */
static void add_key(struct text *t, const char *s, size_t n)
{
        const unsigned char *p = (const unsigned char *)s, *end = p + n;
        size_t room = 63;

        add(t, "[\"", 2);
        while (p < end) {
                unsigned w = utf8_next(p, end);
                bool shown =
                    w > 1 || (w == 1 && *p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\');
                if (w == 2 && p[0] == 0xc2 && p[1] < 0xa0) /* C1 controls */
                        shown = false;
                size_t step = w ? w : 1;
                if (room < step || t->len + step + 3 >= PATH_TEXT_LEN)
                        break;
                if (shown)
                        add(t, (const char *)p, step);
                else
                        add(t, "?", 1);
                room -= step;
                p += step;
        }
        add(t, "\"]", 2);
}

const char *path_text(const struct path_step *step, char buf[PATH_TEXT_LEN])
{
        const struct path_step *chain[128];
        struct text t = { .buf = buf };
        size_t n = 0;

        for (; step && n < ARRAY_LEN(chain); step = step->up)
                chain[n++] = step;
        while (n > 0) {
                const struct path_step *s = chain[--n];
                if (!s->name) {
                        char number[32];
                        int w = snprintf(number, sizeof(number), "[%zu]", s->index);
                        add(&t, number, (size_t)w);
                } else if (is_plain(s->name, s->name_len)) {
                        if (t.len > 0)
                                add(&t, ".", 1);
                        add(&t, s->name, s->name_len);
                } else
                        add_key(&t, s->name, s->name_len);
        }
        buf[t.len] = '\0';
        return buf;
}
