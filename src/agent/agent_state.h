/* agent/agent_state.h: the inside of the agent's loop, shared by agent.c, agent_disk.c and
 * agent_streams.c. */
#ifndef BERTH_AGENT_AGENT_STATE_H
#define BERTH_AGENT_AGENT_STATE_H

#include "agent/agent.h"
#include "agent/engine.h"
#include "base/arena.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/ulid.h"
#include "net/grpc.h"
#include <event2/event.h>

struct fleet;
struct agent;
struct agent_push;

/* A log or exec stream that the server asked for. */
struct relay {
        struct agent *agent;
        uint64_t id;
        struct stream *stream;
        bool is_exec;
        bool paused, no_room; /* its output; because the connection is full */
        /* the server gives credit, and takes it: proto/agent.proto, StreamCredit */
        bool by_credit;
        int64_t credit;                    /* bytes of output that may still be sent */
        int64_t input_bytes, input_credit; /* got, and allowed, since the beginning */
};
#define RELAYS_MAX 256

struct check; /* agent_health.c */

struct outgoing {
        void *data;
        size_t len;
};

/* cpu in thousandths of a core */
struct node_room {
        int64_t cpu, memory_mb, disk_gb;
};

/* One node. */
struct agent {
        struct fleet *fleet;
        char *node_id, *data_dir; /* data_dir NULL: nothing is kept */
        struct engine *engine;
        const struct runtime_ops *ops;
        struct runtime *runtime;
        int lock_fd;
        struct node_room offers; /* what the node said that it has */
        bool is_part;            /* that is less than the machine has */

        uint32_t index;               /* in the fleet */
        struct grpc_channel *channel; /* that of agent index % n_channels, which owns it */
        struct grpc_call *call;
        bool greeted;          /* this stream has its Hello */
        const char *dialled;   /* which of several servers the stream goes to; the channel's */
        bool was_welcome;      /* ever: for ready_fd */
        uint32_t failures;     /* streams in a row that ended without a Welcome */
        int64_t slow_retry_ms; /* > 0: the engine wants this pause before the next stream */
        uint64_t plans_ignored;

        struct agent_push *push; /* push.h: the server calls us; NULL: we keep a stream */
        struct event *flush, *tick, *redial;
        ARRAY(struct outgoing) outbox; /* what the stream did not take yet */
        size_t outbox_bytes;
        ARRAY(struct relay *) relays;
        struct event *relay_input; /* looks whether commands have read their input */
        ARRAY(struct check *) checks;
        uint32_t n_checking;
};

/* All nodes of this process. */
struct fleet {
        const struct agent_options *opt;
        struct event_base *base;
        struct clock clock;
        struct rng rng;
        struct tls *tls;
        struct agent **agents;
        uint32_t n_agents, n_ready, n_channels;
        struct event *sigterm, *sigint, *sighup, *stop_deadline;
        struct event *files; /* looks at the certificate and its files */
        /* agent_join.c; NULL: the certificate is somebody else's to renew */
        struct renewal *renewal;
        int64_t due_told_at_ms; /* when it was last said that the certificate ends soon */
        bool joined;            /* the certificate is ours to renew */
        struct arena memory;
        bool stopping, ready_told;
};

static inline int64_t agent_now(struct agent *a)
{
        int64_t now = clock_now_ms(&a->fleet->clock);
        if (a->engine)
                engine_set_steady(a->engine, now, clock_steady_ms());
        return now;
}

/* agent_disk.c */
int agent_disk_lock(const char *data_dir, int *ret_fd, struct err *err);
/* The agent's own record; -ERR_NOT_FOUND when there is none. */
int agent_disk_read(const char *data_dir, struct str *ret, struct err *err);
int agent_disk_load_units(struct agent *a, struct err *err);
/* The lease, for whoever watches over units: see runtimes/lease_file.h. */
void agent_disk_write_lease(struct agent *a, const struct engine_order *o);
void agent_disk_load_lease(struct agent *a);
/* Makes the records of orders[0..n) durable (PERSIST_*, FORGET). failed[i] is set for those that
 * could not be written. */
void agent_disk_write(const char *data_dir, const struct engine_order *orders, size_t n,
                      bool *failed, struct err *err);

/* agent_node.c */
/* cpu, memory, disk */
void agent_detect(struct engine_options *eo, const struct agent_options *opt, bool mock);
/* How much is in use of what a node offers: the machine's use, if it offers the whole machine; of a
 * part of it what the node's own units use, since the rest is others'. known: false until there is
 * something to tell. */
void agent_usage(struct agent *a, struct runtime_usage *ret);
void agent_usage_of(const struct node_room *offers, struct runtime_usage *usage);
void agent_make_ulid(struct agent *a, char ret[ULID_LEN + 1]);
/* The id given, or the one on record, or a new one (then it is written at once). */
int agent_settle_id(struct agent *a, const char *wanted, const struct str *record, struct err *err);

/* What the runtime has to offer, where that is not the machine: nothing happens for the others. A
 * change is told by a new stream. */
void agent_look_at_capacity(struct agent *a);

char *agent_new_node_id(struct rng *rng); /* the host's name and a few letters */

/* agent_join.c */
/* By opt->join: a certificate for this node, in its data directory. Waits for the server as long as
 * it takes. */
int agent_join(struct agent_options *opt, const char *node_id, struct err *err);
/* A node that joined uses what it was given. False: it has nothing of that kind, or was told to use
 * something else. */
bool agent_use_joined(struct agent_options *opt, struct arena *arena);
void agent_renewal_start(struct fleet *f);
void agent_renewal_stop(struct fleet *f);

/* agent_streams.c */
void agent_stream_message(struct agent *a, const Pb__ServerMessage *m);
void agent_streams_close(struct agent *a);
void agent_streams_resume(struct agent *a); /* the stream has room again */

/* agent_health.c: follows what runs, and checks what has a health check */
void agent_health_event(struct agent *a, const struct runtime_event *ev);
void agent_health_close(struct agent *a);

/* agent.c */
/* of the certificate: new ones are used from now on */
void agent_look_at_files(struct fleet *f);
void agent_wake(struct agent *a);              /* the engine has something to be carried out */
void agent_is_welcome(struct agent *a);        /* the server has taken this node */
int64_t agent_redial_wait_ms(struct agent *a); /* jittered, longer with every failure in a row */
bool agent_send(struct agent *a,
                /* stream data: false when the stream is backed up (it was taken all the same) */
                const Pb__AgentMessage *m);

#endif
