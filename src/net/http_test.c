/* Tests of net/http.h: real sockets on loopback, server and raw clients on one loop. */
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
        unsigned closed, done, drained;
        int last_status;
        char last_route[64];
};

/* ---------- routes of the tests ---------- */

static void echo(struct http_request *req, void *ctx)
{
        size_t len;
        const char *body = http_body(req, &len);
        (void)ctx;
        http_reply(req, 200,
                   (struct http_field[]){ HTTP_FIELD("Content-Type", "text/plain"), HTTP_FIELD("X-Bad", "a\r\nb"), HTTP_FIELD_END }, body,
                   len);
}

static void show(struct http_request *req, void *ctx)
{
        const char *q = http_query(req, "q"), *h = http_header(req, "X-Some");
        struct str out = STR_INIT;
        (void)ctx;
        str_addf(&out, "id=%s q=%s h=%s path=%s n=%zu", http_param(req, "id"), q ? q : "-", h ? h : "-", http_path(req),
                 http_query_count(req));
        http_reply_json(req, 200, str_c(&out), out.len);
        str_fini(&out);
}

/* More than the sockets of both sides hold. */
enum { BIG_BYTES = 16 * 1024 * 1024 };

static void big(struct http_request *req, void *ctx)
{
        char *body = mem_must(BIG_BYTES);
        (void)ctx;
        memset(body, 'b', BIG_BYTES);
        http_reply_json(req, 200, body, BIG_BYTES);
        mem_free(body);
}

static void gone(struct http_request *req, void *ctx)
{
        struct rig *r = ctx;
        assert_ptr_equal(req, r->kept);
        r->kept = NULL;
        r->closed++;
}

static void later(struct http_request *req, void *ctx)
{
        struct rig *r = ctx;
        r->kept = req;
        r->kept_id = http_id(req);
        http_on_close(req, gone, r);
}

static void stream(struct http_request *req, void *ctx)
{
        later(req, ctx);
        http_sse_start(req, NULL);
}

static void fail_route(struct http_request *req, void *ctx)
{
        struct err err;
        (void)ctx;
        err_set(&err, ERR_LIMIT, .msg = "too \"much\"", .hint = "wait", .path = "spec.x", .retry_after_ms = 1500);
        http_reply_err(req, 0, &err);
}

static void on_done(const struct http_request *req, const char *route, int status, int64_t took_us, void *ctx)
{
        struct rig *r = ctx;
        (void)req;
        assert_true(took_us >= 0);
        r->done++;
        r->last_status = status;
        snprintf(r->last_route, sizeof(r->last_route), "%s", route);
}

static void rig_start(struct rig *r, const struct http_server_options *options)
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

static void rig_stop(struct rig *r)
{
        http_server_destroy(r->server);
        event_base_free(r->base);
}

/* ---------- a client ---------- */

static int dial(const struct rig *r)
{
        struct sockaddr_in sa = { .sin_family = AF_INET,
                                  .sin_port = htons(http_server_port(r->server)),
                                  .sin_addr = { htonl(INADDR_LOOPBACK) } };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
        fd_nonblock(fd);
        return fd;
}

static void say_n(struct rig *r, int fd, const char *text, size_t len)
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
static void say(struct rig *r, int fd, const char *text)
{
        say_n(r, fd, text, strlen(text));
}

/* Reads what is there; true at the end of the stream. */
static bool hear(int fd, struct str *out)
{
        char buf[65536];
        ssize_t n;
        while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
                str_add(out, buf, (size_t)n);
        return n == 0 || (errno != EAGAIN && errno != EINTR);
}

/* Whether this is one answer of /big, all of it, and nothing else. */
static bool is_big(const struct str *s)
{
        const char *body = strstr(str_c(s), "\r\n\r\n");
        return body && strspn(body + 4, "b") == BIG_BYTES && body + 4 + BIG_BYTES == s->buf + s->len;
}

static unsigned count_of(const struct str *s, const char *needle)
{
        unsigned n = 0;
        for (const char *p = str_c(s); (p = strstr(p, needle)); p++)
                n++;
        return n;
}

/* One request on its own connection; the answer in out. */
static void ask(struct rig *r, const char *request, struct str *out)
{
        int fd = dial(r);
        str_clear(out);
        say(r, fd, request);
        UNTIL(r->base, hear(fd, out));
        close(fd);
}
#define CLOSE "Host: h\r\nConnection: close\r\n"
#define assert_has(s, needle)                                                                                                              \
        do {                                                                                                                               \
                if (!strstr(str_c(s), needle))                                                                                             \
                        fail_msg("no %s in: %s", needle, str_c(s));                                                                        \
        } while (0)

/* ---------- requests ---------- */

