/* core/random_test.c: long random runs of the whole core against agents that lie, forget and
 * vanish.
 *
 * Every step is followed by core_check() and by the rig's checks of batches and histories. Every
 * order that leaves is compared with the committed events: the token that it carries was given out
 * for that workload and that node. The server is restarted from its records at any moment, with
 * what was not committed lost. In the end everybody is honest for a while, and then each workload
 * must be where and what its record says, once.
 */
#include "core/core_testlib.h"
#include "model/pb.h"

#define NODES 6
#define IDS 24
#define COPIES 64

struct copy {
        char id[16];
        uint64_t epoch, seq;
        Pb__ActualState__E state;
        bool used, job;
};
struct agent {
        struct copy copies[COPIES];
        char gone[COPIES][16]; /* Missing is still to be reported */
        unsigned n_gone;
};
struct run {
        struct rig rig;
        struct rng g;
        struct agent agents[NODES];
        size_t effects_done;
        bool calm;
        uint32_t lies; /* per million: how often an agent says what is not so */
};

static uint64_t below(struct run *x, uint64_t n)
{
        return rng_below(&x->g, n);
}

static bool chance(struct run *x, uint32_t per_million)
{
        return rng_chance(&x->g, per_million);
}

static const char *node_name(unsigned n)
{
        static const char *const names[NODES] = { "n0", "n1", "n2", "n3", "n4", "n5" };
        return names[n];
}

/* ---- agents ---- */

static struct copy *copy_of(struct agent *a, const char *id)
{
        for (unsigned i = 0; i < COPIES; i++)
                if (a->copies[i].used && strcmp(a->copies[i].id, id) == 0)
                        return &a->copies[i];
        return NULL;
}

static struct copy *copy_new(struct agent *a, const char *id)
{
        for (unsigned i = 0; i < COPIES; i++)
                if (!a->copies[i].used) {
                        a->copies[i] = (struct copy){ .used = true };
                        snprintf(a->copies[i].id, sizeof(a->copies[i].id), "%s", id);
                        return &a->copies[i];
                }
        fail_msg("an agent has more units than there are");
        return NULL;
}

static void take_order(struct run *x, unsigned n, const Pb__PlanUnit *u)
{
        struct agent *a = &x->agents[n];
        struct copy *c = copy_of(a, u->unit_id);
        if (c && u->token->seq < c->seq)
                return; /* an older one is refused */
        if (u->desired_state == PB__DESIRED_STATE__E__Deleted) {
                if (c)
                        c->used = false;
                if (a->n_gone < COPIES)
                        snprintf(a->gone[a->n_gone++], sizeof(a->gone[0]), "%s", u->unit_id);
                return;
        }
        if (!c)
                c = copy_new(a, u->unit_id);
        if (u->desired_state == PB__DESIRED_STATE__E__Stopped)
                c->state = PB__ACTUAL_STATE__E__Stopped;
        else if (c->seq != u->token->seq)
                c->state = chance(x, 300000) && !x->calm ? PB__ACTUAL_STATE__E__Pending
                                                         : PB__ACTUAL_STATE__E__Running;
        c->epoch = u->token->epoch;
        c->seq = u->token->seq;
        c->job = u->workload->restart != PB__RESTART__E__always;
}

/* The token of an order is that of a committed launch of this workload on this node; nothing else
 * may ever be started or removed. */
static void check_order(struct run *x, unsigned n, const struct rig_effect *e)
{
        const Pb__PlanUnit *u = e->unit;
        if (x->lies && u->desired_state == PB__DESIRED_STATE__E__Deleted)
                return; /* of an old copy that the agent has invented */
        assert_true(u->token->seq >= 1 && u->token->seq <= e->seq);
        const Pb__Event *cause = x->rig.events.at[u->token->seq - 1].e;
        assert_true(cause->type == PB__EVENT_TYPE__E__WorkloadScheduled ||
                    cause->type == PB__EVENT_TYPE__E__WorkloadLaunched);
        assert_string_equal(cause->workload_id, u->unit_id);
        assert_string_equal(cause->node_id, node_name(n));
}

