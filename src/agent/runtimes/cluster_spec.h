/* agent/runtimes/cluster_spec.h: between a unit of this node and a workload of the child cluster.
 * Pure: no calls, no clock.
 *
 * What goes down: type, spec, resources, restart, stop_grace_seconds, exclusive, labels and
 * annotations, and the marks below. What stays here: id (it gets a prefix), tenant, priority,
 * strategy, node_selector, tolerations, affinity and spread, for the parent has already honoured
 * them with this node as a whole, and the child's nodes have other labels and taints; ttl_seconds,
 * for a finished one is deleted when the parent says so.
 */
#ifndef BERTH_AGENT_CLUSTER_SPEC_H
#define BERTH_AGENT_CLUSTER_SPEC_H

#include "agent/runtime.h"
#include "api.pb-c.h"
#include "base/arena.h"
#include "base/str.h"

#define PARENT_NODE "berth.io/parent-node"         /* label: who may touch it */
#define PARENT_CLUSTER "berth.io/parent-cluster"   /* label: for people */
#define PARENT_WORKLOAD "berth.io/parent-workload" /* annotation: the unit's id at the parent */
#define PARENT_TOKEN "berth.io/parent-token"       /* annotation: "epoch.seq" of this start */
#define PARENT_REVISION "berth.io/parent-revision" /* annotation */

#define CHILD_ID_MAX 128

/* "<node>.<id>"; of one that would be too long, the beginning and a hash. */
const char *cluster_child_id(struct arena *arena, const char *node_id, const char *workload_id);
/* The workload to create in the child for this start. Lives in the arena; shares texts with the
 * start's definition. */
Pb__Workload *cluster_child_workload(struct arena *arena, const char *node_id,
                                     const struct runtime_start *start);

/* Is it a unit of this node? */
bool cluster_is_ours(const Pb__Workload *w, const char *node_id);
/* Does it come from this very parent, and not from another cluster's node of that name? */
bool cluster_is_from(const Pb__Workload *w, const char *node_id, const char *cluster_id);
/* The marks of one that is. False: they are not there, or make no sense. */
bool cluster_marks(const Pb__Workload *w, const char **ret_id, struct unit_token *ret_token,
                   const char **ret_revision);

enum cluster_word {
        WORD_WAITS, /* no place yet */
        /* placed, being started, started again, or moved; ev->message: how far it is */
        WORD_COMES,
        WORD_RUNS, /* ev->at_ms */
        /* by itself, and the child will not start it again: exit code, signal, reason, message,
         * at_ms */
        WORD_ENDED,
        WORD_STOPPED, /* because somebody wished it */
        WORD_LEAVES,  /* being deleted */
};
/* What the child says of a unit. Texts belong to w. */
enum cluster_word cluster_read(const Pb__Workload *w, struct runtime_event *ev);

struct cluster_sum {
        struct runtime_capacity capacity;
        struct runtime_usage usage;
        int32_t nodes;
};
/* Adds one node of the child: its amounts and types count if it takes work (Ready, schedulable). */
void cluster_add_node(struct cluster_sum *sum, const Pb__Node *n);

#endif
