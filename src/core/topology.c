/* core/topology.c: who is where, counted as units come and go (C17).
 *
 * A constraint names labels of its neighbours and a label of nodes. Were the neighbours looked for
 * at each placement, placing n units would cost n * n. Instead there is one counter per (labels,
 * node label) that some class names, and a unit that takes or leaves its place changes the counters
 * that match it. To find those fast, a definition keeps the list of the matches that it has; a new
 * match finds its definitions, and a new definition its matches, by a label pair that both carry.
 * Nothing of this exists as long as no workload has a constraint.
 *
 * Invariant (P5): every counter equals a count over all units that hold a place (check.c).
 */
#include "base/mem.h"
#include "base/mutant.h"
#include "core/definitions.h"
#include "core/state.h"
#include <string.h>

static struct map_key pair_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->counts.pairs.at[i].text, strlen(c->counts.pairs.at[i].text) };
}

void counts_init(struct core *c)
{
        map_init(&c->counts.pair_by_text, pair_key, c);
        c->counts.eligibility = 1;
}

void counts_fini(struct core *c)
{
        struct counts *s = &c->counts;
        array_fini(&s->pairs);
        array_fini(&s->matches);
        array_fini(&s->topologies);
        array_fini(&s->counters);
        array_fini(&s->free_pairs);
        array_fini(&s->free_matches);
        array_fini(&s->free_topologies);
        array_fini(&s->free_counters);
        map_fini(&s->pair_by_text);
}

/* A slot that is free, or a new one. */
#define SLOT(all, unused)                                                                          \
        ((unused)->len ? array_pop(unused) : (array_push(all), (uint32_t)(all)->len - 1))

/* ---- pairs ---- */

static uint32_t pair_intern(struct core *c, const char *tenant, const char *key, const char *value)
{
        struct counts *s = &c->counts;
        char *text = arena_printf(&c->step, "%s\n%s=%s", tenant ? tenant : "", key, value);
        uint32_t p = map_get(&s->pair_by_text, text, strlen(text));
        if (p == MAP_NONE) {
                p = SLOT(&s->pairs, &s->free_pairs);
                s->pairs.at[p] = (struct pair){ .text = mem_strdup(text) };
                map_put(&s->pair_by_text, p);
        }
        s->pairs.at[p].refs++;
        return p;
}

static void pair_unref(struct core *c, uint32_t p)
{
        struct pair *pair = &c->counts.pairs.at[p];
        if (--pair->refs)
                return;
        map_remove(&c->counts.pair_by_text, p);
        mem_free(pair->text);
        array_fini(&pair->definitions);
        array_fini(&pair->matches);
        *pair = (struct pair){ 0 };
        *array_push(&c->counts.free_pairs) = p;
}

static bool definition_has(const struct definition *d, uint32_t pair)
{
        for (uint32_t i = 0; i < d->n_pairs; i++)
                if (d->pairs[i].pair == pair)
                        return true;
        return false;
}

static bool definition_is_matched(const struct definition *d, const struct match *m)
{
        for (uint32_t i = 0; i < m->n_pairs; i++)
                if (!definition_has(d, m->pairs[i]))
                        return false;
        return true;
}

static void list_remove(uint32_t *list, size_t *len, uint32_t v)
{
        for (size_t i = 0; i < *len; i++)
                if (list[i] == v) {
                        list[i] = list[--*len];
                        return;
                }
}

/* ---- counters ---- */

uint32_t domain_of(const struct core *c, const struct counter *k, uint32_t node)
{
        const struct topology *t = c->counts.topologies.at[k->topology];
        if (!t->key[0])
                return node;
        return node < t->of_node.len ? t->of_node.at[node] : NONE;
}

/* The minimum of each spread follows without a look at the other domains, until the last of those
 * at the minimum has left it. */
