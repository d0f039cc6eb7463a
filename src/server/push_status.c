/* server/push_status.c: see push_status.h. */
#include "server/push_status.h"

#include "base/str.h"
#include "model/pb.h"
#include "server/push_spec.h"
#include <string.h>

#define MESSAGE_MAX 1024

static bool says_not_found(const char *message)
{
        return message &&
               (str_starts(message, "status not found") || strstr(message, "workload not found"));
}

enum push_verdict push_verdict(enum grpc_status status, const char *message)
{
        switch (status) {
        case GRPC_OK:
                return PUSH_OK;
        case GRPC_NOT_FOUND:
                return PUSH_MISSING;
        case GRPC_UNAVAILABLE:
        case GRPC_DEADLINE_EXCEEDED:
                return PUSH_UNREACHABLE;
        case GRPC_INVALID_ARGUMENT:
        case GRPC_FAILED_PRECONDITION:
        case GRPC_OUT_OF_RANGE:
        case GRPC_UNIMPLEMENTED:
                return PUSH_REFUSED;
        case GRPC_UNKNOWN:
                if (says_not_found(message))
                        return PUSH_MISSING;
                return message && strstr(message, "runtime not available") ? PUSH_REFUSED
                                                                           : PUSH_AGAIN;
        default:
                return PUSH_AGAIN;
        }
}

/* Agents name no code for most of what their engines say; the engines' words are known. */
static Pb__Reason__E reason_of_text(const char *message)
{
        static const struct {
                const char *words;
                Pb__Reason__E reason;
        } known[] = {
                { "no such image", PB__REASON__E__image_unavailable },
                { "image not found", PB__REASON__E__image_unavailable },
                { "manifest unknown", PB__REASON__E__image_unavailable },
                { "pull access denied", PB__REASON__E__image_unavailable },
                { "repository does not exist", PB__REASON__E__image_unavailable },
                { "failed to pull", PB__REASON__E__image_unavailable },
                { "error pulling", PB__REASON__E__image_unavailable },
                { "invalid reference format", PB__REASON__E__invalid_spec },
                { "port is already allocated", PB__REASON__E__port_taken },
                { "address already in use", PB__REASON__E__port_taken },
                { "admission rejected", PB__REASON__E__start_failed },
                { "create failed", PB__REASON__E__start_failed },
                { "start failed", PB__REASON__E__start_failed },
                { "failed to create", PB__REASON__E__start_failed },
                { "failed to start", PB__REASON__E__start_failed },
        };
        for (size_t i = 0; i < ARRAY_LEN(known); i++)
                if (strcasestr(message, known[i].words))
                        return known[i].reason;
        return PB__REASON__E__crashed;
}

Pb__Reason__E push_reason(const char *code, const char *message)
{
        static const struct {
                const char *code;
                Pb__Reason__E reason;
        } known[] = {
                { "CLOUD_INIT_INVALID", PB__REASON__E__invalid_spec },
                { "PORT_BIND_CONFLICT", PB__REASON__E__port_taken },
                { "INSUFFICIENT_RESOURCES", PB__REASON__E__start_failed },
                { "RESOURCE_QUOTA_EXCEEDED", PB__REASON__E__start_failed },
                { "RUNTIME_UNHEALTHY", PB__REASON__E__start_failed },
                { "RUNTIME_RESOURCE_MISSING", PB__REASON__E__lost_by_agent },
                { "RUNTIME_NOT_AVAILABLE", PB__REASON__E__runtime_unavailable },
                { "VM_BOOT_FAILED", PB__REASON__E__start_failed },
                { "KILLED", PB__REASON__E__killed },
                { "UNHEALTHY", PB__REASON__E__unhealthy },
        };
        if (message && strstr(message, "runtime not available"))
                return PB__REASON__E__runtime_unavailable;
        for (size_t i = 0; i < ARRAY_LEN(known); i++)
                if (str_eq(code, known[i].code))
                        return known[i].reason;
        if (str_starts(code ? code : "", "IMAGE_"))
                return PB__REASON__E__image_unavailable;
        if (str_starts(code ? code : "", "INVALID_"))
                return PB__REASON__E__invalid_spec;
        if (str_starts(code ? code : "", "STORAGE_") || str_starts(code ? code : "", "NETWORK_") ||
            str_starts(code ? code : "", "DNS_"))
                return PB__REASON__E__start_failed;
        return reason_of_text(message ? message : "");
}

bool push_is_missing(const Pa__WorkloadStatus *s)
{
        return s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_FAILED &&
               says_not_found(s->message);
}

static const char *last_error(const Pa__WorkloadStatus *s)
{
        const char *text = pb_map_get(s->metadata, s->n_metadata, "last_error");
        return text ? text : "";
}

