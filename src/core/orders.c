/* core/orders.c: what each node is told to run (C40).
 *
 * A node's plan is derived: every unit that holds capacity there or is being deleted, and every
 * tombstone as "Deleted". Changes are sent as they are decided; the whole plan is sent whenever the
 * agent connects. A unit that the plan does not mention is never touched by the agent.
 */
#include "core/orders.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/wire.h"
#include "core/fence.h"
#include "core/node.h"
#include "core/restore.h"
#include "core/state.h"
#include "core/step.h"
#include "core/tombstone.h"
#include "model/pb.h"
#include <string.h>

static void order_sent(struct core *c, struct node_ix n)
{
        node_at(c, n)->sent_seq = c->head;
        node_at(c, n)->sent_epoch = c->epoch;
}

/* Whatever leaves for one of berth's own agents carries a warrant (A13). Foreign ones could not
 * keep it. */
static bool warrant_of(struct core *c, const struct unit *w, const void *definition, size_t len,
                       uint8_t ret[WARRANT_BYTES])
{
        const struct node *n = node_at(c, w->node);
        struct warrant_facts facts = { .cluster_id = c->cluster_id,
                                       .unit_id = w->id,
                                       .node_id = n->id,
                                       .epoch = w->token_epoch,
                                       .seq = w->token_seq,
                                       .definition = definition,
                                       .definition_len = len };
        return !n->push && warrant_make(c->warrants, &facts, ret);
}

static void *pack_unit(struct core *c, const struct unit *w, size_t *ret_len)
{
        const struct definition *d = definition_of(c, w);
        Pb__Token token = PB__TOKEN__INIT;
        token.epoch = w->token_epoch;
        token.seq = w->token_seq;
        Pb__PlanUnit unit = PB__PLAN_UNIT__INIT;
        unit.unit_id = w->id;
        unit.token = &token;
        unit.desired_state = w->desired;
        Pb__Workload head = PB__WORKLOAD__INIT;
        head.id = w->id;
        head.revision_id = w->revision;
        bool with_spec = w->desired != PB__DESIRED_STATE__E__Deleted;
        if (!with_spec)
                return pb_pack_arena(c->out.memory, &unit.base, ret_len);
        size_t inner, n;
        void *workload = pb_pack_before(&c->step, &head.base, d->data, d->len, &inner);
        unsigned char *field = arena_alloc(&c->step, inner + 32 + WARRANT_BYTES);
        n = wire_put_head(field, 4, inner); /* PlanUnit.workload */
        memcpy(field + n, workload, inner);
        n += inner;
        /* behind a tag and a length of one byte each */
        if (warrant_of(c, w, workload, inner, field + n + 2)) {
                n += wire_put_head(field + n, 5, WARRANT_BYTES); /* PlanUnit.warrant */
                n += WARRANT_BYTES;
        }
        return pb_pack_before(c->out.memory, &unit.base, field, n, ret_len);
}

bool unit_is_held_back(const struct core *c, const struct unit *w)
{
        if (exclusive_is_held_back(c, w, NULL))
                return true;
        if (!w->tombs || w->desired != PB__DESIRED_STATE__E__Running)
                return false;
        for (uint32_t t = tombstones_of(c, w->id); t != NONE; t = c->tombstones.at[t].same_next)
                if (c->tombstones.at[t].reason != PB__REASON__E__node_lost &&
                    !node_given_up(c, c->tombstones.at[t].node))
                        return true;
        return false;
}

void unit_send(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (order_is_doubtful(c, w))
                return;
        if (!node_ok(w->node) || w->unheard)
                return;
        if (unit_is_held_back(c, w) && !MUTANT(new_copy_before_old_is_gone)) {
                fence_ask_again(c, ix);
                return;
        }
        if (!node_at(c, w->node)->session)
                return;
        order_sent(c, w->node);
        effect_add(c, EFFECT_PLAN_UNIT, node_at(c, w->node)->session, 0, NULL, 0);
        size_t len;
        void *data = pack_unit(c, w, &len);
        struct effect *e = &c->out.effects.at[c->out.effects.len - 1];
        e->data = data;
        e->len = len;
}

void unit_send_removal(struct core *c, struct node_ix n, const char *workload_id, uint64_t epoch,
                       uint64_t seq)
{
        if (!node_at(c, n)->session)
                return;
        Pb__Token token = PB__TOKEN__INIT;
        token.epoch = epoch;
        token.seq = seq;
        Pb__PlanUnit unit = PB__PLAN_UNIT__INIT;
        unit.unit_id = (char *)workload_id;
        unit.token = &token;
        unit.desired_state = PB__DESIRED_STATE__E__Deleted;
        order_sent(c, n);
        effect_add(c, EFFECT_PLAN_UNIT, node_at(c, n)->session, 0, NULL, 0);
        struct effect *e = &c->out.effects.at[c->out.effects.len - 1];
        e->data = pb_pack_arena(c->out.memory, &unit.base, &e->len);
}

bool unit_is_in_plan(const struct unit *w)
{
        /* its next launch has a new token */
        bool waits = w->phase == PB__PHASE__E__RetryPending || w->phase == PB__PHASE__E__Pending;
        return (w->holds && !waits) || w->desired == PB__DESIRED_STATE__E__Deleted;
}

void plan_send(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        order_sent(c, ix);
        effect_add(c, EFFECT_PLAN_BEGIN, n->session, 0, NULL, 0);
        for (uint32_t t = MUTANT(tombstone_not_planned) ? NONE : n->tombstones; t != NONE;
             t = c->tombstones.at[t].next)
                unit_send_removal(c, ix, c->tombstones.at[t].workload_id,
                                  c->tombstones.at[t].token_epoch, c->tombstones.at[t].token_seq);
        /* What the node says that it runs newer than the record is asked for: an order of today
         * would replace it. */
        for (struct unit_ix w = n->units; unit_ok(w); w = unit_at(c, w)->node_next)
                if (unit_is_in_plan(unit_at(c, w)) && !unit_at(c, w)->behind)
                        unit_send(c, w);
        effect_add(c, EFFECT_PLAN_END, n->session, 0, NULL, 0);
}
