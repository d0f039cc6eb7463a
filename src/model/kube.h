/* model/kube.h: Pods in Kubernetes' words.
 *
 * A document of kind Pod (apiVersion v1), or a Deployment (apps/v1) with one replica, becomes a
 * workload of type container whose spec.pod is a Pod as text; other kinds are refused with a
 * sentence. The engine that runs it gets the Pod under a name of berth's, with berth's labels, and
 * with restartPolicy Never: restarts are berth's own. Pure; thread-safe; the caps of manifest.h,
 * and KUBE_MAX_CONTAINERS.
 */
#ifndef BERTH_MODEL_KUBE_H
#define BERTH_MODEL_KUBE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "records.pb-c.h"

#define KUBE_MAX_CONTAINERS 64

/* What berth itself needs to know of a Pod. In the arena. */
struct kube_pod {
        const char *name;       /* metadata.name */
        Pb__Resources *needs;   /* the sum of requests (or limits) of its containers */
        Pb__Restart__E restart; /* of restartPolicy; unset: not given */
        Pb__Port **ports;       /* those with a hostPort */
        size_t n_ports;
        size_t n_containers;
};
int kube_pod_read(const char *text, size_t len, struct arena *arena, struct kube_pod *ret,
                  struct err *err);

/* A Pod or a Deployment as a workload, not yet normalised. name: of the file, first_line: where the
 * document begins in it, both for messages. */
int kube_workload_read(const char *name, unsigned first_line, const char *text, size_t len,
                       struct arena *arena, Pb__Workload **ret, struct err *err);

struct kube_label {
        const char *key, *value;
};
/* The Pod for the engine, as JSON (which is YAML). Every container gets the variables that it does
 * not set itself. */
int kube_pod_write(const char *text, size_t len, const char *name, const struct kube_label *labels,
                   size_t n_labels, const struct kube_label *env, size_t n_env, struct str *out,
                   struct err *err);

#endif
