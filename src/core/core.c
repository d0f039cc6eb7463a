/* core/core.c: the ring's inner half: a step, its events, and what leaves the core.
 *
 * A step handles its input, then whatever became due, then the bulk work that waits in dirty sets,
 * as far as one step goes. Deciding code reads the state and calls emit(); emit() gives the event
 * its sequence, packs it for the store, and applies it. Only apply_* functions change durable
 * state, and only from an event, so that folding the stored events gives the same state again.
 */
#include "core/core.h"
#include "base/commit.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "core/access.h"
#include "core/admission.h"
#include "core/adopt.h"
#include "core/claims.h"
#include "core/config.h"
#include "core/definitions.h"
#include "core/drain.h"
#include "core/event.h"
#include "core/evict.h"
#include "core/explain.h"
#include "core/extras.h"
#include "core/fence.h"
#include "core/node.h"
#include "core/notice.h"
#include "core/place.h"
#include "core/policy.h"
#include "core/preempt.h"
#include "core/quota.h"
#include "core/read.h"
#include "core/report.h"
#include "core/restore.h"
#include "core/rules.h"
#include "core/state.h"
#include "core/step.h"
#include "core/tombstone.h"
#include "core/webhook.h"
#include "core/workload.h"
#include "model/pb.h"
#include <string.h>

/* record and event changes after which a step leaves the rest for the next one */
#define STEP_OPS 512
#define DUE_PER_STEP 2000 /* deadlines of either kind that one step looks at */
/* decisions that are due, in a step whose input has filled it: otherwise those who ask without a
 * pause would keep a lost node from being noticed */
#define OWN_AT_LEAST 4

void core_options_default(struct core_options *opt)
{
        *opt = (struct core_options){
                .heartbeat_ms = 10000,
                .silence_beats = 3,
                .evict_grace_ms = 60000,
                .launch_grace_ms = 15000,
                .pass_ms = 5000,
                .fresh_ms = 600000,
                .healthy_ms = 300000,
                .brake_percent = 55,
                .evict_per_second = 20,
                .list_ms = 60000,
                .drain_at_once = 16,
                .max_batch_ops = 2048,
                .max_batch_bytes = 8u << 20,
                .max_nodes = 100000,
                .max_workloads = 2000000,
                .strategy = PB__STRATEGY__E__spread,
                .preempt_per_minute = 60,
                .preempt_grace_ms = 300000,
                .lease_grace_ms = 10000,
                .drift_percent = 1,
                .version = BERTH_VERSION,
        };
}

static struct map_key node_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->nodes.at[i].id, strlen(c->nodes.at[i].id) };
}

static struct map_key workload_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->units.at[i].id, strlen(c->units.at[i].id) };
}

static struct map_key tombstone_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->tombstones.at[i].workload_id,
                                 strlen(c->tombstones.at[i].workload_id) };
}

static struct map_key session_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ &c->nodes.at[i].session, sizeof(uint64_t) };
}

struct core *core_create(const struct core_options *opt)
{
        struct core *c = mem_must(sizeof(*c));
        c->opt = *opt;
        c->batch_ops = SIZE_MAX;
        c->version = mem_strdup(opt->version ? opt->version : "");
        c->opt.key_fingerprint = opt->key_fingerprint ? mem_strdup(opt->key_fingerprint) : NULL;
        c->warrants = warrants_create(&opt->warrants);
        map_init(&c->node_by_id, node_key, c);
        map_init(&c->unit_by_id, workload_key, c);
        order_init(&c->workloads_in_order, workload_key, c);
        map_init(&c->tombstone_by_id, tombstone_key, c);
        map_init(&c->session_nodes, session_key, c);
        definitions_init(c);
        quotas_init(c);
        counts_init(c);
        brake_init(c);
        rules_init(c);
        outbox_init(c);
        tokens_init(c);
        admissions_init(c);
        notices_init(c);
        c->waiting_first = NONE;
        c->preempt_at = INT64_MAX;
        c->fencing_since = INT64_MIN;
        c->schema = STORE_SCHEMA_FIRST;
        c->pass_next = NONE;
        c->next_pass_ms = INT64_MAX;
        return c;
}

void out_reset(struct core *c)
{
        array_clear(&c->out.events);
        array_clear(&c->out.effects);
        array_clear(&c->out.replies);
        array_clear(&c->out.removed);
        for (int k = 0; k < RECORD_KINDS; k++)
                array_clear(&c->out.changed[k]);
        c->out.expected_head = c->head;
        c->out.schema = 0;
        c->out.ops = c->out.bytes = 0;
        c->out.memory = NULL;
}

