/* core/adopt_test.c: a node's list and the records differ: who is told, what is left alone, what is
 * taken over, and what is removed. */
#include "core/core_testlib.h"
#include "model/validate.h"

/* n1 says hello with units that the records do not know. */
static uint64_t node_with_strangers(struct rig *r, const char *cluster, unsigned n, uint64_t epoch)
{
        Pb__Hello *h = rig_hello_message(r, "n1", 4000, 4096, 10, NULL);
        h->cluster_id = (char *)cluster;
        h->applied = arena_new(&r->memory, Pb__Cursor);
        pb__cursor__init(h->applied);
        h->applied->epoch = epoch;
        for (unsigned i = 0; i < n; i++)
                rig_hello_add(r, h,
                              rig_unit(r, arena_printf(&r->memory, "s%u", i), epoch, 500 + i,
                                       PB__ACTUAL_STATE__E__Running));
        h->applied->seq = strcmp(cluster, "other") == 0 ? 1000 : 0;
        return rig_say_hello(r, h);
}

static const struct rig_reply *adopt(struct rig *r, const char *node, const char *id)
{
        Pb__AdoptRequest *q = arena_new(&r->memory, Pb__AdoptRequest);
        pb__adopt_request__init(q);
        q->id = (char *)node;
        if (id) {
                q->workload_ids = arena_new_n(&r->memory, char *, 1);
                q->workload_ids[0] = (char *)id;
                q->n_workload_ids = 1;
        }
        return rig_try(r, INPUT_ADOPT, q);
}

/* The agent answers what it was asked last. */
static void describe(struct rig *r, uint64_t session, uint64_t epoch, bool warranted)
{
        Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
        for (size_t i = r->effects.len; i > r->effect_mark; i--) {
                const struct rig_effect *e = &r->effects.at[i - 1];
                if (e->kind != EFFECT_DESCRIBE || e->session != session)
                        continue;
                assert_true(e->describe->held);
                d.held = arena_new_n(&r->memory, Pb__HeldUnit *, e->describe->n_unit_ids);
                for (size_t k = 0; k < e->describe->n_unit_ids; k++) {
                        Pb__Workload *w = rig_workload(r, e->describe->unit_ids[k], 500, 100);
                        struct err err = { 0 };
                        assert_int_equal(workload_normalise(&r->memory, w, &err), 0);
                        w->revision_id = "as-it-was";
                        w->desired_state = PB__DESIRED_STATE__E__Running;
                        w->token = arena_new(&r->memory, Pb__Token);
                        pb__token__init(w->token);
                        w->token->epoch = epoch;
                        w->token->seq = 500 + k;
                        d.held[d.n_held++] = rig_held(r, "n1", w, warranted);
                }
                break;
        }
        assert_true(d.n_held > 0);
        rig_say(r, INPUT_DEFINITIONS, session, &d, NULL);
}

static const char *cluster_of(struct rig *r)
{
        const struct rig_reply *reply = rig_ask(r, INPUT_CLUSTER, NULL);
        return ((Pb__ClusterInfo *)reply->msg)->cluster_id;
}

/* A store that has seen enough for tokens of 500 to be its own past. */
static void busy(struct rig *r, const struct core_options *opt)
{
        rig_init(r, opt);
        rig_hello(r, "n2", 4000, 4096, 10, NULL);
        while (r->head < 600) {
                rig_wish(r, "n2", PB__NODE_WISH__E__cordoned);
                rig_wish(r, "n2", PB__NODE_WISH__E__schedulable);
        }
        rig_mark(r);
}

/* R: C27 A6 */
static void a_heartbeat_that_differs_from_what_was_reported_asks_for_the_list_once(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 100));
        rig_runs(&r, "a");
        rig_mark(&r);
        rig_beat(&r, "n1");
        assert_int_equal(rig_sent_count(&r, EFFECT_LIST), 0);
        Pb__Heartbeat lost = PB__HEARTBEAT__INIT; /* it holds nothing, and nobody was told */
        rig_say(&r, INPUT_HEARTBEAT, rig_agent(&r, "n1")->session, &lost, NULL);
        assert_int_equal(rig_sent_count(&r, EFFECT_LIST), 1);
        rig_say(&r, INPUT_HEARTBEAT, rig_agent(&r, "n1")->session, &lost, NULL);
        assert_int_equal(rig_sent_count(&r, EFFECT_LIST), 1);
        /* a heartbeat from a node that lost a workload changes nothing by itself */
        assert_told(&r, "");
        assert_phase(&r, "a", Running);
        rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 0, NULL);
        assert_told(&r, "WorkloadLaunched");
        assert_int_equal(rig_last(&r, PB__EVENT_TYPE__E__WorkloadLaunched)->reason,
                         PB__REASON__E__lost_by_agent);
        rig_mark(&r);
        rig_beat(&r, "n1");
        assert_int_equal(rig_sent_count(&r, EFFECT_LIST), 0); /* the list has settled it */
        rig_fini(&r);
}

