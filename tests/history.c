/* tests/history.c: see history.h. */
#include "history.h"

#include "base/clock.h"
#include "base/mem.h"
#include "events.pb-c.h"
#include "model/feature.h"
#include "model/validate.h"
#include <stdio.h>
#include <string.h>

#define NODES 6
#define WORKLOADS 70
#define START_MS INT64_C(1767225600000)

/* One order that an agent has been given and not yet answered, or a unit that it runs. */
struct unit {
        char id[16];
        uint32_t node;
        uint64_t epoch, seq;
        Pb__DesiredState__E desired;
        bool runs;
};

struct play {
        struct history *h;
        struct core *core;
        struct rng rng;
        int64_t now;
        uint64_t sessions, tickets;
        uint64_t session[NODES];
        int64_t silent_until[NODES];
        uint32_t revision[WORKLOADS];
        ARRAY(struct unit) units;
        uint32_t since_cut, cut_after;
};

static struct unit *unit_of(struct play *p, uint32_t node, const char *id)
{
        for (size_t i = 0; i < p->units.len; i++)
                if (p->units.at[i].node == node && strcmp(p->units.at[i].id, id) == 0)
                        return &p->units.at[i];
        struct unit *u = array_push(&p->units);
        *u = (struct unit){ .node = node };
        snprintf(u->id, sizeof(u->id), "%s", id);
        return u;
}

static void hear(struct play *p, const struct effect *e)
{
        if (e->kind != EFFECT_PLAN_UNIT)
                return;
        uint32_t n = 0;
        while (n < NODES && p->session[n] != e->session)
                n++;
        Pb__PlanUnit *m = pb__plan_unit__unpack(NULL, e->len, e->data);
        must(m != NULL, "a plan's unit parses");
        if (n < NODES) {
                struct unit *u = unit_of(p, n, m->unit_id);
                u->epoch = m->token->epoch;
                u->seq = m->token->seq;
                u->desired = m->desired_state;
                u->runs = false;
        }
        pb__plan_unit__free_unpacked(m, NULL);
}

static void cut(struct play *p)
{
        struct core_batch *b;
        while ((b = core_cut(p->core))) {
                for (size_t i = 0; i < b->n_effects; i++)
                        hear(p, &b->effects[i]);
                p->h->replies += b->n_replies;
                p->h->events += b->commit.n_events;
                for (size_t i = 0; i < b->commit.n_events; i++) {
                        Pb__Event *e = pb__event__unpack(NULL, b->commit.events[i].len,
                                                         b->commit.events[i].data);
                        must(e != NULL, "an event parses");
                        p->h->by_type[e->type % ARRAY_LEN(p->h->by_type)]++;
                        pb__event__free_unpacked(e, NULL);
                }
                if (b->commit.n_events)
                        *array_push(&p->h->batches) = b;
                else
                        core_batch_free(b);
        }
        p->since_cut = 0;
        /* mostly small, sometimes large: a quiet server, and one that was held up */
        p->cut_after = (uint32_t)rng_below(&p->rng, rng_chance(&p->rng, 100000) ? 120 : 6) + 1;
}

static void give(struct play *p, struct input *in)
{
        in->now_ms = p->now;
        in->random[0] = rng_next(&p->rng);
        in->random[1] = rng_next(&p->rng);
        in->features = FEATURES_ALL;
        core_step(p->core, in);
        if (++p->since_cut >= p->cut_after)
                cut(p);
}

static void tick(struct play *p)
{
        for (int i = 0; i < 1000 && core_next_ms(p->core) <= p->now; i++) {
                struct input in = { .kind = INPUT_TICK };
                give(p, &in);
        }
}

/* ---- agents ---- */

