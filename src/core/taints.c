/* core/taints.c: taints, by which an operator keeps work away from a node, and tolerations, by
 * which work says that it does not mind (C38).
 *
 *   no_schedule          nothing new that does not tolerate it
 *   prefer_no_schedule   only if nothing else is left
 *   no_execute           as no_schedule, and what is there moves away
 */
#include "base/mem.h"
#include "base/mutant.h"
#include "core/evict.h"
#include "core/node.h"
#include "core/read.h"
#include "core/state.h"
#include "core/step.h"
#include <string.h>

bool tolerates(const struct constraints *k, const struct taint *t)
{
        for (uint32_t i = 0; k && i < k->n_tolerations; i++) {
                const struct toleration *o = &k->tolerations[i];
                bool key = strcmp(o->key, "*") == 0 || strcmp(o->key, t->key) == 0;
                if (key && (!o->value[0] || strcmp(o->value, t->value) == 0) &&
                    (!o->effect || o->effect == t->effect))
                        return true;
        }
        return false;
}

bool taints_keep_away(const struct node *n, const struct constraints *k)
{
        for (uint32_t i = 0; i < n->n_taints; i++)
                if (n->taints[i].effect != PB__TAINT_EFFECT__E__prefer_no_schedule &&
                    !tolerates(k, &n->taints[i]) && !MUTANT(taint_ignored))
                        return true;
        return false;
}

bool taints_drive_out(const struct core *c, const struct unit *w)
{
        const struct node *n = node_get(c, w->node);
        for (uint32_t i = 0; i < n->n_taints; i++)
                if (n->taints[i].effect == PB__TAINT_EFFECT__E__no_execute &&
                    !tolerates(class_of(c, w)->more, &n->taints[i]))
                        return true;
        return false;
}

void taints_free(struct node *n)
{
        for (uint32_t i = 0; i < n->n_taints; i++) {
                mem_free(n->taints[i].key);
                mem_free(n->taints[i].value);
        }
        mem_free(n->taints);
        n->taints = NULL;
        n->n_taints = 0;
        n->tainted = 0;
}

/* A taint of an effect that this berth does not know is kept, and keeps away. */
void taints_set(struct core *c, struct node_ix ix, Pb__Taint *const *taints, size_t count)
{
        struct node *n = node_at(c, ix);
        bool soft_before = n->tainted == TAINTED_SOFT;
        taints_free(n);
        if (count)
                n->taints = mem_must(count * sizeof(*n->taints));
        for (size_t i = 0; i < count; i++) {
                n->taints[n->n_taints++] =
                    (struct taint){ mem_strdup(taints[i]->key), mem_strdup(taints[i]->value),
                                    (uint8_t)taints[i]->effect };
                if (taints[i]->effect != PB__TAINT_EFFECT__E__prefer_no_schedule)
                        n->tainted = TAINTED_HARD;
                else if (!n->tainted)
                        n->tainted = TAINTED_SOFT;
        }
        c->counts.soft_tainted += (uint32_t)(n->tainted == TAINTED_SOFT) - (uint32_t)soft_before;
        c->counts.eligibility++;
        c->capacity_change++;
}

bool taints_are_sane(const Pb__Node *n)
{
        for (size_t i = 0; i < n->n_taints; i++)
                if (str_empty(n->taints[i]->key) || (int)n->taints[i]->effect <= 0 ||
                    (int)n->taints[i]->effect > UINT8_MAX)
                        return false;
        return n->n_taints <= 1024;
}

static bool same_taints(const struct node *n, Pb__Taint *const *taints, size_t count)
{
        if (count != n->n_taints)
                return false;
        for (size_t i = 0; i < count; i++)
                if (strcmp(taints[i]->key, n->taints[i].key) != 0 ||
                    strcmp(taints[i]->value, n->taints[i].value) != 0 ||
                    taints[i]->effect != n->taints[i].effect)
                        return false;
        return true;
}

void decide_taints(struct core *c, const Pb__SetTaintsRequest *req)
{
        struct node_ix ix;
        if (!node_asked_for(c, req->id, req->if_match, &ix))
                return;
        if (!same_taints(node_at(c, ix), req->taints, req->n_taints)) {
                Pb__Node taints = PB__NODE__INIT;
                taints.taints = req->taints;
                taints.n_taints = req->n_taints;
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__NodeTainted;
                e.node_id = node_at(c, ix)->id;
                e.node = &taints;
                e.message = req->n_taints ? "taints changed" : "taints removed";
                emit(c, &e);
                need_not_move(c, ix);
                if (node_at(c, ix)->tainted == TAINTED_HARD)
                        evict_driven_out(c, ix);
        }
        reply_node(c, ix);
}
