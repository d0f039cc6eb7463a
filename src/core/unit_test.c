/* core/unit_test.c: what agents say, when it counts, and what they are told. */
#include "core/core_testlib.h"

static void one_running(struct rig *r)
{
        rig_init(r, NULL);
        rig_hello(r, "n1", 4000, 4096, 100, NULL);
        rig_apply(r, rig_workload(r, "a", 1000, 1024));
        rig_runs(r, "a");
        rig_mark(r);
}

/* R: C34 C21 */
static void a_report_about_another_copy_says_nothing(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        uint64_t seq = rig_get(&r, "a")->token->seq;
        static const Pb__ActualState__E states[] = {
                PB__ACTUAL_STATE__E__Pending, PB__ACTUAL_STATE__E__Running,
                PB__ACTUAL_STATE__E__Stopped, PB__ACTUAL_STATE__E__Failed,
                PB__ACTUAL_STATE__E__Unknown, PB__ACTUAL_STATE__E__Missing
        };
        for (size_t i = 0; i < ARRAY_LEN(states); i++) {
                rig_report(&r, "n1", rig_unit(&r, "a", 1, seq - 1, states[i]));
                rig_report(&r, "n1", rig_unit(&r, "a", 1, seq + 1, states[i]));
                rig_report(&r, "n1", rig_unit(&r, "a", 2, seq, states[i]));
                Pb__UnitStatus *without = rig_unit(&r, "a", 1, seq, states[i]);
                without->token = NULL;
                rig_report(&r, "n1", without);
        }
        assert_told(&r, "");
        assert_phase(&r, "a", Running);
        rig_fini(&r);
}

/* R: C34 C27 */
static void a_report_from_another_node_says_nothing(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        rig_hello(&r, "n2", 4000, 4096, 100, NULL);
        rig_mark(&r);
        rig_report(&r, "n2", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Missing));
        rig_report(&r, "n2", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Failed));
        rig_report(&r, "n2", rig_unit(&r, "stranger", 1, 1, PB__ACTUAL_STATE__E__Running));
        Pb__UnitStatus *all[] = { rig_unit(&r, "a", 7, 1, PB__ACTUAL_STATE__E__Running),
                                  rig_unit(&r, "stranger", 1, 1, PB__ACTUAL_STATE__E__Running) };
        rig_report_all(&r, "n2", true, rig_agent(&r, "n2")->applied, 2, all);
        assert_told(&r, "UnitUnknown");
        assert_non_null(strstr(rig_last(&r, PB__EVENT_TYPE__E__UnitUnknown)->message, "stranger"));
        rig_report_all(&r, "n2", true, rig_agent(&r, "n2")->applied, 2, all);
        assert_told(&r, "UnitUnknown");                            /* told once */
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 0); /* and left alone */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C21 C27 */
static void a_complete_list_without_it_launches_it_anew(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        uint64_t token = rig_get(&r, "a")->token->seq;
        rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 0, NULL);
        assert_told(&r, "WorkloadLaunched");
        assert_int_equal(rig_last(&r, PB__EVENT_TYPE__E__WorkloadLaunched)->reason,
                         PB__REASON__E__lost_by_agent);
        assert_true(rig_sent(&r, "n1", "a")->unit->token->seq > token);
        rig_check_replay(&r);
        rig_fini(&r);
}

static void one_job_running(struct rig *r, Pb__Restart__E restart)
{
        rig_init(r, NULL);
        rig_hello(r, "n1", 4000, 4096, 100, NULL);
        Pb__Workload *w = rig_workload(r, "a", 1000, 1024);
        w->restart = restart;
        rig_apply(r, w);
        rig_runs(r, "a");
        rig_advance_alive(r, 3600000);
        rig_mark(r);
}

/* R: C6 C28, D5: how it ended is not known, but that it did run is: a machine that was restarted,
 * an agent that lost its disk. */
