/* core/state.h: the state, as the core's files see it. Nobody outside src/core includes this.
 *
 * Definitions:
 *   workload    what a user asked to run under one id.
 *   definition  the user's part of a workload (type, spec, resources, labels...), packed once and
 *               shared by all workloads that carry the same one.
 *   class       the part of a definition that placement looks at. Workloads of one class fit on the
 *               same nodes; they wait in one queue.
 *   unit        a workload's copy on its node; it holds capacity there unless it has finished for
 *               good.
 *   tombstone   a copy that must be gone from a node and is not yet proved gone; it holds capacity
 *               as well.
 *   live        what a restart forgets: sessions, heartbeats, what was asked for and not yet
 *               answered. Never in records, never in core_dump().
 *
 * The numbered invariants (W.., N.., P.., L..) are in docs/invariants.md; check.c asserts them.
 */
#ifndef BERTH_CORE_STATE_H
#define BERTH_CORE_STATE_H

#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/arena.h"
#include "base/array.h"
#include "base/heap.h"
#include "base/map.h"
#include "base/order.h"
#include "base/str.h"
#include "core/brake.h"
#include "core/constraints.h"
#include "core/core.h"
#include "core/hold.h"
#include "core/ledger.h"
#include "core/place_tree.h"
#include "core/record.h"
#include "core/unit.h"
#include "events.pb-c.h"
#include "model/condition.h"
#include "model/selector.h"
#include "records.pb-c.h"

#define NONE UINT32_MAX
#define TYPES_MAX 8 /* workload types are numbered from 1 up to below this */

struct node_ix {
        uint32_t v;
};
#define NODE_NONE ((struct node_ix){ NONE })
#define UNIT_NONE ((struct unit_ix){ NONE })
static inline bool node_ok(struct node_ix n)
{
        return n.v != NONE;
}
static inline bool unit_ok(struct unit_ix w)
{
        return w.v != NONE;
}

/* What a store holds may be damaged: a time that is none would overflow the first deadline made
 * from it, a reason would not fit into its byte. */
#define TIME_MAX_MS INT64_C(253402300799999) /* the end of the year 9999 */
static inline bool time_is_sane(int64_t ms)
{
        return ms >= 0 && ms <= TIME_MAX_MS;
}
static inline int64_t sane_time(int64_t ms)
{
        return time_is_sane(ms) ? ms : 0;
} /* 0: not known */
static inline bool reason_is_sane(Pb__Reason__E reason)
{
        return (int)reason >= 0 && (int)reason <= UINT8_MAX;
}

/* ---- definitions ---- */

struct label {
        char *key, *value;
};

struct class
{
        struct amounts need;
        uint32_t type_bit;      /* 1 << Pb__WorkloadType__E */
        struct label *selector; /* sorted by key */
        uint32_t n_selector;
        uint64_t selector_bits; /* pairs that have a bit in the nodes' label masks */
        bool selector_exact;    /* the bits say it all */
        uint8_t strategy;       /* 0: the cluster's */
        int32_t priority;
        uint8_t exclusive;        /* Pb__Exclusive__E */
        uint32_t needs;           /* features of the agent that runs it */
        struct constraints *more; /* NULL: none, as most */
        uint32_t refs;            /* definitions that use it */
        struct str key;           /* what the map compares */
        /* pending workloads, first come first served */
        uint32_t first, last, n_waiting;
        uint32_t n_holds; /* those for whom room is kept somewhere */
        /* the last in which it had its look at whether others can make room, + 1 */
        uint64_t preempt_sweep;
        uint8_t reason; /* why its last placement failed */
        /* value of capacity_change when the whole queue was last found not to fit */
        uint64_t tried_at;
        /* the same, when a reader last asked why it waits; and what it was told */
        uint64_t shown_at;
        uint8_t shown_reason;
        /* the same, when one that stands for the whole class was found not to fit */
        uint64_t none_at;
        /* a counter that it looks at has changed since its queue was last looked at */
        bool woken;
        uint32_t next_waiting, prev_waiting; /* list of classes with somebody waiting */
};

