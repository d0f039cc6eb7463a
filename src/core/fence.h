/* core/fence.h: exclusive units: who may still run, until when. See fence.c. */
#ifndef BERTH_CORE_FENCE_H
#define BERTH_CORE_FENCE_H

#include "core/state.h"

/* exclusive, and has a node from which only an operator moves it */
bool unit_is_pinned(const struct core *c, const struct unit *w);
struct fence {
        struct node_ix node; /* where a holder may be; NODE_NONE: nobody knows where */
        /* by the core's clock; INT64_MAX: until it is proved, or an operator says so */
        int64_t until_ms;
        const char *what; /* for people */
};
/* An exclusive unit must not be started yet. ret may be NULL. */
bool exclusive_is_held_back(const struct core *c, const struct unit *w, struct fence *ret);
bool node_can_hold(const struct node *n, const struct class *k); /* exclusive units of this class */
/* held back: looked at again in time */
void fence_ask_again(struct core *c, struct unit_ix w);
/* the first exclusive workload, other times, a start: what holds is on record */
void fencing_needed(struct core *c);
void fencing_settle(struct core *c);
int64_t fencing_next_ms(const struct core *c);
void node_hold(struct core *c, struct node_ix ix, int64_t until_ms);

#endif
