/* core/notice_test.c: one node or one caller cannot flood the events, and nothing that changes the
 * state is lost for it (issue line A6). R: A13 A14 */
#include "core/core_testlib.h"
#include "model/pb.h"
#include <stdio.h>
#include <string.h>

static size_t count_of(struct rig *r, Pb__EventType__E type)
{
        return rig_count(r, type);
}

static void note(struct rig *r, Pb__EventType__E type, const char *actor, uint64_t more)
{
        Pb__AccessNote *n = (Pb__AccessNote *)pb_new(&r->memory, &pb__access_note__descriptor);
        n->type = type;
        n->message = (char *)"refused";
        n->actor = (char *)actor;
        n->more = more;
        rig_say(r, INPUT_ACCESS_NOTE, 0, n, NULL);
}

static void a_callers_notices_are_summed_up_beyond_its_limit(void **state)
{
        struct rig r;
        (void)state;
        rig_init(&r, NULL);
        rig_mark(&r);
        for (int i = 0; i < 1000; i++)
                note(&r, PB__EVENT_TYPE__E__AccessRefused, "mallory", 0);
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__AccessRefused), 20);
        note(&r, PB__EVENT_TYPE__E__AccessRefused, "ann", 3); /* others are told of all the same */
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__AccessRefused), 21);
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__NoticesSummed), 0);
        rig_advance(&r, 61000);
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__NoticesSummed), 2);
        uint64_t sum = 0;
        for (size_t i = r.mark; i < r.events.len; i++)
                if (r.events.at[i].e->type == PB__EVENT_TYPE__E__NoticesSummed)
                        sum += r.events.at[i].e->count;
        assert_int_equal(sum, 980 + 3);
        rig_mark(&r);
        rig_advance(&r, 600000); /* said once, and silent again */
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__NoticesSummed), 0);
        note(&r, PB__EVENT_TYPE__E__AccessRefused, "mallory", 0);
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__AccessRefused), 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

static void a_nodes_drift_is_summed_up_beyond_its_limit(void **state)
{
        struct rig r;
        (void)state;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 8192, 100, NULL);
        rig_mark(&r);
        for (int i = 0; i < 200; i++) { /* another stranger in each list */
                Pb__UnitStatus *u = rig_unit(&r, "x", 0, 0, PB__ACTUAL_STATE__E__Running);
                u->unit_id = arena_printf(&r.memory, "stranger-%d", i);
                rig_report_all(&r, "n1", true, 0, 1, &u);
        }
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__UnitUnknown), 20);
        rig_advance_alive(&r, 61000);
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__NoticesSummed), 1);
        const Pb__Event *e = rig_last(&r, PB__EVENT_TYPE__E__NoticesSummed);
        assert_string_equal(e->node_id, "n1");
        assert_int_equal(e->count, 180);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* A list without it, and one with it, without end: each used to be a launch and a start. */
static void
a_unit_that_changes_without_end_is_taken_less_often_and_the_last_word_counts(void **state)
{
        struct rig r;
        (void)state;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 8192, 100, NULL);
        rig_apply(&r, rig_workload(&r, "w", 100, 64));
        rig_runs(&r, "w");
        rig_mark(&r);
        for (int i = 0; i < 500; i++) {
                rig_report_all(&r, "n1", true, core_head(r.core), 0, NULL);
                Pb__UnitStatus *u = rig_unit_now(&r, "w", PB__ACTUAL_STATE__E__Running);
                rig_report_all(&r, "n1", true, core_head(r.core), 1, &u);
        }
        assert_in_range(r.events.len - r.mark, 10, 60); /* and not a thousand */
        assert_true(rig_node(&r, "n1")->reports_held_at > 0);
        /* at last it stays: what is asked for a little later says so */
        size_t before = r.effects.len;
        rig_advance_alive(&r, 30000);
        bool asked = false;
        for (size_t i = before; i < r.effects.len; i++)
                asked |= r.effects.at[i].kind == EFFECT_LIST;
        assert_true(asked);
        rig_advance_alive(&r, 300000);
        Pb__UnitStatus *u = rig_unit_now(&r, "w", PB__ACTUAL_STATE__E__Running);
        rig_report_all(&r, "n1", true, core_head(r.core), 1, &u);
        assert_int_equal(rig_get(&r, "w")->status->phase, PB__PHASE__E__Running);
        rig_check_replay(&r);
        rig_fini(&r);
}