static Pb__ActualState__E state_of(const Pa__WorkloadStatus *s)
{
        switch (s->actual_state) {
        case PA__ACTUAL_STATE__ACTUAL_STATE_RUNNING:
                return PB__ACTUAL_STATE__E__Running;
        case PA__ACTUAL_STATE__ACTUAL_STATE_STOPPED:
                return PB__ACTUAL_STATE__E__Stopped;
        case PA__ACTUAL_STATE__ACTUAL_STATE_FAILED:
                return push_is_missing(s) ? PB__ACTUAL_STATE__E__Missing
                                          : PB__ACTUAL_STATE__E__Failed;
        case PA__ACTUAL_STATE__ACTUAL_STATE_UNKNOWN:
                return last_error(s)[0] ? PB__ACTUAL_STATE__E__Failed
                                        : PB__ACTUAL_STATE__E__Unknown;
        default:
                return PB__ACTUAL_STATE__E__Pending;
        }
}

static Pb__WorkloadType__E type_of(const Pa__WorkloadStatus *s)
{
        switch (s->type) {
        case PA__WORKLOAD_TYPE__WORKLOAD_TYPE_CONTAINER:
                return PB__WORKLOAD_TYPE__E__container;
        case PA__WORKLOAD_TYPE__WORKLOAD_TYPE_COMPOSE:
                return PB__WORKLOAD_TYPE__E__compose;
        case PA__WORKLOAD_TYPE__WORKLOAD_TYPE_VM:
                return PB__WORKLOAD_TYPE__E__vm;
        default:
                return PB__WORKLOAD_TYPE__E__unset;
        }
}

static Pb__IntValue *number(struct arena *arena, const Pa__WorkloadStatus *s, const char *key,
                            const char *other)
{
        const char *text = pb_map_get(s->metadata, s->n_metadata, key);
        int64_t v;
        if (!text && other)
                text = pb_map_get(s->metadata, s->n_metadata, other);
        if (!text || str_parse_i64(text, &v) < 0 || v < -1000000 || v > 1000000)
                return NULL;
        Pb__IntValue *n = (Pb__IntValue *)pb_new(arena, &pb__int_value__descriptor);
        n->value = v;
        return n;
}

static char *text_of(struct arena *arena, const char *text)
{
        size_t len = text ? strlen(text) : 0;
        while (len > MESSAGE_MAX ||
               (len > 0 && len < strlen(text) && ((unsigned char)text[len] & 0xC0) == 0x80))
                len = len > MESSAGE_MAX ? MESSAGE_MAX : len - 1;
        return arena_strndup(arena, text ? text : "", len);
}

/* The message of a status that is UNKNOWN is about what was looked for in vain; that of a FAILED
 * one may leave out the cause. */
static const char *why_text(struct arena *arena, const Pa__WorkloadStatus *s)
{
        const char *error = last_error(s);
        if (s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_UNKNOWN || str_empty(s->message))
                return error;
        return error[0] && !strstr(s->message, error)
                   ? arena_printf(arena, "%s: %.1024s", s->message, error)
                   : s->message;
}

static int64_t time_of(const Pa__WorkloadStatus *s, const char *key)
{
        const char *text = pb_map_get(s->metadata, s->n_metadata, key);
        int64_t seconds;
        return text && str_parse_i64(text, &seconds) == 0 && seconds > 0 &&
                       seconds < INT64_MAX / 1000
                   ? seconds * 1000
                   : 0;
}

Pb__UnitStatus *push_unit_status(struct arena *arena, const Pa__WorkloadStatus *s, bool job)
{
        Pb__UnitStatus *u = (Pb__UnitStatus *)pb_new(arena, &pb__unit_status__descriptor);
        size_t len;
        uint64_t epoch, seq;
        u->unit_id = arena_strdup(arena, s->id);
        u->type = type_of(s);
        u->state = state_of(s);
        if (push_revision_parse(s->revision_id, &len, &epoch, &seq)) {
                u->revision_id = arena_strndup(arena, s->revision_id, len);
                u->token = (Pb__Token *)pb_new(arena, &pb__token__descriptor);
                u->token->epoch = epoch;
                u->token->seq = seq;
        }
        u->exit_code = number(arena, s, "exit_code", "container.exit_code");
        u->signal = number(arena, s, "signal", NULL);
        u->started_at = time_of(s, "started_at");
        u->finished_at = time_of(s, "finished_at");
        const char *health = pb_map_get(s->metadata, s->n_metadata, "health");
        if (health && (str_eq(health, "healthy") || str_eq(health, "unhealthy")))
                u->health = arena_strdup(arena, health);
        if (u->state == PB__ACTUAL_STATE__E__Failed) {
                const char *text = why_text(arena, s);
                u->reason =
                    push_reason(pb_map_get(s->metadata, s->n_metadata, "failure_reason"), text);
                if (u->reason == PB__REASON__E__crashed &&
                    s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_UNKNOWN)
                        /* nothing of it is there: it never ran */
                        u->reason = PB__REASON__E__start_failed;
                u->message = text_of(arena, text);
        } else if (u->state == PB__ACTUAL_STATE__E__Stopped && job && !u->exit_code && !u->signal) {
                u->exit_code = (Pb__IntValue *)pb_new(arena, &pb__int_value__descriptor);
        }
        return u;
}
