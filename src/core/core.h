/* core/core.h: the door into the state.
 *
 * core_step() takes one input, decides, and changes the state; it is the only way in. It is
 * deterministic and makes no system call: the time and the random bits are in the input. What came
 * of it is collected until core_cut() hands it over as one batch: events and records to commit, and
 * the replies and effects that may leave only after that commit.
 *
 *      for (;;) { core_step(core, input)...; batch = core_cut(core); store_commit(batch);
 *      send(batch->replies, batch->effects); core_batch_free(batch); }
 *
 * The state runs ahead of the commits; nothing that leaves the process does, because everything
 * that leaves is in a batch, and batches are committed and released in order. Reads are inputs as
 * well, for the same reason.
 *
 * Not thread-safe: one thread (the ring) owns it.
 */
#ifndef BERTH_CORE_CORE_H
#define BERTH_CORE_CORE_H

#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/commit.h"
#include "base/err.h"
#include "base/macros.h"
#include "base/str.h"
#include "config.pb-c.h"
#include "model/warrant.h"

struct core;

/* What becomes of units that a node runs and the records do not know. */
enum strangers {
        STRANGERS_KEEP,   /* told of, left alone, offered: berth adopt */
        STRANGERS_ADOPT,  /* become records by themselves */
        STRANGERS_REMOVE, /* removed if this store surely knew and forgot them; kept otherwise */
};

struct core_options {
        int64_t heartbeat_ms;    /* 10,000: agents are told to come this often */
        int32_t silence_beats;   /* 3: missing this many makes a node NotReady */
        int64_t evict_grace_ms;  /* 60,000: NotReady this long moves its units elsewhere */
        int64_t launch_grace_ms; /* 15,000: how long a launched unit may be missing or pending */
        /* 5,000: the periodic pass; it finds nothing when nothing was missed */
        int64_t pass_ms;
        /* 600,000: a heartbeat older than this is stale for placement */
        int64_t fresh_ms;
        int64_t healthy_ms; /* 300,000: running this long forgets earlier failures */
        /* 55: more silent nodes than this within a grace stop eviction */
        int32_t brake_percent;
        /* 20: units of lost nodes that move, where a part of a zone is silent; 0: no limit */
        int32_t evict_per_second;
        /* 60,000: a node's whole list of units is asked for this often */
        int64_t list_ms;
        uint32_t drain_at_once; /* 16: copies of a drained node that are stopped at a time */
        /* 2,048: a batch is cut between decisions before it grows beyond this */
        size_t max_batch_ops;
        /* 8 MiB: and when its events, definitions and long texts have more than this */
        size_t max_batch_bytes;
        uint32_t max_nodes;     /* 100,000 */
        uint32_t max_workloads; /* 2,000,000 */
        int32_t strategy;       /* Pb__Strategy__E of workloads that name none; spread */
        /* 0: how long a leader that says nothing is believed; 0 where nobody else can lead */
        int64_t lead_ms;
        /* 0: heartbeat_ms * silence_beats. Of agents, for exclusive units: see fence.c */
        int64_t lease_ms;
        /* 10,000: in which an agent whose lease has run out stops what is exclusive */
        int64_t lease_grace_ms;
        int32_t drift_percent; /* 1: by which clocks may differ in speed */
        /* 60: at most so many units make room for higher priorities; 0: none ever does */
        int32_t preempt_per_minute;
        int64_t preempt_grace_ms; /* 300,000: one that had to move is left alone for this long */
        enum strangers strangers; /* STRANGERS_KEEP */
        /* also write /assignments, /retries, /reconciliation, /nodes/<id>/status */
        bool index_records;
        const char *version; /* shown to agents and in ClusterInfo */
        /* The cluster's key, as far as the core needs it (model/cluster_key.h). None: nothing that
         * it sends has a warrant, and nothing is adopted without an operator's word. */
        struct warrant_keys warrants;
        const char
            /* noted in /meta/cluster; NULL: there is no key. Whoever leads has made sure that it is
             * the cluster's */
            *key_fingerprint;
};
void core_options_default(struct core_options *opt);
/* what the file sets; the rest stays */
void core_options_from(const Pb__ServerConfig *file, struct core_options *opt);

