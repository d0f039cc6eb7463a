/* core/policy.c: what may be applied (docs/configuration.md, "What may be asked for").
 *
 * The policy is asked when something is applied, or adopted by an operator's word alone, and only
 * then: what is on record goes on as it is, as the user that it had, through restarts, moves and
 * retries. Applying the same definition once more changes nothing and asks nothing. The policy is
 * the configuration's, and live like all of it; a core that was given none (tests, the simulator)
 * allows everything.
 */
#include "core/policy.h"
#include "core/state.h"
#include "core/step.h"
#include "model/pb.h"
#include "model/powers.h"

#define LISTED_MAX 20
/* What one step may cost when all are to be judged anew. */
#define JUDGED_AT_ONCE 256
#define LOOKED_AT_ONCE 65536

bool policy_allows(struct core *c, const Pb__Workload *asked, struct err *err)
{
        struct powers powers;
        if (!c->configured)
                return true;
        powers_of(&c->step, asked, &powers);
        const Pb__Policy *policy = policy_for(c->config, asked->tenant);
        const struct power_asked *no = powers_refused(policy, &powers);
        if (!no)
                return true;
        bool own = policy && !str_empty(policy->tenant);
        const char *key = own ? arena_printf(&c->step, "tenant_policies (tenant %s): %s",
                                             policy->tenant, power_name(no->power))
                              : arena_printf(&c->step, "policy.%s", power_name(no->power));
        if (no->variable)
                err_set(err, ERR_DENIED,
                        .msg = fmt("the policy cannot judge %s: what an agent would put in for a "
                                   "variable is not known",
                                   no->what),
                        .detail = fmt("workload %s has it in %s", asked->id, no->where),
                        .hint = fmt(
                            "write the value out, or have %s changed in the server's configuration",
                            key),
                        .path = no->where);
        else
                err_set(err, ERR_DENIED,
                        .msg = fmt("the policy of this cluster does not allow %s%s%s",
                                   power_name(no->power), no->what[0] ? " " : "", no->what),
                        .detail = fmt("workload %s asks for it (%s)", asked->id, no->where),
                        .hint = fmt(
                            "leave it out, or have %s changed in the server's configuration", key),
                        .path = no->where);
        return false;
}

bool policy_allows_apply(struct core *c, const Pb__Workload *asked)
{
        struct err err;
        bool allowed = policy_allows(c, asked, &err);
        if (!allowed)
                reply_error(c, &err);
        return allowed;
}

bool policy_confines_apply(const struct core *c, const Pb__Workload *asked)
{
        return c->configured && policy_confines(policy_for(c->config, asked->tenant), asked);
}

/* Of a definition, so that most need not be judged at all. */
uint8_t policy_asks(const Pb__Workload *w)
{
        const Pb__Spec *s = w->spec;
        uint8_t asks = 0;
        if (!s)
                return 0;
        if (s->privileged || s->n_capabilities || s->n_volumes || !str_empty(s->network) ||
            !str_empty(s->compose) || !str_empty(s->pod) ||
            (w->type == PB__WORKLOAD_TYPE__E__process && !str_empty(s->user)))
                asks |= ASKS_POWERS;
        if (w->type == PB__WORKLOAD_TYPE__E__process && !w->confine && str_empty(s->user))
                asks |= ASKS_AGENTS_USER;
        return asks;
}

/* ---- what is on record, and would be refused today
 * --------------------------------------------------------------------------------------
 *
 * Anybody may ask about the cluster, so that must cost nothing: the verdict on a definition is kept
 * with it, and those that are beyond the policy are listed as they come and go. A new configuration
 * is a new question about all of them, which bulk work asks a few at a time. All of this is live.
 */

/* The power that would be refused, + 1; or that of another user, as whom it would run; 0:
 * nothing. */
