/* agent/runtimes/exec.c: a command inside a running unit: its environment, directory, user, limits
 * and cgroup, with pipes or a terminal.
 *
 * The command is a child of the agent, in a session of its own. It ends with its stream, with its
 * unit, or with the agent (PDEATHSIG). Its end is learnt from a pidfd; the stream ends when it has
 * exited and its output is at its end, or a moment after the exit if something else still holds the
 * pipes.
 *
 * Nothing here waits for the command: it may be frozen with its unit's cgroup, before it has even
 * become the program that was asked for, and may not end when it is killed. Whether it could be
 * started arrives by a pipe; what was killed is reaped when it goes, and counts until then
 * (EXEC_MAX, EXEC_UNIT_MAX).
 */
#include "agent/runtimes/launch.h"
#include "agent/runtimes/process_state.h"
#include "base/clock.h"
#include "base/file.h"
#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define AFTER_EXIT_MS 1000
#define PIECE_BYTES 16384
#define REAP_MS 100
#define DEFAULT_TERM "xterm" /* what any terminal of today understands */

struct exec_stream {
        struct stream stream; /* first: see the casts */
        struct runtime *rt;
        char *id;
        struct stream_sink sink;
        bool tty, paused, input_eof, exited, in_callback, closed;
        pid_t pid;
        int status;
        int pidfd, in_fd, out_fd[2]; /* with a terminal in_fd is a duplicate of out_fd[0] */
        int error_fd;                /* -1: it runs, or has said why it cannot */
        struct event *pidfd_event, *in_event, *out_event[2], *error_event, *end_timer;
        struct evbuffer *input;
        struct launch launch; /* until error_fd is closed */
        char *why;            /* it could not be started */
};

static struct exec_stream *exec_of(struct stream *s)
{
        return (struct exec_stream *)s;
}

static void shut(struct event **ev, int *fd)
{
        if (*ev)
                event_free(*ev);
        *ev = NULL;
        if (fd && *fd >= 0)
                close(*fd);
        if (fd)
                *fd = -1;
}

/* ---- what was killed and has not gone yet ---- */

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
        struct runtime *rt = arg;
        struct timeval again = { 0, REAP_MS * 1000 };

        (void)fd, (void)what;
        for (size_t i = rt->reaping.len; i-- > 0;) {
                struct exec_left *left = &rt->reaping.at[i];

                if (waitpid(left->pid, NULL, WNOHANG) == 0)
                        continue;
                mem_free(left->id);
                *left = rt->reaping.at[--rt->reaping.len];
        }
        if (rt->reaping.len)
                evtimer_add(rt->reap_timer, &again);
}

static void kill_and_reap(struct exec_stream *s)
{
        struct runtime *rt = s->rt;

        kill(-s->pid, SIGKILL);
        kill(s->pid, SIGKILL);
        *array_push(&rt->reaping) = (struct exec_left){ .pid = s->pid, .id = mem_strdup(s->id) };
        if (!rt->reap_timer)
                rt->reap_timer = evtimer_new(rt->base, on_reap, rt);
        on_reap(-1, 0, rt);
}

static void free_exec(struct exec_stream *s)
{
        struct runtime *rt = s->rt;

        for (size_t i = 0; i < rt->execs.len; i++)
                if (rt->execs.at[i] == s) {
                        rt->execs.at[i] = rt->execs.at[--rt->execs.len];
                        break;
                }
        if (!s->exited && s->pid > 0)
                kill_and_reap(s);
        shut(&s->pidfd_event, &s->pidfd);
        shut(&s->in_event, &s->in_fd);
        shut(&s->out_event[0], &s->out_fd[0]);
        shut(&s->out_event[1], &s->out_fd[1]);
        shut(&s->error_event, &s->error_fd);
        shut(&s->end_timer, NULL);
        evbuffer_free(s->input);
        launch_fini(&s->launch);
        mem_free(s->why);
        mem_free(s->id);
        mem_free(s);
}

static void end_exec(struct exec_stream *s)
{
        struct stream_sink sink = s->sink;
        _cleanup_(mem_freep) char *why = s->why;
        int status = s->status;
        bool exited = s->exited;
        /* a shell's convention: 128 + signal */
        int32_t code = !exited             ? 0
                       : WIFEXITED(status) ? WEXITSTATUS(status)
                                           : 128 + WTERMSIG(status);

        s->why = NULL;
        free_exec(s);
        sink.end(sink.ctx, exited, code, why);
}

