/* Tests of net/grpc.h in the clear: calls, on real sockets on loopback, server and clients on one
 * loop.
 *
 * Connections are in grpc_conn_test.c, those who read slowly in grpc_pressure_test.c, TLS in
 * tls_test.c.
 */
#include "net/grpc_internal.h"
#include "net/grpc_test_rig.h"
#include <event2/buffer.h>
#include <pthread.h>

/* ---- the kinds of calls ---- */

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

/* ---- errors ---- */

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
        struct grpc_metadata md[] = { GRPC_META("x-in", "plain text", 10),
                                      GRPC_META("x-in-bin", "\x00\x01\xfe\xff", 4),
                                      GRPC_META("Bad Name", "x", 1), GRPC_META("x-bad", "\x01", 1),
                                      GRPC_META_END };
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
        struct grpc_metadata md[] = { GRPC_META("x-in", big, 3000), GRPC_META("x-in2", big, 3000),
                                      GRPC_META_END };
        rig_start(&r, &(struct grpc_server_options){ .max_header_bytes = 4096 }, NULL);
        probe_unary(&p, r.channel, SERVICE "Echo", "x",
                    &(struct grpc_call_options){ .metadata = md });
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

/* ---- deadlines, cancellation ---- */

/* R: A12 */
static void deadline_ends_the_call_on_both_sides(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Hang", "x",
                    &(struct grpc_call_options){ .deadline_ms = 80 });
        UNTIL(r.base, r.service.started == 1);
        assert_in_range(r.service.seen_remaining_ms, 1, 80);
        UNTIL(r.base, p.closed && r.service.closed == 1);
        assert_int_equal(p.status, GRPC_DEADLINE_EXCEEDED);
        assert_true(r.service.last_status == GRPC_DEADLINE_EXCEEDED ||
                    r.service.last_status == GRPC_CANCELLED);
        probe_fini(&p);
        rig_stop(&r);
}

static void server_enforces_the_deadline_by_itself(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_unary(&p, r.channel, SERVICE "Hang", "x",
                    &(struct grpc_call_options){ .deadline_ms = 60 });
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

/* ---- owners that do the unexpected ---- */

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

/* ---- the blocking call ---- */

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

        assert_int_equal(
            grpc_call_sync(r.target, NULL, NULL, SERVICE "Echo", "hello", 5, 5000, &reply, &err),
            0);
        assert_int_equal(reply.status, GRPC_OK);
        assert_string_equal(str_c(&reply.data), "hello");
        grpc_reply_fini(&reply);
        assert_int_equal(grpc_call_sync(r.target, NULL, NULL, SERVICE "Fail", "9 not now", 9, 5000,
                                        &reply, &err),
                         0);
        assert_int_equal(reply.status, GRPC_FAILED_PRECONDITION);
        assert_string_equal(reply.message, "not now");
        assert_int_equal(reply.error.len, 7);
        grpc_reply_fini(&reply);
        assert_int_equal(
            grpc_call_sync(r.target, NULL, NULL, SERVICE "Hang", "", 0, 50, &reply, &err), 0);
        assert_int_equal(reply.status, GRPC_DEADLINE_EXCEEDED);
        grpc_reply_fini(&reply);
        assert_int_equal(
            grpc_call_sync("nonsense", NULL, NULL, SERVICE "Hang", "", 0, 50, &reply, &err),
            -ERR_INVALID);
        assert_int_equal(
            grpc_call_sync("localhost:1", NULL, NULL, SERVICE "Echo", "", 0, 2000, &reply, &err),
            0);
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
                cmocka_unit_test(owners_may_destroy_in_callbacks),
                cmocka_unit_test(calls_started_while_the_channel_ends_are_dropped),
                cmocka_unit_test(blocking_call_works_from_another_thread),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