#define LABEL_BITS 64
struct label_bit {
        char *key, *value;
        uint32_t refs; /* 0: its bit is free for another pair */
};

struct pair_place {
        uint32_t pair, at; /* where in the pair's list of definitions */
};

struct definition {
        uint32_t refs;
        uint32_t class;
        uint32_t tenant;
        uint8_t type, restart, exclusive;
        uint8_t asks, beyond;   /* policy.c; beyond is live */
        struct amounts charged; /* to its tenant, for each unit that carries it */
        bool confine;
        int32_t ttl_seconds, stop_grace_seconds;
        uint32_t len;
        unsigned char *data;      /* packed Pb__Workload with the user's fields only */
        struct unit_ix users;     /* the workloads that carry it */
        uint32_t beyond_at;       /* its place in beyond.list, while it is there */
        struct pair_place *pairs; /* its labels; see constraints.h */
        uint32_t n_pairs;
        ARRAY(uint32_t) matches; /* that it has */
};

/* ---- workloads ---- */

enum action {
        ACTION_NONE,
        ACTION_CREATED,
        ACTION_UPDATED,
        ACTION_ASSIGN,
        ACTION_APPLY,
        ACTION_RECREATE,
        ACTION_APPLY_STOPPED,
        ACTION_DELETE,
        ACTION_RESCHEDULE,
        ACTION_AWAIT_FAILOVER,
        ACTION_RETRY,
        ACTION_BACKOFF_WAIT,
        ACTION_FAIL,
        ACTION_COMPLETE,
        ACTION_ADOPT,
        _ACTION_MAX
};
extern const char *const action_names[_ACTION_MAX];
enum action action_parse(const char *name);

/* What is stored of a view, as far as it is known: one that says the same already is not written
 * again. */
enum { VIEW_UNKNOWN, VIEW_NONE, VIEW_THERE };

struct unit {
        char *id;     /* NULL: free slot */
        uint8_t kind; /* enum unit_kind_id */
        char *revision, *observed, *failure, *last_error, *previous_node;
        /* assigned to a node that has since been forgotten: its name, for people */
        char *lost_node;
        uint32_t definition;
        struct node_ix node;
        /* in its node's ledger, while `holds`; not what placement looked for, and not what its
         * tenant is charged */
        struct amounts held;
        struct unit_ix node_next, node_prev; /* the node's units */
        struct unit_ix wait_next, wait_prev; /* the class's queue */
        struct unit_ix same_next, same_prev; /* the definition's workloads */
        /* live: room that is kept for it, see hold.h; NONE: none */
        uint32_t hold;
        int64_t preempted_at;                 /* when it last made room for a higher priority */
        uint64_t token_epoch, token_seq, seq; /* seq: of the last event that changed it */
        /* of the last event that only tells of it: see notice.c */
        uint64_t told;
        /* what its definition goes back to; 0: to before any restore. See restore.c */
        uint64_t origin_epoch, origin_seq;
        int64_t created_at, updated_at, last_updated, last_action_at, last_launch_at, started_at,
            finished_at, next_retry_at, placed_at;
        int64_t score;
        int32_t attempts, max_attempts, base_seconds, cap_seconds, restarts, candidates, exit_code,
            signal;
        uint8_t desired, phase, actual, reason, placed_reason, action;
        bool has_exit : 1, has_signal : 1;
        bool holds : 1; /* counted in its node's ledger */
        /* see Pb__Placement: an older copy there is stopped by no lease */
        bool unleased : 1;
        /* derived: how its tenant's usage counts it, see quota.c */
        bool counted : 1, counted_runs : 1, counted_placed : 1;
        uint8_t counted_desired; /* derived: in core.by_desired */
        /* live */
        bool dirty : 1;   /* queued for unit_look() */
        bool unsaved;     /* its record is to be written with the next batch */
        bool waiting : 1; /* in its class's queue, or, with over_quota, in its tenant's */
        bool over_quota : 1;
        bool rules_pending : 1; /* rules are to look at it */
        /* its node runs a newer copy than this record knows: its definition is asked for. See
         * restore.c */
        bool behind : 1;
        /* and has no warrant for that one: it waits for an operator's word. See claims.c */
        bool claimed : 1;
        bool word : 1;     /* which was given */
        bool reported : 1; /* the agent has said anything about the current token */
        bool up : 1;       /* it runs, and an event says so when it has lasted (retry.h) */
        /* live: its agent does not know it, and that was left for later: under this token it
         * may have run, and is not sent again (W3) */
        bool unheard : 1;
        bool late_told : 1; /* an event has told that it runs although it was given up */
        uint16_t tombs;     /* tombstones of this id, on whatever nodes (derived) */
        uint16_t shadows;   /* strangers of this name, on whatever nodes */
        /* how much its reports have changed it lately: see report_is_held() in unit.c */
        uint32_t changes_until_s;
        uint8_t resends; /* times the current launch was sent again */
        uint8_t health;  /* live: 1 healthy, 2 unhealthy, 0: not checked */
        char *progress;  /* live: what the agent is doing with it, while it starts */
        uint64_t seen;   /* number of the complete report that mentioned it last */
        /* what its node's agent last said of it, hashed; 0: nothing, or that it is gone. See
         * drift.c */
        uint64_t said;
        /* what /assignments/<id> says, hashed; VIEW_NONE: it is not there; VIEW_UNKNOWN. See
         * record.c */
        uint64_t shown;
        uint8_t shown_retries; /* /retries/<id>: VIEW_NONE, VIEW_THERE or VIEW_UNKNOWN */
};

