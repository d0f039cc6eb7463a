/* agent/engine_test.c: the rules of engine.h, one by one. Restarts are in engine_restart_test.c,
 * the lease (rule 12) in engine_lease_test.c. */
#include "agent/engine_testlib.h"
#include "base/str.h"
#include "base/unit_hash.h"
#include <signal.h>
#include <stdio.h>

/* R: C40 */
static void hello_tells_everything_first(void **state)
{
        struct rig r = { .now = 5 };
        Pb__Hello *h;

        (void)state;
        rig_boot(&r, 0, 0);
        assert_int_equal(r.sent.len, 0);
        engine_connected(r.e, 5);
        drain(&r);
        assert_int_equal(r.sent.len, 1);
        h = r.sent.at[0]->hello;
        assert_non_null(h);
        assert_string_equal(h->node_id, "n1");
        assert_int_equal(h->cpu, 4000);
        assert_int_equal(h->n_labels, 2);
        assert_string_equal(h->labels[0]->key, "arch");
        assert_int_equal(h->protocol, 1);
        assert_int_equal(h->n_supported_workload_types, 1);
        assert_false(engine_is_welcome(r.e));
        welcome(&r, "c1", true);
        assert_true(engine_is_welcome(r.e));
        assert_string_equal(engine_cluster_id(r.e), "c1");
        assert_int_equal(ordered(&r, ORDER_PERSIST_AGENT, NULL), 1);
        rig_fini(&r);
}

/* R: C37 */
static void another_amount_is_in_the_next_hello(void **state)
{
        struct rig r = { .now = 5 };
        struct runtime_capacity has = {
                .cpu = 4000, .types = { PB__WORKLOAD_TYPE__E__process, PB__WORKLOAD_TYPE__E__vm }
        };

        (void)state;
        rig_boot(&r, 0, 0);
        engine_connected(r.e, 5);
        drain(&r);
        has.memory_mb = r.sent.at[0]->hello->memory_mb;
        has.disk_gb = r.sent.at[0]->hello->disk_gb;
        assert_true(engine_set_capacity(r.e, &has)); /* one more type */
        assert_false(engine_set_capacity(r.e, &has));
        has.types[0] = PB__WORKLOAD_TYPE__E__vm;
        has.types[1] = PB__WORKLOAD_TYPE__E__process;
        assert_false(engine_set_capacity(r.e, &has)); /* in another order */
        has.cpu = 9000;
        assert_true(engine_set_capacity(r.e, &has));
        engine_disconnected(r.e, 6);
        drain(&r);
        engine_connected(r.e, 7);
        drain(&r);
        assert_int_equal(r.sent.at[r.sent.len - 1]->hello->cpu, 9000);
        assert_int_equal(r.sent.at[r.sent.len - 1]->hello->n_supported_workload_types, 2);
        rig_fini(&r);
}

/* R: C6 */
static void what_is_unhealthy_is_stopped_and_then_told_as_failed(void **state)
{
        struct rig r = rig_new();
        Pb__UnitStatus *s;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        engine_health(r.e, "a", (struct unit_token){ 1, 1 }, false, "of an older copy", r.now);
        drain(&r);
        assert_int_equal(r.sent.len, 0);
        engine_health(r.e, "a", (struct unit_token){ 1, 2 }, true, NULL, r.now);
        drain(&r);
        assert_string_equal(status_of(&r, "a")->health, "healthy");
        assert_int_equal(r.log.len, 0); /* nothing is written for it */
        clear(&r);
        engine_health(r.e, "a", (struct unit_token){ 1, 2 }, false,
                      "3 health checks in a row failed", r.now);
        drain(&r);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        assert_string_equal(status_of(&r, "a")->health, "unhealthy");
        /* until it is proved gone */
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, 0, 0);
        s = status_of(&r, "a");
        assert_int_equal(s->state, PB__ACTUAL_STATE__E__Failed);
        assert_int_equal(s->reason, PB__REASON__E__unhealthy);
        assert_string_equal(s->message, "3 health checks in a row failed");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0); /* the server owns restarts */
        clear(&r);
        change(&r, 3, "a", 3, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        runtime_says(&r, RUNTIME_STARTED, "a", 3, -1, 0);
        assert_string_equal(status_of(&r, "a")->health, "");
        rig_fini(&r);
}

