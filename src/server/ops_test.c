/* server/ops_test.c: the table is consistent, and requests over HTTP become the right messages. */
#include "base/array.h"
#include "model/validate.h"
#include "persys_control.pb-c.h"
#include "server/metrics.h"
#include "server/ops.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct fake {
        const char *id;
        const char *query[8][2];
};
static const char *param(const void *ctx, const char *name)
{
        return strcmp(name, "id") == 0 ? ((const struct fake *)ctx)->id : NULL;
}
static const char *query_name(const void *ctx, size_t i)
{
        return ((const struct fake *)ctx)->query[i][0];
}
static const char *query_value(const void *ctx, size_t i)
{
        return ((const struct fake *)ctx)->query[i][1];
}

static struct arena arena;
static struct err err;
static bool pretty;

static ProtobufCMessage *decode(const char *method, const char *path, const struct fake *f,
                                const char *body, const struct op_text *more)
{
        const struct op *op = op_by_route(method, path);
        assert_non_null(op);
        struct op_text t = more ? *more : (struct op_text){ 0 };
        t.param = param;
        t.query_name = query_name;
        t.query_value = query_value;
        t.ctx = f;
        while (t.n_query < 8 && f->query[t.n_query][0])
                t.n_query++;
        t.body = body ? body : "";
        t.body_len = strlen(t.body);
        t.max_body_bytes = 1 << 20;
        ProtobufCMessage *m = NULL;
        err = (struct err){ 0 };
        return op_decode_text(op, &t, &arena, &m, &pretty, &err) < 0 ? NULL : m;
}

static int teardown(void **state)
{
        (void)state;
        arena_fini(&arena);
        return 0;
}

/* R: C2 */
static void every_rest_call_of_the_requirements_has_a_row(void **state)
{
        static const char *const want[][2] = {
                { "POST", "/workloads" },
                { "PUT", "/workloads/{id}" },
                { "DELETE", "/workloads/{id}" },
                { "GET", "/workloads/{id}" },
                { "GET", "/workloads" },
                { "GET", "/nodes" },
                { "POST", "/workloads/{id}/retry" },
                { "GET", "/metrics" },
                { "GET", "/health" },
                { "GET", "/v1/nodes/{id}" },
                { "GET", "/events" },
                { "GET", "/events/stream" },
                { "GET", "/openapi.json" },
                { "POST", "/v1/workloads/{id}/stop" },
                { "POST", "/workloads/{id}/start" },
                { "GET", "/workloads/{id}/explain" },
                { "GET", "/workloads/{id}/logs" },
                { "POST", "/nodes/{id}/cordon" },
                { "POST", "/nodes/{id}/uncordon" },
                { "POST", "/nodes/{id}/drain" },
                { "DELETE", "/nodes/{id}" },
                { "GET", "/cluster" },
                { "GET", "/" },
                { "HEAD", "/v1" },
                { "POST", "/persys/workloads/schedule" },
                { "GET", "/persys/clusters/{cluster_id}/workloads/{id}" },
                { "GET", "/persys/clusters/{cluster_id}" },
        };
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(want); i++)
                if (!op_by_route(want[i][0], want[i][1]))
                        fail_msg("no row for %s %s", want[i][0], want[i][1]);
        assert_null(op_by_route("PATCH", "/workloads/{id}"));
        assert_null(op_by_route("GET", "/workload"));
}

/* R: C2 */
static void every_method_of_the_service_has_exactly_one_row(void **state)
{
        const ProtobufCServiceDescriptor *sv[] = { &pb__control__descriptor, &pb__agent__descriptor,
                                                   &pc__agent_control__descriptor };
        (void)state;
        assert_true(n_ops < METRICS_OPS - 1);
        for (size_t k = 0; k < ARRAY_LEN(sv); k++)
                for (unsigned i = 0; i < sv[k]->n_methods; i++) {
                        const ProtobufCMethodDescriptor *m = &sv[k]->methods[i];
                        size_t n = 0;
                        for (size_t j = 0; j < n_ops; j++)
                                if (ops[j].rpc &&
                                    strcmp(ops[j].rpc, fmt("/%s/%s", sv[k]->name, m->name)) == 0) {
                                        n++;
                                        assert_ptr_equal(ops[j].request, m->input);
                                        if (ops[j].response)
                                                assert_ptr_equal(ops[j].response, m->output);
                                }
                        if (n != 1)
                                fail_msg("%zu rows for %s", n, m->name);
                }
}

