/* server/push_calls.c: calls to one node that is called: few at a time, each with a deadline; and
 * whether the node can be reached at all. See push_node.h. */
#include "server/push_calls.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/pb.h"
#include <event2/event.h>
#include <string.h>

#define PROBE_MIN_MS 1000
#define PROBE_MAX_MS 30000
#define LIST_AGAIN_MS 5000
#define ACTIONS_MAX 16 /* the newest; an agent has other kinds as well */

struct push_call {
        struct push_node *node;
        struct push_unit *unit; /* NULL: a list, or its unit is gone */
        enum push_rpc rpc;
        enum push_step step;
        /* of the wish; of a list: what had been taken when it was asked for */
        uint64_t session, seq, epoch;
        Pb__DesiredState__E desired;
        int64_t began_ms, began_ns;
        struct arena memory;
        ProtobufCMessage *response;
        bool garbled;
};

static const struct {
        const char *path;
        const ProtobufCMessageDescriptor *response;
} rpcs[_RPC_MAX] = {
        [RPC_APPLY] = { "/persys.agent.v1.AgentService/ApplyWorkload",
                        &pa__apply_workload_response__descriptor },
        [RPC_DELETE] = { "/persys.agent.v1.AgentService/DeleteWorkload",
                         &pa__delete_workload_response__descriptor },
        [RPC_STATUS] = { "/persys.agent.v1.AgentService/GetWorkloadStatus",
                         &pa__get_workload_status_response__descriptor },
        [RPC_LIST] = { "/persys.agent.v1.AgentService/ListWorkloads",
                       &pa__list_workloads_response__descriptor },
        [RPC_ACTIONS] = { "/persys.agent.v1.AgentService/ListActions",
                          &pa__list_actions_response__descriptor },
        [RPC_HEALTH] = { "/persys.agent.v1.AgentService/HealthCheck",
                         &pa__health_check_response__descriptor },
};

/* ---- reach ---- */

/* (C3), C23 */
void push_node_down(struct push_node *n, const char *why)
{
        int64_t wait = n->probe_wait_ms == 0 ? PROBE_MIN_MS : n->probe_wait_ms * 2;
        n->probe_wait_ms = wait > PROBE_MAX_MS ? PROBE_MAX_MS : wait;
        n->probe_at_ms = mono_ms() + n->probe_wait_ms;
        if (n->down)
                return;
        n->down = true;
        mem_free(n->why);
        n->why = mem_strdup(why);
        log_warn("an agent cannot be called", LOG_S("node", n->id), LOG_S("endpoint", n->target),
                 LOG_S("reason", why));
        push_wants_flush(n);
}

void push_node_up(struct push_node *n)
{
        n->probe_wait_ms = 0;
        if (!n->heard)
                push_wants_flush(n);
        n->heard = true;
        if (!n->down)
                return;
        n->down = false;
        log_info("an agent can be called again", LOG_S("node", n->id),
                 LOG_S("endpoint", n->target));
        push_wants_flush(n);
}

void push_node_beat(struct push_node *n)
{
        /* it lives: it is worth another try */
        if (n->down && n->probe_at_ms > mono_ms() + PROBE_MIN_MS) {
                n->probe_at_ms = mono_ms() + PROBE_MIN_MS;
                push_pump(n);
        }
}

/* ---- one call ---- */

void push_call_detach(struct push_call *call)
{
        call->unit = NULL;
}

static void on_message(struct grpc_call *grpc, const void *data, size_t len)
{
        struct push_call *c = grpc_call_data(grpc);
        struct err err = { 0 };
        if (c->response)
                return;
        if (pb_unpack(rpcs[c->rpc].response, data, len, &c->memory, &c->response, &err) < 0) {
                c->garbled = true;
                log_warn("an agent's answer cannot be read", LOG_S("node", c->node->id),
                         LOG_S("rpc", rpcs[c->rpc].path), LOG_E(&err));
        }
}

static void probe_ended(struct push_call *c, enum push_verdict verdict);

static void list_ended(struct push_call *c, enum push_verdict verdict)
{
        struct push_node *n = c->node;
        if (c->session != n->session)
                return;
        n->listing = false;
        if (verdict == PUSH_OK) {
                push_listed(n, (const Pa__ListWorkloadsResponse *)c->response, c->seq);
        } else if (verdict !=
                   /* it answers, but has no list for us: each unit is looked at by itself */
                   PUSH_UNREACHABLE) {
                n->syncing = false;
                n->list_due = true;
                n->list_at_ms = mono_ms() + LIST_AGAIN_MS;
                push_node_up(n);
        } else
                n->list_due = true;
        push_forget_gone(n);
}

