/* Tests of net/grpc.h: connections that end, are lost, hang or are refused, and peers that speak
 * something else. */
#include "net/grpc_internal.h"
#include "net/grpc_test_rig.h"
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

static void set_true(void *flag)
{
        *(bool *)flag = true;
}

/* R: A12 */
static void drain_lets_running_calls_finish_and_refuses_new_ones(void **state)
{
        struct rig r;
        struct probe chat = { 0 }, late = { 0 };
        bool done = false;
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_call(&chat, r.channel, SERVICE "Chat", NULL);
        grpc_call_send(chat.call, "one", 3);
        UNTIL(r.base, chat.n == 1);
        grpc_server_drain(r.server, 5000, set_true, &done);
        UNTIL(r.base, grpc_channel_state(r.channel) != GRPC_CHANNEL_READY); /* the GOAWAY came */
        probe_unary(&late, r.channel, SERVICE "Echo", "late", NULL);
        UNTIL(r.base, late.closed);
        assert_int_equal(late.status, GRPC_UNAVAILABLE);
        assert_false(done);
        grpc_call_send(chat.call, "two", 3);
        UNTIL(r.base, chat.n == 2);
        grpc_call_half_close(chat.call);
        UNTIL(r.base, done);
        UNTIL(r.base, chat.closed);
        assert_int_equal(chat.status, GRPC_OK);
        probe_fini(&chat);
        probe_fini(&late);
        rig_stop(&r);
}

static void drain_deadline_ends_what_is_left(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        bool done = false;
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_call(&p, r.channel, SERVICE "Hang", NULL);
        UNTIL(r.base, r.service.started == 1);
        grpc_server_drain(r.server, 50, set_true, &done);
        UNTIL(r.base, done);
        assert_int_equal(r.service.closed, 1);
        assert_int_equal(r.service.last_status, GRPC_UNAVAILABLE);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        assert_string_equal(p.message, "the server stops");
        probe_fini(&p);
        rig_stop(&r);
}

/* R: A12 */
static void lost_connection_fails_calls_promptly_and_channel_comes_back(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        char address[32];
        (void)state;

        rig_start(&r, NULL, NULL);
        probe_call(&p, r.channel, SERVICE "Hang", NULL);
        UNTIL(r.base, r.service.started == 1);
        snprintf(address, sizeof(address), "%s", r.target);
        int64_t t0 = mono_ms();
        grpc_server_destroy(r.server);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        assert_true(mono_ms() - t0 < 1000);
        probe_fini(&p);

        probe_unary(&p, r.channel, SERVICE "Echo", "nobody", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        assert_non_null(strstr(p.message, "refused"));
        probe_fini(&p);

        probe_unary(&p, r.channel, SERVICE "Echo", "patient",
                    &(struct grpc_call_options){ .wait_for_ready = true });
        settle_ms(r.base, 60);
        assert_false(p.closed);
        start_server(&r, &(struct grpc_server_options){ .address = address });
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        probe_fini(&p);
        rig_stop(&r);
}

static void waiting_call_ends_at_its_deadline(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r, NULL, NULL);
        grpc_server_destroy(r.server);
        r.server = NULL;
        probe_unary(&p, r.channel, SERVICE "Echo", "x",
                    &(struct grpc_call_options){ .wait_for_ready = true, .deadline_ms = 60 });
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_DEADLINE_EXCEEDED);
        probe_fini(&p);
        rig_stop(&r);
}

/* A plain socket towards the server. */
static int raw_connect(const struct rig *r)
{
        struct sockaddr_in sa = { .sin_family = AF_INET,
                                  .sin_port = htons(grpc_server_port(r->server)),
                                  .sin_addr = { htonl(INADDR_LOOPBACK) } };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
        fd_nonblock(fd);
        return fd;
}

/* Has the peer closed? Throws away what it sent. */
static bool is_closed(int fd)
{
        char buf[4096];
        ssize_t n;
        while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
                ;
        return n == 0 || (errno != EAGAIN && errno != EINTR);
}