/* R: C2 */
static void path_query_and_constants_fill_the_request(void **state)
{
        (void)state;
        struct fake f = { .id = "web" };
        Pb__SetDesiredRequest *d = (void *)decode("POST", "/workloads/{id}/stop", &f, "", NULL);
        assert_non_null(d);
        assert_string_equal(d->id, "web");
        assert_int_equal(d->desired_state, PB__DESIRED_STATE__E__Stopped);

        struct fake n = { .id = "n1" };
        Pb__SetNodeWishRequest *w = (void *)decode("POST", "/v1/nodes/{id}/drain", &n, "{}", NULL);
        assert_non_null(w);
        assert_int_equal(w->wish, PB__NODE_WISH__E__draining);

        struct fake l = { .query = { { "limit", "50" },
                                     { "selector", "app=web,tier!=x" },
                                     { "status", "running" },
                                     { "pretty", "" } } };
        Pb__ListWorkloadsRequest *q = (void *)decode("GET", "/workloads", &l, NULL, NULL);
        assert_non_null(q);
        assert_int_equal(q->limit, 50);
        assert_string_equal(q->selector, "app=web,tier!=x");
        assert_true(pretty);

        struct fake g = { .id = "web", .query = { { "follow", "" }, { "tail", "20" } } };
        Pb__LogsRequest *logs = (void *)decode("GET", "/workloads/{id}/logs", &g, NULL, NULL);
        assert_non_null(logs);
        assert_true(logs->follow);
        assert_int_equal(logs->tail_lines, 20);
        assert_string_equal(logs->id, "web");

        struct fake e = {
                .query = { { "since", "12" }, { "type", "NodeLost" }, { "newest_first", "true" } }
        };
        Pb__ListEventsRequest *ev = (void *)decode("GET", "/events", &e, NULL, NULL);
        assert_non_null(ev);
        assert_int_equal(ev->since, 12);
        assert_true(ev->newest_first);
}

/* R: A9 */
static void unknown_and_bad_parameters_are_refused(void **state)
{
        (void)state;
        struct fake f = { .query = { { "selctor", "a=b" } } };
        assert_null(decode("GET", "/workloads", &f, NULL, NULL));
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.path, "selctor");
        assert_non_null(strstr(err.hint, "selector"));

        struct fake g = { .query = { { "limit", "many" } } };
        assert_null(decode("GET", "/workloads", &g, NULL, NULL));
        assert_string_equal(err.path, "limit");
        struct fake h = { .query = { { "limit", "100000" } } };
        assert_null(decode("GET", "/workloads", &h, NULL, NULL));
        struct fake twice = { .query = { { "limit", "1" }, { "limit", "2" } } };
        assert_null(decode("GET", "/workloads", &twice, NULL, NULL));
        struct fake own = { .id = "x", .query = { { "desired_state", "Running" } } };
        assert_null(decode("POST", "/workloads/{id}/stop", &own, NULL, NULL));
        struct fake health = { .query = { { "x", "1" } } };
        assert_null(decode("GET", "/health", &health, NULL, NULL));
        assert_int_equal(err.code, ERR_INVALID);
        struct fake follow = { .query = { { "follow", "1" } } };
        assert_null(decode("GET", "/events", &follow, NULL, NULL));
        assert_non_null(strstr(err.hint, "stream"));
        struct fake body = { .id = "x" };
        assert_null(decode("POST", "/workloads/{id}/retry", &body, "{\"a\":1}", NULL));
}

