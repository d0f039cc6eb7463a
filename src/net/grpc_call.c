/* net/grpc_call.c: one call: messages in and out, its states, and what its owner is promised
 * (grpc.h, 1 to 6).
 *
 * Bytes come in from the session (grpc_call_receive), are cut into messages here and go to
 * on_message at once, or are held while the call is paused. The stream's window is given back only
 * for bytes that were cut, so a paused call slows its peer down; the connection's window is given
 * back at once, so that it slows nobody else. Bytes go out when the session asks for them
 * (grpc_call_read).
 *
 * Invariants:
 *   (1) closed is set once; from then on the only callback is on_close, and it comes from the
 *       loop's visit.
 *   (2) held is empty unless the call is paused, or a visit is due (resume_due).
 *   (3) conn->queued_bytes is the sum of the out queues of its calls, host->queued_bytes that of
 *       all its connections.
 *   (4) A call in a connection's list has stream_id > 0 and holds a reference for its stream.
 *   (5) conn->buffered_bytes is the sum of message_in and held of its calls, as of the last
 *       receive.
 */
#include "base/log.h"
#include "base/mem.h"
#include "net/grpc_internal.h"
#include <assert.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <string.h>

/* ---- life ---- */

struct grpc_call *grpc_call_new(struct grpc_host *host, bool is_server, const char *path,
                                size_t path_len)
{
        struct grpc_call *call = mem_must(sizeof(*call));
        call->began_ns = clock_mono_ns();

        call->host = host;
        call->is_server = is_server;
        call->path = mem_strndup(path, path_len);
        call->refs = 1; /* the owner's */
        call->stream_id = -1;
        call->status = GRPC_UNKNOWN;
        call->max_message_bytes = host->max_message_bytes;
        call->max_queued_bytes = host->max_queued_bytes;
        call->id = slots_take(&host->calls, call);
        host->n_calls++;
        host->calls_total++;
        return call;
}

void grpc_call_ref(struct grpc_call *call)
{
        call->refs++;
}

void grpc_call_unref(struct grpc_call *call)
{
        assert(call->refs > 0);
        if (--call->refs > 0)
                return;
        if (call->has_deadline)
                event_del(&call->deadline);
        str_fini(&call->headers);
        str_fini(&call->trailers);
        str_fini(&call->message_in);
        str_fini(&call->held);
        str_fini(&call->trailers_out);
        if (call->out)
                evbuffer_free(call->out);
        mem_free(call->path);
        mem_free(call->message);
        mem_free(call);
}

void grpc_call_attach(struct grpc_call *call, struct grpc_conn *conn, int32_t stream_id)
{
        call->conn = conn;
        call->stream_id = stream_id;
        memcpy(call->peer, conn->peer, sizeof(call->peer));
        call->prev = NULL;
        call->next = conn->calls;
        if (conn->calls)
                conn->calls->prev = call;
        conn->calls = call;
        conn->n_calls++;
        conn->queued_bytes += grpc_call_queued_bytes(call);
        call->host->queued_bytes += grpc_call_queued_bytes(call);
        grpc_call_ref(call); /* the stream's: (4) */
}

static void drop_queue(struct grpc_call *call)
{
        size_t n = grpc_call_queued_bytes(call);

        if (n == 0)
                return;
        if (call->conn) {
                call->conn->queued_bytes -= n;
                if (call->host)
                        call->host->queued_bytes -= n;
        }
        evbuffer_drain(call->out, n);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
        (void)fd;
        (void)what;
        grpc_call_abort(arg, GRPC_DEADLINE_EXCEEDED, "the deadline has passed");
}

void grpc_call_set_deadline(struct grpc_call *call, int64_t deadline_ms)
{
        struct timeval tv = ms_timeval(deadline_ms);

        call->deadline_at_ms = mono_ms() + deadline_ms;
        call->has_deadline = true;
        event_assign(&call->deadline, call->host->base, -1, 0, on_deadline, call);
        event_add(&call->deadline, &tv);
}

