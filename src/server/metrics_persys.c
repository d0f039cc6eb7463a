/* server/metrics_persys.c: what operators of Persys clusters know and have dashboards for, under
 * the names that they know (persys_scheduler_*).
 *
 * Gauges are there from the first scrape on, with 0, so that a panel shows a line and not "no
 * data". Labels are lower case, codes are spelled as Go does.
 */
#include "server/filter.h"
#include "server/metrics.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define NAME(rest) "persys_scheduler_" rest

static const char *const WRITES[METRICS_WRITES] = { "spec",       "status",         "retry",
                                                    "assignment", "reconciliation", "event" };
enum { WRITE_SPEC, WRITE_STATUS, WRITE_RETRY, WRITE_ASSIGNMENT, WRITE_RECONCILIATION, WRITE_EVENT };

void metrics_persys_init(struct metrics *m)
{
        for (size_t op = 0; op < METRICS_OPS; op++)
                for (size_t c = 0; c < METRICS_GRPC_CODES; c++)
                        histogram_init(&m->grpc_duration[op][c], METRICS_BOUNDS_IO);
}

void metrics_writes(struct metrics *m, const struct store_batch *b)
{
        uint64_t n[METRICS_WRITES] = { [WRITE_EVENT] = b->n_events };
        for (size_t i = 0; i < b->n_records; i++)
                n[WRITE_STATUS] += strncmp(b->records[i].key, "/workloads/", 11) == 0;
        for (size_t i = 0; i < b->n_events; i++)
                switch (event_type(b->events[i].data, b->events[i].len)) {
                case PB__EVENT_TYPE__E__WorkloadApplied:
                        n[WRITE_SPEC]++;
                        break;
                case PB__EVENT_TYPE__E__RetryScheduled:
                case PB__EVENT_TYPE__E__RetryTriggered:
                case PB__EVENT_TYPE__E__RetryReset:
                        n[WRITE_RETRY]++;
                        break;
                case PB__EVENT_TYPE__E__WorkloadScheduled:
                case PB__EVENT_TYPE__E__Rescheduled:
                        n[WRITE_ASSIGNMENT]++;
                        break;
                case PB__EVENT_TYPE__E__WorkloadLaunched:
                case PB__EVENT_TYPE__E__WorkloadDeleting:
                        n[WRITE_RECONCILIATION]++;
                        break;
                default:
                        break;
                }
        for (size_t i = 0; i < METRICS_WRITES; i++)
                count_n(&m->writes[i], n[i]);
}

