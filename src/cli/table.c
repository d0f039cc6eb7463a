/* cli/table.c: see table.h. */
#include "cli/table.h"
#include "base/arena.h"
#include "base/array.h"
#include <string.h>

#define GAP 3
#define NARROWEST 8 /* a cut column keeps at least this much */

struct cell {
        const char *text;
        size_t width;
        enum tint tint;
};

struct table {
        const struct table_column *columns;
        size_t n_columns;
        size_t widths[TABLE_COLUMNS_MAX]; /* of the content so far */
        ARRAY(struct cell) cells;
        struct arena texts;
        bool header_done;
};

struct table *table_create(const struct table_column *columns, size_t n_columns)
{
        must(n_columns > 0 && n_columns <= TABLE_COLUMNS_MAX, "a table has 1 to 24 columns");
        struct table *t = mem_must(sizeof(*t));
        t->columns = columns;
        t->n_columns = n_columns;
        return t;
}

void table_destroy(struct table *t)
{
        array_fini(&t->cells);
        arena_fini(&t->texts);
        mem_free(t);
}

void table_add(struct table *t, const char *text, enum tint tint)
{
        _cleanup_(str_finip) struct str clean = STR_INIT;
        text_clean(&clean, str_empty(text) ? "-" : text);
        struct cell *c = array_push(&t->cells);
        c->text = arena_strdup(&t->texts, str_c(&clean));
        c->width = text_width(c->text);
        c->tint = tint;
        size_t column = (t->cells.len - 1) % t->n_columns;
        if (c->width > t->widths[column])
                t->widths[column] = c->width;
}

void table_addf(struct table *t, enum tint tint, const char *format, ...)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        va_list ap;
        va_start(ap, format);
        str_addvf(&text, format, ap);
        va_end(ap);
        table_add(t, str_c(&text), tint);
}

size_t table_rows(const struct table *t)
{
        return t->cells.len / t->n_columns;
}

static bool is_shown(const struct table *t, const struct table_style *style, size_t column)
{
        return style->wide || !t->columns[column].wide_only;
}

/* Cuts the least important columns until the row fits, each to no less than its title and
 * NARROWEST. */
static void fit(const struct table *t, const struct table_style *style, size_t widths[])
{
        size_t limit = style->term ? style->term->columns : 0, total = 0;
        bool tried[TABLE_COLUMNS_MAX] = { false };

        for (size_t i = 0; i < t->n_columns; i++)
                if (is_shown(t, style, i))
                        total += widths[i] + (total ? GAP : 0);
        while (limit && total > limit) {
                size_t least = t->n_columns;
                for (size_t i = 0; i < t->n_columns; i++)
                        if (is_shown(t, style, i) && !tried[i] && t->columns[i].weight &&
                            (least == t->n_columns ||
                             t->columns[i].weight < t->columns[least].weight))
                                least = i;
                if (least == t->n_columns)
                        return;
                tried[least] = true;
                size_t floor = text_width(t->columns[least].title), excess = total - limit;
                if (floor < NARROWEST)
                        floor = NARROWEST;
                if (widths[least] <= floor)
                        continue;
                size_t cut = widths[least] - floor < excess ? widths[least] - floor : excess;
                widths[least] -= cut;
                total -= cut;
        }
}

static void print_cell(const struct cell *c, size_t width, bool right, bool last,
                       const struct term *term, struct str *out)
{
        size_t bytes = strlen(c->text), shown = c->width;
        bool cut = c->width > width;
        if (cut) {
                bytes = text_fit(c->text, width - 1);
                char *part = mem_strndup(c->text, bytes);
                shown = text_width(part) + 1;
                mem_free(part);
        }
        size_t pad = width > shown ? width - shown : 0;
        if (right)
                str_addf(out, "%*s", (int)pad, "");
        str_adds(out, term ? tint_on(term, c->tint) : "");
        str_add(out, c->text, bytes);
        if (cut)
                str_adds(out, "\u2026");
        str_adds(out, term ? tint_off(term, c->tint) : "");
        if (!right && !last)
                str_addf(out, "%*s", (int)pad, "");
}

void table_print(struct table *t, const struct table_style *style, struct str *out)
{
        must(t->cells.len % t->n_columns == 0, "a table's rows are whole");
        size_t widths[TABLE_COLUMNS_MAX], last = 0;
        for (size_t i = 0; i < t->n_columns; i++) {
                if (style->stream && t->columns[i].stream_width > t->widths[i])
                        t->widths[i] = t->columns[i].stream_width;
                widths[i] = t->widths[i];
                size_t title = text_width(t->columns[i].title);
                if (!style->no_headers && title > widths[i])
                        t->widths[i] = widths[i] = title;
                if (is_shown(t, style, i))
                        last = i;
        }
        fit(t, style, widths);
        bool header = !style->no_headers && !t->header_done;
        size_t n_rows = table_rows(t);
        for (size_t row = 0; row < n_rows + (header ? 1 : 0); row++) {
                for (size_t i = 0; i <= last; i++) {
                        if (!is_shown(t, style, i))
                                continue;
                        struct cell title = { .text = t->columns[i].title,
                                              .width = text_width(t->columns[i].title),
                                              .tint = TINT_DIM };
                        const struct cell *c =
                            header && row == 0 ? &title
                                               : &t->cells.at[(row - header) * t->n_columns + i];
                        print_cell(c, widths[i], t->columns[i].right, i == last, style->term, out);
                        if (i != last)
                                str_addf(out, "%*s", GAP, "");
                }
                str_addc(out, '\n');
        }
        t->header_done = true;
        array_clear(&t->cells);
        arena_reset(&t->texts);
}
