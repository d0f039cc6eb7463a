/* core/evict.h: units leave nodes that are lost or tainted. See evict.c. */
#ifndef BERTH_CORE_EVICT_H
#define BERTH_CORE_EVICT_H

#include "core/state.h"

/* units that must leave it do so, bit by bit */
void evict_begin(struct core *c, struct node_ix n, bool paced);
/* those that do not tolerate its taints do */
void evict_driven_out(struct core *c, struct node_ix n);
void evict_some(struct core *c);
void evict_hurry(struct core *c, struct node_ix n); /* an operator's word about it has come */
bool evict_is_ordered(const struct core *c, const struct node *n);
int64_t evict_due_ms(const struct core *c, const struct node *n);
int64_t evict_next_ms(const struct core *c);
uint32_t evict_paced_units(const struct core *c); /* that have yet to move */
void decide_evict_node(struct core *c, const Pb__NodeRef *req);
void decide_evict_lost(struct core *c);
void apply_evict_ordered(struct core *c, const Pb__Event *e);
const char *wrong_evict_ordered(struct core *c, const Pb__Event *e);

#endif
