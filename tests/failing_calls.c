/* tests/failing_calls.c: a server on which one system call fails, at every place of every kind of
 * call. R: A9 A12 C35
 *
 * For each path (a row below) and each n: the n-th system call on the server's threads fails. The
 * caller gets an answer or an end of its connection, never silence; the next call works; and when
 * all is done the store is sound, its records are the fold of its events, and the invariants hold.
 * Under AddressSanitizer (build-asan) nothing may leak either.
 *
 * usage: failing_calls [--kind call|interrupt] [--path NAME] [--at N]
 * A failure names path, kind and n, which repeat it.
 */
#include "fault_point.h"

#include "api.pb-c.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/addr.h"
#include "net/grpc.h"
#include "net/tls.h"
#include "server/access.h"
#include "server/testkit.h"
#include "store/store.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 8000 /* silence for longer is a failure */
#define PLACES_MAX 8000

static const char *const kind_names[_FAULT_KINDS] = { "call", "interrupt" };
static struct {
        uint64_t at;
        const char *kind, *path;
} want;

struct rig {
        struct fixture *f;
        struct agent *agent; /* NULL: nobody listens to plans here */
        uint32_t turn;       /* grows with every try: fresh names */
        /* the token of every call but those that try another; "": none is wanted */
        char admin[64];
        char viewer[160];  /* another token, that may look */
        char secret[160];  /* what was made for a try */
        struct tls *tls;   /* NULL: in the clear */
        struct str answer; /* the last one over HTTP, all of it */
        struct joiner {    /* a machine that becomes a node */
                struct str request;
                struct tls *certificate;
        } joiner;
};

/* ---- calls ---- */

/* Sends one request and reads until `until` is there or the peer closes; the agent lives on
 * meanwhile. The status; 0: the connection ended; -1: silence. */
static int exchange_as(struct rig *r, const char *token, const char *method, const char *path,
                       const char *body, const char *until)
{
        struct addr a;
        struct sockaddr_in sin = { .sin_family = AF_INET };
        _cleanup_(str_finip) struct str out = STR_INIT;
        struct str *in = &r->answer;
        str_clear(in);
        must(addr_parse(r->f->http, &a, NULL) == 0, "the server's address");
        sin.sin_port = htons(a.port);
        inet_pton(AF_INET, a.host, &sin.sin_addr);
        _cleanup_(fd_closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0)
                return 0;
        str_addf(&out, "%s %s HTTP/1.1\r\nHost: x\r\n%s", method, path,
                 until ? "" : "Connection: close\r\n");
        if (token[0])
                str_addf(&out, "Authorization: Bearer %s\r\n", token);
        if (body)
                str_addf(&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                         strlen(body));
        str_addf(&out, "\r\n%s", body ? body : "");
        if (send(fd, out.buf, out.len, MSG_NOSIGNAL) != (ssize_t)out.len)
                return 0;
        int status = 0;
        for (int64_t end = clock_mono_ns() + PATIENCE_MS * INT64_C(1000000);
             clock_mono_ns() < end;) {
                struct pollfd p = { .fd = fd, .events = POLLIN };
                char buf[16384];
                if (poll(&p, 1, r->agent ? 1 : 100) > 0) {
                        ssize_t n = recv(fd, buf, sizeof(buf), 0);
                        if (n > 0)
                                str_add(in, buf, (size_t)n);
                        sscanf(str_c(in), "HTTP/1.%*d %d", &status);
                        if (n <= 0 || (until && strstr(str_c(in), until)) ||
                            (until && status >= 400))
                                return status;
                }
                if (r->agent)
                        agent_turn(r->agent, 1);
        }
        return -1;
}

static int exchange(struct rig *r, const char *method, const char *path, const char *body,
                    const char *until)
{
        return exchange_as(r, r->admin, method, path, body, until);
}

