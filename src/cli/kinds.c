/* cli/kinds.c: see kinds.h. */
#include "cli/kinds.h"
#include "base/clock.h"
#include "model/json.h"
#include "model/pb.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *or_dash(const char *name)
{
        return name ? name : "-";
}

const char *phase_name(Pb__Phase__E phase)
{
        return or_dash(json_enum_name(&pb__phase__e__descriptor, (int)phase));
}

const char *reason_name(Pb__Reason__E reason)
{
        return or_dash(json_enum_name(&pb__reason__e__descriptor, (int)reason));
}

enum tint phase_tint(Pb__Phase__E phase)
{
        switch (phase) {
        case PB__PHASE__E__Running:
        case PB__PHASE__E__Completed:
                return TINT_GOOD;
        case PB__PHASE__E__Failed:
        case PB__PHASE__E__Unknown:
                return TINT_BAD;
        case PB__PHASE__E__Stopped:
                return TINT_DIM;
        default:
                return TINT_BUSY;
        }
}

enum tint node_tint(Pb__NodeStatus__E status)
{
        return status == PB__NODE_STATUS__E__Ready      ? TINT_GOOD
               : status == PB__NODE_STATUS__E__Draining ? TINT_BUSY
               : status == PB__NODE_STATUS__E__Disabled ? TINT_DIM
                                                        : TINT_BAD;
}

const char *node_status_name(const Pb__Node *n)
{
        const char *status =
            or_dash(json_enum_name(&pb__node_status__e__descriptor, (int)n->status));
        const char *wish = json_enum_name(&pb__node_wish__e__descriptor, (int)n->wish);
        if (!wish || n->wish == PB__NODE_WISH__E__schedulable || str_case_eq(wish, status))
                return status;
        return fmt("%s,%s", status, wish);
}

const char *age_words(char *buf, size_t size, int64_t now_ms, int64_t at_ms)
{
        if (at_ms <= 0)
                return "-";
        return str_age(buf, size, now_ms > at_ms ? now_ms - at_ms : 0);
}

const char *cores_words(char *buf, size_t size, int64_t milli)
{
        int n = snprintf(buf, size, "%" PRId64 ".%03d", milli / 1000,
                         (int)(milli % 1000 < 0 ? -(milli % 1000) : milli % 1000));
        while (n > 0 && buf[n - 1] == '0')
                buf[--n] = '\0';
        if (n > 0 && buf[n - 1] == '.')
                buf[--n] = '\0';
        return buf;
}

const char *mib_words(char *buf, size_t size, int64_t mib)
{
        if (mib < 1024)
                (void)snprintf(buf, size, "%" PRId64 "Mi", mib);
        else if (mib % 1024 == 0)
                (void)snprintf(buf, size, "%" PRId64 "Gi", mib / 1024);
        else
                (void)snprintf(buf, size, "%" PRId64 ".%dGi", mib / 1024,
                               (int)(mib % 1024 * 10 / 1024));
        return buf;
}

void map_words(struct str *out, const void *entries, size_t n)
{
        const struct pb_entry *const *all = entries;
        for (size_t i = 0; i < n; i++)
                str_addf(out, "%s%s=%s", i ? "," : "", all[i]->key,
                         all[i]->value ? all[i]->value : "");
}

void command_words(struct str *out, char *const *command, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const char *w = command[i];
                if (i)
                        str_addc(out, ' ');
                if (*w && strspn(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                    "_@%+=:,./-") == strlen(w)) {
                        str_adds(out, w);
                        continue;
                }
                str_addc(out, '\'');
                for (; *w; w++)
                        if (*w == '\'')
                                str_adds(out, "'\\''");
                        else
                                str_addc(out, *w);
                str_addc(out, '\'');
        }
}

const char *tries_words(char *buf, size_t size, int32_t attempts, int32_t max_attempts)
{
        if (max_attempts == 0 || max_attempts == INT32_MAX)
                (void)snprintf(buf, size, "%d", attempts);
        else
                (void)snprintf(buf, size, "%d of %d", attempts, max_attempts);
        return buf;
}

