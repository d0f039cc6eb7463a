/* core/constraints.c: a class's constraints: what they forbid, what they would rather not, and how
 * placement finds its way around them (C17, C38).
 *
 * Required ones are filters: constraints_against() is the part of feasible() that knows them.
 * Preferred ones only cost: a preference that a node does not meet counts as if the node were so
 * much fuller. Costs are never negative, so utilisation alone is a lower bound, and the search of
 * place_tree.h stays exact.
 *
 *   affinity        some matched unit is in the node's domain. The first of its kind, which matches
 *                   itself, may go anywhere that has the label.
 *   anti-affinity   no matched unit is there; and nobody is there whose own required anti-affinity
 *                   matches this one.
 *   spread          one more there would leave at most max_skew between this domain and the
 *                   emptiest that has a node which the class could use (Ready, schedulable, of the
 *                   right type, with its labels, without taints that keep it away).
 */
#include "core/constraints.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "core/definitions.h"
#include "core/feasible.h"
#include "core/state.h"
#include <stdlib.h>
#include <string.h>

#define BIT(r) (UINT64_C(1) << PB__REASON__E__##r)
#define WEIGHT_DEFAULT 100
/* of the largest utilisation, rounded up: 100 of them are more than any node's */
#define PERCENT UINT64_C(21474837)
#define MASK_DOMAINS_MAX 16 /* beyond that, label bits are too precious */

/* ---- from the definition ---- */

struct labels {
        Pb__Workload__LabelsEntry **at;
        size_t n;
};

static bool carries(const Pb__Workload *w, struct labels match)
{
        for (size_t i = 0; i < match.n; i++) {
                bool found = false;
                for (size_t k = 0; k < w->n_labels && !found; k++)
                        found = strcmp(w->labels[k]->key, match.at[i]->key) == 0 &&
                                strcmp(w->labels[k]->value, match.at[i]->value) == 0;
                if (!found)
                        return false;
        }
        return true;
}

static struct labels near_match(const Pb__Affinity *a)
{
        /* the same shape: key, value */
        return (struct labels){ (Pb__Workload__LabelsEntry **)a->match, a->n_match };
}

static struct labels spread_match(const Pb__Workload *w, const Pb__Spread *s)
{
        return s->n_match ? (struct labels){ (Pb__Workload__LabelsEntry **)s->match, s->n_match }
                          : (struct labels){ w->labels, w->n_labels };
}

static void labels_key(struct str *key, const Pb__Workload *w, struct labels l, const char *over)
{
        str_addf(key, "%d %s", carries(w, l), over);
        for (size_t i = 0; i < l.n; i++)
                str_addf(key, " %s=%s", l.at[i]->key, l.at[i]->value);
}

static void near_key(struct str *key, const Pb__Workload *w, Pb__Affinity *const *all, size_t n,
                     const char *what)
{
        for (size_t i = 0; i < n; i++) {
                str_addf(key, "\n!%s %d %d ", what, all[i]->preferred, all[i]->weight);
                labels_key(key, w, near_match(all[i]), all[i]->over);
        }
}

static int by_number(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
        return x < y ? -1 : x > y;
}

/* Sorted, each once. */
static uint32_t host_ports(const Pb__Workload *w, uint32_t *ports)
{
        uint32_t n = 0, kept = 0;
        for (size_t i = 0; w->spec && i < w->spec->n_ports && n < PORTS_PER_CLASS_MAX; i++)
                if (port_key(w->spec->ports[i]))
                        ports[n++] = port_key(w->spec->ports[i]);
        if (n > 1)
                qsort(ports, n, sizeof(*ports), by_number);
        for (uint32_t i = 0; i < n; i++)
                if (!kept || ports[kept - 1] != ports[i])
                        ports[kept++] = ports[i];
        return kept;
}

