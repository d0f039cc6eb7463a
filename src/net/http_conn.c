/* net/http_conn.c: one HTTP connection: reads a request under limits and timers, hands it to its
 * route, goes on with the next.
 *
 *      READ_HEAD -> READ_BODY -> RUNNING -> READ_HEAD (kept alive) | CLOSING -> [LINGER] -> gone
 *                                   '-> STREAM ---'
 *
 * Reading stays on while a route works, since only a read notices that a stream's client has left;
 * what a client sends ahead meanwhile is bounded by limit_reading().
 *
 * A client that shut its sending side may still read: what it asked for is answered, then the
 * connection closes. Only a stream, which has no end that one could wait for, ends at once. Whether
 * the client has left for good comes out when something is written to it: so one whose answer takes
 * its time gets a "100 Continue" now and then, which every client of HTTP/1.1 skips, and nobody
 * works for one that has left.
 *
 * Invariants:
 *   (1) conn->req is set in READ_BODY, RUNNING and STREAM, and its id is in server->requests
 *       exactly then.
 *   (2) Routes are called from process() and serve_whole() only, and these do not nest: an answer
 *       from inside a route just lets it loop.
 *   (3) Nothing is freed while busy > 0.
 *   (4) on_close is called from the loop, or from http_server_destroy().
 */
#include "base/log.h"
#include "base/mem.h"
#include "net/http_internal.h"
#include "net/turn.h"
#include "net/write_now.h"
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <linux/tcp.h> /* the C library's does not know how much was acknowledged */
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* TURN_CONNS: connections of a kind that are served in one turn of the loop. WRITE_LOOKS: at a
 * client that does not read, within the write timeout; SLOWEST_BYTES: what it has to take
 * meanwhile, 550 bytes a second by default */
enum {
        TURN_CONNS = 96,
        WRITE_LOOKS = 4,
        SLOWEST_BYTES = 16 * 1024,
        LINGER_MS = 2000,
        /* after a client said that it sends no more; then twice that, and so on, up to ... */
        LOOK_MS = 500,
        LOOK_MAX_MS = 8000,
        READ_AHEAD_BYTES = 64 * 1024,
        PIPELINE_MAX = 16,
        TRAILER_LINES_MAX = 32,
        CHUNK_LINE_MAX = 256
};

/* Each request sets its times several times over, and hardly ever does one run out: so the timer is
 * left alone where it can be, and looks for itself how much time is left. */
void http_conn_arm(struct http_conn *conn, int64_t ms)
{
        conn->deadline_ms = ms > 0 ? clock_mono_ns() / 1000000 + ms : 0;
        if (ms <= 0 || (conn->fires_ms && conn->fires_ms <= conn->deadline_ms))
                return;
        struct timeval tv = http_timeval(ms);
        conn->fires_ms = event_add(conn->timer, &tv) == 0 ? conn->deadline_ms : 0;
}

/* Whether the time is up; else the timer goes on. */
static bool is_late(struct http_conn *conn)
{
        int64_t left = conn->deadline_ms - clock_mono_ns() / 1000000;

        conn->fires_ms = 0;
        if (conn->deadline_ms && left > 0)
                http_conn_arm(conn, left);
        return conn->deadline_ms && left <= 0;
}

void http_request_free(struct http_request *req)
{
        struct http_server *server = req->conn->server;

        if (server->o.on_done && req->status)
                server->o.on_done(req, req->route ? req->route->pattern : "", req->status,
                                  (clock_mono_ns() - req->started_ns) / 1000, server->o.ctx);
        slots_drop(&server->requests, req->id);
        req->conn->req = NULL;
        http_head_fini(&req->head);
        str_fini(&req->body);
        str_fini(&req->joined);
        mem_free(req->rest);
        mem_free(req);
}

