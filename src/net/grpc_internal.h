/* net/grpc_internal.h: what the files of the gRPC layer share. Not for others.
 *
 *   h2.c           struct grpc_conn: one socket with an nghttp2 session: reading, writing,
 *                  keepalive, GOAWAY, its end
 *   grpc_host.c    what servers and channels share: ids, visits of the loop
 *   grpc_call.c    struct grpc_call: framing of messages, queues, states, what the owner of a call
 *                  is promised
 *   grpc_expect.c  calls whose request is not there yet, and for how long
 *   grpc_server.c  listener, methods, requests -> calls, drain
 *   grpc_client.c  channel: resolve, connect, back off, calls -> requests
 *
 * Who holds a call: its owner until on_close has returned, its HTTP/2 stream until that is closed,
 * and whoever is in a callback of it. refs counts these.
 */
#ifndef BERTH_NET_GRPC_INTERNAL_H
#define BERTH_NET_GRPC_INTERNAL_H

#include "net/addr.h"
#include "net/grpc.h"
#include "net/grpc_wire.h"
#include "net/slots.h"
#include <event2/event_struct.h>
#include <nghttp2/nghttp2.h>

struct bufferevent;
struct evbuffer;
struct grpc_conn;

#define H2_STREAM_WINDOW (256 * 1024)
#define H2_CONNECTION_WINDOW (1024 * 1024)
/* no more is taken from the session while this much waits for the socket */
#define H2_OUTPUT_HIGH (128 * 1024)
/* begun messages of a connection's calls together (or two of the largest) */
#define H2_BUFFERED_MAX (32 * 1024 * 1024)
#define GRPC_PREFIX 5 /* flag and length before each message */

/* What a server and a channel have in common: ids, the list of calls that need a visit from the
 * loop, limits. */
struct grpc_host {
        struct event_base *base;
        struct grpc_server *server; /* one of the two */
        struct grpc_channel *channel;
        struct event *work_event;
        struct grpc_call *work_head, *work_tail;
        struct slots calls;
        size_t max_message_bytes, max_header_bytes, max_queued_bytes, max_connection_queued_bytes;
        uint32_t max_streams;
        int64_t keepalive_ms, keepalive_timeout_ms;
        int64_t first_message_ms;       /* server */
        int64_t stranger_ms;            /* server; 0: no bound */
        struct grpc_expected *expected; /* server: see grpc_expect.c */
        char *node_id;                  /* channel: see grpc_channel_options */
        bool to_server;                 /* the same */
        /* new calls get no callbacks: an on_close that starts another call must not keep us from
         * ending */
        bool ending;
        size_t queued_bytes, max_answer_bytes; /* of all connections; 0: no bound */
        size_t intake_bytes;                   /* from one connection in one turn; 0: the default */
        uint32_t n_calls;
        uint64_t calls_total, messages_in_total, messages_out_total;
};
int grpc_host_init(struct grpc_host *host, struct event_base *base, struct err *err);
/* closes all calls from inside */
void grpc_host_fini(struct grpc_host *host, enum grpc_status status);
struct grpc_call *grpc_host_call(struct grpc_host *host, uint64_t id);

struct grpc_call {
        struct grpc_callbacks on;
        void *data;
        struct grpc_host *host;        /* NULL once the host is destroyed */
        struct grpc_conn *conn;        /* NULL: not sent yet, or the stream is gone */
        struct grpc_call *next, *prev; /* of the connection, or of the channel's waiting list */
        struct grpc_call *work_next;
        struct grpc_call *expect_next, *expect_prev; /* see grpc_expect.c */
        uint8_t expected;                            /* 0: it is there; else in which queue */
        uint64_t id;
        unsigned refs;
        int32_t stream_id;
        char *path;
        struct str headers, trailers; /* received */
        size_t header_bytes;

        /* of the message that is coming in: prefix and what is there of it */
        struct str message_in;
        /* raw bytes that came while paused; bounded by the stream's window */
        struct str held;
        size_t buffered_bytes; /* the two together, as counted in the connection */
        uint32_t received;     /* messages */
        size_t max_message_bytes, max_queued_bytes;

        struct evbuffer *out; /* framed messages; made with the first one */
        struct str trailers_out;

        struct event deadline;
        int64_t deadline_at_ms; /* monotonic; 0: none */
        int64_t began_ns;       /* monotonic */
        enum grpc_status status;
        char *message;
        int http_status;
        char peer[ADDR_TEXT_MAX]; /* kept when the connection is gone */

        bool in_work, has_deadline, is_server, unary_request, wait_for_ready, is_waiting;
        bool paused, resume_due, drain_wanted, in_parse;
        /* server: on_start was called; client: the final response headers are in */
        bool started;
        bool headers_too_big; /* received */
        bool headers_done;    /* sent: given to nghttp2 */
        /* client: on_frame_send saw them; a RST before that would silently swallow the request */
        bool headers_on_wire;
        bool local_done;    /* finish or half_close was called */
        bool trailers_done; /* server: trailers given to nghttp2 */
        bool reset_wanted;  /* client: RST as soon as the headers are on the wire */
        bool last_frame;    /* server: the bytes at hand are of the frame with END_STREAM */
        /* server, unary: message_in is the whole request; only its END_STREAM is missing */
        bool whole;
        bool remote_done; /* END_STREAM came */
        bool half_closed; /* on_half_close was called */
        /* client: the stream closed by itself; on_close waits for held messages */
        bool ended;
        bool closed;  /* on_close is due or was called: nothing else is called any more */
        bool dropped; /* on_close has returned */
};

