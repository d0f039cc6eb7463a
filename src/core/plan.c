/* core/plan.c: what would happen (X1): the real core, on a copy of the state, with agents that do
 * at once what they are told.
 *
 *      settle          what is under way is brought to its end: what was ordered runs, what was to
 *                      go is gone
 *      look            who is where, what each node holds
 *      the question    as inputs, through the same door as everybody's: apply, delete, wish, hello,
 *                      silence
 *      settle          until nothing is left to be done, or a bound is reached (complete = false)
 *      look again      the difference is the answer
 *
 * Nothing here decides: whatever the core learns to do (constraints, quotas, preemption, drains), a
 * plan does too. Simulated agents never fail, so a plan shows where things go, not whether programs
 * work.
 *
 * Time stands still, except for the loss of nodes: that is noticed by silence, so the clock is
 * moved from deadline to deadline while all other nodes that are heard now stay heard. If the brake
 * (C11) would hold, the plan says so: that is what would happen.
 *
 * The copy is used up: afterwards the core can only be destroyed. The server gives it a forked
 * child's (server/plans.c).
 */
#include "base/mem.h"
#include "core/node.h"
#include "core/read.h"
#include "core/state.h"
#include "core/workload.h"
#include "model/pb.h"
#include <string.h>

#define STEPS_MAX 4000000 /* inputs of one plan */
#define SHOWN_MAX 1000    /* changes, and nodes */
#define EXPLAINED_MAX 50  /* of those that would wait: each looks at every node */
#define HOPS_MAX 100000   /* deadlines on the way to the loss of a node */

/* A workload as it was before. */
struct seen {
        const char *id; /* NULL: there was none in this slot */
        const char *revision;
        struct node_ix node;
        uint8_t phase, desired;
        bool waiting;
};
struct seen_node {
        const char *id;
        struct ledger ledger;
        uint32_t units;
};

/* What a simulated agent has to say. */
struct word {
        uint64_t session;
        char *workload_id;
        Pb__Token token;
        Pb__ActualState__E state;
};

struct plan {
        struct core *c;
        const Pb__PlanRequest *req;
        struct arena memory; /* of the answer */
        struct arena words_memory;
        ARRAY(struct word) words;
        ARRAY(struct seen) before;
        ARRAY(struct seen_node) nodes_before;
        ARRAY(uint8_t) lost; /* by node slot */
        ARRAY(Pb__PlanChange *) changes;
        ARRAY(char *) warnings;
        uint64_t tickets;
        size_t steps, explained;
        uint32_t counts[16]; /* by kind of change, see kinds[] */
        struct err refused;  /* of the last input with a ticket; code 0: it was taken */
        const void *answer;  /* its packed body, in memory */
        size_t answer_len;
        bool out_of_steps;
        int32_t evict_per_second; /* as it is; a plan shows where things go, and need not wait */
        Pb__PlanResponse out;
};

static const char *const kinds[] = { "create",  "update",  "move",    "start",  "stop",
                                     "preempt", "pending", "blocked", "delete", "refused" };
static const char *const kind_words[] = { "created",
                                          "updated",
                                          "moved",
                                          "started (they waited)",
                                          "stopped",
                                          "preempted",
                                          "would be pending",
                                          "could not move",
                                          "removed",
                                          "refused" };
enum kind { CREATE, UPDATE, MOVE, START, STOP, PREEMPT, PENDING, BLOCKED, DELETE, REFUSED };

/* ---- agents that do as they are told ---- */

static bool is_lost(const struct plan *p, struct node_ix n)
{
        return node_ok(n) && n.v < p->lost.len && p->lost.at[n.v];
}

