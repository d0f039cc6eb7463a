/* store/sqlite_open.c: from a path to a store that can be committed to, and back.
 *
 * In this order: resolve the path, take the lock, make the file, look at whose it is, set it up,
 * sync what is in it. Nothing is changed in a file that is not ours or that a newer berth wrote.
 *
 * Invariant: what is found in the file at open is synced before anything is read from it. A crash
 * between SQLite's write and its sync leaves batches in the log that a second crash could still
 * take away, after the server has shown them to somebody.
 */
#include "store/sqlite_store.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mutant.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APPLICATION_ID 0x62727468 /* "brth" */

/* More than the largest decision (100 records with specs of 256 KiB); a batch of this size still
 * commits in well under a second. */
#define MAX_OPS 8192
#define MAX_BYTES (32u << 20)

/* Another program's write (the sqlite3 shell, a backup) is waited for this long. */
#define BUSY_TIMEOUT_MS 2000

/* page_size: a changed record costs a page in the log, an appended one its own size: small pages
 * win as soon as records change at random. LOG_PAGES: pages move from the log into the file within
 * a commit; 256 pages are moved and synced in about 5 ms, so one commit in many is a
 *   little slower and none is much slower. (1,000 pages: 30 ms; 16,000: 350 ms.) Under load every
 *   commit has more pages than that, and folding costs three syncs beside the commit's one: there
 *   the log grows to LOG_PAGES_BULK, and callers who wait behind hundreds of others wait no longer
 *   for it.
 * journal_size_limit: after a checkpoint of the state the log was large; give that back. Kept
 * otherwise, since writing over an existing log spares the file system's journal. cache_size: 16
 * MiB hold the working set of a batch and the tree's inner pages; the kernel's cache is behind it.
 * mmap_size 0: an unreadable sector must be an error, not SIGBUS. secure_delete: Debian turns it
 * on, and it writes every freed page. */
static const char pragmas[] = "PRAGMA synchronous = FULL;"
                              "PRAGMA journal_size_limit = 16777216;"
                              "PRAGMA cache_size = -16384;"
                              "PRAGMA mmap_size = 0;"
                              "PRAGMA secure_delete = OFF;"
                              "PRAGMA trusted_schema = OFF;"
                              "PRAGMA cell_size_check = ON;";

static const char new_file[] =
    "PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA encoding = 'UTF-8';";

static const char schema[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE events(seq INTEGER PRIMARY KEY, data BLOB NOT NULL);"
    "CREATE TABLE records(id INTEGER PRIMARY KEY, key TEXT NOT NULL, data BLOB NOT NULL);"
    "CREATE TABLE checkpoint_0(id INTEGER PRIMARY KEY, key TEXT NOT NULL, data BLOB NOT NULL);"
    "CREATE TABLE checkpoint_1(id INTEGER PRIMARY KEY, key TEXT NOT NULL, data BLOB NOT NULL);"
    "INSERT INTO meta VALUES('head', 0);";

static const char *const statements[_Q_MAX] = {
        [Q_BEGIN] = "BEGIN IMMEDIATE",
        [Q_COMMIT] = "COMMIT",
        [Q_ROLLBACK] = "ROLLBACK",
        [Q_DATA_VERSION] = "PRAGMA data_version",
        [Q_META_GET] = "SELECT value FROM meta WHERE key = ?1",
        [Q_META_PUT] =
            "INSERT INTO meta VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        /* OR FAIL: no copies of pages for taking back half a statement; the whole transaction is */
        [Q_EVENTS_PUT] = "INSERT OR FAIL INTO events SELECT id, data FROM batch_rows",
        [Q_EVENT_GET] = "SELECT data FROM events WHERE seq = ?1",
        [Q_EVENT_FIRST] = "SELECT min(seq) FROM events",
        [Q_EVENTS_OLDEST] = "SELECT seq, data FROM events WHERE seq <= ?1 ORDER BY seq LIMIT ?2",
        [Q_EVENT_REMOVE] = "DELETE FROM events WHERE seq BETWEEN ?1 AND ?2",
        [Q_RECORDS_PUT] = "INSERT OR FAIL INTO records SELECT id, key, data FROM batch_rows",
        [Q_RECORD_REPLACE] = "UPDATE records SET data = ?3 WHERE id = ?1 AND key = ?2",
        [Q_RECORD_REMOVE] = "DELETE FROM records WHERE id = ?1 AND key = ?2",
};

static struct sqlite_store *self(struct store *s)
{
        return (struct sqlite_store *)s;
}

static int exec(sqlite3 *db, const char *sql, const char *doing, struct err *err)
{
        int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
        return rc == SQLITE_OK ? 0 : sqlite_err(db, rc, doing, err);
}

/* ---- the database ---- */

int sqlite_connect(const struct sqlite_store *s, bool writes, sqlite3 **ret_db, struct err *err)
{
        _cleanup_(sqlite_closep) sqlite3 *db = NULL;
        int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                    (writes ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY);
        int rc = sqlite3_open_v2(s->path, &db, flags, s->vfs);
        if (rc != SQLITE_OK)
                return sqlite_err(db, rc, fmt("opening %s", s->path), err);
        sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS);
        *ret_db = TAKE_PTR(db);
        return 0;
}

