/* core/workload.c: a workload's life: what is due, where it goes (C6, C7, C19-C28). What users ask is in workload_ask.c.
 *
 *   Pending --placed--> Scheduled --agent: running--> Running --new spec--> Updating --agent: running--> Running
 *      ^                    |                            |
 *      |                    '-----------failure----------+--> RetryPending --due--> Scheduled
 *      |                                                 |        '--attempts exhausted--> Failed
 *      '--its node is lost beyond the grace--------------+--> Completed (a job that exited 0)
 *   any --stop--> Stopped --start--> Scheduled        any --delete--> Deleting --proved gone--> (no record)
 *
 * Invariants:
 *   (W1) A workload has at most one node; it is in exactly that node's list of units.
 *   (W2) It holds capacity there exactly while assigned and not finished for good (Completed, Failed).
 *   (W3) Its token grows with every launch; nothing is launched without an event.
 *   (W4) It waits in its class's queue exactly while it wants a (new) node and has found none.
 */
#include "base/mutant.h"
#include "core/retry.h"
#include "core/state.h"
#include "model/json.h"
#include <string.h>

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
        return (struct unit_ix){ str_empty(id) ? NONE : map_get(&c->unit_by_id, id, strlen(id)) };
}

/* ---- the pieces ---------------------------------------------------------------------------------------------------------------------------- */

struct unit_ix unit_add(struct core *c, const char *id)
{
        struct unit_ix w;
        if (c->free_units.len)
                w.v = array_pop(&c->free_units);
        else {
                array_push(&c->units);
                w.v = (uint32_t)c->units.len - 1;
        }
        *unit_at(c, w) = (struct unit){ .id = mem_strdup(id),
                                        .definition = NONE,
                                        .node = NODE_NONE,
                                        .node_next = UNIT_NONE,
                                        .node_prev = UNIT_NONE,
                                        .wait_next = UNIT_NONE,
                                        .wait_prev = UNIT_NONE,
                                        .same_next = UNIT_NONE,
                                        .same_prev = UNIT_NONE,
                                        .nominated = NODE_NONE };
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

const uint8_t on_node_phases[3] = { PB__PHASE__E__Running, PB__PHASE__E__Scheduled, PB__PHASE__E__Updating };

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
                ledger_reserve(&node_at(c, w->node)->ledger, class_of(c, w)->need);
                node_at(c, w->node)->drain_finished_at = 0; /* (D2): something is left there after all */
        } else if (!MUTANT(ledger_not_released))
                ledger_release(&node_at(c, w->node)->ledger, class_of(c, w)->need);
        w->holds = hold;
        node_at(c, w->node)->n_holding += hold ? 1 : -1u;
        counts_unit(c, w, hold ? 1 : -1);
        priority_count(c, class_of(c, w)->priority, hold ? 1 : -1);
        columns_update(c, w->node);
        save_node(c, w->node);
        if (!hold)
                drain_touch(c, w->node);
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

void mark_dirty(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (w->dirty || !c->started || MUTANT(dirty_set_forgotten))
                return;
        w->dirty = true;
        *array_push(&c->dirty) = ix;
}

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
        if (node_ok(w->nominated))
                nominate(c, ix, NODE_NONE);
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

int32_t workload_retry_limit(const struct core *c, const struct unit *w)
{
        return retry_limit(w->max_attempts, definition_of(c, w)->restart == PB__RESTART__E__always);
}

bool workload_is_at_cap(const struct core *c, const struct unit *w)
{
        return workload_retry_limit(c, w) == RETRY_UNLIMITED && retry_is_at_cap(w->base_seconds, w->cap_seconds, w->attempts);
}

int64_t workload_deadline(const struct core *c, const struct unit *w)
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
                return d->ttl_seconds > 0 && d->restart != PB__RESTART__E__always ? w->finished_at + (int64_t)d->ttl_seconds * 1000
                                                                                  : HEAP_NEVER;
        default:
                return HEAP_NEVER;
        }
}

void unit_deadline_refresh(struct core *c, struct unit_ix ix)
{
        int64_t at = workload_deadline(c, unit_at(c, ix));
        if (MUTANT(deadline_lost_on_restart) && (!c->started || c->in->kind == INPUT_START))
                return;
        if (at == HEAP_NEVER)
                heap_unset(&c->unit_deadlines, ix.v);
        else
                heap_set(&c->unit_deadlines, ix.v, at);
}

/* ---- what is due --------------------------------------------------------------------------------------------------------------------------- */

void emit_rescheduled(struct core *c, struct unit_ix ix, Pb__Reason__E reason, const char *message)
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

void launch(struct core *c, struct unit_ix ix, Pb__Reason__E reason, enum action action, const char *message)
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

static void status_of_unit(const Pb__UnitStatus *u, Pb__WorkloadStatus *s, Pb__Reason__E reason, const char *message)
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
static void emit_keeps_failing(struct core *c, struct unit_ix ix, Pb__Reason__E reason, const char *message)
{
        struct unit *w = unit_at(c, ix);
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadKeepsFailing;
        e.workload_id = w->id;
        e.node_id = node_ok(w->node) ? node_at(c, w->node)->id : "";
        e.reason = reason;
        e.message = arena_printf(&c->step, "%d attempts have failed, and it is tried on every %d s for as long as it takes: %s",
                                 w->attempts, w->cap_seconds, message);
        emit(c, &e);
}

