/* server/forward.h: what a server that does not lead passes on to the one that does. The io
 * thread's. Internal.
 *
 * All of it goes by gRPC: a call that came over HTTP was decoded into its request message already,
 * and its answer is turned into JSON here. The caller's name, request id and authorization go with
 * it; the leader believes the name because a server's certificate stands behind it (without
 * certificates it believes anybody).
 *
 * Invariants:
 *   (W1) A call is passed on at most once: a server that was given one by another server, and does
 *   not lead, refuses it. (W2) Whoever waits hears one end: the leader's answer, or that the leader
 *   could not be reached and nobody knows whether it is done. (W3) Streams (logs, exec) last for as
 *   long as somebody looks on; they have connections of their own, and one caller has a
 *        share of them only. So however many there are, a call is not kept waiting by them.
 *   (W4) A token is passed on by TLS, or to a leader on this machine; otherwise the call is refused
 *   with what to configure.
 */
#ifndef BERTH_SERVER_FORWARD_H
#define BERTH_SERVER_FORWARD_H

#include "net/grpc.h"
#include "server/calls.h"

#define FORWARDED_HEADER "berth-forwarded"   /* request: another server passes this on */
#define CONSISTENT_HEADER "berth-consistent" /* request: only the leader shall answer */
#define CREATED_HEADER "berth-created"       /* response to such a call: something new was made */

struct io;
struct forward;
struct door;

struct forward *forward_create(struct io *io);
void forward_destroy(struct forward *f); /* before the calls */
void forward_reload(struct forward *f);  /* certificate files have changed */
/* another one leads, or nobody: what the one before was asked is over */
void forward_leader(struct forward *f);
void forward_stop(struct forward *f); /* this server stops: streams end, calls may finish */
uint64_t forward_count(const struct forward *f);

/* Does this call need the leader? Only asked of a server that does not lead. */
bool forward_wanted(const struct call *call);
/* call->msg holds the request. On failure the call has been answered and is gone. */
void forward_call(struct call *call);

/* A door whose streams are served here while this server leads, and piped to the leader
 * otherwise. */
struct grpc_callbacks forward_callbacks(const struct op *op);
void forward_set_local(struct forward *f, const struct op *op, struct grpc_callbacks local);

#endif
