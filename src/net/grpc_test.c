/* Tests of net/grpc.h in the clear: real sockets on loopback, server and clients on one loop. TLS is in tls_test.c. */
#include "net/grpc_internal.h"
#include "net/test_rig.h"
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#define SERVICE "/berth.test.Test/"

struct rig {
        struct event_base *base;
        struct grpc_server *server;
        struct grpc_channel *channel;
        struct test_service service;
        struct rng rng;
        char target[32];
};

static void start_server(struct rig *r, const struct grpc_server_options *options)
{
        struct grpc_server_options o = options ? *options : (struct grpc_server_options){ 0 };
        struct err err;

        if (!o.address)
                o.address = "127.0.0.1:0";
        if (grpc_server_create(r->base, &o, &r->server, &err) < 0 || test_service_add(r->server, &r->service, &err) < 0)
                fail_msg("%s", err_line(&err));
        snprintf(r->target, sizeof(r->target), "127.0.0.1:%u", grpc_server_port(r->server));
}

static void start_channel(struct rig *r, const struct grpc_channel_options *options)
{
        struct grpc_channel_options o = options ? *options : (struct grpc_channel_options){ 0 };
        struct err err;

        o.rng = &r->rng;
        if (!o.backoff_min_ms)
                o.backoff_min_ms = 5;
        if (!o.backoff_max_ms)
                o.backoff_max_ms = 50;
        if (grpc_channel_create(r->base, r->target, &o, &r->channel, &err) < 0)
                fail_msg("%s", err_line(&err));
}

static void rig_start(struct rig *r, const struct grpc_server_options *so, const struct grpc_channel_options *co)
{
        *r = (struct rig){ .base = event_base_new() };
        rng_seed(&r->rng, 7);
        start_server(r, so);
        start_channel(r, co);
}

static void rig_stop(struct rig *r)
{
        grpc_channel_destroy(r->channel);
        grpc_server_destroy(r->server);
        event_base_free(r->base);
}

/* ---------- the kinds of calls ---------- */

static void unary_call_is_answered(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        assert_int_equal(grpc_channel_state(r.channel), GRPC_CHANNEL_IDLE);
        probe_unary(&p, r.channel, SERVICE "Echo", "hello", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        assert_string_equal(str_c(&p.last), "hello");
        assert_int_equal(p.n, 1);
        assert_int_equal(grpc_channel_state(r.channel), GRPC_CHANNEL_READY);
        UNTIL(r.base, r.service.closed == 1);
        assert_int_equal(r.service.last_status, GRPC_OK);
        assert_int_equal(r.service.half_closed, 1);
        assert_true(str_starts(r.service.seen_peer, "127.0.0.1:"));
        assert_null(grpc_server_call(r.server, r.service.last_id));
        probe_fini(&p);
        probe_unary(&p, r.channel, SERVICE "Echo", "", NULL); /* an empty message is a message */
        UNTIL(r.base, p.closed);
        assert_int_equal(p.n, 1);
        probe_fini(&p);
        rig_stop(&r);
}

static void client_stream_is_summed(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_call(&p, r.channel, SERVICE "Sum", NULL);
        for (int i = 0; i < 1000; i++)
                assert_int_equal(grpc_call_send(p.call, "0123456789", 10), 0);
        grpc_call_half_close(p.call);
        assert_int_equal(grpc_call_send(p.call, "x", 1), -ERR_CANCELLED);
        UNTIL(r.base, p.closed);
        assert_string_equal(p.message, "");
        assert_string_equal(str_c(&p.last), "1000 10000");
        probe_fini(&p);
        rig_stop(&r);
}

static void bidi_messages_come_back_in_order(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_call(&p, r.channel, SERVICE "Chat", NULL);
        for (uint32_t i = 0; i < 500; i++) {
                char text[16];
                snprintf(text, sizeof(text), "m%u", i);
                grpc_call_send(p.call, text, strlen(text));
                UNTIL(r.base, p.n == i + 1);
                assert_string_equal(str_c(&p.last), text);
        }
        struct grpc_call *found = grpc_server_call(r.server, r.service.last_id);
        assert_ptr_equal(found, r.service.last);
        grpc_call_half_close(p.call);
        UNTIL(r.base, p.closed && r.service.closed == 1);
        assert_int_equal(p.status, GRPC_OK);
        probe_fini(&p);
        rig_stop(&r);
}

static void big_messages_up_to_the_limit_pass(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        size_t len = GRPC_MESSAGE_MAX_DEFAULT;
        (void)state;

        rig_start(&r, NULL, NULL);
        char *big = mem_must(len + 1);
        memset(big, 'b', len);
        probe_unary(&p, r.channel, SERVICE "Echo", big, NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        assert_int_equal(p.bytes, len);
        mem_free(big);
        probe_fini(&p);
        rig_stop(&r);
}

/* ---------- errors ---------- */

static void unknown_method_is_unimplemented(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Nothing", "x", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNIMPLEMENTED);
        assert_string_equal(p.message, "unknown method " SERVICE "Nothing");
        probe_fini(&p);
        rig_stop(&r);
}

/* R: A8 */
static void status_message_and_error_trailer_travel(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Fail", "5 100% of \"it\" is gone \xe2\x98\x83\n", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_NOT_FOUND);
        assert_string_equal(p.message, "100% of \"it\" is gone \xe2\x98\x83\n");
        assert_int_equal(p.error.len, 7);
        assert_memory_equal(p.error.buf, "\x0a\x07\x00\xff\x80\x7f\x00", 7);
        probe_fini(&p);
        rig_stop(&r);
}

static void metadata_travels_both_ways(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        struct grpc_metadata md[] = { GRPC_META("x-in", "plain text", 10), GRPC_META("x-in-bin", "\x00\x01\xfe\xff", 4),
                                      GRPC_META("Bad Name", "x", 1), GRPC_META("x-bad", "\x01", 1), GRPC_META_END };
        struct grpc_call_options o = { .metadata = md };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Meta", "x", &o);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        assert_string_equal(p.header, "plain text");
        assert_string_equal(p.trailer, "plain text");
        assert_int_equal(p.last.len, 4);
        assert_memory_equal(p.last.buf, "\x00\x01\xfe\xff", 4);
        probe_fini(&p);
        rig_stop(&r);
}

/* R: A11 */
static void oversize_messages_are_refused_both_ways(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .max_message_bytes = 1000 },
                  &(struct grpc_channel_options){ .max_message_bytes = 2000 });
        char *big = mem_must(5000);
        memset(big, 'b', 1001);
        probe_unary(&p, r.channel, SERVICE "Echo", big, NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(p.message, "1001"));
        probe_fini(&p);
        probe_unary(&p, r.channel, SERVICE "Count", "1 2001", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_RESOURCE_EXHAUSTED);
        UNTIL(r.base, r.service.closed == r.service.started);
        mem_free(big);
        probe_fini(&p);
        rig_stop(&r);
}

