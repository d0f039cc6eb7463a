/* net/crowd_test.c: who counts as one address, and for how long. R: A11 A13 */
#include "net/crowd.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static uint32_t place_of(const struct crowd *c, const char *text)
{
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(4711) };
        struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(4711) };
        if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
                return crowd_place(c, (struct sockaddr *)&in);
        assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
        return crowd_place(c, (struct sockaddr *)&in6);
}

static struct crowd crowd;

static void as_many_as_may_be_enter_and_who_leaves_makes_room(void **state)
{
        (void)state;
        crowd_init(&crowd, 2);
        uint32_t at = place_of(&crowd, "10.0.0.1");
        assert_true(crowd_enter(&crowd, at));
        assert_true(crowd_enter(&crowd, at));
        assert_false(crowd_enter(&crowd, at));
        crowd_leave(&crowd, at);
        assert_true(crowd_enter(&crowd, at));
        crowd_leave(&crowd, at);
        crowd_leave(&crowd, at);
}

static void one_machine_is_one_address(void **state)
{
        (void)state;
        crowd_init(&crowd, 2);
        assert_int_equal(place_of(&crowd, "10.0.0.1"), place_of(&crowd, "::ffff:10.0.0.1"));
        assert_int_equal(place_of(&crowd, "2001:db8:0:1::1"),
                         place_of(&crowd, "2001:db8:0:1:ffff::2"));
        /* others are elsewhere, but for the few that happen to share a place */
        unsigned shared = 0;
        for (int i = 1; i < 256; i++) {
                char text[32];
                snprintf(text, sizeof(text), "10.0.%d.1", i);
                shared += place_of(&crowd, text) == place_of(&crowd, "10.0.0.1");
                snprintf(text, sizeof(text), "2001:db8:0:%x::1", i + 1);
                shared += place_of(&crowd, text) == place_of(&crowd, "2001:db8:0:1::1");
        }
        assert_true(shared < 16);
}

static void without_a_bound_nothing_counts(void **state)
{
        (void)state;
        crowd_init(&crowd, 0);
        for (int i = 0; i < 100; i++)
                assert_true(crowd_enter(&crowd, 7));
        crowd_leave(&crowd, 7);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(as_many_as_may_be_enter_and_who_leaves_makes_room),
                cmocka_unit_test(one_machine_is_one_address),
                cmocka_unit_test(without_a_bound_nothing_counts),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