/* R: C12 C2 A9 */
static void a_drain_takes_its_deadline_from_the_body_or_the_query(void **state)
{
        (void)state;
        struct fake f = { .id = "n1" };
        Pb__SetNodeWishRequest *q = (void *)decode("POST", "/nodes/{id}/drain", &f, NULL, NULL);
        assert_non_null(q);
        assert_int_equal(q->deadline_seconds, 0);
        assert_int_equal(q->wish, PB__NODE_WISH__E__draining);
        q = (void *)decode("POST", "/nodes/{id}/drain", &f, "{\"deadline_seconds\":600}", NULL);
        assert_int_equal(q->deadline_seconds, 600);
        assert_string_equal(q->id, "n1");
        struct fake asked = { .id = "n1", .query = { { "deadline_seconds", "60" } } };
        q = (void *)decode("POST", "/nodes/{id}/drain", &asked, "{}", NULL);
        assert_int_equal(q->deadline_seconds, 60);
        assert_null(decode("POST", "/nodes/{id}/drain", &f, "{\"deadline_seconds\":-1}", NULL));
        assert_null(decode("POST", "/nodes/{id}/drain", &f, "{\"deadline\":1}", NULL));
        assert_null(decode("POST", "/nodes/{id}/drain", &f, "{\"id\":\"n2\"}", NULL));
        assert_null(decode("POST", "/nodes/{id}/drain", &f, "{\"wish\":\"cordoned\"}", NULL));
        assert_null(decode("POST", "/nodes/{id}/drain", &f, "[]", NULL));
}

#define SPEC "{\"id\":\"web\",\"spec\":{\"command\":[\"true\"]}}"

/* R: C2 A10 */
static void create_apply_and_preconditions(void **state)
{
        (void)state;
        struct fake f = { .id = "web" };
        struct fake none = { 0 };
        Pb__ApplyWorkloadRequest *a = (void *)decode("POST", "/workloads", &none, SPEC, NULL);
        assert_non_null(a);
        assert_true(a->create_only);
        assert_int_equal(a->workload->type, PB__WORKLOAD_TYPE__E__process); /* completed */

        struct op_text t = { .if_match = "\"42\"" };
        a = (void *)decode("PUT", "/workloads/{id}", &f, "{\"spec\":{\"command\":[\"true\"]}}", &t);
        assert_non_null(a);
        assert_false(a->create_only);
        assert_int_equal(a->if_match, 42);
        assert_string_equal(a->workload->id, "web");

        t = (struct op_text){ .if_match = "*" };
        a = (void *)decode("PUT", "/workloads/{id}", &f, SPEC, &t);
        assert_true(a && a->update_only);
        t = (struct op_text){ .if_none_match = "*" };
        a = (void *)decode("PUT", "/workloads/{id}", &f, SPEC, &t);
        assert_true(a && a->create_only);
        t = (struct op_text){ .if_match = "\"abc\"" };
        assert_null(decode("PUT", "/workloads/{id}", &f, SPEC, &t));
        assert_string_equal(err.path, "If-Match");

        struct fake other = { .id = "other" };
        assert_null(decode("PUT", "/workloads/{id}", &other, SPEC, NULL));
        assert_string_equal(err.path, "id");
        assert_null(decode("PUT", "/workloads/{id}", &f, "", NULL));
}

/* R: A9 */
static void a_bad_body_names_the_path_as_the_caller_sees_it(void **state)
{
        struct fake none = { 0 };
        (void)state;
        assert_null(decode("POST", "/workloads", &none,
                           "{\"id\":\"web\",\"spec\":{\"comand\":[\"x\"]}}", NULL));
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.path, "spec.comand");
        assert_null(decode(
            "POST", "/workloads", &none,
            "{\"id\":\"web\",\"spec\":{\"command\":[\"x\"]},\"restart\":\"sometimes\"}", NULL));
        assert_string_equal(err.path, "restart");
        assert_null(decode("POST", "/workloads", &none,
                           "{\"id\":\"web\",\"spec\":{\"command\":[\"x\"]},\"ttl_seconds\":-5}",
                           NULL));
        assert_string_equal(err.path, "ttl_seconds");
        assert_null(decode("POST", "/workloads", &none, "{\"id\":\"web\"", NULL));
}