static void raw_bytes_call(struct rig *r, struct probe *p, const char *bytes, size_t len)
{
        probe_fini(p);
        probe_call(p, r->channel, SERVICE "Chat", NULL);
        p->call->out = evbuffer_new();
        evbuffer_add(p->call->out, bytes, len);
        if (p->call->conn)
                p->call->conn->queued_bytes += len;
        grpc_call_half_close(p->call);
        UNTIL(r->base, p->closed);
}

static void malformed_messages_end_the_call_only(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        raw_bytes_call(&r, &p, "\x01\x00\x00\x00\x01x", 6);
        assert_int_equal(p.status, GRPC_UNIMPLEMENTED); /* compressed */
        raw_bytes_call(&r, &p, "\x07\x00\x00\x00\x01x", 6);
        assert_int_equal(p.status, GRPC_INTERNAL);
        raw_bytes_call(&r, &p, "\x00\x00\x00\x00\x05x", 6);
        assert_int_equal(p.status, GRPC_INTERNAL); /* ends inside a message */
        raw_bytes_call(&r, &p, "\x00\x00", 2);
        assert_int_equal(p.status, GRPC_INTERNAL);
        raw_bytes_call(&r, &p, "\x00\xff\xff\xff\xff", 5);
        assert_int_equal(p.status, GRPC_RESOURCE_EXHAUSTED);
        probe_fini(&p);
        probe_call(&p, r.channel, SERVICE "Echo", NULL); /* unary without a message */
        grpc_call_half_close(p.call);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_INTERNAL);
        probe_fini(&p);
        probe_unary(&p, r.channel, SERVICE "Echo", "fine", NULL);
        UNTIL(r.base, p.closed);
        assert_string_equal(p.message, "");
        assert_int_equal(p.status, GRPC_OK);
        probe_fini(&p);
        rig_stop(&r);
}

static void large_headers_are_refused(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        char *big = mem_must(20000);
        (void)state;

        memset(big, 'h', 3000);
        struct grpc_metadata md[] = { GRPC_META("x-in", big, 3000), GRPC_META("x-in2", big, 3000), GRPC_META_END };
        rig_start(&r, &(struct grpc_server_options){ .max_header_bytes = 4096 }, NULL);
        probe_unary(&p, r.channel, SERVICE "Echo", "x", &(struct grpc_call_options){ .metadata = md });
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_RESOURCE_EXHAUSTED);
        probe_fini(&p);
        probe_unary(&p, r.channel, SERVICE "Echo", "fine", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        mem_free(big);
        probe_fini(&p);
        rig_stop(&r);
}

/* ---------- deadlines, cancellation ---------- */

/* R: A12 */
static void deadline_ends_the_call_on_both_sides(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Hang", "x", &(struct grpc_call_options){ .deadline_ms = 80 });
        UNTIL(r.base, r.service.started == 1);
        assert_in_range(r.service.seen_remaining_ms, 1, 80);
        UNTIL(r.base, p.closed && r.service.closed == 1);
        assert_int_equal(p.status, GRPC_DEADLINE_EXCEEDED);
        assert_true(r.service.last_status == GRPC_DEADLINE_EXCEEDED || r.service.last_status == GRPC_CANCELLED);
        probe_fini(&p);
        rig_stop(&r);
}

static void server_enforces_the_deadline_by_itself(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Hang", "x", &(struct grpc_call_options){ .deadline_ms = 60 });
        UNTIL(r.base, r.service.started == 1);
        event_del(&p.call->deadline); /* a client that forgot its own deadline */
        UNTIL(r.base, p.closed && r.service.closed == 1);
        assert_int_equal(r.service.last_status, GRPC_DEADLINE_EXCEEDED);
        assert_int_equal(p.status, GRPC_DEADLINE_EXCEEDED);
        probe_fini(&p);
        rig_stop(&r);
}

