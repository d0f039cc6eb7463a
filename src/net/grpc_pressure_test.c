/* Tests of net/grpc.h: whoever reads slowly holds up himself alone, and every queue is bounded. */
#include "net/grpc_internal.h"
#include "net/grpc_test_rig.h"
#include <event2/buffer.h>

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

/* The line E2. R: A11 A13 */
static void headers_alone_hold_a_call_for_a_short_time_only(void **state)
{
        struct rig r;
        struct probe unary = { 0 }, stream = { 0 }, other = { 0 };
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .first_message_ms = 400 }, NULL);
        probe_call(&stream, r.channel, SERVICE "Chat", NULL);
        probe_call(&unary, r.channel, SERVICE "Echo", NULL);
        UNTIL(r.base, r.service.started == 2);
        probe_unary(&other, r.channel, SERVICE "Echo", "x", NULL); /* others are served meanwhile */
        UNTIL(r.base, other.closed);
        assert_int_equal(other.status, GRPC_OK);
        UNTIL(r.base, unary.closed && stream.closed);
        assert_int_equal(unary.status, GRPC_DEADLINE_EXCEEDED);
        assert_int_equal(stream.status, GRPC_DEADLINE_EXCEEDED);
        probe_fini(&unary);
        probe_fini(&stream);
        probe_fini(&other);
        rig_stop(&r);
}

/* R: A11 */
static void a_stream_that_has_sent_something_goes_on(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .first_message_ms = 200 }, NULL);
        probe_call(&p, r.channel, SERVICE "Chat", NULL);
        grpc_call_send(p.call, "a", 1);
        UNTIL(r.base, p.n == 1);
        settle_ms(r.base, 1200);
        assert_false(p.closed);
        grpc_call_send(p.call, "b", 1);
        UNTIL(r.base, p.n == 2);
        grpc_call_half_close(p.call);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        probe_fini(&p);
        rig_stop(&r);
}

/* The owner hears of a unary request when it is whole: nothing is held for one that never ends. R:
 * A11 A13 */
static void a_unary_request_counts_when_it_has_ended(void **state)
{
        struct rig r;
        struct probe late = { 0 }, twice = { 0 }, never = { 0 };
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .first_message_ms = 1000 }, NULL);
        probe_call(&late, r.channel, SERVICE "Echo", NULL);
        grpc_call_send(late.call, "whole", 5);
        settle_ms(r.base, 100);
        assert_int_equal(r.service.messages, 0);
        grpc_call_half_close(late.call);
        UNTIL(r.base, late.closed);
        assert_int_equal(late.status, GRPC_OK);
        assert_string_equal(str_c(&late.last), "whole");
        assert_int_equal(r.service.messages, 1);

        probe_call(&twice, r.channel, SERVICE "Echo", NULL);
        grpc_call_send(twice.call, "one", 3);
        settle_ms(r.base, 50);
        grpc_call_send(twice.call, "two", 3);
        UNTIL(r.base, twice.closed);
        assert_int_equal(twice.status, GRPC_INTERNAL);

        probe_call(&never, r.channel, SERVICE "Echo", NULL);
        grpc_call_send(never.call, "x", 1);
        UNTIL(r.base, never.closed);
        assert_int_equal(never.status, GRPC_DEADLINE_EXCEEDED);
        assert_int_equal(r.service.messages, 1);
        probe_fini(&late);
        probe_fini(&twice);
        probe_fini(&never);
        rig_stop(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(slow_reader_of_100000_messages_holds_little_memory),
                cmocka_unit_test(full_queue_refuses_and_drain_follows),
                cmocka_unit_test(answers_that_nobody_reads_are_bounded_over_all_connections),
                cmocka_unit_test(paused_calls_get_everything_before_their_end),
                cmocka_unit_test(unfinished_messages_of_a_connection_are_limited),
                cmocka_unit_test(paused_call_does_not_hold_up_others),
                cmocka_unit_test(more_calls_than_streams_all_get_through),
                cmocka_unit_test(too_many_waiting_calls_are_refused),
                cmocka_unit_test(headers_alone_hold_a_call_for_a_short_time_only),
                cmocka_unit_test(a_stream_that_has_sent_something_goes_on),
                cmocka_unit_test(a_unary_request_counts_when_it_has_ended),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
