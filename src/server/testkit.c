/* server/testkit.c: see testkit.h. */
#include "server/testkit.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/addr.h"
#include "net/grpc.h"
#include <arpa/inet.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- HTTP ---- */

static int dial(const char *address)
{
        struct addr a;
        struct sockaddr_in sin = { .sin_family = AF_INET };
        assert_int_equal(addr_parse(address, &a, NULL), 0);
        sin.sin_port = htons(a.port);
        assert_int_equal(inet_pton(AF_INET, a.host, &sin.sin_addr), 1);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
        return fd;
}

static void send_all(int fd, const void *data, size_t len)
{
        for (size_t at = 0; at < len;) {
                ssize_t n = send(fd, (const char *)data + at, len - at, MSG_NOSIGNAL);
                assert_true(n > 0);
                at += (size_t)n;
        }
}

static void unchunk(struct str *out, const char *p, const char *end)
{
        for (;;) {
                char *after;
                unsigned long n = strtoul(p, &after, 16);
                const char *nl = strstr(after, "\r\n");
                if (!nl || n == 0 || nl + 2 + n > end)
                        return;
                str_add(out, nl + 2, n);
                p = nl + 2 + n + 2;
        }
}

void http_answer_fini(struct http_answer *a)
{
        str_fini(&a->head);
        str_fini(&a->body);
}

struct http_answer http_do(const char *address, const char *method, const char *path,
                           const char *headers, const char *body)
{
        struct http_answer a = { 0 };
        _cleanup_(str_finip) struct str out = STR_INIT, in = STR_INIT;
        int fd = dial(address);
        size_t len = body ? strlen(body) : 0;
        str_addf(&out, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s", method, path,
                 address, headers ? headers : "");
        if (body)
                str_addf(&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", len);
        str_adds(&out, "\r\n");
        str_add(&out, body ? body : "", len);
        send_all(fd, out.buf, out.len);
        struct pollfd p = { .fd = fd, .events = POLLIN };
        char buf[65536];
        for (;;) {
                assert_int_equal(poll(&p, 1, 30000), 1);
                ssize_t n = recv(fd, buf, sizeof(buf), 0);
                if (n <= 0)
                        break;
                str_add(&in, buf, (size_t)n);
        }
        close(fd);
        const char *split = strstr(str_c(&in), "\r\n\r\n");
        assert_non_null(split);
        str_add(&a.head, in.buf, (size_t)(split + 2 - in.buf));
        assert_int_equal(sscanf(a.head.buf, "HTTP/1.%*d %d", &a.status), 1);
        if (strcasestr(a.head.buf, "transfer-encoding: chunked"))
                unchunk(&a.body, split + 4, in.buf + in.len);
        else
                str_adds(&a.body, split + 4);
        return a;
}

const char *http_header_of(const struct http_answer *a, const char *name)
{
        static char value[512];
        size_t n = strlen(name);
        value[0] = 0;
        for (const char *p = strstr(a->head.buf, "\r\n"); p; p = strstr(p + 2, "\r\n"))
                if (strncasecmp(p + 2, name, n) == 0 && p[2 + n] == ':') {
                        const char *v = p + 3 + n;
                        v += strspn(v, " ");
                        snprintf(value, sizeof(value), "%.*s", (int)strcspn(v, "\r\n"), v);
                        break;
                }
        return value;
}

int http_open(const char *address, const char *path, const char *headers)
{
        int fd = dial(address);
        _cleanup_(str_finip) struct str out = STR_INIT;
        str_addf(&out, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, address,
                 headers ? headers : "");
        send_all(fd, out.buf, out.len);
        return fd;
}

bool http_read_until(int fd, struct str *text, const char *until, int timeout_ms)
{
        int64_t end = clock_mono_ns() / 1000000 + timeout_ms;
        struct pollfd p = { .fd = fd, .events = POLLIN };
        char buf[16384];
        while (!strstr(str_c(text), until)) {
                int64_t left = end - clock_mono_ns() / 1000000;
                if (left <= 0 || poll(&p, 1, (int)left) <= 0)
                        return false;
                ssize_t n = recv(fd, buf, sizeof(buf), 0);
                if (n <= 0)
                        return strstr(str_c(text), until) != NULL;
                str_add(text, buf, (size_t)n);
        }
        return true;
}

/* ---- an agent ---- */

struct agent {
        struct event_base *base;
        struct grpc_channel *channel;
        struct grpc_call *call;
        struct arena memory;
        ARRAY(Pb__ServerMessage *) messages;
        size_t seen;
        bool closed;
        int status;
};

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct agent *a = grpc_call_data(call);
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };
        if (pb_unpack(&pb__server_message__descriptor, data, len, &a->memory, &m, &err) < 0)
                fail_msg("bad server message: %s", err_line(&err));
        *array_push(&a->messages) = (Pb__ServerMessage *)m;
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct agent *a = grpc_call_data(call);
        a->closed = true;
        a->status = (int)status;
        a->call = NULL;
}

