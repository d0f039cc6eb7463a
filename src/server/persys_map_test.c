/* Tests of server/persys_map.h: nothing that a caller of the control dialect says is lost or taken
 * for something else. */
#include "model/json.h"
#include "model/pb.h"
#include "model/random_message.h"
#include "model/validate.h"
#include "server/persys_map.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct arena arena;

static int teardown(void **state)
{
        (void)state;
        arena_fini(&arena);
        return 0;
}

static void *read_pc(const ProtobufCMessageDescriptor *type, const char *text)
{
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };
        if (json_read(type, text, strlen(text), SIZE_MAX, JSON_PROTO, &arena, &m, &err) < 0)
                fail_msg("%s: %s", err_line(&err), text);
        return m;
}

static const char *json_of(const ProtobufCMessage *m, unsigned flags)
{
        struct str out = STR_INIT;
        json_write(&out, m, flags);
        const char *text = arena_strdup(&arena, str_c(&out));
        str_fini(&out);
        return text;
}

static Pc__ApplyWorkloadRequest *request(const char *spec)
{
        return read_pc(&pc__apply_workload_request__descriptor,
                       arena_printf(&arena,
                                    "{\"workload_id\":\"w\",\"revision_id\":\"r1\",\"spec\":%s}",
                                    spec));
}

static Pb__Workload *accepts(const char *spec)
{
        struct err err = { 0 };
        Pb__Workload *w = NULL;
        if (persys_to_workload(&arena, request(spec), &w, &err) < 0 ||
            workload_normalise(&arena, w, &err) < 0)
                fail_msg("%s: %s", spec, err_line(&err));
        return w;
}

/* ---- the other way: the spec that gives this definition, as far as the dialect can say it ---- */

#define NEW(name) pb_new(&arena, &pc__##name##__descriptor)

static Pc__ManagedVolumeSpec **managed_of(const Pb__Spec *spec)
{
        Pc__ManagedVolumeSpec **to =
            arena_alloc(&arena, (spec->n_managed_volumes + 1) * sizeof(*to));
        for (size_t i = 0; i < spec->n_managed_volumes; i++) {
                const Pb__ManagedVolume *v = spec->managed_volumes[i];
                Pc__ManagedVolumeSpec *m = to[i] =
                    (Pc__ManagedVolumeSpec *)NEW(managed_volume_spec);
                m->name = v->name;
                m->driver = v->driver;
                m->size_gb = v->size_gb;
                m->access_mode = v->access_mode;
                m->fs_type = v->fs_type;
                m->mount_path = v->mount_path;
                m->read_only = v->read_only;
                m->retain_policy = v->retain_policy;
        }
        return to;
}

static Pc__ContainerSpec *container_of_spec(const Pb__Workload *w)
{
        const Pb__Spec *spec = w->spec;
        Pc__ContainerSpec *c = (Pc__ContainerSpec *)NEW(container_spec);
        c->image = spec->image;
        c->command = spec->command;
        c->n_command = spec->n_command;
        c->privileged = spec->privileged;
        pb_map_copy(&arena, &c->base, "env", spec->env, spec->n_env);
        c->volumes = arena_alloc(&arena, (spec->n_volumes + 1) * sizeof(*c->volumes));
        c->n_volumes = spec->n_volumes;
        for (size_t i = 0; i < spec->n_volumes; i++) {
                c->volumes[i] = (Pc__VolumeMount *)NEW(volume_mount);
                c->volumes[i]->host_path = spec->volumes[i]->host_path;
                c->volumes[i]->container_path = spec->volumes[i]->container_path;
                c->volumes[i]->read_only = spec->volumes[i]->read_only;
        }
        c->ports = arena_alloc(&arena, (spec->n_ports + 1) * sizeof(*c->ports));
        c->n_ports = spec->n_ports;
        for (size_t i = 0; i < spec->n_ports; i++) {
                c->ports[i] = (Pc__Port *)NEW(port);
                c->ports[i]->host_port = spec->ports[i]->host_port;
                c->ports[i]->container_port = spec->ports[i]->container_port;
                c->ports[i]->protocol = spec->ports[i]->protocol;
        }
        c->managed_volumes = managed_of(spec);
        c->n_managed_volumes = spec->n_managed_volumes;
        c->restart_policy = (char *)(w->restart == PB__RESTART__E__always       ? "always"
                                     : w->restart == PB__RESTART__E__on_failure ? "on-failure"
                                     : w->restart == PB__RESTART__E__never      ? "no"
                                                                                : "");
        return c;
}

