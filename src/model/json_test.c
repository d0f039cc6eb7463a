/* Tests of model/json.h: what is read, what is refused and how, and that every message survives the
 * way out and back. */
#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/mem.h"
#include "events.pb-c.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/random_message.h"
#include "persys_agent.pb-c.h"
#include "persys_control.pb-c.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int read_type(const ProtobufCMessageDescriptor *type, struct arena *arena, const char *text,
                     unsigned flags, ProtobufCMessage **ret, struct err *err)
{
        /* exactly as long as it is, so that a sanitizer sees a read behind the end */
        size_t len = strlen(text);
        char *copy = mem_dup(text, len ? len : 1);
        int rc = json_read(type, copy, len, 1 << 20, flags, arena, ret, err);

        mem_free(copy);
        return rc;
}

static void refuses(const ProtobufCMessageDescriptor *type, const char *text, const char *path,
                    const char *part_of_msg)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;

        assert_int_equal(read_type(type, &arena, text, 0, &m, &err), -ERR_INVALID);
        assert_null(m);
        assert_string_equal(err.path, path);
        if (!strstr(err.msg, part_of_msg))
                fail_msg("%s: \"%s\" does not contain \"%s\"", text, err.msg, part_of_msg);
        arena_fini(&arena);
}

static void comes_back_as(const ProtobufCMessageDescriptor *type, const char *text,
                          const char *expected)
{
        struct arena arena = ARENA_INIT;
        struct str out = STR_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m;

        if (read_type(type, &arena, text, 0, &m, &err) < 0)
                fail_msg("%s: %s", text, err_line(&err));
        json_write(&out, m, 0);
        assert_string_equal(str_c(&out), expected);
        str_fini(&out);
        arena_fini(&arena);
}

#define WORKLOAD &pb__workload__descriptor

/* R: C1 */
static void a_record_reads_as_the_conventions_say(void **state)
{
        (void)state;
        comes_back_as(WORKLOAD,
                      " { \"labels\" : {\"b\":\"2\",\"a\":\"1\"}, \"id\" : \"web\", "
                      "\"restart\":\"on-failure\", "
                      "\"resources\":{\"cpu\":0.25,\"memory_mb\":64},"
                      "\"status\":{\"last_updated\":\"2026-02-17T01:00:00+01:00\",\"exit_code\":0,"
                      "\"phase\":\"RetryPending\",\"reason\":\"node-not-"
                      "ready\"},"
                      "\"retry\":{\"next_retry_at\":\"2026-02-17T00:00:00.123Z\"}, "
                      "\"token\":{\"epoch\":1,\"seq\":18446744073709551615} } \n",
                      "{\"id\":\"web\",\"resources\":{\"cpu\":0.25,\"memory_mb\":64},\"retry\":{"
                      "\"next_retry_at\":\"2026-02-17T00:00:00.123Z\"},"
                      "\"status\":{\"last_updated\":\"2026-02-17T00:00:00Z\",\"phase\":"
                      "\"RetryPending\",\"reason\":\"node-not-ready\",\"exit_code\":"
                      "0},"
                      "\"labels\":{\"a\":\"1\",\"b\":\"2\"},\"restart\":\"on-failure\",\"token\":{"
                      "\"epoch\":1,\"seq\":18446744073709551615}}");
}

/* R: C1 */
static void cpu_is_cores_with_three_decimals(void **state)
{
        static const char *const good[][2] = { { "2", "2" },
                                               { "0.5", "0.5" },
                                               { "1.500", "1.5" },
                                               { "0.001", "0.001" },
                                               { "25e-2", "0.25" },
                                               { "1E3", "1000" },
                                               { "-0.25", "-0.25" },
                                               { "0.010", "0.01" },
                                               { "0e99999", NULL },
                                               { "0.0000", NULL },
                                               { "9223372036854775.807", "9223372036854775.807" },
                                               { "1.00000000000000000000000000000000000", "1" } };
        static const char *const bad[] = { "0.0001", "1e30",  "9223372036854775.808",
                                           "1e-4",   "\"1\"", "1e99999999999999999999",
                                           "0.1234" };
        char text[128], expected[128];

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++) {
                strcpy(text, fmt("{\"resources\":{\"cpu\":%s}}", good[i][0]));
                strcpy(expected, good[i][1] ? fmt("{\"resources\":{\"cpu\":%s}}", good[i][1])
                                            : "{\"resources\":{}}");
                comes_back_as(WORKLOAD, text, expected);
        }
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                refuses(WORKLOAD, fmt("{\"resources\":{\"cpu\":%s}}", bad[i]), "resources.cpu",
                        "expected a number of cores");
}

