/* store/sqlite_keep.c: checkpoints of the state, and letting old events go.
 *
 * A checkpoint is a copy of all records as of one sequence. It is made by a thread of its own,
 * beside the commits: a second connection holds a read transaction, which in WAL mode is an
 * unchanging view of one moment, and its rows go in small transactions into whichever of the two
 * tables checkpoint_0 and checkpoint_1 is not the valid one. The last small transaction names that
 * table and its sequence in meta; a crash before it leaves the old checkpoint valid and some rows
 * that the next copy clears first. The thread holds the lock for a few milliseconds at a time and
 * then stands aside for as long as it held it, so commits get their turn.
 *
 * Invariants:
 *   (1) Events after the valid checkpoint's sequence never leave the log; nor does the event at
 *       that sequence, nor the last one.
 *   (2) A checkpoint is valid only when all of its rows are durable.
 */
#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite_store.h"
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define CHUNK_ROWS 512
#define CHUNK_BYTES (512u << 10)
#define MAX_PAUSE_NS (5 * 1000000LL)
/* What one prune reads and removes at most, whatever was allowed: about 5 ms. */
#define MAX_REMOVE 4096
#define MAX_REMOVE_BYTES (1u << 20)

static struct sqlite_store *self(struct store *s)
{
        return (struct sqlite_store *)s;
}

static const char *const slot_put[] = { "INSERT INTO checkpoint_0 VALUES(?1, ?2, ?3)",
                                        "INSERT INTO checkpoint_1 VALUES(?1, ?2, ?3)" };
static const char *const slot_clear[] = {
        "DELETE FROM checkpoint_0 WHERE id IN (SELECT id FROM checkpoint_0 ORDER BY id LIMIT ?1)",
        "DELETE FROM checkpoint_1 WHERE id IN (SELECT id FROM checkpoint_1 ORDER BY id LIMIT ?1)",
};

static int stopped(struct sqlite_store *s, struct err *err)
{
        return s->stop ? err_set(err, ERR_CANCELLED, .msg = "the checkpoint was given up",
                                 .detail = "the store is closing")
                       : 0;
}

static void stand_aside(int64_t held_ns)
{
        if (held_ns > MAX_PAUSE_NS)
                held_ns = MAX_PAUSE_NS;
        nanosleep(&(struct timespec){ .tv_nsec = (long)held_ns }, NULL);
}

/* Ends a small transaction that went well or badly so far. */
static int finish(struct sqlite_store *s, int r, struct err *err)
{
        if (r == 0)
                r = sqlite_run(s, Q_COMMIT, "committing a checkpoint", err);
        if (r < 0)
                sqlite_rollback(s);
        return r;
}

/* ---- the copy ---- */

static int clear_chunk(struct sqlite_store *s, sqlite3_stmt *q, bool *ret_more, struct err *err)
{
        int r = sqlite_begin(s, err);
        if (r < 0)
                return r;
        sqlite3_bind_int(q, 1, CHUNK_ROWS);
        int rc = sqlite3_step(q);
        sqlite3_reset(q);
        if (rc != SQLITE_DONE)
                r = sqlite_err(s->db, rc, "clearing an old checkpoint", err);
        *ret_more = sqlite3_changes(s->db) > 0;
        return finish(s, r, err);
}

static int clear_slot(struct sqlite_store *s, int slot, bool paced, struct err *err)
{
        bool more = true;
        int r = 0;
        while (r == 0 && more) {
                int64_t start_ns = clock_mono_ns();
                sqlite3_stmt *q = NULL;
                pthread_mutex_lock(&s->lock);
                r = sqlite_prepare(s->db, slot_clear[slot], &q, err);
                if (r == 0)
                        r = clear_chunk(s, q, &more, err);
                sqlite3_finalize(q);
                pthread_mutex_unlock(&s->lock);
                if (r == 0)
                        r = stopped(s, err);
                if (paced && more)
                        stand_aside(clock_mono_ns() - start_ns);
        }
        return r;
}

