/* agent/engine_restart_test.c: the agent, its machine or the server goes and comes back.
 *
 * One by one, and in a long random run with kills in the middle, against a model that knows what
 * must never happen.
 */
#include "agent/engine_testlib.h"
#include "base/clock.h"
#include "base/str.h"
#include <signal.h>

/* R: C35 C10 */
static void exits_while_the_server_is_away_are_in_the_next_hello(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        engine_disconnected(r.e, r.now);
        runtime_says(&r, RUNTIME_EXITED, "a", 2, 4, 0);
        assert_int_equal(r.sent.len, 0);
        engine_connected(r.e, r.now);
        drain(&r);
        assert_int_equal(r.sent.len, 1);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__crashed);
        assert_int_equal(r.sent.at[0]->hello->applied->seq, 2);
        /* what changes before the Welcome is not lost either */
        clear(&r);
        change(&r, 3, "a", 3, RUN, "r1"); /* no Welcome yet: ignored */
        assert_int_equal(r.log.len, 0);
        welcome(&r, "c1", true);
        rig_fini(&r);
}

/* R: A5 */
static void restart_adopts_what_runs(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        bring_up(&r, 3, "b", 3, "r1");
        runtime_says(&r, RUNTIME_EXITED, "b", 3, 0, 0);
        rig_restart(&r);
        engine_connected(r.e, r.now);
        drain(&r);
        assert_int_equal(r.sent.at[0]->hello->n_units, 2);
        assert_string_equal(r.sent.at[0]->hello->cluster_id, "c1");
        assert_int_equal(r.sent.at[0]->hello->applied->seq, 3);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__adopted);
        assert_status(&r, "b", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__exited);
        welcome(&r, "c1", true);
        clear(&r);
        plan_begin(&p, 1, 3, true, true);
        plan_add(&p, "a", 2, RUN, "r1");
        plan_add(&p, "b", 3, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(r.log.len, 0);
        rig_fini(&r);
}

/* R: A5 C34 */
static void a_start_that_left_no_trace_is_made_up_for_when_a_plan_confirms_it(void **state)
{
        struct rig r = rig_new();

        (void)state;
        r.budget = 3; /* PERSIST unit, PERSIST agent, and dead before START */
        change(&r, 2, "a", 2, RUN, "r1");
        assert_true(r.dead);
        assert_non_null(file_of(&r, "a"));
        assert_null(copy_of(&r, "a"));
        rig_restart(&r);
        rig_join(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0); /* nothing before the plan's word */
        change(&r, 2, "a", 2, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        /* once it did start, the same token never starts it again, over any number of restarts */
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        runtime_says(&r, RUNTIME_EXITED, "a", 2, 1, 0);
        rig_restart(&r);
        rig_join(&r);
        change(&r, 3, "a", 2, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
        rig_fini(&r);
}

/* R: A5 */
static void removals_and_stops_go_on_after_a_restart(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        bring_up(&r, 3, "b", 3, "r1");
        change(&r, 4, "a", 2, DEL, NULL);
        change(&r, 5, "b", 3, STOP, "r1");
        rig_restart(&r);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_STOP, "b"), 1);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, 0, 0);
        runtime_says(&r, RUNTIME_REMOVED, "a", 0, -1, 0);
        assert_null(file_of(&r, "a"));
        rig_fini(&r);
}

/* R: A5 C34 */
static void a_replacement_half_done_at_a_restart_waits_for_the_plan(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 3, RUN, "r2");
        rig_restart(&r);
        /* the old one runs on until somebody wants the new one */
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 0);
        rig_join(&r);
        change(&r, 3, "a", 3, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, 0, 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        rig_fini(&r);
}

/* R: C27 */
static void a_copy_without_a_record_is_reported(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        do_forget(&r, "a");
        rig_restart(&r);
        rig_join(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__adopted);
        assert_int_equal(status_of(&r, "a")->token->seq, 2);
        empty_plan(&r, 3);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL), 0);
        change(&r, 4, "a", 2, RUN, "r1"); /* the plan brings its definition back */
        assert_int_equal(ordered(&r, ORDER_STOP, NULL) + ordered(&r, ORDER_START, NULL), 0);
        assert_non_null(file_of(&r, "a"));
        rig_fini(&r);
}

/* It ended before any plan brought its definition back: how it ended is known after a restart all
 * the same. Else it would be Pending for ever, since it was launched once.  R: C27 C26 */