static int64_t strangers_of_all(struct rig *r)
{
        return ((Pb__ClusterInfo *)rig_ask(r, INPUT_CLUSTER, NULL)->msg)->strangers;
}

/* Whatever the order of a list, the same strangers are known after it; of two words on one unit the
 * last one counts. R: C27 A13 (E6) */
static void strangers_are_the_same_in_any_order(void **state)
{
        (void)state;
        enum { N = 3000 };
        struct rig r;
        busy(&r, NULL);
        node_with_strangers(&r, cluster_of(&r), 0, 1);
        Pb__UnitStatus **all = arena_new_n(&r.memory, Pb__UnitStatus *, N);
        for (unsigned i = 0; i < N; i++) /* descending: each new one comes before all others */
                all[i] = rig_unit(&r, arena_printf(&r.memory, "s%05u", N - 1 - i), 1, 500,
                                  PB__ACTUAL_STATE__E__Running);
        rig_report_all(&r, "n1", true, r.head, N, all);
        Pb__Node *n = rig_node(&r, "n1");
        assert_int_equal(strangers_of_all(&r), N);
        assert_string_equal(n->strangers[0], "s00000");
        for (unsigned i = 0; i < N / 2; i++) /* every other one is gone */
                all[i] = all[2 * i];
        rig_report_all(&r, "n1", true, r.head, N / 2, all);
        assert_int_equal(strangers_of_all(&r), N / 2);
        Pb__UnitStatus *twice[] = { rig_unit(&r, "t", 1, 500, PB__ACTUAL_STATE__E__Running),
                                    rig_unit(&r, "s", 1, 500, PB__ACTUAL_STATE__E__Running),
                                    rig_unit(&r, "t", 1, 500, PB__ACTUAL_STATE__E__Missing) };
        rig_report_all(&r, "n1", true, r.head, 3, twice);
        n = rig_node(&r, "n1");
        assert_int_equal(n->n_strangers, 1);
        assert_string_equal(n->strangers[0], "s");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C27 A5 B-8 */
static void strangers_are_told_of_once_and_left_alone(void **state)
{
        (void)state;
        struct rig r;
        busy(&r, NULL);
        node_with_strangers(&r, cluster_of(&r), 2, 1);
        assert_told(&r, "NodeRegistered UnitUnknown");
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 0);
        Pb__Node *n = rig_node(&r, "n1");
        assert_int_equal(n->n_strangers, 2);
        assert_string_equal(n->strangers[1], "s1");
        rig_mark(&r);
        Pb__UnitStatus *all[] = { rig_unit(&r, "s0", 1, 500, PB__ACTUAL_STATE__E__Running),
                                  rig_unit(&r, "s1", 1, 501, PB__ACTUAL_STATE__E__Running) };
        rig_report_all(&r, "n1", true, r.head, 2, all);
        assert_told(&r, "");
        rig_report_all(&r, "n1", true, r.head, 1, all); /* one has gone */
        assert_int_equal(rig_node(&r, "n1")->n_strangers, 1);
        assert_told(&r, "");
        /* A workload of that name does not take its place by the way. */
        rig_wish(&r, "n2", PB__NODE_WISH__E__cordoned);
        rig_apply(&r, rig_workload(&r, "s0", 100, 10));
        assert_phase(&r, "s0", Pending);
        rig_apply(&r, rig_workload(&r, "other", 100, 10));
        assert_string_equal(rig_get(&r, "other")->assigned_node, "n1");
        rig_wish(&r, "n2", PB__NODE_WISH__E__schedulable);
        assert_string_equal(rig_get(&r, "s0")->assigned_node, "n2");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C27 */
static void an_operator_adopts_what_a_node_runs_and_nothing_restarts(void **state)
{
        (void)state;
        struct rig r;
        busy(&r, NULL);
        uint64_t s = node_with_strangers(&r, cluster_of(&r), 3, 1);
        rig_mark(&r);
        assert_int_equal(adopt(&r, "n1", "nobody")->err.code, ERR_NOT_FOUND);
        assert_null(adopt(&r, "n1", "s1")); /* the answer waits for the agent's */
        assert_int_equal(rig_sent_count(&r, EFFECT_DESCRIBE), 1);
        Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
        Pb__Workload *w = rig_workload(&r, "s1", 500, 100);
        struct err err = { 0 };
        assert_int_equal(workload_normalise(&r.memory, w, &err), 0);
        w->revision_id = "as-it-was";
        d.units = &w;
        d.n_units = 1;
        rig_say(&r, INPUT_DEFINITIONS, s, &d, NULL);
        assert_told(&r, "WorkloadAdopted");
        const struct rig_reply *reply = &r.replies.at[r.replies.len - 1];
        Pb__AdoptResponse *a = (Pb__AdoptResponse *)reply->msg;
        assert_int_equal(a->n_adopted, 1);
        assert_string_equal(a->adopted[0], "s1");
        assert_int_equal(a->node->n_strangers, 2);
        Pb__Workload *got = rig_get(&r, "s1");
        assert_int_equal(got->status->phase, PB__PHASE__E__Running);
        assert_string_equal(got->assigned_node, "n1");
        assert_string_equal(got->revision_id, "as-it-was");
        assert_int_equal(got->token->seq, 501);
        assert_string_equal(got->metadata->last_action, "Adopt");
        struct rig_effect *told = rig_sent(&r, "n1", "s1"); /* exactly what it runs */
        assert_int_equal(told->unit->token->seq, 501);
        assert_string_equal(told->unit->workload->revision_id, "as-it-was");
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 500);
        rig_check_replay(&r);
        /* From now on it is a workload like any other. */
        rig_mark(&r);
        rig_exits(&r, "s1", 1);
        rig_advance_alive(&r, 5000);
        assert_told(&r, "RetryScheduled RetryTriggered WorkloadLaunched");
        /* The rest, all at once. */
        rig_mark(&r);
        assert_null(adopt(&r, "n1", NULL));
        describe(&r, s, 1, false); /* an operator's word needs no warrant */
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), 2);
        assert_int_equal(rig_node(&r, "n1")->n_strangers, 0);
        assert_non_null(adopt(&r, "n1", NULL)); /* nothing is left */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C27 A9 */
