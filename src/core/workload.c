/* core/workload.c: a workload's life: what is due, where it goes (C6, C7, C19-C28). What users ask
 * is in workload_ask.c.
 *
 *   Pending --placed--> Scheduled --agent: running--> Running --new spec--> Updating --agent:
 *   running--> Running
 *      ^                    |                            |
 *      |                    '-----------failure----------+--> RetryPending --due--> Scheduled
 *      |                                                 |        '--attempts exhausted--> Failed
 *      '--its node is lost beyond the grace--------------+--> Completed (a job that exited 0)
 *   any --stop--> Stopped --start--> Scheduled        any --delete--> Deleting --proved gone--> (no
 *   record)
 *
 * Invariants:
 *   (W1) A workload has at most one node; it is in exactly that node's list of units.
 *   (W2) It holds capacity there exactly while assigned and not finished for good (Completed,
 *   Failed). (W3) Its token grows with every launch; nothing is launched without an event.
 *   (W4) It waits in its class's queue exactly while it wants a (new) node and has found none.
 */
#include "core/workload.h"
#include "base/mutant.h"
#include "core/evict.h"
#include "core/fence.h"
#include "core/node.h"
#include "core/notice.h"
#include "core/orders.h"
#include "core/place.h"
#include "core/policy.h"
#include "core/restore.h"
#include "core/retry.h"
#include "core/state.h"
#include "core/step.h"
#include "core/wait.h"
#include "model/json.h"
#include <string.h>

#define SAID_MAX 256

const char *const action_names[_ACTION_MAX] = {
        [ACTION_NONE] = "",
        [ACTION_CREATED] = "Created",
        [ACTION_UPDATED] = "Updated",
        [ACTION_ASSIGN] = "Assign",
        [ACTION_APPLY] = "Apply",
        [ACTION_RECREATE] = "Recreate",
        [ACTION_APPLY_STOPPED] = "ApplyStopped",
        [ACTION_DELETE] = "Delete",
        [ACTION_RESCHEDULE] = "Reschedule",
        [ACTION_AWAIT_FAILOVER] = "AwaitFailover",
        [ACTION_RETRY] = "Retry",
        [ACTION_BACKOFF_WAIT] = "BackoffWait",
        [ACTION_FAIL] = "Fail",
        [ACTION_COMPLETE] = "Complete",
        [ACTION_ADOPT] = "Adopt",
};

enum action action_parse(const char *name)
{
        for (int a = 1; a < _ACTION_MAX; a++)
                if (str_eq(name, action_names[a]))
                        return (enum action)a;
        return ACTION_NONE;
}

struct unit_ix workload_find(const struct core *c, const char *id)
{
        struct unit_ix ix = unit_find(c, id);
        return unit_ok(ix) && unit_get(c, ix)->kind == UNIT_WORKLOAD ? ix : UNIT_NONE;
}

/* ---- the pieces ---- */

int32_t workload_retry_limit(const struct core *c, const struct unit *w)
{
        return retry_limit(w->max_attempts, definition_of(c, w)->restart == PB__RESTART__E__always);
}

bool workload_is_at_cap(const struct core *c, const struct unit *w)
{
        return workload_retry_limit(c, w) == RETRY_UNLIMITED &&
               retry_is_at_cap(w->base_seconds, w->cap_seconds, w->attempts);
}

static int64_t deadline(const struct core *c, const struct unit *w)
{
        const struct definition *d = definition_of(c, w);
        switch (w->phase) {
        case PB__PHASE__E__RetryPending:
                return w->next_retry_at;
        case PB__PHASE__E__Scheduled:
        case PB__PHASE__E__Updating:
                return w->last_launch_at + (w->up ? RETRY_STEADY_MS : c->opt.launch_grace_ms);
        case PB__PHASE__E__Running:
                return w->attempts ? w->started_at + c->opt.healthy_ms : HEAP_NEVER;
        case PB__PHASE__E__Completed:
        case PB__PHASE__E__Failed:
                return d->ttl_seconds > 0 && d->restart != PB__RESTART__E__always
                           ? w->finished_at + (int64_t)d->ttl_seconds * 1000
                           : HEAP_NEVER;
        default:
                return HEAP_NEVER;
        }
}

