/* sim/shadow.h: what the committed events alone say about who is where, and what each asks for. For
 * the files that judge by it.
 *
 * It knows the few words that the simulated users know: one label (app), one topology (zone), types
 * of one kind. What it says about them is worked out the slow and plain way: nothing is counted
 * ahead, everything is looked at again for every question.
 */
#ifndef BERTH_SIM_SHADOW_H
#define BERTH_SIM_SHADOW_H

#include "base/array.h"
#include "events.pb-c.h"

enum { CPU, MEMORY, DISK, RESOURCES };

#define SHADOW_FEW 4

/* Names are their first letter; 0: none, or any. */
struct shadow_near {
        char app;
        bool zone; /* else: the node itself */
        bool anti, preferred;
        uint32_t weight;
};
struct shadow_spread {
        char app;
        bool zone, preferred;
        uint32_t max_skew;
};
struct shadow_taint { /* or a toleration */
        char key, value;
        uint8_t effect;
};
struct shadow_workload {
        bool known, holds;
        bool wanted;   /* to run */
        bool finished; /* and nobody has asked for another run since */
        bool deleting;
        bool pinned;   /* while it is on a node, it stays there */
        uint32_t node; /* number + 1; 0: none */
        int64_t need[RESOURCES];
        char zone;   /* 0: any */
        bool packed; /* the fullest node is the best */
        char tenant, app;
        int32_t priority;
        struct shadow_near near[SHADOW_FEW];
        struct shadow_spread spread[SHADOW_FEW];
        struct shadow_taint tolerations[SHADOW_FEW];
        uint32_t ports[SHADOW_FEW];
        uint32_t n_near, n_spread, n_tolerations, n_ports;
};
struct shadow_node {
        bool known, ready;
        bool cannot_run; /* its runtime turned out not to work, and it has not registered since */
        Pb__NodeWish__E wish;
        int64_t drain_deadline; /* 0: none */
        char zone;
        int64_t total[RESOURCES], reserved[RESOURCES];
        uint32_t lost; /* tombstones of what moved away while it was silent */
        struct shadow_taint taints[SHADOW_FEW];
        uint32_t n_taints;
};
struct shadow_tombstone {
        uint32_t node, workload;
        bool lost;
        int64_t held[RESOURCES];
        uint32_t ports[SHADOW_FEW], n_ports;
};
struct shadow {
        ARRAY(struct shadow_workload) workloads;
        ARRAY(struct shadow_node) nodes;
        ARRAY(struct shadow_tombstone) tombstones;
};

/* What is pinned goes for nobody. */
static inline bool shadow_makes_room(const struct shadow_workload *x,
                                     const struct shadow_workload *w)
{
        return x->priority < w->priority && !x->pinned;
}

/* shadow.c. Both grow the array: what was taken before may have moved. */
struct shadow_node *shadow_node(struct shadow *h, size_t n);
struct shadow_workload *shadow_workload(struct shadow *h, size_t n);
struct shadow_tombstone *shadow_tombstone(struct shadow *h, size_t node, size_t workload);
bool shadow_could_take(struct shadow *h, size_t node, size_t workload);

/* neighbours.c: what workloads ask of their node and of their neighbours (C17, C25, C38). */
void neighbours_take(struct shadow_workload *w, const Pb__Workload *from);
void neighbours_take_taints(struct shadow_node *n, const Pb__Node *from);
/* The rule that this workload there would break; NULL: none. lower: as if those of a lower priority
 * did not hold their ports. */
const char *neighbours_against(const struct shadow *h, size_t node, size_t workload,
                               bool without_lower);
const char *neighbours_ports(const struct shadow *h, size_t node, size_t workload,
                             bool without_lower);
/* What preferences that are not met there cost, where 2^31 is as much as a full node. */
int64_t neighbours_cost(const struct shadow *h, size_t node, size_t workload);
bool shadow_tolerates(const struct shadow_workload *w, const struct shadow_taint *t);
/* by a taint, if it is there */
bool shadow_is_driven_out(const struct shadow *h, size_t node, size_t workload);

/* moves.c: every move has a cause that can be seen. */
struct moves;
struct moves *moves_create(void);
void moves_destroy(struct moves *m);
/* Before the event is applied to the shadow. */
const char *moves_event(struct moves *m, struct shadow *h, const Pb__Event *e,
                        int64_t server_started);

#endif