void core_destroy(struct core *c)
{
        for (uint32_t i = 0; i < c->units.len; i++)
                if (c->units.at[i].id)
                        unit_free(c, (struct unit_ix){ i });
        for (uint32_t i = 0; i < c->tombstones.len; i++)
                if (c->tombstones.at[i].workload_id)
                        tombstone_remove(c, i);
        for (uint32_t i = 0; i < c->nodes.len; i++)
                if (c->nodes.at[i].id)
                        node_free(c, (struct node_ix){ i });
        definitions_fini(c);
        notices_fini(c);
        quotas_fini(c);
        counts_fini(c);
        brake_fini(c);
        rules_fini(c);
        outbox_fini(c);
        tokens_fini(c);
        admissions_fini(c);
        for (size_t i = c->ready_done; i < c->ready.len; i++)
                core_batch_free(c->ready.at[i]);
        if (c->out.memory) {
                arena_fini(c->out.memory);
                mem_free(c->out.memory);
        }
        array_fini(&c->ready);
        array_fini(&c->out.events);
        array_fini(&c->out.effects);
        array_fini(&c->out.replies);
        array_fini(&c->out.removed);
        for (int k = 0; k < RECORD_KINDS; k++)
                array_fini(&c->out.changed[k]);
        array_fini(&c->nodes);
        array_fini(&c->units);
        array_fini(&c->tombstones);
        array_fini(&c->free_nodes);
        array_fini(&c->free_units);
        array_fini(&c->free_tombstones);
        array_fini(&c->dirty);
        array_fini(&c->evict);
        array_fini(&c->paced);
        adopt_fini(c);
        array_fini(&c->lost);
        extras_fini(c);
        holds_fini(c);
        array_fini(&c->priorities);
        array_fini(&c->drains);
        for (size_t i = 0; i < c->forgets.len; i++) {
                mem_free(c->forgets.at[i].node_id);
                mem_free(c->forgets.at[i].request_id);
                mem_free(c->forgets.at[i].actor);
        }
        array_fini(&c->forgets);
        array_fini(&c->by_rank);
        map_fini(&c->node_by_id);
        map_fini(&c->unit_by_id);
        order_fini(&c->workloads_in_order);
        map_fini(&c->tombstone_by_id);
        map_fini(&c->session_nodes);
        heap_fini(&c->unit_deadlines);
        heap_fini(&c->node_deadlines);
        place_tree_fini(&c->tree);
        arena_fini(&c->step);
        str_fini(&c->scratch);
        mem_free(c->version);
        mem_free(c->cluster_id);
        mem_free(c->key_fingerprint);
        mem_free((char *)c->opt.key_fingerprint);
        warrants_destroy(c->warrants);
        mem_free(c);
}

void text_set(char **field, const char *text)
{
        if (str_eq(*field, text))
                return;
        mem_free(*field);
        *field = str_empty(text) ? NULL : mem_strdup(text);
}

/* ---- what leaves ---- */

static struct arena *out_memory(struct core *c)
{
        if (!c->out.memory)
                c->out.memory = mem_must(sizeof(struct arena));
        return c->out.memory;
}

struct arena *reply_memory(struct core *c)
{
        return out_memory(c);
}

void effect_add(struct core *c, enum effect_kind kind, uint64_t session, int64_t value, void *data,
                size_t len)
{
        out_memory(c);
        *array_push(&c->out.effects) = (struct effect){ .kind = kind,
                                                        .session = session,
                                                        .seq = c->head,
                                                        .value = value,
                                                        .data = data,
                                                        .len = len };
}

void reply_error(struct core *c, const struct err *err)
{
        if (c->many) {
                many_failed(c, err);
                return;
        }
        if (!c->in->reply)
                return;
        *array_push(&c->out.replies) =
            (struct reply){ .ticket = c->in->reply,
                            .err = arena_dup(out_memory(c), err, sizeof(*err)) };
}

void reply_bytes(struct core *c, const ProtobufCMessageDescriptor *type, void *data, size_t len,
                 bool created)
{
        if (!c->in->reply)
                return;
        out_memory(c);
        *array_push(&c->out.replies) = (struct reply){
                .ticket = c->in->reply, .type = type, .data = data, .len = len, .created = created
        };
}

