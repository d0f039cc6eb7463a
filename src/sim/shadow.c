/* sim/shadow.c: who is where and what each node has left, from the committed events alone.
 *
 * It shares no code with the core: a second opinion on the ledger, and on whether a node was
 * allowed to take what was put on it (L1, L3, N2, C14).
 */
#include "sim/shadow.h"
#include "base/mem.h"
#include "events.pb-c.h"
#include "sim/world.h"
#include <stdlib.h>
#include <string.h>

struct shadow *shadow_create(void)
{
        return mem_must(sizeof(struct shadow));
}

void shadow_destroy(struct shadow *h)
{
        array_fini(&h->workloads);
        array_fini(&h->nodes);
        array_fini(&h->tombstones);
        mem_free(h);
}

size_t number_of(const char *id)
{
        const char *dash = strrchr(id, '-');
        return dash ? (size_t)strtoul(dash + 1, NULL, 10) : 0;
}

struct shadow_node *shadow_node(struct shadow *h, size_t n)
{
        while (h->nodes.len <= n)
                array_push(&h->nodes);
        return &h->nodes.at[n];
}

struct shadow_workload *shadow_workload(struct shadow *h, size_t n)
{
        while (h->workloads.len <= n)
                array_push(&h->workloads);
        return &h->workloads.at[n];
}

static void change(int64_t *sum, const int64_t *by, int sign)
{
        for (int i = 0; i < RESOURCES; i++)
                sum[i] += sign * by[i];
}

static bool is_over(const struct shadow_node *n)
{
        for (int i = 0; i < RESOURCES; i++)
                if (n->reserved[i] > n->total[i])
                        return true;
        return false;
}

struct shadow_tombstone *shadow_tombstone(struct shadow *h, size_t node, size_t workload)
{
        for (size_t i = 0; i < h->tombstones.len; i++)
                if (h->tombstones.at[i].node == node && h->tombstones.at[i].workload == workload)
                        return &h->tombstones.at[i];
        return NULL;
}

static void tombstone_drop(struct shadow *h, struct shadow_tombstone *t)
{
        struct shadow_node *n = shadow_node(h, t->node);
        change(n->reserved, t->held, -1);
        n->lost -= t->lost;
        *t = h->tombstones.at[--h->tombstones.len];
}

bool shadow_is_on(struct shadow *h, size_t workload, size_t node)
{
        return (workload < h->workloads.len && h->workloads.at[workload].node == node + 1) ||
               shadow_tombstone(h, node, workload);
}

static void release(struct shadow *h, struct shadow_workload *w)
{
        if (w->holds)
                change(shadow_node(h, w->node - 1)->reserved, w->need, -1);
        w->holds = false;
}

/* It leaves its node, where a copy may still run: the capacity stays taken. */
static const char *leave(struct shadow *h, size_t number, struct shadow_workload *w, bool lost)
{
        if (!w->node)
                return "W1: what is on no node left one";
        if (shadow_tombstone(h, w->node - 1, number))
                return "N6: a second tombstone for one node and workload";
        struct shadow_tombstone *t = array_push(&h->tombstones);
        *t = (struct shadow_tombstone){ .node = w->node - 1,
                                        .workload = (uint32_t)number,
                                        .lost = lost };
        if (w->holds) {
                memcpy(t->held, w->need, sizeof(t->held));
                memcpy(t->ports, w->ports, sizeof(t->ports));
                t->n_ports = w->n_ports;
        }
        shadow_node(h, w->node - 1)->lost += lost;
        w->holds = false;
        w->node = 0;
        return NULL;
}

static const char *applied(struct shadow *h, size_t number, struct shadow_workload *w,
                           const Pb__Event *e)
{
        const Pb__Resources *r = e->workload->resources;
        int64_t need[RESOURCES] = { r ? r->cpu : 0, r ? r->memory_mb : 0, r ? r->disk_gb : 0 };
        bool held = w->holds;
        release(h, w);
        memcpy(w->need, need, sizeof(need));
        if (!w->known)
                w->wanted = e->workload->desired_state != PB__DESIRED_STATE__E__Stopped;
        w->known = true;
        if (e->type == PB__EVENT_TYPE__E__WorkloadApplied)
                w->finished = false;
        w->pinned = e->workload->exclusive == PB__EXCLUSIVE__E__pinned;
        neighbours_take(w, e->workload);
        w->zone = e->workload->n_node_selector ? e->workload->node_selector[0]->value[0] : 0;
        if (!held)
                return NULL;
        struct shadow_node *n = shadow_node(h, w->node - 1);
        change(n->reserved, need, 1);
        w->holds = true;
        if (e->type == PB__EVENT_TYPE__E__WorkloadRelabelled)
                return NULL; /* it asks for no more than it has */
        if (is_over(n))
                return "L3: a new spec was taken in place and does not fit";
        return w->n_ports ? neighbours_ports(h, w->node - 1, number, false) : NULL;
}

