/* core/adopt.c: taking over what nodes run and the records do not know (C27, A5).
 *
 * A store can be lost, and a node can come from another cluster. What runs there is never touched
 * for that: it is told of, and an operator may take it over. The agent keeps the whole definition
 * of each unit, so a unit becomes a record as it is: with its definition, its revision and its
 * token. The agent then finds itself told to run exactly what it runs, and does nothing.
 *
 * Without an operator's word only what has a warrant of this cluster for that very node becomes a
 * record (claims.c).
 *
 *      adopt --> a node of this cluster:    EFFECT_DESCRIBE --> INPUT_DEFINITIONS -->
 *      WorkloadAdopted each --> the answer adopt --> a node of another cluster: NodeAdopted (the
 *      epoch grows) --> its agent's next hello is let in, Welcome.adopt --> as above, for all it
 *      has --> NodeTakenOver
 *
 * An operator's word counts once (A13). For a node of another cluster it is on record
 * (adopt_until), so that whoever dies in the middle can finish; it ends when every unit that the
 * node has was decided on and its agent has spoken after its Welcome, which it does only when its
 * new cluster is on its disk (agent/engine.h (11)); and after an hour in any case, so that nobody
 * keeps it by saying nothing. Then a hello with the old cluster's id is refused like that of any
 * other cluster, and what the node runs beyond the records is a claim.
 *
 * A token of another cluster may be larger than any of ours. So the epoch becomes larger than any
 * that such a node has seen, and every launch from then on beats it.
 *
 * Invariant (A7): an adopted workload has the token that its agent said; it is of a past epoch, or
 * of a past event of this one.
 */
#include "core/adopt.h"
#include "base/mutant.h"
#include "core/admission.h"
#include "core/claims.h"
#include "core/definitions.h"
#include "core/drift.h"
#include "core/fence.h"
#include "core/node.h"
#include "core/orders.h"
#include "core/policy.h"
#include "core/read.h"
#include "core/restore.h"
#include "core/state.h"
#include "core/step.h"
#include "core/tombstone.h"
#include "core/workload.h"
#include "model/pb.h"
#include "model/validate.h"
#include <string.h>

#define DESCRIBE_AT_ONCE 100
#define ADOPTIONS_MAX 64
/* how long an operator's word for units counts, while their agent says nothing */
#define ADOPTION_MS (60 * 1000)
#define FOREIGN_MAX 1000
/* by so much may another cluster's clock be wrong */
#define EPOCH_AHEAD_MS (UINT64_C(10) * 365 * 86400000)
/* how long an operator's word for a whole node counts */
#define TAKEOVER_MS (60 * 60 * 1000)
/* not heard for this long: it has gone elsewhere */
#define FOREIGN_MS (5 * 60 * 1000)

/* ---- nodes of another cluster ---- */

static void foreign_free(struct foreign *f)
{
        mem_free(f->node_id);
        mem_free(f->hello);
}

void adopt_fini(struct core *c)
{
        for (size_t i = 0; i < c->foreign.len; i++)
                foreign_free(&c->foreign.at[i]);
        array_fini(&c->foreign);
        while (c->adoptions.len)
                adoption_end(c, c->adoptions.len - 1);
        array_fini(&c->adoptions);
}

static struct foreign *foreign_find(struct core *c, const char *node_id)
{
        for (size_t i = 0; i < c->foreign.len; i++)
                if (strcmp(c->foreign.at[i].node_id, node_id) == 0 &&
                    c->now_ms - c->foreign.at[i].heard_at < FOREIGN_MS)
                        return &c->foreign.at[i];
        return NULL;
}

static void foreign_drop(struct core *c, const char *node_id)
{
        for (size_t i = 0; i < c->foreign.len; i++)
                if (strcmp(c->foreign.at[i].node_id, node_id) == 0) {
                        foreign_free(&c->foreign.at[i]);
                        c->foreign.at[i] = array_pop(&c->foreign);
                        return;
                }
}

