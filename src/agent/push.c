/* agent/push.c: the calls of persys.agent.v1.AgentService. See push.h. */
#include "agent/push.h"

#include "agent/push_state.h"
#include "base/log.h"
#include "model/pb.h"
#include "model/validate.h"
#include "net/addr.h"
#include <string.h>
#include <unistd.h>

#define OPEN_SAY_S 3600
#define UNSET_TIME INT64_C(-62135596800) /* how that dialect writes a time that is not set */

struct push_method {
        struct agent_push *push;
        const ProtobufCMessageDescriptor *request;
        void (*serve)(struct agent_push *p, struct grpc_call *call, const ProtobufCMessage *request,
                      struct arena *arena);
};

static void reply(struct grpc_call *call, const ProtobufCMessage *m)
{
        struct str packed = STR_INIT;

        pb_pack(&packed, m);
        grpc_call_reply(call, str_c(&packed), packed.len);
        str_fini(&packed);
}

/* ---- actions ---- */

static struct action *action_add(struct agent_push *p, const char *workload_id, const char *type,
                                 struct unit_token token)
{
        struct action *x = &p->actions[p->n_actions++ % ACTIONS_MAX];

        mem_free(x->workload_id);
        mem_free(x->error);
        *x = (struct action){ .workload_id = mem_strdup(workload_id),
                              .type = type,
                              .status = "pending",
                              .token = token };
        x->created_at = clock_wall_ms() / 1000;
        agent_make_ulid(p->agent, x->task_id);
        return x;
}

static void action_end(struct action *x, const char *status, const char *error)
{
        x->status = status;
        x->error = error ? mem_strdup(error) : NULL;
        x->ended_at = clock_wall_ms() / 1000;
}

/* What has become of those that were under way. */
static void actions_settle(struct agent_push *p)
{
        struct arena arena = ARENA_INIT;

        for (size_t i = 0; i < ACTIONS_MAX; i++) {
                struct action *x = &p->actions[i];
                struct engine_unit_view view;

                if (!x->workload_id || !str_eq(x->status, "pending"))
                        continue;
                bool known = engine_unit(p->agent->engine, x->workload_id, &view);
                if (str_eq(x->type, "delete")) {
                        if (!known)
                                action_end(x, "completed", NULL);
                        continue;
                }
                if (!known || unit_token_cmp(view.token, x->token) != 0)
                        action_end(x, "failed", "something newer took its place");
                else if (view.state == PB__ACTUAL_STATE__E__Failed) {
                        const Pb__UnitStatus *u =
                            engine_status(p->agent->engine, &arena, x->workload_id);

                        action_end(x, "failed", str_empty(u->message) ? "failed" : u->message);
                } else if (view.state == PB__ACTUAL_STATE__E__Running ||
                           view.state == PB__ACTUAL_STATE__E__Stopped)
                        action_end(x, "completed", NULL);
        }
        arena_fini(&arena);
}

static bool action_fits(const struct action *x, const Pa__ListActionsRequest *q)
{
        return (str_empty(q->workload_id) || str_eq(q->workload_id, x->workload_id)) &&
               (str_empty(q->action_type) || str_case_eq(q->action_type, x->type)) &&
               (str_empty(q->status) || str_case_eq(q->status, x->status));
}