static void take_effects(struct run *x)
{
        struct rig *r = &x->rig;
        for (; x->effects_done < r->effects.len; x->effects_done++) {
                const struct rig_effect *e = &r->effects.at[x->effects_done];
                for (unsigned n = 0; n < NODES; n++) {
                        struct rig_agent *a = rig_agent(r, node_name(n));
                        if (!a->session || a->session != e->session)
                                continue;
                        if (e->kind == EFFECT_PLAN_UNIT) {
                                check_order(x, n, e);
                                take_order(x, n, e->unit);
                        } else if (e->kind == EFFECT_CLOSE ||
                                   (e->kind == EFFECT_WELCOME && !e->welcome->accepted))
                                a->session = 0;
                }
        }
}

static Pb__UnitStatus *status_of(struct run *x, const struct copy *c)
{
        Pb__UnitStatus *u = rig_unit(&x->rig, c->id, c->epoch, c->seq, c->state);
        u->started_at = x->rig.now - (int64_t)below(x, 100000) + 50000;
        if (c->state == PB__ACTUAL_STATE__E__Stopped || c->state == PB__ACTUAL_STATE__E__Failed) {
                u->finished_at = x->rig.now;
                u->exit_code = arena_new(&x->rig.memory, Pb__IntValue);
                pb__int_value__init(u->exit_code);
                u->exit_code->value = c->state == PB__ACTUAL_STATE__E__Failed;
        }
        if (!x->calm && chance(x, x->lies)) {
                u->state = (Pb__ActualState__E)(1 + below(x, 6));
                u->token->seq = below(x, 3) ? u->token->seq : below(x, x->rig.head + 5);
                u->token->epoch = below(x, 8) ? u->token->epoch : below(x, 3);
                if (below(x, 6) == 0)
                        u->token = NULL;
        }
        return u;
}

static void act_hello(struct run *x, unsigned n)
{
        struct rig *r = &x->rig;
        struct agent *a = &x->agents[n];
        bool smaller = !x->calm && chance(x, 50000);
        Pb__Hello *h = rig_hello_message(r, node_name(n), smaller ? 1500 : 6000, 8192, 50,
                                         n % 2                           ? "zone=a"
                                         : chance(x, 100000) && !x->calm ? "zone=c"
                                                                         : "zone=b");
        h->applied = arena_new(&r->memory, Pb__Cursor);
        pb__cursor__init(h->applied);
        h->applied->epoch = 1;
        h->applied->seq = !x->calm && chance(x, 30000) ? r->head + 10 : below(x, r->head + 1);
        if (!x->calm && chance(x, 20000))
                h->cluster_id = "another";
        for (unsigned i = 0; i < COPIES; i++)
                if (a->copies[i].used && (x->calm || !chance(x, x->lies / 4)))
                        rig_hello_add(r, h, status_of(x, &a->copies[i]));
        if (!x->calm && chance(x, x->lies))
                rig_hello_add(r, h,
                              rig_unit(r, "stranger", 1, below(x, r->head + 1),
                                       PB__ACTUAL_STATE__E__Running));
        a->n_gone = 0; /* what the list does not mention is gone as well */
        rig_say_hello(r, h);
}

static void act_report(struct run *x, unsigned n)
{
        struct rig *r = &x->rig;
        struct agent *a = &x->agents[n];
        if (!rig_agent(r, node_name(n))->session)
                return;
        Pb__UnitStatus *units[2 * COPIES];
        size_t count = 0;
        bool complete = chance(x, 200000);
        while (a->n_gone)
                units[count++] =
                    rig_unit(r, a->gone[--a->n_gone], 1, 0, PB__ACTUAL_STATE__E__Missing);
        for (unsigned i = 0; i < COPIES; i++)
                if (a->copies[i].used && (complete || x->calm || chance(x, 500000)))
                        units[count++] = status_of(x, &a->copies[i]);
        uint64_t applied = rig_agent(r, node_name(n))->applied;
        rig_report_all(r, node_name(n), complete,
                       !x->calm && chance(x, 200000) ? applied / 2 : applied, count, units);
}

