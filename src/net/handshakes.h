/* net/handshakes.h: TLS connections whose handshake waits for its turn. Not for others.
 *
 * A handshake costs the loop a millisecond and more. When a thousand agents come back at once (a
 * restarted server), a turn of the loop that served them all would take seconds, and whoever is
 * connected already would wait for as long (A11). So a turn begins HANDSHAKES_PER_TURN of them; the
 * others wait, first come first served, and everybody else is served between two turns.
 *
 * Who has sent nothing yet waits without a place in the line: strangers that only connect hold up
 * nobody, and are gone when their time is over. Who has left while it waited costs no handshake.
 *
 * Everything belongs to the thread of the loop.
 */
#ifndef BERTH_NET_HANDSHAKES_H
#define BERTH_NET_HANDSHAKES_H

#include "base/macros.h"
#include <sys/socket.h>

#define HANDSHAKES_PER_TURN 4

struct crowd;
struct event_base;
struct handshakes;

/* begin: the socket (the callee's now) whose handshake is to begin, and how much of timeout_ms is
 * left for it. NULL: no memory. */
struct handshakes *handshakes_create(struct event_base *base, int64_t timeout_ms,
                                     void (*begin)(int fd, const struct sockaddr *peer,
                                                   int64_t left_ms, void *ctx),
                                     void *ctx);
/* Whoever is added has entered this crowd (crowd.h), and leaves it when its socket is closed
 * here. */
void handshakes_count(struct handshakes *h, struct crowd *crowd);
void handshakes_destroy(struct handshakes *h); /* closes all that wait. NULL is fine */
/* Takes an accepted socket. Without memory it is closed. */
void handshakes_add(struct handshakes *h, int fd, const struct sockaddr *peer, int len);
/* the server takes nobody any more. NULL is fine */
void handshakes_close_all(struct handshakes *h);
uint32_t handshakes_waiting(const struct handshakes *h); /* NULL: 0 */

#endif