struct grpc_call *grpc_call_new(struct grpc_host *host, bool is_server, const char *path,
                                size_t path_len);
void grpc_call_ref(struct grpc_call *call);
void grpc_call_unref(struct grpc_call *call);
void grpc_call_set_deadline(struct grpc_call *call, int64_t deadline_ms);
/* on_close is due, from the loop. The first one counts. */
void grpc_call_close(struct grpc_call *call, enum grpc_status status, const char *message);
/* We end it: the peer is told (status in trailers, or RST), what is queued is dropped, on_close is
 * due. */
void grpc_call_abort(struct grpc_call *call, enum grpc_status status, const char *message);
int grpc_expected_create(struct grpc_host *host, struct err *err);
void grpc_expected_destroy(struct grpc_host *host);
/* the server stops: what has not begun need not be waited for */
void grpc_expected_end(struct grpc_host *host);
void grpc_call_expect(struct grpc_call *call, int64_t ms); /* its request has to be there by then */
void grpc_call_arrived(struct grpc_call *call);            /* it is, or the call is closed */
void grpc_call_work(struct grpc_call *call);               /* visit it from the loop */
void grpc_call_deliver_held(struct grpc_call *call);       /* what was held while it was paused */
/* From the session: */
void grpc_call_attach(struct grpc_call *call, struct grpc_conn *conn, int32_t stream_id);
void grpc_call_receive(struct grpc_call *call, const uint8_t *data, size_t len);
void grpc_call_remote_done(struct grpc_call *call);
void grpc_call_add_header(struct grpc_call *call, bool is_trailer, const uint8_t *name,
                          size_t name_len, const uint8_t *value, size_t value_len);
/* The stream is closed, or its connection is gone (then why says so). */
void grpc_call_stream_gone(struct grpc_call *call, uint32_t h2_error, const struct err *why);
ssize_t grpc_call_read(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t len,
                       uint32_t *flags, nghttp2_data_source *source, void *arg);

void grpc_channel_unwait(struct grpc_call *call); /* out of the channel's waiting list */

struct grpc_conn *grpc_server_first_conn(struct grpc_server *server); /* for tests */

/* A connection. */
struct grpc_conn_hooks {
        void (*ready)(struct grpc_conn *conn); /* the peer's SETTINGS came */
        /* the peer takes no new streams */
        void (*goaway)(struct grpc_conn *conn);
        /* server: the headers of a request are in */
        void (*request)(struct grpc_conn *conn, struct grpc_call *);
        /* client: a stream was closed */
        void (*stream_free)(struct grpc_conn *conn);
        /* unlink it; it is freed after this */
        void (*gone)(struct grpc_conn *conn, const struct err *why);
};
struct grpc_conn {
        struct grpc_host *host;
        const struct grpc_conn_hooks *hooks;
        struct grpc_conn *next, *prev; /* of the owner */
        struct bufferevent *bev;
        nghttp2_session *session;
        struct ssl_st *ssl; /* owned by bev */
        struct event *flush_event, *timer;
        struct grpc_call *calls;
        uint32_t n_calls;
        size_t queued_bytes;   /* of all its calls, not yet given to the session */
        size_t buffered_bytes; /* of all its calls: begun messages and what is held */
        int64_t opened_at_ms;
        char peer[ADDR_TEXT_MAX];
        struct tls_identity *identity;
        size_t intake_bytes; /* what is set: see the host's */
        uint32_t place;      /* server: in the crowd, while it is a stranger's */
        bool is_known;       /* server: somebody was let in on it */
        bool is_server, is_ready, is_secure, ping_pending, has_read, goaway_pending, goaway_final,
            peer_goaway, has_starved, will_flush;
        bool gone; /* freed as soon as nobody is inside it */
        unsigned busy;
        struct err why;
};
/* Takes over the connected fd, also on failure. */
struct grpc_conn *grpc_conn_new(struct grpc_host *host, const struct grpc_conn_hooks *hooks, int fd,
                                struct ssl_st *ssl, bool is_server, const struct sockaddr *peer,
                                int64_t handshake_timeout_ms, struct err *err);
/* its calls end; hooks->gone; freed */
void grpc_conn_end(struct grpc_conn *conn, const struct err *why);
void grpc_conn_flush_soon(struct grpc_conn *conn);
/* two steps: a notice, then the last stream id once a PING came back */
void grpc_conn_goaway(struct grpc_conn *conn);
/* give window back to the peer */
void grpc_conn_consume(struct grpc_conn *conn, int32_t stream_id, size_t len);

static inline int64_t mono_ms(void)
{
        return clock_mono_ns() / 1000000;
}
static inline struct timeval ms_timeval(int64_t ms)
{
        if (ms < 0)
                ms = 0;
        return (struct timeval){ .tv_sec = (time_t)(ms / 1000),
                                 .tv_usec = (suseconds_t)(ms % 1000 * 1000) };
}

#endif