struct core *core_create(const struct core_options *opt);
void core_destroy(struct core *core);
static inline void core_destroyp(struct core **core)
{
        if (*core)
                core_destroy(*core);
}

/* Loading: records as stored (any order), then, if the records are older than the head, the events
 * since; then core_start(). A bad record is reported and skipped (the first in err, return value is
 * how many were bad so far), it never stops the others (C35). */
int core_load_record(struct core *core, const char *key, const void *data, size_t len,
                     struct err *err);
/* The sequence that the loaded records are at (a checkpoint's), so that the events since can be
 * folded on top of them. */
void core_loaded(struct core *core, uint64_t seq);
int core_fold(struct core *core, const void *event, size_t len,
              /* < 0: does not follow, does not parse, or makes no sense; nothing changed */
              struct err *err);

/* ---- inputs ---- */

enum input_kind {
        /* once, after loading: now, head; creates the cluster if the store was empty. Verdicts on
         * silence start from here (C11). */
        INPUT_START,
        /* instead of INPUT_START, and nothing after it: now, head, epoch (the largest seen anywhere
         * else, or 0). The store was restored from a backup; what is to be committed says so */
        INPUT_RESTORED,
        /* the deadline that core_next_ms() named has come (or any time: harmless) */
        INPUT_TICK,

        /* msg: Pb__ServerConfig, checked (model/config.h): once after the start, so that rules run,
         * and with every reload */
        INPUT_CONFIG,
        INPUT_WEBHOOK_DONE, /* msg: Pb__WebhookResult */
        /* msg: Pb__TouchedRecord: somebody changed a record in the store (C1) */
        INPUT_TOUCHED,
        INPUT_ACCESS_NOTE, /* msg: Pb__AccessNote: an event for those who look after who got in */

        INPUT_APPLY,        /* msg: Pb__ApplyWorkloadRequest   reply: Pb__Workload */
        INPUT_APPLY_MANY,   /* msg: Pb__ApplyWorkloadsRequest  reply: Pb__ApplyWorkloadsResponse */
        INPUT_DELETE,       /* msg: Pb__WorkloadRef            reply: Pb__Workload */
        INPUT_DESIRED,      /* msg: Pb__SetDesiredRequest      reply: Pb__Workload */
        INPUT_RETRY,        /* msg: Pb__WorkloadRef            reply: Pb__Workload */
        INPUT_QUOTA_SET,    /* msg: Pb__SetQuotaRequest        reply: Pb__Quota */
        INPUT_QUOTA_REMOVE, /* msg: Pb__TenantRef             reply: Pb__Quota, as it was */
        /* msg: Pb__CreateTokenRequest with the secret's hash  reply: Pb__AccessToken */
        INPUT_TOKEN_CREATE,
        INPUT_TOKEN_REVOKE, /* msg: Pb__TokenRef               reply: Pb__AccessToken */
        /* msg: Pb__UseTokenRequest        reply: Pb__AccessToken; a join token, once */
        INPUT_TOKEN_USE,
        INPUT_NODE_WISH,   /* msg: Pb__SetNodeWishRequest     reply: Pb__Node */
        INPUT_NODE_TAINTS, /* msg: Pb__SetTaintsRequest       reply: Pb__Node */
        INPUT_NODE_FORGET, /* msg: Pb__NodeRef                reply: Pb__Node */
        /* msg: Pb__NodeRef                reply: Pb__Node. An operator says that it is dead */
        INPUT_NODE_FENCE,
        /* msg: Pb__NodeRef               reply: Pb__Node. An operator throws it out: see
         * admission.c */
        INPUT_NODE_EXPEL,
        INPUT_NODE_LABELS,   /* msg: Pb__SetNodeLabelsRequest  reply: Pb__Node */
        INPUT_NODE_CAPACITY, /* msg: Pb__SetNodeCapacityRequest reply: Pb__Node */
        /* msg: Pb__NodeRef                reply: Pb__Node. An operator says that its units move
         * now */
        INPUT_EVICT_NODE,
        /* msg: none                       reply: Pb__EvictResponse. The same of all lost nodes */
        INPUT_EVICT_LOST,
        /* msg: Pb__WorkloadRef            reply: Pb__Workload. An operator says that no earlier
         * copy runs */
        INPUT_RELEASE,
        /* msg: Pb__ExecNote               reply: as that of INPUT_LOCATE, when the event about it
         * is durable */
        INPUT_EXEC,
        /* msg: Pb__AdoptRequest           reply: Pb__AdoptResponse, perhaps some steps later */
        INPUT_ADOPT,

