/* sim/faults.c: what goes wrong, and when.
 *
 * The large faults are planned before the run begins, each with a number and a random value from which all its details follow: leaving one out changes nothing about the
 * others. The small ones (this message arrives twice, this commit's outcome is unknown) are drawn as they come; they have numbers too.
 */
#include "base/mem.h"
#include "sim/world.h"
#include <stdlib.h>

#define PLAN_MAX 200000

static const struct {
        enum sim_fault kind;
        int64_t mean_ms;
} kinds[_FAULT_MAX] = {
        [FAULT_SERVER_CRASH] = { SIM_RESTART, HOUR_MS / 2 },
        [FAULT_STORE_AWAY] = { SIM_DISK, HOUR_MS },
        [FAULT_SLOW_DISK] = { SIM_SLOW, HOUR_MS },
        [FAULT_SERVER_CLOCK] = { SIM_CLOCK, HOUR_MS },
        [FAULT_OPERATOR] = { SIM_OPERATOR, HOUR_MS },
        [FAULT_AGENT_CRASH] = { SIM_CRASH, 4 * HOUR_MS },
        [FAULT_MACHINE_CRASH] = { SIM_CRASH, 12 * HOUR_MS },
        [FAULT_CUT] = { SIM_PARTITION, 3 * HOUR_MS },
        [FAULT_ONEWAY] = { SIM_ONEWAY, 3 * HOUR_MS },
        [FAULT_STALL] = { SIM_SLOW, 4 * HOUR_MS },
        [FAULT_AGENT_CLOCK] = { SIM_CLOCK, 4 * HOUR_MS },
        [FAULT_TWIN] = { SIM_TWIN, 24 * HOUR_MS },
        [FAULT_LIES] = { SIM_LIE, 12 * HOUR_MS },
        [FAULT_RUNTIME] = { SIM_RUNTIME, 12 * HOUR_MS },
        [FAULT_DRIFT] = { SIM_DRIFT, 4 * HOUR_MS },
        [FAULT_MASS] = { SIM_MASS, 2 * HOUR_MS },
};

static int64_t draw(struct rng *r, int64_t low, int64_t high)
{
        return low + (int64_t)rng_below(r, (uint64_t)(high - low + 1));
}

static void plan_kind(struct sim *s, enum fault_kind k, uint32_t node)
{
        struct rng r;
        rng_seed(&r, hash64_mix(s->opt.seed, hash64_mix(1000 + (uint64_t)k, node)));
        int64_t mean = kinds[k].mean_ms / s->opt.intensity;
        for (int64_t at = s->now;;) {
                at += draw(&r, 1, 2 * mean);
                if (at >= s->end_ms || s->plan.len >= PLAN_MAX)
                        return;
                *array_push(&s->plan) = (struct planned_fault){ .at = at, .kind = k, .node = node, .random = rng_next(&r) };
        }
}

static bool is_masked(const struct sim *s, uint32_t number)
{
        size_t low = 0, high = s->opt.n_masked;
        while (low < high) {
                size_t mid = (low + high) / 2;
                if (s->opt.masked[mid] == number)
                        return true;
                if (s->opt.masked[mid] < number)
                        low = mid + 1;
                else
                        high = mid;
        }
        return false;
}

void sim_faults_plan(struct sim *s)
{
        for (enum fault_kind k = 0; k < _FAULT_MAX; k++)
                if (s->opt.faults & kinds[k].kind)
                        for (uint32_t n = 0; n < (k < FAULT_AGENT_CRASH || k == FAULT_MASS ? 1 : s->opt.nodes); n++)
                                plan_kind(s, k, n);
        for (size_t z = 0; z < SIM_ZONES; z++)
                if (s->opt.lose[z]) {
                        sim_at(s, s->now + 300000, (struct sim_event){ .kind = EV_LOSE });
                        break;
                }
        for (uint32_t i = 0; i < s->plan.len; i++)
                if (!is_masked(s, i))
                        sim_at(s, s->plan.at[i].at, (struct sim_event){ .kind = EV_FAULT, .value = i });
}

bool sim_hit(struct sim *s, enum sim_fault kind, uint32_t per_million)
{
        uint32_t k = (uint32_t)__builtin_ctz(kind);
        if (s->calm || !(s->opt.faults & kind))
                return false;
        uint32_t p = per_million * s->opt.hostility;
        if (!rng_chance(&s->hits[k], p < 400000 ? p : 400000))
                return false;
        uint32_t number = (k + 1) << 24 | (s->hit_count[k]++ & 0xffffff);
        if (s->opt.want_numbers)
                *array_push(&s->hit_numbers) = number;
        if (is_masked(s, number))
                return false;
        s->result.faults++;
        return true;
}

/* ---- one by one ---------------------------------------------------------------------------------------------------------------------------- */

