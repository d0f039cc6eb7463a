/* tests/failing_calls.c: a server on which one allocation or one system call fails, at every place of every kind of call. R: A9 A12 C35
 *
 * For each path (a row below) and each n: the n-th allocation (or system call) on the server's threads fails. The caller gets an answer or an end of its connection, never
 * silence; the next call works; and when all is done the store is sound, its records are the fold of its events, and the invariants hold. Under AddressSanitizer
 * (build-asan) nothing may leak either.
 *
 * usage: failing_calls [--every N] [--kind memory|call|interrupt] [--path NAME] [--at N]
 * By default every 5th place is tried, always the same ones. A failure names path, kind and n, which repeat it.
 */
#include "fault_point.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/addr.h"
#include "net/grpc.h"
#include "net/loop_memory.h"
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
#define PLACES_MAX 5000

static const char *const kind_names[_FAULT_KINDS] = { "memory", "call", "interrupt" };
static struct {
        uint64_t every, at;
        const char *kind, *path;
} want = { .every = 5 };

struct rig {
        struct fixture *f;
        struct agent *agent;
        uint32_t turn; /* grows with every try: fresh names */
};

/* ---- calls ------------------------------------------------------------------------------------------------------------------------------------- */

/* Sends one request and reads until `until` is there or the peer closes; the agent lives on meanwhile. The status; 0: the connection ended; -1: silence. */
static int exchange(struct rig *r, const char *method, const char *path, const char *body, const char *until)
{
        struct addr a;
        struct sockaddr_in sin = { .sin_family = AF_INET };
        _cleanup_(str_finip) struct str out = STR_INIT, in = STR_INIT;
        must(addr_parse(r->f->http, &a, NULL) == 0, "the server's address");
        sin.sin_port = htons(a.port);
        inet_pton(AF_INET, a.host, &sin.sin_addr);
        _cleanup_(fd_closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0)
                return 0;
        str_addf(&out, "%s %s HTTP/1.1\r\nHost: x\r\n%s", method, path, until ? "" : "Connection: close\r\n");
        if (body)
                str_addf(&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
        str_addf(&out, "\r\n%s", body ? body : "");
        if (send(fd, out.buf, out.len, MSG_NOSIGNAL) != (ssize_t)out.len)
                return 0;
        int status = 0;
        for (int64_t end = clock_mono_ns() + PATIENCE_MS * INT64_C(1000000); clock_mono_ns() < end;) {
                struct pollfd p = { .fd = fd, .events = POLLIN };
                char buf[16384];
                if (poll(&p, 1, r->agent ? 1 : 100) > 0) {
                        ssize_t n = recv(fd, buf, sizeof(buf), 0);
                        if (n > 0)
                                str_add(&in, buf, (size_t)n);
                        sscanf(str_c(&in), "HTTP/1.%*d %d", &status);
                        if (n <= 0 || (until && strstr(str_c(&in), until)) || (until && status >= 400))
                                return status;
                }
                if (r->agent)
                        agent_turn(r->agent, 1);
        }
        return -1;
}

static int call(struct rig *r, const char *method, const ProtobufCMessage *req)
{
        struct grpc_reply reply = { 0 };
        struct str packed = STR_INIT;
        struct err err = { 0 };
        pb_pack(&packed, req);
        int s =
            grpc_call_sync(r->f->grpc, NULL, NULL, fmt("/berth.v1.Control/%s", method), packed.buf, packed.len, PATIENCE_MS, &reply, &err);
        int status = s < 0 ? 0 : reply.status == GRPC_OK ? 200 : reply.status == GRPC_DEADLINE_EXCEEDED ? -1 : 500;
        grpc_reply_fini(&reply);
        str_fini(&packed);
        return status;
}

static void agent_renew(struct rig *r)
{
        if (r->agent)
                agent_close(r->agent);
        r->agent = agent_connect(r->f->grpc);
        agent_hello(r->agent, "n1");
}

/* ---- paths ------------------------------------------------------------------------------------------------------------------------------------- */

#define SPEC "\"spec\":{\"command\":[\"sleep\",\"%u\"]}}"

static int do_create(struct rig *r)
{
        return exchange(r, "POST", "/workloads", fmt("{\"id\":\"w%u\"," SPEC, r->turn, r->turn), NULL);
}
static int do_apply(struct rig *r)
{
        return exchange(r, "PUT", "/workloads/hello", fmt("{\"id\":\"hello\"," SPEC, r->turn), NULL);
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
        return exchange(r, "POST", r->turn % 2 ? "/workloads/hello/stop" : "/workloads/hello/start", NULL, NULL);
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
        return exchange(r, "POST", r->turn % 2 ? "/nodes/n1/cordon" : "/nodes/n1/uncordon", NULL, NULL);
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
        Pb__PlanUnit unit = PB__PLAN_UNIT__INIT;
        if (agent_is_closed(r->agent, 0, NULL))
                return 0;
        agent_report(r->agent, "stranger", &unit, PB__ACTUAL_STATE__E__Running);
        return do_heartbeat(r); /* comes after the report on the same stream */
}

static const struct path {
        const char *name;
        int (*act)(struct rig *r);
        void (*before)(struct rig *r);
} paths[] = {
        { "create", do_create, NULL },
        { "apply", do_apply, NULL },
        { "delete", do_delete, before_delete },
        { "get", do_get, NULL },
        { "list", do_list, NULL },
        { "stop-start", do_stop_start, NULL },
        { "retry", do_retry, NULL },
        { "explain", do_explain, NULL },
        { "cordon", do_cordon, NULL },
        { "nodes", do_nodes, NULL },
        { "events", do_events, NULL },
        { "event-stream", do_stream, NULL },
        { "logs", do_logs, NULL },
        { "cluster", do_cluster, NULL },
        { "metrics", do_metrics, NULL },
        { "openapi", do_openapi, NULL },
        { "grpc-get", do_grpc_get, NULL },
        { "grpc-apply", do_grpc_apply, NULL },
        { "grpc-events", do_grpc_events, NULL },
        { "hello", do_hello, NULL },
        { "heartbeat", do_heartbeat, NULL },
        { "report", do_report, NULL },
};

/* ---- the tries ----------------------------------------------------------------------------------------------------------------------------------- */

/* The server is well again: it answers, and its agent is heard. */
static void expect_recovery(struct rig *r, const char *label)
{
        for (int64_t end = clock_mono_ns() + PATIENCE_MS * INT64_C(1000000);;) {
                if (agent_is_closed(r->agent, 0, NULL))
                        agent_renew(r);
                int get = exchange(r, "GET", "/workloads/hello", NULL, NULL),
                    put = exchange(r, "POST", "/workloads/hello/retry", NULL, NULL);
                if (get == 200 && (put == 200 || put == 409))
                        return;
                if (clock_mono_ns() > end)
                        fail_msg("%s: the next call does not work: %d, %d", label, get, put);
                agent_turn(r->agent, 20);
        }
}

static uint64_t try_path(struct rig *r, enum fault_kind kind, const struct path *p)
{
        uint64_t places = 0, idle = 0;
        for (uint64_t n = want.at ? want.at : 1; n < PLACES_MAX && idle < 3; n += want.at ? PLACES_MAX : want.every) {
                char label[128];
                r->turn++;
                if (p->before)
                        p->before(r);
                fault_arm(kind, n);
                int status = p->act(r);
                const char *what = fault_disarm();
                snprintf(label, sizeof(label), "--path %s --kind %s --at %llu (%s)", p->name, kind_names[kind], (unsigned long long)n,
                         what ? what : "nothing");
                if (status < 0)
                        fail_msg("%s: silence", label);
                idle = what ? 0 : idle + 1;
                places += what != NULL;
                if (what)
                        expect_recovery(r, label);
        }
        return places;
}

static void try_kind(struct rig *r, enum fault_kind kind)
{
        uint64_t places = 0;
        if (want.kind && strcmp(want.kind, kind_names[kind]) != 0)
                return;
        for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
                if (want.path && strcmp(want.path, paths[i].name) != 0)
                        continue;
                uint64_t n = try_path(r, kind, &paths[i]);
                places += n;
                if (getenv("TEST_VERBOSE"))
                        print_message("# %s %s: %llu\n", kind_names[kind], paths[i].name, (unsigned long long)n);
        }
        print_message("# %s: %llu places failed once\n", kind_names[kind], (unsigned long long)places);
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
        if (store_open(fmt("sqlite:%s/berth.db", dir), false, &s, &err) < 0 || store_load(s, load_one, loaded, &head, &err) < 0 ||
            store_integrity(s, &err) < 0 || store_reader_open(s, &reader, &err) < 0 ||
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

static void one_failure_anywhere_is_survived(void **state)
{
        struct rig r = { .f = *state };
        agent_renew(&r);
        assert_non_null(agent_wait(r.agent, is_welcome, 5000));
        expect_status(r.f, "POST", "/workloads", HELLO, 201);
        for (int kind = 0; kind < _FAULT_KINDS; kind++)
                try_kind(&r, (enum fault_kind)kind);
        agent_close(r.agent);
        server_end(r.f);
        expect_sound(r.f->dir);
}

int main(int argc, char **argv)
{
        for (int i = 1; i + 1 < argc; i += 2) {
                if (strcmp(argv[i], "--every") == 0)
                        want.every = strtoull(argv[i + 1], NULL, 10);
                else if (strcmp(argv[i], "--at") == 0)
                        want.at = strtoull(argv[i + 1], NULL, 10);
                else if (strcmp(argv[i], "--kind") == 0)
                        want.kind = argv[i + 1];
                else if (strcmp(argv[i], "--path") == 0)
                        want.path = argv[i + 1];
        }
        if (want.every == 0)
                return 2;
        loop_memory_setup(); /* as berth's own main() does */
        fault_spare_this_thread();
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(one_failure_anywhere_is_survived, server_setup, server_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
