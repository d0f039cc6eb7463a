/* net/h2.c: one HTTP/2 connection: a bufferevent (plain or TLS) with an nghttp2 session on it.
 *
 * Input goes from the socket's buffer into the session, which calls back for headers, data and
 * closed streams. Output is taken from the session once per turn of the loop (that batching is
 * where the speed comes from) and only while less than H2_OUTPUT_HIGH waits for the socket: what a
 * slow peer does not take stays in the bounded queues of its calls.
 *
 * Life: handshake (TLS, then the peer's SETTINGS, under one timer) -> ready -> perhaps GOAWAY ->
 * gone.
 *
 * Invariants:
 *   (1) Nothing is freed while busy > 0, i.e. while nghttp2 or libevent is inside it; gone marks
 *       what is to be freed then.
 *   (2) After gone no call refers to the connection, and the session is not driven again.
 *   (3) mem_send and mem_recv are called only from the loop, never from inside a callback of the
 *       session.
 */
#include "base/log.h"
#include "base/mem.h"
#include "net/grpc_internal.h"
#include "net/write_now.h"
#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <unistd.h>

static void conn_free(struct grpc_conn *conn)
{
        if (conn->session)
                nghttp2_session_del(conn->session);
        if (conn->flush_event)
                event_free(conn->flush_event);
        if (conn->timer)
                event_free(conn->timer);
        if (conn->bev) {
                if (conn->ssl) {
                        /* One try at close_notify; we do not wait for the peer's. */
                        SSL_set_shutdown(conn->ssl, SSL_RECEIVED_SHUTDOWN);
                        SSL_shutdown(conn->ssl);
                        ERR_clear_error();
                }
                bufferevent_free(conn->bev);
        }
        tls_identity_free(conn->identity);
        mem_free(conn);
}

void grpc_conn_end(struct grpc_conn *conn, const struct err *why)
{
        if (conn->gone)
                return;
        conn->gone = true;
        conn->busy++;
        conn->why = *why;
        bufferevent_disable(conn->bev, EV_READ | EV_WRITE);
        event_del(conn->flush_event);
        event_del(conn->timer);
        while (conn->calls) {
                struct grpc_call *call = conn->calls;
                /* The session lives on until nobody is inside it; it must not find the call. */
                nghttp2_session_set_stream_user_data(conn->session, call->stream_id, NULL);
                grpc_call_stream_gone(call, NGHTTP2_NO_ERROR, &conn->why);
        }
        conn->hooks->gone(conn, &conn->why);
        if (--conn->busy == 0)
                conn_free(conn);
}

static void leave(struct grpc_conn *conn)
{
        if (--conn->busy == 0 && conn->gone)
                conn_free(conn);
}

static void end_with(struct grpc_conn *conn, enum err_code code, const char *msg,
                     const char *detail)
{
        struct err why;

        err_set(&why, code, .msg = msg, .detail = detail);
        grpc_conn_end(conn, &why);
}

/* ---- output ---- */

/* Small frames are gathered first: one evbuffer_add for many. 1: stopped because enough waits for
 * the socket. */
static int take_output(struct grpc_conn *conn)
{
        struct evbuffer *out = bufferevent_get_output(conn->bev);
        uint8_t gathered[16 * 1024];
        size_t used = 0;
        const uint8_t *data;
        ssize_t n = 0;
        /* a frame that is lost for lack of memory would leave the peer with half a stream: the
         * connection ends */
        int failed = 0;

        while (evbuffer_get_length(out) + used < H2_OUTPUT_HIGH) {
                n = nghttp2_session_mem_send(conn->session, &data);
                if (n <= 0)
                        break;
                bool is_large = (size_t)n > sizeof(gathered) / 2;
                if (is_large || used + (size_t)n > sizeof(gathered)) {
                        failed |= evbuffer_add(out, gathered, used);
                        used = 0;
                }
                if (is_large)
                        failed |= evbuffer_add(out, data, (size_t)n);
                else {
                        memcpy(gathered + used, data, (size_t)n);
                        used += (size_t)n;
                }
        }
        if (used > 0)
                failed |= evbuffer_add(out, gathered, used);
        return failed ? NGHTTP2_ERR_NOMEM : n < 0 ? (int)n : n > 0;
}

