/* core/quota_test.c: a tenant's limits at the API, before an allocation, over restarts, and under
 * random sequences (C31). */
#include "core/core_testlib.h"
#include "model/pb.h"

static const struct rig_reply *set_quota(struct rig *r, const char *tenant, int64_t workloads,
                                         int64_t cpu_milli, int64_t memory_mb, int32_t writes)
{
        Pb__SetQuotaRequest *q = arena_new(&r->memory, Pb__SetQuotaRequest);
        pb__set_quota_request__init(q);
        q->quota = arena_new(&r->memory, Pb__Quota);
        pb__quota__init(q->quota);
        q->quota->tenant = arena_strdup(&r->memory, tenant);
        q->quota->workloads = workloads;
        q->quota->resources = arena_new(&r->memory, Pb__Resources);
        pb__resources__init(q->quota->resources);
        q->quota->resources->cpu = cpu_milli;
        q->quota->resources->memory_mb = memory_mb;
        q->quota->writes_per_minute = writes;
        return rig_ask(r, INPUT_QUOTA_SET, q);
}

static const struct rig_reply *remove_quota(struct rig *r, const char *tenant)
{
        Pb__TenantRef *q = arena_new(&r->memory, Pb__TenantRef);
        pb__tenant_ref__init(q);
        q->tenant = arena_strdup(&r->memory, tenant);
        return rig_ask(r, INPUT_QUOTA_REMOVE, q);
}

static Pb__Quota *get_quota(struct rig *r, const char *tenant)
{
        Pb__TenantRef *q = arena_new(&r->memory, Pb__TenantRef);
        pb__tenant_ref__init(q);
        q->tenant = arena_strdup(&r->memory, tenant);
        const struct rig_reply *reply = rig_ask(r, INPUT_GET_QUOTA, q);
        return reply->err.code ? NULL : (Pb__Quota *)reply->msg;
}

static Pb__Workload *of_tenant(struct rig *r, const char *id, const char *tenant, int64_t cpu_milli,
                               int64_t memory_mb)
{
        Pb__Workload *w = rig_workload(r, id, cpu_milli, memory_mb);
        w->tenant = arena_strdup(&r->memory, tenant);
        return w;
}

static void assert_exceeds(const struct rig_reply *reply, const char *dimension, int64_t limit,
                           int64_t usage, int64_t delta)
{
        assert_refused(reply, ERR_QUOTA);
        assert_string_equal(reply->err.excess.dimension, dimension);
        assert_int_equal(reply->err.excess.limit, limit);
        assert_int_equal(reply->err.excess.current_usage, usage);
        assert_int_equal(reply->err.excess.requested_delta, delta);
}

/* R: C31 G28 */
static void what_exceeds_a_quota_is_refused_with_the_dimension_and_the_numbers(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 8000, 8192, 100, NULL);
        assert_true(set_quota(&r, "team", 3, 2000, 1000, 0)->created);
        assert_refused(rig_apply(&r, of_tenant(&r, "a", "team", 1500, 100)), ERR_OK);
        rig_mark(&r);
        assert_exceeds(rig_apply(&r, of_tenant(&r, "b", "team", 600, 100)), "cpu_milli", 2000, 1500,
                       600);
        assert_exceeds(rig_apply(&r, of_tenant(&r, "b", "team", 500, 950)), "memory_mb", 1000, 100,
                       950);
        assert_told(&r, ""); /* nothing has changed */
        assert_refused(rig_apply(&r, of_tenant(&r, "b", "team", 500, 0)), ERR_OK);
        assert_refused(rig_apply(&r, of_tenant(&r, "c", "team", 0, 0)), ERR_OK);
        assert_exceeds(rig_apply(&r, of_tenant(&r, "d", "team", 0, 0)), "workloads", 3, 3, 1);
        /* no quota, no limit */
        assert_refused(rig_apply(&r, of_tenant(&r, "d", "others", 3000, 0)), ERR_OK);
        /* nor by changing sides */
        assert_exceeds(rig_apply(&r, of_tenant(&r, "d", "team", 0, 0)), "workloads", 3, 3, 1);
        assert_exceeds(rig_apply(&r, of_tenant(&r, "b", "team", 600, 0)), "cpu_milli", 2000, 2000,
                       100);
        /* less is always allowed */
        assert_refused(rig_apply(&r, of_tenant(&r, "b", "team", 400, 0)), ERR_OK);
        Pb__Quota *q = get_quota(&r, "team");
        assert_int_equal(q->usage->workloads, 3);
        assert_int_equal(q->usage->resources->cpu, 1900);
        assert_int_equal(q->usage->resources->memory_mb, 100);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C31 */
