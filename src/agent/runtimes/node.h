/* agent/runtimes/node.h: what a real node runs: a list of runtimes, chosen by the workload's type.
 *
 * Each runtime is one row of a table: its operations (with its name and the types that it takes),
 * and what a node must know to have it beside others. A new kind of unit is a new row.
 *
 * The rules that a row relies on:
 *   (1) The first row is always there, and the units' directories are its own. Whatever type nobody
 *       takes goes to it, and is refused by it.
 *   (2) A start goes by type; everything later goes where the unit is, as the start or find() said.
 *   (3) A unit that nobody has said anything about belongs to the row that may have more than
 *       find() reports, if there is one, and to the first otherwise.
 *   (4) A removal goes to the unit's row, and then to the first one, which removes the directory;
 *       only then is the unit REMOVED.
 */
#ifndef BERTH_AGENT_NODE_H
#define BERTH_AGENT_NODE_H

#include "agent/runtimes/container.h"

#define NODE_RUNTIMES_MAX 4

/* The extra of runtime_options for runtime_node: the options of its runtimes. */
struct node_options {
        /* Up to NODE_RUNTIMES_MAX, ends with ops NULL. NULL: those of a real node. */
        const struct node_row *rows;
        struct container_options container;
};

/* Whether a node is to have a runtime. */
struct node_wish {
        const char *asked; /* the --runtime that wants it: no node without; NULL: if it works */
        const char *never; /* it is not to have it: why, for people; NULL: it may */
        const void *extra; /* of the runtime's own options */
};

struct node_row {
        const struct runtime_ops *ops;
        const char *units; /* what it runs, for people: "containers" */
        /* It may have more than find() reports, since its engine was away; see (3). One row at
         * most. */
        bool may_have_more;
        /* NULL: always, and without it no node. */
        struct node_wish (*wish)(const struct node_options *opt);
        /* Appends the first process of each unit, for usage. NULL: the first row knows them. */
        void (*pids)(struct runtime *rt, pid_list *out);
};

#endif
