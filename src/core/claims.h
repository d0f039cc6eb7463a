/* core/claims.h: what a node's word is worth about units that the records do not place there (A13).
 * See claims.c. */
#ifndef BERTH_CORE_CLAIMS_H
#define BERTH_CORE_CLAIMS_H

#include "core/state.h"

enum verdict claim_verdict(struct core *c, struct node_ix ix, const Pb__HeldUnit *h);
Pb__Workload *claim_definition(struct core *c, const Pb__HeldUnit *h);
bool claim_counts(const struct core *c, const struct stranger *s);
bool claim_matters(const struct core *c, const struct stranger *s);
bool claim_replaces(const struct core *c, uint32_t tombstone, const Pb__UnitStatus *u);
bool holder_is_healthy(const struct core *c, const struct unit *w);
void claims_note(struct claims *k, const char *id, enum verdict verdict);
void claims_tell(struct core *c, struct node_ix ix, struct claims *k);
void key_noted(struct core *c);
void decide_definitions(struct core *c, const Pb__UnitDefinitions *d, uint64_t session);
void foreign_remember(struct core *c, const Pb__Hello *h);
const struct foreign *foreign_get(struct core *c, const char *node_id);
bool foreign_is_shown(const struct core *c, const struct foreign *f);
void *foreign_record(struct core *c, const struct foreign *f, struct arena *a, size_t *ret_len);

#endif
