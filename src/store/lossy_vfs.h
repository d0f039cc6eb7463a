/* store/lossy_vfs.h: a file layer for SQLite that forgets what was not synced. For tests; never
 * part of a server.
 *
 * It writes through to real files and remembers every write since the file's last sync. lossy_cut()
 * lets the machine (or the process) die after so many more operations: from then on everything
 * fails. lossy_power_loss() then makes the disk look as after a power failure: of each unsynced
 * write an arbitrary choice of 512-byte sectors is there, the rest is as it was at the last sync.
 * Without that call the writes stay, as after kill -9.
 *
 * Use: lossy_register(), then open a store with "?vfs=lossy". One simulated machine per process;
 * thread-safe.
 */
#ifndef BERTH_STORE_LOSSY_VFS_H
#define BERTH_STORE_LOSSY_VFS_H

#include "base/clock.h"

void lossy_register(void);
/* Everything fails after this many more writes, syncs and truncations. < 0: never. Also brings the
 * machine back to life. */
void lossy_cut(int64_t operations);
bool lossy_is_dead(void);
int64_t lossy_operations(void); /* writes, syncs and truncations since the last lossy_cut() */
/* Once every file is closed. rng NULL: of what was not synced nothing is there. */
void lossy_power_loss(struct rng *rng);
void lossy_forget(void); /* all is as if synced; frees the memory */

#endif
