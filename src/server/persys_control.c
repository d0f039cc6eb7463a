/* server/persys_control.c: what the calls of the control dialect do. See persys.h.
 *
 * Failures of what was asked are answers of the dialect (success, accepted: false); gRPC statuses
 * are for calls that make no sense, for what is not there, and for reads that could not be made.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/validate.h"
#include "net/http.h"
#include "server/access.h"
#include "server/facts.h"
#include "server/io.h"
#include "server/persys.h"
#include "server/persys_map.h"
#include "server/reach.h"
#include <stdlib.h>
#include <string.h>

#define PAGE_ITEMS 1000                     /* of one read of the core */
#define LIST_BYTES (4 * 1024 * 1024 - 4096) /* what clients of this dialect take by default */
#define FROZEN "scheduler degraded/recovery mode"
#define FROZEN_LEASE_MS 30000
#define GATEWAY "persys-gateway" /* the name of the service whose paths these are */

#define NEW(p, ns, name) pb_new(&(p)->memory, &ns##__##name##__descriptor)

static bool is_blank(const char *s)
{
        return s[strspn(s, " \t\r\n")] == '\0';
}

static bool is_frozen(const struct persys *p)
{
        return server_is_degraded(p->io->s, NULL);
}

/* All that err says, as one text: this dialect has one field for it. */
static char *whole_text(struct persys *p, const struct err *err)
{
        const char *msg =
            str_starts(err->msg, "workload.") ? err->msg + strlen("workload.") : err->msg;
        return arena_printf(&p->memory, "%s%s%s%s%s", msg, err->detail[0] ? ": " : "", err->detail,
                            err->hint[0] ? "; " : "", err->hint);
}

static Pb__WorkloadRef *workload_ref(struct persys *p, const char *id)
{
        Pb__WorkloadRef *ref = (Pb__WorkloadRef *)NEW(p, pb, workload_ref);
        ref->id = (char *)id;
        return ref;
}

/* ---- ApplyWorkload, DeleteWorkload, RetryWorkload ---- */

static void answer_apply(struct persys *p, Pc__FailureReason reason, const char *message)
{
        Pc__ApplyWorkloadResponse r = PC__APPLY_WORKLOAD_RESPONSE__INIT;
        r.success = !message;
        r.failure_reason = reason;
        r.error_message = (char *)(message ? message : "");
        persys_answer(p, &r.base);
}

static void applied(struct persys *p, const struct reply *reply)
{
        const struct err *err = reply->err;
        const char *id = ((Pc__ApplyWorkloadRequest *)p->request)->workload_id;
        if (!err)
                answer_apply(p, 0, NULL);
        else if (err->code == ERR_INVALID)
                answer_apply(p, PC__FAILURE_REASON__INVALID_SPEC, whole_text(p, err));
        else if (err->code == ERR_QUOTA)
                answer_apply(p, PC__FAILURE_REASON__INSUFFICIENT_RESOURCES, whole_text(p, err));
        else if (err->code == ERR_NOT_FOUND)
                answer_apply(p, PC__FAILURE_REASON__RUNTIME_ERROR,
                             arena_printf(&p->memory, "workload %.128s not found", id));
        else
                answer_apply(p, PC__FAILURE_REASON__RUNTIME_ERROR, whole_text(p, err));
}

static void apply_spec(struct persys *p, const Pc__ApplyWorkloadRequest *r)
{
        struct err err = { 0 };
        Pb__ApplyWorkloadRequest *request =
            (Pb__ApplyWorkloadRequest *)NEW(p, pb, apply_workload_request);
        const char *given = arena_strdup(&p->memory, r->revision_id);
        if (persys_to_workload(&p->memory, r, &request->workload, &err) < 0 ||
            request_normalise(&p->memory, &request->base, &err) < 0) {
                answer_apply(p, PC__FAILURE_REASON__INVALID_SPEC, whole_text(p, &err));
                return;
        }
        request->revision_fixes = given[0] && str_eq(given, request->workload->revision_id);
        persys_ask(p, INPUT_APPLY, &request->base, applied);
}

