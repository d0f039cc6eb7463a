/* server/identity_test.c: with client certificates, an agent is the node that its certificate
 * names, and no other. */
#include "base/file.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "net/tls.h"
#include "persys_control.pb-c.h"
#include "server/testkit.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect_welcome(struct fixture *f, struct tls *tls, const char *node)
{
        struct agent *a = agent_connect_tls(f->grpc, tls);
        agent_hello(a, node);
        const Pb__ServerMessage *m = agent_wait(a, is_welcome, 20000);
        assert_non_null(m);
        assert_true(m->welcome->accepted);
        agent_close(a);
}

static void expect_refusal(struct fixture *f, struct tls *tls, const char *node)
{
        int status = -1;
        struct agent *a = agent_connect_tls(f->grpc, tls);
        agent_hello(a, node);
        assert_true(agent_is_closed(a, 20000, &status));
        assert_int_equal(status, GRPC_PERMISSION_DENIED);
        agent_close(a);
}

/* R: C32 */
static void an_agent_is_the_node_of_its_certificate(void **state)
{
        struct fixture *f = *state;
        struct pki pki = { 0 };
        pki_restart(f, &pki, true);
        struct tls *n1 = pki_client(&pki, f, "n1", "spiffe://berth/node/n1", "n3"),
                   *n2 = pki_client(&pki, f, "n2", NULL, "n2");
        struct tls *user = pki_client(&pki, f, "ann", "spiffe://berth/user/n1", NULL);
        expect_welcome(f, n1, "n1");
        expect_refusal(f, n1, "n2");
        expect_refusal(f, n1, "n3"); /* where it can be reached is not who it is */
        expect_welcome(f, n2, "n2");
        expect_refusal(f, n2, "n1");
        expect_refusal(f, user, "n1");
        tls_unref(n1);
        tls_unref(n2);
        tls_unref(user);
        tls_pair_fini(&pki.pair);
}

static struct grpc_reply call(struct fixture *f, struct tls *tls, const char *method,
                              const ProtobufCMessage *m)
{
        struct grpc_reply reply = { 0 };
        struct grpc_channel_options co = { .tls = tls };
        struct str req = STR_INIT;
        struct err err = { 0 };
        pb_pack(&req, m);
        if (grpc_call_sync(f->grpc, &co, NULL, fmt("/persys.control.v1.AgentControl/%s", method),
                           req.buf, req.len, 20000, &reply, &err) < 0)
                fail_msg("%s", err_line(&err));
        str_fini(&req);
        return reply;
}

/* R: C32 */
static void a_foreign_agent_is_the_node_of_its_certificate_in_every_call(void **state)
{
        struct fixture *f = *state;
        struct pki pki = { 0 };
        pki_restart(f, &pki, true);
        struct tls *n1 = pki_client(&pki, f, "n1", "spiffe://berth/node/n1", NULL);
        Pc__RegisterNodeRequest reg = PC__REGISTER_NODE_REQUEST__INIT;
        Pc__NodeCapabilities caps = PC__NODE_CAPABILITIES__INIT;
        Pc__HeartbeatRequest beat = PC__HEARTBEAT_REQUEST__INIT;
        caps.cpu_total_millicores = 1000;
        caps.memory_total_mb = 1024;
        reg.capabilities = &caps;
        reg.grpc_endpoint = (char *)"127.0.0.1:1";
        reg.node_id = (char *)"n2";
        struct grpc_reply r = call(f, n1, "RegisterNode", &reg.base);
        assert_int_equal(r.status, GRPC_PERMISSION_DENIED);
        assert_non_null(strstr(r.message, "the certificate is that of node n1, not of node n2"));
        grpc_reply_fini(&r);
        beat.node_id = (char *)"n2";
        r = call(f, n1, "Heartbeat", &beat.base);
        assert_int_equal(r.status, GRPC_PERMISSION_DENIED);
        grpc_reply_fini(&r);
        beat.node_id = reg.node_id = (char *)"n1";
        r = call(f, n1, "Heartbeat", &beat.base);
        assert_int_equal(r.status, GRPC_NOT_FOUND); /* let in, and not registered */
        grpc_reply_fini(&r);
        r = call(f, n1, "RegisterNode", &reg.base);
        assert_int_equal(r.status, GRPC_OK);
        grpc_reply_fini(&r);
        tls_unref(n1);
        tls_pair_fini(&pki.pair);
}

/* R: C32 */
static void without_client_certificates_nothing_is_asked(void **state)
{
        struct fixture *f = *state;
        struct pki pki = { 0 };
        pki_restart(f, &pki, false);
        struct tls *n1 = pki_client(&pki, f, "n1", "spiffe://berth/node/n1", NULL);
        expect_welcome(f, n1, "n2");
        tls_unref(n1);
        tls_pair_fini(&pki.pair);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, server_setup, server_teardown)
        const struct CMUnitTest tests[] = {
                T(an_agent_is_the_node_of_its_certificate),
                T(a_foreign_agent_is_the_node_of_its_certificate_in_every_call),
                T(without_client_certificates_nothing_is_asked),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
