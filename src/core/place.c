/* core/place.c: the node for a unit: the least utilised of those that can take it, the smallest id among equals (C15).
 *
 * Up to COUNT_MAX_NODES a scan runs over arrays of plain numbers without a branch, so that the compiler turns it into vector code; it also counts the candidates.
 * Beyond that the tree of place_tree.h finds the same node in about a microsecond, and the candidates are not counted. A node that can take nothing has no type bits; utilisation and the node's rank by id are one number, so equals need no second look. What the arrays cannot say
 * (an old copy of this very workload, a selector beyond the 64 label bits) is rare: then the candidates are checked one by one with feasible().
 * Invariant (P2): the choice is exactly the minimum over all nodes for which feasible() gives no reason.
 */
#include "base/mutant.h"
#include "core/state.h"
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX_NODES 1024

void columns_update(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        place_tree_reserve(&c->tree, ix.v + 1);
        struct columns *k = &c->tree.level[0];
        uint64_t types_before = k->types[ix.v];
        struct amounts before = { k->cpu[ix.v], k->mem[ix.v], k->disk[ix.v] };
        if (!n->id) {
                k->types[ix.v] = 0;
                place_tree_update(&c->tree, ix.v);
                return;
        }
        struct amounts left = ledger_free(&n->ledger);
        k->key[ix.v] = (int64_t)((uint64_t)ledger_utilisation(&n->ledger) << 32 | n->rank);
        k->cpu[ix.v] = left.cpu_milli;
        k->mem[ix.v] = left.mem_bytes;
        k->disk[ix.v] = left.disk_bytes;
        k->labels[ix.v] = node_label_bits(c, n);
        k->types[ix.v] = node_takes_units(c, n) ? n->type_bits : 0;
        bool more_room = left.cpu_milli > before.cpu_milli || left.mem_bytes > before.mem_bytes || left.disk_bytes > before.disk_bytes;
        if (k->types[ix.v] & ~types_before || (k->types[ix.v] && more_room))
                c->capacity_change++;
        place_tree_update(&c->tree, ix.v);
}

static _Thread_local const struct core *sorting; /* qsort has no context argument in C17; used within one call only */

static int by_id(const void *a, const void *b)
{
        const struct node_ix *x = a, *y = b;
        return strcmp(sorting->nodes.at[x->v].id, sorting->nodes.at[y->v].id);
}

void ranks_refresh(struct core *c)
{
        array_clear(&c->by_rank);
        for (uint32_t i = 0; i < c->nodes.len; i++)
                if (c->nodes.at[i].id)
                        *array_push(&c->by_rank) = (struct node_ix){ i };
        sorting = c;
        if (c->by_rank.len && !MUTANT(tie_by_slot))
                qsort(c->by_rank.at, c->by_rank.len, sizeof(c->by_rank.at[0]), by_id);
        for (uint32_t r = 0; r < c->by_rank.len; r++) {
                struct node_ix ix = c->by_rank.at[r];
                struct node *n = node_at(c, ix);
                n->rank = r;
                place_tree_reserve(&c->tree, ix.v + 1);
                c->tree.level[0].key[ix.v] = (int64_t)((uint64_t)ledger_utilisation(&n->ledger) << 32 | r);
        }
        for (uint32_t i = 0; i < c->nodes.len; i += TREE_FANOUT)
                place_tree_update(&c->tree, i);
        c->ranks_stale = false;
}

struct scan {
        int64_t best;
        uint64_t candidates;
};

/* The resolver of a cloned function runs before ThreadSanitizer is ready, which crashes. */
#if defined(__SANITIZE_THREAD__)
#define SCAN_FAST
#elif defined(__clang__) /* does not know optimize() */
#define SCAN_FAST __attribute__((target_clones("avx2", "default")))
#else
#define SCAN_FAST __attribute__((optimize("O3"), target_clones("avx2", "default")))
#endif

SCAN_FAST static struct scan scan(const struct columns *k, uint32_t n, struct amounts need, uint64_t type, uint64_t labels)
{
        const int64_t *restrict key = k->key, *restrict cpu = k->cpu, *restrict mem = k->mem, *restrict disk = k->disk;
        const uint64_t *restrict have_labels = k->labels, *restrict types = k->types;
        int64_t best = INT64_MAX;
        int64_t candidates = 0;
        for (uint32_t i = 0; i < n; i++) {
                int64_t no = 0; /* all ones if the node cannot take it */
                no |= -(int64_t)(cpu[i] < need.cpu_milli);
                no |= -(int64_t)(mem[i] < need.mem_bytes);
                no |= -(int64_t)(disk[i] < need.disk_bytes);
                no |= -(int64_t)((types[i] & type) == 0);
                no |= -(int64_t)((have_labels[i] & labels) != labels);
                int64_t value = (key[i] & ~no) | (INT64_MAX & no);
                best = value < best ? value : best;
                candidates += 1 + no;
        }
        return (struct scan){ best, (uint64_t)candidates };
}

static struct place_result place_one_by_one(const struct core *c, const struct class *k, const char *workload_id, struct node_ix exclude)
{
        struct place_result r = { .node = NODE_NONE };
        int64_t best = INT64_MAX;
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                if (!c->nodes.at[i].id || i == exclude.v || feasible(c, (struct node_ix){ i }, k, workload_id))
                        continue;
                r.candidates++;
                if (c->tree.level[0].key[i] < best) {
                        best = c->tree.level[0].key[i];
                        r.node = (struct node_ix){ i };
                }
        }
        r.utilisation = node_ok(r.node) ? (uint32_t)(best >> 32) : 0;
        return r;
}

struct place_result place(struct core *c, const struct class *k, const char *workload_id, struct node_ix exclude)
{
        if (c->ranks_stale)
                ranks_refresh(c);
        if (!k->selector_exact || workload_id)
                return place_one_by_one(c, k, workload_id, exclude);
        struct columns *rows = &c->tree.level[0];
        uint64_t types_excluded = node_ok(exclude) ? rows->types[exclude.v] : 0;
        if (types_excluded) {
                rows->types[exclude.v] = 0;
                place_tree_update(&c->tree, exclude.v);
        }
        struct place_need need = { k->need, k->type_bit, k->selector_bits };
        if (MUTANT(ledger_without_disk))
                need.amounts.disk_bytes = 0;
        struct scan s = c->nodes.len <= COUNT_MAX_NODES ? scan(rows, (uint32_t)c->nodes.len, need.amounts, k->type_bit, k->selector_bits)
                                                        : (struct scan){ .best = place_tree_find(&c->tree, &need) };
        if (types_excluded) {
                rows->types[exclude.v] = types_excluded;
                place_tree_update(&c->tree, exclude.v);
        }
        if (s.best == INT64_MAX)
                return (struct place_result){ .node = NODE_NONE };
        struct node_ix n = c->by_rank.at[(uint32_t)s.best];
        /* The minimum of a superset, if it passes, is the minimum. */
        if (feasible(c, n, k, workload_id))
                return place_one_by_one(c, k, workload_id, exclude);
        return (struct place_result){ .node = n, .candidates = (uint32_t)s.candidates, .utilisation = (uint32_t)(s.best >> 32) };
}
