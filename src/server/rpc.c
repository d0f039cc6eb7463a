/* server/rpc.c: the gRPC door. Rows of the ops table become methods of berth.v1.Control; the bytes of the core's replies go out as they are. */
#include "base/log.h"
#include "base/mem.h"
#include "net/grpc.h"
#include "server/access.h"
#include "server/forward.h"
#include "server/io.h"
#include "server/persys.h"
#include "server/reader.h"
#include "server/reflection.h"
#include <string.h>

#define GRPC_MESSAGE_BYTES (4 * 1024 * 1024)
#define REFLECTION_MESSAGE_BYTES 16384
#define AGENT_MESSAGE_BYTES (32 * 1024 * 1024) /* a hello lists everything that a node holds */

const struct door *rpc_door(struct grpc_call *call)
{
        return *(const struct door **)grpc_call_data(call);
}

void *rpc_data(struct grpc_call *call)
{
        void *data = grpc_call_data(call);
        return *(const struct door **)data == data ? NULL : data;
}

void rpc_set_over(struct grpc_call *call, const struct door *door)
{
        grpc_call_set_data(call, (void *)door);
}

void rpc_done(struct grpc_call *call, int status)
{
        const struct door *door = rpc_door(call);
        enum op_kind kind = door->op->kind;
        bool is_stream = kind == OP_WATCH || kind == OP_LOGS || kind == OP_EXEC || kind == OP_AGENT;
        metrics_grpc(&door->io->s->metrics, op_index(door->op), status, grpc_call_age_ns(call), is_stream);
        log_debug("grpc", LOG_S("method", door->op->rpc), LOG_S("status", grpc_status_name((enum grpc_status)status)),
                  LOG_S("peer", grpc_call_peer(call)));
}

void rpc_caller(struct io *io, struct grpc_call *call, char ret_request_id[static 65], char ret_actor[static 65])
{
        struct credentials shown = access_of_grpc(call);
        struct caller who;
        access_caller(io->access, &shown, &who);
        io_request_id(io, grpc_call_header(call, "x-request-id", NULL), ret_request_id);
        strcpy(ret_actor, who.actor);
}

/* ---- unary calls ---------------------------------------------------------------------------------------------------------------------------- */

static void unary_start(struct grpc_call *grpc)
{
        const struct door *door = rpc_door(grpc);
        struct err err = { 0 };
        struct call *call = call_new(door->io->calls, door->op, &err);
        if (!call) {
                grpc_finish_err(grpc, &err, NULL);
                return;
        }
        call->grpc = grpc;
        struct credentials shown = access_of_grpc(grpc);
        struct caller who;
        access_caller(door->io->access, &shown, &who);
        call_set_caller(call, &who);
        io_request_id(door->io, grpc_call_header(grpc, "x-request-id", NULL), call->request_id);
        call->was_forwarded = grpc_call_header(grpc, FORWARDED_HEADER, NULL) != NULL;
        call->consistent = grpc_call_header(grpc, CONSISTENT_HEADER, NULL) != NULL;
        grpc_call_set_data(grpc, call);
}

static void unary_message(struct grpc_call *grpc, const void *data, size_t len)
{
        struct call *call = rpc_data(grpc);
        struct err err = { 0 };
        ProtobufCMessage *request = NULL;
        if (!call || call->msg)
                return;
        if (io_has_no_room(call->io, call->op, &err) < 0) {
                call_fail(call, &err);
                return;
        }
        call->msg = ring_msg_new(call->io->s, call->op->input);
        if (op_decode_packed(call->op, data, len, &call->msg->memory, &request, &err) < 0)
                call_fail(call, &err);
        else
                call->msg->in.msg = request;
}

static void unary_half_close(struct grpc_call *grpc)
{
        struct call *call = rpc_data(grpc);
        if (!call || !call->msg)
                return;
        if (call->op->kind == OP_EVENTS)
                call_events(call, (const Pb__ListEventsRequest *)call->msg->in.msg);
        else
                call_send(call);
}

static void unary_close(struct grpc_call *grpc, enum grpc_status status)
{
        struct call *call = rpc_data(grpc);
        rpc_done(grpc, (int)status);
        if (!call)
                return;
        call->grpc = NULL;
        call_drop(call);
}

/* ---- WatchEvents ---------------------------------------------------------------------------------------------------------------------------- */

struct watch {
        const struct door *door; /* first: see io.h */
        uint64_t subscription;
};

static void watch_start(struct grpc_call *grpc)
{
        struct watch *w = mem_must(sizeof(*w));
        w->door = rpc_door(grpc);
        grpc_call_set_data(grpc, w);
}