        INPUT_GET_WORKLOAD,   /* msg: Pb__WorkloadRef          reply: Pb__Workload */
        INPUT_LIST_WORKLOADS, /* msg: Pb__ListWorkloadsRequest reply: Pb__ListWorkloadsResponse */
        INPUT_GET_NODE,       /* msg: Pb__NodeRef              reply: Pb__Node */
        INPUT_LIST_NODES,     /* msg: Pb__ListNodesRequest     reply: Pb__ListNodesResponse */
        INPUT_GET_QUOTA,      /* msg: Pb__TenantRef            reply: Pb__Quota */
        INPUT_LIST_QUOTAS,    /* msg: Pb__ListQuotasRequest    reply: Pb__ListQuotasResponse */
        INPUT_LIST_ALERTS,    /* msg: Pb__ListAlertsRequest    reply: Pb__ListAlertsResponse */
        INPUT_LIST_TOKENS,    /* msg: Pb__ListTokensRequest    reply: Pb__ListTokensResponse */
        INPUT_EXPLAIN,        /* msg: Pb__WorkloadRef          reply: Pb__Explanation */
        /* msg: none                     reply: Pb__ClusterInfo (the core's part of it) */
        INPUT_CLUSTER,
        /* msg: none                     reply: empty; a plan made of this state may leave when this
         * has (see core_plan()) */
        INPUT_PLAN,
        /* msg: Pb__WorkloadRef          reply: none; reply.session is the agent stream of the
         * workload's node (logs, exec) */
        INPUT_LOCATE,

        /* msg: Pb__Hello, session         effects: EFFECT_WELCOME, then the plan */
        INPUT_HELLO,
        INPUT_HEARTBEAT, /* msg: Pb__Heartbeat, session     effects: EFFECT_BEAT */
        INPUT_UNITS,     /* msg: Pb__UnitReport, session */
        /* msg: Pb__UnitDefinitions, session: the answer to EFFECT_DESCRIBE. The core changes the
         * message */
        INPUT_DEFINITIONS,
        INPUT_GONE, /* session: the stream ended */
        /* Nodes that the server calls (Hello.push) have a session as well: one number per node,
         * given by whoever calls them, and kept while it does. Their Hello says nothing about units
         * (a registration has no list): EFFECT_LIST asks for it. They need no stream to be heard,
         * and being heard does not mean that they can be called. */
        /* session, text: calls fail, and why. The node is NotReady (by reconciler) from now on,
         * whatever its heartbeats say (C23) */
        INPUT_UNREACHABLE,
        /* session: a call got an answer. To be told after the first success, and after the first
         * one that follows a failure */
        INPUT_REACHABLE,
        _INPUT_MAX
};

struct input {
        enum input_kind kind;
        int64_t now_ms;
        /* by a clock that neither jumps nor is slewed, and goes on during suspends: for fence.c. 0:
         * now_ms will do */
        int64_t steady_ms;
        uint64_t random[2];
        uint32_t features;   /* that every server has which is there: see model/feature.h */
        const char *lacking; /* who has not, for people */
        uint64_t reply;      /* the caller's ticket; 0: nobody waits */
        uint64_t session;    /* agent streams: any number never used before by this process */
        const char *request_id, *actor;
        /* already validated by model/validate.h; the core copies what it keeps */
        const ProtobufCMessage *msg;
        uint64_t head;    /* INPUT_START, INPUT_RESTORED */
        uint64_t epoch;   /* INPUT_RESTORED */
        const char *text; /* INPUT_UNREACHABLE */
};

/* How many decisions an input asks for: what counts where work is limited. */
size_t input_items(const struct input *in);

static inline bool input_only_reads(enum input_kind kind)
{
        return kind >= INPUT_GET_WORKLOAD && kind <= INPUT_LOCATE;
}
static inline bool input_is_change(enum input_kind kind) /* that a user asks for */
{
        return kind >= INPUT_APPLY && kind < INPUT_GET_WORKLOAD;
}

/* It may be the first use of a feature of servers (model/feature.h): input.features says what they
 * all have. */
