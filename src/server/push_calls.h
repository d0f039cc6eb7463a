/* server/push_calls.h: the calls to one node, between push_node.c (what is wanted, what was found)
 * and push_calls.c (how it is asked). Internal. */
#ifndef BERTH_SERVER_PUSH_CALLS_H
#define BERTH_SERVER_PUSH_CALLS_H

#include "server/push_node.h"
#include "server/push_status.h"

/* push_calls.c */
void push_pump(struct push_node *n); /* begins what is due and may begin */
void push_on_timer(int fd, short what, void *node);
/* its unit is going: whatever it brings is dropped */
void push_call_detach(struct push_call *call);
void push_node_down(struct push_node *n, const char *why);
void push_node_up(struct push_node *n);

/* push_node.c, push_delete.c: what a call brought. Each may free the unit. */
/* NULL: the agent does not know it */
void push_looked(struct push_node *n, struct push_unit *u, const Pa__WorkloadStatus *s);
void push_applied(struct push_node *n, struct push_unit *u, const Pa__ApplyWorkloadResponse *a);
void push_asked_to_delete(struct push_node *n, struct push_unit *u,
                          const Pa__DeleteWorkloadResponse *d);
void push_failed(struct push_node *n, struct push_unit *u, enum push_step step,
                 enum push_verdict verdict, enum grpc_status status, const char *message);
void push_told_actions(struct push_node *n, struct push_unit *u, const Pa__ListActionsResponse *r);
void push_told_no_actions(struct push_node *n, struct push_unit *u, bool never);
void push_listed(struct push_node *n, const Pa__ListWorkloadsResponse *list, uint64_t taken_seq);
uint64_t push_taken_seq(const struct push_node *n);
void push_forget_gone(struct push_node *n);
bool push_may_ask(const struct push_node *n); /* the ring takes what is found */

/* push_node.c: towards the wish. */
void push_go(struct push_node *n, struct push_unit *u, enum push_step step, int64_t wait_ms);
void push_look_later(struct push_node *n, struct push_unit *u);
void push_is_gone(struct push_node *n, struct push_unit *u); /* frees the unit */

/* push_delete.c */
void push_deletion_taken(struct push_node *n, struct push_unit *u);
/* may free the unit */
void push_deletion_found(struct push_node *n, struct push_unit *u, const Pa__WorkloadStatus *s);
/* of a list; its unit is not in the plan */
bool push_is_ghost(struct push_node *n, const Pa__WorkloadStatus *s);
/* after a list: those that were not in it are gone */
void push_ghosts_sweep(struct push_node *n);
void push_ghosts_free(struct push_node *n);

#endif