static void a_unit_that_cannot_be_adopted_is_named_with_the_reason(void **state)
{
        (void)state;
        struct rig r;
        busy(&r, NULL);
        uint64_t s = node_with_strangers(&r, cluster_of(&r), 3, 1);
        rig_wish(&r, "n1", PB__NODE_WISH__E__cordoned);
        rig_apply(&r, rig_workload(&r, "s0", 100, 10)); /* the name is taken meanwhile */
        rig_mark(&r);
        adopt(&r, "n1", NULL);
        Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
        Pb__Workload *w[] = { rig_workload(&r, "s0", 100, 10), rig_workload(&r, "s1", -5, 10),
                              rig_workload(&r, "s2", 1, 1) };
        w[2]->type = 0; /* found running, its record lost */
        d.units = w;
        d.n_units = 3;
        rig_say(&r, INPUT_DEFINITIONS, s, &d, NULL);
        Pb__AdoptResponse *a = (Pb__AdoptResponse *)r.replies.at[r.replies.len - 1].msg;
        assert_int_equal(a->n_adopted, 0);
        assert_int_equal(a->n_refused, 3);
        assert_string_equal(a->refused[0], "s0: a workload of this name exists");
        assert_told(&r, "");
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C27 */
static void an_agent_that_goes_away_ends_an_adoption(void **state)
{
        (void)state;
        struct rig r;
        busy(&r, NULL);
        node_with_strangers(&r, cluster_of(&r), 1, 1);
        adopt(&r, "n1", NULL);
        rig_gone(&r, "n1");
        assert_int_equal(r.replies.at[r.replies.len - 1].err.code, ERR_UNAVAILABLE);
        assert_int_equal(adopt(&r, "n1", NULL)->err.code, ERR_UNAVAILABLE);
        rig_fini(&r);
}

/* R: C27 A5 */
static void only_what_this_store_surely_forgot_is_removed_by_rule(void **state)
{
        (void)state;
        struct core_options opt;
        struct rig r;
        core_options_default(&opt);
        opt.strangers = STRANGERS_REMOVE;
        for (int sure = 0; sure < 3; sure++) {
                busy(&r, &opt);
                /* An agent that does not say its cluster; a token of an event to come; and one that
                 * is surely ours. */
                Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
                h->cluster_id = sure == 0 ? "" : (char *)cluster_of(&r);
                rig_hello_add(&r, h,
                              rig_unit(&r, "s", 1, sure == 1 ? r.head + 100 : 500,
                                       PB__ACTUAL_STATE__E__Running));
                rig_mark(&r);
                rig_say_hello(&r, h);
                assert_told(&r, sure == 2 ? "NodeRegistered DriftDetected"
                                          : "NodeRegistered UnitUnknown");
                rig_mark(&r);
                Pb__UnitStatus *all[] = { h->units[0] };
                rig_report_all(&r, "n1", true, r.head, 1, all);
                assert_told(&r, "");
                assert_int_equal(rig_sent(&r, "n1", "s") != NULL, sure == 2);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: C27 */
static void strangers_are_adopted_by_rule(void **state)
{
        (void)state;
        struct core_options opt;
        struct rig r;
        core_options_default(&opt);
        opt.strangers = STRANGERS_ADOPT;
        busy(&r, &opt);
        uint64_t s = node_with_strangers(&r, cluster_of(&r), 2, 1);
        describe(&r, s, 1, true);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), 2);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A5 C27 B-8 */
static void a_server_on_an_empty_store_destroys_nothing_and_offers_to_adopt(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        uint64_t s = node_with_strangers(&r, "other", 2, 7);
        assert_told(&r, "");
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 0);
        Pb__Node *n = rig_node(&r, "n1");
        assert_true(n->foreign);
        assert_string_equal(
            n->status_reason,
            "belongs to cluster other and runs 2 units; berth adopt n1 takes it over");
        Pb__ListNodesRequest list = PB__LIST_NODES_REQUEST__INIT;
        assert_int_equal(
            ((Pb__ListNodesResponse *)rig_ask(&r, INPUT_LIST_NODES, &list)->msg)->n_items, 1);
        rig_mark(&r);
        Pb__AdoptResponse *a = (Pb__AdoptResponse *)adopt(&r, "n1", NULL)->msg;
        assert_told(&r, "NodeAdopted");
        assert_string_equal(a->node->adopted_from, "other");
        rig_check_replay(&r);
        rig_restart(&r); /* the operator's word is not forgotten */
        rig_mark(&r);
        s = node_with_strangers(&r, "other", 2, 7);
        bool let_in = false;
        for (size_t i = r.effect_mark; i < r.effects.len; i++)
                let_in |= r.effects.at[i].kind == EFFECT_WELCOME &&
                          r.effects.at[i].welcome->accepted && r.effects.at[i].welcome->adopt;
        assert_true(let_in);
        describe(&r, s, 7, false); /* taken over by an operator's word */
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), 2);
        assert_phase(&r, "s1", Running);
        assert_int_equal(rig_get(&r, "s1")->token->epoch, 7);
        assert_int_equal(rig_sent(&r, "n1", "s1")->unit->token->seq, 501);
        rig_check_replay(&r);
        rig_restart(&r);
        assert_int_equal(rig_get(&r, "s1")->token->seq, 501);
        /* The next launch beats the token of the other cluster. */
        s = node_with_strangers(&r, cluster_of(&r), 2, 7);
        rig_mark(&r);
        rig_apply(&r, rig_workload(&r, "s1", 600, 100));
        assert_int_equal(rig_sent(&r, "n1", "s1")->unit->token->epoch, 8);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A5 */
