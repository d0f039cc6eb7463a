/* agent/runtimes/cgroup.h: limits by control groups, where the machine lets us.
 *
 * Version 2: <mount>/berth/<name>; version 1: one directory per controller (cpu, memory, pids,
 * freezer), below the cgroup that the agent itself is in, so that limits of an outer box still
 * hold. cpu is a share, not a ceiling: a unit may use what others leave. memory and pids are
 * ceilings. Where a controller cannot be used the unit runs all the same, and `missing` says what
 * is not enforced.
 */
#ifndef BERTH_AGENT_CGROUP_H
#define BERTH_AGENT_CGROUP_H

#include "agent/runtimes/proc.h"
#include "base/macros.h"
#include <sys/types.h>

struct cgroup_limits {
        int64_t cpu_milli;     /* 0: none */
        int64_t memory_bytes;  /* 0: none */
        int64_t max_processes; /* 0: none */
};

#define CGROUP_MISSING_LEN 64
/* Makes the groups of this name. Returns whether there is at least one; ret_missing: "cpu memory
 * pids", those of the wanted limits that are not enforced. */
bool cgroup_make(const char *name, const struct cgroup_limits *limits,
                 char ret_missing[CGROUP_MISSING_LEN]);
void cgroup_enter(const char *name); /* this process, with all it starts; after fork */
bool cgroup_oom(const char *name);   /* the kernel killed something in it for its memory limit */
/* Appends what runs in it and in the groups that a unit made below it. False: not all could be
 * read. */
bool cgroup_processes(const char *name, pid_list *out);
void cgroup_remove(const char *name); /* when nothing runs in it; with the groups below it */

#endif
