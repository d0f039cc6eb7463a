/* server/forward.c: see forward.h. */
#include "server/forward.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/addr.h"
#include "net/http.h"
#include "server/access.h"
#include "server/io.h"
#include <string.h>

#define MESSAGE_BYTES (32 * 1024 * 1024)
#define QUEUED_BYTES (8 * 1024 * 1024)
/* one side of a pipe is not read while more than this waits for the other */
#define PIPE_BYTES (256 * 1024)
#define CONNECT_MS 2000
#define LANES 4
/* what a server takes on one connection: the default of grpc_server_options.max_streams */
#define LANE_PIPES 100
#define PIPES_MAX (LANES * LANE_PIPES)

struct lane {
        struct grpc_channel *channel;
        uint32_t n_pipes;
};

struct forward {
        struct io *io;
        struct grpc_channel *channel; /* (W3) of the calls that are answered and over ... */
        struct lane lanes[LANES];     /* ... and of the pipes, which last */
        struct pipe *pipes;
        char address[128]; /* of all channels */
        struct tls *tls;
        struct grpc_callbacks *local; /* by op: who serves the stream while this server leads */
        /* by op: a stream whose data begins with one of these is piped */
        struct door *pipe_doors;
        uint64_t n;
};

/* Whoever waits for an answer hears that nobody knows how that ended. */
static void close_channels(struct forward *f)
{
        grpc_channel_destroy(TAKE_PTR(f->channel));
        for (size_t i = 0; i < LANES; i++)
                grpc_channel_destroy(TAKE_PTR(f->lanes[i].channel));
}

struct forward *forward_create(struct io *io)
{
        struct forward *f = mem_must(sizeof(*f));
        f->io = io;
        f->local = mem_must(n_ops * sizeof(*f->local));
        f->pipe_doors = mem_must(n_ops * sizeof(*f->pipe_doors));
        for (size_t i = 0; i < n_ops; i++)
                f->pipe_doors[i] =
                    (struct door){ .self = &f->pipe_doors[i], .io = io, .op = &ops[i] };
        return f;
}

void forward_destroy(struct forward *f)
{
        if (!f)
                return;
        close_channels(f);
        tls_unref(f->tls);
        mem_free(f->local);
        mem_free(f->pipe_doors);
        mem_free(f);
}

uint64_t forward_count(const struct forward *f)
{
        return f->n;
}

void forward_reload(struct forward *f)
{
        struct err err = { 0 };
        if (f->tls && tls_reload(f->tls, &err) < 0)
                log_error("new certificate files are not used for calls to the leader",
                          LOG_E(&err));
}

/* ---- the connection ---- */

static int open_tls(struct forward *f, struct err *err)
{
        const struct server_options *opt = &f->io->s->opt;
        if (f->tls || !opt->tls_cert)
                return 0;
        struct tls_options o = { .cert_file = opt->tls_cert,
                                 .key_file = opt->tls_key,
                                 .ca_file = opt->tls_ca };
        return tls_client_create(&o, &f->tls, err);
}

void forward_leader(struct forward *f)
{
        struct leader l;
        server_leader(f->io->s, &l);
        if (!l.known || !str_eq(f->address, l.grpc_address))
                close_channels(f);
}

/* (W4) */
static bool is_private(const struct forward *f)
{
        return f->tls || addr_is_loopback(f->address);
}

static void err_in_the_clear(const struct forward *f, struct err *err)
{
        err_set(err, ERR_DENIED,
                .msg = fmt("a token is not passed on to the leader at %s in the clear", f->address),
                .hint = "give every server a certificate: --tls-cert, --tls-key and --tls-ca "
                        "(docs/tls.md); until then use the leader's "
                        "own machine");
}