const char *workload_info(const Pb__Workload *w, int64_t now_ms, char buf[WORDS_LEN])
{
        const Pb__WorkloadStatus *s = w->status;
        char age[32];
        buf[0] = '\0';
        if (!s)
                return buf;
        const char *why = !str_empty(s->progress)                           ? s->progress
                          : !str_empty(s->failure_reason)                   ? s->failure_reason
                          : s->reason && s->reason != PB__REASON__E__placed ? reason_name(s->reason)
                                                                            : "";
        switch (s->phase) {
        case PB__PHASE__E__RetryPending:
                if (w->retry && w->retry->next_retry_at) {
                        int64_t left_ms =
                            w->retry->next_retry_at > now_ms ? w->retry->next_retry_at - now_ms : 0;
                        char tries[32];
                        (void)snprintf(buf, WORDS_LEN, "%s%sretry %s%s%s", why, *why ? "; " : "",
                                       tries_words(tries, sizeof(tries), w->retry->attempts,
                                                   w->retry->max_attempts),
                                       now_ms ? " in " : "",
                                       now_ms ? str_age(age, sizeof(age), left_ms) : "");
                } else {
                        (void)snprintf(buf, WORDS_LEN, "%s", why);
                }
                break;
        case PB__PHASE__E__Completed:
                if (s->exit_code)
                        (void)snprintf(buf, WORDS_LEN, "exit code %" PRId64, s->exit_code->value);
                break;
        case PB__PHASE__E__Running:
                (void)snprintf(buf, WORDS_LEN, "%s", s->health ? s->health : "");
                break;
        /* why it had to wait is over; why it failed before may matter again */
        case PB__PHASE__E__Scheduled:
        case PB__PHASE__E__Updating:
                (void)snprintf(buf, WORDS_LEN, "%s",
                               !str_empty(s->progress) || (w->retry && w->retry->attempts) ? why
                                                                                           : "");
                break;
        default:
                (void)snprintf(buf, WORDS_LEN, "%s", why);
        }
        return buf;
}

/* ---- workloads ---- */

static const struct table_column workload_columns[] = {
        { .title = "NAME", .weight = 9, .stream_width = 12 },
        { .title = "STATUS", .stream_width = 12 },
        { .title = "NODE", .weight = 8, .stream_width = 8 },
        { .title = "RESTARTS", .right = true },
        { .title = "AGE", .right = true },
        { .title = "TYPE", .wide_only = true },
        { .title = "DESIRED", .wide_only = true },
        { .title = "CPU", .wide_only = true, .right = true },
        { .title = "MEMORY", .wide_only = true, .right = true },
        { .title = "DISK", .wide_only = true, .right = true },
        { .title = "REVISION", .wide_only = true, .weight = 5 },
        { .title = "LABELS", .wide_only = true, .weight = 3 },
        { .title = "COMMAND", .wide_only = true, .weight = 1 },
        { .title = "INFO", .weight = 2 },
};