/* R: A9 */
static void an_error_names_path_expectation_and_place(void **state)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m;

        (void)state;
        refuses(WORKLOAD, "{\"spec\":{\"comand\":[]}}", "spec.comand",
                "spec.comand: unknown field, did you mean command");
        refuses(WORKLOAD, "{\"nodeSelector\":{}}", "nodeSelector", "did you mean node_selector");
        refuses(WORKLOAD, "{\"resources\":{\"memory\":1}}", "resources.memory",
                "did you mean memory_mb");
        refuses(WORKLOAD, "{\"spec\":{\"command\":[\"a\",7]}}", "spec.command[1]",
                "expected a string, got 7");
        refuses(WORKLOAD, "{\"labels\":{\"a b\":7}}", "labels[\"a b\"]",
                "expected a string, got 7");
        refuses(WORKLOAD, "{\"ttl_seconds\":2147483648}", "ttl_seconds",
                "expected a whole number from 0 to 2147483647, got 2147483648");
        refuses(WORKLOAD, "{\"resource_version\":-1}", "resource_version",
                "expected a whole number of at most 64 bits, not negative, got -1");
        refuses(WORKLOAD, "{\"resources\":{\"memory_mb\":9223372036854775808}}",
                "resources.memory_mb", "expected a whole number");
        refuses(WORKLOAD, "{\"resources\":{\"memory_mb\":1.0}}", "resources.memory_mb",
                "expected a whole number");
        refuses(WORKLOAD, "{\"restart\":\"allways\"}", "restart",
                "unknown value \"allways\", expected one of always, on-failure, never");
        refuses(WORKLOAD, "{\"restart\":\"unset\"}", "restart", "unknown value");
        refuses(WORKLOAD, "{\"status\":{\"started_at\":\"today\"}}", "status.started_at",
                "expected a time");
        refuses(WORKLOAD, "{\"id\":\"a\",\"id\":\"b\"}", "id", "twice");
        refuses(WORKLOAD, "{\"id\":null,\"id\":\"b\"}", "id", "twice");
        refuses(WORKLOAD, "{\"labels\":{\"a\":\"1\",\"b\":\"1\",\"a\":\"2\"}}", "labels.a",
                "twice");
        refuses(WORKLOAD, "[]", "", "expected an object, got an array");
        refuses(WORKLOAD, "{} x", "", "after the end");
        assert_int_equal(
            read_type(WORKLOAD, &arena, "{\n  \"id\": \"\xc3\xa9\", \"type\": 7}", 0, &m, &err),
            -ERR_INVALID);
        assert_string_equal(err.detail, "line 2, column 22");
        assert_int_equal(read_type(WORKLOAD, &arena, "{\"restart\":\"allways\"}", 0, &m, &err),
                         -ERR_INVALID);
        assert_string_equal(err.hint, "did you mean always?");
        arena_fini(&arena);
}

/* R: A9 */
static void limits_hold(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m;

        (void)state;
        assert_int_equal(json_read(WORKLOAD, "{\"id\":\"a\"}", 10, 9, 0, &arena, &m, &err),
                         -ERR_INVALID);
        assert_int_equal(json_read(WORKLOAD, "{\"id\":\"a\"}", 10, 10, 0, &arena, &m, &err), 0);
        str_adds(&text, "{\"x\":");
        for (int i = 0; i < 200000; i++)
                str_addc(&text, '[');
        assert_int_equal(json_read(WORKLOAD, str_c(&text), text.len, SIZE_MAX, JSON_IGNORE_UNKNOWN,
                                   &arena, &m, &err),
                         -ERR_INVALID);
        assert_non_null(strstr(err.msg, "levels deep"));
        str_clear(&text);
        str_adds(&text, "{\"units\":[{}");
        for (int i = 0; i < JSON_MAX_MESSAGES; i++)
                str_adds(&text, ",{}");
        str_adds(&text, "]}");
        assert_int_equal(json_read(&pb__hello__descriptor, str_c(&text), text.len, SIZE_MAX, 0,
                                   &arena, &m, &err),
                         -ERR_INVALID);
        assert_non_null(strstr(err.msg, "too many objects"));
        str_fini(&text);
        arena_fini(&arena);
}

