/* core/workload.h: workloads: what users ask, policy, records. See workload.c. */
#ifndef BERTH_CORE_WORKLOAD_H
#define BERTH_CORE_WORKLOAD_H

#include "core/state.h"

struct unit_ix workload_find(const struct core *c, const char *id);
void decide_apply(struct core *c, const Pb__ApplyWorkloadRequest *req);
void decide_apply_many(struct core *c, const Pb__ApplyWorkloadsRequest *req); /* apply_many.c */
void many_failed(struct core *c, const struct err *err);
void many_applied(struct core *c, const struct unit *w, bool created);
void decide_delete(struct core *c, const Pb__WorkloadRef *req);
void decide_desired(struct core *c, const Pb__SetDesiredRequest *req);
void decide_retry(struct core *c, const Pb__WorkloadRef *req);
/* The one that a user wants to change, if it is there and still as they saw it; else they have been
 * told why not. */
struct unit_ix to_change(struct core *c, const char *id, uint64_t if_match, uint64_t index);
void reply_workload(struct core *c, struct unit_ix w, bool created);
void decide_failure(struct core *c, struct unit_ix w, Pb__Reason__E reason, const char *message,
                    const Pb__UnitStatus *u);
/* its node is emptied, or has a taint that drives it out */
bool unit_must_leave(const struct core *c, const struct unit *w);
/* The reason that stands in the way on most nodes other than its own; none: some node could take
 * it. */
Pb__Reason__E why_nowhere(struct core *c, const struct unit *w, char **ret_text);
/* For a reader: the main reason why it waits now, which may be another than when it began to; 0: as
 * recorded. */
Pb__Reason__E why_it_waits(struct core *c, const struct unit *w);
bool place_waiting(struct core *c); /* true: there is more to do now */
void launch(struct core *c, struct unit_ix w, Pb__Reason__E reason, enum action action,
            const char *message);
void apply_workload_event(struct core *c, const Pb__Event *e);
void waiting_add(struct core *c, struct unit_ix w);
void waiting_remove(struct core *c, struct unit_ix w);
/* How many of its attempts may fail; and is it one that is tried for ever, and waits as long as it
 * ever will in between? */
int32_t workload_retry_limit(const struct core *c, const struct unit *w);
bool workload_is_at_cap(const struct core *c, const struct unit *w);
void unit_has_lasted(struct core *c, struct unit_ix ix); /* derived from the state alone */
/* in which a unit is shown as Unknown while its node is lost */
extern const uint8_t on_node_phases[3];
void unit_assign(struct core *c, struct unit_ix w, struct node_ix n);
void unit_unassign(struct core *c, struct unit_ix w);
void unit_hold(struct core *c, struct unit_ix w, bool hold);
void unit_settle(struct core *c, struct unit_ix w); /* after a load: what is to be done about it */
void *workload_record(struct core *c, const struct unit *w, bool live, struct arena *a,
                      size_t *ret_len);
void save_workload(struct core *c, struct unit_ix w);
void views_of_new_workload(struct core *c, struct unit_ix ix); /* none of them is stored yet */

#endif
