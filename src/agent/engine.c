/* agent/engine.c: the agent's decisions. The rules stand in engine.h; this is how they are kept.
 *
 * engine_plan.c takes what the server says, engine_unit.c holds the units, engine_output.c packs
 * what leaves.
 *
 * A unit has a wish (token, revision, desired state), kept on disk, and a copy in the runtime (enum
 * run) that follows it. Every input changes one of the two and then calls engine_settle(), the only
 * place that orders stops and removals and that queues starts; engine_engine_pump_starts() is the
 * only place that orders a start.
 *
 *      RUN_NONE --START--> RUN_STARTING --started--> RUN_UP --STOP--> RUN_STOPPING --proof-->
 *      RUN_NONE --REMOVE--> RUN_REMOVING --> gone
 *
 * Invariants (engine_check):
 *   (1) A unit's token never goes back.
 *   (2) START is ordered only in RUN_NONE, so never two copies.
 *   (3) The pair (launched token, launched revision) never starts twice, but for a launch that left
 *       no trace in the same boot of the machine.
 *   (4) run_token is not larger than token.
 *   (5) n_starting and n_gating count what they say; starts in flight never exceed max_starting.
 *   (7) Units that need a lease are counted; a START of one is ordered only while the lease holds.
 *   (6) A unit in RUN_REMOVING writes no record until REMOVED: its files are going.
 */
#include "agent/engine.h"
#include "agent/engine_state.h"
#include "base/mutant.h"
#include "base/str.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define SAVE_AGAIN_MS 5000

/* ---- orders ---- */

static struct runtime_order *order(struct engine *e, struct unit *u, enum engine_order_kind kind)
{
        struct runtime_order *o = array_push(&e->orders);

        o->kind = kind;
        o->id = mem_strdup(u->id);
        o->token = u->token;
        return o;
}

void engine_stop_within(struct engine *e, struct unit *u, int64_t grace_ms, int64_t now_ms)
{
        struct runtime_order *o = order(e, u, ORDER_STOP);

        o->token = u->run_token;
        o->grace_ms = grace_ms;
        if (u->run == RUN_STARTING)
                e->n_starting--;
        u->run = RUN_STOPPING;
        heap_set(&e->stop_again, u->ix, now_ms + grace_ms + ENGINE_STOP_AGAIN_MS);
}

static void order_stop(struct engine *e, struct unit *u, int64_t now_ms)
{
        int64_t most = u->run_leased && u->expired ? e->lease_stop_ms : INT64_MAX;

        engine_stop_within(e, u, u->grace_ms < most ? u->grace_ms : most, now_ms);
}

static void order_start(struct engine *e, struct unit *u)
{
        struct runtime_order *o = order(e, u, ORDER_START);

        must(u->run == RUN_NONE, "engine (2): START only when nothing of it runs");
        o->data = mem_dup(u->workload, u->workload_len);
        o->len = u->workload_len;
        u->launched = u->run_token = u->token;
        unit_set_string(&u->launched_revision, u->revision);
        unit_set_string(&u->run_revision, u->revision);
        u->launched_here = true;
        u->resumable = u->suspended = u->unsaved = false;
        u->run = RUN_STARTING;
        u->health = NULL;
        u->failing = u->expired = false;
        u->run_leased = u->leased;
        e->n_starting++;
        if (u->state != PB__ACTUAL_STATE__E__Pending) {
                unit_clear_exit(u);
                unit_set_state(e, u, PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none, NULL);
        }
        engine_mark_dirty(e, u);
}

/* May anything be launched now? (6), (8), (10) of engine.h */
static bool may_start(const struct engine *e, int64_t now_ms)
{
        if (!e->booted || e->suspending || (e->n_gating > 0 && !MUTANT(removal_does_not_gate)) ||
            e->n_starting >= e->max_starting)
                return false;
        return e->planned ||
               (e->away_since_ms != INT64_MIN && now_ms < e->away_since_ms + ENGINE_AWAY_MS);
}

