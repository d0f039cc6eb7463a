/* agent/runtimes/process_state.h: the inside of the process runtime, shared by process.c (units), logread.c (logs) and exec.c (commands). */
#ifndef BERTH_AGENT_PROCESS_STATE_H
#define BERTH_AGENT_PROCESS_STATE_H

#include "agent/runtime.h"
#include "agent/runtimes/unit_files.h"
#include "base/array.h"
#include "base/map.h"
#include <event2/event.h>

struct log_stream;
struct exec_stream;

enum punit_phase {
        PUNIT_STARTING, /* the monitor was started and has not spoken yet */
        PUNIT_UP,       /* its monitor lives */
        PUNIT_CLEANING, /* its monitor was killed: what it left is being killed */
};

/* A copy that runs (or starts, or is being cleaned up). Ended ones exist on disk only. */
struct punit {
        struct runtime *rt;
        uint32_t ix;
        char *id, *dir;
        struct unit_token token;
        enum punit_phase phase;
        bool stop_asked;
        int64_t grace_ms;
        struct unit_state state;
        int status_fd, pidfd;
        struct event *status_event, *pidfd_event, *timer;
        struct str line;
        uint32_t clean_rounds;
};

#define EXEC_MAX 256
#define LOG_STREAMS_MAX 1024

struct runtime {
        struct event_base *base;
        char *units_dir, *node_id, *program, *data_dir;
        void (*on_event)(void *ctx, const struct runtime_event *event);
        void *ctx;
        ARRAY(struct punit *) units; /* NULL: free */
        struct map by_id;
        ARRAY(struct log_stream *) logs;
        ARRAY(struct exec_stream *) execs;
        int inotify_fd;
        struct event *inotify_event;
        bool warned_limits;
        uint32_t trash;
        uint64_t cpu_busy, cpu_total; /* /proc/stat at the last look */
        int64_t cpu_used;
};

struct punit *process_find(const struct runtime *rt, const char *id);

int logread_open(struct runtime *rt, const char *workload_id, const struct log_options *opt, const struct stream_sink *sink,
                 struct stream **ret, struct err *err);
void logread_unit_ended(struct runtime *rt, const char *workload_id); /* followers read what is left and end */
void logread_close_all(struct runtime *rt);

int exec_open(struct runtime *rt, const char *workload_id, const struct exec_options *opt, const struct stream_sink *sink,
              struct stream **ret, struct err *err);
void exec_unit_ended(struct runtime *rt, const char *workload_id); /* commands inside it are killed */
void exec_close_all(struct runtime *rt);

#endif
