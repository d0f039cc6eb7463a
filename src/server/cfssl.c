/* server/cfssl.c: see cfssl.h. libevent's HTTP client does the talking, as for webhooks. */
#include "server/cfssl.h"

#include "base/arena.h"
#include "base/array.h"
#include "base/file.h"
#include "base/mem.h"
#include "cfssl.pb-c.h"
#include "model/config.h"
#include "model/json.h"
#include "net/tls.h"
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/http.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#define PATH "/api/v1/cfssl/authsign"
#define TIMEOUT_MS 10000
#define ANSWER_BYTES (256 * 1024)
#define AT_ONCE 64

struct signing {
        struct cfssl *c;
        struct evhttp_connection *connection;
        /* the whole attempt; and what frees it, from outside of the connection's callbacks */
        struct event *timer;
        uint64_t ticket;
        cfssl_done done;
        void *io;
        bool told;
        char trouble[128];
};

struct cfssl {
        struct event_base *base;
        struct evdns_base *dns;
        char *url, *key_file, *profile;
        ARRAY(struct signing *) signings;
};

int cfssl_create(struct event_base *base, const char *url, const char *key_file,
                 const char *profile, struct cfssl **ret, struct err *err)
{
        struct arena arena = ARENA_INIT;
        _cleanup_(str_finip) struct str key = STR_INIT;
        struct url u;
        int r = url_parse(&arena, url, &u, err);
        arena_fini(&arena);
        if (r < 0)
                return err_prefix(err, "--cfssl");
        if (str_empty(key_file))
                return err_set(err, ERR_INVALID,
                               .msg = "CFSSL needs the key of its authenticated API",
                               .hint = "--cfssl-key FILE");
        if ((r = file_read(key_file, 4096, &key, err)) < 0)
                return err_prefix(err, "--cfssl-key");
        struct cfssl *c = mem_must(sizeof(*c));
        c->base = base;
        c->url = mem_strdup(url);
        c->key_file = mem_strdup(key_file);
        c->profile = mem_strdup(profile ? profile : "");
        *ret = c;
        return 0;
}

static void signing_free(struct signing *s)
{
        struct cfssl *c = s->c;
        for (size_t i = 0; i < c->signings.len; i++)
                if (c->signings.at[i] == s) {
                        c->signings.at[i] = c->signings.at[--c->signings.len];
                        break;
                }
        if (s->connection)
                evhttp_connection_free(s->connection);
        event_free(s->timer);
        mem_free(s);
}

void cfssl_destroy(struct cfssl *c)
{
        if (!c)
                return;
        while (c->signings.len) {
                c->signings.at[0]->told = true;
                signing_free(c->signings.at[0]);
        }
        array_fini(&c->signings);
        if (c->dns)
                evdns_base_free(c->dns, 0);
        mem_free(c->url);
        mem_free(c->key_file);
        mem_free(c->profile);
        mem_free(c);
}

/* ---- the request ---- */

static void base64(struct arena *a, const void *data, size_t len, char **ret)
{
        *ret = arena_alloc(a, 4 * ((len + 2) / 3) + 1);
        EVP_EncodeBlock((unsigned char *)*ret, data, (int)len);
}

static int unhex(const char *hex, unsigned char *out, size_t max, size_t *ret_len)
{
        size_t n = strspn(hex, "0123456789abcdefABCDEF");
        if (n == 0 || n % 2 || n / 2 > max || strspn(hex + n, " \t\r\n") != strlen(hex + n))
                return -1;
        for (size_t i = 0; i < n / 2; i++) {
                char two[3] = { hex[2 * i], hex[2 * i + 1], 0 };
                out[i] = (unsigned char)strtoul(two, NULL, 16);
        }
        *ret_len = n / 2;
        return 0;
}

int cfssl_body(const char *key_hex, const char *request, const char *const *hosts, size_t n_hosts,
               const char *profile, struct str *out, struct err *err)
{
        struct arena arena = ARENA_INIT;
        _cleanup_(str_finip) struct str inner = STR_INIT;
        unsigned char key[128], mac[EVP_MAX_MD_SIZE];
        size_t key_len = 0;
        unsigned mac_len = 0;
        if (unhex(key_hex, key, sizeof(key), &key_len) < 0)
                return err_set(err, ERR_INVALID,
                               .msg = "the key for CFSSL must be hex digits, as in its auth_keys",
                               .hint = "--cfssl-key FILE");
        Cf__Sign sign = CF__SIGN__INIT;
        sign.hosts = (char **)hosts;
        sign.n_hosts = n_hosts;
        sign.certificate_request = (char *)request;
        sign.profile = (char *)profile;
        json_write(&inner, &sign.base, JSON_COMPACT);
        HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)str_c(&inner), inner.len, mac,
             &mac_len);
        OPENSSL_cleanse(key, sizeof(key));
        Cf__Authenticated whole = CF__AUTHENTICATED__INIT;
        base64(&arena, mac, mac_len, &whole.token);
        base64(&arena, str_c(&inner), inner.len, &whole.request);
        json_write(out, &whole.base, JSON_COMPACT);
        arena_fini(&arena);
        return 0;
}

/* ---- the answer ---- */

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
        struct signing *s = ctx;
        (void)fd;
        (void)what;
        if (!s->told) {
                struct err err;
                err_set(&err, ERR_UNAVAILABLE, .msg = "CFSSL did not answer in time",
                        .retry_after_ms = 2000);
                s->told = true;
                s->done(s->io, s->ticket, NULL, &err);
        }
        signing_free(s);
}

