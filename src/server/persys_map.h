/* server/persys_map.h: between the control dialect (persys.control.v1) and berth's own messages.
 * Pure.
 *
 * What berth cannot honour is refused with a sentence (ERR_INVALID), never dropped. Results are in
 * the arena and may share texts with the request. Where the two differ on purpose stands in
 * docs/compat-persys.md.
 */
#ifndef BERTH_SERVER_PERSYS_MAP_H
#define BERTH_SERVER_PERSYS_MAP_H

#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/arena.h"
#include "base/err.h"
#include "persys_control.pb-c.h"

/* "default" and nothing at all name whatever cluster is asked. */
bool persys_is_default_cluster(const char *id);
/* "stop", "Stopped" -> Stopped; "delete", "Deleted" -> Deleted; all else, also nothing, is
 * Running. */
Pb__DesiredState__E persys_desired(const char *text);
/* "docker-container" -> container; any case. unset: unknown. */
Pb__WorkloadType__E persys_type(const char *text);

/* A spec as a definition: not yet normalised (model/validate.h), so the caller checks it like any
 * other. metadata becomes annotations: it decides nothing. */
int persys_to_workload(struct arena *arena, const Pc__ApplyWorkloadRequest *r,
                       Pb__Workload **ret_workload, struct err *err);

Pc__WorkloadView *persys_workload_view(struct arena *arena, const Pb__Workload *w);
Pc__NodeView *persys_node_view(struct arena *arena, const Pb__Node *n);
Pc__GetClusterSummaryResponse *persys_summary(struct arena *arena, const Pb__ClusterInfo *info,
                                              int64_t now_ms);

/* "host:port" as it is stored. Split at the last ':', brackets stripped, no host: peer (where the
 * call came from), port 0: 50051. ERR_INVALID: invalid grpc_endpoint "...": why. */
int persys_endpoint(struct arena *arena, const char *text, const char *peer, char **ret_endpoint,
                    struct err *err);
/* peer: "10.0.0.1:4711". Not yet checked by validate_hello(). ERR_INVALID: the dialect's own
 * sentences. */
int persys_to_hello(struct arena *arena, const Pc__RegisterNodeRequest *r, const char *peer,
                    Pb__Hello **ret_hello, struct err *err);
/* What a heartbeat measures, within bounds. */
Pb__Heartbeat *persys_to_heartbeat(struct arena *arena, const Pc__HeartbeatRequest *r);
/* What it says of workloads, without those whose ids cannot be workloads of ours. */
Pb__UnitReport *persys_to_report(struct arena *arena, const Pc__HeartbeatRequest *r);

Google__Protobuf__Timestamp *persys_time(struct arena *arena, int64_t unix_ms); /* NULL for 0 */

#endif