static int copy_chunk(struct sqlite_store *s, sqlite3_stmt *from, sqlite3_stmt *to, bool *ret_more,
                      struct err *err)
{
        int r = sqlite_begin(s, err), rc = SQLITE_ROW;
        size_t rows = 0, bytes = 0;
        if (r < 0)
                return r;
        while (r == 0 && rows < CHUNK_ROWS && bytes < CHUNK_BYTES &&
               (rc = sqlite3_step(from)) == SQLITE_ROW) {
                for (int i = 0; i < 3; i++)
                        sqlite3_bind_value(to, i + 1, sqlite3_column_value(from, i));
                rows++;
                bytes += (size_t)sqlite3_column_bytes(from, 2);
                int put_rc = sqlite3_step(to);
                sqlite3_reset(to);
                if (put_rc != SQLITE_DONE)
                        r = sqlite_err(s->db, put_rc, "writing a checkpoint", err);
        }
        if (r == 0 && rc != SQLITE_ROW && rc != SQLITE_DONE)
                r = sqlite_err(sqlite3_db_handle(from), rc, "reading records for a checkpoint",
                               err);
        *ret_more = rc == SQLITE_ROW;
        return finish(s, r, err);
}

static int copy_rows(struct sqlite_store *s, sqlite3 *view, int slot, bool paced, struct err *err)
{
        _cleanup_(sqlite_finalizep) sqlite3_stmt *from = NULL;
        int r = sqlite_prepare(view, "SELECT id, key, data FROM records ORDER BY id", &from, err);
        bool more = true;
        while (r == 0 && more) {
                int64_t start_ns = clock_mono_ns();
                sqlite3_stmt *to = NULL;
                pthread_mutex_lock(&s->lock);
                r = sqlite_prepare(s->db, slot_put[slot], &to, err);
                if (r == 0)
                        r = copy_chunk(s, from, to, &more, err);
                sqlite3_finalize(to);
                pthread_mutex_unlock(&s->lock);
                if (r == 0)
                        r = stopped(s, err);
                if (paced && more)
                        stand_aside(clock_mono_ns() - start_ns);
        }
        return r;
}

/* (2): the transaction that makes the copy valid comes last, and every one is synced. */
static int make_valid(struct sqlite_store *s, int slot, int64_t seq, struct err *err)
{
        pthread_mutex_lock(&s->lock);
        int r = sqlite_begin(s, err);
        if (r == 0) {
                r = sqlite_meta_put(s, "checkpoint_seq", seq, err);
                if (r == 0)
                        r = sqlite_meta_put(s, "checkpoint_slot", slot, err);
                r = finish(s, r, err);
        }
        if (r == 0) {
                s->checkpoint_seq = (uint64_t)seq;
                s->checkpoint_slot = slot;
        }
        pthread_mutex_unlock(&s->lock);
        return r;
}

static void keep_log(struct sqlite_store *s, bool kept)
{
        pthread_mutex_lock(&s->lock);
        s->log_kept = kept;
        sqlite3_wal_autocheckpoint(s->db, kept ? 0 : LOG_PAGES);
        pthread_mutex_unlock(&s->lock);
}

