/* core/fence.c: what must not run twice (C34). docs/fencing.md has the whole argument; this is the
 * server's half of it.
 *
 * An agent holds a lease, which every answer to a heartbeat renews. It counts from the moment at
 * which the agent sent that heartbeat, by the agent's clock; when it has run out, the agent stops
 * its movable exclusive units within the grace. So a copy on a node that was last heard at H is
 * gone at H + lease + grace, whoever the node can or cannot reach, give or take what clocks differ
 * in speed. A leader before this one may have renewed it until this one began: then H is this one's
 * start at the latest. The time of a leadership is added once more.
 *
 * Here this decides one thing only: whether a new holder may be started (unit_is_held_back()).
 * Where it goes is decided as for all others; its tombstone on the old node says that a copy may
 * still be there.
 *
 * Invariants:
 *   (F1) An exclusive unit is not sent to its node while a copy elsewhere is not proved gone,
 *   except when the copy's lease has run out for certain, or an operator said so. (F2) Only the
 *   steady clock counts, and only within one process: times of other processes are never compared.
 *   (F3) A copy from before a workload became exclusive and movable has no lease: it is waited for
 *   until it is proved gone. (F4) The wait is never shorter than what any lease that may still hold
 *   was given for: it is on record, and lowered only after it has passed.
 */
#include "core/fence.h"
#include "base/clock.h"
#include "base/mutant.h"
#include "core/admission.h"
#include "core/claims.h"
#include "core/drift.h"
#include "core/evict.h"
#include "core/node.h"
#include "core/notice.h"
#include "core/orders.h"
#include "core/read.h"
#include "core/restore.h"
#include "core/state.h"
#include "core/step.h"
#include "core/tombstone.h"
#include "core/workload.h"
#include <string.h>

/* Lost to clocks, rounded up; the rest is what C34 names. */
static int64_t wait_of(const struct fencing *f)
{
        int64_t sum = f->leader_ms + f->lease_ms + f->grace_ms;
        return sum + (sum * f->drift_percent + 99) / 100;
}

static struct fencing configured(const struct core *c)
{
        struct fencing f = { .leader_ms = c->opt.lead_ms,
                             .lease_ms = c->opt.lease_ms ? c->opt.lease_ms : silence_limit_ms(c),
                             .grace_ms = c->opt.lease_grace_ms,
                             .drift_percent = c->opt.drift_percent };
        f.wait_ms = wait_of(&f);
        return f;
}

static struct fencing in_force(const struct core *c)
{
        return c->fencing.lease_ms ? c->fencing : configured(c);
}

int64_t fencing_lease_ms(const struct core *c)
{
        return in_force(c).lease_ms;
}

/* Half of the grace is for the unit, the other half for whatever holds up the one who kills it. */
int64_t fencing_stop_ms(const struct core *c)
{
        return in_force(c).grace_ms / 2;
}

int64_t fencing_wait_ms(const struct core *c)
{
        return in_force(c).wait_ms;
}

void fencing_fill(const struct core *c, Pb__Fencing *ret)
{
        struct fencing f = in_force(c);
        pb__fencing__init(ret);
        ret->leader_ms = f.leader_ms;
        ret->lease_ms = f.lease_ms;
        ret->grace_ms = f.grace_ms;
        ret->drift_percent = f.drift_percent;
        ret->wait_ms = f.wait_ms;
}

bool fencing_is_sane(const Pb__Fencing *f)
{
        const int64_t most = INT64_C(86400000) * 365;
        return f && f->leader_ms >= 0 && f->leader_ms <= most && f->lease_ms > 0 &&
               f->lease_ms <= most && f->grace_ms >= 0 && f->grace_ms <= most &&
               f->drift_percent >= 0 && f->drift_percent <= 100 && f->wait_ms > 0 &&
               f->wait_ms <= 10 * most;
}

void fencing_take(struct core *c, const Pb__Cluster *from)
{
        const Pb__Fencing *f = from->fencing;
        c->restored = from->restored;
        if (f)
                c->fencing = (struct fencing){ .leader_ms = f->leader_ms,
                                               .lease_ms = f->lease_ms,
                                               .grace_ms = f->grace_ms,
                                               .drift_percent = f->drift_percent,
                                               .wait_ms = f->wait_ms };
}

