/* model/kube_test.c: Pods and Deployments as workloads, and what the engine is given. */
#include "model/kube.h"
#include "model/manifest.h"
#include "model/validate.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct arena arena;

#define POD                                                                                        \
        "apiVersion: v1\n"                                                                         \
        "kind: Pod\n"                                                                              \
        "metadata:\n"                                                                              \
        "  name: shop\n"                                                                           \
        "  labels: {app: shop, tier: \"1\"}\n"                                                     \
        "spec:\n"                                                                                  \
        "  restartPolicy: OnFailure\n"                                                             \
        "  containers:\n"                                                                          \
        "  - name: web\n"                                                                          \
        "    image: shop:7\n"                                                                      \
        "    ports: [{containerPort: 80, hostPort: 8080}, {containerPort: 81}]\n"                  \
        "    resources: {requests: {cpu: 250m, memory: 64Mi}, limits: {cpu: 1}}\n"                 \
        "  - {name: side, image: \"side:1\", resources: {limits: {cpu: 0.5, memory: 10M}}}\n"

static struct manifest reads(const char *text)
{
        struct manifest m = { 0 };
        struct err err = { 0 };

        if (manifest_read("pod.yaml", text, strlen(text), &arena, &m, &err) < 0)
                fail_msg("%s", err_line(&err));
        return m;
}

static void refuses(const char *text, const char *words)
{
        struct manifest m;
        struct err err = { 0 };

        if (manifest_read("pod.yaml", text, strlen(text), &arena, &m, &err) == 0)
                fail_msg("taken: %s", text);
        if (!strstr(err.msg, words))
                fail_msg("'%s' does not say '%s'", err.msg, words);
}

/* R: C6 */
static void a_pod_becomes_a_workload(void **state)
{
        struct manifest m = reads("id: first\nspec: {command: [x]}\n---\n" POD
                                  "---\nid: last\nspec: {command: [y]}\n");
        Pb__Workload *w = m.items[1].workload;
        struct err err = { 0 };

        (void)state;
        assert_int_equal(m.n_items, 3);
        assert_string_equal(m.items[2].workload->id, "last");
        assert_int_equal(m.items[1].line, 4);
        assert_string_equal(w->id, "shop");
        assert_int_equal(w->type, PB__WORKLOAD_TYPE__E__container);
        assert_string_equal(w->spec->pod, POD);
        assert_int_equal(w->resources->cpu, 750);
        assert_int_equal(w->resources->memory_mb, 64 + 10);
        assert_int_equal(w->restart, PB__RESTART__E__on_failure);
        assert_int_equal(w->n_labels, 2);
        if (workload_normalise(&arena, w, &err) < 0)
                fail_msg("%s", err_line(&err));
        assert_int_equal(w->spec->n_ports, 1); /* what placement must know */
        assert_int_equal(w->spec->ports[0]->host_port, 8080);
}

/* R: C6 */
static void a_deployment_of_one_becomes_its_pod(void **state)
{
        const char *text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"
                           "spec: {replicas: 1, selector: {}, template: {metadata: {labels: {app: "
                           "d}}, spec: {containers: [{name: a, "
                           "image: b, args: [1, \"2\", yes]}]}}}\n";
        Pb__Workload *w = reads(text).items[0].workload;
        struct kube_pod pod;
        struct err err = { 0 };

        (void)state;
        assert_string_equal(w->id, "d");
        assert_int_equal(kube_pod_read(w->spec->pod, strlen(w->spec->pod), &arena, &pod, &err), 0);
        assert_string_equal(pod.name, "d");
        assert_non_null(strstr(w->spec->pod, "\"args\":[1,\"2\",\"yes\"]"));
        refuses("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 3, "
                "template: {spec: {containers: [{name: a, "
                "image: b}]}}}\n",
                "spec.replicas: berth takes Deployments with one replica only");
}

/* R: C6 A11 */
static void other_kinds_and_broken_pods_are_refused_with_a_sentence(void **state)
{
        (void)state;
        refuses("apiVersion: v1\nkind: Service\nmetadata: {name: x}\n", "got");
        refuses("kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a, image: b}]}\n",
                "expected apiVersion v1");
        refuses("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n", "spec.containers");
        refuses("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}\n",
                "spec.containers");
        refuses("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a}]}\n",
                "needs an image");
        refuses("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, image: b}]}\n",
                "metadata.name");
        refuses("apiVersion: v1\nkind: Pod\nmetadata: {name: ../x}\nspec: {containers: [{name: a, "
                "image: b}]}\n",
                "metadata.name");
        refuses("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {restartPolicy: Sometimes, "
                "containers: [{name: a, image: b}]}\n",
                "pod.yaml:4: spec.restartPolicy: expected Always");
        refuses("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a, "
                "image: b, resources: {limits: {memory: "
                "much}}}]}\n",
                "memory");
}

/* R: C6 */
static void the_engine_gets_the_pod_under_our_name_and_never_restarts_it(void **state)
{
        const struct kube_label labels[] = { { "berth.io/token", "1.2" } };
        struct str out = STR_INIT;
        struct err err = { 0 };
        const struct kube_label env[] = { { "BERTH_FENCING_TOKEN", "1.2" } };
        struct kube_pod pod;

        (void)state;
        assert_int_equal(
            kube_pod_write(POD, strlen(POD), "berth-shop-1", labels, 1, env, 1, &out, &err), 0);
        assert_int_equal(kube_pod_read(str_c(&out), out.len, &arena, &pod, &err), 0);
        assert_string_equal(pod.name, "berth-shop-1");
        assert_int_equal(pod.restart, PB__RESTART__E__never);
        assert_non_null(
            strstr(str_c(&out), "\"berth.io/token\":\"1.2\",\"app\":\"shop\",\"tier\":\"1\""));
        assert_non_null(strstr(str_c(&out), "\"containerPort\":80"));
        /* Issue 5, D9: pods find their token too, and what they set themselves stays. R: C34 */
        assert_non_null(
            strstr(str_c(&out), "{\"name\":\"BERTH_FENCING_TOKEN\",\"value\":\"1.2\"}"));
        str_clear(&out);
        static const char own[] =
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: "
            "[{name: a, image: i, env: [{name: BERTH_FENCING_TOKEN, value: mine}]}]}}";
        assert_int_equal(kube_pod_write(own, strlen(own), "p", labels, 1, env, 1, &out, &err), 0);
        assert_non_null(
            strstr(str_c(&out), "\"env\":[{\"name\":\"BERTH_FENCING_TOKEN\",\"value\":\"mine\"}]"));
        str_fini(&out);
}

static int clean(void **state)
{
        (void)state;
        arena_fini(&arena);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(a_pod_becomes_a_workload, clean),
                cmocka_unit_test_teardown(a_deployment_of_one_becomes_its_pod, clean),
                cmocka_unit_test_teardown(other_kinds_and_broken_pods_are_refused_with_a_sentence,
                                          clean),
                cmocka_unit_test_teardown(
                    the_engine_gets_the_pod_under_our_name_and_never_restarts_it, clean),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