/* tls, token: NULL is none. */
static int call_as(struct rig *r, struct tls *tls, const char *token, const char *method,
                   const ProtobufCMessage *req)
{
        struct grpc_channel_options options = { .tls = tls, .token = token };
        struct grpc_reply reply = { 0 };
        struct str packed = STR_INIT;
        struct err err = { 0 };
        pb_pack(&packed, req);
        int s = grpc_call_sync(r->f->grpc, &options, NULL, fmt("/berth.v1.Control/%s", method),
                               packed.buf, packed.len, PATIENCE_MS, &reply, &err);
        int status = s < 0                                    ? 0
                     : reply.status == GRPC_OK                ? 200
                     : reply.status == GRPC_DEADLINE_EXCEEDED ? -1
                                                              : 500;
        grpc_reply_fini(&reply);
        str_fini(&packed);
        return status;
}

static int call(struct rig *r, const char *method, const ProtobufCMessage *req)
{
        return call_as(r, r->tls, r->admin[0] ? r->admin : NULL, method, req);
}

static void agent_renew(struct rig *r)
{
        if (r->agent)
                agent_close(r->agent);
        r->agent = agent_connect_tls(r->f->grpc, r->joiner.certificate);
        agent_hello(r->agent, "n1");
}

/* ---- paths ---- */

#define SPEC "\"spec\":{\"command\":[\"sleep\",\"%u\"]}}"

static int do_create(struct rig *r)
{
        return exchange(r, "POST", "/workloads", fmt("{\"id\":\"w%u\"," SPEC, r->turn, r->turn),
                        NULL);
}
static int do_apply(struct rig *r)
{
        return exchange(r, "PUT", "/workloads/hello", fmt("{\"id\":\"hello\"," SPEC, r->turn),
                        NULL);
}
static int do_delete(struct rig *r)
{
        return exchange(r, "DELETE", fmt("/workloads/d%u", r->turn), NULL, NULL);
}
static void before_delete(struct rig *r)
{
        exchange(r, "POST", "/workloads", fmt("{\"id\":\"d%u\"," SPEC, r->turn, 1u), NULL);
}
static int do_get(struct rig *r)
{
        return exchange(r, "GET", "/workloads/hello", NULL, NULL);
}
static int do_list(struct rig *r)
{
        return exchange(r, "GET", "/workloads?limit=5", NULL, NULL);
}
static int do_stop_start(struct rig *r)
{
        return exchange(r, "POST", r->turn % 2 ? "/workloads/hello/stop" : "/workloads/hello/start",
                        NULL, NULL);
}
static int do_retry(struct rig *r)
{
        return exchange(r, "POST", "/workloads/hello/retry", NULL, NULL);
}
static int do_explain(struct rig *r)
{
        return exchange(r, "GET", "/workloads/hello/explain", NULL, NULL);
}
static int do_cordon(struct rig *r)
{
        return exchange(r, "POST", r->turn % 2 ? "/nodes/n1/cordon" : "/nodes/n1/uncordon", NULL,
                        NULL);
}
static int do_nodes(struct rig *r)
{
        return exchange(r, "GET", "/nodes", NULL, NULL);
}
static int do_events(struct rig *r)
{
        return exchange(r, "GET", "/events?limit=5", NULL, NULL);
}
static int do_stream(struct rig *r)
{
        return exchange(r, "GET", "/events/stream?since=1", NULL, "\nid: ");
}
static int do_metrics(struct rig *r)
{
        return exchange(r, "GET", "/metrics", NULL, NULL);
}
static int do_openapi(struct rig *r)
{
        return exchange(r, "GET", "/openapi.json", NULL, NULL);
}
static int do_cluster(struct rig *r)
{
        return exchange(r, "GET", "/cluster", NULL, NULL);
}

static int do_logs(struct rig *r)
{
        /* the agent does not answer: what is tried is the way to it */
        int status = exchange(r, "GET", "/workloads/hello/logs?follow=true", NULL, "\r\n");
        return status < 0 ? 0 : status;
}

