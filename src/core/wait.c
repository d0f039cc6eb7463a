/* core/wait.c: units that wait for a node.
 *
 * Those of one class (the part of a definition that placement looks at) fit on the same nodes and
 * wait in one queue, first come first served; classes with somebody waiting are in a list, the
 * highest priority first. A queue is looked at when something may fit that did not
 * (capacity_change), and not before.
 */
#include "core/wait.h"
#include "base/mutant.h"
#include "core/drain.h"
#include "core/feasible.h"
#include "core/fence.h"
#include "core/node.h"
#include "core/place.h"
#include "core/policy.h"
#include "core/preempt.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include "model/json.h"
#include <string.h>

/* Behind all of a higher priority, before its equals. */
static void waiting_class_add(struct core *c, uint32_t ki)
{
        struct class *k = &c->classes.at[ki];
        uint32_t before = NONE, after = c->waiting_first;
        while (after != NONE && c->classes.at[after].priority > k->priority) {
                before = after;
                after = c->classes.at[after].next_waiting;
        }
        k->prev_waiting = before;
        k->next_waiting = after;
        if (after != NONE)
                c->classes.at[after].prev_waiting = ki;
        if (before != NONE)
                c->classes.at[before].next_waiting = ki;
        else
                c->waiting_first = ki;
}

void waiting_add(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (w->waiting)
                return;
        uint32_t ki = definition_of(c, w)->class;
        struct class *k = &c->classes.at[ki];
        w->waiting = true;
        w->wait_next = UNIT_NONE;
        w->wait_prev = (struct unit_ix){ k->last };
        if (k->last != NONE)
                c->units.at[k->last].wait_next = ix;
        else
                k->first = ix.v;
        k->last = ix.v;
        if (k->n_waiting++ == 0)
                waiting_class_add(c, ki);
}

void waiting_remove(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (!w->waiting)
                return;
        if (w->over_quota) {
                tenant_queue_remove(c, ix);
                return;
        }
        uint32_t ki = definition_of(c, w)->class;
        struct class *k = &c->classes.at[ki];
        w->waiting = false;
        hold_drop(c, ix);
        if (unit_ok(w->wait_prev))
                unit_at(c, w->wait_prev)->wait_next = w->wait_next;
        else
                k->first = w->wait_next.v;
        if (unit_ok(w->wait_next))
                unit_at(c, w->wait_next)->wait_prev = w->wait_prev;
        else
                k->last = w->wait_prev.v;
        w->wait_next = w->wait_prev = UNIT_NONE;
        if (--k->n_waiting == 0) {
                if (k->prev_waiting != NONE)
                        c->classes.at[k->prev_waiting].next_waiting = k->next_waiting;
                else
                        c->waiting_first = k->next_waiting;
                if (k->next_waiting != NONE)
                        c->classes.at[k->next_waiting].prev_waiting = k->prev_waiting;
                k->next_waiting = k->prev_waiting = NONE;
        }
}

bool unit_place(struct core *c, struct unit_ix ix, Pb__Reason__E leaving, const char *why)
{
        struct unit *w = unit_at(c, ix);
        const struct definition *d = definition_of(c, w);
        struct node_ix old = w->node;
        struct place_result r;
        if (unit_is_pinned(c, w))
                return false;
        c->stats.placements++;
        if (w->holds) /* the nodes are compared as if it were not there */
                counts_unit_quietly(c, w, -1);
        hold_aside(c, ix, true);
        if (node_ok(old) && !w->holds && feasible(c, old, d, w->id) == PB__REASON__E__none)
                r = (struct place_result){ .node = old,
                                           .candidates = 1,
                                           .utilisation =
                                               ledger_utilisation(&node_at(c, old)->ledger),
                                           .cost = place_cost(c, old, d) };
        else
                r = place(c, d, is_barred(w) ? w->id : NULL, old);
        if (w->holds)
                counts_unit_quietly(c, w, 1);
        hold_aside(c, ix, false);
        if (!node_ok(r.node)) {
                c->stats.placement_failures++;
                return false;
        }
        waiting_remove(c, ix);
        unit_kind_of(w)->placed(c, ix, &r, leaving, why);
        return true;
}

/* The reason that stands in the way on most nodes; of equals the one that was known, then by the
 * order of the list. */
static Pb__Reason__E main_reason(struct core *c, const struct unit *w, struct node_ix exclude,
                                 unsigned known, char **ret_text)
{
        uint32_t counts[64] = { 0 };
        if (unit_is_pinned(c, w)) {
                *ret_text = arena_printf(&c->step, "pinned to %s: only an operator moves it",
                                         node_at(c, w->node)->id);
                return PB__REASON__E__pinned_to_node;
        }
        if (w->holds)
                counts_unit_quietly(c, w, -1);
        for (uint32_t i = 0; i < c->nodes.len; i++)
                if (c->nodes.at[i].id && i != exclude.v)
                        counts[feasible(c, (struct node_ix){ i }, definition_of(c, w), w->id)]++;
        if (w->holds)
                counts_unit_quietly(c, w, 1);
        uint32_t most = known && known < ARRAY_LEN(counts) ? counts[known] : 0;
        Pb__Reason__E best = most ? (Pb__Reason__E)known : PB__REASON__E__no_nodes;
        bool any = false;
        struct str text = STR_INIT;
        str_addf(&text, "no suitable node available (");
        for (unsigned r = 1; r < ARRAY_LEN(counts); r++) {
                if (!counts[r])
                        continue;
                const char *name = json_enum_name(&pb__reason__e__descriptor, (int)r);
                str_addf(&text, "%s%s: %u", any ? ", " : "", name ? name : "?", counts[r]);
                any = true;
                if (counts[r] > most) {
                        most = counts[r];
                        best = (Pb__Reason__E)r;
                }
        }
        if (!c->n_nodes)
                str_adds(&text, "no nodes");
        str_addc(&text, ')');
        *ret_text = arena_strdup(&c->step, str_c(&text));
        str_fini(&text);
        return best;
}

