/* store/sqlite_restore.c: an embedded store that is filled from a backup.
 *
 * It grows in PATH.restoring while PATH's lock is held, and takes PATH's name when it is whole, by
 * one rename: whatever happens, PATH is the old store or the whole new one. An old one that makes
 * way keeps its content under another name, for whoever wants to look: its log is folded into its
 * file, and the file gets a second name before the rename. The log of a damaged one cannot be
 * folded, and gets a second name beside it. Whenever this is cut, and however often, store and log
 * are together under one name; tests/restore_cuts.c cuts it everywhere.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/sqlite_store.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void remove_with_log(const char *path)
{
        static const char *const tails[] = { "", "-wal", "-shm", ".lock" };
        for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
                _cleanup_(str_finip) struct str name = STR_INIT;
                str_addf(&name, "%s%s", path, tails[i]);
                (void)unlink(str_c(&name));
        }
}

/* A damaged one counts as one that is there. */
static int is_free(const char *path, struct err *err)
{
        struct store *old;
        struct err why = { 0 };
        if (!file_exists(path))
                return 0;
        int r = store_open_moment(path, &old, &why);
        if (r == -ERR_NOT_FOUND)
                return 0; /* an empty file */
        uint64_t head = r < 0 ? 0 : store_head(old);
        if (r == 0)
                store_close(old);
        return r == 0 && head == 0 ? 0 : store_err_not_empty(err, path, head);
}

/* SQLite finds a log by its name: one that belongs to another file must not be there when a file
 * takes that name. */
static bool has_log(const char *path)
{
        struct stat st;
        _cleanup_(str_finip) struct str log = STR_INIT;
        str_addf(&log, "%s-wal", path);
        return stat(str_c(&log), &st) == 0 && st.st_size > 0;
}

/* ---- second names ----
 *
 * A restore that is interrupted before its rename leaves the store with two names, and so with its
 * log, if that could not be folded:
 *
 *   PATH  PATH-wal                                 as it was
 *   PATH  PATH-wal  PATH.before-X                  linked
 *   PATH  PATH-wal  PATH.before-X  ...X-wal        the log, too
 *   PATH            PATH.before-X  ...X-wal        the log must not be found beside the new store,
 *                   whose rename comes next
 *
 * The second name looks like a copy, and is none: what is written to the store is written to it.
 * And in the last of these states the store is whole under its second name only. So it is opened by
 * nobody until the next restore has gone back to the first state.
 */

static bool is_same_file(const char *one, const char *other)
{
        struct stat a, b;
        return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
               a.st_ino == b.st_ino;
}

/* fn for each second name of the store, until one fails. */
static int each_second_name(const char *path, const char *dir,
                            int (*fn)(const char *path, const char *aside, const char *dir,
                                      struct err *err),
                            struct err *err)
{
        struct stat store;
        const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
        _cleanup_(str_finip) struct str before = STR_INIT, name = STR_INIT;
        int r = 0;
        str_addf(&before, "%s.before-", base);
        DIR *d = stat(path, &store) == 0 && store.st_nlink > 1 ? opendir(dir) : NULL;
        for (struct dirent *e; d && r == 0 && (e = readdir(d));) {
                str_clear(&name);
                str_addf(&name, "%s/%s", dir, e->d_name);
                if (str_starts(e->d_name, str_c(&before)) && is_same_file(path, str_c(&name)))
                        r = fn(path, str_c(&name), dir, err);
        }
        if (d)
                closedir(d);
        return r;
}

/* One step back at a time: whenever it is interrupted, store and log are together under one name at
 * least. */
static int take_back_one(const char *path, const char *aside, const char *dir, struct err *err)
{
        _cleanup_(str_finip) struct str log = STR_INIT, log_aside = STR_INIT;
        str_addf(&log, "%s-wal", path);
        str_addf(&log_aside, "%s-wal", aside);
        if (has_log(aside) && !has_log(path)) {
                (void)unlink(str_c(&log)); /* an empty one */
                if (link(str_c(&log_aside), str_c(&log)) < 0)
                        return err_sys(err, errno,
                                       fmt("cannot put the store's log back: %s", str_c(&log)));
                int r = sqlite_sync_dir(dir, err);
                if (r < 0)
                        return r;
        }
        if (has_log(aside) && !is_same_file(str_c(&log), str_c(&log_aside)))
                return 0; /* somebody has written to the store since then: both stay */
        (void)unlink(str_c(&log_aside));
        (void)unlink(aside);
        return 0;
}

