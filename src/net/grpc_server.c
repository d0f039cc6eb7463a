/* net/grpc_server.c: listening, finding the method of a request, and stopping without losing calls.
 * See grpc.h.
 *
 * Drain goes in steps: the listener is closed; every connection says GOAWAY and ends when its last
 * call has; at the deadline the remaining calls are ended with UNAVAILABLE and get a moment to say
 * so; then whatever is left is cut.
 *
 * Invariants:
 *   (1) Every connection of this server is in server->conns until its `gone` hook.
 *   (2) done is called at most once, with no connection and no call left.
 */
#include "base/log.h"
#include "base/mem.h"
#include "net/crowd.h"
#include "net/grpc_internal.h"
#include "net/handshakes.h"
#include "net/turn.h"
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
        METHODS_MAX = 256,
        LAST_WORDS_MS = 300,
        ACCEPT_PAUSE_MS = 100,
        TURN_ACCEPTS = 128,
        BACKLOG = 4096
};

struct method_row {
        char *path;
        size_t path_len;
        struct grpc_method method;
};

struct grpc_server {
        struct grpc_host host;
        struct evconnlistener *listener;
        struct event *accept_timer, *drain_timer;
        struct tls *tls;
        struct handshakes *handshakes; /* with TLS */
        uint16_t port;
        uint32_t max_connections, n_conns, accepted; /* accepted: in this turn */
        struct timeval accept_turn;
        int64_t handshake_timeout_ms;
        struct grpc_conn *conns;
        ARRAY(struct method_row) methods;
        struct crowd strangers;
        uint64_t connections_total, refused_total;
        bool is_draining, deadline_over;
        void (*drained)(void *ctx);
        void *drained_ctx;
};

/* ---- requests ---- */

static const struct grpc_method *find_method(struct grpc_server *server, const char *path,
                                             size_t len)
{
        for (size_t i = 0; i < server->methods.len; i++)
                if (server->methods.at[i].path_len == len &&
                    memcmp(server->methods.at[i].path, path, len) == 0)
                        return &server->methods.at[i].method;
        return NULL;
}

/* Not gRPC at all: plain HTTP status, as the protocol asks for. */
static void refuse_http(struct grpc_conn *conn, struct grpc_call *call, const char *status)
{
        nghttp2_nv nv[] = { { (uint8_t *)(uintptr_t) ":status", (uint8_t *)(uintptr_t)status, 7, 3,
                              NGHTTP2_NV_FLAG_NONE } };

        call->headers_done = call->trailers_done = call->local_done = true;
        nghttp2_submit_response(conn->session, call->stream_id, nv, 1, NULL);
        grpc_call_close(call, GRPC_INTERNAL, NULL);
}

static void on_request(struct grpc_conn *conn, struct grpc_call *call)
{
        struct grpc_server *server = conn->host->server;
        size_t path_len = 0, timeout_len = 0;
        const char *verb = meta_find(&call->headers, ":method", NULL),
                   *type = meta_find(&call->headers, "content-type", NULL);
        const char *path = meta_find(&call->headers, ":path", &path_len);
        const char *timeout = meta_find(&call->headers, "grpc-timeout", &timeout_len);
        int64_t timeout_ms = 0;

        if (call->headers_too_big) {
                grpc_call_abort(call, GRPC_RESOURCE_EXHAUSTED,
                                fmt("the request's headers are larger than %zu bytes",
                                    conn->host->max_header_bytes));
                return;
        }
        if (!str_eq(verb, "POST")) {
                refuse_http(conn, call, "405");
                return;
        }
        if (!type || !str_starts(type, "application/grpc") ||
            (type[16] != 0 && type[16] != '+' && type[16] != ';')) {
                refuse_http(conn, call, "415");
                return;
        }
        mem_free(call->path);
        call->path = mem_strndup(path ? path : "", path_len);
        const struct grpc_method *m = find_method(server, call->path, path_len);
        if (!m) {
                grpc_call_abort(call, GRPC_UNIMPLEMENTED, fmt("unknown method %.200s", call->path));
                return;
        }
        if (timeout && grpc_timeout_parse(timeout, timeout_len, &timeout_ms) < 0) {
                grpc_call_abort(call, GRPC_INVALID_ARGUMENT, "malformed grpc-timeout");
                return;
        }
        call->on = m->on;
        call->data = m->ctx;
        call->unary_request = m->unary_request;
        if (m->max_message_bytes)
                call->max_message_bytes = m->max_message_bytes;
        if (m->max_queued_bytes)
                call->max_queued_bytes = m->max_queued_bytes;
        call->started = true;
        grpc_call_expect(call,
                         m->first_message_ms ? m->first_message_ms : conn->host->first_message_ms);
        if (timeout)
                grpc_call_set_deadline(call, timeout_ms);
        if (call->on.on_start)
                call->on.on_start(call);
}