/* Ours, empty, or somebody else's? Leaves the file untouched unless it is empty and create is
 * set. */
static int check_schema(struct sqlite_store *s, sqlite3 *db, bool create, struct err *err)
{
        int64_t id = 0, version = 0, objects = 0;
        int r = sqlite_number(db, "PRAGMA application_id", 0, &id, err);
        if (r == 0)
                r = sqlite_number(db, "PRAGMA user_version", 0, &version, err);
        if (r == 0)
                r = sqlite_number(db, "SELECT count(*) FROM sqlite_schema", 0, &objects, err);
        if (r < 0)
                return r;
        if (id == 0 && version == 0 && objects == 0) {
                if (!create)
                        return err_set(err, ERR_NOT_FOUND, .msg = "the store is empty",
                                       .detail = s->path,
                                       .hint = "start a server on it first, or check the path");
                r = exec(s->db, new_file, "creating the store", err);
                if (r == 0)
                        r = exec(s->db, "PRAGMA journal_mode = WAL", "creating the store", err);
                _cleanup_(str_finip) struct str sql = STR_INIT;
                str_addf(&sql,
                         "BEGIN IMMEDIATE; %s PRAGMA application_id = %d; PRAGMA user_version = "
                         "%d; COMMIT;",
                         schema, APPLICATION_ID, STORE_SCHEMA_FIRST);
                if (r == 0)
                        r = exec(s->db, str_c(&sql), "creating the store", err);
                s->base.schema = STORE_SCHEMA_FIRST;
                return r;
        }
        if (id != APPLICATION_ID)
                return err_set(err, ERR_CORRUPT,
                               .msg = "the file is a database, but not a store of berth",
                               .detail = s->path, .hint = "check the path; nothing was changed");
        if (version > STORE_SCHEMA)
                return store_err_newer(err, (int)version);
        if (version < 1)
                return err_set(err, ERR_CORRUPT, .msg = "the store has no schema version",
                               .detail = s->path, .hint = "restore a backup");
        s->base.schema = (int)version;
        return 0;
}

/* The invariant above. */
static int sync_log(struct sqlite_store *s, struct err *err)
{
        sqlite3_file *file = NULL;
        int rc = sqlite3_file_control(s->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file);
        if (rc == SQLITE_OK && file && file->pMethods && !MUTANT(read_log_not_synced))
                rc = file->pMethods->xSync(file, SQLITE_SYNC_NORMAL);
        return rc == SQLITE_OK ? 0 : sqlite_err(NULL, rc, "syncing the log", err);
}

static int read_state(struct sqlite_store *s, struct err *err)
{
        int64_t head = 0, last = 0, seq = 0, slot = -1;
        int r = sqlite_meta_get(s, "head", -1, &head, err);
        if (r == 0)
                r = sync_log(s, err);
        if (r == 0)
                r = sqlite_meta_get(s, "checkpoint_seq", 0, &seq, err);
        if (r == 0)
                r = sqlite_meta_get(s, "checkpoint_slot", -1, &slot, err);
        if (r == 0)
                r = sqlite_number(s->db, "SELECT max(seq) FROM events", 0, &last, err);
        if (r == 0)
                r = sqlite_has_kept(s->db, &s->has_kept, err);
        if (r < 0)
                return r;
        if (head < 0 || last != head || seq < 0 || seq > head || slot < -1 || slot > 1)
                return err_set(err, ERR_CORRUPT, .msg = "the store contradicts itself",
                               .detail =
                                   fmt("head %lld, last event %lld, checkpoint %lld in slot %lld",
                                       (long long)head, (long long)last, (long long)seq,
                                       (long long)slot),
                               .hint = "restore a backup");
        s->base.head = (uint64_t)head;
        s->checkpoint_seq = (uint64_t)seq;
        s->checkpoint_slot = (int)slot;
        return 0;
}