static void act_runtime(struct run *x, unsigned n)
{
        struct copy *c = &x->agents[n].copies[below(x, COPIES)];
        if (!c->used)
                return;
        if (c->state == PB__ACTUAL_STATE__E__Pending)
                c->state = PB__ACTUAL_STATE__E__Running;
        else if (c->state == PB__ACTUAL_STATE__E__Running)
                c->state = c->job && chance(x, 700000) ? PB__ACTUAL_STATE__E__Stopped
                                                       : PB__ACTUAL_STATE__E__Failed;
        if (chance(x, 50000))
                c->used = false; /* lost by the agent */
}

/* ---- users ---- */

static const char *const tenants[] = { "default", "a", "b" };

/* Labels, neighbours, ports, priorities, tolerations. */
static void add_wishes(struct run *x, Pb__Workload *w)
{
        struct rig *r = &x->rig;
        Pb__Affinity *a = arena_new(&r->memory, Pb__Affinity),
                     **near = arena_new_n(&r->memory, Pb__Affinity *, 1);
        Pb__Affinity__MatchEntry *e = arena_new(&r->memory, Pb__Affinity__MatchEntry),
                                 **match = arena_new_n(&r->memory, Pb__Affinity__MatchEntry *, 1);
        Pb__Spread *s = arena_new(&r->memory, Pb__Spread),
                   **spread = arena_new_n(&r->memory, Pb__Spread *, 1);
        Pb__Port *p = arena_new(&r->memory, Pb__Port),
                 **ports = arena_new_n(&r->memory, Pb__Port *, 1);
        Pb__Toleration *t = arena_new(&r->memory, Pb__Toleration),
                       **tolerations = arena_new_n(&r->memory, Pb__Toleration *, 1);
        pb__affinity__init(near[0] = a);
        pb__affinity__match_entry__init(match[0] = e);
        pb__spread__init(spread[0] = s);
        pb__port__init(ports[0] = p);
        pb__toleration__init(tolerations[0] = t);
        rig_label(r, w, "app", below(x, 2) ? "web" : "db");
        e->key = "app";
        e->value = below(x, 2) ? "web" : "db";
        a->match = match;
        a->n_match = 1;
        a->over = s->over = "zone";
        a->preferred = below(x, 2) == 0;
        s->max_skew = 1 + (int)below(x, 3);
        p->host_port = p->container_port = 8000 + (int)below(x, 3);
        t->key = "t";
        w->priority = (int)below(x, 3);
        w->strategy = (Pb__Strategy__E)below(x, 3);
        w->affinity = w->anti_affinity = near;
        w->n_affinity = below(x, 5) == 0;
        w->n_anti_affinity = below(x, 5) == 0;
        w->spread = spread;
        w->n_spread = below(x, 4) == 0;
        w->tolerations = tolerations;
        w->n_tolerations = below(x, 3) == 0;
        w->spec->ports = ports;
        w->spec->n_ports = below(x, 4) == 0;
}

static void act_apply(struct run *x, const char *id)
{
        struct rig *r = &x->rig;
        Pb__Workload *w =
            rig_workload(r, id, (int64_t)below(x, 4) * 700, (int64_t)below(x, 3) * 600);
        w->restart = id[1] % 3 == 0   ? PB__RESTART__E__on_failure
                     : id[1] % 5 == 0 ? PB__RESTART__E__never
                                      : PB__RESTART__E__always;
        if (w->restart != PB__RESTART__E__always && below(x, 2))
                w->ttl_seconds = 120;
        if (below(x, 4) == 0)
                rig_select(r, w, "zone", below(x, 2) ? "a" : below(x, 2) ? "b" : "c");
        if (below(x, 10) == 0)
                w->resources->cpu = 50000;
        if (below(x, 2) == 0)
                w->tenant = (char *)tenants[below(x, 3)];
        if (below(x, 6) == 0)
                w->desired_state = PB__DESIRED_STATE__E__Stopped;
        if (below(x, 2))
                add_wishes(x, w);
        rig_apply(r, w);
}

