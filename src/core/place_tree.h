/* core/place_tree.h: the least utilised node that fits, without looking at all of them.
 *
 * A tree with 16 children per branch over the node columns. Each branch keeps, of everything below
 * it, the smallest key and the largest free cpu, memory and disk, and the union of types and
 * labels. A search goes to the child with the smallest key first and skips every branch that cannot
 * hold a fit or a smaller key; so it ends with the exact minimum (P2), after a few hundred
 * comparisons at 100,000 nodes. A branch may look as if it held a fit when it does not (one node
 * has the cpu, another the memory); that costs time, never correctness.
 *
 * Level 0 is the columns themselves; level l + 1 has one row per 16 rows of level l.
 *
 * For those who want the fullest node instead (binpack) there is a second key, `pack`; it is kept
 * only once somebody has asked for it. Whoever has constraints that columns cannot say looks at
 * each row that is left with a function of his own, which may also add to its cost, never take
 * away: then the key is still a lower bound, and the search still exact.
 */
#ifndef BERTH_CORE_PLACE_TREE_H
#define BERTH_CORE_PLACE_TREE_H

#include "core/ledger.h"

#define TREE_FANOUT 16
#define TREE_LEVELS_MAX 7

struct columns {
        int64_t *key; /* utilisation << 32 | rank */
        int64_t *cpu, *mem, *disk;
        /* what is missing to full << 32 | rank; valid if the tree is mirrored */
        int64_t *pack;
        uint64_t *labels, *types; /* no types: takes nothing */
        /* cap is a multiple of TREE_FANOUT; rows beyond len are neutral */
        uint32_t len, cap;
};

struct place_tree {
        struct columns level[TREE_LEVELS_MAX]; /* [0]: the nodes */
        uint32_t levels;                       /* in use, at least 1 */
        bool mirrored;                         /* pack is kept */
};

struct place_need {
        struct amounts amounts;
        uint64_t type, labels;
        uint64_t masks[4]; /* of which it must have at least one label each */
        uint32_t n_masks;
};

void place_tree_fini(struct place_tree *t);
/* Makes room for this many nodes; new rows take nothing. */
void place_tree_reserve(struct place_tree *t, uint32_t nodes);
/* Row `at` of level 0 has changed: the branches above it follow. */
void place_tree_update(struct place_tree *t, uint32_t at);
/* The smallest key among the rows that fit; INT64_MAX: none does. */
int64_t place_tree_find(const struct place_tree *t, const struct place_need *need);

/* How many rows fit; looks at each. */
uint32_t place_tree_count(const struct place_tree *t, const struct place_need *need);

/* From now on `pack` is kept as well. */
void place_tree_mirror(struct place_tree *t);
static inline int64_t mirrored_key(int64_t key)
{
        return (int64_t)((uint64_t)(INT32_MAX - (key >> 32)) << 32 | (uint32_t)key);
}
/* Looks at a row that fits, as far as the columns know. Returns the bound from now on: rows with a
 * key that is not smaller cannot be better. */
typedef int64_t place_look_fn(void *ctx, uint32_t row, int64_t key);
/* Goes to all rows that fit and may be better, those with the smallest key first. packed: by pack
 * instead of key. */
void place_tree_search(const struct place_tree *t, const struct place_need *need, bool packed,
                       place_look_fn *look, void *ctx);

#endif
