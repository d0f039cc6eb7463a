/* server/ops.c: the table of operations, and how a request over HTTP becomes its request
 * message. */
#include "server/ops.h"

#include "base/array.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/validate.h"
#include "persys_control.pb-c.h"
#include <stdio.h>
#include <string.h>

#define REQ(m) &pb__##m##__descriptor
#define CONTROL "/berth.v1.Control/"
#define PC(m) &pc__##m##__descriptor
#define PERSYS "/persys.control.v1.AgentControl/"
#define REFLECTION(version) "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo"
#define PERSYS_CLUSTER "/persys/clusters/{cluster_id}"
#define GET "GET"
#define PUT "PUT"
#define POST "POST"
#define DELETE "DELETE"

const struct op ops[] = {
        { "CreateWorkload", OP_CORE, INPUT_APPLY, REQ(apply_workload_request), REQ(workload), POST,
          "/workloads", 200, "workload", "create_only=true", NULL, "workloads",
          "Create a workload; the same definition again changes nothing, another one is a conflict",
          NULL, NEEDS_OPERATOR },
        { "ApplyWorkload", OP_CORE, INPUT_APPLY, REQ(apply_workload_request), REQ(workload), PUT,
          "/workloads/{id}", 200, "workload", NULL, CONTROL "ApplyWorkload", "workloads",
          "Create or change a workload", NULL, NEEDS_OPERATOR },
        { "ApplyWorkloads", OP_CORE, INPUT_APPLY_MANY, REQ(apply_workloads_request),
          REQ(apply_workloads_response), POST, "/workloads:batch", 200, "*", NULL,
          CONTROL "ApplyWorkloads", "workloads",
          "Create or change up to 1,000 workloads, each with its own result, in their order", NULL,
          NEEDS_OPERATOR },
        { "DeleteWorkload", OP_CORE, INPUT_DELETE, REQ(workload_ref), REQ(workload), DELETE,
          "/workloads/{id}", 200, NULL, NULL, CONTROL "DeleteWorkload", "workloads",
          "Stop a workload and remove it", NULL, NEEDS_OPERATOR },
        { "GetWorkload", OP_CORE, INPUT_GET_WORKLOAD, REQ(workload_ref), REQ(workload), GET,
          "/workloads/{id}", 200, NULL, NULL, CONTROL "GetWorkload", "workloads", "One workload",
          NULL, NEEDS_VIEWER },
        { "ListWorkloads", OP_CORE, INPUT_LIST_WORKLOADS, REQ(list_workloads_request),
          REQ(list_workloads_response), GET, "/workloads", 200, NULL, NULL, CONTROL "ListWorkloads",
          "workloads", "Workloads by id, with selectors and a cursor", NULL, NEEDS_VIEWER },
        { "RetryWorkload", OP_CORE, INPUT_RETRY, REQ(workload_ref), REQ(workload), POST,
          "/workloads/{id}/retry", 200, NULL, NULL, CONTROL "RetryWorkload", "workloads",
          "Try a failed workload again now, and forget its earlier attempts", NULL,
          NEEDS_OPERATOR },
        { "ReleaseWorkload", OP_CORE, INPUT_RELEASE, REQ(workload_ref), REQ(workload), POST,
          "/workloads/{id}/release", 200, NULL, NULL, CONTROL "ReleaseWorkload", "workloads",
          "Say that no earlier copy of an exclusive workload runs any more: it is started "
          "elsewhere at once, a pinned one too",
          NULL, NEEDS_ADMIN },
        { "StopWorkload", OP_CORE, INPUT_DESIRED, REQ(set_desired_request), REQ(workload), POST,
          "/workloads/{id}/stop", 200, NULL, "desired_state=Stopped", NULL, "workloads",
          "Stop a workload and keep it", NULL, NEEDS_OPERATOR },
        { "StartWorkload", OP_CORE, INPUT_DESIRED, REQ(set_desired_request), REQ(workload), POST,
          "/workloads/{id}/start", 200, NULL, "desired_state=Running", NULL, "workloads",
          "Start a stopped workload", NULL, NEEDS_OPERATOR },
        { "SetDesired", OP_CORE, INPUT_DESIRED, REQ(set_desired_request), REQ(workload), NULL, NULL,
          200, NULL, NULL, CONTROL "SetDesired", "workloads", "Set what is wanted of a workload",
          NULL, NEEDS_OPERATOR },
        { "ExplainWorkload", OP_EXPLAIN, INPUT_EXPLAIN, REQ(workload_ref), REQ(explanation), GET,
          "/workloads/{id}/explain", 200, NULL, NULL, CONTROL "ExplainWorkload", "workloads",
          "Why a workload is where it is, or why it is nowhere", NULL, NEEDS_VIEWER },
        { "GetLogs", OP_LOGS, INPUT_LOCATE, REQ(logs_request), NULL, GET, "/workloads/{id}/logs",
          200, NULL, NULL, CONTROL "Logs", "workloads",
          "What a workload wrote; follow goes on until it ends", "text/plain", NEEDS_VIEWER },
        { "Exec", OP_EXEC, INPUT_LOCATE, REQ(exec_message), REQ(exec_output), NULL, NULL, 200, NULL,
          NULL, CONTROL "Exec", "workloads", "Run a command beside a workload", NULL,
          NEEDS_OPERATOR },

        { "ListNodes", OP_CORE, INPUT_LIST_NODES, REQ(list_nodes_request), REQ(list_nodes_response),
          GET, "/nodes", 200, NULL, NULL, CONTROL "ListNodes", "nodes",
          "Nodes by id, with selectors and a cursor", NULL, NEEDS_VIEWER },
        { "GetNode", OP_CORE, INPUT_GET_NODE, REQ(node_ref), REQ(node), GET, "/nodes/{id}", 200,
          NULL, NULL, CONTROL "GetNode", "nodes", "One node", NULL, NEEDS_VIEWER },
        { "CordonNode", OP_CORE, INPUT_NODE_WISH, REQ(set_node_wish_request), REQ(node), POST,
          "/nodes/{id}/cordon", 200, NULL, "wish=cordoned", NULL, "nodes",
          "Place nothing new on a node", NULL, NEEDS_OPERATOR },
        { "UncordonNode", OP_CORE, INPUT_NODE_WISH, REQ(set_node_wish_request), REQ(node), POST,
          "/nodes/{id}/uncordon", 200, NULL, "wish=schedulable", NULL, "nodes",
          "Place units on a node again", NULL, NEEDS_OPERATOR },
        { "DrainNode", OP_CORE, INPUT_NODE_WISH, REQ(set_node_wish_request), REQ(node), POST,
          "/nodes/{id}/drain", 200, "?", "wish=draining", NULL, "nodes",
          "Move everything away from a node; what fits nowhere else is stopped after "
          "deadline_seconds (0: never)",
          NULL, NEEDS_OPERATOR },
        { "DisableNode", OP_CORE, INPUT_NODE_WISH, REQ(set_node_wish_request), REQ(node), POST,
          "/nodes/{id}/disable", 200, NULL, "wish=disabled", NULL, "nodes",
          "Take a node out of service; what runs there stays", NULL, NEEDS_OPERATOR },
        { "SetNodeWish", OP_CORE, INPUT_NODE_WISH, REQ(set_node_wish_request), REQ(node), NULL,
          NULL, 200, NULL, NULL, CONTROL "SetNodeWish", "nodes", "Set what is wanted of a node",
          NULL, NEEDS_OPERATOR },
        { "SetTaints", OP_CORE, INPUT_NODE_TAINTS, REQ(set_taints_request), REQ(node), PUT,
          "/nodes/{id}/taints", 200, "*", NULL, CONTROL "SetTaints", "nodes",
          "Set a node's taints, all of them; what does not tolerate them stays away (no-schedule) "
          "or leaves (no-execute)",
          NULL, NEEDS_OPERATOR },
        { "ForgetNode", OP_CORE, INPUT_NODE_FORGET, REQ(node_ref), REQ(node), DELETE, "/nodes/{id}",
          200, NULL, NULL, CONTROL "ForgetNode", "nodes", "Forget a node that will not come back",
          NULL, NEEDS_ADMIN },
        { "FenceNode", OP_CORE, INPUT_NODE_FENCE, REQ(node_ref), REQ(node), POST,
          "/nodes/{id}/fence", 200, NULL, NULL, CONTROL "FenceNode", "nodes",
          "Say that a silent node is surely off: exclusive workloads need not wait for its lease "
          "any more",
          NULL, NEEDS_ADMIN },
        { "ExpelNode", OP_CORE, INPUT_NODE_EXPEL, REQ(node_ref), REQ(node), POST,
          "/nodes/{id}/expel", 200, NULL, NULL, CONTROL "ExpelNode", "nodes",
          "Throw a node out: its certificates and tokens end, its units move at once, and it comes "
          "back only by a new join token",
          NULL, NEEDS_ADMIN },
        { "SetNodeLabels", OP_CORE, INPUT_NODE_LABELS, REQ(set_node_labels_request), REQ(node), PUT,
          "/nodes/{id}/labels", 200, "*", NULL, CONTROL "SetNodeLabels", "nodes",
          "Set the operator's labels of a node, all of them; they go before what its agent says",
          NULL, NEEDS_OPERATOR },
        { "SetNodeCapacity", OP_CORE, INPUT_NODE_CAPACITY, REQ(set_node_capacity_request),
          REQ(node), PUT, "/nodes/{id}/capacity", 200, "*", NULL, CONTROL "SetNodeCapacity",
          "nodes", "Bound what is used of a node, whatever its agent says it has; 0: no bound",
          NULL, NEEDS_OPERATOR },

        { "EvictNode", OP_CORE, INPUT_EVICT_NODE, REQ(node_ref), REQ(node), POST,
          "/nodes/{id}/evict", 200, NULL, NULL, CONTROL "EvictNode", "nodes",
          "Move a silent node's units now, although it is held or paced; exclusive ones still wait "
          "for its lease",
          NULL, NEEDS_OPERATOR },
        { "EvictLost", OP_CORE, INPUT_EVICT_LOST, REQ(empty), REQ(evict_response), POST, "/evict",
          200, NULL, NULL, CONTROL "EvictLost", "nodes",
          "Move the units of all nodes that are lost now, although they are held or paced", NULL,
          NEEDS_OPERATOR },

        { "SetQuota", OP_CORE, INPUT_QUOTA_SET, REQ(set_quota_request), REQ(quota), PUT,
          "/quotas/{tenant}", 200, "quota", NULL, CONTROL "SetQuota", "quotas",
          "Limit what a tenant may use in all, and how often it may write", NULL, NEEDS_ADMIN },
        { "GetQuota", OP_CORE, INPUT_GET_QUOTA, REQ(tenant_ref), REQ(quota), GET,
          "/quotas/{tenant}", 200, NULL, NULL, CONTROL "GetQuota", "quotas",
          "A tenant's limits and what it uses", NULL, NEEDS_VIEWER },
        { "ListQuotas", OP_CORE, INPUT_LIST_QUOTAS, REQ(list_quotas_request),
          REQ(list_quotas_response), GET, "/quotas", 200, NULL, NULL, CONTROL "ListQuotas",
          "quotas", "All tenants that have a quota, with what they use", NULL, NEEDS_VIEWER },
        { "RemoveQuota", OP_CORE, INPUT_QUOTA_REMOVE, REQ(tenant_ref), REQ(quota), DELETE,
          "/quotas/{tenant}", 200, NULL, NULL, CONTROL "RemoveQuota", "quotas",
          "Take a tenant's limits away", NULL, NEEDS_ADMIN },
        { "Plan", OP_PLAN, INPUT_PLAN, REQ(plan_request), REQ(plan_response), POST, "/plan", 200,
          "*", NULL, CONTROL "Plan", "cluster",
          "What would happen: one of apply, remove, drain_node, lose_nodes, add_nodes_like; "
          "nothing is changed",
          NULL, NEEDS_VIEWER },

        { "AdoptNode", OP_CORE, INPUT_ADOPT, REQ(adopt_request), REQ(adopt_response), POST,
          "/nodes/{id}/adopt", 200, "?", NULL, CONTROL "AdoptNode", "nodes",
          "Take over what a node runs and the records do not know: workload_ids, or all of it; "
          "nothing is restarted. A node of another "
          "cluster is taken over first",
          NULL, NEEDS_OPERATOR },

        { "CreateToken", OP_TOKEN, INPUT_TOKEN_CREATE, REQ(create_token_request),
          REQ(create_token_response), POST, "/tokens", 200, "*", NULL, CONTROL "CreateToken",
          "access", "Create a token; its secret is shown in the answer, and nowhere else", NULL,
          NEEDS_ADMIN },
        { "ListTokens", OP_CORE, INPUT_LIST_TOKENS, REQ(list_tokens_request),
          REQ(list_tokens_response), GET, "/tokens", 200, NULL, NULL, CONTROL "ListTokens",
          "access", "Tokens by name, without their secrets", NULL, NEEDS_ADMIN },
        { "RevokeToken", OP_CORE, INPUT_TOKEN_REVOKE, REQ(token_ref), REQ(access_token), DELETE,
          "/tokens/{name}", 200, NULL, NULL, CONTROL "RevokeToken", "access", "End a token now",
          NULL, NEEDS_ADMIN },
        { "Login", OP_LOGIN, _INPUT_MAX, REQ(empty), REQ(empty), POST, "/session", 200, NULL, NULL,
          NULL, "access",
          "Keep the token of this call in a cookie that scripts cannot read: for the dashboard",
          NULL, NEEDS_VIEWER },
        { "Logout", OP_LOGOUT, _INPUT_MAX, REQ(empty), REQ(empty), DELETE, "/session", 200, NULL,
          NULL, NULL, "access", "Take that cookie away", NULL, NEEDS_NOTHING },
        { "GetTrust", OP_TRUST, _INPUT_MAX, REQ(empty), REQ(trust), GET, "/trust", 200, NULL, NULL,
          CONTROL "GetTrust", "access", "The CAs that this cluster's members trust", NULL,
          NEEDS_NOTHING },
        { "JoinNode", OP_JOIN, INPUT_TOKEN_USE, REQ(join_request), REQ(certificate), POST,
          "/nodes:join", 200, "*", NULL, CONTROL "JoinNode", "access",
          "A certificate for a node, by a join token that works once", NULL, NEEDS_NOTHING },
        { "RenewCertificate", OP_RENEW, INPUT_GET_NODE, REQ(renew_request), REQ(certificate), POST,
          "/nodes:renew", 200, "*", NULL, CONTROL "RenewCertificate", "access",
          "A new certificate for the node whose certificate the caller shows", NULL, NEEDS_NODE },

        { "ListAlerts", OP_CORE, INPUT_LIST_ALERTS, REQ(list_alerts_request),
          REQ(list_alerts_response), GET, "/alerts", 200, NULL, NULL, CONTROL "ListAlerts",
          "events", "Alerts of automation rules that are raised now", NULL, NEEDS_VIEWER },
        { "ListEvents", OP_EVENTS, INPUT_GET_WORKLOAD, REQ(list_events_request),
          REQ(list_events_response), GET, "/events", 200, NULL, NULL, CONTROL "ListEvents",
          "events",
          "Stored events; next_since is the next call's since (its before, with newest_first)",
          NULL, NEEDS_VIEWER },
        { "WatchEvents", OP_WATCH, INPUT_GET_WORKLOAD, REQ(list_events_request), REQ(event), GET,
          "/events/stream", 200, NULL, NULL, CONTROL "WatchEvents", "events",
          "Server-sent events: what is stored after since (or Last-Event-ID), then what happens; "
          "`gap` where history is gone",
          "text/event-stream", NEEDS_VIEWER },

        { "GetCluster", OP_CLUSTER, INPUT_CLUSTER, REQ(empty), REQ(cluster_info), GET, "/cluster",
          200, NULL, NULL, CONTROL "GetCluster", "cluster", "The cluster in figures", NULL,
          NEEDS_VIEWER },
        { "GetHealth", OP_HEALTH, _INPUT_MAX, NULL, NULL, GET, "/health", 200, NULL, NULL, NULL,
          "cluster", "ok, or degraded while the store is away", NULL, NEEDS_NOTHING },
        { "GetMetrics", OP_METRICS, _INPUT_MAX, NULL, NULL, GET, "/metrics", 200, NULL, NULL, NULL,
          "cluster", "For Prometheus", "text/plain", NEEDS_VIEWER },
        { "GetOpenAPI", OP_OPENAPI, _INPUT_MAX, NULL, NULL, GET, "/openapi.json", 200, NULL, NULL,
          NULL, "cluster", "This document", NULL, NEEDS_NOTHING },
        { "GetPage", OP_PAGE, _INPUT_MAX, NULL, NULL, GET, "/", 200, NULL, NULL, NULL, "cluster",
          "Where to begin", "text/html", NEEDS_NOTHING },
        { "AgentConnect", OP_AGENT, INPUT_HELLO, REQ(agent_message), REQ(server_message), NULL,
          NULL, 200, NULL, NULL, "/berth.v1.Agent/Connect", "agents", "The stream of an agent",
          NULL, NEEDS_NODE },

        { "PersysRegisterNode", OP_PERSYS, _INPUT_MAX, PC(register_node_request),
          PC(register_node_response), NULL, NULL, 200, NULL, NULL, PERSYS "RegisterNode", "persys",
          "A foreign agent says what it is", NULL, NEEDS_NODE },
        { "PersysHeartbeat", OP_PERSYS, _INPUT_MAX, PC(heartbeat_request), PC(heartbeat_response),
          NULL, NULL, 200, NULL, NULL, PERSYS "Heartbeat", "persys", "A foreign agent is alive",
          NULL, NEEDS_NODE },
        { "PersysApplyWorkload", OP_PERSYS, _INPUT_MAX, PC(apply_workload_request),
          PC(apply_workload_response), POST, "/persys/workloads/schedule", 200, NULL, NULL,
          PERSYS "ApplyWorkload", "persys", "Create or change a workload", NULL, NEEDS_OPERATOR },
        { "PersysDeleteWorkload", OP_PERSYS, _INPUT_MAX, PC(delete_workload_request),
          PC(delete_workload_response), DELETE, "/persys/workloads/{id}", 200, NULL, NULL,
          PERSYS "DeleteWorkload", "persys", "Stop a workload and remove it", NULL,
          NEEDS_OPERATOR },
        { "PersysRetryWorkload", OP_PERSYS, _INPUT_MAX, PC(retry_workload_request),
          PC(retry_workload_response), POST, "/persys/workloads/{id}/retry", 200, NULL, NULL,
          PERSYS "RetryWorkload", "persys", "Try a failed workload again now", NULL,
          NEEDS_OPERATOR },
        { "PersysSubmitAutomationSuggestion", OP_PERSYS, _INPUT_MAX,
          PC(submit_automation_suggestion_request), PC(submit_automation_suggestion_response), NULL,
          NULL, 200, NULL, NULL, PERSYS "SubmitAutomationSuggestion", "persys",
          "What an automation service advises", NULL, NEEDS_OPERATOR },
        { "PersysListNodes", OP_PERSYS, _INPUT_MAX, PC(list_nodes_request), PC(list_nodes_response),
          GET, "/persys/nodes", 200, NULL, NULL, PERSYS "ListNodes", "persys", "Nodes", NULL,
          NEEDS_VIEWER },
        { "PersysGetNode", OP_PERSYS, _INPUT_MAX, PC(get_node_request), PC(get_node_response), GET,
          "/persys/nodes/{id}", 200, NULL, NULL, PERSYS "GetNode", "persys", "One node", NULL,
          NEEDS_VIEWER },
        { "PersysListWorkloads", OP_PERSYS, _INPUT_MAX, PC(list_workloads_request),
          PC(list_workloads_response), GET, "/persys/workloads", 200, NULL, NULL,
          PERSYS "ListWorkloads", "persys", "Workloads", NULL, NEEDS_VIEWER },
        { "PersysGetWorkload", OP_PERSYS, _INPUT_MAX, PC(get_workload_request),
          PC(get_workload_response), GET, "/persys/workloads/{id}", 200, NULL, NULL,
          PERSYS "GetWorkload", "persys", "One workload", NULL, NEEDS_VIEWER },
        { "PersysGetClusterSummary", OP_PERSYS, _INPUT_MAX, PC(get_cluster_summary_request),
          PC(get_cluster_summary_response), GET, "/persys/cluster/metrics", 200, NULL, NULL,
          PERSYS "GetClusterSummary", "persys", "The cluster in figures", NULL, NEEDS_VIEWER },
        { "PersysControlStream", OP_PERSYS, _INPUT_MAX, PC(control_message), PC(control_message),
          NULL, NULL, 200, NULL, NULL, PERSYS "ControlStream", "persys", "Served nowhere", NULL,
          NEEDS_NODE },
        { "PersysHealth", OP_PERSYS, _INPUT_MAX, NULL, NULL, GET, "/persys/health", 200, NULL, NULL,
          NULL, "persys", "Of the gateway", NULL, NEEDS_NOTHING },
        { "PersysList", OP_PERSYS, _INPUT_MAX, PC(list_workloads_request),
          PC(list_workloads_response), GET, "/persys/list", 200, NULL, NULL, NULL, "persys",
          "Workloads, by the gateway's older name", NULL, NEEDS_VIEWER },
        { "PersysClusters", OP_PERSYS, _INPUT_MAX, NULL, NULL, GET, "/persys/clusters", 200, NULL,
          NULL, NULL, "persys", "The one cluster that there is", NULL, NEEDS_VIEWER },
        { "Reflection", OP_REFLECTION, _INPUT_MAX, NULL, NULL, NULL, NULL, 200, NULL, NULL,
          REFLECTION("v1"), "cluster", "What is served", NULL, NEEDS_NOTHING },
        { "ReflectionAlpha", OP_REFLECTION, _INPUT_MAX, NULL, NULL, NULL, NULL, 200, NULL, NULL,
          REFLECTION("v1alpha"), "cluster", "The same, by its older name", NULL, NEEDS_NOTHING },
        { "PersysCluster", OP_PERSYS, _INPUT_MAX, NULL, NULL, GET, PERSYS_CLUSTER, 200, NULL, NULL,
          NULL, "persys", "One cluster", NULL, NEEDS_VIEWER },
};
const size_t n_ops = ARRAY_LEN(ops);

