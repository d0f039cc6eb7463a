/* net/http_reply.c: answers and streams. See http.h. */
#include "base/log.h"
#include "base/mem.h"
#include "net/http_internal.h"
#include "net/write_now.h"
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <string.h>

static void json_string(struct str *out, const char *name, const char *value)
{
        if (str_empty(value))
                return;
        str_addf(out, "%s\"%s\":\"", out->len > 1 ? "," : "", name);
        for (size_t left = strlen(value), n; left > 0; value += n, left -= n) {
                unsigned char c = (unsigned char)*value;
                n = str_utf8_len(value, left);
                if (c == '"' || c == '\\')
                        str_addc(out, '\\');
                if (n == 0) /* no answer is ever invalid UTF-8 */
                        str_adds(out, "\xEF\xBF\xBD");
                else if (c < 0x20)
                        str_addf(out, "\\u%04x", c);
                else
                        str_add(out, value, n);
                n = n ? n : 1;
        }
        str_addc(out, '"');
}

void http_error_body(struct str *out, const struct err *err, const char *code,
                     const char *request_id)
{
        str_addc(out, '{');
        json_string(out, "code", code ? code : err_code_name(err->code));
        json_string(out, "message", err->msg);
        json_string(out, "detail", err->detail);
        json_string(out, "hint", err->hint);
        json_string(out, "path", err->path);
        json_string(out, "request_id", request_id);
        if (err->retry_after_ms > 0)
                str_addf(out, ",\"retry_after_ms\":%lld", (long long)err->retry_after_ms);
        if (err->excess.dimension) {
                json_string(out, "dimension", err->excess.dimension);
                str_addf(out, ",\"limit\":%lld,\"current_usage\":%lld,\"requested_delta\":%lld",
                         (long long)err->excess.limit, (long long)err->excess.current_usage,
                         (long long)err->excess.requested_delta);
        }
        str_adds(out, "}\n");
}

static void add_field(struct str *out, const char *name, const char *value)
{
        str_adds(out, name);
        str_adds(out, ": ");
        str_adds(out, value);
        str_adds(out, "\r\n");
}

/* Status line and headers. body_len: -1: chunked (or until close), -2: none at all. */
static void add_head(struct http_request *req, struct str *out, int status,
                     const struct http_field *fields, int64_t body_len)
{
        struct http_conn *conn = req->conn;

        req->status = status;
        /* piece by piece: printf took longer than all the rest of an answer */
        str_adds(out, "HTTP/1.1 ");
        str_add_i64(out, status);
        str_addc(out, ' ');
        str_adds(out, http_status_text(status));
        add_field(out, "\r\nDate", http_date(conn->server));
        add_field(out, "X-Request-Id", http_request_id(req));
        for (const struct http_field *f = fields; f && f->name; f++)
                if (f->value && !strpbrk(f->value, "\r\n") && !strpbrk(f->name, "\r\n:"))
                        add_field(out, f->name, f->value);
        if (body_len >= 0) {
                str_adds(out, "Content-Length: ");
                str_add_i64(out, body_len);
                str_adds(out, "\r\n");
        } else if (body_len == -1 && req->head.minor == 1)
                str_adds(out, "Transfer-Encoding: chunked\r\n");
        if (conn->server->is_draining)
                conn->keep_alive = false;
        if (!conn->keep_alive)
                str_adds(out, "Connection: close\r\n");
        else if (req->head.minor == 0)
                str_adds(out, "Connection: keep-alive\r\n");
        str_adds(out, "\r\n");
}

static bool is_head(const struct http_request *req)
{
        return str_eq(req->head.method, "HEAD");
}

/* The client left while on_close was being called: nobody to answer. */
static bool is_gone(struct http_request *req)
{
        return req->conn->gone || req->conn->drop_due;
}

void http_reply(struct http_request *req, int status, const struct http_field *fields,
                const void *body, size_t len)
{
        struct http_conn *conn = req->conn;
        bool has_body = status != 204 && status != 304 && status >= 200;

        must(!req->is_stream, "http: a stream is ended by http_stream_close");
        if (!is_gone(req)) {
                struct str *out = &conn->server->answer;
                bool with_body = has_body && len > 0 && !is_head(req), is_long = len >= 64 * 1024;
                str_clear(out);
                str_reserve(out, 512 + (is_long ? 0 : len));
                add_head(req, out, status, fields, has_body ? (int64_t)len : -2);
                if (with_body && !is_long)
                        str_add(out, body, len);
                if (with_body && is_long) {
                        bufferevent_write(conn->bev, out->buf, out->len);
                        bufferevent_write(conn->bev, body, len);
                        write_now(conn->bev);
                } else
                        write_bytes_now(conn->bev, conn->ssl != NULL, out->buf, out->len);
        }
        http_conn_answered(conn);
}

void http_reply_json(struct http_request *req, int status, const void *body, size_t len)
{
        http_reply(req, status, (const struct http_field[]){ HTTP_JSON, HTTP_FIELD_END }, body,
                   len);
}

void http_reply_err(struct http_request *req, int status, const struct err *err)
{
        _cleanup_(str_finip) struct str body = STR_INIT;
        char seconds[24];
        struct http_field fields[4] = { HTTP_JSON };
        size_t n = 1;

        if (err->retry_after_ms > 0) {
                snprintf(seconds, sizeof(seconds), "%lld",
                         (long long)((err->retry_after_ms + 999) / 1000));
                fields[n++] = HTTP_FIELD("Retry-After", seconds);
        }
        if (!status && err->code == ERR_AUTH)
                fields[n++] = HTTP_FIELD("WWW-Authenticate", "Bearer realm=\"berth\"");
        http_error_body(&body, err, NULL, http_request_id(req));
        http_reply(req, status ? status : err_http_status(err->code), fields, str_c(&body),
                   body.len);
}

