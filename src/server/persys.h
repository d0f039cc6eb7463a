/* server/persys.h: the control dialect of Persys schedulers (persys.control.v1.AgentControl, and
 * its HTTP gateway below /persys/). The io thread's. Internal.
 *
 * persys.c is the two doors: it turns a request of either into the same message and the answer
 * back. persys_control.c is what the calls do: each asks the core by the ordinary inputs (or
 * push.h, for nodes), and says the answer in the dialect's words. It decides nothing.
 *
 * A call's life: begin -> persys_ask()* -> persys_answer() or persys_fail(), exactly once. If its
 * caller goes away before, what it waits for is forgotten.
 */
#ifndef BERTH_SERVER_PERSYS_H
#define BERTH_SERVER_PERSYS_H

#include "base/arena.h"
#include "core/core.h"
#include "net/grpc.h"
#include "persys_control.pb-c.h"
#include "server/ops.h"

struct io;
struct door;
struct http_request;
struct grpc_callbacks;

struct persys {
        const struct door *door; /* first: see io.h */
        struct io *io;
        struct http_request *http; /* who waits: one of these; both NULL: gone */
        struct grpc_call *grpc;
        char request_id[65], actor[65];
        int role; /* of the actor: Pb__Role__E */
        struct arena memory;
        ProtobufCMessage *request; /* of op->request; NULL if that is */
        const char *cluster;       /* that the caller named; "" if none */
        const char *peer;          /* "10.0.0.1:4711" */
        uint64_t ticket;           /* waits for the ring; 0: does not */
        bool pushing;              /* waits for push.h, which cannot be told to forget */
        void (*then)(struct persys *p, const struct reply *reply);
        /* a list that is put together page by page */
        ProtobufCMessage *list;
        size_t n_list, list_cap, list_bytes;
};

/* ---- the doors ---- */
struct grpc_callbacks persys_callbacks(void);
void persys_http(const struct door *door, struct http_request *req);

/* An input of the core; msg is copied. then is called once, perhaps before this returns: do not
 * touch p after it. */
void persys_ask(struct persys *p, enum input_kind kind, const ProtobufCMessage *msg,
                void (*then)(struct persys *p, const struct reply *reply));
/* What the core answered, in p's memory; NULL: it could not be read (p has been answered). */
ProtobufCMessage *persys_reply(struct persys *p, const struct reply *reply, struct arena *arena);
/* The end; p is gone. */
void persys_answer(struct persys *p, const ProtobufCMessage *response);
void persys_fail(struct persys *p, enum grpc_status status, const char *message);
void persys_fail_err(struct persys *p, const struct err *err);           /* by the code's status */
void persys_answer_json(struct persys *p, const char *text, size_t len); /* HTTP only */
void persys_free(struct persys *p);

/* ---- what the calls do ---- */
void persys_begin(struct persys *p);

#endif
