/* model/record.c: see record.h. */
#include "model/record.h"
#include "records.pb-c.h"

const struct record_row record_rows[] = {
        [RECORD_CLUSTER] = { "/meta/", "cluster", &pb__cluster__descriptor },
        [RECORD_WORKLOAD] = { "/workloads/", NULL, &pb__workload__descriptor },
        [RECORD_NODE] = { "/nodes/", NULL, &pb__node__descriptor },
        [RECORD_TOMBSTONE] = { "/tombstones/", NULL, &pb__tombstone__descriptor },
        [RECORD_QUOTA] = { "/quotas/", NULL, &pb__quota__descriptor },
        [RECORD_ALERT] = { "/alerts/", NULL, &pb__alert__descriptor },
        [RECORD_OUTGOING] = { "/outbox/", NULL, &pb__outgoing__descriptor },
        [RECORD_TOKEN] = { "/tokens/", NULL, &pb__access_token__descriptor },
        [RECORD_ADMISSION] = { "/admissions/", NULL, &pb__admission__descriptor },
        [VIEW_ASSIGNMENT] = { "/assignments/", NULL, &pb__assignment__descriptor },
        [VIEW_RETRY] = { "/retries/", NULL, &pb__retry__descriptor },
        [VIEW_RECONCILIATION] = { "/reconciliation/", NULL, &pb__reconciliation__descriptor },
        { "/groups/", NULL, NULL },
        { "/idempotency/", NULL, NULL },
        { "/instances/", NULL, NULL },
        { "/permits/", NULL, NULL },
        { "/releases/", NULL, NULL },
        { "/rollouts/", NULL, NULL },
        { "/volumes/", NULL, NULL },
};
const size_t n_record_rows = ARRAY_LEN(record_rows);