void reply_message(struct core *c, const ProtobufCMessage *msg)
{
        size_t len;
        void *data = pb_pack_arena(out_memory(c), msg, &len);
        reply_bytes(c, msg->descriptor, data, len, false);
}

int check_index(struct core *c, uint64_t index)
{
        if (!index || (index >= c->decided_seq && index <= c->head))
                return 0;
        struct err err;
        err_set(&err, ERR_CONFLICT,
                .msg = index > c->head ? "the index is not of this cluster's history"
                                       : "something has changed since the plan was made",
                .detail =
                    fmt("the plan's index is %llu, the last decision is %llu, the head is %llu",
                        (unsigned long long)index, (unsigned long long)c->decided_seq,
                        (unsigned long long)c->head),
                .hint = fmt("berth events --since %llu shows what; make the plan again",
                            (unsigned long long)(index > c->head ? 0 : index)));
        reply_error(c, &err);
        return -1;
}

void apply_event(struct core *c, const Pb__Event *e)
{
        const struct event_row *t = event_row(e->type);
        c->head = e->seq;
        if (t->apply)
                t->apply(c, e);
}

void emit(struct core *c, Pb__Event *e)
{
        const struct input *in = c->in;
        e->seq = c->head + 1;
        e->timestamp = c->now_ms;
        e->version = event_row(e->type)->version ? event_row(e->type)->version : 1;
        e->prev = event_previous(c, e);
        if (in->reply) { /* somebody asked for it */
                e->request_id = (char *)(in->request_id ? in->request_id : "");
                e->actor = (char *)(in->actor ? in->actor : "");
        }
        size_t len;
        void *data = pb_pack_arena(out_memory(c), &e->base, &len);
        *array_push(&c->out.events) = (struct store_event){ .seq = e->seq ^ MUTANT(event_reordered),
                                                            .data = data,
                                                            .len = len };
        c->out.bytes += len;
        c->out.ops++;
        c->stats.events++;
        if (!event_row(e->type)->consequence ||
            (in->reply && e->type == PB__EVENT_TYPE__E__RetryTriggered))
                c->decided_seq = e->seq;
        apply_event(c, e);
}

static void cut_into_ready(struct core *c)
{
        struct core_out *o = &c->out;
        if (o->events.len == 0 && o->effects.len == 0 && o->replies.len == 0) {
                must(o->ops == 0 || !c->started, "A3: a record changed without an event");
                if (o->memory) {
                        arena_fini(o->memory);
                        mem_free(o->memory);
                }
                out_reset(c);
                return;
        }
        struct arena *a = out_memory(c);
        struct core_batch *b = mem_must(sizeof(*b));
        struct store_record *records;
        size_t n_records;
        records_collect(c, o, &records, &n_records);
        b->commit = (struct store_batch){
                .expected_head = o->expected_head,
                .new_head = c->head,
                .events = arena_dup(a, o->events.at, o->events.len * sizeof(*o->events.at)),
                .n_events = o->events.len,
                .records = records,
                .n_records = n_records,
                .schema = o->schema,
        };
        b->effects = arena_dup(a, o->effects.at, o->effects.len * sizeof(*o->effects.at));
        b->n_effects = o->effects.len;
        b->replies = arena_dup(a, o->replies.at, o->replies.len * sizeof(*o->replies.at));
        b->n_replies = o->replies.len;
        b->epoch = c->epoch;
        b->memory = a;
        out_reset(c);
        *array_push(&c->ready) = b;
}

struct core_batch *core_cut(struct core *c)
{
        if (c->ready_done == c->ready.len) {
                array_clear(&c->ready);
                c->ready_done = 0;
                cut_into_ready(c);
                if (c->ready.len == 0)
                        return NULL;
        }
        return c->ready.at[c->ready_done++];
}

void core_batch_free(struct core_batch *b)
{
        if (!b)
                return;
        arena_fini(b->memory);
        mem_free(b->memory);
        mem_free(b);
}

void decision_done(struct core *c)
{
        if (c->out.ops >= c->batch_ops || c->out.ops + 100 > c->opt.max_batch_ops ||
            c->out.bytes > c->opt.max_batch_bytes)
                cut_into_ready(c);
        c->own -= c->own > 0;
}

bool step_is_full(const struct core *c)
{
        return c->own == 0 && (c->out.ops >= STEP_OPS || c->ready.len > c->ready_done);
}