/* ---- tenants ---- */

struct usage {
        /* workloads, cpu (thousandths), memory (MiB), disk (GiB): below 2^64 for ten million
         * workloads of the largest size */
        uint64_t of[4];
};
struct quota {
        struct usage limit; /* 0: none */
        int32_t writes_per_minute;
};
struct tenant {
        char *name;    /* NULL: free slot */
        uint32_t refs; /* definitions that name it */
        bool has_quota;
        struct quota quota;
        uint64_t seq;               /* of the event that set it */
        struct usage asked, placed; /* derived */
        uint32_t first, last;       /* live from here on: what waits for room */
        uint32_t n_waiting;
        bool unsaved, has_room;
};

/* How much a tenant may write now. Apart from its tenant, which is forgotten with its last
 * workload: the rate is not. */
struct write_bucket {
        char *name;       /* NULL: free */
        int64_t left, at; /* 60,000ths of a write, and when that was so */
};

struct tombstone {
        char *workload_id; /* NULL: free slot */
        struct node_ix node;
        uint64_t token_epoch, token_seq;
        struct amounts held;
        uint8_t reason;
        bool leased, released; /* see Pb__Tombstone */
        int64_t created_at;
        uint32_t *ports, n_ports; /* host ports that it still holds */
        uint32_t next, prev;      /* the node's tombstones */
        /* those of the same workload on other nodes; the first is in the map */
        uint32_t same_next;
        bool unsaved;
        uint64_t seen; /* live: number of the complete report that mentioned it last */
        uint64_t said; /* live: as in struct unit */
};

/* ---- rules ---- */

struct rule {
        char *name, *when, *webhook, *message; /* in config_memory */
        struct condition condition;
        struct selector selector;
        int64_t cooldown_ms;
};
struct alert {
        char *key; /* "<rule>/<node|workload>/<id>"; NULL: free slot */
        char *rule, *id, *message;
        bool is_node, raised;
        int64_t raised_at;
        uint64_t seq;
        /* live: since when it is the other way round than raised says; 0: it is not */
        int64_t since;
        bool unsaved;
};
struct outgoing {
        char *id; /* NULL: free slot */
        char *rule, *webhook, *url, *body, *event;
        int64_t created_at, next_at;
        int32_t attempts;
        bool unsaved, in_flight; /* live */
};

