/* Tests of model/openapi.h. That the server keeps to the document is tested end to end. */
#include "api.pb-c.h"
#include "model/openapi.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* R: C2 */
static void a_schema_says_what_the_codec_does(void **state)
{
        struct str out = STR_INIT;

        (void)state;
        openapi_schema(&out, &pb__workload_ref__descriptor);
        assert_string_equal(
            str_c(&out), "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
                         "\"id\":{\"type\":\"string\",\"maxLength\":128,\"pattern\":\"^[A-Za-z0-9]("
                         "\\\\.?[A-Za-z0-9_-])*\\\\.?$\"},"
                         "\"if_match\":{\"type\":\"integer\",\"format\":\"int64\",\"minimum\":0},"
                         "\"check_index\":{\"type\":\"integer\",\"format\":\"int64\",\"minimum\":0}"
                         "},\"required\":[\"id\"]}");
        str_clear(&out);
        openapi_schema(&out, &pb__workload__descriptor);
        assert_non_null(strstr(
            str_c(&out),
            "\"restart\":{\"type\":\"string\",\"enum\":[\"always\",\"on-failure\",\"never\"]}"));
        assert_non_null(strstr(
            str_c(&out),
            "\"status\":{\"$ref\":\"#/components/schemas/WorkloadStatus\",\"readOnly\":true}"));
        assert_non_null(strstr(str_c(&out),
                               "\"labels\":{\"type\":\"object\",\"maxProperties\":64,"
                               "\"additionalProperties\":{\"type\":\"string\",\"maxLength\":63"));
        str_clear(&out);
        openapi_schema(&out, &pb__resources__descriptor);
        assert_non_null(strstr(str_c(&out),
                               "\"cpu\":{\"type\":\"number\",\"multipleOf\":0.001,\"description\":"
                               "\"cores\",\"minimum\":0,\"maximum\":1000000}"));
        str_clear(&out);
        openapi_schema(&out, &pb__workload_status__descriptor);
        assert_non_null(
            strstr(str_c(&out), "\"started_at\":{\"type\":\"string\",\"format\":\"date-time\"}"));
        assert_non_null(
            strstr(str_c(&out), "\"exit_code\":{\"type\":\"integer\",\"format\":\"int64\"}"));
        str_fini(&out);
}

/* R: C2 */
static void all_types_that_are_referred_to_are_there_once(void **state)
{
        static const ProtobufCMessageDescriptor *const types[] = {
                &pb__workload__descriptor, &pb__list_workloads_response__descriptor,
                &pb__workload__descriptor
        };
        struct str out = STR_INIT;
        const char *at;

        (void)state;
        openapi_schemas(&out, types, ARRAY_LEN(types));
        for (const char *ref = str_c(&out); (ref = strstr(ref, "#/components/schemas/")) != NULL;) {
                char name[80];
                ref += strlen("#/components/schemas/");
                size_t n = strcspn(ref, "\"");
                assert_true(n < 60);
                name[0] = '"';
                memcpy(name + 1, ref, n);
                strcpy(name + 1 + n, "\":{\"type\":\"object\"");
                at = strstr(str_c(&out), name);
                assert_non_null(at);
                assert_null(strstr(at + 1, name));
        }
        assert_null(strstr(str_c(&out), "Entry"));
        assert_null(strstr(str_c(&out), "IntValue"));
        str_clear(&out);
        openapi_schemas(&out, NULL, 0);
        assert_string_equal(str_c(&out), "{}");
        str_fini(&out);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_schema_says_what_the_codec_does),
                cmocka_unit_test(all_types_that_are_referred_to_are_there_once),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
