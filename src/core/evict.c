/* core/evict.c: units leave nodes that are lost or tainted (C10, C11, C24).
 *
 *      given up, a whole zone with it    evict    as fast as steps go
 *      given up, only a part of a zone   paced    evict_per_second at most, over all nodes, first
 *      come first served
 *
 * A node that returns takes itself out of both: what has not left stays. So a switch that flaps
 * moves little.
 */
#include "core/evict.h"
#include "base/mutant.h"
#include "core/fold.h"
#include "core/node.h"
#include "core/read.h"
#include "core/state.h"
#include "core/step.h"

#define PACED_NODES 1024 /* looked at in one step: most have nothing left when they are many */
#define UNIT_COST 1000   /* credit is in thousandths of a unit: rate times milliseconds */

bool evict_is_ordered(const struct core *c, const struct node *n)
{
        return n->status != PB__NODE_STATUS__E__Ready &&
               (node_is_written_off(n) || n->evict_ordered_at ||
                n->status_at < c->evict_ordered_at);
}

int64_t evict_due_ms(const struct core *c, const struct node *n)
{
        if (evict_is_ordered(c, n))
                return c->started_ms; /* an operator's word */
        int64_t grace = c->opt.evict_grace_ms,
                due = n->status_at + (MUTANT(eviction_without_grace) ? 0 : grace),
                listened = c->started_ms + silence_limit_ms(c), released = c->brake.released_at;
        if (released && n->status_at <= released && released + grace > due)
                due = released + grace;
        return due > listened ? due : listened;
}

void evict_driven_out(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        if (n->evicting || !n->n_units)
                return;
        n->evicting = true;
        *array_push(&c->evict) = ix;
}

void evict_begin(struct core *c, struct node_ix ix, bool paced)
{
        struct node *n = node_at(c, ix);
        n->paced = paced;
        if (!paced)
                evict_driven_out(c, ix);
        else if (n->n_units && !n->pacing) {
                n->pacing = true;
                *array_push(&c->paced) = ix;
        }
}

static bool evictable(const struct core *c, const struct unit *w, bool lost)
{
        if (w->desired == PB__DESIRED_STATE__E__Deleted)
                return lost; /* else its agent will say that it is gone */
        return w->holds && !w->waiting && (lost || taints_drive_out(c, w));
}

/* Up to `most` units of it; how many there were. in_turn: this is what its pace allows. */
static size_t evict_from(struct core *c, struct node_ix ix, size_t most, bool in_turn)
{
        const struct node *n = node_get(c, ix);
        struct unit_ix some[64];
        size_t count = 0;
        bool lost = n->given_up && (in_turn || !n->paced);
        most = most < ARRAY_LEN(some) ? most : ARRAY_LEN(some);
        if (n->id && (lost || n->tainted == TAINTED_HARD))
                for (struct unit_ix w = n->units; unit_ok(w) && count < most;
                     w = unit_at(c, w)->node_next)
                        if (evictable(c, unit_at(c, w), lost))
                                some[count++] = w;
        for (size_t i = 0; i < count; i++) {
                c->stats.evictions++;
                unit_evict(c, some[i]);
                decision_done(c);
        }
        return count;
}

static void credit_update(struct core *c)
{
        int64_t rate = c->opt.evict_per_second, most = rate * UNIT_COST,
                passed = c->now_ms - c->pace_at;
        c->pace_at = c->now_ms;
        c->pace_credit = passed >= 1000 || c->pace_credit + passed * rate > most
                             ? most
                             : c->pace_credit + passed * rate;
}

