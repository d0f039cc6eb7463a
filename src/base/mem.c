/* base/mem.c: malloc with a reserve behind it.
 *
 * The reserve is a region of 256 chunks of 4 KiB. The first region is part of the program's image, so it is accounted for from
 * the start and cannot fail to be there. A block from the reserve is a run of whole chunks in one region. A block may be long-lived, and
 * blocks cannot move; so mem_refill() puts a fresh region in front and the old one is given back when its last block is freed.
 *
 * Invariants:
 *   (1) live_blocks counts the blocks that lie in any region. While it is 0 mem_free() takes no lock: a pointer that
 *       is being freed is live, so its own count is seen by whoever was handed the pointer.
 *   (2) run[c] is the length of the block that starts at chunk c, and 0 elsewhere; used has a bit for each chunk in a block.
 *   (3) Only regions[current] is taken from. Other regions only shrink, and leave when empty. When all places are taken, by blocks that
 *       stay, the region with the most room becomes current again.
 *   (4) regions[0] is the one in the program's image whenever it is there.
 */
#include "base/mem.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)4096)
#define CHUNKS 256
#define REGION_BYTES (CHUNK_BYTES * CHUNKS)
#define REGIONS_MAX 16
#define EXIT_NO_MEMORY 6 /* as ERR_NOMEM: try again */

struct region {
        char *base; /* NULL: this place is free */
        uint16_t run[CHUNKS];
        bool used[CHUNKS];
        uint32_t chunks_used;
};

static _Alignas(4096) char first_region[REGION_BYTES];
static struct region regions[REGIONS_MAX] = { { .base = first_region } };
static unsigned current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards regions and current */
static atomic_uint live_blocks;
static atomic_bool low;
static atomic_uint_least64_t fail_countdown;

/* A forked child (a plan) has one thread: the lock must not be held by one that is not there any more. */
static void fork_prepare(void)
{
        pthread_mutex_lock(&lock);
}

static void fork_done(void)
{
        pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
        pthread_atfork(fork_prepare, fork_done, fork_done);
}

/* Counts one allocation and says whether it is the one that must fail. */
static bool injected(void)
{
        uint_least64_t n = atomic_load_explicit(&fail_countdown, memory_order_relaxed);

        while (n > 0)
                if (atomic_compare_exchange_weak_explicit(&fail_countdown, &n, n - 1, memory_order_relaxed, memory_order_relaxed))
                        return n == 1;
        return false;
}

_noreturn_ static void give_up(size_t size)
{
        char text[192];
        int n = snprintf(text, sizeof(text),
                         "berth: out of memory: %zu bytes more are needed and the reserve of %zu KiB has no room for them\n", size,
                         REGION_BYTES / 1024);

        if (n > 0) {
                size_t len = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
                _unused_ ssize_t written = write(STDERR_FILENO, text, len);
        }
        _exit(EXIT_NO_MEMORY);
}

/* First fit, so that blocks crowd at the start and long runs stay at the end. */
static void *reserve_take(size_t size)
{
        size_t need = (size + CHUNK_BYTES - 1) / CHUNK_BYTES;
        void *block = NULL;

        atomic_store(&low, true);
        if (need > CHUNKS || size > REGION_BYTES)
                return NULL;
        pthread_mutex_lock(&lock);
        struct region *r = &regions[current];
        size_t free_run = 0;
        for (size_t c = 0; c < CHUNKS && !block; c++) {
                free_run = r->used[c] ? 0 : free_run + 1;
                if (free_run < need)
                        continue;
                size_t start = c + 1 - need;
                memset(&r->used[start], true, need);
                r->run[start] = (uint16_t)need;
                r->chunks_used += (uint32_t)need;
                block = r->base + start * CHUNK_BYTES;
                atomic_fetch_add(&live_blocks, 1);
        }
        pthread_mutex_unlock(&lock);
        return block;
}

/* The region that p lies in, or NULL. With the lock. */
static struct region *region_of(const void *p)
{
        for (unsigned i = 0; i < REGIONS_MAX; i++) {
                uintptr_t base = (uintptr_t)regions[i].base;
                if (base && (uintptr_t)p >= base && (uintptr_t)p < base + REGION_BYTES)
                        return &regions[i];
        }
        return NULL;
}

static void region_leave(struct region *r)
{
        if (r != &regions[0])
                munmap(r->base, REGION_BYTES);
        r->base = NULL;
}

/* Room in bytes of a block of the reserve; 0 if p is not one. */
static size_t reserve_room(const void *p)
{
        size_t room = 0;

        if (atomic_load(&live_blocks) == 0)
                return 0;
        pthread_mutex_lock(&lock);
        struct region *r = region_of(p);
        if (r)
                room = r->run[(size_t)((const char *)p - r->base) / CHUNK_BYTES] * CHUNK_BYTES;
        pthread_mutex_unlock(&lock);
        return room;
}

