/* cli/children.h: the processes that `berth dev` starts and looks after.
 *
 *   (1) A child that ends by itself is started again, after 1, 2, 4... at most 30 seconds; one that
 *       ran for a minute begins anew at 1.
 *   (2) Children die with us: the kernel sends them SIGTERM when we are gone (PR_SET_PDEATHSIG),
 *       however that came about.
 *   (3) What an earlier dev left behind is known by pid and start time (a pid alone may be somebody
 *       else's by now), and is waited for, then ended, before anything new starts.
 * One thread. Signals that matter (SIGCHLD, SIGINT, SIGTERM, SIGHUP) are blocked and taken by
 * children_wait().
 */
#ifndef BERTH_CLI_CHILDREN_H
#define BERTH_CLI_CHILDREN_H

#include "cli/progress.h"
#include <sys/types.h>

#define CHILDREN_MAX 128

struct child {
        char name[32]; /* "server", "node-1" */
        char **argv;   /* in the arena; argv[0] is "berth" */
        pid_t pid;     /* 0: not running */
        int64_t started_ms, start_at_ms, backoff_ms;
        bool stop;  /* it shall not be started again */
        int status; /* of the last end */
        unsigned ends;
};

struct children {
        const char *dir; /* logs go to DIR/NAME.log, the list of pids to DIR/dev.children */
        struct progress *progress;
        struct child at[CHILDREN_MAX];
        size_t n;
        unsigned interrupts; /* SIGINT, SIGTERM, SIGHUP so far */
};

void children_init(struct children *c, const char *dir, struct progress *progress);
/* argv ends with NULL */
struct child *children_add(struct children *c, struct arena *arena, const char *name,
                           const char *const *argv);
int child_start(struct children *c, struct child *child, struct err *err);
/* Sleeps until a signal or at most timeout_ms; reaps, and starts again what is due. */
void children_wait(struct children *c, int64_t timeout_ms);
/* Sends SIGTERM to those from index first up to last (not included) and waits until they have
 * ended. A second interrupt sends it again, and what is still there after hurry_ms is killed; so
 * is, in any case, what is left after patience_ms. Returns how many had to be killed. */
unsigned children_stop(struct children *c, size_t first, size_t last, int64_t patience_ms,
                       int64_t hurry_ms);
/* See (3). */
int children_clear_leftovers(const char *dir, struct progress *progress, struct err *err);
/* "exit status 1", "signal 9 (Killed)" */
const char *child_end_words(int status);

/* The kernel's start time of a process; 0 if there is none. */
uint64_t process_start_time(pid_t pid);
/* Kill units (processes "berth __unit DIR/...") that no agent looks after any more. Returns how
 * many there were. */
unsigned units_kill(const char *dir);

#endif
