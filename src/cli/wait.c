/* cli/wait.c: see wait.h. The stream of events says when to look; looking is one GetWorkload. */
#include "cli/wait.h"
#include "base/clock.h"
#include "cli/kinds.h"
#include "cli/names.h"
#include "cli/progress.h"
#include "model/json.h"
#include <poll.h>
#include <string.h>

/* look again this often even without an event: the words about a retry change with time */
#define TICK_MS 1000

int wait_goal_parse(const char *text, struct wait_goal fallback, struct wait_goal *ret,
                    struct err *err)
{
        int phase = 0;
        if (str_empty(text)) {
                *ret = fallback;
                return 0;
        }
        if (str_case_eq(text, "deleted") || str_case_eq(text, "gone")) {
                *ret = (struct wait_goal){ .deleted = true };
                return 0;
        }
        if (json_enum_value(&pb__phase__e__descriptor, text, true, &phase) < 0)
                return err_set(err, ERR_INVALID, .msg = fmt("'%s' is no state to wait for", text),
                               .detail = fmt("states are %s, Deleted",
                                             json_enum_list(&pb__phase__e__descriptor)));
        *ret = (struct wait_goal){ .phase = (Pb__Phase__E)phase };
        return 0;
}

struct wait_goal wait_goal_started(const Pb__Workload *w)
{
        bool job = w->restart == PB__RESTART__E__never || w->restart == PB__RESTART__E__on_failure;
        return (struct wait_goal){ .phase = job ? PB__PHASE__E__Completed : PB__PHASE__E__Running };
}

/* ---- the judgement ---- */

static enum wait_verdict never(struct err *err, const char *id, const char *what, const char *why,
                               bool has_logs)
{
        err_set(err, ERR_FAILED, .msg = fmt("workload %s %s", id, what), .detail = why,
                .hint = has_logs ? fmt("berth explain %s, berth logs %s", id, id) : NULL);
        return WAIT_NEVER;
}

static bool new_revision_runs(const Pb__Workload *w)
{
        const char *seen = w->status->observed_revision;
        return str_empty(seen) || str_eq(seen, w->revision_id);
}

static bool has_ended(const Pb__Workload *w)
{
        return w->status->phase == PB__PHASE__E__Completed ||
               w->status->phase == PB__PHASE__E__Failed;
}

enum wait_verdict wait_judge(const char *id, const Pb__Workload *w, const struct wait_goal *goal,
                             struct err *err)
{
        if (!w)
                return goal->deleted ? WAIT_REACHED
                                     : never(err, id, "is gone", "it was deleted", false);
        bool deleting = w->desired_state == PB__DESIRED_STATE__E__Deleted;
        if (goal->deleted)
                return deleting ? WAIT_ON
                                : never(err, id, "is not being deleted", "it exists again", false);
        if (!w->status)
                return WAIT_ON;
        Pb__Phase__E phase = w->status->phase;
        if (phase == goal->phase && (phase != PB__PHASE__E__Running || new_revision_runs(w)))
                return WAIT_REACHED;
        if (deleting)
                return never(err, id, "is being deleted", NULL, false);

        const char *why = w->status->failure_reason;
        switch (goal->phase) {
        case PB__PHASE__E__Running:
        case PB__PHASE__E__Completed:
                if (goal->phase == PB__PHASE__E__Running && phase == PB__PHASE__E__Completed)
                        return WAIT_REACHED;
                if (phase == PB__PHASE__E__Failed)
                        return never(err, id, "has failed", why, true);
                if (w->desired_state == PB__DESIRED_STATE__E__Stopped)
                        return never(err, id, "is stopped", why, false);
                if (goal->phase == PB__PHASE__E__Completed && w->restart == PB__RESTART__E__always)
                        return never(err, id, "will never complete",
                                     "it restarts always; jobs have restart never or on-failure",
                                     false);
                return WAIT_ON;
        case PB__PHASE__E__Stopped:
                if (w->desired_state != PB__DESIRED_STATE__E__Stopped)
                        return never(err, id, "is to run again", "somebody started it", false);
                return has_ended(w) ? WAIT_REACHED : WAIT_ON;
        case PB__PHASE__E__Failed:
                return phase == PB__PHASE__E__Completed
                           ? never(err, id, "has completed", why, false)
                           : WAIT_ON;
        /* Pending, Scheduled, ...: passing states, which it may come back to as long as it lives */
        default:
                return has_ended(w)
                           ? never(err, id,
                                   phase == PB__PHASE__E__Failed ? "has failed" : "has completed",
                                   why, true)
                           : WAIT_ON;
        }
}

