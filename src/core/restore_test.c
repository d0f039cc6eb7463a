/* core/restore_test.c: a restored store and agents that have seen more than it knows: nothing that
 * they run is stopped for that, and their newer copies become records. */
#include "core/core_testlib.h"
#include "model/validate.h"

#define LOST 900 /* a sequence that the lost state reached, and the backup had not */

/* Two nodes, and "a" runs on n1 with the token (1, seq). */
static void begin(struct rig *r, const struct core_options *opt)
{
        rig_init(r, opt);
        rig_hello(r, "n1", 4000, 4096, 10, NULL);
        rig_hello(r, "n2", 4000, 4096, 10, NULL);
        rig_wish(r, "n2", PB__NODE_WISH__E__cordoned);
        rig_apply(r, rig_workload(r, "a", 1000, 100));
        rig_runs(r, "a");
        rig_wish(r, "n2", PB__NODE_WISH__E__schedulable);
        assert_string_equal(rig_get(r, "a")->assigned_node, "n1");
        rig_mark(r);
}

/* The agent of that node comes back and says what it runs; it has seen the lost state. */
static uint64_t comes_back(struct rig *r, const char *node, Pb__UnitStatus *u)
{
        Pb__Hello *h = rig_hello_message(r, node, 4000, 4096, 10, NULL);
        h->cluster_id = ((Pb__ClusterInfo *)rig_ask(r, INPUT_CLUSTER, NULL)->msg)->cluster_id;
        h->applied = arena_new(&r->memory, Pb__Cursor);
        pb__cursor__init(h->applied);
        h->applied->epoch = 1;
        h->applied->seq = 2 * LOST;
        if (u)
                rig_hello_add(r, h, u);
        return rig_say_hello(r, h);
}

static Pb__UnitStatus *newer(struct rig *r, const char *id)
{
        Pb__UnitStatus *u = rig_unit(r, id, 1, LOST, PB__ACTUAL_STATE__E__Running);
        u->revision_id = "newer";
        return u;
}

static void describe(struct rig *r, const char *node, const char *id)
{
        struct err err = { 0 };
        Pb__Workload *w = rig_workload(r, id, 500, 200);
        Pb__Token token = PB__TOKEN__INIT;
        assert_int_equal(workload_normalise(&r->memory, w, &err), 0);
        w->revision_id = "newer";
        w->desired_state = PB__DESIRED_STATE__E__Running;
        token.epoch = 1;
        token.seq = LOST;
        w->token = &token;
        Pb__HeldUnit *held[] = { rig_held(r, node, w, true) };
        assert_int_equal(rig_sent_count(r, EFFECT_DESCRIBE), 1);
        rig_describe(r, node, 1, held);
}

static void assert_follows(struct rig *r, const char *id, const char *node)
{
        Pb__Workload *w = rig_get(r, id);
        assert_string_equal(w->assigned_node, node);
        assert_string_equal(w->revision_id, "newer");
        assert_int_equal(w->token->epoch, 1);
        assert_int_equal(w->token->seq, LOST);
        assert_int_equal(w->resources->memory_mb, 200);
        assert_phase(r, id, Running);
        assert_int_equal(rig_count(r, PB__EVENT_TYPE__E__WorkloadLaunched), 0);
}

/* R: A5 C34 */
static void the_epoch_grows_with_every_restore_and_agents_that_are_ahead_get_in(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, NULL);
        rig_restored(&r);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__StoreRestored), 1);
        uint64_t first = ((Pb__ClusterInfo *)rig_ask(&r, INPUT_CLUSTER, NULL)->msg)->epoch;
        assert_int_equal(first, r.now);
        rig_restored(&r); /* at the same millisecond */
        uint64_t second = ((Pb__ClusterInfo *)rig_ask(&r, INPUT_CLUSTER, NULL)->msg)->epoch;
        assert_true(second > first);
        comes_back(&r, "n1", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Running));
        assert_int_equal(rig_node(&r, "n1")->status, PB__NODE_STATUS__E__Ready);
        assert_phase(&r, "a", Running);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadLaunched), 0);
        Pb__Workload *changed = rig_workload(&r, "a", 1000, 150);
        rig_apply(&r, changed);
        /* beats whatever an agent has seen */
        assert_int_equal(rig_get(&r, "a")->token->epoch, second);
        rig_check_replay(&r);
        for (int i = 0; i < 70; i++) /* more than are told apart */
                rig_restored(&r);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* A record that cannot be loaded again would be a cluster lost. R: A5 */
