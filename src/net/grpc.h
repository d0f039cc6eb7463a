/* net/grpc.h: gRPC server and client, on nghttp2 and libevent.
 *
 * Everything here belongs to the thread that runs the event base; nothing blocks but
 * grpc_call_sync(). Messages are bytes: packing and unpacking is the caller's. In the clear it is
 * HTTP/2 with prior knowledge; with TLS, ALPN must agree on h2.
 *
 * One `struct grpc_call` serves both sides and all four kinds of calls (unary or streaming, each
 * way).
 *
 * A call's life, promised to its owner:
 *   (1) on_close is called exactly once, always from the loop (never from inside a function of this
 *       header), and nothing is called after it. The call is gone when on_close returns: forget the
 *       pointer there. Destroying the server or channel is the one exception: its calls get their
 *       on_close from inside the destroy function.
 *   (2) Until then every function here may be called on it, from any callback: on a call that
 *       already ended they do nothing and those that can fail say so.
 *   (3) on_message is called once per whole message, in order, and not while the call is paused;
 *       data is valid until it returns.
 *   (4) Server: on_half_close comes after the last message. It does not come when the call ended
 *       before.
 *   (5) What is queued for sending is bounded by max_queued_bytes: grpc_call_send() refuses beyond
 *       it, and on_drain comes when the queue has fallen under a quarter of it after a refusal (or
 *       after grpc_call_want_drain).
 *   (6) What is received and not yet taken is bounded by the flow-control window plus one message.
 * Other threads keep grpc_call_id() and ask the loop to look the call up with grpc_server_call():
 * NULL when it has ended.
 */
#ifndef BERTH_NET_GRPC_H
#define BERTH_NET_GRPC_H

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "net/tls.h"

struct event_base;
struct grpc_server;
struct grpc_channel;
struct grpc_call;

enum grpc_status {
        GRPC_OK = 0,
        GRPC_CANCELLED,
        GRPC_UNKNOWN,
        GRPC_INVALID_ARGUMENT,
        GRPC_DEADLINE_EXCEEDED,
        GRPC_NOT_FOUND,
        GRPC_ALREADY_EXISTS,
        GRPC_PERMISSION_DENIED,
        GRPC_RESOURCE_EXHAUSTED,
        GRPC_FAILED_PRECONDITION,
        GRPC_ABORTED,
        GRPC_OUT_OF_RANGE,
        GRPC_UNIMPLEMENTED,
        GRPC_INTERNAL,
        GRPC_UNAVAILABLE,
        GRPC_DATA_LOSS,
        GRPC_UNAUTHENTICATED,
        _GRPC_STATUS_MAX
};
const char *grpc_status_name(enum grpc_status status); /* "NOT_FOUND" */

/* Names are lower case. A name that ends in "-bin" carries any bytes (base64 on the wire, done
 * here); others printable ASCII. A list ends with name NULL; a NULL list is empty. Names starting
 * with "grpc-" or ":" are left out. */
struct grpc_metadata {
        const char *name;
        const void *value;
        size_t len;
};
#define GRPC_META(n, v, l) ((struct grpc_metadata){ (n), (v), (l) })
#define GRPC_META_END ((struct grpc_metadata){ 0 })
#define GRPC_ERROR_TRAILER "berth-error-bin" /* a packed berth.v1.Error */

#define GRPC_NO_DEADLINE (-1)
#define GRPC_MESSAGE_MAX_DEFAULT (4 * 1024 * 1024)

/* Any of them may be NULL. */
struct grpc_callbacks {
        /* server: a call began (metadata can be read). client: the response's headers came. */
        void (*on_start)(struct grpc_call *call);
        void (*on_message)(struct grpc_call *call, const void *data, size_t len);
        void (*on_half_close)(struct grpc_call *call); /* server: the client sends no more */
        void (*on_drain)(struct grpc_call *call);      /* see (5) */
        /* client: status is the call's result; grpc_call_message and grpc_call_trailer can be read.
         * server: the status that was finished with, or CANCELLED (client gone), DEADLINE_EXCEEDED,
         * UNAVAILABLE (server stopped). */
        void (*on_close)(struct grpc_call *call, enum grpc_status status);
};

