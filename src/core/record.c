/* core/record.c: records: how the state is written down, and read back.
 *
 *   /meta/cluster  /nodes/<id>  /workloads/<id>  /tombstones/<node>/<workload>  /quotas/<tenant>
 *   /alerts/<rule>/<node|workload>/<id>  /outbox/<id>  /tokens/<name>  /admissions/<node>
 *   and, for stores that people read by hand (core_options.index_records): /nodes/<id>/status (a bare word), /assignments/<id>, /retries/<id>, /reconciliation/<id>
 *
 * A record is written from the state when a batch is cut, once however often it changed. live = true gives the API's view, which adds what
 * is never stored: heartbeats, usage, phases that follow from a silent node.
 */
#include "base/mem.h"
#include "base/mutant.h"
#include "core/retry.h"
#include "core/state.h"
#include "model/json.h"
#include "model/pb.h"
#include <stdlib.h>
#include <string.h>

#define AGENT_PORT 50051

/* ---- what is to be written ----------------------------------------------------------------------------------------------------------------- */

/* What may be long in a record counts for the size of the batch, as far as it is known before the record is made: a store takes so much in one commit and no more. */
static size_t text_bytes(const char *text)
{
        return text ? strlen(text) : 0;
}

void save_workload(struct core *c, struct workload_ix ix)
{
        struct workload *w = workload_at(c, ix);
        rules_workload_changed(c, ix);
        if (!c->started) /* somebody else wrote this, and its views */
                w->shown = w->shown_retries = VIEW_UNKNOWN;
        if (w->unsaved || !c->started)
                return;
        w->unsaved = true;
        c->out.ops += c->opt.index_records ? 3 + (w->shown_retries != VIEW_NONE) : 1; /* with its views */
        c->out.bytes += w->definition == NONE ? 0 : c->definitions.at[w->definition].len;
        c->out.bytes += text_bytes(w->failure) * (c->opt.index_records ? 2 : 1) + text_bytes(w->last_error);
        *array_push(&c->out.workloads) = ix;
}

void save_node(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        rules_node_changed(c, ix);
        if (!c->started)
                n->shown_status = VIEW_UNKNOWN;
        if (n->unsaved || !c->started)
                return;
        n->unsaved = true;
        c->out.ops += c->opt.index_records && n->shown_status == VIEW_UNKNOWN ? 2 : 1;
        for (uint32_t i = 0; i < n->n_labels; i++)
                c->out.bytes += text_bytes(n->labels[i].key) + text_bytes(n->labels[i].value);
        for (uint32_t i = 0; i < n->n_taints; i++)
                c->out.bytes += text_bytes(n->taints[i].key) + text_bytes(n->taints[i].value) + 16;
        for (uint32_t i = 0; i < n->n_drivers; i++)
                c->out.bytes += text_bytes(n->drivers[i]);
        c->out.bytes += text_bytes(n->status_reason) + text_bytes(n->endpoint);
        *array_push(&c->out.nodes) = ix;
}

void save_tombstone(struct core *c, uint32_t t)
{
        if (c->tombstones.at[t].unsaved || !c->started)
                return;
        c->tombstones.at[t].unsaved = true;
        c->out.ops++;
        *array_push(&c->out.tombstones) = t;
}

void save_quota(struct core *c, uint32_t t)
{
        if (c->tenants.at[t].unsaved || !c->started)
                return;
        c->tenants.at[t].unsaved = true;
        c->out.ops++;
        *array_push(&c->out.quotas) = t;
}

void save_alert(struct core *c, uint32_t i)
{
        if (c->alerts.at[i].unsaved || !c->started)
                return;
        c->alerts.at[i].unsaved = true;
        c->out.ops++;
        c->out.bytes += text_bytes(c->alerts.at[i].message);
        *array_push(&c->out.alerts) = i;
}

void save_outgoing(struct core *c, uint32_t i)
{
        if (c->outbox.at[i].unsaved || !c->started)
                return;
        c->outbox.at[i].unsaved = true;
        c->out.ops++;
        c->out.bytes += text_bytes(c->outbox.at[i].body) + text_bytes(c->outbox.at[i].url);
        *array_push(&c->out.outgoing) = i;
}

void views_of_new_workload(struct core *c, struct workload_ix ix)
{
        if (c->started && c->out.removed.len == 0) /* else one of this name may be going away in the same batch */
                workload_at(c, ix)->shown = workload_at(c, ix)->shown_retries = VIEW_NONE;
}

void save_removed(struct core *c, const char *kind, const char *id)
{
        if (!c->started)
                return;
        if (!c->out.memory)
                c->out.memory = mem_must(sizeof(struct arena));
        c->out.ops += c->opt.index_records ? 4 : 1;
        *array_push(&c->out.removed) = arena_printf(c->out.memory, "%s%s", kind, id);
        if (c->extras.len)
                extras_drop(c, c->out.removed.at[c->out.removed.len - 1]);
}

