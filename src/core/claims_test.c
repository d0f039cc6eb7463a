/* core/claims_test.c: what a node says that it runs, and what that is worth: warrants, healthy
 * holders, an operator's word (A13; issue A2). */
#include "core/core_testlib.h"
#include "model/pb.h"
#include "model/validate.h"

#define LOST 150 /* a sequence that the lost state reached, and the backup had not */

/* "a" runs on n1; n2 has nothing. */
static void begin(struct rig *r, enum strangers rule)
{
        struct core_options opt;
        core_options_default(&opt);
        opt.strangers = rule;
        rig_init(r, &opt);
        rig_hello(r, "n1", 4000, 4096, 10, NULL);
        rig_hello(r, "n2", 4000, 4096, 10, NULL);
        rig_wish(r, "n2", PB__NODE_WISH__E__cordoned);
        rig_apply(r, rig_workload(r, "a", 1000, 100));
        rig_runs(r, "a");
        rig_wish(r, "n2", PB__NODE_WISH__E__schedulable);
        rig_mark(r);
}

static void comes_back(struct rig *r, const char *node, Pb__UnitStatus *u)
{
        Pb__Hello *h = rig_hello_message(r, node, 4000, 4096, 10, NULL);
        h->cluster_id = ((Pb__ClusterInfo *)rig_ask(r, INPUT_CLUSTER, NULL)->msg)->cluster_id;
        h->applied = arena_new(&r->memory, Pb__Cursor);
        pb__cursor__init(h->applied);
        h->applied->epoch = 1;
        h->applied->seq = LOST + 1;
        if (u)
                rig_hello_add(r, h, u);
        rig_say_hello(r, h);
}

static Pb__UnitStatus *claim(struct rig *r, const char *id, uint64_t seq)
{
        return rig_unit(r, id, 1, seq, PB__ACTUAL_STATE__E__Running);
}

static Pb__Workload *definition(struct rig *r, const char *id, const char *revision, uint64_t seq)
{
        struct err err = { 0 };
        Pb__Workload *w = rig_workload(r, id, 500, 200);
        assert_int_equal(workload_normalise(&r->memory, w, &err), 0);
        w->revision_id = (char *)revision;
        w->desired_state = PB__DESIRED_STATE__E__Running;
        w->token = arena_new(&r->memory, Pb__Token);
        pb__token__init(w->token);
        w->token->epoch = 1;
        w->token->seq = seq;
        return w;
}

static void answer(struct rig *r, const char *node, Pb__HeldUnit *h)
{
        assert_true(rig_sent_count(r, EFFECT_DESCRIBE) > 0);
        rig_describe(r, node, 1, &h);
}

static void assert_untouched(struct rig *r)
{
        assert_string_equal(rig_get(r, "a")->assigned_node, "n1");
        assert_phase(r, "a", Running);
        assert_int_equal(rig_count(r, PB__EVENT_TYPE__E__WorkloadAdopted), 0);
        assert_int_equal(rig_count(r, PB__EVENT_TYPE__E__Rescheduled), 0);
        assert_null(rig_sent(r, "n2", "a"));
}

/* R: A13 (A2): the attack. A node claims another one's unit with a token behind the backup's head,
 * and brings a definition of its own. */
