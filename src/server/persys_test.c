/* server/persys_test.c: the control dialect where a real process cannot easily be brought: the
 * store is away, callers leave, descriptors are asked for in odd ways. What it does when all is
 * well is in tests/e2e/test_persys.py. */
#include "model/json.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "persys_control.pb-c.h"
#include "reflection_v1.pb-c.h"
#include "server/reflection.h"
#include "server/testkit.h"
#include "store/store.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static _Atomic int store_fault; /* an err_code; 0: none */
int __real_store_submit(struct store *s, const struct store_batch *batch, struct err *err);
int __wrap_store_submit(struct store *s, const struct store_batch *batch, struct err *err);
int __wrap_store_submit(struct store *s, const struct store_batch *batch, struct err *err)
{
        int code = atomic_load(&store_fault);
        if (code != 0)
                return err_set(err, (enum err_code)code, .msg = "injected");
        return __real_store_submit(s, batch, err);
}

static struct arena arena;

static int setup(void **state)
{
        atomic_store(&store_fault, 0);
        return server_setup(state);
}

static int teardown(void **state)
{
        atomic_store(&store_fault, 0);
        arena_fini(&arena);
        return server_teardown(state);
}

/* The answer as protojson, or the status and its message. */
static const char *ask(struct fixture *f, const ProtobufCServiceDescriptor *service,
                       const char *method, const char *json)
{
        const ProtobufCMethodDescriptor *m =
            protobuf_c_service_descriptor_get_method_by_name(service, method);
        ProtobufCMessage *request = NULL, *response = NULL;
        struct str packed = STR_INIT, out = STR_INIT;
        struct grpc_reply reply = { 0 };
        struct err err = { 0 };
        if (json_read(m->input, json, strlen(json), SIZE_MAX, JSON_PROTO, &arena, &request, &err) <
            0)
                fail_msg("%s: %s", json, err_line(&err));
        pb_pack(&packed, request);
        assert_int_equal(grpc_call_sync(f->grpc, NULL, NULL, fmt("/%s/%s", service->name, method),
                                        str_c(&packed), packed.len, 20000, &reply, &err),
                         0);
        if (reply.status != GRPC_OK)
                str_addf(&out, "%s: %s", grpc_status_name(reply.status), reply.message);
        else {
                assert_int_equal(pb_unpack(m->output, str_c(&reply.data), reply.data.len, &arena,
                                           &response, &err),
                                 0);
                json_write(&out, response, JSON_PROTO);
        }
        const char *text = arena_strdup(&arena, str_c(&out));
        str_fini(&packed);
        str_fini(&out);
        grpc_reply_fini(&reply);
        return text;
}

static const char *control(struct fixture *f, const char *method, const char *json)
{
        return ask(f, &pc__agent_control__descriptor, method, json);
}

#define NODE                                                                                       \
        "{\"node_id\":\"n\",\"grpc_endpoint\":\"127.0.0.1:1\",\"capabilities\":{\"cpu_total_"      \
        "millicores\":\"1000\",\"memory_total_mb\":"                                               \
        "\"1000\"}}"
#define APPLY "{\"workload_id\":\"w\",\"spec\":{\"container\":{\"image\":\"x\"}}}"

static void await_mode(struct fixture *f, const char *mode)
{
        for (int i = 0; i < 1000; i++) {
                struct http_answer a = expect_http(f, "GET", "/persys/health", "", NULL, 200);
                bool there = strstr(str_c(&a.body), fmt("\"mode\":\"%s\"", mode)) != NULL;
                http_answer_fini(&a);
                if (there)
                        return;
                usleep(10000);
        }
        fail_msg("never %s", mode);
}

/* R: C3 C35. B-9 and B-10: frozen while the store is away, and back by itself, whether the store is
 * empty or not; B-18: health says so. */
static void while_the_store_is_away_it_says_frozen_and_loses_nothing(void **state)
{
        struct fixture *f = *state;
        assert_non_null(strstr(control(f, "RegisterNode", NODE), "\"accepted\":true"));
        atomic_store(&store_fault, ERR_UNAVAILABLE);
        /* the one that finds out: its outcome is not known, and it says so */
        assert_non_null(
            strstr(control(f, "ApplyWorkload", APPLY), "\"failure_reason\":\"RUNTIME_ERROR\""));
        await_mode(f, "degraded");
        assert_non_null(strstr(control(f, "ApplyWorkload", APPLY),
                               "scheduler degraded/recovery mode; control plane frozen"));
        assert_non_null(strstr(control(f, "DeleteWorkload", "{\"workload_id\":\"w\"}"),
                               "control plane frozen"));
        assert_string_equal(control(f, "RetryWorkload", "{\"workload_id\":\"w\"}"), "{}");
        assert_string_equal(control(f, "RegisterNode", NODE),
                            "{\"reason\":\"scheduler degraded/recovery mode\"}");
        assert_non_null(
            strstr(control(f, "SubmitAutomationSuggestion",
                           "{\"suggestion\":{\"target_workload\":\"w\",\"action_type\":2}}"),
                   "\"decision\":\"rejected\",\"reason\":\"scheduler degraded/recovery mode\""));
        const char *beat = control(f, "Heartbeat", "{\"node_id\":\"n\"}");
        assert_non_null(strstr(beat, "\"acknowledged\":true"));
        /* a store that is away is no reason to empty nodes */
        assert_null(strstr(beat, "drain_node"));
        /* reads show what is committed */
        const char *seen = control(f, "ListNodes", "{}");
        if (!strstr(seen, "\"node_id\":\"n\""))
                fail_msg("%s", seen);
        assert_string_equal(control(f, "GetWorkload", "{\"workload_id\":\"w\"}"),
                            "NOT_FOUND: workload \"w\" not found");
        struct http_answer a = expect_http(f, "GET", "/persys/nodes/n", "", NULL, 200);
        http_answer_fini(&a);
        atomic_store(&store_fault, 0);
        await_mode(f, "normal");
        assert_string_equal(
            control(f, "ApplyWorkload", APPLY),
            "{\"success\":true}"); /* the first one went through meanwhile: the same again */
        assert_non_null(strstr(control(f, "GetWorkload", "{\"workload_id\":\"w\"}"),
                               "\"desired_state\":\"Running\""));
}