/* ---- waiting ---- */

struct waiter {
        struct cli *cli;
        const char *id;
        const struct wait_goal *goal;
        struct progress *progress;
        struct arena arena;
        int64_t until_ns;
        char last[WORDS_LEN + 128];
        uint64_t version; /* resource_version last seen */
        enum wait_verdict verdict;
};

static const char *goal_name(const struct wait_goal *goal)
{
        return goal->deleted ? "gone" : phase_name(goal->phase);
}

static int time_is_up(const struct waiter *w, struct err *err)
{
        return err_set(
            err, ERR_DEADLINE, .msg = fmt("workload %s is not %s yet", w->id, goal_name(w->goal)),
            .detail = w->last[0] ? w->last : NULL,
            .hint = fmt("berth explain %s says what it waits for; --timeout waits longer", w->id));
}

/* One look. 0: go on; 1: over, see verdict; < 0: failed. */
static int look(struct waiter *w, struct err *err)
{
        char info[WORDS_LEN];
        struct err own = { 0 };
        arena_reset(&w->arena);
        Pb__Workload *now = workload_by_id(w->cli, &w->arena, w->id, &own);
        if (!now && own.code != ERR_NOT_FOUND) {
                *err = own;
                return -(int)own.code;
        }
        w->verdict = wait_judge(w->id, now, w->goal, err);
        if (now) {
                w->version = now->resource_version;
                /* a line per second would fill a log */
                workload_info(now, w->cli->errs.is_tty ? clock_wall_ms() : 0, info);
                (void)__builtin_snprintf(w->last, sizeof(w->last), "%s%s%s",
                                         phase_name(now->status ? now->status->phase : 0),
                                         *info ? ": " : "", info);
        }
        if (w->verdict != WAIT_ON)
                return 1;
        progress_show(w->progress, "%s: %s", w->id, w->last);
        return 0;
}

static int on_event(void *ctx, const ProtobufCMessage *message, struct err *err)
{
        struct waiter *w = ctx;
        const Pb__Event *e = (const Pb__Event *)message;
        if (clock_mono_ns() >= w->until_ns)
                return time_is_up(w, err);
        if (e && e->seq <= w->version)
                return 0;
        return look(w, err);
}

static int wait_one(struct waiter *w, struct err *err)
{
        for (;;) {
                int r = look(w, err);
                if (r == 0) {
                        Pb__ListEventsRequest q = PB__LIST_EVENTS_REQUEST__INIT;
                        q.since = w->version;
                        q.workload = (char *)w->id;
                        q.follow = true;
                        r = client_stream(w->cli, "WatchEvents", &q, &pb__event__descriptor,
                                          TICK_MS, on_event, w, err);
                        if (r == CLIENT_INTERRUPTED)
                                return err_set(err, ERR_CANCELLED,
                                               .msg = fmt("stopped waiting for %s", w->id),
                                               .detail = w->last);
                }
                if (r == 1)
                        return w->verdict == WAIT_REACHED ? 0 : -(int)err->code;
                if (r < 0 && !client_may_pass(err))
                        return r;
                if (clock_mono_ns() >= w->until_ns)
                        return r < 0 ? r : time_is_up(w, err);
                if (r < 0)
                        progress_show(w->progress, "%s: %s", w->id, err->msg);
                /* the stream ended or the server is away: not in a tight loop */
                (void)poll(NULL, 0, 300);
        }
}

int wait_for(struct cli *cli, const char *const *ids, size_t n, const struct wait_goal *goal,
             int64_t timeout_ms, struct err *err)
{
        struct progress progress;
        progress_init(&progress, cli);
        int64_t until_ns =
            clock_mono_ns() + (timeout_ms > 0 ? timeout_ms : WAIT_DEFAULT_MS) * 1000000;
        int r = 0;
        for (size_t i = 0; i < n && r == 0; i++) {
                struct waiter w = { .cli = cli,
                                    .id = ids[i],
                                    .goal = goal,
                                    .progress = &progress,
                                    .until_ns = until_ns };
                r = wait_one(&w, err);
                progress_clear(&progress);
                arena_fini(&w.arena);
        }
        return r;
}
