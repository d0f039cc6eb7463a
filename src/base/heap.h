/* base/heap.h: deadlines. A binary heap of (time, id) with at most one entry per id, so that a
 * deadline can be moved.
 *
 * Equal times come out by id, so the order never depends on history. ids are small integers; the
 * heap keeps a position table.
 */
#ifndef BERTH_BASE_HEAP_H
#define BERTH_BASE_HEAP_H

#include "base/macros.h"

#define HEAP_NEVER INT64_MAX

struct heap_entry {
        int64_t at_ms;
        uint32_t id;
};
struct heap {
        struct heap_entry *entries;
        uint32_t len, cap;
        uint32_t *pos; /* id -> position + 1; 0: not in the heap */
        uint32_t pos_cap;
};

void heap_fini(struct heap *h);
void heap_set(struct heap *h, uint32_t id, int64_t at_ms); /* insert or move; HEAP_NEVER removes */
void heap_unset(struct heap *h, uint32_t id);              /* nothing if absent */
int64_t heap_get(const struct heap *h, uint32_t id);       /* HEAP_NEVER if absent */
int64_t heap_next_ms(const struct heap *h);                /* HEAP_NEVER if empty */
uint32_t heap_pop(struct heap *h);                         /* the earliest; not on an empty heap */

#endif
