/* base/unit_hash.h: one number over all units of a node, computed alike by the agent and by the
 * core.
 *
 * An agent sends it with every heartbeat; a core that computes another one asks for the complete
 * list (drift, C27). It covers exactly what the agent's complete list shows: each unit's id, token
 * and state (Pb__ActualState__E; a Missing unit is not in the list).
 *
 * The sum of one hash per unit modulo 2^64, starting from 0: the order of the units does not
 * matter, and both sides can keep it up to date by taking the old hash away and adding the new one,
 * so that a heartbeat costs nothing per unit.
 *
 *      uint64_t sum = 0;
 *      for each unit: sum = units_hash_add(sum, id, token->epoch, token->seq, state);
 */
#ifndef BERTH_BASE_UNIT_HASH_H
#define BERTH_BASE_UNIT_HASH_H

#include "base/map.h"
#include <string.h>

static inline uint64_t unit_hash(const char *id, uint64_t epoch, uint64_t seq, int state)
{
        uint64_t h = hash64(id, strlen(id));

        h = hash64_mix(h, epoch);
        h = hash64_mix(h, seq);
        return hash64_mix(h, (uint64_t)state + 1);
}

static inline uint64_t units_hash_add(uint64_t sum, const char *id, uint64_t epoch, uint64_t seq,
                                      int state)
{
        return sum + unit_hash(id, epoch, seq, state);
}

static inline uint64_t units_hash_remove(uint64_t sum, const char *id, uint64_t epoch, uint64_t seq,
                                         int state)
{
        return sum - unit_hash(id, epoch, seq, state);
}

#endif
