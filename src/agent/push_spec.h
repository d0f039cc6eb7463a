/* agent/push_spec.h: workloads as callers of persys.agent.v1 describe them, in berth's words, and
 * units in theirs. Pure.
 *
 * That dialect knows containers, compose files and machines, and no plain processes. An agent with
 * the process runtime takes a container whose image is PUSH_PROCESS_IMAGE as a process: its command
 * and args are run on the machine itself, with its env, limits and restart policy. Every other
 * image needs a container runtime.
 */
#ifndef BERTH_AGENT_PUSH_SPEC_H
#define BERTH_AGENT_PUSH_SPEC_H

#include "agent/engine.h"
#include "base/arena.h"
#include "base/err.h"
#include "persys_agent.pb-c.h"

#define PUSH_PROCESS_IMAGE "process"

/* -ERR_INVALID: it makes no sense. The result lives in the arena. */
int push_to_workload(struct arena *arena, const Pa__ApplyWorkloadRequest *q,
                     Pb__Workload **ret_workload, struct err *err);

/* What is said of a unit. view: the same unit's wish. */
Pa__WorkloadStatus *push_from_status(struct arena *arena, const Pb__UnitStatus *u,
                                     const struct engine_unit_view *view);

/* "<revision>@<epoch>.<seq>", as berth's servers write it. False: somebody else's. */
bool push_revision_token(const char *revision, struct unit_token *ret_token);

#endif
