/* sim/leaders.h: two servers over one shared store, and agents that hold leases: what docs/fencing.md promises, with every step paused and every wire cut.
 *
 * Each server is a process of its own: it asks the store for the leadership, keeps it alive, loads, decides, commits, releases and sends, one small step after the other, and may stand still between any two
 * of them, or be cut off from the store or from agents. The store compares leadership and head, as etcd does. Machines have clocks of their own speed, within the configured drift, and wall
 * clocks that jump. Agents are the real engines; units note their true beginning and end. The checker: no exclusive unit has two holders at one true instant.
 *
 * True time is `now`, in ms from 0. Everything follows from the seed.
 */
#ifndef BERTH_SIM_LEADERS_H
#define BERTH_SIM_LEADERS_H

#include "agent/engine.h"
#include "base/arena.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/str.h"
#include "core/core.h"
#include "sim/sim.h"

#define REPLICAS 2
#define AGENTS 4
#define ITEMS 6 /* workloads */
#define WALL_MS INT64_C(1767225600000)
#define TTL_MS 5000
#define BEAT_MS 1000
#define LEASE_MS 4000
#define GRACE_MS 3000
#define DRIFT_PERCENT 10

enum happening {
        AT_NONE,
        /* of a server: it may stand still before any of these */
        AT_KEEP,    /* leadership: ask for it, or keep it alive */
        AT_ANSWER,  /* of the store */
        AT_HEARD,   /* by the watch: number is whose key it is now, conn how many there had been */
        AT_INPUT,   /* data: of an agent; or an operator's, by number */
        AT_TICK,    /* the core's deadline */
        AT_COMMIT,  /* send the next batch to the store, or the same again */
        AT_RELEASE, /* take the next thing that may leave, and ask whether we lead */
        AT_SEND,    /* put it on the wire */
        AT_CLOSED,  /* a stream ended */
        /* elsewhere */
        AT_STORE, /* an ask arrives */
        AT_TO_AGENT,
        AT_AGENT_TICK,
        AT_CONNECT,
        AT_HANGUP,  /* the agent learns that its stream ended */
        AT_BOOT,    /* the agent is started */
        AT_COPY,    /* what was to become of a copy */
        AT_TELL,    /* the agent hears of it */
        AT_MONITOR, /* a unit's monitor looks at the lease */
        AT_FAULT,
        AT_OPERATOR,
        AT_WAKE,  /* a server that was down */
        AT_BLIND, /* the next stage of that fault: leaders.c */
};

struct copies; /* of a batch, for the wire */
struct batch_copy {
        uint32_t refs;
        struct store_batch batch;
        struct arena memory;
};

enum ask_kind { ASK_LEAD, ASK_KEEP, ASK_LOAD, ASK_COMMIT, ASK_PROVE };
/* The ways between a server and the store. Each has a connection or a member of the store of its own, so each can fail while the others work. */
enum channel { BY_COMMIT, BY_READ, BY_LEASE, BY_WATCH, CHANNELS };
struct ask {
        enum ask_kind kind;
        uint64_t rev;              /* the leadership that it is asked under; of an answer to ASK_LEAD: the one given */
        int64_t sent_ms;           /* by the server's steady clock */
        bool ok, proof;            /* proof: the key was compared, and was this one's */
        struct batch_copy *commit; /* ASK_COMMIT */
        struct snapshot *loaded;   /* the answer to ASK_LOAD */
};

struct kept_record {
        char *key;
        void *data;
        size_t len;
};
struct kept_event {
        void *data;
        size_t len;
};
struct snapshot {
        ARRAY(struct kept_record) records;
        ARRAY(struct kept_event) events; /* ASK_LOAD has none */
        uint64_t head;
};

struct message {
        uint64_t conn;
        bool beat, close;
        struct effect ack; /* beat */
        void *data;        /* packed Pb__ServerMessage */
        size_t len;
};

struct what {
        enum happening kind;
        uint32_t who;
        uint64_t life, conn, number;
        void *data;
        size_t len;
        uint64_t serial;
};

struct machine_clock {
        int64_t ppm, begins; /* speed, and what it says at 0 */
        int64_t wall_ahead;  /* of the wall clock */
};

