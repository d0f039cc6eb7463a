/* server/access_test.c: tokens: their ends, their limits and the first of them (C32). matrix_test.c
 * has who may do what. */
#include "base/array.h"
#include "base/file.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "server/access.h"
#include "server/ops.h"
#include "server/testkit.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* In the order of Pb__Role__E: nobody, viewer, operator, admin, node. */
enum { NOBODY, VIEWER, OPERATOR, ADMIN, NODE, N_ROLES };

struct tokens {
        char text[N_ROLES][128];
};

static void between(const char *text, const char *from, const char *to, char *ret, size_t size)
{
        const char *at = strstr(text, from), *end = at ? strstr(at + strlen(from), to) : NULL;
        if (!end)
                fail_msg("no %s in %s", from, text);
        snprintf(ret, size, "%.*s", (int)(end - at - (long)strlen(from)), at + strlen(from));
}

static const char *bearer(const char *token)
{
        return token[0] ? fmt("Authorization: Bearer %s\r\n", token) : "";
}

static void restart_with_tokens(struct fixture *f, struct tokens *t, uint32_t max_refusals)
{
        static const char *const roles[] = {
                [VIEWER] = "viewer", [OPERATOR] = "operator", [NODE] = "node"
        };
        struct str first = STR_INIT;
        server_end(f);
        f->opt.auth = true;
        f->opt.max_refusals = max_refusals;
        server_begin(f);
        *t = (struct tokens){ 0 };
        assert_int_equal(
            file_read(fmt("%s/" ADMIN_TOKEN_FILE, f->opt.data_dir), 4096, &first, NULL), 0);
        snprintf(t->text[ADMIN], sizeof(t->text[ADMIN]), "%.*s", (int)strcspn(str_c(&first), "\n"),
                 str_c(&first));
        str_fini(&first);
        for (int role = VIEWER; role < N_ROLES; role++) {
                if (!roles[role])
                        continue;
                struct http_answer a =
                    http_do(f->http, "POST", "/v1/tokens", bearer(t->text[ADMIN]),
                            fmt("{\"name\":\"of-%s\",\"role\":\"%s\"}", roles[role], roles[role]));
                assert_int_equal(a.status, 201);
                between(str_c(&a.body), "\"secret\":\"", "\"", t->text[role],
                        sizeof(t->text[role]));
                http_answer_fini(&a);
        }
}

/* R: C32 */
static void a_token_ends_with_its_revocation_and_with_its_time(void **state)
{
        struct fixture *f = *state;
        struct tokens t;
        restart_with_tokens(f, &t, 1000000);
        char as[200];
        snprintf(as, sizeof(as), "%s", bearer(t.text[VIEWER]));
        struct http_answer a = http_do(f->http, "GET", "/v1/nodes", as, "");
        assert_int_equal(a.status, 200);
        http_answer_fini(&a);
        a = http_do(f->http, "DELETE", "/v1/tokens/of-viewer", bearer(t.text[ADMIN]), "");
        assert_int_equal(a.status, 200);
        http_answer_fini(&a);
        /* from the answer on, without exception */
        a = http_do(f->http, "GET", "/v1/nodes", as, "");
        assert_int_equal(a.status, 401);
        assert_non_null(strstr(str_c(&a.body), "was revoked"));
        assert_non_null(strstr(str_c(&a.body), "hint"));
        http_answer_fini(&a);
        server_end(f);
        server_begin(f); /* and over a restart */
        a = http_do(f->http, "GET", "/v1/nodes", as, "");
        assert_int_equal(a.status, 401);
        http_answer_fini(&a);
        a = http_do(f->http, "GET", "/v1/nodes", bearer(t.text[OPERATOR]), "");
        assert_int_equal(a.status, 200);
        http_answer_fini(&a);
        a = http_do(f->http, "GET", "/v1/nodes", "Authorization: Basic YTpi\r\n", "");
        assert_int_equal(a.status, 401);
        http_answer_fini(&a);
        a = http_do(f->http, "GET", "/v1/nodes",
                    fmt("Cookie: a=1; berth_token=%s; b=2\r\n", t.text[OPERATOR]),
                    ""); /* the dashboard's way */
        assert_int_equal(a.status, 200);
        http_answer_fini(&a);
        a = http_do(f->http, "GET", "/v1/nodes",
                    fmt("Cookie: other_berth_token=%s\r\n", t.text[OPERATOR]), "");
        assert_int_equal(a.status, 401);
        http_answer_fini(&a);
        a = http_do(f->http, "GET", "/v1/nodes",
                    fmt("Cookie: other_berth_token=x; berth_token=%s\r\n", t.text[OPERATOR]), "");
        assert_int_equal(a.status, 200);
        http_answer_fini(&a);
}