static void another_clusters_unit_with_a_name_that_is_taken_is_left_alone(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n2", 4000, 4096, 10, NULL);
        rig_apply(&r, rig_workload(&r, "s0", 100, 10));
        rig_runs(&r, "s0");
        node_with_strangers(&r, "other", 1, 1);
        adopt(&r, "n1", NULL);
        rig_mark(&r);
        uint64_t s = node_with_strangers(&r, "other", 1, 1);
        describe(&r, s, 1, false);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), 0);
        assert_null(rig_sent(&r, "n1", "s0")); /* neither adopted nor removed */
        assert_string_equal(rig_get(&r, "s0")->assigned_node, "n2");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A5 C12 */
static void a_node_of_our_own_is_not_replaced_by_another_clusters(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        node_with_strangers(&r, "other", 1, 1);
        rig_mark(&r);
        assert_int_equal(adopt(&r, "n1", NULL)->err.code, ERR_CONFLICT);
        assert_told(&r, "");
        rig_fini(&r);
}

/* R: A5 A9 */
static void an_epoch_that_cannot_grow_is_not_taken_over(void **state)
{
        (void)state;
        for (uint64_t epoch = UINT64_MAX; epoch >= UINT64_MAX / 2; epoch -= UINT64_MAX / 4) {
                struct rig r;
                rig_init(&r, NULL);
                node_with_strangers(&r, "other", 1, epoch);
                rig_mark(&r);
                assert_int_equal(adopt(&r, "n1", NULL)->err.code, ERR_CONFLICT);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeAdopted), 0);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* n1 says hello with these units (seq 500, 501, ...), in an agent that belongs to that cluster. Was
 * it let in, and told that it was taken over? */