size_t core_pending_ops(const struct core *c)
{
        return c->out.ops + c->out.effects.len + c->out.replies.len;
}

void core_set_batch_ops(struct core *c, size_t ops)
{
        c->batch_ops = ops;
}

size_t core_waiting_ops(const struct core *c)
{
        size_t n = c->out.ops;
        for (size_t i = c->ready_done; i < c->ready.len; i++)
                n += c->ready.at[i]->commit.n_events + c->ready.at[i]->commit.n_records;
        return n;
}

size_t core_ready_batches(const struct core *c)
{
        return c->ready.len - c->ready_done;
}

uint64_t core_head(const struct core *c)
{
        return c->head;
}

/* ---- a step ---- */

static void start(struct core *c, const struct input *in)
{
        must(!c->started, "INPUT_START comes once");
        must(in->head == 0 || c->head == 0 || c->head == in->head,
             "the events folded do not reach the store's head");
        if (in->head)
                c->head = in->head;
        out_reset(c);
        c->started = true;
        /* what was decided before is not known any more: older plans are made again */
        c->decided_seq = c->head;
        c->started_ms = c->now_ms;
        c->started_steady = c->fencing_since = c->steady_ms;
        c->next_pass_ms = c->now_ms + c->opt.pass_ms;
        ranks_refresh(c);
        admissions_settle(c);
        brake_rebuild(c);
        if (!c->cluster_id) {
                char id[27];
                static const char digits[] = "0123456789abcdef";
                for (int i = 0; i < 16; i++)
                        id[i] = digits[(in->random[0] >> (4 * i)) & 15];
                id[16] = 0;
                Pb__Cluster cluster = PB__CLUSTER__INIT;
                cluster.cluster_id = id;
                cluster.epoch = 1;
                cluster.schema = 1;
                cluster.created_at = c->now_ms;
                cluster.key_fingerprint =
                    (char *)(c->opt.key_fingerprint ? c->opt.key_fingerprint : "");
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__ClusterCreated;
                e.cluster = &cluster;
                emit(c, &e);
        }
        key_noted(c);
        if (c->fencing.lease_ms || c->restored)
                fencing_needed(c);
        for (uint32_t i = 0; i < c->nodes.len; i++)
                if (c->nodes.at[i].id) {
                        c->nodes.at[i].calls_fail = c->nodes.at[i].unreachable;
                        columns_update(c, (struct node_ix){ i });
                        node_deadline_refresh(c, (struct node_ix){ i });
                }
        for (uint32_t i = 0; i < c->units.len; i++)
                if (c->units.at[i].id) {
                        /* (W3) A damaged record must not count as a launch that is yet to come: the
                         * next real one would be smaller. */
                        if (c->units.at[i].token_seq > c->head &&
                            c->units.at[i].token_epoch >= c->epoch)
                                c->units.at[i].token_seq = c->head;
                        unit_settle(c, (struct unit_ix){ i });
                }
}

/* The check that nothing was missed: whatever is not as it should be and has no deadline is looked
 * at again. */
static void pass_some(struct core *c)
{
        uint32_t end = c->pass_next + 20000;
        for (; c->pass_next < c->units.len && c->pass_next < end; c->pass_next++) {
                struct unit *w = &c->units.at[c->pass_next];
                if (!w->id || w->dirty || w->waiting)
                        continue;
                bool settled =
                    w->phase == PB__PHASE__E__Running || w->phase == PB__PHASE__E__Stopped ||
                    w->phase == PB__PHASE__E__Completed || w->phase == PB__PHASE__E__Failed;
                if (!settled && heap_get(&c->unit_deadlines, c->pass_next) == HEAP_NEVER)
                        unit_mark_dirty(c, (struct unit_ix){ c->pass_next });
        }
        if (c->pass_next >= c->units.len) {
                c->pass_next = NONE;
                c->stats.passes++;
        }
}

/* What is due may be much, and may change nothing that fills a step: thousands of nodes at once
 * that are held. */