static void look(struct core *c, struct unit_ix ix);

/* ---- what is due ---- */

static void leave(struct core *c, struct unit_ix ix, Pb__Reason__E reason, const char *message)
{
        struct unit *w = unit_at(c, ix);
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__Rescheduled;
        e.workload_id = w->id;
        e.node_id = node_at(c, w->node)->id;
        e.reason = reason;
        e.action = (char *)action_names[ACTION_RESCHEDULE];
        e.message = (char *)message;
        struct node_ix old = w->node;
        uint64_t epoch = w->token_epoch, seq = w->token_seq;
        emit(c, &e);
        unit_send_removal(c, old, unit_at(c, ix)->id, epoch, seq);
}

void launch(struct core *c, struct unit_ix ix, Pb__Reason__E reason, enum action action,
            const char *message)
{
        struct unit *w = unit_at(c, ix);
        Pb__Token token = PB__TOKEN__INIT;
        token.epoch = c->epoch;
        token.seq = c->head + 1;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadLaunched;
        e.workload_id = w->id;
        e.node_id = node_at(c, w->node)->id;
        e.reason = reason;
        e.action = (char *)action_names[action];
        e.message = (char *)message;
        e.token = &token;
        c->stats.launches++;
        c->stats.actions[action == ACTION_RECREATE ? 1 : 0]++;
        emit(c, &e);
        unit_send(c, ix);
}

static void status_of_unit(const Pb__UnitStatus *u, Pb__WorkloadStatus *s, Pb__Reason__E reason,
                           const char *message)
{
        pb__workload_status__init(s);
        s->reason = reason;
        s->failure_reason = (char *)(message ? message : "");
        if (!u)
                return;
        s->exit_code = u->exit_code;
        s->signal = u->signal;
        s->started_at = sane_time(u->started_at); /* agents may say anything, and events last */
        s->finished_at = sane_time(u->finished_at);
        s->observed_revision = u->revision_id;
}

/* Where others would be given up. Told once: the count begins anew when it has been healthy. */
static void emit_keeps_failing(struct core *c, struct unit_ix ix, Pb__Reason__E reason,
                               const char *message)
{
        struct unit *w = unit_at(c, ix);
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadKeepsFailing;
        e.workload_id = w->id;
        e.node_id = node_ok(w->node) ? node_at(c, w->node)->id : "";
        e.reason = reason;
        e.message = arena_printf(
            &c->step,
            "%d attempts have failed, and it is tried on every %d s for as long as it takes: %s",
            w->attempts, w->cap_seconds, message);
        emit(c, &e);
}

void decide_failure(struct core *c, struct unit_ix ix, Pb__Reason__E reason, const char *message,
                    const Pb__UnitStatus *u)
{
        struct unit *w = unit_at(c, ix);
        c->stats.failures++;
        Pb__WorkloadStatus status;
        status_of_unit(u, &status, reason, message);
        Pb__Retry retry = PB__RETRY__INIT;
        retry.attempts = w->attempts + 1;
        /* What its runtime refuses as a definition it would refuse again. */
        bool never = definition_of(c, w)->restart == PB__RESTART__E__never ||
                     reason == PB__REASON__E__invalid_spec;
        int32_t limit = workload_retry_limit(c, w);
        if (retry.attempts > limit) /* (R1); nobody waits for that many */
                retry.attempts = limit;
        Pb__Event e = PB__EVENT__INIT;
        e.workload_id = w->id;
        e.node_id = node_ok(w->node) ? node_at(c, w->node)->id : "";
        e.status = &status;
        e.retry = &retry;
        e.reason = reason;
        e.message = arena_printf(&c->step, "%s (%s)", message, retry_words(retry.attempts, limit));
        if (never || retry_is_over(retry.attempts, limit)) {
                e.type = PB__EVENT_TYPE__E__WorkloadFailed;
                e.action = (char *)action_names[ACTION_FAIL];
                e.message = never ? (char *)message : e.message;
        } else {
                e.type = PB__EVENT_TYPE__E__RetryScheduled;
                e.action = (char *)action_names[ACTION_BACKOFF_WAIT];
                retry.next_retry_at =
                    c->now_ms + retry_backoff_ms(w->base_seconds, w->cap_seconds, retry.attempts);
        }
        emit(c, &e);
        if (e.type == PB__EVENT_TYPE__E__RetryScheduled && limit == RETRY_UNLIMITED &&
            retry.attempts == RETRY_ALERT_ATTEMPTS)
                emit_keeps_failing(c, ix, reason, message);
}

