/* server/access_test.c: who may do what: every operation with every role, at both doors (C32). */
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

/* Written down once more, by hand: a row of the table that changes sides changes this list too. */
static const char *const for_anybody[] = { "GetHealth",    "GetOpenAPI", "GetPage",  "Reflection", "ReflectionAlpha",
                                           "PersysHealth", "GetTrust",   "JoinNode", NULL };
static const char *const for_viewers[] = { "GetWorkload",
                                           "ListWorkloads",
                                           "ExplainWorkload",
                                           "GetLogs",
                                           "ListNodes",
                                           "GetNode",
                                           "GetQuota",
                                           "ListQuotas",
                                           "Plan",
                                           "ListAlerts",
                                           "ListEvents",
                                           "WatchEvents",
                                           "GetCluster",
                                           "GetMetrics",
                                           "PersysListNodes",
                                           "PersysGetNode",
                                           "PersysListWorkloads",
                                           "PersysList",
                                           "PersysGetWorkload",
                                           "PersysGetClusterSummary",
                                           "PersysClusters",
                                           "PersysCluster",
                                           NULL };
static const char *const for_operators[] = { "CreateWorkload",
                                             "ApplyWorkload",
                                             "ApplyWorkloads",
                                             "DeleteWorkload",
                                             "RetryWorkload",
                                             "StopWorkload",
                                             "StartWorkload",
                                             "SetDesired",
                                             "Exec",
                                             "CordonNode",
                                             "UncordonNode",
                                             "DrainNode",
                                             "DisableNode",
                                             "SetNodeWish",
                                             "SetTaints",
                                             "SetNodeLabels",
                                             "SetNodeCapacity",
                                             "AdoptNode",
                                             "PersysApplyWorkload",
                                             "PersysDeleteWorkload",
                                             "PersysRetryWorkload",
                                             "PersysSubmitAutomationSuggestion",
                                             NULL };
static const char *const for_agents[] = { "AgentConnect",        "PersysRegisterNode", "PersysHeartbeat",
                                          "PersysControlStream", "RenewCertificate",   NULL };

static bool has(const char *const *list, const char *name)
{
        for (; *list; list++)
                if (str_eq(*list, name))
                        return true;
        return false;
}

/* In the order of Pb__Role__E: nobody, viewer, operator, admin, node. */
enum { NOBODY, VIEWER, OPERATOR, ADMIN, NODE, N_ROLES };

static bool should_pass(const char *op, int role)
{
        if (has(for_anybody, op))
                return true;
        if (has(for_agents, op))
                return role == NODE;
        if (has(for_viewers, op))
                return role >= VIEWER && role <= ADMIN;
        return has(for_operators, op) ? role == OPERATOR || role == ADMIN : role == ADMIN;
}

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
        static const char *const roles[] = { [VIEWER] = "viewer", [OPERATOR] = "operator", [NODE] = "node" };
        struct str first = STR_INIT;
        server_end(f);
        f->opt.auth = true;
        f->opt.max_refusals = max_refusals;
        server_begin(f);
        *t = (struct tokens){ 0 };
        assert_int_equal(file_read(fmt("%s/" ADMIN_TOKEN_FILE, f->opt.data_dir), 4096, &first, NULL), 0);
        snprintf(t->text[ADMIN], sizeof(t->text[ADMIN]), "%.*s", (int)strcspn(str_c(&first), "\n"), str_c(&first));
        str_fini(&first);
        for (int role = VIEWER; role < N_ROLES; role++) {
                if (!roles[role])
                        continue;
                struct http_answer a = http_do(f->http, "POST", "/v1/tokens", bearer(t->text[ADMIN]),
                                               fmt("{\"name\":\"of-%s\",\"role\":\"%s\"}", roles[role], roles[role]));
                assert_int_equal(a.status, 201);
                between(str_c(&a.body), "\"secret\":\"", "\"", t->text[role], sizeof(t->text[role]));
                http_answer_fini(&a);
        }
}

/* "/nodes/{id}/drain" -> "/v1/nodes/x/drain" */
static const char *path_of(const struct op *op)
{
        struct str out = STR_INIT;
        if (op->kind != OP_PERSYS)
                str_adds(&out, "/v1");
        for (const char *p = op->path; *p; p++) {
                if (*p != '{') {
                        str_addc(&out, *p);
                        continue;
                }
                str_addc(&out, 'x');
                p = strchr(p, '}');
        }
        const char *text = fmt("%s", str_c(&out));
        str_fini(&out);
        return text;
}

