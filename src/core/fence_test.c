/* core/fence_test.c: what must not run twice: who waits for whom, until when, and who may say
 * otherwise (C34). */
#include "core/core_testlib.h"

#define LEASE 30000 /* 10,000 * 3 */
#define WAIT 40400  /* lease + grace 10,000, and one percent; nobody else can lead */

static Pb__WorkloadType__E process = PB__WORKLOAD_TYPE__E__process;

static Pb__Hello *holder(struct rig *r, const char *node)
{
        Pb__Hello *h = rig_hello_message(r, node, 4000, 4096, 10, NULL);
        h->exclusive_types = &process;
        h->n_exclusive_types = 1;
        return h;
}

static Pb__Workload *exclusive(struct rig *r, const char *id, Pb__Exclusive__E how)
{
        Pb__Workload *w = rig_workload(r, id, 1000, 100);
        w->exclusive = how;
        return w;
}

/* Two nodes that hold leases, and one exclusive unit that runs on n1. Units of a silent node would
 * move after a second. */
static void begin(struct rig *r, Pb__Exclusive__E how)
{
        struct core_options opt;
        core_options_default(&opt);
        opt.evict_grace_ms = 1000;
        rig_init(r, &opt);
        rig_say_hello(r, holder(r, "n1"));
        rig_apply(r, exclusive(r, "w", how));
        rig_runs(r, "w");
        assert_string_equal(rig_get(r, "w")->assigned_node, "n1");
        rig_say_hello(r, holder(r, "n2"));
        rig_mark(r);
}

/* n1 falls silent; n2 goes on. */
static void advance_without_n1(struct rig *r, int64_t ms)
{
        for (int64_t end = r->now + ms; r->now < end;) {
                rig_advance(r, end - r->now < 5000 ? end - r->now : 5000);
                rig_beat(r, "n2");
        }
}

