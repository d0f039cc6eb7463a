/* cli/progress.c: see progress.h. */
#include "cli/progress.h"
#include <stdio.h>
#include <string.h>

void progress_init(struct progress *p, const struct cli *cli)
{
        *p = (struct progress){ .term = &cli->errs, .silent = cli->quiet };
}

static bool can_rewrite(const struct progress *p)
{
        return p->term->colour || (p->term->is_tty && p->term->columns > 20);
}

static void put(struct progress *p, const struct str *text)
{
        (void)term_print(p->term, text, NULL); /* progress is not worth failing for */
}

void progress_clear(struct progress *p)
{
        if (p->open)
                (void)term_write(p->term, "\r\033[K", 4, NULL);
        p->open = false;
        p->last[0] = '\0';
}

void progress_show(struct progress *p, const char *format, ...)
{
        char text[sizeof(p->last)];
        va_list ap;
        va_start(ap, format);
        (void)vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        if (p->silent || str_eq(text, p->last))
                return;
        memcpy(p->last, text, sizeof(text));

        _cleanup_(str_finip) struct str clean = STR_INIT, line = STR_INIT;
        text_clean(&clean, text);
        if (can_rewrite(p)) {
                size_t room = p->term->columns ? p->term->columns - 1 : 79;
                str_addf(&line, "\r\033[K%.*s", (int)text_fit(str_c(&clean), room), str_c(&clean));
                p->open = true;
        } else {
                str_addf(&line, "%s\n", str_c(&clean));
        }
        put(p, &line);
}

void progress_note(struct progress *p, const char *format, ...)
{
        _cleanup_(str_finip) struct str line = STR_INIT;
        va_list ap;
        if (p->silent)
                return;
        progress_clear(p);
        va_start(ap, format);
        str_addvf(&line, format, ap);
        va_end(ap);
        str_addc(&line, '\n');
        put(p, &line);
}