static void workload_row(struct table *t, const ProtobufCMessage *m, int64_t now_ms)
{
        const Pb__Workload *w = (const Pb__Workload *)m;
        char buf[WORDS_LEN];
        Pb__Phase__E phase = w->status ? w->status->phase : PB__PHASE__E__unset;
        _cleanup_(str_finip) struct str labels = STR_INIT, command = STR_INIT;

        table_add(t, w->id, TINT_BOLD);
        if (phase == PB__PHASE__E__unset && w->desired_state == PB__DESIRED_STATE__E__Deleted)
                table_add(t, "Deleted", TINT_DIM); /* the last row of a --watch */
        else
                table_add(t, phase_name(phase), phase_tint(phase));
        table_add(t, w->assigned_node, TINT_NONE);
        table_addf(t, TINT_NONE, "%d", w->status ? w->status->restarts : 0);
        table_add(t, age_words(buf, sizeof(buf), now_ms, w->metadata ? w->metadata->created_at : 0),
                  TINT_NONE);
        table_add(t, json_enum_name(&pb__workload_type__e__descriptor, (int)w->type), TINT_NONE);
        table_add(t, json_enum_name(&pb__desired_state__e__descriptor, (int)w->desired_state),
                  TINT_NONE);
        table_add(t, w->resources ? cores_words(buf, sizeof(buf), w->resources->cpu) : "0",
                  TINT_NONE);
        table_add(t, w->resources ? mib_words(buf, sizeof(buf), w->resources->memory_mb) : "0",
                  TINT_NONE);
        table_addf(t, TINT_NONE, "%" PRId64 "Gi", w->resources ? w->resources->disk_gb : 0);
        table_add(t, w->revision_id, TINT_NONE);
        map_words(&labels, w->labels, w->n_labels);
        table_add(t, str_c(&labels), TINT_NONE);
        if (w->spec && w->spec->n_command)
                command_words(&command, w->spec->command, w->spec->n_command);
        table_add(t, command.len ? str_c(&command) : w->spec ? w->spec->image : NULL, TINT_NONE);
        const char *info = workload_info(w, now_ms, buf);
        table_add(t, info, *info ? TINT_NONE : TINT_DIM);
}

static const char *workload_id(const ProtobufCMessage *m, char buf[WORDS_LEN] _unused_)
{
        return ((const Pb__Workload *)m)->id;
}

const struct kind kind_workload = {
        "workload",       &pb__workload__descriptor,   &pb__list_workloads_response__descriptor,
        workload_columns, ARRAY_LEN(workload_columns), workload_row,
        workload_id
};

/* ---- nodes ---- */

static const struct table_column node_columns[] = {
        { .title = "NAME", .weight = 9, .stream_width = 8 },
        { .title = "STATUS", .stream_width = 8 },
        { .title = "UNITS", .right = true },
        { .title = "CPU", .right = true },
        { .title = "MEMORY", .right = true },
        { .title = "DISK", .right = true },
        { .title = "AGE", .right = true },
        { .title = "HEARTBEAT", .wide_only = true, .right = true },
        { .title = "VERSION", .wide_only = true },
        { .title = "TYPES", .wide_only = true },
        { .title = "ENDPOINT", .wide_only = true, .weight = 4 },
        { .title = "REASON", .wide_only = true, .weight = 1 },
        { .title = "LABELS", .weight = 2 },
};

static void node_row(struct table *t, const ProtobufCMessage *m, int64_t now_ms)
{
        const Pb__Node *n = (const Pb__Node *)m;
        static const Pb__NodeResources none = PB__NODE_RESOURCES__INIT;
        const Pb__NodeResources *r = n->resources ? n->resources : &none;
        char a[32], b[32];
        _cleanup_(str_finip) struct str labels = STR_INIT, types = STR_INIT;

        table_add(t, n->id, TINT_BOLD);
        table_add(t, node_status_name(n), node_tint(n->status));
        table_addf(t, TINT_NONE, "%d", n->units);
        table_addf(t, TINT_NONE, "%s/%s", cores_words(a, sizeof(a), r->cpu_allocated),
                   cores_words(b, sizeof(b), r->cpu_total));
        table_addf(t, TINT_NONE, "%s/%s", mib_words(a, sizeof(a), r->memory_allocated),
                   mib_words(b, sizeof(b), r->memory_total));
        table_addf(t, TINT_NONE, "%" PRId64 "/%" PRId64 "Gi", r->disk_allocated, r->disk_total);
        table_add(t, age_words(a, sizeof(a), now_ms, n->registered_at), TINT_NONE);
        table_add(t, age_words(a, sizeof(a), now_ms, n->last_heartbeat), TINT_NONE);
        table_add(t, n->agent_version, TINT_NONE);
        for (size_t i = 0; i < n->n_supported_workload_types; i++)
                str_addf(&types, "%s%s", i ? "," : "",
                         or_dash(json_enum_name(&pb__workload_type__e__descriptor,
                                                (int)n->supported_workload_types[i])));
        table_add(t, str_c(&types), TINT_NONE);
        table_add(t, n->agent_endpoint, TINT_NONE);
        table_add(t, n->status_reason, TINT_NONE);
        map_words(&labels, n->labels, n->n_labels);
        table_add(t, str_c(&labels), TINT_NONE);
}