static bool is_finished(struct grpc_conn *conn)
{
        if (evbuffer_get_length(bufferevent_get_output(conn->bev)) > 0 ||
            nghttp2_session_want_write(conn->session))
                return false;
        if (conn->goaway_pending) /* the notice is out, the last stream id is not */
                return false;
        return !nghttp2_session_want_read(conn->session) ||
               (conn->goaway_final && conn->n_calls == 0);
}

static void flush(struct grpc_conn *conn)
{
        if (conn->gone)
                return;
        int r = take_output(conn);
        if (conn->gone)
                return;
        if (write_now(conn->bev) && r == 1)
                /* there is more, and no write callback will come to take it */
                event_active(conn->flush_event, EV_WRITE, 0);
        if (r < 0)
                end_with(conn, ERR_UNAVAILABLE, "the connection failed", nghttp2_strerror(r));
        else if (is_finished(conn))
                end_with(conn, ERR_UNAVAILABLE,
                         conn->peer_goaway ? "the peer closed the connection"
                                           : "the connection is closed",
                         NULL);
}

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
        struct grpc_conn *conn = arg;
        (void)fd;
        (void)what;

        conn->busy++;
        flush(conn);
        leave(conn);
}

void grpc_conn_flush_soon(struct grpc_conn *conn)
{
        if (!conn->gone && !conn->will_flush)
                event_active(conn->flush_event, EV_WRITE, 0);
}

void grpc_conn_consume(struct grpc_conn *conn, int32_t stream_id, size_t len)
{
        if (!conn || conn->gone)
                return;
        if (stream_id == 0)
                nghttp2_session_consume_connection(conn->session, len);
        else
                nghttp2_session_consume_stream(conn->session, stream_id, len);
        grpc_conn_flush_soon(conn);
}

/* ---- the session's callbacks ---- */