static void conn_free(struct http_conn *conn)
{
        if (conn->bev) {
                if (conn->ssl) {
                        SSL_set_shutdown(conn->ssl, SSL_RECEIVED_SHUTDOWN);
                        SSL_shutdown(conn->ssl);
                        ERR_clear_error();
                }
                if (conn->readable)
                        event_free(conn->readable); /* before its descriptor is closed */
                bufferevent_free(conn->bev);
        }
        if (conn->timer)
                event_free(conn->timer);
        if (conn->wake)
                event_free(conn->wake);
        tls_identity_free(conn->identity);
        mem_free(conn);
}

static void set_reading(struct http_conn *conn, bool on)
{
        if (!conn->readable && on)
                bufferevent_enable(conn->bev, EV_READ);
        else if (!conn->readable)
                bufferevent_disable(conn->bev, EV_READ);
        else if (on)
                event_add(conn->readable, NULL);
        else
                event_del(conn->readable);
        conn->reads = on;
}

static void leave(struct http_conn *conn)
{
        if (--conn->busy == 0 && conn->gone)
                conn_free(conn);
}

/* Out of the list of those that wait for their turn. */
static void leave_turn(struct http_conn *conn)
{
        struct http_turns *t = &conn->server->turns[conn->turn < HTTP_TURNS ? conn->turn : 0];

        if (!conn->waits_turn)
                return;
        conn->waits_turn = false;
        if (conn->turn_prev)
                conn->turn_prev->turn_next = conn->turn_next;
        else
                t->first = conn->turn_next;
        if (conn->turn_next)
                conn->turn_next->turn_prev = conn->turn_prev;
        else
                t->last = conn->turn_prev;
        conn->turn_next = conn->turn_prev = NULL;
}

void http_conn_end(struct http_conn *conn)
{
        struct http_server *server = conn->server;

        if (conn->gone)
                return;
        conn->gone = true;
        conn->busy++;
        leave_turn(conn);
        set_reading(conn, false);
        bufferevent_disable(conn->bev, EV_WRITE);
        event_del(conn->timer);
        event_del(conn->wake);
        struct http_request *req = conn->req;
        if (req) {
                if (req->on_close && (conn->state == HTTP_RUNNING || conn->state == HTTP_STREAM))
                        req->on_close(req, req->on_close_ctx);
                if (conn->req) { /* unless on_close answered it all the same */
                        if (!req->status)
                                req->status = 499;
                        http_request_free(req);
                }
        }
        if (conn->prev)
                conn->prev->next = conn->next;
        else
                server->conns = conn->next;
        if (conn->next)
                conn->next->prev = conn->prev;
        server->n_conns--;
        crowd_leave(&server->crowd, conn->place);
        http_server_conn_gone(server);
        leave(conn);
}

void http_conn_drop_soon(struct http_conn *conn)
{
        conn->drop_due = true;
        event_active(conn->wake, EV_WRITE, 0);
}

/* ---- reading a request ---- */

static struct http_request *new_request(struct http_conn *conn)
{
        struct http_request *req = mem_must(sizeof(*req));

        req->conn = conn;
        req->started_ns = clock_mono_ns();
        req->id = slots_take(&conn->server->requests, req);
        conn->req = req;
        return req;
}