size_t op_index(const struct op *op)
{
        return (size_t)(op - ops);
}

const char *op_name(size_t index)
{
        return index < n_ops ? ops[index].name : "";
}

const char *op_grpc_path(size_t index)
{
        return index < n_ops ? ops[index].rpc : NULL;
}

const struct op *op_by_route(const char *method, const char *pattern)
{
        if (str_starts(pattern, "/v1/") || str_eq(pattern, "/v1"))
                pattern = pattern[3] ? pattern + 3 : "/";
        char buf[128];
        if (str_starts(pattern, PERSYS_CLUSTER "/") && strlen(pattern) < sizeof(buf)) {
                snprintf(buf, sizeof(buf), "/persys%s", pattern + strlen(PERSYS_CLUSTER));
                pattern = buf;
        }
        if (str_eq(method, "HEAD"))
                method = GET;
        for (size_t i = 0; i < n_ops; i++)
                if (ops[i].path && str_eq(ops[i].path, pattern) && str_eq(ops[i].method, method))
                        return &ops[i];
        return NULL;
}

uint64_t op_resource_version(const ProtobufCMessage *m)
{
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "resource_version");
        return f && f->type == PROTOBUF_C_TYPE_UINT64
                   ? *(const uint64_t *)((const char *)m + f->offset)
                   : 0;
}