static inline bool input_uses_features(enum input_kind kind)
{
        return kind == INPUT_NODE_EXPEL || kind == INPUT_NODE_FORGET || kind == INPUT_NODE_LABELS ||
               kind == INPUT_NODE_CAPACITY || kind == INPUT_TOKEN_CREATE;
}

/* Never fails: what is wrong with the input becomes the reply. */
void core_step(struct core *core, const struct input *in);

/* When the next INPUT_TICK is due. A value <= now means there is more bulk work to do at once.
 * INT64_MAX: a full batch waits for core_cut(), and nothing more is done by itself until then; ask
 * again after the cut. */
int64_t core_next_ms(const struct core *core);

/* ---- what comes out ---- */

enum effect_kind {
        /* data: packed Pb__Welcome. If not accepted, end the stream after sending it. */
        EFFECT_WELCOME,
        EFFECT_PLAN_BEGIN, /* a whole plan starts */
        /* data: packed Pb__PlanUnit; between BEGIN and END part of the whole plan, else a change */
        EFFECT_PLAN_UNIT,
        EFFECT_PLAN_END,
        /* value: next_ms; clock_ms, lease_ms, stop_ms. Whoever sends it sets lease_ms to 0 unless
         * it still leads for certain */
        EFFECT_BEAT,
        EFFECT_LIST,     /* ask the agent for its complete list of units */
        EFFECT_DESCRIBE, /* data: packed Pb__DescribeUnits: what were these started from? */
        /* data: packed Pb__Outgoing: post it, and say how it went (INPUT_WEBHOOK_DONE), always */
        EFFECT_WEBHOOK,
        /* end this stream (data: reason, text); another took its place. value: EFFECT_CLOSE_FAULT
         * if an operator should hear of it */
        EFFECT_CLOSE,
};
#define EFFECT_CLOSE_FAULT 1
struct effect {
        enum effect_kind kind;
        uint64_t session;
        uint64_t seq; /* the plan's cursor */
        int64_t value;
        int64_t clock_ms, lease_ms, stop_ms; /* EFFECT_BEAT: see Pb__HeartbeatAck */
        void *data;                          /* in the batch's memory */
        size_t len;
};

struct reply {
        uint64_t ticket;
        uint64_t session;                       /* INPUT_LOCATE */
        const struct err *err;                  /* NULL: ok */
        bool created;                           /* apply made a new one */
        const ProtobufCMessageDescriptor *type; /* of data; NULL: no body */
        void *data;                             /* packed, in the batch's memory */
        size_t len;
};

struct core_batch {
        /* expected_head == new_head: nothing to commit, only to release in order */
        struct store_batch commit;
        struct reply *replies;
        size_t n_replies;
        struct effect *effects;
        size_t n_effects;
        uint64_t epoch; /* for plan cursors */
        struct arena *memory;
};

/* The next batch: everything since the last cut, or a part of it that was full (max_batch_ops,
 * max_batch_bytes, core_set_batch_ops()); call until it gives NULL. May be called between any two
 * steps. */
struct core_batch *core_cut(struct core *core);
void core_batch_free(struct core_batch *b);
/* How much has piled up since the last cut: cut when it nears what the store takes. */
size_t core_pending_ops(const struct core *core);
size_t core_waiting_ops(const struct core *core); /* decided and not cut, or cut and not fetched */
/* From now on a batch is cut when it has about so many operations, or when it has max_batch_ops. */
void core_set_batch_ops(struct core *core, size_t ops);
/* that are full and wait for core_cut(): do not step much further ahead of the store */
size_t core_ready_batches(const struct core *core);
uint64_t core_head(const struct core *core);
/* The cluster's key, if it was not in the options: before INPUT_START. */
void core_set_key(struct core *core, const struct warrant_keys *keys, const char *fingerprint);
/* Of the key that the cluster had when this was noted last; "": none was noted. Valid until the
 * next change. */
const char *core_key_fingerprint(const struct core *core);

/* ---- while the store is away ---- */

/* Makes `view`, into which the store's records were loaded and which was not started, show the
 * committed state at `head`, with what no record holds as the live core has it. From then on it
 * takes reads only, by core_read(), which decides nothing; its batches have nothing to commit. */
