/* agent/push_test.c: what callers of persys.agent.v1 describe, and what they are told. The service
 * itself is tested end to end (tests/e2e/test_push.py). */
#include "agent/push_spec.h"
#include "model/pb.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static Pa__ApplyWorkloadRequest *request(struct arena *a)
{
        Pa__ApplyWorkloadRequest *q =
            (Pa__ApplyWorkloadRequest *)pb_new(a, &pa__apply_workload_request__descriptor);
        q->id = "web";
        q->revision_id = "r@1.2";
        q->spec = (Pa__WorkloadSpec *)pb_new(a, &pa__workload_spec__descriptor);
        return q;
}

static Pa__ContainerSpec *container_of(struct arena *a, Pa__ApplyWorkloadRequest *q,
                                       const char *image)
{
        q->spec->spec_case = PA__WORKLOAD_SPEC__SPEC_CONTAINER;
        q->spec->container = (Pa__ContainerSpec *)pb_new(a, &pa__container_spec__descriptor);
        q->spec->container->image = (char *)image;
        return q->spec->container;
}

/* R: C4 C40 */
static void a_container_named_process_is_a_process(void **state)
{
        struct arena a = ARENA_INIT;
        struct err err = { 0 };
        char *command[] = { "sh" }, *args[] = { "-c", "true" };
        Pb__Workload *w;
        (void)state;
        Pa__ApplyWorkloadRequest *q = request(&a);
        Pa__ContainerSpec *c = container_of(&a, q, "process");
        assert_int_equal(push_to_workload(&a, q, &w, &err), -ERR_INVALID); /* no command */
        c->command = command;
        c->n_command = 1;
        c->args = args;
        c->n_args = 2;
        pb_map_set(&a, &c->base, "env", "K", "V");
        c->resources = (Pa__ResourceLimits *)pb_new(&a, &pa__resource_limits__descriptor);
        c->resources->cpu_shares = 250;
        c->resources->memory_bytes = 64 << 20;
        c->restart_policy = (Pa__RestartPolicy *)pb_new(&a, &pa__restart_policy__descriptor);
        c->restart_policy->policy = "no";
        assert_int_equal(push_to_workload(&a, q, &w, &err), 0);
        assert_int_equal(w->type, PB__WORKLOAD_TYPE__E__process);
        assert_string_equal(w->id, "web");
        assert_string_equal(w->revision_id, "r@1.2");
        assert_int_equal(w->spec->n_command, 3);
        assert_string_equal(w->spec->command[2], "true");
        assert_string_equal(pb_map_get(w->spec->env, w->spec->n_env, "K"), "V");
        assert_int_equal(w->resources->cpu, 250);
        assert_int_equal(w->resources->memory_mb, 64);
        assert_int_equal(w->restart, PB__RESTART__E__never);
        /* everything else is a container */
        c->image = "nginx";
        assert_int_equal(push_to_workload(&a, q, &w, &err), 0);
        assert_int_equal(w->type, PB__WORKLOAD_TYPE__E__container);
        assert_string_equal(w->spec->image, "nginx");
        assert_int_equal(w->spec->n_args, 2);
        c->image = "";
        assert_int_equal(push_to_workload(&a, q, &w, &err), -ERR_INVALID);
        arena_fini(&a);
}

/* R: C4 */
static void compose_comes_as_text_or_as_base64(void **state)
{
        static const struct {
                const char *in, *out;
        } cases[] = { { "services: {}\n", "services: {}\n" },
                      { "c2VydmljZXM6IHt9Cg==", "services: {}\n" },
                      { "c2VydmljZXM6\nIHt9Cg==\n", "services: {}\n" } };
        struct arena a = ARENA_INIT;
        struct err err = { 0 };
        Pb__Workload *w;
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                Pa__ApplyWorkloadRequest *q = request(&a);
                q->spec->spec_case = PA__WORKLOAD_SPEC__SPEC_COMPOSE;
                q->spec->compose = (Pa__ComposeSpec *)pb_new(&a, &pa__compose_spec__descriptor);
                assert_int_equal(push_to_workload(&a, q, &w, &err), -ERR_INVALID);
                q->spec->compose->compose_yaml = (char *)cases[i].in;
                assert_int_equal(push_to_workload(&a, q, &w, &err), 0);
                assert_string_equal(w->spec->compose, cases[i].out);
                q->spec->compose->compose_yaml = "gICA"; /* not text */
                assert_int_equal(push_to_workload(&a, q, &w, &err), -ERR_INVALID);
        }
        assert_int_equal(push_to_workload(&a, request(&a), &w, &err), -ERR_INVALID);
        arena_fini(&a);
}

