/* core/drift.h: what a node says that it holds, compared with what is known. See drift.c. */
#ifndef BERTH_CORE_DRIFT_H
#define BERTH_CORE_DRIFT_H

#include "core/state.h"

struct stranger *stranger_find(const struct node *n, const char *id);
/* what was said of it stays said: the caller takes it over */
uint64_t stranger_drop(struct core *c, struct node *n, const char *id);
uint16_t strangers_named(const struct core *c, const char *id); /* on all nodes */
void strangers_free(struct core *c, struct node *n);
/* w: the workload of that id, if there is one; t: the node's tombstone of it, or NONE. */
void drift_note(struct core *c, struct node_ix n, struct unit_ix w, uint32_t t,
                const Pb__UnitStatus *u);
void drift_unsay(struct core *c, struct node_ix n, uint64_t *said);
void drift_whole(struct core *c, struct node_ix n);
/* A report's units by id, so that each new stranger comes behind the others: in another order a
 * list of thousands would be moved once for each. */
ProtobufCMessage *const *drift_in_order(struct core *c, ProtobufCMessage *const *units, size_t n);
bool drift_is_seen(const struct node *n, const Pb__Heartbeat *beat);
void drift_stranger(struct core *c, struct node_ix n, struct unit_ix w, const Pb__UnitStatus *u);
void drift_tell(struct core *c, struct node_ix n);
void drift_removals(struct core *c, struct node_ix n);

#endif
