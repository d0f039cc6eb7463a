/* core/place.h: which node is best. See place.c. */
#ifndef BERTH_CORE_PLACE_H
#define BERTH_CORE_PLACE_H

#include "core/state.h"

struct place_result {
        struct node_ix node;
        uint32_t candidates; /* 0: not counted, since there are many nodes */
        uint32_t utilisation;
        /* utilisation (for binpack, what is missing to full), plus preferences that are not met */
        uint64_t cost;
};
/* workload_id: whose old copies stand in the way; NULL if there are none. */
struct place_result place(struct core *c, const struct definition *d, const char *workload_id,
                          struct node_ix exclude);
Pb__Strategy__E strategy_of(const struct core *c, const struct class *k);
int64_t cost_millionths(uint64_t cost); /* for people: the mean of both ratios in millionths */
uint64_t place_cost(const struct core *c, struct node_ix n, const struct definition *d);
uint64_t node_types_shown(const struct core *c, const struct node *n); /* in the columns */
void columns_update(struct core *c, struct node_ix n);
void ranks_refresh(struct core *c);

#endif
