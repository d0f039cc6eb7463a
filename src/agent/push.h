/* agent/push.h: the agent as a server (`berth agent --push`), for schedulers that call their
 * agents: persys.agent.v1.AgentService over the same engine and runtimes.
 *
 * There is no stream and no plan: each call becomes a plan of one unit for the engine. The caller
 * knows revisions and no tokens, so the agent gives the tokens itself:
 *
 *   - another revision, or the same one of a unit that failed or was stopped: a larger token, which
 *     is "stop, wait for the proof, start anew" for the engine;
 *   - the same revision and the same wish of a unit that runs, starts, or has ended well: nothing
 *     (skipped);
 *   - a revision "<revision>@<epoch>.<seq>" (a berth server wrote it) older than the one that is
 *     here is refused: a late call cannot bring an old copy back (C34).
 *
 * Apply and Delete are taken and carried out afterwards; what became of them is in the status. The
 * agent registers with persys.control.v1 at the server, beats as often as that asks, says at once
 * when a unit's state has changed, and registers anew whenever a heartbeat fails. After a restart
 * of the agent nothing is launched before a call names it.
 */
#ifndef BERTH_AGENT_PUSH_H
#define BERTH_AGENT_PUSH_H

#include "agent/agent_state.h"

/* Listens; after the engine has booted. */
int agent_push_open(struct agent *a, struct err *err);
void agent_push_close(struct agent *a);
void agent_push_dial(struct agent *a); /* registers, or beats: the timer's word */
/* the certificate's files have changed; an agent that does not listen: nothing */
void agent_push_reload(struct agent *a);
void agent_push_turn(struct agent *a); /* the engine has been emptied: is there news? */

#endif
