/* Tests of net/tls.h: certificates, mutual TLS over gRPC, rotation under a running stream, HTTP
 * over TLS. */
#include "net/grpc_internal.h"
#include "net/test_rig.h"
#include <openssl/core_names.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

struct rig {
        char dir[64];
        struct tls_pair ca, evil;
        struct event_base *base;
        struct tls *server_tls;
        struct grpc_server *server;
        struct test_service service;
        char target[32];
};

static char *in_dir(const struct rig *r, const char *name)
{
        static char paths[8][128];
        static unsigned at;
        char *p = paths[at++ % 8];
        snprintf(p, 128, "%s/%s", r->dir, name);
        return p;
}

static void save(const struct rig *r, const char *name, const struct str *text)
{
        struct err err;
        if (file_write_atomic(in_dir(r, name), text->buf, text->len, 0600, &err) < 0)
                fail_msg("%s", err_line(&err));
}

/* Issues NAME.crt and NAME.key. valid_ms: 0 is a day. */
static void issue_for(const struct rig *r, const struct tls_pair *ca, const char *name,
                      const char *cn, const char *uri, int64_t valid_ms)
{
        struct tls_pair pair;
        struct err err;
        struct tls_issue_options o = { .cn = cn,
                                       .dns = (const char *const[]){ "localhost", NULL },
                                       .ips = (const char *const[]){ "127.0.0.1", "::1", NULL },
                                       .uris = (const char *const[]){ uri, NULL },
                                       .valid_ms = valid_ms };
        if (tls_issue(ca, &o, &pair, &err) < 0)
                fail_msg("%s", err_line(&err));
        save(r, fmt("%s.crt", name), &pair.cert);
        save(r, fmt("%s.key", name), &pair.key);
        tls_pair_fini(&pair);
}

static void issue(const struct rig *r, const struct tls_pair *ca, const char *name, const char *cn,
                  const char *uri)
{
        issue_for(r, ca, name, cn, uri, 0);
}

