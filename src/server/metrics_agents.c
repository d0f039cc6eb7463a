/* server/metrics_agents.c: calls to agents, as operators of Persys clusters know them:
 * persys_scheduler_agent_rpc_*. */
#include "server/metrics.h"

static const char *const RPCS[METRICS_AGENT_RPCS] = { "ApplyWorkload",     "DeleteWorkload",
                                                      "GetWorkloadStatus", "ListWorkloads",
                                                      "HealthCheck",       "ListActions" };
/* as Go spells them: dashboards match on that */
static const char *const CODES[METRICS_GRPC_CODES] = {
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
};
#define NAME "persys_scheduler_agent_rpc"

void metrics_agents_init(struct metrics *m)
{
        for (size_t r = 0; r < METRICS_AGENT_RPCS; r++)
                for (size_t c = 0; c < METRICS_GRPC_CODES; c++)
                        histogram_init(&m->agent_rpc[r][c], METRICS_BOUNDS_IO);
}

void metrics_agent_rpc(struct metrics *m, size_t rpc, int code, int64_t ns)
{
        if (rpc < METRICS_AGENT_RPCS)
                histogram_add(&m->agent_rpc[rpc][code >= 0 && code < METRICS_GRPC_CODES ? code : 2],
                              ns);
}

static uint64_t total(const struct histogram *h)
{
        uint64_t n = 0;
        for (size_t i = 0; i <= METRICS_BUCKETS; i++)
                n += counted(&h->buckets[i]);
        return n;
}

static void duration(struct str *out, const struct histogram *h, const char *rpc, const char *code)
{
        uint64_t sum = 0;
        for (size_t i = 0; i < METRICS_BUCKETS; i++) {
                sum += counted(&h->buckets[i]);
                str_addf(out,
                         NAME "_duration_seconds_bucket{rpc=\"%s\",code=\"%s\",le=\"%g\"} %llu\n",
                         rpc, code, h->bounds[i], (unsigned long long)sum);
        }
        sum += counted(&h->buckets[METRICS_BUCKETS]);
        str_addf(out, NAME "_duration_seconds_bucket{rpc=\"%s\",code=\"%s\",le=\"+Inf\"} %llu\n",
                 rpc, code, (unsigned long long)sum);
        str_addf(out, NAME "_duration_seconds_sum{rpc=\"%s\",code=\"%s\"} %.9f\n", rpc, code,
                 (double)counted(&h->sum_ns) / 1e9);
        str_addf(out, NAME "_duration_seconds_count{rpc=\"%s\",code=\"%s\"} %llu\n", rpc, code,
                 (unsigned long long)sum);
}

/* Rows that were never hit are left out. */
void metrics_agents_render(const struct metrics *m, struct str *out)
{
        str_adds(out,
                 "# HELP " NAME "_requests_total Calls to agents by method and code.\n# TYPE " NAME
                 "_requests_total counter\n");
        for (size_t r = 0; r < METRICS_AGENT_RPCS; r++)
                for (size_t c = 0; c < METRICS_GRPC_CODES; c++)
                        if (total(&m->agent_rpc[r][c]) > 0)
                                str_addf(out, NAME "_requests_total{rpc=\"%s\",code=\"%s\"} %llu\n",
                                         RPCS[r], CODES[c],
                                         (unsigned long long)total(&m->agent_rpc[r][c]));
        str_adds(out,
                 "# HELP " NAME "_duration_seconds How long calls to agents took.\n# TYPE " NAME
                 "_duration_seconds histogram\n");
        for (size_t r = 0; r < METRICS_AGENT_RPCS; r++)
                for (size_t c = 0; c < METRICS_GRPC_CODES; c++)
                        if (total(&m->agent_rpc[r][c]) > 0)
                                duration(out, &m->agent_rpc[r][c], RPCS[r], CODES[c]);
}
