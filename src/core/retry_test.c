/* core/retry_test.c: the schedule, by the numbers and as a workload lives through it. */
#include "core/core_testlib.h"
#include "core/retry.h"

/* R: C28 */
static void the_schedule_is_5_10_20_40_80_120_120(void **state)
{
        (void)state;
        static const int64_t want[] = { 5, 10, 20, 40, 80, 120, 120, 120 };
        for (int32_t i = 0; i < (int32_t)ARRAY_LEN(want); i++) {
                assert_int_equal(retry_backoff_ms(0, 0, i + 1), want[i] * 1000);
                assert_int_equal(retry_backoff_ms(5, 120, i + 1), want[i] * 1000);
        }
        assert_int_equal(retry_backoff_ms(5, 120, INT32_MAX), 120000);
        assert_int_equal(retry_backoff_ms(INT32_MAX, INT32_MAX, 40), (int64_t)INT32_MAX * 1000);
        assert_int_equal(retry_backoff_ms(10, 3, 1), 3000); /* the cap is the cap */
        assert_int_equal(retry_backoff_ms(1, 120, 4), 8000);
}

/* R: C28 */
static void five_failures_end_it_unless_told_otherwise(void **state)
{
        (void)state;
        for (int32_t n = 1; n < 10; n++) {
                assert_int_equal(retry_is_over(n, retry_limit(0, false)), n >= 5);
                /* who names a maximum gets it */
                assert_int_equal(retry_is_over(n, retry_limit(3, true)), n >= 3);
                assert_false(retry_is_over(n * 1000000, retry_limit(0, true)));
        }
        assert_true(retry_is_over(1, 1));
        assert_false(retry_is_over(1, 2));
        for (int32_t n = 0; n < 10; n++)
                assert_int_equal(retry_is_at_cap(5, 120, n), n >= 6);
}

static void start_one(struct rig *r, Pb__Workload *w)
{
        rig_hello(r, "n1", 4000, 4096, 10, NULL);
        rig_apply(r, w);
        rig_runs(r, w->id);
}

/* Lets it fail once more and returns after how long it is launched again; 0: not any more. */
static int64_t fail_once(struct rig *r, const char *id)
{
        rig_exits(r, id, 1);
        Pb__Workload *w = rig_get(r, id);
        if (w->status->phase != PB__PHASE__E__RetryPending)
                return 0;
        int64_t wait = w->retry->next_retry_at - r->now;
        rig_mark(r);
        rig_advance_alive(r, wait - 1);
        assert_told(r, ""); /* not a moment too early */
        rig_advance(r, 1);
        assert_told(r, "RetryTriggered WorkloadLaunched");
        assert_non_null(rig_sent(r, "n1", id));
        rig_runs(r, id);
        return wait;
}

/* Its agent said nothing for too long, and then that it runs: nothing is kept for it there any
 * more, so it goes. */
/* R: C21 C28 */
static void one_that_was_given_up_and_runs_all_the_same_is_removed(void **state)
{
        (void)state;
        struct rig r;
        Pb__UnitStatus late = PB__UNIT_STATUS__INIT;
        Pb__Token token = PB__TOKEN__INIT;
        Pb__Retry retry = PB__RETRY__INIT;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        Pb__Workload *w = rig_workload(&r, "a", 100, 10);
        retry.max_attempts = 1;
        w->retry = &retry;
        rig_apply(&r, w);
        token = *rig_sent(&r, "n1", "a")->unit->token;
        for (int i = 0; i < 100 && rig_get(&r, "a")->status->phase != PB__PHASE__E__Failed; i++)
                rig_advance_alive(&r, 5000);
        assert_phase(&r, "a", Failed);
        rig_mark(&r);
        late.unit_id = "a";
        late.state = PB__ACTUAL_STATE__E__Running;
        late.token = &token;
        rig_report(&r, "n1", &late);
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        assert_phase(&r, "a", Failed);
        assert_told(&r, "DriftDetected"); /* it has run, and somebody may have to know */
        assert_non_null(strstr(r.events.at[r.events.len - 1].e->message, "a: it was given up"));
        rig_report(&r, "n1", &late);
        assert_told(&r, "DriftDetected"); /* once */
        rig_is_gone(&r, "a", "n1");
        assert_phase(&r, "a", Failed);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C28 C29 */
static void a_workload_lives_through_the_schedule_and_then_has_failed(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        Pb__Workload *w = rig_workload(&r, "a", 100, 64);
        w->retry = arena_new(&r.memory, Pb__Retry);
        pb__retry__init(w->retry);
        w->retry->max_attempts = 8;
        start_one(&r, w);
        static const int64_t want[] = { 5, 10, 20, 40, 80, 120, 120 };
        for (int32_t i = 0; i < (int32_t)ARRAY_LEN(want); i++) {
                assert_int_equal(fail_once(&r, "a"), want[i] * 1000);
                assert_int_equal(rig_get(&r, "a")->retry->attempts, i + 1);
        }
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 100);
        assert_int_equal(fail_once(&r, "a"), 0);
        Pb__Workload *now = rig_get(&r, "a");
        assert_int_equal(now->status->phase, PB__PHASE__E__Failed);
        assert_int_equal(now->retry->attempts, 8);
        assert_int_equal(now->status->exit_code->value, 1);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 0); /* W2: given back */
        rig_mark(&r);
        rig_advance_alive(&r, 3600000);
        assert_told(&r, "");
        rig_check_replay(&r);
        rig_fini(&r);
}

