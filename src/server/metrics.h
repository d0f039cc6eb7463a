/* server/metrics.h: what the server counts, and how Prometheus reads it.
 *
 * Counters are relaxed atomics: any thread adds, the io thread renders. What the core counts
 * arrives as a snapshot (struct core_stats) that the ring publishes when it has nothing else to do,
 * so a scrape never waits for the ring and works while the store is away.
 */
#ifndef BERTH_SERVER_METRICS_H
#define BERTH_SERVER_METRICS_H

#include "base/str.h"
#include "core/core.h"
#include "model/event.h"
#include <stdatomic.h>

struct tls;
struct agent_certificates;

#define METRICS_BUCKETS 14
#define METRICS_OPS 96      /* rows of the ops table, and one for "unknown" */
#define METRICS_STATUSES 24 /* distinct HTTP statuses; the last one is for the rest */
#define METRICS_GRPC_CODES 17
#define METRICS_ACTIONS 8
#define METRICS_WRITES 6
#define METRICS_REFUSALS 16  /* at least _ACCESS_REFUSAL_MAX: metrics.c checks it */
#define METRICS_AGENT_RPCS 6 /* enum push_rpc */

typedef _Atomic uint64_t counter;

struct histogram {
        const double *bounds; /* METRICS_BUCKETS upper bounds in seconds, rising */
        counter buckets[METRICS_BUCKETS + 1];
        counter sum_ns;
};
void histogram_init(struct histogram *h, const double *bounds);
void histogram_add(struct histogram *h, int64_t ns);

extern const double METRICS_BOUNDS_IO[METRICS_BUCKETS];   /* 0.5 ms to 10 s: commits, requests */
extern const double METRICS_BOUNDS_STEP[METRICS_BUCKETS]; /* 1 us to 1 s: a turn of the ring */

struct metrics {
        counter commits, commit_failures, commit_events, commit_records, commit_bytes;
        counter bad_records, inputs_refused, inputs_expired, agent_streams_closed, events_sent,
            pruned_events, leadership_changes, follower_loads, records_touched;
        struct histogram commit, turn, request;
        counter http[METRICS_OPS][METRICS_STATUSES];
        counter grpc[METRICS_OPS][METRICS_GRPC_CODES];
        struct histogram grpc_duration[METRICS_OPS][METRICS_GRPC_CODES];
        /* one placement; a turn that decided or looked for something; one gRPC call */
        struct histogram placement, reconcile, rpc;
        counter access_refused[METRICS_REFUSALS]; /* by enum access_refusal */
        counter writes[METRICS_WRITES];
        /* of the log; 0: not known */
        counter first_event;
        /* + 1: events kept apart; 0: not known */
        counter kept[EVENT_CLASSES];
        /* calls to agents (metrics_agents.c) */
        struct histogram agent_rpc[METRICS_AGENT_RPCS][METRICS_GRPC_CODES];
};
void metrics_init(struct metrics *m);
static inline void count(counter *c)
{
        atomic_fetch_add_explicit(c, 1, memory_order_relaxed);
}
static inline void count_n(counter *c, uint64_t n)
{
        atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
static inline uint64_t counted(const counter *c)
{
        return atomic_load_explicit((counter *)c, memory_order_relaxed);
}
/* op: row of the ops table, or METRICS_OPS - 1 for what no row matches. */
void metrics_http(struct metrics *m, size_t op, int status);
void metrics_grpc(struct metrics *m, size_t op, int code, int64_t ns, bool is_stream);
/* A call to an agent has ended. rpc: enum push_rpc. */
void metrics_agent_rpc(struct metrics *m, size_t rpc, int code, int64_t ns);
void metrics_agents_init(struct metrics *m);
void metrics_agents_render(const struct metrics *m, struct str *out);

/* Values of this moment that belong to no counter. */
struct metrics_now {
        const struct core_stats *core;
        uint64_t head;
        bool degraded;
        size_t ring_queue, io_queue, reader_queue, calls, agents, subscribers, relays;
        const char *(*op_name)(size_t op);   /* "" ends the rows */
        const char *(*grpc_name)(size_t op); /* "/berth.v1.Control/GetNode", or NULL */
        const char *version;
        double start_time_seconds;
        struct tls *tls; /* NULL: in the clear */
        bool leads;
        uint64_t store_head; /* as far as a follower has heard */
        uint64_t forwarded;
        const struct agent_certificates *agent_certs;
};
/* metrics_persys.c */
extern const char *const METRICS_CODE_NAMES[METRICS_GRPC_CODES],
    *const METRICS_ACTION_NAMES[METRICS_ACTIONS];
void metrics_persys_init(struct metrics *m);
void metrics_persys_render(struct metrics *m, const struct metrics_now *now, struct str *out);
void metrics_writes(struct metrics *m, const struct store_batch *batch); /* that was committed */

/* The whole text, exposition format 0.0.4. */
void metrics_render(struct metrics *m, const struct metrics_now *now, struct str *out);

#endif
