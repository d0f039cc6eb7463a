/* cli/cordon.c: berth cordon, uncordon, drain: what the operator wants of a node. */
#include "base/clock.h"
#include "cli/listing.h"
#include "cli/names.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "cli/wait.h"
#include <poll.h>

struct drain_options {
        bool wait;
        int64_t timeout_ms;
};

static const struct drain_options drain_defaults = { .timeout_ms = WAIT_DEFAULT_MS };

static const struct opt drain_rows[] = {
        OPT(struct drain_options, OPT_FLAG, wait, .letter = 'w', .name = "wait", .help = "wait until nothing runs there any more"),
        OPT(struct drain_options, OPT_DURATION, timeout_ms, .name = "timeout", .arg = "DURATION",
            .help = "with --wait: give up after this long (5m)"),
};

static int set_wish(struct cli *cli, const struct args *args, Pb__NodeWish__E wish, const char *done, struct text_list *ret_ids,
                    struct err *err)
{
        struct text_list names;
        int r = names_of_kind(cli, &cli->arena, "node", args, &names, err);
        for (size_t i = 0; r == 0 && i < names.n; i++) {
                Pb__SetNodeWishRequest q = PB__SET_NODE_WISH_REQUEST__INIT;
                Pb__Node *n = node_named(cli, &cli->arena, names.at[i], err);
                if (!n)
                        return -(int)err->code;
                q.id = n->id;
                q.wish = wish;
                bool already = n->wish == wish;
                n = client_call(cli, &cli->arena, "SetNodeWish", &q, &pb__node__descriptor, err);
                if (!n)
                        return -(int)err->code;
                cli_out(cli, "node/%s %s%s\n", n->id, already ? "is already " : "", done);
                names.at[i] = n->id;
        }
        if (r == 0)
                *ret_ids = names;
        return r;
}

static int cordon_run(struct cli *cli, const void *values _unused_, const struct args *args, struct err *err)
{
        struct text_list ids;
        return set_wish(cli, args, PB__NODE_WISH__E__cordoned, "cordoned", &ids, err);
}

static int uncordon_run(struct cli *cli, const void *values _unused_, const struct args *args, struct err *err)
{
        struct text_list ids;
        return set_wish(cli, args, PB__NODE_WISH__E__schedulable, "schedulable", &ids, err);
}

/* Workloads that are still at work there; finished and stopped ones hold nothing up. < 0: failed. */
static int count_left(struct cli *cli, struct arena *arena, const char *node, struct err *err)
{
        Pb__ListWorkloadsRequest q = PB__LIST_WORKLOADS_REQUEST__INIT;
        struct listing list = { 0 };
        q.node = (char *)node;
        if (list_workloads_all(cli, arena, &q, 0, &list, err) < 0)
                return -1;
        int left = 0;
        for (size_t i = 0; i < list.n; i++) {
                const Pb__WorkloadStatus *s = ((const Pb__Workload *)list.items[i])->status;
                left +=
                    !s || (s->phase != PB__PHASE__E__Completed && s->phase != PB__PHASE__E__Failed && s->phase != PB__PHASE__E__Stopped);
        }
        return left;
}

static int wait_empty(struct cli *cli, struct progress *progress, const char *id, int64_t until_ns, struct err *err)
{
        for (;;) {
                struct arena arena = ARENA_INIT;
                Pb__Node *n = node_by_id(cli, &arena, id, err);
                int left = n ? count_left(cli, &arena, id, err) : -1;
                bool draining = n && n->wish == PB__NODE_WISH__E__draining;
                arena_fini(&arena);
                if (left <= 0)
                        return left < 0 ? -(int)err->code : 0;
                const char *words = fmt("%d workload%s left on it", left, left == 1 ? " is" : "s are");
                if (!draining)
                        return err_set(err, ERR_FAILED, .msg = fmt("node %s is not draining any more", id), .detail = words);
                if (clock_mono_ns() >= until_ns)
                        return err_set(err, ERR_DEADLINE, .msg = fmt("node %s is not empty yet", id), .detail = words,
                                       .hint = fmt("berth get workloads --node %s", id));
                progress_show(progress, "%s: %s", id, words);
                (void)poll(NULL, 0, 500);
        }
}

static int drain_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct drain_options *o = values;
        struct text_list ids;
        int r = set_wish(cli, args, PB__NODE_WISH__E__draining, "draining", &ids, err);
        int64_t until_ns = clock_mono_ns() + o->timeout_ms * 1000000;
        struct progress progress;
        progress_init(&progress, cli);
        for (size_t i = 0; r == 0 && o->wait && i < ids.n; i++)
                r = wait_empty(cli, &progress, ids.at[i], until_ns, err);
        progress_clear(&progress);
        return r;
}

const struct verb verb_cordon = {
        .name = "cordon",
        .args = "NODE...",
        .summary = "give a node nothing new; what runs there stays",
        .run = cordon_run,
        .group = VERBS_NODES,
        .completes = 'n',
};

const struct verb verb_uncordon = {
        .name = "uncordon",
        .args = "NODE...",
        .summary = "let a node take work again, after cordon or drain",
        .run = uncordon_run,
        .group = VERBS_NODES,
        .completes = 'n',
};

const struct verb verb_drain = {
        .name = "drain",
        .args = "NODE...",
        .summary = "move everything away from a node",
        .examples = "  berth drain node-2 --wait",
        .options = drain_rows,
        .n_options = ARRAY_LEN(drain_rows),
        .defaults = &drain_defaults,
        .values_size = sizeof(struct drain_options),
        .run = drain_run,
        .group = VERBS_NODES,
        .completes = 'n',
};