void decide_failure(struct core *c, struct unit_ix ix, Pb__Reason__E reason, const char *message, const Pb__UnitStatus *u)
{
        struct unit *w = unit_at(c, ix);
        c->stats.failures++;
        Pb__WorkloadStatus status;
        status_of_unit(u, &status, reason, message);
        Pb__Retry retry = PB__RETRY__INIT;
        retry.attempts = w->attempts + 1;
        /* What its runtime refuses as a definition it would refuse again. */
        bool never = definition_of(c, w)->restart == PB__RESTART__E__never || reason == PB__REASON__E__invalid_spec;
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
                retry.next_retry_at = c->now_ms + retry_backoff_ms(w->base_seconds, w->cap_seconds, retry.attempts);
        }
        emit(c, &e);
        if (e.type == PB__EVENT_TYPE__E__RetryScheduled && limit == RETRY_UNLIMITED && retry.attempts == RETRY_ALERT_ATTEMPTS)
                emit_keeps_failing(c, ix, reason, message);
}

static void retry_due(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (workload_is_at_cap(c, w) && w->desired == PB__DESIRED_STATE__E__Running && node_ok(w->node) && w->holds &&
            !unit_must_leave(c, w)) {
                c->stats.retries++;
                launch(c, ix, (Pb__Reason__E)w->reason, ACTION_RECREATE, arena_printf(&c->step, "attempt %d", w->attempts + 1));
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
        reconcile(c, ix);
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
                if (!w->reported && w->resends >= 3 && w->desired == PB__DESIRED_STATE__E__Running) {
                        decide_failure(c, ix, PB__REASON__E__start_failed, "the agent did not say that it started", NULL);
                        return;
                }
                if (w->resends < UINT8_MAX)
                        w->resends++;
                unit_send(c, ix);
        }
        heap_set(&c->unit_deadlines, ix.v, again);
        fence_ask_again(c, ix);
}

void decide_workload_deadline(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (!w->id)
                return;
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
                mark_dirty(c, ix);
                break;
        default:
                break;
        }
}

/* ---- where it goes ------------------------------------------------------------------------------------------------------------------------- */

static void emit_scheduled(struct core *c, struct unit_ix ix, const struct place_result *r, const char *previous)
{
        struct unit *w = unit_at(c, ix);
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

static bool try_place(struct core *c, struct unit_ix ix, Pb__Reason__E leaving, const char *why)
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
        nomination_aside(c, ix);
        if (node_ok(old) && !w->holds && feasible(c, old, d, w->id) == PB__REASON__E__none)
                r = (struct place_result){ .node = old,
                                           .candidates = 1,
                                           .utilisation = ledger_utilisation(&node_at(c, old)->ledger),
                                           .cost = place_cost(c, old, d) };
        else
                r = place(c, d, is_barred(w) ? w->id : NULL, old);
        if (w->holds)
                counts_unit_quietly(c, w, 1);
        nomination_back(c, ix);
        if (!node_ok(r.node)) {
                c->stats.placement_failures++;
                return false;
        }
        const char *previous = NULL;
        waiting_remove(c, ix);
        if (node_ok(old) && old.v != r.node.v) {
                previous = arena_strdup(&c->step, node_at(c, old)->id);
                c->stats.actions[4]++;
                emit_rescheduled(c, ix, leaving, why);
        }
        emit_scheduled(c, ix, &r, previous);
        return true;
}