/* Without a spec it changes what is wanted of a workload that is there. */
static void set_desired(struct persys *p, const char *id, Pb__DesiredState__E desired,
                        void (*then)(struct persys *p, const struct reply *reply))
{
        if (!id_is_valid(id)) {
                struct err err = { .code = ERR_NOT_FOUND };
                then(p, &(struct reply){ .err = &err });
        } else if (desired == PB__DESIRED_STATE__E__Deleted) {
                persys_ask(p, INPUT_DELETE, &workload_ref(p, id)->base, then);
        } else {
                Pb__SetDesiredRequest *d = (Pb__SetDesiredRequest *)NEW(p, pb, set_desired_request);
                d->id = (char *)id;
                d->desired_state = desired;
                persys_ask(p, INPUT_DESIRED, &d->base, then);
        }
}

static void apply_workload(struct persys *p)
{
        const Pc__ApplyWorkloadRequest *r = (Pc__ApplyWorkloadRequest *)p->request;
        Pb__DesiredState__E desired = persys_desired(r->desired_state);
        if (is_blank(r->workload_id))
                persys_fail(p, GRPC_INVALID_ARGUMENT, "workload_id is required");
        else if (is_frozen(p))
                answer_apply(p, PC__FAILURE_REASON__RUNTIME_ERROR, FROZEN "; control plane frozen");
        else if (!r->spec || desired == PB__DESIRED_STATE__E__Deleted)
                set_desired(p, r->workload_id, desired, applied);
        else
                apply_spec(p, r);
}

static void answer_delete(struct persys *p, const char *message)
{
        Pc__DeleteWorkloadResponse r = PC__DELETE_WORKLOAD_RESPONSE__INIT;
        r.success = !message;
        r.error_message = (char *)(message ? message : "");
        persys_answer(p, &r.base);
}

static void deleted(struct persys *p, const struct reply *reply)
{
        const char *id = ((Pc__DeleteWorkloadRequest *)p->request)->workload_id;
        if (!reply->err)
                answer_delete(p, NULL);
        else if (reply->err->code == ERR_NOT_FOUND)
                answer_delete(p, arena_printf(&p->memory, "workload %.128s not found", id));
        else
                answer_delete(p, whole_text(p, reply->err));
}

static void delete_workload(struct persys *p)
{
        const char *id = ((Pc__DeleteWorkloadRequest *)p->request)->workload_id;
        if (is_blank(id))
                persys_fail(p, GRPC_INVALID_ARGUMENT, "workload_id is required");
        else if (is_frozen(p))
                answer_delete(p, FROZEN "; control plane frozen");
        else
                set_desired(p, id, PB__DESIRED_STATE__E__Deleted, deleted);
}

static void answer_retry(struct persys *p, bool accepted)
{
        Pc__RetryWorkloadResponse r = PC__RETRY_WORKLOAD_RESPONSE__INIT;
        r.accepted = accepted;
        persys_answer(p, &r.base);
}

static void retried(struct persys *p, const struct reply *reply)
{
        answer_retry(p, !reply->err);
}

static void retry_workload(struct persys *p)
{
        const char *id = ((Pc__RetryWorkloadRequest *)p->request)->workload_id;
        if (is_blank(id))
                persys_fail(p, GRPC_INVALID_ARGUMENT, "workload_id is required");
        else if (is_frozen(p) || !id_is_valid(id))
                answer_retry(p, false);
        else
                persys_ask(p, INPUT_RETRY, &workload_ref(p, id)->base, retried);
}

/* ---- SubmitAutomationSuggestion ---- */

