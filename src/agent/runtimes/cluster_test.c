/* agent/runtimes/cluster_test.c: between units of this node and workloads of another cluster. The
 * runtime at work is in cluster_life_test.c, the whole in tests/e2e/test_federation.py. */
#include "agent/runtimes/cluster_spec.h"
#include "model/pb.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct arena memory = ARENA_INIT;

static int forget(void **state)
{
        (void)state;
        arena_fini(&memory);
        memory = ARENA_INIT;
        return 0;
}

static Pb__Workload *workload(const char *id)
{
        Pb__Workload *w = (Pb__Workload *)pb_new(&memory, &pb__workload__descriptor);

        w->id = arena_strdup(&memory, id);
        w->type = PB__WORKLOAD_TYPE__E__process;
        w->revision_id = arena_strdup(&memory, "rev-7");
        w->restart = PB__RESTART__E__never;
        w->stop_grace_seconds = 3;
        w->spec = (Pb__Spec *)pb_new(&memory, &pb__spec__descriptor);
        w->resources = (Pb__Resources *)pb_new(&memory, &pb__resources__descriptor);
        w->resources->cpu = 250;
        return w;
}

static Pb__Workload *child_of(const Pb__Workload *w)
{
        struct runtime_start start = {
                .workload_id = w->id, .token = { 3, 99 }, .workload = w, .cluster_id = "01PARENT"
        };

        return cluster_child_workload(&memory, "west", &start);
}

/* R: C37 */
static void a_unit_becomes_a_workload_with_marks_that_lead_back(void **state)
{
        Pb__Workload *w = workload("api"), *c;
        struct unit_token token = { 0 };
        const char *id = NULL, *revision = NULL;

        (void)state;
        pb_map_set(&memory, &w->base, "labels", "app", "api");
        pb_map_set(&memory, &w->base, "annotations", "note", "mine");
        c = child_of(w);
        assert_string_equal(c->id, "west.api");
        assert_string_equal(c->revision_id, "rev-7");
        assert_int_equal(c->restart, PB__RESTART__E__never);
        assert_int_equal(c->stop_grace_seconds, 3);
        assert_int_equal(c->resources->cpu, 250);
        assert_int_equal(c->desired_state, PB__DESIRED_STATE__E__Running);
        assert_string_equal(pb_map_get(c->labels, c->n_labels, "app"), "api");
        assert_string_equal(pb_map_get(c->labels, c->n_labels, PARENT_CLUSTER), "01PARENT");
        assert_string_equal(pb_map_get(c->annotations, c->n_annotations, "note"), "mine");
        assert_true(cluster_is_ours(c, "west"));
        assert_false(cluster_is_ours(c, "east"));
        assert_false(cluster_is_ours(w, "west"));
        assert_true(cluster_marks(c, &id, &token, &revision));
        assert_string_equal(id, "api");
        assert_string_equal(revision, "rev-7");
        assert_int_equal(token.epoch, 3);
        assert_int_equal(token.seq, 99);
        assert_int_equal(w->n_labels, 1); /* what was given is as it was */
}

/* R: C37 */
static void what_the_parent_decided_stays_with_the_parent(void **state)
{
        Pb__Workload *w = workload("api"), *c;

        (void)state;
        pb_map_set(&memory, &w->base, "node_selector", "zone", "eu");
        w->tenant = arena_strdup(&memory, "team");
        w->priority = 9;
        w->ttl_seconds = 60;
        w->strategy = PB__STRATEGY__E__binpack;
        c = child_of(w);
        assert_int_equal(c->n_node_selector, 0);
        assert_true(str_empty(c->tenant));
        assert_int_equal(c->priority, 0);
        assert_int_equal(c->ttl_seconds, 0);
        assert_int_equal(c->strategy, PB__STRATEGY__E__unset);
}

/* Issue 5, D1: else the child may run it twice. R: C34 C37 */
static void what_is_pinned_is_pinned_in_the_child_too(void **state)
{
        Pb__Workload *w = workload("db");

        (void)state;
        w->exclusive = PB__EXCLUSIVE__E__pinned;
        assert_int_equal(child_of(w)->exclusive, PB__EXCLUSIVE__E__pinned);
}