static void list_actions(struct agent_push *p, struct grpc_call *call,
                         const ProtobufCMessage *request, struct arena *arena)
{
        const Pa__ListActionsRequest *q = (const Pa__ListActionsRequest *)request;
        Pa__ListActionsResponse r = PA__LIST_ACTIONS_RESPONSE__INIT;
        uint64_t held = p->n_actions < ACTIONS_MAX ? p->n_actions : ACTIONS_MAX;
        size_t limit = q->limit > 0 ? (size_t)q->limit : ACTIONS_MAX;

        actions_settle(p);
        r.actions = arena_new_n(arena, Pa__AgentAction *, held + 1);
        for (uint64_t i = 0; i < held && r.n_actions < limit; i++) {
                uint64_t at = q->newest_first ? p->n_actions - 1 - i : p->n_actions - held + i;
                const struct action *x = &p->actions[at % ACTIONS_MAX];

                if (!action_fits(x, q))
                        continue;
                Pa__AgentAction *out = r.actions[r.n_actions++] =
                    (Pa__AgentAction *)pb_new(arena, &pa__agent_action__descriptor);
                out->task_id = arena_strdup(arena, x->task_id);
                out->workload_id = arena_strdup(arena, x->workload_id);
                out->action_type = arena_strdup(arena, x->type);
                out->status = arena_strdup(arena, x->status);
                out->error = arena_strdup(arena, x->error ? x->error : "");
                out->created_at = out->started_at = x->created_at;
                out->ended_at = x->ended_at ? x->ended_at : UNSET_TIME;
        }
        reply(call, &r.base);
}

/* ---- orders ---- */

static void order(struct agent_push *p, const char *id, struct unit_token token,
                  Pb__DesiredState__E desired, Pb__Workload *workload)
{
        struct engine *e = p->agent->engine;
        struct unit_token at = engine_cursor(e);
        Pb__Cursor cursor = PB__CURSOR__INIT;
        Pb__Token t = PB__TOKEN__INIT;
        Pb__PlanEntry unit = PB__PLAN_ENTRY__INIT, *units[] = { &unit };
        struct str packed = STR_INIT;
        Pb__Plan plan = PB__PLAN__INIT;
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;

        cursor.epoch = at.epoch;
        cursor.seq = at.seq;
        t.epoch = token.epoch;
        t.seq = token.seq;
        unit.unit_id = (char *)(uintptr_t)id;
        unit.token = &t;
        unit.desired_state = desired;
        if (workload)
                pb_pack(&packed, &workload->base);
        unit.workload = (ProtobufCBinaryData){ packed.len, (uint8_t *)packed.buf };
        plan.cursor = &cursor;
        plan.last = true;
        plan.units = units;
        plan.n_units = id ? 1 : 0;
        m.plan = &plan;
        engine_message(e, &m, agent_now(p->agent));
        str_fini(&packed);
        agent_wake(p->agent);
}

/* Larger than any that this unit has had here. */
static struct unit_token next_token(struct agent_push *p, const struct engine_unit_view *view)
{
        uint64_t now = (uint64_t)agent_now(p->agent);

        if (!view)
                return (struct unit_token){ 1, now };
        return (struct unit_token){ view->token.epoch ? view->token.epoch : 1,
                                    view->token.seq >= now ? view->token.seq + 1 : now };
}

static void refuse(struct grpc_call *call, struct arena *arena, const Pa__ApplyWorkloadRequest *q,
                   const char *code, const char *message)
{
        Pa__ApplyWorkloadResponse r = PA__APPLY_WORKLOAD_RESPONSE__INIT;

        r.message = arena_printf(arena, "failed to apply workload: %s", message);
        r.status = (Pa__WorkloadStatus *)pb_new(arena, &pa__workload_status__descriptor);
        r.status->id = q->id;
        r.status->type = q->type;
        r.status->revision_id = q->revision_id;
        r.status->desired_state = q->desired_state;
        r.status->actual_state = PA__ACTUAL_STATE__ACTUAL_STATE_FAILED;
        r.status->message = arena_strdup(arena, message);
        pb_map_set(arena, &r.status->base, "metadata", "failure_reason", code);
        reply(call, &r.base);
}

