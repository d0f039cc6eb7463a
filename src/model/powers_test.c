/* model/powers_test.c: what definitions ask for, and what policies allow. R: A14 (issue 5, A8) */
#include "base/str.h"
#include "model/pb.h"
#include "model/powers.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct arena arena;

static int clean(void **state)
{
        (void)state;
        arena_fini(&arena);
        arena = ARENA_INIT;
        return 0;
}

static Pb__Workload *workload(Pb__WorkloadType__E type)
{
        Pb__Workload *w = (Pb__Workload *)pb_new(&arena, &pb__workload__descriptor);

        w->type = type;
        w->spec = (Pb__Spec *)pb_new(&arena, &pb__spec__descriptor);
        return w;
}

/* "privileged capabilities:NET_ADMIN " */
static const char *asked(const Pb__Workload *w)
{
        struct powers p;
        struct str out = STR_INIT;
        const char *text;

        powers_of(&arena, w, &p);
        for (size_t i = 0; i < p.n; i++)
                str_addf(&out, "%s%s%s ", power_name(p.at[i].power), p.at[i].what[0] ? ":" : "",
                         p.at[i].what);
        text = arena_strdup(&arena, str_c(&out));
        str_fini(&out);
        return text;
}

static const char *asked_by_pod(const char *text)
{
        Pb__Workload *w = workload(PB__WORKLOAD_TYPE__E__container);

        w->spec->pod = (char *)(uintptr_t)text;
        return asked(w);
}

static const char *asked_by_compose(const char *text)
{
        Pb__Workload *w = workload(PB__WORKLOAD_TYPE__E__compose);

        w->spec->compose = (char *)(uintptr_t)text;
        return asked(w);
}

static void ordinary_units_ask_for_nothing(void **state)
{
        Pb__Workload *w = workload(PB__WORKLOAD_TYPE__E__container);

        (void)state;
        w->spec->user = (char *)(uintptr_t) "root"; /* inside a container it is ordinary */
        w->spec->network = (char *)(uintptr_t) "bridge";
        assert_string_equal(asked(w), "");
        assert_string_equal(asked(workload(PB__WORKLOAD_TYPE__E__process)), "");
        assert_string_equal(asked_by_pod("{spec: {containers: [{name: a, image: i, "
                                         "securityContext: {privileged: false, runAsUser: 0, "
                                         "capabilities: {drop: [ALL]}}}], hostNetwork: false, "
                                         "volumes: [{name: v, emptyDir: {}}]}}"),
                            "");
        assert_string_equal(
            asked_by_compose(
                "services: {a: {image: i, user: root, privileged: false, network_mode: bridge}}"),
            "");
}

static void a_process_that_is_root_says_so_in_many_ways(void **state)
{
        static const struct {
                const char *user;
                bool root;
        } rows[] = { { "root", true },    { "0", true },   { "000", true },
                     { "nobody", false }, { "10", false }, { "0x0", false } };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                Pb__Workload *w = workload(PB__WORKLOAD_TYPE__E__process);

                w->spec->user = (char *)(uintptr_t)rows[i].user;
                assert_string_equal(asked(w), rows[i].root ? "root_processes " : "");
        }
}

static void pods_are_looked_through_in_every_corner(void **state)
{
        static const char *const rows[][2] = {
                { "{spec: {hostPID: true}}", "privileged:hostPID " },
                { "{spec: {hostIPC: yes}}", "privileged:hostIPC " },
                { "{spec: {HostNetwork: true}}", "host_network " },
                { "{spec: {initContainers: [{securityContext: {privileged: true}}]}}",
                  "privileged:privileged " },
                { "{spec: {containers: [{securityContext: {procMount: Unmasked}}]}}",
                  "privileged:procMount " },
                { "{spec: {containers: [{securityContext: {capabilities: {add: [NET_RAW, "
                  "SYS_TIME]}}}]}}",
                  "capabilities:NET_RAW capabilities:SYS_TIME " },
                { "{spec: {volumes: [{hostPath: {path: /etc}}]}}", "host_paths:/etc " },
                { "{spec: {volumes: [{hostPath: /etc}]}}", "host_paths:? " },
                { "{metadata: {annotations: {io.podman.annotations.userns: host}}}",
                  "privileged:io.podman.annotations.userns " },
                { "{spec: {template: {spec: {hostNetwork: true}}}}", "host_network " },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
                assert_string_equal(asked_by_pod(rows[i][0]), rows[i][1]);
}

static void what_cannot_be_read_asks_for_everything(void **state)
{
        static const char all[] = "privileged capabilities host_network host_paths ";

        (void)state;
        assert_string_equal(asked_by_pod("{"), all);
        assert_string_equal(asked_by_compose("services: {a: {image: i, cap_add: [NET_ADMIN]}}"),
                            all);
}

static void services_are_looked_at_one_by_one(void **state)
{
        (void)state;
        assert_string_equal(
            asked_by_compose(
                "services: {a: {image: i}, b: {image: i, privileged: true, network_mode: host, "
                "volumes: [\"/etc:/x\"]}}"),
            "privileged host_network host_paths:/etc ");
}

/* berth puts in no values, but an agent that is called gives the file to its engine, which does. */
static void variables_ask_for_whatever_they_could_become(void **state)
{
        static const char *const rows[][2] = {
                { "network_mode: \"${NET-host}\"", "host_network:${NET-host} " },
                { "network_mode: $NET", "host_network:$NET " },
                { "volumes: [\"/srv/${X-../etc}:/x\"]",
                  "host_paths:/srv/${X-../etc} host_paths:/srv/${X-../etc} " },
                { "volumes: [\"/srv/$X:/x\"]", "host_paths:/srv/$X host_paths:/srv/$X " },
                { "volumes: [\"/srv/a:/x$MODE\"]", "host_paths:/x$MODE host_paths:/srv/a " },
                /* no policy is about these */
                { "environment: {A: $B}, command: \"echo ${C}\"", "" },
        };
        Pb__Policy p = PB__POLICY__INIT;
        char *paths[] = { (char *)(uintptr_t) "/srv" };

        (void)state;
        p.host_paths = paths;
        p.n_host_paths = 1;
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                Pb__Workload *w = workload(PB__WORKLOAD_TYPE__E__compose);
                struct powers powers;

                w->spec->compose =
                    arena_printf(&arena, "services: {a: {image: i, %s}}", rows[i][0]);
                assert_string_equal(asked(w), rows[i][1]);
                powers_of(&arena, w, &powers);
                /* below /srv, as it is written */
                const struct power_asked *no = powers_refused(&p, &powers);
                assert_int_equal(no != NULL, rows[i][1][0] != '\0');
                assert_true(!no || no->variable);
        }
        p.host_network = true;
        paths[0] = (char *)(uintptr_t) "/";
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) { /* whatever it becomes */
                Pb__Workload *w = workload(PB__WORKLOAD_TYPE__E__compose);
                struct powers powers;

                w->spec->compose =
                    arena_printf(&arena, "services: {a: {image: i, %s}}", rows[i][0]);
                powers_of(&arena, w, &powers);
                assert_null(powers_refused(&p, &powers));
        }
}