/* R: C3 A12. What nobody waits for any more is forgotten; the sanitizers watch. */
static void callers_that_leave_are_forgotten(void **state)
{
        struct fixture *f = *state;
        struct err err = { 0 };
        Pc__ListWorkloadsRequest list = PC__LIST_WORKLOADS_REQUEST__INIT;
        struct str packed = STR_INIT;
        pb_pack(&packed, &list.base);
        atomic_store(&store_fault, ERR_UNAVAILABLE);
        struct http_answer a = http_do(f->http, "GET", "/health", "", NULL);
        http_answer_fini(&a);
        for (int i = 0; i < 20; i++) {
                static const char *const methods[] = { "ListWorkloads", "GetClusterSummary" };
                struct grpc_reply reply = { 0 };
                assert_int_equal(
                    grpc_call_sync(f->grpc, NULL, NULL,
                                   fmt("/persys.control.v1.AgentControl/%s", methods[i % 2]),
                                   str_c(&packed), packed.len, 5, &reply, &err),
                    0);
                grpc_reply_fini(&reply);
        }
        str_fini(&packed);
        atomic_store(&store_fault, 0);
        await_mode(f, "normal");
        assert_string_equal(control(f, "ListWorkloads", "{}"), "{}");
}

static const char *reflect(const char *json)
{
        struct str packed = STR_INIT, out = STR_INIT, text = STR_INIT;
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };
        assert_int_equal(json_read(&gr_v1__server_reflection_request__descriptor, json,
                                   strlen(json), SIZE_MAX, JSON_PROTO, &arena, &m, &err),
                         0);
        pb_pack(&packed, m);
        assert_int_equal(reflection_answer(&out, str_c(&packed), packed.len), 0);
        assert_int_equal(pb_unpack(&gr_v1__server_reflection_response__descriptor, str_c(&out),
                                   out.len, &arena, &m, &err),
                         0);
        json_write(&text, m, JSON_PROTO);
        const char *answer = arena_strdup(&arena, str_c(&text));
        str_fini(&packed);
        str_fini(&out);
        str_fini(&text);
        return answer;
}

/* R: C3 */
static void reflection_answers_whatever_it_is_asked(void **state)
{
        (void)state;
        assert_non_null(
            strstr(reflect("{\"list_services\":\"\"}"), "persys.control.v1.AgentControl"));
        assert_non_null(strstr(reflect("{}"), "\"error_code\":3"));
        assert_non_null(
            strstr(reflect("{\"file_by_filename\":\"nope.proto\"}"), "\"error_code\":5"));
        assert_non_null(
            strstr(reflect("{\"file_by_filename\":\"records.proto\"}"), "file_descriptor_proto"));
        assert_non_null(strstr(
            reflect("{\"file_containing_symbol\":\"persys.control.v1.AgentControl.GetNode\"}"),
            "file_descriptor_proto"));
        assert_non_null(strstr(
            reflect("{\"file_containing_symbol\":\"persys.control.v1.AgentControl.GetNod\"}"),
            "\"error_code\":5"));
        assert_non_null(strstr(reflect("{\"file_containing_symbol\":\"google.protobuf."
                                       "DescriptorProto.ExtensionRange.start\"}"),
                               "file_descriptor_proto"));
        assert_non_null(strstr(reflect("{\"file_containing_extension\":{\"containing_type\":"
                                       "\"google.protobuf.FileOptions\",\"extension_number\":1}}"),
                               "\"error_code\":5"));
        assert_non_null(strstr(reflect("{\"all_extension_numbers_of_type\":\"berth.v1.Node\"}"),
                               "\"base_type_name\":\"berth.v1.Node\""));
        struct str out = STR_INIT;
        assert_int_equal(reflection_answer(&out, "\xff\xff", 2), -1);
        str_fini(&out);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(
                    while_the_store_is_away_it_says_frozen_and_loses_nothing, setup, teardown),
                cmocka_unit_test_setup_teardown(callers_that_leave_are_forgotten, setup, teardown),
                cmocka_unit_test(reflection_answers_whatever_it_is_asked),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
