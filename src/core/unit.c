/* core/unit.c: between the records and the agents: what each node is told to run, and what it says that it runs (C21-C24, C27, C40).
 *
 * A node's plan is derived: every unit that holds capacity there or is being deleted, and every tombstone as "Deleted". Changes are sent as they are decided; the whole
 * plan is sent whenever the agent connects. A unit that the plan does not mention is never touched by the agent.
 *
 * What an agent reports counts only if it speaks of the current token; anything older is about a copy that is already being replaced.
 */
#include "base/mem.h"
#include "base/mutant.h"
#include "core/retry.h"
#include "core/state.h"
#include "model/pb.h"
#include <string.h>

#define SAID_MAX 256

/* ---- tombstones ---------------------------------------------------------------------------------------------------------------------------- */

/* ---- plans --------------------------------------------------------------------------------------------------------------------------------- */

static void order_sent(struct core *c, struct node_ix n)
{
        node_at(c, n)->sent_seq = c->head;
        node_at(c, n)->sent_epoch = c->epoch;
}

static size_t put_varint(unsigned char *p, uint64_t v)
{
        size_t n = 0;
        do {
                p[n] = (unsigned char)((v & 127) | (v > 127 ? 128 : 0));
                v >>= 7;
                n++;
        } while (v);
        return n;
}

/* Whatever leaves for one of berth's own agents carries a warrant (A13). Foreign ones could not keep it. */
static bool warrant_of(struct core *c, const struct unit *w, const void *definition, size_t len, uint8_t ret[WARRANT_BYTES])
{
        const struct node *n = node_at(c, w->node);
        struct warrant_facts facts = { .cluster_id = c->cluster_id,
                                       .unit_id = w->id,
                                       .node_id = n->id,
                                       .epoch = w->token_epoch,
                                       .seq = w->token_seq,
                                       .definition = definition,
                                       .definition_len = len };
        return !n->push && warrant_make(c->warrants, &facts, ret);
}

static void *pack_unit(struct core *c, const struct unit *w, size_t *ret_len)
{
        const struct definition *d = definition_of(c, w);
        Pb__Token token = PB__TOKEN__INIT;
        token.epoch = w->token_epoch;
        token.seq = w->token_seq;
        Pb__PlanUnit unit = PB__PLAN_UNIT__INIT;
        unit.workload_id = w->id;
        unit.token = &token;
        unit.desired_state = w->desired;
        Pb__Workload head = PB__WORKLOAD__INIT;
        head.id = w->id;
        head.revision_id = w->revision;
        bool with_spec = w->desired != PB__DESIRED_STATE__E__Deleted;
        if (!with_spec)
                return pb_pack_arena(c->out.memory, &unit.base, ret_len);
        size_t inner, n = 0;
        void *workload = pb_pack_before(&c->step, &head.base, d->data, d->len, &inner);
        unsigned char *field = arena_alloc(&c->step, inner + 32 + WARRANT_BYTES);
        field[n++] = 4 << 3 | 2; /* PlanUnit.workload, length-delimited */
        n += put_varint(field + n, inner);
        memcpy(field + n, workload, inner);
        n += inner;
        if (warrant_of(c, w, workload, inner, field + n + 2)) {
                field[n++] = 5 << 3 | 2; /* PlanUnit.warrant */
                field[n++] = WARRANT_BYTES;
                n += WARRANT_BYTES;
        }
        return pb_pack_before(c->out.memory, &unit.base, field, n, ret_len);
}

bool unit_is_held_back(const struct core *c, const struct unit *w)
{
        if (exclusive_is_held_back(c, w, NULL))
                return true;
        if (!w->tombs || w->desired != PB__DESIRED_STATE__E__Running)
                return false;
        for (uint32_t t = tombstones_of(c, w->id); t != NONE; t = c->tombstones.at[t].same_next)
                if (c->tombstones.at[t].reason != PB__REASON__E__node_lost && !node_given_up(c, c->tombstones.at[t].node))
                        return true;
        return false;
}

void unit_send(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (order_is_doubtful(c, w))
                return;
        if (!node_ok(w->node) || w->unheard)
                return;
        if (unit_is_held_back(c, w) && !MUTANT(new_copy_before_old_is_gone)) {
                fence_ask_again(c, ix);
                return;
        }
        if (!node_at(c, w->node)->session)
                return;
        order_sent(c, w->node);
        effect_add(c, EFFECT_PLAN_UNIT, node_at(c, w->node)->session, 0, NULL, 0);
        size_t len;
        void *data = pack_unit(c, w, &len);
        struct effect *e = &c->out.effects.at[c->out.effects.len - 1];
        e->data = data;
        e->len = len;
}