void foreign_remember(struct core *c, const Pb__Hello *h)
{
        foreign_drop(c, h->node_id);
        for (size_t i = c->foreign.len; i > 0; i--)
                if (c->now_ms - c->foreign.at[i - 1].heard_at >= FOREIGN_MS) {
                        foreign_free(&c->foreign.at[i - 1]);
                        c->foreign.at[i - 1] = c->foreign.at[c->foreign.len - 1];
                        c->foreign.len--;
                }
        if (c->foreign.len >= FOREIGN_MAX)
                return;
        uint64_t epoch = h->applied ? h->applied->epoch : 0;
        for (size_t i = 0; i < h->n_units; i++)
                if (h->units[i]->token && h->units[i]->token->epoch > epoch)
                        epoch = h->units[i]->token->epoch;
        Pb__Hello brief = *h;
        brief.n_units = 0;
        struct foreign f = { .node_id = mem_strdup(h->node_id),
                             .heard_at = c->now_ms,
                             .units = (uint32_t)h->n_units,
                             .epoch = epoch };
        f.len = pb__hello__get_packed_size(&brief);
        f.hello = mem_must(f.len + 1);
        pb__hello__pack(&brief, f.hello);
        *array_push(&c->foreign) = f;
}

static Pb__Hello *foreign_hello(struct core *c, const struct foreign *f)
{
        struct arena_allocator alloc = arena_allocator(&c->step);
        return pb__hello__unpack((ProtobufCAllocator *)&alloc, f->len, f->hello);
}

void *foreign_record(struct core *c, const struct foreign *f, struct arena *a, size_t *ret_len)
{
        Pb__Hello *h = foreign_hello(c, f);
        Pb__Node node;
        Pb__NodeResources res;
        attributes_of_hello(h, &node, &res);
        node.foreign = true;
        node.status = PB__NODE_STATUS__E__NotReady;
        node.status_reason = arena_printf(
            &c->step, "belongs to cluster %s and runs %u units; berth adopt %s takes it over",
            h->cluster_id, f->units, f->node_id);
        node.status_updated_by = "register";
        node.status_updated_at = node.last_heartbeat = f->heard_at;
        node.units = (int32_t)f->units;
        *ret_len = pb__node__get_packed_size(&node);
        void *data = arena_alloc(a, *ret_len + 1);
        pb__node__pack(&node, data);
        return data;
}

const struct foreign *foreign_get(struct core *c, const char *node_id)
{
        return node_ok(node_find(c, node_id)) ? NULL : foreign_find(c, node_id);
}

bool foreign_is_shown(const struct core *c, const struct foreign *f)
{
        return c->now_ms - f->heard_at < FOREIGN_MS && !node_ok(node_find(c, f->node_id));
}

/* Epochs grow by one, or to the time in ms (restore.c). Ours follows that of a node that is taken
 * over: one that names a number out of all proportion would make it the last that can be. */
static bool epoch_is_made_up(const struct core *c, uint64_t epoch)
{
        uint64_t now = c->now_ms > 0 ? (uint64_t)c->now_ms : 0,
                 ours = c->epoch > now ? c->epoch : now;
        return epoch > ours + EPOCH_AHEAD_MS || ours + EPOCH_AHEAD_MS >= EPOCH_MAX;
}

/* A node that was taken over from that cluster before, and says once more that it belongs there:
 * its disk is of before, say. */
static bool is_back_there(struct core *c, struct node_ix ix, const struct foreign *f)
{
        const struct node *n = node_at(c, ix);
        return !n->session && str_eq(n->adopted_from, foreign_hello(c, f)->cluster_id);
}

static void adopt_foreign(struct core *c, const struct foreign *f)
{
        Pb__Hello *h = foreign_hello(c, f);
        Pb__Node node;
        Pb__NodeResources res;
        Pb__Cluster cluster = PB__CLUSTER__INIT;
        const char *ignored;
        attributes_of_hello(h, &node, &res);
        admission_shape(c, h->node_id, &node, &ignored);
        node.adopted_from = h->cluster_id;
        node.adopt_until = c->now_ms + TAKEOVER_MS;
        cluster.cluster_id = c->cluster_id;
        cluster.created_at = c->cluster_created_at;
        cluster.epoch = (f->epoch > c->epoch ? f->epoch : c->epoch) + 1;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__NodeAdopted;
        e.node_id = h->node_id;
        e.node = &node;
        e.cluster = &cluster;
        e.reason = PB__REASON__E__adopted;
        e.message = arena_printf(&c->step, "taken over from cluster %s with %u units",
                                 h->cluster_id, f->units);
        bool is_new = !node_ok(node_find(c, h->node_id));
        emit(c, &e);
        if (is_new)
                admission_registered(c, node_find(c, h->node_id));
        foreign_drop(c, h->node_id);
}