static Pc__VMSpec *vm_of_spec(const Pb__Spec *spec)
{
        const Pb__Vm none = PB__VM__INIT, *vm = spec->vm ? spec->vm : &none;
        Pc__VMSpec *v = (Pc__VMSpec *)NEW(vmspec);
        v->vcpus = vm->vcpus;
        v->memory_mb = vm->memory_mb;
        v->os_image = vm->os_image;
        v->disks = arena_alloc(&arena, (vm->n_disks + 1) * sizeof(*v->disks));
        v->n_disks = vm->n_disks;
        for (size_t i = 0; i < vm->n_disks; i++) {
                v->disks[i] = (Pc__DiskConfig *)NEW(disk_config);
                v->disks[i]->pool_name = vm->disks[i]->pool_name;
                v->disks[i]->size_gb = vm->disks[i]->size_gb;
                v->disks[i]->mount_point = vm->disks[i]->mount_point;
        }
        v->networks = arena_alloc(&arena, (vm->n_networks + 1) * sizeof(*v->networks));
        v->n_networks = vm->n_networks;
        for (size_t i = 0; i < vm->n_networks; i++) {
                v->networks[i] = (Pc__NetworkConfig *)NEW(network_config);
                v->networks[i]->bridge = vm->networks[i]->bridge;
                v->networks[i]->dhcp = vm->networks[i]->dhcp;
                v->networks[i]->static_ip = vm->networks[i]->static_ip;
        }
        if (vm->cloud_init) {
                v->cloud_init = (Pc__CloudInitConfig *)NEW(cloud_init_config);
                v->cloud_init->user_data = vm->cloud_init->user_data;
                v->cloud_init->meta_data = vm->cloud_init->meta_data;
                v->cloud_init->network_config = vm->cloud_init->network_config;
                v->cloud_init->vendor_data = vm->cloud_init->vendor_data;
        }
        v->managed_volumes = managed_of(spec);
        v->n_managed_volumes = spec->n_managed_volumes;
        return v;
}

static Pc__WorkloadSpec *from_workload(const Pb__Workload *w)
{
        if (!w->spec || w->type == PB__WORKLOAD_TYPE__E__process ||
            w->type == PB__WORKLOAD_TYPE__E__unset)
                return NULL;
        Pc__WorkloadSpec *s = (Pc__WorkloadSpec *)NEW(workload_spec);
        s->type = (char *)json_enum_name(&pb__workload_type__e__descriptor, (int)w->type);
        if (w->resources) {
                s->resources = (Pc__ResourceRequirements *)NEW(resource_requirements);
                s->resources->cpu_millicores = w->resources->cpu;
                s->resources->memory_mb = w->resources->memory_mb;
                s->resources->disk_gb = w->resources->disk_gb;
        }
        if (w->type == PB__WORKLOAD_TYPE__E__container) {
                s->workload_case = PC__WORKLOAD_SPEC__WORKLOAD_CONTAINER;
                s->container = container_of_spec(w);
        } else if (w->type == PB__WORKLOAD_TYPE__E__compose) {
                s->workload_case = PC__WORKLOAD_SPEC__WORKLOAD_COMPOSE;
                s->compose = (Pc__ComposeSpec *)NEW(compose_spec);
                s->compose->source_type = (char *)"inline";
                s->compose->inline_yaml = w->spec->compose;
                pb_map_copy(&arena, &s->compose->base, "env", w->spec->env, w->spec->n_env);
        } else {
                s->workload_case = PC__WORKLOAD_SPEC__WORKLOAD_VM;
                s->vm = vm_of_spec(w->spec);
        }
        pb_map_copy(&arena, &s->base, "metadata", w->annotations, w->n_annotations);
        return s;
}

