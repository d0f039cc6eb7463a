/* core/workload_record.c: a workload's record, the views beside it, and how it is shown.
 *
 * live = true gives the API's view, which adds what is never stored: health, progress, phases that
 * follow from a silent node.
 */
#include "base/mutant.h"
#include "core/definitions.h"
#include "core/node.h"
#include "core/notice.h"
#include "core/quota.h"
#include "core/read.h"
#include "core/retry.h"
#include "core/rules.h"
#include "core/state.h"
#include "core/step.h"
#include "core/tombstone.h"
#include "core/workload.h"
#include "model/json.h"
#include "model/pb.h"
#include <string.h>

void save_workload(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        rules_workload_changed(c, ix);
        if (!c->started) /* somebody else wrote this, and its views */
                w->shown = w->shown_retries = VIEW_UNKNOWN;
        if (w->unsaved || !c->started)
                return;
        /* with its views */
        size_t ops = c->opt.index_records ? 3 + (w->shown_retries != VIEW_NONE) : 1;
        size_t bytes = w->definition == NONE ? 0 : c->definitions.at[w->definition].len;
        bytes +=
            text_bytes(w->failure) * (c->opt.index_records ? 2 : 1) + text_bytes(w->last_error);
        record_changed(c, RECORD_WORKLOAD, ix.v, ops, bytes);
}

void views_of_new_workload(struct core *c, struct unit_ix ix)
{
        /* else one of this name may be going away in the same batch */
        if (c->started && c->out.removed.len == 0)
                unit_at(c, ix)->shown = unit_at(c, ix)->shown_retries = VIEW_NONE;
}

Pb__Phase__E phase_shown(const struct core *c, const struct unit *w)
{
        bool on_node = w->phase == PB__PHASE__E__Running || w->phase == PB__PHASE__E__Scheduled ||
                       w->phase == PB__PHASE__E__Updating;
        if (on_node && node_ok(w->node) &&
            node_get(c, w->node)->status == PB__NODE_STATUS__E__NotReady)
                return PB__PHASE__E__Unknown;
        return w->up && w->phase == PB__PHASE__E__Scheduled ? PB__PHASE__E__Running
                                                            : (Pb__Phase__E)w->phase;
}

void *workload_record(struct core *c, const struct unit *w, bool live, struct arena *a,
                      size_t *ret_len)
{
        const struct definition *d = definition_of(c, w);
        Pb__IntValue exit_code = PB__INT_VALUE__INIT, sig = PB__INT_VALUE__INIT;
        Pb__WorkloadStatus status = PB__WORKLOAD_STATUS__INIT;
        Pb__Metadata meta = PB__METADATA__INIT;
        Pb__Retry retry = PB__RETRY__INIT;
        Pb__Placement placement = PB__PLACEMENT__INIT;
        Pb__Token token = PB__TOKEN__INIT, origin = PB__TOKEN__INIT;
        Pb__Workload r = PB__WORKLOAD__INIT;
        Pb__Reason__E now;
        r.id = w->id;
        r.revision_id = w->revision;
        r.desired_state = w->desired;
        r.assigned_node = node_ok(w->node) ? node_at(c, w->node)->id : w->lost_node;
        retry.attempts = MUTANT(retry_counter_not_stored) && !live ? 0 : w->attempts;
        retry.max_attempts = w->max_attempts;
        retry.next_retry_at = w->next_retry_at;
        retry.base_seconds = w->base_seconds;
        retry.cap_seconds = w->cap_seconds;
        r.retry = &retry;
        status.actual_state = w->actual;
        status.last_updated = w->last_updated;
        status.failure_reason = w->failure;
        status.phase = w->phase;
        status.reason = w->reason;
        if (w->has_exit) {
                exit_code.value = w->exit_code;
                status.exit_code = &exit_code;
        }
        if (w->has_signal) {
                sig.value = w->signal;
                status.signal = &sig;
        }
        status.started_at = w->started_at;
        status.finished_at = w->finished_at;
        status.restarts = w->restarts;
        status.observed_revision = w->observed;
        if (live) {
                status.health = w->health == 1 ? "healthy" : w->health == 2 ? "unhealthy" : "";
                status.progress = w->progress ? w->progress : "";
                status.phase = phase_shown(c, w);
                if (status.phase == PB__PHASE__E__Unknown)
                        status.actual_state = PB__ACTUAL_STATE__E__Unknown;
                fence_shown(c, w, a, &status);
                if (w->waiting && w->over_quota)
                        status.reason = PB__REASON__E__quota_exceeded;
                else if (w->waiting && (now = why_it_waits(c, w)) && now != w->reason) {
                        status.reason = now;
                        if (!node_ok(w->node) && w->failure &&
                            str_starts(w->failure, "no suitable node"))
                                status.failure_reason = arena_printf(
                                    a, "no suitable node available (now mostly %s)",
                                    json_enum_name(&pb__reason__e__descriptor, (int)now));
                }
        }
        r.status = &status;
        meta.created_at = w->created_at;
        meta.updated_at = w->updated_at;
        meta.last_action = (char *)action_names[w->action];
        meta.last_action_at = w->last_action_at;
        meta.last_launch_at = w->last_launch_at;
        meta.last_error = w->last_error;
        if (w->origin_seq && !live) {
                origin.epoch = w->origin_epoch;
                origin.seq = w->origin_seq;
                meta.origin = &origin;
        }
        r.metadata = &meta;
        if (w->placed_at) {
                placement.node_id = r.assigned_node;
                placement.reason = w->placed_reason;
                placement.score = w->score;
                placement.candidates = w->candidates;
                placement.placed_at = w->placed_at;
                placement.previous_node = w->previous_node;
                placement.released = node_ok(w->node) && !w->holds;
                placement.forgotten = w->lost_node != NULL;
                placement.preempted_at = w->preempted_at;
                placement.unleased = w->unleased;
                r.placement = &placement;
        }
        if (w->token_seq) {
                token.epoch = w->token_epoch;
                token.seq = w->token_seq;
                r.token = &token;
        }
        r.resource_version = w->seq;
        r.told_version = w->told;
        return pb_pack_before(a, &r.base, d->data, d->len, ret_len);
}

