/* core/brake_test.c: who is silent, and what that means: the rule of C11 (issue 5, B4), one case
 * after the other. */
#include "core/brake.h"
#include "core/core_testlib.h"

#define LIMIT 30000 /* 3 beats of 10 s */
#define GRACE 60000

static char *name(struct rig *r, char zone, unsigned i)
{
        return arena_printf(&r->memory, "%c%02u", zone, i);
}

/* sizes: of zones a, b, c...; a size that is negative is of nodes without a zone. `units` on each
 * node, running. */
static void cluster(struct rig *r, const int *sizes, size_t zones, unsigned units)
{
        unsigned nodes = 0;
        for (size_t z = 0; z < zones; z++)
                for (int i = 1; i <= abs(sizes[z]); i++, nodes++)
                        rig_hello(r, name(r, (char)('a' + z), (unsigned)i), 8000, 8192, 10,
                                  sizes[z] < 0
                                      ? NULL
                                      : arena_printf(&r->memory, "zone=%c", (char)('a' + z)));
        for (unsigned i = 0; i < nodes * units; i++) {
                char *id = arena_printf(&r->memory, "w%u", i);
                rig_apply(r, rig_workload(r, id, 100, 100));
                rig_runs(r, id);
        }
        rig_mark(r);
}
#define CLUSTER(r, units, ...)                                                                     \
        cluster(r, (const int[]){ __VA_ARGS__ }, ARRAY_LEN(((const int[]){ __VA_ARGS__ })), units)

static void lose(struct rig *r, char zone, unsigned from, unsigned to)
{
        for (unsigned i = from; i <= to; i++)
                rig_gone(r, name(r, zone, i));
}

static void come_back(struct rig *r, char zone, unsigned from, unsigned to)
{
        for (unsigned i = from; i <= to; i++)
                rig_hello(r, name(r, zone, i), 8000, 8192, 10,
                          arena_printf(&r->memory, "zone=%c", zone));
}

static size_t moved(struct rig *r)
{
        size_t n = 0;
        for (size_t i = r->mark; i < r->events.len; i++)
                n += r->events.at[i].e->type == PB__EVENT_TYPE__E__Rescheduled &&
                     r->events.at[i].e->reason == PB__REASON__E__node_lost;
        return n;
}

static Pb__ClusterInfo *info(struct rig *r)
{
        return (Pb__ClusterInfo *)rig_ask(r, INPUT_CLUSTER, NULL)->msg;
}

static void assert_moves(struct rig *r, size_t units, bool paced)
{
        rig_advance_alive(r, LIMIT + GRACE + 1000);
        assert_int_equal(rig_count(r, PB__EVENT_TYPE__E__EvictionHeld), 0);
        assert_int_equal(rig_count(r, PB__EVENT_TYPE__E__EvictionPaced) > 0, paced);
        if (!paced)
                assert_int_equal(moved(r), units);
        rig_advance_alive(r, 120000);
        assert_int_equal(moved(r), units);
        assert_string_equal(info(r)->mode, "normal");
        rig_check_replay(r);
        rig_fini(r);
}

static Pb__Brake *assert_held(struct rig *r)
{
        rig_advance_alive(r, LIMIT + 10 * GRACE);
        assert_int_equal(rig_count(r, PB__EVENT_TYPE__E__EvictionHeld), 1);
        assert_int_equal(moved(r), 0);
        assert_string_equal(info(r)->mode, "eviction held");
        assert_string_equal(info(r)->brake->state, "held");
        return rig_last(r, PB__EVENT_TYPE__E__EvictionHeld)->brake;
}

static bool rule(uint32_t nodes, uint32_t silent, uint32_t zones, uint32_t hit, uint32_t whole,
                 uint32_t unzoned)
{
        struct brake_counts n = { nodes, silent, zones, hit, whole, unzoned };
        return brake_rule(&n, 55);
}

