/* core/workload_apply.c: how events change a workload. The only place that does: workload.c, node.c
 * and unit.c decide, and emit.
 *
 * Everything here follows from the event and the state before it, so that a fold of stored events
 * gives the same again: no options, no clock but the event's.
 */
#include "base/mutant.h"
#include "core/definitions.h"
#include "core/drain.h"
#include "core/node.h"
#include "core/notice.h"
#include "core/quota.h"
#include "core/retry.h"
#include "core/state.h"
#include "core/step.h"
#include "core/tombstone.h"
#include "core/workload.h"

static void take_action(struct unit *w, const Pb__Event *e)
{
        if (str_empty(e->action))
                return;
        w->action = (uint8_t)action_parse(e->action);
        w->last_action_at = e->timestamp;
}

/* An agent's clock may be anywhere; what it says of a copy lies between its launch and now. */
static int64_t agents_time(const struct unit *w, int64_t at, const Pb__Event *e)
{
        if (at > e->timestamp)
                return e->timestamp;
        return at && at < w->last_launch_at ? w->last_launch_at : at;
}

static void take_status(struct unit *w, const Pb__Event *e)
{
        const Pb__WorkloadStatus *s = e->status;
        if (!s)
                return;
        w->has_exit = s->exit_code != NULL;
        w->exit_code = s->exit_code ? (int32_t)s->exit_code->value : 0;
        w->has_signal = s->signal != NULL;
        w->signal = s->signal ? (int32_t)s->signal->value : 0;
        if (s->started_at)
                w->started_at = agents_time(w, s->started_at, e);
        w->finished_at = agents_time(w, s->finished_at, e);
        text_set(&w->failure, s->failure_reason);
        if (!str_empty(s->failure_reason))
                text_set(&w->last_error, s->failure_reason);
        if (!str_empty(s->observed_revision))
                text_set(&w->observed, s->observed_revision);
}

static void take_launch(struct core *c, struct unit *w, const Pb__Event *e, Pb__Phase__E phase)
{
        w->token_epoch = e->token->epoch;
        w->token_seq = e->token->seq;
        w->last_launch_at = e->timestamp;
        w->next_retry_at = 0;
        w->finished_at = 0;
        w->has_exit = w->has_signal = false;
        w->actual = PB__ACTUAL_STATE__E__Pending;
        w->reported = w->late_told = w->up = w->unheard = false;
        w->health = 0;
        text_set(&w->progress, NULL);
        w->resends = 0;
        unit_set_phase(c, w, phase);
}

/* What it holds and is counted for is that of its definition. */
static void redefine(struct core *c, struct unit_ix ix, const Pb__Workload *definition)
{
        struct unit *w = unit_at(c, ix);
        bool held = w->holds;
        uint32_t d = definition_intern(c, definition);
        /* (F3) */
        w->unleased = held && definition->exclusive == PB__EXCLUSIVE__E__movable &&
                      (w->unleased || definition_of(c, w)->exclusive != PB__EXCLUSIVE__E__movable);
        if (w->definition != NONE) {
                waiting_remove(c, ix); /* of its old class */
                usage_drop(c, w);
                if (held)
                        unit_hold(c, ix, false);
        }
        unit_set_definition(c, ix, d);
        if (held)
                unit_hold(c, ix, true);
}

static void take_policy(struct unit *w, const Pb__Retry *r)
{
        w->max_attempts = r && r->max_attempts > 0 ? r->max_attempts : 0;
        w->base_seconds = r && r->base_seconds > 0 ? r->base_seconds : RETRY_BASE_SECONDS;
        w->cap_seconds = r && r->cap_seconds > 0 ? r->cap_seconds : RETRY_CAP_SECONDS;
}