void grpc_call_close(struct grpc_call *call, enum grpc_status status, const char *message)
{
        if (call->closed)
                return;
        call->closed = true; /* (1) */
        grpc_call_arrived(call);
        call->status = (unsigned)status < _GRPC_STATUS_MAX ? status : GRPC_UNKNOWN;
        if (!call->message)
                call->message = mem_strdup(message);
        if (call->has_deadline)
                event_del(&call->deadline);
        str_fini(&call->held);
        str_fini(&call->message_in);
        if (call->conn)
                call->conn->buffered_bytes -= call->buffered_bytes;
        call->buffered_bytes = 0;
        if (call->is_waiting)
                grpc_channel_unwait(call);
        grpc_call_work(call);
}

static void reset_stream(struct grpc_call *call, uint32_t code)
{
        drop_queue(call);
        if (!call->conn)
                return;
        if (!call->is_server && !call->headers_on_wire) {
                call->reset_wanted = true;
                return;
        }
        nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->stream_id, code);
        grpc_conn_flush_soon(call->conn);
}

static void finish(struct grpc_call *call, enum grpc_status status, const char *message,
                   const struct grpc_metadata *trailers);

/* Trailers wait behind DATA, and DATA waits for the peer's window: to a peer that does not read
 * only RST gets through. */
static bool can_take_trailers(struct grpc_call *call)
{
        nghttp2_session *session = call->conn->session;

        return !call->headers_done ||
               (nghttp2_session_get_stream_remote_window_size(session, call->stream_id) > 0 &&
                nghttp2_session_get_remote_window_size(session) > 0);
}

void grpc_call_abort(struct grpc_call *call, enum grpc_status status, const char *message)
{
        if (call->closed)
                return;
        if (call->is_server && call->conn && !call->trailers_done && can_take_trailers(call)) {
                drop_queue(call);
                call->local_done = false; /* a finish that has not gone out yet is overruled */
                str_clear(&call->trailers_out);
                finish(call, status, message, NULL);
        } else
                reset_stream(call, NGHTTP2_CANCEL);
        grpc_call_close(call, status, message);
}

void grpc_call_cancel(struct grpc_call *call)
{
        if (call->closed)
                return;
        reset_stream(call, NGHTTP2_CANCEL);
        grpc_call_close(call, GRPC_CANCELLED, "cancelled here");
}

/* ---- receiving ---- */

/* 0, or -1 when the call was ended because of what the prefix says. */
static int check_prefix(struct grpc_call *call, const uint8_t *p, size_t *ret_len)
{
        size_t len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];

        if (p[0] == 1)
                grpc_call_abort(call, GRPC_UNIMPLEMENTED, "compressed messages are not supported");
        else if (p[0] > 1)
                grpc_call_abort(call, GRPC_INTERNAL, "malformed message prefix");
        else if (len > call->max_message_bytes)
                grpc_call_abort(call, GRPC_RESOURCE_EXHAUSTED,
                                fmt("a message of %zu bytes is larger than the limit of %zu", len,
                                    call->max_message_bytes));
        else {
                *ret_len = len;
                return 0;
        }
        return -1;
}

static void deliver(struct grpc_call *call, const uint8_t *data, size_t len)
{
        call->received++;
        if (!call->unary_request)
                grpc_call_arrived(call);
        if (call->host)
                call->host->messages_in_total++;
        if (call->is_server && call->unary_request && call->received > 1)
                grpc_call_abort(call, GRPC_INTERNAL, "more than one request message");
        else if (call->on.on_message)
                call->on.on_message(call, data, len);
}

/* A unary request counts when it has ended: until then it waits where it is counted (5), and its
 * owner need not hold anything for a client that never says that this was all. Nearly always the
 * message's last frame says so. */
