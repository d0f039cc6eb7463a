/* agent/engine_plan.c: what the server says: Welcome, plans and their units. The rules and their
 * numbers stand in engine.h. */
#include "agent/engine.h"
#include "agent/engine_state.h"
#include "base/arena.h"
#include "base/mutant.h"
#include "base/str.h"
#include "model/pb.h"
#include <string.h>

#define MAX_GRACE_SECONDS 86400
#define COLLECT_MAX_BYTES ((size_t)512 * 1024 * 1024)
#define HEARTBEAT_MIN_MS 50
/* whatever a server asks for: an agent that never speaks is lost */
#define HEARTBEAT_MAX_MS (60 * 60 * 1000)

/* ---- plans ---- */

/* The id becomes a directory's name. The same rule as the server's (model/validate.h), so that no
 * report is refused for it. */
bool engine_id_is_safe(const char *id)
{
        size_t len = id ? strlen(id) : 0;

        if (len == 0 || len > 128 || id[0] == '.' || id[0] == '-' || id[0] == '_' ||
            strstr(id, ".."))
                return false;
        return strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
               len;
}

const Pb__Workload *engine_read_definition(struct arena *arena, const Pb__PlanEntry *p)
{
        ProtobufCMessage *m = NULL;
        struct err err;

        if (!p->workload.len || pb_unpack(&pb__workload__descriptor, p->workload.data,
                                          p->workload.len, arena, &m, &err) < 0)
                return NULL;
        return (const Pb__Workload *)m;
}

void engine_take_definition(struct engine *e, struct unit *u, const Pb__PlanEntry *p,
                            const Pb__Workload *w)
{
        int64_t grace_s = w->stop_grace_seconds > 0 ? w->stop_grace_seconds : DEFAULT_GRACE_SECONDS;

        mem_free(u->workload);
        u->workload_len = p->workload.len;
        u->workload = mem_dup(p->workload.data, p->workload.len);
        u->warrant_len = p->warrant.len <= sizeof(u->warrant) ? p->warrant.len : 0;
        if (u->warrant_len)
                memcpy(u->warrant, p->warrant.data, u->warrant_len);
        unit_set_string(&u->revision, w->revision_id);
        u->type = w->type;
        engine_lease_count(e, u, w->exclusive == PB__EXCLUSIVE__E__movable);
        u->grace_ms = (grace_s > MAX_GRACE_SECONDS ? MAX_GRACE_SECONDS : grace_s) * 1000;
}

/* desired Deleted. */
static void accept_removal(struct engine *e, struct unit *u, struct unit_token token, bool whole)
{
        if (u->desired != PB__DESIRED_STATE__E__Deleted || unit_token_cmp(token, u->token) != 0) {
                u->desired = PB__DESIRED_STATE__E__Deleted;
                u->token = token;
                engine_mark_dirty(e, u);
        }
        u->confirmed = true;
        u->queued = false;
        if (whole && !u->gates) {
                u->gates = true;
                e->n_gating++;
        }
}

/* What the plan brings is what is here already, byte for byte. */
static bool is_kept(const struct unit *u, const Pb__PlanEntry *p)
{
        return u->workload_len == p->workload.len &&
               memcmp(u->workload, p->workload.data, u->workload_len) == 0 &&
               u->warrant_len == p->warrant.len &&
               (!u->warrant_len || memcmp(u->warrant, p->warrant.data, u->warrant_len) == 0);
}

