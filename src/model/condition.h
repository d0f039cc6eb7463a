/* model/condition.h: what an automation rule waits for, as people write it.
 *
 *      condition  = comparison { "and" comparison } [ "for" DURATION ]
 *      comparison = FIGURE OP VALUE                 all of one condition are about nodes, or all
 *      about workloads
 *      OP         = ">" | ">=" | "<" | "<=" | "==" | "!="
 *
 *      node.cpu, node.memory, node.disk             percent of its total that is in use, as the
 *      agent says: "node.cpu > 85% for 5m"
 *      node.cpu_reserved, ..._reserved              percent of its total that is promised to units
 *      node.status                                  Ready, NotReady, Draining, Disabled (== and !=
 *                                                   only): "node.status == NotReady for 10m"
 *      node.units                                   how many
 *      workload.failures                            since it was last healthy or changed:
 *                                                   "workload.failures >= 3"
 *      workload.restarts                            in all
 *      workload.phase                               Pending, Running, Failed, ... (== and != only)
 *      workload.pending                             how long it has waited for a node (> and >=
 *                                                   only): "workload.pending > 10m"
 *
 * Pure. Parsing makes no memory.
 */
#ifndef BERTH_MODEL_CONDITION_H
#define BERTH_MODEL_CONDITION_H

#include "base/err.h"

#define CONDITION_MAX_TERMS 4
#define CONDITION_MAX_BYTES 512

enum figure {
        FIGURE_NODE_CPU,
        FIGURE_NODE_MEMORY,
        FIGURE_NODE_DISK,
        FIGURE_NODE_CPU_RESERVED,
        FIGURE_NODE_MEMORY_RESERVED,
        FIGURE_NODE_DISK_RESERVED,
        FIGURE_NODE_STATUS,
        FIGURE_NODE_UNITS,
        FIGURE_WORKLOAD_FAILURES,
        FIGURE_WORKLOAD_RESTARTS,
        FIGURE_WORKLOAD_PHASE,
        FIGURE_WORKLOAD_PENDING,
        _FIGURE_MAX
};

enum compare { COMPARE_GT, COMPARE_GE, COMPARE_LT, COMPARE_LE, COMPARE_EQ, COMPARE_NE };

struct condition_term {
        enum figure figure;
        enum compare op;
        /* percent in thousandths; a count; the number of a status or phase; milliseconds */
        int64_t value;
};

struct condition {
        bool about_nodes; /* else about workloads */
        struct condition_term terms[CONDITION_MAX_TERMS];
        uint32_t n_terms;
        int64_t for_ms; /* how long it must hold */
};

/* ERR_INVALID says what was expected where. */
int condition_parse(const char *text, struct condition *ret, struct err *err);
bool condition_compare(enum compare op, int64_t a, int64_t b);
/* "node.cpu". */
const char *figure_name(enum figure f);

#endif