const char *op_second_path(const struct op *op)
{
        if (op->kind != OP_PERSYS)
                return str_eq(op->path, "/") ? "/v1" : fmt("/v1%s", op->path);
        if (str_starts(op->path, "/persys/clusters"))
                return NULL;
        return fmt(PERSYS_CLUSTER "%s", op->path + strlen("/persys"));
}

/* ---- decoding ---- */

static const ProtobufCFieldDescriptor *field_named(const struct op *op, const char *name)
{
        return op->request ? protobuf_c_message_descriptor_get_field_by_name(op->request, name)
                           : NULL;
}

static bool in_path(const struct op *op, const char *name)
{
        size_t n = strlen(name);
        for (const char *p = op->path; p && (p = strchr(p, '{')); p++)
                if (strncmp(p + 1, name, n) == 0 && p[n + 1] == '}')
                        return true;
        return false;
}

static bool is_fixed(const struct op *op, const char *name)
{
        size_t n = strlen(name);
        return op->fixed && strncmp(op->fixed, name, n) == 0 && op->fixed[n] == '=';
}

/* How users write a field in a query, where that differs. */
static const char *query_alias(const char *field)
{
        return str_eq(field, "tail_lines") ? "tail" : field;
}

static bool is_optional_body(const struct op *op)
{
        return op->body && str_eq(op->body, "?");
}