static void spread_follows(struct spread *s, uint32_t domain, uint32_t now, int by)
{
        if (!s->min_known || domain / 64 >= s->n_words ||
            !(s->eligible[domain / 64] >> (domain % 64) & 1))
                return;
        uint32_t before = now - (uint32_t)by;
        if (now < s->min) {
                s->min = now;
                s->at_min = 1;
        } else if (now == s->min)
                s->at_min++;
        else if (before == s->min && --s->at_min == 0)
                s->min_known = false;
}

static void counter_wakes(struct core *c, struct counter *k)
{
        for (size_t i = 0; i < k->classes.len && !c->counts.quiet; i++) {
                struct class *class = &c->classes.at[k->classes.at[i]];
                class->tried_at = class->none_at = UINT64_MAX;
                class->woken = true;
        }
}

static void counter_add(struct core *c, struct counter *k, uint32_t node, int by)
{
        uint32_t domain = domain_of(c, k, node);
        if (domain == NONE)
                return;
        uint32_t now = tally_add(&k->units, domain, by);
        for (size_t i = 0; i < k->spreads.len; i++)
                spread_follows(k->spreads.at[i], domain, now, by);
        counter_wakes(c, k);
}

static void guard_add(struct core *c, struct counter *k, uint32_t node, int by)
{
        uint32_t domain = domain_of(c, k, node);
        if (domain != NONE && tally_add(&k->guards, domain, by) == 0 && !c->counts.quiet)
                c->capacity_change++; /* somebody whom it kept away may come now */
}

void counts_unit(struct core *c, const struct unit *w, int by)
{
        const struct definition *d = definition_of(c, w);
        const struct constraints *more = c->classes.at[d->class].more;
        if (more && more->n_ports)
                ports_hold(c, w->node, more->ports, more->n_ports, by);
        if (!c->counts.n_counters)
                return;
        for (size_t m = 0; m < d->matches.len; m++) {
                const struct match *match = &c->counts.matches.at[d->matches.at[m]];
                for (size_t i = 0; i < match->counters.len; i++)
                        counter_add(c, &c->counts.counters.at[match->counters.at[i]], w->node.v,
                                    by);
        }
        for (uint32_t i = 0; more && i < more->n_near; i++)
                if (more->near[i].anti && !more->near[i].preferred)
                        guard_add(c, &c->counts.counters.at[more->near[i].counter], w->node.v, by);
}

void counts_unit_quietly(struct core *c, const struct unit *w, int by)
{
        c->counts.quiet = true;
        counts_unit(c, w, by);
        c->counts.quiet = false;
}

/* ---- topologies ---- */

static struct map_key domain_key(const void *ctx, uint32_t i)
{
        const struct topology *t = ctx;
        return (struct map_key){ t->domains.at[i].value, strlen(t->domains.at[i].value) };
}

static uint32_t domain_intern(struct topology *t, const char *value)
{
        uint32_t d = map_get(&t->domain_by_value, value, strlen(value));
        if (d != MAP_NONE)
                return d;
        d = SLOT(&t->domains, &t->free_domains);
        t->domains.at[d] = (struct domain){ .value = mem_strdup(value), .bit = -1 };
        map_put(&t->domain_by_value, d);
        t->n_domains++;
        return d;
}

static void topology_join(struct core *c, struct topology *t, uint32_t node)
{
        if (!t->key[0])
                return;
        while (t->of_node.len <= node)
                *array_push(&t->of_node) = NONE;
        const struct node *n = &c->nodes.at[node];
        const char *value = n->id ? label_get(n->labels, n->n_labels, t->key) : NULL;
        if (!value)
                return;
        uint32_t d = domain_intern(t, value);
        t->n_labelled++;
        t->of_node.at[node] = d;
        *array_push(&t->domains.at[d].nodes) = node;
}

static void topology_leave(struct core *c, struct topology *t, uint32_t node)
{
        if (!t->key[0] || node >= t->of_node.len || t->of_node.at[node] == NONE)
                return;
        uint32_t di = t->of_node.at[node];
        struct domain *d = &t->domains.at[di];
        t->of_node.at[node] = NONE;
        t->n_labelled--;
        list_remove(d->nodes.at, &d->nodes.len, node);
        if (d->nodes.len)
                return;
        map_remove(&t->domain_by_value, di);
        if (d->bit >= 0)
                label_bit_unref(c, d->bit);
        mem_free(d->value);
        array_fini(&d->nodes);
        *d = (struct domain){ 0 };
        *array_push(&t->free_domains) = di;
        t->n_domains--;
}

