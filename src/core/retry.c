/* core/retry.c: see retry.h. */
#include "core/retry.h"
#include "base/mutant.h"

int64_t retry_backoff_ms(int32_t base_seconds, int32_t cap_seconds, int32_t attempts)
{
        int64_t base = base_seconds > 0 ? base_seconds : RETRY_BASE_SECONDS;
        int64_t cap = cap_seconds > 0 ? cap_seconds : RETRY_CAP_SECONDS;
        int64_t wait = base;
        for (int32_t i = 1; i < attempts && wait < cap; i++)
                wait *= 2;
        return (wait < cap ? wait : cap) * (MUTANT(backoff_forgotten) ? 1 : 1000);
}

bool retry_is_over(int32_t attempts, int32_t max_attempts)
{
        return attempts >= (max_attempts > 0 ? max_attempts : RETRY_MAX_ATTEMPTS);
}