static bool must_wait(struct grpc_call *call)
{
        return call->is_server && call->unary_request && !call->last_frame && !call->remote_done;
}

/* Taken out first: the owner may end the call from inside on_message. */
static void deliver_buffered(struct grpc_call *call)
{
        struct str whole = call->message_in;

        call->message_in = STR_INIT;
        call->whole = false;
        deliver(call, (const uint8_t *)whole.buf + GRPC_PREFIX, whole.len - GRPC_PREFIX);
        if (whole.cap <= 64 * 1024 && !call->message_in.buf && !call->closed) {
                str_clear(&whole);
                call->message_in = whole;
        } else
                str_fini(&whole);
}

/* One step: a whole message, or as much of it as there is. Returns the bytes taken. */
static size_t parse_some(struct grpc_call *call, const uint8_t *data, size_t len)
{
        size_t have = call->message_in.len, want = 0;

        if (call->whole) {
                grpc_call_abort(call, GRPC_INTERNAL, "more than one request message");
                return len;
        }
        if (have == 0 && len >= GRPC_PREFIX) {
                if (check_prefix(call, data, &want) < 0)
                        return len;
                if (len - GRPC_PREFIX >= want && !must_wait(call)) { /* the usual case: no copy */
                        deliver(call, data + GRPC_PREFIX, want);
                        return GRPC_PREFIX + want;
                }
        }
        size_t target = GRPC_PREFIX;
        if (have >= GRPC_PREFIX) {
                if (check_prefix(call, (const uint8_t *)call->message_in.buf, &want) < 0)
                        return len;
                target += want;
        } else if (have == 0 && len >= GRPC_PREFIX)
                target += want;
        size_t take = target - have < len ? target - have : len;
        str_add(&call->message_in, data, take);
        if (call->message_in.len < GRPC_PREFIX)
                return take;
        if (check_prefix(call, (const uint8_t *)call->message_in.buf, &want) < 0)
                return len;
        if (call->message_in.len == GRPC_PREFIX + want) {
                if (must_wait(call))
                        call->whole = true;
                else
                        deliver_buffered(call);
        }
        return take;
}

/* Cuts messages until the bytes end or the call is paused or closed. Returns the bytes taken. */
static size_t parse(struct grpc_call *call, const uint8_t *data, size_t len)
{
        size_t at = 0;

        call->in_parse = true;
        while (at < len && !call->paused && !call->closed)
                at += parse_some(call, data + at, len - at);
        call->in_parse = false;
        return call->closed ? len : at;
}

static void check_half_close(struct grpc_call *call)
{
        if (!call->is_server || !call->remote_done || call->half_closed || call->closed ||
            call->paused || call->held.len > 0)
                return;
        call->half_closed = true;
        grpc_call_arrived(call);
        if (call->whole)
                deliver_buffered(call);
        if (call->closed)
                return;
        if (call->message_in.len > 0)
                grpc_call_abort(call, GRPC_INTERNAL, "the request ends inside a message");
        else if (call->unary_request && call->received != 1)
                grpc_call_abort(call, GRPC_INTERNAL, "the request has no message");
        else if (call->on.on_half_close)
                call->on.on_half_close(call);
}

static void check_end(struct grpc_call *call)
{
        if (!call->ended || call->closed || call->held.len > 0)
                return;
        if (call->message_in.len > 0 && call->status == GRPC_OK)
                grpc_call_close(call, GRPC_INTERNAL, "the response ends inside a message");
        else
                grpc_call_close(call, call->status, call->message);
}

/* (5). A hundred streams that each begin a message of the largest size and never end it must not
 * fill the memory. */
