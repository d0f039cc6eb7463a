/* core/node_test.c: nodes come, fall silent, are given up, and return. */
#include "core/core_testlib.h"

#define LIMIT 30000 /* 3 beats of 10 s */
#define GRACE 60000

static char *name(struct rig *r, const char *prefix, unsigned i)
{
        return arena_printf(&r->memory, "%s%u", prefix, i);
}

/* One workload per node, running. */
static void cluster(struct rig *r, unsigned nodes, const char *labels)
{
        for (unsigned i = 1; i <= nodes; i++)
                rig_hello(r, name(r, "n", i), 4000, 4096, 10, labels);
        for (unsigned i = 1; i <= nodes; i++) {
                rig_apply(r, rig_workload(r, name(r, "w", i), 1000, 1024));
                rig_runs(r, name(r, "w", i));
                if (nodes < 10) /* beyond, the order of ids is another */
                        assert_string_equal(rig_get(r, name(r, "w", i))->assigned_node,
                                            name(r, "n", i));
        }
        rig_mark(r);
}

/* R: C8 C9 C13 */
static void a_hello_registers_the_node(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        uint64_t session = rig_hello(&r, "n1", 4000, 8192, 100, "zone=a");
        assert_told(&r, "NodeRegistered");
        Pb__Node *n = rig_node(&r, "n1");
        assert_int_equal(n->status, PB__NODE_STATUS__E__Ready);
        assert_string_equal(n->status_reason, "registered");
        assert_string_equal(n->status_updated_by, "register");
        assert_int_equal(n->status_updated_at, r.now);
        assert_int_equal(n->resources->cpu_total, 4000);
        assert_int_equal(n->resources->memory_total, 8192);
        assert_int_equal(n->resources->disk_total, 100);
        assert_int_equal(n->n_supported_workload_types, 2);
        assert_string_equal(n->labels[0]->value, "a");
        assert_true(n->connected);
        assert_true(r.effects.at[0].kind == EFFECT_WELCOME && r.effects.at[0].welcome->accepted &&
                    r.effects.at[0].session == session);
        assert_int_equal(r.effects.at[0].welcome->heartbeat_ms, 10000);
        assert_true(r.effects.at[1].kind == EFFECT_PLAN_BEGIN &&
                    r.effects.at[2].kind == EFFECT_PLAN_END);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C9 A6 */
static void a_hello_that_says_nothing_new_writes_nothing(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 8192, 100, "zone=a");
        rig_gone(&r, "n1");
        rig_mark(&r);
        rig_hello(&r, "n1", 4000, 8192, 100, "zone=a");
        assert_told(&r, "");
        rig_hello(&r, "n1", 4000, 8192, 100, "zone=b");
        assert_told(&r, "NodeRegistered");
        assert_string_equal(rig_node(&r, "n1")->labels[0]->value, "b");
        rig_fini(&r);
}

/* R: C39 */
static void an_agent_is_called_at_its_endpoint_or_where_it_comes_from(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 8192, 100, NULL);
        h->agent_endpoint = "agent.example:7000";
        h->ip = "10.0.0.1";
        rig_say_hello(&r, h);
        assert_string_equal(rig_node(&r, "n1")->dial_target, "agent.example:7000");
        h = rig_hello_message(&r, "n2", 4000, 8192, 100, NULL);
        h->ip = "10.0.0.2";
        rig_say_hello(&r, h);
        assert_string_equal(rig_node(&r, "n2")->dial_target, "10.0.0.2:50051");
        h = rig_hello_message(&r, "n3", 4000, 8192, 100, NULL);
        h->ip = "fd00::3";
        rig_say_hello(&r, h);
        assert_string_equal(rig_node(&r, "n3")->dial_target, "[fd00::3]:50051");
        rig_fini(&r);
}

