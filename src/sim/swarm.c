/* sim/swarm.c: many seeds, in processes of their own.
 *
 * A worker takes every n-th seed and writes one line of fixed size per seed, before it begins and
 * when it is done. If it dies or hangs, the seed that it had begun has failed, and another worker
 * goes on with the next one.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "sim/sim.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS_MAX 256
#define SEED_SECONDS_MAX 600 /* real time; a small cluster needs a fraction of a second */
#define FAILURES_SHOWN 10

struct line {
        bool done;
        struct sim_verdict verdict;
};

static void run_one(const struct sim_options *opt, struct sim_verdict *ret)
{
        struct err err = { 0 };
        *ret = (struct sim_verdict){ .seed = opt->seed };
        sim_run(opt, &ret->result, &err);
        if (ret->result.violations)
                snprintf(ret->what, sizeof(ret->what), "%s%s%s", err.msg, err.detail[0] ? ": " : "",
                         err.detail);
}

static void write_line(int fd, const struct line *l)
{
        ssize_t n;
        do
                n = write(fd, l, sizeof(*l)); /* less than PIPE_BUF: all or nothing */
        while (n < 0 && errno == EINTR);
        if (n != sizeof(*l))
                _exit(3);
}

/* ---- one seed ---- */

static const char *death(int status)
{
        if (WIFSIGNALED(status))
                return WTERMSIG(status) == SIGALRM
                           ? "it hung"
                           : fmt("it crashed (signal %d)", WTERMSIG(status));
        return fmt("it crashed (status %d)", WEXITSTATUS(status));
}

/* What the child says may be larger than a pipe takes at once: the numbers of its faults. */
static bool read_all(int fd, void *to, size_t len)
{
        for (char *p = to; len;) {
                ssize_t n = read(fd, p, len);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return false;
                p += n;
                len -= (size_t)n;
        }
        return true;
}

static void write_all(int fd, const void *from, size_t len)
{
        for (const char *p = from; len;) {
                ssize_t n = write(fd, p, len);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        _exit(3);
                p += n;
                len -= (size_t)n;
        }
}

static _noreturn_ void child(int fd, const struct sim_options *opt)
{
        struct sim_verdict v;
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(nowhere, STDERR_FILENO);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(SEED_SECONDS_MAX);
        run_one(opt, &v);
        write_all(fd, &v, sizeof(v));
        write_all(fd, v.result.numbers, v.result.n_numbers * sizeof(*v.result.numbers));
        _exit(0);
}

void sim_run_apart(const struct sim_options *opt, struct sim_verdict *ret)
{
        int fds[2], status = 0;
        must(pipe(fds) == 0, "a process can have a pipe");
        fflush(NULL);
        pid_t pid = fork();
        must(pid >= 0, "a process can be started");
        if (pid == 0) {
                close(fds[0]);
                child(fds[1], opt);
        }
        close(fds[1]);
        bool said = read_all(fds[0], ret, sizeof(*ret));
        size_t n = said ? ret->result.n_numbers : 0;
        uint32_t *numbers = n ? mem_must(n * sizeof(*numbers)) : NULL;
        said = said && read_all(fds[0], numbers, n * sizeof(*numbers));
        close(fds[0]);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (said) {
                ret->result.numbers = numbers;
                return;
        }
        mem_free(numbers);
        *ret = (struct sim_verdict){ .seed = opt->seed, .result = { .violations = 1 } };
        snprintf(ret->what, sizeof(ret->what), "%s", death(status));
}

/* ---- many ---- */

struct worker {
        pid_t pid; /* 0: done */
        int fd;
        uint64_t next;     /* the first seed that it has not begun, as a position */
        struct line begun; /* the seed that it is at; done: none */
};

struct swarm {
        struct sim_options opt;
        const struct swarm_options *how;
        struct worker *workers;
        struct swarm_result *result;
        int64_t began, shown;
        bool terminal;
};

static _noreturn_ void work(struct swarm *w, int fd, uint64_t from, uint64_t step)
{
        int64_t end = w->how->for_ms ? w->began + w->how->for_ms * 1000000 : INT64_MAX;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (uint64_t i = from; i < w->how->seeds && clock_mono_ns() < end; i += step) {
                struct sim_options opt = w->opt;
                opt.seed += i;
                opt.swarm = !w->how->fixed;
                struct line l = { .verdict.seed = opt.seed };
                write_line(fd, &l);
                alarm(SEED_SECONDS_MAX);
                run_one(&opt, &l.verdict);
                l.done = true;
                write_line(fd, &l);
        }
        _exit(0);
}