static int copy_state(struct sqlite_store *s, bool paced, struct err *err)
{
        _cleanup_(sqlite_closep) sqlite3 *view = NULL;
        int old = s->checkpoint_slot, slot = old == 0 ? 1 : 0;
        int64_t seq = 0;
        int r = clear_slot(s, slot, paced, err);
        if (r == 0)
                r = sqlite_connect(s, true, &view, err);
        if (r < 0)
                return r;
        sqlite3_exec(view, "PRAGMA synchronous = FULL; PRAGMA query_only = ON; BEGIN", NULL, NULL,
                     NULL);
        r = sqlite_number(view, "SELECT value FROM meta WHERE key = 'head'", 0, &seq, err);
        if (r < 0)
                return r;
        /* While the view is open the log cannot be folded into the file and grows by the size of
         * the copy; afterwards this thread folds it, beside the commits, so that no commit pays for
         * all of it. */
        keep_log(s, true);
        r = copy_rows(s, view, slot, paced, err);
        sqlite3_exec(view, "COMMIT", NULL, NULL, NULL);
        if (r == 0)
                r = make_valid(s, slot, seq, err);
        sqlite3_wal_checkpoint_v2(view, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        keep_log(s, false);
        if (r == 0 && old >= 0)
                r = clear_slot(s, old, paced, err);
        return r;
}

/* ---- who copies when ---- */

static void *copier_main(void *arg)
{
        struct sqlite_store *s = arg;
        /* not before others, as the thread that starts this one is */
        (void)setpriority(PRIO_PROCESS, 0, 0);
        s->copier_err = (struct err){ 0 };
        s->copier_result = copy_state(s, true, &s->copier_err);
        if (s->copier_result < 0 && s->copier_result != -ERR_CANCELLED)
                log_warn("a checkpoint of the store failed and will be tried again",
                         LOG_E(&s->copier_err));
        s->copier_done = true;
        return NULL;
}

static void copier_join(struct sqlite_store *s)
{
        if (s->copier_started)
                pthread_join(s->copier, NULL);
        s->copier_started = false;
}

static int copier_start(struct sqlite_store *s, struct err *err)
{
        sigset_t all, old;
        sigfillset(&all);
        s->copier_done = false;
        pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the threads that expect them */
        int errnum = pthread_create(&s->copier, NULL, copier_main, s);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (errnum != 0)
                return err_sys(err, errnum, "cannot start the thread that copies a checkpoint");
        s->copier_started = true;
        return 0;
}

void sqlite_keep_stop(struct sqlite_store *s)
{
        s->stop = true;
        copier_join(s);
}

int sqlite_checkpoint(struct store *base, struct err *err)
{
        struct sqlite_store *s = self(base);
        copier_join(s);
        return copy_state(s, false, err);
}

/* ---- prune ---- */

/* What is decided while the oldest events are read. */
struct leaving {
        uint64_t first, last; /* of those that leave */
        ARRAY(struct store_kept) kept;
        struct store_left n;
};

static int read_leaving(struct sqlite_store *s, const struct store_retention *keep, uint64_t limit,
                        uint64_t max, struct leaving *l, struct err *err)
{
        sqlite3_stmt *q = s->q[Q_EVENTS_OLDEST];
        size_t bytes = 0;
        int rc = SQLITE_DONE;
        sqlite3_bind_int64(q, 1, (int64_t)limit);
        sqlite3_bind_int64(q, 2, (int64_t)(max < MAX_REMOVE ? max : MAX_REMOVE));
        while (bytes < MAX_REMOVE_BYTES && (rc = sqlite3_step(q)) == SQLITE_ROW) {
                const void *data = sqlite3_column_blob(q, 1);
                struct store_event e = { (uint64_t)sqlite3_column_int64(q, 0), data ? data : "",
                                         (size_t)sqlite3_column_bytes(q, 1) };
                enum event_class class;
                if (!store_leaves(keep, s->base.head, s->checkpoint_seq, &e, &class))
                        break;
                bytes += e.len;
                if (!l->n.left++)
                        l->first = e.seq;
                l->last = e.seq;
                if (class == EVENT_LIFECYCLE)
                        continue;
                *array_push(&l->kept) = (struct store_kept){ { e.seq, NULL, 0 }, class };
                l->n.kept[class]++;
        }
        int reset_rc = sqlite3_reset(q);
        return rc == SQLITE_ROW || rc == SQLITE_DONE
                   ? 0
                   : sqlite_err(s->db, reset_rc ? reset_rc : rc, "reading old events", err);
}

static const char kept_table[] = "CREATE TABLE IF NOT EXISTS kept(seq INTEGER PRIMARY KEY, class "
                                 "INTEGER NOT NULL, data BLOB NOT NULL);"
                                 "CREATE INDEX IF NOT EXISTS kept_by_class ON kept(class, seq);";

/* In a transaction. An event without data is still in the log. */
static int put_kept(struct sqlite_store *s, const struct store_kept *events, size_t n,
                    struct err *err)
{
        _cleanup_(sqlite_finalizep) sqlite3_stmt *move = NULL, *put = NULL;
        int r = 0,
            rc = n && !s->has_kept ? sqlite3_exec(s->db, kept_table, NULL, NULL, NULL) : SQLITE_OK;
        if (rc == SQLITE_OK && n) {
                r = sqlite_prepare(
                    s->db,
                    "INSERT OR REPLACE INTO kept SELECT seq, ?2, data FROM events WHERE seq = ?1",
                    &move, err);
                if (r == 0)
                        r = sqlite_prepare(s->db, "INSERT OR REPLACE INTO kept VALUES(?1, ?2, ?3)",
                                           &put, err);
        }
        for (size_t i = 0; r == 0 && rc == SQLITE_OK && i < n; i++) {
                sqlite3_stmt *q = events[i].event.data ? put : move;
                sqlite3_bind_int64(q, 1, (int64_t)events[i].event.seq);
                sqlite3_bind_int(q, 2, events[i].class);
                if (events[i].event.data)
                        sqlite3_bind_blob64(q, 3, events[i].event.data, events[i].event.len,
                                            SQLITE_STATIC);
                rc = sqlite3_step(q);
                sqlite3_reset(q);
                rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
        }
        return rc == SQLITE_OK ? r : sqlite_err(s->db, rc, "keeping events apart", err);
}

static int move_leaving(struct sqlite_store *s, const struct leaving *l, struct err *err)
{
        int r = sqlite_begin(s, err);
        if (r < 0)
                return r;
        r = put_kept(s, l->kept.at, l->kept.len, err);
        if (r == 0) {
                sqlite3_bind_int64(s->q[Q_EVENT_REMOVE], 1, (int64_t)l->first);
                sqlite3_bind_int64(s->q[Q_EVENT_REMOVE], 2, (int64_t)l->last);
                r = sqlite_run(s, Q_EVENT_REMOVE, "removing old events", err);
        }
        r = finish(s, r, err);
        if (r == 0 && l->kept.len)
                s->has_kept = true;
        return r;
}

int sqlite_prune(struct store *base, const struct store_retention *keep, uint64_t max_remove,
                 struct store_left *ret, struct err *err)
{
        struct sqlite_store *s = self(base);
        struct leaving l = { 0 };
        if (s->copier_started && s->copier_done)
                copier_join(s);
        pthread_mutex_lock(&s->lock);
        uint64_t seq = s->checkpoint_seq, n_records = s->index_ready ? s->index.len : 0;
        uint64_t limit = store_prune_limit(keep, base->head, seq);
        int r = limit ? read_leaving(s, keep, limit, max_remove, &l, err) : 0;
        if (r == 0 && l.n.left)
                r = move_leaving(s, &l, err);
        pthread_mutex_unlock(&s->lock);
        array_fini(&l.kept);
        if (r < 0)
                return r;
        *ret = l.n;
        return !s->copier_started && store_wants_checkpoint(base, keep, seq, n_records)
                   ? copier_start(s, err)
                   : 0;
}

/* ---- what is kept apart ---- */

int sqlite_kept_put(struct store *base, const struct store_kept *events, size_t n, struct err *err)
{
        struct sqlite_store *s = self(base);
        pthread_mutex_lock(&s->lock);
        int r = sqlite_begin(s, err);
        if (r == 0)
                r = finish(s, put_kept(s, events, n, err), err);
        if (r == 0)
                s->has_kept = true;
        pthread_mutex_unlock(&s->lock);
        return r;
}

int sqlite_kept_count(struct store *base, enum event_class class, uint64_t *ret, struct err *err)
{
        struct sqlite_store *s = self(base);
        int64_t n = 0;
        pthread_mutex_lock(&s->lock);
        int r = s->has_kept
                    ? sqlite_number(s->db, fmt("SELECT count(*) FROM kept WHERE class = %d", class),
                                    0, &n, err)
                    : 0;
        pthread_mutex_unlock(&s->lock);
        *ret = (uint64_t)n;
        return r;
}

int64_t sqlite_kept_remove(struct store *base, enum event_class class, uint64_t n, struct err *err)
{
        struct sqlite_store *s = self(base);
        _cleanup_(sqlite_finalizep) sqlite3_stmt *q = NULL;
        pthread_mutex_lock(&s->lock);
        int r = sqlite_prepare(s->db,
                               "DELETE FROM kept WHERE seq IN (SELECT seq FROM kept WHERE class = "
                               "?1 ORDER BY seq LIMIT ?2)",
                               &q, err);
        if (r == 0)
                r = sqlite_begin(s, err);
        int64_t removed = 0;
        if (r == 0) {
                sqlite3_bind_int(q, 1, class);
                sqlite3_bind_int64(q, 2, (int64_t)(n < MAX_REMOVE ? n : MAX_REMOVE));
                int rc = sqlite3_step(q);
                removed = sqlite3_changes(s->db);
                sqlite3_reset(q);
                r = finish(s,
                           rc == SQLITE_DONE
                               ? 0
                               : sqlite_err(s->db, rc, "removing events that were kept apart", err),
                           err);
        }
        pthread_mutex_unlock(&s->lock);
        return r < 0 ? r : removed;
}
