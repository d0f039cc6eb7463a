/* agent/runtimes/container_state.h: the inside of the container runtime, shared by container.c
 * (ops, polls), container_start.c, container_end.c, container_find.c, container_stream.c and
 * container_service.c. */
#ifndef BERTH_AGENT_CONTAINER_STATE_H
#define BERTH_AGENT_CONTAINER_STATE_H

#include "agent/runtime.h"
#include "agent/runtimes/container.h"
#include "agent/runtimes/container_api.h"
#include "agent/runtimes/container_spec.h"
#include "base/arena.h"
#include "base/array.h"
#include "base/map.h"
#include "base/str.h"
#include "container.pb-c.h"
#include <event2/event.h>
#include <sys/types.h>

#define CALL_MS 60000     /* a plain call to the engine */
#define POLL_MS 10000     /* how often what runs is compared with the engine's list */
#define POLL_FAST_MS 2000 /* while a part's process cannot be watched from here */
/* an engine that answers no start for this long is no runtime any more (C25) */
#define AWAY_MS 30000
#define AWAY_AGO_MS 300000 /* a start that found none this long ago says nothing about today */
/* what must be proved and could not be is tried again this much later, */
#define AGAIN_MS 1000
#define AGAIN_MAX_MS 30000 /* twice as long every time, up to this */

struct cunit;

enum cunit_kind { CUNIT_PLAIN, CUNIT_COMPOSE, CUNIT_POD };
enum cunit_phase {
        CUNIT_STARTING,
        CUNIT_UP,
        CUNIT_STOPPING, /* every part is being stopped; then outcome */
        CUNIT_CLEARING, /* everything of it is being removed; then outcome */
};

/* One container of a unit. */
struct cpart {
        struct cunit *unit;
        char *name; /* as the engine knows it: name or id */
        char *part; /* service; "" for the only one */
        char *id;   /* "" until it was looked at */
        bool running, ended;
        bool oom;
        int64_t exit_code, started_at, finished_at, pid;
        char address[64]; /* on the engine's network; "": none */
        int pidfd;
        struct event *pidfd_event, *again;
        unsigned looks;
        struct api_call *call;
};

/* What a start needs while it lasts. */
struct cstart {
        Pb__Workload *workload;
        const char *cluster_id;
        size_t n_pod; /* containers of the pod */
        struct arena memory;
        struct cdef {
                const char *part;
                const Pb__Spec *spec;
        } * defs;
        size_t n_defs, at;
        struct str network; /* of the unit; "": none */
        /* pull */
        struct str line;
        char problem[512];
        bool pulling;
        int64_t told_ms;
        struct layer {
                char id[16];
                int64_t current, total;
        } layers[64];
        size_t n_layers;
};

struct cunit {
        struct runtime *rt;
        uint32_t ix;
        char *id, *revision;
        /* in whose name its containers, pod and network were made; "": made before clusters were in
         * names */
        char *cluster;
        struct unit_token token;
        enum cunit_kind kind;
        enum cunit_phase phase;
        bool stop_asked, presumed; /* presumed: not seen yet, the engine is away */
        int64_t grace_ms;
        ARRAY(struct cpart *) parts;
        struct cstart *start;
        struct api_call *call;
        struct event *timer;
        void (*again)(struct cunit *u); /* what the timer does */
        int64_t again_ms;
        /* how it ends, once nothing of it runs */
        enum runtime_event_kind outcome;
        Pb__Reason__E reason;
        char *message;
        struct cpart *cause; /* the part whose end ended it */
        ARRAY(char *) trash; /* containers to remove */
        void (*cleared)(struct cunit *u);
        bool pod_done; /* the pod itself was stopped, or removed */
};

struct cstream;
#define CSTREAMS_MAX 1024

struct runtime {
        struct event_base *base;
        char *data_dir, *units_dir, *node_id;
        void (*on_event)(void *ctx, const struct runtime_event *event);
        const char *(*cluster_id)(void *ctx);
        void *ctx;
        bool is_podman;
        bool usable;       /* the probe worked */
        char why_not[512]; /* else */
        char *version;
        char *socket;
        struct api *api;
        /* podman's service, if it is ours */
        char *root, *runroot, *conf;
        pid_t service;
        int64_t service_tried_ms;
        /* the first and the last start that found no engine; 0: it answers */
        int64_t away_ms, away_since_ms, away_seen_ms;
        ARRAY(struct cunit *) units; /* NULL: free */
        struct map by_id;
        ARRAY(struct cstream *) streams;
        struct event *poll;
        struct api_call *poll_call;
        Pb__WorkloadType__E types[3];
};

