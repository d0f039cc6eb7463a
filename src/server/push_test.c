/* server/push_test.c: the running server and an agent that it calls. The agent's loop runs in this
 * thread, between the looks at the server. */
#include "base/clock.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "persys_agent.pb-c.h"
#include "persys_control.pb-c.h"
#include "server/testkit.h"
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 30000

struct unit {
        char id[64], revision[128];
        Pa__DesiredState desired;
        Pa__ActualState state;
};
struct fake {
        struct event_base *base;
        struct grpc_server *server;
        char endpoint[64];
        struct unit units[64];
        size_t n_units;
        int applies, deletes, looks, lists, checks, asks;
        bool ghosts;       /* a status that does not run stays behind for ever */
        const char *ended; /* the status of every deletion in ListActions; NULL: it is not served */
        bool list_hangs;
        int n_hung;
        char last_revision[128];
        /* calls that are not answered: as many as were under way at once is what counts */
        bool hold;
        struct grpc_call *held[64];
        size_t n_held, most_held;
};

static struct unit *find(struct fake *k, const char *id, bool add)
{
        for (size_t i = 0; i < k->n_units; i++)
                if (strcmp(k->units[i].id, id) == 0)
                        return &k->units[i];
        if (!add)
                return NULL;
        struct unit *u = &k->units[k->n_units++];
        *u = (struct unit){ 0 };
        snprintf(u->id, sizeof(u->id), "%s", id);
        return u;
}

static void fill(Pa__WorkloadStatus *s, const struct unit *u)
{
        pa__workload_status__init(s);
        s->id = (char *)u->id;
        s->type = PA__WORKLOAD_TYPE__WORKLOAD_TYPE_CONTAINER;
        s->revision_id = (char *)u->revision;
        s->desired_state = u->desired;
        s->actual_state = u->state;
}

static void reply(struct grpc_call *call, const ProtobufCMessage *m)
{
        struct str packed = STR_INIT;
        pb_pack(&packed, m);
        grpc_call_reply(call, str_c(&packed), packed.len);
        str_fini(&packed);
}

static struct fake *fake_of(struct grpc_call *call)
{
        return grpc_call_data(call);
}

static bool holds(struct fake *k, struct grpc_call *call)
{
        if (!k->hold)
                return false;
        k->held[k->n_held++] = call;
        k->most_held = k->n_held > k->most_held ? k->n_held : k->most_held;
        return true;
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct fake *k = fake_of(call);
        (void)status;
        for (size_t i = 0; i < k->n_held; i++)
                if (k->held[i] == call)
                        k->held[i--] = k->held[--k->n_held];
}

static void answer_apply(struct grpc_call *call)
{
        Pa__ApplyWorkloadResponse a = PA__APPLY_WORKLOAD_RESPONSE__INIT;
        a.applied = true;
        reply(call, &a.base);
}

static void on_apply(struct grpc_call *call, const void *data, size_t len)
{
        struct fake *k = fake_of(call);
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        assert_int_equal(
            pb_unpack(&pa__apply_workload_request__descriptor, data, len, &arena, &m, NULL), 0);
        const Pa__ApplyWorkloadRequest *q = (Pa__ApplyWorkloadRequest *)m;
        struct unit *u = find(k, q->id, true);
        k->applies++;
        snprintf(u->revision, sizeof(u->revision), "%s", q->revision_id);
        snprintf(k->last_revision, sizeof(k->last_revision), "%s", q->revision_id);
        u->desired = q->desired_state;
        u->state = u->desired == PA__DESIRED_STATE__DESIRED_STATE_STOPPED
                       ? PA__ACTUAL_STATE__ACTUAL_STATE_STOPPED
                       : PA__ACTUAL_STATE__ACTUAL_STATE_RUNNING;
        arena_fini(&arena);
        if (!holds(k, call))
                answer_apply(call);
}

static void on_delete(struct grpc_call *call, const void *data, size_t len)
{
        struct fake *k = fake_of(call);
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        Pa__DeleteWorkloadResponse a = PA__DELETE_WORKLOAD_RESPONSE__INIT;
        assert_int_equal(
            pb_unpack(&pa__delete_workload_request__descriptor, data, len, &arena, &m, NULL), 0);
        struct unit *u = find(k, ((Pa__DeleteWorkloadRequest *)m)->id, false);
        k->deletes++;
        if (u && k->ghosts)
                u->state = PA__ACTUAL_STATE__ACTUAL_STATE_STOPPED;
        else if (u)
                *u = k->units[--k->n_units];
        a.success = true;
        reply(call, &a.base);
        arena_fini(&arena);
}

