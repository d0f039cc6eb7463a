/* Tests of model/badinput.h, and through it of the readers and of the rules: every bad variant is
 * refused with the path that it should have, as JSON, as a packed message and as YAML; the example
 * itself is taken. */
#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/err.h"
#include "base/str.h"
#include "model/badinput.h"
#include "model/json.h"
#include "model/manifest.h"
#include "model/pb.h"
#include "model/validate.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char *start_of(const char *text)
{
        return fmt("%.300s", text);
}

static void expect_refused(const struct badinput *b, const char *how, int rc, const struct err *err)
{
        if (rc != -ERR_INVALID)
                fail_msg("%s, %s at %s: taken: %s", how, b->what, b->path, start_of(b->json));
        if (!str_eq(err->path, b->path))
                fail_msg("%s, %s: path %s instead of %s: %s", how, b->what, err->path, b->path,
                         start_of(b->json));
        if (err->msg[0] == '\0')
                fail_msg("%s, %s at %s: no message", how, b->what, b->path);
}

static int check_json(const ProtobufCMessageDescriptor *type, const struct badinput *b,
                      struct arena *arena, ProtobufCMessage **ret, struct err *err)
{
        int rc = json_read(type, b->json, strlen(b->json), SIZE_MAX, 0, arena, ret, err);

        if (rc == 0 && !b->wire)
                fail_msg("%s at %s: the reader took it: %s", b->what, b->path, start_of(b->json));
        return rc < 0 ? rc : validate_request(*ret, err);
}

static void check_variant(const ProtobufCMessageDescriptor *type, const struct badinput *b)
{
        struct arena arena = ARENA_INIT;
        struct str packed = STR_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;

        expect_refused(b, "JSON", check_json(type, b, &arena, &m, &err), &err);
        if (b->wire) {
                pb_pack(&packed, m);
                int rc = pb_unpack(type, packed.buf, packed.len, &arena, &m, &err);
                expect_refused(b, "packed", rc < 0 ? rc : request_normalise(&arena, m, &err), &err);
        }
        if (b->yaml) {
                int rc = yaml_read(type, "test", b->json, strlen(b->json), &arena, &m, &err);
                expect_refused(b, "YAML", rc < 0 ? rc : request_normalise(&arena, m, &err), &err);
        }
        str_fini(&packed);
        arena_fini(&arena);
}

/* R: A9 */
static void every_bad_variant_is_refused_with_its_path(void **state)
{
        const ProtobufCMessageDescriptor *type;

        (void)state;
        for (size_t i = 0; (type = badinput_type_at(i)) != NULL; i++) {
                struct arena arena = ARENA_INIT;
                struct badinput *all;
                size_t n = badinput_make(&arena, type, NULL, &all);
                assert_true(n > 20);
                for (size_t k = 0; k < n; k++)
                        check_variant(type, &all[k]);
                arena_fini(&arena);
        }
}

static void every_example_is_taken(void **state)
{
        const ProtobufCMessageDescriptor *type;

        (void)state;
        for (size_t i = 0; (type = badinput_type_at(i)) != NULL; i++) {
                struct arena arena = ARENA_INIT;
                struct err err = { 0 };
                ProtobufCMessage *m = badinput_example(&arena, type);
                if (validate_request(m, &err) < 0 || request_normalise(&arena, m, &err) < 0)
                        fail_msg("%s: %s", type->short_name, err_line(&err));
                arena_fini(&arena);
        }
        assert_ptr_equal(badinput_type("Workload"), &pb__workload__descriptor);
        assert_null(badinput_type("Nothing"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_example_is_taken),
                cmocka_unit_test(every_bad_variant_is_refused_with_its_path),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