/* R: C6 A6 */
static void progress_of_a_start_is_told_and_nothing_is_written(void **state)
{
        struct rig r = rig_new();
        struct runtime_event ev = { .kind = RUNTIME_PROGRESS,
                                    .workload_id = "a",
                                    .token = { 1, 2 },
                                    .message = "pulling image: 40 %" };

        (void)state;
        change(&r, 2, "a", 2, RUN, "r1");
        clear(&r);
        engine_event(r.e, &ev, r.now);
        drain(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        assert_string_equal(status_of(&r, "a")->message, "pulling image: 40 %");
        assert_int_equal(r.log.len, 0);
        clear(&r);
        engine_event(r.e, &ev, r.now);
        drain(&r);
        assert_int_equal(r.sent.len, 0); /* the same again is no news */
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        assert_string_equal(status_of(&r, "a")->message, "");
        rig_fini(&r);
}

/* What is only Pending waits for the next heartbeat: nothing is decided on it, and a start is
 * mostly over before. */
static void beat(struct rig *r)
{
        engine_tick(r->e, r->now += 1000);
        drain(r);
}

/* R: C7 A6 */
static void a_pending_unit_is_told_with_the_next_heartbeat_or_report(void **state)
{
        struct rig r = rig_new();

        (void)state;
        clear(&r);
        change(&r, 2, "a", 2, RUN, "r1");
        assert_int_equal(r.sent.len, 0);
        beat(&r);
        assert_int_equal(r.sent.len, 2); /* this, and the heartbeat that sums it up */
        assert_non_null(r.sent.at[1]->heartbeat);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        clear(&r);
        beat(&r);
        assert_int_equal(r.sent.len, 1); /* once */
        change(&r, 3, "b", 3, RUN, "r1");
        clear(&r);
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        assert_int_equal(r.sent.len, 1);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        assert_status(&r, "b", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        rig_fini(&r);
}

/* R: C34 A5 */
static void start_comes_after_its_record_is_durable(void **state)
{
        struct rig r = rig_new();

        (void)state;
        clear(&r);
        change(&r, 2, "a", 2, RUN, "r1");
        /* do_start asserted that the record was there */
        assert_int_equal(ordered(&r, ORDER_PERSIST_UNIT, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        assert_int_equal(r.log.at[r.log.len - 1].kind, ORDER_START);
        beat(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        rig_fini(&r);
}

/* R: C7 C26 */
static void same_token_and_revision_change_nothing(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 2, "a", 2, RUN, "r1");
        plan_begin(&p, 1, 2, true, true);
        plan_add(&p, "a", 2, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(r.log.len, 0);
        assert_int_equal(r.sent.len, 0);
        rig_fini(&r);
}

/* R: C7 C34 */
static void older_plans_are_ignored(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 10, "a", 10, "r1");
        change(&r, 9, "a", 11, STOP, NULL);
        plan_begin(&p, 1, 8, true, true);
        plan_add(&p, "a", 12, DEL, NULL);
        say(&r, &p.m);
        plan_begin(&p, 0, 99, true, true); /* a smaller epoch is older, whatever its cursor */
        plan_add(&p, "a", 13, DEL, NULL);
        say(&r, &p.m);
        assert_int_equal(r.log.len, 0);
        assert_int_equal(engine_plans_ignored(r.e), 3);
        plan_begin(&p, 2, 1, true, true);
        plan_add(&p, "a", 13, DEL, NULL);
        say(&r, &p.m);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        rig_fini(&r);
}

/* R: C34 */
static void smaller_token_is_refused_and_answered(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 5, "a", 5, "r1");
        change(&r, 6, "a", 4, DEL, NULL);
        change(&r, 7, "a", 4, STOP, "r1");
        change(&r, 8, "a", 4, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_STOP, NULL) + ordered(&r, ORDER_START, NULL) +
                             ordered(&r, ORDER_REMOVE, NULL),
                         0);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        assert_int_equal(status_of(&r, "a")->token->seq, 5);
        rig_fini(&r);
}

/* R: C7 C34 */
static void replacement_waits_until_the_old_copy_is_proved_gone(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 3, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
        assert_int_equal(r.log.at[r.log.len - 1].grace_ms, 7000);
        beat(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        assert_int_equal(status_of(&r, "a")->token->seq, 3);
        /* somebody else's token proves nothing */
        runtime_says(&r, RUNTIME_STOPPED, "a", 1, -1, SIGTERM);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, -1, SIGTERM);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        /* the same revision with a larger token, and another revision with the same token, are
         * replacements too */
        runtime_says(&r, RUNTIME_STARTED, "a", 3, -1, 0);
        clear(&r);
        change(&r, 4, "a", 4, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        runtime_says(&r, RUNTIME_EXITED, "a", 3, 0, 0);
        runtime_says(&r, RUNTIME_STARTED, "a", 4, -1, 0);
        clear(&r);
        change(&r, 5, "a", 4, RUN, "r3");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        runtime_says(&r, RUNTIME_STOPPED, "a", 4, 0, 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        rig_fini(&r);
}

/* R: C7 */
static void replacement_during_a_start_stops_the_start(void **state)
{
        struct rig r = rig_new();

        (void)state;
        change(&r, 2, "a", 2, RUN, "r1");
        change(&r, 3, "a", 3, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        runtime_says(&r, RUNTIME_START_FAILED, "a", 2, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 2);
        rig_fini(&r);
}

/* R: C21 C28 */
static void exits_are_judged_and_never_restarted_here(void **state)
{
        static const struct {
                int code, sig;
                Pb__ActualState__E state;
                Pb__Reason__E reason;
        } cases[] = {
                { 0, 0, PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__exited },
                { 3, 0, PB__ACTUAL_STATE__E__Failed, PB__REASON__E__crashed },
                { -1, SIGSEGV, PB__ACTUAL_STATE__E__Failed, PB__REASON__E__crashed },
                { -1, SIGKILL, PB__ACTUAL_STATE__E__Failed, PB__REASON__E__killed },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct rig r = rig_new();

                bring_up(&r, 2, "a", 2, "r1");
                runtime_says(&r, RUNTIME_EXITED, "a", 2, cases[i].code, cases[i].sig);
                assert_status(&r, "a", cases[i].state, cases[i].reason);
                if (cases[i].code >= 0)
                        assert_int_equal(status_of(&r, "a")->exit_code->value, cases[i].code);
                else
                        assert_int_equal(status_of(&r, "a")->signal->value, cases[i].sig);
                clear(&r);
                change(&r, 3, "a", 2, RUN, "r1");
                engine_tick(r.e, r.now += 60000);
                drain(&r);
                assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
                change(&r, 4, "a", 4, RUN, "r1");
                assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
                beat(&r);
                assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
                rig_fini(&r);
        }
}

/* R: C25 */
static void failed_starts_are_reported_with_their_reason(void **state)
{
        struct rig r = rig_new();
        struct runtime_event ev = { .kind = RUNTIME_START_FAILED,
                                    .workload_id = "a",
                                    .token = { 1, 2 },
                                    .reason = PB__REASON__E__runtime_unavailable,
                                    .message = "runtime not available" };

        (void)state;
        change(&r, 2, "a", 2, RUN, "r1");
        copy_of(&r, "a")->phase = COPY_EXITED;
        engine_event(r.e, &ev, r.now);
        drain(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__runtime_unavailable);
        assert_string_equal(status_of(&r, "a")->message, "runtime not available");
        rig_fini(&r);
}

/* R: C21 C6 */
static void stopped_keeps_the_record(void **state)
{
        struct rig r = rig_new();
        struct engine_unit_view v;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 2, STOP, "r1");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, -1, SIGTERM);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__stopped_by_user);
        assert_int_equal(ordered(&r, ORDER_REMOVE, NULL) + ordered(&r, ORDER_FORGET_UNIT, NULL), 0);
        assert_non_null(file_of(&r, "a"));
        /* the same token does not bring it back, a larger one does */
        change(&r, 4, "a", 2, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
        change(&r, 5, "a", 5, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        assert_true(engine_unit(r.e, "a", &v) && v.in_runtime && v.running_token.seq == 5);
        /* one that is unknown here becomes a stopped unit */
        change(&r, 6, "b", 6, STOP, "r1");
        assert_status(&r, "b", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__stopped_by_user);
        assert_int_equal(ordered(&r, ORDER_START, "b"), 0);
        rig_fini(&r);
}

/* R: C21 C24 C27 */
static void deleted_is_stopped_removed_forgotten_then_missing(void **state)
{
        struct rig r = rig_new();
        struct engine_unit_view v;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 2, DEL, NULL);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_REMOVE, "a"), 0);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, -1, SIGKILL);
        assert_int_equal(ordered(&r, ORDER_REMOVE, "a"), 1);
        assert_true(!status_of(&r, "a") ||
                    status_of(&r, "a")->state != PB__ACTUAL_STATE__E__Missing);
        runtime_says(&r, RUNTIME_REMOVED, "a", 0, -1, 0);
        assert_int_equal(ordered(&r, ORDER_FORGET_UNIT, "a"), 1);
        assert_null(file_of(&r, "a"));
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Missing, PB__REASON__E__deleted);
        assert_int_equal(status_of(&r, "a")->token->seq, 2);
        assert_false(engine_unit(r.e, "a", &v));
        clear(&r);
        change(&r, 4, "nobody", 3, DEL, NULL);
        assert_status(&r, "nobody", PB__ACTUAL_STATE__E__Missing, PB__REASON__E__deleted);
        assert_int_equal(status_of(&r, "nobody")->token->seq, 3);
        rig_fini(&r);
}

