/* sim/faults.c: what goes wrong, and when.
 *
 * The large faults are planned before the run begins, each with a number and a random value from
 * which all its details follow: leaving one out changes nothing about the others. The small ones
 * (this message arrives twice, this commit's outcome is unknown) are drawn as they come; they have
 * numbers too.
 */
#include "base/mem.h"
#include "sim/world.h"
#include <stdlib.h>
#include <string.h>

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
        [FAULT_SERVER_STALLS] = { SIM_PAUSE, HOUR_MS },
        [FAULT_SERVER_CUT] = { SIM_PARTITION, HOUR_MS / 2 },
        [FAULT_BLIND] = { SIM_BLIND, HOUR_MS },
        [FAULT_RESTORE] = { SIM_RESTORE, 6 * HOUR_MS },
        [FAULT_CUT_FROM_ONE] = { SIM_PARTITION, HOUR_MS },
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
                *array_push(&s->plan) = (struct planned_fault){
                        .at = at, .kind = k, .node = node, .random = rng_next(&r)
                };
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
        for (enum fault_kind k = 0; k < (s->opt.servers > 1 ? _FAULT_MAX : FAULT_SERVER_STALLS);
             k++) {
                bool of_node =
                    (k >= FAULT_AGENT_CRASH && k < FAULT_MASS) || k == FAULT_CUT_FROM_ONE;
                if (s->opt.faults & kinds[k].kind)
                        for (uint32_t n = 0; n < (of_node ? s->opt.nodes : 1); n++)
                                plan_kind(s, k, n);
        }
        for (size_t z = 0; z < SIM_ZONES; z++)
                if (s->opt.lose[z]) {
                        sim_at(s, s->now + 300000, (struct sim_event){ .kind = EV_LOSE });
                        break;
                }
        for (uint32_t i = 0; i < s->plan.len; i++)
                if (!is_masked(s, i))
                        sim_at(s, s->plan.at[i].at,
                               (struct sim_event){ .kind = EV_FAULT, .value = i });
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

/* ---- one by one ---- */

static struct server *any_server(struct sim *s, struct rng *r)
{
        return &s->servers[s->opt.servers > 1 ? rng_below(r, s->opt.servers) : 0];
}

static void crash_server(struct sim *s, struct rng *r)
{
        bool soon = rng_chance(r, 700000);
        struct server *v = any_server(s, r);
        v->crash_down_ms = draw(r, 50, rng_chance(r, 200000) ? 120000 : 3000);
        if (!v->core && s->opt.servers == 1)
                return;
        if (soon && !v->committing && v->core)
                v->crash_at_commit = true; /* the worst moment */
        else
                sim_at(s, s->now,
                       (struct sim_event){
                           .kind = EV_SERVER_CRASH, .server = v->number, .life = v->life });
}

static void store_away(struct sim *s, struct rng *r)
{
        if (s->away)
                return;
        s->away = true;
        memory_set_away(s->disk, true);
        sim_at(s, s->now + draw(r, 200, rng_chance(r, 300000) ? 300000 : 20000),
               (struct sim_event){ .kind = EV_STORE_BACK });
}

/* Hours ahead or behind, or seconds. */
static int64_t clock_jump(struct rng *r)
{
        int64_t most = rng_chance(r, 500000) ? 5000 : HOUR_MS;
        return draw(r, -most, most);
}

static void jump_server_clock(struct sim *s, struct rng *r)
{
        struct server *v = any_server(s, r);
        sim_server_clock_jump(s, v, clock_jump(r));
}

static void operator_acts(struct sim *s, struct rng *r)
{
        static const Pb__NodeWish__E wishes[] = { PB__NODE_WISH__E__schedulable,
                                                  PB__NODE_WISH__E__cordoned,
                                                  PB__NODE_WISH__E__draining,
                                                  PB__NODE_WISH__E__disabled };
        uint32_t n = (uint32_t)rng_below(r, s->opt.nodes);
        uint64_t what = rng_below(r, 14), random = rng_next(r);
        for (uint32_t i = 0; s->opt.exclusive && i < s->opt.nodes; i++)
                if (s->machines.at[i].down && random % 3 == 0)
                        sim_client_node(s, i, OP_FENCE, 0, 0);
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
        sim_at(s, s->now + length,
               (struct sim_event){ .kind = EV_HEAL, .node = n, .value = ++m->cuts });
}