/* ---- nodes ---- */

/* What became of the question where a claim comes from (claims.c). */
enum verdict {
        VERDICT_UNKNOWN, /* it was not asked yet */
        VERDICT_NONE,    /* its agent keeps no warrant for it */
        /* what it showed is no warrant of this cluster for this unit, node, token and definition */
        VERDICT_FALSE,
        VERDICT_WARRANTED, /* this cluster ordered it there */
};

/* A unit in a node's list that the records do not place there. Live. */
struct stranger {
        char *id;
        uint64_t said, seen, token_epoch, token_seq;
        uint8_t state;
        uint8_t verdict; /* of this token */
        bool told;       /* there was an event about it */
        bool leaves;     /* it was told to be removed */
        bool wanted;     /* its definition was asked for */
        bool take;       /* and it is adopted if it has a warrant, ... */
        bool word;       /* ... or in any case: an operator named it */
        bool refused;    /* it could not be adopted */
        /* it is a newer copy of a workload than the record knows: taken over by itself. See
         * restore.c */
        bool ahead;
};

/* Claims that one answer brought and that nothing follows from. */
struct claims {
        uint32_t n, n_false;
        struct str names;
};

/* nothing comes without a toleration; it comes when nothing else is left */
enum { TAINTED_NOT, TAINTED_HARD, TAINTED_SOFT };

struct held_port {
        uint32_t port, holders;
};

struct node {
        char *id; /* NULL: free slot */
        char *endpoint, *ip, *version, *status_reason, *status_by;
        struct label *labels; /* sorted by key */
        uint32_t n_labels;
        uint32_t type_bits;      /* what it runs: registered, and not found unsupported */
        uint32_t exclusive_bits; /* types of which it can hold exclusive units */
        int64_t fenced_at;       /* an operator said that it is dead; 0: no */
        /* an operator threw it out; 0: no, or it has come back: see admission.c */
        int64_t expelled_at;
        int64_t evict_ordered_at;  /* an operator said that its units move now; 0: no */
        uint32_t features;         /* of its agent: see model/feature.h */
        uint32_t unsupported_bits; /* types whose runtime turned out not to work there (C25) */
        char *instance;            /* the agent process that said so */
        char **drivers;            /* storage drivers */
        uint32_t n_drivers;
        bool push;          /* the server calls its agent */
        char *adopted_from; /* cluster id */
        /* an operator's word: all that it has is adopted. 0: none, or it has been used. See
         * adopt.c */
        int64_t adopt_until;
        uint8_t status; /* Ready or NotReady: liveness as of the last transition */
        uint8_t wish;
        int64_t drain_started_at, drain_deadline_at, drain_finished_at; /* 0: none */
        /* units and old copies when it began */
        uint32_t drain_units;
        uint8_t tainted;
        struct taint *taints;
        uint32_t n_taints;
        int64_t status_at, registered_at, stored_heartbeat;
        uint64_t seq;
        struct ledger ledger;
        struct amounts kept;           /* live: by holds */
        ARRAY(uint32_t) kept_ports;    /* the same */
        uint64_t label_bits;           /* derived: of the pairs in core.bits */
        ARRAY(struct held_port) ports; /* derived: host ports of units and tombstones, sorted */
        /* derived: what class_could_use() looks at, to notice when it changes */
        uint32_t usable;
        struct unit_ix units;
        uint32_t n_units, n_holding; /* n_holding: units that hold capacity */
        /* n_lost: tombstones of copies that moved away while it was silent */
        uint32_t tombstones, n_tombstones, n_lost;
        /* derived: units that are Running, Scheduled, Updating: see phase_shown() */
        uint32_t on_node[3];
        /* derived: see brake.h */
        bool zoned, counted; /* its zone is set; it counts as Ready */
        uint32_t zone;       /* in core.brake */
        /* the wave in which it counts as silent; that in which it came, or came back */
        uint64_t silent_in, came_in;
        /* NotReady because calls to its agent fail, not because it is silent; derived */
        bool unreachable;
        /* live */
        uint64_t session;     /* 0: no stream */
        int64_t heard_at;     /* 0: not since the server started */
        int64_t heard_steady; /* by the steady clock: its agent's lease counts from before this */
        uint64_t sent_seq;    /* cursor of the last order sent on this stream */
        int64_t list_at;      /* ask for the whole list with the first heartbeat after this */
        int64_t cpu_used, memory_used_mb, disk_used_gb;
        bool usage_known;    /* a heartbeat has told it */
        char *said_instance; /* the agent process that said hello last */
        char *said_key;      /* of the certificate that it came with; NULL: none */
        int64_t twin_at;     /* another one, with the same node id, was refused */
        int64_t late_at;     /* something that its agent said was last left for later */
        /* how often it has described itself in another way lately: see is_other_shape() */
        int64_t shapes_until;
        bool shape_held; /* its latest description was not taken yet: it is asked for again */
        bool calls_fail; /* its agent cannot be called */
        /* what /nodes/<id>/status says, plus VIEW_THERE; VIEW_UNKNOWN. See record.c */
        uint8_t shown_status;
        bool unsaved, evicting, rules_pending;
        bool drain_queued;  /* in core.drains */
        bool drain_expired; /* its deadline has passed: what is left is stopped */
        /* its units would be moved, were it not that too many nodes fell silent with it (C11) */
        bool held;
        /* silent beyond the grace, and not held: its units are moved */
        bool given_up;
        /* given up: they are moved a few at a time. See evict.c */
        bool paced;
        bool pacing;                      /* in core.paced */
        ARRAY(struct stranger) strangers; /* by id */
        /* over what its agent has said of all its units: see drift.c */
        uint64_t said_hash;
        uint32_t said_count;
        int64_t drift_at;    /* a difference is looked into from then on */
        uint64_t sent_epoch; /* of sent_seq */
        bool sure;           /* its agent said that it belongs to this cluster */
        uint32_t rank;       /* by id; equal scores are decided by it */
};

