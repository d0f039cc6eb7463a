/* core/admission_test.c: what operators say of a node id: expelled, let in again, labels, taints,
 * capacity (A13; issue 5, A4). */
#include "core/core_testlib.h"
#include "model/pb.h"

#define KEY_OLD "00000000000000000000000000000000000000000000000000000000000000aa"
#define KEY_NEW "00000000000000000000000000000000000000000000000000000000000000bb"

static char *hash(struct rig *r, int n)
{
        return arena_printf(&r->memory, "%064x", n);
}

static Pb__CreateTokenRequest *token(struct rig *r, const char *name, Pb__Role__E role,
                                     int hash_number, const char *node)
{
        Pb__CreateTokenRequest *q = arena_new(&r->memory, Pb__CreateTokenRequest);
        pb__create_token_request__init(q);
        q->name = arena_strdup(&r->memory, name);
        q->role = role;
        q->hash = hash(r, hash_number);
        q->node_id = arena_strdup(&r->memory, node);
        return q;
}

static const struct rig_reply *use(struct rig *r, int hash_number, const char *node,
                                   const char *key)
{
        Pb__UseTokenRequest *q = arena_new(&r->memory, Pb__UseTokenRequest);
        pb__use_token_request__init(q);
        q->hash = hash(r, hash_number);
        q->node_id = arena_strdup(&r->memory, node);
        q->key = arena_strdup(&r->memory, key);
        return rig_ask(r, INPUT_TOKEN_USE, q);
}

static const struct rig_reply *expel(struct rig *r, const char *node)
{
        Pb__NodeRef *q = arena_new(&r->memory, Pb__NodeRef);
        pb__node_ref__init(q);
        q->id = arena_strdup(&r->memory, node);
        return rig_ask(r, INPUT_NODE_EXPEL, q);
}

static const struct rig_reply *label(struct rig *r, const char *node, const char *key,
                                     const char *value)
{
        Pb__SetNodeLabelsRequest *q = arena_new(&r->memory, Pb__SetNodeLabelsRequest);
        pb__set_node_labels_request__init(q);
        q->id = arena_strdup(&r->memory, node);
        if (key)
                pb_map_set(&r->memory, &q->base, "labels", key, value);
        return rig_ask(r, INPUT_NODE_LABELS, q);
}

static const struct rig_reply *limit(struct rig *r, const char *node, int64_t cpu)
{
        Pb__SetNodeCapacityRequest *q = arena_new(&r->memory, Pb__SetNodeCapacityRequest);
        pb__set_node_capacity_request__init(q);
        q->id = arena_strdup(&r->memory, node);
        q->capacity = arena_new(&r->memory, Pb__Resources);
        pb__resources__init(q->capacity);
        q->capacity->cpu = cpu;
        return rig_ask(r, INPUT_NODE_CAPACITY, q);
}

static const struct rig_reply *taint(struct rig *r, const char *node, const char *key)
{
        Pb__SetTaintsRequest *q = arena_new(&r->memory, Pb__SetTaintsRequest);
        pb__set_taints_request__init(q);
        q->id = arena_strdup(&r->memory, node);
        Pb__Taint one = PB__TAINT__INIT, *list[] = { &one };
        one.key = (char *)key;
        one.effect = PB__TAINT_EFFECT__E__no_schedule;
        q->taints = list;
        q->n_taints = key != NULL;
        return rig_ask(r, INPUT_NODE_TAINTS, q);
}

/* Its agent goes, it is lost, and an operator forgets it. */
static void is_forgotten(struct rig *r, const char *node)
{
        rig_gone(r, node);
        rig_advance(r, 31000);
        assert_refused(rig_forget(r, node), ERR_OK);
        assert_null(rig_node(r, node));
}

static void hello(struct rig *r, const char *node, const char *key, const char *with,
                  const char *labels)
{
        Pb__Hello *h = rig_hello_message(r, node, 4000, 4096, 10, labels);
        h->key = arena_strdup(&r->memory, key);
        h->token = arena_strdup(&r->memory, with);
        rig_say_hello(r, h);
}

static bool is_ready(struct rig *r, const char *node)
{
        return rig_node(r, node)->status == PB__NODE_STATUS__E__Ready;
}

