/* core/workload_ask.c: what users ask of a workload: apply, delete, stop and start, retry; each
 * becomes events, or a refusal that changes nothing. */
#include "base/mutant.h"
#include "core/definitions.h"
#include "core/fence.h"
#include "core/orders.h"
#include "core/policy.h"
#include "core/quota.h"
#include "core/read.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include "model/canon.h"
#include "model/pb.h"
#include "model/validate.h"
#include <string.h>

void reply_workload(struct core *c, struct unit_ix ix, bool created)
{
        if (c->many) {
                many_applied(c, unit_at(c, ix), created);
                return;
        }
        if (!c->in->reply)
                return;
        effect_add(c, EFFECT_BEAT, 0, 0, NULL, 0); /* memory */
        c->out.effects.len--;
        size_t len;
        void *data = workload_record(c, unit_at(c, ix), true, c->out.memory, &len);
        reply_bytes(c, &pb__workload__descriptor, data, len, created);
}

static int conflict(struct core *c, const char *msg, const char *detail, const char *hint)
{
        struct err err;
        err_set(&err, ERR_CONFLICT, .msg = msg, .detail = detail, .hint = hint);
        reply_error(c, &err);
        return -1;
}

static int check_version(struct core *c, const struct unit *w, uint64_t if_match)
{
        if (!if_match || if_match == w->seq || MUTANT(if_match_ignored))
                return 0;
        return conflict(c, "it was changed by somebody else meanwhile",
                        fmt("%s: version %llu was asked for, it is at %llu", w->id,
                            (unsigned long long)if_match, (unsigned long long)w->seq),
                        "read it again and repeat the change");
}

struct unit_ix to_change(struct core *c, const char *id, uint64_t if_match, uint64_t index)
{
        struct unit_ix ix;
        struct err err;
        if (workload_lookup(c, id, &ix, &err) < 0) {
                reply_error(c, &err);
                return UNIT_NONE;
        }
        return check_version(c, unit_at(c, ix), if_match) < 0 || check_index(c, index) < 0
                   ? UNIT_NONE
                   : ix;
}

static bool same_policy(const struct unit *w, const Pb__Retry *r)
{
        return !r || (w->max_attempts == r->max_attempts && w->base_seconds == r->base_seconds &&
                      w->cap_seconds == r->cap_seconds);
}

static bool same_definition(struct core *c, const struct unit *w, const Pb__Workload *asked)
{
        Pb__Workload view;
        definition_view(asked, &view);
        const struct definition *d = definition_of(c, w);
        size_t len;
        void *data = pb_pack_arena(&c->step, &view.base, &len);
        if (len != d->len || !str_eq(w->revision, asked->revision_id) ||
            !same_policy(w, asked->retry))
                return false;
        return memcmp(data, d->data, len) == 0;
}

/* What a new start would be needed for: everything but what placement and people look at. */
static void without_labels(Pb__Workload *view)
{
        view->n_labels = view->n_annotations = view->n_node_selector = view->n_tolerations = 0;
        view->n_spread = view->n_affinity = view->n_anti_affinity = 0;
        view->priority = 0;
        view->strategy = PB__STRATEGY__E__unset;
}

/* The change needs no new start, and no revision of its own was given to it. */
static bool only_relabels(struct core *c, const struct unit *w, const Pb__Workload *asked)
{
        bool computed =
            revision_is_computed(asked->revision_id) && revision_is_computed(w->revision);
        /* When it is tried again is no matter of what runs now; what has ended or waits is asked
         * for anew. */
        bool ended = unit_is_finished(w) || w->phase == PB__PHASE__E__RetryPending;
        if ((ended && !same_policy(w, asked->retry)) ||
            (!computed && !str_eq(w->revision, asked->revision_id)))
                return false;
        const struct definition *d = definition_of(c, w);
        struct arena_allocator alloc = arena_allocator(&c->step);
        Pb__Workload *mine = pb__workload__unpack((ProtobufCAllocator *)&alloc, d->len, d->data),
                     view;
        must(mine, "X3: a definition that was packed can be unpacked");
        definition_view(asked, &view);
        without_labels(&view);
        without_labels(mine);
        size_t len, mine_len;
        void *data = pb_pack_arena(&c->step, &view.base, &len),
             *mine_data = pb_pack_arena(&c->step, &mine->base, &mine_len);
        return len == mine_len && memcmp(data, mine_data, len) == 0;
}

