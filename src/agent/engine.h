/* agent/engine.h: what an agent knows and decides, without a system call.
 *
 * In:  messages of the server, connected / disconnected, events of the runtime, ticks; the time is
 * in each call. Out: one ordered list of orders (write this record, start, stop, remove) and the
 * messages to send, collected until engine_take().
 *
 * The driver (agent.c; the simulator) does this after every input, or once per turn of its loop:
 *
 *      while ((out = engine_take(e))) {
 *              for each out->orders[i], in this order: carry it out;    a PERSIST/FORGET is durable
 *              before the next order is begun for each out->messages[i]: send it
 *              only after all orders of the same output engine_output_free(out);
 *      }
 *
 * In one output all PERSIST orders come before all runtime orders, so a START is never carried out
 * before the record with its token is durable (C34). A driver that cannot write says
 * engine_persist_failed() and drops the START orders of that unit from the same output.
 *
 * Rules:
 *   (1) A plan whose (epoch, cursor) is older than the last applied one is ignored; an equal one is
 *       applied again, which changes nothing.
 *   (2) A unit whose token is smaller than the one on record is refused, whatever it asks; the
 *       answer is a report of what is there.
 *   (3) Same token, same revision, same wish: nothing happens (C7). The server owns restarts: a
 *       unit that has ended starts again only with a larger token (or a revision that was never
 *       launched).
 *   (4) A larger token or another revision of a running unit: stop, wait for the proof that it is
 *       gone, then start. Never two copies.
 *   (5) Stopped: stop and keep the record. Deleted: stop, remove, forget the record, then report
 *       Missing; an unknown unit is Missing at once.
 *   (6) Nothing new starts while a removal that a whole plan asked for is not proved.
 *   (7) What a plan does not mention is never touched, only reported.
 *   (8) After a start of the agent, and on every new stream, nothing is launched before a plan has
 *       confirmed it. Removals and stops that were accepted go on at once.
 *   (9) A Welcome of another cluster: nothing is executed, nothing is changed, the stream is to be
 *       closed and tried again slowly.
 *  (11) A Welcome that says adopt: an operator of that cluster has taken this agent over. It
 *       belongs to that cluster from then on, durably; its units run on, and its cursor starts
 *       anew, since the other cluster's says nothing there.
 *  (10) While the server is away units run on and exits are noted; starts that still wait are held
 *       once the server has been away for ENGINE_AWAY_MS, well before it would move a unit
 *       elsewhere.
 *
 *  (12) An exclusive movable unit starts, and runs, only while the lease holds (engine_lease.c).
 *       When it has run out such units are stopped, within the time that the server named, and
 *       reported as lease_expired; they start again with a larger token. Pinned ones are never
 *       stopped for it.
 *
 *  (13) A launch that the runtime knows nothing about is made up for with the same token only while
 *       the machine has not been restarted since: what a runtime writes down need not survive a
 *       power loss, so after one it may well have run. Then it is reported as ended, nobody knows
 *       how, and the server decides.
 *
 *  (14) What the server sends with a definition (its warrant) is kept on disk with the definition's
 *       very bytes, and returned as it is. A plan that brings nothing new but these is taken down,
 *       and restarts nothing: so units of an agent that knew no warrants get theirs.
 *
 * What the states in a report mean:
 *   Pending  accepted, not started yet (waits for a stop, a removal, or the plan's word after an
 *            agent's restart), or being started; told with the next heartbeat or with the next
 *            report of something else: the server decides nothing on it, and a start is mostly over
 *            before
 *   Running  runs
 *   Stopped  ended with exit code 0 (reason exited), because the lease ran out (lease_expired),
 *            with its agent (agent_stopped), was stopped as wished (stopped_by_user), or was found
 *            not running after a reboot of the machine (killed, no exit code)
 *   Failed   ended otherwise: crashed (exit code not 0, or a signal such as SEGV), killed (SIGKILL
 *            or SIGTERM from outside, out of memory, the unit's monitor vanished), start_failed,
 *            runtime_unavailable
 *   Missing  nothing of it is left here; sent once, and the unit is in no later list
 *
 * Records are packed Pb__UnitRecord and Pb__AgentRecord (proto/agent.proto). One thread; everything
 * is bounded by max_units.
 */
