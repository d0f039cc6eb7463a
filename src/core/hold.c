/* core/hold.c: see hold.h. */
#include "core/hold.h"
#include "base/mem.h"
#include "core/place.h"
#include "core/state.h"

bool has_hold(const struct unit *w)
{
        return w->hold != NONE;
}

struct node_ix hold_node(const struct core *c, const struct unit *w)
{
        return (struct node_ix){ has_hold(w) ? c->holds.at[w->hold].node : NONE };
}

static void keep(struct core *c, const struct hold *h, bool on)
{
        uint64_t change = c->capacity_change; /* nothing fits that did not, as long as it is kept */
        struct node_ix n = { h->node };
        struct node *node = node_at(c, n);
        node->kept = on ? amounts_add(node->kept, h->amounts) : amounts_sub(node->kept, h->amounts);
        ports_keep(node, h->ports, h->n_ports, on);
        columns_update(c, n);
        c->capacity_change = change;
}

static void drop(struct core *c, uint32_t i)
{
        struct hold *h = &c->holds.at[i];
        struct unit *w = unit_at(c, h->unit);
        if (!h->aside)
                keep(c, h, false);
        w->hold = NONE;
        class_of(c, w)->n_holds--;
        mem_free(h->ports);
        *h = (struct hold){ .node = NONE };
        *array_push(&c->free_holds) = i;
}

void hold_for_unit(struct core *c, struct unit_ix ix, struct node_ix n, int64_t until_ms)
{
        struct unit *w = unit_at(c, ix);
        const struct constraints *more = class_of(c, w)->more;
        if (has_hold(w))
                drop(c, w->hold);
        uint32_t i;
        if (c->free_holds.len)
                i = array_pop(&c->free_holds);
        else {
                i = (uint32_t)c->holds.len;
                array_push(&c->holds);
        }
        struct hold *h = &c->holds.at[i];
        *h = (struct hold){
                .node = n.v, .unit = ix, .amounts = class_of(c, w)->need, .until_ms = until_ms
        };
        if (more && more->n_ports) {
                h->ports = mem_dup(more->ports, more->n_ports * sizeof(*more->ports));
                h->n_ports = more->n_ports;
        }
        w->hold = i;
        class_of(c, w)->n_holds++;
        keep(c, h, true);
}

void hold_drop(struct core *c, struct unit_ix ix)
{
        if (!has_hold(unit_at(c, ix)))
                return;
        drop(c, unit_at(c, ix)->hold);
        c->capacity_change++; /* the room is for anybody now */
}

void hold_aside(struct core *c, struct unit_ix ix, bool aside)
{
        struct hold *h = has_hold(unit_at(c, ix)) ? &c->holds.at[unit_at(c, ix)->hold] : NULL;
        if (!h || h->aside == aside)
                return;
        keep(c, h, !aside);
        h->aside = aside;
}

void holds_leave(struct core *c, struct node_ix n)
{
        for (size_t i = 0; i < c->holds.len; i++)
                if (c->holds.at[i].node == n.v)
                        hold_drop(c, c->holds.at[i].unit);
}

void holds_review(struct core *c, bool (*useful)(const struct core *c, const struct hold *h))
{
        for (size_t i = 0; i < c->holds.len; i++) {
                const struct hold *h = &c->holds.at[i];
                if (h->node != NONE && (c->now_ms >= h->until_ms || !useful(c, h)))
                        hold_drop(c, h->unit);
        }
}

void holds_fini(struct core *c)
{
        for (size_t i = 0; i < c->holds.len; i++)
                mem_free(c->holds.at[i].ports);
        array_fini(&c->holds);
        array_fini(&c->free_holds);
}

#define BROKEN(err, which, what, who)                                                              \
        err_set(err, ERR_INTERNAL, .msg = "invariant " which " is broken: " what, .detail = (who))

int holds_check(const struct core *c, struct err *err)
{
        uint32_t held = 0;
        for (uint32_t n = 0; n < c->nodes.len; n++) {
                struct amounts sum = { 0 };
                size_t ports = 0;
                for (uint32_t i = 0; i < c->holds.len; i++) {
                        const struct hold *h = &c->holds.at[i];
                        if (h->node != n || h->aside)
                                continue;
                        sum = amounts_add(sum, h->amounts);
                        ports += h->n_ports;
                        for (uint32_t p = 0; p < h->n_ports; p++)
                                if (!ports_kept(&c->nodes.at[n], &h->ports[p], 1))
                                        return BROKEN(err, "H1", "the ports of a hold are kept",
                                                      c->nodes.at[n].id);
                }
                const struct amounts *kept = &c->nodes.at[n].kept;
                if (sum.cpu_milli != kept->cpu_milli || sum.mem_bytes != kept->mem_bytes ||
                    sum.disk_bytes != kept->disk_bytes || ports != c->nodes.at[n].kept_ports.len)
                        return BROKEN(err, "H1", "what is kept on a node is the sum of its holds",
                                      "");
        }
        for (uint32_t i = 0; i < c->holds.len; i++)
                if (c->holds.at[i].node != NONE) {
                        held++;
                        if (unit_get(c, c->holds.at[i].unit)->hold != i ||
                            !c->nodes.at[c->holds.at[i].node].id)
                                return BROKEN(err, "H2", "a hold and its unit know each other", "");
                }
        for (uint32_t i = 0; i < c->units.len; i++)
                held -= c->units.at[i].id && has_hold(&c->units.at[i]);
        return held == 0 ? 0 : BROKEN(err, "H2", "a unit's hold is there", "");
}
