/* core/preempt_test.c: priorities: who goes first, who makes room for whom, and who is left alone;
 * and changes that need no new start. */
#include "core/core_testlib.h"
#include "core/state.h"

static Pb__Workload *of_priority(struct rig *r, const char *id, int64_t cpu, int priority)
{
        Pb__Workload *w = rig_workload(r, id, cpu, 64);
        w->priority = priority;
        return w;
}

static const char *node_of(struct rig *r, const char *id)
{
        return rig_get(r, id)->assigned_node;
}

static size_t preemptions(struct rig *r)
{
        struct core_stats s;
        core_stats(r->core, &s);
        return s.preemptions;
}

/* R: C38 */
static void the_highest_priority_that_waits_goes_first(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_apply(&r, of_priority(&r, "low", 1000, -5));
        rig_apply(&r, of_priority(&r, "middle", 1000, 0));
        rig_apply(&r, of_priority(&r, "high", 1000, 7));
        rig_apply(&r, of_priority(&r, "higher", 1000, 8));
        rig_hello(&r, "n1", 2000, 4096, 10, NULL);
        assert_string_equal(node_of(&r, "higher"), "n1");
        assert_string_equal(node_of(&r, "high"), "n1");
        assert_phase(&r, "middle", Pending);
        assert_phase(&r, "low", Pending);
        rig_fini(&r);
}

/* It waits for its own node, and could go nowhere else.  R: C38 C34 */
static void nobody_makes_room_for_what_is_pinned_elsewhere(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 2000, 4096, 10, NULL);
        Pb__Workload *w = of_priority(&r, "pinned", 1000, 10);
        w->exclusive = PB__EXCLUSIVE__E__pinned;
        rig_apply(&r, w);
        rig_runs(&r, "pinned");
        rig_hello(&r, "n2", 1000, 4096, 10, NULL);
        rig_hello(&r, "n3", 1000, 4096, 10, NULL);
        rig_apply(&r, of_priority(&r, "low", 1000, 0));
        rig_apply(&r, of_priority(&r, "lower", 1000, -1));
        rig_runs(&r, "low");
        rig_runs(&r, "lower");
        rig_gone(&r, "n1");
        rig_advance_alive(&r, 600000);
        /* fits nowhere; but now it is looked who could make room for whom */
        rig_apply(&r, of_priority(&r, "huge", 9000, 20));
        rig_advance_alive(&r, 600000);
        assert_string_equal(node_of(&r, "pinned"), "n1");
        assert_int_equal(preemptions(&r), 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C38 A8 */
static void lower_ones_make_room_and_both_sides_say_so(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 2000, 4096, 10, NULL);
        rig_apply(&r, of_priority(&r, "a", 1000, 0));
        rig_apply(&r, of_priority(&r, "b", 1000, 1));
        rig_runs(&r, "a");
        rig_runs(&r, "b");
        rig_mark(&r);
        rig_apply(&r, of_priority(&r, "urgent", 1000, 10));
        assert_phase(&r, "urgent", Pending); /* the copy of a may still run */
        Pb__Event *moved = rig_last(&r, PB__EVENT_TYPE__E__Rescheduled);
        assert_string_equal(moved->workload_id, "a");
        assert_int_equal(moved->reason, PB__REASON__E__preempted);
        assert_non_null(strstr(moved->message, "made room for urgent (priority 10"));
        assert_non_null(
            strstr(rig_explain(&r, "a")->summary, "made room for a higher priority on n1"));
        assert_non_null(strstr(rig_explain(&r, "urgent")->next, "placed on n1 as soon as"));
        rig_apply(&r, rig_workload(&r, "thief", 500, 64));
        rig_is_gone(&r, "a", "n1");
        assert_string_equal(node_of(&r, "urgent"), "n1");
        assert_phase(&r, "thief", Pending); /* the room was kept */
        assert_string_equal(node_of(&r, "b"), "n1");
        assert_int_equal(preemptions(&r), 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C38 */
static void the_room_is_not_given_away_piece_by_piece(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 2000, 4096, 10, NULL);
        rig_apply(&r, of_priority(&r, "a", 1000, 0));
        rig_apply(&r, of_priority(&r, "b", 1000, 0));
        rig_apply(&r, of_priority(&r, "urgent", 2000, 10));
        assert_int_equal(preemptions(&r), 2);
        rig_is_gone(&r, "a", "n1");
        for (int i = 0; i < 5; i++)
                rig_apply(&r, rig_workload(&r, arena_printf(&r.memory, "thief%d", i), 200, 64));
        rig_advance_alive(&r, 20000);
        assert_int_equal(preemptions(&r), 2); /* nobody else has to go meanwhile */
        rig_is_gone(&r, "b", "n1");
        assert_string_equal(node_of(&r, "urgent"), "n1");
        rig_fini(&r);
}

/* R: C38 */
static void the_fewest_and_lowest_leave_and_nobody_in_vain(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_hello(&r, "n2", 4000, 4096, 10, NULL);
        rig_apply(&r, of_priority(&r, "n1-big", 4000, 3));
        rig_apply(&r, of_priority(&r, "n2-two", 2000, 1));
        rig_apply(&r, of_priority(&r, "n2-one", 1000, 1));
        rig_apply(&r, of_priority(&r, "n2-top", 1000, 2));
        rig_mark(&r);
        rig_apply(&r, of_priority(&r, "urgent", 2000, 5));
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 1);
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__Rescheduled)->workload_id, "n2-two");
        rig_mark(&r);
        /* no node is so large: nobody leaves for it */
        rig_apply(&r, of_priority(&r, "too-large", 5000, 9));
        Pb__Workload *w = of_priority(&r, "elsewhere", 1000, 9);
        rig_select(&r, w, "zone", "none");
        rig_apply(&r, w);
        rig_advance_alive(&r, 60000);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 0);
        rig_fini(&r);
}