bool shadow_could_take(struct shadow *h, size_t ix, size_t number)
{
        const struct shadow_node *n = shadow_node(h, ix);
        const struct shadow_workload *w = shadow_workload(h, number);
        if (!n->known || !n->ready || n->wish != PB__NODE_WISH__E__schedulable || n->lost ||
            shadow_tombstone(h, ix, number) || (w->zone && w->zone != n->zone))
                return false;
        for (int i = 0; i < RESOURCES; i++)
                if (w->need[i] > n->total[i] - n->reserved[i])
                        return false;
        return !neighbours_against(h, ix, number, false);
}

/* C15: reserved to total, cpu and memory, in 2^30ths. */
static int64_t utilisation(const struct shadow_node *n)
{
        int64_t sum = 0;
        for (int i = CPU; i <= MEMORY; i++) {
                __int128 part = n->total[i] > 0 ? ((__int128)n->reserved[i] << 30) / n->total[i]
                                                : (__int128)1 << 30;
                sum += part > (1 << 30) ? 1 << 30 : (int64_t)part;
        }
        return sum > INT32_MAX ? INT32_MAX : sum;
}

static int64_t cost(const struct shadow *h, size_t node, size_t number)
{
        int64_t used = utilisation(&h->nodes.at[node]);
        return (h->workloads.at[number].packed ? INT32_MAX - used : used) +
               neighbours_cost(h, node, number);
}

/* The cheapest one that could take it, the smallest id of equals. Which nodes the server had not
 * heard since its start is not in the events: so it counts only if the number of candidates is the
 * same. */
static bool is_best(struct shadow *h, size_t number, const Pb__Event *e)
{
        size_t best = SIZE_MAX, chosen = number_of(e->node_id);
        int32_t candidates = 0;
        for (size_t i = 0; i < h->nodes.len; i++) {
                if (!shadow_could_take(h, i, number))
                        continue;
                candidates++;
                if (best == SIZE_MAX || cost(h, i, number) < cost(h, best, number))
                        best = i;
        }
        return candidates != e->placement->candidates || candidates <= 1 || best == chosen;
}

static const char *scheduled(struct shadow *h, size_t number, struct shadow_workload *w,
                             const Pb__Event *e)
{
        size_t ix = number_of(e->node_id);
        struct shadow_node *n = shadow_node(h, ix);
        if (w->node && w->node != ix + 1)
                return "W1: a workload has two nodes";
        if (w->holds)
                return "W2: a workload is placed that has its place";
        if (!n->known || !n->ready)
                return "C14: a unit was put on a node that is not ready";
        if (n->wish != PB__NODE_WISH__E__schedulable)
                return "C12: a unit was put on a node that takes none";
        if (n->lost)
                return "N2: a unit was put on a node where copies may still run that moved away";
        if (shadow_tombstone(h, ix, number))
                return "N8: a unit was put where its old copy is not proved gone";
        if (w->zone && w->zone != n->zone)
                return "C14: a unit was put on a node with other labels";
        const char *what = neighbours_against(h, ix, number, false);
        if (what)
                return what;
        bool best = w->node || is_best(h, number, e);
        change(n->reserved, w->need, 1);
        w->holds = true;
        w->node = (uint32_t)ix + 1;
        if (!best)
                return "C15: a unit was not put on the best node that could take it";
        return is_over(n) ? "L3: placement promised more than the node has" : NULL;
}

