/* model/spec_check.h: what a spec's fields say about one another, by the workload's type. Private
 * to model/: validate.c calls it. */
#ifndef BERTH_MODEL_SPEC_CHECK_H
#define BERTH_MODEL_SPEC_CHECK_H

#include "base/arena.h"
#include "base/err.h"
#include "model/path.h"
#include "records.pb-c.h"

/* Containers, pods, compose files and health checks. Pods and compose files are read as they will
 * be on the node, so that what is refused there is refused here; their host ports become
 * spec.ports, for placement. -ERR_INVALID with the path. */
int spec_check(struct arena *arena, Pb__Workload *w, const struct path_step *spec, struct err *err);

#endif