static void decide(struct persys *p, const char *applied_action, const char *rejected)
{
        const Pc__AutomationSuggestion *s =
            ((Pc__SubmitAutomationSuggestionRequest *)p->request)->suggestion;
        Pc__SubmitAutomationSuggestionResponse r = PC__SUBMIT_AUTOMATION_SUGGESTION_RESPONSE__INIT;
        r.accepted = !rejected;
        r.decision = (char *)(rejected ? "rejected" : "accepted");
        r.reason = (char *)(rejected ? rejected : "applied");
        r.applied_action = (char *)(rejected ? "" : applied_action);
        r.decided_at = persys_time(&p->memory, clock_wall_ms());
        log_info(
            "automation suggestion", LOG_S("decision", r.decision), LOG_S("action", applied_action),
            LOG_S("reason", r.reason), LOG_S("suggestion", s ? s->suggestion_id : ""),
            LOG_S("policy", s ? s->policy_name : ""),
            LOG_S("workload", s ? s->target_workload : ""), LOG_S("request_id", p->request_id));
        persys_answer(p, &r.base);
}

static const char *action_name(Pc__AutomationActionType type)
{
        switch (type) {
        case PC__AUTOMATION_ACTION_TYPE__AUTOMATION_ACTION_SET_DESIRED_STATE:
                return "set_desired_state";
        case PC__AUTOMATION_ACTION_TYPE__AUTOMATION_ACTION_RETRY_WORKLOAD:
                return "retry_workload";
        case PC__AUTOMATION_ACTION_TYPE__AUTOMATION_ACTION_DELETE_WORKLOAD:
                return "delete_workload";
        case PC__AUTOMATION_ACTION_TYPE__AUTOMATION_ACTION_SCALE_REPLICAS:
                return "scale_replicas";
        default:
                return "";
        }
}

static void suggested(struct persys *p, const struct reply *reply)
{
        const Pc__AutomationSuggestion *s =
            ((Pc__SubmitAutomationSuggestionRequest *)p->request)->suggestion;
        const char *why = NULL;
        if (reply->err && reply->err->code == ERR_NOT_FOUND)
                why = arena_printf(&p->memory, "workload %.128s not found", s->target_workload);
        else if (reply->err)
                why = whole_text(p, reply->err);
        decide(p, action_name(s->action_type), why);
}

static void submit_suggestion(struct persys *p)
{
        const Pc__AutomationSuggestion *s =
            ((Pc__SubmitAutomationSuggestionRequest *)p->request)->suggestion;
        if (!s || is_blank(s->target_workload)) {
                decide(p, "", "target_workload is required");
                return;
        }
        const char *id = s->target_workload;
        /* so that events say who did it, and on whose advice */
        char by[65];
        bool known = !str_eq(p->actor, "anonymous");
        io_actor(NULL,
                 fmt("%s%sautomation:%s", known ? p->actor : "", known ? "/" : "",
                     s->policy_id[0] ? s->policy_id : s->policy_name),
                 by);
        if (!str_eq(by, "anonymous"))
                memcpy(p->actor, by, sizeof(p->actor));
        if (is_frozen(p)) {
                decide(p, action_name(s->action_type), FROZEN);
                return;
        }
        switch (s->action_type) {
        case PC__AUTOMATION_ACTION_TYPE__AUTOMATION_ACTION_SET_DESIRED_STATE:
                set_desired(p, id, persys_desired(s->desired_state), suggested);
                break;
        case PC__AUTOMATION_ACTION_TYPE__AUTOMATION_ACTION_DELETE_WORKLOAD:
                set_desired(p, id, PB__DESIRED_STATE__E__Deleted, suggested);
                break;
        case PC__AUTOMATION_ACTION_TYPE__AUTOMATION_ACTION_RETRY_WORKLOAD:
                if (id_is_valid(id))
                        persys_ask(p, INPUT_RETRY, &workload_ref(p, id)->base, suggested);
                else
                        decide(p, "retry_workload",
                               arena_printf(&p->memory, "workload %.128s not found", id));
                break;
        case PC__AUTOMATION_ACTION_TYPE__AUTOMATION_ACTION_SCALE_REPLICAS:
                decide(p, "scale_replicas",
                       "replica updates are not supported by scheduler contract yet");
                break;
        default:
                decide(p, "", "unsupported action_type");
                break;
        }
}

/* ---- reading ---- */

static void not_found(struct persys *p, const char *what, const char *id)
{
        persys_fail(p, GRPC_NOT_FOUND, fmt("%s \"%.128s\" not found", what, id));
}