static void refuses(const char *spec, const char *path)
{
        struct err err = { 0 };
        Pb__Workload *w = NULL;
        if (persys_to_workload(&arena, request(spec), &w, &err) >= 0 &&
            workload_normalise(&arena, w, &err) >= 0)
                fail_msg("was accepted: %s", spec);
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.path, path);
        assert_true(err.msg[0] != '\0');
}

/* R: C3 */
static void every_field_of_a_spec_comes_back(void **state)
{
        static const char *const specs[] = {
                "{\"type\":\"container\",\"resources\":{\"cpu_millicores\":\"250\",\"memory_mb\":"
                "\"64\",\"disk_gb\":\"2\"},\"container\":{"
                "\"image\":\"registry/"
                "app:1\",\"command\":[\"run\",\"-v\"],\"env\":{\"A\":\"1\",\"B\":\"\"},\"volumes\":"
                "[{\"host_path\":\"/"
                "h\","
                "\"container_path\":\"/"
                "c\",\"read_only\":true}],\"ports\":[{\"host_port\":8080,\"container_port\":80,"
                "\"protocol\":\"udp\"}]"
                ","
                "\"restart_policy\":\"on-failure\",\"privileged\":true,\"managed_volumes\":[{"
                "\"name\":\"data\",\"driver\":\"nfs\",\"size_"
                "gb\":"
                "\"5\",\"access_mode\":\"rwo\",\"fs_type\":\"ext4\",\"mount_path\":\"/"
                "data\",\"read_only\":true,\"retain_policy\":"
                "\"Retain\"}]},"
                "\"metadata\":{\"owner\":\"me\"}}",
                "{\"type\":\"compose\",\"resources\":{\"memory_mb\":\"64\"},\"compose\":{\"source_"
                "type\":\"inline\",\"inline_yaml\":"
                "\"services: {a: {image: b}}\",\"env\":{\"A\":\"1\"}}}",
                "{\"type\":\"vm\",\"resources\":{\"cpu_millicores\":\"1000\",\"memory_mb\":"
                "\"2048\",\"disk_gb\":\"20\"},\"vm\":{\"vcpus\":"
                "2,\"memory_mb\":\"4096\",\"disks\":[{\"pool_name\":\"p\",\"size_gb\":\"10\","
                "\"mount_point\":\"vda\"}],\"networks\":[{"
                "\"bridge\":"
                "\"br0\",\"dhcp\":true,\"static_ip\":\"10.0.0.5\"}],\"cloud_init\":{\"user_data\":"
                "\"u\",\"meta_data\":\"m\",\"network_"
                "config\":\"n\","
                "\"vendor_data\":\"v\"},\"os_image\":\"debian-12\",\"managed_volumes\":[{\"name\":"
                "\"d\",\"driver\":\"ceph-rbd\",\"mount_"
                "path\":\"/d\"}]}}",
        };
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
                Pb__Workload *w = accepts(specs[i]);
                assert_string_equal(w->revision_id, "r1");
                Pc__WorkloadSpec *back = from_workload(w);
                Pc__WorkloadSpec *given = request(specs[i])->spec;
                if (given->workload_case == PC__WORKLOAD_SPEC__WORKLOAD_CONTAINER)
                        assert_string_equal(back->container->restart_policy, "on-failure");
                assert_string_equal(json_of(&back->base, JSON_PROTO | JSON_SORTED),
                                    json_of(&given->base, JSON_PROTO | JSON_SORTED));
        }
}

/* R: C3 C7. Whatever is accepted means the same when it is said again; whatever is refused says
 * where. */
static void what_is_accepted_means_the_same_again(void **state)
{
        struct rng rng;
        size_t taken = 0;
        (void)state;
        rng_seed(&rng, 11);
        for (int i = 0; i < 20000; i++) {
                struct err err = { 0 };
                Pb__Workload *w = NULL, *again = NULL;
                Pc__ApplyWorkloadRequest *r = (Pc__ApplyWorkloadRequest *)random_message(
                    &arena, &rng, &pc__apply_workload_request__descriptor, 500000);
                if (!r->spec)
                        continue;
                if (rng_chance(&rng, 800000))
                        r->spec->type = (char *)"";
                if (r->spec->workload_case == PC__WORKLOAD_SPEC__WORKLOAD_CONTAINER)
                        r->spec->container->restart_policy = (char *)"no";
                if (persys_to_workload(&arena, r, &w, &err) < 0) {
                        assert_int_equal(err.code, ERR_INVALID);
                        assert_true(err.path[0] && err.msg[0]);
                } else {
                        taken++;
                        r->spec = from_workload(w);
                        assert_int_equal(persys_to_workload(&arena, r, &again, &err), 0);
                        assert_true(pb_equal(&w->base, &again->base));
                }
                arena_reset(&arena);
        }
        assert_true(taken > 1000);
}

