/* server/push_spec.c: see push_spec.h. */
#include "server/push_spec.h"

#include "base/str.h"
#include "model/json.h"
#include "model/pb.h"
#include <stdio.h>
#include <string.h>

#define VM_DISK_GB 20
#define VM_IMAGES "/var/lib/libvirt/images"
/* annotation: the agent's own VMSpec as base64 of JSON; replaces the vm part */
#define VM_SPEC_KEY "persys.vm_spec_b64"
#define VM_SPEC_MAX (256 * 1024)

/* ---- revisions ---- */

char *push_revision(struct arena *arena, const char *revision, uint64_t epoch, uint64_t seq)
{
        return arena_printf(arena, "%s@%llu.%llu", revision ? revision : "",
                            (unsigned long long)epoch, (unsigned long long)seq);
}

static bool digits(const char **at, uint64_t *ret)
{
        char text[21];
        size_t n = strspn(*at, "0123456789");
        if (n == 0 || n >= sizeof(text) || (n > 1 && **at == '0'))
                return false;
        memcpy(text, *at, n);
        text[n] = 0;
        *at += n;
        return str_parse_u64(text, ret) == 0;
}

bool push_revision_parse(const char *text, size_t *ret_len, uint64_t *ret_epoch, uint64_t *ret_seq)
{
        const char *at = text ? strrchr(text, '@') : NULL, *p = at ? at + 1 : NULL;
        uint64_t epoch, seq;
        if (!at || !digits(&p, &epoch) || *p++ != '.' || !digits(&p, &seq) || *p || seq == 0)
                return false;
        *ret_len = (size_t)(at - text);
        *ret_epoch = epoch;
        *ret_seq = seq;
        return true;
}

/* ---- base64 ---- */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *base64(struct arena *arena, const char *text)
{
        size_t len = strlen(text), n = 0;
        const unsigned char *in = (const unsigned char *)text;
        char *out = arena_alloc(arena, (len + 2) / 3 * 4 + 1);
        for (size_t i = 0; i < len; i += 3) {
                size_t left = len - i;
                uint32_t v = (uint32_t)in[i] << 16 | (uint32_t)(left > 1 ? in[i + 1] : 0) << 8 |
                             (left > 2 ? in[i + 2] : 0);
                out[n++] = alphabet[v >> 18 & 63];
                out[n++] = alphabet[v >> 12 & 63];
                out[n++] = left > 1 ? alphabet[v >> 6 & 63] : '=';
                out[n++] = left > 2 ? alphabet[v & 63] : '=';
        }
        return out;
}

/* NULL: not base64. */
static char *unbase64(struct arena *arena, const char *text, size_t *ret_len)
{
        size_t len = strlen(text), n = 0;
        uint32_t v = 0, bits = 0;
        char *out = arena_alloc(arena, len / 4 * 3 + 4);
        while (len > 0 && text[len - 1] == '=')
                len--;
        for (size_t i = 0; i < len; i++) {
                const char *c = strchr(alphabet, text[i]);
                if (!c)
                        return NULL;
                v = v << 6 | (uint32_t)(c - alphabet);
                bits += 6;
                if (bits >= 8) {
                        bits -= 8;
                        out[n++] = (char)(v >> bits & 255);
                }
        }
        *ret_len = n;
        return out;
}

/* ---- parts ---- */

static int cannot(struct err *err, const char *path, const char *what, const char *hint)
{
        return err_set(err, ERR_INVALID,
                       .msg = fmt("%s cannot be given to an agent that is called", what),
                       .path = path, .hint = hint);
}

static void copy_env(struct arena *arena, ProtobufCMessage *to, const char *field,
                     const void *entries, size_t n)
{
        struct pb_entry *const *e = entries;
        for (size_t i = 0; i < n; i++)
                pb_map_set(arena, to, field, e[i]->key, e[i]->value);
}

static char **copy_texts(struct arena *arena, char *const *from, size_t n)
{
        char **to = arena_new_n(arena, char *, n + 1);
        for (size_t i = 0; i < n; i++)
                to[i] = arena_strdup(arena, from[i]);
        return to;
}

