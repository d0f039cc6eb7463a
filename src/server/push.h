/* server/push.h: agents that are called instead of calling (persys.agent.v1,
 * docs/compat-persys.md). The io thread's. Internal.
 *
 * Such a node registers and beats by single calls (persys_control.c); what it shall run is brought
 * to it by calls to its endpoint. For the core it is a node like any other, on a session that
 * exists only here: its effects come to push_effects() instead of going down a stream.
 *
 * Invariants:
 *   (P1) At most one session per node id; a new registration ends the one before it.
 *   (P2) The answer to a registration comes exactly once, and only after the core's decision is
 *   durable. (P3) What a heartbeat says of a unit is passed on only if this node was told to run
 *   that unit, and with the token that it was told with: a node says nothing about
 *        what belongs to others, or about what has been moved away from it (B-12).
 */
#ifndef BERTH_SERVER_PUSH_H
#define BERTH_SERVER_PUSH_H

#include "agent.pb-c.h"
#include "base/err.h"
#include "core/core.h"

struct io;
struct push;

/* Sessions of nodes that are called have this bit, sessions of streams have not. */
#define PUSH_SESSION (UINT64_C(1) << 63)

struct push *push_create(struct io *io);
/* registrations that still wait are answered with ERR_UNAVAILABLE */
void push_destroy(struct push *p);
void push_stop(struct push *p); /* the server stops: nothing new is begun */
/* this server leads no more: no node is called any more, and what they run is not touched */
void push_end_all(struct push *p);
void push_reload(struct push *p); /* certificate files have changed */

/* What the core said to a registration. err is set instead if it could not be asked (deadline, the
 * server stops). */
struct push_welcome {
        bool accepted;
        const char *reason, *hint;
        int64_t heartbeat_ms;
};
typedef void push_answer(void *ctx, const struct push_welcome *welcome, const struct err *err);

/* hello: checked by validate_hello(), push set, agent_endpoint set; units empty (they are asked for
 * at the endpoint). It is copied. The answer may come before this returns. < 0: could not be begun,
 * err says why, and fn is not called (ERR_LIMIT: too many nodes, or the ring is full). */
int push_register(struct push *p, const Pb__Hello *hello, const char *request_id, push_answer *fn,
                  void *ctx, struct err *err);

/* beat: checked by validate_heartbeat(). units: what the heartbeat says of units (id, state,
 * reason, message; no tokens), checked by validate_unit_report(). All are copied. -ERR_NOT_FOUND:
 * this process has no session of that node, it shall register; -ERR_LIMIT: the ring is full. */
int push_heartbeat(struct push *p, const char *node_id, const Pb__Heartbeat *beat,
                   Pb__UnitStatus *const *units, size_t n_units, struct err *err);

/* A batch's effects, in order; those of other sessions are left alone. */
void push_effects(struct push *p, const struct core_batch *batch);

#endif
