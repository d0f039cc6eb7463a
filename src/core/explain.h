/* core/explain.h: why, why not, what would have to change. See explain.c. */
#ifndef BERTH_CORE_EXPLAIN_H
#define BERTH_CORE_EXPLAIN_H

#include "core/state.h"

void read_explain(struct core *c, const Pb__WorkloadRef *req);
char *feasible_detail(const struct core *c, struct node_ix n, const struct definition *d,
                      Pb__Reason__E reason, struct arena *a);
char *constraints_detail(const struct core *c, struct node_ix n, const struct definition *d,
                         Pb__Reason__E reason, struct arena *a);
char *constraints_remedy(const struct core *c, struct node_ix n, const struct definition *d,
                         Pb__Reason__E reason, struct arena *a);

#endif