static void watch_message(struct grpc_call *grpc, const void *data, size_t len)
{
        struct watch *w = rpc_data(grpc);
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        struct event_filter filter;
        char request_id[65], actor[65];
        if (!w || w->subscription)
                return;
        rpc_caller(w->door->io, grpc, request_id, actor);
        if (op_decode_packed(w->door->op, data, len, &arena, &m, &err) < 0 ||
            event_filter_parse((Pb__ListEventsRequest *)m, &arena, &filter, &err) < 0) {
                grpc_finish_err(grpc, &err, request_id);
        } else {
                grpc_call_send_headers(grpc, NULL); /* accepted: a client that waits for silence knows that it is silence */
                struct event_subscription sub = {
                        .sink.grpc = grpc, .filter = &filter, .since = ((Pb__ListEventsRequest *)m)->since, .request_id = request_id
                };
                w->subscription = events_subscribe(w->door->io->events, &sub, &err);
                if (!w->subscription)
                        grpc_finish_err(grpc, &err, request_id);
        }
        arena_fini(&arena);
}

static void watch_close(struct grpc_call *grpc, enum grpc_status status)
{
        struct watch *w = rpc_data(grpc);
        rpc_done(grpc, (int)status);
        if (!w)
                return;
        events_unsubscribe(w->door->io->events, w->subscription);
        mem_free(w);
}

/* ---- the door ------------------------------------------------------------------------------------------------------------------------------- */

/* Nothing is begun for somebody who may not. */
static void guarded_start(struct grpc_call *call)
{
        const struct door *door = rpc_door(call);
        struct credentials shown = access_of_grpc(call);
        struct caller who;
        struct err err = { 0 };
        if (access_check(door->io->access, door->op, &shown, &who, &err) < 0)
                grpc_finish_err(call, &err, grpc_call_header(call, "x-request-id", NULL));
        else if (door->start) {
                enum op_kind kind = door->op->kind;
                if (kind == OP_WATCH || kind == OP_LOGS || kind == OP_EXEC || kind == OP_AGENT)
                        access_guard_grpc(door->io->access, call, &shown);
                door->start(call);
        }
}

static struct grpc_method method_of(const struct op *op)
{
        struct grpc_method m = { .unary_request = true };
        switch (op->kind) {
        case OP_AGENT:
                m.on = sessions_callbacks();
                m.unary_request = false;
                m.max_message_bytes = AGENT_MESSAGE_BYTES;
                break;
        case OP_EXEC:
                m.on = relays_callbacks(true);
                m.unary_request = false;
                break;
        case OP_LOGS:
                m.on = relays_callbacks(false);
                break;
        case OP_REFLECTION:
                m.on = reflection_callbacks();
                m.unary_request = false;
                m.max_message_bytes = REFLECTION_MESSAGE_BYTES;
                break;
        case OP_PERSYS:
                m.on = persys_callbacks();
                m.unary_request = op->response != op->request; /* all but ControlStream */
                break;
        case OP_WATCH:
                m.on = (struct grpc_callbacks){ .on_start = watch_start, .on_message = watch_message, .on_close = watch_close };
                break;
        default:
                m.on = (struct grpc_callbacks){
                        .on_start = unary_start, .on_message = unary_message, .on_half_close = unary_half_close, .on_close = unary_close
                };
                break;
        }
        return m;
}

int rpc_open(struct io *io, struct err *err)
{
        const struct server_options *opt = &io->s->opt;
        if (!opt->grpc_address)
                return 0;
        struct grpc_server_options o = {
                .address = opt->grpc_address,
                .tls = io->tls,
                .max_message_bytes = GRPC_MESSAGE_BYTES,
                /* a little more than what we close a stream for, so that we are the ones to notice */
                .max_queued_bytes = opt->agent_queue_bytes + 2 * PLAN_MESSAGE_BYTES,
                .max_connection_queued_bytes = 2 * opt->agent_queue_bytes + 4 * PLAN_MESSAGE_BYTES,
                .max_connections = opt->max_agents + 1000,
        };
        int r = grpc_server_create(io->base, &o, &io->grpc, err);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_ops; i++) {
                if (!ops[i].rpc)
                        continue;
                struct grpc_method m = method_of(&ops[i]);
                if (ops[i].kind == OP_LOGS || ops[i].kind == OP_EXEC) { /* agents are connected to the leader only */
                        forward_set_local(io->forward, &ops[i], m.on);
                        m.on = forward_callbacks(&ops[i]);
                }
                m.ctx = &io->doors[i];
                io->doors[i].start = m.on.on_start;
                m.on.on_start = guarded_start;
                if ((r = grpc_server_add(io->grpc, ops[i].rpc, &m, err)) < 0)
                        return r;
        }
        return 0;
}
