/* agent/runtimes/mock.h: a runtime that runs nothing, for tests and for load: seeded delays and
 * failures, thousands of nodes in one process.
 *
 * It takes every type of unit. What a unit does follows from the seed, its id and its token, so two
 * runs with the same plan behave alike. Nothing is written to disk: a mock agent that ends has
 * forgotten its units, as a machine that was lost would.
 */
#ifndef BERTH_AGENT_MOCK_H
#define BERTH_AGENT_MOCK_H

#include "agent/runtime.h"

struct mock_options {
        uint64_t seed;
        int64_t start_min_ms, start_max_ms; /* 20..200: from order to running */
        int64_t stop_min_ms, stop_max_ms;   /* 5..50 */
        uint32_t start_fail_per_million;    /* 0 */
        /* 0: of the units that run, this share fails after a job's duration */
        uint32_t crash_per_million;
        /* 500..5000: how long a unit with restart never or on-failure runs before it exits 0 */
        int64_t job_min_ms, job_max_ms;
        /* of the node: the base of the usage figures that change with every call */
        int64_t cpu_total, memory_total_mb;
};
void mock_options_default(struct mock_options *opt);

#endif
