/* net/addr.c: see addr.h. */
#include "net/addr.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int addr_parse(const char *text, struct addr *ret_addr, struct err *err)
{
        struct addr a = { 0 };
        const char *host = text ? text : "", *colon = strrchr(host, ':');
        uint64_t port;

        if (!colon || str_parse_u64(colon + 1, &port) < 0 || port > UINT16_MAX)
                return err_set(err, ERR_INVALID, .msg = fmt("\"%.100s\" is not an address", host),
                               .hint = "write host:port, for example 127.0.0.1:8084");
        size_t len = (size_t)(colon - host);
        if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
                host++;
                len -= 2;
        } else if (memchr(host, ':', len))
                return err_set(err, ERR_INVALID, .msg = fmt("\"%.100s\" is not an address", text),
                               .hint = "write IPv6 addresses in brackets: [::1]:8084");
        if (len >= sizeof(a.host))
                return err_set(err, ERR_INVALID, .msg = "the address is too long",
                               .detail = fmt("the host has %zu characters", len));
        memcpy(a.host, host, len);
        a.port = (uint16_t)port;
        *ret_addr = a;
        return 0;
}

static int fail_listen(int errnum, const struct addr *a, const char *text, const char *what,
                       struct err *err)
{
        if (errnum == EADDRINUSE)
                return err_set(
                    err, ERR_UNAVAILABLE, .msg = fmt("port %u is in use", a->port),
                    .detail = fmt("%s cannot listen on %s: another process does", what, text),
                    .hint = fmt("choose another port, or see who has it: ss -ltnp 'sport = :%u'",
                                a->port));
        if (errnum == EACCES)
                return err_set(err, ERR_DENIED,
                               .msg = fmt("this user may not listen on port %u", a->port),
                               .detail = fmt("%s on %s", what, text),
                               .hint = "ports below 1024 need root or CAP_NET_BIND_SERVICE");
        if (errnum == EADDRNOTAVAIL)
                return err_set(
                    err, ERR_INVALID, .msg = fmt("%s is not an address of this machine", a->host),
                    .detail = fmt("%s on %s", what, text),
                    .hint = "use 127.0.0.1 for this machine only, or :PORT for all its addresses");
        return err_sys(err, errnum, fmt("%s cannot listen on %s", what, text));
}

static int listen_on(const struct addrinfo *ai, int backlog)
{
        static const int on = 1, off = 0;
        _cleanup_(fd_closep) int fd =
            socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        /* Accepted sockets inherit it; without it a reply of two writes waits for the peer's
         * delayed ACK. */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (ai->ai_family == AF_INET6)
                setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, backlog) < 0)
                return -errno;
        int ret = fd;
        fd = -1;
        return ret;
}

int addr_listen(const char *text, const char *what, int backlog, uint16_t *ret_port,
                struct err *err)
{
        struct addr a;
        int r = addr_parse(text, &a, err);
        if (r < 0)
                return r;

        struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                  .ai_socktype = SOCK_STREAM,
                                  .ai_flags = AI_PASSIVE | AI_NUMERICSERV },
                        *list = NULL;
        char port[8];
        snprintf(port, sizeof(port), "%u", a.port);
        r = getaddrinfo(a.host[0] ? a.host : "0.0.0.0", port, &hints, &list);
        if (r != 0)
                return err_set(err, ERR_INVALID,
                               .msg = fmt("the address \"%s\" is not known", a.host),
                               .detail = gai_strerror(r));

        int fd = -EADDRNOTAVAIL;
        for (struct addrinfo *ai = list; ai && fd < 0 && fd != -EADDRINUSE; ai = ai->ai_next)
                fd = listen_on(ai, backlog);
        freeaddrinfo(list);
        if (fd < 0)
                return fail_listen(-fd, &a, text, what, err);

        struct sockaddr_storage ss;
        socklen_t len = sizeof(ss);
        if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0) {
                r = err_sys(err, errno, "getsockname");
                close(fd);
                return r;
        }
        *ret_port = ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port
                                                   : ((struct sockaddr_in *)&ss)->sin_port);
        return fd;
}

