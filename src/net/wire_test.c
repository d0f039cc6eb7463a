/* Tests of what is pure in src/net: gRPC's encodings, HTTP's head, routes, addresses. */
#include "net/addr.h"
#include "net/grpc_wire.h"
#include "net/http_route.h"
#include "net/test_rig.h"

static void percent_encoding_round_trips(void **state)
{
        struct rng rng;
        (void)state;

        struct str a = STR_INIT, b = STR_INIT;
        grpc_percent_encode(&a, "50% \xc3\xa9\n~", 8);
        assert_string_equal(str_c(&a), "50%25 %C3%A9%0A~");
        grpc_percent_decode(&b, a.buf, a.len);
        assert_string_equal(str_c(&b), "50% \xc3\xa9\n~");
        str_clear(&b);
        grpc_percent_decode(&b, "a%zz%4", 6); /* not escapes: left alone */
        assert_string_equal(str_c(&b), "a%zz%4");
        str_clear(&b);
        grpc_percent_decode(&b, "%ff%00x%41", 10); /* neither UTF-8 nor text */
        assert_string_equal(str_c(&b), "??xA");
        rng_seed(&rng, 1);
        for (int i = 0; i < 2000; i++) {
                char text[20];
                size_t len = rng_below(&rng, sizeof(text));
                for (size_t k = 0; k < len; k++)
                        text[k] = (char)(1 + rng_below(&rng, 127));
                str_clear(&a);
                str_clear(&b);
                grpc_percent_encode(&a, text, len);
                grpc_percent_decode(&b, str_c(&a), a.len);
                assert_int_equal(b.len, len);
                assert_memory_equal(str_c(&b), text, len);
        }
        str_fini(&a);
        str_fini(&b);
}

static void base64_round_trips_with_and_without_padding(void **state)
{
        struct rng rng;
        struct str a = STR_INIT, b = STR_INIT;
        (void)state;

        rng_seed(&rng, 2);
        for (int i = 0; i < 2000; i++) {
                char data[40];
                size_t len = rng_below(&rng, sizeof(data));
                for (size_t k = 0; k < len; k++)
                        data[k] = (char)rng_next(&rng);
                str_clear(&a);
                grpc_base64_encode(&a, data, len);
                for (int padded = 0; padded < 2; padded++) {
                        while (padded && a.len % 4)
                                str_addc(&a, '=');
                        str_clear(&b);
                        assert_int_equal(grpc_base64_decode(&b, str_c(&a), a.len), 0);
                        assert_int_equal(b.len, len);
                        assert_memory_equal(str_c(&b), data, len);
                }
        }
        assert_int_equal(grpc_base64_decode(&b, "a", 1), -1);
        assert_int_equal(grpc_base64_decode(&b, "a*bc", 4), -1);
        str_fini(&a);
        str_fini(&b);
}

static void timeouts_are_read_and_written(void **state)
{
        char buf[16];
        int64_t ms;
        (void)state;

        static const struct {
                const char *text;
                int64_t ms;
        } good[] = { { "1H", 3600000 }, { "2M", 120000 },
                     { "3S", 3000 },    { "99999999m", 99999999 },
                     { "5u", 1 },       { "1500u", 2 },
                     { "1n", 1 },       { "99999999H", 31536000000 } };
        for (size_t i = 0; i < ARRAY_LEN(good); i++) {
                assert_int_equal(grpc_timeout_parse(good[i].text, strlen(good[i].text), &ms), 0);
                assert_int_equal(ms, good[i].ms);
        }
        static const char *const bad[] = { "", "1", "S", "123456789S", "-1S", "1x", "1.5S", " 1S" };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_int_equal(grpc_timeout_parse(bad[i], strlen(bad[i]), &ms), -1);
        assert_string_equal(grpc_timeout_format(buf, 250), "250m");
        assert_string_equal(grpc_timeout_format(buf, INT64_C(200000000)), "200000S");
        assert_string_equal(grpc_timeout_format(buf, -4), "0m");
}