/* R: C24 C34 */
static void a_wish_that_comes_during_removal_waits_for_it(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        runtime_says(&r, RUNTIME_EXITED, "a", 2, 0, 0);
        change(&r, 3, "a", 2, DEL, NULL);
        assert_int_equal(ordered(&r, ORDER_REMOVE, "a"), 1);
        clear(&r);
        change(&r, 4, "a", 2, RUN, "r1"); /* not with the token that was deleted */
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
        change(&r, 5, "a", 5, RUN, "r2");
        /* its files are going */
        assert_int_equal(ordered(&r, ORDER_START, "a") + ordered(&r, ORDER_PERSIST_UNIT, "a"), 0);
        runtime_says(&r, RUNTIME_REMOVED, "a", 0, -1, 0);
        assert_int_equal(ordered(&r, ORDER_FORGET_UNIT, "a"), 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        rig_fini(&r);
}

/* R: C24 C34 */
static void whole_plan_removes_before_it_starts(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 2, "old", 2, "r1");
        plan_begin(&p, 1, 3, true, false);
        plan_add(&p, "new", 3, RUN, "r1");
        say(&r, &p.m);
        /* not before its last message */
        assert_int_equal(ordered(&r, ORDER_START, NULL) + ordered(&r, ORDER_PERSIST_UNIT, NULL), 0);
        plan_begin(&p, 1, 3, false, true);
        plan_add(&p, "old", 2, DEL, NULL);
        say(&r, &p.m);
        assert_int_equal(ordered(&r, ORDER_STOP, "old"), 1);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        change(&r, 4, "newer", 4, RUN, "r1"); /* nothing new at all */
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        runtime_says(&r, RUNTIME_STOPPED, "old", 2, 0, 0);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        runtime_says(&r, RUNTIME_REMOVED, "old", 0, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, "new"), 1);
        assert_int_equal(ordered(&r, ORDER_START, "newer"), 1);
        rig_fini(&r);
}

