/* core/admission.h: what operators say of a node id. See admission.c. */
#ifndef BERTH_CORE_ADMISSION_H
#define BERTH_CORE_ADMISSION_H

#include "core/state.h"

void admissions_init(struct core *c);
void admissions_fini(struct core *c);
/* all records are loaded: a node is expelled only if its admission says so */
void admissions_settle(struct core *c);
void admissions_configure(struct core *c, const Pb__ServerConfig *f);
/* Labels and capacity as operators allow them, in place of what the agent says. ret_ignored: keys
 * that were left out, or NULL. */
void admission_shape(struct core *c, const char *node_id, Pb__Node *attributes,
                     const char **ret_ignored);
/* NULL: nothing was said */
const Pb__Admission *admission_of(const struct core *c, const char *node_id);
/* Why a node that was expelled is not let in; NULL: it was not, or a new token let it in. */
const char *admission_refuses(struct core *c, const Pb__Hello *h, const char **ret_hint);
/* Why this key must not join as that node; NULL: it may. */
const char *admission_refuses_key(const struct core *c, const char *node_id, const char *key,
                                  int64_t token_created_at, const char **ret_hint);
void admission_join(struct core *c, uint32_t token, const char *node_id, const char *key);
void admission_registered(struct core *c, struct node_ix n); /* for the first time: its taints */
bool admission_is_sane(const Pb__Admission *m);
/* What outlives a node that is forgotten; NULL: nothing was ever said of it. In the step's memory.
 * */
Pb__Admission *admission_kept(struct core *c, const struct node *n);
void admission_forgotten(struct core *c, const Pb__Event *e); /* part of applying NodeForgotten */
/* part of applying that a node is new */
void admission_returned(struct core *c, const char *node_id);
void admission_shown(struct core *c, const struct node *n, Pb__Node *ret);
/* fence.c: exclusive units that waited for copies there */
void fence_let_go_on(struct core *c, struct node_ix n);
void decide_node_expel(struct core *c, const Pb__NodeRef *req);
void decide_node_labels(struct core *c, const Pb__SetNodeLabelsRequest *req);
void decide_node_capacity(struct core *c, const Pb__SetNodeCapacityRequest *req);
const char *wrong_admission(struct core *c, const Pb__Event *e);
void apply_admission_event(struct core *c, const Pb__Event *e);
void admissions_dump(const struct core *c, struct str *out);
int admissions_check(const struct core *c, struct err *err);

#endif