static void hear(struct plan *p, uint64_t session, const char *id, Pb__Token token,
                 Pb__DesiredState__E wanted)
{
        *array_push(&p->words) = (struct word){ .session = session,
                                                .workload_id = arena_strdup(&p->words_memory, id),
                                                .token = token,
                                                .state = wanted == PB__DESIRED_STATE__E__Running
                                                             ? PB__ACTUAL_STATE__E__Running
                                                         : wanted == PB__DESIRED_STATE__E__Stopped
                                                             ? PB__ACTUAL_STATE__E__Stopped
                                                             : PB__ACTUAL_STATE__E__Missing };
}

static void take_reply(struct plan *p, const struct reply *r)
{
        if (r->ticket != p->tickets)
                return;
        p->refused = r->err ? *r->err : (struct err){ 0 };
        p->answer = arena_dup(&p->memory, r->data, r->len);
        p->answer_len = r->len;
}

/* Everything that would have left the process goes to the simulated agents. */
static void take_batches(struct plan *p)
{
        struct core_batch *b;
        while ((b = core_cut(p->c))) {
                for (size_t i = 0; i < b->n_replies; i++)
                        take_reply(p, &b->replies[i]);
                for (size_t i = 0; i < b->n_effects; i++) {
                        const struct effect *e = &b->effects[i];
                        if (e->kind != EFFECT_PLAN_UNIT)
                                continue;
                        struct arena_allocator alloc = arena_allocator(&p->words_memory);
                        Pb__PlanUnit *u =
                            pb__plan_unit__unpack((ProtobufCAllocator *)&alloc, e->len, e->data);
                        if (u && u->token)
                                hear(p, e->session, u->unit_id, *u->token, u->desired_state);
                }
                core_batch_free(b);
        }
}

static void give(struct plan *p, enum input_kind kind, const void *msg, uint64_t session,
                 uint64_t ticket)
{
        struct input in = { .kind = kind,
                            .now_ms = p->c->now_ms,
                            .session = session,
                            .reply = ticket,
                            .msg = msg };
        in.request_id = "plan";
        in.actor = "plan";
        core_step(p->c, &in);
        p->steps++;
        take_batches(p);
}

/* As a user: what came of it is in p->refused and p->answer. */
static int ask(struct plan *p, enum input_kind kind, const void *msg)
{
        p->refused = (struct err){ 0 };
        give(p, kind, msg, 0, ++p->tickets);
        return p->refused.code == ERR_OK ? 0 : -(int)p->refused.code;
}

static void speak(struct plan *p, const struct word *w)
{
        Pb__Token token = w->token;
        Pb__UnitStatus u = PB__UNIT_STATUS__INIT, *units[] = { &u };
        u.unit_id = w->workload_id;
        u.token = &token;
        u.state = w->state;
        struct unit_ix ix = workload_find(p->c, w->workload_id);
        if (w->state == PB__ACTUAL_STATE__E__Running) {
                u.started_at = p->c->now_ms;
                u.revision_id = unit_ok(ix) ? unit_at(p->c, ix)->revision : "";
        }
        Pb__UnitReport report = PB__UNIT_REPORT__INIT;
        report.units = units;
        report.n_units = 1;
        give(p, INPUT_UNITS, &report, w->session, 0);
}

/* Until nobody has anything to say and nothing is due now. */
static void settle_all(struct plan *p)
{
        take_batches(p);
        while (p->words.len > 0 || core_next_ms(p->c) <= p->c->now_ms) {
                if (p->steps >= STEPS_MAX) {
                        p->out_of_steps = true;
                        return;
                }
                /* grows while we speak */
                for (size_t i = 0; i < p->words.len && p->steps < STEPS_MAX; i++) {
                        struct word w = p->words.at[i];
                        speak(p, &w);
                }
                array_clear(&p->words);
                arena_reset(&p->words_memory);
                if (core_next_ms(p->c) <= p->c->now_ms)
                        give(p, INPUT_TICK, NULL, 0, 0);
        }
}