/* R: C24 */
static void a_new_wish_for_what_a_plan_removes_does_not_block_starts_for_ever(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        plan_begin(&p, 1, 3, true, true);
        plan_add(&p, "a", 2, DEL, NULL);
        plan_add(&p, "b", 3, RUN, "r1");
        say(&r, &p.m);
        change(&r, 4, "a", 4, RUN, "r2");
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, 0, 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_START, "b"), 1);
        rig_fini(&r);
}

/* R: C27 A5 */
static void what_a_plan_does_not_mention_is_left_alone(void **state)
{
        struct rig r = rig_new();
        Pb__ServerMessage list = PB__SERVER_MESSAGE__INIT;
        Pb__ListUnits ask = PB__LIST_UNITS__INIT;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        empty_plan(&r, 3);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL) + ordered(&r, ORDER_REMOVE, NULL), 0);
        clear(&r);
        list.list = &ask;
        say(&r, &list);
        assert_int_equal(r.sent.len, 1);
        assert_true(r.sent.at[0]->units->complete);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        rig_fini(&r);
}

/* R: A5 C33 */
static void another_cluster_executes_nothing(void **state)
{
        struct rig r = rig_new();
        struct plan p;
        const char *reason;
        int64_t retry_ms;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        engine_connected(r.e, r.now);
        drain(&r);
        welcome(&r, "c2", true);
        clear(&r);
        plan_begin(&p, 9, 9, true, true);
        plan_add(&p, "a", 99, DEL, NULL);
        plan_add(&p, "b", 99, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(r.log.len, 0);
        assert_true(engine_wants_close(r.e, &reason, &retry_ms));
        assert_non_null(strstr(reason, "c2"));
        assert_int_equal(retry_ms, ENGINE_SLOW_RETRY_MS);
        assert_string_equal(engine_cluster_id(r.e), "c1");
        engine_disconnected(r.e, r.now);
        assert_false(engine_wants_close(r.e, &reason, &retry_ms));
        rig_join(&r);
        empty_plan(&r, 3);
        assert_true(engine_is_welcome(r.e));
        engine_connected(r.e, r.now);
        drain(&r);
        welcome(&r, "c1", false);
        assert_true(engine_wants_close(r.e, &reason, &retry_ms));
        assert_non_null(strstr(reason, "because"));
        rig_fini(&r);
}

/* R: A5 C27 */
static void a_cluster_that_takes_it_over_finds_its_units_running(void **state)
{
        struct rig r = rig_new();
        struct plan p;
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__Welcome w = PB__WELCOME__INIT;
        Pb__DescribeUnits ask = PB__DESCRIBE_UNITS__INIT;
        char *ids[] = { "a", "nobody" };
        Pb__Workload *a = NULL, *nobody = NULL;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        engine_connected(r.e, r.now);
        drain(&r);
        clear(&r);
        w.accepted = w.adopt = true;
        w.cluster_id = "c2";
        w.epoch = 9;
        m.welcome = &w;
        say(&r, &m);
        assert_string_equal(engine_cluster_id(r.e), "c2");
        /* durable before anything else happens */
        assert_int_equal(ordered(&r, ORDER_PERSIST_AGENT, NULL), 1);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL), 0);
        assert_true(copy_runs(&r, "a"));
        /* It says what its units were started from; of what it does not have, the name alone. */
        pb__server_message__init(&m);
        ask.unit_ids = ids;
        ask.n_unit_ids = 2;
        m.describe = &ask;
        say(&r, &m);
        for (size_t i = 0; i < r.sent.len; i++)
                for (size_t k = 0;
                     r.sent.at[i]->definitions && k < r.sent.at[i]->definitions->n_units; k++) {
                        Pb__Workload *x = r.sent.at[i]->definitions->units[k];
                        *(str_eq(x->id, "a") ? &a : &nobody) = x;
                }
        assert_non_null(a);
        assert_non_null(nobody);
        assert_string_equal(a->revision_id, "r1");
        assert_int_equal(a->token->seq, 2);
        assert_int_equal(a->desired_state, RUN);
        assert_true(a->type && !nobody->type);
        /* The new cluster's plan, however small its sequences, counts; the same token and revision
         * change nothing. */
        clear(&r);
        plan_begin(&p, 9, 1, true, true);
        plan_add(&p, "a", 2, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL) + ordered(&r, ORDER_START, NULL), 0);
        assert_int_equal(engine_cursor(r.e).epoch, 9);
        assert_true(copy_runs(&r, "a"));
        rig_fini(&r);
}

