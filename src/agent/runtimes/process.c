/* agent/runtimes/process.c: units that are processes of this machine.
 *
 * Each unit has a monitor (monitor.c), a process of its own that outlives the agent. The agent
 * talks to it in four ways: the launch file, a lock that the monitor inherits (locked = a monitor
 * lives or is about to), one line over a pipe when the command runs, and a signal to stop. That a
 * unit ended is learnt from a pidfd on the monitor, which works for monitors that this agent did
 * not start as well; how it ended is in exit.state.
 *
 * What is trusted after a restart (find): the lock; then pid + start time + boot id of run.state. A
 * monitor that vanished without exit.state was killed: the processes that it left (by cgroup, by
 * session, by the mark in their environment) are killed and only then the unit is reported as gone.
 * So is what commands inside a unit (berth exec) left behind, before any end is reported.
 *
 * Only "no such process" or another start time proves that a monitor is gone. One that cannot be
 * watched, since no file descriptor or no memory is left, is looked at every second until it can
 * be.
 */
#include "agent/runtimes/cgroup.h"
#include "agent/runtimes/process_state.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* a monitor that has not ended this long after the grace is killed, and its unit with it */
#define ESCALATE_MS 10000
#define LOOK_MS 1000
#define FD_RESERVE_MIN 16
#define FD_RESERVE_MAX 256
#define DIR_MAX 700 /* so that every path below it fits where paths are built */

/* ---- units in memory ---- */

static struct map_key key_of_punit(const void *ctx, uint32_t ix)
{
        const struct runtime *rt = ctx;

        return (struct map_key){ rt->units.at[ix]->id, strlen(rt->units.at[ix]->id) };
}

struct punit *process_find(const struct runtime *rt, const char *id)
{
        uint32_t ix = map_get(&rt->by_id, id, strlen(id));

        return ix == MAP_NONE ? NULL : rt->units.at[ix];
}

struct punit *punit_new(struct runtime *rt, const char *id, struct unit_token token)
{
        struct punit *p = mem_must(sizeof(*p));

        p->rt = rt;
        p->id = mem_strdup(id);
        p->dir = mem_strdup(fmt("%s/%s", rt->units_dir, id));
        p->token = token;
        p->status_fd = p->pidfd = -1;
        for (p->ix = 0; p->ix < rt->units.len && rt->units.at[p->ix]; p->ix++)
                ;
        if (p->ix == rt->units.len)
                array_push(&rt->units);
        rt->units.at[p->ix] = p;
        map_put(&rt->by_id, p->ix);
        return p;
}

void process_close_event(struct event **ev, int *fd)
{
        if (*ev)
                event_free(*ev);
        *ev = NULL;
        if (fd && *fd >= 0) {
                close(*fd);
                *fd = -1;
        }
}

void punit_free(struct punit *p)
{
        map_remove(&p->rt->by_id, p->ix);
        p->rt->units.at[p->ix] = NULL;
        process_close_event(&p->status_event, &p->status_fd);
        process_close_event(&p->pidfd_event, &p->pidfd);
        process_close_event(&p->timer, NULL);
        process_close_event(&p->look, NULL);
        str_fini(&p->line);
        mem_free(p->launch);
        mem_free(p->id);
        mem_free(p->dir);
        mem_free(p);
}

void process_emit(struct runtime *rt, const struct runtime_event *ev)
{
        rt->on_event(rt->ctx, ev);
}

void process_start_failed(struct runtime *rt, const char *id, struct unit_token token,
                          Pb__Reason__E reason, const char *message)
{
        process_emit(rt, &(struct runtime_event){ .kind = RUNTIME_START_FAILED,
                                                  .workload_id = id,
                                                  .token = token,
                                                  .at_ms = clock_wall_ms(),
                                                  .reason = reason,
                                                  .message = message });
}

/* ---- the end of a unit ---- */

static void look_later(struct punit *p);

/* Nothing of it runs any more. state: how it ended. */
static void ended(struct punit *p, enum runtime_event_kind kind, const struct unit_state *s,
                  Pb__Reason__E reason, const char *message)
{
        struct runtime *rt = p->rt;
        char *id = mem_strdup(p->id);
        struct runtime_event ev = {
                .kind = kind,
                .workload_id = id,
                .token = p->token,
                .at_ms = s && s->finished_at ? s->finished_at : clock_wall_ms(),
                .has_exit_code = s && s->has_exit_code,
                .exit_code = s ? s->exit_code : 0,
                .has_signal = s && s->has_signal,
                .signal = s ? s->signal : 0,
                .oom = s && s->oom,
                .reason = reason,
                .message = message && message[0] ? message : NULL,
        };

        punit_free(p);
        exec_unit_ended(rt, id);
        process_emit(rt, &ev);
        logread_unit_ended(rt, id);
        mem_free(id);
}

