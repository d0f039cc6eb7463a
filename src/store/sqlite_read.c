/* store/sqlite_read.c: everything that only reads.
 *
 * Loading gives records ordered by key although they lie in the file in the order of their creation
 * (that is what makes writing fast): the rows are read in one sweep and sorted, which also finds a
 * key that is there twice and fills the index. Up to KEEP_BYTES of values are kept in memory
 * meanwhile; those beyond are fetched again one by one, which takes about three times as long.
 *
 * A reader of events takes them in portions and ends its read transaction after each: a transaction
 * that stays open keeps the log from being folded into the file.
 */
#include "base/mem.h"
#include "store/sqlite_store.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PORTION 256
#define SLAB_BYTES (4u << 20) /* large enough that the memory goes back to the kernel */
#define KEEP_BYTES (128u << 20)

static struct sqlite_store *self(struct store *s)
{
        return (struct sqlite_store *)s;
}

/* A zero-length blob comes back as NULL, which would mean "remove". */
static const void *column_data(sqlite3_stmt *q, int column, size_t *ret_len)
{
        const void *data = sqlite3_column_blob(q, column);
        *ret_len = (size_t)sqlite3_column_bytes(q, column);
        return data ? data : "";
}

int sqlite_number(sqlite3 *db, const char *sql, int64_t fallback, int64_t *ret, struct err *err)
{
        _cleanup_(sqlite_finalizep) sqlite3_stmt *q = NULL;
        int r = sqlite_prepare(db, sql, &q, err);
        if (r < 0)
                return r;
        int rc = sqlite3_step(q);
        if (rc != SQLITE_ROW && rc != SQLITE_DONE)
                return sqlite_err(db, rc, sql, err);
        *ret = rc == SQLITE_ROW && sqlite3_column_type(q, 0) != SQLITE_NULL
                   ? sqlite3_column_int64(q, 0)
                   : fallback;
        return 0;
}

/* ---- keys ---- */

int sqlite_index_build(struct sqlite_store *s, struct err *err)
{
        _cleanup_(sqlite_finalizep) sqlite3_stmt *q = NULL;
        int r = sqlite_prepare(s->db, "SELECT id, key FROM records", &q, err), rc;
        if (r < 0)
                return r;
        key_index_fini(&s->index);
        s->next_id = 1;
        while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
                int64_t id = sqlite3_column_int64(q, 0);
                const char *key = (const char *)sqlite3_column_text(q, 1);
                key_index_add(&s->index, key_hash(key ? key : ""), id);
                if (id >= s->next_id)
                        s->next_id = id + 1;
        }
        return rc == SQLITE_DONE ? 0 : sqlite_err(s->db, rc, "reading the keys", err);
}

/* ---- rows in the order of their keys ---- */

/* A value that did not fit into the memory set aside for them is fetched when its turn comes. */
struct row {
        const char *key, *data; /* data NULL: fetch it */
        size_t len;
        int64_t id;
};
struct slabs {
        ARRAY(char *) all;
        size_t used_bytes; /* of the last */
};
struct rows {
        struct slabs keys, values; /* apart, so that sorting stays within the processor's cache */
        size_t kept_bytes;
        ARRAY(struct row) all;
};

static void slabs_fini(struct slabs *slabs)
{
        for (size_t i = 0; i < slabs->all.len; i++)
                mem_free(slabs->all.at[i]);
        array_fini(&slabs->all);
}

static char *slabs_add(struct slabs *slabs, const void *data, size_t len, size_t room)
{
        if (slabs->all.len == 0 || slabs->used_bytes + room > SLAB_BYTES) {
                *array_push(&slabs->all) = mem_must(room > SLAB_BYTES ? room : SLAB_BYTES);
                slabs->used_bytes = 0;
        }
        char *p = slabs->all.at[slabs->all.len - 1] + slabs->used_bytes;
        slabs->used_bytes += room;
        memcpy(p, data, len);
        return p;
}

static void rows_fini(struct rows *rows)
{
        slabs_fini(&rows->keys);
        slabs_fini(&rows->values);
        array_fini(&rows->all);
}

static int by_key(const void *a, const void *b)
{
        const struct row *x = a, *y = b;
        return strcmp(x->key, y->key);
}

