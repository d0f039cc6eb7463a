/* server/matrix_test.c: who may do what: every route and method of both doors, all dialects,
 * against every credential (C32, A13, A14).
 *
 * docs/access.md shows the same as a table, which is made here and held to what the server has:
 * BERTH_WRITE_DOCS=1 writes it anew.
 */
#include "base/file.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "server/access.h"
#include "server/ops.h"
#include "server/testkit.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Written down once more, by hand: a row of the table that changes sides changes this list too. */
static const char *const for_anybody[] = { "GetHealth",  "GetOpenAPI",      "GetPage",
                                           "Reflection", "ReflectionAlpha", "PersysHealth",
                                           "GetTrust",   "JoinNode",        "Logout",
                                           NULL };
static const char *const for_viewers[] = { "Login",
                                           "GetWorkload",
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
                                             "EvictNode",
                                             "EvictLost",
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
static const char *const for_agents[] = { "AgentConnect",     "PersysRegisterNode",
                                          "PersysHeartbeat",  "PersysControlStream",
                                          "RenewCertificate", NULL };

static bool has(const char *const *list, const char *name)
{
        for (; *list; list++)
                if (str_eq(*list, name))
                        return true;
        return false;
}

/* What a caller can show. Roles come by token and by certificate alike. */
enum shown { NOBODY, BAD_TOKEN, VIEWER, OPERATOR, ADMIN, NODE, SERVER, N_SHOWN };
static const char *const shown_names[] = { "nobody", "bad token", "viewer", "operator",
                                           "admin",  "node",      "server" };

/* 0: passes; else the status of the refusal. */
static int expected(const char *op, enum shown who)
{
        if (has(for_anybody, op))
                return 0;
        if (who == NOBODY || who == BAD_TOKEN)
                return 401;
        bool passes = has(for_agents, op)      ? who == NODE
                      : has(for_viewers, op)   ? who == VIEWER || who == OPERATOR || who == ADMIN
                      : has(for_operators, op) ? who == OPERATOR || who == ADMIN
                                               : who == ADMIN;
        return passes ? 0 : 403;
}

/* ---- the page ---- */

#define BEGIN "<!-- the matrix: BERTH_WRITE_DOCS=1 meson test server_matrix writes it -->\n"
#define END "<!-- the end of the matrix -->\n"

static const char *cell(const struct op *op, enum shown who)
{
        static const int roles[] = { [VIEWER] = PB__ROLE__E__viewer,
                                     [OPERATOR] = PB__ROLE__E__operator,
                                     [ADMIN] = PB__ROLE__E__admin,
                                     [NODE] = PB__ROLE__E__node,
                                     [SERVER] = PB__ROLE__E__unset };
        if (op->needs == NEEDS_NOTHING)
                return "yes";
        if (who == NOBODY || who == BAD_TOKEN)
                return "401";
        return access_may(op->needs, roles[who]) ? "yes" : "403";
}

static void render(struct str *out)
{
        str_adds(out, "\n| operation | HTTP | gRPC |");
        for (int who = 0; who < N_SHOWN; who++)
                str_addf(out, " %s |", shown_names[who]);
        str_adds(out, "\n|---|---|---|");
        for (int who = 0; who < N_SHOWN; who++)
                str_adds(out, "---|");
        str_adds(out, "\n");
        for (size_t i = 0; i < n_ops; i++) {
                str_addf(out, "| `%s` | ", ops[i].name);
                if (ops[i].path)
                        str_addf(out, "`%s %s`", ops[i].method, ops[i].path);
                str_adds(out, " | ");
                if (ops[i].rpc)
                        str_addf(out, "`%s`", ops[i].rpc + 1);
                str_adds(out, " |");
                for (int who = 0; who < N_SHOWN; who++)
                        str_addf(out, " %s |", cell(&ops[i], (enum shown)who));
                str_adds(out, "\n");
        }
        str_adds(out, "\n");
}

/* R: C32 A13 */
static void the_page_shows_the_matrix(void **state)
{
        struct str page = STR_INIT, want = STR_INIT, table = STR_INIT;
        (void)state;
        assert_true(file_read(ACCESS_PAGE, 1 << 20, &page, NULL) >= 0);
        const char *begin = strstr(str_c(&page), BEGIN), *end = begin ? strstr(begin, END) : NULL;
        assert_non_null(end);
        render(&table);
        str_add(&want, str_c(&page), (size_t)(begin - str_c(&page)) + strlen(BEGIN));
        str_adds(&want, str_c(&table));
        str_adds(&want, end);
        if (getenv("BERTH_WRITE_DOCS"))
                assert_true(file_write_atomic(ACCESS_PAGE, want.buf, want.len, 0644, NULL) >= 0);
        else if (!str_eq(str_c(&page), str_c(&want)))
                fail_msg("the matrix in docs/access.md is not what the server has: " BEGIN);
        str_fini(&page);
        str_fini(&want);
        str_fini(&table);
}

/* Each row by hand, by the table of operations and on the page says the same. */
static void every_row_says_who_may(void **state)
{
        (void)state;
        for (size_t i = 0; i < n_ops; i++) {
                if (ops[i].needs == NEEDS_UNSAID)
                        fail_msg("%s does not say who may ask for it", ops[i].name);
                for (int who = 0; who < N_SHOWN; who++) {
                        int want = expected(ops[i].name, (enum shown)who);
                        if (!str_eq(cell(&ops[i], (enum shown)who), want ? fmt("%d", want) : "yes"))
                                fail_msg("%s as %s: %s", ops[i].name, shown_names[who],
                                         cell(&ops[i], (enum shown)who));
                }
        }
}

/* ---- tokens, at both doors ---- */

struct shown_token {
        enum shown who;
        const char *what;
        char text[160];
};
enum { N_TOKENS = 9 };

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

static void create(struct fixture *f, const char *admin, struct shown_token *t, const char *role,
                   const char *more)
{
        struct http_answer a =
            http_do(f->http, "POST", "/v1/tokens", bearer(admin),
                    fmt("{\"name\":\"of-%s\",\"role\":\"%s\"%s}", t->what, role, more));
        assert_int_equal(a.status, 201);
        between(str_c(&a.body), "\"secret\":\"", "\"", t->text, sizeof(t->text));
        http_answer_fini(&a);
}

static void restart_with_tokens(struct fixture *f, struct shown_token t[static N_TOKENS])
{
        struct str first = STR_INIT;
        char admin[160];
        server_end(f);
        f->opt.auth = true;
        f->opt.max_refusals = 1000000;
        server_begin(f);
        assert_int_equal(
            file_read(fmt("%s/" ADMIN_TOKEN_FILE, f->opt.data_dir), 4096, &first, NULL), 0);
        snprintf(admin, sizeof(admin), "%.*s", (int)strcspn(str_c(&first), "\n"), str_c(&first));
        str_fini(&first);
        t[0] = (struct shown_token){ NOBODY, "nobody", "" };
        t[1] = (struct shown_token){ BAD_TOKEN, "unknown", "berth_" };
        memset(t[1].text + 6, 'x', 43);
        t[2] = (struct shown_token){ BAD_TOKEN, "revoked", "" };
        t[3] = (struct shown_token){ BAD_TOKEN, "expired", "" };
        t[4] = (struct shown_token){ VIEWER, "viewer", "" };
        t[5] = (struct shown_token){ OPERATOR, "operator", "" };
        t[6] = (struct shown_token){ ADMIN, "admin", "" };
        t[7] = (struct shown_token){ NODE, "node", "" };
        t[8] = (struct shown_token){ NODE, "node-x", "" };
        snprintf(t[6].text, sizeof(t[6].text), "%s", admin);
        create(f, admin, &t[2], "admin", "");
        create(f, admin, &t[3], "admin", ",\"ttl_seconds\":1");
        create(f, admin, &t[4], "viewer", "");
        create(f, admin, &t[5], "operator", "");
        create(f, admin, &t[7], "node", "");
        create(f, admin, &t[8], "node", ",\"node_id\":\"x\"");
        struct http_answer a =
            http_do(f->http, "DELETE", "/v1/tokens/of-revoked", bearer(admin), "");
        assert_int_equal(a.status, 200);
        http_answer_fini(&a);
        for (int i = 0; i < 600; i++) { /* until its second is over */
                a = http_do(f->http, "GET", "/v1/nodes", bearer(t[3].text), "");
                int status = a.status;
                http_answer_fini(&a);
                if (status == 401)
                        return;
                usleep(50000);
        }
        fail_msg("a token of one second still works");
}

/* "/v1/nodes/{id}/drain" -> "/v1/nodes/x/drain" */
static const char *path_of(const char *pattern)
{
        struct str out = STR_INIT;
        for (const char *p = pattern; *p; p++) {
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

static int http_status(struct fixture *f, const char *method, const char *path, const char *headers)
{
        if (strstr(path, "/events/stream")) { /* would not end */
                struct str text = STR_INIT;
                int fd = http_open(f->http, path, headers), status = 0;
                assert_true(http_read_until(fd, &text, "\r\n", 20000));
                sscanf(str_c(&text), "HTTP/1.1 %d", &status);
                str_fini(&text);
                close(fd);
                return status;
        }
        struct http_answer a = http_do(f->http, method, path, headers, "");
        int status = a.status;
        http_answer_fini(&a);
        return status;
}

static void try_http(struct fixture *f, const struct op *op, const char *pattern,
                     const struct shown_token *t)
{
        int status = http_status(f, op->method, path_of(pattern), bearer(t->text)),
            want = expected(op->name, t->who);
        bool refused = status == 401 || status == 403;
        if (want ? status != want : refused || status == 429 || status == 0)
                fail_msg("%s %s as %s: %d", op->method, pattern, t->what, status);
}

/* R: C32 */
static void every_route_takes_its_roles_and_no_others(void **state)
{
        struct fixture *f = *state;
        struct shown_token t[N_TOKENS];
        restart_with_tokens(f, t);
        for (size_t i = 0; i < n_ops; i++)
                for (int who = 0; ops[i].path && who < N_TOKENS; who++) {
                        try_http(f, &ops[i], ops[i].path, &t[who]);
                        const char *second = op_second_path(&ops[i]);
                        if (second) {
                                char copy[200];
                                snprintf(copy, sizeof(copy), "%s", second);
                                try_http(f, &ops[i], copy, &t[who]);
                        }
                }
}

static bool goes_on(const struct op *op)
{
        return op->kind == OP_WATCH || op->kind == OP_AGENT || op->kind == OP_REFLECTION;
}

static void try_grpc(struct fixture *f, const struct op *op, const struct grpc_channel_options *o,
                     const struct grpc_metadata *metadata, enum shown who, const char *what)
{
        struct grpc_reply r = { 0 };
        struct err err = { 0 };
        int want = expected(op->name, who);
        /* a stream that was opened says nothing */
        int64_t deadline_ms = !want && goes_on(op) ? 300 : 20000;
        if (grpc_call_sync(f->grpc, o, metadata, op->rpc, "", 0, deadline_ms, &r, &err) < 0)
                fail_msg("%s: %s", op->rpc, err_line(&err));
        bool refused = r.status == GRPC_UNAUTHENTICATED || r.status == GRPC_PERMISSION_DENIED;
        enum grpc_status status = want == 401 ? GRPC_UNAUTHENTICATED : GRPC_PERMISSION_DENIED;
        if (want ? r.status != status : refused || r.status == GRPC_UNAVAILABLE)
                fail_msg("%s as %s: %s %s", op->rpc, what, grpc_status_name(r.status), r.message);
        grpc_reply_fini(&r);
}

/* R: C32 */
static void every_method_takes_its_roles_and_no_others(void **state)
{
        struct fixture *f = *state;
        struct shown_token t[N_TOKENS];
        restart_with_tokens(f, t);
        for (size_t i = 0; i < n_ops; i++)
                for (int who = 0; ops[i].rpc && who < N_TOKENS; who++) {
                        struct grpc_channel_options o = { .token = t[who].text };
                        try_grpc(f, &ops[i], &o, NULL, t[who].who, t[who].what);
                }
}

static void join_token(struct fixture *f, struct tls *tls, char *ret, size_t size)
{
        Pb__CreateTokenRequest q = PB__CREATE_TOKEN_REQUEST__INIT;
        q.name = (char *)"of-join";
        q.role = PB__ROLE__E__join;
        struct arena arena = ARENA_INIT;
        struct str admin = STR_INIT, packed = STR_INIT;
        struct grpc_reply r = { 0 };
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        assert_int_equal(
            file_read(fmt("%s/" ADMIN_TOKEN_FILE, f->opt.data_dir), 4096, &admin, NULL), 0);
        pb_pack(&packed, &q.base);
        const char *token = fmt("%.*s", (int)strcspn(str_c(&admin), "\n"), str_c(&admin));
        struct grpc_channel_options o = { .tls = tls, .token = token };
        assert_int_equal(grpc_call_sync(f->grpc, &o, NULL, "/berth.v1.Control/CreateToken",
                                        packed.buf, packed.len, 20000, &r, &err),
                         0);
        if (r.status != GRPC_OK)
                fail_msg("%s", r.message);
        assert_int_equal(pb_unpack(&pb__create_token_response__descriptor, r.data.buf, r.data.len,
                                   &arena, &m, &err),
                         0);
        snprintf(ret, size, "%s", ((Pb__CreateTokenResponse *)m)->secret);
        grpc_reply_fini(&r);
        str_fini(&admin);
        str_fini(&packed);
        arena_fini(&arena);
}

/* A join token opens one door only, and there in the message: anywhere else it is no token at all.
 * R: C32 */
static void a_join_token_is_no_token(void **state)
{
        struct fixture *f = *state;
        struct pki pki = { 0 };
        struct tls *tls = NULL;
        struct err err = { 0 };
        char secret[200];
        pki_restart(f, &pki, true);
        server_end(f);
        assert_true(file_write_atomic(fmt("%s/ca-key.pem", f->dir), pki.pair.key.buf,
                                      pki.pair.key.len, 0600, &err) >= 0);
        f->opt.ca_dir = f->dir;
        f->opt.auth = true;
        f->opt.max_refusals = 1000000;
        server_begin(f);
        assert_int_equal(tls_client_create(&(struct tls_options){ .ca_file = pki.ca }, &tls, &err),
                         0);
        join_token(f, tls, secret, sizeof(secret));
        assert_true(str_starts(secret, JOIN_PREFIX));
        for (size_t i = 0; i < n_ops; i++) {
                struct grpc_channel_options o = { .tls = tls, .token = secret };
                if (ops[i].rpc)
                        try_grpc(f, &ops[i], &o, NULL, BAD_TOKEN, "a join token");
        }
        tls_unref(tls);
        tls_pair_fini(&pki.pair);
}

/* ---- certificates ---- */

/* R: C32 A13 */
static void every_method_takes_certificates_by_their_names(void **state)
{
        static const struct {
                enum shown who;
                const char *what, *uri, *role;
        } certs[] = {
                { VIEWER, "vic", "spiffe://berth/user/vic", NULL },
                /* its own word does not count */
                { VIEWER, "val", "spiffe://berth/user/val spiffe://berth/role/viewer", "admin" },
                { OPERATOR, "ola", "spiffe://berth/user/ola spiffe://berth/role/operator", NULL },
                { ADMIN, "ada", "spiffe://berth/user/ada spiffe://berth/role/admin", NULL },
                { NODE, "n1", "spiffe://berth/node/n1", "admin" },
                { NODE, "plain", NULL, NULL },
                { SERVER, "s2", "spiffe://berth/server/s2", NULL },
                /* what it passes on is its caller's */
                { VIEWER, "s3", "spiffe://berth/server/s3", "viewer" },
                { OPERATOR, "s4", "spiffe://berth/server/s4", "operator" },
                /* nobody passes on an agent */
                { SERVER, "s5", "spiffe://berth/server/s5", "node" },
        };
        struct fixture *f = *state;
        struct pki pki = { 0 };
        f->opt.auth = true;
        f->opt.max_refusals = 1000000;
        pki_restart(f, &pki, true);
        for (size_t c = 0; c < ARRAY_LEN(certs); c++) {
                struct tls *tls = pki_client(&pki, f, certs[c].what, certs[c].uri, NULL);
                struct grpc_metadata says[] = { GRPC_META_END, GRPC_META_END };
                if (certs[c].role)
                        says[0] = GRPC_META("x-berth-role", certs[c].role, strlen(certs[c].role));
                struct grpc_channel_options o = { .tls = tls };
                for (size_t i = 0; i < n_ops; i++)
                        if (ops[i].rpc)
                                try_grpc(f, &ops[i], &o, says, certs[c].who, certs[c].what);
                tls_unref(tls);
        }
        tls_pair_fini(&pki.pair);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_page_shows_the_matrix),
                cmocka_unit_test(every_row_says_who_may),
                cmocka_unit_test_setup_teardown(every_route_takes_its_roles_and_no_others,
                                                server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(every_method_takes_its_roles_and_no_others,
                                                server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(a_join_token_is_no_token, server_setup,
                                                server_teardown),
                cmocka_unit_test_setup_teardown(every_method_takes_certificates_by_their_names,
                                                server_setup, server_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
