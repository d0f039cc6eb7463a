/* base/mem.h: memory that is always there.
 *
 * When the system has none left, the process ends with a sentence and exit status 6. It may end at any moment anyway (kill -9, a power cut, the kernel's
 * out-of-memory killer, which asks nobody), and nothing that was answered is lost then: docs/decisions/out-of-memory-ends-the-process.md. What a caller can make
 * large has a limit where it comes in. All of this is thread-safe, and works in a forked child.
 */
#ifndef BERTH_BASE_MEM_H
#define BERTH_BASE_MEM_H

#include "base/macros.h"

void *mem_must(size_t size);                 /* zeroed */
void *mem_must_resize(void *p, size_t size); /* new bytes are not zeroed */
void *mem_bytes(size_t size);                /* not zeroed */
char *mem_strdup(const char *s);             /* NULL gives NULL */
char *mem_strndup(const char *s, size_t n);
void *mem_dup(const void *p, size_t n);
void mem_free(void *p); /* takes what any of the above gave; NULL is fine */

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
