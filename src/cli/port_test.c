/* cli/port_test.c: ports in use. */
#include "base/str.h"
#include "cli/port.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int listen_anywhere(uint16_t *ret_port)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t len = sizeof(a);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        assert_int_equal(listen(fd, 1), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
        *ret_port = ntohs(a.sin_port);
        return fd;
}

/* R: A9 */
static void a_port_in_use_names_its_owner_and_the_way_out(void **state)
{
        (void)state;
        struct err err = { 0 };
        uint16_t port = 0;
        int fd = listen_anywhere(&port);
        assert_int_equal(port_check(port, "HTTP", &err), -ERR_CONFLICT);
        assert_non_null(strstr(err.msg, fmt("port %u", port)));
        assert_non_null(strstr(err.detail, fmt("pid %d", (int)getpid())));
        assert_non_null(strstr(err.hint, "--port"));
        close(fd);
        assert_int_equal(port_check(port, "HTTP", &err), 0);
        char owner[80];
        assert_string_equal(port_owner(port, owner, sizeof(owner)), "");
}

static void a_free_pair_is_two_neighbours(void **state)
{
        (void)state;
        struct err err = { 0 };
        uint16_t port = 0;
        assert_int_equal(port_find_pair(&port, &err), 0);
        assert_true(port > 0);
        assert_int_equal(port_check(port, "HTTP", &err), 0);
        assert_int_equal(port_check((uint16_t)(port + 1), "gRPC", &err), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_port_in_use_names_its_owner_and_the_way_out),
                cmocka_unit_test(a_free_pair_is_two_neighbours),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
