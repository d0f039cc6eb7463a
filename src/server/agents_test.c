/* server/agents_test.c: agents' streams, and logs and exec that pass through them. */
#include "base/clock.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "server/testkit.h"
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* R: C40 C9 */
static void an_agent_gets_its_plan_and_reports(void **state)
{
        struct fixture *f = *state;
        struct agent *a = agent_with_hello(f);
        Pb__Heartbeat beat = PB__HEARTBEAT__INIT;
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        beat.units_count = 1;
        m.heartbeat = &beat;
        agent_send(a, &m);
        const Pb__ServerMessage *got = agent_wait(a, is_beat, 5000);
        assert_non_null(got);
        assert_true(got->heartbeat->next_ms > 0);
        wait_for(f, a, "/nodes/n1", "\"status\":\"Ready\"");
        wait_for(f, a, "/nodes/n1", "\"connected\":true");
        agent_close(a);
        for (int i = 0; i < 200; i++) {
                struct http_answer r = expect_http(f, "GET", "/nodes/n1", "", NULL, 200);
                bool gone = !strstr(str_c(&r.body), "\"connected\":true");
                http_answer_fini(&r);
                if (gone)
                        return;
                usleep(10000);
        }
        fail_msg("the core never heard of the stream's end");
}

/* R: C40 A9 */
static void a_stream_that_breaks_the_rules_is_ended(void **state)
{
        struct fixture *f = *state;
        int status = -1;
        struct agent *a = agent_connect(f->grpc);
        Pb__Heartbeat beat = PB__HEARTBEAT__INIT;
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        m.heartbeat = &beat;
        agent_send(a, &m);
        assert_true(agent_is_closed(a, 5000, &status));
        assert_int_equal(status, GRPC_INVALID_ARGUMENT);
        agent_close(a);
        a = agent_connect(f->grpc);
        agent_hello(a, "bad id!");
        assert_true(agent_is_closed(a, 5000, &status));
        assert_int_equal(status, GRPC_INVALID_ARGUMENT);
        agent_close(a);
        a = agent_connect(f->grpc);
        agent_hello(a, "n1");
        assert_non_null(agent_wait(a, is_welcome, 5000));
        agent_hello(a, "n1");
        assert_true(agent_is_closed(a, 5000, &status));
        agent_close(a);
}

static void send_log(struct agent *a, uint64_t stream, const char *text, bool eof,
                     const char *error)
{
        Pb__LogChunk c = PB__LOG_CHUNK__INIT;
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        c.stream_id = stream;
        c.data.data = (uint8_t *)text;
        c.data.len = strlen(text);
        c.eof = eof;
        c.error = (char *)error;
        m.log = &c;
        agent_send(a, &m);
        agent_turn(a, 20);
}

/* R: C40 */
static void logs_reach_the_user_through_the_server(void **state)
{
        struct fixture *f = *state;
        struct agent *a = agent_with_hello(f);
        struct str text = STR_INIT;
        int fd = http_open(f->http, "/workloads/hello/logs?follow&tail=5", "");
        const Pb__ServerMessage *m = agent_wait(a, is_log, 5000);
        assert_non_null(m);
        assert_string_equal(m->log->unit_id, "hello");
        assert_true(m->log->follow);
        assert_int_equal(m->log->tail_lines, 5);
        uint64_t stream = m->log->stream_id;
        send_log(a, stream, "first line\n", false, "");
        assert_true(http_read_until(fd, &text, "first line", 5000));
        send_log(a, stream, "second line\n", false, "");
        assert_true(http_read_until(fd, &text, "second line", 5000));
        close(fd); /* the reader goes: the agent hears it */
        m = agent_wait(a, is_cancel, 5000);
        assert_non_null(m);
        assert_int_equal(m->cancel->stream_id, stream);

        /* to the end, and a failure before anything was sent */
        str_clear(&text);
        fd = http_open(f->http, "/workloads/hello/logs", "");
        assert_non_null(m = agent_wait(a, is_log, 5000));
        send_log(a, m->log->stream_id, "all\n", true, "");
        assert_true(http_read_until(fd, &text, "\r\n0\r\n", 5000));
        close(fd);
        str_clear(&text);
        fd = http_open(f->http, "/workloads/hello/logs", "");
        assert_non_null(m = agent_wait(a, is_log, 5000));
        send_log(a, m->log->stream_id, "", true, "there is no such unit here");
        assert_true(http_read_until(fd, &text, "no such unit", 5000));
        assert_non_null(strstr(str_c(&text), " 422 "));
        close(fd);
        expect_status(f, "GET", "/workloads/nothere/logs", NULL, 404);
        str_fini(&text);
        agent_close(a);
}