static void hello(struct play *p, uint32_t n)
{
        char id[16];
        snprintf(id, sizeof(id), "node-%u", n);
        Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process };
        Pb__Hello h = PB__HELLO__INIT;
        Pb__UnitStatus status[WORKLOADS * 2], *list[WORKLOADS * 2];
        Pb__Token tokens[WORKLOADS * 2];
        h.node_id = id;
        h.cpu = 4000;
        h.memory_mb = 8192;
        h.disk_gb = 100;
        h.supported_workload_types = types;
        h.n_supported_workload_types = 1;
        h.units = list;
        for (size_t i = 0; i < p->units.len && h.n_units < ARRAY_LEN(list); i++) {
                const struct unit *u = &p->units.at[i];
                if (u->node != n || !u->runs)
                        continue;
                Pb__UnitStatus *s = &status[h.n_units];
                pb__unit_status__init(s);
                pb__token__init(&tokens[h.n_units]);
                tokens[h.n_units].epoch = u->epoch;
                tokens[h.n_units].seq = u->seq;
                s->unit_id = (char *)u->id;
                s->token = &tokens[h.n_units];
                s->state = PB__ACTUAL_STATE__E__Running;
                list[h.n_units++] = s;
        }
        p->session[n] = ++p->sessions;
        struct input in = { .kind = INPUT_HELLO, .msg = &h.base, .session = p->session[n] };
        give(p, &in);
}

static void report(struct play *p, struct unit *u)
{
        Pb__Token token = PB__TOKEN__INIT;
        Pb__IntValue code = PB__INT_VALUE__INIT;
        Pb__UnitStatus s = PB__UNIT_STATUS__INIT, *list[] = { &s };
        Pb__UnitReport r = PB__UNIT_REPORT__INIT;
        token.epoch = u->epoch;
        token.seq = u->seq;
        s.unit_id = u->id;
        s.token = &token;
        s.started_at = p->now;
        if (u->desired == PB__DESIRED_STATE__E__Deleted) {
                s.state = PB__ACTUAL_STATE__E__Missing;
        } else if (u->desired == PB__DESIRED_STATE__E__Stopped) {
                s.state = PB__ACTUAL_STATE__E__Stopped;
        } else if (!u->runs && !rng_chance(&p->rng, 150000)) {
                s.state = PB__ACTUAL_STATE__E__Running;
        } else {
                code.value = rng_chance(&p->rng, 500000);
                s.state = code.value ? PB__ACTUAL_STATE__E__Failed : PB__ACTUAL_STATE__E__Stopped;
                s.exit_code = &code;
                s.finished_at = p->now;
        }
        u->runs = s.state == PB__ACTUAL_STATE__E__Running;
        uint32_t n = u->node;
        if (!u->runs) /* answered: nothing more to say until the next order */
                *u = p->units.at[--p->units.len];
        Pb__UnitStatus copy = s; /* u may have moved */
        char id[16];
        snprintf(id, sizeof(id), "%s", s.unit_id);
        copy.unit_id = id;
        list[0] = &copy;
        r.units = list;
        r.n_units = 1;
        struct input in = { .kind = INPUT_UNITS, .msg = &r.base, .session = p->session[n] };
        give(p, &in);
}

static void agent_acts(struct play *p)
{
        if (!p->units.len)
                return;
        struct unit *u = &p->units.at[rng_below(&p->rng, p->units.len)];
        if (p->session[u->node] && !(u->runs && rng_chance(&p->rng, 700000)))
                report(p, u);
}

static void time_passes(struct play *p, int64_t ms)
{
        p->now += ms;
        for (uint32_t n = 0; n < NODES; n++) {
                Pb__Heartbeat beat = PB__HEARTBEAT__INIT;
                if (p->silent_until[n] > p->now)
                        continue;
                struct input in = { .kind = INPUT_HEARTBEAT,
                                    .msg = &beat.base,
                                    .session = p->session[n] };
                if (p->session[n])
                        give(p, &in);
                else
                        hello(p, n);
        }
        tick(p);
}

