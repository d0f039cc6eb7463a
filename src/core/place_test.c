/* core/place_test.c: the choice is exactly the least utilised node that can take the unit, the
 * smallest id among equals.
 *
 * The scan over columns is compared with a plain loop written from C14 and C15, over many random
 * clusters.
 */
#include "base/mem.h"
#include "core/core_testlib.h"
#include "core/definitions.h"
#include "core/feasible.h"
#include "core/node.h"
#include "core/place.h"
#include "core/state.h"
#include "core/tombstone.h"

struct world {
        struct core *c;
        struct core_options opt;
        struct rng r;
        struct arena a;
};

static uint64_t below(struct world *w, uint64_t n)
{
        return rng_below(&w->r, n);
}

static void world_init(struct world *w, uint64_t seed)
{
        *w = (struct world){ 0 };
        rng_seed(&w->r, seed);
        core_options_default(&w->opt);
        w->c = core_create(&w->opt);
        struct input in = { .kind = INPUT_START, .now_ms = RIG_START_MS };
        core_step(w->c, &in);
}

static void world_fini(struct world *w)
{
        for (uint32_t d = 0; d < w->c->definitions.len; d++)
                while (w->c->definitions.at[d].refs)
                        definition_unref(w->c, d);
        core_destroy(w->c);
        arena_fini(&w->a);
}

/* Labels l0..l9 with values v0..v<values-1>: with many values a cluster has far more than 64
 * pairs. */
static void random_labels(struct world *w, Pb__Node *n, unsigned values)
{
        size_t count = below(w, 6);
        n->labels = arena_new_n(&w->a, Pb__Node__LabelsEntry *, count + 1);
        for (size_t i = 0; i < count; i++) {
                Pb__Node__LabelsEntry *e = arena_new(&w->a, Pb__Node__LabelsEntry);
                pb__node__labels_entry__init(e);
                e->key = arena_printf(&w->a, "l%zu", i);
                e->value = arena_printf(&w->a, "v%u", (unsigned)below(w, values));
                n->labels[n->n_labels++] = e;
        }
}

static void add_node(struct world *w, const char *id, unsigned values)
{
        static const Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process,
                                                     PB__WORKLOAD_TYPE__E__container };
        struct node_ix ix = node_add(w->c, id);
        Pb__Node n = PB__NODE__INIT;
        Pb__NodeResources res = PB__NODE_RESOURCES__INIT;
        n.resources = &res;
        res.cpu_total = (int64_t)(1 + below(w, 4)) * 2000; /* few sizes, so that there are ties */
        res.memory_total = (int64_t)(1 + below(w, 4)) * 4096;
        res.disk_total = (int64_t)below(w, 4) * 50;
        n.supported_workload_types = (Pb__WorkloadType__E *)types;
        n.n_supported_workload_types = 1 + below(w, 2);
        random_labels(w, &n, values);
        node_attributes(w->c, ix, &n);
        struct node *node = node_at(w->c, ix);
        node->status = below(w, 10) ? PB__NODE_STATUS__E__Ready : PB__NODE_STATUS__E__NotReady;
        node->wish = (uint8_t)(below(w, 10) ? PB__NODE_WISH__E__schedulable
                                            : PB__NODE_WISH__E__cordoned + below(w, 3));
        node->heard_at = below(w, 20) ? w->c->now_ms : 0;
        if (below(w, 2))
                node->ledger.reserved = (struct amounts){ (int64_t)below(w, 5) * 1000,
                                                          (int64_t)below(w, 5) * 1024 * MIB,
                                                          (int64_t)below(w, 3) * 10 * GIB };
        columns_update(w->c, ix);
}