/* ---- views ---- */

static void put_message(struct store_record **at, struct arena *a, const char *key,
                        const ProtobufCMessage *m)
{
        size_t len;
        void *data = pb_pack_arena(a, m, &len);
        record_put(at, key, data, len);
}

/* The views that people read: derived, so never read back. What this process has written of one, or
 * knows not to be there, is not written again. */
static uint64_t assignment_view(struct core *c, const struct unit *w)
{
        if (!node_ok(w->node))
                return VIEW_NONE;
        const char *node = node_at(c, w->node)->id;
        uint64_t h = hash64_mix(hash64_mix(hash64(node, strlen(node)), (uint64_t)w->score),
                                (uint64_t)w->placed_at);
        return h < VIEW_THERE ? VIEW_THERE : h;
}

/* The score is in millionths. One for each assignment, so without printf; written from the end to
 * the beginning. */
static char *score_text(struct arena *a, int64_t score)
{
        static const char words[] = "selected by lowest utilization score ";
        char buf[64 + sizeof(words)], *p = buf + sizeof(buf);
        uint64_t left = score < 0 ? 0 : (uint64_t)score;
        *--p = '\0';
        for (int n = 0; n < 7 || left; n++, left /= 10) { /* at least one digit before the point */
                if (n == 6)
                        *--p = '.';
                *--p = (char)('0' + left % 10);
        }
        p -= sizeof(words) - 1;
        memcpy(p, words, sizeof(words) - 1);
        return arena_strdup(a, p);
}

static void put_assignment(struct core *c, struct store_record **at, struct arena *a,
                           struct unit *w)
{
        uint64_t view = assignment_view(c, w);
        if (view == w->shown)
                return;
        w->shown = view;
        const char *key = record_key(a, "/assignments/", w->id);
        if (view == VIEW_NONE) {
                record_put(at, key, NULL, 0);
                return;
        }
        Pb__Assignment s = PB__ASSIGNMENT__INIT;
        s.workload_id = w->id;
        s.node_id = node_at(c, w->node)->id;
        s.reason = score_text(a, w->score);
        s.created_at = w->placed_at;
        put_message(at, a, key, &s.base);
}

