/* net/interop.c: our two ends as a program, for interop_test.py and for load generators.
 *
 *      net_interop serve [ADDRESS]        serves /berth.test.Test/ (test_service.c), prints its
 *      port, until stdin closes net_interop call TARGET            calls the same service
 *      elsewhere, prints one line per check
 *
 * With BERTH_TEST_TLS=DIR it uses DIR/ca.crt and DIR/{server,client}.{crt,key}, mutually.
 */
#include "net/test_rig.h"
#include <event2/bufferevent.h>

static struct tls *tls_from_env(bool is_server)
{
        const char *dir = getenv("BERTH_TEST_TLS");
        struct tls *tls = NULL;
        struct err err;
        char cert[256], key[256], ca[256];

        if (!dir)
                return NULL;
        const char *who = is_server ? "server" : "client";
        snprintf(cert, sizeof(cert), "%s/%s.crt", dir, who);
        snprintf(key, sizeof(key), "%s/%s.key", dir, who);
        snprintf(ca, sizeof(ca), "%s/ca.crt", dir);
        struct tls_options o = {
                .cert_file = cert, .key_file = key, .ca_file = ca, .peer = TLS_PEER_REQUIRED
        };
        if ((is_server ? tls_server_create : tls_client_create)(&o, &tls, &err) < 0) {
                fprintf(stderr, "%s\n", err_line(&err));
                exit(1);
        }
        return tls;
}

static void on_stdin(evutil_socket_t fd, short what, void *base)
{
        char buf[64];
        (void)what;
        if (read(fd, buf, sizeof(buf)) <= 0)
                event_base_loopbreak(base);
}

static int serve(const char *address)
{
        struct event_base *base = event_base_new();
        struct grpc_server *server = NULL;
        struct test_service service = { 0 };
        struct tls *tls = tls_from_env(true);
        struct err err;

        if (grpc_server_create(base,
                               &(struct grpc_server_options){ .address = address, .tls = tls },
                               &server, &err) < 0 ||
            test_service_add(server, &service, &err) < 0) {
                fprintf(stderr, "%s\n", err_line(&err));
                return 1;
        }
        printf("%u\n", grpc_server_port(server));
        fflush(stdout);
        struct event *in = event_new(base, 0, EV_READ | EV_PERSIST, on_stdin, base);
        if (event_add(in, NULL) < 0) /* a file or /dev/null: then until killed */
                event_free(in), in = NULL;
        event_base_dispatch(base);
        if (in)
                event_free(in);
        grpc_server_destroy(server);
        tls_unref(tls);
        event_base_free(base);
        return 0;
}

static void wait_for(struct event_base *base, const bool *flag)
{
        while (!*flag)
                event_base_loop(base, EVLOOP_ONCE);
}

static int call(const char *target)
{
        struct event_base *base = event_base_new();
        struct tls *tls = tls_from_env(false);
        struct grpc_channel *ch = NULL;
        struct err err;

        if (grpc_channel_create(base, target, &(struct grpc_channel_options){ .tls = tls }, &ch,
                                &err) < 0) {
                fprintf(stderr, "%s\n", err_line(&err));
                return 1;
        }
        static const struct {
                const char *method, *text;
                int64_t deadline_ms;
        } checks[] = { { "Echo", "hello", 5000 },
                       { "Count", "1000 50", 5000 },
                       { "Nothing", "x", 5000 },
                       { "Hang", "x", 200 },
                       { "Fail", "5 it is 100% gone \xe2\x98\x83", 5000 },
                       { "Meta", "x", 5000 } };
        for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
                struct probe p = { 0 };
                struct grpc_metadata md[] = { GRPC_META("x-in", "text", 4),
                                              GRPC_META("x-in-bin", "\x00\xff", 2), GRPC_META_END };
                char path[64];
                snprintf(path, sizeof(path), SERVICE "%s", checks[i].method);
                probe_unary(&p, ch, path, checks[i].text,
                            &(struct grpc_call_options){ .deadline_ms = checks[i].deadline_ms,
                                                         .metadata = md });
                wait_for(base, &p.closed);
                printf("%s status=%d messages=%u bytes=%zu error=%zu header=%s trailer=%s "
                       "message=%s\n",
                       checks[i].method, p.status, p.n, p.bytes, p.error.len, p.header, p.trailer,
                       p.message);
                probe_fini(&p);
        }
        struct probe p = { 0 };
        char *big = mem_must(3 * 1024 * 1024 + 1);
        memset(big, 'b', 3 * 1024 * 1024);
        probe_unary(&p, ch, SERVICE "Echo", big,
                    &(struct grpc_call_options){ .deadline_ms = 10000 });
        wait_for(base, &p.closed);
        printf("Big status=%d bytes=%zu\n", p.status, p.bytes);
        mem_free(big);
        probe_fini(&p);
        probe_call(&p, ch, SERVICE "Chat", &(struct grpc_call_options){ .deadline_ms = 10000 });
        for (uint32_t i = 0; i < 100 && p.call; i++) {
                grpc_call_send(p.call, "ping", 4);
                while (!p.closed && p.n <= i)
                        event_base_loop(base, EVLOOP_ONCE);
        }
        if (p.call)
                grpc_call_half_close(p.call);
        wait_for(base, &p.closed);
        printf("Chat status=%d messages=%u\n", p.status, p.n);
        probe_fini(&p);
        probe_call(&p, ch, SERVICE "Sum", NULL);
        for (int i = 0; i < 100; i++)
                grpc_call_send(p.call, "0123456789", 10);
        grpc_call_half_close(p.call);
        wait_for(base, &p.closed);
        printf("Sum status=%d answer=%s\n", p.status, str_c(&p.last));
        probe_fini(&p);
        grpc_channel_destroy(ch);
        tls_unref(tls);
        event_base_free(base);
        return 0;
}

/* DIR/ca.crt and a server's and a client's pair, for the interop test. */
static int make_certs(const char *dir)
{
        struct tls_pair ca;
        struct err err;
        char path[256];

        if (tls_make_ca(&(struct tls_issue_options){ .cn = "test" }, &ca, &err) < 0)
                return 1;
        snprintf(path, sizeof(path), "%s/ca.crt", dir);
        file_write_atomic(path, ca.cert.buf, ca.cert.len, 0600, &err);
        for (int i = 0; i < 2; i++) {
                struct tls_pair pair;
                struct tls_issue_options o = { .cn = i ? "client" : "server",
                                               .dns = (const char *const[]){ "localhost", NULL },
                                               .ips = (const char *const[]){ "127.0.0.1", NULL } };
                if (tls_issue(&ca, &o, &pair, &err) < 0)
                        return 1;
                snprintf(path, sizeof(path), "%s/%s.crt", dir, o.cn);
                file_write_atomic(path, pair.cert.buf, pair.cert.len, 0600, &err);
                snprintf(path, sizeof(path), "%s/%s.key", dir, o.cn);
                file_write_atomic(path, pair.key.buf, pair.key.len, 0600, &err);
                tls_pair_fini(&pair);
        }
        tls_pair_fini(&ca);
        return 0;
}

int main(int argc, char **argv)
{
        if (argc >= 2 && strcmp(argv[1], "serve") == 0)
                return serve(argc > 2 ? argv[2] : "127.0.0.1:0");
        if (argc == 3 && strcmp(argv[1], "call") == 0)
                return call(argv[2]);
        if (argc == 3 && strcmp(argv[1], "certs") == 0)
                return make_certs(argv[2]);
        fprintf(stderr, "usage: net_interop serve [ADDRESS] | call TARGET | certs DIR\n");
        return 2;
}
