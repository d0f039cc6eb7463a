/* core/plan_test.c: what a plan says is what happens when the same is done for real; and an index
 * keeps one from acting on a plan that is no longer true. */
#include "core/core_testlib.h"
#include "model/pb.h"
#include "model/validate.h"

static Pb__PlanResponse *plan(struct rig *r, Pb__PlanRequest *q)
{
        struct str packed = STR_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        assert_int_equal(request_normalise(&r->memory, &q->base, &err), 0);
        int rc = core_plan(r->core, q, &packed, &err);
        if (rc < 0)
                fail_msg("%s", err_line(&err));
        assert_int_equal(pb_unpack_own(&pb__plan_response__descriptor, packed.buf, packed.len,
                                       &r->memory, &m, &err),
                         0);
        str_fini(&packed);
        assert_int_equal(core_check(r->core, &err), 0);
        return (Pb__PlanResponse *)m;
}

static const Pb__PlanChange *change(const Pb__PlanResponse *p, const char *id)
{
        for (size_t i = 0; i < p->n_changes; i++)
                if (str_eq(p->changes[i]->workload_id, id))
                        return p->changes[i];
        return NULL;
}

static const Pb__PlanNode *node(const Pb__PlanResponse *p, const char *id)
{
        for (size_t i = 0; i < p->n_nodes; i++)
                if (str_eq(p->nodes[i]->node_id, id))
                        return p->nodes[i];
        return NULL;
}

/* Three nodes with two running workloads each. */
static void three_nodes(struct rig *r)
{
        rig_init(r, NULL);
        for (int n = 1; n <= 3; n++)
                rig_hello(r, fmt("n%d", n), 4000, 4096, 10, NULL);
        for (int w = 1; w <= 6; w++) {
                rig_apply(r, rig_workload(r, fmt("w%d", w), 1000, 1024));
                rig_runs(r, fmt("w%d", w));
        }
}

/* Does what agents were told, as the simulated ones do. */
static void agents_obey(struct rig *r, size_t *from)
{
        for (; *from < r->effects.len; (*from)++) {
                const struct rig_effect *e = &r->effects.at[*from];
                if (e->kind != EFFECT_PLAN_UNIT)
                        continue;
                for (size_t i = 0; i < r->agents.len; i++) {
                        if (r->agents.at[i].session != e->session)
                                continue;
                        Pb__ActualState__E state =
                            e->unit->desired_state == PB__DESIRED_STATE__E__Running
                                ? PB__ACTUAL_STATE__E__Running
                                : PB__ACTUAL_STATE__E__Missing;
                        rig_report(r, r->agents.at[i].id,
                                   rig_unit(r, e->unit->unit_id, e->unit->token->epoch,
                                            e->unit->token->seq, state));
                        break;
                }
        }
}

/* Every workload is where the plan said it would be. */
static void check_came_true(struct rig *real, const Pb__PlanResponse *p)
{
        for (size_t i = 0; i < p->n_changes; i++) {
                const Pb__PlanChange *m = p->changes[i];
                Pb__Workload *w = rig_get(real, m->workload_id);
                if (str_eq(m->what, "delete")) {
                        assert_null(w);
                        continue;
                }
                assert_non_null(w);
                if (!str_eq(m->what, "pending"))
                        assert_string_equal(w->assigned_node, m->to_node);
        }
        for (size_t i = 0; i < p->n_nodes; i++) {
                Pb__Node *n = rig_node(real, p->nodes[i]->node_id);
                assert_int_equal(n->resources->cpu_allocated, p->nodes[i]->after->cpu_allocated);
                assert_int_equal(n->units, p->nodes[i]->units_after);
        }
}

