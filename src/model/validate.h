/* model/validate.h: what callers may ask for. Every limit stands in one table (rules.c), which the
 * OpenAPI document and the generated bad inputs use too.
 *
 * All functions return 0, or -ERR_INVALID with the path of the bad field in err->path. Thread-safe.
 */
#ifndef BERTH_MODEL_VALIDATE_H
#define BERTH_MODEL_VALIDATE_H

#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/arena.h"
#include "base/err.h"

#define WORKLOAD_SPEC_MAX_BYTES (256 * 1024) /* packed (A11) */
/* all of it, packed: what a store takes in one commit counts on it */
#define WORKLOAD_MAX_BYTES (512 * 1024)
/* What a workload gets that says nothing about resources, in a manifest or to berth run. */
#define WORKLOAD_DEFAULT_CPU_MILLI 100
#define WORKLOAD_DEFAULT_MEMORY_MB 128
#define APPLY_ITEMS_MAX 1000 /* workloads in one request */
#define LIST_LIMIT_DEFAULT 500
#define LIST_LIMIT_MAX 5000
#define HELLO_UNITS_MAX 100000
#define DEFINITIONS_MAX 1000

/* Everything a user may give, checked; then, in place: what belongs to the server is dropped
 * (status, metadata, assigned_node, placement, token, retry.attempts, retry.next_retry_at;
 * resource_version stays), defaults are filled in (type process if there is a command and no image,
 * desired_state Running, restart always, the retry policy, stop_grace_seconds, spec.log_max_kb, and
 * resources, which default_resources tells), maps are sorted, and revision_id is computed if it is
 * empty or was computed before ("rev-" and 12 hex digits), so that an edited copy of what the
 * server gave gets a new one. Idempotent. New parts come from the arena, so w must not be freed
 * piece by piece. On failure w may be half changed. */
int workload_normalise(struct arena *arena, Pb__Workload *w, struct err *err);

/* One of the request messages of api.proto, by its descriptor: limits, cursors, status names,
 * selectors, ids. */
int validate_request(const ProtobufCMessage *request, struct err *err);
/* The same, but the workloads of ApplyWorkloadRequest and ApplyWorkloadsRequest are also normalised
 * in place. What the server calls. */
int request_normalise(struct arena *arena, ProtobufCMessage *request, struct err *err);

int validate_hello(const Pb__Hello *hello, struct err *err);
int validate_heartbeat(const Pb__Heartbeat *heartbeat, struct err *err);
int validate_unit_report(const Pb__UnitReport *report, struct err *err);
/* Exactly one field set, and that one valid. */
int validate_agent_message(const Pb__AgentMessage *message, struct err *err);

/* Empty, or made by workload_normalise(): not chosen by a user. */
bool revision_is_computed(const char *revision);

/* 1..128 of [A-Za-z0-9._-], first one alphanumeric, no "..". Safe as a file name and in a URL. */
bool id_is_valid(const char *id);

#endif