static void crash_server(struct sim *s, struct rng *r)
{
        bool soon = rng_chance(r, 700000);
        s->crash_down_ms = draw(r, 50, rng_chance(r, 200000) ? 120000 : 3000);
        if (!s->core)
                return;
        if (soon && !s->committing)
                s->crash_at_commit = true; /* the worst moment */
        else
                sim_at(s, s->now, (struct sim_event){ .kind = EV_SERVER_CRASH, .value = s->server_life });
}

static void store_away(struct sim *s, struct rng *r)
{
        if (s->away)
                return;
        s->away = true;
        memory_set_away(s->disk, true);
        sim_at(s, s->now + draw(r, 200, rng_chance(r, 300000) ? 300000 : 20000), (struct sim_event){ .kind = EV_STORE_BACK });
}

/* Hours ahead or behind, or seconds. */
static int64_t clock_jump(struct rng *r)
{
        int64_t most = rng_chance(r, 500000) ? 5000 : HOUR_MS;
        return draw(r, -most, most);
}

static void operator_acts(struct sim *s, struct rng *r)
{
        static const Pb__NodeWish__E wishes[] = { PB__NODE_WISH__E__schedulable, PB__NODE_WISH__E__cordoned, PB__NODE_WISH__E__draining,
                                                  PB__NODE_WISH__E__disabled };
        uint32_t n = (uint32_t)rng_below(r, s->opt.nodes);
        uint64_t what = rng_below(r, 14), random = rng_next(r);
        if (what < 3 && random % 4 == 0)
                sim_client_node(s, n, random % 16 ? OP_EVICT : OP_EVICT_LOST, 0, random);
        else if (what < 3)
                sim_client_node(s, n, OP_FORGET, 0, random);
        else if (what < 10)
                sim_client_node(s, n, OP_WISH, wishes[what < 6 ? 0 : what - 6], random);
        else
                sim_client_node(s, n, OP_TAINT, 0, random);
}

static void cut(struct sim *s, uint32_t n, struct rng *r, bool oneway)
{
        struct machine *m = &s->machines.at[n];
        if (m->cut || m->up_lost || m->down_lost)
                return;
        int64_t length = draw(r, 1000, rng_chance(r, 300000) ? 600000 : 40000);
        bool silent = rng_chance(r, 500000);
        m->stalls = oneway && rng_chance(r, 500000) && length < 30000; /* else somebody notices */
        m->heals_at = s->now + length;
        if (!m->stalls)
                sim_link_break(s, n, silent || oneway);
        if (!oneway)
                m->cut = true;
        else if (rng_chance(r, 500000))
                m->up_lost = true;
        else
                m->down_lost = true;
        sim_at(s, s->now + length, (struct sim_event){ .kind = EV_HEAL, .node = n, .value = ++m->cuts });
}

static void cut_off(struct sim *s, uint32_t n, int64_t length, bool silent)
{
        struct machine *m = &s->machines.at[n];
        if (m->cut || m->up_lost || m->down_lost)
                return;
        m->heals_at = s->now + length;
        sim_link_break(s, n, silent);
        m->cut = true;
        sim_at(s, s->now + length, (struct sim_event){ .kind = EV_HEAL, .node = n, .value = ++m->cuts });
}

/* One zone, two, all, or any nodes: all at one moment, and back at one moment. Mostly for long enough to be noticed and to
 * be acted upon. */
static void mass(struct sim *s, struct rng *r)
{
        uint64_t how = rng_below(r, 10);
        int64_t length = draw(r, 20000, rng_chance(r, 700000) ? 400000 : 60000);
        bool silent = rng_chance(r, 500000), burns = how < 4 && rng_chance(r, 300000);
        char first = (char)('a' + rng_below(r, 3)), second = (char)('a' + rng_below(r, 3));
        for (uint32_t n = 0; n < s->opt.nodes; n++) {
                char zone = sim_zone_of(s, n)[0];
                bool hit = how < 4 ? zone == first : how < 6 ? zone == first || zone == second : how < 8 || rng_chance(r, 500000);
                if (!hit)
                        continue;
                if (burns && s->machines.at[n].engine && !s->machines.at[n].down) {
                        sim_machine_crash(s, n);
                        sim_at(s, s->now + length, (struct sim_event){ .kind = EV_AGENT_START, .node = n });
                } else
                        cut_off(s, n, length, silent);
        }
}

void sim_lose(struct sim *s)
{
        uint32_t lost[SIM_ZONES] = { 0 };
        for (uint32_t n = 0; n < s->opt.nodes; n++) {
                int zone = sim_zone_of(s, n)[0] - 'a';
                if (zone >= 0 && zone < SIM_ZONES && lost[zone] < s->opt.lose[zone]) {
                        lost[zone]++;
                        cut_off(s, n, s->opt.lose_ms ? s->opt.lose_ms : 600000, true);
                }
        }
}

const char *sim_zone_of(const struct sim *s, uint32_t node)
{
        static const char *const names[SIM_ZONES] = { "a", "b", "c", "d", "e", "f", "g", "h" };
        uint32_t before = 0;
        for (size_t z = 0; s->opt.zones[0] && z < SIM_ZONES; z++) {
                before += s->opt.zones[z];
                if (node < before)
                        return names[z];
        }
        return s->opt.zones[0] ? names[SIM_ZONES - 1] : names[node % 3];
}