static void end_if_done(struct exec_stream *s)
{
        if (s->exited && s->out_fd[0] < 0 && s->out_fd[1] < 0 && s->error_fd < 0)
                end_exec(s);
}

static void on_end_timer(evutil_socket_t fd, short what, void *arg)
{
        struct exec_stream *s = arg;

        (void)fd, (void)what;
        if (s->paused) { /* the taker is slow, not the command: its output is still to come */
                struct timeval tv = { AFTER_EXIT_MS / 1000, 0 };

                evtimer_add(s->end_timer, &tv);
                return;
        }
        end_exec(s);
}

/* It has become the program that was asked for, or has said why it cannot; then it ends by itself,
 * with a shell's 127 or 126. */
static void on_launched(evutil_socket_t fd, short what, void *arg)
{
        struct exec_stream *s = arg;
        struct err err = { 0 };

        (void)what;
        if (launch_result(&s->launch, (int)fd, &err) < 0)
                s->why = mem_strdup(err_line(&err));
        launch_fini(&s->launch);
        shut(&s->error_event, &s->error_fd);
        end_if_done(s);
}

static void on_command_end(evutil_socket_t fd, short what, void *arg)
{
        struct exec_stream *s = arg;
        struct timeval tv = { AFTER_EXIT_MS / 1000, (AFTER_EXIT_MS % 1000) * 1000 };

        (void)fd, (void)what;
        if (waitpid(s->pid, &s->status, WNOHANG) != s->pid)
                return;
        s->exited = true;
        shut(&s->pidfd_event, &s->pidfd);
        shut(&s->in_event, &s->in_fd);
        evtimer_add(s->end_timer, &tv);
        end_if_done(s);
}

static void on_output(evutil_socket_t fd, short what, void *arg)
{
        struct exec_stream *s = arg;
        int which = fd == s->out_fd[1];
        char buf[PIECE_BYTES];
        ssize_t n = read(fd, buf, sizeof(buf));

        (void)what;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) { /* a terminal whose other side is closed answers EIO */
                shut(&s->out_event[which], &s->out_fd[which]);
                end_if_done(s);
                return;
        }
        s->in_callback = true;
        if (!s->sink.data(s->sink.ctx, which == 1, clock_wall_ms(), buf, (size_t)n) && !s->closed) {
                s->paused = true;
                for (int i = 0; i < 2; i++)
                        if (s->out_event[i])
                                event_del(s->out_event[i]);
        }
        s->in_callback = false;
        if (s->closed)
                free_exec(s);
}

static void on_input_room(evutil_socket_t fd, short what, void *arg)
{
        struct exec_stream *s = arg;

        (void)what;
        if (evbuffer_get_length(s->input) > 0 && evbuffer_write(s->input, fd) < 0 &&
            errno != EAGAIN && errno != EINTR) {
                shut(&s->in_event, &s->in_fd); /* it reads no more */
                evbuffer_drain(s->input, evbuffer_get_length(s->input));
                return;
        }
        if (evbuffer_get_length(s->input) > 0)
                return;
        event_del(s->in_event);
        if (s->input_eof && !s->tty)
                shut(&s->in_event, &s->in_fd);
}

/* ---- the stream's operations ---- */

static void exec_resume(struct stream *st)
{
        struct exec_stream *s = exec_of(st);

        if (!s->paused)
                return;
        s->paused = false;
        for (int i = 0; i < 2; i++)
                if (s->out_event[i])
                        event_add(s->out_event[i], NULL);
}

static bool exec_write(struct stream *st, const void *data, size_t len)
{
        struct exec_stream *s = exec_of(st);

        if (s->in_fd < 0 || s->input_eof)
                return true; /* nobody reads it: dropped, as a pipe to an ended command would */
        if (evbuffer_get_length(s->input) + len > STREAM_INPUT_MAX)
                return false;
        evbuffer_add(s->input, data, len);
        event_add(s->in_event, NULL);
        return true;
}

static void exec_write_eof(struct stream *st)
{
        struct exec_stream *s = exec_of(st);

        if (s->in_fd < 0 || s->input_eof)
                return;
        if (s->tty)
                exec_write(st, "\004", 1); /* what the end of input is on a terminal */
        s->input_eof = true;
        event_add(s->in_event, NULL);
}

