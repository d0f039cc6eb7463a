/* server/plans.c: see plans.h. */
#include "server/plans.h"

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/io.h"
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MAX (16 << 20)
#define CPU_SECONDS 60

/* ---- the child ---- */

static void write_all(int fd, const void *data, size_t len)
{
        for (const char *p = data; len > 0;) {
                ssize_t n = write(fd, p, len);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        _exit(1);
                p += n;
                len -= (size_t)n;
        }
}

/* Connections, the store's files and the other side of the pipe are not ours: a peer would
 * otherwise wait for the end of a stream that we hold open. */
static void let_go_of_everything(int keep_fd)
{
        signal(SIGPIPE, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        pthread_sigmask(SIG_SETMASK, &none, NULL);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)prctl(PR_SET_NAME, "plan");
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        (void)setrlimit(RLIMIT_CPU, &(struct rlimit){ CPU_SECONDS, CPU_SECONDS });
        if (nice(5) < 0) {
                /* as urgent as the server, then */
        }
        if (keep_fd > 3)
                (void)close_range(3, (unsigned)keep_fd - 1, 0);
        (void)close_range((unsigned)keep_fd + 1, ~0u, 0);
}

_noreturn_ static void child(struct core *core, const Pb__PlanRequest *req, int fd)
{
        let_go_of_everything(fd);
        struct str out = STR_INIT;
        struct err err = { 0 };
        if (core_plan(core, req, &out, &err) < 0) {
                write_all(fd, "!", 1);
                write_all(fd, &err, sizeof(err));
        } else {
                write_all(fd, "=", 1);
                write_all(fd, out.buf, out.len);
        }
        _exit(0); /* which closes the pipe: its end is the child's end */
}

void plan_fork(struct server *s, struct core *core, const struct ring_msg *msg)
{
        struct plan_child *c = mem_must(sizeof(*c));
        int fds[2] = { -1, -1 };
        int64_t t0 = clock_mono_ns();
        c->ticket = msg->in.reply;
        c->fd = -1;
        if (pipe2(fds, O_CLOEXEC) < 0)
                err_sys(&c->err, errno, "a plan needs a pipe");
        else if ((c->pid = fork()) == 0)
                child(core, (const Pb__PlanRequest *)msg->in.msg, fds[1]);
        else if (c->pid < 0) {
                err_sys(&c->err, errno, "a plan needs a process of its own");
                close(fds[0]);
        } else {
                c->fd = fds[0];
                (void)fcntl(c->fd, F_SETFL, O_NONBLOCK);
        }
        if (fds[1] >= 0)
                close(fds[1]);
        log_debug("a plan begins", LOG_I("pid", c->pid), LOG_S("request_id", msg->in.request_id),
                  LOG_I("fork_us", (clock_mono_ns() - t0) / 1000));
        struct io_msg *m = mem_must(sizeof(*m));
        m->kind = IO_PLAN;
        m->plan = c;
        if (!server_io_push(s, m, true))
                io_msg_free(m);
}

static void reap(pid_t pid, int *ret_status)
{
        while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR)
                ;
}

void plan_child_free(struct plan_child *c)
{
        if (!c)
                return;
        if (c->fd >= 0)
                close(c->fd);
        if (c->pid > 0) {
                int status;
                (void)kill(c->pid, SIGKILL);
                reap(c->pid, &status);
        }
        mem_free(c);
}

/* ---- io ---- */

/* From plans_begin() until the child is reaped, which may be after its call has ended. */
struct plan {
        struct plans *plans;
        struct call *call; /* NULL: nobody waits any more */
        struct plan_child *child;
        struct event *ev;
        struct str out;
        bool barrier, over; /* may leave; the child has ended */
        int status;
};
struct plans {
        struct io *io;
        ARRAY(struct plan *) all;
};

struct plans *plans_create(struct io *io)
{
        struct plans *p = mem_must(sizeof(*p));
        p->io = io;
        return p;
}

static void plan_free(struct plan *plan)
{
        if (plan->ev)
                event_free(plan->ev);
        plan_child_free(plan->child);
        str_fini(&plan->out);
        mem_free(plan);
}