static void requests_are_routed_and_answered(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, NULL);
        ask(&r, "POST /echo HTTP/1.1\r\n" CLOSE "Content-Length: 5\r\nX-Request-Id: abc-1\r\n\r\nhello", &out);
        assert_has(&out, "HTTP/1.1 200 OK\r\n");
        assert_has(&out, "Content-Length: 5\r\n");
        assert_has(&out, "X-Request-Id: abc-1\r\n");
        assert_has(&out, "\r\n\r\nhello");
        assert_null(strstr(str_c(&out), "X-Bad"));
        assert_int_equal(r.last_status, 200);
        assert_string_equal(r.last_route, "/echo");
        ask(&r, "GET /show/a%2Fb?q=1+2&x=%41 HTTP/1.1\r\n" CLOSE "x-some: v1\r\nX-Some: v2\r\n\r\n", &out);
        assert_has(&out, "id=a/b q=1 2 h=v1, v2 path=/show/a/b n=2");
        ask(&r, "GET /nothing HTTP/1.1\r\n" CLOSE "\r\n", &out);
        assert_has(&out, "HTTP/1.1 404 Not Found");
        assert_has(&out, "\"code\":\"not_found\"");
        assert_has(&out, "\"request_id\":\"");
        ask(&r, "DELETE /echo HTTP/1.1\r\n" CLOSE "\r\n", &out);
        assert_has(&out, "HTTP/1.1 405 ");
        assert_has(&out, "Allow: POST, GET, HEAD\r\n");
        ask(&r, "HEAD /show/x HTTP/1.1\r\n" CLOSE "\r\n", &out);
        assert_has(&out, "HTTP/1.1 200 OK");
        assert_has(&out, "Content-Length: 29\r\n");
        assert_true(str_ends(str_c(&out), "\r\n\r\n"));
        ask(&r, "GET /fail HTTP/1.1\r\n" CLOSE "\r\n", &out);
        assert_has(&out, "HTTP/1.1 429 ");
        assert_has(&out, "Retry-After: 2\r\n");
        assert_has(&out, "{\"code\":\"limit\",\"message\":\"too \\\"much\\\"\",\"hint\":\"wait\",\"path\":\"spec.x\",");
        assert_has(&out, "\"retry_after_ms\":1500}");
        ask(&r, "GET /show/1 HTTP/1.0\r\n\r\n", &out);
        assert_has(&out, "HTTP/1.1 200 OK");
        str_fini(&out);
        rig_stop(&r);
}

static void connections_are_kept_and_requests_pipelined(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, NULL);
        int fd = dial(&r);
        for (int i = 0; i < 50; i++)
                say(&r, fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\r\n");
        UNTIL(r.base, (hear(fd, &out), count_of(&out, "\r\n\r\nabc") == 50));
        assert_int_equal(http_server_connections(r.server), 1);
        str_clear(&out);
        say(&r, fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\nGET /show/2 HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        settle_ms(r.base, 10);
        hear(fd, &out);
        assert_int_equal(out.len, 0); /* in order: the second waits for the first */
        assert_ptr_equal(http_server_request(r.server, r.kept_id), r.kept);
        http_reply_json(r.kept, 200, "\"first\"", 7);
        r.kept = NULL;
        assert_null(http_server_request(r.server, r.kept_id));
        UNTIL(r.base, (hear(fd, &out), strstr(str_c(&out), "id=2")));
        assert_true(strstr(str_c(&out), "first") < strstr(str_c(&out), "id=2"));
        close(fd);
        UNTIL(r.base, http_server_connections(r.server) == 0);
        str_fini(&out);
        rig_stop(&r);
}

static size_t input_len(const struct rig *r)
{
        return r->server->conns ? evbuffer_get_length(bufferevent_get_input(r->server->conns->bev)) : 0;
}

static void empty_line_before_a_request_may_come_in_pieces(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        bool closed = false;
        (void)state;

        rig_start(&r, NULL);
        int fd = dial(&r);
        for (int i = 1; i <= 2; i++) {
                say(&r, fd, "\r");
                UNTIL(r.base, input_len(&r) == 1);
                say(&r, fd, "\nGET /show/1 HTTP/1.1\r\nHost: h\r\n\r\n");
                UNTIL(r.base, (hear(fd, &out), count_of(&out, "id=1") == (unsigned)i));
        }
        close(fd);
        rig_stop(&r);
        rig_start(&r, &(struct http_server_options){ .header_timeout_ms = 400, .idle_timeout_ms = 400 });
        fd = dial(&r);
        for (int i = 0; i < 400 && !closed; i++) { /* and prolongs nothing */
                (void)!send(fd, i % 2 ? "\n" : "\r", 1, MSG_NOSIGNAL);
                settle_ms(r.base, 5);
                closed = hear(fd, &out);
        }
        assert_true(closed);
        close(fd);
        str_clear(&out);
        ask(&r, "\rGET /show/1 HTTP/1.1\r\nHost: h\r\n\r\n", &out);
        assert_has(&out, "HTTP/1.1 400 ");
        str_fini(&out);
        rig_stop(&r);
}

/* The answer to a chunked body with this trailer, whose last bytes come later if it is split. */
static void ask_with_trailer(struct rig *r, const char *trailer, bool split, struct str *out)
{
        int fd = dial(r);
        size_t first = split ? strlen(trailer) - 1 : strlen(trailer);

        str_clear(out);
        say(r, fd, "POST /echo HTTP/1.1\r\n" CLOSE "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n");
        say_n(r, fd, trailer, first);
        if (split)
                UNTIL(r->base, hear(fd, out) || input_len(r) == first);
        say(r, fd, trailer + first);
        say(r, fd, "\r\n");
        UNTIL(r->base, hear(fd, out));
        close(fd);
}

static void trailers_are_checked(void **state)
{
        static const char *const bad[] = { "no colon\r\n", ": nameless\r\n", "a b: c\r\n", " folded: x\r\n", "a: b\nc\r\n" };
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, NULL);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                ask_with_trailer(&r, bad[i], false, &out);
                assert_has(&out, "HTTP/1.1 400 ");
        }
        for (int split = 0; split <= 1; split++) { /* the limit is one, however it comes */
                char line[300] = "";
                snprintf(line, sizeof(line), "x: %0253d\r\n", 0);
                ask_with_trailer(&r, line, split, &out);
                assert_has(&out, "\r\n\r\nhello");
                snprintf(line, sizeof(line), "x: %0254d\r\n", 0);
                ask_with_trailer(&r, line, split, &out);
                assert_has(&out, "HTTP/1.1 400 ");
        }
        str_fini(&out);
        rig_stop(&r);
}