static int take_back(const char *path, const char *dir, struct err *err)
{
        return each_second_name(path, dir, take_back_one, err);
}

static int refuse_without_log(const char *path, const char *aside, const char *dir, struct err *err)
{
        (void)dir;
        if (!has_log(aside) || has_log(path))
                return 0;
        return err_set(
            err, ERR_CONFLICT, .msg = fmt("a restore was interrupted: %s is without its log", path),
            .detail = fmt("which is %s-wal", aside),
            .hint = fmt("restore again with --force; or mv %s-wal %s-wal for what was there", aside,
                        path));
}

int sqlite_check_log(const char *path, const char *dir, struct err *err)
{
        return each_second_name(path, dir, refuse_without_log, err);
}

/* ---- the first step ---- */

int sqlite_restore_open(const char *rest, bool force, struct store **ret_store, struct err *err)
{
        _cleanup_(mem_freep) char *path = NULL, *dir = NULL;
        _cleanup_(str_finip) struct str lock_path = STR_INIT, temp = STR_INIT;
        struct store_lock *lock = mem_must(sizeof(*lock));
        lock->fd = -1;
        struct store *store = NULL;
        int r = sqlite_resolve(rest, true, &path, &dir, err);
        if (r < 0) {
                mem_free(lock);
                return r;
        }
        str_addf(&lock_path, "%s.lock", path);
        str_addf(&temp, "%s.restoring", path);
        r = store_lock_take(lock, str_c(&lock_path), err);
        if (r == 0 && !force)
                r = is_free(path, err);
        if (r == 0) {
                remove_with_log(str_c(&temp)); /* of a restore that was interrupted */
                r = take_back(path, dir, err);
        }
        if (r == 0)
                r = sqlite_ops.open(str_c(&temp), true, &store, err);
        if (r < 0) {
                store_lock_release(lock);
                mem_free(lock);
                return r;
        }
        struct sqlite_store *s = (struct sqlite_store *)store;
        s->target = TAKE_PTR(path);
        s->target_lock = lock;
        *ret_store = store;
        return 0;
}

/* ---- the last step ---- */

/* Everything that is in the old store's log goes into its file, so that the file alone is the
 * store. -ERR_CORRUPT: it is damaged, and is kept as it is, with its log: SQLite would remove one
 * in which it finds nothing. */
static int fold_log(const char *path, const char *vfs, struct err *err)
{
        const struct sqlite_store old = { .path = (char *)path, .vfs = (char *)vfs };
        _cleanup_(sqlite_closep) sqlite3 *db = NULL;
        int64_t busy = 0;
        int keep = 1;
        int r = sqlite_connect(&old, true, &db, err);
        int rc =
            r == 0 ? sqlite3_file_control(db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep) : SQLITE_OK;
        if (rc != SQLITE_OK)
                r = sqlite_err(db, rc, fmt("opening %s", path), err);
        if (r == 0)
                r = sqlite_number(db, "PRAGMA wal_checkpoint(TRUNCATE)", 0, &busy, err);
        if (r == 0 && busy)
                r = err_set(err, ERR_CONFLICT, .msg = "the store is in use", .detail = path,
                            .hint = "end whoever reads it, e.g. the sqlite3 shell, and restore "
                                    "again; nothing was changed");
        return r;
}

/* An empty file with a log: SQLite takes it for a new store, and removes the log without a look at
 * it. */
static bool is_hollow(const char *path)
{
        struct stat st;
        return stat(path, &st) == 0 && st.st_size == 0 && has_log(path);
}

static int link_aside(const char *path, const char *aside, struct err *err)
{
        if (link(path, aside) == 0)
                return 0;
        return err_set(err, ERR_FAILED, .msg = fmt("cannot keep %s aside", path),
                       .detail = fmt("%s: %s", aside, strerror(errno)),
                       .hint = "move it away yourself, with its -wal, and restore without --force; "
                               "nothing was changed");
}

