/* server/persys_spec.c: what a workload runs, in the control dialect and in berth's. See
 * persys_map.h. */
#include "base/str.h"
#include "model/json.h"
#include "model/pb.h"
#include "server/persys_map.h"
#include <string.h>

#define NEW(arena, ns, name) pb_new((arena), &ns##__##name##__descriptor)
/* A whole machine in the words of foreign agents, which they are given instead of what spec.vm says
 * (push_spec.c). */
#define PERSYS_ATTEMPTS 5 /* of everything in that dialect, services too */
#define VM_SPEC_KEY "persys.vm_spec_b64"

static int refuse(struct err *err, const char *path, const char *what, const char *hint)
{
        return err_set(err, ERR_INVALID, .msg = fmt("%s: %s", path, what), .hint = hint,
                       .path = path);
}

/* ---- from the dialect ---- */

static int take_restart(const char *text, Pb__Workload *w, struct err *err)
{
        if (str_empty(text))
                return 0;
        /* a stop is a wish here, which outlives restarts */
        if (str_case_eq(text, "always") || str_case_eq(text, "unless-stopped"))
                w->restart = PB__RESTART__E__always;
        else if (str_case_eq(text, "on-failure"))
                w->restart = PB__RESTART__E__on_failure;
        else if (str_case_eq(text, "no") || str_case_eq(text, "never"))
                w->restart = PB__RESTART__E__never;
        else
                return refuse(err, "spec.container.restart_policy",
                              fmt("unknown value \"%.64s\"", text),
                              "one of always, unless-stopped, on-failure, no");
        return 0;
}

static void take_managed(struct arena *arena, Pc__ManagedVolumeSpec *const *from, size_t n,
                         Pb__Spec *spec)
{
        spec->managed_volumes = arena_alloc(arena, (n + 1) * sizeof(*spec->managed_volumes));
        spec->n_managed_volumes = n;
        for (size_t i = 0; i < n; i++) {
                Pb__ManagedVolume *v = (Pb__ManagedVolume *)NEW(arena, pb, managed_volume);
                v->name = from[i]->name;
                v->driver =
                    str_case_eq(from[i]->driver, "ceph_rbd") ? (char *)"ceph-rbd" : from[i]->driver;
                v->size_gb = from[i]->size_gb;
                v->access_mode = from[i]->access_mode;
                v->fs_type = from[i]->fs_type;
                v->mount_path = from[i]->mount_path;
                v->read_only = from[i]->read_only;
                v->retain_policy = from[i]->retain_policy;
                spec->managed_volumes[i] = v;
        }
}

static int take_container(struct arena *arena, const Pc__ContainerSpec *c, Pb__Workload *w,
                          struct err *err)
{
        Pb__Spec *spec = w->spec;
        spec->image = c->image;
        spec->command = c->command;
        spec->n_command = c->n_command;
        spec->privileged = c->privileged;
        pb_map_copy(arena, &spec->base, "env", c->env, c->n_env);
        spec->volumes = arena_alloc(arena, (c->n_volumes + 1) * sizeof(*spec->volumes));
        spec->n_volumes = c->n_volumes;
        for (size_t i = 0; i < c->n_volumes; i++) {
                Pb__VolumeMount *v = spec->volumes[i] =
                    (Pb__VolumeMount *)NEW(arena, pb, volume_mount);
                v->host_path = c->volumes[i]->host_path;
                v->container_path = c->volumes[i]->container_path;
                v->read_only = c->volumes[i]->read_only;
        }
        spec->ports = arena_alloc(arena, (c->n_ports + 1) * sizeof(*spec->ports));
        spec->n_ports = c->n_ports;
        for (size_t i = 0; i < c->n_ports; i++) {
                Pb__Port *p = spec->ports[i] = (Pb__Port *)NEW(arena, pb, port);
                p->host_port = c->ports[i]->host_port;
                p->container_port = c->ports[i]->container_port;
                p->protocol = arena_strdup(arena, c->ports[i]->protocol);
                for (char *s = p->protocol; *s; s++)
                        *s = *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;
        }
        take_managed(arena, c->managed_volumes, c->n_managed_volumes, spec);
        return take_restart(c->restart_policy, w, err);
}

