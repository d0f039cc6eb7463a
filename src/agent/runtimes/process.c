/* agent/runtimes/process.c: units that are processes of this machine.
 *
 * Each unit has a monitor (monitor.c), a process of its own that outlives the agent. The agent talks to it in four ways: the launch file, a lock that the
 * monitor inherits (locked = a monitor lives or is about to), one line over a pipe when the command runs, and a signal to stop. That a unit
 * ended is learnt from a pidfd on the monitor, which works for monitors that this agent did not start as well; how it ended is in exit.state.
 *
 * What is trusted after a restart (find): the lock; then pid + start time + boot id of run.state. A monitor that vanished without exit.state was killed: the
 * processes that it left (by cgroup, by session, by the mark in their environment) are killed and only then the unit is reported as gone.
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
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ESCALATE_MS 10000 /* a monitor that has not ended this long after the grace is killed, and its unit with it */
#define CLEAN_AGAIN_MS 20
#define FIND_WAIT_MS 5000 /* at boot: how long a monitor that was just being started may take to speak */
#define STATUS_LINE_MAX 2048
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

static struct punit *punit_new(struct runtime *rt, const char *id, struct unit_token token)
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

static void close_event(struct event **ev, int *fd)
{
        if (*ev)
                event_free(*ev);
        *ev = NULL;
        if (fd && *fd >= 0) {
                close(*fd);
                *fd = -1;
        }
}

static void punit_free(struct punit *p)
{
        map_remove(&p->rt->by_id, p->ix);
        p->rt->units.at[p->ix] = NULL;
        close_event(&p->status_event, &p->status_fd);
        close_event(&p->pidfd_event, &p->pidfd);
        close_event(&p->timer, NULL);
        str_fini(&p->line);
        mem_free(p->id);
        mem_free(p->dir);
        mem_free(p);
}

static void emit(struct runtime *rt, const struct runtime_event *ev)
{
        rt->on_event(rt->ctx, ev);
}

static void start_failed(struct runtime *rt, const char *id, struct unit_token token, Pb__Reason__E reason, const char *message)
{
        emit(rt, &(struct runtime_event){ .kind = RUNTIME_START_FAILED,
                                          .workload_id = id,
                                          .token = token,
                                          .at_ms = clock_wall_ms(),
                                          .reason = reason,
                                          .message = message });
}

/* ---- the end of a unit ---- */

/* Nothing of it runs any more. state: how it ended. */
static void ended(struct punit *p, enum runtime_event_kind kind, const struct unit_state *s, Pb__Reason__E reason, const char *message)
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
        emit(rt, &ev);
        logread_unit_ended(rt, id);
        mem_free(id);
}

static size_t kill_leftovers(const char *dir, const struct unit_state *s)
{
        _cleanup_(str_finip) struct str mark = STR_INIT;
        pid_list list = { 0 };
        size_t n;

        unit_mark(dir, s->token, &mark);
        proc_marked((pid_t)s->pid, (uint64_t)s->pid_start, str_c(&mark), &list);
        cgroup_processes(s->cgroup, &list);
        for (size_t i = 0; i < list.len; i++)
                kill(list.at[i], SIGKILL);
        n = list.len;
        array_fini(&list);
        return n;
}

static void write_killed(const char *dir, struct unit_state *s)
{
        s->finished_at = clock_wall_ms();
        s->has_signal = true;
        s->signal = SIGKILL;
        snprintf(s->message, sizeof(s->message), "the unit's monitor was killed");
        unit_state_write(dir, "exit.state", s, NULL);
        cgroup_remove(s->cgroup);
}

