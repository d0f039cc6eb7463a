/* Tests of model/manifest.h. */
#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/mem.h"
#include "events.pb-c.h"
#include "model/json.h"
#include "model/manifest.h"
#include "model/pb.h"
#include "model/random_message.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void reads_as(const char *yaml, const char *json)
{
        struct arena arena = ARENA_INIT;
        struct manifest m = { 0 };
        struct str out = STR_INIT;
        struct err err = { 0 };

        if (manifest_read("test", yaml, strlen(yaml), &arena, &m, &err) < 0)
                fail_msg("%s: %s", yaml, err_line(&err));
        for (size_t i = 0; i < m.n_items; i++) {
                str_adds(&out, i ? "\n" : "");
                json_write(&out, &m.items[i].workload->base, 0);
        }
        assert_string_equal(str_c(&out), json);
        str_fini(&out);
        arena_fini(&arena);
}

static void refuses(const char *yaml, const char *msg, const char *path)
{
        struct arena arena = ARENA_INIT;
        struct manifest m;
        struct err err = { 0 };

        if (manifest_read("f.yaml", yaml, strlen(yaml), &arena, &m, &err) != -ERR_INVALID)
                fail_msg("taken: %.200s", yaml);
        if (!str_starts(err.msg, msg))
                fail_msg("\"%s\" instead of \"%s\"", err.msg, msg);
        assert_string_equal(err.path, path);
        arena_fini(&arena);
}

static void scalars_mean_what_the_field_makes_of_them(void **state)
{
        (void)state;
        reads_as("kind: Workload\nid: web\nspec:\n  command: [sh, -c, 'echo 1', yes, 007]\n  env: "
                 "{PORT: 8080, DEBUG: yes, NONE: \"\", N: "
                 "'null', F: 1.50}\n"
                 "resources: {cpu: 0.5, memory_mb: 64}\nrestart: on-failure\nlabels:\n  zone: a\n  "
                 "app: 'x'\n",
                 "{\"id\":\"web\",\"spec\":{\"command\":[\"sh\",\"-c\",\"echo "
                 "1\",\"yes\",\"007\"],\"env\":{\"DEBUG\":\"yes\",\"F\":\"1.50\",\"N\":\"null\","
                 "\"NONE\":\"\",\"PORT\":\"8080\"}},"
                 "\"resources\":{\"cpu\":0.5,\"memory_mb\":64},\"labels\":{\"app\":\"x\",\"zone\":"
                 "\"a\"},\"restart\":\"on-failure\"}");
        reads_as("id: 8080\nresources: {cpu: 250m}",
                 "{\"id\":\"8080\",\"resources\":{\"cpu\":0.25}}");
        reads_as("resources: {cpu: \"1.5\"}", "{\"resources\":{\"cpu\":1.5}}");
        reads_as("id: ~\nlabels:\nspec: null\ntype: process", "{\"type\":\"process\"}");
        reads_as("spec:\n  compose: |\n    a: b\n    c:\n      - d\n",
                 "{\"spec\":{\"compose\":\"a: b\\nc:\\n  - d\\n\"}}");
        reads_as(
            "metadata: {created_at: 2026-02-17T00:00:00Z, updated_at: \"2026-02-17T00:00:00.5Z\"}",
            "{\"metadata\":{\"created_at\":\"2026-02-17T00:00:00Z\",\"updated_at\":\"2026-02-17T00:"
            "00:00.500Z\"}}");
}

static void several_documents_and_lists_are_read(void **state)
{
        struct arena arena = ARENA_INIT;
        struct manifest m;
        static const char text[] = "# first\nid: a\n---\n---\nid: b\n...\n---\n- id: c\n- {id: d, "
                                   "kind: Workload}\n---\nitems:\n- id: e\n  "
                                   "resource_version: 7\n- id: f\nresource_version: 9\ntotal: 2\n";

        (void)state;
        reads_as(text, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"c\"}\n{\"id\":\"d\"}\n{\"id\":"
                       "\"e\",\"resource_version\":7}\n{\"id\":\"f\"}");
        assert_int_equal(manifest_read("test", text, strlen(text), &arena, &m, NULL), 0);
        assert_int_equal(m.items[0].line, 2);
        assert_int_equal(m.items[1].line, 5);
        assert_int_equal(m.items[3].line, 9);
        assert_int_equal(m.items[5].line, 14);
        reads_as("", "");
        reads_as("# nothing\n---\n", "");
        reads_as("[]", "");
        reads_as("kind: List\napiVersion: berth/v1\nitems:\n", "");
        arena_fini(&arena);
}

