/* core/tally.c: see tally.h. */
#include "core/tally.h"
#include "base/mem.h"

void tally_fini(struct tally *t)
{
        mem_free(t->slots);
        *t = (struct tally){ 0 };
}

static uint32_t home(const struct tally *t, uint32_t key)
{
        return (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (t->cap - 1);
}

/* Where the key is, or where it would go. */
static uint32_t slot_of(const struct tally *t, uint32_t key)
{
        uint32_t i = home(t, key);
        while (t->slots[i].count && t->slots[i].key != key)
                i = (i + 1) & (t->cap - 1);
        return i;
}

uint32_t tally_get(const struct tally *t, uint32_t key)
{
        return t->len ? t->slots[slot_of(t, key)].count : 0;
}

static void grow(struct tally *t)
{
        struct tally old = *t;
        t->cap = old.cap ? old.cap * 2 : 4;
        t->slots = mem_must(t->cap * sizeof(*t->slots));
        for (uint32_t i = 0; i < old.cap; i++)
                if (old.slots[i].count)
                        t->slots[slot_of(t, old.slots[i].key)] = old.slots[i];
        mem_free(old.slots);
}

/* Whatever stands behind the gap and would not be found any more moves into it. */
static void close_gap(struct tally *t, uint32_t gap)
{
        for (uint32_t i = (gap + 1) & (t->cap - 1); t->slots[i].count; i = (i + 1) & (t->cap - 1)) {
                uint32_t want = home(t, t->slots[i].key);
                if (((i - want) & (t->cap - 1)) < ((i - gap) & (t->cap - 1)))
                        continue; /* its home lies behind the gap */
                t->slots[gap] = t->slots[i];
                gap = i;
        }
        t->slots[gap] = (struct tally_slot){ 0 };
}

uint32_t tally_add(struct tally *t, uint32_t key, int by)
{
        if ((t->len + 1) * 4 > t->cap * 3)
                grow(t);
        uint32_t i = slot_of(t, key);
        must(by > 0 || t->slots[i].count, "P5: what is uncounted was counted");
        t->len += t->slots[i].count == 0;
        t->slots[i].key = key;
        t->slots[i].count += (uint32_t)by;
        t->total += (uint64_t)by;
        uint32_t count = t->slots[i].count;
        if (!count) {
                t->len--;
                close_gap(t, i);
        }
        return count;
}