/* ---- calls, both sides ---- */

/* per call; starts as method->ctx (server) or ctx (client) */
void *grpc_call_data(const struct grpc_call *call);
void grpc_call_set_data(struct grpc_call *call, void *data);
/* never 0, never reused within a server or channel */
uint64_t grpc_call_id(const struct grpc_call *call);
const char *grpc_call_path(const struct grpc_call *call);
/* Milliseconds until the deadline, at least 0; GRPC_NO_DEADLINE without one. */
int64_t grpc_call_age_ns(const struct grpc_call *call); /* since it began */
int64_t grpc_call_remaining_ms(const struct grpc_call *call);
/* What the peer sent at the start: request metadata on the server, response metadata on the client.
 * "-bin" is decoded. The value is NUL-terminated beyond ret_len (may be NULL). NULL when absent or
 * undecodable. */
const char *grpc_call_header(const struct grpc_call *call, const char *name, size_t *ret_len);
/* "10.0.0.1:4711", "" before there is a connection */
const char *grpc_call_peer(const struct grpc_call *call);
/* NULL: no TLS, or no certificate from the peer */
const struct tls_identity *grpc_call_identity(const struct grpc_call *call);

/* Queues one message (copied). 0; or -ERR_LIMIT: the queue is full (wait for on_drain) or the
 * message alone is larger than it may be; -ERR_CANCELLED: the call has ended or this side has
 * finished. A message is always taken when the queue is empty and the connection is under its own
 * limit. */
int grpc_call_send(struct grpc_call *call, const void *data, size_t len);
size_t grpc_call_queued_bytes(const struct grpc_call *call);
/* nothing can be sent any more: this side has finished, or the call has ended */
bool grpc_call_is_over(const struct grpc_call *call);
/* on_drain once the queue is (or falls) under a quarter of its limit */
void grpc_call_want_drain(struct grpc_call *call);
/* Take no more messages for now: the peer is slowed down by flow control. */
void grpc_call_pause(struct grpc_call *call);
/* on_message follows from the loop, not from inside */
void grpc_call_resume(struct grpc_call *call);
/* Ends the call now (RST_STREAM). on_close follows with CANCELLED. What was queued is dropped. */
void grpc_call_cancel(struct grpc_call *call);

/* ---- server ---- */

struct grpc_server_options {
        const char *address; /* "127.0.0.1:8085", port 0: the kernel chooses */
        struct tls *tls;     /* NULL: in the clear; a reference is taken */
        /* 0 anywhere: the default */
        size_t max_message_bytes;           /* received; 4 MiB -> RESOURCE_EXHAUSTED */
        size_t max_header_bytes;            /* 16 KiB */
        size_t max_queued_bytes;            /* per call, to send: 1 MiB; see (5) */
        size_t max_connection_queued_bytes; /* all calls of a connection together: 16 MiB */
        /* waiting on all connections together, beyond which unary answers are refused: 64 MiB */
        size_t max_answer_bytes;
        uint32_t max_streams;         /* per connection: 100 */
        uint32_t max_connections;     /* 20,000 */
        int64_t handshake_timeout_ms; /* TLS and HTTP/2 greeting: 10 s */
        int64_t keepalive_ms;         /* PING after this much silence: 30 s; -1: never */
        int64_t keepalive_timeout_ms; /* and close without an answer: 10 s */
        int64_t first_message_ms;     /* see grpc_method: 30 s */
        /* Strangers: connections on which no call was let in yet (grpc_call_let_in). 0: no bound */
        /* GOAWAY after this long, and the end keepalive_timeout_ms later */
        int64_t stranger_ms;
        uint32_t max_strangers_per_peer; /* from one address; more are closed at once */
};

struct grpc_method {
        struct grpc_callbacks on;
        void *ctx;
        size_t max_message_bytes; /* 0: the server's */
        size_t max_queued_bytes;  /* 0: the server's */
        /* Exactly one request message: on_half_close comes only after it; none or two end the call
         * with INTERNAL. */
        bool unary_request;
        /* From the request's headers until the first message is there (unary: until the request has
         * ended); then DEADLINE_EXCEEDED. Without it headers alone would hold whatever on_start
         * takes, for ever. 0: the server's */
        int64_t first_message_ms;
};

