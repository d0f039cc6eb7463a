/* core/check.h: the parts of check.c that other files have. See check.c. */
#ifndef BERTH_CORE_CHECK_H
#define BERTH_CORE_CHECK_H

#include "core/state.h"

int check_constraints(const struct core *c, struct err *err);
void dump_constraints(const struct core *c, struct str *out);

#endif