static void keep_row(struct rows *rows, sqlite3_stmt *q)
{
        const char *key = (const char *)sqlite3_column_text(q, 1);
        size_t key_len = (size_t)sqlite3_column_bytes(q, 1), len;
        const void *data = column_data(q, 2, &len);
        struct row row = { .key = slabs_add(&rows->keys, key ? key : "", key_len, key_len + 1),
                           .len = len,
                           .id = sqlite3_column_int64(q, 0) };
        if (rows->kept_bytes + len <= KEEP_BYTES) {
                row.data = slabs_add(&rows->values, data, len, len);
                rows->kept_bytes += len;
        }
        *array_push(&rows->all) = row;
}

static int read_rows(sqlite3 *db, const char *table, struct rows *rows, struct err *err)
{
        _cleanup_(sqlite_finalizep) sqlite3_stmt *q = NULL;
        int r = sqlite_prepare(db, fmt("SELECT id, key, data FROM %s", table), &q, err), rc;
        if (r < 0)
                return r;
        while ((rc = sqlite3_step(q)) == SQLITE_ROW)
                keep_row(rows, q);
        if (rc != SQLITE_DONE)
                return sqlite_err(db, rc, "reading records", err);
        if (rows->all.len > 1)
                qsort(rows->all.at, rows->all.len, sizeof(*rows->all.at), by_key);
        for (size_t i = 1; i < rows->all.len; i++)
                if (strcmp(rows->all.at[i - 1].key, rows->all.at[i].key) == 0)
                        return err_set(err, ERR_CORRUPT, .msg = "a record is in the store twice",
                                       .detail = rows->all.at[i].key,
                                       .hint = "restore a backup; `berth fsck` says more");
        return 0;
}

static int fetch_row(sqlite3 *db, sqlite3_stmt *q, const struct row *row, store_record_fn fn,
                     void *ctx, struct err *err)
{
        sqlite3_bind_int64(q, 1, row->id);
        int rc = sqlite3_step(q), r;
        if (rc == SQLITE_ROW) {
                struct store_record record = { .key = row->key };
                record.data = column_data(q, 0, &record.len);
                r = fn(ctx, &record, err);
        } else {
                r = sqlite_err(db, rc == SQLITE_DONE ? SQLITE_CORRUPT : rc,
                               fmt("reading the record %s", row->key), err);
        }
        sqlite3_reset(q);
        return r;
}

static int give_rows(sqlite3 *db, const char *table, const struct rows *rows, store_record_fn fn,
                     void *ctx, struct err *err)
{
        _cleanup_(sqlite_finalizep) sqlite3_stmt *q = NULL;
        int r = sqlite_prepare(db, fmt("SELECT data FROM %s WHERE id = ?1", table), &q, err);
        for (size_t i = 0; r >= 0 && i < rows->all.len; i++) {
                const struct row *row = &rows->all.at[i];
                r = row->data
                        ? fn(ctx, &(struct store_record){ row->key, row->data, row->len }, err)
                        : fetch_row(db, q, row, fn, ctx, err);
        }
        return r < 0 ? r : 0;
}

/* A connection with one read transaction: all that is read through it is of one moment. Its own, or
 * that of a store that is a moment itself. */
struct view {
        sqlite3 *db;
        bool borrowed;
};

static void view_close(struct view *v)
{
        if (!v->borrowed)
                sqlite3_close(v->db);
}

static int view_open(struct sqlite_store *s, struct view *ret, int64_t *ret_head, struct err *err)
{
        *ret = (struct view){ .db = s->moment, .borrowed = s->moment };
        int r = ret->borrowed ? 0 : sqlite_connect(s, false, &ret->db, err);
        if (r < 0)
                return r;
        int rc = ret->borrowed
                     ? SQLITE_OK
                     : sqlite3_exec(ret->db, "PRAGMA cache_size = -2048; BEGIN", NULL, NULL, NULL);
        if (rc != SQLITE_OK)
                return sqlite_err(ret->db, rc, "opening the store for reading", err);
        return sqlite_number(ret->db, "SELECT value FROM meta WHERE key = 'head'", 0, ret_head,
                             err);
}

static void index_fill(struct sqlite_store *s, const struct rows *rows)
{
        key_index_fini(&s->index);
        key_index_reserve(&s->index, rows->all.len);
        s->next_id = 1;
        for (size_t i = 0; i < rows->all.len; i++) {
                const struct row *row = &rows->all.at[i];
                key_index_add(&s->index, key_hash(row->key), row->id);
                if (row->id >= s->next_id)
                        s->next_id = row->id + 1;
        }
        s->index_ready = true;
}

