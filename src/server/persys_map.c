/* server/persys_map.c: see persys_map.h. Nodes, heartbeats and what callers see; specs are in
 * persys_spec.c. */
#include "server/persys_map.h"

#include "base/clock.h"
#include "base/str.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/rules.h"
#include "model/validate.h"
#include <string.h>

#define DEFAULT_AGENT_PORT 50051
#define TYPES_MAX 16
#define DRIVERS_MAX 32

#define NEW(arena, ns, name) pb_new((arena), &ns##__##name##__descriptor)

Google__Protobuf__Timestamp *persys_time(struct arena *arena, int64_t unix_ms)
{
        if (unix_ms == 0)
                return NULL;
        Google__Protobuf__Timestamp *t =
            (Google__Protobuf__Timestamp *)NEW(arena, google__protobuf, timestamp);
        t->seconds = unix_ms / 1000 - (unix_ms % 1000 < 0);
        t->nanos = (int32_t)(unix_ms - t->seconds * 1000) * 1000000;
        return t;
}

bool persys_is_default_cluster(const char *id)
{
        return str_empty(id) || str_eq(id, "default");
}

Pb__DesiredState__E persys_desired(const char *text)
{
        if (str_case_eq(text, "stop") || str_case_eq(text, "stopped"))
                return PB__DESIRED_STATE__E__Stopped;
        if (str_case_eq(text, "delete") || str_case_eq(text, "deleted"))
                return PB__DESIRED_STATE__E__Deleted;
        return PB__DESIRED_STATE__E__Running;
}

Pb__WorkloadType__E persys_type(const char *text)
{
        static const struct {
                const char *name;
                Pb__WorkloadType__E type;
        } names[] = {
                { "container", PB__WORKLOAD_TYPE__E__container },
                { "docker-container", PB__WORKLOAD_TYPE__E__container },
                { "compose", PB__WORKLOAD_TYPE__E__compose },
                { "docker-compose", PB__WORKLOAD_TYPE__E__compose },
                { "vm", PB__WORKLOAD_TYPE__E__vm },
                { "process", PB__WORKLOAD_TYPE__E__process },
        };
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (str_case_eq(text, names[i].name))
                        return names[i].type;
        return PB__WORKLOAD_TYPE__E__unset;
}

/* ---- nodes that register ---- */

static int bad_endpoint(const char *text, const char *why, struct err *err)
{
        return err_set(err, ERR_INVALID,
                       .msg = fmt("invalid grpc_endpoint \"%.100s\": %s", text, why),
                       .path = "grpc_endpoint");
}

/* "10.0.0.1:4711" and "[::1]:4711" without port and brackets. */
static const char *host_part(struct arena *arena, const char *text, size_t len)
{
        if (len >= 2 && text[0] == '[' && text[len - 1] == ']')
                return arena_strndup(arena, text + 1, len - 2);
        return arena_strndup(arena, text, len);
}

int persys_endpoint(struct arena *arena, const char *text, const char *peer, char **ret_endpoint,
                    struct err *err)
{
        const char *colon = strrchr(text, ':');
        uint64_t port = 0;
        if (!colon)
                return bad_endpoint(text, "missing port, write host:port", err);
        if (str_parse_u64(colon + 1, &port) < 0 || port > 65535)
                return bad_endpoint(text, "the port is no number from 0 to 65535", err);
        const char *host = host_part(arena, text, (size_t)(colon - text));
        if (!host[0]) {
                const char *end = peer ? strrchr(peer, ':') : NULL;
                host = end ? host_part(arena, peer, (size_t)(end - peer)) : "127.0.0.1";
        }
        char *whole = arena_printf(arena, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host,
                                   port ? (unsigned)port : DEFAULT_AGENT_PORT);
        const char *bad = rule_text_check(RULE_ENDPOINT, whole, strlen(whole));
        if (bad || strlen(whole) > 300)
                return bad_endpoint(text, "the host is no name and no address", err);
        *ret_endpoint = whole;
        return 0;
}

