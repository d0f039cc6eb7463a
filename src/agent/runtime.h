/* agent/runtime.h: what runs units. One implementation per kind of unit, all behind struct
 * runtime_ops.
 *
 * A runtime is asynchronous: start, stop and remove return at once, and what became of them arrives
 * as events through the callback given at open, from the event loop (or from within the call
 * itself). The rules that the engine (agent/engine.h) relies on:
 *
 *   (1) Every START ends in STARTED or START_FAILED; a STARTED unit ends in EXITED or, after a
 *       STOP, in STOPPED.
 *   (2) EXITED, STOPPED and START_FAILED are proofs: no process of that copy is left.
 *   (3) STOP of a copy that does not run (or is unknown) answers STOPPED with the token that was
 *       given, at once; REMOVE of an unknown one answers REMOVED. Both may be repeated. A STOP that
 *       cannot be proved answers nothing and is tried again by the runtime.
 *   (4) At boot, find() reports every copy that the runtime knows as one FOUND_* event, before it
 *       returns. A pid alone is never trusted: pid + start time + boot id + token must match.
 *   (5) Units outlive the runtime's user: close() stops nothing.
 *
 * One thread: the event loop that was given at open.
 */
#ifndef BERTH_AGENT_RUNTIME_H
#define BERTH_AGENT_RUNTIME_H

#include "agent.pb-c.h"
#include "base/err.h"
#include "base/macros.h"

struct event_base;
struct runtime;

struct unit_token {
        uint64_t epoch, seq;
};
static inline int unit_token_cmp(struct unit_token a, struct unit_token b)
{
        if (a.epoch != b.epoch)
                return a.epoch < b.epoch ? -1 : 1;
        return a.seq < b.seq ? -1 : a.seq > b.seq;
}

enum runtime_event_kind {
        RUNTIME_STARTED = 1,  /* pid, at_ms */
        RUNTIME_START_FAILED, /* reason (start_failed or runtime_unavailable), message */
        RUNTIME_EXITED,       /* by itself: exit_code or signal, oom, at_ms, message */
        /* after a STOP: nothing of it runs; exit_code or signal if there was one */
        RUNTIME_STOPPED,
        RUNTIME_REMOVED,       /* nothing of it is left, files neither */
        RUNTIME_PROGRESS,      /* of a start that takes long: message, for people */
        RUNTIME_FOUND_RUNNING, /* at boot: runs, and is watched from now on; pid, at_ms = started */
        /* at boot: ended while nobody looked; as EXITED, or reason start_failed */
        RUNTIME_FOUND_EXITED,
        /* at boot: it ended with the machine (another boot id), how is not known; message */
        RUNTIME_FOUND_GONE,
};

/* The strings belong to the sender and are copied by the receiver. */
struct runtime_event {
        enum runtime_event_kind kind;
        const char *workload_id;
        struct unit_token token; /* of the copy that this is about */
        const char *revision_id; /* of the copy; may be NULL but for FOUND_* */
        int64_t at_ms;           /* when it happened, Unix ms */
        int64_t pid;
        bool has_exit_code, has_signal, oom;
        int32_t exit_code, signal;
        Pb__Reason__E reason; /* none: the engine derives it */
        const char *message;
};

/* One start: the definition and the token under which this copy runs. The runtime copies what it
 * keeps. */
struct runtime_start {
        const char *workload_id;
        struct unit_token token;
        const Pb__Workload *workload;
        const char *cluster_id; /* for labels; may be NULL */
};

/* Output of a unit or of a command, pushed to whoever asked. data() returns false when it wants no
 * more for now (the bytes of this call are taken all the same): nothing is read any more until
 * stream_resume(). end() comes exactly once, last, unless the taker closes first. */
struct stream_sink {
        bool (*data)(void *ctx, bool is_stderr, int64_t timestamp_ms, const void *data, size_t len);
        /* error NULL: all went well */
        void (*end)(void *ctx, bool has_exit_code, int32_t exit_code, const char *error);
        void *ctx;
};
/* An open log or exec stream; the operations are NULL-safe on what they do not support (a log takes
 * no input). */
