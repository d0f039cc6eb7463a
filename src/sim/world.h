/* sim/world.h: the simulator's parts, as its own files see them. */
#ifndef BERTH_SIM_WORLD_H
#define BERTH_SIM_WORLD_H

#include "agent/engine.h"
#include "base/arena.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/map.h"
#include "base/str.h"
#include "core/core.h"
#include "events.pb-c.h"
#include "sim/sim.h"
#include "store/memory.h"
#include "store/store.h"
#include <stdio.h>

#define HOUR_MS INT64_C(3600000)
#define LEAD_MS 5000                    /* how long a leader that says nothing is believed */
#define SIM_ANY_SERVER SIM_SERVERS      /* whoever leads when it arrives */
#define START_MS INT64_C(1767225600000) /* 2026-01-01: any fixed moment */

enum event_kind {
        EV_NONE,
        /* of a server: it may stand still before any of these */
        EV_SERVER_TICK,
        /* the batch under way reaches the disk; of several servers: is sent to the store, or once
         * more */
        EV_COMMIT,
        EV_TO_SERVER,   /* data: packed AgentMessage */
        EV_SERVER_GONE, /* the server notices that a stream ended */
        EV_REQUEST,     /* a request arrives at the server: value is its slot */
        /* of several: what may leave next is taken, and it is asked whether we lead */
        EV_RELEASE,
        EV_SEND, /* and put on the wire */
        /* the leadership is asked for, or kept alive. These three go on while all else is
         * stalled */
        EV_KEEP,
        EV_ANSWER, /* of the store; data: struct ask */
        /* by the watch: value is whose key it is now, conn how many there had been */
        EV_HEARD,
        /* elsewhere */
        EV_STORE,  /* an ask arrives there; data: struct ask */
        EV_RESUME, /* a server that stood still goes on */
        EV_BLIND,  /* the next stage of that fault */
        EV_CLOSE,  /* a stream ends: never planned, but kept in order with what leaves a server */
        EV_SERVER_START,
        EV_SERVER_CRASH,
        EV_TO_AGENT,   /* data: struct letter */
        EV_ACK,        /* to the agent: a heartbeat's answer; value is next_ms */
        EV_LIST,       /* to the agent: send the whole list */
        EV_AGENT_GONE, /* the agent notices that a stream ended */
        EV_CONNECT,    /* the agent dials */
        EV_AGENT_TICK,
        EV_AGENT_START,
        EV_FAULT, /* value: position in the plan */
        EV_HEAL,  /* a node's link works again */
        EV_LOSE,  /* those that this run is to lose are cut off */
        EV_STORE_BACK,
        EV_TWIN_END,
        EV_RUNTIME, /* a copy's next event */
        EV_MONITOR, /* a unit's monitor looks at the lease */
        EV_CLIENT,  /* somebody asks something */
};

struct sim_event {
        enum event_kind kind;
        uint32_t node, server;
        uint64_t life; /* of the server: another one is not concerned */
        uint64_t conn;
        uint64_t value;
        int64_t clock_ms, lease_ms, stop_ms; /* EV_ACK */
        void *data;
        size_t len;
};

/* Everything by chance comes from one of these, so that leaving one thing out disturbs the others
 * as little as can be. */
enum chance {
        CHANCE_NET,
        CHANCE_CLIENT,
        CHANCE_RUNTIME,
        CHANCE_CORE,
        CHANCE_SERVER,
        CHANCE_QUOTA,
        _CHANCE_MAX
};

/* What a server says to an agent, unpacked once. Two events may share it. */
struct letter {
        struct arena memory;
        Pb__ServerMessage msg;
        uint32_t refs;
};

/* ---- faults ---- */

enum fault_kind {
        FAULT_SERVER_CRASH,
        FAULT_STORE_AWAY,
        FAULT_SLOW_DISK,
        FAULT_SERVER_CLOCK,
        FAULT_OPERATOR,
        FAULT_AGENT_CRASH, /* from here on: of one node */
        FAULT_MACHINE_CRASH,
        FAULT_CUT,
        FAULT_ONEWAY,
        FAULT_STALL,
        FAULT_AGENT_CLOCK,
        FAULT_TWIN,
        FAULT_LIES,
        FAULT_RUNTIME,
        FAULT_DRIFT,
        FAULT_MASS,          /* of many nodes */
        FAULT_SERVER_STALLS, /* from here on: of one of several servers */
        FAULT_SERVER_CUT,    /* from the store */
        FAULT_BLIND,
        FAULT_RESTORE,
        FAULT_CUT_FROM_ONE, /* a node, from a server */
        _FAULT_MAX
};
struct planned_fault {
        int64_t at;
        enum fault_kind kind;
        uint32_t node;
        uint64_t random; /* all its details follow from this */
};