static void clean_turn(evutil_socket_t fd, short what, void *arg)
{
        struct punit *p = arg;
        struct timeval again = { 0, CLEAN_AGAIN_MS * 1000 };

        (void)fd, (void)what;
        if (kill_leftovers(p->dir, &p->state) > 0) {
                if (++p->clean_rounds == 500)
                        log_warn("processes of a unit cannot be killed", LOG_S("workload", p->id));
                if (p->clean_rounds > 500)
                        again.tv_sec = 1;
                evtimer_add(p->timer, &again);
                return;
        }
        write_killed(p->dir, &p->state);
        if (p->stop_asked)
                ended(p, RUNTIME_STOPPED, &p->state, PB__REASON__E__none, NULL);
        else {
                struct unit_state s = p->state;

                ended(p, RUNTIME_EXITED, &s, PB__REASON__E__killed, s.message);
        }
}

static void begin_cleaning(struct punit *p)
{
        p->phase = PUNIT_CLEANING;
        close_event(&p->status_event, &p->status_fd);
        close_event(&p->pidfd_event, &p->pidfd);
        close_event(&p->timer, NULL);
        p->timer = evtimer_new(p->rt->base, clean_turn, p);
        clean_turn(-1, 0, p);
}

/* none: the engine derives it */
static Pb__Reason__E why_ended(const struct unit_state *s)
{
        return s->start_failed ? PB__REASON__E__start_failed : s->lease_expired ? PB__REASON__E__lease_expired : PB__REASON__E__none;
}

static void on_monitor_end(evutil_socket_t fd, short what, void *arg)
{
        struct punit *p = arg;
        struct unit_state s;

        (void)fd, (void)what;
        if (unit_state_read(p->dir, "exit.state", &s, NULL) < 0 || unit_token_cmp(s.token, p->token) != 0) {
                begin_cleaning(p);
                return;
        }
        ended(p, p->stop_asked ? RUNTIME_STOPPED : RUNTIME_EXITED, &s, why_ended(&s), s.message);
}

/* ---- stopping ---- */

static void on_escalate(evutil_socket_t fd, short what, void *arg)
{
        struct punit *p = arg;

        (void)fd, (void)what;
        log_warn("a unit's monitor does not end, killing it", LOG_S("workload", p->id), LOG_I("monitor", p->state.monitor));
        pidfd_signal(p->pidfd, SIGKILL, 0); /* its end arrives by the pidfd */
}

static void send_stop(struct punit *p)
{
        int64_t wait_ms = p->grace_ms + ESCALATE_MS;
        struct timeval wait = { wait_ms / 1000, (wait_ms % 1000) * 1000 };

        if (!p->timer)
                p->timer = evtimer_new(p->rt->base, on_escalate, p);
        evtimer_add(p->timer, &wait);
        pidfd_signal(p->pidfd, SIGUSR1, (int)p->grace_ms);
}

static void process_stop(struct runtime *rt, const char *workload_id, struct unit_token token, int64_t grace_ms)
{
        struct punit *p = process_find(rt, workload_id);

        if (!p) {
                emit(rt, &(struct runtime_event){
                             .kind = RUNTIME_STOPPED, .workload_id = workload_id, .token = token, .at_ms = clock_wall_ms() });
                return;
        }
        p->stop_asked = true;
        p->grace_ms = grace_ms < 0 ? 0 : grace_ms > INT32_MAX ? INT32_MAX : grace_ms;
        if (p->phase == PUNIT_UP)
                send_stop(p); /* a starting one is told as soon as it can hear */
}

/* ---- starting ---- */

static int watch_monitor(struct punit *p)
{
        p->pidfd = pidfd_open_for((pid_t)p->state.monitor);
        if (p->pidfd < 0)
                return -1;
        if (proc_start_time((pid_t)p->state.monitor) != (uint64_t)p->state.monitor_start) {
                close(p->pidfd); /* ended, and perhaps somebody else has its number */
                p->pidfd = -1;
                return -1;
        }
        p->pidfd_event = event_new(p->rt->base, p->pidfd, EV_READ, on_monitor_end, p);
        event_add(p->pidfd_event, NULL);
        p->phase = PUNIT_UP;
        return 0;
}