static const char *node_id(const ProtobufCMessage *m, char buf[WORDS_LEN] _unused_)
{
        return ((const Pb__Node *)m)->id;
}

const struct kind kind_node = {
        "node",       &pb__node__descriptor,   &pb__list_nodes_response__descriptor,
        node_columns, ARRAY_LEN(node_columns), node_row,
        node_id
};

/* ---- events ---- */

static const struct table_column event_columns[] = {
        { .title = "SEQ", .right = true, .stream_width = 6 },
        { .title = "AGE", .right = true, .stream_width = 3 },
        { .title = "TIME", .wide_only = true },
        { .title = "TYPE", .stream_width = 17 },
        { .title = "WORKLOAD", .weight = 8, .stream_width = 12 },
        { .title = "NODE", .weight = 7, .stream_width = 8 },
        { .title = "REASON", .stream_width = 16 },
        { .title = "ACTOR", .wide_only = true, .weight = 4 },
        { .title = "REQUEST", .wide_only = true },
        { .title = "MESSAGE", .weight = 1 },
};

static enum tint event_tint(Pb__EventType__E type)
{
        switch (type) {
        case PB__EVENT_TYPE__E__NodeReady:
        case PB__EVENT_TYPE__E__WorkloadStarted:
        case PB__EVENT_TYPE__E__WorkloadCompleted:
                return TINT_GOOD;
        case PB__EVENT_TYPE__E__NodeLost:
        case PB__EVENT_TYPE__E__WorkloadFailed:
                return TINT_BAD;
        case PB__EVENT_TYPE__E__RetryScheduled:
        case PB__EVENT_TYPE__E__Rescheduled:
        case PB__EVENT_TYPE__E__WorkloadPending:
                return TINT_BUSY;
        default:
                return TINT_NONE;
        }
}

static void event_row(struct table *t, const ProtobufCMessage *m, int64_t now_ms)
{
        const Pb__Event *e = (const Pb__Event *)m;
        char buf[TIME_TEXT_LEN];
        table_addf(t, TINT_DIM, "%" PRIu64, e->seq);
        table_add(t, age_words(buf, sizeof(buf), now_ms, e->timestamp), TINT_NONE);
        table_add(t, time_format(buf, e->timestamp), TINT_NONE);
        table_add(t, json_enum_name(&pb__event_type__e__descriptor, (int)e->type),
                  event_tint(e->type));
        table_add(t, e->workload_id, TINT_NONE);
        table_add(t, e->node_id, TINT_NONE);
        table_add(t, e->reason ? reason_name(e->reason) : NULL, TINT_NONE);
        table_add(t, e->actor, TINT_NONE);
        table_add(t, e->request_id, TINT_NONE);
        if (e->type == PB__EVENT_TYPE__E__NodeWishChanged)
                table_addf(t, TINT_NONE, "%s to %s", e->message,
                           json_enum_name(&pb__node_wish__e__descriptor, (int)e->wish));
        else
                table_add(t, e->message, TINT_NONE);
}

static const char *event_id(const ProtobufCMessage *m, char buf[WORDS_LEN])
{
        (void)snprintf(buf, WORDS_LEN, "%" PRIu64, ((const Pb__Event *)m)->seq);
        return buf;
}

const struct kind kind_event = {
        "event",       &pb__event__descriptor,   &pb__list_events_response__descriptor,
        event_columns, ARRAY_LEN(event_columns), event_row,
        event_id
};

/* ---- quotas ---- */

