/* cli/events.h: printing events, for `berth events` and `berth get events`. */
#ifndef BERTH_CLI_EVENTS_H
#define BERTH_CLI_EVENTS_H

#include "cli/listing.h"
#include "cli/output.h"

struct events_options {
        struct output_options output;
        const char *since, *type, *workload, *node, *rule;
        int64_t limit;
        bool follow;
};
int events_print(struct cli *cli, const struct events_options *o, struct err *err);

#endif