/* A node that was refused because it belongs elsewhere is no node of this cluster; berth's own API
 * offers it for adoption. */
static void got_node(struct persys *p, const struct reply *reply)
{
        const char *id = ((Pc__GetNodeRequest *)p->request)->node_id;
        Pc__GetNodeResponse r = PC__GET_NODE_RESPONSE__INIT;
        if (reply->err && reply->err->code == ERR_NOT_FOUND) {
                not_found(p, "node", id);
                return;
        }
        if (reply->err) {
                persys_fail_err(p, reply->err);
                return;
        }
        const Pb__Node *n = (Pb__Node *)persys_reply(p, reply, &p->memory);
        if (n && n->foreign)
                not_found(p, "node", id);
        else if (n) {
                r.node = persys_node_view(&p->memory, n);
                persys_answer(p, &r.base);
        }
}

static void get_node(struct persys *p)
{
        const char *id = ((Pc__GetNodeRequest *)p->request)->node_id;
        Pb__NodeRef *ref = (Pb__NodeRef *)NEW(p, pb, node_ref);
        ref->id = (char *)id;
        if (is_blank(id))
                persys_fail(p, GRPC_INVALID_ARGUMENT, "node_id is required");
        else if (!id_is_valid(id))
                not_found(p, "node", id);
        else
                persys_ask(p, INPUT_GET_NODE, &ref->base, got_node);
}

static void got_workload(struct persys *p, const struct reply *reply)
{
        if (reply->err && reply->err->code == ERR_NOT_FOUND) {
                not_found(p, "workload", ((Pc__GetWorkloadRequest *)p->request)->workload_id);
        } else if (reply->err) {
                persys_fail_err(p, reply->err);
        } else {
                ProtobufCMessage *m = persys_reply(p, reply, &p->memory);
                Pc__GetWorkloadResponse r = PC__GET_WORKLOAD_RESPONSE__INIT;
                if (m) {
                        r.workload = persys_workload_view(&p->memory, (Pb__Workload *)m);
                        persys_answer(p, &r.base);
                }
        }
}

static void get_workload(struct persys *p)
{
        const char *id = ((Pc__GetWorkloadRequest *)p->request)->workload_id;
        if (is_blank(id))
                persys_fail(p, GRPC_INVALID_ARGUMENT, "workload_id is required");
        else if (!id_is_valid(id))
                not_found(p, "workload", id);
        else
                persys_ask(p, INPUT_GET_WORKLOAD, &workload_ref(p, id)->base, got_workload);
}

static void got_summary(struct persys *p, const struct reply *reply)
{
        if (reply->err) {
                persys_fail_err(p, reply->err);
                return;
        }
        ProtobufCMessage *m = persys_reply(p, reply, &p->memory);
        if (m)
                persys_answer(
                    p, &persys_summary(&p->memory, (Pb__ClusterInfo *)m, clock_wall_ms())->base);
}

static void get_summary(struct persys *p)
{
        persys_ask(p, INPUT_CLUSTER, NULL, got_summary);
}

/* ---- lists: the dialect has no pages, so the core's are put together ---- */

/* Both responses hold one array, field 1: the same shape in memory. */
_Static_assert(offsetof(Pc__ListNodesResponse, nodes) ==
                       offsetof(Pc__ListWorkloadsResponse, workloads) &&
                   offsetof(Pc__ListNodesResponse, n_nodes) ==
                       offsetof(Pc__ListWorkloadsResponse, n_workloads),
               "lists have one shape");

/* False: too much; p has been answered. view may be in other memory. */
static bool list_add(struct persys *p, const ProtobufCMessage *view)
{
        Pc__ListNodesResponse *list = (Pc__ListNodesResponse *)p->list;
        p->list_bytes += protobuf_c_message_get_packed_size(view) + 6;
        if (p->list_bytes > LIST_BYTES) {
                persys_fail(p, GRPC_RESOURCE_EXHAUSTED,
                            "the list is larger than a message may be; filter it, or use the "
                            "server's own API, which has pages");
                return false;
        }
        if (p->n_list == p->list_cap) {
                size_t cap = p->list_cap ? p->list_cap * 2 : 64;
                void *more = arena_alloc(&p->memory, cap * sizeof(void *));
                if (p->n_list > 0)
                        memcpy(more, list->nodes, p->n_list * sizeof(void *));
                list->nodes = more;
                p->list_cap = cap;
        }
        list->nodes[p->n_list++] = (Pc__NodeView *)pb_clone(&p->memory, view);
        list->n_nodes = p->n_list;
        return true;
}

