/* model/compose_test.c: what of a Compose file is taken, in which order, and that nothing is
 * dropped in silence. */
#include "base/str.h"
#include "model/compose.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct arena arena;

static struct compose reads(const char *text)
{
        struct compose c = { 0 };
        struct err err = { 0 };

        if (compose_read(text, strlen(text), &arena, &c, &err) < 0)
                fail_msg("%s", err_line(&err));
        return c;
}

static void refuses(const char *text, const char *path, const char *words)
{
        struct compose c;
        struct err err = { 0 };

        if (compose_read(text, strlen(text), &arena, &c, &err) == 0)
                fail_msg("taken: %s", text);
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.path, path);
        if (!strstr(err.msg, words))
                fail_msg("'%s' does not say '%s'", err.msg, words);
}

/* R: C6 */
static void a_service_becomes_a_container(void **state)
{
        struct compose c = reads("version: '3'\n"
                                 "services:\n"
                                 "  web:\n"
                                 "    image: shop:7\n"
                                 "    entrypoint: /bin/sh -c\n"
                                 "    command: [serve, \"--port\", 80]\n"
                                 "    environment: {A: 1, B: 'x y'}\n"
                                 "    ports: ['8080:80', '53:53/udp']\n"
                                 "    volumes: ['/srv/web:/data:ro', '/a:/b']\n"
                                 "    working_dir: /data\n"
                                 "    user: www\n"
                                 "    privileged: true\n"
                                 "    restart: always\n");
        const Pb__Spec *s = c.services[0].spec;

        (void)state;
        assert_int_equal(c.n_services, 1);
        assert_string_equal(c.services[0].name, "web");
        assert_string_equal(s->image, "shop:7");
        assert_int_equal(s->n_command, 2);
        assert_string_equal(s->command[1], "-c");
        assert_int_equal(s->n_args, 3);
        assert_string_equal(s->args[2], "80");
        assert_int_equal(s->n_env, 2);
        assert_string_equal(s->env[1]->value, "x y");
        assert_int_equal(s->n_ports, 2);
        assert_int_equal(s->ports[0]->host_port, 8080);
        assert_int_equal(s->ports[0]->container_port, 80);
        assert_string_equal(s->ports[1]->protocol, "udp");
        assert_int_equal(s->n_volumes, 2);
        assert_true(s->volumes[0]->read_only);
        assert_string_equal(s->volumes[0]->container_path, "/data");
        assert_false(s->volumes[1]->read_only);
        assert_true(s->privileged);
        assert_string_equal(s->workdir, "/data");
        assert_string_equal(s->user, "www");
}

/* R: C6 */
static void services_start_after_what_they_depend_on(void **state)
{
        struct compose c = reads("services:\n"
                                 "  a: {image: i, depends_on: [b, c]}\n"
                                 "  b: {image: i, depends_on: {c: {condition: service_started}}}\n"
                                 "  c: {image: i}\n");

        (void)state;
        assert_string_equal(c.services[0].name, "c");
        assert_string_equal(c.services[1].name, "b");
        assert_string_equal(c.services[2].name, "a");
        refuses("services:\n  a: {image: i, depends_on: [b]}\n  b: {image: i, depends_on: [a]}\n",
                "services", "circle");
        refuses("services:\n  a: {image: i, depends_on: [x]}\n", "services.a.depends_on[0]",
                "no such service");
        refuses("services:\n  a: {image: i, depends_on: {b: {condition: service_healthy}}}\n  b: "
                "{image: i}\n",
                "services.a.depends_on.b.condition", "service_started");
}

/* R: C6 A11 */
static void what_is_not_known_is_refused_with_its_path(void **state)
{
        char deep[600], *p = deep;

        (void)state;
        refuses("", "", "nothing");
        refuses("[]", "", "services");
        refuses("services: {}", "services", "no services");
        refuses("services: {a: {image: i}}\nnetworks: {}\n", "networks", "does not know");
        refuses("services: {a: {image: i, deploy: {replicas: 2}}}", "services.a.deploy",
                "does not know");
        refuses("services: {a: {image: i, enviroment: {}}}", "services.a.enviroment",
                "did you mean environment");
        refuses("services: {a: {build: .}}", "services.a.build", "does not know");
        refuses("services: {a: {command: x}}", "services.a", "no image");
        refuses("services: {a: {image: i, ports: ['80']}}", "services.a.ports[0]",
                "HOST:CONTAINER");
        refuses("services: {a: {image: i, ports: ['1-2:1-2']}}", "services.a.ports[0]",
                "HOST:CONTAINER");
        refuses("services: {a: {image: i, ports: ['70000:1']}}", "services.a.ports[0]",
                "HOST:CONTAINER");
        refuses("services: {a: {image: i, ports: [{target: 80}]}}", "services.a.ports[0]",
                "HOST:CONTAINER");
        refuses("services: {a: {image: i, ports: ['80:80']}, b: {image: i, ports: ['80:81']}}",
                "services.b", "twice");
        refuses("services: {a: {image: i, volumes: ['data:/x']}}", "services.a.volumes[0]",
                "named volumes");
        refuses("services: {a: {image: i, volumes: ['./x:/x']}}", "services.a.volumes[0]",
                "relative");
        refuses("services: {a: {image: i, environment: [HOME]}}", "services.a.environment[0]",
                "no value");
        refuses("services: {a: {image: i, environment: {'1=2': x}}}", "services.a.environment.1=2",
                "variable");
        refuses("services: {a: {image: i, environment: {A: }}}", "services.a.environment.A",
                "no value");
        refuses("services: {a: {image: i, command: 'x \"y'}}", "services.a.command", "quote");
        refuses("services: {a: {image: 'i j'}}", "services.a", "printable");
        refuses("services: {'a b': {image: i}}", "services.a b", "name");
        refuses("services: {a: &x {image: i}, b: *x}", "", "anchors");
        refuses("services: {a: {image: i}, a: {image: j}}", "", "twice");
        refuses("services: {a: {image: i}}\n---\nservices: {}\n", "", "one document");
        for (int i = 0; i < 300; i++)
                *p++ = '[';
        *p = 0;
        refuses(deep, "", "levels");
}

/* R: A11 */
static void the_number_of_services_is_bounded(void **state)
{
        struct str text = STR_INIT;

        (void)state;
        str_adds(&text, "services:\n");
        for (int i = 0; i < COMPOSE_MAX_SERVICES; i++)
                str_addf(&text, "  s%d: {image: i}\n", i);
        assert_int_equal(reads(str_c(&text)).n_services, COMPOSE_MAX_SERVICES);
        str_adds(&text, "  more: {image: i}\n");
        refuses(str_c(&text), "services", "at most 64");
        str_fini(&text);
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
                cmocka_unit_test_teardown(a_service_becomes_a_container, clean),
                cmocka_unit_test_teardown(services_start_after_what_they_depend_on, clean),
                cmocka_unit_test_teardown(what_is_not_known_is_refused_with_its_path, clean),
                cmocka_unit_test_teardown(the_number_of_services_is_bounded, clean),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
