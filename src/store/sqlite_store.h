/* store/sqlite_store.h: what the files of the SQLite store share. Nobody else includes it.
 *
 *   sqlite_open.c  open, close
 *   sqlite.c       statements, errors, commit
 *   sqlite_read.c  load, readers of events, integrity
 *   sqlite_keep.c  checkpoints of the state, pruning of events
 *   sqlite_restore.c  a store that is filled from a backup beside the place where it will be
 *   sqlite_lock.c  one process at a time
 *   key_index.c    key -> row, in memory
 */
#ifndef BERTH_STORE_SQLITE_STORE_H
#define BERTH_STORE_SQLITE_STORE_H

#include "base/array.h"
#include "store/key_index.h"
#include "store/sqlite_lock.h"
#include "store/sqlite_rows.h"
#include "store/store_ops.h"
#include <pthread.h>
#include <sqlite3.h>

/* How long the log grows before a commit folds it into the file, and how long under load: after
 * commits of at least so many rows; the reasons are in sqlite_open.c. */
#define LOG_PAGES 256
#define LOG_PAGES_BULK 2048
#define BULK_OPS 512

enum sqlite_statement {
        Q_BEGIN,
        Q_COMMIT,
        Q_ROLLBACK,
        Q_DATA_VERSION,
        Q_META_GET,
        Q_META_PUT,
        Q_EVENTS_PUT,
        Q_EVENT_GET,
        Q_EVENT_FIRST,
        Q_EVENTS_OLDEST,
        Q_EVENT_REMOVE,
        Q_RECORDS_PUT,
        Q_RECORD_REPLACE,
        Q_RECORD_REMOVE,
        _Q_MAX
};

/* What a transaction will have done to the index once it is committed. */
struct index_change {
        uint64_t hash;
        int64_t id;
        bool remove;
};

struct sqlite_store {
        struct store base;
        char *path, *vfs; /* vfs: NULL for SQLite's own */
        struct store_lock file_lock;
        /* while a backup is restored: what path becomes; NULL otherwise */
        char *target;
        struct store_lock *target_lock; /* and its lock, so that no server starts meanwhile */
        /* not NULL: only read, all in this connection's one transaction */
        sqlite3 *moment;

        /* The writing connection, its statements and the index are used under lock: by the store
         * thread, and by the thread that copies a checkpoint. */
        pthread_mutex_t lock;
        sqlite3 *db;
        sqlite3_stmt *q[_Q_MAX];
        struct batch_rows rows; /* of the statement that is running */
        struct key_index index;
        bool shrinking; /* unused pages are being given back */
        /* the log is not folded: a checkpoint of the state is being copied from a view of one
         * moment */
        bool log_kept;
        bool index_ready;
        int64_t next_id, data_version;
        ARRAY(struct index_change) changes;

        /* the table of events that are kept apart is there: it is made for the first of them */
        bool has_kept;

        /* The last whole checkpoint; slot -1: none was ever taken. Changed under lock. */
        uint64_t checkpoint_seq;
        int checkpoint_slot;

        /* The copying thread: started by prune, joined by prune, checkpoint or close; all on the
         * store thread. */
        pthread_t copier;
        bool copier_started;
        atomic_bool copier_done, stop;
        int copier_result;
        struct err copier_err;
};

/* sqlite.c */
int sqlite_err(sqlite3 *db, int rc, const char *doing, struct err *err);
int sqlite_meta_get(struct sqlite_store *s, const char *key, int64_t fallback, int64_t *ret,
                    struct err *err);
int sqlite_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct err *err);
/* step to the end and reset */
int sqlite_run(struct sqlite_store *s, enum sqlite_statement which, const char *doing,
               struct err *err);
int sqlite_begin(struct sqlite_store *s, struct err *err);
void sqlite_rollback(struct sqlite_store *s);
int sqlite_meta_put(struct sqlite_store *s, const char *key, int64_t value, struct err *err);
int sqlite_seed(struct store *base, uint64_t head, struct err *err);
static inline void sqlite_closep(sqlite3 **db)
{
        sqlite3_close(*db);
}
static inline void sqlite_finalizep(sqlite3_stmt **q)
{
        sqlite3_finalize(*q);
}

int sqlite_commit(struct store *base, const struct store_batch *b, const uint64_t *hashes,
                  struct err *err);

/* sqlite_open.c */
extern const struct store_ops sqlite_moment_ops;
int sqlite_sync_dir(const char *path, struct err *err);
int sqlite_resolve(const char *given, bool create, char **ret_path, char **ret_dir,
                   struct err *err);

/* sqlite_restore.c */
/* A store whose restore was interrupted when its log had another name already: ERR_CONFLICT, with
 * what to do. */
int sqlite_check_log(const char *path, const char *dir, struct err *err);
int sqlite_restore_open(const char *rest, bool force, struct store **ret_store, struct err *err);
int sqlite_restore_done(struct store *base, char **ret_aside, struct err *err);
int sqlite_connect(const struct sqlite_store *s, bool writes, sqlite3 **ret_db, struct err *err);

/* sqlite_read.c */
/* One number: the first column of the first row, or fallback if there is no row or it is NULL. */
int sqlite_number(sqlite3 *db, const char *sql, int64_t fallback, int64_t *ret, struct err *err);
int sqlite_index_build(struct sqlite_store *s, struct err *err); /* under lock, in a transaction */
int sqlite_load(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_head,
                struct err *err);
int sqlite_load_checkpoint(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_seq,
                           struct err *err);
int sqlite_integrity(struct store *base, struct err *err);
int sqlite_reader_open(struct store *base, struct store_reader **ret_reader, struct err *err);
void sqlite_reader_close(struct store_reader *base);
int sqlite_reader_events(struct store_reader *base, uint64_t since, bool backwards,
                         store_event_fn fn, void *ctx, struct err *err);
int sqlite_reader_event(struct store_reader *base, uint64_t seq, store_event_fn fn, void *ctx,
                        struct err *err);
int sqlite_reader_records(struct store_reader *base, store_record_fn fn, void *ctx,
                          uint64_t *ret_head, struct err *err);
uint64_t sqlite_reader_first(struct store_reader *base);
/* the table of events that are kept apart is there */
int sqlite_has_kept(sqlite3 *db, bool *ret, struct err *err);
int sqlite_reader_kept(struct store_reader *base, enum event_class class, uint64_t since,
                       bool backwards, size_t max, store_event_fn fn, void *ctx, struct err *err);

/* sqlite_keep.c */
int sqlite_shrink(struct store *base, struct err *err);
int sqlite_make_shrinkable(struct sqlite_store *s, struct err *err);
int sqlite_prune(struct store *base, const struct store_retention *keep, uint64_t max_remove,
                 struct store_left *ret, struct err *err);
int sqlite_kept_put(struct store *base, const struct store_kept *events, size_t n, struct err *err);
int sqlite_kept_count(struct store *base, enum event_class class, uint64_t *ret, struct err *err);
int64_t sqlite_kept_remove(struct store *base, enum event_class class, uint64_t n, struct err *err);
int sqlite_checkpoint(struct store *base, struct err *err);
void sqlite_keep_stop(struct sqlite_store *s);

#endif
