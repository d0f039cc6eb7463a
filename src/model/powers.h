/* model/powers.h: what a definition asks for beyond an ordinary unit, and whether a policy
 * (proto/config.proto) allows it. Pure.
 *
 *      privileged       all of the machine: spec.privileged, and whatever of a pod comes to the
 *                       same (hostPID, unmasked /proc, ...)
 *      capabilities     more than the engine's default, or any for a process
 *      host_network     the node's own network
 *      host_paths       files of the node in a container
 *      root_processes   a process with the rights of the agent, which usually is root. Root inside
 *                       a container is no power.
 *
 * What cannot be read asks for everything: a policy is never got around by a text that only the
 * engine understands. So do variables in a Compose file: berth puts nothing in for them, but agents
 * that are called (push.h) give the file to an engine that does.
 */
#ifndef BERTH_MODEL_POWERS_H
#define BERTH_MODEL_POWERS_H

#include "base/arena.h"
#include "base/err.h"
#include "config.pb-c.h"
#include "records.pb-c.h"

enum power {
        POWER_PRIVILEGED,
        POWER_CAPABILITIES,
        POWER_HOST_NETWORK,
        POWER_HOST_PATHS,
        POWER_ROOT_PROCESSES,
        _POWER_MAX
};
#define POWERS_ALL "all" /* as a word of --allow */

/* The key of the policy, which is also the word of --allow: "host_network". */
const char *power_name(enum power p);

struct power_asked {
        enum power power;
        const char *what;  /* NET_ADMIN, /etc; "": there is nothing to say */
        const char *where; /* "spec.privileged" */
        /* what has a $: only a policy that allows whatever it becomes allows it */
        bool variable;
};
struct powers {
        struct power_asked *at;
        size_t n;
};
/* In the arena, sharing texts with w. w was normalised. */
void powers_of(struct arena *arena, const Pb__Workload *w, struct powers *ret);

/* The first that the policy does not allow; NULL: all are. A policy that is NULL allows nothing. */
const struct power_asked *powers_refused(const Pb__Policy *policy, const struct powers *asked);

/* Does the process run as a user of its own, without privileges? That is the rule; who may have
 * root processes has them as before. */
bool policy_confines(const Pb__Policy *policy, const Pb__Workload *w);

/* That of a tenant, or the one for all others; NULL: there is none. */
const Pb__Policy *policy_for(const Pb__ServerConfig *config, const char *tenant);

/* "all", or words such as "privileged, host_paths". Lives in the arena. */
int policy_from_words(struct arena *arena, const char *words, Pb__Policy **ret, struct err *err);

/* A capability's number by its name without CAP_; -1: there is no such one. */
int capability_number(const char *name);

#endif