struct agent *agent_connect(const char *grpc_address)
{
        return agent_connect_tls(grpc_address, NULL);
}

struct agent *agent_connect_tls(const char *grpc_address, struct tls *tls)
{
        struct agent *a = mem_must(sizeof(*a));
        struct err err = { 0 };
        a->base = event_base_new();
        if (grpc_channel_create(a->base, grpc_address, &(struct grpc_channel_options){ .tls = tls },
                                &a->channel, &err) < 0)
                fail_msg("channel: %s", err_line(&err));
        struct grpc_callbacks on = { .on_message = on_message, .on_close = on_close };
        a->call = grpc_channel_call(a->channel, "/berth.v1.Agent/Connect",
                                    &(struct grpc_call_options){ .wait_for_ready = true }, &on, a);
        return a;
}

void agent_close(struct agent *a)
{
        if (!a)
                return;
        grpc_channel_destroy(a->channel);
        event_base_free(a->base);
        array_fini(&a->messages);
        arena_fini(&a->memory);
        mem_free(a);
}

void agent_send(struct agent *a, const Pb__AgentMessage *m)
{
        struct str s = STR_INIT;
        pb_pack(&s, &m->base);
        assert_non_null(a->call);
        assert_int_equal(grpc_call_send(a->call, s.buf, s.len), 0);
        str_fini(&s);
}

void agent_hello(struct agent *a, const char *node_id)
{
        Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process };
        Pb__Hello hello = PB__HELLO__INIT;
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        hello.node_id = (char *)node_id;
        hello.cpu = 8000;
        hello.memory_mb = 16384;
        hello.disk_gb = 100;
        hello.protocol = 1;
        hello.supported_workload_types = types;
        hello.n_supported_workload_types = 1;
        hello.instance = (char *)"01HZZZZZZZZZZZZZZZZZZZZZZZ";
        hello.agent_version = (char *)"0.1.0";
        m.hello = &hello;
        agent_send(a, &m);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
        (void)fd;
        (void)what;
        event_base_loopbreak(ctx);
}

void agent_turn(struct agent *a, int ms)
{
        struct event *timer = evtimer_new(a->base, on_timer, a->base);
        struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
        evtimer_add(timer, &tv);
        event_base_dispatch(a->base);
        event_free(timer);
}

const Pb__ServerMessage *agent_wait(struct agent *a, bool (*fits)(const Pb__ServerMessage *m),
                                    int timeout_ms)
{
        int64_t end = clock_mono_ns() / 1000000 + timeout_ms;
        for (;;) {
                while (a->seen < a->messages.len) {
                        const Pb__ServerMessage *m = a->messages.at[a->seen++];
                        if (fits(m))
                                return m;
                }
                if (a->closed || clock_mono_ns() / 1000000 > end)
                        return NULL;
                agent_turn(a, 5);
        }
}

bool agent_is_closed(struct agent *a, int timeout_ms, int *ret_status)
{
        int64_t end = clock_mono_ns() / 1000000 + timeout_ms;
        while (!a->closed && clock_mono_ns() / 1000000 < end)
                agent_turn(a, 5);
        if (a->closed && ret_status)
                *ret_status = a->status;
        return a->closed;
}