/* True: nothing of it is left, for certain. */
bool process_kill_leftovers(const char *dir, const struct unit_state *s)
{
        pid_list list = { 0 };
        bool none = unit_strays(dir, s, &list) && list.len == 0;

        for (size_t i = 0; i < list.len; i++)
                kill(list.at[i], SIGKILL);
        array_fini(&list);
        return none;
}

void process_write_killed(const char *dir, struct unit_state *s)
{
        s->finished_at = clock_wall_ms();
        s->has_signal = true;
        s->signal = SIGKILL;
        snprintf(s->message, sizeof(s->message), "the unit's monitor was killed");
        unit_state_write(dir, "exit.state", s, NULL);
        cgroup_remove(s->cgroup);
}

/* none: the engine derives it */
Pb__Reason__E process_why_ended(const struct unit_state *s)
{
        return s->start_failed                  ? PB__REASON__E__start_failed
               : s->lease_expired               ? PB__REASON__E__lease_expired
               : s->told_to_stop && !s->stopped ? PB__REASON__E__killed
                                                : PB__REASON__E__none;
}

static void all_is_gone(struct punit *p)
{
        struct unit_state s = p->has_ended ? p->ending : p->state;

        if (p->has_ended) {
                cgroup_remove(s.cgroup);
                ended(p, p->stop_asked ? RUNTIME_STOPPED : RUNTIME_EXITED, &s,
                      process_why_ended(&s), s.message);
                return;
        }
        process_write_killed(p->dir, &s);
        if (p->stop_asked)
                ended(p, RUNTIME_STOPPED, &s, PB__REASON__E__none, NULL);
        else
                ended(p, RUNTIME_EXITED, &s, PB__REASON__E__killed, s.message);
}

static void clean_turn(evutil_socket_t fd, short what, void *arg)
{
        struct punit *p = arg;
        struct timeval again = { 0, CLEAN_AGAIN_MS * 1000 };

        (void)fd, (void)what;
        if (process_kill_leftovers(p->dir, &p->state)) {
                all_is_gone(p);
                return;
        }
        if (++p->clean_rounds == 500)
                log_warn("processes of a unit cannot be killed, or not be looked for",
                         LOG_S("workload", p->id));
        if (p->clean_rounds > 500)
                again.tv_sec = 1;
        evtimer_add(p->timer, &again);
}

void punit_clean(struct punit *p)
{
        p->phase = PUNIT_CLEANING;
        process_close_event(&p->status_event, &p->status_fd);
        process_close_event(&p->pidfd_event, &p->pidfd);
        process_close_event(&p->timer, NULL);
        process_close_event(&p->look, NULL);
        p->timer = evtimer_new(p->rt->base, clean_turn, p);
        exec_unit_ended(p->rt, p->id);
        clean_turn(-1, 0, p);
}

/* Commands were run inside it: what they left behind is not below its monitor, which may have ended
 * before the last one was started. */
bool process_had_commands(const char *dir)
{
        return file_exists(fmt("%s/" UNIT_EXEC_NAME, dir));
}

void punit_monitor_end(evutil_socket_t fd, short what, void *arg)
{
        struct punit *p = arg;
        struct unit_state s;
        int r = unit_state_read(p->dir, "exit.state", &s, NULL);

        (void)fd, (void)what;
        if (r == -ERR_NOMEM) {
                look_later(p);
                return;
        }
        p->has_ended = r == 0 && unit_token_cmp(s.token, p->token) == 0;
        if (p->has_ended)
                p->ending = s;
        if (!p->has_ended || process_had_commands(p->dir))
                punit_clean(p);
        else
                ended(p, p->stop_asked ? RUNTIME_STOPPED : RUNTIME_EXITED, &s,
                      process_why_ended(&s), s.message);
}

/* ---- watching ---- */

/* Watches the monitor by a pidfd, if one can be spared. */
static enum proc_look try_to_watch(struct punit *p)
{
        struct runtime *rt = p->rt;
        /* first: from here on it is this process, whoever that is */
        int fd = pidfd_open_for((pid_t)p->state.monitor);
        enum proc_look look =
            fd < 0 && errno == ESRCH
                ? PROC_GONE
                : proc_look((pid_t)p->state.monitor, (uint64_t)p->state.monitor_start);