static void family(struct str *out, const char *name, const char *type, const char *help)
{
        str_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(struct str *out, const char *name, const char *label, const char *value,
                  uint64_t n)
{
        str_addf(out, "%s{%s=\"", name, label);
        for (const char *p = value; *p; p++)
                str_addc(out, (char)tolower((unsigned char)*p));
        str_addf(out, "\"} %llu\n", (unsigned long long)n);
}

static uint64_t total(const struct histogram *h)
{
        uint64_t n = 0;
        for (size_t i = 0; i <= METRICS_BUCKETS; i++)
                n += counted(&h->buckets[i]);
        return n;
}

/* labels: `method="...",code="..."`, or "". */
static void histogram(struct str *out, const char *name, const char *labels,
                      const struct histogram *h)
{
        uint64_t sum = 0;
        const char *comma = *labels ? "," : "", *open = *labels ? "{" : "",
                   *close = *labels ? "}" : "";
        for (size_t i = 0; i < METRICS_BUCKETS; i++) {
                sum += counted(&h->buckets[i]);
                str_addf(out, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, labels, comma, h->bounds[i],
                         (unsigned long long)sum);
        }
        sum += counted(&h->buckets[METRICS_BUCKETS]);
        str_addf(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, labels, comma,
                 (unsigned long long)sum);
        str_addf(out, "%s_sum%s%s%s %.9f\n", name, open, labels, close,
                 (double)counted(&h->sum_ns) / 1e9);
        str_addf(out, "%s_count%s%s%s %llu\n", name, open, labels, close, (unsigned long long)sum);
}

static void render_calls(struct str *out, struct metrics *m, const struct metrics_now *now)
{
        family(out, NAME("grpc_server_requests_total"), "counter",
               "gRPC calls by method and code.");
        for (size_t op = 0; op < METRICS_OPS; op++)
                for (size_t i = 0; i < METRICS_GRPC_CODES; i++)
                        if (counted(&m->grpc[op][i])) {
                                const char *name =
                                    op == METRICS_OPS - 1 ? "unknown" : now->grpc_name(op);
                                str_addf(out,
                                         NAME("grpc_server_requests_total{method=\"%s\",code=\"%"
                                              "s\"} %llu\n"),
                                         name ? name : "unknown", METRICS_CODE_NAMES[i],
                                         (unsigned long long)counted(&m->grpc[op][i]));
                        }
        family(out, NAME("grpc_server_request_duration_seconds"), "histogram",
               "How long gRPC calls took.");
        for (size_t op = 0; op < METRICS_OPS; op++)
                for (size_t i = 0; i < METRICS_GRPC_CODES; i++)
                        if (total(&m->grpc_duration[op][i])) {
                                const char *name =
                                    op == METRICS_OPS - 1 ? "unknown" : now->grpc_name(op);
                                char labels[300];
                                (void)snprintf(labels, sizeof(labels), "method=\"%s\",code=\"%s\"",
                                               name ? name : "unknown", METRICS_CODE_NAMES[i]);
                                histogram(out, NAME("grpc_server_request_duration_seconds"), labels,
                                          &m->grpc_duration[op][i]);
                        }
}

static void render_states(struct str *out, const struct core_stats *c)
{
        const ProtobufCEnumDescriptor *nodes = &pb__node_status__e__descriptor,
                                      *phases = &pb__phase__e__descriptor;
        family(out, NAME("nodes_status"), "gauge", "Nodes by status.");
        /* older records say so; berth's say Ready */
        gauge(out, NAME("nodes_status"), "status", "active", 0);
        gauge(out, NAME("nodes_status"), "status", "unknown", 0);
        for (int i = 1; i < (int)ARRAY_LEN(c->nodes_by_status); i++)
                if (protobuf_c_enum_descriptor_get_value(nodes, i))
                        gauge(out, NAME("nodes_status"), "status",
                              protobuf_c_enum_descriptor_get_value(nodes, i)->name,
                              c->nodes_by_status[i]);
        family(out, NAME("workloads_status"), "gauge", "Workloads by status.");
        for (int i = 1; i < (int)ARRAY_LEN(c->by_phase); i++) {
                const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(phases, i);
                if (v)
                        gauge(out, NAME("workloads_status"), "status",
                              i == PB__PHASE__E__Deleting ? "deleted" : v->name, c->by_phase[i]);
        }
        static const char *const desired[] = { "unknown", "running", "stopped", "deleted" };
        family(out, NAME("workloads_desired_state"), "gauge",
               "Workloads by what is wanted of them.");
        for (size_t i = 0; i < ARRAY_LEN(desired); i++)
                gauge(out, NAME("workloads_desired_state"), "desired_state", desired[i],
                      c->by_desired[i]);
}

void metrics_persys_render(struct metrics *m, const struct metrics_now *now, struct str *out)
{
        const struct core_stats *c = now->core;
        render_calls(out, m, now);
        family(out, NAME("reconciliation_results_total"), "counter",
               "Actions taken, and whether they came to their end.");
        for (size_t i = 0; i < METRICS_ACTIONS; i++)
                str_addf(
                    out,
                    NAME("reconciliation_results_total{action=\"%s\",success=\"true\"} %llu\n"),
                    METRICS_ACTION_NAMES[i], (unsigned long long)c->actions[i]);
        str_addf(out,
                 NAME("reconciliation_results_total{action=\"Apply\",success=\"false\"} %llu\n"),
                 (unsigned long long)c->failures);
        family(out, NAME("reconciliation_cycle_duration_seconds"), "histogram",
               "One turn in which something was decided or looked for.");
        histogram(out, NAME("reconciliation_cycle_duration_seconds"), "", &m->reconcile);
        family(out, NAME("reconciliation_cycles_total"), "counter",
               "Turns in which something was decided or looked for.");
        str_addf(out, NAME("reconciliation_cycles_total{result=\"success\"} %llu\n"),
                 (unsigned long long)total(&m->reconcile));
        str_addf(out, NAME("reconciliation_cycles_total{result=\"error\"} %llu\n"),
                 (unsigned long long)counted(&m->commit_failures));
        render_states(out, c);
        family(out, NAME("state_store_writes_total"), "counter",
               "What was written to the store, by what it says.");
        for (size_t i = 0; i < METRICS_WRITES; i++)
                str_addf(out, NAME("state_store_writes_total{category=\"%s\"} %llu\n"), WRITES[i],
                         (unsigned long long)counted(&m->writes[i]));
}
