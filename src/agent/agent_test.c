/* agent/agent_test.c: the whole agent, as a process of its own, against a small server made of
 * net/grpc.h in this one.
 *
 * This binary is three things: the test, the agent (forked, so that it can be killed) and the
 * units' monitor ("__unit"). */
#include "agent/agent.h"
#include "agent/runtimes/proc.h"
#include "agent/runtimes/unit_files.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/unit_hash.h"
#include "net/grpc.h"
#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 30000

struct rig {
        char dir[512];
        char server_text[64];
        struct event_base *base;
        struct grpc_server *server;
        struct grpc_call *call; /* the newest stream */
        ARRAY(Pb__AgentMessage *) seen;
        uint32_t hellos, calls, heartbeats;
        const char *cluster;
        int64_t heartbeat_ms;
        bool silent; /* no Welcome */
        pid_t agent;
        uint64_t seq;
};
static struct rig rig;

/* ---- the server ---- */

static void say(struct grpc_call *call, const Pb__ServerMessage *m)
{
        size_t len = pb__server_message__get_packed_size(m);
        uint8_t *data = mem_must(len + 1);

        pb__server_message__pack(m, data);
        grpc_call_send(call, data, len);
        mem_free(data);
}

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        Pb__AgentMessage *m = pb__agent_message__unpack(NULL, len, data);
        Pb__ServerMessage reply = PB__SERVER_MESSAGE__INIT;
        Pb__Welcome w = PB__WELCOME__INIT;

        assert_non_null(m);
        *array_push(&rig.seen) = m;
        rig.heartbeats += m->heartbeat != NULL;
        if (!m->hello)
                return;
        rig.hellos++;
        rig.call = call;
        if (rig.silent)
                return;
        w.accepted = true;
        w.cluster_id = (char *)(uintptr_t)rig.cluster;
        w.epoch = 1;
        w.heartbeat_ms = rig.heartbeat_ms;
        reply.welcome = &w;
        say(call, &reply);
}

static void on_start(struct grpc_call *call)
{
        rig.calls++;
        grpc_call_send_headers(call, NULL);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        (void)status;
        if (rig.call == call)
                rig.call = NULL;
}

static void listen_at(const char *address)
{
        struct grpc_server_options so = { .address = address };
        struct grpc_method method = {
                .on = { .on_start = on_start, .on_message = on_message, .on_close = on_close }
        };
        struct err err = { 0 };

        if (grpc_server_create(rig.base, &so, &rig.server, &err) < 0 ||
            grpc_server_add(rig.server, "/berth.v1.Agent/Connect", &method, &err) < 0)
                fail_msg("%s", err_line(&err));
        snprintf(rig.server_text, sizeof(rig.server_text), "127.0.0.1:%u",
                 grpc_server_port(rig.server));
}

static void forget_seen(void)
{
        for (size_t i = 0; i < rig.seen.len; i++)
                pb__agent_message__free_unpacked(rig.seen.at[i], NULL);
        array_clear(&rig.seen);
}

static bool turn(int64_t deadline_ms)
{
        int64_t left = deadline_ms - clock_mono_ns() / 1000000;
        struct timeval tv = { left / 1000, (left % 1000) * 1000 };

        if (left <= 0)
                return false;
        event_base_loopexit(rig.base, &tv);
        event_base_loop(rig.base, EVLOOP_ONCE);
        return true;
}

static int64_t deadline(void)
{
        return clock_mono_ns() / 1000000 + WAIT_MS;
}