static uint32_t random_definition(struct world *w, unsigned values)
{
        Pb__Workload *m = arena_new(&w->a, Pb__Workload);
        pb__workload__init(m);
        m->type = below(w, 3) ? PB__WORKLOAD_TYPE__E__process : PB__WORKLOAD_TYPE__E__container;
        m->resources = arena_new(&w->a, Pb__Resources);
        pb__resources__init(m->resources);
        m->resources->cpu = (int64_t)below(w, 9) * 500;
        m->resources->memory_mb = (int64_t)below(w, 9) * 512;
        m->resources->disk_gb = below(w, 3) ? 0 : (int64_t)below(w, 60);
        size_t n = below(w, 2) ? 0 : 1 + below(w, 2);
        m->node_selector = arena_new_n(&w->a, Pb__Workload__NodeSelectorEntry *, n + 1);
        for (size_t i = 0; i < n; i++) {
                Pb__Workload__NodeSelectorEntry *e =
                    arena_new(&w->a, Pb__Workload__NodeSelectorEntry);
                pb__workload__node_selector_entry__init(e);
                e->key = arena_printf(&w->a, "l%zu", i * 2 + below(w, 2));
                e->value = arena_printf(&w->a, "v%u", (unsigned)below(w, values));
                m->node_selector[m->n_node_selector++] = e;
        }
        return definition_intern(w->c, m);
}

/* C14, written down once more, plainly. */
static bool can_take(const struct core *c, const struct node *n, const struct class *k,
                     const char *id)
{
        if (n->status != PB__NODE_STATUS__E__Ready || n->wish != PB__NODE_WISH__E__schedulable ||
            !n->heard_at || c->now_ms - n->heard_at > c->opt.fresh_ms)
                return false;
        for (uint32_t t = n->tombstones; t != NONE; t = c->tombstones.at[t].next)
                if (c->tombstones.at[t].reason == PB__REASON__E__node_lost ||
                    (id && strcmp(c->tombstones.at[t].workload_id, id) == 0))
                        return false;
        for (uint32_t i = 0; i < k->n_selector; i++) {
                bool found = false;
                for (uint32_t l = 0; l < n->n_labels; l++)
                        found |= strcmp(n->labels[l].key, k->selector[i].key) == 0 &&
                                 strcmp(n->labels[l].value, k->selector[i].value) == 0;
                if (!found)
                        return false;
        }
        const struct amounts *t = &n->ledger.total, *r = &n->ledger.reserved;
        return (n->type_bits & k->type_bit) && r->cpu_milli + k->need.cpu_milli <= t->cpu_milli &&
               r->mem_bytes + k->need.mem_bytes <= t->mem_bytes &&
               r->disk_bytes + k->need.disk_bytes <= t->disk_bytes;
}

static struct place_result plain_choice(const struct core *c, const struct definition *d,
                                        const char *id, struct node_ix exclude)
{
        const struct class *k = &c->classes.at[d->class];
        struct place_result best = { .node = NODE_NONE };
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                if (!n->id)
                        continue;
                bool fits = can_take(c, n, k, id);
                assert_int_equal(fits,
                                 feasible(c, (struct node_ix){ i }, d, id) == PB__REASON__E__none);
                if (!fits || i == exclude.v)
                        continue;
                best.candidates++;
                uint32_t u = ledger_utilisation(&n->ledger);
                if (!node_ok(best.node) || u < best.utilisation ||
                    (u == best.utilisation && strcmp(n->id, c->nodes.at[best.node.v].id) < 0)) {
                        best.node = (struct node_ix){ i };
                        best.utilisation = u;
                }
        }
        return best;
}

static void compare(struct world *w, uint32_t definition, const char *id, struct node_ix exclude)
{
        const struct definition *d = &w->c->definitions.at[definition];
        struct place_result want = plain_choice(w->c, d, id, exclude),
                            got = place(w->c, d, id, exclude);
        assert_int_equal(got.node.v, want.node.v);
        if (node_ok(want.node)) {
                assert_int_equal(got.utilisation, want.utilisation);
                /* beyond, they are not always counted */
                if (got.candidates || w->c->nodes.len <= 64)
                        assert_int_equal(got.candidates, want.candidates);
        } else
                assert_int_equal(got.candidates, 0);
}

