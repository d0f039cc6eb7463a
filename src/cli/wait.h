/* cli/wait.h: --wait: until a workload has come where the user wants it, cannot come there any
 * more, or time is up.
 *
 *   (1) Reached: status 0. Can no longer be reached: status 1, with the reason. Time is up: status
 *       6, with what it is waiting for.
 *   (2) An update counts as Running only when the new revision runs.
 *   (3) A job that has Completed was Running: waiting for Running is over.
 * A server that goes away meanwhile is waited for as well.
 */
#ifndef BERTH_CLI_WAIT_H
#define BERTH_CLI_WAIT_H

#include "cli/client.h"

#define WAIT_DEFAULT_MS (5 * 60 * 1000)

struct wait_goal {
        bool deleted; /* gone altogether; else: */
        Pb__Phase__E phase;
};

struct wait_options {
        const char *state; /* NULL: do not wait; "": the verb's own goal */
        int64_t timeout_ms;
};
#define WAIT_ROWS(type, field)                                                                     \
        OPT(type, OPT_MAYBE, field.state, .letter = 'w', .name = "wait", .arg = "STATE",           \
            .choices = "Running|Completed|Stopped|Failed|Pending|Scheduled|Deleted",               \
            .help = "wait until it is there"),                                                     \
            OPT(type, OPT_DURATION, field.timeout_ms, .name = "timeout", .arg = "DURATION",        \
                .help = "with --wait: give up after this long (5m)")

/* text "" or NULL: fallback. */
int wait_goal_parse(const char *text, struct wait_goal fallback, struct wait_goal *ret,
                    struct err *err);

enum wait_verdict { WAIT_REACHED, WAIT_ON, WAIT_NEVER };
/* Pure. w NULL: there is no such workload (any more). WAIT_NEVER: err says why. */
enum wait_verdict wait_judge(const char *id, const Pb__Workload *w, const struct wait_goal *goal,
                             struct err *err);

/* Waits for all of them, one after the other, within one timeout. */
int wait_for(struct cli *cli, const char *const *ids, size_t n, const struct wait_goal *goal,
             int64_t timeout_ms, struct err *err);
/* What --wait means for a workload as it is now: Completed for a job, Running for the rest. */
struct wait_goal wait_goal_started(const Pb__Workload *w);

#endif
