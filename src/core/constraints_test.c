/* core/constraints_test.c: taints, host ports, affinity, anti-affinity, spread and binpack.
 *
 * The choice is compared with an oracle: a few plain loops over all nodes and all units, written
 * from the requirements, that know nothing of counters, trees or masks. Random clusters live
 * through applies, deletes, moves, taints, new labels and restarts; the rig checks the counters
 * (P5, P6) after every step.
 */
#include "base/mem.h"
#include "core/core_testlib.h"
#include "core/definitions.h"
#include "core/feasible.h"
#include "core/state.h"
#include "core/tombstone.h"
#include "model/validate.h"

/* ---- building ---- */

static Pb__Affinity *near(struct rig *r, const char *key, const char *value, const char *over,
                          int weight)
{
        Pb__Affinity *a = arena_new(&r->memory, Pb__Affinity);
        Pb__Affinity__MatchEntry *e = arena_new(&r->memory, Pb__Affinity__MatchEntry);
        pb__affinity__init(a);
        pb__affinity__match_entry__init(e);
        e->key = (char *)key;
        e->value = (char *)value;
        a->match = arena_new_n(&r->memory, Pb__Affinity__MatchEntry *, 1);
        a->match[a->n_match++] = e;
        a->over = (char *)over;
        a->preferred = weight > 0;
        a->weight = weight;
        return a;
}

static void add_affinity(struct rig *r, Pb__Workload *w, Pb__Affinity *a)
{
        Pb__Affinity **all = arena_new_n(&r->memory, Pb__Affinity *, w->n_affinity + 1);
        for (size_t i = 0; i < w->n_affinity; i++)
                all[i] = w->affinity[i];
        all[w->n_affinity++] = a;
        w->affinity = all;
}

static void add_anti(struct rig *r, Pb__Workload *w, Pb__Affinity *a)
{
        Pb__Affinity **all = arena_new_n(&r->memory, Pb__Affinity *, w->n_anti_affinity + 1);
        for (size_t i = 0; i < w->n_anti_affinity; i++)
                all[i] = w->anti_affinity[i];
        all[w->n_anti_affinity++] = a;
        w->anti_affinity = all;
}

static void add_spread(struct rig *r, Pb__Workload *w, const char *over, int skew, bool preferred)
{
        Pb__Spread *s = arena_new(&r->memory, Pb__Spread),
                   **all = arena_new_n(&r->memory, Pb__Spread *, w->n_spread + 1);
        pb__spread__init(s);
        s->over = (char *)over;
        s->max_skew = skew;
        s->preferred = preferred;
        for (size_t i = 0; i < w->n_spread; i++)
                all[i] = w->spread[i];
        all[w->n_spread++] = s;
        w->spread = all;
}

static void add_port(struct rig *r, Pb__Workload *w, int port, const char *protocol)
{
        Pb__Port *p = arena_new(&r->memory, Pb__Port),
                 **all = arena_new_n(&r->memory, Pb__Port *, w->spec->n_ports + 1);
        pb__port__init(p);
        p->host_port = port;
        p->container_port = 80;
        p->protocol = (char *)protocol;
        for (size_t i = 0; i < w->spec->n_ports; i++)
                all[i] = w->spec->ports[i];
        all[w->spec->n_ports++] = p;
        w->spec->ports = all;
}

static void add_toleration(struct rig *r, Pb__Workload *w, const char *key, const char *value,
                           Pb__TaintEffect__E effect)
{
        Pb__Toleration *t = arena_new(&r->memory, Pb__Toleration);
        pb__toleration__init(t);
        t->key = (char *)key;
        t->value = (char *)value;
        t->effect = effect;
        w->tolerations = arena_new_n(&r->memory, Pb__Toleration *, 1);
        w->tolerations[0] = t;
        w->n_tolerations = 1;
}

/* key NULL: none. */
static const struct rig_reply *taint(struct rig *r, const char *node, const char *key,
                                     Pb__TaintEffect__E effect)
{
        Pb__SetTaintsRequest req = PB__SET_TAINTS_REQUEST__INIT;
        Pb__Taint t = PB__TAINT__INIT, *one[] = { &t };
        req.id = (char *)node;
        t.key = (char *)key;
        t.value = "v";
        t.effect = effect;
        req.taints = one;
        req.n_taints = key ? 1 : 0;
        return rig_ask(r, INPUT_NODE_TAINTS, &req);
}

static const char *node_of(struct rig *r, const char *id)
{
        Pb__Workload *w = rig_get(r, id);
        return w ? w->assigned_node : "";
}

