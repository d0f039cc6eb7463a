/* cli/cordon.c: berth cordon, uncordon, disable: what the operator wants of a node. drain.c has the
 * rest. */
#include "cli/cordon.h"
#include "cli/client.h"
#include "cli/names.h"
#include "cli/verbs.h"

int set_wish(struct cli *cli, const struct args *args, const Pb__SetNodeWishRequest *asked,
             const char *done, struct text_list *ret_ids, struct err *err)
{
        struct text_list names;
        uint64_t index = asked->check_index;
        int r = names_of_kind(cli, &cli->arena, "node", args, &names, err);
        for (size_t i = 0; r == 0 && i < names.n; i++) {
                Pb__SetNodeWishRequest q = *asked;
                Pb__Node *n = node_named(cli, &cli->arena, names.at[i], err);
                if (!n)
                        return -(int)err->code;
                q.id = n->id;
                q.check_index = index;
                bool already = n->wish == q.wish && !q.deadline_seconds;
                n = client_call(cli, &cli->arena, "SetNodeWish", &q, &pb__node__descriptor, err);
                if (!n)
                        return -(int)err->code;
                if (index && n->resource_version > index)
                        /* our own change is no surprise to the next one */
                        index = n->resource_version;
                cli_out(cli, "node/%s %s%s\n", n->id, already ? "is already " : "", done);
                names.at[i] = n->id;
        }
        if (r == 0)
                *ret_ids = names;
        return r;
}

int cordon_first(struct cli *cli, const struct args *args, uint64_t *index, struct err *err)
{
        struct text_list names;
        int r = names_of_kind(cli, &cli->arena, "node", args, &names, err);
        if (r < 0 || names.n < 2)
                return r;
        Pb__Node **nodes = arena_new_n(&cli->arena, Pb__Node *, names.n);
        for (size_t i = 0; i < names.n; i++)
                if (!(nodes[i] = node_named(cli, &cli->arena, names.at[i], err)))
                        return -(int)err->code;
        for (size_t i = 0; i < names.n; i++) {
                Pb__SetNodeWishRequest q = PB__SET_NODE_WISH_REQUEST__INIT;
                if (nodes[i]->wish > PB__NODE_WISH__E__schedulable)
                        continue;
                q.id = nodes[i]->id;
                q.wish = PB__NODE_WISH__E__cordoned;
                q.check_index = *index;
                Pb__Node *n =
                    client_call(cli, &cli->arena, "SetNodeWish", &q, &pb__node__descriptor, err);
                if (!n)
                        return i == 0 ? -(int)err->code
                                      : err_prefix(
                                            err,
                                            fmt("nodes before %s are cordoned now (berth uncordon)",
                                                nodes[i]->id));
                if (*index && n->resource_version > *index)
                        *index = n->resource_version;
        }
        return 0;
}

static int plain_wish(struct cli *cli, const struct args *args, Pb__NodeWish__E wish,
                      const char *done, struct err *err)
{
        Pb__SetNodeWishRequest q = PB__SET_NODE_WISH_REQUEST__INIT;
        struct text_list ids;
        q.wish = wish;
        return set_wish(cli, args, &q, done, &ids, err);
}

static int cordon_run(struct cli *cli, const void *values _unused_, const struct args *args,
                      struct err *err)
{
        return plain_wish(cli, args, PB__NODE_WISH__E__cordoned, "cordoned", err);
}

static int uncordon_run(struct cli *cli, const void *values _unused_, const struct args *args,
                        struct err *err)
{
        return plain_wish(cli, args, PB__NODE_WISH__E__schedulable, "schedulable", err);
}

static int disable_run(struct cli *cli, const void *values _unused_, const struct args *args,
                       struct err *err)
{
        return plain_wish(cli, args, PB__NODE_WISH__E__disabled, "disabled", err);
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

const struct verb verb_disable = {
        .name = "disable",
        .args = "NODE...",
        .summary = "take a node out of service; what runs there stays",
        .run = disable_run,
        .group = VERBS_NODES,
        .completes = 'n',
};
