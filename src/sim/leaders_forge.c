/* sim/leaders_forge.c: after a restore one of the agents is not what it was: it claims other nodes' units with tokens that the
 * restored store has forgotten, and brings definitions and warrants of its own making (A13). None of it may ever become a record.
 */
#include "base/mem.h"
#include "sim/leaders.h"
#include <stdio.h>
#include <string.h>

#define QUIET_MS 30000 /* before the end: what an operator adopts then is by an operator's word */

static bool is_forger(const struct leaders *s, uint32_t agent)
{
        return s->result->restores && !s->calm && s->now < s->end - QUIET_MS && agent == s->seed % AGENTS;
}

/* Given out by the state that is lost, and greater than what the record has. */
static Pb__Token *forged_token(const struct leaders *s, struct arena *a)
{
        Pb__Token *t = arena_new(a, Pb__Token);
        pb__token__init(t);
        t->epoch = 1;
        t->seq = s->backup.head + 1000;
        return t;
}

static Pb__UnitStatus **with_claims(struct leaders *s, struct arena *a, Pb__UnitStatus **units, size_t *n)
{
        Pb__UnitStatus **to = arena_new_n(a, Pb__UnitStatus *, *n + ITEMS);
        size_t len = *n;
        if (*n > 0)
                memcpy(to, units, *n * sizeof(*to));
        for (uint32_t i = 0; i < ITEMS; i++) {
                char *id = arena_printf(a, "w%u", i);
                bool has = false;
                for (size_t k = 0; k < *n; k++)
                        has |= strcmp(units[k]->workload_id, id) == 0;
                if (has || between(s, 0, 2) == 0)
                        continue;
                Pb__UnitStatus *u = to[len++] = arena_new(a, Pb__UnitStatus);
                pb__unit_status__init(u);
                u->workload_id = id;
                u->revision_id = "forged";
                u->type = PB__WORKLOAD_TYPE__E__process;
                u->state = PB__ACTUAL_STATE__E__Running;
                u->token = forged_token(s, a);
        }
        *n = len;
        return to;
}

static void with_definition(struct leaders *s, struct arena *a, Pb__HeldUnit *h)
{
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;
        char *command[] = { "forged" };
        if (h->definition.len)
                return; /* it has that one */
        w.id = h->workload_id;
        w.type = PB__WORKLOAD_TYPE__E__process;
        w.revision_id = "forged";
        spec.command = command;
        spec.n_command = 1;
        w.spec = &spec;
        h->token = forged_token(s, a);
        h->desired_state = PB__DESIRED_STATE__E__Running;
        h->definition.len = pb__workload__get_packed_size(&w);
        h->definition.data = arena_alloc(a, h->definition.len);
        pb__workload__pack(&w, h->definition.data);
        h->warrant.len = (size_t)between(s, 0, 1) * WARRANT_BYTES;
        h->warrant.data = arena_alloc(a, WARRANT_BYTES);
        for (size_t i = 0; i < WARRANT_BYTES; i++)
                h->warrant.data[i] = (uint8_t)between(s, 0, 255);
}

void leaders_forge(struct leaders *s, uint32_t agent, Pb__AgentMessage *m, struct arena *a)
{
        if (!is_forger(s, agent))
                return;
        if (m->hello)
                m->hello->units = with_claims(s, a, m->hello->units, &m->hello->n_units);
        else if (m->units && m->units->complete)
                m->units->units = with_claims(s, a, m->units->units, &m->units->n_units);
        for (size_t i = 0; m->definitions && i < m->definitions->n_held; i++)
                with_definition(s, a, m->definitions->held[i]);
}

void leaders_look_for_forged(struct leaders *s, const void *event, size_t len)
{
        Pb__Event *e = s->result->restores && !s->calm ? pb__event__unpack(NULL, len, event) : NULL;
        if (!e)
                return;
        if (e->workload && strcmp(e->workload->revision_id, "forged") == 0)
                leaders_fail(s, "A13: what a node made up became a record", fmt("%s on %s", e->workload_id, e->node_id));
        pb__event__free_unpacked(e, NULL);
}