static void what_runs_once_at_most_is_not_run_again_when_nobody_knows_how_it_ended(void **state)
{
        (void)state;
        for (int lost = 0; lost < 2; lost++) {
                struct rig r;
                one_job_running(&r, PB__RESTART__E__never);
                Pb__UnitStatus *gone = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Stopped);
                gone->reason = PB__REASON__E__killed;
                rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, lost ? 0 : 1,
                               lost ? NULL : &gone);
                assert_told(&r, "WorkloadFailed");
                assert_phase(&r, "a", Failed);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: C21 A12, B5: after the agent was stopped with its units, a restart is an event and is counted;
 * a job that may run only once has failed. */
static void what_was_stopped_with_its_agent_is_started_again_by_an_event(void **state)
{
        (void)state;
        static const Pb__Restart__E restarts[] = { PB__RESTART__E__always,
                                                   PB__RESTART__E__on_failure,
                                                   PB__RESTART__E__never };
        for (size_t i = 0; i < ARRAY_LEN(restarts); i++) {
                struct rig r;
                bool never = restarts[i] == PB__RESTART__E__never;
                one_job_running(&r, restarts[i]);
                Pb__UnitStatus *ended = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Stopped);
                Pb__IntValue zero = PB__INT_VALUE__INIT;
                ended->reason = PB__REASON__E__agent_stopped;
                ended->exit_code = &zero; /* many end so at a SIGTERM: that completes nothing */
                rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 1, &ended);
                assert_told(&r, never ? "WorkloadFailed" : "WorkloadLaunched");
                assert_int_equal(rig_get(&r, "a")->status->restarts, never ? 0 : 1);
                assert_int_equal(rig_get(&r, "a")->retry ? rig_get(&r, "a")->retry->attempts : 0,
                                 never ? 1 : 0);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: C27 C22 */
static void a_list_made_before_an_order_proves_nothing_about_it(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        uint64_t before = rig_agent(&r, "n1")->applied;
        Pb__UnitStatus *all[] = { rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Running) };
        /* a new one is launched and a moved one is to be removed, while the list is on its way */
        rig_hello(&r, "n2", 8000, 8192, 100, NULL);
        rig_apply(&r, rig_workload(&r, "b", 1000, 1024));
        assert_string_equal(rig_get(&r, "b")->assigned_node, "n2");
        rig_apply(&r, rig_workload(&r, "a", 6000, 1024));
        assert_string_equal(rig_get(&r, "a")->assigned_node, "n2");
        rig_mark(&r);
        rig_report_all(&r, "n1", true, before, 0, NULL);
        assert_told(&r, ""); /* the tombstone stays */
        assert_int_equal(rig_node(&r, "n1")->tombstones, 1);
        rig_report_all(&r, "n1", true, before, 1, all);
        assert_told(&r, "");
        /* told again */
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 0, NULL);
        assert_told(&r, "UnitRemoved");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C27 A5 */
static void a_list_of_another_epoch_is_not_the_whole_truth(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        Pb__UnitReport report = PB__UNIT_REPORT__INIT;
        Pb__Cursor cursor = PB__CURSOR__INIT;
        report.complete = true;
        struct input in = { .kind = INPUT_UNITS,
                            .session = rig_agent(&r, "n1")->session,
                            .msg = &report.base,
                            .now_ms = r.now };
        core_step(r.core, &in); /* no cursor at all */
        cursor.epoch = 2;
        cursor.seq = 1000000;
        report.applied = &cursor;
        core_step(r.core, &in);
        rig_take(&r);
        assert_told(&r, "");
        rig_fini(&r);
}

/* R: C22 */
static void a_launch_has_a_grace_and_is_then_told_again(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
        uint64_t token = rig_get(&r, "a")->token->seq;
        rig_mark(&r);
        /* it may not know it yet */
        rig_report(&r, "n1", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Missing));
        rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 0, NULL);
        rig_advance_alive(&r, 14999);
        assert_told(&r, "");
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 0);
        rig_advance(&r, 1);
        assert_told(&r, "");
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 1);
        /* the same token: no second start */
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->token->seq, token);
        rig_fini(&r);
}

/* R: C22 C28 C26 */
static void a_launch_that_is_never_answered_is_a_failure_in_the_end(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
        rig_mark(&r);
        rig_advance_alive(&r, 15000 * 3 + 1000);
        assert_told(&r, "");
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 3);
        rig_advance_alive(&r, 15000);
        assert_told(&r, "RetryScheduled");
        assert_int_equal(rig_last(&r, PB__EVENT_TYPE__E__RetryScheduled)->reason,
                         PB__REASON__E__start_failed);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C22 */
