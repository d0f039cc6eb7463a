/* core/tombstone.h: copies that must be gone and are not proved gone. See tombstone.c. */
#ifndef BERTH_CORE_TOMBSTONE_H
#define BERTH_CORE_TOMBSTONE_H

#include "core/state.h"

uint32_t tombstone_find(const struct core *c, struct node_ix n, const char *workload_id);
void tombstone_add(struct core *c, struct node_ix n, const char *workload_id, uint64_t epoch,
                   uint64_t seq, struct amounts held, Pb__Reason__E reason, int64_t at);
void tombstone_remove(struct core *c, uint32_t t);
/* It leaves its node, where its copy may still be: what it held stays held there. */
void unit_to_tombstone(struct core *c, struct unit_ix w, Pb__Reason__E reason, int64_t at);
uint16_t tombstone_count(const struct core *c, const char *workload_id);
/* the first; then same_next */
uint32_t tombstones_of(const struct core *c, const char *workload_id);
void save_tombstone(struct core *c, uint32_t t);

#endif