/* R: C9 C10 C23 C29 */
static void silence_makes_a_node_lost_once(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 3, NULL);
        rig_advance_alive(&r, 20000);
        int64_t heard = rig_node(&r, "n1")->last_heartbeat;
        rig_gone(&r, "n1"); /* a broken stream is no verdict */
        rig_advance_alive(&r, heard + LIMIT - 1 - r.now);
        assert_told(&r, "");
        rig_advance(&r, 1);
        assert_told(&r, "NodeLost");
        Pb__Event *e = rig_last(&r, PB__EVENT_TYPE__E__NodeLost);
        char ts[TIME_TEXT_LEN], want[128];
        snprintf(want, sizeof(want), "heartbeat expired: last heartbeat %s",
                 time_format(ts, heard));
        assert_string_equal(e->message, want);
        Pb__Node *n = rig_node(&r, "n1");
        assert_int_equal(n->status, PB__NODE_STATUS__E__NotReady);
        assert_string_equal(n->status_updated_by, "monitor");
        assert_phase(&r, "w1", Unknown);
        rig_advance_alive(&r, GRACE - 1000);
        assert_told(&r, "NodeLost");
        assert_string_equal(rig_get(&r, "w1")->assigned_node, "n1");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C10 C24 C18 */
static void beyond_the_grace_its_units_run_elsewhere(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 3, NULL);
        uint64_t token = rig_get(&r, "w1")->token->seq;
        rig_gone(&r, "n1");
        rig_advance_alive(&r, LIMIT + GRACE + 1000);
        assert_told(&r, "NodeLost Rescheduled WorkloadScheduled");
        Pb__Workload *w = rig_get(&r, "w1");
        assert_string_equal(w->assigned_node, "n2");
        assert_string_equal(w->placement->previous_node, "n1");
        assert_true(w->token->seq > token);
        assert_int_equal(rig_node(&r, "n1")->tombstones, 1);
        /* the old copy may still be there */
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 1000);
        assert_int_equal(rig_sent(&r, "n2", "w1")->unit->token->seq, w->token->seq);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C24 C27 C12 */
static void a_returning_node_removes_old_copies_before_it_takes_anything(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 3, NULL);
        uint64_t token = rig_get(&r, "w1")->token->seq;
        rig_gone(&r, "n1");
        rig_advance_alive(&r, LIMIT + GRACE + 1000);
        rig_runs(&r, "w1");
        rig_mark(&r);
        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
        rig_hello_add(&r, h, rig_unit(&r, "w1", 1, token, PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        assert_told(&r, "NodeReady");
        struct rig_effect *order = rig_sent(&r, "n1", "w1");
        assert_int_equal(order->unit->desired_state, PB__DESIRED_STATE__E__Deleted);
        assert_int_equal(order->unit->token->seq, token);
        rig_apply(&r, rig_workload(&r, "other", 1000, 1024));
        rig_apply(&r, rig_workload(&r, "new", 3000, 1024));
        assert_phase(&r, "new", Pending); /* only n1 has the room, and it is not ready for it */
        Pb__Explanation *x = rig_explain(&r, "new");
        assert_string_equal(x->nearest_miss->node_id, "n1");
        assert_int_equal(x->nearest_miss->reason, PB__REASON__E__node_returning);
        rig_mark(&r);
        rig_is_gone(&r, "w1", "n1");
        assert_told(&r, "UnitRemoved WorkloadScheduled");
        assert_string_equal(rig_get(&r, "new")->assigned_node, "n1");
        assert_string_equal(rig_get(&r, "w1")->assigned_node, "n2");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C24 C27 */
static void a_returning_node_that_knows_nothing_proves_its_copies_gone(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 3, NULL);
        rig_gone(&r, "n1");
        rig_advance_alive(&r, LIMIT + GRACE + 1000);
        rig_mark(&r);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        assert_told(&r, "NodeReady UnitRemoved");
        assert_int_equal(rig_node(&r, "n1")->tombstones, 0);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 0);
        rig_fini(&r);
}

/* R: C24 */
static void a_node_that_returns_within_the_grace_keeps_its_units(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 3, NULL);
        rig_gone(&r, "n1");
        rig_advance_alive(&r, LIMIT + GRACE - 1000);
        rig_mark(&r);
        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
        rig_hello_add(&r, h, rig_unit_now(&r, "w1", PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        assert_told(&r, "NodeReady");
        assert_phase(&r, "w1", Running);
        rig_advance_alive(&r, 3 * GRACE);
        assert_told(&r, "NodeReady");
        rig_fini(&r);
}

/* The stream stays open, only the heartbeats were late.  R: C9 C24 */
static void a_late_heartbeat_brings_the_node_back(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 3, NULL);
        for (int i = 0; i < 4; i++) {
                rig_advance(&r, 10000);
                rig_beat(&r, "n2");
                rig_beat(&r, "n3");
        }
        assert_told(&r, "NodeLost");
        rig_mark(&r);
        rig_beat(&r, "n1");
        assert_told(&r, "NodeReady");
        assert_non_null(rig_sent(&r, "n1", "w1")); /* the whole plan once more */
        rig_fini(&r);
}

