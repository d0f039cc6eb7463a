/* core/policy_test.c: the policy is asked when something is applied, and only then. R: A14 (issue
 * 5, A8) */
#include "core/core_testlib.h"
#include "model/pb.h"

static Pb__Workload *process(struct rig *r, const char *id, const char *user)
{
        Pb__Workload *w = rig_workload(r, id, 100, 10);
        w->spec->user = arena_strdup(&r->memory, user);
        return w;
}

#define assert_applied(reply) assert_int_equal((reply)->err.code, 0)

static Pb__ClusterInfo *cluster(struct rig *r)
{
        return (Pb__ClusterInfo *)rig_ask(r, INPUT_CLUSTER, NULL)->msg;
}

static void what_is_not_allowed_is_refused_and_changes_nothing(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r, "tenant_policies: [{tenant: infra, root_processes: true}]\n");
        const struct rig_reply *reply = rig_apply(&r, process(&r, "a", "root"));
        assert_refused(reply, ERR_DENIED);
        assert_non_null(strstr(reply->err.hint, "policy.root_processes"));
        assert_null(rig_get(&r, "a"));
        Pb__Workload *w = process(&r, "a", "root");
        w->tenant = "infra";
        assert_applied(rig_apply(&r, w));
        assert_false(rig_get(&r, "a")->confine);
        /* another tenant is another question */
        assert_refused(rig_apply(&r, process(&r, "a", "root")), ERR_DENIED);
        assert_string_equal(rig_get(&r, "a")->tenant, "infra");
        rig_fini(&r);
}

static void a_process_is_confined_unless_root_is_allowed(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r, "heartbeat: 10s\n");
        Pb__Workload *w = process(&r, "a", "");
        w->confine = false; /* whatever a caller says */
        assert_applied(rig_apply(&r, w));
        assert_true(rig_get(&r, "a")->confine);
        rig_config(&r, "policy: {root_processes: true}\n");
        w = process(&r, "b", "");
        w->confine = true;
        assert_applied(rig_apply(&r, w));
        assert_false(rig_get(&r, "b")->confine);
        assert_applied(rig_apply(&r, process(&r, "a", ""))); /* the same once more: as it is */
        assert_true(rig_get(&r, "a")->confine);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* An agent that is called expands variables of a Compose file, after the policy was asked. */
static void variables_where_the_policy_looks_are_refused_with_a_sentence(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_config(&r, "policy: {host_paths: [/srv]}\n");
        Pb__Workload *w = rig_workload(&r, "a", 100, 10);
        w->type = PB__WORKLOAD_TYPE__E__compose;
        w->spec = (Pb__Spec *)pb_new(&r.memory, &pb__spec__descriptor);
        pb_map_set(&r.memory, &w->spec->base, "env", "NET", "host");
        w->spec->compose = "services: {web: {image: i, network_mode: $NET}}";
        const struct rig_reply *reply = rig_apply(&r, w);
        assert_refused(reply, ERR_DENIED);
        assert_string_equal(
            reply->err.msg,
            "the policy cannot judge $NET: what an agent would put in for a variable is not known");
        assert_string_equal(reply->err.path, "spec.compose: services.web.network_mode");
        assert_string_equal(reply->err.hint, "write the value out, or have policy.host_network "
                                             "changed in the server's configuration");
        w->spec->compose = "services: {web: {image: i, volumes: [\"/srv${X}:/x\"]}}";
        assert_refused(rig_apply(&r, w), ERR_DENIED);
        w->spec->compose = "services: {web: {image: i, network_mode: bridge, volumes: "
                           "[\"/srv/x:/x\"], command: \"echo $X\"}}";
        assert_applied(rig_apply(&r, w));
        rig_fini(&r);
}