void http_refuse(struct http_request *req, int status, const char *why)
{
        struct err err;
        enum err_code code = status == 408                                     ? ERR_DEADLINE
                             : status == 413 || status == 414 || status == 431 ? ERR_LIMIT
                             : status == 501                                   ? ERR_UNSUPPORTED
                                                                               : ERR_INVALID;

        err_set(&err, code, .msg = why);
        http_reply_err(req, status, &err);
}

/* ---- streams ---- */

void http_stream_start(struct http_request *req, int status, const struct http_field *fields)
{
        struct http_conn *conn = req->conn;
        _cleanup_(str_finip) struct str out = STR_INIT;

        must(!req->is_stream, "http: a stream is started once");
        req->is_stream = true;
        if (is_gone(req))
                return;
        conn->state = HTTP_STREAM;
        if (req->head.minor == 0)
                conn->keep_alive = false;
        add_head(req, &out, status, fields, -1);
        bufferevent_write(conn->bev, out.buf, out.len);
        write_later(conn->bev);
        if (is_head(req)) {
                /* from the loop, since its route has not yet said what it wants to hear */
                req->is_over = true;
                event_active(conn->wake, EV_WRITE, 0);
                return;
        }
        /* This client sent its request and no more: it gets what has an end. Whether it has left
         * shows with the next piece, if there is one. */
        if (conn->eof && req->is_sse)
                http_conn_drop_soon(conn);
        else if (conn->eof)
                http_conn_arm(conn, conn->server->o.write_timeout_ms);
}

void http_sse_start(struct http_request *req, const struct http_field *fields)
{
        enum { FIELDS_MAX = 16 };
        struct http_field all[FIELDS_MAX + 1] = {
                HTTP_FIELD("Content-Type", "text/event-stream"),
                HTTP_FIELD("Cache-Control", "no-cache"),
                HTTP_FIELD("X-Accel-Buffering", "no"), /* proxies must not wait for more */
        };
        size_t n = 3;

        for (; fields && fields->name && n < FIELDS_MAX; fields++)
                all[n++] = *fields;
        req->is_sse = true;
        http_stream_start(req, 200, all);
        if (!is_gone(req) && req->conn->server->o.comment_ms > 0)
                http_conn_arm(req->conn, req->conn->server->o.comment_ms);
}

size_t http_stream_queued_bytes(const struct http_request *req)
{
        return evbuffer_get_length(bufferevent_get_output(req->conn->bev));
}

int http_stream_send(struct http_request *req, const void *data, size_t len)
{
        struct http_conn *conn = req->conn;

        must(req->is_stream, "http: a stream is started before it is sent to");
        if (is_gone(req))
                return -ERR_CANCELLED;
        if (len == 0 || is_head(req))
                return 0;
        size_t queued = http_stream_queued_bytes(req);
        if (queued > 0 && queued + len > conn->server->o.max_queued_bytes) {
                log_debug("dropping a slow HTTP client", LOG_S("peer", conn->peer),
                          LOG_I("queued_bytes", queued));
                http_conn_drop_soon(conn);
                return -ERR_LIMIT;
        }
        req->is_silent = false;
        struct evbuffer *out = bufferevent_get_output(conn->bev);
        if (req->head.minor == 1) {
                char size[20];
                int n = snprintf(size, sizeof(size), "%zx\r\n", len);
                evbuffer_expand(out, (size_t)n + len + 2);
                evbuffer_add(out, size, (size_t)n);
                evbuffer_add(out, data, len);
                evbuffer_add(out, "\r\n", 2);
        } else
                evbuffer_add(out, data, len);
        write_later(conn->bev);
        return 0;
}

int http_sse_send(struct http_request *req, const char *id, const char *event, const char *data,
                  size_t len)
{
        _cleanup_(str_finip) struct str out = STR_INIT;

        str_reserve(&out, len + 64);
        if (id && !strpbrk(id, "\r\n"))
                str_addf(&out, "id: %s\n", id);
        if (event && !strpbrk(event, "\r\n"))
                str_addf(&out, "event: %s\n", event);
        for (const char *p = data, *end = data + len; p <= end;) {
                const char *line = p;
                while (p < end && *p != '\n' && *p != '\r')
                        p++;
                str_adds(&out, "data: ");
                str_add(&out, line, (size_t)(p - line));
                str_addc(&out, '\n');
                if (p + 1 < end && p[0] == '\r' && p[1] == '\n')
                        p++;
                p++;
                if (p >= end)
                        break; /* a last line end makes no empty line */
        }
        str_addc(&out, '\n');
        return http_stream_send(req, out.buf, out.len);
}

void http_abort(struct http_request *req)
{
        if (!is_gone(req))
                http_conn_drop_soon(req->conn);
}

void http_stream_close(struct http_request *req)
{
        struct http_conn *conn = req->conn;

        must(req->is_stream, "http: a stream is started before it is closed");
        if (!is_gone(req) && req->head.minor == 1 && !is_head(req))
                bufferevent_write(conn->bev, "0\r\n\r\n", 5);
        if (!is_gone(req))
                write_later(conn->bev);
        http_conn_arm(conn, 0);
        http_conn_answered(conn);
}
