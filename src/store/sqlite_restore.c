/* store/sqlite_restore.c: an embedded store that is filled from a backup.
 *
 * It grows in PATH.restoring while PATH's lock is held, and takes PATH's name when it is whole: whatever happens, PATH is the old store or the whole new one.
 * An old one that makes way keeps its content under another name, for whoever wants to look.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/sqlite_store.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
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
                r = sqlite_ops.open(str_c(&temp), true, &store, err);
        }
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

/* The log belongs to the file: SQLite finds it by its name. */
static int move_aside(const char *path, char **ret_aside, struct err *err)
{
        static const char *const tails[] = { "-wal", "" };
        char when[32];
        time_t now = (time_t)(clock_wall_ms() / 1000);
        struct tm tm;
        struct str aside = STR_INIT;
        if (!file_exists(path))
                return 0;
        (void)strftime(when, sizeof(when), "%Y%m%d-%H%M%S", gmtime_r(&now, &tm));
        str_addf(&aside, "%s.before-%s", path, when);
        for (int i = 2; file_exists(str_c(&aside)) && i < 1000; i++) {
                str_clear(&aside);
                str_addf(&aside, "%s.before-%s-%d", path, when, i);
        }
        int r = 0;
        for (size_t i = 0; i < ARRAY_LEN(tails) && r == 0; i++) {
                _cleanup_(str_finip) struct str from = STR_INIT, to = STR_INIT;
                str_addf(&from, "%s%s", path, tails[i]);
                str_addf(&to, "%s%s", str_c(&aside), tails[i]);
                if (rename(str_c(&from), str_c(&to)) < 0 && errno != ENOENT)
                        r = err_sys(err, errno, fmt("cannot keep %s aside", str_c(&from)));
        }
        _cleanup_(str_finip) struct str shm = STR_INIT;
        str_addf(&shm, "%s-shm", path);
        (void)unlink(str_c(&shm)); /* made anew from the log by whoever opens it */
        if (r == 0 && ret_aside)
                *ret_aside = mem_strdup(str_c(&aside));
        str_fini(&aside);
        return r;
}

int sqlite_restore_done(struct store *base, char **ret_aside, struct err *err)
{
        struct sqlite_store *s = (struct sqlite_store *)base;
        _cleanup_(mem_freep) char *target = TAKE_PTR(s->target), *temp = mem_strdup(s->path), *dir = NULL, *path = NULL;
        struct store_lock *lock = s->target_lock;
        if (ret_aside)
                *ret_aside = NULL;
        sqlite_ops.close(base); /* folds its log into the file, which is synced then */
        int r = move_aside(target, ret_aside, err);
        if (r == 0 && rename(temp, target) < 0)
                r = err_sys(err, errno, fmt("cannot name the restored store %s", target));
        if (r == 0)
                r = sqlite_resolve(target, false, &path, &dir, err);
        if (r == 0)
                r = sqlite_sync_dir(dir, err);
        remove_with_log(temp);
        store_lock_release(lock);
        mem_free(lock);
        return r;
}