/* R: X1 */
static void an_applied_plan_comes_true(void **state)
{
        (void)state;
        struct rig r, real;
        three_nodes(&r);
        three_nodes(&real);
        Pb__Workload *list[] = { rig_workload(&r, "new-1", 1000, 512),
                                 rig_workload(&r, "new-2", 1000, 512),
                                 rig_workload(&r, "w1", 2000, 1024),
                                 rig_workload(&r, "w2", 1000, 1024),
                                 rig_workload(&r, "huge", 64000, 512) };
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        q.apply = list;
        q.n_apply = ARRAY_LEN(list);
        uint64_t head = core_head(r.core);
        size_t from = real.effects.len;
        for (size_t i = 0; i < ARRAY_LEN(list); i++)
                rig_apply(&real, list[i]);
        agents_obey(&real, &from);
        Pb__PlanResponse *p = plan(&r, &q);
        assert_true(p->complete);
        assert_int_equal(p->index, head);
        assert_string_equal(change(p, "new-1")->what, "create");
        assert_string_equal(change(p, "w1")->what, "update");
        assert_null(change(p, "w2")); /* the same as before */
        assert_string_equal(change(p, "huge")->what, "pending");
        assert_int_equal(change(p, "huge")->reason, PB__REASON__E__cpu_insufficient);
        assert_non_null(strstr(change(p, "huge")->detail, "it would fit if"));
        assert_int_equal(p->pending_before, 0);
        assert_int_equal(p->pending_after, 1);
        assert_string_equal(p->summary,
                            "2 created, 1 updated, 1 would be pending; 0 pending before, 1 after");
        check_came_true(&real, p);
        rig_fini(&r);
        rig_fini(&real);
}

/* R: X1 C12 */
static void what_a_planned_drain_cannot_move_runs_on(void **state)
{
        (void)state;
        struct rig r, real;
        three_nodes(&r);
        three_nodes(&real);
        size_t from = real.effects.len;
        struct rig *both[] = { &r, &real };
        static const char *const fill[] = { "large", "filler-1", "filler-2" };
        for (size_t i = 0; i < 2 * ARRAY_LEN(fill); i++) {
                rig_apply(both[i % 2], rig_workload(both[i % 2], fill[i / 2], 2000, 512));
                rig_runs(both[i % 2], fill[i / 2]);
        }
        char *node_id = strdup(rig_get(&real, "large")->assigned_node);
        rig_wish(&real, node_id, PB__NODE_WISH__E__draining);
        agents_obey(&real, &from);
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        q.drain_node = node_id;
        Pb__PlanResponse *p = plan(&r, &q);
        assert_string_equal(change(p, "large")->what, "blocked");
        assert_string_equal(change(p, "large")->to_node, node_id);
        assert_int_equal(change(p, "large")->to_phase, PB__PHASE__E__Running);
        assert_int_equal(p->pending_after, 0);
        assert_string_equal(p->summary, "3 could not move");
        check_came_true(&real, p);
        free(node_id);
        rig_fini(&r);
        rig_fini(&real);
}

/* R: X1 */
static void a_planned_drain_comes_true(void **state)
{
        (void)state;
        struct rig r, real;
        three_nodes(&r);
        three_nodes(&real);
        size_t from = real.effects.len;
        rig_wish(&real, "n2", PB__NODE_WISH__E__draining);
        agents_obey(&real, &from);
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        q.drain_node = "n2";
        Pb__PlanResponse *p = plan(&r, &q);
        assert_int_equal(p->n_changes, 2);
        for (size_t i = 0; i < 2; i++) {
                assert_string_equal(p->changes[i]->what, "move");
                assert_string_equal(p->changes[i]->from_node, "n2");
                assert_string_not_equal(p->changes[i]->to_node, "n2");
        }
        assert_string_equal(node(p, "n2")->what, "drained");
        assert_int_equal(node(p, "n2")->units_before, 2);
        assert_int_equal(node(p, "n2")->units_after, 0);
        assert_int_equal(node(p, "n2")->after->cpu_allocated, 0);
        check_came_true(&real, p);
        rig_fini(&r);
        rig_fini(&real);
}