static void retry_due(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (workload_is_at_cap(c, w) && w->desired == PB__DESIRED_STATE__E__Running &&
            node_ok(w->node) && w->holds && !unit_must_leave(c, w)) {
                c->stats.retries++;
                launch(c, ix, (Pb__Reason__E)w->reason, ACTION_RECREATE,
                       arena_printf(&c->step, "attempt %d", w->attempts + 1));
                return;
        }
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__RetryTriggered;
        e.workload_id = w->id;
        e.node_id = node_ok(w->node) ? node_at(c, w->node)->id : "";
        e.action = (char *)action_names[ACTION_RETRY];
        e.message = arena_printf(&c->step, "attempt %d", w->attempts + 1);
        c->stats.retries++;
        emit(c, &e);
        look(c, ix);
}

static void launch_is_overdue(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        const struct node *n = node_at(c, w->node);
        int64_t again = c->now_ms + c->opt.launch_grace_ms;
        if (w->up) {
                unit_has_lasted(c, ix);
                return;
        }
        if (MUTANT(launch_twice_after_timeout)) {
                launch(c, ix, PB__REASON__E__none, ACTION_APPLY, "");
                return;
        }
        if (n->session && n->status == PB__NODE_STATUS__E__Ready && !unit_is_held_back(c, w)) {
                if (!w->reported && w->resends >= 3 &&
                    w->desired == PB__DESIRED_STATE__E__Running) {
                        decide_failure(c, ix, PB__REASON__E__start_failed,
                                       "the agent did not say that it started", NULL);
                        return;
                }
                if (w->resends < UINT8_MAX)
                        w->resends++;
                unit_send(c, ix);
        }
        heap_set(&c->unit_deadlines, ix.v, again);
        fence_ask_again(c, ix);
}

static void due(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        Pb__Event e = PB__EVENT__INIT;
        e.workload_id = w->id;
        switch (w->phase) {
        case PB__PHASE__E__RetryPending:
                retry_due(c, ix);
                break;
        case PB__PHASE__E__Scheduled:
        case PB__PHASE__E__Updating:
                launch_is_overdue(c, ix);
                break;
        case PB__PHASE__E__Running:
                e.type = PB__EVENT_TYPE__E__RetryReset;
                e.message = "healthy for long enough";
                emit(c, &e);
                break;
        case PB__PHASE__E__Completed:
        case PB__PHASE__E__Failed:
                e.type = PB__EVENT_TYPE__E__WorkloadDeleting;
                e.node_id = node_ok(w->node) ? node_at(c, w->node)->id : "";
                e.action = (char *)action_names[ACTION_DELETE];
                e.reason = PB__REASON__E__deleted;
                e.message = "finished, and its ttl_seconds are over";
                emit(c, &e);
                unit_send(c, ix);
                unit_mark_dirty(c, ix);
                break;
        default:
                break;
        }
}

/* ---- where it goes ---- */

static void placed(struct core *c, struct unit_ix ix, const struct place_result *r,
                   Pb__Reason__E leaving, const char *why)
{
        struct unit *w = unit_at(c, ix);
        struct node_ix old = w->node;
        const char *previous = NULL;
        if (node_ok(old) && old.v != r->node.v) {
                previous = arena_strdup(&c->step, node_at(c, old)->id);
                c->stats.actions[4]++;
                leave(c, ix, leaving, why);
        }
        Pb__Placement p = PB__PLACEMENT__INIT;
        p.node_id = node_at(c, r->node)->id;
        p.reason = PB__REASON__E__placed;
        p.score = cost_millionths(r->cost);
        p.candidates = (int32_t)r->candidates;
        p.previous_node = (char *)(previous ? previous : "");
        Pb__Token token = PB__TOKEN__INIT;
        token.epoch = c->epoch;
        token.seq = c->head + 1;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadScheduled;
        e.workload_id = w->id;
        e.node_id = p.node_id;
        e.reason = PB__REASON__E__placed;
        e.placement = &p;
        e.token = &token;
        e.action = (char *)action_names[ACTION_ASSIGN];
        c->stats.launches++;
        emit(c, &e);
        unit_send(c, ix);
}