/* ---- machines ---- */

/* A clock that nobody sets, with a speed of its own. */
struct steady {
        int64_t ppm, begins; /* what it said at START_MS */
};

/* One copy of a unit on a machine. */
struct copy {
        char *workload_id, *revision;
        struct unit_token token;
        Pb__Exclusive__E exclusive;
        bool alive, job, gone; /* gone: died with the machine */
        bool doubtful;         /* its node lied about it, perhaps, or was forgotten with it */
        /* ended because of that; and its agent has not heard of it yet */
        bool lease_expired, untold;
        int64_t started_at, ended_at;
        int32_t exit_code, signal;
        bool start_failed, removing, stopping;
        uint64_t life; /* number of its pending EV_RUNTIME; older ones are void */
        enum runtime_event_kind next;
};

struct disk_record {
        char *id;
        void *data;
        size_t len;
};

struct machine {
        char id[32];
        /* number of the node that it says it is: its own, or its twin's */
        uint32_t node;
        struct engine *engine; /* NULL: the agent is down */
        bool down;             /* the machine is off */
        bool off;              /* and stays off: a twin before and after its time */
        bool on_record;        /* its node was, when the store was put back */
        bool forgotten;        /* its node was forgotten by an operator, once or more */
        /* it has lied, or had a twin: nothing is said about its workloads */
        bool lied;
        /* its runtime does not work, until the agent is started anew */
        bool cannot_run;
        bool cut;                /* nothing gets through, either way */
        bool up_lost, down_lost; /* one way only */
        bool stalls;             /* then: what cannot get through now does later, */
        int64_t heals_at;        /* at this time */
        /* from one of several servers: what is sent meanwhile arrives then */
        int64_t cut_until[SIM_SERVERS];
        int64_t heard; /* when its server last said anything */
        uint32_t cuts; /* number of the last one: an older one's end is void */
        int64_t lies_until, stalled_until;
        int64_t doubtful_until;            /* what it starts meanwhile is its own affair */
        uint64_t conn;                     /* 0: not connected */
        int64_t to_agent_at, to_server_at; /* a stream keeps its order */
        uint32_t instance, boots;          /* of its agent; of the machine */
        /* slot + 1 of its next tick; of when its monitors look next; 0: none */
        uint32_t tick, monitor;
        uint32_t checks;
        struct clock clock;
        int64_t wall_off_ms; /* how wrong its wall clock is */
        bool own_clock;      /* it was wrong once */
        struct steady steady;
        /* each unit has a monitor: it outlives the agent, and ends with the lease */
        bool watched;
        int64_t lease_until, lease_kill; /* as it is on disk; 0: none, of this boot */
        ARRAY(struct copy) copies;
        ARRAY(struct disk_record) disk;
        void *agent_record;
        size_t agent_record_len;
        int64_t cpu, memory_mb, disk_gb;
};

/* ---- servers ---- */

/* A batch that has left its server, or is about to. */
struct sent {
        uint32_t refs;
        struct core_batch *batch;
        int64_t since; /* when it was found to need a proof, by the server's steady clock */
};
/* How several servers and their store talk: shared.c. */
struct ask;
enum ask_kind { ASK_LEAD, ASK_KEEP, ASK_LOAD, ASK_COMMIT, ASK_PROVE };
enum channel { BY_COMMIT, BY_READ, BY_LEASE, BY_WATCH, CHANNELS };

struct server {
        struct core *core; /* NULL: it is down, or does not lead */
        struct sent *committing;
        ARRAY(struct core_batch *) queue; /* cut, waiting for the store */
        uint64_t life;
        uint32_t number, tick; /* tick: slot + 1 of its next one; 0: none */
        uint64_t durable;      /* the head that the store has confirmed to this life */
        uint32_t unchecked;    /* steps since all invariants were checked */
        struct clock clock;
        /* see server/ring.c: time in which it could not listen does not pass */
        int64_t wall_off_ms, clock_seen, lag_x4;
        bool own_clock;
        struct steady steady;
        int64_t started;              /* by its own clock */
        int64_t frozen_since;         /* 0: not; nothing is stepped while the store is away */
        ARRAY(struct sim_event) held; /* what came meanwhile */
        bool crash_at_commit;         /* it dies while its next commit is under way */
        int64_t crash_down_ms;
        /* one of several */
        bool down;
        /* stalled: all but the thread that keeps the leadership alive */
        int64_t paused_until, stalled_until;
        int64_t cut_until[CHANNELS]; /* from the store */
        uint64_t rev;                /* 0: does not lead, as far as it knows */
        uint64_t commits;            /* number of the one under way */
        int64_t leads_until, asked_ms;
        /* when the youngest proof left that it leads (store/etcd_proof.c); by its steady clock */
        int64_t proved_ms;
        ARRAY(struct sim_event) out; /* released, and not yet sent */
        size_t out_done;
        ARRAY(struct sent *) unproved; /* answers that wait for a proof */
};

