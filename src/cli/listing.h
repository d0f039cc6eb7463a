/* cli/listing.h: fetching lists from the server, page by page, and following events: what get,
 * events, describe and completion share. */
#ifndef BERTH_CLI_LISTING_H
#define BERTH_CLI_LISTING_H

#include "cli/client.h"

#define LISTING_PAGE 1000

struct listing {
        ProtobufCMessage **items; /* in the arena that was given */
        size_t n;
        uint64_t version; /* events after this one are news */
        bool more;        /* the limit cut it */
};

/* limit 0: all. The request's cursor and limit are set here. */
int list_all(struct cli *cli, struct arena *arena, const char *method, ProtobufCMessage *q,
             const ProtobufCMessageDescriptor *answer, int64_t limit, struct listing *ret,
             /* any request with cursor and limit, any answer with items and next_cursor */
             struct err *err);
int list_workloads_all(struct cli *cli, struct arena *arena, Pb__ListWorkloadsRequest *q,
                       int64_t limit, struct listing *ret, struct err *err);
int list_nodes_all(struct cli *cli, struct arena *arena, Pb__ListNodesRequest *q, int64_t limit,
                   struct listing *ret, struct err *err);
/* The newest limit events that q selects, oldest first; or, if q->since is set, the first limit
 * after it. */
int list_events(struct cli *cli, struct arena *arena, Pb__ListEventsRequest *q, int64_t limit,
                struct listing *ret, struct err *err);

/* "4711" is a sequence; "10m" means the events of the last ten minutes: the sequence before the
 * first of them, found by bisection. */
int events_since(struct cli *cli, const char *text, uint64_t *ret_seq, struct err *err);

#endif
