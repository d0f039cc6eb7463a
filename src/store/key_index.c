/* store/key_index.c: open addressing with linear probing, at most two thirds full, so every probe
 * ends at an empty slot. */
#include "store/key_index.h"

#include "base/map.h"
#include "base/mem.h"
#include <string.h>

#define MIN_CAP 1024
#define DEAD (-1)

uint64_t key_hash(const char *key)
{
        return hash64(key, strlen(key));
}

void key_index_fini(struct key_index *x)
{
        mem_free(x->slots);
        *x = (struct key_index){ 0 };
}

static void place(struct key_index *x, uint64_t hash, int64_t id)
{
        size_t i = hash & (x->cap - 1);
        while (x->slots[i].id > 0)
                i = (i + 1) & (x->cap - 1);
        if (x->slots[i].id == DEAD)
                x->dead--;
        x->slots[i] = (struct key_slot){ hash, id };
        x->len++;
}

/* Also sweeps out dead slots, so a table that only ever replaces its keys does not grow. */
static void rebuild(struct key_index *x, size_t n)
{
        struct key_index old = *x;
        size_t cap = MIN_CAP;
        while (cap < (n + 1) * 2)
                cap *= 2;
        *x = (struct key_index){ .slots = mem_must(cap * sizeof(*x->slots)), .cap = cap };
        for (size_t i = 0; i < old.cap; i++)
                if (old.slots[i].id > 0)
                        place(x, old.slots[i].hash, old.slots[i].id);
        mem_free(old.slots);
}

void key_index_reserve(struct key_index *x, size_t n)
{
        if (n * 3 > x->cap * 2)
                rebuild(x, n);
}

void key_index_add(struct key_index *x, uint64_t hash, int64_t id)
{
        if ((x->len + x->dead + 1) * 3 > x->cap * 2)
                rebuild(x, x->len);
        place(x, hash, id);
}

void key_index_remove(struct key_index *x, uint64_t hash, int64_t id)
{
        if (x->cap == 0)
                return;
        for (size_t i = hash & (x->cap - 1); x->slots[i].id != 0; i = (i + 1) & (x->cap - 1)) {
                if (x->slots[i].id == id && x->slots[i].hash == hash) {
                        x->slots[i].id = DEAD;
                        x->len--;
                        x->dead++;
                        return;
                }
        }
}

int64_t key_index_next(const struct key_index *x, uint64_t hash, size_t *pos)
{
        if (x->cap == 0)
                return 0;
        for (; *pos < x->cap; (*pos)++) {
                const struct key_slot *slot = &x->slots[(hash + *pos) & (x->cap - 1)];
                if (slot->id == 0)
                        return 0;
                if (slot->id > 0 && slot->hash == hash) {
                        (*pos)++;
                        return slot->id;
                }
        }
        return 0;
}