/* What was applied before there were default resources has none. The same without them once more is
 * the same, and new labels are new labels: asked is then as it was applied. With any other change
 * the default comes. */
static void keep_resources(struct core *c, const struct unit *w, Pb__Workload *asked)
{
        if (!asked->default_resources ||
            !amounts_equal(class_of(c, w)->need, (struct amounts){ 0 }))
                return;
        Pb__Workload before = *asked;
        char revision[REVISION_LEN + 1];
        before.resources = (Pb__Resources *)pb_new(&c->step, &pb__resources__descriptor);
        if (revision_is_computed(asked->revision_id))
                before.revision_id = arena_strdup(&c->step, workload_revision(&before, revision));
        if (same_definition(c, w, &before) || only_relabels(c, w, &before))
                *asked = before;
}

static void emit_definition(struct core *c, Pb__EventType__E type, const Pb__Workload *asked,
                            const char *revision, const char *action)
{
        if (asked->exclusive)
                fencing_needed(c);
        Pb__Workload view;
        definition_view(asked, &view);
        view.id = asked->id;
        view.revision_id = (char *)revision;
        view.desired_state = asked->desired_state;
        Pb__Retry retry = PB__RETRY__INIT;
        if (asked->retry) {
                retry.max_attempts = asked->retry->max_attempts;
                retry.base_seconds = asked->retry->base_seconds;
                retry.cap_seconds = asked->retry->cap_seconds;
                view.retry = &retry;
        }
        Pb__Event e = PB__EVENT__INIT;
        e.type = type;
        e.workload_id = asked->id;
        e.action = (char *)action;
        e.workload = &view;
        emit(c, &e);
}

/* The amounts of a new definition, on the node where the old one already holds its own. */
static bool fits_in_place(const struct core *c, const struct unit *w, const Pb__Workload *asked)
{
        const struct node *n = node_get(c, w->node);
        if (!(n->type_bits & (1u << asked->type)))
                return false;
        const struct class as = { .exclusive = (uint8_t)asked->exclusive,
                                  .type_bit = 1u << asked->type };
        if (asked->exclusive && !node_can_hold(n, &as))
                return false;
        for (size_t i = 0; i < asked->n_node_selector; i++)
                if (!str_eq(label_get(n->labels, n->n_labels, asked->node_selector[i]->key),
                            asked->node_selector[i]->value))
                        return false;
        if (!ports_fit_in_place(c, w, asked))
                return false;
        struct amounts left = amounts_add(ledger_free(&n->ledger), w->held);
        return amounts_fit(amounts_of(asked->resources), left);
}

static void update(struct core *c, struct unit_ix ix, const Pb__Workload *asked)
{
        struct unit *w = unit_at(c, ix);
        bool in_place = node_ok(w->node) && w->holds && fits_in_place(c, w, asked);
        if (node_ok(w->node) && w->holds && !in_place)
                unit_leave(c, ix, PB__REASON__E__spec_changed,
                           "the new spec does not fit on its node");
        emit_definition(c, PB__EVENT_TYPE__E__WorkloadApplied, asked, asked->revision_id,
                        action_names[ACTION_UPDATED]);
        w = unit_at(c, ix);
        if (w->desired == PB__DESIRED_STATE__E__Running && node_ok(w->node) && w->holds) {
                launch(c, ix, PB__REASON__E__spec_changed, ACTION_APPLY, "new revision");
                if (unit_must_leave(c, unit_at(c, ix)))
                        unit_evict(c, ix);
        } else if (node_ok(w->node) && w->holds)
                unit_send(c, ix); /* stopped: the agent learns the new spec */
        unit_mark_dirty(c, ix);
}

/* Labels, priority, constraints: what runs goes on, also where it would not be placed now (explain
 * says so). Its revision stays that of what was started. */