static void chunked_bodies_are_read(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, NULL);
        ask(&r,
            "POST /echo HTTP/1.1\r\n" CLOSE
            "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n, 23456789\r\n0\r\nTrailer: x\r\n\r\n",
            &out);
        assert_has(&out, "\r\n\r\nhello, 23456789");
        ask(&r, "POST /echo HTTP/1.1\r\n" CLOSE "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n", &out);
        assert_has(&out, "HTTP/1.1 400 ");
        ask(&r, "POST /echo HTTP/1.1\r\n" CLOSE "Transfer-Encoding: chunked\r\n\r\nzz\r\n", &out);
        assert_has(&out, "HTTP/1.1 400 ");
        ask(&r, "POST /echo HTTP/1.1\r\n" CLOSE "Content-Length: 2\r\nExpect: 100-continue\r\n\r\nok", &out);
        assert_has(&out, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK");
        str_fini(&out);
        rig_stop(&r);
}

/* R: A11 */
static void large_requests_are_refused(void **state)
{
        struct rig r;
        struct str out = STR_INIT, req = STR_INIT;
        (void)state;

        rig_start(&r, &(struct http_server_options){ .max_body_bytes = 1000, .max_header_bytes = 2000 });
        ask(&r, "POST /echo HTTP/1.1\r\n" CLOSE "Content-Length: 1001\r\n\r\n", &out);
        assert_has(&out, "HTTP/1.1 413 ");
        str_adds(&req, "POST /echo HTTP/1.1\r\n" CLOSE "Transfer-Encoding: chunked\r\n\r\n3e8\r\n");
        for (int i = 0; i < 1000; i++)
                str_addc(&req, 'x');
        str_adds(&req, "\r\n1\r\nx\r\n0\r\n\r\n");
        ask(&r, req.buf, &out);
        assert_has(&out, "HTTP/1.1 413 ");
        /* a body that comes although it was refused must not eat the answer */
        str_clear(&req);
        str_adds(&req, "POST /echo HTTP/1.1\r\n" CLOSE "Content-Length: 500000\r\n\r\n");
        for (int i = 0; i < 500000; i++)
                str_addc(&req, 'x');
        ask(&r, req.buf, &out);
        assert_has(&out, "HTTP/1.1 413 ");
        str_clear(&req);
        str_adds(&req, "GET /echo HTTP/1.1\r\n" CLOSE "X-Big: ");
        for (int i = 0; i < 3000; i++)
                str_addc(&req, 'x');
        ask(&r, req.buf, &out);
        assert_has(&out, "HTTP/1.1 431 ");
        str_clear(&req);
        str_adds(&req, "GET /");
        for (int i = 0; i < 3000; i++)
                str_addc(&req, 'x');
        ask(&r, req.buf, &out);
        assert_has(&out, "HTTP/1.1 414 ");
        str_fini(&req);
        str_fini(&out);
        rig_stop(&r);
}

/* R: A11 */
static void slow_requests_time_out(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, &(struct http_server_options){ .header_timeout_ms = 60, .body_timeout_ms = 60, .idle_timeout_ms = 60 });
        int fd = dial(&r); /* nothing at all */
        UNTIL(r.base, hear(fd, &out));
        assert_int_equal(out.len, 0);
        close(fd);
        fd = dial(&r); /* a byte now and then does not help */
        bool closed = false;
        for (int i = 0; i < 100 && !closed; i++) {
                (void)!send(
                    fd,
                    &"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                        [i],
                    1, MSG_NOSIGNAL);
                settle_ms(r.base, 5);
                closed = hear(fd, &out);
        }
        assert_true(closed);
        assert_has(&out, "HTTP/1.1 408 ");
        close(fd);
        str_clear(&out);
        fd = dial(&r);
        say(&r, fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
        UNTIL(r.base, hear(fd, &out));
        assert_has(&out, "HTTP/1.1 408 ");
        close(fd);
        str_clear(&out);
        fd = dial(&r); /* idle after an answer: closed without a word */
        say(&r, fd, "GET /show/1 HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, hear(fd, &out));
        assert_int_equal(count_of(&out, "HTTP/1.1"), 1);
        close(fd);
        str_fini(&out);
        rig_stop(&r);
}

static void idle_time_begins_when_all_is_sent(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, &(struct http_server_options){ .idle_timeout_ms = 30 });
        int fd = dial(&r);
        say(&r, fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.done == 1);
        settle_ms(r.base, 120);
        assert_int_equal(http_server_connections(r.server), 1);
        UNTIL(r.base, hear(fd, &out)); /* and then it is idle for too long */
        assert_true(is_big(&out));
        close(fd);
        str_fini(&out);
        rig_stop(&r);
}