/* "/workloads/" and "web-1": one for each record of each batch, so without printf. */
static char *key_of(struct arena *a, const char *kind, const char *id)
{
        size_t n = strlen(kind), len = strlen(id);
        char *key = arena_alloc(a, n + len + 1);
        memcpy(key, kind, n);
        memcpy(key + n, id, len + 1);
        return key;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------------------- */

Pb__Phase__E phase_shown(const struct core *c, const struct workload *w)
{
        bool on_node = w->phase == PB__PHASE__E__Running || w->phase == PB__PHASE__E__Scheduled || w->phase == PB__PHASE__E__Updating;
        if (on_node && node_ok(w->node) && node_get(c, w->node)->status == PB__NODE_STATUS__E__NotReady)
                return PB__PHASE__E__Unknown;
        return w->up && w->phase == PB__PHASE__E__Scheduled ? PB__PHASE__E__Running : (Pb__Phase__E)w->phase;
}

void *workload_record(struct core *c, const struct workload *w, bool live, struct arena *a, size_t *ret_len)
{
        const struct definition *d = definition_of(c, w);
        Pb__IntValue exit_code = PB__INT_VALUE__INIT, sig = PB__INT_VALUE__INIT;
        Pb__WorkloadStatus status = PB__WORKLOAD_STATUS__INIT;
        Pb__Metadata meta = PB__METADATA__INIT;
        Pb__Retry retry = PB__RETRY__INIT;
        Pb__Placement placement = PB__PLACEMENT__INIT;
        Pb__Token token = PB__TOKEN__INIT;
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
                        if (!node_ok(w->node) && w->failure && str_starts(w->failure, "no suitable node"))
                                status.failure_reason = arena_printf(a, "no suitable node available (now mostly %s)",
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
        return pb_pack_before(a, &r.base, d->data, d->len, ret_len);
}

Pb__NodeStatus__E node_status_shown(const struct node *n)
{
        if (n->wish == PB__NODE_WISH__E__disabled)
                return PB__NODE_STATUS__E__Disabled;
        if (n->wish == PB__NODE_WISH__E__draining && n->status == PB__NODE_STATUS__E__Ready)
                return PB__NODE_STATUS__E__Draining;
        return n->status;
}

/* The endpoint that the agent registered; else the address that it comes from, with the port that agents have by default (C39). */
static char *dial_target(const struct node *n, struct arena *a)
{
        if (n->endpoint)
                return n->endpoint;
        if (!n->ip)
                return "";
        return arena_printf(a, strchr(n->ip, ':') ? "[%s]:%d" : "%s:%d", n->ip, AGENT_PORT);
}

static void taints_record(struct core *c, const struct node *n, Pb__Node *r)
{
        r->taints = arena_new_n(&c->step, Pb__Taint *, n->n_taints + 1);
        for (uint32_t i = 0; i < n->n_taints; i++) {
                Pb__Taint *t = r->taints[r->n_taints++] = arena_new(&c->step, Pb__Taint);
                pb__taint__init(t);
                t->key = n->taints[i].key;
                t->value = n->taints[i].value;
                t->effect = n->taints[i].effect;
        }
}

static void *pack_node(struct core *c, const struct node *n, bool live, bool whole, struct arena *a, size_t *ret_len)
{
        Pb__Drain drain;
        char *strangers[100];
        Pb__Node r = PB__NODE__INIT;
        Pb__NodeResources res = PB__NODE_RESOURCES__INIT;
        Pb__WorkloadType__E types[TYPES_MAX], unsupported[TYPES_MAX], exclusive[TYPES_MAX];
        r.id = n->id;
        r.status = live ? node_status_shown(n) : n->status;
        r.status_reason = n->status_reason;
        r.status_updated_by = n->status_by;
        r.status_updated_at = n->status_at;
        res.cpu_total = n->ledger.total.cpu_milli;
        res.memory_total = n->ledger.total.mem_bytes / MIB;
        res.disk_total = n->ledger.total.disk_bytes / GIB;
        res.cpu_allocated = n->ledger.reserved.cpu_milli;
        res.memory_allocated = n->ledger.reserved.mem_bytes / MIB;
        res.disk_allocated = n->ledger.reserved.disk_bytes / GIB;
        r.resources = &res;
        r.last_heartbeat = n->stored_heartbeat;
        r.agent_endpoint = n->endpoint;
        r.agent_version = n->version;
        r.ip = n->ip;
        r.wish = n->wish;
        r.registered_at = n->registered_at;
        r.resource_version = n->seq;
        for (unsigned t = 1; t < ARRAY_LEN(types); t++)
                if ((n->type_bits | n->unsupported_bits) & (1u << t))
                        types[r.n_supported_workload_types++] = (Pb__WorkloadType__E)t;
        r.supported_workload_types = types;
        for (unsigned t = 1; t < ARRAY_LEN(unsupported); t++)
                if (n->unsupported_bits & (1u << t))
                        unsupported[r.n_unsupported++] = (Pb__WorkloadType__E)t;
        r.unsupported = unsupported;
        for (unsigned t = 1; t < ARRAY_LEN(exclusive); t++)
                if (n->exclusive_bits & (1u << t))
                        exclusive[r.n_exclusive_types++] = (Pb__WorkloadType__E)t;
        r.exclusive_types = exclusive;
        r.fenced_at = n->fenced_at;
        r.expelled_at = n->expelled_at;
        r.evict_ordered_at = n->evict_ordered_at;
        r.agent_instance = n->instance;
        r.adopted_from = n->adopted_from;
        r.adopt_until = n->adopt_until;
        r.push = n->push;
        r.supported_storage_drivers = n->drivers;
        r.n_supported_storage_drivers = n->n_drivers;
        Pb__Node__LabelsEntry *entries = arena_new_n(&c->step, Pb__Node__LabelsEntry, n->n_labels + 1);
        Pb__Node__LabelsEntry **labels = arena_new_n(&c->step, Pb__Node__LabelsEntry *, n->n_labels + 1);
        for (uint32_t i = 0; i < n->n_labels; i++) {
                pb__node__labels_entry__init(&entries[i]);
                entries[i].key = n->labels[i].key;
                entries[i].value = n->labels[i].value;
                labels[i] = &entries[i];
        }
        r.labels = labels;
        r.n_labels = n->n_labels;
        if (n->drain_started_at) {
                drain_record(n, live, &drain);
                if (whole)
                        drain_blockers(c, n, &drain);
                r.drain = &drain;
        }
        taints_record(c, n, &r);
        if (live) {
                admission_shown(c, n, &r);
                if (n->heard_at)
                        r.last_heartbeat = n->heard_at;
                res.cpu_used = n->cpu_used;
                res.memory_used = n->memory_used_mb;
                res.disk_used = n->disk_used_gb;
                res.used_known = n->usage_known;
                r.connected = n->session != 0;
                r.twin_refused_at = n->twin_at;
                r.reports_held_at = n->late_at;
                r.units = (int32_t)n->n_units;
                r.tombstones = (int32_t)n->n_tombstones;
                r.dial_target = dial_target(n, &c->step);
                r.strangers = strangers;
                for (size_t i = 0; i < n->strangers.len && r.n_strangers < ARRAY_LEN(strangers); i++)
                        if (!n->strangers.at[i].leaves)
                                strangers[r.n_strangers++] = n->strangers.at[i].id;
                for (struct workload_ix w = c->lost.len ? n->units : WORKLOAD_NONE; workload_ok(w) && r.n_strangers < ARRAY_LEN(strangers);
                     w = workload_get(c, w)->node_next)
                        if (workload_get(c, w)->claimed) /* what runs there is not what the record knows */
                                strangers[r.n_strangers++] = workload_get(c, w)->id;
        }
        return pb_pack_arena(a, &r.base, ret_len);
}

void *node_record(struct core *c, const struct node *n, bool live, struct arena *a, size_t *ret_len)
{
        return pack_node(c, n, live, false, a, ret_len);
}

void *node_record_whole(struct core *c, const struct node *n, struct arena *a, size_t *ret_len)
{
        return pack_node(c, n, true, true, a, ret_len);
}

static void *tombstone_record(struct core *c, const struct tombstone *t, struct arena *a, size_t *ret_len)
{
        Pb__Tombstone r = PB__TOMBSTONE__INIT;
        Pb__Token token = PB__TOKEN__INIT;
        Pb__Resources held = amounts_to_resources(t->held);
        token.epoch = t->token_epoch;
        token.seq = t->token_seq;
        r.node_id = node_at(c, t->node)->id;
        r.workload_id = t->workload_id;
        r.token = &token;
        r.resources = &held;
        r.reason = t->reason;
        r.created_at = t->created_at;
        r.host_ports = t->ports;
        r.n_host_ports = t->n_ports;
        r.leased = t->leased;
        r.released = t->released;
        return pb_pack_arena(a, &r.base, ret_len);
}

static void *cluster_record(struct core *c, struct arena *a, size_t *ret_len)
{
        Pb__Cluster r = PB__CLUSTER__INIT;
        r.cluster_id = c->cluster_id;
        r.epoch = c->epoch;
        r.schema = 1;
        r.created_at = c->cluster_created_at;
        r.key_fingerprint = c->key_fingerprint ? c->key_fingerprint : "";
        lost_record(c, &c->step, &r);
        r.restored = c->restored;
        r.evict_ordered_at = c->evict_ordered_at;
        Pb__Fencing fencing = PB__FENCING__INIT;
        if (c->fencing.lease_ms) {
                fencing_fill(c, &fencing);
                r.fencing = &fencing;
        }
        return pb_pack_arena(a, &r.base, ret_len);
}

static void put(struct store_record **at, const char *key, void *data, size_t len)
{
        *(*at)++ = (struct store_record){ .key = key, .data = data, .len = len };
}

static void put_message(struct store_record **at, struct arena *a, const char *key, const ProtobufCMessage *m)
{
        size_t len;
        void *data = pb_pack_arena(a, m, &len);
        put(at, key, data, len);
}

/* The views that people read: derived, so never read back. What this process has written of one, or knows not to be there, is not written again. */
static uint64_t assignment_view(struct core *c, const struct workload *w)
{
        if (!node_ok(w->node))
                return VIEW_NONE;
        const char *node = node_at(c, w->node)->id;
        uint64_t h = hash64_mix(hash64_mix(hash64(node, strlen(node)), (uint64_t)w->score), (uint64_t)w->placed_at);
        return h < VIEW_THERE ? VIEW_THERE : h;
}

/* The score is in millionths. One for each assignment, so without printf; written from the end to the beginning. */
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

static void put_assignment(struct core *c, struct store_record **at, struct arena *a, struct workload *w)
{
        uint64_t view = assignment_view(c, w);
        if (view == w->shown)
                return;
        w->shown = view;
        const char *key = key_of(a, "/assignments/", w->id);
        if (view == VIEW_NONE) {
                put(at, key, NULL, 0);
                return;
        }
        Pb__Assignment s = PB__ASSIGNMENT__INIT;
        s.workload_id = w->id;
        s.node_id = node_at(c, w->node)->id;
        s.reason = score_text(a, w->score);
        s.created_at = w->placed_at;
        put_message(at, a, key, &s.base);
}

static void put_workload_views(struct core *c, struct store_record **at, struct arena *a, struct workload *w)
{
        put_assignment(c, at, a, w);
        if (w->attempts) {
                Pb__Retry r = PB__RETRY__INIT;
                r.attempts = w->attempts;
                r.max_attempts = w->max_attempts;
                r.next_retry_at = w->next_retry_at;
                put_message(at, a, key_of(a, "/retries/", w->id), &r.base);
        } else if (w->shown_retries != VIEW_NONE)
                put(at, key_of(a, "/retries/", w->id), NULL, 0);
        w->shown_retries = w->attempts ? VIEW_THERE : VIEW_NONE;
        Pb__Reconciliation r = PB__RECONCILIATION__INIT;
        r.workload_id = w->id;
        r.action = (char *)action_names[w->action];
        r.success = str_empty(w->failure);
        r.reason = w->failure;
        r.attempted_at = w->last_action_at;
        put_message(at, a, key_of(a, "/reconciliation/", w->id), &r.base);
}

static bool exists(struct core *c, char *key)
{
        char *id = strchr(key + 1, '/') + 1;
        if (str_starts(key, "/workloads/"))
                return workload_ok(workload_find(c, id));
        if (str_starts(key, "/nodes/"))
                return node_ok(node_find(c, id));
        if (str_starts(key, "/quotas/")) {
                uint32_t t = tenant_find(c, id);
                return t != MAP_NONE && c->tenants.at[t].has_quota;
        }
        if (str_starts(key, "/alerts/"))
                return alert_exists(c, id);
        if (str_starts(key, "/outbox/"))
                return outgoing_find(c, id) != MAP_NONE;
        if (str_starts(key, "/tokens/"))
                return token_exists(c, id);
        if (str_starts(key, "/admissions/"))
                return admission_of(c, id) != NULL;
        char *slash = strchr(id, '/'); /* /tombstones/<node>/<workload> */
        *slash = 0;
        struct node_ix n = node_find(c, id);
        *slash = '/';
        return node_ok(n) && tombstone_find(c, n, slash + 1) != NONE;
}

static int by_text(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static void put_removed(struct core *c, struct core_out *o, struct store_record **at)
{
        if (o->removed.len)
                qsort(o->removed.at, o->removed.len, sizeof(*o->removed.at), by_text);
        for (size_t i = 0; i < o->removed.len; i++) {
                char *key = o->removed.at[i], *id = strchr(key + 1, '/') + 1;
                /* Removed twice: once is enough. Made again within this batch: its put is the truth. */
                if ((i && strcmp(key, o->removed.at[i - 1]) == 0) || exists(c, key))
                        continue;
                put(at, key, NULL, 0);
                if (!c->opt.index_records)
                        continue;
                if (str_starts(key, "/workloads/")) {
                        put(at, arena_printf(o->memory, "/assignments/%s", id), NULL, 0);
                        put(at, arena_printf(o->memory, "/retries/%s", id), NULL, 0);
                        put(at, arena_printf(o->memory, "/reconciliation/%s", id), NULL, 0);
                } else if (str_starts(key, "/nodes/"))
                        put(at, arena_printf(o->memory, "/nodes/%s/status", id), NULL, 0);
        }
}

void records_collect(struct core *c, struct core_out *o, struct store_record **ret, size_t *ret_n)
{
        struct arena *a = o->memory;
        size_t len, max = (o->workloads.len + o->nodes.len + o->tombstones.len + o->quotas.len + o->alerts.len + o->outgoing.len +
                           o->tokens.len + o->admissions.len + o->removed.len + 1) *
                          5;
        struct store_record *first = arena_new_n(a, struct store_record, max), *at = first;
        if (o->cluster) {
                void *data = cluster_record(c, a, &len);
                put(&at, "/meta/cluster", data, len);
        }
        for (size_t i = 0; i < o->workloads.len; i++) {
                struct workload *w = workload_at(c, o->workloads.at[i]);
                if (!w->id || !w->unsaved)
                        continue;
                w->unsaved = false;
                void *data = workload_record(c, w, false, a, &len);
                put(&at, key_of(a, "/workloads/", w->id), data, len);
                if (c->opt.index_records)
                        put_workload_views(c, &at, a, w);
        }
        for (size_t i = 0; i < o->nodes.len; i++) {
                struct node *n = node_at(c, o->nodes.at[i]);
                if (!n->id || !n->unsaved)
                        continue;
                n->unsaved = false;
                void *data = node_record(c, n, false, a, &len);
                put(&at, key_of(a, "/nodes/", n->id), data, len);
                if (c->opt.index_records && n->shown_status != VIEW_THERE + n->status) {
                        n->shown_status = (uint8_t)(VIEW_THERE + n->status);
                        const char *word = n->status == PB__NODE_STATUS__E__Ready ? "Ready" : "NotReady";
                        put(&at, arena_printf(a, "/nodes/%s/status", n->id), (void *)word, strlen(word));
                }
        }
        for (size_t i = 0; i < o->tombstones.len; i++) {
                struct tombstone *t = &c->tombstones.at[o->tombstones.at[i]];
                if (!t->workload_id || !t->unsaved)
                        continue;
                t->unsaved = false;
                void *data = tombstone_record(c, t, a, &len);
                put(&at, arena_printf(a, "/tombstones/%s/%s", node_at(c, t->node)->id, t->workload_id), data, len);
        }
        for (size_t i = 0; i < o->quotas.len; i++) {
                const struct tenant *t = &c->tenants.at[o->quotas.at[i]];
                if (t->has_quota) {
                        void *data = quota_record(c, o->quotas.at[i], a, &len);
                        put(&at, arena_printf(a, "/quotas/%s", t->name), data, len);
                }
                quota_saved(c, o->quotas.at[i]);
        }
        for (size_t i = 0; i < o->alerts.len; i++) {
                const struct alert *x = &c->alerts.at[o->alerts.at[i]];
                if (x->raised) {
                        void *data = alert_record(c, o->alerts.at[i], a, &len);
                        put(&at, arena_printf(a, "/alerts/%s", x->key), data, len);
                }
                alert_saved(c, o->alerts.at[i]);
        }
        for (size_t i = 0; i < o->outgoing.len; i++) {
                struct outgoing *x = &c->outbox.at[o->outgoing.at[i]];
                if (!x->id || !x->unsaved)
                        continue;
                x->unsaved = false;
                void *data = outgoing_record(c, o->outgoing.at[i], a, &len);
                put(&at, arena_printf(a, "/outbox/%s", x->id), data, len);
        }
        for (size_t i = 0; i < o->tokens.len; i++) {
                struct access *x = &c->tokens.at[o->tokens.at[i]];
                if (!x->name || !x->unsaved)
                        continue;
                x->unsaved = false;
                void *data = token_record(c, o->tokens.at[i], a, &len);
                put(&at, arena_printf(a, "/tokens/%s", x->name), data, len);
        }
        for (size_t i = 0; i < o->admissions.len; i++) {
                struct admission *x = &c->admissions.at[o->admissions.at[i]];
                if (!x->m || !x->unsaved)
                        continue;
                x->unsaved = false;
                void *data = admission_record(c, o->admissions.at[i], a, &len);
                put(&at, arena_printf(a, "/admissions/%s", x->m->node_id), data, len);
        }
        put_removed(c, o, &at);
        for (struct store_record *r = first; c->extras.len && r < at; r++)
                extras_append(c, a, r);
        *ret = first;
        *ret_n = (size_t)(at - first);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------------------- */

static int bad_record(struct err *err, const char *key, const char *why)
{
        return err_set(err, ERR_CORRUPT, .msg = "a stored record is left out because it makes no sense", .detail = fmt("%s: %s", key, why),
                       .hint = "run berth fsck");
}

/* Workloads may be read before the node that they are on: such a node is made and filled in when its own record comes. */
static struct node_ix node_get_or_add(struct core *c, const char *id)
{
        struct node_ix n = node_find(c, id);
        return node_ok(n) ? n : node_add(c, id);
}

/* A record under another key than its own would never be written or removed again. */
static bool key_is(const char *key, const char *kind, const char *id)
{
        size_t len = strlen(kind);
        return !str_empty(id) && strncmp(key, kind, len) == 0 && strcmp(key + len, id) == 0;
}

static bool node_times_are_sane(const Pb__Node *r)
{
        return time_is_sane(r->fenced_at) && time_is_sane(r->expelled_at) && time_is_sane(r->evict_ordered_at) &&
               time_is_sane(r->adopt_until) && time_is_sane(r->status_updated_at) && time_is_sane(r->registered_at) &&
               time_is_sane(r->last_heartbeat);
}

static int load_node(struct core *c, const char *key, const Pb__Node *r, struct err *err)
{
        if (!key_is(key, "/nodes/", r->id))
                return bad_record(err, key, "its id is not that of its key");
        if (!node_resources_are_sane(r->resources))
                return bad_record(err, key, "a node needs resources, within their limits");
        if (r->wish > PB__NODE_WISH__E__disabled)
                return bad_record(err, key, "its wish is unknown to this berth");
        if (!node_times_are_sane(r) || (r->drain && !drain_is_sane(r->drain)))
                return bad_record(err, key, "a time is out of range");
        if (!taints_are_sane(r))
                return bad_record(err, key, "a taint is out of range");
        struct node_ix ix = node_get_or_add(c, r->id);
        node_attributes(c, ix, r);
        struct node *n = node_at(c, ix);
        n->status = (uint8_t)(r->status == PB__NODE_STATUS__E__NotReady ? PB__NODE_STATUS__E__NotReady : PB__NODE_STATUS__E__Ready);
        n->wish = (uint8_t)(r->wish ? r->wish : PB__NODE_WISH__E__schedulable);
        n->status_at = r->status_updated_at;
        n->registered_at = r->registered_at;
        n->stored_heartbeat = r->last_heartbeat;
        n->seq = r->resource_version;
        text_set(&n->status_reason, r->status_reason);
        text_set(&n->status_by, r->status_updated_by);
        text_set(&n->instance, r->agent_instance);
        text_set(&n->adopted_from, r->adopted_from);
        n->adopt_until = r->adopt_until;
        n->fenced_at = n->status == PB__NODE_STATUS__E__Ready ? 0 : r->fenced_at;
        n->expelled_at = n->status == PB__NODE_STATUS__E__Ready ? 0 : r->expelled_at;
        n->evict_ordered_at = n->status == PB__NODE_STATUS__E__Ready ? 0 : r->evict_ordered_at;
        c->brake.stale = true;
        node_unsupported(n, r);
        drain_take(n, r->drain, n->status_at); /* old stores did not note when it began */
        n->unreachable = n->status == PB__NODE_STATUS__E__NotReady && str_eq(n->status_by, "reconciler");
        taints_set(c, ix, r->taints, r->n_taints);
        columns_update(c, ix);
        return 0;
}

static void load_retry(const struct core *c, struct workload *w, const Pb__Retry *r)
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

static void load_workload_state(struct core *c, struct workload_ix ix, const Pb__Workload *r)
{
        struct workload *w = workload_at(c, ix);
        const Pb__WorkloadStatus *s = r->status;
        const Pb__Metadata *m = r->metadata;
        w->desired = (uint8_t)r->desired_state;
        text_set(&w->revision, r->revision_id);
        w->seq = r->resource_version;
        workload_set_phase(c, w, s->phase);
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
               (!r->placement || reason_is_sane(r->placement->reason)) && s->actual_state <= PB__ACTUAL_STATE__E__Missing;
}

static const char *wrong_workload(struct core *c, const char *key, const Pb__Workload *r)
{
        if (!key_is(key, "/workloads/", r->id))
                return "its id is not that of its key";
        if (!r->status || !r->metadata || !r->desired_state || !r->type)
                return "a workload needs type, desired_state, status and metadata";
        if (workload_ok(workload_find(c, r->id)))
                return "it is there twice";
        if (r->type >= TYPES_MAX || r->desired_state > PB__DESIRED_STATE__E__Deleted || !r->status->phase ||
            r->status->phase >= PB__PHASE__E__Unknown) /* which is shown, and never stored */
                return "its type, desired_state or phase is unknown to this berth";
        if (!resources_are_sane(r->resources) || r->exclusive > PB__EXCLUSIVE__E__pinned)
                return "its resources are out of range";
        if (!workload_values_are_sane(r))
                return "a time, a state or a reason is out of range";
        if ((r->desired_state == PB__DESIRED_STATE__E__Deleted) != (r->status->phase == PB__PHASE__E__Deleting))
                return "what is to be deleted is Deleting";
        bool on_node = !str_empty(r->assigned_node) && !(r->placement && r->placement->forgotten);
        bool holds = on_node && !(r->placement && r->placement->released);
        bool finished = r->status->phase == PB__PHASE__E__Completed || r->status->phase == PB__PHASE__E__Failed;
        bool runs = r->status->phase == PB__PHASE__E__Scheduled || r->status->phase == PB__PHASE__E__Updating ||
                    r->status->phase == PB__PHASE__E__Running || r->status->phase == PB__PHASE__E__RetryPending;
        if (runs ? !holds : finished && holds)
                return "its phase and its place on a node do not go together";
        struct node_ix n = on_node ? node_find(c, r->assigned_node) : NODE_NONE;
        if (node_ok(n) && tombstone_find(c, n, r->id) != NONE)
                return "it is on a node that has yet to remove it";
        if (node_ok(n) && holds && !amounts_can_add(node_get(c, n)->ledger.reserved, amounts_of(r->resources)))
                return "its resources are out of range";
        if (node_ok(n) && holds && host_port_is_taken(node_get(c, n), r))
                return "a host port of it is taken on its node";
        return NULL;
}

static int load_workload(struct core *c, const char *key, const Pb__Workload *r, struct err *err)
{
        const char *wrong = wrong_workload(c, key, r);
        if (wrong)
                return bad_record(err, key, wrong);
        struct workload_ix ix = workload_add(c, r->id);
        workload_set_definition(c, ix, definition_intern(c, r));
        load_workload_state(c, ix, r);
        struct workload *w = workload_at(c, ix);
        if (!str_empty(r->assigned_node)) {
                if (r->placement && r->placement->forgotten)
                        text_set(&w->lost_node, r->assigned_node);
                else {
                        workload_assign(c, ix, node_get_or_add(c, r->assigned_node));
                        workload_hold(c, ix, !(r->placement && r->placement->released));
                }
        }
        usage_update(c, w);
        workload_deadline_refresh(c, ix);
        return 0;
}

static int load_tombstone(struct core *c, const char *key, const Pb__Tombstone *r, struct err *err)
{
        if (str_empty(r->node_id) || !r->token || !key_is(key, arena_printf(&c->step, "/tombstones/%s/", r->node_id), r->workload_id))
                return bad_record(err, key, "an old copy needs a token, and the node and workload of its key");
        struct workload_ix w = workload_find(c, r->workload_id);
        struct node_ix n = node_find(c, r->node_id);
        if (node_ok(n) && ((workload_ok(w) && workload_at(c, w)->node.v == n.v) || tombstone_find(c, n, r->workload_id) != NONE))
                return bad_record(err, key, "the workload is on that node");
        if (!resources_are_sane(r->resources) || (node_ok(n) && !amounts_can_add(node_at(c, n)->ledger.reserved, amounts_of(r->resources))))
                return bad_record(err, key, "its resources are out of range");
        if (!time_is_sane(r->created_at) || !reason_is_sane(r->reason))
                return bad_record(err, key, "its time or its reason is out of range");
        for (size_t i = 1; i < r->n_host_ports; i++)
                if (r->host_ports[i] <= r->host_ports[i - 1])
                        return bad_record(err, key, "its host ports are not in order");
        if (r->n_host_ports > PORTS_PER_CLASS_MAX || (node_ok(n) && ports_taken(node_at(c, n), r->host_ports, (uint32_t)r->n_host_ports)))
                return bad_record(err, key, "its host ports are taken on that node");
        tombstone_add(c, node_get_or_add(c, r->node_id), r->workload_id, r->token->epoch, r->token->seq, amounts_of(r->resources),
                      r->reason, r->created_at);
        n = node_find(c, r->node_id);
        c->tombstones.at[tombstone_find(c, n, r->workload_id)].leased = r->leased;
        c->tombstones.at[tombstone_find(c, n, r->workload_id)].released = r->released;
        ports_of_tombstone(c, &c->tombstones.at[tombstone_find(c, n, r->workload_id)], r->host_ports, (uint32_t)r->n_host_ports);
        return 0;
}

int core_load_record(struct core *c, const char *key, const void *data, size_t len, struct err *err)
{
        must(!c->started, "records are loaded before INPUT_START");
        struct arena_allocator alloc = arena_allocator(&c->step);
        ProtobufCAllocator *a = (ProtobufCAllocator *)&alloc;
        const ProtobufCMessage *whole = NULL;
        int r = 0;
        if (strcmp(key, "/meta/cluster") == 0) {
                Pb__Cluster *m = pb__cluster__unpack(a, len, data);
                whole = m ? &m->base : NULL;
                if (!m || str_empty(m->cluster_id) || m->epoch > EPOCH_KEPT_MAX || !lost_is_sane(m) ||
                    (m->fencing && !fencing_is_sane(m->fencing)))
                        r = bad_record(err, key, "does not parse");
                else {
                        c->evict_ordered_at = sane_time(m->evict_ordered_at);
                        array_clear(&c->lost);
                        for (size_t i = 0; i < m->n_lost; i++)
                                lost_add(c, m->lost[i]);
                        text_set(&c->cluster_id, m->cluster_id);
                        text_set(&c->key_fingerprint, m->key_fingerprint);
                        c->epoch = m->epoch;
                        c->cluster_created_at = m->created_at;
                        fencing_take(c, m);
                }
        } else if (str_starts(key, "/nodes/") && !strchr(key + strlen("/nodes/"), '/')) {
                Pb__Node *m = pb__node__unpack(a, len, data);
                whole = m ? &m->base : NULL;
                r = m ? load_node(c, key, m, err) : bad_record(err, key, "does not parse");
        } else if (str_starts(key, "/workloads/")) {
                Pb__Workload *m = pb__workload__unpack(a, len, data);
                whole = m ? &m->base : NULL;
                r = m ? load_workload(c, key, m, err) : bad_record(err, key, "does not parse");
        } else if (str_starts(key, "/tombstones/")) {
                Pb__Tombstone *m = pb__tombstone__unpack(a, len, data);
                whole = m ? &m->base : NULL;
                r = m ? load_tombstone(c, key, m, err) : bad_record(err, key, "does not parse");
        } else if (str_starts(key, "/quotas/")) {
                Pb__Quota *m = pb__quota__unpack(a, len, data);
                whole = m ? &m->base : NULL;
                r = !m || !quota_is_sane(m) || !key_is(key, "/quotas/", m->tenant)
                        ? bad_record(err, key, "it is no quota of its key's tenant")
                        : load_quota(c, m);
        } else if (str_starts(key, "/alerts/")) {
                Pb__Alert *m = pb__alert__unpack(a, len, data);
                whole = m ? &m->base : NULL;
                r = m && load_alert(c, key + strlen("/alerts/"), m) ? 0 : bad_record(err, key, "it is no alert of its key");
        } else if (str_starts(key, "/outbox/")) {
                Pb__Outgoing *m = pb__outgoing__unpack(a, len, data);
                whole = m ? &m->base : NULL;
                r = m && load_outgoing(c, key + strlen("/outbox/"), m) ? 0 : bad_record(err, key, "it is no webhook of its key");
        } else if (str_starts(key, "/tokens/")) {
                Pb__AccessToken *m = pb__access_token__unpack(a, len, data);
                whole = m ? &m->base : NULL;
                r = m && load_token(c, key + strlen("/tokens/"), m) ? 0 : bad_record(err, key, "it is no token of its key");
        } else if (str_starts(key, "/admissions/")) {
                Pb__Admission *m = pb__admission__unpack(a, len, data);
                whole = m ? &m->base : NULL;
                r = m && load_admission(c, key + strlen("/admissions/"), m) ? 0 : bad_record(err, key, "it is not of its key's node");
        } /* anything else is a view, or of a newer berth */
        if (r == 0)
                extras_keep(c, key, whole);
        arena_reset(&c->step);
        return r;
}

static int by_key(const void *a, const void *b)
{
        return strcmp(((const struct store_record *)a)->key, ((const struct store_record *)b)->key);
}

int core_records(const struct core *cc, int (*fn)(void *ctx, const struct store_record *record, struct err *err), void *ctx,
                 struct err *err)
{
        struct core *c = (struct core *)cc; /* packing uses the step's memory, nothing else */
        struct arena a = ARENA_INIT;
        ARRAY(struct store_record) all = { 0 };
        size_t len;
        void *data;
        if (c->cluster_id) {
                data = cluster_record(c, &a, &len);
                *array_push(&all) = (struct store_record){ "/meta/cluster", data, len };
        }
        for (uint32_t i = 0; i < c->nodes.len; i++)
                if (c->nodes.at[i].id) {
                        data = node_record(c, &c->nodes.at[i], false, &a, &len);
                        *array_push(&all) = (struct store_record){ arena_printf(&a, "/nodes/%s", c->nodes.at[i].id), data, len };
                }
        for (uint32_t i = 0; i < c->workloads.len; i++)
                if (c->workloads.at[i].id) {
                        data = workload_record(c, &c->workloads.at[i], false, &a, &len);
                        *array_push(&all) = (struct store_record){ arena_printf(&a, "/workloads/%s", c->workloads.at[i].id), data, len };
                }
        for (uint32_t i = 0; i < c->tombstones.len; i++) {
                const struct tombstone *t = &c->tombstones.at[i];
                if (!t->workload_id)
                        continue;
                data = tombstone_record(c, t, &a, &len);
                *array_push(&all) =
                    (struct store_record){ arena_printf(&a, "/tombstones/%s/%s", node_at(c, t->node)->id, t->workload_id), data, len };
        }
        for (uint32_t i = 0; i < c->tenants.len; i++)
                if (c->tenants.at[i].has_quota) {
                        data = quota_record(c, i, &a, &len);
                        *array_push(&all) = (struct store_record){ arena_printf(&a, "/quotas/%s", c->tenants.at[i].name), data, len };
                }
        for (uint32_t i = 0; i < c->alerts.len; i++)
                if (c->alerts.at[i].raised) {
                        data = alert_record(c, i, &a, &len);
                        *array_push(&all) = (struct store_record){ arena_printf(&a, "/alerts/%s", c->alerts.at[i].key), data, len };
                }
        for (uint32_t i = 0; i < c->outbox.len; i++)
                if (c->outbox.at[i].id) {
                        data = outgoing_record(c, i, &a, &len);
                        *array_push(&all) = (struct store_record){ arena_printf(&a, "/outbox/%s", c->outbox.at[i].id), data, len };
                }
        for (uint32_t i = 0; i < c->tokens.len; i++)
                if (c->tokens.at[i].name) {
                        data = token_record(c, i, &a, &len);
                        *array_push(&all) = (struct store_record){ arena_printf(&a, "/tokens/%s", c->tokens.at[i].name), data, len };
                }
        for (uint32_t i = 0; i < c->admissions.len; i++)
                if (c->admissions.at[i].m) {
                        data = admission_record(c, i, &a, &len);
                        *array_push(&all) =
                            (struct store_record){ arena_printf(&a, "/admissions/%s", c->admissions.at[i].m->node_id), data, len };
                }
        if (all.len)
                qsort(all.at, all.len, sizeof(*all.at), by_key);
        int r = 0;
        for (size_t i = 0; c->extras.len && i < all.len; i++)
                extras_append(c, &a, &all.at[i]);
        for (size_t i = 0; i < all.len && r >= 0; i++)
                r = fn(ctx, &all.at[i], err);
        array_fini(&all);
        arena_fini(&a);
        arena_reset(&c->step);
        return r < 0 ? r : 0;
}