void constraints_key(const Pb__Workload *w, struct str *key)
{
        if (w->priority)
                str_addf(key, "\n!priority %d", w->priority);
        if (w->strategy)
                str_addf(key, "\n!strategy %d", (int)w->strategy);
        for (size_t i = 0; i < w->n_tolerations; i++)
                str_addf(key, "\n!toleration %d %s=%s", (int)w->tolerations[i]->effect,
                         w->tolerations[i]->key, w->tolerations[i]->value);
        if (w->spec && w->spec->n_ports) {
                uint32_t ports[PORTS_PER_CLASS_MAX], n = host_ports(w, ports);
                for (uint32_t i = 0; i < n; i++)
                        str_addf(key, "\n!port %u", ports[i]);
        }
        if (w->n_affinity || w->n_anti_affinity || w->n_spread)
                str_addf(key, "\n!tenant %s", w->tenant);
        near_key(key, w, w->affinity, w->n_affinity, "near");
        near_key(key, w, w->anti_affinity, w->n_anti_affinity, "away");
        for (size_t i = 0; i < w->n_spread; i++) {
                str_addf(key, "\n!spread %d %d ", w->spread[i]->preferred, w->spread[i]->max_skew);
                labels_key(key, w, spread_match(w, w->spread[i]), w->spread[i]->over);
        }
}

static void near_init(struct core *c, uint32_t class, const Pb__Workload *w, const Pb__Affinity *a,
                      bool anti)
{
        struct constraints *m = c->classes.at[class].more;
        struct labels match = near_match(a);
        if (!match.n)
                return; /* a damaged store: it would match everybody */
        uint32_t k = counter_intern(c, w->tenant, match.at, match.n, a->over);
        m->near[m->n_near++] =
            (struct near){ .counter = k,
                           .weight = a->weight > 0 ? (uint32_t)a->weight : WEIGHT_DEFAULT,
                           .anti = anti,
                           .preferred = a->preferred,
                           .self = carries(w, match) };
        *array_push(&c->counts.counters.at[k].classes) = class;
}

static void spread_init(struct core *c, uint32_t class, const Pb__Workload *w,
                        const Pb__Spread *from)
{
        struct constraints *m = c->classes.at[class].more;
        struct labels match = spread_match(w, from);
        if (!match.n)
                return;
        uint32_t k = counter_intern(c, w->tenant, match.at, match.n, from->over);
        struct spread *s = &m->spread[m->n_spread++];
        *s = (struct spread){ .counter = k,
                              .max_skew = from->max_skew > 0 ? (uint32_t)from->max_skew : 1,
                              .preferred = from->preferred,
                              .self = carries(w, match) };
        *array_push(&c->counts.counters.at[k].classes) = class;
        *array_push(&c->counts.counters.at[k].spreads) = s;
}

void constraints_init(struct core *c, uint32_t class, const Pb__Workload *w)
{
        uint32_t ports[PORTS_PER_CLASS_MAX],
            n_ports = w->spec && w->spec->n_ports ? host_ports(w, ports) : 0;
        size_t n_near = w->n_affinity + w->n_anti_affinity;
        c->classes.at[class].priority = w->priority;
        c->classes.at[class].strategy = (uint8_t)w->strategy;
        if (!w->n_tolerations && !n_near && !w->n_spread && !n_ports)
                return;
        struct constraints *m = c->classes.at[class].more = mem_must(sizeof(*m));
        if (w->n_tolerations)
                m->tolerations = mem_must(w->n_tolerations * sizeof(*m->tolerations));
        for (size_t i = 0; i < w->n_tolerations; i++)
                m->tolerations[m->n_tolerations++] =
                    (struct toleration){ mem_strdup(w->tolerations[i]->key),
                                         mem_strdup(w->tolerations[i]->value),
                                         (uint8_t)w->tolerations[i]->effect };
        if (n_ports)
                m->ports = mem_dup(ports, n_ports * sizeof(*ports));
        m->n_ports = n_ports;
        if (n_near)
                m->near = mem_must(n_near * sizeof(*m->near));
        for (size_t i = 0; i < w->n_affinity; i++)
                near_init(c, class, w, w->affinity[i], false);
        for (size_t i = 0; i < w->n_anti_affinity; i++)
                near_init(c, class, w, w->anti_affinity[i], true);
        if (w->n_spread)
                m->spread = mem_must(w->n_spread * sizeof(*m->spread));
        for (size_t i = 0; i < w->n_spread; i++)
                spread_init(c, class, w, w->spread[i]);
}

