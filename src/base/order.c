/* base/order.c: see order.h. */
#include "base/order.h"
#include <string.h>

/* Neighbours that fit into half a block become one, so that blocks do not stay nearly empty. */
#define MERGE_BELOW (ORDER_BLOCK / 2)

void order_init(struct order *o, struct map_key (*key_of)(const void *ctx, uint32_t index),
                const void *ctx)
{
        *o = (struct order){ .key_of = key_of, .ctx = ctx };
}

void order_fini(struct order *o)
{
        for (size_t i = 0; i < o->blocks.len; i++)
                mem_free(o->blocks.at[i]);
        array_fini(&o->blocks);
        o->len = 0;
}

static int compare(struct map_key a, struct map_key b)
{
        int r = memcmp(a.data, b.data, a.len < b.len ? a.len : b.len);
        return r ? r : (a.len > b.len) - (a.len < b.len);
}

/* The first place whose element is greater than key. */
static struct order_place upper(const struct order *o, struct map_key key)
{
        size_t low = 0, high = o->blocks.len;
        while (low < high) { /* the first block that begins with a greater one */
                size_t middle = (low + high) / 2;
                if (compare(o->key_of(o->ctx, o->blocks.at[middle]->at[0]), key) <= 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        if (low == 0)
                return (struct order_place){ 0, 0 };
        const struct order_block *b = o->blocks.at[low - 1];
        uint32_t first = 1, last = b->len;
        while (first < last) {
                uint32_t middle = (first + last) / 2;
                if (compare(o->key_of(o->ctx, b->at[middle]), key) <= 0)
                        first = middle + 1;
                else
                        last = middle;
        }
        return (struct order_place){ low - 1, first };
}

static struct order_block *insert_block(struct order *o, size_t at)
{
        array_push(&o->blocks);
        memmove(o->blocks.at + at + 1, o->blocks.at + at,
                (o->blocks.len - 1 - at) * sizeof(*o->blocks.at));
        return o->blocks.at[at] = mem_must(sizeof(struct order_block));
}

static void drop_block(struct order *o, size_t at)
{
        mem_free(o->blocks.at[at]);
        o->blocks.len--;
        memmove(o->blocks.at + at, o->blocks.at + at + 1,
                (o->blocks.len - at) * sizeof(*o->blocks.at));
}

void order_add(struct order *o, uint32_t index)
{
        struct map_key key = o->key_of(o->ctx, index);
        struct order_place p = { 0, 0 };
        if (o->blocks.len) {
                size_t end = o->blocks.len - 1;
                const struct order_block *b = o->blocks.at[end];
                bool append = compare(o->key_of(o->ctx, b->at[b->len - 1]), key) < 0;
                p = append ? (struct order_place){ end, b->len } : upper(o, key);
        } else
                insert_block(o, 0);
        struct order_block *b = o->blocks.at[p.block];
        if (b->len == ORDER_BLOCK) {
                struct order_block *next = insert_block(o, p.block + 1);
                /* At the end nothing moves: ascending keys fill their blocks. */
                uint32_t keep = p.at == ORDER_BLOCK ? ORDER_BLOCK : ORDER_BLOCK / 2;
                next->len = ORDER_BLOCK - keep;
                memcpy(next->at, b->at + keep, next->len * sizeof(*b->at));
                b->len = keep;
                if (p.at > keep || keep == ORDER_BLOCK) {
                        p.at -= keep;
                        b = next;
                }
        }
        memmove(b->at + p.at + 1, b->at + p.at, (b->len - p.at) * sizeof(*b->at));
        b->at[p.at] = index;
        b->len++;
        o->len++;
}

static void merge(struct order *o, size_t first)
{
        if (first + 1 >= o->blocks.len)
                return;
        struct order_block *a = o->blocks.at[first], *b = o->blocks.at[first + 1];
        if (a->len + b->len > MERGE_BELOW)
                return;
        memcpy(a->at + a->len, b->at, b->len * sizeof(*b->at));
        a->len += b->len;
        drop_block(o, first + 1);
}

void order_remove(struct order *o, uint32_t index)
{
        if (!o->blocks.len)
                return;
        struct order_place p = upper(o, o->key_of(o->ctx, index));
        struct order_block *b = o->blocks.at[p.block];
        if (p.at == 0 || b->at[p.at - 1] != index)
                return;
        memmove(b->at + p.at - 1, b->at + p.at, (b->len - p.at) * sizeof(*b->at));
        b->len--;
        o->len--;
        if (b->len == 0) {
                drop_block(o, p.block);
                return;
        }
        merge(o, p.block);
        if (p.block > 0)
                merge(o, p.block - 1);
}

struct order_place order_after(const struct order *o, const void *key, size_t len)
{
        return len && o->blocks.len ? upper(o, (struct map_key){ key, len })
                                    : (struct order_place){ 0, 0 };
}

uint32_t order_next(const struct order *o, struct order_place *p)
{
        if (p->block < o->blocks.len && p->at >= o->blocks.at[p->block]->len) {
                p->block++;
                p->at = 0;
        }
        return p->block < o->blocks.len ? o->blocks.at[p->block]->at[p->at++] : MAP_NONE;
}
