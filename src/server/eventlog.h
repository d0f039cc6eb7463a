/* server/eventlog.h: the log's line for each thing that happened: one per event, when it is
 * durable, with ids and reasons (C36). The io thread's. Internal.
 *
 *      ts=... level=info msg=WorkloadScheduled seq=12 workload=web node=node-1 reason=placed
 *      request_id=... actor=...
 *
 * Nothing happens, nothing is logged. A flood is cut: beyond EVENTLOG_BURST lines, and then
 * EVENTLOG_PER_SECOND, events are only counted, and a line says how many. Definitions, and so
 * environments and their secrets, are never part of a line.
 */
#ifndef BERTH_SERVER_EVENTLOG_H
#define BERTH_SERVER_EVENTLOG_H

#include "base/commit.h"
#include "base/macros.h"

#define EVENTLOG_BURST 500
#define EVENTLOG_PER_SECOND 100

struct eventlog {
        double room;      /* lines that may be written */
        int64_t at_ns;    /* when that was counted; 0: never */
        uint64_t skipped; /* since the last line */
};
void eventlog_add(struct eventlog *l, const struct store_batch *batch);

#endif
