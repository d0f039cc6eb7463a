/* cli/apply.c: berth apply -f FILE: workloads from YAML or JSON.
 *
 * All files are read and checked before the first workload is sent: a mistake in the third document
 * leaves the cluster as it was.
 */
#include "cli/client.h"
#include "cli/manifests.h"
#include "cli/plan.h"
#include "cli/verbs.h"
#include "cli/wait.h"
#include "model/validate.h"

struct apply_options {
        struct text_list files;
        struct wait_options wait;
        bool create_only, if_unchanged, plan, yes;
        int64_t check_index;
};

static const struct opt rows[] = {
        OPT(struct apply_options, OPT_LIST, files, .letter = 'f', .name = "file", .arg = "FILE",
            .completes = 'f', .help = "YAML or JSON, - for standard input; may be repeated"),
        OPT(struct apply_options, OPT_FLAG, create_only, .name = "create-only",
            .help = "refuse names that are taken"),
        OPT(struct apply_options, OPT_FLAG, if_unchanged, .name = "if-unchanged",
            .help = "every document must have the resource_version that it was read with"),
        OPT(struct apply_options, OPT_FLAG, plan, .name = "plan",
            .help = "show what would happen, ask, and do just that"),
        OPT(struct apply_options, OPT_FLAG, yes, .letter = 'y', .name = "yes",
            .help = "with --plan: go on without asking"),
        OPT(struct apply_options, OPT_INT, check_index, .name = "check-index", .arg = "INDEX",
            .help = "only if nothing was decided since the plan with this index"),
        WAIT_ROWS(struct apply_options, wait),
};

#define AT_ONCE_BYTES (1024 * 1024) /* packed, in one request */

static int check_versions(const struct manifests *items, struct err *err)
{
        for (size_t i = 0; i < items->len; i++)
                if (items->at[i].workload->resource_version == 0)
                        return err_set(err, ERR_INVALID,
                                       .msg = fmt("%s:%u: there is no resource_version",
                                                  items->at[i].file, items->at[i].line),
                                       .hint = "--if-unchanged needs the one that was read: berth "
                                               "get workload NAME -o yaml");
        return 0;
}

/* One line for a workload that was applied, or its error; *status becomes the exit status of the
 * first one that failed. */
static void tell(struct cli *cli, const struct manifest_of *it, const Pb__ApplyResult *r,
                 int *status)
{
        if (!r->error) {
                cli_out(cli, "workload/%s %s\n", r->id, r->outcome);
                return;
        }
        struct err bad = { 0 };
        err_set(&bad, err_code_from_name(r->error->code), .msg = r->error->message,
                .detail = r->error->detail, .hint = r->error->hint,
                .retry_after_ms = r->error->retry_after_ms);
        err_prefix(&bad, fmt("%s:%u: workload %s", it->file, it->line, it->workload->id));
        cli_report(cli, &bad);
        if (*status == 0)
                *status = err_exit_status(bad.code);
}

/* How many of them go into one request. */
static size_t share_of(const struct manifest_of *items, size_t n)
{
        size_t bytes = 0, i = 0;
        while (i < n && i < APPLY_ITEMS_MAX) {
                bytes += pb__workload__get_packed_size(items[i].workload) + 8;
                if (i > 0 && bytes > AT_ONCE_BYTES)
                        break;
                i++;
        }
        return i;
}

/* One request with n of them. Fails only if the server could not be asked, or did not take the
 * request as a whole. */
