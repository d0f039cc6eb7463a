/* server/metrics_test.c: the text is read line by line as Prometheus would. */
#include "base/file.h"
#include "base/mem.h"
#include "events.pb-c.h"
#include "server/metrics.h"
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *name_of(size_t op)
{
        return op == 0 ? "GetNode" : "ListNodes";
}
static const char *grpc_of(size_t op)
{
        return op == 0 ? "/berth.v1.Control/GetNode" : NULL;
}

static char *render(struct metrics *m, const struct core_stats *stats)
{
        struct str out = STR_INIT;
        struct metrics_now now = { .core = stats,
                                   .op_name = name_of,
                                   .grpc_name = grpc_of,
                                   .version = "1\"2\\3\n",
                                   .start_time_seconds = 1.5 };
        metrics_render(m, &now, &out);
        return str_take(&out);
}

/* name{label="value",...} value; returns the end of the name, or fails */
static void check_sample(const char *line, const char *family, const char *type)
{
        size_t n = strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:");
        assert_true(n > 0 && !isdigit((unsigned char)line[0]));
        size_t f = strlen(family);
        assert_true(strncmp(line, family, f) == 0);
        const char *rest = line + f;
        size_t suffix = n - f;
        if (strcmp(type, "histogram") == 0)
                assert_true((suffix == 7 && !strncmp(rest, "_bucket", 7)) ||
                            (suffix == 4 && !strncmp(rest, "_sum", 4)) ||
                            (suffix == 6 && !strncmp(rest, "_count", 6)));
        else
                assert_int_equal(suffix, 0);
        if (strcmp(type, "counter") == 0)
                assert_true(n > 6 && strncmp(line + n - 6, "_total", 6) == 0);
        const char *p = line + n;
        if (*p == '{') {
                do {
                        p++;
                        p += strspn(p, "abcdefghijklmnopqrstuvwxyz_");
                        assert_true(p[0] == '=' && p[1] == '"');
                        for (p += 2; *p && *p != '"'; p++)
                                if (*p == '\\') {
                                        p++;
                                        assert_true(*p == '\\' || *p == '"' || *p == 'n');
                                }
                        assert_true(*p++ == '"');
                } while (*p == ',');
                assert_true(*p++ == '}');
        }
        assert_true(*p++ == ' ');
        char *end;
        (void)strtod(p, &end);
        assert_true(end != p && *end == 0);
}

/* R: C36 */
static void every_line_is_valid_exposition_format(void **state)
{
        struct metrics *m = mem_must(sizeof(*m));
        struct core_stats stats = { .placements = 3, .nodes_by_status = { 0, 2, 1 } };
        (void)state;
        metrics_init(m);
        metrics_http(m, 0, 200);
        metrics_http(m, 1, 404);
        metrics_http(m, METRICS_OPS + 5, 418);
        metrics_grpc(m, 0, 5, 1000000, false);
        metrics_grpc(m, METRICS_OPS - 1, 99, 5, true);
        char *text = render(m, &stats), *save = NULL, family[128] = "", type[32] = "";
        size_t samples = 0;
        static char seen[400][128];
        size_t n_seen = 0;
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                if (strncmp(line, "# HELP ", 7) == 0) {
                        assert_int_equal(sscanf(line + 7, "%127s", family), 1);
                        for (size_t i = 0; i < n_seen; i++)
                                /* a family stands in one place */
                                assert_string_not_equal(seen[i], family);
                        snprintf(seen[n_seen++], 128, "%s", family);
                        type[0] = 0;
                } else if (strncmp(line, "# TYPE ", 7) == 0) {
                        char name[128];
                        assert_int_equal(sscanf(line + 7, "%127s %31s", name, type), 2);
                        assert_string_equal(name, family);
                        assert_true(!strcmp(type, "counter") || !strcmp(type, "gauge") ||
                                    !strcmp(type, "histogram"));
                } else {
                        assert_true(type[0] != 0);
                        check_sample(line, family, type);
                        samples++;
                }
        }
        assert_true(samples > 60);
        mem_free(text);
        mem_free(m);
}

