/* server/webhooks.c: see webhooks.h. libevent's HTTP client does the talking; names are resolved by
 * evdns, so the loop never waits. */
#include "server/webhooks.h"

#include "base/array.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/config.h"
#include "model/pb.h"
#include "net/tls.h"
#include "server/io.h"
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/http.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

#define TIMEOUT_MS 10000
#define ANSWER_BYTES (64 * 1024)
#define SECRET_BYTES 4096
#define RESULT_AGAIN_MS 100

/* One POST under way, or its result, which the ring has no room for yet. */
struct delivery {
        struct webhooks *w;
        char *id, *name;
        struct evhttp_connection *connection;
        struct event *timer; /* the whole attempt; and after that: tell the ring again */
        bool done, delivered;
        char detail[256];
};

struct webhooks {
        struct io *io;
        struct evdns_base *dns; /* made when first needed */
        struct arena memory;
        const Pb__ServerConfig *config; /* in memory */
        ARRAY(struct delivery *) deliveries;
        bool stopped;
};

struct webhooks *webhooks_create(struct io *io)
{
        struct webhooks *w = mem_must(sizeof(*w));
        w->io = io;
        return w;
}

static void delivery_free(struct delivery *d)
{
        struct webhooks *w = d->w;
        for (size_t i = 0; i < w->deliveries.len; i++)
                if (w->deliveries.at[i] == d) {
                        w->deliveries.at[i] = w->deliveries.at[--w->deliveries.len];
                        break;
                }
        if (d->connection)
                evhttp_connection_free(d->connection);
        event_free(d->timer);
        mem_free(d->id);
        mem_free(d->name);
        mem_free(d);
}

void webhooks_stop(struct webhooks *w)
{
        w->stopped = true;
        while (w->deliveries.len)
                delivery_free(w->deliveries.at[0]); /* the outbox still holds it */
        if (w->dns)
                evdns_base_free(w->dns, 0);
        w->dns = NULL;
}

void webhooks_drop(struct webhooks *w)
{
        while (w->deliveries.len)
                delivery_free(w->deliveries.at[0]); /* the next leader finds it in the outbox */
}

void webhooks_destroy(struct webhooks *w)
{
        if (!w)
                return;
        webhooks_stop(w);
        array_fini(&w->deliveries);
        arena_fini(&w->memory);
        mem_free(w);
}

void webhooks_configure(struct webhooks *w, const Pb__ServerConfig *config)
{
        arena_reset(&w->memory);
        w->config = config ? (const Pb__ServerConfig *)pb_clone(&w->memory, &config->base) : NULL;
}

void webhook_sign(const char *secret, size_t secret_len, int64_t unix_seconds, const char *body,
                  struct str *out)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        unsigned char mac[EVP_MAX_MD_SIZE];
        unsigned len = 0;
        str_addf(&text, "%lld.%s", (long long)unix_seconds, body);
        HMAC(EVP_sha256(), secret, (int)secret_len, (const unsigned char *)str_c(&text), text.len,
             mac, &len);
        str_addf(out, "t=%lld,v1=", (long long)unix_seconds);
        for (unsigned i = 0; i < len; i++)
                str_addf(out, "%02x", mac[i]);
}

/* ---- the result ---- */

/* The ring may be full; then the timer tries again. */
static void tell(struct delivery *d)
{
        struct io *io = d->w->io;
        struct ring_msg *msg = ring_msg_new(INPUT_WEBHOOK_DONE);
        Pb__WebhookResult *m =
            (Pb__WebhookResult *)pb_new(&msg->memory, &pb__webhook_result__descriptor);
        m->id = arena_strdup(&msg->memory, d->id);
        m->delivered = d->delivered;
        m->detail = arena_strdup(&msg->memory, d->detail);
        msg->in.msg = &m->base;
        if (io_to_ring(io, msg, true)) {
                delivery_free(d);
                return;
        }
        ring_msg_free(msg);
        evtimer_add(d->timer, &(struct timeval){ .tv_usec = RESULT_AGAIN_MS * 1000 });
}