static void rig_start(struct rig *r, enum tls_peer peer)
{
        struct err err;
        const char *tmp = getenv("TMPDIR");

        *r = (struct rig){ .base = event_base_new() };
        snprintf(r->dir, sizeof(r->dir), "%.40s/berth-tls-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(r->dir));
        assert_int_equal(
            tls_make_ca(&(struct tls_issue_options){ .cn = "berth test CA" }, &r->ca, &err), 0);
        assert_int_equal(
            tls_make_ca(&(struct tls_issue_options){ .cn = "foreign CA" }, &r->evil, &err), 0);
        save(r, "ca.crt", &r->ca.cert);
        save(r, "evil-ca.crt", &r->evil.cert);
        issue(r, &r->ca, "server", "server-1", "spiffe://berth/server");
        issue(r, &r->ca, "client", "node-1", "spiffe://berth/node/n1");
        issue(r, &r->evil, "evil", "node-1", "spiffe://berth/node/n1");
        struct tls_options o = { .cert_file = in_dir(r, "server.crt"),
                                 .key_file = in_dir(r, "server.key"),
                                 .ca_file = in_dir(r, "ca.crt"),
                                 .peer = peer };
        if (tls_server_create(&o, &r->server_tls, &err) < 0 ||
            grpc_server_create(
                r->base,
                &(struct grpc_server_options){ .address = "127.0.0.1:0", .tls = r->server_tls },
                &r->server, &err) < 0 ||
            test_service_add(r->server, &r->service, &err) < 0)
                fail_msg("%s", err_line(&err));
        snprintf(r->target, sizeof(r->target), "127.0.0.1:%u", grpc_server_port(r->server));
}

static void rig_stop(struct rig *r)
{
        grpc_server_destroy(r->server);
        tls_unref(r->server_tls);
        tls_pair_fini(&r->ca);
        tls_pair_fini(&r->evil);
        event_base_free(r->base);
        dir_remove(r->dir, NULL);
}

/* cert NULL: no certificate; ca: the file that the client trusts. */
static struct grpc_channel *connect_as(struct rig *r, const char *cert, const char *ca,
                                       const char *server_name)
{
        struct tls *tls = NULL;
        struct grpc_channel *ch = NULL;
        struct err err;
        struct tls_options o = { .ca_file = in_dir(r, ca) };

        if (cert) {
                o.cert_file = in_dir(r, fmt("%s.crt", cert));
                o.key_file = in_dir(r, fmt("%s.key", cert));
        }
        struct grpc_channel_options co = { .server_name = server_name,
                                           .backoff_min_ms = 5,
                                           .backoff_max_ms = 50 };
        if (tls_client_create(&o, &tls, &err) < 0)
                fail_msg("%s", err_line(&err));
        co.tls = tls;
        if (grpc_channel_create(r->base, r->target, &co, &ch, &err) < 0)
                fail_msg("%s", err_line(&err));
        tls_unref(tls); /* the channel holds its own */
        return ch;
}

static enum grpc_status try_as(struct rig *r, const char *cert, const char *ca,
                               const char *server_name, char *ret_message, size_t size)
{
        struct probe p = { 0 };
        struct grpc_channel *ch = connect_as(r, cert, ca, server_name);

        probe_unary(&p, ch, SERVICE "Echo", "x", NULL);
        UNTIL(r->base, p.closed);
        enum grpc_status status = p.status;
        if (ret_message)
                snprintf(ret_message, size, "%s", p.message);
        probe_fini(&p);
        grpc_channel_destroy(ch);
        return status;
}

/* R: C32 */
static void mutual_tls_shows_who_the_client_is(void **state)
{
        struct rig r;
        (void)state;

        rig_start(&r, TLS_PEER_REQUIRED);
        assert_int_equal(try_as(&r, "client", "ca.crt", NULL, NULL, 0), GRPC_OK);
        assert_string_equal(r.service.seen_cn, "node-1");
        assert_string_equal(r.service.seen_uri, "spiffe://berth/node/n1");
        rig_stop(&r);
}

/* R: C32 */
static void strangers_are_refused(void **state)
{
        struct rig r;
        char why[512];
        (void)state;

        rig_start(&r, TLS_PEER_REQUIRED);
        /* foreign CA */
        assert_int_equal(try_as(&r, "evil", "ca.crt", NULL, NULL, 0), GRPC_UNAVAILABLE);
        /* no certificate */
        assert_int_equal(try_as(&r, NULL, "ca.crt", NULL, NULL, 0), GRPC_UNAVAILABLE);
        /* we do not trust the server */
        assert_int_equal(try_as(&r, "client", "evil-ca.crt", NULL, why, sizeof(why)),
                         GRPC_UNAVAILABLE);
        assert_non_null(strstr(why, "TLS handshake failed"));
        /* another name */
        assert_int_equal(try_as(&r, "client", "ca.crt", "other.example", why, sizeof(why)),
                         GRPC_UNAVAILABLE);
        assert_non_null(strstr(why, "ostname mismatch"));
        assert_int_equal(try_as(&r, "client", "ca.crt", "localhost", NULL, 0), GRPC_OK);
        assert_int_equal(r.service.started, 1);
        /* in the clear */
        struct grpc_channel *plain = NULL;
        struct probe p = { 0 };
        struct err err;
        assert_int_equal(grpc_channel_create(r.base, r.target, NULL, &plain, &err), 0);
        probe_unary(&p, plain, SERVICE "Echo", "x", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        probe_fini(&p);
        grpc_channel_destroy(plain);
        rig_stop(&r);
}

/* R: C32 */
static void refusals_are_counted_by_their_reason(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        struct grpc_channel *plain = NULL;
        struct err err;
        uint64_t want[_TLS_REFUSED_MAX] = { [TLS_REFUSED_NO_CERTIFICATE] = 1,
                                            [TLS_REFUSED_UNKNOWN_CA] = 1,
                                            [TLS_REFUSED_EXPIRED] = 1,
                                            [TLS_REFUSED_PROTOCOL] = 1 };
        (void)state;

        rig_start(&r, TLS_PEER_REQUIRED);
        issue_for(&r, &r.ca, "late", "node-1", "spiffe://berth/node/n1", -60 * 1000);
        assert_int_equal(try_as(&r, "client", "ca.crt", NULL, NULL, 0), GRPC_OK);
        assert_int_equal(try_as(&r, NULL, "ca.crt", NULL, NULL, 0), GRPC_UNAVAILABLE);
        assert_int_equal(try_as(&r, "evil", "ca.crt", NULL, NULL, 0), GRPC_UNAVAILABLE);
        assert_int_equal(try_as(&r, "late", "ca.crt", NULL, NULL, 0), GRPC_UNAVAILABLE);
        assert_int_equal(try_as(&r, "client", "evil-ca.crt", NULL, NULL, 0),
                         GRPC_UNAVAILABLE); /* it is the client that refuses: not counted */
        assert_int_equal(grpc_channel_create(r.base, r.target, NULL, &plain, &err), 0);
        probe_unary(&p, plain, SERVICE "Echo", "x", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        grpc_channel_destroy(plain);
        probe_fini(&p);
        for (enum tls_refusal i = 0; i < _TLS_REFUSED_MAX; i++)
                if (tls_refused(r.server_tls, i) != want[i])
                        fail_msg("%s: %d, not %d", tls_refusal_name(i),
                                 (int)tls_refused(r.server_tls, i), (int)want[i]);
        rig_stop(&r);
}

/* R: C32 */
static void a_certificate_is_that_of_one_node(void **state)
{
        char *node[] = { (char *)"spiffe://berth/node/n1", NULL },
             *user[] = { (char *)"spiffe://berth/user/n1", NULL };
        char *other[] = { (char *)"spiffe://elsewhere/node/n1", NULL },
             *longer[] = { (char *)"spiffe://berth/node/n1/x", NULL };
        char *dns[] = { (char *)"n1", (char *)"n1.example", NULL };
        struct tls_identity by_uri = {
                .cn = (char *)"n9", .uris = node, .n_uris = 1, .dns = dns, .n_dns = 2
        };
        struct tls_identity as_user = {
                .cn = (char *)"n1", .uris = user, .n_uris = 1, .dns = dns, .n_dns = 2
        };
        struct tls_identity by_dns = {
                .cn = (char *)"n9", .uris = other, .n_uris = 1, .dns = dns, .n_dns = 2
        };
        struct tls_identity by_cn = { .cn = (char *)"n1" };
        (void)state;

        assert_true(tls_identity_is_node(&by_uri, "n1"));
        /* it names a node: its DNS names are only addresses */
        assert_false(tls_identity_is_node(&by_uri, "n1.example"));
        assert_false(tls_identity_is_node(&by_uri, "n9"));
        assert_false(tls_identity_is_node(&by_uri, ""));
        assert_false(tls_identity_is_node(NULL, "n1"));
        /* a user is no node, whatever it is called */
        assert_false(tls_identity_is_node(&as_user, "n1"));
        assert_true(tls_identity_is_node(&by_dns, "n1.example"));
        assert_false(tls_identity_is_node(&by_dns, "n2"));
        assert_false(tls_identity_is_node(&by_cn, "n1")); /* common names are for people */
        by_uri.uris = longer;
        by_uri.n_dns = 0;
        assert_false(tls_identity_is_node(&by_uri, "n1"));
        assert_string_equal(tls_identity_words(&as_user), "user n1");
        assert_string_equal(tls_identity_actor(&as_user), "n1");
        assert_string_equal(tls_identity_actor(&by_cn), "n1");
        assert_string_equal(tls_identity_actor(&by_dns), "n9");
        by_uri.uris = node;
        /* a node that is called like a user is not that user */
        assert_string_equal(tls_identity_actor(&by_uri), "node:n1");
        char *server[] = { (char *)"spiffe://berth/server/s1", NULL };
        struct tls_identity as_server = { .uris = server, .n_uris = 1 };
        assert_true(tls_identity_is_server(&as_server));
        assert_true(tls_identity_is_server(&by_cn));
        assert_false(tls_identity_is_server(&by_uri));
        assert_false(tls_identity_is_server(&as_user));
        assert_false(tls_identity_is_server(NULL));
        assert_string_equal(tls_identity_words(&by_cn), "\"n1\"");
}

/* R: C32 */
static void a_certificate_says_what_it_was_made_with(void **state)
{
        static const char *const dns[] = { "a.example", NULL }, *const ips[] = { "10.0.0.7", "::1",
                                                                                 NULL };
        static const char *const uris[] = { "spiffe://berth/node/n1", NULL };
        struct tls_issue_options o = { .cn = "n1",
                                       .dns = dns,
                                       .ips = ips,
                                       .uris = uris,
                                       .valid_ms = 3600 * 1000,
                                       .is_client = true };
        struct tls_pair ca, other, leaf, again;
        struct tls_cert c, d;
        struct err err;
        (void)state;

        assert_int_equal(tls_make_ca(&(struct tls_issue_options){ .cn = "ca" }, &ca, &err), 0);
        assert_int_equal(tls_make_ca(&(struct tls_issue_options){ .cn = "ca" }, &other, &err), 0);
        assert_int_equal(tls_issue(&ca, &o, &leaf, &err), 0);
        assert_int_equal(tls_cert_read(str_c(&leaf.cert), leaf.cert.len, &c, &err), 0);
        assert_string_equal(c.cn, "n1");
        assert_string_equal(c.issuer, "ca");
        assert_string_equal(c.dns[0], "a.example");
        assert_string_equal(c.ips[0], "10.0.0.7");
        assert_string_equal(c.ips[1], "::1");
        assert_null(c.ips[2]);
        assert_string_equal(c.uris[0], "spiffe://berth/node/n1");
        assert_true(c.is_client && !c.is_server && !c.is_ca);
        assert_in_range(c.expires_at_ms - clock_wall_ms(), 3500 * 1000, 3600 * 1000);
        assert_int_equal(strlen(c.fingerprint), 7 + 64);
        assert_int_equal(tls_cert_check_signed(&leaf.cert, &ca.cert, &err), 0);
        assert_int_equal(tls_cert_check_signed(&leaf.cert, &other.cert, &err), -ERR_DENIED);

        /* again, from what it says and with the key that it has */
        struct tls_issue_options same = { .cn = c.cn,
                                          .dns = (const char *const *)c.dns,
                                          .ips = (const char *const *)c.ips,
                                          .uris = (const char *const *)c.uris,
                                          .is_client = true,
                                          .key = &leaf.key };
        assert_int_equal(tls_issue(&ca, &same, &again, &err), 0);
        assert_string_equal(str_c(&again.key), str_c(&leaf.key));
        assert_int_equal(tls_cert_read(str_c(&again.cert), again.cert.len, &d, &err), 0);
        assert_string_equal(d.ips[1], "::1");
        assert_string_not_equal(d.serial, c.serial);
        assert_true(d.expires_at_ms > c.expires_at_ms);
        assert_true(tls_cert_read("nothing", 7, &d, &err) < 0);
        tls_cert_fini(&c);
        tls_cert_fini(&d);
        tls_pair_fini(&ca);
        tls_pair_fini(&other);
        tls_pair_fini(&leaf);
        tls_pair_fini(&again);
}

static void optional_certificates_are_optional_but_checked(void **state)
{
        struct rig r;
        (void)state;

        rig_start(&r, TLS_PEER_OPTIONAL);
        assert_int_equal(try_as(&r, NULL, "ca.crt", NULL, NULL, 0), GRPC_OK);
        assert_string_equal(r.service.seen_uri, "");
        assert_int_equal(try_as(&r, "client", "ca.crt", NULL, NULL, 0), GRPC_OK);
        assert_string_equal(r.service.seen_uri, "spiffe://berth/node/n1");
        assert_int_equal(try_as(&r, "evil", "ca.crt", NULL, NULL, 0), GRPC_UNAVAILABLE);
        rig_stop(&r);
}

/* The CN of the certificate that the server shows to a new connection. */
static const char *connected_cn(struct rig *r)
{
        static char cn[64];
        struct probe p = { 0 };
        struct grpc_channel *ch = connect_as(r, "client", "ca.crt", NULL);

        probe_call(&p, ch, SERVICE "Chat", NULL);
        grpc_call_send(p.call, "x", 1);
        UNTIL(r->base, p.n == 1 || p.closed);
        const struct tls_identity *id = p.call ? grpc_call_identity(p.call) : NULL;
        snprintf(cn, sizeof(cn), "%s", id && id->cn ? id->cn : "");
        grpc_channel_destroy(ch);
        probe_fini(&p);
        return cn;
}

/* R: C32 */
static void rotation_leaves_running_streams_alone(void **state)
{
        struct rig r;
        struct probe chat = { 0 };
        struct err err;
        (void)state;

        rig_start(&r, TLS_PEER_REQUIRED);
        struct grpc_channel *old = connect_as(&r, "client", "ca.crt", NULL);
        probe_call(&chat, old, SERVICE "Chat", NULL);
        grpc_call_send(chat.call, "before", 6);
        UNTIL(r.base, chat.n == 1);
        assert_string_equal(connected_cn(&r), "server-1");

        issue(&r, &r.ca, "server", "server-2", "spiffe://berth/server");
        assert_string_equal(connected_cn(&r), "server-1"); /* not before the reload */
        assert_int_equal(tls_reload(r.server_tls, &err), 0);
        assert_int_equal(tls_generation(r.server_tls), 2);
        assert_string_equal(connected_cn(&r), "server-2");

        /* whoever only looks whether there is something new */
        assert_int_equal(tls_reload_if_changed(r.server_tls, &err), 0);
        issue(&r, &r.ca, "server", "server-2", "spiffe://berth/server");
        assert_int_equal(tls_reload_if_changed(r.server_tls, &err), 1);
        assert_int_equal(tls_reload_if_changed(r.server_tls, &err), 0);
        assert_int_equal(tls_generation(r.server_tls), 3);

        /* a key that does not fit: refused, the old pair stays */
        issue(&r, &r.ca, "other", "server-3", "spiffe://berth/server");
        assert_int_equal(rename(in_dir(&r, "other.crt"), in_dir(&r, "server.crt")), 0);
        assert_int_equal(tls_reload(r.server_tls, &err), -ERR_INVALID);
        assert_true(err.msg[0] && err.hint[0]);
        assert_int_equal(tls_generation(r.server_tls), 3);
        assert_string_equal(connected_cn(&r), "server-2");
        assert_int_equal(unlink(in_dir(&r, "server.crt")), 0);
        assert_true(tls_reload(r.server_tls, &err) < 0);
        assert_string_equal(connected_cn(&r), "server-2");

        grpc_call_send(chat.call, "after", 5);
        UNTIL(r.base, chat.n == 2);
        grpc_call_half_close(chat.call);
        UNTIL(r.base, chat.closed);
        assert_int_equal(chat.status, GRPC_OK);
        probe_fini(&chat);
        grpc_channel_destroy(old);
        rig_stop(&r);
}

static void much_data_passes_through_tls(void **state)
{
        struct rig r;
        struct probe p = { 0 }, q = { 0 };
        char *big = mem_must(4 * 1024 * 1024 + 1);
        (void)state;

        rig_start(&r, TLS_PEER_REQUIRED);
        struct grpc_channel *ch = connect_as(&r, "client", "ca.crt", NULL);
        memset(big, 'x', 4 * 1024 * 1024);
        probe_unary(&p, ch, SERVICE "Echo", big, NULL);
        probe_unary(&q, ch, SERVICE "Count", "20000 300", NULL);
        UNTIL(r.base, p.closed && q.closed);
        assert_int_equal(p.status, GRPC_OK);
        assert_int_equal(p.bytes, 4 * 1024 * 1024);
        assert_int_equal(q.status, GRPC_OK);
        assert_int_equal(q.n, 20000);
        mem_free(big);
        probe_fini(&p);
        probe_fini(&q);
        grpc_channel_destroy(ch);
        rig_stop(&r);
}

static void bad_options_are_refused_with_a_reason(void **state)
{
        struct rig r;
        struct tls *tls = NULL;
        struct err err;
        (void)state;

        rig_start(&r, TLS_PEER_REQUIRED);
        assert_true(tls_server_create(&(struct tls_options){ 0 }, &tls, &err) < 0);
        assert_true(tls_server_create(&(struct tls_options){ .cert_file = in_dir(&r, "server.crt"),
                                                             .key_file = in_dir(&r, "server.key"),
                                                             .peer = TLS_PEER_REQUIRED },
                                      &tls, &err) < 0);
        assert_true(
            tls_server_create(&(struct tls_options){ .cert_file = in_dir(&r, "nothing.crt") }, &tls,
                              &err) < 0);
        assert_non_null(strstr(err.detail, "nothing.crt"));
        assert_true(tls_server_create(&(struct tls_options){ .cert_file = in_dir(&r, "server.crt"),
                                                             .key_file = in_dir(&r, "client.key") },
                                      &tls, &err) < 0);
        assert_true(tls_client_create(&(struct tls_options){ .ca_file = in_dir(&r, "server.key") },
                                      &tls, &err) < 0);
        assert_null(tls);
        int64_t left_ms = tls_expires_at_ms(r.server_tls) - clock_wall_ms();
        assert_in_range(left_ms, 23 * 3600 * 1000, 25 * 3600 * 1000);
        assert_true(tls_trust_expires_at_ms(r.server_tls) - clock_wall_ms() >
                    INT64_C(3649) * 24 * 3600 * 1000);
        assert_false(tls_is_due(r.server_tls, clock_wall_ms()));
        assert_true(tls_is_due(r.server_tls, tls_expires_at_ms(r.server_tls) - 7 * 3600 * 1000));
        rig_stop(&r);
}

static void certificates_verify_as_they_should(void **state)
{
        struct tls_pair ca, leaf;
        struct err err;
        (void)state;

        assert_int_equal(tls_make_ca(&(struct tls_issue_options){ .cn = "ca" }, &ca, &err), 0);
        struct tls_issue_options o = { .cn = "x",
                                       .dns = (const char *const[]){ "a.example", NULL },
                                       .uris =
                                           (const char *const[]){ "spiffe://b/n,DNS:evil", NULL },
                                       .is_client = true };
        assert_int_equal(tls_issue(&ca, &o, &leaf, &err), 0);
        BIO *bio = BIO_new_mem_buf(leaf.cert.buf, (int)leaf.cert.len);
        X509 *x = PEM_read_bio_X509(bio, NULL, NULL, NULL);
        assert_int_equal(X509_check_host(x, "a.example", 0, 0, NULL), 1);
        assert_int_equal(X509_check_host(x, "evil", 0, 0, NULL), 0);
        assert_true(X509_get_extended_key_usage(x) == XKU_SSL_CLIENT);
        assert_int_equal(X509_check_ca(x), 0);
        X509_free(x);
        BIO_free(bio);
        assert_true(
            tls_issue(&leaf,
                      &(struct tls_issue_options){
                          .cn = "y", .ips = (const char *const[]){ "not an address", NULL } },
                      &ca, &err) < 0);
        tls_pair_fini(&leaf);
        tls_pair_fini(&ca);
}

static int count_certs(void *ctx, const struct str *cert, const struct tls_cert *facts)
{
        assert_non_null(strstr(str_c(cert), "BEGIN CERTIFICATE"));
        assert_null(strstr(str_c(cert), "PRIVATE"));
        assert_true(facts->is_ca);
        ++*(int *)ctx;
        return 0;
}

/* A node that is called could name the address of another one. R: C32 C39 */
static void a_node_is_not_taken_for_another(void **state)
{
        static const struct {
                const char *wanted;
                enum grpc_status status;
        } cases[] = { { "n2", GRPC_OK }, { NULL, GRPC_OK }, { "n1", GRPC_UNAVAILABLE } };
        struct rig r;
        struct err err;
        (void)state;

        rig_start(&r, TLS_PEER_NONE);
        issue(&r, &r.ca, "server", "n2", "spiffe://berth/node/n2");
        assert_int_equal(tls_reload(r.server_tls, &err), 0);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct probe p = { 0 };
                struct tls *tls = NULL;
                struct grpc_channel *ch = NULL;
                assert_int_equal(
                    tls_client_create(&(struct tls_options){ .ca_file = in_dir(&r, "ca.crt") },
                                      &tls, &err),
                    0);
                assert_int_equal(grpc_channel_create(r.base, r.target,
                                                     &(struct grpc_channel_options){
                                                         .tls = tls, .node_id = cases[i].wanted },
                                                     &ch, &err),
                                 0);
                probe_unary(&p, ch, SERVICE "Echo", "x", NULL);
                UNTIL(r.base, p.closed);
                assert_int_equal(p.status, cases[i].status);
                if (p.status != GRPC_OK)
                        assert_non_null(strstr(p.message, "its certificate is that of node n2"));
                probe_fini(&p);
                grpc_channel_destroy(ch);
                tls_unref(tls);
        }
        rig_stop(&r);
}

/* Issue 5, A9: no node can pose as a server, whatever host name its certificate has. R: C32 A13 */
static void a_node_is_not_taken_for_a_server(void **state)
{
        static const struct {
                const char *uri;
                enum grpc_status status;
        } cases[] = { { "spiffe://berth/node/n2", GRPC_UNAVAILABLE },
                      { "spiffe://berth/user/ann", GRPC_UNAVAILABLE },
                      { "spiffe://berth/server/s1", GRPC_OK },
                      { "https://example.org/made-by-another-tool", GRPC_OK } };
        struct rig r;
        struct err err;
        (void)state;

        rig_start(&r, TLS_PEER_NONE);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct probe p = { 0 };
                struct tls *tls = NULL;
                struct grpc_channel *ch = NULL;
                issue(&r, &r.ca, "server", "peer", cases[i].uri);
                assert_int_equal(tls_reload(r.server_tls, &err), 0);
                assert_int_equal(
                    tls_client_create(&(struct tls_options){ .ca_file = in_dir(&r, "ca.crt") },
                                      &tls, &err),
                    0);
                assert_int_equal(
                    grpc_channel_create(
                        r.base, r.target,
                        &(struct grpc_channel_options){ .tls = tls, .to_server = true }, &ch, &err),
                    0);
                probe_unary(&p, ch, SERVICE "Echo", "x", NULL);
                UNTIL(r.base, p.closed);
                assert_int_equal(p.status, cases[i].status);
                if (p.status != GRPC_OK)
                        assert_non_null(strstr(p.message, "the peer is no server"));
                probe_fini(&p);
                grpc_channel_destroy(ch);
                tls_unref(tls);
        }
        rig_stop(&r);
}

/* An RSA key whose public exponent is as long as its modulus: checking what it signed takes a
 * hundred times as long. */
static EVP_PKEY *slow_rsa(void)
{
        EVP_PKEY *fast = EVP_RSA_gen(3072), *slow = NULL;
        BIGNUM *n = NULL, *e = NULL, *d = NULL;
        assert_int_equal(EVP_PKEY_get_bn_param(fast, OSSL_PKEY_PARAM_RSA_N, &n), 1);
        assert_int_equal(EVP_PKEY_get_bn_param(fast, OSSL_PKEY_PARAM_RSA_E, &e), 1);
        assert_int_equal(EVP_PKEY_get_bn_param(fast, OSSL_PKEY_PARAM_RSA_D, &d), 1);
        OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
        OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_N, n);
        OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_E, d); /* the other way round */
        OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_D, e);
        OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(b);
        EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
        assert_int_equal(EVP_PKEY_fromdata_init(ctx), 1);
        assert_int_equal(EVP_PKEY_fromdata(ctx, &slow, EVP_PKEY_KEYPAIR, params), 1);
        EVP_PKEY_CTX_free(ctx);
        OSSL_PARAM_free(params);
        OSSL_PARAM_BLD_free(b);
        BN_free(n), BN_free(e), BN_free(d);
        EVP_PKEY_free(fast);
        return slow;
}

