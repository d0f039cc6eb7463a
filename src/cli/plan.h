/* cli/plan.h: asking what would happen, and showing it: berth plan, and apply --plan. */
#ifndef BERTH_CLI_PLAN_H
#define BERTH_CLI_PLAN_H

#include "api.pb-c.h"
#include "cli/manifests.h"

/* NULL: failed. The answer lives in the cli's arena. */
Pb__PlanResponse *plan_ask(struct cli *cli, const Pb__PlanRequest *request, struct err *err);
Pb__PlanResponse *plan_ask_apply(struct cli *cli, const struct manifests *items, struct err *err);
/* The diff, the nodes, the summary; without the index. */
void plan_print(const struct cli *cli, const Pb__PlanResponse *p, struct str *out);
/* Asks on the terminal whether to go on, also when standard input is something else. > 0: yes, 0:
 * no; < 0: there is nobody to ask. */
int plan_confirm(struct cli *cli, const char *question, struct err *err);

#endif
