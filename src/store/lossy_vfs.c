/* store/lossy_vfs.c: see the header. */
#include "store/lossy_vfs.h"

#include "base/array.h"
#include "base/mem.h"
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SECTOR 512

/* A write (or truncation: new_data NULL) that no sync has covered yet. */
struct change {
        char *path;
        sqlite3_int64 offset, old_size;
        size_t len, old_len; /* old_len: how much of the range was in the file */
        char *old_data, *new_data;
};

static struct {
        pthread_mutex_t lock;
        int64_t left; /* < 0: no limit */
        int64_t operations;
        bool dead;
        ARRAY(struct change) changes;
} machine = { .lock = PTHREAD_MUTEX_INITIALIZER, .left = -1 };

struct lossy_file {
        sqlite3_file base;
        char *path;
        sqlite3_file *real;
};

static sqlite3_vfs *real_vfs;
static sqlite3_file *real_of(sqlite3_file *f)
{
        return ((struct lossy_file *)f)->real;
}

static void change_fini(struct change *c)
{
        mem_free(c->path);
        mem_free(c->old_data);
        mem_free(c->new_data);
}

/* Under lock. False: the machine is gone. */
static bool spend(void)
{
        if (!machine.dead && machine.left >= 0 && machine.left-- == 0)
                machine.dead = true;
        machine.operations += !machine.dead;
        return !machine.dead;
}

/* ---- files ---- */

static int lossy_close(sqlite3_file *f)
{
        struct lossy_file *file = (struct lossy_file *)f;
        int rc = file->real->pMethods ? file->real->pMethods->xClose(file->real) : SQLITE_OK;
        mem_free(file->path);
        mem_free(file->real);
        return rc;
}

static int lossy_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
        return lossy_is_dead() ? SQLITE_IOERR_READ
                               : real_of(f)->pMethods->xRead(real_of(f), p, n, at);
}

static void remember(struct lossy_file *file, sqlite3_int64 at, size_t len, const void *data)
{
        sqlite3_int64 size = 0;
        file->real->pMethods->xFileSize(file->real, &size);
        struct change c = {
                .path = mem_strdup(file->path), .offset = at, .old_size = size, .len = len
        };
        c.old_len = size <= at ? 0 : size - at < (sqlite3_int64)len ? (size_t)(size - at) : len;
        c.old_data = mem_must(c.old_len + 1);
        if (c.old_len > 0)
                file->real->pMethods->xRead(file->real, c.old_data, (int)c.old_len, at);
        if (data)
                c.new_data = mem_dup(data, len);
        *array_push(&machine.changes) = c;
}

static int lossy_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
        pthread_mutex_lock(&machine.lock);
        int rc = SQLITE_IOERR_WRITE;
        if (spend()) {
                remember((struct lossy_file *)f, at, (size_t)n, p);
                rc = real_of(f)->pMethods->xWrite(real_of(f), p, n, at);
        }
        pthread_mutex_unlock(&machine.lock);
        return rc;
}

static int lossy_truncate(sqlite3_file *f, sqlite3_int64 size)
{
        pthread_mutex_lock(&machine.lock);
        int rc = SQLITE_IOERR_TRUNCATE;
        if (spend()) {
                sqlite3_int64 now = 0;
                real_of(f)->pMethods->xFileSize(real_of(f), &now);
                if (now > size)
                        remember((struct lossy_file *)f, size, (size_t)(now - size), NULL);
                rc = real_of(f)->pMethods->xTruncate(real_of(f), size);
        }
        pthread_mutex_unlock(&machine.lock);
        return rc;
}

/* Nothing is really synced: the tests' disk is only as durable as this list says, and much
 * faster. */
static int lossy_sync(sqlite3_file *f, int flags _unused_)
{
        struct lossy_file *file = (struct lossy_file *)f;
        pthread_mutex_lock(&machine.lock);
        bool alive = spend();
        if (alive) {
                size_t kept = 0;
                for (size_t i = 0; i < machine.changes.len; i++) {
                        if (strcmp(machine.changes.at[i].path, file->path) == 0)
                                change_fini(&machine.changes.at[i]);
                        else
                                machine.changes.at[kept++] = machine.changes.at[i];
                }
                machine.changes.len = kept;
        }
        pthread_mutex_unlock(&machine.lock);
        return alive ? SQLITE_OK : SQLITE_IOERR_FSYNC;
}

static int lossy_size(sqlite3_file *f, sqlite3_int64 *size)
{
        return real_of(f)->pMethods->xFileSize(real_of(f), size);
}
static int lossy_lock(sqlite3_file *f, int level)
{
        return real_of(f)->pMethods->xLock(real_of(f), level);
}
static int lossy_unlock(sqlite3_file *f, int level)
{
        return real_of(f)->pMethods->xUnlock(real_of(f), level);
}
static int lossy_check_lock(sqlite3_file *f, int *ret)
{
        return real_of(f)->pMethods->xCheckReservedLock(real_of(f), ret);
}
static int lossy_control(sqlite3_file *f, int op, void *arg)
{
        return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}
