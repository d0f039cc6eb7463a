/* core/node.c: nodes: registration, silence, eviction (C8-C13, C24).
 *
 * Two things are kept apart: the operator's wish (a record) and liveness (a table in memory; only
 * its transitions are events). What users see is derived from both.
 *
 *      unknown --hello--> Ready --silence--> NotReady --hello or heartbeat--> Ready
 *                                               '--grace--> its units are moved, tombstones stay
 *                                               behind
 *
 * Invariants:
 *   (N1) A node is declared lost only after a full limit of silence that this process has itself
 *   listened through. (N2) A node that returns takes nothing new while copies that were moved away
 *   from it are not proved gone. (N3) A heartbeat never changes the operator's wish.
 */
#include "core/node.h"
#include "base/clock.h"
#include "base/mutant.h"
#include "core/admission.h"
#include "core/adopt.h"
#include "core/claims.h"
#include "core/definitions.h"
#include "core/drain.h"
#include "core/drift.h"
#include "core/evict.h"
#include "core/feature.h"
#include "core/fence.h"
#include "core/notice.h"
#include "core/orders.h"
#include "core/place.h"
#include "core/read.h"
#include "core/report.h"
#include "core/rules.h"
#include "core/state.h"
#include "core/step.h"
#include "core/tombstone.h"
#include "core/workload.h"
#include "model/feature.h"
#include "model/json.h"
#include <string.h>

int64_t silence_limit_ms(const struct core *c)
{
        return c->opt.heartbeat_ms * c->opt.silence_beats;
}

struct node_ix node_find(const struct core *c, const char *id)
{
        return (struct node_ix){ str_empty(id) ? NONE : map_get(&c->node_by_id, id, strlen(id)) };
}

struct node_ix session_node(const struct core *c, uint64_t session)
{
        return (struct node_ix){ session ? map_get(&c->session_nodes, &session, sizeof(session))
                                         : NONE };
}

struct node_ix node_add(struct core *c, const char *id)
{
        struct node_ix n;
        if (c->free_nodes.len)
                n.v = array_pop(&c->free_nodes);
        else {
                array_push(&c->nodes);
                n.v = (uint32_t)c->nodes.len - 1;
        }
        *node_at(c, n) = (struct node){ .id = mem_strdup(id),
                                        .units = UNIT_NONE,
                                        .tombstones = NONE,
                                        .status = PB__NODE_STATUS__E__Ready,
                                        .wish = PB__NODE_WISH__E__schedulable };
        map_put(&c->node_by_id, n.v);
        c->n_nodes++;
        c->ranks_stale = true;
        return n;
}

static void labels_free(struct node *n)
{
        for (uint32_t i = 0; i < n->n_labels; i++) {
                mem_free(n->labels[i].key);
                mem_free(n->labels[i].value);
        }
        mem_free(n->labels);
        n->labels = NULL;
        n->n_labels = 0;
}

static void drivers_free(struct node *n)
{
        for (uint32_t i = 0; i < n->n_drivers; i++)
                mem_free(n->drivers[i]);
        mem_free(n->drivers);
        n->drivers = NULL;
        n->n_drivers = 0;
}

static void session_set(struct core *c, struct node_ix ix, uint64_t session)
{
        struct node *n = node_at(c, ix);
        if (n->session)
                map_remove(&c->session_nodes, ix.v);
        n->session = session;
        if (session)
                map_put(&c->session_nodes, ix.v);
}

void node_free(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        rules_subject_gone(c, true, n->id);
        session_set(c, ix, 0);
        map_remove(&c->node_by_id, ix.v);
        heap_unset(&c->node_deadlines, ix.v);
        holds_leave(c, ix);
        counts_node_gone(c, ix);
        brake_node_gone(c, ix);
        labels_free(n);
        drivers_free(n);
        taints_set(c, ix, NULL, 0);
        array_fini(&n->ports);
        array_fini(&n->kept_ports);
        mem_free(n->id);
        mem_free(n->instance);
        mem_free(n->said_instance);
        mem_free(n->said_key);
        mem_free(n->adopted_from);
        strangers_free(c, n);
        mem_free(n->endpoint);
        mem_free(n->ip);
        mem_free(n->version);
        mem_free(n->status_reason);
        mem_free(n->status_by);
        *n = (struct node){ 0 };
        columns_update(c, ix);
        *array_push(&c->free_nodes) = ix.v;
        c->n_nodes--;
        c->ranks_stale = true;
}

/* ---- silence and eviction ---- */

static int64_t lost_due_ms(const struct core *c, const struct node *n)
{
        if (MUTANT(verdict_after_start))
                return (n->heard_at ? n->heard_at : n->stored_heartbeat) + silence_limit_ms(c);
        return (n->heard_at > c->started_ms ? n->heard_at : c->started_ms) + silence_limit_ms(c);
}

/* The next thing that is due on the node; the end of its drain may come first. */
static void deadline_set(struct core *c, struct node_ix ix, int64_t due)
{
        int64_t drain = drain_due_ms(node_at(c, ix));
        due = drain < due ? drain : due;
        if (due == HEAP_NEVER)
                heap_unset(&c->node_deadlines, ix.v);
        else
                heap_set(&c->node_deadlines, ix.v, due);
}

