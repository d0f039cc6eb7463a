/* server/server_test.c: the whole server in this process, on an embedded store, with an agent that
 * the test plays. */
#include "server/server.h"

#include "api.pb-c.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/badinput.h"
#include "model/json.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "net/tls.h"
#include "server/testkit.h"
#include "store/store.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a store that can be away ---- */

static _Atomic int store_fault; /* an err_code; 0: none */
int __real_store_submit(struct store *s, const struct store_batch *batch, struct err *err);
int __wrap_store_submit(struct store *s, const struct store_batch *batch, struct err *err);
int __wrap_store_submit(struct store *s, const struct store_batch *batch, struct err *err)
{
        int code = atomic_load(&store_fault);
        if (code != 0)
                return err_set(err, (enum err_code)code, .msg = "injected");
        return __real_store_submit(s, batch, err);
}

/* ---- and one that is slow to read ---- */

static _Atomic int hop_ms; /* what each event of a chain takes */
static _Atomic unsigned hops;
int __real_store_reader_event(struct store_reader *r, uint64_t seq, store_event_fn fn, void *ctx,
                              struct err *err);
int __wrap_store_reader_event(struct store_reader *r, uint64_t seq, store_event_fn fn, void *ctx,
                              struct err *err);
int __wrap_store_reader_event(struct store_reader *r, uint64_t seq, store_event_fn fn, void *ctx,
                              struct err *err)
{
        int ms = atomic_load(&hop_ms);
        atomic_fetch_add(&hops, 1);
        if (ms > 0)
                nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 },
                          NULL);
        return __real_store_reader_event(r, seq, fn, ctx, err);
}

static int setup(void **state)
{
        atomic_store(&store_fault, 0);
        atomic_store(&hop_ms, 0);
        return server_setup(state);
}

static int teardown(void **state)
{
        atomic_store(&store_fault, 0);
        return server_teardown(state);
}

/* R: A4 C2 */
static void it_says_where_it_listens(void **state)
{
        struct fixture *f = *state;
        struct str text = STR_INIT;
        char path[256];
        snprintf(path, sizeof(path), "%s/server.address", f->dir);
        assert_int_equal(file_read(path, 4096, &text, NULL), 0);
        assert_non_null(strstr(str_c(&text), fmt("http=%s\n", f->http)));
        assert_non_null(strstr(str_c(&text), fmt("grpc=%s\n", f->grpc)));
        str_fini(&text);
        struct http_answer a = expect_http(f, "GET", "/health", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), "\"status\":\"ok\""));
        http_answer_fini(&a);
        expect_status(f, "GET", "/", NULL, 200);
        expect_status(f, "GET", "/v1", NULL, 200);
        expect_status(f, "GET", "/openapi.json", NULL, 200);
        assert_true(head_of(f) == 1); /* the cluster was created, and that is durable */
        a = expect_http(f, "GET", "/metrics", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), "berth_commits_total 1\n"));
        http_answer_fini(&a);
        server_end(f);
        assert_false(file_exists(path));
}

/* R: A4 */
static void a_second_server_on_the_same_store_is_refused(void **state)
{
        struct fixture *f = *state;
        struct server *second = NULL;
        struct err err = { 0 };
        assert_true(server_start(&f->opt, &second, &err) < 0);
        assert_null(second);
        assert_true(err.msg[0] != 0);
        expect_status(f, "GET", "/health", NULL, 200);
}

/* R: A9 */
static void an_address_in_use_is_a_clear_error(void **state)
{
        struct fixture *f = *state;
        struct server *second = NULL;
        struct server_options opt = f->opt;
        struct err err = { 0 };
        opt.data_dir = NULL;
        opt.store_url = "memory:";
        opt.http_address = f->http;
        assert_true(server_start(&opt, &second, &err) < 0);
        assert_null(second);
        assert_true(err.hint[0] != 0);
}

/* R: C2 C5 A10 */
static void workloads_by_rest(void **state)
{
        struct fixture *f = *state;
        struct http_answer a = expect_http(
            f, "POST", "/workloads", "X-Request-Id: req-1\r\nX-Berth-Actor: alice\r\n", HELLO, 201);
        assert_string_equal(http_header_of(&a, "Location"), "/v1/workloads/hello");
        assert_string_equal(http_header_of(&a, "X-Request-Id"), "req-1");
        char etag[64], headers[128];
        snprintf(etag, sizeof(etag), "%s", http_header_of(&a, "ETag"));
        assert_true(etag[0] == '"');
        assert_non_null(strstr(str_c(&a.body), "\"id\":\"hello\""));
        http_answer_fini(&a);

        expect_status(f, "POST", "/v1/workloads", HELLO, 200); /* the same again */
        a = expect_http(f, "POST", "/workloads", "", OTHER, 409);
        assert_non_null(strstr(str_c(&a.body), "\"hint\""));
        assert_non_null(strstr(str_c(&a.body), "\"request_id\""));
        http_answer_fini(&a);

        snprintf(headers, sizeof(headers), "If-Match: %s\r\n", etag);
        a = expect_http(f, "PUT", "/workloads/hello", headers, OTHER, 200);
        http_answer_fini(&a);
        /* the loser of two writers */
        a = expect_http(f, "PUT", "/workloads/hello", headers, HELLO, 409);
        http_answer_fini(&a);

        a = expect_http(f, "HEAD", "/workloads/hello", "", NULL, 200);
        assert_int_equal(a.body.len, 0);
        http_answer_fini(&a);
        a = expect_http(f, "GET", "/workloads?prefix=hel&limit=10", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), "\"items\":[{"));
        http_answer_fini(&a);
        a = expect_http(f, "GET", "/workloads/nothere", "", NULL, 404);
        assert_non_null(strstr(str_c(&a.body), "\"code\":\"not_found\""));
        http_answer_fini(&a);
        expect_status(f, "GET", "/workloads/hello/explain", NULL, 200);
        expect_status(f, "POST", "/workloads/hello/stop", NULL, 200);
        expect_status(f, "POST", "/workloads/hello/start", NULL, 200);
        expect_status(f, "PATCH", "/workloads/hello", NULL, 405);
        expect_status(f, "GET", "/nodes", NULL, 200);
        expect_status(f, "GET", "/nodes/n1", NULL, 404);
        expect_status(f, "GET", "/cluster", NULL, 200);
        expect_status(f, "DELETE", "/workloads/hello", NULL, 200);

        a = expect_http(f, "GET", "/events?type=WorkloadApplied", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), "\"request_id\":\"req-1\""));
        assert_non_null(strstr(str_c(&a.body), "\"actor\":\"alice\""));
        http_answer_fini(&a);
}