/* Not only its sending side: the next byte to it, or from it, is an error. */
static void leave_for_good(int fd)
{
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger));
        close(fd);
}

static void client_that_leaves_is_noticed(void **state)
{
        struct rig r;
        (void)state;

        rig_start(&r, NULL);
        int fd = dial(&r);
        say(&r, fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        leave_for_good(fd);
        UNTIL(r.base, r.closed == 1);
        assert_null(http_server_request(r.server, r.kept_id));
        UNTIL(r.base, http_server_connections(r.server) == 0);
        assert_int_equal(r.last_status, 499);
        fd = dial(&r);
        say(&r, fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        http_server_destroy(TAKE_PTR(r.server));
        assert_int_equal(r.closed, 2);
        close(fd);
        rig_stop(&r);
}

/* ---------- clients that send no more, and read on ---------- */

/* The whole of what this gets that shuts its sending side at once. */
static void ask_and_shut(struct rig *r, const char *requests, struct str *out)
{
        int fd = dial(r);
        str_clear(out);
        assert_int_equal(send(fd, requests, strlen(requests), MSG_NOSIGNAL), strlen(requests));
        shutdown(fd, SHUT_WR);
        UNTIL(r->base, hear(fd, out));
        close(fd);
        UNTIL(r->base, http_server_connections(r->server) == 0);
}

static void what_was_asked_before_the_end_is_answered(void **state)
{
        struct rig r;
        struct str out = STR_INIT, many = STR_INIT;
        (void)state;

        rig_start(&r, NULL);
        ask_and_shut(&r, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n", &out);
        assert_true(is_big(&out));
        for (int i = 0; i < 40; i++)
                str_adds(&many, "GET /show/1 HTTP/1.1\r\nHost: h\r\n\r\n");
        ask_and_shut(&r, str_c(&many), &out);
        assert_int_equal(count_of(&out, "id=1"), 40);
        str_adds(&many, "GET /show/1 HTTP/1.1\r\nHo"); /* what is not whole is not begun */
        ask_and_shut(&r, str_c(&many), &out);
        assert_int_equal(count_of(&out, "HTTP/1.1 200 OK"), 40);
        assert_int_equal(count_of(&out, "HTTP/1.1"), 40);
        unsigned done = r.done;
        ask_and_shut(&r, "GET /show/1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc", &out);
        assert_int_equal(count_of(&out, "HTTP/1.1"), 1);
        assert_int_equal(r.done, done + 2);
        assert_int_equal(r.last_status, 499);
        ask_and_shut(&r, "", &out);
        assert_int_equal(out.len, 0);
        str_fini(&many);
        str_fini(&out);
        rig_stop(&r);
}

static int shut_while_later_runs(struct rig *r, const char *more)
{
        int fd = dial(r);
        r->kept = NULL;
        say(r, fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
        say(r, fd, more);
        shutdown(fd, SHUT_WR);
        UNTIL(r->base, r->kept && r->kept->conn->eof);
        return fd;
}

static void late_answers_reach_those_that_send_no_more(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, NULL);
        int fd = shut_while_later_runs(&r, "GET /show/2 HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(r.closed, 0);
        http_reply_json(TAKE_PTR(r.kept), 200, "\"first\"", 7);
        UNTIL(r.base, hear(fd, &out));
        assert_has(&out, "\"first\"");
        assert_has(&out, "id=2");
        close(fd);
        UNTIL(r.base, http_server_connections(r.server) == 0);

        fd = shut_while_later_runs(&r, ""); /* a stream with an end is an answer */
        http_stream_start(r.kept, 200, NULL);
        http_stream_send(r.kept, "piece", 5);
        http_stream_close(TAKE_PTR(r.kept));
        str_clear(&out);
        UNTIL(r.base, hear(fd, &out));
        assert_has(&out, "5\r\npiece\r\n0\r\n\r\n");
        close(fd);
        UNTIL(r.base, http_server_connections(r.server) == 0);
        assert_int_equal(r.closed, 0);

        fd = shut_while_later_runs(&r, ""); /* it was no half: it has left */
        close(fd);
        char *body = mem_must(BIG_BYTES);
        http_reply_json(TAKE_PTR(r.kept), 200, body, BIG_BYTES);
        mem_free(body);
        UNTIL(r.base, http_server_connections(r.server) == 0);
        str_fini(&out);
        rig_stop(&r);
}

/* R: A11 */
static void who_sends_no_more_holds_nothing_for_ever(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, &(struct http_server_options){ .write_timeout_ms = 40 });
        int fd = dial(&r);
        say(&r, fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n"); /* it never reads */
        shutdown(fd, SHUT_WR);
        UNTIL(r.base, r.done == 1 && http_server_connections(r.server) == 0);
        close(fd);

        fd = dial(&r);
        say(&r, fd, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        shutdown(fd, SHUT_WR);
        UNTIL(r.base, r.closed == 1);
        close(fd);

        fd = shut_while_later_runs(&r, "");
        http_sse_start(r.kept, NULL); /* such a stream would have no end */
        UNTIL(r.base, r.closed == 2);
        close(fd);

        fd = shut_while_later_runs(&r, "");
        http_stream_start(r.kept, 200, NULL); /* a silent one neither */
        http_stream_send(r.kept, "piece", 5);
        UNTIL(r.base, hear(fd, &out));
        assert_has(&out, "piece");
        assert_int_equal(r.closed, 3);
        close(fd);
        str_fini(&out);
        rig_stop(&r);
}

/* ---------- streams ---------- */

static void events_are_streamed(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, &(struct http_server_options){ .comment_ms = 30 });
        int fd = dial(&r);
        say(&r, fd, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        assert_int_equal(http_sse_send(r.kept, "7", "NodeReady", "line 1\nline 2", 13), 0);
        UNTIL(r.base, (hear(fd, &out), strstr(str_c(&out), "id: 7\nevent: NodeReady\ndata: line 1\ndata: line 2\n\n")));
        assert_has(&out, "Content-Type: text/event-stream\r\n");
        assert_has(&out, "Transfer-Encoding: chunked\r\n");
        UNTIL(r.base, (hear(fd, &out), count_of(&out, "3\r\n:\n\n\r\n") >= 2)); /* comments keep it alive */
        http_sse_send(r.kept, NULL, NULL, "", 0);
        http_stream_close(r.kept);
        r.kept = NULL;
        UNTIL(r.base, (hear(fd, &out), strstr(str_c(&out), "data: \n\n\r\n0\r\n\r\n")));
        str_clear(&out);
        say(&r, fd, "GET /show/1 HTTP/1.1\r\nHost: h\r\n\r\n"); /* and the connection can be used again */
        UNTIL(r.base, (hear(fd, &out), strstr(str_c(&out), "id=1")));
        close(fd);
        fd = dial(&r);
        say(&r, fd, "GET /stream HTTP/1.0\r\n\r\n");
        UNTIL(r.base, r.kept);
        http_stream_send(r.kept, "raw", 3);
        http_stream_close(TAKE_PTR(r.kept));
        str_clear(&out);
        UNTIL(r.base, hear(fd, &out));
        assert_true(str_ends(str_c(&out), "\r\n\r\nraw"));
        close(fd);
        str_fini(&out);
        rig_stop(&r);
}

static void head_of_a_stream_ends_with_its_header(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, NULL);
        int fd = dial(&r);
        say(&r, fd, "HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\nGET /show/2 HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, (hear(fd, &out), strstr(str_c(&out), "id=2")));
        assert_has(&out, "Content-Type: text/event-stream\r\n");
        assert_int_equal(r.closed, 1); /* its route knows */
        str_clear(&out);
        say(&r, fd, "HEAD /later HTTP/1.1\r\nHost: h\r\n\r\nGET /show/3 HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        http_stream_start(r.kept, 200, NULL); /* one that is closed by its route at once */
        http_stream_send(r.kept, "piece", 5);
        http_stream_close(TAKE_PTR(r.kept));
        UNTIL(r.base, (hear(fd, &out), strstr(str_c(&out), "id=3")));
        assert_null(strstr(str_c(&out), "piece"));
        assert_int_equal(r.closed, 1);
        close(fd);
        UNTIL(r.base, http_server_connections(r.server) == 0);
        str_fini(&out);
        rig_stop(&r);
}

/* R: A11 */
static void client_that_never_reads_is_dropped(void **state)
{
        struct rig r;
        char *block = mem_must(64 * 1024);
        int n = 0, sent = 0;
        (void)state;

        rig_start(&r, &(struct http_server_options){ .max_queued_bytes = 256 * 1024 });
        int fd = dial(&r);
        say(&r, fd, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        while ((n = http_stream_send(r.kept, block, 64 * 1024)) == 0 && sent++ < 1000) {
                assert_true(http_stream_queued_bytes(r.kept) <= 256 * 1024 + 64);
                event_base_loop(r.base, EVLOOP_NONBLOCK);
        }
        assert_int_equal(n, -ERR_LIMIT);
        assert_int_equal(r.closed, 0);
        assert_int_equal(http_stream_send(r.kept, "x", 1), -ERR_CANCELLED);
        UNTIL(r.base, r.closed == 1);
        UNTIL(r.base, http_server_connections(r.server) == 0);
        close(fd);
        mem_free(block);
        rig_stop(&r);
}

/* A kernel whose buffer is full says that there is room again when a part of it is free: of a large one, that is long after. */
static void read_through_a_small_window(int fd)
{
        int bytes = 64 * 1024;
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
}

/* R: A11 */
static void slow_reader_is_not_one_that_never_reads(void **state)
{
        enum { WRITE_MS = 200, TICK_MS = 10, TICK_BYTES = 16 * 1024 };
        struct rig r;
        struct str out = STR_INIT;
        char *piece = mem_must(TICK_BYTES);
        (void)state;

        rig_start(&r, &(struct http_server_options){
                          .write_timeout_ms = WRITE_MS,
                      });
        int fd = dial(&r);
        read_through_a_small_window(fd);
        say(&r, fd, "GET /big HTTP/1.1\r\n" CLOSE "\r\n");
        /* less than what makes the socket writable again: several times the timeout */
        for (int64_t end = clock_mono_ns() + 4 * WRITE_MS * INT64_C(1000000); clock_mono_ns() < end;) {
                ssize_t n = recv(fd, piece, TICK_BYTES, MSG_DONTWAIT);
                if (n > 0)
                        str_add(&out, piece, (size_t)n);
                settle_ms(r.base, TICK_MS);
                assert_int_equal(http_server_connections(r.server), 1);
        }
        UNTIL(r.base, hear(fd, &out));
        assert_true(is_big(&out));
        close(fd);
        fd = dial(&r);
        say(&r, fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
        int64_t begun = clock_mono_ns();
        UNTIL(r.base, http_server_connections(r.server) == 0); /* this one reads nothing */
        assert_true(clock_mono_ns() - begun >= WRITE_MS * INT64_C(1000000));
        close(fd);
        mem_free(piece);
        str_fini(&out);
        rig_stop(&r);
}

static void drained(struct http_request *req, void *ctx)
{
        struct rig *r = ctx;
        (void)req;
        r->drained++;
}

static void writers_hear_when_there_is_room(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        char *block = mem_must(64 * 1024);
        (void)state;

        rig_start(&r, NULL);
        int fd = dial(&r);
        say(&r, fd, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        for (int i = 0; i < 10; i++)
                http_stream_send(r.kept, block, 64 * 1024);
        http_stream_on_drain(r.kept, drained, &r);
        assert_int_equal(r.drained, 0);
        UNTIL(r.base, (hear(fd, &out), r.drained == 1));
        http_stream_on_drain(r.kept, drained, &r); /* already empty */
        UNTIL(r.base, r.drained == 2);
        close(fd);
        str_fini(&out);
        mem_free(block);
        rig_stop(&r);
}

/* ---------- the server ---------- */

static void set_true(void *flag)
{
        *(bool *)flag = true;
}

/* R: A12 */
static void drain_finishes_what_runs(void **state)
{
        struct rig r;
        struct str out = STR_INIT, events = STR_INIT;
        bool done = false;
        (void)state;

        rig_start(&r, NULL);
        int idle = dial(&r), busy = dial(&r), sse = dial(&r);
        say(&r, sse, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        struct http_request *streaming = r.kept;
        r.kept = NULL;
        say(&r, busy, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        struct http_request *running = r.kept;
        r.kept = streaming; /* its on_close comes first */
        http_server_drain(r.server, 5000, set_true, &done);
        assert_int_equal(r.closed, 1);
        UNTIL(r.base, hear(idle, &out));
        UNTIL(r.base, hear(sse, &events));
        assert_has(&events, "0\r\n\r\n");
        assert_false(done);
        http_reply_json(running, 200, "\"ok\"", 4);
        UNTIL(r.base, hear(busy, &out));
        assert_has(&out, "Connection: close\r\n");
        assert_has(&out, "\"ok\"");
        UNTIL(r.base, done);
        close(idle);
        close(busy);
        close(sse);
        str_fini(&out);
        str_fini(&events);
        rig_stop(&r);
}

/* R: A12 */
static void drain_sends_what_waits(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        bool done = false;
        (void)state;

        rig_start(&r, NULL);
        int fd = dial(&r);
        say(&r, fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\nGET /show/2 HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.done == 1);
        http_server_drain(r.server, 5000, set_true, &done);
        event_base_loop(r.base, EVLOOP_NONBLOCK);
        assert_false(done);
        UNTIL(r.base, hear(fd, &out));
        assert_true(is_big(&out));
        assert_int_equal(r.done, 1); /* the second was not begun */
        close(fd);
        UNTIL(r.base, done);
        str_fini(&out);
        rig_stop(&r);
}

/* R: A12 */
static void drain_ends_at_its_deadline(void **state)
{
        struct rig r;
        bool done = false;
        (void)state;

        rig_start(&r, NULL);
        int fd = dial(&r);
        say(&r, fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.done == 1);
        http_server_drain(r.server, 30, set_true, &done);
        UNTIL(r.base, done); /* although nobody reads */
        assert_int_equal(http_server_connections(r.server), 0);
        close(fd);
        rig_stop(&r);
}

/* R: A11 */
static void many_idle_connections_are_cheap_and_limited(void **state)
{
        enum { N = 2000 };
        struct rig r;
        int *fds = mem_must(sizeof(int) * (N + 1));
        struct rlimit limit;
        int n = N;
        (void)state;

        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        if (limit.rlim_cur < 2 * N + 100)
                n = (int)limit.rlim_cur / 2 - 100;
        rig_start(&r, &(struct http_server_options){ .max_connections = (uint32_t)n });
        for (int i = 0; i < n; i++) {
                fds[i] = dial(&r);
                event_base_loop(r.base, EVLOOP_NONBLOCK);
        }
        UNTIL(r.base, http_server_connections(r.server) == (uint32_t)n);
        struct str out = STR_INIT;
        fds[n] = dial(&r);
        UNTIL(r.base, hear(fds[n], &out)); /* one too many */
        say(&r, fds[n - 1], "GET /show/1 HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, (hear(fds[n - 1], &out), strstr(str_c(&out), "id=1")));
        for (int i = 0; i <= n; i++)
                close(fds[i]);
        UNTIL(r.base, http_server_connections(r.server) == 0);
        mem_free(fds);
        str_fini(&out);
        rig_stop(&r);
}

static void port_in_use_is_said_clearly(void **state)
{
        struct rig r;
        struct http_server *second = NULL;
        struct err err;
        char address[32];
        (void)state;

        rig_start(&r, NULL);
        snprintf(address, sizeof(address), "127.0.0.1:%u", http_server_port(r.server));
        assert_int_equal(http_server_create(r.base, &(struct http_server_options){ .address = address }, &second, &err), -ERR_UNAVAILABLE);
        assert_string_equal(err.msg, fmt("port %u is in use", http_server_port(r.server)));
        assert_true(err.hint[0]);
        rig_stop(&r);
}

static void listening_socket_has_no_nagle(void **state)
{
        struct err err;
        uint16_t port;
        int on = 0;
        socklen_t len = sizeof(on);
        (void)state;

        int fd = addr_listen("127.0.0.1:0", "test", 1, &port, &err);
        assert_true(fd >= 0);
        getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len);
        assert_true(on);
        close(fd);
}

/* R: A3 */
static void random_bytes_never_hurt(void **state)
{
        static const char seed[] = "POST /echo?x=1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET "
                                   "/show/1 HTTP/1.1\r\nHost: h\r\n\r\n";
        struct rig r;
        struct rng rng;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, NULL);
        rng_seed(&rng, 9);
        for (int i = 0; i < 1000; i++) {
                char text[sizeof(seed)];
                memcpy(text, seed, sizeof(seed));
                for (uint64_t k = rng_below(&rng, 5); k > 0; k--)
                        text[rng_below(&rng, sizeof(seed) - 1)] = (char)rng_next(&rng);
                int fd = dial(&r);
                say_n(&r, fd, text, rng_below(&rng, sizeof(seed)));
                event_base_loop(r.base, EVLOOP_NONBLOCK);
                close(fd);
        }
        ask(&r, "GET /show/alive HTTP/1.1\r\n" CLOSE "\r\n", &out);
        assert_has(&out, "id=alive");
        UNTIL(r.base, http_server_connections(r.server) == 0);
        str_fini(&out);
        rig_stop(&r);
}

/* ---------- TLS ---------- */

struct tls_rig {
        struct tls *server, *client;
        char dir[64];
};

static void tls_rig_start(struct tls_rig *t)
{
        struct tls_pair ca, pair;
        struct err err;
        char cert[96], key[96], bundle[96];
        const char *tmp = getenv("TMPDIR");

        *t = (struct tls_rig){ 0 };
        snprintf(t->dir, sizeof(t->dir), "%.40s/berth-http-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(t->dir));
        snprintf(cert, sizeof(cert), "%s/s.crt", t->dir);
        snprintf(key, sizeof(key), "%s/s.key", t->dir);
        snprintf(bundle, sizeof(bundle), "%s/ca.crt", t->dir);
        assert_int_equal(tls_make_ca(&(struct tls_issue_options){ .cn = "ca" }, &ca, &err), 0);
        assert_int_equal(
            tls_issue(&ca, &(struct tls_issue_options){ .cn = "s", .ips = (const char *const[]){ "127.0.0.1", NULL } }, &pair, &err), 0);
        assert_int_equal(file_write_atomic(cert, pair.cert.buf, pair.cert.len, 0600, &err), 0);
        assert_int_equal(file_write_atomic(key, pair.key.buf, pair.key.len, 0600, &err), 0);
        assert_int_equal(file_write_atomic(bundle, ca.cert.buf, ca.cert.len, 0600, &err), 0);
        assert_int_equal(
            tls_server_create(&(struct tls_options){ .cert_file = cert, .key_file = key, .ca_file = bundle }, &t->server, &err), 0);
        assert_int_equal(tls_client_create(&(struct tls_options){ .ca_file = bundle }, &t->client, &err), 0);
        tls_pair_fini(&pair);
        tls_pair_fini(&ca);
}

static void tls_rig_stop(struct tls_rig *t)
{
        tls_unref(t->server);
        tls_unref(t->client);
        dir_remove(t->dir, NULL);
}

/* Its socket is SSL_get_fd(). */
static SSL *tls_dial(struct rig *r, struct tls_rig *t, const char *request)
{
        struct err err;
        SSL *ssl = tls_new_ssl(t->client, "http/1.1", "127.0.0.1", &err);

        SSL_set_fd(ssl, dial(r));
        UNTIL(r->base, SSL_connect(ssl) == 1);
        assert_int_equal(SSL_write(ssl, request, (int)strlen(request)), strlen(request));
        return ssl;
}

static void tls_hang_up(SSL *ssl)
{
        int fd = SSL_get_fd(ssl);
        SSL_free(ssl);
        close(fd);
}

/* Reads what is there; true at the end. */
static bool tls_hear(SSL *ssl, struct str *out)
{
        char buf[65536];
        int n;
        while ((n = SSL_read(ssl, buf, sizeof(buf))) > 0)
                str_add(out, buf, (size_t)n);
        return SSL_get_error(ssl, n) != SSL_ERROR_WANT_READ;
}

static void https_is_spoken(void **state)
{
        struct rig r;
        struct tls_rig t;
        struct str out = STR_INIT;
        (void)state;

        tls_rig_start(&t);
        rig_start(&r, &(struct http_server_options){ .tls = t.server, .write_timeout_ms = 40 });
        SSL *ssl = tls_dial(&r, &t, "GET /show/tls HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        assert_true(tls_alpn_is(ssl, "http/1.1"));
        UNTIL(r.base, tls_hear(ssl, &out));
        assert_has(&out, "id=tls");
        UNTIL(r.base, http_server_connections(r.server) == 0);
        tls_hang_up(ssl);

        /* a stream that has nothing to say is not a client that does not read */
        ssl = tls_dial(&r, &t, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        settle_ms(r.base, 150);
        assert_int_equal(r.closed, 0);
        http_sse_send(r.kept, "1", NULL, "late", 4);
        UNTIL(r.base, (tls_hear(ssl, &out), strstr(str_c(&out), "data: late")));
        SSL_shutdown(ssl);
        tls_hang_up(ssl);
        UNTIL(r.base, r.closed == 1);
        str_fini(&out);
        rig_stop(&r);
        tls_rig_stop(&t);
}

/* R: A11 */
static void https_slow_reader_is_not_one_that_never_reads(void **state)
{
        enum { WRITE_MS = 200, TICK_MS = 10, TICK_BYTES = 16 * 1024 };
        struct rig r;
        struct tls_rig t;
        struct str out = STR_INIT;
        char *piece = mem_must(TICK_BYTES);
        (void)state;

        tls_rig_start(&t);
        rig_start(&r, &(struct http_server_options){ .tls = t.server, .write_timeout_ms = WRITE_MS });
        SSL *ssl = tls_dial(&r, &t, "GET /big HTTP/1.1\r\n" CLOSE "\r\n");
        read_through_a_small_window(SSL_get_fd(ssl));
        for (int64_t end = clock_mono_ns() + 4 * WRITE_MS * INT64_C(1000000); clock_mono_ns() < end;) {
                int n = SSL_read(ssl, piece, TICK_BYTES);
                if (n > 0)
                        str_add(&out, piece, (size_t)n);
                settle_ms(r.base, TICK_MS);
                assert_int_equal(http_server_connections(r.server), 1);
        }
        UNTIL(r.base, tls_hear(ssl, &out));
        assert_true(is_big(&out));
        tls_hang_up(ssl);
        ssl = tls_dial(&r, &t, "GET /big HTTP/1.1\r\n" CLOSE "\r\n");
        UNTIL(r.base, r.done == 2 && http_server_connections(r.server) == 0);
        tls_hang_up(ssl);
        mem_free(piece);
        str_fini(&out);
        rig_stop(&r);
        tls_rig_stop(&t);
}

static void https_clients_that_send_no_more_are_answered(void **state)
{
        struct rig r;
        struct tls_rig t;
        struct str out = STR_INIT;
        (void)state;

        tls_rig_start(&t);
        rig_start(&r, &(struct http_server_options){ .tls = t.server });
        SSL *ssl = tls_dial(&r, &t, "GET /later HTTP/1.1\r\nHost: h\r\n\r\nGET /show/2 HTTP/1.1\r\nHost: h\r\n\r\n");
        SSL_shutdown(ssl);
        shutdown(SSL_get_fd(ssl), SHUT_WR);
        UNTIL(r.base, r.kept && r.kept->conn->eof);
        http_reply_json(TAKE_PTR(r.kept), 200, "\"first\"", 7);
        UNTIL(r.base, tls_hear(ssl, &out));
        assert_has(&out, "\"first\"");
        assert_has(&out, "id=2");
        tls_hang_up(ssl);
        UNTIL(r.base, http_server_connections(r.server) == 0);

        ssl = tls_dial(&r, &t, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
        SSL_shutdown(ssl);
        str_clear(&out);
        UNTIL(r.base, tls_hear(ssl, &out));
        assert_true(is_big(&out));
        tls_hang_up(ssl);
        UNTIL(r.base, http_server_connections(r.server) == 0);

        ssl = tls_dial(&r, &t, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n"); /* this one leaves */
        SSL_shutdown(ssl);
        tls_hang_up(ssl);
        UNTIL(r.base, r.done == 4 && http_server_connections(r.server) == 0);
        str_fini(&out);
        rig_stop(&r);
        tls_rig_stop(&t);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(requests_are_routed_and_answered),
                cmocka_unit_test(connections_are_kept_and_requests_pipelined),
                cmocka_unit_test(empty_line_before_a_request_may_come_in_pieces),
                cmocka_unit_test(chunked_bodies_are_read),
                cmocka_unit_test(trailers_are_checked),
                cmocka_unit_test(large_requests_are_refused),
                cmocka_unit_test(slow_requests_time_out),
                cmocka_unit_test(idle_time_begins_when_all_is_sent),
                cmocka_unit_test(client_that_leaves_is_noticed),
                cmocka_unit_test(what_was_asked_before_the_end_is_answered),
                cmocka_unit_test(late_answers_reach_those_that_send_no_more),
                cmocka_unit_test(who_sends_no_more_holds_nothing_for_ever),
                cmocka_unit_test(events_are_streamed),
                cmocka_unit_test(head_of_a_stream_ends_with_its_header),
                cmocka_unit_test(client_that_never_reads_is_dropped),
                cmocka_unit_test(slow_reader_is_not_one_that_never_reads),
                cmocka_unit_test(writers_hear_when_there_is_room),
                cmocka_unit_test(drain_finishes_what_runs),
                cmocka_unit_test(drain_sends_what_waits),
                cmocka_unit_test(drain_ends_at_its_deadline),
                cmocka_unit_test(many_idle_connections_are_cheap_and_limited),
                cmocka_unit_test(port_in_use_is_said_clearly),
                cmocka_unit_test(listening_socket_has_no_nagle),
                cmocka_unit_test(random_bytes_never_hurt),
                cmocka_unit_test(https_is_spoken),
                cmocka_unit_test(https_slow_reader_is_not_one_that_never_reads),
                cmocka_unit_test(https_clients_that_send_no_more_are_answered),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
