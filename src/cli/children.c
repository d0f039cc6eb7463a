/* cli/children.c: see children.h. */
#include "cli/children.h"
#include "base/clock.h"
#include "base/file.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKOFF_MIN_MS 1000
#define BACKOFF_MAX_MS 30000
#define HEALTHY_MS 60000
#define LEFTOVER_PATIENCE_MS 30000

static int64_t now_ms(void)
{
        return clock_mono_ns() / 1000000;
}

static void watched_signals(sigset_t *ret)
{
        sigemptyset(ret);
        sigaddset(ret, SIGCHLD);
        sigaddset(ret, SIGINT);
        sigaddset(ret, SIGTERM);
        sigaddset(ret, SIGHUP);
}

void children_init(struct children *c, const char *dir, struct progress *progress)
{
        sigset_t set;
        *c = (struct children){ .dir = dir, .progress = progress };
        watched_signals(&set);
        sigprocmask(SIG_BLOCK, &set, NULL);
}

struct child *children_add(struct children *c, struct arena *arena, const char *name,
                           const char *const *argv)
{
        must(c->n < CHILDREN_MAX, "not too many children");
        struct child *child = &c->at[c->n++];
        size_t n = 0;
        while (argv[n])
                n++;
        (void)snprintf(child->name, sizeof(child->name), "%s", name);
        child->argv = arena_new_n(arena, char *, n + 1);
        for (size_t i = 0; i < n; i++)
                child->argv[i] = arena_strdup(arena, argv[i]);
        return child;
}

/* ---- who is there ---- */

uint64_t process_start_time(pid_t pid)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        unsigned long long start = 0;
        char state = 0;
        if (file_read(fmt("/proc/%d/stat", (int)pid), 4096, &text, NULL) < 0)
                return 0;
        const char *p = strrchr(str_c(&text), ')'); /* the name before it may hold anything */
        if (!p ||
            sscanf(
                p + 1,
                " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                &state, &start) != 2 ||
            state == 'Z')
                return 0;
        return start;
}

static void write_list(const struct children *c)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        for (size_t i = 0; i < c->n; i++)
                if (c->at[i].pid)
                        str_addf(&text, "%d %" PRIu64 " %s\n", (int)c->at[i].pid,
                                 process_start_time(c->at[i].pid), c->at[i].name);
        /* Best effort: without it a later dev cannot wait for what this one left behind, no
         * more. */
        (void)file_write_atomic(fmt("%s/dev.children", c->dir), str_c(&text), text.len, 0600, NULL);
}

struct leftover {
        pid_t pid;
        uint64_t start;
};

static size_t living(struct leftover *list, size_t n)
{
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
                if (process_start_time(list[i].pid) == list[i].start)
                        list[kept++] = list[i];
        return kept;
}

int children_clear_leftovers(const char *dir, struct progress *progress, struct err *err)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        struct leftover list[CHILDREN_MAX];
        size_t n = 0;
        if (file_read(fmt("%s/dev.children", dir), 65536, &text, NULL) < 0)
                return 0;
        for (const char *line = str_c(&text); *line && n < CHILDREN_MAX;) {
                int pid = 0;
                unsigned long long start = 0;
                if (sscanf(line, "%d %llu", &pid, &start) == 2 && pid > 1 && start)
                        list[n++] = (struct leftover){ .pid = pid, .start = start };
                size_t len = strcspn(line, "\n");
                line += len + (line[len] == '\n');
        }
        n = living(list, n);
        for (size_t i = 0; i < n; i++)
                /* the kernel has sent one already when their parent died; a stopped one may have
                 * missed it */
                kill(list[i].pid, SIGTERM);
        int64_t patience = now_ms() + LEFTOVER_PATIENCE_MS, killed = 0;
        while ((n = living(list, n)) > 0) {
                progress_show(progress, "waiting for %zu process%s of an earlier berth dev to end",
                              n, n == 1 ? "" : "es");
                if (now_ms() > patience) {
                        if (killed++)
                                return err_set(err, ERR_CONFLICT,
                                               .msg =
                                                   "a process of an earlier berth dev does not end",
                                               .detail = fmt("pid %d", (int)list[0].pid),
                                               .hint = "end it by hand");
                        for (size_t i = 0; i < n; i++)
                                kill(list[i].pid, SIGKILL);
                        patience = now_ms() + 5000;
                }
                (void)poll(NULL, 0, 100);
        }
        progress_clear(progress);
        return 0;
}

/* ---- starting ---- */

_noreturn_ static void run_child(const struct child *child, int log_fd, pid_t parent)
{
        sigset_t none;
        sigemptyset(&none);
        /* Its own process group: Ctrl-C at the terminal is for us, we stop the children in
         * order. */
        (void)setpgid(0, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) /* it died before the line above */
                _exit(1);
        int null_fd = open("/dev/null", O_RDONLY);
        if (null_fd >= 0)
                (void)dup2(null_fd, 0);
        (void)dup2(log_fd, 1);
        (void)dup2(log_fd, 2);
        (void)signal(SIGPIPE, SIG_DFL);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        execv("/proc/self/exe", child->argv);
        dprintf(2, "cannot run berth again: %s\n", strerror(errno));
        _exit(127);
}

int child_start(struct children *c, struct child *child, struct err *err)
{
        const char *path = fmt("%s/%s.log", c->dir, child->name);
        _cleanup_(fd_closep) int log_fd =
            open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (log_fd < 0)
                return err_sys(err, errno, fmt("cannot write %s", path));
        pid_t parent = getpid(), pid = fork();
        if (pid < 0)
                return err_sys(err, errno, fmt("cannot start %s", child->name));
        if (pid == 0)
                run_child(child, log_fd, parent);
        (void)setpgid(pid, pid);
        child->pid = pid;
        child->started_ms = now_ms();
        write_list(c);
        return 0;
}

