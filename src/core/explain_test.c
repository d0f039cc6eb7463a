/* core/explain_test.c: why, why not, and what would have to change; what it suggests is done, and
 * must work. */
#include "base/clock.h"
#include "core/core_testlib.h"

static int32_t sum_of_reasons(const Pb__Explanation *x)
{
        int32_t sum = 0;
        for (size_t i = 0; i < x->n_reasons; i++) {
                assert_true(x->reasons[i]->nodes > 0 && x->reasons[i]->example[0]);
                sum += x->reasons[i]->nodes;
        }
        return sum;
}

static void check_counts(const Pb__Explanation *x, int32_t nodes)
{
        assert_int_equal(x->nodes, nodes);
        assert_int_equal(sum_of_reasons(x) + x->feasible, nodes);
}

/* R: A8 X2 */
static void the_counts_add_up_to_the_number_of_nodes(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_apply(&r, rig_workload(&r, "a", 3000, 1024));
        Pb__Explanation *x = rig_explain(&r, "a");
        check_counts(x, 0);
        assert_string_equal(x->would_fit_if[0], "add a node: start berth agent on a machine");
        rig_hello(&r, "n1", 2000, 4096, 10, NULL);
        rig_hello(&r, "n2", 2500, 4096, 10, NULL);
        rig_hello(&r, "n3", 4000, 512, 10, NULL);
        rig_hello(&r, "n4", 1000, 512, 10, NULL);
        rig_wish(&r, "n4", PB__NODE_WISH__E__cordoned);
        x = rig_explain(&r, "a");
        check_counts(x, 4);
        assert_int_equal(x->feasible, 0);
        assert_int_equal(x->n_reasons, 3);
        assert_string_equal(x->nearest_miss->node_id, "n2"); /* half a core short; n1 lacks more */
        assert_int_equal(x->nearest_miss->reason, PB__REASON__E__cpu_insufficient);
        assert_string_equal(x->nearest_miss->detail,
                            "needs 3.000 cpu, 2.500 cpu free of 2.500 cpu");
        assert_int_equal(x->n_candidates, 4);
        assert_string_equal(x->summary, "fits on none of 4 nodes");
        rig_fini(&r);
}

/* R: A8 */
static void a_placed_one_shows_the_candidates_as_if_it_were_not_there(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_hello(&r, "n2", 4000, 4096, 10, NULL);
        rig_apply(&r, rig_workload(&r, "a", 4000, 4096)); /* fills n1 */
        rig_runs(&r, "a");
        Pb__Explanation *x = rig_explain(&r, "a");
        check_counts(x, 2);
        assert_int_equal(x->feasible, 2);
        assert_true(x->candidates[0]->chosen);
        assert_string_equal(x->candidates[0]->node_id, "n1");
        assert_int_equal(x->candidates[0]->score, 0);
        assert_string_equal(x->placement->node_id, "n1");
        assert_int_equal(x->phase, PB__PHASE__E__Running);
        /* and nothing was changed by looking */
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 4000);
        rig_fini(&r);
}

/* R: A8 C28 */
static void it_says_what_comes_next_and_when(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
        Pb__Explanation *x = rig_explain(&r, "a");
        assert_int_equal(x->next_at, r.now + 15000);
        rig_exits(&r, "a", 1);
        x = rig_explain(&r, "a");
        assert_int_equal(x->next_at, r.now + 5000);
        assert_string_equal(x->next, "tried again, attempt 2; until then it keeps its place on n1 "
                                     "and counts for its tenant's quota");
        assert_string_equal(x->summary, "failed on n1: exited with code 1");
        rig_advance_alive(&r, 5000);
        rig_runs(&r, "a");
        rig_gone(&r, "n1");
        rig_advance(&r, 31000);
        x = rig_explain(&r, "a");
        assert_int_equal(x->phase, PB__PHASE__E__Unknown);
        assert_non_null(strstr(x->next, "grace"));
        assert_int_equal(x->next_at, rig_node(&r, "n1")->status_updated_at + 60000);
        rig_fini(&r);
}

/* A node may have less than it has promised, and a unit may ask for nothing.  R: A8 E9 */
static void a_node_that_has_shrunk_is_explained_too(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_apply(&r, rig_workload(&r, "a", 3000, 3072));
        rig_hello(&r, "n1", 2500, 1024, 10, NULL);
        rig_apply(&r, rig_workload(&r, "b", 0, 0));
        rig_apply(&r, rig_workload(&r, "c", 100, 10));
        Pb__Explanation *x = rig_explain(&r, "b");
        check_counts(x, 1);
        assert_string_equal(x->nearest_miss->detail,
                            "needs 0.000 cpu, -0.500 cpu free of 2.500 cpu");
        x = rig_explain(&r, "c");
        assert_int_equal(x->n_would_fit_if, 1); /* both are lacking: one sentence with both */
        assert_non_null(
            strstr(x->would_fit_if[0], "free 0.600 cpu on n1; and free 2058 MiB of memory on n1"));
        rig_delete(&r, "a");
        rig_is_gone(&r, "a", "n1");
        assert_phase(&r, "b", Scheduled);
        assert_phase(&r, "c", Scheduled);
        rig_fini(&r);
}

