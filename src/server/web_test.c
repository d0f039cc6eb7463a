/* server/web_test.c: the dashboard's files as a browser gets them. What they do in a browser is in
 * tests/web. */
#include "server/testkit.h"
#include "server/web.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* R: C2 */
static void every_file_is_served_with_its_type_tag_and_policy(void **state)
{
        struct fixture *f = *state;
        size_t total = 0;
        for (size_t i = 0; i < n_web_files; i++) {
                const struct web_file *w = &web_files[i];
                struct http_answer a =
                    expect_http(f, "GET", fmt("/ui/%s/%s", web_version, w->name), "", NULL, 200);
                assert_string_equal(http_header_of(&a, "Content-Type"), w->type);
                assert_string_equal(http_header_of(&a, "ETag"), w->etag);
                assert_non_null(strstr(http_header_of(&a, "Cache-Control"), "immutable"));
                assert_non_null(
                    strstr(http_header_of(&a, "Content-Security-Policy"), "script-src 'self'"));
                assert_null(strstr(http_header_of(&a, "Content-Security-Policy"), "unsafe"));
                assert_string_equal(http_header_of(&a, "X-Content-Type-Options"), "nosniff");
                assert_int_equal(a.body.len, w->len);
                assert_memory_equal(a.body.buf, w->data, w->len);
                total += w->len;
                http_answer_fini(&a);
        }
        assert_true(n_web_files > 10 && total < 150 * 1000);
}

/* R: C2 */
static void the_page_names_the_files_of_this_binary(void **state)
{
        struct fixture *f = *state;
        struct http_answer a = expect_http(f, "GET", "/", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), fmt("ui/%s/main.js", web_version)));
        assert_null(strstr(str_c(&a.body), "@VERSION@"));
        assert_string_equal(http_header_of(&a, "Cache-Control"), "no-cache");
        http_answer_fini(&a);
}

/* R: C2 */
static void what_the_browser_has_is_not_sent_again(void **state)
{
        struct fixture *f = *state;
        struct http_answer a = expect_http(f, "GET", "/", "", NULL, 200);
        struct http_answer b = expect_http(
            f, "GET", "/", fmt("If-None-Match: %s\r\n", http_header_of(&a, "ETag")), NULL, 304);
        assert_int_equal(b.body.len, 0);
        http_answer_fini(&b);
        b = expect_http(f, "GET", "/", "If-None-Match: \"something else\"\r\n", NULL, 200);
        http_answer_fini(&b);
        http_answer_fini(&a);
}

/* R: A9 */
static void an_old_name_is_served_but_not_for_ever_and_an_unknown_one_is_refused(void **state)
{
        struct fixture *f = *state;
        struct http_answer a = expect_http(f, "GET", "/ui/0123456789ab/main.js", "", NULL, 200);
        assert_string_equal(http_header_of(&a, "Cache-Control"), "no-cache");
        http_answer_fini(&a);
        expect_status(f, "GET", "/ui/main.js", NULL, 200);
        expect_status(f, "GET", "/ui/nothing.js", NULL, 404);
        expect_status(f, "GET", "/ui/", NULL, 404);
        expect_status(f, "GET", "/ui/a/b/main.js", NULL, 404);
        expect_status(f, "POST", "/ui/main.js", NULL, 405);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(every_file_is_served_with_its_type_tag_and_policy,
                                                server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(the_page_names_the_files_of_this_binary,
                                                server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(what_the_browser_has_is_not_sent_again,
                                                server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(
                    an_old_name_is_served_but_not_for_ever_and_an_unknown_one_is_refused,
                    server_setup, server_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