void unit_send_removal(struct core *c, struct node_ix n, const char *workload_id, uint64_t epoch, uint64_t seq)
{
        if (!node_at(c, n)->session)
                return;
        Pb__Token token = PB__TOKEN__INIT;
        token.epoch = epoch;
        token.seq = seq;
        Pb__PlanUnit unit = PB__PLAN_UNIT__INIT;
        unit.workload_id = (char *)workload_id;
        unit.token = &token;
        unit.desired_state = PB__DESIRED_STATE__E__Deleted;
        order_sent(c, n);
        effect_add(c, EFFECT_PLAN_UNIT, node_at(c, n)->session, 0, NULL, 0);
        struct effect *e = &c->out.effects.at[c->out.effects.len - 1];
        e->data = pb_pack_arena(c->out.memory, &unit.base, &e->len);
}

static bool is_in_plan(const struct unit *w)
{
        bool waits = w->phase == PB__PHASE__E__RetryPending || w->phase == PB__PHASE__E__Pending; /* its next launch has a new token */
        return (w->holds && !waits) || w->desired == PB__DESIRED_STATE__E__Deleted;
}

void plan_send(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        order_sent(c, ix);
        effect_add(c, EFFECT_PLAN_BEGIN, n->session, 0, NULL, 0);
        for (uint32_t t = MUTANT(tombstone_not_planned) ? NONE : n->tombstones; t != NONE; t = c->tombstones.at[t].next)
                unit_send_removal(c, ix, c->tombstones.at[t].workload_id, c->tombstones.at[t].token_epoch, c->tombstones.at[t].token_seq);
        for (struct unit_ix w = n->units; unit_ok(w); w = unit_at(c, w)->node_next) {
                if (is_in_plan(unit_at(c, w)))
                        unit_send(c, w);
        }
        effect_add(c, EFFECT_PLAN_END, n->session, 0, NULL, 0);
}

/* ---- reports ------------------------------------------------------------------------------------------------------------------------------- */

/* What an agent says in an event for people: bounded, since events last. */
static char *said(struct core *c, const Pb__UnitStatus *u)
{
        size_t len = u && !str_empty(u->message) ? strlen(u->message) : 0;
        if (len > SAID_MAX) {
                len = SAID_MAX;
                while (len > 0 && ((unsigned char)u->message[len] & 0xc0) == 0x80)
                        len--;
        }
        return len ? arena_strndup(&c->step, u->message, len) : (char *)"";
}

static void emit_status(struct core *c, struct unit_ix ix, Pb__EventType__E type, const Pb__UnitStatus *u, Pb__Reason__E reason,
                        enum action action)
{
        struct unit *w = unit_at(c, ix);
        Pb__WorkloadStatus status = PB__WORKLOAD_STATUS__INIT;
        if (u) {
                status.exit_code = u->exit_code;
                status.signal = u->signal;
                status.started_at = sane_time(u->started_at); /* agents may say anything, and events last */
                status.finished_at = sane_time(u->finished_at);
                status.observed_revision = u->revision_id;
        }
        Pb__Event e = PB__EVENT__INIT;
        e.type = type;
        e.workload_id = w->id;
        e.node_id = node_ok(w->node) ? node_at(c, w->node)->id : "";
        e.status = &status;
        e.reason = reason;
        e.action = (char *)action_names[action];
        if (type == PB__EVENT_TYPE__E__WorkloadStopped)
                status.failure_reason = e.message = said(c, u); /* that it had to be killed */
        emit(c, &e);
}

static void decide_gone_for_good(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u)
{
        struct unit *w = unit_at(c, ix);
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadDeleted;
        e.workload_id = arena_strdup(&c->step, w->id);
        e.node_id = arena_strdup(&c->step, node_at(c, w->node)->id);
        e.reason = PB__REASON__E__deleted;
        e.message = said(c, u);
        emit(c, &e);
}

static const char *failure_text(struct core *c, const Pb__UnitStatus *u)
{
        if (!str_empty(u->message))
                return u->message;
        if (u->signal)
                return arena_printf(&c->step, "killed by signal %lld", (long long)u->signal->value);
        if (u->exit_code)
                return arena_printf(&c->step, "exited with code %lld", (long long)u->exit_code->value);
        return "failed";
}