bool adopt_is_said(const struct core *c, const struct node *n)
{
        return n->adopt_until > c->now_ms;
}

void adopt_is_done(struct core *c, struct node_ix ix)
{
        const struct node *n = node_at(c, ix);
        if (!n->adopt_until || !n->session || MUTANT(word_is_kept))
                return;
        for (size_t i = 0; i < n->strangers.len && adopt_is_said(c, n); i++)
                if (n->strangers.at[i].wanted)
                        return;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__NodeTakenOver;
        e.node_id = n->id;
        e.reason = PB__REASON__E__adopted;
        e.message = adopt_is_said(c, n)
                        ? "it belongs to this cluster, and what it had was looked at: to take over "
                          "more of it needs a new word"
                        : "it was not finished in time: to take over what is left needs a new word";
        emit(c, &e);
        decision_done(c);
}

/* ---- units ---- */

void adoption_end(struct core *c, size_t i)
{
        struct adoption *a = &c->adoptions.at[i];
        mem_free(a->node_id);
        mem_free(a->request_id);
        mem_free(a->actor);
        arena_fini(&a->memory);
        array_fini(&a->adopted);
        array_fini(&a->refused);
        *a = c->adoptions.at[c->adoptions.len - 1];
        c->adoptions.len--;
}

/* As the one who asked, who may not be the input of this step. */
static void answer(struct core *c, struct adoption *a, const struct err *err, const char *message)
{
        struct input in = { .kind = INPUT_ADOPT,
                            .reply = a->ticket,
                            .request_id = a->request_id,
                            .actor = a->actor };
        const struct input *before = c->in;
        struct node_ix ix = node_find(c, a->node_id);
        Pb__AdoptResponse r = PB__ADOPT_RESPONSE__INIT;
        c->in = &in;
        if (err)
                reply_error(c, err);
        else {
                struct arena_allocator alloc = arena_allocator(&c->step);
                size_t len;
                void *data =
                    node_ok(ix) ? node_record_whole(c, node_at(c, ix), &c->step, &len) : NULL;
                r.node = data ? pb__node__unpack((ProtobufCAllocator *)&alloc, len, data) : NULL;
                r.adopted = a->adopted.at;
                r.n_adopted = a->adopted.len;
                r.refused = a->refused.at;
                r.n_refused = a->refused.len;
                r.message = (char *)message;
                reply_message(c, &r.base);
        }
        c->in = before;
}

static void send_describe(struct core *c, struct node_ix ix, char **ids, size_t n)
{
        Pb__DescribeUnits d = PB__DESCRIBE_UNITS__INIT;
        d.unit_ids = ids;
        d.n_unit_ids = n;
        d.held = true;
        effect_add(c, EFFECT_DESCRIBE, node_at(c, ix)->session, 0, NULL, 0);
        struct effect *e = &c->out.effects.at[c->out.effects.len - 1];
        e->len = pb__describe_units__get_packed_size(&d);
        e->data = arena_alloc(c->out.memory, e->len + 1);
        pb__describe_units__pack(&d, e->data);
}

/* Asks for the definitions of all that is wanted. */
static uint32_t describe_wanted(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        char *ids[DESCRIBE_AT_ONCE];
        size_t count = 0;
        uint32_t all = 0;
        for (size_t i = 0; i < n->strangers.len; i++) {
                if (!n->strangers.at[i].wanted)
                        continue;
                ids[count++] = n->strangers.at[i].id;
                all++;
                if (count == DESCRIBE_AT_ONCE) {
                        send_describe(c, ix, ids, count);
                        count = 0;
                }
        }
        if (count)
                send_describe(c, ix, ids, count);
        return all;
}