static int count_of(const struct rig *r, Pb__EventType__E type)
{
        int n = 0;
        for (size_t i = 0; i < r->events.len; i++)
                n += r->events.at[i].e->type == type;
        return n;
}

/* R: C28 A6. Issue 5, B6. */
static void a_service_that_names_no_maximum_is_tried_for_ever_at_the_cap(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        start_one(&r, rig_workload(&r, "a", 100, 64));
        static const int64_t want[] = { 5, 10, 20, 40, 80 };
        for (int32_t i = 0; i < (int32_t)ARRAY_LEN(want); i++) {
                assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__WorkloadKeepsFailing), 0);
                assert_int_equal(fail_once(&r, "a"), want[i] * 1000);
        }
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__WorkloadKeepsFailing), 1);
        rig_exits(&r, "a", 1);
        /* at the cap: two events each, also when it comes up each time */
        for (int32_t n = 6; n < 40; n++) {
                Pb__Workload *w = rig_get(&r, "a");
                assert_int_equal(w->status->phase, PB__PHASE__E__RetryPending);
                assert_int_equal(w->retry->attempts, n);
                assert_int_equal(w->retry->max_attempts, 0);
                assert_int_equal(w->retry->next_retry_at, r.now + 120000);
                /* it keeps its place */
                assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 100);
                assert_non_null(strstr(rig_explain(&r, "a")->next,
                                       "keeps its place on n1 and counts for its tenant's quota"));
                if (n == 20) {
                        rig_restart(&r);
                        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
                }
                rig_mark(&r);
                rig_advance_alive(&r, 120000);
                rig_runs(&r, "a");
                assert_phase(&r, "a", Running); /* shown, not written */
                rig_exits(&r, "a", 1);
                assert_told(&r, "WorkloadLaunched RetryScheduled");
        }
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__WorkloadKeepsFailing), 1);
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__WorkloadFailed), 0);
        rig_advance_alive(&r, 120000);
        rig_runs(&r, "a");
        rig_mark(&r);
        rig_advance_alive(&r, 31000); /* it lasts */
        assert_told(&r, "WorkloadStarted");
        assert_phase(&r, "a", Running);
        rig_mark(&r);
        rig_advance_alive(&r, 3600000);
        assert_told(&r, "RetryReset");
        assert_int_equal(rig_get(&r, "a")->retry->attempts, 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C28 A10. What an older server stored named 5, and what had failed then stays so; a new policy
 * restarts nothing. */
static void a_new_policy_restarts_nothing_and_what_has_failed_stays_failed(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        Pb__Retry old = PB__RETRY__INIT;
        old.max_attempts = 5;
        Pb__Workload *runs = rig_workload(&r, "runs", 100, 64),
                     *failed = rig_workload(&r, "failed", 100, 64);
        runs->retry = failed->retry = &old;
        start_one(&r, runs);
        uint64_t token = rig_get(&r, "runs")->token->seq;
        runs = rig_workload(&r, "runs", 100, 64);
        rig_mark(&r);
        rig_apply(&r, runs);
        assert_told(&r, "WorkloadRelabelled");
        assert_int_equal(rig_get(&r, "runs")->token->seq, token);
        assert_int_equal(rig_get(&r, "runs")->retry->max_attempts, 0);
        rig_apply(&r, runs);
        assert_told(&r, "WorkloadRelabelled"); /* the same again is nothing */
        rig_apply(&r, failed);
        rig_runs(&r, "failed");
        for (int i = 0; i < 4; i++)
                fail_once(&r, "failed");
        rig_exits(&r, "failed", 1);
        assert_phase(&r, "failed", Failed);
        rig_restart(&r);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_mark(&r);
        rig_advance_alive(&r, 3600000);
        assert_phase(&r, "failed", Failed);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C28 A5 */
static void a_restart_of_the_server_neither_loses_nor_repeats_an_attempt(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        start_one(&r, rig_workload(&r, "a", 100, 64));
        fail_once(&r, "a");
        fail_once(&r, "a");
        rig_exits(&r, "a", 3);
        int64_t due = rig_get(&r, "a")->retry->next_retry_at;
        rig_restart(&r);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        Pb__Workload *w = rig_get(&r, "a");
        assert_int_equal(w->status->phase, PB__PHASE__E__RetryPending);
        assert_int_equal(w->retry->attempts, 3);
        assert_int_equal(w->retry->next_retry_at, due);
        rig_mark(&r);
        rig_advance(&r, due - r.now - 1);
        assert_told(&r, "");
        rig_advance(&r, 1);
        assert_told(&r, "RetryTriggered WorkloadLaunched");
        rig_fini(&r);
}

/* R: C28 */
static void a_users_retry_is_due_now_and_starts_from_zero(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        Pb__Workload *five = rig_workload(&r, "a", 100, 64);
        Pb__Retry retry = PB__RETRY__INIT;
        retry.max_attempts = 5;
        five->retry = &retry;
        start_one(&r, five);
        for (int i = 0; i < 4; i++)
                fail_once(&r, "a");
        rig_exits(&r, "a", 1);
        assert_phase(&r, "a", Failed);
        rig_mark(&r);
        const struct rig_reply *reply = rig_retry(&r, "a");
        assert_refused(reply, ERR_OK);
        assert_told(&r, "RetryTriggered WorkloadScheduled");
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__RetryTriggered)->actor, "tester");
        assert_int_equal(rig_get(&r, "a")->retry->attempts, 0);
        rig_runs(&r, "a");
        rig_exits(&r, "a", 1);
        Pb__Workload *w = rig_get(&r, "a");
        assert_int_equal(w->status->phase, PB__PHASE__E__RetryPending);
        assert_int_equal(w->retry->attempts, 1);
        rig_mark(&r);
        rig_retry(&r, "a"); /* while it waits */
        assert_told(&r, "RetryTriggered WorkloadLaunched");
        rig_mark(&r);
        rig_runs(&r, "a");
        rig_mark(&r);
        assert_refused(rig_retry(&r, "a"), ERR_OK); /* runs: nothing to do */
        assert_told(&r, "");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C28 */
static void attempts_are_forgotten_after_a_healthy_period(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        start_one(&r, rig_workload(&r, "a", 100, 64));
        fail_once(&r, "a");
        fail_once(&r, "a");
        rig_mark(&r);
        rig_advance_alive(&r, r.opt.healthy_ms - 1000);
        assert_told(&r, "");
        rig_advance_alive(&r, 2000);
        assert_told(&r, "RetryReset");
        assert_int_equal(rig_get(&r, "a")->retry->attempts, 0);
        assert_int_equal(fail_once(&r, "a"), 5000); /* and the schedule begins again */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* An agent whose clock is wrong can neither make the healthy period pass at once nor never.  R:
 * C28 */
static void the_healthy_period_is_measured_by_the_servers_clock(void **state)
{
        (void)state;
        for (int ahead = 0; ahead < 2; ahead++) {
                struct rig r;
                rig_init(&r, NULL);
                start_one(&r, rig_workload(&r, "a", 100, 64));
                rig_exits(&r, "a", 1);
                rig_advance_alive(&r, 5000);
                Pb__UnitStatus *u = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Running);
                u->started_at = r.now + (ahead ? 1 : -1) * INT64_C(86400000);
                rig_report(&r, "n1", u);
                rig_mark(&r);
                rig_advance_alive(&r, r.opt.healthy_ms - 30000);
                assert_told(&r, "");
                rig_advance_alive(&r, 60000);
                assert_told(&r, "RetryReset");
                rig_fini(&r);
        }
}

/* R: C28 C6 */
static void a_unit_that_is_never_restarted_fails_at_once(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        Pb__Workload *w = rig_workload(&r, "a", 100, 64);
        w->restart = PB__RESTART__E__never;
        start_one(&r, w);
        rig_mark(&r);
        rig_exits(&r, "a", 2);
        assert_told(&r, "WorkloadFailed");
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_schedule_is_5_10_20_40_80_120_120),
                cmocka_unit_test(five_failures_end_it_unless_told_otherwise),
                cmocka_unit_test(one_that_was_given_up_and_runs_all_the_same_is_removed),
                cmocka_unit_test(a_workload_lives_through_the_schedule_and_then_has_failed),
                cmocka_unit_test(a_service_that_names_no_maximum_is_tried_for_ever_at_the_cap),
                cmocka_unit_test(a_new_policy_restarts_nothing_and_what_has_failed_stays_failed),
                cmocka_unit_test(a_restart_of_the_server_neither_loses_nor_repeats_an_attempt),
                cmocka_unit_test(a_users_retry_is_due_now_and_starts_from_zero),
                cmocka_unit_test(attempts_are_forgotten_after_a_healthy_period),
                cmocka_unit_test(the_healthy_period_is_measured_by_the_servers_clock),
                cmocka_unit_test(a_unit_that_is_never_restarted_fails_at_once),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