static void relabel(struct core *c, struct unit_ix ix, const Pb__Workload *asked)
{
        struct unit *w = unit_at(c, ix);
        Pb__Workload view;
        size_t len;
        definition_view(asked, &view);
        const void *data = pb_pack_arena(&c->step, &view.base, &len);
        if (len == definition_of(c, w)->len && memcmp(data, definition_of(c, w)->data, len) == 0 &&
            same_policy(w, asked->retry))
                return;
        emit_definition(c, PB__EVENT_TYPE__E__WorkloadRelabelled, asked,
                        arena_strdup(&c->step, w->revision ? w->revision : ""), NULL);
        w = unit_at(c, ix);
        if (node_ok(w->node) && w->holds && w->desired == PB__DESIRED_STATE__E__Running &&
            unit_must_leave(c, w))
                unit_evict(c, ix); /* it looks for a node as what it is now */
        else
                unit_mark_dirty(c, ix);
}

static int apply_is_allowed(struct core *c, const Pb__ApplyWorkloadRequest *req,
                            const Pb__Workload *asked, struct unit_ix ix)
{
        struct err err;
        uint64_t if_match = req->if_match ? req->if_match : asked->resource_version;
        if (!unit_ok(ix)) {
                if (req->update_only || if_match) {
                        err_set(&err, ERR_NOT_FOUND,
                                .msg = fmt("there is no workload %s", asked->id),
                                .hint = "berth get workloads lists them");
                        reply_error(c, &err);
                        return -1;
                }
                if (c->n_workloads >= c->opt.max_workloads) {
                        err_set(&err, ERR_LIMIT,
                                .msg = "the cluster holds as many workloads as it may",
                                .detail = fmt("%u", c->n_workloads),
                                .hint = "delete finished ones, or give jobs a ttl_seconds");
                        reply_error(c, &err);
                        return -1;
                }
                return 0;
        }
        struct unit *w = unit_at(c, ix);
        if (w->desired == PB__DESIRED_STATE__E__Deleted)
                return conflict(c, fmt("workload %s is being deleted", w->id), NULL,
                                "wait until it is gone, then apply it again");
        if (check_version(c, w, if_match) < 0)
                return -1;
        if (req->revision_fixes && str_eq(w->revision, asked->revision_id) &&
            !same_definition(c, w, asked))
                return conflict(
                    c,
                    fmt("revision %.64s of workload %s is another definition", w->revision, w->id),
                    NULL, "give the new definition a revision_id of its own, or none");
        if (req->create_only && !same_definition(c, w, asked))
                return conflict(c,
                                fmt("workload %s exists already, with another definition", w->id),
                                NULL, "change it with PUT (berth apply), or choose another id");
        return 0;
}

void decide_apply(struct core *c, const Pb__ApplyWorkloadRequest *req)
{
        struct unit_ix ix = workload_find(c, req->workload->id);
        Pb__Workload decided = *req->workload; /* with what is ours to say */
        const Pb__Workload *asked = &decided;
        if (asked->desired_state == PB__DESIRED_STATE__E__Deleted) {
                Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
                ref.id = asked->id;
                ref.if_match = req->if_match ? req->if_match : asked->resource_version;
                ref.check_index = req->check_index;
                decide_delete(c, &ref);
                return;
        }
        if (unit_ok(ix)) { /* the same once more, or new labels: as it is on record */
                decided.confine = definition_of(c, unit_at(c, ix))->confine;
                keep_resources(c, unit_at(c, ix), &decided);
        }
        if (check_index(c, req->check_index) < 0 || apply_is_allowed(c, req, asked, ix) < 0)
                return;
        bool same = unit_ok(ix) && same_definition(c, unit_at(c, ix), asked);
        bool relabels = unit_ok(ix) && !same && only_relabels(c, unit_at(c, ix), asked);
        if (!same && !relabels) {
                if (!policy_allows_apply(c, asked))
                        return;
                decided.confine = policy_confines_apply(c, asked);
        }
        if (!same && quota_allows_apply(c, ix, asked) < 0)
                return;
        if (!unit_ok(ix)) {
                emit_definition(c, PB__EVENT_TYPE__E__WorkloadApplied, asked, asked->revision_id,
                                action_names[ACTION_CREATED]);
                ix = workload_find(c, asked->id);
                if (unit_at(c, ix)->desired == PB__DESIRED_STATE__E__Running)
                        unit_look(c, ix); /* at once, in the same decision */
                reply_workload(c, ix, true);
                return;
        }
        if (relabels)
                relabel(c, ix, asked);
        else if (!same)
                update(c, ix, asked);
        if (asked->desired_state != PB__DESIRED_STATE__E__unset &&
            asked->desired_state != unit_at(c, ix)->desired) {
                Pb__SetDesiredRequest d = PB__SET_DESIRED_REQUEST__INIT;
                d.id = asked->id;
                d.desired_state = asked->desired_state;
                decide_desired(c, &d);
                return;
        }
        reply_workload(c, ix, false);
}