static struct grpc_call *stream_call(nghttp2_session *session, int32_t stream_id)
{
        return nghttp2_session_get_stream_user_data(session, stream_id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
        struct grpc_conn *conn = arg;

        if (conn->gone)
                return NGHTTP2_ERR_CALLBACK_FAILURE;
        if (!conn->is_server || frame->hd.type != NGHTTP2_HEADERS ||
            frame->headers.cat != NGHTTP2_HCAT_REQUEST)
                return 0;
        struct grpc_call *call = grpc_call_new(conn->host, true, "", 0);
        grpc_call_attach(call, conn, frame->hd.stream_id);
        nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
        return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
        struct grpc_conn *conn = arg;
        (void)flags;

        if (conn->gone)
                return NGHTTP2_ERR_CALLBACK_FAILURE;
        struct grpc_call *call = stream_call(session, frame->hd.stream_id);
        if (!call || frame->hd.type != NGHTTP2_HEADERS)
                return 0;
        if (!conn->is_server && name_len == 7 && memcmp(name, ":status", 7) == 0) {
                int64_t status = 0;
                /* nghttp2 promises a NUL after it, and three digits */
                str_parse_i64((const char *)value, &status);
                call->http_status = (int)status;
                /* A new header block: that of a 1xx before it does not count. */
                str_clear(&call->headers);
                return 0;
        }
        grpc_call_add_header(
            call, conn->is_server ? frame->headers.cat != NGHTTP2_HCAT_REQUEST : call->started,
            name, name_len, value, value_len);
        return 0;
}

static void headers_received(struct grpc_conn *conn, const nghttp2_frame *frame,
                             struct grpc_call *call)
{
        if (conn->is_server) {
                if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
                        conn->hooks->request(conn, call);
                return;
        }
        if (call->started || (call->http_status >= 100 && call->http_status < 200))
                return;
        call->started = true;
        if (call->closed)
                return;
        const char *type = meta_find(&call->headers, "content-type", NULL);
        bool is_end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
        if (is_end) /* trailers-only: settled when the stream closes */
                return;
        if (call->headers_too_big)
                grpc_call_abort(call, GRPC_RESOURCE_EXHAUSTED,
                                fmt("the response's headers are larger than %zu bytes",
                                    conn->host->max_header_bytes));
        /* a proxy's page: its body must not be read as messages */
        else if (call->http_status != 200)
                grpc_call_abort(call, grpc_status_from_http(call->http_status),
                                fmt("the server answered with HTTP status %d", call->http_status));
        else if (!type || !str_starts(type, "application/grpc")) {
                struct str shown = STR_INIT; /* the message is text, whatever the header holds */
                grpc_percent_decode(&shown, type ? type : "", type ? strnlen(type, 60) : 0);
                grpc_call_abort(
                    call, GRPC_UNKNOWN,
                    fmt("the server answered with content type \"%s\", not gRPC", str_c(&shown)));
                str_fini(&shown);
        } else if (call->on.on_start)
                call->on.on_start(call);
}

/* A connection on which nobody was let in has an end, whatever its peer sends. */
static int64_t stranger_left_ms(const struct grpc_conn *conn)
{
        int64_t ms = conn->host->stranger_ms;
        return ms > 0 && !conn->is_known ? conn->opened_at_ms + ms - mono_ms() : INT64_MAX;
}

/* After this long (not positive: never), or when a stranger's time is up. */
static void arm(struct grpc_conn *conn, int64_t ms)
{
        int64_t left = stranger_left_ms(conn);
        if (ms <= 0 || left < ms)
                ms = left;
        if (ms == INT64_MAX)
                return;
        struct timeval tv = ms_timeval(ms);
        event_add(conn->timer, &tv);
}

static void settings_received(struct grpc_conn *conn)
{
        if (conn->is_ready)
                return;
        conn->is_ready = true;
        event_del(conn->timer);
        arm(conn, conn->host->keepalive_ms);
        if (conn->hooks->ready)
                conn->hooks->ready(conn);
}

static void goaway_finish(struct grpc_conn *conn)
{
        conn->goaway_pending = false;
        conn->goaway_final = true;
        nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(conn->session),
                              NGHTTP2_NO_ERROR, NULL, 0);
        grpc_conn_flush_soon(conn);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
        struct grpc_conn *conn = arg;

        if (conn->gone)
                return NGHTTP2_ERR_CALLBACK_FAILURE;
        struct grpc_call *call =
            frame->hd.stream_id > 0 ? stream_call(session, frame->hd.stream_id) : NULL;
        if (call)
                grpc_call_ref(call);
        switch (frame->hd.type) {
        case NGHTTP2_SETTINGS:
                if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
                        settings_received(conn);
                break;
        case NGHTTP2_PING:
                if ((frame->hd.flags & NGHTTP2_FLAG_ACK) && conn->goaway_pending)
                        goaway_finish(conn);
                break;
        case NGHTTP2_GOAWAY:
                conn->peer_goaway = true;
                if (conn->hooks->goaway)
                        conn->hooks->goaway(conn);
                break;
        case NGHTTP2_HEADERS:
                if (call)
                        headers_received(conn, frame, call);
                break;
        default:
                break;
        }
        if (call && (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
            (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
                grpc_call_remote_done(call);
        if (call)
                grpc_call_unref(call);
        return conn->gone ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                   size_t len, void *arg)
{
        struct grpc_conn *conn = arg;

        if (conn->gone)
                return NGHTTP2_ERR_CALLBACK_FAILURE;
        struct grpc_call *call = stream_call(session, stream_id);
        if (call) {
                call->last_frame = flags & NGHTTP2_FLAG_END_STREAM;
                grpc_call_receive(call, data, len);
        } else
                nghttp2_session_consume(session, stream_id, len);
        return conn->gone ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *arg)
{
        struct grpc_conn *conn = arg;
        struct grpc_call *call = stream_call(session, stream_id);

        if (conn->gone || !call)
                return 0;
        nghttp2_session_set_stream_user_data(session, stream_id, NULL);
        grpc_call_stream_gone(call, error_code, NULL);
        if (conn->hooks->stream_free)
                conn->hooks->stream_free(conn);
        return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
        struct grpc_conn *conn = arg;

        if (conn->gone || frame->hd.type != NGHTTP2_HEADERS)
                return 0;
        struct grpc_call *call = stream_call(session, frame->hd.stream_id);
        if (!call)
                return 0;
        if (!conn->is_server) {
                call->headers_on_wire = true;
                if (call->reset_wanted)
                        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                                  NGHTTP2_CANCEL);
        } else if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && !call->remote_done)
                /* The answer is complete: the client need not send the rest of its request (RFC
                 * 9113, 8.1). */
                nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                          NGHTTP2_NO_ERROR);
        return 0;
}

