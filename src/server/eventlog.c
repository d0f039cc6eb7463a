/* server/eventlog.c: see eventlog.h. */
#include "server/eventlog.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "events.pb-c.h"
#include "model/json.h"
#include "model/pb.h"

static enum log_level level_of(const Pb__Event *e)
{
        switch (e->type) {
        case PB__EVENT_TYPE__E__NodeLost:
        case PB__EVENT_TYPE__E__EvictionHeld:
        case PB__EVENT_TYPE__E__WorkloadFailed:
        case PB__EVENT_TYPE__E__RetryScheduled:
        case PB__EVENT_TYPE__E__UnitUnknown:
        case PB__EVENT_TYPE__E__DriftDetected:
        case PB__EVENT_TYPE__E__ClaimRefused:
        case PB__EVENT_TYPE__E__NodeTypeUnsupported:
        case PB__EVENT_TYPE__E__WebhookFailed:
                return LOG_WARN;
        default:
                return LOG_INFO;
        }
}

static void write_line(const Pb__Event *e)
{
        struct log_field f[12] = { 0 };
        size_t n = 0;
        f[n++] = LOG_I("seq", e->seq);
        if (!str_empty(e->workload_id))
                f[n++] = LOG_S("workload", e->workload_id);
        if (!str_empty(e->node_id))
                f[n++] = LOG_S("node", e->node_id);
        if (e->reason)
                f[n++] = LOG_S("reason", json_enum_name(&pb__reason__e__descriptor, e->reason));
        if (!str_empty(e->action))
                f[n++] = LOG_S("action", e->action);
        if (e->retry && e->retry->attempts)
                f[n++] = LOG_I("attempts", e->retry->attempts);
        if (!str_empty(e->message))
                f[n++] = LOG_S("message", e->message);
        if (!str_empty(e->request_id))
                f[n++] = LOG_S("request_id", e->request_id);
        if (!str_empty(e->actor))
                f[n++] = LOG_S("actor", e->actor);
        enum log_level level = level_of(e);
        if (log_enabled(level))
                log_write(level, json_enum_name(&pb__event_type__e__descriptor, e->type), f);
}

static bool has_room(struct eventlog *l)
{
        int64_t now = clock_mono_ns();
        l->room = l->at_ns == 0 ? EVENTLOG_BURST
                                : l->room + (double)(now - l->at_ns) * EVENTLOG_PER_SECOND / 1e9;
        if (l->room > EVENTLOG_BURST)
                l->room = EVENTLOG_BURST;
        l->at_ns = now;
        if (l->room < 1)
                return false;
        l->room -= 1;
        return true;
}

void eventlog_add(struct eventlog *l, const struct store_batch *batch)
{
        if (batch->n_events == 0 || !log_enabled(LOG_WARN))
                return;
        struct arena a = ARENA_INIT;
        for (size_t i = 0; i < batch->n_events; i++) {
                ProtobufCMessage *m = NULL;
                if (!has_room(l)) {
                        l->skipped += batch->n_events - i;
                        break;
                }
                if (l->skipped > 0)
                        log_info("events came too fast to be logged one by one; the store has them",
                                 LOG_I("events", l->skipped),
                                 LOG_I("before_seq", batch->events[i].seq));
                l->skipped = 0;
                if (pb_unpack_own(&pb__event__descriptor, batch->events[i].data,
                                  batch->events[i].len, &a, &m, NULL) >= 0)
                        write_line((const Pb__Event *)m);
        }
        arena_fini(&a);
}
