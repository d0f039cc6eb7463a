/* sim/neighbours.c: taints, host ports, affinity and spread, as somebody sees them who knows only
 * the committed events. A second opinion: no code is shared with the core, and nothing is counted
 * ahead (C17, C25, C38).
 */
#include "base/mem.h"
#include "base/str.h"
#include "sim/shadow.h"
#include "sim/world.h"
#include <string.h>

#define NO_EXECUTE PB__TAINT_EFFECT__E__no_execute
#define PERCENT INT64_C(21474837) /* of a full node, rounded up */
#define PREFERRED PB__TAINT_EFFECT__E__prefer_no_schedule

static char letter_of(const char *text)
{
        return text ? text[0] : 0;
}

/* ---- what they ask for ---- */

static void take_near(struct shadow_workload *w, Pb__Affinity *const *all, size_t n, bool anti)
{
        for (size_t i = 0; i < n && w->n_near < SHADOW_FEW; i++)
                w->near[w->n_near++] =
                    (struct shadow_near){ .app = letter_of(all[i]->match[0]->value),
                                          .zone = !str_empty(all[i]->over),
                                          .anti = anti,
                                          .preferred = all[i]->preferred,
                                          .weight =
                                              all[i]->weight ? (uint32_t)all[i]->weight : 100 };
}

void neighbours_take(struct shadow_workload *w, const Pb__Workload *from)
{
        w->tenant = str_empty(from->tenant) ? 'd' : from->tenant[0]; /* the default one */
        w->app = from->n_labels ? letter_of(from->labels[0]->value) : 0;
        w->priority = from->priority;
        w->packed = from->strategy == PB__STRATEGY__E__binpack;
        w->n_near = w->n_spread = w->n_tolerations = w->n_ports = 0;
        take_near(w, from->affinity, from->n_affinity, false);
        take_near(w, from->anti_affinity, from->n_anti_affinity, true);
        for (size_t i = 0; i < from->n_spread && i < SHADOW_FEW; i++) {
                const Pb__Spread *s = from->spread[i];
                w->spread[w->n_spread++] =
                    (struct shadow_spread){ .app =
                                                s->n_match ? letter_of(s->match[0]->value) : w->app,
                                            .zone = !str_empty(s->over),
                                            .preferred = s->preferred,
                                            .max_skew = (uint32_t)s->max_skew };
        }
        for (size_t i = 0; i < from->n_tolerations && i < SHADOW_FEW; i++) {
                const Pb__Toleration *t = from->tolerations[i];
                w->tolerations[w->n_tolerations++] =
                    (struct shadow_taint){ letter_of(t->key), letter_of(t->value),
                                           (uint8_t)t->effect };
        }
        for (size_t i = 0; from->spec && i < from->spec->n_ports && i < SHADOW_FEW; i++)
                if (from->spec->ports[i]->host_port)
                        w->ports[w->n_ports++] =
                            (uint32_t)from->spec->ports[i]->host_port +
                            (str_eq(from->spec->ports[i]->protocol, "udp") ? 100000 : 0);
}

void neighbours_take_taints(struct shadow_node *n, const Pb__Node *from)
{
        n->n_taints = 0;
        for (size_t i = 0; i < from->n_taints && i < SHADOW_FEW; i++) {
                const Pb__Taint *t = from->taints[i];
                n->taints[n->n_taints++] =
                    (struct shadow_taint){ letter_of(t->key), letter_of(t->value),
                                           (uint8_t)t->effect };
        }
}

/* ---- taints and ports ---- */

bool shadow_tolerates(const struct shadow_workload *w, const struct shadow_taint *t)
{
        for (uint32_t i = 0; i < w->n_tolerations; i++) {
                const struct shadow_taint *o = &w->tolerations[i];
                if ((o->key == '*' || o->key == t->key) && (!o->value || o->value == t->value) &&
                    (!o->effect || o->effect == t->effect))
                        return true;
        }
        return false;
}