int sqlite_load(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_head,
                struct err *err)
{
        struct sqlite_store *s = self(base);
        _cleanup_(rows_fini) struct rows rows = { 0 };
        _cleanup_(view_close) struct view v = { 0 };
        int64_t head = 0, version = 0;
        /* Before the moment: a foreign write that falls between the two is then seen as one at the
         * next commit. */
        pthread_mutex_lock(&s->lock);
        int r = s->moment ? 0 : sqlite_number(s->db, "PRAGMA data_version", 0, &version, err);
        pthread_mutex_unlock(&s->lock);
        if (r == 0)
                r = view_open(s, &v, &head, err);
        if (r == 0)
                r = read_rows(v.db, "records", &rows, err);
        if (r == 0)
                r = give_rows(v.db, "records", &rows, fn, ctx, err);
        if (r < 0)
                return r;
        pthread_mutex_lock(&s->lock);
        index_fill(s, &rows);
        s->data_version = version;
        pthread_mutex_unlock(&s->lock);
        s->base.head = (uint64_t)head;
        if (ret_head)
                *ret_head = (uint64_t)head;
        return 0;
}

int sqlite_load_checkpoint(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_seq,
                           struct err *err)
{
        struct sqlite_store *s = self(base);
        _cleanup_(rows_fini) struct rows rows = { 0 };
        _cleanup_(view_close) struct view v = { 0 };
        int64_t head, seq = 0, slot = -1;
        int r = view_open(s, &v, &head, err);
        if (r == 0)
                r = sqlite_number(v.db, "SELECT value FROM meta WHERE key = 'checkpoint_seq'", 0,
                                  &seq, err);
        if (r == 0)
                r = sqlite_number(v.db, "SELECT value FROM meta WHERE key = 'checkpoint_slot'", -1,
                                  &slot, err);
        if (r < 0)
                return r;
        if (slot >= 0) {
                const char *table = slot == 0 ? "checkpoint_0" : "checkpoint_1";
                r = read_rows(v.db, table, &rows, err);
                if (r == 0)
                        r = give_rows(v.db, table, &rows, fn, ctx, err);
                if (r < 0)
                        return r;
        }
        if (ret_seq)
                *ret_seq = (uint64_t)seq;
        return 0;
}

/* ---- integrity ---- */

static int integrity_pages(sqlite3 *db, struct err *err)
{
        _cleanup_(sqlite_finalizep) sqlite3_stmt *q = NULL;
        int r = sqlite_prepare(db, "PRAGMA integrity_check(1)", &q, err);
        if (r < 0)
                return r;
        int rc = sqlite3_step(q);
        if (rc != SQLITE_ROW)
                return sqlite_err(db, rc, "checking the file", err);
        const char *text = (const char *)sqlite3_column_text(q, 0);
        if (text && strcmp(text, "ok") == 0)
                return 0;
        return err_set(err, ERR_CORRUPT, .msg = "the store's database is damaged", .detail = text,
                       .hint = "restore a backup");
}

int sqlite_integrity(struct store *base, struct err *err)
{
        struct sqlite_store *s = self(base);
        _cleanup_(rows_fini) struct rows rows = { 0 };
        _cleanup_(view_close) struct view v = { 0 };
        int64_t head, first = 0, last = 0, count = 0, seq = 0, kept_first = 0, kept_last = 0;
        int r = view_open(s, &v, &head, err);
        if (r == 0)
                r = integrity_pages(v.db, err);
        if (r == 0)
                r = sqlite_number(v.db, "SELECT min(seq) FROM events", 0, &first, err);
        if (r == 0)
                r = sqlite_number(v.db, "SELECT max(seq) FROM events", 0, &last, err);
        if (r == 0)
                r = sqlite_number(v.db, "SELECT count(*) FROM events", 0, &count, err);
        if (r == 0)
                r = sqlite_number(v.db, "SELECT value FROM meta WHERE key = 'checkpoint_seq'", 0,
                                  &seq, err);
        bool has_kept = false;
        if (r == 0)
                r = sqlite_has_kept(v.db, &has_kept, err);
        if (r == 0 && has_kept)
                r = sqlite_number(v.db, "SELECT min(seq) FROM kept", 0, &kept_first, err);
        if (r == 0 && has_kept)
                r = sqlite_number(v.db, "SELECT max(seq) FROM kept", 0, &kept_last, err);
        if (r < 0)
                return r;
        const char *facts =
            fmt("head %lld, %lld events from %lld to %lld, checkpoint at %lld", (long long)head,
                (long long)count, (long long)first, (long long)last, (long long)seq);
        if (last != head)
                return err_set(err, ERR_CORRUPT, .msg = "the store's head is not its last event",
                               .detail = facts, .hint = "restore a backup");
        if (count > 0 && (first < 1 || last - first + 1 != count))
                return err_set(err, ERR_CORRUPT, .msg = "events are missing from the store",
                               .detail = facts, .hint = "restore a backup");
        if (seq > head || first > seq + 1)
                return err_set(err, ERR_CORRUPT,
                               .msg = "events since the store's checkpoint are missing",
                               .detail = facts, .hint = "restore a backup");
        if (kept_first < 0 || kept_last > head || (count > 0 && kept_last >= first))
                return err_set(err, ERR_CORRUPT,
                               .msg =
                                   "events that are kept apart are not older than the store's log",
                               .detail = fmt("from %lld to %lld; %s", (long long)kept_first,
                                             (long long)kept_last, facts),
                               .hint = "restore a backup");
        return read_rows(v.db, "records", &rows, err);
}