static void on_look(struct grpc_call *call, const void *data, size_t len)
{
        struct fake *k = fake_of(call);
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        assert_int_equal(
            pb_unpack(&pa__get_workload_status_request__descriptor, data, len, &arena, &m, NULL),
            0);
        const struct unit *u = find(k, ((Pa__GetWorkloadStatusRequest *)m)->id, false);
        Pa__GetWorkloadStatusResponse a = PA__GET_WORKLOAD_STATUS_RESPONSE__INIT;
        Pa__WorkloadStatus s;
        k->looks++;
        if (u) {
                fill(&s, u);
                a.status = &s;
                reply(call, &a.base);
        } else
                grpc_call_finish(call, GRPC_UNKNOWN, "status not found: it", NULL);
        arena_fini(&arena);
}

static void on_actions(struct grpc_call *call, const void *data, size_t len)
{
        struct fake *k = fake_of(call);
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        Pa__ListActionsResponse a = PA__LIST_ACTIONS_RESPONSE__INIT;
        Pa__AgentAction action = PA__AGENT_ACTION__INIT, *list[] = { &action };
        assert_int_equal(
            pb_unpack(&pa__list_actions_request__descriptor, data, len, &arena, &m, NULL), 0);
        k->asks++;
        action.workload_id = ((Pa__ListActionsRequest *)m)->workload_id;
        action.action_type = "delete_workload";
        action.status = (char *)(k->ended ? k->ended : "");
        action.error = "workload not found: it";
        a.actions = list;
        a.n_actions = 1;
        if (k->ended)
                reply(call, &a.base);
        else
                grpc_call_finish(call, GRPC_UNIMPLEMENTED, "unknown method", NULL);
        arena_fini(&arena);
}

static void on_list(struct grpc_call *call, const void *data, size_t len)
{
        struct fake *k = fake_of(call);
        Pa__ListWorkloadsResponse a = PA__LIST_WORKLOADS_RESPONSE__INIT;
        Pa__WorkloadStatus s[64], *list[64];
        (void)data;
        (void)len;
        k->lists++;
        if (k->list_hangs) {
                k->n_hung++;
                return;
        }
        for (size_t i = 0; i < k->n_units; i++) {
                fill(&s[i], &k->units[i]);
                list[i] = &s[i];
        }
        a.workloads = list;
        a.n_workloads = k->n_units;
        reply(call, &a.base);
}

static void on_check(struct grpc_call *call, const void *data, size_t len)
{
        Pa__HealthCheckResponse a = PA__HEALTH_CHECK_RESPONSE__INIT;
        (void)data;
        (void)len;
        fake_of(call)->checks++;
        a.healthy = true;
        reply(call, &a.base);
}

/* endpoint NULL: the kernel chooses. */
static void fake_begin_at(struct fake *k, const char *endpoint)
{
        static const struct {
                const char *path;
                void (*fn)(struct grpc_call *, const void *, size_t);
        } methods[] = { { "/persys.agent.v1.AgentService/ApplyWorkload", on_apply },
                        { "/persys.agent.v1.AgentService/DeleteWorkload", on_delete },
                        { "/persys.agent.v1.AgentService/GetWorkloadStatus", on_look },
                        { "/persys.agent.v1.AgentService/ListWorkloads", on_list },
                        { "/persys.agent.v1.AgentService/ListActions", on_actions },
                        { "/persys.agent.v1.AgentService/HealthCheck", on_check } };
        struct grpc_server_options o = { .address = endpoint ? endpoint : "127.0.0.1:0" };
        struct err err = { 0 };
        *k = (struct fake){ .base = event_base_new() };
        if (grpc_server_create(k->base, &o, &k->server, &err) < 0)
                fail_msg("%s", err_line(&err));
        for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
                struct grpc_method m = { .on.on_message = methods[i].fn,
                                         .on.on_close = on_close,
                                         .ctx = k,
                                         .unary_request = true };
                assert_int_equal(grpc_server_add(k->server, methods[i].path, &m, &err), 0);
        }
        snprintf(k->endpoint, sizeof(k->endpoint), "127.0.0.1:%u", grpc_server_port(k->server));
}

static void fake_begin(struct fake *k)
{
        fake_begin_at(k, NULL);
}

static void fake_end(struct fake *k)
{
        grpc_server_destroy(k->server);
        event_base_free(k->base);
}

static void fake_turn(struct fake *k, int ms)
{
        struct timeval tv = { .tv_usec = ms * 1000 };
        event_base_loopexit(k->base, &tv);
        event_base_dispatch(k->base);
}