struct let_in {
        bool accepted, adopt;
        uint64_t session;
};

static struct let_in says_hello(struct rig *r, const char *cluster, unsigned n)
{
        rig_mark(r);
        struct let_in in = { .session = node_with_strangers(r, cluster, n, 7) };
        for (size_t i = r->effect_mark; i < r->effects.len; i++)
                if (r->effects.at[i].kind == EFFECT_WELCOME) {
                        in.accepted = r->effects.at[i].welcome->accepted;
                        in.adopt = r->effects.at[i].welcome->adopt;
                }
        return in;
}

/* n1 belongs to cluster "other" and runs n units; an operator takes it over. */
static void take_over(struct rig *r, unsigned n)
{
        assert_false(says_hello(r, "other", n).accepted);
        /* a word for one of them is none for all */
        assert_refused(adopt(r, "n1", "s0"), ERR_INVALID);
        assert_refused(adopt(r, "n1", NULL), ERR_OK);
}

static void assert_no_word(struct rig *r, unsigned n)
{
        unsigned ghost = n; /* one that it did not have then */
        assert_false(says_hello(r, "other", ghost + 1).accepted);
        assert_false(says_hello(r, "yet-another", ghost + 1).accepted);
        struct let_in in = says_hello(r, cluster_of(r), ghost + 1);
        assert_true(in.accepted);
        assert_false(in.adopt);
        assert_int_equal(rig_sent_count(r, EFFECT_DESCRIBE), 0);
        /* it says all the same what it would like to run */
        Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
        Pb__Workload *w = rig_workload(r, arena_printf(&r->memory, "s%u", ghost), 500, 100);
        struct err err = { 0 };
        assert_int_equal(workload_normalise(&r->memory, w, &err), 0);
        d.units = &w;
        d.n_units = 1;
        rig_say(r, INPUT_DEFINITIONS, in.session, &d, NULL);
        rig_beat(r, "n1");
        assert_null(rig_get(r, w->id));
        assert_int_equal(rig_node(r, "n1")->n_strangers, 1);
        assert_int_equal(rig_count(r, PB__EVENT_TYPE__E__WorkloadAdopted), 0);
        rig_gone(r, "n1");
}

/* R: A13 */
static void an_operators_word_for_a_node_of_another_cluster_counts_once(void **state)
{
        (void)state;
        for (unsigned units = 0; units < 3; units++) {
                struct rig r;
                rig_init(&r, NULL);
                take_over(&r, units);
                struct let_in in = says_hello(&r, "other", units);
                assert_true(in.accepted && in.adopt);
                if (units)
                        describe(&r, in.session, 7, false);
                else
                        rig_beat(&r, "n1"); /* a sign that its agent has taken it */
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), units);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeTakenOver), 1);
                rig_mark(&r);
                rig_beat(&r, "n1");
                assert_told(&r, "");
                rig_check_replay(&r);
                rig_gone(&r, "n1");
                assert_no_word(&r, units);
                rig_restart(&r);
                assert_no_word(&r, units);
                rig_check_replay(&r);
                /* A new word counts, once more; what is on record already stays as it is. */
                assert_false(says_hello(&r, "other", units + 1).accepted);
                assert_refused(adopt(&r, "n1", NULL), ERR_OK);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeAdopted), 1);
                rig_restart(&r);
                in = says_hello(&r, "other", units + 1);
                assert_true(in.accepted && in.adopt);
                describe(&r, in.session, 7, false);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeTakenOver), 1);
                rig_gone(&r, "n1");
                assert_false(says_hello(&r, "other", units + 1).accepted);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13 A5 C27: whoever dies in the middle, and wherever, it can be finished; and then it is
 * over. */