void agent_report(struct agent *a, const char *workload_id, const Pb__PlanEntry *unit,
                  Pb__ActualState__E state)
{
        Pb__UnitStatus status = PB__UNIT_STATUS__INIT, *list[] = { &status };
        Pb__UnitReport report = PB__UNIT_REPORT__INIT;
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        status.unit_id = (char *)workload_id;
        status.state = state;
        status.type = PB__WORKLOAD_TYPE__E__process;
        Pb__Workload *w =
            unit ? pb__workload__unpack(NULL, unit->workload.len, unit->workload.data) : NULL;
        if (w)
                status.revision_id = w->revision_id;
        if (unit)
                status.token = unit->token;
        status.started_at = clock_wall_ms();
        report.units = list;
        report.n_units = 1;
        m.units = &report;
        agent_send(a, &m);
        if (w)
                pb__workload__free_unpacked(w, NULL);
}

bool is_welcome(const Pb__ServerMessage *m)
{
        return m->welcome != NULL;
}
bool is_plan(const Pb__ServerMessage *m)
{
        return m->plan != NULL;
}
bool is_plan_with_units(const Pb__ServerMessage *m)
{
        return m->plan != NULL && m->plan->n_units > 0;
}
bool is_beat(const Pb__ServerMessage *m)
{
        return m->heartbeat != NULL;
}
bool is_log(const Pb__ServerMessage *m)
{
        return m->log != NULL;
}
bool is_exec(const Pb__ServerMessage *m)
{
        return m->exec != NULL;
}
bool is_exec_input(const Pb__ServerMessage *m)
{
        return m->exec_input != NULL;
}
bool is_cancel(const Pb__ServerMessage *m)
{
        return m->cancel != NULL;
}

/* ---- one server per test ---- */

void server_begin(struct fixture *f)
{
        struct err err = { 0 };
        if (server_start(&f->opt, &f->server, &err) < 0)
                fail_msg("start: %s", err_line(&err));
        f->http = server_http_address(f->server);
        f->grpc = server_grpc_address(f->server);
}

void server_end(struct fixture *f)
{
        struct err err = { 0 };
        server_stop(f->server);
        if (server_wait(f->server, &err) < 0)
                fail_msg("stop: %s", err_line(&err));
        server_free(TAKE_PTR(f->server));
}

