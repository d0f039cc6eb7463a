/* model/kube.c: see kube.h. */
#include "model/kube.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/rules.h"
#include "model/validate.h"
#include "model/yaml_tree.h"
#include <string.h>

__extension__ typedef __int128 wide;

struct reader {
        const char *name; /* of the file */
        struct arena *arena;
        struct err *err;
};

static int fail(struct reader *r, const struct yaml_node *at, const char *what, const char *hint)
{
        return yaml_fail(r->name, at, what, hint, r->err);
}

static const char *text_of(const struct yaml_node *n)
{
        return n && n->kind == YAML_TEXT && !yaml_is_null(n) ? n->text : "";
}

/* ---- amounts ---- */

/* "500m", "0.5", "2": thousandths. */
static int add_cpu(struct reader *r, const struct yaml_node *n, int64_t *sum)
{
        int64_t milli;

        if (yaml_is_null(n))
                return 0;
        if (n->kind != YAML_TEXT || str_parse_milli(n->text, &milli) < 0 || milli < 0 ||
            milli > 1000000000)
                return fail(r, n, "expected cores, such as 500m or 0.5", NULL);
        *sum += milli;
        return 0;
}

/* "64Mi", "1G", "1e9" is not known; MiB, rounded up. Decimal suffixes are taken as powers of 1000,
 * as Kubernetes does. */
static int add_memory(struct reader *r, const struct yaml_node *n, int64_t *sum_mb)
{
        int64_t bytes;
        const char *s;
        size_t len;

        if (yaml_is_null(n))
                return 0;
        s = n->kind == YAML_TEXT ? n->text : "";
        len = strlen(s);
        if (str_parse_bytes(s, &bytes) < 0 || bytes < 0)
                return fail(r, n, "expected an amount of memory, such as 64Mi", NULL);
        /* str_parse_bytes takes powers of 1024 in every case */
        if (len > 1 && strchr("kKMGT", s[len - 1])) {
                static const int64_t thousands[] = { 1000, 1000000, 1000000000, 1000000000000 };
                unsigned power = s[len - 1] == 'M'   ? 1
                                 : s[len - 1] == 'G' ? 2
                                 : s[len - 1] == 'T' ? 3
                                                     : 0;

                bytes = (int64_t)((wide)bytes * thousands[power] >> (10 * (power + 1)));
        }
        *sum_mb += (bytes + (1 << 20) - 1) >> 20;
        return 0;
}

static int read_container(struct reader *r, const struct yaml_node *n, struct kube_pod *ret)
{
        const struct yaml_node *resources = yaml_get(n, "resources"),
                               *amounts = yaml_get(resources, "requests"),
                               *limits = yaml_get(resources, "limits"),
                               *ports = yaml_get(n, "ports");
        const struct yaml_node *cpu = yaml_get(amounts, "cpu"),
                               *memory = yaml_get(amounts, "memory");
        int rc;

        if (n->kind != YAML_MAP || str_empty(text_of(yaml_get(n, "name"))))
                return fail(r, n, "a container needs a name", NULL);
        if (str_empty(text_of(yaml_get(n, "image"))))
                return fail(r, n, "a container needs an image", NULL);
        rc = add_cpu(r, cpu ? cpu : yaml_get(limits, "cpu"), &ret->needs->cpu);
        if (rc == 0)
                rc = add_memory(r, memory ? memory : yaml_get(limits, "memory"),
                                &ret->needs->memory_mb);
        for (size_t i = 0; rc == 0 && ports && ports->kind == YAML_LIST && i < ports->n; i++) {
                const struct yaml_node *host = yaml_get(ports->at[i], "hostPort"),
                                       *inner = yaml_get(ports->at[i], "containerPort");
                const char *protocol = text_of(yaml_get(ports->at[i], "protocol"));
                uint64_t h, c;
                Pb__Port *p;

                if (!host)
                        continue;
                if (str_parse_u64(text_of(host), &h) < 0 || h < 1 || h > 65535 ||
                    str_parse_u64(text_of(inner), &c) < 0 || c < 1 || c > 65535)
                        return fail(r, ports->at[i],
                                    "expected containerPort and hostPort from 1 to 65535", NULL);
                if (ret->n_ports == 256)
                        return fail(r, ports, "has too many host ports, at most 256 are allowed",
                                    NULL);
                p = (Pb__Port *)pb_new(r->arena, &pb__port__descriptor);
                p->host_port = (int32_t)h;
                p->container_port = (int32_t)c;
                p->protocol = str_case_eq(protocol, "UDP")    ? "udp"
                              : str_case_eq(protocol, "SCTP") ? "sctp"
                                                              : "tcp";
                ret->ports[ret->n_ports++] = p;
        }
        return rc;
}