/* R: C32 */
static void many_failures_of_one_address_are_cut_short_and_right_tokens_still_pass(void **state)
{
        struct fixture *f = *state;
        struct tokens t;
        restart_with_tokens(f, &t, 5);
        int limited = 0;
        for (int i = 0; i < 30; i++) {
                struct http_answer a = http_do(f->http, "GET", "/v1/nodes",
                                               "Authorization: Bearer berth_wrong\r\n", "");
                limited += a.status == 429;
                assert_true(a.status == 401 ||
                            (a.status == 429 && http_header_of(&a, "Retry-After")[0]));
                http_answer_fini(&a);
        }
        assert_true(limited > 0);
        struct http_answer a = http_do(f->http, "GET", "/metrics", bearer(t.text[VIEWER]), "");
        assert_int_equal(a.status, 200);
        assert_null(
            strstr(str_c(&a.body), "berth_auth_refused_total{reason=\"rate-limited\"} 0\n"));
        assert_null(
            strstr(str_c(&a.body), "berth_auth_refused_total{reason=\"unknown-token\"} 0\n"));
        assert_null(strstr(str_c(&a.body), "berth_wrong"));
        http_answer_fini(&a);
}

/* R: C32 */
static void the_admin_of_the_first_start_stays_and_a_new_one_comes_when_none_is_left(void **state)
{
        struct fixture *f = *state;
        struct tokens t, again;
        restart_with_tokens(f, &t, 1000000);
        server_end(f);
        server_begin(f);
        /* the old one still works */
        struct http_answer a =
            http_do(f->http, "DELETE", "/v1/tokens/admin", bearer(t.text[ADMIN]), "");
        assert_int_equal(a.status, 200);
        http_answer_fini(&a);
        a = http_do(f->http, "GET", "/v1/tokens", bearer(t.text[ADMIN]), "");
        assert_int_equal(a.status, 401);
        http_answer_fini(&a);
        server_end(f);
        unlink(fmt("%s/" ADMIN_TOKEN_FILE, f->opt.data_dir));
        server_begin(f);
        struct str first = STR_INIT;
        assert_int_equal(
            file_read(fmt("%s/" ADMIN_TOKEN_FILE, f->opt.data_dir), 4096, &first, NULL), 0);
        snprintf(again.text[ADMIN], sizeof(again.text[ADMIN]), "%.*s",
                 (int)strcspn(str_c(&first), "\n"), str_c(&first));
        str_fini(&first);
        assert_string_not_equal(again.text[ADMIN], t.text[ADMIN]);
        a = http_do(f->http, "GET", "/v1/tokens", bearer(again.text[ADMIN]), "");
        assert_int_equal(a.status, 200);
        assert_null(strstr(str_c(&a.body), "hash")); /* nobody needs to see it */
        http_answer_fini(&a);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_token_ends_with_its_revocation_and_with_its_time,
                                                server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(
                    many_failures_of_one_address_are_cut_short_and_right_tokens_still_pass,
                    server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(
                    the_admin_of_the_first_start_stays_and_a_new_one_comes_when_none_is_left,
                    server_setup, server_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
