/* agent/runtimes/container_spec.h: what the engine is asked to create, as JSON, and the names under
 * which units are found again. Pure. */
#ifndef BERTH_AGENT_CONTAINER_SPEC_H
#define BERTH_AGENT_CONTAINER_SPEC_H

#include "agent/runtime.h"
#include "base/str.h"

#define LABEL_WORKLOAD "berth.io/workload"
#define LABEL_NODE "berth.io/node"
#define LABEL_TOKEN "berth.io/token" /* "epoch.seq" */
#define LABEL_REVISION "berth.io/revision"
#define LABEL_CLUSTER "berth.io/cluster"
/* the service's or the pod container's name; "": the only one */
#define LABEL_PART "berth.io/part"
/* how many there are in all; absent: a pod, which is started as a whole */
#define LABEL_PARTS "berth.io/parts"

/* "berth-<id>-<6 letters of cluster and node>": agents on one machine can share an engine, those of
 * two clusters with one node's name too. Without a cluster the letters are the node's alone, as in
 * the names that berth gave before clusters were in them. */
void container_name(struct str *out, const char *cluster_id, const char *node_id,
                    const char *workload_id, const char *part);

struct container_def {
        const char *workload_id, *node_id, *cluster_id, *revision_id, *part;
        struct unit_token token;
        size_t n_parts;
        const Pb__Spec *spec;
        const Pb__Resources *resources; /* the unit's, each part may use as much; NULL: no limits */
        /* of the unit: a network's name; NULL: as the spec has it */
        const char *network;
        int64_t log_max_kb;
        /* parts that already run, by name: for engines without name service on their networks */
        const struct container_host {
                const char *name, *address;
        } * hosts;
        size_t n_hosts;
};
/* What every container finds in its environment. */
#define CONTAINER_OWN_ENV 4
struct container_env {
        const char *key;
        char value[257];
};
void container_own_env(const struct container_def *def,
                       struct container_env ret[CONTAINER_OWN_ENV]);

/* The body of POST /containers/create. */
void container_create_body(struct str *out, const struct container_def *def);

/* Text of a token as in the label; 0 or -1 back. */
void token_text(char buf[48], struct unit_token token);
int token_parse(const char *text, struct unit_token *ret);

/* "name" or "name:tag" with a tag: an engine that is asked for a name alone may fetch every tag. */
void image_query(struct str *out, const char *image); /* "fromImage=...&tag=..." */

#endif
