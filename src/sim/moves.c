/* sim/moves.c: a unit that leaves its node has a cause that somebody can see who knows only the
 * committed events; and drains keep their word (C12, C25, C26, C38).
 *
 *   node_lost            judged by watch.c
 *   node_drained         its node is draining. It has another node in the very next event, or is
 *                        not to run, or the drain's deadline has passed: blockers stay until then.
 *   taint_not_tolerated  its node has a no_execute taint that it does not tolerate; it has another
 *                        node at once as well.
 *   preempted            the one that it made room for waits, and has a strictly higher priority;
 *                        and it was not made to move within the last five minutes.
 *   spec_changed         the very next event is the new spec.
 *   runtime_unavailable  its node was just found not to run it.
 *   none                 it held nothing there any more.
 */
#include "base/mem.h"
#include "sim/shadow.h"
#include "sim/world.h"
#include <stdio.h>
#include <string.h>

#define PREEMPT_GRACE_MS 300000
#define DEADLINE_SLACK_MS 30000 /* commits may be slow */

struct moves {
        size_t follows; /* the workload that the next event must be about, + 1; 0: any */
        Pb__EventType__E follow_up;
        ARRAY(int64_t) preempted_at; /* by workload */
};

struct moves *moves_create(void)
{
        return mem_must(sizeof(struct moves));
}

void moves_destroy(struct moves *m)
{
        array_fini(&m->preempted_at);
        mem_free(m);
}

static const char *preempted(struct moves *m, struct shadow *h, size_t number, const Pb__Event *e)
{
        char winner[64];
        if (sscanf(e->message, "made room for %63s", winner) != 1)
                return "P7: a unit made room for nobody";
        const struct shadow_workload *w = shadow_workload(h, number_of(winner));
        bool waits = !w->holds || shadow_is_driven_out(h, w->node - 1, number_of(winner)) ||
                     !shadow_node(h, w->node - 1)->ready ||
                     shadow_node(h, w->node - 1)->wish == PB__NODE_WISH__E__draining;
        if (!w->known || !waits || !w->wanted || w->deleting || w->finished)
                return "P7: a unit made room for one that does not wait";
        if (w->pinned && w->holds)
                return "P7: a unit made room for one that is pinned to another node";
        if (w->priority <= shadow_workload(h, number)->priority)
                return "P7: a unit made room for one whose priority is not higher";
        while (m->preempted_at.len <= number)
                array_push(&m->preempted_at);
        int64_t before = m->preempted_at.at[number];
        m->preempted_at.at[number] = e->timestamp;
        return before && e->timestamp - before < PREEMPT_GRACE_MS
                   ? "C38: a unit had to make room twice within its grace"
                   : NULL;
}

/* It goes only because it has somewhere else to go. */
static void must_be_placed(struct moves *m, const struct shadow_workload *w, size_t number)
{
        m->follows = number + 1;
        m->follow_up =
            w->wanted ? PB__EVENT_TYPE__E__WorkloadScheduled : PB__EVENT_TYPE__E__WorkloadStopped;
}

static const char *left(struct moves *m, struct shadow *h, size_t number, const Pb__Event *e)
{
        const struct shadow_workload *w = shadow_workload(h, number);
        const struct shadow_node *n = shadow_node(h, number_of(e->node_id));
        switch (e->reason) {
        case PB__REASON__E__node_lost:
                return NULL;
        case PB__REASON__E__node_drained:
                if (n->wish != PB__NODE_WISH__E__draining)
                        return "C12: a unit left because of a drain that there is none of";
                if (!n->drain_deadline || e->timestamp < n->drain_deadline)
                        must_be_placed(m, w, number);
                return NULL;
        case PB__REASON__E__taint_not_tolerated:
                if (!w->node || !shadow_is_driven_out(h, w->node - 1, number))
                        return "C38: a unit left because of a taint that it tolerates";
                must_be_placed(m, w, number);
                return NULL;
        case PB__REASON__E__preempted:
                return preempted(m, h, number, e);
        case PB__REASON__E__spec_changed:
                m->follows = number + 1;
                m->follow_up = PB__EVENT_TYPE__E__WorkloadApplied;
                return NULL;
        case PB__REASON__E__runtime_unavailable:
                return n->cannot_run ? NULL : "C25: a unit left because of a runtime that works";
        case PB__REASON__E__none:
                return w->holds ? "C26: a unit left its node without a cause" : NULL;
        default:
                return "C26: a unit left its node for a reason that is none";
        }
}

/* D2: nothing is left. */
static const char *drained(struct shadow *h, size_t node)
{
        if (shadow_node(h, node)->wish != PB__NODE_WISH__E__draining)
                return "D1: a drain ended that had not begun";
        for (size_t i = 0; i < h->workloads.len; i++)
                if (h->workloads.at[i].holds && h->workloads.at[i].node == node + 1)
                        return "D2: a drain ended although a unit is left";
        for (size_t i = 0; i < h->tombstones.len; i++)
                if (h->tombstones.at[i].node == node)
                        return "D2: a drain ended although an old copy is left";
        return NULL;
}

/* When a deadline has passed nothing is left but what is being deleted, or pinned. */
static const char *late(struct shadow *h, int64_t now, int64_t server_started)
{
        for (size_t n = 0; n < h->nodes.len; n++) {
                const struct shadow_node *x = &h->nodes.at[n];
                if (!x->known || x->wish != PB__NODE_WISH__E__draining || !x->drain_deadline ||
                    !x->ready || now - x->drain_deadline < DEADLINE_SLACK_MS ||
                    now - server_started < DEADLINE_SLACK_MS)
                        continue;
                for (size_t i = 0; i < h->workloads.len; i++)
                        if (h->workloads.at[i].holds && h->workloads.at[i].node == n + 1 &&
                            !h->workloads.at[i].deleting && !h->workloads.at[i].pinned)
                                return "C12: a unit is still on a node whose drain has passed its "
                                       "deadline";
        }
        return NULL;
}

const char *moves_event(struct moves *m, struct shadow *h, const Pb__Event *e,
                        int64_t server_started)
{
        if (e->type == PB__EVENT_TYPE__E__FencingChanged)
                return NULL; /* of the first exclusive one: comes with it, before */
        size_t follows = m->follows, number = number_of(e->workload_id);
        bool about_workload = !str_empty(e->workload_id);
        m->follows = 0;
        if (follows && (!about_workload || number + 1 != follows || e->type != m->follow_up))
                return m->follow_up == PB__EVENT_TYPE__E__WorkloadApplied
                           ? "C26: a unit left its node for a spec that did not come"
                           : "C12: a unit left its node and has no other";
        if (e->type == PB__EVENT_TYPE__E__Rescheduled)
                return left(m, h, number, e);
        if (e->type == PB__EVENT_TYPE__E__WorkloadDeleted && number < m->preempted_at.len)
                m->preempted_at.at[number] = 0;
        if (e->type == PB__EVENT_TYPE__E__NodeDrained)
                return drained(h, number_of(e->node_id));
        return e->type == PB__EVENT_TYPE__E__UnitRemoved ? NULL
                                                         : late(h, e->timestamp, server_started);
}
