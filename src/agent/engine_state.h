/* agent/engine_state.h: the inside of the engine, shared by engine.c (decides) and engine_output.c
 * (packs). Nobody else includes it. */
#ifndef BERTH_AGENT_ENGINE_STATE_H
#define BERTH_AGENT_ENGINE_STATE_H

#include "agent/engine.h"
#include "base/array.h"
#include "base/heap.h"
#include "base/map.h"
#include "model/warrant.h"

#define DEFAULT_GRACE_SECONDS 10
#define MESSAGE_MAX 256 /* bytes of text in a status: 10,000 units must fit into one Hello */

/* Where the copy in the runtime stands. */
enum run {
        RUN_NONE,     /* proved: nothing of it runs */
        RUN_STARTING, /* START ordered, no answer yet */
        RUN_UP,
        RUN_STOPPING, /* STOP ordered, no proof yet */
        RUN_REMOVING, /* REMOVE ordered; nothing runs, files are going */
};

struct unit {
        char *id;
        uint32_t ix;

        /* what was accepted */
        struct unit_token token;
        char *revision;
        Pb__DesiredState__E desired;
        Pb__WorkloadType__E type;
        /* packed Pb__Workload, as the server sent it; NULL: not known (found by the runtime
         * only) */
        void *workload;
        size_t workload_len;
        uint8_t warrant[WARRANT_MAX_BYTES]; /* what came with it: kept, and never read */
        size_t warrant_len;
        int64_t grace_ms;

        /* what was last launched: the pair that never starts twice */
        struct unit_token launched;
        char *launched_revision; /* NULL: never */

        /* what is in the runtime, while run is not RUN_NONE or RUN_REMOVING */
        enum run run;
        struct unit_token run_token;
        char *run_revision;

        /* a plan of this stream has named it (of the last one, while no new Welcome has come) */
        bool confirmed;
        bool launched_here;         /* in this boot of the machine */
        bool resumable;             /* its launch left no trace: may start with the same token */
        bool suspended;             /* on record: being stopped with its agent */
        bool gates;                 /* a removal of a whole plan: holds all starts until proved */
        bool found;                 /* the runtime spoke of its last launch at boot */
        bool unsaved;               /* its record could not be written */
        bool queued, dirty, report; /* in e->start_queue, e->dirty, e->reports */

        /* what is reported */
        Pb__ActualState__E state;
        Pb__Reason__E reason;
        char *message;
        bool has_exit_code, has_signal;
        int32_t exit_code, signal;
        int64_t started_at, finished_at;
        const char *health; /* "healthy", "unhealthy"; NULL: not checked (yet) */
        bool failing;       /* being stopped because it is unhealthy */
        bool leased;        /* its definition is exclusive and movable */
        bool run_leased;    /* that of the copy in the runtime was */
        bool expired;       /* being stopped because the lease has run out */
};

/* A status about something that is not (or no longer) a unit: Missing, refused. */
struct notice {
        char *id, *revision, *message;
        struct unit_token token;
        Pb__ActualState__E state;
        Pb__Reason__E reason;
};

struct runtime_order {
        enum engine_order_kind kind;
        char *id;
        struct unit_token token;
        int64_t grace_ms;
        void *data;
        size_t len;
};

struct packed {
        void *data;
        size_t len;
};

struct engine {
        /* who we are */
        char *node_id, *instance, *version, *endpoint, *boot_id;
        int64_t cpu, memory_mb, disk_gb;
        Pb__WorkloadType__E types[8], exclusive_types[8];
        size_t n_types, n_exclusive_types;
        ARRAY(struct engine_label) labels; /* owned strings, sorted by key */
        uint32_t max_units, max_starting;

        /* what we keep */
        char *cluster_id;
        struct unit_token cursor;
        ARRAY(struct unit *) units; /* by ix; NULL: free */
        ARRAY(uint32_t) free_ix;
        struct map by_id;
        uint32_t n_units, n_starting, n_gating;

        /* the stream */
        bool booted, connected, welcome, planned, suspending;
        int64_t away_since_ms; /* disconnected at; INT64_MIN: long ago */
        int64_t heartbeat_ms, next_beat_ms;
        int64_t certificate_begins_at, certificate_expires_at; /* told with heartbeats */
        char *close_reason;
        int64_t close_retry_ms;
        struct runtime_usage usage;
        bool collecting;
        struct unit_token collecting_cursor;
        ARRAY(struct packed) collected;
        size_t collected_bytes;
        uint64_t plans_ignored;