void node_deadline_refresh(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        if (!c->started)
                return;
        int64_t due = HEAP_NEVER;
        if (n->status == PB__NODE_STATUS__E__Ready)
                due = lost_due_ms(c, n);
        else if (n->held && c->brake.holds && !evict_is_ordered(c, n))
                due = HEAP_NEVER; /* brake_sweep() comes back to it */
        else if (!n->given_up && (n->n_units || n->n_tombstones || n->held))
                due = evict_due_ms(c, n);
        deadline_set(c, ix, due);
}

static void declare_lost(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        char ts[TIME_TEXT_LEN];
        int64_t last = n->heard_at ? n->heard_at : n->stored_heartbeat;
        Pb__Node live = PB__NODE__INIT;
        live.last_heartbeat = last;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__NodeLost;
        e.node_id = n->id;
        e.reason = PB__REASON__E__node_lost;
        e.message = arena_printf(&c->step, "heartbeat expired: last heartbeat %s",
                                 last ? time_format(ts, last) : "never");
        e.node = &live;
        c->stats.nodes_lost++;
        emit(c, &e);
}

void decide_node_deadline(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        if (!n->id)
                return;
        drain_deadline(c, ix);
        if (n->status == PB__NODE_STATUS__E__Ready) {
                if (c->now_ms >= lost_due_ms(c, n))
                        declare_lost(c, ix);
                else
                        columns_update(c, ix);
                if (c->now_ms >= c->started_ms + silence_limit_ms(c))
                        drain_touch(c,
                                    /* a restart of the server forgot that it was under way; by now
                                     * it knows which nodes there are */
                                    ix);
                if (n->tainted == TAINTED_HARD)
                        evict_driven_out(c, ix);
                node_deadline_refresh(c, ix);
                return;
        }
        if (n->given_up || c->now_ms < evict_due_ms(c, n)) {
                node_deadline_refresh(c, ix);
                return;
        }
        enum brake_verdict verdict = brake_judge(c, ix);
        if (verdict == BRAKE_HOLDS) {
                node_deadline_refresh(c, ix);
                return;
        }
        n->given_up = true;
        evict_begin(c, ix, verdict == BRAKE_PACES);
        deadline_set(c, ix, HEAP_NEVER);
}

static bool should_leave(const struct node *n)
{
        return n->wish == PB__NODE_WISH__E__draining || n->given_up;
}

bool node_given_up(const struct core *c, struct node_ix ix)
{
        return node_get(c, ix)->given_up;
}

bool node_evacuates(const struct core *c, struct node_ix ix)
{
        return should_leave(node_get(c, ix));
}

/* ---- agents ---- */

static void welcome(struct core *c, uint64_t session, const char *refused, const char *hint,
                    bool adopt)
{
        Pb__Welcome w = PB__WELCOME__INIT;
        w.accepted = !refused;
        w.reason = (char *)(refused ? refused : "");
        w.hint = (char *)(hint ? hint : "");
        w.cluster_id = c->cluster_id;
        w.epoch = c->epoch;
        w.heartbeat_ms = c->opt.heartbeat_ms;
        w.server_version = c->version;
        w.adopt = adopt;
        /* makes sure that the batch has memory */
        effect_add(c, EFFECT_WELCOME, session, 0, NULL, 0);
        struct effect *e = &c->out.effects.at[c->out.effects.len - 1];
        e->len = pb__welcome__get_packed_size(&w);
        e->data = arena_alloc(c->out.memory, e->len + 1);
        pb__welcome__pack(&w, e->data);
}

/* It says that it belongs to the cluster from which an operator takes it over. That word counts
 * once (adopt.c). Foreign agents cannot be told whose they are, and say so for ever; nothing of
 * theirs is ever adopted. */
static bool is_taken_over(const struct core *c, const Pb__Hello *h)
{
        struct node_ix ix = node_find(c, h->node_id);
        const struct node *n = node_ok(ix) ? node_get(c, ix) : NULL;
        return n && !str_empty(h->cluster_id) && str_eq(n->adopted_from, h->cluster_id) &&
               (adopt_is_said(c, n) || (n->push && h->push));
}

