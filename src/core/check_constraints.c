/* core/check_constraints.c: counters, ports and taints, counted anew: (P5) and (P6) of
 * docs/invariants.md, and what they look like as text.
 *
 * Slow on purpose, and plain: labels are compared as texts, domains are read from the nodes'
 * labels.
 */
#include "base/mem.h"
#include "core/check.h"
#include "core/definitions.h"
#include "core/feasible.h"
#include "core/state.h"
#include <stdlib.h>
#include <string.h>

#define BROKEN(err, which, what, who)                                                              \
        err_set(err, ERR_INTERNAL, .msg = "invariant " which " is broken: " what, .detail = (who))

struct recount {
        struct arena memory;
        Pb__Workload **definitions; /* unpacked */
};

static void recount_init(struct recount *r, const struct core *c)
{
        *r = (struct recount){ 0 };
        r->definitions = arena_new_n(&r->memory, Pb__Workload *, c->definitions.len + 1);
        for (uint32_t i = 0; i < c->definitions.len; i++) {
                struct arena_allocator alloc = arena_allocator(&r->memory);
                r->definitions[i] =
                    c->definitions.at[i].data
                        ? pb__workload__unpack((ProtobufCAllocator *)&alloc,
                                               c->definitions.at[i].len, c->definitions.at[i].data)
                        : NULL;
        }
}

/* Every pair of the match is among the labels, and the tenant is the same. */
static bool is_matched(const struct core *c, const struct match *m, const Pb__Workload *w)
{
        for (uint32_t i = 0; i < m->n_pairs; i++) {
                bool found = false;
                for (size_t l = 0; l < w->n_labels && !found; l++)
                        found = strcmp(fmt("%s\n%s=%s", w->tenant, w->labels[l]->key,
                                           w->labels[l]->value),
                                       c->counts.pairs.at[m->pairs[i]].text) == 0;
                if (!found)
                        return false;
        }
        return true;
}

static const char *domain_name(const struct core *c, const struct topology *t, uint32_t node)
{
        const struct node *n = &c->nodes.at[node];
        return t->key[0] ? label_get(n->labels, n->n_labels, t->key) : n->id;
}

static uint32_t guards_of(const struct core *c, const struct unit *w, uint32_t counter)
{
        const struct constraints *m = class_of(c, w)->more;
        uint32_t n = 0;
        for (uint32_t i = 0; m && i < m->n_near; i++)
                n += m->near[i].counter == counter && m->near[i].anti && !m->near[i].preferred;
        return n;
}

static int check_counter(const struct core *c, struct recount *r, uint32_t ki, struct err *err)
{
        const struct counter *k = &c->counts.counters.at[ki];
        const struct topology *t = c->counts.topologies.at[k->topology];
        struct tally units = { 0 }, guards = { 0 };
        for (uint32_t i = 0; i < c->units.len; i++) {
                const struct unit *w = &c->units.at[i];
                const char *domain = w->id && w->holds ? domain_name(c, t, w->node.v) : NULL;
                if (!domain)
                        continue;
                uint32_t d =
                    t->key[0] ? map_get(&t->domain_by_value, domain, strlen(domain)) : w->node.v;
                if (is_matched(c, &c->counts.matches.at[k->match], r->definitions[w->definition]))
                        tally_add(&units, d, 1);
                for (uint32_t g = guards_of(c, w, ki); g; g--)
                        tally_add(&guards, d, 1);
        }
        bool same = units.total == k->units.total && guards.total == k->guards.total &&
                    units.len == k->units.len && guards.len == k->guards.len;
        for (uint32_t i = 0; i < units.cap && same; i++)
                same = !units.slots[i].count ||
                       tally_get(&k->units, units.slots[i].key) == units.slots[i].count;
        for (uint32_t i = 0; i < guards.cap && same; i++)
                same = !guards.slots[i].count ||
                       tally_get(&k->guards, guards.slots[i].key) == guards.slots[i].count;
        tally_fini(&units);
        tally_fini(&guards);
        return same ? 0
                    : BROKEN(err, "P5", "a counter equals a count over all units that hold a place",
                             t->key);
}

static int check_spread(const struct core *c, const struct class *k, const struct spread *s,
                        struct err *err)
{
        if (s->version != c->counts.eligibility || !s->min_known)
                return 0; /* it is found anew when it is asked for */
        const struct counter *counter = &c->counts.counters.at[s->counter];
        uint32_t min = UINT32_MAX;
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                uint32_t d = c->nodes.at[i].id && class_could_use(&c->nodes.at[i], k)
                                 ? domain_of(c, counter, i)
                                 : NONE;
                uint32_t count = d == NONE ? UINT32_MAX : tally_get(&counter->units, d);
                min = count < min ? count : min;
        }
        return (min == UINT32_MAX ? 0 : min) == s->min
                   ? 0
                   : BROKEN(err, "P5", "the smallest count is known", str_c(&k->key));
}

