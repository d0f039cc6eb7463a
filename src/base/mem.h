/* base/mem.h: memory that cannot fail, memory that may.
 *
 * mem_must() is for state that cannot be given up half way (the core, containers): when malloc fails it takes from a reserve
 * set aside at start, and mem_low() turns true so that the server refuses new work until mem_refill() has succeeded. Only an
 * exhausted reserve ends the process, with a sentence. mem_try() is for what a caller makes large: it may return NULL.
 * mem_fail_at(n) makes the n-th allocation from now
 * fail, once, on whichever thread it is (tests). All of this is thread-safe, and works in a forked child.
 */
#ifndef BERTH_BASE_MEM_H
#define BERTH_BASE_MEM_H

#include "base/macros.h"

void *mem_must(size_t size);                 /* zeroed */
void *mem_must_resize(void *p, size_t size); /* new bytes are not zeroed */
void *mem_try(size_t size);                  /* zeroed, or NULL */
void *mem_try_bytes(size_t size);            /* not zeroed, or NULL */
char *mem_strdup(const char *s);             /* NULL gives NULL */
char *mem_strndup(const char *s, size_t n);
void *mem_dup(const void *p, size_t n);
void mem_free(void *p); /* takes what any of the above gave; NULL is fine */
bool mem_low(void);
bool mem_may_be_kept(
    const void *p);             /* for the next use, by whoever could free it: not while memory is low, and never what is of the reserve */
bool mem_refill(void);          /* true if the reserve is whole again: call it now and then while mem_low() */
void mem_fail_at(uint64_t nth); /* 0: never */

/* Objects of one size that come by the hundred and go by the hundred, as requests do: malloc() has a few of each size at hand, and works for the others. The one that was given last is
 * taken first. Not thread-safe. With the address sanitizer nothing is kept, so that it sees who uses what is gone. */
struct mem_pool {
        size_t size;
        unsigned max, n; /* kept at most, and now */
        void *first;
};
#ifdef WITH_ASAN
#define MEM_SPARE(n) 0
#else
#define MEM_SPARE(n) (n)
#endif
#define MEM_POOL(type, max_) ((struct mem_pool){ .size = sizeof(type), .max = MEM_SPARE(max_) })
void *mem_pool_take(struct mem_pool *p); /* zeroed, as by mem_must() */
void mem_pool_give(struct mem_pool *p, void *object);
void mem_pool_fini(struct mem_pool *p);

/* for _cleanup_(mem_freep) */
static inline void mem_freep(void *pp)
{
        mem_free(*(void **)pp);
}

#endif