static const char *refuse_hello(struct core *c, const Pb__Hello *h, uint64_t session,
                                const char **ret_hint)
{
        const char *expelled = admission_refuses(c, h, ret_hint);
        if (expelled)
                return expelled;
        if (!str_empty(h->cluster_id) && !str_eq(h->cluster_id, c->cluster_id) &&
            !is_taken_over(c, h)) {
                foreign_remember(c, h);
                *ret_hint = "berth adopt takes it over with all that it runs; or point it at its "
                            "own server";
                return arena_printf(&c->step, "the agent belongs to cluster %s, this is %s",
                                    h->cluster_id, c->cluster_id);
        }
        if (h->applied && !is_taken_over(c, h) &&
            (h->applied->epoch > c->epoch ||
             (h->applied->epoch == c->epoch && h->applied->seq > c->head))) {
                *ret_hint = "the server's store was lost or restored from an older copy; nothing "
                            "on the agent is touched";
                return arena_printf(&c->step,
                                    "the agent has seen a newer state (epoch %llu, sequence %llu) "
                                    "than this server has (epoch %llu, sequence %llu)",
                                    (unsigned long long)h->applied->epoch,
                                    (unsigned long long)h->applied->seq,
                                    (unsigned long long)c->epoch, (unsigned long long)c->head);
        }
        if (node_ok(session_node(c, session)) &&
            !str_eq(node_at(c, session_node(c, session))->id, h->node_id)) {
                *ret_hint = "one stream per agent";
                return arena_printf(&c->step, "this stream is that of node %s already",
                                    node_at(c, session_node(c, session))->id);
        }
        if (!node_ok(node_find(c, h->node_id)) && c->n_nodes >= c->opt.max_nodes) {
                *ret_hint = "forget nodes that no longer exist";
                return arena_printf(&c->step, "the cluster has %u nodes already, its limit",
                                    c->n_nodes);
        }
        return NULL;
}

/* Another agent process has this node's stream and was heard lately: a machine that was given an id
 * twice, or one that restarted before the end of its old stream was noticed. Both cannot be the
 * node; which of them is the impostor cannot be known, so the one that is there stays, and is asked
 * something: if its machine is gone or was started anew, the question ends the old stream, and the
 * newcomer is let in when it tries again. Without that the two would take turns, each with a copy
 * of everything. */
static bool is_taken(struct core *c, const Pb__Hello *h, uint64_t session)
{
        struct node_ix ix = node_find(c, h->node_id);
        if (!node_ok(ix))
                return false;
        struct node *n = node_at(c, ix);
        bool other = n->session && n->session != session && !n->push && !h->push &&
                     !str_empty(n->said_instance) && !str_empty(h->instance) &&
                     !str_eq(n->said_instance, h->instance);
        if (!other || c->now_ms - n->heard_at >= silence_limit_ms(c) ||
            MUTANT(twins_take_turns)) /* by the clock that stands still while nobody is heard */
                return false;
        static char refused[] = "another agent is connected with this node id: each machine needs "
                                "a --node-id of its own (after a restart "
                                "it is let in as soon as the old connection has ended)";
        n->twin_at = c->now_ms;
        effect_add(c, EFFECT_CLOSE, session, EFFECT_CLOSE_FAULT, refused, sizeof(refused) - 1);
        effect_add(c, EFFECT_LIST, n->session, 0, NULL, 0);
        return true;
}

/* A type that this berth does not know has no bit. */
static uint32_t type_bit(Pb__WorkloadType__E type)
{
        return type && type < TYPES_MAX ? 1u << type : 0;
}

/* What an agent says of its machine, as a node record with nothing else in it. */
void attributes_of_hello(const Pb__Hello *h, Pb__Node *node, Pb__NodeResources *res)
{
        pb__node_resources__init(res);
        res->cpu_total = h->cpu;
        res->memory_total = h->memory_mb;
        res->disk_total = h->disk_gb;
        pb__node__init(node);
        node->id = h->node_id;
        node->resources = res;
        node->labels = (Pb__Node__LabelsEntry **)h->labels; /* the same shape: key, value */
        node->n_labels = h->n_labels;
        node->agent_endpoint = h->agent_endpoint;
        node->agent_version = h->agent_version;
        node->ip = h->ip;
        node->supported_workload_types = h->supported_workload_types;
        node->n_supported_workload_types = h->n_supported_workload_types;
        node->supported_storage_drivers = h->supported_storage_drivers;
        node->n_supported_storage_drivers = h->n_supported_storage_drivers;
        node->push = h->push;
        if (!h->push) {
                node->exclusive_types = h->exclusive_types;
                node->n_exclusive_types = h->n_exclusive_types;
                node->features = h->features;
                node->n_features = h->n_features;
        }
}

static bool attributes_changed(const struct node *n, const Pb__Node *a)
{
        uint32_t types = 0, exclusive = 0;
        for (size_t i = 0; i < a->n_exclusive_types; i++)
                exclusive |= type_bit(a->exclusive_types[i]);
        for (size_t i = 0; i < a->n_supported_workload_types; i++)
                types |= type_bit(a->supported_workload_types[i]);
        struct amounts total = { a->resources->cpu_total, a->resources->memory_total * MIB,
                                 a->resources->disk_total * GIB };
        if (features_parse(a->features, a->n_features) != n->features ||
            types != (n->type_bits | n->unsupported_bits) || exclusive != n->exclusive_bits ||
            !amounts_equal(total, n->ledger.total) || a->n_labels != n->n_labels ||
            !str_eq(n->endpoint, a->agent_endpoint) || !str_eq(n->version, a->agent_version) ||
            !str_eq(n->ip, a->ip) || n->push != (bool)a->push ||
            n->n_drivers != a->n_supported_storage_drivers)
                return true;
        for (size_t i = 0; i < n->n_drivers; i++)
                if (strcmp(a->supported_storage_drivers[i], n->drivers[i]) != 0)
                        return true;
        for (size_t i = 0; i < a->n_labels; i++)
                if (strcmp(a->labels[i]->key, n->labels[i].key) != 0 ||
                    strcmp(a->labels[i]->value, n->labels[i].value) != 0)
                        return true;
        return false;
}

