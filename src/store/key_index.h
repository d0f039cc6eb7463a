/* store/key_index.h: which row of the records table holds which key.
 *
 * A hash table in memory from the 64-bit hash of a key to a row id, 16 bytes per slot and no copy
 * of the key. Two keys may share a hash (rarely): the caller walks all rows of a hash and asks the
 * row itself, so a collision costs a look and never a wrong answer.
 */
#ifndef BERTH_STORE_KEY_INDEX_H
#define BERTH_STORE_KEY_INDEX_H

#include "base/macros.h"

struct key_slot {
        uint64_t hash;
        int64_t id; /* > 0; 0: never used, -1: was used */
};
struct key_index {
        struct key_slot *slots;
        size_t cap, len, dead; /* cap: a power of two, or 0 */
};

uint64_t key_hash(const char *key);
void key_index_fini(struct key_index *x); /* also empties */
void key_index_reserve(struct key_index *x, size_t n);
void key_index_add(struct key_index *x, uint64_t hash, int64_t id);
void key_index_remove(struct key_index *x, uint64_t hash, int64_t id);
/* The next row id with this hash, 0 if there is no more. *pos is 0 at the start. The index must not
 * change in between. */
int64_t key_index_next(const struct key_index *x, uint64_t hash, size_t *pos);

#endif