/* R: C40 */
static void a_lost_agent_ends_its_relays(void **state)
{
        struct fixture *f = *state;
        struct agent *a = agent_with_hello(f);
        struct str text = STR_INIT;
        int fd = http_open(f->http, "/workloads/hello/logs?follow", "");
        const Pb__ServerMessage *m = agent_wait(a, is_log, 5000);
        assert_non_null(m);
        send_log(a, m->log->stream_id, "line\n", false, "");
        assert_true(http_read_until(fd, &text, "line", 5000));
        agent_close(a);
        assert_true(http_read_until(fd, &text, "connection to the node's agent was lost", 5000));
        close(fd);
        str_fini(&text);
}

/* ---- a user's streaming call ---- */

struct user {
        struct event_base *base;
        struct grpc_channel *channel;
        struct grpc_call *call;
        struct str bytes;     /* data of all LogChunks or ExecOutputs */
        ARRAY(uint64_t) seqs; /* of Events */
        const ProtobufCMessageDescriptor *type;
        bool closed, ended;
        int status;
        int64_t exit_code;
        char message[256];
};

static void user_message(struct grpc_call *call, const void *data, size_t len)
{
        struct user *u = grpc_call_data(call);
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        assert_int_equal(pb_unpack(u->type, data, len, &arena, &m, NULL), 0);
        if (u->type == &pb__event__descriptor) {
                *array_push(&u->seqs) = ((Pb__Event *)m)->seq;
        } else if (u->type == &pb__exec_output__descriptor) {
                Pb__ExecOutput *out = (Pb__ExecOutput *)m;
                str_add(&u->bytes, out->data.data, out->data.len);
                if (out->exit_code)
                        u->exit_code = out->exit_code->value;
                u->ended |= out->eof;
        } else
                str_add(&u->bytes, ((Pb__LogChunk *)m)->data.data, ((Pb__LogChunk *)m)->data.len);
        arena_fini(&arena);
}

static void user_close(struct grpc_call *call, enum grpc_status status)
{
        struct user *u = grpc_call_data(call);
        u->closed = true;
        u->status = (int)status;
        u->call = NULL;
        snprintf(u->message, sizeof(u->message), "%s", grpc_call_message(call));
}

static struct user *user_call(struct fixture *f, const char *method,
                              const ProtobufCMessageDescriptor *type)
{
        struct user *u = mem_must(sizeof(*u));
        struct grpc_callbacks on = { .on_message = user_message, .on_close = user_close };
        u->type = type;
        u->exit_code = -1;
        u->base = event_base_new();
        assert_int_equal(grpc_channel_create(u->base, f->grpc, NULL, &u->channel, NULL), 0);
        u->call = grpc_channel_call(u->channel, fmt("/berth.v1.Control/%s", method), NULL, &on, u);
        return u;
}

static void user_send(struct user *u, const ProtobufCMessage *m)
{
        struct str s = STR_INIT;
        pb_pack(&s, m);
        assert_non_null(u->call);
        assert_int_equal(grpc_call_send(u->call, str_c(&s), s.len), 0);
        str_fini(&s);
}

static void user_free(struct user *u)
{
        grpc_channel_destroy(u->channel);
        event_base_free(u->base);
        str_fini(&u->bytes);
        array_fini(&u->seqs);
        mem_free(u);
}

static void break_loop(evutil_socket_t fd, short what, void *base)
{
        (void)fd;
        (void)what;
        event_base_loopbreak(base);
}

static void user_turn(struct user *u)
{
        struct timeval tv = { .tv_usec = 5000 };
        event_base_once(u->base, -1, EV_TIMEOUT, break_loop, u->base, &tv);
        event_base_dispatch(u->base);
}

/* Runs the user's loop (and the agent's) until the condition holds. */
#define until(u, a, cond)                                                                          \
        do {                                                                                       \
                int64_t _end = clock_mono_ns() + 8000000000;                                       \
                while (!(cond) && clock_mono_ns() < _end) {                                        \
                        user_turn(u);                                                              \
                        if (a)                                                                     \
                                agent_turn(a, 5);                                                  \
                }                                                                                  \
                assert_true(cond);                                                                 \
        } while (0)

