/* store/memory.h: a store in memory, for tests and the simulator.
 *
 * A disk outlives the stores opened on it, so a test can "crash" a server (close the store, or
 * simply open it again after close) and find what was committed. Like a file, a disk is open at
 * most once at a time (S5). store_open("memory:") is a store with a disk of its own that goes away
 * with it. Deterministic: the same calls give the same results; no clock, no threads of its own.
 *
 * Threads: as store.h says; memory_fail_commit() and memory_set_away() from any thread.
 */
#ifndef BERTH_STORE_MEMORY_H
#define BERTH_STORE_MEMORY_H

#include "store/store.h"

struct memory_disk;

struct memory_disk *memory_disk_create(void);
void memory_disk_destroy(struct memory_disk *d); /* every store and reader on it must be closed */
static inline void memory_disk_destroyp(struct memory_disk **d)
{
        if (*d)
                memory_disk_destroy(*d);
}

int memory_open(struct memory_disk *d, struct store **ret_store, struct err *err);

enum memory_fault {
        MEMORY_FAULT_NONE,
        MEMORY_FAULT_BEFORE, /* -ERR_UNAVAILABLE, nothing was written */
        MEMORY_FAULT_AFTER,  /* -ERR_UNAVAILABLE, though all of it was written */
};

/* The nth commit from now (1: the next) fails once. 0: no more faults. One is pending at a time. */
void memory_fail_commit(struct memory_disk *d, uint64_t nth, enum memory_fault fault);
/* While away, everything but close returns -ERR_UNAVAILABLE. */
void memory_set_away(struct memory_disk *d, bool away);
/* Pretend that a berth of another schema wrote the disk (tests). */
void memory_set_schema(struct memory_disk *d, int schema);

#endif