static int do_grpc_get(struct rig *r)
{
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = (char *)"hello";
        return call(r, "GetWorkload", &ref.base);
}
static int do_grpc_apply(struct rig *r)
{
        Pb__Spec spec = PB__SPEC__INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
        char *command[] = { (char *)"x" };
        spec.command = command;
        spec.n_command = 1;
        w.id = (char *)fmt("g%u", r->turn);
        w.spec = &spec;
        req.workload = &w;
        return call(r, "ApplyWorkload", &req.base);
}
static int do_grpc_events(struct rig *r)
{
        Pb__ListEventsRequest req = PB__LIST_EVENTS_REQUEST__INIT;
        req.limit = 5;
        return call(r, "ListEvents", &req.base);
}

static int do_hello(struct rig *r)
{
        agent_renew(r);
        const Pb__ServerMessage *m = agent_wait(r->agent, is_welcome, PATIENCE_MS);
        return m ? 200 : agent_is_closed(r->agent, 0, NULL) ? 0 : -1;
}

static int do_heartbeat(struct rig *r)
{
        Pb__Heartbeat beat = PB__HEARTBEAT__INIT;
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        m.heartbeat = &beat;
        if (agent_is_closed(r->agent, 0, NULL))
                return 0;
        agent_send(r->agent, &m);
        const Pb__ServerMessage *got = agent_wait(r->agent, is_beat, PATIENCE_MS);
        return got ? 200 : agent_is_closed(r->agent, 0, NULL) ? 0 : -1;
}

static int do_report(struct rig *r)
{
        Pb__PlanEntry unit = PB__PLAN_ENTRY__INIT;
        if (agent_is_closed(r->agent, 0, NULL))
                return 0;
        agent_report(r->agent, "stranger", &unit, PB__ACTUAL_STATE__E__Running);
        return do_heartbeat(r); /* comes after the report on the same stream */
}

/* ---- tokens ---- */

static bool keep_secret(struct rig *r)
{
        const char *at = strstr(str_c(&r->answer), "\"secret\":\""),
                   *end = at ? strchr(at + 10, '"') : NULL;
        if (end && (size_t)(end - at - 10) < sizeof(r->secret))
                snprintf(r->secret, sizeof(r->secret), "%.*s", (int)(end - at - 10), at + 10);
        return end;
}
static int create_token(struct rig *r, const char *name)
{
        int status = exchange(r, "POST", "/tokens",
                              fmt("{\"name\":\"%s\",\"role\":\"viewer\"}", name), NULL);
        return status == 201 && !keep_secret(r) ? 0 : status; /* cut short: no answer */
}
static int do_token_create(struct rig *r)
{
        return create_token(r, "t");
}
static int do_token_revoke(struct rig *r)
{
        return exchange(r, "DELETE", "/tokens/t", NULL, NULL);
}
/* What was answered is there, and works; what was not may be there or not (the fold of the events
 * says the same in the end). */
static void after_token_create(struct rig *r, int status)
{
        if (status == 201)
                assert_int_equal(exchange_as(r, r->secret, "GET", "/workloads/hello", NULL, NULL),
                                 200);
        /* its name is free again: the table of tokens, of which every change makes a copy, stays as
         * small as it is */
        do_token_revoke(r);
}
static void before_token_revoke(struct rig *r)
{
        assert_int_equal(do_token_create(r), 201);
}
/* Once the revocation was answered nothing gets in with it; asked again, it is revoked in any
 * case. */