/* R: C11 */
static void the_rule(void **state)
{
        (void)state;
        assert_false(rule(12, 5, 3, 1, 1, 0)); /* a zone of 5 of 12 */
        assert_false(rule(10, 6, 2, 1, 1, 0)); /* 6 + 4, the larger one */
        assert_true(rule(10, 7, 2, 1, 1, 0));  /* 7 + 3: fewer than a third are heard */
        assert_false(rule(9, 6, 2, 1, 1, 0));  /* 6 + 3: a third */
        assert_true(rule(12, 8, 3, 2, 2, 0));  /* two of three zones */
        assert_false(rule(12, 4, 3, 3, 0, 0)); /* 4 of 12, over all zones */
        assert_true(rule(12, 12, 3, 3, 3, 0)); /* all */
        assert_true(rule(10, 6, 2, 1, 0, 0));  /* most, and not a whole zone */
        assert_true(rule(10, 6, 1, 1, 1, 1));  /* a whole zone, and one without */
        /* 55 %, but every zone, and fewer than half are heard */
        assert_true(rule(20, 11, 2, 2, 0, 0));
        assert_false(rule(20, 11, 3, 2, 0, 0));  /* 55 %, and a zone is heard whole */
        assert_false(rule(20, 10, 2, 2, 0, 0));  /* half are heard */
        assert_false(rule(20, 11, 0, 0, 0, 11)); /* without zones only the share counts */
        assert_false(rule(20, 11, 1, 1, 0, 0));  /* and in a single one */
        assert_true(rule(20, 12, 1, 1, 0, 0));
        assert_true(rule(UINT32_MAX, UINT32_MAX, 3, 3, 3, 0)); /* nothing overflows */
}

/* Must show: a zone of 5 of 12 burns.  R: C11 */
static void a_whole_zone_moves_at_full_speed(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 10, 5, 4, 3);
        lose(&r, 'a', 1, 5);
        assert_moves(&r, 50, false); /* more than the pace would let go in a second */
}

static void slow_pace(struct rig *r)
{
        struct core_options opt;
        core_options_default(&opt);
        opt.evict_per_second = 1;
        rig_init(r, &opt);
}

/* Units that are still on nodes of zone a. */
static int32_t left_in_a(struct rig *r)
{
        int32_t n = 0;
        for (unsigned i = 1; i <= 5; i++)
                n += rig_node(r, name(r, 'a', i))->units;
        return n;
}

static size_t times_paced(struct rig *r, const char *zone)
{
        size_t n = 0;
        for (size_t i = r->mark; i < r->events.len; i++)
                n += r->events.at[i].e->type == PB__EVENT_TYPE__E__EvictionPaced &&
                     strcmp(r->events.at[i].e->brake->zone, zone) == 0;
        return n;
}

/* Zone a burns: its first node falls silent at 30 s, the others at 40 s, and are given up at 90 and
 * 100 s. In between, at 92 s, a node elsewhere falls silent, which begins another wave. */
static void burn_while_another_falls_silent(struct rig *r)
{
        slow_pace(r);
        CLUSTER(r, 10, 5, 4, 3);
        rig_advance_alive(r, 1000);
        lose(r, 'a', 1, 1);
        rig_advance_alive(r, 10000);
        lose(r, 'a', 2, 5);
        rig_advance_alive(r, 50500);
        lose(r, 'b', 1, 1);
        rig_advance_alive(r, 33000);
        assert_int_equal(left_in_a(r), 40); /* the first one is empty */
        assert_int_equal(rig_node(r, "b01")->status, PB__NODE_STATUS__E__NotReady);
}

