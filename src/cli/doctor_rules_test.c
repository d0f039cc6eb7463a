/* cli/doctor_rules_test.c: each thing that is wrong is found, named, and comes with something to
 * do; what is fine is not complained about. */
#include "base/str.h"
#include "cli/doctor_rules.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define NOW INT64_C(1767225600000)

struct ward {
        struct arena arena;
        struct findings found;
        struct doctor_facts facts;
        Pb__ClusterInfo cluster;
        Pb__ServerFacts server;
        Pb__Node node, *nodes[1];
        Pb__NodeResources resources;
        Pb__Workload workloads[4], *list[4];
        Pb__WorkloadStatus statuses[4];
        Pb__WorkloadType__E types[1];
};

/* A cluster in good health. */
static void healthy(struct ward *w)
{
        *w = (struct ward){ 0 };
        pb__cluster_info__init(&w->cluster);
        pb__server_facts__init(&w->server);
        pb__node__init(&w->node);
        pb__node_resources__init(&w->resources);
        w->cluster.version = "1.0";
        w->cluster.status = "ok";
        w->cluster.mode = "normal";
        w->cluster.server = &w->server;
        w->server.now_at = NOW;
        w->server.store_free_mb = 50000;
        w->server.store_total_mb = 100000;
        w->server.commit_mean_us = 2000;
        w->server.queue_limit = 2048;
        w->server.open_files = 20;
        w->server.open_files_limit = 65536;
        w->server.tls_expires_at = NOW + INT64_C(90) * 86400000;
        w->server.keep_events = 1000;
        w->types[0] = PB__WORKLOAD_TYPE__E__process;
        w->node.id = "n1";
        w->node.status = PB__NODE_STATUS__E__Ready;
        w->node.connected = true;
        w->node.agent_version = "1.0";
        w->node.supported_workload_types = w->types;
        w->node.n_supported_workload_types = 1;
        w->node.resources = &w->resources;
        w->resources.cpu_total = 4000;
        w->resources.disk_total = 100;
        w->nodes[0] = &w->node;
        w->facts = (struct doctor_facts){ .address = "here:1",
                                          .version = "1.0",
                                          .now_ms = NOW,
                                          .took_ms = 2,
                                          .cluster = &w->cluster,
                                          .nodes = w->nodes,
                                          .n_nodes = 1 };
        w->facts.workloads = w->list;
        w->facts.local.has_podman = w->facts.local.has_cgroup2 = true;
        w->facts.local.open_files_limit = 4096;
}

static void add_workload(struct ward *w, const char *id, Pb__Phase__E phase, Pb__Reason__E reason)
{
        size_t i = w->facts.n_workloads++;
        pb__workload__init(&w->workloads[i]);
        pb__workload_status__init(&w->statuses[i]);
        w->workloads[i].id = (char *)id;
        w->workloads[i].status = &w->statuses[i];
        w->statuses[i].phase = phase;
        w->statuses[i].reason = reason;
        w->list[i] = &w->workloads[i];
}

static const struct finding *find(struct ward *w, const char *check)
{
        array_clear(&w->found);
        doctor_examine(&w->facts, &w->arena, &w->found);
        for (size_t i = 0; i < w->found.len; i++) {
                if (w->found.at[i].level != FINDING_OK)
                        /* never a complaint without something to do */
                        assert_true(!str_empty(w->found.at[i].advice));
                if (i > 0)
                        assert_true(w->found.at[i - 1].level >= w->found.at[i].level);
        }
        for (size_t i = 0; i < w->found.len; i++)
                if (str_eq(w->found.at[i].check, check))
                        return &w->found.at[i];
        return NULL;
}

static size_t problems(struct ward *w)
{
        size_t n = 0;
        (void)find(w, "");
        for (size_t i = 0; i < w->found.len; i++)
                n += w->found.at[i].level == FINDING_PROBLEM;
        return n;
}

static void discharge(struct ward *w)
{
        array_fini(&w->found);
        arena_fini(&w->arena);
}

/* R: C36 */
static void a_healthy_cluster_has_no_problems(void **state)
{
        (void)state;
        struct ward w;
        healthy(&w);
        assert_int_equal(problems(&w), 0);
        discharge(&w);
}