static void after_token_revoke(struct rig *r, int status)
{
        if (status != 200)
                assert_int_equal(do_token_revoke(r), 200);
        assert_int_equal(exchange_as(r, r->secret, "GET", "/workloads/hello", NULL, NULL), 401);
}
static int do_token_list(struct rig *r)
{
        return exchange(r, "GET", "/tokens?limit=5", NULL, NULL);
}
static int do_with_token(struct rig *r)
{
        return exchange_as(r, r->viewer, "GET", "/workloads/hello", NULL, NULL);
}
static int do_token_stream(struct rig *r)
{
        return exchange_as(r, r->viewer, "GET", "/events/stream?since=1", NULL, "\nid: ");
}
static int do_wrong_token(struct rig *r)
{
        int status = exchange_as(r, "berth_nobody", "GET", "/workloads/hello", NULL, NULL);
        assert_int_not_equal(status, 200); /* a fault lets nobody in */
        return status;
}
static int do_wrong_role(struct rig *r)
{
        int status = exchange_as(r, r->viewer, "POST", "/workloads/hello/stop", NULL, NULL);
        assert_int_not_equal(status, 200);
        return status;
}
static int do_grpc_with_token(struct rig *r)
{
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = (char *)"hello";
        return call_as(r, NULL, r->viewer, "GetWorkload", &ref.base);
}
static int do_grpc_wrong_token(struct rig *r)
{
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = (char *)"hello";
        int status = call_as(r, NULL, "berth_nobody", "GetWorkload", &ref.base);
        assert_int_not_equal(status, 200);
        return status;
}

/* ---- joining ---- */

static void make_request(struct rig *r)
{
        _cleanup_(str_finip) struct str key = STR_INIT;
        struct err err = { 0 };
        str_clear(&r->joiner.request);
        if (tls_make_key(&key, &err) < 0 ||
            tls_make_request(&key, "n1", &r->joiner.request, &err) < 0)
                fail_msg("%s", err_line(&err));
}
static void before_join(struct rig *r)
{
        Pb__CreateTokenRequest q = PB__CREATE_TOKEN_REQUEST__INIT;
        struct grpc_channel_options options = { .tls = r->tls, .token = r->admin };
        struct grpc_reply reply = { 0 };
        struct str packed = STR_INIT;
        struct err err = { 0 };
        q.name = (char *)fmt("j%u", r->turn);
        q.role = PB__ROLE__E__join;
        pb_pack(&packed, &q.base);
        if (grpc_call_sync(r->f->grpc, &options, NULL, "/berth.v1.Control/CreateToken", packed.buf,
                           packed.len, PATIENCE_MS, &reply, &err) < 0 ||
            reply.status != GRPC_OK)
                fail_msg("no join token: %s %s", err_line(&err), reply.message);
        Pb__CreateTokenResponse *made = pb__create_token_response__unpack(
            NULL, reply.data.len, (const uint8_t *)reply.data.buf);
        assert_non_null(made);
        snprintf(r->secret, sizeof(r->secret), "%s", made->secret);
        pb__create_token_response__free_unpacked(made, NULL);
        str_fini(&packed);
        grpc_reply_fini(&reply);
        make_request(r);
}
static int do_join(struct rig *r)
{
        Pb__JoinRequest q = PB__JOIN_REQUEST__INIT;
        q.secret = r->secret;
        q.node_id = (char *)fmt("j%u", r->turn);
        q.request = (char *)str_c(&r->joiner.request);
        return call_as(r, r->tls, NULL, "JoinNode", &q.base);
}
/* Whether it was answered or not: the same machine asks again and gets its certificate, and another
 * one does not. */
static void after_join(struct rig *r, int status)
{
        (void)status;
        assert_int_equal(do_join(r), 200);
        make_request(r);
        assert_int_equal(do_join(r), 500);
}
static int do_renew(struct rig *r)
{
        Pb__RenewRequest q = PB__RENEW_REQUEST__INIT;
        q.node_id = (char *)"n1";
        q.request = (char *)str_c(&r->joiner.request);
        return call_as(r, r->joiner.certificate, NULL, "RenewCertificate", &q.base);
}
static int do_trust(struct rig *r)
{
        Pb__Empty q = PB__EMPTY__INIT;
        return call_as(r, r->tls, NULL, "GetTrust", &q.base);
}