static void addresses_are_parsed(void **state)
{
        struct addr a;
        struct err err;
        (void)state;

        assert_int_equal(addr_parse("127.0.0.1:8084", &a, &err), 0);
        assert_string_equal(a.host, "127.0.0.1");
        assert_int_equal(a.port, 8084);
        assert_int_equal(addr_parse("[::1]:1", &a, &err), 0);
        assert_string_equal(a.host, "::1");
        assert_int_equal(addr_parse(":80", &a, &err), 0);
        assert_string_equal(a.host, "");
        static const char *const bad[] = { "",           "host",   "host:",  "host:x",
                                           "host:65536", "::1:80", "host:-1" };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_int_equal(addr_parse(bad[i], &a, &err), -ERR_INVALID);
}

/* ---- HTTP heads ---- */

static int parse_head(struct http_head *h, const char *text)
{
        const char *why = NULL;
        *h = (struct http_head){ 0 };
        int r = http_head_parse(h, text, strlen(text), &why);
        if (r)
                assert_non_null(why);
        return r;
}

static void good_heads_are_read(void **state)
{
        struct http_head h;
        (void)state;

        assert_int_equal(parse_head(&h, "GET /v1/a%20b/c%2Fd?x=1&y=a+b%26&z HTTP/1.1\r\nHost: "
                                        "h\r\nX-Two:  v \r\nConnection: Keep-Alive, close\r\n\r\n"),
                         0);
        assert_string_equal(h.method, "GET");
        assert_string_equal(h.path, "/v1/a b/c/d");
        assert_int_equal(h.n_segments, 3);
        assert_string_equal(h.segments[1], "a b");
        assert_string_equal(h.segments[2], "c/d");
        assert_int_equal(h.n_query, 3);
        assert_string_equal(h.query[1].value, "a b&");
        assert_string_equal(h.query[2].value, "");
        assert_string_equal(http_head_field(&h, "x-two"), "v");
        assert_false(h.keep_alive);
        http_head_fini(&h);
        assert_int_equal(
            parse_head(
                &h,
                "POST http://h/x HTTP/1.0\r\nContent-Length: 12\r\nConnection: keep-alive\r\n\r\n"),
            0);
        assert_string_equal(h.path, "/x");
        assert_int_equal(h.content_length, 12);
        assert_true(h.keep_alive);
        http_head_fini(&h);
        assert_int_equal(parse_head(&h, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                                        "chunked\r\nExpect: 100-continue\r\n\r\n"),
                         0);
        assert_true(h.is_chunked && h.expects_continue && h.keep_alive);
        http_head_fini(&h);
        /* HTTP/1.0 knows no interim answer, and is kept only if nothing says otherwise */
        static const char *const close[] = { "close, keep-alive", "keep-alive, close",
                                             "close\r\nConnection: keep-alive",
                                             "keep-alive\r\nConnection: close" };
        for (size_t i = 0; i < ARRAY_LEN(close); i++) {
                assert_int_equal(
                    parse_head(
                        &h, fmt("POST / HTTP/1.0\r\nExpect: 100-continue\r\nConnection: %s\r\n\r\n",
                                close[i])),
                    0);
                assert_false(h.expects_continue || h.keep_alive);
                http_head_fini(&h);
        }
}

static void host_of_an_absolute_target_counts(void **state)
{
        static const struct {
                const char *target, *path, *query, *host;
        } good[] = {
                { "http://a.example:80/x/y", "/x/y", NULL, "a.example:80" },
                { "http://a.example", "/", NULL, "a.example" },
                { "HTTP://a.example?q=1", "/", "1", "a.example" },
                { "hTTps://[::1]:8084/?q=1", "/", "1", "[::1]:8084" },
                { "http://h/?q=http://other/", "/", "http://other/", "h" },
        };
        static const char *const hosts[] = { "HTTP/1.1\r\nHost: b.example",
                                             "HTTP/1.0\r\nHost: b.example", "HTTP/1.0" };
        struct http_head h;
        struct str many = STR_INIT;
        (void)state;

        for (size_t i = 0; i < ARRAY_LEN(good) * ARRAY_LEN(hosts); i++) {
                size_t k = i / ARRAY_LEN(hosts);
                assert_int_equal(parse_head(&h, fmt("GET %s %s\r\nX: y\r\n\r\n", good[k].target,
                                                    hosts[i % ARRAY_LEN(hosts)])),
                                 0);
                assert_string_equal(h.path, good[k].path);
                assert_int_equal(h.n_segments, k == 0 ? 2 : 1);
                assert_string_equal(http_head_field(&h, "host"), good[k].host);
                assert_string_equal(http_head_field(&h, "x"), "y");
                assert_int_equal(h.n_query, good[k].query ? 1 : 0);
                if (good[k].query)
                        assert_string_equal(h.query[0].value, good[k].query);
                http_head_fini(&h);
        }
        str_adds(&many, "GET http://h/ HTTP/1.0\r\n");
        for (int i = 0; i < HTTP_FIELDS_MAX; i++)
                str_adds(&many, "x: y\r\n");
        str_adds(&many, "\r\n");
        assert_int_equal(parse_head(&h, str_c(&many)), 431); /* no room for it */
        http_head_fini(&h);
        str_fini(&many);
}

