/* base/clock.h: where time and randomness come from. Code asks a source that it was given, never
 * the system, so that the simulator can be that source.
 *
 * The system clock here is Unix milliseconds that never go back: it is anchored at the wall clock
 * when created, advances with the monotonic clock, and follows later corrections of the wall clock
 * by at most 1 % of the time that passed (forward jumps) or by standing slower (backward jumps), so
 * that an NTP step never makes a thousand nodes look silent at once.
 */
#ifndef BERTH_BASE_CLOCK_H
#define BERTH_BASE_CLOCK_H

#include "base/macros.h"

struct clock {
        int64_t (*now_ms)(struct clock *c);
        /* when the wall clock was last looked at: our time and the monotonic one */
        int64_t anchor_wall_ms, anchor_mono_ms;
        /* what was last said; how far the wall clock is still ahead of us */
        int64_t last_ms, offset_ms;
};
void clock_init_system(struct clock *c); /* for one thread, like every clock */
/* The two halves of it as pure functions: anchored at these readings, and the time at later ones
 * (mono_ms never smaller). */
void clock_init_at(struct clock *c, int64_t wall_ms, int64_t mono_ms);
int64_t clock_follow(struct clock *c, int64_t wall_ms, int64_t mono_ms);
static inline int64_t clock_now_ms(struct clock *c)
{
        return c->now_ms(c);
}
int64_t clock_wall_ms(void); /* raw, for timestamps in logs */
int64_t clock_mono_ns(void); /* raw, for measuring */
/* Neither jumps nor is slewed by more than the kernel may, and goes on while the machine is
 * suspended: for leases. */
int64_t clock_steady_ns(void);
static inline int64_t clock_steady_ms(void)
{
        return clock_steady_ns() / 1000000;
}

/* xoshiro256** seeded by splitmix64: fast, deterministic, not for secrets. */
struct rng {
        uint64_t s[4];
};
void rng_seed(struct rng *r, uint64_t seed);
void rng_seed_system(struct rng *r); /* from getrandom */
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n); /* 0..n-1, unbiased; n > 0 */
bool rng_chance(struct rng *r, uint32_t per_million);
void random_bytes(void *buf, size_t len); /* getrandom: for secrets */

#define TIME_TEXT_LEN 32
/* "2026-02-17T00:00:00.123Z" (no fraction when the milliseconds are 0); what is outside of years 1
 * to 9999 is shown as their ends */
const char *time_format(char buf[TIME_TEXT_LEN], int64_t unix_ms);
char *time_put(char buf[TIME_TEXT_LEN], int64_t unix_ms); /* the same; where its NUL is */
/* RFC 3339 with any offset, 0 to 9 decimals (cut to milliseconds), years 1 to 9999; 0 or -1 */
int time_parse(const char *s, size_t len, int64_t *ret_unix_ms);

#endif