/* The rest of a burnt zone is no part of a zone because a node elsewhere falls silent.  R: C11 */
static void a_whole_zone_moves_at_full_speed_through_another_wave(void **state)
{
        (void)state;
        for (int restart = 0; restart < 2; restart++) {
                struct rig r;
                burn_while_another_falls_silent(&r);
                if (restart) { /* the same from the records */
                        rig_restart(&r);
                        come_back(&r, 'b', 2, 4);
                        come_back(&r, 'c', 1, 3);
                        rig_advance_alive(&r, LIMIT - 8000); /* it listens first */
                }
                /* who comes later is not evidence */
                rig_hello(&r, "a06", 8000, 8192, 10, "zone=a");
                rig_advance_alive(&r, 8000);
                assert_int_equal(left_in_a(&r), 0);
                assert_int_equal(times_paced(&r, "a"), 0);
                rig_advance_alive(&r, 2 * GRACE);
                assert_int_equal(times_paced(&r, "b"), 1); /* the one elsewhere, in its time */
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* Another node falls silent before it, so that zone a does in two waves.  R: C11 */
static void a_zone_that_burns_over_the_end_of_a_wave_is_whole(void **state)
{
        (void)state;
        struct rig r;
        slow_pace(&r);
        CLUSTER(&r, 10, 5, 4, 3);
        rig_advance_alive(&r, 1000);
        lose(&r, 'c', 1, 1); /* a wave from 30 s to 90 s */
        rig_advance_alive(&r, 50000);
        lose(&r, 'a', 1, 3); /* silent at 80 s, in that one */
        rig_advance_alive(&r, 13000);
        lose(&r, 'a', 4, 5); /* and in the next */
        rig_advance_alive(&r, LIMIT + GRACE + 2000);
        assert_int_equal(left_in_a(&r), 0);
        assert_int_equal(times_paced(&r, "a"), 0);
        assert_true(times_paced(&r, "c") > 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* A zone of which somebody has come back is none that has burnt.  R: C11 */
static void the_rest_of_a_zone_is_paced_when_one_of_it_returns(void **state)
{
        (void)state;
        struct rig r;
        burn_while_another_falls_silent(&r);
        come_back(&r, 'a', 5, 5);
        rig_advance_alive(&r, 8000);
        assert_true(left_in_a(&r) > 30);
        assert_int_equal(times_paced(&r, "a"), 1);
        rig_advance_alive(&r, 2 * GRACE);
        assert_int_equal(left_in_a(&r), rig_node(&r, "a05")->units);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* Nodes that came to a zone after it burnt are a part of it like any other.  R: C11 */
static void a_zone_that_has_burnt_once_is_not_whole_for_ever(void **state)
{
        (void)state;
        struct rig r;
        slow_pace(&r);
        CLUSTER(&r, 0, 2, 4, 3);
        lose(&r, 'a', 1, 2);
        rig_advance_alive(&r, LIMIT + 3 * GRACE);
        come_back(&r, 'a', 3, 5);
        for (unsigned i = 0; i < 90; i++) {
                char *id = arena_printf(&r.memory, "w%u", i);
                rig_apply(&r, rig_workload(&r, id, 100, 100));
                rig_runs(&r, id);
        }
        rig_mark(&r);
        lose(&r, 'a', 3, 4);
        rig_advance_alive(&r, LIMIT + GRACE + 1000);
        assert_int_equal(times_paced(&r, "a"), 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* Must show: zones of 6 + 4, the larger one burns.  R: C11 */
static void the_larger_of_two_zones_moves(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 4, 6, 4);
        lose(&r, 'a', 1, 6);
        assert_moves(&r, 24, false);
}

/* Must show: 7 + 3.  R: C11 */
static void fewer_than_a_third_heard_is_held(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 1, 7, 3);
        lose(&r, 'a', 1, 7);
        const Pb__Brake *b = assert_held(&r);
        assert_string_equal(b->zone, "a");
        assert_int_equal(b->zone_nodes, 7);
        assert_int_equal(b->zone_silent, 7);
        assert_int_equal(b->nodes, 10);
        assert_int_equal(b->silent, 7);
        assert_int_equal(b->limit_percent, 55);
        assert_non_null(strstr(rig_last(&r, PB__EVENT_TYPE__E__EvictionHeld)->message,
                               "7 of 10 nodes are silent (the limit is 55 %)"));
        rig_fini(&r);
}

/* Must show: two of three zones.  R: C11 */
static void two_of_three_zones_are_held(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 1, 4, 4, 4);
        lose(&r, 'a', 1, 4);
        lose(&r, 'c', 1, 4);
        assert_int_equal(assert_held(&r)->zones_hit, 2);
        rig_fini(&r);
}

/* Must show: 4 of 12 over all zones: moves, paced.  R: C11 */
static void a_part_of_each_zone_is_paced(void **state)
{
        (void)state;
        struct core_options opt;
        core_options_default(&opt);
        opt.evict_per_second = 2;
        struct rig r;
        rig_init(&r, &opt);
        CLUSTER(&r, 5, 4, 4, 4);
        lose(&r, 'a', 1, 2);
        lose(&r, 'b', 1, 1);
        lose(&r, 'c', 1, 1);
        rig_advance_alive(&r, LIMIT + GRACE + 10);
        size_t before = moved(&r);
        /* never more than the rate, whatever the window */
        for (int second = 0; second < 5; second++) {
                rig_advance_alive(&r, 1000);
                assert_true(moved(&r) - before <= 2);
                assert_true(moved(&r) > before);
                before = moved(&r);
        }
        const Pb__Event *e = rig_last(&r, PB__EVENT_TYPE__E__EvictionPaced);
        assert_string_equal(e->brake->state, "paced");
        assert_int_equal(e->brake->nodes, 12);
        assert_int_equal(e->brake->silent, 4);
        assert_int_equal(e->brake->units_per_second, 2);
        assert_string_equal(info(&r)->mode, "eviction paced");
        assert_true(info(&r)->brake->paced_units > 0);
        assert_moves(&r, 20, true);
}

/* So that a switch that flaps moves little: what has not left stays.  R: C11 */
static void what_returns_while_it_is_paced_keeps_the_rest(void **state)
{
        (void)state;
        struct core_options opt;
        core_options_default(&opt);
        opt.evict_per_second = 1;
        struct rig r;
        rig_init(&r, &opt);
        CLUSTER(&r, 10, 4, 4, 4);
        lose(&r, 'a', 1, 1);
        rig_advance_alive(&r, LIMIT + GRACE + 3000);
        size_t left = moved(&r);
        assert_true(left >= 2 && left <= 4);
        rig_beat(&r, name(&r, 'b', 1));
        come_back(&r, 'a', 1, 1);
        rig_advance_alive(&r, 60000);
        assert_int_equal(moved(&r), left);
        assert_string_equal(info(&r)->mode, "normal");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* Must show: all, and the server's own cable: that is the same thing, seen from here.  R: C11 */
static void all_silent_is_held_and_all_back_changes_nothing(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 2, 4, 4, 4);
        for (char z = 'a'; z <= 'c'; z++)
                lose(&r, z, 1, 4);
        assert_int_equal(assert_held(&r)->silent, 12);
        rig_mark(&r);
        for (char z = 'a'; z <= 'c'; z++)
                come_back(&r, z, 1, 4);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionResumed), 1);
        rig_advance_alive(&r, 5 * GRACE);
        assert_int_equal(moved(&r), 0);
        assert_string_equal(info(&r)->mode, "normal");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* Those that come back let go of the others, after one more grace.  R: C11 */
static void what_is_held_moves_when_enough_are_back(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 1, 7, 3);
        lose(&r, 'a', 1, 7);
        assert_held(&r);
        rig_mark(&r);
        come_back(&r, 'a', 1, 1); /* 6 of 10: 60 %, and no whole zone */
        rig_advance_alive(&r, 3 * GRACE);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionResumed), 0);
        come_back(&r, 'a', 2, 2); /* 5 of 10 */
        const Pb__Event *e = rig_last(&r, PB__EVENT_TYPE__E__EvictionResumed);
        assert_int_equal(e->brake->silent, 5);
        assert_int_equal(e->brake->nodes, 10);
        rig_advance_alive(&r, GRACE - 1000);
        assert_int_equal(moved(&r), 0);
        rig_advance_alive(&r, 2000);
        assert_int_equal(moved(&r), 5);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* Counted is who was Ready when the wave began: those who come later prove nothing.  R: C11 */
static void newcomers_do_not_count(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 1, 7, 3);
        lose(&r, 'a', 1, 7);
        assert_held(&r);
        for (unsigned i = 1; i <= 10; i++)
                rig_hello(&r, name(&r, 'd', i), 8000, 8192, 10, "zone=d");
        rig_advance_alive(&r, 3 * GRACE);
        assert_int_equal(moved(&r), 0);
        lose(&r, 'd', 1, 1); /* nor does one of them that falls silent */
        rig_advance_alive(&r, 3 * GRACE);
        assert_int_equal(info(&r)->brake->silent, 7);
        assert_int_equal(info(&r)->brake->nodes, 10);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* What falls silent at another time is another wave: a cluster that shrinks bit by bit moves.  R:
 * C11 */
static void one_after_the_other_is_no_wave(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 1, -10);
        for (unsigned i = 1; i <= 7; i++) {
                lose(&r, 'a', i, i);
                rig_advance_alive(&r, LIMIT + 2 * GRACE);
        }
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionHeld), 0);
        assert_true(moved(&r) >= 7);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* A restart forgets no wave: it is in the records.  R: C11 A5 */