static const Pb__ServerMessage *agent_gets(struct user *u, struct agent *a,
                                           bool (*fits)(const Pb__ServerMessage *))
{
        const Pb__ServerMessage *m = NULL;
        for (int i = 0; i < 500 && !m; i++) {
                user_turn(u);
                m = agent_wait(a, fits, 5);
        }
        assert_non_null(m);
        return m;
}

static void send_exec(struct agent *a, uint64_t stream, const char *text, bool eof, int exit_code)
{
        Pb__ExecOutput out = PB__EXEC_OUTPUT__INIT;
        Pb__IntValue code = PB__INT_VALUE__INIT;
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        out.stream_id = stream;
        out.data.data = (uint8_t *)text;
        out.data.len = strlen(text);
        out.eof = eof;
        code.value = exit_code;
        if (eof)
                out.exit_code = &code;
        m.exec = &out;
        agent_send(a, &m);
}

static struct user *exec_hello(struct fixture *f)
{
        char *command[] = { (char *)"cat", (char *)"-" };
        struct user *u = user_call(f, "Exec", &pb__exec_output__descriptor);
        Pb__ExecStart start = PB__EXEC_START__INIT;
        Pb__ExecMessage m = PB__EXEC_MESSAGE__INIT;
        start.id = (char *)"hello";
        start.command = command;
        start.n_command = 2;
        m.start = &start;
        user_send(u, &m.base);
        return u;
}

/* R: C40 */
static void exec_goes_both_ways(void **state)
{
        struct fixture *f = *state;
        struct agent *a = agent_with_hello(f);
        struct user *u = exec_hello(f);
        Pb__ExecMessage m = PB__EXEC_MESSAGE__INIT;
        Pb__ExecInput input = PB__EXEC_INPUT__INIT;
        input.data.data = (uint8_t *)"ping";
        input.data.len = 4;
        m.input = &input;
        user_send(u, &m.base); /* before the agent is even asked: kept in order */
        grpc_call_half_close(u->call);
        const Pb__ServerMessage *got = agent_gets(u, a, is_exec);
        uint64_t stream = got->exec->stream_id;
        assert_int_equal(got->exec->n_command, 2);
        assert_string_equal(got->exec->unit_id, "hello");
        got = agent_gets(u, a, is_exec_input);
        assert_int_equal(got->exec_input->stream_id, stream);
        assert_memory_equal(got->exec_input->data.data, "ping", 4);
        got = agent_gets(u, a, is_exec_input);
        assert_true(got->exec_input->eof);
        send_exec(a, stream, "pong", false, 0);
        until(u, a, u->bytes.len == 4);
        send_exec(a, stream, "!", true, 3);
        until(u, a, u->closed);
        assert_int_equal(u->status, GRPC_OK);
        assert_int_equal(u->exit_code, 3);
        assert_string_equal(str_c(&u->bytes), "pong!");
        user_free(u);
        agent_close(a);
}

/* R: C40 A12 */
static void a_cancelled_exec_reaches_the_agent(void **state)
{
        struct fixture *f = *state;
        struct agent *a = agent_with_hello(f);
        struct user *u = exec_hello(f);
        uint64_t stream = agent_gets(u, a, is_exec)->exec->stream_id;
        grpc_call_cancel(u->call);
        const Pb__ServerMessage *got = agent_gets(u, a, is_cancel);
        assert_int_equal(got->cancel->stream_id, stream);
        user_free(u);
        agent_close(a);
}

/* R: C40 A9 */
static void a_bad_exec_is_refused(void **state)
{
        struct fixture *f = *state;
        struct user *u = user_call(f, "Exec", &pb__exec_output__descriptor);
        Pb__ExecMessage m = PB__EXEC_MESSAGE__INIT;
        Pb__ExecStart start = PB__EXEC_START__INIT;
        m.start = &start;
        user_send(u, &m.base);
        until(u, (struct agent *)NULL, u->closed);
        assert_int_equal(u->status, GRPC_INVALID_ARGUMENT);
        user_free(u);
        u = exec_hello(f);
        until(u, (struct agent *)NULL, u->closed);
        assert_int_equal(u->status, GRPC_NOT_FOUND);
        user_free(u);
}