struct path {
        const char *name;
        int (*act)(struct rig *r);
        void (*before)(struct rig *r);
        void (*after)(struct rig *r, int status);
};
static const struct path plain_paths[] = {
        { "create", do_create, NULL, NULL },
        { "apply", do_apply, NULL, NULL },
        { "delete", do_delete, before_delete, NULL },
        { "get", do_get, NULL, NULL },
        { "list", do_list, NULL, NULL },
        { "stop-start", do_stop_start, NULL, NULL },
        { "retry", do_retry, NULL, NULL },
        { "explain", do_explain, NULL, NULL },
        { "cordon", do_cordon, NULL, NULL },
        { "nodes", do_nodes, NULL, NULL },
        { "events", do_events, NULL, NULL },
        { "event-stream", do_stream, NULL, NULL },
        { "logs", do_logs, NULL, NULL },
        { "cluster", do_cluster, NULL, NULL },
        { "metrics", do_metrics, NULL, NULL },
        { "openapi", do_openapi, NULL, NULL },
        { "grpc-get", do_grpc_get, NULL, NULL },
        { "grpc-apply", do_grpc_apply, NULL, NULL },
        { "grpc-events", do_grpc_events, NULL, NULL },
        { "hello", do_hello, NULL, NULL },
        { "heartbeat", do_heartbeat, NULL, NULL },
        { "report", do_report, NULL, NULL },
};
/* Calls need a token. */
static const struct path token_paths[] = {
        { "token-create", do_token_create, NULL, after_token_create },
        { "token-list", do_token_list, NULL, NULL },
        { "with-token", do_with_token, NULL, NULL },
        { "token-stream", do_token_stream, NULL, NULL },
        { "wrong-token", do_wrong_token, NULL, NULL },
        { "wrong-role", do_wrong_role, NULL, NULL },
        { "grpc-with-token", do_grpc_with_token, NULL, NULL },
        { "grpc-wrong-token", do_grpc_wrong_token, NULL, NULL },
        { "token-revoke", do_token_revoke, before_token_revoke, after_token_revoke },
};
/* And TLS, with a CA that signs for newcomers. */
static const struct path join_paths[] = {
        { "trust", do_trust, NULL, NULL },
        { "join", do_join, before_join, after_join },
        { "renew", do_renew, make_request, NULL },
        { "tls-hello", do_hello, NULL, NULL },
};

/* ---- the tries ---- */

/* The server is well again: it answers, and its agent is heard. */
static void expect_recovery(struct rig *r, const char *label)
{
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = (char *)"hello";
        for (int64_t end = clock_mono_ns() + PATIENCE_MS * INT64_C(1000000);;) {
                if (r->agent && agent_is_closed(r->agent, 0, NULL))
                        agent_renew(r);
                int get = r->tls ? call(r, "GetWorkload", &ref.base)
                                 : exchange(r, "GET", "/workloads/hello", NULL, NULL),
                    put = r->tls ? 200 : exchange(r, "POST", "/workloads/hello/retry", NULL, NULL);
                if (get == 200 && (put == 200 || put == 409))
                        return;
                if (clock_mono_ns() > end)
                        fail_msg("%s: the next call does not work: %d, %d", label, get, put);
                if (r->agent)
                        agent_turn(r->agent, 20);
        }
}

static uint64_t try_path(struct rig *r, enum fault_kind kind, const struct path *p)
{
        uint64_t places = 0, idle = 0, step = want.at ? PLACES_MAX : 1;
        for (uint64_t n = want.at ? want.at : 1; n < PLACES_MAX && idle < 3; n += step) {
                char label[128];
                r->turn++;
                if (p->before)
                        p->before(r);
                fault_arm(kind, n);
                int status = p->act(r);
                const char *what = fault_disarm();
                snprintf(label, sizeof(label), "--path %s --kind %s --at %llu (%s)", p->name,
                         kind_names[kind], (unsigned long long)n, what ? what : "nothing");
                if (status < 0)
                        fail_msg("%s: silence", label);
                idle = what ? 0 : idle + 1;
                places += what != NULL;
                if (what)
                        expect_recovery(r, label);
                if (p->after)
                        p->after(r, status);
        }
        return places;
}