static void a_restarted_server_holds_on(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 1, 4, 4, 4);
        lose(&r, 'a', 1, 4);
        lose(&r, 'b', 1, 4);
        assert_held(&r);
        for (unsigned i = 1; i <= 4; i++) /* newcomers, who are in the records too by then */
                rig_hello(&r, name(&r, 'd', i), 8000, 8192, 10, "zone=d");
        rig_advance_alive(&r, GRACE);
        rig_restart(&r);
        rig_mark(&r);
        come_back(&r, 'c', 1, 4);
        come_back(&r, 'd', 1, 4);
        const Pb__Brake *b = assert_held(&r);
        assert_int_equal(b->silent, 8);
        assert_int_equal(b->nodes, 12);
        rig_mark(&r);
        come_back(&r, 'a', 1, 3);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionResumed), 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

static const struct rig_reply *evict(struct rig *r, const char *node)
{
        Pb__NodeRef ref = PB__NODE_REF__INIT;
        ref.id = (char *)node;
        return rig_ask(r, INPUT_EVICT_NODE, &ref);
}

/* R: C11 */
static void an_operator_overrules_the_brake_for_a_node(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 3, 7, 3);
        lose(&r, 'a', 1, 7);
        assert_held(&r);
        assert_refused(evict(&r, "b01"), ERR_CONFLICT);
        assert_refused(evict(&r, "nobody"), ERR_NOT_FOUND);
        rig_mark(&r);
        assert_refused(evict(&r, "a01"), ERR_OK);
        rig_advance_alive(&r, 1000);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionOrdered), 1);
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__EvictionOrdered)->actor, "tester");
        assert_int_equal(moved(&r), 3);
        rig_advance_alive(&r, 3 * GRACE);
        assert_int_equal(moved(&r), 3); /* the others are still held */
        assert_string_equal(info(&r)->mode, "eviction held");
        evict(&r, "a01");
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionOrdered), 1); /* said once */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* And for all, held or paced, at once; and a restart does not forget it.  R: C11 */
static void an_operator_overrules_the_brake_for_all(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 10, 7, 3);
        lose(&r, 'a', 1, 7);
        assert_held(&r);
        rig_mark(&r);
        Pb__EvictResponse *said = (Pb__EvictResponse *)rig_ask(&r, INPUT_EVICT_LOST, NULL)->msg;
        assert_int_equal(said->nodes, 7);
        assert_int_equal(said->units, 70);
        rig_advance_alive(&r, 100);
        assert_int_equal(moved(&r), 70);
        assert_string_equal(info(&r)->mode, "normal");
        rig_restart(&r);
        come_back(&r, 'b', 1, 3);
        rig_mark(&r);
        rig_advance_alive(&r, LIMIT + 3 * GRACE);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionHeld), 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* A clock that was set back starts at the newest time on record: an order of later than that would
 * be one for all who fall silent until then, without a grace and whatever the brake says.  R: C11
 * C12 */