/* R: C34 */
static void tokens_are_read_from_revisions(void **state)
{
        struct unit_token t;
        (void)state;
        assert_true(push_revision_token("rev-1@3.17", &t));
        assert_true(t.epoch == 3 && t.seq == 17);
        assert_false(push_revision_token("rev-1", &t));
        assert_false(push_revision_token("rev-1@3", &t));
        assert_false(push_revision_token("rev-1@3.x", &t));
        assert_false(push_revision_token(NULL, &t));
}

static Pa__ActualState shown(struct arena *a, Pb__ActualState__E state, Pb__DesiredState__E desired,
                             bool confirmed)
{
        Pb__UnitStatus u = PB__UNIT_STATUS__INIT;
        struct engine_unit_view v = { .desired = desired, .state = state, .confirmed = confirmed };
        u.unit_id = "web";
        u.state = state;
        return push_from_status(a, &u, &v)->actual_state;
}

/* R: C4 C21 */
static void a_unit_is_shown_in_the_callers_words(void **state)
{
        struct arena a = ARENA_INIT;
        Pb__IntValue code = PB__INT_VALUE__INIT;
        Pb__UnitStatus u = PB__UNIT_STATUS__INIT;
        struct engine_unit_view v = { .desired = PB__DESIRED_STATE__E__Running, .confirmed = true };
        (void)state;
        assert_int_equal(
            shown(&a, PB__ACTUAL_STATE__E__Running, PB__DESIRED_STATE__E__Running, false),
            PA__ACTUAL_STATE__ACTUAL_STATE_RUNNING);
        assert_int_equal(
            shown(&a, PB__ACTUAL_STATE__E__Pending, PB__DESIRED_STATE__E__Running, true),
            PA__ACTUAL_STATE__ACTUAL_STATE_PENDING);
        /* after a restart of the agent it waits for its caller: that is not work under way */
        assert_int_equal(
            shown(&a, PB__ACTUAL_STATE__E__Pending, PB__DESIRED_STATE__E__Running, false),
            PA__ACTUAL_STATE__ACTUAL_STATE_UNKNOWN);
        assert_int_equal(
            shown(&a, PB__ACTUAL_STATE__E__Running, PB__DESIRED_STATE__E__Deleted, true),
            PA__ACTUAL_STATE__ACTUAL_STATE_PENDING);
        code.value = 3;
        u.unit_id = "web";
        u.revision_id = "r";
        u.state = PB__ACTUAL_STATE__E__Failed;
        u.reason = PB__REASON__E__image_unavailable;
        u.exit_code = &code;
        u.type = PB__WORKLOAD_TYPE__E__process;
        Pa__WorkloadStatus *s = push_from_status(&a, &u, &v);
        assert_int_equal(s->type, PA__WORKLOAD_TYPE__WORKLOAD_TYPE_CONTAINER);
        assert_string_equal(pb_map_get(s->metadata, s->n_metadata, "failure_reason"),
                            "IMAGE_PULL_FAILED");
        assert_string_equal(pb_map_get(s->metadata, s->n_metadata, "exit_code"), "3");
        arena_fini(&a);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_container_named_process_is_a_process),
                cmocka_unit_test(compose_comes_as_text_or_as_base64),
                cmocka_unit_test(tokens_are_read_from_revisions),
                cmocka_unit_test(a_unit_is_shown_in_the_callers_words),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