static void release(struct fake *k)
{
        k->hold = false;
        while (k->n_held > 0)
                answer_apply(k->held[--k->n_held]);
}

static enum grpc_status call_server(struct fixture *f, const char *path, const ProtobufCMessage *m)
{
        struct grpc_reply r;
        struct err err = { 0 };
        struct str packed = STR_INIT;
        pb_pack(&packed, m);
        assert_int_equal(
            grpc_call_sync(f->grpc, NULL, NULL, path, str_c(&packed), packed.len, 10000, &r, &err),
            0);
        enum grpc_status status = r.status;
        grpc_reply_fini(&r);
        str_fini(&packed);
        return status;
}

static void register_node(struct fixture *f, const struct fake *k)
{
        Pc__RegisterNodeRequest r = PC__REGISTER_NODE_REQUEST__INIT;
        Pc__NodeCapabilities c = PC__NODE_CAPABILITIES__INIT;
        char *types[] = { "container" };
        r.node_id = "n1";
        r.grpc_endpoint = (char *)k->endpoint;
        c.cpu_total_millicores = 64000;
        c.memory_total_mb = 65536;
        c.supported_workload_types = types;
        c.n_supported_workload_types = 1;
        r.capabilities = &c;
        assert_int_equal(call_server(f, "/persys.control.v1.AgentControl/RegisterNode", &r.base),
                         GRPC_OK);
}

static enum grpc_status beat(struct fixture *f, const char *node, const char *workload,
                             const char *state)
{
        Pc__HeartbeatRequest r = PC__HEARTBEAT_REQUEST__INIT;
        Pc__WorkloadStatus s = PC__WORKLOAD_STATUS__INIT, *list[] = { &s };
        s.workload_id = (char *)workload;
        s.state = (char *)state;
        r.node_id = (char *)node;
        r.workload_statuses = list;
        r.n_workload_statuses = workload ? 1 : 0;
        return call_server(f, "/persys.control.v1.AgentControl/Heartbeat", &r.base);
}

static void put(struct fixture *f, const char *id, const char *env)
{
        const char *body = fmt("{\"id\":\"%s\",\"type\":\"container\",\"spec\":{\"image\":\"app\","
                               "\"env\":{\"V\":\"%s\"}}}",
                               id, env);
        struct http_answer a = http_do(f->http, "PUT", fmt("/workloads/%s", id),
                                       "Content-Type: application/json\r\n", body);
        if (a.status != 200 && a.status != 201)
                fail_msg("%d %s", a.status, str_c(&a.body));
        http_answer_fini(&a);
}

static bool shows(struct fixture *f, const char *path, const char *text)
{
        struct http_answer a = http_do(f->http, "GET", path, "", NULL);
        bool yes = strstr(str_c(&a.body), text) != NULL;
        http_answer_fini(&a);
        return yes;
}