/* What the server said about a unit, as the agent returns it; NULL: nothing. */
static const Pb__HeldUnit *held(struct rig *r, const char *id)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__DescribeUnits ask = PB__DESCRIBE_UNITS__INIT;
        char *ids[] = { (char *)(uintptr_t)id };

        ask.unit_ids = ids;
        ask.n_unit_ids = 1;
        ask.held = true;
        m.describe = &ask;
        clear(r);
        say(r, &m);
        for (size_t i = 0; i < r->sent.len; i++)
                if (r->sent.at[i]->definitions && r->sent.at[i]->definitions->n_held)
                        return r->sent.at[i]->definitions->held[0];
        return NULL;
}

static void plan_warranted(struct rig *r, uint64_t seq, uint64_t token, const char *warrant,
                           const void *definition, size_t len)
{
        struct plan p;

        plan_begin(&p, 1, seq, false, false);
        plan_add(&p, "a", token, RUN, NULL);
        p.units[0].workload = (ProtobufCBinaryData){ len, (uint8_t *)(uintptr_t)definition };
        p.units[0].warrant =
            (ProtobufCBinaryData){ strlen(warrant), (uint8_t *)(uintptr_t)warrant };
        say(r, &p.m);
}

/* R: A13 (A2): byte for byte, also what this agent does not know and would pack otherwise. */
static void warrants_and_definitions_are_kept_and_returned_unchanged(void **state)
{
        /* revision_id before id, and a field that no agent of today knows */
        static const char odd[] = "\x1a\x02r1\x0a\x01"
                                  "a\x10\x04\xf2\x3f\x03new";
        struct rig r = rig_new();
        const Pb__HeldUnit *h;

        (void)state;
        bring_up(&r, 2, "b", 2, "r1"); /* welcome, and something else runs */
        clear(&r);
        plan_warranted(&r, 3, 3, "warrant-1", odd, sizeof(odd) - 1);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        runtime_says(&r, RUNTIME_STARTED, "a", 3, -1, 0);
        h = held(&r, "a");
        assert_non_null(h);
        assert_int_equal(h->token->seq, 3);
        assert_int_equal(h->definition.len, sizeof(odd) - 1);
        assert_memory_equal(h->definition.data, odd, sizeof(odd) - 1);
        assert_int_equal(h->warrant.len, 9);
        assert_memory_equal(h->warrant.data, "warrant-1", 9);
        /* A plan that brings only a warrant is persisted, and restarts nothing. */
        clear(&r);
        plan_warranted(&r, 4, 3, "warrant-2", odd, sizeof(odd) - 1);
        assert_int_equal(ordered(&r, ORDER_PERSIST_UNIT, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL) + ordered(&r, ORDER_START, NULL), 0);
        /* The same again writes nothing. */
        clear(&r);
        plan_warranted(&r, 4, 3, "warrant-2", odd, sizeof(odd) - 1);
        assert_int_equal(ordered(&r, ORDER_PERSIST_UNIT, NULL), 0);
        /* A server that knows none takes none away. */
        plan_warranted(&r, 5, 3, "", odd, sizeof(odd) - 1);
        assert_int_equal(ordered(&r, ORDER_PERSIST_UNIT, NULL), 0);
        h = held(&r, "a");
        assert_memory_equal(h->warrant.data, "warrant-2", 9);
        /* A larger token has its own, or none. */
        plan_warranted(&r, 6, 6, "", odd, sizeof(odd) - 1);
        h = held(&r, "a");
        assert_int_equal(h->token->seq, 6);
        assert_int_equal(h->warrant.len, 0);
        /* What cannot be read is refused, and changes nothing. */
        plan_warranted(&r, 7, 7, "w", "\xff\xff", 2);
        h = held(&r, "a");
        assert_int_equal(h->token->seq, 6);
        rig_fini(&r);
}

