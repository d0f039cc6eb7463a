/* model/config_test.c: the configuration file: what it gives, and how its mistakes are told. */
#include "base/str.h"
#include "model/config.h"
#include "model/event.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static Pb__ServerConfig *read_ok(struct arena *a, const char *text)
{
        Pb__ServerConfig *c = NULL;
        struct err err = { 0 };
        if (config_read("berth.yaml", text, strlen(text), a, &c, NULL, NULL, &err) < 0)
                fail_msg("%s", err.msg);
        return c;
}

static void collect(void *ctx, const struct err *err)
{
        str_addf(ctx, "%s\n", err->msg);
}

/* R: C30 C10 */
static void a_file_becomes_a_configuration(void **state)
{
        (void)state;
        struct arena a = ARENA_INIT;
        Pb__ServerConfig *c = read_ok(&a, "heartbeat: 5s\n"
                                          "silence: 4\n"
                                          "keep_events: 0\n"
                                          "placement: binpack\n"
                                          "default_quota: {workloads: 10, resources: {cpu: 2.5, "
                                          "memory_mb: 1024}, writes_per_minute: 60}\n"
                                          "rules:\n"
                                          "- {name: hot, when: node.cpu > 85% for 5m, selector: "
                                          "zone=a, webhook: ops, cooldown: 2m}\n"
                                          "webhooks:\n"
                                          "- {name: ops, url: 'https://example.org/hook?x=1', "
                                          "secret: s3cret, retry: {max_attempts: 3}}\n");
        assert_int_equal(config_duration_ms(c->heartbeat, 1), 5000);
        assert_int_equal(config_duration_ms(c->grace, 60000), 60000); /* left out */
        assert_int_equal(c->silence, 4);
        assert_non_null(c->keep_events);
        assert_int_equal(c->keep_events->value, 0);
        assert_int_equal(c->default_quota->resources->cpu, 2500);
        assert_int_equal(c->n_rules, 1);
        assert_string_equal(c->rules[0]->when, "node.cpu > 85% for 5m");
        assert_int_equal(c->webhooks[0]->retry->max_attempts, 3);
        assert_int_equal(read_ok(&a, "")->n_rules, 0);
        assert_int_equal(read_ok(&a, "# nothing yet\n\n---\n")->n_rules, 0);
        arena_fini(&a);
}

/* R: C30 A9 */
static void every_mistake_is_told_with_its_line_and_path(void **state)
{
        (void)state;
        struct arena a = ARENA_INIT;
        struct str told = STR_INIT;
        struct err err = { 0 };
        Pb__ServerConfig *c = NULL;
        static const char text[] = "heartbeat: soon\n"                /* 1 */
                                   "rules:\n"                         /* 2 */
                                   "- name: hot\n"                    /* 3 */
                                   "  when: node.cpu > 85 for 5m\n"   /* 4 */
                                   "- name: hot\n"                    /* 5 */
                                   "  when: workload.failures >= 3\n" /* 6 */
                                   "  webhook: nobody\n"              /* 7 */
                                   "- when: workload.failures >= 3\n" /* 8 */
                                   "webhooks:\n"                      /* 9 */
                                   "- {name: ops, url: 'ftp://x'}\n"  /* 10 */
                                   "- name: two\n"                    /* 11 */
                                   "  url: http://x\n"                /* 12 */
                                   "  secret: a\n"                    /* 13 */
                                   "  secret_file: /b\n";             /* 14 */
        assert_int_equal(config_read("f.yaml", text, strlen(text), &a, &c, collect, &told, &err),
                         -ERR_INVALID);
        static const char *const want[] = { "f.yaml:1: heartbeat: must be a duration",
                                            "f.yaml:4: rules[0].when: is no condition",
                                            "f.yaml:5: rules[1].name: 'hot' is there twice",
                                            "f.yaml:7: rules[1].webhook: there is no",
                                            "f.yaml:8: rules[2].name: is missing",
                                            "f.yaml:10: webhooks[0].url: must begin with",
                                            "f.yaml:14: webhooks[1].secret_file: is given" };
        for (size_t i = 0; i < ARRAY_LEN(want); i++)
                if (!strstr(str_c(&told), want[i]))
                        fail_msg("missing: %s in\n%s", want[i], str_c(&told));
        assert_non_null(strstr(err.msg, "f.yaml:1:")); /* the first */
        assert_null(c);
        str_clear(&told);
        assert_true(
            config_read("f.yaml", "silence: 3\nsilnce: 4\n", 21, &a, &c, collect, &told, &err) < 0);
        assert_non_null(strstr(str_c(&told), "f.yaml:2"));
        str_fini(&told);
        arena_fini(&a);
}