/* R: A3 */
static void bad_heads_are_refused(void **state)
{
        static const struct {
                const char *text;
                int status;
        } bad[] = {
                { "GET / HTTP/1.1\r\n\r\n", 400 },                       /* no Host */
                { "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400 }, /* two */
                { "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505 },            /* version */
                { "GET /\r\n\r\n", 400 },                                /* none */
                { "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },           /* two spaces */
                { "G\tT / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },           /* method */
                { "GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400 },            /* target */
                { "GET http:/x HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                { "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400 },    /* no host */
                { "GET http://u@h/x HTTP/1.1\r\nHost: a\r\n\r\n", 400 }, /* a user */
                { "GET http://h\x01/x HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                { "GET http://h#x HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                { "GET ftp://h/x HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                /* Host all the same */
                { "GET http://h/x HTTP/1.1\r\n\r\n", 400 },
                /* escape */
                { "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                /* NUL */
                { "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                /* not UTF-8 */
                { "GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                /* dots */
                { "GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                /* hidden dots */
                { "GET /a/%2e%2e/b HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                /* cut escape */
                { "GET /?a=%2 HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                /* fragment */
                { "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
                /* bare LF */
                { "GET / HTTP/1.1\nHost: a\r\n\r\n", 400 },
                /* space before colon */
                { "GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400 },
                /* folded */
                { "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400 },
                /* no colon */
                { "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400 },
                /* control */
                { "GET / HTTP/1.1\r\nHost: a\r\nX: a\x01\r\n\r\n", 400 },
                /* two lengths */
                { "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
                  400 },
                /* sign */
                { "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400 },
                /* overflow */
                { "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
                  400 },
                /* both */
                { "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: "
                  "chunked\r\n\r\n",
                  400 },
                /* encoding */
                { "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501 },
        };
        struct http_head h;
        (void)state;

        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                int r = parse_head(&h, bad[i].text);
                if (r != bad[i].status)
                        fail_msg("%s gave %d", bad[i].text, r);
                http_head_fini(&h);
        }
}

static void random_heads_never_crash(void **state)
{
        static const char seed[] = "POST /v1/a%20b/{x}?q=1&r=%41 HTTP/1.1\r\nHost: "
                                   "h\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";
        struct rng rng;
        (void)state;

        rng_seed(&rng, 3);
        for (int i = 0; i < 20000; i++) {
                char text[sizeof(seed)];
                struct http_head h = { 0 };
                const char *why;
                memcpy(text, seed, sizeof(seed));
                for (uint64_t k = rng_below(&rng, 6); k > 0; k--)
                        text[rng_below(&rng, sizeof(seed) - 1)] =
                            (char)(rng_chance(&rng, 500000)
                                       ? rng_next(&rng)
                                       : (uint64_t)(unsigned char)"\r\n %:/?&="[rng_below(&rng,
                                                                                          9)]);
                http_head_parse(&h, text, rng_below(&rng, sizeof(seed)), &why);
                http_head_fini(&h);
        }
}

static void chunk_sizes_are_read(void **state)
{
        (void)state;
        assert_int_equal(http_chunk_size("1a", 2), 26);
        assert_int_equal(http_chunk_size("0;x=y", 5), 0);
        assert_int_equal(http_chunk_size("", 0), -1);
        assert_int_equal(http_chunk_size("g", 1), -1);
        assert_int_equal(http_chunk_size("1x", 2), -1);
        assert_int_equal(http_chunk_size("123456789", 9), -1);
        assert_int_equal(http_chunk_size("-1", 2), -1);
        assert_int_equal(http_chunk_size("5 ;x=\"y z\"", 10), 5);
        assert_int_equal(http_chunk_size("5 \t", 3), 5);
        assert_int_equal(http_chunk_size("5 garbage", 9), -1);
        assert_int_equal(http_chunk_size("5 5", 3), -1);
        assert_int_equal(http_chunk_size("5;a\nb", 5), -1);
        assert_int_equal(http_chunk_size("5;a\0b", 5), -1);
}

/* ---- routes ---- */

static void no_route(struct http_request *req, void *ctx)
{
        (void)req;
        (void)ctx;
}

static const char *find(struct http_router *router, const char *method, const char *path,
                        struct str *allow)
{
        struct http_head h;
        assert_int_equal(parse_head(&h, fmt("GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)), 0);
        str_clear(allow);
        const struct http_route_row *row =
            http_router_find(router, method, h.segments, h.n_segments, allow);
        http_head_fini(&h);
        return row ? row->pattern : NULL;
}

static void routes_are_found(void **state)
{
        struct http_router router = { 0 };
        struct str allow = STR_INIT;
        struct err err;
        (void)state;

        static const char *const rows[][2] = {
                { "GET", "/v1/w/{id}" },    { "DELETE", "/v1/w/{id}" },
                { "GET", "/v1/w" },         { "POST", "/v1/w/{id}/stop" },
                { "GET", "/v1/w/special" }, { "GET", "/ui/{path...}" },
                { "GET", "/ui/about" },     { "GET", "/" }
        };
        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
                assert_int_equal(
                    http_router_add(&router, rows[i][0], rows[i][1], no_route, NULL, &err), 0);
        assert_int_equal(http_router_add(&router, "GET", "/v1/w", no_route, NULL, &err),
                         -ERR_INVALID);
        assert_int_equal(http_router_add(&router, "GET", "v1", no_route, NULL, &err), -ERR_INVALID);
        assert_int_equal(http_router_add(&router, "GET", "/{a", no_route, NULL, &err),
                         -ERR_INVALID);
        assert_string_equal(find(&router, "GET", "/v1/w/abc", &allow), "/v1/w/{id}");
        assert_string_equal(find(&router, "HEAD", "/v1/w/abc", &allow), "/v1/w/{id}");
        assert_string_equal(find(&router, "GET", "/v1/w/special", &allow), "/v1/w/special");
        assert_string_equal(find(&router, "DELETE", "/v1/w/special", &allow), "/v1/w/{id}");
        assert_string_equal(find(&router, "GET", "/v1/w/a%2Fb", &allow), "/v1/w/{id}");
        assert_string_equal(find(&router, "GET", "/ui/a/b/c", &allow), "/ui/{path...}");
        assert_string_equal(find(&router, "GET", "/ui/", &allow), "/ui/{path...}");
        assert_string_equal(find(&router, "GET", "/ui", &allow), "/ui/{path...}");
        assert_string_equal(find(&router, "GET", "/ui/about", &allow), "/ui/about");
        assert_string_equal(find(&router, "GET", "/", &allow), "/");
        assert_null(find(&router, "GET", "/v1/w/", &allow)); /* an empty id is no id */
        assert_int_equal(allow.len, 0);
        assert_null(find(&router, "GET", "/v2", &allow));
        assert_int_equal(allow.len, 0);
        assert_null(find(&router, "PATCH", "/v1/w/abc", &allow));
        assert_string_equal(str_c(&allow), "GET, HEAD, DELETE");
        assert_null(find(&router, "GET", "/v1/w/abc/stop", &allow));
        assert_string_equal(str_c(&allow), "POST");
        str_fini(&allow);
        http_router_fini(&router);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(percent_encoding_round_trips),
                cmocka_unit_test(base64_round_trips_with_and_without_padding),
                cmocka_unit_test(timeouts_are_read_and_written),
                cmocka_unit_test(addresses_are_parsed),
                cmocka_unit_test(good_heads_are_read),
                cmocka_unit_test(host_of_an_absolute_target_counts),
                cmocka_unit_test(bad_heads_are_refused),
                cmocka_unit_test(random_heads_never_crash),
                cmocka_unit_test(chunk_sizes_are_read),
                cmocka_unit_test(routes_are_found),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