/* R: C9 */
static void heartbeats_come_as_told(void **state)
{
        struct rig r = rig_new();
        Pb__ServerMessage ack = PB__SERVER_MESSAGE__INIT;
        Pb__HeartbeatAck next = PB__HEARTBEAT_ACK__INIT;
        struct runtime_usage usage = {
                .known = true, .cpu_used = 250, .memory_used_mb = 64, .disk_used_gb = 3
        };
        Pb__Heartbeat *h;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        assert_int_equal(engine_next_ms(r.e), r.now + 1000);
        engine_tick(r.e, r.now + 999);
        drain(&r);
        assert_int_equal(r.sent.len, 0);
        engine_set_usage(r.e, &usage);
        engine_tick(r.e, r.now += 1000);
        drain(&r);
        assert_int_equal(r.sent.len, 1);
        h = r.sent.at[0]->heartbeat;
        assert_int_equal(h->usage->cpu_used, 250);
        assert_int_equal(h->units_count, 1);
        assert_int_equal(h->units_hash, units_hash_add(0, "a", 1, 2, PB__ACTUAL_STATE__E__Running));
        assert_int_equal(h->applied->seq, 2);
        assert_int_equal(engine_next_ms(r.e), r.now + 1000);
        next.next_ms = 5000;
        ack.heartbeat = &next;
        say(&r, &ack);
        assert_int_equal(engine_next_ms(r.e), r.now + 5000);
        engine_disconnected(r.e, r.now);
        clear(&r);
        engine_tick(r.e, r.now + 100000);
        drain(&r);
        assert_int_equal(r.sent.len, 0);
        rig_fini(&r);
}

