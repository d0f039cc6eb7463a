/* core/config.c: the part of the configuration that decides: timings, the default quota, rules and
 * webhooks.
 *
 * It comes in by the same door as everything else (INPUT_CONFIG): once after the start, and again
 * with every reload. It is live: no record holds it, since the file is its place. What follows from
 * it (deadlines, alerts of rules that are gone) is made anew here.
 */
#include "model/config.h"
#include "core/admission.h"
#include "core/config.h"
#include "core/fence.h"
#include "core/node.h"
#include "core/place.h"
#include "core/policy.h"
#include "core/rules.h"
#include "core/state.h"
#include "core/step.h"
#include "model/pb.h"

void core_options_from(const Pb__ServerConfig *f, struct core_options *opt)
{
        opt->heartbeat_ms = config_duration_ms(f->heartbeat, opt->heartbeat_ms);
        opt->silence_beats = f->silence ? f->silence : opt->silence_beats;
        opt->evict_grace_ms = config_duration_ms(f->grace, opt->evict_grace_ms);
        opt->launch_grace_ms = config_duration_ms(f->launch_grace, opt->launch_grace_ms);
        opt->pass_ms = config_duration_ms(f->pass, opt->pass_ms);
        opt->fresh_ms = config_duration_ms(f->fresh, opt->fresh_ms);
        opt->healthy_ms = config_duration_ms(f->healthy, opt->healthy_ms);
        opt->brake_percent = f->brake_percent ? f->brake_percent : opt->brake_percent;
        opt->evict_per_second =
            f->evict_per_second ? (int32_t)f->evict_per_second->value : opt->evict_per_second;
        opt->lease_ms = config_duration_ms(f->lease, opt->lease_ms);
        opt->lease_grace_ms = config_duration_ms(f->lease_grace, opt->lease_grace_ms);
        opt->drift_percent =
            f->clock_drift_percent ? (int32_t)f->clock_drift_percent->value : opt->drift_percent;
        opt->max_nodes = f->max_nodes ? (uint32_t)f->max_nodes : opt->max_nodes;
        opt->max_workloads = f->max_workloads ? (uint32_t)f->max_workloads : opt->max_workloads;
        opt->index_records |= f->index_records;
        if (f->placement)
                opt->strategy = f->placement;
        if (f->preemptions)
                opt->preempt_per_minute = (int32_t)f->preemptions->value;
        if (!str_empty(f->strangers))
                opt->strangers = str_eq(f->strangers, "adopt")    ? STRANGERS_ADOPT
                                 : str_eq(f->strangers, "remove") ? STRANGERS_REMOVE
                                                                  : STRANGERS_KEEP;
}

static bool timings_differ(const struct core_options *a, const struct core_options *b)
{
        return a->heartbeat_ms != b->heartbeat_ms || a->silence_beats != b->silence_beats ||
               a->evict_grace_ms != b->evict_grace_ms || a->launch_grace_ms != b->launch_grace_ms ||
               a->pass_ms != b->pass_ms || a->fresh_ms != b->fresh_ms ||
               a->healthy_ms != b->healthy_ms || a->brake_percent != b->brake_percent;
}

/* (T1) Deadlines follow from the timings. */
static void rearm(struct core *c)
{
        c->next_pass_ms = c->now_ms + c->opt.pass_ms;
        for (uint32_t i = 0; i < c->nodes.len; i++)
                if (c->nodes.at[i].id) {
                        columns_update(c, (struct node_ix){ i });
                        node_deadline_refresh(c, (struct node_ix){ i });
                }
        for (uint32_t i = 0; i < c->units.len; i++)
                if (c->units.at[i].id)
                        unit_deadline_refresh(c, (struct unit_ix){ i });
        c->capacity_change++; /* what counts as fresh may have changed */
        brake_review(c, NODE_NONE);
}

void decide_config(struct core *c, const Pb__ServerConfig *f)
{
        struct core_options next = c->opt;
        core_options_from(f, &next);
        next.index_records = c->opt.index_records; /* these hold for the life of the process */
        next.strategy = c->opt.strategy;
        next.max_nodes = c->opt.max_nodes;
        next.max_workloads = c->opt.max_workloads;
        bool differ = timings_differ(&c->opt, &next);
        c->opt = next;
        if (differ)
                rearm(c);
        if (c->fencing.lease_ms)
                fencing_needed(c);
        c->default_quota = quota_from(f->default_quota);
        quotas_reconsider(c);
        admissions_configure(c, f);
        rules_configure(c, f);
        policy_reconsider(c);
        reply_bytes(c, NULL, NULL, 0, false);
}