static void null_means_absent(void **state)
{
        (void)state;
        comes_back_as(WORKLOAD,
                      "{\"id\":null,\"spec\":null,\"labels\":null,\"type\":null,\"ttl_seconds\":"
                      "null,\"status\":{\"exit_code\":null}}",
                      "{\"status\":{}}");
        refuses(WORKLOAD, "{\"spec\":{\"command\":[null]}}", "spec.command[0]",
                "expected a string, got null");
}

static void texts_are_escaped_and_read_back(void **state)
{
        (void)state;
        comes_back_as(WORKLOAD,
                      "{\"id\":\"\\u00e9\\ud83d\\ude00\\/\\n\\u0001\\\"\\\\\\b\\f\\r\\t\"}",
                      "{\"id\":\"\xc3\xa9\xf0\x9f\x98\x80/\\n\\u0001\\\"\\\\\\b\\f\\r\\t\"}");
        refuses(WORKLOAD, "{\"id\":\"\\u0000\"}", "id", "\\u0000");
        refuses(WORKLOAD, "{\"id\":\"\\ud83d\"}", "id", "surrogate");
        refuses(WORKLOAD, "{\"id\":\"\\ude00\\ud83d\"}", "id", "surrogate");
        refuses(WORKLOAD, "{\"id\":\"\xc0\x80\"}", "id", "UTF-8");
        refuses(WORKLOAD, "{\"id\":\"\xed\xa0\x80\"}", "id", "UTF-8");
        refuses(WORKLOAD, "{\"id\":\"a\nb\"}", "id", "control character");
        refuses(WORKLOAD, "{\"id\":\"\\x\"}", "id", "unknown escape");
        refuses(WORKLOAD, "{\"id\":\"abc", "id", "does not end");
        refuses(WORKLOAD, "{\"id\":\"abc\\", "id", "does not end");
        refuses(WORKLOAD, "{\"id\":\"abc\\\"", "id", "does not end");
}

/* A foreign message may hold anything; what is written must be valid all the same. */
static void bad_utf8_is_replaced_when_written(void **state)
{
        Pb__Workload w = PB__WORKLOAD__INIT;
        struct str out = STR_INIT;

        (void)state;
        w.id = (char *)"a\xff\xc3";
        json_write(&out, &w.base, 0);
        assert_string_equal(str_c(&out), "{\"id\":\"a\xef\xbf\xbd\xef\xbf\xbd\"}");
        str_fini(&out);
}

/* R: A10 */
static void unknown_things_can_be_ignored(void **state)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m;
        Pb__Workload *w;

        (void)state;
        assert_int_equal(read_type(WORKLOAD, &arena,
                                   "{\"new\":{\"a\":[1,-2.5e3,\"x\\n\",true,false,null,{}],\"b\":[]"
                                   "},\"id\":\"a\",\"type\":\"wasm\",\"restart\":9}",
                                   JSON_IGNORE_UNKNOWN, &m, &err),
                         0);
        w = (Pb__Workload *)m;
        assert_string_equal(w->id, "a");
        assert_int_equal(w->type, 0);
        assert_int_equal(w->restart, 9);
        assert_int_equal(read_type(WORKLOAD, &arena, "{\"new\":{\"a\":[1,]},\"id\":\"a\"}",
                                   JSON_IGNORE_UNKNOWN, &m, &err),
                         -ERR_INVALID);
        assert_int_equal(read_type(WORKLOAD, &arena, "{\"new\":01}", JSON_IGNORE_UNKNOWN, &m, &err),
                         -ERR_INVALID);
        assert_int_equal(
            read_type(WORKLOAD, &arena, "{\"new\":tru}", JSON_IGNORE_UNKNOWN, &m, &err),
            -ERR_INVALID);
        arena_fini(&arena);
}

static void int64_can_be_strings(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str out = STR_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m;

        (void)state;
        assert_int_equal(
            read_type(
                WORKLOAD, &arena,
                "{\"resources\":{\"memory_mb\":\"-7\"},\"ttl_seconds\":5,\"resource_version\":9}",
                JSON_INT64_AS_STRING, &m, &err),
            0);
        json_write(&out, m, JSON_INT64_AS_STRING);
        assert_string_equal(
            str_c(&out),
            "{\"resources\":{\"memory_mb\":\"-7\"},\"ttl_seconds\":5,\"resource_version\":\"9\"}");
        refuses(WORKLOAD, "{\"resources\":{\"memory_mb\":\"7\"}}", "resources.memory_mb",
                "expected a whole number");
        str_fini(&out);
        arena_fini(&arena);
}

