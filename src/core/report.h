/* core/report.h: what nodes say that they run. See report.c. */
#ifndef BERTH_CORE_REPORT_H
#define BERTH_CORE_REPORT_H

#include "core/state.h"

void decide_report(struct core *c, struct node_ix n, ProtobufCMessage *const *units, size_t n_units,
                   bool complete, bool whole_truth);

#endif
