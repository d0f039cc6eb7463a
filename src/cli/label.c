/* cli/label.c: berth label, berth capacity: what an operator says of a node, whatever its agent
 * says. */
#include "cli/client.h"
#include "cli/names.h"
#include "cli/verbs.h"
#include "model/pb.h"
#include <string.h>

#define UNSET (-1) /* not given: stays as it is */

static void copy_without(struct cli *cli, Pb__SetNodeLabelsRequest *q, const Pb__Node *n,
                         const char *key)
{
        q->n_labels = 0;
        q->labels = NULL;
        for (size_t i = 0; i < n->n_operator_labels; i++)
                if (!str_eq(n->operator_labels[i]->key, key))
                        pb_map_set(&cli->arena, &q->base, "labels", n->operator_labels[i]->key,
                                   n->operator_labels[i]->value);
}

static int label_run(struct cli *cli, const void *values _unused_, const struct args *args,
                     struct err *err)
{
        size_t first = args->n && str_eq(args->at[0], "node") ? 1 : 0;
        if (args->n < first + 2)
                return usage_error(cli, err, "berth label node NODE KEY=VALUE... or KEY-...");
        Pb__Node *n = node_named(cli, &cli->arena, args->at[first], err);
        if (!n)
                return -(int)err->code;
        for (size_t i = first + 1; i < args->n; i++) {
                const char *text = args->at[i], *equals = strchr(text, '=');
                size_t len = strlen(text);
                Pb__SetNodeLabelsRequest q = PB__SET_NODE_LABELS_REQUEST__INIT;
                q.id = n->id;
                q.if_match = n->resource_version; /* we change what we saw */
                if (equals && equals > text) {
                        copy_without(cli, &q, n, "");
                        pb_map_set(&cli->arena, &q.base, "labels",
                                   arena_strndup(&cli->arena, text, (size_t)(equals - text)),
                                   equals + 1);
                } else if (!equals && len > 1 && text[len - 1] == '-')
                        copy_without(cli, &q, n, arena_strndup(&cli->arena, text, len - 1));
                else
                        return usage_error(cli, err, "%s: a label is KEY=VALUE; KEY- takes it away",
                                           text);
                n = client_call(cli, &cli->arena, "SetNodeLabels", &q, &pb__node__descriptor, err);
                if (!n)
                        return -(int)err->code;
        }
        cli_out(cli, "node/%s has %zu label%s of the operator's\n", n->id, n->n_operator_labels,
                n->n_operator_labels == 1 ? "" : "s");
        return 0;
}

const struct verb verb_label = {
        .name = "label",
        .args = "node NODE KEY=VALUE...|KEY-...",
        .summary = "give a node labels that its agent cannot change",
        .text = "They go before what the agent says of itself. Labels below berth.io/, and those "
                "that operator_labels of the configuration "
                "lists, come from here (or from the node's join token) alone. KEY- takes one away.",
        .examples = "  berth label node node-7 berth.io/pool=payments\n"
                    "  berth label node node-7 zone=a\n"
                    "  berth label node node-7 zone-",
        .run = label_run,
        .group = VERBS_NODES,
        .completes = 'n',
};

struct capacity_options {
        int64_t cpu, memory, disk;
};

static const struct capacity_options defaults = { .cpu = UNSET, .memory = UNSET, .disk = UNSET };

static const struct opt rows[] = {
        OPT(struct capacity_options, OPT_MILLI, cpu, .name = "cpu", .arg = "CORES",
            .help = "at most this much cpu (0: no bound)"),
        OPT(struct capacity_options, OPT_BYTES, memory, .name = "memory", .arg = "SIZE",
            .help = "at most this much memory"),
        OPT(struct capacity_options, OPT_BYTES, disk, .name = "disk", .arg = "SIZE",
            .help = "at most this much disk"),
};

static int capacity_run(struct cli *cli, const void *values, const struct args *args,
                        struct err *err)
{
        const struct capacity_options *o = values;
        Pb__SetNodeCapacityRequest q = PB__SET_NODE_CAPACITY_REQUEST__INIT;
        Pb__Resources most = PB__RESOURCES__INIT;
        if (args->n != 1)
                return usage_error(
                    cli, err, "berth capacity NODE [--cpu CORES] [--memory SIZE] [--disk SIZE]");
        if (o->cpu == UNSET && o->memory == UNSET && o->disk == UNSET)
                return usage_error(cli, err, "say what to bound: --cpu, --memory or --disk");
        const Pb__Node *n = node_named(cli, &cli->arena, args->at[0], err);
        if (!n)
                return -(int)err->code;
        const Pb__Resources now = n->capacity ? *n->capacity : most;
        q.id = n->id;
        q.if_match = n->resource_version;
        most.cpu = o->cpu == UNSET ? now.cpu : o->cpu;
        most.memory_mb = o->memory == UNSET ? now.memory_mb : o->memory >> 20;
        most.disk_gb = o->disk == UNSET ? now.disk_gb : o->disk >> 30;
        q.capacity = &most;
        n = client_call(cli, &cli->arena, "SetNodeCapacity", &q, &pb__node__descriptor, err);
        if (!n)
                return -(int)err->code;
        cli_out(cli, "node/%s capacity set\n", n->id);
        return 0;
}

const struct verb verb_capacity = {
        .name = "capacity",
        .args = "NODE [--cpu CORES] [--memory SIZE] [--disk SIZE]",
        .summary = "bound what is used of a node, whatever its agent says",
        .text = "A node that says it has more than it has draws work to itself. What is not given "
                "stays as it is; 0 takes the bound away.",
        .examples = "  berth capacity node-7 --cpu 16 --memory 64G",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct capacity_options),
        .defaults = &defaults,
        .run = capacity_run,
        .group = VERBS_NODES,
        .completes = 'n',
};