static void unit_call_ended(struct push_call *c, enum push_verdict verdict, enum grpc_status status,
                            const char *message)
{
        struct push_node *n = c->node;
        struct push_unit *u = c->unit;
        u->call = NULL;
        if (verdict != PUSH_UNREACHABLE && !n->down)
                push_node_up(n);
        if (u->epoch != c->epoch || u->seq != c->seq || u->desired != c->desired) {
                /* a newer wish came meanwhile; what it needs is due already. But an unanswered
                 * apply may yet arrive: it goes by the newer one, which replaces it. */
        } else if (verdict == PUSH_OK && c->rpc == RPC_APPLY)
                push_applied(n, u, (const Pa__ApplyWorkloadResponse *)c->response);
        else if (verdict == PUSH_OK && c->rpc == RPC_DELETE)
                push_asked_to_delete(n, u, (const Pa__DeleteWorkloadResponse *)c->response);
        else if (verdict == PUSH_OK && c->rpc == RPC_ACTIONS)
                push_told_actions(n, u, (const Pa__ListActionsResponse *)c->response);
        else if (c->rpc == RPC_ACTIONS && verdict != PUSH_UNREACHABLE)
                push_told_no_actions(n, u, verdict == PUSH_REFUSED);
        else if (verdict == PUSH_OK)
                push_looked(n, u, ((const Pa__GetWorkloadStatusResponse *)c->response)->status);
        else if (verdict == PUSH_MISSING && c->rpc == RPC_STATUS)
                push_looked(n, u, NULL);
        else
                push_failed(n, u, c->step, verdict, status, message);
}

/* What came while its call was under way goes on now, if the unit is still there. */
static void resume_unit(struct push_node *n, uint32_t ix)
{
        struct push_unit *u = n->units.at[ix];
        if (!u || !u->again || u->call)
                return;
        u->again = false;
        heap_set(&n->due, ix, mono_ms());
}

static void on_close(struct grpc_call *grpc, enum grpc_status status)
{
        struct push_call *c = grpc_call_data(grpc);
        struct push_node *n = c->node;
        const char *message = grpc_call_message(grpc);
        enum push_verdict verdict = push_verdict(status, message);
        n->in_flight--;
        metrics_agent_rpc(&n->io->s->metrics, c->rpc, (int)status, clock_mono_ns() - c->began_ns);
        log_debug("agent call", LOG_S("node", n->id), LOG_S("rpc", rpcs[c->rpc].path),
                  LOG_S("workload", c->unit ? c->unit->id : ""),
                  LOG_S("status", grpc_status_name(status)), LOG_S("message", message),
                  LOG_I("ms", mono_ms() - c->began_ms));
        if (verdict == PUSH_OK && (c->garbled || !c->response))
                verdict = PUSH_AGAIN;
        /* One slow answer among others is not a silent agent. */
        if (status == GRPC_DEADLINE_EXCEEDED && n->answered_ms > c->began_ms)
                verdict = PUSH_AGAIN;
        if (verdict != PUSH_UNREACHABLE)
                n->answered_ms = mono_ms();
        else if (!n->closing && n->session && c->session == n->session)
                push_node_down(n, fmt("%s: %s", grpc_status_name(status),
                                      str_empty(message) ? "no answer in time" : message));
        if (n->closing || !n->session) {
                if (c->unit)
                        c->unit->call = NULL;
        } else if (c->rpc == RPC_LIST)
                list_ended(c, verdict);
        else if (c->rpc == RPC_HEALTH)
                probe_ended(c, verdict);
        else if (c->unit) {
                uint32_t ix = c->unit->ix;
                unit_call_ended(c, verdict, status, message);
                resume_unit(n, ix);
        }
        arena_fini(&c->memory);
        mem_free(c);
        if (!n->closing)
                push_pump(n);
}

static void begin(struct push_node *n, struct push_call *c, const void *request, size_t len)
{
        static const struct grpc_callbacks callbacks = { .on_message = on_message,
                                                         .on_close = on_close };
        struct grpc_call_options o = { .deadline_ms = CALL_MS };
        c->node = n;
        c->session = n->session;
        c->began_ms = mono_ms();
        c->began_ns = clock_mono_ns();
        n->in_flight++;
        struct grpc_call *grpc =
            grpc_channel_call(n->channel, rpcs[c->rpc].path, &o, &callbacks, c);
        grpc_call_send(grpc, request, len);
        grpc_call_half_close(grpc);
}

