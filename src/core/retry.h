/* core/retry.h: when a failed unit is tried again (C28).
 *
 * The schedule is 5, 10, 20, 40, 80, 120, 120... seconds by default; base and cap are the
 * workload's own. A job, and whoever names a maximum, is Failed when that many attempts have
 * failed. A service that names none is tried for ever: one event (WorkloadKeepsFailing) tells when
 * the fifth attempt has failed, and at the cap each attempt writes two events, its launch and its
 * failure. Invariants:
 *   (R1) attempts never exceeds the limit.
 *   (R2) next_retry_at is set exactly while the phase is RetryPending.
 */
#ifndef BERTH_CORE_RETRY_H
#define BERTH_CORE_RETRY_H

#include "base/macros.h"

#define RETRY_MAX_ATTEMPTS 5
#define RETRY_BASE_SECONDS 5
#define RETRY_CAP_SECONDS 120
#define RETRY_UNLIMITED INT32_MAX
#define RETRY_ALERT_ATTEMPTS 5
/* at the cap: what came up counts as started when it has lasted this long */
#define RETRY_STEADY_MS 30000

/* How long to wait after this many failures (>= 1). */
int64_t retry_backoff_ms(int32_t base_seconds, int32_t cap_seconds, int32_t attempts);
/* Is that as long as it ever gets? */
bool retry_is_at_cap(int32_t base_seconds, int32_t cap_seconds, int32_t attempts);
/* How many attempts may fail. named: 0 if no maximum was. */
int32_t retry_limit(int32_t named, bool service);
/* Does this failure, the attempts-th, end it? */
bool retry_is_over(int32_t attempts, int32_t limit);
/* "attempt 3 of 5"; without a limit: "attempt 3". Rotating buffer of fmt(). */
const char *retry_words(int32_t attempts, int32_t limit);

#endif