static int on_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame, int lib_error,
                             void *arg)
{
        struct grpc_conn *conn = arg;
        (void)session;

        if (conn->gone || frame->hd.type != NGHTTP2_HEADERS)
                return 0;
        /* A request that could not be sent (the peer said GOAWAY, ids are used up) never becomes a
         * stream, so no close comes. */
        for (struct grpc_call *call = conn->calls; call && !conn->is_server; call = call->next)
                if (call->stream_id == frame->hd.stream_id && !call->headers_on_wire) {
                        struct err why;
                        err_set(&why, ERR_UNAVAILABLE, .msg = "the request could not be sent",
                                .detail = nghttp2_strerror(lib_error));
                        grpc_call_stream_gone(call, NGHTTP2_REFUSED_STREAM, &why);
                        break;
                }
        return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int lib_error,
                            void *arg)
{
        struct grpc_conn *conn = arg;
        (void)session;

        log_debug("invalid HTTP/2 frame", LOG_S("peer", conn->peer), LOG_I("type", frame->hd.type),
                  LOG_I("stream", frame->hd.stream_id),
                  LOG_S("error", nghttp2_strerror(lib_error)));
        return 0;
}

static int make_session(struct grpc_conn *conn)
{
        nghttp2_session_callbacks *cb = NULL;
        nghttp2_option *option = NULL;
        int r = -1;

        if (nghttp2_session_callbacks_new(&cb) == 0 && nghttp2_option_new(&option) == 0) {
                nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
                nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
                nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
                nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
                nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
                nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
                nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_frame_not_send);
                nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
                nghttp2_option_set_no_auto_window_update(option, 1);
                nghttp2_option_set_no_closed_streams(option, 1);
                /* rapid reset: bursts of 1,000, then 100 a second */
                nghttp2_option_set_stream_reset_rate_limit(option, 1000, 100);
                r = conn->is_server ? nghttp2_session_server_new2(&conn->session, cb, conn, option)
                                    : nghttp2_session_client_new2(&conn->session, cb, conn, option);
        }
        nghttp2_option_del(option);
        nghttp2_session_callbacks_del(cb);
        return r;
}

/* ---- the socket's callbacks ---- */

static int greet(struct grpc_conn *conn)
{
        nghttp2_settings_entry s[4] = {
                { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_WINDOW },
                { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)conn->host->max_header_bytes },
                { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                  conn->is_server ? conn->host->max_streams : 0 },
                { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
        };

        if (nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, s, conn->is_server ? 3 : 4) !=
                0 ||
            nghttp2_session_set_local_window_size(conn->session, NGHTTP2_FLAG_NONE, 0,
                                                  H2_CONNECTION_WINDOW) != 0)
                return -1;
        return 0;
}

