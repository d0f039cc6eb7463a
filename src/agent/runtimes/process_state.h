/* agent/runtimes/process_state.h: the inside of the process runtime, shared by process*.c (units),
 * logread.c (logs) and exec.c (commands). */
#ifndef BERTH_AGENT_PROCESS_STATE_H
#define BERTH_AGENT_PROCESS_STATE_H

#include "agent/runtime.h"
#include "agent/runtimes/unit_files.h"
#include "agent/runtimes/unit_user.h"
#include "base/array.h"
#include "base/map.h"
#include <event2/event.h>

struct log_stream;
struct exec_stream;

enum punit_phase {
        /* for the monitor of the copy before, whose unit has ended, to let go of its lock */
        PUNIT_WAITING,
        PUNIT_STARTING, /* the monitor was started and has not spoken yet */
        PUNIT_UP,       /* its monitor lives */
        PUNIT_CLEANING, /* its monitor is gone: what was left behind is being killed */
};

/* A copy that runs (or starts, or is being cleaned up). Ended ones exist on disk only. */
struct punit {
        struct runtime *rt;
        uint32_t ix;
        char *id, *dir;
        struct unit_token token;
        enum punit_phase phase;
        bool stop_asked, stop_sent;
        int64_t grace_ms;
        struct unit_state state;
        int status_fd, pidfd;
        struct event *status_event, *pidfd_event, *timer;
        struct event *look; /* its monitor is looked at now and then: there was no pidfd for it */
        struct str line;
        uint8_t *launch; /* waiting: launch.pb */
        size_t launch_len;
        int64_t waits_since_ms;
        uint32_t clean_rounds;
        bool has_ended; /* cleaning: ending says how it did; otherwise its monitor was killed */
        struct unit_state ending;
};

/* A command that was killed and does not go: frozen, or waiting for a disk. */
struct exec_left {
        pid_t pid;
        char *id; /* of its unit */
};

#define EXEC_MAX 256
#define EXEC_UNIT_MAX 32
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
        ARRAY(struct exec_left) reaping;
        struct event *reap_timer;
        int inotify_fd;
        struct event *inotify_event;
        struct unit_users users;
        bool warned_limits, warned_fds;
        /* no file descriptor is kept beyond this one: the rest is for what comes and goes */
        int fd_most;
        int64_t find_until_ms; /* find() waits no longer for what has to be killed */
        uint32_t trash;
        uint64_t cpu_busy, cpu_total; /* /proc/stat at the last look */
        int64_t cpu_used;
        ARRAY(struct proc_use) own; /* of units, at the last look; by pid */
        int64_t own_at_ns;
};

#define CLEAN_AGAIN_MS 20

/* process.c */
struct punit *process_find(const struct runtime *rt, const char *id);
struct punit *punit_new(struct runtime *rt, const char *id, struct unit_token token);
void punit_free(struct punit *p);
void process_close_event(struct event **ev, int *fd);
void process_emit(struct runtime *rt, const struct runtime_event *ev);
void process_start_failed(struct runtime *rt, const char *id, struct unit_token token,
                          Pb__Reason__E reason, const char *message);
/* true: nothing of it is left, for certain */
bool process_kill_leftovers(const char *dir, const struct unit_state *s);
void process_write_killed(const char *dir, struct unit_state *s);
Pb__Reason__E process_why_ended(const struct unit_state *s); /* none: the engine derives it */
bool process_had_commands(const char *dir);                  /* run inside it (berth exec) */
/* kills what is left, then reports the end */
void punit_clean(struct punit *p);
void punit_monitor_end(evutil_socket_t fd, short what, void *punit);
void punit_send_stop(struct punit *p);
bool punit_watch(struct punit *p); /* its monitor; false: it is gone, which is proved */

/* process_start.c, process_find.c, process_usage.c */
void process_start(struct runtime *rt, const struct runtime_start *start);
int process_find_all(struct runtime *rt, struct err *err);
void process_usage(struct runtime *rt, struct runtime_usage *ret);

int logread_open(struct runtime *rt, const char *workload_id, const struct log_options *opt,
                 const struct stream_sink *sink, struct stream **ret, struct err *err);
/* followers read what is left and end */
void logread_unit_ended(struct runtime *rt, const char *workload_id);
void logread_close_all(struct runtime *rt);

int exec_open(struct runtime *rt, const char *workload_id, const struct exec_options *opt,
              const struct stream_sink *sink, struct stream **ret, struct err *err);
/* commands inside it are killed */
void exec_unit_ended(struct runtime *rt, const char *workload_id);
void exec_close_all(struct runtime *rt);

#endif