static void emit_ready(struct core *c, struct node_ix ix, const char *how)
{
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__NodeReady;
        e.node_id = node_at(c, ix)->id;
        e.message = str_eq(how, "register")
                        ? "registered"
                        : arena_printf(&c->step, "status transition NotReady -> Ready via %s", how);
        e.action = (char *)how; /* who says so */
        emit(c, &e);
}

/* Those that looked for another node stay, if there is no longer a reason to leave. */
void need_not_move(struct core *c, struct node_ix ix)
{
        for (struct unit_ix w = node_at(c, ix)->units; unit_ok(w) && !node_evacuates(c, ix);
             w = unit_at(c, w)->node_next)
                if (unit_at(c, w)->waiting && !unit_must_leave(c, unit_at(c, w))) {
                        waiting_remove(c, w);
                        unit_mark_dirty(c, w);
                } else if (unit_at(c, w)->phase == PB__PHASE__E__Pending)
                        /* it had yet to leave, at the pace of evict.c: it is started here */
                        unit_mark_dirty(c, w);
}

/* A lost node was heard again: its units need not move any more, and those of others may have
 * to. */
static void node_is_back(struct core *c, struct node_ix ix)
{
        need_not_move(c, ix);
        brake_unhold(c, ix);
        brake_review(c, ix);
}

/* Another agent process than the one that found a runtime missing (C25). A registration of a
 * foreign agent is always a new one, unless it says otherwise. */
static bool knows_better(const struct node *n, const Pb__Hello *h)
{
        return n->unsupported_bits &&
               ((n->push && str_empty(h->instance)) || !str_eq(h->instance, n->instance));
}

/* Something that the node said is left for later: the whole list is asked for by then, and
 * counts. */
void node_hold(struct core *c, struct node_ix ix, int64_t until_ms)
{
        struct node *n = node_at(c, ix);
        n->late_at = c->now_ms;
        if (n->list_at > until_ms)
                n->list_at = until_ms;
        c->stats.reports_held++;
}

/* new descriptions of a node (labels, capacity, version) that are taken at once ... */
#define SHAPES_BURST 10
#define SHAPES_MS 30000 /* ... and one more in this time */

/* Does it describe itself in another way? One that does so all the time is taken less often: it
 * works with the description that it had, and is asked to say hello again when the time has
 * come. */
static bool is_other_shape(struct core *c, struct node_ix ix, const Pb__Node *attributes,
                           const Pb__Hello *h)
{
        struct node *n = node_at(c, ix);
        n->shape_held = false;
        if (!attributes_changed(n, attributes) && !knows_better(n, h))
                return false;
        int64_t from = n->shapes_until > c->steady_ms ? n->shapes_until : c->steady_ms;
        if (from - c->steady_ms > (SHAPES_BURST - 1) * SHAPES_MS) {
                n->shape_held = !n->push; /* a foreign agent registers again by itself */
                n->late_at = c->now_ms;
                c->stats.reports_held++;
                return false;
        }
        n->shapes_until = from + SHAPES_MS;
        return true;
}

void decide_hello(struct core *c, const Pb__Hello *h, uint64_t session)
{
        const char *hint = NULL, *refused = refuse_hello(c, h, session, &hint);
        if (refused) {
                welcome(c, session, refused, hint, false);
                return;
        }
        if (is_taken(c, h, session))
                return;
        struct node_ix ix = node_find(c, h->node_id);
        bool was_lost = node_ok(ix) && node_at(c, ix)->status == PB__NODE_STATUS__E__NotReady;
        Pb__NodeResources res;
        Pb__Node attributes;
        const char *ignored;
        bool is_new = !node_ok(ix);
        attributes_of_hello(h, &attributes, &res);
        admission_shape(c, h->node_id, &attributes, &ignored);
        if (is_new || is_other_shape(c, ix, &attributes, h)) {
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__NodeRegistered;
                e.node_id = h->node_id;
                e.node = &attributes;
                e.message =
                    ignored
                        ? arena_printf(
                              &c->step,
                              "registered; labels that only an operator gives were left out: %s",
                              ignored)
                        : "registered";
                emit(c, &e);
                ix = node_find(c, h->node_id);
                node_at(c, ix)->calls_fail = false; /* perhaps another endpoint */
                if (is_new)
                        admission_registered(c, ix);
        }
        struct node *n = node_at(c, ix);
        if (!str_eq(n->said_instance, h->instance))
                n->twin_at = 0; /* it was no twin */
        text_set(&n->said_instance, h->instance);
        text_set(&n->said_key, h->key);
        n->calls_fail = n->calls_fail && n->push;
        n->sure = str_eq(h->cluster_id, c->cluster_id);
        adoption_lost(c, ix);
        if (n->session && n->session != session) {
                static char replaced[] = "another agent connected with this node id";
                effect_add(c, EFFECT_CLOSE, n->session, 0, replaced, sizeof(replaced) - 1);
                session_set(c, ix, 0);
        }
        n->heard_at = c->now_ms;
        n->heard_steady = c->steady_ms;
        n->list_at = c->now_ms + c->opt.list_ms;
        if (n->status != PB__NODE_STATUS__E__Ready && !n->calls_fail)
                emit_ready(c, ix, "register");
        if (was_lost && n->status == PB__NODE_STATUS__E__Ready)
                node_is_back(c, ix);
        columns_update(c, ix);
        node_deadline_refresh(c, ix);
        if (!n->push) {
                /* A stream that its agent has long given up may be read after the one that took its
                 * place. */
                c->list_is_old = !has_seen_orders(c, n, h->applied);
                decide_report(c, ix, (ProtobufCMessage *const *)h->units, h->n_units, true, true);
                c->list_is_old = false;
        }
        session_set(c, ix, session); /* only now, so that nothing is sent before the plan */
        welcome(c, session, NULL, NULL, is_taken_over(c, h));
        plan_send(c, ix);
        drift_removals(c, ix);
        adopt_by_itself(c, ix);
        if (n->push)
                effect_add(c, EFFECT_LIST, session, 0, NULL, 0);
}