/* desired Running or Stopped. w: the definition that came, NULL if none did. */
static void accept_wish(struct engine *e, struct unit *u, struct unit_token token,
                        const Pb__PlanEntry *p, const Pb__Workload *w)
{
        const char *revision = w ? w->revision_id : u->revision;
        bool same = unit_token_cmp(token, u->token) == 0 && str_eq(revision, u->revision) &&
                    p->desired_state == u->desired;

        u->confirmed = true;
        if (same && u->workload) {                           /* (3) */
                if (w && p->warrant.len && !is_kept(u, p)) { /* (14) */
                        engine_take_definition(e, u, p, w);
                        engine_mark_dirty(e, u);
                }
                return;
        }
        u->token = token;
        u->desired = p->desired_state;
        u->warrant_len = 0; /* it speaks of another token */
        if (w)
                engine_take_definition(e, u, p, w);
        engine_mark_dirty(e, u);
        if (u->desired == PB__DESIRED_STATE__E__Running) {
                if (unit_was_launched(u)) {
                        engine_mark_report(e, u);
                        return; /* it ended or runs: what is reported stands */
                }
                u->resumable = u->suspended = false;
                unit_clear_exit(u);
                unit_set_state(e, u, PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none, NULL);
        } else {
                engine_mark_report(e, u);
                u->queued = false;
                if (!unit_in_runtime(u) && (u->state == PB__ACTUAL_STATE__E__Unknown ||
                                            u->state == PB__ACTUAL_STATE__E__Pending))
                        unit_set_state(e, u, PB__ACTUAL_STATE__E__Stopped,
                                       PB__REASON__E__stopped_by_user, NULL);
                u->resumable = u->suspended = false;
        }
}

static void refuse(struct engine *e, const Pb__PlanEntry *p, const Pb__Workload *w,
                   struct unit_token token, const char *why)
{
        engine_notice(e, p->unit_id, token, w ? w->revision_id : NULL, PB__ACTUAL_STATE__E__Failed,
                      PB__REASON__E__start_failed, why);
}

/* Why a plan's entry cannot be taken, or NULL. */
static const char *why_not(const struct engine *e, const struct unit *u, const Pb__PlanEntry *p,
                           const Pb__Workload *w)
{
        if (p->desired_state == PB__DESIRED_STATE__E__Deleted)
                return NULL;
        if (p->desired_state != PB__DESIRED_STATE__E__Running &&
            p->desired_state != PB__DESIRED_STATE__E__Stopped)
                return "the plan names no desired state that this agent knows";
        if (p->workload.len && !w)
                return "the plan carries a definition that this agent cannot read";
        if (!w && (!u || !u->workload))
                return "the plan carries no definition of this unit";
        return u || e->n_units < e->max_units ? NULL
                                              : fmt("the agent already holds %u units", e->n_units);
}

static void take_unit(struct engine *e, const Pb__PlanEntry *p, const Pb__Workload *w, bool whole,
                      int64_t now_ms)
{
        struct unit_token token = p->token ? (struct unit_token){ p->token->epoch, p->token->seq }
                                           : (struct unit_token){ 0, 0 };
        bool removal = p->desired_state == PB__DESIRED_STATE__E__Deleted;
        struct unit *u;
        const char *why;

        if (!engine_id_is_safe(p->unit_id)) {
                if (!str_empty(p->unit_id))
                        refuse(e, p, w, token, "the workload's id cannot be used as a file name");
                return;
        }
        u = engine_find(e, p->unit_id);
        if (!u && removal) {
                engine_notice(e, p->unit_id, token, NULL, PB__ACTUAL_STATE__E__Missing,
                              PB__REASON__E__deleted, NULL);
                return;
        }
        if (u && unit_token_cmp(token, u->token) < 0 && !MUTANT(fencing_removed)) {
                engine_mark_report(e, u); /* (2) */
                return;
        }
        if (u && !removal && u->desired == PB__DESIRED_STATE__E__Deleted &&
            unit_token_cmp(token, u->token) == 0) {
                engine_mark_report(e, u); /* what was deleted comes back with a larger token only */
                return;
        }
        why = why_not(e, u, p, w);
        if (why) {
                refuse(e, p, w, token, why);
                return;
        }
        if (!u)
                u = engine_unit_new(e, p->unit_id);
        if (removal)
                accept_removal(e, u, token, whole);
        else
                accept_wish(e, u, token, p, w);
        engine_settle(e, u, now_ms);
}

static void apply_unit(struct engine *e, const Pb__PlanEntry *p, bool whole, int64_t now_ms)
{
        struct arena arena = ARENA_INIT;

        take_unit(e, p, engine_read_definition(&arena, p), whole, now_ms);
        arena_fini(&arena);
}