static void a_launch_that_the_agent_is_working_on_has_all_the_time(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
        rig_report(&r, "n1", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Pending));
        rig_mark(&r);
        rig_advance_alive(&r, 1000000);
        assert_told(&r, "");
        rig_runs(&r, "a");
        assert_told(&r, "WorkloadStarted");
        rig_fini(&r);
}

/* R: C22 C23 */
static void nothing_is_sent_or_counted_while_the_agent_is_away(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
        rig_gone(&r, "n1");
        rig_mark(&r);
        rig_advance(&r, 29000);
        assert_told(&r, "");
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 0);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        assert_told(&r, "");
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 1); /* the plan has it */
        rig_fini(&r);
}

/* R: C21 C34 */
static void a_unit_that_the_machine_lost_is_launched_without_counting_as_a_failure(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        rig_advance_alive(&r, 20000);
        /* found not running after a reboot: no exit code */
        Pb__UnitStatus *u = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Stopped);
        u->reason = PB__REASON__E__killed;
        rig_report(&r, "n1", u);
        assert_told(&r, "WorkloadLaunched");
        assert_int_equal(rig_get(&r, "a")->retry->attempts, 0);
        rig_fini(&r);
}

/* R: C6 C29 */
static void a_failure_carries_what_the_agent_said(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        Pb__UnitStatus *u = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Failed);
        Pb__IntValue sig = PB__INT_VALUE__INIT;
        sig.value = 11;
        u->signal = &sig;
        rig_report(&r, "n1", u);
        assert_told(&r, "RetryScheduled");
        Pb__Workload *w = rig_get(&r, "a");
        assert_int_equal(w->status->signal->value, 11);
        assert_null(w->status->exit_code);
        assert_string_equal(w->status->failure_reason, "killed by signal 11");
        assert_string_equal(w->metadata->last_error, "killed by signal 11");
        assert_int_equal(w->status->reason, PB__REASON__E__killed);
        rig_advance_alive(&r, 5000);
        u = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Failed);
        u->reason = PB__REASON__E__start_failed;
        u->message = "no such file: sleep";
        rig_report(&r, "n1", u);
        w = rig_get(&r, "a");
        assert_string_equal(w->status->failure_reason, "no such file: sleep");
        assert_int_equal(w->status->reason, PB__REASON__E__start_failed);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C40 G22 */
static void a_whole_plan_has_everything_that_should_be_there_and_nothing_else(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        rig_apply(&r, rig_workload(&r, "stopped", 100, 10));
        rig_runs(&r, "stopped");
        rig_stop(&r, "stopped");
        Pb__Workload *job = rig_workload(&r, "done", 100, 10);
        job->restart = PB__RESTART__E__on_failure;
        rig_apply(&r, job);
        rig_exits(&r, "done", 0);
        rig_apply(&r, rig_workload(&r, "failing", 100, 10));
        rig_exits(&r, "failing", 1);
        rig_apply(&r, rig_workload(&r, "deleting", 100, 10));
        rig_delete(&r, "deleting");
        rig_apply(&r, rig_workload(&r, "moved", 100, 10));
        rig_hello(&r, "n2", 8000, 8192, 100, NULL);
        rig_apply(&r, rig_workload(&r, "moved", 6000, 10));
        rig_gone(&r, "n1");
        rig_mark(&r);
        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 100, NULL);
        rig_hello_add(&r, h, rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Running));
        rig_hello_add(&r, h, rig_unit_now(&r, "stopped", PB__ACTUAL_STATE__E__Running));
        rig_hello_add(&r, h, rig_unit_now(&r, "deleting", PB__ACTUAL_STATE__E__Running));
        rig_hello_add(&r, h, rig_unit(&r, "moved", 1, 1, PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        assert_told(&r, "");
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_BEGIN), 1);
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_END), 1);
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 4);
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                         PB__DESIRED_STATE__E__Running);
        assert_int_equal(rig_sent(&r, "n1", "stopped")->unit->desired_state,
                         PB__DESIRED_STATE__E__Stopped);
        assert_int_equal(rig_sent(&r, "n1", "deleting")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        assert_int_equal(rig_sent(&r, "n1", "moved")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        /* in between, nothing but the plan */
        size_t begin = 0, end = 0;
        for (size_t i = r.effect_mark; i < r.effects.len; i++) {
                begin = r.effects.at[i].kind == EFFECT_PLAN_BEGIN ? i : begin;
                end = r.effects.at[i].kind == EFFECT_PLAN_END ? i : end;
        }
        assert_int_equal(end - begin, 5);
        assert_true(r.effects.at[begin - 1].kind == EFFECT_WELCOME);
        rig_fini(&r);
}

/* R: C21 C27 */
static void what_should_have_stopped_or_gone_is_told_again_with_each_list(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        rig_apply(&r, rig_workload(&r, "b", 100, 100));
        rig_runs(&r, "b");
        rig_stop(&r, "a");
        rig_delete(&r, "b");
        for (int ended = 0; ended < 2; ended++) {
                Pb__UnitStatus *all[] = { rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Running),
                                          rig_unit_now(&r, "b",
                                                       ended ? PB__ACTUAL_STATE__E__Failed
                                                             : PB__ACTUAL_STATE__E__Running) };
                rig_mark(&r);
                rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 2, all);
                assert_told(&r, "");
                assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                                 PB__DESIRED_STATE__E__Stopped);
                assert_int_equal(rig_sent(&r, "n1", "b")->unit->desired_state,
                                 PB__DESIRED_STATE__E__Deleted);
                assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 2);
        }
        rig_fini(&r);
}