static void run_due(struct core *c)
{
        brake_sweep(c);
        for (int i = 0;
             i < DUE_PER_STEP && heap_next_ms(&c->node_deadlines) <= c->now_ms && !step_is_full(c);
             i++) {
                struct node_ix n = { heap_pop(&c->node_deadlines) };
                decide_node_deadline(c, n);
                decision_done(c);
        }
        for (int i = 0;
             i < DUE_PER_STEP && heap_next_ms(&c->unit_deadlines) <= c->now_ms && !step_is_full(c);
             i++) {
                struct unit_ix w = { heap_pop(&c->unit_deadlines) };
                unit_due(c, w);
                decision_done(c);
        }
        if (c->now_ms >= c->next_pass_ms) {
                c->next_pass_ms = c->now_ms + c->opt.pass_ms;
                if (c->pass_next == NONE)
                        c->pass_next = 0;
        }
        if (c->pass_next != NONE)
                pass_some(c);
        notices_sum(c);
}

static void run_bulk(struct core *c)
{
        while (c->dirty_done < c->dirty.len && !step_is_full(c)) {
                struct unit_ix w = c->dirty.at[c->dirty_done++];
                if (!unit_at(c, w)->id || !unit_at(c, w)->dirty)
                        continue;
                unit_at(c, w)->dirty = false;
                unit_look(c, w);
                decision_done(c);
        }
        if (c->dirty_done == c->dirty.len) {
                array_clear(&c->dirty);
                c->dirty_done = 0;
        }
        if (!step_is_full(c))
                evict_some(c);
        if (!step_is_full(c))
                drain_some(c);
        /* those who wait for room may be many, and looking for it is work even where there is
         * none */
        c->own = 0;
        if (!step_is_full(c))
                place_within_quotas(c);
        if (!step_is_full(c))
                place_waiting(c);
        if (!step_is_full(c))
                preempt_some(c);
        if (!step_is_full(c))
                forget_some(c);
        policy_judge_some(c);
        fencing_settle(c);
        run_rules(c);
        run_outbox(c);
}

bool has_seen_orders(const struct core *c, const struct node *n, const Pb__Cursor *applied)
{
        return applied && applied->epoch <= c->epoch &&
               (applied->epoch > n->sent_epoch ||
                (applied->epoch == n->sent_epoch && applied->seq >= n->sent_seq));
}

