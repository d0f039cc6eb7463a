/* server/facts.h: how the server itself is: disk, queues, limits, clock. For ClusterInfo, and so
 * for berth doctor. The io thread's. Internal. */
#ifndef BERTH_SERVER_FACTS_H
#define BERTH_SERVER_FACTS_H

#include "base/arena.h"
#include "server/io.h"

Pb__ServerFacts *server_facts(struct io *io, struct arena *memory);
/* Who leads, and which servers there are. */
void server_replicas(struct io *io, Pb__ClusterInfo *info, struct arena *memory);

/* Features that every server has which is there, this one included; any thread. *ret_lacking: those
 * that lack some, for people, in memory; NULL: none. */
uint32_t server_features(struct server *s, struct arena *memory, const char **ret_lacking);

#endif
