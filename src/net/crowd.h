/* net/crowd.h: how many connections one address holds. Internal to src/net.
 *
 * A server takes a bounded number of connections, so whoever opens them all keeps everybody else
 * out. One address therefore has a part of them only; what counts is the owner's to say (gRPC:
 * those on which nobody was let in yet; HTTP: all).
 *
 * Addresses are counted in a fixed number of places, by a hash with a random seed: two that share a
 * place share the bound, and nobody can choose whom to share it with. Of an IPv6 address the first
 * 64 bits count: one machine has all of the rest.
 */
#ifndef BERTH_NET_CROWD_H
#define BERTH_NET_CROWD_H

#include "base/macros.h"

struct sockaddr;

enum { CROWD_PLACES = 4096 };

struct crowd {
        uint32_t max; /* 0: no bound, and nothing is counted */
        uint64_t seed;
        uint32_t n[CROWD_PLACES];
};

void crowd_init(struct crowd *crowd, uint32_t max);
uint32_t crowd_place(const struct crowd *crowd, const struct sockaddr *sa);
bool crowd_enter(struct crowd *crowd, uint32_t place); /* false: there are as many as may be */
/* one that entered has gone, or counts no more */
void crowd_leave(struct crowd *crowd, uint32_t place);

#endif