static void apply_applied(struct core *c, struct unit_ix ix, const Pb__Event *e)
{
        struct unit *w = unit_at(c, ix);
        bool created = w->definition == NONE;
        redefine(c, ix, e->workload);
        text_set(&w->revision, e->workload->revision_id);
        take_policy(w, e->workload->retry);
        w->attempts = 0;
        w->next_retry_at = 0;
        w->updated_at = e->timestamp;
        w->reason = 0;
        text_set(&w->failure, NULL);
        text_set(&w->lost_node, NULL);
        if (created) {
                w->created_at = e->timestamp;
                w->desired = (uint8_t)(e->workload->desired_state ? e->workload->desired_state
                                                                  : PB__DESIRED_STATE__E__Running);
                w->actual = PB__ACTUAL_STATE__E__Pending;
                unit_set_phase(c, w,
                               w->desired == PB__DESIRED_STATE__E__Stopped ? PB__PHASE__E__Stopped
                                                                           : PB__PHASE__E__Pending);
        } else if (unit_is_finished(w) || w->phase == PB__PHASE__E__RetryPending) {
                w->has_exit = w->has_signal = false;
                unit_set_phase(c, w,
                               w->desired == PB__DESIRED_STATE__E__Stopped ? PB__PHASE__E__Stopped
                                                                           : PB__PHASE__E__Pending);
        }
}

static void apply_relabelled(struct core *c, struct unit_ix ix, const Pb__Event *e)
{
        redefine(c, ix, e->workload);
        struct unit *w = unit_at(c, ix);
        w->updated_at = e->timestamp;
        if (e->workload->retry)
                take_policy(w, e->workload->retry);
        int32_t limit = workload_retry_limit(c, w);
        if (w->attempts > limit) /* (R1) */
                w->attempts = limit;
}

static void apply_desired(struct core *c, struct unit_ix ix, const Pb__Event *e)
{
        struct unit *w = unit_at(c, ix);
        w->desired = (uint8_t)e->desired_state;
        w->updated_at = e->timestamp;
        w->reason = (uint8_t)e->reason;
        w->next_retry_at = 0;
        if (e->status)
                text_set(&w->failure, e->status->failure_reason);
        if (e->desired_state == PB__DESIRED_STATE__E__Stopped) {
                waiting_remove(c, ix);
                bool runs = w->phase == PB__PHASE__E__Scheduled ||
                            w->phase == PB__PHASE__E__Running || w->phase == PB__PHASE__E__Updating;
                if (!runs) {
                        unit_set_phase(c, w, PB__PHASE__E__Stopped);
                        w->actual = PB__ACTUAL_STATE__E__Stopped;
                }
                w->action = ACTION_APPLY_STOPPED;
                w->last_action_at = e->timestamp;
        } else {
                w->attempts = 0;
                unit_set_phase(c, w, PB__PHASE__E__Pending);
        }
}

/* (E2) Only what a restore can be followed by; before the first one nothing is forgotten. */
static void goes_back_to(const struct core *c, struct unit *w, uint64_t epoch, uint64_t seq)
{
        if (!c->lost.len)
                return;
        w->origin_epoch = epoch;
        w->origin_seq = seq;
}

static void apply_deleted(struct core *c, struct unit_ix ix, const Pb__Event *e)
{
        if (e->tombstone)
                unit_to_tombstone(c, ix, PB__REASON__E__node_lost, e->timestamp);
        record_removed(c, RECORD_WORKLOAD, unit_at(c, ix)->id);
        unit_free(c, ix);
}

static void apply_rescheduled(struct core *c, struct unit_ix ix, const Pb__Event *e)
{
        struct unit *w = unit_at(c, ix);
        text_set(&w->previous_node, node_at(c, w->node)->id);
        if (MUTANT(tombstone_dropped))
                unit_unassign(c, ix);
        else
                unit_to_tombstone(c, ix, e->reason, e->timestamp);
        if (e->reason == PB__REASON__E__preempted)
                w->preempted_at = e->timestamp;
        /* then it wants no node either */
        bool stopped = w->desired == PB__DESIRED_STATE__E__Stopped;
        unit_set_phase(c, w, stopped ? PB__PHASE__E__Stopped : PB__PHASE__E__Pending);
        w->actual = stopped ? PB__ACTUAL_STATE__E__Stopped : PB__ACTUAL_STATE__E__Pending;
        w->reason = (uint8_t)e->reason;
        w->next_retry_at = 0;
}