static void after_a_restore_a_forged_claim_takes_nothing(void **state)
{
        (void)state;
        for (int how = 0; how < 6; how++) {
                struct rig r;
                begin(&r, STRANGERS_KEEP);
                Pb__UnitStatus *now = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Running);
                rig_restored(&r);
                comes_back(&r, "n1", now);
                rig_mark(&r);
                comes_back(&r, "n2", claim(&r, "a", LOST));
                Pb__HeldUnit *h = rig_held(&r, how == 1 ? "n1" : "n2",
                                           definition(&r, "a", "forged", LOST), how > 0);
                if (how == 2)
                        h->definition.data[h->definition.len - 1] ^= 1;
                if (how == 3) /* one for a smaller token */
                        h->warrant =
                            rig_held(&r, "n2", definition(&r, "a", "forged", LOST - 1), true)
                                ->warrant;
                if (how == 4) /* one for another unit */
                        h->warrant =
                            rig_held(&r, "n2", definition(&r, "b", "forged", LOST), true)->warrant;
                if (how == 5)
                        h->warrant.len--;
                answer(&r, "n2", h);
                assert_untouched(&r);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__ClaimRefused), 1);
                assert_non_null(strstr(rig_last(&r, PB__EVENT_TYPE__E__ClaimRefused)->message,
                                       "berth adopt n2"));
                assert_null(rig_sent(&r, "n1", "a")); /* the healthy copy hears nothing of it */
                rig_mark(&r);
                Pb__UnitStatus *list[] = { claim(&r, "a", LOST) };
                rig_report_all(&r, "n2", true, rig_agent(&r, "n2")->applied, 1, list);
                assert_int_equal(rig_sent_count(&r, EFFECT_DESCRIBE), 0); /* it was asked once */
                assert_told(&r, "");
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13 (A2) */
static void by_the_rule_adopt_only_what_has_a_warrant_becomes_a_record(void **state)
{
        (void)state;
        for (int warranted = 0; warranted < 2; warranted++) {
                struct rig r;
                begin(&r, STRANGERS_ADOPT);
                while (r.head < LOST + 10) {
                        rig_wish(&r, "n1", PB__NODE_WISH__E__cordoned);
                        rig_wish(&r, "n1", PB__NODE_WISH__E__schedulable);
                }
                rig_mark(&r);
                comes_back(&r, "n2", claim(&r, "x", LOST));
                answer(&r, "n2", rig_held(&r, "n2", definition(&r, "x", "r", LOST), warranted));
                assert_int_equal(rig_get(&r, "x") != NULL, warranted);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__ClaimRefused), !warranted);
                assert_string_equal(rig_get(&r, "a")->assigned_node, "n1");
                assert_phase(&r, "a", Running);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13 A10: an agent of the version before answers with workloads: only an operator's word takes
 * them. */
static void an_agent_without_warrants_is_adopted_from_by_an_operators_word(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, STRANGERS_KEEP);
        rig_restored(&r);
        rig_mark(&r);
        comes_back(&r, "n1", claim(&r, "a", LOST)); /* newer than its record, on its own node */
        Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
        Pb__Workload *w = definition(&r, "a", "newer", LOST);
        d.units = &w;
        d.n_units = 1;
        rig_say(&r, INPUT_DEFINITIONS, rig_agent(&r, "n1")->session, &d, NULL);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), 0);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__ClaimRefused), 1);
        assert_int_equal(rig_node(&r, "n1")->n_strangers, 1); /* shown, until somebody says so */
        Pb__AdoptRequest q = PB__ADOPT_REQUEST__INIT;
        q.id = "n1";
        rig_mark(&r);
        assert_null(rig_try(&r, INPUT_ADOPT, &q));
        rig_say(&r, INPUT_DEFINITIONS, rig_agent(&r, "n1")->session, &d, NULL);
        assert_int_equal(((Pb__AdoptResponse *)r.replies.at[r.replies.len - 1].msg)->n_adopted, 1);
        assert_string_equal(rig_get(&r, "a")->revision_id, "newer");
        struct rig_effect *told = rig_sent(&r, "n1", "a"); /* and so it gets its warrant */
        assert_int_equal(told->unit->warrant.len, WARRANT_BYTES);
        assert_int_equal(rig_node(&r, "n1")->n_strangers, 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* It had moved to n2 since, which was empty and drained when the backup was made: that drain goes
 * on, and has a deadline, which has passed.  R: C12 A13 */
static void what_is_found_on_a_drained_node_has_its_drains_deadline(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, STRANGERS_KEEP);
        Pb__SetNodeWishRequest wish = PB__SET_NODE_WISH_REQUEST__INIT;
        wish.id = "n2";
        wish.wish = PB__NODE_WISH__E__draining;
        wish.deadline_seconds = 1;
        rig_ask(&r, INPUT_NODE_WISH, &wish);
        assert_true(rig_node(&r, "n2")->drain->finished_at > 0);
        rig_advance_alive(&r, 5000);
        rig_restored(&r);
        comes_back(&r, "n2", claim(&r, "a", LOST));
        Pb__HeldUnit *h = rig_held(&r, "n2", definition(&r, "a", "r2", LOST), true);
        rig_describe(&r, "n2", 1, &h);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), 1);
        /* at once; the rig looks at (D3) after every step */
        assert_string_not_equal(rig_get(&r, "a")->assigned_node, "n2");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A13 (A2) */
