/* server/push_node.h: one node that is called: what it shall run, and the calls that bring it
 * there. The io thread's. Internal to push*.c.
 *
 * A unit here is a wish of the core (token, desired state, what to send) and the next step towards
 * it:
 *
 *      a new launch -----> APPLY --taken--> LOOK, again and again --as wished, or failed--> at rest
 *      all other wishes -> LOOK --not as wished--> APPLY or DELETE --taken--> LOOK ...
 *      a deletion that was taken is over when the agent says so: push_delete.c
 *
 * An order that comes again is looked at before anything is sent: what is already there, or on its
 * way, is left alone (C7). The agent's own memory is enough for that, so a server that was
 * restarted sends nothing either.
 *
 * Invariants:
 *   (C1) At most one call is under way per unit, and CALLS_MAX per node; a call lasts CALL_MS at
 *   most. One node's calls hold up nobody else's. (C2) A whole plan is compared with the agent's
 *   list before anything of it is sent. (C3) While the agent cannot be reached nothing is sent to
 *   it but a probe (HealthCheck) at growing intervals. Its list, asked for when that was answered,
 *   makes it reachable. (C4) A list proves absence only up to the orders that had been taken, or
 *   found done, when it was asked for (the report's cursor). (C5) What waits is bounded: one entry
 *   per unit, and one report per node that the ring has not taken.
 */
#ifndef BERTH_SERVER_PUSH_NODE_H
#define BERTH_SERVER_PUSH_NODE_H

#include "base/array.h"
#include "base/heap.h"
#include "base/map.h"
#include "net/grpc.h"
#include "persys_agent.pb-c.h"
#include "server/io.h"
#include "server/push.h"

#define CALLS_MAX 4
#define CALL_MS 10000
#define CONNECT_MS 5000
#define LIST_BYTES_MAX (32 * 1024 * 1024)

enum push_rpc { RPC_APPLY, RPC_DELETE, RPC_STATUS, RPC_LIST, RPC_HEALTH, RPC_ACTIONS, _RPC_MAX };
enum push_step { STEP_LOOK, STEP_APPLY, STEP_DELETE, STEP_ACTIONS };

/* what the core was told of it in this session */
enum push_reach { REACH_UNTOLD, REACH_UP, REACH_DOWN };

struct push_call;

struct push_unit {
        char *id;
        uint32_t ix;
        /* the wish */
        uint64_t epoch, seq;
        Pb__DesiredState__E desired;
        char *revision; /* as the agent gets and echoes it; "" for a deletion */
        void *request;  /* packed ApplyWorkloadRequest; NULL: a deletion, or at rest */
        size_t request_len;
        bool job;         /* not restarted when it ends well */
        bool unmentioned; /* by the whole plan that is coming in */
        /* of the plan that asked for it; 0: taken by the agent, or found done */
        uint64_t order_seq;
        /* the way there; when it goes on is in the node's heap */
        enum push_step next;
        struct push_call *call;
        bool again;      /* something is due while the call is under way */
        int64_t wait_ms; /* before the last look or repetition */
        /* monotonic: when the agent took the last apply and deletion; 0: never */
        int64_t applied_ms, asked_ms;
        uint32_t failures; /* of apply, in a row */
        /* a deletion that was taken (push_delete.c) */
        bool ended;              /* the agent says that it is over */
        int64_t again_ms;        /* before it is sent again, if it was lost */
        unsigned same_looks;     /* how often the same was found */
        uint64_t mark;           /* of that */
        int64_t same_since_ms;   /* monotonic */
        Pb__ActualState__E said; /* what the core was last told */
};

/* A status that an agent keeps of what it has deleted. */
struct push_ghost {
        char *id;
        uint64_t mark; /* as long as this stays the same, it is the same ghost */
        bool seen;     /* noted, or in a list, since the list before */
};

struct push_node {
        struct io *io;
        char *id, *target;
        char *caller; /* the address that it registered from: see reach.h */
        struct grpc_channel *channel;
        uint64_t session; /* 0: none yet */
        /* a registration that waits for the core; 0: none */
        uint64_t asked;
        char *asked_target, *asked_caller;
        push_answer *fn; /* NULL: answered already */
        void *ctx;
        int64_t answer_by_ms;

        ARRAY(struct push_unit *) units; /* by ix; NULL: free */
        ARRAY(uint32_t) free;
        struct map by_id;
        struct heap due; /* units, by ix; monotonic ms */
        struct event *timer;
        unsigned in_flight;
        uint64_t epoch, seq; /* of the newest order */
        bool whole;          /* a whole plan is coming in */
        bool syncing;        /* (C2) */
        bool list_due, listing, probing, closing;
        int64_t list_at_ms;
        ARRAY(char *) gone; /* while listing: found to be gone since it was asked for */
        ARRAY(struct push_ghost) ghosts;
        bool no_actions; /* the agent does not serve ListActions */

        bool down;  /* (C3) */
        char *why;  /* of down */
        bool heard; /* it has answered in this session */
        enum push_reach told;
        int64_t probe_at_ms, probe_wait_ms, answered_ms;

        struct ring_msg *report; /* (C5); NULL: nothing to say */
        ARRAY(Pb__UnitStatus *) report_units;
        bool flushing; /* in the list of those that have something to say */
};

/* push_node.c */
struct push_node *push_node_create(struct io *io, const char *id);
void push_node_destroy(struct push_node *n);
/* A session begins (or another one takes its place): nothing is known, everything comes with its
 * plan. */
void push_node_begin(struct push_node *n, uint64_t session, const char *target, const char *caller);
/* the session is over: wishes are forgotten, the agent is left as it is */
void push_node_end(struct push_node *n);
void push_node_effect(struct push_node *n, const struct effect *e, uint64_t epoch);
/* A heartbeat says that this unit is in this state: if that is news, the agent is asked. */
void push_node_hint(struct push_node *n, const char *workload_id, Pb__ActualState__E state);
void push_node_beat(struct push_node *n);
/* What is to be said to the ring; false: it is full, try again. */
bool push_node_flush(struct push_node *n);

/* push.c */
void push_wants_flush(struct push_node *n);
struct tls *push_tls(struct io *io);

#endif
