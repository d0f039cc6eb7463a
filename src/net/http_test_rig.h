/* net/http_test_rig.h: for the tests of HTTP: a server with the routes of the tests on loopback,
 * and raw clients on the same loop. */
#ifndef BERTH_NET_HTTP_TEST_RIG_H
#define BERTH_NET_HTTP_TEST_RIG_H

#include "net/addr.h"
#include "net/http_internal.h"
#include "net/test_rig.h"
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/socket.h>

struct rig {
        struct event_base *base;
        struct http_server *server;
        struct http_request *kept; /* by /later or /stream */
        uint64_t kept_id;
        unsigned closed, done;
        int last_status;
        char last_route[64];
};

/* ---- routes of the tests ---- */

static inline void echo(struct http_request *req, void *ctx)
{
        size_t len;
        const char *body = http_body(req, &len);
        (void)ctx;
        http_reply(req, 200,
                   (struct http_field[]){ HTTP_FIELD("Content-Type", "text/plain"),
                                          HTTP_FIELD("X-Bad", "a\r\nb"), HTTP_FIELD_END },
                   body, len);
}

static inline void show(struct http_request *req, void *ctx)
{
        const char *q = http_query(req, "q"), *h = http_header(req, "X-Some");
        struct str out = STR_INIT;
        (void)ctx;
        str_addf(&out, "id=%s q=%s h=%s path=%s n=%zu", http_param(req, "id"), q ? q : "-",
                 h ? h : "-", http_path(req), http_query_count(req));
        http_reply_json(req, 200, str_c(&out), out.len);
        str_fini(&out);
}

/* More than the sockets of both sides hold. */
enum { BIG_BYTES = 16 * 1024 * 1024 };

static inline void big(struct http_request *req, void *ctx)
{
        char *body = mem_must(BIG_BYTES);
        (void)ctx;
        memset(body, 'b', BIG_BYTES);
        http_reply_json(req, 200, body, BIG_BYTES);
        mem_free(body);
}

static inline void gone(struct http_request *req, void *ctx)
{
        struct rig *r = ctx;
        assert_ptr_equal(req, r->kept);
        r->kept = NULL;
        r->closed++;
}

static inline void later(struct http_request *req, void *ctx)
{
        struct rig *r = ctx;
        r->kept = req;
        r->kept_id = http_id(req);
        http_on_close(req, gone, r);
}

static inline void stream(struct http_request *req, void *ctx)
{
        later(req, ctx);
        http_sse_start(req, NULL);
}

static inline void fail_route(struct http_request *req, void *ctx)
{
        struct err err;
        (void)ctx;
        err_set(&err, ERR_LIMIT, .msg = "too \"much\"", .hint = "wait", .path = "spec.x",
                .retry_after_ms = 1500);
        http_reply_err(req, 0, &err);
}

static inline void on_done(const struct http_request *req, const char *route, int status,
                           int64_t took_us, void *ctx)
{
        struct rig *r = ctx;
        (void)req;
        assert_true(took_us >= 0);
        r->done++;
        r->last_status = status;
        snprintf(r->last_route, sizeof(r->last_route), "%s", route);
}

static inline void rig_start(struct rig *r, const struct http_server_options *options)
{
        struct http_server_options o = options ? *options : (struct http_server_options){ 0 };
        struct err err;

        *r = (struct rig){ .base = event_base_new() };
        o.address = "127.0.0.1:0";
        o.on_done = on_done;
        o.ctx = r;
        if (http_server_create(r->base, &o, &r->server, &err) < 0)
                fail_msg("%s", err_line(&err));
        http_server_add(r->server, "POST", "/echo", echo, r, &err);
        http_server_add(r->server, "GET", "/echo", echo, r, &err);
        http_server_add(r->server, "GET", "/show/{id}", show, r, &err);
        http_server_add(r->server, "GET", "/big", big, r, &err);
        http_server_add(r->server, "GET", "/later", later, r, &err);
        http_server_add(r->server, "GET", "/stream", stream, r, &err);
        http_server_add(r->server, "GET", "/fail", fail_route, r, &err);
}

static inline void rig_stop(struct rig *r)
{
        http_server_destroy(r->server);
        event_base_free(r->base);
}

/* ---- a client ---- */

/* bytes: of its buffer for what it has not read yet; 0: as the kernel has it. */
static inline int dial_with_buffer(const struct rig *r, int bytes)
{
        struct sockaddr_in sa = { .sin_family = AF_INET,
                                  .sin_port = htons(http_server_port(r->server)),
                                  .sin_addr = { htonl(INADDR_LOOPBACK) } };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bytes)
                assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
        fd_nonblock(fd);
        return fd;
}
static inline int dial(const struct rig *r)
{
        return dial_with_buffer(r, 0);
}

static inline void say_n(struct rig *r, int fd, const char *text, size_t len)
{
        for (size_t at = 0; at < len;) {
                ssize_t n = send(fd, text + at, len - at, MSG_NOSIGNAL);
                if (n > 0)
                        at += (size_t)n;
                else if (errno != EAGAIN)
                        return;
                event_base_loop(r->base, EVLOOP_NONBLOCK);
        }
}
static inline void say(struct rig *r, int fd, const char *text)
{
        say_n(r, fd, text, strlen(text));
}

/* Reads what is there; true at the end of the stream. */
static inline bool hear(int fd, struct str *out)
{
        char buf[65536];
        ssize_t n;
        while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
                str_add(out, buf, (size_t)n);
        return n == 0 || (errno != EAGAIN && errno != EINTR);
}

/* Whether this is one answer of /big, all of it, and nothing else. */
static inline bool is_big(const struct str *s)
{
        const char *body = strstr(str_c(s), "\r\n\r\n");
        return body && strspn(body + 4, "b") == BIG_BYTES &&
               body + 4 + BIG_BYTES == s->buf + s->len;
}

static inline unsigned count_of(const struct str *s, const char *needle)
{
        unsigned n = 0;
        for (const char *p = str_c(s); (p = strstr(p, needle)); p++)
                n++;
        return n;
}

/* One request on its own connection; the answer in out. */
static inline void ask(struct rig *r, const char *request, struct str *out)
{
        int fd = dial(r);
        str_clear(out);
        say(r, fd, request);
        UNTIL(r->base, hear(fd, out));
        close(fd);
}
#define CLOSE "Host: h\r\nConnection: close\r\n"
#define assert_has(s, needle)                                                                      \
        do {                                                                                       \
                if (!strstr(str_c(s), needle))                                                     \
                        fail_msg("no %s in: %s", needle, str_c(s));                                \
        } while (0)

#endif