static void a_healthy_holder_weighs_more_than_an_operators_word_for_a_claim(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, STRANGERS_KEEP);
        Pb__UnitStatus *now = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Running);
        rig_restored(&r);
        comes_back(&r, "n1", now);
        comes_back(&r, "n2", claim(&r, "a", LOST));
        answer(&r, "n2", rig_held(&r, "n2", definition(&r, "a", "forged", LOST), false));
        Pb__AdoptRequest q = PB__ADOPT_REQUEST__INIT;
        q.id = "n2";
        rig_mark(&r);
        assert_null(rig_try(&r, INPUT_ADOPT, &q));
        answer(&r, "n2", rig_held(&r, "n2", definition(&r, "a", "forged", LOST), false));
        Pb__AdoptResponse *a = (Pb__AdoptResponse *)r.replies.at[r.replies.len - 1].msg;
        assert_int_equal(a->n_refused, 1);
        assert_non_null(strstr(a->refused[0], "node n1 has it"));
        assert_untouched(&r);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A13 (A2): n2 had it with the smaller of two forgotten tokens, n1 with the greater. */
static void of_two_valid_warrants_the_greater_token_wins_also_when_it_comes_later(void **state)
{
        (void)state;
        for (int later = 0; later < 2; later++) {
                struct rig r;
                begin(&r, STRANGERS_KEEP);
                rig_restored(&r);
                rig_mark(&r);
                for (int turn = 0; turn < 2; turn++) {
                        bool greater = turn == later;
                        const char *node = greater ? "n1" : "n2";
                        uint64_t seq = greater ? LOST + 20 : LOST;
                        comes_back(&r, node, claim(&r, "a", seq));
                        Pb__HeldUnit *h = rig_held(
                            &r, node, definition(&r, "a", greater ? "greater" : "smaller", seq),
                            true);
                        rig_describe(&r, node, 1, &h);
                }
                assert_string_equal(rig_get(&r, "a")->revision_id, "greater");
                assert_string_equal(rig_get(&r, "a")->assigned_node, "n1");
                assert_int_equal(rig_get(&r, "a")->token->seq, LOST + 20);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadLaunched), 0);
                struct rig_effect *told = rig_sent(&r, "n1", "a");
                assert_int_equal(told->unit->desired_state, PB__DESIRED_STATE__E__Running);
                rig_check_replay(&r);
                rig_restart(&r);
                assert_string_equal(rig_get(&r, "a")->assigned_node, "n1");
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* n2 had the smaller of two forgotten tokens and was heard first: "a" is there. The greater one
 * comes later, from n1. */
#define GREATER (LOST + 20)

static void smaller_is_adopted(struct rig *r)
{
        begin(r, STRANGERS_KEEP);
        rig_restored(r);
        comes_back(r, "n2", claim(r, "a", LOST));
        Pb__HeldUnit *h = rig_held(r, "n2", definition(r, "a", "smaller", LOST), true);
        rig_describe(r, "n2", 1, &h);
        assert_string_equal(rig_get(r, "a")->assigned_node, "n2");
}

/* The server orders a newer start by itself. */
static void is_launched_anew(struct rig *r)
{
        rig_exits(r, "a", 1);
        rig_advance_alive(r, 6000);
        assert_phase(r, "a", Scheduled);
        assert_true(rig_get(r, "a")->token->epoch > 1);
        rig_runs(r, "a");
}

static void greater_comes(struct rig *r, Pb__Workload *w, bool warranted)
{
        rig_mark(r);
        comes_back(r, "n1", claim(r, "a", GREATER));
        if (rig_sent_count(r, EFFECT_DESCRIBE)) {
                Pb__HeldUnit *h =
                    rig_held(r, "n1", w ? w : definition(r, "a", "greater", GREATER), warranted);
                rig_describe(r, "n1", 1, &h);
        }
}