/* ---- the times ---- */

static void emit_fencing(struct core *c, const struct fencing *f, bool restored,
                         const char *message)
{
        Pb__Fencing times = PB__FENCING__INIT;
        times.leader_ms = f->leader_ms;
        times.lease_ms = f->lease_ms;
        times.grace_ms = f->grace_ms;
        times.drift_percent = f->drift_percent;
        times.wait_ms = f->wait_ms;
        Pb__Cluster cluster = PB__CLUSTER__INIT;
        cluster.fencing = &times;
        cluster.restored = restored;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__FencingChanged;
        e.cluster = &cluster;
        e.message = (char *)message;
        emit(c, &e);
}

void fencing_needed(struct core *c)
{
        struct fencing want = configured(c), have = c->fencing;
        bool same = have.leader_ms == want.leader_ms && have.lease_ms == want.lease_ms &&
                    have.grace_ms == want.grace_ms && have.drift_percent == want.drift_percent;
        if (same)
                return;
        if (have.wait_ms > want.wait_ms && !MUTANT(lease_shortened_at_once))
                want.wait_ms = have.wait_ms; /* (F4) */
        if (c->fencing_since != INT64_MIN)
                c->fencing_since = c->steady_ms;
        emit_fencing(c, &want, c->restored,
                     have.lease_ms ? "the times of leases have changed"
                                   : "the first exclusive workload");
}

static bool may_run(const struct stranger *s)
{
        return s->state != PB__ACTUAL_STATE__E__Stopped &&
               s->state != PB__ACTUAL_STATE__E__Failed && s->state != PB__ACTUAL_STATE__E__Missing;
}

/* A fence of before a restore says nothing about what was started since the copy was made. */
static bool is_fenced(const struct core *c, const struct node *n)
{
        return n->fenced_at && !(c->restored && c->lost.len &&
                                 n->fenced_at < c->lost.at[c->lost.len - 1].restored_at);
}

/* After a restore: a node on record that has neither come by since this process began, nor was
 * fenced since, or one that runs something exclusive that these records do not place there. The
 * next process would not know of it. */
static bool somebody_is_missing(const struct core *c)
{
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                if (!n->id || n->expelled_at || is_fenced(c, n))
                        continue;
                if (!n->heard_at)
                        return true;
                for (size_t k = 0; k < n->strangers.len; k++) {
                        struct unit_ix w = workload_find(c, n->strangers.at[k].id);
                        const struct stranger *s = &n->strangers.at[k];
                        bool exclusive = unit_ok(w) && class_of(c, unit_get(c, w))->exclusive;
                        if (may_run(s) && claim_counts(c, s) &&
                            (exclusive || token_is_lost(c, s->token_epoch, s->token_seq)))
                                return true;
                }
        }
        return false;
}

/* Everything that was given by older values, or before a store was put back, has run out by
 * then. */
static int64_t settles_at(const struct core *c)
{
        bool longer = c->fencing.lease_ms && c->fencing.wait_ms > wait_of(&c->fencing);
        /* not while a restore is being decided */
        if (c->fencing_since == INT64_MIN || (!longer && !c->restored))
                return INT64_MAX;
        return c->fencing_since + fencing_wait_ms(c);
}

int64_t fencing_next_ms(const struct core *c)
{
        int64_t at = settles_at(c);
        if (at == INT64_MAX || at > c->steady_ms)
                return at == INT64_MAX ? INT64_MAX : c->now_ms + (at - c->steady_ms);
        return INT64_MAX; /* what is missing comes with an input of its own */
}

void fencing_settle(struct core *c)
{
        if (settles_at(c) > c->steady_ms ||
            (c->restored && somebody_is_missing(c) && c->fencing.wait_ms == wait_of(&c->fencing)))
                return;
        struct fencing f = in_force(c);
        f.wait_ms = wait_of(&f);
        emit_fencing(c, &f, c->restored && somebody_is_missing(c),
                     c->restored ? "whatever ran from before the restore has lost its lease"
                                 : "older leases have run out");
}