static void a_copy_without_a_record_that_ended_is_not_pending_after_a_restart(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        do_forget(&r, "a");
        rig_restart(&r);
        runtime_says(&r, RUNTIME_EXITED, "a", 2, 1, 0);
        rig_restart(&r);
        rig_join(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__crashed);
        change(&r, 3, "a", 2, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__crashed);
        rig_fini(&r);
}

/* R: A5 */
static void a_machine_that_restarted_reports_its_units_stopped(void **state)
{
        struct rig r = rig_new();
        struct runtime_event gone = { .kind = RUNTIME_FOUND_GONE,
                                      .workload_id = "a",
                                      .token = { 1, 2 },
                                      .revision_id = "r1",
                                      .message = "reboot" };

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        engine_destroy(r.e);
        r.e = new_engine(0, 0);
        for (size_t i = 0; i < r.files.len; i++)
                if (r.files.at[i].id[0])
                        engine_load_unit(r.e, r.files.at[i].data, r.files.at[i].len, NULL);
        engine_event(r.e, &gone, r.now);
        engine_booted(r.e, r.now);
        rig_join(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__killed);
        change(&r, 3, "a", 2, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        rig_fini(&r);
}

/* R: A5 C34 W3, D5: the runtime's own notes are not synced, so after a power loss a launch without
 * a trace may have run all the same. */
static void a_start_is_not_made_up_for_after_a_power_loss(void **state)
{
        struct rig r = rig_new();

        (void)state;
        change(&r, 2, "a", 2, RUN, "r1");
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        change(&r, 3, "b", 3, RUN, "r1"); /* ordered, and no answer yet */
        rig_power_loss(&r);
        rig_join(&r);
        for (int i = 0; i < 2; i++) { /* the next agents say the same */
                static const char *const ids[] = { "a", "b" };

                for (size_t n = 0; n < ARRAY_LEN(ids); n++) {
                        assert_status(&r, ids[n], PB__ACTUAL_STATE__E__Stopped,
                                      PB__REASON__E__killed);
                        assert_null(status_of(&r, ids[n])->exit_code);
                        assert_null(status_of(&r, ids[n])->signal);
                        change(&r, 4, ids[n], 2 + n, RUN, "r1");
                }
                assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
                rig_restart(&r);
                rig_join(&r);
        }
        change(&r, 5, "a", 5, RUN, "r1"); /* the server's decision, with a token of its own */
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        rig_fini(&r);
}

/* R: A12 A5 W3, B5: a restart is an event, with a token of its own. */
static void what_was_stopped_with_its_agent_says_so_and_waits_for_a_larger_token(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        bring_up(&r, 3, "b", 3, "r1");
        bring_up(&r, 4, "c", 4, "r1");
        runtime_says(&r, RUNTIME_EXITED, "b", 3, 0, 0);
        clear(&r);
        engine_suspend(r.e, r.now);
        drain(&r);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_STOP, "b"), 0);
        /* remembered before it is stopped */
        assert_int_equal(r.log.at[0].kind, ORDER_PERSIST_UNIT);
        assert_false(engine_is_idle(r.e));
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, -1, SIGTERM);
        assert_false(engine_is_idle(r.e));
        assert_int_equal(r.sent.len, 0);       /* not a failure, so nobody is told */
        copy_of(&r, "c")->phase = COPY_EXITED; /* the agent did not wait for its end */
        rig_restart(&r);
        rig_join(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__agent_stopped);
        assert_status(&r, "b", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__exited);
        assert_status(&r, "c", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__agent_stopped);
        assert_int_equal(status_of(&r, "a")->signal->value, SIGTERM);
        change(&r, 5, "a", 2, RUN, "r1");
        change(&r, 5, "b", 3, RUN, "r1");
        change(&r, 5, "c", 4, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        change(&r, 6, "a", 6, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        rig_fini(&r);
}

/* R: C34 */
static void waiting_starts_are_held_when_the_server_stays_away(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 2, "old", 2, "r1");
        plan_begin(&p, 1, 3, true, true);
        plan_add(&p, "old", 2, DEL, NULL);
        plan_add(&p, "new", 3, RUN, "r1");
        say(&r, &p.m);
        engine_disconnected(r.e, r.now);
        assert_int_equal(engine_next_ms(r.e), r.now + ENGINE_AWAY_MS);
        engine_tick(r.e, r.now += ENGINE_AWAY_MS);
        drain(&r);
        runtime_says(&r, RUNTIME_STOPPED, "old", 2, 0, 0);
        runtime_says(&r, RUNTIME_REMOVED, "old", 0, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        rig_join(&r);
        plan_begin(&p, 1, 3, true, true);
        plan_add(&p, "new", 3, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(ordered(&r, ORDER_START, "new"), 1);
        rig_fini(&r);
}

/* R: C34 C24 */
static void a_new_stream_asks_its_own_plan_before_it_starts_anything(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 3, RUN, "r2"); /* being replaced when the stream breaks */
        engine_disconnected(r.e, r.now);
        engine_tick(r.e, r.now += ENGINE_AWAY_MS);
        drain(&r);
        rig_join(&r);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, 0, 0);
        empty_plan(&r, 4); /* the server has moved it away meanwhile */
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        change(&r, 5, "a", 3, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        rig_fini(&r);
}

/* ---- the random run ---- */

#define IDS 6
struct oracle {
        uint64_t seq;
        uint64_t token[IDS]; /* what the server wants last; 0: nothing was ever said */
        int rev[IDS];
        Pb__DesiredState__E desired[IDS];
        uint64_t started[IDS]; /* the largest token ever started */
};
static const char *const ids[IDS] = { "u0", "u1", "u2", "u3", "u4", "u5" };
static const char *const revs[] = { "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9" };

/* Looks at the orders that were just carried out. */
static void check_starts(struct rig *r, struct oracle *o, bool gated)
{
        for (size_t i = 0; i < r->log.len; i++) {
                const struct engine_order *x = &r->log.at[i];
                size_t k;

                if (x->kind != ORDER_START)
                        continue;
                assert_false(gated);
                for (k = 0; !str_eq(ids[k], x->workload_id); k++)
                        ;
                assert_true(x->token.seq >= o->started[k]); /* tokens never go back */
                o->started[k] = x->token.seq;
        }
        clear(r);
}

static bool removal_unproved(struct rig *r, const bool *gates)
{
        for (size_t k = 0; k < IDS; k++)
                if (gates[k] && (copy_runs(r, ids[k])))
                        return true;
        return false;
}

static void whole_plan(struct rig *r, struct oracle *o, bool *gates)
{
        struct plan p;

        plan_begin(&p, 1, o->seq, true, true);
        for (size_t k = 0; k < IDS; k++)
                if (o->token[k]) {
                        plan_add(&p, ids[k], o->token[k], o->desired[k],
                                 o->desired[k] == DEL ? NULL : revs[o->rev[k]]);
                        if (gates && o->desired[k] == DEL && copy_runs(r, ids[k]))
                                gates[k] = true;
                }
        say(r, &p.m);
}

static void random_runtime_step(struct rig *r, struct rng *rng)
{
        size_t k = (size_t)rng_below(rng, IDS);
        struct copy *c = copy_of(r, ids[k]);

        if (c && c->phase == COPY_STARTING)
                runtime_says(r, rng_chance(rng, 200000) ? RUNTIME_START_FAILED : RUNTIME_STARTED,
                             ids[k], c->token.seq, -1, 0);
        else if (c && c->phase == COPY_UP && rng_chance(rng, 200000))
                runtime_says(r, RUNTIME_EXITED, ids[k], c->token.seq, (int)rng_below(rng, 3), 0);
        else if (c && c->phase == COPY_STOPPING)
                runtime_says(r, RUNTIME_STOPPED, ids[k], c->token.seq, -1, SIGTERM);
        else if (was_removing(r, ids[k]))
                runtime_says(r, RUNTIME_REMOVED, ids[k], 0, -1, 0);
}

static void random_wish(struct rig *r, struct oracle *o, struct rng *rng)
{
        size_t k = (size_t)rng_below(rng, IDS);
        uint64_t dice = rng_below(rng, 10);

        o->seq++;
        if (!o->token[k] || dice < 4) {
                o->token[k] = o->seq;
                o->desired[k] = RUN;
                o->rev[k] = (int)rng_below(rng, 10);
        } else if (dice < 6 && o->desired[k] != DEL)
                o->desired[k] = STOP;
        else if (dice < 8)
                o->desired[k] = DEL;
        change(r, o->seq, ids[k], o->token[k], o->desired[k],
               o->desired[k] == DEL ? NULL : revs[o->rev[k]]);
        if (rng_chance(rng, 100000)) /* said twice */
                change(r, o->seq, ids[k], o->token[k], o->desired[k],
                       o->desired[k] == DEL ? NULL : revs[o->rev[k]]);
        if (rng_chance(rng, 100000) && o->seq > 3) /* from the past */
                change(r, o->seq - 2, ids[k], o->token[k] + 100, DEL, NULL);
}

static void bring_to_rest(struct rig *r, struct oracle *o, struct rng *rng)
{
        struct engine_unit_view v;

        if (r->dead)
                rig_restart(r);
        r->budget = 0;
        rig_join(r);
        for (size_t k = 0; k < IDS; k++)
                if (o->token[k] && o->desired[k] == RUN)
                        /* the server restarts what ended, with new tokens */
                        o->token[k] = ++o->seq;
        whole_plan(r, o, NULL);
        for (int i = 0; i < 2000; i++) {
                struct copy *c = copy_of(r, ids[i % IDS]);

                if (!c || c->phase != COPY_UP)
                        random_runtime_step(r, rng);
                else if (engine_unit(r->e, ids[i % IDS], &v) && v.token.seq != c->token.seq &&
                         c->phase == COPY_STOPPING)
                        runtime_says(r, RUNTIME_STOPPED, ids[i % IDS], c->token.seq, -1, SIGTERM);
        }
        for (size_t k = 0; k < IDS; k++) {
                bool known = engine_unit(r->e, ids[k], &v);

                if (!o->token[k] || o->desired[k] == DEL)
                        assert_false(known);
                else if (o->desired[k] == STOP)
                        assert_true(known && !v.in_runtime);
                else /* it was started with this token, and runs or has ended */
                        assert_true(known && v.token.seq == o->token[k] &&
                                    v.state != PB__ACTUAL_STATE__E__Pending);
        }
}

/* R: A5 C7 C24 C34 */
static void random_life_never_breaks_a_rule(void **state)
{
        (void)state;
        for (uint64_t seed = 1; seed <= 300; seed++) {
                struct rig r = rig_new();
                struct oracle o = { .seq = 10 };
                struct rng rng;
                bool gates[IDS] = { 0 };

                rng_seed(&rng, seed);
                clear(&r);
                for (int step = 0; step < 200; step++) {
                        uint64_t dice = rng_below(&rng, 100);
                        bool gated;

                        r.now += (int64_t)rng_below(&rng, 3000);
                        if (rng_chance(&rng, 20000))
                                /* killed after a few more orders */
                                r.budget = 1 + (size_t)rng_below(&rng, 4);
                        if (dice < 30)
                                random_wish(&r, &o, &rng);
                        else if (dice < 80)
                                random_runtime_step(&r, &rng);
                        else if (dice < 85) {
                                engine_disconnected(r.e, r.now);
                                drain(&r);
                        } else if (dice < 92) {
                                rig_join(&r);
                                whole_plan(&r, &o, gates);
                        } else if (dice < 98) {
                                engine_tick(r.e, r.now);
                                drain(&r);
                        } else
                                r.dead = true;
                        gated = !r.dead && removal_unproved(&r, gates);
                        check_starts(&r, &o, gated);
                        for (size_t k = 0; k < IDS; k++)
                                gates[k] = gates[k] && copy_runs(&r, ids[k]) && o.desired[k] == DEL;
                        if (r.dead) {
                                memset(gates, 0, sizeof(gates));
                                rig_restart(&r);
                                check_starts(&r, &o, false);
                        }
                }
                bring_to_rest(&r, &o, &rng);
                rig_fini(&r);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(exits_while_the_server_is_away_are_in_the_next_hello),
                cmocka_unit_test(restart_adopts_what_runs),
                cmocka_unit_test(a_start_that_left_no_trace_is_made_up_for_when_a_plan_confirms_it),
                cmocka_unit_test(removals_and_stops_go_on_after_a_restart),
                cmocka_unit_test(a_replacement_half_done_at_a_restart_waits_for_the_plan),
                cmocka_unit_test(a_copy_without_a_record_is_reported),
                cmocka_unit_test(a_copy_without_a_record_that_ended_is_not_pending_after_a_restart),
                cmocka_unit_test(a_machine_that_restarted_reports_its_units_stopped),
                cmocka_unit_test(a_start_is_not_made_up_for_after_a_power_loss),
                cmocka_unit_test(
                    what_was_stopped_with_its_agent_says_so_and_waits_for_a_larger_token),
                cmocka_unit_test(waiting_starts_are_held_when_the_server_stays_away),
                cmocka_unit_test(a_new_stream_asks_its_own_plan_before_it_starts_anything),
                cmocka_unit_test(random_life_never_breaks_a_rule),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
