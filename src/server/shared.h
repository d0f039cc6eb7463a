/* server/shared.h: what the server's threads share: queues, counters, and the messages that go
 * through the queues. Internal.
 *
 *        io ----- struct ring_msg -----> ring ------ struct core_batch -----> store
 *         ^  ^                            |  ^                                 | |
 *         |  '------- IO_RELEASE ---------'  '--------- struct commit_done ----' |
 *         |  '------------------------------- IO_RELEASE ------------------------'
 *         '--- IO_HISTORY --- reader <--- struct history_job --- io
 *
 * Each message has one owner at a time: whoever pops it frees it or passes it on.
 * A batch with something to commit is released by the store thread, before the ring hears of it;
 * one with nothing to commit is released by the ring, which does so only when no commit is under
 * way. So the io thread sees batches in their order.
 */
#ifndef BERTH_SERVER_SHARED_H
#define BERTH_SERVER_SHARED_H

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/queue.h"
#include "core/core.h"
#include "server/metrics.h"
#include "server/reader.h"
#include "server/server.h"
#include "store/store.h"
#include <pthread.h>
#include <stdatomic.h>

/* ---- messages ---- */

/* An input on its way to the core; everything that `in` points to is in `memory`. */
struct ring_msg {
        struct input in;
        int64_t deadline_ms; /* monotonic; the ring drops it unexecuted after that; 0: none */
        int64_t sent_ms;     /* monotonic */
        struct arena memory;
};
struct server;
struct ring_msg *ring_msg_new(enum input_kind kind);
void ring_msg_free(void *msg);

/* What the ring asks of the store. Without a batch: the answer to COMMIT_LOST or COMMIT_LEAD. */
enum ring_word {
        /* the state of the term that is over is gone, and nothing of it follows in this queue */
        RING_DROPPED,
        RING_LEADS,  /* it decides now */
        RING_NO_KEY, /* this server does not have the cluster's key: give the lead back */
        RING_CANNOT, /* what it holds is not the state at that head: load, and tell again */
};
struct commit_job {
        struct core_batch *batch;
        enum ring_word word;
};
/* And what it hears of it. */
enum commit_word {
        COMMIT_DONE,   /* durable, and released */
        COMMIT_WAITS,  /* the store is away; it is tried again and again: freeze */
        COMMIT_FAILED, /* given up for good: nothing can be committed any more */
        /* Of a store that several servers share (follow.c): */
        COMMIT_LOST,   /* this server leads no more: what was not committed is dropped */
        COMMIT_CORE,   /* core: a loaded state to be followed, in place of whatever there was */
        COMMIT_EVENTS, /* batch: events that the leader has committed, to be folded and released */
        COMMIT_LEAD,   /* this server leads, and all events up to head have been told: start */
};
struct commit_done {
        enum commit_word word;
        struct core *core;
        struct core_batch *batch;
        uint64_t head;
};
void commit_done_free(void *done);

enum io_kind { IO_RELEASE, IO_HISTORY, IO_PLAN, IO_CONFIG, IO_ROLE, IO_LEADER, IO_STOP };
struct history_job;
struct plan_child;
struct io_msg {
        enum io_kind kind;
        struct core_batch *batch;
        struct history_job *history;
        struct plan_child *plan;
        const Pb__ServerConfig *config; /* in memory */
        bool leads;                     /* IO_ROLE */
        uint64_t head;                  /* the same: everything up to here is committed */
        struct arena memory;
};
void io_msg_free(void *msg);

/* ---- a gate: how the ring waits for two queues at once ---- */

struct gate {
        pthread_mutex_t lock;
        pthread_cond_t cond;
        bool open;
};
void gate_init(struct gate *g);
void gate_fini(struct gate *g);
void gate_open(void *gate); /* any thread; fits as queue notify */
/* Until somebody opened it since the last wait, or timeout_ms have passed (-1: for ever). */
void gate_wait(struct gate *g, int64_t timeout_ms);

/* ---- the server ---- */

struct io;
struct access_table;

/* Who leads, as far as this server knows. */
struct leader {
        bool known; /* somebody leads now; else: who led last */
        bool is_self;
        char name[128], http_address[128], grpc_address[128];
        int64_t since_ms; /* Unix: when this was heard */
};

struct server {
        struct server_options opt; /* strings are copies in `memory` */
        struct arena memory;
        struct metrics metrics;
        int64_t started_ms; /* Unix */
        /* as of the start; in `memory`. Later ones go through the queues */
        const Pb__ServerConfig *config;
        struct {
                _Atomic uint64_t events;
                _Atomic int64_t age_ms;
        } retention[EVENT_CLASSES]; /* as struct store_keep */
        _Atomic bool retention_changed;

        struct queue *ring_queue; /* struct ring_msg */
        /* struct ring_msg that only reads: the ring takes these first (A11) */
        struct queue *read_queue;
        struct queue *done_queue;   /* struct commit_done */
        struct queue *store_queue;  /* struct commit_job */
        struct queue *io_queue;     /* struct io_msg */
        struct queue *reader_queue; /* struct history_job: see history_send() */
        struct gate ring_gate, store_gate;
        /* eventfds: something for io; a stop was asked for or something broke */
        int io_wake_fd, ended_fd;

        pthread_t ring_thread, store_thread, io_thread, reader_thread;
        bool ring_runs, store_runs, io_runs, reader_runs; /* for joining; the starting thread's */