/* Copies that are newer than their records, after a restore (restore.c). */
static void describe_behind(struct core *c, struct node_ix ix)
{
        char *ids[DESCRIBE_AT_ONCE];
        size_t count = 0;
        for (struct unit_ix w = node_at(c, ix)->units; unit_ok(w); w = unit_at(c, w)->node_next) {
                if (!unit_at(c, w)->behind)
                        continue;
                ids[count++] = unit_at(c, w)->id;
                if (count == DESCRIBE_AT_ONCE) {
                        send_describe(c, ix, ids, count);
                        count = 0;
                }
        }
        if (count)
                send_describe(c, ix, ids, count);
}

void adopt_by_itself(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        if (n->session && !n->push && c->lost.len)
                describe_behind(c, ix);
        bool all = c->opt.strangers == STRANGERS_ADOPT || adopt_is_said(c, n);
        if (!n->session || n->push || !n->strangers.len)
                return;
        bool any = false;
        for (size_t i = 0; i < n->strangers.len; i++) {
                struct stranger *s = &n->strangers.at[i];
                if (s->wanted)
                        continue;
                s->take = !s->leaves && !s->refused && (all || s->ahead);
                s->word = false;
                any |= s->wanted = s->take || claim_matters(c, s);
        }
        if (any)
                describe_wanted(c, ix);
}

/* A workload of this name is adopted over only if the record is older than what runs, and nothing
 * has been ordered since. */
static const char *why_not_over(struct core *c, struct node_ix ix, const struct stranger *s)
{
        struct unit_ix old = workload_find(c, s->id);
        Pb__Token token = PB__TOKEN__INIT;
        Pb__UnitStatus u = PB__UNIT_STATUS__INIT;
        if (!unit_ok(old))
                return NULL;
        token.epoch = s->token_epoch;
        token.seq = s->token_seq;
        u.token = &token;
        u.state = s->state;
        const struct unit *w = unit_at(c, old);
        bool newer_start = order_is_newer(w, s->token_epoch, s->token_seq);
        if (!unit_is_ahead(c, w, &u))
                return newer_start && node_ok(w->node) &&
                               token_is_lost(c, s->token_epoch, s->token_seq)
                           ? arena_printf(&c->step,
                                          "a newer start was ordered on node %s; to keep this copy "
                                          "instead delete the workload first",
                                          node_at(c, w->node)->id)
                           : "a workload of this name exists";
        if (newer_start && s->verdict != VERDICT_WARRANTED)
                return "a newer start was ordered since, and this copy has no warrant";
        if (w->node.v != ix.v && w->desired == PB__DESIRED_STATE__E__Deleted)
                return "the workload of this name is being deleted";
        if (w->node.v != ix.v && s->verdict != VERDICT_WARRANTED && holder_is_healthy(c, w))
                return arena_printf(
                    &c->step,
                    "node %s has it by the records and says so, and this copy has no warrant",
                    node_at(c, w->node)->id);
        return node_ok(w->node) && w->node.v != ix.v && tombstone_find(c, w->node, w->id) != NONE
                   ? "an old copy of it is on its way out"
                   : NULL;
}

/* A definition that only its node vouches for. It would go wherever the unit goes, so it is treated
 * as if somebody applied it today; as anybody, since whose it is the node says as well. What is on
 * record already goes on as it is. */
static const char *why_not_allowed(struct core *c, const char *id, Pb__Workload *w)
{
        struct unit_ix old = workload_find(c, id);
        const struct definition *d = unit_ok(old) ? definition_of(c, unit_at(c, old)) : NULL;
        Pb__Workload view, anybodys = *w;
        struct err err = { 0 };
        size_t len;
        definition_view(w, &view);
        const void *packed = pb_pack_arena(&c->step, &view.base, &len);
        if (!c->configured || (d && d->len == len && memcmp(d->data, packed, len) == 0))
                return NULL;
        anybodys.tenant = "";
        w->confine = policy_confines_apply(c, &anybodys);
        return policy_allows(c, &anybodys, &err)
                   ? NULL
                   : arena_printf(&c->step, "%s; it has no warrant, so %s", err.msg, err.hint);
}