static int take_compose(struct arena *arena, const Pc__ComposeSpec *c, Pb__Workload *w,
                        struct err *err)
{
        bool git =
            str_case_eq(c->source_type, "git") || !str_empty(c->git_repo) || !str_empty(c->git_ref);
        if (git)
                return refuse(err, "spec.compose.source_type",
                              "compose files are not fetched from git here",
                              "send the file's text as inline_yaml, with source_type inline");
        if (!str_empty(c->source_type) && !str_case_eq(c->source_type, "inline"))
                return refuse(err, "spec.compose.source_type",
                              fmt("unknown value \"%.64s\"", c->source_type),
                              "inline is the one that is served");
        if (str_empty(c->inline_yaml))
                return refuse(err, "spec.compose.inline_yaml", "is missing", NULL);
        w->spec->compose = c->inline_yaml;
        pb_map_copy(arena, &w->spec->base, "env", c->env, c->n_env);
        return 0;
}

static void take_vm_parts(struct arena *arena, const Pc__VMSpec *v, Pb__Vm *vm)
{
        vm->disks = arena_alloc(arena, (v->n_disks + 1) * sizeof(*vm->disks));
        vm->n_disks = v->n_disks;
        for (size_t i = 0; i < v->n_disks; i++) {
                Pb__VmDisk *d = vm->disks[i] = (Pb__VmDisk *)NEW(arena, pb, vm_disk);
                d->pool_name = v->disks[i]->pool_name;
                d->size_gb = v->disks[i]->size_gb;
                d->mount_point = v->disks[i]->mount_point;
        }
        vm->networks = arena_alloc(arena, (v->n_networks + 1) * sizeof(*vm->networks));
        vm->n_networks = v->n_networks;
        for (size_t i = 0; i < v->n_networks; i++) {
                Pb__VmNetwork *n = vm->networks[i] = (Pb__VmNetwork *)NEW(arena, pb, vm_network);
                n->bridge = v->networks[i]->bridge;
                n->dhcp = v->networks[i]->dhcp;
                n->static_ip = v->networks[i]->static_ip;
        }
        if (v->cloud_init) {
                vm->cloud_init = (Pb__CloudInit *)NEW(arena, pb, cloud_init);
                vm->cloud_init->user_data = v->cloud_init->user_data;
                vm->cloud_init->meta_data = v->cloud_init->meta_data;
                vm->cloud_init->network_config = v->cloud_init->network_config;
                vm->cloud_init->vendor_data = v->cloud_init->vendor_data;
        }
}

static int take_vm(struct arena *arena, const Pc__WorkloadSpec *s, Pb__Workload *w, struct err *err)
{
        const Pc__VMSpec *v = s->vm;
        bool elsewhere = pb_map_get(s->metadata, s->n_metadata, VM_SPEC_KEY) != NULL;
        if (v->vcpus < 1 && !elsewhere)
                return refuse(err, "spec.vm.vcpus", "must be at least 1", NULL);
        if (v->memory_mb < 1 && !elsewhere)
                return refuse(err, "spec.vm.memory_mb", "must be at least 1", NULL);
        Pb__Vm *vm = w->spec->vm = (Pb__Vm *)NEW(arena, pb, vm);
        vm->vcpus = v->vcpus;
        vm->memory_mb = v->memory_mb;
        vm->os_image = v->os_image;
        take_vm_parts(arena, v, vm);
        take_managed(arena, v->managed_volumes, v->n_managed_volumes, w->spec);
        return 0;
}

/* A machine takes at least what it is told to have: that it was not said twice does not make it
 * free. */
