/* server/calls.h: calls that wait for the ring or the reader. The io thread's. Internal.
 *
 * A call has a ticket, which the answer brings back. Whatever happens first ends it: the answer,
 * its deadline, or the caller going away; an answer for a ticket that is no more is dropped. So
 * nobody needs to be told that a caller has gone.
 */
#ifndef BERTH_SERVER_CALLS_H
#define BERTH_SERVER_CALLS_H

#include "server/ops.h"
#include "server/shared.h"

struct io;
struct calls;
struct call;
struct http_request;
struct grpc_call;
struct history_job;
struct caller;

struct call {
        const struct door *door; /* first: see io.h */
        uint64_t ticket;
        struct io *io;
        const struct op *op;
        /* Who waits: one of these, or on_reply. */
        struct http_request *http;
        struct grpc_call *grpc;
        struct http_request
            /* on_reply: by whose request, until it is sent; what it showed goes with a call that is
             * passed on */
            *asked_http;
        struct grpc_call *asked_grpc;
        /* also told of the deadline; not of call_drop() */
        void (*on_reply)(void *ctx, const struct reply *reply);
        void *ctx;
        char request_id[65], actor[65];
        int role;                /* of the actor: Pb__Role__E */
        struct joining *joining; /* OP_JOIN, OP_RENEW: see join.h */
        char *secret;            /* OP_TOKEN: for the answer; nobody else ever sees it */
        bool pretty;
        /* of a request for several changes; each counts as a call */
        size_t more_items;
        struct ring_msg *msg;           /* until it is sent */
        struct history_job *history;    /* OP_EVENTS, until it is sent */
        struct history_waiter *reading; /* the reader is at it */
        int64_t sent_ms, deadline_ms;   /* monotonic; deadline_ms 0: it was not sent yet */
        bool is_change;
        /* the caller wants the leader's word; the caller is a server that passes it on */
        bool consistent, was_forwarded;
        bool forwarded;    /* the leader answers it */
        struct plan *plan; /* OP_PLAN: see plans.h */
        int64_t asked_ns;  /* clock_steady_ns: when it was sent on */
        struct held *held; /* its answer, until it is proved that this server leads */
};

struct calls *calls_create(struct io *io);
void calls_destroy(struct calls *c);
bool calls_have_room(const struct calls *c, const struct op *op); /* for one more of these */
/* changes wait that were asked for many at a time, half of what may */
bool calls_are_many(const struct calls *c);
/* under way; a request for several changes counts as so many */
size_t calls_len(const struct calls *c);

/* NULL: too many, the server stops, or memory is short; err says so. */
struct call *call_new(struct calls *c, const struct op *op, struct err *err);
struct call *calls_find(struct calls *c, uint64_t ticket); /* NULL: it has ended */
/* Who asks, once they have been let in. */
void call_set_caller(struct call *call, const struct caller *who);
/* Sends call->msg to the ring. On failure the call has been answered and is gone. */
void call_send(struct call *call);
/* Sends call->history to the reader; the same. */
void call_read(struct call *call);
/* A list of events: asks the ring where the workload's history begins if one is named, then the
 * reader. call->msg holds `want`. */
void call_events(struct call *call, const Pb__ListEventsRequest *want);
/* Answers with err; the call is gone. */
void call_fail(struct call *call, const struct err *err);
/* Answers as the core would have; the call is gone. */
void call_reply(struct call *call, const struct reply *reply);
/* Answers with a packed message; the call is gone. */
void call_answer(struct call *call, const ProtobufCMessageDescriptor *type, const void *data,
                 size_t len);
/* Forgets it without an answer: the caller has gone. */
void call_drop(struct call *call);

void calls_forget(struct calls *c, uint64_t ticket); /* the same by ticket; unknown ones are fine */

/* From the ring, and from the reader (takes the job). committed: with a commit that the store
 * took. */
void calls_reply(struct calls *c, const struct reply *reply, bool committed);
void calls_history(struct calls *c, struct history_job *job);
/* It may have been proved that this server leads: answers that wait for that are given. */
void calls_proved(struct calls *c);
/* This server leads no more: all that wait are told that nobody knows how it ends. */
void calls_lost(struct calls *c);
struct call *calls_find(struct calls *c, uint64_t ticket); /* NULL: it is no more */
/* somebody else answers; until its deadline */
void call_expect(struct call *call);
/* All that still wait are told that the server stops. */
void calls_stop(struct calls *c);

#endif
