/* agent/engine_lease_test.c: exclusive units run only under their agent's lease (rule 12 of
 * engine.h). */
#include "agent/engine_testlib.h"
#include <signal.h>

static void plan_exclusive(struct rig *r, uint64_t seq, const char *id, uint64_t token,
                           Pb__DesiredState__E desired, Pb__Exclusive__E how)
{
        struct plan p;
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;

        plan_begin(&p, 1, seq, false, false);
        plan_add(&p, id, token, desired, "r1");
        w.id = (char *)(uintptr_t)id;
        w.type = PB__WORKLOAD_TYPE__E__process;
        w.revision_id = (char *)(uintptr_t) "r1";
        w.spec = &spec;
        w.stop_grace_seconds = 7;
        w.exclusive = how;
        plan_define(&p, 0, &w);
        say(r, &p.m);
}

/* The server's answer to a heartbeat of this age. */
static void renew(struct rig *r, int64_t clock_ms, int64_t lease_ms)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__HeartbeatAck ack = PB__HEARTBEAT_ACK__INIT;

        ack.next_ms = 1000;
        ack.clock_ms = clock_ms;
        ack.lease_ms = lease_ms;
        ack.stop_ms = 2000;
        m.heartbeat = &ack;
        say(r, &m);
}

static void tick_at(struct rig *r, int64_t now)
{
        r->now = now;
        engine_tick(r->e, now);
        drain(r);
}

static int64_t last_beat_clock(const struct rig *r)
{
        for (size_t i = r->sent.len; i-- > 0;)
                if (r->sent.at[i]->heartbeat)
                        return r->sent.at[i]->heartbeat->clock_ms;
        return 0;
}

