/* core/drain.c: emptying a node because an operator wants it so (C12), and forgetting one that is
 * gone.
 *
 *      drain --> units that fit elsewhere move, a few at a time    --> nothing is left: NodeDrained
 *                units that fit nowhere run on, and are named as blockers
 *                at the deadline what is left is stopped, and waits for a node like anything else
 *
 * A unit that moves has its new place at once, and is started there only when its old copy is
 * proved gone (unit_is_held_back()). How many are under way is counted by the tombstones that their
 * old copies leave. The work is found by what changed: whatever gives something back on a node
 * (unit_hold(), tombstone_remove()) calls drain_touch().
 *
 * Invariants:
 *   (D1) A node has a drain exactly while its wish is draining.
 *   (D2) A drain is finished when no unit and no old copy is left; from then on no unit holds
 *   capacity there. (D3) While a drain has a deadline to come, the node's deadline is armed no
 *   later. (D4) Only what is finished leaves a node because it is forgotten, and one decision takes
 *   a bounded number of them.
 */
#include "core/drain.h"
#include "base/mutant.h"
#include "core/admission.h"
#include "core/fence.h"
#include "core/node.h"
#include "core/read.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include <string.h>

#define ROUND 64          /* units that one look at a draining node takes on */
#define FORGET_AT_ONCE 32 /* units and old copies that are let go of in one decision */
#define BLOCKERS_MAX 100
/* reasons are found out for so many kinds of units; the others get the one that is known */
#define BLOCKER_CLASSES 16

bool node_drains(const struct node *n)
{
        return n->wish == PB__NODE_WISH__E__draining;
}

uint32_t drain_left(const struct node *n)
{
        return n->n_holding + n->n_tombstones;
}

int64_t drain_due_ms(const struct node *n)
{
        bool waits =
            node_drains(n) && n->drain_deadline_at && !n->drain_finished_at && !n->drain_expired;
        return waits ? n->drain_deadline_at : HEAP_NEVER;
}

void drain_touch(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        if (!c->started || !n->id || !node_drains(n) || n->drain_finished_at || n->drain_queued)
                return;
        n->drain_queued = true;
        *array_push(&c->drains) = ix;
}

/* No more than a few copies of a drained node are stopped at a time. A node that is given up has
 * nothing left to overload. */
bool drain_is_full(const struct core *c, const struct node *n)
{
        return node_drains(n) && !n->given_up && !n->drain_expired &&
               n->n_tombstones >= c->opt.drain_at_once;
}

static bool can_leave(const struct core *c, const struct node *n, const struct unit *w)
{
        if (!w->holds || w->desired == PB__DESIRED_STATE__E__Deleted)
                return false; /* its agent will say that it is gone */
        if (unit_is_pinned(c, w))
                return !w->waiting; /* to be told as a blocker; no deadline moves it */
        if (n->drain_expired)
                return true;
        /* that one moves when it is due */
        return !w->waiting && w->phase != PB__PHASE__E__RetryPending;
}

/* The deadline has passed: it stops, and looks for a node like anything that has none. */
static void stop_all_the_same(struct core *c, struct unit_ix ix)
{
        if (unit_at(c, ix)->desired == PB__DESIRED_STATE__E__Stopped) {
                unit_evict(c, ix);
                return;
        }
        waiting_remove(c, ix);
        c->stats.actions[4]++;
        unit_leave(c, ix, PB__REASON__E__node_drained,
                   "the deadline of its node's drain has passed");
        unit_mark_dirty(c, ix);
}

static void emit_drained(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__NodeDrained;
        e.node_id = n->id;
        e.reason = PB__REASON__E__node_drained;
        e.message = "nothing is left on it";
        emit(c, &e);
}

/* One look at a node; true: there is more to do at once. */
static bool drain_node(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        if (!n->id || !node_drains(n) || n->drain_finished_at)
                return false;
        struct unit_ix some[ROUND];
        size_t count = 0;
        for (struct unit_ix w = n->units; unit_ok(w) && count < ROUND; w = unit_at(c, w)->node_next)
                if (can_leave(c, n, unit_at(c, w)))
                        some[count++] = w;
        for (size_t i = 0; i < count && !drain_is_full(c, node_at(c, ix)); i++) {
                c->stats.evictions++;
                if ((node_at(c, ix)->drain_expired && !unit_is_pinned(c, unit_at(c, some[i]))) ||
                    MUTANT(drain_stops_blockers))
                        stop_all_the_same(c, some[i]);
                else
                        unit_evict(c, some[i]);
                decision_done(c);
        }
        n = node_at(c, ix);
        if (drain_left(n) == 0) {
                emit_drained(c, ix);
                decision_done(c);
                return false;
        }
        return count == ROUND && !drain_is_full(c, n);
}

