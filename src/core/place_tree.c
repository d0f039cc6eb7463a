/* core/place_tree.c: see place_tree.h. */
#include "core/place_tree.h"
#include "base/mem.h"

static void columns_fini(struct columns *c)
{
        mem_free(c->key);
        mem_free(c->cpu);
        mem_free(c->mem);
        mem_free(c->disk);
        mem_free(c->labels);
        mem_free(c->types);
        mem_free(c->pack);
        *c = (struct columns){ 0 };
}

static void columns_reserve(struct columns *c, uint32_t len)
{
        if (len > c->cap) {
                uint32_t cap = c->cap ? c->cap : TREE_FANOUT;
                while (cap < len)
                        cap *= 2;
                c->key = mem_must_resize(c->key, cap * sizeof(*c->key));
                c->cpu = mem_must_resize(c->cpu, cap * sizeof(*c->cpu));
                c->mem = mem_must_resize(c->mem, cap * sizeof(*c->mem));
                c->disk = mem_must_resize(c->disk, cap * sizeof(*c->disk));
                c->labels = mem_must_resize(c->labels, cap * sizeof(*c->labels));
                c->types = mem_must_resize(c->types, cap * sizeof(*c->types));
                c->pack = mem_must_resize(c->pack, cap * sizeof(*c->pack));
                for (uint32_t i = c->cap; i < cap; i++) {
                        c->key[i] = c->pack[i] = INT64_MAX;
                        c->cpu[i] = c->mem[i] = c->disk[i] = INT64_MIN;
                        c->labels[i] = c->types[i] = 0;
                }
                c->cap = cap;
        }
        if (len > c->len)
                c->len = len;
}

void place_tree_fini(struct place_tree *t)
{
        for (uint32_t l = 0; l < TREE_LEVELS_MAX; l++)
                columns_fini(&t->level[l]);
        t->levels = 0;
}

static bool summarise(const struct columns *below, uint32_t group, struct columns *above)
{
        uint32_t first = group * TREE_FANOUT;
        int64_t key = INT64_MAX, cpu = INT64_MIN, mem = INT64_MIN, disk = INT64_MIN;
        uint64_t labels = 0, types = 0;
        for (uint32_t i = first; i < first + TREE_FANOUT; i++) {
                if (!below->types[i])
                        /* takes nothing: must not make the branch look better than it is */
                        continue;
                key = below->key[i] < key ? below->key[i] : key;
                cpu = below->cpu[i] > cpu ? below->cpu[i] : cpu;
                mem = below->mem[i] > mem ? below->mem[i] : mem;
                disk = below->disk[i] > disk ? below->disk[i] : disk;
                labels |= below->labels[i];
                types |= below->types[i];
        }
        bool same = above->key[group] == key && above->cpu[group] == cpu &&
                    above->mem[group] == mem && above->disk[group] == disk &&
                    above->labels[group] == labels && above->types[group] == types;
        above->key[group] = key;
        above->cpu[group] = cpu;
        above->mem[group] = mem;
        above->disk[group] = disk;
        above->labels[group] = labels;
        above->types[group] = types;
        return same;
}

/* The same for pack, which few clusters ask for. */
static bool summarise_pack(const struct columns *below, uint32_t group, struct columns *above)
{
        uint32_t first = group * TREE_FANOUT;
        int64_t pack = INT64_MAX;
        for (uint32_t i = first; i < first + TREE_FANOUT; i++)
                if (below->types[i] && below->pack[i] < pack)
                        pack = below->pack[i];
        bool same = above->pack[group] == pack;
        above->pack[group] = pack;
        return same;
}

void place_tree_mirror(struct place_tree *t)
{
        t->mirrored = true;
        for (uint32_t i = 0; i < t->level[0].cap; i++)
                t->level[0].pack[i] =
                    t->level[0].key[i] == INT64_MAX ? INT64_MAX : mirrored_key(t->level[0].key[i]);
        for (uint32_t l = 1; l < t->levels; l++)
                for (uint32_t g = 0;
                     g < t->level[l].cap && (g + 1) * TREE_FANOUT <= t->level[l - 1].cap; g++)
                        summarise_pack(&t->level[l - 1], g, &t->level[l]);
}