static void taken(struct agent_push *p, struct grpc_call *call, struct arena *arena, const char *id,
                  const struct action *x)
{
        Pa__ApplyWorkloadResponse r = PA__APPLY_WORKLOAD_RESPONSE__INIT;
        struct engine_unit_view view;

        r.applied = x != NULL;
        r.skipped = x == NULL;
        r.message = x ? "workload accepted" : "already as wished";
        if (engine_unit(p->agent->engine, id, &view))
                r.status =
                    push_from_status(arena, engine_status(p->agent->engine, arena, id), &view);
        if (x && r.status) { /* asynchronous: what becomes of it is in the status */
                r.status->actual_state = PA__ACTUAL_STATE__ACTUAL_STATE_PENDING;
                pb_map_set(arena, &r.status->base, "metadata", "task_id", x->task_id);
                pb_map_set(arena, &r.status->base, "metadata", "task_status", "pending");
        }
        reply(call, &r.base);
}

/* What the call asks for, in terms of the engine: false, nothing. */
static bool decide(struct agent_push *p, const struct engine_unit_view *view, const Pb__Workload *w,
                   Pb__DesiredState__E desired, struct unit_token *ret_token)
{
        bool same = view && view->desired != PB__DESIRED_STATE__E__Deleted &&
                    str_eq(view->revision_id, w->revision_id);
        bool starts_again =
            view && desired == PB__DESIRED_STATE__E__Running &&
            (view->desired != desired || view->state == PB__ACTUAL_STATE__E__Failed);

        *ret_token = same && !starts_again ? view->token : next_token(p, view);
        return !same || starts_again || view->desired != desired || !view->confirmed;
}

static bool is_older(const struct engine_unit_view *view, const char *revision)
{
        struct unit_token here, asked;

        return view && push_revision_token(view->revision_id, &here) &&
               push_revision_token(revision, &asked) && unit_token_cmp(asked, here) < 0;
}

static void apply_workload(struct agent_push *p, struct grpc_call *call,
                           const ProtobufCMessage *request, struct arena *arena)
{
        const Pa__ApplyWorkloadRequest *q = (const Pa__ApplyWorkloadRequest *)request;
        Pb__DesiredState__E desired = q->desired_state == PA__DESIRED_STATE__DESIRED_STATE_STOPPED
                                          ? PB__DESIRED_STATE__E__Stopped
                                          : PB__DESIRED_STATE__E__Running;
        struct engine_unit_view view;
        struct unit_token token;
        Pb__Workload *w = NULL;
        struct err err = { 0 };

        if (!id_is_valid(q->id)) {
                grpc_call_finish(call, GRPC_INVALID_ARGUMENT,
                                 "the id must be 1 to 128 of letters, digits, '.', '_' and '-'",
                                 NULL);
                return;
        }
        if (push_to_workload(arena, q, &w, &err) < 0) {
                refuse(call, arena, q, "INVALID_SPECIFICATION", err.msg);
                return;
        }
        if (!engine_runs(p->agent->engine, w->type)) {
                refuse(call, arena, q, "RUNTIME_NOT_AVAILABLE",
                       "runtime not available: this agent runs no such units");
                return;
        }
        bool known = engine_unit(p->agent->engine, q->id, &view);
        if (known && is_older(&view, q->revision_id)) {
                refuse(call, arena, q, "INVALID_SPECIFICATION",
                       "an older revision than the one that is here");
                return;
        }
        if (!known && engine_unit_count(p->agent->engine) >= ENGINE_MAX_UNITS) {
                refuse(call, arena, q, "INSUFFICIENT_RESOURCES",
                       "the agent holds as many units as it can");
                return;
        }
        struct action *x = NULL;
        if (decide(p, known ? &view : NULL, w, desired, &token)) {
                x = action_add(p, q->id, "apply", token);
                log_info("workload applied by call", LOG_S("node", p->agent->node_id),
                         LOG_S("workload", q->id), LOG_S("revision", q->revision_id),
                         LOG_S("task", x->task_id));
                order(p, q->id, token, desired, w);
        }
        taken(p, call, arena, q->id, x);
}