static void client_cancel_is_seen_by_the_server(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Hang", "x", NULL);
        UNTIL(r.base, r.service.started == 1);
        grpc_call_cancel(p.call);
        assert_false(p.closed); /* only from the loop */
        UNTIL(r.base, p.closed && r.service.closed == 1);
        assert_int_equal(p.status, GRPC_CANCELLED);
        assert_int_equal(r.service.last_status, GRPC_CANCELLED);
        probe_fini(&p);
        probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
        grpc_call_cancel(p.call); /* before anything was sent */
        UNTIL(r.base, p.closed);
        probe_fini(&p);
        probe_unary(&p, r.channel, SERVICE "Echo", "after", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        probe_fini(&p);
        rig_stop(&r);
}

static void server_cancel_is_seen_by_the_client(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Hang", "x", NULL);
        UNTIL(r.base, r.service.started == 1);
        grpc_call_cancel(r.service.last);
        UNTIL(r.base, p.closed && r.service.closed == 1);
        assert_int_equal(p.status, GRPC_CANCELLED);
        probe_fini(&p);
        rig_stop(&r);
}

static void answer_before_the_request_ended_is_taken(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_call(&p, r.channel, SERVICE "Hang", NULL);
        grpc_call_send(p.call, "x", 1);
        UNTIL(r.base, r.service.started == 1);
        grpc_call_finish(r.service.last, GRPC_ABORTED, "enough", NULL);
        UNTIL(r.base, p.closed && r.service.closed == 1);
        assert_int_equal(p.status, GRPC_ABORTED);
        assert_string_equal(p.message, "enough");
        assert_int_equal(r.service.last_status, GRPC_ABORTED);
        probe_fini(&p);
        rig_stop(&r);
}

/* ---------- back-pressure ---------- */

/* R: A11 */
static void slow_reader_of_100000_messages_holds_little_memory(void **state)
{
        struct rig r;
        struct probe p = { .pause_each = false };
        size_t most_held = 0;
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Count", "100000 100", NULL);
        while (!p.closed) {
                uint32_t before = p.n;
                grpc_call_pause(p.call);
                settle_ms(r.base, 2);
                assert_true(p.n <= before); /* nothing comes while paused */
                if (p.call->held.len > most_held)
                        most_held = p.call->held.len;
                grpc_call_resume(p.call);
                UNTIL(r.base, p.closed || p.n > before);
        }
        assert_int_equal(p.status, GRPC_OK);
        assert_int_equal(p.n, 100000);
        assert_int_equal(p.bytes, 10000000);
        assert_true(r.service.most_queued <= 1024 * 1024 + 200);
        assert_true(most_held <= H2_STREAM_WINDOW);
        assert_true(most_held > 0);
        probe_fini(&p);
        rig_stop(&r);
}

/* R: A11 */
static void answers_that_nobody_reads_are_bounded_over_all_connections(void **state)
{
        enum { BIG = 3 * 1024 * 1024 };
        struct rig r;
        struct probe slow = { 0 }, other = { 0 };
        char *big = mem_must(BIG + 1);
        struct grpc_server_stats stats;
        (void)state;

        memset(big, 'x', BIG);
        rig_start(&r, &(struct grpc_server_options){ .max_answer_bytes = 4 * 1024 * 1024 },
                  &(struct grpc_channel_options){ .max_queued_bytes = 8 * 1024 * 1024 });
        probe_unary(&slow, r.channel, SERVICE "Echo", big, NULL);
        grpc_call_pause(slow.call);
        UNTIL(r.base, r.service.messages == 1);
        grpc_server_get_stats(r.server, &stats);
        assert_in_range(stats.queued_bytes, 1, BIG + 5);
        probe_unary(&other, r.channel, SERVICE "Echo", big, NULL);
        UNTIL(r.base, other.closed);
        assert_int_equal(other.status, GRPC_RESOURCE_EXHAUSTED);
        probe_fini(&other);
        grpc_call_cancel(slow.call);
        UNTIL(r.base, slow.closed && r.service.closed == 2);
        grpc_server_get_stats(r.server, &stats);
        assert_int_equal(stats.queued_bytes, 0);
        probe_unary(&other, r.channel, SERVICE "Echo", big, NULL);
        UNTIL(r.base, other.closed);
        assert_int_equal(other.status, GRPC_OK);
        probe_fini(&other);
        probe_fini(&slow);
        mem_free(big);
        rig_stop(&r);
}

static void full_queue_refuses_and_drain_follows(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        char *block = mem_must(16 * 1024);
        (void)state;

        rig_start(&r, NULL, &(struct grpc_channel_options){ .max_queued_bytes = 100 * 1024 });
        probe_call(&p, r.channel, SERVICE "Sum", NULL);
        int sent = 0;
        while (grpc_call_send(p.call, block, 16 * 1024) == 0)
                sent++;
        assert_int_equal(sent, 6);
        assert_int_equal(grpc_call_send(p.call, block, 16 * 1024), -ERR_LIMIT);
        UNTIL(r.base, grpc_call_queued_bytes(p.call) == 0);
        assert_int_equal(grpc_call_send(p.call, block, 16 * 1024), 0);
        grpc_call_half_close(p.call);
        UNTIL(r.base, p.closed);
        assert_string_equal(str_c(&p.last), "7 114688");
        mem_free(block);
        probe_fini(&p);
        rig_stop(&r);
}

static void paused_calls_get_everything_before_their_end(void **state)
{
        struct rig r;
        struct probe p = { .pause_each = true };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Count", "50 100", NULL);
        for (uint32_t i = 1; i < 50; i++) {
                UNTIL(r.base, p.n == i);
                settle_ms(r.base, 1);
                assert_int_equal(p.n, i);
                assert_false(p.closed); /* although the server has long finished */
                grpc_call_resume(p.call);
        }
        UNTIL(r.base, p.closed);
        assert_int_equal(p.n, 50);
        assert_int_equal(p.status, GRPC_OK);
        probe_fini(&p);
        rig_stop(&r);
}

/* R: A11 */
static void unfinished_messages_of_a_connection_are_limited(void **state)
{
        enum { N = 12 };
        struct rig r;
        struct probe p[N] = { 0 };
        uint32_t refused = 0, open = N;
        char *part = mem_must(4 * 1024 * 1024);
        (void)state;

        rig_start(&r, NULL, &(struct grpc_channel_options){ .max_queued_bytes = 8 * 1024 * 1024 });
        memcpy(part, "\x00\x00\x40\x00\x00", 5); /* 4 MiB announced, a little less sent */
        for (int i = 0; i < N; i++) {
                probe_call(&p[i], r.channel, SERVICE "Chat", NULL);
                p[i].call->out = evbuffer_new();
                evbuffer_add(p[i].call->out, part, 4 * 1024 * 1024);
                if (p[i].call->conn)
                        p[i].call->conn->queued_bytes += 4 * 1024 * 1024;
                grpc_call_want_drain(p[i].call);
        }
        for (int64_t end = mono_ms() + 5000; open > 8 && mono_ms() < end;) {
                settle_ms(r.base, 5);
                refused = 0;
                for (int i = 0; i < N; i++)
                        refused += p[i].closed && p[i].status == GRPC_RESOURCE_EXHAUSTED;
                open = N - refused;
        }
        assert_in_range(refused, 4, N);
        assert_in_range(grpc_server_first_conn(r.server)->buffered_bytes, 1, H2_BUFFERED_MAX);
        for (int i = 0; i < N; i++) {
                if (p[i].call)
                        grpc_call_cancel(p[i].call);
                UNTIL(r.base, p[i].closed);
        }
        UNTIL(r.base, r.service.closed == N);
        assert_int_equal(grpc_server_first_conn(r.server)->buffered_bytes, 0);
        assert_int_equal(grpc_server_first_conn(r.server)->queued_bytes, 0);
        mem_free(part);
        rig_stop(&r);
}

static void paused_call_does_not_hold_up_others(void **state)
{
        struct rig r;
        struct probe slow[8] = { 0 }, p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        for (int i = 0; i < 8; i++) { /* more than a connection's window in paused streams */
                probe_unary(&slow[i], r.channel, SERVICE "Count", "100000 100", NULL);
                grpc_call_pause(slow[i].call);
        }
        settle_ms(r.base, 50);
        probe_unary(&p, r.channel, SERVICE "Echo", "quick", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        for (int i = 0; i < 8; i++) {
                assert_int_equal(slow[i].n, 0);
                grpc_call_cancel(slow[i].call);
        }
        UNTIL(r.base, r.service.closed == 9);
        probe_fini(&p);
        rig_stop(&r);
}

static void more_calls_than_streams_all_get_through(void **state)
{
        enum { N = 300 };
        struct rig r;
        struct probe *p = mem_must(sizeof(*p) * N);
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .max_streams = 10 }, NULL);
        for (int i = 0; i < N; i++)
                probe_unary(&p[i], r.channel, SERVICE "Echo", "x", NULL);
        for (int i = 0; i < N; i++) {
                UNTIL(r.base, p[i].closed);
                assert_int_equal(p[i].status, GRPC_OK);
                probe_fini(&p[i]);
        }
        mem_free(p);
        rig_stop(&r);
}