static void add_type(Pb__Hello *h, Pb__WorkloadType__E type)
{
        for (size_t i = 0; i < h->n_supported_workload_types; i++)
                if (h->supported_workload_types[i] == type)
                        return;
        if (h->n_supported_workload_types < TYPES_MAX)
                h->supported_workload_types[h->n_supported_workload_types++] = type;
}

/* An agent that names none runs everything but machines. Names that berth does not know are of no
 * use to it. */
static int take_types(struct arena *arena, const Pc__NodeCapabilities *c, Pb__Hello *h,
                      struct err *err)
{
        h->supported_workload_types =
            arena_alloc(arena, TYPES_MAX * sizeof(*h->supported_workload_types));
        for (size_t i = 0; i < c->n_supported_workload_types; i++) {
                Pb__WorkloadType__E type = persys_type(c->supported_workload_types[i]);
                if (type != PB__WORKLOAD_TYPE__E__unset)
                        add_type(h, type);
        }
        if (c->n_supported_workload_types == 0) {
                add_type(h, PB__WORKLOAD_TYPE__E__container);
                add_type(h, PB__WORKLOAD_TYPE__E__compose);
        }
        if (h->n_supported_workload_types == 0)
                return err_set(
                    err, ERR_INVALID,
                    .msg = "none of supported_workload_types is container, compose, vm or process",
                    .path = "capabilities.supported_workload_types");
        return 0;
}

/* Lower case, once each, "local" first. */
static void take_drivers(struct arena *arena, const Pc__NodeCapabilities *c, Pb__Hello *h)
{
        size_t n = c->n_supported_storage_drivers < DRIVERS_MAX ? c->n_supported_storage_drivers
                                                                : DRIVERS_MAX;
        h->supported_storage_drivers = arena_alloc(arena, (n + 1) * sizeof(char *));
        h->supported_storage_drivers[h->n_supported_storage_drivers++] = (char *)"local";
        for (size_t i = 0; i < n; i++) {
                char *name = arena_strdup(arena, c->supported_storage_drivers[i]);
                bool known = false;
                for (char *p = name; *p; p++)
                        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p == '_' ? '-' : *p;
                for (size_t k = 0; k < h->n_supported_storage_drivers; k++)
                        known |= str_eq(h->supported_storage_drivers[k], name);
                if (name[0] && !known)
                        h->supported_storage_drivers[h->n_supported_storage_drivers++] = name;
        }
}

/* Only shown: it must not keep a node out. */
static char *plain_version(struct arena *arena, const char *text)
{
        char *v = arena_strndup(arena, text, strnlen(text, 64));
        for (char *p = v; *p; p++)
                if (*p <= 0x20 || *p >= 0x7f)
                        *p = '-';
        return v;
}

int persys_to_hello(struct arena *arena, const Pc__RegisterNodeRequest *r, const char *peer,
                    Pb__Hello **ret_hello, struct err *err)
{
        const Pc__NodeCapabilities none = PC__NODE_CAPABILITIES__INIT,
                                   *c = r->capabilities ? r->capabilities : &none;
        Pb__Hello *h = (Pb__Hello *)NEW(arena, pb, hello);
        h->push = true;
        h->protocol = 1;
        h->node_id = r->node_id;
        if (!persys_is_default_cluster(r->cluster_id))
                h->cluster_id = r->cluster_id;
        h->cpu = c->cpu_total_millicores;
        h->memory_mb = c->memory_total_mb;
        for (size_t i = 0; i < c->n_storage_pools; i++)
                if (c->storage_pools[i]->total_gb > 0 &&
                    __builtin_add_overflow(h->disk_gb, c->storage_pools[i]->total_gb, &h->disk_gb))
                        h->disk_gb = INT64_MAX; /* refused by its rule */
        h->agent_version = plain_version(arena, r->agent_version);
        const char *colon = peer ? strrchr(peer, ':') : NULL;
        h->ip = (char *)(colon ? host_part(arena, peer, (size_t)(colon - peer)) : "");
        pb_map_copy(arena, &h->base, "labels", r->labels, r->n_labels);
        take_drivers(arena, c, h);
        int rc = persys_endpoint(arena, r->grpc_endpoint, peer, &h->agent_endpoint, err);
        if (rc == 0)
                rc = take_types(arena, c, h, err);
        if (rc == 0)
                /* sorted, so that the same labels again are no change */
                rc = pb_normalise_maps(&h->base, err);
        if (rc == 0)
                *ret_hello = h;
        return rc;
}

