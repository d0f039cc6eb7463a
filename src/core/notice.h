/* core/notice.h: events that only tell, and their limits. See notice.c. */
#ifndef BERTH_CORE_NOTICE_H
#define BERTH_CORE_NOTICE_H

#include "core/state.h"

enum notice_kind { NOTICE, NOTICE_AUDIT, NOTICE_EXEC };
void notices_init(struct core *c);
void notices_fini(struct core *c);
/* Emits it, unless `by` (a caller, or "node:ID") has caused too many: then it is counted. more:
 * others like it that are only to be counted. true: it is an event. */
bool notice(struct core *c, enum notice_kind kind, const char *by, uint64_t more, Pb__Event *e);
/* How long until `by` may cause one more that is told; 0: now. For what must not happen untold. */
int64_t notice_wait_ms(struct core *c, enum notice_kind kind, const char *by);
/* An event that tells of a workload and changes nothing is part of its history all the same.
 * Those of version 1 were not: they are not in the records that were written with them. */
#define TOLD_VERSION 2
void apply_told(struct core *c, const Pb__Event *e);
void notice_of_node(struct core *c, struct node_ix n, Pb__Event *e);
void notices_sum(struct core *c);
int64_t notices_next_ms(const struct core *c);
int64_t fencing_lease_ms(const struct core *c);
int64_t fencing_stop_ms(const struct core *c);
int64_t fencing_wait_ms(const struct core *c);
void fencing_fill(const struct core *c, Pb__Fencing *ret);
void fencing_take(struct core *c, const Pb__Cluster *from);
bool fencing_is_sane(const Pb__Fencing *f);
void apply_fencing(struct core *c, const Pb__Event *e);
const char *wrong_fencing(struct core *c, const Pb__Event *e);
void decide_node_fence(struct core *c, const Pb__NodeRef *req);
void decide_release(struct core *c, const Pb__WorkloadRef *req);
const char *wrong_release(const struct core *c, const Pb__Event *e);
void apply_release(struct core *c, struct unit_ix w);
uint32_t exclusive_waiting(const struct core *c);
/* the id of one that is held back by a copy there; NULL: none */
const char *exclusive_waits_for(const struct core *c, struct node_ix n);
/* For a reader: that it is held back, by whom, and until when. */
void fence_shown(const struct core *c, const struct unit *w, struct arena *a,
                 Pb__WorkloadStatus *status);
void explain_exclusive(struct core *c, const struct unit *w, Pb__Explanation *x);

#endif