void drain_some(struct core *c)
{
        while (c->drains.len && !step_is_full(c)) {
                struct node_ix ix = c->drains.at[c->drains.len - 1];
                if (drain_node(c, ix))
                        continue;
                /* What was done may have touched it again: that was looked at as well. */
                for (size_t i = 0; i < c->drains.len; i++)
                        if (c->drains.at[i].v == ix.v) {
                                c->drains.at[i] = c->drains.at[c->drains.len - 1];
                                break;
                        }
                c->drains.len--;
                node_at(c, ix)->drain_queued = false;
        }
}

void drain_deadline(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        if (c->now_ms < drain_due_ms(n))
                return;
        n->drain_expired = true;
        drain_touch(c, ix);
}

/* ---- what is shown ---- */

void drain_record(const struct node *n, bool live, Pb__Drain *ret)
{
        pb__drain__init(ret);
        ret->started_at = n->drain_started_at;
        ret->deadline_at = MUTANT(drain_deadline_lost) ? 0 : n->drain_deadline_at;
        ret->units_at_start = (int32_t)n->drain_units;
        ret->finished_at = n->drain_finished_at;
        if (!live)
                return;
        ret->left = (int32_t)drain_left(n);
        ret->moved = n->drain_units > drain_left(n) ? (int32_t)(n->drain_units - drain_left(n)) : 0;
}

struct known_reason {
        uint32_t class;
        Pb__Reason__E reason;
        char *text;
};

/* Why no other node takes it. Units of one class have one answer; the answer looks at every node,
 * so there are not many. */
static bool reason_of(struct core *c, const struct unit *w, struct known_reason *known,
                      size_t *n_known, Pb__DrainBlocker *ret)
{
        uint32_t class = definition_of(c, w)->class;
        size_t i = 0;
        while (i < *n_known && known[i].class != class)
                i++;
        if (i == *n_known && i < BLOCKER_CLASSES) {
                known[i].class = class;
                known[i].reason = why_nowhere(c, w, &known[i].text);
                ++*n_known;
        }
        if (i == *n_known) {
                ret->reason = class_of(c, w)->reason;
                return true;
        }
        ret->reason = known[i].reason;
        ret->detail = known[i].text;
        return ret->reason != PB__REASON__E__none; /* else it goes as soon as others have gone */
}

void drain_blockers(struct core *c, const struct node *n, Pb__Drain *d)
{
        struct known_reason known[BLOCKER_CLASSES];
        size_t n_known = 0;
        d->blockers = arena_new_n(&c->step, Pb__DrainBlocker *, BLOCKERS_MAX);
        for (struct unit_ix w = n->units; unit_ok(w) && d->n_blockers < BLOCKERS_MAX;
             w = unit_at(c, w)->node_next) {
                const struct unit *x = unit_at(c, w);
                if (!x->holds || !x->waiting)
                        continue;
                Pb__DrainBlocker *b = arena_new(&c->step, Pb__DrainBlocker);
                pb__drain_blocker__init(b);
                b->workload_id = x->id;
                if (reason_of(c, x, known, &n_known, b))
                        d->blockers[d->n_blockers++] = b;
        }
}

/* ---- apply ---- */

/* What is stored of a drain, once the node's wish is known. One that does not say when it began did
 * so at `otherwise`. */
void drain_take(struct node *n, const Pb__Drain *d, int64_t otherwise)
{
        if (!node_drains(n))
                d = NULL;
        n->drain_started_at = d ? d->started_at : 0;
        if (node_drains(n) && !n->drain_started_at)
                n->drain_started_at = otherwise ? otherwise : 1; /* (D1) */
        n->drain_deadline_at = d ? d->deadline_at : 0;
        n->drain_finished_at = d && !n->n_holding ? d->finished_at : 0; /* (D2) */
        n->drain_units = d && d->units_at_start > 0 ? (uint32_t)d->units_at_start : 0;
        n->drain_expired = false;
}

bool drain_is_sane(const Pb__Drain *d)
{
        return time_is_sane(d->started_at) && time_is_sane(d->deadline_at) &&
               time_is_sane(d->finished_at) && d->units_at_start >= 0;
}

/* ---- forgetting ---- */

/* Units that stand in the way of forgetting a node: those that hold something, or are being
 * removed. */