        if (fd >= 0 && fd <= rt->fd_most && look == PROC_THERE) {
                p->pidfd = fd;
                p->pidfd_event = event_new(rt->base, p->pidfd, EV_READ, punit_monitor_end, p);
                event_add(p->pidfd_event, NULL);
                return PROC_THERE;
        }
        if (fd >= 0)
                close(fd);
        return look == PROC_GONE ? PROC_GONE : PROC_UNKNOWN;
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
        struct punit *p = arg;
        enum proc_look look = try_to_watch(p);

        (void)fd, (void)what;
        if (look == PROC_GONE) {
                punit_monitor_end(-1, 0, p);
                return;
        }
        if (p->stop_asked && !p->stop_sent)
                punit_send_stop(p);
        if (look == PROC_UNKNOWN)
                look_later(p);
}

static void look_later(struct punit *p)
{
        if (!p->rt->warned_fds) {
                p->rt->warned_fds = true;
                log_warn("units are looked at every second, since file descriptors are short",
                         LOG_S("workload", p->id), LOG_I("limit", p->rt->fd_most),
                         LOG_S("hint", "allow the agent more open files (ulimit -n, LimitNOFILE)"));
        }
        if (!p->look)
                p->look = evtimer_new(p->rt->base, on_look, p);
        evtimer_add(p->look, &(struct timeval){ .tv_sec = LOOK_MS / 1000 });
}

/* False: it is gone, which is proved. */
bool punit_watch(struct punit *p)
{
        enum proc_look look = try_to_watch(p);

        if (look == PROC_GONE)
                return false;
        p->phase = PUNIT_UP;
        if (look == PROC_UNKNOWN)
                look_later(p);
        return true;
}

/* ---- stopping ---- */

/* True: it was sent, or there is nobody left who could take it. */
static bool signal_monitor(const struct punit *p, int signum, int value)
{
        int fd = p->pidfd >= 0 ? p->pidfd : pidfd_open_for((pid_t)p->state.monitor);
        bool sent = fd < 0 && errno == ESRCH;

        if (fd >= 0 && (p->pidfd >= 0 || proc_look((pid_t)p->state.monitor,
                                                   (uint64_t)p->state.monitor_start) == PROC_THERE))
                sent = pidfd_signal(fd, signum, value) == 0 || errno == ESRCH;
        if (fd >= 0 && p->pidfd < 0)
                close(fd);
        return sent;
}

static void on_escalate(evutil_socket_t fd, short what, void *arg)
{
        struct punit *p = arg;

        (void)fd, (void)what;
        log_warn("a unit's monitor does not end, killing it", LOG_S("workload", p->id),
                 LOG_I("monitor", p->state.monitor));
        (void)signal_monitor(p, SIGKILL, 0); /* its end arrives by the pidfd */
}

void punit_send_stop(struct punit *p)
{
        int64_t wait_ms = p->grace_ms + ESCALATE_MS;
        struct timeval wait = { wait_ms / 1000, (wait_ms % 1000) * 1000 };

        if (!p->timer)
                p->timer = evtimer_new(p->rt->base, on_escalate, p);
        evtimer_add(p->timer, &wait);
        /* if not: on_look() tries again */
        p->stop_sent = signal_monitor(p, SIGUSR1, (int)p->grace_ms);
}

static void process_stop(struct runtime *rt, const char *workload_id, struct unit_token token,
                         int64_t grace_ms)
{
        struct punit *p = process_find(rt, workload_id);

        if (!p) {
                process_emit(rt, &(struct runtime_event){ .kind = RUNTIME_STOPPED,
                                                          .workload_id = workload_id,
                                                          .token = token,
                                                          .at_ms = clock_wall_ms() });
                return;
        }
        p->stop_asked = true;
        p->grace_ms = grace_ms < 0 ? 0 : grace_ms > INT32_MAX ? INT32_MAX : grace_ms;
        if (p->phase == PUNIT_WAITING)
                ended(p, RUNTIME_STOPPED, NULL, PB__REASON__E__none, NULL);
        else if (p->phase == PUNIT_UP)
                punit_send_stop(p); /* a starting one is told as soon as it can hear */
}

/* ---- removing ---- */

/* Renamed first: a crash in the middle leaves rubbish with a name that says so, never half a
 * unit. */
