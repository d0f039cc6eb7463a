/* core/node_record.c: a node's record, the view beside it, and how it is shown.
 *
 * live = true gives the API's view, which adds what is never stored: heartbeats, usage,
 * connections.
 */
#include "core/admission.h"
#include "core/drain.h"
#include "core/node.h"
#include "core/place.h"
#include "core/rules.h"
#include "core/state.h"
#include "core/step.h"
#include "model/feature.h"
#include "model/pb.h"
#include <string.h>

#define AGENT_PORT 50051

void save_node(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        rules_node_changed(c, ix);
        if (!c->started)
                n->shown_status = VIEW_UNKNOWN;
        if (n->unsaved || !c->started)
                return;
        size_t bytes = text_bytes(n->status_reason) + text_bytes(n->endpoint);
        for (uint32_t i = 0; i < n->n_labels; i++)
                bytes += text_bytes(n->labels[i].key) + text_bytes(n->labels[i].value);
        for (uint32_t i = 0; i < n->n_taints; i++)
                bytes += text_bytes(n->taints[i].key) + text_bytes(n->taints[i].value) + 16;
        for (uint32_t i = 0; i < n->n_drivers; i++)
                bytes += text_bytes(n->drivers[i]);
        record_changed(c, RECORD_NODE, ix.v,
                       c->opt.index_records && n->shown_status == VIEW_UNKNOWN ? 2 : 1, bytes);
}

Pb__NodeStatus__E node_status_shown(const struct node *n)
{
        if (n->wish == PB__NODE_WISH__E__disabled)
                return PB__NODE_STATUS__E__Disabled;
        if (n->wish == PB__NODE_WISH__E__draining && n->status == PB__NODE_STATUS__E__Ready)
                return PB__NODE_STATUS__E__Draining;
        return n->status;
}

/* The endpoint that the agent registered; else the address that it comes from, with the port that
 * agents have by default (C39). */
static char *dial_target(const struct node *n, struct arena *a)
{
        if (n->endpoint)
                return n->endpoint;
        if (!n->ip)
                return "";
        return arena_printf(a, strchr(n->ip, ':') ? "[%s]:%d" : "%s:%d", n->ip, AGENT_PORT);
}

void taints_record(struct core *c, const struct node *n, Pb__Node *r)
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

static void *pack_node(struct core *c, const struct node *n, bool live, bool whole, struct arena *a,
                       size_t *ret_len)
{
        Pb__Drain drain;
        char *strangers[100], *features[FEATURES];
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
        r.n_features = features_list(n->features, features);
        r.features = features;
        r.fenced_at = n->fenced_at;
        r.expelled_at = n->expelled_at;
        r.evict_ordered_at = n->evict_ordered_at;
        r.agent_instance = n->instance;
        r.adopted_from = n->adopted_from;
        r.adopt_until = n->adopt_until;
        r.push = n->push;
        r.supported_storage_drivers = n->drivers;
        r.n_supported_storage_drivers = n->n_drivers;
        Pb__Node__LabelsEntry *entries =
            arena_new_n(&c->step, Pb__Node__LabelsEntry, n->n_labels + 1);
        Pb__Node__LabelsEntry **labels =
            arena_new_n(&c->step, Pb__Node__LabelsEntry *, n->n_labels + 1);
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
                for (size_t i = 0; i < n->strangers.len && r.n_strangers < ARRAY_LEN(strangers);
                     i++)
                        if (!n->strangers.at[i].leaves)
                                strangers[r.n_strangers++] = n->strangers.at[i].id;
                for (struct unit_ix w = c->lost.len ? n->units : UNIT_NONE;
                     unit_ok(w) && r.n_strangers < ARRAY_LEN(strangers);
                     w = unit_get(c, w)->node_next)
                        /* what runs there is not what the record knows */
                        if (unit_get(c, w)->claimed)
                                strangers[r.n_strangers++] = unit_get(c, w)->id;
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

/* ---- reading ---- */

/* Workloads may be read before the node that they are on: such a node is made and filled in when
 * its own record comes. */
struct node_ix node_get_or_add(struct core *c, const char *id)
{
        struct node_ix n = node_find(c, id);
        return node_ok(n) ? n : node_add(c, id);
}

static bool node_times_are_sane(const Pb__Node *r)
{
        return time_is_sane(r->fenced_at) && time_is_sane(r->expelled_at) &&
               time_is_sane(r->evict_ordered_at) && time_is_sane(r->adopt_until) &&
               time_is_sane(r->status_updated_at) && time_is_sane(r->registered_at) &&
               time_is_sane(r->last_heartbeat);
}

static const char *load(struct core *c, const char *id, const ProtobufCMessage *m)
{
        const Pb__Node *r = (const Pb__Node *)m;
        if (str_empty(r->id) || !str_eq(r->id, id))
                return "its id is not that of its key";
        if (!node_resources_are_sane(r->resources))
                return "a node needs resources, within their limits";
        if (r->wish > PB__NODE_WISH__E__disabled)
                return "its wish is unknown to this berth";
        if (!node_times_are_sane(r) || (r->drain && !drain_is_sane(r->drain)))
                return "a time is out of range";
        if (!taints_are_sane(r))
                return "a taint is out of range";
        struct node_ix ix = node_get_or_add(c, r->id);
        node_attributes(c, ix, r);
        struct node *n = node_at(c, ix);
        n->status =
            (uint8_t)(r->status == PB__NODE_STATUS__E__NotReady ? PB__NODE_STATUS__E__NotReady
                                                                : PB__NODE_STATUS__E__Ready);
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
        n->unreachable =
            n->status == PB__NODE_STATUS__E__NotReady && str_eq(n->status_by, "reconciler");
        taints_set(c, ix, r->taints, r->n_taints);
        columns_update(c, ix);
        return NULL;
}

/* ---- the kind ---- */

static const char *name(const struct core *c, uint32_t slot, struct arena *a)
{
        (void)a;
        return c->nodes.at[slot].id;
}

static uint32_t find(const struct core *c, const char *id)
{
        return node_find(c, id).v;
}

static void *pack(struct core *c, uint32_t slot, struct arena *a, size_t *ret_len)
{
        return node_record(c, &c->nodes.at[slot], false, a, ret_len);
}

static void put_back(struct core *c, uint32_t slot)
{
        c->nodes.at[slot].shown_status = VIEW_UNKNOWN;
        save_node(c, (struct node_ix){ slot });
}

static void put_view(struct core *c, const char *id, uint32_t slot, struct arena *a,
                     struct store_record **at)
{
        struct node *n = slot == NONE ? NULL : &c->nodes.at[slot];
        if (n && n->shown_status == VIEW_THERE + n->status)
                return;
        if (n)
                n->shown_status = (uint8_t)(VIEW_THERE + n->status);
        const char *word = !n                                       ? NULL
                           : n->status == PB__NODE_STATUS__E__Ready ? "Ready"
                                                                    : "NotReady";
        record_put(at, arena_printf(a, "/nodes/%s/status", id), (void *)word, text_bytes(word));
}

const struct record_kind node_records = {
        RECORD_TABLE(nodes, struct node),
        .name = name,
        .find = find,
        .pack = pack,
        .load = load,
        .put_back = put_back,
        .views = put_view,
        .n_views = 1,
};
