/* sim/lies.c: an agent that says of its units what is not so: leaves some out, makes some up,
 * repeats old tokens, calls what has ended running.
 *
 * It also brings definitions and warrants of its own making.
 *
 * Such an agent can spoil its own node's work. It must not spoil anything else.
 */
#include "base/mem.h"
#include "sim/world.h"
#include <string.h>

static uint64_t below(struct sim *s, uint64_t n)
{
        return rng_below(&s->chance[CHANCE_NET], n);
}

static void twist(struct sim *s, Pb__UnitStatus *u)
{
        static const Pb__ActualState__E states[] = {
                PB__ACTUAL_STATE__E__Running, PB__ACTUAL_STATE__E__Stopped,
                PB__ACTUAL_STATE__E__Failed,  PB__ACTUAL_STATE__E__Missing,
                PB__ACTUAL_STATE__E__Pending, PB__ACTUAL_STATE__E__Unknown
        };
        switch (below(s, 8)) {
        case 0:
        case 1:
                u->state = states[below(s, ARRAY_LEN(states))];
                break;
        case 2:
                if (u->token)
                        u->token->seq -= u->token->seq > 3 ? 1 + below(s, 3) : 0;
                break;
        case 3:
                if (u->token)
                        u->token->seq += below(s, 2) ? 1 : UINT64_C(1) << 40;
                break;
        case 4:
                u->token = NULL;
                break;
        case 5:
                u->started_at = (int64_t)below(s, 2) * INT64_MAX;
                u->finished_at = below(s, 2) ? INT64_MAX : -5;
                break;
        default:
                break;
        }
}

static Pb__UnitStatus *invent(struct sim *s, struct arena *a)
{
        Pb__UnitStatus *u = arena_new(a, Pb__UnitStatus);
        pb__unit_status__init(u);
        bool real = s->items.len && below(s, 2);
        u->unit_id = real ? arena_strdup(a, s->items.at[below(s, s->items.len)].id)
                          : arena_printf(a, "ghost-%u", (unsigned)below(s, 5));
        u->revision_id = "made-up";
        u->state = PB__ACTUAL_STATE__E__Running;
        u->token = arena_new(a, Pb__Token);
        pb__token__init(u->token);
        u->token->epoch = below(s, 3);
        u->token->seq = below(s, store_head(s->store) + 10);
        twist(s, u);
        /* given out by the state that is lost, and greater than what the record has */
        if (s->restored && u->token) {
                u->token->epoch = 1;
                u->token->seq = store_head(s->backup) + 1000;
        }
        return u;
}

static void twist_list(struct sim *s, struct arena *a, size_t *n, Pb__UnitStatus ***list)
{
        Pb__UnitStatus **to = arena_new_n(a, Pb__UnitStatus *, *n + 4);
        size_t len = 0;
        for (size_t i = 0; i < *n; i++) {
                if (below(s, 100) < 20)
                        continue;
                if (below(s, 100) < 50)
                        twist(s, (*list)[i]);
                to[len++] = (*list)[i];
        }
        for (uint64_t extra = below(s, 4); extra > 0; extra--)
                to[len++] = invent(s, a);
        *n = len;
        *list = to;
}

/* What a unit was started from, that nobody asked for or that nobody ordered (A13). */
static void forge(struct sim *s, struct arena *a, Pb__HeldUnit *h)
{
        Pb__UnitStatus *u = invent(s, a);
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;
        char *command[] = { "forged" };
        spec.command = command;
        spec.n_command = 1;
        w.spec = &spec;
        if (str_empty(h->unit_id))
                h->unit_id = u->unit_id;
        w.id = h->unit_id;
        w.type = PB__WORKLOAD_TYPE__E__process;
        w.revision_id = "forged";
        h->token = u->token;
        h->desired_state = PB__DESIRED_STATE__E__Running;
        h->definition.len = pb__workload__get_packed_size(&w);
        h->definition.data = arena_alloc(a, h->definition.len);
        pb__workload__pack(&w, h->definition.data);
        h->warrant.len = WARRANT_BYTES;
        h->warrant.data = arena_alloc(a, WARRANT_BYTES);
        for (size_t i = 0; i < WARRANT_BYTES; i++)
                h->warrant.data[i] = (uint8_t)below(s, 256);
}

/* Unasked, in the place of a heartbeat. */
static void forge_one(struct sim *s, struct arena *a, Pb__AgentMessage *m)
{
        Pb__HeldUnit *h = arena_new(a, Pb__HeldUnit);
        pb__held_unit__init(h);
        forge(s, a, h);
        m->heartbeat = NULL;
        m->definitions = arena_new(a, Pb__UnitDefinitions);
        pb__unit_definitions__init(m->definitions);
        m->definitions->held = arena_dup(a, &h, sizeof(h));
        m->definitions->n_held = 1;
}

const void *sim_lie(struct sim *s, uint32_t n, const void *data, size_t *len)
{
        struct arena *a = &s->lies;
        struct arena_allocator alloc = arena_allocator(a);
        Pb__AgentMessage *m = pb__agent_message__unpack((ProtobufCAllocator *)&alloc, *len, data);
        (void)n;
        if (m->hello)
                twist_list(s, a, &m->hello->n_units, &m->hello->units);
        else if (m->units) {
                twist_list(s, a, &m->units->n_units, &m->units->units);
                if (m->units->applied && below(s, 4) == 0)
                        m->units->applied->seq = UINT64_MAX / 2;
                m->units->complete = below(s, 10) == 0 || m->units->complete;
        } else if (m->heartbeat && below(s, 4) == 0)
                forge_one(s, a, m);
        else if (m->heartbeat)
                m->heartbeat->units_hash = below(s, UINT64_MAX);
        for (size_t i = 0; m->definitions && i < m->definitions->n_held; i++)
                /* it was asked for what it had claimed */
                if (!m->definitions->held[i]->definition.len)
                        forge(s, a, m->definitions->held[i]);
        *len = pb__agent_message__get_packed_size(m);
        uint8_t *to = arena_alloc(a, *len + 1);
        pb__agent_message__pack(m, to);
        return to;
}
