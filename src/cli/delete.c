/* cli/delete.c: berth delete: workloads, and nodes that will not come back. */
#include "cli/listing.h"
#include "cli/names.h"
#include "cli/verbs.h"
#include "cli/wait.h"

#define AT_ONCE 256

struct delete_options {
        struct wait_options wait;
        const char *selector;
        bool all, ignore_missing;
        int64_t check_index;
};

static const struct opt rows[] = {
        OPT(struct delete_options, OPT_TEXT, selector, .letter = 'l', .name = "selector",
            .arg = "SELECTOR", .help = "workloads with these labels"),
        OPT(struct delete_options, OPT_FLAG, all, .name = "all", .help = "all workloads"),
        OPT(struct delete_options, OPT_FLAG, ignore_missing, .name = "ignore-missing",
            .help = "a name that does not exist is no error"),
        OPT(struct delete_options, OPT_INT, check_index, .name = "check-index", .arg = "INDEX",
            .help = "only if nothing was decided since the plan with this index"),
        WAIT_ROWS(struct delete_options, wait),
};

/* Names that a selector stands for. */
static int select_names(struct cli *cli, const struct delete_options *o, struct text_list *ret,
                        struct err *err)
{
        Pb__ListWorkloadsRequest q = PB__LIST_WORKLOADS_REQUEST__INIT;
        struct listing list = { 0 };
        q.selector = (char *)(o->selector ? o->selector : "");
        int r = list_workloads_all(cli, &cli->arena, &q, 0, &list, err);
        if (r < 0)
                return r;
        ret->at = arena_new_n(&cli->arena, const char *, list.n + 1);
        for (size_t i = 0; i < list.n; i++)
                ret->at[ret->n++] = ((Pb__Workload *)list.items[i])->id;
        if (list.n == 0)
                cli_say(cli, "no workloads%s\n", o->selector ? " like that" : "");
        return 0;
}

/* Names to ids, as the user may have shortened them. Missing ones are left out if that is
 * allowed. */
static int resolve(struct cli *cli, const struct delete_options *o, const struct text_list *names,
                   struct text_list *ret_ids, struct err *err)
{
        ret_ids->at = arena_new_n(&cli->arena, const char *, names->n + 1);
        for (size_t i = 0; i < names->n; i++) {
                Pb__Workload *w = workload_named(cli, &cli->arena, names->at[i], err);
                if (w)
                        ret_ids->at[ret_ids->n++] = w->id;
                else if (err->code == ERR_NOT_FOUND && o->ignore_missing)
                        cli_out(cli, "workload/%s does not exist\n", names->at[i]);
                else
                        return -(int)err->code;
        }
        return 0;
}

static int delete_some(struct cli *cli, const char *const *ids, size_t n, uint64_t *index,
                       struct err *err)
{
        struct arena arena = ARENA_INIT;
        Pb__WorkloadRef *refs = arena_new_n(&arena, Pb__WorkloadRef, n);
        struct client_request *calls = arena_new_n(&arena, struct client_request, n);
        int r = 0;
        for (size_t i = 0; i < n; i++) {
                refs[i] = (Pb__WorkloadRef)PB__WORKLOAD_REF__INIT;
                refs[i].id = (char *)ids[i];
                calls[i] = (struct client_request){ .method = "DeleteWorkload",
                                                    .request = &refs[i],
                                                    .reply_type = &pb__workload__descriptor };
        }
        /* one after the other, each on what the one before it left */
        for (size_t i = 0; *index && i < n; i++) {
                refs[i].check_index = *index;
                client_call_many(cli, &arena, &calls[i], 1);
                if (calls[i].reply && ((Pb__Workload *)calls[i].reply)->resource_version > *index)
                        *index = ((Pb__Workload *)calls[i].reply)->resource_version;
        }
        if (!*index)
                client_call_many(cli, &arena, calls, n);
        for (size_t i = 0; i < n; i++)
                /* gone meanwhile: what was wanted */
                if (calls[i].reply || calls[i].err.code == ERR_NOT_FOUND) {
                        cli_out(cli, "workload/%s deleted\n", ids[i]);
                } else if (r == 0) {
                        *err = calls[i].err;
                        r = -(int)err->code;
                }
        arena_fini(&arena);
        return r;
}

static int delete_workloads(struct cli *cli, const struct delete_options *o,
                            const struct text_list *ids, struct err *err)
{
        struct wait_goal goal;
        uint64_t index = (uint64_t)o->check_index;
        int r = wait_goal_parse(o->wait.state, (struct wait_goal){ .deleted = true }, &goal, err);
        for (size_t i = 0; r == 0 && i < ids->n; i += AT_ONCE)
                r = delete_some(cli, ids->at + i, ids->n - i < AT_ONCE ? ids->n - i : AT_ONCE,
                                &index, err);
        return r == 0 && o->wait.state
                   ? wait_for(cli, ids->at, ids->n, &goal, o->wait.timeout_ms, err)
                   : r;
}

static int delete_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct delete_options *o = values;
        const char *kind = "workload";
        struct text_list names = { 0 };
        int r;
        if (o->all || o->selector) {
                if (args->n > 1 || (args->n == 1 && kind_of(args->at[0]) != kind_of("workload")))
                        return usage_error(cli, err, "either names, or --all, or a selector");
                if (o->all && o->selector)
                        return usage_error(cli, err, "either --all or a selector");
                r = select_names(cli, o, &names, err);
        } else {
                r = names_with_kind(cli, &cli->arena, "workload", args, &kind, &names, err);
                if (r == 0 && names.n == 0)
                        return usage_error(cli, err, "delete what?");
        }
        if (r < 0)
                return r;
        if (str_eq(kind, "node"))
                return node_calls(cli, &names, "ForgetNode", " deleted", err);
        if (str_eq(kind, "event"))
                return usage_error(
                    cli, err,
                    "events cannot be deleted; the server keeps as many as it was told to");
        struct text_list ids = { 0 };
        if (o->all || o->selector)
                ids = names;
        else if ((r = resolve(cli, o, &names, &ids, err)) < 0)
                return r;
        return delete_workloads(cli, o, &ids, err);
}

const struct verb verb_delete = {
        .name = "delete",
        .args = "[workload|node] NAME...",
        .summary = "delete workloads, or forget nodes that are gone",
        .text = "A node that is forgotten may come back with its certificate; it then has the "
                "labels, taints and capacity that "
                "operators gave it. berth node expel keeps one out.",
        .examples = "  berth delete hello --wait\n"
                    "  berth delete -l app=web\n"
                    "  berth delete node node-3",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct delete_options),
        .run = delete_run,
        .group = VERBS_WORKLOADS,
        .completes = 'w',
};