void engine_pump_starts(struct engine *e, int64_t now_ms)
{
        while (e->start_head < e->start_queue.len && may_start(e, now_ms)) {
                struct unit *u = e->units.at[e->start_queue.at[e->start_head++]];

                if (!u || !u->queued)
                        continue;
                u->queued = false;
                if (!unit_wants_start(u))
                        continue;
                if (u->leased && !engine_lease_holds(e, now_ms) && !MUTANT(starts_without_lease))
                        engine_beat(e, now_ms); /* (12): it is looked at again with the answer */
                else
                        order_start(e, u);
        }
        if (e->start_head == e->start_queue.len) {
                array_clear(&e->start_queue);
                e->start_head = 0;
        }
}

static void stop_gating(struct engine *e, struct unit *u)
{
        if (!u->gates)
                return;
        u->gates = false;
        e->n_gating--;
}

/* Brings the copy in the runtime nearer to the wish. Starts are only queued here: the caller pumps
 * when it has seen all of its input. */
void engine_settle(struct engine *e, struct unit *u, int64_t now_ms)
{
        if (!e->booted)
                return;
        switch (u->run) {
        case RUN_NONE:
                if (u->desired == PB__DESIRED_STATE__E__Deleted) {
                        order(e, u, ORDER_REMOVE);
                        u->run = RUN_REMOVING;
                } else if (unit_wants_start(u) && !u->queued) {
                        u->queued = true;
                        *array_push(&e->start_queue) = u->ix;
                }
                break;
        case RUN_STARTING:
        case RUN_UP:
                if (MUTANT(second_copy_started) && u->run == RUN_UP &&
                    u->desired == PB__DESIRED_STATE__E__Running && u->confirmed &&
                    !unit_runs_wish(u)) {
                        u->run = RUN_NONE;
                        engine_settle(e, u, now_ms);
                } else if (u->desired != PB__DESIRED_STATE__E__Running ||
                           (u->confirmed && !unit_runs_wish(u)))
                        order_stop(e, u, now_ms);
                break;
        case RUN_STOPPING:
        case RUN_REMOVING:
                break; /* the proof will come */
        }
}

/* ---- what the runtime says ---- */

static void take_exit(struct unit *u, const struct runtime_event *ev)
{
        u->has_exit_code = ev->has_exit_code;
        u->exit_code = ev->exit_code;
        u->has_signal = ev->has_signal;
        u->signal = ev->signal;
        u->finished_at = ev->at_ms;
}

/* It ended because its agent did. The next Hello says so, and the server starts it anew: a restart
 * is an event, with a token of its own. */
static void stopped_with_agent(struct engine *e, struct unit *u, const struct runtime_event *ev)
{
        if (ev)
                take_exit(u, ev);
        u->suspended = false;
        unit_set_state(e, u, PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__agent_stopped,
                       "stopped together with its agent");
        engine_mark_dirty(e, u);
}

/* How a copy that nobody stopped has ended. */
static void judge_exit(struct engine *e, struct unit *u, const struct runtime_event *ev)
{
        Pb__Reason__E reason = ev->reason;
        bool ok =
            ev->has_exit_code && ev->exit_code == 0 && !ev->oom && reason == PB__REASON__E__none;

        take_exit(u, ev);
        if (ok) {
                unit_set_state(e, u, PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__exited,
                               ev->message);
                return;
        }
        if (reason == PB__REASON__E__none)
                reason =
                    ev->oom || (ev->has_signal && (ev->signal == SIGKILL || ev->signal == SIGTERM))
                        ? PB__REASON__E__killed
                        : PB__REASON__E__crashed;
        unit_set_state(e, u, PB__ACTUAL_STATE__E__Failed, reason,
                       ev->message         ? ev->message
                       : ev->oom           ? "out of memory"
                       : ev->has_signal    ? fmt("ended by signal %d", ev->signal)
                       : ev->has_exit_code ? fmt("exited with code %d", ev->exit_code)
                                           : NULL);
}