static Pb__Workload *labelled(struct rig *r, const char *id, const char *app)
{
        Pb__Workload *w = rig_workload(r, id, 100, 64);
        rig_label(r, w, "app", app);
        return w;
}

static void three_zones(struct rig *r, int per_zone)
{
        for (int z = 0; z < 3; z++)
                for (int i = 0; i < per_zone; i++)
                        rig_hello(r, arena_printf(&r->memory, "n%d-%d", z, i), 4000, 4096, 10,
                                  arena_printf(&r->memory, "zone=z%d", z));
}

/* ---- the oracle ---- */

struct oracle {
        const struct core *c;
        Pb__Workload **all; /* of each slot that holds a place; NULL: none */
        struct arena a;
};

static void oracle_init(struct oracle *o, const struct core *c)
{
        *o = (struct oracle){ .c = c };
        o->all = arena_new_n(&o->a, Pb__Workload *, c->units.len + 1);
        for (uint32_t i = 0; i < c->units.len; i++) {
                const struct unit *w = &c->units.at[i];
                struct arena_allocator alloc = arena_allocator(&o->a);
                if (w->id && w->holds)
                        o->all[i] = pb__workload__unpack((ProtobufCAllocator *)&alloc,
                                                         definition_of(c, w)->len,
                                                         definition_of(c, w)->data);
        }
}

static const char *node_label(const struct node *n, const char *key)
{
        return str_empty(key) ? n->id : label_get(n->labels, n->n_labels, key);
}

typedef Pb__Workload__LabelsEntry entry; /* every map has this shape */

static bool has_labels(const Pb__Workload *w, const char *tenant, entry *const *match, size_t n)
{
        if (!str_eq(w->tenant, tenant) || !n)
                return false;
        for (size_t i = 0; i < n; i++) {
                bool found = false;
                for (size_t l = 0; l < w->n_labels; l++)
                        found |= strcmp(w->labels[l]->key, match[i]->key) == 0 &&
                                 strcmp(w->labels[l]->value, match[i]->value) == 0;
                if (!found)
                        return false;
        }
        return true;
}

/* How many there are where the label `over` is as on this node (value NULL: anywhere that has
 * it). */
static uint32_t count_in(struct oracle *o, const char *tenant, entry *const *match, size_t n,
                         const char *over, const char *value)
{
        uint32_t count = 0;
        for (uint32_t i = 0; i < o->c->units.len; i++) {
                if (!o->all[i] || !has_labels(o->all[i], tenant, match, n))
                        continue;
                const char *there = node_label(&o->c->nodes.at[o->c->units.at[i].node.v], over);
                count += there && (!value || strcmp(there, value) == 0);
        }
        return count;
}

static bool tolerated(const Pb__Workload *w, const struct taint *t)
{
        for (size_t i = 0; i < w->n_tolerations; i++) {
                const Pb__Toleration *o = w->tolerations[i];
                if ((str_eq(o->key, "*") || str_eq(o->key, t->key)) &&
                    (str_empty(o->value) || str_eq(o->value, t->value)) &&
                    (!o->effect || o->effect == t->effect))
                        return true;
        }
        return false;
}

static bool could_use(const struct node *n, const Pb__Workload *w)
{
        if (n->status != PB__NODE_STATUS__E__Ready || n->wish != PB__NODE_WISH__E__schedulable ||
            !(n->type_bits & (1u << w->type)))
                return false;
        for (size_t i = 0; i < w->n_node_selector; i++)
                if (!str_eq(label_get(n->labels, n->n_labels, w->node_selector[i]->key),
                            w->node_selector[i]->value))
                        return false;
        for (uint32_t i = 0; i < n->n_taints; i++)
                if (n->taints[i].effect != PB__TAINT_EFFECT__E__prefer_no_schedule &&
                    !tolerated(w, &n->taints[i]))
                        return false;
        return true;
}

static uint32_t skew(struct oracle *o, const struct node *n, const Pb__Workload *w,
                     const Pb__Spread *s)
{
        entry *const *match = s->n_match ? (entry *const *)s->match : w->labels;
        size_t len = s->n_match ? s->n_match : w->n_labels;
        uint32_t least = UINT32_MAX,
                 here = count_in(o, w->tenant, match, len, s->over, node_label(n, s->over));
        for (uint32_t i = 0; i < o->c->nodes.len; i++) {
                const struct node *m = &o->c->nodes.at[i];
                if (!m->id || !could_use(m, w) || !node_label(m, s->over))
                        continue;
                uint32_t there =
                    count_in(o, w->tenant, match, len, s->over, node_label(m, s->over));
                least = there < least ? there : least;
        }
        here += has_labels(w, w->tenant, match, len);
        least = least == UINT32_MAX ? 0 : least;
        return here > least ? here - least : 0;
}

