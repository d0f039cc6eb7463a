/* agent/runtimes/proc.h: what /proc says: who a pid really is, who descends from whom, who carries
 * a unit's mark.
 *
 * That something could not be looked at (no file descriptor or no memory was left) is no proof that
 * it is gone: such answers are their own, and whoever asks looks again later.
 */
#ifndef BERTH_AGENT_PROC_H
#define BERTH_AGENT_PROC_H

#include "base/array.h"
#include "base/macros.h"
#include <sys/types.h>

#define BOOT_ID_LEN 36
/* Of this boot of the machine; "" if the kernel does not tell. The pointer stays valid. */
const char *proc_boot_id(void);

/* Start time of a pid in clock ticks since boot (field 22 of stat); 0: no such process, or a
 * zombie, which runs nothing any more. */
uint64_t proc_start_time(pid_t pid);

enum proc_look {
        PROC_THERE,   /* it runs, and is the one that was meant */
        PROC_GONE,    /* proved: no such process, a zombie, or one with another start time */
        PROC_UNKNOWN, /* it could not be looked at now */
};
enum proc_look proc_look(pid_t pid, uint64_t start);

/* How many processes and threads the machine has started since its boot; 0: the kernel does not
 * tell. */
uint64_t proc_forks(void);

typedef ARRAY(pid_t) pid_list;

/* All processes below pid, zombies not counted; by the kernel's list of children, or a scan of
 * /proc. Appends. False: not all could be looked at. */
bool proc_descendants(pid_t pid, pid_list *out);

/* A session by its leader, who may have ended long ago. forks: proc_forks() when it began. */
struct proc_session {
        pid_t leader;
        uint64_t start; /* of the leader */
        uint64_t forks;
};
/* Processes that belong to a unit although nobody watches over them: in its session, or with mark
 * ("BERTH_UNIT=...") in their environment, which a program can overwrite. A session's number is not
 * given out again while it has members, and numbers are given out in turn: so as long as fewer
 * processes have been started since than there are numbers, whoever is in a session of that number
 * is in ours, even if its leader is gone. Otherwise the mark alone counts: a stranger is never
 * touched. Appends. False: not all could be looked at, so that nothing is proved. */
bool proc_marked(const struct proc_session *session, const char *mark, pid_list *out);

/* What a process and all below it have used: cpu in clock ticks since they began (what was reaped
 * counts on), and the memory of those that are there now. roots: in ascending order of pid; what is
 * below two of them counts for the nearest. */
struct proc_use {
        pid_t pid;
        bool without_memory; /* of the root itself: it only watches */
        uint64_t ticks, rss_bytes;
};
bool proc_use(struct proc_use *roots, size_t n); /* false: not all could be looked at */

int pidfd_open_for(pid_t pid);                      /* close-on-exec; -1 with errno */
int pidfd_signal(int pidfd, int signal, int value); /* as sigqueue(3) */

#endif
