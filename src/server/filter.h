/* server/filter.h: which events a caller wants. Looks at packed events without unpacking them, since a list or a stream may pass over
 * many thousands to find a few. Pure. */
#ifndef BERTH_SERVER_FILTER_H
#define BERTH_SERVER_FILTER_H

#include "api.pb-c.h"
#include "base/arena.h"
#include "base/err.h"

/* Numbers of event types lie below this; a test holds the list of types to it. */
#define EVENT_TYPES_MAX 256

struct event_filter {
        bool by_type;                         /* only types whose bit is set; otherwise all */
        uint64_t types[EVENT_TYPES_MAX / 64]; /* one bit per EventType */
        const char *workload, *node, *rule;   /* NULL: any */
};
void event_filter_add_type(struct event_filter *f, Pb__EventType__E type);
/* A filter of its own, strings included: the one function that copies filters, since a copy by assignment shares
 * strings that end with the request they came from. */
struct event_filter event_filter_copy(const struct event_filter *f, struct arena *arena);
/* type: names of event types joined by commas, any case. The filter's strings are copied into the arena. */
int event_filter_parse(const Pb__ListEventsRequest *req, struct arena *arena, struct event_filter *ret, struct err *err);

struct event_peek {
        uint64_t seq, prev;
        uint32_t type;
        const char *workload, *node; /* in the event's bytes, not NUL-terminated */
        size_t workload_len, node_len;
        const char *rule;
        size_t rule_len;
};
/* false: not a packed event. */
bool event_peek(const void *data, size_t len, struct event_peek *ret);
/* Only the type, which stands near the front; 0 if it is not there. */
uint32_t event_type(const void *data, size_t len);
bool event_matches(const struct event_filter *f, const struct event_peek *p);

#endif
