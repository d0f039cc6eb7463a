/* agent/runtimes/lease_file.h: <data>/lease: until when the agent's exclusive units may run.
 *
 * Written by the agent with every renewal while it has such units, and before it starts one; read
 * by each unit's monitor, which stops its unit when the time has come and the file names no later
 * one. So a unit ends in time although its agent is dead, hangs or was stopped, and an agent that
 * is started again within its lease goes on.
 *
 * Times are those of the machine's steady clock (clock_steady_ms), which begins anew with every
 * boot; so the file names the boot. It is replaced as a whole and not synced: an older one ends
 * sooner, and no unit outlives a power failure.
 */
#ifndef BERTH_AGENT_LEASE_FILE_H
#define BERTH_AGENT_LEASE_FILE_H

#include "base/err.h"
#include "base/macros.h"

struct lease_file {
        int64_t until_ms; /* then units are asked to stop */
        int64_t kill_ms;  /* then they are killed */
};

int lease_file_write(const char *path, const struct lease_file *lease, struct err *err);
/* Both 0 if there is none, or it is of another boot, or makes no sense: it has run out. */
struct lease_file lease_file_read(const char *path);

#endif
