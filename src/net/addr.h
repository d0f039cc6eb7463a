/* net/addr.h: "host:port" as users write it, and listening on it. */
#ifndef BERTH_NET_ADDR_H
#define BERTH_NET_ADDR_H

#include "base/err.h"
#include <sys/socket.h>

#define ADDR_HOST_MAX 256
#define ADDR_TEXT_MAX 64

struct addr {
        char host[ADDR_HOST_MAX]; /* "" : every address of this machine */
        uint16_t port;
};
/* "127.0.0.1:8084", "[::1]:8084", "name:8084", ":8084". */
int addr_parse(const char *text, struct addr *ret_addr, struct err *err);

/* Only this machine reaches it: "127.x.y.z:port", "[::1]:port", "localhost:port"; NULL: nobody does. */
bool addr_is_loopback(const char *text);

/* A listening TCP socket: non-blocking, close-on-exec, SO_REUSEADDR, TCP_NODELAY (inherited by what it accepts). Port 0: the kernel
 * chooses. A port in use gives ERR_UNAVAILABLE with message, detail and hint. Returns the fd. what: "HTTP", "gRPC"; for the message. */
int addr_listen(const char *text, const char *what, int backlog, uint16_t *ret_port, struct err *err);

/* "10.0.0.1:4711" or "[::1]:4711". */
const char *addr_format(const struct sockaddr *sa, char buf[static ADDR_TEXT_MAX]);

#endif
