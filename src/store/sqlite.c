/* store/sqlite.c: events and records in one SQLite file. See store/README.md for the tables and the
 * reasons behind the numbers here.
 *
 * A commit is one transaction: BEGIN IMMEDIATE, compare the head, append the events, write the
 * records, move the head, COMMIT, which in WAL mode with synchronous=FULL is one write to the log
 * and one fdatasync. What makes it fast is that nothing is written at a random place: events are
 * appended by sequence, new records by row id, and the index from key to row is in memory
 * (key_index.h), built while loading.
 *
 * Invariants:
 *   (1) Between calls no transaction is open on the writing connection.
 *   (2) The index describes exactly the committed rows, or index_ready is false. A transaction that
 *       fails leaves no trace in it.
 *   (3) base.head is the head in the file as of the last successful call.
 */
#include "store/sqlite_store.h"

#include "base/log.h"
#include "base/mutant.h"
#include <string.h>

static struct sqlite_store *self(struct store *s)
{
        return (struct sqlite_store *)s;
}

/* ---- errors ---- */

int sqlite_err(sqlite3 *db, int rc, const char *doing, struct err *err)
{
        int errnum = db ? sqlite3_system_errno(db) : 0;
        const char *detail =
            fmt("%s: %s (SQLite %d%s%s)", doing, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc), rc,
                errnum ? ", " : "", errnum ? strerror(errnum) : "");
        if ((rc & 0xff) == SQLITE_NOMEM || rc == SQLITE_IOERR_NOMEM)
                mem_give_up("the store", 0);
        switch (rc & 0xff) {
        case SQLITE_FULL:
                return err_set(
                    err, ERR_UNAVAILABLE, .msg = "the disk of the store is full", .detail = detail,
                    .hint = "free some space; nothing is lost, and writing goes on by itself",
                    .retry_after_ms = 1000);
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
                return err_set(
                    err, ERR_UNAVAILABLE, .msg = "another program holds the store's database",
                    .detail = detail,
                    .hint = "close it (a sqlite3 shell, a backup); writing goes on by itself",
                    .retry_after_ms = 1000);
        case SQLITE_IOERR:
        case SQLITE_CANTOPEN:
        case SQLITE_READONLY:
        case SQLITE_PERM:
        case SQLITE_AUTH:
                return err_set(err, ERR_UNAVAILABLE, .msg = "the store cannot be read or written",
                               .detail = detail,
                               .hint = "check the disk (dmesg), the mount and the permissions",
                               .retry_after_ms = 1000);
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
                return err_set(err, ERR_CORRUPT, .msg = "the store's database is damaged",
                               .detail = detail, .hint = "run `berth fsck`, or restore a backup");
        case SQLITE_CONSTRAINT:
                return err_set(err, ERR_CORRUPT,
                               .msg = "the store holds rows that should not be there",
                               .detail = detail, .hint = "run `berth fsck`, or restore a backup");
        default:
                return err_set(err, ERR_INTERNAL, .msg = "the store failed", .detail = detail);
        }
}

/* ---- statements ---- */

int sqlite_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct err *err)
{
        int rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL);
        return rc == SQLITE_OK ? 0 : sqlite_err(db, rc, sql, err);
}

int sqlite_run(struct sqlite_store *s, enum sqlite_statement which, const char *doing,
               struct err *err)
{
        int rc = sqlite3_step(s->q[which]);
        int reset_rc = sqlite3_reset(s->q[which]);
        if (rc == SQLITE_DONE || rc == SQLITE_ROW)
                return 0;
        return sqlite_err(s->db, reset_rc ? reset_rc : rc, doing, err);
}

int sqlite_begin(struct sqlite_store *s, struct err *err)
{
        return sqlite_run(s, Q_BEGIN, "starting a transaction", err);
}

void sqlite_rollback(struct sqlite_store *s)
{
        /* After a full disk or an I/O error SQLite may have rolled back already. */
        if (!sqlite3_get_autocommit(s->db))
                sqlite_run(s, Q_ROLLBACK, "rolling back", NULL);
}

int sqlite_meta_get(struct sqlite_store *s, const char *key, int64_t fallback, int64_t *ret,
                    struct err *err)
{
        sqlite3_stmt *q = s->q[Q_META_GET];
        sqlite3_bind_text(q, 1, key, -1, SQLITE_STATIC);
        int rc = sqlite3_step(q);
        int64_t value = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : fallback;
        int reset_rc = sqlite3_reset(q);
        if (rc != SQLITE_ROW && rc != SQLITE_DONE)
                return sqlite_err(s->db, reset_rc ? reset_rc : rc, "reading the head", err);
        *ret = value;
        return 0;
}