static void count_buffered(struct grpc_call *call)
{
        struct grpc_conn *conn = call->conn;
        size_t now = call->closed ? 0 : call->message_in.len + call->held.len;

        if (!conn)
                return;
        conn->buffered_bytes += now - call->buffered_bytes;
        call->buffered_bytes = now;
        size_t limit = call->max_message_bytes > H2_BUFFERED_MAX / 2 ? 2 * call->max_message_bytes
                                                                     : H2_BUFFERED_MAX;
        if (now > 0 && conn->buffered_bytes > limit)
                grpc_call_abort(call, GRPC_RESOURCE_EXHAUSTED,
                                "too many unfinished messages on this connection");
}

void grpc_call_receive(struct grpc_call *call, const uint8_t *data, size_t len)
{
        size_t taken = 0;

        grpc_call_ref(call);
        grpc_conn_consume(call->conn, 0, len);
        if (call->held.len == 0)
                taken = parse(call, data, len);
        if (taken < len && !call->closed)
                str_add(&call->held, data + taken, len - taken);
        count_buffered(call);
        if (taken > 0 && call->conn)
                grpc_conn_consume(call->conn, call->stream_id, taken);
        grpc_call_unref(call);
}

void grpc_call_deliver_held(struct grpc_call *call)
{
        grpc_call_ref(call);
        if (call->held.len > 0 && !call->paused) {
                struct str held = call->held;
                call->held = STR_INIT;
                size_t taken = parse(call, (const uint8_t *)held.buf, held.len);
                if (taken < held.len && !call->closed)
                        str_add(&call->held, held.buf + taken, held.len - taken);
                str_fini(&held);
                count_buffered(call);
                if (call->conn)
                        grpc_conn_consume(call->conn, call->stream_id, taken);
        }
        check_half_close(call);
        check_end(call);
        grpc_call_unref(call);
}

void grpc_call_remote_done(struct grpc_call *call)
{
        grpc_call_ref(call);
        call->remote_done = true;
        check_half_close(call);
        grpc_call_unref(call);
}

void grpc_call_pause(struct grpc_call *call)
{
        call->paused = true;
}

void grpc_call_resume(struct grpc_call *call)
{
        if (!call->paused || call->closed)
                return;
        call->paused = false;
        /* Inside on_message the loop over the bytes at hand just goes on. */
        if (!call->in_parse || call->held.len > 0) {
                call->resume_due = true;
                grpc_call_work(call);
        }
}

void grpc_call_add_header(struct grpc_call *call, bool is_trailer, const uint8_t *name,
                          size_t name_len, const uint8_t *value, size_t value_len)
{
        /* 32 more per field is HTTP/2's own way to count (RFC 9113, 6.5.2). */
        call->header_bytes += name_len + value_len + 32;
        if (!call->host || call->header_bytes > call->host->max_header_bytes) {
                call->headers_too_big = true;
                return;
        }
        meta_add_received(is_trailer ? &call->trailers : &call->headers, (const char *)name,
                          name_len, (const char *)value, value_len);
}

/* The status that a client's call ends with, by trailers, HTTP status or reset code. */
static void settle_client(struct grpc_call *call, uint32_t h2_error)
{
        const struct str *from = call->trailers.len > 0 ? &call->trailers : &call->headers;
        size_t len;
        const char *text = meta_find(from, "grpc-status", NULL);
        int64_t code;

        mem_free(call->message);
        call->message = NULL;
        if (call->headers_too_big) {
                call->status = GRPC_RESOURCE_EXHAUSTED;
                call->message = mem_strdup(fmt("the response's headers are larger than %zu bytes",
                                               call->host ? call->host->max_header_bytes : 0));
        } else if (text) {
                call->status =
                    str_parse_i64(text, &code) == 0 && code >= 0 && code < _GRPC_STATUS_MAX
                        ? (enum grpc_status)code
                        : GRPC_UNKNOWN;
                text = meta_find(from, "grpc-message", &len);
                if (text) {
                        struct str decoded = STR_INIT;
                        grpc_percent_decode(&decoded, text, len);
                        call->message = str_take(&decoded);
                }
        } else if (call->http_status != 0 && call->http_status != 200) {
                call->status = grpc_status_from_http(call->http_status);
                call->message =
                    mem_strdup(fmt("the server answered with HTTP status %d", call->http_status));
        } else if (h2_error != NGHTTP2_NO_ERROR) {
                call->status = grpc_status_from_reset(h2_error);
                call->message = mem_strdup(
                    fmt("the server reset the call: %s", nghttp2_http2_strerror(h2_error)));
        } else {
                call->status = call->started ? GRPC_UNKNOWN : GRPC_UNAVAILABLE;
                call->message = mem_strdup("the call ended without a status");
        }
}