struct grpc_server_stats {
        uint32_t connections, calls;                           /* now */
        uint64_t connections_total, connections_refused_total; /* since the start */
        uint64_t calls_total, messages_in_total, messages_out_total;
        uint64_t queued_bytes; /* now: waiting to be sent, on all connections */
};

int grpc_server_create(struct event_base *base, const struct grpc_server_options *options,
                       struct grpc_server **ret_server, struct err *err);
/* at once; running calls get on_close(UNAVAILABLE). NULL is fine */
void grpc_server_destroy(struct grpc_server *server);
static inline void grpc_server_destroyp(struct grpc_server **s)
{
        grpc_server_destroy(*s);
}
uint16_t grpc_server_port(const struct grpc_server *server);
/* path: "/berth.v1.Agent/Connect". Copied. Unknown paths get UNIMPLEMENTED. At most 256 methods. */
int grpc_server_add(struct grpc_server *server, const char *path, const struct grpc_method *method,
                    struct err *err);
struct grpc_call *grpc_server_call(struct grpc_server *server, uint64_t call_id); /* NULL: ended */
/* Whoever calls is known: its connection is no stranger's any more, and may be idle for as long as
 * its peer answers PINGs. */
void grpc_call_let_in(struct grpc_call *call);
/* Stop listening, say GOAWAY, let running calls finish. done is called once from the loop when
 * nothing is left, or after deadline_ms when the rest has been cancelled. Then destroy the server
 * (also from inside done). */
void grpc_server_drain(struct grpc_server *server, int64_t deadline_ms, void (*done)(void *ctx),
                       void *ctx);
/* How much is read from one connection in one turn of the loop: many callers with many calls each
 * must not make one turn so long that others wait (A11). 0: as much as libevent reads at once.
 * Takes effect with the next thing that a connection reads. */
void grpc_server_set_intake(struct grpc_server *server, size_t bytes);
void grpc_server_get_stats(const struct grpc_server *server, struct grpc_server_stats *ret);

/* Response metadata; before the first message, else ignored (-ERR_CONFLICT). Also sends it at once,
 * which tells a streaming client that the call was accepted. */
int grpc_call_send_headers(struct grpc_call *call, const struct grpc_metadata *metadata);
/* Ends the call after what is queued. message: any UTF-8 text or NULL. A second finish is
 * ignored. */
void grpc_call_finish(struct grpc_call *call, enum grpc_status status, const char *message,
                      const struct grpc_metadata *trailers);
/* One message, then OK: the answer to a unary call. */
void grpc_call_reply(struct grpc_call *call, const void *data, size_t len);

/* ---- client ---- */

enum grpc_channel_state {
        GRPC_CHANNEL_IDLE, /* never connected, or the connection was lost while nothing ran on it */
        GRPC_CHANNEL_CONNECTING,
        /* the server's SETTINGS came: only that proves a mutual TLS 1.3 handshake */
        GRPC_CHANNEL_READY,
        GRPC_CHANNEL_BACKOFF, /* the last try failed; the next one is timed */
};

struct sockaddr;
struct grpc_channel_options {
        struct tls *tls; /* NULL: in the clear; a reference is taken */
        /* sent with every call: "authorization: Bearer TOKEN"; copied. NULL: none. Without TLS
         * only to this machine: ERR_DENIED */
        const char *token;
        /* what the certificate must carry, and :authority; NULL: the target's host */
        const char *server_name;
        /* a peer whose certificate is that of another node is not talked to; copied. NULL: whoever
         * it is */
        const char *node_id;
        /* a peer whose certificate is that of a node or a user, and of no server, is not talked
         * to */
        bool to_server;
        /* May this address be connected to? Asked of what names turned out to be, too. NULL: every
         * one. */
        bool (*may_dial)(void *ctx, const struct sockaddr *sa);
        void *dial_ctx;
        struct rng *rng; /* jitter; borrowed; NULL: the channel seeds one of its own */
        /* 0 anywhere: the default */
        size_t max_message_bytes; /* received: 4 MiB */
        size_t max_header_bytes;  /* 16 KiB */
        size_t max_queued_bytes;  /* per call, to send: 1 MiB */
        /* waiting for a connection or a free stream: 1,000 -> RESOURCE_EXHAUSTED */
        uint32_t max_waiting_calls;
        int64_t connect_timeout_ms; /* one try, TCP and TLS and SETTINGS: 10 s */
        int64_t backoff_min_ms;     /* 500 ms; doubles, with +-20 % jitter ... */
        int64_t backoff_max_ms;     /* ... up to 30 s */
        /* PING after this much silence while calls run: 20 s; -1: never */
        int64_t keepalive_ms;
        int64_t keepalive_timeout_ms; /* 10 s */
        /* Every change of state; why is set in BACKOFF. The channel must not be destroyed in it. */
        void (*on_state)(struct grpc_channel *channel, enum grpc_channel_state state,
                         const struct err *why, void *ctx);
        void *ctx;
};