static void too_many_waiting_calls_are_refused(void **state)
{
        struct rig r;
        struct probe p[4] = { 0 };
        (void)state;

        rig_start(&r, NULL, &(struct grpc_channel_options){ .max_waiting_calls = 3 });
        for (int i = 0; i < 4; i++)
                probe_unary(&p[i], r.channel, SERVICE "Echo", "x", NULL);
        for (int i = 0; i < 4; i++) {
                UNTIL(r.base, p[i].closed);
                assert_int_equal(p[i].status, i < 3 ? GRPC_OK : GRPC_RESOURCE_EXHAUSTED);
                probe_fini(&p[i]);
        }
        rig_stop(&r);
}

/* ---------- connections ---------- */

static void set_true(void *flag)
{
        *(bool *)flag = true;
}

/* R: A12 */
static void drain_lets_running_calls_finish_and_refuses_new_ones(void **state)
{
        struct rig r;
        struct probe chat = { 0 }, late = { 0 };
        bool done = false;
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_call(&chat, r.channel, SERVICE "Chat", NULL);
        grpc_call_send(chat.call, "one", 3);
        UNTIL(r.base, chat.n == 1);
        grpc_server_drain(r.server, 5000, set_true, &done);
        UNTIL(r.base, grpc_channel_state(r.channel) != GRPC_CHANNEL_READY); /* the GOAWAY came */
        probe_unary(&late, r.channel, SERVICE "Echo", "late", NULL);
        UNTIL(r.base, late.closed);
        assert_int_equal(late.status, GRPC_UNAVAILABLE);
        assert_false(done);
        grpc_call_send(chat.call, "two", 3);
        UNTIL(r.base, chat.n == 2);
        grpc_call_half_close(chat.call);
        UNTIL(r.base, done);
        UNTIL(r.base, chat.closed);
        assert_int_equal(chat.status, GRPC_OK);
        probe_fini(&chat);
        probe_fini(&late);
        rig_stop(&r);
}

static void drain_deadline_ends_what_is_left(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        bool done = false;
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_call(&p, r.channel, SERVICE "Hang", NULL);
        UNTIL(r.base, r.service.started == 1);
        grpc_server_drain(r.server, 50, set_true, &done);
        UNTIL(r.base, done);
        assert_int_equal(r.service.closed, 1);
        assert_int_equal(r.service.last_status, GRPC_UNAVAILABLE);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        assert_string_equal(p.message, "the server stops");
        probe_fini(&p);
        rig_stop(&r);
}

static void recycle_moves_new_calls_to_a_new_connection(void **state)
{
        struct rig r;
        struct probe chat = { 0 }, p = { 0 };
        struct grpc_server_stats stats;
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_call(&chat, r.channel, SERVICE "Chat", NULL);
        grpc_call_send(chat.call, "one", 3);
        UNTIL(r.base, chat.n == 1);
        grpc_server_recycle(r.server);
        UNTIL(r.base, grpc_channel_state(r.channel) == GRPC_CHANNEL_IDLE);
        probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        grpc_server_get_stats(r.server, &stats);
        assert_int_equal(stats.connections_total, 2);
        grpc_call_send(chat.call, "two", 3);
        UNTIL(r.base, chat.n == 2);
        grpc_call_half_close(chat.call);
        UNTIL(r.base, chat.closed);
        assert_int_equal(chat.status, GRPC_OK);
        do {
                settle_ms(r.base, 5);
                grpc_server_get_stats(r.server, &stats);
        } while (stats.connections > 1); /* the old one ends with its last call */
        probe_fini(&chat);
        probe_fini(&p);
        rig_stop(&r);
}