struct server {
        struct machine_clock clock;
        bool down;
        int64_t paused_until, stalled_until; /* stalled: all but the thread that keeps the leadership alive */
        int64_t cut_until[CHANNELS];         /* from the store */
        uint64_t life;
        uint64_t rev; /* 0: does not lead, as far as it knows */
        int64_t leads_until, asked_ms;
        int64_t proved_ms; /* when the youngest proof left that it leads (store/etcd_proof.c); by its steady clock */
        struct core *core;
        int64_t
            lifted_ms; /* so much later than its wall clock, which was behind what it loaded: the ring begins there, and goes on from there */
        ARRAY(struct core_batch *) queue;
        struct core_batch *committing;
        struct batch_copy *op;
        ARRAY(struct message) out;
        size_t out_done;
        bool sending;
        uint32_t tick;
};

struct life { /* of one copy of a unit */
        char id[16], revision[40];
        struct unit_token token;
        Pb__Exclusive__E exclusive;
        bool used, alive, stopping, lease_expired, gone;
        int64_t began, ended; /* truly */
        uint64_t turn;        /* number of what happens to it next */
        enum runtime_event_kind next;
        int32_t signal;
};

struct node_machine {
        char id[16];
        struct machine_clock clock;
        struct engine *engine; /* NULL: the agent is dead */
        bool watched;          /* each unit has a monitor: it outlives the agent, and ends with the lease */
        bool down;
        int64_t hangs_until;
        int64_t cut_until[REPLICAS];
        uint64_t conn;
        int64_t answered;
        int64_t to_agent, to_server; /* a stream keeps its order */
        int64_t lease_until, lease_kill;
        ARRAY(struct kept_record) disk;
        void *record;
        size_t record_len;
        struct life copies[ITEMS];
        uint32_t tick, boots;
};

struct stream_end {
        uint32_t agent, server;
        uint64_t life;
        bool closed;
};

struct leaders {
        uint64_t seed;
        bool verbose, calm;
        struct rng rng;
        int64_t now, end;
        struct heap heap;
        ARRAY(struct what) events;
        ARRAY(uint32_t) free_events;
        uint64_t serial, turns;
        struct server servers[REPLICAS];
        struct node_machine machines[AGENTS];
        ARRAY(struct stream_end) conns;
        /* the store */
        struct snapshot store, backup;
        uint64_t leader, revs; /* whose key is there; 0: nobody's */
        struct {
                uint64_t rev;
                int64_t until;
        } leases[REPLICAS];  /* a key goes with its lease, and a lease stays when its key is removed */
        int64_t blind_until; /* a server is blind, or is about to be */
        uint32_t blind;
        struct machine_clock store_clock;
        struct core_options opt;
        /* operator */
        uint32_t revision[ITEMS];
        Pb__Exclusive__E wanted[ITEMS];
        bool there[ITEMS], stopped[ITEMS];
        uint32_t drained; /* machine + 1 */
        /* outcome */
        struct leaders_result *result;
        struct err *err;
        uint32_t last_holder[ITEMS]; /* machine + 1 */
        int64_t last_end[ITEMS];
};

#include <stdio.h>
void sim_print_event(FILE *f, const void *data, size_t len); /* world.c */
/* leaders.c */
uint32_t leaders_at(struct leaders *s, int64_t at, struct what w);
void leaders_fail(struct leaders *s, const char *what, const char *detail);
int64_t between(struct leaders *s, int64_t low, int64_t high);
bool chance(struct leaders *s, uint32_t per_million);
int64_t steady_of(const struct machine_clock *c, int64_t now);
int64_t true_wait(const struct machine_clock *c, int64_t ms); /* how long ms of this clock take */
void snapshot_fini(struct snapshot *p);
static inline bool leaders_failed(const struct leaders *s)
{
        return s->result->violations > 0;
}

/* leaders_forge.c */
void leaders_forge(struct leaders *s, uint32_t agent, Pb__AgentMessage *m, struct arena *a); /* changes what it says */
void leaders_look_for_forged(struct leaders *s, const void *event, size_t len);

/* leaders_server.c */
void leader_happens(struct leaders *s, struct what *w);
void leader_stop(struct leaders *s, uint32_t r); /* it leads no more, or dies */
void leader_ask(struct leaders *s, uint32_t r, struct ask *a);
bool leader_is_cut(const struct leaders *s, uint32_t r, enum ask_kind kind);
void batch_copy_unref(struct batch_copy *c);
void leader_input(struct leaders *s, uint32_t r, struct input *in);

/* leaders_agent.c */
void holder_happens(struct leaders *s, struct what *w);
void holder_boot(struct leaders *s, uint32_t n);
void holder_dies(struct leaders *s, uint32_t n, bool machine);
void holder_hangs_up(struct leaders *s, uint32_t n);
void holder_fini(struct node_machine *m);

#endif
