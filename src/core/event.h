/* core/event.h: types of events: one row each.
 *
 * A row says how an event of this type changes the state, what must hold of one that was read back
 * from a store, and whether it only follows from earlier decisions. A new type is a number in
 * events.proto and a row in event.c.
 */
#ifndef BERTH_CORE_EVENT_H
#define BERTH_CORE_EVENT_H

#include "core/core.h"
#include "events.pb-c.h"

struct event_row {
        /* Changes the state; the only thing that does. NULL: the event tells, and that is all. */
        void (*apply)(struct core *c, const Pb__Event *e);
        /* Everything that apply() takes for granted: why this event makes no sense, or NULL. One
         * that the core has just decided is right by construction and is not asked. NULL: any is
         * fine. */
        const char *(*wrong)(struct core *c, const Pb__Event *e);
        /* Of its shape, as it is emitted now; 0: 1. What is stored may have a smaller one. */
        uint32_t version;
        /* It follows from earlier decisions by itself: a plan has foreseen it, and need not be made
         * anew. */
        bool consequence;
};

const struct event_row *event_row(Pb__EventType__E type); /* NULL: not known to this berth */

/* The event before this one about the same subject (a workload if it names one, else a node): the
 * events about one subject form a chain, so that its history needs no index. 0: there is none. */
uint64_t event_previous(const struct core *c, const Pb__Event *e);

#endif
