/* model/manifest.h: what users write in files: YAML or JSON (which is YAML), one or several
 * documents.
 *
 *      kind: Workload              optional
 *      id: web
 *      spec: {command: [sh, -c, "sleep 1000"], env: {PORT: 8080}}
 *      resources: {cpu: 250m, memory_mb: 64}
 *
 * A scalar means what the field it stands for makes of it: 8080 and yes are text in env, cpu takes
 * 0.5 and 250m. A document may also be a list of workloads, or an object with `items`, as `berth
 * get workloads -o yaml` prints. Empty documents count for nothing. A Pod, or a Deployment with one
 * replica, in Kubernetes' words becomes a workload as well (model/kube.h).
 *
 * Caps: MANIFEST_MAX_BYTES, MANIFEST_MAX_DEPTH, MANIFEST_MAX_EVENTS, MANIFEST_MAX_WORKLOADS.
 * Anchors, aliases and tags are refused, and so are duplicate and unknown keys. Errors:
 * "file:line:column: path: what"; the path is in err->path as well. Thread-safe.
 */
#ifndef BERTH_MODEL_MANIFEST_H
#define BERTH_MODEL_MANIFEST_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "records.pb-c.h"

#define MANIFEST_MAX_BYTES (1024 * 1024)
#define MANIFEST_MAX_DEPTH 100
#define MANIFEST_MAX_EVENTS 100000
#define MANIFEST_MAX_WORKLOADS 10000

struct manifest_item {
        Pb__Workload *workload; /* as written: not yet checked or normalised (model/validate.h) */
        unsigned line;          /* where it begins, from 1 */
};
struct manifest {
        struct manifest_item *items; /* in the arena */
        size_t n_items;
};

/* name is for messages: the file's name, or "standard input". */
int manifest_read(const char *name, const char *text, size_t len, struct arena *arena,
                  struct manifest *ret, struct err *err);

/* Any one message from one YAML document. */
int yaml_read(const ProtobufCMessageDescriptor *type, const char *name, const char *text,
              size_t len, struct arena *arena, ProtobufCMessage **ret_message, struct err *err);

/* The line (from 1) in which the value at this path begins ("rules[1].when"), or the nearest that
 * holds it; 0: the text is no YAML. */
unsigned yaml_line(const char *text, size_t len, const char *path);

/* Appends m as a YAML document without the "---". Reading it back gives the same message. An empty
 * message is "{}". */
void yaml_write(struct str *out, const ProtobufCMessage *m);

#endif
