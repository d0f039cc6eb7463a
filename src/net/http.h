/* net/http.h: an HTTP/1.1 server on libevent: routes, late replies, streams (SSE and plain chunks),
 * limits on everything.
 *
 * Everything here belongs to the thread that runs the event base; nothing blocks. Bodies are read
 * whole before a route is called.
 *
 * A request's life, promised to its route:
 *   (1) The route answers at once or later, exactly once: http_reply*(), or http_stream_start() ...
 *       http_stream_close(). The request is gone when http_reply() or http_stream_close() returns:
 *       forget the pointer there.
 *   (2) If the client goes away (or is dropped: too slow, server stops) before that, on_close is
 *       called once from the loop and the request is gone when it returns. Set it with
 *       http_on_close() whenever the answer comes later. A client that just sends no more is
 *       answered; for a stream it has gone away.
 *   (3) What waits to be sent to a stream's client is bounded: http_stream_send() beyond
 *       max_queued_bytes refuses, and the client is dropped (on_close follows from the loop).
 * Other threads keep http_id() and ask the loop to look the request up with http_server_request():
 * NULL when it is gone.
 *
 * Answers made here (400, 404, 405, 408, 413, 414, 431, 501, 505...) have the same JSON body as
 * http_reply_err().
 */
#ifndef BERTH_NET_HTTP_H
#define BERTH_NET_HTTP_H

#include "base/err.h"
#include "base/str.h"
#include "net/tls.h"

struct event_base;
struct http_server;
struct http_request;

struct http_server_options {
        const char *address; /* "127.0.0.1:8084", port 0: the kernel chooses */
        struct tls *tls;     /* NULL: in the clear; a reference is taken */
        /* 0 anywhere: the default */
        size_t max_body_bytes;    /* 1 MiB -> 413 */
        size_t max_header_bytes;  /* request line and headers: 16 KiB -> 431 (or 414) */
        size_t max_queued_bytes;  /* per stream: 1 MiB; see (3) */
        uint32_t max_connections; /* 20,000; more are closed at once */
        uint32_t max_per_peer;    /* of them from one address; 0: all */
        /* from the first byte (or the connect) to the end of the headers: 10 s -> 408 */
        int64_t header_timeout_ms;
        int64_t body_timeout_ms; /* from there to the end of the body: 30 s -> 408 */
        /* between requests on a kept connection, once the last answer is out: 75 s */
        int64_t idle_timeout_ms;
        /* less than 16 KiB of what waits taken by the client in this long (or a quarter more): 30
         * s */
        int64_t write_timeout_ms;
        /* an SSE stream that was silent for this long gets a comment line: 15 s; -1: never */
        int64_t comment_ms;
        /* After each answer (also of streams, at their end), for logs and metrics. route: the
         * pattern, "" if none matched. */
        void (*on_done)(const struct http_request *req, const char *route, int status,
                        int64_t took_us, void *ctx);
        void *ctx;
};

int http_server_create(struct event_base *base, const struct http_server_options *options,
                       struct http_server **ret_server, struct err *err);
/* at once: open requests get on_close from inside. NULL is fine */
void http_server_destroy(struct http_server *server);
static inline void http_server_destroyp(struct http_server **s)
{
        http_server_destroy(*s);
}
uint16_t http_server_port(const struct http_server *server);
uint32_t http_server_connections(const struct http_server *server); /* open now */
/* How many connections that are new, and how many that write, are served in one turn of the loop
 * (0: the default, 96). For an owner that has answers to send first. */
void http_server_set_intake(struct http_server *server, unsigned per_turn);
/* Stop listening, finish what runs, end streams (their on_close comes from inside); done (from the
 * loop) when nothing is left or after deadline_ms. */
void http_server_drain(struct http_server *server, int64_t deadline_ms, void (*done)(void *ctx),
                       void *ctx);