static void counter_forgets(struct core *c, uint32_t k, uint32_t class, const struct spread *s)
{
        struct counter *counter = &c->counts.counters.at[k];
        for (size_t i = 0; i < counter->classes.len; i++)
                if (counter->classes.at[i] == class) {
                        counter->classes.at[i] = counter->classes.at[--counter->classes.len];
                        break;
                }
        for (size_t i = 0; s && i < counter->spreads.len; i++)
                if (counter->spreads.at[i] == s) {
                        counter->spreads.at[i] = counter->spreads.at[--counter->spreads.len];
                        break;
                }
        counter_unref(c, k);
}

void constraints_fini(struct core *c, uint32_t class)
{
        struct constraints *m = c->classes.at[class].more;
        if (!m)
                return;
        for (uint32_t i = 0; i < m->n_tolerations; i++) {
                mem_free(m->tolerations[i].key);
                mem_free(m->tolerations[i].value);
        }
        for (uint32_t i = 0; i < m->n_near; i++)
                counter_forgets(c, m->near[i].counter, class, NULL);
        for (uint32_t i = 0; i < m->n_spread; i++) {
                counter_forgets(c, m->spread[i].counter, class, &m->spread[i]);
                mem_free(m->spread[i].eligible);
        }
        mem_free(m->tolerations);
        mem_free(m->near);
        mem_free(m->spread);
        mem_free(m->ports);
        mem_free(m);
        c->classes.at[class].more = NULL;
}

/* ---- spread ---- */

static void find_eligible(const struct core *c, const struct class *k, struct spread *s)
{
        const struct counter *counter = &c->counts.counters.at[s->counter];
        const struct topology *t = c->counts.topologies.at[counter->topology];
        uint32_t words = (uint32_t)((t->key[0] ? t->domains.len : c->nodes.len) + 63) / 64;
        if (words > s->n_words) {
                s->eligible = mem_must_resize(s->eligible, words * sizeof(*s->eligible));
                s->n_words = words;
        }
        if (s->n_words)
                memset(s->eligible, 0, s->n_words * sizeof(*s->eligible));
        s->n_eligible = 0;
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                uint32_t d = c->nodes.at[i].id ? domain_of(c, counter, i) : NONE;
                if (d == NONE || s->eligible[d / 64] >> (d % 64) & 1 ||
                    !class_could_use(&c->nodes.at[i], k))
                        continue;
                s->eligible[d / 64] |= UINT64_C(1) << (d % 64);
                s->n_eligible++;
        }
        s->version = c->counts.eligibility;
        s->min_known = false;
}

uint32_t spread_min(const struct core *c, const struct class *k, struct spread *s)
{
        if (s->version != c->counts.eligibility)
                find_eligible(c, k, s);
        if (s->min_known)
                return s->min;
        const struct tally *units = &c->counts.counters.at[s->counter].units;
        uint32_t seen = 0;
        s->min = UINT32_MAX;
        s->at_min = 0;
        for (uint32_t i = 0; i < units->cap; i++) {
                uint32_t d = units->slots[i].key, count = units->slots[i].count;
                if (!count || d / 64 >= s->n_words || !(s->eligible[d / 64] >> (d % 64) & 1))
                        continue;
                seen++;
                if (count < s->min) {
                        s->min = count;
                        s->at_min = 0;
                }
                s->at_min += count == s->min;
        }
        if (seen < s->n_eligible || !seen) {
                s->min = 0;
                s->at_min = s->n_eligible - seen;
        }
        s->min_known = true;
        return s->min;
}

uint32_t spread_skew(const struct core *c, const struct class *k, struct spread *s, uint32_t domain)
{
        uint32_t count = tally_get(&c->counts.counters.at[s->counter].units, domain) + s->self,
                 min = spread_min(c, k, s);
        return count > min ? count - min : 0;
}

/* ---- against a node ---- */