/* R: C2 */
static void foreign_messages_follow_protobufs_own_mapping(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str out = STR_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m;

        (void)state;
        /* both names of a field; 64 bits as number and as string; unknown fields of any form; names
         * of enums with their underscores */
        const char *text = "{\"workloadId\":\"w\",\"spec\":{\"resources\":{\"cpu_millicores\":"
                           "\"250\",\"memoryMb\":64},"
                           "\"container\":{\"image\":\"i\",\"ports\":[{\"host_port\":80,"
                           "\"containerPort\":8080}],\"new\":[1,{\"a\":[]}]},"
                           "\"metadata\":{\"k\":\"v\"}},\"desired_state\":\"\",\"what\":null}";
        assert_int_equal(
            read_type(&pc__apply_workload_request__descriptor, &arena, text, JSON_PROTO, &m, &err),
            0);
        const Pc__ApplyWorkloadRequest *r = (Pc__ApplyWorkloadRequest *)m;
        assert_int_equal(r->spec->workload_case, PC__WORKLOAD_SPEC__WORKLOAD_CONTAINER);
        assert_int_equal(r->spec->resources->cpu_millicores, 250);
        json_write(&out, m, JSON_PROTO);
        assert_string_equal(str_c(&out), "{\"workload_id\":\"w\",\"spec\":{\"resources\":{\"cpu_"
                                         "millicores\":\"250\",\"memory_mb\":\"64\"},"
                                         "\"container\":{\"image\":\"i\",\"ports\":[{\"host_port\":"
                                         "80,\"container_port\":8080}]},"
                                         "\"metadata\":{\"k\":\"v\"}}}");
        /* times, with a zone and before 1970 */
        text = "{\"workload_id\":\"w\",\"last_updated\":\"2026-02-17T01:00:00.25+01:00\",\"retry_"
               "next_at\":\"1969-12-31T23:59:59.750Z\"}";
        assert_int_equal(
            read_type(&pc__workload_view__descriptor, &arena, text, JSON_PROTO, &m, &err), 0);
        const Pc__WorkloadView *v = (Pc__WorkloadView *)m;
        assert_int_equal(v->last_updated->seconds, 1771286400);
        assert_int_equal(v->last_updated->nanos, 250000000);
        assert_int_equal(v->retry_next_at->seconds, -1);
        assert_int_equal(v->retry_next_at->nanos, 750000000);
        str_clear(&out);
        json_write(&out, m, JSON_PROTO);
        assert_string_equal(str_c(&out),
                            "{\"workload_id\":\"w\",\"retry_next_at\":\"1969-12-31T23:59:59.750Z\","
                            "\"last_updated\":\"2026-02-17T00:00:00.250Z\"}");
        assert_int_equal(read_type(&pc__workload_status__descriptor, &arena,
                                   "{\"failure_reason\":\"IMAGE_PULL_FAILED\"}", JSON_PROTO, &m,
                                   &err),
                         0);
        assert_int_equal(((Pc__WorkloadStatus *)m)->failure_reason,
                         PC__FAILURE_REASON__IMAGE_PULL_FAILED);
        str_clear(&out);
        json_write(&out, m, JSON_PROTO);
        assert_string_equal(str_c(&out), "{\"failure_reason\":\"IMAGE_PULL_FAILED\"}");
        /* berth's own rules for fields of the same name are not theirs */
        assert_int_equal(read_type(&pa__workload_status__descriptor, &arena,
                                   "{\"created_at\":\"12\"}", JSON_PROTO, &m, &err),
                         0);
        assert_int_equal(((Pa__WorkloadStatus *)m)->created_at, 12);
        assert_int_equal(read_type(&pc__workload_spec__descriptor, &arena,
                                   "{\"container\":{},\"vm\":{}}", JSON_PROTO, &m, &err),
                         -ERR_INVALID);
        assert_int_equal(read_type(&pc__workload_view__descriptor, &arena, "{\"last_updated\":5}",
                                   JSON_PROTO, &m, &err),
                         -ERR_INVALID);
        assert_string_equal(err.path, "last_updated");
        assert_int_equal(read_type(&pc__workload_view__descriptor, &arena,
                                   "{\"last_updated\":\"soon\"}", JSON_PROTO, &m, &err),
                         -ERR_INVALID);
        str_fini(&out);
        arena_fini(&arena);
}

