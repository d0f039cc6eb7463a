/* net/http.c: the HTTP server as a whole: listening, limits, looking at requests, draining. See
 * http.h.
 *
 * libevent's evhttp is not used: it cannot bound the time that a request's head takes, cannot count
 * connections that have sent nothing yet, and stops reading while a request is being worked on, so
 * that it never notices a stream's client that left.
 */
#include "net/http.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/handshakes.h"
#include "net/http_internal.h"
#include "net/turn.h"
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ACCEPT_PAUSE_MS = 100, TURN_ACCEPTS = 128, BACKLOG = 4096 };

static void begin(int fd, const struct sockaddr *sa, int64_t left_ms, void *arg)
{
        http_conn_begin(arg, fd, sa, left_ms);
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *sa, int len,
                      void *arg)
{
        struct http_server *s = arg;

        bool full = s->n_conns + handshakes_waiting(s->handshakes) >= s->o.max_connections;
        if (full || !crowd_enter(&s->crowd, crowd_place(&s->crowd, sa))) {
                char peer[ADDR_TEXT_MAX];
                if (s->refused_total++ % 1000 == 0)
                        log_warn("too many HTTP connections, refusing more",
                                 LOG_I("limit", full ? s->o.max_connections : s->crowd.max),
                                 LOG_S("of", full ? "all" : "one address"),
                                 LOG_S("peer", addr_format(sa, peer)));
                close(fd);
                return;
        }
        if (s->handshakes)
                handshakes_add(s->handshakes, fd, sa, len);
        else
                http_conn_begin(s, fd, sa, s->o.header_timeout_ms);
        /* A crowd at the door must not keep the others waiting. */
        if (turn_is_new(s->base, &s->accept_turn))
                s->accepted = 0;
        if (++s->accepted >= TURN_ACCEPTS) {
                struct timeval soon = { 0 };
                evconnlistener_disable(l);
                event_add(s->accept_timer, &soon);
        }
}

/* Out of descriptors: trying again at once would spin. */
static void on_accept_error(struct evconnlistener *l, void *arg)
{
        struct http_server *s = arg;
        struct timeval tv = http_timeval(ACCEPT_PAUSE_MS);

        log_error("HTTP connections cannot be accepted",
                  LOG_S("error", strerror(EVUTIL_SOCKET_ERROR())));
        evconnlistener_disable(l);
        event_add(s->accept_timer, &tv);
}

static void on_accept_timer(evutil_socket_t fd, short what, void *arg)
{
        struct http_server *s = arg;
        (void)fd;
        (void)what;

        if (s->listener)
                evconnlistener_enable(s->listener);
}

static void end_all(struct http_server *s)
{
        while (s->conns)
                http_conn_end(s->conns);
}

void http_server_conn_gone(struct http_server *s)
{
        if (s->is_draining && !s->conns)
                event_active(s->drain_timer, EV_TIMEOUT, 0);
}

static void on_drain_timer(evutil_socket_t fd, short what, void *arg)
{
        struct http_server *s = arg;
        (void)fd;
        (void)what;

        end_all(s);
        event_del(s->drain_timer);
        void (*done)(void *) = s->drained;
        s->drained = NULL;
        if (done)
                done(s->drained_ctx);
}

void http_server_drain(struct http_server *s, int64_t deadline_ms, void (*done)(void *ctx),
                       void *ctx)
{
        struct timeval tv = http_timeval(deadline_ms);

        if (s->is_draining)
                return;
        s->is_draining = true;
        s->drained = done;
        s->drained_ctx = ctx;
        if (s->listener)
                evconnlistener_free(s->listener);
        s->listener = NULL;
        handshakes_close_all(s->handshakes);
        event_add(s->drain_timer, &tv);
        for (struct http_conn *conn = s->conns, *next; conn; conn = next) {
                next = conn->next;
                http_conn_drain(conn);
        }
        http_server_conn_gone(s);
}

void http_server_destroy(struct http_server *s)
{
        if (!s)
                return;
        s->is_draining = false;
        if (s->listener)
                evconnlistener_free(s->listener);
        handshakes_destroy(s->handshakes);
        end_all(s);
        if (s->accept_timer)
                event_free(s->accept_timer);
        if (s->turns_event)
                event_free(s->turns_event);
        if (s->drain_timer)
                event_free(s->drain_timer);
        http_router_fini(&s->router);
        slots_fini(&s->requests);
        mem_free(s->scratch);
        str_fini(&s->answer);
        tls_unref(s->tls);
        mem_free(s);
}

#define FILL(field, fallback)                                                                      \
        do {                                                                                       \
                if (!s->o.field)                                                                   \
                        s->o.field = (fallback);                                                   \
        } while (0)

int http_server_create(struct event_base *base, const struct http_server_options *options,
                       struct http_server **ret_server, struct err *err)
{
        _cleanup_(http_server_destroyp) struct http_server *s = mem_must(sizeof(*s));

