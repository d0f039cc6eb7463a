/* agent/runtimes/process_usage.h: what a machine's units use, processes and containers together. */
#ifndef BERTH_AGENT_PROCESS_USAGE_H
#define BERTH_AGENT_PROCESS_USAGE_H

#include "agent/runtime.h"
#include "agent/runtimes/proc.h"

/* As runtime_process.usage, of the process runtime; containers: their first processes, which count
 * as units of this node, too. */
void process_usage_beside(struct runtime *process, const pid_list *containers,
                          struct runtime_usage *ret);

#endif