struct conn {
        uint32_t machine, server;
        bool server_gone; /* the server knows that it ended: nothing more comes from it */
        uint64_t life;    /* of the server that it was made to */
};

/* ---- users ---- */

enum client_op {
        OP_APPLY,
        OP_DELETE,
        OP_STOP,
        OP_START,
        OP_RETRY,
        OP_WISH,
        OP_FORGET,
        OP_QUOTA,
        OP_TAINT,
        OP_EVICT,
        OP_EVICT_LOST,
        OP_FENCE,
        OP_ADOPT
};
struct client_item { /* what the client knows about one workload */
        char id[32];
        bool exists; /* an apply was acknowledged, and no delete was asked for since */
        bool delete_asked;
        bool busy;        /* a request is under way: the client waits for it */
        uint32_t deletes; /* that have reached the server */
        bool tainted;     /* it was on a node that lied: its copies are nobody's promise */
        /* when something was done to it on its machine, behind its agent's back */
        int64_t drifted;
        uint64_t version; /* the newest acknowledged */
        uint32_t revision;
        bool job;
        uint32_t holder; /* the machine that it ran on last, + 1: exclusive ones */
};
struct request {
        enum client_op op;
        uint32_t item;     /* OP_WISH and OP_FORGET: the machine; OP_QUOTA: the tenant */
        uint32_t revision; /* OP_APPLY: what is asked for, however late it arrives */
        uint64_t if_match;
        Pb__NodeWish__E wish;
        uint64_t random; /* OP_TAINT, OP_WISH: all details follow from this */
        bool open, arrived;
        uint32_t server;  /* where it arrived, + 1 */
        bool knew;        /* that its item was there, whenever it arrived */
        uint32_t deletes; /* of its item, when it arrived */
};

struct watch;

struct sim {
        struct sim_options opt;
        struct rng chance[_CHANCE_MAX];
        struct rng hits[32]; /* one per kind of fault */
        uint32_t hit_count[32];
        ARRAY(uint32_t) hit_numbers;
        int64_t now, end_ms;
        bool calm;                       /* no more faults */
        int64_t quiet_since;             /* of the last commit */
        struct arena inbox, lies, reply; /* one message at a time */
        /* events */
        struct heap heap;
        ARRAY(struct sim_event) events;
        ARRAY(uint32_t) free_events;
        ARRAY(struct planned_fault) plan;
        /* servers and their store */
        struct core_options core_opt;
        struct server servers[SIM_SERVERS];
        struct memory_disk *disk;
        struct store *store;
        bool away;             /* the store is */
        uint64_t leader, revs; /* whose key is there; 0: nobody's */
        uint32_t led_by;       /* who began last, + 1 */
        struct {
                uint64_t rev;
                int64_t until;
        } leases[SIM_SERVERS];
        struct steady store_clock;
        struct store *backup;
        struct memory_disk *backup_disk;
        bool restored;       /* from it */
        int64_t blind_until; /* a server is blind, or is about to be */
        uint32_t blind;
        int64_t slow_until;
        int64_t server_started; /* of the one that committed last, by its own clock */
        /* agents, clients */
        ARRAY(struct conn) conns;
        ARRAY(struct machine) machines; /* opt.nodes, then twins */
        ARRAY(struct client_item) items;
        ARRAY(struct request) requests;
        /* an operator's last word: what is still on its way from before is lost */
        size_t first_calm_request;
        size_t answered; /* those before it are closed */
        /* outcome */
        struct sim_result result;
        struct err *err;
        struct str last[64]; /* last events, for the report of a failure */
        uint32_t last_at;
        uint64_t lives;                   /* numbers for EV_RUNTIME */
        ARRAY(struct unit_token) started; /* tokens that were started, anywhere */
        struct map started_by;
        struct watch *watch; /* follows the committed events */
};