static int lossy_sector(sqlite3_file *f _unused_)
{
        return SECTOR;
}
static int lossy_traits(sqlite3_file *f _unused_)
{
        return 0;
} /* no promise beyond sync */
static int lossy_shm_map(sqlite3_file *f, int region, int size, int extend, void volatile **p)
{
        return real_of(f)->pMethods->xShmMap(real_of(f), region, size, extend, p);
}
static int lossy_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
        return real_of(f)->pMethods->xShmLock(real_of(f), at, n, flags);
}
static void lossy_shm_barrier(sqlite3_file *f)
{
        real_of(f)->pMethods->xShmBarrier(real_of(f));
}
static int lossy_shm_unmap(sqlite3_file *f, int del)
{
        return real_of(f)->pMethods->xShmUnmap(real_of(f), del);
}

static const sqlite3_io_methods methods = {
        .iVersion = 2,
        .xClose = lossy_close,
        .xRead = lossy_read,
        .xWrite = lossy_write,
        .xTruncate = lossy_truncate,
        .xSync = lossy_sync,
        .xFileSize = lossy_size,
        .xLock = lossy_lock,
        .xUnlock = lossy_unlock,
        .xCheckReservedLock = lossy_check_lock,
        .xFileControl = lossy_control,
        .xSectorSize = lossy_sector,
        .xDeviceCharacteristics = lossy_traits,
        .xShmMap = lossy_shm_map,
        .xShmLock = lossy_shm_lock,
        .xShmBarrier = lossy_shm_barrier,
        .xShmUnmap = lossy_shm_unmap,
};

/* ---- the layer ---- */

static int lossy_open(sqlite3_vfs *vfs _unused_, const char *name, sqlite3_file *f, int flags,
                      int *ret_flags)
{
        struct lossy_file *file = (struct lossy_file *)f;
        memset(file, 0, sizeof(*file));
        if (lossy_is_dead())
                return SQLITE_CANTOPEN;
        file->real = mem_must((size_t)real_vfs->szOsFile);
        int rc = real_vfs->xOpen(real_vfs, name, file->real, flags, ret_flags);
        if (rc != SQLITE_OK) {
                mem_free(file->real);
                return rc;
        }
        file->path = mem_strdup(name ? name : "");
        file->base.pMethods = &methods;
        return SQLITE_OK;
}

static int lossy_delete(sqlite3_vfs *vfs _unused_, const char *name, int sync)
{
        return lossy_is_dead() ? SQLITE_IOERR_DELETE : real_vfs->xDelete(real_vfs, name, sync);
}

void lossy_register(void)
{
        static sqlite3_vfs vfs;
        if (real_vfs)
                return;
        real_vfs = sqlite3_vfs_find(NULL);
        vfs = *real_vfs;
        vfs.szOsFile = (int)sizeof(struct lossy_file);
        vfs.zName = "lossy";
        vfs.pNext = NULL;
        vfs.xOpen = lossy_open;
        vfs.xDelete = lossy_delete;
        sqlite3_vfs_register(&vfs, 0);
}

void lossy_cut(int64_t operations)
{
        pthread_mutex_lock(&machine.lock);
        machine.left = operations;
        machine.operations = 0;
        machine.dead = false;
        pthread_mutex_unlock(&machine.lock);
}

int64_t lossy_operations(void)
{
        pthread_mutex_lock(&machine.lock);
        int64_t n = machine.operations;
        pthread_mutex_unlock(&machine.lock);
        return n;
}

bool lossy_is_dead(void)
{
        pthread_mutex_lock(&machine.lock);
        bool dead = machine.dead;
        pthread_mutex_unlock(&machine.lock);
        return dead;
}

/* ---- power loss ---- */

static int open_file(const char *path)
{
        /* a log that was deleted since has nothing to lose */
        int fd = open(path, O_RDWR | O_CLOEXEC);
        return fd;
}

static void undo(const struct change *c)
{
        int fd = open_file(c->path);
        if (fd < 0)
                return;
        must(pwrite(fd, c->old_data, c->old_len, c->offset) == (ssize_t)c->old_len &&
                 ftruncate(fd, c->old_size) == 0,
             "undo a write");
        close(fd);
}

static void redo_some(const struct change *c, struct rng *rng)
{
        int fd = open_file(c->path);
        if (fd < 0)
                return;
        bool all = rng_chance(rng, 300000), none = rng_chance(rng, 300000);
        if (!c->new_data) {
                must(!all || ftruncate(fd, c->offset) == 0, "redo a truncation");
        } else {
                for (size_t at = 0; at < c->len && !none; at += SECTOR) {
                        size_t n = c->len - at < SECTOR ? c->len - at : SECTOR;
                        if (all || rng_chance(rng, 500000))
                                must(pwrite(fd, c->new_data + at, n,
                                            c->offset + (sqlite3_int64)at) == (ssize_t)n,
                                     "redo a write");
                }
        }
        close(fd);
}

void lossy_power_loss(struct rng *rng)
{
        for (size_t i = machine.changes.len; i-- > 0;)
                undo(&machine.changes.at[i]);
        for (size_t i = 0; rng && i < machine.changes.len; i++)
                redo_some(&machine.changes.at[i], rng);
        lossy_forget();
}

void lossy_forget(void)
{
        for (size_t i = 0; i < machine.changes.len; i++)
                change_fini(&machine.changes.at[i]);
        array_fini(&machine.changes);
}