static void json_is_a_manifest_too(void **state)
{
        (void)state;
        reads_as("{\"id\":\"\\ud83d\\ude00\"}", "{\"id\":\"\xf0\x9f\x98\x80\"}");
        reads_as("{\n\t\"kind\": "
                 "\"Workload\",\n\t\"id\":\"a\",\n\t\"resources\":{\"cpu\":\"250m\"},\"spec\":{"
                 "\"command\":[\"a\\/b\"]}\n}\n",
                 "{\"id\":\"a\",\"spec\":{\"command\":[\"a/b\"]},\"resources\":{\"cpu\":0.25}}");
        reads_as("[{\"id\":\"a\"},{\"id\":\"b\"}]", "{\"id\":\"a\"}\n{\"id\":\"b\"}");
        reads_as("{\"items\":[{\"id\":\"a\"}],\"resource_version\":5}", "{\"id\":\"a\"}");
}

static void hints(const char *text, const char *hint)
{
        struct arena arena = ARENA_INIT;
        struct manifest m;
        struct err err = { 0 };

        assert_int_equal(manifest_read("f.yaml", text, strlen(text), &arena, &m, &err),
                         -ERR_INVALID);
        assert_string_equal(err.hint, hint);
        arena_fini(&arena);
}

/* R: A9 */
static void hints_lead_to_something_that_is_taken(void **state)
{
        (void)state;
        hints("resources: {memory_mb: '512'}", "take the quotes away");
        hints("resources: {memory_mb: '512Mi'}", "memory_mb is a plain number: write 512");
        hints("resources: {memory_mb: 2Gi}", "memory_mb is a plain number: write 2048");
        hints("resources: {memory_mb: 'much'}", "");
        hints("resources: {cpu: 'lots'}", "");
        hints("restart: 'allways'", "did you mean always?");
        hints("spec: {command: [\"a\\0b\"]}", "leave out \\u0000 and \\0");
}

/* R: A9 */
static void errors_say_where(void **state)
{
        (void)state;
        refuses("id: a\nspec:\n  comand: [x]\n",
                "f.yaml:3:3: spec.comand: unknown field, did you mean command", "spec.comand");
        refuses("resources: {memory: 512Mi}",
                "f.yaml:1:13: resources.memory: unknown field, did you mean memory_mb",
                "resources.memory");
        refuses("resources: {memory_mb: 512Mi}",
                "f.yaml:1:24: resources.memory_mb: expected a whole number", "resources.memory_mb");
        refuses("resources: {memory_mb: '512'}",
                "f.yaml:1:24: resources.memory_mb: expected a whole number from 0 to "
                "1099511627776, got \"512\"",
                "resources.memory_mb");
        refuses("id: a\nid: b", "f.yaml:2:1: id: the field is there twice", "id");
        refuses("labels:\n  a: 1\n  a: 2\n", "f.yaml:2:3: labels.a: the key is there twice",
                "labels.a");
        refuses("spec: {env: {A: }}", "f.yaml:1:17: spec.env.A: expected a string, got nothing",
                "spec.env.A");
        refuses("spec: {command: ls}", "f.yaml:1:17: spec.command: expected a list, got ls",
                "spec.command");
        refuses("spec: {command: [a, [b]]}",
                "f.yaml:1:21: spec.command[1]: expected a string, got a list", "spec.command[1]");
        refuses(
            "spec: {command: [\"a\\0b\"]}",
            "f.yaml:1:18: spec.command[0]: expected a string, got a text with a zero byte in it",
            "spec.command[0]");
        refuses("{\"type\":\"frob\"}",
                "f.yaml:1:9: type: expected one of container, compose, vm, process, got \"frob\"",
                "type");
        refuses("restart: allways",
                "f.yaml:1:10: restart: expected one of always, on-failure, never, got allways",
                "restart");
        refuses("spec: x", "f.yaml:1:7: spec: expected an object, got x", "spec");
        refuses("spec:\n\t- x", "f.yaml:2:1: spec: found character that cannot start any token",
                "spec");
        refuses("a: [", "f.yaml:", "a");
        refuses("hello", "f.yaml:1:1: expected a workload, got hello", "");
        refuses("- 1", "f.yaml:1:3: [0]: expected a workload, got 1", "[0]");
        refuses("kind: Service\n", "f.yaml:1:7: kind: expected Workload, got Service", "kind");
        refuses("apiVersion: apps/v1\n", "f.yaml:1:13: apiVersion: expected berth/v1, got apps/v1",
                "apiVersion");
        refuses("---\nid: a\n---\nitems:\n- id: {}\n",
                "f.yaml:5:7: items[0].id: expected a string, got an object", "items[0].id");
        refuses("id: a\n? [x]\n: y\n", "f.yaml:2:3: a key must be plain text", "");
}