/* What was ordered before and not yet answered. */
static void finish_what_is_under_way(struct plan *p)
{
        struct core *c = p->c;
        take_batches(p);
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                if (!n->id || !n->session)
                        continue;
                for (struct unit_ix ix = n->units; unit_ok(ix); ix = unit_get(c, ix)->node_next) {
                        const struct unit *w = unit_get(c, ix);
                        bool starts = w->phase == PB__PHASE__E__Scheduled ||
                                      w->phase == PB__PHASE__E__Updating;
                        bool ends = w->desired == PB__DESIRED_STATE__E__Deleted ||
                                    (w->desired == PB__DESIRED_STATE__E__Stopped &&
                                     w->phase != PB__PHASE__E__Stopped && w->holds);
                        Pb__Token token = PB__TOKEN__INIT;
                        token.epoch = w->token_epoch;
                        token.seq = w->token_seq;
                        if (starts || ends)
                                hear(p, n->session, w->id, token, w->desired);
                }
                for (uint32_t t = n->tombstones; t != NONE; t = c->tombstones.at[t].next)
                        hear(p, n->session, c->tombstones.at[t].workload_id,
                             (Pb__Token)PB__TOKEN__INIT, PB__DESIRED_STATE__E__Deleted);
        }
        settle_all(p);
}

/* It is to leave its node, fits nowhere else, and so runs on where it is. */
static bool runs_on(const struct plan *p, const struct unit *w)
{
        return w->waiting && w->phase == PB__PHASE__E__Running && node_ok(w->node) &&
               !is_lost(p, w->node) &&
               node_get(p->c, w->node)->status != PB__NODE_STATUS__E__NotReady;
}

/* ---- looking ---- */

static void look(struct plan *p)
{
        struct core *c = p->c;
        for (uint32_t i = 0; i < c->units.len; i++) {
                const struct unit *w = &c->units.at[i];
                struct seen *s = array_push(&p->before);
                s->node = NODE_NONE;
                if (!w->id)
                        continue;
                *s = (struct seen){ .id = arena_strdup(&p->memory, w->id),
                                    .revision =
                                        arena_strdup(&p->memory, w->revision ? w->revision : ""),
                                    .node = w->node,
                                    .phase = (uint8_t)phase_shown(c, w),
                                    .desired = w->desired,
                                    .waiting = w->waiting };
                p->out.pending_before += w->waiting && !runs_on(p, w);
        }
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                *array_push(&p->nodes_before) =
                    (struct seen_node){ n->id ? arena_strdup(&p->memory, n->id) : NULL, n->ledger,
                                        n->n_units };
        }
}

static char *node_name(const struct plan *p, struct node_ix n)
{
        return node_ok(n) ? node_at(p->c, n)->id : "";
}

/* Why nobody takes it, in one line. */
static char *why_pending(struct plan *p, const char *id, Pb__Reason__E *reason)
{
        if (p->explained++ >= EXPLAINED_MAX)
                return "";
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = (char *)id;
        ProtobufCMessage *m = NULL;
        if (ask(p, INPUT_EXPLAIN, &ref) < 0 ||
            pb_unpack_own(&pb__explanation__descriptor, p->answer, p->answer_len, &p->memory, &m,
                          NULL) < 0)
                return "";
        const Pb__Explanation *x = (const Pb__Explanation *)m;
        int32_t most = 0;
        for (size_t i = 0; i < x->n_reasons; i++)
                if (x->reasons[i]->nodes > most) {
                        most = x->reasons[i]->nodes;
                        *reason = x->reasons[i]->reason;
                }
        return arena_printf(&p->memory, "%s%s%s", x->summary,
                            x->n_would_fit_if ? "; it would fit if: " : "",
                            x->n_would_fit_if ? x->would_fit_if[0] : "");
}

static Pb__PlanChange *add_change(struct plan *p, enum kind kind, const char *id)
{
        p->counts[kind]++;
        p->out.changes_in_all++;
        if (p->changes.len >= SHOWN_MAX)
                return NULL;
        Pb__PlanChange *m = arena_new(&p->memory, Pb__PlanChange);
        pb__plan_change__init(m);
        m->workload_id = arena_strdup(&p->memory, id);
        m->what = (char *)kinds[kind];
        *array_push(&p->changes) = m;
        return m;
}

