/* agent/agent_clear.h: ends and removes all that an agent's directory stands for, without a server.
 *
 * For whoever is about to throw the directory away (`berth dev --fresh`): units outlive their
 * agent, and without the directory nobody would ever look for them again.
 */
#ifndef BERTH_AGENT_AGENT_CLEAR_H
#define BERTH_AGENT_AGENT_CLEAR_H

#include "base/err.h"

/* Kills every unit, removes its containers and its files, and returns when the runtimes have proved
 * it, or with ERR_DEADLINE. A directory that no agent has used is left alone. -ERR_CONFLICT: an
 * agent runs there. ret_ended: how many units there were. */
int agent_clear(const char *data_dir, int64_t patience_ms, unsigned *ret_ended, struct err *err);

#endif