/* Fills the cluster by its own choices, with nodes and old copies coming and going in between. */
static void fill(struct world *w, uint32_t nodes, uint32_t units, unsigned values)
{
        for (uint32_t i = 0; i < nodes; i++)
                add_node(w, arena_printf(&w->a, "n%05u-%u", (unsigned)below(w, 1u << 16), i),
                         values);
        for (uint32_t i = 0; i < units; i++) {
                uint32_t d = random_definition(w, values);
                const char *id =
                    below(w, 3) ? NULL : arena_printf(&w->a, "w%u", (unsigned)below(w, 8));
                struct node_ix some = { (uint32_t)below(w, w->c->nodes.len) };
                bool lives = w->c->nodes.at[some.v].id != NULL;
                compare(w, d, id, below(w, 4) || !lives ? NODE_NONE : some);
                struct place_result r = place(w->c, &w->c->definitions.at[d], id, NODE_NONE);
                if (node_ok(r.node)) {
                        ledger_reserve(&node_at(w->c, r.node)->ledger,
                                       w->c->classes.at[w->c->definitions.at[d].class].need);
                        columns_update(w->c, r.node);
                }
                if (below(w, 12) == 0 && lives) {
                        char *dead = arena_printf(&w->a, "w%u", (unsigned)below(w, 8));
                        uint32_t t = tombstone_find(w->c, some, dead);
                        if (t != NONE)
                                tombstone_remove(w->c, t);
                        else
                                tombstone_add(w->c, some, dead, 1, 1,
                                              (struct amounts){ 100, MIB, 0 },
                                              below(w, 4) ? PB__REASON__E__spec_changed
                                                          : PB__REASON__E__node_lost,
                                              1);
                }
                if (below(w, 20) == 0)
                        add_node(w,
                                 arena_printf(&w->a, "m%05u-%u", (unsigned)below(w, 1u << 16), i),
                                 values);
                if (below(w, 20) == 0 && lives && w->c->nodes.at[some.v].tombstones == NONE)
                        node_free(w->c, some);
        }
}

/* R: C14 C15 C16 */
static void the_choice_is_the_minimum_over_all_feasible_nodes(void **state)
{
        (void)state;
        for (uint64_t seed = 1; seed <= 120; seed++) {
                struct world w;
                world_init(&w, seed);
                fill(&w, 1 + (uint32_t)below(&w, 60), 60, 3);
                world_fini(&w);
        }
}

/* R: C14 C15 */
static void selectors_beyond_64_pairs_are_exact_too(void **state)
{
        (void)state;
        for (uint64_t seed = 1; seed <= 20; seed++) {
                struct world w;
                world_init(&w, 1000 + seed);
                fill(&w, 80, 400, 40);
                assert_int_equal(w.c->bits.len, 64);
                world_fini(&w);
        }
}

static uint32_t definition_with(struct world *w, unsigned number)
{
        Pb__Workload m = PB__WORKLOAD__INIT;
        Pb__Resources res = PB__RESOURCES__INIT;
        Pb__Workload__NodeSelectorEntry e = PB__WORKLOAD__NODE_SELECTOR_ENTRY__INIT,
                                        *entries[] = { &e };
        m.type = PB__WORKLOAD_TYPE__E__process;
        m.resources = &res;
        e.key = "pair";
        e.value = arena_printf(&w->a, "v%u", number);
        m.node_selector = entries;
        m.n_node_selector = 1;
        return definition_intern(w->c, &m);
}