static bool same_node(struct node_ix a, struct node_ix b)
{
        return a.v == b.v;
}

/* -1: nothing worth telling. */
static int kind_of_change(const struct plan *p, const struct seen *s, const struct unit *w)
{
        if (!s->id)
                return w->waiting ? PENDING : CREATE;
        if (w->desired == PB__DESIRED_STATE__E__Deleted && s->desired != w->desired)
                return DELETE;
        if (w->waiting && !s->waiting)
                return runs_on(p, w)                           ? BLOCKED
                       : w->reason == PB__REASON__E__preempted ? PREEMPT
                                                               : PENDING;
        if (node_ok(w->node) && node_ok(s->node) && !same_node(w->node, s->node))
                return MOVE;
        if (!str_eq(s->revision, w->revision))
                return UPDATE;
        if (s->desired != w->desired)
                return w->desired == PB__DESIRED_STATE__E__Stopped ? STOP : START;
        if (s->waiting && !w->waiting && node_ok(w->node))
                return START;
        if (node_ok(s->node) && !node_ok(w->node))
                return STOP; /* a stopped one lost its node */
        return -1;
}

static Pb__Reason__E why_moved(const struct plan *p, const struct seen *s, const struct unit *w)
{
        const struct node *from = node_get(p->c, s->node);
        if (from->status == PB__NODE_STATUS__E__NotReady)
                return PB__REASON__E__node_lost;
        if (from->wish == PB__NODE_WISH__E__draining)
                return PB__REASON__E__node_drained;
        return str_eq(s->revision, w->revision) ? w->placed_reason : PB__REASON__E__spec_changed;
}

static void compare_workload(struct plan *p, const struct seen *s, const struct unit *w)
{
        int kind = kind_of_change(p, s, w);
        if (kind < 0)
                return;
        Pb__PlanChange *m = add_change(p, (enum kind)kind, w->id);
        if (!m)
                return;
        m->from_node = node_name(p, s->node);
        m->to_node = kind == PENDING || kind == PREEMPT ? "" : node_name(p, w->node);
        m->from_phase = s->phase;
        m->to_phase = phase_shown(p->c, w);
        m->reason = w->reason;
        if (kind == MOVE)
                m->reason = why_moved(p, s, w);
        else if (kind == CREATE || kind == START)
                m->reason = w->placed_reason ? w->placed_reason : w->reason;
        if (kind == PENDING || kind == PREEMPT || kind == BLOCKED) {
                if (kind != BLOCKED)
                        m->to_phase = PB__PHASE__E__Pending;
                char *id = m->workload_id; /* explaining is a step: w may move */
                Pb__Reason__E reason = m->reason;
                m->detail = why_pending(p, id, &reason);
                m->reason = kind == PREEMPT ? PB__REASON__E__preempted : reason;
        }
}

static void compare_workloads(struct plan *p)
{
        struct core *c = p->c;
        static const struct seen nothing = { .node = NODE_NONE };
        for (uint32_t i = 0; i < c->units.len; i++) {
                const struct unit *w = &c->units.at[i];
                const struct seen *s = i < p->before.len ? &p->before.at[i] : &nothing;
                bool same = s->id && w->id && strcmp(s->id, w->id) == 0;
                if (s->id && !same) {
                        Pb__PlanChange *m = add_change(p, DELETE, s->id);
                        if (m) {
                                m->from_node = node_name(p, s->node);
                                m->from_phase = s->phase;
                                m->reason = PB__REASON__E__deleted;
                        }
                }
                if (w->id)
                        compare_workload(p, same ? s : &nothing, w);
                w = &c->units.at[i]; /* explaining is a step: it may have moved */
                p->out.pending_after += w->id && w->waiting && !runs_on(p, w);
        }
}