static void act_taint(struct run *x, const char *node)
{
        Pb__SetTaintsRequest req = PB__SET_TAINTS_REQUEST__INIT;
        Pb__Taint t = PB__TAINT__INIT, *one[] = { &t };
        req.id = (char *)node;
        t.key = "t";
        t.value = "v";
        t.effect = (Pb__TaintEffect__E)(1 + below(x, 3));
        req.taints = one;
        req.n_taints = below(x, 2);
        rig_ask(&x->rig, INPUT_NODE_TAINTS, &req);
}

static void act_quota(struct run *x)
{
        Pb__SetQuotaRequest q = PB__SET_QUOTA_REQUEST__INIT;
        Pb__Quota quota = PB__QUOTA__INIT;
        Pb__Resources res = PB__RESOURCES__INIT;
        quota.tenant = (char *)tenants[below(x, 3)];
        quota.resources = &res;
        q.quota = &quota;
        if (below(x, 3) == 0) {
                Pb__TenantRef ref = PB__TENANT_REF__INIT;
                ref.tenant = quota.tenant;
                rig_ask(&x->rig, INPUT_QUOTA_REMOVE, &ref);
                return;
        }
        quota.workloads = (int64_t)below(x, 8);
        res.cpu = (int64_t)below(x, 4) * 2000;
        rig_ask(&x->rig, INPUT_QUOTA_SET, &q);
}

/* Few names and few secrets, so that they are made, ended, used and made again. */
static void act_token(struct run *x)
{
        Pb__CreateTokenRequest q = PB__CREATE_TOKEN_REQUEST__INIT;
        Pb__UseTokenRequest use = PB__USE_TOKEN_REQUEST__INIT;
        Pb__TokenRef ref = PB__TOKEN_REF__INIT;
        char name[16], hash[80];
        snprintf(name, sizeof(name), "t%u", (unsigned)below(x, 4));
        snprintf(hash, sizeof(hash), "%064x", (unsigned)below(x, 12));
        switch (below(x, 4)) {
        case 0:
                ref.name = name;
                rig_ask(&x->rig, INPUT_TOKEN_REVOKE, &ref);
                break;
        case 1:
                use.hash = hash;
                use.node_id = (char *)node_name((unsigned)below(x, NODES));
                use.key = below(x, 2) ? "k1" : "k2";
                rig_ask(&x->rig, INPUT_TOKEN_USE, &use);
                break;
        default:
                q.name = name;
                q.hash = hash;
                q.role = (Pb__Role__E)(1 + below(x, 5));
                q.ttl_seconds = below(x, 2) ? 0 : (int64_t)below(x, 100);
                rig_ask(&x->rig, INPUT_TOKEN_CREATE, &q);
        }
}

static void act_user(struct run *x)
{
        struct rig *r = &x->rig;
        char id[16];
        snprintf(id, sizeof(id), "w%u", (unsigned)below(x, IDS));
        const char *node = node_name((unsigned)below(x, NODES));
        switch (below(x, 19)) {
        case 0:
        case 1:
                rig_delete(r, id);
                break;
        case 2:
                rig_stop(r, id);
                break;
        case 3:
                rig_start(r, id);
                break;
        case 4:
                rig_retry(r, id);
                break;
        case 5:
                rig_wish(r, node, (Pb__NodeWish__E)(1 + below(x, 4)));
                break;
        case 6:
                rig_wish(r, node, PB__NODE_WISH__E__schedulable);
                break;
        case 7:
                rig_forget(r, node);
                break;
        case 8: {
                Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
                ref.id = id;
                rig_ask(r, INPUT_EXPLAIN, &ref);
                rig_ask(r, INPUT_GET_WORKLOAD, &ref);
                break;
        }
        case 9:
                act_quota(x);
                break;
        case 10:
                act_taint(x, node);
                break;
        case 11:
                act_token(x);
                break;
        default:
                act_apply(x, id);
        }
}

/* ---- the run ---- */