static void exec_resize(struct stream *st, int rows, int cols)
{
        struct exec_stream *s = exec_of(st);
        struct winsize size = { .ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols };

        if (s->tty && s->out_fd[0] >= 0 && rows > 0 && cols > 0)
                ioctl(s->out_fd[0], TIOCSWINSZ, &size);
}

static void exec_close(struct stream *st)
{
        struct exec_stream *s = exec_of(st);

        if (s->in_callback)
                s->closed = true;
        else
                free_exec(s);
}

static size_t exec_waiting(const struct stream *st)
{
        return evbuffer_get_length(((const struct exec_stream *)st)->input);
}

static const struct stream_ops exec_ops = { exec_resume, exec_write, exec_write_eof,
                                            exec_resize, exec_close, exec_waiting };

/* ---- starting ---- */

static _noreturn_ void child_exec(const struct launch *l, int error_fd)
{
        error_fd = fcntl(error_fd, F_DUPFD_CLOEXEC, 16);
        if (error_fd > 3)
                syscall(SYS_close_range, 3, error_fd - 1, 0);
        syscall(SYS_close_range, error_fd + 1, ~0U, 0);
        launch_exec(l, error_fd);
}

static int start_on_tty(struct exec_stream *s, const struct launch *l,
                        const struct exec_options *opt, int error_fd, struct err *err)
{
        struct winsize size = { .ws_row = (unsigned short)(opt->rows > 0 ? opt->rows : 24),
                                .ws_col = (unsigned short)(opt->cols > 0 ? opt->cols : 80) };

        s->pid = forkpty(&s->out_fd[0], NULL, NULL, &size);
        if (s->pid < 0)
                return err_sys(err, errno, "cannot make a terminal");
        if (s->pid == 0)
                child_exec(l, error_fd);
        fcntl(s->out_fd[0], F_SETFD, FD_CLOEXEC);
        s->in_fd = fcntl(s->out_fd[0], F_DUPFD_CLOEXEC, 3);
        return 0;
}

static int start_on_pipes(struct exec_stream *s, const struct launch *l, int error_fd,
                          struct err *err)
{
        int in[2] = { -1, -1 }, out[2] = { -1, -1 }, errput[2] = { -1, -1 };

        if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(errput, O_CLOEXEC) < 0 ||
            (s->pid = fork()) < 0) {
                int saved = errno;

                for (int i = 0; i < 2; i++) {
                        fd_closep(&in[i]);
                        fd_closep(&out[i]);
                        fd_closep(&errput[i]);
                }
                return err_sys(err, saved, "cannot start a process");
        }
        if (s->pid == 0) {
                setsid();
                dup2(in[0], 0);
                dup2(out[1], 1);
                dup2(errput[1], 2);
                child_exec(l, error_fd);
        }
        close(in[0]);
        close(out[1]);
        close(errput[1]);
        s->in_fd = in[1];
        s->out_fd[0] = out[0];
        s->out_fd[1] = errput[0];
        return 0;
}

static int start_command(struct exec_stream *s, const struct exec_options *opt, struct err *err)
{
        int error[2], r;

        if (pipe2(error, O_CLOEXEC) < 0)
                return err_sys(err, errno, "cannot make a pipe");
        r = opt->tty ? start_on_tty(s, &s->launch, opt, error[1], err)
                     : start_on_pipes(s, &s->launch, error[1], err);
        close(error[1]);
        s->error_fd = error[0];
        if (r < 0)
                return r;
        s->pidfd = pidfd_open_for(s->pid);
        return s->pidfd < 0 ? err_sys(err, errno, "cannot watch the command") : 0;
}

static void watch(struct exec_stream *s)
{
        struct event_base *base = s->rt->base;

        s->pidfd_event = event_new(base, s->pidfd, EV_READ, on_command_end, s);
        event_add(s->pidfd_event, NULL);
        s->error_event = event_new(base, s->error_fd, EV_READ, on_launched, s);
        event_add(s->error_event, NULL);
        fd_nonblock(s->in_fd);
        s->in_event = event_new(base, s->in_fd, EV_WRITE | EV_PERSIST, on_input_room, s);
        for (int i = 0; i < 2; i++) {
                if (s->out_fd[i] < 0)
                        continue;
                fd_nonblock(s->out_fd[i]);
                s->out_event[i] = event_new(base, s->out_fd[i], EV_READ | EV_PERSIST, on_output, s);
                event_add(s->out_event[i], NULL);
        }
        s->end_timer = evtimer_new(base, on_end_timer, s);
}

