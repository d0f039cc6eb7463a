/* core/view.c: the committed state, to be looked at while the store is away (C35, A11).
 *
 * The live core runs ahead of the store by what was decided before the store went away; showing
 * that could show what is never going to be. A view is a second core, loaded from the records that
 * are in the store. It is never stepped: it decides nothing, and has no deadlines. What no record
 * holds (who is connected, when a node was heard last, what it uses) is taken over from the live
 * core: such facts wait for no commit.
 */
#include "core/node.h"
#include "core/place.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"

static void take_over_node(struct core *view, struct node_ix ix, const struct node *from)
{
        struct node *n = node_at(view, ix);
        n->session = from->session;
        if (n->session)
                map_put(&view->session_nodes, ix.v);
        n->heard_at = from->heard_at;
        n->heard_steady = from->heard_steady;
        n->twin_at = from->twin_at;
        n->late_at = from->late_at;
        n->cpu_used = from->cpu_used;
        n->memory_used_mb = from->memory_used_mb;
        n->disk_used_gb = from->disk_used_gb;
        n->usage_known = from->usage_known;
        n->strangers = from->strangers;
        n->held = from->held;
        n->given_up = from->given_up;
        view->n_held += n->held;
}

void core_view(struct core *view, const struct core *live, uint64_t head)
{
        must(!view->started && live->started, "a view is made of a loaded core, for a running one");
        view->head = head;
        out_reset(view);
        view->started = true;
        view->now_ms = live->now_ms;
        view->started_ms = live->started_ms;
        view->steady_ms = live->steady_ms;
        view->started_steady = live->started_steady;
        view->fencing_since = live->fencing_since;
        view->stats = live->stats;
        ranks_refresh(view);
        brake_rebuild(view);
        view->brake.holds = live->brake.holds;
        for (uint32_t i = 0; i < view->nodes.len; i++) {
                struct node_ix ix = { i };
                if (!node_at(view, ix)->id)
                        continue;
                struct node_ix same = node_find(live, node_at(view, ix)->id);
                if (node_ok(same))
                        take_over_node(view, ix, node_get(live, same));
                columns_update(view, ix);
        }
        for (uint32_t i = 0; i < view->units.len; i++)
                if (view->units.at[i].id && view->units.at[i].phase == PB__PHASE__E__Pending &&
                    view->units.at[i].desired == PB__DESIRED_STATE__E__Running)
                        waiting_add(view, (struct unit_ix){ i });
}