static void begin_list(struct push_node *n)
{
        struct push_call *c = mem_must(sizeof(*c));
        c->rpc = RPC_LIST;
        c->seq = push_taken_seq(n);
        n->listing = true;
        n->list_due = false;
        begin(n, c, "", 0);
}

/* Being alive is not being of use: only its list, which it has to ask of its own heart, makes a
 * node reachable again. */
static void probe_ended(struct push_call *c, enum push_verdict verdict)
{
        struct push_node *n = c->node;
        if (c->session != n->session)
                return;
        n->probing = false;
        if (verdict != PUSH_UNREACHABLE && !n->listing)
                begin_list(n);
}

static void begin_probe(struct push_node *n)
{
        struct push_call *c = mem_must(sizeof(*c));
        c->rpc = RPC_HEALTH;
        n->probing = true;
        grpc_channel_connect(n->channel); /* now, whatever its own back-off says */
        begin(n, c, "", 0);
}

static void begin_unit(struct push_node *n, struct push_unit *u)
{
        struct push_call *c = mem_must(sizeof(*c));
        struct str packed = STR_INIT;
        c->unit = u;
        c->step = u->next == STEP_APPLY && !u->request ? STEP_LOOK : u->next;
        c->epoch = u->epoch;
        c->seq = u->seq;
        c->desired = u->desired;
        u->call = c;
        if (c->step == STEP_APPLY) {
                c->rpc = RPC_APPLY;
                begin(n, c, u->request, u->request_len);
                return;
        }
        Pa__GetWorkloadStatusRequest look = PA__GET_WORKLOAD_STATUS_REQUEST__INIT;
        Pa__DeleteWorkloadRequest del = PA__DELETE_WORKLOAD_REQUEST__INIT;
        Pa__ListActionsRequest actions = PA__LIST_ACTIONS_REQUEST__INIT;
        look.id = del.id = actions.workload_id = u->id;
        actions.newest_first = true;
        actions.limit = ACTIONS_MAX;
        c->rpc = c->step == STEP_DELETE    ? RPC_DELETE
                 : c->step == STEP_ACTIONS ? RPC_ACTIONS
                                           : RPC_STATUS;
        pb_pack(&packed, c->step == STEP_DELETE    ? &del.base
                         : c->step == STEP_ACTIONS ? &actions.base
                                                   : &look.base);
        begin(n, c, packed.buf, packed.len);
        str_fini(&packed);
}

/* ---- what is due ---- */

static void arm(struct push_node *n, int64_t at_ms)
{
        int64_t wait = at_ms - mono_ms();
        if (at_ms == HEAP_NEVER) {
                evtimer_del(n->timer);
                return;
        }
        if (wait < 0)
                wait = 0;
        struct timeval tv = { wait / 1000, wait % 1000 * 1000 };
        evtimer_add(n->timer, &tv);
}

/* (C1) */
void push_pump(struct push_node *n)
{
        int64_t now = mono_ms(), next = HEAP_NEVER;
        if (!n->session || n->closing || n->whole)
                return;
        if (!n->channel) { /* a target that means nothing: nobody to be called */
                evtimer_del(n->timer);
                return;
        }
        if (n->down) {
                if (!n->probing && !n->listing && n->in_flight < CALLS_MAX && now >= n->probe_at_ms)
                        begin_probe(n);
                else if (!n->probing && !n->listing && now < n->probe_at_ms)
                        next = n->probe_at_ms;
                arm(n, next);
                return;
        }
        if (n->list_due && !n->listing && n->in_flight < CALLS_MAX && now >= n->list_at_ms)
                begin_list(n);
        else if (n->list_due && !n->listing && now < n->list_at_ms)
                next = n->list_at_ms;
        /* (C2), (C5): it goes on when the list has come, or the ring has taken the report */
        if (n->syncing || !push_may_ask(n)) {
                arm(n, next);
                return;
        }
        while (n->in_flight < CALLS_MAX && heap_next_ms(&n->due) <= now) {
                struct push_unit *u = n->units.at[heap_pop(&n->due)];
                if (u->call)
                        u->again = true; /* a newer wish than its call's: when that has ended */
                else
                        begin_unit(n, u);
        }
        if (n->in_flight < CALLS_MAX && heap_next_ms(&n->due) < next)
                next = heap_next_ms(&n->due);
        arm(n, next);
}

void push_on_timer(int fd, short what, void *node)
{
        (void)fd;
        (void)what;
        push_pump(node);
}