/* world.c */
uint32_t sim_at(struct sim *s, int64_t at, struct sim_event ev);
/* A tick that is there at most once: moved to the new time. *slot is 0 when none is due. */
void sim_tick_at(struct sim *s, uint32_t *slot, int64_t at, struct sim_event ev);
void sim_fail(struct sim *s, const char *what, const char *detail);
int64_t sim_between(struct sim *s, enum chance from, int64_t low, int64_t high); /* inclusive */
bool sim_chance(struct sim *s, enum chance from, uint32_t per_million);
void sim_dispatch(struct sim *s, struct sim_event *ev);
void sim_event_free(struct sim_event *ev);
static inline bool sim_failed(const struct sim *s)
{
        return s->result.violations > 0;
}
void sim_print_event(FILE *f, const void *data, size_t len);

/* faults.c */
void sim_faults_plan(struct sim *s);
void sim_fault(struct sim *s, uint64_t number);
void sim_go_blind(struct sim *s, struct server *v);
/* Does this small fault of this kind (enum sim_fault) happen now? */
bool sim_hit(struct sim *s, enum sim_fault kind, uint32_t per_million);
void sim_heal(struct sim *s, uint32_t n, uint64_t cut);
void sim_lose(struct sim *s); /* what the options say */
const char *sim_zone_of(const struct sim *s, uint32_t node);
void sim_faults_end(struct sim *s);

/* watch.c: verdicts over the committed events, in their order. */
struct watch *sim_watch_create(void);
void sim_watch_destroy(struct watch *w);
void sim_watch_event(struct sim *s, const void *data, size_t len);
void sim_watch_catch_up(struct sim *s); /* what is in the store by now */
/* the store is another one: only what needs no past is judged */
void sim_watch_restart(struct sim *s);
/* It lies until then: nothing is said about the copies of what is on it. */
void sim_taint_node(struct sim *s, uint32_t n, int64_t until);

/* shadow.c: who is where, from the committed events alone. */
struct shadow;
/* tenants.c */
#define SIM_TENANTS 3
extern const char *const sim_tenant_names[SIM_TENANTS];
struct tenants;
struct tenants *tenants_create(void);
void tenants_destroy(struct tenants *t);
/* what it breaks; NULL: nothing */
const char *tenants_event(struct tenants *t, const Pb__Event *e);
/* it has no place, and may have one */
bool tenants_allow(struct tenants *t, const char *id);
struct shadow *sim_watch_shadow(const struct watch *w);
struct tenants *sim_watch_tenants(const struct watch *w);

struct shadow *shadow_create(void);
void shadow_destroy(struct shadow *h);
/* What is wrong with this event, given those before it; NULL: nothing. Then it is applied. */
const char *shadow_event(struct shadow *h, const Pb__Event *e);
bool shadow_is_on(struct shadow *h, size_t workload, size_t node); /* or may have a copy there */
/* "node-0007" and "w-00012" end with their number */
size_t number_of(const char *id);

/* seen.c */
void sim_see(struct sim *s, const Pb__Event *e);
enum sight {
        SAW_LEADER_CHANGE,
        SAW_REFUSED,
        SAW_NOT_RENEWED,
        SAW_PAUSE,
        SAW_BLIND,
        SAW_UNPROVED,
        SAW_EXCLUSIVE_MOVE,
        SAW_RESTORED,
        _SIGHTS
};
void sim_saw(struct sim *s, enum sight what);

/* server.c */
void sim_server_start(struct sim *s, struct server *v);
/* leads from here on */
void sim_server_begin(struct sim *s, struct server *v, struct core *core, uint64_t head);
/* leads no more, or dies */
void sim_server_stop(struct sim *s, struct server *v);
void sim_server_crash(struct sim *s, struct server *v);
void sim_server_input(struct sim *s, struct server *v, struct input *in);
/* one of its steps, unless that has to wait */
void sim_server_happens(struct sim *s, struct sim_event *ev);
void sim_server_resume(struct sim *s, struct server *v); /* what has waited, in its order */
void sim_server_committed(struct sim *s, struct server *v);
void sim_server_proved(struct sim *s, struct server *v);
struct core *sim_server_load(struct sim *s, uint64_t *ret_head);
int sim_server_write(struct sim *s, struct server *v, const struct store_batch *b, struct err *err);
void sim_server_check_replay(struct sim *s);
void sim_remember(struct sim *s, const void *data, size_t len); /* a committed event */
int64_t sim_server_now(struct sim *s, struct server *v);        /* by its own clock */
void sim_server_clock_jump(struct sim *s, struct server *v, int64_t ms);
struct server *sim_leader(struct sim *s); /* the one that truly leads; NULL: nobody does */
void sim_sent_unref(struct sent *x);

