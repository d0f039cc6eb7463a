/* core/wait.h: units that wait for a node. See wait.c. */
#ifndef BERTH_CORE_WAIT_H
#define BERTH_CORE_WAIT_H

#include "core/state.h"

/* Looks for a node that can take it; true: there is one, and it is placed there. */
bool unit_place(struct core *c, struct unit_ix w, Pb__Reason__E leaving, const char *why);
void unit_wait(struct core *c, struct unit_ix w, bool failover); /* nobody can take it now */
char *unit_wait_text(struct core *c, const struct unit *w);      /* why, for people */
Pb__Reason__E why_it_leaves(const struct core *c, const struct unit *w, const char **ret_why);
bool stands_for_its_class(const struct core *c, const struct unit *w);

#endif
