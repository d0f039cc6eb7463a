/* server/explained.c: see explained.h. */
#include "server/explained.h"

#include "base/clock.h"
#include "model/json.h"
#include "model/pb.h"

#define TYPES                                                                                      \
        "WorkloadApplied,WorkloadDesired,WorkloadDeleting,WorkloadScheduled,WorkloadPending,"      \
        "WorkloadStarted,WorkloadStopped,"                                                         \
        "WorkloadCompleted,WorkloadFailed,RetryScheduled,RetryTriggered,Rescheduled,RetryReset,"   \
        "WorkloadAdopted"

struct history_job *explained_job(uint64_t ticket, const struct reply *reply)
{
        struct history_job *job = history_job_new(HISTORY_LIST, ticket);
        ProtobufCMessage *m = NULL;
        Pb__ListEventsRequest want = PB__LIST_EVENTS_REQUEST__INIT;
        if (reply->type != &pb__explanation__descriptor ||
            pb_unpack_own(reply->type, reply->data, reply->len, &job->memory, &m, NULL) < 0)
                goto none;
        const Pb__Explanation *x = (const Pb__Explanation *)m;
        want.type = TYPES;
        want.workload = x->workload_id;
        if (x->resource_version == 0 ||
            event_filter_parse(&want, &job->memory, &job->filter, NULL) < 0)
                goto none;
        job->explanation = arena_dup(&job->memory, reply->data, reply->len);
        job->explanation_len = reply->len;
        job->newest_first = true;
        job->limit = EXPLAINED_EVENTS;
        job->chain = x->resource_version;
        return job;
none:
        history_job_free(job);
        return NULL;
}

static const char *verb_of(const Pb__Event *e)
{
        switch (e->type) {
        case PB__EVENT_TYPE__E__WorkloadApplied:
                return str_eq(e->action, "Created") ? "created" : "changed";
        case PB__EVENT_TYPE__E__WorkloadDesired:
                return e->desired_state == PB__DESIRED_STATE__E__Stopped ? "to be stopped"
                                                                         : "to be started";
        case PB__EVENT_TYPE__E__WorkloadDeleting:
                return "to be deleted";
        case PB__EVENT_TYPE__E__WorkloadScheduled:
                return "placed on";
        case PB__EVENT_TYPE__E__WorkloadPending:
                return "found no place";
        case PB__EVENT_TYPE__E__WorkloadStarted:
                return "started on";
        case PB__EVENT_TYPE__E__WorkloadStopped:
                return "stopped";
        case PB__EVENT_TYPE__E__WorkloadCompleted:
                return "completed on";
        case PB__EVENT_TYPE__E__WorkloadFailed:
                return "failed for good on";
        case PB__EVENT_TYPE__E__RetryScheduled:
                return "failed on";
        case PB__EVENT_TYPE__E__RetryTriggered:
                return "tried again";
        case PB__EVENT_TYPE__E__Rescheduled:
                return "moved away from";
        case PB__EVENT_TYPE__E__RetryReset:
                return "ran long enough: earlier failures are forgotten";
        case PB__EVENT_TYPE__E__WorkloadAdopted:
                return "taken over as it ran on";
        default:
                return "";
        }
}

static bool is_failure(const Pb__Event *e)
{
        return e->type == PB__EVENT_TYPE__E__RetryScheduled ||
               e->type == PB__EVENT_TYPE__E__WorkloadFailed;
}

char *explained_words(const Pb__Event *e, struct arena *a)
{
        char when[TIME_TEXT_LEN];
        _cleanup_(str_finip) struct str s = STR_INIT;
        const char *verb = verb_of(e);
        bool wants_node = str_ends(verb, " on") || str_ends(verb, " from");
        str_addf(&s, "%s %s", time_format(when, e->timestamp), verb);
        if (wants_node)
                str_addf(&s, " %s", str_empty(e->node_id) ? "no node" : e->node_id);
        if (!str_empty(e->message))
                str_addf(&s, ": %.300s", e->message);
        else if (is_failure(e) && e->status && !str_empty(e->status->failure_reason))
                str_addf(&s, ": %.300s", e->status->failure_reason);
        if (e->reason && e->reason != PB__REASON__E__placed && e->reason != PB__REASON__E__none)
                str_addf(&s, " (%s)", json_enum_name(&pb__reason__e__descriptor, e->reason));
        if (e->type == PB__EVENT_TYPE__E__RetryScheduled && e->retry) {
                str_addf(&s, "; failure %d", e->retry->attempts);
                if (e->retry->next_retry_at)
                        str_addf(&s, ", tried again at %s",
                                 time_format(when, e->retry->next_retry_at));
        }
        if (!str_empty(e->actor))
                str_addf(&s, ", by %s", e->actor);
        return arena_strdup(a, str_c(&s));
}

/* What only the events know: why it was moved, where it failed last. */
static void complete(Pb__Explanation *x, const Pb__Event *e)
{
        if (e->type == PB__EVENT_TYPE__E__Rescheduled) {
                x->came_from = e->node_id;
                x->moved_because = e->reason;
        }
        if (is_failure(e) && x->last_failure) {
                x->last_failure->node_id = e->node_id;
                x->last_failure->reason = e->reason;
                x->last_failure->failed_at = e->timestamp;
        }
}

void explained(const struct history_job *job, struct str *ret_packed)
{
        struct arena a = ARENA_INIT;
        ProtobufCMessage *m = NULL, *list = NULL;
        if (pb_unpack_own(&pb__explanation__descriptor, job->explanation, job->explanation_len, &a,
                          &m, NULL) < 0) {
                str_add(ret_packed, job->explanation, job->explanation_len);
                arena_fini(&a);
                return;
        }
        Pb__Explanation *x = (Pb__Explanation *)m;
        x->history = arena_new_n(&a, char *, EXPLAINED_EVENTS + 1);
        if (job->err.code != ERR_OK ||
            pb_unpack_own(&pb__list_events_response__descriptor, str_c(&job->body), job->body.len,
                          &a, &list, NULL) < 0) {
                x->history[x->n_history++] =
                    arena_printf(&a, "(the events cannot be read now: %s)", err_line(&job->err));
        } else {
                const Pb__ListEventsResponse *events = (const Pb__ListEventsResponse *)list;
                for (size_t i = events->n_items; i-- > 0 && x->n_history < EXPLAINED_EVENTS;) {
                        x->history[x->n_history++] = explained_words(events->items[i], &a);
                        complete(x, events->items[i]);
                }
        }
        pb_pack(ret_packed, &x->base);
        arena_fini(&a);
}