void decide_delete(struct core *c, const Pb__WorkloadRef *req)
{
        struct unit_ix ix = to_change(c, req->id, req->if_match, req->check_index);
        if (!unit_ok(ix))
                return;
        struct unit *w = unit_at(c, ix);
        if (w->desired != PB__DESIRED_STATE__E__Deleted) {
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__WorkloadDeleting;
                e.workload_id = w->id;
                e.node_id = node_ok(w->node) ? node_at(c, w->node)->id : "";
                e.action = (char *)action_names[ACTION_DELETE];
                e.reason = PB__REASON__E__deleted;
                emit(c, &e);
                c->stats.actions[3]++;
                unit_send(c, ix);
        }
        reply_workload(c, ix, false);
        unit_mark_dirty(c, ix);
}

void decide_desired(struct core *c, const Pb__SetDesiredRequest *req)
{
        struct unit_ix ix = to_change(c, req->id, req->if_match, 0);
        if (!unit_ok(ix))
                return;
        struct unit *w = unit_at(c, ix);
        if (w->desired == PB__DESIRED_STATE__E__Deleted) {
                conflict(c, fmt("workload %s is being deleted", w->id), NULL,
                         "apply it again when it is gone");
                return;
        }
        if (w->phase == PB__PHASE__E__Completed &&
            req->desired_state == PB__DESIRED_STATE__E__Stopped) {
                conflict(c, fmt("workload %s has completed already", w->id), NULL,
                         "delete it, or retry it to run it again");
                return;
        }
        if (req->desired_state == PB__DESIRED_STATE__E__Running &&
            w->desired != PB__DESIRED_STATE__E__Running && quota_allows_run(c, ix) < 0)
                return;
        if (w->desired != req->desired_state) {
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__WorkloadDesired;
                e.workload_id = w->id;
                e.node_id = node_ok(w->node) ? node_at(c, w->node)->id : "";
                e.desired_state = req->desired_state;
                e.reason = req->desired_state == PB__DESIRED_STATE__E__Stopped
                               ? PB__REASON__E__stopped_by_user
                               : PB__REASON__E__none;
                /* Why it waited, or was to be tried again, is no longer so. */
                Pb__WorkloadStatus nothing = PB__WORKLOAD_STATUS__INIT;
                bool waits =
                    w->phase == PB__PHASE__E__Pending || w->phase == PB__PHASE__E__RetryPending;
                if (req->desired_state == PB__DESIRED_STATE__E__Stopped && waits)
                        e.status = &nothing;
                emit(c, &e);
                w = unit_at(c, ix);
                if (req->desired_state == PB__DESIRED_STATE__E__Running && node_ok(w->node) &&
                    w->holds && !unit_must_leave(c, w))
                        launch(c, ix, PB__REASON__E__none, ACTION_APPLY, "started by a user");
                else if (req->desired_state == PB__DESIRED_STATE__E__Stopped && node_ok(w->node)) {
                        c->stats.actions[2]++;
                        unit_send(c, ix);
                }
                unit_mark_dirty(c, ix);
        }
        reply_workload(c, ix, false);
}

void decide_retry(struct core *c, const Pb__WorkloadRef *req)
{
        struct unit_ix ix = to_change(c, req->id, req->if_match, req->check_index);
        if (!unit_ok(ix))
                return;
        struct unit *w = unit_at(c, ix);
        if (w->desired != PB__DESIRED_STATE__E__Running) {
                conflict(c, fmt("workload %s is not meant to run", w->id), NULL,
                         "start it with berth start");
                return;
        }
        if (quota_allows_run(c, ix) < 0)
                return;
        if (w->phase == PB__PHASE__E__RetryPending || unit_is_finished(w)) {
                Pb__Retry retry = PB__RETRY__INIT; /* attempts: 0 */
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__RetryTriggered;
                e.workload_id = w->id;
                e.action = (char *)action_names[ACTION_RETRY];
                e.message = "by a user";
                e.retry = &retry;
                c->stats.retries++;
                emit(c, &e);
                unit_look(c, ix);
        }
        reply_workload(c, ix, false);
}