/* Pc__NodeView and Pc__WorkloadView begin with the id. */
_Static_assert(offsetof(Pc__NodeView, node_id) == offsetof(Pc__WorkloadView, workload_id),
               "views begin with the id");

static int by_id(const void *a, const void *b)
{
        return strcmp((*(Pc__NodeView *const *)a)->node_id, (*(Pc__NodeView *const *)b)->node_id);
}

/* In the order of their keys, as in that scheduler's store. */
static void answer_list(struct persys *p)
{
        Pc__ListNodesResponse *list = (Pc__ListNodesResponse *)p->list;
        if (p->n_list > 1)
                qsort(list->nodes, p->n_list, sizeof(*list->nodes), by_id);
        persys_answer(p, p->list);
}

static void ask_nodes(struct persys *p, const char *cursor);
static void ask_workloads(struct persys *p, const char *cursor);

static void got_nodes(struct persys *p, const struct reply *reply)
{
        struct arena page = ARENA_INIT;
        if (reply->err) {
                persys_fail_err(p, reply->err);
                return;
        }
        Pb__ListNodesResponse *m = (Pb__ListNodesResponse *)persys_reply(p, reply, &page);
        bool ok = m != NULL;
        for (size_t i = 0; ok && i < m->n_items; i++)
                ok = m->items[i]->foreign ||
                     list_add(p, &persys_node_view(&page, m->items[i])->base);
        if (ok && !str_empty(m->next_cursor))
                ask_nodes(p, m->next_cursor);
        else if (ok)
                answer_list(p);
        arena_fini(&page);
}

static void ask_nodes(struct persys *p, const char *cursor)
{
        Pb__ListNodesRequest *r = (Pb__ListNodesRequest *)NEW(p, pb, list_nodes_request);
        r->limit = PAGE_ITEMS;
        r->cursor = (char *)cursor;
        r->status = ((Pc__ListNodesRequest *)p->request)->status;
        persys_ask(p, INPUT_LIST_NODES, &r->base, got_nodes);
}

static void list_nodes(struct persys *p)
{
        const char *status = ((Pc__ListNodesRequest *)p->request)->status;
        int ignored;
        p->list = NEW(p, pc, list_nodes_response);
        if (!str_empty(status) &&
            json_enum_value(&pb__node_status__e__descriptor, status, true, &ignored) < 0)
                persys_answer(p, p->list); /* no node has it */
        else
                ask_nodes(p, "");
}

static void got_workloads(struct persys *p, const struct reply *reply)
{
        struct arena page = ARENA_INIT;
        if (reply->err && reply->err->code == ERR_NOT_FOUND) {
                persys_answer(p, p->list); /* nothing is on a node that there is not */
                return;
        }
        if (reply->err) {
                persys_fail_err(p, reply->err);
                return;
        }
        Pb__ListWorkloadsResponse *m = (Pb__ListWorkloadsResponse *)persys_reply(p, reply, &page);
        bool ok = m != NULL;
        for (size_t i = 0; ok && i < m->n_items; i++)
                ok = list_add(p, &persys_workload_view(&page, m->items[i])->base);
        if (ok && !str_empty(m->next_cursor))
                ask_workloads(p, m->next_cursor);
        else if (ok)
                answer_list(p);
        arena_fini(&page);
}

static void ask_workloads(struct persys *p, const char *cursor)
{
        const Pc__ListWorkloadsRequest *asked = (Pc__ListWorkloadsRequest *)p->request;
        Pb__ListWorkloadsRequest *r =
            (Pb__ListWorkloadsRequest *)NEW(p, pb, list_workloads_request);
        r->limit = PAGE_ITEMS;
        r->cursor = (char *)cursor;
        r->status = asked->status;
        r->node = asked->node_id;
        persys_ask(p, INPUT_LIST_WORKLOADS, &r->base, got_workloads);
}