static void silent_and_nonsense_peers_are_closed(void **state)
{
        struct rig r;
        static const char greeting[] =
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
        (void)state;

        rig_start(&r,
                  &(struct grpc_server_options){
                      .handshake_timeout_ms = 60, .keepalive_ms = 40, .keepalive_timeout_ms = 40 },
                  NULL);
        int fd = raw_connect(&r); /* says nothing */
        UNTIL(r.base, is_closed(fd));
        close(fd);
        fd = raw_connect(&r);
        assert_int_equal(send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, 0), 27);
        UNTIL(r.base, is_closed(fd));
        close(fd);
        fd = raw_connect(&r); /* greets and then answers no PING */
        assert_int_equal(send(fd, greeting, sizeof(greeting) - 1, 0), sizeof(greeting) - 1);
        UNTIL(r.base, is_closed(fd));
        close(fd);
        rig_stop(&r);
}

static void client_notices_a_server_that_stopped_answering(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        struct err err;
        uint16_t port;
        (void)state;

        r = (struct rig){ .base = event_base_new() };
        rng_seed(&r.rng, 7);
        int listener = addr_listen("127.0.0.1:0", "test", 8, &port, &err), fd = -1;
        snprintf(r.target, sizeof(r.target), "127.0.0.1:%u", port);
        start_channel(
            &r, &(struct grpc_channel_options){ .keepalive_ms = 40, .keepalive_timeout_ms = 40 });
        probe_call(&p, r.channel, SERVICE "Hang", NULL);
        UNTIL(r.base, (fd = accept(listener, NULL, NULL)) >= 0);
        /* SETTINGS, then silence */
        assert_int_equal(send(fd, "\x00\x00\x00\x04\x00\x00\x00\x00\x00", 9, 0), 9);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        assert_non_null(strstr(p.message, "keepalive"));
        close(fd);
        close(listener);
        probe_fini(&p);
        rig_stop(&r);
}

static void go_on_to_the_next(struct probe *p)
{
        grpc_channel_next(p->ctx);
}

/* R: C33. A server that hangs lets its connections die, and takes new ones that it never answers:
 * whoever comes from there goes to the next one, not there again. */
static void a_client_of_a_server_that_hangs_goes_on_to_the_next(void **state)
{
        struct rig r, other;
        struct probe p = { 0 };
        struct err err;
        uint16_t port;
        char both[80];
        (void)state;

        rig_start(&other, NULL, NULL);
        r = (struct rig){ .base = event_base_new() };
        rng_seed(&r.rng, 7);
        int listener = addr_listen("127.0.0.1:0", "test", 8, &port, &err), fd = -1;
        snprintf(both, sizeof(both), "127.0.0.1:%u,%s", port, other.target);
        assert_int_equal(
            grpc_channel_create(r.base, both,
                                &(struct grpc_channel_options){
                                    .rng = &r.rng, .keepalive_ms = 40, .keepalive_timeout_ms = 40 },
                                &r.channel, &err),
            0);
        p.then = go_on_to_the_next;
        p.ctx = r.channel;
        probe_call(&p, r.channel, SERVICE "Hang", NULL);
        UNTIL(r.base, (fd = accept(listener, NULL, NULL)) >= 0);
        /* SETTINGS, then silence */
        assert_int_equal(send(fd, "\x00\x00\x00\x04\x00\x00\x00\x00\x00", 9, 0), 9);
        UNTIL(r.base, p.closed);
        assert_string_equal(grpc_channel_target(r.channel), other.target);
        close(fd);
        close(listener);
        probe_fini(&p);
        rig_stop(&r);
        rig_stop(&other);
}

/* R: A11 */
static void connections_are_limited(void **state)
{
        struct rig r;
        int fds[4];
        struct grpc_server_stats stats;
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .max_connections = 3 }, NULL);
        for (int i = 0; i < 4; i++) {
                fds[i] = raw_connect(&r);
                settle_ms(r.base, 5);
        }
        UNTIL(r.base, is_closed(fds[3]));
        assert_false(is_closed(fds[0]));
        grpc_server_get_stats(r.server, &stats);
        assert_int_equal(stats.connections, 3);
        assert_int_equal(stats.connections_refused_total, 1);
        for (int i = 0; i < 4; i++)
                close(fds[i]);
        rig_stop(&r);
}