static bool near_met(struct oracle *o, const struct node *n, const Pb__Workload *w,
                     const Pb__Affinity *a, bool anti)
{
        entry *const *match = (entry *const *)a->match;
        const char *value = node_label(n, a->over);
        uint32_t here = value ? count_in(o, w->tenant, match, a->n_match, a->over, value) : 0;
        if (anti)
                return here == 0;
        bool first = has_labels(w, w->tenant, match, a->n_match) &&
                     !count_in(o, w->tenant, match, a->n_match, a->over, NULL);
        return value && (here || first);
}

static bool kept_away(struct oracle *o, const struct node *n, const Pb__Workload *w)
{
        for (uint32_t i = 0; i < o->c->units.len; i++) {
                const Pb__Workload *u = o->all[i];
                for (size_t a = 0; u && a < u->n_anti_affinity; a++) {
                        const Pb__Affinity *rule = u->anti_affinity[a];
                        const char *there = node_label(&o->c->nodes.at[o->c->units.at[i].node.v],
                                                       rule->over),
                                   *here = node_label(n, rule->over);
                        if (!rule->preferred && there && here && strcmp(there, here) == 0 &&
                            has_labels(w, u->tenant, (entry *const *)rule->match, rule->n_match))
                                return true;
                }
        }
        return false;
}

static bool port_is_free(struct oracle *o, struct node_ix n, const Pb__Workload *w)
{
        for (size_t p = 0; p < w->spec->n_ports; p++) {
                for (uint32_t i = 0; i < o->c->units.len; i++)
                        for (size_t q = 0; o->all[i] && o->c->units.at[i].node.v == n.v &&
                                           q < o->all[i]->spec->n_ports;
                             q++)
                                if (o->all[i]->spec->ports[q]->host_port ==
                                        w->spec->ports[p]->host_port &&
                                    str_eq(o->all[i]->spec->ports[q]->protocol,
                                           w->spec->ports[p]->protocol))
                                        return false;
                for (uint32_t t = node_get(o->c, n)->tombstones; t != NONE;
                     t = o->c->tombstones.at[t].next)
                        for (uint32_t q = 0; q < o->c->tombstones.at[t].n_ports; q++)
                                if (o->c->tombstones.at[t].ports[q] == port_key(w->spec->ports[p]))
                                        return false;
        }
        return true;
}

static bool can_take(struct oracle *o, struct node_ix ix, const Pb__Workload *w)
{
        const struct node *n = node_get(o->c, ix);
        if (!could_use(n, w) || !n->heard_at || n->n_lost ||
            tombstone_find(o->c, ix, w->id) != NONE ||
            !amounts_fit(amounts_of(w->resources), ledger_free(&n->ledger)) ||
            !port_is_free(o, ix, w) || kept_away(o, n, w))
                return false;
        for (size_t i = 0; i < w->n_affinity; i++)
                if (!w->affinity[i]->preferred && !near_met(o, n, w, w->affinity[i], false))
                        return false;
        for (size_t i = 0; i < w->n_anti_affinity; i++)
                if (!w->anti_affinity[i]->preferred &&
                    !near_met(o, n, w, w->anti_affinity[i], true))
                        return false;
        for (size_t i = 0; i < w->n_spread; i++)
                if (!w->spread[i]->preferred &&
                    (!node_label(n, w->spread[i]->over) ||
                     skew(o, n, w, w->spread[i]) > (uint32_t)w->spread[i]->max_skew))
                        return false;
        return true;
}

#define PERCENT UINT64_C(21474837)

static uint64_t cost(struct oracle *o, const struct node *n, const Pb__Workload *w)
{
        bool pack =
            (w->strategy ? (int)w->strategy : o->c->opt.strategy) == PB__STRATEGY__E__binpack;
        uint64_t sum =
            pack ? INT32_MAX - ledger_utilisation(&n->ledger) : ledger_utilisation(&n->ledger);
        for (uint32_t i = 0; i < n->n_taints; i++)
                if (n->taints[i].effect == PB__TAINT_EFFECT__E__prefer_no_schedule &&
                    !tolerated(w, &n->taints[i]))
                        sum += 100 * PERCENT;
        for (size_t i = 0; i < w->n_affinity; i++)
                if (w->affinity[i]->preferred && !near_met(o, n, w, w->affinity[i], false))
                        sum += (uint64_t)w->affinity[i]->weight * PERCENT;
        for (size_t i = 0; i < w->n_anti_affinity; i++)
                if (w->anti_affinity[i]->preferred && !near_met(o, n, w, w->anti_affinity[i], true))
                        sum += (uint64_t)w->anti_affinity[i]->weight * PERCENT;
        for (size_t i = 0; i < w->n_spread; i++) {
                const Pb__Spread *s = w->spread[i];
                if (!s->preferred)
                        continue;
                uint32_t max = (uint32_t)s->max_skew,
                         k = node_label(n, s->over) ? skew(o, n, w, s) : max + 1;
                sum += k > max ? (k - max) * 100 * PERCENT : 0;
        }
        return sum;
}

