/* core/rules_test.c: alerts and webhooks (C30), and what a changed configuration changes. */
#include "core/core_testlib.h"

#define HOOK                                                                                       \
        "webhooks: [{name: ops, url: 'http://127.0.0.1:1/hook', retry: {max_attempts: 3, "         \
        "base_seconds: 2, cap_seconds: 10}}]\n"

static void done(struct rig *r, const char *id, bool delivered, const char *detail)
{
        Pb__WebhookResult m = PB__WEBHOOK_RESULT__INIT;
        m.id = (char *)id;
        m.delivered = delivered;
        m.detail = (char *)detail;
        rig_say(r, INPUT_WEBHOOK_DONE, 0, &m, NULL);
}

/* The last webhook that left since the mark. */
static Pb__Outgoing *sent(struct rig *r)
{
        for (size_t i = r->effects.len; i > r->effect_mark; i--)
                if (r->effects.at[i - 1].kind == EFFECT_WEBHOOK)
                        return r->effects.at[i - 1].outgoing;
        return NULL;
}

static size_t alerts(struct rig *r)
{
        Pb__ListAlertsRequest q = PB__LIST_ALERTS_REQUEST__INIT;
        return ((Pb__ListAlertsResponse *)rig_ask(r, INPUT_LIST_ALERTS, &q)->msg)->n_items;
}

