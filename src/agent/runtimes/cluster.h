/* agent/runtimes/cluster.h: a runtime whose machine is a whole berth cluster.
 *
 * The agent registers at its own server (the parent) as one node. What is placed on that node
 * becomes a workload of another server (the child), by the child's own API; the child places it,
 * keeps it running and tells what becomes of it. docs/federation.md is the page for people.
 *
 * How the promises of runtime.h are kept:
 *   (1) A unit is one workload of the child, named by the node and the unit's id, with the token of
 *       its start in an annotation. A start creates that workload and never changes one: a start
 *       that is asked for twice finds its own token and follows it; what is left of an earlier one
 *       is deleted first, and gone when the child says "not found".
 *   (2) Only what carries this node's label is ever stopped or deleted.
 *   (3) An answer that did not come is no answer: the child is asked again, with growing pauses,
 *       for as long as it takes. While it is away nothing changes here.
 *   (4) Every call has a deadline; at most CLUSTER_CALLS_MAX run at once, the other units wait in
 *       line.
 */
#ifndef BERTH_AGENT_CLUSTER_H
#define BERTH_AGENT_CLUSTER_H

#include "agent/runtime.h"

struct cluster_options {
        const char *address;                        /* "host:port" of the child's gRPC door */
        const char *ca_file, *cert_file, *key_file; /* TLS to it; all NULL: clear text */
        const char *token_file;                     /* the token that it knows us by; NULL: none */
        /* that its certificate must carry; NULL: the address's host */
        const char *server_name;
        /* 0: how long a start may wait for a place in the child, 10 s */
        int64_t place_wait_ms;
};

#endif