static void managed_volumes(struct arena *arena, const Pb__Spec *spec, Pa__ManagedVolumeSpec ***ret,
                            size_t *ret_n)
{
        Pa__ManagedVolumeSpec **to =
            arena_new_n(arena, Pa__ManagedVolumeSpec *, spec->n_managed_volumes + 1);
        for (size_t i = 0; i < spec->n_managed_volumes; i++) {
                const Pb__ManagedVolume *v = spec->managed_volumes[i];
                to[i] =
                    (Pa__ManagedVolumeSpec *)pb_new(arena, &pa__managed_volume_spec__descriptor);
                to[i]->name = arena_strdup(arena, v->name);
                to[i]->driver = arena_strdup(arena, v->driver);
                to[i]->size_gb = v->size_gb;
                to[i]->access_mode = arena_strdup(arena, v->access_mode);
                to[i]->fs_type = arena_strdup(arena, v->fs_type);
                to[i]->mount_path = arena_strdup(arena, v->mount_path);
                to[i]->read_only = v->read_only;
                to[i]->retain_policy = arena_strdup(arena, v->retain_policy);
        }
        *ret = to;
        *ret_n = spec->n_managed_volumes;
}

/* ---- containers ---- */

static int container_fits(const Pb__Workload *w, struct err *err)
{
        const Pb__Spec *s = w->spec;
        if (!str_empty(s->pod))
                return cannot(err, "spec.pod", "a pod",
                              "name an image, or run it on a node with berth's own agent");
        if (str_empty(s->image))
                return err_set(err, ERR_INVALID, .msg = "a container needs an image",
                               .path = "spec.image");
        if (s->n_capabilities)
                return cannot(err, "spec.capabilities", "added capabilities",
                              "run it on a node with berth's own agent");
        if (s->privileged)
                return cannot(err, "spec.privileged", "privileged",
                              "run it on a node with berth's own agent");
        if (!str_empty(s->network))
                return cannot(err, "spec.network", "a network mode",
                              "leave it out, or run it on a node with berth's own agent");
        if (!str_empty(s->workdir))
                return cannot(err, "spec.workdir", "a working directory", "set it in the image");
        if (!str_empty(s->user))
                return cannot(err, "spec.user", "a user", "set it in the image");
        if (s->health)
                return cannot(err, "spec.health", "a health check",
                              "leave it out, or run it on a node with berth's own agent");
        if (s->pull == PB__PULL__E__always || s->pull == PB__PULL__E__never)
                return cannot(err, "spec.pull", "a pull policy",
                              "leave it out: the agent fetches images that are missing");
        return 0;
}

static Pa__RestartPolicy *restart_policy(struct arena *arena, const Pb__Workload *w)
{
        Pa__RestartPolicy *p = (Pa__RestartPolicy *)pb_new(arena, &pa__restart_policy__descriptor);
        switch (w->restart) {
        case PB__RESTART__E__never:
                p->policy = "no";
                break;
        case PB__RESTART__E__on_failure:
                p->policy = "on-failure";
                p->max_retry_count =
                    w->retry && w->retry->max_attempts != INT32_MAX ? w->retry->max_attempts : 0;
                break;
        default:
                p->policy = "always";
                break;
        }
        return p;
}

static void container_mounts(struct arena *arena, const Pb__Spec *s, Pa__ContainerSpec *c)
{
        c->volumes = arena_new_n(arena, Pa__VolumeMount *, s->n_volumes + 1);
        c->n_volumes = s->n_volumes;
        for (size_t i = 0; i < s->n_volumes; i++) {
                c->volumes[i] = (Pa__VolumeMount *)pb_new(arena, &pa__volume_mount__descriptor);
                c->volumes[i]->host_path = arena_strdup(arena, s->volumes[i]->host_path);
                c->volumes[i]->container_path = arena_strdup(arena, s->volumes[i]->container_path);
                c->volumes[i]->read_only = s->volumes[i]->read_only;
        }
        c->ports = arena_new_n(arena, Pa__PortMapping *, s->n_ports + 1);
        c->n_ports = s->n_ports;
        for (size_t i = 0; i < s->n_ports; i++) {
                c->ports[i] = (Pa__PortMapping *)pb_new(arena, &pa__port_mapping__descriptor);
                c->ports[i]->host_port = s->ports[i]->host_port;
                c->ports[i]->container_port = s->ports[i]->container_port;
                c->ports[i]->protocol = str_empty(s->ports[i]->protocol)
                                            ? "tcp"
                                            : arena_strdup(arena, s->ports[i]->protocol);
        }
        managed_volumes(arena, s, &c->managed_volumes, &c->n_managed_volumes);
}