static void a_takeover_that_was_cut_short_is_finished(void **state)
{
        (void)state;
        for (int how = 0; how < 8; how++) {
                bool server_dies = how & 1, taken = how & 2, half = how & 4;
                struct rig r;
                rig_init(&r, NULL);
                take_over(&r, 3);
                if (server_dies)
                        rig_restart(&r);
                struct let_in in = says_hello(&r, "other", 3);
                assert_true(in.adopt);
                if (half) {
                        Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
                        Pb__Workload *w = rig_workload(&r, "s1", 500, 100);
                        struct err err = { 0 };
                        assert_int_equal(workload_normalise(&r.memory, w, &err), 0);
                        d.units = &w;
                        d.n_units = 1;
                        rig_say(&r, INPUT_DEFINITIONS, in.session, &d, NULL);
                }
                rig_beat(&r, "n1"); /* it has yet to answer */
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), half);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeTakenOver), 0);
                rig_gone(&r, "n1");
                if (server_dies)
                        rig_restart(&r);
                /* it had noted whose it is, or not */
                in = says_hello(&r, taken ? cluster_of(&r) : "other", 3);
                assert_true(in.accepted);
                assert_int_equal(in.adopt, !taken);
                Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
                Pb__Workload *w[2] = { rig_workload(&r, "s0", 500, 100),
                                       rig_workload(&r, half ? "s2" : "s1", 500, 100) };
                struct err err = { 0 };
                for (int i = 0; i < 2; i++)
                        assert_int_equal(workload_normalise(&r.memory, w[i], &err), 0);
                d.units = w;
                d.n_units = 2;
                rig_say(&r, INPUT_DEFINITIONS, in.session, &d, NULL);
                if (!half) {
                        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeTakenOver), 0);
                        w[0] = rig_workload(&r, "s2", 500, 100);
                        /* what it was started from is lost: it stays where it is, unknown */
                        w[0]->type = 0;
                        d.n_units = 1;
                        rig_say(&r, INPUT_DEFINITIONS, in.session, &d, NULL);
                }
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeTakenOver), 1);
                assert_phase(&r, "s0", Running);
                assert_phase(&r, "s1", Running);
                assert_int_equal(rig_node(&r, "n1")->n_strangers, !half);
                rig_check_replay(&r);
                rig_gone(&r, "n1");
                assert_false(says_hello(&r, "other", 4).accepted);
                rig_fini(&r);
        }
}

/* R: A13: one that is let in and never answers does not keep the word. */
static void an_operators_word_that_is_not_used_lapses(void **state)
{
        (void)state;
        for (int came = 0; came < 2; came++) {
                struct rig r;
                rig_init(&r, NULL);
                take_over(&r, 1);
                if (came) {
                        assert_true(says_hello(&r, "other", 1).adopt);
                        rig_gone(&r, "n1");
                }
                rig_advance(&r, 59 * 60 * 1000);
                assert_true(says_hello(&r, "other", 1).adopt);
                rig_advance(&r, 60 * 1000);
                /* too late, although it was asked in time */
                Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
                Pb__Workload *w = rig_workload(&r, "s0", 500, 100);
                struct err err = { 0 };
                assert_int_equal(workload_normalise(&r.memory, w, &err), 0);
                d.units = &w;
                d.n_units = 1;
                rig_say(&r, INPUT_DEFINITIONS, rig_agent(&r, "n1")->session, &d, NULL);
                assert_null(rig_get(&r, "s0"));
                /* told once, and the record is clean */
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeTakenOver), 1);
                rig_gone(&r, "n1");
                assert_false(says_hello(&r, "other", 1).accepted);
                struct let_in in = says_hello(&r, cluster_of(&r), 1);
                assert_true(in.accepted && !in.adopt);
                assert_int_equal(rig_sent_count(&r, EFFECT_DESCRIBE), 0);
                rig_beat(&r, "n1");
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeTakenOver), 0);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13 C4: a foreign agent says for ever what its own cluster is; nothing of it is ever
 * adopted. */