static uint8_t verdict(struct core *c, const struct definition *d, const Pb__Workload *w)
{
        const Pb__Policy *policy = policy_for(c->config, c->tenants.at[d->tenant].name);
        c->stats.policy_judged++;
        if ((d->asks & ASKS_AGENTS_USER) && !(policy && policy->root_processes))
                return POWER_ROOT_PROCESSES + 1;
        if (!(d->asks & ASKS_POWERS))
                return 0;
        struct arena_allocator alloc = arena_allocator(&c->step);
        struct powers powers;
        if (!w)
                w = pb__workload__unpack((ProtobufCAllocator *)&alloc, d->len, d->data);
        must(w, "X3: a definition that was packed can be unpacked");
        powers_of(&c->step, w, &powers);
        const struct power_asked *no = powers_refused(policy, &powers);
        return no ? (uint8_t)(no->power + 1) : 0;
}

static void set_beyond(struct core *c, uint32_t ix, uint8_t beyond)
{
        struct definition *d = &c->definitions.at[ix];
        policy_count(c, ix, -(int)d->refs);
        if (beyond && !d->beyond) {
                d->beyond_at = (uint32_t)c->beyond.list.len;
                *array_push(&c->beyond.list) = ix;
        } else if (!beyond && d->beyond) {
                uint32_t last = array_pop(&c->beyond.list);
                if (last != ix) {
                        c->beyond.list.at[d->beyond_at] = last;
                        c->definitions.at[last].beyond_at = d->beyond_at;
                }
        }
        d->beyond = beyond;
        policy_count(c, ix, (int)d->refs);
}

void policy_judge(struct core *c, uint32_t ix, const Pb__Workload *w)
{
        const struct definition *d = &c->definitions.at[ix];
        if (c->configured && d->asks)
                set_beyond(c, ix, verdict(c, d, w));
}

void policy_forget(struct core *c, uint32_t ix)
{
        set_beyond(c, ix, 0);
}

void policy_count(struct core *c, uint32_t ix, int by)
{
        if (c->definitions.at[ix].beyond)
                c->beyond.workloads += by;
}

void policy_reconsider(struct core *c)
{
        c->beyond.next = 0;
}

bool policy_has_work(const struct core *c)
{
        return c->configured && c->beyond.next != NONE;
}

void policy_judge_some(struct core *c)
{
        uint32_t looked = 0, judged = 0;
        if (!policy_has_work(c))
                return;
        for (; c->beyond.next < c->definitions.len; c->beyond.next++) {
                const struct definition *d = &c->definitions.at[c->beyond.next];
                if (looked++ == LOOKED_AT_ONCE || judged == JUDGED_AT_ONCE)
                        return;
                if (!d->data || !d->asks)
                        continue;
                policy_judge(c, c->beyond.next, NULL);
                judged++;
        }
        c->beyond.next = NONE;
}

void policy_fill(struct core *c, Pb__ClusterInfo *info)
{
        info->beyond_policy = c->beyond.workloads;
        info->beyond_policy_ids = arena_new_n(&c->step, char *, LISTED_MAX);
        for (size_t i = 0; i < c->beyond.list.len; i++) {
                const struct definition *d = &c->definitions.at[c->beyond.list.at[i]];
                for (struct unit_ix w = d->users; unit_ok(w); w = unit_get(c, w)->same_next) {
                        if (info->n_beyond_policy_ids == LISTED_MAX)
                                return;
                        info->beyond_policy_ids[info->n_beyond_policy_ids++] =
                            arena_printf(&c->step, "%s (%s)", unit_get(c, w)->id,
                                         power_name((enum power)(d->beyond - 1)));
                }
        }
}

int policy_check(const struct core *c, struct err *err)
{
        int64_t workloads = 0;
        size_t listed = 0;
        for (uint32_t i = 0; i < c->definitions.len; i++) {
                const struct definition *d = &c->definitions.at[i];
                if (!d->beyond)
                        continue;
                workloads += d->refs;
                listed += d->beyond_at < c->beyond.list.len && c->beyond.list.at[d->beyond_at] == i;
        }
        if (workloads == c->beyond.workloads && listed == c->beyond.list.len)
                return 0;
        return err_set(
            err, ERR_INTERNAL,
            .msg = "X4: definitions beyond the policy are listed, and their workloads counted",
            .detail = fmt("%lld workloads, counted %lld; %zu of %zu listed", (long long)workloads,
                          (long long)c->beyond.workloads, listed, c->beyond.list.len));
}