/* When the node shall come next (C9): each has its own moment within the interval, so that
 * thousands that connected at once, after a restart of the server, do not come at once for ever.
 * Never later than the interval; a node that is far from its moment comes a little early once or
 * twice until it has it. */
static int64_t next_beat_ms(const struct core *c, const struct node *n)
{
        int64_t interval = c->opt.heartbeat_ms;
        if (interval < 2)
                return interval;
        int64_t moment = (int64_t)(hash64(n->id, strlen(n->id)) % (uint64_t)interval),
                left = (moment - c->now_ms % interval + interval) % interval;
        if (left < interval / 8)
                return interval; /* it is there */
        return left < interval / 2 ? left + interval / 2 : left;
}

void decide_heartbeat(struct core *c, const Pb__Heartbeat *beat, uint64_t session)
{
        struct node_ix ix = session_node(c, session);
        if (!node_ok(ix))
                return;
        struct node *n = node_at(c, ix);
        c->stats.heartbeats++;
        n->heard_at = c->now_ms;
        n->heard_steady = c->steady_ms;
        if (MUTANT(heartbeat_revives_cordoned))
                n->wish = PB__NODE_WISH__E__schedulable;
        if (beat->usage) {
                n->cpu_used = beat->usage->cpu_used;
                n->memory_used_mb = beat->usage->memory_used_mb;
                n->disk_used_gb = beat->usage->disk_used_gb;
                n->usage_known = true;
        }
        rules_node_changed(c, ix);
        if ((n->status != PB__NODE_STATUS__E__Ready && !n->calls_fail) ||
            MUTANT(heartbeat_writes)) {
                emit_ready(c, ix, "heartbeat");
                node_is_back(c, ix);
                columns_update(c, ix);
                node_deadline_refresh(c, ix);
                plan_send(c, ix);
        } else if (!c->tree.level[0].types[ix.v])
                columns_update(c, ix);
        effect_add(c, EFFECT_BEAT, session, next_beat_ms(c, n), NULL, 0);
        struct effect *ack = &c->out.effects.at[c->out.effects.len - 1];
        ack->clock_ms = beat->clock_ms;
        ack->lease_ms = n->push ? 0 : fencing_lease_ms(c);
        ack->stop_ms = fencing_stop_ms(c);
        if (n->shape_held && n->shapes_until - c->steady_ms <= (SHAPES_BURST - 1) * SHAPES_MS) {
                static char again[] =
                    "say hello again: your description had changed too often to be taken";
                n->shape_held = false;
                effect_add(c, EFFECT_CLOSE, session, 0, again, sizeof(again) - 1);
        }
        adopt_is_done(c, ix);
        bool drift = drift_is_seen(n, beat) && c->now_ms >= n->drift_at;
        if (drift)
                n->drift_at = c->now_ms + silence_limit_ms(c); /* one list should settle it */
        if (drift || c->now_ms >= n->list_at) {
                n->list_at = c->now_ms + c->opt.list_ms;
                effect_add(c, EFFECT_LIST, session, 0, NULL, 0);
        }
}

void decide_gone(struct core *c, uint64_t session)
{
        struct node_ix ix = session_node(c, session);
        if (!node_ok(ix))
                return;
        adoption_lost(c, ix);
        session_set(c, ix, 0);
}

/* ---- agents that the server calls ---- */