static void node_falls_silent(struct play *p)
{
        uint32_t n = (uint32_t)rng_below(&p->rng, NODES);
        if (!p->session[n])
                return;
        struct input in = { .kind = INPUT_GONE, .session = p->session[n] };
        p->session[n] = 0;
        p->silent_until[n] = p->now + (int64_t)rng_below(&p->rng, 180000);
        give(p, &in);
}

/* ---- users ---- */

static void apply(struct play *p, uint32_t w, const char *id)
{
        struct arena a = ARENA_INIT;
        struct err err = { 0 };
        Pb__Spec spec = PB__SPEC__INIT;
        Pb__Resources res = PB__RESOURCES__INIT;
        Pb__Workload m = PB__WORKLOAD__INIT;
        Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
        char revision[16], *command[] = { (char *)"run", revision };
        p->revision[w] += rng_chance(&p->rng, 700000);
        snprintf(revision, sizeof(revision), "%u", p->revision[w]);
        spec.command = command;
        spec.n_command = 2;
        res.cpu = 100 + 10 * (int64_t)(p->revision[w] % 60);
        res.memory_mb = 128;
        m.id = (char *)id;
        m.type = PB__WORKLOAD_TYPE__E__process;
        m.spec = &spec;
        m.resources = &res;
        m.restart = w % 3 ? PB__RESTART__E__always : PB__RESTART__E__on_failure;
        must(workload_normalise(&a, &m, &err) == 0, "the history asks for sane workloads");
        req.workload = &m;
        struct input in = { .kind = INPUT_APPLY,
                            .msg = &req.base,
                            .reply = ++p->tickets,
                            .request_id = "history",
                            .actor = "test" };
        give(p, &in);
        arena_fini(&a);
}

static void user_acts(struct play *p)
{
        uint32_t w = (uint32_t)rng_below(&p->rng, WORKLOADS);
        uint64_t what = rng_below(&p->rng, 100);
        char id[16];
        snprintf(id, sizeof(id), "w-%02u", w);
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        Pb__SetDesiredRequest desired = PB__SET_DESIRED_REQUEST__INIT;
        ref.id = desired.id = id;
        struct input in = {
                .reply = ++p->tickets, .request_id = "history", .actor = "test", .msg = &ref.base
        };
        if (what < 60) {
                apply(p, w, id);
                return;
        }
        if (what < 80) {
                in.kind = what < 70 ? INPUT_DELETE : INPUT_RETRY;
        } else {
                desired.desired_state =
                    what < 88 ? PB__DESIRED_STATE__E__Stopped : PB__DESIRED_STATE__E__Running;
                in.kind = INPUT_DESIRED;
                in.msg = &desired.base;
        }
        give(p, &in);
}

void history_make(struct history *h, uint64_t seed, uint64_t events)
{
        struct play p = { .h = h, .now = START_MS, .cut_after = 1 };
        struct core_options opt;
        core_options_default(&opt);
        opt.max_batch_ops = 512;
        *h = (struct history){ 0 };
        rng_seed(&p.rng, seed);
        p.core = core_create(&opt);
        struct input start = { .kind = INPUT_START };
        give(&p, &start);
        for (uint32_t n = 0; n < NODES; n++)
                hello(&p, n);
        for (uint64_t turns = 0; h->events < events; turns++) {
                must(turns < events * 100, "a history comes to an end");
                uint64_t r = rng_below(&p.rng, 100);
                if (r < 40)
                        user_acts(&p);
                else if (r < 85)
                        agent_acts(&p);
                else if (r < 99)
                        time_passes(&p, (int64_t)rng_below(&p.rng, 8000));
                else
                        node_falls_silent(&p);
        }
        cut(&p);
        core_destroy(p.core);
        array_fini(&p.units);
}

void history_fini(struct history *h)
{
        for (size_t i = 0; i < h->batches.len; i++)
                core_batch_free(h->batches.at[i]);
        array_fini(&h->batches);
}