static int open_database(struct sqlite_store *s, bool create, struct err *err)
{
        int r = sqlite_connect(s, true, &s->db, err);
        if (r == 0)
                r = check_schema(s, s->db, create, err);
        if (r == 0)
                r = exec(s->db, "PRAGMA journal_mode = WAL", "switching to a write-ahead log", err);
        if (r == 0)
                r = exec(s->db, pragmas, "setting up the database", err);
        if (r == 0 && MUTANT(synchronous_off))
                r = exec(s->db, "PRAGMA synchronous = OFF", "setting up the database", err);
        if (r == 0)
                sqlite3_wal_autocheckpoint(s->db, LOG_PAGES);
        int rc = r == 0 ? batch_rows_register(s->db, &s->rows) : SQLITE_OK;
        if (rc != SQLITE_OK)
                r = sqlite_err(s->db, rc, "setting up the database", err);
        for (int i = 0; r == 0 && i < _Q_MAX; i++)
                r = sqlite_prepare(s->db, statements[i], &s->q[i], err);
        return r == 0 ? read_state(s, err) : r;
}

/* ---- paths ---- */

int sqlite_sync_dir(const char *path, struct err *err)
{
        _cleanup_(fd_closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fsync(fd) < 0)
                return err_sys(err, errno, fmt("cannot sync the folder %s", path));
        return 0;
}

/* Makes the folder, and resolves links, so that two names of one file meet at one lock. */
int sqlite_resolve(const char *given, bool create, char **ret_path, char **ret_dir, struct err *err)
{
        char real[PATH_MAX];
        const char *slash = strrchr(given, '/'), *name = slash ? slash + 1 : given;
        _cleanup_(mem_freep) char *dir = slash == given ? mem_strdup("/")
                                         : slash ? mem_strndup(given, (size_t)(slash - given))
                                                 : mem_strdup(".");
        if (!*name || str_eq(name, ".") || str_eq(name, ".."))
                return err_set(err, ERR_INVALID, .msg = "the store's path names no file",
                               .detail = fmt("\"%s\"", given),
                               .hint = "give a path like /var/lib/berth/berth.db");
        if (create) {
                int r = dir_make(dir, 0700, err);
                if (r < 0)
                        return r;
        }
        if (!realpath(given, real)) {
                if (!create)
                        return errno == ENOENT || errno == ENOTDIR
                                   ? err_set(err, ERR_NOT_FOUND, .msg = "there is no store",
                                             .detail = given,
                                             .hint =
                                                 "start a server on it first, or check the path")
                                   : err_sys(err, errno, fmt("cannot reach the store %s", given));
                if (!realpath(dir, real))
                        return err_sys(err, errno, fmt("cannot reach the folder %s", dir));
                size_t len = strlen(real);
                if (len + strlen(name) + 2 > sizeof(real))
                        return err_sys(err, ENAMETOOLONG, "the store's path is too long");
                if (len > 1)
                        real[len++] = '/';
                memcpy(real + len, name, strlen(name) + 1);
        }
        *ret_path = mem_strdup(real);
        slash = strrchr(real, '/');
        *ret_dir = slash == real ? mem_strdup("/") : mem_strndup(real, (size_t)(slash - real));
        return 0;
}

/* SQLite would give a new file the umask's mode; its log and index files copy the mode of the
 * database. The lock is held, so nobody of this process has the file open (closing a descriptor
 * would drop SQLite's own locks). */
static int make_file(const char *path, const char *dir, struct err *err)
{
        _cleanup_(fd_closep) int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
                return errno == EEXIST
                           ? 0
                           : err_sys(err, errno, fmt("cannot create the store %s", path));
        return sqlite_sync_dir(dir, err);
}

static void destroy(struct sqlite_store *s)
{
        for (int i = 0; i < _Q_MAX; i++)
                sqlite3_finalize(s->q[i]);
        sqlite3_close(s->db);
        sqlite3_close(s->moment);
        store_lock_release(&s->file_lock);
        array_fini(&s->rows.rows);
        key_index_fini(&s->index);
        array_fini(&s->changes);
        pthread_mutex_destroy(&s->lock);
        if (s->target) { /* not restored after all */
                store_lock_release(s->target_lock);
                mem_free(s->target_lock);
                (void)unlink(s->path);
                mem_free(s->target);
        }
        mem_free(s->path);
        mem_free(s->vfs);
        mem_free(s);
}

static void destroyp(struct sqlite_store **s)
{
        if (*s)
                destroy(*s);
}

static struct sqlite_store *new_store(const struct store_ops *ops)
{
        struct sqlite_store *s = mem_must(sizeof(*s));
        s->file_lock.fd = -1;
        pthread_mutex_init(&s->lock, NULL);
        s->base.ops = ops;
        s->base.limits =
            (struct store_limits){ .max_ops = MAX_OPS, .max_bytes = MAX_BYTES, .in_flight = 1 };
        return s;
}