/* A unit that should run has ended, one way or another. */
static void decide_ended(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u, bool complete)
{
        struct unit *w = unit_at(c, ix);
        bool never = definition_of(c, w)->restart == PB__RESTART__E__never;
        bool open = w->phase == PB__PHASE__E__Scheduled || w->phase == PB__PHASE__E__Updating || w->phase == PB__PHASE__E__Running;
        if (!open)
                return;                                  /* this end is known already */
        if (u->reason == PB__REASON__E__lease_expired) { /* that is nobody's failure; its agent is heard again */
                launch(c, ix, PB__REASON__E__lease_expired, ACTION_APPLY,
                       "its agent was cut off for longer than its lease, and had stopped it");
                return;
        }
        /* Only a whole list (a Hello) says so, of what ran when the agent went: otherwise a rogue agent
         * could make a loop without a pause. */
        if (u->reason == PB__REASON__E__agent_stopped && complete && !never) {
                launch(c, ix, PB__REASON__E__agent_stopped, ACTION_APPLY, "it was stopped together with its agent");
                return;
        }
        bool clean = u->exit_code && u->exit_code->value == 0 && !u->signal && u->state != PB__ACTUAL_STATE__E__Failed &&
                     u->reason != PB__REASON__E__agent_stopped;
        bool known = u->exit_code || u->signal || u->state == PB__ACTUAL_STATE__E__Failed;
        if (clean && definition_of(c, w)->restart != PB__RESTART__E__always && !MUTANT(job_restarted)) {
                emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadCompleted, u, PB__REASON__E__exited, ACTION_COMPLETE);
                return;
        }
        if (!known && !never && c->now_ms - w->last_launch_at >= c->opt.launch_grace_ms) { /* e.g. the machine was restarted */
                launch(c, ix, PB__REASON__E__lost_by_agent, ACTION_APPLY, failure_text(c, u));
                return;
        }
        if (u->reason == PB__REASON__E__runtime_unavailable && !unit_is_pinned(c, w)) {
                decide_mismatch(c, ix, failure_text(c, u));
                return;
        }
        Pb__Reason__E reason = u->reason   ? u->reason
                               : u->signal ? PB__REASON__E__killed
                               : clean     ? PB__REASON__E__exited
                                           : PB__REASON__E__crashed;
        decide_failure(c, ix, reason, failure_text(c, u), u); /* also what runs once at most, and nobody knows how it ended */
}

/* u: what was said of it; NULL: nothing, in a list that names all there is. */
static void decide_missing(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u)
{
        struct unit *w = unit_at(c, ix);
        switch (w->desired) {
        case PB__DESIRED_STATE__E__Deleted:
                decide_gone_for_good(c, ix, u);
                return;
        case PB__DESIRED_STATE__E__Stopped:
                if (w->phase != PB__PHASE__E__Stopped)
                        emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadStopped, NULL, PB__REASON__E__stopped_by_user, ACTION_APPLY_STOPPED);
                return;
        default:
                /* A launch on its way is covered by its deadline; a unit that did run and is not known any more is launched anew. */
                if (still_listening(c, w))
                        node_at(c, w->node)->list_at = c->now_ms + silence_limit_ms(c);
                else if (w->phase != PB__PHASE__E__Running || (u && c->now_ms - w->last_launch_at < c->opt.launch_grace_ms))
                        return;
                else if (definition_of(c, w)->restart == PB__RESTART__E__never) /* it did run */
                        decide_failure(c, ix, PB__REASON__E__lost_by_agent, "the agent does not know it any more", NULL);
                else
                        launch(c, ix, PB__REASON__E__lost_by_agent, ACTION_APPLY, "the agent does not know it any more");
        }
}

/* It was to move, found no other node, and its own came back in time. */
static bool stays_after_all(const struct core *c, const struct unit *w)
{
        return w->action == ACTION_AWAIT_FAILOVER && !w->waiting && !node_evacuates(c, w->node);
}