/* R: C38 */
static void equals_and_higher_ones_are_never_moved(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 1000, 4096, 10, NULL);
        rig_apply(&r, of_priority(&r, "a", 1000, 5));
        rig_mark(&r);
        rig_apply(&r, of_priority(&r, "b", 1000, 5));
        rig_apply(&r, of_priority(&r, "c", 1000, 4));
        rig_advance_alive(&r, 120000);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__Rescheduled), 0);
        assert_string_equal(node_of(&r, "a"), "n1");
        rig_fini(&r);
}

/* R: C38 A6 */
static void preemption_has_a_budget_and_a_grace(void **state)
{
        (void)state;
        struct core_options opt;
        struct rig r;
        core_options_default(&opt);
        opt.preempt_per_minute = 2;
        rig_init(&r, &opt);
        rig_hello(&r, "n1", 8000, 8192, 10, NULL);
        for (int i = 0; i < 8; i++)
                rig_apply(&r, of_priority(&r, arena_printf(&r.memory, "low%d", i), 1000, 0));
        for (int i = 0; i < 6; i++)
                rig_apply(&r, of_priority(&r, arena_printf(&r.memory, "high%d", i), 1000, 1));
        assert_int_equal(preemptions(&r), 2);
        rig_advance_alive(&r, 55000);
        assert_int_equal(preemptions(&r), 2);
        rig_advance_alive(&r, 20000);
        assert_int_equal(preemptions(&r), 4);
        rig_fini(&r);

        core_options_default(&opt);
        opt.preempt_per_minute = 0;
        rig_init(&r, &opt);
        rig_hello(&r, "n1", 1000, 8192, 10, NULL);
        rig_apply(&r, of_priority(&r, "low", 1000, 0));
        rig_apply(&r, of_priority(&r, "high", 1000, 1));
        rig_advance_alive(&r, 120000);
        assert_int_equal(preemptions(&r), 0);
        rig_fini(&r);
}

/* It never got its place, and nobody behind it either. R: C38 (E6) */
static void who_needs_more_victims_than_a_minute_has_starves_nobody(void **state)
{
        (void)state;
        struct core_options opt;
        struct rig r;
        core_options_default(&opt);
        opt.preempt_per_minute = 2;
        rig_init(&r, &opt);
        rig_hello(&r, "n1", 3000, 8192, 10, NULL);
        rig_hello(&r, "n2", 1000, 8192, 10, NULL);
        for (int i = 0; i < 4; i++)
                rig_apply(&r, of_priority(&r, arena_printf(&r.memory, "low%d", i), 1000, 0));
        rig_apply(&r, of_priority(&r, "big", 3000, 2)); /* three must leave for it */
        rig_apply(&r, of_priority(&r, "small", 1000, 1));
        assert_int_equal(preemptions(&r), 3);
        rig_advance_alive(&r, 55000); /* three are one and a half minutes' worth */
        assert_int_equal(preemptions(&r), 3);
        rig_advance_alive(&r, 120000);
        assert_int_equal(preemptions(&r), 4);
        rig_fini(&r);
}