static void on_read(struct bufferevent *bev, void *arg)
{
        struct grpc_conn *conn = arg;
        struct evbuffer *in = bufferevent_get_input(bev);
        struct evbuffer_iovec v;

        if (conn->gone)
                return;
        if (conn->intake_bytes != conn->host->intake_bytes) {
                conn->intake_bytes = conn->host->intake_bytes;
                bufferevent_set_max_single_read(bev, conn->intake_bytes); /* 0: its default */
        }
        conn->busy++;
        conn->has_read = conn->will_flush = true;
        while (!conn->gone && evbuffer_peek(in, -1, NULL, &v, 1) > 0 && v.iov_len > 0) {
                ssize_t n = nghttp2_session_mem_recv(conn->session, v.iov_base, v.iov_len);
                if (conn->gone)
                        break;
                if (n < 0) {
                        /* the GOAWAY that says why, as far as the socket takes it */
                        take_output(conn);
                        if (!conn->gone)
                                write_now(conn->bev);
                        end_with(conn, ERR_UNAVAILABLE,
                                 "the peer does not speak HTTP/2 as it should",
                                 nghttp2_strerror((int)n));
                        break;
                }
                evbuffer_drain(in, (size_t)n);
        }
        flush(conn);
        conn->will_flush = false;
        leave(conn);
}

static void on_write(struct bufferevent *bev, void *arg)
{
        struct grpc_conn *conn = arg;

        if (!conn->gone)
                write_now_drained(bev, conn->ssl != NULL);
        on_flush(-1, 0, arg);
}

/* Why a socket failed, from TLS if it was TLS that did. */
static void socket_error(struct grpc_conn *conn, short what, struct err *why)
{
        int errnum = EVUTIL_SOCKET_ERROR();
        unsigned long e = conn->ssl ? bufferevent_get_openssl_error(conn->bev) : 0;
        const char *reason = e ? ERR_reason_error_string(e) : NULL;

        if (conn->ssl && conn->is_server && !conn->is_secure)
                tls_handshake_failed(conn->ssl, e, conn->peer);
        if (reason) {
                long verify = SSL_get_verify_result(conn->ssl);
                err_set(why, ERR_UNAVAILABLE,
                        .msg = conn->is_ready ? "the TLS connection failed"
                                              : "the TLS handshake failed",
                        .detail = verify != X509_V_OK
                                      ? fmt("%s: %s", reason, X509_verify_cert_error_string(verify))
                                      : reason,
                        .hint = "check that both sides use certificates of the same CA, and that "
                                "the name is in the server's certificate");
        } else if (what & BEV_EVENT_EOF)
                err_set(why, ERR_UNAVAILABLE, .msg = "the peer closed the connection");
        else
                err_set(why, ERR_UNAVAILABLE, .msg = "the connection was lost",
                        .detail = errnum ? strerror(errnum) : NULL);
        ERR_clear_error();
}

