/* cli/manifests.h: workloads from the files that a user names: apply, plan. */
#ifndef BERTH_CLI_MANIFESTS_H
#define BERTH_CLI_MANIFESTS_H

#include "api.pb-c.h"
#include "cli/cli.h"

struct manifest_of {
        Pb__Workload *workload;
        const char *file;
        unsigned line;
};
struct manifests {
        struct manifest_of *at;
        size_t len, cap;
};

/* All files (and all arguments from `first` on, which are files too), each workload checked;
 * nothing has been sent. The workloads live in the cli's arena. */
int manifests_read(struct cli *cli, const struct text_list *files, const struct args *args,
                   size_t first, struct manifests *ret, struct err *err);
void manifests_fini(struct manifests *m);

#endif