/* R: C3. Named after the weak point: accepted by the API and silently dropped. */
static void what_cannot_be_honoured_is_refused(void **state)
{
        (void)state;
        refuses("{\"type\":\"compose\",\"compose\":{\"source_type\":\"git\",\"git_repo\":\"https://"
                "x/y\"}}",
                "spec.compose.source_type");
        refuses("{\"compose\":{\"inline_yaml\":\"services: {}\",\"git_ref\":\"main\"}}",
                "spec.compose.source_type");
        refuses("{\"compose\":{\"source_type\":\"ftp\",\"inline_yaml\":\"x\"}}",
                "spec.compose.source_type");
        refuses("{\"compose\":{}}", "spec.compose.inline_yaml");
        refuses("{\"type\":\"lxc\",\"container\":{\"image\":\"i\"}}", "spec.type");
        refuses("{\"type\":\"process\",\"container\":{\"image\":\"i\"}}", "spec.type");
        refuses("{\"type\":\"vm\",\"container\":{\"image\":\"i\"}}", "spec.type");
        refuses("{\"type\":\"container\"}", "spec");
        refuses("{}", "spec");
        refuses("{\"container\":{}}", "spec.image");
        refuses("{\"container\":{\"image\":\"i\",\"restart_policy\":\"sometimes\"}}",
                "spec.container.restart_policy");
        refuses("{\"container\":{\"image\":\"i\",\"ports\":[{\"host_port\":70000,\"container_"
                "port\":1}]}}",
                "spec.ports[0].host_port");
        refuses("{\"container\":{\"image\":\"i\"},\"resources\":{\"cpu_millicores\":\"-1\"}}",
                "resources.cpu");
        refuses("{\"vm\":{\"memory_mb\":\"1\"}}", "spec.vm.vcpus");
        refuses("{\"vm\":{\"vcpus\":1}}", "spec.vm.memory_mb");
        refuses("{\"container\":{\"image\":\"i\"},\"metadata\":{\"persys.vm_spec_b64\":\"e30=\"}}",
                "spec.metadata");
        /* what foreign agents are given instead */
        accepts("{\"vm\":{},\"metadata\":{\"persys.vm_spec_b64\":\"e30=\"}}");
}

/* R: C3. B-16: what users write down beside a spec can neither steer the scheduler nor the
 * placement. */
static void b16_metadata_decides_nothing(void **state)
{
        (void)state;
        Pb__Workload *w = accepts("{\"container\":{\"image\":\"i\"},\"metadata\":{\"retry_"
                                  "terminal\":\"true\",\"reapplyNextAt\":\"2099\"}}");
        assert_int_equal(w->n_annotations, 2);
        assert_int_equal(w->n_labels, 0);
        assert_int_equal(w->n_node_selector, 0);
        assert_null(w->metadata);
        assert_int_equal(w->retry->max_attempts, 5);
}

/* R: C3 */
static void a_machine_is_not_free_of_charge(void **state)
{
        (void)state;
        Pb__Workload *w = accepts("{\"vm\":{\"vcpus\":2,\"memory_mb\":\"512\",\"os_image\":\"x\","
                                  "\"disks\":[{\"size_gb\":\"3\"},{\"size_gb\":\"4\"}]}}");
        assert_int_equal(w->resources->cpu, 2000);
        assert_int_equal(w->resources->memory_mb, 512);
        assert_int_equal(w->resources->disk_gb, 7);
}