/* Nobody said in time that it started, and it did: it holds nothing there any more. Told once, as what it has done until now may have to be undone. */
static void remove_given_up(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (!w->late_told) {
                w->late_told = true;
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__DriftDetected;
                e.node_id = node_at(c, w->node)->id;
                e.action = "Delete";
                e.message = arena_printf(&c->step, "%s: it was given up and started all the same, later; it is stopped there", w->id);
                notice_of_node(c, w->node, &e);
                w = unit_at(c, ix);
        }
        unit_send_removal(c, w->node, w->id, w->token_epoch, w->token_seq);
}

/* What has failed so often that it is tried at the cap will most likely fail again: an event for each time that it came up would be written for ever. Until it has lasted it is shown as
 * running, and nothing is written. What is exclusive says so at once: its lease counts from there. */
static bool is_yet_to_last(const struct core *c, const struct unit *w)
{
        return workload_is_at_cap(c, w) && c->now_ms - w->last_launch_at < RETRY_STEADY_MS && !class_of(c, w)->exclusive;
}

void unit_has_lasted(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        Pb__UnitStatus u = PB__UNIT_STATUS__INIT;
        u.revision_id = w->revision;
        u.started_at = w->last_launch_at;
        emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadStarted, &u, PB__REASON__E__none, ACTION_NONE);
}

static void decide_unit(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u, bool complete)
{
        struct unit *w = unit_at(c, ix);
        bool stop_wanted = w->desired == PB__DESIRED_STATE__E__Stopped;
        w->reported = true;
        w->health = str_eq(u->health, "healthy") ? 1 : str_eq(u->health, "unhealthy") ? 2 : 0;
        text_set(&w->progress, u->state == PB__ACTUAL_STATE__E__Pending ? u->message : NULL); /* no event: it is only shown */
        if (w->desired == PB__DESIRED_STATE__E__Deleted && u->state != PB__ACTUAL_STATE__E__Missing) {
                if (complete)
                        unit_send(c, ix); /* it should have gone long ago */
                return;
        }
        switch (u->state) {
        case PB__ACTUAL_STATE__E__Running:
                if (stop_wanted) {
                        if (complete)
                                unit_send(c, ix); /* it should have stopped long ago */
                } else if (w->phase == PB__PHASE__E__Scheduled && is_yet_to_last(c, w)) {
                        w->up = true;
                        unit_deadline_refresh(c, ix);
                } else if (w->phase == PB__PHASE__E__Scheduled || w->phase == PB__PHASE__E__Updating)
                        emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadStarted, u, PB__REASON__E__none,
                                    stays_after_all(c, w) ? ACTION_APPLY : ACTION_NONE);
                else if (w->phase == PB__PHASE__E__Running && stays_after_all(c, w))
                        emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadStarted, u, PB__REASON__E__adopted, ACTION_APPLY);
                else if (unit_is_finished(w))
                        remove_given_up(c, ix);
                break;
        case PB__ACTUAL_STATE__E__Stopped:
        case PB__ACTUAL_STATE__E__Failed:
                if (stop_wanted && w->phase != PB__PHASE__E__Stopped)
                        emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadStopped, u, PB__REASON__E__stopped_by_user, ACTION_APPLY_STOPPED);
                else if (w->desired == PB__DESIRED_STATE__E__Running)
                        decide_ended(c, ix, u, complete);
                break;
        case PB__ACTUAL_STATE__E__Unknown:
        case PB__ACTUAL_STATE__E__Pending:
                if (stop_wanted && complete && w->phase != PB__PHASE__E__Stopped)
                        unit_send(c, ix); /* not proved to have stopped */
                else if (u->state == PB__ACTUAL_STATE__E__Unknown && w->desired == PB__DESIRED_STATE__E__Running)
                        decide_ended(c, ix, u, complete);
                break;
        case PB__ACTUAL_STATE__E__Missing:
                decide_missing(c, ix, u);
                break;
        default:
                break;
        }
}

/* An old copy is proved gone: what waited for that goes on. */
static void decide_removed(struct core *c, struct node_ix n, uint32_t t)
{
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__UnitRemoved;
        e.workload_id = arena_strdup(&c->step, c->tombstones.at[t].workload_id);
        e.node_id = node_at(c, n)->id;
        e.reason = c->tombstones.at[t].reason;
        emit(c, &e);
        struct unit_ix w = workload_find(c, e.workload_id);
        bool launched = unit_ok(w) && (unit_at(c, w)->phase == PB__PHASE__E__Scheduled || unit_at(c, w)->phase == PB__PHASE__E__Updating);
        if (launched && !unit_at(c, w)->reported)
                unit_send(c, w);
}

