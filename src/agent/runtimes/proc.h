/* agent/runtimes/proc.h: what /proc says: who a pid really is, who descends from whom, who carries a unit's mark. */
#ifndef BERTH_AGENT_PROC_H
#define BERTH_AGENT_PROC_H

#include "base/array.h"
#include "base/macros.h"
#include <sys/types.h>

#define BOOT_ID_LEN 36
/* Of this boot of the machine; "" if the kernel does not tell. The pointer stays valid. */
const char *proc_boot_id(void);

/* Start time of a pid in clock ticks since boot (field 22 of stat); 0: no such process, or a zombie, which runs nothing any more. */
uint64_t proc_start_time(pid_t pid);

typedef ARRAY(pid_t) pid_list;

/* All processes below pid, zombies not counted; by the kernel's list of children, or a scan of /proc. Appends. */
void proc_descendants(pid_t pid, pid_list *out);

/* Processes that belong to a unit although nobody watches over them: in the session of leader, or with mark ("BERTH_UNIT=...") in
 * their environment. A process in the session of a leader counts only if the leader is the one that was recorded (start time) or it carries the mark,
 * so that a stranger who got the pid is never touched. Appends. */
void proc_marked(pid_t leader, uint64_t leader_start, const char *mark, pid_list *out);

int pidfd_open_for(pid_t pid);                      /* close-on-exec; -1 with errno */
int pidfd_signal(int pidfd, int signal, int value); /* as sigqueue(3) */

#endif