static const struct table_column quota_columns[] = {
        { .title = "TENANT", .weight = 9 }, { .title = "WORKLOADS", .right = true },
        { .title = "CPU", .right = true },  { .title = "MEMORY", .right = true },
        { .title = "DISK", .right = true }, { .title = "WRITES/MIN", .right = true },
};

/* "used/limit"; a limit of 0 is none. */
static void quota_cell(struct table *t, const char *(*words)(char *buf, size_t size, int64_t v),
                       int64_t used, int64_t limit)
{
        char a[32], b[32];
        table_addf(t, limit && used >= limit ? TINT_BUSY : TINT_NONE, "%s/%s",
                   words(a, sizeof(a), used), limit ? words(b, sizeof(b), limit) : "-");
}

static const char *count_words(char *buf, size_t size, int64_t v)
{
        (void)snprintf(buf, size, "%" PRId64, v);
        return buf;
}

static const char *gib_words(char *buf, size_t size, int64_t v)
{
        (void)snprintf(buf, size, "%" PRId64 "Gi", v);
        return buf;
}

static void quota_row(struct table *t, const ProtobufCMessage *m, int64_t now_ms _unused_)
{
        const Pb__Quota *q = (const Pb__Quota *)m;
        static const Pb__Resources none = PB__RESOURCES__INIT;
        static const Pb__QuotaUsage nothing = PB__QUOTA_USAGE__INIT;
        const Pb__Resources *limit = q->resources ? q->resources : &none;
        const Pb__QuotaUsage *usage = q->usage ? q->usage : &nothing;
        const Pb__Resources *used = usage->resources ? usage->resources : &none;
        table_add(t, q->tenant, TINT_BOLD);
        quota_cell(t, count_words, usage->workloads, q->workloads);
        quota_cell(t, cores_words, used->cpu, limit->cpu);
        quota_cell(t, mib_words, used->memory_mb, limit->memory_mb);
        quota_cell(t, gib_words, used->disk_gb, limit->disk_gb);
        table_add(t, q->writes_per_minute ? fmt("%d", q->writes_per_minute) : "-", TINT_NONE);
}

static const char *quota_id(const ProtobufCMessage *m, char buf[WORDS_LEN] _unused_)
{
        return ((const Pb__Quota *)m)->tenant;
}

const struct kind kind_quota = {
        "quota",       &pb__quota__descriptor,   &pb__list_quotas_response__descriptor,
        quota_columns, ARRAY_LEN(quota_columns), quota_row,
        quota_id
};

/* ---- tokens ---- */

static const struct table_column token_columns[] = {
        { .title = "NAME", .weight = 9 },
        { .title = "ROLE" },
        { .title = "STATE" },
        { .title = "NODE" },
        { .title = "AGE" },
        { .title = "EXPIRES" },
        { .title = "CREATED BY" },
};

static void token_row(struct table *t, const ProtobufCMessage *m, int64_t now_ms)
{
        const Pb__AccessToken *x = (const Pb__AccessToken *)m;
        char buf[TIME_TEXT_LEN];
        table_add(t, x->name, TINT_BOLD);
        table_add(t, json_enum_name(&pb__role__e__descriptor, (int)x->role), TINT_NONE);
        table_add(t, x->state, str_eq(x->state, "active") ? TINT_NONE : TINT_DIM);
        table_add(t, str_empty(x->used_by) ? x->node_id : x->used_by, TINT_NONE);
        table_add(t, age_words(buf, sizeof(buf), now_ms, x->created_at), TINT_NONE);
        table_add(t, x->expires_at ? time_format(buf, x->expires_at) : "-", TINT_NONE);
        table_add(t, x->created_by, TINT_NONE);
}

static const char *token_id(const ProtobufCMessage *m, char buf[WORDS_LEN] _unused_)
{
        return ((const Pb__AccessToken *)m)->name;
}

const struct kind kind_token = {
        "token",       &pb__access_token__descriptor, &pb__list_tokens_response__descriptor,
        token_columns, ARRAY_LEN(token_columns),      token_row,
        token_id
};