static void try_paths(struct rig *r, const struct path *paths, size_t n_paths)
{
        for (int kind = 0; kind < _FAULT_KINDS; kind++) {
                uint64_t places = 0;
                if (want.kind && strcmp(want.kind, kind_names[kind]) != 0)
                        continue;
                for (size_t i = 0; i < n_paths; i++) {
                        if (want.path && strcmp(want.path, paths[i].name) != 0)
                                continue;
                        uint64_t n = try_path(r, (enum fault_kind)kind, &paths[i]);
                        places += n;
                        if (getenv("TEST_VERBOSE"))
                                print_message("# %s %s: %llu\n", kind_names[kind], paths[i].name,
                                              (unsigned long long)n);
                }
                print_message("# %s: %llu places failed once\n", kind_names[kind],
                              (unsigned long long)places);
        }
}

static int load_one(void *ctx, const struct store_record *record, struct err *err)
{
        return core_load_record(ctx, record->key, record->data, record->len, err);
}
static int fold_one(void *ctx, const struct store_event *e, struct err *err)
{
        return core_fold(ctx, e->data, e->len, err);
}

/* What all this left behind is one consistent history. */
static void expect_sound(const char *dir)
{
        struct err err = { 0 };
        struct store *s = NULL;
        struct store_reader *reader = NULL;
        struct core_options opt;
        struct str a = STR_INIT, b = STR_INIT;
        uint64_t head = 0;
        core_options_default(&opt);
        struct core *loaded = core_create(&opt), *folded = core_create(&opt);
        if (store_open(fmt("sqlite:%s/berth.db", dir), false, &s, &err) < 0 ||
            store_load(s, load_one, loaded, &head, &err) < 0 || store_integrity(s, &err) < 0 ||
            store_reader_open(s, &reader, &err) < 0 ||
            store_reader_events(reader, 0, false, fold_one, folded, &err) < 0)
                fail_msg("the store: %s", err_line(&err));
        core_loaded(loaded, head);
        if (core_check(loaded, &err) < 0)
                fail_msg("%s", err_line(&err));
        core_dump(loaded, &a);
        core_dump(folded, &b);
        assert_string_equal(str_c(&a), str_c(&b));
        str_fini(&a);
        str_fini(&b);
        core_destroy(loaded);
        core_destroy(folded);
        store_reader_close(reader);
        store_close(s);
}

static void rig_end(struct rig *r)
{
        if (r->agent)
                agent_close(r->agent);
        server_end(r->f);
        expect_sound(r->f->dir);
        str_fini(&r->answer);
        str_fini(&r->joiner.request);
        tls_unref(r->joiner.certificate);
        tls_unref(r->tls);
}

static void one_failure_anywhere_is_survived(void **state)
{
        struct rig r = { .f = *state };
        agent_renew(&r);
        assert_non_null(agent_wait(r.agent, is_welcome, 5000));
        expect_status(r.f, "POST", "/workloads", HELLO, 201);
        try_paths(&r, plain_paths, ARRAY_LEN(plain_paths));
        rig_end(&r);
}

static void restart_with_tokens(struct rig *r)
{
        struct str first = STR_INIT;
        server_end(r->f);
        r->f->opt.auth = true;
        r->f->opt.max_refusals = 1000000; /* nobody is held up for having been refused */
        server_begin(r->f);
        assert_int_equal(file_read(fmt("%s/" ADMIN_TOKEN_FILE, r->f->dir), 4096, &first, NULL), 0);
        snprintf(r->admin, sizeof(r->admin), "%.*s", (int)strcspn(str_c(&first), "\n"),
                 str_c(&first));
        str_fini(&first);
}

/* R: A9 A12 C32 */
static void one_failure_lets_nobody_in_and_keeps_nobody_out(void **state)
{
        struct rig r = { .f = *state };
        expect_status(r.f, "POST", "/workloads", HELLO, 201);
        restart_with_tokens(&r);
        assert_int_equal(create_token(&r, "viewer"), 201);
        memcpy(r.viewer, r.secret, sizeof(r.viewer));
        try_paths(&r, token_paths, ARRAY_LEN(token_paths));
        rig_end(&r);
}

