/* core/retry.c: see retry.h. */
#include "core/retry.h"
#include "base/err.h"
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

bool retry_is_at_cap(int32_t base_seconds, int32_t cap_seconds, int32_t attempts)
{
        return attempts > 0 && retry_backoff_ms(base_seconds, cap_seconds, attempts) ==
                                   retry_backoff_ms(base_seconds, cap_seconds, INT32_MAX);
}

int32_t retry_limit(int32_t named, bool service)
{
        return named > 0 ? named : service ? RETRY_UNLIMITED : RETRY_MAX_ATTEMPTS;
}

bool retry_is_over(int32_t attempts, int32_t limit)
{
        return attempts >= limit;
}

const char *retry_words(int32_t attempts, int32_t limit)
{
        return limit == RETRY_UNLIMITED ? fmt("attempt %d", attempts)
                                        : fmt("attempt %d of %d", attempts, limit);
}
