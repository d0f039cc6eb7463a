/* Tests of model/validate.h. The single fields are tested by badinput_test.c; here is what lies
 * between them. */
#include "base/str.h"
#include "model/badinput.h"
#include "model/canon.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/random_message.h"
#include "model/validate.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static ProtobufCMessage *parse(struct arena *arena, const ProtobufCMessageDescriptor *type,
                               const char *json)
{
        struct err err = { 0 };
        ProtobufCMessage *m;

        if (json_read(type, json, strlen(json), SIZE_MAX, 0, arena, &m, &err) < 0)
                fail_msg("%s: %s", json, err_line(&err));
        return m;
}

static void refuses(const ProtobufCMessageDescriptor *type, const char *json, const char *path,
                    const char *part)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };

        if (request_normalise(&arena, parse(&arena, type, json), &err) != -ERR_INVALID)
                fail_msg("taken: %s", json);
        assert_string_equal(err.path, path);
        if (!strstr(err.msg, part) && !strstr(err.hint, part))
                fail_msg("\"%s\" (%s) does not say \"%s\"", err.msg, err.hint, part);
        arena_fini(&arena);
}

static void normal_form(const char *json, const char *expected)
{
        struct arena arena = ARENA_INIT;
        struct str out = STR_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m = parse(&arena, &pb__workload__descriptor, json);

        for (int round = 0; round < 2; round++) { /* twice: it is idempotent */
                if (workload_normalise(&arena, (Pb__Workload *)m, &err) < 0)
                        fail_msg("%s: %s", json, err_line(&err));
                str_clear(&out);
                json_write(&out, m, 0);
                assert_string_equal(str_c(&out), expected);
        }
        str_fini(&out);
        arena_fini(&arena);
}

#define WORKLOAD &pb__workload__descriptor

static void defaults_are_filled_in(void **state)
{
        (void)state;
        normal_form("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]}}",
                    "{\"id\":\"a\",\"type\":\"process\",\"revision_id\":\"rev-3b5c944d0486\","
                    "\"desired_state\":\"Running\",\"spec\":{"
                    "\"command\":[\"x\"],\"log_max_kb\":10240},"
                    "\"resources\":{\"cpu\":0.1,\"memory_mb\":128},\"retry\":{\"base_seconds\":5,"
                    "\"cap_seconds\":120},"
                    "\"restart\":\"always\",\"stop_"
                    "grace_seconds\":10,\"default_resources\":true}");
}

/* Issue 5, B6: a 0 that somebody writes is "never again", and unlimited is a word; a service that
 * names nothing names nothing. R: C28 */
static void a_maximum_of_attempts_is_what_was_written(void **state)
{
        static const struct {
                const char *text, *restart;
                int32_t attempts;
        } written[] = { { "0", "always", 1 },    { "1", "always", 1 },
                        { "7", "always", 7 },    { "\"unlimited\"", "on-failure", INT32_MAX },
                        { "null", "always", 0 }, { "null", "on-failure", 5 } };
        struct arena arena = ARENA_INIT;
        char unnamed[REVISION_LEN + 1], five[REVISION_LEN + 1];
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(written); i++) {
                const char *json = fmt("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]},\"restart\":"
                                       "\"%s\",\"retry\":{\"max_attempts\":%s}}",
                                       written[i].restart, written[i].text);
                Pb__Workload *w = (Pb__Workload *)parse(&arena, WORKLOAD, json);
                assert_int_equal(workload_normalise(&arena, w, NULL), 0);
                assert_int_equal(w->retry->max_attempts, written[i].attempts);
                /* what a definition was called before stays its name: nothing is restarted for it
                 * (A10) */
                if (i == 4) {
                        workload_revision(w, unnamed);
                        w->retry->max_attempts = 5;
                        workload_revision(w, five);
                        assert_string_equal(unnamed, five);
                }
        }
        arena_fini(&arena);
}

