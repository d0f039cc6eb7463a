/* base/ulid_test.c: what must hold for ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/ulid.h"

#include <string.h>

static void known_values_come_out(void **state _unused_)
{
        char id[ULID_LEN + 1];

        ulid_make(id, 0, 0, 0);
        assert_string_equal(id, "00000000000000000000000000");
        ulid_make(id, (INT64_C(1) << 48) - 1, 0xFFFF, UINT64_MAX);
        assert_string_equal(id, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        ulid_make(id, 1469918176385, 0, 1);
        assert_string_equal(id, "01ARYZ6S410000000000000001");
        ulid_make(id, 0, 1, 0);
        assert_string_equal(id, "0000000000000G000000000000");
}

static void order_is_the_order_of_time(void **state _unused_)
{
        char a[ULID_LEN + 1], b[ULID_LEN + 1];

        for (int64_t ms = 1; ms < INT64_C(1) << 47; ms = ms * 3 + 1) {
                ulid_make(a, ms, 0xFFFF, UINT64_MAX);
                ulid_make(b, ms + 1, 0, 0);
                assert_true(strcmp(a, b) < 0);
                assert_true(ulid_is_valid(a) && ulid_is_valid(b));
                assert_int_equal(ulid_time_ms(a), ms);
                assert_int_equal(ulid_time_ms(b), ms + 1);
        }
}

/* R: A9 */
static void only_one_spelling_is_valid(void **state _unused_)
{
        assert_true(ulid_is_valid("01ARYZ6S410000000000000001"));
        assert_false(ulid_is_valid(NULL));
        assert_false(ulid_is_valid(""));
        assert_false(ulid_is_valid("01ARYZ6S41000000000000000"));
        assert_false(ulid_is_valid("01ARYZ6S4100000000000000011"));
        assert_false(ulid_is_valid("01aryz6s410000000000000001"));
        assert_false(ulid_is_valid("81ARYZ6S410000000000000001"));
        for (const char *bad = "ILOU-_ \x80"; *bad; bad++) {
                char id[] = "01ARYZ6S410000000000000001";
                id[13] = *bad;
                assert_false(ulid_is_valid(id));
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(known_values_come_out),
                cmocka_unit_test(order_is_the_order_of_time),
                cmocka_unit_test(only_one_spelling_is_valid),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
