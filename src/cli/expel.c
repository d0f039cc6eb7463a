/* cli/expel.c: berth expel: throw a node out (docs/access.md). */
#include "base/clock.h"
#include "cli/client.h"
#include "cli/listing.h"
#include "cli/names.h"
#include "cli/verbs.h"

/* A token of the role node that is of no node lets its holder come back under another name: only
 * who runs the cluster knows whether this one had it. */
static void warn_of_shared_tokens(struct cli *cli)
{
        Pb__ListTokensRequest q = PB__LIST_TOKENS_REQUEST__INIT;
        struct listing all;
        struct err ignored = { 0 };
        if (list_all(cli, &cli->arena, "ListTokens", &q.base, &pb__list_tokens_response__descriptor,
                     0, &all, &ignored) < 0)
                return;
        for (size_t i = 0; i < all.n; i++) {
                const Pb__AccessToken *t = (const Pb__AccessToken *)all.items[i];
                if ((t->role == PB__ROLE__E__node || t->role == PB__ROLE__E__join) &&
                    str_empty(t->node_id) && str_eq(t->state, "active"))
                        cli_say(cli,
                                "token/%s lets its holder be any %snode: if the expelled machine "
                                "had it, revoke it (berth token revoke %s)\n",
                                t->name, t->role == PB__ROLE__E__join ? "new " : "", t->name);
        }
}

static int expel_run(struct cli *cli, const void *values _unused_, const struct args *args,
                     struct err *err)
{
        struct text_list names;
        int r = names_of_kind(cli, &cli->arena, "node", args, &names, err);
        if (r == 0)
                r = node_calls(cli, &names, "ExpelNode", " expelled", err);
        if (r == 0)
                warn_of_shared_tokens(cli);
        return r;
}

const struct verb verb_expel = {
        .name = "expel",
        .args = "NODE...",
        .summary = "throw a node out: its certificates and tokens end",
        .text = "For a machine that is no longer trusted. From now on every server refuses its "
                "certificates and its tokens; its stream "
                "ends, it "
                "is disabled, and its units start elsewhere at once (exclusive ones when the "
                "agent's lease has run out: berth fence if the "
                "machine is off). What it ran may still run there: look at the machine. It comes "
                "back only with a new key and a new join "
                "token (berth token create --join --node NODE). berth node forget takes it off the "
                "list; it stays expelled.",
        .examples = "  berth node expel node-3",
        .run = expel_run,
        .group = VERBS_NODES,
        .completes = 'n',
};