/* ---- heartbeats ---- */

static int64_t within(int64_t v, const char *field)
{
        const struct rule *rule = rule_find("NodeUsage", field);
        return v < 0 ? 0 : v > rule->max ? rule->max : v;
}

Pb__Heartbeat *persys_to_heartbeat(struct arena *arena, const Pc__HeartbeatRequest *r)
{
        Pb__Heartbeat *b = (Pb__Heartbeat *)NEW(arena, pb, heartbeat);
        if (r->usage) {
                b->usage = (Pb__NodeUsage *)NEW(arena, pb, node_usage);
                b->usage->cpu_used = within(r->usage->cpu_used_millicores, "cpu_used");
                b->usage->memory_used_mb = within(r->usage->memory_used_mb, "memory_used_mb");
                b->usage->disk_used_gb = within(r->usage->disk_used_gb, "disk_used_gb");
        }
        return b;
}

static Pb__ActualState__E state_of(const char *text)
{
        int value;
        if (str_case_eq(text, "deleted") || str_case_eq(text, "not_found"))
                return PB__ACTUAL_STATE__E__Missing;
        return json_enum_value(&pb__actual_state__e__descriptor, text, true, &value) == 0
                   ? (Pb__ActualState__E)value
                   : PB__ACTUAL_STATE__E__Unknown;
}

static Pb__Reason__E reason_of(Pc__FailureReason reason)
{
        switch (reason) {
        case PC__FAILURE_REASON__IMAGE_PULL_FAILED:
        case PC__FAILURE_REASON__IMAGE_NOT_FOUND:
                return PB__REASON__E__image_unavailable;
        case PC__FAILURE_REASON__INVALID_SPEC:
                return PB__REASON__E__invalid_spec;
        case PC__FAILURE_REASON__FAILURE_REASON_UNSPECIFIED:
                return PB__REASON__E__none;
        default:
                return PB__REASON__E__start_failed;
        }
}

Pb__UnitReport *persys_to_report(struct arena *arena, const Pc__HeartbeatRequest *r)
{
        Pb__UnitReport *report = (Pb__UnitReport *)NEW(arena, pb, unit_report);
        report->units = arena_alloc(arena, (r->n_workload_statuses + 1) * sizeof(*report->units));
        for (size_t i = 0; i < r->n_workload_statuses; i++) {
                const Pc__WorkloadStatus *s = r->workload_statuses[i];
                if (!id_is_valid(s->workload_id))
                        continue;
                Pb__UnitStatus *u = (Pb__UnitStatus *)NEW(arena, pb, unit_status);
                u->unit_id = s->workload_id;
                u->state = state_of(s->state);
                u->reason = reason_of(s->failure_reason);
                if (u->reason == PB__REASON__E__none && u->state == PB__ACTUAL_STATE__E__Failed)
                        u->reason = PB__REASON__E__crashed;
                u->message = arena_strndup(arena, s->message, strnlen(s->message, 4096));
                report->units[report->n_units++] = u;
        }
        return report;
}

/* ---- what callers see ---- */

static char *name_or(const ProtobufCEnumDescriptor *type, int value, const char *otherwise)
{
        const char *name = json_enum_name(type, value);
        return (char *)(name ? name : otherwise);
}

/* IMAGE_UNAVAILABLE: as codes look in that dialect. */
static char *reason_code(struct arena *arena, Pb__Reason__E reason)
{
        char *code = arena_strdup(arena, name_or(&pb__reason__e__descriptor, (int)reason, ""));
        for (char *p = code; *p; p++)
                *p = *p == '-' ? '_' : *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
        return code;
}