void core_view(struct core *view, const struct core *live, uint64_t head);
/* Reads of a view, or of a core that follows another server's: loaded, core_loaded(), and then
 * events are folded and reads answered in turn, with core_cut() after the reads. What no record
 * holds (who is connected, what a node uses) is not known there. INPUT_START makes it decide. */
void core_read(struct core *view, const struct input *in);

/* ---- looking inside ---- */

/* Everything durable and everything derived from it (records, ledgers, indexes, deadlines) as text,
 * one fact per line, in a fixed order: equal states give equal bytes. Liveness, sessions and other
 * things that a restart forgets are left out. */
void core_dump(const struct core *core, struct str *out);
/* Numbered invariants (docs/invariants.md) over the whole state; the first broken one in err. */
int core_check(const struct core *core, struct err *err);
/* The same, of what has changed since the last cut only. */
int core_check_changed(const struct core *core, struct err *err);
/* The newest time in what was loaded. The clock of a new process must not start before it, or
 * deadlines would lie as far in the future as the clock was set back. */
int64_t core_newest_ms(const struct core *core);
/* All records, as they would be stored now, ordered by key (fsck, checkpoints, replay tests). */
int core_records(const struct core *core,
                 int (*fn)(void *ctx, const struct store_record *record, struct err *err),
                 void *ctx, struct err *err);

/* What would happen (X1)? Answers with a packed Pb__PlanResponse. Uses the core up: only
 * core_destroy() may follow, so give it a copy (a forked child's). The state runs ahead of the
 * commits: the answer may leave when an INPUT_PLAN that was stepped on the original has been
 * answered. */
int core_plan(struct core *core, const Pb__PlanRequest *request, struct str *ret_packed,
              struct err *err);

/* Tokens (C32), for whoever checks callers. The version grows with every change, by a step, a load
 * or a fold; it says nothing across restarts. */
struct core_token {
        const char *name, *hash, *node_id;
        int32_t role; /* Pb__Role__E */
        int64_t expires_at, revoked_at, used_at;
};
uint64_t core_tokens_version(const struct core *core);
void core_each_token(const struct core *core, void (*fn)(void *ctx, const struct core_token *token),
                     void *ctx);
/* Those that were expelled, with the keys that may and may not come under that name. Changes count
 * in the same version. */
struct core_expelled {
        const char *node_id;
        char *const *revoked, *const *admitted; /* SHA-256 of public keys, hex */
        size_t n_revoked, n_admitted;
};
void core_each_expelled(const struct core *core,
                        void (*fn)(void *ctx, const struct core_expelled *one), void *ctx);
bool core_has_admin(const struct core *core, int64_t now_ms); /* a token of that role that works */

/* the last ones; a test compares them with the enums */
#define CORE_PHASES (PB__PHASE__E__Unknown + 1)
#define CORE_DESIRED (PB__DESIRED_STATE__E__Deleted + 1)

struct core_stats {
        uint64_t steps, events, placements, placement_failures, evictions, retries, nodes_lost,
            heartbeats, passes, launches, unit_reports;
        uint64_t failures;       /* of units: a crash, a start that failed, ... */
        uint64_t rate_limited;   /* writes refused by a tenant's rate */
        uint64_t notices_summed; /* told of in sums only: see notice.c */
        uint64_t reports_held;   /* of units and nodes that had changed too often: taken later */
        uint64_t policy_judged;  /* definitions on record that the policy was asked about */
        uint64_t preemptions;    /* units that made room for higher priorities */
        /* Apply, Recreate, ApplyStopped, Delete, Reschedule, AwaitFailover, Adopt, Other */
        uint64_t actions[8];
        uint32_t nodes, nodes_ready, nodes_by_status[5], workloads, by_phase[CORE_PHASES], pending,
            sessions, tombstones;
        uint32_t over_quota, quotas, alerts, outbox, by_desired[CORE_DESIRED], tokens;
        uint32_t exclusive_waiting; /* exclusive units that wait for an earlier holder's end */
        uint64_t alerts_raised, webhooks_delivered, webhooks_failed;
        bool braking, pacing;
};
void core_stats(const struct core *core, struct core_stats *ret);
/* The counters of it that only grow, at once and without looking at anything; valid as long as the
 * core. */
const struct core_stats *core_counts(const struct core *core);

#endif
