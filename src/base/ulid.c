/* base/ulid.c: 128 bits in 26 letters of 5 bits; the first letter holds only 3 bits, so it is at
 * most '7'. */
#include "base/ulid.h"

static const char letters[33] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

void ulid_make(char ret[ULID_LEN + 1], int64_t unix_ms, uint64_t random_hi16, uint64_t random_lo64)
{
        uint64_t time_ms = unix_ms < 0 ? 0 : (uint64_t)unix_ms & 0xFFFFFFFFFFFFu;
        uint64_t hi = time_ms << 16 | (random_hi16 & 0xFFFFu);
        uint64_t lo = random_lo64;

        for (int i = ULID_LEN - 1; i >= 0; i--) {
                ret[i] = letters[lo & 31];
                lo = lo >> 5 | hi << 59;
                hi >>= 5;
        }
        ret[ULID_LEN] = '\0';
}