/* spec of a Pod, or of a Deployment's template. */
static int read_pod_spec(struct reader *r, const struct yaml_node *at, const struct yaml_node *spec,
                         struct kube_pod *ret)
{
        const struct yaml_node *containers = yaml_get(spec, "containers");
        const char *restart = text_of(yaml_get(spec, "restartPolicy"));
        int rc = 0;

        if (!containers || containers->kind != YAML_LIST || containers->n == 0)
                return fail(r, spec ? spec : at, "a pod needs spec.containers", NULL);
        if (containers->n > KUBE_MAX_CONTAINERS)
                return fail(r, containers,
                            fmt("has %zu containers, at most %d are allowed", containers->n,
                                KUBE_MAX_CONTAINERS),
                            NULL);
        ret->needs = (Pb__Resources *)pb_new(r->arena, &pb__resources__descriptor);
        ret->ports = arena_new_n(r->arena, Pb__Port *, 256);
        for (size_t i = 0; i < containers->n && rc == 0; i++)
                rc = read_container(r, containers->at[i], ret);
        ret->n_containers = containers->n;
        if (str_eq(restart, "Always"))
                ret->restart = PB__RESTART__E__always;
        else if (str_eq(restart, "OnFailure"))
                ret->restart = PB__RESTART__E__on_failure;
        else if (str_eq(restart, "Never"))
                ret->restart = PB__RESTART__E__never;
        else if (rc == 0 && restart[0])
                rc = fail(r, yaml_get(spec, "restartPolicy"), "expected Always, OnFailure or Never",
                          NULL);
        return rc;
}

static int check_kind(struct reader *r, const struct yaml_node *root, const char *kind,
                      const char *version)
{
        if (root->kind != YAML_MAP)
                return fail(r, root, "expected an object", NULL);
        if (!str_eq(text_of(yaml_get(root, "kind")), kind))
                return fail(r, yaml_get(root, "kind") ? yaml_get(root, "kind") : root,
                            fmt("expected kind %s", kind), NULL);
        if (!str_eq(text_of(yaml_get(root, "apiVersion")), version))
                return fail(r, yaml_get(root, "apiVersion") ? yaml_get(root, "apiVersion") : root,
                            fmt("expected apiVersion %s", version), NULL);
        return 0;
}

int kube_pod_read(const char *text, size_t len, struct arena *arena, struct kube_pod *ret,
                  struct err *err)
{
        struct reader r = { "pod", arena, err };
        struct yaml_node *root = NULL;
        struct kube_pod pod = { 0 };
        int rc = yaml_tree_read(r.name, 1, text, len, arena, &root, err);

        if (rc == 0)
                rc = check_kind(&r, root, "Pod", "v1");
        if (rc == 0)
                rc = read_pod_spec(&r, root, yaml_get(root, "spec"), &pod);
        if (rc < 0)
                return rc;
        pod.name = text_of(yaml_get(yaml_get(root, "metadata"), "name"));
        *ret = pod;
        return 0;
}

/* ---- documents as workloads ---- */

static int read_labels(struct reader *r, const struct yaml_node *labels, Pb__Workload *w)
{
        if (!labels || yaml_is_null(labels))
                return 0;
        if (labels->kind != YAML_MAP)
                return fail(r, labels, "expected an object", NULL);
        w->labels = arena_new_n(r->arena, Pb__Workload__LabelsEntry *, labels->n + 1);
        for (size_t i = 0; i < labels->n; i++) {
                Pb__Workload__LabelsEntry *e = (Pb__Workload__LabelsEntry *)pb_new(
                    r->arena, &pb__workload__labels_entry__descriptor);

                if (labels->at[i]->kind != YAML_TEXT)
                        return fail(r, labels->at[i], "expected a text", NULL);
                e->key = (char *)(uintptr_t)labels->at[i]->key;
                e->value = (char *)(uintptr_t)labels->at[i]->text;
                w->labels[w->n_labels++] = e;
        }
        return 0;
}