static int check_ports(const struct core *c, const struct node *n, struct err *err)
{
        size_t held = 0;
        for (struct unit_ix w = n->units; unit_ok(w); w = unit_get(c, w)->node_next) {
                const struct constraints *m = class_of(c, unit_get(c, w))->more;
                for (uint32_t i = 0; m && unit_get(c, w)->holds && i < m->n_ports; i++, held++)
                        if (!ports_taken(n, &m->ports[i], 1))
                                return BROKEN(err, "P6", "a unit's host ports are held on its node",
                                              n->id);
        }
        for (uint32_t t = n->tombstones; t != NONE; t = c->tombstones.at[t].next)
                held += c->tombstones.at[t].n_ports;
        for (size_t i = 0; i < n->ports.len; i++)
                if (n->ports.at[i].holders != 1)
                        return BROKEN(err, "P6", "no host port is held twice on a node", n->id);
        return held == n->ports.len
                   ? 0
                   : BROKEN(err, "P6", "only units and tombstones hold host ports", n->id);
}

int check_constraints(const struct core *c, struct err *err)
{
        struct recount r;
        int rc = 0;
        uint32_t soft = 0, counters = 0;
        recount_init(&r, c);
        for (uint32_t i = 0; i < c->counts.counters.len && rc >= 0; i++)
                if (c->counts.counters.at[i].refs) {
                        counters++;
                        rc = check_counter(c, &r, i, err);
                }
        for (uint32_t i = 0; i < c->classes.len && rc >= 0; i++)
                for (uint32_t s = 0; c->classes.at[i].refs && c->classes.at[i].more &&
                                     s < c->classes.at[i].more->n_spread && rc >= 0;
                     s++)
                        rc = check_spread(c, &c->classes.at[i], &c->classes.at[i].more->spread[s],
                                          err);
        for (uint32_t i = 0; i < c->nodes.len && rc >= 0; i++)
                if (c->nodes.at[i].id) {
                        soft += c->nodes.at[i].tainted == TAINTED_SOFT;
                        rc = check_ports(c, &c->nodes.at[i], err);
                }
        if (rc >= 0 && (soft != c->counts.soft_tainted || counters != c->counts.n_counters))
                rc = BROKEN(err, "X1", "the counts agree", "taints, counters");
        arena_fini(&r.memory);
        return rc;
}

static int by_text(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

/* One line per domain in which there is anything, sorted. */
void dump_constraints(const struct core *c, struct str *out)
{
        struct arena a = ARENA_INIT;
        ARRAY(char *) lines = { 0 };
        for (uint32_t i = 0; i < c->counts.counters.len; i++) {
                const struct counter *k = &c->counts.counters.at[i];
                if (!k->refs)
                        continue;
                const struct topology *t = c->counts.topologies.at[k->topology];
                ARRAY(char *) pairs = { 0 };
                struct str match = STR_INIT;
                for (uint32_t p = 0; p < c->counts.matches.at[k->match].n_pairs; p++)
                        *array_push(&pairs) =
                            c->counts.pairs.at[c->counts.matches.at[k->match].pairs[p]].text;
                qsort(pairs.at, pairs.len, sizeof(*pairs.at), by_text);
                for (size_t p = 0; p < pairs.len; p++)
                        str_addf(&match, " %s/%s",
                                 arena_strndup(&a, pairs.at[p], strcspn(pairs.at[p], "\n")),
                                 strchr(pairs.at[p], '\n') + 1);
                for (uint32_t s = 0; s < k->units.cap; s++)
                        if (k->units.slots[s].count) {
                                uint32_t d = k->units.slots[s].key;
                                *array_push(&lines) = arena_printf(
                                    &a, "counter%s over %s in %s: %u, guards %u\n", str_c(&match),
                                    t->key, t->key[0] ? t->domains.at[d].value : c->nodes.at[d].id,
                                    k->units.slots[s].count, tally_get(&k->guards, d));
                        }
                for (uint32_t s = 0; s < k->guards.cap; s++)
                        if (k->guards.slots[s].count &&
                            !tally_get(&k->units, k->guards.slots[s].key)) {
                                uint32_t d = k->guards.slots[s].key;
                                *array_push(&lines) = arena_printf(
                                    &a, "counter%s over %s in %s: 0, guards %u\n", str_c(&match),
                                    t->key, t->key[0] ? t->domains.at[d].value : c->nodes.at[d].id,
                                    k->guards.slots[s].count);
                        }
                str_fini(&match);
                array_fini(&pairs);
        }
        if (lines.len)
                qsort(lines.at, lines.len, sizeof(*lines.at), by_text);
        for (size_t i = 0; i < lines.len; i++)
                str_adds(out, lines.at[i]);
        array_fini(&lines);
        arena_fini(&a);
}