static uint32_t connections(const struct rig *r)
{
        struct grpc_server_stats stats;
        grpc_server_get_stats(r->server, &stats);
        return stats.connections;
}

/* Whatever they do: be silent and answer PINGs, make calls that are refused, hold one open, send a
 * byte now and then. R: A11 A13 */
static void strangers_have_an_end(void **state)
{
        enum { STRANGER_MS = 150 };
        static const char greeting[] =
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        rig_start(&r,
                  &(struct grpc_server_options){ .stranger_ms = STRANGER_MS,
                                                 .keepalive_ms = 40,
                                                 .keepalive_timeout_ms = 100,
                                                 .first_message_ms = 60000 },
                  NULL);
        int64_t begun = mono_ms();
        grpc_channel_connect(r.channel);
        UNTIL(r.base, grpc_channel_state(r.channel) == GRPC_CHANNEL_READY);
        UNTIL(r.base, grpc_channel_state(r.channel) != GRPC_CHANNEL_READY && connections(&r) == 0);
        assert_true(mono_ms() - begun >= STRANGER_MS);

        begun = mono_ms(); /* calls that are not let in */
        do {
                probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
                UNTIL(r.base, p.closed);
                assert_int_equal(p.status, GRPC_OK);
                probe_fini(&p);
                settle_ms(r.base, 10);
                assert_true(mono_ms() - begun < 10000);
        } while (grpc_channel_state(r.channel) == GRPC_CHANNEL_READY); /* until it is told to go */
        assert_true(mono_ms() - begun >= STRANGER_MS);
        UNTIL(r.base, connections(&r) == 0);

        probe_call(&p, r.channel, SERVICE "Hang", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        UNTIL(r.base, connections(&r) == 0);
        probe_fini(&p);

        int fd = raw_connect(&r);
        assert_int_equal(send(fd, greeting, sizeof(greeting) - 1, 0), sizeof(greeting) - 1);
        begun = mono_ms();
        while (!is_closed(fd)) { /* of a frame that never ends */
                (void)!send(fd, "\x00", 1, MSG_NOSIGNAL);
                settle_ms(r.base, 20);
                assert_true(mono_ms() - begun < 10000);
        }
        close(fd);
        rig_stop(&r);
}

/* R: A11 */
static void who_was_let_in_may_be_idle(void **state)
{
        enum { STRANGER_MS = 60 };
        struct rig r;
        struct probe p = { 0 }, stream = { 0 };
        (void)state;

        rig_start(&r,
                  &(struct grpc_server_options){ .stranger_ms = STRANGER_MS,
                                                 .keepalive_ms = 20,
                                                 .keepalive_timeout_ms = 5000 },
                  NULL);
        r.service.lets_in = true;
        probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
        UNTIL(r.base, p.closed);
        settle_ms(r.base, 6 * STRANGER_MS);
        assert_int_equal(grpc_channel_state(r.channel), GRPC_CHANNEL_READY);
        assert_int_equal(connections(&r), 1);
        probe_call(&stream, r.channel, SERVICE "Chat", NULL); /* nor does a stream end */
        grpc_call_send(stream.call, "one", 3);
        UNTIL(r.base, stream.n == 1);
        settle_ms(r.base, 6 * STRANGER_MS);
        assert_false(stream.closed);
        grpc_call_cancel(stream.call);
        UNTIL(r.base, stream.closed);
        probe_fini(&p);
        probe_fini(&stream);
        rig_stop(&r);
}

/* R: A11 A13 */
static void one_address_has_a_part_of_the_connections_of_strangers(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        struct grpc_server_stats stats;
        int fds[3];
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .max_strangers_per_peer = 2 }, NULL);
        r.service.lets_in = true;
        for (int i = 0; i < 3; i++) {
                /* one that was let in counts no more */
                probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
                UNTIL(r.base, p.closed);
                assert_int_equal(p.status, GRPC_OK);
                probe_fini(&p);
                fds[i] = raw_connect(&r);
                settle_ms(r.base, 5);
        }
        UNTIL(r.base, is_closed(fds[2]));
        assert_false(is_closed(fds[0]));
        grpc_server_get_stats(r.server, &stats);
        assert_int_equal(stats.connections, 3);
        assert_int_equal(stats.connections_refused_total, 1);
        close(fds[0]); /* who has gone makes room */
        UNTIL(r.base, connections(&r) == 2);
        close(fds[2]);
        fds[2] = raw_connect(&r);
        UNTIL(r.base, connections(&r) == 3);
        settle_ms(r.base, 20);
        assert_false(is_closed(fds[2]));
        close(fds[1]);
        close(fds[2]);
        rig_stop(&r);
}

