/* agent/runtimes/monitor.c: "berth __unit <dir>": the process that watches over one unit.
 *
 * The agent starts one per unit and may then be killed, upgraded or restarted: the monitor holds
 * the unit's output pipes, reaps its processes and keeps the exit code. It lives in a session of
 * its own and is the subreaper of all that the unit starts, also of what calls setsid or
 * daemonises, so "waitpid has no children left" is the proof that nothing of the unit runs.
 * Commands that an agent runs inside it (berth exec) are not below the monitor: what those leave
 * behind is found by the unit's cgroup and mark, and ends with it as well.
 *
 *      start the command -> run.state, "started" to the agent
 *      SIGUSR1 (value: grace in ms), SIGTERM, SIGINT -> SIGTERM to the command's group; after the
 *      grace SIGKILL to every descendant the command ended -> what it left behind gets SIGTERM,
 *      then SIGKILL; then exit.state, and the end
 *
 * An exclusive unit that may move is stopped, and killed if need be, when the agent's lease
 * (lease_file.h) has run out, whether the agent lives or not: until then the file must name a later
 * time.
 *
 * If the monitor itself is killed the kernel kills the command (PDEATHSIG) and the agent the rest
 * (process.c).
 */
#include "agent/runtime.h"
#include "agent/runtimes/cgroup.h"
#include "agent/runtimes/launch.h"
#include "agent/runtimes/lease_file.h"
#include "agent/runtimes/logfile.h"
#include "agent/runtimes/unit_files.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/mutant.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_GRACE_MS 10000
/* what the command leaves behind has this long, or the grace if that is shorter */
#define LINGER_MS 5000
#define KILL_AGAIN_MS 50 /* SIGKILL again to whatever was forked meanwhile */
#define STRAYS_MAX_MS 1000
#define PARTIAL_MS 500      /* a line without an end is written after this much silence */
#define DRAIN_MAX (1 << 20) /* output read after the end */

struct monitor {
        const char *dir;
        Pb__PlanUnit *unit;
        struct launch launch;
        struct unit_state state;
        struct log_writer log;
        pid_t pid;             /* the command; 0 once reaped */
        int signal_fd, out[2]; /* read ends: stdout, stderr */
        int64_t grace_ms;
        int64_t kill_at_ms; /* INT64_MAX: not stopping */
        char *lease;        /* the file; NULL: it needs no lease */
        int lease_fd;       /* a timer for its end, which a suspend does not delay */
        bool no_children;
        int64_t stray_ms; /* how long to wait before looking again for what was left behind */
};

static void begin_stop(struct monitor *m, int64_t grace_ms, bool asked);

static int64_t mono_ms(void)
{
        return clock_mono_ns() / 1000000;
}

/* The agent may be gone or not interested: then nobody reads. */
static void tell_agent(const char *line)
{
        ssize_t n = write(UNIT_FD_STATUS, line, strlen(line));

        (void)n;
        close(UNIT_FD_STATUS);
}

static int give_up(struct monitor *m, const struct err *err)
{
        m->state.start_failed = true;
        m->state.finished_at = clock_wall_ms();
        snprintf(m->state.message, sizeof(m->state.message), "%s", err_line(err));
        unit_state_write(m->dir, "exit.state", &m->state, NULL);
        cgroup_remove(m->state.cgroup);
        close(UNIT_FD_LOCK); /* from here on the agent may start it anew */
        tell_agent(fmt("failed %s\n", m->state.message));
        return 0;
}

static int set_up_signals(struct monitor *m, struct err *err)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGHUP);
        sigprocmask(SIG_SETMASK, &set, NULL);
        signal(SIGPIPE, SIG_IGN);
        m->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        return m->signal_fd < 0 ? err_sys(err, errno, "cannot watch signals") : 0;
}

static void set_up_limits(struct monitor *m)
{
        const Pb__Resources *r = m->unit->workload->resources;
        struct cgroup_limits limits = {
                .cpu_milli = r ? r->cpu : 0,
                .memory_bytes = r ? r->memory_mb * 1024 * 1024 : 0,
                .max_processes = m->unit->workload->spec->max_processes,
        };
        char missing[CGROUP_MISSING_LEN], name[UNIT_CGROUP_LEN];

        unit_cgroup_name(m->unit->unit_id, m->dir, name);
        if (cgroup_make(name, &limits, missing)) {
                snprintf(m->state.cgroup, sizeof(m->state.cgroup), "%s", name);
                snprintf(m->launch.cgroup, sizeof(m->launch.cgroup), "%s", name);
        }
        if (missing[0])
                snprintf(m->state.message, sizeof(m->state.message),
                         "limits not enforced on this machine: %s", missing);
}

