/* Tests of net/http.h: clients that send no more and read on, that read slowly or not at all,
 * streams, and the same over TLS. */
#include "net/http_test_rig.h"

/* ---- clients that send no more, and read on ---- */

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
        ask_and_shut(&r,
                     "GET /show/1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /echo HTTP/1.1\r\nHost: "
                     "h\r\nContent-Length: 9\r\n\r\nabc",
                     &out);
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

/* Nothing tells a client that has closed from one that only sends no more, until something is sent
 * to it. R: A11 A12 */
static void who_has_closed_while_it_waited_is_noticed(void **state)
{
        struct rig r;
        struct str out = STR_INIT;
        (void)state;

        rig_start(&r, NULL);
        int fd = dial(&r);
        say(&r, fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        close(fd);
        UNTIL(r.base, r.closed == 1);
        assert_int_equal(http_server_connections(r.server), 0);

        fd = shut_while_later_runs(&r, ""); /* this one goes on waiting */
        UNTIL(r.base, (hear(fd, &out), out.len > 0));
        settle_ms(r.base, 1500);
        assert_int_equal(r.closed, 1);
        http_reply_json(TAKE_PTR(r.kept), 200, "\"late\"", 6);
        UNTIL(r.base, hear(fd, &out));
        assert_true(str_starts(str_c(&out), "HTTP/1.1 100 Continue\r\n\r\n"));
        assert_has(&out, "HTTP/1.1 200 ");
        assert_has(&out, "\"late\"");
        close(fd);

        str_clear(&out);
        fd = dial(&r); /* an old one knows no answers before the answer */
        say(&r, fd, "GET /later HTTP/1.0\r\n\r\n");
        shutdown(fd, SHUT_WR);
        UNTIL(r.base, r.kept && r.kept->conn->eof);
        settle_ms(r.base, 1200);
        http_reply_json(TAKE_PTR(r.kept), 200, "\"old\"", 5);
        UNTIL(r.base, hear(fd, &out));
        assert_true(str_starts(str_c(&out), "HTTP/1.1 200 "));
        close(fd);
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

/* ---- streams ---- */

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
        UNTIL(r.base,
              (hear(fd, &out),
               strstr(str_c(&out), "id: 7\nevent: NodeReady\ndata: line 1\ndata: line 2\n\n")));
        assert_has(&out, "Content-Type: text/event-stream\r\n");
        assert_has(&out, "Transfer-Encoding: chunked\r\n");
        /* comments keep it alive */
        UNTIL(r.base, (hear(fd, &out), count_of(&out, "3\r\n:\n\n\r\n") >= 2));
        http_sse_send(r.kept, NULL, NULL, "", 0);
        http_stream_close(r.kept);
        r.kept = NULL;
        UNTIL(r.base, (hear(fd, &out), strstr(str_c(&out), "data: \n\n\r\n0\r\n\r\n")));
        str_clear(&out);
        /* and the connection can be used again */
        say(&r, fd, "GET /show/1 HTTP/1.1\r\nHost: h\r\n\r\n");
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
        say(&r, fd,
            "HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\nGET /show/2 HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, (hear(fd, &out), strstr(str_c(&out), "id=2")));
        assert_has(&out, "Content-Type: text/event-stream\r\n");
        assert_int_equal(r.closed, 1); /* its route knows */
        str_clear(&out);
        say(&r, fd,
            "HEAD /later HTTP/1.1\r\nHost: h\r\n\r\nGET /show/3 HTTP/1.1\r\nHost: h\r\n\r\n");
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

/* A kernel whose buffer is full says that there is room again when a part of it is free: of a large
 * one, that is long after. */
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
        for (int64_t end = clock_mono_ns() + 4 * WRITE_MS * INT64_C(1000000);
             clock_mono_ns() < end;) {
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

/* A little now and then holds the connection and the whole answer for as long as it likes. R: A11
 * A13 */
static void reader_of_next_to_nothing_is_dropped(void **state)
{
        enum { WRITE_MS = 1000, TICK_MS = 50, TICK_BYTES = 512 };
        struct rig r;
        char piece[TICK_BYTES];
        (void)state;

        rig_start(&r, &(struct http_server_options){ .write_timeout_ms = WRITE_MS });
        /* the least there is: what it reads is acknowledged soon */
        int fd = dial_with_buffer(&r, 1);
        int64_t begun = clock_mono_ns(), end = begun + 8 * WRITE_MS * INT64_C(1000000);
        say(&r, fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.done == 1);
        while (http_server_connections(r.server) > 0 && clock_mono_ns() < end) {
                (void)!recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
                settle_ms(r.base, TICK_MS);
        }
        assert_int_equal(http_server_connections(r.server), 0);
        assert_true(clock_mono_ns() - begun >= WRITE_MS * INT64_C(1000000));
        close(fd);
        rig_stop(&r);
}

/* ---- TLS ---- */

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
            tls_issue(&ca,
                      &(struct tls_issue_options){
                          .cn = "s", .ips = (const char *const[]){ "127.0.0.1", NULL } },
                      &pair, &err),
            0);
        assert_int_equal(file_write_atomic(cert, pair.cert.buf, pair.cert.len, 0600, &err), 0);
        assert_int_equal(file_write_atomic(key, pair.key.buf, pair.key.len, 0600, &err), 0);
        assert_int_equal(file_write_atomic(bundle, ca.cert.buf, ca.cert.len, 0600, &err), 0);
        assert_int_equal(
            tls_server_create(
                &(struct tls_options){ .cert_file = cert, .key_file = key, .ca_file = bundle },
                &t->server, &err),
            0);
        assert_int_equal(
            tls_client_create(&(struct tls_options){ .ca_file = bundle }, &t->client, &err), 0);
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
        SSL *ssl =
            tls_dial(&r, &t, "GET /show/tls HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
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
        rig_start(&r,
                  &(struct http_server_options){ .tls = t.server, .write_timeout_ms = WRITE_MS });
        SSL *ssl = tls_dial(&r, &t, "GET /big HTTP/1.1\r\n" CLOSE "\r\n");
        read_through_a_small_window(SSL_get_fd(ssl));
        for (int64_t end = clock_mono_ns() + 4 * WRITE_MS * INT64_C(1000000);
             clock_mono_ns() < end;) {
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
        SSL *ssl = tls_dial(
            &r, &t,
            "GET /later HTTP/1.1\r\nHost: h\r\n\r\nGET /show/2 HTTP/1.1\r\nHost: h\r\n\r\n");
        SSL_shutdown(ssl);
        shutdown(SSL_get_fd(ssl), SHUT_WR);
        UNTIL(r.base, r.kept && r.kept->conn->eof);
        http_reply_json(TAKE_PTR(r.kept), 200, "\"first\"", 7);
        UNTIL(r.base, tls_hear(ssl, &out));
        assert_has(&out, "\"first\"");
        assert_has(&out, "id=2");
        tls_hang_up(ssl);

        /* this one leaves, and nothing is sent to it */
        ssl = tls_dial(&r, &t, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
        UNTIL(r.base, r.kept);
        SSL_shutdown(ssl);
        tls_hang_up(ssl);
        UNTIL(r.base, r.closed == 1);
        r.kept = NULL;
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
        UNTIL(r.base, r.done == 5 && http_server_connections(r.server) == 0);
        str_fini(&out);
        rig_stop(&r);
        tls_rig_stop(&t);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_was_asked_before_the_end_is_answered),
                cmocka_unit_test(late_answers_reach_those_that_send_no_more),
                cmocka_unit_test(who_has_closed_while_it_waited_is_noticed),
                cmocka_unit_test(who_sends_no_more_holds_nothing_for_ever),
                cmocka_unit_test(events_are_streamed),
                cmocka_unit_test(head_of_a_stream_ends_with_its_header),
                cmocka_unit_test(client_that_never_reads_is_dropped),
                cmocka_unit_test(slow_reader_is_not_one_that_never_reads),
                cmocka_unit_test(reader_of_next_to_nothing_is_dropped),
                cmocka_unit_test(https_is_spoken),
                cmocka_unit_test(https_slow_reader_is_not_one_that_never_reads),
                cmocka_unit_test(https_clients_that_send_no_more_are_answered),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