/* Headers of a request to Hang, compressed without a table. */
static size_t hang_headers(uint8_t *buf, size_t size)
{
#define H(n, v)                                                                                    \
        { (uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), strlen(v),              \
          NGHTTP2_NV_FLAG_NONE }
        nghttp2_nv nv[] = { H(":method", "POST"), H(":scheme", "http"), H(":path", SERVICE "Hang"),
                            H(":authority", "x"), H("content-type", "application/grpc") };
#undef H
        nghttp2_hd_deflater *d;
        nghttp2_hd_deflate_new(&d, 0);
        ssize_t n = nghttp2_hd_deflate_hd(d, buf, size, nv, ARRAY_LEN(nv));
        nghttp2_hd_deflate_del(d);
        assert_true(n > 0);
        return (size_t)n;
}

static void frame(struct str *out, size_t len, uint8_t type, uint8_t flags, uint32_t stream)
{
        const uint8_t h[9] = { (uint8_t)(len >> 16),
                               (uint8_t)(len >> 8),
                               (uint8_t)len,
                               type,
                               flags,
                               (uint8_t)(stream >> 24),
                               (uint8_t)(stream >> 16),
                               (uint8_t)(stream >> 8),
                               (uint8_t)stream };
        str_add(out, h, sizeof(h));
}

/* A proxy in between that answers by itself. */
static void answers_that_are_not_grpc_get_a_status(void **state)
{
        static const struct {
                const char *status, *type;
                enum grpc_status want;
        } cases[] = { { "502", "text/html", GRPC_UNAVAILABLE },
                      { "401", "text/html", GRPC_UNAUTHENTICATED },
                      { "200", "text/html", GRPC_UNKNOWN },
                      { "404", "text/plain", GRPC_UNIMPLEMENTED } };
        (void)state;

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct rig r = { .base = event_base_new() };
                struct probe p = { 0 };
                struct err err;
                struct str out = STR_INIT;
                uint16_t port;
                int fd = -1, listener = addr_listen("127.0.0.1:0", "test", 8, &port, &err);

                rng_seed(&r.rng, 7);
                snprintf(r.target, sizeof(r.target), "127.0.0.1:%u", port);
                start_channel(&r, NULL);
                probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
                UNTIL(r.base, (fd = accept(listener, NULL, NULL)) >= 0);
                frame(&out, 0, NGHTTP2_SETTINGS, 0, 0);
                assert_int_equal(send(fd, out.buf, out.len, 0), (ssize_t)out.len);
                UNTIL(r.base, p.call->headers_on_wire);
                uint8_t headers[128];
                nghttp2_nv nv[] = { { (uint8_t *)(uintptr_t) ":status",
                                      (uint8_t *)(uintptr_t)cases[i].status, 7, 3, 0 },
                                    { (uint8_t *)(uintptr_t) "content-type",
                                      (uint8_t *)(uintptr_t)cases[i].type, 12,
                                      strlen(cases[i].type), 0 } };
                nghttp2_hd_deflater *d;
                nghttp2_hd_deflate_new(&d, 0);
                ssize_t n = nghttp2_hd_deflate_hd(d, headers, sizeof(headers), nv, 2);
                nghttp2_hd_deflate_del(d);
                str_clear(&out);
                frame(&out, (size_t)n, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1);
                str_add(&out, headers, (size_t)n);
                frame(&out, 6, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1);
                str_adds(&out, "<html>");
                assert_int_equal(send(fd, out.buf, out.len, 0), (ssize_t)out.len);
                UNTIL(r.base, p.closed);
                assert_int_equal(p.status, cases[i].want);
                assert_int_equal(p.n, 0);
                close(fd);
                close(listener);
                str_fini(&out);
                probe_fini(&p);
                rig_stop(&r);
        }
}