/* R: C37 */
static void names_that_are_too_long_stay_apart(void **state)
{
        char a[129], b[129];
        const char *ca, *cb;

        (void)state;
        memset(a, 'x', 128);
        a[128] = 0;
        memcpy(b, a, sizeof(a));
        b[127] = 'y';
        ca = cluster_child_id(&memory, "west", a);
        cb = cluster_child_id(&memory, "west", b);
        assert_int_equal(strlen(ca), CHILD_ID_MAX);
        assert_int_equal(strlen(cb), CHILD_ID_MAX);
        assert_string_not_equal(ca, cb);
        assert_string_equal(ca, cluster_child_id(&memory, "west", a));
        assert_true(str_starts(ca, "west.xxx"));
}

/* R: C37 */
static void marks_that_make_no_sense_are_not_believed(void **state)
{
        static const char *const bad[] = {
                "", "7", "1.", ".2", "a.b", "1.2.3", "-1.2", "99999999999999999999999999999999999.1"
        };
        struct unit_token token;
        const char *id, *revision;

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                Pb__Workload *c = child_of(workload("api"));

                pb_map_set(&memory, &c->base, "annotations", PARENT_TOKEN, bad[i]);
                assert_false(cluster_marks(c, &id, &token, &revision));
        }
}

static enum cluster_word word(Pb__Phase__E phase, Pb__Reason__E reason, const int64_t *code,
                              const char *why, struct runtime_event *ev)
{
        Pb__Workload *w = workload("api");

        *ev = (struct runtime_event){ 0 };
        w->status = (Pb__WorkloadStatus *)pb_new(&memory, &pb__workload_status__descriptor);
        w->status->phase = phase;
        w->status->reason = reason;
        w->status->failure_reason = arena_strdup(&memory, why);
        w->status->started_at = 1000;
        w->status->finished_at = 2000;
        if (code) {
                w->status->exit_code = (Pb__IntValue *)pb_new(&memory, &pb__int_value__descriptor);
                w->status->exit_code->value = *code;
        }
        return cluster_read(w, ev);
}

/* R: C37 */
static void every_phase_of_the_child_has_one_meaning(void **state)
{
        struct runtime_event ev;
        int64_t three = 3;

        (void)state;
        assert_int_equal(
            word(PB__PHASE__E__Pending, PB__REASON__E__cpu_insufficient, NULL, "", &ev),
            WORD_WAITS);
        assert_int_equal(word(PB__PHASE__E__Scheduled, 0, NULL, "", &ev), WORD_COMES);
        assert_int_equal(word(PB__PHASE__E__Updating, 0, NULL, "", &ev), WORD_COMES);
        assert_int_equal(word(PB__PHASE__E__RetryPending, PB__REASON__E__crashed, &three,
                              "exited with code 3", &ev),
                         WORD_COMES);
        /* the child tries again: that is not the parent's business yet */
        assert_false(ev.has_exit_code);
        assert_string_equal(ev.message, "exited with code 3");
        assert_int_equal(word(PB__PHASE__E__Running, 0, NULL, "", &ev), WORD_RUNS);
        assert_int_equal(ev.at_ms, 1000);
        assert_int_equal(word(PB__PHASE__E__Unknown, 0, NULL, "", &ev), WORD_RUNS);
        assert_int_equal(word(PB__PHASE__E__Completed, PB__REASON__E__exited, NULL, "", &ev),
                         WORD_ENDED);
        assert_true(ev.has_exit_code);
        assert_int_equal(ev.exit_code, 0);
        assert_int_equal(ev.at_ms, 2000);
        assert_int_equal(
            word(PB__PHASE__E__Failed, PB__REASON__E__crashed, &three, "exited with code 3", &ev),
            WORD_ENDED);
        assert_int_equal(ev.exit_code, 3);
        assert_int_equal(ev.reason, PB__REASON__E__crashed);
        assert_string_equal(ev.message, "exited with code 3");
        assert_int_equal(
            word(PB__PHASE__E__Failed, PB__REASON__E__attempts_exhausted, &three, "gave up", &ev),
            WORD_ENDED);
        assert_int_equal(ev.reason, PB__REASON__E__none); /* the code says it */
        assert_int_equal(
            word(PB__PHASE__E__Failed, PB__REASON__E__runtime_unavailable, NULL, "no podman", &ev),
            WORD_ENDED);
        /* other nodes of the child may have one */
        assert_int_equal(ev.reason, PB__REASON__E__start_failed);
        assert_int_equal(word(PB__PHASE__E__Stopped, PB__REASON__E__stopped_by_user, NULL, "", &ev),
                         WORD_STOPPED);
        assert_int_equal(word(PB__PHASE__E__Deleting, PB__REASON__E__deleted, NULL, "", &ev),
                         WORD_LEAVES);
}

