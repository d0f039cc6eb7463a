/* agent/health.h: when a unit's health is checked, and what follows from the answers. Pure: no
 * clock, no I/O; whoever drives it says what time it is.
 *
 * Rules:
 *   (1) One check at a time; the next begins interval after the last one began, and not before that
 *       one has ended.
 *   (2) The first one begins HEALTH_FIRST_MS after the start (sooner if the interval is shorter).
 *   (3) Failures within start_seconds of the start do not count, until the first success: then the
 *       start is over.
 *   (4) One success makes it healthy; `failures` in a row make it unhealthy, and that is final: the
 *       unit is to be replaced.
 */
#ifndef BERTH_AGENT_HEALTH_H
#define BERTH_AGENT_HEALTH_H

#include "base/macros.h"
#include "records.pb-c.h"

#define HEALTH_FIRST_MS 1000
#define HEALTH_INTERVAL_SECONDS 10
#define HEALTH_TIMEOUT_SECONDS 2
#define HEALTH_FAILURES 3

enum health_state { HEALTH_UNKNOWN, HEALTH_HEALTHY, HEALTH_UNHEALTHY };

struct health {
        int64_t interval_ms, timeout_ms, counts_from_ms, next_ms, began_ms;
        int32_t failures, failures_max;
        bool checking;
        enum health_state state;
};

/* Defaults are filled in. started_ms: of the unit. */
void health_init(struct health *h, const Pb__Health *spec, int64_t started_ms, int64_t now_ms);
/* When health_begin() is due; INT64_MAX while a check is under way, and when it is unhealthy. */
int64_t health_next_ms(const struct health *h);
/* True: begin a check now, it has until now_ms + h->timeout_ms. */
bool health_begin(struct health *h, int64_t now_ms);
/* A check has ended. True: the state has changed. */
bool health_result(struct health *h, bool ok, int64_t now_ms);

#endif