/* R: C36 */
static void every_family_is_in_the_documents(void **state)
{
        (void)state;
        struct core_stats stats = { 0 };
        struct metrics *m = mem_must(sizeof(*m));
        struct str page = STR_INIT;
        size_t n = 0, rows = 0;
        metrics_init(m);
        assert_true(file_read(METRICS_PAGE, 1 << 20, &page, NULL) >= 0);
        char *text = render(m, &stats), *save = NULL;
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                char name[128], type[32], row[200];
                if (sscanf(line, "# TYPE %127s %31s", name, type) != 2)
                        continue;
                snprintf(row, sizeof(row), "\n| `%s` | %s | ", name, type);
                if (!strstr(str_c(&page), row))
                        fail_msg("docs/metrics.md has no row for %s (%s)", name, type);
                n++;
        }
        for (const char *at = str_c(&page); (at = strstr(at, "\n| `")); at++)
                rows++;
        assert_int_equal(rows, n); /* and none for what is not there any more */
        mem_free(text);
        mem_free(m);
        str_fini(&page);
}

/* R: C36 */
static void the_named_families_are_there(void **state)
{
        static const char *const want[] = {
                "berth_scheduling_attempts_total 3\n",
                "berth_scheduling_failures_total 2\n",
                "berth_reconciliation_actions_total{action=\"Recreate\"} 7\n",
                "berth_retry_total 4\n",
                "berth_node_unhealthy_total 1\n",
                "berth_nodes{status=\"Ready\"} 9\n",
                "berth_workloads{status=\"Running\"} 8\n",
                "berth_commits_total 0\n",
                "berth_heartbeats_total 6\n",
                "berth_passes_total 11\n",
                "berth_queue_depth{queue=\"ring\"} 0\n",
                "berth_build_info{version=\"1\\\"2\\\\3\\n\"} 1\n",
                "berth_http_requests_total{op=\"GetNode\",code=\"200\"} 1\n",
                "process_open_fds ",
                "process_cpu_seconds_total ",
                "process_resident_memory_bytes "
        };
        struct metrics *m = mem_must(sizeof(*m));
        struct core_stats stats = { .placements = 3,
                                    .placement_failures = 2,
                                    .actions = { 0, 7 },
                                    .retries = 4,
                                    .nodes_lost = 1,
                                    .nodes_by_status = { 0, 9 },
                                    .by_phase = { [PB__PHASE__E__Running] = 8 },
                                    .heartbeats = 6,
                                    .passes = 11 };
        (void)state;
        metrics_init(m);
        metrics_http(m, 0, 200);
        char *text = render(m, &stats);
        for (size_t i = 0; i < ARRAY_LEN(want); i++)
                if (!strstr(text, want[i]))
                        fail_msg("missing: %s", want[i]);
        mem_free(text);
        mem_free(m);
}

/* What dashboards for Persys schedulers ask for: every family, with its labels, and the gauges from
 * the first scrape on. */
