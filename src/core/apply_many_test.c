/* core/apply_many_test.c: many workloads in one input are what they would have been one by one. */
#include "core/core_testlib.h"
#include "model/validate.h"

static Pb__ApplyWorkloadsRequest *request(struct rig *r, size_t n, Pb__Workload **items)
{
        struct err err = { 0 };
        Pb__ApplyWorkloadsRequest *req = arena_new_n(&r->memory, Pb__ApplyWorkloadsRequest, 1);
        pb__apply_workloads_request__init(req);
        req->items = items;
        req->n_items = n;
        if (request_normalise(&r->memory, &req->base, &err) < 0)
                fail_msg("%s", err_line(&err));
        return req;
}

static const Pb__ApplyWorkloadsResponse *apply(struct rig *r, Pb__ApplyWorkloadsRequest *req)
{
        const struct rig_reply *reply = rig_ask(r, INPUT_APPLY_MANY, req);
        assert_refused(reply, ERR_OK);
        return (const Pb__ApplyWorkloadsResponse *)reply->msg;
}

static void assert_result(const Pb__ApplyWorkloadsResponse *a, size_t i, const char *id,
                          const char *outcome)
{
        assert_string_equal(a->results[i]->id, id);
        assert_string_equal(a->results[i]->outcome, outcome);
}

/* R: C5 C7 */
static void each_item_has_its_own_result_in_its_place(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        rig_apply(&r, rig_workload(&r, "same", 100, 64));
        rig_apply(&r, rig_workload(&r, "other", 100, 64));
        rig_apply(&r, rig_workload(&r, "leaving", 100, 64));
        rig_delete(&r, "leaving");
        rig_mark(&r);
        Pb__Workload *items[] = {
                rig_workload(&r, "new", 100, 64),      rig_workload(&r, "same", 100, 64),
                rig_workload(&r, "leaving", 100, 64),  rig_workload(&r, "other", 200, 64),
                rig_workload(&r, "large", 900000, 64), rig_workload(&r, "new", 100, 64)
        };
        const Pb__ApplyWorkloadsResponse *a = apply(&r, request(&r, ARRAY_LEN(items), items));
        assert_int_equal(a->n_results, ARRAY_LEN(items));
        assert_result(a, 0, "new", "created");
        assert_string_equal(a->results[0]->assigned_node, "n1");
        assert_int_equal(a->results[0]->phase, PB__PHASE__E__Scheduled);
        assert_int_equal(a->results[0]->resource_version, rig_get(&r, "new")->resource_version);
        assert_result(a, 1, "same", "unchanged");
        assert_result(a, 2, "leaving", "failed");
        assert_string_equal(a->results[2]->error->code, "conflict");
        assert_string_equal(a->results[2]->error->path, "items[2]");
        assert_true(str_starts(a->results[2]->error->request_id, "req-"));
        assert_result(a, 3, "other", "updated");
        assert_result(a, 4, "large", "created"); /* it waits */
        assert_int_equal(a->results[4]->phase, PB__PHASE__E__Pending);
        assert_result(a, 5, "new", "unchanged"); /* it sees what came before it */
        assert_int_equal(a->failed, 1);
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadApplied), 3);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C7 A10 */
static void preconditions_hold_for_each_item(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        rig_apply(&r, rig_workload(&r, "a", 100, 64));
        rig_apply(&r, rig_workload(&r, "b", 100, 64));
        Pb__Workload *items[] = { rig_workload(&r, "a", 200, 64), rig_workload(&r, "b", 200, 64),
                                  rig_workload(&r, "c", 200, 64) };
        items[0]->resource_version = rig_get(&r, "a")->resource_version;
        items[1]->resource_version = 1;
        const Pb__ApplyWorkloadsResponse *a = apply(&r, request(&r, 3, items));
        assert_result(a, 0, "a", "updated");
        assert_result(a, 1, "b", "failed");
        assert_result(a, 2, "c", "created");
        Pb__Workload *again[] = { rig_workload(&r, "a", 300, 64), rig_workload(&r, "d", 100, 64) };
        Pb__ApplyWorkloadsRequest *req = request(&r, 2, again);
        req->create_only = true;
        a = apply(&r, req);
        assert_result(a, 0, "a", "failed");
        assert_result(a, 1, "d", "created");
        assert_int_equal(rig_get(&r, "a")->resources->cpu, 200);
        rig_fini(&r);
}

/* R: A3 A11 */
static void the_answer_leaves_after_the_last_of_many_commits(void **state)
{
        (void)state;
        struct rig r;
        struct core_options opt;
        core_options_default(&opt);
        opt.max_batch_ops = 128; /* what etcd takes */
        rig_init(&r, &opt);
        for (int i = 0; i < 8; i++)
                rig_hello(&r, fmt("n%d", i), 64000, 1 << 20, 1000, NULL);
        Pb__Workload *items[APPLY_ITEMS_MAX];
        for (int i = 0; i < APPLY_ITEMS_MAX; i++)
                items[i] = rig_workload(&r, arena_printf(&r.memory, "w%03d", i), 100, 16);
        size_t batches = r.batches;
        const Pb__ApplyWorkloadsResponse *a = apply(&r, request(&r, APPLY_ITEMS_MAX, items));
        assert_true(r.batches > batches + 10);
        assert_true(r.largest_batch_ops <= 128);
        assert_int_equal(a->n_results, APPLY_ITEMS_MAX);
        assert_int_equal(a->failed, 0);
        for (size_t i = 0; i < a->n_results; i++)
                assert_true(a->results[i]->resource_version <= r.head);
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), APPLY_ITEMS_MAX);
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_item_has_its_own_result_in_its_place),
                cmocka_unit_test(preconditions_hold_for_each_item),
                cmocka_unit_test(the_answer_leaves_after_the_last_of_many_commits),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