static void a_foreign_agent_of_another_cluster_may_come_again(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        for (int turn = 0; turn < 4; turn++) {
                Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL);
                h->push = true;
                h->cluster_id = "other";
                rig_say_hello(&r, h);
                assert_int_equal(rig_node(&r, "n1")->connected, turn > 0);
                if (!turn)
                        assert_refused(adopt(&r, "n1", NULL), ERR_OK);
                else {
                        rig_beat(&r, "n1");
                        rig_gone(&r, "n1");
                }
        }
        rig_check_replay(&r);
        rig_mark(&r);
        assert_false(says_hello(&r, "other", 1).accepted); /* as one of berth's own */
        rig_fini(&r);
}

/* R: A13: nor does one that is asked for units keep the word by saying nothing. */
static void an_operators_word_for_units_lapses(void **state)
{
        (void)state;
        for (int again = 0; again < 2; again++) {
                struct rig r;
                busy(&r, NULL);
                uint64_t s = node_with_strangers(&r, cluster_of(&r), 2, 1);
                rig_mark(&r);
                assert_null(adopt(&r, "n1", NULL));
                rig_advance_alive(&r, 59000);
                if (again) {
                        /* one is under way */
                        assert_int_equal(adopt(&r, "n1", NULL)->err.code, ERR_UNAVAILABLE);
                        rig_advance_alive(&r, 2000);
                        size_t replies = r.replies.len;
                        assert_null(adopt(&r, "n1", NULL));
                        assert_int_equal(r.replies.len, replies + 1);
                        /* the one who asked first */
                        assert_int_equal(r.replies.at[replies].err.code, ERR_DEADLINE);
                        describe(&r, s, 1, false);
                        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), 2);
                } else {
                        rig_advance_alive(&r, 2000);
                        describe(&r, s, 1, false); /* too late */
                        assert_int_equal(r.replies.at[r.replies.len - 1].err.code, ERR_DEADLINE);
                        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadAdopted), 0);
                        assert_int_equal(rig_node(&r, "n1")->n_strangers, 2);
                }
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13 A9: one node that is taken over must not be the last one that can be. */
static void an_epoch_that_nobody_can_have_reached_is_not_taken_over(void **state)
{
        (void)state;
        const uint64_t year_ms = UINT64_C(365) * 86400000;
        for (int how = 0; how < 3; how++) {
                struct rig r;
                rig_init(&r, NULL);
                const uint64_t epochs[] = { (uint64_t)r.now + year_ms,
                                            (uint64_t)r.now + 11 * year_ms,
                                            (UINT64_C(1) << 62) - 1 };
                node_with_strangers(&r, "other", 1, epochs[how]);
                rig_mark(&r);
                const struct rig_reply *reply = adopt(&r, "n1", NULL);
                assert_int_equal(reply->err.code, how ? ERR_CONFLICT : ERR_OK);
                assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeAdopted), !how);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

static const struct rig_reply *adopt_as(struct rig *r, uint64_t session, Pb__Workload *w,
                                        bool warranted)
{
        struct err err = { 0 };
        assert_int_equal(workload_normalise(&r->memory, w, &err), 0);
        w->revision_id = "as-it-was";
        w->desired_state = PB__DESIRED_STATE__E__Running;
        w->token = arena_new(&r->memory, Pb__Token);
        pb__token__init(w->token);
        w->token->epoch = 1;
        w->token->seq = 500;
        Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
        Pb__HeldUnit *h = rig_held(r, "n1", w, warranted);
        d.held = &h;
        d.n_held = 1;
        assert_null(adopt(r, "n1", NULL));
        rig_say(r, INPUT_DEFINITIONS, session, &d, NULL);
        return &r->replies.at[r->replies.len - 1];
}

/* R: A13 A14: what a node says of its units is asked for as if somebody applied it: it may move to
 * another node. */