static void pretty_is_for_people(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str out = STR_INIT;
        ProtobufCMessage *m;

        (void)state;
        assert_int_equal(read_type(WORKLOAD, &arena,
                                   "{\"id\":\"a\",\"spec\":{\"command\":[\"x\",\"y\"],\"ports\":[{"
                                   "\"host_port\":1}],\"env\":{\"A\":\"1\"}},\"status\":{}}",
                                   0, &m, NULL),
                         0);
        json_write(&out, m, JSON_PRETTY);
        assert_string_equal(str_c(&out), "{\n"
                                         "  \"id\": \"a\",\n"
                                         "  \"spec\": {\n"
                                         "    \"command\": [\"x\", \"y\"],\n"
                                         "    \"env\": {\n"
                                         "      \"A\": \"1\"\n"
                                         "    },\n"
                                         "    \"ports\": [\n"
                                         "      {\n"
                                         "        \"host_port\": 1\n"
                                         "      }\n"
                                         "    ]\n"
                                         "  },\n"
                                         "  \"status\": {}\n"
                                         "}");
        str_fini(&out);
        arena_fini(&arena);
}

static const ProtobufCMessageDescriptor *const all_types[] = {
        &pb__workload__descriptor,
        &pb__node__descriptor,
        &pb__event__descriptor,
        &pb__hello__descriptor,
        &pb__explanation__descriptor,
        &pb__agent_message__descriptor,
        &pb__server_message__descriptor,
        &pb__cluster_info__descriptor,
        &pb__tombstone__descriptor,
        &pb__list_workloads_response__descriptor,
        &pb__exec_message__descriptor,
        &pb__error__descriptor,
        &pc__apply_workload_request__descriptor,
        &pc__heartbeat_request__descriptor,
        &pc__list_nodes_response__descriptor,
        &pc__get_workload_response__descriptor,
        &pa__apply_workload_request__descriptor,
        &pa__list_workloads_response__descriptor,
};

static void every_message_survives_json(void **state)
{
        static const unsigned flags[] = { 0, JSON_PRETTY, JSON_SORTED, JSON_INT64_AS_STRING,
                                          JSON_PRETTY | JSON_SORTED };
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT;
        struct err err = { 0 };
        struct rng rng;

        (void)state;
        rng_seed(&rng, 7);
        for (int round = 0; round < 2000; round++) {
                const ProtobufCMessageDescriptor *type =
                    all_types[rng_below(&rng, ARRAY_LEN(all_types))];
                ProtobufCMessage *m = random_message(&arena, &rng, type, 600000), *back;
                unsigned f = flags[rng_below(&rng, ARRAY_LEN(flags))];
                str_clear(&text);
                json_write(&text, m, f);
                if (json_read(type, text.buf, text.len, SIZE_MAX, f & JSON_INT64_AS_STRING, &arena,
                              &back, &err) < 0)
                        fail_msg("round %d: %s: %s", round, err_line(&err), str_c(&text));
                if (!pb_equal(m, back))
                        fail_msg("round %d: not the same: %s", round, str_c(&text));
                arena_reset(&arena);
        }
        str_fini(&text);
        arena_fini(&arena);
}

/* Cut off, or with one byte changed, a text is read or refused, never worse; the sanitizers
 * watch. */
static void damaged_texts_do_no_harm(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT;
        struct err err = { 0 };
        struct rng rng;

        (void)state;
        rng_seed(&rng, 8);
        for (int round = 0; round < 20000; round++) {
                const ProtobufCMessageDescriptor *type =
                    all_types[rng_below(&rng, ARRAY_LEN(all_types))];
                ProtobufCMessage *m, *back;
                if (round % 20 == 0 || text.len == 0) {
                        m = random_message(&arena, &rng, type, 400000);
                        str_clear(&text);
                        json_write(&text, m, 0);
                }
                size_t len = text.len;
                char *copy = mem_dup(text.buf, len);
                if (rng_below(&rng, 2))
                        len = rng_below(&rng, len);
                if (len > 0)
                        copy[rng_below(&rng, len)] =
                            rng_below(&rng, 2) ? (char)rng_next(&rng)
                                               : "\"\\{}[],:0-.eEtfnu"[rng_below(&rng, 17)];
                char *exact = mem_dup(copy, len ? len : 1);
                (void)json_read(type, exact, len, SIZE_MAX,
                                rng_below(&rng, 2) ? JSON_IGNORE_UNKNOWN : 0, &arena, &back, &err);
                mem_free(exact);
                mem_free(copy);
                arena_reset(&arena);
        }
        str_fini(&text);
        arena_fini(&arena);
}

