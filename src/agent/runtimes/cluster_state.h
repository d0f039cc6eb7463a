/* agent/runtimes/cluster_state.h: the inside of the cluster runtime, shared by cluster.c (life,
 * capacity, following), cluster_unit.c (one unit's life) and cluster_stream.c (logs and exec). */
#ifndef BERTH_AGENT_CLUSTER_STATE_H
#define BERTH_AGENT_CLUSTER_STATE_H

#include "agent/runtimes/cluster.h"
#include "agent/runtimes/cluster_spec.h"
#include "base/array.h"
#include "base/map.h"
#include "base/mem.h"
#include "net/grpc.h"
#include <event2/event.h>

#define CLUSTER_CALLS_MAX 64    /* about units, at once */
#define CLUSTER_STREAMS_MAX 256 /* logs and exec */
#define CALL_MS 15000           /* the deadline of every call that is not a stream */
#define AGAIN_MS 500            /* a call without an answer is made again this much later, */
#define AGAIN_MAX_MS 10000      /* twice as long every time, up to this */
/* what is on its way is looked at this often, should the child's events not come */
#define LOOK_MS 3000
#define NODES_MS 5000 /* how often the child's nodes are added up */
/* less than before counts when it has been less for this long: the child may just have been
 * restarted */
#define SHRINK_MS 30000
#define LIST_MS 60000 /* how often everything is compared, whatever the events said */
/* a start that has no place in the child for this long is given back, */
#define PLACE_WAIT_MS 10000
#define MOVE_WAIT_MS 60000 /* and so is one that ran and lost its place */
/* after a creation without an answer, "not found" proves nothing for this long */
#define UNSURE_MS 5000
#define PAGE_LIMIT 200
#define REPLY_MAX_BYTES (64 * 1024 * 1024)
#define CONTROL "/berth.v1.Control/"

enum cphase {
        CPHASE_CREATE, /* the workload is to be created */
        CPHASE_CLEAR,  /* something has its name: an earlier copy is deleted, then CREATE */
        CPHASE_FOLLOW, /* it exists; up: STARTED was said */
        CPHASE_WHY,    /* it found no place: the child is asked why, then GONE */
        CPHASE_STOP,   /* it is to be stopped, then ENDED */
        CPHASE_GONE,   /* it is to be deleted; then outcome, and the unit is forgotten */
        CPHASE_ENDED,  /* nothing of it runs; it is still there for its logs */
};

enum casked { ASKED_NOTHING, ASKED_APPLY, ASKED_GET, ASKED_DELETE, ASKED_STOP, ASKED_WHY };

struct cunit {
        struct runtime *rt;
        uint32_t ix;
        char *id, *child_id;
        struct unit_token token;
        enum cphase phase;
        bool up, queued, again; /* again: something happened while a call was under way */
        /* nobody here asked for it: a creation that was given up has landed after all */
        bool stray;
        int64_t waits_since_ms;  /* without a place in the child; 0: it has one */
        int64_t unsure_until_ms; /* see UNSURE_MS */
        uint64_t version;        /* of the workload as last seen */
        uint64_t round;          /* of the last list that it was in */
        struct str request;      /* packed ApplyWorkloadRequest, until it was taken */
        /* the call under way */
        enum casked asked;
        struct grpc_call *call;
        struct str reply;
        /* trying again, or looking again */
        struct event *timer;
        int64_t again_ms;
        /* GONE: what is said in the end */
        enum runtime_event_kind outcome;
        Pb__Reason__E reason;
        char *message;
};

struct fstream;

struct runtime {
        struct event_base *base;
        char *node_id;
        int64_t place_wait_ms;
        void (*on_event)(void *ctx, const struct runtime_event *event);
        const char *(*cluster_id)(void *ctx);
        void *ctx;
        struct tls *tls;
        char *address, *server_name, *token;
        struct grpc_channel *channel;
        struct grpc_channel
            /* logs and exec have a connection of their own: however many there are, calls about
             * units find a place */
            *streams_channel;
        bool closing;

        ARRAY(struct cunit *) units; /* NULL: free */
        ARRAY(uint32_t) free_ix;
        struct map by_child_id;
        ARRAY(struct cunit *) line; /* that want to call; NULL: gone */
        size_t line_head;
        uint32_t n_calls;

        /* following: a whole list, then the events since, then the list again */
        struct grpc_call *follow; /* ListWorkloads, or WatchEvents */
        bool watching;
        uint64_t round, since;
        struct str follow_reply;
        char *cursor;
        struct event *follow_timer, *list_timer;
        int64_t follow_again_ms;

        struct grpc_call *nodes_call;
        struct str nodes_reply;
        char *nodes_cursor;
        struct event *nodes_timer;
        struct cluster_sum sum, adding;
        int64_t less_since_ms; /* 0: not less than what was said */

        ARRAY(struct fstream *) streams;
};

int64_t cluster_now_ms(void); /* monotonic */
void cluster_in_ms(struct event *timer, int64_t ms);
void cluster_emit(struct runtime *rt, const struct runtime_event *ev);
/* Sends a request on its way; the answer comes to the callbacks. */
struct grpc_call *cluster_call(struct runtime *rt, const char *method,
                               const ProtobufCMessage *request,
                               const struct grpc_callbacks *callbacks, void *ctx);
/* in on_close: the child's words */
const char *cluster_problem(struct grpc_call *call, enum grpc_status status);

/* cluster_unit.c */
struct cunit *cluster_unit(struct runtime *rt, const char *workload_id); /* NULL: unknown */
/* the same by its name in the child */
struct cunit *cluster_unit_of_child(struct runtime *rt, const char *child_id);
struct cunit *cluster_unit_new(struct runtime *rt, const char *workload_id, struct unit_token token,
                               enum cphase phase);
void cluster_unit_free(struct cunit *u);
void cluster_unit_due(struct cunit *u); /* look at it as soon as a call is free */
/* A workload of the child that may be of this node, and is no unit here: it is looked at, and
 * deleted if it is this agent's own. */
void cluster_stray(struct runtime *rt, const char *workload_id);
void cluster_start(struct runtime *rt, const struct runtime_start *start);
void cluster_stop(struct runtime *rt, const char *workload_id, struct unit_token token,
                  int64_t grace_ms);
void cluster_remove(struct runtime *rt, const char *workload_id);

/* cluster_stream.c */
int cluster_logs(struct runtime *rt, const char *workload_id, const struct log_options *opt,
                 const struct stream_sink *sink, struct stream **ret, struct err *err);
int cluster_exec(struct runtime *rt, const char *workload_id, const struct exec_options *opt,
                 const struct stream_sink *sink, struct stream **ret, struct err *err);
void cluster_streams_close(struct runtime *rt);

#endif
