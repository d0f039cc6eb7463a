/* server/rpc.c: the gRPC door. Rows of the ops table become methods of berth.v1.Control; the bytes
 * of the core's replies go out as they are. */
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
/* in which somebody must be let in on a connection */
#define STRANGER_MS 30000
/* in which the message must be there, of those who need not say who they are */
#define STRANGER_MESSAGE_MS 5000
#define AGENT_MESSAGE_MS 60000                 /* of a hello, which can be large */
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
        metrics_grpc(&door->io->s->metrics, op_index(door->op), status, grpc_call_age_ns(call),
                     is_stream);
        log_debug("grpc", LOG_S("method", door->op->rpc),
                  LOG_S("status", grpc_status_name((enum grpc_status)status)),
                  LOG_S("peer", grpc_call_peer(call)));
}

void rpc_caller(struct io *io, struct grpc_call *call, char ret_request_id[static 65],
                struct caller *ret_caller)
{
        struct credentials shown = access_of_grpc(call);
        access_caller(io->access, &shown, ret_caller);
        io_request_id(io, grpc_call_header(call, "x-request-id", NULL), ret_request_id);
}

/* ---- unary calls ---- */

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
        struct caller who;
        rpc_caller(door->io, grpc, call->request_id, &who);
        call_set_caller(call, &who);
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
        call->msg = ring_msg_new(call->op->input);
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

/* ---- WatchEvents ---- */

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
        char request_id[65];
        struct caller who;
        if (!w || w->subscription)
                return;
        rpc_caller(w->door->io, grpc, request_id, &who);
        if (op_decode_packed(w->door->op, data, len, &arena, &m, &err) < 0 ||
            event_filter_parse((Pb__ListEventsRequest *)m, &arena, &filter, &err) < 0 ||
            events_have_room(w->door->io->events, &who, &err) < 0) {
                grpc_finish_err(grpc, &err, request_id);
        } else {
                /* accepted: a client that waits for silence knows that it is silence */
                grpc_call_send_headers(grpc, NULL);
                struct event_subscription sub = { .sink.grpc = grpc,
                                                  .filter = &filter,
                                                  .since = ((Pb__ListEventsRequest *)m)->since,
                                                  .request_id = request_id,
                                                  .who = &who };
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

/* ---- the door ---- */

/* Nothing is begun for somebody who may not; and nothing for headers alone: they cost a caller next
 * to nothing, and what they would hold (a place among the calls, a relay, a stream to the leader)
 * would be gone for all others. So whoever was let in is served from the first message on, for
 * which grpc_method.first_message_ms waits (E2). Agents' streams have a limit of their own, for
 * nodes only, and a time within which they must say hello: those begin at once. */
static void guarded_start(struct grpc_call *call)
{
        const struct door *door = rpc_door(call);
        struct credentials shown = access_of_grpc(call);
        struct caller who;
        struct err err = { 0 };
        if (access_check(door->io->access, door->op, &shown, &who, &err) < 0)
                grpc_finish_err(call, &err, grpc_call_header(call, "x-request-id", NULL));
        else {
                if (door->op->needs != NEEDS_NOTHING)
                        grpc_call_let_in(call);
                if (door->op->kind == OP_AGENT) {
                        access_guard_grpc(door->io->access, call, &shown);
                        door->start(call);
                }
        }
}

static bool is_begun(struct grpc_call *call)
{
        const struct door *door = rpc_door(call);
        if (rpc_data(call))
                return true;
        if (grpc_call_is_over(call)) /* refused, or answered */
                return false;
        enum op_kind kind = door->op->kind;
        if (kind == OP_WATCH || kind == OP_LOGS || kind == OP_EXEC) {
                struct credentials shown = access_of_grpc(call);
                access_guard_grpc(door->io->access, call, &shown);
        }
        if (door->start)
                door->start(call);
        return !grpc_call_is_over(call);
}

/* The row of whatever serves it now: a pipe has a door of its own. */
static const struct door *own_door(struct grpc_call *call)
{
        const struct door *door = rpc_door(call);
        return &door->io->doors[op_index(door->op)];
}

static void guarded_message(struct grpc_call *call, const void *data, size_t len)
{
        const struct door *door = own_door(call);
        if (is_begun(call) && door->message)
                door->message(call, data, len);
}

static void guarded_half_close(struct grpc_call *call)
{
        const struct door *door = own_door(call);
        if (is_begun(call) && door->half_close)
                door->half_close(call);
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
                m.on = (struct grpc_callbacks){ .on_start = watch_start,
                                                .on_message = watch_message,
                                                .on_close = watch_close };
                break;
        default:
                m.on = (struct grpc_callbacks){ .on_start = unary_start,
                                                .on_message = unary_message,
                                                .on_half_close = unary_half_close,
                                                .on_close = unary_close };
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
                /* a little more than what we close a stream for, so that we are the ones to
                 * notice */
                .max_queued_bytes = opt->agent_queue_bytes + 2 * PLAN_MESSAGE_BYTES,
                .max_connection_queued_bytes = 2 * opt->agent_queue_bytes + 4 * PLAN_MESSAGE_BYTES,
                .max_connections = opt->max_agents + 1000,
                /* agents behind one address come back all at once */
                .max_strangers_per_peer = (opt->max_agents + 1000) / 2,
                .stranger_ms = STRANGER_MS,
        };
        int r = grpc_server_create(io->base, &o, &io->grpc, err);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_ops; i++) {
                if (!ops[i].rpc)
                        continue;
                struct grpc_method m = method_of(&ops[i]);
                /* agents are connected to the leader only */
                if (ops[i].kind == OP_LOGS || ops[i].kind == OP_EXEC) {
                        forward_set_local(io->forward, &ops[i], m.on);
                        m.on = forward_callbacks(&ops[i]);
                }
                m.ctx = &io->doors[i];
                m.first_message_ms = ops[i].kind == OP_AGENT         ? AGENT_MESSAGE_MS
                                     : ops[i].needs == NEEDS_NOTHING ? STRANGER_MESSAGE_MS
                                                                     : 0;
                io->doors[i].start = m.on.on_start;
                io->doors[i].message = m.on.on_message;
                io->doors[i].half_close = m.on.on_half_close;
                m.on.on_start = guarded_start;
                m.on.on_message = guarded_message;
                m.on.on_half_close = guarded_half_close;
                if ((r = grpc_server_add(io->grpc, ops[i].rpc, &m, err)) < 0)
                        return r;
        }
        return 0;
}
