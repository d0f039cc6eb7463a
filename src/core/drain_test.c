/* core/drain_test.c: a node is emptied because an operator wants it so, and forgotten when it is
 * gone. */
#include "core/core_testlib.h"

#define LIMIT 30000
#define GRACE 60000

static char *name(struct rig *r, const char *prefix, unsigned i)
{
        return arena_printf(&r->memory, "%s%u", prefix, i);
}

static const struct rig_reply *drain(struct rig *r, const char *node, int64_t deadline_seconds)
{
        Pb__SetNodeWishRequest *q = arena_new(&r->memory, Pb__SetNodeWishRequest);
        pb__set_node_wish_request__init(q);
        q->id = (char *)node;
        q->wish = PB__NODE_WISH__E__draining;
        q->deadline_seconds = deadline_seconds;
        return rig_ask(r, INPUT_NODE_WISH, q);
}

/* n1 with the given number of running units of 100 milli-cores, and an empty n2 of the given
 * size. */
static void two_nodes(struct rig *r, unsigned units, int64_t cpu)
{
        rig_hello(r, "n1", 100000, 1 << 20, 1000, NULL);
        for (unsigned i = 0; i < units; i++) {
                rig_apply(r, rig_workload(r, name(r, "w", i), 100, 10));
                rig_runs(r, name(r, "w", i));
        }
        rig_hello(r, "n2", cpu, 1 << 20, 1000, NULL);
        rig_mark(r);
}