#ifndef BERTH_AGENT_ENGINE_H
#define BERTH_AGENT_ENGINE_H

#include "agent.pb-c.h"
#include "agent/runtime.h"
#include "base/err.h"
#include "base/macros.h"

#define ENGINE_MAX_UNITS 10000
#define ENGINE_MAX_STARTING 64
#define ENGINE_AWAY_MS 20000
#define ENGINE_SLOW_RETRY_MS 30000
/* a server of another cluster: its operator may be about to take this agent over */
#define ENGINE_FOREIGN_RETRY_MS 10000
#define ENGINE_HEARTBEAT_MS 10000 /* until the server says otherwise */
/* a stop without an answer is ordered again this long after its grace */
#define ENGINE_STOP_AGAIN_MS 30000

struct engine;

struct engine_label {
        const char *key, *value;
};
/* Everything is copied. */
struct engine_options {
        const char *node_id;
        const char *instance; /* ULID of this process */
        const char *boot_id;  /* of this boot of the machine; NULL: not known */
        const char *agent_version, *agent_endpoint;
        int64_t cpu, memory_mb, disk_gb;  /* cpu in thousandths of a core */
        const Pb__WorkloadType__E *types; /* ends with 0 */
        const Pb__WorkloadType__E
            /* of which exclusive units are stopped in time, whatever becomes of this process; ends
             * with 0; NULL: none */
            *exclusive_types;
        const struct engine_label *labels;
        size_t n_labels;
        uint32_t max_units;    /* 0: ENGINE_MAX_UNITS */
        uint32_t max_starting; /* 0: ENGINE_MAX_STARTING; starts ordered and not yet answered */
};

struct engine *engine_create(const struct engine_options *opt);
void engine_destroy(struct engine *e);

/* Boot: the records as stored, then the runtime's FOUND_* events through engine_event(), then
 * engine_booted(), then anything else. */
int engine_load_agent(struct engine *e, const void *data, size_t len, struct err *err);
int engine_load_unit(struct engine *e, const void *data, size_t len, struct err *err);
/* The lease as it was written down last, by the steady clock of this very boot of the machine; not
 * called: none holds. */
void engine_load_lease(struct engine *e, int64_t until_ms, int64_t kill_ms);
void engine_booted(struct engine *e, int64_t now_ms);

/* ---- inputs ---- */
/* What the machine's steady clock (it neither jumps nor is corrected, and goes on during suspends)
 * says at now_ms; to be told before each input. Never told: the same. */
void engine_set_steady(struct engine *e, int64_t now_ms, int64_t steady_ms);
void engine_connected(struct engine *e, int64_t now_ms);    /* a new stream: Hello comes out */
void engine_disconnected(struct engine *e, int64_t now_ms); /* harmless when not connected */
/* Logs and exec (log, exec, exec_input, cancel) are the driver's; they are ignored here. */
void engine_message(struct engine *e, const Pb__ServerMessage *msg, int64_t now_ms);
void engine_event(struct engine *e, const struct runtime_event *ev, int64_t now_ms);
void engine_tick(struct engine *e, int64_t now_ms);
/* for the next heartbeat */
void engine_set_usage(struct engine *e, const struct runtime_usage *usage);
/* What the node has now. True: it is not what the last Hello said, so the driver ends the stream
 * and greets anew. */
/* The life of the certificate that the agent uses, for its heartbeats; 0, 0: it has none. */
void engine_set_certificate(struct engine *e, int64_t begins_at_ms, int64_t expires_at_ms);
bool engine_set_capacity(struct engine *e, const struct runtime_capacity *capacity);
/* A PERSIST_UNIT could not be made durable (workload_id NULL: PERSIST_AGENT). Its starts are not
 * carried out: the unit is reported Failed. */
void engine_persist_failed(struct engine *e, const char *workload_id, const char *message,
                           int64_t now_ms);
/* A health check's word about the copy with this token. What is unhealthy is stopped, and then
 * reported as Failed (reason unhealthy); the server decides what follows. */
void engine_health(struct engine *e, const char *workload_id, struct unit_token token, bool healthy,
                   const char *message, int64_t now_ms);
