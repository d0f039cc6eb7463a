/* agent/runtimes/launch.h: turning a unit's definition into a process: environment, directory,
 * user, limits, command.
 *
 * A unit that the server confines runs as the user that the agent chose for it (unit_user.h), or as
 * the one in the spec if that is not root.
 *
 * Used twice: by the monitor for the unit's command and by the agent for commands run inside a unit
 * (exec). The environment is the unit's own and nothing of the agent's: PATH, HOME, USER, LOGNAME,
 * then the spec's variables, then BERTH_WORKLOAD_ID, BERTH_NODE_ID, BERTH_REVISION,
 * BERTH_FENCING_TOKEN and the mark (unit_files.h). A definition that sets one of these is refused
 * when it is applied (model/spec_check.c).
 */
#ifndef BERTH_AGENT_LAUNCH_H
#define BERTH_AGENT_LAUNCH_H

#include "agent/runtimes/unit_files.h"

#define LAUNCH_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct launch {
        char **argv;      /* NULL-terminated */
        char **env;       /* NULL-terminated */
        const char *path; /* PATH of env */
        char *workdir;
        char *user_name; /* as written in the spec; NULL: run as the agent's user */
        /* its name in the user database, for its other groups; NULL: a bare number */
        char *login;
        uint32_t uid, gid;
        bool confine;          /* no new privileges, and none but: */
        uint64_t capabilities; /* a bit per number */
        int64_t max_open_files, max_processes;
        char cgroup[65]; /* entered if not empty */
};

/* Everything that can be found out before the fork: unknown user, no command, ... node_id and dir
 * go into the environment. argv NULL: the spec's. */
int launch_prepare(const Pb__PlanUnit *unit, const char *node_id, const char *dir,
                   const char *const *argv, struct launch *ret, struct err *err);
const char *launch_env(const struct launch *l, const char *key); /* NULL: not set */
/* in place of what it has of that name */
void launch_set_env(struct launch *l, const char *key, const char *value);
void launch_fini(struct launch *l);

/* In the forked child, in a session of its own with its standard streams in place: never returns. A
 * failure is written to error_fd (close-on-exec), to be read by launch_result(); the process then
 * ends as a shell would, with 127 if there is no such command and with 126 if it cannot be run. */
_noreturn_ void launch_exec(const struct launch *l, int error_fd);

/* In the parent: waits until the child runs its command (0) or has said why it cannot. That can
 * take long: whoever must not wait asks when error_fd can be read. */
int launch_result(const struct launch *l, int error_fd, struct err *err);

#endif
