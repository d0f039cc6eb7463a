/* sim/seen.c: which situations a run came into. Rules about what never happens prove little: a
 * swarm says which of these none of its seeds saw. */
#include "base/str.h"
#include "sim/world.h"
#include <string.h>

static const struct {
        const char *name;
        Pb__EventType__E type;
        Pb__Reason__E reason; /* none: any */
        const char *text;     /* in its message or action; NULL: any */
} situations[] = {
#define EVENT(x) PB__EVENT_TYPE__E__##x
#define REASON(x) PB__REASON__E__##x
        { "node-lost", EVENT(Rescheduled), REASON(node_lost), NULL },
        { "brake", EVENT(EvictionHeld), 0, NULL },
        { "brake-released", EVENT(EvictionResumed), 0, NULL },
        { "brake-paced", EVENT(EvictionPaced), 0, NULL },
        { "evict-ordered", EVENT(EvictionOrdered), 0, NULL },
        { "failover-awaited", EVENT(WorkloadPending), 0, "AwaitFailover" },
        { "forgotten", EVENT(NodeForgotten), 0, NULL },
        { "drain-moves", EVENT(Rescheduled), REASON(node_drained), "its node is drained" },
        { "drain-deadline", EVENT(Rescheduled), REASON(node_drained), "deadline" },
        { "drained", EVENT(NodeDrained), 0, NULL },
        { "mismatch", EVENT(NodeTypeUnsupported), 0, NULL },
        { "lost-by-agent", EVENT(WorkloadLaunched), REASON(lost_by_agent), NULL },
        { "stranger", EVENT(UnitUnknown), 0, NULL },
        { "old-copy-found", EVENT(DriftDetected), 0, NULL },
        { "taint-drives-out", EVENT(Rescheduled), REASON(taint_not_tolerated), NULL },
        { "taint-waits", EVENT(WorkloadPending), REASON(taint_not_tolerated), NULL },
        { "port-waits", EVENT(WorkloadPending), REASON(port_taken), NULL },
        { "affinity-waits", EVENT(WorkloadPending), REASON(affinity_unmet), NULL },
        { "anti-affinity-waits", EVENT(WorkloadPending), REASON(anti_affinity), NULL },
        { "spread-waits", EVENT(WorkloadPending), REASON(spread_exceeded), NULL },
        { "preempted", EVENT(Rescheduled), REASON(preempted), NULL },
        { "quota-waits", EVENT(WorkloadPending), REASON(quota_exceeded), NULL },
        { "relabelled", EVENT(WorkloadRelabelled), 0, NULL },
};

/* And these are in no event. */
static const char *const sights[_SIGHTS] = {
        [SAW_LEADER_CHANGE] = "leader-change",
        [SAW_REFUSED] = "commit-refused",
        [SAW_NOT_RENEWED] = "lease-not-renewed",
        [SAW_PAUSE] = "server-paused",
        [SAW_BLIND] = "leader-blind",
        [SAW_UNPROVED] = "answer-waits-for-proof",
        [SAW_EXCLUSIVE_MOVE] = "exclusive-moved",
        [SAW_RESTORED] = "restored",
};

uint32_t sim_situations(void)
{
        return ARRAY_LEN(situations) + _SIGHTS;
}

const char *sim_situation(uint32_t i)
{
        return i < ARRAY_LEN(situations) ? situations[i].name : sights[i - ARRAY_LEN(situations)];
}

void sim_saw(struct sim *s, enum sight what)
{
        s->result.seen |= UINT64_C(1) << (ARRAY_LEN(situations) + what);
}

void sim_see(struct sim *s, const Pb__Event *e)
{
        for (uint32_t i = 0; i < ARRAY_LEN(situations); i++)
                if (situations[i].type == e->type &&
                    (!situations[i].reason || situations[i].reason == e->reason) &&
                    (!situations[i].text || strstr(e->message, situations[i].text) ||
                     strcmp(e->action, situations[i].text) == 0))
                        s->result.seen |= UINT64_C(1) << i;
}