static void on_started(struct punit *p, const char *line)
{
        struct runtime *rt = p->rt;
        char *id = mem_strdup(p->id);
        const char *note = strstr(line, "limits not enforced");

        if (note && !rt->warned_limits) {
                rt->warned_limits = true;
                log_warn(note, LOG_S("workload", p->id), LOG_S("hint", "run the agent as root, or delegate cgroup controllers to it"));
        }
        if (unit_state_read(p->dir, "run.state", &p->state, NULL) < 0)
                sscanf(line, "started %" SCNi64 " %" SCNi64 " %" SCNi64 " %" SCNi64, &p->state.monitor, &p->state.monitor_start,
                       &p->state.pid, &p->state.started_at);
        if (watch_monitor(p) == 0 && p->stop_asked)
                send_stop(p);
        emit(rt, &(struct runtime_event){
                     .kind = RUNTIME_STARTED, .workload_id = id, .token = p->token, .at_ms = p->state.started_at, .pid = p->state.pid });
        p = process_find(rt, id); /* the receiver may have done anything */
        mem_free(id);
        if (p && p->pidfd < 0 && p->phase == PUNIT_STARTING)
                on_monitor_end(-1, 0, p); /* it was quicker than us */
}

static void on_start_failed(struct punit *p, const char *message)
{
        struct runtime *rt = p->rt;
        char *id = mem_strdup(p->id), *text = mem_strdup(message);
        struct unit_token token = p->token;

        punit_free(p);
        start_failed(rt, id, token, PB__REASON__E__start_failed, text);
        logread_unit_ended(rt, id);
        mem_free(id);
        mem_free(text);
}

static void on_status(evutil_socket_t fd, short what, void *arg)
{
        struct punit *p = arg;
        _cleanup_(mem_freep) char *line = NULL;
        char buf[512];
        ssize_t n;

        (void)what;
        n = read(fd, buf, sizeof(buf));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n > 0 && p->line.len < STATUS_LINE_MAX)
                str_add(&p->line, buf, (size_t)n);
        if (n > 0 && !memchr(buf, '\n', (size_t)n))
                return;
        close_event(&p->status_event, &p->status_fd);
        line = str_take(&p->line);
        line[strcspn(line, "\n")] = 0;
        if (str_starts(line, "started "))
                on_started(p, line);
        else if (str_starts(line, "failed "))
                on_start_failed(p, line + strlen("failed "));
        else { /* the monitor died before it could say anything: perhaps after it forked */
                p->state.token = p->token;
                begin_cleaning(p);
        }
}

/* Between fork and exec in the child's child: no way back. */
static _noreturn_ void become_monitor(const struct runtime *rt, const struct punit *p, int status_fd, int lock_fd)
{
        char *const argv[] = { (char *)(uintptr_t) "berth", (char *)(uintptr_t)UNIT_MODE, p->dir, NULL };
        int null = open("/dev/null", O_RDWR);
        sigset_t none;

        setenv("BERTH_NODE_ID", rt->node_id, 1);
        /* over high numbers, so that neither overwrites the other */
        status_fd = fcntl(status_fd, F_DUPFD, 16);
        lock_fd = fcntl(lock_fd, F_DUPFD, 16);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        dup2(status_fd, UNIT_FD_STATUS);
        dup2(lock_fd, UNIT_FD_LOCK);
        syscall(SYS_close_range, UNIT_FD_LOCK + 1, ~0U, 0);
        sigemptyset(&none);
        for (int s = 1; s < NSIG; s++)
                if (s != SIGKILL && s != SIGSTOP)
                        signal(s, SIG_DFL);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execv(rt->program, argv);
        dprintf(UNIT_FD_STATUS, "failed cannot run %s: %s\n", rt->program, strerror(errno));
        _exit(127);
}

