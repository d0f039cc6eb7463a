/* server/push_status.h: what agents that are called say, in berth's words. Pure; any thread.
 *
 * The gRPC code comes first. Text is looked at only for the quirks that such agents are known for:
 * an unknown workload is code UNKNOWN with "status not found:", and the second deletion of one
 * leaves a FAILED status "... workload not found ..." behind for ever. What could not be started is
 * a status UNKNOWN, because nothing of it is there, and the reason is in metadata "last_error"
 * only: that is a failed start.
 */
#ifndef BERTH_SERVER_PUSH_STATUS_H
#define BERTH_SERVER_PUSH_STATUS_H

#include "agent.pb-c.h"
#include "base/arena.h"
#include "net/grpc.h"
#include "persys_agent.pb-c.h"

enum push_verdict {
        PUSH_OK,
        PUSH_MISSING,     /* the agent does not know the workload */
        PUSH_UNREACHABLE, /* nobody there, or no answer in time (C23) */
        PUSH_REFUSED,     /* it will not do this, however often it is asked */
        PUSH_AGAIN,       /* it failed; another time it may not */
};
enum push_verdict push_verdict(enum grpc_status status, const char *message);

/* Why a workload failed. code: the status's metadata "failure_reason", or NULL: then the message
 * has to tell. */
Pb__Reason__E push_reason(const char *code, const char *message);

/* A status that says that there is no such workload. */
bool push_is_missing(const Pa__WorkloadStatus *s);

/* What it says of a unit. The token is absent when the revision is not one of ours: then it is of
 * an older copy, or a stranger's. job: a unit that ended without a word about how is taken to have
 * ended well. */
Pb__UnitStatus *push_unit_status(struct arena *arena, const Pa__WorkloadStatus *s, bool job);

#endif