/* What a stop did to it, if that is worth a sentence: its last words may be lost. */
static const char *how_stopped(const struct unit *u, const struct runtime_event *ev)
{
        bool killed = (ev->has_signal && ev->signal == SIGKILL) ||
                      (ev->has_exit_code && ev->exit_code == 128 + SIGKILL);

        if (ev->kind == RUNTIME_START_FAILED)
                return NULL;
        if (ev->message || !killed)
                return ev->message;
        return fmt("killed: it had not ended within its grace of %lld s",
                   (long long)(u->grace_ms / 1000));
}

/* The proof that the copy in the runtime is gone. */
static void on_ended(struct engine *e, struct unit *u, const struct runtime_event *ev,
                     int64_t now_ms)
{
        bool was_wish = unit_runs_wish(u), by_us = u->run == RUN_STOPPING;

        if (u->run == RUN_STARTING)
                e->n_starting--;
        u->run = RUN_NONE;
        heap_unset(&e->stop_again, u->ix);
        engine_mark_dirty(e, u);
        if (u->desired != PB__DESIRED_STATE__E__Deleted)
                /* a newer wish came while the old copy went: that one is proved gone */
                stop_gating(e, u);
        if (e->suspending && u->suspended && was_wish) {
                stopped_with_agent(e, u, ev);
                return;
        }
        if (was_wish || u->desired != PB__DESIRED_STATE__E__Running) {
                if (by_us && u->expired && u->desired == PB__DESIRED_STATE__E__Running) {
                        take_exit(u, ev);
                        unit_set_state(e, u, PB__ACTUAL_STATE__E__Stopped,
                                       PB__REASON__E__lease_expired,
                                       "stopped: the agent's lease had run out");
                } else if (by_us && u->failing && u->desired == PB__DESIRED_STATE__E__Running) {
                        _cleanup_(mem_freep) char *why = u->message ? mem_strdup(u->message) : NULL;

                        take_exit(u, ev);
                        unit_set_state(e, u, PB__ACTUAL_STATE__E__Failed, PB__REASON__E__unhealthy,
                                       why);
                } else if (by_us) {
                        take_exit(u, ev);
                        unit_set_state(e, u, PB__ACTUAL_STATE__E__Stopped,
                                       PB__REASON__E__stopped_by_user, how_stopped(u, ev));
                } else if (ev->kind == RUNTIME_START_FAILED) {
                        u->finished_at = ev->at_ms;
                        unit_set_state(e, u, PB__ACTUAL_STATE__E__Failed,
                                       ev->reason ? ev->reason : PB__REASON__E__start_failed,
                                       ev->message);
                } else
                        judge_exit(e, u, ev);
        }
        engine_settle(e, u, now_ms);
}

static void on_removed(struct engine *e, struct unit *u, int64_t now_ms)
{
        if (u->run != RUN_REMOVING)
                return;
        u->run = RUN_NONE;
        stop_gating(e, u);
        /* a newer wish came while its files went */
        if (u->desired != PB__DESIRED_STATE__E__Deleted) {
                u->dirty = false;
                engine_mark_dirty(e, u);
                engine_settle(e, u, now_ms);
                return;
        }
        engine_notice(e, u->id, u->token, NULL, PB__ACTUAL_STATE__E__Missing,
                      PB__REASON__E__deleted,
                      u->reason == PB__REASON__E__stopped_by_user ? u->message : NULL);
        *array_push(&e->forgets) = mem_strdup(u->id);
        engine_unit_free(e, u);
}

/* Text only: nothing is written, and the server makes no event of it. */
static void on_progress(struct engine *e, struct unit *u, const struct runtime_event *ev)
{
        if (u->run != RUN_STARTING || unit_token_cmp(ev->token, u->run_token) != 0 ||
            !unit_runs_wish(u) || str_eq(u->message, ev->message))
                return;
        unit_set_text(&u->message, ev->message, MESSAGE_MAX);
        engine_mark_report(e, u);
}