/* R: A9 */
static void bad_input_changes_nothing(void **state)
{
        static const char *const bad[][4] = {
                { "POST", "/workloads", "{", "" },
                { "POST", "/workloads", "{\"id\":\"a b\",\"spec\":{\"command\":[\"x\"]}}", "id" },
                { "POST", "/workloads", "{\"id\":\"a\",\"spec\":{\"comand\":[\"x\"]}}",
                  "spec.comand" },
                { "PUT", "/workloads/x", "{\"id\":\"y\",\"spec\":{\"command\":[\"x\"]}}", "id" },
                { "GET", "/workloads?limit=-1", NULL, "limit" },
                { "GET", "/workloads?selector=%3D%3D", NULL, "selector" },
                { "GET", "/events?type=NodeLots", NULL, "type" },
                { "GET", "/events?sinse=1", NULL, "sinse" },
        };
        struct fixture *f = *state;
        uint64_t head = head_of(f);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                struct http_answer a = expect_http(f, bad[i][0], bad[i][1], "", bad[i][2], 400);
                if (bad[i][3][0] && !strstr(str_c(&a.body), fmt("\"path\":\"%s\"", bad[i][3])))
                        fail_msg("%s %s: %s", bad[i][0], bad[i][1], str_c(&a.body));
                http_answer_fini(&a);
        }
        struct http_answer a =
            expect_http(f, "POST", "/workloads", "Origin: http://evil.example\r\n", HELLO, 403);
        http_answer_fini(&a);
        assert_int_equal(head_of(f), head);
}

static int call_grpc(struct fixture *f, const char *method, const ProtobufCMessage *req,
                     struct grpc_reply *reply)
{
        struct str s = STR_INIT;
        struct err err = { 0 };
        pb_pack(&s, req);
        if (grpc_call_sync(f->grpc, NULL, NULL, fmt("/berth.v1.Control/%s", method), str_c(&s),
                           s.len, 10000, reply, &err) < 0)
                fail_msg("%s: %s", method, err_line(&err));
        str_fini(&s);
        return (int)reply->status;
}

/* R: C2 A9 */
static void the_same_by_grpc(void **state)
{
        struct fixture *f = *state;
        struct grpc_reply reply = { 0 };
        struct arena arena = ARENA_INIT;
        expect_status(f, "POST", "/workloads", HELLO, 201);
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = (char *)"hello";
        assert_int_equal(call_grpc(f, "GetWorkload", &ref.base, &reply), GRPC_OK);
        ProtobufCMessage *m = NULL;
        assert_int_equal(
            pb_unpack(&pb__workload__descriptor, reply.data.buf, reply.data.len, &arena, &m, NULL),
            0);
        assert_string_equal(((Pb__Workload *)m)->id, "hello");
        assert_int_equal(((Pb__Workload *)m)->resources->cpu, 500);
        grpc_reply_fini(&reply);

        ref.id = (char *)"nothere";
        assert_int_equal(call_grpc(f, "GetWorkload", &ref.base, &reply), GRPC_NOT_FOUND);
        assert_int_equal(
            pb_unpack(&pb__error__descriptor, reply.error.buf, reply.error.len, &arena, &m, NULL),
            0);
        assert_string_equal(((Pb__Error *)m)->code, "not_found");
        assert_true(((Pb__Error *)m)->request_id[0] != 0);
        grpc_reply_fini(&reply);

        Pb__ApplyWorkloadRequest apply = PB__APPLY_WORKLOAD_REQUEST__INIT;
        assert_int_equal(call_grpc(f, "ApplyWorkload", &apply.base, &reply), GRPC_INVALID_ARGUMENT);
        grpc_reply_fini(&reply);
        Pb__Empty empty = PB__EMPTY__INIT;
        assert_int_equal(call_grpc(f, "GetCluster", &empty.base, &reply), GRPC_OK);
        assert_int_equal(pb_unpack(&pb__cluster_info__descriptor, reply.data.buf, reply.data.len,
                                   &arena, &m, NULL),
                         0);
        assert_string_equal(((Pb__ClusterInfo *)m)->http_address, f->http);
        assert_true(((Pb__ClusterInfo *)m)->cluster_id[0] != 0);
        grpc_reply_fini(&reply);
        Pb__ListEventsRequest events = PB__LIST_EVENTS_REQUEST__INIT;
        events.workload = (char *)"hello";
        assert_int_equal(call_grpc(f, "ListEvents", &events.base, &reply), GRPC_OK);
        assert_int_equal(pb_unpack(&pb__list_events_response__descriptor, reply.data.buf,
                                   reply.data.len, &arena, &m, NULL),
                         0);
        assert_true(((Pb__ListEventsResponse *)m)->n_items > 0);
        grpc_reply_fini(&reply);
        assert_int_equal(call_grpc(f, "NoSuchCall", &empty.base, &reply), GRPC_UNIMPLEMENTED);
        grpc_reply_fini(&reply);
        arena_fini(&arena);
}

/* R: C29 X4 */
static void event_streams_resume_without_gap_or_duplicate(void **state)
{
        struct fixture *f = *state;
        struct str text = STR_INIT;
        for (int i = 0; i < 5; i++)
                expect_status(f, "POST", "/workloads",
                              fmt("{\"id\":\"a%d\",\"spec\":{\"command\":[\"x\"]}}", i), 201);
        int fd = http_open(f->http, "/v1/events/stream?type=WorkloadApplied", "");
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"a4\"", 5000)); /* history */
        for (int i = 5; i < 10; i++)
                expect_status(f, "POST", "/workloads",
                              fmt("{\"id\":\"a%d\",\"spec\":{\"command\":[\"x\"]}}", i), 201);
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"a9\"", 5000)); /* live */
        close(fd);
        uint64_t last = 0, ids[64], n = 0;
        for (const char *p = strstr(str_c(&text), "\nid: "); p; p = strstr(p + 1, "\nid: ")) {
                ids[n] = strtoull(p + 5, NULL, 10);
                assert_true(ids[n] > last);
                last = ids[n++];
        }
        assert_int_equal(n, 10);
        assert_null(strstr(str_c(&text), "WorkloadPending"));

        /* resume after the seventh */
        str_clear(&text);
        fd = http_open(f->http, "/events/stream?type=WorkloadApplied&since=1",
                       fmt("Last-Event-ID: %llu\r\n", (unsigned long long)ids[6]));
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"a9\"", 5000));
        assert_null(strstr(str_c(&text), "\"a6\""));
        assert_non_null(strstr(str_c(&text), "\"a7\""));
        close(fd);
        str_fini(&text);
}