/* A request that is signed with this key, and takes it over. */
static void request_of(EVP_PKEY *key, struct str *ret)
{
        X509_REQ *req = X509_REQ_new();
        BIO *out = BIO_new(BIO_s_mem());
        char *data;
        assert_int_equal(X509_REQ_set_pubkey(req, key), 1);
        assert_true(X509_REQ_sign(req, key,
                                  EVP_PKEY_is_a(key, "ED25519") || EVP_PKEY_is_a(key, "ED448")
                                      ? NULL
                                      : EVP_sha256()) > 0);
        assert_int_equal(PEM_write_bio_X509_REQ(out, req), 1);
        long n = BIO_get_mem_data(out, &data);
        str_add(ret, data, (size_t)n);
        BIO_free(out);
        X509_REQ_free(req);
        EVP_PKEY_free(key);
}

/* Issue 5, E3: strangers send requests; what is slow to check is not checked. R: C32 A11 */
static void a_request_with_an_unusual_key_is_refused(void **state)
{
        const struct {
                EVP_PKEY *key;
                int want;
        } cases[] = {
                { EVP_EC_gen("P-256"), 0 },
                { EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), 0 },
                { EVP_RSA_gen(3072), 0 },
                { slow_rsa(), -ERR_INVALID },
                { EVP_RSA_gen(2048), -ERR_INVALID },
                { EVP_RSA_gen(4096), -ERR_INVALID },
                { EVP_EC_gen("P-384"), -ERR_INVALID },
                { EVP_EC_gen("sect571r1"), -ERR_INVALID },
                { EVP_PKEY_Q_keygen(NULL, NULL, "ED448"), -ERR_INVALID },
        };
        (void)state;

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct str request = STR_INIT;
                struct err err = { 0 };
                char hash[65];
                request_of(cases[i].key, &request);
                assert_int_equal(tls_request_key(str_c(&request), hash, &err), cases[i].want);
                str_fini(&request);
        }
}

