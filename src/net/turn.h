/* net/turn.h: which turn of the loop is it? Servers do a bounded amount of each kind of work in one
 * turn, so that nobody waits for a crowd (A11). Not for others. */
#ifndef BERTH_NET_TURN_H
#define BERTH_NET_TURN_H

#include <event2/event.h>
#include <stdbool.h>

/* Has another turn begun since this was asked last? *last begins as zeros. */
static inline bool turn_is_new(struct event_base *base, struct timeval *last)
{
        struct timeval now = { 0 };

        event_base_gettimeofday_cached(base, &now); /* the same for all callbacks of one turn */
        if (now.tv_sec == last->tv_sec && now.tv_usec == last->tv_usec)
                return false;
        *last = now;
        return true;
}

#endif