/* R: A9 */
static void what_makes_yaml_dangerous_is_refused(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT;
        struct err err = { 0 };
        struct manifest m;

        (void)state;
        refuses("id: &x a", "f.yaml:1:5: id: anchors", "id");
        refuses("id: *x", "f.yaml:1:5: id: aliases", "id");
        refuses("id: !!str a", "f.yaml:1:5: id: tags", "id");
        refuses("spec: !foo {}", "f.yaml:1:7: spec: tags", "spec");
        refuses("<<: {id: a}", "f.yaml:1:1: merge keys", "");
        refuses("id: \xff\xfe", "f.yaml: ", "");
        refuses("\xff\xfe"
                "i",
                "f.yaml: ", "");
        for (int i = 0; i < 200000; i++)
                str_addc(&text, '[');
        assert_int_equal(manifest_read("f", str_c(&text), text.len, &arena, &m, &err),
                         -ERR_INVALID);
        str_clear(&text);
        for (int i = 0; i < 200000; i++)
                str_adds(&text, "- {}\n");
        assert_int_equal(manifest_read("f", str_c(&text), text.len, &arena, &m, &err),
                         -ERR_INVALID);
        assert_non_null(strstr(err.msg, "workloads in one manifest"));
        str_clear(&text);
        str_adds(&text, "spec: {command: [");
        for (int i = 0; i < 200000; i++)
                str_adds(&text, "a,");
        str_adds(&text, "]}");
        assert_int_equal(manifest_read("f", str_c(&text), text.len, &arena, &m, &err),
                         -ERR_INVALID);
        assert_non_null(strstr(err.msg, "values in one manifest"));
        while (text.len <= MANIFEST_MAX_BYTES)
                str_addc(&text, ' ');
        assert_int_equal(manifest_read("f", str_c(&text), text.len, &arena, &m, &err),
                         -ERR_INVALID);
        assert_non_null(strstr(err.msg, "too long"));
        str_fini(&text);
        arena_fini(&arena);
}

static void output_is_nice_to_read(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str out = STR_INIT;
        struct manifest m;
        static const char text[] = "{id: web, spec: {command: [sh, -c, \"a\\nb\\n\"], env: {PORT: "
                                   "8080, K: v}, ports: [{host_port: 1, protocol: tcp}, {}]}, "
                                   "resources: {},"
                                   " status: {exit_code: 0, last_updated: 2026-02-17T00:00:00Z}, "
                                   "restart: on-failure, labels: {\"a/b\": \"no\"}}";

        (void)state;
        assert_int_equal(manifest_read("t", text, strlen(text), &arena, &m, NULL), 0);
        yaml_write(&out, &m.items[0].workload->base);
        assert_string_equal(str_c(&out), "id: web\n"
                                         "spec:\n"
                                         "  command:\n"
                                         "    - sh\n"
                                         "    - \"-c\"\n"
                                         "    - |\n"
                                         "      a\n"
                                         "      b\n"
                                         "  env:\n"
                                         "    K: v\n"
                                         "    PORT: \"8080\"\n"
                                         "  ports:\n"
                                         "    - host_port: 1\n"
                                         "      protocol: tcp\n"
                                         "    - {}\n"
                                         "resources: {}\n"
                                         "status:\n"
                                         "  last_updated: 2026-02-17T00:00:00Z\n"
                                         "  exit_code: 0\n"
                                         "labels:\n"
                                         "  a/b: \"no\"\n"
                                         "restart: on-failure\n");
        str_fini(&out);
        arena_fini(&arena);
}