void place_tree_update(struct place_tree *t, uint32_t at)
{
        if (t->mirrored)
                t->level[0].pack[at] = t->level[0].key[at] == INT64_MAX
                                           ? INT64_MAX
                                           : mirrored_key(t->level[0].key[at]);
        for (uint32_t l = 1; l < t->levels; l++) {
                at /= TREE_FANOUT;
                bool same = summarise(&t->level[l - 1], at, &t->level[l]);
                if (t->mirrored)
                        same &= summarise_pack(&t->level[l - 1], at, &t->level[l]);
                if (same)
                        return;
        }
}

void place_tree_reserve(struct place_tree *t, uint32_t nodes)
{
        uint32_t cap = t->level[0].cap, len = nodes;
        columns_reserve(&t->level[0], nodes);
        if (t->levels && t->level[0].cap == cap) {
                for (uint32_t l = 1; l < t->levels; l++)
                        columns_reserve(&t->level[l], len = (len + TREE_FANOUT - 1) / TREE_FANOUT);
                return;
        }
        /* Grown: the upper levels are made anew; this happens once per doubling. */
        uint32_t l = 0;
        for (uint32_t rows = t->level[0].cap; rows > TREE_FANOUT && l + 1 < TREE_LEVELS_MAX; l++) {
                rows = (rows + TREE_FANOUT - 1) / TREE_FANOUT;
                columns_fini(&t->level[l + 1]);
                columns_reserve(&t->level[l + 1], rows);
                for (uint32_t g = 0; g < rows; g++)
                        summarise(&t->level[l], g, &t->level[l + 1]);
        }
        t->levels = l + 1;
        if (t->mirrored)
                place_tree_mirror(t);
}

/* The resolver of a cloned function runs before ThreadSanitizer is ready, which crashes. */
#if defined(__SANITIZE_THREAD__)
#define SCAN_FAST
#elif defined(__clang__) /* does not know optimize() */
#define SCAN_FAST __attribute__((target_clones("avx2", "default")))
#else
#define SCAN_FAST __attribute__((optimize("O3"), target_clones("avx2", "default")))
#endif

/* Bit i: child i of the group may hold a fit with a smaller key than best. Written so that the
 * compiler makes vector code of it. */
SCAN_FAST static uint32_t admissible(const struct columns *c, uint32_t first,
                                     const struct place_need *n, int64_t best)
{
        uint32_t bits = 0;
        uint64_t ok[TREE_FANOUT];
        for (uint32_t i = 0; i < TREE_FANOUT; i++) {
                uint32_t at = first + i;
                int64_t no = 0;
                no |= -(int64_t)(c->cpu[at] < n->amounts.cpu_milli);
                no |= -(int64_t)(c->mem[at] < n->amounts.mem_bytes);
                no |= -(int64_t)(c->disk[at] < n->amounts.disk_bytes);
                no |= -(int64_t)((c->types[at] & n->type) == 0);
                no |= -(int64_t)((c->labels[at] & n->labels) != n->labels);
                no |= -(int64_t)(c->key[at] >= best);
                ok[i] = (uint64_t)~no & 1;
        }
        for (uint32_t i = 0; i < TREE_FANOUT; i++)
                bits |= (uint32_t)ok[i] << i;
        return bits;
}

static uint32_t smallest_key(const struct columns *c, uint32_t first, uint32_t bits)
{
        uint32_t best = (uint32_t)__builtin_ctz(bits);
        for (bits &= bits - 1; bits; bits &= bits - 1) {
                uint32_t i = (uint32_t)__builtin_ctz(bits);
                if (c->key[first + i] < c->key[first + best])
                        best = i;
        }
        return best;
}