/* Where history ends and live begins nothing is lost and nothing comes twice. R: C29 */
static void a_stream_has_no_seam_between_history_and_live(void **state)
{
        struct fixture *f = *state;
        struct str text = STR_INIT;
        for (int i = 0; i < 3; i++)
                expect_status(f, "POST", "/workloads",
                              fmt("{\"id\":\"a%d\",\"spec\":{\"command\":[\"x\"]}}", i), 201);
        server_end(f);
        server_begin(f); /* all of it is in the store only */
        int fd = http_open(f->http, "/v1/events/stream", "");
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"a2\"", 5000));
        for (int i = 3; i < 6; i++)
                expect_status(f, "POST", "/workloads",
                              fmt("{\"id\":\"a%d\",\"spec\":{\"command\":[\"x\"]}}", i), 201);
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"a5\"", 5000));
        close(fd);
        uint64_t want = 1;
        for (const char *p = strstr(str_c(&text), "\nid: "); p; p = strstr(p + 1, "\nid: "))
                assert_int_equal(strtoull(p + 5, NULL, 10), want++);
        assert_true(want > 6);
        str_fini(&text);
}

/* R: C29 */
static void a_list_of_events_has_a_cursor_both_ways(void **state)
{
        struct fixture *f = *state;
        for (int i = 0; i < 7; i++)
                expect_status(f, "POST", "/workloads",
                              fmt("{\"id\":\"a%d\",\"spec\":{\"command\":[\"x\"]}}", i), 201);
        struct http_answer a =
            expect_http(f, "GET", "/events?type=WorkloadApplied&limit=3", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), "\"a2\""));
        assert_null(strstr(str_c(&a.body), "\"a3\""));
        const char *next = strstr(str_c(&a.body), "\"next_since\":");
        assert_non_null(next);
        char path[128];
        snprintf(path, sizeof(path), "/events?type=WorkloadApplied&limit=3&since=%llu",
                 strtoull(next + 13, NULL, 10));
        http_answer_fini(&a);
        a = expect_http(f, "GET", path, "", NULL, 200);
        assert_null(strstr(str_c(&a.body), "\"a2\""));
        assert_non_null(strstr(str_c(&a.body), "\"a3\""));
        http_answer_fini(&a);
        a = expect_http(f, "GET", "/events?type=WorkloadApplied&limit=2&newest_first", "", NULL,
                        200);
        assert_non_null(strstr(str_c(&a.body), "\"a6\""));
        assert_null(strstr(str_c(&a.body), "\"a4\""));
        http_answer_fini(&a);
        a = expect_http(f, "GET", "/events?workload=a3", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), "WorkloadApplied"));
        assert_null(strstr(str_c(&a.body), "\"workload_id\":\"a4\""));
        http_answer_fini(&a);
}

/* ---- durability ---- */

/* R: A5 A12 */
static void what_was_acknowledged_is_there_after_a_restart(void **state)
{
        struct fixture *f = *state;
        for (int i = 0; i < 20; i++)
                expect_status(f, "POST", "/workloads",
                              fmt("{\"id\":\"w%d\",\"spec\":{\"command\":[\"x\"]}}", i), 201);
        uint64_t head = head_of(f);
        server_end(f);
        server_begin(f);
        for (int i = 0; i < 20; i++)
                expect_status(f, "GET", fmt("/workloads/w%d", i), NULL, 200);
        assert_true(head_of(f) >= head);
        struct str text = STR_INIT;
        int fd = http_open(f->http, "/events/stream?type=WorkloadApplied", "");
        /* history from before the restart */
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"w19\"", 5000));
        close(fd);
        str_fini(&text);
}

/* R: A6 */
static void nothing_to_do_writes_nothing(void **state)
{
        struct fixture *f = *state;
        f->opt.core.pass_ms = 20;
        server_end(f);
        server_begin(f);
        struct agent *a = agent_with_hello(f);
        agent_turn(a, 50);
        uint64_t head = head_of(f);
        for (int i = 0; i < 30; i++) {
                Pb__Heartbeat beat = PB__HEARTBEAT__INIT;
                Pb__NodeUsage usage = PB__NODE_USAGE__INIT;
                Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
                usage.cpu_used = 100 + i;
                usage.memory_used_mb = 1000 + i;
                beat.usage = &usage;
                beat.units_count = 1;
                m.heartbeat = &beat;
                agent_send(a, &m);
                assert_non_null(agent_wait(a, is_beat, 5000));
        }
        assert_int_equal(head_of(f), head);
        agent_close(a);
}

/* The reader works for everybody: what nobody waits for any more is no part of that. R: A11 A12 */
static void history_ends_when_whoever_asked_over_http_has_closed(void **state)
{
        enum { EVENTS = 60, HOP_MS = 200 };
        struct fixture *f = *state;
        server_end(f);
        f->opt.request_timeout_ms = 60000;
        server_begin(f);
        for (int i = 0; i < EVENTS; i++)
                expect_status(f, "PUT", "/workloads/hello", i % 2 ? OTHER : HELLO,
                              i == 0 ? 201 : 200);
        atomic_store(&hops, 0);
        atomic_store(&hop_ms, HOP_MS);
        int fd = http_open(f->http, "/v1/events?workload=hello&limit=1000", "");
        while (atomic_load(&hops) == 0)
                nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        close(fd);
        /* by the same thread, afterwards */
        expect_status(f, "GET", "/v1/events?limit=1", NULL, 200);
        assert_in_range(atomic_load(&hops), 1, EVENTS - 1);
}