static int check_limits(const struct runtime *rt, const char *id, struct err *err)
{
        size_t of_unit = 0;

        for (size_t i = 0; i < rt->execs.len; i++)
                of_unit += str_eq(rt->execs.at[i]->id, id);
        for (size_t i = 0; i < rt->reaping.len; i++)
                of_unit += str_eq(rt->reaping.at[i].id, id);
        if (of_unit >= EXEC_UNIT_MAX)
                return err_set(
                    err, ERR_LIMIT, .msg = fmt("too many commands run inside %s", id),
                    .detail =
                        fmt("the limit is %d; those that were killed count until they have gone",
                            EXEC_UNIT_MAX),
                    .hint = "is the unit frozen, or does it wait for a disk?");
        if (rt->execs.len + rt->reaping.len >= EXEC_MAX)
                return err_set(err, ERR_LIMIT,
                               .msg = "too many commands run inside units on this node",
                               .detail = fmt("the limit is %d", EXEC_MAX));
        return 0;
}

/* Before the first command is started: from now on not all that belongs to the unit is below its
 * monitor. */
static int note_command(const char *dir, struct err *err)
{
        int fd = open(fmt("%s/" UNIT_EXEC_NAME, dir), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        if (fd < 0)
                return err_sys(err, errno, fmt("cannot write in %s", dir));
        close(fd);
        return 0;
}

int exec_open(struct runtime *rt, const char *workload_id, const struct exec_options *opt,
              const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        struct punit *p = process_find(rt, workload_id);
        Pb__PlanUnit *unit = NULL;
        struct launch launch = { 0 };
        struct exec_stream *s;
        int r;

        if (!p || p->phase != PUNIT_UP)
                return err_set(err, ERR_CONFLICT,
                               .msg = fmt("unit %s is not running on this node", workload_id));
        if (!opt->argv || !opt->argv[0])
                return err_set(err, ERR_INVALID, .msg = "no command was given", .path = "command");
        if ((r = check_limits(rt, workload_id, err)) < 0 || (r = note_command(p->dir, err)) < 0 ||
            (r = unit_launch_read(p->dir, &unit, err)) < 0)
                return r;
        r = launch_prepare(unit, rt->node_id, p->dir, opt->argv, &launch, err);
        pb__plan_unit__free_unpacked(unit, NULL);
        if (r < 0)
                return r;
        if (opt->tty && (!str_empty(opt->term) || !launch_env(&launch, "TERM")))
                launch_set_env(&launch, "TERM", str_empty(opt->term) ? DEFAULT_TERM : opt->term);
        memcpy(launch.cgroup, p->state.cgroup, sizeof(launch.cgroup));
        s = mem_must(sizeof(*s));
        s->stream.ops = &exec_ops;
        s->rt = rt;
        s->id = mem_strdup(workload_id);
        s->sink = *sink;
        s->tty = opt->tty;
        s->launch = launch;
        s->pidfd = s->in_fd = s->out_fd[0] = s->out_fd[1] = s->error_fd = -1;
        s->input = evbuffer_new();
        *array_push(&rt->execs) = s;
        r = start_command(s, opt, err);
        if (r < 0) {
                free_exec(s);
                return r;
        }
        watch(s);
        *ret = &s->stream;
        return 0;
}

void exec_unit_ended(struct runtime *rt, const char *workload_id)
{
        for (size_t i = rt->execs.len; i-- > 0;) {
                struct exec_stream *s = rt->execs.at[i];

                if (str_eq(s->id, workload_id) && !s->exited)
                        kill(-s->pid, SIGKILL); /* its stream ends by the pidfd */
        }
}

void exec_close_all(struct runtime *rt)
{
        while (rt->execs.len)
                free_exec(rt->execs.at[0]);
        for (size_t i = 0; i < rt->reaping.len; i++)
                mem_free(rt->reaping.at[i].id);
        array_fini(&rt->reaping);
        if (rt->reap_timer)
                event_free(rt->reap_timer);
}