struct stream;
struct stream_ops {
        void (*resume)(struct stream *s);
        /* stdin; false: more waits than STREAM_INPUT_MAX, nothing taken */
        bool (*write)(struct stream *s, const void *data, size_t len);
        void (*write_eof)(struct stream *s);
        void (*resize)(struct stream *s, int rows, int cols);
        void (*close)(struct stream *s); /* ends it, kills an exec; frees; end() is not called */
        size_t (*waiting)(
            /* bytes of stdin that were written and the command has not read; NULL: it has no
             * stdin */
            const struct stream *s);
};
struct stream {
        const struct stream_ops *ops;
};
#define STREAM_INPUT_MAX (1024 * 1024)

struct log_options {
        bool follow;
        int64_t tail_lines; /* < 0: everything that is kept */
};
struct exec_options {
        const char *const *argv; /* NULL-terminated */
        bool tty;
        int rows, cols;
        const char *term; /* TERM, with a terminal; NULL or "": not known */
};

struct runtime_usage {
        bool known;       /* false: the rest says nothing (yet) */
        int64_t cpu_used; /* thousandths of a core */
        int64_t memory_used_mb, disk_used_gb;
        bool of_machine; /* those are the whole machine's, and this is what it has left: */
        int64_t cpu_free, memory_free_mb, disk_free_gb;
        /* asked for by the caller: what the node's own units use, which takes a look at every
         * process */
        bool want_own;
        int64_t cpu_own, memory_own_mb;
};

struct runtime_options {
        struct event_base *base;
        const char *data_dir; /* units live below <data_dir>/units/<workload_id>/ */
        const char *node_id;
        const char
            /* process: "first-last", users for units of an agent that is root; NULL or "none": they
             * run as the agent does */
            *unit_users;
        /* this binary, run again as "<program> __unit <dir>"; NULL: /proc/self/exe */
        const char *program;
        void (*on_event)(void *ctx, const struct runtime_event *event);
        /* The cluster that the agent belongs to, as of now: it is known after the first Welcome,
         * and changes when the agent is adopted. "": not known yet. NULL: never known. */
        const char *(*cluster_id)(void *ctx);
        void *ctx;
        /* struct mock_options, node_options, container_options or cluster_options, as the runtime
         * is */
        const void *extra;
};

/* What a runtime has to offer, when that is not this machine. */
struct runtime_capacity {
        int64_t cpu; /* thousandths of a core */
        int64_t memory_mb, disk_gb;
        Pb__WorkloadType__E types[8]; /* ends with 0 */
};

struct runtime_ops {
        const char *name;
        /* what it can run; ends with 0; NULL: only types_now tells */
        const Pb__WorkloadType__E *types;
        /* Of which units end in time when the agent's lease runs out, even if the agent itself is
         * dead or stands still; ends with 0, NULL: none. */
        const Pb__WorkloadType__E *exclusive_types;
        int (*open)(const struct runtime_options *opt, struct runtime **ret, struct err *err);
        void (*close)(struct runtime *rt); /* leaves units running */
        int (*find)(struct runtime *rt, struct err *err);
        void (*start)(struct runtime *rt, const struct runtime_start *start);
        void (*stop)(struct runtime *rt, const char *workload_id, struct unit_token token,
                     int64_t grace_ms);
        void (*remove)(struct runtime *rt, const char *workload_id);
        int (*logs)(struct runtime *rt, const char *workload_id, const struct log_options *opt,
                    const struct stream_sink *sink, struct stream **ret, struct err *err);
        int (*exec)(struct runtime *rt, const char *workload_id, const struct exec_options *opt,
                    const struct stream_sink *sink, struct stream **ret, struct err *err);
        void (*usage)(struct runtime *rt, struct runtime_usage *ret);
        /* what it can run here, after open; NULL: types */
        const Pb__WorkloadType__E *(*types_now)(struct runtime *rt);
        /* where a running unit's ports are; NULL: on this machine */
        const char *(*address)(struct runtime *rt, const char *workload_id);
        /* as of now; NULL: what this machine has */
        void (*capacity)(struct runtime *rt, struct runtime_capacity *ret);
        /* its units' health is looked after where they run */
        bool checks_health;
};

extern const struct runtime_ops runtime_process;
extern const struct runtime_ops runtime_mock;
/* several, by the workload's type (runtimes/node.h) */
extern const struct runtime_ops runtime_node;
/* another berth cluster as a whole (runtimes/cluster.h) */
extern const struct runtime_ops runtime_cluster;

/* The first thing main() must do: the process that watches over one unit ("berth __unit <dir>").
 * Returns its exit status. unit_main_wanted: argv asks for it. */
bool unit_main_wanted(int argc, char **argv);
int unit_main(int argc, char **argv);

#endif