/* The node for this workload, by looking at all of them; "" if there is none. */
static const char *oracle_choice(struct rig *r, const Pb__Workload *w)
{
        struct oracle o;
        uint64_t best = 0;
        const char *id = "";
        oracle_init(&o, r->core);
        for (uint32_t i = 0; i < o.c->nodes.len; i++) {
                if (!o.c->nodes.at[i].id || !can_take(&o, (struct node_ix){ i }, w))
                        continue;
                uint64_t k = cost(&o, &o.c->nodes.at[i], w);
                if (!id[0] || k < best || (k == best && strcmp(o.c->nodes.at[i].id, id) < 0)) {
                        best = k;
                        id = o.c->nodes.at[i].id;
                }
        }
        arena_fini(&o.a);
        return id;
}

/* ---- random lives ---- */

struct life {
        struct rig r;
        struct rng g;
        unsigned nodes, apps, features; /* bits: which constraints there are */
};

enum {
        F_AFFINITY = 1,
        F_ANTI = 2,
        F_SPREAD = 4,
        F_PORTS = 8,
        F_TAINTS = 16,
        F_PREFERRED = 32,
        F_PACK = 64,
        F_ALL = 127
};

static uint64_t below(struct life *x, uint64_t n)
{
        return rng_below(&x->g, n);
}

static const char *pick_over(struct life *x)
{
        static const char *const over[] = { "zone", "rack", "" };
        return over[below(x, 3)];
}

static Pb__Workload *random_workload(struct life *x, const char *id)
{
        struct rig *r = &x->r;
        Pb__Workload *w =
            rig_workload(r, id, (int64_t)below(x, 5) * 100, (int64_t)below(x, 4) * 64);
        if (below(x, 8))
                rig_label(r, w, "app",
                          arena_printf(&r->memory, "a%u", (unsigned)below(x, x->apps)));
        if (below(x, 3) == 0)
                rig_label(r, w, "tier", below(x, 2) ? "front" : "back");
        w->tenant = below(x, 6) ? "" : "other";
        if (below(x, 8) == 0)
                rig_select(r, w, "zone", below(x, 2) ? "z0" : "z1");
        for (int i = 0; i < 2; i++) {
                char *app = arena_printf(&r->memory, "a%u", (unsigned)below(x, x->apps));
                int weight = x->features & F_PREFERRED && below(x, 2) ? 1 + (int)below(x, 150) : 0;
                if (x->features & F_AFFINITY && below(x, 5) == 0)
                        add_affinity(r, w, near(r, "app", app, pick_over(x), weight));
                if (x->features & F_ANTI && below(x, 5) == 0)
                        add_anti(r, w, near(r, "app", app, pick_over(x), weight));
                if (x->features & F_SPREAD && below(x, 4) == 0 && w->n_labels)
                        add_spread(r, w, below(x, 2) ? "zone" : "rack", 1 + (int)below(x, 2),
                                   weight > 0);
        }
        if (x->features & F_PORTS && below(x, 3) == 0)
                add_port(r, w, 8000 + (int)below(x, 4), below(x, 2) ? "tcp" : "udp");
        if (x->features & F_TAINTS && below(x, 4) == 0)
                add_toleration(r, w, below(x, 3) ? "t0" : "*", below(x, 2) ? "v" : "",
                               (Pb__TaintEffect__E)below(x, 4));
        if (x->features & F_PACK)
                w->strategy = (Pb__Strategy__E)below(x, 3);
        return w;
}

static const char *random_node(struct life *x)
{
        return arena_printf(&x->r.memory, "n%04u", (unsigned)below(x, x->nodes));
}

static void join(struct life *x, const char *id)
{
        struct str labels = STR_INIT;
        if (below(x, 10))
                str_addf(&labels, "zone=z%u", (unsigned)below(x, 4));
        if (below(x, 10))
                str_addf(&labels, "%srack=r%u", labels.len ? "," : "",
                         (unsigned)below(x, 1 + x->nodes / 3));
        rig_hello(&x->r, id, 1000 + (int64_t)below(x, 3) * 1000, 4096, 10,
                  labels.len ? str_c(&labels) : NULL);
        str_fini(&labels);
}