/* R: C3 */
static void wishes_and_types_have_many_names(void **state)
{
        (void)state;
        assert_int_equal(persys_desired("stop"), PB__DESIRED_STATE__E__Stopped);
        assert_int_equal(persys_desired("STOPPED"), PB__DESIRED_STATE__E__Stopped);
        assert_int_equal(persys_desired("Delete"), PB__DESIRED_STATE__E__Deleted);
        assert_int_equal(persys_desired("deleted"), PB__DESIRED_STATE__E__Deleted);
        assert_int_equal(persys_desired(""), PB__DESIRED_STATE__E__Running);
        assert_int_equal(persys_desired("whatever"), PB__DESIRED_STATE__E__Running);
        assert_int_equal(persys_type("Docker-Container"), PB__WORKLOAD_TYPE__E__container);
        assert_int_equal(persys_type("docker-compose"), PB__WORKLOAD_TYPE__E__compose);
        assert_int_equal(persys_type("VM"), PB__WORKLOAD_TYPE__E__vm);
        assert_int_equal(persys_type("lxc"), PB__WORKLOAD_TYPE__E__unset);
}

/* R: C8 */
static void endpoints_are_host_and_port(void **state)
{
        static const struct {
                const char *text, *want;
        } rows[] = {
                { "10.0.0.1:4000", "10.0.0.1:4000" },
                { "node.example:0", "node.example:50051" },
                { ":7000", "192.0.2.7:7000" },
                { ":0", "192.0.2.7:50051" },
                { "[::1]:7000", "[::1]:7000" },
                { "::1:7000", "[::1]:7000" },
                { "[]:7000", "192.0.2.7:7000" },
                { "host", NULL },
                { "host:", NULL },
                { "host:x", NULL },
                { "host:70000", NULL },
                { "host:-1", NULL },
                { "a b:1", NULL },
                { "http://host:80", NULL },
        };
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                struct err err = { 0 };
                char *got = NULL;
                int rc = persys_endpoint(&arena, rows[i].text, "192.0.2.7:33333", &got, &err);
                if (rows[i].want) {
                        assert_int_equal(rc, 0);
                        assert_string_equal(got, rows[i].want);
                } else {
                        if (rc != -ERR_INVALID)
                                fail_msg("%s was taken as %s", rows[i].text, got);
                        assert_true(str_starts(
                            err.msg, fmt("invalid grpc_endpoint \"%s\": ", rows[i].text)));
                }
        }
        char *got = NULL;
        assert_int_equal(persys_endpoint(&arena, ":1", NULL, &got, NULL), 0);
        assert_string_equal(got, "127.0.0.1:1");
}

static Pb__Hello *hello_of(const char *text)
{
        struct err err = { 0 };
        Pb__Hello *h = NULL;
        if (persys_to_hello(&arena, read_pc(&pc__register_node_request__descriptor, text),
                            "192.0.2.7:1", &h, &err) < 0 ||
            validate_hello(h, &err) < 0)
                fail_msg("%s: %s", text, err_line(&err));
        return h;
}

/* R: C8 */
static void a_registration_says_what_the_node_is(void **state)
{
        (void)state;
        Pb__Hello *h =
            hello_of("{\"node_id\":\"n\",\"grpc_endpoint\":\"h:1\",\"agent_version\":\"v1 "
                     "(abc)\",\"labels\":{\"z\":\"1\",\"a\":\"2\"},"
                     "\"capabilities\":{\"cpu_total_millicores\":\"4000\",\"memory_total_mb\":"
                     "\"8192\",\"storage_pools\":[{\"total_gb\":\"10\"},{"
                     "\"total_gb\":\"5\"}],\"supported_workload_types\":[\"Docker-Container\","
                     "\"container\",\"vm\",\"lxc\"],"
                     "\"supported_storage_drivers\":[\"NFS\",\"ceph_rbd\",\"local\",\"nfs\"]}}");
        assert_true(h->push);
        assert_int_equal(h->cpu, 4000);
        assert_int_equal(h->disk_gb, 15);
        assert_int_equal(h->n_supported_workload_types, 2);
        assert_int_equal(h->n_supported_storage_drivers, 3);
        assert_string_equal(h->supported_storage_drivers[0], "local");
        assert_string_equal(h->supported_storage_drivers[1], "nfs");
        assert_string_equal(h->supported_storage_drivers[2], "ceph-rbd");
        /* in order: the same labels in another order are no change */
        assert_string_equal(h->labels[0]->key, "a");
        assert_string_equal(h->agent_version, "v1-(abc)");
        assert_string_equal(h->ip, "192.0.2.7");

        h = hello_of("{\"node_id\":\"n\",\"grpc_endpoint\":\"h:1\",\"capabilities\":{\"cpu_total_"
                     "millicores\":\"1\",\"memory_total_mb\":\"1\"}}");
        /* an agent that names none: everything but machines */
        assert_int_equal(h->n_supported_workload_types, 2);
        struct err err = { 0 };
        const char *only_lxc = "{\"node_id\":\"n\",\"grpc_endpoint\":\"h:1\",\"capabilities\":{"
                               "\"supported_workload_types\":[\"lxc\"]}}";
        assert_int_equal(persys_to_hello(&arena,
                                         read_pc(&pc__register_node_request__descriptor, only_lxc),
                                         NULL, &h, &err),
                         -ERR_INVALID);
}