/* ---- may it start? ---- */

bool unit_is_pinned(const struct core *c, const struct unit *w)
{
        return class_of(c, w)->exclusive == PB__EXCLUSIVE__E__pinned && node_ok(w->node) &&
               w->holds;
}

bool node_can_hold(const struct node *n, const struct class *k)
{
        if (n->push && !MUTANT(foreign_agent_holds))
                return false; /* it knows no tokens and no leases */
        return k->exclusive != PB__EXCLUSIVE__E__movable || n->exclusive_bits & k->type_bit ||
               MUTANT(foreign_agent_holds);
}

/* By the steady clock: what its agent held a lease for is gone by then. */
static int64_t lease_is_over_at(const struct core *c, const struct node *n)
{
        /* (F2) */
        int64_t renewed = n->heard_steady > c->started_steady ? n->heard_steady : c->started_steady;
        return renewed + (MUTANT(new_holder_at_once) ? 0 : fencing_wait_ms(c));
}

static void later(const struct core *c, struct fence *f, struct node_ix n, int64_t steady,
                  const char *what)
{
        int64_t until = steady == INT64_MAX
                            ? INT64_MAX
                            : c->now_ms + (steady > c->steady_ms ? steady - c->steady_ms : 0);
        if (f->what && until <= f->until_ms)
                return;
        *f = (struct fence){ .node = n, .until_ms = until, .what = what };
}

static void look_at_tombstones(const struct core *c, const struct unit *w, struct fence *f)
{
        for (uint32_t t = tombstones_of(c, w->id); t != NONE; t = c->tombstones.at[t].same_next) {
                const struct tombstone *copy = &c->tombstones.at[t];
                const struct node *n = node_get(c, copy->node);
                /* One that was expelled may run on, and gets no lease any more: what ends with its
                 * lease is waited for, nothing else. */
                if (copy->released || n->fenced_at || (n->expelled_at && !copy->leased))
                        continue;
                int64_t over = copy->leased ? lease_is_over_at(c, n) : INT64_MAX;
                if (over <= c->steady_ms)
                        continue;
                bool heard = n->status == PB__NODE_STATUS__E__Ready;
                later(c, f, copy->node, heard ? INT64_MAX : over,
                      heard          ? "its node has still to say that nothing of it runs there"
                      : copy->leased ? "the agent's lease there has not run out for certain"
                                     : "no lease stops it there");
        }
}

/* Units of its name that the records do not place there: a store that was put back forgot them. */
static void look_at_strangers(const struct core *c, const struct unit *w, struct fence *f)
{
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                const struct stranger *s =
                    n->id && n->strangers.len && !node_is_written_off(n) && i != w->node.v
                        ? stranger_find(n, w->id)
                        : NULL;
                if (s && may_run(s) && claim_counts(c, s))
                        later(c, f, (struct node_ix){ i }, INT64_MAX,
                              "a unit of its name that is not of these records runs there");
        }
}

bool exclusive_is_held_back(const struct core *c, const struct unit *w, struct fence *ret)
{
        struct fence f = { .node = NODE_NONE };
        if (!class_of(c, w)->exclusive || w->desired != PB__DESIRED_STATE__E__Running)
                return false;
        if (w->tombs)
                look_at_tombstones(c, w, &f);
        if (w->shadows)
                look_at_strangers(c, w, &f);
        bool pinned = class_of(c, w)->exclusive == PB__EXCLUSIVE__E__pinned;
        if (c->restored && (pinned || settles_at(c) > c->steady_ms) &&
            !MUTANT(restore_forgets_holders))
                later(c, &f, NODE_NONE, pinned ? INT64_MAX : settles_at(c),
                      pinned ? "the store was put back from an older copy, and no lease stops it "
                               "on nodes that have not come by since"
                             : "the store was put back from an older copy: what was started since "
                               "then may still run somewhere");
        if (ret)
                *ret = f;
        return f.what != NULL;
}

