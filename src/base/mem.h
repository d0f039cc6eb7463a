/* base/mem.h: memory that is always there.
 *
 * When the system has none left, the process ends with a sentence and exit status 6. It may end at
 * any moment anyway (kill -9, a power cut, the kernel's out-of-memory killer, which asks nobody),
 * and nothing that was answered is lost then: docs/decisions/out-of-memory-ends-the-process.md.
 * What a caller can make large has a limit where it comes in. All of this is thread-safe, and works
 * in a forked child.
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
/* For a library that found none and says so; who: which one, or NULL; size: 0 if it does not
 * say. */
_noreturn_ void mem_give_up(const char *who, size_t size);
void mem_free(void *p); /* takes what any of the above gave; NULL is fine */

/* for _cleanup_(mem_freep) */
static inline void mem_freep(void *pp)
{
        mem_free(*(void **)pp);
}

#endif