static void take_request_id(struct http_request *req)
{
        const char *given = http_head_field(&req->head, "x-request-id");
        size_t len = given ? strlen(given) : 0;

        if (len > 0 && len <= 64 &&
            strspn(given, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
                len)
                memcpy(req->request_id, given, len + 1);
}

/* Refused before its body was read: the connection cannot be used again. */
static void refuse_early(struct http_conn *conn, int status, const char *why)
{
        conn->keep_alive = false;
        conn->linger = true;
        conn->state = HTTP_RUNNING;
        http_refuse(conn->req, status, why);
}

/* have: bytes of the body that are there already */
static void head_done(struct http_conn *conn, size_t have)
{
        struct http_request *req = conn->req;
        size_t max = conn->server->o.max_body_bytes;

        conn->keep_alive = req->head.keep_alive && !conn->server->is_draining;
        take_request_id(req);
        if (req->head.content_length > (int64_t)max) {
                refuse_early(conn, 413, fmt("the body is larger than %zu bytes", max));
                return;
        }
        conn->state = HTTP_READ_BODY;
        conn->body_left = req->head.is_chunked           ? -1
                          : req->head.content_length > 0 ? req->head.content_length
                                                         : 0;
        conn->trailer_lines = 0;
        bool waits = conn->body_left < 0 || (size_t)conn->body_left > have;
        if (waits || (conn->body_left && req->head.expects_continue)) {
                http_conn_arm(conn, conn->server->o.body_timeout_ms);
                if (req->head.expects_continue) {
                        bufferevent_write(conn->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25);
                        write_now(conn->bev);
                }
        }
}

static void take_head(struct http_conn *conn, const char *text, size_t len, size_t have)
{
        const char *why = NULL;
        struct http_request *req = new_request(conn);
        int status = http_head_parse(&req->head, text, len, &why);

        conn->searched = 0;
        if (status) {
                refuse_early(conn, status, why);
                return;
        }
        bool reads = str_eq(req->head.method, "GET") || str_eq(req->head.method, "HEAD");
        leave_turn(conn); /* of its old kind */
        conn->turn = reads ? HTTP_READER : HTTP_WRITER;
        head_done(conn, have);
}

/* True when it got somewhere. */
static bool read_head(struct http_conn *conn)
{
        struct evbuffer *in = bufferevent_get_input(conn->bev);
        size_t max = conn->server->o.max_header_bytes;
        struct evbuffer_ptr from;

        /* An empty line before a request is noise that old clients make (RFC 9112, 2.2), and half
         * of one may be. It does not begin a request, and prolongs no time. */
        char first[2] = "";
        while (conn->searched == 0 && evbuffer_copyout(in, first, 2) == 2 &&
               memcmp(first, "\r\n", 2) == 0)
                evbuffer_drain(in, 2);
        size_t have = evbuffer_get_length(in);
        if (have == 0 || (conn->searched == 0 && have == 1 && first[0] == '\r'))
                return false;
        if (conn->searched == 0)
                /* from the first byte; more bytes do not prolong it */
                http_conn_arm(conn, conn->server->o.header_timeout_ms);
        evbuffer_ptr_set(in, &from, conn->searched > 3 ? conn->searched - 3 : 0, EVBUFFER_PTR_SET);
        struct evbuffer_ptr end = evbuffer_search(in, "\r\n\r\n", 4, &from);
        if (end.pos < 0 || (size_t)end.pos + 4 > max) {
                conn->searched = have;
                if (end.pos < 0 && have < max)
                        return false;
                new_request(conn);
                bool in_line = evbuffer_search(in, "\r\n", 2, NULL).pos < 0;
                refuse_early(conn, in_line ? 414 : 431,
                             fmt("the request's head is larger than %zu bytes", max));
                return true;
        }
        size_t len = (size_t)end.pos + 4;
        take_head(conn, (const char *)evbuffer_pullup(in, (ssize_t)len), len, have - len);
        evbuffer_drain(in, len);
        return true;
}

/* Moves body bytes; false when more must come first. */
static bool read_plain(struct http_conn *conn)
{
        struct evbuffer *in = bufferevent_get_input(conn->bev);
        struct str *body = &conn->req->body;
        size_t have = evbuffer_get_length(in),
               n = have < (size_t)conn->body_left ? have : (size_t)conn->body_left;

        str_reserve(body, n);
        while (n > 0) {
                char piece[4096];
                int got = evbuffer_remove(in, piece, n < sizeof(piece) ? n : sizeof(piece));
                if (got <= 0)
                        return false;
                str_add(body, piece, (size_t)got);
                n -= (size_t)got;
                conn->body_left -= got;
        }
        return conn->body_left == 0;
}

/* One step of a chunked body. 1: go on, 0: more must come first, 2: the body is complete, -1:
 * malformed, -2: too large. */
static int read_chunked(struct http_conn *conn)
{
        struct evbuffer *in = bufferevent_get_input(conn->bev);

        if (conn->body_left > 0) {
                if (!read_plain(conn))
                        return 0;
                conn->body_left = -3; /* the line end after it */
        }
        size_t len;
        if (evbuffer_search_eol(in, NULL, &len, EVBUFFER_EOL_CRLF_STRICT).pos < 0)
                /* the CR may be there already */
                return evbuffer_get_length(in) > CHUNK_LINE_MAX + 1 ? -1 : 0;
        char *line = evbuffer_readln(in, &len, EVBUFFER_EOL_CRLF_STRICT);
        if (!line)
                return 0;
        int r = 1;
        int64_t size = http_chunk_size(line, len);
        if (len > CHUNK_LINE_MAX)
                r = -1;
        else if (conn->body_left == -3) {
                conn->body_left = -1;
                r = len == 0 ? 1 : -1;
        } else if (conn->body_left == -2) /* the trailer is not used; it ends with an empty line */
                r = len == 0 ? 2
                    : ++conn->trailer_lines > TRAILER_LINES_MAX || !http_is_trailer_line(line, len)
                        ? -1
                        : 1;
        else if (size < 0)
                r = -1;
        else if (size > (int64_t)conn->server->o.max_body_bytes - (int64_t)conn->req->body.len)
                r = -2;
        else
                conn->body_left = size == 0 ? -2 : size;
        free(line);
        return r;
}

/* At whether a client that sends no more is still there. */
static void look_later(struct http_conn *conn)
{
        conn->look_ms = LOOK_MS;
        http_conn_arm(conn, conn->eof ? LOOK_MS : 0);
}

static void dispatch(struct http_conn *conn)
{
        struct http_request *req = conn->req;
        _cleanup_(str_finip) struct str allow = STR_INIT;

        conn->state = HTTP_RUNNING;
        look_later(conn);
        req->route = http_router_find(&conn->server->router, req->head.method, req->head.segments,
                                      req->head.n_segments, &allow);
        if (req->route) {
                req->route->fn(req, req->route->ctx);
                return;
        }
        struct err err;
        if (allow.len == 0) {
                err_set(&err, ERR_NOT_FOUND,
                        .msg = fmt("there is nothing at %.200s", req->head.path));
                http_reply_err(req, 404, &err);
                return;
        }
        _cleanup_(str_finip) struct str body = STR_INIT;
        err_set(&err, ERR_INVALID,
                .msg = fmt("%.20s is not possible on %.200s", req->head.method, req->head.path),
                .hint = fmt("possible: %s", str_c(&allow)));
        http_error_body(&body, &err, "method_not_allowed", http_request_id(req));
        http_reply(
            req, 405,
            (struct http_field[]){ HTTP_JSON, HTTP_FIELD("Allow", str_c(&allow)), HTTP_FIELD_END },
            str_c(&body), body.len);
}

static bool read_body(struct http_conn *conn)
{
        if (!conn->req->head.is_chunked) {
                if (conn->body_left > 0 && !read_plain(conn))
                        return false;
                dispatch(conn);
                return true;
        }
        int r = 1;
        while (r == 1)
                r = read_chunked(conn);
        if (r == 2)
                dispatch(conn);
        else if (r == -2)
                refuse_early(
                    conn, 413,
                    fmt("the body is larger than %zu bytes", conn->server->o.max_body_bytes));
        else if (r == -1)
                refuse_early(conn, 400, "the chunked body is malformed");
        return r != 0;
}

static size_t output_len(struct http_conn *conn)
{
        return evbuffer_get_length(bufferevent_get_output(conn->bev));
}

/* No timer: a client that takes nothing is dropped by the write timeout. */
static void close_after_output(struct http_conn *conn)
{
        conn->state = HTTP_CLOSING;
        conn->keep_alive = false;
        http_conn_arm(conn, 0);
}

/* The client sent all that it will: a request that is not whole by now never will be. */
static void no_more_requests(struct http_conn *conn)
{
        if (conn->gone || (conn->state != HTTP_READ_HEAD && conn->state != HTTP_READ_BODY))
                return;
        if (conn->req) {
                conn->req->status = 499;
                http_request_free(conn->req);
        }
        close_after_output(conn);
}

/* As many requests as are there; (2). */
static void process(struct http_conn *conn)
{
        unsigned done = 0;
        bool more = true;

        if (conn->in_process)
                return;
        conn->in_process = true;
        while (more && !conn->gone) {
                if (conn->state == HTTP_READ_HEAD &&
                    (done >= PIPELINE_MAX || output_len(conn) > conn->server->o.max_queued_bytes)) {
                        /* Let others in; or wait until the client reads its answers (on_write comes
                         * back here). */
                        if (done >= PIPELINE_MAX)
                                event_active(conn->wake, EV_WRITE, 0);
                        break;
                }
                if (conn->state == HTTP_READ_HEAD)
                        more = read_head(conn);
                else if (conn->state == HTTP_READ_BODY) {
                        more = read_body(conn);
                        done += more;
                } else
                        more = false;
        }
        conn->in_process = false;
        if (!more && conn->eof)
                no_more_requests(conn);
}

void http_conn_answered(struct http_conn *conn)
{
        http_request_free(conn->req);
        if (conn->gone)
                return;
        if (!conn->keep_alive || conn->server->is_draining) {
                close_after_output(conn);
                event_active(conn->wake, EV_WRITE, 0);
                return;
        }
        conn->state = HTTP_READ_HEAD;
        conn->searched = 0;
        /* else on_write does it */
        http_conn_arm(conn, output_len(conn) == 0 ? conn->server->o.idle_timeout_ms : 0);
        if (!conn->in_process &&
            (conn->eof || evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0))
                event_active(conn->wake, EV_WRITE, 0);
}

/* ---- the socket ---- */

static void check_closing(struct http_conn *conn)
{
        if (conn->gone || conn->state != HTTP_CLOSING || output_len(conn) > 0)
                return;
        if (!conn->linger || conn->eof) {
                http_conn_end(conn);
                return;
        }
        conn->state = HTTP_LINGER;
        if (conn->ssl) {
                SSL_shutdown(conn->ssl);
                ERR_clear_error();
        }
        shutdown(bufferevent_getfd(conn->bev), SHUT_WR);
        http_conn_arm(conn, LINGER_MS);
}

/* Nothing is read while this much waits to be looked at. By hand, since libevent's own high-water
 * mark follows a NULL pointer when memory runs out as it is set. */
static void limit_reading(struct http_conn *conn)
{
        struct evbuffer *in = bufferevent_get_input(conn->bev);

        if (conn->state == HTTP_LINGER || conn->state == HTTP_CLOSING)
                evbuffer_drain(in, SIZE_MAX);
        bool full = evbuffer_get_length(in) >= conn->server->o.max_header_bytes + READ_AHEAD_BYTES;
        if (full == conn->reads && !conn->eof)
                set_reading(conn, !full);
}

/* As if its route had closed it, which is told. */
static void end_stream(struct http_conn *conn)
{
        struct http_request *req = conn->req;

        if (req->on_close)
                req->on_close(req, req->on_close_ctx);
        if (conn->req && !conn->gone)
                http_stream_close(conn->req);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
        struct http_conn *conn = arg;
        (void)fd;
        (void)what;

        conn->busy++;
        if (conn->drop_due)
                http_conn_end(conn);
        if (!conn->gone && conn->state == HTTP_STREAM && conn->req->is_over)
                end_stream(conn);
        if (!conn->gone)
                process(conn);
        check_closing(conn);
        if (!conn->gone)
                limit_reading(conn);
        leave(conn);
}

void http_server_set_intake(struct http_server *s, unsigned per_turn)
{
        s->intake = per_turn ? per_turn : TURN_CONNS;
}

/* Overload (A11): when thousands of clients come or write at once, a turn of the loop that served
 * them all would take seconds, and whoever reads would wait for as long. So a turn serves
 * TURN_CONNS connections (or fewer: http_server_set_intake) of which nothing is known, and as many
 * whose last request was a write; the others keep what they sent and are served in the next turns,
 * first come first served. */
static bool must_wait(struct http_conn *conn)
{
        struct http_server *s = conn->server;

        if (conn->turn == HTTP_READER || conn->waits_turn || conn->state != HTTP_READ_HEAD)
                return conn->waits_turn;
        if (turn_is_new(s->base, &s->turn))
                for (size_t i = 0; i < HTTP_TURNS; i++)
                        s->turns[i].served = 0;
        struct http_turns *t = &s->turns[conn->turn];
        if (!t->first && t->served < s->intake) {
                t->served++;
                return false;
        }
        conn->waits_turn = true;
        conn->turn_prev = t->last;
        if (t->last)
                t->last->turn_next = conn;
        else
                t->first = conn;
        t->last = conn;
        if (!evtimer_pending(s->turns_event, NULL))
                evtimer_add(s->turns_event, &(struct timeval){ 0 });
        return true;
}

void http_turns_go_on(evutil_socket_t fd, short what, void *arg)
{
        struct http_server *s = arg;
        bool more = false;
        (void)fd;
        (void)what;

        for (size_t i = 0; i < HTTP_TURNS; i++) {
                for (unsigned n = 0; n < s->intake && s->turns[i].first; n++) {
                        struct http_conn *conn = s->turns[i].first;
                        leave_turn(conn);
                        on_wake(-1, 0, conn);
                }
                more |= s->turns[i].first != NULL;
        }
        if (more)
                evtimer_add(s->turns_event, &(struct timeval){ 0 });
}

static void on_read(struct bufferevent *bev, void *arg)
{
        struct http_conn *conn = arg;

        if (conn->state == HTTP_LINGER || conn->state == HTTP_CLOSING)
                evbuffer_drain(bufferevent_get_input(bev), SIZE_MAX);
        else if (must_wait(conn))
                limit_reading(conn);
        else
                on_wake(-1, 0, conn);
}

/* The client sends no more. With TLS, what came with that is in the input only after this: so it is
 * looked at from the loop. */
static void on_eof(struct http_conn *conn)
{
        if (conn->eof || conn->state == HTTP_STREAM ||
            /* a stream may have no end: who reads it no longer is to be noticed */
            conn->state == HTTP_LINGER) {
                http_conn_end(conn);
                return;
        }
        conn->eof = true;
        set_reading(conn, false);
        if (conn->ssl)
                bufferevent_enable(conn->bev, EV_WRITE); /* libevent has stopped both ways */
        if (conn->state == HTTP_RUNNING)
                look_later(conn);
        if (!conn->waits_turn)
                event_active(conn->wake, EV_WRITE, 0);
}

/* Most requests come whole: such a one is served from where it was read, without passing through
 * the connection's buffer. Returns how much of it that was; the rest, and whatever is not that
 * simple, is left to process(). */
static size_t serve_whole(struct http_conn *conn, const char *text, size_t len)
{
        const char *end = memmem(text, len, "\r\n\r\n", 4);
        size_t head = end ? (size_t)(end - text) + 4 : 0, used = head;

        if (!end || head > conn->server->o.max_header_bytes || text[0] == '\r' || text[0] == '\n')
                return 0;
        conn->busy++;
        conn->in_process = true; /* (2) */
        take_head(conn, text, head, len - head);
        if (conn->state == HTTP_READ_BODY && !conn->req->head.is_chunked &&
            (size_t)conn->body_left <= len - head) {
                str_add(&conn->req->body, text + head, (size_t)conn->body_left);
                used += (size_t)conn->body_left;
                conn->body_left = 0;
                dispatch(conn);
        }
        conn->in_process = false;
        leave(conn);
        return used;
}

/* In place of the bufferevent's own reading, which asks the kernel twice for each piece. */
static void on_readable(evutil_socket_t fd, short what, void *arg)
{
        struct http_conn *conn = arg;
        char *text = conn->server->scratch;
        ssize_t got = recv(fd, text, HTTP_SCRATCH_BYTES, 0);
        struct evbuffer *in = bufferevent_get_input(conn->bev);
        (void)what;

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (got <= 0) {
                bool is_idle = conn->state == HTTP_READ_HEAD && evbuffer_get_length(in) == 0 &&
                               output_len(conn) == 0;
                if (got < 0 || is_idle)
                        http_conn_end(conn);
                else
                        on_eof(conn);
                return;
        }
        if (conn->state == HTTP_LINGER || conn->state == HTTP_CLOSING)
                return;
        conn->busy++;
        bool simple = conn->state == HTTP_READ_HEAD && conn->searched == 0 &&
                      evbuffer_get_length(in) == 0 &&
                      output_len(conn) <= conn->server->o.max_queued_bytes && !must_wait(conn);
        size_t used = simple ? serve_whole(conn, text, (size_t)got) : 0;
        if (!conn->gone && used < (size_t)got) {
                /* a bufferevent keeps its input's end frozen except while it reads itself */
                evbuffer_unfreeze(in, 0);
                int r = evbuffer_add(in, text + used, (size_t)got - used);
                evbuffer_freeze(in, 0);
                if (r < 0)
                        http_conn_end(conn); /* no memory: what it sent is lost */
        }
        if (!conn->gone && simple && used < (size_t)got)
                on_wake(-1, 0, conn); /* it had its turn */
        else if (!conn->gone && !simple)
                on_read(conn->bev, conn);
        check_closing(conn);
        leave(conn);
}

static void on_write(struct bufferevent *bev, void *arg)
{
        struct http_conn *conn = arg;

        if (conn->gone)
                return;
        conn->busy++;
        write_now_drained(bev, conn->ssl != NULL);
        on_wake(-1, 0, conn);
        if (!conn->gone && conn->state == HTTP_READ_HEAD && !conn->deadline_ms &&
            output_len(conn) == 0)
                http_conn_arm(conn, conn->server->o.idle_timeout_ms);
        leave(conn);
}

/* libevent knows of progress only when the socket is writable again, and for that a third of its
 * buffer, of megabytes, must be free: with a slow reader it takes minutes. So what the client's
 * side has acknowledged is looked at. Whoever takes next to nothing for the whole timeout is one
 * that takes nothing: a byte now and then would hold the connection, and all of the answer, for
 * ever. */
static bool takes_nothing(struct http_conn *conn)
{
        struct tcp_info info = { 0 };
        socklen_t len = sizeof(info);
        bool known =
            getsockopt(bufferevent_getfd(conn->bev), IPPROTO_TCP, TCP_INFO, &info, &len) == 0;

        if (known && info.tcpi_bytes_acked - conn->acked_bytes >= SLOWEST_BYTES) {
                conn->same_looks = 0;
                conn->acked_bytes = info.tcpi_bytes_acked;
        } else
                conn->same_looks++;
        return conn->same_looks >= WRITE_LOOKS;
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
        struct http_conn *conn = arg;

        if (conn->gone)
                return;
        if ((what & BEV_EVENT_TIMEOUT) && (what & BEV_EVENT_WRITING) && !takes_nothing(conn)) {
                bufferevent_enable(bev, EV_WRITE); /* libevent took it back */
                return;
        }
        if (what & BEV_EVENT_CONNECTED) {
                conn->is_secure = true;
                conn->identity = tls_peer_identity(conn->ssl);
                return;
        }
        if (conn->ssl && !conn->is_secure)
                tls_handshake_failed(conn->ssl, bufferevent_get_openssl_error(conn->bev),
                                     conn->peer);
        ERR_clear_error();
        if (conn->is_secure && (what & BEV_EVENT_EOF) && (what & BEV_EVENT_READING))
                on_eof(conn);
        else
                http_conn_end(conn);
}

/* What was written to a client that has left comes back as a reset. */
static void look_for_client(struct http_conn *conn)
{
        struct pollfd p = { .fd = bufferevent_getfd(conn->bev) };

        if (poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP)) {
                http_conn_end(conn);
                return;
        }
        if (conn->req->head.minor == 1 && output_len(conn) == 0) {
                bufferevent_write(conn->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25);
                write_now(conn->bev);
        }
        http_conn_arm(conn, conn->look_ms);
        conn->look_ms = conn->look_ms < LOOK_MAX_MS ? 2 * conn->look_ms : LOOK_MAX_MS;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
        struct http_conn *conn = arg;
        struct http_request *req = conn->req;
        (void)fd;
        (void)what;

        if (!is_late(conn))
                return;
        conn->deadline_ms = 0;
        conn->busy++;
        if (conn->state == HTTP_READ_HEAD &&
            evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0) {
                new_request(conn);
                refuse_early(conn, 408, "the request's head took too long");
        } else if (conn->state == HTTP_READ_BODY)
                refuse_early(conn, 408, "the request's body took too long");
        else if (conn->state == HTTP_RUNNING)
                look_for_client(conn);
        else if (conn->state == HTTP_STREAM) {
                if (req->is_silent && conn->eof)
                        http_conn_end(conn);
                else if (req->is_silent)
                        http_stream_send(req, ":\n\n", 3);
                if (!conn->gone && conn->req) {
                        conn->req->is_silent = true;
                        http_conn_arm(conn, conn->eof ? conn->server->o.write_timeout_ms
                                                      : conn->server->o.comment_ms);
                }
        } else
                http_conn_end(conn);
        check_closing(conn);
        leave(conn);
}