/* R: C34 C24 */
static void a_new_holder_starts_only_when_the_old_lease_is_over(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        rig_beat(&r, "n1");
        int64_t heard = r.now;
        rig_gone(&r, "n1");
        advance_without_n1(&r, LEASE + 1500);
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n2"); /* that is decided */
        assert_null(rig_sent(&r, "n2", "w"));                       /* and not yet told */
        Pb__Explanation *x = rig_explain(&r, "w");
        assert_non_null(strstr(x->summary, "n1"));
        assert_int_equal(x->next_at, heard + WAIT);
        assert_non_null(strstr(x->next, "berth node fence n1"));
        advance_without_n1(&r, heard + WAIT - r.now - 1);
        assert_null(rig_sent(&r, "n2", "w"));
        rig_advance(&r, 1);
        assert_non_null(rig_sent(&r, "n2", "w")); /* at its time, not at the next look */
        rig_runs(&r, "w");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C34 C24 */
static void the_word_of_the_old_node_ends_the_wait(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        rig_gone(&r, "n1");
        advance_without_n1(&r, LEASE + 1500);
        assert_null(rig_sent(&r, "n2", "w"));
        /* with an empty list, and all that it was told seen: nothing of it runs there */
        Pb__Hello *h = holder(&r, "n1");
        Pb__Cursor applied = PB__CURSOR__INIT;
        applied.epoch = 1;
        applied.seq = r.head;
        h->applied = &applied;
        rig_say_hello(&r, h);
        assert_non_null(rig_sent(&r, "n2", "w"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* What an agent wrote into a stream that it gave up may be read after its next stream: it proves
 * nothing about orders that it had not seen. R: C34 C40 */
static void an_old_hello_does_not_end_the_wait(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        rig_gone(&r, "n1");
        advance_without_n1(&r, LEASE + 1500);
        assert_null(rig_sent(&r, "n2", "w"));
        Pb__Hello *old = holder(&r, "n1"); /* from before it was told to run anything */
        Pb__Cursor applied = PB__CURSOR__INIT;
        applied.epoch = applied.seq = 1;
        old->applied = &applied;
        rig_say_hello(&r, old);
        assert_null(rig_sent(&r, "n2", "w"));
        rig_is_gone(&r, "w", "n1"); /* its answer to the plan is proof */
        assert_non_null(rig_sent(&r, "n2", "w"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* A new leader does not know when the one before renewed an agent for the last time: it counts from
 * its own start, whatever clocks say. R: C34 C33 */
static void a_new_leader_counts_from_its_own_start(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        rig_gone(&r, "n1");
        advance_without_n1(&r, LEASE + 1500);
        rig_restart(&r);
        int64_t started = r.now;
        rig_say_hello(&r, holder(&r, "n2"));
        advance_without_n1(&r, WAIT - 1000);
        assert_null(rig_sent(&r, "n2", "w"));
        advance_without_n1(&r, started + WAIT - r.now);
        assert_non_null(rig_sent(&r, "n2", "w"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* The core's own clock may catch up faster than time passes; the steady one decides. R: C34 */
static void only_the_steady_clock_counts(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        rig_gone(&r, "n1");
        advance_without_n1(&r, LEASE + 1500);
        int64_t steady = r.now;
        /* twenty seconds by its clock, five in truth; then both go on alike */
        for (int i = 1; i <= 40; i++) {
                r.latest = r.now += i <= 20 ? 1000 : 250;
                struct input in = { .kind = INPUT_TICK,
                                    .now_ms = r.now,
                                    .steady_ms = steady + i * 250 };
                core_step(r.core, &in);
                rig_take(&r);
                if (i == 20)
                        assert_null(rig_sent(&r, "n2", "w"));
        }
        rig_take(&r);
        assert_non_null(rig_sent(&r, "n2", "w"));
        rig_fini(&r);
}

/* R: C34 */
static void a_pinned_unit_never_moves_by_the_clock(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__pinned);
        rig_gone(&r, "n1");
        advance_without_n1(&r, 600000);
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n1");
        assert_null(rig_sent(&r, "n2", "w"));
        assert_int_equal(rig_get(&r, "w")->status->reason, PB__REASON__E__pinned_to_node);
        Pb__Explanation *x = rig_explain(&r, "w");
        assert_non_null(strstr(x->summary, "pinned to n1"));
        assert_non_null(strstr(x->next, "berth release w"));
        rig_check_replay(&r);
        Pb__Hello *h = holder(&r, "n1"); /* it ran on all the while */
        rig_hello_add(&r, h, rig_unit_now(&r, "w", PB__ACTUAL_STATE__E__Running));
        rig_mark(&r);
        rig_say_hello(&r, h);
        assert_phase(&r, "w", Running);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadLaunched), 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C34 */
static void an_operators_word_moves_a_pinned_unit(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__pinned);
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = "w";
        assert_refused(rig_ask(&r, INPUT_RELEASE, &ref), ERR_CONFLICT); /* its node is alive */
        rig_gone(&r, "n1");
        advance_without_n1(&r, LEASE + 5000);
        rig_mark(&r);
        assert_int_equal(rig_ask(&r, INPUT_RELEASE, &ref)->err.code, ERR_OK);
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n2");
        assert_non_null(rig_sent(&r, "n2", "w"));
        Pb__Event *e = rig_last(&r, PB__EVENT_TYPE__E__UnitReleased);
        assert_string_equal(e->actor, "tester"); /* audited */
        rig_check_replay(&r);
        rig_restart(&r);
        rig_mark(&r);
        rig_say_hello(&r, holder(&r, "n2"));
        assert_non_null(rig_sent(&r, "n2", "w")); /* the word is kept */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C34 */
static void a_fenced_node_is_waited_for_no_longer(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        rig_apply(&r, exclusive(&r, "pinned", PB__EXCLUSIVE__E__pinned));
        Pb__NodeRef ref = PB__NODE_REF__INIT;
        ref.id = "n1";
        assert_refused(rig_ask(&r, INPUT_NODE_FENCE, &ref), ERR_CONFLICT); /* it is alive */
        rig_gone(&r, "n1");
        advance_without_n1(&r, LEASE + 1500);
        assert_null(rig_sent(&r, "n2", "w"));
        /* that would forget the copy that is waited for */
        assert_refused(rig_forget(&r, "n1"), ERR_CONFLICT);
        rig_mark(&r);
        assert_int_equal(rig_ask(&r, INPUT_NODE_FENCE, &ref)->err.code, ERR_OK);
        assert_non_null(rig_sent(&r, "n2", "w"));
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__NodeFenced)->actor, "tester");
        assert_true(rig_node(&r, "n1")->fenced_at > 0);
        rig_check_replay(&r);
        /* it was not dead after all: it is told to remove its copy */
        rig_say_hello(&r, holder(&r, "n1"));
        assert_int_equal(rig_node(&r, "n1")->fenced_at, 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* Whoever holds no lease holds no such unit: foreign agents, and agents of before. R: C34 A8 A10 */
static void only_agents_that_hold_leases_get_exclusive_units(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        Pb__Hello *foreign = holder(&r, "foreign");
        foreign->push = true;
        foreign->agent_endpoint = "foreign.example:50051";
        rig_say_hello(&r, foreign);
        rig_hello(&r, "older", 4000, 4096, 10, NULL);
        rig_apply(&r, exclusive(&r, "movable", PB__EXCLUSIVE__E__movable));
        rig_apply(&r, exclusive(&r, "pinned", PB__EXCLUSIVE__E__pinned));
        assert_phase(&r, "movable", Pending);
        assert_int_equal(rig_get(&r, "movable")->status->reason,
                         PB__REASON__E__exclusive_unsupported);
        assert_string_equal(rig_get(&r, "pinned")->assigned_node, "older");
        Pb__Explanation *x = rig_explain(&r, "movable");
        assert_int_equal(x->n_reasons, 1);
        assert_int_equal(x->reasons[0]->nodes, 2);
        /* One that runs there already does not become exclusive in its place either. */
        Pb__Workload *plain = rig_workload(&r, "plain", 100, 100);
        rig_apply(&r, plain);
        rig_runs(&r, "plain");
        plain->exclusive = PB__EXCLUSIVE__E__movable;
        rig_apply(&r, plain);
        assert_phase(&r, "plain", Pending);
        rig_say_hello(&r, holder(&r, "n1"));
        assert_string_equal(rig_get(&r, "movable")->assigned_node, "n1");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C34 */
static void a_copy_from_before_it_was_exclusive_is_waited_for(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__unset);
        rig_gone(&r, "n1"); /* it hears nothing of what follows */
        rig_apply(&r, exclusive(&r, "w", PB__EXCLUSIVE__E__movable));
        advance_without_n1(&r, 600000);
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n2");
        assert_null(rig_sent(&r, "n2", "w"));
        assert_int_equal(rig_explain(&r, "w")->next_at, 0); /* no time will do */
        rig_check_replay(&r);
        rig_restart(&r);
        rig_say_hello(&r, holder(&r, "n2"));
        advance_without_n1(&r, 600000);
        assert_null(rig_sent(&r, "n2", "w"));
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = "w";
        assert_int_equal(rig_ask(&r, INPUT_RELEASE, &ref)->err.code, ERR_OK);
        assert_non_null(rig_sent(&r, "n2", "w"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C34 */
static void a_deleted_and_made_again_one_waits_as_well(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        rig_gone(&r, "n1");
        rig_delete(&r, "w");
        advance_without_n1(&r, LEASE + 1500);
        assert_null(rig_get(&r, "w"));
        rig_apply(&r, exclusive(&r, "w", PB__EXCLUSIVE__E__movable));
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n2");
        assert_null(rig_sent(&r, "n2", "w"));
        advance_without_n1(&r, WAIT - LEASE);
        assert_non_null(rig_sent(&r, "n2", "w"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C34 C21 */
static void a_unit_that_its_lease_stopped_starts_again_where_it_is(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        uint64_t token = rig_get(&r, "w")->token->seq;
        Pb__UnitStatus *u = rig_unit_now(&r, "w", PB__ACTUAL_STATE__E__Stopped);
        u->reason = PB__REASON__E__lease_expired;
        rig_report(&r, "n1", u);
        assert_true(rig_get(&r, "w")->token->seq > token);
        assert_non_null(rig_sent(&r, "n1", "w"));
        assert_int_equal(rig_get(&r, "w")->retry->attempts, 0); /* nobody failed */
        rig_check_replay(&r);
        rig_fini(&r);
}

static struct effect last_beat(struct rig *r, const char *node)
{
        r->by_hand = true;
        Pb__Heartbeat beat = PB__HEARTBEAT__INIT;
        beat.clock_ms = 4711;
        struct input in = { .kind = INPUT_HEARTBEAT,
                            .now_ms = r->now,
                            .session = rig_agent(r, node)->session,
                            .msg = &beat.base };
        rig_take(r);
        core_step(r->core, &in);
        struct core_batch *b = core_cut(r->core);
        struct effect found = { 0 };
        for (size_t i = 0; b && i < b->n_effects; i++)
                if (b->effects[i].kind == EFFECT_BEAT)
                        found = b->effects[i];
        assert_non_null(b);
        assert_int_equal(b->commit.n_events, 0);
        core_batch_free(b);
        r->by_hand = false;
        return found;
}

/* R: C34 */
static void every_answer_to_a_heartbeat_renews_the_lease(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        struct effect e = last_beat(&r, "n1");
        assert_int_equal(e.clock_ms, 4711);
        assert_int_equal(e.lease_ms, LEASE);
        assert_int_equal(e.stop_ms, 5000);
        Pb__Hello *foreign = holder(&r, "foreign");
        foreign->push = true;
        foreign->agent_endpoint = "foreign.example:50051";
        rig_say_hello(&r, foreign);
        assert_int_equal(last_beat(&r, "foreign").lease_ms, 0);
        rig_fini(&r);
}

/* Leases that were given for longer still hold when the configuration says less: the wait goes down
 * only afterwards, also over a restart. R: C34 */
static void a_shorter_lease_counts_when_the_longer_ones_are_over(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        rig_config(&r, "lease: 300s\n");
        assert_int_equal(last_beat(&r, "n1").lease_ms, 300000);
        rig_gone(&r, "n1");
        rig_config(&r, "lease: 20s\n");
        assert_int_equal(last_beat(&r, "n2").lease_ms, 20000);
        rig_check_replay(&r);
        advance_without_n1(&r, 100000);
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n2");
        assert_null(rig_sent(&r, "n2", "w"));
        rig_restart(&r);
        rig_config(&r, "lease: 20s\n");
        rig_say_hello(&r, holder(&r, "n2"));
        rig_mark(&r);
        advance_without_n1(&r, 300000);
        assert_null(rig_sent(&r, "n2", "w"));
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__FencingChanged), 0);
        advance_without_n1(&r, 20000);
        assert_non_null(rig_sent(&r, "n2", "w"));
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__FencingChanged), 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* What the store forgot when it was put back may run on nodes that have not come by yet. R: C34
 * A5 */
static void after_a_restore_exclusive_units_wait_once(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__movable);
        rig_stop(&r, "w");
        rig_report(&r, "n1", rig_unit_now(&r, "w", PB__ACTUAL_STATE__E__Stopped));
        /* as a restore does it */
        struct rig_record *cluster = (struct rig_record *)rig_record(&r, "/meta/cluster");
        Pb__Cluster *c = pb__cluster__unpack(NULL, cluster->len, cluster->data);
        c->epoch++;
        c->restored = true;
        mem_free(cluster->data);
        cluster->len = pb__cluster__get_packed_size(c);
        cluster->data = mem_must(cluster->len);
        pb__cluster__pack(c, cluster->data);
        pb__cluster__free_unpacked(c, NULL);
        rig_restart(&r);
        rig_say_hello(&r, holder(&r, "n1"));
        rig_say_hello(&r, holder(&r, "n2"));
        rig_mark(&r);
        rig_start(&r, "w");
        assert_null(rig_sent(&r, "n1", "w"));
        Pb__Explanation *x = rig_explain(&r, "w");
        assert_non_null(strstr(x->summary, "put back"));
        assert_int_equal(x->next_at, r.now + WAIT);
        /* Somewhere it does run: then the time alone is not enough. */
        Pb__Hello *h = holder(&r, "n2");
        rig_hello_add(&r, h, rig_unit(&r, "w", 1, 2, PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        rig_advance_alive(&r, WAIT + 20000);
        assert_null(rig_sent(&r, "n1", "w"));
        assert_non_null(strstr(rig_explain(&r, "w")->summary, "n2"));
        Pb__UnitStatus *gone = rig_unit(&r, "w", 1, 2, PB__ACTUAL_STATE__E__Missing);
        rig_report_all(&r, "n2", false, 0, 1, &gone);
        rig_advance_alive(&r, 20000);
        assert_non_null(rig_sent(&r, "n1", "w"));
        rig_fini(&r);
}

/* A node that was fenced when the backup was made may have come back since, and have got it. R: C34
 * A5 */
static void a_fence_of_before_a_restore_says_nothing_of_what_came_after_it(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, PB__EXCLUSIVE__E__pinned);
        rig_stop(&r, "w");
        rig_report(&r, "n1", rig_unit_now(&r, "w", PB__ACTUAL_STATE__E__Stopped));
        rig_gone(&r, "n2");
        rig_advance_alive(&r, LEASE + 1000);
        Pb__NodeRef n2 = PB__NODE_REF__INIT;
        n2.id = "n2";
        rig_ask(&r, INPUT_NODE_FENCE, &n2);
        rig_advance_alive(&r, 1000);
        rig_restored(&r);
        rig_say_hello(&r, holder(&r, "n1"));
        rig_mark(&r);
        rig_start(&r, "w");
        rig_advance_alive(&r, 3 * WAIT);
        assert_null(rig_sent(&r, "n1", "w"));
        rig_ask(&r, INPUT_NODE_FENCE, &n2);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeFenced), 1);
        rig_advance_alive(&r, 20000);
        assert_non_null(rig_sent(&r, "n1", "w"));
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_new_holder_starts_only_when_the_old_lease_is_over),
                cmocka_unit_test(the_word_of_the_old_node_ends_the_wait),
                cmocka_unit_test(an_old_hello_does_not_end_the_wait),
                cmocka_unit_test(a_new_leader_counts_from_its_own_start),
                cmocka_unit_test(only_the_steady_clock_counts),
                cmocka_unit_test(a_pinned_unit_never_moves_by_the_clock),
                cmocka_unit_test(an_operators_word_moves_a_pinned_unit),
                cmocka_unit_test(a_fenced_node_is_waited_for_no_longer),
                cmocka_unit_test(only_agents_that_hold_leases_get_exclusive_units),
                cmocka_unit_test(a_copy_from_before_it_was_exclusive_is_waited_for),
                cmocka_unit_test(a_deleted_and_made_again_one_waits_as_well),
                cmocka_unit_test(a_unit_that_its_lease_stopped_starts_again_where_it_is),
                cmocka_unit_test(every_answer_to_a_heartbeat_renews_the_lease),
                cmocka_unit_test(a_shorter_lease_counts_when_the_longer_ones_are_over),
                cmocka_unit_test(after_a_restore_exclusive_units_wait_once),
                cmocka_unit_test(a_fence_of_before_a_restore_says_nothing_of_what_came_after_it),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