void grpc_call_stream_gone(struct grpc_call *call, uint32_t h2_error, const struct err *why)
{
        struct grpc_conn *conn = call->conn;

        if (!conn)
                return;
        drop_queue(call);
        conn->buffered_bytes -= call->buffered_bytes;
        call->buffered_bytes = 0;
        if (call->prev)
                call->prev->next = call->next;
        else
                conn->calls = call->next;
        if (call->next)
                call->next->prev = call->prev;
        call->next = call->prev = NULL;
        conn->n_calls--;
        call->conn = NULL;
        call->stream_id = -1;

        if (call->is_server) {
                if (call->trailers_done && !why)
                        grpc_call_close(call, call->status, NULL);
                else
                        grpc_call_close(call, GRPC_CANCELLED, "the client went away");
        } else if (!call->closed) {
                if (why) {
                        mem_free(call->message);
                        call->message = NULL;
                        grpc_call_close(call, GRPC_UNAVAILABLE, err_line(why));
                } else {
                        settle_client(call, h2_error);
                        call->ended = true;
                        check_end(call);
                }
        }
        grpc_call_unref(call); /* the stream's */
}

/* ---- sending ---- */

static size_t fill_nv(nghttp2_nv *nv, size_t max, size_t n, const struct str *blob)
{
        struct meta_entry e;

        for (size_t at = 0; n < max && meta_next(blob, &at, &e);)
                nv[n++] = (nghttp2_nv){ (uint8_t *)(uintptr_t)e.name, (uint8_t *)(uintptr_t)e.value,
                                        e.name_len, e.value_len, NGHTTP2_NV_FLAG_NONE };
        return n;
}

/* have_body false: trailers-only, the status is in trailers_out. */
static void submit_response(struct grpc_call *call, const struct str *metadata, bool have_body)
{
        nghttp2_nv nv[META_MAX] = {
                { (uint8_t *)(uintptr_t) ":status", (uint8_t *)(uintptr_t) "200", 7, 3,
                  NGHTTP2_NV_FLAG_NONE },
                { (uint8_t *)(uintptr_t) "content-type", (uint8_t *)(uintptr_t) "application/grpc",
                  12, 16, NGHTTP2_NV_FLAG_NONE },
        };
        nghttp2_data_provider body = { .source = { .ptr = call }, .read_callback = grpc_call_read };
        size_t n = 2;

        if (metadata)
                n = fill_nv(nv, META_MAX, n, metadata);
        if (!have_body)
                n = fill_nv(nv, META_MAX, n, &call->trailers_out);
        call->headers_done = true;
        if (!have_body)
                call->trailers_done = true;
        if (nghttp2_submit_response(call->conn->session, call->stream_id, nv, n,
                                    have_body ? &body : NULL) != 0)
                reset_stream(call, NGHTTP2_INTERNAL_ERROR);
        grpc_conn_flush_soon(call->conn);
}

int grpc_call_send_headers(struct grpc_call *call, const struct grpc_metadata *metadata)
{
        _cleanup_(str_finip) struct str blob = STR_INIT;

        if (!call->is_server || call->closed || call->local_done || !call->conn)
                return -ERR_CANCELLED;
        if (call->headers_done)
                return -ERR_CONFLICT;
        meta_add_outgoing(&blob, metadata);
        submit_response(call, &blob, true);
        return 0;
}