/* R: A12 */
static void lost_connection_fails_calls_promptly_and_channel_comes_back(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        char address[32];
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_call(&p, r.channel, SERVICE "Hang", NULL);
        UNTIL(r.base, r.service.started == 1);
        snprintf(address, sizeof(address), "%s", r.target);
        int64_t t0 = mono_ms();
        grpc_server_destroy(r.server);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        assert_true(mono_ms() - t0 < 1000);
        probe_fini(&p);

        probe_unary(&p, r.channel, SERVICE "Echo", "nobody", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        assert_non_null(strstr(p.message, "refused"));
        probe_fini(&p);

        probe_unary(&p, r.channel, SERVICE "Echo", "patient", &(struct grpc_call_options){ .wait_for_ready = true });
        settle_ms(r.base, 60);
        assert_false(p.closed);
        start_server(&r, &(struct grpc_server_options){ .address = address });
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        probe_fini(&p);
        rig_stop(&r);
}

static void waiting_call_ends_at_its_deadline(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        grpc_server_destroy(r.server);
        r.server = NULL;
        probe_unary(&p, r.channel, SERVICE "Echo", "x", &(struct grpc_call_options){ .wait_for_ready = true, .deadline_ms = 60 });
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_DEADLINE_EXCEEDED);
        probe_fini(&p);
        rig_stop(&r);
}

/* A plain socket towards the server. */
static int raw_connect(const struct rig *r)
{
        struct sockaddr_in sa = { .sin_family = AF_INET,
                                  .sin_port = htons(grpc_server_port(r->server)),
                                  .sin_addr = { htonl(INADDR_LOOPBACK) } };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
        fd_nonblock(fd);
        return fd;
}

/* Has the peer closed? Throws away what it sent. */
static bool is_closed(int fd)
{
        char buf[4096];
        ssize_t n;
        while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
                ;
        return n == 0 || (errno != EAGAIN && errno != EINTR);
}

static void silent_and_nonsense_peers_are_closed(void **state)
{
        struct rig r;
        static const char greeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .handshake_timeout_ms = 60, .keepalive_ms = 40, .keepalive_timeout_ms = 40 }, NULL);
        int fd = raw_connect(&r); /* says nothing */
        UNTIL(r.base, is_closed(fd));
        close(fd);
        fd = raw_connect(&r);
        assert_int_equal(send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, 0), 27);
        UNTIL(r.base, is_closed(fd));
        close(fd);
        fd = raw_connect(&r); /* greets and then answers no PING */
        assert_int_equal(send(fd, greeting, sizeof(greeting) - 1, 0), sizeof(greeting) - 1);
        UNTIL(r.base, is_closed(fd));
        close(fd);
        rig_stop(&r);
}

static void client_notices_a_server_that_stopped_answering(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        struct err err;
        uint16_t port;
        (void)state;

        r = (struct rig){ .base = event_base_new() };
        rng_seed(&r.rng, 7);
        int listener = addr_listen("127.0.0.1:0", "test", 8, &port, &err), fd = -1;
        snprintf(r.target, sizeof(r.target), "127.0.0.1:%u", port);
        start_channel(&r, &(struct grpc_channel_options){ .keepalive_ms = 40, .keepalive_timeout_ms = 40 });
        probe_call(&p, r.channel, SERVICE "Hang", NULL);
        UNTIL(r.base, (fd = accept(listener, NULL, NULL)) >= 0);
        assert_int_equal(send(fd, "\x00\x00\x00\x04\x00\x00\x00\x00\x00", 9, 0), 9); /* SETTINGS, then silence */
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        assert_non_null(strstr(p.message, "keepalive"));
        close(fd);
        close(listener);
        probe_fini(&p);
        rig_stop(&r);
}

static void go_on_to_the_next(struct probe *p)
{
        grpc_channel_next(p->ctx);
}

/* R: C33. A server that hangs lets its connections die, and takes new ones that it never answers: whoever comes from there goes to the next one, not there again. */
static void a_client_of_a_server_that_hangs_goes_on_to_the_next(void **state)
{
        struct rig r, other;
        struct probe p = { 0 };
        struct err err;
        uint16_t port;
        char both[80];
        (void)state;

        rig_start(&other, NULL, NULL);
        r = (struct rig){ .base = event_base_new() };
        rng_seed(&r.rng, 7);
        int listener = addr_listen("127.0.0.1:0", "test", 8, &port, &err), fd = -1;
        snprintf(both, sizeof(both), "127.0.0.1:%u,%s", port, other.target);
        assert_int_equal(grpc_channel_create(
                             r.base, both, &(struct grpc_channel_options){ .rng = &r.rng, .keepalive_ms = 40, .keepalive_timeout_ms = 40 },
                             &r.channel, &err),
                         0);
        p.then = go_on_to_the_next;
        p.ctx = r.channel;
        probe_call(&p, r.channel, SERVICE "Hang", NULL);
        UNTIL(r.base, (fd = accept(listener, NULL, NULL)) >= 0);
        assert_int_equal(send(fd, "\x00\x00\x00\x04\x00\x00\x00\x00\x00", 9, 0), 9); /* SETTINGS, then silence */
        UNTIL(r.base, p.closed);
        assert_string_equal(grpc_channel_target(r.channel), other.target);
        close(fd);
        close(listener);
        probe_fini(&p);
        rig_stop(&r);
        rig_stop(&other);
}

