/* server/reach_test.c: whom a server calls because a caller said so, and under which names it
 * answers (issue 5, A9). */
#include "base/str.h"
#include "net/addr.h"
#include "server/reach.h"
#include "server/server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct reach *make(char **networks, size_t n_networks, char **hosts, size_t n_hosts)
{
        struct server_options o = { .http_address = "0.0.0.0:8084",
                                    .advertise_http = "one.example.org:8084" };
        Pb__ServerConfig f = PB__SERVER_CONFIG__INIT;
        struct reach *r = NULL;
        struct err err = { 0 };
        f.agent_networks = networks;
        f.n_agent_networks = n_networks;
        f.allowed_hosts = hosts;
        f.n_allowed_hosts = n_hosts;
        o.config = &f;
        assert_int_equal(reach_create(&o, &r, &err), 0);
        return r;
}

static bool may(const struct reach *r, const char *caller, const char *endpoint)
{
        struct err err = { 0 };
        return reach_check_endpoint(r, caller, endpoint, &err) == 0;
}

/* R: A9 C39 */
static void only_callers_themselves_and_allowed_networks_are_called(void **state)
{
        (void)state;
        char *nets[] = { "10.1.0.0/16", "fd00::/8" };
        struct reach *none = make(NULL, 0, NULL, 0), *some = make(nets, 2, NULL, 0);
        assert_true(may(none, "10.0.0.7", "10.0.0.7:50051"));
        /* the same, written otherwise */
        assert_true(may(none, "::ffff:10.0.0.7", "10.0.0.7:50051"));
        assert_true(may(none, "127.0.0.1", "localhost:50051"));
        assert_false(may(none, "10.0.0.7", "10.0.0.8:50051"));
        assert_false(may(none, "10.0.0.7", "127.0.0.1:8085"));
        assert_false(may(none, "10.0.0.7", "localhost:8085"));
        assert_false(may(none, "", "10.0.0.8:50051"));
        assert_false(may(some, "10.0.0.7", "10.2.0.1:1"));
        assert_true(may(some, "10.0.0.7", "10.1.255.1:1"));
        assert_true(may(some, "10.0.0.7", "[fd12::1]:1"));
        static const char *const never[] = {
                "169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1", "::", "::ffff:169.254.169.254"
        };
        char *all[] = { "0.0.0.0/0", "::/0" };
        struct reach *any = make(all, 2, NULL, 0);
        for (size_t i = 0; i < ARRAY_LEN(never); i++)
                assert_false(
                    may(any, never[i], fmt(strchr(never[i], ':') ? "[%s]:80" : "%s:80", never[i])));
        /* a name is looked at when it is known what it stands for */
        struct sockaddr_storage ss;
        assert_true(may(none, "10.0.0.7", "agent.example.org:50051"));
        assert_true(addr_of_ip("169.254.169.254", &ss));
        assert_false(reach_may_dial(any, "10.0.0.7", (struct sockaddr *)&ss));
        assert_true(addr_of_ip("10.0.0.9", &ss));
        assert_false(reach_may_dial(none, "10.0.0.7", (struct sockaddr *)&ss));
        reach_destroy(none);
        reach_destroy(some);
        reach_destroy(any);
}

/* R: A9 */
static void only_listed_names_are_answered(void **state)
{
        (void)state;
        char *hosts[] = { "berth.example.com", "*.lab.example.com" }, *any[] = { "*" };
        struct reach *r = make(NULL, 0, hosts, 2), *all = make(NULL, 0, any, 1);
        static const char *const good[] = {
                "127.0.0.1:8084", "[::1]:8084",        "localhost",         "a.localhost:1",
                "berth",          "one.example.org:9", "BERTH.example.com", "x.lab.example.com:80"
        };
        static const char *const bad[] = { "evil.example:8084",
                                           "two.example.org",
                                           "berth.example.com.evil.example",
                                           "",
                                           ":80",
                                           "y.x.lab.example.com" };
        for (size_t i = 0; i < ARRAY_LEN(good); i++)
                assert_true(reach_answers(r, good[i]));
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_false(reach_answers(r, bad[i]));
        assert_true(reach_answers(r, NULL));
        assert_true(reach_answers(all, "evil.example"));
        reach_destroy(r);
        reach_destroy(all);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(only_callers_themselves_and_allowed_networks_are_called),
                cmocka_unit_test(only_listed_names_are_answered),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
