/* server/metrics.c: the text that Prometheus scrapes. One function per kind of sample, and one list
 * of what there is. */
#include "server/metrics.h"

#include "base/file.h"
#include "net/tls.h"
#include "server/access.h"
#include "server/sessions.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

const double METRICS_BOUNDS_IO[METRICS_BUCKETS] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                    0.1,    0.25,  0.5,    1,     2.5,  5,     10 };
const double METRICS_BOUNDS_STEP[METRICS_BUCKETS] = { 0.000001, 0.000005, 0.00001, 0.000025,
                                                      0.00005,  0.0001,   0.00025, 0.0005,
                                                      0.001,    0.005,    0.01,    0.05,
                                                      0.1,      1 };

static const int STATUSES[METRICS_STATUSES] = { 200, 201, 202, 204, 304, 400, 401, 403,
                                                404, 405, 406, 408, 409, 412, 413, 415,
                                                422, 429, 499, 500, 501, 503, 504, 0 };

const char *const METRICS_CODE_NAMES[METRICS_GRPC_CODES] = {
        "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
        "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
        "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
        "DataLoss", "Unauthenticated"
};

/* The order of core_stats.actions. */
const char *const METRICS_ACTION_NAMES[METRICS_ACTIONS] = { "Apply",  "Recreate",   "ApplyStopped",
                                                            "Delete", "Reschedule", "AwaitFailover",
                                                            "Adopt",  "Other" };

void histogram_init(struct histogram *h, const double *bounds)
{
        h->bounds = bounds;
        for (size_t i = 0; i <= METRICS_BUCKETS; i++)
                atomic_init(&h->buckets[i], 0);
        atomic_init(&h->sum_ns, 0);
}

void histogram_add(struct histogram *h, int64_t ns)
{
        if (ns < 0)
                ns = 0;
        double s = (double)ns / 1e9;
        size_t i = 0;
        while (i < METRICS_BUCKETS && s > h->bounds[i])
                i++;
        count(&h->buckets[i]);
        count_n(&h->sum_ns, (uint64_t)ns);
}

void metrics_init(struct metrics *m)
{
        memset(m, 0, sizeof(*m));
        histogram_init(&m->commit, METRICS_BOUNDS_IO);
        histogram_init(&m->request, METRICS_BOUNDS_IO);
        histogram_init(&m->turn, METRICS_BOUNDS_STEP);
        histogram_init(&m->placement, METRICS_BOUNDS_STEP);
        histogram_init(&m->reconcile, METRICS_BOUNDS_STEP);
        histogram_init(&m->rpc, METRICS_BOUNDS_IO);
        metrics_persys_init(m);
        metrics_agents_init(m);
}

void metrics_http(struct metrics *m, size_t op, int status)
{
        size_t i = 0;
        while (i < METRICS_STATUSES - 1 && STATUSES[i] != status)
                i++;
        count(&m->http[op < METRICS_OPS ? op : METRICS_OPS - 1][i]);
}

void metrics_grpc(struct metrics *m, size_t op, int code, int64_t ns, bool is_stream)
{
        size_t i = code >= 0 && code < METRICS_GRPC_CODES ? (size_t)code : 2;
        op = op < METRICS_OPS ? op : METRICS_OPS - 1;
        count(&m->grpc[op][i]);
        if (is_stream) /* how long somebody watched says nothing */
                return;
        histogram_add(&m->grpc_duration[op][i], ns);
        histogram_add(&m->rpc, ns);
}

/* ---- the text ---- */