static void a_thousand_units_that_start_at_once_are_not_held_up(void **state)
{
        struct rig r;
        (void)state;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000000, 8192000, 100, NULL);
        for (int i = 0; i < 1000; i++)
                rig_apply(&r, rig_workload(&r, arena_printf(&r.memory, "w%d", i), 10, 1));
        rig_mark(&r);
        for (int i = 0; i < 1000; i++)
                rig_runs(&r, arena_printf(&r.memory, "w%d", i));
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__WorkloadStarted), 1000);
        assert_int_equal(rig_node(&r, "n1")->reports_held_at, 0);
        rig_fini(&r);
}

static void a_node_that_describes_itself_anew_without_end_is_asked_again_later(void **state)
{
        struct rig r;
        (void)state;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 8192, 100, NULL);
        rig_mark(&r);
        for (int i = 0; i < 200; i++)
                rig_hello(&r, "n1", 4000 + i, 8192, 100, NULL);
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__NodeRegistered), 10);
        assert_true(rig_node(&r, "n1")->reports_held_at > 0);
        size_t before = r.effects.len;
        rig_advance_alive(&r, 40000);
        bool closed = false;
        for (size_t i = before; i < r.effects.len; i++)
                closed |= r.effects.at[i].kind == EFFECT_CLOSE;
        assert_true(closed); /* and it says hello again, with its latest word */
        rig_hello(&r, "n1", 5000, 8192, 100, NULL);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 5000);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A14 */
static void an_exec_is_an_event_with_its_answer(void **state)
{
        struct rig r;
        (void)state;
        rig_init(&r, NULL);
        uint64_t session = rig_hello(&r, "n1", 4000, 8192, 100, NULL);
        rig_apply(&r, rig_workload(&r, "w", 100, 64));
        rig_runs(&r, "w");
        uint64_t version = rig_get(&r, "w")->resource_version;
        rig_mark(&r);
        Pb__ExecNote *n = (Pb__ExecNote *)pb_new(&r.memory, &pb__exec_note__descriptor);
        n->workload_id = (char *)"w";
        n->command = (char *)"cat /etc/passwd";
        rig_ask(&r, INPUT_EXEC, n);
        assert_int_equal(r.replies.at[r.replies.len - 1].session, session);
        const Pb__Event *e = rig_last(&r, PB__EVENT_TYPE__E__WorkloadExec);
        assert_string_equal(e->actor, "tester");
        assert_string_equal(e->workload_id, "w");
        assert_string_equal(e->node_id, "n1");
        assert_string_equal(e->command, "cat /etc/passwd");
        assert_int_equal(rig_get(&r, "w")->resource_version, version); /* it changes nothing */
        /* and belongs to its history */
        assert_int_equal(rig_get(&r, "w")->told_version, e->seq);
        n->workload_id = (char *)"nowhere";
        rig_mark(&r);
        assert_int_equal(rig_try(&r, INPUT_EXEC, n)->err.code, ERR_NOT_FOUND);
        assert_int_equal(r.events.len, r.mark);
        rig_check_replay(&r);
        rig_fini(&r);
}

static Pb__ExecNote *exec_note(struct rig *r)
{
        Pb__ExecNote *n = (Pb__ExecNote *)pb_new(&r->memory, &pb__exec_note__descriptor);
        n->workload_id = (char *)"w";
        n->command = (char *)"id";
        return n;
}

static void read_logs(struct rig *r, const char *actor)
{
        Pb__AccessNote *n = (Pb__AccessNote *)pb_new(&r->memory, &pb__access_note__descriptor);
        n->type = PB__EVENT_TYPE__E__WorkloadLogsRead;
        n->workload_id = (char *)"w";
        n->actor = (char *)actor;
        rig_say(r, INPUT_ACCESS_NOTE, 0, n, NULL);
}