const char *addr_format(const struct sockaddr *sa, char buf[static ADDR_TEXT_MAX])
{
        char host[INET6_ADDRSTRLEN] = "?";

        if (sa->sa_family == AF_INET) {
                const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
                inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
                snprintf(buf, ADDR_TEXT_MAX, "%s:%u", host, ntohs(in->sin_port));
        } else if (sa->sa_family == AF_INET6) {
                const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)sa;
                inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof(host));
                snprintf(buf, ADDR_TEXT_MAX, "[%s]:%u", host, ntohs(in->sin6_port));
        } else
                snprintf(buf, ADDR_TEXT_MAX, "unknown");
        return buf;
}

bool addr_is_loopback(const char *text)
{
        struct addr a;
        struct in_addr in;
        struct in6_addr in6;

        if (!text)
                return true;
        if (addr_parse(text, &a, NULL) < 0)
                return false;
        if (inet_pton(AF_INET, a.host, &in) == 1)
                return (ntohl(in.s_addr) >> 24) == 127;
        return str_eq(a.host, "localhost") ||
               (inet_pton(AF_INET6, a.host, &in6) == 1 && IN6_IS_ADDR_LOOPBACK(&in6));
}

/* ---- networks ---- */

/* Both families as 16 bytes, so that an IPv4 address is the same however it is written. */
static bool bytes_of(const struct sockaddr *sa, uint8_t ret[static 16])
{
        static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
        if (sa->sa_family == AF_INET) {
                memcpy(ret, mapped, sizeof(mapped));
                memcpy(ret + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
        } else if (sa->sa_family == AF_INET6)
                memcpy(ret, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
        else
                return false;
        return true;
}

bool addr_of_ip(const char *text, struct sockaddr_storage *ret)
{
        struct sockaddr_in *in = (struct sockaddr_in *)ret;
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
        *ret = (struct sockaddr_storage){ .ss_family = AF_INET };
        if (inet_pton(AF_INET, text, &in->sin_addr) == 1)
                return true;
        *ret = (struct sockaddr_storage){ .ss_family = AF_INET6 };
        return inet_pton(AF_INET6, text, &in6->sin6_addr) == 1;
}

int addr_net_parse(const char *text, struct addr_net *ret_net, struct err *err)
{
        const char *slash = strchr(text, '/');
        char host[INET6_ADDRSTRLEN + 1];
        struct sockaddr_storage ss;
        struct addr_net net;
        uint64_t bits = 0;
        size_t len = slash ? (size_t)(slash - text) : strlen(text);
        bool good = len < sizeof(host);
        if (good) {
                memcpy(host, text, len);
                host[len] = 0;
                good = addr_of_ip(host, &ss) && bytes_of((struct sockaddr *)&ss, net.bytes);
        }
        unsigned most = good && ss.ss_family == AF_INET ? 32 : 128;
        if (good && slash)
                good = str_parse_u64(slash + 1, &bits) == 0 && bits <= most;
        if (!good)
                return err_set(err, ERR_INVALID, .msg = fmt("\"%.80s\" is no network", text),
                               .hint = "write 10.0.0.0/8, fd00::/8 or one address");
        net.bits = (slash ? (unsigned)bits : most) + (128 - most);
        *ret_net = net;
        return 0;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
        return memcmp(a, b, bits / 8) == 0 &&
               (bits % 8 == 0 ||
                ((a[bits / 8] ^ b[bits / 8]) & (0xff << (8 - bits % 8)) & 0xff) == 0);
}

bool addr_net_has(const struct addr_net *net, const struct sockaddr *sa)
{
        uint8_t bytes[16];
        return bytes_of(sa, bytes) && same_bits(net->bytes, bytes, net->bits);
}

bool addr_is_nowhere(const struct sockaddr *sa)
{
        static const char *const nets[] = {
                "169.254.0.0/16", "224.0.0.0/4", "0.0.0.0/8", "255.255.255.255",
                "fe80::/10",      "ff00::/8",    "::"
        };
        for (size_t i = 0; i < ARRAY_LEN(nets); i++) {
                struct addr_net net;
                if (addr_net_parse(nets[i], &net, NULL) == 0 && addr_net_has(&net, sa))
                        return true;
        }
        return false;
}
