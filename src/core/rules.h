/* core/rules.h: automation rules and their alerts. See rules.c. */
#ifndef BERTH_CORE_RULES_H
#define BERTH_CORE_RULES_H

#include "core/state.h"

void rules_init(struct core *c);
void rules_fini(struct core *c);
void rules_configure(struct core *c, const Pb__ServerConfig *f);
void rules_node_changed(struct core *c, struct node_ix n);
void rules_workload_changed(struct core *c, struct unit_ix w);
void rules_subject_gone(struct core *c, bool node, const char *id); /* before it goes */
bool rules_have_work(const struct core *c);
void run_rules(struct core *c);
const char *wrong_alert(struct core *c, const Pb__Event *e);
void apply_alert_event(struct core *c, const Pb__Event *e);
void read_list_alerts(struct core *c, const Pb__ListAlertsRequest *req);
void alerts_dump(const struct core *c, struct str *out);
int alerts_check(const struct core *c, struct err *err);

#endif