        /* the store thread's until it has loaded; then the core is the ring's */
        struct store *store;
        struct core *core;
        struct store_limits limits;
        uint64_t loaded_head;

        bool address_written; /* the waiting thread's */
        /* the io thread's: */
        struct io *io;
        uint16_t reading[HISTORY_CALLERS]; /* jobs of each caller at the reader, */
        size_t n_reading;                  /* and of all */
        char http_address[80], grpc_address[80];
        char cluster_id[64]; /* for logs; written by nobody after the start */

        _Atomic bool stopping;
        /* monotonic; set by a stop: commits are not tried any more after that */
        _Atomic int64_t give_up_ms;
        _Atomic bool degraded;             /* the store is away */
        _Atomic int64_t degraded_since_ms; /* Unix; of the last change of mode */
        _Atomic uint64_t committed;        /* head of the store */
        /* monotonic: since when the store has said nothing about the batches that are at it; 0:
         * none is */
        _Atomic int64_t commit_since_ms;
        /* monotonic: changes that were sent up to then have been refused, and are not made any
         * more */
        _Atomic int64_t refused_ms;
        _Atomic size_t answers; /* in batches that io has not taken yet */
        /* of a shared store; on the embedded one a server leads as long as it runs */
        _Atomic bool leads; /* decides: the ring's word */
        /* io listens: the addresses are known, and may be told to others */
        _Atomic bool announced;
        _Atomic bool settled; /* it is known whether this server leads or follows */
        /* io holds answers until it is proved that this server leads */
        _Atomic bool proof_wanted;
        /* the ring could not fold what it was told; until it has taken a loaded state */
        _Atomic bool reload_wanted;
        /* as far as heard: what a follower has not folded yet is its lag */
        _Atomic uint64_t store_head;

        /* the store thread's; NULL: it is in its file. See key_save() */
        struct cluster_key *unsaved_key;

        /* published by the core's owner, taken by io (access.h) */
        _Atomic(struct access_table *) tokens;

        pthread_mutex_t lock; /* of what follows */
        pthread_cond_t changed;
        struct core_stats stats; /* published by the ring */
        struct err fatal;        /* why it ends by itself; code 0: it does not */
        char degraded_reason[256];
        char address_problem[256]; /* why server.address is not there; "": it is */
        struct leader leader;
        /* why the cluster's key keeps this server from leading; "": it does not. See key.h */
        char key_trouble[512];
        char key_fingerprint[40];     /* of the key that it has; "": none */
        char cluster_fingerprint[40]; /* of the cluster's, as far as is known */
        /* as the others know this server; "": the store is not shared */
        char own_name[128];
        int starting; /* threads that have not said yet whether they could begin */
        struct err start_err;
        bool waited, serving; /* the starting thread's */
};

#define LEASE_SECONDS 5
/* a keep-alive of the leadership goes out every quarter of its lease; without an answer for this
 * long the store is away */
#define KEEP_ALIVE_LATE_MS 2000
/* commits that fail for this long: changes are refused, reads answered from what is committed */
#define STORE_AWAY_MS 1000
#define STORE_STALLED_MS 5000 /* a commit that says nothing for this long: the same */

int64_t mono_ms(void);
/* The thread says that it could begin (or why not); the starter waits for it. */
void server_started(struct server *s, const struct err *err);
/* Something that cannot be gone on with: the server stops, server_wait() returns this. */
void server_fatal(struct server *s, const struct err *err);
/* What is granted now is covered: no other server has led for longer than LEASE_SECONDS
 * (store_leads_until_ns()). Any thread. */
bool server_surely_leads(struct server *s);
/* It may have been proved that this server leads: io looks. Any thread. */
void server_proved(void *server);
/* The store takes no commits: it has failed for a second, or said nothing for several. Any
 * thread. */
bool server_store_is_away(struct server *s);
void server_set_degraded(struct server *s, bool degraded, const char *reason);
/* Is the store away, as far as can be known by now? ret_reason (256 bytes, or NULL): why, in words.
 * Any thread. */
bool server_is_degraded(struct server *s, char *ret_reason);
/* Hands a batch to io, waiting while its queue is full. Frees it when io has ended. */
void server_release(struct server *s, struct core_batch *batch);
bool server_io_push(struct server *s, struct io_msg *msg, bool wait);

/* The ring says whether it decides; io hears it in order with the batches. */
void server_tell_role(struct server *s, bool leads, uint64_t head);
void server_leader(struct server *s, struct leader *ret); /* any thread */

/* follow.c, the store thread: */
/* Follows the leader until this server leads itself and the ring decides: true. false: the server
 * stops. */
bool follow_until_leading(struct server *s, struct store *store);
/* Leadership is lost: the ring drops its state, and has a committed one to read from when this
 * returns. */
void follow_step_down(struct server *s, struct store *store, const struct err *why);
/* commits.c: a core with the store's records, not started. from_memory: those that the store keeps
 * in memory (see store_reader_records()). */
int load_core(struct server *s, struct store *store, bool from_memory, struct core **ret_core,
              uint64_t *ret_head, struct err *err);

void *ring_main(void *server);   /* ring.c */
void *store_main(void *server);  /* commits.c */
void *reader_main(void *server); /* reader.c */
void *io_main(void *server);     /* io.c */

#endif