static void on_found(struct engine *e, const struct runtime_event *ev)
{
        struct unit *u = engine_find(e, ev->workload_id);
        bool mine;

        if (e->booted || (!u && !engine_id_is_safe(ev->workload_id)))
                return;
        if (!u) { /* its record is lost: it is reported, and a plan decides (7) */
                u = engine_unit_new(e, ev->workload_id);
                u->desired = PB__DESIRED_STATE__E__Running;
                u->token = ev->token;
                unit_set_string(&u->revision, ev->revision_id);
        }
        if (unit_token_cmp(ev->token, u->token) > 0)
                u->token = ev->token; /* (1), (4) */
        mine = str_eq(ev->revision_id, u->revision) && unit_token_cmp(ev->token, u->token) == 0;
        /* what is left of an older copy says nothing about the last launch, which may have left no
         * trace */
        if (mine) {
                u->found = true;
                u->launched = ev->token;
                unit_set_string(&u->launched_revision, ev->revision_id);
        }
        if (ev->kind == RUNTIME_FOUND_RUNNING) {
                u->run = RUN_UP;
                u->run_token = ev->token;
                u->run_leased = u->leased;
                unit_set_string(&u->run_revision, ev->revision_id);
                if (u->suspended) {
                        u->suspended = false;
                        engine_mark_dirty(e, u);
                }
                if (mine || u->desired != PB__DESIRED_STATE__E__Running) {
                        unit_clear_exit(u);
                        u->started_at = ev->at_ms;
                        unit_set_state(e, u, PB__ACTUAL_STATE__E__Running, PB__REASON__E__adopted,
                                       NULL);
                }
                return;
        }
        if (!mine)
                /* an older copy's end says nothing about the wish; engine_booted() does the rest */
                return;
        if (u->state == PB__ACTUAL_STATE__E__Stopped || u->state == PB__ACTUAL_STATE__E__Failed)
                return; /* how it ended was on record already, and also why */
        if (u->suspended)
                stopped_with_agent(e, u, ev);
        else if (ev->kind == RUNTIME_FOUND_GONE) {
                u->finished_at = ev->at_ms;
                unit_set_state(e, u, PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__killed,
                               ev->message);
        } else
                judge_exit(e, u, ev);
}

void engine_event(struct engine *e, const struct runtime_event *ev, int64_t now_ms)
{
        struct unit *u;

        if (ev->kind >= RUNTIME_FOUND_RUNNING) {
                on_found(e, ev);
                return;
        }
        u = engine_find(e, ev->workload_id);
        if (!u)
                return;
        if (ev->kind == RUNTIME_REMOVED)
                on_removed(e, u, now_ms);
        else if (ev->kind == RUNTIME_PROGRESS)
                on_progress(e, u, ev);
        else if (!unit_in_runtime(u) || unit_token_cmp(ev->token, u->run_token) != 0)
                return; /* of an earlier copy, or said twice */
        else if (ev->kind == RUNTIME_STARTED) {
                if (u->run == RUN_STARTING) {
                        u->run = RUN_UP;
                        e->n_starting--;
                        if (unit_runs_wish(u)) {
                                u->started_at = ev->at_ms;
                                unit_set_state(e, u, PB__ACTUAL_STATE__E__Running,
                                               PB__REASON__E__none, ev->message);
                        }
                        engine_settle(e, u, now_ms);
                }
        } else
                on_ended(e, u, ev, now_ms);
        engine_pump_starts(e, now_ms);
}