void decide_unreachable(struct core *c, uint64_t session, const char *why)
{
        struct node_ix ix = session_node(c, session);
        if (!node_ok(ix))
                return;
        struct node *n = node_at(c, ix);
        n->calls_fail = true;
        if (n->status != PB__NODE_STATUS__E__Ready)
                return; /* it is lost already */
        Pb__Node live = PB__NODE__INIT;
        live.last_heartbeat = n->heard_at ? n->heard_at : n->stored_heartbeat;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__NodeLost;
        e.node_id = n->id;
        e.reason = PB__REASON__E__node_unreachable;
        e.message = (char *)(str_empty(why) ? "node marked NotReady" : why);
        e.node = &live;
        c->stats.nodes_lost++;
        emit(c, &e);
        node_deadline_refresh(c, ix);
}

void decide_reachable(struct core *c, uint64_t session)
{
        struct node_ix ix = session_node(c, session);
        if (!node_ok(ix))
                return;
        struct node *n = node_at(c, ix);
        n->calls_fail = false;
        if (n->status == PB__NODE_STATUS__E__Ready ||
            c->now_ms - n->heard_at >= silence_limit_ms(c))
                return; /* reachable and silent: its next heartbeat makes it Ready */
        emit_ready(c, ix, "reconciler");
        node_is_back(c, ix);
        node_deadline_refresh(c, ix);
        plan_send(c, ix);
}

void decide_mismatch(struct core *c, struct unit_ix ix, const char *message)
{
        Pb__WorkloadType__E type = (Pb__WorkloadType__E)definition_of(c, unit_at(c, ix))->type;
        struct node *n = node_at(c, unit_at(c, ix)->node);
        const char *name = json_enum_name(&pb__workload_type__e__descriptor, (int)type);
        char *text = arena_printf(&c->step, "runtime for %s unavailable on agent: %s",
                                  name ? name : "?", message);
        if (!(n->unsupported_bits & type_bit(type))) {
                Pb__Node found = PB__NODE__INIT;
                found.unsupported = &type;
                found.n_unsupported = 1;
                found.agent_instance = n->said_instance;
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__NodeTypeUnsupported;
                e.node_id = n->id;
                e.reason = PB__REASON__E__runtime_unavailable;
                e.message = text;
                e.node = &found;
                emit(c, &e);
        }
        unit_leave(c, ix, PB__REASON__E__runtime_unavailable, text);
        unit_mark_dirty(c, ix);
}

/* ---- the operator ---- */

bool node_asked_for(struct core *c, const char *id, uint64_t if_match, struct node_ix *ret)
{
        struct err err;
        int r = node_lookup(c, id, ret, &err);
        uint64_t seq = r < 0 ? 0 : node_at(c, *ret)->seq;
        if (r == 0 && if_match && if_match != seq)
                r = err_set(&err, ERR_CONFLICT, .msg = "it was changed by somebody else meanwhile",
                            .detail = fmt("version %llu was asked for, it is at %llu",
                                          (unsigned long long)if_match, (unsigned long long)seq),
                            .hint = "read it again and repeat the change");
        if (r < 0)
                reply_error(c, &err);
        return r == 0;
}

void reply_node(struct core *c, struct node_ix ix)
{
        effect_add(c, EFFECT_BEAT, 0, 0, NULL, 0); /* memory */
        c->out.effects.len--;
        size_t len;
        void *data = node_record_whole(c, node_at(c, ix), c->out.memory, &len);
        reply_bytes(c, &pb__node__descriptor, data, len, false);
}

static void emit_wish(struct core *c, struct node_ix ix, const Pb__SetNodeWishRequest *req)
{
        struct node *n = node_at(c, ix);
        Pb__Drain drain = PB__DRAIN__INIT;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__NodeWishChanged;
        e.node_id = n->id;
        e.wish = req->wish;
        e.message = "wish changed";
        if (req->wish == PB__NODE_WISH__E__draining) {
                drain.started_at = n->drain_started_at ? n->drain_started_at : c->now_ms;
                drain.units_at_start =
                    (int32_t)(n->drain_started_at ? n->drain_units : drain_left(n));
                drain.deadline_at =
                    req->deadline_seconds > 0 ? c->now_ms + req->deadline_seconds * 1000 : 0;
                drain.finished_at = n->drain_finished_at;
                e.drain = &drain;
        }
        emit(c, &e);
}

void decide_node_wish(struct core *c, const Pb__SetNodeWishRequest *req)
{
        struct node_ix ix;
        if (!node_asked_for(c, req->id, req->if_match, &ix) || check_index(c, req->check_index) < 0)
                return;
        struct node *n = node_at(c, ix);
        bool drain = req->wish == PB__NODE_WISH__E__draining;
        /* asked again: only a new deadline is news */
        if (n->wish != req->wish || (drain && req->deadline_seconds > 0)) {
                emit_wish(c, ix, req);
                if (drain)
                        drain_touch(c, ix);
                else
                        need_not_move(c, ix);
                node_deadline_refresh(c, ix);
        }
        reply_node(c, ix);
}

