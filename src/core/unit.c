/* core/unit.c: see unit.h. */
#include "core/unit.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "core/definitions.h"
#include "core/drain.h"
#include "core/drift.h"
#include "core/node.h"
#include "core/place.h"
#include "core/preempt.h"
#include "core/quota.h"
#include "core/rules.h"
#include "core/state.h"
#include "core/tombstone.h"
#include "core/workload.h"
#include <string.h>

static const struct unit_kind *const kinds[UNIT_KINDS] = { [UNIT_WORKLOAD] = &workload_kind };

const struct unit_kind *unit_kind_of(const struct unit *w)
{
        return kinds[w->kind];
}

struct unit_ix unit_find(const struct core *c, const char *id)
{
        return (struct unit_ix){ str_empty(id) ? NONE : map_get(&c->unit_by_id, id, strlen(id)) };
}

struct unit_ix unit_add(struct core *c, enum unit_kind_id kind, const char *id)
{
        struct unit_ix w;
        if (c->free_units.len)
                w.v = array_pop(&c->free_units);
        else {
                array_push(&c->units);
                w.v = (uint32_t)c->units.len - 1;
        }
        *unit_at(c, w) = (struct unit){ .id = mem_strdup(id),
                                        .kind = (uint8_t)kind,
                                        .definition = NONE,
                                        .node = NODE_NONE,
                                        .node_next = UNIT_NONE,
                                        .node_prev = UNIT_NONE,
                                        .wait_next = UNIT_NONE,
                                        .wait_prev = UNIT_NONE,
                                        .same_next = UNIT_NONE,
                                        .same_prev = UNIT_NONE,
                                        .hold = NONE };
        map_put(&c->unit_by_id, w.v);
        order_add(&c->workloads_in_order, w.v);
        unit_at(c, w)->tombs = tombstone_count(c, id);
        unit_at(c, w)->shadows = strangers_named(c, id);
        c->n_workloads++;
        c->by_phase[0]++;
        return w;
}

void unit_free(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        waiting_remove(c, ix);
        usage_drop(c, w);
        rules_subject_gone(c, false, w->id);
        unit_unassign(c, ix);
        heap_unset(&c->unit_deadlines, ix.v);
        map_remove(&c->unit_by_id, ix.v);
        order_remove(&c->workloads_in_order, ix.v);
        unit_set_definition(c, ix, NONE);
        c->by_phase[w->phase]--;
        mem_free(w->id);
        mem_free(w->revision);
        mem_free(w->observed);
        mem_free(w->failure);
        mem_free(w->last_error);
        mem_free(w->previous_node);
        mem_free(w->lost_node);
        mem_free(w->progress);
        *w = (struct unit){ 0 };
        *array_push(&c->free_units) = ix.v;
        c->n_workloads--;
}

const uint8_t on_node_phases[3] = { PB__PHASE__E__Running, PB__PHASE__E__Scheduled,
                                    PB__PHASE__E__Updating };

/* by is 1 or -1. */
static void count_on_node(struct core *c, const struct unit *w, int by)
{
        for (int k = 0; k < 3 && node_ok(w->node); k++)
                if (w->phase == on_node_phases[k])
                        node_at(c, w->node)->on_node[k] += (uint32_t)by;
}

void unit_set_phase(struct core *c, struct unit *w, Pb__Phase__E phase)
{
        count_on_node(c, w, -1);
        c->by_phase[w->phase]--;
        w->phase = (uint8_t)phase;
        c->by_phase[w->phase]++;
        count_on_node(c, w, 1);
}

void unit_hold(struct core *c, struct unit_ix ix, bool hold)
{
        struct unit *w = unit_at(c, ix);
        if (w->holds == hold)
                return;
        must(node_ok(w->node), "W2: only an assigned workload holds capacity");
        if (hold) {
                w->held = class_of(c, w)->need;
                ledger_reserve(&node_at(c, w->node)->ledger, w->held);
                /* (D2): something is left there after all */
                node_at(c, w->node)->drain_finished_at = 0;
        } else if (!MUTANT(ledger_not_released))
                ledger_release(&node_at(c, w->node)->ledger, w->held);
        if (!hold)
                w->held = (struct amounts){ 0 };
        w->holds = hold;
        node_at(c, w->node)->n_holding += hold ? 1 : -1u;
        counts_unit(c, w, hold ? 1 : -1);
        priority_count(c, class_of(c, w)->priority, hold ? 1 : -1);
        columns_update(c, w->node);
        save_node(c, w->node);
        if (!hold)
                drain_touch(c, w->node);
        else if (node_drains(node_at(c, w->node)))
                node_deadline_refresh(c, w->node); /* (D3) */
}

void unit_assign(struct core *c, struct unit_ix ix, struct node_ix n)
{
        struct unit *w = unit_at(c, ix);
        must(!node_ok(w->node), "W1: a workload has one node at most");
        w->node = n;
        w->node_prev = UNIT_NONE;
        w->node_next = node_at(c, n)->units;
        if (unit_ok(w->node_next))
                unit_at(c, w->node_next)->node_prev = ix;
        node_at(c, n)->units = ix;
        node_at(c, n)->n_units++;
        count_on_node(c, w, 1);
}

void unit_unassign(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (!node_ok(w->node))
                return;
        unit_hold(c, ix, false);
        drift_unsay(c, w->node, &w->said);
        struct node *n = node_at(c, w->node);
        if (unit_ok(w->node_prev))
                unit_at(c, w->node_prev)->node_next = w->node_next;
        else
                n->units = w->node_next;
        if (unit_ok(w->node_next))
                unit_at(c, w->node_next)->node_prev = w->node_prev;
        n->n_units--;
        count_on_node(c, w, -1);
        w->node = NODE_NONE;
        w->node_next = w->node_prev = UNIT_NONE;
}

void unit_mark_dirty(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (w->dirty || !c->started || MUTANT(dirty_set_forgotten))
                return;
        w->dirty = true;
        *array_push(&c->dirty) = ix;
}

void unit_deadline_refresh(struct core *c, struct unit_ix ix)
{
        int64_t at = unit_deadline(c, unit_at(c, ix));
        if (MUTANT(deadline_lost_on_restart) && (!c->started || c->in->kind == INPUT_START))
                return;
        if (at == HEAP_NEVER)
                heap_unset(&c->unit_deadlines, ix.v);
        else
                heap_set(&c->unit_deadlines, ix.v, at);
}

/* ---- policy, by kind ---- */

void unit_save(struct core *c, struct unit_ix ix)
{
        unit_kind_of(unit_at(c, ix))->save(c, ix);
}

void unit_look(struct core *c, struct unit_ix ix)
{
        unit_kind_of(unit_at(c, ix))->look(c, ix);
}

void unit_due(struct core *c, struct unit_ix ix)
{
        if (unit_at(c, ix)->id)
                unit_kind_of(unit_at(c, ix))->due(c, ix);
}

int64_t unit_deadline(const struct core *c, const struct unit *w)
{
        return unit_kind_of(w)->deadline(c, w);
}

void unit_evict(struct core *c, struct unit_ix ix)
{
        unit_kind_of(unit_at(c, ix))->evict(c, ix);
}

void unit_leave(struct core *c, struct unit_ix ix, Pb__Reason__E reason, const char *why)
{
        unit_kind_of(unit_at(c, ix))->leave(c, ix, reason, why);
}

void unit_settle(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        unit_deadline_refresh(c, ix);
        if (w->phase == PB__PHASE__E__Pending || w->phase == PB__PHASE__E__Deleting)
                unit_mark_dirty(c, ix);
}