/* R: A11 */
static void connections_are_limited(void **state)
{
        struct rig r;
        int fds[4];
        struct grpc_server_stats stats;
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .max_connections = 3 }, NULL);
        for (int i = 0; i < 4; i++) {
                fds[i] = raw_connect(&r);
                settle_ms(r.base, 5);
        }
        UNTIL(r.base, is_closed(fds[3]));
        assert_false(is_closed(fds[0]));
        grpc_server_get_stats(r.server, &stats);
        assert_int_equal(stats.connections, 3);
        assert_int_equal(stats.connections_refused_total, 1);
        for (int i = 0; i < 4; i++)
                close(fds[i]);
        rig_stop(&r);
}

/* Headers of a request to Hang, compressed without a table. */
static size_t hang_headers(uint8_t *buf, size_t size)
{
#define H(n, v) { (uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), strlen(v), NGHTTP2_NV_FLAG_NONE }
        nghttp2_nv nv[] = { H(":method", "POST"), H(":scheme", "http"), H(":path", SERVICE "Hang"), H(":authority", "x"),
                            H("content-type", "application/grpc") };
#undef H
        nghttp2_hd_deflater *d;
        nghttp2_hd_deflate_new(&d, 0);
        ssize_t n = nghttp2_hd_deflate_hd(d, buf, size, nv, ARRAY_LEN(nv));
        nghttp2_hd_deflate_del(d);
        assert_true(n > 0);
        return (size_t)n;
}

static void frame(struct str *out, size_t len, uint8_t type, uint8_t flags, uint32_t stream)
{
        const uint8_t h[9] = { (uint8_t)(len >> 16),    (uint8_t)(len >> 8),     (uint8_t)len,           type,           flags,
                               (uint8_t)(stream >> 24), (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream };
        str_add(out, h, sizeof(h));
}

/* A proxy in between that answers by itself. */
static void answers_that_are_not_grpc_get_a_status(void **state)
{
        static const struct {
                const char *status, *type;
                enum grpc_status want;
        } cases[] = { { "502", "text/html", GRPC_UNAVAILABLE },
                      { "401", "text/html", GRPC_UNAUTHENTICATED },
                      { "200", "text/html", GRPC_UNKNOWN },
                      { "404", "text/plain", GRPC_UNIMPLEMENTED } };
        (void)state;

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct rig r = { .base = event_base_new() };
                struct probe p = { 0 };
                struct err err;
                struct str out = STR_INIT;
                uint16_t port;
                int fd = -1, listener = addr_listen("127.0.0.1:0", "test", 8, &port, &err);

                rng_seed(&r.rng, 7);
                snprintf(r.target, sizeof(r.target), "127.0.0.1:%u", port);
                start_channel(&r, NULL);
                probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
                UNTIL(r.base, (fd = accept(listener, NULL, NULL)) >= 0);
                frame(&out, 0, NGHTTP2_SETTINGS, 0, 0);
                assert_int_equal(send(fd, out.buf, out.len, 0), (ssize_t)out.len);
                UNTIL(r.base, p.call->headers_on_wire);
                uint8_t headers[128];
                nghttp2_nv nv[] = { { (uint8_t *)(uintptr_t) ":status", (uint8_t *)(uintptr_t)cases[i].status, 7, 3, 0 },
                                    { (uint8_t *)(uintptr_t) "content-type", (uint8_t *)(uintptr_t)cases[i].type, 12, strlen(cases[i].type),
                                      0 } };
                nghttp2_hd_deflater *d;
                nghttp2_hd_deflate_new(&d, 0);
                ssize_t n = nghttp2_hd_deflate_hd(d, headers, sizeof(headers), nv, 2);
                nghttp2_hd_deflate_del(d);
                str_clear(&out);
                frame(&out, (size_t)n, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1);
                str_add(&out, headers, (size_t)n);
                frame(&out, 6, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1);
                str_adds(&out, "<html>");
                assert_int_equal(send(fd, out.buf, out.len, 0), (ssize_t)out.len);
                UNTIL(r.base, p.closed);
                assert_int_equal(p.status, cases[i].want);
                assert_int_equal(p.n, 0);
                close(fd);
                close(listener);
                str_fini(&out);
                probe_fini(&p);
                rig_stop(&r);
        }
}

static void names_that_are_not_known_are_unavailable(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        r = (struct rig){ .base = event_base_new() };
        rng_seed(&r.rng, 7);
        snprintf(r.target, sizeof(r.target), "nowhere.invalid:1");
        start_channel(&r, &(struct grpc_channel_options){ .connect_timeout_ms = 300 });
        probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        assert_non_null(strstr(p.message, "nowhere.invalid:1"));
        probe_fini(&p);
        /* destroyed while the name is being looked up */
        probe_unary(&p, r.channel, SERVICE "Echo", "x", &(struct grpc_call_options){ .wait_for_ready = true });
        settle_ms(r.base, 60);
        grpc_channel_destroy(TAKE_PTR(r.channel));
        assert_true(p.closed);
        settle_ms(r.base, 10);
        probe_fini(&p);
        rig_stop(&r);
}