static void compare_apply(struct life *x, unsigned i)
{
        struct rig *r = &x->r;
        char *id = arena_printf(&r->memory, "w%u", i);
        struct err err;
        Pb__Workload *w = random_workload(x, id);
        if (rig_get(r, id))
                return;
        if (workload_normalise(&r->memory, w, &err) < 0)
                fail_msg("%s", err.msg);
        const char *want = arena_strdup(&r->memory, oracle_choice(r, w));
        assert_int_equal(rig_apply(r, w)->err.code, ERR_OK);
        if (strcmp(node_of(r, id), want) != 0)
                fail_msg("%s is on \"%s\", the oracle says \"%s\"", id, node_of(r, id), want);
}

/* Nobody waits who would fit (W4). */
static void check_waiting(struct life *x)
{
        const struct core *c = x->r.core;
        for (uint32_t i = 0; i < c->units.len; i++)
                if (c->units.at[i].id && c->units.at[i].waiting && !node_ok(c->units.at[i].node))
                        for (uint32_t n = 0; n < c->nodes.len; n++)
                                if (c->nodes.at[n].id &&
                                    !feasible(c, (struct node_ix){ n },
                                              definition_of(c, &c->units.at[i]), c->units.at[i].id))
                                        fail_msg("%s waits, and would fit on %s", c->units.at[i].id,
                                                 c->nodes.at[n].id);
}

/* The agents prove everything that must go. */
static void agents_obey(struct life *x)
{
        struct core *c = x->r.core;
        for (bool more = true; more;) {
                more = false;
                for (uint32_t t = 0; t < c->tombstones.len && !more; t++)
                        if (c->tombstones.at[t].workload_id &&
                            rig_agent(&x->r, c->nodes.at[c->tombstones.at[t].node.v].id)->session) {
                                rig_is_gone(
                                    &x->r,
                                    arena_strdup(&x->r.memory, c->tombstones.at[t].workload_id),
                                    arena_strdup(&x->r.memory,
                                                 c->nodes.at[c->tombstones.at[t].node.v].id));
                                more = true;
                        }
                for (uint32_t i = 0; i < c->units.len && !more; i++)
                        if (c->units.at[i].id &&
                            c->units.at[i].desired == PB__DESIRED_STATE__E__Deleted &&
                            node_ok(c->units.at[i].node)) {
                                rig_is_gone(&x->r, arena_strdup(&x->r.memory, c->units.at[i].id),
                                            arena_strdup(&x->r.memory,
                                                         c->nodes.at[c->units.at[i].node.v].id));
                                more = true;
                        }
        }
}

static void live(struct life *x, unsigned steps, unsigned ids)
{
        struct rig *r = &x->r;
        for (unsigned i = 0; i < x->nodes; i++)
                join(x, arena_printf(&r->memory, "n%04u", i));
        for (unsigned s = 0; s < steps; s++) {
                switch (below(x, 12)) {
                case 0:
                        rig_delete(r, arena_printf(&r->memory, "w%u", (unsigned)below(x, ids)));
                        break;
                case 1:
                        join(x, random_node(x)); /* with other labels */
                        break;
                case 2:
                        if (x->features & F_TAINTS)
                                taint(r, random_node(x), below(x, 2) ? "t0" : NULL,
                                      (Pb__TaintEffect__E)(1 + below(x, 3)));
                        break;
                case 3:
                        rig_wish(r, random_node(x),
                                 below(x, 3) ? PB__NODE_WISH__E__schedulable
                                             : PB__NODE_WISH__E__draining);
                        break;
                case 4:
                        rig_apply(r, random_workload(x, arena_printf(&r->memory, "w%u",
                                                                     (unsigned)below(x, ids))));
                        break;
                case 5:
                        agents_obey(x);
                        break;
                default:
                        compare_apply(x, (unsigned)below(x, ids));
                }
                check_waiting(x);
                if (s % 50 == 49)
                        rig_check_replay(r);
        }
}