static void the_policy_is_asked_about_what_has_no_warrant(void **state)
{
        (void)state;
        enum { ROOT, TENANT, PLAIN, HOW };
        for (int how = 0; how < HOW; how++)
                for (int warranted = 0; warranted < 2; warranted++) {
                        struct rig r;
                        busy(&r, NULL);
                        rig_config(&r,
                                   "tenant_policies: [{tenant: infra, root_processes: true}]\n");
                        uint64_t s = node_with_strangers(&r, cluster_of(&r), 1, 1);
                        Pb__Workload *w = rig_workload(&r, "s0", 100, 10);
                        if (how == ROOT || how == TENANT)
                                w->spec->user = "root";
                        if (how == TENANT)
                                /* whose policy that is, the node says as well */
                                w->tenant = "infra";
                        w->confine = false;
                        Pb__AdoptResponse *a =
                            (Pb__AdoptResponse *)adopt_as(&r, s, w, warranted)->msg;
                        bool taken = warranted || how == PLAIN;
                        assert_int_equal(a->n_adopted, taken);
                        if (!taken)
                                assert_non_null(strstr(
                                    a->refused[0],
                                    "the policy of this cluster does not allow root_processes"));
                        else
                                /* its next start is confined */
                                assert_int_equal(rig_get(&r, "s0")->confine, !warranted);
                        rig_check_replay(&r);
                        rig_fini(&r);
                }
}

/* R: A13 A14: what is on record goes on as it is, also when a restore needs an operator's word for
 * it. */
static void the_policy_is_not_asked_about_what_is_on_record(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL); /* without a policy */
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        Pb__Workload *w = rig_workload(&r, "s0", 100, 10);
        w->spec->user = "root";
        rig_apply(&r, w);
        rig_runs(&r, "s0");
        rig_restored(&r);
        rig_config(&r, "heartbeat: 10s\n");
        /* launched once more since the backup */
        uint64_t s = node_with_strangers(&r, cluster_of(&r), 1, 1);
        Pb__Workload *same = rig_workload(&r, "s0", 100, 10);
        same->spec->user = "root";
        struct err err = { 0 };
        assert_int_equal(workload_normalise(&r.memory, same, &err), 0);
        same->desired_state = PB__DESIRED_STATE__E__Running;
        same->token = arena_new(&r.memory, Pb__Token);
        pb__token__init(same->token);
        same->token->epoch = 1;
        same->token->seq = 500;
        Pb__HeldUnit *h = rig_held(&r, "n1", same, false);
        rig_describe(&r, "n1", 1, &h); /* it has no warrant */
        Pb__AdoptResponse *a = (Pb__AdoptResponse *)adopt_as(&r, s, same, false)->msg;
        assert_int_equal(a->n_adopted, 1);
        assert_false(rig_get(&r, "s0")->confine);
        assert_int_equal(rig_get(&r, "s0")->token->seq, 500);
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(
                    a_heartbeat_that_differs_from_what_was_reported_asks_for_the_list_once),
                cmocka_unit_test(strangers_are_told_of_once_and_left_alone),
                cmocka_unit_test(strangers_are_the_same_in_any_order),
                cmocka_unit_test(an_operator_adopts_what_a_node_runs_and_nothing_restarts),
                cmocka_unit_test(a_unit_that_cannot_be_adopted_is_named_with_the_reason),
                cmocka_unit_test(an_agent_that_goes_away_ends_an_adoption),
                cmocka_unit_test(only_what_this_store_surely_forgot_is_removed_by_rule),
                cmocka_unit_test(strangers_are_adopted_by_rule),
                cmocka_unit_test(a_server_on_an_empty_store_destroys_nothing_and_offers_to_adopt),
                cmocka_unit_test(another_clusters_unit_with_a_name_that_is_taken_is_left_alone),
                cmocka_unit_test(a_node_of_our_own_is_not_replaced_by_another_clusters),
                cmocka_unit_test(an_epoch_that_cannot_grow_is_not_taken_over),
                cmocka_unit_test(an_operators_word_for_a_node_of_another_cluster_counts_once),
                cmocka_unit_test(a_takeover_that_was_cut_short_is_finished),
                cmocka_unit_test(an_operators_word_that_is_not_used_lapses),
                cmocka_unit_test(a_foreign_agent_of_another_cluster_may_come_again),
                cmocka_unit_test(an_operators_word_for_units_lapses),
                cmocka_unit_test(an_epoch_that_nobody_can_have_reached_is_not_taken_over),
                cmocka_unit_test(the_policy_is_asked_about_what_has_no_warrant),
                cmocka_unit_test(the_policy_is_not_asked_about_what_is_on_record),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