uint32_t units_at_work(const struct core *c, const struct node *n)
{
        uint32_t count = n->n_holding;
        for (struct unit_ix w = n->units; unit_ok(w); w = unit_get(c, w)->node_next)
                count += !unit_get(c, w)->holds &&
                         unit_get(c, w)->desired == PB__DESIRED_STATE__E__Deleted;
        return count;
}

static void emit_forgotten(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        /* a silent agent whose stream is still open: it has to say hello again to be heard */
        if (n->session) {
                static char forgotten[] = "the node was forgotten by an operator";
                effect_add(c, EFFECT_CLOSE, n->session, 0, forgotten, sizeof(forgotten) - 1);
        }
        brake_unhold(c, ix);
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__NodeForgotten;
        e.node_id = n->id;
        e.message = "forgotten by an operator";
        e.admission = admission_kept(c, n);
        emit(c, &e);
        brake_review(c, NODE_NONE);
}

/* Of a node that was expelled and is forgotten before all that it had found another place: that
 * waits without one. */
static bool let_go_of_unit(struct core *c, struct unit_ix w)
{
        if (unit_at(c, w)->desired == PB__DESIRED_STATE__E__Deleted) {
                unit_look(c, w);
                return true;
        }
        if (!unit_at(c, w)->holds)
                return false;
        waiting_remove(c, w);
        unit_leave(c, w, PB__REASON__E__node_lost, "its node was expelled");
        unit_mark_dirty(c, w);
        return true;
}

/* Lets go of a few; true: nothing is left there. */
static bool let_go(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        for (int i = 0; i < FORGET_AT_ONCE && (n->tombstones != NONE || unit_ok(n->units)); i++) {
                Pb__Event e = PB__EVENT__INIT;
                e.node_id = n->id;
                if (n->tombstones == NONE && let_go_of_unit(c, n->units)) {
                        decision_done(c);
                        n = node_at(c, ix);
                        continue;
                }
                if (n->tombstones != NONE) {
                        e.type = PB__EVENT_TYPE__E__UnitRemoved;
                        e.workload_id =
                            arena_strdup(&c->step, c->tombstones.at[n->tombstones].workload_id);
                        e.reason = c->tombstones.at[n->tombstones].reason;
                } else {
                        e.type = PB__EVENT_TYPE__E__WorkloadReleased;
                        e.workload_id = unit_at(c, n->units)->id;
                }
                e.message = "its node was forgotten";
                emit(c, &e);
                decision_done(c);
                n = node_at(c, ix);
        }
        return n->tombstones == NONE && !unit_ok(n->units);
}

static void forget_is_over(struct core *c, struct forgetting *f)
{
        mem_free(f->request_id);
        mem_free(f->actor);
        mem_free(f->node_id);
        *f = array_pop(&c->forgets);
}

void forget_some(struct core *c)
{
        while (c->forgets.len && !step_is_full(c)) {
                struct forgetting f = c->forgets.at[c->forgets.len - 1];
                struct node_ix ix = node_find(c, f.node_id);
                struct input in = { .kind = INPUT_NODE_FORGET,
                                    .reply = f.ticket,
                                    .request_id = f.request_id,
                                    .actor = f.actor };
                const struct input *before = c->in;
                struct err err;
                c->in = &in;
                if (node_ok(ix) &&
                    (node_at(c, ix)->status == PB__NODE_STATUS__E__Ready ||
                     (units_at_work(c, node_at(c, ix)) && !node_at(c, ix)->expelled_at))) {
                        err_set(&err, ERR_CONFLICT,
                                .msg = "the node came back while it was being forgotten",
                                .detail = f.node_id,
                                .hint = "drain it, stop its agent, and wait until it is NotReady");
                        reply_error(c, &err);
                } else if (node_ok(ix)) {
                        if (!let_go(c, ix)) {
                                c->in = before;
                                continue;
                        }
                        reply_node(c, ix);
                        emit_forgotten(c, ix);
                } else if (node_lookup(c, f.node_id, &ix, &err) < 0)
                        reply_error(c, &err);
                c->in = before;
                forget_is_over(c, &c->forgets.at[c->forgets.len - 1]);
                decision_done(c);
        }
}

/* Whoever asked is answered when it is done: a large node takes several steps. */
void forget_begin(struct core *c, struct node_ix ix)
{
        *array_push(&c->forgets) =
            (struct forgetting){ .node_id = mem_strdup(node_at(c, ix)->id),
                                 .ticket = c->in->reply,
                                 .request_id =
                                     c->in->request_id ? mem_strdup(c->in->request_id) : NULL,
                                 .actor = c->in->actor ? mem_strdup(c->in->actor) : NULL };
}
