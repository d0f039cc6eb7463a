/* cli/wait_test.c: when waiting is over. */
#include "cli/wait.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static Pb__WorkloadStatus status;
static Pb__Workload workload;
static struct err err;

static const Pb__Workload *at(Pb__Phase__E phase)
{
        status.phase = phase;
        workload.status = &status;
        return &workload;
}

static int setup(void **state)
{
        (void)state;
        status = (Pb__WorkloadStatus)PB__WORKLOAD_STATUS__INIT;
        workload = (Pb__Workload)PB__WORKLOAD__INIT;
        workload.id = (char *)"hello";
        workload.revision_id = (char *)"rev-2";
        workload.desired_state = PB__DESIRED_STATE__E__Running;
        workload.restart = PB__RESTART__E__always;
        memset(&err, 0, sizeof(err));
        return 0;
}

static enum wait_verdict judge(const Pb__Workload *w, Pb__Phase__E phase)
{
        return wait_judge("hello", w, &(struct wait_goal){ .phase = phase }, &err);
}

static enum wait_verdict judge_gone(const Pb__Workload *w)
{
        return wait_judge("hello", w, &(struct wait_goal){ .deleted = true }, &err);
}

static void the_way_to_running_is_waited_for(void **state)
{
        (void)state;
        static const Pb__Phase__E way[] = { PB__PHASE__E__Pending,  PB__PHASE__E__Scheduled,
                                            PB__PHASE__E__Updating, PB__PHASE__E__RetryPending,
                                            PB__PHASE__E__Unknown,  PB__PHASE__E__Stopped };
        for (size_t i = 0; i < ARRAY_LEN(way); i++)
                assert_int_equal(judge(at(way[i]), PB__PHASE__E__Running), WAIT_ON);
        assert_int_equal(judge(at(PB__PHASE__E__Running), PB__PHASE__E__Running), WAIT_REACHED);
}

/* R: C7 */
static void an_update_counts_only_when_the_new_revision_runs(void **state)
{
        (void)state;
        status.observed_revision = (char *)"rev-1";
        assert_int_equal(judge(at(PB__PHASE__E__Running), PB__PHASE__E__Running), WAIT_ON);
        status.observed_revision = (char *)"rev-2";
        assert_int_equal(judge(at(PB__PHASE__E__Running), PB__PHASE__E__Running), WAIT_REACHED);
}

static void failed_is_the_end_of_waiting_with_the_reason(void **state)
{
        (void)state;
        status.failure_reason = (char *)"exit code 3";
        assert_int_equal(judge(at(PB__PHASE__E__Failed), PB__PHASE__E__Running), WAIT_NEVER);
        assert_int_equal(err_exit_status(err.code), 1);
        assert_string_equal(err.detail, "exit code 3");
        assert_non_null(strstr(err.hint, "berth explain hello"));
        assert_non_null(strstr(err.hint, "berth logs hello"));
        assert_int_equal(judge(at(PB__PHASE__E__Failed), PB__PHASE__E__Completed), WAIT_NEVER);
        assert_int_equal(judge(at(PB__PHASE__E__Failed), PB__PHASE__E__Failed), WAIT_REACHED);
}

/* R: C6 */
static void a_job_that_completed_was_running(void **state)
{
        (void)state;
        workload.restart = PB__RESTART__E__never;
        assert_int_equal(judge(at(PB__PHASE__E__Completed), PB__PHASE__E__Running), WAIT_REACHED);
        assert_int_equal(judge(at(PB__PHASE__E__Running), PB__PHASE__E__Completed), WAIT_ON);
        assert_int_equal(judge(at(PB__PHASE__E__Completed), PB__PHASE__E__Completed), WAIT_REACHED);
}

static void what_restarts_always_never_completes(void **state)
{
        (void)state;
        assert_int_equal(judge(at(PB__PHASE__E__Running), PB__PHASE__E__Completed), WAIT_NEVER);
        assert_string_equal(err.msg, "workload hello will never complete");
}

static void stopping_is_waited_for_until_somebody_starts_it_again(void **state)
{
        (void)state;
        workload.desired_state = PB__DESIRED_STATE__E__Stopped;
        assert_int_equal(judge(at(PB__PHASE__E__Running), PB__PHASE__E__Stopped), WAIT_ON);
        assert_int_equal(judge(at(PB__PHASE__E__Stopped), PB__PHASE__E__Stopped), WAIT_REACHED);
        assert_int_equal(judge(at(PB__PHASE__E__Completed), PB__PHASE__E__Stopped), WAIT_REACHED);
        assert_int_equal(judge(at(PB__PHASE__E__Running), PB__PHASE__E__Running), WAIT_REACHED);
        assert_int_equal(judge(at(PB__PHASE__E__Pending), PB__PHASE__E__Running), WAIT_NEVER);
        workload.desired_state = PB__DESIRED_STATE__E__Running;
        assert_int_equal(judge(at(PB__PHASE__E__Running), PB__PHASE__E__Stopped), WAIT_NEVER);
}

static void deleted_means_gone(void **state)
{
        (void)state;
        assert_int_equal(judge_gone(NULL), WAIT_REACHED);
        workload.desired_state = PB__DESIRED_STATE__E__Deleted;
        assert_int_equal(judge_gone(at(PB__PHASE__E__Deleting)), WAIT_ON);
        workload.desired_state = PB__DESIRED_STATE__E__Running;
        assert_int_equal(judge_gone(at(PB__PHASE__E__Running)), WAIT_NEVER);
        assert_int_equal(judge(NULL, PB__PHASE__E__Running), WAIT_NEVER);
        workload.desired_state = PB__DESIRED_STATE__E__Deleted;
        assert_int_equal(judge(at(PB__PHASE__E__Deleting), PB__PHASE__E__Running), WAIT_NEVER);
}

static void states_are_named_in_any_case(void **state)
{
        (void)state;
        struct wait_goal goal, fallback = { .phase = PB__PHASE__E__Running };
        assert_int_equal(wait_goal_parse("", fallback, &goal, &err), 0);
        assert_int_equal(goal.phase, PB__PHASE__E__Running);
        assert_int_equal(wait_goal_parse("completed", fallback, &goal, &err), 0);
        assert_int_equal(goal.phase, PB__PHASE__E__Completed);
        assert_int_equal(wait_goal_parse("Deleted", fallback, &goal, &err), 0);
        assert_true(goal.deleted);
        assert_int_equal(wait_goal_parse("sideways", fallback, &goal, &err), -ERR_INVALID);
        assert_non_null(strstr(err.detail, "Running"));
}

static void a_job_is_waited_for_to_its_end(void **state)
{
        (void)state;
        assert_int_equal(wait_goal_started(&workload).phase, PB__PHASE__E__Running);
        workload.restart = PB__RESTART__E__on_failure;
        assert_int_equal(wait_goal_started(&workload).phase, PB__PHASE__E__Completed);
}

#define T(f) cmocka_unit_test_setup(f, setup)
int main(void)
{
        const struct CMUnitTest tests[] = {
                T(the_way_to_running_is_waited_for),
                T(an_update_counts_only_when_the_new_revision_runs),
                T(failed_is_the_end_of_waiting_with_the_reason),
                T(a_job_that_completed_was_running),
                T(what_restarts_always_never_completes),
                T(stopping_is_waited_for_until_somebody_starts_it_again),
                T(deleted_means_gone),
                T(states_are_named_in_any_case),
                T(a_job_is_waited_for_to_its_end),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
