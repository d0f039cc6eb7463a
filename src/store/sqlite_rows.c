/* store/sqlite_rows.c: see sqlite_rows.h. */
#include "store/sqlite_rows.h"

#include "base/mem.h"

enum { COLUMN_ID, COLUMN_KEY, COLUMN_DATA };

struct table {
        sqlite3_vtab base; /* first, as SQLite wants it */
        const struct batch_rows *rows;
};

struct cursor {
        sqlite3_vtab_cursor base;
        size_t at;
};

static const struct batch_rows *rows_of(const sqlite3_vtab_cursor *cursor)
{
        return ((const struct table *)(const void *)cursor->pVtab)->rows;
}

static int connect_table(sqlite3 *db, void *rows, int argc, const char *const *argv,
                         sqlite3_vtab **ret, char **error)
{
        (void)argc, (void)argv, (void)error;
        int rc =
            sqlite3_declare_vtab(db, "CREATE TABLE batch_rows(id INTEGER, key TEXT, data BLOB)");
        if (rc != SQLITE_OK)
                return rc;
        struct table *t = mem_must(sizeof(*t));
        t->rows = rows;
        *ret = &t->base;
        return SQLITE_OK;
}

static int disconnect_table(sqlite3_vtab *table)
{
        mem_free(table);
        return SQLITE_OK;
}

/* All rows, in their order: there is no other way to read them. */
static int best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
        (void)table;
        info->estimatedCost = 1000;
        info->estimatedRows = 1000;
        return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **ret)
{
        (void)table;
        struct cursor *c = mem_must(sizeof(*c));
        *ret = &c->base;
        return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *cursor)
{
        mem_free(cursor);
        return SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *cursor, int number, const char *text, int argc,
                  sqlite3_value **argv)
{
        (void)number, (void)text, (void)argc, (void)argv;
        ((struct cursor *)(void *)cursor)->at = 0;
        return SQLITE_OK;
}

static int next(sqlite3_vtab_cursor *cursor)
{
        ((struct cursor *)(void *)cursor)->at++;
        return SQLITE_OK;
}

static int is_at_end(sqlite3_vtab_cursor *cursor)
{
        return ((const struct cursor *)(const void *)cursor)->at >= rows_of(cursor)->rows.len;
}

static const struct batch_row *row_at(const sqlite3_vtab_cursor *cursor)
{
        return &rows_of(cursor)->rows.at[((const struct cursor *)(const void *)cursor)->at];
}

static int column(sqlite3_vtab_cursor *cursor, sqlite3_context *to, int which)
{
        const struct batch_row *row = row_at(cursor);
        if (which == COLUMN_ID)
                sqlite3_result_int64(to, row->id);
        else if (which == COLUMN_KEY && row->key)
                sqlite3_result_text(to, row->key, -1, SQLITE_STATIC);
        else if (which == COLUMN_DATA && row->len > 0)
                sqlite3_result_blob64(to, row->data, row->len, SQLITE_STATIC);
        else if (which == COLUMN_DATA)
                sqlite3_result_zeroblob(to, 0); /* empty blobs are stored as such, never as NULL */
        return SQLITE_OK;
}

static int row_id(sqlite3_vtab_cursor *cursor, sqlite3_int64 *ret)
{
        *ret = row_at(cursor)->id;
        return SQLITE_OK;
}

static const sqlite3_module module = {
        /* without xCreate it is a table that is there by its name, and in no schema */
        .xConnect = connect_table,
        .xBestIndex = best_index,
        .xDisconnect = disconnect_table,
        .xOpen = open_cursor,
        .xClose = close_cursor,
        .xFilter = filter,
        .xNext = next,
        .xEof = is_at_end,
        .xColumn = column,
        .xRowid = row_id,
};

int batch_rows_register(sqlite3 *db, struct batch_rows *rows)
{
        return sqlite3_create_module_v2(db, "batch_rows", &module, rows, NULL);
}