/* An operator's request that takes several steps; who asked is answered at the end. */
struct forgetting {
        char *node_id, *request_id, *actor;
        uint64_t ticket;
};

/* An agent of another cluster that came by. Live. */
struct foreign {
        char *node_id;
        int64_t heard_at;
        uint32_t units;
        uint64_t epoch; /* the largest that it has seen */
        void *hello;    /* packed, without its units */
        size_t len;
};

/* A token: see access.c. */
struct access {
        char *name; /* NULL: free */
        char *hash, *created_by, *revoked_by, *node_id, *used_by, *used_key;
        int32_t role;
        int64_t created_at, expires_at, revoked_at, used_at;
        uint64_t seq;
        bool unsaved;
        struct arena memory;     /* of what a join token says of its node */
        Pb__AccessToken *grants; /* only labels, taints and capacity; NULL: it says nothing */
};

/* What operators have said about a node id: see admission.c. The message is the state. */
struct admission {
        Pb__Admission *m; /* NULL: free */
        struct arena memory;
        bool unsaved;
};

/* An operator's wish to adopt units, until the agent has said what they are. Live. */
struct adoption {
        char *node_id, *request_id, *actor;
        uint64_t ticket;
        int64_t until_ms;
        uint32_t left;
        struct arena memory;
        ARRAY(char *) adopted, refused;
};

/* ---- the whole ---- */

/* See Pb__Fencing. */
struct fencing {
        int64_t leader_ms, lease_ms, grace_ms, wait_ms;
        int32_t drift_percent;
};

struct priority_units {
        int32_t priority;
        uint32_t units;
};

struct removed_record {
        enum record kind;
        char *key;
};
struct core_out {
        struct arena *memory;
        ARRAY(struct store_event) events;
        ARRAY(struct effect) effects;
        ARRAY(struct reply) replies;
        ARRAY(struct removed_record) removed;
        ARRAY(uint32_t) changed[RECORD_KINDS]; /* slots that are unsaved */
        int schema;                            /* it grows to this with the batch; 0: it stays */
        uint64_t expected_head;
        size_t ops, bytes; /* bytes: of what can be large */
};