/* Whoever named them has gone: others get their bits, and what is left is still exact. R: C14 X6 */
static void a_label_bit_is_given_back(void **state)
{
        (void)state;
        struct world w;
        world_init(&w, 1);
        fill(&w, 40, 40, 3);
        uint32_t all[300];
        for (unsigned round = 0; round < 3; round++) {
                for (unsigned i = 0; i < ARRAY_LEN(all); i++)
                        all[i] = definition_with(&w, round * 1000 + i);
                assert_false(w.c->classes.at[w.c->definitions.at[all[299]].class].selector_exact);
                for (unsigned i = 0; i < ARRAY_LEN(all); i++)
                        definition_unref(w.c, all[i]);
                uint32_t later = definition_with(&w, round);
                assert_true(w.c->classes.at[w.c->definitions.at[later].class].selector_exact);
                definition_unref(w.c, later);
                fill(&w, 10, 40, 3); /* compares every choice with a plain one */
        }
        world_fini(&w);
}

/* R: C14 C15 X6 */
static void beyond_a_thousand_nodes_the_choice_is_the_same(void **state)
{
        (void)state;
        for (uint64_t seed = 1; seed <= 4; seed++) {
                struct world w;
                world_init(&w, 2000 + seed);
                fill(&w, 1100 + (uint32_t)below(&w, 900), 250, seed % 2 ? 3 : 30);
                world_fini(&w);
        }
}

static int shuffled(const void *a, const void *b)
{
        return strcmp(*(char *const *)a + 6, *(char *const *)b + 6);
}

/* The same nodes registered in any order: ties go to the smallest id.  R: C15 A2 */
static void ties_do_not_depend_on_the_order_of_registration(void **state)
{
        (void)state;
        for (uint64_t seed = 0; seed < 40; seed++) {
                struct rig r;
                rig_init(&r, NULL);
                struct rng g;
                rng_seed(&g, seed);
                char *ids[12];
                for (unsigned i = 0; i < ARRAY_LEN(ids); i++)
                        ids[i] = arena_printf(&r.memory, "n%05u%016llx", i,
                                              (unsigned long long)rng_next(&g));
                qsort(ids, ARRAY_LEN(ids), sizeof(*ids), shuffled);
                for (size_t i = 0; i < ARRAY_LEN(ids); i++)
                        rig_hello(&r, ids[i], 4000, 4096, 10, NULL);
                for (unsigned i = 0; i < 30; i++) {
                        char *id = arena_printf(&r.memory, "w%u", i);
                        rig_apply(&r, rig_workload(&r, id, 100, 100));
                        assert_int_equal(
                            atoi(arena_strndup(&r.memory, rig_get(&r, id)->assigned_node + 1, 5)),
                            i % ARRAY_LEN(ids));
                }
                rig_fini(&r);
        }
}

/* R: C16 */
static void the_placement_is_stored_with_its_reason_score_and_candidates(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_hello(&r, "n2", 8000, 8192, 10, NULL);
        rig_hello(&r, "n3", 500, 512, 10, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
        rig_apply(&r, rig_workload(&r, "b", 1000, 1024));
        Pb__Workload *a = rig_get(&r, "a"), *b = rig_get(&r, "b");
        assert_string_equal(a->placement->node_id, "n1");
        assert_int_equal(a->placement->score, 0);
        assert_int_equal(a->placement->candidates, 2);
        assert_int_equal(a->placement->reason, PB__REASON__E__placed);
        assert_string_equal(b->placement->node_id, "n2"); /* n1 is at 25 % now */
        rig_apply(&r, rig_workload(&r, "c", 1000, 1024));
        assert_string_equal(rig_get(&r, "c")->placement->node_id, "n2");
        assert_int_equal(rig_get(&r, "c")->placement->score, 125000);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_choice_is_the_minimum_over_all_feasible_nodes),
                cmocka_unit_test(selectors_beyond_64_pairs_are_exact_too),
                cmocka_unit_test(a_label_bit_is_given_back),
                cmocka_unit_test(beyond_a_thousand_nodes_the_choice_is_the_same),
                cmocka_unit_test(ties_do_not_depend_on_the_order_of_registration),
                cmocka_unit_test(the_placement_is_stored_with_its_reason_score_and_candidates),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