/* R: C24 C27 */
static void a_copy_of_a_forgotten_node_that_returns_is_removed(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        uint64_t old = rig_get(&r, "a")->token->seq;
        rig_hello(&r, "n2", 4000, 4096, 100, NULL);
        rig_hello(&r, "n3", 4000, 4096, 100, NULL);
        rig_gone(&r, "n1");
        rig_advance_alive(&r, 100000);
        rig_runs(&r, "a");                            /* elsewhere */
        assert_refused(rig_forget(&r, "n1"), ERR_OK); /* with its tombstone */
        rig_mark(&r);
        Pb__UnitStatus *all[] = { rig_unit(&r, "a", 1, old, PB__ACTUAL_STATE__E__Running) };
        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 100, NULL);
        rig_hello_add(&r, h, all[0]);
        rig_say_hello(&r, h);
        rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 1, all);
        assert_told(&r, "NodeRegistered DriftDetected");
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->token->seq, old);
        assert_phase(&r, "a", Running);
        rig_fini(&r);
}

/* R: C7 C40 */
static void a_list_with_an_older_copy_is_told_the_current_one_again(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        uint64_t old = rig_get(&r, "a")->token->seq;
        rig_apply(&r, rig_workload(&r, "a", 1500, 1024));
        rig_mark(&r);
        Pb__UnitStatus *all[] = { rig_unit(&r, "a", 1, old, PB__ACTUAL_STATE__E__Running) };
        rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 1, all);
        assert_told(&r, "");
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->token->seq, rig_get(&r, "a")->token->seq);
        rig_exits(&r, "a", 1); /* waits for its retry: then nothing of it may be started */
        rig_mark(&r);
        rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 1, all);
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 0);
        rig_fini(&r);
}

/* R: C9 C27 */
static void a_list_is_asked_for_now_and_then(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        rig_advance_alive(&r, 600000);
        assert_in_range(rig_sent_count(&r, EFFECT_LIST), 9, 10);
        rig_fini(&r);
}

/* R: A9 */
static void a_stream_that_nobody_knows_is_ignored(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        rig_agent(&r, "ghost")->session = 4711;
        size_t effects = r.effects.len;
        rig_beat(&r, "ghost");
        rig_report_all(&r, "ghost", true, 1000, 0, NULL);
        rig_report(&r, "ghost", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Failed));
        rig_gone(&r, "ghost");
        rig_gone(&r, "ghost");
        assert_told(&r, "");
        assert_int_equal(r.effects.len, effects);
        rig_fini(&r);
}

