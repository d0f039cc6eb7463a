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

/* Only this machine reaches it: "127.x.y.z:port", "[::1]:port", "localhost:port"; NULL: nobody
 * does. */
bool addr_is_loopback(const char *text);

/* A listening TCP socket: non-blocking, close-on-exec, SO_REUSEADDR, TCP_NODELAY (inherited by what
 * it accepts). Port 0: the kernel chooses. A port in use gives ERR_UNAVAILABLE with message, detail
 * and hint. Returns the fd. what: "HTTP", "gRPC"; for the message. */
int addr_listen(const char *text, const char *what, int backlog, uint16_t *ret_port,
                struct err *err);

/* "10.0.0.1:4711" or "[::1]:4711". */
const char *addr_format(const struct sockaddr *sa, char buf[static ADDR_TEXT_MAX]);

/* Some addresses: "10.0.0.0/8", "fd00::/8", or one alone. */
struct addr_net {
        uint8_t bytes[16]; /* IPv4 as ::ffff:a.b.c.d */
        unsigned bits;
};
int addr_net_parse(const char *text, struct addr_net *ret_net, struct err *err);
bool addr_net_has(const struct addr_net *net, const struct sockaddr *sa);
/* An address that only the same link knows, or nobody in particular: link-local, multicast,
 * unspecified. What answers there (metadata services of clouds, neighbours) is nobody's business
 * who only names it. */
bool addr_is_nowhere(const struct sockaddr *sa);
/* "10.0.0.1" or "::1", without a port, as a socket address. False: it is a name. */
bool addr_of_ip(const char *text, struct sockaddr_storage *ret);

#endif