void sim_heal(struct sim *s, uint32_t n, uint64_t number)
{
        struct machine *m = &s->machines.at[n];
        if (m->cuts == number)
                m->cut = m->up_lost = m->down_lost = m->stalls = false;
}

static void crash_node(struct sim *s, uint32_t n, struct rng *r, bool machine)
{
        struct machine *m = &s->machines.at[n];
        int64_t down_ms = draw(r, 200, machine ? 900000 : 20000);
        if (m->down || !m->engine)
                return;
        if (machine)
                sim_machine_crash(s, n);
        else
                sim_agent_crash(s, n);
        sim_at(s, s->now + down_ms, (struct sim_event){ .kind = EV_AGENT_START, .node = n });
}

/* A machine that was cloned, agent and all: the same name, its own disk, and other work on it. */
static void twin(struct sim *s, uint32_t n, struct rng *r)
{
        uint32_t t = s->opt.nodes;
        while (t < s->machines.len && s->machines.at[t].node != n)
                t++;
        if (t == s->machines.len)
                sim_machine_init(s, t, n);
        if (!s->machines.at[t].off)
                return;
        s->machines.at[t].off = false;
        sim_taint_node(s, n);
        sim_agent_start(s, t);
        sim_at(s, s->now + draw(r, 1000, 300000), (struct sim_event){ .kind = EV_TWIN_END, .node = t });
}

static void lies_begin(struct sim *s, uint32_t n, struct rng *r)
{
        sim_taint_node(s, n);
        s->machines.at[n].lies_until = s->now + draw(r, 1000, 300000);
}

void sim_fault(struct sim *s, uint64_t number)
{
        const struct planned_fault *f = &s->plan.at[number];
        struct rng r;
        if (s->calm)
                return;
        rng_seed(&r, f->random);
        s->result.faults++;
        switch (f->kind) {
        case FAULT_SERVER_CRASH:
                crash_server(s, &r);
                break;
        case FAULT_STORE_AWAY:
                store_away(s, &r);
                break;
        case FAULT_SLOW_DISK:
                s->slow_until = s->now + draw(&r, 5000, 120000);
                break;
        case FAULT_SERVER_CLOCK:
                sim_server_clock_jump(s, clock_jump(&r));
                break;
        case FAULT_OPERATOR:
                operator_acts(s, &r);
                break;
        case FAULT_AGENT_CRASH:
        case FAULT_MACHINE_CRASH:
                crash_node(s, f->node, &r, f->kind == FAULT_MACHINE_CRASH);
                break;
        case FAULT_CUT:
        case FAULT_ONEWAY:
                cut(s, f->node, &r, f->kind == FAULT_ONEWAY);
                break;
        case FAULT_STALL:
                s->machines.at[f->node].stalled_until = s->now + draw(&r, 100, rng_chance(&r, 200000) ? 90000 : 15000);
                sim_link_stall(s, f->node);
                break;
        case FAULT_AGENT_CLOCK:
                sim_agent_clock_jump(s, &s->machines.at[f->node], clock_jump(&r));
                break;
        case FAULT_TWIN:
                twin(s, f->node, &r);
                break;
        case FAULT_LIES:
                lies_begin(s, f->node, &r);
                break;
        case FAULT_RUNTIME:
                s->machines.at[f->node].cannot_run = s->machines.at[f->node].engine != NULL;
                break;
        case FAULT_DRIFT:
                sim_drift(s, f->node, &r);
                break;
        case FAULT_MASS:
                mass(s, &r);
                break;
        case _FAULT_MAX:
                break;
        }
}

/* Everything is repaired. Clocks stay as wrong as they are: nobody may depend on them. So do taints, and every other runtime that does not work: the others must do. */
void sim_faults_end(struct sim *s)
{
        s->calm = true;
        s->first_calm_request = s->requests.len;
        s->away = false;
        s->slow_until = 0;
        memory_set_away(s->disk, false);
        memory_fail_commit(s->disk, 0, MEMORY_FAULT_NONE);
        if (!s->core)
                sim_server_start(s);
        for (uint32_t n = 0; n < s->machines.len; n++) {
                struct machine *m = &s->machines.at[n];
                m->cut = m->up_lost = m->down_lost = m->stalls = false;
                m->lies_until = m->stalled_until = 0;
                if (m->cannot_run && n % 2)
                        sim_agent_crash(s, n);
                if (n >= s->opt.nodes) {
                        sim_machine_crash(s, n);
                        m->off = true;
                } else if (!m->engine)
                        sim_agent_start(s, n);
        }
        if (s->opt.faults & SIM_OPERATOR)
                for (uint32_t n = 0; n < s->opt.nodes; n++)
                        sim_client_node(s, n, OP_WISH, PB__NODE_WISH__E__schedulable, 0);
}