static void fields_are_set_from_query_text(void **state)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        Pb__ListEventsRequest q = PB__LIST_EVENTS_REQUEST__INIT;
        Pb__Hello h = PB__HELLO__INIT;

        (void)state;
        assert_int_equal(json_set_text(&q.base, "limit", "50", &arena, &err), 0);
        assert_int_equal(json_set_text(&q.base, "since", "18446744073709551615", &arena, &err), 0);
        assert_int_equal(json_set_text(&q.base, "follow", "true", &arena, &err), 0);
        assert_int_equal(json_set_text(&q.base, "type", "NodeLost", &arena, &err), 0);
        assert_int_equal(q.limit, 50);
        assert_true(q.since == UINT64_MAX);
        assert_true(q.follow);
        assert_string_equal(q.type, "NodeLost");
        assert_int_equal(json_set_text(&q.base, "limit", "5x", &arena, &err), -ERR_INVALID);
        assert_string_equal(err.path, "limit");
        assert_int_equal(json_set_text(&q.base, "limt", "5", &arena, &err), -ERR_INVALID);
        assert_non_null(strstr(err.msg, "did you mean limit"));
        assert_int_equal(
            json_set_text(&h.base, "supported_workload_types", "process", &arena, &err), 0);
        assert_int_equal(json_set_text(&h.base, "supported_workload_types", "vm", &arena, &err), 0);
        assert_int_equal(h.n_supported_workload_types, 2);
        assert_int_equal(h.supported_workload_types[1], PB__WORKLOAD_TYPE__E__vm);
        assert_int_equal(json_set_text(&h.base, "cpu", "250m", &arena, &err), 0);
        assert_int_equal(h.cpu, 250);
        assert_int_equal(json_set_text(&h.base, "labels", "x", &arena, &err), -ERR_INVALID);
        arena_fini(&arena);
}

static void enums_have_names(void **state)
{
        int v = -1;

        (void)state;
        assert_string_equal(json_enum_name(&pb__restart__e__descriptor, PB__RESTART__E__on_failure),
                            "on-failure");
        assert_null(json_enum_name(&pb__restart__e__descriptor, 0));
        assert_null(json_enum_name(&pb__restart__e__descriptor, 99));
        assert_int_equal(json_enum_value(&pb__phase__e__descriptor, "running", true, &v), 0);
        assert_int_equal(v, PB__PHASE__E__Running);
        assert_int_equal(json_enum_value(&pb__phase__e__descriptor, "running", false, &v), -1);
        assert_int_equal(json_enum_value(&pb__phase__e__descriptor, "unset", true, &v), -1);
        assert_int_equal(json_enum_value(&pb__phase__e__descriptor, NULL, true, &v), -1);
        assert_string_equal(json_enum_list(&pb__restart__e__descriptor),
                            "always, on-failure, never");
}

static void *read_in_thread(void *arg)
{
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m;
        intptr_t bad = 0;

        (void)arg;
        for (size_t i = 0; i < ARRAY_LEN(all_types); i++)
                bad += json_read(all_types[i], "{}", 2, 10, 0, &arena, &m, NULL) < 0;
        arena_fini(&arena);
        return (void *)bad;
}

/* First use by several threads at once: run in a process of its own order, before the other tests
 * have built the tables. */
static void side_tables_are_built_once_by_any_thread(void **state)
{
        pthread_t threads[8];
        void *bad;

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, read_in_thread, NULL), 0);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
                assert_int_equal(pthread_join(threads[i], &bad), 0);
                assert_null(bad);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(side_tables_are_built_once_by_any_thread),
                cmocka_unit_test(a_record_reads_as_the_conventions_say),
                cmocka_unit_test(cpu_is_cores_with_three_decimals),
                cmocka_unit_test(an_error_names_path_expectation_and_place),
                cmocka_unit_test(limits_hold),
                cmocka_unit_test(null_means_absent),
                cmocka_unit_test(texts_are_escaped_and_read_back),
                cmocka_unit_test(bad_utf8_is_replaced_when_written),
                cmocka_unit_test(unknown_things_can_be_ignored),
                cmocka_unit_test(int64_can_be_strings),
                cmocka_unit_test(foreign_messages_follow_protobufs_own_mapping),
                cmocka_unit_test(pretty_is_for_people),
                cmocka_unit_test(every_message_survives_json),
                cmocka_unit_test(damaged_texts_do_no_harm),
                cmocka_unit_test(fields_are_set_from_query_text),
                cmocka_unit_test(enums_have_names),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