/* R: C12 C34 */
static void the_new_copy_starts_when_the_old_one_is_proved_gone(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        two_nodes(&r, 1, 1000);
        drain(&r, "n1", 0);
        assert_told(&r, "NodeWishChanged Rescheduled WorkloadScheduled");
        assert_string_equal(rig_get(&r, "w0")->assigned_node, "n2");
        assert_int_equal(rig_sent(&r, "n1", "w0")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        assert_null(rig_sent(&r, "n2", "w0"));
        rig_advance_alive(&r, 100000); /* however long its old copy takes to stop */
        assert_null(rig_sent(&r, "n2", "w0"));
        assert_phase(&r, "w0", Scheduled);
        Pb__Drain *d = rig_node(&r, "n1")->drain;
        assert_int_equal(d->units_at_start, 1);
        assert_int_equal(d->left, 1);
        assert_int_equal(d->finished_at, 0);
        rig_is_gone(&r, "w0", "n1");
        assert_told(&r, "NodeWishChanged Rescheduled WorkloadScheduled UnitRemoved NodeDrained");
        assert_int_equal(rig_sent(&r, "n2", "w0")->unit->desired_state,
                         PB__DESIRED_STATE__E__Running);
        rig_runs(&r, "w0");
        d = rig_node(&r, "n1")->drain;
        assert_int_equal(d->moved, 1);
        assert_int_equal(d->left, 0);
        assert_int_equal(d->finished_at, r.now);
        assert_int_equal(rig_node(&r, "n1")->status, PB__NODE_STATUS__E__Draining);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 C24 */
static void a_new_copy_does_not_wait_for_a_node_that_is_lost(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        two_nodes(&r, 1, 1000);
        rig_hello(&r, "n3", 1000, 10, 10, "spare=yes");
        rig_hello(&r, "n4", 1000, 10, 10, "spare=yes");
        drain(&r, "n1", 0);
        rig_gone(&r, "n1");
        rig_advance_alive(&r, LIMIT + GRACE - 1000);
        assert_null(rig_sent(&r, "n2", "w0"));
        rig_advance_alive(&r, 20000);
        assert_non_null(rig_sent(&r, "n2", "w0"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 */
static void only_a_few_move_at_a_time(void **state)
{
        (void)state;
        struct rig r;
        struct core_options opt;
        core_options_default(&opt);
        opt.drain_at_once = 3;
        rig_init(&r, &opt);
        two_nodes(&r, 10, 100000);
        drain(&r, "n1", 0);
        for (int moved = 0; moved < 10; moved++) {
                Pb__Node *n = rig_node(&r, "n1");
                assert_int_equal(n->drain->moved, moved);
                assert_true(n->tombstones <= 3 &&
                            n->tombstones == (n->drain->left < 3 ? n->drain->left : 3));
                bool found = false;
                for (unsigned i = 0; i < 10 && !found; i++) {
                        struct rig_effect *e = rig_sent(&r, "n1", name(&r, "w", i));
                        found = e && e->unit->desired_state == PB__DESIRED_STATE__E__Deleted &&
                                !rig_sent(&r, "n2", name(&r, "w", i));
                        if (found)
                                rig_is_gone(&r, name(&r, "w", i), "n1");
                }
                assert_true(found);
        }
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeDrained), 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 A8 */
static void what_fits_nowhere_stays_and_is_named_until_the_deadline(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        two_nodes(&r, 2, 100); /* one of them fits on n2 */
        const struct rig_reply *reply = drain(&r, "n1", 600);
        int64_t started = r.now;
        assert_int_equal(reply->err.code, ERR_OK);
        Pb__Node *n = rig_node(&r, "n1");
        assert_int_equal(n->drain->started_at, started);
        assert_int_equal(n->drain->deadline_at, started + 600000);
        assert_int_equal(n->drain->n_blockers, 1);
        char *stays = arena_strdup(&r.memory, n->drain->blockers[0]->workload_id);
        assert_int_equal(n->drain->blockers[0]->reason, PB__REASON__E__cpu_insufficient);
        assert_non_null(strstr(n->drain->blockers[0]->detail, "cpu-insufficient: 1"));
        assert_phase(&r, stays, Running);
        char *goes = strcmp(stays, "w0") == 0 ? "w1" : "w0";
        rig_is_gone(&r, goes, "n1");
        rig_runs(&r, goes);
        /* Neither heartbeats nor a restart undo it or move its deadline. */
        rig_advance_alive(&r, 100000);
        rig_check_replay(&r);
        rig_restart(&r);
        Pb__Hello *h = rig_hello_message(&r, "n1", 100000, 1 << 20, 1000, NULL);
        rig_hello_add(&r, h, rig_unit_now(&r, stays, PB__ACTUAL_STATE__E__Running));
        rig_mark(&r);
        rig_say_hello(&r, h);
        h = rig_hello_message(&r, "n2", 100, 1 << 20, 1000, NULL);
        rig_hello_add(&r, h, rig_unit_now(&r, goes, PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        rig_advance_alive(&r, started + 600000 - 1 - r.now);
        assert_told(&r, "");
        assert_phase(&r, stays, Running);
        assert_int_equal(rig_node(&r, "n1")->status, PB__NODE_STATUS__E__Draining);
        assert_int_equal(rig_node(&r, "n1")->drain->deadline_at, started + 600000);
        rig_advance_alive(&r, 2);
        assert_phase(&r, stays, Pending);
        assert_string_equal(rig_get(&r, stays)->assigned_node, "");
        assert_int_equal(rig_last(&r, PB__EVENT_TYPE__E__Rescheduled)->reason,
                         PB__REASON__E__node_drained);
        assert_int_equal(rig_sent(&r, "n1", stays)->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeDrained), 0);
        rig_is_gone(&r, stays, "n1");
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeDrained), 1);
        rig_hello(&r, "n3", 1000, 1024, 10, NULL);
        assert_string_equal(rig_get(&r, stays)->assigned_node, "n3");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 C11 */
static void a_deadline_that_passed_while_the_server_was_away_is_met_when_it_is_back(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 1000, 1024, 10, NULL);
        rig_apply(&r, rig_workload(&r, "w", 100, 10));
        rig_runs(&r, "w");
        drain(&r, "n1", 10);
        r.now += 60000;
        rig_restart(&r);
        assert_phase(&r, "w", Pending);
        Pb__Hello *h = rig_hello_message(&r, "n1", 1000, 1024, 10, NULL);
        rig_say_hello(&r, h);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeDrained), 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 */
static void uncordon_calls_a_drain_off_and_asking_again_changes_only_the_deadline(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        two_nodes(&r, 1, 50);
        drain(&r, "n1", 100);
        int64_t started = r.now;
        rig_advance_alive(&r, 5000);
        rig_mark(&r);
        drain(&r, "n1", 0); /* nothing new */
        assert_told(&r, "");
        drain(&r, "n1", 200);
        assert_told(&r, "NodeWishChanged");
        assert_int_equal(rig_node(&r, "n1")->drain->started_at, started);
        assert_int_equal(rig_node(&r, "n1")->drain->deadline_at, r.now + 200000);
        rig_wish(&r, "n1", PB__NODE_WISH__E__schedulable);
        assert_null(rig_node(&r, "n1")->drain);
        rig_advance_alive(&r, 300000);
        assert_phase(&r, "w0", Running);
        assert_string_equal(rig_get(&r, "w0")->assigned_node, "n1");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 C20 */
static void what_waits_for_its_next_attempt_moves_when_it_is_due(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        two_nodes(&r, 1, 1000);
        rig_exits(&r, "w0", 1);
        assert_phase(&r, "w0", RetryPending);
        drain(&r, "n1", 0);
        rig_mark(&r);
        assert_phase(&r, "w0", RetryPending);
        rig_advance_alive(&r, 5000);
        assert_string_equal(rig_get(&r, "w0")->assigned_node, "n2");
        rig_is_gone(&r, "w0", "n1");
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeDrained), 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 A6 */
static void an_empty_node_is_drained_at_once_and_then_nothing_more_is_written(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        two_nodes(&r, 0, 1000);
        drain(&r, "n1", 60);
        assert_told(&r, "NodeWishChanged NodeDrained");
        rig_advance_alive(&r, 300000);
        assert_told(&r, "NodeWishChanged NodeDrained");
        rig_restart(&r);
        rig_mark(&r);
        rig_hello(&r, "n1", 100000, 1 << 20, 1000, NULL);
        rig_advance_alive(&r, 20000);
        assert_told(&r, "");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C12 A3 */
static void a_node_with_very_many_finished_units_is_forgotten_in_small_steps(void **state)
{
        (void)state;
        struct rig r;
        struct core_options opt;
        core_options_default(&opt);
        opt.max_batch_ops = 150;
        rig_init(&r, &opt);
        rig_hello(&r, "n1", 100000, 1 << 20, 1000, NULL);
        for (unsigned i = 0; i < 400; i++) {
                Pb__Workload *w = rig_workload(&r, name(&r, "j", i), 10, 10);
                w->restart = PB__RESTART__E__never;
                rig_apply(&r, w);
                rig_runs(&r, name(&r, "j", i));
                rig_exits(&r, name(&r, "j", i), 0);
        }
        rig_gone(&r, "n1");
        rig_advance(&r, LIMIT + 1000);
        rig_mark(&r);
        const struct rig_reply *reply = rig_forget(&r, "n1");
        assert_int_equal(reply->err.code, ERR_OK);
        assert_string_equal(((Pb__Node *)reply->msg)->id, "n1");
        assert_null(rig_node(&r, "n1"));
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadReleased), 400);
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__NodeForgotten)->actor, "tester");
        assert_true(r.largest_batch_ops <= 150);
        assert_string_equal(rig_get(&r, "j7")->assigned_node, "n1"); /* its name, for people */
        assert_phase(&r, "j7", Completed);
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_new_copy_starts_when_the_old_one_is_proved_gone),
                cmocka_unit_test(a_new_copy_does_not_wait_for_a_node_that_is_lost),
                cmocka_unit_test(only_a_few_move_at_a_time),
                cmocka_unit_test(what_fits_nowhere_stays_and_is_named_until_the_deadline),
                cmocka_unit_test(
                    a_deadline_that_passed_while_the_server_was_away_is_met_when_it_is_back),
                cmocka_unit_test(
                    uncordon_calls_a_drain_off_and_asking_again_changes_only_the_deadline),
                cmocka_unit_test(what_waits_for_its_next_attempt_moves_when_it_is_due),
                cmocka_unit_test(an_empty_node_is_drained_at_once_and_then_nothing_more_is_written),
                cmocka_unit_test(a_node_with_very_many_finished_units_is_forgotten_in_small_steps),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
