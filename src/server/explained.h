/* server/explained.h: an explanation, completed with what the stored events tell of how it came to
 * be (A8, X2). Internal.
 *
 * The core knows the state and not the past. The io thread takes its answer, asks the reader for
 * the workload's newest events, and puts both together.
 */
#ifndef BERTH_SERVER_EXPLAINED_H
#define BERTH_SERVER_EXPLAINED_H

#include "core/core.h"
#include "server/reader.h"

#define EXPLAINED_EVENTS 20 /* newest ones that are told */

/* The question to the reader; holds a copy of the explanation. NULL: the reply is none, or there is
 * nothing to ask. */
struct history_job *explained_job(uint64_t ticket, const struct reply *reply);
/* The answer of both, packed. If the events could not be read, its history says so. */
void explained(const struct history_job *job, struct str *ret_packed);
/* One event in words: "2026-02-17T00:00:00.123Z failed on node-1: exited with code 3 (crashed);
 * attempt 2 of 5". For tests. */
char *explained_words(const Pb__Event *e, struct arena *a);

#endif