/* ---- connections ---- */

static void check_drained(struct grpc_server *server)
{
        if (server->is_draining && !server->conns)
                event_active(server->drain_timer, EV_TIMEOUT, 0);
}

static void on_gone(struct grpc_conn *conn, const struct err *why)
{
        struct grpc_server *server = conn->host->server;

        if (conn->prev)
                conn->prev->next = conn->next;
        else
                server->conns = conn->next;
        if (conn->next)
                conn->next->prev = conn->prev;
        server->n_conns--;
        if (!conn->is_known)
                crowd_leave(&server->strangers, conn->place);
        log_debug("gRPC connection closed", LOG_S("peer", conn->peer), LOG_E(why));
        check_drained(server);
}

void grpc_call_let_in(struct grpc_call *call)
{
        struct grpc_conn *conn = call->conn;

        if (!conn || conn->is_known)
                return;
        conn->is_known = true;
        crowd_leave(&conn->host->server->strangers, conn->place);
}

static const struct grpc_conn_hooks server_hooks = { .request = on_request, .gone = on_gone };

static void begin(int fd, const struct sockaddr *sa, int64_t left_ms, void *arg)
{
        struct grpc_server *server = arg;
        struct grpc_conn *conn = NULL;
        struct err err;
        SSL *ssl = NULL;

        if (server->tls && !(ssl = tls_new_ssl(server->tls, "h2", NULL, &err)))
                close(fd);
        else
                conn =
                    grpc_conn_new(&server->host, &server_hooks, fd, ssl, true, sa, left_ms, &err);
        if (!conn) {
                crowd_leave(&server->strangers, crowd_place(&server->strangers, sa));
                return;
        }
        conn->place = crowd_place(&server->strangers, sa);
        conn->next = server->conns;
        if (server->conns)
                server->conns->prev = conn;
        server->conns = conn;
        server->n_conns++;
        server->connections_total++;
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *sa, int len,
                      void *arg)
{
        struct grpc_server *server = arg;

        bool full =
            server->n_conns + handshakes_waiting(server->handshakes) >= server->max_connections;
        if (full || !crowd_enter(&server->strangers, crowd_place(&server->strangers, sa))) {
                char peer[ADDR_TEXT_MAX];
                if (server->refused_total++ % 1000 == 0)
                        log_warn(
                            "too many gRPC connections, refusing more",
                            LOG_I("limit", full ? server->max_connections : server->strangers.max),
                            LOG_S("of", full ? "all" : "one address on which nobody was let in"),
                            LOG_S("peer", addr_format(sa, peer)));
                close(fd);
        } else if (server->handshakes)
                handshakes_add(server->handshakes, fd, sa, len);
        else
                begin(fd, sa, server->handshake_timeout_ms, server);
        /* A crowd at the door must not keep the others waiting, nor be in memory all at once. */
        if (turn_is_new(server->host.base, &server->accept_turn))
                server->accepted = 0;
        if (++server->accepted >= TURN_ACCEPTS) {
                struct timeval soon = { 0 };
                evconnlistener_disable(l);
                event_add(server->accept_timer, &soon);
        }
}

