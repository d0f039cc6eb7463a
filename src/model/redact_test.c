/* model/redact_test.c: what a role may not see (A7, A14). R: A14 */
#include "model/redact.h"

#include "api.pb-c.h"
#include "base/arena.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/random_message.h"
#include "model/validate.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define CANARY "canary-5b1f"

static ProtobufCMessage *message(struct arena *a, const ProtobufCMessageDescriptor *type,
                                 const char *json)
{
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };
        if (json_read(type, json, strlen(json), 1 << 20, 0, a, &m, &err) < 0)
                fail_msg("%s", err_line(&err));
        return m;
}

static char *shown(struct arena *a, enum redact_level level, const ProtobufCMessage *m)
{
        struct str out = STR_INIT;
        ProtobufCMessage *copy = pb_clone(a, m);
        redact(level, copy);
        json_write(&out, copy, JSON_COMPACT);
        char *text = arena_strdup(a, str_c(&out));
        str_fini(&out);
        return text;
}

static const char *const EVENT =
    "{\"seq\":7,\"type\":\"WorkloadApplied\",\"workload\":{\"id\":\"w\",\"spec\":{\"command\":["
    "\"true\"],\"env\":{\"SECRET\":\"" CANARY "\"},\"compose\":\"" CANARY "\",\"pod\":\"" CANARY
    "\",\"vm\":{\"cloud_init\":{\"user_data\":\"" CANARY
    "\"}}}},\"access\":{\"name\":\"ann\",\"hash\":\"hash-" CANARY
    "\"},\"outgoing\":{\"url\":\"https://x/" CANARY "\"}}";

static void viewers_see_names_and_no_values(void **state)
{
        struct arena a = ARENA_INIT;
        const char *text = shown(&a, redact_level_of(PB__ROLE__E__viewer),
                                 message(&a, &pb__event__descriptor, EVENT));
        (void)state;
        assert_null(strstr(text, CANARY));
        assert_non_null(strstr(text, "\"SECRET\":\"" REDACTED_TEXT "\""));
        assert_non_null(strstr(text, "\"id\":\"w\""));
        arena_fini(&a);
}

static void only_admins_see_hashes(void **state)
{
        struct arena a = ARENA_INIT;
        ProtobufCMessage *m = message(&a, &pb__event__descriptor, EVENT);
        (void)state;
        const char *operators = shown(&a, redact_level_of(PB__ROLE__E__operator), m);
        assert_null(strstr(operators, "hash-" CANARY));
        assert_non_null(strstr(operators, "\"SECRET\":\"" CANARY "\""));
        assert_non_null(strstr(shown(&a, redact_level_of(PB__ROLE__E__admin), m), "hash-" CANARY));
        arena_fini(&a);
}

static void nobody_in_particular_sees_what_viewers_see(void **state)
{
        (void)state;
        assert_int_equal(redact_level_of(PB__ROLE__E__unset), REDACT_VALUES);
        assert_int_equal(redact_level_of(PB__ROLE__E__node), REDACT_VALUES);
        assert_int_equal(redact_level_of(PB__ROLE__E__join), REDACT_VALUES);
        assert_int_equal(redact_level_of(99), REDACT_VALUES);
}

static void lists_are_covered(void **state)
{
        struct arena a = ARENA_INIT;
        ProtobufCMessage *m = message(
            &a, &pb__list_workloads_response__descriptor,
            "{\"items\":[{\"id\":\"a\",\"spec\":{\"env\":{\"A\":\"" CANARY "\",\"B\":\"" CANARY
            "\"}}},{\"id\":\"b\",\"spec\":{\"env\":{\"C\":\"" CANARY "\"}}}]}");
        (void)state;
        assert_null(strstr(shown(&a, REDACT_VALUES, m), CANARY));
        arena_fini(&a);
}

/* Any message, packed: as the unpacked one; and what holds nothing hidden is byte for byte what it
 * was. */
static void packed_is_the_same(void **state)
{
        static const ProtobufCMessageDescriptor *const types[] = {
                &pb__event__descriptor, &pb__workload__descriptor,
                &pb__list_events_response__descriptor, &pb__node__descriptor
        };
        struct rng rng;
        (void)state;
        rng_seed(&rng, 5);
        for (int i = 0; i < 2000; i++) {
                struct arena a = ARENA_INIT;
                struct str packed = STR_INIT, out = STR_INIT, want = STR_INIT;
                enum redact_level level = (enum redact_level)(i % _REDACT_LEVELS);
                ProtobufCMessage *m = random_message(&a, &rng, types[i % ARRAY_LEN(types)], 300000);
                pb_pack(&packed, m);
                assert_true(redact_packed(level, m->descriptor, packed.buf, packed.len, &out));
                redact(level, m);
                pb_pack(&want, m);
                assert_int_equal(out.len, want.len);
                assert_int_equal(memcmp(str_c(&out), str_c(&want), want.len), 0);
                str_fini(&packed);
                str_fini(&out);
                str_fini(&want);
                arena_fini(&a);
        }
}

static void bytes_that_are_no_message_are_not_shown(void **state)
{
        struct str out = STR_INIT;
        (void)state;
        assert_false(redact_packed(REDACT_VALUES, &pb__event__descriptor, "\x62\xff\xff", 3, &out));
        assert_int_equal(out.len, 0);
        str_fini(&out);
}

/* A definition that a viewer saved must not wipe out the values when somebody else applies it. */
static void what_stands_for_a_value_cannot_be_applied(void **state)
{
        struct arena a = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m = message(&a, &pb__apply_workload_request__descriptor,
                                      "{\"workload\":{\"id\":\"w\",\"spec\":{\"command\":[\"true\"]"
                                      ",\"env\":{\"SECRET\":\"" REDACTED_TEXT "\"}}}}");
        (void)state;
        assert_int_equal(request_normalise(&a, m, &err), -ERR_INVALID);
        assert_string_equal(err.path, "workload.spec.env.SECRET");
        arena_fini(&a);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(viewers_see_names_and_no_values),
                cmocka_unit_test(only_admins_see_hashes),
                cmocka_unit_test(nobody_in_particular_sees_what_viewers_see),
                cmocka_unit_test(lists_are_covered),
                cmocka_unit_test(packed_is_the_same),
                cmocka_unit_test(bytes_that_are_no_message_are_not_shown),
                cmocka_unit_test(what_stands_for_a_value_cannot_be_applied),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