/* What a restore of a backup forgot; see restore.c. */
struct lost_span {
        uint64_t epoch, seq, until_epoch;
        int64_t restored_at;
};

/* What a record carries that this berth does not know; see extras.c. */
struct extra {
        char *key, *data;
        size_t len;
};

struct notice_bucket {
        char *key;
        int64_t full_at;    /* when it is full again */
        uint64_t held;      /* not told one by one */
        uint32_t last_type; /* of those */
};
struct notices {
        ARRAY(struct notice_bucket) at;
        struct map by_key;
        int64_t sum_at;
};

struct core {
        struct core_options opt;
        char *version;
        /* durable */
        char *cluster_id;
        char *key_fingerprint; /* NULL: no key was noted yet */
        uint64_t epoch;
        ARRAY(struct lost_span) lost;
        ARRAY(struct extra) extras;
        struct map extras_by_key;
        int64_t cluster_created_at;
        int schema;             /* of the store: see feature.h */
        bool cluster_unsaved;   /* live */
        struct fencing fencing; /* lease_ms 0: nothing exclusive was ever asked for */
        bool restored;
        /* an operator said that what is on nodes lost by then moves; 0: no */
        int64_t evict_ordered_at;
        uint64_t head;
        ARRAY(struct node) nodes;
        ARRAY(struct unit) units;
        ARRAY(struct tombstone) tombstones;
        ARRAY(struct definition) definitions;
        ARRAY(struct class) classes;
        ARRAY(struct tenant) tenants;
        ARRAY(struct alert) alerts;
        ARRAY(struct outgoing) outbox;
        ARRAY(struct access) tokens;
        ARRAY(struct admission) admissions;
        /* derived */
        struct map admission_by_node;
        ARRAY(uint32_t) free_admissions;
        struct map token_by_name, token_by_hash;
        ARRAY(uint32_t) free_tokens;
        uint64_t tokens_version; /* grows with every change of one */
        struct map alert_by_key, outgoing_by_id;
        struct order alerts_in_order, tenants_in_order, workloads_in_order; /* for lists */
        ARRAY(uint32_t) free_alerts, free_outgoing;
        struct heap alert_deadlines, outbox_deadlines;
        struct map tenant_by_name;
        struct write_bucket *write_buckets; /* WRITE_BUCKETS; live */
        ARRAY(uint32_t) free_tenants;
        struct brake brake;
        struct map node_by_id, unit_by_id, definition_by_data, class_by_key, tombstone_by_id;
        ARRAY(uint32_t) free_nodes, free_units, free_tombstones, free_definitions, free_classes;
        /* level 0: what placement looks at, one row per node; see place_tree.h */
        struct place_tree tree;
        uint32_t n_nodes, n_workloads, n_tombstones;
        uint32_t by_phase[CORE_PHASES], by_desired[CORE_DESIRED];
        ARRAY(struct priority_units) priorities; /* of units that hold a place, lowest first */
        struct counts counts;                    /* see constraints.h */
        /* label pairs that selectors and topologies name; position = bit */
        ARRAY(struct label_bit) bits;
        ARRAY(struct node_ix) by_rank;
        bool ranks_stale;
        struct heap unit_deadlines, node_deadlines;
        /* live */
        bool started;
        struct warrants *warrants; /* NULL: without a key */
        int64_t now_ms, started_ms, next_pass_ms;
        int64_t steady_ms, started_steady; /* see struct input */
        struct notices notices;            /* see notice.c */
        /* by the steady clock: since when no lease by older values was given */
        int64_t fencing_since;
        /* the last event that no plan could have foreseen: see check_index() */
        uint64_t decided_seq;
        /* how often the reader that is being answered may still look at all nodes */
        uint32_t looks_left;
        uint64_t capacity_change; /* grows whenever something may fit that did not */
        /* list of classes with somebody waiting, the highest priority first */
        uint32_t waiting_first;
        ARRAY(struct hold) holds;
        ARRAY(uint32_t) free_holds;
        /* when to look again whether lower priorities can make room; when the minute began */
        int64_t preempt_at, preempt_since;
        uint32_t preempt_used;
        uint64_t preempt_sweep; /* how often every class that waits has had its look */
        uint64_t report_number;
        /* of the Hello that is being decided: it was made before its agent had seen the last
         * orders */
        bool list_is_old;
        uint32_t n_held; /* nodes whose eviction is held */
        ARRAY(struct unit_ix) dirty;
        size_t dirty_done;
        /* INPUT_CONFIG has come: until then no rule is known, and none counts as gone */
        bool configured;
        const Pb__ServerConfig *config; /* in config_memory, like what the rules point to */
        struct arena config_memory;
        struct {
                ARRAY(uint32_t) list; /* definitions that the policy would refuse today */
                int64_t workloads;    /* that carry them */
                /* the next one to be judged by a new configuration; NONE: all have been */
                uint32_t next;
        } beyond;                      /* live; see policy.c */
        ARRAY(char *) operator_labels; /* live: from the configuration; see admission.c */
        ARRAY(struct rule) rules;
        uint32_t n_node_rules, n_workload_rules, webhooks_in_flight;
        ARRAY(struct node_ix) changed_nodes; /* rules are to look at these */
        ARRAY(struct unit_ix) changed_workloads;
        ARRAY(uint32_t) tenants_with_room;
        uint32_t n_over_quota; /* workloads that wait for a quota */
        /* of tenants without one of their own: from the configuration */
        struct quota default_quota;
        ARRAY(struct node_ix) evict; /* nodes whose units are being moved */
        ARRAY(struct node_ix) paced; /* the same, a few at a time; see evict.c */
        size_t paced_done;
        int64_t pace_at, pace_credit;
        ARRAY(struct node_ix) drains;     /* draining nodes on which something has changed */
        ARRAY(struct forgetting) forgets; /* nodes that are being forgotten */
        ARRAY(struct foreign) foreign;
        ARRAY(struct adoption) adoptions;
        uint32_t n_strangers;
        uint32_t pass_next;       /* the periodic pass goes on here; NONE: not under way */
        struct map session_nodes; /* session -> node */
        const struct input *in;
        /* where answers go while an input with many workloads is decided; NULL: to the caller */
        struct many *many;
        struct arena step;
        struct core_out out;
        size_t batch_ops; /* see core_set_batch_ops() */
        /* decisions that this step may still take by itself although it is full */
        unsigned own;
        ARRAY(struct core_batch *) ready;
        size_t ready_done;
        struct core_stats stats;
        struct str scratch;
};

/* What is free and not kept for somebody. */
static inline struct amounts node_room(const struct node *n)
{
        return amounts_sub(ledger_free(&n->ledger), n->kept);
}
static inline bool unit_is_finished(const struct unit *w)
{
        return w->phase == PB__PHASE__E__Completed || w->phase == PB__PHASE__E__Failed;
}
/* Some node is not for this workload, though it would be for others of its class. */
static inline bool is_barred(const struct unit *w)
{
        return w->tombs || w->shadows;
}
static inline struct node *node_at(struct core *c, struct node_ix n)
{
        return &c->nodes.at[n.v];
}
static inline struct unit *unit_at(struct core *c, struct unit_ix w)
{
        return &c->units.at[w.v];
}
static inline struct definition *definition_of(const struct core *c, const struct unit *w)
{
        return &c->definitions.at[w->definition];
}
static inline struct class *class_of(const struct core *c, const struct unit *w)
{
        return &c->classes.at[definition_of(c, w)->class];
}
static inline const struct node *node_get(const struct core *c, struct node_ix n)
{
        return &c->nodes.at[n.v];
}
static inline const struct unit *unit_get(const struct core *c, struct unit_ix w)
{
        return &c->units.at[w.v];
}

#endif
