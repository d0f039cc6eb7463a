/* agent/runtimes/unit_files.h: the files of one unit of the process runtime, shared by the agent
 * and the unit's monitor.
 *
 *   <dir>/launch.pb     packed Pb__PlanUnit: what to run and under which token; written by the
 *                       agent before the monitor starts
 *   <dir>/lock          flock'ed from before the monitor starts until it ends: locked means that a
 *                       monitor lives
 *   <dir>/exec          there since a command was run inside the unit (berth exec): what that
 *                       started is not below the monitor
 *   <dir>/run.state     written by the monitor when the command runs
 *   <dir>/exit.state    written by the monitor when nothing of the unit is left, or when it could
 *                       not be started
 *   <data>/lease        the agent's lease, two directories above: lease_file.h
 *   <dir>/output.log, output.log.1   what it printed (logfile.h)
 *
 * The .state files are lines of key=value, replaced as a whole (written beside and renamed). They
 * are not synced: they describe processes, which do not outlive a power failure either; the boot id
 * tells, here and in the agent's record (engine.h, rule 13).
 */
#ifndef BERTH_AGENT_UNIT_FILES_H
#define BERTH_AGENT_UNIT_FILES_H

#include "agent/runtime.h"
#include "agent/runtimes/proc.h"
#include "base/err.h"
#include "base/str.h"

/* the monitor's pipe to the agent: one line, "started" or "failed", then closed */
#define UNIT_FD_STATUS 3
#define UNIT_FD_LOCK 4
#define UNIT_MODE "__unit"
#define UNIT_EXEC_NAME "exec"
#define UNIT_CGROUP_LEN 65

struct unit_state {
        struct unit_token token;
        char revision[129];
        char boot_id[BOOT_ID_LEN + 1];
        int64_t monitor, monitor_start; /* pid and start time */
        int64_t pid, pid_start;         /* the command's, which leads a session of its own */
        uint64_t forks;                 /* proc_forks() before it was started */
        int64_t started_at, finished_at;
        bool has_exit_code, has_signal, oom, stopped; /* stopped: because it was asked to */
        int32_t exit_code, signal;
        bool start_failed;
        /* its monitor stopped it because the agent's lease had run out */
        bool lease_expired;
        /* its monitor stopped it because somebody sent it this signal; 0: nobody did */
        int32_t told_to_stop;
        char cgroup[UNIT_CGROUP_LEN]; /* name below the cgroup mounts; "": none */
        char message[512];
};

/* 0; -ERR_NOT_FOUND when the file is not there. */
int unit_state_read(const char *dir, const char *name, struct unit_state *ret, struct err *err);
int unit_state_write(const char *dir, const char *name, const struct unit_state *s,
                     struct err *err);

/* Whole or not at all, but not synced. */
int file_replace(const char *path, const void *data, size_t len, unsigned mode, struct err *err);

/* free with pb__plan_unit__free_unpacked(p, NULL) */
int unit_launch_read(const char *dir, Pb__PlanUnit **ret, struct err *err);

/* The name of a unit's cgroup. */
void unit_cgroup_name(const char *workload_id, const char *dir, char ret[UNIT_CGROUP_LEN]);

/* Appends what belongs to a unit and its monitor does not know: in its cgroup, in its session, or
 * under its mark. False: not all could be looked at, so that nothing is proved. */
bool unit_strays(const char *dir, const struct unit_state *s, pid_list *out);

/* "BERTH_UNIT=<dir>@<epoch>.<seq>": in the environment of everything a unit starts. */
void unit_mark(const char *dir, struct unit_token token, struct str *out);

#endif
