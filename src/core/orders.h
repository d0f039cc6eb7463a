/* core/orders.h: what each node is told to run. See orders.c. */
#ifndef BERTH_CORE_ORDERS_H
#define BERTH_CORE_ORDERS_H

#include "core/state.h"

bool unit_is_in_plan(const struct unit *w);
void unit_send(struct core *c, struct unit_ix w);
/* Its old copy is on a node that can still say that it is gone: it is not started before that. */
bool unit_is_held_back(const struct core *c, const struct unit *w);
void unit_send_removal(struct core *c, struct node_ix n, const char *workload_id, uint64_t epoch,
                       uint64_t seq);
void plan_send(struct core *c, struct node_ix n);

#endif