static bool first_of_its_kind(const struct core *c, const struct near *a)
{
        return a->self && !c->counts.counters.at[a->counter].units.total;
}

bool near_is_met(const struct core *c, uint32_t node, const struct near *a)
{
        const struct counter *k = &c->counts.counters.at[a->counter];
        uint32_t d = domain_of(c, k, node);
        if (a->anti)
                return d == NONE || !tally_get(&k->units, d);
        return d != NONE && (tally_get(&k->units, d) || first_of_its_kind(c, a));
}

static bool is_kept_away(const struct core *c, uint32_t node, const struct definition *d)
{
        if (MUTANT(anti_affinity_one_way))
                return false;
        for (size_t m = 0; m < d->matches.len; m++) {
                const struct match *match = &c->counts.matches.at[d->matches.at[m]];
                for (size_t i = 0; i < match->counters.len; i++) {
                        const struct counter *k = &c->counts.counters.at[match->counters.at[i]];
                        uint32_t domain = k->guards.len ? domain_of(c, k, node) : NONE;
                        if (domain != NONE && tally_get(&k->guards, domain))
                                return true;
                }
        }
        return false;
}

uint64_t constraints_against(const struct core *c, struct node_ix n, const struct definition *d)
{
        const struct class *k = &c->classes.at[d->class];
        const struct constraints *m = k->more;
        const struct node *node = node_get(c, n);
        uint64_t bits = 0;
        if (node->n_taints && taints_keep_away(node, m))
                bits |= BIT(taint_not_tolerated);
        if (d->matches.len && is_kept_away(c, n.v, d))
                bits |= BIT(anti_affinity);
        if (!m)
                return bits;
        if (m->n_ports && !MUTANT(port_ignored) &&
            (ports_taken(node, m->ports, m->n_ports) ||
             (!MUTANT(ports_not_kept) && ports_kept(node, m->ports, m->n_ports))))
                bits |= BIT(port_taken);
        for (uint32_t i = 0; i < m->n_near; i++)
                if (!m->near[i].preferred && !near_is_met(c, n.v, &m->near[i]))
                        bits |= m->near[i].anti ? BIT(anti_affinity) : BIT(affinity_unmet);
        for (uint32_t i = 0; i < m->n_spread; i++) {
                struct spread *s = &m->spread[i];
                if (s->preferred)
                        continue;
                uint32_t domain = domain_of(c, &c->counts.counters.at[s->counter], n.v);
                if (domain == NONE ||
                    spread_skew(c, k, s, domain) > s->max_skew + (uint32_t)MUTANT(skew_off_by_one))
                        bits |= BIT(spread_exceeded);
        }
        return bits;
}

uint64_t constraints_cost(const struct core *c, struct node_ix n, const struct definition *d)
{
        const struct class *k = &c->classes.at[d->class];
        const struct constraints *m = k->more;
        const struct node *node = node_get(c, n);
        uint64_t cost = 0;
        for (uint32_t i = 0; i < node->n_taints; i++)
                if (node->taints[i].effect == PB__TAINT_EFFECT__E__prefer_no_schedule &&
                    !tolerates(m, &node->taints[i]))
                        cost += WEIGHT_DEFAULT * PERCENT;
        for (uint32_t i = 0; m && i < m->n_near; i++)
                if (m->near[i].preferred && !near_is_met(c, n.v, &m->near[i]))
                        cost += m->near[i].weight * PERCENT;
        for (uint32_t i = 0; m && i < m->n_spread; i++) {
                struct spread *s = &m->spread[i];
                if (!s->preferred)
                        continue;
                uint32_t domain = domain_of(c, &c->counts.counters.at[s->counter], n.v);
                uint32_t skew = domain == NONE ? s->max_skew + 1 : spread_skew(c, k, s, domain);
                if (skew > s->max_skew)
                        cost += (uint64_t)(skew - s->max_skew) * WEIGHT_DEFAULT * PERCENT;
        }
        return cost;
}