/* R: C24 A8 */
static void without_another_node_it_awaits_failover(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 1, NULL);
        rig_gone(&r, "n1");
        rig_advance(&r, LIMIT + GRACE + 1000);
        assert_told(&r, "NodeLost WorkloadPending");
        Pb__Workload *w = rig_get(&r, "w1");
        assert_string_equal(w->metadata->last_action, "AwaitFailover");
        assert_string_equal(w->assigned_node, "n1"); /* until there is another */
        rig_advance(&r, 10 * GRACE);
        assert_told(&r, "NodeLost WorkloadPending"); /* told once */
        rig_check_replay(&r);
        rig_mark(&r);
        rig_hello(&r, "n2", 4000, 4096, 10, NULL);
        assert_told(&r, "NodeRegistered Rescheduled WorkloadScheduled");
        assert_string_equal(rig_get(&r, "w1")->assigned_node, "n2");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C24 A8 */
static void what_awaited_failover_stays_if_its_node_returns_first(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 1, NULL);
        for (int round = 0; round < 2; round++) {
                rig_gone(&r, "n1");
                rig_mark(&r);
                rig_advance(&r, LIMIT + GRACE + 1000);
                /* each time */
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadPending), 1);
                rig_mark(&r);
                /* with another version, so that it registers anew as well */
                Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
                h->agent_version = round ? "newer" : "test";
                rig_hello_add(&r, h, rig_unit_now(&r, "w1", PB__ACTUAL_STATE__E__Running));
                rig_say_hello(&r, h);
                assert_told(&r,
                            round ? "NodeRegistered WorkloadStarted" : "NodeReady WorkloadStarted");
                Pb__Workload *w = rig_get(&r, "w1");
                assert_int_equal(w->status->phase, PB__PHASE__E__Running);
                assert_int_equal(w->status->reason, PB__REASON__E__adopted);
                rig_mark(&r);
                /* capacity changes: nobody wants to move */
                rig_hello(&r, "n2", 100, 4096, 10, NULL);
                rig_advance_alive(&r, 100000);
                assert_true(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled) == 0);
                rig_gone(&r, "n2");
        }
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C24 C6 C12 */
static void what_awaits_failover_can_be_stopped_and_started(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 1, NULL);
        rig_gone(&r, "n1");
        rig_advance(&r, LIMIT + GRACE + 1000);
        rig_mark(&r);
        rig_stop(&r, "w1");
        assert_told(&r, "WorkloadDesired Rescheduled WorkloadStopped");
        assert_phase(&r, "w1", Stopped);              /* though nobody there can say so */
        assert_refused(rig_forget(&r, "n1"), ERR_OK); /* and the dead node can go */
        rig_hello(&r, "n2", 4000, 4096, 10, NULL);
        rig_start(&r, "w1");
        assert_string_equal(rig_get(&r, "w1")->assigned_node, "n2");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 */
static void a_drain_that_is_called_off_leaves_the_rest_where_it_is(void **state)
{
        (void)state;
        static const Pb__NodeWish__E wishes[] = { PB__NODE_WISH__E__schedulable,
                                                  PB__NODE_WISH__E__cordoned,
                                                  PB__NODE_WISH__E__disabled };
        for (size_t i = 0; i < ARRAY_LEN(wishes); i++) {
                struct rig r;
                rig_init(&r, NULL);
                cluster(&r, 1, NULL);
                rig_wish(&r, "n1", PB__NODE_WISH__E__draining);
                struct core_stats st;
                core_stats(r.core, &st);
                assert_int_equal(st.pending, 1);
                rig_wish(&r, "n1", wishes[i]);
                core_stats(r.core, &st);
                assert_int_equal(st.pending, 0);
                rig_hello(&r, "n2", 4000, 4096, 10, NULL);
                assert_string_equal(rig_get(&r, "w1")->assigned_node, "n1");
                assert_phase(&r, "w1", Running);
                rig_fini(&r);
        }
}

