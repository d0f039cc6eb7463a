/* core/place.c: the node for a unit: the best of those that can take it, the smallest id among
 * equals (C15).
 *
 * Best is the least utilised (spread), or the most utilised (binpack); preferences that a node does
 * not meet count as if it were so much worse (constraints.h).
 *
 * Plain workloads: the tree of place_tree.h finds the node in about a microsecond, however many
 * there are. A node that can take nothing has no type bits; utilisation and the node's rank by id
 * are one number, so equals need no second look. A tainted node has its type bits in another lane,
 * where only those look who may tolerate it. How many could have taken it is counted up to
 * COUNT_MAX_NODES: beyond that it costs more than the choice.
 *
 * The others (constraints, an old copy of this very workload, a selector beyond the 64 label bits)
 * go through the tree as well, and each node that is left is looked at with feasible(). Where
 * required affinity leaves few nodes, only these are looked at.
 *
 * Invariant (P2): the choice is exactly the minimum by (cost, id) over all nodes for which
 * feasible() gives no reason.
 */
#include "core/place.h"
#include "base/mutant.h"
#include "core/feasible.h"
#include "core/state.h"
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX_NODES 64
#define FEW_NODES_MAX 256

/* Lanes of the types column. */
#define LANE_HARD 8  /* tainted: nothing comes without a toleration */
#define LANE_SOFT 16 /* tainted: only when nothing else is left */

uint64_t node_types_shown(const struct core *c, const struct node *n)
{
        if (!node_takes_units(c, n))
                return 0;
        return (uint64_t)n->type_bits << (n->tainted == TAINTED_HARD   ? LANE_HARD
                                          : n->tainted == TAINTED_SOFT ? LANE_SOFT
                                                                       : 0);
}

/* Who may use it has changed: the domains among which some spread may be others now. */
static void notice_usable(struct core *c, struct node *n)
{
        uint32_t usable = (uint32_t)n->status | (uint32_t)n->wish << 8 | n->type_bits << 16 |
                          n->exclusive_bits << 24;
        if (usable == n->usable)
                return;
        n->usable = usable;
        c->counts.eligibility++;
        if (c->counts.n_counters)
                c->capacity_change++;
}

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
        struct amounts left = node_room(n);
        k->key[ix.v] = (int64_t)((uint64_t)ledger_utilisation(&n->ledger) << 32 | n->rank);
        k->cpu[ix.v] = left.cpu_milli;
        k->mem[ix.v] = left.mem_bytes;
        k->disk[ix.v] = left.disk_bytes;
        k->labels[ix.v] = n->label_bits;
        k->types[ix.v] = node_types_shown(c, n);
        notice_usable(c, n);
        bool more_room = left.cpu_milli > before.cpu_milli || left.mem_bytes > before.mem_bytes ||
                         left.disk_bytes > before.disk_bytes;
        if (k->types[ix.v] & ~types_before || (k->types[ix.v] && more_room))
                c->capacity_change++;
        place_tree_update(&c->tree, ix.v);
}

/* qsort has no context argument in C17; used within one call only */
static _Thread_local const struct core *sorting;

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
                c->tree.level[0].key[ix.v] =
                    (int64_t)((uint64_t)ledger_utilisation(&n->ledger) << 32 | r);
        }
        if (c->tree.mirrored)
                place_tree_mirror(&c->tree);
        for (uint32_t i = 0; i < c->nodes.len; i += TREE_FANOUT)
                place_tree_update(&c->tree, i);
        c->ranks_stale = false;
}

Pb__Strategy__E strategy_of(const struct core *c, const struct class *k)
{
        return k->strategy ? (Pb__Strategy__E)k->strategy : (Pb__Strategy__E)c->opt.strategy;
}

int64_t cost_millionths(uint64_t cost)
{
        return (int64_t)((unsigned __int128)cost * 1000000 / (2 * (uint64_t)UTIL_ONE));
}

uint64_t place_cost(const struct core *c, struct node_ix n, const struct definition *d)
{
        uint32_t u = ledger_utilisation(&node_get(c, n)->ledger);
        bool packed = strategy_of(c, &c->classes.at[d->class]) == PB__STRATEGY__E__binpack;
        return (packed ? INT32_MAX - u : u) + constraints_cost(c, n, d);
}

/* A search for one unit, and the best that it has found. */
struct choice {
        const struct core *c;
        const struct definition *d;
        const char *workload_id;
        struct node_ix exclude;
        struct place_result best;
};

