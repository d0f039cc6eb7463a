/* core/config.h: the configuration's part in decisions. See config.c. */
#ifndef BERTH_CORE_CONFIG_H
#define BERTH_CORE_CONFIG_H

#include "core/state.h"

void decide_config(struct core *c, const Pb__ServerConfig *f);

#endif
