/* core/matrix_test.c: the reconciler's decision matrix, cell by cell (C21): what is wanted, what an
 * agent says, what is done about it. */
#include "core/core_testlib.h"

#define DESIRED(s) PB__DESIRED_STATE__E__##s
#define ACTUAL(s) PB__ACTUAL_STATE__E__##s
#define GONE ACTUAL(Missing)

struct cell {
        Pb__DesiredState__E desired;
        Pb__ActualState__E actual;
        bool told;          /* the agent is told again what is wanted */
        const char *events; /* that follow */
        const char *action; /* of the last of them; NULL: whatever it was */
};

static const struct cell cells[] = {
        { DESIRED(Running), ACTUAL(Missing), true, "WorkloadLaunched", "Apply" },
        /* ended without anybody having seen how: a reboot */
        { DESIRED(Running), ACTUAL(Stopped), true, "WorkloadLaunched", "Apply" },
        { DESIRED(Running), ACTUAL(Unknown), true, "WorkloadLaunched", "Apply" },
        /* after its backoff */
        { DESIRED(Running), ACTUAL(Failed), true, "RetryScheduled RetryTriggered WorkloadLaunched",
          "Recreate" },
        { DESIRED(Running), ACTUAL(Running), false, "", NULL },
        { DESIRED(Running), ACTUAL(Pending), false, "", NULL },
        { DESIRED(Stopped), ACTUAL(Running), true, "", NULL },
        { DESIRED(Stopped), ACTUAL(Pending), true, "", NULL },
        { DESIRED(Stopped), ACTUAL(Unknown), true, "", NULL },
        { DESIRED(Stopped), ACTUAL(Stopped), false, "WorkloadStopped", "ApplyStopped" },
        { DESIRED(Stopped), ACTUAL(Missing), false, "WorkloadStopped", "ApplyStopped" },
        { DESIRED(Deleted), ACTUAL(Running), true, "", NULL },
        { DESIRED(Deleted), ACTUAL(Stopped), true, "", NULL },
        { DESIRED(Deleted), ACTUAL(Failed), true, "", NULL },
        { DESIRED(Deleted), ACTUAL(Missing), false, "WorkloadDeleted", NULL },
};

static void report(struct rig *r, Pb__UnitStatus *u)
{
        rig_report_all(r, "n1", true, r->head, u->state == GONE ? 0 : 1, &u);
}

/* R: C21 C20 C22 C26 */
static void each_cell_of_the_matrix_leads_to_its_action_and_to_nothing_else(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
                const struct cell *x = &cells[i];
                struct rig r;
                rig_init(&r, NULL);
                rig_hello(&r, "n1", 4000, 4096, 10, NULL);
                rig_apply(&r, rig_workload(&r, "w", 1000, 100));
                rig_runs(&r, "w");
                rig_advance_alive(&r, 60000); /* long after its launch */
                Pb__UnitStatus *u = rig_unit_now(&r, "w", x->actual);
                if (x->desired == DESIRED(Stopped))
                        rig_stop(&r, "w");
                if (x->desired == DESIRED(Deleted))
                        rig_delete(&r, "w");
                rig_mark(&r);
                report(&r, u);
                if (x->actual == ACTUAL(Failed))
                        rig_advance_alive(&r, 5000);
                if (strcmp(rig_told(&r), x->events) != 0)
                        fail_msg("cell %zu: events \"%s\" instead of \"%s\"", i, rig_told(&r),
                                 x->events);
                struct rig_effect *sent = rig_sent(&r, "n1", "w");
                if ((sent != NULL) != x->told || (sent && sent->unit->desired_state != x->desired))
                        fail_msg("cell %zu: the agent is %s", i, sent ? "told" : "not told");
                if (x->action)
                        assert_string_equal(rig_get(&r, "w")->metadata->last_action, x->action);
                /* At most one action per workload and grace: saying the same again at once changes
                 * nothing more. */
                size_t events = r.events.len;
                report(&r, u);
                if (r.events.len != events && x->desired == DESIRED(Running))
                        fail_msg("cell %zu: acted twice within a grace", i);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(
            each_cell_of_the_matrix_leads_to_its_action_and_to_nothing_else) };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