static void list_workloads(struct persys *p)
{
        const Pc__ListWorkloadsRequest *r = (Pc__ListWorkloadsRequest *)p->request;
        int ignored;
        bool none = !str_empty(r->node_id) && !id_is_valid(r->node_id);
        none |= !str_empty(r->status) &&
                json_enum_value(&pb__phase__e__descriptor, r->status, true, &ignored) < 0;
        p->list = NEW(p, pc, list_workloads_response);
        if (none)
                persys_answer(p, p->list);
        else
                ask_workloads(p, "");
}

/* ---- nodes ---- */

static void answer_register(struct persys *p, const char *refused, int64_t beat_ms)
{
        Pc__RegisterNodeResponse r = PC__REGISTER_NODE_RESPONSE__INIT;
        r.accepted = !refused;
        r.reason = (char *)(refused ? refused : "registered");
        if (!refused) {
                int64_t seconds = (beat_ms + 999) / 1000;
                r.heartbeat_interval_seconds = seconds < 1           ? 1
                                               : seconds > INT32_MAX ? INT32_MAX
                                                                     : (int32_t)seconds;
                r.lease_expires_at = persys_time(
                    &p->memory, clock_wall_ms() + r.heartbeat_interval_seconds * INT64_C(1000) *
                                                      p->io->s->opt.core.silence_beats);
        }
        persys_answer(p, &r.base);
}

static void registered(void *ctx, const struct push_welcome *welcome, const struct err *err)
{
        struct persys *p = ctx;
        p->pushing = false;
        if (!p->grpc && !p->http)
                persys_free(p); /* its caller has gone meanwhile */
        else if (err)
                persys_fail_err(p, err);
        else if (!welcome->accepted)
                answer_register(p,
                                arena_strdup(&p->memory, str_empty(welcome->reason)
                                                             ? "refused"
                                                             : welcome->reason),
                                0);
        else
                answer_register(p, NULL, welcome->heartbeat_ms);
}

static struct credentials shown_by(const struct persys *p)
{
        return p->grpc   ? access_of_grpc(p->grpc)
               : p->http ? access_of_http(p->http)
                         : (struct credentials){ .peer = p->peer };
}

/* Is the agent the one whose certificate it shows? */
static int check_caller(struct persys *p, const char *node_id, struct err *err)
{
        struct credentials shown = shown_by(p);
        return access_check_node(p->io->access, &shown, node_id, err);
}

static void register_node(struct persys *p)
{
        const Pc__RegisterNodeRequest *r = (Pc__RegisterNodeRequest *)p->request;
        const Pc__NodeCapabilities *c = r->capabilities;
        struct err err = { 0 };
        Pb__Hello *hello = NULL;
        char *endpoint;
        if (is_blank(r->node_id))
                persys_fail(p, GRPC_INVALID_ARGUMENT, "node_id is required");
        else if (check_caller(p, r->node_id, &err) < 0)
                persys_fail_err(p, &err);
        else if (is_blank(r->grpc_endpoint))
                persys_fail(p, GRPC_INVALID_ARGUMENT, "grpc_endpoint is required");
        else if (persys_endpoint(&p->memory, r->grpc_endpoint, p->peer, &endpoint, &err) < 0)
                persys_fail(p, GRPC_INVALID_ARGUMENT, err.msg);
        else if (is_frozen(p))
                answer_register(p, FROZEN, 0);
        else if (!c || c->cpu_total_millicores <= 0 || c->memory_total_mb <= 0)
                answer_register(p, "totalCPU and totalMemory must be positive", 0);
        else if (persys_to_hello(&p->memory, r, p->peer, &hello, &err) < 0 ||
                 validate_hello(hello, &err) < 0)
                answer_register(p, whole_text(p, &err), 0);
        else if (reach_check_endpoint(p->io->reach, hello->ip, hello->agent_endpoint, &err) < 0)
                answer_register(p, whole_text(p, &err), 0);
        else {
                struct credentials shown = shown_by(p);
                access_fill_hello(p->io->access, &shown, &p->memory, hello);
                p->pushing = true;
                if (push_register(p->io->push, hello, p->request_id, registered, p, &err) < 0) {
                        p->pushing = false;
                        persys_fail_err(p, &err);
                }
        }
}