static int send_some(struct cli *cli, const struct apply_options *o,
                     const struct manifest_of *items, size_t n, uint64_t *index, int *status,
                     struct err *err)
{
        struct arena arena = ARENA_INIT;
        Pb__ApplyWorkloadsRequest req = PB__APPLY_WORKLOADS_REQUEST__INIT;
        req.items = arena_new_n(&arena, Pb__Workload *, n);
        req.create_only = o->create_only;
        req.check_index = *index;
        for (size_t i = 0; i < n; i++)
                req.items[req.n_items++] = items[i].workload;
        Pb__ApplyWorkloadsResponse *answer = client_call(
            cli, &arena, "ApplyWorkloads", &req, &pb__apply_workloads_response__descriptor, err);
        int r = answer ? 0 : -(int)err->code;
        if (answer && answer->n_results != n)
                r = err_set(err, ERR_INTERNAL,
                            .msg = "the server answered for another number of workloads",
                            .detail = fmt("%zu instead of %zu", answer->n_results, n));
        for (size_t i = 0; i < n && r == 0; i++)
                tell(cli, &items[i], answer->results[i], status);
        for (size_t i = 0; *index && r == 0 && i < n; i++)
                /* our own changes are no surprise to the next request */
                if (answer->results[i]->resource_version > *index)
                        *index = answer->results[i]->resource_version;
        arena_fini(&arena);
        return r;
}

static int wait_all(struct cli *cli, const struct apply_options *o, const struct manifests *items,
                    struct err *err)
{
        for (size_t i = 0; i < items->len; i++) {
                const Pb__Workload *w = items->at[i].workload;
                struct wait_goal goal, fallback = wait_goal_started(w);
                if (w->desired_state == PB__DESIRED_STATE__E__Stopped)
                        fallback.phase = PB__PHASE__E__Stopped;
                int r = wait_goal_parse(o->wait.state, fallback, &goal, err);
                if (r == 0)
                        r = wait_for(cli, (const char *const[]){ w->id }, 1, &goal,
                                     o->wait.timeout_ms, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* > 0: there is nothing to do, or the user does not want it. */
static int show_plan(struct cli *cli, const struct apply_options *o, const struct manifests *items,
                     uint64_t *index, struct err *err)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        if (o->check_index)
                return usage_error(cli, err, "either --plan or --check-index");
        const Pb__PlanResponse *p = plan_ask_apply(cli, items, err);
        if (!p)
                return -(int)err->code;
        plan_print(cli, p, &out);
        cli_out_str(cli, &out);
        if (p->changes_in_all == 0)
                return 1;
        *index = p->index;
        int r = o->yes ? 1 : plan_confirm(cli, "Do this?", err);
        if (r == 0)
                cli_say(cli, "nothing was changed\n");
        return r < 0 ? r : r == 0;
}

static int apply_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct apply_options *o = values;
        struct manifests items = { 0 };
        int r = manifests_read(cli, &o->files, args, 0, &items, err);
        if (r == 0 && o->if_unchanged)
                r = check_versions(&items, err);
        int status = 0;
        uint64_t index = (uint64_t)o->check_index;
        if (r == 0 && o->plan && (r = show_plan(cli, o, &items, &index, err)) > 0) {
                manifests_fini(&items);
                return 0;
        }
        for (size_t i = 0, n; i < items.len && r == 0; i += n) {
                n = share_of(&items.at[i], items.len - i);
                r = send_some(cli, o, &items.at[i], n, &index, &status, err);
        }
        if (r == 0 && status == 0 && o->wait.state)
                r = wait_all(cli, o, &items, err);
        manifests_fini(&items);
        return r < 0 ? r : status;
}

const struct verb verb_apply = {
        .name = "apply",
        .args = "-f FILE",
        .summary = "make or change workloads from a file",
        .text = "A file may hold several documents, and -f may be given several times. Everything "
                "is checked before anything is sent.\n"
                "Says of each workload whether it was created, updated or unchanged. With --plan "
                "it shows first what that would lead to\n"
                "(see berth plan), asks, and refuses if anything was decided in between.",
        .examples =
            "  berth apply -f web.yaml --wait\n"
            "  berth apply -f web.yaml --plan\n"
            "  berth get workload web -o yaml | sed 's/cpu: 0.5/cpu: 1/' | berth apply -f -",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct apply_options),
        .run = apply_run,
        .group = VERBS_WORKLOADS,
        .completes = 'f',
};
