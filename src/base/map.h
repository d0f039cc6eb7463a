/* base/map.h: hash map from bytes to a 32-bit index.
 *
 * Open addressing over 64-bit hashes; the keys are not copied: the map asks the caller for the key
 * of an index through key_of, so a table of objects pays 8 bytes per slot and nothing per key. The
 * order of iteration must never decide anything.
 */
#ifndef BERTH_BASE_MAP_H
#define BERTH_BASE_MAP_H

#include "base/macros.h"

#define MAP_NONE UINT32_MAX

struct map_key {
        const void *data;
        size_t len;
};
struct map_slot {
        uint32_t hash, index;
};
struct map {
        struct map_slot *slots;
        uint32_t cap, len;
        struct map_key (*key_of)(const void *ctx, uint32_t index);
        const void *ctx;
};

void map_init(struct map *m, struct map_key (*key_of)(const void *ctx, uint32_t index),
              const void *ctx);
void map_fini(struct map *m);
void map_clear(struct map *m);
uint32_t map_get(const struct map *m, const void *key, size_t len); /* MAP_NONE if absent */
/* The key of index must be readable through key_of, and absent. */
void map_put(struct map *m, uint32_t index);
/* While the key of index is still readable. Nothing if it is absent. */
void map_remove(struct map *m, uint32_t index);
static inline uint32_t map_len(const struct map *m)
{
        return m->len;
}

/* 64-bit hash, the same on every machine and in every run. */
uint64_t hash64(const void *data, size_t len);
uint64_t hash64_mix(uint64_t a, uint64_t b); /* of two hashes or numbers, in this order */

#endif