/* False if p does not come from the reserve. */
static bool reserve_give_back(void *p)
{
        if (atomic_load(&live_blocks) == 0)
                return false;
        pthread_mutex_lock(&lock);
        struct region *r = region_of(p);
        if (r) {
                size_t start = (size_t)((char *)p - r->base) / CHUNK_BYTES;
                size_t n = r->run[start];
                must(n > 0 && r->base + start * CHUNK_BYTES == (char *)p, "(2) only the start of a live block is freed");
                memset(&r->used[start], false, n);
                r->run[start] = 0;
                r->chunks_used -= (uint32_t)n;
                atomic_fetch_sub(&live_blocks, 1);
                if (r->chunks_used == 0 && r != &regions[current])
                        region_leave(r);
        }
        pthread_mutex_unlock(&lock);
        return r != NULL;
}

void *mem_must(size_t size)
{
        void *p = mem_try(size);

        if (p)
                return p;
        p = reserve_take(size ? size : 1);
        if (!p)
                give_up(size);
        return memset(p, 0, size ? size : 1);
}

void *mem_must_resize(void *p, size_t size)
{
        size_t want = size ? size : 1;
        size_t room = p ? reserve_room(p) : 0;

        if (room == 0) {
                void *q = want <= PTRDIFF_MAX && !injected() ? realloc(p, want) : NULL;
                if (q)
                        return q;
        } else if (want <= room) {
                return p;
        }
        /* Either the block lies in the reserve, or the heap could not make it larger in place or elsewhere. The room of
         * a heap block may be larger than what was asked for; the bytes beyond are copied too, which harms nobody. */
        size_t have = p ? (room ? room : malloc_usable_size(p)) : 0;
        void *q = room && want <= PTRDIFF_MAX && !injected() ? malloc(want) : NULL;
        if (!q)
                q = reserve_take(want);
        if (!q)
                give_up(size);
        if (p) {
                memcpy(q, p, have < want ? have : want);
                mem_free(p);
        }
        return q;
}

void *mem_try(size_t size)
{
        if (size > PTRDIFF_MAX || injected())
                return NULL;
        return calloc(1, size ? size : 1);
}

void *mem_try_bytes(size_t size)
{
        if (size > PTRDIFF_MAX || injected())
                return NULL;
        return malloc(size ? size : 1);
}

char *mem_strdup(const char *s)
{
        return s ? mem_dup(s, strlen(s) + 1) : NULL;
}

char *mem_strndup(const char *s, size_t n)
{
        if (!s)
                return NULL;
        size_t len = strnlen(s, n);
        char *copy = mem_must_resize(NULL, len + 1);
        memcpy(copy, s, len);
        copy[len] = '\0';
        return copy;
}

void *mem_dup(const void *p, size_t n)
{
        void *copy = mem_must_resize(NULL, n);

        if (n > 0)
                memcpy(copy, p, n);
        return copy;
}

void mem_free(void *p)
{
        if (p && !reserve_give_back(p))
                free(p);
}

bool mem_low(void)
{
        return atomic_load_explicit(&low, memory_order_relaxed);
}

bool mem_may_be_kept(const void *p)
{
        return !mem_low() && reserve_room(p) == 0;
}

/* The heap must be able to give a region's worth again: else the next allocation would only take from the reserve anew. */
static bool heap_has_room(void)
{
        if (injected())
                return false;
        void *volatile probe = malloc(REGION_BYTES);
        free(probe);
        return probe != NULL;
}

/* The region with the most room, if half of it is free: what to take from when there is no place for a fresh one. With the lock. */
static bool use_roomiest(void)
{
        unsigned best = current;

        for (unsigned i = 0; i < REGIONS_MAX; i++)
                if (regions[i].base && regions[i].chunks_used < regions[best].chunks_used)
                        best = i;
        if (regions[best].chunks_used > CHUNKS / 2)
                return false;
        current = best;
        return true;
}

bool mem_refill(void)
{
        bool whole;

        if (!mem_low())
                return true;
        if (!heap_has_room())
                return false;
        pthread_mutex_lock(&lock);
        whole = regions[current].chunks_used == 0;
        for (unsigned i = 0; i < REGIONS_MAX && !whole; i++) {
                if (regions[i].base)
                        continue;
                void *base = first_region;
                if (i > 0)
                        base = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (base == MAP_FAILED)
                        break;
                regions[i] = (struct region){ .base = base };
                current = i;
                whole = true;
        }
        whole = whole || use_roomiest();
        if (whole)
                atomic_store(&low, false);
        pthread_mutex_unlock(&lock);
        return whole;
}

void mem_fail_at(uint64_t nth)
{
        atomic_store(&fail_countdown, nth);
}

void *mem_pool_take(struct mem_pool *p)
{
        void *object = p->first;

        if (!object)
                return mem_must(p->size);
        memcpy(&p->first, object, sizeof(p->first));
        p->n--;
        return memset(object, 0, p->size);
}

void mem_pool_give(struct mem_pool *p, void *object)
{
        if (p->n >= p->max || !mem_may_be_kept(object)) {
                mem_free(object);
                if (mem_low())
                        mem_pool_fini(p);
                return;
        }
        memcpy(object, &p->first, sizeof(p->first));
        p->first = object;
        p->n++;
}

void mem_pool_fini(struct mem_pool *p)
{
        while (p->first) {
                void *object = p->first;
                memcpy(&p->first, object, sizeof(p->first));
                mem_free(object);
        }
        p->n = 0;
}
