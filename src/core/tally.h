/* core/tally.h: how many there are of each number, for the few numbers of which there are any.
 *
 * A counter of placement (constraints.h) counts units per domain. There may be one domain per node
 * and one counter per application, so that most are zero: only the others take room. Open
 * addressing, linear probing, removal by shifting back; a look is a few nanoseconds. The order of
 * iteration must never decide anything.
 */
#ifndef BERTH_CORE_TALLY_H
#define BERTH_CORE_TALLY_H

#include "base/macros.h"

struct tally_slot {
        uint32_t key, count; /* count 0: empty */
};
struct tally {
        struct tally_slot *slots;
        uint32_t cap, len; /* cap: 0 or a power of two; len: keys that are not zero */
        uint64_t total;
};

void tally_fini(struct tally *t);
uint32_t tally_get(const struct tally *t, uint32_t key);
/* by is 1 or -1; returns the new count. Below zero ends the process. */
uint32_t tally_add(struct tally *t, uint32_t key, int by);

#endif