static void an_order_is_not_for_those_who_fall_silent_after_it(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 10, 7, 3);
        lose(&r, 'a', 1, 7);
        lose(&r, 'b', 1, 3);
        rig_advance_alive(&r, LIMIT + GRACE);
        rig_ask(&r, INPUT_EVICT_LOST, NULL);
        rig_advance_alive(&r, 5 * GRACE);
        rig_ask(&r, INPUT_EVICT_LOST, NULL); /* once more: nothing is left to be done */
        int64_t ordered = r.now;
        rig_restart(&r);
        assert_true(core_newest_ms(r.core) >= ordered);
        rig_fini(&r);
}

/* A taint drives out who does not tolerate it; it is no reason to hurry for the others.  R: C11
 * C38 */
static void a_taint_does_not_hurry_what_is_paced(void **state)
{
        (void)state;
        struct core_options opt;
        core_options_default(&opt);
        opt.evict_per_second = 1;
        struct rig r;
        rig_init(&r, &opt);
        rig_hello(&r, "a01", 8000, 8192, 10, "zone=a");
        Pb__Toleration any = PB__TOLERATION__INIT, *tolerations[] = { &any };
        any.key = "*";
        for (unsigned i = 0; i < 20; i++) {
                Pb__Workload *w = rig_workload(&r, arena_printf(&r.memory, "w%u", i), 100, 100);
                w->tolerations = tolerations;
                w->n_tolerations = i < 17; /* three do not */
                rig_apply(&r, w);
                rig_runs(&r, w->id);
        }
        come_back(&r, 'a', 2, 3);
        come_back(&r, 'b', 1, 2);
        lose(&r, 'a', 1, 1);
        rig_mark(&r);
        rig_advance_alive(&r, LIMIT + GRACE + 2000);
        size_t before = moved(&r);
        assert_true(before > 0 && before < 6);
        Pb__SetTaintsRequest req = PB__SET_TAINTS_REQUEST__INIT;
        Pb__Taint taint = PB__TAINT__INIT, *taints[] = { &taint };
        taint.key = "broken";
        taint.effect = PB__TAINT_EFFECT__E__no_execute;
        req.id = "a01";
        req.taints = taints;
        req.n_taints = 1;
        rig_ask(&r, INPUT_NODE_TAINTS, &req);
        rig_advance_alive(&r, 100);
        assert_true(moved(&r) <= before + 3 + 1);
        rig_advance_alive(&r, 30000);
        assert_int_equal(moved(&r), 20);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C11 */
static void an_operator_hurries_what_is_paced(void **state)
{
        (void)state;
        struct core_options opt;
        core_options_default(&opt);
        opt.evict_per_second = 1;
        struct rig r;
        rig_init(&r, &opt);
        CLUSTER(&r, 10, 4, 4, 4);
        lose(&r, 'a', 1, 2);
        rig_advance_alive(&r, LIMIT + GRACE + 2000);
        assert_true(moved(&r) < 10);
        evict(&r, "a01");
        rig_advance_alive(&r, 100);
        assert_true(moved(&r) >= 10 && moved(&r) < 20);
        rig_ask(&r, INPUT_EVICT_LOST, NULL);
        rig_advance_alive(&r, 100);
        assert_int_equal(moved(&r), 20);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* Forgetting what is gone for good lets go as well.  R: C11 C12 */
static void forgotten_nodes_do_not_count(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 0, 4, 3, 3);
        for (unsigned i = 0; i < 3; i++) { /* on the heard ones only */
                Pb__Workload *w = rig_workload(&r, arena_printf(&r.memory, "x%u", i), 100, 100);
                rig_select(&r, w, "zone", "b");
                rig_apply(&r, w);
                rig_runs(&r, w->id);
        }
        rig_mark(&r);
        lose(&r, 'a', 1, 4);
        lose(&r, 'b', 1, 2);
        rig_advance_alive(&r, LIMIT + 3 * GRACE);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionHeld), 1);
        rig_mark(&r);
        assert_refused(rig_forget(&r, "a01"), ERR_OK);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionResumed), 0); /* 5 of 9 */
        assert_refused(rig_forget(&r, "a02"), ERR_OK);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionResumed), 1); /* 4 of 8 */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* What `berth cluster` says of units whose node is lost (issue 5, B5).  R: C36 */