static const char *workload_event(struct shadow *h, const Pb__Event *e)
{
        size_t number = number_of(e->workload_id);
        struct shadow_workload *w = shadow_workload(h, number);
        const char *what = NULL;
        if (e->type != PB__EVENT_TYPE__E__WorkloadApplied && !w->known)
                return "W5: an event about a workload that there is none of";
        switch (e->type) {
        case PB__EVENT_TYPE__E__WorkloadApplied:
        case PB__EVENT_TYPE__E__WorkloadRelabelled:
                return applied(h, number, w, e);
        case PB__EVENT_TYPE__E__WorkloadDesired:
                w->wanted = e->desired_state == PB__DESIRED_STATE__E__Running;
                w->finished = w->finished && !w->wanted;
                return NULL;
        case PB__EVENT_TYPE__E__WorkloadDeleting:
                w->deleting = true;
                return NULL;
        case PB__EVENT_TYPE__E__RetryTriggered:
                w->finished = false;
                return NULL;
        case PB__EVENT_TYPE__E__WorkloadReleased:
                w->node = 0;
                return NULL;
        case PB__EVENT_TYPE__E__WorkloadScheduled:
                return scheduled(h, number, w, e);
        case PB__EVENT_TYPE__E__WorkloadLaunched:
                return !w->node || !w->holds ? "W2: what is launched has no place" : NULL;
        case PB__EVENT_TYPE__E__Rescheduled:
                return leave(h, number, w, e->reason == PB__REASON__E__node_lost);
        case PB__EVENT_TYPE__E__WorkloadCompleted:
        case PB__EVENT_TYPE__E__WorkloadFailed:
                w->finished = true;
                release(h, w);
                return NULL;
        case PB__EVENT_TYPE__E__WorkloadDeleted:
                if (e->tombstone)
                        what = leave(h, number, w, true);
                else
                        release(h, w);
                *w = (struct shadow_workload){ 0 };
                return what;
        default:
                return NULL;
        }
}

static void forget(struct shadow *h, size_t ix)
{
        for (size_t i = h->tombstones.len; i > 0; i--)
                if (h->tombstones.at[i - 1].node == ix)
                        tombstone_drop(h, &h->tombstones.at[i - 1]);
        for (size_t i = 0; i < h->workloads.len; i++)
                if (h->workloads.at[i].node == ix + 1)
                        h->workloads.at[i].node = 0;
}

static const char *node_event(struct shadow *h, const Pb__Event *e)
{
        size_t ix = number_of(e->node_id);
        struct shadow_node *n = shadow_node(h, ix);
        switch (e->type) {
        case PB__EVENT_TYPE__E__NodeRegistered: {
                const Pb__NodeResources *r = e->node->resources;
                n->wish = n->known ? n->wish : PB__NODE_WISH__E__schedulable;
                n->known = n->ready = true;
                n->cannot_run = false;
                n->zone = e->node->n_labels ? e->node->labels[0]->value[0] : 0;
                n->total[CPU] = r->cpu_total;
                n->total[MEMORY] = r->memory_total;
                n->total[DISK] = r->disk_total;
                return NULL;
        }
        case PB__EVENT_TYPE__E__NodeReady:
        case PB__EVENT_TYPE__E__NodeLost:
                n->ready = e->type == PB__EVENT_TYPE__E__NodeReady;
                return NULL;
        case PB__EVENT_TYPE__E__NodeWishChanged:
                n->wish = e->wish;
                n->drain_deadline = e->drain ? e->drain->deadline_at : 0;
                return NULL;
        case PB__EVENT_TYPE__E__NodeTainted:
                neighbours_take_taints(n, e->node);
                return NULL;
        case PB__EVENT_TYPE__E__NodeTypeUnsupported:
                n->cannot_run = true;
                return NULL;
        case PB__EVENT_TYPE__E__NodeForgotten:
                if (n->ready)
                        return "C12: a node that is alive was forgotten";
                forget(h, ix);
                for (int i = 0; i < RESOURCES; i++)
                        if (n->reserved[i])
                                return "L1: a forgotten node still had something promised";
                *n = (struct shadow_node){ 0 };
                return NULL;
        default:
                return NULL;
        }
}

const char *shadow_event(struct shadow *h, const Pb__Event *e)
{
        if (e->type == PB__EVENT_TYPE__E__UnitRemoved) {
                struct shadow_tombstone *t =
                    shadow_tombstone(h, number_of(e->node_id), number_of(e->workload_id));
                if (!t)
                        return "N4: a unit was removed that nobody waited for";
                tombstone_drop(h, t);
                return NULL;
        }
        if (!str_empty(e->workload_id))
                return workload_event(h, e);
        return str_empty(e->node_id) ? NULL : node_event(h, e);
}
