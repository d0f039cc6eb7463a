/* cli/drain.c: berth drain: empties a node, and shows how far that has come and what stands in the
 * way. */
#include "base/clock.h"
#include "cli/cordon.h"
#include "cli/kinds.h"
#include "cli/names.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "cli/wait.h"
#include <poll.h>
#include <string.h>

#define DEADLINE_MAX_MS (7 * 24 * 3600 * 1000LL) /* as model/rules.c has it */

struct drain_options {
        bool wait;
        int64_t deadline_ms, timeout_ms, check_index;
};

static const struct drain_options defaults = { .deadline_ms = -1 };

static const struct opt rows[] = {
        OPT(struct drain_options, OPT_DURATION, deadline_ms, .name = "deadline", .arg = "DURATION",
            .help = "then stop what fits nowhere else (never)"),
        OPT(struct drain_options, OPT_INT, check_index, .name = "check-index", .arg = "INDEX",
            .help = "only if nothing was decided since the plan with this index"),
        OPT(struct drain_options, OPT_FLAG, wait, .letter = 'w', .name = "wait",
            .help = "wait until nothing is left there"),
        OPT(struct drain_options, OPT_DURATION, timeout_ms, .name = "timeout", .arg = "DURATION",
            .help = "with --wait: give up after this long (the deadline and 5m)"),
};

static const char *blockers_words(const Pb__Drain *d)
{
        if (!d->n_blockers)
                return "";
        const Pb__DrainBlocker *b = d->blockers[0];
        return fmt("; %zu%s cannot move: %s (%s)%s", d->n_blockers,
                   d->n_blockers >= 100 ? " or more" : "", b->workload_id,
                   str_empty(b->detail) ? reason_name(b->reason) : b->detail,
                   d->n_blockers > 1 ? ", ..." : "");
}

static int wait_empty(struct cli *cli, struct progress *progress, const char *id, int64_t until_ns,
                      struct err *err)
{
        for (;;) {
                struct arena arena = ARENA_INIT;
                Pb__Node *n = node_by_id(cli, &arena, id, err);
                int r = n ? 0 : -(int)err->code;
                const Pb__Drain *d = n ? n->drain : NULL;
                bool done = d && d->finished_at;
                if (n && !d)
                        r = err_set(err, ERR_FAILED,
                                    .msg = fmt("node %s is not draining any more", id));
                else if (d && !done) {
                        const char *words = fmt("%d of %d moved, %d left%s", d->moved,
                                                d->units_at_start, d->left, blockers_words(d));
                        if (clock_mono_ns() >= until_ns)
                                r = err_set(
                                    err, ERR_DEADLINE, .msg = fmt("node %s is not empty yet", id),
                                    .detail = words,
                                    .hint = fmt("berth describe node %s; it goes on draining", id));
                        else
                                progress_show(progress, "%s: %s", id, words);
                }
                arena_fini(&arena);
                if (r < 0 || done)
                        return r;
                (void)poll(NULL, 0, 500);
        }
}

static int drain_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct drain_options *o = values;
        Pb__SetNodeWishRequest q = PB__SET_NODE_WISH_REQUEST__INIT;
        struct text_list ids;
        /* for the server that is no deadline at all, which nobody means who says 0 */
        if (o->deadline_ms == 0)
                return usage_error(cli, err,
                                   "a deadline of 0 is none: leave --deadline out, or say 1s");
        int64_t deadline_ms = o->deadline_ms < 0 ? 0 : o->deadline_ms;
        if (deadline_ms > DEADLINE_MAX_MS)
                return err_set(err, ERR_INVALID, .msg = "a deadline is at most 7 days away",
                               .detail = "--deadline",
                               .hint = "say 168h or less, or leave --deadline out: then nothing is "
                                       "stopped that fits nowhere else");
        q.wish = PB__NODE_WISH__E__draining;
        q.check_index = (uint64_t)o->check_index;
        q.deadline_seconds = (deadline_ms + 999) / 1000;
        int r = cordon_first(cli, args, &q.check_index, err);
        if (r == 0)
                r = set_wish(cli, args, &q, "draining", &ids, err);
        int64_t timeout_ms = o->timeout_ms ? o->timeout_ms : WAIT_DEFAULT_MS + deadline_ms;
        int64_t until_ns = clock_mono_ns() + timeout_ms * 1000000;
        struct progress progress;
        progress_init(&progress, cli);
        for (size_t i = 0; r == 0 && o->wait && i < ids.n; i++) {
                r = wait_empty(cli, &progress, ids.at[i], until_ns, err);
                if (r == 0)
                        progress_note(&progress, "node/%s is empty", ids.at[i]);
        }
        progress_clear(&progress);
        return r;
}

const struct verb verb_drain = {
        .name = "drain",
        .args = "NODE...",
        .summary = "move everything away from a node",
        .text = "What fits elsewhere moves, a few at a time: each is started when its old copy has "
                "stopped. What fits nowhere else runs on "
                "and is named, until the "
                "deadline, if there is one. A node that is not heard can prove nothing: what it "
                "ran is started elsewhere at once, while "
                "the old copies may still run. "
                "berth uncordon calls it off.",
        .examples = "  berth drain node-2 --wait\n"
                    "  berth drain node-2 --deadline 10m",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct drain_options),
        .defaults = &defaults,
        .run = drain_run,
        .group = VERBS_NODES,
        .completes = 'n',
};