/* R: C29 A14 */
static void each_class_of_events_has_its_retention(void **state)
{
        (void)state;
        struct arena a = ARENA_INIT;
        struct str told = STR_INIT;
        struct err err = { 0 };
        Pb__ServerConfig *c = read_ok(&a, "retention:\n"
                                          "  lifecycle: {events: 5000, age: 90d}\n"
                                          "  audit: {events: 0, age: 0s}\n");
        assert_int_equal(c->retention->lifecycle->events->value, 5000);
        assert_int_equal(config_duration_ms(c->retention->lifecycle->age, 1),
                         90 * INT64_C(86400000));
        assert_int_equal(c->retention->audit->events->value, 0);
        assert_int_equal(config_duration_ms(c->retention->audit->age, 1), 0);
        assert_null(c->keep_events);
        for (int i = 0; i < EVENT_CLASSES; i++) /* a new class has its key */
                assert_non_null(protobuf_c_message_descriptor_get_field_by_name(
                    &pb__event_retention__descriptor, event_class_name((enum event_class)i)));
        static const char text[] = "keep_events: 100\n"                      /* 1 */
                                   "retention:\n"                            /* 2 */
                                   "  lifecycle: {events: 100, age: 10ms}\n" /* 3 */
                                   "  audit:\n"                              /* 4 */
                                   "    events: -1\n"                        /* 5 */
                                   "    age: 40000d\n";                      /* 6 */
        assert_int_equal(config_read("f.yaml", text, strlen(text), &a, &c, collect, &told, &err),
                         -ERR_INVALID);
        static const char *const want[] = {
                "f.yaml:3: retention.lifecycle.events: is given beside keep_events",
                "f.yaml:3: retention.lifecycle.age: must be between 1s and",
                "f.yaml:5: retention.audit.events: must be between 0 and",
                "f.yaml:6: retention.audit.age: must be between 1s and"
        };
        for (size_t i = 0; i < ARRAY_LEN(want); i++)
                if (!strstr(str_c(&told), want[i]))
                        fail_msg("missing: %s in\n%s", want[i], str_c(&told));
        static const char *const more[] = { "keep_events: -5\n",
                                            "retention: {audit: {age: soon}}\n",
                                            "retention: {permits: {events: 1}}\n" };
        for (size_t i = 0; i < ARRAY_LEN(more); i++)
                assert_true(
                    config_read("f.yaml", more[i], strlen(more[i]), &a, &c, NULL, NULL, &err) < 0);
        str_fini(&told);
        arena_fini(&a);
}

/* R: C30 */
static void urls_have_their_parts(void **state)
{
        (void)state;
        struct arena a = ARENA_INIT;
        struct url u;
        assert_int_equal(url_parse(&a, "http://127.0.0.1:8080/a/b?c=d", &u, NULL), 0);
        assert_false(u.tls);
        assert_int_equal(u.port, 8080);
        assert_string_equal(u.host, "127.0.0.1");
        assert_string_equal(u.path, "/a/b?c=d");
        assert_string_equal(u.authority, "127.0.0.1:8080");
        assert_int_equal(url_parse(&a, "https://[::1]", &u, NULL), 0);
        assert_true(u.tls);
        assert_int_equal(u.port, 443);
        assert_string_equal(u.host, "::1");
        assert_string_equal(u.path, "/");
        static const char *const bad[] = { "",
                                           "http://",
                                           "http://:80/",
                                           "http://x:0/",
                                           "http://x:99999",
                                           "http://me:pw@x/",
                                           "http://x y/",
                                           "file:///etc" };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (url_parse(&a, bad[i], &u, NULL) >= 0)
                        fail_msg("taken: %s", bad[i]);
        arena_fini(&a);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_file_becomes_a_configuration),
                cmocka_unit_test(every_mistake_is_told_with_its_line_and_path),
                cmocka_unit_test(each_class_of_events_has_its_retention),
                cmocka_unit_test(urls_have_their_parts),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