static void delete_workload(struct agent_push *p, struct grpc_call *call,
                            const ProtobufCMessage *request, struct arena *arena)
{
        const Pa__DeleteWorkloadRequest *q = (const Pa__DeleteWorkloadRequest *)request;
        Pa__DeleteWorkloadResponse r = PA__DELETE_WORKLOAD_RESPONSE__INIT;
        struct engine_unit_view view;

        (void)arena;
        r.success = true;
        r.message = "nothing of it is here";
        if (id_is_valid(q->id) && engine_unit(p->agent->engine, q->id, &view)) {
                r.message = "deletion accepted";
                if (view.desired != PB__DESIRED_STATE__E__Deleted) {
                        const struct action *x = action_add(p, q->id, "delete", view.token);

                        log_info("workload deleted by call", LOG_S("node", p->agent->node_id),
                                 LOG_S("workload", q->id), LOG_S("task", x->task_id));
                        order(p, q->id, view.token, PB__DESIRED_STATE__E__Deleted, NULL);
                }
        }
        reply(call, &r.base);
}

/* ---- what is here ---- */

static void get_status(struct agent_push *p, struct grpc_call *call,
                       const ProtobufCMessage *request, struct arena *arena)
{
        const Pa__GetWorkloadStatusRequest *q = (const Pa__GetWorkloadStatusRequest *)request;
        Pa__GetWorkloadStatusResponse r = PA__GET_WORKLOAD_STATUS_RESPONSE__INIT;
        struct engine_unit_view view;

        /* UNKNOWN, as callers of this dialect expect it */
        if (!id_is_valid(q->id) || !engine_unit(p->agent->engine, q->id, &view)) {
                grpc_call_finish(call, GRPC_UNKNOWN, fmt("status not found: %s", q->id), NULL);
                return;
        }
        r.status = push_from_status(arena, engine_status(p->agent->engine, arena, q->id), &view);
        reply(call, &r.base);
}

static void list_workloads(struct agent_push *p, struct grpc_call *call,
                           const ProtobufCMessage *request, struct arena *arena)
{
        const Pa__ListWorkloadsRequest *q = (const Pa__ListWorkloadsRequest *)request;
        Pa__ListWorkloadsResponse r = PA__LIST_WORKLOADS_RESPONSE__INIT;
        struct engine_unit_view view;
        size_t n;
        Pb__UnitStatus **all = engine_statuses(p->agent->engine, arena, &n);

        r.workloads = arena_new_n(arena, Pa__WorkloadStatus *, n + 1);
        for (size_t i = 0; i < n; i++) {
                if (!engine_unit(p->agent->engine, all[i]->unit_id, &view))
                        continue;
                Pa__WorkloadStatus *s = push_from_status(arena, all[i], &view);
                if (q->type == PA__WORKLOAD_TYPE__WORKLOAD_TYPE_UNSPECIFIED || q->type == s->type)
                        r.workloads[r.n_workloads++] = s;
        }
        reply(call, &r.base);
}

static double percent(int64_t used, int64_t total)
{
        return total > 0 ? (double)used * 100 / (double)total : 0;
}

static void health_check(struct agent_push *p, struct grpc_call *call,
                         const ProtobufCMessage *request, struct arena *arena)
{
        Pa__HealthCheckResponse *r =
            (Pa__HealthCheckResponse *)pb_new(arena, &pa__health_check_response__descriptor);
        struct runtime_usage usage = { 0 };
        const struct node_room *has = &p->agent->offers;

        (void)request;
        agent_usage(p->agent, &usage);
        r->healthy = true;
        r->version = BERTH_VERSION;
        pb_map_set(arena, &r->base, "runtime_status", p->agent->ops->name, "healthy");
        r->cpu_utilization = percent(usage.cpu_used, has->cpu);
        r->memory_utilization = percent(usage.memory_used_mb, has->memory_mb);
        r->disk_utilization = percent(usage.disk_used_gb, has->disk_gb);
        reply(call, &r->base);
}

/* ---- the service ---- */

/* With certificates only servers give orders: another node's, or a user's, is of the same CA and
 * must not. */