/* To whoever leads now, kept in *at. NULL: nobody, and err says so. */
static struct grpc_channel *channel(struct forward *f, struct grpc_channel **at, struct err *err)
{
        struct leader l;
        server_leader(f->io->s, &l);
        if (!l.known || l.is_self || !l.grpc_address[0]) {
                io_not_leading(f->io, err);
                return NULL;
        }
        if (!str_eq(f->address, l.grpc_address))
                close_channels(f);
        if (*at)
                return *at;
        if (open_tls(f, err) < 0)
                return NULL;
        struct grpc_channel_options o = { .tls = f->tls,
                                          .to_server = true,
                                          .max_message_bytes = MESSAGE_BYTES,
                                          .max_queued_bytes = QUEUED_BYTES,
                                          .max_waiting_calls = f->io->s->opt.max_calls,
                                          .connect_timeout_ms = CONNECT_MS,
                                          .backoff_min_ms = 50,
                                          .backoff_max_ms = 1000 };
        if (grpc_channel_create(f->io->base, l.grpc_address, &o, at, err) < 0)
                return NULL;
        strcpy(f->address, l.grpc_address);
        if (!is_private(f) && f->io->s->opt.auth)
                log_warn(
                    "calls with a token are not passed on to the leader: it is on another machine, "
                    "and there is no TLS",
                    LOG_S("leader", f->address),
                    LOG_S("hint",
                          "give every server --tls-cert, --tls-key and --tls-ca: docs/tls.md"));
        return *at;
}

static void err_unreachable(struct forward *f, struct err *err, const char *message)
{
        err_set(
            err, ERR_UNAVAILABLE,
            .msg = fmt("the leader at %s could not be reached, or went away", f->address),
            .detail = message,
            .hint =
                "try again; a change that was sent may have happened, and can be sent again safely",
            .retry_after_ms = 1000);
}

/* The name as one that lives for ever; see struct excess. */
static const char *dimension_of(const char *name)
{
        static const char *const known[] = { "workloads", "cpu_milli", "memory_mb", "disk_gb" };
        for (size_t i = 0; i < ARRAY_LEN(known); i++)
                if (str_eq(known[i], name))
                        return known[i];
        return NULL;
}

/* What the leader said was wrong, or why it said nothing. */
static void err_of(struct forward *f, struct grpc_call *up, enum grpc_status status,
                   struct err *err)
{
        struct arena a = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        size_t len = 0;
        const char *packed = grpc_call_trailer(up, GRPC_ERROR_TRAILER, &len);
        if (packed && pb_unpack(&pb__error__descriptor, packed, len, &a, &m, NULL) == 0) {
                const Pb__Error *e = (const Pb__Error *)m;
                enum err_code code = err_code_from_name(e->code);
                err_set(err, code == ERR_OK ? err_from_grpc_status((int)status) : code,
                        .msg = e->message, .detail = e->detail, .hint = e->hint, .path = e->path,
                        .retry_after_ms = e->retry_after_ms,
                        .excess = { dimension_of(e->dimension), e->limit, e->current_usage,
                                    e->requested_delta });
        } else if (status == GRPC_UNAVAILABLE || status == GRPC_CANCELLED)
                err_unreachable(f, err, grpc_call_message(up));
        else if (status == GRPC_DEADLINE_EXCEEDED)
                err_set(err, ERR_DEADLINE, .msg = "the leader did not answer in time",
                        .hint = "try again; a change that was sent may still happen, and can be "
                                "sent again safely",
                        .retry_after_ms = 1000);
        else
                err_set(err, err_from_grpc_status((int)status), .msg = grpc_call_message(up));
        arena_fini(&a);
}

/* ---- unary calls ---- */

struct forwarded {
        struct forward *f;
        uint64_t ticket;
        const struct op *op; /* the leader's */
        struct str answer;
        bool got, created;
};

static void on_answer(struct grpc_call *up, const void *data, size_t len)
{
        struct forwarded *w = grpc_call_data(up);
        str_clear(&w->answer);
        str_add(&w->answer, data, len);
        w->got = true;
        w->created = grpc_call_header(up, CREATED_HEADER, NULL) != NULL;
}

static void on_answered(struct grpc_call *up, enum grpc_status status)
{
        struct forwarded *w = grpc_call_data(up);
        struct call *call = calls_find(w->f->io->calls, w->ticket);
        struct err err = { 0 };
        struct reply reply = { .ticket = w->ticket,
                               .created = w->created,
                               .type = w->op->response,
                               .data = w->answer.buf,
                               .len = w->answer.len };
        if (status == GRPC_OK && !w->got)
                err_set(&err, ERR_INTERNAL, .msg = "the leader gave no answer");
        else if (status != GRPC_OK)
                err_of(w->f, up, status, &err);
        if (err.code != ERR_OK)
                reply = (struct reply){ .ticket = w->ticket, .err = &err };
        if (call) /* else the caller has gone, or its time is up */
                call_reply(call, &reply);
        str_fini(&w->answer);
        mem_free(w);
}