/* R: A6 */
static void nothing_to_do_writes_nothing(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        for (int i = 0; i < 100; i++) {
                engine_tick(r.e, r.now += 1000);
                drain(&r);
        }
        assert_int_equal(r.log.len, 0);
        rig_fini(&r);
}

/* R: A9 */
static void units_are_bounded_and_bad_plans_refused(void **state)
{
        struct rig r = { .now = 1 };

        (void)state;
        rig_boot(&r, 2, 0);
        rig_join(&r);
        empty_plan(&r, 1);
        change(&r, 2, "a", 2, RUN, "r1");
        change(&r, 3, "b", 3, RUN, "r1");
        change(&r, 4, "c", 4, RUN, "r1");
        assert_status(&r, "c", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed);
        assert_int_equal(engine_unit_count(r.e), 2);
        change(&r, 5, "../etc", 5, RUN, "r1");
        assert_status(&r, "../etc", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed);
        change(&r, 6, "d", 6, RUN, NULL);
        assert_status(&r, "d", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed);
        change(&r, 7, "a", 7, PB__DESIRED_STATE__E__unset, "r1");
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed);
        assert_int_equal(engine_unit_count(r.e), 2);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL), 0);
        rig_fini(&r);
}

/* R: A11 */
static void starts_in_flight_are_bounded(void **state)
{
        struct rig r = { .now = 1 };
        char id[8];

        (void)state;
        rig_boot(&r, 0, 3);
        rig_join(&r);
        empty_plan(&r, 1);
        for (int i = 0; i < 10; i++) {
                snprintf(id, sizeof(id), "u%d", i);
                change(&r, (uint64_t)i + 2, id, (uint64_t)i + 2, RUN, "r1");
        }
        assert_int_equal(ordered(&r, ORDER_START, NULL), 3);
        runtime_says(&r, RUNTIME_STARTED, "u0", 2, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, "u3"), 1);
        runtime_says(&r, RUNTIME_START_FAILED, "u1", 3, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 5);
        rig_fini(&r);
}

