/* model/event.h: what can be seen of a packed event without unpacking it, and which class its
 * type is of. Pure.
 *
 * A list, a stream or retention may pass over many thousands of events to find a few.
 *
 * How long an event is kept depends on its class (store/store.h, docs/configuration.md). The
 * class of a type stands in event.c and nowhere else. A new class needs a name there, a key in
 * proto/config.proto, and its default in server/server.c. Its number is in stores: numbers are
 * never used again.
 */
#ifndef BERTH_MODEL_EVENT_H
#define BERTH_MODEL_EVENT_H

#include "base/macros.h"

/* Numbers of event types lie below this; a test holds the list of types to it. */
#define EVENT_TYPES_MAX 256

enum event_class {
        EVENT_LIFECYCLE = 0, /* everything that has no other one */
        EVENT_AUDIT = 1,     /* who did what, who read what, who was let in */
        EVENT_CLASSES
};
enum event_class event_class_of(uint32_t type);
const char *event_class_name(enum event_class class);

struct event_peek {
        uint64_t seq, prev;
        uint32_t type;
        int64_t at_ms;
        const char *workload, *node; /* in the event's bytes, not NUL-terminated */
        size_t workload_len, node_len;
        const char *rule;
        size_t rule_len;
};
/* false: not a packed event. */
bool event_peek(const void *data, size_t len, struct event_peek *ret);
/* Only type and time, which stand at the front. */
bool event_front(const void *data, size_t len, uint32_t *ret_type, int64_t *ret_at_ms);
/* Only the type; 0 if it is not there. */
uint32_t event_type(const void *data, size_t len);

#endif