static void consider(struct choice *x, struct node_ix n)
{
        if (n.v == x->exclude.v || feasible(x->c, n, x->d, x->workload_id))
                return;
        x->best.candidates++;
        uint64_t cost = place_cost(x->c, n, x->d);
        if (node_ok(x->best.node) &&
            (cost > x->best.cost || (cost == x->best.cost &&
                                     node_get(x->c, n)->rank > node_get(x->c, x->best.node)->rank)))
                return;
        x->best.node = n;
        x->best.cost = cost;
}

static int64_t look(void *ctx, uint32_t row, int64_t key)
{
        struct choice *x = ctx;
        (void)key; /* at most the cost */
        consider(x, (struct node_ix){ row });
        if (!node_ok(x->best.node) || x->best.cost > INT32_MAX)
                return INT64_MAX;
        return (int64_t)(x->best.cost << 32 | node_get(x->c, x->best.node)->rank);
}

static struct place_result place_with_care(struct core *c, const struct definition *d,
                                           const char *workload_id, struct node_ix exclude)
{
        const struct class *k = &c->classes.at[d->class];
        struct choice x = { c, d, workload_id, exclude, { .node = NODE_NONE } };
        uint32_t few[FEW_NODES_MAX];
        uint32_t n_few =
            c->n_nodes > COUNT_MAX_NODES ? constraints_few(c, d, few, FEW_NODES_MAX) : UINT32_MAX;
        if (n_few != UINT32_MAX)
                for (uint32_t i = 0; i < n_few; i++)
                        consider(&x, (struct node_ix){ few[i] });
        else if (c->nodes.len <= COUNT_MAX_NODES) {
                for (uint32_t i = 0; i < c->nodes.len; i++)
                        if (c->nodes.at[i].id)
                                consider(&x, (struct node_ix){ i });
        } else {
                bool packed = strategy_of(c, k) == PB__STRATEGY__E__binpack;
                if (packed && !c->tree.mirrored)
                        place_tree_mirror(&c->tree);
                uint64_t type = k->type_bit;
                struct place_need need = { k->need,
                                           type | type << LANE_SOFT |
                                               (k->more ? type << LANE_HARD : 0),
                                           k->selector_bits,
                                           { 0 },
                                           0 };
                if (MUTANT(ledger_without_disk))
                        need.amounts.disk_bytes = 0;
                need.n_masks = constraints_masks(c, d, need.masks, ARRAY_LEN(need.masks));
                place_tree_search(&c->tree, &need, packed, look, &x);
        }
        if (!node_ok(x.best.node) || c->nodes.len > COUNT_MAX_NODES)
                x.best.candidates = 0;
        x.best.utilisation =
            node_ok(x.best.node) ? ledger_utilisation(&node_get(c, x.best.node)->ledger) : 0;
        return x.best;
}

struct place_result place(struct core *c, const struct definition *d, const char *workload_id,
                          struct node_ix exclude)
{
        const struct class *k = &c->classes.at[d->class];
        if (c->ranks_stale)
                ranks_refresh(c);
        if (!k->selector_exact || workload_id || k->exclusive || k->needs ||
            strategy_of(c, k) != PB__STRATEGY__E__spread || !is_plain(c, d))
                return place_with_care(c, d, workload_id, exclude);
        struct columns *rows = &c->tree.level[0];
        uint64_t types_excluded = node_ok(exclude) ? rows->types[exclude.v] : 0;
        if (types_excluded) {
                rows->types[exclude.v] = 0;
                place_tree_update(&c->tree, exclude.v);
        }
        struct place_need need = { .amounts = k->need,
                                   .type = k->type_bit,
                                   .labels = k->selector_bits };
        if (MUTANT(ledger_without_disk))
                need.amounts.disk_bytes = 0;
        int64_t best = place_tree_find(&c->tree, &need);
        uint32_t candidates =
            c->nodes.len <= COUNT_MAX_NODES ? place_tree_count(&c->tree, &need) : 0;
        if (types_excluded) {
                rows->types[exclude.v] = types_excluded;
                place_tree_update(&c->tree, exclude.v);
        }
        if (best == INT64_MAX) /* a node that should rather not be used costs more than any other */
                return c->counts.soft_tainted ? place_with_care(c, d, NULL, exclude)
                                              : (struct place_result){ .node = NODE_NONE };
        struct node_ix n = c->by_rank.at[(uint32_t)best];
        /* The minimum of a superset, if it passes, is the minimum. */
        if (feasible(c, n, d, NULL))
                return place_with_care(c, d, NULL, exclude);
        return (struct place_result){ .node = n,
                                      .candidates = candidates,
                                      .utilisation = (uint32_t)(best >> 32),
                                      .cost = (uint64_t)(best >> 32) };
}