/* R: X1 */
static void a_planned_delete_comes_true(void **state)
{
        (void)state;
        struct rig r, real;
        three_nodes(&r);
        three_nodes(&real);
        size_t from = real.effects.len;
        rig_delete(&real, "w3");
        agents_obey(&real, &from);
        char *ids[] = { "w3", "nobody" };
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        q.remove = ids;
        q.n_remove = 2;
        Pb__PlanResponse *p = plan(&r, &q);
        assert_string_equal(change(p, "w3")->what, "delete");
        assert_string_equal(change(p, "nobody")->what, "refused");
        assert_int_equal(p->changes_in_all, 2);
        rig_fini(&r);
        assert_null(rig_get(&real, "w3"));
        rig_fini(&real);
}

/* R: X1 C24 */
static void the_loss_of_a_node_is_planned_through_silence_and_grace(void **state)
{
        (void)state;
        struct rig r, real;
        three_nodes(&r);
        three_nodes(&real);
        size_t from = real.effects.len;
        rig_gone(&real, "n1");
        rig_advance_alive(&real, 30000 + 60000 + 10000);
        agents_obey(&real, &from);
        char *ids[] = { "n1" };
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        q.lose_nodes = ids;
        q.n_lose_nodes = 1;
        Pb__PlanResponse *p = plan(&r, &q);
        assert_true(p->complete);
        assert_int_equal(p->n_changes, 2);
        assert_string_equal(p->changes[0]->what, "move");
        assert_string_equal(p->changes[0]->from_node, "n1");
        assert_int_equal(p->changes[0]->reason, PB__REASON__E__node_lost);
        assert_string_equal(node(p, "n1")->what, "lost");
        check_came_true(&real, p);
        rig_fini(&r);
        rig_fini(&real);
}

/* R: X1 C11 */
static void losing_too_many_at_once_shows_the_brake(void **state)
{
        (void)state;
        struct rig r;
        three_nodes(&r);
        char *ids[] = { "n1", "n2" };
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        q.lose_nodes = ids;
        q.n_lose_nodes = 2;
        Pb__PlanResponse *p = plan(&r, &q);
        assert_int_equal(p->n_changes, 0);
        assert_int_equal(p->n_warnings, 1);
        assert_non_null(strstr(p->warnings[0], "the brake would hold"));
        rig_fini(&r);
}

/* R: X1 */
static void more_nodes_like_one_take_what_waits(void **state)
{
        (void)state;
        struct rig r;
        three_nodes(&r);
        for (int i = 0; i < 5; i++)
                rig_apply(&r, rig_workload(&r, fmt("waits-%d", i), 4000, 512));
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        q.add_nodes_like = "n1";
        q.add_nodes = 2;
        Pb__PlanResponse *p = plan(&r, &q);
        assert_int_equal(p->pending_before, 5);
        assert_int_equal(p->pending_after, 3);
        assert_int_equal(p->n_changes, 2);
        assert_string_equal(p->changes[0]->what, "start");
        assert_string_equal(node(p, "n1-new-1")->what, "new");
        assert_int_equal(node(p, "n1-new-2")->units_after, 1);
        rig_fini(&r);
}

/* R: X1: what is under way when the plan is made is no part of its answer. */
static void a_plan_of_nothing_new_says_so(void **state)
{
        (void)state;
        struct rig r;
        three_nodes(&r);
        rig_apply(&r, rig_workload(&r, "starting", 1000, 512)); /* ordered, not yet answered */
        rig_delete(&r, "w1");
        Pb__Workload *list[] = { rig_workload(&r, "w2", 1000, 1024) };
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        q.apply = list;
        q.n_apply = 1;
        Pb__PlanResponse *p = plan(&r, &q);
        assert_int_equal(p->n_changes, 0);
        assert_string_equal(p->summary, "nothing changes");
        rig_fini(&r);
}