/* R: C16 A8 */
static void why_it_waits_is_told_as_things_are_now(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_apply(&r, rig_workload(&r, "a", 2000, 512));
        rig_runs(&r, "a");
        rig_wish(&r, "n1", PB__NODE_WISH__E__cordoned);
        rig_apply(&r, rig_workload(&r, "b", 3000, 512));
        Pb__Workload *w = rig_get(&r, "b");
        assert_int_equal(w->status->reason, PB__REASON__E__node_cordoned);
        assert_string_equal(w->status->failure_reason,
                            "no suitable node available (node-cordoned: 1)");
        rig_wish(&r, "n1", PB__NODE_WISH__E__schedulable);
        uint64_t head = core_head(r.core);
        w = rig_get(&r, "b");
        assert_int_equal(w->status->reason, PB__REASON__E__cpu_insufficient);
        assert_string_equal(w->status->failure_reason,
                            "no suitable node available (now mostly cpu-insufficient)");
        assert_null(rig_explain(&r, "b")->last_failure); /* it waits, and has not failed */
        assert_int_equal(core_head(r.core), head);
        rig_fini(&r);
}

/* ---- the suggestions, carried out ---- */

/* "... ask for at most 1.250 cpu ..." */
static bool amount_after(const char *text, const char *before, const char *unit, double *ret)
{
        const char *p = strstr(text, before);
        char *end;
        if (!p)
                return false;
        *ret = strtod(p + strlen(before), &end);
        return strncmp(end + 1, unit, strlen(unit)) == 0;
}

/* Asks for what it says is the most, and gets it; a thousandth, a MiB or a GiB more would have been
 * too much. */
static bool ask_for_less(struct rig *r, const Pb__Workload *w, const char *way)
{
        double v;
        Pb__Workload *less = rig_workload(r, w->id, w->resources->cpu, w->resources->memory_mb);
        less->resources->disk_gb = w->resources->disk_gb;
        int64_t *field = NULL;
        if (amount_after(way, "ask for at most ", "cpu", &v))
                *(field = &less->resources->cpu) = (int64_t)(v * 1000 + 0.5);
        else if (amount_after(way, "ask for at most ", "MiB", &v))
                *(field = &less->resources->memory_mb) = (int64_t)v;
        else if (amount_after(way, "ask for at most ", "GiB", &v))
                *(field = &less->resources->disk_gb) = (int64_t)v;
        else
                return false;
        (*field)++;
        rig_apply(r, less);
        assert_int_equal(rig_get(r, w->id)->status->phase, PB__PHASE__E__Pending);
        (*field)--;
        rig_apply(r, less);
        assert_int_equal(rig_get(r, w->id)->status->phase, PB__PHASE__E__Scheduled);
        return true;
}

static bool uncordon(struct rig *r, const Pb__Workload *w, const char *way)
{
        char node[64];
        if (sscanf(way, "uncordon node %63s", node) != 1)
                return false;
        rig_wish(r, node, PB__NODE_WISH__E__schedulable);
        Pb__Workload *now = rig_get(r, w->id);
        assert_int_equal(now->status->phase, PB__PHASE__E__Scheduled);
        assert_string_equal(now->assigned_node, node);
        return true;
}

/* R: A8 X2 */
static void what_it_suggests_makes_it_fit(void **state)
{
        (void)state;
        unsigned tried = 0, fitted = 0;
        for (uint64_t seed = 1; seed <= 150; seed++) {
                struct rng g;
                rng_seed(&g, seed);
                struct rig r;
                rig_init(&r, NULL);
                unsigned nodes = 1 + (unsigned)rng_below(&g, 6);
                for (unsigned i = 0; i < nodes; i++) {
                        char *id = arena_printf(&r.memory, "n%u", i);
                        rig_hello(&r, id, 1000 * (int64_t)(1 + rng_below(&g, 4)),
                                  1024 * (int64_t)(1 + rng_below(&g, 4)),
                                  (int64_t)rng_below(&g, 20), NULL);
                        if (rng_chance(&g, 300000))
                                rig_wish(&r, id, PB__NODE_WISH__E__cordoned);
                }
                for (unsigned i = 0; i < 4; i++)
                        rig_apply(&r, rig_workload(&r, arena_printf(&r.memory, "w%u", i),
                                                   (int64_t)rng_below(&g, 2000),
                                                   (int64_t)rng_below(&g, 1024)));
                Pb__Workload *w = rig_workload(&r, "x", (int64_t)rng_below(&g, 6000),
                                               (int64_t)rng_below(&g, 6000));
                w->resources->disk_gb = (int64_t)rng_below(&g, 30);
                rig_apply(&r, w);
                Pb__Explanation *x = rig_explain(&r, "x");
                check_counts(x, (int32_t)nodes);
                if (rig_get(&r, "x")->status->phase == PB__PHASE__E__Pending) {
                        assert_int_equal(x->feasible, 0);
                        assert_true(x->n_would_fit_if > 0);
                        size_t which = rng_below(&g, x->n_would_fit_if);
                        const char *way = x->would_fit_if[which];
                        tried++;
                        if (!strstr(way, "; and "))
                                fitted += ask_for_less(&r, w, way) || uncordon(&r, w, way);
                } else {
                        assert_true(x->feasible > 0);
                        assert_int_equal(x->n_would_fit_if, 0);
                }
                rig_fini(&r);
        }
        assert_true(tried > 40 && fitted > 20);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_counts_add_up_to_the_number_of_nodes),
                cmocka_unit_test(a_placed_one_shows_the_candidates_as_if_it_were_not_there),
                cmocka_unit_test(it_says_what_comes_next_and_when),
                cmocka_unit_test(a_node_that_has_shrunk_is_explained_too),
                cmocka_unit_test(what_it_suggests_makes_it_fit),
                cmocka_unit_test(why_it_waits_is_told_as_things_are_now),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
