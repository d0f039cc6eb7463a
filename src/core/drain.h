/* core/drain.h: emptying a node by an operator's wish; forgetting one. See drain.c. */
#ifndef BERTH_CORE_DRAIN_H
#define BERTH_CORE_DRAIN_H

#include "core/state.h"

bool node_drains(const struct node *n);
uint32_t drain_left(const struct node *n); /* units and old copies that are still there */
int64_t drain_due_ms(const struct node *n);
void drain_touch(struct core *c, struct node_ix n); /* something was given back there: look at it */
bool drain_is_full(const struct core *c, const struct node *n);
void drain_some(struct core *c);
void drain_deadline(struct core *c, struct node_ix n);
void drain_record(const struct node *n, bool live, Pb__Drain *ret);
void drain_blockers(struct core *c, const struct node *n, Pb__Drain *d); /* in the step's memory */
void drain_take(struct node *n, const Pb__Drain *d, int64_t otherwise);
bool drain_is_sane(const Pb__Drain *d);
uint32_t units_at_work(const struct core *c, const struct node *n);
void forget_begin(struct core *c, struct node_ix n);
void forget_some(struct core *c);

#endif
