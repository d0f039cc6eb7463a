/* core/feasible.h: can this node take it, and if not, why. See feasible.c. */
#ifndef BERTH_CORE_FEASIBLE_H
#define BERTH_CORE_FEASIBLE_H

#include "core/state.h"

Pb__Reason__E feasible(const struct core *c, struct node_ix n, const struct definition *d,
                       const char *workload_id);
/* Every reason that stands in the way, as bits (1 << reason). */
uint64_t feasible_all(const struct core *c, struct node_ix n, const struct definition *d,
                      const char *workload_id);
/* The first of them, in the order in which they are told. */
Pb__Reason__E first_reason(uint64_t reasons);
/* It will do for units of this class when it has room: alive, schedulable, with the labels and the
 * type, without taints that keep it away. */
bool class_could_use(const struct node *n, const struct class *k);
bool node_takes_units(const struct core *c, const struct node *n);

#endif