/* R: C36 */
static void what_has_no_reason_of_its_own_is_told_without_one(void **state)
{
        (void)state;
        struct ward w;
        healthy(&w);
        add_workload(&w, "mute", PB__PHASE__E__Unknown, PB__REASON__E__none);
        assert_string_equal(find(&w, "workloads-unknown")->what,
                            "1 workload on nodes that are not heard: mute");
        discharge(&w);
}

/* R: C36 */
static void what_is_wrong_with_the_server_is_found(void **state)
{
        (void)state;
        static const struct {
                const char *check;
                size_t offset;
                int64_t value;
        } cases[] = {
                { "store-slow", offsetof(struct ward, server.commit_mean_us), 900000 },
                { "store-disk", offsetof(struct ward, server.store_free_mb), 100 },
                { "clock-skew", offsetof(struct ward, server.now_at), NOW - 60000 },
                { "tls-expiry", offsetof(struct ward, server.tls_expires_at), NOW + 86400000 },
                { "bad-records", offsetof(struct ward, server.bad_records), 1 },
                { "open-files", offsetof(struct ward, server.open_files), 65000 },
                { "node-disk", offsetof(struct ward, resources.disk_used), 95 },
                { "node-overcommitted", offsetof(struct ward, resources.cpu_allocated), 5000 },
        };
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct ward w;
                healthy(&w);
                *(int64_t *)((char *)&w + cases[i].offset) = cases[i].value;
                assert_int_equal(problems(&w), 1);
                assert_non_null(find(&w, cases[i].check));
                discharge(&w);
        }
        struct ward w;
        healthy(&w);
        w.server.agent_certificates_due = 3;
        assert_int_equal(find(&w, "agent-certificates")->level, FINDING_PROBLEM);
        w.server.agent_certificates_due = 0;
        w.server.ring_queue = 2000;
        assert_int_equal(find(&w, "queues")->level, FINDING_PROBLEM);
        w.cluster.status = "degraded";
        w.server.degraded_reason = "disk full";
        assert_non_null(strstr(find(&w, "store-away")->what, "disk full"));
        assert_non_null(strstr(find(&w, "store-away")->advice, "data directory"));
        w.server.degraded_reason = "etcd does not answer: refused";
        assert_non_null(strstr(find(&w, "store-away")->advice, "endpoint health"));
        w.server.degraded_reason =
            "etcd has no space left and takes no writes (NOSPACE): database space exceeded";
        assert_non_null(strstr(find(&w, "store-away")->advice, "alarm disarm"));
        Pb__Replica replica = PB__REPLICA__INIT, *replicas[] = { &replica };
        replica.name = "s2";
        replica.key_trouble = "its fingerprint is 1, the cluster's is 2"; /* R: A13 (A2) */
        w.cluster.replicas = replicas;
        w.cluster.n_replicas = 1;
        assert_non_null(
            strstr(find(&w, "cluster-key")->what, "s2 cannot lead: its fingerprint is 1"));
        assert_non_null(strstr(find(&w, "cluster-key")->advice, "copy cluster.key"));
        w.cluster.n_replicas = 0;
        w.cluster.version = "0.9";
        assert_non_null(find(&w, "version-skew"));
        struct err err = { 0 };
        err_set(&err, ERR_UNAVAILABLE, .msg = "refused");
        w.facts.unreachable = &err;
        assert_int_equal(problems(&w), 1);
        assert_non_null(find(&w, "server-unreachable"));
        discharge(&w);
}

/* R: C36 */
static void what_is_wrong_with_nodes_is_found(void **state)
{
        (void)state;
        struct ward w;
        healthy(&w);
        w.node.status = PB__NODE_STATUS__E__NotReady;
        assert_non_null(strstr(find(&w, "node-lost")->what, "n1"));
        w.node.status = PB__NODE_STATUS__E__Ready;
        w.node.connected = false;
        assert_non_null(find(&w, "node-unheard"));
        w.node.foreign = true;
        assert_null(find(&w, "node-unheard")); /* one finding says it all */
        assert_non_null(find(&w, "node-foreign"));
        w.node.foreign = false;
        w.node.connected = true;
        char *strangers[] = { "old" };
        w.node.strangers = strangers;
        w.node.n_strangers = 1;
        assert_non_null(find(&w, "node-strangers"));
        w.node.n_strangers = 0;
        w.node.twin_refused_at = w.facts.now_ms - 5000;
        assert_non_null(strstr(find(&w, "node-twin")->what, "n1"));
        w.node.twin_refused_at = w.facts.now_ms - 600000; /* long ago */
        assert_null(find(&w, "node-twin"));
        w.node.reports_held_at = w.facts.now_ms - 5000; /* A6 of the issue */
        assert_non_null(strstr(find(&w, "node-noisy")->what, "n1"));
        w.node.reports_held_at = w.facts.now_ms - 600000;
        assert_null(find(&w, "node-noisy"));
        w.facts.n_nodes = 0;
        assert_non_null(find(&w, "no-nodes"));
        discharge(&w);
}