static void what_is_stopped_deleted_or_finished_uses_nothing(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 8000, 8192, 100, NULL);
        set_quota(&r, "team", 0, 1000, 0, 0);
        Pb__Workload *job = of_tenant(&r, "job", "team", 1000, 0);
        job->restart = PB__RESTART__E__on_failure;
        rig_apply(&r, job);
        rig_runs(&r, "job");
        assert_exceeds(rig_apply(&r, of_tenant(&r, "a", "team", 1, 0)), "cpu_milli", 1000, 1000, 1);
        rig_exits(&r, "job", 0);
        assert_phase(&r, "job", Completed);
        assert_refused(rig_apply(&r, of_tenant(&r, "a", "team", 1000, 0)), ERR_OK);
        /* the same again starts nothing */
        assert_refused(rig_apply(&r, job), ERR_OK);
        /* it would run again */
        assert_exceeds(rig_retry(&r, "job"), "cpu_milli", 1000, 1000, 1000);
        rig_runs(&r, "a");
        rig_stop(&r, "a");
        assert_refused(rig_retry(&r, "job"), ERR_OK);
        assert_exceeds(rig_start(&r, "a"), "cpu_milli", 1000, 1000, 1000);
        rig_delete(&r, "job"); /* counts no longer, even before its copy is gone */
        assert_refused(rig_start(&r, "a"), ERR_OK);
        assert_int_equal(get_quota(&r, "team")->usage->workloads, 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C31 A8 */
static void a_lowered_quota_takes_nothing_away_and_holds_up_what_has_no_place(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        set_quota(&r, "team", 0, 3000, 0, 0);
        /* no node yet: they wait for capacity */
        rig_apply(&r, of_tenant(&r, "a", "team", 1000, 0));
        rig_apply(&r, of_tenant(&r, "b", "team", 1000, 0));
        rig_apply(&r, of_tenant(&r, "c", "team", 1000, 0));
        assert_int_equal(rig_get(&r, "a")->status->reason, PB__REASON__E__no_nodes);
        set_quota(&r, "team", 0, 2000, 0, 0);
        rig_hello(&r, "n1", 8000, 8192, 100, NULL);
        assert_phase(&r, "a", Scheduled);
        assert_phase(&r, "b", Scheduled);
        assert_phase(&r, "c", Pending);
        Pb__Workload *c = rig_get(&r, "c");
        assert_int_equal(c->status->reason, PB__REASON__E__quota_exceeded);
        Pb__Explanation *x = rig_explain(&r, "c");
        assert_non_null(strstr(x->summary, "quota of tenant team"));
        assert_int_equal(x->feasible, 1); /* it is not about capacity */
        assert_non_null(strstr(x->would_fit_if[0], "quota"));
        rig_runs(&r, "a");
        rig_runs(&r, "b");
        set_quota(&r, "team", 0, 1000, 0, 0);
        assert_phase(&r, "a", Running); /* what runs goes on */
        assert_phase(&r, "b", Running);
        rig_mark(&r);
        rig_advance_alive(&r, 600000);
        assert_told(&r, ""); /* waiting writes nothing */
        rig_restart(&r);
        rig_hello(&r, "n1", 8000, 8192, 100, NULL);
        assert_int_equal(rig_get(&r, "c")->status->reason, PB__REASON__E__quota_exceeded);
        rig_delete(&r, "a");
        assert_phase(&r, "c", Pending); /* b alone fills it */
        rig_delete(&r, "b");
        assert_phase(&r, "c", Scheduled);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* It kept its place, so nothing is allocated: it is asked all the same. */
/* R: C31 */
static void a_start_in_place_is_asked_as_an_allocation_is(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 8000, 8192, 100, NULL);
        rig_apply(&r, of_tenant(&r, "a", "team", 1000, 0));
        rig_apply(&r, of_tenant(&r, "b", "team", 1000, 0));
        rig_runs(&r, "a");
        rig_runs(&r, "b");
        rig_stop(&r, "a");
        set_quota(&r, "team", 1, 0, 0, 0);
        assert_exceeds(rig_start(&r, "a"), "workloads", 1, 1, 1);
        Pb__Workload *again = of_tenant(&r, "a", "team", 1000, 0);
        again->desired_state = PB__DESIRED_STATE__E__Running;
        again->stop_grace_seconds = 3;
        assert_refused(rig_apply(&r, again), ERR_QUOTA);
        rig_stop(&r, "b");
        assert_int_equal(rig_start(&r, "a")->err.code, ERR_OK);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C31 */
static void room_that_returns_is_used_at_once(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        set_quota(&r, "team", 2, 0, 0, 0);
        rig_apply(&r, of_tenant(&r, "a", "team", 100, 0));
        rig_apply(&r, of_tenant(&r, "b", "team", 100, 0));
        set_quota(&r, "team", 1, 0, 0, 0);
        rig_hello(&r, "n1", 8000, 8192, 100, NULL);
        assert_phase(&r, "a", Scheduled);
        assert_phase(&r, "b", Pending);
        rig_mark(&r);
        set_quota(&r, "team", 2, 0, 0, 0);
        assert_told(&r, "QuotaSet WorkloadScheduled");
        rig_stop(&r, "a");
        set_quota(&r, "team", 1, 0, 0, 0);
        rig_mark(&r);
        assert_refused(remove_quota(&r, "team"), ERR_OK);
        assert_refused(remove_quota(&r, "team"), ERR_NOT_FOUND);
        assert_refused(rig_start(&r, "a"), ERR_OK);
        assert_null(rig_record(&r, "/quotas/team"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C31 C22 */
static void a_move_to_another_node_is_not_held_up_by_a_lowered_quota(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 8000, 8192, 100, NULL);
        rig_apply(&r, of_tenant(&r, "a", "team", 1000, 0));
        rig_runs(&r, "a");
        set_quota(&r, "team", 0, 1, 0, 0);
        rig_hello(&r, "n2", 8000, 8192, 100, NULL);
        rig_wish(&r, "n1", PB__NODE_WISH__E__draining);
        assert_string_equal(rig_get(&r, "a")->assigned_node, "n2");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C31 A9 */
static void a_quota_is_changed_by_version_and_the_same_again_is_no_change(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        set_quota(&r, "team", 5, 0, 0, 0);
        uint64_t version = get_quota(&r, "team")->resource_version;
        rig_mark(&r);
        assert_false(set_quota(&r, "team", 5, 0, 0, 0)->created);
        assert_told(&r, "");
        set_quota(&r, "team", 6, 0, 0, 0);
        Pb__SetQuotaRequest q = PB__SET_QUOTA_REQUEST__INIT;
        Pb__Quota quota = PB__QUOTA__INIT;
        quota.tenant = "team";
        quota.workloads = 7;
        q.quota = &quota;
        q.if_match = version;
        assert_refused(rig_ask(&r, INPUT_QUOTA_SET, &q), ERR_CONFLICT);
        assert_int_equal(get_quota(&r, "team")->workloads, 6);
        assert_null(get_quota(&r, "nobody"));
        rig_apply(&r, rig_workload(&r, "a", 100, 0));
        /* no tenant is the tenant "default" */
        assert_int_equal(get_quota(&r, "default")->usage->workloads, 1);
        rig_restart(&r);
        assert_int_equal(get_quota(&r, "team")->workloads, 6);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C31 */
static void writes_beyond_the_rate_are_told_when_to_come_back(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        set_quota(&r, "team", 0, 0, 0, 6);
        char id[8];
        for (int i = 0; i < 6; i++) {
                snprintf(id, sizeof(id), "w%d", i);
                assert_refused(rig_apply(&r, of_tenant(&r, id, "team", 1, 0)), ERR_OK);
        }
        rig_mark(&r);
        const struct rig_reply *reply = rig_apply(&r, of_tenant(&r, "w9", "team", 1, 0));
        assert_refused(reply, ERR_LIMIT);
        assert_int_equal(reply->err.retry_after_ms, 10000);
        assert_refused(rig_delete(&r, "w0"), ERR_LIMIT);
        /* others are not held up */
        assert_refused(rig_apply(&r, of_tenant(&r, "x", "others", 1, 0)), ERR_OK);
        /* nor are reads */
        assert_non_null(rig_get(&r, "w0"));
        rig_advance(&r, 9999);
        assert_refused(rig_delete(&r, "w0"), ERR_LIMIT);
        rig_advance(&r, 1);
        assert_refused(rig_delete(&r, "w0"), ERR_OK);
        assert_refused(rig_delete(&r, "w1"), ERR_LIMIT);
        rig_advance(&r, 3600000); /* an hour of silence is worth one minute's writes, not more */
        for (int i = 0; i < 6; i++) {
                snprintf(id, sizeof(id), "v%d", i);
                assert_refused(rig_apply(&r, of_tenant(&r, id, "team", 1, 0)), ERR_OK);
        }
        assert_refused(rig_apply(&r, of_tenant(&r, "v9", "team", 1, 0)), ERR_LIMIT);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* What the events say, added up by somebody who knows nothing of the core: no apply that was let
 * through exceeded a limit of its time. */
/* R: C31 A2 */
static void random_lives_never_exceed_a_quota_and_fold_to_the_same_usage(void **state)
{
        (void)state;
        static const char *const tenants[] = { "", "a", "b" };
        for (uint64_t seed = 1; seed <= 40; seed++) {
                struct rig r;
                struct rng g;
                rng_seed(&g, seed);
                rig_init(&r, NULL);
                rig_hello(&r, "n1", 6000, 8192, 100, NULL);
                rig_hello(&r, "n2", 6000, 8192, 100, NULL);
                for (int i = 0; i < 150; i++) {
                        char id[8];
                        snprintf(id, sizeof(id), "w%u", (unsigned)rng_below(&g, 12));
                        const char *tenant = tenants[rng_below(&g, 3)];
                        Pb__Workload *w = rig_get(&r, id);
                        const char *node = w && w->assigned_node ? w->assigned_node : "";
                        switch (rng_below(&g, 12)) {
                        case 0:
                                set_quota(&r, *tenant ? tenant : "default",
                                          (int64_t)rng_below(&g, 6),
                                          (int64_t)rng_below(&g, 5) * 1000,
                                          (int64_t)rng_below(&g, 3) * 512, 0);
                                break;
                        case 1:
                                remove_quota(&r, *tenant ? tenant : "default");
                                break;
                        case 2:
                                rig_stop(&r, id);
                                break;
                        case 3:
                                rig_start(&r, id);
                                break;
                        case 4:
                                rig_delete(&r, id);
                                if (*node)
                                        rig_is_gone(&r, id, node);
                                break;
                        case 5:
                                if (w && w->status->phase == PB__PHASE__E__Scheduled)
                                        rig_runs(&r, id);
                                break;
                        case 6:
                                if (w && w->status->phase == PB__PHASE__E__Running)
                                        rig_exits(&r, id, (int)rng_below(&g, 2));
                                break;
                        case 7:
                                rig_wish(&r, rng_below(&g, 2) ? "n1" : "n2",
                                         rng_below(&g, 2) ? PB__NODE_WISH__E__draining
                                                          : PB__NODE_WISH__E__schedulable);
                                break;
                        case 8:
                                if (rng_below(&g, 4) == 0) {
                                        rig_restart(&r);
                                        rig_hello(&r, "n1", 6000, 8192, 100, NULL);
                                        rig_hello(&r, "n2", 6000, 8192, 100, NULL);
                                }
                                break;
                        default: {
                                Pb__Workload *n =
                                    of_tenant(&r, id, tenant, (int64_t)rng_below(&g, 4) * 500,
                                              (int64_t)rng_below(&g, 3) * 128);
                                n->restart = rng_below(&g, 2) ? PB__RESTART__E__never
                                                              : PB__RESTART__E__always;
                                const struct rig_reply *reply = rig_apply(&r, n);
                                Pb__Quota *q = get_quota(&r, *tenant ? tenant : "default");
                                if (reply->err.code == ERR_OK && reply->created && q &&
                                    q->workloads)
                                        assert_true(q->usage->workloads <= q->workloads);
                                if (reply->err.code == ERR_OK && reply->created && q &&
                                    q->resources->cpu && n->resources->cpu)
                                        assert_true(q->usage->resources->cpu <= q->resources->cpu);
                        }
                        }
                        rig_advance_alive(&r, 1000);
                }
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(
                    what_exceeds_a_quota_is_refused_with_the_dimension_and_the_numbers),
                cmocka_unit_test(what_is_stopped_deleted_or_finished_uses_nothing),
                cmocka_unit_test(a_lowered_quota_takes_nothing_away_and_holds_up_what_has_no_place),
                cmocka_unit_test(a_start_in_place_is_asked_as_an_allocation_is),
                cmocka_unit_test(room_that_returns_is_used_at_once),
                cmocka_unit_test(a_move_to_another_node_is_not_held_up_by_a_lowered_quota),
                cmocka_unit_test(a_quota_is_changed_by_version_and_the_same_again_is_no_change),
                cmocka_unit_test(writes_beyond_the_rate_are_told_when_to_come_back),
                cmocka_unit_test(random_lives_never_exceed_a_quota_and_fold_to_the_same_usage),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