const ProtobufCMessageDescriptor *op_body_type(const struct op *op)
{
        return !op->body ? NULL
               : op_body_is_request(op) || is_optional_body(op)
                   ? op->request
                   : field_named(op, op->body)->descriptor;
}

static bool is_query(const struct op *op, const ProtobufCFieldDescriptor *f)
{
        if (f->type == PROTOBUF_C_TYPE_MESSAGE || f->label == PROTOBUF_C_LABEL_REPEATED)
                return false;
        if (in_path(op, f->name) || is_fixed(op, f->name) ||
            (op->body && (str_eq(op->body, f->name) || op_body_is_request(op))))
                return false;
        if (str_eq(f->name, "if_match") || str_eq(f->name, "create_only") ||
            str_eq(f->name, "update_only"))
                return false; /* headers say this: If-Match, If-None-Match */
        if (str_eq(f->name, "check_index") && str_eq(op->method, GET))
                return false; /* looking needs no plan */
        if (op->kind == OP_TOKEN && (str_eq(f->name, "hash") || str_eq(f->name, "if_no_admin")))
                return false; /* the server's own */
        return !((op->kind == OP_EVENTS || op->kind == OP_WATCH) && str_eq(f->name, "follow")) &&
               !(op->kind == OP_WATCH && (str_eq(f->name, "newest_first") ||
                                          str_eq(f->name, "before") || str_eq(f->name, "limit")));
}