/* R: A9 */
static void what_belongs_to_the_server_is_dropped(void **state)
{
        struct arena arena = ARENA_INIT;
        Pb__Workload *w = (Pb__Workload *)parse(
            &arena, WORKLOAD,
            "{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]},\"assigned_node\":\"n\",\"status\":{"
            "\"restarts\":3},\"metadata\":{\"last_error\":\"x\"},"
            "\"placement\":{\"node_id\":\"n\"},\"token\":{\"seq\":5},\"retry\":{\"attempts\":4,"
            "\"next_"
            "retry_at\":\"2026-01-01T00:00:00Z\",\"max_attempts\":9},"
            "\"resources\":{\"cpu\":0.1,\"memory_mb\":129},\"default_resources\":true,"
            "\"resource_version\":77,\"revision_id\":\"rev-0123456789ab\"}");

        (void)state;
        assert_int_equal(workload_normalise(&arena, w, NULL), 0);
        assert_string_equal(w->assigned_node, "");
        assert_null(w->status);
        assert_null(w->metadata);
        assert_null(w->placement);
        assert_null(w->token);
        assert_false(w->default_resources); /* it cannot be true */
        assert_int_equal(w->retry->attempts, 0);
        assert_int_equal(w->retry->next_retry_at, 0);
        assert_int_equal(w->retry->max_attempts, 9);
        assert_int_equal(w->resource_version, 77);
        /* an edited copy of what the server gave is a new revision */
        assert_string_not_equal(w->revision_id, "rev-0123456789ab");
        arena_fini(&arena);
}

/* R: C7 */
static void a_revision_of_the_users_own_stays(void **state)
{
        struct arena arena = ARENA_INIT;
        Pb__Workload *w = (Pb__Workload *)parse(
            &arena, WORKLOAD,
            "{\"id\":\"a\",\"revision_id\":\"git-12ab\",\"spec\":{\"command\":[\"x\"]}}");

        (void)state;
        assert_int_equal(workload_normalise(&arena, w, NULL), 0);
        assert_string_equal(w->revision_id, "git-12ab");
        arena_fini(&arena);
}

/* R: A9 C6 */
static void each_type_needs_its_own_fields(void **state)
{
        (void)state;
        refuses(WORKLOAD, "{\"id\":\"a\"}", "type", "is missing");
        refuses(WORKLOAD, "{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"image\":\"y\"}}", "type",
                "is missing");
        refuses(WORKLOAD, "{\"id\":\"a\",\"type\":\"process\"}", "spec.command", "is missing");
        refuses(WORKLOAD, "{\"id\":\"a\",\"type\":\"process\",\"spec\":{\"command\":[\"\"]}}",
                "spec.command[0]", "must not be empty");
        refuses(
            WORKLOAD,
            "{\"id\":\"a\",\"type\":\"process\",\"spec\":{\"command\":[\"x\"],\"image\":\"y\"}}",
            "spec.image", "is not for processes");
        refuses(
            WORKLOAD,
            "{\"id\":\"a\",\"type\":\"process\",\"spec\":{\"command\":[\"x\"],\"compose\":\"y\"}}",
            "spec.compose", "is not for processes");
        refuses(WORKLOAD, "{\"id\":\"a\",\"type\":\"container\",\"spec\":{\"command\":[\"x\"]}}",
                "spec.image", "is missing");
        refuses(WORKLOAD, "{\"id\":\"a\",\"type\":\"vm\",\"spec\":{\"command\":[\"x\"]}}",
                "spec.image", "is missing");
        refuses(WORKLOAD, "{\"id\":\"a\",\"type\":\"compose\",\"spec\":{}}", "spec.compose",
                "is missing");
        refuses(WORKLOAD,
                "{\"id\":\"a\",\"desired_state\":\"Deleted\",\"spec\":{\"command\":[\"x\"]}}",
                "desired_state", "berth delete");
        refuses(WORKLOAD,
                "{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]},\"retry\":{\"base_seconds\":10,\"cap_"
                "seconds\":5}}",
                "retry.cap_seconds", "base_seconds");
        refuses(WORKLOAD,
                "{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"ports\":[{\"host_port\":1,"
                "\"container_port\":1},{\"host_port\":1,"
                "\"container_port\":2,\"protocol\":\"udp\"},"
                "{\"host_port\":1,\"container_port\":3}]}}",
                "spec.ports[2].host_port", "twice");
        normal_form(
            "{\"id\":\"a\",\"type\":\"compose\",\"spec\":{\"compose\":\"services: "
            "{a: {image: "
            "b}}\"},\"desired_state\":\"Stopped\",\"restart\":\"never\",\"stop_grace_seconds\":3,"
            "\"retry\":{\"max_attempts\":1,\"base_seconds\":200}}",
            "{\"id\":\"a\",\"type\":\"compose\",\"revision_id\":\"rev-e0aed9029187\",\"desired_"
            "state\":\"Stopped\",\"spec\":{"
            "\"compose\":\"services: {a: {image: b}}\",\"log_max_kb\":10240},"
            "\"resources\":{\"cpu\":0.1,\"memory_mb\":128},\"retry\":{\"max_attempts\":1,\"base_"
            "seconds\":200,\"cap_seconds\":200},"
            "\"restart\":\"never\",\"stop_"
            "grace_seconds\":3,\"default_resources\":true}");
}