int server_setup(void **state)
{
        struct fixture *f = mem_must(sizeof(*f));
        const char *tmp = getenv("TMPDIR");
        log_setup(getenv("TEST_LOG") ? LOG_DEBUG : LOG_ERROR, LOG_FORMAT_LOGFMT, 2);
        snprintf(f->dir, sizeof(f->dir), "%s/berth-server-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(f->dir));
        server_options_default(&f->opt);
        f->opt.data_dir = f->dir;
        f->opt.http_address = "127.0.0.1:0";
        f->opt.grpc_address = "127.0.0.1:0";
        f->opt.shutdown_ms = 3000;
        server_begin(f);
        *state = f;
        return 0;
}

int server_teardown(void **state)
{
        struct fixture *f = *state;
        server_free(f->server);
        dir_remove(f->dir, NULL);
        mem_free(f);
        return 0;
}

struct http_answer expect_http(struct fixture *f, const char *method, const char *path,
                               const char *headers, const char *body, int want)
{
        struct http_answer a = http_do(f->http, method, path, headers, body);
        if (a.status != want)
                fail_msg("%s %s: %d\n%s", method, path, a.status, str_c(&a.body));
        return a;
}

void expect_status(struct fixture *f, const char *method, const char *path, const char *body,
                   int want)
{
        struct http_answer a = expect_http(f, method, path, "", body, want);
        http_answer_fini(&a);
}

uint64_t head_of(struct fixture *f)
{
        struct http_answer a = expect_http(f, "GET", "/cluster", "", NULL, 200);
        const char *p = strstr(str_c(&a.body), "\"committed\":");
        uint64_t head = p ? strtoull(p + 12, NULL, 10) : 0;
        http_answer_fini(&a);
        return head;
}

void wait_for(struct fixture *f, struct agent *a, const char *path, const char *text)
{
        for (int i = 0; i < 250; i++) {
                struct http_answer r = expect_http(f, "GET", path, "", NULL, 200);
                bool there = strstr(str_c(&r.body), text) != NULL;
                http_answer_fini(&r);
                if (there)
                        return;
                if (a)
                        agent_turn(a, 20);
        }
        struct http_answer r = expect_http(f, "GET", path, "", NULL, 200);
        fail_msg("%s never said %s: %s", path, text, str_c(&r.body));
}

/* An agent on node n1 that runs the workload "hello". */
struct agent *agent_with_hello(struct fixture *f)
{
        struct agent *a = agent_connect(f->grpc);
        agent_hello(a, "n1");
        const Pb__ServerMessage *m = agent_wait(a, is_welcome, 5000);
        assert_non_null(m);
        assert_true(m->welcome->accepted);
        m = agent_wait(a, is_plan, 5000);
        assert_non_null(m);
        assert_true(m->plan->complete && m->plan->last);
        assert_true(m->plan->cursor != NULL);
        expect_status(f, "POST", "/workloads", HELLO, 201);
        m = agent_wait(a, is_plan_with_units, 5000);
        assert_non_null(m);
        assert_false(m->plan->complete);
        assert_true(m->plan->last);
        assert_string_equal(m->plan->units[0]->unit_id, "hello");
        assert_true(m->plan->units[0]->token->seq > 0);
        agent_report(a, "hello", m->plan->units[0], PB__ACTUAL_STATE__E__Running);
        wait_for(f, a, "/workloads/hello", "\"phase\":\"Running\"");
        return a;
}

/* ---- certificates ---- */

static void save(char path[static 200], const char *dir, const char *name, const struct str *text)
{
        struct err err = { 0 };
        snprintf(path, 200, "%s/%s", dir, name);
        if (file_write_atomic(path, text->buf, text->len, 0600, &err) < 0)
                fail_msg("%s", err_line(&err));
}

static void issue(struct pki *pki, const struct fixture *f, const char *name, const char *uri,
                  const char *dns, char cert[static 200], char key[static 200])
{
        struct tls_pair pair;
        struct err err = { 0 };
        const char *space = uri ? strchr(uri, ' ') : NULL;
        char first[200];
        snprintf(first, sizeof(first), "%.*s", uri ? (int)strcspn(uri, " ") : 0, uri ? uri : "");
        struct tls_issue_options o = { .cn = name,
                                       .ips = (const char *const[]){ "127.0.0.1", NULL },
                                       .dns = (const char *const[]){ dns, NULL },
                                       .uris = (const char *const[]){ first[0] ? first : NULL,
                                                                      space ? space + 1 : NULL,
                                                                      NULL } };
        if (tls_issue(&pki->pair, &o, &pair, &err) < 0)
                fail_msg("%s", err_line(&err));
        save(cert, f->dir, fmt("%s.pem", name), &pair.cert);
        save(key, f->dir, fmt("%s-key.pem", name), &pair.key);
        tls_pair_fini(&pair);
}

struct tls *pki_client(struct pki *pki, const struct fixture *f, const char *name, const char *uri,
                       const char *dns)
{
        char cert[200], key[200];
        struct tls *tls = NULL;
        struct err err = { 0 };
        issue(pki, f, name, uri, dns, cert, key);
        if (tls_client_create(
                &(struct tls_options){ .ca_file = pki->ca, .cert_file = cert, .key_file = key },
                &tls, &err) < 0)
                fail_msg("%s", err_line(&err));
        return tls;
}

void pki_restart(struct fixture *f, struct pki *pki, bool ca)
{
        struct err err = { 0 };
        assert_int_equal(
            tls_make_ca(&(struct tls_issue_options){ .cn = "test CA" }, &pki->pair, &err), 0);
        save(pki->ca, f->dir, "ca.pem", &pki->pair.cert);
        issue(pki, f, "server", "spiffe://berth/server/s1", NULL, pki->cert, pki->key);
        server_end(f);
        f->opt.tls_ca = ca ? pki->ca : NULL;
        f->opt.tls_cert = pki->cert;
        f->opt.tls_key = pki->key;
        server_begin(f);
}