/* R: C36 A8 */
static void workloads_in_trouble_are_counted_by_reason(void **state)
{
        (void)state;
        struct ward w;
        healthy(&w);
        add_workload(&w, "a", PB__PHASE__E__Pending, PB__REASON__E__cpu_insufficient);
        add_workload(&w, "b", PB__PHASE__E__Pending, PB__REASON__E__cpu_insufficient);
        add_workload(&w, "c", PB__PHASE__E__Pending, PB__REASON__E__label_mismatch);
        add_workload(&w, "d", PB__PHASE__E__RetryPending, PB__REASON__E__crashed);
        assert_string_equal(
            find(&w, "workloads-pending")->what,
            "3 workloads found no place (2 cpu-insufficient, 1 label-mismatch): a, b, c");
        assert_string_equal(find(&w, "crash-loop")->what,
                            "1 workload failing again and again (1 crashed): d");
        assert_null(find(&w, "workloads"));
        discharge(&w);
}

/* Issue 5, B4: with the zone, the counts and the limit.  R: C11 */
static void what_the_brake_does_is_shown(void **state)
{
        (void)state;
        struct ward w;
        healthy(&w);
        Pb__Brake b = PB__BRAKE__INIT;
        b.zone = "a";
        b.zone_nodes = b.zone_silent = b.silent = 7;
        b.nodes = 10;
        b.limit_percent = 55;
        w.cluster.brake = &b;
        w.cluster.mode = "eviction held";
        const struct finding *f = find(&w, "eviction-held");
        assert_non_null(f);
        assert_int_equal(f->level, FINDING_PROBLEM);
        assert_non_null(strstr(f->what, "7 of 10 nodes, beyond 55 % is held; of zone a 7 of 7"));
        assert_non_null(strstr(f->advice, "berth evict --now"));
        w.cluster.mode = "eviction paced";
        b.paced_units = 12;
        f = find(&w, "eviction-paced");
        assert_non_null(f);
        assert_int_equal(f->level, FINDING_NOTE);
        assert_non_null(strstr(f->what, "12 are left"));
        arena_fini(&w.arena);
        array_fini(&w.found);
}

/* Issue 5, A8. R: A14 */
static void what_was_applied_before_the_policy_is_listed(void **state)
{
        struct ward w;
        char *ids[] = { "a (privileged)", "b (privileged)",       "c (privileged)",
                        "d (privileged)", "proxy (host_network)", "f (x)",
                        "g (x)" };
        (void)state;
        healthy(&w);
        w.cluster.beyond_policy = 7;
        w.cluster.beyond_policy_ids = ids;
        w.cluster.n_beyond_policy_ids = 7;
        const struct finding *f = find(&w, "beyond-policy");
        assert_non_null(strstr(f->what, "7 workloads are on record"));
        assert_non_null(strstr(f->what, "proxy (host_network) and 2 more"));
        assert_int_equal(f->level, FINDING_NOTE);
        assert_int_equal(problems(&w), 0);
        discharge(&w);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_the_brake_does_is_shown),
                cmocka_unit_test(a_healthy_cluster_has_no_problems),
                cmocka_unit_test(what_has_no_reason_of_its_own_is_told_without_one),
                cmocka_unit_test(what_is_wrong_with_the_server_is_found),
                cmocka_unit_test(what_is_wrong_with_nodes_is_found),
                cmocka_unit_test(workloads_in_trouble_are_counted_by_reason),
                cmocka_unit_test(what_was_applied_before_the_policy_is_listed),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