/* The old store under another name as well, durably, with a log that could not be folded. */
static int keep_aside(const char *path, const char *aside, const char *dir, struct err *err)
{
        _cleanup_(str_finip) struct str log = STR_INIT, log_aside = STR_INIT;
        str_addf(&log, "%s-wal", path);
        str_addf(&log_aside, "%s-wal", aside);
        int r = file_exists(path) ? link_aside(path, aside, err) : 0;
        if (r == 0 && has_log(path))
                r = link_aside(str_c(&log), str_c(&log_aside), err);
        if (r == 0)
                r = sqlite_sync_dir(dir, err);
        if (r == 0 && unlink(str_c(&log)) < 0 &&
            /* of a damaged store, of none at all, or empty: a sound one has none now */
            errno != ENOENT)
                r = err_sys(err, errno, fmt("cannot remove %s", str_c(&log)));
        return r;
}

static void name_aside(const char *path, struct str *aside)
{
        char when[32];
        time_t now = (time_t)(clock_wall_ms() / 1000);
        struct tm tm;
        (void)strftime(when, sizeof(when), "%Y%m%d-%H%M%S", gmtime_r(&now, &tm));
        str_addf(aside, "%s.before-%s", path, when);
        for (int i = 2; (file_exists(str_c(aside)) || has_log(str_c(aside))) && i < 1000; i++) {
                str_clear(aside);
                str_addf(aside, "%s.before-%s-%d", path, when, i);
        }
}

/* One rename is the whole step: before it PATH is the old store, after it the new one, and never
 * nothing. All before it only prepares, and can be done again. */
static int take_place(const char *temp, const char *target, const char *vfs, char **ret_aside,
                      struct err *err)
{
        _cleanup_(mem_freep) char *path = NULL, *dir = NULL;
        _cleanup_(str_finip) struct str aside = STR_INIT;
        bool was_there = file_exists(target);
        if (has_log(temp))
                return err_set(err, ERR_FAILED, .msg = "the restored store could not be completed",
                               .detail = fmt("%s-wal is left", temp),
                               .hint = "look for errors of the disk, and restore again; what was "
                                       "there is as it was");
        int r = sqlite_resolve(target, true, &path, &dir, err);
        if (r == 0 && was_there && is_hollow(target))
                r = -ERR_CORRUPT;
        else if (r == 0 && was_there)
                r = fold_log(target, vfs, err);
        if (r == -ERR_CORRUPT)
                r = 0; /* kept as it is */
        else if (r == 0 && was_there && has_log(target))
                r = err_set(err, ERR_CONFLICT, .msg = "the store is in use",
                            .detail = fmt("%s-wal is not empty", target),
                            .hint =
                                "end whoever has it open, and restore again; nothing was changed");
        name_aside(target, &aside);
        if (r == 0)
                r = keep_aside(target, str_c(&aside), dir, err);
        if (r == 0 && rename(temp, target) < 0)
                r = err_sys(err, errno, fmt("cannot name the restored store %s", target));
        if (r == 0)
                r = sqlite_sync_dir(dir, err);
        else if (dir)
                (void)take_back(target, dir, &(struct err){ 0 });
        if (r == 0 && was_there && ret_aside)
                *ret_aside = mem_strdup(str_c(&aside));
        return r;
}

int sqlite_restore_done(struct store *base, char **ret_aside, struct err *err)
{
        struct sqlite_store *s = (struct sqlite_store *)base;
        _cleanup_(mem_freep) char *target = TAKE_PTR(s->target), *temp = mem_strdup(s->path),
                                  *vfs = s->vfs ? mem_strdup(s->vfs) : NULL;
        struct store_lock *lock = s->target_lock;
        if (ret_aside)
                *ret_aside = NULL;
        sqlite_ops.close(base); /* folds its log into the file, which is synced then */
        int r = take_place(temp, target, vfs, ret_aside, err);
        remove_with_log(temp);
        store_lock_release(lock);
        mem_free(lock);
        return r;
}
