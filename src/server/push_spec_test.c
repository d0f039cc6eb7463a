/* server/push_spec_test.c: workloads in the words of agents that are called, and what those agents
 * say. */
#include "base/str.h"
#include "model/json.h"
#include "model/pb.h"
#include "server/push_spec.h"
#include "server/push_status.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static Pb__Workload *workload(struct arena *a, const char *json)
{
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };
        if (json_read(&pb__workload__descriptor, json, strlen(json), 1 << 20, 0, a, &m, &err) < 0)
                fail_msg("%s: %s", err.path, err_line(&err));
        return (Pb__Workload *)m;
}

static Pa__ApplyWorkloadRequest *request(struct arena *a, const char *json)
{
        Pa__ApplyWorkloadRequest *q = NULL;
        struct err err = { 0 };
        if (push_apply_request(a, workload(a, json), 3, 77, true, &q, &err) < 0)
                fail_msg("%s", err_line(&err));
        return q;
}

static void expect_refused(const char *json, const char *path)
{
        struct arena a = ARENA_INIT;
        Pa__ApplyWorkloadRequest *q = NULL;
        struct err err = { 0 };
        assert_int_equal(push_apply_request(&a, workload(&a, json), 1, 1, true, &q, &err),
                         -ERR_INVALID);
        assert_string_equal(err.path, path);
        assert_true(strlen(err.msg) > 10);
        arena_fini(&a);
}

/* R: C4 C34 C7 */
static void a_revision_carries_its_token(void **state)
{
        struct arena a = ARENA_INIT;
        size_t len;
        uint64_t epoch, seq;
        (void)state;
        assert_string_equal(push_revision(&a, "abc", 2, 41), "abc@2.41");
        assert_true(push_revision_parse("abc@2.41", &len, &epoch, &seq));
        assert_int_equal(len, 3);
        assert_int_equal(epoch, 2);
        assert_int_equal(seq, 41);
        assert_true(push_revision_parse("a@b@18446744073709551615.7", &len, &epoch, &seq));
        assert_int_equal(len, 3);
        assert_true(epoch == UINT64_MAX);
        /* never ours */
        const char *foreign[] = { "",
                                  "abc",
                                  "abc@",
                                  "abc@1",
                                  "abc@1.",
                                  "abc@.1",
                                  "abc@1.x",
                                  "abc@1.2.3",
                                  "abc@-1.2",
                                  "abc@1.2 ",
                                  "abc@01.2",
                                  "abc@1.0",
                                  "abc@18446744073709551616.1",
                                  "abc@99999999999999999999999.1" };
        for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
                if (push_revision_parse(foreign[i], &len, &epoch, &seq))
                        fail_msg("%s was taken for ours", foreign[i]);
        assert_false(push_revision_parse(NULL, &len, &epoch, &seq));
        arena_fini(&a);
}

