/* agent/runtimes/process_start.c: starting a unit: its directory, its lock, its monitor, and what
 * that says. See process.c. */
#include "agent/runtimes/process_state.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS_LINE_MAX 2048
#define LOCK_AGAIN_MS 20
/* a monitor whose unit has ended and that does not let go by then is killed */
#define LOCK_KILL_MS 5000
#define LOCK_WAIT_MS 30000 /* and by then the start has failed */

/* ---- what the monitor says ---- */

static void on_started(struct punit *p, const char *line)
{
        struct runtime *rt = p->rt;
        char *id = mem_strdup(p->id);
        const char *note = strstr(line, "limits not enforced");

        if (note && !rt->warned_limits) {
                rt->warned_limits = true;
                log_warn(
                    note, LOG_S("workload", p->id),
                    LOG_S("hint", "run the agent as root, or delegate cgroup controllers to it"));
        }
        if (unit_state_read(p->dir, "run.state", &p->state, NULL) < 0)
                sscanf(line, "started %" SCNi64 " %" SCNi64 " %" SCNi64 " %" SCNi64,
                       &p->state.monitor, &p->state.monitor_start, &p->state.pid,
                       &p->state.started_at);
        if (punit_watch(p) && p->stop_asked)
                punit_send_stop(p);
        process_emit(rt, &(struct runtime_event){ .kind = RUNTIME_STARTED,
                                                  .workload_id = id,
                                                  .token = p->token,
                                                  .at_ms = p->state.started_at,
                                                  .pid = p->state.pid });
        p = process_find(rt, id); /* the receiver may have done anything */
        mem_free(id);
        if (p && p->phase == PUNIT_STARTING)
                punit_monitor_end(-1, 0, p); /* it was quicker than us */
}

static void on_start_failed(struct punit *p, const char *message)
{
        struct runtime *rt = p->rt;
        char *id = mem_strdup(p->id), *text = mem_strdup(message);
        struct unit_token token = p->token;

        punit_free(p);
        process_start_failed(rt, id, token, PB__REASON__E__start_failed, text);
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
        process_close_event(&p->status_event, &p->status_fd);
        line = str_take(&p->line);
        line[strcspn(line, "\n")] = 0;
        if (str_starts(line, "started "))
                on_started(p, line);
        else if (str_starts(line, "failed "))
                on_start_failed(p, line + strlen("failed "));
        else { /* the monitor died before it could say anything: perhaps after it forked */
                p->state.token = p->token;
                punit_clean(p);
        }
}