static void finish(struct delivery *d, bool delivered, const char *detail)
{
        if (d->done)
                return;
        d->done = true;
        d->delivered = delivered;
        snprintf(d->detail, sizeof(d->detail), "%s", detail);
        if (delivered)
                log_debug("webhook delivered", LOG_S("webhook", d->name), LOG_S("id", d->id),
                          LOG_S("detail", detail));
        else
                log_warn("a webhook was not delivered", LOG_S("webhook", d->name),
                         LOG_S("id", d->id), LOG_S("detail", detail));
        /* from the loop: libevent is still inside the connection that this would free */
        evtimer_add(d->timer, &(struct timeval){ 0 });
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
        struct delivery *d = ctx;
        (void)fd;
        (void)what;
        if (d->done)
                tell(d);
        else
                finish(d, false, "no answer in time");
}

static void on_answer(struct evhttp_request *req, void *ctx)
{
        struct delivery *d = ctx;
        int status = req ? evhttp_request_get_response_code(req) : 0;
        if (!req || status == 0)
                finish(d, false, "no answer: the connection could not be made, or was closed");
        else if (status >= 200 && status < 300)
                finish(d, true, fmt("%d", status));
        else
                finish(d, false, fmt("the receiver answered %d", status));
}

static void on_trouble(enum evhttp_request_error error, void *ctx)
{
        static const char *const words[] = {
                [EVREQ_HTTP_TIMEOUT] = "no answer in time",
                [EVREQ_HTTP_EOF] = "the connection was closed before the answer",
                [EVREQ_HTTP_INVALID_HEADER] = "the answer is no HTTP",
                [EVREQ_HTTP_BUFFER_ERROR] =
                    "the connection could not be made, or its certificate is not trusted",
                [EVREQ_HTTP_DATA_TOO_LONG] = "the answer is too long"
        };
        finish(ctx, false,
               (size_t)error < ARRAY_LEN(words) && words[error] ? words[error] : "the call failed");
}

/* ---- sending ---- */

static const Pb__Webhook *webhook_named(const struct webhooks *w, const char *name)
{
        for (size_t i = 0; w->config && i < w->config->n_webhooks; i++)
                if (str_eq(w->config->webhooks[i]->name, name))
                        return w->config->webhooks[i];
        return NULL;
}

