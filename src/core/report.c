/* core/report.c: what nodes say that they run, and what that proves (C21-C24, C27).
 *
 * What an agent reports counts only if it speaks of the current token; anything older is about a
 * copy that is already being replaced. What follows for a unit is its kind's policy (unit.h); what
 * it says of copies that the records do not place there is drift.c's and claims.c's.
 */
#include "core/report.h"
#include "base/mutant.h"
#include "core/claims.h"
#include "core/drift.h"
#include "core/fence.h"
#include "core/orders.h"
#include "core/restore.h"
#include "core/state.h"
#include "core/step.h"
#include "core/tombstone.h"
#include <string.h>

/* An old copy is proved gone: what waited for that goes on. */
static void decide_removed(struct core *c, struct node_ix n, uint32_t t)
{
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__UnitRemoved;
        e.workload_id = arena_strdup(&c->step, c->tombstones.at[t].workload_id);
        e.node_id = node_at(c, n)->id;
        e.reason = c->tombstones.at[t].reason;
        emit(c, &e);
        struct unit_ix w = unit_find(c, e.workload_id);
        bool launched = unit_ok(w) && (unit_at(c, w)->phase == PB__PHASE__E__Scheduled ||
                                       unit_at(c, w)->phase == PB__PHASE__E__Updating);
        if (launched && !unit_at(c, w)->reported)
                unit_send(c, w);
}

/* A unit that the records do not place on this node: an old copy, or a stranger. Strangers are told
 * of and left alone. */
static void decide_stranger(struct core *c, struct node_ix n, struct unit_ix w,
                            const Pb__UnitStatus *u, bool complete)
{
        uint32_t t = tombstone_find(c, n, u->unit_id);
        bool gone = u->state == PB__ACTUAL_STATE__E__Missing;
        if (t != NONE && gone)
                decide_removed(c, n, t);
        else if (gone || !complete)
                return;
        else if (t != NONE)
                unit_send_removal(c, n, u->unit_id, c->tombstones.at[t].token_epoch,
                                  c->tombstones.at[t].token_seq);
        else
                drift_stranger(c, n, w, u);
}

static bool speaks_of_current(const struct unit *w, const Pb__UnitStatus *u)
{
        return (u->token && u->token->epoch == w->token_epoch && u->token->seq == w->token_seq) ||
               MUTANT(stale_report_accepted);
}

/* Its workload may not run twice, so a list that may be old proves nothing about it. */
static bool is_of_exclusive(const struct core *c, uint32_t t)
{
        struct unit_ix w = unit_find(c, c->tombstones.at[t].workload_id);
        return c->tombstones.at[t].leased || (unit_ok(w) && class_of(c, unit_get(c, w))->exclusive);
}

/* A unit whose reports change the records too often is taken less often: the whole list is asked
 * for a little later, and what that says counts. Bursts of a unit that starts, stops and starts
 * again are far below; each unit counts for itself, so a thousand that start at once are not held
 * up. */
#define CHANGES_BURST 20
#define CHANGES_PERIOD_S 5

static bool report_is_held(struct core *c, struct unit_ix ix, struct node_ix n)
{
        const struct unit *w = unit_at(c, ix);
        /* a wall clock that is set back must not hold anybody for so long */
        int64_t now_s = c->steady_ms / 1000;
        if ((int64_t)w->changes_until_s - now_s <= (CHANGES_BURST - 1) * CHANGES_PERIOD_S)
                return false;
        node_hold(c, n, c->now_ms + CHANGES_PERIOD_S * 1000);
        return true;
}

/* before: the head when the report was looked at. */
static void report_counts(struct core *c, struct unit_ix ix, uint64_t before)
{
        struct unit *w = unit_at(c, ix);
        uint32_t now_s = (uint32_t)(c->steady_ms / 1000);
        if (c->head == before || !w->id)
                return;
        w->changes_until_s =
            (w->changes_until_s > now_s ? w->changes_until_s : now_s) + CHANGES_PERIOD_S;
}

