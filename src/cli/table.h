/* cli/table.h: the one table printer.
 *
 *      NAME    STATUS   NODE
 *      hello   Running  node-1
 *
 * Columns are as wide as their content; the last one is not padded. On a terminal that is too
 * narrow the least important column is cut with an ellipsis, then the next one; never elsewhere,
 * since scripts read that. Widths only grow, so that rows printed later (--watch) line up.
 */
#ifndef BERTH_CLI_TABLE_H
#define BERTH_CLI_TABLE_H

#include "cli/term.h"

struct table_column {
        const char *title;
        bool wide_only;       /* shown with -o wide */
        bool right;           /* numbers */
        uint8_t weight;       /* the smallest is cut first; 0: never cut */
        uint8_t stream_width; /* at least this wide when rows come one by one */
};

struct table_style {
        const struct term *term; /* NULL: no colour, no limit */
        bool wide, no_headers;
        bool stream; /* more rows will come */
};

#define TABLE_COLUMNS_MAX 24

struct table;
/* columns outlive the table */
struct table *table_create(const struct table_column *columns, size_t n_columns);
void table_destroy(struct table *t);
static inline void table_destroyp(struct table **t)
{
        if (*t)
                table_destroy(*t);
}

/* Cells from left to right, as many per row as there are columns, wide ones too. Text is copied and
 * cleaned; empty or NULL prints as "-". */
void table_add(struct table *t, const char *text, enum tint tint);
void table_addf(struct table *t, enum tint tint, const char *format, ...) _printf_(3, 4);
size_t table_rows(const struct table *t);

/* Appends the rows since the last print; the header before the first. Rows are then forgotten. */
void table_print(struct table *t, const struct table_style *style, struct str *out);

#endif
