/* core/adopt.h: units and nodes that nobody knows, and how they are taken over. See adopt.c. */
#ifndef BERTH_CORE_ADOPT_H
#define BERTH_CORE_ADOPT_H

#include "core/state.h"

void adopt_fini(struct core *c);
void adoption_end(struct core *c, size_t i);
void adoption_lost(struct core *c, struct node_ix n); /* its stream is gone, or new */
void adopt_by_itself(struct core *c, struct node_ix n);
/* an operator takes it over with all that it has */
bool adopt_is_said(const struct core *c, const struct node *n);
/* its agent was heard: has that been done? */
void adopt_is_done(struct core *c, struct node_ix n);
void decide_adopt(struct core *c, const Pb__AdoptRequest *req);

#endif