static bool allows(const Pb__Policy *p, enum power power, const char *what)
{
        struct power_asked one = { .power = power, .what = what, .where = "" };

        return !powers_refused(p, &(struct powers){ &one, 1 });
}

static void a_policy_allows_what_it_names_and_nothing_else(void **state)
{
        Pb__Policy p = PB__POLICY__INIT;
        char *paths[] = { (char *)(uintptr_t) "/srv/", (char *)(uintptr_t) "/data" },
             *caps[] = { (char *)(uintptr_t) "NET_ADMIN" };

        (void)state;
        for (int k = 0; k < _POWER_MAX; k++) {
                assert_false(allows(NULL, (enum power)k, "/srv"));
                assert_false(allows(&p, (enum power)k, "/srv"));
        }
        p.host_paths = paths;
        p.n_host_paths = 2;
        p.capabilities = caps;
        p.n_capabilities = 1;
        assert_true(allows(&p, POWER_HOST_PATHS, "/srv"));
        assert_true(allows(&p, POWER_HOST_PATHS, "/srv/a"));
        assert_true(allows(&p, POWER_HOST_PATHS, "/data/..x"));
        assert_false(allows(&p, POWER_HOST_PATHS, "/srv/../etc"));
        assert_false(allows(&p, POWER_HOST_PATHS, "/srv/a/.."));
        assert_false(allows(&p, POWER_HOST_PATHS, "/srvx"));
        assert_false(allows(&p, POWER_HOST_PATHS, "srv"));
        assert_false(allows(&p, POWER_HOST_PATHS, "/"));
        assert_true(allows(&p, POWER_CAPABILITIES, "NET_ADMIN"));
        assert_true(allows(&p, POWER_CAPABILITIES, "CAP_NET_ADMIN"));
        assert_false(allows(&p, POWER_CAPABILITIES, "ALL"));
        assert_false(allows(&p, POWER_PRIVILEGED, ""));
}

static void words_make_a_policy(void **state)
{
        Pb__Policy *p = NULL;
        struct err err = { 0 };

        (void)state;
        assert_int_equal(policy_from_words(&arena, "all", &p, &err), 0);
        for (int k = 0; k < _POWER_MAX; k++)
                assert_true(allows(p, (enum power)k, k == POWER_CAPABILITIES ? "BPF" : "/any"));
        assert_int_equal(policy_from_words(&arena, "host_network, root_processes", &p, &err), 0);
        assert_true(p->host_network && p->root_processes && !p->privileged);
        assert_int_equal(policy_from_words(&arena, "", &p, &err), 0);
        assert_false(p->privileged);
        assert_int_equal(policy_from_words(&arena, "privileged,magic", &p, &err), -ERR_INVALID);
        assert_int_equal(capability_number("NET_BIND_SERVICE"), 10);
        assert_int_equal(capability_number("SYS_ADMIN"), 21);
        assert_int_equal(capability_number("CHECKPOINT_RESTORE"), 40);
        assert_int_equal(capability_number("CAP_CHOWN"), -1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(ordinary_units_ask_for_nothing, clean),
                cmocka_unit_test_teardown(a_process_that_is_root_says_so_in_many_ways, clean),
                cmocka_unit_test_teardown(pods_are_looked_through_in_every_corner, clean),
                cmocka_unit_test_teardown(what_cannot_be_read_asks_for_everything, clean),
                cmocka_unit_test_teardown(services_are_looked_at_one_by_one, clean),
                cmocka_unit_test_teardown(variables_ask_for_whatever_they_could_become, clean),
                cmocka_unit_test_teardown(a_policy_allows_what_it_names_and_nothing_else, clean),
                cmocka_unit_test_teardown(words_make_a_policy, clean),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