/* Stop everything that runs. Nothing is reported any more: the next agent's Hello says that these
 * units were stopped with their agent (agent_stopped), and the server starts them again, with a
 * larger token: that is a restart like any other. engine_is_idle() tells when all is stopped. */
void engine_suspend(struct engine *e, int64_t now_ms);

/* When the next engine_tick() is due; INT64_MAX: nothing is waiting. */
int64_t engine_next_ms(const struct engine *e);

/* ---- outputs ---- */
enum engine_order_kind {
        ORDER_PERSIST_UNIT = 1, /* write data as the record of workload_id */
        ORDER_PERSIST_AGENT,    /* write data as the agent's own record */
        ORDER_FORGET_UNIT,      /* delete the record of workload_id; fine if it is not there */
        ORDER_START,            /* workload_id, token, data: packed Pb__Workload */
        ORDER_STOP,             /* workload_id, token (of the copy), grace_ms */
        ORDER_REMOVE,           /* workload_id: files too */
        /* until_ms, kill_ms: write it down for those who watch units; before any START of the same
         * output */
        ORDER_LEASE,
};
struct engine_order {
        enum engine_order_kind kind;
        const char *workload_id;
        struct unit_token token;
        int64_t grace_ms;
        /* ORDER_LEASE, by the steady clock: exclusive units are stopped from until_ms on, and gone
         * at kill_ms */
        int64_t until_ms, kill_ms;
        const void *data;
        size_t len;
};
struct engine_packet {
        const void *data; /* packed Pb__AgentMessage */
        size_t len;
        bool urgent; /* heartbeat: goes before queued log data */
};
struct engine_output {
        struct engine_order *orders;
        size_t n_orders;
        struct engine_packet *messages;
        size_t n_messages;
        struct arena *memory;
};
/* Everything since the last take; NULL if there is nothing. */
struct engine_output *engine_take(struct engine *e);
void engine_output_free(struct engine_output *out);

/* ---- looking inside ---- */

/* What the unit was last told to run; NULL: unknown. Free with pb__workload__free_unpacked(w,
 * NULL). */
Pb__Workload *engine_definition(const struct engine *e, const char *workload_id);

/* The stream must be closed (refused by the server, wrong cluster): true, with the reason as text
 * and how long to wait before the next try. */
bool engine_wants_close(const struct engine *e, const char **ret_reason, int64_t *ret_retry_ms);
/* connected, and the server has accepted this agent */
bool engine_is_welcome(const struct engine *e);
bool engine_is_idle(const struct engine *e); /* nothing runs, starts or stops */
/* of what runs now: how long stopping everything may take */
int64_t engine_max_grace_ms(const struct engine *e);
bool engine_lease_holds(const struct engine *e, int64_t now_ms);
uint32_t engine_unit_count(const struct engine *e);
/* is it one of the node's types? */
bool engine_runs(const struct engine *e, Pb__WorkloadType__E type);
/* base/unit_hash.h over all units */
uint64_t engine_units_hash(const struct engine *e);
const char *engine_cluster_id(const struct engine *e);
/* rule (1), since the start: the server's store is older than it was */
uint64_t engine_plans_ignored(const struct engine *e);
struct unit_token engine_cursor(const struct engine *e); /* of the last applied plan */

struct engine_unit_view {
        const char *workload_id, *revision_id;
        struct unit_token token;         /* on record */
        struct unit_token running_token; /* of the copy in the runtime; 0,0: none */
        Pb__DesiredState__E desired;
        Pb__ActualState__E state;
        bool in_runtime; /* started or starting and not proved gone */
        bool confirmed;  /* a plan of this stream has named it */
};
bool engine_unit(const struct engine *e, const char *workload_id,
                 struct engine_unit_view *ret); /* false: unknown; valid until the next input */
/* What a complete report would say now, of all units (ordered by id) or of one (NULL: unknown).
 * Their strings are the engine's: valid until the next input. */
struct arena;
Pb__UnitStatus **engine_statuses(const struct engine *e, struct arena *arena, size_t *ret_n);
Pb__UnitStatus *engine_status(const struct engine *e, struct arena *arena, const char *workload_id);
/* The numbered invariants at the head of engine.c; the first broken one in err. */
int engine_check(const struct engine *e, struct err *err);

#endif