/* Twice forked, so that the monitor is nobody's child here and its end needs no reaping by an agent that may be another one by then. */
static int spawn_monitor(struct runtime *rt, struct punit *p, int lock_fd, struct err *err)
{
        int status[2];
        pid_t pid;

        if (pipe2(status, O_CLOEXEC | O_NONBLOCK) < 0)
                return err_sys(err, errno, "cannot make a pipe");
        pid = fork();
        if (pid < 0) {
                int saved = errno;

                close(status[0]);
                close(status[1]);
                return err_sys(err, saved, "cannot fork");
        }
        if (pid == 0) {
                pid_t again;

                setsid();
                again = fork();
                if (again == 0)
                        become_monitor(rt, p, status[1], lock_fd);
                _exit(again < 0 ? 1 : 0);
        }
        close(status[1]);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        p->status_fd = status[0];
        p->status_event = event_new(rt->base, p->status_fd, EV_READ | EV_PERSIST, on_status, p);
        event_add(p->status_event, NULL);
        return 0;
}

/* A monitor that has written exit.state is about to let go: it is waited for. Any other holder still has a unit. */
static bool take_lock(int fd, const char *dir)
{
        for (int i = 0; i < 500; i++) {
                if (flock(fd, LOCK_EX | LOCK_NB) == 0)
                        return true;
                if (!file_exists(fmt("%s/exit.state", dir)))
                        return false;
                usleep(2000);
        }
        return false;
}