int op_each_query(const struct op *op,
                  int (*fn)(void *ctx, const char *name, const ProtobufCFieldDescriptor *field),
                  void *ctx)
{
        for (unsigned i = 0; op->request && i < op->request->n_fields; i++) {
                const ProtobufCFieldDescriptor *f = &op->request->fields[i];
                int r = is_query(op, f) ? fn(ctx, query_alias(f->name), f) : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

struct query_names {
        const char *names[32];
        size_t n;
};

static int collect_name(void *ctx, const char *name, const ProtobufCFieldDescriptor *field)
{
        struct query_names *q = ctx;
        (void)field;
        if (q->n < ARRAY_LEN(q->names) - 3)
                q->names[q->n++] = name;
        return 0;
}

static int unknown_parameter(const struct op *op, const char *name, struct err *err)
{
        struct query_names q = { 0 };
        op_each_query(op, collect_name, &q);
        q.names[q.n++] = "pretty";
        q.names[q.n++] = "consistent";
        const char *near = str_suggest(name, q.names);
        struct str all = STR_INIT;
        for (size_t i = 0; i < q.n; i++)
                str_addf(&all, "%s%s", i ? ", " : "", q.names[i]);
        const char *hint =
            near ? fmt("did you mean %s?", near) : fmt("known ones: %s", str_c(&all));
        if ((op->kind == OP_EVENTS) && str_eq(name, "follow"))
                hint = "GET /events/stream follows";
        str_fini(&all);
        return err_set(err, ERR_INVALID, .msg = "unknown query parameter",
                       .detail = fmt("\"%.100s\"", name), .hint = hint, .path = name);
}

struct alias_search {
        const char *name;
        const ProtobufCFieldDescriptor *found;
};

static int match_name(void *ctx, const char *name, const ProtobufCFieldDescriptor *field)
{
        struct alias_search *s = ctx;
        if (str_eq(name, s->name) || str_eq(field->name, s->name))
                s->found = field;
        return 0;
}

static int decode_query(const struct op *op, const struct op_text *t, ProtobufCMessage *m,
                        struct arena *arena, bool *ret_pretty, struct err *err)
{
        for (size_t i = 0; i < t->n_query; i++) {
                const char *name = t->query_name(t->ctx, i), *value = t->query_value(t->ctx, i);
                /* whoever serves it looks at it: only the leader shall answer */
                if (str_eq(name, "consistent"))
                        continue;
                if (str_eq(name, "pretty")) {
                        *ret_pretty = !str_eq(value, "false") && !str_eq(value, "0");
                        continue;
                }
                struct alias_search s = { .name = name };
                if (m)
                        op_each_query(op, match_name, &s);
                if (!s.found)
                        return unknown_parameter(op, name, err);
                for (size_t j = 0; j < i; j++)
                        if (str_eq(t->query_name(t->ctx, j), name))
                                return err_set(err, ERR_INVALID,
                                               .msg = "a query parameter is given twice",
                                               .path = name);
                if (s.found->type == PROTOBUF_C_TYPE_BOOL &&
                    (str_empty(value) || str_eq(value, "1")))
                        value = "true"; /* ?follow */
                else if (s.found->type == PROTOBUF_C_TYPE_BOOL && str_eq(value, "0"))
                        value = "false";
                int r = json_set_text(m, s.found->name, value, arena, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int set_fixed(const struct op *op, ProtobufCMessage *m, struct arena *arena, struct err *err)
{
        if (str_empty(op->fixed))
                return 0;
        const char *eq = strchr(op->fixed, '=');
        return json_set_text(m, arena_strndup(arena, op->fixed, (size_t)(eq - op->fixed)), eq + 1,
                             arena, err);
}

/* "123", with or without quotes, strong or weak. */
static int parse_etag(const char *text, uint64_t *ret)
{
        char digits[24];
        if (str_starts(text, "W/"))
                text += 2;
        size_t n = strlen(text);
        if (n >= 2 && text[0] == '"' && text[n - 1] == '"') {
                text++;
                n -= 2;
        }
        if (n == 0 || n >= sizeof(digits))
                return -1;
        memcpy(digits, text, n);
        digits[n] = 0;
        return str_parse_u64(digits, ret);
}

static int set_preconditions(const struct op *op, const struct op_text *t, ProtobufCMessage *m,
                             struct err *err)
{
        const ProtobufCFieldDescriptor *match = field_named(op, "if_match");
        bool apply = op->request == REQ(apply_workload_request);
        if (t->if_match && match) {
                if (str_eq(t->if_match, "*")) {
                        if (apply)
                                ((Pb__ApplyWorkloadRequest *)m)->update_only = true;
                } else if (parse_etag(t->if_match, (uint64_t *)((char *)m + match->offset)) < 0)
                        return err_set(err, ERR_INVALID,
                                       .msg = "If-Match must be the resource_version (ETag) of "
                                              "what you saw, or *",
                                       .detail = fmt("\"%.64s\"", t->if_match), .path = "If-Match");
        }
        if (t->if_none_match && apply) {
                if (!str_eq(t->if_none_match, "*"))
                        return err_set(
                            err, ERR_INVALID,
                            .msg = "If-None-Match can only be * here (create, never change)",
                            .path = "If-None-Match");
                ((Pb__ApplyWorkloadRequest *)m)->create_only = true;
        }
        return 0;
}

static int set_path_id(const struct op *op, const struct op_text *t, ProtobufCMessage *m,
                       struct arena *arena, struct err *err)
{
        const char *name = op->path && in_path(op, "tenant") ? "tenant"
                           : op->path && in_path(op, "name") ? "name"
                                                             : "id";
        const char *id = op->path && in_path(op, name) ? t->param(t->ctx, name) : NULL;
        if (!id)
                return 0;
        if (op->request == REQ(set_quota_request)) {
                Pb__Quota *q = ((Pb__SetQuotaRequest *)m)->quota;
                if (!str_empty(q->tenant) && !str_eq(q->tenant, id))
                        return err_set(err, ERR_INVALID,
                                       .msg = "the tenant in the body is not the one in the path",
                                       .path = "tenant",
                                       .detail = fmt("\"%.128s\" and \"%.128s\"", q->tenant, id),
                                       .hint = "leave it out of the body, or make them equal");
                q->tenant = arena_strdup(arena, id);
                return 0;
        }
        if (op->request == REQ(apply_workload_request)) {
                Pb__Workload *w = ((Pb__ApplyWorkloadRequest *)m)->workload;
                if (!str_empty(w->id) && !str_eq(w->id, id))
                        return err_set(err, ERR_INVALID,
                                       .msg = "the id in the body is not the one in the path",
                                       .path = "id",
                                       .detail = fmt("\"%.128s\" and \"%.128s\"", w->id, id),
                                       .hint = "leave it out of the body, or make them equal");
                w->id = arena_strdup(arena, id);
                return 0;
        }
        return json_set_text(m, name, id, arena, err);
}

static bool is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
        const void *at = (const char *)m + f->offset;
        return f->type == PROTOBUF_C_TYPE_STRING
                   ? !str_empty(*(char *const *)at)
                   : f->type == PROTOBUF_C_TYPE_ENUM && *(const int *)at != 0;
}

/* The body is the request itself, but for what the path says already. */
static int decode_optional_body(const struct op *op, const struct op_text *t, struct arena *arena,
                                ProtobufCMessage **ret, struct err *err)
{
        if (strspn(t->body, " \t\r\n") >= t->body_len) {
                *ret = pb_new(arena, op->request);
                return 0;
        }
        int r = json_read(op->request, t->body, t->body_len, t->max_body_bytes, 0, arena, ret, err);
        for (unsigned i = 0; r >= 0 && i < op->request->n_fields; i++) {
                const ProtobufCFieldDescriptor *f = &op->request->fields[i];
                if ((in_path(op, f->name) || is_fixed(op, f->name)) && is_set(*ret, f))
                        return err_set(err, ERR_INVALID, .msg = "the path says this already",
                                       .path = f->name, .hint = "leave it out of the body");
        }
        return r;
}

static int decode_body(const struct op *op, const struct op_text *t, ProtobufCMessage **m,
                       struct arena *arena, struct err *err)
{
        if (is_optional_body(op))
                return 0;
        if (!op->body) {
                for (size_t i = 0; i < t->body_len; i++)
                        /* an empty object is what some clients send with every POST */
                        if (!strchr(" \t\r\n{}", t->body[i]))
                                return err_set(err, ERR_INVALID, .msg = "this call takes no body",
                                               .detail = fmt("%zu bytes were sent", t->body_len));
                return 0;
        }
        const ProtobufCMessageDescriptor *type = op_body_type(op);
        if (t->body_len == 0)
                return err_set(err, ERR_INVALID, .msg = "the request has no body",
                               .hint = fmt("send a %s as JSON", type->short_name));
        ProtobufCMessage *body = NULL;
        int r = json_read(type, t->body, t->body_len, t->max_body_bytes, 0, arena, &body, err);
        if (r < 0)
                return r;
        if (op_body_is_request(op))
                *m = body;
        else
                *(ProtobufCMessage **)((char *)*m + field_named(op, op->body)->offset) = body;
        return 0;
}

/* Over HTTP the body is the field itself, so its name is no part of the path that the caller
 * knows. */
static void strip_body_field(const struct op *op, struct err *err)
{
        size_t n = op->body ? strlen(op->body) : 0;
        if (n > 0 && err && strncmp(err->path, op->body, n) == 0 && err->path[n] == '.')
                memmove(err->path, err->path + n + 1, strlen(err->path + n + 1) + 1);
}

int op_decode_text(const struct op *op, const struct op_text *t, struct arena *arena,
                   ProtobufCMessage **ret_request, bool *ret_pretty, struct err *err)
{
        ProtobufCMessage *m = op->request ? pb_new(arena, op->request) : NULL;
        bool pretty = false;
        int r = is_optional_body(op) ? decode_optional_body(op, t, arena, &m, err) : 0;
        if (r < 0)
                return r;
        r = decode_query(op, t, m, arena, &pretty, err);
        if (r < 0)
                return r;
        if (m) {
                if ((r = decode_body(op, t, &m, arena, err)) < 0 ||
                    (r = set_path_id(op, t, m, arena, err)) < 0 ||
                    (r = set_fixed(op, m, arena, err)) < 0 ||
                    (r = set_preconditions(op, t, m, err)) < 0)
                        return r;
                if (op->kind == OP_WATCH && !str_empty(t->last_event_id) &&
                    str_parse_u64(t->last_event_id, &((Pb__ListEventsRequest *)m)->since) < 0)
                        return err_set(err, ERR_INVALID,
                                       .msg = "Last-Event-ID must be the sequence of an event",
                                       .path = "Last-Event-ID");
                if ((r = request_normalise(arena, m, err)) < 0) {
                        strip_body_field(op, err);
                        return r;
                }
        }
        *ret_request = m;
        *ret_pretty = pretty;
        return 0;
}

int op_decode_packed(const struct op *op, const void *data, size_t len, struct arena *arena,
                     ProtobufCMessage **ret_request, struct err *err)
{
        ProtobufCMessage *m = NULL;
        int r = pb_unpack(op->request, data, len, arena, &m, err);
        if (r < 0 || (r = request_normalise(arena, m, err)) < 0)
                return r;
        *ret_request = m;
        return 0;
}