Pb__Reason__E why_nowhere(struct core *c, const struct unit *w, char **ret_text)
{
        *ret_text = "";
        if (unit_is_pinned(c, w))
                return main_reason(c, w, w->node, 0, ret_text);
        if (w->holds)
                counts_unit_quietly(c, w, -1);
        struct place_result r = place(c, definition_of(c, w), is_barred(w) ? w->id : NULL, w->node);
        if (w->holds)
                counts_unit_quietly(c, w, 1);
        return node_ok(r.node) ? PB__REASON__E__none : main_reason(c, w, w->node, 0, ret_text);
}

char *unit_wait_text(struct core *c, const struct unit *w)
{
        char *text;
        main_reason(c, w, NODE_NONE, 0, &text);
        return text;
}

/* If it does not fit, nobody of its class does: nothing in its way is its own. */
bool stands_for_its_class(const struct core *c, const struct unit *w)
{
        return !is_barred(w) && !node_ok(w->node) && !class_of(c, w)->n_holds &&
               !is_guarded(c, definition_of(c, w));
}

Pb__Reason__E why_it_waits(struct core *c, const struct unit *w)
{
        struct class *k = class_of(c, w);
        char *text;
        if (unit_is_pinned(c, w))
                return PB__REASON__E__pinned_to_node;
        if (!stands_for_its_class(c, w))
                return k->reason;
        /* a follower does not know who is there */
        if (k->shown_at != c->capacity_change && c->looks_left && c->started) {
                c->looks_left--;
                k->shown_at = c->capacity_change;
                k->shown_reason = (uint8_t)main_reason(c, w, NODE_NONE, w->reason, &text);
        }
        bool known = k->shown_at == c->capacity_change &&
                     (k->shown_reason != PB__REASON__E__no_nodes || !c->n_nodes);
        return known ? k->shown_reason : k->reason;
}

Pb__Reason__E why_it_leaves(const struct core *c, const struct unit *w, const char **ret_why)
{
        bool lost = node_get(c, w->node)->status == PB__NODE_STATUS__E__NotReady;
        if (!node_evacuates(c, w->node) && taints_drive_out(c, w)) {
                *ret_why = "its node has a taint that it does not tolerate";
                return PB__REASON__E__taint_not_tolerated;
        }
        *ret_why = lost ? "its node is lost" : "its node is drained";
        return lost ? PB__REASON__E__node_lost : PB__REASON__E__node_drained;
}

bool unit_must_leave(const struct core *c, const struct unit *w)
{
        return node_evacuates(c, w->node) ||
               (node_get(c, w->node)->n_taints && taints_drive_out(c, w));
}

bool place_waiting(struct core *c)
{
        uint32_t ki = c->waiting_first;
        while (ki != NONE && !step_is_full(c)) {
                struct class *k = &c->classes.at[ki];
                uint32_t next = k->next_waiting;
                struct unit_ix ix = { k->tried_at != c->capacity_change ? k->first : NONE };
                uint64_t change = c->capacity_change;
                bool full = false;
                k->woken = false;
                if (MUTANT(class_queue_skipped))
                        ix = UNIT_NONE;
                while (unit_ok(ix) && !full) {
                        struct unit *w = unit_at(c, ix);
                        struct unit_ix after = w->wait_next;
                        if (node_ok(w->node) && w->holds && !unit_must_leave(c, w)) {
                                waiting_remove(c, ix);
                                unit_mark_dirty(c, ix);
                                ix = after;
                                continue;
                        }
                        if (quota_blocks(c, ix)) {
                                wait_for_quota(c, ix);
                                decision_done(c);
                                full = step_is_full(c);
                                ix = after;
                                continue;
                        }
                        if (node_ok(w->node) && w->phase != PB__PHASE__E__Pending &&
                            drain_is_full(c, node_at(c, w->node))) {
                                waiting_remove(c, ix); /* it is tried again when others have gone */
                                drain_touch(c, w->node);
                                ix = after;
                                continue;
                        }
                        /* what had finished on its node leaves it for no other reason */
                        const char *why = "placed anew";
                        Pb__Reason__E leaving = node_ok(w->node) && w->holds
                                                    ? why_it_leaves(c, w, &why)
                                                    : PB__REASON__E__none;
                        bool placed = unit_place(c, ix, leaving, why);
                        if (!placed && stands_for_its_class(c, unit_at(c, ix))) {
                                c->classes.at[ki].none_at = c->capacity_change;
                                break; /* none of its class fits */
                        }
                        ix = after;
                        decision_done(c);
                        full = step_is_full(c);
                }
                k = &c->classes.at[ki];
                if (!full && !k->woken)
                        k->tried_at = change;
                ki = next;
        }
        return false;
}

/* Nobody can take it now: it waits in its class's queue. That is an event once; how the reason
 * changes while it waits is derived (why_it_waits). */
void unit_wait(struct core *c, struct unit_ix ix, bool failover)
{
        struct unit *w = unit_at(c, ix);
        struct class *k = class_of(c, w);
        char *text = NULL;
        bool typical = stands_for_its_class(c, w);
        if (k->none_at != c->capacity_change || !k->reason || !typical)
                k->reason = (uint8_t)main_reason(c, w, NODE_NONE, 0, &text);
        if (typical)
                k->tried_at = k->none_at = c->capacity_change;
        waiting_add(c, ix);
        preempt_wanted(c, w);
        unit_kind_of(w)->waits(c, ix, failover, text);
}