bool forward_wanted(const struct call *call)
{
        return call->is_change || call->consistent || call->op->kind == OP_PLAN ||
               call->op->kind == OP_EXPLAIN || call->op->kind == OP_JOIN;
}

/* The row whose method takes this request. */
static const struct op *method_for(const struct call *call, const struct input *in)
{
        if (call->op->rpc && call->op->request == in->msg->descriptor)
                return call->op;
        for (size_t i = 0; i < n_ops; i++)
                if (ops[i].rpc && ops[i].input == in->kind && ops[i].request == in->msg->descriptor)
                        return &ops[i];
        return NULL;
}

static struct http_request *http_of(const struct call *call)
{
        return call->http ? call->http : call->asked_http;
}

static struct grpc_call *grpc_of(const struct call *call)
{
        return call->grpc ? call->grpc : call->asked_grpc;
}

static const char *header_of(const struct call *call, const char *name)
{
        return http_of(call)   ? http_header(http_of(call), name)
               : grpc_of(call) ? grpc_call_header(grpc_of(call), name, NULL)
                               : NULL;
}

static const char *peer_of(const struct call *call)
{
        return http_of(call)   ? http_peer(http_of(call))
               : grpc_of(call) ? grpc_call_peer(grpc_of(call))
                               : NULL;
}

/* What the caller has shown. Whoever came with the dashboard's cookie has the same token in it. */
static const char *authorization_of(const struct call *call)
{
        const char *text = header_of(call, "authorization"),
                   *cookie = text ? NULL : header_of(call, "cookie");
        const char *token = access_cookie(cookie);
        return token ? fmt("Bearer %.*s", (int)strcspn(token, "; "), token) : text;
}

static size_t add_text(struct grpc_metadata *to, size_t n, const char *name, const char *value)
{
        if (!str_empty(value))
                to[n++] = GRPC_META(name, value, strlen(value));
        return n;
}

/* In its headers, its request or its answer. One that nobody asks for can be left out. */
static bool carries_token(const struct call *call, const char *authorization)
{
        enum op_kind kind = call->op->kind;
        return (authorization && call->io->s->opt.auth) || kind == OP_JOIN || kind == OP_TOKEN;
}

void forward_call(struct call *call)
{
        static const struct grpc_callbacks on = { .on_message = on_answer,
                                                  .on_close = on_answered };
        static const Pb__Empty nothing = PB__EMPTY__INIT;
        struct forward *f = call->io->forward;
        struct err err = { 0 };
        struct input *in = &call->msg->in;
        if (!in->msg)
                in->msg = &nothing.base;
        const struct op *op = method_for(call, in);
        struct grpc_channel *to = NULL;
        if (call->was_forwarded) /* (W1) */
                io_not_leading(call->io, &err);
        else if (!op)
                err_set(&err, ERR_UNSUPPORTED,
                        .msg = "this server does not lead, and cannot pass this on",
                        .hint = "ask the leader");
        else
                to = channel(f, &f->channel, &err);
        const char *authorization = authorization_of(call);
        if (to && !is_private(f) && carries_token(call, authorization)) {
                err_in_the_clear(f, &err);
                to = NULL;
        }
        if (!to) {
                call_fail(call, &err);
                return;
        }
        struct grpc_metadata metadata[10];
        size_t n = add_text(metadata, 0, FORWARDED_HEADER, "1");
        n = add_text(metadata, n, "x-request-id", call->request_id);
        n = add_text(metadata, n, "x-berth-actor", call->actor);
        n = add_text(metadata, n, "x-berth-role", access_role_name(call->role));
        n = add_text(metadata, n, PEER_HEADER, peer_of(call));
        n = add_text(metadata, n, "authorization", is_private(f) ? authorization : NULL);
        n = add_text(metadata, n, CONSISTENT_HEADER, call->consistent ? "1" : NULL);
        n = add_text(metadata, n, "idempotency-key", header_of(call, "idempotency-key"));
        metadata[n] = GRPC_META_END;

        struct str packed = STR_INIT;
        pb_pack(&packed, in->msg);
        ring_msg_free(TAKE_PTR(call->msg));
        call_expect(call);
        struct forwarded *w = mem_must(sizeof(*w));
        w->f = f;
        w->ticket = call->ticket;
        w->op = op;
        f->n++;
        struct grpc_call_options o = { .deadline_ms = call->deadline_ms - mono_ms(),
                                       .metadata = metadata };
        struct grpc_call *up = grpc_channel_call(to, op->rpc, &o, &on, w);
        if (grpc_call_send(up, packed.buf ? packed.buf : "", packed.len) < 0)
                grpc_call_cancel(up);
        else
                grpc_call_half_close(up);
        str_fini(&packed);
}