#define await_that(cond)                                                                           \
        do {                                                                                       \
                int64_t until_ = deadline();                                                       \
                while (!(cond))                                                                    \
                        if (!turn(until_))                                                         \
                                fail_msg("waited for " #cond);                                     \
        } while (0)

/* The newest status about a unit. */
static Pb__UnitStatus *status_of(const char *id)
{
        for (size_t i = rig.seen.len; i-- > 0;) {
                Pb__AgentMessage *m = rig.seen.at[i];
                Pb__UnitStatus **list = m->units   ? m->units->units
                                        : m->hello ? m->hello->units
                                                   : NULL;
                size_t n = m->units ? m->units->n_units : m->hello ? m->hello->n_units : 0;

                for (size_t k = n; k-- > 0;)
                        if (str_eq(list[k]->unit_id, id))
                                return list[k];
        }
        return NULL;
}

static bool has_state(const char *id, Pb__ActualState__E state)
{
        Pb__UnitStatus *s = status_of(id);

        return s && s->state == state;
}

static Pb__Hello *last_hello(void)
{
        for (size_t i = rig.seen.len; i-- > 0;)
                if (rig.seen.at[i]->hello)
                        return rig.seen.at[i]->hello;
        return NULL;
}

static void plan_unit(const char *id, uint64_t token, Pb__DesiredState__E desired,
                      const char *script)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__Plan plan = PB__PLAN__INIT;
        Pb__Cursor cursor = PB__CURSOR__INIT;
        Pb__PlanEntry unit = PB__PLAN_ENTRY__INIT, *units[] = { &unit };
        uint8_t packed[4096];
        Pb__Token tok = PB__TOKEN__INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;
        char *argv[] = { (char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
                         (char *)(uintptr_t)script };

        cursor.epoch = tok.epoch = 1;
        cursor.seq = ++rig.seq;
        tok.seq = token;
        spec.command = argv;
        spec.n_command = 3;
        w.id = unit.unit_id = (char *)(uintptr_t)id;
        w.type = PB__WORKLOAD_TYPE__E__process;
        w.revision_id = (char *)(uintptr_t) "r1";
        w.spec = &spec;
        w.stop_grace_seconds = 3;
        unit.token = &tok;
        unit.desired_state = desired;
        if (script) {
                assert_true(pb__workload__get_packed_size(&w) <= sizeof(packed));
                unit.workload = (ProtobufCBinaryData){ pb__workload__pack(&w, packed), packed };
        }
        plan.cursor = &cursor;
        plan.complete = plan.last = true;
        plan.units = units;
        plan.n_units = 1;
        m.plan = &plan;
        assert_non_null(rig.call);
        say(rig.call, &m);
}

/* ---- the agent ---- */

static void start_agent(const struct agent_options *more)
{
        struct agent_options opt = *more;
        struct err err = { 0 };
        int null;

        opt.server = rig.server_text;
        opt.data_dir = rig.dir;
        rig.agent = fork();
        assert_true(rig.agent >= 0);
        if (rig.agent > 0)
                return;
        /* nothing of the parent's loop is touched here, and its sockets are not kept open */
        syscall(SYS_close_range, 3, ~0U, 0);
        setpgid(0, 0);
        null = open("/dev/null", O_WRONLY);
        if (!getenv("BERTH_TEST_LOG"))
                log_setup(LOG_ERROR, LOG_FORMAT_LOGFMT, null);
        _exit(agent_run(&opt, &err) < 0 ? 10 + (int)err.code : 0);
}

static int end_agent(int sig)
{
        int status = 0;
        int64_t until = deadline();

        if (sig)
                kill(rig.agent, sig);
        while (waitpid(rig.agent, &status, WNOHANG) == 0)
                if (!turn(clock_mono_ns() / 1000000 + 10) && clock_mono_ns() / 1000000 > until)
                        fail_msg("the agent does not end");
        rig.agent = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int setup(void **state)
{
        const char *tmp = getenv("TMPDIR");

        (void)state;
        rig = (struct rig){ .cluster = "c1", .heartbeat_ms = 200, .seq = 10 };
        snprintf(rig.dir, sizeof(rig.dir), "%s/berth-agent-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
        assert_non_null(mkdtemp(rig.dir));
        rig.base = event_base_new();
        listen_at("127.0.0.1:0");
        return 0;
}

/* Also after a failure: nothing may be left running. */
static int teardown(void **state)
{
        const char *const ids[] = { "a", "b", "c" };
        struct unit_state s;

        (void)state;
        if (rig.agent > 0) {
                kill(rig.agent, SIGKILL);
                waitpid(rig.agent, NULL, 0);
        }
        for (size_t i = 0; i < ARRAY_LEN(ids); i++)
                if (unit_state_read(fmt("%s/units/%s", rig.dir, ids[i]), "run.state", &s, NULL) ==
                        0 &&
                    proc_start_time((pid_t)s.monitor) == (uint64_t)s.monitor_start)
                        kill((pid_t)s.monitor, SIGKILL); /* its command goes with it */
        grpc_server_destroy(rig.server);
        event_base_free(rig.base);
        forget_seen();
        array_fini(&rig.seen);
        dir_remove(rig.dir, NULL);
        return 0;
}

/* ---- tests ---- */

static const struct agent_options plain = { .node_id = "n1", .cpu = 2500, .memory_mb = 512 };

/* R: C40 C9 A5 */
static void agent_registers_runs_and_beats(void **state)
{
        struct engine_label labels[] = { { "disk", "ssd" } };
        struct agent_options opt = { .labels = labels, .n_labels = 1, .cpu = 2500 };
        Pb__Hello *h;

        (void)state;
        start_agent(&opt);
        await_that(rig.hellos == 1);
        h = last_hello();
        assert_int_equal(h->cpu, 2500);
        assert_true(h->memory_mb > 0 && h->disk_gb >= 0);
        assert_int_equal(h->n_labels, 1);
        assert_int_equal(h->n_supported_workload_types, 1);
        assert_true(strlen(h->node_id) > 5 && strlen(h->instance) == 26);
        plan_unit("a", 11, PB__DESIRED_STATE__E__Running, "echo hello; exec sleep 1000");
        await_that(has_state("a", PB__ACTUAL_STATE__E__Running));
        rig.heartbeats = 0;
        await_that(rig.heartbeats >= 2);
        for (size_t i = rig.seen.len; i-- > 0;)
                if (rig.seen.at[i]->heartbeat) {
                        assert_int_equal(
                            rig.seen.at[i]->heartbeat->units_hash,
                            units_hash_add(0, "a", 1, 11, PB__ACTUAL_STATE__E__Running));
                        assert_true(rig.seen.at[i]->heartbeat->usage->memory_used_mb > 0);
                        break;
                }
        plan_unit("a", 11, PB__DESIRED_STATE__E__Deleted, NULL);
        await_that(has_state("a", PB__ACTUAL_STATE__E__Missing));
        assert_false(file_exists(fmt("%s/units/a", rig.dir)));
        assert_int_equal(end_agent(SIGTERM), 0);
}

/* R: C13 */
static void a_node_that_offers_a_part_is_not_full_because_its_machine_is(void **state)
{
        struct agent_options opt = { .cpu = 1, .memory_mb = 16, .disk_gb = 1 };
        const Pb__NodeUsage *u = NULL;

        (void)state;
        start_agent(&opt);
        await_that(rig.hellos == 1);
        await_that(rig.heartbeats >= 2);
        for (size_t i = rig.seen.len; i-- > 0 && !u;)
                u = rig.seen.at[i]->heartbeat ? rig.seen.at[i]->heartbeat->usage : NULL;
        assert_non_null(u);
        assert_in_range(u->cpu_used, 0, 1);
        assert_in_range(u->memory_used_mb, 0, 16); /* this process alone has more */
        assert_in_range(u->disk_used_gb, 0, 1);
        assert_int_equal(end_agent(SIGTERM), 0);
}

/* R: A5 C34 C7 */
static void killed_agent_finds_its_units_again(void **state)
{
        char id[64];
        int64_t started;

        (void)state;
        start_agent(&plain);
        await_that(rig.hellos == 1);
        plan_unit("a", 11, PB__DESIRED_STATE__E__Running, "exec sleep 1000");
        await_that(has_state("a", PB__ACTUAL_STATE__E__Running));
        started = status_of("a")->started_at;
        for (int i = 0; i < 2; i++) {
                end_agent(i == 0 ? SIGKILL : SIGTERM);
                forget_seen();
                start_agent(&(struct agent_options){ 0 }); /* its id is on record */
                await_that(rig.hellos == (uint32_t)i + 2);
                snprintf(id, sizeof(id), "%s", last_hello()->node_id);
                assert_string_equal(id, "n1");
                assert_string_equal(last_hello()->cluster_id, "c1");
                assert_int_equal(last_hello()->applied->seq, rig.seq);
                assert_true(has_state("a", PB__ACTUAL_STATE__E__Running));
                assert_int_equal(status_of("a")->token->seq, 11);
                assert_int_equal(status_of("a")->started_at, started);
                /* re-sending changes nothing */
                plan_unit("a", 11, PB__DESIRED_STATE__E__Running, "exec sleep 1000");
                rig.heartbeats = 0;
                await_that(rig.heartbeats >= 1);
                assert_int_equal(status_of("a")->started_at, started);
        }
        plan_unit("a", 12, PB__DESIRED_STATE__E__Stopped, NULL);
        await_that(has_state("a", PB__ACTUAL_STATE__E__Stopped));
        end_agent(SIGTERM);
}

/* R: A12 W3, B5 */
static void stop_on_exit_is_told_by_the_next_agent(void **state)
{
        struct agent_options opt = plain;

        (void)state;
        opt.stop_on_exit = true;
        start_agent(&opt);
        await_that(rig.hellos == 1);
        plan_unit("a", 11, PB__DESIRED_STATE__E__Running, "exec sleep 1000");
        await_that(has_state("a", PB__ACTUAL_STATE__E__Running));
        forget_seen();
        assert_int_equal(end_agent(SIGTERM), 0);
        assert_true(file_exists(fmt("%s/units/a/exit.state", rig.dir)));
        assert_null(status_of("a")); /* nobody was told of a failure */
        start_agent(&opt);
        await_that(rig.hellos == 2);
        assert_true(has_state("a", PB__ACTUAL_STATE__E__Stopped));
        assert_int_equal(status_of("a")->reason, PB__REASON__E__agent_stopped);
        plan_unit("a", 12, PB__DESIRED_STATE__E__Running, "exec sleep 1000");
        await_that(has_state("a", PB__ACTUAL_STATE__E__Running));
        assert_int_equal(status_of("a")->token->seq, 12);
        plan_unit("a", 12, PB__DESIRED_STATE__E__Deleted, NULL);
        await_that(has_state("a", PB__ACTUAL_STATE__E__Missing));
        assert_int_equal(end_agent(SIGTERM), 0);
}

/* R: C35 C10 */
static void agent_comes_back_to_a_server_that_was_away(void **state)
{
        char address[64];

        (void)state;
        start_agent(&plain);
        await_that(rig.hellos == 1);
        plan_unit("a", 11, PB__DESIRED_STATE__E__Running,
                  "while [ ! -e $GO ]; do sleep 0.05; done; exit 3");
        await_that(has_state("a", PB__ACTUAL_STATE__E__Failed) ||
                   has_state("a", PB__ACTUAL_STATE__E__Running) ||
                   has_state("a", PB__ACTUAL_STATE__E__Stopped));
        plan_unit("b", 12, PB__DESIRED_STATE__E__Running, "sleep 0.3; exit 5");
        await_that(has_state("b", PB__ACTUAL_STATE__E__Running));
        snprintf(address, sizeof(address), "%s", rig.server_text);
        grpc_server_destroy(rig.server);
        rig.server = NULL;
        forget_seen();
        {
                int64_t until = deadline();

                while (!file_exists(fmt("%s/units/b/exit.state", rig.dir)) &&
                       clock_mono_ns() / 1000000 < until)
                        usleep(10000);
        }
        listen_at(address);
        await_that(rig.hellos == 2);
        assert_true(has_state("b", PB__ACTUAL_STATE__E__Failed));
        assert_int_equal(status_of("b")->exit_code->value, 5);
        plan_unit("a", 11, PB__DESIRED_STATE__E__Deleted, NULL);
        await_that(has_state("a", PB__ACTUAL_STATE__E__Missing));
        end_agent(SIGTERM);
}

static void ask_logs(uint64_t stream, const char *id, bool follow)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__LogRequest q = PB__LOG_REQUEST__INIT;

        q.stream_id = stream;
        q.unit_id = (char *)(uintptr_t)id;
        q.follow = follow;
        m.log = &q;
        say(rig.call, &m);
}

static bool log_text(uint64_t stream, struct str *out, bool *ret_eof, char *error, size_t size)
{
        str_clear(out);
        *ret_eof = false;
        for (size_t i = 0; i < rig.seen.len; i++) {
                Pb__LogChunk *c = rig.seen.at[i]->log;
                Pb__ExecOutput *x = rig.seen.at[i]->exec;

                if (c && c->stream_id == stream) {
                        str_add(out, c->data.data, c->data.len);
                        *ret_eof = *ret_eof || c->eof;
                        snprintf(error, size, "%s", c->error);
                }
                if (x && x->stream_id == stream) {
                        str_add(out, x->data.data, x->data.len);
                        *ret_eof = *ret_eof || x->eof;
                        snprintf(error, size, "%s", x->error);
                }
        }
        return out->len > 0;
}

/* R: C40 */
static void logs_and_exec_reach_the_server(void **state)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__ExecRequest q = PB__EXEC_REQUEST__INIT;
        Pb__ExecInput in = PB__EXEC_INPUT__INIT;
        Pb__CancelStream cancel = PB__CANCEL_STREAM__INIT;
        char *argv[] = { (char *)(uintptr_t) "cat" }, error[256];
        _cleanup_(str_finip) struct str text = STR_INIT;
        bool eof;

        (void)state;
        start_agent(&plain);
        await_that(rig.hellos == 1);
        plan_unit("a", 11, PB__DESIRED_STATE__E__Running,
                  "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo number $i; done; echo last; "
                  "exec sleep 1000");
        await_that(has_state("a", PB__ACTUAL_STATE__E__Running));
        ask_logs(7, "a", true);
        await_that(log_text(7, &text, &eof, error, sizeof(error)) &&
                   strstr(str_c(&text), "last\n"));
        assert_non_null(strstr(str_c(&text), "number 1\nnumber 2\n"));
        assert_false(eof);
        ask_logs(8, "nobody", false);
        await_that((log_text(8, &text, &eof, error, sizeof(error)), eof));
        assert_non_null(strstr(error, "no unit nobody"));
        q.stream_id = 9;
        q.unit_id = (char *)(uintptr_t) "a";
        q.command = argv;
        q.n_command = 1;
        m.exec = &q;
        say(rig.call, &m);
        m.exec = NULL;
        in.stream_id = 9;
        in.data = (ProtobufCBinaryData){ 3, (uint8_t *)(uintptr_t) "hey" };
        in.eof = true;
        m.exec_input = &in;
        say(rig.call, &m);
        m.exec_input = NULL;
        await_that((log_text(9, &text, &eof, error, sizeof(error)), eof));
        assert_string_equal(str_c(&text), "hey");
        cancel.stream_id = 7;
        m.cancel = &cancel;
        say(rig.call, &m);
        plan_unit("a", 11, PB__DESIRED_STATE__E__Deleted, NULL);
        await_that(has_state("a", PB__ACTUAL_STATE__E__Missing));
        end_agent(SIGTERM);
}

/* R: A5 C33 */
static void another_cluster_is_refused(void **state)
{
        (void)state;
        start_agent(&plain);
        await_that(rig.hellos == 1);
        plan_unit("a", 11, PB__DESIRED_STATE__E__Running, "exec sleep 1000");
        await_that(has_state("a", PB__ACTUAL_STATE__E__Running));
        end_agent(SIGKILL);
        rig.cluster = "c2";
        start_agent(&plain);
        await_that(rig.hellos == 2);
        await_that(rig.call == NULL); /* it hangs up by itself */
        assert_int_equal(rig.hellos, 2);
        end_agent(SIGTERM);
}

/* R: A9 */
static void bad_options_say_what_to_do(void **state)
{
        struct err err = { 0 };
        struct agent_options opt = { .server = "127.0.0.1:1",
                                     .data_dir = rig.dir,
                                     .runtime = "lxc" };

        (void)state;
        assert_int_equal(agent_run(&opt, &err), -ERR_INVALID);
        opt.runtime = NULL;
        opt.nodes = 3;
        assert_int_equal(agent_run(&opt, &err), -ERR_INVALID);
        opt.nodes = 0;
        start_agent(&plain);
        await_that(rig.hellos == 1);
        assert_int_equal(agent_run(&opt, &err), -ERR_CONFLICT);
        assert_non_null(strstr(err.msg, "another agent uses this data directory"));
        end_agent(SIGTERM);
        opt.node_id = "n2";
        assert_int_equal(agent_run(&opt, &err), -ERR_CONFLICT);
        assert_non_null(strstr(err.detail, "holds node n1, not n2"));
}

/* R: C40 */
static void many_mock_nodes_share_a_process(void **state)
{
        struct agent_options opt = { .node_id = "m", .runtime = "mock", .nodes = 200, .seed = 7 };

        (void)state;
        rig.heartbeat_ms = 500;
        start_agent(&opt);
        await_that(rig.hellos == 200);
        rig.heartbeats = 0;
        await_that(rig.heartbeats >= 400);
        assert_int_equal(rig.calls, 200);
        plan_unit("a", 11, PB__DESIRED_STATE__E__Running, "whatever");
        await_that(has_state("a", PB__ACTUAL_STATE__E__Running));
        plan_unit("a", 11, PB__DESIRED_STATE__E__Deleted, NULL);
        await_that(has_state("a", PB__ACTUAL_STATE__E__Missing));
        assert_int_equal(end_agent(SIGTERM), 0);
}

/* 100 streams on each of two connections; what one of them loses, all of its nodes find again. */
static void many_mock_nodes_share_connections(void **state)
{
        struct agent_options opt = {
                .node_id = "m", .runtime = "mock", .nodes = 200, .connections = 2, .seed = 7
        };

        (void)state;
        rig.heartbeat_ms = 500;
        start_agent(&opt);
        await_that(rig.hellos == 200);
        plan_unit("a", 11, PB__DESIRED_STATE__E__Running, "whatever");
        await_that(has_state("a", PB__ACTUAL_STATE__E__Running));
        rig.heartbeats = 0;
        await_that(rig.heartbeats >= 400);
        assert_int_equal(end_agent(SIGTERM), 0);
}

int main(int argc, char **argv)
{
#define t(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        const struct CMUnitTest tests[] = {
                t(agent_registers_runs_and_beats),
                t(killed_agent_finds_its_units_again),
                t(stop_on_exit_is_told_by_the_next_agent),
                t(agent_comes_back_to_a_server_that_was_away),
                t(logs_and_exec_reach_the_server),
                t(another_cluster_is_refused),
                t(bad_options_say_what_to_do),
                t(many_mock_nodes_share_a_process),
                t(many_mock_nodes_share_connections),
                t(a_node_that_offers_a_part_is_not_full_because_its_machine_is),
        };

        if (unit_main_wanted(argc, argv))
                return unit_main(argc, argv);
        signal(SIGPIPE, SIG_IGN);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