static void cut_off(struct sim *s, uint32_t n, int64_t length, bool silent)
{
        struct machine *m = &s->machines.at[n];
        if (m->cut || m->up_lost || m->down_lost)
                return;
        m->heals_at = s->now + length;
        sim_link_break(s, n, silent);
        m->cut = true;
        sim_at(s, s->now + length,
               (struct sim_event){ .kind = EV_HEAL, .node = n, .value = ++m->cuts });
}

/* One zone, two, all, or any nodes: all at one moment, and back at one moment. Mostly for long
 * enough to be noticed and to be acted upon. */
static void mass(struct sim *s, struct rng *r)
{
        uint64_t how = rng_below(r, 10);
        int64_t length = draw(r, 20000, rng_chance(r, 700000) ? 400000 : 60000);
        bool silent = rng_chance(r, 500000), burns = how < 4 && rng_chance(r, 300000);
        char first = (char)('a' + rng_below(r, 3)), second = (char)('a' + rng_below(r, 3));
        for (uint32_t n = 0; n < s->opt.nodes; n++) {
                char zone = sim_zone_of(s, n)[0];
                bool hit = how < 4   ? zone == first
                           : how < 6 ? zone == first || zone == second
                                     : how < 8 || rng_chance(r, 500000);
                if (!hit)
                        continue;
                if (burns && s->machines.at[n].engine && !s->machines.at[n].down) {
                        sim_machine_crash(s, n);
                        sim_at(s, s->now + length,
                               (struct sim_event){ .kind = EV_AGENT_START, .node = n });
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
        int64_t until = s->now + draw(r, 1000, 300000);
        s->machines.at[t].off = false;
        sim_taint_node(s, n, until);
        sim_agent_start(s, t);
        sim_at(s, until, (struct sim_event){ .kind = EV_TWIN_END, .node = t });
}

static void lies_begin(struct sim *s, uint32_t n, int64_t until)
{
        sim_taint_node(s, n, until);
        s->machines.at[n].lies_until = until;
}

/* ---- of several servers ---- */

/* All that may have been granted or ordered has come to its end by then. */
static int64_t term_ms(const struct sim *s)
{
        return LEAD_MS + s->core_opt.lease_ms + s->core_opt.lease_grace_ms;
}

/* A member of the store that is alive and hears no other, a watch that is silent, a keep-alive, a
 * commit or a read that nobody answers: any of the ways between the leader and the store fails
 * while others work, and its key is removed. What must be seen is a leader that is idle, with
 * agents of its own that do not reach the next one; so some agents are cut from it, and the others
 * from the rest, well before: then it has nothing left to commit that the store could refuse. */
static void begin_blind(struct sim *s)
{
        struct server *v = sim_leader(s);
        if (!v)
                return;
        s->blind = v->number;
        s->blind_until = s->now + 8 * term_ms(s);
        for (uint32_t n = 0; n < s->opt.nodes; n++)
                for (uint32_t i = 0; i < s->opt.servers; i++)
                        s->machines.at[n].cut_until[i] =
                            (i == v->number) == (n < s->opt.nodes / 2) ? s->blind_until : 0;
        sim_at(s, s->now + 2 * term_ms(s),
               (struct sim_event){ .kind = EV_BLIND, .server = v->number });
}

void sim_go_blind(struct sim *s, struct server *v)
{
        uint32_t lost = (uint32_t)sim_between(s, CHANCE_SERVER, 1, (1 << CHANNELS) - 1);
        if (s->calm)
                return;
        for (uint32_t i = 0; i < CHANNELS; i++)
                if (lost & 1u << i)
                        v->cut_until[i] = s->blind_until;
        if (sim_between(s, CHANCE_SERVER, 0, 3) > 0 && s->leader && s->leader == v->rev)
                sim_store_remove_key(s);
        sim_saw(s, SAW_BLIND);
}

static void cut_server(struct sim *s, struct rng *r)
{
        struct server *v = any_server(s, r);
        int64_t until = s->now + draw(r, 500, 2 * term_ms(s));
        for (uint32_t i = 0; i < CHANNELS; i++)
                v->cut_until[i] = until;
}

static void cut_from_one(struct sim *s, uint32_t n, struct rng *r)
{
        const struct server *v = any_server(s, r);
        s->machines.at[n].cut_until[v->number] = s->now + draw(r, 500, 2 * term_ms(s));
}

static void stall_server(struct sim *s, struct rng *r)
{
        struct server *v = any_server(s, r);
        v->stalled_until = s->now + draw(r, 100, 2 * term_ms(s));
        sim_at(s, v->stalled_until, (struct sim_event){ .kind = EV_RESUME, .server = v->number });
}

/* In the second half, from a copy of before. And then one of the agents may not be what it was: it
 * claims what the restored store has forgotten (lies.c). */
static void restore(struct sim *s, struct rng *r)
{
        if (s->now < (START_MS + s->end_ms) / 2 || !s->backup) {
                sim_backup(s);
                return;
        }
        sim_restore(s);
        s->blind_until = 0;
        for (uint32_t i = 0; i < s->opt.nodes;
             /* whoever was heard of since the copy was made, and is not there now, is known to
              * nobody */
             i++)
                if (rng_chance(r, 500000))
                        for (uint32_t k = 0; k < s->opt.servers; k++)
                                s->machines.at[i].cut_until[k] =
                                    s->now + draw(r, 500, 4 * term_ms(s));
        uint32_t n = (uint32_t)rng_below(r, s->opt.nodes);
        if (s->opt.faults & SIM_LIE)
                lies_begin(s, n, s->end_ms);
}

void sim_fault(struct sim *s, uint64_t number)
{
        const struct planned_fault *f = &s->plan.at[number];
        struct rng r;
        /* that one needs rest around it */
        if (s->calm || (s->now < s->blind_until && f->kind != FAULT_RESTORE))
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
                jump_server_clock(s, &r);
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
                if (!s->machines.at[f->node].watched)
                        break; /* nobody would stop its units */
                s->machines.at[f->node].stalled_until =
                    s->now + draw(&r, 100, rng_chance(&r, 200000) ? 90000 : 15000);
                sim_link_stall(s, f->node);
                break;
        case FAULT_AGENT_CLOCK:
                sim_agent_clock_jump(s, &s->machines.at[f->node], clock_jump(&r));
                break;
        case FAULT_TWIN:
                twin(s, f->node, &r);
                break;
        case FAULT_LIES:
                lies_begin(s, f->node, s->now + draw(&r, 1000, 300000));
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
        case FAULT_SERVER_STALLS:
                stall_server(s, &r);
                break;
        case FAULT_SERVER_CUT:
                cut_server(s, &r);
                break;
        case FAULT_BLIND:
                begin_blind(s);
                break;
        case FAULT_RESTORE:
                restore(s, &r);
                break;
        case FAULT_CUT_FROM_ONE:
                cut_from_one(s, f->node, &r);
                break;
        case _FAULT_MAX:
                break;
        }
}

/* Everything is repaired. Clocks stay as wrong as they are: nobody may depend on them. So do
 * taints, and every other runtime that does not work: the others must do. */
void sim_faults_end(struct sim *s)
{
        s->calm = true;
        s->first_calm_request = s->requests.len;
        s->away = false;
        s->slow_until = 0;
        memory_set_away(s->disk, false);
        memory_fail_commit(s->disk, 0, MEMORY_FAULT_NONE);
        s->blind_until = 0;
        for (uint32_t i = 0; i < s->opt.servers; i++) {
                struct server *v = &s->servers[i];
                v->paused_until = v->stalled_until = 0;
                memset(v->cut_until, 0, sizeof(v->cut_until));
                if (s->opt.servers == 1 || v->down)
                        sim_server_start(s, v);
                else
                        sim_at(s, s->now, (struct sim_event){ .kind = EV_RESUME, .server = i });
        }
        for (uint32_t n = 0; n < s->machines.len; n++) {
                struct machine *m = &s->machines.at[n];
                memset(m->cut_until, 0, sizeof(m->cut_until));
                m->cut = m->up_lost = m->down_lost = m->stalls = false;
                m->lies_until = m->stalled_until = 0;
                /* what is pinned there has no other */
                if (m->cannot_run && (n % 2 || s->opt.exclusive))
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
        for (uint32_t n = 0; s->restored && n < s->opt.nodes; n++)
                sim_client_node(s, n, OP_ADOPT, 0, 0);
}