/* What stands behind the colon: a path, and perhaps a file layer. */
static int parse_rest(struct sqlite_store *s, const char *rest, bool create, char **ret_dir,
                      struct err *err)
{
        const char *option = strstr(rest, "?vfs="),
                   *vfs = option ? option + strlen("?vfs=") : getenv("BERTH_SQLITE_VFS");
        if (!str_empty(vfs))
                s->vfs = mem_strdup(vfs);
        if (s->vfs && !sqlite3_vfs_find(s->vfs))
                return err_set(err, ERR_INVALID, .msg = "SQLite has no such file layer",
                               .detail = fmt("vfs \"%s\"", s->vfs),
                               .hint = "unset BERTH_SQLITE_VFS");
        _cleanup_(mem_freep) char *given =
            option ? mem_strndup(rest, (size_t)(option - rest)) : mem_strdup(rest);
        return sqlite_resolve(given, create, &s->path, ret_dir, err);
}

static int open_store(const char *rest, bool create, struct store **ret_store, struct err *err)
{
        _cleanup_(destroyp) struct sqlite_store *s = new_store(&sqlite_ops);
        _cleanup_(mem_freep) char *dir = NULL;
        _cleanup_(str_finip) struct str lock_path = STR_INIT;
        int r = parse_rest(s, rest, create, &dir, err);
        if (r == 0) {
                str_addf(&lock_path, "%s.lock", s->path);
                r = MUTANT(store_lock_skipped)
                        ? 0
                        : store_lock_take(&s->file_lock, str_c(&lock_path), err);
        }
        if (r == 0)
                r = sqlite_check_log(s->path, dir, err);
        if (r == 0 && create)
                r = make_file(s->path, dir, err);
        if (r == 0)
                r = open_database(s, create, err);
        if (r == 0 && create)
                r = sqlite_make_shrinkable(s, err);
        if (r < 0)
                return r;
        *ret_store = &TAKE_PTR(s)->base;
        return 0;
}

/* The server that writes keeps its lock: a reader needs none. */
static int open_moment(const char *rest, struct store **ret_store, struct err *err)
{
        _cleanup_(destroyp) struct sqlite_store *s = new_store(&sqlite_moment_ops);
        _cleanup_(mem_freep) char *dir = NULL;
        int64_t head = 0;
        int r = parse_rest(s, rest, false, &dir, err);
        if (r == 0)
                r = sqlite_check_log(s->path, dir, err);
        if (r == 0)
                r = sqlite_connect(s, false, &s->moment, err);
        if (r == 0)
                r = exec(s->moment, "PRAGMA cache_size = -2048; BEGIN",
                         "opening the store for reading", err);
        if (r == 0)
                r = check_schema(s, s->moment, false, err);
        if (r == 0)
                r = sqlite_number(s->moment, "SELECT value FROM meta WHERE key = 'head'", 0, &head,
                                  err);
        if (r < 0)
                return r;
        s->base.head = (uint64_t)head;
        *ret_store = &TAKE_PTR(s)->base;
        return 0;
}

static void close_moment(struct store *base)
{
        destroy(self(base));
}

static void close_store(struct store *base)
{
        struct sqlite_store *s = self(base);
        sqlite_keep_stop(s);
        int rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
        if (rc != SQLITE_OK) /* harmless: the log stays and is read at the next start */
                log_warn("the store's log could not be folded into its file",
                         LOG_S("path", s->path), LOG_S("error", sqlite3_errmsg(s->db)));
        destroy(s);
}

const struct store_ops sqlite_ops = {
        .scheme = "sqlite",
        .open = open_store,
        .close = close_store,
        .load = sqlite_load,
        .commit = sqlite_commit,
        .seed = sqlite_seed,
        .prune = sqlite_prune,
        .kept_put = sqlite_kept_put,
        .kept_count = sqlite_kept_count,
        .kept_remove = sqlite_kept_remove,
        .shrink = sqlite_shrink,
        .checkpoint = sqlite_checkpoint,
        .load_checkpoint = sqlite_load_checkpoint,
        .integrity = sqlite_integrity,
        .reader_open = sqlite_reader_open,
        .reader_close = sqlite_reader_close,
        .reader_events = sqlite_reader_events,
        .reader_event = sqlite_reader_event,
        .reader_records = sqlite_reader_records,
        .reader_first = sqlite_reader_first,
        .reader_kept = sqlite_reader_kept,
        .open_moment = open_moment,
        .restore_open = sqlite_restore_open,
        .restore_done = sqlite_restore_done,
};

const struct store_ops sqlite_moment_ops = {
        .scheme = "sqlite",
        .close = close_moment,
        .load = sqlite_load,
        .load_checkpoint = sqlite_load_checkpoint,
        .integrity = sqlite_integrity,
        .reader_open = sqlite_reader_open,
        .reader_close = sqlite_reader_close,
        .reader_events = sqlite_reader_events,
        .reader_event = sqlite_reader_event,
        .reader_records = sqlite_reader_records,
        .reader_first = sqlite_reader_first,
        .reader_kept = sqlite_reader_kept,
};
