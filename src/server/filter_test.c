/* server/filter_test.c */
#include "model/pb.h"
#include "server/filter.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void make(struct str *out, uint64_t seq, Pb__EventType__E type, const char *workload,
                 const char *node, uint64_t prev)
{
        Pb__Event e = PB__EVENT__INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        w.id = (char *)"inner"; /* field 1 of a nested message must not be taken for the event's */
        w.assigned_node = (char *)"inner-node";
        e.seq = seq;
        e.type = type;
        e.timestamp = 1771286400000;
        e.workload_id = (char *)workload;
        e.node_id = (char *)node;
        e.prev = prev;
        e.workload = &w;
        e.message = (char *)"text";
        str_clear(out);
        pb_pack(out, &e.base);
}

/* R: C29 */
static void every_type_of_event_can_be_asked_for(void **state)
{
        const ProtobufCEnumDescriptor *d = &pb__event_type__e__descriptor;
        struct arena a = { 0 };
        struct err err = { 0 };
        (void)state;
        for (unsigned i = 0; i < d->n_values; i++) {
                struct event_filter f;
                Pb__ListEventsRequest req = PB__LIST_EVENTS_REQUEST__INIT;
                req.type = (char *)d->values[i].name;
                if (d->values[i].value == 0)
                        continue;
                if (event_filter_parse(&req, &a, &f, &err) < 0)
                        fail_msg("%s: %s", req.type, err_line(&err));
                for (unsigned j = 0; j < d->n_values; j++) {
                        struct event_peek p = { .type = (uint32_t)d->values[j].value };
                        assert_int_equal(event_matches(&f, &p), i == j);
                }
        }
        arena_fini(&a);
}

/* The filter had one word of 64 bits: types from 64 on could not be asked for. R: C29 */
static void types_beyond_64_have_bits_of_their_own(void **state)
{
        static const unsigned numbers[] = { 1, 63, 64, 65, 127, 128, EVENT_TYPES_MAX - 1 };
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
                struct event_filter f = { 0 };
                event_filter_add_type(&f, (Pb__EventType__E)numbers[i]);
                for (uint32_t type = 0; type < 2 * EVENT_TYPES_MAX; type++)
                        assert_int_equal(event_matches(&f, &(struct event_peek){ .type = type }),
                                         type == numbers[i]);
        }
}

/* A stream's filter outlives the request that brought it. R: X4 */
static void a_copy_of_a_filter_shares_nothing_with_it(void **state)
{
        struct arena mine = ARENA_INIT;
        char workload[] = "web", node[] = "n1", rule[] = "hot";
        struct event_filter f = { .workload = workload, .node = node, .rule = rule };
        (void)state;
        event_filter_add_type(&f, PB__EVENT_TYPE__E__AlertRaised);
        struct event_filter copy = event_filter_copy(&f, &mine);
        memset(workload, '?', sizeof(workload) - 1);
        memset(node, '?', sizeof(node) - 1);
        memset(rule, '?', sizeof(rule) - 1);
        struct event_peek p = { .type = PB__EVENT_TYPE__E__AlertRaised,
                                .workload = "web",
                                .workload_len = 3,
                                .node = "n1",
                                .node_len = 2,
                                .rule = "hot",
                                .rule_len = 3 };
        assert_true(event_matches(&copy, &p));
        p.type = PB__EVENT_TYPE__E__AlertCleared;
        assert_false(event_matches(&copy, &p));
        arena_fini(&mine);
}

static bool matches(const struct event_filter *f, Pb__EventType__E type, const char *workload,
                    const char *node)
{
        struct str s = STR_INIT;
        struct event_peek p;
        make(&s, 9, type, workload, node, 0);
        assert_true(event_peek(s.buf, s.len, &p));
        bool yes = event_matches(f, &p);
        str_fini(&s);
        return yes;
}

/* R: C2 C29 */
static void filters_by_type_workload_and_node(void **state)
{
        struct arena arena = ARENA_INIT;
        struct event_filter f;
        struct err err = { 0 };
        (void)state;
        Pb__ListEventsRequest req = PB__LIST_EVENTS_REQUEST__INIT;
        assert_int_equal(event_filter_parse(&req, &arena, &f, &err), 0);
        assert_true(matches(&f, PB__EVENT_TYPE__E__NodeLost, "", "n1"));

        req.type = (char *)"nodelost,WorkloadFailed";
        assert_int_equal(event_filter_parse(&req, &arena, &f, &err), 0);
        assert_true(matches(&f, PB__EVENT_TYPE__E__NodeLost, "", "n1"));
        assert_true(matches(&f, PB__EVENT_TYPE__E__WorkloadFailed, "w", "n1"));
        assert_false(matches(&f, PB__EVENT_TYPE__E__NodeReady, "", "n1"));

        req.type = (char *)"";
        req.workload = (char *)"web";
        req.node = (char *)"n1";
        assert_int_equal(event_filter_parse(&req, &arena, &f, &err), 0);
        assert_true(matches(&f, PB__EVENT_TYPE__E__WorkloadFailed, "web", "n1"));
        assert_false(matches(&f, PB__EVENT_TYPE__E__WorkloadFailed, "web", "n2"));
        assert_false(matches(&f, PB__EVENT_TYPE__E__WorkloadFailed, "web2", "n1"));
        assert_false(matches(&f, PB__EVENT_TYPE__E__WorkloadFailed, "", "n1"));
        arena_fini(&arena);
}

/* R: A9 */
static void a_mistyped_type_gets_a_suggestion(void **state)
{
        struct arena arena = ARENA_INIT;
        struct event_filter f;
        struct err err = { 0 };
        (void)state;
        Pb__ListEventsRequest req = PB__LIST_EVENTS_REQUEST__INIT;
        req.type = (char *)"NodeReady,WorkloadFaled";
        assert_int_equal(event_filter_parse(&req, &arena, &f, &err), -ERR_INVALID);
        assert_string_equal(err.path, "type");
        assert_non_null(strstr(err.hint, "WorkloadFailed"));
        arena_fini(&arena);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(types_beyond_64_have_bits_of_their_own),
                cmocka_unit_test(a_copy_of_a_filter_shares_nothing_with_it),
                cmocka_unit_test(every_type_of_event_can_be_asked_for),
                cmocka_unit_test(filters_by_type_workload_and_node),
                cmocka_unit_test(a_mistyped_type_gets_a_suggestion),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