static _noreturn_ void child(struct monitor *m, int out, int errput, int error_fd)
{
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

        setsid();
        dup2(null, 0);
        dup2(out, 1);
        dup2(errput, 2);
        launch_exec(&m->launch, error_fd);
}

/* ---- the lease ---- */

/* The timer runs until the time that the file names now. */
static struct lease_file watch_lease(struct monitor *m)
{
        struct lease_file lease = lease_file_read(m->lease);
        int64_t at = lease.until_ms > 0 ? lease.until_ms : 1;
        struct itimerspec when = { .it_value = { .tv_sec = at / 1000,
                                                 .tv_nsec = at % 1000 * 1000000 } };

        timerfd_settime(m->lease_fd, TFD_TIMER_ABSTIME, &when, NULL);
        return lease;
}

static int set_up_lease(struct monitor *m, struct err *err)
{
        if (m->unit->workload->exclusive != PB__EXCLUSIVE__E__movable)
                return 0;
        m->lease = mem_strdup(fmt("%s/../../lease", m->dir));
        m->lease_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
        if (m->lease_fd < 0)
                return err_sys(err, errno, "cannot watch the agent's lease");
        if (watch_lease(m).until_ms <= clock_steady_ms())
                return err_set(err, ERR_FAILED,
                               .msg =
                                   "the agent's lease has run out: nothing exclusive is started");
        return 0;
}

/* Its time has come, unless the agent has written down a later one meanwhile. */
static void on_lease(struct monitor *m)
{
        uint64_t times;
        struct lease_file lease;
        int64_t now = clock_steady_ms();

        if (m->lease_fd < 0 || read(m->lease_fd, &times, sizeof(times)) != (ssize_t)sizeof(times))
                return;
        lease = watch_lease(m);
        if (lease.until_ms > now || m->state.lease_expired || MUTANT(monitor_ignores_lease))
                return;
        close(m->lease_fd);
        m->lease_fd = -1;
        m->state.lease_expired = true;
        begin_stop(m, lease.kill_ms > now ? lease.kill_ms - now : 0, false);
}

/* Everything but 0, 1, 2 is close-on-exec here: status and lock are set so in unit_main(). */
static int start_command(struct monitor *m, struct err *err)
{
        int out[2], errput[2], error[2], r;

        if (pipe2(out, O_CLOEXEC) < 0 || pipe2(errput, O_CLOEXEC) < 0 ||
            pipe2(error, O_CLOEXEC) < 0)
                return err_sys(err, errno, "cannot make pipes");
        m->state.forks = proc_forks();
        m->pid = fork();
        if (m->pid < 0)
                return err_sys(err, errno, "cannot fork");
        if (m->pid == 0)
                child(m, out[1], errput[1], error[1]);
        close(out[1]);
        close(errput[1]);
        close(error[1]);
        m->state.pid = m->pid;
        /* 0: it has ended already, or is hidden */
        m->state.pid_start = (int64_t)proc_start_time(m->pid);
        r = launch_result(&m->launch, error[0], err);
        close(error[0]);
        m->out[0] = out[0];
        m->out[1] = errput[0];
        fd_nonblock(out[0]);
        fd_nonblock(errput[0]);
        if (r < 0)
                waitpid(m->pid, NULL, 0);
        return r;
}

/* Kills all that belongs to the unit: what descends from us, what is in its cgroup, and, if
 * commands were run inside it, what those left behind. True: there was nothing, for certain. */
static bool kill_all(struct monitor *m)
{
        pid_list all = { 0 };
        bool none = proc_descendants(getpid(), &all);

        if (file_exists(fmt("%s/" UNIT_EXEC_NAME, m->dir)))
                none = unit_strays(m->dir, &m->state, &all) && none;
        else
                none = cgroup_processes(m->state.cgroup, &all) && none;
        for (size_t i = 0; i < all.len; i++) {
                if (all.at[i] == getpid())
                        continue;
                none = false;
                kill(all.at[i], SIGKILL);
        }
        array_fini(&all);
        return none;
}