/* R: C11 */
static void a_restarted_server_listens_for_one_limit_before_any_verdict(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 4, NULL);
        r.now += 3600000; /* the server was away for an hour */
        rig_restart(&r);
        rig_mark(&r);
        for (unsigned i = 1; i <= 3; i++)
                rig_hello(&r, name(&r, "n", i), 4000, 4096, 10, NULL);
        rig_mark(&r);
        rig_advance(&r, 9000);
        rig_advance_alive(&r, LIMIT - 9000 - 1);
        assert_told(&r, "");
        rig_advance(&r, 1);
        assert_told(&r, "NodeLost");
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__NodeLost)->node_id, "n4");
        rig_fini(&r);
}

/* A node that was lost before the restart is not evicted before the server has listened either.  R:
 * C11 C10 */
static void a_restarted_server_does_not_evict_at_once(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 4, NULL);
        rig_gone(&r, "n1");
        rig_advance_alive(&r, LIMIT + 1000);
        r.now += 3600000;
        rig_restart(&r);
        for (unsigned i = 2; i <= 4; i++)
                rig_hello(&r, name(&r, "n", i), 4000, 4096, 10, NULL);
        rig_mark(&r);
        rig_advance(&r, 9000);
        rig_advance_alive(&r, LIMIT - 9000 - 1);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 0);
        rig_advance_alive(&r, 1000);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 1);
        rig_fini(&r);
}

/* R: C11 C29 */
static void eviction_stops_when_most_of_the_cluster_falls_silent(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 10, NULL);
        for (unsigned i = 1; i <= 6; i++) /* 60 % */
                rig_gone(&r, name(&r, "n", i));
        rig_advance_alive(&r, 10 * GRACE);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeLost), 6);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionHeld), 1);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 0);
        Pb__Explanation *x = rig_explain(&r, "w1");
        assert_non_null(strstr(x->next, "too many"));
        struct core_stats st;
        core_stats(r.core, &st);
        assert_true(st.braking);
        rig_mark(&r);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL); /* 5 of 10 are missing: no longer too many */
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionResumed), 1);
        rig_advance_alive(&r, GRACE - 1000); /* but the others may be on their way as well */
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 0);
        rig_advance_alive(&r, 2000);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 5);
        core_stats(r.core, &st);
        assert_false(st.braking);
        for (unsigned i = 2; i <= 6; i++)
                assert_int_equal(rig_node(&r, name(&r, "n", i))->tombstones, 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C11 */
static void half_of_the_cluster_is_not_too_many(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 20, NULL);
        for (unsigned i = 1; i <= 11; i++) /* 55 %, not more */
                rig_gone(&r, name(&r, "n", i));
        rig_advance_alive(&r, LIMIT + GRACE + 1000);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionHeld), 0);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 11);
        rig_fini(&r);
}

/* R: C12 */
static void a_heartbeat_never_undoes_a_cordon(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_wish(&r, "n1", PB__NODE_WISH__E__cordoned);
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__NodeWishChanged)->actor, "tester");
        for (int i = 0; i < 5; i++) {
                rig_advance_alive(&r, 10000);
                assert_int_equal(rig_node(&r, "n1")->wish, PB__NODE_WISH__E__cordoned);
        }
        rig_gone(&r, "n1");
        rig_advance(&r, 10 * GRACE);
        rig_hello(&r, "n1", 8000, 4096, 10, NULL); /* back, with more */
        assert_int_equal(rig_node(&r, "n1")->wish, PB__NODE_WISH__E__cordoned);
        rig_restart(&r);
        rig_hello(&r, "n1", 8000, 4096, 10, NULL);
        assert_int_equal(rig_node(&r, "n1")->wish, PB__NODE_WISH__E__cordoned);
        rig_apply(&r, rig_workload(&r, "a", 100, 100));
        assert_phase(&r, "a", Pending);
        assert_int_equal(rig_get(&r, "a")->status->reason, PB__REASON__E__node_cordoned);
        rig_mark(&r);
        rig_wish(&r, "n1", PB__NODE_WISH__E__schedulable);
        assert_told(&r, "NodeWishChanged WorkloadScheduled");
        rig_fini(&r);
}