/* R: C29 */
static void last_event_id_wins_over_since(void **state)
{
        (void)state;
        struct fake f = { .query = { { "since", "5" } } };
        struct op_text t = { .last_event_id = "77" };
        Pb__ListEventsRequest *ev = (void *)decode("GET", "/events/stream", &f, NULL, &t);
        assert_non_null(ev);
        assert_int_equal(ev->since, 77);
        t.last_event_id = "x";
        assert_null(decode("GET", "/events/stream", &f, NULL, &t));
}

static void check_refs(json_t *root, json_t *v)
{
        const char *key;
        json_t *child;
        size_t i;
        if (json_is_object(v)) {
                const char *ref = json_string_value(json_object_get(v, "$ref"));
                if (ref) {
                        assert_true(strncmp(ref, "#/components/schemas/", 21) == 0);
                        json_t *schemas =
                            json_object_get(json_object_get(root, "components"), "schemas");
                        if (!json_object_get(schemas, ref + 21))
                                fail_msg("dangling %s", ref);
                }
                json_object_foreach(v, key, child) check_refs(root, child);
        } else if (json_is_array(v)) {
                json_array_foreach(v, i, child) check_refs(root, child);
        }
}

/* R: C2 */
static void the_openapi_document_is_whole(void **state)
{
        struct str doc = STR_INIT;
        json_error_t jerr;
        (void)state;
        ops_openapi(&doc, "1.2.3");
        json_t *root = json_loadb(doc.buf, doc.len, JSON_REJECT_DUPLICATES, &jerr);
        if (!root)
                fail_msg("%s at %d:%d", jerr.text, jerr.line, jerr.column);
        assert_string_equal(json_string_value(json_object_get(root, "openapi")), "3.1.0");
        check_refs(root, root);
        json_t *paths = json_object_get(root, "paths");
        for (size_t i = 0; i < n_ops; i++) {
                if (!ops[i].path || ops[i].kind == OP_PAGE || ops[i].kind == OP_PERSYS)
                        continue;
                char method[8] = { 0 };
                for (size_t k = 0; ops[i].method[k]; k++)
                        method[k] = (char)(ops[i].method[k] | 0x20);
                json_t *op = json_object_get(json_object_get(paths, ops[i].path), method);
                assert_string_equal(json_string_value(json_object_get(op, "operationId")),
                                    ops[i].name);
                assert_non_null(json_object_get(json_object_get(op, "responses"), "200"));
                assert_non_null(json_object_get(json_object_get(op, "responses"), "default"));
                assert_true(!strstr(ops[i].path, "{id}") ||
                            json_array_size(json_object_get(op, "parameters")) > 0);
        }
        json_decref(root);
        str_fini(&doc);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(every_rest_call_of_the_requirements_has_a_row, teardown),
                cmocka_unit_test_teardown(every_method_of_the_service_has_exactly_one_row,
                                          teardown),
                cmocka_unit_test_teardown(path_query_and_constants_fill_the_request, teardown),
                cmocka_unit_test_teardown(unknown_and_bad_parameters_are_refused, teardown),
                cmocka_unit_test_teardown(create_apply_and_preconditions, teardown),
                cmocka_unit_test_teardown(a_drain_takes_its_deadline_from_the_body_or_the_query,
                                          teardown),
                cmocka_unit_test_teardown(a_bad_body_names_the_path_as_the_caller_sees_it,
                                          teardown),
                cmocka_unit_test_teardown(last_event_id_wins_over_since, teardown),
                cmocka_unit_test_teardown(the_openapi_document_is_whole, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