static void tell(struct signing *s, const char *cert, const struct err *err)
{
        if (s->told)
                return;
        s->told = true;
        s->done(s->io, s->ticket, cert, err);
        evtimer_add(s->timer, &(struct timeval){ 0 }); /* libevent is still inside the connection */
}

static void on_trouble(enum evhttp_request_error error, void *ctx)
{
        struct signing *s = ctx;
        strncpy(s->trouble,
                error == EVREQ_HTTP_TIMEOUT ? "no answer in time" : "the connection was closed",
                sizeof(s->trouble) - 1);
}

static void on_answer(struct evhttp_request *req, void *ctx)
{
        struct signing *s = ctx;
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        int status = req ? evhttp_request_get_response_code(req) : 0;
        struct evbuffer *in = req ? evhttp_request_get_input_buffer(req) : NULL;
        size_t len = in ? evbuffer_get_length(in) : 0;
        const char *body = len ? (const char *)evbuffer_pullup(in, -1) : "";
        const Cf__Answer *a = NULL;
        if (status && json_read(&cf__answer__descriptor, body, len, ANSWER_BYTES,
                                JSON_IGNORE_UNKNOWN, &arena, &m, NULL) == 0)
                a = (const Cf__Answer *)m;
        if (!status)
                err_set(&err, ERR_UNAVAILABLE, .msg = "CFSSL cannot be reached",
                        .detail = s->trouble, .retry_after_ms = 2000,
                        .hint = "is `cfssl serve` running where --cfssl says?");
        else if (!a || !a->success || !a->result || str_empty(a->result->certificate))
                err_set(&err, ERR_FAILED, .msg = "CFSSL did not sign the certificate",
                        .detail = a && a->n_errors ? fmt("%.200s", a->errors[0]->message)
                                                   : fmt("HTTP status %d", status),
                        .hint = "its log says more; the auth key and the profile must be those of "
                                "its configuration");
        tell(s, err.code ? NULL : a->result->certificate, err.code ? &err : NULL);
        arena_fini(&arena);
}

static struct bufferevent *bufferevent_for(struct cfssl *c, const struct url *u, struct err *err)
{
        if (!u->tls)
                return bufferevent_socket_new(c->base, -1, BEV_OPT_CLOSE_ON_FREE);
        _cleanup_(tls_unrefp) struct tls *tls = NULL;
        if (tls_client_create(&(struct tls_options){ 0 }, &tls, err) < 0)
                return NULL;
        struct ssl_st *ssl = tls_new_ssl(tls, "http/1.1", u->host, err);
        if (!ssl)
                return NULL;
        struct bufferevent *bev = bufferevent_openssl_socket_new(
            c->base, -1, ssl, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
        if (bev)
                bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
        return bev;
}

static int post(struct signing *s, const struct url *u, const struct str *body, struct err *err)
{
        struct cfssl *c = s->c;
        const struct timeval tv = { .tv_sec = TIMEOUT_MS / 1000 };
        if (!c->dns)
                c->dns = evdns_base_new(c->base, EVDNS_BASE_INITIALIZE_NAMESERVERS |
                                                     EVDNS_BASE_DISABLE_WHEN_INACTIVE);
        struct bufferevent *bev = bufferevent_for(c, u, err);
        s->connection =
            bev ? evhttp_connection_base_bufferevent_new(c->base, c->dns, bev, u->host, u->port)
                : NULL;
        struct evhttp_request *req = s->connection ? evhttp_request_new(on_answer, s) : NULL;
        if (!req)
                return err->code ? -(int)err->code
                                 : err_set(err, ERR_NOMEM, .msg = "no memory for a connection");
        struct evkeyvalq *headers = evhttp_request_get_output_headers(req);
        evhttp_connection_set_timeout_tv(s->connection, &tv);
        evhttp_connection_set_max_body_size(s->connection, ANSWER_BYTES);
        evhttp_request_set_error_cb(req, on_trouble);
        evhttp_add_header(headers, "Host", u->authority);
        evhttp_add_header(headers, "Content-Type", "application/json");
        evhttp_add_header(headers, "Connection", "close");
        evbuffer_add(evhttp_request_get_output_buffer(req), str_c(body), body->len);
        evtimer_add(s->timer, &tv);
        if (evhttp_make_request(s->connection, req, EVHTTP_REQ_POST, PATH) < 0)
                return err_set(err, ERR_UNAVAILABLE, .msg = "CFSSL cannot be reached",
                               .retry_after_ms = 2000);
        return 0;
}

int cfssl_sign(struct cfssl *c, const char *request, const char *const *hosts, size_t n_hosts,
               uint64_t ticket, cfssl_done done, void *io, struct err *err)
{
        struct arena arena = ARENA_INIT;
        struct str key = STR_INIT, body = STR_INIT;
        struct url u;
        if (c->signings.len >= AT_ONCE)
                return err_set(err, ERR_LIMIT, .msg = "too many certificates are being asked for",
                               .retry_after_ms = 2000);
        int r = url_parse(&arena, c->url, &u, err);
        if (r >= 0)
                r = file_read(c->key_file, 4096, &key, err);
        if (r >= 0)
                r = cfssl_body(str_c(&key), request, hosts, n_hosts, c->profile, &body, err);
        if (r >= 0) {
                struct signing *s = mem_must(sizeof(*s));
                s->c = c;
                s->ticket = ticket;
                s->done = done;
                s->io = io;
                s->timer = evtimer_new(c->base, on_timer, s);
                *array_push(&c->signings) = s;
                if ((r = post(s, &u, &body, err)) < 0) {
                        s->told = true;
                        signing_free(s);
                }
        }
        if (key.len)
                OPENSSL_cleanse(key.buf, key.len);
        str_fini(&key);
        str_fini(&body);
        arena_fini(&arena);
        return r;
}