/* What is not below us has no grace of its own: it was there for the unit, which has ended. */
static bool is_over(struct monitor *m)
{
        return m->no_children && kill_all(m);
}

static void begin_stop(struct monitor *m, int64_t grace_ms, bool asked)
{
        int64_t at = mono_ms() + grace_ms;

        m->state.stopped = m->state.stopped || asked;
        if (at < m->kill_at_ms)
                m->kill_at_ms = at;
        if (m->pid > 0)
                kill(-m->pid, SIGTERM);
}

/* The command is gone, others may not be: they get the polite signal and then the other. */
static void begin_linger(struct monitor *m)
{
        pid_list rest = { 0 };
        int64_t at = mono_ms() + (m->grace_ms < LINGER_MS ? m->grace_ms : LINGER_MS);

        proc_descendants(getpid(), &rest);
        for (size_t i = 0; i < rest.len; i++)
                kill(rest.at[i], SIGTERM);
        array_fini(&rest);
        if (at < m->kill_at_ms)
                m->kill_at_ms = at;
}

static void reap(struct monitor *m)
{
        for (;;) {
                int status;
                pid_t pid = waitpid(-1, &status, WNOHANG);

                if (pid < 0 && errno == EINTR)
                        continue;
                if (pid <= 0) {
                        m->no_children = pid < 0 && errno == ECHILD;
                        return;
                }
                if (pid != m->pid)
                        continue;
                m->pid = 0;
                m->state.finished_at = clock_wall_ms();
                m->state.has_exit_code = WIFEXITED(status);
                m->state.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
                m->state.has_signal = WIFSIGNALED(status);
                m->state.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
                begin_linger(m);
        }
}

static void on_signals(struct monitor *m)
{
        struct signalfd_siginfo si;

        while (read(m->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
                if (si.ssi_signo == SIGUSR1)
                        begin_stop(m, si.ssi_int >= 0 ? si.ssi_int : m->grace_ms, true);
                else if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT) {
                        m->state.told_to_stop = (int32_t)si.ssi_signo;
                        begin_stop(m, m->grace_ms, false);
                }
        }
        reap(m);
}

/* False: nothing more to read for now. */
static bool read_output(struct monitor *m, int which)
{
        char buf[65536];
        ssize_t n;

        if (m->out[which] < 0)
                return false;
        n = read(m->out[which], buf, sizeof(buf));
        if (n > 0) {
                log_writer_add(&m->log, which == 1, clock_wall_ms(), buf, (size_t)n);
                return true;
        }
        if (n == 0) {
                close(m->out[which]);
                m->out[which] = -1;
        }
        return false;
}

static void watch(struct monitor *m)
{
        while (!is_over(m)) {
                struct pollfd fds[4] = { { m->signal_fd, POLLIN, 0 },
                                         { m->out[0], POLLIN, 0 },
                                         { m->out[1], POLLIN, 0 },
                                         { m->lease_fd, POLLIN, 0 } };
                int64_t now = mono_ms(),
                        timeout = log_writer_has_partial(&m->log) ? PARTIAL_MS : -1;
                int n;

                if (m->no_children) { /* the end of what is not below us is not told by a signal */
                        m->stray_ms =
                            m->stray_ms < STRAYS_MAX_MS / 2 ? m->stray_ms * 2 + 1 : STRAYS_MAX_MS;
                        timeout = timeout < 0 || timeout > m->stray_ms ? m->stray_ms : timeout;
                }
                if (m->kill_at_ms != INT64_MAX && (timeout < 0 || m->kill_at_ms - now < timeout))
                        timeout = m->kill_at_ms > now ? m->kill_at_ms - now : 0;
                n = poll(fds, 4, (int)(timeout > 60000 ? 60000 : timeout));
                if (n == 0)
                        log_writer_flush(&m->log, clock_wall_ms());
                if (n > 0 && fds[1].revents)
                        read_output(m, 0);
                if (n > 0 && fds[2].revents)
                        read_output(m, 1);
                if (n > 0 && fds[3].revents)
                        on_lease(m);
                on_signals(m);
                if (!m->no_children && mono_ms() >= m->kill_at_ms) {
                        (void)kill_all(m);
                        m->kill_at_ms = mono_ms() + KILL_AGAIN_MS;
                }
        }
        for (int which = 0; which < 2; which++)
                for (int rounds = 0; rounds < DRAIN_MAX / 4096 && read_output(m, which); rounds++)
                        ;
}