/* R: A14. Each that is given stands there by name; "all of them" is another wish, which each type
 * says in its own way. */
static void capabilities_are_named_one_by_one(void **state)
{
        (void)state;
        refuses(
            WORKLOAD,
            "{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"capabilities\":[\"NET_RAW\",\"ALL\"]}}",
            "spec.capabilities[1]", "root_processes");
        refuses(WORKLOAD,
                "{\"id\":\"a\",\"spec\":{\"image\":\"x\",\"capabilities\":[\"ALL\"]},\"type\":"
                "\"container\"}",
                "spec.capabilities[0]", "privileged");
        refuses(WORKLOAD,
                "{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"capabilities\":[\"EVERYTHING\"]}}",
                "spec.capabilities[0]", "must be the name of a capability");
}

/* R: A11 */
static void a_spec_is_at_most_256_kib(void **state)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        Pb__Workload *w = (Pb__Workload *)parse(
            &arena, WORKLOAD, "{\"id\":\"a\",\"spec\":{\"command\":[\"x\",\"\",\"\",\"\"]}}");
        char *big = arena_alloc(&arena, 131072);

        (void)state;
        memset(big, 'a', 131000);
        w->spec->command[1] = w->spec->command[2] = big;
        assert_int_equal(workload_normalise(&arena, w, &err), 0);
        w->spec->command[3] = big;
        assert_int_equal(workload_normalise(&arena, w, &err), -ERR_INVALID);
        assert_string_equal(err.path, "spec");
        arena_fini(&arena);
}

/* R: A9 */
static void ids_are_safe_as_file_names_and_in_urls(void **state)
{
        static const char *const good[] = { "a", "web-1", "A.b_c-d", "0", "a.", "1.2.3" };
        static const char *const bad[] = { "",    ".",   "..",   "-a",       "_a",  ".a",
                                           "a/b", "a b", "a..b", "\xc3\xa9", "a\n", "a%2f" };
        char id[200];

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++)
                assert_true(id_is_valid(good[i]));
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (id_is_valid(bad[i]))
                        fail_msg("%s", bad[i]);
        assert_false(id_is_valid(NULL));
        memset(id, 'a', sizeof(id));
        id[128] = '\0';
        assert_true(id_is_valid(id));
        id[128] = 'a';
        id[129] = '\0';
        assert_false(id_is_valid(id));
}

/* R: A9 */
static void labels_are_as_in_kubernetes(void **state)
{
        static const char *const good[] = { "a", "app.kubernetes.io/name", "A_b-c.d", "0" };
        static const char *const bad[] = { "",   "a/",  "/a",    "a/b/c",  "-a",
                                           "a-", "a b", "a_b/c", "a..b/c", "\xc3\xa9" };
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good) + ARRAY_LEN(bad); i++) {
                bool is_good = i < ARRAY_LEN(good);
                Pb__Workload *w = (Pb__Workload *)parse(
                    &arena, WORKLOAD, "{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]}}");
                const char *key = is_good ? good[i] : bad[i - ARRAY_LEN(good)];
                pb_map_set(&arena, &w->base, "labels", key, "v");
                if ((workload_normalise(&arena, w, &err) == 0) != is_good)
                        fail_msg("label key \"%s\"", key);
        }
        arena_fini(&arena);
}

static void expect_limit(const char *before, const char *good, const char *bad, const char *after,
                         const char *path)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };

        if (workload_normalise(
                &arena,
                (Pb__Workload *)parse(&arena, WORKLOAD,
                                      arena_printf(&arena, "%s%s%s", before, good, after)),
                &err) < 0)
                fail_msg("%s: %s", good, err_line(&err));
        assert_int_equal(workload_normalise(&arena,
                                            (Pb__Workload *)parse(
                                                &arena, WORKLOAD,
                                                arena_printf(&arena, "%s%s%s", before, bad, after)),
                                            &err),
                         -ERR_INVALID);
        assert_string_equal(err.path, path);
        arena_fini(&arena);
}

/* "k0"tail,"k1"tail,... */
static const char *repeat(struct arena *arena, const char *tail, int n)
{
        struct str s = STR_INIT;
        const char *kept;

        for (int i = 0; i < n; i++)
                str_addf(&s, "%s\"k%d\"%s", i ? "," : "", i, tail);
        kept = arena_strdup(arena, str_c(&s));
        str_fini(&s);
        return kept;
}