/* The unit's directory with everything that the monitor needs, nothing of an earlier copy but its output. */
static int prepare_dir(struct runtime *rt, const struct runtime_start *start, int *ret_lock, struct err *err)
{
        _cleanup_(mem_freep) char *dir = mem_strdup(fmt("%s/%s", rt->units_dir, start->workload_id));
        Pb__PlanUnit unit = PB__PLAN_UNIT__INIT;
        Pb__Token token = PB__TOKEN__INIT;
        _cleanup_(mem_freep) uint8_t *data = NULL;
        size_t len;
        int lock, r;

        if ((r = dir_make(dir, 0750, err)) < 0)
                return r;
        lock = open(fmt("%s/lock", dir), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (lock < 0)
                return err_sys(err, errno, fmt("cannot open %s/lock", dir));
        if (!take_lock(lock, dir)) {
                close(lock);
                return err_set(err, ERR_CONFLICT, .msg = "an earlier copy of this unit still has its monitor", .detail = dir);
        }
        token.epoch = start->token.epoch;
        token.seq = start->token.seq;
        unit.workload_id = (char *)(uintptr_t)start->workload_id;
        unit.token = &token;
        unit.desired_state = PB__DESIRED_STATE__E__Running;
        unit.workload = (Pb__Workload *)(uintptr_t)start->workload;
        len = pb__plan_unit__get_packed_size(&unit);
        data = mem_must(len);
        pb__plan_unit__pack(&unit, data);
        unlink(fmt("%s/run.state", dir));
        unlink(fmt("%s/exit.state", dir));
        r = file_replace(fmt("%s/launch.pb", dir), data, len, 0600, err);
        if (r < 0) {
                close(lock);
                return r;
        }
        *ret_lock = lock;
        return 0;
}

static void process_start(struct runtime *rt, const struct runtime_start *start)
{
        struct err err = { 0 };
        struct punit *p;
        int lock = -1;

        if (start->workload->type != PB__WORKLOAD_TYPE__E__process) {
                start_failed(rt, start->workload_id, start->token, PB__REASON__E__runtime_unavailable,
                             "runtime not available: this agent runs units of type process only");
                return;
        }
        if (!start->workload->spec) {
                start_failed(rt, start->workload_id, start->token, PB__REASON__E__start_failed, "the unit has no spec");
                return;
        }
        if (process_find(rt, start->workload_id) || prepare_dir(rt, start, &lock, &err) < 0) {
                start_failed(rt, start->workload_id, start->token, PB__REASON__E__start_failed,
                             err.code ? err_line(&err) : "an earlier copy of this unit still runs");
                return;
        }
        p = punit_new(rt, start->workload_id, start->token);
        p->phase = PUNIT_STARTING;
        if (spawn_monitor(rt, p, lock, &err) < 0)
                on_start_failed(p, err_line(&err));
        close(lock); /* the monitor has its own */
}

/* ---- removing ---- */

/* Renamed first: a crash in the middle leaves rubbish with a name that says so, never half a unit. */
static void process_remove(struct runtime *rt, const char *workload_id)
{
        struct err err = { 0 };
        _cleanup_(mem_freep) char *trash = NULL;

        if (process_find(rt, workload_id)) {
                log_error("a unit that still runs cannot be removed", LOG_S("workload", workload_id));
                return;
        }
        trash = mem_strdup(fmt("%s/.trash-%s-%d-%u", rt->units_dir, workload_id, (int)getpid(), rt->trash++));
        if (rename(fmt("%s/%s", rt->units_dir, workload_id), trash) == 0 && dir_remove(trash, &err) < 0)
                log_warn("a removed unit's files could not be deleted", LOG_S("path", trash), LOG_E(&err));
        emit(rt, &(struct runtime_event){ .kind = RUNTIME_REMOVED, .workload_id = workload_id, .at_ms = clock_wall_ms() });
}

/* ---- after a restart of the agent ---- */

static bool lock_is_held(const char *dir)
{
        int fd = open(fmt("%s/lock", dir), O_RDWR | O_CLOEXEC);
        bool held;

        if (fd < 0)
                return false;
        held = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
        close(fd);
        return held;
}

/* A monitor lives but has not written run.state or exit.state: the last agent was killed while it started it. It speaks within milliseconds. */
static void wait_for_monitor(const char *dir)
{
        for (int i = 0; i < FIND_WAIT_MS / 5 && lock_is_held(dir); i++) {
                if (file_exists(fmt("%s/run.state", dir)) || file_exists(fmt("%s/exit.state", dir)))
                        return;
                usleep(5000);
        }
}

static void found(struct runtime *rt, const char *id, enum runtime_event_kind kind, const struct unit_state *s, Pb__Reason__E reason)
{
        emit(rt, &(struct runtime_event){ .kind = kind,
                                          .workload_id = id,
                                          .token = s->token,
                                          .revision_id = s->revision,
                                          .at_ms = kind == RUNTIME_FOUND_RUNNING ? s->started_at : s->finished_at,
                                          .pid = s->pid,
                                          .has_exit_code = s->has_exit_code,
                                          .exit_code = s->exit_code,
                                          .has_signal = s->has_signal,
                                          .signal = s->signal,
                                          .oom = s->oom,
                                          .reason = reason,
                                          .message = s->message[0] ? s->message : NULL });
}

/* The monitor was killed while no agent looked. */
static void find_orphans(struct runtime *rt, const char *id, const char *dir, struct unit_state *s)
{
        for (int i = 0; i < 250 && kill_leftovers(dir, s) > 0; i++)
                usleep(CLEAN_AGAIN_MS * 1000);
        write_killed(dir, s);
        found(rt, id, RUNTIME_FOUND_EXITED, s, PB__REASON__E__killed);
}

static void find_one(struct runtime *rt, const char *id)
{
        _cleanup_(mem_freep) char *dir = mem_strdup(fmt("%s/%s", rt->units_dir, id));
        struct unit_state s;
        struct punit *p;

        if (lock_is_held(dir))
                wait_for_monitor(dir);
        if (unit_state_read(dir, "exit.state", &s, NULL) == 0) { /* written when nothing of the unit was left */
                found(rt, id, RUNTIME_FOUND_EXITED, &s, why_ended(&s));
                return;
        }
        if (unit_state_read(dir, "run.state", &s, NULL) < 0)
                return; /* never started: the engine knows what that means */
        if (!str_eq(s.boot_id, proc_boot_id())) {
                s.finished_at = 0;
                snprintf(s.message, sizeof(s.message), "the machine was restarted while it ran");
                found(rt, id, RUNTIME_FOUND_GONE, &s, PB__REASON__E__none);
                return;
        }
        p = punit_new(rt, id, s.token);
        p->state = s;
        if (watch_monitor(p) == 0) {
                s.message[0] = 0;
                found(rt, id, RUNTIME_FOUND_RUNNING, &s, PB__REASON__E__none);
                return;
        }
        punit_free(p);
        if (unit_state_read(dir, "exit.state", &s, NULL) == 0) /* it ended between the two looks */
                found(rt, id, RUNTIME_FOUND_EXITED, &s, why_ended(&s));
        else
                find_orphans(rt, id, dir, &s);
}

static int process_find_all(struct runtime *rt, struct err *err)
{
        DIR *dir = opendir(rt->units_dir);
        struct dirent *de;

        if (!dir)
                return err_sys(err, errno, fmt("cannot read %s", rt->units_dir));
        while ((de = readdir(dir))) {
                if (str_starts(de->d_name, ".trash-"))
                        dir_remove(fmt("%s/%s", rt->units_dir, de->d_name), NULL);
                else if (de->d_name[0] != '.')
                        find_one(rt, de->d_name);
        }
        closedir(dir);
        return 0;
}

/* ---- usage of the machine ---- */

static void read_cpu(struct runtime *rt)
{
        unsigned long long v[8] = { 0 };
        uint64_t total = 0, busy;
        FILE *f = fopen("/proc/stat", "re");
        int n;

        if (!f)
                return;
        n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]);
        fclose(f);
        if (n < 5)
                return;
        for (int i = 0; i < 8; i++)
                total += v[i];
        busy = total - v[3] - v[4];
        if (rt->cpu_total && total > rt->cpu_total && busy >= rt->cpu_busy)
                rt->cpu_used = (int64_t)((busy - rt->cpu_busy) * 1000 * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) / (total - rt->cpu_total));
        rt->cpu_busy = busy;
        rt->cpu_total = total;
}