static int container(struct arena *arena, const Pb__Workload *w, Pa__WorkloadSpec *spec,
                     struct err *err)
{
        const Pb__Spec *s = w->spec;
        int r = container_fits(w, err);
        if (r < 0)
                return r;
        Pa__ContainerSpec *c = (Pa__ContainerSpec *)pb_new(arena, &pa__container_spec__descriptor);
        c->image = arena_strdup(arena, s->image);
        c->command = copy_texts(arena, s->command, s->n_command);
        c->n_command = s->n_command;
        c->args = copy_texts(arena, s->args, s->n_args);
        c->n_args = s->n_args;
        copy_env(arena, &c->base, "env", s->env, s->n_env);
        /* the user's labels, and nothing that berth knows besides (B-16) */
        copy_env(arena, &c->base, "labels", w->labels, w->n_labels);
        container_mounts(arena, s, c);
        if (w->resources && (w->resources->cpu > 0 || w->resources->memory_mb > 0)) {
                c->resources =
                    (Pa__ResourceLimits *)pb_new(arena, &pa__resource_limits__descriptor);
                c->resources->cpu_shares = w->resources->cpu;
                c->resources->memory_bytes = w->resources->memory_mb * 1024 * 1024;
        }
        c->restart_policy = restart_policy(arena, w);
        spec->spec_case = PA__WORKLOAD_SPEC__SPEC_CONTAINER;
        spec->container = c;
        return 0;
}

/* ---- compose ---- */

static int compose(struct arena *arena, const Pb__Workload *w, Pa__WorkloadSpec *spec,
                   struct err *err)
{
        if (str_empty(w->spec->compose))
                return err_set(err, ERR_INVALID,
                               .msg = "a compose workload needs the text of its file",
                               .path = "spec.compose");
        if (w->spec->health)
                return cannot(err, "spec.health", "a health check", "put it into the compose file");
        Pa__ComposeSpec *c = (Pa__ComposeSpec *)pb_new(arena, &pa__compose_spec__descriptor);
        c->project_name = arena_strdup(arena, w->id);
        c->compose_yaml = base64(arena, w->spec->compose);
        copy_env(arena, &c->base, "env", w->spec->env, w->spec->n_env);
        spec->spec_case = PA__WORKLOAD_SPEC__SPEC_COMPOSE;
        spec->compose = c;
        return 0;
}

/* ---- virtual machines ---- */

static bool is_default_pool(const char *name)
{
        return str_empty(name) || str_eq(name, "default") || str_eq(name, "root") ||
               str_eq(name, "local");
}

static int vm_disk(struct arena *arena, const Pb__Workload *w, size_t i, Pa__DiskConfig **ret,
                   struct err *err)
{
        const Pb__VmDisk *from = w->spec->vm->disks[i];
        if (!is_default_pool(from->pool_name))
                return cannot(err, fmt("spec.vm.disks[%zu].pool_name", i), "a storage pool",
                              "leave it out: the agent uses its own");
        Pa__DiskConfig *d = (Pa__DiskConfig *)pb_new(arena, &pa__disk_config__descriptor);
        const char *device = from->mount_point;
        if (str_starts(device, "/dev/"))
                device += 5;
        if (str_empty(device))
                device = arena_printf(arena, "vd%c", (char)('a' + (i < 26 ? i : 25)));
        if (strchr(device, '/'))
                return err_set(err, ERR_INVALID, .msg = "a disk's mount point must name a device",
                               .detail = from->mount_point,
                               .path = fmt("spec.vm.disks[%zu].mount_point", i),
                               .hint = "for example vda, or nothing");
        d->device = arena_strdup(arena, device);
        d->format = "qcow2";
        d->size_gb = from->size_gb > 0 ? from->size_gb : VM_DISK_GB;
        d->path = arena_printf(arena, VM_IMAGES "/%s-%s.qcow2", w->id, d->device);
        d->type = "disk";
        d->boot = i == 0;
        *ret = d;
        return 0;
}

static int vm_written_out(struct arena *arena, const char *text, Pa__WorkloadSpec *spec,
                          struct err *err)
{
        size_t len = 0;
        char *json = unbase64(arena, text, &len);
        ProtobufCMessage *m = NULL;
        if (!json)
                return err_set(err, ERR_INVALID, .msg = "it is not base64",
                               .path = "annotations." VM_SPEC_KEY);
        int r = json_read(&pa__vmspec__descriptor, json, len, VM_SPEC_MAX,
                          JSON_INT64_AS_STRING | JSON_IGNORE_UNKNOWN, arena, &m, err);
        if (r < 0)
                return err_prefix(err, "annotations." VM_SPEC_KEY);
        spec->spec_case = PA__WORKLOAD_SPEC__SPEC_VM;
        spec->vm = (Pa__VMSpec *)m;
        return 0;
}