/* R: C4 */
static void a_container_keeps_everything_that_can_be_said(void **state)
{
        struct arena a = ARENA_INIT;
        (void)state;
        Pa__ApplyWorkloadRequest *q =
            request(&a, "{\"id\":\"web\",\"type\":\"container\",\"revision_id\":\"r1\",\"restart\":"
                        "\"on-failure\",\"retry\":{\"max_attempts\":4},"
                        "\"labels\":{\"app\":\"shop\"},\"resources\":{\"cpu\":0.25,\"memory_mb\":"
                        "64},\"spec\":{\"image\":\"nginx:1\",\"command\":["
                        "\"a\"],"
                        "\"args\":[\"b\",\"c\"],\"env\":{\"K\":\"V\"},\"ports\":[{\"host_port\":"
                        "8080,\"container_port\":80},{\"host_port\":53,"
                        "\"container_port\":53,\"protocol\":\"udp\"}],\"volumes\":[{\"host_path\":"
                        "\"/srv\",\"container_path\":\"/"
                        "data\",\"read_only\":true}],"
                        "\"managed_volumes\":[{\"name\":\"v\",\"driver\":\"local\",\"size_gb\":2,"
                        "\"mount_path\":\"/m\"}]}}");
        assert_string_equal(q->id, "web");
        assert_string_equal(q->revision_id, "r1@3.77");
        assert_int_equal(q->type, PA__WORKLOAD_TYPE__WORKLOAD_TYPE_CONTAINER);
        assert_int_equal(q->desired_state, PA__DESIRED_STATE__DESIRED_STATE_RUNNING);
        assert_int_equal(q->spec->spec_case, PA__WORKLOAD_SPEC__SPEC_CONTAINER);
        Pa__ContainerSpec *c = q->spec->container;
        assert_string_equal(c->image, "nginx:1");
        assert_int_equal(c->n_command, 1);
        assert_int_equal(c->n_args, 2);
        assert_string_equal(c->args[1], "c");
        assert_string_equal(pb_map_get(c->env, c->n_env, "K"), "V");
        assert_int_equal(c->n_labels, 1);
        assert_string_equal(pb_map_get(c->labels, c->n_labels, "app"), "shop");
        assert_int_equal(c->resources->cpu_shares, 250);
        assert_int_equal(c->resources->memory_bytes, 64 << 20);
        assert_string_equal(c->ports[0]->protocol, "tcp");
        assert_string_equal(c->ports[1]->protocol, "udp");
        assert_string_equal(c->volumes[0]->container_path, "/data");
        assert_true(c->volumes[0]->read_only);
        assert_string_equal(c->managed_volumes[0]->mount_path, "/m");
        assert_string_equal(c->restart_policy->policy, "on-failure");
        assert_int_equal(c->restart_policy->max_retry_count, 4);
        /* no resources, no limits */
        assert_null(request(&a, "{\"id\":\"x\",\"type\":\"container\",\"spec\":{\"image\":\"i\"}}")
                        ->spec->container->resources);
        arena_fini(&a);
}

/* R: C4 */
static void compose_travels_as_base64(void **state)
{
        struct arena a = ARENA_INIT;
        (void)state;
        Pa__ApplyWorkloadRequest *q = request(
            &a,
            "{\"id\":\"stack\",\"type\":\"compose\",\"revision_id\":\"r\",\"spec\":{\"compose\":"
            "\"services: {}\\n\",\"env\":{\"A\":\"1\"}}}");
        assert_int_equal(q->spec->spec_case, PA__WORKLOAD_SPEC__SPEC_COMPOSE);
        assert_string_equal(q->spec->compose->compose_yaml, "c2VydmljZXM6IHt9Cg==");
        assert_string_equal(q->spec->compose->project_name, "stack");
        assert_string_equal(pb_map_get(q->spec->compose->env, q->spec->compose->n_env, "A"), "1");
        arena_fini(&a);
}