/* R: A13 A5 C34: the greater one wins, also over an order that goes back to the smaller one; and
 * gets the greatest token of all. */
static void the_greater_warrant_wins_also_over_a_newer_start_of_the_smaller_one(void **state)
{
        (void)state;
        enum { RUNS, SERVER_RESTARTED, MOVED, WAITS, HOW };
        for (int how = 0; how < HOW; how++) {
                struct rig r;
                smaller_is_adopted(&r);
                is_launched_anew(&r);
                uint64_t seq = rig_get(&r, "a")->token->seq, epoch = rig_get(&r, "a")->token->epoch;
                const char *holder = "n2";
                if (how == SERVER_RESTARTED) {
                        Pb__UnitStatus *u = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Running);
                        rig_restart(&r);
                        comes_back(&r, "n2", u);
                }
                if (how == MOVED) {
                        rig_hello(&r, "n3", 4000, 4096, 10, NULL);
                        rig_wish(&r, "n2", PB__NODE_WISH__E__draining);
                        rig_is_gone(&r, "a", "n2");
                        holder = "n3";
                        rig_runs(&r, "a");
                        seq = rig_get(&r, "a")->token->seq;
                }
                if (how == WAITS) {
                        rig_wish(&r, "n2", PB__NODE_WISH__E__cordoned);
                        rig_gone(&r, "n2");
                        rig_advance(&r, 95000);
                        holder = NULL;
                        rig_hello(&r, "n4", 10, 10, 1, NULL); /* too small: it has nowhere to go */
                        rig_advance_alive(&r, 1000);
                }
                if (holder)
                        assert_string_equal(rig_get(&r, "a")->assigned_node, holder);
                greater_comes(&r, NULL, true);
                Pb__Workload *a = rig_get(&r, "a");
                assert_string_equal(a->assigned_node, "n1");
                assert_string_equal(a->revision_id, "greater");
                /* greater than what ran elsewhere: what compares tokens takes it */
                assert_int_equal(a->token->epoch, epoch);
                assert_true(a->token->seq > seq);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), 1);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadLaunched), 1);
                rig_check_replay(&r);
                if (holder) {
                        assert_int_equal(rig_sent(&r, holder, "a")->unit->desired_state,
                                         PB__DESIRED_STATE__E__Deleted);
                        assert_int_equal(rig_sent(&r, holder, "a")->unit->token->seq, seq);
                        /* it runs on as it is until the other one is proved gone */
                        assert_null(rig_sent(&r, "n1", "a"));
                        rig_is_gone(&r, "a", holder);
                }
                struct rig_effect *told = rig_sent(&r, "n1", "a");
                assert_int_equal(told->unit->token->seq, a->token->seq);
                assert_string_equal(told->unit->workload->revision_id, "greater");
                rig_runs(&r, "a");
                assert_phase(&r, "a", Running);
                assert_int_equal(rig_node(&r, "n1")->n_strangers, 0);
                rig_check_replay(&r);
                rig_restart(&r);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13 A5: the newer start was ordered on the very node that runs the greater one, before it was
 * heard. */
static void a_retry_from_before_the_backup_does_not_replace_what_was_started_since(void **state)
{
        (void)state;
        for (int warranted = 0; warranted < 2; warranted++) {
                struct rig r;
                begin(&r, STRANGERS_KEEP);
                rig_exits(&r, "a", 1); /* in the backup it waits for its next attempt */
                rig_restored(&r);
                rig_advance(&r, 6000);
                assert_string_equal(rig_get(&r, "a")->assigned_node, "n1");
                uint64_t seq = rig_get(&r, "a")->token->seq;
                assert_true(rig_get(&r, "a")->token->epoch > 1);
                greater_comes(&r, NULL, warranted);
                struct rig_effect *told = rig_sent(&r, "n1", "a");
                assert_int_equal(told->unit->token->seq > seq, warranted);
                assert_int_equal(strcmp(told->unit->workload->revision_id, "greater") == 0,
                                 warranted);
                size_t orders = 0;
                for (size_t i = r.effect_mark; i < r.effects.len; i++)
                        orders += r.effects.at[i].kind == EFFECT_PLAN_UNIT;
                assert_int_equal(orders, 1); /* nothing was sent before that was known */
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__ClaimRefused), !warranted);
                rig_runs(&r, "a");
                assert_phase(&r, "a", Running);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13 A5: whatever somebody has asked for since the restore is newer than all that it forgot. */