/* ---- readers ---- */

struct sqlite_reader {
        struct store_reader base;
        struct view v;
        sqlite3_stmt *forward, *backward, *one, *first;
        /* NULL: the table was not needed yet, or is not there */
        sqlite3_stmt *kept_forward, *kept_backward;
};

static void reader_destroy(struct sqlite_reader *r)
{
        sqlite3_finalize(r->forward);
        sqlite3_finalize(r->backward);
        sqlite3_finalize(r->one);
        sqlite3_finalize(r->first);
        sqlite3_finalize(r->kept_forward);
        sqlite3_finalize(r->kept_backward);
        view_close(&r->v);
        mem_free(r);
}

static void reader_destroyp(struct sqlite_reader **r)
{
        if (*r)
                reader_destroy(*r);
}

void sqlite_reader_close(struct store_reader *base)
{
        reader_destroy((struct sqlite_reader *)base);
}

int sqlite_reader_open(struct store *base, struct store_reader **ret_reader, struct err *err)
{
        _cleanup_(reader_destroyp) struct sqlite_reader *reader = mem_must(sizeof(*reader));
        reader->base.ops = &sqlite_ops;
        struct sqlite_store *s = self(base);
        reader->v = (struct view){ .db = s->moment, .borrowed = s->moment };
        int r = s->moment ? 0 : sqlite_connect(s, false, &reader->v.db, err);
        if (r == 0)
                r = sqlite_prepare(
                    reader->v.db,
                    "SELECT seq, data FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2",
                    &reader->forward, err);
        if (r == 0)
                r = sqlite_prepare(
                    reader->v.db,
                    "SELECT seq, data FROM events WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2",
                    &reader->backward, err);
        if (r == 0)
                r = sqlite_prepare(reader->v.db, "SELECT data FROM events WHERE seq = ?1",
                                   &reader->one, err);
        if (r == 0)
                r = sqlite_prepare(reader->v.db, "SELECT min(seq) FROM events", &reader->first,
                                   err);
        if (r < 0)
                return r;
        *ret_reader = &TAKE_PTR(reader)->base;
        return 0;
}

/* One portion. 0: go on after *at, 1: there is no more, 2: fn said stop (*ret_fn), < 0: failed. */
static int read_portion(struct sqlite_reader *reader, sqlite3_stmt *q, int64_t *at,
                        store_event_fn fn, void *ctx, int *ret_fn, struct err *err)
{
        int n = 0, rc, stop = 0;
        sqlite3_bind_int64(q, 1, *at);
        sqlite3_bind_int(q, 2, PORTION);
        while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
                struct store_event event = { .seq = (uint64_t)sqlite3_column_int64(q, 0) };
                event.data = column_data(q, 1, &event.len);
                *at = (int64_t)event.seq;
                n++;
                stop = fn(ctx, &event, err);
                if (stop != 0)
                        break;
        }
        sqlite3_reset(q);
        if (stop != 0) {
                *ret_fn = stop;
                return 2;
        }
        if (rc != SQLITE_DONE)
                return sqlite_err(reader->v.db, rc, "reading events", err);
        return n < PORTION ? 1 : 0;
}

