/* Tests of model/canon.h. */
#include "base/arena.h"
#include "model/badinput.h"
#include "model/canon.h"
#include "model/json.h"
#include "model/pb.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static Pb__Workload *example(struct arena *arena)
{
        return (Pb__Workload *)badinput_example(arena, &pb__workload__descriptor);
}

/* R: G6 */
static void the_hash_is_that_of_everybody(void **state)
{
        char hash[CANON_HASH_LEN + 1];
        Pb__IntValue v = PB__INT_VALUE__INIT;

        (void)state;
        assert_string_equal(
            canon_hash_bytes("abc", 3, hash),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_string_equal(
            canon_hash_bytes(NULL, 0, hash),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        /* {} */
        assert_string_equal(
            canon_hash(&v.base, hash),
            "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
        assert_int_equal(strlen(hash), CANON_HASH_LEN);
}

/* R: G6 */
static void the_form_has_sorted_keys_and_no_space(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str out = STR_INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;

        (void)state;
        w.id = (char *)"x";
        w.ttl_seconds = 5;
        pb_map_set(&arena, &w.base, "labels", "b", "2");
        pb_map_set(&arena, &w.base, "labels", "a", "1");
        Pb__Workload__LabelsEntry *first = w.labels[0];
        w.labels[0] = w.labels[1]; /* out of order in memory */
        w.labels[1] = first;
        canon_json(&out, &w.base);
        assert_string_equal(
            str_c(&out), "{\"id\":\"x\",\"labels\":{\"a\":\"1\",\"b\":\"2\"},\"ttl_seconds\":5}");
        str_fini(&out);
        arena_fini(&arena);
}

/* R: C7 */
static void a_revision_follows_the_definition_only(void **state)
{
        struct arena arena = ARENA_INIT;
        char before[REVISION_LEN + 1], after[REVISION_LEN + 1];
        Pb__Workload *w = example(&arena);
        Pb__WorkloadStatus status = PB__WORKLOAD_STATUS__INIT;

        (void)state;
        workload_revision(w, before);
        assert_int_equal(strlen(before), REVISION_LEN);
        assert_memory_equal(before, "rev-", 4);

        status.restarts = 7;
        w->status = &status;
        w->id = (char *)"another";
        w->desired_state = PB__DESIRED_STATE__E__Stopped;
        w->assigned_node = (char *)"n1";
        w->revision_id = (char *)"old";
        w->retry->attempts = 4;
        w->retry->next_retry_at = 12345;
        w->resource_version = 9;
        assert_string_equal(workload_revision(w, after), before);

        w->resources->cpu++;
        assert_string_not_equal(workload_revision(w, after), before);
        w->resources->cpu--;
        pb_map_set(&arena, &w->spec->base, "env", "PORT", "8081");
        assert_string_not_equal(workload_revision(w, after), before);
        pb_map_set(&arena, &w->spec->base, "env", "PORT", "8080");
        w->retry->max_attempts++;
        assert_string_not_equal(workload_revision(w, after), before);
        w->retry->max_attempts--;
        w->tenant = (char *)"other";
        assert_string_not_equal(workload_revision(w, after), before);
        arena_fini(&arena);
}

/* If this number changes, every workload in every store gets a new revision on its next apply: that
 * must be a decision. */
static void revisions_do_not_change_between_versions(void **state)
{
        struct arena arena = ARENA_INIT;
        char revision[REVISION_LEN + 1];

        (void)state;
        /* with the fields that the first version had */
        Pb__Workload *w = example(&arena), old = *w;
        Pb__Spec spec = *w->spec;
        old.spec = &spec;
        spec.health = NULL;
        spec.n_managed_volumes = 0;
        old.priority = 0;
        old.n_tolerations = old.n_spread = old.n_affinity = old.n_anti_affinity =
            old.n_annotations = 0;
        assert_string_equal(workload_revision(&old, revision), "rev-e4bd579d119e");
        arena_fini(&arena);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_hash_is_that_of_everybody),
                cmocka_unit_test(the_form_has_sorted_keys_and_no_space),
                cmocka_unit_test(a_revision_follows_the_definition_only),
                cmocka_unit_test(revisions_do_not_change_between_versions),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
