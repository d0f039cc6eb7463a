/* core/restore.c: a backup was restored: what this store knows, and what it cannot know (A5, C34).
 *
 * Agents may be ahead of a restored store: they run what it has never ordered, with tokens larger
 * than any that it remembers. So a restore is an event like any other. It makes the epoch larger
 * than every epoch that the lost state can have had, and notes the span of tokens that were given
 * out and forgotten: those behind the backup's head, up to the new epoch. Every launch from then on
 * beats what agents have; and nothing that carries a token of such a span is ever taken for an old
 * copy: it is newer than the record, not older.
 *
 * A copy with a forgotten token is compared with what the record's definition goes back to (its
 * origin), not only with its last order. The server launches what has failed or was lost as it
 * knows it, before it has heard of the newer copy: such an order is no newer wish, and the newer
 * copy wins all the same. It is launched once more for it, so that the greatest token is that of
 * the copy that stays. What somebody has asked for since the restore is newer than everything that
 * it forgot.
 *
 * Invariants:
 *   (E1) Epochs only grow, and the spans are in order and end at or before the present epoch.
 *   (E2) A workload's origin is the event of a wish since the last restore, or the token of the
 *   copy
 *        that was adopted since; none: the wish is older than every restore since.
 */
#include "core/restore.h"
#include "core/node.h"
#include "core/orders.h"
#include "core/state.h"
#include "core/step.h"
#include <string.h>

#define LOST_MAX 64 /* restores that are told apart; the oldest two become one that covers both */

bool token_is_lost(const struct core *c, uint64_t epoch, uint64_t seq)
{
        for (size_t i = 0; i < c->lost.len; i++) {
                const struct lost_span *l = &c->lost.at[i];
                if (epoch < l->until_epoch &&
                    (epoch > l->epoch || (epoch == l->epoch && seq > l->seq)))
                        return true;
        }
        return false;
}

/* ---- agents that are ahead ---- */

static bool is_less(uint64_t epoch, uint64_t seq, uint64_t than_epoch, uint64_t than_seq)
{
        return epoch < than_epoch || (epoch == than_epoch && seq < than_seq);
}

bool order_is_newer(const struct unit *w, uint64_t epoch, uint64_t seq)
{
        return !is_less(w->token_epoch, w->token_seq, epoch, seq);
}

/* Its next launch may replace a copy that runs: that of an exclusive one was ordered only when no
 * earlier copy could run any more (docs/fencing.md), so a node that says otherwise is not believed;
 * and a job would run again. */
static bool may_be_launched_over(const struct core *c, const struct unit *w)
{
        return !class_of(c, w)->exclusive && definition_of(c, w)->restart != PB__RESTART__E__never;
}

/* What its node runs of it was ordered by the state that is lost, later than anything that the
 * record goes back to. */
bool unit_is_ahead(const struct core *c, const struct unit *w, const Pb__UnitStatus *u)
{
        if (!c->lost.len || !u->token || u->state == PB__ACTUAL_STATE__E__Missing ||
            !token_is_lost(c, u->token->epoch, u->token->seq))
                return false;
        bool runs = w->desired == PB__DESIRED_STATE__E__Running;
        if (runs && !is_less(w->origin_epoch, w->origin_seq, u->token->epoch, u->token->seq))
                return false;
        if (!order_is_newer(w, u->token->epoch, u->token->seq))
                return true;
        return runs && u->state == PB__ACTUAL_STATE__E__Running && may_be_launched_over(c, w);
}

/* It is on its own node. What the record wants is older than what runs, so the record follows: the
 * definition is asked for (adopt.c). Unless somebody has asked since the restore for it to stop or
 * to go: that is newer than both, and needs a token that says so. */
void decide_ahead(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u)
{
        struct unit *w = unit_at(c, ix);
        bool runs =
            u->state == PB__ACTUAL_STATE__E__Running || u->state == PB__ACTUAL_STATE__E__Pending;
        bool asked_since = w->seq > c->lost.at[c->lost.len - 1].seq;
        if (w->desired == PB__DESIRED_STATE__E__Running || !asked_since) {
                w->behind = !w->claimed || w->word;
                return;
        }
        if (w->desired == PB__DESIRED_STATE__E__Stopped && !runs &&
            w->phase == PB__PHASE__E__Stopped)
                return;
        Pb__Token token = PB__TOKEN__INIT;
        token.epoch = c->epoch;
        token.seq = c->head + 1;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadFenced;
        e.workload_id = w->id;
        e.node_id = node_at(c, w->node)->id;
        e.token = &token;
        e.message = "its node has seen a newer order than the restored store knows";
        emit(c, &e);
        unit_send(c, ix);
}

/* An order to run from before the restore, to a node that does not say that it has it: it may have
 * moved since, and would run twice. Its next launch is an order of today. */
bool order_is_doubtful(const struct core *c, const struct unit *w)
{
        return c->lost.len && w->desired == PB__DESIRED_STATE__E__Running && !w->said &&
               w->token_epoch < c->lost.at[c->lost.len - 1].until_epoch;
}

