/* core/hold.h: room that is kept on a node for somebody until a time.
 *
 * What a hold keeps is free in the node's ledger and not free for anybody else: feasible() and
 * placement look at node_room(), which leaves it out. Preemption keeps what its victims give back
 * for the one that waits; whoever needs room somewhere later than now (the target of a migration, a
 * bid) does the same.
 *
 * Invariants:
 *   (H1) What a node has kept, amounts and ports, is the sum over its holds that are not set aside.
 *   (H2) A unit has at most one hold, and each of the two knows the other.
 *   (H3) A node that goes takes its holds with it; one that nobody renews goes when its time is
 *   over.
 *
 * Holds are live: a restart forgets them.
 */
#ifndef BERTH_CORE_HOLD_H
#define BERTH_CORE_HOLD_H

#include "core/ledger.h"
#include "core/unit.h"

struct node_ix;

struct hold {
        uint32_t node;       /* UINT32_MAX: free slot */
        struct unit_ix unit; /* for whom */
        struct amounts amounts;
        uint32_t *ports;
        uint32_t n_ports;
        int64_t until_ms;
        bool aside;
};

/* Keeps what this unit needs on this node; whatever was kept for it elsewhere is given up. */
void hold_for_unit(struct core *c, struct unit_ix w, struct node_ix n, int64_t until_ms);
void hold_drop(struct core *c, struct unit_ix w); /* nothing if it has none */
/* While it looks for a place itself, what is kept for it counts as free. */
void hold_aside(struct core *c, struct unit_ix w, bool aside);
void holds_leave(struct core *c, struct node_ix n); /* the node goes */
/* Drops those whose time is over, and those for which useful() has no hope. */
void holds_review(struct core *c, bool (*useful)(const struct core *c, const struct hold *h));
bool has_hold(const struct unit *w);
/* NODE_NONE: nothing is kept for it */
struct node_ix hold_node(const struct core *c, const struct unit *w);
void holds_fini(struct core *c);
int holds_check(const struct core *c, struct err *err);

#endif