#define await(k, condition)                                                                        \
        do {                                                                                       \
                int64_t until_ = clock_mono_ns() / 1000000 + WAIT_MS;                              \
                while (!(condition)) {                                                             \
                        if (clock_mono_ns() / 1000000 > until_)                                    \
                                fail_msg("waited in vain: %s", #condition);                        \
                        fake_turn(k, 5);                                                           \
                }                                                                                  \
        } while (0)

/* R: C4 C7 C21 */
static void a_launch_is_sent_once_and_then_looked_at(void **state)
{
        struct fixture *f = *state;
        struct fake k;
        fake_begin(&k);
        register_node(f, &k);
        await(&k, k.lists > 0);
        put(f, "web", "1");
        await(&k, shows(f, "/workloads/web", "\"phase\":\"Running\""));
        assert_int_equal(k.applies, 1);
        assert_non_null(strchr(k.last_revision, '@'));
        /* registering again (the agent was restarted, or lost a heartbeat) sends nothing that is
         * there */
        int lists = k.lists;
        register_node(f, &k);
        await(&k, k.lists > lists);
        put(f, "other", "1");
        await(&k, shows(f, "/workloads/other", "\"phase\":\"Running\""));
        assert_int_equal(k.applies, 2);
        assert_int_equal(k.deletes, 0);
        assert_true(shows(
            f, "/metrics",
            "persys_scheduler_agent_rpc_requests_total{rpc=\"ApplyWorkload\",code=\"OK\"} 2"));
        assert_true(shows(f, "/metrics",
                          "persys_scheduler_agent_rpc_duration_seconds_count{rpc="
                          "\"GetWorkloadStatus\",code=\"OK\"}"));
        fake_end(&k);
}

/* R: C4 C26 */
static void few_calls_are_under_way_at_once(void **state)
{
        struct fixture *f = *state;
        struct fake k;
        fake_begin(&k);
        register_node(f, &k);
        await(&k, k.lists > 0);
        k.hold = true;
        for (int i = 0; i < 20; i++)
                put(f, fmt("w%d", i), "1");
        await(&k, k.n_held == 4);
        for (int i = 0; i < 20; i++)
                fake_turn(&k, 5);
        assert_int_equal(k.most_held, 4);
        release(&k);
        await(&k, shows(f, "/cluster", "\"Running\":20") || k.applies == 20);
        for (int i = 0; i < 20; i++)
                await(&k, shows(f, fmt("/workloads/w%d", i), "\"phase\":\"Running\""));
        fake_end(&k);
}

/* R: C7 C26 */
static void a_newer_wish_overtakes_an_older_call(void **state)
{
        struct fixture *f = *state;
        struct fake k;
        fake_begin(&k);
        register_node(f, &k);
        await(&k, k.lists > 0);
        k.hold = true;
        put(f, "web", "1");
        await(&k, k.n_held == 1);
        char first[128];
        snprintf(first, sizeof(first), "%s", k.last_revision);
        put(f, "web", "2");
        put(f, "web", "3");
        for (int i = 0; i < 20; i++)
                fake_turn(&k, 5);
        assert_int_equal(k.applies, 1); /* one call per workload at a time */
        release(&k);
        await(&k, k.applies == 2);
        assert_string_not_equal(k.last_revision, first);
        await(&k, shows(f, "/workloads/web", "\"phase\":\"Running\""));
        assert_int_equal(k.applies, 2); /* what was overtaken was never sent */
        fake_end(&k);
}

/* R: C9 C27 B-12 */
static void what_a_heartbeat_says_is_only_a_hint(void **state)
{
        struct fixture *f = *state;
        struct fake k;
        fake_begin(&k);
        assert_int_equal(beat(f, "n1", NULL, NULL), GRPC_NOT_FOUND); /* it shall register */
        register_node(f, &k);
        await(&k, k.lists > 0);
        put(f, "web", "1");
        await(&k, shows(f, "/workloads/web", "\"phase\":\"Running\""));
        int looks = k.looks;
        assert_int_equal(beat(f, "n1", "web", "Failed"), GRPC_OK);
        await(&k, k.looks > looks); /* it was asked, and says that all is well */
        assert_true(shows(f, "/workloads/web", "\"phase\":\"Running\""));
        looks = k.looks;
        assert_int_equal(beat(f, "n1", "web", "Running"), GRPC_OK);
        assert_int_equal(beat(f, "n1", "stranger", "Failed"), GRPC_OK);
        for (int i = 0; i < 20; i++)
                fake_turn(&k, 5);
        assert_int_equal(k.looks, looks);
        /* and when it did fail, the hint brings the truth at once */
        find(&k, "web", false)->state = PA__ACTUAL_STATE__ACTUAL_STATE_FAILED;
        assert_int_equal(beat(f, "n1", "web", "Failed"), GRPC_OK);
        await(&k, shows(f, "/workloads/web", "\"phase\":\"RetryPending\""));
        fake_end(&k);
}

/* R: C21 B-4 */
static void a_deletion_is_asked_for_once_and_only_if_there_is_something(void **state)
{
        struct fixture *f = *state;
        struct fake k;
        fake_begin(&k);
        register_node(f, &k);
        await(&k, k.lists > 0);
        put(f, "web", "1");
        put(f, "gone", "1");
        await(&k, shows(f, "/workloads/web", "\"phase\":\"Running\"") &&
                      shows(f, "/workloads/gone", "\"phase\":\"Running\""));
        struct unit *gone = find(&k, "gone", false); /* by somebody else */
        *gone = k.units[--k.n_units];
        expect_status(f, "DELETE", "/workloads/gone", NULL, 200);
        await(&k, shows(f, "/workloads/gone", "not_found"));
        assert_int_equal(k.deletes, 0);
        expect_status(f, "DELETE", "/workloads/web", NULL, 200);
        await(&k, shows(f, "/workloads/web", "not_found"));
        assert_int_equal(k.deletes, 1);
        fake_end(&k);
}

/* R: C21. Issue 5, C3: in each of the ways in which an agent can say that it is over, or cannot. */
static void a_status_that_stays_behind_does_not_hold_up_a_deletion(void **state)
{
        static const char *const ways[] = { "completed", "failed", NULL };
        struct fixture *f = *state;
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
                struct fake k;
                fake_begin(&k);
                k.ghosts = true;
                k.ended = "running";
                register_node(f, &k);
                await(&k, k.lists > 0);
                put(f, "web", "1");
                await(&k, shows(f, "/workloads/web", "\"phase\":\"Running\""));
                expect_status(f, "DELETE", "/workloads/web", NULL, 200);
                await(&k, k.asks >= 2);
                int looks = k.looks;
                await(&k, k.asks >= 3);
                assert_int_equal(k.looks, looks); /* a look would make the ghost */
                assert_true(shows(f, "/workloads/web", "Deleting"));
                k.ended = ways[i];
                await(&k, shows(f, "/workloads/web", "not_found"));
                assert_int_equal(k.deletes, 1);
                fake_end(&k);
        }
}