static void take_resources(struct arena *arena, const Pc__WorkloadSpec *s, Pb__Workload *w)
{
        Pb__Resources *r = w->resources = (Pb__Resources *)NEW(arena, pb, resources);
        if (s->resources) {
                r->cpu = s->resources->cpu_millicores;
                r->memory_mb = s->resources->memory_mb;
                r->disk_gb = s->resources->disk_gb;
        }
        const Pb__Vm *vm = w->spec->vm;
        if (!vm)
                return;
        if (r->cpu == 0)
                r->cpu = (int64_t)vm->vcpus * 1000;
        if (r->memory_mb == 0)
                r->memory_mb = vm->memory_mb;
        for (size_t i = 0; !(s->resources && s->resources->disk_gb) && i < vm->n_disks; i++) {
                int64_t gb = vm->disks[i]->size_gb;
                /* larger ones are refused by their own rule */
                r->disk_gb += gb > 0 && gb < INT32_MAX ? gb : 0;
        }
}

static int take_type(const Pc__WorkloadSpec *s, Pb__Workload *w, struct err *err)
{
        static const struct {
                Pc__WorkloadSpec__WorkloadCase of;
                Pb__WorkloadType__E type;
        } cases[] = {
                { PC__WORKLOAD_SPEC__WORKLOAD_CONTAINER, PB__WORKLOAD_TYPE__E__container },
                { PC__WORKLOAD_SPEC__WORKLOAD_COMPOSE, PB__WORKLOAD_TYPE__E__compose },
                { PC__WORKLOAD_SPEC__WORKLOAD_VM, PB__WORKLOAD_TYPE__E__vm },
        };
        Pb__WorkloadType__E given = PB__WORKLOAD_TYPE__E__unset, named = persys_type(s->type);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
                if (cases[i].of == s->workload_case)
                        given = cases[i].type;
        if (!str_empty(s->type) &&
            (named == PB__WORKLOAD_TYPE__E__unset || named == PB__WORKLOAD_TYPE__E__process))
                return refuse(err, "spec.type", fmt("unknown value \"%.64s\"", s->type),
                              "one of container, compose, vm");
        if (given == PB__WORKLOAD_TYPE__E__unset)
                return refuse(err, "spec", "says nothing to run",
                              "set one of container, compose, vm");
        if (named != PB__WORKLOAD_TYPE__E__unset && named != given)
                return refuse(err, "spec.type",
                              fmt("is %s, but what is set is %s", s->type,
                                  json_enum_name(&pb__workload_type__e__descriptor, (int)given)),
                              "make them the same");
        w->type = given;
        return 0;
}

int persys_to_workload(struct arena *arena, const Pc__ApplyWorkloadRequest *r,
                       Pb__Workload **ret_workload, struct err *err)
{
        const Pc__WorkloadSpec *s = r->spec;
        Pb__Workload *w = (Pb__Workload *)NEW(arena, pb, workload);
        w->id = r->workload_id;
        w->revision_id = r->revision_id;
        w->desired_state = persys_desired(r->desired_state);
        w->spec = (Pb__Spec *)NEW(arena, pb, spec);
        w->retry = (Pb__Retry *)NEW(arena, pb, retry);
        w->retry->max_attempts = PERSYS_ATTEMPTS;
        int rc = take_type(s, w, err);
        if (rc == 0 && w->type == PB__WORKLOAD_TYPE__E__container)
                rc = take_container(arena, s->container, w, err);
        else if (rc == 0 && w->type == PB__WORKLOAD_TYPE__E__compose)
                rc = take_compose(arena, s->compose, w, err);
        else if (rc == 0)
                rc = take_vm(arena, s, w, err);
        if (rc < 0)
                return rc;
        take_resources(arena, s, w);
        if (w->type != PB__WORKLOAD_TYPE__E__vm &&
            pb_map_get(s->metadata, s->n_metadata, VM_SPEC_KEY))
                return refuse(err, "spec.metadata", VM_SPEC_KEY " is for vms only", NULL);
        pb_map_copy(arena, &w->base, "annotations", s->metadata, s->n_metadata);
        *ret_workload = w;
        return 0;
}