int sqlite_reader_events(struct store_reader *base, uint64_t since, bool backwards,
                         store_event_fn fn, void *ctx, struct err *err)
{
        struct sqlite_reader *reader = (struct sqlite_reader *)base;
        int64_t at = backwards && since == 0 ? INT64_MAX : (int64_t)since;
        for (;;) {
                int stopped_with = 0;
                int r = read_portion(reader, backwards ? reader->backward : reader->forward, &at,
                                     fn, ctx, &stopped_with, err);
                if (r == 2)
                        return stopped_with;
                if (r != 0)
                        return r < 0 ? r : 0;
        }
}

int sqlite_reader_event(struct store_reader *base, uint64_t seq, store_event_fn fn, void *ctx,
                        struct err *err)
{
        struct sqlite_reader *reader = (struct sqlite_reader *)base;
        sqlite3_bind_int64(reader->one, 1, (int64_t)seq);
        int rc = sqlite3_step(reader->one), r;
        if (rc == SQLITE_ROW) {
                struct store_event event = { .seq = seq };
                event.data = column_data(reader->one, 0, &event.len);
                r = fn(ctx, &event, err);
        } else if (rc == SQLITE_DONE) {
                r = store_err_no_event(err, seq);
        } else {
                r = sqlite_err(reader->v.db, rc, "reading an event", err);
        }
        sqlite3_reset(reader->one);
        return r;
}

int sqlite_has_kept(sqlite3 *db, bool *ret, struct err *err)
{
        int64_t n = 0;
        int r =
            sqlite_number(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'kept'", 0, &n, err);
        *ret = n > 0;
        return r;
}

int sqlite_reader_kept(struct store_reader *base, enum event_class class, uint64_t since,
                       bool backwards, size_t max, store_event_fn fn, void *ctx, struct err *err)
{
        static const char *const sql[] = {
                "SELECT seq, data FROM kept WHERE class = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
                "SELECT seq, data FROM kept WHERE class = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT "
                "?3"
        };
        struct sqlite_reader *reader = (struct sqlite_reader *)base;
        sqlite3_stmt **q = backwards ? &reader->kept_backward : &reader->kept_forward;
        bool there = true;
        int r = *q ? 0 : sqlite_has_kept(reader->v.db, &there, err), rc, stop = 0;
        if (r == 0 && there && !*q)
                r = sqlite_prepare(reader->v.db, sql[backwards], q, err);
        if (r < 0 || !there)
                return r;
        sqlite3_bind_int(*q, 1, class);
        sqlite3_bind_int64(*q, 2, backwards && since == 0 ? INT64_MAX : (int64_t)since);
        sqlite3_bind_int64(*q, 3, (int64_t)max);
        while ((rc = sqlite3_step(*q)) == SQLITE_ROW) {
                struct store_event event = { .seq = (uint64_t)sqlite3_column_int64(*q, 0) };
                event.data = column_data(*q, 1, &event.len);
                stop = fn(ctx, &event, err);
                if (stop != 0)
                        break;
        }
        sqlite3_reset(*q);
        return stop != 0 || rc == SQLITE_DONE
                   ? stop
                   : sqlite_err(reader->v.db, rc, "reading events that are kept apart", err);
}

uint64_t sqlite_reader_first(struct store_reader *base)
{
        struct sqlite_reader *reader = (struct sqlite_reader *)base;
        uint64_t first = sqlite3_step(reader->first) == SQLITE_ROW
                             ? (uint64_t)sqlite3_column_int64(reader->first, 0)
                             : 0;
        sqlite3_reset(reader->first);
        return first;
}

int sqlite_reader_records(struct store_reader *base, store_record_fn fn, void *ctx,
                          uint64_t *ret_head, struct err *err)
{
        struct sqlite_reader *reader = (struct sqlite_reader *)base;
        _cleanup_(rows_fini) struct rows rows = { 0 };
        int64_t head = 0;
        int rc =
            reader->v.borrowed ? SQLITE_OK : sqlite3_exec(reader->v.db, "BEGIN", NULL, NULL, NULL);
        if (rc != SQLITE_OK)
                return sqlite_err(reader->v.db, rc, "opening the store for reading", err);
        int r =
            sqlite_number(reader->v.db, "SELECT value FROM meta WHERE key = 'head'", 0, &head, err);
        if (r >= 0)
                r = read_rows(reader->v.db, "records", &rows, err);
        if (r >= 0)
                r = give_rows(reader->v.db, "records", &rows, fn, ctx, err);
        if (!reader->v.borrowed)
                (void)sqlite3_exec(reader->v.db, "ROLLBACK", NULL, NULL, NULL);
        if (r >= 0)
                *ret_head = (uint64_t)head;
        return r < 0 ? r : 0;
}