static Pb__Node *node(Pb__NodeStatus__E status, Pb__NodeWish__E wish, int64_t cpu,
                      Pb__WorkloadType__E type)
{
        Pb__Node *n = (Pb__Node *)pb_new(&memory, &pb__node__descriptor);

        n->status = status;
        n->wish = wish;
        n->resources = (Pb__NodeResources *)pb_new(&memory, &pb__node_resources__descriptor);
        n->resources->cpu_total = cpu;
        n->resources->memory_total = 1024;
        n->resources->disk_total = 10;
        n->resources->cpu_used = 100;
        n->supported_workload_types = arena_new_n(&memory, Pb__WorkloadType__E, 1);
        n->supported_workload_types[0] = type;
        n->n_supported_workload_types = 1;
        return n;
}

/* R: C37 */
static void only_nodes_that_take_work_are_added_up(void **state)
{
        struct cluster_sum sum = { 0 };

        (void)state;
        cluster_add_node(&sum, node(PB__NODE_STATUS__E__Ready, PB__NODE_WISH__E__schedulable, 4000,
                                    PB__WORKLOAD_TYPE__E__process));
        cluster_add_node(&sum, node(PB__NODE_STATUS__E__Ready, PB__NODE_WISH__E__unset, 2000,
                                    PB__WORKLOAD_TYPE__E__container));
        cluster_add_node(&sum, node(PB__NODE_STATUS__E__Ready, PB__NODE_WISH__E__schedulable, 500,
                                    PB__WORKLOAD_TYPE__E__process));
        cluster_add_node(&sum, node(PB__NODE_STATUS__E__Ready, PB__NODE_WISH__E__cordoned, 8000,
                                    PB__WORKLOAD_TYPE__E__vm));
        cluster_add_node(&sum, node(PB__NODE_STATUS__E__NotReady, PB__NODE_WISH__E__schedulable,
                                    8000, PB__WORKLOAD_TYPE__E__vm));
        cluster_add_node(&sum, node(PB__NODE_STATUS__E__Draining, PB__NODE_WISH__E__draining, 8000,
                                    PB__WORKLOAD_TYPE__E__vm));
        assert_int_equal(sum.nodes, 3);
        assert_int_equal(sum.capacity.cpu, 6500);
        assert_int_equal(sum.capacity.memory_mb, 3072);
        assert_int_equal(sum.capacity.disk_gb, 30);
        assert_int_equal(sum.usage.cpu_used, 300);
        assert_int_equal(sum.capacity.types[0], PB__WORKLOAD_TYPE__E__process);
        assert_int_equal(sum.capacity.types[1], PB__WORKLOAD_TYPE__E__container);
        assert_int_equal(sum.capacity.types[2], 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(a_unit_becomes_a_workload_with_marks_that_lead_back,
                                          forget),
                cmocka_unit_test_teardown(what_the_parent_decided_stays_with_the_parent, forget),
                cmocka_unit_test_teardown(what_is_pinned_is_pinned_in_the_child_too, forget),
                cmocka_unit_test_teardown(names_that_are_too_long_stay_apart, forget),
                cmocka_unit_test_teardown(marks_that_make_no_sense_are_not_believed, forget),
                cmocka_unit_test_teardown(every_phase_of_the_child_has_one_meaning, forget),
                cmocka_unit_test_teardown(only_nodes_that_take_work_are_added_up, forget),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