static bool is_waiting_reason(unsigned reason)
{
        return (reason >= PB__REASON__E__no_nodes && reason <= PB__REASON__E__node_returning) ||
               (reason >= PB__REASON__E__taint_not_tolerated &&
                reason <= PB__REASON__E__spread_exceeded) ||
               reason == PB__REASON__E__node_unreachable || reason == PB__REASON__E__agent_too_old;
}

/* An event once; how the reason changes while it waits is derived (why_it_waits()). */
static void waits(struct core *c, struct unit_ix ix, bool failover, char *text)
{
        struct unit *w = unit_at(c, ix);
        if (failover ? w->action == ACTION_AWAIT_FAILOVER : is_waiting_reason(w->reason))
                return;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadPending;
        e.workload_id = w->id;
        e.node_id = failover ? node_at(c, w->node)->id : "";
        e.reason = class_of(c, w)->reason;
        e.message = text ? text : unit_wait_text(c, w);
        if (failover) {
                e.action = (char *)action_names[ACTION_AWAIT_FAILOVER];
                c->stats.actions[5]++;
        }
        emit(c, &e);
}

static void evict(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        const char *why;
        Pb__Reason__E reason = why_it_leaves(c, w, &why);
        if (w->desired == PB__DESIRED_STATE__E__Deleted) {
                look(c, ix);
                return;
        }
        if (w->desired == PB__DESIRED_STATE__E__Stopped) {
                leave(c, ix, reason, why);
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__WorkloadStopped;
                e.workload_id = unit_at(c, ix)->id;
                e.reason = PB__REASON__E__stopped_by_user;
                emit(c, &e);
                return;
        }
        if (!unit_place(c, ix, reason, why))
                unit_wait(c, ix, true);
}

static void look(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (w->desired == PB__DESIRED_STATE__E__Deleted) {
                bool gone = !node_ok(w->node), given_up = !gone && node_given_up(c, w->node);
                if (!gone && !given_up && !MUTANT(delete_forgets_copy))
                        return; /* the agent will say so */
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__WorkloadDeleted;
                e.workload_id = arena_strdup(&c->step, w->id);
                e.node_id = gone ? "" : arena_strdup(&c->step, node_at(c, w->node)->id);
                e.tombstone = given_up;
                e.reason = PB__REASON__E__deleted;
                e.message =
                    given_up
                        ? "its node is lost; what may still run there is stopped when it returns"
                        : "";
                emit(c, &e);
                return;
        }
        if (w->desired == PB__DESIRED_STATE__E__Stopped && node_ok(w->node) && w->holds &&
            unit_must_leave(c, w)) {
                evict(c, ix); /* nobody there will say that it has stopped */
                return;
        }
        if (w->phase != PB__PHASE__E__Pending || w->desired != PB__DESIRED_STATE__E__Running ||
            w->waiting)
                return;
        /* e.g. a retry that came due: the same node, unless that one is gone for good */
        if (node_ok(w->node) && w->holds) {
                if (!unit_must_leave(c, w)) {
                        launch(c, ix, w->attempts ? (Pb__Reason__E)w->reason : PB__REASON__E__none,
                               w->attempts ? ACTION_RECREATE : ACTION_APPLY, "");
                        return;
                }
                if (node_at(c, w->node)->given_up && node_at(c, w->node)->paced)
                        evict_begin(c, w->node, true); /* when its turn comes */
                else
                        evict(c, ix);
                return;
        }
        if (quota_blocks(c, ix)) {
                wait_for_quota(c, ix);
                return;
        }
        const struct class *k = class_of(c, w);
        bool hopeless =
            /* those before it found nothing either */
            k->n_waiting && k->none_at == c->capacity_change && stands_for_its_class(c, w);
        if (hopeless || !unit_place(c, ix, PB__REASON__E__none, "placed anew"))
                unit_wait(c, ix, false);
}