/* R: A9 A11 */
static void the_limits_are_those_that_we_promise(void **state)
{
        struct arena arena = ARENA_INIT;
        char name[130];

        (void)state;
        memset(name, 'a', sizeof(name));
        expect_limit("{\"spec\":{\"command\":[\"x\"]},\"id\":\"",
                     arena_printf(&arena, "%.128s", name), arena_printf(&arena, "%.129s", name),
                     "\"}", "id");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]},\"labels\":{",
                     repeat(&arena, ":\"v\"", 64), repeat(&arena, ":\"v\"", 65), "}}", "labels");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"env\":{",
                     repeat(&arena, ":\"v\"", 1024), repeat(&arena, ":\"v\"", 1025), "}}}",
                     "spec.env");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[", repeat(&arena, "", 1024),
                     repeat(&arena, "", 1025), "]}}", "spec.command");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]},\"labels\":{\"k\":\"",
                     arena_printf(&arena, "%.63s", name), arena_printf(&arena, "%.64s", name),
                     "\"}}", "labels.k");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"ports\":[{\"container_port\":",
                     "65535", "65536", "}]}}", "spec.ports[0].container_port");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"ports\":[{\"container_port\":",
                     "1", "0", "}]}}", "spec.ports[0].container_port");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]},\"resources\":{\"cpu\":",
                     "1000000", "1000000.001", "}}", "resources.cpu");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]},\"resources\":{\"cpu\":", "0",
                     "-0.001", "}}", "resources.cpu");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]},\"resources\":{\"memory_mb\":",
                     "1099511627776", "1099511627777", "}}", "resources.memory_mb");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"workdir\":\"", "/a", "a",
                     "\"}}", "spec.workdir");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"env\":{\"", "_A.b-1", "1A",
                     "\":\"x\"}}}", "spec.env.1A");
        /* Issue 5, D9: what berth sets itself is not overwritten in silence */
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"env\":{\"", "BERTH_TOKEN",
                     "BERTH_FENCING_TOKEN", "\":\"x\"}}}", "spec.env.BERTH_FENCING_TOKEN");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"env\":{\"", "BERTH_X",
                     "BERTH_NODE_ID", "\":\"x\"}}}", "spec.env.BERTH_NODE_ID");
        /* Issue 5, A9: a managed volume's name is a name, never a path */
        expect_limit("{\"id\":\"a\",\"type\":\"container\",\"spec\":{\"image\":\"i\",\"managed_"
                     "volumes\":[{\"name\":\"",
                     "data-1", "../data", "\"}]}}", "spec.managed_volumes[0].name");
        expect_limit("{\"id\":\"a\",\"type\":\"container\",\"spec\":{\"image\":\"i\",\"managed_"
                     "volumes\":[{\"name\":\"",
                     "data-1", "/etc", "\"}]}}", "spec.managed_volumes[0].name");
        /* Issue 5, D10: numbers of users do not wrap around */
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"user\":\"", "4294967294",
                     "4294967295", "\"}}", "spec.user");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"user\":\"", "0", "4294967296",
                     "\"}}", "spec.user");
        expect_limit("{\"id\":\"a\",\"spec\":{\"command\":[\"x\"],\"user\":\"", "7",
                     "99999999999999999999999", "\"}}", "spec.user");
        arena_fini(&arena);
}

/* R: A9 */
static void what_only_a_wire_can_carry_is_checked_too(void **state)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        Pb__Workload *w = (Pb__Workload *)parse(
            &arena, WORKLOAD,
            "{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]},\"labels\":{\"a\":\"1\",\"b\":\"2\"}}");
        Pb__Hello *h = (Pb__Hello *)badinput_example(&arena, &pb__hello__descriptor);

        (void)state;
        w->restart = 99;
        assert_int_equal(workload_normalise(&arena, w, &err), -ERR_INVALID);
        assert_string_equal(err.path, "restart");
        w->restart = 0;
        w->labels[1]->key = (char *)"a";
        assert_int_equal(workload_normalise(&arena, w, &err), -ERR_INVALID);
        assert_string_equal(err.path, "labels.a");
        h->supported_workload_types[0] = 0;
        assert_int_equal(validate_hello(h, &err), -ERR_INVALID);
        assert_string_equal(err.path, "supported_workload_types[0]");
        h->supported_workload_types[0] = PB__WORKLOAD_TYPE__E__process;
        h->units[0]->started_at = -1;
        assert_int_equal(validate_hello(h, &err), -ERR_INVALID);
        assert_string_equal(err.path, "units[0].started_at");
        arena_fini(&arena);
}