static void family(struct str *out, const char *name, const char *type, const char *help)
{
        str_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_escaped(struct str *out, const char *value)
{
        for (const char *p = value; *p; p++) {
                if (*p == '\\' || *p == '"')
                        str_addc(out, '\\');
                if (*p == '\n')
                        str_adds(out, "\\n");
                else
                        str_addc(out, *p);
        }
}

static void sample(struct str *out, const char *name, const char *label, const char *value,
                   uint64_t n)
{
        str_adds(out, name);
        if (label) {
                str_addf(out, "{%s=\"", label);
                add_escaped(out, value);
                str_adds(out, "\"}");
        }
        str_addc(out, ' ');
        str_add_u64(out, n);
        str_addc(out, '\n');
}

static void one(struct str *out, const char *name, const char *type, const char *help, uint64_t n)
{
        family(out, name, type, help);
        sample(out, name, NULL, NULL, n);
}

static void render_histogram(struct str *out, const char *name, const char *help,
                             const struct histogram *h)
{
        family(out, name, "histogram", help);
        uint64_t sum = 0;
        for (size_t i = 0; i < METRICS_BUCKETS; i++) {
                sum += counted(&h->buckets[i]);
                str_addf(out, "%s_bucket{le=\"%g\"} %llu\n", name, h->bounds[i],
                         (unsigned long long)sum);
        }
        sum += counted(&h->buckets[METRICS_BUCKETS]);
        str_addf(out, "%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)sum);
        str_addf(out, "%s_sum %.9f\n%s_count %llu\n", name, (double)counted(&h->sum_ns) / 1e9, name,
                 (unsigned long long)sum);
}

/* One gauge per value of an enum; value 0 ("unset") is not a state that anything is in. */
static void render_by_enum(struct str *out, const char *name, const char *label,
                           const ProtobufCEnumDescriptor *type, const uint32_t *values, size_t n)
{
        for (size_t i = 1; i < n; i++) {
                const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, (int)i);
                if (v)
                        sample(out, name, label, v->name, values[i]);
        }
}

/* The five that seed 001 names, which names them bare. */
static void render_seed(struct str *out, const struct core_stats *c, bool bare)
{
#define SEED(name) (bare ? name : "berth_" name)
        one(out, SEED("scheduling_attempts_total"), "counter",
            "Times a place was sought for a unit.", c->placements);
        one(out, SEED("scheduling_failures_total"), "counter", "Times no node could take a unit.",
            c->placement_failures);
        family(out, SEED("reconciliation_actions_total"), "counter",
               "Actions taken to make what runs equal to what is wanted.");
        for (size_t i = 0; i < METRICS_ACTIONS; i++)
                sample(out, SEED("reconciliation_actions_total"), "action", METRICS_ACTION_NAMES[i],
                       c->actions[i]);
        one(out, SEED("retry_total"), "counter",
            "Failed units that were scheduled for another attempt.", c->retries);
        one(out, SEED("node_unhealthy_total"), "counter",
            "Times a node turned from Ready to NotReady.", c->nodes_lost);
#undef SEED
}

static void render_core(struct str *out, const struct core_stats *c)
{
        render_seed(out, c, false);
        render_seed(out, c, true);
        one(out, "berth_evictions_total", "counter", "Units moved away from nodes.", c->evictions);
        one(out, "berth_preemptions_total", "counter",
            "Units that made room for higher priorities.", c->preemptions);
        one(out, "berth_launches_total", "counter", "Times an agent was told to start a unit.",
            c->launches);
        one(out, "berth_unit_reports_total", "counter", "Reports about units taken from agents.",
            c->unit_reports);
        one(out, "berth_heartbeats_total", "counter", "Heartbeats taken from agents.",
            c->heartbeats);
        one(out, "berth_passes_total", "counter", "Periodic passes over what is due.", c->passes);
        one(out, "berth_ring_steps_total", "counter", "Inputs decided by the core.", c->steps);
        one(out, "berth_events_total", "counter", "Events decided since the start.", c->events);
        family(out, "berth_nodes", "gauge", "Nodes by status.");
        render_by_enum(out, "berth_nodes", "status", &pb__node_status__e__descriptor,
                       c->nodes_by_status, ARRAY_LEN(c->nodes_by_status));
        family(out, "berth_workloads", "gauge", "Workloads by status.");
        render_by_enum(out, "berth_workloads", "status", &pb__phase__e__descriptor, c->by_phase,
                       ARRAY_LEN(c->by_phase));
        one(out, "berth_pending_units", "gauge", "Units that wait for a place.", c->pending);
        one(out, "berth_quota_waiting", "gauge",
            "Those of them that wait for their tenant's quota.", c->over_quota);
        one(out, "berth_quotas", "gauge", "Tenants with a quota of their own.", c->quotas);
        one(out, "berth_notices_summed_total", "counter",
            "Notices that were told of in sums only, being too many of one node or caller.",
            c->notices_summed);
        one(out, "berth_reports_held_total", "counter",
            "Reports of units and nodes that changed too often, and were taken later.",
            c->reports_held);
        one(out, "berth_rate_limited_total", "counter",
            "Writes refused because their tenant wrote too often.", c->rate_limited);
        one(out, "berth_alerts", "gauge", "Alerts that are raised now.", c->alerts);
        one(out, "berth_alerts_raised_total", "counter", "Alerts raised by automation rules.",
            c->alerts_raised);
        one(out, "berth_outbox", "gauge", "Webhooks that are not delivered yet.", c->outbox);
        family(out, "berth_webhooks_total", "counter", "Attempts to deliver webhooks.");
        sample(out, "berth_webhooks_total", "result", "delivered", c->webhooks_delivered);
        sample(out, "berth_webhooks_total", "result", "failed", c->webhooks_failed);
        one(out, "berth_tombstones", "gauge", "Copies that are not yet proved gone.",
            c->tombstones);
        one(out, "berth_eviction_paced", "gauge",
            "1 while units of a part of a zone move a few at a time.", c->pacing);
        one(out, "berth_eviction_brake", "gauge",
            "1 while too many nodes are silent and eviction is held back.", c->braking);
}

/* label a of op, label b of the column; rows that were never hit are left out. */
static void render_requests(struct str *out, struct metrics *m, const struct metrics_now *now)
{
        family(out, "berth_http_requests_total", "counter",
               "HTTP requests by operation and status.");
        for (size_t op = 0; op < METRICS_OPS; op++)
                for (size_t i = 0; i < METRICS_STATUSES; i++) {
                        uint64_t n = counted(&m->http[op][i]);
                        if (n == 0)
                                continue;
                        const char *name = op == METRICS_OPS - 1 ? "unknown" : now->op_name(op);
                        str_addf(out, "berth_http_requests_total{op=\"%s\",code=\"%s\"} %llu\n",
                                 name, STATUSES[i] ? fmt("%d", STATUSES[i]) : "other",
                                 (unsigned long long)n);
                }
        family(out, "berth_grpc_server_requests_total", "counter",
               "gRPC calls by method and code.");
        for (size_t op = 0; op < METRICS_OPS; op++)
                for (size_t i = 0; i < METRICS_GRPC_CODES; i++) {
                        uint64_t n = counted(&m->grpc[op][i]);
                        if (n == 0)
                                continue;
                        const char *name = op == METRICS_OPS - 1 ? "unknown" : now->grpc_name(op);
                        str_addf(
                            out,
                            "berth_grpc_server_requests_total{method=\"%s\",code=\"%s\"} %llu\n",
                            name ? name : "unknown", METRICS_CODE_NAMES[i], (unsigned long long)n);
                }
        render_histogram(out, "berth_http_request_duration_seconds",
                         "From the end of a request to its reply.", &m->request);
}

static uint64_t open_fds(void)
{
        DIR *d = opendir("/proc/self/fd");
        if (!d)
                return 0;
        uint64_t n = 0;
        while (readdir(d))
                n++;
        closedir(d);
        return n > 3 ? n - 3 : 0; /* ".", ".." and the directory itself */
}

/* In the clear both families are there, and empty: rules that name them can be checked anywhere. */
static void render_tls(struct str *out, struct tls *tls, const struct agent_certificates *agents)
{
        family(out, "berth_tls_refused_total", "counter",
               "Connections and agents refused because of their certificate, by reason.");
        for (enum tls_refusal r = 0; tls && r < _TLS_REFUSED_MAX; r++)
                sample(out, "berth_tls_refused_total", "reason", tls_refusal_name(r),
                       tls_refused(tls, r));
        family(out, "berth_certificate_expiry_timestamp_seconds", "gauge",
               "When certificates expire: the server's, the first of the CAs that vouch for its "
               "clients, and those of the 100 connected "
               "agents that "
               "end soonest.");
        if (tls)
                sample(out, "berth_certificate_expiry_timestamp_seconds", "certificate", "server",
                       (uint64_t)(tls_expires_at_ms(tls) / 1000));
        if (tls && tls_trust_expires_at_ms(tls))
                sample(out, "berth_certificate_expiry_timestamp_seconds", "certificate", "ca",
                       (uint64_t)(tls_trust_expires_at_ms(tls) / 1000));
        for (size_t i = 0; agents && i < agents->n; i++) {
                str_adds(out,
                         "berth_certificate_expiry_timestamp_seconds{certificate=\"node\",node=\"");
                add_escaped(out, agents->soonest[i].node);
                str_addf(out, "\"} %lld\n", (long long)(agents->soonest[i].expires_at / 1000));
        }
        family(out, "berth_agent_certificates_due", "gauge",
               "Connected agents whose certificate is past three quarters of its life: nobody "
               "renews it.");
        sample(out, "berth_agent_certificates_due", NULL, NULL, agents ? agents->due : 0);
}

static void render_process(struct str *out, const struct metrics_now *now)
{
        struct rusage ru = { 0 };
        getrusage(RUSAGE_SELF, &ru);
        double cpu = (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
                     (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
        family(out, "process_cpu_seconds_total", "counter", "User and system CPU time.");
        str_addf(out, "process_cpu_seconds_total %.6f\n", cpu);

        _cleanup_(str_finip) struct str statm = STR_INIT;
        uint64_t pages = 0, resident = 0;
        if (file_read("/proc/self/statm", 4096, &statm, NULL) >= 0)
                (void)sscanf(str_c(&statm), "%lu %lu", &pages, &resident);
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        one(out, "process_virtual_memory_bytes", "gauge", "Virtual memory size.", pages * page);
        one(out, "process_resident_memory_bytes", "gauge", "Resident memory size.",
            resident * page);
        one(out, "process_open_fds", "gauge", "Open file descriptors.", open_fds());
        struct rlimit rl = { 0 };
        getrlimit(RLIMIT_NOFILE, &rl);
        one(out, "process_max_fds", "gauge", "Most file descriptors that can be open.",
            rl.rlim_cur);
        family(out, "process_start_time_seconds", "gauge", "When the server started, Unix time.");
        str_addf(out, "process_start_time_seconds %.3f\n", now->start_time_seconds);
}

/* What a server that does not lead does not know is left out. */
static void render_kept(struct str *out, const struct metrics *m, const struct metrics_now *now)
{
        uint64_t first = counted(&m->first_event);
        family(out, "berth_log_events", "gauge", "Events in the log, of all classes.");
        if (now->leads && first)
                sample(out, "berth_log_events", NULL, NULL,
                       now->head >= first ? now->head - first + 1 : 0);
        family(out, "berth_kept_events", "gauge",
               "Events that have left the log and are kept, by class.");
        for (int i = EVENT_LIFECYCLE + 1; now->leads && i < EVENT_CLASSES; i++)
                if (counted(&m->kept[i]))
                        sample(out, "berth_kept_events", "class",
                               event_class_name((enum event_class)i), counted(&m->kept[i]) - 1);
}

void metrics_render(struct metrics *m, const struct metrics_now *now, struct str *out)
{
        family(out, "berth_build_info", "gauge", "Always 1; the version is in the label.");
        sample(out, "berth_build_info", "version", now->version ? now->version : "", 1);
        render_core(out, now->core);

        one(out, "berth_commits_total", "counter", "Batches made durable.", counted(&m->commits));
        one(out, "berth_commit_failures_total", "counter",
            "Attempts to commit that must be repeated.", counted(&m->commit_failures));
        one(out, "berth_commit_events_total", "counter", "Events made durable.",
            counted(&m->commit_events));
        one(out, "berth_commit_records_total", "counter", "Records made durable, put or removed.",
            counted(&m->commit_records));
        one(out, "berth_commit_bytes_total", "counter",
            "Bytes of events and of records with their keys made durable.",
            counted(&m->commit_bytes));
        render_histogram(out, "berth_commit_duration_seconds", "One commit in the store.",
                         &m->commit);
        render_histogram(out, "berth_ring_step_duration_seconds", "One input in the core.",
                         &m->turn);
        render_histogram(out, "berth_placement_duration_seconds", "Finding a place for one unit.",
                         &m->placement);
        render_histogram(out, "berth_reconcile_duration_seconds",
                         "One turn that decided or looked for something.", &m->reconcile);
        render_histogram(out, "berth_rpc_duration_seconds", "One gRPC call, streams left out.",
                         &m->rpc);
        one(out, "berth_store_degraded", "gauge",
            "1 while the store is away and decisions are frozen.", now->degraded);
        one(out, "berth_head", "gauge", "Sequence of the last committed event.", now->head);
        one(out, "berth_leader", "gauge",
            "1 while this server leads: it decides, the others follow.", now->leads);
        one(out, "berth_leadership_changes_total", "counter",
            "Times this server began or ceased to lead a shared store.",
            counted(&m->leadership_changes));
        one(out, "berth_follower_loads_total", "counter",
            "Times this server loaded all records of a shared store to follow it.",
            counted(&m->follower_loads));
        one(out, "berth_follower_lag_events", "gauge",
            "Events that the store has and this server has not taken over yet; 0 on the leader.",
            now->leads || now->store_head <= now->head ? 0 : now->store_head - now->head);
        one(out, "berth_records_touched_total", "counter",
            "Records that somebody changed in the store by hand.", counted(&m->records_touched));
        one(out, "berth_forwarded_total", "counter", "Calls passed on to the leader.",
            now->forwarded);
        one(out, "berth_bad_records_total", "counter", "Stored records that could not be loaded.",
            counted(&m->bad_records));
        one(out, "berth_pruned_events_total", "counter", "Events removed by retention.",
            counted(&m->pruned_events));
        render_kept(out, m, now);

        family(out, "berth_queue_depth", "gauge", "Messages that wait for a thread.");
        sample(out, "berth_queue_depth", "queue", "ring", now->ring_queue);
        sample(out, "berth_queue_depth", "queue", "io", now->io_queue);
        sample(out, "berth_queue_depth", "queue", "reader", now->reader_queue);
        one(out, "berth_inputs_refused_total", "counter", "Calls refused because too many waited.",
            counted(&m->inputs_refused));
        one(out, "berth_inputs_expired_total", "counter",
            "Calls dropped unexecuted because their deadline had passed.",
            counted(&m->inputs_expired));
        one(out, "berth_calls", "gauge", "Calls under way.", now->calls);
        one(out, "berth_agent_streams", "gauge", "Connected agents.", now->agents);
        one(out, "berth_agent_streams_closed_total", "counter",
            "Agent streams that the server ended because they were slow or broke the rules.",
            counted(&m->agent_streams_closed));
        one(out, "berth_event_subscribers", "gauge", "Open event streams.", now->subscribers);
        one(out, "berth_events_sent_total", "counter", "Events sent to event streams.",
            counted(&m->events_sent));
        one(out, "berth_relays", "gauge", "Logs and exec streams under way.", now->relays);
        render_requests(out, m, now);
        metrics_persys_render(m, now, out);
        metrics_agents_render(m, out);
        render_tls(out, now->tls, now->agent_certs);
        family(out, "berth_auth_refused_total", "counter",
               "Calls refused because of who made them, by reason.");
        _Static_assert(_ACCESS_REFUSAL_MAX <= METRICS_REFUSALS, "every reason is counted");
        for (size_t i = 0; i < _ACCESS_REFUSAL_MAX; i++)
                sample(out, "berth_auth_refused_total", "reason",
                       access_refusal_name((enum access_refusal)i), counted(&m->access_refused[i]));
        render_process(out, now);
}
