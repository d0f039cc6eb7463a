/* core/event.c: see event.h. */
#include "core/event.h"
#include "core/access.h"
#include "core/admission.h"
#include "core/cluster.h"
#include "core/evict.h"
#include "core/feature.h"
#include "core/fold.h"
#include "core/node.h"
#include "core/notice.h"
#include "core/policy.h"
#include "core/restore.h"
#include "core/rules.h"
#include "core/state.h"
#include "core/webhook.h"
#include "core/workload.h"

static const char *wrong_record(struct core *c, const Pb__Event *e)
{
        (void)c;
        return str_empty(e->record) ? "it names no record" : NULL;
}

#define FOLLOWS .consequence = true

#define WORKLOAD .apply = apply_workload_event, .wrong = wrong_workload_event
#define NODE .apply = apply_node_event, .wrong = wrong_node_event
#define ADMISSION .apply = apply_admission_event, .wrong = wrong_admission
#define ALERT .apply = apply_alert_event, .wrong = wrong_alert, FOLLOWS
#define WEBHOOK .apply = apply_webhook_event, .wrong = wrong_webhook, FOLLOWS
#define TOKEN .apply = apply_token_event, .wrong = wrong_token, FOLLOWS /* for a plan, that is */
#define QUOTA .apply = apply_quota_event, .wrong = wrong_quota
#define TOLD FOLLOWS
#define TOLD_OF_WORKLOAD .apply = apply_told, .version = TOLD_VERSION, FOLLOWS

#define TYPE(name) [PB__EVENT_TYPE__E__##name]

static const struct event_row types[] = {
        TYPE(ClusterCreated) = { .apply = apply_cluster_event, .wrong = wrong_cluster },
        TYPE(ClusterKeyChanged) = { .apply = apply_cluster_event, .wrong = wrong_cluster, FOLLOWS },
        TYPE(SchemaRaised) = { .apply = apply_schema, .wrong = wrong_schema, FOLLOWS },
        TYPE(FencingChanged) = { .apply = apply_fencing, .wrong = wrong_fencing, FOLLOWS },
        TYPE(StoreRestored) = { .apply = apply_restored, .wrong = wrong_restore },
        TYPE(RecordTouched) = { .apply = apply_touched, .wrong = wrong_record, FOLLOWS },

        TYPE(NodeRegistered) = { NODE },
        TYPE(NodeReady) = { NODE },
        TYPE(NodeLost) = { NODE },
        TYPE(NodeWishChanged) = { NODE },
        TYPE(NodeForgotten) = { NODE },
        TYPE(NodeAdopted) = { NODE },
        TYPE(NodeTakenOver) = { NODE, FOLLOWS },
        TYPE(NodeTypeUnsupported) = { NODE },
        TYPE(NodeTainted) = { NODE },
        TYPE(NodeDrained) = { NODE, FOLLOWS },
        TYPE(NodeFenced) = { NODE },
        TYPE(EvictionHeld) = { NODE, FOLLOWS },
        TYPE(EvictionResumed) = { NODE, FOLLOWS },
        TYPE(EvictionPaced) = { NODE, FOLLOWS },
        TYPE(EvictionOrdered) = { .apply = apply_evict_ordered, .wrong = wrong_evict_ordered },
        TYPE(UnitRemoved) = { NODE, FOLLOWS },
        TYPE(UnitUnknown) = { NODE, FOLLOWS },
        TYPE(DriftDetected) = { NODE, FOLLOWS },
        TYPE(ClaimRefused) = { NODE, FOLLOWS },
        TYPE(NodeExpelled) = { ADMISSION },
        TYPE(NodeAdmitted) = { ADMISSION },
        TYPE(NodeGranted) = { ADMISSION },

        TYPE(WorkloadApplied) = { WORKLOAD },
        TYPE(WorkloadRelabelled) = { WORKLOAD },
        TYPE(WorkloadAdopted) = { WORKLOAD },
        TYPE(WorkloadDesired) = { WORKLOAD },
        TYPE(WorkloadDeleting) = { WORKLOAD },
        TYPE(WorkloadDeleted) = { WORKLOAD, FOLLOWS },
        TYPE(WorkloadScheduled) = { WORKLOAD, FOLLOWS },
        TYPE(WorkloadPending) = { WORKLOAD, FOLLOWS },
        TYPE(WorkloadLaunched) = { WORKLOAD, FOLLOWS },
        TYPE(WorkloadFenced) = { WORKLOAD, FOLLOWS },
        TYPE(WorkloadStarted) = { WORKLOAD, FOLLOWS },
        TYPE(WorkloadStopped) = { WORKLOAD, FOLLOWS },
        TYPE(WorkloadCompleted) = { WORKLOAD },
        TYPE(WorkloadFailed) = { WORKLOAD },
        TYPE(WorkloadReleased) = { WORKLOAD },
        TYPE(RetryScheduled) = { WORKLOAD, FOLLOWS },
        TYPE(RetryTriggered) = { WORKLOAD, FOLLOWS },
        TYPE(RetryReset) = { WORKLOAD, FOLLOWS },
        TYPE(WorkloadKeepsFailing) = { WORKLOAD, FOLLOWS },
        TYPE(Rescheduled) = { WORKLOAD, FOLLOWS },
        TYPE(UnitReleased) = { WORKLOAD },
        TYPE(SuggestionDecided) = { WORKLOAD },

        TYPE(QuotaSet) = { QUOTA },
        TYPE(QuotaRemoved) = { QUOTA },
        TYPE(AlertRaised) = { ALERT },
        TYPE(AlertCleared) = { ALERT },
        TYPE(WebhookQueued) = { WEBHOOK },
        TYPE(WebhookDelivered) = { WEBHOOK },
        TYPE(WebhookFailed) = { WEBHOOK },
        TYPE(TokenCreated) = { TOKEN },
        TYPE(TokenRevoked) = { TOKEN },
        TYPE(TokenUsed) = { TOKEN },
        TYPE(TokenRemoved) = { TOKEN },

        TYPE(AccessRefused) = { TOLD },
        TYPE(CertificateIssued) = { TOLD },
        TYPE(WorkloadExec) = { TOLD_OF_WORKLOAD },
        TYPE(WorkloadLogsRead) = { TOLD_OF_WORKLOAD },
        TYPE(NoticesSummed) = { TOLD },
};

const struct event_row *event_row(Pb__EventType__E type)
{
        const struct event_row *t = (size_t)type < ARRAY_LEN(types) ? &types[type] : NULL;
        return t && (t->apply || t->consequence) ? t : NULL;
}

uint64_t event_previous(const struct core *c, const Pb__Event *e)
{
        if (!str_empty(e->workload_id)) {
                struct unit_ix w = workload_find(c, e->workload_id);
                const struct unit *u = unit_ok(w) ? unit_get(c, w) : NULL;
                return !u ? 0 : u->told > u->seq ? u->told : u->seq;
        }
        struct node_ix n = node_find(c, e->node_id);
        return node_ok(n) ? node_get(c, n)->seq : 0;
}
