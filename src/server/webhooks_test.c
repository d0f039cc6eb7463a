/* server/webhooks_test.c: the signature; the rest is tested with a real receiver in
 * tests/e2e/test_rules.py. */
#include "base/str.h"
#include "server/webhooks.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* R: C30 */
static void the_signature_is_that_of_time_and_body(void **state)
{
        (void)state;
        struct str out = STR_INIT;
        /* printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac key */
        webhook_sign("key", 3, 1700000000, "{\"a\":1}", &out);
        assert_string_equal(
            str_c(&out),
            "t=1700000000,v1=a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03");
        str_fini(&out);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(
            the_signature_is_that_of_time_and_body) };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