static void what_was_asked_for_since_the_restore_stands(void **state)
{
        (void)state;
        enum { CHANGED, STOPPED_AND_STARTED, RELABELLED, WAITING, NEW, HOW };
        for (int how = 0; how < HOW; how++) {
                struct rig r;
                Pb__Workload *w;
                if (how == WAITING || how == NEW) {
                        begin(&r, STRANGERS_KEEP);
                        if (how == NEW)
                                rig_delete(&r, "a"), rig_is_gone(&r, "a", "n1");
                        rig_wish(&r, "n2", PB__NODE_WISH__E__cordoned);
                        rig_wish(&r, "n1", PB__NODE_WISH__E__cordoned);
                        if (how == WAITING)
                                rig_exits(&r, "a", 1);
                        rig_restored(&r);
                        w = rig_workload(&r, "a", 100000, 100); /* more than any node has */
                } else {
                        smaller_is_adopted(&r);
                        w = rig_workload(&r, "a", 700, 100);
                }
                if (how == RELABELLED) {
                        w = rig_workload(&r, "a", 500, 200);
                        rig_label(&r, w, "x", "y");
                }
                if (how == STOPPED_AND_STARTED) {
                        rig_stop(&r, "a");
                        rig_report(&r, "n2", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Stopped));
                        rig_start(&r, "a");
                } else
                        assert_refused(rig_apply(&r, w), ERR_OK);
                if (how != WAITING && how != NEW) {
                        rig_runs(&r, "a");
                        is_launched_anew(&r);
                }
                rig_restart(&r);
                greater_comes(&r, NULL, true);
                assert_string_not_equal(rig_get(&r, "a")->revision_id, "greater");
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), 0);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13 C34: an exclusive unit was started elsewhere only when nothing of it could run any more,
 * and a job runs once. Both are left alone, and an operator sees and decides. */
static void what_must_not_run_twice_or_again_is_left_to_an_operator(void **state)
{
        (void)state;
        for (int job = 0; job < 2; job++) {
                struct rig r;
                begin(&r, STRANGERS_KEEP);
                rig_restored(&r);
                Pb__Workload *small = definition(&r, "a", "smaller", LOST),
                             *great = definition(&r, "a", "greater", GREATER);
                if (job)
                        small->restart = great->restart = PB__RESTART__E__never;
                else
                        small->exclusive = great->exclusive = PB__EXCLUSIVE__E__pinned;
                comes_back(&r, "n2", claim(&r, "a", LOST));
                Pb__HeldUnit *h = rig_held(&r, "n2", small, true);
                rig_describe(&r, "n2", 1, &h);
                rig_exits(&r, "a", 1);
                if (job)
                        rig_retry(&r, "a");
                else {
                        Pb__NodeRef q = PB__NODE_REF__INIT;
                        q.id = "n1";
                        rig_advance_alive(&r, 95000);
                        /* an operator was sure that it is off */
                        assert_refused(rig_ask(&r, INPUT_NODE_FENCE, &q), ERR_OK);
                        rig_advance_alive(&r, 50000);
                }
                rig_runs(&r, "a");
                assert_true(rig_get(&r, "a")->token->epoch > 1);
                greater_comes(&r, great, true);
                assert_string_equal(rig_get(&r, "a")->assigned_node, "n2");
                assert_string_equal(rig_get(&r, "a")->revision_id, "smaller");
                assert_phase(&r, "a", Running);
                assert_null(rig_sent(&r, "n1", "a"));
                assert_null(rig_sent(&r, "n2", "a"));
                /* It is told, shown, and not taken by mistake. */
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__UnitUnknown), 1);
                assert_string_equal(rig_node(&r, "n1")->strangers[0], "a");
                Pb__AdoptRequest q = PB__ADOPT_REQUEST__INIT;
                q.id = "n1";
                rig_mark(&r);
                assert_null(rig_try(&r, INPUT_ADOPT, &q));
                answer(&r, "n1", rig_held(&r, "n1", great, true));
                Pb__AdoptResponse *a = (Pb__AdoptResponse *)r.replies.at[r.replies.len - 1].msg;
                assert_int_equal(a->n_refused, 1);
                assert_non_null(strstr(a->refused[0],
                                       "a newer start was ordered on node n2; to keep this copy "
                                       "instead delete the workload first"));
                if (!job) { /* it does not start again while that one says that it runs */
                        rig_exits(&r, "a", 1);
                        rig_mark(&r);
                        rig_advance_alive(&r, 25000);
                        assert_phase(&r, "a", Scheduled);
                        assert_null(rig_sent(&r, "n2", "a"));
                        assert_non_null(strstr(rig_explain(&r, "a")->summary, "n1"));
                }
                /* As it says. */
                rig_delete(&r, "a");
                rig_is_gone(&r, "a", "n2");
                assert_null(rig_get(&r, "a"));
                rig_mark(&r);
                assert_null(rig_try(&r, INPUT_ADOPT, &q));
                answer(&r, "n1", rig_held(&r, "n1", great, true));
                assert_string_equal(rig_get(&r, "a")->assigned_node, "n1");
                assert_string_equal(rig_get(&r, "a")->revision_id, "greater");
                assert_phase(&r, "a", Running);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13: without a warrant nothing follows, whatever was launched since. */