static const char *why_not(struct core *c, struct node_ix ix, const struct stranger *s,
                           Pb__Workload *w)
{
        struct err err = { 0 };
        char *revision = w->revision_id;
        Pb__DesiredState__E desired = w->desired_state;
        if (!w->type)
                return "its agent does not know what it was started from";
        const char *taken = why_not_over(c, ix, s);
        if (taken)
                return taken;
        if (c->n_workloads >= c->opt.max_workloads)
                return "the cluster holds as many workloads as it may";
        if (s->token_epoch > c->epoch || (s->token_epoch == c->epoch && s->token_seq > c->head))
                return "its token is newer than this server's store";
        if (desired != PB__DESIRED_STATE__E__Running && desired != PB__DESIRED_STATE__E__Stopped)
                return "it is being removed";
        if (workload_normalise(&c->step, w, &err) < 0)
                return arena_printf(&c->step, "%s%s%s", err.path, err.path[0] ? ": " : "", err.msg);
        if (!str_eq(w->id, s->id) || w->type >= TYPES_MAX)
                return "its definition is another's";
        const char *refused = s->verdict == VERDICT_WARRANTED ? NULL : why_not_allowed(c, s->id, w);
        if (refused)
                return refused;
        struct unit_ix old = workload_find(c, s->id);
        bool in_place = unit_ok(old) && unit_at(c, old)->node.v == ix.v && unit_at(c, old)->holds;
        struct amounts others = node_at(c, ix)->ledger.reserved;
        if (in_place)
                others = amounts_sub(others, unit_at(c, old)->held);
        if (!amounts_can_add(others, amounts_of(w->resources)))
                return "its resources are out of range";
        if (in_place ? !ports_fit_in_place(c, unit_at(c, old), w)
                     : host_port_is_taken(node_at(c, ix), w))
                return "a host port of it is given to another unit there";
        /* what runs is of that revision, however a berth of today would name it */
        w->revision_id = revision;
        w->desired_state = desired;
        return NULL;
}

static const char *adopt_unit(struct core *c, struct node_ix ix, const struct stranger *s,
                              Pb__Workload *w)
{
        const char *why = why_not(c, ix, s, w);
        if (why)
                return why;
        if (w->exclusive)
                fencing_needed(c);
        struct unit_ix old = workload_find(c, s->id);
        bool was_known = unit_ok(old);
        bool anew = was_known && order_is_newer(unit_at(c, old), s->token_epoch, s->token_seq);
        if (was_known && node_ok(unit_at(c, old)->node) && unit_at(c, old)->node.v != ix.v)
                unit_leave(c, old, anew ? PB__REASON__E__adopted : PB__REASON__E__node_lost,
                           "a newer copy than the restored records know runs elsewhere");
        Pb__Workload view;
        definition_view(w, &view);
        view.id = s->id;
        view.revision_id = w->revision_id;
        view.desired_state = w->desired_state;
        view.retry = w->retry;
        Pb__Token token = PB__TOKEN__INIT;
        token.epoch = s->token_epoch;
        token.seq = s->token_seq;
        Pb__WorkloadStatus status = PB__WORKLOAD_STATUS__INIT;
        status.actual_state = s->state;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadAdopted;
        e.workload_id = arena_strdup(&c->step, s->id);
        e.node_id = node_at(c, ix)->id;
        e.workload = &view;
        e.token = &token;
        e.status = &status;
        e.reason = PB__REASON__E__adopted;
        e.action = (char *)action_names[ACTION_ADOPT];
        e.message = was_known ? "it ran there already, newer than the restored record"
                              : "it ran there already";
        c->stats.actions[6]++;
        emit(c, &e);
        struct unit_ix w_ix = workload_find(c, e.workload_id);
        if (stranger_find(node_at(c, ix), e.workload_id))
                unit_at(c, w_ix)->said = stranger_drop(c, node_at(c, ix), e.workload_id);
        unit_at(c, w_ix)->behind = unit_at(c, w_ix)->claimed = unit_at(c, w_ix)->word = false;
        /* what it replaces had a greater token, and whoever compares tokens has seen that */
        if (anew)
                launch(c, w_ix, PB__REASON__E__adopted, ACTION_ADOPT,
                       "an older copy had been started meanwhile: its token must be greater");
        else
                /* confirms it: same token, same revision, so its agent does nothing */
                unit_send(c, w_ix);
        return NULL;
}

/* Those whose agents did not answer in time are over: who asked has long gone, and the word with
 * it. */
