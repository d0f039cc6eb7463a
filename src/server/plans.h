/* server/plans.h: plans under way (X1). Internal.
 *
 *      io: call_send() --INPUT_PLAN--> ring: fork() --IO_PLAN (pid, pipe)--> io
 *                                        |      '--> child: core_plan() on its copy-on-write state
 *                                               --packed answer--> pipe --> io
 *                                        '--> core_step(INPUT_PLAN) --> the batch that is being
 *                                        made --commit--> reply --> io
 *
 * The ring does nothing but fork, so decisions go on. The child sees decisions that are not durable
 * yet; its answer therefore leaves only when both the answer is there and the reply to INPUT_PLAN,
 * which waits for the commit of everything that the child saw.
 *
 * A child has the ring's thread only: it touches the core, memory and its pipe, nothing that
 * another thread may have held when it was made. It is ended with its call (an answer, a deadline,
 * a caller that goes away), with the server, and by a bound on its processor time.
 */
#ifndef BERTH_SERVER_PLANS_H
#define BERTH_SERVER_PLANS_H

#include "server/shared.h"
#include <sys/types.h>

#define PLANS_MAX 4 /* children at a time; beyond: 429 */

struct io;
struct call;
struct plans;

/* What the ring tells io of a child. */
struct plan_child {
        uint64_t ticket;
        pid_t pid;
        int fd;         /* its answer, until the end */
        struct err err; /* code 0: it was made */
};
void plan_child_free(struct plan_child *child); /* ends it, if it was never taken over */

/* The ring's part: makes the child for this message, and tells io. */
void plan_fork(struct server *s, struct core *core, const struct ring_msg *msg);

/* io's part. */
struct plans *plans_create(struct io *io);
void plans_destroy(struct plans *p);
/* May one more begin? Counts it. -ERR_LIMIT */
int plans_begin(struct plans *p, struct call *call, struct err *err);
void plans_take(struct plans *p, struct plan_child *child); /* takes it */
/* The commit has passed what the child saw. */
void plans_barrier(struct plans *p, struct call *call);
/* The call has ended, however it did. */
void plans_end(struct plans *p, struct call *call);

#endif