/* R: C12 */
static void a_drain_moves_everything_and_survives_a_restart(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 2, NULL);
        /* the other node cannot take it as well */
        rig_apply(&r, rig_workload(&r, "big", 2500, 1024));
        rig_runs(&r, "big");
        assert_string_equal(rig_get(&r, "big")->assigned_node, "n1");
        rig_apply(&r, rig_workload(&r, "pin", 1000, 512));
        rig_runs(&r, "pin");
        assert_string_equal(rig_get(&r, "pin")->assigned_node, "n2");
        rig_mark(&r);
        rig_wish(&r, "n1", PB__NODE_WISH__E__draining);
        assert_int_equal(rig_node(&r, "n1")->status, PB__NODE_STATUS__E__Draining);
        assert_string_equal(rig_get(&r, "w1")->assigned_node, "n2");
        assert_int_equal(rig_sent(&r, "n1", "w1")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        assert_string_equal(rig_get(&r, "big")->assigned_node, "n1");
        /* it runs on where it is */
        assert_int_equal(rig_get(&r, "big")->status->phase, PB__PHASE__E__Running);
        rig_is_gone(&r, "w1", "n1");
        rig_restart(&r);
        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
        rig_hello_add(&r, h, rig_unit_now(&r, "big", PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        h = rig_hello_message(&r, "n2", 4000, 4096, 10, NULL);
        rig_hello_add(&r, h, rig_unit_now(&r, "w1", PB__ACTUAL_STATE__E__Running));
        rig_hello_add(&r, h, rig_unit_now(&r, "w2", PB__ACTUAL_STATE__E__Running));
        rig_hello_add(&r, h, rig_unit_now(&r, "pin", PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        rig_advance_alive(&r, LIMIT + 10000);
        rig_hello(&r, "n3", 4000, 4096, 10, NULL);
        rig_advance_alive(&r, 20000);
        assert_string_equal(rig_get(&r, "big")->assigned_node, "n3"); /* the drain went on */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 */
static void more_units_than_one_step_takes_are_drained_all_the_same(void **state)
{
        (void)state;
        struct rig r;
        struct core_options opt;
        core_options_default(&opt);
        opt.max_batch_ops = 150;
        rig_init(&r, &opt);
        rig_hello(&r, "n1", 100000, 1 << 20, 1000, NULL);
        for (unsigned i = 0; i < 200; i++)
                rig_apply(&r, rig_workload(&r, name(&r, "w", i), 10, 10));
        for (unsigned i = 0; i < 100; i++)
                rig_delete(&r, name(&r, "w", i)); /* and many that are being deleted there */
        rig_hello(&r, "n2", 100000, 1 << 20, 1000, NULL);
        rig_gone(&r, "n1");
        rig_advance_alive(&r, LIMIT + 1000);
        rig_mark(&r);
        /* silent, and not yet given up */
        rig_wish(&r, "n1", PB__NODE_WISH__E__draining);
        /* a few at a time, while it may come back */
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 16);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadDeleted), 0);
        rig_advance_alive(&r, GRACE + 1000);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 100);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadDeleted), 100);
        assert_true(r.largest_batch_ops <= 150);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 C29 */
static void only_a_dead_and_empty_node_is_forgotten(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 3, NULL);
        assert_refused(rig_forget(&r, "n1"), ERR_CONFLICT);
        assert_refused(rig_forget(&r, "nobody"), ERR_NOT_FOUND);
        Pb__Workload *job = rig_workload(&r, "job", 100, 10);
        job->restart = PB__RESTART__E__on_failure;
        rig_select(&r, job, "never", "there");
        rig_apply(&r, job);
        pb__workload__init(job);
        job = rig_workload(&r, "done", 100, 10);
        job->restart = PB__RESTART__E__on_failure;
        rig_apply(&r, job);
        assert_string_equal(rig_get(&r, "done")->assigned_node, "n1");
        rig_runs(&r, "done");
        rig_exits(&r, "done", 0);
        rig_advance(&r, 10000);
        rig_beat(&r, "n2");
        rig_beat(&r, "n3"); /* n1's stream stays open, but nothing comes */
        rig_advance(&r, 10000);
        rig_beat(&r, "n2");
        rig_beat(&r, "n3");
        rig_advance(&r, 15000);
        assert_int_equal(rig_node(&r, "n1")->status, PB__NODE_STATUS__E__NotReady);
        assert_refused(rig_forget(&r, "n1"), ERR_CONFLICT); /* w1 is still there */
        for (int i = 0; i < 7; i++) {
                rig_beat(&r, "n2");
                rig_beat(&r, "n3");
                rig_advance(&r, 10000);
        }
        rig_mark(&r);
        assert_refused(rig_forget(&r, "n1"), ERR_OK);
        assert_told(&r, "UnitRemoved WorkloadReleased NodeForgotten");
        /* or its agent would talk to nobody for ever */
        assert_int_equal(rig_sent_count(&r, EFFECT_CLOSE), 1);
        assert_null(rig_node(&r, "n1"));
        Pb__Workload *done = rig_get(&r, "done");
        assert_int_equal(done->status->phase, PB__PHASE__E__Completed);
        assert_string_equal(done->assigned_node, "n1"); /* its name, for people */
        assert_true(done->placement->forgotten);
        rig_check_replay(&r);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_retry(&r, "done");
        assert_phase(&r, "done", Scheduled);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A5 */
