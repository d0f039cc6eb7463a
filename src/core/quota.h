/* core/quota.h: what a tenant may use. See quota.c. */
#ifndef BERTH_CORE_QUOTA_H
#define BERTH_CORE_QUOTA_H

#include "core/state.h"

void quotas_init(struct core *c);
void quotas_fini(struct core *c);
/* MAP_NONE: not known; "" is "default" */
uint32_t tenant_find(const struct core *c, const char *name);
uint32_t tenant_ref(struct core *c, const char *name);
void tenant_unref(struct core *c, uint32_t t);
const char *workload_tenant(const struct core *c, const struct unit *w);
void usage_update(struct core *c, struct unit *w); /* after anything about it has changed */
void usage_drop(struct core *c, struct unit *w);   /* before its definition changes, or it goes */
/* < 0: refused, and the caller told so. ix: what is changed; UNIT_NONE: a new one. */
int quota_allows_apply(struct core *c, struct unit_ix ix, const Pb__Workload *asked);

#endif