static void apply_scheduled(struct core *c, struct unit_ix ix, const Pb__Event *e)
{
        struct unit *w = unit_at(c, ix);
        struct node_ix n = node_find(c, e->node_id);
        must(node_ok(n), "N5: an event about a node names a known one");
        waiting_remove(c, ix);
        if (!node_ok(w->node)) {
                unit_assign(c, ix, n);
                w->unleased = false;
        }
        must(w->node.v == n.v, "W1: a workload has one node at most");
        unit_hold(c, ix, true);
        text_set(&w->lost_node, NULL);
        w->placed_at = e->timestamp;
        w->placed_reason = (uint8_t)e->placement->reason;
        w->score = e->placement->score;
        w->candidates = e->placement->candidates;
        w->reason = PB__REASON__E__placed;
        take_launch(c, w, e, PB__PHASE__E__Scheduled);
}

static void apply_retry(struct core *c, struct unit *w, const Pb__Event *e)
{
        w->next_retry_at = 0;
        if (e->retry)
                w->attempts = e->retry->attempts; /* a user's retry starts from zero */
        if (unit_is_finished(w))
                w->reason = PB__REASON__E__none;
        text_set(&w->lost_node, NULL);
        unit_set_phase(c, w, PB__PHASE__E__Pending);
        w->actual = PB__ACTUAL_STATE__E__Pending;
}

static void apply_end(struct core *c, struct unit_ix ix, const Pb__Event *e, Pb__Phase__E phase,
                      Pb__ActualState__E actual)
{
        struct unit *w = unit_at(c, ix);
        w->up = false;
        take_status(w, e);
        unit_set_phase(c, w, phase);
        w->actual = (uint8_t)actual;
        w->reason = (uint8_t)e->reason;
        w->next_retry_at = e->retry ? e->retry->next_retry_at : 0;
        if (e->retry)
                w->attempts = e->retry->attempts;
        waiting_remove(c, ix);
        if (phase == PB__PHASE__E__Completed || phase == PB__PHASE__E__Failed) {
                if (!w->finished_at)
                        w->finished_at = e->timestamp;
                if (node_ok(w->node))
                        unit_hold(c, ix, false);
        }
}

/* A unit that its node already runs: as if it had been placed and launched there with the token
 * that it has. */
static void apply_adopted(struct core *c, struct unit_ix ix, const Pb__Event *e)
{
        apply_applied(c, ix, e);
        struct unit *w = unit_at(c, ix);
        struct node_ix n = node_find(c, e->node_id);
        /* also of one that is known: a record of before a restore */
        w->desired = (uint8_t)e->workload->desired_state;
        bool runs = w->desired == PB__DESIRED_STATE__E__Running;
        if (w->node.v != n.v)
                unit_assign(c, ix, n);
        if (!w->holds)
                unit_hold(c, ix, true);
        drain_touch(c, n);
        w->placed_at = e->timestamp;
        w->placed_reason = (uint8_t)e->reason;
        w->reason = (uint8_t)e->reason;
        bool up = runs && e->status && e->status->actual_state == PB__ACTUAL_STATE__E__Running;
        take_launch(c, w, e,
                    !runs ? PB__PHASE__E__Stopped
                    : up  ? PB__PHASE__E__Running
                          : PB__PHASE__E__Scheduled);
        w->actual = (uint8_t)(!runs ? PB__ACTUAL_STATE__E__Stopped
                              : up  ? PB__ACTUAL_STATE__E__Running
                                    : PB__ACTUAL_STATE__E__Pending);
        if (up)
                w->started_at = e->timestamp;
        text_set(&w->observed, w->revision);
}