/* R: C32 */
static void a_request_is_signed_for_its_key_and_with_our_names_only(void **state)
{
        struct tls_pair ca = { 0 };
        struct str key = STR_INIT, other = STR_INIT, request = STR_INIT, cert = STR_INIT,
                   bundle = STR_INIT;
        struct tls_cert c = { 0 };
        struct err err = { 0 };
        char hash[65], again[65];
        int n = 0;
        (void)state;

        assert_int_equal(tls_make_ca(&(struct tls_issue_options){ .cn = "ca" }, &ca, &err), 0);
        assert_int_equal(tls_make_key(&key, &err), 0);
        assert_int_equal(tls_make_key(&other, &err), 0);
        assert_int_equal(tls_make_request(&key, "spiffe://berth/user/root", &request, &err), 0);
        assert_int_equal(tls_request_key(str_c(&request), hash, &err), 0);
        struct tls_issue_options o = { .cn = "n1",
                                       .uris =
                                           (const char *const[]){ "spiffe://berth/node/n1", NULL },
                                       .is_client = true };
        assert_int_equal(tls_sign_request(&ca, str_c(&request), &o, &cert, &err), 0);
        assert_int_equal(tls_cert_read(str_c(&cert), cert.len, &c, &err), 0);
        assert_string_equal(c.cn, "n1");
        assert_string_equal(c.uris[0], "spiffe://berth/node/n1");
        assert_null(c.uris[1]);
        assert_true(c.is_client && !c.is_server && !c.is_ca);
        assert_int_equal(tls_cert_check_signed(&cert, &ca.cert, &err), 0);
        str_clear(&request);
        assert_int_equal(tls_make_request(&key, "x", &request, &err), 0);
        assert_int_equal(tls_request_key(str_c(&request), again, &err), 0);
        assert_string_equal(hash, again); /* the key's, whatever else is in the request */
        str_clear(&request);
        assert_int_equal(tls_make_request(&other, "x", &request, &err), 0);
        assert_int_equal(tls_request_key(str_c(&request), again, &err), 0);
        assert_string_not_equal(hash, again);
        /* one byte of the body is another one: the signature does not fit */
        size_t at = (size_t)(strchr(str_c(&request), '\n') - str_c(&request)) + 30;
        request.buf[at] = request.buf[at] == 'A' ? 'B' : 'A';
        assert_int_equal(tls_request_key(str_c(&request), again, &err), -ERR_INVALID);
        assert_int_equal(tls_request_key("", again, &err), -ERR_INVALID);
        assert_int_equal(tls_request_key(str_c(&cert), again, &err), -ERR_INVALID);
        /* of a bundle only certificates are passed on, whatever lies between them */
        str_add(&bundle, str_c(&ca.cert), ca.cert.len);
        str_add(&bundle, str_c(&ca.key), ca.key.len);
        str_add(&bundle, str_c(&ca.cert), ca.cert.len);
        assert_int_equal(tls_each_cert(str_c(&bundle), bundle.len, count_certs, &n), 0);
        assert_int_equal(n, 2);
        tls_cert_fini(&c);
        tls_pair_fini(&ca);
        str_fini(&key);
        str_fini(&other);
        str_fini(&request);
        str_fini(&cert);
        str_fini(&bundle);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(mutual_tls_shows_who_the_client_is),
                cmocka_unit_test(strangers_are_refused),
                cmocka_unit_test(refusals_are_counted_by_their_reason),
                cmocka_unit_test(a_certificate_is_that_of_one_node),
                cmocka_unit_test(a_certificate_says_what_it_was_made_with),
                cmocka_unit_test(optional_certificates_are_optional_but_checked),
                cmocka_unit_test(rotation_leaves_running_streams_alone),
                cmocka_unit_test(much_data_passes_through_tls),
                cmocka_unit_test(bad_options_are_refused_with_a_reason),
                cmocka_unit_test(certificates_verify_as_they_should),
                cmocka_unit_test(a_node_is_not_taken_for_another),
                cmocka_unit_test(a_node_is_not_taken_for_a_server),
                cmocka_unit_test(a_request_with_an_unusual_key_is_refused),
                cmocka_unit_test(a_request_is_signed_for_its_key_and_with_our_names_only),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