/* R: C9 */
static void a_heartbeat_stays_within_bounds(void **state)
{
        (void)state;
        const Pc__HeartbeatRequest *r =
            read_pc(&pc__heartbeat_request__descriptor,
                    "{\"node_id\":\"n\",\"usage\":{\"cpu_used_millicores\":\"-5\",\"memory_used_"
                    "mb\":\"9223372036854775807\",\"cpu_"
                    "allocated_millicores\":\"9\"},"
                    "\"workload_statuses\":[{\"workload_id\":\"a\",\"state\":\"RUNNING\"},{"
                    "\"workload_id\":\"../b\",\"state\":\"Running\"},"
                    "{\"workload_id\":\"c\",\"state\":\"Failed\",\"failure_reason\":\"IMAGE_NOT_"
                    "FOUND\",\"message\":\"m\"},"
                    "{\"workload_id\":\"d\",\"state\":\"odd\"},{\"workload_id\":\"e\",\"state\":"
                    "\"failed\"},{\"workload_id\":\"f\","
                    "\"state\":\"Deleted\"}]}");
        Pb__Heartbeat *b = persys_to_heartbeat(&arena, r);
        assert_int_equal(b->usage->cpu_used, 0);
        assert_int_equal(validate_heartbeat(b, NULL), 0);
        Pb__UnitReport *u = persys_to_report(&arena, r);
        assert_false(u->complete);
        assert_int_equal(u->n_units, 5); /* no workload of ours can have an id like ../b */
        assert_int_equal(u->units[0]->state, PB__ACTUAL_STATE__E__Running);
        assert_int_equal(u->units[1]->state, PB__ACTUAL_STATE__E__Failed);
        assert_int_equal(u->units[1]->reason, PB__REASON__E__image_unavailable);
        assert_int_equal(u->units[2]->state, PB__ACTUAL_STATE__E__Unknown);
        assert_int_equal(u->units[3]->reason, PB__REASON__E__crashed);
        assert_int_equal(u->units[4]->state, PB__ACTUAL_STATE__E__Missing);
        assert_int_equal(validate_unit_report(u, NULL), 0);
}

static ProtobufCMessage *read_pb(const ProtobufCMessageDescriptor *type, const char *text)
{
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };
        if (json_read(type, text, strlen(text), SIZE_MAX, 0, &arena, &m, &err) < 0)
                fail_msg("%s: %s", err_line(&err), text);
        return m;
}