static const char *label_of(struct rig *r, const char *node, const char *key)
{
        const Pb__Node *n = rig_node(r, node);
        for (size_t i = 0; i < n->n_labels; i++)
                if (strcmp(n->labels[i]->key, key) == 0)
                        return n->labels[i]->value;
        return "";
}

/* R: A13 C32 */
static void an_expelled_node_loses_its_work_its_stream_and_its_tokens_at_once(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_ask(&r, INPUT_TOKEN_CREATE, token(&r, "of-n1", PB__ROLE__E__node, 1, "n1"));
        rig_ask(&r, INPUT_TOKEN_CREATE, token(&r, "of-all", PB__ROLE__E__node, 2, ""));
        hello(&r, "n1", KEY_OLD, "", NULL);
        rig_apply(&r, rig_workload(&r, "w", 100, 10));
        rig_runs(&r, "w");
        hello(&r, "n2", "", "", NULL);
        rig_mark(&r);
        assert_refused(expel(&r, "nobody"), ERR_NOT_FOUND);
        const struct rig_reply *done = expel(&r, "n1");
        assert_refused(done, ERR_OK);
        assert_int_equal(((const Pb__Node *)done->msg)->wish, PB__NODE_WISH__E__disabled);
        assert_false(is_ready(&r, "n1")); /* at once, without a grace */
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n2");
        assert_int_equal(rig_sent_count(&r, EFFECT_CLOSE), 1);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeExpelled), 1);
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__NodeExpelled)->actor, "tester");
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__TokenRevoked), 1);
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__TokenRevoked)->access->name, "of-n1");
        rig_beat(&r, "n1"); /* its stream is nobody's any more */
        assert_false(is_ready(&r, "n1"));
        hello(&r, "n1", KEY_OLD, "", NULL);
        hello(&r, "n1", KEY_NEW, "", NULL); /* of the same CA, and of no later token */
        hello(&r, "n1", "", "of-n1", NULL);
        hello(&r, "n1", "", "of-all", NULL);
        hello(&r, "n1", "", "", NULL);
        assert_false(is_ready(&r, "n1"));
        assert_refused(expel(&r, "n1"), ERR_OK); /* twice is as good as once */
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__NodeExpelled), 1);
        rig_check_replay(&r);
        rig_restart(&r);
        hello(&r, "n1", KEY_OLD, "", NULL);
        assert_false(is_ready(&r, "n1"));
        assert_refused(rig_forget(&r, "n1"), ERR_OK); /* it knocks all the time */
        assert_null(rig_node(&r, "n1"));
        hello(&r, "n1", KEY_OLD, "", NULL);
        assert_null(rig_node(&r, "n1")); /* that it was forgotten does not let it in */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A13 */