/* Out of descriptors: trying again at once would spin. */
static void on_accept_error(struct evconnlistener *l, void *arg)
{
        struct grpc_server *server = arg;
        struct timeval tv = ms_timeval(ACCEPT_PAUSE_MS);

        log_error("gRPC connections cannot be accepted",
                  LOG_S("error", strerror(EVUTIL_SOCKET_ERROR())));
        evconnlistener_disable(l);
        event_add(server->accept_timer, &tv);
}

static void on_accept_timer(evutil_socket_t fd, short what, void *arg)
{
        struct grpc_server *server = arg;
        (void)fd;
        (void)what;

        if (server->listener)
                evconnlistener_enable(server->listener);
}

/* ---- stopping ---- */

static void end_all(struct grpc_server *server)
{
        struct err why;

        err_set(&why, ERR_UNAVAILABLE, .msg = "the server stops");
        while (server->conns)
                grpc_conn_end(server->conns, &why);
}

static void abort_calls(struct grpc_server *server)
{
        for (struct grpc_conn *conn = server->conns; conn; conn = conn->next)
                for (struct grpc_call *call = conn->calls, *next; call; call = next) {
                        next = call->next;
                        grpc_call_abort(call, GRPC_UNAVAILABLE, "the server stops");
                }
}

static void on_drain_timer(evutil_socket_t fd, short what, void *arg)
{
        struct grpc_server *server = arg;
        (void)fd;
        (void)what;

        if (server->conns && !server->deadline_over) {
                struct timeval tv = ms_timeval(LAST_WORDS_MS);
                server->deadline_over = true;
                event_add(server->drain_timer, &tv);
                abort_calls(server);
                return;
        }
        end_all(server);
        if (server->host.n_calls > 0) { /* their on_close is due: after this turn */
                struct timeval tv = ms_timeval(0);
                event_add(server->drain_timer, &tv);
                return;
        }
        void (*done)(void *) = server->drained;
        server->drained = NULL; /* (2) */
        event_del(server->drain_timer);
        if (done)
                done(server->drained_ctx);
}

void grpc_server_drain(struct grpc_server *server, int64_t deadline_ms, void (*done)(void *ctx),
                       void *ctx)
{
        struct timeval tv = ms_timeval(deadline_ms);

        if (server->is_draining)
                return;
        server->is_draining = true;
        server->drained = done;
        server->drained_ctx = ctx;
        if (server->listener)
                evconnlistener_free(server->listener);
        server->listener = NULL;
        handshakes_close_all(server->handshakes);
        event_add(server->drain_timer, &tv);
        grpc_expected_end(&server->host);
        for (struct grpc_conn *conn = server->conns; conn; conn = conn->next)
                grpc_conn_goaway(conn);
        check_drained(server);
}

void grpc_server_set_intake(struct grpc_server *server, size_t bytes)
{
        server->host.intake_bytes = bytes;
}

void grpc_server_destroy(struct grpc_server *server)
{
        if (!server)
                return;
        if (server->listener)
                evconnlistener_free(server->listener);
        for (struct grpc_conn *conn = server->conns; conn; conn = conn->next)
                for (struct grpc_call *call = conn->calls; call; call = call->next)
                        grpc_call_close(call, GRPC_UNAVAILABLE, "the server stops");
        server->is_draining = false;
        end_all(server);
        grpc_host_fini(&server->host, GRPC_UNAVAILABLE);
        grpc_expected_destroy(&server->host);
        handshakes_destroy(server->handshakes);
        if (server->accept_timer)
                event_free(server->accept_timer);
        if (server->drain_timer)
                event_free(server->drain_timer);
        for (size_t i = 0; i < server->methods.len; i++)
                mem_free(server->methods.at[i].path);
        array_fini(&server->methods);
        tls_unref(server->tls);
        mem_free(server);
}

/* ---- setting up ---- */

#define OR_DEFAULT(value, fallback) ((value) ? (value) : (fallback))

int grpc_server_create(struct event_base *base, const struct grpc_server_options *o,
                       struct grpc_server **ret_server, struct err *err)
{
        _cleanup_(grpc_server_destroyp) struct grpc_server *s = mem_must(sizeof(*s));