/* Everything that a complete report does not mention is not there. */
static void decide_unmentioned(struct core *c, struct node_ix n)
{
        uint64_t report = c->report_number;
        ARRAY(struct unit_ix) missing = { 0 };
        ARRAY(uint32_t) gone = { 0 };
        for (struct unit_ix w = node_at(c, n)->units; unit_ok(w); w = unit_at(c, w)->node_next)
                if (unit_at(c, w)->seen != report &&
                    !(c->list_is_old && class_of(c, unit_at(c, w))->exclusive))
                        *array_push(&missing) = w;
        for (uint32_t t = node_at(c, n)->tombstones; t != NONE; t = c->tombstones.at[t].next)
                if (c->tombstones.at[t].seen != report &&
                    !(c->list_is_old && is_of_exclusive(c, t)))
                        *array_push(&gone) = t;
        for (size_t i = 0; i < missing.len; i++) {
                uint64_t before = c->head;
                if (report_is_held(c, missing.at[i], n))
                        unit_at(c, missing.at[i])->unheard = true;
                else {
                        unit_kind_of(unit_at(c, missing.at[i]))->missing(c, missing.at[i], NULL);
                        report_counts(c, missing.at[i], before);
                }
                decision_done(c);
        }
        for (size_t i = 0; i < gone.len; i++) {
                decide_removed(c, n, gone.at[i]);
                decision_done(c);
        }
        array_fini(&missing);
        array_fini(&gone);
}

static void decide_known_unit(struct core *c, struct node_ix n, struct unit_ix ix,
                              const Pb__UnitStatus *u, bool complete)
{
        uint64_t before = c->head;
        bool current = speaks_of_current(unit_at(c, ix), u);
        if (current) {
                unit_at(c, ix)->claimed = false;
                unit_at(c, ix)->unheard = false;
        }
        if (report_is_held(c, ix, n))
                return;
        if (current)
                unit_kind_of(unit_at(c, ix))->said(c, ix, u, complete);
        else if (complete && unit_is_ahead(c, unit_at(c, ix), u))
                decide_ahead(c, ix, u);
        else if (u->state == PB__ACTUAL_STATE__E__Missing &&
                 unit_at(c, ix)->desired == PB__DESIRED_STATE__E__Deleted)
                unit_kind_of(unit_at(c, ix))->missing(c, ix, u);
        else if (complete && u->state != PB__ACTUAL_STATE__E__Missing &&
                 unit_is_in_plan(unit_at(c, ix)))
                unit_send(c, ix); /* it should be gone, or replaced, long ago */
        report_counts(c, ix, before);
}

void decide_report(struct core *c, struct node_ix n, ProtobufCMessage *const *units, size_t n_units,
                   bool complete, bool whole_truth)
{
        c->stats.unit_reports++;
        c->report_number++;
        units = drift_in_order(c, units, n_units);
        for (size_t i = 0; i < n_units; i++) {
                const Pb__UnitStatus *u = (const Pb__UnitStatus *)units[i];
                struct unit_ix ix = unit_find(c, u->unit_id);
                uint32_t t = tombstone_find(c, n, u->unit_id);
                if (t != NONE && complete && claim_replaces(c, t, u)) {
                        decide_removed(c, n, t);
                        t = NONE;
                }
                if (t != NONE)
                        c->tombstones.at[t].seen = c->report_number;
                drift_note(c, n, ix, t, u);
                if (!unit_ok(ix) || unit_at(c, ix)->node.v != n.v)
                        decide_stranger(c, n, ix, u, complete);
                else {
                        unit_at(c, ix)->seen = c->report_number;
                        decide_known_unit(c, n, ix, u, complete);
                }
                decision_done(c);
        }
        if (complete) {
                drift_whole(c, n);
                drift_tell(c, n);
        }
        if (complete && whole_truth)
                decide_unmentioned(c, n);
}