static void units_of_lost_nodes_are_not_counted_as_running(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 3, -12);
        assert_int_equal(info(&r)->workloads_running, 36);
        lose(&r, 'a', 1, 4);
        rig_advance_alive(&r, LIMIT + 1000);
        assert_int_equal(info(&r)->nodes_ready, 8);
        assert_int_equal(info(&r)->workloads_running, 24);
        assert_int_equal(info(&r)->workloads_unknown, 12);
        rig_fini(&r);
}

/* A zone that a node says it is in is as good as another: it is counted where it says, from then
 * on.  R: C11 */
static void a_node_that_changes_its_zone_is_counted_once(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        CLUSTER(&r, 1, 4, 4, 4);
        lose(&r, 'a', 1, 2);
        rig_advance_alive(&r, LIMIT + 1000);
        rig_hello(&r, "a01", 8000, 8192, 10, "zone=b");
        rig_hello(&r, "a03", 8000, 8192, 10, "zone=x");
        rig_hello(&r, "a03", 8000, 8192, 10, NULL);
        rig_advance_alive(&r, 1000);
        assert_int_equal(info(&r)->brake->silent, 1);
        assert_int_equal(info(&r)->brake->nodes, 10);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* The end of a long silence costs each node its own part (issue 5, B4): no step looks at all of
 * them.  R: C11 X6 */
static void a_heal_is_cheap(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        r.no_check = true;
        const unsigned nodes = 2000;
        for (unsigned i = 0; i < nodes; i++)
                rig_hello(&r, arena_printf(&r.memory, "n%05u", i), 8000, 8192, 10,
                          arena_printf(&r.memory, "zone=%u", i % 3));
        for (unsigned i = 0; i < nodes; i++) {
                char *id = arena_printf(&r.memory, "w%u", i);
                rig_apply(&r, rig_workload(&r, id, 100, 100));
        }
        for (unsigned i = 0; i < nodes; i++)
                rig_gone(&r, arena_printf(&r.memory, "n%05u", i));
        rig_advance(&r, 200000);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionHeld), 1);
        rig_mark(&r);
        int64_t t0 = clock_mono_ns();
        for (unsigned i = 0; i < nodes; i++)
                rig_hello(&r, arena_printf(&r.memory, "n%05u", i), 8000, 8192, 10,
                          arena_printf(&r.memory, "zone=%u", i % 3));
        rig_advance_alive(&r, 2000);
        /* it took more than 100 s of CPU */
        assert_true(clock_mono_ns() - t0 < INT64_C(20000000000));
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__EvictionResumed), 1);
        assert_int_equal(moved(&r), 0);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_rule),
                cmocka_unit_test(a_whole_zone_moves_at_full_speed),
                cmocka_unit_test(a_whole_zone_moves_at_full_speed_through_another_wave),
                cmocka_unit_test(a_zone_that_burns_over_the_end_of_a_wave_is_whole),
                cmocka_unit_test(the_rest_of_a_zone_is_paced_when_one_of_it_returns),
                cmocka_unit_test(a_zone_that_has_burnt_once_is_not_whole_for_ever),
                cmocka_unit_test(the_larger_of_two_zones_moves),
                cmocka_unit_test(fewer_than_a_third_heard_is_held),
                cmocka_unit_test(two_of_three_zones_are_held),
                cmocka_unit_test(a_part_of_each_zone_is_paced),
                cmocka_unit_test(what_returns_while_it_is_paced_keeps_the_rest),
                cmocka_unit_test(all_silent_is_held_and_all_back_changes_nothing),
                cmocka_unit_test(what_is_held_moves_when_enough_are_back),
                cmocka_unit_test(newcomers_do_not_count),
                cmocka_unit_test(one_after_the_other_is_no_wave),
                cmocka_unit_test(a_restarted_server_holds_on),
                cmocka_unit_test(an_operator_overrules_the_brake_for_a_node),
                cmocka_unit_test(an_operator_overrules_the_brake_for_all),
                cmocka_unit_test(an_order_is_not_for_those_who_fall_silent_after_it),
                cmocka_unit_test(a_taint_does_not_hurry_what_is_paced),
                cmocka_unit_test(an_operator_hurries_what_is_paced),
                cmocka_unit_test(forgotten_nodes_do_not_count),
                cmocka_unit_test(units_of_lost_nodes_are_not_counted_as_running),
                cmocka_unit_test(a_node_that_changes_its_zone_is_counted_once),
                cmocka_unit_test(a_heal_is_cheap),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
