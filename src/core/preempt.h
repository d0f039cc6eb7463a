/* core/preempt.h: who makes room for whom. See preempt.c. */
#ifndef BERTH_CORE_PREEMPT_H
#define BERTH_CORE_PREEMPT_H

#include "core/state.h"

void preempt_some(struct core *c);
/* it waits: can lower priorities make room? */
void preempt_wanted(struct core *c, const struct unit *w);
/* a unit of it begins or ceases to hold a place */
void priority_count(struct core *c, int32_t priority, int by);

#endif
