/* store/sqlite_lock.h: one process at a time.
 *
 * A file beside the database, locked with flock() for as long as the store is open and by the
 * kernel's word alone: it ends with the process, however that ends. The pid inside is only for the
 * message to whoever is refused. The file is never removed, since removing it would let two
 * processes hold "the" lock on two files of one name. A forked child gives its copy of the
 * descriptor back at once (pthread_atfork), so a child that outlives the server does not keep the
 * next one out; programs started by exec never see it (O_CLOEXEC).
 */
#ifndef BERTH_STORE_SQLITE_LOCK_H
#define BERTH_STORE_SQLITE_LOCK_H

#include "base/err.h"

struct store_lock {
        int fd;
        struct store_lock *next;
};

/* -ERR_CONFLICT: held; the detail names the process. The lock must stay where it is in memory until
 * released. */
int store_lock_take(struct store_lock *lock, const char *path, struct err *err);
void store_lock_release(struct store_lock *lock); /* fine if it was never taken and fd is -1 */

#endif
