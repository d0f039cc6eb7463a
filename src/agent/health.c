/* agent/health.c: see health.h. */
#include "agent/health.h"

void health_init(struct health *h, const Pb__Health *spec, int64_t started_ms, int64_t now_ms)
{
        int64_t first;

        *h = (struct health){ .interval_ms =
                                  (int64_t)(spec->interval_seconds > 0 ? spec->interval_seconds
                                                                       : HEALTH_INTERVAL_SECONDS) *
                                  1000,
                              .timeout_ms =
                                  (int64_t)(spec->timeout_seconds > 0 ? spec->timeout_seconds
                                                                      : HEALTH_TIMEOUT_SECONDS) *
                                  1000,
                              .failures_max = spec->failures > 0 ? spec->failures : HEALTH_FAILURES,
                              .counts_from_ms = started_ms + (int64_t)spec->start_seconds * 1000 };
        first = h->interval_ms < HEALTH_FIRST_MS ? h->interval_ms : HEALTH_FIRST_MS;
        h->next_ms = now_ms + first;
}

int64_t health_next_ms(const struct health *h)
{
        return h->checking || h->state == HEALTH_UNHEALTHY ? INT64_MAX : h->next_ms;
}

bool health_begin(struct health *h, int64_t now_ms)
{
        if (now_ms < health_next_ms(h))
                return false;
        h->checking = true;
        h->began_ms = now_ms;
        return true;
}

bool health_result(struct health *h, bool ok, int64_t now_ms)
{
        enum health_state before = h->state;

        if (!h->checking)
                return false;
        h->checking = false;
        h->next_ms = h->began_ms + h->interval_ms;
        if (h->next_ms < now_ms)
                h->next_ms = now_ms;
        if (ok) {
                h->failures = 0;
                h->state = HEALTH_HEALTHY;
                if (h->counts_from_ms > now_ms)
                        h->counts_from_ms = now_ms; /* (3) */
        } else if (now_ms >= h->counts_from_ms && ++h->failures >= h->failures_max)
                h->state = HEALTH_UNHEALTHY;
        return h->state != before;
}
