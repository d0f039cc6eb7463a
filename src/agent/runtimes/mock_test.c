/* agent/runtimes/mock_test.c: the mock runtime keeps the promises of runtime.h and does what its
 * seed says. */
#include "agent/runtimes/mock.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/str.h"
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct rig {
        struct event_base *base;
        struct runtime *rt;
        ARRAY(struct runtime_event) seen;
        struct str story; /* "u1:2 " per event, for comparing two runs */
        uint32_t kinds[16];
        bool log_ended;
};

static void on_event(void *ctx, const struct runtime_event *ev)
{
        struct rig *r = ctx;

        *array_push(&r->seen) = *ev;
        r->kinds[ev->kind]++;
        str_addf(&r->story, "%s:%d:%d ", ev->workload_id, (int)ev->kind, ev->exit_code);
}

static void setup(struct rig *r, const struct mock_options *mock)
{
        struct runtime_options opt = {
                .node_id = "n1", .on_event = on_event, .ctx = r, .extra = mock
        };

        *r = (struct rig){ .base = event_base_new() };
        opt.base = r->base;
        assert_int_equal(runtime_mock.open(&opt, &r->rt, NULL), 0);
}

static void teardown(struct rig *r)
{
        runtime_mock.close(r->rt);
        event_base_free(r->base);
        array_fini(&r->seen);
        str_fini(&r->story);
}

static void start(struct rig *r, const char *id, Pb__Restart__E restart)
{
        Pb__Workload w = PB__WORKLOAD__INIT;

        w.type = PB__WORKLOAD_TYPE__E__vm;
        w.restart = restart;
        runtime_mock.start(
            r->rt, &(struct runtime_start){ .workload_id = id, .token = { 1, 7 }, .workload = &w });
}

/* R: C40 */
static void units_start_run_and_stop(void **state)
{
        struct mock_options opt;
        struct rig r;
        struct runtime_usage u1, u2;

        (void)state;
        mock_options_default(&opt);
        opt.start_min_ms = opt.start_max_ms = 1;
        setup(&r, &opt);
        start(&r, "a", PB__RESTART__E__always);
        /* returns when nothing is left to wait for: a service runs on */
        event_base_dispatch(r.base);
        assert_int_equal(r.kinds[RUNTIME_STARTED], 1);
        assert_int_equal(r.seen.len, 1);
        start(&r, "a", PB__RESTART__E__always); /* never two copies */
        assert_int_equal(r.kinds[RUNTIME_START_FAILED], 1);
        runtime_mock.stop(r.rt, "a", (struct unit_token){ 1, 7 }, 1000);
        event_base_dispatch(r.base);
        assert_int_equal(r.kinds[RUNTIME_STOPPED], 1);
        runtime_mock.stop(r.rt, "a", (struct unit_token){ 1, 7 }, 1000);
        assert_int_equal(r.kinds[RUNTIME_STOPPED], 2);
        runtime_mock.remove(r.rt, "a");
        assert_int_equal(r.kinds[RUNTIME_REMOVED], 1);
        runtime_mock.usage(r.rt, &u1);
        runtime_mock.usage(r.rt, &u2);
        assert_true(u1.cpu_used != u2.cpu_used || u1.memory_used_mb != u2.memory_used_mb);
        teardown(&r);
}

/* R: C6 */
static void jobs_end_and_failures_come_as_often_as_asked(void **state)
{
        struct mock_options opt;
        char *first = NULL;

        (void)state;
        mock_options_default(&opt);
        opt.seed = 42;
        opt.start_min_ms = 0;
        opt.start_max_ms = 200;
        opt.job_min_ms = 0;
        opt.job_max_ms = 300;
        opt.start_fail_per_million = 300000;
        opt.crash_per_million = 300000;
        for (int run = 0; run < 2; run++) {
                struct rig r;
                uint32_t failed = 0, fine = 0;

                setup(&r, &opt);
                for (int i = 0; i < 200; i++) {
                        char id[16];

                        snprintf(id, sizeof(id), "u%d", i);
                        start(&r, id, PB__RESTART__E__never);
                }
                event_base_dispatch(r.base);
                for (size_t i = 0; i < r.seen.len; i++)
                        if (r.seen.at[i].kind == RUNTIME_EXITED) {
                                failed += r.seen.at[i].exit_code != 0;
                                fine += r.seen.at[i].exit_code == 0;
                        }
                assert_int_equal(r.kinds[RUNTIME_START_FAILED] + failed + fine, 200);
                assert_in_range(r.kinds[RUNTIME_START_FAILED], 30, 90);
                assert_in_range(failed, 20, 80);
                if (run == 0)
                        first = mem_strdup(
                            fmt("%u %u %u", r.kinds[RUNTIME_START_FAILED], failed, fine));
                else
                        assert_string_equal(
                            first, fmt("%u %u %u", r.kinds[RUNTIME_START_FAILED], failed, fine));
                teardown(&r);
        }
        mem_free(first);
}

static bool take_data(void *ctx, bool is_stderr, int64_t ts, const void *data, size_t len)
{
        (void)ctx, (void)is_stderr, (void)ts, (void)data;
        return len > 0;
}

static void take_end(void *ctx, bool has_code, int32_t code, const char *error)
{
        struct rig *r = ctx;

        (void)has_code, (void)code;
        assert_null(error);
        r->log_ended = true;
}

/* R: C40 */
static void streams_end(void **state)
{
        struct mock_options opt;
        struct rig r;
        struct stream *s;
        struct stream_sink sink = { take_data, take_end, &r };
        struct err err = { 0 };

        (void)state;
        mock_options_default(&opt);
        opt.start_max_ms = opt.start_min_ms = 0;
        setup(&r, &opt);
        assert_int_equal(runtime_mock.logs(r.rt, "a", &(struct log_options){ 0 }, &sink, &s, &err),
                         -ERR_NOT_FOUND);
        start(&r, "a", PB__RESTART__E__always);
        assert_int_equal(runtime_mock.logs(r.rt, "a", &(struct log_options){ 0 }, &sink, &s, &err),
                         0);
        event_base_dispatch(r.base);
        assert_true(r.log_ended);
        assert_int_equal(runtime_mock.logs(r.rt, "a", &(struct log_options){ 0 }, &sink, &s, &err),
                         0);
        s->ops->close(s);
        teardown(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(units_start_run_and_stop),
                cmocka_unit_test(jobs_end_and_failures_come_as_often_as_asked),
                cmocka_unit_test(streams_end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