/* R: C35 */
static void a_full_disk_fails_the_start_and_nothing_else(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        r.disk_full = true;
        change(&r, 3, "b", 3, RUN, "r1");
        assert_status(&r, "b", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed);
        assert_null(copy_of(&r, "b"));
        change(&r, 4, "a", 2, STOP, "r1");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        r.disk_full = false;
        engine_tick(r.e, r.now += 10000); /* what could not be written is written later */
        drain(&r);
        assert_non_null(file_of(&r, "b"));
        change(&r, 5, "b", 5, RUN, "r1");
        assert_true(copy_runs(&r, "b"));
        rig_fini(&r);
}

/* R: C26 */
static void a_stop_without_an_answer_is_ordered_again(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 2, STOP, "r1");
        engine_disconnected(r.e, r.now);
        assert_int_equal(engine_next_ms(r.e), r.now + 7000 + ENGINE_STOP_AGAIN_MS);
        engine_tick(r.e, r.now += 7000 + ENGINE_STOP_AGAIN_MS);
        drain(&r);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 2);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(hello_tells_everything_first),
                cmocka_unit_test(another_amount_is_in_the_next_hello),
                cmocka_unit_test(a_pending_unit_is_told_with_the_next_heartbeat_or_report),
                cmocka_unit_test(start_comes_after_its_record_is_durable),
                cmocka_unit_test(same_token_and_revision_change_nothing),
                cmocka_unit_test(older_plans_are_ignored),
                cmocka_unit_test(smaller_token_is_refused_and_answered),
                cmocka_unit_test(replacement_waits_until_the_old_copy_is_proved_gone),
                cmocka_unit_test(replacement_during_a_start_stops_the_start),
                cmocka_unit_test(exits_are_judged_and_never_restarted_here),
                cmocka_unit_test(failed_starts_are_reported_with_their_reason),
                cmocka_unit_test(stopped_keeps_the_record),
                cmocka_unit_test(deleted_is_stopped_removed_forgotten_then_missing),
                cmocka_unit_test(a_wish_that_comes_during_removal_waits_for_it),
                cmocka_unit_test(whole_plan_removes_before_it_starts),
                cmocka_unit_test(a_new_wish_for_what_a_plan_removes_does_not_block_starts_for_ever),
                cmocka_unit_test(what_a_plan_does_not_mention_is_left_alone),
                cmocka_unit_test(another_cluster_executes_nothing),
                cmocka_unit_test(a_cluster_that_takes_it_over_finds_its_units_running),
                cmocka_unit_test(warrants_and_definitions_are_kept_and_returned_unchanged),
                cmocka_unit_test(heartbeats_come_as_told),
                cmocka_unit_test(nothing_to_do_writes_nothing),
                cmocka_unit_test(units_are_bounded_and_bad_plans_refused),
                cmocka_unit_test(starts_in_flight_are_bounded),
                cmocka_unit_test(a_full_disk_fails_the_start_and_nothing_else),
                cmocka_unit_test(a_stop_without_an_answer_is_ordered_again),
                cmocka_unit_test(what_is_unhealthy_is_stopped_and_then_told_as_failed),
                cmocka_unit_test(progress_of_a_start_is_told_and_nothing_is_written),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
