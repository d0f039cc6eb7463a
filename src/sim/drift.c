/* sim/drift.c: what happens on a machine behind its agent's back, while the agent is down for a
 * moment: somebody removes a unit and all that is known of it, or only its record, or only its
 * process; or starts something that nobody asked for. The agent is honest about what it finds (C27,
 * A5).
 */
#include "base/mem.h"
#include "sim/world.h"
#include <stdio.h>

/* Its token may be started again: of the first start nothing is left. */
void sim_forget_start(struct sim *s, struct unit_token t)
{
        uint32_t at = map_get(&s->started_by, &t, sizeof(t));
        if (at != MAP_NONE)
                map_remove(&s->started_by, at);
}

static void stranger_appears(struct sim *s, struct machine *m, struct rng *r)
{
        char id[32];
        snprintf(id, sizeof(id), "ghost-%u", (unsigned)rng_below(r, 5));
        if (sim_copy_find(m, id))
                return;
        *sim_copy_new(m) = (struct copy){ .workload_id = mem_strdup(id),
                                          .revision = mem_strdup("r1"),
                                          .alive = true,
                                          .started_at = s->now,
                                          .token = { 0, 0 } };
}

void sim_drift(struct sim *s, uint32_t n, struct rng *r)
{
        struct machine *m = &s->machines.at[n];
        uint64_t what = rng_below(r, 4), which = rng_next(r);
        int64_t down_ms = 100 + (int64_t)rng_below(r, 3000);
        if (!m->engine || m->down || m->off)
                return;
        sim_agent_crash(s, n);
        sim_at(s, s->now + down_ms, (struct sim_event){ .kind = EV_AGENT_START, .node = n });
        if (what == 3) {
                stranger_appears(s, m, r);
                return;
        }
        struct copy *c = NULL;
        for (size_t i = 0; i < m->copies.len && !c; i++) {
                struct copy *x = &m->copies.at[(i + which % m->copies.len) % m->copies.len];
                c = x->workload_id && x->workload_id[0] == 'w' ? x : NULL;
        }
        if (!c)
                return;
        if (c->exclusive)
                return; /* about what is taken out of its agent's hands nothing is promised */
        s->items.at[number_of(c->workload_id)].drifted = s->now;
        if (what != 1) /* else its record is left: the process is gone without a trace */
                sim_machine_lose_record(m, c->workload_id);
        if (what != 2) { /* else only its record is lost */
                sim_forget_start(s, c->token);
                sim_copy_free(c);
        }
}
