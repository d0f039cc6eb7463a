/* store/sqlite_rows.h: rows in memory as a table that SQL can read.
 *
 * `INSERT INTO events SELECT id, data FROM batch_rows` appends a whole batch with one statement:
 * its cursor stays at the end of the tree, where a statement for each row would open it and go down
 * from the root each time. Nothing is copied on the way. Only the writing connection has the table,
 * under the store's lock.
 */
#ifndef BERTH_STORE_SQLITE_ROWS_H
#define BERTH_STORE_SQLITE_ROWS_H

#include "base/array.h"
#include <sqlite3.h>
#include <stdint.h>

struct batch_row {
        int64_t id;
        const char *key; /* NULL: an event */
        const void *data;
        size_t len;
};
/* What the table holds; the owner fills it before a statement runs, and what it points to must stay
 * until then. */
struct batch_rows {
        ARRAY(struct batch_row) rows;
};

/* Makes the table known to a connection, for as long as that is open. SQLITE_OK, or why not. */
int batch_rows_register(sqlite3 *db, struct batch_rows *rows);

#endif
