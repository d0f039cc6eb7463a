/* agent/runtimes/unit_files.c: see unit_files.h. */
#include "agent/runtimes/unit_files.h"
#include "agent/runtimes/cgroup.h"
#include "base/file.h"
#include "base/map.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_MAX_BYTES 8192
#define LAUNCH_MAX_BYTES (4 * 1024 * 1024)

int file_replace(const char *path, const void *data, size_t len, unsigned mode, struct err *err)
{
        _cleanup_(str_finip) struct str tmp = STR_INIT;
        size_t done = 0;
        int fd, saved;

        str_addf(&tmp, "%s.new", path);
        fd = open(str_c(&tmp), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
        if (fd < 0)
                return err_sys(err, errno, fmt("cannot create %s", str_c(&tmp)));
        while (done < len) {
                ssize_t n = write(fd, (const char *)data + done, len - done);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0) {
                        saved = errno;
                        close(fd);
                        unlink(str_c(&tmp));
                        return err_sys(err, saved, fmt("cannot write %s", str_c(&tmp)));
                }
                done += (size_t)n;
        }
        close(fd);
        if (rename(str_c(&tmp), path) < 0) {
                saved = errno;
                unlink(str_c(&tmp));
                return err_sys(err, saved, fmt("cannot write %s", path));
        }
        return 0;
}

static void copy_line(char *to, size_t size, const char *from)
{
        size_t i = 0;

        for (; from[i] && i + 1 < size; i++)
                to[i] = from[i] == '\n' ? ' ' : from[i];
        to[i] = 0;
}

static void read_pair(struct unit_state *s, const char *key, const char *value)
{
        int64_t n = 0;

        if (str_eq(key, "token"))
                sscanf(value, "%" SCNu64 ".%" SCNu64, &s->token.epoch, &s->token.seq);
        else if (str_eq(key, "revision"))
                copy_line(s->revision, sizeof(s->revision), value);
        else if (str_eq(key, "boot_id"))
                copy_line(s->boot_id, sizeof(s->boot_id), value);
        else if (str_eq(key, "cgroup"))
                copy_line(s->cgroup, sizeof(s->cgroup), value);
        else if (str_eq(key, "message"))
                copy_line(s->message, sizeof(s->message), value);
        else if (str_parse_i64(value, &n) < 0)
                return;
        else if (str_eq(key, "monitor"))
                s->monitor = n;
        else if (str_eq(key, "monitor_start"))
                s->monitor_start = n;
        else if (str_eq(key, "pid"))
                s->pid = n;
        else if (str_eq(key, "pid_start"))
                s->pid_start = n;
        else if (str_eq(key, "started_at"))
                s->started_at = n;
        else if (str_eq(key, "finished_at"))
                s->finished_at = n;
        else if (str_eq(key, "exit_code")) {
                s->has_exit_code = true;
                s->exit_code = (int32_t)n;
        } else if (str_eq(key, "signal")) {
                s->has_signal = true;
                s->signal = (int32_t)n;
        } else if (str_eq(key, "oom"))
                s->oom = n != 0;
        else if (str_eq(key, "stopped"))
                s->stopped = n != 0;
        else if (str_eq(key, "start_failed"))
                s->start_failed = n != 0;
        else if (str_eq(key, "lease_expired"))
                s->lease_expired = n != 0;
        else if (str_eq(key, "told_to_stop"))
                s->told_to_stop = (int32_t)n;
        else if (str_eq(key, "forks"))
                s->forks = n > 0 ? (uint64_t)n : 0;
}

int unit_state_read(const char *dir, const char *name, struct unit_state *ret, struct err *err)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        const char *path = fmt("%s/%s", dir, name);
        char *line, *save = NULL;
        int r;

        if (!file_exists(path))
                return err_set(err, ERR_NOT_FOUND, .msg = "the unit has no such state",
                               .detail = path);
        r = file_read(path, STATE_MAX_BYTES, &text, err);
        if (r < 0)
                return r;
        *ret = (struct unit_state){ 0 };
        for (line = text.buf ? strtok_r(text.buf, "\n", &save) : NULL; line;
             line = strtok_r(NULL, "\n", &save)) {
                char *eq = strchr(line, '=');

                if (!eq)
                        continue;
                *eq = 0;
                read_pair(ret, line, eq + 1);
        }
        return 0;
}