/* shared.c: several servers on one store. */
void sim_ask_store(struct sim *s, struct server *v, enum ask_kind kind);
void sim_ask_free(struct ask *a);
void sim_store_happens(struct sim *s, struct sim_event *ev);
void sim_store_remove_key(struct sim *s);
void sim_keep_leading(struct sim *s, struct server *v);
void sim_answered(struct sim *s, struct server *v, struct ask *a);
void sim_heard_of_leader(struct sim *s, struct server *v, uint64_t leader, uint64_t revs);
bool sim_surely_leads(const struct sim *s, const struct server *v);
void sim_backup(struct sim *s);
void sim_restore(struct sim *s);

/* machine.c */
void sim_machine_init(struct sim *s, uint32_t n, uint32_t twin_of);
void sim_machine_fini(struct sim *s, uint32_t n);
void sim_agent_start(struct sim *s, uint32_t n);
void sim_agent_crash(struct sim *s, uint32_t n);
void sim_machine_crash(struct sim *s, uint32_t n);
void sim_agent_pump(struct sim *s, uint32_t n);
void sim_agent_tick(struct sim *s, uint32_t n);
struct copy *sim_copy_new(struct machine *m);
void sim_copy_free(struct copy *c);
void sim_machine_lose_record(struct machine *m, const char *workload_id);
void sim_machine_runtime(struct sim *s, uint32_t n, uint64_t life);
int64_t sim_agent_now(struct sim *s, struct machine *m); /* by its own clock */
void sim_monitor_looks(struct sim *s, uint32_t n);
struct steady sim_steady_drawn(const struct sim *s, struct rng *r);
int64_t sim_steady(const struct steady *c, int64_t now);
int64_t sim_true_wait(const struct steady *c, int64_t ms); /* how long ms of this clock take */
void sim_agent_clock_jump(struct sim *s, struct machine *m, int64_t ms);
struct copy *sim_copy_find(struct machine *m, const char *workload_id);

/* drift.c: what happens on a machine behind its agent's back. */
void sim_drift(struct sim *s, uint32_t n, struct rng *r);
/* Nothing on its machine can know any more that this token was started. */
void sim_forget_start(struct sim *s, struct unit_token t);

/* link.c */
int64_t sim_link_delay(struct sim *s);
void sim_link_break(struct sim *s, uint32_t n, bool silent);
void sim_link_end(struct sim *s, uint32_t n); /* the agent's side is gone */
void sim_agent_connect(struct sim *s, uint32_t n);
void sim_agent_gone(struct sim *s, uint32_t n, uint64_t conn);
void sim_link_to_server(struct sim *s, uint32_t n, const struct engine_packet *p);
void sim_link_to_agent(struct sim *s, uint64_t session, struct sim_event ev); /* takes ev.data */
void sim_agent_message(struct sim *s, const struct sim_event *ev);
void sim_link_close(struct sim *s, uint64_t session); /* the server ends it */
/* the agent reads nothing until stalled_until */
void sim_link_stall(struct sim *s, uint32_t n);

/* lies.c: changes what an agent says of its units; the new data is in s->lies. */
const void *sim_lie(struct sim *s, uint32_t n, const void *data, size_t *len);

/* client.c */
void sim_client_act(struct sim *s);
void sim_client_node(struct sim *s, uint32_t n, enum client_op op, Pb__NodeWish__E wish,
                     uint64_t random);
void sim_client_request(struct sim *s, struct server *v, uint32_t slot);
void sim_client_reply(struct sim *s, const struct server *v, const struct reply *r);
/* nobody will ever answer what is open there */
void sim_client_abandoned(struct sim *s, const struct server *v);
void sim_client_check_kept(struct sim *s);
void sim_client_forget(struct sim *s); /* what was acknowledged: the store is an older one */

/* verdict.c */
/* Asks the core as a user would, outside of the simulated network. */
Pb__Workload *sim_ask(struct sim *s, const char *id);
/* Is everything as it should be once nothing goes on any more? Else what is wrong, and with
 * what. */
bool sim_is_settled(struct sim *s, const char **ret_what, const char **ret_detail);

#endif
