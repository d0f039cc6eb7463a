/* core/feature.h: may a feature of servers be used yet (model/feature.h). See feature.c. */
#ifndef BERTH_CORE_FEATURES_H
#define BERTH_CORE_FEATURES_H

#include "core/state.h"
#include "model/feature.h"

/* Before the first record of a new kind: true, and the schema grows with this batch if it must.
 * false: a server that is there would not understand it, and whoever asked has been told which. */
bool feature_use(struct core *c, enum feature f);
/* The same where it is not asked for but would be good to have: nobody is told, and false means
 * without. */
bool feature_try(struct core *c, enum feature f);
bool feature_is_used(const struct core *c, enum feature f);
void apply_schema(struct core *c, const Pb__Event *e);
const char *wrong_schema(struct core *c, const Pb__Event *e);

#endif