int unit_state_write(const char *dir, const char *name, const struct unit_state *s, struct err *err)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        char message[sizeof(s->message)];

        str_addf(&out, "token=%" PRIu64 ".%" PRIu64 "\nrevision=%s\nboot_id=%s\n", s->token.epoch,
                 s->token.seq, s->revision, s->boot_id);
        str_addf(&out,
                 "monitor=%" PRIi64 "\nmonitor_start=%" PRIi64 "\npid=%" PRIi64
                 "\npid_start=%" PRIi64 "\n",
                 s->monitor, s->monitor_start, s->pid, s->pid_start);
        str_addf(&out, "started_at=%" PRIi64 "\n", s->started_at);
        if (s->finished_at)
                str_addf(&out, "finished_at=%" PRIi64 "\n", s->finished_at);
        if (s->has_exit_code)
                str_addf(&out, "exit_code=%d\n", s->exit_code);
        if (s->has_signal)
                str_addf(&out, "signal=%d\n", s->signal);
        if (s->oom)
                str_adds(&out, "oom=1\n");
        if (s->stopped)
                str_adds(&out, "stopped=1\n");
        if (s->start_failed)
                str_adds(&out, "start_failed=1\n");
        if (s->lease_expired)
                str_adds(&out, "lease_expired=1\n");
        if (s->told_to_stop)
                str_addf(&out, "told_to_stop=%d\n", s->told_to_stop);
        if (s->forks)
                str_addf(&out, "forks=%" PRIu64 "\n", s->forks);
        if (s->cgroup[0])
                str_addf(&out, "cgroup=%s\n", s->cgroup);
        copy_line(message, sizeof(message), s->message);
        if (message[0])
                str_addf(&out, "message=%s\n", message);
        return file_replace(fmt("%s/%s", dir, name), str_c(&out), out.len, 0600, err);
}

int unit_launch_read(const char *dir, Pb__PlanUnit **ret, struct err *err)
{
        _cleanup_(str_finip) struct str data = STR_INIT;
        Pb__PlanUnit *p;
        int r = file_read(fmt("%s/launch.pb", dir), LAUNCH_MAX_BYTES, &data, err);

        if (r < 0)
                return r;
        p = pb__plan_unit__unpack(NULL, data.len, (const uint8_t *)str_c(&data));
        if (!p || !p->token || !p->workload || !p->workload->spec) {
                if (p)
                        pb__plan_unit__free_unpacked(p, NULL);
                return err_set(err, ERR_CORRUPT, .msg = "the unit's launch file does not parse",
                               .detail = dir);
        }
        *ret = p;
        return 0;
}

void unit_mark(const char *dir, struct unit_token token, struct str *out)
{
        str_addf(out, "BERTH_UNIT=%s@%" PRIu64 ".%" PRIu64, dir, token.epoch, token.seq);
}

void unit_cgroup_name(const char *workload_id, const char *dir, char ret[UNIT_CGROUP_LEN])
{
        snprintf(ret, UNIT_CGROUP_LEN, "%.40s-%016" PRIx64, workload_id, hash64(dir, strlen(dir)));
}

bool unit_strays(const char *dir, const struct unit_state *s, pid_list *out)
{
        _cleanup_(str_finip) struct str mark = STR_INIT;
        struct proc_session session = { (pid_t)s->pid, (uint64_t)s->pid_start, s->forks };
        bool whole;

        unit_mark(dir, s->token, &mark);
        whole = proc_marked(&session, str_c(&mark), out);
        return cgroup_processes(s->cgroup, out) && whole;
}
