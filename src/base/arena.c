/* base/arena.c: blocks in a list, each used from front to back.
 *
 * head is the block that small requests are taken from; a request that is larger than a block gets
 * one of its own behind head, so that it does not waste what is left in head. In AddressSanitizer
 * builds the unused parts are poisoned: a use after arena_reset(), or beyond the end of an
 * allocation, is reported like one on the heap.
 */
#include "base/arena.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#define poison(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define unpoison(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define poison(p, n) ((void)0)
#define unpoison(p, n) ((void)0)
#endif

#define ALIGN ((size_t)16)
#define FIRST_BLOCK_BYTES ((size_t)4096)
/* the largest block that a reset keeps, and the usual one when much is needed */
#define KEEP_BYTES ((size_t)64 * 1024)

struct arena_block {
        struct arena_block *next;
        size_t size, used; /* of data */
        _Alignas(16) char data[];
};

#define USUAL_BYTES (KEEP_BYTES - sizeof(struct arena_block)) /* of data */

static struct arena_block *block_create(size_t size)
{
        struct arena_block *b = mem_bytes(sizeof(*b) + size);

        b->next = NULL;
        b->size = size;
        b->used = 0;
        poison(b->data, size);
        return b;
}

static void block_destroy(struct arena_block *b)
{
        unpoison(b->data, b->size);
        mem_free(b);
}

/* A block with room for size bytes: the head, or a new one that becomes the head unless it is for
 * this request alone. */
static struct arena_block *block_for(struct arena *a, size_t size)
{
        struct arena_block *head = a->head;

        if (head && size <= head->size - head->used)
                return head;
        if (size > USUAL_BYTES) {
                struct arena_block *own = block_create(size);
                if (head) {
                        own->next = head->next;
                        head->next = own;
                } else {
                        a->head = own;
                }
                return own;
        }
        size_t usual = head ? head->size * 2 : FIRST_BLOCK_BYTES - sizeof(struct arena_block);
        if (usual < size)
                usual = size;
        if (usual > USUAL_BYTES)
                usual = USUAL_BYTES;
        struct arena_block *b = block_create(usual);
        b->next = head;
        a->head = b;
        return b;
}

void *arena_bytes(struct arena *a, size_t size)
{
        must(size <= PTRDIFF_MAX - 2 * KEEP_BYTES, "an allocation fits into the address space");
        size_t rounded = (size ? size + ALIGN - 1 : ALIGN) & ~(ALIGN - 1);
        struct arena_block *b = block_for(a, rounded);
        void *p = b->data + b->used;

        unpoison(p, size);
        b->used += rounded;
        return p;
}

void *arena_alloc(struct arena *a, size_t size)
{
        return memset(arena_bytes(a, size), 0, size);
}

void *arena_alloc_n(struct arena *a, size_t size, size_t n)
{
        size_t bytes;

        must(!__builtin_mul_overflow(size, n, &bytes), "an allocation fits into the address space");
        return arena_alloc(a, bytes);
}

char *arena_strdup(struct arena *a, const char *s)
{
        return s ? arena_dup(a, s, strlen(s) + 1) : NULL;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
        if (!s)
                return NULL;
        size_t len = strnlen(s, n);
        char *copy = arena_bytes(a, len + 1);
        memcpy(copy, s, len);
        copy[len] = 0;
        return copy;
}

void *arena_dup(struct arena *a, const void *p, size_t n)
{
        void *copy = arena_bytes(a, n);

        if (n > 0)
                memcpy(copy, p, n);
        return copy;
}

char *arena_printf(struct arena *a, const char *format, ...)
{
        char first[256];
        va_list ap;

        va_start(ap, format);
        int n = vsnprintf(first, sizeof(first), format, ap);
        va_end(ap);
        must(n >= 0, "a format can be printed");
        if ((size_t)n < sizeof(first))
                return arena_dup(a, first, (size_t)n + 1);
        char *text = arena_alloc(a, (size_t)n + 1);
        va_start(ap, format);
        vsnprintf(text, (size_t)n + 1, format, ap);
        va_end(ap);
        return text;
}

void arena_reset(struct arena *a)
{
        struct arena_block *keep = NULL;

        for (struct arena_block *b = a->head, *next; b; b = next) {
                next = b->next;
                if (b->size + sizeof(*b) <= KEEP_BYTES && (!keep || b->size >= keep->size)) {
                        if (keep)
                                block_destroy(keep);
                        keep = b;
                } else {
                        block_destroy(b);
                }
        }
        if (keep) {
                keep->next = NULL;
                keep->used = 0;
                poison(keep->data, keep->size);
        }
        a->head = keep;
}

void arena_fini(struct arena *a)
{
        for (struct arena_block *b = a->head, *next; b; b = next) {
                next = b->next;
                block_destroy(b);
        }
        *a = ARENA_INIT;
}

/* protobuf-c fills what it asks for, as it must with malloc. */
static void *allocator_alloc(void *data, size_t size)
{
        return arena_bytes(data, size);
}

static void allocator_free(void *data _unused_, void *pointer _unused_) {}

struct arena_allocator arena_allocator(struct arena *a)
{
        return (
            struct arena_allocator){ .alloc = allocator_alloc, .free = allocator_free, .data = a };
}