/* R: C36 */
static void the_families_of_persys_dashboards_are_there(void **state)
{
        static const char *const want[] = {
                "persys_scheduler_grpc_server_requests_total{method=\"/berth.v1.Control/"
                "GetNode\",code=\"NotFound\"} 1\n",
                "persys_scheduler_grpc_server_request_duration_seconds_bucket{method=\"/"
                "berth.v1.Control/"
                "GetNode\",code=\"NotFound\",le=\"0.005\"} 1\n",
                "persys_scheduler_grpc_server_request_duration_seconds_count{method=\"/"
                "berth.v1.Control/GetNode\",code=\"NotFound\"} 1\n",
                "persys_scheduler_agent_rpc_requests_total{rpc=\"ApplyWorkload\",code=\"OK\"} 1\n",
                "persys_scheduler_agent_rpc_duration_seconds_count{rpc=\"ApplyWorkload\",code="
                "\"OK\"} 1\n",
                "persys_scheduler_reconciliation_results_total{action=\"Recreate\",success="
                "\"true\"} 7\n",
                "persys_scheduler_reconciliation_results_total{action=\"Apply\",success=\"false\"} "
                "3\n",
                "persys_scheduler_reconciliation_cycle_duration_seconds_count 1\n",
                "persys_scheduler_reconciliation_cycles_total{result=\"success\"} 1\n",
                "persys_scheduler_reconciliation_cycles_total{result=\"error\"} 0\n",
                "persys_scheduler_nodes_status{status=\"ready\"} 9\n",
                "persys_scheduler_nodes_status{status=\"active\"} 0\n",
                "persys_scheduler_nodes_status{status=\"notready\"} 0\n",
                "persys_scheduler_nodes_status{status=\"unknown\"} 0\n",
                "persys_scheduler_workloads_status{status=\"pending\"} 0\n",
                "persys_scheduler_workloads_status{status=\"running\"} 8\n",
                "persys_scheduler_workloads_status{status=\"stopped\"} 0\n",
                "persys_scheduler_workloads_status{status=\"failed\"} 0\n",
                "persys_scheduler_workloads_status{status=\"deleted\"} 0\n",
                "persys_scheduler_workloads_status{status=\"updating\"} 0\n",
                "persys_scheduler_workloads_status{status=\"unknown\"} 0\n",
                "persys_scheduler_workloads_desired_state{desired_state=\"running\"} 5\n",
                "persys_scheduler_workloads_desired_state{desired_state=\"stopped\"} 0\n",
                "persys_scheduler_workloads_desired_state{desired_state=\"deleted\"} 0\n",
                "persys_scheduler_workloads_desired_state{desired_state=\"unknown\"} 0\n",
                "persys_scheduler_state_store_writes_total{category=\"spec\"} 0\n",
                "persys_scheduler_state_store_writes_total{category=\"status\"} 1\n",
                "persys_scheduler_state_store_writes_total{category=\"retry\"} 1\n",
                "persys_scheduler_state_store_writes_total{category=\"assignment\"} 0\n",
                "persys_scheduler_state_store_writes_total{category=\"reconciliation\"} 0\n",
                "persys_scheduler_state_store_writes_total{category=\"event\"} 1\n",
        };
        struct metrics *m = mem_must(sizeof(*m));
        struct core_stats stats = { .actions = { 0, 7 },
                                    .failures = 3,
                                    .nodes_by_status = { 0, 9 },
                                    .by_phase = { [PB__PHASE__E__Running] = 8 },
                                    .by_desired = { 0, 5 } };
        (void)state;
        metrics_init(m);
        metrics_grpc(m, 0, 5, 1000000, false);
        metrics_agent_rpc(m, 0, 0, 1000);
        histogram_add(&m->reconcile, 1000);
        Pb__Event e = PB__EVENT__INIT;
        e.seq = 1;
        e.type = PB__EVENT_TYPE__E__RetryScheduled;
        unsigned char packed[64];
        struct store_event event = { .seq = 1, .data = packed, .len = pb__event__pack(&e, packed) };
        struct store_record record = { .key = "/workloads/a", .data = packed, .len = 1 };
        metrics_writes(m,
                       &(struct store_batch){
                           .events = &event, .n_events = 1, .records = &record, .n_records = 1 });
        char *text = render(m, &stats);
        for (size_t i = 0; i < ARRAY_LEN(want); i++)
                if (!strstr(text, want[i]))
                        fail_msg("missing: %s", want[i]);
        mem_free(text);
        mem_free(m);
}

/* R: C36 */
static void histogram_buckets_add_up(void **state)
{
        struct metrics *m = mem_must(sizeof(*m));
        struct core_stats stats = { 0 };
        (void)state;
        metrics_init(m);
        histogram_add(&m->commit, 400000);      /* 0.4 ms */
        histogram_add(&m->commit, 500000);      /* on a bound: belongs below it */
        histogram_add(&m->commit, 3000000);     /* 3 ms */
        histogram_add(&m->commit, 60000000000); /* 60 s: only in +Inf */
        histogram_add(&m->commit, -5);
        char *text = render(m, &stats);
        assert_non_null(strstr(text, "berth_commit_duration_seconds_bucket{le=\"0.0005\"} 3\n"));
        assert_non_null(strstr(text, "berth_commit_duration_seconds_bucket{le=\"0.005\"} 4\n"));
        assert_non_null(strstr(text, "berth_commit_duration_seconds_bucket{le=\"10\"} 4\n"));
        assert_non_null(strstr(text, "berth_commit_duration_seconds_bucket{le=\"+Inf\"} 5\n"));
        assert_non_null(strstr(text, "berth_commit_duration_seconds_count 5\n"));
        assert_non_null(strstr(text, "berth_commit_duration_seconds_sum 60.003900000\n"));
        mem_free(text);
        mem_free(m);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_line_is_valid_exposition_format),
                cmocka_unit_test(every_family_is_in_the_documents),
                cmocka_unit_test(the_named_families_are_there),
                cmocka_unit_test(the_families_of_persys_dashboards_are_there),
                cmocka_unit_test(histogram_buckets_add_up),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