static void put_views(struct core *c, const char *id, uint32_t slot, struct arena *a,
                      struct store_record **at)
{
        if (slot == NONE) {
                record_put(at, record_key(a, "/assignments/", id), NULL, 0);
                record_put(at, record_key(a, "/retries/", id), NULL, 0);
                record_put(at, record_key(a, "/reconciliation/", id), NULL, 0);
                return;
        }
        struct unit *w = &c->units.at[slot];
        put_assignment(c, at, a, w);
        if (w->attempts) {
                Pb__Retry r = PB__RETRY__INIT;
                r.attempts = w->attempts;
                r.max_attempts = w->max_attempts;
                r.next_retry_at = w->next_retry_at;
                put_message(at, a, record_key(a, "/retries/", w->id), &r.base);
        } else if (w->shown_retries != VIEW_NONE)
                record_put(at, record_key(a, "/retries/", w->id), NULL, 0);
        w->shown_retries = w->attempts ? VIEW_THERE : VIEW_NONE;
        Pb__Reconciliation r = PB__RECONCILIATION__INIT;
        r.workload_id = w->id;
        r.action = (char *)action_names[w->action];
        r.success = str_empty(w->failure);
        r.reason = w->failure;
        r.attempted_at = w->last_action_at;
        put_message(at, a, record_key(a, "/reconciliation/", w->id), &r.base);
}

/* ---- reading ---- */

static void load_retry(const struct core *c, struct unit *w, const Pb__Retry *r)
{
        w->max_attempts = r && r->max_attempts > 0 ? r->max_attempts : 0;
        w->base_seconds = r && r->base_seconds > 0 ? r->base_seconds : RETRY_BASE_SECONDS;
        w->cap_seconds = r && r->cap_seconds > 0 ? r->cap_seconds : RETRY_CAP_SECONDS;
        int32_t attempts = r && r->attempts > 0 ? r->attempts : 0;
        int32_t limit = workload_retry_limit(c, w);
        w->attempts = attempts < limit ? attempts : limit; /* (R1) */
        int64_t at = r && r->next_retry_at > 0 ? r->next_retry_at : 1;
        w->next_retry_at = w->phase == PB__PHASE__E__RetryPending ? at : 0; /* (R2) */
}

static void load_workload_state(struct core *c, struct unit_ix ix, const Pb__Workload *r)
{
        struct unit *w = unit_at(c, ix);
        const Pb__WorkloadStatus *s = r->status;
        const Pb__Metadata *m = r->metadata;
        w->desired = (uint8_t)r->desired_state;
        text_set(&w->revision, r->revision_id);
        w->seq = r->resource_version;
        w->told = r->told_version;
        unit_set_phase(c, w, s->phase);
        w->actual = (uint8_t)s->actual_state;
        w->reason = (uint8_t)s->reason;
        w->last_updated = s->last_updated;
        w->started_at = s->started_at;
        w->finished_at = s->finished_at;
        w->restarts = s->restarts;
        text_set(&w->failure, s->failure_reason);
        text_set(&w->observed, s->observed_revision);
        if ((w->has_exit = s->exit_code != NULL))
                w->exit_code = (int32_t)s->exit_code->value;
        if ((w->has_signal = s->signal != NULL))
                w->signal = (int32_t)s->signal->value;
        w->created_at = m->created_at;
        w->updated_at = m->updated_at;
        w->last_action_at = m->last_action_at;
        w->last_launch_at = m->last_launch_at;
        w->action = (uint8_t)action_parse(m->last_action);
        text_set(&w->last_error, m->last_error);
        if (m->origin) {
                w->origin_epoch = m->origin->epoch;
                w->origin_seq = m->origin->seq;
        }
        load_retry(c, w, r->retry);
        if (r->placement) {
                w->placed_at = r->placement->placed_at;
                w->placed_reason = (uint8_t)r->placement->reason;
                w->score = r->placement->score;
                w->candidates = r->placement->candidates;
                w->preempted_at = r->placement->preempted_at;
                text_set(&w->previous_node, r->placement->previous_node);
                w->unleased = r->placement->unleased;
        }
        if (r->token) {
                w->token_epoch = r->token->epoch;
                w->token_seq = r->token->seq;
        }
}

static bool workload_values_are_sane(const Pb__Workload *r)
{
        const Pb__WorkloadStatus *s = r->status;
        const Pb__Metadata *m = r->metadata;
        const int64_t times[] = { s->last_updated,
                                  s->started_at,
                                  s->finished_at,
                                  m->created_at,
                                  m->updated_at,
                                  m->last_action_at,
                                  m->last_launch_at,
                                  r->retry ? r->retry->next_retry_at : 0,
                                  r->placement ? r->placement->placed_at : 0,
                                  r->placement ? r->placement->preempted_at : 0 };
        for (size_t i = 0; i < ARRAY_LEN(times); i++)
                if (!time_is_sane(times[i]))
                        return false;
        return s->restarts >= 0 && s->restarts < INT32_MAX / 2 && reason_is_sane(s->reason) &&
               (!r->placement || reason_is_sane(r->placement->reason)) &&
               s->actual_state <= PB__ACTUAL_STATE__E__Missing;
}

