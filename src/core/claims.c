/* core/claims.c: what a node's word about units is worth that the records do not place there (A13).
 *
 * A node may be compromised. Its word about its own units counts; its word that it runs somebody
 * else's is a claim. What this cluster ordered on a node carries a warrant (model/warrant.h), which
 * the agent keeps with the definition and returns when it is asked. So a claim is looked at before
 * anything follows from it:
 *
 *      claim --> EFFECT_DESCRIBE --> INPUT_DEFINITIONS --> warranted: adopted by itself, where that
 *      is the rule (adopt.c)
 *                                                     '-> else:      left alone, told
 *                                                                    (ClaimRefused), and adopted by
 *                                                                    an operator's word only
 *
 * Weights, lightest first: a claim; the report of the node that holds the unit by the records; a
 * valid warrant with a greater token than the record's. Of two valid warrants the greater token
 * wins, in whatever order they come, and whatever the server has launched by itself meanwhile
 * (restore.c).
 *
 * What needs no proof: that a copy is gone from its own node.
 */
#include "core/claims.h"
#include "base/mem.h"
#include "core/notice.h"
#include "core/restore.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include "model/pb.h"
#include <string.h>

/* ---- verdicts ---- */

enum verdict claim_verdict(struct core *c, struct node_ix ix, const Pb__HeldUnit *h)
{
        if (!h->warrant.len)
                return VERDICT_NONE;
        if (!h->token)
                return VERDICT_FALSE;
        struct warrant_facts facts = { .cluster_id = c->cluster_id,
                                       .unit_id = h->unit_id,
                                       .node_id = node_at(c, ix)->id,
                                       .epoch = h->token->epoch,
                                       .seq = h->token->seq,
                                       .definition = h->definition.data,
                                       .definition_len = h->definition.len };
        return warrant_is_valid(c->warrants, &facts, h->warrant.data, h->warrant.len)
                   ? VERDICT_WARRANTED
                   : VERDICT_FALSE;
}

/* What it was started from: the definition's own bytes, and the rest as its agent says. */
Pb__Workload *claim_definition(struct core *c, const Pb__HeldUnit *h)
{
        ProtobufCMessage *m = NULL;
        struct err err;
        if (!h->definition.len || pb_unpack(&pb__workload__descriptor, h->definition.data,
                                            h->definition.len, &c->step, &m, &err) < 0)
                /* of no type: nobody knows what it was started from */
                m = pb_new(&c->step, &pb__workload__descriptor);
        Pb__Workload *w = (Pb__Workload *)m;
        w->id = h->unit_id;
        w->desired_state = h->desired_state;
        w->token = h->token;
        return w;
}

/* Does an exclusive workload have to wait for it (fence.c)? A warrant proves that it was ordered
 * there. Without one it counts only where it may be true all the same: a restore may have forgotten
 * it. Otherwise what runs is in the records. */
bool claim_counts(const struct core *c, const struct stranger *s)
{
        return s->verdict == VERDICT_WARRANTED ||
               (s->verdict != VERDICT_FALSE &&
                (c->restored || token_is_lost(c, s->token_epoch, s->token_seq)));
}

/* It is worth a question, although nobody would adopt it: others wait for it if it is true. */
bool claim_matters(const struct core *c, const struct stranger *s)
{
        if (s->verdict != VERDICT_UNKNOWN || s->wanted)
                return false;
        if (c->restored && token_is_lost(c, s->token_epoch, s->token_seq))
                return true;
        struct unit_ix w = workload_find(c, s->id);
        return unit_ok(w) && class_of(c, unit_get(c, w))->exclusive;
}

/* ---- a newer copy than the record knows, on its own node (restore.c) ---- */

/* The node says that a newer copy runs in the place of one that was to go: the older one is gone by
 * the same word. */
bool claim_replaces(const struct core *c, uint32_t t, const Pb__UnitStatus *u)
{
        const struct tombstone *old = &c->tombstones.at[t];
        return u->token && u->state != PB__ACTUAL_STATE__E__Missing &&
               token_is_lost(c, u->token->epoch, u->token->seq) &&
               (old->token_epoch < u->token->epoch ||
                (old->token_epoch == u->token->epoch && old->token_seq < u->token->seq));
}

/* The node that has it by the records is heard, and says that it has it. */
bool holder_is_healthy(const struct core *c, const struct unit *w)
{
        return node_ok(w->node) && w->said &&
               node_get(c, w->node)->status == PB__NODE_STATUS__E__Ready &&
               node_get(c, w->node)->heard_at;
}

/* ---- telling ---- */

void claims_note(struct claims *k, const char *id, enum verdict verdict)
{
        k->n++;
        k->n_false += verdict == VERDICT_FALSE;
        if (k->names.len < 200)
                str_addf(&k->names, "%s%s", k->names.len ? ", " : "", id);
}

/* One event for all that one answer brought. */
void claims_tell(struct core *c, struct node_ix ix, struct claims *k)
{
        if (k->n) {
                Pb__Event e = PB__EVENT__INIT;
                const char *id = node_at(c, ix)->id;
                e.type = PB__EVENT_TYPE__E__ClaimRefused;
                e.node_id = (char *)id;
                e.message = arena_printf(&c->step,
                                         "%u units that it says it runs have no %swarrant of this "
                                         "cluster and are left alone; berth adopt "
                                         "%s takes them over, if you trust it: %s%s",
                                         k->n, k->n_false ? "valid " : "", id, str_c(&k->names),
                                         k->names.len < 200 ? "" : ", ...");
                notice_of_node(c, ix, &e);
                decision_done(c);
        }
        str_fini(&k->names);
        *k = (struct claims){ 0 };
}

/* ---- the key ---- */

void core_set_key(struct core *c, const struct warrant_keys *keys, const char *fingerprint)
{
        must(!c->started, "the key comes before INPUT_START");
        warrants_destroy(c->warrants);
        c->warrants = warrants_create(keys);
        mem_free((char *)c->opt.key_fingerprint);
        c->opt.key_fingerprint = fingerprint ? mem_strdup(fingerprint) : NULL;
}

const char *core_key_fingerprint(const struct core *c)
{
        return c->key_fingerprint ? c->key_fingerprint : "";
}

/* Whoever leads says whose key it has: the first time, and after a rotation. */
void key_noted(struct core *c)
{
        if (str_empty(c->opt.key_fingerprint) || str_eq(c->key_fingerprint, c->opt.key_fingerprint))
                return;
        Pb__Cluster cluster = PB__CLUSTER__INIT;
        cluster.cluster_id = c->cluster_id;
        cluster.epoch = c->epoch;
        cluster.key_fingerprint = (char *)c->opt.key_fingerprint;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__ClusterKeyChanged;
        e.cluster = &cluster;
        e.message = c->key_fingerprint
                        ? arena_printf(&c->step, "the cluster's key is %s from now on, and was %s",
                                       c->opt.key_fingerprint, c->key_fingerprint)
                        : arena_printf(&c->step, "the cluster's key is %s", c->opt.key_fingerprint);
        emit(c, &e);
}