static void an_agent_of_another_cluster_is_turned_away_and_nothing_changes(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 1, NULL);
        struct str before = STR_INIT, after = STR_INIT;
        core_dump(r.core, &before);
        uint64_t session = rig_agent(&r, "n1")->session;
        Pb__Hello *h = rig_hello_message(&r, "n1", 1, 1, 1, NULL);
        h->cluster_id = "somebody-elses";
        rig_say_hello(&r, h);
        assert_told(&r, "");
        struct rig_effect *e = &r.effects.at[r.effects.len - 1];
        assert_true(e->kind == EFFECT_WELCOME && !e->welcome->accepted && e->welcome->reason[0] &&
                    e->welcome->hint[0]);
        assert_int_equal(rig_sent_count(&r, EFFECT_CLOSE), 0); /* the right one keeps its stream */
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_BEGIN), 0);
        core_dump(r.core, &after);
        assert_string_equal(str_c(&before), str_c(&after));
        rig_agent(&r, "n1")->session = session;
        rig_beat(&r, "n1");
        assert_int_equal(rig_sent_count(&r, EFFECT_BEAT), 1);
        str_fini(&before);
        str_fini(&after);
        rig_fini(&r);
}

/* R: A5 C33 */
static void an_agent_that_has_seen_a_newer_store_is_turned_away(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        cluster(&r, 1, NULL);
        for (int i = 0; i < 3; i++) {
                Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
                Pb__Cursor applied = PB__CURSOR__INIT;
                applied.epoch = i == 0 ? 2 : 1;
                applied.seq = i == 0 ? 1 : i == 1 ? r.head + 1 : r.head;
                h->applied = &applied;
                rig_mark(&r);
                rig_say_hello(&r, h);
                Pb__Welcome *w = NULL;
                for (size_t k = r.effect_mark; k < r.effects.len; k++)
                        if (r.effects.at[k].kind == EFFECT_WELCOME)
                                w = r.effects.at[k].welcome;
                assert_int_equal(w->accepted, i == 2);
                if (i < 2)
                        assert_told(&r, "");
        }
        rig_fini(&r);
}

/* R: A9 */
static void a_stream_belongs_to_one_node(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        Pb__Hello *h = rig_hello_message(&r, "n2", 4000, 4096, 10, NULL);
        r.sessions--; /* the same stream again */
        rig_mark(&r);
        rig_say_hello(&r, h);
        assert_told(&r, "");
        assert_false(r.effects.at[r.effects.len - 1].welcome->accepted);
        rig_beat(&r, "n1");
        assert_int_equal(rig_sent_count(&r, EFFECT_BEAT), 1);
        rig_fini(&r);
}

/* R: A5 */
static void a_second_agent_of_a_node_replaces_the_first(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        uint64_t first = rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_mark(&r);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        assert_told(&r, "");
        assert_true(r.effects.at[r.effect_mark].kind == EFFECT_CLOSE &&
                    r.effects.at[r.effect_mark].session == first);
        struct input late = { .kind = INPUT_GONE, .session = first, .now_ms = r.now };
        core_step(r.core, &late); /* the old stream's end says nothing about the new one */
        assert_true(rig_node(&r, "n1")->connected);
        rig_fini(&r);
}

static uint64_t hello_as(struct rig *r, const char *instance)
{
        Pb__Hello *h = rig_hello_message(r, "n1", 4000, 4096, 10, NULL);
        h->instance = (char *)instance;
        return rig_say_hello(r, h);
}