void plans_destroy(struct plans *p)
{
        if (!p)
                return;
        for (size_t i = 0; i < p->all.len; i++)
                plan_free(p->all.at[i]);
        array_fini(&p->all);
        mem_free(p);
}

static void remove_plan(struct plan *plan)
{
        struct plans *p = plan->plans;
        for (size_t i = 0; i < p->all.len; i++)
                if (p->all.at[i] == plan)
                        p->all.at[i--] = array_pop(&p->all);
        plan_free(plan);
}

int plans_begin(struct plans *p, struct call *call, struct err *err)
{
        if (p->all.len >= PLANS_MAX)
                return err_set(err, ERR_LIMIT, .msg = "too many plans are being made",
                               .detail = fmt("%zu", p->all.len),
                               .hint = "try again when one of them is ready",
                               .retry_after_ms = 1000);
        struct plan *plan = mem_must(sizeof(*plan));
        plan->plans = p;
        plan->call = call;
        call->plan = plan;
        *array_push(&p->all) = plan;
        return 0;
}

static void fail_call(struct plan *plan, const struct err *err)
{
        call_fail(plan->call, err); /* comes back as plans_end() */
}

/* Both are there: the answer, and the leave to show it. */
static void answer_if_ready(struct plan *plan)
{
        if (!plan->call || !plan->over || !plan->barrier)
                return;
        struct err err = { 0 };
        _cleanup_(str_finip) struct str out = plan->out; /* the plan goes with its call */
        const char *data = str_c(&out);
        plan->out = STR_INIT;
        if (out.len > 0 && data[0] == '=' && WIFEXITED(plan->status) &&
            WEXITSTATUS(plan->status) == 0) {
                call_answer(plan->call, &pb__plan_response__descriptor, data + 1, out.len - 1);
                return;
        }
        if (out.len == 1 + sizeof(err) && data[0] == '!')
                memcpy(&err, data + 1, sizeof(err));
        else
                err_set(&err, ERR_INTERNAL, .msg = "the plan's process ended without an answer",
                        .detail = WIFSIGNALED(plan->status)
                                      ? fmt("signal %d", WTERMSIG(plan->status))
                                      : fmt("status %d", WEXITSTATUS(plan->status)),
                        .hint = "the server itself goes on; its log may say more");
        fail_call(plan, &err);
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
        struct plan *plan = ctx;
        char buf[65536];
        (void)what;
        ssize_t n = read(fd, buf, sizeof(buf));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n > 0 && plan->call && plan->out.len < ANSWER_MAX) {
                str_add(&plan->out, buf, (size_t)n);
                return;
        }
        if (n > 0) {
                (void)kill(plan->child->pid, SIGKILL);
                return;
        }
        event_del(plan->ev);
        reap(plan->child->pid, &plan->status);
        plan->child->pid = 0;
        plan->over = true;
        if (plan->call)
                answer_if_ready(plan);
        else
                remove_plan(plan);
}

static struct plan *by_ticket(struct plans *p, uint64_t ticket)
{
        for (size_t i = 0; i < p->all.len; i++)
                if (p->all.at[i]->call && p->all.at[i]->call->ticket == ticket)
                        return p->all.at[i];
        return NULL;
}

void plans_take(struct plans *p, struct plan_child *c)
{
        struct plan *plan = by_ticket(p, c->ticket);
        if (!plan) { /* the caller has gone; its place was given back then */
                plan_child_free(c);
                return;
        }
        if (c->err.code != ERR_OK) {
                fail_call(plan, &c->err);
                plan_child_free(c);
                return;
        }
        plan->child = c;
        plan->ev = event_new(p->io->base, c->fd, EV_READ | EV_PERSIST, on_readable, plan);
        event_add(plan->ev, NULL);
}

void plans_barrier(struct plans *p, struct call *call)
{
        (void)p;
        call->plan->barrier = true;
        answer_if_ready(call->plan);
}

void plans_end(struct plans *p, struct call *call)
{
        struct plan *plan = call->plan;
        (void)p;
        if (!plan)
                return;
        call->plan = NULL;
        plan->call = NULL;
        if (!plan->child || plan->over)
                remove_plan(plan);
        else
                (void)kill(plan->child->pid, SIGKILL); /* reaped when its pipe ends */
}