/* R: C35 A11 */
static void a_store_that_is_away_refuses_changes_and_goes_on_showing_what_is_committed(void **state)
{
        struct fixture *f = *state;
        struct agent *agent = agent_with_hello(f);
        uint64_t head = head_of(f);
        atomic_store(&store_fault, ERR_UNAVAILABLE);
        int64_t t0 = clock_mono_ns();
        /* decided, and not durable */
        struct http_answer a = http_do(f->http, "PUT", "/workloads/hello", "", OTHER);
        assert_int_equal(a.status, 503);
        assert_true(http_header_of(&a, "Retry-After")[0] != 0);
        assert_non_null(strstr(str_c(&a.body), "may still happen"));
        http_answer_fini(&a);
        /* about two seconds, and not the deadline of ten */
        assert_true(clock_mono_ns() - t0 < INT64_C(6000000000));
        t0 = clock_mono_ns();
        a = expect_http(f, "POST", "/workloads", "",
                        "{\"id\":\"late\",\"spec\":{\"command\":[\"true\"]}}", 503);
        assert_true(http_header_of(&a, "Retry-After")[0] != 0);
        assert_non_null(strstr(str_c(&a.body), "nothing was changed"));
        http_answer_fini(&a);
        /* at once: it is known to be away */
        assert_true(clock_mono_ns() - t0 < INT64_C(2000000000));
        a = expect_http(f, "GET", "/health", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), "\"status\":\"degraded\""));
        http_answer_fini(&a);
        a = expect_http(f, "GET", "/metrics", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), "berth_store_degraded 1\n"));
        http_answer_fini(&a);
        /* everything that only looks is answered, from what is committed */
        a = expect_http(f, "GET", "/workloads/hello", "", NULL, 200);
        assert_null(strstr(str_c(&a.body), "2000")); /* that may yet be lost */
        assert_non_null(strstr(str_c(&a.body), "\"phase\":\"Running\""));
        http_answer_fini(&a);
        a = expect_http(f, "GET", "/workloads", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), fmt("\"resource_version\":%llu,\"total\":1",
                                                   (unsigned long long)head)));
        http_answer_fini(&a);
        a = expect_http(f, "GET", "/nodes", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), "\"connected\":true"));
        http_answer_fini(&a);
        expect_status(f, "GET", "/workloads/hello/explain", NULL, 200);
        expect_status(f, "GET", "/cluster", NULL, 200);
        expect_status(f, "GET", "/events?workload=hello", NULL, 200);
        expect_status(f, "GET", "/workloads/nobody", NULL, 404);
        expect_status(f, "POST", "/plan", "{\"drain_node\":\"n1\"}", 503);

        atomic_store(&store_fault, 0);
        wait_for(f, agent, "/health", "\"status\":\"ok\"");
        /* sent before the store went away: done once it was back */
        wait_for(f, agent, "/workloads/hello", "2000");
        expect_status(f, "GET", "/workloads/late", NULL, 404); /* refused is refused */
        expect_status(f, "POST", "/workloads",
                      "{\"id\":\"late\",\"spec\":{\"command\":[\"true\"]}}", 201);
        agent_close(agent);
}

/* R: X1 */
static void a_plan_changes_nothing_and_waits_for_what_it_saw(void **state)
{
        struct fixture *f = *state;
        server_end(f);
        f->opt.request_timeout_ms = 1000;
        server_begin(f);
        struct agent *agent = agent_with_hello(f);
        uint64_t head = head_of(f);
        struct http_answer a = expect_http(f, "POST", "/plan", "", "{\"drain_node\":\"n1\"}", 200);
        assert_non_null(strstr(str_c(&a.body), fmt("\"index\":%llu,\"summary\":\"1 could not move",
                                                   (unsigned long long)head)));
        http_answer_fini(&a);
        assert_int_equal(head_of(f), head);
        /* what it saw may yet be lost: it is not shown */
        atomic_store(&store_fault, ERR_UNAVAILABLE);
        a = http_do(f->http, "PUT", "/workloads/hello", "", OTHER);
        http_answer_fini(&a);
        a = expect_http(f, "POST", "/plan", "", "{\"drain_node\":\"n1\"}", 503);
        http_answer_fini(&a);
        atomic_store(&store_fault, 0);
        agent_close(agent);
}

static void beat(struct agent *a, int times)
{
        for (int i = 0; i < times; i++) {
                Pb__Heartbeat b = PB__HEARTBEAT__INIT;
                Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
                b.units_count = 1;
                m.heartbeat = &b;
                agent_send(a, &m);
                agent_turn(a, 100);
        }
}

/* R: C11 C35 */
static void no_node_is_lost_because_the_store_was_away(void **state)
{
        struct fixture *f = *state;
        server_end(f);
        f->opt.core.heartbeat_ms = 300;
        f->opt.core.silence_beats = 3;
        f->opt.request_timeout_ms = 200;
        server_begin(f);
        struct agent *a = agent_with_hello(f);
        beat(a, 6);
        atomic_store(&store_fault, ERR_UNAVAILABLE);
        expect_status(f, "POST", "/workloads", "{\"id\":\"late\",\"spec\":{\"command\":[\"x\"]}}",
                      503);
        /* more than two silence limits, in which nothing would have been heard */
        agent_turn(a, 2000);
        atomic_store(&store_fault, 0);
        wait_for(f, a, "/health", "\"status\":\"ok\"");
        agent_turn(a, 300);
        beat(a, 10);
        wait_for(f, a, "/nodes/n1", "\"status\":\"Ready\"");
        struct http_answer r = expect_http(f, "GET", "/events?type=NodeLost", "", NULL, 200);
        assert_null(strstr(str_c(&r.body), "NodeLost"));
        http_answer_fini(&r);
        agent_close(a);
}