/* The reason that stands in the way on most nodes; of equals the one that was known, then by the order of the list. */
static Pb__Reason__E main_reason(struct core *c, const struct unit *w, struct node_ix exclude, unsigned known, char **ret_text)
{
        uint32_t counts[64] = { 0 };
        if (unit_is_pinned(c, w)) {
                *ret_text = arena_printf(&c->step, "pinned to %s: only an operator moves it", node_at(c, w->node)->id);
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

static bool is_waiting_reason(unsigned reason)
{
        return (reason >= PB__REASON__E__no_nodes && reason <= PB__REASON__E__node_returning) ||
               (reason >= PB__REASON__E__taint_not_tolerated && reason <= PB__REASON__E__spread_exceeded) ||
               reason == PB__REASON__E__node_unreachable;
}

/* If it does not fit, nobody of its class does: nothing in its way is its own. */
static bool stands_for_its_class(const struct core *c, const struct unit *w)
{
        return !is_barred(w) && !node_ok(w->node) && !class_of(c, w)->n_nominated && !is_guarded(c, definition_of(c, w));
}

Pb__Reason__E why_it_waits(struct core *c, const struct unit *w)
{
        struct class *k = class_of(c, w);
        char *text;
        if (unit_is_pinned(c, w))
                return PB__REASON__E__pinned_to_node;
        if (!stands_for_its_class(c, w))
                return k->reason;
        if (k->shown_at != c->capacity_change && c->looks_left && c->started) { /* a follower does not know who is there */
                c->looks_left--;
                k->shown_at = c->capacity_change;
                k->shown_reason = (uint8_t)main_reason(c, w, NODE_NONE, w->reason, &text);
        }
        bool known = k->shown_at == c->capacity_change && (k->shown_reason != PB__REASON__E__no_nodes || !c->n_nodes);
        return known ? k->shown_reason : k->reason;
}

/* Nobody can take it now: it waits in its class's queue. That is an event once; how the reason changes while it waits is derived (why_it_waits). */
static void wait_for_node(struct core *c, struct unit_ix ix, bool failover)
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
        if (failover ? w->action == ACTION_AWAIT_FAILOVER : is_waiting_reason(w->reason))
                return;
        if (!text)
                main_reason(c, w, NODE_NONE, 0, &text);
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadPending;
        e.workload_id = w->id;
        e.node_id = failover ? node_at(c, w->node)->id : "";
        e.reason = k->reason;
        e.message = text;
        if (failover) {
                e.action = (char *)action_names[ACTION_AWAIT_FAILOVER];
                c->stats.actions[5]++;
        }
        emit(c, &e);
}

static Pb__Reason__E why_it_leaves(const struct core *c, const struct unit *w, const char **ret_why)
{
        bool lost = node_get(c, w->node)->status == PB__NODE_STATUS__E__NotReady;
        if (!node_evacuates(c, w->node) && taints_drive_out(c, w)) {
                *ret_why = "its node has a taint that it does not tolerate";
                return PB__REASON__E__taint_not_tolerated;
        }
        *ret_why = lost ? "its node is lost" : "its node is drained";
        return lost ? PB__REASON__E__node_lost : PB__REASON__E__node_drained;
}

void evict_workload(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        const char *why;
        Pb__Reason__E reason = why_it_leaves(c, w, &why);
        if (w->desired == PB__DESIRED_STATE__E__Deleted) {
                reconcile(c, ix);
                return;
        }
        if (w->desired == PB__DESIRED_STATE__E__Stopped) {
                emit_rescheduled(c, ix, reason, why);
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__WorkloadStopped;
                e.workload_id = unit_at(c, ix)->id;
                e.reason = PB__REASON__E__stopped_by_user;
                emit(c, &e);
                return;
        }
        if (!try_place(c, ix, reason, why))
                wait_for_node(c, ix, true);
}

bool unit_must_leave(const struct core *c, const struct unit *w)
{
        return node_evacuates(c, w->node) || (node_get(c, w->node)->n_taints && taints_drive_out(c, w));
}

void reconcile(struct core *c, struct unit_ix ix)
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
                e.message = given_up ? "its node is lost; what may still run there is stopped when it returns" : "";
                emit(c, &e);
                return;
        }
        if (w->desired == PB__DESIRED_STATE__E__Stopped && node_ok(w->node) && w->holds && unit_must_leave(c, w)) {
                evict_workload(c, ix); /* nobody there will say that it has stopped */
                return;
        }
        if (w->phase != PB__PHASE__E__Pending || w->desired != PB__DESIRED_STATE__E__Running || w->waiting)
                return;
        if (node_ok(w->node) && w->holds) { /* e.g. a retry that came due: the same node, unless that one is gone for good */
                if (!unit_must_leave(c, w)) {
                        launch(c, ix, w->attempts ? (Pb__Reason__E)w->reason : PB__REASON__E__none,
                               w->attempts ? ACTION_RECREATE : ACTION_APPLY, "");
                        return;
                }
                if (node_at(c, w->node)->given_up && node_at(c, w->node)->paced)
                        evict_begin(c, w->node, true); /* when its turn comes */
                else
                        evict_workload(c, ix);
                return;
        }
        if (quota_blocks(c, ix)) {
                wait_for_quota(c, ix);
                return;
        }
        const struct class *k = class_of(c, w);
        bool hopeless =
            k->n_waiting && k->none_at == c->capacity_change && stands_for_its_class(c, w); /* those before it found nothing either */
        if (hopeless || !try_place(c, ix, PB__REASON__E__none, "placed anew"))
                wait_for_node(c, ix, false);
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
                                mark_dirty(c, ix);
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
                        if (node_ok(w->node) && w->phase != PB__PHASE__E__Pending && drain_is_full(c, node_at(c, w->node))) {
                                waiting_remove(c, ix); /* it is tried again when others have gone */
                                drain_touch(c, w->node);
                                ix = after;
                                continue;
                        }
                        const char *why = "placed anew"; /* what had finished on its node leaves it for no other reason */
                        Pb__Reason__E leaving = node_ok(w->node) && w->holds ? why_it_leaves(c, w, &why) : PB__REASON__E__none;
                        bool placed = try_place(c, ix, leaving, why);
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

void settle(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        unit_deadline_refresh(c, ix);
        if (w->phase == PB__PHASE__E__Pending || w->phase == PB__PHASE__E__Deleting)
                mark_dirty(c, ix);
}
