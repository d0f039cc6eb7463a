/* base/ulid.h: ids that sort by time: 48 bits of milliseconds, 80 bits of randomness, 26 letters of
 * Crockford base 32. */
#ifndef BERTH_BASE_ULID_H
#define BERTH_BASE_ULID_H

#include "base/macros.h"

#define ULID_LEN 26
void ulid_make(char ret[ULID_LEN + 1], int64_t unix_ms, uint64_t random_hi16, uint64_t random_lo64);

#endif