/* R: C34 C7 */
static void a_revision_that_is_not_ours_is_replaced(void **state)
{
        struct fixture *f = *state;
        struct fake k;
        fake_begin(&k);
        register_node(f, &k);
        await(&k, k.lists > 0);
        put(f, "web", "1");
        await(&k, shows(f, "/workloads/web", "\"phase\":\"Running\""));
        char ours[128];
        snprintf(ours, sizeof(ours), "%s", k.last_revision);
        snprintf(find(&k, "web", false)->revision, 128, "somebody-elses");
        register_node(f, &k);
        await(&k, k.applies == 2);
        assert_string_equal(k.last_revision, ours);
        fake_end(&k);
}

/* R: C23 */
static void an_agent_that_is_gone_makes_its_node_unready_until_it_is_back(void **state)
{
        struct fixture *f = *state;
        struct fake k;
        fake_begin(&k);
        register_node(f, &k);
        await(&k, k.lists > 0 && shows(f, "/nodes/n1", "\"status\":\"Ready\""));
        put(f, "web", "1");
        await(&k, shows(f, "/workloads/web", "\"phase\":\"Running\""));
        struct unit was = k.units[0];
        fake_end(&k);
        put(f, "web", "2"); /* nobody there */
        fake_begin(&k);     /* at another place, so that the old one stays empty */
        await(&k, shows(f, "/nodes/n1", "\"status\":\"NotReady\""));
        assert_true(shows(f, "/nodes/n1", "UNAVAILABLE"));
        assert_int_equal(beat(f, "n1", NULL, NULL), GRPC_OK);
        /* being heard is not enough */
        assert_true(shows(f, "/nodes/n1", "\"status\":\"NotReady\""));
        k.units[k.n_units++] = was;
        register_node(f, &k);
        await(&k, shows(f, "/nodes/n1", "\"status\":\"Ready\""));
        await(&k, k.applies == 1 && shows(f, "/workloads/web", "\"phase\":\"Running\""));
        fake_end(&k);
}

/* R: C23 */
static void only_an_agent_that_lists_its_work_is_reachable_again(void **state)
{
        struct fixture *f = *state;
        struct fake k;
        char endpoint[64];
        fake_begin(&k);
        register_node(f, &k);
        await(&k, k.lists > 0 && shows(f, "/nodes/n1", "\"status\":\"Ready\""));
        snprintf(endpoint, sizeof(endpoint), "%s", k.endpoint);
        fake_end(&k);
        put(f, "web", "1");
        for (int i = 0; i < 500 && !shows(f, "/nodes/n1", "\"status\":\"NotReady\""); i++)
                usleep(10000);
        fake_begin_at(&k, endpoint);
        k.list_hangs = true; /* its health is fine, and nothing else is */
        await(&k, k.checks > 0 && k.n_hung > 0);
        assert_true(shows(f, "/nodes/n1", "\"status\":\"NotReady\""));
        assert_int_equal(k.applies, 0);
        k.list_hangs = false;
        await(&k, shows(f, "/nodes/n1", "\"status\":\"Ready\""));
        await(&k, shows(f, "/workloads/web", "\"phase\":\"Running\""));
        fake_end(&k);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, server_setup, server_teardown)
        const struct CMUnitTest tests[] = {
                TEST(a_launch_is_sent_once_and_then_looked_at),
                TEST(few_calls_are_under_way_at_once),
                TEST(a_newer_wish_overtakes_an_older_call),
                TEST(what_a_heartbeat_says_is_only_a_hint),
                TEST(a_deletion_is_asked_for_once_and_only_if_there_is_something),
                TEST(a_status_that_stays_behind_does_not_hold_up_a_deletion),
                TEST(a_revision_that_is_not_ours_is_replaced),
                TEST(an_agent_that_is_gone_makes_its_node_unready_until_it_is_back),
                TEST(only_an_agent_that_lists_its_work_is_reachable_again),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