static void adoptions_lapse(struct core *c)
{
        for (size_t i = c->adoptions.len; i > 0; i--) {
                struct adoption *a = &c->adoptions.at[i - 1];
                struct err err;
                if (c->now_ms < a->until_ms)
                        continue;
                err_set(&err, ERR_DEADLINE,
                        .msg = fmt("the agent of node %s did not say in time what its units are",
                                   a->node_id),
                        .hint = "see what holds it up (its log), and try again");
                answer(c, a, &err, NULL);
                adoption_end(c, i - 1);
        }
}

static struct adoption *adoption_of(struct core *c, const char *node_id)
{
        adoptions_lapse(c);
        for (size_t i = 0; i < c->adoptions.len; i++)
                if (strcmp(c->adoptions.at[i].node_id, node_id) == 0)
                        return &c->adoptions.at[i];
        return NULL;
}

static void note_outcome(struct adoption *a, const char *id, const char *why)
{
        if (why)
                *array_push(&a->refused) = arena_printf(&a->memory, "%s: %s", id, why);
        else
                *array_push(&a->adopted) = arena_strdup(&a->memory, id);
        a->left -= a->left > 0;
}

/* A workload of this node that runs newer than its record, as if it were a stranger. */
static bool is_behind(struct core *c, struct node_ix ix, const Pb__Workload *said,
                      struct stranger *ret)
{
        struct unit_ix ix_w = str_empty(said->id) ? UNIT_NONE : workload_find(c, said->id);
        struct unit *w = unit_ok(ix_w) ? unit_at(c, ix_w) : NULL;
        if (!w || w->node.v != ix.v || !w->behind)
                return false;
        bool word = w->word;
        w->behind = w->word = false;
        if (!said->token)
                return false;
        *ret = (struct stranger){ .id = arena_strdup(&c->step, said->id),
                                  .token_epoch = said->token->epoch,
                                  .token_seq = said->token->seq,
                                  /* the list that is asked for afterwards says how it is */
                                  .state = PB__ACTUAL_STATE__E__Running,
                                  .wanted = true,
                                  .take = true,
                                  .word = word };
        return true;
}

/* It stays as it is, and is not asked for again until it is another claim, or somebody says so. */
static void leave_alone(struct core *c, struct node_ix ix, const char *id)
{
        struct stranger *s = stranger_find(node_at(c, ix), id);
        struct unit_ix w = workload_find(c, id);
        if (s)
                s->refused = true;
        else if (unit_ok(w) && unit_at(c, w)->node.v == ix.v) {
                unit_at(c, w)->claimed = true;
                if (unit_is_in_plan(unit_at(c, w)))
                        unit_send(c, w); /* what is on record counts */
        }
}

/* What nobody asked about is not even looked at: it may be large. */
static bool is_asked(struct core *c, struct node_ix ix, const char *id)
{
        const struct stranger *s = str_empty(id) ? NULL : stranger_find(node_at(c, ix), id);
        struct unit_ix w = workload_find(c, id);
        return s ? s->wanted : unit_ok(w) && unit_at(c, w)->node.v == ix.v && unit_at(c, w)->behind;
}

/* One unit as its agent describes it. */
static bool take_definition(struct core *c, struct node_ix ix, struct adoption *a,
                            struct claims *claims, Pb__Workload *said, enum verdict verdict)
{
        struct stranger newer,
            *s = str_empty(said->id) ? NULL : stranger_find(node_at(c, ix), said->id);
        if (!s && is_behind(c, ix, said, &newer))
                s = &newer;
        if (!s || !s->wanted)
                return false; /* nobody asked, or it has gone meanwhile */
        bool take = s->take, word = (s->word && a) || (take && adopt_is_said(c, node_at(c, ix)));
        bool other = verdict == VERDICT_WARRANTED &&
                     (said->token->epoch != s->token_epoch || said->token->seq != s->token_seq);
        const char *id = arena_strdup(&c->step, s->id), *why;
        s->wanted = false;
        s->verdict = (uint8_t)(other ? VERDICT_UNKNOWN : verdict);
        c->capacity_change += verdict == VERDICT_FALSE; /* who waited for it need not */
        if (!take && !word)
                return false; /* it was asked only what it is worth */
        if (word || (take && s->verdict == VERDICT_WARRANTED))
                why = adopt_unit(c, ix, s, said);
        else if (other)
                /* since it was reported: the next list says what it is now */
                why = "it has changed meanwhile";
        else {
                why = "it has no warrant of this cluster for this node";
                claims_note(claims, id, verdict);
        }
        if (why && !other)
                leave_alone(c, ix, id);
        if (a && word)
                note_outcome(a, id, why);
        decision_done(c);
        return !why;
}