/* R: C29 */
static void old_events_are_dropped_and_a_stream_says_so(void **state)
{
        struct fixture *f = *state;
        server_end(f);
        f->opt.retention[EVENT_LIFECYCLE].events = 20;
        server_begin(f);
        for (int i = 0; i < 60; i++)
                expect_status(f, "POST", "/workloads",
                              fmt("{\"id\":\"a%d\",\"spec\":{\"command\":[\"x\"]}}", i), 201);
        wait_for(f, NULL, "/workloads/a0", "\"id\":\"a0\""); /* never the state */
        bool pruned = false;
        for (int i = 0; i < 100 && !pruned; i++) {
                struct http_answer a = expect_http(f, "GET", "/metrics", "", NULL, 200);
                pruned = strstr(str_c(&a.body), "berth_pruned_events_total ") &&
                         !strstr(str_c(&a.body), "berth_pruned_events_total 0\n");
                http_answer_fini(&a);
                usleep(100000);
        }
        assert_true(pruned);
        struct str text = STR_INIT;
        int fd = http_open(f->http, "/events/stream?since=3", "");
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"a59\"", 5000));
        /* this server still holds them in memory: no gap needed */
        close(fd);
        server_end(f);
        server_begin(f);
        str_clear(&text);
        fd = http_open(f->http, "/events/stream?since=3", "");
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"a59\"", 5000));
        assert_non_null(strstr(str_c(&text), "event: gap\ndata: {\"from\":4,"));
        close(fd);
        str_clear(&text);
        /* all that is kept: what came before is no surprise */
        fd = http_open(f->http, "/events/stream", "");
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"a59\"", 5000));
        assert_null(strstr(str_c(&text), "event: gap"));
        close(fd);
        str_fini(&text);
}

/* What is kept of an audit comes in its place, and the gap behind it; then it goes on with the
 * log. */
/* R: A14 C29 */
static void a_stream_has_what_is_kept_below_the_log(void **state)
{
        struct fixture *f = *state;
        struct str text = STR_INIT;
        server_end(f);
        f->opt.retention[EVENT_LIFECYCLE].events = 20;
        server_begin(f);
        expect_status(f, "POST", "/workloads", "{\"id\":\"first\",\"spec\":{\"command\":[\"x\"]}}",
                      201);
        uint64_t before = head_of(f);
        expect_status(f, "POST", "/v1/tokens", "{\"name\":\"ann\",\"role\":\"viewer\"}", 201);
        uint64_t audit = head_of(f);
        assert_int_equal(audit, before + 1);
        for (int i = 0; i < 60; i++)
                expect_status(f, "POST", "/workloads",
                              fmt("{\"id\":\"a%d\",\"spec\":{\"command\":[\"x\"]}}", i), 201);
        bool kept = false;
        for (int i = 0; i < 100 && !kept; i++) {
                struct http_answer a = expect_http(f, "GET", "/metrics", "", NULL, 200);
                kept = strstr(str_c(&a.body), "berth_kept_events{class=\"audit\"} ") &&
                       !strstr(str_c(&a.body), "berth_kept_events{class=\"audit\"} 0\n");
                http_answer_fini(&a);
                usleep(100000);
        }
        assert_true(kept);
        server_end(f);
        server_begin(f);
        int fd = http_open(f->http,
                           fmt("/events/stream?since=%llu", (unsigned long long)before - 1), "");
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"a59\"", 5000));
        close(fd);
        const char *token = strstr(str_c(&text), "event: TokenCreated"),
                   *gap = strstr(str_c(&text), "event: gap"),
                   *log = strstr(str_c(&text), "event: WorkloadApplied");
        assert_non_null(token);
        assert_true(gap && log && token < gap && gap < log);
        assert_non_null(strstr(gap, fmt("{\"from\":%llu,", (unsigned long long)before)));
        /* whoever had seen the audit goes on behind it */
        str_clear(&text);
        fd = http_open(f->http, fmt("/events/stream?since=%llu", (unsigned long long)audit), "");
        assert_true(http_read_until(fd, &text, "\"workload_id\":\"a59\"", 5000));
        close(fd);
        assert_null(strstr(str_c(&text), "TokenCreated"));
        assert_non_null(strstr(str_c(&text), "event: gap"));
        /* and a list has it too */
        struct http_answer r = expect_http(f, "GET", "/events?type=TokenCreated", "", NULL, 200);
        assert_non_null(strstr(str_c(&r.body), "\"name\":\"ann\""));
        http_answer_fini(&r);
        str_fini(&text);
}

/* R: C2 C5 A9 */
static void many_workloads_in_one_call_have_a_result_each(void **state)
{
        struct fixture *f = *state;
        expect_status(f, "POST", "/workloads", HELLO, 201);
        struct http_answer a = expect_http(
            f, "POST", "/v1/workloads:batch", "",
            "{\"items\":[{\"id\":\"b1\",\"spec\":{\"command\":[\"x\"]}}," HELLO
            ",{\"id\":\"hello\",\"resource_version\":1,\"spec\":{\"command\":[\"y\"]}}]}",
            200);
        assert_non_null(strstr(str_c(&a.body), "{\"id\":\"b1\",\"outcome\":\"created\""));
        assert_non_null(strstr(str_c(&a.body), "{\"id\":\"hello\",\"outcome\":\"unchanged\""));
        assert_non_null(strstr(str_c(&a.body), "\"code\":\"conflict\""));
        assert_non_null(strstr(str_c(&a.body), "\"path\":\"items[2]\""));
        assert_non_null(strstr(str_c(&a.body), "\"failed\":1"));
        http_answer_fini(&a);

        /* One that cannot be is enough to refuse all: nothing changed. */
        uint64_t head = head_of(f);
        a = expect_http(
            f, "POST", "/workloads:batch", "",
            "{\"items\":[{\"id\":\"b2\",\"spec\":{\"command\":[\"x\"]}},{\"id\":\"b3\"}]}", 400);
        assert_non_null(strstr(str_c(&a.body), "\"path\":\"items[1].type\""));
        http_answer_fini(&a);
        expect_status(f, "POST", "/workloads:batch", "{\"items\":[]}", 400);
        expect_status(f, "POST", "/workloads:batch?create_only=true", "{\"items\":[]}", 400);
        assert_int_equal(head_of(f), head);

        struct grpc_reply reply = { 0 };
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        Pb__Workload one = PB__WORKLOAD__INIT, *items[1001];
        Pb__Spec spec = PB__SPEC__INIT;
        char *command[] = { "x" };
        spec.command = command;
        spec.n_command = 1;
        one.id = "b1";
        one.spec = &spec;
        for (size_t i = 0; i < ARRAY_LEN(items); i++)
                items[i] = &one;
        Pb__ApplyWorkloadsRequest req = PB__APPLY_WORKLOADS_REQUEST__INIT;
        req.items = items;
        req.n_items = 1000;
        assert_int_equal(call_grpc(f, "ApplyWorkloads", &req.base, &reply), GRPC_OK);
        assert_int_equal(pb_unpack(&pb__apply_workloads_response__descriptor, reply.data.buf,
                                   reply.data.len, &arena, &m, NULL),
                         0);
        assert_int_equal(((Pb__ApplyWorkloadsResponse *)m)->n_results, 1000);
        assert_string_equal(((Pb__ApplyWorkloadsResponse *)m)->results[999]->outcome, "unchanged");
        grpc_reply_fini(&reply);
        req.n_items = 1001;
        assert_int_equal(call_grpc(f, "ApplyWorkloads", &req.base, &reply), GRPC_INVALID_ARGUMENT);
        grpc_reply_fini(&reply);
        arena_fini(&arena);
        assert_int_equal(head_of(f), head);
}