/* ---- what its agent says (C21) ---- */

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

static void emit_status(struct core *c, struct unit_ix ix, Pb__EventType__E type,
                        const Pb__UnitStatus *u, Pb__Reason__E reason, enum action action)
{
        struct unit *w = unit_at(c, ix);
        Pb__WorkloadStatus status = PB__WORKLOAD_STATUS__INIT;
        if (u) {
                status.exit_code = u->exit_code;
                status.signal = u->signal;
                /* agents may say anything, and events last */
                status.started_at = sane_time(u->started_at);
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
                return arena_printf(&c->step, "exited with code %lld",
                                    (long long)u->exit_code->value);
        return "failed";
}

/* A unit that should run has ended, one way or another. */
static void decide_ended(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u, bool complete)
{
        struct unit *w = unit_at(c, ix);
        bool never = definition_of(c, w)->restart == PB__RESTART__E__never;
        bool open = w->phase == PB__PHASE__E__Scheduled || w->phase == PB__PHASE__E__Updating ||
                    w->phase == PB__PHASE__E__Running;
        if (!open)
                return; /* this end is known already */
        /* that is nobody's failure; its agent is heard again */
        if (u->reason == PB__REASON__E__lease_expired) {
                launch(c, ix, PB__REASON__E__lease_expired, ACTION_APPLY,
                       "its agent was cut off for longer than its lease, and had stopped it");
                return;
        }
        /* Only a whole list (a Hello) says so, of what ran when the agent went: otherwise a rogue
         * agent could make a loop without a pause. */
        if (u->reason == PB__REASON__E__agent_stopped && complete && !never) {
                launch(c, ix, PB__REASON__E__agent_stopped, ACTION_APPLY,
                       "it was stopped together with its agent");
                return;
        }
        bool clean = u->exit_code && u->exit_code->value == 0 && !u->signal &&
                     u->state != PB__ACTUAL_STATE__E__Failed &&
                     u->reason != PB__REASON__E__agent_stopped;
        bool known = u->exit_code || u->signal || u->state == PB__ACTUAL_STATE__E__Failed;
        if (clean && definition_of(c, w)->restart != PB__RESTART__E__always &&
            !MUTANT(job_restarted)) {
                emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadCompleted, u, PB__REASON__E__exited,
                            ACTION_COMPLETE);
                return;
        }
        /* e.g. the machine was restarted */
        if (!known && !never && c->now_ms - w->last_launch_at >= c->opt.launch_grace_ms) {
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
        /* also what runs once at most, and nobody knows how it ended */
        decide_failure(c, ix, reason, failure_text(c, u), u);
}

/* u: what was said of it; NULL: nothing, in a list that names all there is. */
static void missing(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u)
{
        struct unit *w = unit_at(c, ix);
        switch (w->desired) {
        case PB__DESIRED_STATE__E__Deleted:
                decide_gone_for_good(c, ix, u);
                return;
        case PB__DESIRED_STATE__E__Stopped:
                if (w->phase != PB__PHASE__E__Stopped)
                        emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadStopped, NULL,
                                    PB__REASON__E__stopped_by_user, ACTION_APPLY_STOPPED);
                return;
        default:
                /* A launch on its way is covered by its deadline; a unit that did run and is not
                 * known any more is launched anew. */
                if (still_listening(c, w))
                        node_at(c, w->node)->list_at = c->now_ms + silence_limit_ms(c);
                else if (w->phase != PB__PHASE__E__Running ||
                         (u && c->now_ms - w->last_launch_at < c->opt.launch_grace_ms))
                        return;
                else if (definition_of(c, w)->restart == PB__RESTART__E__never) /* it did run */
                        decide_failure(c, ix, PB__REASON__E__lost_by_agent,
                                       "the agent does not know it any more", NULL);
                else
                        launch(c, ix, PB__REASON__E__lost_by_agent, ACTION_APPLY,
                               "the agent does not know it any more");
        }
}