static int vm_parts(struct arena *arena, const Pb__Workload *w, Pa__VMSpec *v, struct err *err)
{
        const Pb__Vm *from = w->spec->vm;
        v->disks = arena_new_n(arena, Pa__DiskConfig *, from->n_disks + 1);
        v->n_disks = from->n_disks;
        for (size_t i = 0; i < from->n_disks; i++) {
                int r = vm_disk(arena, w, i, &v->disks[i], err);
                if (r < 0)
                        return r;
        }
        v->networks = arena_new_n(arena, Pa__NetworkConfig *, from->n_networks + 1);
        v->n_networks = from->n_networks;
        for (size_t i = 0; i < from->n_networks; i++) {
                v->networks[i] =
                    (Pa__NetworkConfig *)pb_new(arena, &pa__network_config__descriptor);
                v->networks[i]->network = arena_strdup(arena, from->networks[i]->bridge);
                v->networks[i]->ip_address = arena_strdup(arena, from->networks[i]->static_ip);
        }
        if (from->cloud_init) {
                v->cloud_init_config =
                    (Pa__CloudInitConfig *)pb_new(arena, &pa__cloud_init_config__descriptor);
                v->cloud_init_config->user_data = arena_strdup(arena, from->cloud_init->user_data);
                v->cloud_init_config->meta_data = arena_strdup(arena, from->cloud_init->meta_data);
                v->cloud_init_config->network_config =
                    arena_strdup(arena, from->cloud_init->network_config);
                v->cloud_init_config->vendor_data =
                    arena_strdup(arena, from->cloud_init->vendor_data);
        }
        return 0;
}

static int vm(struct arena *arena, const Pb__Workload *w, Pa__WorkloadSpec *spec, struct err *err)
{
        const char *written = pb_map_get(w->annotations, w->n_annotations, VM_SPEC_KEY);
        if (written)
                return vm_written_out(arena, written, spec, err);
        const Pb__Vm *from = w->spec->vm;
        if (!from)
                return err_set(err, ERR_INVALID, .msg = "a vm workload needs its machine",
                               .path = "spec.vm");
        if (!str_empty(from->os_image))
                return cannot(err, "spec.vm.os_image", "an image of an operating system",
                              "give it a disk that holds one");
        Pa__VMSpec *v = (Pa__VMSpec *)pb_new(arena, &pa__vmspec__descriptor);
        int64_t cpu = w->resources ? w->resources->cpu : 0,
                memory_mb = w->resources ? w->resources->memory_mb : 0;
        v->name = arena_strdup(arena, w->id);
        v->vcpus = from->vcpus > 0 ? from->vcpus : cpu > 1000 ? (int32_t)((cpu + 999) / 1000) : 1;
        v->memory_mb = from->memory_mb > 0 ? from->memory_mb : memory_mb;
        managed_volumes(arena, w->spec, &v->managed_volumes, &v->n_managed_volumes);
        spec->spec_case = PA__WORKLOAD_SPEC__SPEC_VM;
        spec->vm = v;
        return vm_parts(arena, w, v, err);
}

/* ---- the whole ---- */

int push_apply_request(struct arena *arena, const Pb__Workload *w, uint64_t epoch, uint64_t seq,
                       bool running, Pa__ApplyWorkloadRequest **ret_request, struct err *err)
{
        static const Pb__Spec nothing = PB__SPEC__INIT;
        Pb__Workload copy = *w;
        if (!copy.spec)
                copy.spec = (Pb__Spec *)&nothing;
        Pa__ApplyWorkloadRequest *q =
            (Pa__ApplyWorkloadRequest *)pb_new(arena, &pa__apply_workload_request__descriptor);
        q->id = arena_strdup(arena, w->id);
        q->revision_id = push_revision(arena, w->revision_id, epoch, seq);
        q->desired_state = running ? PA__DESIRED_STATE__DESIRED_STATE_RUNNING
                                   : PA__DESIRED_STATE__DESIRED_STATE_STOPPED;
        q->spec = (Pa__WorkloadSpec *)pb_new(arena, &pa__workload_spec__descriptor);
        int r;
        switch (w->type) {
        case PB__WORKLOAD_TYPE__E__container:
                q->type = PA__WORKLOAD_TYPE__WORKLOAD_TYPE_CONTAINER;
                r = container(arena, &copy, q->spec, err);
                break;
        case PB__WORKLOAD_TYPE__E__compose:
                q->type = PA__WORKLOAD_TYPE__WORKLOAD_TYPE_COMPOSE;
                r = compose(arena, &copy, q->spec, err);
                break;
        case PB__WORKLOAD_TYPE__E__vm:
                q->type = PA__WORKLOAD_TYPE__WORKLOAD_TYPE_VM;
                r = vm(arena, &copy, q->spec, err);
                break;
        default:
                r = cannot(err, "type", "this type of workload",
                           "container, compose and vm are what such agents know");
                break;
        }
        if (r < 0)
                return r;
        *ret_request = q;
        return 0;
}