        /* the lease; see engine_lease.c */
        /* what the steady clock is ahead of now_ms */
        int64_t steady_ahead_ms;
        /* by the steady clock; until INT64_MIN: none */
        int64_t lease_from_ms, lease_until_ms, lease_stop_ms;
        int64_t beat_clock_ms; /* of the heartbeat that is due */
        uint32_t n_leased;     /* units */
        bool lease_dirty;      /* to be written down */

        /* deadlines */
        struct heap stop_again; /* by unit ix */
        int64_t save_again_ms;  /* HEAP_NEVER: nothing unsaved */
        bool agent_unsaved;

        /* waiting to be taken */
        ARRAY(uint32_t) start_queue; /* units that want to start, oldest first */
        size_t start_head;
        /* ix; flags in the unit say whether an entry still counts */
        ARRAY(uint32_t) dirty, reports;
        ARRAY(char *) forgets;
        ARRAY(struct runtime_order) orders;
        ARRAY(struct notice) notices;
        ARRAY(char *) describe; /* units that the server asks about */
        bool describe_held;     /* and wants them as they are kept */
        bool agent_dirty, hello_due, beat_due, list_due;
        /* false: those in `reports` are Pending only, and go with the next heartbeat or report */
        bool reports_due;
};

/* engine_unit.c */
struct unit *engine_find(const struct engine *e, const char *id); /* NULL: unknown */
struct unit *engine_unit_new(struct engine *e, const char *id);
void engine_unit_free(struct engine *e, struct unit *u);
void engine_mark_dirty(struct engine *e, struct unit *u);  /* its record must be written */
void engine_mark_report(struct engine *e, struct unit *u); /* its status must be sent */
void unit_set_state(struct engine *e, struct unit *u, Pb__ActualState__E state,
                    Pb__Reason__E reason, const char *message);
void unit_clear_exit(struct unit *u);
void engine_notice(struct engine *e, const char *id, struct unit_token token, const char *revision,
                   Pb__ActualState__E state, Pb__Reason__E reason, const char *message);
/* the wish was launched already (it may have ended since) */
bool unit_was_launched(const struct unit *u);
/* the copy in the runtime is the one that is wished for */
bool unit_runs_wish(const struct unit *u);
bool unit_in_runtime(const struct unit *u);
bool unit_wants_start(const struct unit *u);
/* at most max bytes, cut between UTF-8 characters; "" becomes NULL */
void unit_set_text(char **at, const char *text, size_t max);
void unit_set_string(char **at, const char *text); /* NULL becomes "" */

/* engine_plan.c */
bool engine_id_is_safe(const char *id);
/* The definition that an entry carries; NULL: none, or none that can be read. In the arena. */
struct arena;
const Pb__Workload *engine_read_definition(struct arena *arena, const Pb__PlanEntry *p);
/* Takes it with its warrant, both byte for byte. w: the same, read. */
void engine_take_definition(struct engine *e, struct unit *u, const Pb__PlanEntry *p,
                            const Pb__Workload *w);
void engine_drop_collected(struct engine *e);
void engine_forget_notices(struct engine *e);
void engine_forget_questions(struct engine *e);

/* engine_lease.c */
int64_t engine_steady_ms(const struct engine *e, int64_t now_ms);
void engine_lease_count(struct engine *e, struct unit *u, bool leased);
void engine_beat(struct engine *e, int64_t now_ms); /* a heartbeat is due */
void engine_on_ack(struct engine *e, const Pb__HeartbeatAck *ack, int64_t now_ms);
void engine_lease_enforce(struct engine *e, int64_t now_ms);
int64_t engine_lease_next_ms(const struct engine *e);

/* engine.c */
void engine_stop_within(struct engine *e, struct unit *u, int64_t grace_ms, int64_t now_ms);
/* Brings the copy in the runtime nearer to the wish. Starts are only queued: the caller pumps when
 * it has seen all of its input. */
void engine_settle(struct engine *e, struct unit *u, int64_t now_ms);
void engine_pump_starts(struct engine *e, int64_t now_ms);

#endif