static uint32_t topology_intern(struct core *c, const char *key)
{
        struct counts *s = &c->counts;
        for (uint32_t i = 0; i < s->topologies.len; i++)
                if (s->topologies.at[i] && strcmp(s->topologies.at[i]->key, key) == 0) {
                        s->topologies.at[i]->refs++;
                        return i;
                }
        uint32_t ti = SLOT(&s->topologies, &s->free_topologies);
        struct topology *t = s->topologies.at[ti] = mem_must(sizeof(*t));
        *t = (struct topology){ .key = mem_strdup(key), .refs = 1 };
        map_init(&t->domain_by_value, domain_key, t);
        for (uint32_t i = 0; i < c->nodes.len; i++)
                topology_join(c, t, i);
        return ti;
}

static void topology_unref(struct core *c, uint32_t ti)
{
        struct topology *t = c->counts.topologies.at[ti];
        if (--t->refs)
                return;
        for (size_t i = 0; i < t->domains.len; i++) {
                if (t->domains.at[i].value && t->domains.at[i].bit >= 0)
                        label_bit_unref(c, t->domains.at[i].bit);
                mem_free(t->domains.at[i].value);
                array_fini(&t->domains.at[i].nodes);
        }
        map_fini(&t->domain_by_value);
        array_fini(&t->domains);
        array_fini(&t->free_domains);
        array_fini(&t->of_node);
        mem_free(t->key);
        mem_free(t);
        c->counts.topologies.at[ti] = NULL;
        *array_push(&c->counts.free_topologies) = ti;
}

static void count_units_of(struct core *c, struct node_ix n, int by)
{
        for (struct unit_ix w = node_at(c, n)->units; unit_ok(w); w = unit_at(c, w)->node_next)
                if (unit_at(c, w)->holds)
                        counts_unit(c, unit_at(c, w), by);
}

void counts_node_before(struct core *c, struct node_ix n)
{
        c->counts.eligibility++;
        if (c->counts.n_counters)
                count_units_of(c, n, -1);
        for (size_t t = 0; t < c->counts.topologies.len; t++)
                if (c->counts.topologies.at[t])
                        topology_leave(c, c->counts.topologies.at[t], n.v);
}

void counts_node_after(struct core *c, struct node_ix n)
{
        for (size_t t = 0; t < c->counts.topologies.len; t++)
                if (c->counts.topologies.at[t])
                        topology_join(c, c->counts.topologies.at[t], n.v);
        if (c->counts.n_counters)
                count_units_of(c, n, 1);
}

void counts_node_gone(struct core *c, struct node_ix n)
{
        c->counts.eligibility++;
        for (size_t t = 0; t < c->counts.topologies.len; t++)
                if (c->counts.topologies.at[t])
                        topology_leave(c, c->counts.topologies.at[t], n.v);
}

/* ---- definitions and matches ---- */

static void definition_index(struct core *c, uint32_t di, const Pb__Workload *w)
{
        struct definition *d = &c->definitions.at[di];
        if (!w->n_labels)
                return;
        d->pairs = mem_must(w->n_labels * sizeof(*d->pairs));
        for (size_t i = 0; i < w->n_labels; i++) {
                uint32_t p = pair_intern(c, w->tenant, w->labels[i]->key, w->labels[i]->value);
                if (definition_has(d, p)) { /* a damaged store: a key that is there twice */
                        pair_unref(c, p);
                        continue;
                }
                struct pair *pair = &c->counts.pairs.at[p];
                d->pairs[d->n_pairs++] = (struct pair_place){ p, (uint32_t)pair->definitions.len };
                *array_push(&pair->definitions) = di;
        }
}