static const char *wrong_workload(struct core *c, const char *id, const Pb__Workload *r)
{
        if (str_empty(r->id) || !str_eq(r->id, id))
                return "its id is not that of its key";
        if (!r->status || !r->metadata || !r->desired_state || !r->type)
                return "a workload needs type, desired_state, status and metadata";
        if (unit_ok(workload_find(c, r->id)))
                return "it is there twice";
        if (r->type >= TYPES_MAX || r->desired_state > PB__DESIRED_STATE__E__Deleted ||
            !r->status->phase ||
            r->status->phase >= PB__PHASE__E__Unknown) /* which is shown, and never stored */
                return "its type, desired_state or phase is unknown to this berth";
        if (!resources_are_sane(r->resources) || r->exclusive > PB__EXCLUSIVE__E__pinned)
                return "its resources are out of range";
        if (!workload_values_are_sane(r))
                return "a time, a state or a reason is out of range";
        if ((r->desired_state == PB__DESIRED_STATE__E__Deleted) !=
            (r->status->phase == PB__PHASE__E__Deleting))
                return "what is to be deleted is Deleting";
        bool on_node = !str_empty(r->assigned_node) && !(r->placement && r->placement->forgotten);
        bool holds = on_node && !(r->placement && r->placement->released);
        bool finished =
            r->status->phase == PB__PHASE__E__Completed || r->status->phase == PB__PHASE__E__Failed;
        bool runs = r->status->phase == PB__PHASE__E__Scheduled ||
                    r->status->phase == PB__PHASE__E__Updating ||
                    r->status->phase == PB__PHASE__E__Running ||
                    r->status->phase == PB__PHASE__E__RetryPending;
        if (runs ? !holds : finished && holds)
                return "its phase and its place on a node do not go together";
        struct node_ix n = on_node ? node_find(c, r->assigned_node) : NODE_NONE;
        if (node_ok(n) && tombstone_find(c, n, r->id) != NONE)
                return "it is on a node that has yet to remove it";
        if (node_ok(n) && holds &&
            !amounts_can_add(node_get(c, n)->ledger.reserved, amounts_of(r->resources)))
                return "its resources are out of range";
        if (node_ok(n) && holds && host_port_is_taken(node_get(c, n), r))
                return "a host port of it is taken on its node";
        return NULL;
}

static const char *load(struct core *c, const char *id, const ProtobufCMessage *m)
{
        const Pb__Workload *r = (const Pb__Workload *)m;
        const char *wrong = wrong_workload(c, id, r);
        if (wrong)
                return wrong;
        struct unit_ix ix = unit_add(c, UNIT_WORKLOAD, r->id);
        unit_set_definition(c, ix, definition_intern(c, r));
        load_workload_state(c, ix, r);
        struct unit *w = unit_at(c, ix);
        if (!str_empty(r->assigned_node)) {
                if (r->placement && r->placement->forgotten)
                        text_set(&w->lost_node, r->assigned_node);
                else {
                        unit_assign(c, ix, node_get_or_add(c, r->assigned_node));
                        unit_hold(c, ix, !(r->placement && r->placement->released));
                }
        }
        usage_update(c, w);
        unit_deadline_refresh(c, ix);
        return NULL;
}

/* ---- the kind ---- */

static const char *name(const struct core *c, uint32_t slot, struct arena *a)
{
        (void)a;
        return c->units.at[slot].id;
}

static uint32_t find(const struct core *c, const char *id)
{
        return workload_find(c, id).v;
}

static void *pack(struct core *c, uint32_t slot, struct arena *a, size_t *ret_len)
{
        return workload_record(c, &c->units.at[slot], false, a, ret_len);
}

static void put_back(struct core *c, uint32_t slot)
{
        c->units.at[slot].shown = c->units.at[slot].shown_retries = VIEW_UNKNOWN;
        save_workload(c, (struct unit_ix){ slot });
}

const struct record_kind workload_records = {
        RECORD_TABLE(units, struct unit),
        .name = name,
        .find = find,
        .pack = pack,
        .load = load,
        .put_back = put_back,
        .views = put_views,
        .n_views = 3,
};
