/* Tests of net/http.h: requests, and the server as a whole; real sockets on loopback, server and
 * raw clients on one loop. */
#include "net/http_test_rig.h"

/* ---- requests ---- */

static void requests_are_routed_and_answered(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, NULL);
        ask(&r,
            "POST /echo HTTP/1.1\r\n" CLOSE "Content-Length: 5\r\nX-Request-Id: abc-1\r\n\r\nhello",
            &out);
        assert_has(&out, "HTTP/1.1 200 OK\r\n");
        assert_has(&out, "Content-Length: 5\r\n");
        assert_has(&out, "X-Request-Id: abc-1\r\n");
        assert_has(&out, "\r\n\r\nhello");
        assert_null(strstr(str_c(&out), "X-Bad"));
        assert_int_equal(r.last_status, 200);
        assert_string_equal(r.last_route, "/echo");
        ask(&r, "GET /show/a%2Fb?q=1+2&x=%41 HTTP/1.1\r\n" CLOSE "x-some: v1\r\nX-Some: v2\r\n\r\n",
            &out);
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
        assert_has(&out, "{\"code\":\"limit\",\"message\":\"too "
                         "\\\"much\\\"\",\"hint\":\"wait\",\"path\":\"spec.x\",");
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
        say(&r, fd,
            "GET /later HTTP/1.1\r\nHost: h\r\n\r\nGET /show/2 HTTP/1.1\r\nHost: h\r\n\r\n");
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
        return r->server->conns ? evbuffer_get_length(bufferevent_get_input(r->server->conns->bev))
                                : 0;
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
        rig_start(
            &r, &(struct http_server_options){ .header_timeout_ms = 400, .idle_timeout_ms = 400 });
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
        say(r, fd,
            "POST /echo HTTP/1.1\r\n" CLOSE
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n");
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
        static const char *const bad[] = { "no colon\r\n", ": nameless\r\n", "a b: c\r\n",
                                           " folded: x\r\n", "a: b\nc\r\n" };
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
            "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n, 23456789\r\n0\r\nTrailer: "
            "x\r\n\r\n",
            &out);
        assert_has(&out, "\r\n\r\nhello, 23456789");
        ask(&r,
            "POST /echo HTTP/1.1\r\n" CLOSE
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
            &out);
        assert_has(&out, "HTTP/1.1 400 ");
        ask(&r, "POST /echo HTTP/1.1\r\n" CLOSE "Transfer-Encoding: chunked\r\n\r\nzz\r\n", &out);
        assert_has(&out, "HTTP/1.1 400 ");
        ask(&r,
            "POST /echo HTTP/1.1\r\n" CLOSE "Content-Length: 2\r\nExpect: 100-continue\r\n\r\nok",
            &out);
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

        rig_start(
            &r, &(struct http_server_options){ .max_body_bytes = 1000, .max_header_bytes = 2000 });
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

        rig_start(&r, &(struct http_server_options){
                          .header_timeout_ms = 60, .body_timeout_ms = 60, .idle_timeout_ms = 60 });
        int fd = dial(&r); /* nothing at all */
        UNTIL(r.base, hear(fd, &out));
        assert_int_equal(out.len, 0);
        close(fd);
        fd = dial(&r); /* a byte now and then does not help */
        bool closed = false;
        for (int i = 0; i < 100 && !closed; i++) {
                (void)!send(fd,
                            &"GET "
                             "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                             "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"[i],
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
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
                   sizeof(struct linger));
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

/* ---- the server ---- */

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

/* R: A11 A13 */
static void one_address_has_a_part_of_the_connections(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        int fds[3];
        (void)state;

        rig_start(&r, &(struct http_server_options){ .max_per_peer = 2 });
        for (int i = 0; i < 3; i++) {
                fds[i] = dial(&r);
                settle_ms(r.base, 5);
        }
        UNTIL(r.base, hear(fds[2], &out));
        close(fds[2]);
        close(fds[0]); /* who has gone makes room */
        UNTIL(r.base, http_server_connections(r.server) == 1);
        ask(&r, "GET /show/1 HTTP/1.1\r\n" CLOSE "\r\n", &out);
        assert_has(&out, "id=1");
        close(fds[1]);
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
        assert_int_equal(http_server_create(r.base,
                                            &(struct http_server_options){ .address = address },
                                            &second, &err),
                         -ERR_UNAVAILABLE);
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
        static const char seed[] = "POST /echo?x=1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                                   "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET "
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
                cmocka_unit_test(drain_finishes_what_runs),
                cmocka_unit_test(drain_sends_what_waits),
                cmocka_unit_test(drain_ends_at_its_deadline),
                cmocka_unit_test(many_idle_connections_are_cheap_and_limited),
                cmocka_unit_test(one_address_has_a_part_of_the_connections),
                cmocka_unit_test(port_in_use_is_said_clearly),
                cmocka_unit_test(listening_socket_has_no_nagle),
                cmocka_unit_test(random_bytes_never_hurt),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