/* What became of a launch that the runtime knows nothing about. */
static void judge_silent(struct engine *e, struct unit *u)
{
        bool ended =
            u->state == PB__ACTUAL_STATE__E__Stopped || u->state == PB__ACTUAL_STATE__E__Failed;

        if (u->desired != PB__DESIRED_STATE__E__Running) {
                if (!ended)
                        unit_set_state(e, u, PB__ACTUAL_STATE__E__Stopped,
                                       PB__REASON__E__stopped_by_user, NULL);
                return;
        }
        if (!unit_was_launched(u)) {
                u->suspended = false;
                unit_clear_exit(u);
                unit_set_state(e, u, PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none, NULL);
                return;
        }
        if (u->suspended && !ended)
                stopped_with_agent(e, u, NULL);
        else if (!u->found && u->state == PB__ACTUAL_STATE__E__Pending &&
                 (u->launched_here || MUTANT(resumed_after_power_loss))) {
                u->resumable = true;
                unit_clear_exit(u);
                unit_set_state(e, u, PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none, NULL);
        } else if (!u->found && u->state == PB__ACTUAL_STATE__E__Pending) { /* (13) */
                unit_clear_exit(u);
                unit_set_state(
                    e, u, PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__killed,
                    "the machine was restarted while it was started: whether it ran is not known");
                engine_mark_dirty(e, u);
        } else if (!u->found && !ended)
                unit_set_state(e, u, PB__ACTUAL_STATE__E__Failed, PB__REASON__E__killed,
                               "the runtime does not know this unit any more");
}

void engine_booted(struct engine *e, int64_t now_ms)
{
        e->booted = true;
        for (size_t i = 0; i < e->units.len; i++) {
                struct unit *u = e->units.at[i];

                if (!u)
                        continue;
                if (u->run == RUN_NONE)
                        judge_silent(e, u);
                if (u->desired == PB__DESIRED_STATE__E__Deleted) {
                        u->gates = true;
                        e->n_gating++;
                }
                engine_settle(e, u, now_ms);
        }
        engine_lease_enforce(e, now_ms);
}

void engine_persist_failed(struct engine *e, const char *workload_id, const char *message,
                           int64_t now_ms)
{
        struct unit *u = workload_id ? engine_find(e, workload_id) : NULL;

        e->save_again_ms = now_ms + SAVE_AGAIN_MS;
        if (!workload_id)
                e->agent_unsaved = true;
        if (!u)
                return;
        u->unsaved = true;
        if (u->run != RUN_STARTING)
                return;
        /* its START was dropped: nothing runs, and this launch counts as tried */
        e->n_starting--;
        u->run = RUN_NONE;
        u->finished_at = now_ms;
        unit_set_state(e, u, PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed,
                       fmt("its record could not be written: %s", message));
        engine_settle(e, u, now_ms);
        engine_pump_starts(e, now_ms);
}

void engine_health(struct engine *e, const char *workload_id, struct unit_token token, bool healthy,
                   const char *message, int64_t now_ms)
{
        struct unit *u = engine_find(e, workload_id);

        if (!u || u->run != RUN_UP || unit_token_cmp(token, u->run_token) != 0 ||
            !unit_runs_wish(u) || e->suspending)
                return;
        u->health = healthy ? "healthy" : "unhealthy";
        engine_mark_report(e, u);
        if (healthy)
                return;
        unit_set_text(&u->message, message, MESSAGE_MAX);
        u->failing = true;
        order_stop(e, u, now_ms);
}

void engine_suspend(struct engine *e, int64_t now_ms)
{
        e->suspending = true;
        for (size_t i = 0; i < e->units.len; i++) {
                struct unit *u = e->units.at[i];

                if (!u || u->desired != PB__DESIRED_STATE__E__Running ||
                    (u->run != RUN_UP && u->run != RUN_STARTING))
                        continue;
                u->suspended = true;
                engine_mark_dirty(e, u);
                order_stop(e, u, now_ms);
        }
}

/* ---- time ---- */

static void save_again(struct engine *e)
{
        e->save_again_ms = HEAP_NEVER;
        e->agent_dirty = e->agent_dirty || e->agent_unsaved;
        e->agent_unsaved = false;
        for (size_t i = 0; i < e->units.len; i++) {
                struct unit *u = e->units.at[i];

                if (u && u->unsaved) {
                        u->unsaved = false;
                        engine_mark_dirty(e, u);
                }
        }
}

/* The server has been away too long for starts that were waiting: only a new plan may launch them
 * (10). */