static void lives(uint64_t first, unsigned count, unsigned nodes, unsigned steps, unsigned features)
{
        for (uint64_t seed = first; seed < first + count; seed++) {
                struct life *x = calloc(1, sizeof(*x));
                struct core_options opt;
                core_options_default(&opt);
                if (features & F_PACK && seed % 3 == 0)
                        opt.strategy = PB__STRATEGY__E__binpack;
                rng_seed(&x->g, seed);
                rig_init(&x->r, &opt);
                x->nodes = 2 + (unsigned)below(x, nodes);
                x->apps = 1 + (unsigned)below(x, 6);
                x->features = features;
                live(x, steps, 3 * steps / 4);
                rig_fini(&x->r);
                free(x);
        }
}

/* R: C14 C15 C17 C38 A2 */
static void the_choice_is_that_of_a_plain_loop_over_everything(void **state)
{
        (void)state;
        lives(1, 24, 20, 120, F_ALL);
        lives(100, 6, 30, 120, F_AFFINITY);
        lives(200, 6, 30, 120, F_ANTI);
        lives(300, 6, 30, 120, F_SPREAD);
        lives(400, 6, 30, 120, F_SPREAD | F_PREFERRED | F_PACK);
        lives(500, 6, 10, 120, F_PORTS);
        lives(600, 6, 20, 120, F_TAINTS | F_PACK);
}

/* Beyond 64 nodes the tree, its masks, and lists of few nodes decide.  R: C15 C17 */
static void the_same_holds_in_larger_clusters(void **state)
{
        (void)state;
        lives(1000, 3, 300, 80, F_ALL);
        lives(1100, 2, 300, 80, F_AFFINITY | F_SPREAD);
        lives(1200, 2, 300, 80, F_ANTI | F_PACK | F_TAINTS);
}

/* ---- one by one ---- */

/* R: C17 */
static void units_spread_over_zones_within_the_skew(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        three_zones(&r, 2);
        /* without the label: never, though it is the emptiest */
        rig_hello(&r, "bare", 64000, 65536, 10, NULL);
        unsigned count[3] = { 0 };
        for (int i = 0; i < 12; i++) {
                Pb__Workload *w = labelled(&r, arena_printf(&r.memory, "w%d", i), "web");
                add_spread(&r, w, "zone", 1, false);
                rig_apply(&r, w);
                const char *node = node_of(&r, w->id);
                assert_true(node[0] == 'n');
                count[node[1] - '0']++;
                for (int a = 0; a < 3; a++)
                        for (int b = 0; b < 3; b++)
                                assert_true(count[a] <= count[b] + 1);
        }
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C17 A8 */
static void what_would_exceed_the_skew_waits_and_says_what_would_help(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "a1", 4000, 4096, 10, "zone=a");
        rig_hello(&r, "b1", 100, 4096, 10, "zone=b");
        for (int i = 0; i < 4; i++) {
                Pb__Workload *w = labelled(&r, arena_printf(&r.memory, "w%d", i), "web");
                add_spread(&r, w, "zone", 1, false);
                rig_apply(&r, w);
        }
        assert_phase(&r, "w3", Pending); /* a has 2, b 1 and no room */
        Pb__Explanation *x = rig_explain(&r, "w3");
        assert_int_equal(x->feasible, 0);
        int sum = 0;
        for (size_t i = 0; i < x->n_reasons; i++)
                sum += x->reasons[i]->nodes;
        assert_int_equal(sum, x->nodes);
        bool told = false;
        for (size_t i = 0; i < x->n_would_fit_if; i++)
                told |= strstr(x->would_fit_if[i], "max_skew to 2") != NULL;
        assert_true(told);
        rig_hello(&r, "b2", 4000, 4096, 10, "zone=b"); /* room where it is wanted */
        assert_string_equal(node_of(&r, "w3"), "b2");
        rig_fini(&r);
}

/* A zone of which every node is lost or cordoned is no reason to wait.  R: C17 */
static void a_zone_that_nobody_can_use_does_not_count(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        three_zones(&r, 1);
        rig_wish(&r, "n2-0", PB__NODE_WISH__E__cordoned);
        for (int i = 0; i < 6; i++) {
                Pb__Workload *w = labelled(&r, arena_printf(&r.memory, "w%d", i), "web");
                add_spread(&r, w, "zone", 1, false);
                rig_apply(&r, w);
                assert_string_not_equal(node_of(&r, w->id), "");
        }
        rig_wish(&r, "n2-0", PB__NODE_WISH__E__schedulable);
        for (int i = 6; i < 10; i++) { /* now that one has to catch up */
                Pb__Workload *w = labelled(&r, arena_printf(&r.memory, "w%d", i), "web");
                add_spread(&r, w, "zone", 1, false);
                rig_apply(&r, w);
                assert_string_equal(node_of(&r, w->id), i < 9 ? "n2-0" : "n0-0");
        }
        rig_fini(&r);
}