void decide_definitions(struct core *c, const Pb__UnitDefinitions *d, uint64_t session)
{
        struct node_ix ix = session_node(c, session);
        if (!node_ok(ix))
                return;
        char *node_id = arena_strdup(&c->step, node_at(c, ix)->id);
        struct adoption *a = adoption_of(c, node_id);
        const struct input *before = c->in;
        struct input in = a ? (struct input){ .kind = INPUT_ADOPT,
                                              .reply = a->ticket,
                                              .request_id = a->request_id,
                                              .actor = a->actor }
                            : *before;
        struct claims claims = { 0 };
        bool any = false;
        c->in = &in;
        for (size_t i = 0; i < d->n_held; i++)
                any |= is_asked(c, ix, d->held[i]->unit_id) &&
                       take_definition(c, ix, a, &claims, claim_definition(c, d->held[i]),
                                       claim_verdict(c, ix, d->held[i]));
        for (size_t i = 0; i < d->n_units; i++) /* an agent that knows no warrants */
                any |= take_definition(c, ix, a, &claims, d->units[i], VERDICT_NONE);
        c->in = before;
        claims_tell(c, ix, &claims);
        if (any)
                effect_add(c, EFFECT_LIST, session, 0, NULL, 0);
        adopt_is_done(c, ix);
        if (a && a->left == 0) {
                answer(c, a, NULL,
                       a->adopted.len ? "adopted as they run: nothing was restarted"
                                      : "nothing was adopted");
                adoption_end(c, (size_t)(a - c->adoptions.at));
        }
}

void adoption_lost(struct core *c, struct node_ix ix)
{
        struct adoption *a = c->adoptions.len ? adoption_of(c, node_at(c, ix)->id) : NULL;
        for (size_t i = 0; i < node_at(c, ix)->strangers.len; i++)
                node_at(c, ix)->strangers.at[i].wanted = false;
        for (struct unit_ix w = c->lost.len ? node_at(c, ix)->units : UNIT_NONE; unit_ok(w);
             w = unit_at(c, w)->node_next)
                /* it says so again */
                unit_at(c, w)->behind = unit_at(c, w)->word = unit_at(c, w)->claimed = false;
        if (!a)
                return;
        struct err err;
        err_set(
            &err, ERR_UNAVAILABLE,
            .msg = fmt("the agent of node %s went away before it had said all", node_at(c, ix)->id),
            .hint = "try again when it is back", .retry_after_ms = 2000);
        answer(c, a, &err, NULL);
        adoption_end(c, (size_t)(a - c->adoptions.at));
}

static bool is_asked_for(const Pb__AdoptRequest *req, const char *id)
{
        for (size_t i = 0; i < req->n_workload_ids; i++)
                if (strcmp(req->workload_ids[i], id) == 0)
                        return true;
        return req->n_workload_ids == 0;
}

/* A workload of this node whose newer copy waits for an operator's word. */
static bool is_claimed(struct core *c, struct node_ix ix, const char *id)
{
        struct unit_ix w = workload_find(c, id);
        return unit_ok(w) && unit_at(c, w)->node.v == ix.v && unit_at(c, w)->claimed;
}