void fence_ask_again(struct core *c, struct unit_ix ix)
{
        const struct unit *w = unit_at(c, ix);
        struct fence f;
        bool launched = w->phase == PB__PHASE__E__Scheduled || w->phase == PB__PHASE__E__Updating;
        if (!launched || !exclusive_is_held_back(c, w, &f))
                return;
        int64_t at = c->now_ms + c->opt.launch_grace_ms,
                until = f.until_ms > c->now_ms ? f.until_ms : c->now_ms + 1;
        heap_set(&c->unit_deadlines, ix.v, until < at ? until : at);
}

uint32_t exclusive_waiting(const struct core *c)
{
        uint32_t count = 0;
        for (uint32_t d = 0; c->fencing.lease_ms && d < c->definitions.len; d++)
                if (c->definitions.at[d].data && c->definitions.at[d].exclusive)
                        for (struct unit_ix w = c->definitions.at[d].users; unit_ok(w);
                             w = unit_get(c, w)->same_next)
                                count += exclusive_is_held_back(c, unit_get(c, w), NULL) &&
                                         !unit_get(c, w)->reported;
        return count;
}

const char *exclusive_waits_for(const struct core *c, struct node_ix n)
{
        for (uint32_t t = node_get(c, n)->tombstones; t != NONE; t = c->tombstones.at[t].next) {
                struct unit_ix w = workload_find(c, c->tombstones.at[t].workload_id);
                struct fence f;
                if (unit_ok(w) && exclusive_is_held_back(c, unit_get(c, w), &f))
                        return unit_get(c, w)->id;
        }
        return NULL;
}

/* ---- the operator ---- */

static void refuse(struct core *c, const char *msg, const char *detail, const char *hint)
{
        struct err err;
        err_set(&err, ERR_CONFLICT, .msg = msg, .detail = detail, .hint = hint);
        reply_error(c, &err);
}

/* Those whose copies there stood in their way go on. */
void fence_let_go_on(struct core *c, struct node_ix n)
{
        ARRAY(struct unit_ix) waiting = { 0 };
        for (uint32_t t = node_at(c, n)->tombstones; t != NONE; t = c->tombstones.at[t].next) {
                struct unit_ix w = workload_find(c, c->tombstones.at[t].workload_id);
                if (unit_ok(w) && class_of(c, unit_at(c, w))->exclusive && !unit_at(c, w)->reported)
                        *array_push(&waiting) = w;
        }
        for (size_t i = 0; i < waiting.len; i++)
                unit_send(c, waiting.at[i]);
        array_fini(&waiting);
}

void decide_node_fence(struct core *c, const Pb__NodeRef *req)
{
        struct node_ix ix;
        if (!node_asked_for(c, req->id, req->if_match, &ix))
                return;
        struct node *n = node_at(c, ix);
        if (n->status == PB__NODE_STATUS__E__Ready) {
                refuse(c, "the node is alive", fmt("%s is heard", n->id),
                       "drain it instead; fencing is for machines that are surely off");
                return;
        }
        if (!is_fenced(c, n)) {
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__NodeFenced;
                e.node_id = n->id;
                e.reason = PB__REASON__E__node_lost;
                e.message = "an operator said that nothing runs there any more";
                emit(c, &e);
                evict_hurry(c, ix); /* its units need not wait for the grace */
                fence_let_go_on(c, ix);
        }
        reply_node(c, ix);
}

void apply_fencing(struct core *c, const Pb__Event *e)
{
        fencing_take(c, e->cluster);
        cluster_changed(c);
}

const char *wrong_fencing(struct core *c, const Pb__Event *e)
{
        (void)c;
        return e->cluster && fencing_is_sane(e->cluster->fencing)
                   ? NULL
                   : "the times of leases are missing or out of range";
}

const char *wrong_release(const struct core *c, const Pb__Event *e)
{
        return tombstone_count(c, e->workload_id) ? NULL : "there is no earlier copy of it";
}

void apply_release(struct core *c, struct unit_ix ix)
{
        for (uint32_t t = tombstones_of(c, unit_at(c, ix)->id); t != NONE;
             t = c->tombstones.at[t].same_next) {
                c->tombstones.at[t].released = true;
                save_tombstone(c, t);
        }
}

