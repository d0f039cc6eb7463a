/* tests/failing_agent.c: an agent's disk and its processes, when one system call fails. R: A9 A12
 * C34
 *
 * Records: each file is the old one or the new one, never half, and a record that is said to be
 * written is the new one. Processes: a start ends with a unit that runs or with a reason why not;
 * then it can be stopped and removed, and the next start works.
 *
 * usage: failing_agent [--kind call|interrupt] [--at N]
 */
#include "fault_point.h"

#include "agent/agent_state.h"
#include "agent/runtime.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 10000
#define PLACES_MAX 3000
#define RECORDS_MAX 8

static const char *const kind_names[_FAULT_KINDS] = { "call", "interrupt" };
static struct {
        uint64_t at;
        const char *kind;
} want;

static bool is_wanted(int kind)
{
        return !want.kind || strcmp(want.kind, kind_names[kind]) == 0;
}

static uint64_t first_place(void)
{
        return want.at ? want.at : 1;
}

static uint64_t next_place(uint64_t n)
{
        return want.at ? PLACES_MAX : n + 1;
}

static void make_dir(char dir[256])
{
        const char *tmp = getenv("TMPDIR");
        snprintf(dir, 256, "%s/berth-failing-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(dir));
}

/* ---- records ---- */

static void write_records(const char *dir, size_t n_records, uint64_t generation, bool *failed)
{
        struct engine_order orders[RECORDS_MAX];
        char ids[RECORDS_MAX][16], data[RECORDS_MAX][64];
        struct err err = { 0 };
        for (size_t i = 0; i < n_records; i++) {
                snprintf(ids[i], sizeof(ids[i]), "unit-%zu", i);
                snprintf(data[i], sizeof(data[i]), "unit %zu, generation %llu, the end", i,
                         (unsigned long long)generation);
                orders[i] = (struct engine_order){ .kind = ORDER_PERSIST_UNIT,
                                                   .workload_id = ids[i],
                                                   .data = data[i],
                                                   .len = strlen(data[i]) };
        }
        agent_disk_write(dir, orders, n_records, failed, &err);
}

static void expect_records(const char *dir, size_t n_records, uint64_t old, uint64_t now,
                           const bool *failed, const char *label)
{
        for (size_t i = 0; i < n_records; i++) {
                struct str text = STR_INIT;
                char path[512], was[64], is[64];
                snprintf(path, sizeof(path), "%s/units/unit-%zu/record.pb", dir, i);
                snprintf(was, sizeof(was), "unit %zu, generation %llu, the end", i,
                         (unsigned long long)old);
                snprintf(is, sizeof(is), "unit %zu, generation %llu, the end", i,
                         (unsigned long long)now);
                if (file_read(path, 4096, &text, NULL) < 0)
                        fail_msg("%s: record %zu is gone", label, i);
                if (strcmp(str_c(&text), is) != 0 && (!failed[i] || strcmp(str_c(&text), was) != 0))
                        fail_msg("%s: record %zu, %s, is \"%s\"", label, i,
                                 failed[i] ? "failed" : "written", str_c(&text));
                str_fini(&text);
        }
}

static void try_records(const char *dir, int kind, size_t n_records)
{
        uint64_t places = 0, idle = 0, generation = 1;
        bool failed[RECORDS_MAX];
        write_records(dir, n_records, generation, failed);
        for (uint64_t n = first_place(); n < PLACES_MAX && idle < 2; n = next_place(n)) {
                char label[128];
                fault_arm((enum fault_kind)kind, n);
                write_records(dir, n_records, generation + 1, failed);
                const char *what = fault_disarm();
                snprintf(label, sizeof(label), "%zu records --kind %s --at %llu (%s)", n_records,
                         kind_names[kind], (unsigned long long)n, what ? what : "nothing");
                expect_records(dir, n_records, generation, generation + 1, failed, label);
                places += what != NULL;
                idle = what ? 0 : idle + 1;
                /* and again: as if nothing had been */
                write_records(dir, n_records, ++generation, failed);
                for (size_t i = 0; i < n_records; i++)
                        if (failed[i])
                                fail_msg("%s: the next write fails", label);
                expect_records(dir, n_records, generation, generation, failed, label);
        }
        print_message("# %zu records, %s: %llu places failed once\n", n_records, kind_names[kind],
                      (unsigned long long)places);
}

static void records_are_the_old_ones_or_the_new_ones(void **state _unused_)
{
        char dir[256];
        make_dir(dir);
        for (int kind = 0; kind < _FAULT_KINDS; kind++)
                if (is_wanted(kind)) {
                        try_records(dir, kind, 2);           /* one by one */
                        try_records(dir, kind, RECORDS_MAX); /* as a batch */
                }
        assert_int_equal(dir_remove(dir, NULL), 0);
}

/* ---- processes ---- */

struct rig {
        struct event_base *base;
        struct event *tick;
        struct runtime *rt;
        uint64_t seq;
        unsigned seen; /* bits: kinds of events since the last start */
};

static void on_event(void *ctx, const struct runtime_event *ev)
{
        struct rig *r = ctx;
        r->seen |= 1u << ev->kind;
}

static void on_tick(evutil_socket_t fd _unused_, short what _unused_, void *ctx _unused_) {}

#define SEEN(kind) (1u << (kind))

static void await(struct rig *r, unsigned any, const char *label, const char *doing)
{
        for (int64_t end = clock_mono_ns() + PATIENCE_MS * INT64_C(1000000); !(r->seen & any);) {
                if (clock_mono_ns() > end)
                        fail_msg("%s: %s: silence", label, doing);
                event_base_loop(r->base, EVLOOP_ONCE);
        }
}

static const char *try_start(struct rig *r, int kind, uint64_t n, char label[128])
{
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;
        char *argv[] = { (char *)"sleep", (char *)"1000" };
        struct unit_token token = { 1, ++r->seq };
        spec.command = argv;
        spec.n_command = 2;
        w.id = (char *)"unit";
        w.type = PB__WORKLOAD_TYPE__E__process;
        w.revision_id = (char *)"rev-1";
        w.spec = &spec;
        r->seen = 0;
        snprintf(label, 128, "a start --kind %s --at %llu", kind_names[kind],
                 (unsigned long long)n);
        if (n)
                fault_arm((enum fault_kind)kind, n);
        runtime_process.start(r->rt, &(struct runtime_start){
                                         .workload_id = "unit", .token = token, .workload = &w });
        await(r, SEEN(RUNTIME_STARTED) | SEEN(RUNTIME_START_FAILED) | SEEN(RUNTIME_EXITED), label,
              "starting");
        const char *what = fault_disarm();
        snprintf(label, 128, "a start --kind %s --at %llu (%s)", kind_names[kind],
                 (unsigned long long)n, what ? what : "nothing");
        if (r->seen & SEEN(RUNTIME_STARTED)) {
                runtime_process.stop(r->rt, "unit", token, 2000);
                await(r, SEEN(RUNTIME_STOPPED) | SEEN(RUNTIME_EXITED), label, "stopping");
        }
        runtime_process.remove(r->rt, "unit");
        await(r, SEEN(RUNTIME_REMOVED), label, "removing");
        return what;
}

static void a_start_ends_with_a_unit_or_a_reason(void **state _unused_)
{
        char dir[256], label[128];
        struct rig r = { 0 };
        struct err err = { 0 };
        make_dir(dir);
        r.base = event_base_new();
        r.tick = event_new(r.base, -1, EV_PERSIST, on_tick, NULL);
        event_add(r.tick, &(struct timeval){ .tv_usec = 20000 });
        struct runtime_options opt = {
                .base = r.base, .data_dir = dir, .node_id = "n1", .on_event = on_event, .ctx = &r
        };
        if (runtime_process.open(&opt, &r.rt, &err) < 0)
                fail_msg("%s", err_line(&err));
        for (int kind = 0; kind < _FAULT_KINDS; kind++) {
                uint64_t places = 0, idle = 0;
                for (uint64_t n = first_place(); is_wanted(kind) && n < PLACES_MAX && idle < 2;
                     n = next_place(n)) {
                        const char *what = try_start(&r, kind, n, label);
                        places += what != NULL;
                        idle = what ? 0 : idle + 1;
                        try_start(&r, kind, 0, label);
                        if (!(r.seen & SEEN(RUNTIME_STARTED)))
                                fail_msg("%s: the next start fails", label);
                }
                print_message("# starts, %s: %llu places failed once\n", kind_names[kind],
                              (unsigned long long)places);
        }
        runtime_process.close(r.rt);
        event_free(r.tick);
        event_base_free(r.base);
        assert_int_equal(dir_remove(dir, NULL), 0);
}

int main(int argc, char **argv)
{
        /* this program is also the monitor of the units that it starts */
        if (unit_main_wanted(argc, argv))
                return unit_main(argc, argv);
        for (int i = 1; i + 1 < argc; i += 2) {
                if (strcmp(argv[i], "--at") == 0)
                        want.at = strtoull(argv[i + 1], NULL, 10);
                else if (strcmp(argv[i], "--kind") == 0)
                        want.kind = argv[i + 1];
        }
        log_setup(LOG_ERROR, LOG_FORMAT_LOGFMT, 2);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(records_are_the_old_ones_or_the_new_ones),
                cmocka_unit_test(a_start_ends_with_a_unit_or_a_reason),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