/* Between fork and exec in the child's child: no way back. */
static _noreturn_ void become_monitor(const struct runtime *rt, const struct punit *p,
                                      int status_fd, int lock_fd)
{
        char *const argv[] = { (char *)(uintptr_t) "berth", (char *)(uintptr_t)UNIT_MODE, p->dir,
                               NULL };
        int null = open("/dev/null", O_RDWR);
        sigset_t none;

        setenv("BERTH_NODE_ID", rt->node_id, 1);
        /* over higher numbers, so that neither overwrites the other */
        int status_copy = fcntl(status_fd, F_DUPFD, UNIT_FD_LOCK + 1),
            lock_copy = fcntl(lock_fd, F_DUPFD, UNIT_FD_LOCK + 1);
        /* without them nobody would find it again */
        if (null < 0 || status_copy < 0 || lock_copy < 0) {
                dprintf(status_fd, "failed cannot start the unit's monitor: %s\n", strerror(errno));
                _exit(127);
        }
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        dup2(status_copy, UNIT_FD_STATUS);
        dup2(lock_copy, UNIT_FD_LOCK);
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

/* Twice forked, so that the monitor is nobody's child here and its end needs no reaping by an agent
 * that may be another one by then. */
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

/* ---- starting ---- */

/* 0: the lock is ours. 1: a monitor has it whose unit has ended (exit.state is there), so it is
 * about to let go. Any other holder still has a unit. */
static int take_lock(const char *dir, int *ret_fd, struct err *err)
{
        int fd = open(fmt("%s/lock", dir), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

        if (fd < 0)
                return err_sys(err, errno, fmt("cannot open %s/lock", dir));
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
                *ret_fd = fd;
                return 0;
        }
        close(fd);
        if (file_exists(fmt("%s/exit.state", dir)))
                return 1;
        return err_set(err, ERR_CONFLICT,
                       .msg = "an earlier copy of this unit still has its monitor", .detail = dir);
}

/* Everything that the monitor needs, nothing of an earlier copy but its output; then the
 * monitor. */
static int start_monitor(struct punit *p, int lock, struct err *err)
{
        int r;

        unlink(fmt("%s/run.state", p->dir));
        unlink(fmt("%s/exit.state", p->dir));
        unlink(fmt("%s/" UNIT_EXEC_NAME, p->dir));
        r = file_replace(fmt("%s/launch.pb", p->dir), p->launch, p->launch_len, 0600, err);
        mem_free(p->launch);
        p->launch = NULL;
        p->phase = PUNIT_STARTING;
        return r < 0 ? r : spawn_monitor(p->rt, p, lock, err);
}

/* Nothing of its unit is left, and it does not end: stopped, or starved. */
static void kill_old_monitor(const struct punit *p)
{
        struct unit_state s;
        int fd;

        if (unit_state_read(p->dir, "exit.state", &s, NULL) < 0 ||
            !str_eq(s.boot_id, proc_boot_id()))
                return;
        fd = pidfd_open_for((pid_t)s.monitor);
        if (fd >= 0 && proc_look((pid_t)s.monitor, (uint64_t)s.monitor_start) == PROC_THERE)
                pidfd_signal(fd, SIGKILL, 0);
        fd_closep(&fd);
}

static void try_to_start(evutil_socket_t none, short what, void *arg)
{
        struct punit *p = arg;
        struct timeval again = { 0, LOCK_AGAIN_MS * 1000 };
        int64_t waited_ms = clock_mono_ns() / 1000000 - p->waits_since_ms;
        struct err err = { 0 };
        int lock = -1, r = take_lock(p->dir, &lock, &err);

        (void)none, (void)what;
        if (r == 1 && waited_ms < LOCK_WAIT_MS) {
                if (waited_ms > LOCK_KILL_MS)
                        kill_old_monitor(p);
                if (!p->timer)
                        p->timer = evtimer_new(p->rt->base, try_to_start, p);
                evtimer_add(p->timer, &again);
                return;
        }
        process_close_event(&p->timer, NULL);
        if (r == 1)
                r = err_set(&err, ERR_CONFLICT,
                            .msg = "the monitor of an earlier copy of this unit cannot be ended",
                            .detail = p->dir);
        if (r == 0)
                r = start_monitor(p, lock, &err);
        fd_closep(&lock); /* the monitor has its own */
        if (r < 0)
                on_start_failed(p, err_line(&err));
}

/* Whose numbers units have is the agent's to say: none of them can be asked for. */
static int settle_user(struct runtime *rt, const struct runtime_start *start, struct err *err)
{
        const char *user = start->workload->spec->user;
        uint32_t uid;
        uint64_t number;

        if (!start->workload->confine || rt->users.off)
                return 0;
        if (str_empty(user)) {
                _cleanup_(mem_freep) char *dir =
                    mem_strdup(fmt("%s/%s", rt->units_dir, start->workload_id));

                return unit_user_assign(&rt->users, rt->node_id, start->workload_id, dir, &uid,
                                        err);
        }
        if (str_parse_u64(user, &number) == 0 && number < UINT32_MAX &&
            unit_users_has(&rt->users, (uint32_t)number))
                return err_set(err, ERR_FAILED, .msg = fmt("user %s belongs to another unit", user),
                               .path = "spec.user",
                               .hint = "leave spec.user out: the unit gets a user of its own");
        return 0;
}

static void pack_launch(struct punit *p, const struct runtime_start *start)
{
        Pb__PlanUnit unit = PB__PLAN_UNIT__INIT;
        Pb__Token token = PB__TOKEN__INIT;
        Pb__Workload workload = *start->workload;

        workload.confine = workload.confine && !p->rt->users.off;
        token.epoch = start->token.epoch;
        token.seq = start->token.seq;
        unit.unit_id = p->id;
        unit.token = &token;
        unit.desired_state = PB__DESIRED_STATE__E__Running;
        unit.workload = &workload;
        p->launch_len = pb__plan_unit__get_packed_size(&unit);
        p->launch = mem_must(p->launch_len);
        pb__plan_unit__pack(&unit, p->launch);
}

void process_start(struct runtime *rt, const struct runtime_start *start)
{
        struct err err = { 0 };
        struct punit *p;

        if (start->workload->type != PB__WORKLOAD_TYPE__E__process) {
                process_start_failed(
                    rt, start->workload_id, start->token, PB__REASON__E__runtime_unavailable,
                    "runtime not available: this agent runs units of type process only");
                return;
        }
        if (!start->workload->spec) {
                process_start_failed(rt, start->workload_id, start->token,
                                     PB__REASON__E__start_failed, "the unit has no spec");
                return;
        }
        if (process_find(rt, start->workload_id) ||
            dir_make(fmt("%s/%s", rt->units_dir, start->workload_id), 0750, &err) < 0 ||
            settle_user(rt, start, &err) < 0) {
                process_start_failed(
                    rt, start->workload_id, start->token, PB__REASON__E__start_failed,
                    err.code ? err_line(&err) : "an earlier copy of this unit still runs");
                return;
        }
        p = punit_new(rt, start->workload_id, start->token);
        p->phase = PUNIT_WAITING;
        p->waits_since_ms = clock_mono_ns() / 1000000;
        pack_launch(p, start);
        try_to_start(-1, 0, p);
}