static void coming_back_needs_a_new_join_token_and_a_new_key(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_ask(&r, INPUT_TOKEN_CREATE, token(&r, "first", PB__ROLE__E__join, 1, ""));
        rig_ask(&r, INPUT_TOKEN_CREATE, token(&r, "spare", PB__ROLE__E__join, 2, ""));
        assert_refused(use(&r, 1, "n1", KEY_OLD), ERR_OK);
        /* what its stream says of the key is not all that is known */
        hello(&r, "n1", "", "", NULL);
        expel(&r, "n1");
        rig_forget(&r, "n1");
        assert_refused(use(&r, 2, "n1", KEY_NEW), ERR_DENIED); /* made before */
        rig_advance(&r, 1000);
        rig_ask(&r, INPUT_TOKEN_CREATE, token(&r, "second", PB__ROLE__E__join, 3, "n1"));
        assert_refused(use(&r, 3, "n1", KEY_OLD), ERR_DENIED);
        assert_refused(use(&r, 2, "n9", KEY_OLD), ERR_DENIED); /* nor under another name */
        rig_mark(&r);
        assert_refused(use(&r, 3, "n1", KEY_NEW), ERR_OK);
        assert_told(&r, "TokenUsed NodeAdmitted");
        hello(&r, "n1", KEY_OLD, "", NULL);
        assert_null(rig_node(&r, "n1"));
        hello(&r, "n1", KEY_NEW, "", NULL);
        assert_true(is_ready(&r, "n1"));
        assert_int_equal(rig_node(&r, "n1")->wish, PB__NODE_WISH__E__schedulable);
        expel(&r, "n1"); /* once more: the second key is worth nothing, either */
        hello(&r, "n1", KEY_NEW, "", NULL);
        assert_false(is_ready(&r, "n1"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* Where nobody signs certificates, a token of that node alone is the way back.  R: A13 */
static void a_new_token_of_the_node_lets_it_back_in(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        hello(&r, "n1", "", "", NULL);
        expel(&r, "n1");
        rig_ask(&r, INPUT_TOKEN_CREATE, token(&r, "of-n1", PB__ROLE__E__node, 1, "n1"));
        hello(&r, "n1", KEY_OLD, "", NULL);
        assert_false(is_ready(&r, "n1"));
        hello(&r, "n1", KEY_OLD, "of-n1", NULL);
        assert_true(rig_node(&r, "n1")->connected);
        assert_int_equal(rig_node(&r, "n1")->expelled_at, 0);
        /* an operator's wish: berth uncordon */
        assert_int_equal(rig_node(&r, "n1")->wish, PB__NODE_WISH__E__disabled);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* What has no other place waits without one, and does not keep the node on record.  R: A13 */
static void an_expelled_node_is_forgotten_with_all_that_it_has(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        hello(&r, "n1", "", "", NULL);
        for (int i = 0; i < 70; i++)
                rig_apply(&r, rig_workload(&r, arena_printf(&r.memory, "w%02d", i), 10, 10));
        rig_delete(&r, "w69");
        expel(&r, "n1");
        assert_string_equal(rig_get(&r, "w00")->assigned_node, "n1"); /* there is no other one */
        assert_refused(rig_forget(&r, "n1"), ERR_OK);
        assert_null(rig_node(&r, "n1"));
        assert_null(rig_get(&r, "w69"));
        assert_phase(&r, "w00", Pending);
        hello(&r, "n2", "", "", NULL);
        assert_string_equal(rig_get(&r, "w00")->assigned_node, "n2");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* A machine that was thrown out may run on: what ends with its lease is waited for.  R: A13 C34 */
static void what_is_exclusive_waits_for_the_lease_of_an_expelled_node(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        Pb__WorkloadType__E process = PB__WORKLOAD_TYPE__E__process;
        Pb__Hello *one = rig_hello_message(&r, "n1", 4000, 4096, 10, NULL),
                  *two = rig_hello_message(&r, "n2", 4000, 4096, 10, NULL);
        one->exclusive_types = two->exclusive_types = &process;
        one->n_exclusive_types = two->n_exclusive_types = 1;
        rig_say_hello(&r, one);
        Pb__Workload *w = rig_workload(&r, "db", 100, 10);
        w->exclusive = PB__EXCLUSIVE__E__movable;
        rig_apply(&r, w);
        rig_runs(&r, "db");
        rig_say_hello(&r, two);
        rig_beat(&r, "n1");
        rig_mark(&r);
        expel(&r, "n1");
        assert_string_equal(rig_get(&r, "db")->assigned_node, "n2");
        assert_null(rig_sent(&r, "n2", "db"));
        /* that would forget what is waited for */
        assert_refused(rig_forget(&r, "n1"), ERR_CONFLICT);
        for (int i = 0; i < 6; i++) {
                rig_advance(&r, 10000);
                rig_beat(&r, "n2");
        }
        assert_non_null(rig_sent(&r, "n2", "db"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A13 */
static void only_operators_give_reserved_labels(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r, "operator_labels: [tier, example.com/]\n");
        hello(&r, "n1", "", "",
              "berth.io/trusted=yes,disk=ssd,example.com/x=1,tier=gold,tierless=ok");
        assert_string_equal(label_of(&r, "n1", "berth.io/trusted"), "");
        assert_string_equal(label_of(&r, "n1", "example.com/x"), "");
        assert_string_equal(label_of(&r, "n1", "tier"), "");
        assert_string_equal(label_of(&r, "n1", "tierless"), "ok");
        assert_string_equal(label_of(&r, "n1", "disk"), "ssd");
        assert_refused(label(&r, "n1", "tier", "bronze"), ERR_OK);
        assert_string_equal(label_of(&r, "n1", "tier"), "bronze");
        hello(&r, "n1", "", "", "disk=ssd,tier=gold");
        assert_string_equal(label_of(&r, "n1", "tier"), "bronze");
        /* goes before what its agent says */
        assert_refused(label(&r, "n1", "disk", "slow"), ERR_OK);
        assert_string_equal(label_of(&r, "n1", "disk"), "slow");
        assert_string_equal(label_of(&r, "n1", "tier"), "");
        rig_mark(&r);
        assert_refused(label(&r, "n1", NULL, NULL), ERR_OK);
        /* so that the agent says its own again */
        assert_int_equal(rig_sent_count(&r, EFFECT_CLOSE), 1);
        hello(&r, "n1", "", "", "disk=ssd");
        assert_string_equal(label_of(&r, "n1", "disk"), "ssd");
        rig_mark(&r);
        hello(&r, "n1", "", "", "disk=ssd");
        assert_told(&r, ""); /* standing still writes nothing */
        rig_mark(&r);
        rig_config(&r, "operator_labels: [disk]\n");
        assert_int_equal(rig_sent_count(&r, EFFECT_CLOSE), 1);
        hello(&r, "n1", "", "", "disk=ssd");
        assert_string_equal(label_of(&r, "n1", "disk"), "");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A13 */
static void capacity_is_bounded_by_what_an_operator_allows(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        /* says that it has a thousand cores */
        Pb__Hello *h = rig_hello_message(&r, "n1", 1000000, 4096, 10, NULL);
        rig_say_hello(&r, h);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 1000000);
        assert_refused(limit(&r, "n1", 8000), ERR_OK);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 8000);
        assert_int_equal(rig_node(&r, "n1")->resources->memory_total, 4096);
        rig_say_hello(&r, h);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 8000);
        rig_restart(&r);
        rig_say_hello(&r, h);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 8000);
        rig_mark(&r);
        assert_refused(limit(&r, "n1", 16000), ERR_OK);
        assert_int_equal(rig_sent_count(&r, EFFECT_CLOSE), 1);
        rig_say_hello(&r, h);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 16000);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A13 */
static void a_join_token_says_what_its_node_is(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        Pb__CreateTokenRequest *q = token(&r, "gpu", PB__ROLE__E__join, 1, "");
        pb_map_set(&r.memory, &q->base, "labels", "berth.io/pool", "gpu");
        Pb__Taint taint = PB__TAINT__INIT, *taints[] = { &taint };
        taint.key = "gpu";
        taint.effect = PB__TAINT_EFFECT__E__no_schedule;
        q->taints = taints;
        q->n_taints = 1;
        Pb__Resources most = PB__RESOURCES__INIT;
        most.cpu = 2000;
        q->capacity = &most;
        assert_refused(rig_ask(&r, INPUT_TOKEN_CREATE, q), ERR_OK);
        q->name = "admin-with-labels";
        q->role = PB__ROLE__E__admin;
        q->hash = hash(&r, 2);
        assert_refused(rig_ask(&r, INPUT_TOKEN_CREATE, q), ERR_INVALID);
        assert_refused(use(&r, 1, "n1", KEY_NEW), ERR_OK);
        rig_restart(&r); /* between the two */
        hello(&r, "n1", KEY_NEW, "", "berth.io/pool=web");
        assert_string_equal(label_of(&r, "n1", "berth.io/pool"), "gpu");
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 2000);
        assert_int_equal(rig_node(&r, "n1")->n_taints, 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A13: its certificate outlives it in the list, and so does what operators said of it. */
static void what_operators_allow_outlives_forgetting_a_node(void **state)
{
        (void)state;
        for (int how = 0; how < 3; how++) {
                struct rig r;
                rig_init(&r, NULL);
                rig_config(&r, "operator_labels: [tier]\n");
                hello(&r, "n1", KEY_OLD, "", "tier=gold");
                limit(&r, "n1", 2000);
                label(&r, "n1", "tier", "bronze");
                taint(&r, "n1", "odd");
                is_forgotten(&r, "n1");
                rig_check_replay(&r);
                if (how == 1) {
                        rig_restart(&r);
                        rig_config(&r, "operator_labels: [tier]\n");
                }
                rig_mark(&r);
                if (how == 2) { /* it belongs to another cluster now, and is taken over */
                        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 10, "tier=gold");
                        h->key = KEY_OLD;
                        h->cluster_id = "other";
                        rig_say_hello(&r, h);
                        Pb__AdoptRequest q = PB__ADOPT_REQUEST__INIT;
                        q.id = "n1";
                        assert_refused(rig_ask(&r, INPUT_ADOPT, &q), ERR_OK);
                        rig_say_hello(&r, h);
                } else
                        hello(&r, "n1", KEY_OLD, "", "tier=gold");
                assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 2000);
                assert_int_equal(rig_node(&r, "n1")->capacity->cpu, 2000);
                assert_string_equal(label_of(&r, "n1", "tier"), "bronze");
                assert_int_equal(rig_node(&r, "n1")->n_taints, 1);
                assert_string_equal(rig_node(&r, "n1")->taints[0]->key, "odd");
                rig_check_replay(&r);
                /* What was taken back before it was forgotten does not come back with it. */
                taint(&r, "n1", NULL);
                limit(&r, "n1", 0);
                label(&r, "n1", NULL, NULL);
                is_forgotten(&r, "n1");
                assert_null(rig_record(&r, "/admissions/n1")); /* nothing is left to keep */
                hello(&r, "n1", KEY_OLD, "", NULL);
                assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 4000);
                assert_int_equal(rig_node(&r, "n1")->n_taints, 0);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13: whoever makes a join token says what the one who uses it may have: not what another
 * machine of that name had. */
static void a_new_join_token_begins_anew(void **state)
{
        (void)state;
        for (int granted = 0; granted < 2; granted++) {
                struct rig r;
                rig_init(&r, NULL);
                hello(&r, "n1", KEY_OLD, "", NULL);
                limit(&r, "n1", 2000);
                label(&r, "n1", "berth.io/pool", "trusted");
                taint(&r, "n1", "odd");
                is_forgotten(&r, "n1");
                Pb__CreateTokenRequest *q = token(&r, "next", PB__ROLE__E__join, 1, "");
                if (granted)
                        pb_map_set(&r.memory, &q->base, "labels", "berth.io/pool", "web");
                rig_ask(&r, INPUT_TOKEN_CREATE, q);
                assert_refused(use(&r, 1, "n1", KEY_NEW), ERR_OK);
                hello(&r, "n1", KEY_NEW, "", NULL);
                assert_int_equal(rig_node(&r, "n1")->resources->cpu_total, 4000);
                assert_string_equal(label_of(&r, "n1", "berth.io/pool"), granted ? "web" : "");
                assert_int_equal(rig_node(&r, "n1")->n_taints, 0);
                rig_check_replay(&r);
                rig_restart(&r);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: A13 A9: names that come and go for ever do not fill the store; the oldest go. */
static void only_so_many_forgotten_nodes_are_remembered(void **state)
{
        (void)state;
        enum { KEPT = 10000, BEYOND = 3 };
        struct rig r;
        struct core_options opt;
        core_options_default(&opt);
        opt.max_nodes = 2 * KEPT;
        rig_init(&r, &opt);
        r.no_check = true;
        for (int i = 0; i < KEPT + BEYOND; i++) {
                hello(&r, arena_printf(&r.memory, "n%05d", i), "", "", NULL);
                taint(&r, arena_printf(&r.memory, "n%05d", i), "odd");
                rig_gone(&r, arena_printf(&r.memory, "n%05d", i));
        }
        rig_advance(&r, 31000);
        for (int i = 0; i < KEPT + BEYOND; i++) {
                assert_refused(rig_forget(&r, arena_printf(&r.memory, "n%05d", i)), ERR_OK);
                r.now++;
        }
        assert_null(rig_record(&r, "/admissions/n00002"));
        assert_non_null(rig_record(&r, "/admissions/n00003"));
        hello(&r, "n00003", "", "", NULL);
        assert_int_equal(rig_node(&r, "n00003")->n_taints, 1);
        r.no_check = false;
        rig_check_replay(&r);
        rig_fini(&r);
}

/* An older server that may lead next would not know who was expelled: nothing changes, and the
 * first use once it is gone raises the schema in the same commit. R: A10 A13 */
static void what_an_older_server_would_not_know_waits_until_it_is_gone(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_mark(&r);
        r.lacking = "server b (berth 0.0.9)";
        uint64_t head = r.head;
        const struct rig_reply *no = expel(&r, "n1");
        assert_refused(no, ERR_CONFLICT);
        assert_non_null(strstr(no->err.detail, "server b (berth 0.0.9) does not know admissions"));
        assert_refused(label(&r, "n1", "berth.io/pool", "a"), ERR_CONFLICT);
        assert_refused(limit(&r, "n1", 1000), ERR_CONFLICT);
        Pb__CreateTokenRequest *q = token(&r, "join1", PB__ROLE__E__join, 1, "n2");
        pb_map_set(&r.memory, &q->base, "labels", "zone", "a");
        assert_refused(rig_ask(&r, INPUT_TOKEN_CREATE, q), ERR_CONFLICT);
        assert_int_equal(r.head, head);
        r.lacking = NULL;
        assert_refused(expel(&r, "n1"), ERR_OK);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__SchemaRaised), 1);
        assert_int_equal(r.schema, 2);
        /* it refuses this store now: it does not count any more */
        r.lacking = "server b (berth 0.0.9)";
        assert_refused(label(&r, "n1", "berth.io/pool", "a"), ERR_OK);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__SchemaRaised), 1);
        rig_restart(&r);
        rig_fini(&r);
}

static void hello_with(struct rig *r, const char *node, const char *feature)
{
        r->feature = feature;
        rig_hello(r, node, 4000, 4096, 10, NULL);
        r->feature = NULL;
}

/* R: A10 A8 */
static void a_unit_waits_for_an_agent_that_knows_what_it_needs(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        hello_with(&r, "old", NULL);
        Pb__Workload *w = rig_workload(&r, "w", 100, 64);
        static char cap[] = "NET_BIND_SERVICE", *caps[] = { cap };
        w->spec->capabilities = caps;
        w->spec->n_capabilities = 1;
        rig_apply(&r, w);
        assert_string_equal(rig_get(&r, "w")->assigned_node, "");
        assert_int_equal(rig_get(&r, "w")->status->reason, PB__REASON__E__agent_too_old);
        rig_apply(&r, rig_workload(&r, "plain", 100, 64));
        assert_string_equal(rig_get(&r, "plain")->assigned_node, "old");
        hello_with(&r, "new", "process-capabilities");
        assert_string_equal(rig_get(&r, "w")->assigned_node, "new");
        rig_restart(&r); /* what an agent can do is on record */
        rig_fini(&r);
}

/* What moves away from a node that does not let go of it waits for that node's word, unless it was
 * thrown out. R: A13 */
static void what_was_on_its_way_from_an_expelled_node_does_not_wait_for_it(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        hello(&r, "n1", "", "", NULL);
        rig_apply(&r, rig_workload(&r, "w", 100, 10));
        rig_runs(&r, "w");
        hello(&r, "n2", "", "", NULL);
        rig_mark(&r);
        rig_wish(&r, "n1", PB__NODE_WISH__E__draining);
        assert_string_equal(rig_get(&r, "w")->assigned_node, "n2");
        rig_advance_alive(&r, 120000);
        assert_null(rig_sent(&r, "n2", "w")); /* n1 is heard, and does not say that it is gone */
        expel(&r, "n1");
        rig_advance_alive(&r, 20000);
        assert_non_null(rig_sent(&r, "n2", "w"));
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_an_older_server_would_not_know_waits_until_it_is_gone),
                cmocka_unit_test(a_unit_waits_for_an_agent_that_knows_what_it_needs),
                cmocka_unit_test(an_expelled_node_loses_its_work_its_stream_and_its_tokens_at_once),
                cmocka_unit_test(coming_back_needs_a_new_join_token_and_a_new_key),
                cmocka_unit_test(a_new_token_of_the_node_lets_it_back_in),
                cmocka_unit_test(an_expelled_node_is_forgotten_with_all_that_it_has),
                cmocka_unit_test(what_is_exclusive_waits_for_the_lease_of_an_expelled_node),
                cmocka_unit_test(only_operators_give_reserved_labels),
                cmocka_unit_test(capacity_is_bounded_by_what_an_operator_allows),
                cmocka_unit_test(a_join_token_says_what_its_node_is),
                cmocka_unit_test(what_was_on_its_way_from_an_expelled_node_does_not_wait_for_it),
                cmocka_unit_test(what_operators_allow_outlives_forgetting_a_node),
                cmocka_unit_test(a_new_join_token_begins_anew),
                cmocka_unit_test(only_so_many_forgotten_nodes_are_remembered),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