/* R: C30 */
static void a_workload_that_failed_three_times_raises_one_alert(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r,
                   "rules: [{name: failing, when: workload.failures >= 3, message: look at it}]\n");
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_apply(&r, rig_workload(&r, "a", 100, 64));
        rig_mark(&r);
        for (int i = 1; i <= 4; i++) {
                rig_runs(&r, "a");
                rig_exits(&r, "a", 1);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__AlertRaised), i >= 3);
                rig_advance_alive(&r, rig_get(&r, "a")->retry->next_retry_at - r.now);
        }
        Pb__Event *e = rig_last(&r, PB__EVENT_TYPE__E__AlertRaised);
        assert_string_equal(e->rule, "failing");
        assert_string_equal(e->workload_id, "a");
        assert_string_equal(e->message,
                            "look at it: workload.failures >= 3 (workload.failures is 3)");
        assert_int_equal(alerts(&r), 1);
        rig_restart(&r);
        rig_config(&r,
                   "rules: [{name: failing, when: workload.failures >= 3, message: look at it}]\n");
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_advance_alive(&r, 300000);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__AlertRaised), 1); /* not again */
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__AlertCleared), 0);
        rig_retry(&r, "a"); /* forgets the attempts */
        rig_runs(&r, "a");
        rig_advance_alive(&r, 70000); /* the default cooldown is a minute */
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__AlertCleared), 1);
        assert_int_equal(alerts(&r), 0);
        assert_null(rig_record(&r, "/alerts/failing/workload/a"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C30 A6 */
static void a_figure_must_hold_for_its_duration_and_flutter_raises_nothing(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(
            &r,
            "rules: [{name: hot, when: node.cpu > 85% for 5m, selector: zone=a, cooldown: 2m}]\n");
        rig_hello(&r, "n1", 4000, 4096, 10, "zone=a");
        rig_hello(&r, "n2", 4000, 4096, 10, "zone=b");
        rig_mark(&r);
        for (int i = 0; i < 100; i++) { /* never five minutes on end */
                rig_beat_using(&r, "n1", i % 20 == 19 ? 1000 : 3900, 0, 0);
                rig_beat_using(&r, "n2", 3900, 0, 0); /* not selected */
                rig_advance(&r, 10000);
        }
        assert_told(&r, "");
        rig_beat_using(&r, "n1", 1000, 0, 0);
        for (int i = 0; i < 30; i++) {
                rig_beat_using(&r, "n1", 3480, 0, 0);
                rig_beat_using(&r, "n2", 3900, 0, 0);
                assert_told(&r, "");
                rig_advance(&r, 10000);
        }
        assert_told(&r, "AlertRaised"); /* on its deadline, without waiting for a heartbeat */
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__AlertRaised)->node_id, "n1");
        assert_non_null(
            strstr(rig_last(&r, PB__EVENT_TYPE__E__AlertRaised)->message, "node.cpu is 87.0%"));
        for (int i = 0; i < 60; i++) { /* flutter while it is raised: still one alert */
                rig_beat_using(&r, "n1", i % 10 == 9 ? 3900 : 1000, 0, 0);
                rig_beat_using(&r, "n2", 3900, 0, 0);
                rig_advance(&r, 10000);
        }
        assert_told(&r, "AlertRaised");
        for (int i = 0; i < 12; i++) {
                rig_beat_using(&r, "n1", 1000, 0, 0);
                rig_beat_using(&r, "n2", 3900, 0, 0);
                rig_advance(&r, 10000);
        }
        assert_told(&r, "AlertRaised AlertCleared");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C30 C11 */
static void a_restarted_server_takes_nothing_back_before_it_has_heard_the_node(void **state)
{
        (void)state;
        static const char yaml[] =
            "rules: [{name: full, when: node.memory >= 90%, cooldown: 1s}]\n";
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r, yaml);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_beat_using(&r, "n1", 0, 4000, 0);
        assert_int_equal(alerts(&r), 1);
        rig_restart(&r);
        rig_mark(&r);
        rig_config(&r, yaml);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_advance(&r, 5000);
        assert_told(&r, "");
        rig_beat_using(&r, "n1", 0, 4000, 0);
        rig_advance(&r, 5000);
        assert_told(&r, "");
        rig_beat_using(&r, "n1", 0, 100, 0);
        rig_advance(&r, 1000);
        assert_told(&r, "AlertCleared");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C30 */
static void waiting_for_a_node_is_a_figure_and_survives_a_restart(void **state)
{
        (void)state;
        static const char yaml[] = "rules: [{name: stuck, when: workload.pending > 10m, cooldown: "
                                   "0s}, {name: lost, when: node.status == NotReady for 1m}]\n";
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r, yaml);
        rig_apply(&r, rig_workload(&r, "a", 100, 64));
        rig_mark(&r);
        rig_advance(&r, 400000);
        rig_restart(&r);
        rig_config(&r, yaml);
        rig_advance(&r, 200000);
        assert_told(&r, ""); /* ten minutes exactly */
        rig_advance(&r, 1);
        assert_told(&r, "AlertRaised");
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__AlertCleared), 1);
        rig_runs(&r, "a");
        rig_mark(&r);
        rig_advance(&r, 30000 + 59999);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__AlertRaised), 0);
        rig_advance(&r, 60000);
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__AlertRaised)->rule, "lost");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C30 */
static void what_is_gone_is_cleared(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r, "rules: [{name: stuck, when: workload.phase == Pending}, {name: empty, "
                       "when: node.units == 0}]\n");
        rig_apply(&r, rig_workload(&r, "a", 100000, 64));
        rig_apply(&r, rig_workload(&r, "b", 100000, 64));
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        assert_int_equal(alerts(&r), 3);
        rig_mark(&r);
        rig_delete(&r, "a");
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__AlertCleared), 1);
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__AlertCleared)->message,
                            "the workload was deleted");
        rig_apply(&r, rig_workload(&r, "a", 100000, 64));
        assert_int_equal(alerts(&r), 3);
        rig_config(&r, "rules: [{name: stuck, when: workload.phase == Pending}]\n");
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__AlertCleared)->message,
                            "its rule is gone");
        assert_int_equal(alerts(&r), 2);
        rig_gone(&r, "n1");
        rig_config(&r, "");
        assert_int_equal(alerts(&r), 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C30 */
static void a_webhook_is_sent_again_until_it_is_taken_always_with_the_same_id(void **state)
{
        (void)state;
        static const char yaml[] =
            "rules: [{name: stuck, when: workload.phase == Pending, webhook: ops}]\n" HOOK;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r, yaml);
        rig_mark(&r);
        rig_apply(&r, rig_workload(&r, "a", 100, 64));
        assert_told(&r, "WorkloadApplied WorkloadPending AlertRaised WebhookQueued");
        Pb__Outgoing *o = sent(&r);
        assert_non_null(o);
        assert_string_equal(o->url, "http://127.0.0.1:1/hook");
        assert_string_equal(o->event, "AlertRaised");
        assert_non_null(strstr(o->body, "\"rule\":\"stuck\""));
        assert_non_null(strstr(o->body, "\"workload\":\"a\""));
        assert_non_null(strstr(o->body, o->id));
        char *id = arena_strdup(&r.memory, o->id);
        rig_mark(&r);
        done(&r, id, false, "connection refused");
        assert_told(&r, "WebhookFailed");
        rig_advance(&r, 1999);
        assert_null(sent(&r));
        rig_advance(&r, 1);
        assert_string_equal(sent(&r)->id, id);
        rig_mark(&r);
        rig_restart(&r); /* while it was on its way: nobody knows whether it arrived */
        assert_null(sent(&r));
        rig_config(&r, yaml);
        assert_string_equal(sent(&r)->id, id);
        assert_told(&r, "");
        done(&r, id, true, "204");
        assert_told(&r, "WebhookDelivered");
        done(&r, id, true, "204"); /* twice is once */
        rig_advance(&r, 3600000);
        assert_told(&r, "WebhookDelivered");
        assert_null(rig_record(&r, arena_printf(&r.memory, "/outbox/%s", id)));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C30 */
static void attempts_end_with_an_event_that_says_so(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r,
                   "rules: [{name: stuck, when: workload.phase == Pending, webhook: ops}]\n" HOOK);
        rig_apply(&r, rig_workload(&r, "a", 100, 64));
        Pb__Outgoing *o = sent(&r);
        rig_mark(&r);
        static const int64_t waits[] = { 2000, 4000, 0 };
        for (int i = 0; i < 3; i++) {
                rig_mark(&r);
                done(&r, o->id, false, "500");
                Pb__Event *e = rig_last(&r, PB__EVENT_TYPE__E__WebhookFailed);
                assert_int_equal(e->outgoing->attempts, i + 1);
                assert_int_equal(e->outgoing->next_at, waits[i] ? r.now + waits[i] : 0);
                rig_advance(&r, 10000);
                assert_int_equal(sent(&r) != NULL, i < 2);
        }
        assert_non_null(strstr(rig_last(&r, PB__EVENT_TYPE__E__WebhookFailed)->message,
                               "given up after 3 attempts"));
        rig_mark(&r);
        rig_advance(&r, 3600000);
        assert_told(&r, "");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C30 */
static void few_are_on_their_way_at_once_and_silence_counts_as_failure(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r,
                   "rules: [{name: stuck, when: workload.phase == Pending, webhook: ops}]\n" HOOK);
        char id[16];
        for (int i = 0; i < 100; i++) {
                snprintf(id, sizeof(id), "w%d", i);
                rig_apply(&r, rig_workload(&r, id, 100, 64));
        }
        assert_int_equal(rig_sent_count(&r, EFFECT_WEBHOOK), 64);
        done(&r, sent(&r)->id, true, "200");
        assert_int_equal(rig_sent_count(&r, EFFECT_WEBHOOK), 65);
        struct core_stats st;
        core_stats(r.core, &st);
        assert_int_equal(st.outbox, 99);
        assert_int_equal(st.alerts, 100);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C10 C30 */
static void a_reload_changes_the_timings_at_once(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r, "");
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_mark(&r);
        rig_config(&r, "heartbeat: 1s\nsilence: 2\n");
        rig_beat(&r, "n1");
        assert_in_range(r.effects.at[r.effects.len - 1].value, 500,
                        /* the agent is told; it has a moment of its own within the interval */
                        1000);
        rig_advance(&r, 2100);
        assert_told(&r, "NodeLost");
        rig_config(&r, "default_quota: {workloads: 1}\n");
        assert_refused(rig_apply(&r, rig_workload(&r, "a", 100, 64)), ERR_OK);
        assert_refused(rig_apply(&r, rig_workload(&r, "b", 100, 64)), ERR_QUOTA);
        rig_config(&r, "");
        assert_refused(rig_apply(&r, rig_workload(&r, "b", 100, 64)), ERR_OK);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C30 A2 */
static void random_lives_with_rules_fold_to_the_same(void **state)
{
        (void)state;
        static const char *const configs[] = {
                "rules: [{name: stuck, when: workload.pending > 5s, webhook: ops, cooldown: 3s}, "
                "{name: hot, when: node.cpu > 50% for 10s, "
                "cooldown: 5s, webhook: ops}]\n" HOOK,
                "rules: [{name: failing, when: workload.failures >= 1, webhook: ops, cooldown: "
                "1s}, {name: busy, when: node.cpu_reserved "
                ">= 50%, cooldown: 2s}]\n" HOOK,
                "",
        };
        for (uint64_t seed = 1; seed <= 30; seed++) {
                struct rig r;
                struct rng g;
                rng_seed(&g, seed);
                rig_init(&r, NULL);
                const char *config = configs[rng_below(&g, 2)];
                rig_config(&r, config);
                rig_hello(&r, "n1", 2000, 8192, 100, NULL);
                for (int i = 0; i < 200; i++) {
                        char id[8];
                        snprintf(id, sizeof(id), "w%u", (unsigned)rng_below(&g, 6));
                        Pb__Workload *w = rig_get(&r, id);
                        switch (rng_below(&g, 9)) {
                        case 0:
                                rig_delete(&r, id);
                                if (w && w->assigned_node && *w->assigned_node)
                                        rig_is_gone(&r, id, w->assigned_node);
                                break;
                        case 1:
                        case 2:
                                rig_apply(
                                    &r, rig_workload(&r, id, (int64_t)rng_below(&g, 3) * 600, 64));
                                break;
                        case 3:
                                if (w && w->status->phase == PB__PHASE__E__Scheduled)
                                        rig_runs(&r, id);
                                break;
                        case 4:
                                if (w && w->status->phase == PB__PHASE__E__Running)
                                        rig_exits(&r, id, 1);
                                break;
                        case 5:
                                if (rng_below(&g, 5) == 0)
                                        config = configs[rng_below(&g, 3)];
                                rig_config(&r, config);
                                break;
                        case 6:
                                if (rng_below(&g, 4) == 0) {
                                        rig_restart(&r);
                                        rig_config(&r, config);
                                        rig_hello(&r, "n1", 2000, 8192, 100, NULL);
                                }
                                break;
                        case 7:
                                if (sent(&r))
                                        done(&r, sent(&r)->id, rng_below(&g, 2), "");
                                break;
                        default:
                                rig_beat_using(&r, "n1", (int64_t)rng_below(&g, 2000), 0, 0);
                        }
                        rig_advance(&r, (int64_t)rng_below(&g, 3000));
                }
                /* (U1) raised and cleared take turns */
                char *keys[64] = { 0 };
                bool up[64] = { 0 };
                for (size_t i = 0; i < r.events.len; i++) {
                        const Pb__Event *e = r.events.at[i].e;
                        if (e->type != PB__EVENT_TYPE__E__AlertRaised &&
                            e->type != PB__EVENT_TYPE__E__AlertCleared)
                                continue;
                        char *key = arena_printf(&r.memory, "%s %s %s", e->rule, e->node_id,
                                                 e->workload_id);
                        size_t k = 0;
                        while (keys[k] && strcmp(keys[k], key) != 0)
                                k++;
                        keys[k] = key;
                        assert_int_equal(up[k], e->type == PB__EVENT_TYPE__E__AlertCleared);
                        up[k] = !up[k];
                }
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_workload_that_failed_three_times_raises_one_alert),
                cmocka_unit_test(a_figure_must_hold_for_its_duration_and_flutter_raises_nothing),
                cmocka_unit_test(
                    a_restarted_server_takes_nothing_back_before_it_has_heard_the_node),
                cmocka_unit_test(waiting_for_a_node_is_a_figure_and_survives_a_restart),
                cmocka_unit_test(what_is_gone_is_cleared),
                cmocka_unit_test(a_webhook_is_sent_again_until_it_is_taken_always_with_the_same_id),
                cmocka_unit_test(attempts_end_with_an_event_that_says_so),
                cmocka_unit_test(few_are_on_their_way_at_once_and_silence_counts_as_failure),
                cmocka_unit_test(a_reload_changes_the_timings_at_once),
                cmocka_unit_test(random_lives_with_rules_fold_to_the_same),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