static void act(struct run *x)
{
        struct rig *r = &x->rig;
        unsigned n = (unsigned)below(x, NODES);
        switch (below(x, 16)) {
        case 0:
                if (chance(x, 400000))
                        act_hello(x, n);
                break;
        case 1:
                if (chance(x, 150000) && rig_agent(r, node_name(n))->session)
                        rig_gone(r, node_name(n));
                break;
        case 2:
        case 3:
                r->now += (int64_t)(chance(x, 900000) ? below(x, 3000) : below(x, 60000));
                rig_tick(r);
                break;
        case 4:
        case 5:
                if (rig_agent(r, node_name(n))->session)
                        rig_beat(r, node_name(n));
                break;
        case 6:
        case 7:
        case 8:
                act_report(x, n);
                break;
        case 9:
                act_runtime(x, n);
                break;
        case 10:
                r->by_hand = !r->by_hand; /* the store is slow for a while */
                if (!r->by_hand)
                        rig_take(r);
                break;
        case 11:
                if (chance(x, 30000)) {
                        r->by_hand = false; /* what was not taken is lost */
                        rig_restart(r);
                }
                break;
        default:
                act_user(x);
        }
        take_effects(x);
}

static void calm_down(struct run *x)
{
        struct rig *r = &x->rig;
        x->calm = true;
        r->by_hand = false;
        rig_take(r);
        take_effects(x);
        for (int64_t end = r->now + 1200000; r->now < end; r->now += 2000) {
                rig_tick(r);
                for (unsigned n = 0; n < NODES; n++) {
                        if (!rig_agent(r, node_name(n))->session)
                                act_hello(x, n);
                        take_effects(x);
                        for (unsigned i = 0; i < COPIES; i++)
                                if (x->agents[n].copies[i].used &&
                                    x->agents[n].copies[i].state == PB__ACTUAL_STATE__E__Pending)
                                        x->agents[n].copies[i].state = PB__ACTUAL_STATE__E__Running;
                        rig_beat(r, node_name(n));
                        act_report(x, n);
                        take_effects(x);
                }
        }
}

/* An operator who forgets a node gives up what runs there; what nobody knows any more is a stranger
 * when it returns, and is left alone. */
static bool was_forgotten(struct rig *r, const char *node)
{
        for (size_t i = 0; i < r->events.len; i++)
                if (r->events.at[i].e->type == PB__EVENT_TYPE__E__NodeForgotten &&
                    strcmp(r->events.at[i].e->node_id, node) == 0)
                        return true;
        return false;
}

static void check_settled(struct run *x)
{
        struct rig *r = &x->rig;
        struct core_stats st;
        core_stats(r->core, &st);
        assert_int_equal(st.tombstones, 0);
        assert_int_equal(st.nodes_ready, NODES);
        for (unsigned i = 0; i < IDS; i++) {
                char id[16];
                snprintf(id, sizeof(id), "w%u", i);
                Pb__Workload *w = rig_get(r, id);
                unsigned running = 0, right = 0;
                for (unsigned n = 0; n < NODES; n++) {
                        struct copy *c = copy_of(&x->agents[n], id);
                        if (!c || c->state != PB__ACTUAL_STATE__E__Running ||
                            (!w && was_forgotten(r, node_name(n))))
                                continue;
                        running++;
                        right += w && strcmp(w->assigned_node, node_name(n)) == 0 &&
                                 w->token->seq == c->seq;
                }
                Pb__Phase__E phase = w ? w->status->phase : PB__PHASE__E__unset;
                bool runs = phase == PB__PHASE__E__Running;
                if (running != runs || right != runs)
                        fail_msg("%s is in phase %d: %u copies run, %u of them the right one", id,
                                 (int)phase, running, right);
                assert_true(!w || runs || phase == PB__PHASE__E__Stopped ||
                            phase == PB__PHASE__E__Completed || phase == PB__PHASE__E__Failed ||
                            phase == PB__PHASE__E__Pending);
                if (phase == PB__PHASE__E__Pending &&
                    w->status->reason != PB__REASON__E__quota_exceeded)
                        /* nobody waits who would fit */
                        assert_int_equal(rig_explain(r, id)->feasible, 0);
        }
}