/* A unit that the records do not place on this node: an old copy, or a stranger. Strangers are told of and left alone. */
static void decide_stranger(struct core *c, struct node_ix n, struct unit_ix w, const Pb__UnitStatus *u, bool complete)
{
        uint32_t t = tombstone_find(c, n, u->workload_id);
        bool gone = u->state == PB__ACTUAL_STATE__E__Missing;
        if (t != NONE && gone)
                decide_removed(c, n, t);
        else if (gone || !complete)
                return;
        else if (t != NONE)
                unit_send_removal(c, n, u->workload_id, c->tombstones.at[t].token_epoch, c->tombstones.at[t].token_seq);
        else
                drift_stranger(c, n, w, u);
}

static bool speaks_of_current(const struct unit *w, const Pb__UnitStatus *u)
{
        return (u->token && u->token->epoch == w->token_epoch && u->token->seq == w->token_seq) || MUTANT(stale_report_accepted);
}

/* Its workload may not run twice, so a list that may be old proves nothing about it. */
static bool is_of_exclusive(const struct core *c, uint32_t t)
{
        struct unit_ix w = workload_find(c, c->tombstones.at[t].workload_id);
        return c->tombstones.at[t].leased || (unit_ok(w) && class_of(c, unit_get(c, w))->exclusive);
}

/* A unit whose reports change the records too often is taken less often: the whole list is asked for a little later, and what
 * that says counts. Bursts of a unit that starts, stops and starts again are far below; each unit counts for itself, so a
 * thousand that start at once are not held up. */
#define CHANGES_BURST 20
#define CHANGES_PERIOD_S 5

static bool report_is_held(struct core *c, struct unit_ix ix, struct node_ix n)
{
        const struct unit *w = unit_at(c, ix);
        int64_t now_s = c->steady_ms / 1000; /* a wall clock that is set back must not hold anybody for so long */
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
        w->changes_until_s = (w->changes_until_s > now_s ? w->changes_until_s : now_s) + CHANGES_PERIOD_S;
}

/* Everything that a complete report does not mention is not there. */
static void decide_unmentioned(struct core *c, struct node_ix n)
{
        uint64_t report = c->report_number;
        ARRAY(struct unit_ix) missing = { 0 };
        ARRAY(uint32_t) gone = { 0 };
        for (struct unit_ix w = node_at(c, n)->units; unit_ok(w); w = unit_at(c, w)->node_next)
                if (unit_at(c, w)->seen != report && !(c->list_is_old && class_of(c, unit_at(c, w))->exclusive))
                        *array_push(&missing) = w;
        for (uint32_t t = node_at(c, n)->tombstones; t != NONE; t = c->tombstones.at[t].next)
                if (c->tombstones.at[t].seen != report && !(c->list_is_old && is_of_exclusive(c, t)))
                        *array_push(&gone) = t;
        for (size_t i = 0; i < missing.len; i++) {
                uint64_t before = c->head;
                if (report_is_held(c, missing.at[i], n))
                        unit_at(c, missing.at[i])->unheard = true;
                else {
                        decide_missing(c, missing.at[i], NULL);
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

static void decide_known_unit(struct core *c, struct node_ix n, struct unit_ix ix, const Pb__UnitStatus *u, bool complete)
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
                decide_unit(c, ix, u, complete);
        else if (complete && unit_is_ahead(c, unit_at(c, ix), u))
                decide_ahead(c, ix, u);
        else if (u->state == PB__ACTUAL_STATE__E__Missing && unit_at(c, ix)->desired == PB__DESIRED_STATE__E__Deleted)
                decide_gone_for_good(c, ix, u);
        else if (complete && u->state != PB__ACTUAL_STATE__E__Missing && is_in_plan(unit_at(c, ix)))
                unit_send(c, ix); /* it should be gone, or replaced, long ago */
        report_counts(c, ix, before);
}

void decide_report(struct core *c, struct node_ix n, ProtobufCMessage *const *units, size_t n_units, bool complete, bool whole_truth)
{
        c->stats.unit_reports++;
        c->report_number++;
        units = drift_in_order(c, units, n_units);
        for (size_t i = 0; i < n_units; i++) {
                const Pb__UnitStatus *u = (const Pb__UnitStatus *)units[i];
                struct unit_ix ix = workload_find(c, u->workload_id);
                uint32_t t = tombstone_find(c, n, u->workload_id);
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