/* R: C3 */
static void views_say_what_the_records_say(void **state)
{
        (void)state;
        Pb__Workload *w = (Pb__Workload *)read_pb(
            &pb__workload__descriptor,
            "{\"id\":\"w\",\"type\":\"container\",\"revision_id\":\"r\",\"desired_state\":"
            "\"Running\",\"assigned_node\":\"n\",\"retry\":{\"attempts\":2,\"max_"
            "attempts\":5,\"next_retry_at\":\"2026-01-01T00:00:05Z\"},\"status\":{\"phase\":"
            "\"RetryPending\",\"reason\":\"image-unavailable\",\"failure_"
            "reason\":\"no such image\",\"last_updated\":\"2026-01-01T00:00:00Z\"}}");
        assert_string_equal(json_of(&persys_workload_view(&arena, w)->base, JSON_PROTO),
                            "{\"workload_id\":\"w\",\"type\":\"container\",\"desired_state\":"
                            "\"Running\",\"status\":\"RetryPending\",\"assigned_node_id\":"
                            "\"n\","
                            "\"revision_id\":\"r\",\"retry_attempts\":2,\"retry_max_attempts\":5,"
                            "\"retry_next_at\":\"2026-01-01T00:00:05Z\",\"failure_"
                            "reason\":"
                            "\"no such "
                            "image\",\"last_updated\":\"2026-01-01T00:00:00Z\",\"reason\":{"
                            "\"code\":\"IMAGE_UNAVAILABLE\",\"message\":\"no such "
                            "image\",\"last_transition\":\"2026-01-01T00:00:00Z\",\"next_retry_"
                            "at\":\"2026-01-01T00:00:05Z\",\"retryable\":true}}");
        Pb__Workload none = PB__WORKLOAD__INIT;
        assert_string_equal(persys_workload_view(&arena, &none)->status, "Unknown");

        Pb__Node *n = (Pb__Node *)read_pb(
            &pb__node__descriptor,
            "{\"id\":\"n\",\"status\":\"Ready\",\"status_reason\":\"registered\",\"status_updated_"
            "by\":\"register\",\"resources\":{\"cpu_"
            "total\":"
            "4,\"cpu_allocated\":1.5,\"memory_total\":100,\"memory_allocated\":120},\"supported_"
            "workload_types\":[\"vm\",\"container\"],"
            "\"labels\":{\"a\":\"b\"},\"agent_endpoint\":\"h:1\"}");
        assert_string_equal(json_of(&persys_node_view(&arena, n)->base, JSON_PROTO),
                            "{\"node_id\":\"n\",\"status\":\"Ready\",\"status_reason\":"
                            "\"registered\",\"status_updated_by\":\"register\","
                            "\"grpc_endpoint\":\"h:1\","
                            "\"total_cpu_cores\":4,\"available_cpu_cores\":2.5,\"total_memory_mb\":"
                            "\"100\",\"supported_workload_types\":["
                            "\"vm\",\"container\"],"
                            "\"labels\":{\"a\":\"b\"}}");
}

/* R: C3. The scheduler that this dialect comes from counted four phases nowhere. */
static void a_summary_counts_every_workload_once(void **state)
{
        (void)state;
        Pb__ClusterInfo i = PB__CLUSTER_INFO__INIT;
        i.nodes = 3;
        i.nodes_ready = 1;
        int64_t *counts[] = { &i.workloads_running,   &i.workloads_pending,  &i.workloads_failed,
                              &i.workloads_scheduled, &i.workloads_updating, &i.workloads_stopped,
                              &i.workloads_completed, &i.workloads_retrying, &i.workloads_deleting,
                              &i.workloads_unknown };
        for (size_t k = 0; k < ARRAY_LEN(counts); k++)
                i.workloads += *counts[k] = (int64_t)1 << k;
        Pc__GetClusterSummaryResponse *s = persys_summary(&arena, &i, 1000);
        assert_int_equal(s->not_ready_nodes, 2);
        assert_int_equal(s->total_workloads, 1023);
        assert_int_equal(s->running_workloads + s->pending_workloads + s->failed_workloads +
                             s->deleted_workloads + i.workloads_stopped + i.workloads_completed,
                         s->total_workloads);
        assert_int_equal(s->generated_at->seconds, 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_field_of_a_spec_comes_back),
                cmocka_unit_test(what_is_accepted_means_the_same_again),
                cmocka_unit_test(what_cannot_be_honoured_is_refused),
                cmocka_unit_test(b16_metadata_decides_nothing),
                cmocka_unit_test(a_machine_is_not_free_of_charge),
                cmocka_unit_test(wishes_and_types_have_many_names),
                cmocka_unit_test(endpoints_are_host_and_port),
                cmocka_unit_test(a_registration_says_what_the_node_is),
                cmocka_unit_test(a_heartbeat_stays_within_bounds),
                cmocka_unit_test(views_say_what_the_records_say),
                cmocka_unit_test(a_summary_counts_every_workload_once),
        };
        return cmocka_run_group_tests(tests, NULL, teardown);
}