static void heartbeat(struct persys *p)
{
        const Pc__HeartbeatRequest *r = (Pc__HeartbeatRequest *)p->request;
        const struct core_options *core = &p->io->s->opt.core;
        Pc__HeartbeatResponse answer = PC__HEARTBEAT_RESPONSE__INIT;
        struct err err = { 0 };
        if (is_blank(r->node_id)) {
                persys_fail(p, GRPC_INVALID_ARGUMENT, "node_id is required");
                return;
        }
        if (check_caller(p, r->node_id, &err) < 0) {
                persys_fail_err(p, &err);
                return;
        }
        Pb__Heartbeat *beat = persys_to_heartbeat(&p->memory, r);
        Pb__UnitReport *report = persys_to_report(&p->memory, r);
        if (validate_heartbeat(beat, &err) < 0 || validate_unit_report(report, &err) < 0) {
                persys_fail_err(p, &err);
                return;
        }
        int rc =
            push_heartbeat(p->io->push, r->node_id, beat, report->units, report->n_units, &err);
        /* While the store is away nobody can be registered, and this server may have stopped
         * leading and forgotten whom it called: that is no fault of the agent, which would only ask
         * for a registration that cannot be had. It is told to register when the store is back. */
        if (rc == -ERR_NOT_FOUND && !is_frozen(p)) {
                persys_fail(p, GRPC_NOT_FOUND, fmt("node \"%.128s\" not registered", r->node_id));
                return;
        }
        if (rc < 0 && !is_frozen(p)) {
                persys_fail_err(p, &err);
                return;
        }
        int64_t lease_ms =
            is_frozen(p) ? FROZEN_LEASE_MS : core->heartbeat_ms * core->silence_beats;
        answer.acknowledged = true;
        answer.lease_expires_at = persys_time(&p->memory, clock_wall_ms() + lease_ms);
        persys_answer(p, &answer.base);
}

/* ---- the gateway's own ---- */

static void health(struct persys *p)
{
        struct server *s = p->io->s;
        struct str out = STR_INIT;
        char when[TIME_TEXT_LEN];
        char reason[256];
        bool frozen = server_is_degraded(s, reason);
        str_addf(&out, "{\"status\":\"%s\",\"service\":\"" GATEWAY "\",\"mode\":\"%s\"",
                 frozen ? "degraded" : "healthy", frozen ? "degraded" : "normal");
        if (frozen) {
                str_adds(&out, ",\"reason\":");
                json_write_string(&out, reason, strlen(reason));
        }
        str_addf(&out, ",\"modeChangedAt\":\"%s\"}",
                 time_format(when, atomic_load(&s->degraded_since_ms)));
        persys_answer_json(p, str_c(&out), out.len);
        str_fini(&out);
}

static void add_text(struct str *out, const char *name, const char *value)
{
        str_addf(out, "\"%s\":", name);
        json_write_string(out, value, strlen(value));
}

static void add_scheduler(struct str *out, const char *id, const char *address, bool leads,
                          bool healthy)
{
        char when[TIME_TEXT_LEN];
        str_adds(out, "{");
        add_text(out, "id", id);
        str_adds(out, ",");
        add_text(out, "address", address);
        str_addf(out, ",\"is_leader\":%s,\"healthy\":%s,\"last_seen\":\"%s\"}",
                 leads ? "true" : "false", healthy ? "true" : "false",
                 time_format(when, clock_wall_ms()));
}

/* Every server that is there is in the store's list of those that have announced themselves; one on
 * an embedded store is alone. */