/* It was to move, found no other node, and its own came back in time. */
static bool stays_after_all(const struct core *c, const struct unit *w)
{
        return w->action == ACTION_AWAIT_FAILOVER && !w->waiting && !node_evacuates(c, w->node);
}

/* Nobody said in time that it started, and it did: it holds nothing there any more. Told once, as
 * what it has done until now may have to be undone. */
static void remove_given_up(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (!w->late_told) {
                w->late_told = true;
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__DriftDetected;
                e.node_id = node_at(c, w->node)->id;
                e.action = "Delete";
                e.message = arena_printf(
                    &c->step,
                    "%s: it was given up and started all the same, later; it is stopped there",
                    w->id);
                notice_of_node(c, w->node, &e);
                w = unit_at(c, ix);
        }
        unit_send_removal(c, w->node, w->id, w->token_epoch, w->token_seq);
}

/* What has failed so often that it is tried at the cap will most likely fail again: an event for
 * each time that it came up would be written for ever. Until it has lasted it is shown as running,
 * and nothing is written. What is exclusive says so at once: its lease counts from there. */
static bool is_yet_to_last(const struct core *c, const struct unit *w)
{
        return workload_is_at_cap(c, w) && c->now_ms - w->last_launch_at < RETRY_STEADY_MS &&
               !class_of(c, w)->exclusive;
}

void unit_has_lasted(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        Pb__UnitStatus u = PB__UNIT_STATUS__INIT;
        u.revision_id = w->revision;
        u.started_at = w->last_launch_at;
        emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadStarted, &u, PB__REASON__E__none,
                    ACTION_NONE);
}

static void agent_said(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u, bool complete)
{
        struct unit *w = unit_at(c, ix);
        bool stop_wanted = w->desired == PB__DESIRED_STATE__E__Stopped;
        w->reported = true;
        w->health = str_eq(u->health, "healthy") ? 1 : str_eq(u->health, "unhealthy") ? 2 : 0;
        /* no event: it is only shown */
        text_set(&w->progress, u->state == PB__ACTUAL_STATE__E__Pending ? u->message : NULL);
        if (w->desired == PB__DESIRED_STATE__E__Deleted &&
            u->state != PB__ACTUAL_STATE__E__Missing) {
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
                } else if (w->phase == PB__PHASE__E__Scheduled ||
                           w->phase == PB__PHASE__E__Updating)
                        emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadStarted, u,
                                    PB__REASON__E__none,
                                    stays_after_all(c, w) ? ACTION_APPLY : ACTION_NONE);
                else if (w->phase == PB__PHASE__E__Running && stays_after_all(c, w))
                        emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadStarted, u,
                                    PB__REASON__E__adopted, ACTION_APPLY);
                else if (unit_is_finished(w))
                        remove_given_up(c, ix);
                break;
        case PB__ACTUAL_STATE__E__Stopped:
        case PB__ACTUAL_STATE__E__Failed:
                if (stop_wanted && w->phase != PB__PHASE__E__Stopped)
                        emit_status(c, ix, PB__EVENT_TYPE__E__WorkloadStopped, u,
                                    PB__REASON__E__stopped_by_user, ACTION_APPLY_STOPPED);
                else if (w->desired == PB__DESIRED_STATE__E__Running)
                        decide_ended(c, ix, u, complete);
                break;
        case PB__ACTUAL_STATE__E__Unknown:
        case PB__ACTUAL_STATE__E__Pending:
                if (stop_wanted && complete && w->phase != PB__PHASE__E__Stopped)
                        unit_send(c, ix); /* not proved to have stopped */
                else if (u->state == PB__ACTUAL_STATE__E__Unknown &&
                         w->desired == PB__DESIRED_STATE__E__Running)
                        decide_ended(c, ix, u, complete);
                break;
        case PB__ACTUAL_STATE__E__Missing:
                missing(c, ix, u);
                break;
        default:
                break;
        }
}

const struct unit_kind workload_kind = {
        .name = "workload",
        .save = save_workload,
        .look = look,
        .deadline = deadline,
        .due = due,
        .placed = placed,
        .waits = waits,
        .evict = evict,
        .leave = leave,
        .said = agent_said,
        .missing = missing,
};