static bool is_kept_away(const struct shadow_node *n, const struct shadow_workload *w)
{
        for (uint32_t i = 0; i < n->n_taints; i++)
                if (n->taints[i].effect != PREFERRED && !shadow_tolerates(w, &n->taints[i]))
                        return true;
        return false;
}

bool shadow_is_driven_out(const struct shadow *h, size_t node, size_t workload)
{
        const struct shadow_workload *w = &h->workloads.at[workload];
        const struct shadow_node *n = &h->nodes.at[node];
        for (uint32_t i = 0; i < n->n_taints; i++)
                if (n->taints[i].effect == NO_EXECUTE && !shadow_tolerates(w, &n->taints[i]))
                        return true;
        return false;
}

static bool share_a_port(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b)
{
        for (uint32_t i = 0; i < n_a; i++)
                for (uint32_t k = 0; k < n_b; k++)
                        if (a[i] == b[k])
                                return true;
        return false;
}

const char *neighbours_ports(const struct shadow *h, size_t node, size_t workload,
                             bool without_lower)
{
        const struct shadow_workload *w = &h->workloads.at[workload];
        for (size_t i = 0; i < h->workloads.len; i++) {
                const struct shadow_workload *x = &h->workloads.at[i];
                if (i != workload && x->holds && x->node == node + 1 &&
                    !(without_lower && shadow_makes_room(x, w)) &&
                    share_a_port(w->ports, w->n_ports, x->ports, x->n_ports))
                        return "P6: two units have one host port on a node";
        }
        for (size_t i = 0; i < h->tombstones.len; i++) {
                const struct shadow_tombstone *t = &h->tombstones.at[i];
                if (t->node == node && share_a_port(w->ports, w->n_ports, t->ports, t->n_ports))
                        return "P6: a unit has a host port that an old copy may still have";
        }
        return NULL;
}

/* ---- neighbours ---- */

static bool is_near(const struct shadow *h, size_t a, size_t b, bool zone)
{
        return zone ? h->nodes.at[a].zone == h->nodes.at[b].zone : a == b;
}

/* Others of that app that hold a place near this node; node SIZE_MAX: anywhere. */
static uint32_t count_near(const struct shadow *h, size_t workload, char app, size_t node,
                           bool zone)
{
        uint32_t n = 0;
        for (size_t i = 0; i < h->workloads.len; i++) {
                const struct shadow_workload *x = &h->workloads.at[i];
                n += i != workload && x->holds && x->app == app &&
                     x->tenant == h->workloads.at[workload].tenant &&
                     (node == SIZE_MAX || is_near(h, x->node - 1, node, zone));
        }
        return n;
}

static const char *affinity_against(const struct shadow *h, size_t node, size_t workload)
{
        const struct shadow_workload *w = &h->workloads.at[workload];
        for (uint32_t i = 0; i < w->n_near; i++) {
                const struct shadow_near *a = &w->near[i];
                uint32_t there = count_near(h, workload, a->app, node, a->zone);
                if (a->preferred)
                        continue;
                if (a->anti && there)
                        return "C17: a unit was put near what it must not be near";
                if (!a->anti && !there &&
                    !(a->app == w->app && !count_near(h, workload, a->app, SIZE_MAX, false)))
                        return "C17: a unit was put where nothing is that it must be near";
        }
        for (size_t i = 0; i < h->workloads.len; i++) {
                const struct shadow_workload *x = &h->workloads.at[i];
                for (uint32_t k = 0;
                     k < x->n_near && i != workload && x->holds && x->tenant == w->tenant; k++)
                        if (x->near[k].anti && !x->near[k].preferred && x->near[k].app == w->app &&
                            is_near(h, x->node - 1, node, x->near[k].zone))
                                return "C17: a unit was put near one that must not be near it";
        }
        return NULL;
}

static bool could_use(const struct shadow_node *n, const struct shadow_workload *w)
{
        return n->known && n->ready && n->wish == PB__NODE_WISH__E__schedulable && !n->cannot_run &&
               (!w->zone || w->zone == n->zone) && !is_kept_away(n, w);
}

