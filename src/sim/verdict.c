/* sim/verdict.c: is everything as it should be, once the faults have stopped and nothing goes on
 * any more? */
#include "base/mem.h"
#include "sim/shadow.h"
#include "sim/world.h"
#include <string.h>

struct verdict {
        const char *what, *detail;
};

static bool wrong(struct verdict *v, const char *what, const char *detail)
{
        if (!v->what) {
                v->what = what;
                v->detail = detail;
        }
        return false;
}

/* Asks, and gives the answer if it is one; in the batch's memory, which the caller frees. */
static struct core_batch *ask(struct sim *s, enum input_kind kind, const char *id,
                              const struct reply **ret)
{
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = (char *)id;
        struct server *v = sim_leader(s);
        struct input in = { .kind = kind,
                            .msg = &ref.base,
                            .reply = UINT64_MAX,
                            .now_ms = sim_server_now(s, v),
                            .steady_ms = sim_steady(&v->steady, s->now) };
        core_step(v->core, &in);
        struct core_batch *b = core_cut(v->core), *more;
        *ret = NULL;
        for (size_t i = 0; b && i < b->n_replies; i++)
                if (b->replies[i].ticket == UINT64_MAX && !b->replies[i].err)
                        *ret = &b->replies[i];
        if (b && b->commit.n_events)
                sim_fail(s, "A6: a read changed something", id);
        while ((more = core_cut(v->core)))
                core_batch_free(more);
        return b;
}

Pb__Workload *sim_ask(struct sim *s, const char *id)
{
        const struct reply *r;
        struct core_batch *b = ask(s, INPUT_GET_WORKLOAD, id, &r);
        Pb__Workload *w = r ? pb__workload__unpack(NULL, r->len, r->data) : NULL;
        core_batch_free(b);
        return w;
}

/* W4: who waits, waits for something: no node could take it. */
static bool waits_for_reason(struct sim *s, const char *id, struct verdict *v)
{
        const struct reply *r;
        struct core_batch *b = ask(s, INPUT_EXPLAIN, id, &r);
        bool ok = true;
        if (r) {
                Pb__Explanation *x = pb__explanation__unpack(NULL, r->len, r->data);
                /* (Q3) is looked at by core_check() */
                bool quota = strstr(x->summary, "quota of tenant") != NULL;
                if (x->phase == PB__PHASE__E__Pending && x->feasible && !quota)
                        ok = wrong(v, "W4: a workload waits although a node could take it",
                                   fmt("%s: %d nodes", id, x->feasible));
                pb__explanation__free_unpacked(x, NULL);
        }
        core_batch_free(b);
        return ok;
}

/* With those of a lower priority out of the way it would fit. Only for those who ask nothing of
 * their neighbours: whom to move for the others is not for us to say. */
static bool could_take_the_place(struct shadow *h, size_t node, size_t number)
{
        const struct shadow_workload *w = shadow_workload(h, number);
        struct shadow_node *n = shadow_node(h, node);
        if (w->n_near || w->n_spread || neighbours_against(h, node, number, true))
                return false;
        struct shadow_node before = *n;
        for (size_t i = 0; i < h->workloads.len; i++) {
                const struct shadow_workload *x = &h->workloads.at[i];
                for (int k = 0;
                     k < RESOURCES && x->holds && x->node == node + 1 && shadow_makes_room(x, w);
                     k++)
                        n->reserved[k] -= x->need[k];
        }
        bool fits = n->known && n->ready && n->wish == PB__NODE_WISH__E__schedulable &&
                    (!w->zone || w->zone == n->zone);
        for (int k = 0; k < RESOURCES; k++)
                fits = fits && w->need[k] <= n->total[k] - n->reserved[k];
        *n = before;
        return fits;
}

/* By a plain search through what the events say: whoever has no place fits nowhere, or may not have
 * one; whoever is to leave its node can go nowhere else. */