static Pb__NodeResources *resources_of(struct plan *p, const struct ledger *l)
{
        Pb__NodeResources *r = arena_new(&p->memory, Pb__NodeResources);
        pb__node_resources__init(r);
        r->cpu_total = l->total.cpu_milli;
        r->cpu_allocated = l->reserved.cpu_milli;
        r->memory_total = l->total.mem_bytes / MIB;
        r->memory_allocated = l->reserved.mem_bytes / MIB;
        r->disk_total = l->total.disk_bytes / GIB;
        r->disk_allocated = l->reserved.disk_bytes / GIB;
        return r;
}

static void compare_nodes(struct plan *p)
{
        struct core *c = p->c;
        ARRAY(Pb__PlanNode *) nodes = { 0 };
        for (uint32_t i = 0; i < c->nodes.len && nodes.len < SHOWN_MAX; i++) {
                const struct node *n = &c->nodes.at[i];
                if (!n->id)
                        continue;
                const struct seen_node *s = i < p->nodes_before.len && p->nodes_before.at[i].id
                                                ? &p->nodes_before.at[i]
                                                : NULL;
                bool lost = is_lost(p, (struct node_ix){ i }),
                     drained = str_eq(p->req->drain_node, n->id);
                if (s && !lost && !drained && s->units == n->n_units &&
                    amounts_equal(s->ledger.reserved, n->ledger.reserved))
                        continue;
                Pb__PlanNode *m = arena_new(&p->memory, Pb__PlanNode);
                pb__plan_node__init(m);
                m->node_id = n->id;
                m->what = !s ? "new" : lost ? "lost" : drained ? "drained" : "";
                m->before = s ? resources_of(p, &s->ledger) : NULL;
                m->after = resources_of(p, &n->ledger);
                m->units_before = s ? (int32_t)s->units : 0;
                m->units_after = (int32_t)n->n_units;
                *array_push(&nodes) = m;
        }
        p->out.nodes = arena_dup(&p->memory, nodes.at, nodes.len * sizeof(*nodes.at));
        p->out.n_nodes = nodes.len;
        array_fini(&nodes);
}

/* ---- the questions ---- */

static void warn(struct plan *p, char *text)
{
        *array_push(&p->warnings) = text;
}

static void tell_refused(struct plan *p, const char *id)
{
        Pb__PlanChange *m = add_change(p, REFUSED, id);
        if (m)
                m->detail = arena_printf(&p->memory, "%s%s%s", p->refused.msg,
                                         p->refused.detail[0] ? ": " : "", p->refused.detail);
}

static void ask_apply(struct plan *p)
{
        for (size_t i = 0; i < p->req->n_apply; i++) {
                Pb__ApplyWorkloadRequest a = PB__APPLY_WORKLOAD_REQUEST__INIT;
                a.workload = p->req->apply[i];
                if (ask(p, INPUT_APPLY, &a) < 0)
                        tell_refused(p, a.workload->id);
        }
}

static void ask_remove(struct plan *p)
{
        for (size_t i = 0; i < p->req->n_remove; i++) {
                Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
                ref.id = p->req->remove[i];
                if (ask(p, INPUT_DELETE, &ref) < 0)
                        tell_refused(p, ref.id);
        }
}

static int ask_drain(struct plan *p)
{
        Pb__SetNodeWishRequest wish = PB__SET_NODE_WISH_REQUEST__INIT;
        wish.id = p->req->drain_node;
        wish.wish = PB__NODE_WISH__E__draining;
        return ask(p, INPUT_NODE_WISH, &wish);
}