static void hold_starts(struct engine *e)
{
        for (; e->start_head < e->start_queue.len; e->start_head++) {
                struct unit *u = e->units.at[e->start_queue.at[e->start_head]];

                if (u && u->queued)
                        u->queued = u->confirmed = false;
        }
        array_clear(&e->start_queue);
        e->start_head = 0;
}

void engine_tick(struct engine *e, int64_t now_ms)
{
        if (e->welcome && now_ms >= e->next_beat_ms) {
                engine_beat(e, now_ms);
                e->next_beat_ms = now_ms + e->heartbeat_ms;
        }
        if (now_ms >= e->save_again_ms)
                save_again(e);
        engine_lease_enforce(e, now_ms);
        if (!e->planned && e->away_since_ms != INT64_MIN &&
            now_ms >= e->away_since_ms + ENGINE_AWAY_MS) {
                e->away_since_ms = INT64_MIN;
                hold_starts(e);
        }
        while (heap_next_ms(&e->stop_again) <= now_ms) {
                struct unit *u = e->units.at[heap_pop(&e->stop_again)];

                if (u && u->run == RUN_STOPPING) {
                        order_stop(e, u, now_ms);
                        unit_set_text(&u->message, "could not be stopped yet, trying on",
                                      MESSAGE_MAX);
                        engine_mark_report(e, u);
                }
        }
        engine_pump_starts(e, now_ms);
}

int64_t engine_next_ms(const struct engine *e)
{
        int64_t next = heap_next_ms(&e->stop_again);

        if (e->welcome && e->next_beat_ms < next)
                next = e->next_beat_ms;
        if (e->save_again_ms < next)
                next = e->save_again_ms;
        if (engine_lease_next_ms(e) < next)
                next = engine_lease_next_ms(e);
        if (!e->planned && e->away_since_ms != INT64_MIN && e->start_queue.len &&
            e->away_since_ms + ENGINE_AWAY_MS < next)
                next = e->away_since_ms + ENGINE_AWAY_MS;
        return next;
}

void engine_set_usage(struct engine *e, const struct runtime_usage *usage)
{
        e->usage = *usage;
}

/* ---- the invariants ---- */

int engine_check(const struct engine *e, struct err *err)
{
        uint32_t units = 0, starting = 0, gating = 0, leased = 0;

        for (size_t i = 0; i < e->units.len; i++) {
                const struct unit *u = e->units.at[i];

                if (!u)
                        continue;
                units++;
                starting += u->run == RUN_STARTING;
                gating += u->gates;
                leased += u->leased;
                if (unit_in_runtime(u) && unit_token_cmp(u->run_token, u->token) > 0)
                        return err_set(err, ERR_INTERNAL,
                                       .msg = "engine (4): a copy runs with a token larger than "
                                              "the one on record",
                                       .detail = u->id);
                if (u->state == PB__ACTUAL_STATE__E__Running && !unit_in_runtime(u))
                        return err_set(err, ERR_INTERNAL,
                                       .msg = "engine: reported Running, but not in the runtime",
                                       .detail = u->id);
                if (u->gates && u->run == RUN_NONE)
                        return err_set(err, ERR_INTERNAL,
                                       .msg = "engine: a removal that nobody carries out",
                                       .detail = u->id);
                if (engine_find(e, u->id) != u)
                        return err_set(err, ERR_INTERNAL,
                                       .msg = "engine: the index does not find a unit",
                                       .detail = u->id);
        }
        if (leased != e->n_leased)
                return err_set(err, ERR_INTERNAL,
                               .msg = "engine (7): units that need a lease are counted",
                               .detail = fmt("%u, counted %u", leased, e->n_leased));
        if (units != e->n_units || starting != e->n_starting || gating != e->n_gating ||
            starting > e->max_starting)
                return err_set(err, ERR_INTERNAL, .msg = "engine (5): counters are off",
                               .detail =
                                   fmt("units %u/%u starting %u/%u gating %u/%u", units, e->n_units,
                                       starting, e->n_starting, gating, e->n_gating));
        return 0;
}
