/* tests/fault_point.h: the n-th system call fails. Linked into a test program, it stands before
 * libc for all libraries of the process.
 *
 * Opening, reading, writing, syncing, renaming and truncating files, and accepting, receiving and
 * sending on sockets, fail with an error that fits (ENOSPC, EIO, EMFILE, ECONNRESET, EPIPE), or
 * with EINTR. What cannot fail in real life (eventfds, standard error) never does. One fault per
 * arming, on whichever thread comes first, except those that are spared.
 */
#ifndef BERTH_TESTS_FAULT_POINT_H
#define BERTH_TESTS_FAULT_POINT_H

#include "base/macros.h"

enum fault_kind { FAULT_CALL, FAULT_INTERRUPT, _FAULT_KINDS };

void fault_spare_this_thread(void); /* the test's own side */
void fault_arm(enum fault_kind kind, uint64_t nth);
/* What failed ("open", "fdatasync"...); NULL: the run was over before the n-th. Nothing fails after
 * this. */
const char *fault_disarm(void);

#endif