static void a_newer_start_is_not_taken_away_by_a_claim(void **state)
{
        (void)state;
        struct rig r;
        smaller_is_adopted(&r);
        is_launched_anew(&r);
        greater_comes(&r, NULL, false);
        assert_string_equal(rig_get(&r, "a")->assigned_node, "n2");
        assert_phase(&r, "a", Running);
        assert_null(rig_sent(&r, "n2", "a"));
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__ClaimRefused), 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A13 C34: a claim must not keep an exclusive workload of others from starting. */
static void a_claim_holds_back_no_exclusive_workload_of_others(void **state)
{
        (void)state;
        for (int warranted = 0; warranted < 2; warranted++) {
                struct rig r;
                rig_init(&r, NULL);
                rig_hello(&r, "n2", 4000, 4096, 10, NULL);
                while (r.head < LOST + 10) {
                        rig_wish(&r, "n2", PB__NODE_WISH__E__cordoned);
                        rig_wish(&r, "n2", PB__NODE_WISH__E__schedulable);
                }
                comes_back(&r, "n2", claim(&r, "x", LOST));
                Pb__Workload *w = rig_workload(&r, "x", 100, 10);
                w->exclusive = PB__EXCLUSIVE__E__pinned;
                rig_apply(&r, w);
                Pb__UnitStatus *list[] = { claim(&r, "x", LOST) };
                rig_mark(&r);
                rig_report_all(&r, "n2", true, rig_agent(&r, "n2")->applied, 1, list);
                answer(&r, "n2", rig_held(&r, "n2", definition(&r, "x", "r", LOST), warranted));
                Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
                Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process };
                h->exclusive_types = types;
                h->n_exclusive_types = 1;
                rig_say_hello(&r, h);
                assert_string_equal(rig_get(&r, "x")->assigned_node, "n1");
                /* what was ordered there is waited for */
                assert_int_equal(rig_sent(&r, "n1", "x") != NULL, !warranted);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13 */
static void what_leaves_for_an_agent_carries_a_warrant_for_that_agent(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_mark(&r);
        rig_apply(&r, rig_workload(&r, "a", 1000, 100));
        struct rig_effect *told = rig_sent(&r, "n1", "a");
        assert_int_equal(told->unit->warrant.len, WARRANT_BYTES);
        uint8_t first[WARRANT_BYTES];
        memcpy(first, told->unit->warrant.data, sizeof(first));
        rig_runs(&r, "a");
        rig_mark(&r);
        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
        rig_hello_add(&r, h, rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h); /* the same order has the same warrant */
        told = rig_sent(&r, "n1", "a");
        assert_memory_equal(told->unit->warrant.data, first, sizeof(first));
        rig_mark(&r);
        rig_delete(&r, "a");
        /* nothing to run, nothing to prove */
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->warrant.len, 0);
        rig_fini(&r);
}