static void requests_are_checked_by_their_type(void **state)
{
        (void)state;
        refuses(&pb__apply_workload_request__descriptor, "{}", "workload", "is missing");
        refuses(&pb__apply_workload_request__descriptor,
                "{\"workload\":{\"id\":\"a\",\"type\":\"process\"}}", "workload.spec.command",
                "is missing");
        refuses(&pb__apply_workload_request__descriptor,
                "{\"workload\":{\"id\":\"a\",\"spec\":{\"command\":[\"x\"]}},\"create_only\":true,"
                "\"update_only\":true}",
                "update_only", "exclude");
        refuses(&pb__set_desired_request__descriptor,
                "{\"id\":\"a\",\"desired_state\":\"Deleted\"}", "desired_state", "berth delete");
        refuses(&pb__list_workloads_request__descriptor, "{\"selector\":\"a==\\u0001\"}",
                "selector", "label selector");
        refuses(&pb__list_events_request__descriptor, "{\"type\":\"NodeLost,\"}", "type",
                "must be types of events");
        refuses(&pb__exec_message__descriptor, "{}", "start", "exactly one");
        refuses(&pb__exec_message__descriptor, "{\"start\":{\"id\":\"a\"}}", "start.command",
                "is missing");
        refuses(&pb__exec_start__descriptor, "{\"id\":\"a\",\"command\":[\"\"]}", "command[0]",
                "must not be empty");
}

static void agents_messages_have_exactly_one_part(void **state)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        Pb__AgentMessage *m = (Pb__AgentMessage *)parse(
            &arena, &pb__agent_message__descriptor,
            "{\"heartbeat\":{\"usage\":{\"cpu_used\":0.5},\"units_count\":2}}");

        (void)state;
        assert_int_equal(validate_agent_message(m, &err), 0);
        assert_int_equal(validate_heartbeat(m->heartbeat, &err), 0);
        m->heartbeat->usage->cpu_used = -1;
        assert_int_equal(validate_agent_message(m, &err), -ERR_INVALID);
        assert_string_equal(err.path, "heartbeat.usage.cpu_used");
        m->hello = (Pb__Hello *)badinput_example(&arena, &pb__hello__descriptor);
        assert_int_equal(validate_agent_message(m, &err), -ERR_INVALID);
        m->heartbeat = NULL;
        assert_int_equal(validate_agent_message(m, &err), 0);
        m->hello->cpu = 0;
        assert_int_equal(validate_agent_message(m, &err), -ERR_INVALID);
        assert_string_equal(err.path, "hello.cpu");
        arena_fini(&arena);
}

/* Whatever stands in a message, the answer is yes or no. */
static void random_messages_do_no_harm(void **state)
{
        static const ProtobufCMessageDescriptor *const types[] = {
                &pb__workload__descriptor,     &pb__apply_workload_request__descriptor,
                &pb__hello__descriptor,        &pb__list_workloads_request__descriptor,
                &pb__exec_message__descriptor, &pb__list_events_request__descriptor
        };
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        struct rng rng;

        (void)state;
        rng_seed(&rng, 4);
        for (int i = 0; i < 3000; i++) {
                ProtobufCMessage *m =
                    random_message(&arena, &rng, types[rng_below(&rng, ARRAY_LEN(types))], 300000);
                (void)validate_request(m, &err);
                (void)request_normalise(&arena, m, &err);
                arena_reset(&arena);
        }
        arena_fini(&arena);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(defaults_are_filled_in),
                cmocka_unit_test(a_maximum_of_attempts_is_what_was_written),
                cmocka_unit_test(what_belongs_to_the_server_is_dropped),
                cmocka_unit_test(a_revision_of_the_users_own_stays),
                cmocka_unit_test(each_type_needs_its_own_fields),
                cmocka_unit_test(capabilities_are_named_one_by_one),
                cmocka_unit_test(a_spec_is_at_most_256_kib),
                cmocka_unit_test(ids_are_safe_as_file_names_and_in_urls),
                cmocka_unit_test(labels_are_as_in_kubernetes),
                cmocka_unit_test(the_limits_are_those_that_we_promise),
                cmocka_unit_test(what_only_a_wire_can_carry_is_checked_too),
                cmocka_unit_test(requests_are_checked_by_their_type),
                cmocka_unit_test(agents_messages_have_exactly_one_part),
                cmocka_unit_test(random_messages_do_no_harm),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