void http_conn_drain(struct http_conn *conn)
{
        if (conn->state == HTTP_STREAM) {
                conn->busy++;
                end_stream(conn);
                leave(conn);
        } else if (conn->state == HTTP_READ_HEAD) {
                /* What it asked for goes out; what it sent ahead is not begun, and must not make
                 * its kernel throw the answers away. */
                conn->linger =
                    output_len(conn) > 0 &&
                    (evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0 || !conn->reads);
                close_after_output(conn);
                check_closing(conn);
        } else
                conn->keep_alive = false;
}

void http_conn_begin(struct http_server *server, int fd, const struct sockaddr *sa, int64_t left_ms)
{
        struct http_conn *conn = mem_must(sizeof(*conn));
        struct timeval write_timeout = http_timeval(server->o.write_timeout_ms / WRITE_LOOKS + 1);
        SSL *ssl = NULL;

        conn->server = server;
        conn->place = crowd_place(&server->crowd, sa);
        addr_format(sa, conn->peer);
        if (server->tls && !(ssl = tls_new_ssl(server->tls, "http/1.1", NULL, NULL)))
                goto fail;
        if (!ssl)
                conn->bev = bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
        else if (tls_attach(ssl, fd, NULL) == 0)
                conn->bev = bufferevent_openssl_socket_new(
                    server->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
        if (!conn->bev) {
                SSL_free(ssl);
                goto fail;
        }
        fd = -1;
        conn->ssl = ssl;
        conn->timer = evtimer_new(server->base, on_timer, conn);
        conn->wake = event_new(server->base, -1, 0, on_wake, conn);
        if (!ssl)
                conn->readable = event_new(server->base, bufferevent_getfd(conn->bev),
                                           EV_READ | EV_PERSIST, on_readable, conn);
        if (!conn->timer || !conn->wake || (!ssl && !conn->readable))
                goto fail;
        if (ssl)
                bufferevent_openssl_set_allow_dirty_shutdown(conn->bev, 1);
        conn->next = server->conns;
        if (server->conns)
                server->conns->prev = conn;
        server->conns = conn;
        server->n_conns++;
        bufferevent_setcb(conn->bev, on_read, on_write, on_event, conn);
        bufferevent_set_timeouts(conn->bev, NULL, &write_timeout);
        write_now_init(conn->bev, ssl != NULL);
        if (!ssl)
                bufferevent_disable(conn->bev, EV_READ);
        set_reading(conn, true);
        http_conn_arm(conn, left_ms);
        return;
fail:
        if (fd >= 0)
                close(fd);
        crowd_leave(&server->crowd, conn->place);
        conn_free(conn);
}