static void process_remove(struct runtime *rt, const char *workload_id)
{
        struct err err = { 0 };
        _cleanup_(mem_freep) char *trash = NULL;
        char cgroup[UNIT_CGROUP_LEN];

        if (process_find(rt, workload_id)) {
                log_error("a unit that still runs cannot be removed",
                          LOG_S("workload", workload_id));
                return;
        }
        unit_cgroup_name(workload_id, fmt("%s/%s", rt->units_dir, workload_id), cgroup);
        cgroup_remove(cgroup); /* mostly its monitor has done so */
        unit_user_release(&rt->users, fmt("%s/%s", rt->units_dir, workload_id));
        trash = mem_strdup(
            fmt("%s/.trash-%s-%d-%u", rt->units_dir, workload_id, (int)getpid(), rt->trash++));
        if (rename(fmt("%s/%s", rt->units_dir, workload_id), trash) == 0 &&
            dir_remove(trash, &err) < 0)
                log_warn("a removed unit's files could not be deleted", LOG_S("path", trash),
                         LOG_E(&err));
        process_emit(rt, &(struct runtime_event){ .kind = RUNTIME_REMOVED,
                                                  .workload_id = workload_id,
                                                  .at_ms = clock_wall_ms() });
}

/* ---- life ---- */

static void process_close(struct runtime *rt)
{
        logread_close_all(rt);
        exec_close_all(rt);
        for (size_t i = 0; i < rt->units.len; i++)
                if (rt->units.at[i])
                        punit_free(rt->units.at[i]);
        array_fini(&rt->units);
        array_fini(&rt->logs);
        array_fini(&rt->execs);
        array_fini(&rt->own);
        map_fini(&rt->by_id);
        process_close_event(&rt->inotify_event, &rt->inotify_fd);
        unit_users_fini(&rt->users);
        mem_free(rt->units_dir);
        mem_free(rt->data_dir);
        mem_free(rt->node_id);
        mem_free(rt->program);
        mem_free(rt);
}

/* What one agent keeps open for long must leave room for its connections, its files and the pipes
 * of the next start. */
static int fd_most(void)
{
        struct rlimit limit;
        int64_t all = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < INT32_MAX
                          ? (int64_t)limit.rlim_cur
                          : INT32_MAX;
        int64_t reserve = all / 4;

        reserve = reserve < FD_RESERVE_MIN   ? FD_RESERVE_MIN
                  : reserve > FD_RESERVE_MAX ? FD_RESERVE_MAX
                                             : reserve;
        return (int)(all - 1 - reserve);
}

static int process_open(const struct runtime_options *opt, struct runtime **ret, struct err *err)
{
        _cleanup_(mem_freep) char *units = mem_strdup(fmt("%s/units", opt->data_dir));
        char self[4096], *real;
        struct runtime *rt;
        struct unit_users users;
        int r = unit_users_parse(opt->unit_users, &users, err);

        if (r == 0)
                r = dir_make(units, 0750, err);
        if (r < 0)
                return r;
        /* marks in environments carry it: it must be the same for every agent of this directory */
        real = realpath(units, NULL);
        if (!real)
                return err_sys(err, errno, fmt("cannot use %s", units));
        if (strlen(real) > DIR_MAX) {
                free(real);
                return err_set(err, ERR_INVALID, .msg = "the data directory's path is too long",
                               .detail = fmt("at most %d bytes", DIR_MAX));
        }
        rt = mem_must(sizeof(*rt));
        rt->base = opt->base;
        rt->units_dir = mem_strdup(real);
        free(real);
        rt->users = users;
        unit_users_load(&rt->users, rt->units_dir);
        rt->data_dir = mem_strdup(opt->data_dir);
        rt->node_id = mem_strdup(opt->node_id ? opt->node_id : "");
        rt->on_event = opt->on_event;
        rt->ctx = opt->ctx;
        rt->inotify_fd = -1;
        rt->fd_most = fd_most();
        map_init(&rt->by_id, key_of_punit, rt);
        if (opt->program)
                rt->program = mem_strdup(opt->program);
        /* not /proc/self/exe itself: that of the child would be meant, which is the same, but shows
         * badly in ps */
        else {
                ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

                if (n > 0)
                        self[n] = 0;
                rt->program =
                    mem_strdup(n > 0 && access(self, X_OK) == 0 ? self : "/proc/self/exe");
        }
        *ret = rt;
        return 0;
}

static const Pb__WorkloadType__E process_types[] = { PB__WORKLOAD_TYPE__E__process, 0 };

const struct runtime_ops runtime_process = {
        .name = "process",
        .types = process_types,
        .exclusive_types = process_types,
        .open = process_open,
        .close = process_close,
        .find = process_find_all,
        .start = process_start,
        .stop = process_stop,
        .remove = process_remove,
        .logs = logread_open,
        .exec = exec_open,
        .usage = process_usage,
};
