/* base/arena.h: memory for one step or one request, freed all at once. Not thread-safe. */
#ifndef BERTH_BASE_ARENA_H
#define BERTH_BASE_ARENA_H

#include "base/macros.h"
#include <stdarg.h>

struct arena_block;
struct arena {
        struct arena_block *head;
};

#define ARENA_INIT ((struct arena){ 0 })

void *arena_alloc(struct arena *a, size_t size); /* zeroed, 16-byte aligned, never NULL */
/* the same, not zeroed: for whoever fills all of it */
void *arena_bytes(struct arena *a, size_t size);
char *arena_strdup(struct arena *a, const char *s); /* NULL gives NULL */
char *arena_strndup(struct arena *a, const char *s, size_t n);
void *arena_dup(struct arena *a, const void *p, size_t n);
char *arena_printf(struct arena *a, const char *format, ...) _printf_(2, 3);
#define arena_new(a, type) ((type *)arena_alloc((a), sizeof(type)))
/* n elements; an overflow ends the process */
void *arena_alloc_n(struct arena *a, size_t size, size_t n);
#define arena_new_n(a, type, n) ((type *)arena_alloc_n((a), sizeof(type), (size_t)(n)))
void arena_reset(struct arena *a); /* keeps one block of at most 64 KiB for the next round */
void arena_fini(struct arena *a);

/* A protobuf-c allocator (struct ProtobufCAllocator) over an arena: unpacked messages live as long
 * as the arena and are not freed one by one. Declared with void * so that base/ needs no protobuf
 * header: cast to ProtobufCAllocator *. */
struct arena_allocator {
        void *(*alloc)(void *data, size_t size);
        void (*free)(void *data, void *pointer);
        void *data;
};
struct arena_allocator arena_allocator(struct arena *a);

#endif