/* R: C4 */
static void a_machine_gets_the_known_defaults(void **state)
{
        struct arena a = ARENA_INIT;
        (void)state;
        Pa__VMSpec *v =
            request(&a, "{\"id\":\"vm1\",\"type\":\"vm\",\"resources\":{\"cpu\":1.5,\"memory_mb\":"
                        "2048},\"spec\":{\"vm\":{"
                        "\"disks\":[{},{\"size_gb\":5,"
                        "\"mount_point\":\"/dev/"
                        "vdx\"}],\"networks\":[{\"bridge\":\"br0\",\"static_ip\":\"10.0.0.9\"}],"
                        "\"cloud_init\":{\"user_data\":\"#cloud-config\"}}}}")
                ->spec->vm;
        assert_string_equal(v->name, "vm1");
        assert_int_equal(v->vcpus, 2);
        assert_int_equal(v->memory_mb, 2048);
        assert_string_equal(v->disks[0]->device, "vda");
        assert_string_equal(v->disks[0]->format, "qcow2");
        assert_int_equal(v->disks[0]->size_gb, 20);
        assert_string_equal(v->disks[0]->path, "/var/lib/libvirt/images/vm1-vda.qcow2");
        assert_true(v->disks[0]->boot);
        assert_string_equal(v->disks[1]->path, "/var/lib/libvirt/images/vm1-vdx.qcow2");
        assert_int_equal(v->disks[1]->size_gb, 5);
        assert_string_equal(v->networks[0]->network, "br0");
        assert_string_equal(v->networks[0]->ip_address, "10.0.0.9");
        assert_string_equal(v->cloud_init_config->user_data, "#cloud-config");
        /* {"name":"own","vcpus":3,"memory_mb":"512"} */
        v = request(&a, "{\"id\":\"vm2\",\"type\":\"vm\",\"annotations\":{\"persys.vm_spec_b64\":"
                        "\"eyJuYW1lIjoib3duIiwidmNwdXMiOjMsIm1lbW9yeV9tYiI6IjUxMiJ9\"},\"spec\":{"
                        "\"vm\":{\"vcpus\":1}}}")
                ->spec->vm;
        assert_string_equal(v->name, "own");
        assert_int_equal(v->vcpus, 3);
        assert_int_equal(v->memory_mb, 512);
        arena_fini(&a);
}

/* R: C4 A9 */
static void what_cannot_be_said_is_refused_and_not_dropped(void **state)
{
        (void)state;
        expect_refused("{\"id\":\"p\",\"type\":\"process\",\"spec\":{\"command\":[\"x\"]}}",
                       "type");
        expect_refused("{\"id\":\"p\",\"type\":\"container\",\"spec\":{}}", "spec.image");
        expect_refused("{\"id\":\"p\",\"type\":\"container\"}", "spec.image");
        expect_refused(
            "{\"id\":\"p\",\"type\":\"container\",\"spec\":{\"image\":\"i\",\"privileged\":true}}",
            "spec.privileged");
        expect_refused(
            "{\"id\":\"p\",\"type\":\"container\",\"spec\":{\"image\":\"i\",\"network\":\"host\"}}",
            "spec.network");
        expect_refused("{\"id\":\"p\",\"type\":\"container\",\"spec\":{\"image\":\"i\",\"health\":{"
                       "\"port\":80}}}",
                       "spec.health");
        expect_refused("{\"id\":\"p\",\"type\":\"container\",\"spec\":{\"pod\":\"kind: Pod\"}}",
                       "spec.pod");
        expect_refused(
            "{\"id\":\"p\",\"type\":\"container\",\"spec\":{\"image\":\"i\",\"pull\":\"always\"}}",
            "spec.pull");
        expect_refused(
            "{\"id\":\"p\",\"type\":\"container\",\"spec\":{\"image\":\"i\",\"user\":\"u\"}}",
            "spec.user");
        expect_refused(
            "{\"id\":\"p\",\"type\":\"container\",\"spec\":{\"image\":\"i\",\"workdir\":\"/\"}}",
            "spec.workdir");
        expect_refused("{\"id\":\"p\",\"type\":\"compose\",\"spec\":{}}", "spec.compose");
        expect_refused("{\"id\":\"p\",\"type\":\"vm\",\"spec\":{}}", "spec.vm");
        expect_refused("{\"id\":\"p\",\"type\":\"vm\",\"spec\":{\"vm\":{\"os_image\":\"debian\"}}}",
                       "spec.vm.os_image");
        expect_refused("{\"id\":\"p\",\"type\":\"vm\",\"spec\":{\"vm\":{\"disks\":[{\"pool_name\":"
                       "\"fast\"}]}}}",
                       "spec.vm.disks[0].pool_name");
        expect_refused("{\"id\":\"p\",\"type\":\"vm\",\"spec\":{\"vm\":{\"disks\":[{\"mount_"
                       "point\":\"/a/b\"}]}}}",
                       "spec.vm.disks[0].mount_point");
        expect_refused("{\"id\":\"p\",\"type\":\"vm\",\"annotations\":{\"persys.vm_spec_b64\":\"***"
                       "\"},\"spec\":{}}",
                       "annotations.persys.vm_spec_b64");
}