Pc__WorkloadView *persys_workload_view(struct arena *arena, const Pb__Workload *w)
{
        Pc__WorkloadView *v = (Pc__WorkloadView *)NEW(arena, pc, workload_view);
        v->workload_id = w->id;
        v->type = name_or(&pb__workload_type__e__descriptor, (int)w->type, "");
        v->desired_state =
            name_or(&pb__desired_state__e__descriptor, (int)w->desired_state, "Running");
        v->status = (char *)"Unknown";
        v->assigned_node_id = w->assigned_node;
        v->revision_id = w->revision_id;
        if (w->retry) {
                v->retry_attempts = w->retry->attempts;
                v->retry_max_attempts = w->retry->max_attempts;
                v->retry_next_at = persys_time(arena, w->retry->next_retry_at);
        }
        const Pb__WorkloadStatus *s = w->status;
        if (!s)
                return v;
        v->status = name_or(&pb__phase__e__descriptor, (int)s->phase, "Unknown");
        v->failure_reason = s->failure_reason;
        v->last_updated = persys_time(arena, s->last_updated);
        if (s->reason == PB__REASON__E__none)
                return v;
        v->reason = (Pc__ReasonDetail *)NEW(arena, pc, reason_detail);
        v->reason->code = reason_code(arena, s->reason);
        v->reason->message = s->failure_reason;
        v->reason->last_transition = persys_time(arena, s->last_updated);
        v->reason->next_retry_at = v->retry_next_at;
        v->reason->retryable =
            s->phase == PB__PHASE__E__RetryPending || s->phase == PB__PHASE__E__Pending;
        return v;
}

Pc__NodeView *persys_node_view(struct arena *arena, const Pb__Node *n)
{
        Pc__NodeView *v = (Pc__NodeView *)NEW(arena, pc, node_view);
        v->node_id = n->id;
        v->status = name_or(&pb__node_status__e__descriptor, (int)n->status, "Unknown");
        v->status_reason = n->status_reason;
        v->status_updated_by = n->status_updated_by;
        v->status_updated_at = persys_time(arena, n->status_updated_at);
        v->last_heartbeat = persys_time(arena, n->last_heartbeat);
        v->grpc_endpoint = n->agent_endpoint;
        if (n->resources) {
                const Pb__NodeResources *r = n->resources;
                int64_t cpu = r->cpu_total - r->cpu_allocated,
                        memory = r->memory_total - r->memory_allocated;
                v->total_cpu_cores = (double)r->cpu_total / 1000;
                v->available_cpu_cores = cpu > 0 ? (double)cpu / 1000 : 0;
                v->total_memory_mb = r->memory_total;
                v->available_memory_mb = memory > 0 ? memory : 0;
        }
        v->supported_workload_types =
            arena_alloc(arena, (n->n_supported_workload_types + 1) * sizeof(char *));
        for (size_t i = 0; i < n->n_supported_workload_types; i++) {
                const char *name = json_enum_name(&pb__workload_type__e__descriptor,
                                                  (int)n->supported_workload_types[i]);
                if (name)
                        v->supported_workload_types[v->n_supported_workload_types++] = (char *)name;
        }
        pb_map_copy(arena, &v->base, "labels", n->labels, n->n_labels);
        return v;
}

static int32_t narrow(int64_t v)
{
        return v > INT32_MAX ? INT32_MAX : (int32_t)v;
}

/* Every workload is counted once; what is stopped or completed only in the total, for which the
 * dialect has no other place. */
Pc__GetClusterSummaryResponse *persys_summary(struct arena *arena, const Pb__ClusterInfo *i,
                                              int64_t now_ms)
{
        Pc__GetClusterSummaryResponse *s =
            (Pc__GetClusterSummaryResponse *)NEW(arena, pc, get_cluster_summary_response);
        s->total_nodes = i->nodes;
        s->ready_nodes = i->nodes_ready;
        s->not_ready_nodes = i->nodes - i->nodes_ready;
        s->total_workloads = narrow(i->workloads);
        s->running_workloads = narrow(i->workloads_running);
        s->pending_workloads =
            narrow(i->workloads_pending + i->workloads_scheduled + i->workloads_updating +
                   i->workloads_retrying + i->workloads_unknown);
        s->failed_workloads = narrow(i->workloads_failed);
        s->deleted_workloads = narrow(i->workloads_deleting);
        s->generated_at = persys_time(arena, now_ms);
        return s;
}
