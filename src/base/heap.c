/* base/heap.c: a binary heap with a position table, so that a deadline is moved or removed in O(log
 * n).
 *
 * Invariants:
 *   (1) No entry comes before its parent, in the order of (at_ms, id).
 *   (2) pos[entries[i].id] == i + 1 for every i < len, and pos is 0 for every other id.
 */
#include "base/heap.h"

#include "base/mem.h"

#include <string.h>

static bool before(struct heap_entry a, struct heap_entry b)
{
        return a.at_ms != b.at_ms ? a.at_ms < b.at_ms : a.id < b.id;
}

static void put_at(struct heap *h, uint32_t i, struct heap_entry e)
{
        h->entries[i] = e;
        h->pos[e.id] = i + 1;
}

/* Both move a hole to where e belongs, and put e there. */
static void sift_up(struct heap *h, uint32_t i, struct heap_entry e)
{
        while (i > 0) {
                uint32_t parent = (i - 1) / 2;
                if (!before(e, h->entries[parent]))
                        break;
                put_at(h, i, h->entries[parent]);
                i = parent;
        }
        put_at(h, i, e);
}

static void sift_down(struct heap *h, uint32_t i, struct heap_entry e)
{
        for (;;) {
                uint64_t child = 2 * (uint64_t)i + 1;
                if (child >= h->len)
                        break;
                if (child + 1 < h->len && before(h->entries[child + 1], h->entries[child]))
                        child++;
                if (!before(h->entries[child], e))
                        break;
                put_at(h, i, h->entries[child]);
                i = (uint32_t)child;
        }
        put_at(h, i, e);
}

static void place(struct heap *h, uint32_t i, struct heap_entry e)
{
        if (i > 0 && before(e, h->entries[(i - 1) / 2]))
                sift_up(h, i, e);
        else
                sift_down(h, i, e);
}

static void remove_at(struct heap *h, uint32_t i)
{
        h->pos[h->entries[i].id] = 0;
        h->len--;
        if (i < h->len)
                place(h, i, h->entries[h->len]);
}

static void reserve_id(struct heap *h, uint32_t id)
{
        if (id < h->pos_cap)
                return;
        uint64_t cap = h->pos_cap ? (uint64_t)h->pos_cap * 2 : 64;
        if (cap <= id)
                cap = (uint64_t)id + 1;
        if (cap > UINT32_MAX)
                cap = UINT32_MAX;
        h->pos = mem_must_resize(h->pos, cap * sizeof(*h->pos));
        memset(h->pos + h->pos_cap, 0, (cap - h->pos_cap) * sizeof(*h->pos));
        h->pos_cap = (uint32_t)cap;
}

void heap_fini(struct heap *h)
{
        mem_free(h->entries);
        mem_free(h->pos);
        *h = (struct heap){ 0 };
}

void heap_set(struct heap *h, uint32_t id, int64_t at_ms)
{
        struct heap_entry e = { .at_ms = at_ms, .id = id };

        must(id < UINT32_MAX, "an id is below UINT32_MAX");
        if (at_ms == HEAP_NEVER) {
                heap_unset(h, id);
                return;
        }
        reserve_id(h, id);
        if (h->pos[id] > 0) {
                place(h, h->pos[id] - 1, e);
                return;
        }
        if (h->len == h->cap) {
                uint64_t cap = h->cap ? (uint64_t)h->cap * 2 : 64;
                if (cap > UINT32_MAX)
                        cap = UINT32_MAX;
                h->entries = mem_must_resize(h->entries, cap * sizeof(*h->entries));
                h->cap = (uint32_t)cap;
        }
        h->len++;
        sift_up(h, h->len - 1, e);
}

void heap_unset(struct heap *h, uint32_t id)
{
        if (id < h->pos_cap && h->pos[id] > 0)
                remove_at(h, h->pos[id] - 1);
}

int64_t heap_get(const struct heap *h, uint32_t id)
{
        return id < h->pos_cap && h->pos[id] > 0 ? h->entries[h->pos[id] - 1].at_ms : HEAP_NEVER;
}

int64_t heap_next_ms(const struct heap *h)
{
        return h->len ? h->entries[0].at_ms : HEAP_NEVER;
}

uint32_t heap_pop(struct heap *h)
{
        must(h->len > 0, "only a heap that is not empty is popped");
        uint32_t id = h->entries[0].id;
        remove_at(h, 0);
        return id;
}