/* Its node does not have it. After a restore that may be because it had moved: another node may say
 * so, and gets the time after which a silent one is given up: agents that have long tried in vain
 * come back only after some seconds. */
bool still_listening(const struct core *c, const struct unit *w)
{
        if (!c->lost.len || w->token_epoch >= c->lost.at[c->lost.len - 1].until_epoch ||
            c->now_ms - c->started_ms >= silence_limit_ms(c) + c->opt.evict_grace_ms)
                return false;
        for (uint32_t i = 0; i < c->nodes.len; i++)
                if (c->nodes.at[i].id && !c->nodes.at[i].heard_at)
                        return true;
        return false;
}

/* ---- the spans ---- */

void lost_add(struct core *c, const Pb__LostSpan *span)
{
        if (c->lost.len == LOST_MAX) {
                c->lost.at[0].until_epoch = c->lost.at[1].until_epoch;
                memmove(&c->lost.at[1], &c->lost.at[2], (c->lost.len - 2) * sizeof(c->lost.at[0]));
                c->lost.len--;
        }
        *array_push(&c->lost) =
            (struct lost_span){ span->epoch, span->seq, span->until_epoch, span->restored_at };
}

void lost_record(const struct core *c, struct arena *a, Pb__Cluster *r)
{
        if (!c->lost.len)
                return;
        r->lost = arena_new_n(a, Pb__LostSpan *, c->lost.len);
        for (size_t i = 0; i < c->lost.len; i++) {
                Pb__LostSpan *l = r->lost[r->n_lost++] = arena_new(a, Pb__LostSpan);
                pb__lost_span__init(l);
                l->epoch = c->lost.at[i].epoch;
                l->seq = c->lost.at[i].seq;
                l->until_epoch = c->lost.at[i].until_epoch;
                l->restored_at = c->lost.at[i].restored_at;
        }
}

bool lost_is_sane(const Pb__Cluster *m)
{
        if (m->n_lost > LOST_MAX)
                return false;
        for (size_t i = 0; i < m->n_lost; i++)
                if (m->lost[i]->epoch >= m->lost[i]->until_epoch ||
                    m->lost[i]->until_epoch > m->epoch || !time_is_sane(m->lost[i]->restored_at) ||
                    (i && m->lost[i]->epoch < m->lost[i - 1]->until_epoch))
                        return false;
        return true;
}

/* The first input of a core that was loaded from a backup, and the only one. The time is a good
 * epoch: nobody who restores the same backup again gets the same one. */
void decide_restored(struct core *c, const struct input *in)
{
        must(!c->started && c->cluster_id, "a restore comes first, and of a cluster");
        c->head = in->head;
        out_reset(c);
        c->started = true;
        uint64_t epoch = c->epoch > in->epoch ? c->epoch : in->epoch;
        epoch = c->now_ms > 0 && (uint64_t)c->now_ms > epoch ? (uint64_t)c->now_ms : epoch + 1;
        Pb__LostSpan span = PB__LOST_SPAN__INIT, *spans[] = { &span };
        Pb__Cluster cluster = PB__CLUSTER__INIT;
        span.epoch = c->epoch;
        span.seq = c->head;
        span.until_epoch = epoch;
        /* after all that is on record, as far as there are such times */
        int64_t newest = core_newest_ms(c);
        int64_t after = newest < TIME_MAX_MS ? newest + 1 : TIME_MAX_MS;
        span.restored_at = c->now_ms > newest ? c->now_ms : after;
        cluster.cluster_id = c->cluster_id;
        cluster.created_at = c->cluster_created_at;
        cluster.epoch = epoch;
        /* the next leader notes another one */
        cluster.key_fingerprint = (char *)(c->opt.key_fingerprint ? c->opt.key_fingerprint : "");
        cluster.lost = spans;
        cluster.n_lost = 1;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__StoreRestored;
        e.cluster = &cluster;
        e.message = arena_printf(
            &c->step,
            "restored from a backup of sequence %llu; the epoch is %llu now, and was %llu",
            (unsigned long long)c->head, (unsigned long long)epoch, (unsigned long long)c->epoch);
        emit(c, &e);
}

const char *wrong_restore(struct core *c, const Pb__Event *e)
{
        const Pb__Cluster *m = e->cluster;
        return !m || m->n_lost != 1 || !lost_is_sane(m) || m->epoch <= c->epoch ||
                       m->lost[0]->until_epoch != m->epoch || m->lost[0]->epoch != c->epoch ||
                       m->lost[0]->seq != c->head
                   ? "the restore does not follow from the state before it"
                   : NULL;
}

void apply_restored(struct core *c, const Pb__Event *e)
{
        c->epoch = e->cluster->epoch;
        text_set(&c->key_fingerprint, e->cluster->key_fingerprint);
        c->restored = true; /* until what may run from before has lost its lease: fence.c */
        lost_add(c, e->cluster->lost[0]);
        cluster_changed(c);
}
