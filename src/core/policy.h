/* core/policy.h: what definitions may ask for. See policy.c. */
#ifndef BERTH_CORE_POLICY_H
#define BERTH_CORE_POLICY_H

#include "core/state.h"

#define ASKS_POWERS 1      /* it may ask for something that a policy allows or refuses */
#define ASKS_AGENTS_USER 2 /* a process that runs as its agent does */
bool policy_allows(struct core *c, const Pb__Workload *asked, struct err *err);
/* false: refused, and replied so */
bool policy_allows_apply(struct core *c, const Pb__Workload *asked);
bool policy_confines_apply(const struct core *c, const Pb__Workload *asked);
uint8_t policy_asks(const Pb__Workload *w);
/* what is on record and would be refused today */
void policy_fill(struct core *c, Pb__ClusterInfo *info);
/* w: its content; NULL: unpack it */
void policy_judge(struct core *c, uint32_t definition, const Pb__Workload *w);
void policy_forget(struct core *c, uint32_t definition); /* before it goes */
/* so many more workloads carry it */
void policy_count(struct core *c, uint32_t definition, int by);
/* there is a new configuration */
void policy_reconsider(struct core *c);
bool policy_has_work(const struct core *c);
void policy_judge_some(struct core *c); /* as much as one step may */
int policy_check(const struct core *c, struct err *err);
int quota_allows_run(struct core *c, struct unit_ix ix);
/* one write of this tenant; NULL: of nobody known */
bool rate_refuses_tenant(struct core *c, const char *name);
bool rate_refuses(struct core *c, const struct input *in); /* true: and the caller told so */
bool quota_blocks(const struct core *c, struct unit_ix w); /* it may not be allocated now */
char *quota_detail(struct core *c, const struct unit *w);  /* why not; in the step's memory */
void wait_for_quota(struct core *c, struct unit_ix w);
void tenant_queue_add(struct core *c, struct unit_ix w);
void tenant_queue_remove(struct core *c, struct unit_ix w);
bool place_within_quotas(struct core *c); /* true: there is more to do now */
void quotas_reconsider(struct core *c);   /* the default has changed */
struct quota quota_from(const Pb__Quota *m);
bool quota_is_sane(const Pb__Quota *m);
void decide_quota_set(struct core *c, const Pb__SetQuotaRequest *req);
void decide_quota_remove(struct core *c, const Pb__TenantRef *req);
void apply_quota_event(struct core *c, const Pb__Event *e);
const char *wrong_quota(struct core *c, const Pb__Event *e);
void read_quota(struct core *c, const Pb__TenantRef *req);
void read_list_quotas(struct core *c, const Pb__ListQuotasRequest *req);
void quotas_dump(const struct core *c, struct str *out);
int quotas_check(const struct core *c, struct err *err);

#endif