static struct bufferevent *bufferevent_for(struct webhooks *w, const struct url *u,
                                           const Pb__Webhook *conf, struct err *err)
{
        if (!u->tls)
                return bufferevent_socket_new(w->io->base, -1, BEV_OPT_CLOSE_ON_FREE);
        _cleanup_(tls_unrefp) struct tls *tls = NULL;
        struct tls_options o = { .ca_file = str_empty(conf->ca_file) ? NULL : conf->ca_file };
        if (tls_client_create(&o, &tls, err) < 0)
                return NULL;
        struct ssl_st *ssl = tls_new_ssl(tls, "http/1.1", u->host, err);
        if (!ssl)
                return NULL;
        struct bufferevent *bev = bufferevent_openssl_socket_new(
            w->io->base, -1, ssl, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
        if (bev)
                bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
        return bev;
}

static int add_signature(struct evkeyvalq *headers, const Pb__Webhook *conf, const char *body,
                         struct err *err)
{
        _cleanup_(str_finip) struct str secret = STR_INIT, signature = STR_INIT;
        if (!str_empty(conf->secret_file)) {
                int r = file_read(conf->secret_file, SECRET_BYTES, &secret, err);
                if (r < 0)
                        return r;
                while (secret.len && strchr("\r\n", secret.buf[secret.len - 1]))
                        secret.buf[--secret.len] = '\0';
        } else
                str_adds(&secret, conf->secret);
        if (!secret.len)
                return 0;
        webhook_sign(str_c(&secret), secret.len, clock_wall_ms() / 1000, body, &signature);
        evhttp_add_header(headers, "Berth-Signature", str_c(&signature));
        return 0;
}

static int post(struct delivery *d, const Pb__Outgoing *m, const Pb__Webhook *conf, struct err *err)
{
        struct webhooks *w = d->w;
        struct arena arena = ARENA_INIT;
        struct url u;
        int64_t timeout = config_duration_ms(conf->timeout, TIMEOUT_MS);
        const struct timeval tv = { .tv_sec = timeout / 1000, .tv_usec = timeout % 1000 * 1000 };
        struct evhttp_request *req = NULL;
        struct bufferevent *bev = NULL;
        int r = url_parse(&arena, conf->url, &u, err);
        if (r >= 0 && !w->dns)
                w->dns = evdns_base_new(w->io->base, EVDNS_BASE_INITIALIZE_NAMESERVERS |
                                                         EVDNS_BASE_DISABLE_WHEN_INACTIVE);
        if (r >= 0 && !(bev = bufferevent_for(w, &u, conf, err)))
                r = err->code ? -(int)err->code
                              : err_set(err, ERR_NOMEM, .msg = "no memory for a connection");
        if (r >= 0) {
                d->connection = evhttp_connection_base_bufferevent_new(w->io->base, w->dns, bev,
                                                                       u.host, u.port);
                req = evhttp_request_new(on_answer, d);
                if (!d->connection || !req)
                        r = err_set(err, ERR_NOMEM, .msg = "no memory for a connection");
        }
        if (r >= 0) {
                struct evkeyvalq *headers = evhttp_request_get_output_headers(req);
                evhttp_connection_set_timeout_tv(d->connection, &tv);
                evhttp_connection_set_max_body_size(d->connection, ANSWER_BYTES);
                evhttp_connection_set_max_headers_size(d->connection, ANSWER_BYTES);
                evhttp_request_set_error_cb(req, on_trouble);
                evhttp_add_header(headers, "Host", u.authority);
                evhttp_add_header(headers, "Content-Type", "application/json");
                evhttp_add_header(headers, "User-Agent", "berth/" BERTH_VERSION);
                evhttp_add_header(headers, "Connection", "close");
                evhttp_add_header(headers, "Berth-Delivery", m->id);
                evhttp_add_header(headers, "Berth-Event", m->event);
                r = add_signature(headers, conf, m->body, err);
        }
        if (r >= 0) {
                evbuffer_add(evhttp_request_get_output_buffer(req), m->body, strlen(m->body));
                evtimer_add(d->timer, &tv);
                if (evhttp_make_request(d->connection, req, EVHTTP_REQ_POST, u.path) < 0)
                        r = err_set(err, ERR_UNAVAILABLE,
                                    .msg = "the connection could not be made");
                req = NULL; /* libevent's, also when it failed */
        }
        if (req)
                evhttp_request_free(req);
        arena_fini(&arena);
        return r;
}

static void deliver(struct webhooks *w, const Pb__Outgoing *m)
{
        struct err err = { 0 };
        struct delivery *d = mem_must(sizeof(*d));
        const Pb__Webhook *conf = webhook_named(w, m->webhook);
        d->w = w;
        d->id = mem_strdup(m->id);
        d->name = mem_strdup(m->webhook);
        d->timer = evtimer_new(w->io->base, on_timer, d);
        *array_push(&w->deliveries) = d;
        if (!conf)
                finish(d, false, "the configuration has no such webhook any more");
        else if (post(d, m, conf, &err) < 0)
                finish(d, false, err_line(&err));
}

void webhooks_effects(struct webhooks *w, const struct core_batch *batch)
{
        for (size_t i = 0; i < batch->n_effects && !w->stopped; i++) {
                const struct effect *e = &batch->effects[i];
                struct arena arena = ARENA_INIT;
                ProtobufCMessage *m = NULL;
                if (e->kind == EFFECT_WEBHOOK && pb_unpack_own(&pb__outgoing__descriptor, e->data,
                                                               e->len, &arena, &m, NULL) >= 0)
                        deliver(w, (const Pb__Outgoing *)m);
                arena_fini(&arena);
        }
}