static void start(struct swarm *w, struct worker *k, uint64_t step)
{
        int fds[2];
        must(pipe(fds) == 0, "a process can have a pipe");
        fflush(NULL);
        k->pid = fork();
        must(k->pid >= 0, "a process can be started");
        if (k->pid == 0) {
                close(fds[0]);
                work(w, fds[1], k->next, step);
        }
        close(fds[1]);
        k->fd = fds[0];
        k->begun.done = true;
}

static void progress(struct swarm *w)
{
        int64_t now = clock_mono_ns();
        if (!w->terminal || now - w->shown < 500000000)
                return;
        w->shown = now;
        fprintf(stderr, "\r%llu of %llu seeds, %llu failed, %.0f cluster-hours ",
                (unsigned long long)w->result->seeds, (unsigned long long)w->how->seeds,
                (unsigned long long)w->result->failed, (double)w->result->simulated_ms / 3600000);
        fflush(stderr);
}

static void failed(struct swarm *w, const struct sim_verdict *v, const char *what)
{
        struct swarm_result *r = w->result;
        if (r->failed++ == 0 || v->seed < r->first_failed)
                r->first_failed = v->seed;
        if (r->failed > FAILURES_SHOWN)
                return;
        struct sim_options opt = w->opt;
        struct str line = STR_INIT;
        opt.seed = v->seed;
        opt.swarm = !w->how->fixed;
        sim_options_print(&opt, &line);
        printf("%serror: %s\nseed=%llu steps=%llu events=%llu hash=%016llx violations=%u\n  again: "
               "berth sim %s\n",
               w->terminal ? "\n" : "", what, (unsigned long long)v->seed,
               (unsigned long long)v->result.steps, (unsigned long long)v->result.events,
               (unsigned long long)v->result.hash, v->result.violations ? v->result.violations : 1,
               str_c(&line));
        fflush(stdout);
        str_fini(&line);
}

static void take(struct swarm *w, struct worker *k, const struct line *l)
{
        struct swarm_result *r = w->result;
        const struct sim_result *x = &l->verdict.result;
        k->begun = *l;
        if (!l->done) {
                k->next += w->how->jobs;
                return;
        }
        r->seeds++;
        r->steps += x->steps;
        r->events += x->events;
        r->commits += x->commits;
        r->simulated_ms += x->simulated_ms;
        r->seen |= x->seen;
        if (x->launches_per_minute > r->launches_per_minute)
                r->launches_per_minute = x->launches_per_minute;
        if (x->violations)
                failed(w, &l->verdict, l->verdict.what);
}

/* Its pipe has ended. */
static void ended(struct swarm *w, struct worker *k)
{
        int status;
        close(k->fd);
        while (waitpid(k->pid, &status, 0) < 0 && errno == EINTR)
                ;
        k->pid = 0;
        if (k->begun.done)
                return;
        w->result->seeds++;
        failed(w, &k->begun.verdict, death(status));
        if (k->next < w->how->seeds)
                start(w, k, w->how->jobs);
}

void swarm_run(const struct sim_options *opt, const struct swarm_options *how,
               struct swarm_result *ret)
{
        *ret = (struct swarm_result){ 0 };
        struct swarm_options limited = *how;
        limited.jobs = how->jobs < 1 ? 1 : how->jobs > JOBS_MAX ? JOBS_MAX : how->jobs;
        struct swarm w = { .opt = *opt,
                           .how = &limited,
                           .result = ret,
                           .began = clock_mono_ns(),
                           .terminal = isatty(STDERR_FILENO) };
        struct pollfd fds[JOBS_MAX];
        w.workers = mem_must(limited.jobs * sizeof(*w.workers));
        for (uint32_t j = 0; j < limited.jobs; j++) {
                w.workers[j].next = j;
                if (j < limited.seeds)
                        start(&w, &w.workers[j], limited.jobs);
        }
        for (;;) {
                nfds_t n = 0;
                for (uint32_t j = 0; j < limited.jobs; j++) {
                        fds[j] = (struct pollfd){ .fd = w.workers[j].pid ? w.workers[j].fd : -1,
                                                  .events = POLLIN };
                        n += w.workers[j].pid != 0;
                }
                if (n == 0)
                        break;
                if (poll(fds, limited.jobs, 1000) < 0 && errno != EINTR)
                        break;
                for (uint32_t j = 0; j < limited.jobs; j++) {
                        struct line l;
                        if (!w.workers[j].pid || !(fds[j].revents & (POLLIN | POLLHUP)))
                                continue;
                        if (read(w.workers[j].fd, &l, sizeof(l)) == sizeof(l))
                                take(&w, &w.workers[j], &l);
                        else
                                ended(&w, &w.workers[j]);
                }
                progress(&w);
        }
        if (w.terminal)
                fputc('\n', stderr);
        ret->real_ns = clock_mono_ns() - w.began;
        mem_free(w.workers);
}