static uint64_t commits_of(struct fixture *f)
{
        struct http_answer a = expect_http(f, "GET", "/metrics", "", NULL, 200);
        const char *at = strstr(str_c(&a.body), "\nberth_commits_total ");
        assert_non_null(at);
        uint64_t n = strtoull(at + strlen("\nberth_commits_total "), NULL, 10);
        http_answer_fini(&a);
        return n;
}

/* Its caller waits for the last of them. A store that takes several at a time gets smaller ones
 * otherwise.  R: A4 A9 */
static void a_large_call_is_few_commits(void **state)
{
        struct fixture *f = *state;
        struct str body = STR_INIT;
        server_end(f);
        f->opt.store_url = "memory:";
        server_begin(f);
        for (int i = 0; i < 20; i++) {
                str_clear(&body);
                str_addf(&body, "{\"id\":\"s%d\",\"spec\":{\"command\":[\"x\"]}}", i);
                expect_status(f, "POST", "/workloads", str_c(&body), 201);
        }
        str_clear(&body);
        for (int i = 0; i < 1000; i++)
                str_addf(&body, "%s{\"id\":\"l%d\",\"spec\":{\"command\":[\"x\"]}}",
                         i ? "," : "{\"items\":[", i);
        str_adds(&body, "]}");
        uint64_t before = commits_of(f);
        expect_status(f, "POST", "/workloads:batch", str_c(&body), 200);
        assert_in_range(commits_of(f) - before, 1, 3);
        str_fini(&body);
}

/* Each of many counts as a call where calls are limited. R: A11 */
static void many_in_one_call_cannot_pass_a_limit(void **state)
{
        struct fixture *f = *state;
        server_end(f);
        f->opt.max_calls = 3;
        server_begin(f);
        struct str body = STR_INIT;
        for (int i = 0; i < 4; i++)
                str_addf(&body, "%s{\"id\":\"m%d\",\"spec\":{\"command\":[\"x\"]}}",
                         i ? "," : "{\"items\":[", i);
        str_adds(&body, "]}");
        struct http_answer a = expect_http(f, "POST", "/workloads:batch", "", str_c(&body), 429);
        assert_string_equal(http_header_of(&a, "Retry-After"), "1");
        http_answer_fini(&a);
        expect_status(f, "GET", "/workloads/m0", NULL, 404);
        str_clear(&body);
        str_adds(&body, "{\"items\":[{\"id\":\"m0\",\"spec\":{\"command\":[\"x\"]}},{\"id\":\"m1\","
                        "\"spec\":{\"command\":[\"x\"]}}]}");
        for (int i = 0; i < 4; i++) /* what was counted is given back */
                expect_status(f, "POST", "/workloads:batch", str_c(&body), 200);
        str_fini(&body);
}

/* R: A11 C35 */
static void too_many_calls_are_told_to_come_back(void **state)
{
        struct fixture *f = *state;
        server_end(f);
        f->opt.max_inputs = 4;
        f->opt.request_timeout_ms = 1500;
        server_begin(f);
        atomic_store(&store_fault, ERR_UNAVAILABLE);
        int fds[16];
        /* reads only: the first write below freezes the ring */
        fds[0] = http_open(f->http, "/workloads/x", "");
        struct str text = STR_INIT;
        assert_true(http_read_until(fds[0], &text, "\r\n\r\n", 5000));
        close(fds[0]);
        struct http_answer a = http_do(f->http, "POST", "/workloads", "", HELLO);
        assert_int_equal(a.status, 503);
        http_answer_fini(&a);
        /* Four wait and the others are refused, unless the ring wakes up just then and answers some
         * from what is committed. */
        size_t refused = 0;
        for (int round = 0; round < 20 && refused == 0; round++) {
                for (int i = 0; i < 16; i++)
                        fds[i] = http_open(f->http, "/workloads/x", "");
                for (int i = 0; i < 16; i++) {
                        str_clear(&text);
                        assert_true(http_read_until(fds[i], &text, "\r\n\r\n", 8000));
                        if (strstr(str_c(&text), " 429 ")) {
                                refused++;
                                assert_non_null(strcasestr(str_c(&text), "retry-after: 1"));
                        } else {
                                assert_non_null(strstr(str_c(&text), " 404 "));
                        }
                        close(fds[i]);
                }
        }
        assert_in_range(refused, 1, 12);
        str_fini(&text);
        atomic_store(&store_fault, 0);
}

/* Who was told that his call had timed out can rely on it, as long as it had not been decided. R:
 * A5 A11 */
static void what_timed_out_before_it_was_decided_is_never_applied(void **state)
{
        struct fixture *f = *state;
        server_end(f);
        f->opt.request_timeout_ms = 300;
        server_begin(f);
        atomic_store(&store_fault, ERR_UNAVAILABLE);
        /* decided; its commit is under way */
        struct http_answer a = http_do(f->http, "POST", "/workloads", "", HELLO);
        assert_int_equal(a.status, 503);
        http_answer_fini(&a);
        /* the ring is frozen: not decided */
        a = http_do(f->http, "POST", "/workloads", "",
                    "{\"id\":\"late\",\"spec\":{\"command\":[\"x\"]}}");
        assert_int_equal(a.status, 503);
        http_answer_fini(&a);
        atomic_store(&store_fault, 0);
        for (int i = 0, status = 0; i < 100 && status != 200; i++) {
                a = http_do(f->http, "GET", "/workloads/hello", "", NULL);
                status = a.status;
                http_answer_fini(&a);
        }
        expect_status(f, "GET", "/workloads/hello", NULL, 200);
        expect_status(f, "GET", "/workloads/late", NULL, 404);
}

