/* cli/fsck.h: the check behind berth fsck, for other verbs. */
#ifndef BERTH_CLI_FSCK_H
#define BERTH_CLI_FSCK_H

#include "cli/cli.h"
#include "store/store.h"

/* Prints what is found. 0: sound, 1: problems, < 0: cannot be read. */
int fsck_store(struct cli *cli, struct store *store, struct err *err);

#endif