/* R: C23 */
static void answers_are_judged_by_code_first(void **state)
{
        (void)state;
        assert_int_equal(push_verdict(GRPC_OK, ""), PUSH_OK);
        assert_int_equal(push_verdict(GRPC_NOT_FOUND, ""), PUSH_MISSING);
        assert_int_equal(push_verdict(GRPC_UNKNOWN, "status not found: web"), PUSH_MISSING);
        assert_int_equal(push_verdict(GRPC_UNKNOWN, "no: status not found"), PUSH_AGAIN);
        assert_int_equal(push_verdict(GRPC_UNKNOWN, "database locked"), PUSH_AGAIN);
        assert_int_equal(push_verdict(GRPC_UNKNOWN, NULL), PUSH_AGAIN);
        assert_int_equal(push_verdict(GRPC_UNKNOWN, "runtime not available: vm"), PUSH_REFUSED);
        assert_int_equal(push_verdict(GRPC_UNAVAILABLE, "status not found: web"), PUSH_UNREACHABLE);
        assert_int_equal(push_verdict(GRPC_DEADLINE_EXCEEDED, ""), PUSH_UNREACHABLE);
        assert_int_equal(push_verdict(GRPC_INVALID_ARGUMENT, ""), PUSH_REFUSED);
        assert_int_equal(push_verdict(GRPC_INTERNAL, "workload not found"), PUSH_AGAIN);
        assert_int_equal(push_verdict(GRPC_RESOURCE_EXHAUSTED, ""), PUSH_AGAIN);
        assert_int_equal(push_reason("IMAGE_PULL_TIMEOUT", ""), PB__REASON__E__image_unavailable);
        assert_int_equal(push_reason("INVALID_SPECIFICATION", ""), PB__REASON__E__invalid_spec);
        assert_int_equal(push_reason("PORT_BIND_CONFLICT", ""), PB__REASON__E__port_taken);
        assert_int_equal(push_reason(NULL, "runtime not available: compose"),
                         PB__REASON__E__runtime_unavailable);
        assert_int_equal(push_reason("STORAGE_FULL", ""), PB__REASON__E__start_failed);
        assert_int_equal(push_reason(NULL, "admission rejected due to resource constraints: cpu"),
                         PB__REASON__E__start_failed);
        assert_int_equal(push_reason("SOMETHING_NEW", ""), PB__REASON__E__crashed);
}

static Pa__WorkloadStatus *status(struct arena *a, Pa__ActualState actual, const char *revision,
                                  const char *message)
{
        Pa__WorkloadStatus *s = (Pa__WorkloadStatus *)pb_new(a, &pa__workload_status__descriptor);
        s->id = "web";
        s->actual_state = actual;
        s->revision_id = (char *)revision;
        s->message = (char *)message;
        return s;
}