/* R: A4 A5 */
static void a_lost_head_ends_the_server_with_a_reason(void **state)
{
        struct fixture *f = *state;
        struct err err = { 0 };
        atomic_store(&store_fault, ERR_CONFLICT);
        struct http_answer a = http_do(f->http, "POST", "/workloads", "", HELLO);
        assert_true(a.status == 503);
        http_answer_fini(&a);
        assert_int_equal(server_wait(f->server, &err), -ERR_CONFLICT);
        server_free(TAKE_PTR(f->server));
        atomic_store(&store_fault, 0);
        server_begin(f);
        expect_status(f, "GET", "/workloads/hello", NULL, 404); /* it was never acknowledged */
}

/* R: A12 C35 */
static void it_stops_also_when_the_store_is_away(void **state)
{
        struct fixture *f = *state;
        struct err err = { 0 };
        server_end(f);
        f->opt.request_timeout_ms = 100;
        f->opt.shutdown_ms = 100;
        server_begin(f);
        atomic_store(&store_fault, ERR_UNAVAILABLE);
        expect_status(f, "POST", "/workloads", HELLO, 503);
        server_stop(f->server);
        assert_int_equal(server_wait(f->server, &err), -ERR_UNAVAILABLE);
        server_free(TAKE_PTR(f->server));
        atomic_store(&store_fault, 0);
        server_begin(f);
        /* never acknowledged, never there */
        expect_status(f, "GET", "/workloads/hello", NULL, 404);
}

/* R: C35 */
static void one_bad_record_stops_nobody(void **state)
{
        struct fixture *f = *state;
        struct store *store = NULL;
        struct err err = { 0 };
        expect_status(f, "POST", "/workloads", HELLO, 201);
        uint64_t head = head_of(f);
        server_end(f);
        assert_int_equal(store_open(fmt("sqlite:%s/berth.db", f->dir), false, &store, &err), 0);
        head = store_head(store);
        Pb__Event e = PB__EVENT__INIT;
        struct str packed = STR_INIT;
        e.seq = head + 1;
        e.type = PB__EVENT_TYPE__E__UnitUnknown;
        pb_pack(&packed, &e.base);
        struct store_event ev = { head + 1, packed.buf, packed.len };
        struct store_record bad = { "/workloads/aaa", "\xff\xff\xff", 3 };
        struct store_batch b = { .expected_head = head,
                                 .new_head = head + 1,
                                 .events = &ev,
                                 .n_events = 1,
                                 .records = &bad,
                                 .n_records = 1 };
        assert_int_equal(store_commit(store, &b, &err), 0);
        store_close(store);
        str_fini(&packed);
        server_begin(f);
        expect_status(f, "GET", "/workloads/hello", NULL, 200);
        expect_status(f, "GET", "/workloads/aaa", NULL, 404);
        struct http_answer a = expect_http(f, "GET", "/metrics", "", NULL, 200);
        assert_non_null(strstr(str_c(&a.body), "berth_bad_records_total 1\n"));
        http_answer_fini(&a);
}

static void write_pem(const char *path, const struct str *text)
{
        assert_int_equal(file_write_atomic(path, text->buf, text->len, 0600, NULL), 0);
}

/* R: C32 */
static void with_tls_only_known_clients_get_in(void **state)
{
        struct fixture *f = *state;
        struct tls_pair ca = { 0 }, server = { 0 }, client = { 0 };
        const char *const ips[] = { "127.0.0.1", NULL };
        struct err err = { 0 };
        char paths[5][200];
        const char *const names[] = { "ca.pem", "server.pem", "server.key", "client.pem",
                                      "client.key" };
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                snprintf(paths[i], sizeof(paths[i]), "%s/%s", f->dir, names[i]);
        assert_int_equal(tls_make_ca(&(struct tls_issue_options){ .cn = "test CA" }, &ca, &err), 0);
        assert_int_equal(tls_issue(&ca, &(struct tls_issue_options){ .cn = "server", .ips = ips },
                                   &server, &err),
                         0);
        assert_int_equal(
            tls_issue(&ca, &(struct tls_issue_options){ .cn = "carol" }, &client, &err), 0);
        write_pem(paths[0], &ca.cert);
        write_pem(paths[1], &server.cert);
        write_pem(paths[2], &server.key);
        write_pem(paths[3], &client.cert);
        write_pem(paths[4], &client.key);
        server_end(f);
        f->opt.tls_ca = paths[0];
        f->opt.tls_cert = paths[1];
        f->opt.tls_key = paths[2];
        server_begin(f);

        struct tls *tls = NULL, *nobody = NULL;
        struct grpc_reply reply = { 0 };
        struct str req = STR_INIT;
        struct tls_options known = { .ca_file = paths[0],
                                     .cert_file = paths[3],
                                     .key_file = paths[4] };
        assert_int_equal(tls_client_create(&known, &tls, &err), 0);
        assert_int_equal(
            tls_client_create(&(struct tls_options){ .ca_file = paths[0] }, &nobody, &err), 0);
        Pb__ApplyWorkloadRequest apply = PB__APPLY_WORKLOAD_REQUEST__INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;
        char *command[] = { (char *)"true" };
        w.id = (char *)"hello";
        spec.command = command;
        spec.n_command = 1;
        w.spec = &spec;
        apply.workload = &w;
        pb_pack(&req, &apply.base);
        struct grpc_metadata liar[] = { GRPC_META("x-berth-actor", "mallory", 7), GRPC_META_END };
        struct grpc_channel_options co = { .tls = tls };
        assert_int_equal(grpc_call_sync(f->grpc, &co, liar, "/berth.v1.Control/ApplyWorkload",
                                        req.buf, req.len, 5000, &reply, &err),
                         0);
        assert_int_equal(reply.status, GRPC_OK);
        grpc_reply_fini(&reply);
        /* not even when the certificate's own name cannot be used */
        struct tls_pair odd = { 0 };
        struct tls *odd_tls = NULL;
        assert_int_equal(tls_issue(&ca, &(struct tls_issue_options){ .cn = "<odd>" }, &odd, &err),
                         0);
        write_pem(paths[3], &odd.cert);
        write_pem(paths[4], &odd.key);
        assert_int_equal(tls_client_create(&known, &odd_tls, &err), 0);
        co.tls = odd_tls;
        apply.workload->spec->command[0] = (char *)"false";
        liar[0] = GRPC_META("x-berth-actor", "trudy", 5);
        str_clear(&req);
        pb_pack(&req, &apply.base);
        assert_int_equal(grpc_call_sync(f->grpc, &co, liar, "/berth.v1.Control/ApplyWorkload",
                                        req.buf, req.len, 5000, &reply, &err),
                         0);
        assert_int_equal(reply.status, GRPC_OK);
        grpc_reply_fini(&reply);
        tls_pair_fini(&odd);
        tls_unref(odd_tls);
        co.tls = nobody;
        assert_int_equal(grpc_call_sync(f->grpc, &co, NULL, "/berth.v1.Control/ApplyWorkload",
                                        req.buf, req.len, 5000, &reply, &err),
                         0);
        assert_int_not_equal(reply.status, GRPC_OK);
        grpc_reply_fini(&reply);
        /* the certificate's name counts, not what the caller says */
        str_clear(&req);
        Pb__ListEventsRequest list = PB__LIST_EVENTS_REQUEST__INIT;
        list.workload = (char *)"hello";
        pb_pack(&req, &list.base);
        co.tls = tls;
        assert_int_equal(grpc_call_sync(f->grpc, &co, NULL, "/berth.v1.Control/ListEvents", req.buf,
                                        req.len, 5000, &reply, &err),
                         0);
        assert_int_equal(reply.status, GRPC_OK);
        assert_non_null(memmem(reply.data.buf, reply.data.len, "carol", 5));
        assert_null(memmem(reply.data.buf, reply.data.len, "mallory", 7));
        assert_null(memmem(reply.data.buf, reply.data.len, "trudy", 5));
        assert_non_null(memmem(reply.data.buf, reply.data.len, "certificate", 11));
        grpc_reply_fini(&reply);
        str_fini(&req);
        tls_unref(tls);
        tls_unref(nobody);
        tls_pair_fini(&ca);
        tls_pair_fini(&server);
        tls_pair_fini(&client);
}