bool is_guarded(const struct core *c, const struct definition *d)
{
        for (size_t m = 0; m < d->matches.len; m++) {
                const struct match *match = &c->counts.matches.at[d->matches.at[m]];
                for (size_t i = 0; i < match->counters.len; i++)
                        if (c->counts.counters.at[match->counters.at[i]].guards.len)
                                return true;
        }
        return false;
}

bool is_plain(const struct core *c, const struct definition *d)
{
        return !c->classes.at[d->class].more && (!d->matches.len || !is_guarded(c, d));
}

/* ---- for speed ---- */

/* Gives each domain a bit in the nodes' label masks, if there are few of them and bits are left. */
static bool domains_have_bits(struct core *c, struct topology *t)
{
        if (!t->key[0] || t->n_domains > MASK_DOMAINS_MAX)
                return false;
        for (size_t i = 0; i < t->domains.len; i++) {
                struct domain *d = &t->domains.at[i];
                if (d->value && d->bit < 0)
                        d->bit = label_bit_ref(c, t->key, d->value);
                if (d->value && d->bit < 0)
                        return false;
        }
        return true;
}

uint32_t constraints_masks(struct core *c, const struct definition *d, uint64_t *masks,
                           uint32_t max)
{
        const struct class *k = &c->classes.at[d->class];
        const struct constraints *m = k->more;
        uint32_t n = 0;
        for (uint32_t i = 0; m && i < m->n_near && n < max; i++) {
                const struct near *a = &m->near[i];
                const struct counter *counter = &c->counts.counters.at[a->counter];
                struct topology *t = c->counts.topologies.at[counter->topology];
                /* they have no bit, and are near nobody */
                bool bare_nodes_too = a->anti && t->n_labelled < c->n_nodes;
                if (a->preferred || bare_nodes_too || (!a->anti && first_of_its_kind(c, a)) ||
                    !domains_have_bits(c, t))
                        continue;
                masks[n] = 0;
                for (uint32_t j = 0; j < t->domains.len; j++)
                        if (t->domains.at[j].value &&
                            (tally_get(&counter->units, j) == 0) == a->anti)
                                masks[n] |= UINT64_C(1) << t->domains.at[j].bit;
                n++;
        }
        for (uint32_t i = 0; m && i < m->n_spread && n < max; i++) {
                struct spread *s = &m->spread[i];
                struct topology *t =
                    c->counts.topologies.at[c->counts.counters.at[s->counter].topology];
                if (s->preferred || !domains_have_bits(c, t))
                        continue;
                masks[n] = 0;
                for (uint32_t j = 0; j < t->domains.len; j++)
                        if (t->domains.at[j].value &&
                            spread_skew(c, k, s, j) <=
                                s->max_skew + (uint32_t)MUTANT(skew_off_by_one))
                                masks[n] |= UINT64_C(1) << t->domains.at[j].bit;
                n++;
        }
        return n;
}

static uint32_t nodes_near(const struct core *c, const struct near *a, uint32_t *nodes,
                           uint32_t max)
{
        const struct counter *k = &c->counts.counters.at[a->counter];
        const struct topology *t = c->counts.topologies.at[k->topology];
        uint32_t n = 0;
        for (uint32_t i = 0; i < k->units.cap; i++) {
                if (!k->units.slots[i].count)
                        continue;
                uint32_t d = k->units.slots[i].key, own[] = { d };
                const uint32_t *list = t->key[0] ? t->domains.at[d].nodes.at : own;
                size_t len = t->key[0] ? t->domains.at[d].nodes.len : 1;
                if (n + len > max)
                        return UINT32_MAX;
                for (size_t j = 0; j < len; j++)
                        nodes[n++] = list[j];
        }
        return n;
}

uint32_t constraints_few(const struct core *c, const struct definition *d, uint32_t *nodes,
                         uint32_t max)
{
        const struct constraints *m = c->classes.at[d->class].more;
        for (uint32_t i = 0; m && i < m->n_near; i++) {
                if (m->near[i].anti || m->near[i].preferred || first_of_its_kind(c, &m->near[i]))
                        continue;
                uint32_t n = nodes_near(c, &m->near[i], nodes, max);
                if (n != UINT32_MAX)
                        return n;
        }
        return UINT32_MAX;
}