static void search(const struct place_tree *t, uint32_t level, uint32_t group,
                   const struct place_need *need, int64_t *best)
{
        const struct columns *c = &t->level[level];
        uint32_t first = group * TREE_FANOUT, bits = admissible(c, first, need, *best);
        while (bits) {
                uint32_t i = smallest_key(c, first, bits);
                bits &= ~(1u << i);
                if (c->key[first + i] >= *best)
                        return; /* the rest is larger still */
                if (level == 0) {
                        *best = c->key[first + i];
                        return;
                }
                search(t, level - 1, first + i, need, best);
        }
}

int64_t place_tree_find(const struct place_tree *t, const struct place_need *need)
{
        int64_t best = INT64_MAX;
        if (!t->levels)
                return best;
        /* The top level has at most one group, or the tree is as high as it may be. */
        const struct columns *top = &t->level[t->levels - 1];
        for (uint32_t g = 0; g * TREE_FANOUT < top->cap; g++)
                search(t, t->levels - 1, g, need, &best);
        return best;
}

uint32_t place_tree_count(const struct place_tree *t, const struct place_need *need)
{
        const struct columns *rows = &t->level[0];
        uint32_t n = 0;
        for (uint32_t first = 0; first < rows->len; first += TREE_FANOUT)
                n += (uint32_t)__builtin_popcount(admissible(rows, first, need, INT64_MAX));
        return n;
}

/* ---- with constraints ---- */

struct search {
        const struct place_tree *tree;
        const struct place_need *need;
        bool packed;
        place_look_fn *look;
        void *ctx;
        int64_t bound;
};

/* As admissible(), with masks. */
SCAN_FAST static uint32_t admissible_masked(const struct columns *c, const int64_t *key,
                                            uint32_t first, const struct place_need *n,
                                            int64_t bound)
{
        uint32_t bits = 0;
        uint64_t ok[TREE_FANOUT];
        for (uint32_t i = 0; i < TREE_FANOUT; i++) {
                uint32_t at = first + i;
                int64_t no = 0;
                no |= -(int64_t)(c->cpu[at] < n->amounts.cpu_milli);
                no |= -(int64_t)(c->mem[at] < n->amounts.mem_bytes);
                no |= -(int64_t)(c->disk[at] < n->amounts.disk_bytes);
                no |= -(int64_t)((c->types[at] & n->type) == 0);
                no |= -(int64_t)((c->labels[at] & n->labels) != n->labels);
                no |= -(int64_t)(key[at] >= bound);
                ok[i] = (uint64_t)~no & 1;
        }
        for (uint32_t m = 0; m < n->n_masks; m++)
                for (uint32_t i = 0; i < TREE_FANOUT; i++)
                        ok[i] &= (c->labels[first + i] & n->masks[m]) != 0;
        for (uint32_t i = 0; i < TREE_FANOUT; i++)
                bits |= (uint32_t)ok[i] << i;
        return bits;
}

static void search_below(struct search *s, uint32_t level, uint32_t group)
{
        const struct columns *c = &s->tree->level[level];
        const int64_t *key = s->packed ? c->pack : c->key;
        uint32_t first = group * TREE_FANOUT,
                 bits = admissible_masked(c, key, first, s->need, s->bound);
        while (bits) {
                uint32_t best = (uint32_t)__builtin_ctz(bits);
                for (uint32_t rest = bits & (bits - 1); rest; rest &= rest - 1) {
                        uint32_t i = (uint32_t)__builtin_ctz(rest);
                        if (key[first + i] < key[first + best])
                                best = i;
                }
                bits &= ~(1u << best);
                if (key[first + best] >= s->bound)
                        return; /* the rest is larger still */
                if (level == 0)
                        s->bound = s->look(s->ctx, first + best, key[first + best]);
                else
                        search_below(s, level - 1, first + best);
        }
}

void place_tree_search(const struct place_tree *t, const struct place_need *need, bool packed,
                       place_look_fn *look, void *ctx)
{
        struct search s = { t, need, packed, look, ctx, INT64_MAX };
        if (!t->levels)
                return;
        const struct columns *top = &t->level[t->levels - 1];
        for (uint32_t g = 0; g * TREE_FANOUT < top->cap; g++)
                search_below(&s, t->levels - 1, g);
}
