/* server/push_spec.h: a workload in the words of agents that are called (persys.agent.v1). Pure;
 * any thread.
 *
 * Such agents know no tokens. They compare revisions: the same one changes nothing, another one is
 * "delete and create". So the token travels in the revision, "<revision>@<epoch>.<seq>": the agent
 * keeps it, shows it, and acts upon a new one, and a server that has lost its memory still reads
 * from it which launch it sees.
 */
#ifndef BERTH_SERVER_PUSH_SPEC_H
#define BERTH_SERVER_PUSH_SPEC_H

#include "base/arena.h"
#include "base/err.h"
#include "persys_agent.pb-c.h"
#include "records.pb-c.h"

char *push_revision(struct arena *arena, const char *revision, uint64_t epoch, uint64_t seq);
/* False: nobody of ours wrote this revision. ret_len: of the part before the '@'. */
bool push_revision_parse(const char *text, size_t *ret_len, uint64_t *ret_epoch, uint64_t *ret_seq);

/* What to send for it. w: a workload's definition as in a plan (id, revision_id, type, spec,
 * resources, restart, labels, annotations). -ERR_INVALID: such an agent cannot be told to run this;
 * the message says what it is that cannot be said. Nothing is dropped in silence. */
int push_apply_request(struct arena *arena, const Pb__Workload *w, uint64_t epoch, uint64_t seq,
                       bool running, Pa__ApplyWorkloadRequest **ret_request, struct err *err);

#endif