/* R: C40 A11 */
static void a_slow_reader_of_logs_is_cut_off_and_nobody_else(void **state)
{
        struct fixture *f = *state;
        server_end(f);
        f->opt.relay_queue_bytes = 256 * 1024;
        server_begin(f);
        struct agent *a = agent_with_hello(f);
        struct user *u = user_call(f, "Logs", &pb__log_chunk__descriptor);
        Pb__LogsRequest req = PB__LOGS_REQUEST__INIT;
        req.id = (char *)"hello";
        req.follow = true;
        user_send(u, &req.base);
        grpc_call_half_close(u->call);
        uint64_t stream = agent_gets(u, a, is_log)->log->stream_id;
        char *block = mem_must(64 * 1024 + 1);
        memset(block, 'x', 64 * 1024);
        grpc_call_pause(u->call); /* and reads no more */
        bool cancelled = false;
        for (int i = 0; i < 400 && !cancelled; i++) {
                send_log(a, stream, block, false, "");
                const Pb__ServerMessage *m = agent_wait(a, is_cancel, 1);
                cancelled = m && m->cancel->stream_id == stream;
        }
        assert_true(cancelled);
        /* the agent's stream and the rest go on */
        wait_for(f, a, "/workloads/hello", "\"phase\":\"Running\"");
        grpc_call_resume(u->call);
        until(u, a, u->closed);
        assert_int_equal(u->status, GRPC_RESOURCE_EXHAUSTED);
        mem_free(block);
        user_free(u);
        agent_close(a);
}

/* R: C29 X4 */
static void watch_events_by_grpc(void **state)
{
        struct fixture *f = *state;
        for (int i = 0; i < 3; i++)
                expect_status(f, "POST", "/workloads",
                              fmt("{\"id\":\"a%d\",\"spec\":{\"command\":[\"x\"]}}", i), 201);
        struct user *u = user_call(f, "WatchEvents", &pb__event__descriptor);
        Pb__ListEventsRequest req = PB__LIST_EVENTS_REQUEST__INIT;
        req.type = (char *)"WorkloadApplied";
        user_send(u, &req.base);
        grpc_call_half_close(u->call);
        until(u, (struct agent *)NULL, u->seqs.len == 3);
        for (int i = 3; i < 6; i++)
                expect_status(f, "POST", "/workloads",
                              fmt("{\"id\":\"a%d\",\"spec\":{\"command\":[\"x\"]}}", i), 201);
        until(u, (struct agent *)NULL, u->seqs.len == 6);
        for (size_t i = 1; i < 6; i++)
                assert_true(u->seqs.at[i] > u->seqs.at[i - 1]);
        server_stop(f->server);
        until(u, (struct agent *)NULL, u->closed);
        assert_int_equal(u->status, GRPC_UNAVAILABLE);
        user_free(u);
}

/* R: C40 */
static void a_new_stream_of_the_same_node_takes_over(void **state)
{
        struct fixture *f = *state;
        struct agent *old = agent_with_hello(f), *new = agent_connect(f->grpc);
        int status = -1;
        agent_hello(new, "n1");
        assert_non_null(agent_wait(new, is_welcome, 5000));
        const Pb__ServerMessage *m = agent_wait(new, is_plan, 5000);
        assert_non_null(m);
        assert_true(m->plan->complete);
        assert_int_equal(m->plan->n_units, 1);
        assert_true(agent_is_closed(old, 5000, &status));
        agent_close(old);
        agent_turn(new, 50);
        wait_for(f, new, "/nodes/n1", "\"connected\":true");
        agent_close(new);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, server_setup, server_teardown)
        const struct CMUnitTest tests[] = {
                T(an_agent_gets_its_plan_and_reports),
                T(a_stream_that_breaks_the_rules_is_ended),
                T(a_new_stream_of_the_same_node_takes_over),
                T(logs_reach_the_user_through_the_server),
                T(a_lost_agent_ends_its_relays),
                T(exec_goes_both_ways),
                T(a_cancelled_exec_reaches_the_agent),
                T(a_bad_exec_is_refused),
                T(a_slow_reader_of_logs_is_cut_off_and_nobody_else),
                T(watch_events_by_grpc),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
