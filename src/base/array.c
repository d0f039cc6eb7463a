/* base/array.c: growing by doubling, so that n pushes cost n moves at most twice over. */
#include "base/array.h"

#define ARRAY_FIRST_CAP 8

void array_grow_(void **at, size_t *cap, size_t need, size_t size)
{
        size_t new_cap = *cap ? *cap : ARRAY_FIRST_CAP;
        size_t bytes;

        if (need <= *cap)
                return;
        if (*cap && __builtin_mul_overflow(*cap, (size_t)2, &new_cap))
                new_cap = need;
        if (new_cap < need)
                new_cap = need;
        must(!__builtin_mul_overflow(new_cap, size, &bytes),
             "an array fits into the address space");
        *at = mem_must_resize(*at, bytes);
        *cap = new_cap;
}
