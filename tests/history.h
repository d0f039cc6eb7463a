/* tests/history.h: what a busy cluster commits: a run of the real core with played agents, kept as
 * its batches.
 *
 * From one seed: users apply, change, stop, start, retry and delete; agents report starts,
 * failures, exits and removals; nodes fall silent and return; time passes. Batches are cut after a
 * varying number of inputs. The same seed gives the same batches, byte for byte.
 */
#ifndef BERTH_TESTS_HISTORY_H
#define BERTH_TESTS_HISTORY_H

#include "base/array.h"
#include "core/core.h"

struct history {
        ARRAY(struct core_batch *) batches; /* those with something to commit, in order */
        uint64_t events, replies;
        uint64_t by_type[64]; /* events by Pb__EventType__E */
};

void history_make(struct history *h, uint64_t seed, uint64_t events);
void history_fini(struct history *h);

#endif