static void save(struct rig *r, const char *name, const struct str *text)
{
        struct err err = { 0 };
        if (file_write_atomic(fmt("%s/%s", r->f->dir, name), text->buf, text->len, 0600, &err) < 0)
                fail_msg("%s", err_line(&err));
}
static void issue(struct rig *r, const struct tls_pair *ca, const char *name, const char *uri)
{
        struct tls_pair pair = { 0 };
        struct err err = { 0 };
        struct tls_issue_options o = { .cn = name,
                                       .ips = (const char *const[]){ "127.0.0.1", NULL },
                                       .uris = (const char *const[]){ uri, NULL } };
        if (tls_issue(ca, &o, &pair, &err) < 0)
                fail_msg("%s", err_line(&err));
        save(r, fmt("%s.pem", name), &pair.cert);
        save(r, fmt("%s-key.pem", name), &pair.key);
        tls_pair_fini(&pair);
}
static void rig_client(struct rig *r, const char *name, struct tls **ret)
{
        char ca[200], cert[200], key[200];
        struct err err = { 0 };
        snprintf(ca, sizeof(ca), "%s/ca.pem", r->f->dir);
        snprintf(cert, sizeof(cert), "%s/%s.pem", r->f->dir, name);
        snprintf(key, sizeof(key), "%s/%s-key.pem", r->f->dir, name);
        struct tls_options o = { .ca_file = ca,
                                 .cert_file = name[0] ? cert : NULL,
                                 .key_file = name[0] ? key : NULL };
        if (tls_client_create(&o, ret, &err) < 0)
                fail_msg("%s", err_line(&err));
}

/* R: A9 A12 C32 */
static void one_failure_spoils_no_join(void **state)
{
        struct rig r = { .f = *state };
        struct tls_pair ca = { 0 };
        struct err err = { 0 };
        char ca_file[200], cert[200], key[200];
        expect_status(r.f, "POST", "/workloads", HELLO, 201);
        assert_int_equal(tls_make_ca(&(struct tls_issue_options){ .cn = "test CA" }, &ca, &err), 0);
        save(&r, "ca.pem", &ca.cert);
        save(&r, "ca-key.pem", &ca.key);
        issue(&r, &ca, "server", "spiffe://berth/server/s1");
        issue(&r, &ca, "n1", "spiffe://berth/node/n1");
        snprintf(ca_file, sizeof(ca_file), "%s/ca.pem", r.f->dir);
        snprintf(cert, sizeof(cert), "%s/server.pem", r.f->dir);
        snprintf(key, sizeof(key), "%s/server-key.pem", r.f->dir);
        r.f->opt.ca_dir = r.f->dir;
        r.f->opt.tls_ca = ca_file;
        r.f->opt.tls_cert = cert;
        r.f->opt.tls_key = key;
        restart_with_tokens(&r);
        rig_client(&r, "", &r.tls);
        rig_client(&r, "n1", &r.joiner.certificate);
        agent_renew(&r);
        assert_non_null(agent_wait(r.agent, is_welcome, 5000));
        try_paths(&r, join_paths, ARRAY_LEN(join_paths));
        rig_end(&r);
        tls_pair_fini(&ca);
}

int main(int argc, char **argv)
{
        for (int i = 1; i + 1 < argc; i += 2) {
                if (strcmp(argv[i], "--at") == 0)
                        want.at = strtoull(argv[i + 1], NULL, 10);
                else if (strcmp(argv[i], "--kind") == 0)
                        want.kind = argv[i + 1];
                else if (strcmp(argv[i], "--path") == 0)
                        want.path = argv[i + 1];
        }
        fault_spare_this_thread();
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(one_failure_anywhere_is_survived, server_setup,
                                                server_teardown),
                cmocka_unit_test_setup_teardown(one_failure_lets_nobody_in_and_keeps_nobody_out,
                                                server_setup, server_teardown),
                cmocka_unit_test_setup_teardown(one_failure_spoils_no_join, server_setup,
                                                server_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