static void handle(struct core *c, const struct input *in)
{
        switch (in->kind) {
        case INPUT_START:
                start(c, in);
                break;
        case INPUT_RESTORED:
                decide_restored(c, in);
                break;
        case INPUT_TICK:
                break;
        case INPUT_APPLY:
                decide_apply(c, (const Pb__ApplyWorkloadRequest *)in->msg);
                break;
        case INPUT_APPLY_MANY:
                decide_apply_many(c, (const Pb__ApplyWorkloadsRequest *)in->msg);
                break;
        case INPUT_DELETE:
                decide_delete(c, (const Pb__WorkloadRef *)in->msg);
                break;
        case INPUT_DESIRED:
                decide_desired(c, (const Pb__SetDesiredRequest *)in->msg);
                break;
        case INPUT_RETRY:
                decide_retry(c, (const Pb__WorkloadRef *)in->msg);
                break;
        case INPUT_CONFIG:
                decide_config(c, (const Pb__ServerConfig *)in->msg);
                break;
        case INPUT_WEBHOOK_DONE:
                decide_webhook_done(c, (const Pb__WebhookResult *)in->msg);
                break;
        case INPUT_LIST_ALERTS:
                read_list_alerts(c, (const Pb__ListAlertsRequest *)in->msg);
                break;
        case INPUT_QUOTA_SET:
                decide_quota_set(c, (const Pb__SetQuotaRequest *)in->msg);
                break;
        case INPUT_QUOTA_REMOVE:
                decide_quota_remove(c, (const Pb__TenantRef *)in->msg);
                break;
        case INPUT_GET_QUOTA:
                read_quota(c, (const Pb__TenantRef *)in->msg);
                break;
        case INPUT_LIST_QUOTAS:
                read_list_quotas(c, (const Pb__ListQuotasRequest *)in->msg);
                break;
        case INPUT_TOKEN_CREATE:
                decide_token_create(c, (const Pb__CreateTokenRequest *)in->msg);
                break;
        case INPUT_TOKEN_REVOKE:
                decide_token_revoke(c, (const Pb__TokenRef *)in->msg);
                break;
        case INPUT_TOKEN_USE:
                decide_token_use(c, (const Pb__UseTokenRequest *)in->msg);
                break;
        case INPUT_LIST_TOKENS:
                read_list_tokens(c, (const Pb__ListTokensRequest *)in->msg);
                break;
        case INPUT_TOUCHED:
                decide_touched(c, (const Pb__TouchedRecord *)in->msg);
                break;
        case INPUT_ACCESS_NOTE:
                decide_access_note(c, (const Pb__AccessNote *)in->msg);
                break;
        case INPUT_NODE_WISH:
                decide_node_wish(c, (const Pb__SetNodeWishRequest *)in->msg);
                break;
        case INPUT_NODE_TAINTS:
                decide_taints(c, (const Pb__SetTaintsRequest *)in->msg);
                break;
        case INPUT_NODE_FORGET:
                decide_node_forget(c, (const Pb__NodeRef *)in->msg);
                break;
        case INPUT_NODE_FENCE:
                decide_node_fence(c, (const Pb__NodeRef *)in->msg);
                break;
        case INPUT_NODE_EXPEL:
                decide_node_expel(c, (const Pb__NodeRef *)in->msg);
                break;
        case INPUT_NODE_LABELS:
                decide_node_labels(c, (const Pb__SetNodeLabelsRequest *)in->msg);
                break;
        case INPUT_NODE_CAPACITY:
                decide_node_capacity(c, (const Pb__SetNodeCapacityRequest *)in->msg);
                break;
        case INPUT_EVICT_NODE:
                decide_evict_node(c, (const Pb__NodeRef *)in->msg);
                break;
        case INPUT_EVICT_LOST:
                decide_evict_lost(c);
                break;
        case INPUT_RELEASE:
                decide_release(c, (const Pb__WorkloadRef *)in->msg);
                break;
        case INPUT_GET_WORKLOAD:
                read_get_workload(c, (const Pb__WorkloadRef *)in->msg);
                break;
        case INPUT_LIST_WORKLOADS:
                read_list_workloads(c, (const Pb__ListWorkloadsRequest *)in->msg);
                break;
        case INPUT_GET_NODE:
                read_get_node(c, (const Pb__NodeRef *)in->msg);
                break;
        case INPUT_LIST_NODES:
                read_list_nodes(c, (const Pb__ListNodesRequest *)in->msg);
                break;
        case INPUT_EXPLAIN:
                read_explain(c, (const Pb__WorkloadRef *)in->msg);
                break;
        case INPUT_CLUSTER:
                read_cluster(c);
                break;
        case INPUT_PLAN:
                reply_bytes(c, NULL, NULL, 0, false);
                break;
        case INPUT_EXEC:
                decide_exec(c, (const Pb__ExecNote *)in->msg);
                break;
        case INPUT_LOCATE:
                read_locate(c, (const Pb__WorkloadRef *)in->msg);
                break;
        case INPUT_HELLO:
                decide_hello(c, (const Pb__Hello *)in->msg, in->session);
                break;
        case INPUT_HEARTBEAT:
                decide_heartbeat(c, (const Pb__Heartbeat *)in->msg, in->session);
                break;
        case INPUT_UNITS: {
                const Pb__UnitReport *report = (const Pb__UnitReport *)in->msg;
                struct node_ix n = session_node(c, in->session);
                if (node_ok(n)) {
                        bool up_to_date = has_seen_orders(c, node_at(c, n), report->applied);
                        if (MUTANT(old_list_is_whole_truth))
                                up_to_date = true;
                        decide_report(c, n, (ProtobufCMessage *const *)report->units,
                                      report->n_units, report->complete, up_to_date);
                }
                break;
        }
        case INPUT_ADOPT:
                decide_adopt(c, (const Pb__AdoptRequest *)in->msg);
                break;
        case INPUT_DEFINITIONS:
                decide_definitions(c, (const Pb__UnitDefinitions *)in->msg, in->session);
                break;
        case INPUT_GONE:
                decide_gone(c, in->session);
                break;
        case INPUT_UNREACHABLE:
                decide_unreachable(c, in->session, in->text);
                break;
        case INPUT_REACHABLE:
                decide_reachable(c, in->session);
                break;
        case _INPUT_MAX:
                break;
        }
}