/* Beyond the limit nothing is run: an exec is told, or it is none. R: A14 */
static void an_exec_that_cannot_be_told_is_refused(void **state)
{
        struct rig r;
        (void)state;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 8192, 100, NULL);
        rig_apply(&r, rig_workload(&r, "w", 100, 64));
        rig_runs(&r, "w");
        rig_mark(&r);
        for (int i = 0; i < 100; i++)
                read_logs(&r, "tester"); /* takes nothing from exec */
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__WorkloadLogsRead), 60);
        for (int i = 0; i < 60; i++)
                rig_ask(&r, INPUT_EXEC, exec_note(&r));
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__WorkloadExec), 60);
        for (int i = 0; i < 5; i++) {
                const struct rig_reply *reply = rig_try(&r, INPUT_EXEC, exec_note(&r));
                assert_int_equal(reply->err.code, ERR_LIMIT);
                assert_int_equal(reply->session, 0);
                assert_true(reply->err.hint[0] && reply->err.detail[0]);
                assert_in_range(reply->err.retry_after_ms, 1, 2000);
        }
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__WorkloadExec), 60);
        Pb__ExecNote *nowhere = exec_note(&r);
        nowhere->workload_id = (char *)"nowhere";
        /* that is said first */
        assert_int_equal(rig_try(&r, INPUT_EXEC, nowhere)->err.code, ERR_NOT_FOUND);
        rig_advance_alive(&r, 2000);
        rig_ask(&r, INPUT_EXEC, exec_note(&r));
        assert_int_equal(count_of(&r, PB__EVENT_TYPE__E__WorkloadExec), 61);
        assert_int_equal(rig_try(&r, INPUT_EXEC, exec_note(&r))->err.code, ERR_LIMIT);
        rig_advance_alive(&r, 61000);
        const Pb__Event *sum = rig_last(&r, PB__EVENT_TYPE__E__NoticesSummed);
        assert_int_equal(sum->count, 40); /* of the logs: what was refused is no notice */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* The rig holds every event's prev to the one before it about the same workload. R: A14 C29 */
static void audits_are_part_of_a_workloads_history(void **state)
{
        struct rig r;
        (void)state;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 8192, 100, NULL);
        rig_apply(&r, rig_workload(&r, "w", 100, 64));
        rig_runs(&r, "w");
        uint64_t version = rig_get(&r, "w")->resource_version;
        read_logs(&r, "ann");
        const Pb__Event *e = rig_last(&r, PB__EVENT_TYPE__E__WorkloadLogsRead);
        assert_string_equal(e->node_id, "n1");
        assert_string_equal(e->actor, "ann");
        assert_int_equal(e->prev, version);
        uint64_t logs = e->seq;
        rig_ask(&r, INPUT_EXEC, exec_note(&r));
        e = rig_last(&r, PB__EVENT_TYPE__E__WorkloadExec);
        assert_int_equal(e->prev, logs);
        uint64_t exec = e->seq;
        rig_check_replay(&r);
        rig_restart(&r); /* it is in the record */
        assert_int_equal(rig_get(&r, "w")->told_version, exec);
        Pb__SetDesiredRequest *stop =
            (Pb__SetDesiredRequest *)pb_new(&r.memory, &pb__set_desired_request__descriptor);
        stop->id = (char *)"w";
        stop->desired_state = PB__DESIRED_STATE__E__Stopped;
        rig_mark(&r);
        rig_ask(&r, INPUT_DESIRED, stop);
        e = rig_last(&r, PB__EVENT_TYPE__E__WorkloadDesired);
        assert_int_equal(e->prev, exec); /* and what comes next leads there */
        assert_true(rig_get(&r, "w")->resource_version > exec);
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_callers_notices_are_summed_up_beyond_its_limit),
                cmocka_unit_test(a_nodes_drift_is_summed_up_beyond_its_limit),
                cmocka_unit_test(
                    a_unit_that_changes_without_end_is_taken_less_often_and_the_last_word_counts),
                cmocka_unit_test(a_thousand_units_that_start_at_once_are_not_held_up),
                cmocka_unit_test(
                    a_node_that_describes_itself_anew_without_end_is_asked_again_later),
                cmocka_unit_test(an_exec_is_an_event_with_its_answer),
                cmocka_unit_test(an_exec_that_cannot_be_told_is_refused),
                cmocka_unit_test(audits_are_part_of_a_workloads_history),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