static void a_restore_at_the_end_of_time_is_still_one(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, NULL);
        r.now = r.latest = INT64_C(253402300799999); /* the end of the year 9999 */
        rig_restored(&r);
        rig_restored(&r);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__StoreRestored), 2);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A5 C27 */
static void what_the_records_do_not_know_is_offered_and_never_removed(void **state)
{
        (void)state;
        struct rig r;
        struct core_options opt;
        core_options_default(&opt);
        opt.strangers = STRANGERS_REMOVE;
        begin(&r, &opt);
        rig_restored(&r);
        rig_mark(&r);
        comes_back(&r, "n2", newer(&r, "stranger"));
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__UnitUnknown), 1);
        assert_null(rig_sent(&r, "n2", "stranger"));
        assert_int_equal(rig_node(&r, "n2")->n_strangers, 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A5 C34 */
static void a_record_follows_the_newer_copy_on_its_node(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, NULL);
        rig_restored(&r);
        rig_mark(&r);
        comes_back(&r, "n1", newer(&r, "a"));
        describe(&r, "n1", "a");
        assert_follows(&r, "a", "n1");
        /* told to run what it runs */
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->token->seq, LOST);
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                         PB__DESIRED_STATE__E__Running);
        rig_check_replay(&r);
        rig_restart(&r);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A5 C34 */
static void a_wish_to_stop_from_before_the_backup_does_not_stop_what_was_started_since(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, NULL);
        rig_stop(&r, "a");
        rig_restored(&r);
        rig_mark(&r);
        comes_back(&r, "n1", newer(&r, "a"));
        describe(&r, "n1", "a");
        assert_follows(&r, "a", "n1");
        assert_int_equal(rig_get(&r, "a")->desired_state, PB__DESIRED_STATE__E__Running);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A5 C34 */
static void what_had_moved_is_found_where_it_runs_and_not_started_where_it_was(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, NULL);
        rig_restored(&r);
        rig_mark(&r);
        comes_back(&r, "n1", NULL); /* it has it no more; the other one was not heard yet */
        assert_null(rig_sent(&r, "n1", "a"));
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadLaunched), 0);
        comes_back(&r, "n2", newer(&r, "a"));
        describe(&r, "n2", "a");
        assert_follows(&r, "a", "n2");
        /* whatever is left there */
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        rig_is_gone(&r, "a", "n1");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A5 */
static void what_nobody_runs_is_started_when_all_were_heard_or_had_their_time(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, NULL);
        rig_restored(&r);
        rig_mark(&r);
        comes_back(&r, "n1", NULL);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadLaunched), 0);
        rig_advance_alive(&r, 91000);
        /* the list that is asked for then */
        rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 0, NULL);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadLaunched), 1);
        rig_restored(&r);
        rig_mark(&r);
        comes_back(&r, "n2", NULL);
        comes_back(&r, "n1", NULL);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C34 */
static void a_stop_or_a_deletion_that_is_asked_for_since_reaches_the_newer_copy(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, NULL);
        rig_restored(&r);
        uint64_t epoch = ((Pb__ClusterInfo *)rig_ask(&r, INPUT_CLUSTER, NULL)->msg)->epoch;
        rig_delete(&r, "a");
        rig_mark(&r);
        comes_back(&r, "n1", newer(&r, "a"));
        struct rig_effect *e = rig_sent(&r, "n1", "a");
        assert_int_equal(e->unit->desired_state, PB__DESIRED_STATE__E__Deleted);
        assert_int_equal(e->unit->token->epoch, epoch);
        rig_check_replay(&r);
        rig_is_gone(&r, "a", "n1");
        assert_null(rig_get(&r, "a"));
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(
                    the_epoch_grows_with_every_restore_and_agents_that_are_ahead_get_in),
                cmocka_unit_test(a_restore_at_the_end_of_time_is_still_one),
                cmocka_unit_test(what_the_records_do_not_know_is_offered_and_never_removed),
                cmocka_unit_test(a_record_follows_the_newer_copy_on_its_node),
                cmocka_unit_test(
                    a_wish_to_stop_from_before_the_backup_does_not_stop_what_was_started_since),
                cmocka_unit_test(
                    what_had_moved_is_found_where_it_runs_and_not_started_where_it_was),
                cmocka_unit_test(what_nobody_runs_is_started_when_all_were_heard_or_had_their_time),
                cmocka_unit_test(
                    a_stop_or_a_deletion_that_is_asked_for_since_reaches_the_newer_copy),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