static void index_all(struct core *c)
{
        c->counts.indexed = true;
        for (uint32_t i = 0; i < c->definitions.len; i++) {
                if (!c->definitions.at[i].data || c->definitions.at[i].pairs)
                        continue;
                struct arena_allocator alloc = arena_allocator(&c->step);
                Pb__Workload *w =
                    pb__workload__unpack((ProtobufCAllocator *)&alloc, c->definitions.at[i].len,
                                         c->definitions.at[i].data);
                must(w, "X3: a definition that was packed can be unpacked");
                definition_index(c, i, w);
        }
}

void counts_definition(struct core *c, uint32_t di, const Pb__Workload *w)
{
        struct definition *d = &c->definitions.at[di];
        if (!c->counts.indexed)
                return;
        definition_index(c, di, w);
        for (uint32_t i = 0; i < d->n_pairs; i++) {
                const struct pair *p = &c->counts.pairs.at[d->pairs[i].pair];
                for (size_t m = 0; m < p->matches.len; m++)
                        if (definition_is_matched(d, &c->counts.matches.at[p->matches.at[m]]))
                                *array_push(&d->matches) = p->matches.at[m];
        }
}

void counts_definition_gone(struct core *c, uint32_t di)
{
        struct definition *d = &c->definitions.at[di];
        for (uint32_t i = 0; i < d->n_pairs; i++) {
                struct pair *p = &c->counts.pairs.at[d->pairs[i].pair];
                uint32_t at = d->pairs[i].at, last = p->definitions.at[p->definitions.len - 1];
                p->definitions.at[at] = last;
                p->definitions.len--;
                struct definition *moved = &c->definitions.at[last];
                for (uint32_t k = 0; last != di && k < moved->n_pairs; k++)
                        if (moved->pairs[k].pair == d->pairs[i].pair)
                                moved->pairs[k].at = at;
                pair_unref(c, d->pairs[i].pair);
        }
        mem_free(d->pairs);
        d->pairs = NULL;
        d->n_pairs = 0;
        array_fini(&d->matches);
}

static bool match_is(const struct match *m, const uint32_t *pairs, uint32_t n)
{
        if (m->n_pairs != n)
                return false;
        for (uint32_t i = 0; i < n; i++)
                if (m->pairs[i] != pairs[i])
                        return false;
        return true;
}

/* Where fewest others are: a pair like env=prod that everybody has would make every search long. */
static uint32_t choose_anchor(const struct core *c, const uint32_t *pairs, uint32_t n)
{
        uint32_t best = pairs[0];
        size_t least = SIZE_MAX;
        for (uint32_t i = 0; i < n; i++) {
                const struct pair *p = &c->counts.pairs.at[pairs[i]];
                if (p->definitions.len + p->matches.len < least) {
                        least = p->definitions.len + p->matches.len;
                        best = pairs[i];
                }
        }
        return best;
}

static uint32_t match_find(const struct core *c, const uint32_t *pairs, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                const struct pair *p = &c->counts.pairs.at[pairs[i]];
                for (size_t m = 0; m < p->matches.len; m++)
                        if (match_is(&c->counts.matches.at[p->matches.at[m]], pairs, n))
                                return p->matches.at[m];
        }
        return NONE;
}

/* pairs: owned by the new match, or given back. */
static uint32_t match_intern(struct core *c, uint32_t *pairs, uint32_t n)
{
        struct counts *s = &c->counts;
        uint32_t m = match_find(c, pairs, n);
        if (m != NONE) {
                for (uint32_t i = 0; i < n; i++)
                        pair_unref(c, pairs[i]);
                mem_free(pairs);
                return m;
        }
        m = SLOT(&s->matches, &s->free_matches);
        s->matches.at[m] =
            (struct match){ .pairs = pairs, .n_pairs = n, .anchor = choose_anchor(c, pairs, n) };
        struct pair *anchor = &s->pairs.at[s->matches.at[m].anchor];
        *array_push(&anchor->matches) = m;
        for (size_t i = 0; i < anchor->definitions.len; i++) {
                struct definition *d = &c->definitions.at[anchor->definitions.at[i]];
                if (definition_is_matched(d, &s->matches.at[m]))
                        *array_push(&d->matches) = m;
        }
        return m;
}