/* ---- streams ---- */

struct pipe {
        const struct door *door; /* first: see io.h */
        struct grpc_call *down, *up;
        struct lane *lane;
        struct pipe *next, *prev;
        char actor[65];
};

/* A place for one more of this caller. NULL: err says why there is none. */
static struct lane *lane_for(struct forward *f, const struct caller *who, struct err *err)
{
        struct lane *free = NULL;
        for (size_t i = 0; i < LANES && !free; i++)
                if (f->lanes[i].n_pipes < LANE_PIPES)
                        free = &f->lanes[i];
        if (!free) {
                err_set(
                    err, ERR_LIMIT,
                    .msg = "too many logs and exec streams go through this server to the leader",
                    .detail = fmt("%d", PIPES_MAX),
                    .hint = fmt("ask the leader itself: %s", f->address), .retry_after_ms = 5000);
                return NULL;
        }
        size_t own = 0, share = access_share(f->io->s, PIPES_MAX);
        for (const struct pipe *p = f->pipes; p; p = p->next)
                own += str_eq(p->actor, who->actor);
        if (own >= share) {
                access_share_used(who, "logs and exec streams through this server", share, err);
                return NULL;
        }
        return free;
}

static struct pipe *pipe_new(struct forward *f, const struct door *door, struct lane *lane,
                             const struct caller *who)
{
        struct pipe *p = mem_must(sizeof(*p));
        p->door = &f->pipe_doors[op_index(door->op)];
        p->lane = lane;
        lane->n_pipes++;
        memcpy(p->actor, who->actor, sizeof(p->actor));
        p->next = f->pipes;
        if (f->pipes)
                f->pipes->prev = p;
        f->pipes = p;
        return p;
}

static void pipe_free(struct pipe *p)
{
        if (p->prev)
                p->prev->next = p->next;
        else
                p->door->io->forward->pipes = p->next;
        if (p->next)
                p->next->prev = p->prev;
        p->lane->n_pipes--;
        mem_free(p);
}

static void up_message(struct grpc_call *up, const void *data, size_t len)
{
        struct pipe *p = grpc_call_data(up);
        if (!p)
                return;
        if (grpc_call_send(p->down, data, len) < 0)
                grpc_call_cancel(up);
        else if (grpc_call_queued_bytes(p->down) > PIPE_BYTES) {
                grpc_call_pause(up);
                grpc_call_want_drain(p->down);
        }
}

/* Accepted: a client that waits for silence knows that it is silence. */
static void up_start(struct grpc_call *up)
{
        struct pipe *p = grpc_call_data(up);
        if (p)
                grpc_call_send_headers(p->down, NULL);
}

static void up_drain(struct grpc_call *up)
{
        struct pipe *p = grpc_call_data(up);
        if (p)
                grpc_call_resume(p->down);
}

static void up_close(struct grpc_call *up, enum grpc_status status)
{
        struct pipe *p = grpc_call_data(up);
        struct err err = { 0 };
        if (!p)
                return;
        struct grpc_call *down = p->down;
        struct io *io = p->door->io;
        rpc_set_over(down, &io->doors[op_index(p->door->op)]);
        pipe_free(p);
        if (status == GRPC_OK) {
                grpc_call_finish(down, GRPC_OK, NULL, NULL);
                return;
        }
        err_of(io->forward, up, status, &err);
        grpc_finish_err(down, &err, NULL);
}

void forward_stop(struct forward *f)
{
        struct err err = { 0 };
        err_set(&err, ERR_UNAVAILABLE, .msg = "the server is stopping", .retry_after_ms = 1000);
        while (f->pipes) {
                struct pipe *p = f->pipes;
                struct grpc_call *down = p->down;
                rpc_set_over(down, &f->io->doors[op_index(p->door->op)]);
                grpc_call_set_data(p->up, NULL);
                grpc_call_cancel(p->up);
                pipe_free(p);
                grpc_finish_err(down, &err, NULL);
        }
}