static void process_usage(struct runtime *rt, struct runtime_usage *ret)
{
        char line[128];
        long long total = 0, available = 0;
        struct statvfs fs;
        FILE *f = fopen("/proc/meminfo", "re");

        *ret = (struct runtime_usage){ 0 };
        read_cpu(rt);
        ret->cpu_used = rt->cpu_used;
        while (f && fgets(line, sizeof(line), f)) {
                sscanf(line, "MemTotal: %lld", &total);
                sscanf(line, "MemAvailable: %lld", &available);
        }
        if (f)
                fclose(f);
        ret->memory_used_mb = total > available ? (total - available) / 1024 : 0;
        if (statvfs(rt->data_dir, &fs) == 0) {
                ret->disk_used_gb = (int64_t)((uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize >> 30);
                ret->disk_free_gb = (int64_t)((uint64_t)fs.f_bavail * fs.f_frsize >> 30);
        }
        ret->of_machine = true;
        ret->cpu_free = sysconf(_SC_NPROCESSORS_ONLN) * 1000 - ret->cpu_used;
        ret->memory_free_mb = available / 1024;
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
        map_fini(&rt->by_id);
        close_event(&rt->inotify_event, &rt->inotify_fd);
        mem_free(rt->units_dir);
        mem_free(rt->data_dir);
        mem_free(rt->node_id);
        mem_free(rt->program);
        mem_free(rt);
}

static int process_open(const struct runtime_options *opt, struct runtime **ret, struct err *err)
{
        _cleanup_(mem_freep) char *units = mem_strdup(fmt("%s/units", opt->data_dir));
        char self[4096], *real;
        struct runtime *rt;
        int r = dir_make(units, 0750, err);

        if (r < 0)
                return r;
        real = realpath(units, NULL); /* marks in environments carry it: it must be the same for every agent of this directory */
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
        rt->data_dir = mem_strdup(opt->data_dir);
        rt->node_id = mem_strdup(opt->node_id ? opt->node_id : "");
        rt->on_event = opt->on_event;
        rt->ctx = opt->ctx;
        rt->inotify_fd = -1;
        map_init(&rt->by_id, key_of_punit, rt);
        if (opt->program)
                rt->program = mem_strdup(opt->program);
        else { /* not /proc/self/exe itself: that of the child would be meant, which is the same, but shows badly in ps */
                ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

                if (n > 0)
                        self[n] = 0;
                rt->program = mem_strdup(n > 0 && access(self, X_OK) == 0 ? self : "/proc/self/exe");
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
