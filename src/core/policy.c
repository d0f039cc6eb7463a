/* core/policy.c: what may be applied (docs/configuration.md, "What may be asked for").
 *
 * The policy is asked when something is applied, and only then: what is on record goes on as it is, as the user that it had, through
 * restarts, moves and retries. Applying the same definition once more changes nothing and asks nothing. The policy is the configuration's,
 * and live like all of it; a core that was given none (tests, the simulator) allows everything.
 */
#include "core/policy.h"
#include "core/state.h"
#include "core/step.h"
#include "model/pb.h"
#include "model/powers.h"

/* What a question about the cluster may cost: beyond these the count is "at least". */
#define LISTED_MAX 20
#define COUNTED_MAX 10000
#define UNPACKED_MAX 1000

bool policy_allows_apply(struct core *c, const Pb__Workload *asked)
{
        struct powers powers;
        struct err err;
        if (!c->configured)
                return true;
        powers_of(&c->step, asked, &powers);
        const Pb__Policy *policy = policy_for(c->config, asked->tenant);
        const struct power_asked *no = powers_refused(policy, &powers);
        if (!no)
                return true;
        bool own = policy && !str_empty(policy->tenant);
        const char *key = own ? arena_printf(&c->step, "tenant_policies (tenant %s): %s", policy->tenant, power_name(no->power))
                              : arena_printf(&c->step, "policy.%s", power_name(no->power));
        if (no->variable)
                err_set(&err, ERR_DENIED,
                        .msg = fmt("the policy cannot judge %s: what an agent would put in for a variable is not known", no->what),
                        .detail = fmt("workload %s has it in %s", asked->id, no->where),
                        .hint = fmt("write the value out, or have %s changed in the server's configuration", key), .path = no->where);
        else
                err_set(
                    &err, ERR_DENIED,
                    .msg = fmt("the policy of this cluster does not allow %s%s%s", power_name(no->power), no->what[0] ? " " : "", no->what),
                    .detail = fmt("workload %s asks for it (%s)", asked->id, no->where),
                    .hint = fmt("leave it out, or have %s changed in the server's configuration", key), .path = no->where);
        reply_error(c, &err);
        return false;
}

bool policy_confines_apply(const struct core *c, const Pb__Workload *asked)
{
        return c->configured && policy_confines(policy_for(c->config, asked->tenant), asked);
}

/* Of a definition, so that most need not be unpacked to be listed. */
uint8_t policy_asks(const Pb__Workload *w)
{
        const Pb__Spec *s = w->spec;
        uint8_t asks = 0;
        if (!s)
                return 0;
        if (s->privileged || s->n_capabilities || s->n_volumes || !str_empty(s->network) || !str_empty(s->compose) || !str_empty(s->pod) ||
            (w->type == PB__WORKLOAD_TYPE__E__process && !str_empty(s->user)))
                asks |= ASKS_POWERS;
        if (w->type == PB__WORKLOAD_TYPE__E__process && !w->confine && str_empty(s->user))
                asks |= ASKS_AGENTS_USER;
        return asks;
}

/* What would be refused if it were applied today, or would run as another user; NULL: nothing. */
static const char *beyond(struct core *c, const struct definition *d, uint32_t *unpacked)
{
        const Pb__Policy *policy = policy_for(c->config, c->tenants.at[d->tenant].name);
        if ((d->asks & ASKS_AGENTS_USER) && !(policy && policy->root_processes))
                return power_name(POWER_ROOT_PROCESSES);
        if (!(d->asks & ASKS_POWERS) || ++*unpacked > UNPACKED_MAX)
                return NULL;
        struct arena_allocator alloc = arena_allocator(&c->step);
        const Pb__Workload *w = pb__workload__unpack((ProtobufCAllocator *)&alloc, d->len, d->data);
        struct powers powers;
        must(w, "X3: a definition that was packed can be unpacked");
        powers_of(&c->step, w, &powers);
        const struct power_asked *no = powers_refused(policy, &powers);
        return no ? power_name(no->power) : NULL;
}

void policy_fill(struct core *c, Pb__ClusterInfo *info)
{
        uint32_t unpacked = 0;
        if (!c->configured)
                return;
        info->beyond_policy_ids = arena_new_n(&c->step, char *, LISTED_MAX);
        for (size_t i = 0; i < c->definitions.len && info->beyond_policy < COUNTED_MAX; i++) {
                const struct definition *d = &c->definitions.at[i];
                const char *what = d->data && d->asks ? beyond(c, d, &unpacked) : NULL;
                if (!what)
                        continue;
                for (struct unit_ix w = d->users; unit_ok(w) && info->beyond_policy < COUNTED_MAX; w = unit_get(c, w)->same_next) {
                        info->beyond_policy++;
                        if (info->n_beyond_policy_ids < LISTED_MAX)
                                info->beyond_policy_ids[info->n_beyond_policy_ids++] =
                                    arena_printf(&c->step, "%s (%s)", unit_get(c, w)->id, what);
                }
        }
}
