/* core/fold.h: what must hold of events that come from a store. See fold.c. */
#ifndef BERTH_CORE_FOLD_H
#define BERTH_CORE_FOLD_H

#include "core/state.h"

const char *wrong_node_event(struct core *c, const Pb__Event *e);
const char *wrong_workload_event(struct core *c, const Pb__Event *e);

#endif