static void match_unref(struct core *c, uint32_t mi)
{
        struct match *m = &c->counts.matches.at[mi];
        if (--m->refs)
                return;
        struct pair *anchor = &c->counts.pairs.at[m->anchor];
        list_remove(anchor->matches.at, &anchor->matches.len, mi);
        for (size_t i = 0; i < anchor->definitions.len; i++) {
                struct definition *d = &c->definitions.at[anchor->definitions.at[i]];
                list_remove(d->matches.at, &d->matches.len, mi);
        }
        for (uint32_t i = 0; i < m->n_pairs; i++)
                pair_unref(c, m->pairs[i]);
        mem_free(m->pairs);
        array_fini(&m->counters);
        *m = (struct match){ 0 };
        *array_push(&c->counts.free_matches) = mi;
}

/* Those that are there already. */
static void counter_begin(struct core *c, uint32_t ki)
{
        const struct match *m = &c->counts.matches.at[c->counts.counters.at[ki].match];
        const struct pair *anchor = &c->counts.pairs.at[m->anchor];
        for (size_t i = 0; i < anchor->definitions.len; i++) {
                const struct definition *d = &c->definitions.at[anchor->definitions.at[i]];
                if (!definition_is_matched(d, m))
                        continue;
                for (struct unit_ix w = d->users; unit_ok(w); w = unit_at(c, w)->same_next)
                        if (unit_at(c, w)->holds)
                                counter_add(c, &c->counts.counters.at[ki], unit_at(c, w)->node.v,
                                            1);
        }
}

uint32_t counter_intern(struct core *c, const char *tenant,
                        Pb__Workload__LabelsEntry *const *labels, size_t n, const char *over)
{
        struct counts *s = &c->counts;
        if (!s->indexed)
                index_all(c);
        uint32_t *pairs = mem_must((n ? n : 1) * sizeof(*pairs));
        for (size_t i = 0; i < n; i++)
                pairs[i] = pair_intern(c, tenant, labels[i]->key, labels[i]->value);
        uint32_t m = match_intern(c, pairs, (uint32_t)n), t = topology_intern(c, over ? over : "");
        for (size_t i = 0; i < s->matches.at[m].counters.len; i++) {
                uint32_t k = s->matches.at[m].counters.at[i];
                if (s->counters.at[k].topology == t) {
                        topology_unref(c, t);
                        s->counters.at[k].refs++;
                        return k;
                }
        }
        uint32_t k = SLOT(&s->counters, &s->free_counters);
        s->counters.at[k] = (struct counter){ .refs = 1, .match = m, .topology = t };
        s->matches.at[m].refs++;
        *array_push(&s->matches.at[m].counters) = k;
        s->n_counters++;
        counter_begin(c, k);
        return k;
}

void counter_unref(struct core *c, uint32_t ki)
{
        struct counter *k = &c->counts.counters.at[ki];
        if (--k->refs)
                return;
        struct match *m = &c->counts.matches.at[k->match];
        list_remove(m->counters.at, &m->counters.len, ki);
        uint32_t match = k->match, topology = k->topology;
        tally_fini(&k->units);
        tally_fini(&k->guards);
        array_fini(&k->classes);
        array_fini(&k->spreads);
        *k = (struct counter){ 0 };
        *array_push(&c->counts.free_counters) = ki;
        c->counts.n_counters--;
        match_unref(c, match);
        topology_unref(c, topology);
}

void match_text(const struct core *c, uint32_t match, struct str *out)
{
        const struct match *m = &c->counts.matches.at[match];
        for (uint32_t i = 0; i < m->n_pairs; i++)
                str_addf(out, "%s%s", i ? "," : "",
                         strchr(c->counts.pairs.at[m->pairs[i]].text, '\n') + 1);
}
