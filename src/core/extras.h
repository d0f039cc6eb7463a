/* core/extras.h: fields of records that a newer berth wrote. See extras.c. */
#ifndef BERTH_CORE_EXTRAS_H
#define BERTH_CORE_EXTRAS_H

#include "core/state.h"

void extras_keep(struct core *c, const char *key, const ProtobufCMessage *m);
void extras_drop(struct core *c, const char *key);
/* to what is about to be written */
void extras_append(const struct core *c, struct arena *a, struct store_record *r);
void extras_fini(struct core *c);

#endif