/* R: A13 C4: foreign agents keep neither definitions nor warrants. */
static void nothing_of_a_foreign_agent_is_ever_adopted(void **state)
{
        (void)state;
        struct rig r;
        begin(&r, STRANGERS_ADOPT);
        Pb__Hello *h = rig_hello_message(&r, "n3", 4000, 4096, 10, NULL);
        h->push = true;
        rig_say_hello(&r, h);
        rig_wish(&r, "n1", PB__NODE_WISH__E__cordoned);
        rig_wish(&r, "n2", PB__NODE_WISH__E__cordoned);
        rig_mark(&r);
        rig_apply(&r, rig_workload(&r, "b", 100, 10));
        assert_int_equal(rig_sent(&r, "n3", "b")->unit->warrant.len, 0);
        Pb__UnitStatus *list[] = { claim(&r, "x", 1) };
        rig_report_all(&r, "n3", true, rig_agent(&r, "n3")->applied, 1, list);
        assert_int_equal(rig_sent_count(&r, EFFECT_DESCRIBE), 0);
        Pb__AdoptRequest q = PB__ADOPT_REQUEST__INIT;
        q.id = "n3";
        assert_refused(rig_ask(&r, INPUT_ADOPT, &q), ERR_CONFLICT);
        assert_null(rig_get(&r, "x"));
        rig_fini(&r);
}

/* R: A13 A3: the key's fingerprint is noted, by an event, and a restore says whether it has the
 * key. */
static void the_keys_fingerprint_is_an_event_and_a_record(void **state)
{
        (void)state;
        struct rig r;
        struct core_options opt;
        core_options_default(&opt);
        rig_init(&r, &opt); /* a store of a berth that knew no key */
        assert_string_equal(core_key_fingerprint(r.core), "");
        r.opt.key_fingerprint = "00112233445566778899aabbccddeeff";
        rig_mark(&r);
        rig_restart(&r);
        assert_told(&r, "ClusterKeyChanged");
        assert_string_equal(core_key_fingerprint(r.core), r.opt.key_fingerprint);
        rig_check_replay(&r);
        rig_mark(&r);
        rig_restart(&r);
        assert_told(&r, "");
        r.opt.key_fingerprint = "ffeeddccbbaa99887766554433221100";
        rig_restart(&r);
        assert_told(&r, "ClusterKeyChanged");
        rig_check_replay(&r);
        r.opt.key_fingerprint = NULL; /* restored without the key */
        rig_restored(&r);
        assert_string_equal(core_key_fingerprint(r.core), "");
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(after_a_restore_a_forged_claim_takes_nothing),
                cmocka_unit_test(by_the_rule_adopt_only_what_has_a_warrant_becomes_a_record),
                cmocka_unit_test(an_agent_without_warrants_is_adopted_from_by_an_operators_word),
                cmocka_unit_test(what_is_found_on_a_drained_node_has_its_drains_deadline),
                cmocka_unit_test(a_healthy_holder_weighs_more_than_an_operators_word_for_a_claim),
                cmocka_unit_test(
                    of_two_valid_warrants_the_greater_token_wins_also_when_it_comes_later),
                cmocka_unit_test(
                    the_greater_warrant_wins_also_over_a_newer_start_of_the_smaller_one),
                cmocka_unit_test(
                    a_retry_from_before_the_backup_does_not_replace_what_was_started_since),
                cmocka_unit_test(what_was_asked_for_since_the_restore_stands),
                cmocka_unit_test(what_must_not_run_twice_or_again_is_left_to_an_operator),
                cmocka_unit_test(a_newer_start_is_not_taken_away_by_a_claim),
                cmocka_unit_test(a_claim_holds_back_no_exclusive_workload_of_others),
                cmocka_unit_test(what_leaves_for_an_agent_carries_a_warrant_for_that_agent),
                cmocka_unit_test(nothing_of_a_foreign_agent_is_ever_adopted),
                cmocka_unit_test(the_keys_fingerprint_is_an_event_and_a_record),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