        s->base = base;
        s->o = *options;
        FILL(max_body_bytes, 1024 * 1024);
        FILL(max_header_bytes, 16 * 1024);
        FILL(max_queued_bytes, 1024 * 1024);
        FILL(max_connections, 20000);
        FILL(header_timeout_ms, 10000);
        FILL(body_timeout_ms, 30000);
        FILL(idle_timeout_ms, 75000);
        FILL(write_timeout_ms, 30000);
        FILL(comment_ms, 15000);
        s->tls = tls_ref(options->tls);
        if (s->tls && !(s->handshakes = handshakes_create(base, s->o.header_timeout_ms, begin, s)))
                return err_set(err, ERR_NOMEM, .msg = "no memory for the HTTP server");
        crowd_init(&s->crowd, s->o.max_per_peer);
        if (s->handshakes)
                handshakes_count(s->handshakes, &s->crowd);
        rng_seed_system(&s->rng);
        s->scratch = mem_bytes(HTTP_SCRATCH_BYTES);
        /* a write to a client that left is an error code, not the end of the process */
        signal(SIGPIPE, SIG_IGN);
        s->accept_timer = evtimer_new(base, on_accept_timer, s);
        s->turns_event = evtimer_new(base, http_turns_go_on, s);
        http_server_set_intake(s, 0);
        s->drain_timer = evtimer_new(base, on_drain_timer, s);
        int fd = addr_listen(options->address, "HTTP", BACKLOG, &s->port, err);
        if (fd < 0)
                return fd;
        s->listener = evconnlistener_new(base, on_accept, s,
                                         LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
        if (!s->listener || !s->accept_timer || !s->drain_timer || !s->turns_event) {
                if (!s->listener)
                        close(fd);
                return err_set(err, ERR_NOMEM, .msg = "no memory for the HTTP server");
        }
        evconnlistener_set_error_cb(s->listener, on_accept_error);
        *ret_server = TAKE_PTR(s);
        return 0;
}

uint16_t http_server_port(const struct http_server *s)
{
        return s->port;
}
uint32_t http_server_connections(const struct http_server *s)
{
        return s->n_conns;
}

int http_server_add(struct http_server *s, const char *method, const char *pattern,
                    http_route route, void *ctx, struct err *err)
{
        return http_router_add(&s->router, method, pattern, route, ctx, err);
}

struct http_request *http_server_request(struct http_server *s, uint64_t id)
{
        struct http_request *req = slots_get(&s->requests, id);

        return req && !req->conn->gone && !req->conn->drop_due ? req : NULL;
}

const char *http_date(struct http_server *s)
{
        time_t now = (time_t)(clock_wall_ms() / 1000);

        if (now != s->date_at) {
                struct tm tm;
                gmtime_r(&now, &tm);
                strftime(s->date, sizeof(s->date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
                s->date_at = now;
        }
        return s->date;
}

/* ---- the request ---- */

const char *http_method(const struct http_request *req)
{
        return req->head.method ? req->head.method : "";
}
const char *http_path(const struct http_request *req)
{
        return req->head.path ? req->head.path : "";
}
const char *http_peer(const struct http_request *req)
{
        return req->conn->peer;
}
const struct tls_identity *http_identity(const struct http_request *req)
{
        return req->conn->identity;
}
uint64_t http_id(const struct http_request *req)
{
        return req->id;
}
void *http_data(const struct http_request *req)
{
        return req->data;
}
void http_set_data(struct http_request *req, void *data)
{
        req->data = data;
}

void http_on_close(struct http_request *req, void (*on_close)(struct http_request *req, void *ctx),
                   void *ctx)
{
        req->on_close = on_close;
        req->on_close_ctx = ctx;
}

const char *http_param(const struct http_request *const_req, const char *name)
{
        struct http_request *req = (struct http_request *)(uintptr_t)const_req;
        const struct http_route_row *row = req->route;

        for (size_t i = 0; row && i < row->n; i++) {
                if (row->kinds[i] == 'l' || strcmp(row->segments[i], name) != 0)
                        continue;
                if (row->kinds[i] == 'p')
                        return req->head.segments[i];
                if (!req->rest) {
                        struct str rest = STR_INIT;
                        for (size_t k = i; k < req->head.n_segments; k++)
                                str_addf(&rest, "%s%s", k > i ? "/" : "", req->head.segments[k]);
                        req->rest = str_take(&rest);
                }
                return req->rest;
        }
        return NULL;
}

const char *http_query(const struct http_request *req, const char *name)
{
        for (size_t i = 0; i < req->head.n_query; i++)
                if (strcmp(req->head.query[i].name, name) == 0)
                        return req->head.query[i].value;
        return NULL;
}

size_t http_query_count(const struct http_request *req)
{
        return req->head.n_query;
}
const char *http_query_name(const struct http_request *req, size_t i)
{
        return req->head.query[i].name;
}
const char *http_query_value(const struct http_request *req, size_t i)
{
        return req->head.query[i].value;
}

const char *http_header(const struct http_request *req, const char *name)
{
        const char *found = NULL;
        struct str joined = STR_INIT;

        for (size_t i = 0; i < req->head.n_fields; i++) {
                /* theirs are in lower case */
                if (req->head.fields[i].name[0] != (name[0] | 32) ||
                    !str_case_eq(req->head.fields[i].name, name))
                        continue;
                if (found && joined.len == 0)
                        str_adds(&joined, found);
                if (found)
                        str_addf(&joined, ", %s", req->head.fields[i].value);
                else
                        found = req->head.fields[i].value;
        }
        if (joined.len == 0)
                return found;
        /* Rare: kept until the next such question. */
        struct http_request *mutable_req = (struct http_request *)(uintptr_t)req;
        str_fini(&mutable_req->joined);
        mutable_req->joined = joined;
        return str_c(&mutable_req->joined);
}

const char *http_body(const struct http_request *req, size_t *ret_len)
{
        if (ret_len)
                *ret_len = req->body.len;
        return str_c(&req->body);
}

const char *http_request_id(const struct http_request *req)
{
        if (!req->request_id[0]) {
                char *id = ((struct http_request *)(uintptr_t)req)->request_id;
                uint64_t v = rng_next(&req->conn->server->rng);
                for (int i = 0; i < 16; i++, v <<= 4)
                        id[i] = "0123456789abcdef"[v >> 60];
        }
        return req->request_id;
}
