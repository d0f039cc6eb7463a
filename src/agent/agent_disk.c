/* agent/agent_disk.c: the agent's records on disk.
 *
 * One small file per unit, in the unit's own directory: it goes with the unit when that is removed,
 * a damaged one harms no other, and a person can see what is there. A write is beside, synced,
 * renamed, synced. A plan that brings many units at once is written as a batch: all files, one
 * syncfs, all renames, one syncfs, so that 10,000 units cost two flushes of the disk and not
 * 20,000.
 */
#include "agent/agent_state.h"
#include "agent/runtimes/lease_file.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_NAME "record.pb"
#define RECORD_MAX_BYTES (4 * 1024 * 1024)
#define BATCH_MIN 4 /* fewer: one by one is as fast */
#define LOCK_WAIT_NS INT64_C(2000000000)

int agent_disk_lock(const char *data_dir, int *ret_fd, struct err *err)
{
        int r = dir_make(data_dir, 0750, err), fd;

        if (r < 0)
                return r;
        fd = open(fmt("%s/lock", data_dir), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
                return err_sys(err, errno, fmt("cannot open %s/lock", data_dir));
        /* What an agent that was killed had just forked holds its lock until it has become another
         * program. */
        int64_t end_ns = clock_mono_ns() + LOCK_WAIT_NS;
        while ((r = flock(fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK &&
               clock_mono_ns() < end_ns)
                (void)usleep(20000);
        if (r < 0) {
                int why = errno;
                close(fd);
                if (why != EWOULDBLOCK)
                        return err_sys(err, why, fmt("cannot lock %s/lock", data_dir));
                return err_set(
                    err, ERR_CONFLICT, .msg = "another agent uses this data directory",
                    .detail = data_dir,
                    .hint = "stop it first, or give this agent a directory of its own with --data");
        }
        *ret_fd = fd;
        return 0;
}

int agent_disk_read(const char *data_dir, struct str *ret, struct err *err)
{
        const char *path = fmt("%s/agent.pb", data_dir);

        if (!file_exists(path))
                return err_set(err, ERR_NOT_FOUND, .msg = "no agent was here before");
        return file_read(path, RECORD_MAX_BYTES, ret, err);
}

static int load_unit(struct agent *a, const char *path, struct err *ret_err)
{
        _cleanup_(str_finip) struct str data = STR_INIT;
        struct err err = { 0 };
        int r = file_read(path, RECORD_MAX_BYTES, &data, &err);

        if (r == 0)
                r = engine_load_unit(a->engine, str_c(&data), data.len, &err);
        if (r == -ERR_NOMEM) { /* there is nothing wrong with the record */
                if (ret_err)
                        *ret_err = err;
                return r;
        }
        if (r < 0) {
                log_error("a unit's record cannot be used; it is put aside", LOG_S("path", path),
                          LOG_E(&err));
                rename(path, fmt("%s.bad", path));
        }
        return 0;
}

int agent_disk_load_units(struct agent *a, struct err *err)
{
        _cleanup_(mem_freep) char *units = mem_strdup(fmt("%s/units", a->data_dir));
        struct dirent *de;
        DIR *dir;
        int r = dir_make(units, 0750, err);

        if (r < 0)
                return r;
        dir = opendir(units);
        if (!dir)
                return err_sys(err, errno, fmt("cannot read %s", units));
        while (r == 0 && (de = readdir(dir))) {
                const char *path = fmt("%s/%s/" RECORD_NAME, units, de->d_name);

                if (de->d_name[0] != '.' && file_exists(path))
                        r = load_unit(a, path, err);
        }
        closedir(dir);
        return r;
}

static char *record_path(const char *data_dir, const struct engine_order *o)
{
        if (o->kind == ORDER_PERSIST_AGENT)
                return mem_strdup(fmt("%s/agent.pb", data_dir));
        return mem_strdup(fmt("%s/units/%s/" RECORD_NAME, data_dir, o->workload_id));
}

static int make_unit_dir(const char *data_dir, const struct engine_order *o, struct err *err)
{
        return o->kind == ORDER_PERSIST_UNIT
                   ? dir_make(fmt("%s/units/%s", data_dir, o->workload_id), 0750, err)
                   : 0;
}

static int forget(const char *data_dir, const struct engine_order *o, struct err *err)
{
        _cleanup_(mem_freep) char *path = record_path(data_dir, o);

        if (unlink(path) < 0 && errno != ENOENT && errno != ENOTDIR)
                return err_sys(err, errno, fmt("cannot delete %s", path));
        rmdir(fmt("%s/units/%s", data_dir, o->workload_id)); /* if it was the last thing in it */
        return 0;
}

static int write_one(const char *data_dir, const struct engine_order *o, struct err *err)
{
        _cleanup_(mem_freep) char *path = record_path(data_dir, o);
        int r = make_unit_dir(data_dir, o, err);

        return r < 0 ? r : file_write_atomic(path, o->data, o->len, 0600, err);
}

static int write_beside(const char *data_dir, const struct engine_order *o, struct err *err)
{
        _cleanup_(mem_freep) char *path = record_path(data_dir, o);
        int fd, r = make_unit_dir(data_dir, o, err);
        ssize_t n;

        if (r < 0)
                return r;
        fd = open(fmt("%s.batch", path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0)
                return err_sys(err, errno, fmt("cannot create %s.batch", path));
        n = write(fd, o->data, o->len);
        r = n == (ssize_t)o->len
                ? 0
                : err_sys(err, n < 0 ? errno : ENOSPC, fmt("cannot write %s.batch", path));
        close(fd);
        return r;
}

static int flush_disk(const char *data_dir, struct err *err)
{
        int fd = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

        if (fd < 0)
                return err_sys(err, errno, fmt("cannot open %s", data_dir));
        r = syncfs(fd) < 0 ? err_sys(err, errno, "cannot flush the disk") : 0;
        close(fd);
        return r;
}

static void write_batch(const char *data_dir, const struct engine_order *orders, size_t n,
                        bool *failed, struct err *err)
{
        bool flushed;

        for (size_t i = 0; i < n; i++)
                failed[i] = orders[i].kind != ORDER_FORGET_UNIT &&
                            write_beside(data_dir, &orders[i], err) < 0;
        flushed = flush_disk(data_dir, err) == 0;
        for (size_t i = 0; i < n; i++) {
                _cleanup_(mem_freep) char *path = record_path(data_dir, &orders[i]);

                if (orders[i].kind == ORDER_FORGET_UNIT)
                        continue;
                failed[i] = failed[i] || !flushed;
                if (!failed[i] && rename(fmt("%s.batch", path), path) < 0) {
                        err_sys(err, errno, fmt("cannot write %s", path));
                        failed[i] = true;
                }
        }
        flushed = flush_disk(data_dir, err) == 0;
        for (size_t i = 0; i < n; i++)
                failed[i] = failed[i] || (!flushed && orders[i].kind != ORDER_FORGET_UNIT);
}

void agent_disk_write(const char *data_dir, const struct engine_order *orders, size_t n,
                      bool *failed, struct err *err)
{
        size_t writes = 0;

        for (size_t i = 0; i < n; i++) {
                failed[i] = false;
                if (orders[i].kind == ORDER_FORGET_UNIT)
                        failed[i] = forget(data_dir, &orders[i], err) < 0;
                else
                        writes++;
        }
        if (writes > BATCH_MIN) {
                write_batch(data_dir, orders, n, failed, err);
                return;
        }
        for (size_t i = 0; i < n; i++)
                if (orders[i].kind != ORDER_FORGET_UNIT)
                        failed[i] = write_one(data_dir, &orders[i], err) < 0;
}

/* ---- the lease ---- */

void agent_disk_write_lease(struct agent *a, const struct engine_order *o)
{
        struct lease_file lease = { .until_ms = o->until_ms, .kill_ms = o->kill_ms };
        struct err err = { 0 };

        if (a->data_dir && lease_file_write(fmt("%s/lease", a->data_dir), &lease, &err) < 0)
                log_error("the lease could not be written down: exclusive units are stopped when "
                          "the last one that was has run out",
                          LOG_S("node", a->node_id), LOG_E(&err));
}

void agent_disk_load_lease(struct agent *a)
{
        struct lease_file lease = lease_file_read(fmt("%s/lease", a->data_dir));

        if (lease.until_ms > 0)
                engine_load_lease(a->engine, lease.until_ms, lease.kill_ms);
}
