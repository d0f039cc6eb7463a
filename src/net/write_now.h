/* net/write_now.h: answers go to the socket at once. Not for others.
 *
 * A bufferevent writes when epoll says that the socket is writable: it registers, comes back a turn
 * later, writes, and takes its registration back: two more system calls and one more turn for an
 * answer that nearly always fits into the socket's buffer. So on sockets without TLS, EV_WRITE is
 * off while the output is empty, and what is added is tried at once; only what is left goes the
 * long way.
 *
 * Invariant: while such a bufferevent is in use, EV_WRITE is enabled if its output is not empty
 * between two callbacks.
 */
#ifndef BERTH_NET_WRITE_NOW_H
#define BERTH_NET_WRITE_NOW_H

#include <stdbool.h>
#include <stddef.h>

struct bufferevent;

/* Instead of bufferevent_enable(EV_READ | EV_WRITE). */
void write_now_init(struct bufferevent *bev, bool is_tls);
/* After something was added to the output. True if nothing is left of it. A socket error is not
 * told here: the loop meets it when it tries the rest. */
bool write_now(struct bufferevent *bev);
/* These bytes, behind what waits: straight from where they are if nothing does. Otherwise as
 * write_now(). */
bool write_bytes_now(struct bufferevent *bev, bool is_tls, const void *data, size_t len);
/* The same for those who add again and again: the loop writes it all together. */
void write_later(struct bufferevent *bev);
/* First in the write callback: the long way is over if everything has gone out. */
void write_now_drained(struct bufferevent *bev, bool is_tls);

#endif
