/* server/filter.h: which events a caller wants. Pure. */
#ifndef BERTH_SERVER_FILTER_H
#define BERTH_SERVER_FILTER_H

#include "api.pb-c.h"
#include "base/arena.h"
#include "base/err.h"
#include "model/event.h"

struct event_filter {
        bool by_type;                         /* only types whose bit is set; otherwise all */
        uint64_t types[EVENT_TYPES_MAX / 64]; /* one bit per EventType */
        const char *workload, *node, *rule;   /* NULL: any */
        /* only what is about the node itself, and not about a unit on it */
        bool own_node;
};
void event_filter_add_type(struct event_filter *f, Pb__EventType__E type);
/* A filter of its own, strings included: the one function that copies filters, since a copy by
 * assignment shares strings that end with the request they came from. */
struct event_filter event_filter_copy(const struct event_filter *f, struct arena *arena);
/* type: names of event types joined by commas, any case. The filter's strings are copied into the
 * arena. */
int event_filter_parse(const Pb__ListEventsRequest *req, struct arena *arena,
                       struct event_filter *ret, struct err *err);

bool event_matches(const struct event_filter *f, const struct event_peek *p);

#endif