static bool is_another_node(const struct grpc_conn *conn)
{
        const char *wanted = conn->host->node_id;
        return wanted && tls_identity_name(conn->identity, "node") &&
               !tls_identity_is_node(conn->identity, wanted);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
        struct grpc_conn *conn = arg;
        (void)bev;

        if (conn->gone)
                return;
        if (what & BEV_EVENT_CONNECTED) {
                if (!tls_alpn_is(conn->ssl, "h2")) {
                        end_with(conn, ERR_UNAVAILABLE, "the peer does not offer HTTP/2 (ALPN h2)",
                                 NULL);
                        return;
                }
                conn->is_secure = true;
                conn->identity = tls_peer_identity(conn->ssl);
                if (is_another_node(conn)) {
                        end_with(conn, ERR_DENIED, "the peer is another node",
                                 fmt("its certificate is that of %.128s",
                                     tls_identity_words(conn->identity)));
                        return;
                }
                if (conn->host->to_server && conn->identity &&
                    !tls_identity_is_server(conn->identity)) {
                        end_with(conn, ERR_DENIED, "the peer is no server",
                                 fmt("its certificate is that of %.128s",
                                     tls_identity_words(conn->identity)));
                        return;
                }
                grpc_conn_flush_soon(conn);
                return;
        }
        struct err why;
        socket_error(conn, what, &why);
        conn->busy++;
        grpc_conn_end(conn, &why);
        leave(conn);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
        struct grpc_conn *conn = arg;
        struct grpc_host *host = conn->host;
        (void)fd;
        (void)what;

        if (!conn->is_ready) {
                end_with(conn, ERR_UNAVAILABLE, "the handshake took too long", NULL);
                return;
        }
        if (stranger_left_ms(conn) <= 0) {
                if (conn->goaway_pending || conn->goaway_final) {
                        end_with(conn, ERR_UNAVAILABLE, "nobody was let in on this connection",
                                 NULL);
                        return;
                }
                struct timeval last_words = ms_timeval(host->keepalive_timeout_ms);
                grpc_conn_goaway(conn);
                event_add(conn->timer, &last_words);
                return;
        }
        int64_t next_ms = host->keepalive_ms;
        if (conn->has_read)
                conn->ping_pending = false;
        else if (conn->ping_pending) {
                end_with(conn, ERR_UNAVAILABLE, "the peer does not answer",
                         "keepalive PING timed out");
                return;
        } else if (conn->is_server || conn->n_calls > 0) {
                nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL);
                grpc_conn_flush_soon(conn);
                conn->ping_pending = true;
                next_ms = host->keepalive_timeout_ms;
        }
        conn->has_read = false;
        arm(conn, next_ms);
}

void grpc_conn_goaway(struct grpc_conn *conn)
{
        if (conn->gone || conn->goaway_pending || conn->goaway_final)
                return;
        if (!conn->is_ready) {
                goaway_finish(conn);
                return;
        }
        /* A request that crosses the notice on the wire is still served; the PING's answer says
         * that none is under way any more. */
        conn->goaway_pending = true;
        nghttp2_submit_shutdown_notice(conn->session);
        nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL);
        grpc_conn_flush_soon(conn);
}

struct grpc_conn *grpc_conn_new(struct grpc_host *host, const struct grpc_conn_hooks *hooks, int fd,
                                struct ssl_st *ssl, bool is_server, const struct sockaddr *peer,
                                int64_t handshake_timeout_ms, struct err *err)
{
        struct grpc_conn *conn = mem_must(sizeof(*conn));
        struct timeval tv = ms_timeval(handshake_timeout_ms);

        conn->host = host;
        conn->hooks = hooks;
        conn->is_server = is_server;
        conn->opened_at_ms = mono_ms();
        addr_format(peer, conn->peer);
        if (ssl && tls_attach(ssl, fd, err) == 0)
                conn->bev = bufferevent_openssl_socket_new(host->base, fd, ssl,
                                                           is_server ? BUFFEREVENT_SSL_ACCEPTING
                                                                     : BUFFEREVENT_SSL_CONNECTING,
                                                           BEV_OPT_CLOSE_ON_FREE);
        else if (!ssl)
                conn->bev = bufferevent_socket_new(host->base, fd, BEV_OPT_CLOSE_ON_FREE);
        if (!conn->bev) {
                SSL_free(ssl);
                close(fd);
                goto fail;
        }
        conn->ssl = ssl;
        conn->flush_event = event_new(host->base, -1, 0, on_flush, conn);
        conn->timer = evtimer_new(host->base, on_timer, conn);
        if (!conn->flush_event || !conn->timer || make_session(conn) != 0 || greet(conn) < 0)
                goto fail;
        if (ssl)
                bufferevent_openssl_set_allow_dirty_shutdown(conn->bev, 1);
        bufferevent_setcb(conn->bev, on_read, on_write, on_event, conn);
        event_add(conn->timer, &tv);
        write_now_init(conn->bev, ssl != NULL);
        if (!ssl)
                grpc_conn_flush_soon(conn);
        return conn;
fail:
        err_set(err, ERR_NOMEM, .msg = "no memory for a connection");
        conn_free(conn);
        return NULL;
}
