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
                assert_int_equal(strspn(a, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"), ULID_LEN);
                assert_int_equal(strlen(a), ULID_LEN);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(known_values_come_out),
                cmocka_unit_test(order_is_the_order_of_time),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