/* R: C34 A5 */
static void of_two_agents_with_one_id_the_connected_one_stays(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        uint64_t first = hello_as(&r, "first");
        rig_apply(&r, rig_workload(&r, "w", 1000, 100));
        rig_runs(&r, "w");
        rig_mark(&r);
        uint64_t second = hello_as(&r, "second"); /* it knows nothing of w */
        assert_told(&r, "");
        assert_int_equal(rig_sent_count(&r, EFFECT_WELCOME), 0);
        assert_true(r.effects.at[r.effect_mark].kind == EFFECT_CLOSE &&
                    r.effects.at[r.effect_mark].session == second);
        assert_int_equal(r.effects.at[r.effect_mark].value, EFFECT_CLOSE_FAULT);
        assert_true(r.effects.at[r.effect_mark + 1].kind == EFFECT_LIST &&
                    r.effects.at[r.effect_mark + 1].session == first);
        assert_phase(&r, "w", Running);
        assert_int_equal(rig_node(&r, "n1")->twin_refused_at, r.now);
        /* Nor while the server was deaf for long, and the newcomer is heard first: then only the
         * steady clock has gone on. */
        struct input in = { .kind = INPUT_TICK, .now_ms = r.now, .steady_ms = r.now + 3600000 };
        core_step(r.core, &in);
        rig_mark(&r);
        hello_as(&r, "second");
        assert_int_equal(rig_sent_count(&r, EFFECT_WELCOME), 0);
        assert_int_equal(rig_sent_count(&r, EFFECT_CLOSE), 1);
        /* The first one's stream is still its node's: when it ends, the other may be a restart of
         * the same machine. */
        rig_say(&r, INPUT_GONE, first, NULL, NULL);
        rig_mark(&r);
        second = hello_as(&r, "second");
        assert_int_equal(rig_sent_count(&r, EFFECT_WELCOME), 1);
        assert_int_equal(rig_sent_count(&r, EFFECT_CLOSE), 0);
        assert_int_equal(rig_node(&r, "n1")->twin_refused_at, 0);
        /* Its own new stream takes the place of the old one at once. */
        rig_mark(&r);
        hello_as(&r, "second");
        assert_true(r.effects.at[r.effect_mark].kind == EFFECT_CLOSE &&
                    r.effects.at[r.effect_mark].session == second);
        assert_int_equal(rig_sent_count(&r, EFFECT_WELCOME), 1);
        /* A stream on which nobody has been heard for too long keeps nobody away. */
        rig_advance(&r, 31000);
        rig_mark(&r);
        hello_as(&r, "third");
        assert_int_equal(rig_sent_count(&r, EFFECT_WELCOME), 1);
        assert_true(rig_node(&r, "n1")->connected);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A11 */
static void there_is_a_limit_on_nodes(void **state)
{
        (void)state;
        struct rig r;
        struct core_options opt;
        core_options_default(&opt);
        opt.max_nodes = 2;
        rig_init(&r, &opt);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_hello(&r, "n2", 4000, 4096, 10, NULL);
        rig_mark(&r);
        rig_hello(&r, "n3", 4000, 4096, 10, NULL);
        assert_told(&r, "");
        assert_false(r.effects.at[r.effects.len - 1].welcome->accepted);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL); /* known ones come back */
        assert_true(rig_node(&r, "n1")->connected);
        rig_fini(&r);
}

/* R: A10 C12 */
static void the_loser_of_two_operators_is_told(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        Pb__SetNodeWishRequest req = PB__SET_NODE_WISH_REQUEST__INIT;
        req.id = "n1";
        req.wish = PB__NODE_WISH__E__cordoned;
        req.if_match = rig_node(&r, "n1")->resource_version;
        assert_refused(rig_ask(&r, INPUT_NODE_WISH, &req), ERR_OK);
        req.wish = PB__NODE_WISH__E__disabled;
        assert_refused(rig_ask(&r, INPUT_NODE_WISH, &req), ERR_CONFLICT);
        assert_int_equal(rig_node(&r, "n1")->wish, PB__NODE_WISH__E__cordoned);
        rig_fini(&r);
}

/* R: C14 C16 */
static void a_label_that_a_node_gains_lets_a_waiting_workload_in(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, "zone=a");
        Pb__Workload *w = rig_workload(&r, "a", 100, 100);
        rig_select(&r, w, "disk", "ssd");
        rig_apply(&r, w);
        assert_phase(&r, "a", Pending);
        rig_mark(&r);
        rig_hello(&r, "n1", 4000, 4096, 10, "disk=ssd,zone=a");
        assert_told(&r, "NodeRegistered WorkloadScheduled");
        rig_fini(&r);
}