        s->host.server = s;
        s->host.max_message_bytes = OR_DEFAULT(o->max_message_bytes, GRPC_MESSAGE_MAX_DEFAULT);
        s->host.max_header_bytes = OR_DEFAULT(o->max_header_bytes, 16 * 1024);
        s->host.max_queued_bytes = OR_DEFAULT(o->max_queued_bytes, 1024 * 1024);
        s->host.max_answer_bytes = OR_DEFAULT(o->max_answer_bytes, 64 * 1024 * 1024);
        s->host.max_connection_queued_bytes =
            OR_DEFAULT(o->max_connection_queued_bytes, 16 * 1024 * 1024);
        s->host.max_streams = OR_DEFAULT(o->max_streams, 100);
        s->host.keepalive_ms = OR_DEFAULT(o->keepalive_ms, 30000);
        s->host.keepalive_timeout_ms = OR_DEFAULT(o->keepalive_timeout_ms, 10000);
        s->host.first_message_ms = OR_DEFAULT(o->first_message_ms, 30000);
        s->host.stranger_ms = o->stranger_ms;
        crowd_init(&s->strangers, o->max_strangers_per_peer);
        s->max_connections = OR_DEFAULT(o->max_connections, 20000);
        s->handshake_timeout_ms = OR_DEFAULT(o->handshake_timeout_ms, 10000);
        s->tls = tls_ref(o->tls);
        /* a write to a peer that left is an error code, not the end of the process */
        signal(SIGPIPE, SIG_IGN);

        int r = grpc_host_init(&s->host, base, err);
        if (r < 0 || (r = grpc_expected_create(&s->host, err)) < 0)
                return r;
        if (s->tls && !(s->handshakes = handshakes_create(base, s->handshake_timeout_ms, begin, s)))
                return err_set(err, ERR_NOMEM, .msg = "no memory for the gRPC server");
        if (s->handshakes)
                handshakes_count(s->handshakes, &s->strangers);
        s->accept_timer = evtimer_new(base, on_accept_timer, s);
        s->drain_timer = evtimer_new(base, on_drain_timer, s);
        int fd = addr_listen(o->address, "gRPC", BACKLOG, &s->port, err);
        if (fd < 0)
                return fd;
        s->listener = evconnlistener_new(base, on_accept, s,
                                         LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
        if (!s->listener || !s->accept_timer || !s->drain_timer) {
                if (!s->listener)
                        close(fd);
                return err_set(err, ERR_NOMEM, .msg = "no memory for the gRPC server");
        }
        evconnlistener_set_error_cb(s->listener, on_accept_error);
        *ret_server = TAKE_PTR(s);
        return 0;
}

int grpc_server_add(struct grpc_server *server, const char *path, const struct grpc_method *method,
                    struct err *err)
{
        if (!str_starts(path, "/") || server->methods.len >= METHODS_MAX ||
            find_method(server, path, strlen(path)))
                return err_set(err, ERR_INVALID,
                               .msg = fmt("the gRPC method %.100s cannot be added", path),
                               .detail = "it is malformed, a duplicate, or one too many");
        *array_push(&server->methods) = (struct method_row){ .path = mem_strdup(path),
                                                             .path_len = strlen(path),
                                                             .method = *method };
        return 0;
}

uint16_t grpc_server_port(const struct grpc_server *server)
{
        return server->port;
}

struct grpc_conn *grpc_server_first_conn(struct grpc_server *server)
{
        return server->conns;
}

struct grpc_call *grpc_server_call(struct grpc_server *server, uint64_t call_id)
{
        return grpc_host_call(&server->host, call_id);
}

void grpc_server_get_stats(const struct grpc_server *server, struct grpc_server_stats *ret)
{
        *ret = (struct grpc_server_stats){
                .connections = server->n_conns,
                .calls = server->host.n_calls,
                .connections_total = server->connections_total,
                .connections_refused_total = server->refused_total,
                .calls_total = server->host.calls_total,
                .messages_in_total = server->host.messages_in_total,
                .messages_out_total = server->host.messages_out_total,
                .queued_bytes = server->host.queued_bytes,
        };
}
