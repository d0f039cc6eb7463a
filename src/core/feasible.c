/* core/feasible.c: can this node take this unit? The one function that placement, admission,
 * explain and dry runs ask (A7).
 *
 * The order is that of C14: liveness and the operator's wish first, then labels and taints, type,
 * cpu, memory, disk; then ports and neighbours (constraints.c). feasible() gives the first reason,
 * feasible_all() every one, so that "what would have to change" can be answered exactly.
 */
#include "core/feasible.h"
#include "base/mutant.h"
#include "core/definitions.h"
#include "core/drift.h"
#include "core/fence.h"
#include "core/state.h"
#include "core/tombstone.h"
#include <string.h>

#define BIT(r) (UINT64_C(1) << PB__REASON__E__##r)

bool node_takes_units(const struct core *c, const struct node *n)
{
        return n->status == PB__NODE_STATUS__E__Ready && n->heard_at &&
               c->now_ms - n->heard_at <= c->opt.fresh_ms &&
               n->wish == PB__NODE_WISH__E__schedulable &&
               (n->n_lost == 0 || MUTANT(returning_node_takes_units));
}

static bool labels_match(const struct node *n, const struct class *k)
{
        for (uint32_t i = 0; i < k->n_selector; i++) {
                const char *v = label_get(n->labels, n->n_labels, k->selector[i].key);
                if (!v || strcmp(v, k->selector[i].value) != 0)
                        return false;
        }
        return true;
}

bool class_could_use(const struct node *n, const struct class *k)
{
        if (n->status != PB__NODE_STATUS__E__Ready || n->wish != PB__NODE_WISH__E__schedulable ||
            !(n->type_bits & k->type_bit))
                return false;
        if (k->exclusive && !node_can_hold(n, k))
                return false;
        return labels_match(n, k) && !(n->n_taints && taints_keep_away(n, k->more));
}

uint64_t feasible_all(const struct core *c, struct node_ix ix, const struct definition *d,
                      const char *workload_id)
{
        const struct node *n = node_get(c, ix);
        const struct class *k = &c->classes.at[d->class];
        uint64_t bits = 0;
        if (n->status != PB__NODE_STATUS__E__Ready)
                bits |= n->unreachable ? BIT(node_unreachable) : BIT(node_not_ready);
        else if (!n->heard_at || c->now_ms - n->heard_at > c->opt.fresh_ms)
                bits |= BIT(heartbeat_stale);
        if (n->wish != PB__NODE_WISH__E__schedulable)
                bits |= BIT(node_cordoned);
        if (n->n_lost && !MUTANT(returning_node_takes_units))
                bits |= BIT(node_returning);
        if (workload_id && n->n_tombstones && tombstone_find(c, ix, workload_id) != NONE)
                bits |= BIT(old_copy_present);
        if (workload_id && n->strangers.len && stranger_find(n, workload_id))
                /* of that name, and not of these records: it must not be replaced by the way */
                bits |= BIT(old_copy_present);
        if (!labels_match(n, k))
                bits |= BIT(label_mismatch);
        if (!(n->type_bits & k->type_bit))
                bits |= BIT(type_unsupported);
        else if (k->exclusive && !node_can_hold(n, k))
                bits |= BIT(exclusive_unsupported);
        struct amounts left = node_room(n);
        if (k->need.cpu_milli > left.cpu_milli)
                bits |= BIT(cpu_insufficient);
        if (k->need.mem_bytes > left.mem_bytes)
                bits |= BIT(memory_insufficient);
        if (k->need.disk_bytes > left.disk_bytes && !MUTANT(ledger_without_disk))
                bits |= BIT(disk_insufficient);
        if (k->needs & ~n->features)
                bits |= BIT(agent_too_old);
        if (k->more || n->n_taints || d->matches.len)
                bits |= constraints_against(c, ix, d);
        return bits;
}

Pb__Reason__E first_reason(uint64_t bits)
{
        static const Pb__Reason__E order[] = {
                PB__REASON__E__node_not_ready,
                PB__REASON__E__node_unreachable,
                PB__REASON__E__node_cordoned,
                PB__REASON__E__heartbeat_stale,
                PB__REASON__E__node_returning,
                PB__REASON__E__old_copy_present,
                PB__REASON__E__label_mismatch,
                PB__REASON__E__taint_not_tolerated,
                PB__REASON__E__type_unsupported,
                PB__REASON__E__cpu_insufficient,
                PB__REASON__E__memory_insufficient,
                PB__REASON__E__disk_insufficient,
                PB__REASON__E__port_taken,
                PB__REASON__E__affinity_unmet,
                PB__REASON__E__anti_affinity,
                PB__REASON__E__spread_exceeded,
                PB__REASON__E__exclusive_unsupported,
                PB__REASON__E__agent_too_old,
        };
        for (size_t i = 0; bits && i < ARRAY_LEN(order); i++)
                if (bits & (UINT64_C(1) << order[i]))
                        return order[i];
        return PB__REASON__E__none;
}

Pb__Reason__E feasible(const struct core *c, struct node_ix n, const struct definition *d,
                       const char *workload_id)
{
        uint64_t bits = feasible_all(c, n, d, workload_id);
        return bits ? first_reason(bits) : PB__REASON__E__none;
}