/* R: C21 C34 */
static void a_status_speaks_of_us_only_with_our_revision(void **state)
{
        struct arena a = ARENA_INIT;
        (void)state;
        Pb__UnitStatus *u = push_unit_status(
            &a, status(&a, PA__ACTUAL_STATE__ACTUAL_STATE_RUNNING, "r@1.9", ""), false);
        assert_int_equal(u->state, PB__ACTUAL_STATE__E__Running);
        assert_int_equal(u->token->seq, 9);
        assert_string_equal(u->revision_id, "r");
        assert_null(push_unit_status(
                        &a, status(&a, PA__ACTUAL_STATE__ACTUAL_STATE_RUNNING, "7f3c", ""), false)
                        ->token);
        u = push_unit_status(&a,
                             status(&a, PA__ACTUAL_STATE__ACTUAL_STATE_FAILED, "",
                                    "delete failed: workload not found: web"),
                             false);
        assert_int_equal(u->state, PB__ACTUAL_STATE__E__Missing);
        u = push_unit_status(&a, status(&a, 99, "r@1.9", ""), false);
        assert_int_equal(u->state, PB__ACTUAL_STATE__E__Pending);
        Pa__WorkloadStatus *s =
            status(&a, PA__ACTUAL_STATE__ACTUAL_STATE_FAILED, "r@1.9", "exited");
        pb_map_set(&a, &s->base, "metadata", "failure_reason", "IMAGE_PULL_AUTH_FAILED");
        pb_map_set(&a, &s->base, "metadata", "exit_code", "3");
        pb_map_set(&a, &s->base, "metadata", "finished_at", "1700000000");
        u = push_unit_status(&a, s, false);
        assert_int_equal(u->reason, PB__REASON__E__image_unavailable);
        assert_int_equal(u->exit_code->value, 3);
        assert_true(u->finished_at == INT64_C(1700000000000));
        /* what could not be started is UNKNOWN there, and says why in its metadata only (issue 5,
         * C4) */
        s = status(&a, PA__ACTUAL_STATE__ACTUAL_STATE_UNKNOWN, "r@1.9", "container not found");
        assert_int_equal(push_unit_status(&a, s, false)->state, PB__ACTUAL_STATE__E__Unknown);
        pb_map_set(&a, &s->base, "metadata", "last_error",
                   "Error response from daemon: No such image: x:latest");
        u = push_unit_status(&a, s, false);
        assert_int_equal(u->state, PB__ACTUAL_STATE__E__Failed);
        assert_int_equal(u->reason, PB__REASON__E__image_unavailable);
        assert_string_equal(u->message, "Error response from daemon: No such image: x:latest");
        pb_map_set(&a, &s->base, "metadata", "last_error", "mkdir: permission denied");
        assert_int_equal(push_unit_status(&a, s, false)->reason, PB__REASON__E__start_failed);
        s = status(&a, PA__ACTUAL_STATE__ACTUAL_STATE_FAILED, "r@1.9",
                   "retry halted: non-retryable failure");
        pb_map_set(&a, &s->base, "metadata", "last_error",
                   "Bind for 0.0.0.0:80 failed: port is already allocated");
        u = push_unit_status(&a, s, false);
        assert_int_equal(u->reason, PB__REASON__E__port_taken);
        assert_string_equal(u->message, "retry halted: non-retryable failure: Bind for 0.0.0.0:80 "
                                        "failed: port is already allocated");
        /* a job that stopped without a word ended well; a service did not */
        s = status(&a, PA__ACTUAL_STATE__ACTUAL_STATE_STOPPED, "r@1.9", "");
        assert_int_equal(push_unit_status(&a, s, true)->exit_code->value, 0);
        assert_null(push_unit_status(&a, s, false)->exit_code);
        /* whatever an agent writes stays within bounds, and whole characters */
        struct str text = STR_INIT;
        for (int i = 0; i < 900; i++)
                str_adds(&text, "ä");
        u = push_unit_status(
            &a, status(&a, PA__ACTUAL_STATE__ACTUAL_STATE_FAILED, "r@1.9", str_c(&text)), false);
        assert_true(strlen(u->message) <= 1024 && str_is_utf8(u->message, strlen(u->message)));
        str_fini(&text);
        arena_fini(&a);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_revision_carries_its_token),
                cmocka_unit_test(a_container_keeps_everything_that_can_be_said),
                cmocka_unit_test(compose_travels_as_base64),
                cmocka_unit_test(a_machine_gets_the_known_defaults),
                cmocka_unit_test(what_cannot_be_said_is_refused_and_not_dropped),
                cmocka_unit_test(answers_are_judged_by_code_first),
                cmocka_unit_test(a_status_speaks_of_us_only_with_our_revision),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