void decide_release(struct core *c, const Pb__WorkloadRef *req)
{
        struct unit_ix ix = to_change(c, req->id, req->if_match, req->check_index);
        if (!unit_ok(ix))
                return;
        struct unit *w = unit_at(c, ix);
        bool stuck = node_ok(w->node) && w->holds &&
                     node_at(c, w->node)->status == PB__NODE_STATUS__E__NotReady;
        if (!class_of(c, w)->exclusive) {
                refuse(c, fmt("workload %s is not exclusive", w->id), NULL,
                       "it moves by itself; berth explain says what it waits for");
                return;
        }
        if (!w->tombs && (!stuck || w->desired == PB__DESIRED_STATE__E__Deleted)) {
                refuse(c, fmt("no earlier copy of workload %s stands in its way", w->id),
                       node_ok(w->node)
                           ? fmt("it is on %s, which is heard", node_at(c, w->node)->id)
                           : NULL,
                       "berth explain says what it waits for; berth drain moves it away from a "
                       "node that is alive");
                return;
        }
        if (stuck) {
                waiting_remove(c, ix);
                unit_leave(c, ix, PB__REASON__E__node_lost, "released by an operator");
        }
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__UnitReleased;
        e.workload_id = unit_at(c, ix)->id;
        e.message = "an operator said that no earlier copy of it runs any more";
        emit(c, &e);
        if (stuck)
                unit_mark_dirty(c, ix);
        else if (!unit_at(c, ix)->reported)
                unit_send(c, ix);
        reply_workload(c, ix, false);
}

/* ---- for people ---- */

void fence_shown(const struct core *c, const struct unit *w, struct arena *a,
                 Pb__WorkloadStatus *status)
{
        struct fence f;
        char until[TIME_TEXT_LEN];
        if (!class_of(c, w)->exclusive || w->reported || !exclusive_is_held_back(c, w, &f))
                return;
        status->reason = PB__REASON__E__may_still_run;
        status->failure_reason =
            arena_printf(a, "not started yet: it may still run on %s (%s)%s%s",
                         node_ok(f.node) ? node_get(c, f.node)->id : "some node", f.what,
                         f.until_ms == INT64_MAX ? "" : "; until ",
                         f.until_ms == INT64_MAX ? "" : time_format(until, f.until_ms));
}

static void explain_pinned(struct core *c, const struct unit *w, Pb__Explanation *x)
{
        const struct node *n = node_get(c, w->node);
        if (n->status == PB__NODE_STATUS__E__Ready)
                return;
        x->summary = arena_printf(&c->step, "pinned to %s, which is silent: %s", n->id,
                                  n->status_reason ? n->status_reason : "no heartbeat");
        x->next = arena_printf(&c->step,
                               "nothing, until %s is back; berth release %s starts it elsewhere, "
                               "without what is on %s",
                               n->id, w->id, n->id);
        x->next_at = 0;
}

void explain_exclusive(struct core *c, const struct unit *w, Pb__Explanation *x)
{
        struct fence f;
        if (unit_is_pinned(c, w))
                explain_pinned(c, w, x);
        if (w->reported || !exclusive_is_held_back(c, w, &f))
                return;
        const char *where = node_ok(f.node) ? node_get(c, f.node)->id : NULL;
        x->summary = arena_printf(
            &c->step, "exclusive, and %s%s%s; not started %s%s before that is sure: %s",
            where ? "the holder before, on " : "a holder from before", where ? where : "",
            " may still run", node_ok(w->node) ? "on " : "",
            node_ok(w->node) ? node_get(c, w->node)->id : "anywhere", f.what);
        x->next_at = f.until_ms == INT64_MAX ? 0 : f.until_ms;
        x->next = arena_printf(
            &c->step, "started %s%s%s%s%s%s",
            f.until_ms == INT64_MAX ? "" : "at the time shown, or ",
            where ? "as soon as " : "as soon as an operator says so", where ? where : "",
            where ? " says that it is gone; if that machine is surely off: berth node fence " : "",
            where ? where : "", "");
}