static void what_is_on_record_goes_on_and_is_listed(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        /* no policy yet, as in a store from before */
        assert_applied(rig_apply(&r, process(&r, "before", "")));
        assert_applied(rig_apply(&r, process(&r, "root", "root")));
        assert_applied(rig_apply(&r, process(&r, "nobody", "nobody")));
        rig_config(&r, "heartbeat: 10s\n");
        assert_int_equal(cluster(&r)->beyond_policy, 2);
        assert_int_equal(cluster(&r)->n_beyond_policy_ids, 2);
        uint64_t version = rig_get(&r, "before")->resource_version;
        assert_applied(rig_apply(&r, process(&r, "before", "")));
        assert_int_equal(rig_get(&r, "before")->resource_version, version);
        assert_false(rig_get(&r, "before")->confine);
        /* new labels are no new start, and ask nothing */
        Pb__Workload *w = process(&r, "root", "root");
        pb_map_set(&r.memory, &w->base, "labels", "tier", "db");
        assert_applied(rig_apply(&r, w));
        assert_int_equal(rig_get(&r, "root")->n_labels, 1);
        w = process(&r, "before", "");
        w->spec->max_open_files = 10; /* a new start is */
        assert_applied(rig_apply(&r, w));
        assert_true(rig_get(&r, "before")->confine);
        assert_int_equal(cluster(&r)->beyond_policy, 1);
        rig_config(&r, "policy: {root_processes: true}\n");
        assert_int_equal(cluster(&r)->beyond_policy, 0);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A14 A11. Anybody may ask about the cluster, as often as they like. What it costs must not grow
 * with the definitions. */
static void asking_about_the_cluster_asks_no_policy(void **state)
{
        (void)state;
        struct rig r;
        char name[20];
        rig_init(&r, NULL);
        /* each its own definition; every third one beyond the policy */
        for (int i = 0; i < 600; i++) {
                snprintf(name, sizeof(name), "w%d", i);
                Pb__Workload *w = process(&r, name, i % 3 ? "nobody" : "root");
                w->spec->max_open_files = i + 1;
                assert_applied(rig_apply(&r, w));
        }
        const struct core_stats *counts = core_counts(r.core);
        assert_int_equal(counts->policy_judged, 0); /* there is none yet */
        assert_int_equal(cluster(&r)->beyond_policy, 0);
        rig_config(&r, "heartbeat: 10s\n");
        assert_int_equal(counts->policy_judged, 600); /* each once */
        for (int i = 0; i < 100; i++) {
                assert_int_equal(cluster(&r)->beyond_policy, 200);
                assert_int_equal(cluster(&r)->n_beyond_policy_ids, 20);
        }
        assert_int_equal(counts->policy_judged, 600);
        /* As definitions come and go. */
        assert_applied(rig_apply(&r, process(&r, "new", "daemon")));
        assert_int_equal(counts->policy_judged, 601);
        assert_applied(rig_apply(&r, process(&r, "new-too", "daemon"))); /* the same definition */
        assert_int_equal(counts->policy_judged, 601);
        rig_delete(&r, "w0");
        rig_delete(&r, "w1");
        assert_int_equal(cluster(&r)->beyond_policy, 199);
        Pb__Workload *w = process(&r, "w3", "nobody");
        assert_applied(rig_apply(&r, w));
        assert_int_equal(cluster(&r)->beyond_policy, 198);
        assert_int_equal(counts->policy_judged, 602);
        rig_config(&r, "policy: {root_processes: true}\n");
        assert_int_equal(cluster(&r)->beyond_policy, 0);
        assert_int_equal(cluster(&r)->n_beyond_policy_ids, 0);
        assert_applied(rig_apply(&r, process(&r, "allowed", "root")));
        rig_config(&r, "tenant_policies: [{tenant: infra, root_processes: true}]\n");
        assert_int_equal(cluster(&r)->beyond_policy, 199);
        rig_restart(&r); /* nothing of it is on record */
        assert_int_equal(cluster(&r)->beyond_policy, 0);
        rig_config(&r, "heartbeat: 10s\n");
        assert_int_equal(cluster(&r)->beyond_policy, 199);
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_not_allowed_is_refused_and_changes_nothing),
                cmocka_unit_test(a_process_is_confined_unless_root_is_allowed),
                cmocka_unit_test(variables_where_the_policy_looks_are_refused_with_a_sentence),
                cmocka_unit_test(what_is_on_record_goes_on_and_is_listed),
                cmocka_unit_test(asking_about_the_cluster_asks_no_policy),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