/* R: A11 */
static void rapid_reset_is_cut_off(void **state)
{
        struct rig r;
        uint8_t headers[256];
        uint32_t opened = 0;
        bool closed = false;
        (void)state;

        rig_start(&r, NULL, NULL);
        size_t len = hang_headers(headers, sizeof(headers));
        int fd = raw_connect(&r);
        struct str out = STR_INIT;
        str_adds(&out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frame(&out, 0, NGHTTP2_SETTINGS, 0, 0);
        while (!closed && opened < 100000) {
                for (int i = 0; i < 100; i++, opened++) {
                        frame(&out, len, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 2 * opened + 1);
                        str_add(&out, headers, len);
                        frame(&out, 4, NGHTTP2_RST_STREAM, 0, 2 * opened + 1);
                        str_add(&out, "\x00\x00\x00\x08", 4);
                }
                for (size_t at = 0; at < out.len && !closed;) {
                        ssize_t n = send(fd, out.buf + at, out.len - at, MSG_NOSIGNAL);
                        if (n > 0)
                                at += (size_t)n;
                        event_base_loop(r.base, EVLOOP_NONBLOCK);
                        closed = is_closed(fd);
                }
                str_clear(&out);
        }
        assert_true(closed);
        assert_true(opened < 5000);
        UNTIL(r.base, r.service.closed == r.service.started);
        str_fini(&out);
        close(fd);
        rig_stop(&r);
}

/* A3: what comes from the network never ends the process. */
static void random_bytes_never_hurt(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        struct rng rng;
        uint8_t headers[256];
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .handshake_timeout_ms = 200 }, NULL);
        rng_seed(&rng, 42);
        size_t hlen = hang_headers(headers, sizeof(headers));
        for (int round = 0; round < 300; round++) {
                struct str out = STR_INIT;
                int fd = raw_connect(&r);
                str_adds(&out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
                frame(&out, 0, NGHTTP2_SETTINGS, 0, 0);
                for (uint32_t f = 0; f < 8; f++) { /* frames of random type, flags, stream; sane ones in between */
                        size_t len = rng_below(&rng, 40);
                        if (rng_chance(&rng, 400000)) {
                                frame(&out, hlen, NGHTTP2_HEADERS, (uint8_t)(4 | rng_below(&rng, 2)), 2 * f + 1);
                                str_add(&out, headers, hlen);
                                continue;
                        }
                        frame(&out, len, (uint8_t)rng_below(&rng, 11), (uint8_t)rng_next(&rng), (uint32_t)rng_below(&rng, 20));
                        for (size_t i = 0; i < len; i++)
                                str_addc(&out, (char)rng_next(&rng));
                }
                if (rng_chance(&rng, 300000) && out.len > 24)
                        out.buf[rng_below(&rng, out.len)] ^= (char)(1 << rng_below(&rng, 8));
                (void)!send(fd, out.buf, out.len, MSG_NOSIGNAL);
                for (int i = 0; i < 5; i++)
                        event_base_loop(r.base, EVLOOP_NONBLOCK);
                close(fd);
                event_base_loop(r.base, EVLOOP_NONBLOCK);
                str_fini(&out);
        }
        probe_unary(&p, r.channel, SERVICE "Echo", "alive", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        UNTIL(r.base, r.service.closed == r.service.started);
        probe_fini(&p);
        rig_stop(&r);
}

static void port_in_use_is_said_clearly(void **state)
{
        struct rig r;
        struct grpc_server *second = NULL;
        struct err err;
        (void)state;

        rig_start(&r, NULL, NULL);
        assert_int_equal(grpc_server_create(r.base, &(struct grpc_server_options){ .address = r.target }, &second, &err), -ERR_UNAVAILABLE);
        assert_string_equal(err.msg, fmt("port %u is in use", grpc_server_port(r.server)));
        assert_true(err.hint[0]);
        assert_null(second);
        rig_stop(&r);
}

/* ---------- owners that do the unexpected ---------- */

static void destroy_channel(struct probe *p)
{
        struct rig *r = p->ctx;
        grpc_channel_destroy(TAKE_PTR(r->channel));
}

static void on_message_destroys_all(struct grpc_call *call, const void *data, size_t len)
{
        struct probe *p = grpc_call_data(call);
        struct rig *r = p->ctx;
        (void)data;
        (void)len;
        grpc_server_destroy(TAKE_PTR(r->server));
        grpc_channel_destroy(TAKE_PTR(r->channel));
}

static void owners_may_destroy_in_callbacks(void **state)
{
        struct rig r;
        struct probe p = { .then = destroy_channel, .ctx = &r }, q = { .ctx = &r };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
        probe_unary(&q, r.channel, SERVICE "Hang", "x", NULL);
        UNTIL(r.base, p.closed);
        assert_null(r.channel);
        assert_true(q.closed);
        assert_int_equal(q.status, GRPC_CANCELLED);
        probe_fini(&p);
        probe_fini(&q);

        start_channel(&r, NULL);
        struct grpc_callbacks on = probe_callbacks;
        on.on_message = on_message_destroys_all;
        q.ctx = &r;
        q.call = grpc_channel_call(r.channel, SERVICE "Chat", NULL, &on, &q);
        grpc_call_send(q.call, "one", 3);
        grpc_call_send(q.call, "two", 3);
        UNTIL(r.base, q.closed);
        assert_null(r.server);
        settle_ms(r.base, 20);
        probe_fini(&q);
        rig_stop(&r);
}

static void call_again(struct probe *p)
{
        struct rig *r = p->ctx;
        p->closed = false;
        if (r->channel)
                probe_unary(p, r->channel, SERVICE "Hang", "again", NULL);
}

static void calls_started_while_the_channel_ends_are_dropped(void **state)
{
        struct rig r;
        struct probe p = { .then = call_again, .ctx = &r };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Hang", "x", NULL);
        UNTIL(r.base, r.service.started == 1);
        grpc_channel_destroy(r.channel);
        r.channel = NULL;
        probe_fini(&p);
        rig_stop(&r);
}

/* ---------- states, and the blocking call ---------- */

struct states {
        char seen[64];
};
static void on_state(struct grpc_channel *ch, enum grpc_channel_state state, const struct err *why, void *ctx)
{
        struct states *s = ctx;
        (void)ch;
        size_t len = strlen(s->seen);
        if (len + 1 < sizeof(s->seen))
                s->seen[len] = "icrb"[state];
        if (state == GRPC_CHANNEL_BACKOFF)
                assert_true(why->msg[0]);
}

static void states_are_told(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        struct states s = { "" };
        (void)state;

        rig_start(&r, NULL, &(struct grpc_channel_options){ .on_state = on_state, .ctx = &s });
        grpc_channel_connect(r.channel);
        UNTIL(r.base, grpc_channel_state(r.channel) == GRPC_CHANNEL_READY);
        assert_string_equal(s.seen, "cr");
        grpc_server_destroy(TAKE_PTR(r.server));
        UNTIL(r.base, grpc_channel_state(r.channel) == GRPC_CHANNEL_IDLE);
        probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
        UNTIL(r.base, p.closed);
        assert_true(str_starts(s.seen, "cricb"));
        UNTIL(r.base, grpc_channel_state(r.channel) == GRPC_CHANNEL_IDLE); /* nobody waits: no more tries */
        probe_fini(&p);
        rig_stop(&r);
}

static void *run_loop(void *arg)
{
        event_base_dispatch(((struct rig *)arg)->base);
        return NULL;
}

static void stop_loop(evutil_socket_t fd, short what, void *arg)
{
        struct rig *r = arg;
        char c;
        (void)what;
        (void)!read(fd, &c, 1);
        event_base_loopbreak(r->base);
}

static void blocking_call_works_from_another_thread(void **state)
{
        struct rig r;
        struct grpc_reply reply = { 0 };
        struct err err;
        pthread_t thread;
        int stop[2];
        (void)state;

        rig_start(&r, NULL, NULL);
        assert_int_equal(pipe(stop), 0);
        struct event *ev = event_new(r.base, stop[0], EV_READ, stop_loop, &r);
        event_add(ev, NULL);
        pthread_create(&thread, NULL, run_loop, &r);

        assert_int_equal(grpc_call_sync(r.target, NULL, NULL, SERVICE "Echo", "hello", 5, 5000, &reply, &err), 0);
        assert_int_equal(reply.status, GRPC_OK);
        assert_string_equal(str_c(&reply.data), "hello");
        grpc_reply_fini(&reply);
        assert_int_equal(grpc_call_sync(r.target, NULL, NULL, SERVICE "Fail", "9 not now", 9, 5000, &reply, &err), 0);
        assert_int_equal(reply.status, GRPC_FAILED_PRECONDITION);
        assert_string_equal(reply.message, "not now");
        assert_int_equal(reply.error.len, 7);
        grpc_reply_fini(&reply);
        assert_int_equal(grpc_call_sync(r.target, NULL, NULL, SERVICE "Hang", "", 0, 50, &reply, &err), 0);
        assert_int_equal(reply.status, GRPC_DEADLINE_EXCEEDED);
        grpc_reply_fini(&reply);
        assert_int_equal(grpc_call_sync("nonsense", NULL, NULL, SERVICE "Hang", "", 0, 50, &reply, &err), -ERR_INVALID);
        assert_int_equal(grpc_call_sync("localhost:1", NULL, NULL, SERVICE "Echo", "", 0, 2000, &reply, &err), 0);
        assert_int_equal(reply.status, GRPC_UNAVAILABLE);
        grpc_reply_fini(&reply);

        assert_int_equal(write(stop[1], "x", 1), 1);
        pthread_join(thread, NULL);
        event_free(ev);
        close(stop[0]);
        close(stop[1]);
        rig_stop(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(unary_call_is_answered),
                cmocka_unit_test(client_stream_is_summed),
                cmocka_unit_test(bidi_messages_come_back_in_order),
                cmocka_unit_test(big_messages_up_to_the_limit_pass),
                cmocka_unit_test(unknown_method_is_unimplemented),
                cmocka_unit_test(status_message_and_error_trailer_travel),
                cmocka_unit_test(metadata_travels_both_ways),
                cmocka_unit_test(oversize_messages_are_refused_both_ways),
                cmocka_unit_test(malformed_messages_end_the_call_only),
                cmocka_unit_test(large_headers_are_refused),
                cmocka_unit_test(deadline_ends_the_call_on_both_sides),
                cmocka_unit_test(server_enforces_the_deadline_by_itself),
                cmocka_unit_test(client_cancel_is_seen_by_the_server),
                cmocka_unit_test(server_cancel_is_seen_by_the_client),
                cmocka_unit_test(answer_before_the_request_ended_is_taken),
                cmocka_unit_test(slow_reader_of_100000_messages_holds_little_memory),
                cmocka_unit_test(full_queue_refuses_and_drain_follows),
                cmocka_unit_test(answers_that_nobody_reads_are_bounded_over_all_connections),
                cmocka_unit_test(paused_calls_get_everything_before_their_end),
                cmocka_unit_test(unfinished_messages_of_a_connection_are_limited),
                cmocka_unit_test(paused_call_does_not_hold_up_others),
                cmocka_unit_test(more_calls_than_streams_all_get_through),
                cmocka_unit_test(too_many_waiting_calls_are_refused),
                cmocka_unit_test(drain_lets_running_calls_finish_and_refuses_new_ones),
                cmocka_unit_test(drain_deadline_ends_what_is_left),
                cmocka_unit_test(recycle_moves_new_calls_to_a_new_connection),
                cmocka_unit_test(lost_connection_fails_calls_promptly_and_channel_comes_back),
                cmocka_unit_test(waiting_call_ends_at_its_deadline),
                cmocka_unit_test(silent_and_nonsense_peers_are_closed),
                cmocka_unit_test(client_notices_a_server_that_stopped_answering),
                cmocka_unit_test(a_client_of_a_server_that_hangs_goes_on_to_the_next),
                cmocka_unit_test(connections_are_limited),
                cmocka_unit_test(answers_that_are_not_grpc_get_a_status),
                cmocka_unit_test(names_that_are_not_known_are_unavailable),
                cmocka_unit_test(rapid_reset_is_cut_off),
                cmocka_unit_test(random_bytes_never_hurt),
                cmocka_unit_test(port_in_use_is_said_clearly),
                cmocka_unit_test(owners_may_destroy_in_callbacks),
                cmocka_unit_test(calls_started_while_the_channel_ends_are_dropped),
                cmocka_unit_test(states_are_told),
                cmocka_unit_test(blocking_call_works_from_another_thread),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