int sqlite_meta_put(struct sqlite_store *s, const char *key, int64_t value, struct err *err)
{
        sqlite3_bind_text(s->q[Q_META_PUT], 1, key, -1, SQLITE_STATIC);
        sqlite3_bind_int64(s->q[Q_META_PUT], 2, value);
        return sqlite_run(s, Q_META_PUT, "writing the head", err);
}

/* ---- commit ---- */

/* Did this very batch go through before (S3)? 1 yes, 0 no. */
static int holds_last_event(struct sqlite_store *s, const struct store_batch *b, int64_t head,
                            struct err *err)
{
        if (b->n_events == 0 || (uint64_t)head != b->new_head || MUTANT(commit_resent_refused))
                return 0;
        const struct store_event *last = &b->events[b->n_events - 1];
        sqlite3_stmt *q = s->q[Q_EVENT_GET];
        sqlite3_bind_int64(q, 1, (int64_t)last->seq);
        int rc = sqlite3_step(q), same = 0;
        if (rc == SQLITE_ROW) {
                const void *data = sqlite3_column_blob(q, 0);
                size_t len = (size_t)sqlite3_column_bytes(q, 0);
                same =
                    len == last->len && (len == 0 || (data && memcmp(data, last->data, len) == 0));
        }
        int reset_rc = sqlite3_reset(q);
        if (rc != SQLITE_ROW && rc != SQLITE_DONE)
                return sqlite_err(s->db, reset_rc ? reset_rc : rc, "reading the last event", err);
        return same;
}

/* Empty blobs are stored as such, never as NULL. */
static void bind_blob(sqlite3_stmt *q, int column, const void *data, size_t len)
{
        sqlite3_bind_blob64(q, column, len > 0 ? data : "", len, SQLITE_STATIC);
}

static int put_rows(struct sqlite_store *s, enum sqlite_statement which, const char *doing,
                    struct err *err)
{
        int r = s->rows.rows.len > 0 ? sqlite_run(s, which, doing, err) : 0;
        array_clear(&s->rows.rows);
        return r;
}

static int put_events(struct sqlite_store *s, const struct store_batch *b, struct err *err)
{
        array_clear(&s->rows.rows);
        for (size_t i = 0; i < b->n_events; i++)
                *array_push(&s->rows.rows) =
                    (struct batch_row){ (int64_t)b->events[i].seq, NULL, b->events[i].data,
                                        b->events[i].len };
        return put_rows(s, Q_EVENTS_PUT, "appending events", err);
}

/* Changes the row of a key, or adds a new one to s->rows. */
static int put_record(struct sqlite_store *s, const struct store_record *record, uint64_t hash,
                      struct err *err)
{
        enum sqlite_statement which = record->data ? Q_RECORD_REPLACE : Q_RECORD_REMOVE;
        size_t pos = 0;
        for (int64_t id; (id = key_index_next(&s->index, hash, &pos)) > 0;) {
                sqlite3_bind_int64(s->q[which], 1, id);
                sqlite3_bind_text(s->q[which], 2, record->key, -1, SQLITE_STATIC);
                if (record->data)
                        bind_blob(s->q[which], 3, record->data, record->len);
                int r = sqlite_run(s, which, "writing records", err);
                if (r < 0)
                        return r;
                if (sqlite3_changes(s->db) == 0)
                        continue; /* the row of another key with the same hash */
                if (!record->data)
                        *array_push(&s->changes) = (struct index_change){ hash, id, true };
                return 0;
        }
        if (!record->data)
                return 0; /* removing what is not there is fine */
        int64_t id = s->next_id++;
        *array_push(&s->rows.rows) =
            (struct batch_row){ id, record->key, record->data, record->len };
        *array_push(&s->changes) = (struct index_change){ hash, id, false };
        return 0;
}

/* The index is as old as the last commit on this connection; if another program wrote to the file
 * since, it is built anew. */
static int index_refresh(struct sqlite_store *s, struct err *err)
{
        sqlite3_stmt *q = s->q[Q_DATA_VERSION];
        int rc = sqlite3_step(q);
        int64_t version = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : -1;
        sqlite3_reset(q);
        if (s->index_ready && version == s->data_version)
                return 0;
        if (s->index_ready)
                log_warn("another program wrote to the store's database", LOG_S("path", s->path));
        s->index_ready = false;
        int r = sqlite_index_build(s, err);
        if (r < 0)
                return r;
        s->data_version = version;
        s->index_ready = true;
        return 0;
}