const char *child_end_words(int status)
{
        if (WIFSIGNALED(status))
                return fmt("signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        return fmt("exit status %d", WEXITSTATUS(status));
}

static void child_ended(struct children *c, struct child *child, int status)
{
        int64_t now = now_ms();
        child->pid = 0;
        child->status = status;
        child->ends++;
        write_list(c);
        if (child->stop)
                return;
        if (now - child->started_ms >= HEALTHY_MS || child->backoff_ms == 0)
                child->backoff_ms = BACKOFF_MIN_MS;
        child->start_at_ms = now + child->backoff_ms;
        progress_note(
            c->progress, "%s ended (%s); starting it again in %" PRId64 " s, see %s/%s.log",
            child->name, child_end_words(status), child->backoff_ms / 1000, c->dir, child->name);
        child->backoff_ms =
            child->backoff_ms * 2 < BACKOFF_MAX_MS ? child->backoff_ms * 2 : BACKOFF_MAX_MS;
}

static void reap(struct children *c)
{
        int status = 0;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
                for (size_t i = 0; i < c->n; i++)
                        if (c->at[i].pid == pid)
                                child_ended(c, &c->at[i], status);
}

void children_wait(struct children *c, int64_t timeout_ms)
{
        sigset_t set;
        int64_t now = now_ms(), until = now + timeout_ms;
        for (size_t i = 0; i < c->n; i++)
                if (!c->at[i].pid && !c->at[i].stop && c->at[i].start_at_ms &&
                    c->at[i].start_at_ms < until)
                        until = c->at[i].start_at_ms;
        watched_signals(&set);
        int64_t left = until > now ? until - now : 0;
        struct timespec time = { .tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000 };
        int got = sigtimedwait(&set, NULL, &time);
        if (got == SIGINT || got == SIGTERM || got == SIGHUP)
                c->interrupts++;
        reap(c);
        for (size_t i = 0; i < c->n; i++) {
                struct child *child = &c->at[i];
                struct err err = { 0 };
                if (child->pid || child->stop || !child->start_at_ms ||
                    now_ms() < child->start_at_ms)
                        continue;
                child->start_at_ms = 0;
                if (child_start(c, child, &err) < 0) {
                        progress_note(c->progress, "%s", err_line(&err));
                        child->start_at_ms = now_ms() + child->backoff_ms;
                } else {
                        progress_note(c->progress, "%s started again", child->name);
                }
        }
}

/* ---- stopping ---- */

static size_t count_running(const struct children *c, size_t first, size_t last)
{
        size_t n = 0;
        for (size_t i = first; i < last; i++)
                n += c->at[i].pid != 0;
        return n;
}

static void signal_all(const struct children *c, size_t first, size_t last, int signum)
{
        for (size_t i = first; i < last; i++)
                if (c->at[i].pid)
                        kill(c->at[i].pid, signum);
}

unsigned children_stop(struct children *c, size_t first, size_t last, int64_t patience_ms,
                       int64_t hurry_ms)
{
        int64_t deadline = now_ms() + patience_ms;
        unsigned seen = c->interrupts, killed = 0;
        for (size_t i = first; i < last; i++)
                c->at[i].stop = true;
        signal_all(c, first, last, SIGTERM);
        for (size_t left; (left = count_running(c, first, last)) > 0;) {
                const char *name = "";
                for (size_t i = first; i < last; i++)
                        if (c->at[i].pid)
                                name = c->at[i].name;
                if (left == 1)
                        progress_show(c->progress, "stopping %s", name);
                else
                        progress_show(c->progress, "stopping %zu nodes", left);
                children_wait(c, deadline - now_ms() < 1000 ? 100 : 1000);
                if (c->interrupts > seen && now_ms() + hurry_ms < deadline) {
                        seen = c->interrupts;
                        deadline = now_ms() + hurry_ms;
                        signal_all(c, first, last, SIGTERM);
                        progress_note(c->progress, "hurrying");
                }
                if (now_ms() >= deadline) {
                        killed += (unsigned)count_running(c, first, last);
                        signal_all(c, first, last, SIGKILL);
                        deadline = now_ms() + 5000;
                }
        }
        progress_clear(c->progress);
        return killed;
}

/* Is this process the monitor of a unit below dir: "berth __unit DIR/..."? */
static bool is_unit_below(const char *pid, const char *dir)
{
        _cleanup_(str_finip) struct str line = STR_INIT;
        if (file_read(fmt("/proc/%s/cmdline", pid), 8192, &line, NULL) < 0)
                return false;
        const char *p = str_c(&line), *end = p + line.len;
        p += strlen(p) + 1;
        if (p >= end || !str_eq(p, "__unit"))
                return false;
        p += strlen(p) + 1;
        size_t len = strlen(dir);
        return p < end && strncmp(p, dir, len) == 0 && p[len] == '/';
}

unsigned units_kill(const char *dir)
{
        unsigned found = 0;
        for (int round = 0; round < 50; round++) {
                unsigned now = 0;
                DIR *proc = opendir("/proc");
                for (struct dirent *e; proc && (e = readdir(proc));)
                        if (isdigit((unsigned char)e->d_name[0]) && is_unit_below(e->d_name, dir)) {
                                now++;
                                /* to the monitor: kill it all, with a grace of 0 ms */
                                if (round == 0)
                                        (void)sigqueue((pid_t)atoi(e->d_name), SIGUSR1,
                                                       (union sigval){ .sival_int = 0 });
                        }
                if (proc)
                        closedir(proc);
                if (round == 0)
                        found = now;
                if (now == 0)
                        break;
                (void)poll(NULL, 0, 100);
        }
        return found;
}
