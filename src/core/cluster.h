/* core/cluster.h: the cluster as a whole: its id, epoch and key. See cluster.c. */
#ifndef BERTH_CORE_CLUSTER_H
#define BERTH_CORE_CLUSTER_H

#include "core/state.h"

void apply_cluster_event(struct core *c, const Pb__Event *e);
const char *wrong_cluster(struct core *c, const Pb__Event *e);

#endif