void engine_drop_collected(struct engine *e)
{
        for (size_t i = 0; i < e->collected.len; i++)
                mem_free(e->collected.at[i].data);
        array_clear(&e->collected);
        e->collected_bytes = 0;
        e->collecting = false;
}

static void want_close(struct engine *e, const char *reason, int64_t retry_ms)
{
        unit_set_text(&e->close_reason, reason, 1024);
        e->close_retry_ms = retry_ms;
        e->welcome = e->planned = false;
        engine_drop_collected(e);
}

static void collect(struct engine *e, const Pb__Plan *plan)
{
        for (size_t i = 0; i < plan->n_units; i++) {
                size_t len = pb__plan_entry__get_packed_size(plan->units[i]);
                struct packed *p;

                if (e->collected.len >= (size_t)e->max_units * 4 ||
                    e->collected_bytes + len > COLLECT_MAX_BYTES) {
                        want_close(e, "the server's plan is larger than this agent can take",
                                   ENGINE_SLOW_RETRY_MS);
                        return;
                }
                p = array_push(&e->collected);
                p->len = len;
                p->data = mem_must(len ? len : 1);
                pb__plan_entry__pack(plan->units[i], p->data);
                e->collected_bytes += len;
        }
}

static void move_cursor(struct engine *e, struct unit_token cursor)
{
        if (unit_token_cmp(cursor, e->cursor) <= 0)
                return;
        e->cursor = cursor;
        e->agent_dirty = true;
}

static void apply_whole(struct engine *e, int64_t now_ms)
{
        move_cursor(e, e->collecting_cursor);
        for (size_t i = 0; i < e->collected.len; i++) {
                Pb__PlanEntry *p =
                    pb__plan_entry__unpack(NULL, e->collected.at[i].len, e->collected.at[i].data);

                if (!p)
                        continue; /* we packed it ourselves */
                apply_unit(e, p, true, now_ms);
                pb__plan_entry__free_unpacked(p, NULL);
        }
        engine_drop_collected(e);
        e->planned = true;
}

static void on_plan(struct engine *e, const Pb__Plan *plan, int64_t now_ms)
{
        struct unit_token cursor =
            plan->cursor ? (struct unit_token){ plan->cursor->epoch, plan->cursor->seq }
                         : (struct unit_token){ 0, 0 };

        if (!e->welcome || e->suspending)
                return;
        if (plan->complete) {
                engine_drop_collected(e);
                e->collecting = true;
                e->collecting_cursor = cursor;
        }
        if (e->collecting) {
                if (unit_token_cmp(cursor, e->collecting_cursor) > 0)
                        e->collecting_cursor = cursor;
                collect(e, plan);
                if (!e->collecting || !plan->last)
                        return;
                if (unit_token_cmp(e->collecting_cursor, e->cursor) < 0 &&
                    !MUTANT(stale_plan_accepted)) {
                        engine_drop_collected(e); /* (1) */
                        e->plans_ignored++;
                        return;
                }
                apply_whole(e, now_ms);
        } else {
                if (unit_token_cmp(cursor, e->cursor) < 0 && !MUTANT(stale_plan_accepted)) {
                        e->plans_ignored++;
                        return; /* (1) */
                }
                move_cursor(e, cursor);
                e->planned = true;
                for (size_t i = 0; i < plan->n_units; i++)
                        apply_unit(e, plan->units[i], false, now_ms);
        }
        engine_pump_starts(e, now_ms);
}

/* ---- the stream ---- */

void engine_connected(struct engine *e, int64_t now_ms)
{
        engine_disconnected(e, now_ms);
        e->connected = true;
        e->hello_due = true;
}

void engine_forget_notices(struct engine *e)
{
        for (size_t i = 0; i < e->notices.len; i++) {
                mem_free(e->notices.at[i].id);
                mem_free(e->notices.at[i].revision);
                mem_free(e->notices.at[i].message);
        }
        array_clear(&e->notices);
}

void engine_forget_questions(struct engine *e)
{
        for (size_t i = 0; i < e->describe.len; i++)
                mem_free(e->describe.at[i]);
        array_clear(&e->describe);
}