/* target: "host:port", or several separated by commas (at most GRPC_TARGETS_MAX): servers of which
 * any will do; when one cannot be reached the next one is tried, and only when none can is the try
 * over. Not connected yet: the first call does that (or grpc_channel_connect). Options may be
 * NULL. */
#define GRPC_TARGETS_MAX 16
int grpc_channel_create(struct event_base *base, const char *target,
                        const struct grpc_channel_options *options,
                        struct grpc_channel **ret_channel, struct err *err);
/* calls get on_close(CANCELLED). NULL is fine */
void grpc_channel_destroy(struct grpc_channel *channel);
static inline void grpc_channel_destroyp(struct grpc_channel **c)
{
        grpc_channel_destroy(*c);
}
enum grpc_channel_state grpc_channel_state(const struct grpc_channel *channel);
/* now, skipping what is left of a back-off */
void grpc_channel_connect(struct grpc_channel *channel);
/* of several: the one that is used now, or next */
const char *grpc_channel_target(const struct grpc_channel *channel);
unsigned grpc_channel_targets(const struct grpc_channel *channel); /* how many there are */
/* The server that it is connected to, or was until just now, is not the right one: new calls go to
 * the next. Calls under way may end where they are. */
void grpc_channel_next(struct grpc_channel *channel);

struct grpc_call_options {
        /* from now; 0 or negative: none. Sent to the server and enforced here as well */
        int64_t deadline_ms;
        const struct grpc_metadata *metadata;
        /* false: UNAVAILABLE as soon as a try to connect has failed; true: wait until the
         * deadline */
        bool wait_for_ready;
        size_t max_message_bytes; /* 0: the channel's */
        size_t max_queued_bytes;  /* 0: the channel's */
};
/* Starts a call. Send messages with grpc_call_send (queued until connected) and end them with
 * grpc_call_half_close. Never NULL: whatever goes wrong comes by on_close. options may be NULL. */
struct grpc_call *grpc_channel_call(struct grpc_channel *channel, const char *path,
                                    const struct grpc_call_options *options,
                                    const struct grpc_callbacks *callbacks, void *ctx);
void grpc_call_half_close(struct grpc_call *call); /* no more messages from here */
/* In on_close: */
/* the status message, decoded; "" if none */
const char *grpc_call_message(const struct grpc_call *call);
const char *grpc_call_trailer(const struct grpc_call *call, const char *name, size_t *ret_len);

/* ---- blocking, for an agent before its loop runs (and for tests) ---- */

struct grpc_reply {
        enum grpc_status status;
        char *message;    /* of the status; never NULL */
        struct str data;  /* the response message when status is OK */
        struct str error; /* the trailer berth-error-bin, decoded; empty when there was none */
};
void grpc_reply_fini(struct grpc_reply *reply);

/* One unary call on its own event base. Fails only when the call could not be tried (bad target);
 * whatever else happens is in ret_reply->status. deadline_ms: 0 is none. options (may be NULL):
 * tls, server_name, metadata by call_metadata. */
int grpc_call_sync(const char *target, const struct grpc_channel_options *options,
                   const struct grpc_metadata *metadata, const char *path, const void *request,
                   size_t len, int64_t deadline_ms, struct grpc_reply *ret_reply, struct err *err);

#endif