static void resume_sending(struct grpc_call *call)
{
        if (!call->conn)
                return;
        nghttp2_session_resume_data(call->conn->session, call->stream_id);
        grpc_conn_flush_soon(call->conn);
}

int grpc_call_send(struct grpc_call *call, const void *data, size_t len)
{
        if (call->closed || call->ended || call->local_done || (call->is_server && !call->conn))
                return -ERR_CANCELLED;
        size_t queued = grpc_call_queued_bytes(call),
               total = call->conn ? call->conn->queued_bytes : 0;
        bool is_full = queued > 0 && queued + len + GRPC_PREFIX > call->max_queued_bytes;
        if (call->conn && total > 0 &&
            total + len + GRPC_PREFIX > call->host->max_connection_queued_bytes)
                is_full = call->conn->has_starved = true;
        if (len > INT32_MAX || is_full) {
                call->drain_wanted = true;
                return -ERR_LIMIT;
        }
        if (!call->out && !(call->out = evbuffer_new()))
                return -ERR_LIMIT;
        const uint8_t prefix[GRPC_PREFIX] = { 0, (uint8_t)(len >> 24), (uint8_t)(len >> 16),
                                              (uint8_t)(len >> 8), (uint8_t)len };
        if (evbuffer_expand(call->out, sizeof(prefix) + len) < 0)
                return -ERR_LIMIT;
        evbuffer_add(call->out, prefix, sizeof(prefix));
        evbuffer_add(call->out, data, len);
        if (call->conn) {
                call->conn->queued_bytes += sizeof(prefix) + len;
                call->host->queued_bytes += sizeof(prefix) + len;
        }
        call->host->messages_out_total++;
        if (call->is_server && !call->headers_done)
                submit_response(call, NULL, true);
        else
                resume_sending(call);
        return 0;
}

static void finish(struct grpc_call *call, enum grpc_status status, const char *message,
                   const struct grpc_metadata *trailers)
{
        enum { MESSAGE_MAX = 2048 };
        char text[4];
        size_t len = message ? strlen(message) : 0;

        call->local_done = true;
        if ((unsigned)status >= _GRPC_STATUS_MAX)
                status = GRPC_UNKNOWN;
        call->status = status;
        text[0] = (char)('0' + status / 10);
        text[1] = (char)('0' + status % 10);
        meta_add(&call->trailers_out, "grpc-status", 11, status >= 10 ? text : text + 1,
                 status >= 10 ? 2 : 1);
        if (len > 0) {
                _cleanup_(str_finip) struct str encoded = STR_INIT;
                if (len > MESSAGE_MAX)
                        for (len = MESSAGE_MAX;
                             len > 0 && ((unsigned char)message[len] & 0xc0) == 0x80;)
                                len--;
                grpc_percent_encode(&encoded, message, len);
                meta_add(&call->trailers_out, "grpc-message", 12, str_c(&encoded), encoded.len);
        }
        meta_add_outgoing(&call->trailers_out, trailers);
        if (!call->headers_done)
                submit_response(call, NULL, false);
        else
                resume_sending(call);
}

void grpc_call_finish(struct grpc_call *call, enum grpc_status status, const char *message,
                      const struct grpc_metadata *trailers)
{
        if (!call->is_server || call->closed || call->local_done || !call->conn)
                return;
        finish(call, status, message, trailers);
}

void grpc_call_reply(struct grpc_call *call, const void *data, size_t len)
{
        /* Many clients that ask and do not read must not fill the memory, each within its own
         * limit. */
        bool is_full = call->host && call->host->max_answer_bytes &&
                       call->host->queued_bytes + len > call->host->max_answer_bytes;
        int r = is_full ? -ERR_LIMIT : grpc_call_send(call, data, len);

        if (r == -ERR_LIMIT)
                grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED,
                                 is_full ? "too many answers wait to be read by their clients"
                                         : "too much waits to be sent on this connection",
                                 NULL);
        else
                grpc_call_finish(call, GRPC_OK, NULL, NULL);
}