/* R: C29 A3 */
static void every_event_about_it_is_in_its_history(void **state)
{
        (void)state;
        struct rig r;
        one_running(&r);
        rig_hello(&r, "n2", 8000, 8192, 100, NULL);
        rig_apply(&r, rig_workload(&r, "a", 6000, 1024));
        rig_is_gone(&r, "a", "n1");
        rig_runs(&r, "a");
        rig_exits(&r, "a", 1);
        /* back from the newest to the first, by prev alone */
        size_t steps = 0;
        uint64_t seq = rig_get(&r, "a")->resource_version;
        Pb__EventType__E first = 0;
        for (; seq; steps++) {
                Pb__Event *e = r.events.at[seq - 1].e;
                assert_string_equal(e->workload_id, "a");
                first = e->type;
                seq = e->prev;
        }
        size_t all = 0;
        for (size_t i = 0; i < r.events.len; i++)
                all += strcmp(r.events.at[i].e->workload_id, "a") == 0;
        assert_int_equal(steps, all);
        assert_int_equal(first, PB__EVENT_TYPE__E__WorkloadApplied);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C6 A6 */
static void health_and_progress_are_shown_and_never_stored(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
        rig_mark(&r);
        Pb__UnitStatus *u = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Pending);
        u->message = "pulling image: 40 %";
        rig_report(&r, "n1", u);
        assert_string_equal(rig_get(&r, "a")->status->progress, "pulling image: 40 %");
        assert_told(&r, "");
        rig_runs(&r, "a");
        assert_string_equal(rig_get(&r, "a")->status->progress, "");
        rig_mark(&r);
        u = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Running);
        u->health = "healthy";
        rig_report(&r, "n1", u);
        assert_string_equal(rig_get(&r, "a")->status->health, "healthy");
        assert_told(&r, "");
        u = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Failed);
        u->health = "unhealthy";
        u->reason = PB__REASON__E__unhealthy;
        u->message = "3 health checks in a row failed";
        rig_report(&r, "n1", u);
        assert_told(&r, "RetryScheduled");
        assert_int_equal(rig_get(&r, "a")->status->reason, PB__REASON__E__unhealthy);
        rig_advance_alive(&r, 10000); /* launched anew: nothing is known of the new copy */
        assert_string_equal(rig_get(&r, "a")->status->health, "");
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_report_about_another_copy_says_nothing),
                cmocka_unit_test(a_report_from_another_node_says_nothing),
                cmocka_unit_test(a_complete_list_without_it_launches_it_anew),
                cmocka_unit_test(
                    what_runs_once_at_most_is_not_run_again_when_nobody_knows_how_it_ended),
                cmocka_unit_test(what_was_stopped_with_its_agent_is_started_again_by_an_event),
                cmocka_unit_test(a_list_made_before_an_order_proves_nothing_about_it),
                cmocka_unit_test(a_list_of_another_epoch_is_not_the_whole_truth),
                cmocka_unit_test(a_launch_has_a_grace_and_is_then_told_again),
                cmocka_unit_test(a_launch_that_is_never_answered_is_a_failure_in_the_end),
                cmocka_unit_test(a_launch_that_the_agent_is_working_on_has_all_the_time),
                cmocka_unit_test(nothing_is_sent_or_counted_while_the_agent_is_away),
                cmocka_unit_test(
                    a_unit_that_the_machine_lost_is_launched_without_counting_as_a_failure),
                cmocka_unit_test(a_failure_carries_what_the_agent_said),
                cmocka_unit_test(a_whole_plan_has_everything_that_should_be_there_and_nothing_else),
                cmocka_unit_test(what_should_have_stopped_or_gone_is_told_again_with_each_list),
                cmocka_unit_test(a_copy_of_a_forgotten_node_that_returns_is_removed),
                cmocka_unit_test(a_list_with_an_older_copy_is_told_the_current_one_again),
                cmocka_unit_test(a_list_is_asked_for_now_and_then),
                cmocka_unit_test(a_stream_that_nobody_knows_is_ignored),
                cmocka_unit_test(every_event_about_it_is_in_its_history),
                cmocka_unit_test(health_and_progress_are_shown_and_never_stored),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
