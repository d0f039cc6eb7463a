/* core/node.h: nodes: hello, heartbeats, silence, reachability, records. See node.c. */
#ifndef BERTH_CORE_NODE_H
#define BERTH_CORE_NODE_H

#include "core/state.h"

struct node_ix node_find(const struct core *c, const char *id);
void decide_hello(struct core *c, const Pb__Hello *hello, uint64_t session);
void decide_heartbeat(struct core *c, const Pb__Heartbeat *beat, uint64_t session);
void decide_gone(struct core *c, uint64_t session);
void decide_unreachable(struct core *c, uint64_t session, const char *why);
void decide_reachable(struct core *c, uint64_t session);
/* A runtime turned out not to work on the workload's node: that node is marked, the workload goes
 * elsewhere (C25). */
void decide_mismatch(struct core *c, struct unit_ix w, const char *message);
void decide_node_wish(struct core *c, const Pb__SetNodeWishRequest *req);
void decide_node_forget(struct core *c, const Pb__NodeRef *req);
void decide_node_deadline(struct core *c, struct node_ix n);
/* those that looked for another node and no longer must leave stay */
void need_not_move(struct core *c, struct node_ix n);
void reply_node(struct core *c, struct node_ix n);
/* The node that a request is about. False: it was answered; there is none, or it is not at the
 * version that was asked for (0: any). */
bool node_asked_for(struct core *c, const char *id, uint64_t if_match, struct node_ix *ret);
void decide_taints(struct core *c, const Pb__SetTaintsRequest *req);
void apply_node_event(struct core *c, const Pb__Event *e);
void node_deadline_refresh(struct core *c, struct node_ix n);
void reply_node(struct core *c, struct node_ix n);
struct node_ix node_add(struct core *c, const char *id);
void node_free(struct core *c, struct node_ix n);
/* shares what h has */
void attributes_of_hello(const Pb__Hello *h, Pb__Node *node, Pb__NodeResources *res);
void node_attributes(struct core *c, struct node_ix ix, const Pb__Node *from);
/* takes from's types away from what it runs */
void node_unsupported(struct node *n, const Pb__Node *from);
/* Labels and amounts of an event; and that it was thrown out: for admission.c. */
void node_take_shape(struct core *c, struct node_ix n, const Pb__Node *from);
void node_take_expulsion(struct core *c, struct node_ix n, const Pb__Event *e);
/* An operator said that nothing there counts any more: its units need not wait, and no brake holds
 * them. */
static inline bool node_is_written_off(const struct node *n)
{
        return n->fenced_at || n->expelled_at;
}
struct node_ix session_node(const struct core *c, uint64_t session);
int64_t silence_limit_ms(const struct core *c);
/* lost beyond the grace, and no brake */
bool node_given_up(const struct core *c, struct node_ix n);
bool node_evacuates(const struct core *c, struct node_ix n); /* its units should run elsewhere */
void *node_record(struct core *c, const struct node *n, bool live, struct arena *a,
                  size_t *ret_len);
/* live, and what blocks its drain */
void *node_record_whole(struct core *c, const struct node *n, struct arena *a, size_t *ret_len);
/* of liveness and wish */
Pb__NodeStatus__E node_status_shown(const struct node *n);
void save_node(struct core *c, struct node_ix n);
struct node_ix node_get_or_add(struct core *c, const char *id); /* while records are loaded */

#endif