/* R: C38 */
static void one_that_had_to_move_is_left_alone_for_a_while(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 1000, 4096, 10, NULL);
        rig_apply(&r, of_priority(&r, "low", 1000, 0));
        rig_apply(&r, of_priority(&r, "high", 1000, 1));
        rig_is_gone(&r, "low", "n1");
        assert_string_equal(node_of(&r, "high"), "n1");
        rig_hello(&r, "n2", 1000, 4096, 10, NULL);
        assert_string_equal(node_of(&r, "low"), "n2");
        rig_runs(&r, "high");
        rig_runs(&r, "low");
        rig_apply(&r, of_priority(&r, "high2", 1000, 1));
        rig_advance_alive(&r, 200000);
        assert_string_equal(node_of(&r, "low"), "n2");
        rig_check_replay(&r);
        rig_advance_alive(&r, 200000);
        rig_is_gone(&r, "low", "n2");
        assert_string_equal(node_of(&r, "high2"), "n2");
        rig_fini(&r);
}

/* A restart forgets for whom the room was kept; nobody has to move a second time.  R: C38 A5 */
static void a_restart_moves_nobody_again(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 1000, 4096, 10, NULL);
        rig_hello(&r, "n2", 1000, 4096, 10, NULL);
        rig_apply(&r, of_priority(&r, "a", 1000, 0));
        rig_apply(&r, of_priority(&r, "b", 1000, 0));
        rig_apply(&r, of_priority(&r, "high", 1000, 1));
        assert_int_equal(preemptions(&r), 1);
        rig_restart(&r);
        Pb__Hello *h = rig_hello_message(&r, "n1", 1000, 4096, 10, NULL);
        /* still stopping */
        rig_hello_add(&r, h, rig_unit(&r, "a", 1, 1, PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        h = rig_hello_message(&r, "n2", 1000, 4096, 10, NULL);
        rig_hello_add(&r, h, rig_unit_now(&r, "b", PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        rig_advance_alive(&r, 10000);
        assert_int_equal(preemptions(&r), 0);
        rig_is_gone(&r, "a", "n1");
        assert_string_equal(node_of(&r, "high"), "n1");
        rig_fini(&r);
}

static Pb__Workload *with_port(struct rig *r, Pb__Workload *w, int port)
{
        Pb__Port *p = arena_new(&r->memory, Pb__Port),
                 **ports = arena_new_n(&r->memory, Pb__Port *, w->spec->n_ports + 1);
        pb__port__init(p);
        p->host_port = p->container_port = port;
        for (size_t i = 0; i < w->spec->n_ports; i++)
                ports[i] = w->spec->ports[i];
        ports[w->spec->n_ports++] = p;
        w->spec->ports = ports;
        return w;
}

/* R: C38 */
static void host_ports_can_be_taken_over_too(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 8000, 8192, 10, NULL);
        rig_apply(&r, with_port(&r, of_priority(&r, "low", 100, 0), 80));
        rig_apply(&r, with_port(&r, of_priority(&r, "high", 100, 1), 80));
        assert_int_equal(preemptions(&r), 1);
        rig_is_gone(&r, "low", "n1");
        assert_string_equal(node_of(&r, "high"), "n1");
        rig_fini(&r);
}

/* R: C38 */
static void ports_are_kept_like_room_until_the_last_of_them_is_free(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 8000, 8192, 10, NULL);
        rig_apply(&r, with_port(&r, of_priority(&r, "a", 100, 0), 80));
        rig_apply(&r, with_port(&r, of_priority(&r, "b", 100, 1), 443));
        rig_apply(&r, with_port(&r, with_port(&r, of_priority(&r, "high", 100, 2), 80), 443));
        assert_int_equal(preemptions(&r), 2);
        rig_is_gone(&r, "a", "n1");
        /* or it would have its port again before the other one is free, and so on for ever */
        assert_phase(&r, "a", Pending);
        rig_apply(&r, with_port(&r, of_priority(&r, "thief", 100, 0), 80));
        rig_apply(&r, with_port(&r, of_priority(&r, "other", 100, 0), 22));
        assert_phase(&r, "thief", Pending);
        assert_string_equal(node_of(&r, "other"), "n1");
        rig_is_gone(&r, "b", "n1");
        assert_string_equal(node_of(&r, "high"), "n1");
        /* nothing is kept any more */
        rig_apply(&r, with_port(&r, of_priority(&r, "later", 100, 0), 8080));
        assert_string_equal(node_of(&r, "later"), "n1");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C38 A7 */
static void those_for_whom_nobody_can_make_room_do_not_stand_in_the_way(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 1000, 4096, 10, NULL);
        rig_apply(&r, of_priority(&r, "low", 1000, 0));
        for (int i = 0; i < 20; i++) /* each of a class of its own, and too large for any node */
                rig_apply(&r, of_priority(&r, arena_printf(&r.memory, "large%d", i), 5000 + i, 9));
        rig_apply(&r, of_priority(&r, "urgent", 1000, 5));
        rig_advance_alive(&r, 60000);
        assert_int_equal(preemptions(&r), 1);
        rig_is_gone(&r, "low", "n1");
        assert_string_equal(node_of(&r, "urgent"), "n1");
        rig_fini(&r);
}

/* R: C38 */
static void one_that_has_finished_can_take_a_place_on_the_same_node_again(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 1000, 4096, 10, NULL);
        Pb__Workload *job = of_priority(&r, "job", 1000, 5);
        job->restart = PB__RESTART__E__on_failure;
        rig_apply(&r, job);
        rig_runs(&r, "job");
        rig_exits(&r, "job", 0);
        rig_apply(&r, of_priority(&r, "low", 1000, 0));
        assert_string_equal(node_of(&r, "low"), "n1");
        rig_retry(&r, "job");
        assert_int_equal(preemptions(&r), 1);
        rig_is_gone(&r, "low", "n1");
        assert_phase(&r, "job", Scheduled);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* Whoever waits for something else when there is nobody below it: they may come later.  R: C38 */
static void lower_ones_that_come_later_make_room_too(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 2000, 4096, 10, "zone=a");
        Pb__Workload *w = of_priority(&r, "urgent", 1500, 5), *db = of_priority(&r, "db", 400, 5);
        Pb__Affinity near = PB__AFFINITY__INIT, *all[] = { &near };
        Pb__Affinity__MatchEntry entry = PB__AFFINITY__MATCH_ENTRY__INIT, *match[] = { &entry };
        entry.key = "app";
        entry.value = "db";
        near.match = match;
        near.n_match = 1;
        w->affinity = all;
        w->n_affinity = 1;
        rig_apply(&r, w);
        assert_phase(&r, "urgent", Pending);
        rig_apply(&r, of_priority(&r, "low", 1500, 0));
        rig_label(&r, db, "app", "db");
        rig_apply(&r, db);
        assert_string_equal(node_of(&r, "db"), "n1");
        rig_advance_alive(&r, 20000);
        assert_int_equal(preemptions(&r), 1);
        rig_is_gone(&r, "low", "n1");
        assert_string_equal(node_of(&r, "urgent"), "n1");
        rig_fini(&r);
}