/* Inside the transaction. 1: write it, 0: it is there already, < 0: no. */
static int check_head(struct sqlite_store *s, const struct store_batch *b, struct err *err)
{
        int64_t head = 0;
        int r = sqlite_meta_get(s, "head", 0, &head, err);
        if (r < 0)
                return r;
        if ((uint64_t)head == b->expected_head || MUTANT(commit_applied_twice))
                return 1;
        r = holds_last_event(s, b, head, err);
        if (r < 0)
                return r;
        if (r == 0)
                return store_err_conflict(err, b->expected_head, (uint64_t)head);
        return 0;
}

/* Part of the transaction, like anything else in the file. */
static int sqlite_schema_put(struct sqlite_store *s, int schema, struct err *err)
{
        int rc = sqlite3_exec(s->db, fmt("PRAGMA user_version = %d", schema), NULL, NULL, NULL);
        return rc == SQLITE_OK ? 0 : sqlite_err(s->db, rc, "writing the schema", err);
}

static int write_batch(struct sqlite_store *s, const struct store_batch *b, const uint64_t *hashes,
                       struct err *err)
{
        int r = index_refresh(s, err);
        if (r < 0)
                return r;
        r = put_events(s, b, err);
        for (size_t i = 0; r == 0 && i < b->n_records; i++)
                r = put_record(s, &b->records[i], hashes[i], err);
        if (r == 0)
                r = put_rows(s, Q_RECORDS_PUT, "writing records", err);
        if (r == 0 && b->new_head != b->expected_head)
                r = sqlite_meta_put(s, "head", (int64_t)b->new_head, err);
        if (r == 0 && b->schema > s->base.schema)
                r = sqlite_schema_put(s, b->schema, err);
        if (r == 0 && !s->log_kept)
                sqlite3_wal_autocheckpoint(
                    s->db, b->n_events + b->n_records >= BULK_OPS ? LOG_PAGES_BULK : LOG_PAGES);
        if (r == 0)
                r = sqlite_run(s, Q_COMMIT, "committing", err);
        return r;
}

static int commit_locked(struct sqlite_store *s, const struct store_batch *b,
                         const uint64_t *hashes, struct err *err)
{
        int r = sqlite_begin(s, err);
        if (r < 0)
                return r;
        array_clear(&s->changes);
        r = check_head(s, b, err);
        if (r == 1) {
                r = write_batch(s, b, hashes, err);
                if (r < 0) {
                        sqlite_rollback(s);
                        /* Ids given to rows that never came to be may be given again: nothing
                         * refers to them. */
                        for (size_t i = s->changes.len; i-- > 0;)
                                if (!s->changes.at[i].remove)
                                        s->next_id = s->changes.at[i].id;
                        return r;
                }
                for (size_t i = 0; i < s->changes.len; i++) {
                        const struct index_change *c = &s->changes.at[i];
                        if (c->remove)
                                key_index_remove(&s->index, c->hash, c->id);
                        else
                                key_index_add(&s->index, c->hash, c->id);
                }
        } else {
                sqlite_rollback(s);
                if (r < 0)
                        return r;
        }
        s->base.head = b->new_head;
        return 0;
}

int sqlite_commit(struct store *base, const struct store_batch *b, const uint64_t *hashes,
                  struct err *err)
{
        struct sqlite_store *s = self(base);
        pthread_mutex_lock(&s->lock);
        int r = commit_locked(s, b, hashes, err);
        must(sqlite3_get_autocommit(s->db), "(1) no transaction is open between calls");
        pthread_mutex_unlock(&s->lock);
        return r;
}

int sqlite_seed(struct store *base, uint64_t head, struct err *err)
{
        struct sqlite_store *s = self(base);
        pthread_mutex_lock(&s->lock);
        int r = sqlite_begin(s, err);
        if (r == 0)
                r = sqlite_meta_put(s, "head", (int64_t)head, err);
        if (r == 0)
                r = sqlite_run(s, Q_COMMIT, "committing the head", err);
        if (r < 0)
                sqlite_rollback(s);
        else
                base->head = head;
        pthread_mutex_unlock(&s->lock);
        return r;
}
