/* core/explain_constraints.c: taints, ports and neighbours in words: what stands in the way on a
 * node, and what would have to change (A8). */
#include "core/explain.h"
#include "core/state.h"
#include "model/json.h"
#include <string.h>

static const char *effect_name(uint8_t effect)
{
        const char *name = json_enum_name(&pb__taint_effect__e__descriptor, effect);
        return name ? name : "unknown";
}

static char *taint_text(const struct node *n, const struct constraints *m, struct arena *a)
{
        for (uint32_t i = 0; i < n->n_taints; i++) {
                const struct taint *t = &n->taints[i];
                if (t->effect != PB__TAINT_EFFECT__E__prefer_no_schedule && !tolerates(m, t))
                        return arena_printf(a, "%s%s%s:%s", t->key, t->value[0] ? "=" : "",
                                            t->value, effect_name(t->effect));
        }
        return "";
}

static uint32_t port_in_the_way(const struct node *n, const struct constraints *m)
{
        uint32_t port = m ? ports_taken(n, m->ports, m->n_ports) : 0;
        return port || !m ? port : ports_kept(n, m->ports, m->n_ports);
}

static const char *port_holder(const struct core *c, const struct node *n, uint32_t port,
                               struct arena *a)
{
        for (struct unit_ix w = n->units; unit_ok(w); w = unit_get(c, w)->node_next) {
                const struct constraints *m = class_of(c, unit_get(c, w))->more;
                for (uint32_t i = 0; m && unit_get(c, w)->holds && i < m->n_ports; i++)
                        if (m->ports[i] == port)
                                return arena_printf(a, "workload %s", unit_get(c, w)->id);
        }
        return ports_taken(n, &port, 1) ? "an old copy that is not yet proved gone"
                                        : "a higher priority, for which others make room there";
}

/* "its zone (a)", "this node" */
static char *domain_text(const struct core *c, const struct counter *k, uint32_t node,
                         struct arena *a)
{
        const struct topology *t = c->counts.topologies.at[k->topology];
        uint32_t d = domain_of(c, k, node);
        if (!t->key[0])
                return arena_printf(a, "node %s", c->nodes.at[node].id);
        return arena_printf(a, "%s %s", t->key, d == NONE ? "?" : t->domains.at[d].value);
}

static char *labels_of(const struct core *c, const struct counter *k, struct arena *a)
{
        struct str s = STR_INIT;
        match_text(c, k->match, &s);
        char *text = arena_strdup(a, str_c(&s));
        str_fini(&s);
        return text;
}

/* The constraint that is in the way, of the kind that the reason names. */
static const struct near *near_in_the_way(const struct core *c, uint32_t node,
                                          const struct constraints *m, bool anti)
{
        for (uint32_t i = 0; m && i < m->n_near; i++)
                if (m->near[i].anti == anti && !m->near[i].preferred &&
                    !near_is_met(c, node, &m->near[i]))
                        return &m->near[i];
        return NULL;
}

static const struct counter *guard_in_the_way(const struct core *c, uint32_t node,
                                              const struct definition *d)
{
        for (size_t m = 0; m < d->matches.len; m++) {
                const struct match *match = &c->counts.matches.at[d->matches.at[m]];
                for (size_t i = 0; i < match->counters.len; i++) {
                        const struct counter *k = &c->counts.counters.at[match->counters.at[i]];
                        uint32_t domain = domain_of(c, k, node);
                        if (domain != NONE && tally_get(&k->guards, domain))
                                return k;
                }
        }
        return NULL;
}

static struct spread *spread_in_the_way(const struct core *c, uint32_t node, const struct class *k)
{
        for (uint32_t i = 0; k->more && i < k->more->n_spread; i++) {
                struct spread *s = &k->more->spread[i];
                uint32_t domain = domain_of(c, &c->counts.counters.at[s->counter], node);
                if (!s->preferred && (domain == NONE || spread_skew(c, k, s, domain) > s->max_skew))
                        return s;
        }
        return NULL;
}

static char *near_detail(const struct core *c, uint32_t node, const struct near *n, struct arena *a)
{
        const struct counter *k = &c->counts.counters.at[n->counter];
        if (domain_of(c, k, node) == NONE)
                return arena_printf(a, "the node has no label %s",
                                    c->counts.topologies.at[k->topology]->key);
        return arena_printf(a, n->anti ? "%s runs in %s" : "nothing with %s runs in %s",
                            labels_of(c, k, a), domain_text(c, k, node, a));
}