/* R: X1 A9 */
static void a_plan_has_exactly_one_question(void **state)
{
        (void)state;
        struct err err = { 0 };
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        assert_int_equal(validate_request(&q.base, &err), -ERR_INVALID);
        q.drain_node = "n1";
        assert_int_equal(validate_request(&q.base, &err), 0);
        q.add_nodes = 2;
        assert_int_equal(validate_request(&q.base, &err), -ERR_INVALID);
        q.drain_node = "";
        assert_int_equal(validate_request(&q.base, &err), -ERR_INVALID); /* like which? */
}

static const struct rig_reply *apply_at(struct rig *r, Pb__Workload *w, uint64_t index)
{
        struct err err = { 0 };
        Pb__ApplyWorkloadRequest *q =
            (Pb__ApplyWorkloadRequest *)pb_new(&r->memory, &pb__apply_workload_request__descriptor);
        q->workload = w;
        q->check_index = index;
        assert_int_equal(request_normalise(&r->memory, &q->base, &err), 0);
        return rig_ask(r, INPUT_APPLY, q);
}

/* R: X1 */
static void an_index_holds_until_somebody_decides_something(void **state)
{
        (void)state;
        struct rig r;
        three_nodes(&r);
        uint64_t index = core_head(r.core);
        rig_beat(&r, "n1");
        rig_exits(&r, "w6", 1); /* it will be tried again in its place: nothing a plan looks at */
        const struct rig_reply *a = apply_at(&r, rig_workload(&r, "new-1", 500, 128), index);
        assert_int_equal(a->err.code, ERR_OK);
        /* the second of the same plan: what the first led to is no surprise */
        rig_runs(&r, "new-1");
        uint64_t next = ((Pb__Workload *)a->msg)->resource_version;
        a = apply_at(&r, rig_workload(&r, "new-2", 500, 128), next);
        assert_int_equal(a->err.code, ERR_OK);
        next = ((Pb__Workload *)a->msg)->resource_version;
        /* somebody else */
        rig_wish(&r, "n3", PB__NODE_WISH__E__cordoned);
        a = apply_at(&r, rig_workload(&r, "new-3", 500, 128), next);
        assert_refused(a, ERR_CONFLICT);
        assert_non_null(strstr(a->err.hint, "make the plan again"));
        assert_null(rig_get(&r, "new-3"));
        Pb__SetNodeWishRequest q = PB__SET_NODE_WISH_REQUEST__INIT;
        q.id = "n1";
        q.wish = PB__NODE_WISH__E__draining;
        q.check_index = next;
        assert_refused(rig_ask(&r, INPUT_NODE_WISH, &q), ERR_CONFLICT);
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = "w1";
        ref.check_index = next;
        assert_refused(rig_ask(&r, INPUT_DELETE, &ref), ERR_CONFLICT);
        ref.check_index = core_head(r.core);
        assert_int_equal(rig_ask(&r, INPUT_DELETE, &ref)->err.code, ERR_OK);
        assert_refused(apply_at(&r, rig_workload(&r, "new-3", 500, 128), core_head(r.core) + 1),
                       ERR_CONFLICT);
        /* a restart forgets what was decided: an older plan is made again */
        rig_restart(&r);
        assert_refused(apply_at(&r, rig_workload(&r, "new-3", 500, 128), core_head(r.core) - 1),
                       ERR_CONFLICT);
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_applied_plan_comes_true),
                cmocka_unit_test(a_planned_drain_comes_true),
                cmocka_unit_test(what_a_planned_drain_cannot_move_runs_on),
                cmocka_unit_test(a_planned_delete_comes_true),
                cmocka_unit_test(the_loss_of_a_node_is_planned_through_silence_and_grace),
                cmocka_unit_test(losing_too_many_at_once_shows_the_brake),
                cmocka_unit_test(more_nodes_like_one_take_what_waits),
                cmocka_unit_test(a_plan_of_nothing_new_says_so),
                cmocka_unit_test(a_plan_has_exactly_one_question),
                cmocka_unit_test(an_index_holds_until_somebody_decides_something),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