void apply_workload_event(struct core *c, const Pb__Event *e)
{
        struct unit_ix ix = workload_find(c, e->workload_id);
        if (!unit_ok(ix) && (e->type == PB__EVENT_TYPE__E__WorkloadApplied ||
                             e->type == PB__EVENT_TYPE__E__WorkloadAdopted)) {
                ix = unit_add(c, UNIT_WORKLOAD, e->workload_id);
                views_of_new_workload(c, ix);
        }
        must(unit_ok(ix), "W5: an event about a workload names a known one");
        struct unit *w = unit_at(c, ix);
        w->seq = e->seq;
        w->last_updated = e->timestamp;
        take_action(w, e);
        if (!(MUTANT(record_not_written) && e->type == PB__EVENT_TYPE__E__WorkloadStarted))
                save_workload(c, ix);
        switch (e->type) {
        case PB__EVENT_TYPE__E__WorkloadApplied:
                apply_applied(c, ix, e);
                goes_back_to(c, w, c->epoch, e->seq);
                break;
        case PB__EVENT_TYPE__E__WorkloadAdopted:
                apply_adopted(c, ix, e);
                goes_back_to(c, w, e->token->epoch, e->token->seq);
                break;
        case PB__EVENT_TYPE__E__WorkloadFenced:
                w->token_epoch = e->token->epoch;
                w->token_seq = e->token->seq;
                break;
        case PB__EVENT_TYPE__E__WorkloadRelabelled:
                apply_relabelled(c, ix, e);
                goes_back_to(c, w, c->epoch, e->seq);
                break;
        case PB__EVENT_TYPE__E__WorkloadDesired:
                apply_desired(c, ix, e);
                goes_back_to(c, w, c->epoch, e->seq);
                break;
        case PB__EVENT_TYPE__E__WorkloadDeleting:
                waiting_remove(c, ix);
                w->desired = PB__DESIRED_STATE__E__Deleted;
                w->reason = (uint8_t)e->reason;
                w->next_retry_at = 0;
                unit_set_phase(c, w, PB__PHASE__E__Deleting);
                break;
        case PB__EVENT_TYPE__E__WorkloadDeleted:
                apply_deleted(c, ix, e);
                return;
        case PB__EVENT_TYPE__E__WorkloadScheduled:
                apply_scheduled(c, ix, e);
                break;
        case PB__EVENT_TYPE__E__WorkloadPending:
                w->reason = (uint8_t)e->reason;
                if (!node_ok(w->node))
                        text_set(&w->failure, e->message);
                break;
        case PB__EVENT_TYPE__E__WorkloadLaunched:
                if (e->reason != PB__REASON__E__spec_changed && e->reason != PB__REASON__E__none)
                        w->restarts++;
                take_launch(c, w, e,
                            e->reason == PB__REASON__E__spec_changed ? PB__PHASE__E__Updating
                                                                     : PB__PHASE__E__Scheduled);
                w->reason = (uint8_t)e->reason;
                break;
        case PB__EVENT_TYPE__E__WorkloadStarted:
                w->started_at = e->timestamp;
                w->unleased = false; /* an agent starts a copy only when the one before is gone */
                apply_end(c, ix, e, PB__PHASE__E__Running, PB__ACTUAL_STATE__E__Running);
                break;
        case PB__EVENT_TYPE__E__WorkloadStopped:
                apply_end(c, ix, e, PB__PHASE__E__Stopped, PB__ACTUAL_STATE__E__Stopped);
                break;
        case PB__EVENT_TYPE__E__WorkloadCompleted:
                apply_end(c, ix, e, PB__PHASE__E__Completed, PB__ACTUAL_STATE__E__Stopped);
                break;
        case PB__EVENT_TYPE__E__WorkloadFailed:
                apply_end(c, ix, e, PB__PHASE__E__Failed, PB__ACTUAL_STATE__E__Failed);
                break;
        case PB__EVENT_TYPE__E__RetryScheduled:
                apply_end(c, ix, e, PB__PHASE__E__RetryPending, PB__ACTUAL_STATE__E__Failed);
                break;
        case PB__EVENT_TYPE__E__RetryTriggered:
                apply_retry(c, w, e);
                break;
        case PB__EVENT_TYPE__E__WorkloadKeepsFailing: /* says what RetryScheduled did */
                break;
        case PB__EVENT_TYPE__E__Rescheduled:
                apply_rescheduled(c, ix, e);
                break;
        case PB__EVENT_TYPE__E__WorkloadReleased:
                text_set(&w->lost_node, node_at(c, w->node)->id);
                unit_unassign(c, ix);
                break;
        case PB__EVENT_TYPE__E__UnitReleased:
                apply_release(c, ix);
                break;
        case PB__EVENT_TYPE__E__RetryReset:
                w->attempts = 0;
                break;
        default:
                break; /* an event of a newer berth that means nothing to this one */
        }
        usage_update(c, unit_at(c, ix));
        unit_deadline_refresh(c, ix);
}