/* container.c */
struct cunit *container_find_unit(const struct runtime *rt, const char *id);
struct cunit *cunit_new(struct runtime *rt, const char *id, struct unit_token token,
                        const char *revision, enum cunit_kind kind);
void cunit_free(struct cunit *u);
struct cpart *cpart_new(struct cunit *u, const char *name, const char *part);
void cunit_clear_parts(struct cunit *u);
void cunit_again(struct cunit *u, void (*step)(struct cunit *u)); /* later, and later every time */
void container_emit(struct runtime *rt, const struct runtime_event *ev);
/* {"label":["berth.io/node=...","berth.io/workload=..."]}, encoded, as
 * "/containers/json?all=1&filters=..." */
void container_list_path(const struct runtime *rt, const char *workload_id, struct str *out);
/* The containers of this agent (container_is_ours()) in the engine's answer; NULL: not understood.
 * The engine cannot be asked for them alone: an agent that was adopted has containers of two
 * clusters. */
const Ct__Listing *container_read_listing(const struct runtime *rt, const char *body, size_t len,
                                          struct arena *memory);
/* that the agent belongs to; "": not known */
const char *container_cluster(const struct runtime *rt);
/* container_name() of this unit */
void cunit_name(struct str *out, const struct cunit *u, const char *part);
const char *container_label(const Ct__Listed *c, const char *key);
/* "/containers/<name><rest>" */
void container_path(struct str *out, const char *name, const char *rest);

/* container_start.c */
void container_start(struct runtime *rt, const struct runtime_start *start);
void start_free(struct cstart *s);
void start_stop(struct cunit *u); /* it was asked to stop while it starts */

/* container_end.c */
void part_look(struct cpart *p); /* asks the engine how it is; unit_judge() follows */
/* What the engine said of it. False: not understood. */
bool part_take(struct cpart *p, const char *body, size_t len);
/* the engine knows no such container */
void part_gone(struct cpart *p);
void part_watch(struct cpart *p); /* its process, while it runs */
void unit_judge(struct cunit *u); /* after any change of its parts */
/* stops every part, then the outcome */
void unit_halt(struct cunit *u);
/* removes every container of it; tried until it worked */
void unit_clear(struct cunit *u, void (*then)(struct cunit *u));
void unit_clear_and_end(struct cunit *u, enum runtime_event_kind outcome, Pb__Reason__E reason,
                        const char *message);
void container_stop(struct runtime *rt, const char *workload_id, struct unit_token token,
                    int64_t grace_ms);
void container_remove(struct runtime *rt, const char *workload_id);

/* container_find.c */
int container_find_all(struct runtime *rt, struct err *err);
/* The mark that a container of this unit may exist: written before the first one is made, removed
 * with the unit. */
int mark_write(const struct cunit *u, size_t n_parts, struct err *err);
/* In whose name the last copy of a unit was made: by its mark; without one the cluster that the
 * agent belongs to. */
void mark_cluster(const struct runtime *rt, const char *workload_id, char ret[257]);
/* Another agent may have the same node id on the same engine, in another cluster. Ours is what
 * carries our cluster's label, or what our mark of that unit names: the agent was adopted since, or
 * the container is of a berth that gave no such label. */
bool container_is_ours(const struct runtime *rt, const Ct__Listed *c);
/* A pod's containers are named <pod>-<name>. */
const char *pod_part_name(const struct runtime *rt, const char *workload_id, const char *name);
/* those of its token; false: there are none */
bool unit_take_parts(struct cunit *u, const Ct__Listing *list);

/* container_service.c */
int service_open(struct runtime *rt, const struct container_options *opt, struct err *err);
/* starts podman's service again if it was ours and has ended */
void service_watch(struct runtime *rt);
void service_close(struct runtime *rt);

/* container_stream.c */
int container_logs(struct runtime *rt, const char *workload_id, const struct log_options *opt,
                   const struct stream_sink *sink, struct stream **ret, struct err *err);
int container_exec(struct runtime *rt, const char *workload_id, const struct exec_options *opt,
                   const struct stream_sink *sink, struct stream **ret, struct err *err);
void container_streams_close(struct runtime *rt);

#endif