/* Others of that app on each node, and in each zone. */
struct census {
        uint32_t *on_node;
        uint32_t in_zone[256];
};

static uint32_t counted(const struct shadow *h, const struct census *c, size_t node, bool zone)
{
        return zone ? c->in_zone[(unsigned char)h->nodes.at[node].zone] : c->on_node[node];
}

/* By how many its domain would exceed the emptiest one that it could use. */
static uint32_t skew_of(const struct shadow *h, size_t node, size_t workload,
                        const struct shadow_spread *s)
{
        const struct shadow_workload *w = &h->workloads.at[workload];
        struct census c = { .on_node = mem_must((h->nodes.len + 1) * sizeof(uint32_t)) };
        for (size_t i = 0; i < h->workloads.len; i++) {
                const struct shadow_workload *x = &h->workloads.at[i];
                if (i == workload || !x->holds || x->app != s->app || x->tenant != w->tenant)
                        continue;
                c.on_node[x->node - 1]++;
                c.in_zone[(unsigned char)h->nodes.at[x->node - 1].zone]++;
        }
        uint32_t least = UINT32_MAX, here = counted(h, &c, node, s->zone) + (s->app == w->app);
        for (size_t n = 0; n < h->nodes.len; n++) {
                uint32_t there =
                    could_use(&h->nodes.at[n], w) ? counted(h, &c, n, s->zone) : UINT32_MAX;
                least = there < least ? there : least;
        }
        mem_free(c.on_node);
        return least != UINT32_MAX && here > least ? here - least : 0;
}

static const char *spread_against(const struct shadow *h, size_t node, size_t workload)
{
        const struct shadow_workload *w = &h->workloads.at[workload];
        for (uint32_t i = 0; i < w->n_spread; i++)
                if (!w->spread[i].preferred &&
                    skew_of(h, node, workload, &w->spread[i]) > w->spread[i].max_skew)
                        return "C17: a placement exceeds its maximum skew";
        return NULL;
}

int64_t neighbours_cost(const struct shadow *h, size_t node, size_t workload)
{
        const struct shadow_workload *w = &h->workloads.at[workload];
        const struct shadow_node *n = &h->nodes.at[node];
        int64_t percent = 0;
        for (uint32_t i = 0; i < n->n_taints; i++)
                if (n->taints[i].effect == PREFERRED && !shadow_tolerates(w, &n->taints[i]))
                        percent += 100;
        for (uint32_t i = 0; i < w->n_near; i++) {
                const struct shadow_near *a = &w->near[i];
                bool there = count_near(h, workload, a->app, node, a->zone) > 0;
                bool first = a->app == w->app && !count_near(h, workload, a->app, SIZE_MAX, false);
                if (a->preferred && (a->anti ? there : !there && !first))
                        percent += a->weight;
        }
        for (uint32_t i = 0; i < w->n_spread; i++) {
                uint32_t skew =
                    w->spread[i].preferred ? skew_of(h, node, workload, &w->spread[i]) : 0;
                if (skew > w->spread[i].max_skew)
                        percent += 100 * (int64_t)(skew - w->spread[i].max_skew);
        }
        return percent * PERCENT;
}

const char *neighbours_against(const struct shadow *h, size_t node, size_t workload,
                               bool without_lower)
{
        const struct shadow_workload *w = &h->workloads.at[workload];
        if (is_kept_away(&h->nodes.at[node], w))
                return "C38: a unit was put on a node with a taint that it does not tolerate";
        if (h->nodes.at[node].cannot_run)
                return "C25: a unit was put on a node whose runtime turned out not to work";
        const char *what = w->n_ports ? neighbours_ports(h, node, workload, without_lower) : NULL;
        if (!what && (w->app || w->n_near))
                what = affinity_against(h, node, workload);
        return what ? what : spread_against(h, node, workload);
}