/* R: C34 */
static void an_exclusive_unit_starts_only_under_a_lease(void **state)
{
        struct rig r = rig_new();

        (void)state;
        clear(&r);
        plan_exclusive(&r, 2, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
        assert_int_equal(ordered(&r, ORDER_START, "w"), 0);
        assert_int_equal(last_beat_clock(&r), r.now); /* it asks for one at once */
        renew(&r, r.now, 0);                          /* not by somebody who may not lead */
        renew(&r, r.now - 40000, 30000);              /* nor by an answer that comes too late */
        renew(&r, r.now + 1, 30000);                  /* nor to a heartbeat that was never sent */
        assert_int_equal(ordered(&r, ORDER_START, "w"), 0);
        renew(&r, r.now, 30000);
        assert_int_equal(ordered(&r, ORDER_LEASE, NULL), 1);
        assert_int_equal(ordered(&r, ORDER_START, "w"), 1);
        size_t lease = 0, start = 0;
        for (size_t i = 0; i < r.log.len; i++)
                *(r.log.at[i].kind == ORDER_LEASE   ? &lease
                  : r.log.at[i].kind == ORDER_START ? &start
                                                    : &(size_t){ 0 }) = i;
        assert_true(lease < start); /* whoever watches over it finds the lease written down */
        rig_fini(&r);
}

/* R: C34 */
static void a_lease_counts_from_the_heartbeat_and_ends_by_itself(void **state)
{
        struct rig r = rig_new();
        int64_t sent = r.now;

        (void)state;
        renew(&r, sent, 30000);
        plan_exclusive(&r, 2, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
        runtime_says(&r, RUNTIME_STARTED, "w", 2, -1, 0);
        plan_exclusive(&r, 3, "pinned", 3, RUN, PB__EXCLUSIVE__E__pinned);
        runtime_says(&r, RUNTIME_STARTED, "pinned", 3, -1, 0);
        change(&r, 4, "plain", 4, RUN, "r1");
        runtime_says(&r, RUNTIME_STARTED, "plain", 4, -1, 0);
        tick_at(&r, sent + 20000);
        renew(&r, sent + 10000, 30000); /* this answer took ten seconds */
        engine_disconnected(r.e, r.now);
        clear(&r);
        tick_at(&r, sent + 39999);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL), 0);
        assert_int_equal(engine_next_ms(r.e), sent + 40000);
        tick_at(&r, sent + 40000);
        assert_int_equal(ordered(&r, ORDER_STOP, "w"), 1);
        /* neither the pinned one nor the others */
        assert_int_equal(ordered(&r, ORDER_STOP, NULL), 1);
        for (size_t i = 0; i < r.log.len; i++)
                if (r.log.at[i].kind == ORDER_STOP)
                        /* not the seven seconds that it asked for */
                        assert_int_equal(r.log.at[i].grace_ms, 2000);
        runtime_says(&r, RUNTIME_STOPPED, "w", 2, -1, SIGTERM);
        clear(&r);
        rig_join(&r);
        assert_status(&r, "w", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__lease_expired);
        plan_exclusive(&r, 5, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
        renew(&r, r.now, 30000);
        assert_int_equal(ordered(&r, ORDER_START, "w"), 0); /* the same token never starts twice */
        plan_exclusive(&r, 6, "w", 6, RUN, PB__EXCLUSIVE__E__movable);
        assert_int_equal(ordered(&r, ORDER_START, "w"), 1);
        rig_fini(&r);
}

/* R: C34 */
static void the_steady_clock_decides_and_no_other(void **state)
{
        struct rig r = rig_new();

        (void)state;
        engine_set_steady(r.e, r.now, 5000);
        renew(&r, 5000, 30000);
        plan_exclusive(&r, 2, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
        runtime_says(&r, RUNTIME_STARTED, "w", 2, -1, 0);
        clear(&r);
        r.now += 60000; /* the other clock was put forward, or catches up */
        engine_set_steady(r.e, r.now, 6000);
        tick_at(&r, r.now);
        assert_int_equal(ordered(&r, ORDER_STOP, "w"), 0);
        r.now += 1; /* the machine was suspended: this one stood still */
        engine_set_steady(r.e, r.now, 35000);
        tick_at(&r, r.now);
        assert_int_equal(ordered(&r, ORDER_STOP, "w"), 1);
        runtime_says(&r, RUNTIME_STOPPED, "w", 2, -1, SIGTERM);
        rig_fini(&r);
}

/* An agent that is started again goes on within its lease, and stops what it finds beyond it. R:
 * C34 A5 */
static void a_restarted_agent_has_the_lease_that_was_written_down(void **state)
{
        (void)state;
        for (int within = 0; within < 2; within++) {
                struct rig r = rig_new();

                renew(&r, r.now, 30000);
                plan_exclusive(&r, 2, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
                runtime_says(&r, RUNTIME_STARTED, "w", 2, -1, 0);
                int64_t until = 0, kill = 0;
                for (size_t i = 0; i < r.log.len; i++)
                        if (r.log.at[i].kind == ORDER_LEASE)
                                until = r.log.at[i].until_ms, kill = r.log.at[i].kill_ms;
                assert_int_equal(until, r.now + 30000);
                assert_int_equal(kill, r.now + 32000);
                r.now += within ? 10000 : 40000;
                r.lease_until = until;
                r.lease_kill = kill;
                rig_restart(&r);
                assert_int_equal(ordered(&r, ORDER_STOP, "w"), !within);
                if (within)
                        tick_at(&r, until);
                assert_int_equal(ordered(&r, ORDER_STOP, "w"), 1);
                rig_fini(&r);
        }
}

/* R: C34 */
static void what_is_being_stopped_slowly_is_stopped_in_time(void **state)
{
        struct rig r = rig_new();

        (void)state;
        renew(&r, r.now, 30000);
        plan_exclusive(&r, 2, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
        runtime_says(&r, RUNTIME_STARTED, "w", 2, -1, 0);
        tick_at(&r, r.now + 29000);
        /* with a grace of seven seconds */
        plan_exclusive(&r, 3, "w", 2, STOP, PB__EXCLUSIVE__E__movable);
        clear(&r);
        tick_at(&r, r.now + 1000);
        assert_int_equal(ordered(&r, ORDER_STOP, "w"), 1); /* again, and shorter */
        assert_int_equal(r.log.at[r.log.len - 1].grace_ms, 2000);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_exclusive_unit_starts_only_under_a_lease),
                cmocka_unit_test(a_lease_counts_from_the_heartbeat_and_ends_by_itself),
                cmocka_unit_test(the_steady_clock_decides_and_no_other),
                cmocka_unit_test(a_restarted_agent_has_the_lease_that_was_written_down),
                cmocka_unit_test(what_is_being_stopped_slowly_is_stopped_in_time),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
