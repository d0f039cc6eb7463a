/* cli/evict.c: berth evict: an operator's word against the brake (C11): what is on silent nodes
 * moves now. */
#include "cli/client.h"
#include "cli/listing.h"
#include "cli/names.h"
#include "cli/verbs.h"
#include <inttypes.h>

struct evict_options {
        bool now;
        const char *zone;
};

static const struct opt rows[] = {
        OPT(struct evict_options, OPT_FLAG, now, .name = "now",
            .help = "required: whatever is held or paced moves at once"),
        OPT(struct evict_options, OPT_TEXT, zone, .name = "zone", .arg = "ZONE",
            .help = "of the silent nodes with this zone label"),
};

static int evict_zone(struct cli *cli, const char *zone, struct err *err)
{
        Pb__ListNodesRequest q = PB__LIST_NODES_REQUEST__INIT;
        struct listing list = { 0 };
        struct text_list silent = { 0 };
        q.selector = arena_printf(&cli->arena, "zone=%s", zone);
        int r = list_nodes_all(cli, &cli->arena, &q, 0, &list, err);
        if (r < 0)
                return r;
        silent.at = arena_new_n(&cli->arena, const char *, list.n + 1);
        for (size_t i = 0; i < list.n; i++) {
                const Pb__Node *node = (const Pb__Node *)list.items[i];
                if (node->status == PB__NODE_STATUS__E__NotReady ||
                    (node->status == PB__NODE_STATUS__E__Disabled && !node->connected))
                        silent.at[silent.n++] = node->id;
        }
        if (!silent.n)
                return err_set(err, ERR_NOT_FOUND, .msg = fmt("no node of zone %s is silent", zone),
                               .hint = "berth get nodes -o wide");
        return node_calls(cli, &silent, "EvictNode", ": its units move now", err);
}

static int evict_all(struct cli *cli, struct err *err)
{
        Pb__Empty empty = PB__EMPTY__INIT;
        Pb__EvictResponse *a = client_call(cli, &cli->arena, "EvictLost", &empty,
                                           &pb__evict_response__descriptor, err);
        if (!a)
                return -(int)err->code;
        if (a->nodes)
                cli_out(cli, "%" PRId64 " units of %d silent nodes move now\n", a->units, a->nodes);
        else
                cli_out(cli, "nothing is on silent nodes\n");
        return 0;
}

static int evict_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct evict_options *o = values;
        struct text_list names = { 0 };
        int r = args->n ? names_of_kind(cli, &cli->arena, "node", args, &names, err) : 0;
        if (r == 0 && !o->now)
                return err_set(err, ERR_INVALID,
                               .msg = "this starts second copies of what still runs on nodes that "
                                      "are only cut off",
                               .hint = "berth cluster says who is silent, and berth plan lose NODE "
                                       "what would move; then say --now");
        if (r == 0 && names.n && o->zone)
                return usage_error(cli, err, "either nodes, or a zone");
        if (r == 0 && !names.n)
                return o->zone ? evict_zone(cli, o->zone, err) : evict_all(cli, err);
        return r == 0 ? node_calls(cli, &names, "EvictNode", ": its units move now", err) : r;
}

const struct verb verb_evict = {
        .name = "evict",
        .args = "[NODE...] --now",
        .summary = "move what is on silent nodes now, although it is held or paced",
        .text = "When most nodes fall silent at once the server suspects itself and moves nothing; "
                "when a part of a zone does, it moves a "
                "few units a second. If you know better, this moves the units of these nodes, of a "
                "zone, or of all that are silent, at "
                "once. An agent that comes back removes its copies. What is exclusive still waits "
                "for its node's lease: berth fence says "
                "that a machine is off. It is an event with your name.",
        .examples = "  berth evict --now                 # all that is on silent nodes\n"
                    "  berth evict --zone b --now\n"
                    "  berth evict node-3 --now",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct evict_options),
        .run = evict_run,
        .group = VERBS_NODES,
        .completes = 'n',
};
