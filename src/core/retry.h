/* core/retry.h: when a failed unit is tried again (C28).
 *
 * The schedule is 5, 10, 20, 40, 80, 120, 120... seconds by default; base and cap are the workload's own.
 * Invariants:
 *   (R1) attempts never exceeds max_attempts.
 *   (R2) next_retry_at is set exactly while the phase is RetryPending.
 */
#ifndef BERTH_CORE_RETRY_H
#define BERTH_CORE_RETRY_H

#include "base/macros.h"

#define RETRY_MAX_ATTEMPTS 5
#define RETRY_BASE_SECONDS 5
#define RETRY_CAP_SECONDS 120

/* How long to wait after this many failures (>= 1). */
int64_t retry_backoff_ms(int32_t base_seconds, int32_t cap_seconds, int32_t attempts);
/* Does this failure, the attempts-th, end it? */
bool retry_is_over(int32_t attempts, int32_t max_attempts);

#endif