static bool is_placed_if_possible(struct sim *s, const char *id, struct verdict *v)
{
        struct shadow *h = sim_watch_shadow(s->watch);
        size_t number = number_of(id);
        const struct shadow_workload *w = shadow_workload(h, number);
        if (!w->known || !w->wanted || w->finished || w->deleting)
                return true;
        bool leaves = w->holds && !w->pinned && shadow_is_driven_out(h, w->node - 1, number);
        if ((w->holds && !leaves) || (!w->holds && !tenants_allow(sim_watch_tenants(s->watch), id)))
                return true;
        for (size_t n = 0; n < h->nodes.len; n++) {
                if (w->node == n + 1 && leaves)
                        continue;
                if (shadow_could_take(h, n, number))
                        return wrong(v,
                                     leaves ? "C38: a unit stays on a node that it does not "
                                              "tolerate although another could take it"
                                            : "W4: a workload waits although it fits somewhere",
                                     fmt("%s: node %zu", id, n));
                if (!leaves && could_take_the_place(h, n, number))
                        return wrong(
                            v, "C38: a workload waits although lower priorities have its place",
                            fmt("%s: node %zu", id, n));
        }
        return true;
}

static bool is_settling(Pb__Phase__E p)
{
        return p == PB__PHASE__E__Scheduled || p == PB__PHASE__E__RetryPending ||
               p == PB__PHASE__E__Updating;
}

struct copies {
        uint32_t alive, right, excused; /* excused: on a node that was forgotten with them on it */
};

static struct copies count_copies(struct sim *s, const char *id, const Pb__Workload *w)
{
        struct copies c = { 0 };
        for (uint32_t n = 0; n < s->machines.len; n++) {
                const struct machine *m = &s->machines.at[n];
                struct copy *x = sim_copy_find(&s->machines.at[n], id);
                if (!x || !x->alive)
                        continue;
                c.alive++;
                c.excused += m->forgotten;
                c.right += w && w->token && strcmp(w->assigned_node, m->id) == 0 &&
                           x->token.seq == w->token->seq;
        }
        return c;
}

static bool workload_is_settled(struct sim *s, const struct client_item *it, const Pb__Workload *w,
                                struct verdict *v)
{
        struct copies c = count_copies(s, it->id, w);
        Pb__Phase__E p = w ? w->status->phase : 0;
        const char *phase =
            w ? protobuf_c_enum_descriptor_get_value(&pb__phase__e__descriptor, (int)p)->name
              : "none";
        /* whatever its node is like */
        bool pinned = w && w->exclusive == PB__EXCLUSIVE__E__pinned && !str_empty(w->assigned_node);
        if (pinned && p != PB__PHASE__E__Running)
                return true;
        if (p == PB__PHASE__E__Unknown || p == PB__PHASE__E__Deleting || is_settling(p))
                return wrong(v, "C26: a workload did not converge",
                             fmt("%s is %s: %s", it->id, phase, w->status->failure_reason));
        if ((p == PB__PHASE__E__Pending && !waits_for_reason(s, it->id, v)) ||
            !is_placed_if_possible(s, it->id, v))
                return false;
        if (it->tainted)
                return true;
        if (p == PB__PHASE__E__Running && (c.alive != 1 || c.right != 1))
                return wrong(v, "C24: a running workload has not exactly one copy, the right one",
                             fmt("%s: %u copies, %u right", it->id, c.alive, c.right));
        if (p != PB__PHASE__E__Running && c.alive > (w ? 0 : c.excused))
                return wrong(v, "C21: a workload that should not run has a copy",
                             fmt("%s is %s: %u copies", it->id, phase, c.alive));
        return true;
}

bool sim_is_settled(struct sim *s, const char **ret_what, const char **ret_detail)
{
        struct core_stats st;
        struct verdict v = { 0 };
        core_stats(sim_leader(s)->core, &st);
        if (st.nodes_ready != s->opt.nodes)
                wrong(&v, "C9: a node did not come back",
                      fmt("%u of %u are ready", st.nodes_ready, s->opt.nodes));
        if (st.nodes_by_status[PB__NODE_STATUS__E__Ready] != s->opt.nodes)
                wrong(&v, "C12: a node is not schedulable although an operator asked for it", "");
        if (st.tombstones)
                wrong(&v, "C27: a tombstone was never confirmed",
                      fmt("%u are left", st.tombstones));
        if (st.sessions != s->opt.nodes)
                wrong(&v, "C40: an agent has no stream",
                      fmt("%u of %u have one", st.sessions, s->opt.nodes));
        for (size_t i = 0; i < s->items.len && !v.what && !sim_failed(s); i++) {
                Pb__Workload *w = sim_ask(s, s->items.at[i].id);
                workload_is_settled(s, &s->items.at[i], w, &v);
                if (w)
                        pb__workload__free_unpacked(w, NULL);
        }
        *ret_what = v.what;
        *ret_detail = v.detail;
        return !v.what;
}