static void add_cluster(struct persys *p, struct str *out)
{
        struct server *s = p->io->s;
        const char *id = p->io->cluster_id;
        Pb__ClusterInfo info = PB__CLUSTER_INFO__INIT;
        bool healthy = !is_frozen(p);
        server_replicas(p->io, &info, &p->memory);
        size_t n = info.n_replicas ? info.n_replicas : 1;
        str_adds(out, "{");
        add_text(out, "id", id);
        str_adds(out, ",");
        add_text(out, "name", id);
        str_addf(out,
                 ",\"routing_strategy\":\"leader-only\",\"total_schedulers\":%zu,\"healthy_"
                 "schedulers\":%zu,\"schedulers\":[",
                 n, healthy ? n : 0);
        if (!info.n_replicas)
                add_scheduler(out, s->grpc_address, s->grpc_address, p->io->leads, healthy);
        for (size_t i = 0; i < info.n_replicas; i++) {
                str_adds(out, i ? "," : "");
                add_scheduler(out, info.replicas[i]->name, info.replicas[i]->grpc_address,
                              info.replicas[i]->leads, healthy);
        }
        str_adds(out, "]}");
}

static void answer_clusters(struct persys *p, const char *field, bool list)
{
        struct str out = STR_INIT;
        str_adds(&out, "{");
        add_text(&out, "default_cluster_id", p->io->cluster_id);
        str_addf(&out, ",\"%s\":%s", field, list ? "[" : "");
        add_cluster(p, &out);
        str_adds(&out, list ? "]}" : "}");
        persys_answer_json(p, str_c(&out), out.len);
        str_fini(&out);
}

static void clusters(struct persys *p)
{
        answer_clusters(p, "clusters", true);
}

static void cluster(struct persys *p)
{
        answer_clusters(p, "cluster", false);
}

/* ---- which call is it ---- */

static const struct verb {
        const char *op;
        void (*begin)(struct persys *p);
        bool needs_cluster; /* knows the cluster's id */
} verbs[] = {
        { "PersysRegisterNode", register_node, false },
        { "PersysHeartbeat", heartbeat, false },
        { "PersysApplyWorkload", apply_workload, false },
        { "PersysDeleteWorkload", delete_workload, false },
        { "PersysRetryWorkload", retry_workload, false },
        { "PersysSubmitAutomationSuggestion", submit_suggestion, false },
        { "PersysListNodes", list_nodes, false },
        { "PersysGetNode", get_node, false },
        { "PersysListWorkloads", list_workloads, false },
        { "PersysList", list_workloads, false },
        { "PersysGetWorkload", get_workload, false },
        { "PersysGetClusterSummary", get_summary, false },
        { "PersysHealth", health, false },
        { "PersysClusters", clusters, true },
        { "PersysCluster", cluster, true },
};

static const struct verb *verb_of(const struct persys *p)
{
        for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
                if (str_eq(verbs[i].op, p->door->op->name))
                        return &verbs[i];
        return NULL;
}

/* A gateway serves several clusters; there is one here. */
static void in_this_cluster(struct persys *p)
{
        if (!persys_is_default_cluster(p->cluster) && !str_eq(p->cluster, p->io->cluster_id))
                not_found(p, "cluster", p->cluster);
        else
                verb_of(p)->begin(p);
}

static void got_cluster(struct persys *p, const struct reply *reply)
{
        if (reply->err) {
                persys_fail_err(p, reply->err);
                return;
        }
        const Pb__ClusterInfo *info = (Pb__ClusterInfo *)persys_reply(p, reply, &p->memory);
        if (!info)
                return;
        strncpy(p->io->cluster_id, info->cluster_id, sizeof(p->io->cluster_id) - 1);
        in_this_cluster(p);
}

void persys_begin(struct persys *p)
{
        const struct verb *verb = verb_of(p);
        if (!verb)
                persys_fail(p, GRPC_UNIMPLEMENTED, "not served");
        else if ((verb->needs_cluster || !str_empty(p->cluster)) && !p->io->cluster_id[0])
                persys_ask(p, INPUT_CLUSTER, NULL, got_cluster);
        else
                in_this_cluster(p);
}
