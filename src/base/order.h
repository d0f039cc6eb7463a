/* base/order.h: an ordered set of 32-bit indexes, by the bytes of their keys.
 *
 * For lists that go on where they stopped: the cursor is a key, so it means the same after a
 * restart and on another machine. The indexes lie in sorted blocks of up to ORDER_BLOCK; like
 * base/map.h, the keys are not copied but asked for through key_of. Adding and removing is a binary
 * search and a move within one block; adding in ascending order, as a load does, only appends.
 */
#ifndef BERTH_BASE_ORDER_H
#define BERTH_BASE_ORDER_H

#include "base/array.h"
#include "base/map.h"

#define ORDER_BLOCK 256

struct order_block {
        uint32_t len;
        uint32_t at[ORDER_BLOCK];
};
struct order {
        ARRAY(struct order_block *) blocks; /* none is empty */
        size_t len;
        struct map_key (*key_of)(const void *ctx, uint32_t index);
        const void *ctx;
};

/* Between two elements; valid until the set changes. */
struct order_place {
        size_t block;
        uint32_t at;
};

void order_init(struct order *o, struct map_key (*key_of)(const void *ctx, uint32_t index),
                const void *ctx);
void order_fini(struct order *o);
void order_add(struct order *o, uint32_t index); /* its key must be readable, and absent */
/* while its key is readable; nothing if absent */
void order_remove(struct order *o, uint32_t index);
/* Behind this key, whether or not it is there; an empty one: before the first element. */
struct order_place order_after(const struct order *o, const void *key, size_t len);
/* The element behind the place, which moves on; MAP_NONE: there is none. */
uint32_t order_next(const struct order *o, struct order_place *place);

#endif