static int make_workload(struct reader *r, const struct yaml_node *root,
                         const struct yaml_node *metadata, const struct kube_pod *pod,
                         const char *pod_text, Pb__Workload **ret)
{
        Pb__Workload *w = (Pb__Workload *)pb_new(r->arena, &pb__workload__descriptor);
        const char *name = text_of(yaml_get(yaml_get(root, "metadata"), "name"));
        int rc;

        if (!id_is_valid(name))
                return fail(r, yaml_get(root, "metadata") ? yaml_get(root, "metadata") : root,
                            "metadata.name is missing or cannot be a workload's id",
                            "letters, digits, '.', '_' or '-', beginning with a letter or digit");
        w->id = (char *)(uintptr_t)name;
        w->type = PB__WORKLOAD_TYPE__E__container;
        w->spec = (Pb__Spec *)pb_new(r->arena, &pb__spec__descriptor);
        w->spec->pod = (char *)(uintptr_t)pod_text;
        if (pod->needs->cpu || pod->needs->memory_mb)
                w->resources = pod->needs; /* otherwise the default, as for any other */
        w->restart = pod->restart;
        rc = read_labels(r, yaml_get(metadata, "labels"), w);
        if (rc == 0)
                *ret = w;
        return rc;
}

/* A Deployment's template, as a Pod of the Deployment's name. */
static char *pod_of_template(struct reader *r, const struct yaml_node *root,
                             const struct yaml_node *template)
{
        const struct yaml_node *labels = yaml_get(yaml_get(template, "metadata"), "labels");
        const char *name = text_of(yaml_get(yaml_get(root, "metadata"), "name"));
        struct str out = STR_INIT;
        char *text;

        str_adds(&out, "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":");
        json_write_string(&out, name, strlen(name));
        if (labels && labels->kind == YAML_MAP) {
                str_adds(&out, ",\"labels\":");
                yaml_write_json(labels, &out);
        }
        str_adds(&out, "},\"spec\":");
        yaml_write_json(yaml_get(template, "spec"), &out);
        str_addc(&out, '}');
        text = arena_strndup(r->arena, str_c(&out), out.len);
        str_fini(&out);
        return text;
}

int kube_workload_read(const char *name, unsigned first_line, const char *text, size_t len,
                       struct arena *arena, Pb__Workload **ret, struct err *err)
{
        struct reader r = { name, arena, err };
        struct yaml_node *root = NULL;
        const struct yaml_node *spec, *template, *replicas;
        struct kube_pod pod = { 0 };
        const char *kind;
        int rc = yaml_tree_read(name, first_line, text, len, arena, &root, err);

        if (rc < 0)
                return rc;
        kind = text_of(yaml_get(root, "kind"));
        if (!str_eq(kind, "Pod") && !str_eq(kind, "Deployment"))
                return fail(
                    &r, yaml_get(root, "kind") ? yaml_get(root, "kind") : root,
                    fmt("berth does not run the kind %.60s",
                        kind[0] ? kind : "that is missing here"),
                    "known are Workload, Pod (v1) and Deployment (apps/v1) with one replica");
        spec = yaml_get(root, "spec");
        if (str_eq(kind, "Pod")) {
                rc = check_kind(&r, root, "Pod", "v1");
                if (rc == 0)
                        rc = read_pod_spec(&r, root, spec, &pod);
                return rc < 0 ? rc
                              : make_workload(&r, root, yaml_get(root, "metadata"), &pod,
                                              arena_strndup(arena, text, len), ret);
        }
        rc = check_kind(&r, root, "Deployment", "apps/v1");
        if (rc < 0)
                return rc;
        replicas = yaml_get(spec, "replicas");
        if (replicas && !str_eq(text_of(replicas), "1"))
                return fail(&r, replicas, "berth takes Deployments with one replica only",
                            "apply one Workload per replica");
        template = yaml_get(spec, "template");
        rc = read_pod_spec(&r, root, yaml_get(template, "spec"), &pod);
        if (rc < 0)
                return rc;
        return make_workload(&r, root, yaml_get(template, "metadata"), &pod,
                             pod_of_template(&r, root, template), ret);
}

/* ---- for the engine ---- */

static void write_metadata(const struct yaml_node *metadata, const char *name,
                           const struct kube_label *labels, size_t n_labels, struct str *out)
{
        const struct yaml_node *theirs = yaml_get(metadata, "labels");
        bool first = true;

        str_adds(out, "{\"name\":");
        json_write_string(out, name, strlen(name));
        for (size_t i = 0; metadata && metadata->kind == YAML_MAP && i < metadata->n; i++) {
                const struct yaml_node *m = metadata->at[i];

                if (str_eq(m->key, "name") || str_eq(m->key, "labels") ||
                    str_eq(m->key, "namespace"))
                        continue;
                str_addc(out, ',');
                json_write_string(out, m->key, strlen(m->key));
                str_addc(out, ':');
                yaml_write_json(m, out);
        }
        str_adds(out, ",\"labels\":{");
        for (size_t i = 0; i < n_labels; i++, first = false) {
                if (!first)
                        str_addc(out, ',');
                json_write_string(out, labels[i].key, strlen(labels[i].key));
                str_addc(out, ':');
                json_write_string(out, labels[i].value, strlen(labels[i].value));
        }
        for (size_t i = 0; theirs && theirs->kind == YAML_MAP && i < theirs->n; i++) {
                if (str_starts(theirs->at[i]->key, "berth.io/") || theirs->at[i]->kind != YAML_TEXT)
                        continue; /* those are berth's own */
                str_adds(out, first ? "" : ",");
                first = false;
                json_write_string(out, theirs->at[i]->key, strlen(theirs->at[i]->key));
                str_addc(out, ':');
                json_write_string(out, theirs->at[i]->text, strlen(theirs->at[i]->text));
        }
        str_adds(out, "}}");
}

static bool sets_env(const struct yaml_node *container, const char *name)
{
        const struct yaml_node *env = yaml_get(container, "env");

        for (size_t i = 0; env && env->kind == YAML_LIST && i < env->n; i++)
                if (str_eq(text_of(yaml_get(env->at[i], "name")), name))
                        return true;
        return false;
}

static void write_container(const struct yaml_node *container, const struct kube_label *env,
                            size_t n_env, struct str *out)
{
        const struct yaml_node *theirs = yaml_get(container, "env");
        bool first = true;

        str_adds(out, "{\"env\":[");
        for (size_t i = 0; theirs && theirs->kind == YAML_LIST && i < theirs->n;
             i++, first = false) {
                str_adds(out, first ? "" : ",");
                yaml_write_json(theirs->at[i], out);
        }
        for (size_t i = 0; i < n_env; i++) {
                if (sets_env(container, env[i].key))
                        continue;
                str_adds(out, first ? "{\"name\":" : ",{\"name\":");
                json_write_string(out, env[i].key, strlen(env[i].key));
                str_adds(out, ",\"value\":");
                json_write_string(out, env[i].value, strlen(env[i].value));
                str_addc(out, '}');
                first = false;
        }
        str_addc(out, ']');
        for (size_t i = 0; i < container->n; i++) {
                if (str_eq(container->at[i]->key, "env"))
                        continue;
                str_addc(out, ',');
                json_write_string(out, container->at[i]->key, strlen(container->at[i]->key));
                str_addc(out, ':');
                yaml_write_json(container->at[i], out);
        }
        str_addc(out, '}');
}

static void write_containers(const struct yaml_node *list, const struct kube_label *env,
                             size_t n_env, struct str *out)
{
        str_addc(out, '[');
        for (size_t i = 0; i < list->n; i++) {
                str_adds(out, i ? "," : "");
                if (list->at[i]->kind == YAML_MAP)
                        write_container(list->at[i], env, n_env, out);
                else
                        yaml_write_json(list->at[i], out);
        }
        str_addc(out, ']');
}

int kube_pod_write(const char *text, size_t len, const char *name, const struct kube_label *labels,
                   size_t n_labels, const struct kube_label *env, size_t n_env, struct str *out,
                   struct err *err)
{
        struct arena arena = ARENA_INIT;
        struct reader r = { "pod", &arena, err };
        struct yaml_node *root = NULL;
        const struct yaml_node *spec;
        int rc = yaml_tree_read(r.name, 1, text, len, &arena, &root, err);

        if (rc == 0)
                rc = check_kind(&r, root, "Pod", "v1");
        spec = rc == 0 ? yaml_get(root, "spec") : NULL;
        if (rc == 0 && (!spec || spec->kind != YAML_MAP))
                rc = fail(&r, root, "a pod needs spec.containers", NULL);
        if (rc == 0) {
                str_adds(out, "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":");
                write_metadata(yaml_get(root, "metadata"), name, labels, n_labels, out);
                str_adds(out, ",\"spec\":{\"restartPolicy\":\"Never\"");
                for (size_t i = 0; i < spec->n; i++) {
                        if (str_eq(spec->at[i]->key, "restartPolicy"))
                                continue;
                        str_addc(out, ',');
                        json_write_string(out, spec->at[i]->key, strlen(spec->at[i]->key));
                        str_addc(out, ':');
                        if (spec->at[i]->kind == YAML_LIST &&
                            (str_eq(spec->at[i]->key, "containers") ||
                             str_eq(spec->at[i]->key, "initContainers")))
                                write_containers(spec->at[i], env, n_env, out);
                        else
                                yaml_write_json(spec->at[i], out);
                }
                str_adds(out, "}}");
        }
        arena_fini(&arena);
        return rc;
}