/* A view is written only when it changes: each says what its record says all the same, and none
 * outlives it. */
static void check_views(struct rig *r)
{
        for (size_t i = 0; i < r->records.len; i++) {
                const struct rig_record *x = &r->records.at[i], *view;
                const char *id = strchr(x->key + 1, '/') + 1;
                if (str_starts(x->key, "/workloads/")) {
                        Pb__Workload *w = pb__workload__unpack(NULL, x->len, x->data);
                        bool placed = !str_empty(w->assigned_node) &&
                                      !(w->placement && w->placement->forgotten);
                        view = rig_record(r, fmt("/assignments/%s", id));
                        assert_int_equal(view != NULL, placed);
                        if (placed) {
                                Pb__Assignment *a =
                                    pb__assignment__unpack(NULL, view->len, view->data);
                                assert_string_equal(a->node_id, w->assigned_node);
                                assert_int_equal(a->created_at,
                                                 w->placement ? w->placement->placed_at : 0);
                                pb__assignment__free_unpacked(a, NULL);
                        }
                        assert_int_equal(rig_record(r, fmt("/retries/%s", id)) != NULL,
                                         w->retry && w->retry->attempts > 0);
                        assert_non_null(rig_record(r, fmt("/reconciliation/%s", id)));
                        pb__workload__free_unpacked(w, NULL);
                } else if (str_starts(x->key, "/nodes/") && !str_ends(x->key, "/status")) {
                        Pb__Node *n = pb__node__unpack(NULL, x->len, x->data);
                        view = rig_record(r, fmt("/nodes/%s/status", id));
                        assert_non_null(view);
                        assert_int_equal(view->len, n->status == PB__NODE_STATUS__E__Ready ? 5 : 8);
                        pb__node__free_unpacked(n, NULL);
                } else if (str_starts(x->key, "/assignments/") || str_starts(x->key, "/retries/") ||
                           str_starts(x->key, "/reconciliation/"))
                        assert_non_null(rig_record(r, fmt("/workloads/%s", id)));
        }
}

static void run(uint64_t seed, uint32_t lies, unsigned steps)
{
        if (getenv("BERTH_TEST_SEEDS"))
                fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        struct run *x = calloc(1, sizeof(*x));
        struct core_options opt;
        core_options_default(&opt);
        opt.index_records = seed % 2;
        opt.max_batch_ops = seed % 3 ? 2048 : 120;
        rng_seed(&x->g, seed);
        x->lies = lies;
        rig_init(&x->rig, &opt);
        for (unsigned i = 0; i < steps; i++) {
                act(x);
                if (i % 400 == 399 && !x->rig.by_hand) {
                        rig_check_replay(&x->rig);
                        if (opt.index_records)
                                check_views(&x->rig);
                }
        }
        calm_down(x);
        rig_check_replay(&x->rig);
        if (opt.index_records)
                check_views(&x->rig);
        if (lies == 0)
                check_settled(x);
        struct err err = { 0 };
        if (core_check(x->rig.core, &err) < 0)
                fail_msg("%s: %s", err.msg, err.detail);
        rig_fini(&x->rig);
        free(x);
}

/* BERTH_TEST_SEEDS=1000 for a long run. */
static uint64_t seeds(void)
{
        const char *text = getenv("BERTH_TEST_SEEDS");
        return text ? strtoull(text, NULL, 10) : 12;
}

/* R: A2 A3 A5 C24 C26 C27 C34 */
static void with_honest_agents_everything_converges(void **state)
{
        (void)state;
        for (uint64_t seed = 1; seed <= seeds(); seed++)
                run(seed, 0, 2500);
}

/* R: A2 A3 A9 */
static void with_lying_agents_the_state_stays_sound(void **state)
{
        (void)state;
        for (uint64_t seed = 1; seed <= seeds(); seed++)
                run(1000000 + seed, 300000, 2500);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(with_honest_agents_everything_converges),
                cmocka_unit_test(with_lying_agents_the_state_stays_sound),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