static int ask_add(struct plan *p, struct err *err)
{
        struct core *c = p->c;
        struct node_ix like;
        int r = node_lookup(c, p->req->add_nodes_like, &like, err);
        if (r < 0)
                return r;
        size_t len;
        void *data = node_record(c, node_at(c, like), true, &p->memory, &len);
        ProtobufCMessage *m = NULL;
        if ((r = pb_unpack_own(&pb__node__descriptor, data, len, &p->memory, &m, err)) < 0)
                return r;
        const Pb__Node *node = (const Pb__Node *)m;
        int32_t n = p->req->add_nodes > 0 ? p->req->add_nodes : 1;
        for (int32_t i = 0, number = 1; i < n; number++) {
                Pb__Hello h = PB__HELLO__INIT;
                h.node_id = arena_printf(&p->memory, "%.100s-new-%d", node->id, number);
                if (node_ok(node_find(c, h.node_id)))
                        continue;
                h.cpu = node->resources->cpu_total;
                h.memory_mb = node->resources->memory_total;
                h.disk_gb = node->resources->disk_total;
                h.labels = (Pb__Hello__LabelsEntry **)node->labels; /* the same shape: key, value */
                h.n_labels = node->n_labels;
                h.supported_workload_types = node->supported_workload_types;
                h.n_supported_workload_types = node->n_supported_workload_types;
                h.agent_version = node->agent_version;
                h.cluster_id = c->cluster_id;
                h.protocol = 1;
                give(p, INPUT_HELLO, &h, UINT64_MAX - (uint64_t)i, 0);
                i++;
                if (!node_ok(node_find(c, h.node_id)))
                        return err_set(err, ERR_LIMIT,
                                       .msg = "the cluster has as many nodes as it may",
                                       .detail = fmt("%u", c->n_nodes));
        }
        return 0;
}

/* Those that are heard now stay heard. */
static void keep_alive(struct plan *p)
{
        struct core *c = p->c;
        for (uint32_t i = 0; i < c->nodes.len; i++)
                if (c->nodes.at[i].id && c->nodes.at[i].heard_at &&
                    c->nodes.at[i].status == PB__NODE_STATUS__E__Ready &&
                    !is_lost(p, (struct node_ix){ i }))
                        c->nodes.at[i].heard_at = c->now_ms;
}

/* Each is given up and emptied as far as can be, or held by the brake. */
static bool loss_is_over(const struct plan *p)
{
        const struct core *c = p->c;
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                if (n->id && is_lost(p, (struct node_ix){ i }) &&
                    (n->status == PB__NODE_STATUS__E__Ready || n->evicting || n->pacing ||
                     (n->n_units && !n->given_up && !n->held)))
                        return false;
        }
        return true;
}

static void tell_of_others(struct plan *p)
{
        const struct core *c = p->c;
        uint32_t silent = 0, held = 0, paced = 0;
        const char *example = "";
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                if (!n->id)
                        continue;
                held += is_lost(p, (struct node_ix){ i }) && n->held;
                paced += is_lost(p, (struct node_ix){ i }) && n->paced;
                if (is_lost(p, (struct node_ix){ i }) || n->status == PB__NODE_STATUS__E__Ready ||
                    !n->given_up || !n->n_units)
                        continue;
                silent++;
                example = n->id;
        }
        if (held)
                warn(p, arena_printf(&p->memory,
                                     "the brake would hold: %u of %u nodes would be silent at once "
                                     "(the limit is %d %%), in %u of %u zones; "
                                     "the units of %u of them would stay assigned where they are "
                                     "until some return, or an operator says "
                                     "berth evict",
                                     c->brake.counts.silent, c->brake.counts.nodes,
                                     c->opt.brake_percent, c->brake.counts.zones_hit,
                                     c->brake.counts.zones, held));
        if (paced)
                warn(p, arena_printf(&p->memory,
                                     "paced: %u nodes would not be a whole zone, so their units "
                                     "would move at most %d a second",
                                     paced, p->evict_per_second));
        if (silent)
                warn(p, arena_printf(&p->memory,
                                     "%u nodes are silent already (%s); what moves away from them "
                                     "is shown as well",
                                     silent, example));
}