/* R: C17 */
static void affinity_brings_together_and_the_first_of_its_kind_may_begin(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        three_zones(&r, 3);
        Pb__Workload *lone = labelled(&r, "lone", "web");
        add_affinity(&r, lone, near(&r, "app", "db", "zone", 0));
        rig_apply(&r, lone);
        assert_phase(&r, "lone", Pending);
        assert_int_equal(rig_get(&r, "lone")->status->reason, PB__REASON__E__affinity_unmet);
        for (int i = 0; i < 5; i++) {
                Pb__Workload *w = labelled(&r, arena_printf(&r.memory, "db%d", i), "db");
                add_affinity(&r, w, near(&r, "app", "db", "zone", 0));
                rig_apply(&r, w);
                assert_int_equal(node_of(&r, w->id)[1], node_of(&r, "db0")[1]);
        }
        /* woken by the first of them */
        assert_int_equal(node_of(&r, "lone")[1], node_of(&r, "db0")[1]);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C17 */
static void anti_affinity_works_in_both_directions(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 64000, 65536, 10, NULL);
        rig_hello(&r, "n2", 1000, 1024, 10, NULL);
        Pb__Workload *quiet = labelled(&r, "quiet", "db");
        add_anti(&r, quiet, near(&r, "app", "noisy", "", 0));
        rig_apply(&r, quiet);
        assert_string_equal(node_of(&r, "quiet"), "n1");
        rig_apply(&r, labelled(&r, "plain", "web"));
        rig_apply(&r, labelled(&r, "noisy1", "noisy"));
        assert_string_equal(node_of(&r, "plain"), "n2");  /* the emptier one: nobody minds it */
        assert_string_equal(node_of(&r, "noisy1"), "n2"); /* it has no constraint itself */
        Pb__Workload *big = labelled(&r, "noisy2", "noisy");
        big->resources->cpu = 2000;
        rig_apply(&r, big);
        assert_phase(&r, "noisy2", Pending);
        assert_non_null(strstr(rig_explain(&r, "noisy2")->would_fit_if[0], "app=noisy"));
        rig_delete(&r, "quiet");
        rig_is_gone(&r, "quiet", "n1");
        assert_string_equal(node_of(&r, "noisy2"), "n1");
        rig_fini(&r);
}

/* R: C38 A8 */
static void a_host_port_is_held_once_per_node_and_protocol_until_the_copy_is_gone(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        Pb__Workload *a = rig_workload(&r, "a", 100, 64), *b = rig_workload(&r, "b", 100, 64),
                     *u = rig_workload(&r, "u", 100, 64);
        add_port(&r, a, 8080, "tcp");
        add_port(&r, b, 8080, "");
        add_port(&r, u, 8080, "udp");
        rig_apply(&r, a);
        rig_apply(&r, b);
        rig_apply(&r, u);
        assert_string_equal(node_of(&r, "u"), "n1");
        assert_int_equal(rig_get(&r, "b")->status->reason, PB__REASON__E__port_taken);
        assert_non_null(strstr(rig_explain(&r, "b")->would_fit_if[0],
                               "free port 8080 on n1 (held by workload a)"));
        rig_delete(&r, "a");
        assert_phase(&r, "b", Pending); /* not before it is proved gone */
        rig_is_gone(&r, "a", "n1");
        assert_string_equal(node_of(&r, "b"), "n1");
        rig_check_replay(&r);
        rig_restart(&r);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C38 A8 */
static void taints_keep_away_put_off_and_drive_out(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 64000, 65536, 10, NULL);
        assert_int_equal(taint(&r, "n1", "gpu", PB__TAINT_EFFECT__E__no_schedule)->err.code,
                         ERR_OK);
        rig_mark(&r);
        taint(&r, "n1", "gpu", PB__TAINT_EFFECT__E__no_schedule);
        assert_told(&r, ""); /* the same again is nothing new */
        rig_apply(&r, rig_workload(&r, "w", 100, 64));
        assert_int_equal(rig_get(&r, "w")->status->reason, PB__REASON__E__taint_not_tolerated);
        assert_string_equal(rig_explain(&r, "w")->would_fit_if[0],
                            "remove the taint gpu=v:no-schedule from node n1, or tolerate it");
        Pb__Workload *t = rig_workload(&r, "t", 100, 64);
        add_toleration(&r, t, "gpu", "", 0);
        rig_apply(&r, t);
        assert_string_equal(node_of(&r, "t"), "n1");
        taint(&r, "n1", "gpu", PB__TAINT_EFFECT__E__prefer_no_schedule);
        assert_string_equal(node_of(&r, "w"), "n1"); /* nothing else is left */
        rig_hello(&r, "n2", 1000, 1024, 10, NULL);
        rig_apply(&r, rig_workload(&r, "x", 900, 900));
        assert_string_equal(node_of(&r, "x"), "n2");
        rig_delete(&r, "x");
        rig_is_gone(&r, "x", "n2");
        rig_runs(&r, "w");
        rig_mark(&r);
        taint(&r, "n1", "gpu", PB__TAINT_EFFECT__E__no_execute);
        assert_string_equal(node_of(&r, "w"), "n2");
        assert_int_equal(rig_last(&r, PB__EVENT_TYPE__E__Rescheduled)->reason,
                         PB__REASON__E__taint_not_tolerated);
        assert_string_equal(node_of(&r, "t"), "n1"); /* it tolerates it */
        rig_check_replay(&r);
        rig_restart(&r);
        assert_int_equal(rig_node(&r, "n1")->n_taints, 1);
        rig_fini(&r);
}