static void names_that_are_not_known_are_unavailable(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        (void)state;

        r = (struct rig){ .base = event_base_new() };
        rng_seed(&r.rng, 7);
        snprintf(r.target, sizeof(r.target), "nowhere.invalid:1");
        start_channel(&r, &(struct grpc_channel_options){ .connect_timeout_ms = 300 });
        probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_UNAVAILABLE);
        assert_non_null(strstr(p.message, "nowhere.invalid:1"));
        probe_fini(&p);
        /* destroyed while the name is being looked up */
        probe_unary(&p, r.channel, SERVICE "Echo", "x",
                    &(struct grpc_call_options){ .wait_for_ready = true });
        settle_ms(r.base, 60);
        grpc_channel_destroy(TAKE_PTR(r.channel));
        assert_true(p.closed);
        settle_ms(r.base, 10);
        probe_fini(&p);
        rig_stop(&r);
}

/* R: A11 */
static void rapid_reset_is_cut_off(void **state)
{
        struct rig r;
        uint8_t headers[256];
        uint32_t opened = 0;
        bool closed = false;
        (void)state;

        rig_start(&r, NULL, NULL);
        size_t len = hang_headers(headers, sizeof(headers));
        int fd = raw_connect(&r);
        struct str out = STR_INIT;
        str_adds(&out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frame(&out, 0, NGHTTP2_SETTINGS, 0, 0);
        while (!closed && opened < 100000) {
                for (int i = 0; i < 100; i++, opened++) {
                        frame(&out, len, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 2 * opened + 1);
                        str_add(&out, headers, len);
                        frame(&out, 4, NGHTTP2_RST_STREAM, 0, 2 * opened + 1);
                        str_add(&out, "\x00\x00\x00\x08", 4);
                }
                for (size_t at = 0; at < out.len && !closed;) {
                        ssize_t n = send(fd, out.buf + at, out.len - at, MSG_NOSIGNAL);
                        if (n > 0)
                                at += (size_t)n;
                        event_base_loop(r.base, EVLOOP_NONBLOCK);
                        closed = is_closed(fd);
                }
                str_clear(&out);
        }
        assert_true(closed);
        assert_true(opened < 5000);
        UNTIL(r.base, r.service.closed == r.service.started);
        str_fini(&out);
        close(fd);
        rig_stop(&r);
}

/* A3: what comes from the network never ends the process. */
static void random_bytes_never_hurt(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        struct rng rng;
        uint8_t headers[256];
        (void)state;

        rig_start(&r, &(struct grpc_server_options){ .handshake_timeout_ms = 200 }, NULL);
        rng_seed(&rng, 42);
        size_t hlen = hang_headers(headers, sizeof(headers));
        for (int round = 0; round < 300; round++) {
                struct str out = STR_INIT;
                int fd = raw_connect(&r);
                str_adds(&out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
                frame(&out, 0, NGHTTP2_SETTINGS, 0, 0);
                /* frames of random type, flags, stream; sane ones in between */
                for (uint32_t f = 0; f < 8; f++) {
                        size_t len = rng_below(&rng, 40);
                        if (rng_chance(&rng, 400000)) {
                                frame(&out, hlen, NGHTTP2_HEADERS,
                                      (uint8_t)(4 | rng_below(&rng, 2)), 2 * f + 1);
                                str_add(&out, headers, hlen);
                                continue;
                        }
                        frame(&out, len, (uint8_t)rng_below(&rng, 11), (uint8_t)rng_next(&rng),
                              (uint32_t)rng_below(&rng, 20));
                        for (size_t i = 0; i < len; i++)
                                str_addc(&out, (char)rng_next(&rng));
                }
                if (rng_chance(&rng, 300000) && out.len > 24)
                        out.buf[rng_below(&rng, out.len)] ^= (char)(1 << rng_below(&rng, 8));
                (void)!send(fd, out.buf, out.len, MSG_NOSIGNAL);
                for (int i = 0; i < 5; i++)
                        event_base_loop(r.base, EVLOOP_NONBLOCK);
                close(fd);
                event_base_loop(r.base, EVLOOP_NONBLOCK);
                str_fini(&out);
        }
        probe_unary(&p, r.channel, SERVICE "Echo", "alive", NULL);
        UNTIL(r.base, p.closed);
        assert_int_equal(p.status, GRPC_OK);
        UNTIL(r.base, r.service.closed == r.service.started);
        probe_fini(&p);
        rig_stop(&r);
}

static void port_in_use_is_said_clearly(void **state)
{
        struct rig r;
        struct grpc_server *second = NULL;
        struct err err;
        (void)state;

        rig_start(&r, NULL, NULL);
        assert_int_equal(grpc_server_create(r.base,
                                            &(struct grpc_server_options){ .address = r.target },
                                            &second, &err),
                         -ERR_UNAVAILABLE);
        assert_string_equal(err.msg, fmt("port %u is in use", grpc_server_port(r.server)));
        assert_true(err.hint[0]);
        assert_null(second);
        rig_stop(&r);
}

struct states {
        char seen[64];
};
static void on_state(struct grpc_channel *ch, enum grpc_channel_state state, const struct err *why,
                     void *ctx)
{
        struct states *s = ctx;
        (void)ch;
        size_t len = strlen(s->seen);
        if (len + 1 < sizeof(s->seen))
                s->seen[len] = "icrb"[state];
        if (state == GRPC_CHANNEL_BACKOFF)
                assert_true(why->msg[0]);
}

static void states_are_told(void **state)
{
        struct rig r;
        struct probe p = { 0 };
        struct states s = { "" };
        (void)state;

        rig_start(&r, NULL, &(struct grpc_channel_options){ .on_state = on_state, .ctx = &s });
        grpc_channel_connect(r.channel);
        UNTIL(r.base, grpc_channel_state(r.channel) == GRPC_CHANNEL_READY);
        assert_string_equal(s.seen, "cr");
        grpc_server_destroy(TAKE_PTR(r.server));
        UNTIL(r.base, grpc_channel_state(r.channel) == GRPC_CHANNEL_IDLE);
        probe_unary(&p, r.channel, SERVICE "Echo", "x", NULL);
        UNTIL(r.base, p.closed);
        assert_true(str_starts(s.seen, "cricb"));
        /* nobody waits: no more tries */
        UNTIL(r.base, grpc_channel_state(r.channel) == GRPC_CHANNEL_IDLE);
        probe_fini(&p);
        rig_stop(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(drain_lets_running_calls_finish_and_refuses_new_ones),
                cmocka_unit_test(drain_deadline_ends_what_is_left),
                cmocka_unit_test(lost_connection_fails_calls_promptly_and_channel_comes_back),
                cmocka_unit_test(waiting_call_ends_at_its_deadline),
                cmocka_unit_test(silent_and_nonsense_peers_are_closed),
                cmocka_unit_test(client_notices_a_server_that_stopped_answering),
                cmocka_unit_test(a_client_of_a_server_that_hangs_goes_on_to_the_next),
                cmocka_unit_test(connections_are_limited),
                cmocka_unit_test(strangers_have_an_end),
                cmocka_unit_test(who_was_let_in_may_be_idle),
                cmocka_unit_test(one_address_has_a_part_of_the_connections_of_strangers),
                cmocka_unit_test(answers_that_are_not_grpc_get_a_status),
                cmocka_unit_test(names_that_are_not_known_are_unavailable),
                cmocka_unit_test(rapid_reset_is_cut_off),
                cmocka_unit_test(random_bytes_never_hurt),
                cmocka_unit_test(port_in_use_is_said_clearly),
                cmocka_unit_test(states_are_told),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