/* R: A9 */
static void every_generated_fault_is_refused_with_its_path(void **state)
{
        struct fixture *f = *state;
        struct arena arena = ARENA_INIT;
        struct badinput *bad = NULL;
        size_t n = badinput_make(&arena, &pb__workload__descriptor, NULL, &bad), wire = 0;
        uint64_t head = head_of(f);
        assert_true(n > 50);
        for (size_t i = 0; i < n; i++) {
                struct http_answer a = http_do(f->http, "POST", "/workloads", "", bad[i].json);
                const char *path = fmt("\"path\":\"%s\"", bad[i].path);
                if (a.status < 400 || a.status > 499 ||
                    (bad[i].path[0] && !strchr(bad[i].path, '"') && !strstr(str_c(&a.body), path)))
                        fail_msg("%s (%s): %d %s\n%s", bad[i].what, bad[i].path, a.status,
                                 str_c(&a.body), bad[i].json);
                http_answer_fini(&a);
                if (!bad[i].wire)
                        continue;
                ProtobufCMessage *m = NULL;
                if (json_read(&pb__workload__descriptor, bad[i].json, strlen(bad[i].json), 1 << 24,
                              0, &arena, &m, NULL) < 0)
                        continue;
                Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
                struct grpc_reply reply = { 0 };
                req.workload = (Pb__Workload *)m;
                int status = call_grpc(f, "ApplyWorkload", &req.base, &reply);
                if (status != GRPC_INVALID_ARGUMENT && status != GRPC_RESOURCE_EXHAUSTED)
                        fail_msg("%s (%s) by gRPC: %d %s", bad[i].what, bad[i].path, status,
                                 reply.message);
                grpc_reply_fini(&reply);
                wire++;
        }
        assert_true(wire > 10);
        assert_int_equal(head_of(f), head);
        arena_fini(&arena);
}

/* R: A12 */
static void streams_end_when_the_server_stops(void **state)
{
        struct fixture *f = *state;
        struct agent *a = agent_connect(f->grpc);
        agent_hello(a, "n1");
        assert_non_null(agent_wait(a, is_welcome, 5000));
        int fd = http_open(f->http, "/events/stream", "");
        struct str text = STR_INIT;
        assert_true(http_read_until(fd, &text, "NodeRegistered", 5000));
        server_stop(f->server);
        int status = -1;
        assert_true(agent_is_closed(a, 5000, &status));
        assert_int_equal(status, GRPC_UNAVAILABLE);
        agent_close(a);
        assert_true(http_read_until(fd, &text, "0\r\n\r\n", 5000));
        close(fd);
        str_fini(&text);
        struct err err = { 0 };
        assert_int_equal(server_wait(f->server, &err), 0);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(it_says_where_it_listens),
                T(a_second_server_on_the_same_store_is_refused),
                T(an_address_in_use_is_a_clear_error),
                T(workloads_by_rest),
                T(bad_input_changes_nothing),
                T(the_same_by_grpc),
                T(event_streams_resume_without_gap_or_duplicate),
                T(a_stream_has_no_seam_between_history_and_live),
                T(a_list_of_events_has_a_cursor_both_ways),
                T(what_was_acknowledged_is_there_after_a_restart),
                T(nothing_to_do_writes_nothing),
                T(a_plan_changes_nothing_and_waits_for_what_it_saw),
                T(history_ends_when_whoever_asked_over_http_has_closed),
                T(a_store_that_is_away_refuses_changes_and_goes_on_showing_what_is_committed),
                T(no_node_is_lost_because_the_store_was_away),
                T(old_events_are_dropped_and_a_stream_says_so),
                T(a_stream_has_what_is_kept_below_the_log),
                T(many_workloads_in_one_call_have_a_result_each),
                T(a_large_call_is_few_commits),
                T(many_in_one_call_cannot_pass_a_limit),
                T(too_many_calls_are_told_to_come_back),
                T(what_timed_out_before_it_was_decided_is_never_applied),
                T(a_lost_head_ends_the_server_with_a_reason),
                T(it_stops_also_when_the_store_is_away),
                T(one_bad_record_stops_nobody),
                T(with_tls_only_known_clients_get_in),
                T(every_generated_fault_is_refused_with_its_path),
                T(streams_end_when_the_server_stops),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