void decide_node_forget(struct core *c, const Pb__NodeRef *req)
{
        struct node_ix ix;
        struct err err;
        if (!node_asked_for(c, req->id, req->if_match, &ix))
                return;
        struct node *n = node_at(c, ix);
        uint32_t holding = units_at_work(c, n);
        if (n->status == PB__NODE_STATUS__E__Ready || (holding && !n->expelled_at)) {
                err_set(&err, ERR_CONFLICT,
                        .msg = n->status == PB__NODE_STATUS__E__Ready ? "the node is alive"
                                                                      : "the node still has units",
                        .detail = fmt("%s: %u units", n->id, holding),
                        .hint = fmt("drain it, stop its agent, and wait until it is NotReady; or "
                                    "throw it out: berth node expel %s",
                                    n->id));
                reply_error(c, &err);
                return;
        }
        const char *holder = exclusive_waits_for(c, ix);
        for (struct unit_ix w = n->units; !holder && unit_ok(w); w = unit_at(c, w)->node_next)
                if (unit_at(c, w)->holds && class_of(c, unit_at(c, w))->exclusive)
                        holder = unit_at(c, w)->id;
        if (holder) {
                err_set(&err, ERR_CONFLICT,
                        .msg =
                            "an exclusive workload waits until nothing of it can run on this node",
                        .detail = fmt("%s: %s", n->id, holder),
                        .hint = fmt("if that machine is surely off: berth node fence %s", n->id));
                reply_error(c, &err);
                return;
        }
        if (n->n_taints)
                /* they outlive the node: see admission_kept() */
                (void)feature_try(c, FEATURE_ADMISSIONS);
        /* what it still has looks for another place now */
        n->given_up = n->given_up || n->expelled_at;
        forget_begin(c, ix);
}

/* ---- apply ---- */

void node_take_shape(struct core *c, struct node_ix ix, const Pb__Node *from)
{
        struct node *n = node_at(c, ix);
        if (from->resources)
                n->ledger.total = (struct amounts){ from->resources->cpu_total,
                                                    from->resources->memory_total * MIB,
                                                    from->resources->disk_total * GIB };
        counts_node_before(c, ix);
        /* `from` may name the labels that the node has now. */
        struct label *labels =
            from->n_labels ? mem_must(from->n_labels * sizeof(struct label)) : NULL;
        for (size_t i = 0; i < from->n_labels; i++)
                labels[i] = (struct label){ mem_strdup(from->labels[i]->key),
                                            mem_strdup(from->labels[i]->value) };
        labels_free(n);
        n->labels = labels;
        n->n_labels = (uint32_t)from->n_labels;
        n->label_bits = node_label_bits(c, n);
        counts_node_after(c, ix);
        brake_node_zone(c, ix);
}

void node_attributes(struct core *c, struct node_ix ix, const Pb__Node *from)
{
        struct node *n = node_at(c, ix);
        text_set(&n->endpoint, from->agent_endpoint);
        text_set(&n->version, from->agent_version);
        text_set(&n->ip, from->ip);
        n->type_bits = 0;
        for (size_t i = 0; i < from->n_supported_workload_types; i++)
                n->type_bits |= type_bit(from->supported_workload_types[i]);
        n->features = features_parse(from->features, from->n_features);
        n->exclusive_bits = 0;
        for (size_t i = 0; i < from->n_exclusive_types && !from->push; i++)
                n->exclusive_bits |= type_bit(from->exclusive_types[i]);
        node_take_shape(c, ix, from);
        n->push = from->push;
        drivers_free(n);
        n->n_drivers = (uint32_t)from->n_supported_storage_drivers;
        if (n->n_drivers)
                n->drivers = mem_must(n->n_drivers * sizeof(char *));
        for (uint32_t i = 0; i < n->n_drivers; i++)
                n->drivers[i] = mem_strdup(from->supported_storage_drivers[i]);
}

void node_unsupported(struct node *n, const Pb__Node *from)
{
        for (size_t i = 0; i < from->n_unsupported; i++)
                n->unsupported_bits |= type_bit(from->unsupported[i]);
        n->type_bits &= ~(MUTANT(mismatch_forgotten) ? 0 : n->unsupported_bits);
}

static void set_status(struct core *c, struct node_ix ix, Pb__NodeStatus__E status,
                       const Pb__Event *e, const char *by)
{
        struct node *n = node_at(c, ix);
        n->status = (uint8_t)status;
        n->status_at = e->timestamp;
        text_set(&n->status_reason, e->message);
        text_set(&n->status_by, by);
        n->unreachable =
            status == PB__NODE_STATUS__E__NotReady && e->reason == PB__REASON__E__node_unreachable;
        if (status == PB__NODE_STATUS__E__Ready) {
                n->stored_heartbeat = e->timestamp;
                n->given_up = false;
                n->paced = false;
                n->fenced_at = n->expelled_at = n->evict_ordered_at = 0;
                brake_node_heard(c, ix);
        } else {
                if (e->node)
                        n->stored_heartbeat = e->node->last_heartbeat;
                brake_node_silent(c, ix, e->timestamp);
        }
}