/* R: C9 */
static void nodes_that_came_at_once_do_not_beat_at_once_for_ever(void **state)
{
        (void)state;
        enum { NODES = 40, INTERVAL = 10000, SLOTS = 10 };
        struct rig r;
        rig_init(&r, NULL);
        int64_t due[NODES], now = r.now;
        unsigned at[SLOTS] = { 0 }, beats = 0;
        for (unsigned i = 0; i < NODES; i++) {
                rig_hello(&r, name(&r, "n", i), 4000, 4096, 10, NULL);
                due[i] = now + INTERVAL;
        }
        while (r.now < now + 10 * INTERVAL) { /* as agents do: each when it was told to */
                unsigned next = 0;
                for (unsigned i = 1; i < NODES; i++)
                        if (due[i] < due[next])
                                next = i;
                rig_advance(&r, due[next] - r.now);
                rig_beat(&r, name(&r, "n", next));
                size_t k = r.effects.len - 1;
                /* its list may be asked for behind it */
                while (r.effects.at[k].kind != EFFECT_BEAT)
                        k--;
                int64_t wait = r.effects.at[k].value;
                assert_in_range(wait, INTERVAL / 2, INTERVAL); /* never later than agreed */
                due[next] += wait;
                beats++;
        }
        for (unsigned i = 0; i < NODES; i++)
                at[due[i] % INTERVAL / (INTERVAL / SLOTS)]++;
        for (unsigned i = 0; i < SLOTS; i++)
                assert_in_range(at[i], 0, NODES / 4);
        /* finding one's moment costs a beat or two */
        assert_in_range(beats, 9 * NODES, 12 * NODES);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nodes_that_came_at_once_do_not_beat_at_once_for_ever),
                cmocka_unit_test(a_hello_registers_the_node),
                cmocka_unit_test(a_hello_that_says_nothing_new_writes_nothing),
                cmocka_unit_test(an_agent_is_called_at_its_endpoint_or_where_it_comes_from),
                cmocka_unit_test(silence_makes_a_node_lost_once),
                cmocka_unit_test(beyond_the_grace_its_units_run_elsewhere),
                cmocka_unit_test(a_returning_node_removes_old_copies_before_it_takes_anything),
                cmocka_unit_test(a_returning_node_that_knows_nothing_proves_its_copies_gone),
                cmocka_unit_test(a_node_that_returns_within_the_grace_keeps_its_units),
                cmocka_unit_test(a_late_heartbeat_brings_the_node_back),
                cmocka_unit_test(without_another_node_it_awaits_failover),
                cmocka_unit_test(what_awaited_failover_stays_if_its_node_returns_first),
                cmocka_unit_test(what_awaits_failover_can_be_stopped_and_started),
                cmocka_unit_test(a_drain_that_is_called_off_leaves_the_rest_where_it_is),
                cmocka_unit_test(a_restarted_server_listens_for_one_limit_before_any_verdict),
                cmocka_unit_test(a_restarted_server_does_not_evict_at_once),
                cmocka_unit_test(eviction_stops_when_most_of_the_cluster_falls_silent),
                cmocka_unit_test(half_of_the_cluster_is_not_too_many),
                cmocka_unit_test(a_heartbeat_never_undoes_a_cordon),
                cmocka_unit_test(a_drain_moves_everything_and_survives_a_restart),
                cmocka_unit_test(more_units_than_one_step_takes_are_drained_all_the_same),
                cmocka_unit_test(only_a_dead_and_empty_node_is_forgotten),
                cmocka_unit_test(an_agent_of_another_cluster_is_turned_away_and_nothing_changes),
                cmocka_unit_test(an_agent_that_has_seen_a_newer_store_is_turned_away),
                cmocka_unit_test(a_stream_belongs_to_one_node),
                cmocka_unit_test(a_second_agent_of_a_node_replaces_the_first),
                cmocka_unit_test(of_two_agents_with_one_id_the_connected_one_stays),
                cmocka_unit_test(there_is_a_limit_on_nodes),
                cmocka_unit_test(the_loser_of_two_operators_is_told),
                cmocka_unit_test(a_label_that_a_node_gains_lets_a_waiting_workload_in),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
