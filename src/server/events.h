/* server/events.h: live events for SSE and WatchEvents. The io thread's. Internal.
 *
 * A subscriber is a filter and a cursor: the sequence up to which it has seen everything. The
 * newest released events are kept in memory; a subscriber whose cursor lies within them is served
 * from there, one that is behind is served by the reader thread until it has caught up. A slow
 * client is therefore just one that is behind: it costs a bounded queue and never holds up others,
 * and nothing is skipped or sent twice.
 *
 * Invariants:
 *   (V1) A subscriber gets the matching events in the order of their sequence, each once, or an
 *   explicit gap where history has been pruned. (V2) No event is sent before the batch that holds
 *   it was released, that is, before it is durable.
 */
#ifndef BERTH_SERVER_EVENTS_H
#define BERTH_SERVER_EVENTS_H

#include "base/commit.h"
#include "server/filter.h"
#include "server/sink.h"

struct events;
struct server;
struct event_base;
struct history_job;
struct caller;

struct events *events_create(struct server *s, struct event_base *base, uint64_t head);
void events_destroy(struct events *e); /* every stream must have been closed */

/* The committed events of a released batch, in order. */
void events_released(struct events *e, const struct store_batch *batch);

/* Everything up to `head` is committed, whether it came through events_released() or not. */
void events_at(struct events *e, uint64_t head);

struct event_subscription {
        /* an SSE stream that was started, or a WatchEvents call */
        struct sink sink;
        const struct event_filter *filter; /* copied */
        /* beyond the head: from now on; 0: everything that is kept */
        uint64_t since;
        const char *request_id;
        const struct caller *who; /* what it may see, and whose share the stream is of; copied */
};
/* May this caller open one more? Not if there are too many, or this one has more than its share:
 * one must not be able to take all of them (A7). ERR_LIMIT, ERR_UNAVAILABLE. */
int events_have_room(const struct events *e, const struct caller *who, struct err *err);
/* Returns an id, or 0 with err set: the same. */
uint64_t events_subscribe(struct events *e, const struct event_subscription *sub, struct err *err);
/* The client has gone (the sink's on_close). Unknown ids are fine. */
void events_unsubscribe(struct events *e, uint64_t id);
/* An answer of the reader; frees it. */
void events_history(struct events *e, struct history_job *job);
/* Ends all streams. */
void events_stop(struct events *e);

size_t events_subscribers(const struct events *e);

#endif