void engine_disconnected(struct engine *e, int64_t now_ms)
{
        if (!e->connected)
                return;
        if (e->welcome)
                e->away_since_ms = now_ms;
        e->connected = e->welcome = e->planned = false;
        e->hello_due = e->beat_due = e->list_due = false;
        engine_drop_collected(e);
        engine_forget_notices(e);
        engine_forget_questions(e);
        mem_free(e->close_reason);
        e->close_reason = NULL;
}

/* What waits to start waits for the word of this stream's plan: the one that named it may be long
 * out of date. */
static void ask_again(struct engine *e)
{
        for (size_t i = 0; i < e->units.len; i++)
                if (e->units.at[i])
                        e->units.at[i]->confirmed = e->units.at[i]->queued = false;
        array_clear(&e->start_queue);
        e->start_head = 0;
}

static int64_t beat_wait_ms(int64_t asked)
{
        return asked < HEARTBEAT_MIN_MS   ? HEARTBEAT_MIN_MS
               : asked > HEARTBEAT_MAX_MS ? HEARTBEAT_MAX_MS
                                          : asked;
}

static void on_welcome(struct engine *e, const Pb__Welcome *w, int64_t now_ms)
{
        if (!w->accepted) {
                want_close(e,
                           fmt("the server refused this agent: %s%s%s",
                               str_empty(w->reason) ? "no reason given" : w->reason,
                               str_empty(w->hint) ? "" : "; ", str_empty(w->hint) ? "" : w->hint),
                           str_empty(e->cluster_id) || str_eq(e->cluster_id, w->cluster_id)
                               ? ENGINE_SLOW_RETRY_MS
                               : ENGINE_FOREIGN_RETRY_MS);
                return;
        }
        /* (11) */
        if (w->adopt && !str_empty(w->cluster_id) && !str_eq(e->cluster_id, w->cluster_id)) {
                unit_set_string(&e->cluster_id, w->cluster_id);
                e->cursor = (struct unit_token){ 0, 0 };
                e->agent_dirty = true;
        }
        if (!str_empty(e->cluster_id) && !str_eq(e->cluster_id, w->cluster_id)) {
                want_close(
                    e,
                    fmt("the server belongs to cluster %s, this agent to %s: nothing is executed",
                        str_empty(w->cluster_id) ? "(none)" : w->cluster_id, e->cluster_id),
                    ENGINE_SLOW_RETRY_MS);
                return;
        }
        if (str_empty(e->cluster_id) && !str_empty(w->cluster_id)) {
                unit_set_string(&e->cluster_id, w->cluster_id);
                e->agent_dirty = true;
        }
        e->welcome = true;
        ask_again(e);
        if (w->heartbeat_ms > 0)
                e->heartbeat_ms = beat_wait_ms(w->heartbeat_ms);
        e->next_beat_ms = now_ms + e->heartbeat_ms;
}

static void on_describe(struct engine *e, const Pb__DescribeUnits *d)
{
        for (size_t i = 0; i < d->n_unit_ids && e->describe.len < e->max_units; i++)
                *array_push(&e->describe) = mem_strdup(d->unit_ids[i]);
        e->describe_held = d->held;
}

void engine_message(struct engine *e, const Pb__ServerMessage *msg, int64_t now_ms)
{
        if (!e->connected || e->close_reason)
                return;
        if (msg->welcome)
                on_welcome(e, msg->welcome, now_ms);
        else if (msg->plan)
                on_plan(e, msg->plan, now_ms);
        else if (msg->heartbeat && e->welcome) {
                if (msg->heartbeat->next_ms > 0)
                        e->next_beat_ms = now_ms + beat_wait_ms(msg->heartbeat->next_ms);
                engine_on_ack(e, msg->heartbeat, now_ms);
        } else if (msg->list && e->welcome)
                e->list_due = true;
        else if (msg->describe && e->welcome)
                on_describe(e, msg->describe);
}

bool engine_wants_close(const struct engine *e, const char **ret_reason, int64_t *ret_retry_ms)
{
        if (!e->close_reason)
                return false;
        *ret_reason = e->close_reason;
        *ret_retry_ms = e->close_retry_ms;
        return true;
}