/* R: C38 */
static void what_is_driven_out_and_finds_no_other_node_stays_until_there_is_one(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_apply(&r, rig_workload(&r, "w", 100, 64));
        rig_apply(&r, rig_workload(&r, "v", 100, 64));
        rig_runs(&r, "w");
        taint(&r, "n1", "bad", PB__TAINT_EFFECT__E__no_execute);
        assert_string_equal(node_of(&r, "w"), "n1");
        taint(&r, "n1", NULL, 0); /* changed his mind */
        rig_hello(&r, "n2", 4000, 4096, 10, NULL);
        assert_string_equal(node_of(&r, "w"), "n1");
        taint(&r, "n1", "bad", PB__TAINT_EFFECT__E__no_execute);
        assert_string_equal(node_of(&r, "w"), "n2");
        assert_string_equal(node_of(&r, "v"), "n2");
        rig_fini(&r);
}

/* R: C15 */
static void binpack_fills_the_fullest_node_that_fits(void **state)
{
        (void)state;
        struct core_options opt;
        struct rig r;
        core_options_default(&opt);
        opt.strategy = PB__STRATEGY__E__binpack;
        rig_init(&r, &opt);
        for (int i = 0; i < 70; i++)
                rig_hello(&r, arena_printf(&r.memory, "n%02d", i), 1000, 1024, 10, NULL);
        for (int i = 0; i < 25; i++) {
                char *id = arena_printf(&r.memory, "w%02d", i);
                rig_apply(&r, rig_workload(&r, id, 100, 64));
                assert_string_equal(node_of(&r, id), arena_printf(&r.memory, "n%02d", i / 10));
        }
        Pb__Workload *w = rig_workload(&r, "apart", 100, 64);
        w->strategy = PB__STRATEGY__E__spread;
        rig_apply(&r, w);
        assert_string_equal(node_of(&r, "apart"), "n03");
        rig_fini(&r);
}

/* R: C15: 100 at once over ten equal nodes are ten on each. */
static void a_hundred_applied_at_once_are_spread_evenly(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        for (int i = 0; i < 100; i++)
                rig_apply(&r, rig_workload(&r, arena_printf(&r.memory, "w%02d", i), 100, 64));
        for (int i = 0; i < 10; i++)
                rig_hello(&r, arena_printf(&r.memory, "n%d", i), 1000, 1024, 10, NULL);
        for (int i = 0; i < 10; i++)
                assert_int_equal(rig_node(&r, arena_printf(&r.memory, "n%d", i))->units, 10);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(units_spread_over_zones_within_the_skew),
                cmocka_unit_test(what_would_exceed_the_skew_waits_and_says_what_would_help),
                cmocka_unit_test(a_zone_that_nobody_can_use_does_not_count),
                cmocka_unit_test(affinity_brings_together_and_the_first_of_its_kind_may_begin),
                cmocka_unit_test(anti_affinity_works_in_both_directions),
                cmocka_unit_test(
                    a_host_port_is_held_once_per_node_and_protocol_until_the_copy_is_gone),
                cmocka_unit_test(taints_keep_away_put_off_and_drive_out),
                cmocka_unit_test(
                    what_is_driven_out_and_finds_no_other_node_stays_until_there_is_one),
                cmocka_unit_test(binpack_fills_the_fullest_node_that_fits),
                cmocka_unit_test(a_hundred_applied_at_once_are_spread_evenly),
                cmocka_unit_test(the_choice_is_that_of_a_plain_loop_over_everything),
                cmocka_unit_test(the_same_holds_in_larger_clusters),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
