/* server/io.h: what the parts of the io thread share. Everything here belongs to that thread.
 * Internal. */
#ifndef BERTH_SERVER_IO_H
#define BERTH_SERVER_IO_H

#include "base/clock.h"
#include "server/calls.h"
#include "server/eventlog.h"
#include "server/events.h"
#include "server/ops.h"
#include "server/push.h"
#include "server/relays.h"
#include "server/sessions.h"
#include "server/shared.h"
#include "server/webhooks.h"

struct access;
struct caller;
struct http_server;
struct grpc_server;
struct tls;
struct tls_identity;
struct event;
struct event_base;

/* What a route or a method is given: the row that it serves.
 * A gRPC call's data is its door at first, then whatever serves it (a call, a relay, a session),
 * each of which begins with a pointer to its door; and the door again when that has done its part.
 * So on_close always finds its way. */
struct door {
        const struct door *self;
        struct io *io;
        const struct op *op;
        /* gRPC: what serves it, once the caller was let in and the first message is there: see
         * rpc.c */
        void (*start)(struct grpc_call *call);
        void (*message)(struct grpc_call *call, const void *data, size_t len);
        void (*half_close)(struct grpc_call *call);
};

struct io {
        struct server *s;
        struct event_base *base;
        struct http_server *http;
        struct grpc_server *grpc;
        struct tls *tls;
        struct access *access;
        struct join *join;
        struct calls *calls;
        struct sessions *sessions;
        struct push *push;
        struct events *events;
        struct relays *relays;
        struct plans *plans;
        struct eventlog log;
        struct webhooks *webhooks;
        struct event *wake, *files; /* something in the queue; look at the certificate's files */
        struct event *nudge;        /* the ring has something to do */
        unsigned n_quiet;           /* inputs that it was not told of yet */
        struct door *doors;         /* one per row of ops */
        struct rng rng;
        struct str openapi;  /* made when first asked for */
        char cluster_id[65]; /* "": not asked for yet */
        /* this server decides; else it passes on what wants a decision (forward.h) */
        bool leads;
        struct forward *forward; /* to the leader */
        struct reach *reach;     /* whom we call, and by which names we are called */
        bool stopping;
        int draining; /* doors that are not empty yet */
};

/* Gives the ring an input. It is woken once for all that came in one turn of the loop (or for a few
 * of them), not once for each. first: may use the queue's share for what must not wait. False:
 * full, the message is still the caller's. */
bool io_to_ring(struct io *io, struct ring_msg *msg, bool first);
/* A change that a user asks for is refused while the answers to earlier ones pile up. */
bool io_takes_changes(struct io *io);
bool io_is_loopback(const char *address); /* only this machine reaches it */
/* Refuses a change before anything is decoded of it: what cannot be taken must cost little
 * (A11). */
int io_has_no_room(struct io *io, const struct op *op, struct err *err);
/* The ring is full: the same words at every door. */
int io_too_busy(struct io *io, struct err *err);
/* Nothing can be changed now. decided: it may be in a commit that is under way; a caller who is
 * told that nothing was changed need not look. */
int io_store_is_away(struct err *err, bool decided);
/* This server does not lead: who does, or who did, or that nobody can. Any op that wants a
 * decision. */
int io_not_leading(struct io *io, struct err *err);
/* A request id: what the caller sent if it is sane (1..64 of letters, digits and -_.:), else a new
 * ULID. */
void io_request_id(struct io *io, const char *wanted, char ret[static 65]);
/* Who asks: the certificate's name ("ann", "node:n1") if there is one, else what the header says if
 * it is sane, else "anonymous". */
void io_actor(const struct tls_identity *who, const char *header, char ret[static 65]);
/* Both of a gRPC call. */
void rpc_caller(struct io *io, struct grpc_call *call, char ret_request_id[static 65],
                struct caller *ret_caller);

/* With client certificates required: does this caller's say that it is that node? ERR_DENIED with a
 * sentence, counted and logged, when not. Without them (no TLS, or no --tls-ca) everybody is
 * whoever they say. */
int io_check_node(struct io *io, const struct tls_identity *who, const char *node_id,
                  const char *peer, struct err *err);

int rest_open(struct io *io, struct err *err); /* rest.c: the HTTP door */
int rpc_open(struct io *io, struct err *err);  /* rpc.c: the gRPC door */
/* Metrics and the access log of a gRPC call that has ended. For every on_close. */
void rpc_done(struct grpc_call *call, int status);
const struct door *rpc_door(struct grpc_call *call);
void *rpc_data(struct grpc_call *call); /* what serves it; NULL: nothing yet, or no more */
void rpc_set_over(struct grpc_call *call, const struct door *door);

#endif