/* R: C38 A5 */
static void one_that_had_to_move_may_take_a_place_after_its_grace_and_a_restart(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 1000, 4096, 10, "zone=a");
        rig_apply(&r, of_priority(&r, "middle", 1000, 1));
        rig_hello(&r, "n2", 1000, 4096, 10, "zone=b");
        rig_apply(&r, of_priority(&r, "low", 1000, 0));
        Pb__Workload *w = of_priority(&r, "high", 1000, 2);
        rig_select(&r, w, "zone", "a");
        rig_apply(&r, w);
        rig_is_gone(&r, "middle", "n1");
        assert_string_equal(node_of(&r, "high"), "n1");
        rig_restart(&r);
        Pb__Hello *h = rig_hello_message(&r, "n1", 1000, 4096, 10, "zone=a");
        rig_hello_add(&r, h, rig_unit_now(&r, "high", PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        h = rig_hello_message(&r, "n2", 1000, 4096, 10, "zone=b");
        rig_hello_add(&r, h, rig_unit_now(&r, "low", PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        rig_advance_alive(&r, 200000);
        assert_int_equal(preemptions(&r), 0);
        rig_advance_alive(&r, 200000);
        assert_int_equal(preemptions(&r), 1);
        rig_is_gone(&r, "low", "n2");
        assert_string_equal(node_of(&r, "middle"), "n2");
        rig_fini(&r);
}

/* ---- changes that need no new start ---- */

/* R: C7 C17 */
static void labels_change_without_a_restart_and_counters_follow(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, "zone=a");
        rig_hello(&r, "n2", 4000, 4096, 10, "zone=b");
        Pb__Workload *w = rig_workload(&r, "w", 100, 64);
        rig_apply(&r, w);
        rig_runs(&r, "w");
        Pb__Workload *lone = rig_workload(&r, "lone", 100, 64);
        lone->affinity = arena_new_n(&r.memory, Pb__Affinity *, 1);
        lone->affinity[0] = arena_new(&r.memory, Pb__Affinity);
        pb__affinity__init(lone->affinity[0]);
        Pb__Affinity__MatchEntry entry = PB__AFFINITY__MATCH_ENTRY__INIT, *match[] = { &entry };
        entry.key = "app";
        entry.value = "db";
        lone->affinity[0]->match = match;
        lone->affinity[0]->n_match = 1;
        lone->n_affinity = 1;
        rig_apply(&r, lone);
        assert_phase(&r, "lone", Pending);
        char *revision = rig_get(&r, "w")->revision_id;
        rig_mark(&r);
        rig_label(&r, w, "app", "db");
        rig_select(&r, w, "zone", "b"); /* it is in a, and stays there */
        w->priority = 7;
        rig_apply(&r, w);
        assert_non_null(rig_last(&r, PB__EVENT_TYPE__E__WorkloadRelabelled));
        assert_null(rig_sent(&r, "n1", "w"));
        assert_phase(&r, "w", Running);
        assert_string_equal(rig_get(&r, "w")->revision_id, revision);
        assert_int_equal(rig_get(&r, "w")->priority, 7);
        assert_string_equal(node_of(&r, "lone"), "n1");
        assert_non_null(strstr(rig_explain(&r, "w")->summary, "it stays there although"));
        rig_mark(&r);
        rig_apply(&r, w);
        assert_told(&r, ""); /* the same again */
        rig_check_replay(&r);
        w->resources->cpu = 200; /* this needs a new start, and then the place has to be right */
        rig_apply(&r, w);
        assert_non_null(rig_last(&r, PB__EVENT_TYPE__E__WorkloadApplied));
        assert_string_equal(node_of(&r, "w"), "n2");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C7 */
static void one_that_waits_is_placed_by_its_new_constraints(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, "zone=a");
        Pb__Workload *w = rig_workload(&r, "w", 100, 64);
        rig_select(&r, w, "zone", "b");
        rig_apply(&r, w);
        assert_phase(&r, "w", Pending);
        w->n_node_selector = 0;
        rig_apply(&r, w);
        assert_string_equal(node_of(&r, "w"), "n1");
        w->revision_id = "mine"; /* a revision of its own asks for a new start */
        rig_mark(&r);
        rig_apply(&r, w);
        assert_non_null(rig_last(&r, PB__EVENT_TYPE__E__WorkloadLaunched));
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_highest_priority_that_waits_goes_first),
                cmocka_unit_test(nobody_makes_room_for_what_is_pinned_elsewhere),
                cmocka_unit_test(lower_ones_make_room_and_both_sides_say_so),
                cmocka_unit_test(the_room_is_not_given_away_piece_by_piece),
                cmocka_unit_test(the_fewest_and_lowest_leave_and_nobody_in_vain),
                cmocka_unit_test(equals_and_higher_ones_are_never_moved),
                cmocka_unit_test(preemption_has_a_budget_and_a_grace),
                cmocka_unit_test(who_needs_more_victims_than_a_minute_has_starves_nobody),
                cmocka_unit_test(one_that_had_to_move_is_left_alone_for_a_while),
                cmocka_unit_test(a_restart_moves_nobody_again),
                cmocka_unit_test(host_ports_can_be_taken_over_too),
                cmocka_unit_test(ports_are_kept_like_room_until_the_last_of_them_is_free),
                cmocka_unit_test(those_for_whom_nobody_can_make_room_do_not_stand_in_the_way),
                cmocka_unit_test(one_that_has_finished_can_take_a_place_on_the_same_node_again),
                cmocka_unit_test(lower_ones_that_come_later_make_room_too),
                cmocka_unit_test(
                    one_that_had_to_move_may_take_a_place_after_its_grace_and_a_restart),
                cmocka_unit_test(labels_change_without_a_restart_and_counters_follow),
                cmocka_unit_test(one_that_waits_is_placed_by_its_new_constraints),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