static bool may_order(struct agent_push *p, struct grpc_call *call)
{
        const struct tls_identity *who = grpc_call_identity(call);

        if (!p->tls || !p->agent->fleet->opt->tls_ca_file || tls_identity_is_server(who))
                return true;
        log_warn("a call was refused: its certificate is not that of a server",
                 LOG_S("node", p->agent->node_id), LOG_S("certificate", tls_identity_words(who)),
                 LOG_S("peer", grpc_call_peer(call)));
        return false;
}

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        const struct push_method *m = grpc_call_data(call);
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *request = NULL;
        struct err err = { 0 };

        if (m->push->agent->fleet->stopping)
                grpc_call_finish(call, GRPC_UNAVAILABLE, "the agent is stopping", NULL);
        else if (!may_order(m->push, call))
                grpc_call_finish(
                    call, GRPC_PERMISSION_DENIED,
                    "agents take orders of servers only, and this is another certificate", NULL);
        else if (pb_unpack(m->request, data, len, &arena, &request, &err) < 0)
                grpc_call_finish(call, GRPC_INVALID_ARGUMENT, err_line(&err), NULL);
        else
                m->serve(m->push, call, request, &arena);
        arena_fini(&arena);
}

static int add_methods(struct agent_push *p, struct err *err)
{
        static const struct {
                const char *path;
                struct push_method method;
        } table[] = {
                { "/persys.agent.v1.AgentService/ApplyWorkload",
                  { NULL, &pa__apply_workload_request__descriptor, apply_workload } },
                { "/persys.agent.v1.AgentService/DeleteWorkload",
                  { NULL, &pa__delete_workload_request__descriptor, delete_workload } },
                { "/persys.agent.v1.AgentService/GetWorkloadStatus",
                  { NULL, &pa__get_workload_status_request__descriptor, get_status } },
                { "/persys.agent.v1.AgentService/ListWorkloads",
                  { NULL, &pa__list_workloads_request__descriptor, list_workloads } },
                { "/persys.agent.v1.AgentService/HealthCheck",
                  { NULL, &pa__health_check_request__descriptor, health_check } },
                { "/persys.agent.v1.AgentService/ListActions",
                  { NULL, &pa__list_actions_request__descriptor, list_actions } },
        };

        p->methods = mem_must(sizeof(*p->methods) * ARRAY_LEN(table));
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                p->methods[i] = table[i].method;
                p->methods[i].push = p;
                struct grpc_method m = { .on.on_message = on_message,
                                         .ctx = &p->methods[i],
                                         .unary_request = true };
                int r = grpc_server_add(p->server, table[i].path, &m, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Where callers find it: what was said, else the address that it listens on; a wildcard is no
 * address, the host's name is. */
static char *endpoint_of(const struct agent_options *opt, uint16_t port)
{
        const char *colon = strrchr(opt->listen, ':');
        size_t len = colon ? (size_t)(colon - opt->listen) : 0;
        char host[256];

        if (opt->endpoint)
                return mem_strdup(opt->endpoint);
        if (len == 0 || (len == 7 && memcmp(opt->listen, "0.0.0.0", 7) == 0) ||
            (len == 4 && memcmp(opt->listen, "[::]", 4) == 0)) {
                if (gethostname(host, sizeof(host)) < 0)
                        strcpy(host, "127.0.0.1");
                host[sizeof(host) - 1] = 0;
                return mem_strdup(fmt("%s:%u", host, port));
        }
        return mem_strdup(fmt("%.*s:%u", (int)len, opt->listen, port));
}

/* For the engine this is a stream that is always there, and a plan that names nothing: what is on
 * record waits for a call that names it. */
static void engine_begin(struct agent_push *p)
{
        struct engine *e = p->agent->engine;
        Pb__Welcome welcome = PB__WELCOME__INIT;
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;

        welcome.accepted = true;
        welcome.cluster_id = (char *)(uintptr_t)engine_cluster_id(e);
        m.welcome = &welcome;
        engine_connected(e, agent_now(p->agent));
        engine_message(e, &m, agent_now(p->agent));
        order(p, NULL, (struct unit_token){ 0 }, PB__DESIRED_STATE__E__unset, NULL);
}

static void say_open(evutil_socket_t fd, short what, void *arg)
{
        struct agent_push *p = arg;

        (void)fd, (void)what;
        log_warn("anybody who reaches this agent can run commands on this machine",
                 LOG_S("node", p->agent->node_id), LOG_S("listen", p->agent->fleet->opt->listen),
                 LOG_S("hint", "give it --tls-ca, --tls-cert and --tls-key instead of --insecure"));
}

/* Whoever calls is obeyed: it must be the machine's own, or prove who it is. */
static int check_callers(struct agent_push *p, struct err *err)
{
        const struct agent_options *opt = p->agent->fleet->opt;

        if ((opt->tls_ca_file && opt->tls_cert_file) || addr_is_loopback(opt->listen))
                return 0;
        if (!opt->insecure)
                return err_set(
                    err, ERR_INVALID, .msg = "an agent that others can call needs certificates",
                    .detail =
                        fmt("--listen %s: whoever reaches it could run commands on this machine",
                            opt->listen),
                    .hint = "give --tls-ca, --tls-cert and --tls-key (berth ca issue node), or "
                            "--listen 127.0.0.1:PORT; "
                            "--insecure obeys everybody");
        p->open_to_all = event_new(p->agent->fleet->base, -1, EV_PERSIST, say_open, p);
        event_add(p->open_to_all, &(struct timeval){ .tv_sec = OPEN_SAY_S });
        say_open(-1, 0, p);
        return 0;
}

static int open_server(struct agent_push *p, struct err *err)
{
        const struct agent_options *opt = p->agent->fleet->opt;
        struct grpc_server_options so = { .address = opt->listen };
        struct tls_options to = { .cert_file = opt->tls_cert_file,
                                  .key_file = opt->tls_key_file,
                                  .ca_file = opt->tls_ca_file,
                                  .peer = opt->tls_ca_file ? TLS_PEER_REQUIRED : TLS_PEER_NONE };
        int r = 0;

        if (opt->tls_cert_file)
                r = tls_server_create(&to, &p->tls, err);
        so.tls = p->tls;
        if (r == 0)
                r = grpc_server_create(p->agent->fleet->base, &so, &p->server, err);
        return r;
}

void agent_push_reload(struct agent *a)
{
        struct err err = { 0 };

        if (a->push && a->push->tls && tls_reload(a->push->tls, &err) < 0)
                log_error("new certificate files are not used for calls of the server; the old "
                          "ones stay in force",
                          LOG_E(&err));
}

int agent_push_open(struct agent *a, struct err *err)
{
        struct agent_push *p = mem_must(sizeof(*p));
        int r;

        p->agent = a;
        a->push = p;
        if ((r = check_callers(p, err)) < 0 || (r = open_server(p, err)) < 0 ||
            (r = add_methods(p, err)) < 0)
                return r;
        p->endpoint = endpoint_of(a->fleet->opt, grpc_server_port(p->server));
        log_info("agent listens", LOG_S("node", a->node_id), LOG_S("endpoint", p->endpoint));
        engine_begin(p);
        return 0;
}

void agent_push_close(struct agent *a)
{
        struct agent_push *p = a->push;

        if (!p)
                return;
        if (p->open_to_all)
                event_free(p->open_to_all);
        grpc_server_destroy(p->server);
        tls_unref(p->tls);
        for (size_t i = 0; i < ACTIONS_MAX; i++) {
                mem_free(p->actions[i].workload_id);
                mem_free(p->actions[i].error);
        }
        mem_free(p->methods);
        mem_free(p->endpoint);
        mem_free(p);
        a->push = NULL;
}

void agent_push_dial(struct agent *a)
{
        push_dial(a->push);
}