/* pattern: "/v1/workloads/{id}/stop"; a segment "{name}" matches one non-empty segment, a last
 * "{name...}" the rest (may be empty, may hold slashes). Exact segments win over parameters. Known
 * path with another method: 405 with Allow. HEAD is served by GET's route. Patterns are copied; at
 * most 256. */
typedef void (*http_route)(struct http_request *req, void *ctx);
int http_server_add(struct http_server *server, const char *method, const char *pattern,
                    http_route route, void *ctx, struct err *err);
struct http_request *http_server_request(struct http_server *server, uint64_t id); /* NULL: gone */

/* ---- the request ---- */

/* "GET"; HEAD is "HEAD" */
const char *http_method(const struct http_request *req);
/* percent-decoded, valid UTF-8 */
const char *http_path(const struct http_request *req);
/* of the pattern, decoded; NULL if the pattern has none */
const char *http_param(const struct http_request *req, const char *name);
/* decoded, first of that name; NULL if absent */
const char *http_query(const struct http_request *req, const char *name);
/* to check for unknown parameters */
size_t http_query_count(const struct http_request *req);
const char *http_query_name(const struct http_request *req, size_t i);
const char *http_query_value(const struct http_request *req, size_t i);
/* any case; several are joined with ", "; NULL if absent */
const char *http_header(const struct http_request *req, const char *name);
/* NUL-terminated beyond ret_len; never NULL */
const char *http_body(const struct http_request *req, size_t *ret_len);
/* X-Request-Id of the client if sane, else made here; sent back */
const char *http_request_id(const struct http_request *req);
const char *http_peer(const struct http_request *req); /* "10.0.0.1:4711" */
/* NULL: no TLS or no certificate */
const struct tls_identity *http_identity(const struct http_request *req);
/* never 0, never reused within a server */
uint64_t http_id(const struct http_request *req);
void *http_data(const struct http_request *req);
void http_set_data(struct http_request *req, void *data);
void http_on_close(struct http_request *req, void (*on_close)(struct http_request *req, void *ctx),
                   void *ctx);

/* ---- answers ---- */

/* Extra response headers; a list ends with name NULL, a NULL list is empty. Content-Length,
 * Connection, Date, X-Request-Id and Transfer-Encoding are set here. */
struct http_field {
        const char *name, *value;
};
#define HTTP_FIELD(n, v) ((struct http_field){ (n), (v) })
#define HTTP_FIELD_END ((struct http_field){ 0 })
#define HTTP_JSON HTTP_FIELD("Content-Type", "application/json")

/* The body is copied. */
void http_reply(struct http_request *req, int status, const struct http_field *fields,
                const void *body, size_t len);
void http_reply_json(struct http_request *req, int status, const void *body, size_t len);
/* err's HTTP status (413 and the like by status, 0: of the code) and
 * {"code","message","detail","hint","path","request_id", "retry_after_ms"}, empty ones left out;
 * Retry-After when err says so. */
void http_reply_err(struct http_request *req, int status, const struct err *err);

/* A stream: chunked (or until close for HTTP/1.0). Start with http_sse_start for events. One that
 * answers HEAD is over with its header: on_close follows. */
void http_stream_start(struct http_request *req, int status, const struct http_field *fields);
/* 200, text/event-stream, no-cache, comments */
void http_sse_start(struct http_request *req, const struct http_field *fields);
/* 0; -ERR_LIMIT: the client is too slow and will be dropped; -ERR_CANCELLED: it is gone. In both
 * cases on_close follows. */
int http_stream_send(struct http_request *req, const void *data, size_t len);
/* One event; id and event may be NULL; data may hold newlines. */
int http_sse_send(struct http_request *req, const char *id, const char *event, const char *data,
                  size_t len);
size_t http_stream_queued_bytes(const struct http_request *req);
void http_stream_close(struct http_request *req);
/* Ends it without a word, whoever it belongs to: on_close follows from the loop. */
void http_abort(struct http_request *req);

#endif
