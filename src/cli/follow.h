/* cli/follow.h: the stream of events over restarts of the server, for `berth events --follow` and
 * `berth get --watch`. */
#ifndef BERTH_CLI_FOLLOW_H
#define BERTH_CLI_FOLLOW_H

#include "cli/client.h"

/* Gives fn every event after q->since once and in order, until Ctrl-C (0) or a failure. A server
 * that goes away is waited for, which a line on stderr says; the stream goes on behind the last
 * event for which fn gave 0. fn may fail for the same reason (it asks the server too) and gets that
 * event again. */
int follow_events(struct cli *cli, Pb__ListEventsRequest *q, client_message_fn fn, void *ctx,
                  struct err *err);

#endif
