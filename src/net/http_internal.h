/* net/http_internal.h: what the files of the HTTP server share. Not for others.
 *
 *   http_parse.c   the head of a request, strictly
 *   http_route.c   method and path -> route
 *   http_conn.c    struct http_conn: socket, reading a request, timeouts, its end
 *   http_reply.c   answers and streams
 *   http.c         the server: listening, looking at requests, draining
 */
#ifndef BERTH_NET_HTTP_INTERNAL_H
#define BERTH_NET_HTTP_INTERNAL_H

#include "base/array.h"
#include "base/clock.h"
#include "net/addr.h"
#include "net/crowd.h"
#include "net/http.h"
#include "net/http_route.h"
#include "net/slots.h"
#include <event2/event.h>

struct bufferevent;
struct evbuffer;
struct ssl_st;

/* Of what kind a connection is: nothing is known yet; its last request was to change something; or
 * to read. The first two take turns. */
enum http_turn { HTTP_NEW, HTTP_WRITER, HTTP_TURNS, HTTP_READER = HTTP_TURNS };

enum { HTTP_SCRATCH_BYTES = 16 * 1024 };

struct http_server {
        struct event_base *base;
        /* defaults filled in; address and tls are not used from here */
        struct http_server_options o;
        struct tls *tls;
        struct handshakes *handshakes; /* with TLS */
        struct evconnlistener *listener;
        struct event *accept_timer, *drain_timer;
        uint16_t port;
        struct http_router router;
        struct slots requests;
        char *scratch;     /* what was just read from a connection */
        struct str answer; /* what is about to be written to one */
        struct rng rng;
        struct http_conn *conns;
        uint32_t n_conns;
        struct crowd crowd;
        /* New connections, and those that write, take turns, so that those that read are served
         * between them: see http_conn.c. */
        struct http_turns {
                /* they have something to be read, and wait for their turn */
                struct http_conn *first, *last;
                unsigned served; /* in this turn of the loop */
        } turns[HTTP_TURNS];
        struct event *turns_event;
        unsigned intake; /* how many of each kind in one turn */
        /* the loop's time when they were counted last: another time is another turn */
        struct timeval turn;
        struct timeval accept_turn;
        unsigned accepted; /* in this turn */
        uint64_t refused_total;
        time_t date_at;
        char date[40];
        bool is_draining, deadline_over;
        void (*drained)(void *ctx);
        void *drained_ctx;
};

struct http_request {
        struct http_conn *conn;
        uint64_t id;
        struct http_head head;
        struct str body;
        char request_id[72];
        const struct http_route_row *route;
        char *rest;        /* value of "{name...}" */
        struct str joined; /* scratch for headers that came several times */
        void *data;
        void (*on_close)(struct http_request *req, void *ctx);
        void *on_close_ctx;
        int64_t started_ns;
        int status;
        /* is_silent: nothing was sent since the last look at it */
        bool is_stream, is_sse, is_silent;
        /* a stream that nothing more belongs to: the loop ends it */
        bool is_over;
};

enum http_conn_state {
        HTTP_READ_HEAD,
        HTTP_READ_BODY,
        HTTP_RUNNING, /* the route has it */
        HTTP_STREAM,
        HTTP_CLOSING, /* what is left in the output goes out, then the end */
        /* our side is shut; what the client still sends is thrown away for a moment, so that it
         * reads our answer */
        HTTP_LINGER,
};

struct http_conn {
        struct http_server *server;
        struct http_conn *next, *prev;
        uint32_t place; /* in the crowd */
        struct bufferevent *bev;
        struct ssl_st *ssl; /* owned by bev */
        struct event *timer, *wake;
        /* until it is looked at again whether the client is still there */
        int64_t look_ms;
        /* when its time is up (0: never), and when the timer looks (0: not at all) */
        int64_t deadline_ms, fires_ms;
        struct event *readable; /* NULL with TLS: bev reads then */
        struct http_request *req;
        struct tls_identity *identity;
        enum http_conn_state state;
        size_t searched; /* of the input, for the end of the head */
        /* of the body or of this chunk; -1: a chunk's size comes next; -2: the trailer does */
        int64_t body_left;
        unsigned trailer_lines;
        bool reads, is_secure, keep_alive, linger, drop_due, gone, in_process;
        /* by the client's side, when a look at a slow one last found that it takes something ... */
        uint64_t acked_bytes;
        unsigned same_looks; /* ... and how many looks since then did not */
        bool eof;            /* the client sends no more; it may still read */
        enum http_turn turn;
        bool waits_turn;
        struct http_conn *turn_next, *turn_prev;
        unsigned busy;
        char peer[ADDR_TEXT_MAX];
};

void http_conn_begin(struct http_server *server, int fd, const struct sockaddr *sa,
                     int64_t left_ms);            /* left for the first request's head */
void http_conn_end(struct http_conn *conn);       /* its request gets on_close */
void http_conn_drop_soon(struct http_conn *conn); /* the same, from the loop */
/* the request is answered: the next one, or close */
void http_conn_answered(struct http_conn *conn);
void http_conn_arm(struct http_conn *conn, int64_t ms); /* 0: no timer */
/* Closes idle connections (once their answers are out) and streams, lets the rest finish. */
void http_conn_drain(struct http_conn *conn);
/* the event of those that wait for their turn */
void http_turns_go_on(evutil_socket_t fd, short what, void *server);
void http_request_free(struct http_request *req);
void http_server_conn_gone(struct http_server *server);
/* The JSON of http_reply_err; code NULL: that of err. */
void http_error_body(struct str *out, const struct err *err, const char *code,
                     const char *request_id);
/* An answer made here: status and a sentence. */
void http_refuse(struct http_request *req, int status, const char *why);
const char *http_date(struct http_server *server);

static inline struct timeval http_timeval(int64_t ms)
{
        if (ms < 0)
                ms = 0;
        return (struct timeval){ .tv_sec = (time_t)(ms / 1000),
                                 .tv_usec = (suseconds_t)(ms % 1000 * 1000) };
}

#endif