/* R: C32 */
static void every_operation_over_http_takes_its_roles_and_no_others(void **state)
{
        struct fixture *f = *state;
        struct tokens t;
        restart_with_tokens(f, &t, 1000000);
        for (size_t i = 0; i < n_ops; i++) {
                if (!ops[i].path || ops[i].kind == OP_WATCH)
                        continue;
                if (ops[i].needs == NEEDS_UNSAID)
                        fail_msg("%s does not say who may ask for it", ops[i].name);
                for (int role = NOBODY; role < N_ROLES; role++) {
                        struct http_answer a = http_do(f->http, ops[i].method, path_of(&ops[i]), bearer(t.text[role]), "");
                        bool passed = a.status != 401 && a.status != 403;
                        if (passed != should_pass(ops[i].name, role) || (!passed && a.status != (role == NOBODY ? 401 : 403)))
                                fail_msg("%s %s as %s: %d", ops[i].method, ops[i].path, access_role_name(role), a.status);
                        http_answer_fini(&a);
                }
        }
}

/* R: C32 */
static void every_operation_over_grpc_takes_its_roles_and_no_others(void **state)
{
        struct fixture *f = *state;
        struct tokens t;
        restart_with_tokens(f, &t, 1000000);
        for (size_t i = 0; i < n_ops; i++) {
                if (!ops[i].rpc)
                        continue;
                for (int role = NOBODY; role < N_ROLES; role++) {
                        bool stream = ops[i].kind == OP_WATCH || ops[i].kind == OP_AGENT || ops[i].kind == OP_REFLECTION;
                        if (stream && should_pass(ops[i].name, role))
                                continue; /* would not end */
                        struct grpc_reply r = { 0 };
                        struct grpc_channel_options o = { .token = t.text[role] };
                        struct err err = { 0 };
                        if (grpc_call_sync(f->grpc, &o, NULL, ops[i].rpc, "", 0, 20000, &r, &err) < 0)
                                fail_msg("%s: %s", ops[i].rpc, err_line(&err));
                        bool passed = r.status != GRPC_UNAUTHENTICATED && r.status != GRPC_PERMISSION_DENIED;
                        if (passed != should_pass(ops[i].name, role) ||
                            (!passed && r.status != (role == NOBODY ? GRPC_UNAUTHENTICATED : GRPC_PERMISSION_DENIED)))
                                fail_msg("%s as %s: %s", ops[i].rpc, access_role_name(role), grpc_status_name(r.status));
                        grpc_reply_fini(&r);
                }
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
        a = http_do(f->http, "GET", "/v1/nodes", as, ""); /* from the answer on, without exception */
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
        a = http_do(f->http, "GET", "/v1/nodes", fmt("Cookie: a=1; berth_token=%s; b=2\r\n", t.text[OPERATOR]),
                    ""); /* the dashboard's way */
        assert_int_equal(a.status, 200);
        http_answer_fini(&a);
        a = http_do(f->http, "GET", "/v1/nodes", fmt("Cookie: other_berth_token=%s\r\n", t.text[OPERATOR]), "");
        assert_int_equal(a.status, 401);
        http_answer_fini(&a);
        a = http_do(f->http, "GET", "/v1/nodes", fmt("Cookie: other_berth_token=x; berth_token=%s\r\n", t.text[OPERATOR]), "");
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
                struct http_answer a = http_do(f->http, "GET", "/v1/nodes", "Authorization: Bearer berth_wrong\r\n", "");
                limited += a.status == 429;
                assert_true(a.status == 401 || (a.status == 429 && http_header_of(&a, "Retry-After")[0]));
                http_answer_fini(&a);
        }
        assert_true(limited > 0);
        struct http_answer a = http_do(f->http, "GET", "/metrics", bearer(t.text[VIEWER]), "");
        assert_int_equal(a.status, 200);
        assert_null(strstr(str_c(&a.body), "berth_auth_refused_total{reason=\"rate-limited\"} 0\n"));
        assert_null(strstr(str_c(&a.body), "berth_auth_refused_total{reason=\"unknown-token\"} 0\n"));
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
        struct http_answer a = http_do(f->http, "DELETE", "/v1/tokens/admin", bearer(t.text[ADMIN]), ""); /* the old one still works */
        assert_int_equal(a.status, 200);
        http_answer_fini(&a);
        a = http_do(f->http, "GET", "/v1/tokens", bearer(t.text[ADMIN]), "");
        assert_int_equal(a.status, 401);
        http_answer_fini(&a);
        server_end(f);
        unlink(fmt("%s/" ADMIN_TOKEN_FILE, f->opt.data_dir));
        server_begin(f);
        struct str first = STR_INIT;
        assert_int_equal(file_read(fmt("%s/" ADMIN_TOKEN_FILE, f->opt.data_dir), 4096, &first, NULL), 0);
        snprintf(again.text[ADMIN], sizeof(again.text[ADMIN]), "%.*s", (int)strcspn(str_c(&first), "\n"), str_c(&first));
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
                cmocka_unit_test_setup_teardown(every_operation_over_http_takes_its_roles_and_no_others, server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(every_operation_over_grpc_takes_its_roles_and_no_others, server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(a_token_ends_with_its_revocation_and_with_its_time, server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(many_failures_of_one_address_are_cut_short_and_right_tokens_still_pass, server_setup,
                                                server_teardown),
                cmocka_unit_test_setup_teardown(the_admin_of_the_first_start_stays_and_a_new_one_comes_when_none_is_left, server_setup,
                                                server_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
