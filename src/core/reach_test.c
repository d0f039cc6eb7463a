/* core/reach_test.c: nodes that are heard and cannot be called, nodes whose runtime turns out not
 * to work, and foreign agents in general. */
#include "core/core_testlib.h"

#define GRACE 60000

static uint64_t push_node(struct rig *r, const char *id)
{
        Pb__Hello *h = rig_hello_message(r, id, 4000, 4096, 10, NULL);
        h->push = true;
        h->agent_endpoint = arena_printf(&r->memory, "%s.example:50051", id);
        return rig_say_hello(r, h);
}

static Pb__UnitStatus *no_runtime(struct rig *r, const char *id)
{
        Pb__UnitStatus *u = rig_unit_now(r, id, PB__ACTUAL_STATE__E__Failed);
        u->reason = PB__REASON__E__runtime_unavailable;
        u->message = "runtime not available";
        return u;
}

/* R: C23 C8 */
static void a_node_that_cannot_be_called_is_not_ready_whatever_it_says(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        uint64_t s1 = push_node(&r, "n1");
        push_node(&r, "n2");
        rig_apply(&r, rig_workload(&r, "w", 1000, 100));
        rig_runs(&r, "w");
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n1");
        rig_mark(&r);
        rig_say(&r, INPUT_UNREACHABLE, s1, NULL, "dial n1.example:50051: connection refused");
        assert_told(&r, "NodeLost");
        rig_say(&r, INPUT_UNREACHABLE, s1, NULL, "again");
        assert_told(&r, "NodeLost"); /* once per transition */
        Pb__Node *n = rig_node(&r, "n1");
        assert_int_equal(n->status, PB__NODE_STATUS__E__NotReady);
        assert_string_equal(n->status_reason, "dial n1.example:50051: connection refused");
        assert_string_equal(n->status_updated_by, "reconciler");
        assert_true(n->push);
        rig_advance_alive(&r, GRACE - 1000);
        assert_told(&r, "NodeLost"); /* its heartbeats change nothing */
        rig_advance_alive(&r, 2000);
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n2");
        Pb__Workload *late = rig_workload(&r, "late", 4000, 100);
        rig_apply(&r, late);
        /* too little cpu on n2, n1 cannot be called */
        assert_int_equal(rig_explain(&r, "late")->n_reasons, 2);
        rig_check_replay(&r);
        rig_mark(&r);
        rig_say(&r, INPUT_REACHABLE, s1, NULL, NULL);
        assert_non_null(rig_last(&r, PB__EVENT_TYPE__E__NodeReady));
        assert_string_equal(rig_node(&r, "n1")->status_updated_by, "reconciler");
        /* the old copy */
        assert_int_equal(rig_sent(&r, "n1", "w")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C23 A5 */
static void a_restart_does_not_forget_that_a_node_cannot_be_called(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_say(&r, INPUT_UNREACHABLE, push_node(&r, "n1"), NULL, "no route to host");
        rig_restart(&r);
        rig_mark(&r);
        uint64_t s = push_node(&r, "n1"); /* the same registration */
        rig_beat(&r, "n1");
        assert_told(&r, "");
        assert_int_equal(rig_node(&r, "n1")->status, PB__NODE_STATUS__E__NotReady);
        rig_say(&r, INPUT_REACHABLE, s, NULL, NULL);
        assert_told(&r, "NodeReady");
        rig_say(&r, INPUT_REACHABLE, s, NULL, NULL);
        assert_told(&r, "NodeReady");
        /* Another endpoint deserves another try. */
        rig_say(&r, INPUT_UNREACHABLE, s, NULL, "no route to host");
        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
        h->push = true;
        h->agent_endpoint = "elsewhere.example:50051";
        rig_say_hello(&r, h);
        assert_int_equal(rig_node(&r, "n1")->status, PB__NODE_STATUS__E__Ready);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C4 C27 */
static void a_registration_of_a_foreign_agent_says_nothing_about_its_units(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        uint64_t s = push_node(&r, "n1");
        assert_int_equal(rig_sent_count(&r, EFFECT_LIST), 1);
        rig_apply(&r, rig_workload(&r, "w", 1000, 100));
        rig_runs(&r, "w");
        rig_mark(&r);
        Pb__Hello *h = rig_hello_message(&r, "n1", 8000, 4096, 10, "zone=b");
        h->push = true;
        h->agent_endpoint = "n1.example:50051";
        rig_say(&r, INPUT_HELLO, s, h, NULL); /* on the same session: other attributes */
        assert_told(&r, "NodeRegistered");
        assert_phase(&r, "w", Running);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 8000);
        assert_non_null(rig_sent(&r, "n1", "w"));
        /* Its list is the whole truth, as everybody's. */
        rig_mark(&r);
        rig_advance(&r, 20000);
        rig_report_all(&r, "n1", true, r.head, 0, NULL);
        assert_told(&r, "WorkloadLaunched");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C25 B-13 */
static void a_missing_runtime_marks_the_node_and_moves_the_workload(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
        h->instance = "agent-1";
        rig_say_hello(&r, h);
        rig_apply(&r, rig_workload(&r, "w", 1000, 100));
        rig_mark(&r);
        rig_report(&r, "n1", no_runtime(&r, "w"));
        assert_told(&r, "NodeTypeUnsupported Rescheduled WorkloadPending");
        Pb__Node *n = rig_node(&r, "n1");
        assert_int_equal(n->status, PB__NODE_STATUS__E__Ready);
        assert_string_equal(n->status_reason,
                            "runtime for process unavailable on agent: runtime not available");
        assert_string_equal(n->status_updated_by, "reconciler");
        assert_int_equal(n->n_unsupported, 1);
        Pb__Workload *w = rig_get(&r, "w");
        assert_string_equal(w->assigned_node, "");
        assert_int_equal(w->status->phase, PB__PHASE__E__Pending);
        assert_int_equal(w->retry->attempts, 0);
        rig_is_gone(&r, "w", "n1");
        assert_int_equal(rig_explain(&r, "w")->reasons[0]->reason, PB__REASON__E__type_unsupported);
        assert_string_equal(rig_explain(&r, "w")->nearest_miss->detail,
                            "its runtime for this type turned out not to work");
        rig_check_replay(&r);
        /* Neither a restart of the server nor a new stream of the same agent changes it. */
        rig_restart(&r);
        h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
        h->instance = "agent-1";
        rig_mark(&r);
        rig_say_hello(&r, h);
        assert_int_equal(rig_node(&r, "n1")->n_unsupported, 1);
        assert_phase(&r, "w", Pending);
        /* Another node takes it. */
        rig_hello(&r, "n2", 4000, 4096, 10, NULL);
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n2");
        /* A new agent process on the old one may know better. */
        rig_gone(&r, "n1");
        h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
        h->instance = "agent-2";
        rig_mark(&r);
        rig_say_hello(&r, h);
        assert_told(&r, "NodeRegistered");
        assert_int_equal(rig_node(&r, "n1")->n_unsupported, 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* A silent node's last word, heard late, is not the reason for which it is lost. */
/* R: C25 A3 */
static void a_missing_runtime_is_no_reason_for_being_lost(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_apply(&r, rig_workload(&r, "w", 1000, 100));
        rig_advance(&r, 35000);
        assert_int_equal(rig_node(&r, "n1")->status, PB__NODE_STATUS__E__NotReady);
        rig_report(&r, "n1", no_runtime(&r, "w"));
        assert_int_equal(rig_node(&r, "n1")->n_unsupported, 1);
        assert_int_equal(rig_node(&r, "n1")->status, PB__NODE_STATUS__E__NotReady);
        assert_string_equal(rig_node(&r, "n1")->status_updated_by, "monitor");
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_node_that_cannot_be_called_is_not_ready_whatever_it_says),
                cmocka_unit_test(a_restart_does_not_forget_that_a_node_cannot_be_called),
                cmocka_unit_test(a_registration_of_a_foreign_agent_says_nothing_about_its_units),
                cmocka_unit_test(a_missing_runtime_marks_the_node_and_moves_the_workload),
                cmocka_unit_test(a_missing_runtime_is_no_reason_for_being_lost),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