void core_step(struct core *c, const struct input *in)
{
        static const struct input nobody = { .kind = INPUT_TICK };
        must(c->started || in->kind == INPUT_START || in->kind == INPUT_RESTORED,
             "INPUT_START comes first");
        c->now_ms = in->now_ms > c->now_ms ? in->now_ms : c->now_ms; /* time never goes back */
        int64_t steady = in->steady_ms ? in->steady_ms : in->now_ms;
        c->steady_ms = steady > c->steady_ms ? steady : c->steady_ms;
        c->stats.steps++;
        c->in = in;
        if (!rate_refuses(c, in))
                handle(c, in);
        decision_done(c);
        c->in = &nobody; /* what follows was not asked for by this caller */
        c->own = in->kind == INPUT_TICK || input_only_reads(in->kind) ? 0 : OWN_AT_LEAST;
        if (in->kind != INPUT_RESTORED) {
                run_due(c);
                run_bulk(c);
        }
        c->own = 0;
        c->in = NULL;
        arena_reset(&c->step);
}

void core_read(struct core *c, const struct input *in)
{
        must(input_only_reads(in->kind), "a view is only looked at");
        int64_t now_ms = c->now_ms; /* while following it is the events' */
        if (!c->started && in->now_ms > now_ms)
                c->now_ms = in->now_ms;
        c->in = in;
        handle(c, in);
        c->in = NULL;
        c->now_ms = now_ms;
        arena_reset(&c->step);
}

static bool has_bulk(const struct core *c)
{
        if (c->dirty_done < c->dirty.len || c->pass_next != NONE || c->drains.len ||
            c->forgets.len || c->tenants_with_room.len || policy_has_work(c) || rules_have_work(c))
                return true;
        for (uint32_t k = c->waiting_first; k != NONE; k = c->classes.at[k].next_waiting)
                if (c->classes.at[k].tried_at != c->capacity_change)
                        return true;
        return false;
}

int64_t core_next_ms(const struct core *c)
{
        /* a tick could do nothing; asking again after the cut gives the answer */
        if (step_is_full(c))
                return INT64_MAX;
        if (has_bulk(c))
                return c->now_ms;
        int64_t next = c->next_pass_ms < c->preempt_at ? c->next_pass_ms : c->preempt_at;
        if (heap_next_ms(&c->node_deadlines) < next)
                next = heap_next_ms(&c->node_deadlines);
        if (heap_next_ms(&c->unit_deadlines) < next)
                next = heap_next_ms(&c->unit_deadlines);
        if (c->configured && heap_next_ms(&c->alert_deadlines) < next)
                next = heap_next_ms(&c->alert_deadlines);
        if (brake_next_ms(c) < next)
                next = brake_next_ms(c);
        if (evict_next_ms(c) < next)
                next = evict_next_ms(c);
        if (outbox_next_ms(c) < next)
                next = outbox_next_ms(c);
        if (fencing_next_ms(c) < next)
                next = fencing_next_ms(c);
        if (notices_next_ms(c) < next)
                next = notices_next_ms(c);
        return next;
}

const struct core_stats *core_counts(const struct core *c)
{
        return &c->stats;
}

void core_stats(const struct core *c, struct core_stats *ret)
{
        *ret = c->stats;
        ret->nodes = c->n_nodes;
        ret->workloads = c->n_workloads;
        ret->tombstones = c->n_tombstones;
        ret->sessions = map_len(&c->session_nodes);
        ret->braking = brake_is_on(c);
        ret->pacing = evict_paced_units(c) > 0;
        ret->over_quota = c->n_over_quota;
        ret->exclusive_waiting = exclusive_waiting(c);
        memcpy(ret->by_desired, c->by_desired, sizeof(ret->by_desired));
        ret->outbox = map_len(&c->outgoing_by_id);
        ret->tokens = map_len(&c->token_by_name);
        for (uint32_t i = 0; i < c->alerts.len; i++)
                ret->alerts += c->alerts.at[i].raised;
        ret->pending = c->n_over_quota;
        for (uint32_t i = 0; i < c->tenants.len; i++)
                ret->quotas += c->tenants.at[i].has_quota;
        memcpy(ret->by_phase, c->by_phase, sizeof(ret->by_phase));
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                if (!n->id)
                        continue;
                ret->nodes_ready += n->status == PB__NODE_STATUS__E__Ready;
                ret->nodes_by_status[node_status_shown(n)]++;
                /* as phase_shown() */
                for (int k = 0; k < 3 && n->status != PB__NODE_STATUS__E__Ready; k++) {
                        ret->by_phase[on_node_phases[k]] -= n->on_node[k];
                        ret->by_phase[PB__PHASE__E__Unknown] += n->on_node[k];
                }
        }
        for (uint32_t k = c->waiting_first; k != NONE; k = c->classes.at[k].next_waiting)
                ret->pending += c->classes.at[k].n_waiting;
}
