/* cli/taint.h: taints on the command line. */
#ifndef BERTH_CLI_TAINT_H
#define BERTH_CLI_TAINT_H

#include "cli/cli.h"
#include "records.pb-c.h"

/* KEY[=VALUE]:EFFECT, in the arena of cli. */
int taint_parse(struct cli *cli, const char *text, Pb__Taint *ret, struct err *err);

#endif