/* (X1) */
void node_take_expulsion(struct core *c, struct node_ix ix, const Pb__Event *e)
{
        struct node *n = node_at(c, ix);
        Pb__Event silent = *e;
        silent.node = NULL; /* says nothing about heartbeats */
        brake_node_out(c, ix);
        set_status(c, ix, PB__NODE_STATUS__E__NotReady, &silent, "operator");
        n->expelled_at = e->timestamp;
        n->wish = PB__NODE_WISH__E__disabled;
        drain_take(n, NULL, e->timestamp);
}

static void forget(struct core *c, struct node_ix ix, const Pb__Event *e)
{
        struct node *n = node_at(c, ix);
        while (n->tombstones != NONE)
                tombstone_remove(c, n->tombstones);
        while (unit_ok(n->units)) { /* only finished ones: see decide_node_forget() */
                struct unit_ix w = n->units;
                text_set(&unit_at(c, w)->lost_node, n->id);
                unit_unassign(c, w);
                save_workload(c, w);
        }
        record_removed(c, RECORD_NODE, n->id);
        admission_forgotten(c, e);
        node_free(c, ix);
}

void apply_node_event(struct core *c, const Pb__Event *e)
{
        struct node_ix ix = node_find(c, e->node_id);
        if (e->type == PB__EVENT_TYPE__E__UnitRemoved) {
                uint32_t t = node_ok(ix) ? tombstone_find(c, ix, e->workload_id) : NONE;
                must(t != NONE, "N4: a removed unit had a tombstone");
                tombstone_remove(c, t);
                save_node(c, ix);
                struct unit_ix w = workload_find(c, e->workload_id);
                if (unit_ok(w)) { /* the event is part of its history */
                        unit_at(c, w)->seq = e->seq;
                        save_workload(c, w);
                }
                return;
        }
        if (e->type == PB__EVENT_TYPE__E__NodeAdopted) {
                if (!node_ok(ix)) {
                        ix = node_add(c, e->node_id);
                        node_at(c, ix)->registered_at = e->timestamp;
                        admission_returned(c, e->node_id);
                        node_attributes(c, ix, e->node);
                        text_set(&node_at(c, ix)->adopted_from, e->node->adopted_from);
                        set_status(c, ix, PB__NODE_STATUS__E__NotReady, e, "register");
                }
                /* a berth that said nothing of it: the word is over */
                node_at(c, ix)->adopt_until = e->node->adopt_until;
                c->epoch = e->cluster->epoch;
                cluster_changed(c);
        }
        if (e->type == PB__EVENT_TYPE__E__NodeRegistered) {
                if (!node_ok(ix)) {
                        ix = node_add(c, e->node_id);
                        node_at(c, ix)->registered_at = e->timestamp;
                        admission_returned(c, e->node_id);
                }
                node_attributes(c, ix, e->node);
                node_at(c, ix)->unsupported_bits = 0; /* (C25) */
                text_set(&node_at(c, ix)->instance, NULL);
                set_status(c, ix, PB__NODE_STATUS__E__Ready, e, "register");
                c->capacity_change++; /* other labels, types or amounts: somebody may fit now */
        }
        must(node_ok(ix), "N5: an event about a node names a known one");
        node_at(c, ix)->seq = e->seq;
        switch (e->type) {
        case PB__EVENT_TYPE__E__NodeReady:
                set_status(c, ix, PB__NODE_STATUS__E__Ready, e,
                           str_empty(e->action) ? "heartbeat" : e->action);
                break;
        case PB__EVENT_TYPE__E__NodeLost:
                set_status(c, ix, PB__NODE_STATUS__E__NotReady, e,
                           e->reason == PB__REASON__E__node_unreachable ? "reconciler" : "monitor");
                break;
        case PB__EVENT_TYPE__E__NodeTypeUnsupported:
                node_unsupported(node_at(c, ix), e->node);
                text_set(&node_at(c, ix)->instance, e->node->agent_instance);
                /* Why a node is lost says more than this, and who said so tells an unreachable one
                 * from a silent one. */
                if (node_at(c, ix)->status == PB__NODE_STATUS__E__Ready) {
                        text_set(&node_at(c, ix)->status_reason, e->message);
                        text_set(&node_at(c, ix)->status_by, "reconciler");
                }
                break;
        case PB__EVENT_TYPE__E__NodeWishChanged:
                node_at(c, ix)->wish = (uint8_t)e->wish;
                drain_take(node_at(c, ix), e->drain, e->timestamp);
                break;
        case PB__EVENT_TYPE__E__NodeDrained:
                node_at(c, ix)->drain_finished_at = e->timestamp;
                break;
        case PB__EVENT_TYPE__E__NodeFenced:
                node_at(c, ix)->fenced_at = e->timestamp;
                break;
        case PB__EVENT_TYPE__E__NodeTakenOver:
                node_at(c, ix)->adopt_until = 0;
                break;
        case PB__EVENT_TYPE__E__NodeTainted:
                taints_set(c, ix, e->node->taints, e->node->n_taints);
                break;
        case PB__EVENT_TYPE__E__NodeForgotten:
                forget(c, ix, e);
                return;
        default:
                break;
        }
        save_node(c, ix);
        columns_update(c, ix);
}