static void pace_some(struct core *c)
{
        if (c->paced_done == c->paced.len)
                return;
        credit_update(c);
        for (int looked = 0;
             looked < PACED_NODES && c->paced_done < c->paced.len && !step_is_full(c); looked++) {
                struct node_ix ix = c->paced.at[c->paced_done];
                size_t most = (size_t)(c->pace_credit / UNIT_COST), count = 0;
                if (node_at(c, ix)->paced && node_at(c, ix)->pacing) {
                        if (!c->opt.evict_per_second)
                                most = 64;
                        if (!most) {
                                if (node_at(c, ix)->n_holding)
                                        brake_tell_paced(c, ix);
                                return;
                        }
                        most = most < 64 ? most : 64;
                        count = evict_from(c, ix, most, true);
                        c->pace_credit -= c->opt.evict_per_second ? (int64_t)count * UNIT_COST : 0;
                }
                if (count < most || !count) { /* nothing is left there */
                        node_at(c, ix)->pacing = false;
                        c->paced_done++;
                }
        }
        if (c->paced_done == c->paced.len) {
                array_clear(&c->paced);
                c->paced_done = 0;
        }
}

void evict_some(struct core *c)
{
        while (c->evict.len && !step_is_full(c)) {
                struct node_ix ix = c->evict.at[c->evict.len - 1];
                if (evict_from(c, ix, 64, false) < 64) {
                        node_at(c, ix)->evicting = false;
                        c->evict.len--;
                }
        }
        if (!step_is_full(c))
                pace_some(c);
}

int64_t evict_next_ms(const struct core *c)
{
        if (c->evict.len)
                return c->now_ms;
        if (c->paced_done == c->paced.len)
                return INT64_MAX;
        int64_t rate = c->opt.evict_per_second, missing = UNIT_COST - c->pace_credit;
        return !rate || missing <= 0 ? c->now_ms : c->pace_at + (missing + rate - 1) / rate;
}

uint32_t evict_paced_units(const struct core *c)
{
        uint32_t n = 0;
        for (size_t i = c->paced_done; i < c->paced.len; i++) {
                const struct node *node = node_get(c, c->paced.at[i]);
                n += node->id && node->pacing ? node->n_units : 0;
        }
        return n;
}

/* ---- an operator's word ---- */

const char *wrong_evict_ordered(struct core *c, const Pb__Event *e)
{
        return str_empty(e->node_id) ? NULL : wrong_node_event(c, e);
}

void apply_evict_ordered(struct core *c, const Pb__Event *e)
{
        if (str_empty(e->node_id)) {
                c->evict_ordered_at = e->timestamp;
                brake_end(c);
                cluster_changed(c);
                return;
        }
        node_at(c, node_find(c, e->node_id))->evict_ordered_at = e->timestamp;
        apply_node_event(c, e);
}

static void order(struct core *c, char *node_id, char *what)
{
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__EvictionOrdered;
        e.node_id = node_id;
        e.reason = PB__REASON__E__node_lost;
        e.message = what;
        emit(c, &e);
}

void decide_evict_node(struct core *c, const Pb__NodeRef *req)
{
        struct node_ix ix;
        struct err err;
        if (!node_asked_for(c, req->id, req->if_match, &ix))
                return;
        struct node *n = node_at(c, ix);
        if (n->status == PB__NODE_STATUS__E__Ready) {
                err_set(&err, ERR_CONFLICT, .msg = "the node is alive",
                        .detail = fmt("%s is heard", n->id),
                        .hint = fmt(
                            "berth drain %s moves its units, each when its new copy has a place",
                            n->id));
                reply_error(c, &err);
                return;
        }
        if (!evict_is_ordered(c, n))
                order(c, n->id, "an operator said that its units move now");
        evict_hurry(c, ix);
        reply_node(c, ix);
}

void evict_hurry(struct core *c, struct node_ix ix)
{
        if (node_at(c, ix)->given_up)
                evict_begin(c, ix, false);
        else
                node_deadline_refresh(c, ix);
}

void decide_evict_lost(struct core *c)
{
        Pb__EvictResponse r = PB__EVICT_RESPONSE__INIT;
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                if (!n->id || n->status == PB__NODE_STATUS__E__Ready || !n->n_units)
                        continue;
                r.nodes++;
                r.units += n->n_units;
        }
        if (r.nodes) {
                order(c, "", "an operator said that the units of all lost nodes move now");
                c->brake.sweep_next = 0;
        }
        reply_message(c, &r.base);
}