void grpc_call_half_close(struct grpc_call *call)
{
        if (call->is_server || call->closed || call->local_done)
                return;
        call->local_done = true;
        resume_sending(call);
}

/* The connection as a whole has room again: all that were refused because of it may go on. */
static void wake_starved(struct grpc_conn *conn)
{
        conn->has_starved = false;
        for (struct grpc_call *c = conn->calls; c; c = c->next)
                if (c->drain_wanted)
                        grpc_call_work(c);
}

ssize_t grpc_call_read(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t len,
                       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
        struct grpc_call *call = source->ptr;
        struct grpc_conn *conn = arg;
        size_t queued = grpc_call_queued_bytes(call), n = queued < len ? queued : len;

        if (n > 0) {
                evbuffer_remove(call->out, buf, n);
                conn->queued_bytes -= n; /* (3) */
                if (call->host)
                        call->host->queued_bytes -= n;
                queued -= n;
                if (call->drain_wanted && queued <= call->max_queued_bytes / 4)
                        grpc_call_work(call);
                if (conn->has_starved &&
                    conn->queued_bytes <= call->host->max_connection_queued_bytes / 4)
                        wake_starved(conn);
        }
        if (queued == 0 && call->local_done) {
                *flags |= NGHTTP2_DATA_FLAG_EOF;
                if (call->is_server) {
                        nghttp2_nv nv[META_MAX];
                        size_t count = fill_nv(nv, META_MAX, 0, &call->trailers_out);
                        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
                        call->trailers_done = true;
                        if (nghttp2_submit_trailer(session, stream_id, nv, count) != 0)
                                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
                }
        } else if (n == 0)
                return NGHTTP2_ERR_DEFERRED;
        return (ssize_t)n;
}

size_t grpc_call_queued_bytes(const struct grpc_call *call)
{
        return call->out ? evbuffer_get_length(call->out) : 0;
}

bool grpc_call_is_over(const struct grpc_call *call)
{
        return call->closed || call->ended || call->local_done || (call->is_server && !call->conn);
}

void grpc_call_want_drain(struct grpc_call *call)
{
        call->drain_wanted = true;
        if (grpc_call_queued_bytes(call) <= call->max_queued_bytes / 4)
                grpc_call_work(call);
}

/* ---- looking at it ---- */

void *grpc_call_data(const struct grpc_call *call)
{
        return call->data;
}
void grpc_call_set_data(struct grpc_call *call, void *data)
{
        call->data = data;
}
uint64_t grpc_call_id(const struct grpc_call *call)
{
        return call->id;
}
const char *grpc_call_path(const struct grpc_call *call)
{
        return call->path;
}
const char *grpc_call_peer(const struct grpc_call *call)
{
        return call->peer;
}
const char *grpc_call_message(const struct grpc_call *call)
{
        return call->message ? call->message : "";
}

const struct tls_identity *grpc_call_identity(const struct grpc_call *call)
{
        return call->conn ? call->conn->identity : NULL;
}

int64_t grpc_call_age_ns(const struct grpc_call *call)
{
        return clock_mono_ns() - call->began_ns;
}

int64_t grpc_call_remaining_ms(const struct grpc_call *call)
{
        if (!call->has_deadline)
                return GRPC_NO_DEADLINE;
        int64_t left = call->deadline_at_ms - mono_ms();
        return left > 0 ? left : 0;
}

const char *grpc_call_header(const struct grpc_call *call, const char *name, size_t *ret_len)
{
        return meta_find(&call->headers, name, ret_len);
}

const char *grpc_call_trailer(const struct grpc_call *call, const char *name, size_t *ret_len)
{
        /* Trailers-only: what would be trailers came as the headers. */
        return meta_find(call->trailers.len > 0 ? &call->trailers : &call->headers, name, ret_len);
}
