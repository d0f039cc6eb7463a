/* agent/runtimes/container.h: how the agent wants containers. */
#ifndef BERTH_AGENT_CONTAINER_H
#define BERTH_AGENT_CONTAINER_H

#include "agent/runtime.h"
#include "agent/runtimes/proc.h"

/* The extra of runtime_options for runtime_container; in node_options for runtime_node. */
struct container_options {
        /* "podman", "docker", "none"; NULL or "": podman if there is one, quietly none otherwise */
        const char *engine;
        /* NULL: where the engine usually listens, or one that berth starts */
        const char *socket;
        /* of podman's storage, when berth starts it; NULL: podman's own */
        const char *root, *runroot;
        /* an engine that answers no start for this long is no runtime any more; 0: half a minute */
        int64_t away_ms;
};

/* Containers, pods and compose units, by Docker's REST API on a unix socket; on podman also by its
 * own routes (pods, probe). */
extern const struct runtime_ops runtime_container;

/* Appends the first process of each container that runs. */
void container_pids(struct runtime *rt, pid_list *out);

#endif