static int may_adopt(struct core *c, const Pb__AdoptRequest *req, struct node_ix ix,
                     struct err *err)
{
        const struct node *n = node_at(c, ix);
        if (!n->session)
                return err_set(err, ERR_UNAVAILABLE, .msg = fmt("node %s is not connected", n->id),
                               .hint = "try again when its agent is back", .retry_after_ms = 2000);
        if (n->push)
                return err_set(
                    err, ERR_CONFLICT,
                    .msg = fmt("the agent of node %s cannot say what its units were started from",
                               n->id),
                    .hint = "apply them, then remove the old ones there");
        if (adoption_of(c, n->id) || c->adoptions.len >= ADOPTIONS_MAX || adopt_is_said(c, n))
                return err_set(err, ERR_UNAVAILABLE, .msg = "an adoption is under way already",
                               .retry_after_ms = 2000);
        for (size_t i = 0; i < req->n_workload_ids; i++)
                if (!stranger_find(n, req->workload_ids[i]) &&
                    !is_claimed(c, ix, req->workload_ids[i]))
                        return err_set(err, ERR_NOT_FOUND,
                                       .msg = fmt("node %s has no unknown unit %s", n->id,
                                                  req->workload_ids[i]),
                                       .path = "workload_ids",
                                       .hint = fmt("berth describe node %s lists them", n->id));
        return 0;
}

/* The same of workloads that run newer than their records. How many were asked for. */
static uint32_t describe_claimed(struct core *c, struct node_ix ix, const Pb__AdoptRequest *req)
{
        uint32_t n = 0;
        for (struct unit_ix w = c->lost.len ? node_at(c, ix)->units : UNIT_NONE; unit_ok(w);
             w = unit_at(c, w)->node_next)
                if (unit_at(c, w)->claimed && is_asked_for(req, unit_at(c, w)->id)) {
                        unit_at(c, w)->behind = unit_at(c, w)->word = true;
                        n++;
                }
        if (n)
                describe_behind(c, ix);
        return n;
}

void decide_adopt(struct core *c, const Pb__AdoptRequest *req)
{
        struct node_ix ix = node_find(c, req->id);
        struct foreign *f = foreign_find(c, req->id);
        struct adoption now = { .node_id = req->id,
                                .ticket = c->in->reply,
                                .request_id = (char *)c->in->request_id,
                                .actor = (char *)c->in->actor };
        struct err err;
        if (f && node_ok(ix) && !is_back_there(c, ix, f)) {
                err_set(&err, ERR_CONFLICT,
                        .msg = fmt("this cluster has a node %s of its own", req->id),
                        .hint = "forget that one, or give the other one's agent another --node-id");
                reply_error(c, &err);
                return;
        }
        if (f && epoch_is_made_up(c, f->epoch)) {
                err_set(&err, ERR_CONFLICT,
                        .msg = fmt("node %s names an epoch that no cluster ever had", req->id),
                        .detail = fmt("%llu", (unsigned long long)f->epoch),
                        .hint =
                            "its agent's data are damaged: let it begin anew with another --data");
                reply_error(c, &err);
                return;
        }
        if (f && req->n_workload_ids) {
                err_set(
                    &err, ERR_INVALID,
                    .msg = fmt("node %s belongs to another cluster and is taken over as a whole",
                               req->id),
                    .path = "workload_ids",
                    .hint = fmt("berth adopt %s, without names; then delete what you do not want",
                                req->id));
                reply_error(c, &err);
                return;
        }
        if (f) {
                adopt_foreign(c, f);
                answer(c, &now, NULL,
                       "it is let in when its agent comes again, within a minute; what it runs is "
                       "adopted then");
                return;
        }
        if (node_lookup(c, req->id, &ix, &err) < 0 || may_adopt(c, req, ix, &err) < 0) {
                reply_error(c, &err);
                return;
        }
        struct node *n = node_at(c, ix);
        for (size_t i = 0; i < n->strangers.len; i++) {
                struct stranger *s = &n->strangers.at[i];
                s->wanted = s->take = s->word = !s->leaves && is_asked_for(req, s->id);
        }
        uint32_t wanted = describe_wanted(c, ix) + describe_claimed(c, ix, req);
        if (!wanted) {
                answer(c, &now, NULL, "nothing runs there that the records do not know");
                return;
        }
        *array_push(&c->adoptions) =
            (struct adoption){ .node_id = mem_strdup(n->id),
                               .ticket = c->in->reply,
                               .request_id =
                                   c->in->request_id ? mem_strdup(c->in->request_id) : NULL,
                               .actor = c->in->actor ? mem_strdup(c->in->actor) : NULL,
                               .left = wanted,
                               .until_ms = c->now_ms + ADOPTION_MS };
}
