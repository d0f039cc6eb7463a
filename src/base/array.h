/* base/array.h: a typed growable array.
 *
 *      ARRAY(struct effect) effects = { 0 };
 *      *array_push(&effects) = (struct effect){ ... };
 *      for (size_t i = 0; i < effects.len; i++) use(&effects.at[i]);
 *      array_fini(&effects);
 */
#ifndef BERTH_BASE_ARRAY_H
#define BERTH_BASE_ARRAY_H

#include "base/mem.h"

#define ARRAY(type)                                                                                \
        struct {                                                                                   \
                type *at;                                                                          \
                size_t len, cap;                                                                   \
        }

void array_grow_(void **at, size_t *cap, size_t need, size_t size);

#define array_reserve(a, n)                                                                        \
        do {                                                                                       \
                if ((size_t)(n) > (a)->cap)                                                        \
                        array_grow_((void **)&(a)->at, &(a)->cap, (size_t)(n), sizeof(*(a)->at));  \
        } while (0)
/* Pointer to a new element, zeroed. */
#define array_push(a)                                                                              \
        ({                                                                                         \
                array_reserve(a, (a)->len + 1);                                                    \
                __builtin_memset(&(a)->at[(a)->len], 0, sizeof(*(a)->at));                         \
                &(a)->at[(a)->len++];                                                              \
        })
#define array_pop(a) ((a)->at[--(a)->len])
#define array_clear(a) ((void)((a)->len = 0))
#define array_fini(a)                                                                              \
        do {                                                                                       \
                mem_free((a)->at);                                                                 \
                (a)->at = NULL;                                                                    \
                (a)->len = (a)->cap = 0;                                                           \
        } while (0)

#endif
