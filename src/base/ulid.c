/* base/ulid.c: 128 bits in 26 letters of 5 bits; the first letter holds only 3 bits, so it is at most '7'. */
#include "base/ulid.h"

#define TIME_LETTERS 10

static const char letters[33] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/* 0..31, or -1 for what is not a letter of the alphabet. Upper case only: an id is a key, and has one spelling. */
static int letter_value(char c)
{
        for (int i = 0; i < 32; i++)
                if (letters[i] == c)
                        return i;
        return -1;
}

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

bool ulid_is_valid(const char *s)
{
        if (!s || s[0] < '0' || s[0] > '7')
                return false;
        for (int i = 1; i < ULID_LEN; i++)
                if (s[i] == '\0' || letter_value(s[i]) < 0)
                        return false;
        return s[ULID_LEN] == '\0';
}

int64_t ulid_time_ms(const char *s)
{
        int64_t ms = 0;

        for (int i = 0; i < TIME_LETTERS; i++)
                ms = ms << 5 | (letter_value(s[i]) & 31);
        return ms;
}
