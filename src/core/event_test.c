/* core/event_test.c: the table of event types. */
#include "core/core_testlib.h"
#include "core/event.h"

/* R: A3 A10 */
static void every_type_has_a_row_and_nothing_else_has(void **state)
{
        (void)state;
        const ProtobufCEnumDescriptor *d = &pb__event_type__e__descriptor;
        unsigned rows = 0;
        for (int type = 0; type < 1000; type++) {
                bool known = type && protobuf_c_enum_descriptor_get_value(d, type);
                if (known != (event_row((Pb__EventType__E)type) != NULL))
                        fail_msg("event type %d %s", type,
                                 known ? "has no row" : "has a row and no name");
                rows += known;
        }
        assert_int_equal(rows, d->n_values - 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(
            every_type_has_a_row_and_nothing_else_has) };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