static char *spread_detail(const struct core *c, uint32_t node, const struct class *k,
                           struct spread *s, struct arena *a)
{
        const struct counter *counter = &c->counts.counters.at[s->counter];
        uint32_t domain = domain_of(c, counter, node);
        if (domain == NONE)
                return arena_printf(a, "the node has no label %s",
                                    c->counts.topologies.at[counter->topology]->key);
        return arena_printf(a, "%s has %u with %s, the emptiest has %u: max_skew is %u",
                            domain_text(c, counter, node, a), tally_get(&counter->units, domain),
                            labels_of(c, counter, a), spread_min(c, k, s), s->max_skew);
}

char *constraints_detail(const struct core *c, struct node_ix ix, const struct definition *d,
                         Pb__Reason__E reason, struct arena *a)
{
        const struct node *n = node_get(c, ix);
        const struct class *k = &c->classes.at[d->class];
        switch (reason) {
        case PB__REASON__E__taint_not_tolerated:
                return arena_printf(a, "has the taint %s", taint_text(n, k->more, a));
        case PB__REASON__E__port_taken: {
                uint32_t port = port_in_the_way(n, k->more);
                return arena_printf(a, "port %s is held by %s", port_text(port),
                                    port_holder(c, n, port, a));
        }
        case PB__REASON__E__affinity_unmet:
        case PB__REASON__E__anti_affinity: {
                const struct near *near =
                    near_in_the_way(c, ix.v, k->more, reason == PB__REASON__E__anti_affinity);
                if (near)
                        return near_detail(c, ix.v, near, a);
                const struct counter *guard = guard_in_the_way(c, ix.v, d);
                return guard ? arena_printf(a, "what runs in %s wants nothing with %s near it",
                                            domain_text(c, guard, ix.v, a), labels_of(c, guard, a))
                             : "";
        }
        case PB__REASON__E__spread_exceeded: {
                struct spread *s = spread_in_the_way(c, ix.v, k);
                return s ? spread_detail(c, ix.v, k, s, a) : "";
        }
        default:
                return "";
        }
}

static char *near_remedy(const struct core *c, struct node_ix ix, const struct near *near,
                         struct arena *a)
{
        const struct counter *k = &c->counts.counters.at[near->counter];
        if (domain_of(c, k, ix.v) == NONE)
                return arena_printf(a, "give node %s the label %s", node_get(c, ix)->id,
                                    c->counts.topologies.at[k->topology]->key);
        return arena_printf(a,
                            near->anti ? "move %s away from %s, or make its anti_affinity preferred"
                                       : "run %s in %s, or make its affinity preferred",
                            labels_of(c, k, a), domain_text(c, k, ix.v, a));
}

char *constraints_remedy(const struct core *c, struct node_ix ix, const struct definition *d,
                         Pb__Reason__E reason, struct arena *a)
{
        const struct node *n = node_get(c, ix);
        const struct class *k = &c->classes.at[d->class];
        switch (reason) {
        case PB__REASON__E__taint_not_tolerated:
                return arena_printf(a, "remove the taint %s from node %s, or tolerate it",
                                    taint_text(n, k->more, a), n->id);
        case PB__REASON__E__port_taken: {
                uint32_t port = port_in_the_way(n, k->more);
                return arena_printf(a,
                                    "free port %s on %s (held by %s), or ask for another host_port",
                                    port_text(port), n->id, port_holder(c, n, port, a));
        }
        case PB__REASON__E__affinity_unmet:
        case PB__REASON__E__anti_affinity: {
                const struct near *near =
                    near_in_the_way(c, ix.v, k->more, reason == PB__REASON__E__anti_affinity);
                const struct counter *guard = near ? NULL : guard_in_the_way(c, ix.v, d);
                return near ? near_remedy(c, ix, near, a)
                       : guard
                           ? arena_printf(a, "move what keeps %s away out of %s",
                                          labels_of(c, guard, a), domain_text(c, guard, ix.v, a))
                           : "";
        }
        case PB__REASON__E__spread_exceeded: {
                struct spread *s = spread_in_the_way(c, ix.v, k);
                const struct counter *counter = s ? &c->counts.counters.at[s->counter] : NULL;
                if (!s)
                        return "";
                if (domain_of(c, counter, ix.v) == NONE)
                        return arena_printf(a, "give node %s the label %s", n->id,
                                            c->counts.topologies.at[counter->topology]->key);
                return arena_printf(a, "set max_skew to %u (for %s)",
                                    spread_skew(c, k, s, domain_of(c, counter, ix.v)),
                                    domain_text(c, counter, ix.v, a));
        }
        default:
                return "";
        }
}