static void every_message_survives_yaml(void **state)
{
        static const ProtobufCMessageDescriptor *const types[] = {
                &pb__workload__descriptor,    &pb__node__descriptor,
                &pb__event__descriptor,       &pb__hello__descriptor,
                &pb__explanation__descriptor, &pb__list_workloads_response__descriptor,
                &pb__log_chunk__descriptor
        };
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT;
        struct err err = { 0 };
        struct rng rng;

        (void)state;
        rng_seed(&rng, 5);
        for (int round = 0; round < 3000; round++) {
                const ProtobufCMessageDescriptor *type = types[rng_below(&rng, ARRAY_LEN(types))];
                ProtobufCMessage *m = random_message(&arena, &rng, type, 500000), *back;
                str_clear(&text);
                yaml_write(&text, m);
                if (yaml_read(type, "t", text.buf, text.len, &arena, &back, &err) < 0)
                        fail_msg("round %d: %s: %s", round, err_line(&err), str_c(&text));
                if (!pb_equal(m, back))
                        fail_msg("round %d: not the same: %s", round, str_c(&text));
                arena_reset(&arena);
        }
        str_fini(&text);
        arena_fini(&arena);
}

static void long_keys_survive_yaml(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str out = STR_INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        ProtobufCMessage *back;
        char key[3000];

        (void)state;
        memset(key, 'k', sizeof(key));
        key[sizeof(key) - 1] = '\0';
        pb_map_set(&arena, &w.base, "labels", key, "v\nw");
        pb_map_set(&arena, &w.base, "labels", "a", "b");
        yaml_write(&out, &w.base);
        assert_int_equal(
            yaml_read(&pb__workload__descriptor, "t", out.buf, out.len, &arena, &back, NULL), 0);
        assert_true(pb_equal(&w.base, back));
        str_fini(&out);
        arena_fini(&arena);
}

static void damaged_manifests_do_no_harm(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT;
        struct err err = { 0 };
        struct rng rng;

        (void)state;
        rng_seed(&rng, 6);
        for (int round = 0; round < 5000; round++) {
                struct manifest m;
                str_clear(&text);
                yaml_write(&text, random_message(&arena, &rng, &pb__workload__descriptor, 400000));
                size_t len = rng_below(&rng, 2) ? text.len : rng_below(&rng, text.len + 1);
                char *copy = mem_dup(text.buf, len ? len : 1);
                for (int i = 0; len > 0 && i < 2; i++)
                        copy[rng_below(&rng, len)] =
                            rng_below(&rng, 2) ? (char)rng_next(&rng)
                                               : "\"\\{}[],:0-.&*!|>\n \t'#?"[rng_below(&rng, 23)];
                (void)manifest_read("t", copy, len, &arena, &m, &err);
                mem_free(copy);
                arena_reset(&arena);
        }
        str_fini(&text);
        arena_fini(&arena);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(scalars_mean_what_the_field_makes_of_them),
                cmocka_unit_test(several_documents_and_lists_are_read),
                cmocka_unit_test(json_is_a_manifest_too),
                cmocka_unit_test(errors_say_where),
                cmocka_unit_test(hints_lead_to_something_that_is_taken),
                cmocka_unit_test(what_makes_yaml_dangerous_is_refused),
                cmocka_unit_test(output_is_nice_to_read),
                cmocka_unit_test(every_message_survives_yaml),
                cmocka_unit_test(long_keys_survive_yaml),
                cmocka_unit_test(damaged_manifests_do_no_harm),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