static void pipe_start(struct grpc_call *down, const struct door *door)
{
        static const struct grpc_callbacks on = { .on_start = up_start,
                                                  .on_message = up_message,
                                                  .on_drain = up_drain,
                                                  .on_close = up_close };
        struct io *io = door->io;
        struct err err = { 0 };
        char request_id[65];
        struct grpc_channel *to = NULL;
        struct lane *lane = NULL;
        struct caller who;
        rpc_caller(io, down, request_id, &who);
        if (io->stopping)
                err_set(&err, ERR_UNAVAILABLE, .msg = "the server is stopping",
                        .retry_after_ms = 2000);
        else if (grpc_call_header(down, FORWARDED_HEADER, NULL))
                io_not_leading(io, &err);
        else if ((lane = lane_for(io->forward, &who, &err)))
                to = channel(io->forward, &lane->channel, &err);
        const char *authorization = grpc_call_header(down, "authorization", NULL);
        if (to && !is_private(io->forward) && authorization && io->s->opt.auth) {
                err_in_the_clear(io->forward, &err);
                to = NULL;
        }
        if (!to) {
                grpc_finish_err(down, &err, request_id);
                return;
        }
        struct pipe *p = pipe_new(io->forward, door, lane, &who);
        p->down = down;
        struct grpc_metadata metadata[7];
        size_t n = add_text(metadata, 0, FORWARDED_HEADER, "1");
        n = add_text(metadata, n, "x-request-id", request_id);
        n = add_text(metadata, n, "x-berth-actor", who.actor);
        n = add_text(metadata, n, "x-berth-role", access_role_name(who.role));
        n = add_text(metadata, n, PEER_HEADER, grpc_call_peer(down));
        n = add_text(metadata, n, "authorization", is_private(io->forward) ? authorization : NULL);
        metadata[n] = GRPC_META_END;
        int64_t left = grpc_call_remaining_ms(down);
        struct grpc_call_options o = { .deadline_ms = left == GRPC_NO_DEADLINE ? 0 : left,
                                       .metadata = metadata };
        io->forward->n++;
        grpc_call_set_data(down, p);
        p->up = grpc_channel_call(to, door->op->rpc, &o, &on, p);
}

static bool is_piped(struct grpc_call *down)
{
        const struct door *door = rpc_door(down);
        const struct door *pipes = door->io->forward->pipe_doors;
        return door >= pipes && door < pipes + n_ops;
}

static const struct grpc_callbacks *local_of(struct grpc_call *down)
{
        const struct door *door = rpc_door(down);
        return &door->io->forward->local[op_index(door->op)];
}

static void down_start(struct grpc_call *down)
{
        const struct door *door = rpc_door(down);
        if (!door->io->leads)
                pipe_start(down, door);
        else if (local_of(down)->on_start)
                local_of(down)->on_start(down);
}

static void down_message(struct grpc_call *down, const void *data, size_t len)
{
        if (!is_piped(down)) {
                if (local_of(down)->on_message)
                        local_of(down)->on_message(down, data, len);
                return;
        }
        struct pipe *p = rpc_data(down);
        if (grpc_call_send(p->up, data, len) < 0)
                grpc_call_cancel(p->up);
        else if (grpc_call_queued_bytes(p->up) > PIPE_BYTES) {
                grpc_call_pause(down);
                grpc_call_want_drain(p->up);
        }
}

static void down_half_close(struct grpc_call *down)
{
        if (is_piped(down))
                grpc_call_half_close(((struct pipe *)rpc_data(down))->up);
        else if (local_of(down)->on_half_close)
                local_of(down)->on_half_close(down);
}

static void down_drain(struct grpc_call *down)
{
        if (is_piped(down))
                grpc_call_resume(((struct pipe *)rpc_data(down))->up);
        else if (local_of(down)->on_drain)
                local_of(down)->on_drain(down);
}

static void down_close(struct grpc_call *down, enum grpc_status status)
{
        if (!is_piped(down)) {
                local_of(down)->on_close(down, status);
                return;
        }
        struct pipe *p = rpc_data(down);
        rpc_done(down, (int)status);
        grpc_call_set_data(p->up, NULL);
        grpc_call_cancel(p->up);
        pipe_free(p);
}

void forward_set_local(struct forward *f, const struct op *op, struct grpc_callbacks local)
{
        f->local[op_index(op)] = local;
}

struct grpc_callbacks forward_callbacks(const struct op *op)
{
        (void)op;
        return (struct grpc_callbacks){ .on_start = down_start,
                                        .on_message = down_message,
                                        .on_half_close = down_half_close,
                                        .on_drain = down_drain,
                                        .on_close = down_close };
}