static int ask_lose(struct plan *p, struct err *err)
{
        struct core *c = p->c;
        for (uint32_t i = 0; i < c->nodes.len; i++)
                *array_push(&p->lost) = 0;
        for (size_t i = 0; i < p->req->n_lose_nodes; i++) {
                struct node_ix n;
                int r = node_lookup(c, p->req->lose_nodes[i], &n, err);
                if (r < 0)
                        return r;
                p->lost.at[n.v] = 1;
                if (node_at(c, n)->session)
                        give(p, INPUT_GONE, NULL, node_at(c, n)->session, 0);
        }
        p->evict_per_second = c->opt.evict_per_second;
        if (c->opt.evict_per_second)
                c->opt.evict_per_second = INT32_MAX;
        int64_t until =
            c->now_ms + 2 * (silence_limit_ms(c) + c->opt.evict_grace_ms) + c->opt.heartbeat_ms;
        for (int hop = 0; hop < HOPS_MAX && !p->out_of_steps && !loss_is_over(p); hop++) {
                int64_t next = core_next_ms(c);
                if (next > until)
                        break;
                if (next > c->now_ms)
                        c->now_ms = next;
                keep_alive(p);
                give(p, INPUT_TICK, NULL, 0, 0);
                settle_all(p);
        }
        if (!loss_is_over(p))
                p->out_of_steps = true;
        tell_of_others(p);
        return 0;
}

static int ask_question(struct plan *p, struct err *err)
{
        const Pb__PlanRequest *q = p->req;
        ask_apply(p);
        ask_remove(p);
        int r = 0;
        if (!str_empty(q->drain_node) && (r = ask_drain(p)) < 0)
                *err = p->refused;
        if (r == 0 && !str_empty(q->add_nodes_like))
                r = ask_add(p, err);
        if (r == 0 && q->n_lose_nodes)
                r = ask_lose(p, err);
        return r;
}

/* ---- the answer ---- */

static char *summary_of(struct plan *p)
{
        struct str s = STR_INIT;
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
                if (p->counts[k])
                        str_addf(&s, "%s%u %s", s.len ? ", " : "", p->counts[k], kind_words[k]);
        if (s.len == 0)
                str_adds(&s, "nothing changes");
        if (p->out.pending_after != p->out.pending_before)
                str_addf(&s, "; %lld pending before, %lld after", (long long)p->out.pending_before,
                         (long long)p->out.pending_after);
        char *text = arena_strdup(&p->memory, str_c(&s));
        str_fini(&s);
        return text;
}

static void answer(struct plan *p, uint64_t index, struct str *ret_packed)
{
        compare_workloads(p);
        compare_nodes(p);
        p->out.index = index;
        p->out.summary = summary_of(p);
        p->out.changes = p->changes.at;
        p->out.n_changes = p->changes.len;
        if (p->out_of_steps)
                warn(p,
                     "the bound on simulated steps was reached: more would happen than is shown");
        p->out.complete = !p->out_of_steps;
        p->out.warnings = p->warnings.at;
        p->out.n_warnings = p->warnings.len;
        pb_pack(ret_packed, &p->out.base);
}

int core_plan(struct core *core, const Pb__PlanRequest *req, struct str *ret_packed,
              struct err *err)
{
        uint64_t index = core->head;
        struct plan p = { .c = core, .req = req, .out = PB__PLAN_RESPONSE__INIT };
        finish_what_is_under_way(&p);
        look(&p);
        int r = ask_question(&p, err);
        if (r == 0) {
                settle_all(&p);
                answer(&p, index, ret_packed);
        }
        array_fini(&p.words);
        array_fini(&p.before);
        array_fini(&p.nodes_before);
        array_fini(&p.lost);
        array_fini(&p.changes);
        array_fini(&p.warnings);
        arena_fini(&p.words_memory);
        arena_fini(&p.memory);
        return r;
}