static void finish(struct monitor *m)
{
        log_writer_close(&m->log);
        m->state.message[0] = 0;
        if (m->state.cgroup[0]) {
                m->state.oom = cgroup_oom(m->state.cgroup);
                cgroup_remove(m->state.cgroup);
        }
        if (m->state.oom)
                snprintf(m->state.message, sizeof(m->state.message),
                         "out of memory: the limit is %" PRIi64 " MiB",
                         m->unit->workload->resources ? m->unit->workload->resources->memory_mb
                                                      : 0);
        else if (m->state.told_to_stop && !m->state.stopped && !m->state.lease_expired)
                snprintf(m->state.message, sizeof(m->state.message),
                         "stopped because somebody sent signal %d to its monitor, process %" PRIi64,
                         m->state.told_to_stop, m->state.monitor);
        unit_state_write(m->dir, "exit.state", &m->state, NULL);
        close(UNIT_FD_LOCK);
}

static int begin(struct monitor *m, const char *node_id, struct err *err)
{
        int r = unit_launch_read(m->dir, &m->unit, err);

        if (r < 0)
                return r;
        if (!m->state.monitor_start)
                return err_set(err, ERR_FAILED, .msg = "the unit's monitor cannot read /proc",
                               .detail = "no agent could tell it from another process later");
        m->state.token = (struct unit_token){ m->unit->token->epoch, m->unit->token->seq };
        snprintf(m->state.revision, sizeof(m->state.revision), "%s",
                 m->unit->workload->revision_id ? m->unit->workload->revision_id : "");
        m->grace_ms = m->unit->workload->stop_grace_seconds > 0
                          ? (int64_t)m->unit->workload->stop_grace_seconds * 1000
                          : DEFAULT_GRACE_MS;
        if ((r = set_up_signals(m, err)) < 0 ||
            (r = launch_prepare(m->unit, node_id, m->dir, NULL, &m->launch, err)) < 0 ||
            (r = log_writer_open(&m->log, m->dir, m->unit->workload->spec->log_max_kb, err)) < 0)
                return r;
        if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
                return err_sys(err, errno, "cannot become the reaper of the unit's processes");
        if ((r = set_up_lease(m, err)) < 0)
                return r;
        set_up_limits(m);
        return start_command(m, err);
}

bool unit_main_wanted(int argc, char **argv)
{
        return argc >= 3 && strcmp(argv[1], UNIT_MODE) == 0;
}

int unit_main(int argc, char **argv)
{
        struct monitor m = { .signal_fd = -1,
                             .lease_fd = -1,
                             .out = { -1, -1 },
                             .kill_at_ms = INT64_MAX,
                             .log = { .fd = -1 } };
        const char *node_id = getenv("BERTH_NODE_ID");
        struct err err = { 0 };

        if (argc < 3)
                return 2;
        m.dir = argv[2];
        prctl(PR_SET_NAME, "berth-unit");
        fcntl(UNIT_FD_STATUS, F_SETFD, FD_CLOEXEC);
        fcntl(UNIT_FD_LOCK, F_SETFD, FD_CLOEXEC);
        umask(022);
        snprintf(m.state.boot_id, sizeof(m.state.boot_id), "%s", proc_boot_id());
        m.state.monitor = getpid();
        m.state.monitor_start = (int64_t)proc_start_time(getpid());
        if (begin(&m, node_id ? node_id : "", &err) < 0)
                return give_up(&m, &err);
        m.state.started_at = clock_wall_ms();
        if (unit_state_write(m.dir, "run.state", &m.state, &err) < 0) {
                /* without it no agent could find the unit again */
                (void)kill_all(&m);
                while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
                        ;
                return give_up(&m, &err);
        }
        tell_agent(fmt("started %" PRIi64 " %" PRIi64 " %" PRIi64 " %" PRIi64 " %s\n",
                       m.state.monitor, m.state.monitor_start, m.state.pid, m.state.started_at,
                       m.state.message));
        watch(&m);
        finish(&m);
        launch_fini(&m.launch);
        mem_free(m.lease);
        pb__plan_unit__free_unpacked(m.unit, NULL);
        return 0;
}
