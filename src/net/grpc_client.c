/* net/grpc_client.c: the channel: a target (or several that do the same), a connection to one when
 * it is needed, and the calls that wait for it. See grpc.h.
 *
 *      IDLE --call--> CONNECTING --SETTINGS--> READY --lost, GOAWAY--> IDLE
 *                         |  ^
 *                  failed |  | timer, if somebody waits (else IDLE)
 *                         v  |
 *                       BACKOFF
 *
 * After a connection was lost the next try waits a random part of backoff_min_ms, so that a
 * thousand clients of a server that restarted do not come back in the same millisecond. After a try
 * failed the wait doubles, with jitter. Of several targets each is tried once, without a pause,
 * before that counts as a failed try.
 *
 * Invariants:
 *   (1) channel->conn is the connection that new calls go to: set exactly in READY, and while the
 *       handshake runs in CONNECTING. Connections that said GOAWAY are only in channel->conns,
 *       until their last call has ended.
 *   (2) A call is in the waiting list or attached to a connection or closed.
 *   (3) timer is pending in BACKOFF and CONNECTING, never in IDLE or READY.
 */
#include "base/log.h"
#include "base/mem.h"
#include "net/grpc_internal.h"
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ADDRESSES_MAX = 8, TARGETS_MAX = GRPC_TARGETS_MAX };

struct grpc_channel {
        struct grpc_host host;
        struct addr targets[TARGETS_MAX];
        char *target_texts[TARGETS_MAX];
        unsigned n_targets, target_at;
        unsigned tried;      /* targets in a row that could not be reached, since all were */
        char *server_name;   /* NULL: the target's host */
        char *authorization; /* NULL: none */
        struct tls *tls;
        struct rng *rng, own_rng;
        uint32_t max_waiting, n_waiting;
        int64_t connect_timeout_ms, backoff_min_ms, backoff_max_ms;
        void (*on_state)(struct grpc_channel *channel, enum grpc_channel_state state,
                         const struct err *why, void *ctx);
        void *ctx;

        enum grpc_channel_state state;
        struct event *timer;
        bool delay_pending; /* CONNECTING, but the first step waits for the timer */
        unsigned attempts;  /* failed ones since the last READY */
        int64_t not_before_ms;
        struct grpc_conn *conn, *conns;
        struct grpc_call *waiting_head, *waiting_tail;

        struct evdns_base *dns;
        struct evdns_getaddrinfo_request *resolving;
        struct sockaddr_storage addresses[ADDRESSES_MAX];
        unsigned n_addresses, address_at;
        int fd; /* being connected; -1: none */
        bool (*may_dial)(void *ctx, const struct sockaddr *sa);
        void *dial_ctx;
        struct event *connect_event;
        struct err last;
};

static void start_connect(struct grpc_channel *ch);
static const char *target_text(const struct grpc_channel *ch)
{
        return ch->target_texts[ch->target_at];
}
static const char *server_name(const struct grpc_channel *ch)
{
        const char *host = ch->targets[ch->target_at].host;
        return ch->server_name ? ch->server_name : host[0] ? host : "localhost";
}
static void try_next_address(struct grpc_channel *ch);

static void set_state(struct grpc_channel *ch, enum grpc_channel_state state, const struct err *why)
{
        if (ch->state == state)
                return;
        ch->state = state;
        if (ch->on_state && !ch->host.ending)
                ch->on_state(ch, state, why, ch->ctx);
}

/* ---- calls that wait ---- */

static void wait_add(struct grpc_channel *ch, struct grpc_call *call)
{
        call->is_waiting = true;
        call->prev = ch->waiting_tail;
        call->next = NULL;
        if (ch->waiting_tail)
                ch->waiting_tail->next = call;
        else
                ch->waiting_head = call;
        ch->waiting_tail = call;
        ch->n_waiting++;
}

void grpc_channel_unwait(struct grpc_call *call)
{
        struct grpc_channel *ch = call->host->channel;

        if (call->prev)
                call->prev->next = call->next;
        else
                ch->waiting_head = call->next;
        if (call->next)
                call->next->prev = call->prev;
        else
                ch->waiting_tail = call->prev;
        call->next = call->prev = NULL;
        call->is_waiting = false;
        ch->n_waiting--;
}

static int submit(struct grpc_channel *ch, struct grpc_call *call)
{
#define NV(n, v)                                                                                   \
        {                                                                                          \
                (uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), strlen(v),        \
                    NGHTTP2_NV_FLAG_NONE                                                           \
        }
        char timeout[16] = "";
        if (call->has_deadline)
                grpc_timeout_format(timeout, grpc_call_remaining_ms(call));
        nghttp2_nv nv[META_MAX] = {
                NV(":method", "POST"),
                NV(":scheme", ch->tls ? "https" : "http"),
                NV(":path", call->path),
                NV(":authority", ch->server_name ? ch->server_name : target_text(ch)),
                NV("te", "trailers"),
                NV("content-type", "application/grpc"),
                NV("user-agent", "berth/" BERTH_VERSION),
                NV("grpc-timeout", timeout),
        };
#undef NV
        size_t n = call->has_deadline ? 8 : 7;
        struct meta_entry e;
        for (size_t at = 0; n < META_MAX && meta_next(&call->trailers_out, &at, &e);)
                nv[n++] = (nghttp2_nv){ (uint8_t *)(uintptr_t)e.name, (uint8_t *)(uintptr_t)e.value,
                                        e.name_len, e.value_len, NGHTTP2_NV_FLAG_NONE };
        nghttp2_data_provider body = { .source = { .ptr = call }, .read_callback = grpc_call_read };
        int32_t id = nghttp2_submit_request(ch->conn->session, NULL, nv, n, &body, call);
        if (id < 0)
                return id;
        grpc_channel_unwait(call);
        str_fini(&call->trailers_out);
        call->headers_done = true;
        grpc_call_attach(call, ch->conn, id);
        grpc_conn_flush_soon(ch->conn);
        return 0;
}

/* As many as the server allows at a time; the rest goes on waiting. */
static void start_waiting(struct grpc_channel *ch)
{
        while (ch->state == GRPC_CHANNEL_READY && ch->waiting_head) {
                struct grpc_call *call = ch->waiting_head;
                uint32_t max = nghttp2_session_get_remote_settings(
                    ch->conn->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
                if (ch->conn->n_calls >= max)
                        return;
                int r = submit(ch, call);
                /* 2^30 calls: a new connection starts over */
                if (r == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE) {
                        grpc_conn_goaway(ch->conn);
                        ch->conn = NULL;
                        set_state(ch, GRPC_CHANNEL_IDLE, NULL);
                        start_connect(ch);
                } else if (r < 0)
                        grpc_call_close(call, GRPC_INTERNAL, nghttp2_strerror(r));
        }
}

static void fail_waiting(struct grpc_channel *ch, const struct err *why)
{
        for (struct grpc_call *call = ch->waiting_head, *next; call; call = next) {
                next = call->next;
                if (!call->wait_for_ready)
                        grpc_call_close(call, GRPC_UNAVAILABLE, err_line(why));
        }
}

/* ---- connecting ---- */

static void stop_connecting(struct grpc_channel *ch)
{
        if (ch->resolving)
                evdns_getaddrinfo_cancel(ch->resolving);
        ch->resolving = NULL;
        if (ch->connect_event)
                event_free(ch->connect_event);
        ch->connect_event = NULL;
        if (ch->fd >= 0)
                close(ch->fd);
        ch->fd = -1;
        ch->delay_pending = false;
        event_del(ch->timer);
}

static void arm(struct grpc_channel *ch, int64_t ms)
{
        struct timeval tv = ms_timeval(ms);
        event_add(ch->timer, &tv);
}

static void connect_failed(struct grpc_channel *ch, const struct err *why)
{
        int64_t wait_ms = ch->backoff_min_ms;

        stop_connecting(ch);
        ch->conn = NULL;
        ch->last = *why;
        ch->target_at = (ch->target_at + 1) % ch->n_targets;
        if (++ch->tried < ch->n_targets) { /* the next one, from the loop */
                ch->delay_pending = true;
                arm(ch, 0);
                return;
        }
        ch->tried = 0;
        for (unsigned i = 0; i < ch->attempts && wait_ms < ch->backoff_max_ms; i++)
                wait_ms *= 2;
        if (wait_ms > ch->backoff_max_ms)
                wait_ms = ch->backoff_max_ms;
        wait_ms += (int64_t)rng_below(ch->rng, (uint64_t)(wait_ms * 2 / 5 + 1)) - wait_ms / 5;
        ch->attempts++;
        arm(ch, wait_ms);
        fail_waiting(ch, why);
        set_state(ch, GRPC_CHANNEL_BACKOFF, why);
}

static void connect_failed_with(struct grpc_channel *ch, const char *detail)
{
        struct err why;

        err_set(&why, ERR_UNAVAILABLE, .msg = fmt("cannot connect to %s", target_text(ch)),
                .detail = detail);
        connect_failed(ch, &why);
}

static void on_ready(struct grpc_conn *conn)
{
        struct grpc_channel *ch = conn->host->channel;

        if (ch->conn != conn)
                return;
        event_del(ch->timer);
        ch->attempts = ch->tried = 0;
        set_state(ch, GRPC_CHANNEL_READY, NULL);
        start_waiting(ch);
}

/* A random part of the shortest back-off, before the next connection is made. */
static void spread_out(struct grpc_channel *ch)
{
        ch->not_before_ms =
            mono_ms() + (int64_t)rng_below(ch->rng, (uint64_t)ch->backoff_min_ms + 1);
}

static void lose(struct grpc_channel *ch)
{
        ch->conn = NULL;
        spread_out(ch);
        set_state(ch, GRPC_CHANNEL_IDLE, NULL);
        if (ch->waiting_head && ch->state == GRPC_CHANNEL_IDLE)
                start_connect(ch);
}

static void on_goaway(struct grpc_conn *conn)
{
        struct grpc_channel *ch = conn->host->channel;

        if (ch->conn == conn && conn->is_ready)
                lose(ch);
}

static void on_stream_free(struct grpc_conn *conn)
{
        struct grpc_channel *ch = conn->host->channel;

        if (ch->conn == conn)
                start_waiting(ch);
}

static void on_gone(struct grpc_conn *conn, const struct err *why)
{
        struct grpc_channel *ch = conn->host->channel;

        if (conn->prev)
                conn->prev->next = conn->next;
        else
                ch->conns = conn->next;
        if (conn->next)
                conn->next->prev = conn->prev;
        if (ch->conn != conn || ch->host.ending)
                return;
        if (conn->is_ready)
                lose(ch);
        else {
                struct err e = *why;
                err_prefix(&e, fmt("cannot connect to %s", target_text(ch)));
                connect_failed(ch, &e);
        }
}

static const struct grpc_conn_hooks client_hooks = {
        .ready = on_ready,
        .goaway = on_goaway,
        .stream_free = on_stream_free,
        .gone = on_gone,
};

static void connected(struct grpc_channel *ch)
{
        const struct sockaddr *sa = (struct sockaddr *)&ch->addresses[ch->address_at - 1];
        static const int on = 1;
        struct err err;
        SSL *ssl = NULL;
        int fd = ch->fd;

        if (ch->tls && !(ssl = tls_new_ssl(ch->tls, "h2", server_name(ch), &err))) {
                connect_failed(ch, &err);
                return;
        }
        ch->fd = -1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        /* The channel's timer covers TCP; this one TLS and the greeting. */
        struct grpc_conn *conn = grpc_conn_new(&ch->host, &client_hooks, fd, ssl, false, sa,
                                               ch->connect_timeout_ms, &err);
        if (!conn) {
                connect_failed(ch, &err);
                return;
        }
        conn->next = ch->conns;
        if (ch->conns)
                ch->conns->prev = conn;
        ch->conns = ch->conn = conn;
}

static void on_connect(evutil_socket_t fd, short what, void *arg)
{
        struct grpc_channel *ch = arg;
        int errnum = 0;
        socklen_t len = sizeof(errnum);
        (void)what;

        event_free(ch->connect_event);
        ch->connect_event = NULL;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &len) < 0)
                errnum = errno;
        if (errnum == 0) {
                connected(ch);
                return;
        }
        close(ch->fd);
        ch->fd = -1;
        err_set(&ch->last, ERR_UNAVAILABLE, .msg = fmt("cannot connect to %s", target_text(ch)),
                .detail = strerror(errnum));
        try_next_address(ch);
}

static void try_next_address(struct grpc_channel *ch)
{
        while (ch->address_at < ch->n_addresses) {
                const struct sockaddr *sa = (struct sockaddr *)&ch->addresses[ch->address_at++];
                socklen_t len = sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                          : sizeof(struct sockaddr_in);

                if (ch->may_dial && !ch->may_dial(ch->dial_ctx, sa)) {
                        char text[ADDR_TEXT_MAX];
                        err_set(&ch->last, ERR_DENIED,
                                .msg = fmt("cannot connect to %s", target_text(ch)),
                                .detail = fmt("%s is an address that is not called from here",
                                              addr_format(sa, text)));
                        continue;
                }
                ch->fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
                if (ch->fd >= 0 && (connect(ch->fd, sa, len) == 0 || errno == EINPROGRESS) &&
                    (ch->connect_event =
                         event_new(ch->host.base, ch->fd, EV_WRITE, on_connect, ch))) {
                        event_add(ch->connect_event, NULL);
                        return;
                }
                err_set(&ch->last, ERR_UNAVAILABLE,
                        .msg = fmt("cannot connect to %s", target_text(ch)),
                        .detail = strerror(errno));
                if (ch->fd >= 0)
                        close(ch->fd);
                ch->fd = -1;
        }
        struct err why = ch->last;
        connect_failed(ch, &why);
}

static void add_address(struct grpc_channel *ch, const struct sockaddr *sa, size_t len)
{
        if (ch->n_addresses < ADDRESSES_MAX && len <= sizeof(ch->addresses[0]))
                memcpy(&ch->addresses[ch->n_addresses++], sa, len);
}

static void on_resolved(int result, struct evutil_addrinfo *list, void *arg)
{
        struct grpc_channel *ch = arg;

        if (result == EVUTIL_EAI_CANCEL)
                return;
        ch->resolving = NULL;
        for (struct evutil_addrinfo *ai = list; ai; ai = ai->ai_next)
                add_address(ch, ai->ai_addr, ai->ai_addrlen);
        if (list)
                evutil_freeaddrinfo(list);
        if (result != 0 || ch->n_addresses == 0)
                connect_failed_with(ch,
                                    fmt("the name is not known: %s", evutil_gai_strerror(result)));
        else
                try_next_address(ch);
}

/* Addresses and localhost need no resolver (and no /etc/hosts in a bare container). */
static bool resolve_literal(struct grpc_channel *ch)
{
        const char *host = ch->targets[ch->target_at].host;
        struct sockaddr_in in = { .sin_family = AF_INET,
                                  .sin_port = htons(ch->targets[ch->target_at].port) };
        struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
                                    .sin6_port = htons(ch->targets[ch->target_at].port) };
        bool is_local = str_case_eq(host, "localhost") || !host[0];

        if (inet_pton(AF_INET, is_local ? "127.0.0.1" : host, &in.sin_addr) == 1)
                add_address(ch, (struct sockaddr *)&in, sizeof(in));
        if (inet_pton(AF_INET6, is_local ? "::1" : host, &in6.sin6_addr) == 1)
                add_address(ch, (struct sockaddr *)&in6, sizeof(in6));
        return ch->n_addresses > 0;
}

static void connect_now(struct grpc_channel *ch)
{
        ch->delay_pending = false;
        ch->n_addresses = ch->address_at = 0;
        arm(ch, ch->connect_timeout_ms);
        if (resolve_literal(ch)) {
                try_next_address(ch);
                return;
        }
        if (!ch->dns)
                ch->dns = evdns_base_new(ch->host.base, EVDNS_BASE_INITIALIZE_NAMESERVERS |
                                                            EVDNS_BASE_DISABLE_WHEN_INACTIVE);
        if (!ch->dns) {
                connect_failed_with(ch, "no name server is configured");
                return;
        }
        struct evutil_addrinfo hints = { .ai_family = AF_UNSPEC,
                                         .ai_socktype = SOCK_STREAM,
                                         .ai_protocol = IPPROTO_TCP };
        char port[8];
        snprintf(port, sizeof(port), "%u", ch->targets[ch->target_at].port);
        struct evdns_getaddrinfo_request *req = evdns_getaddrinfo(
            ch->dns, ch->targets[ch->target_at].host, port, &hints, on_resolved, ch);
        /* NULL: on_resolved has been called already. */
        if (req)
                ch->resolving = req;
}

static void start_connect(struct grpc_channel *ch)
{
        if (ch->host.ending || ch->state == GRPC_CHANNEL_CONNECTING ||
            ch->state == GRPC_CHANNEL_READY)
                return;
        int64_t wait_ms = ch->not_before_ms - mono_ms();
        ch->delay_pending = true;
        /* never from inside a caller's function: on_close and on_state come from the loop */
        arm(ch, wait_ms > 0 ? wait_ms : 0);
        set_state(ch, GRPC_CHANNEL_CONNECTING, NULL);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
        struct grpc_channel *ch = arg;
        (void)fd;
        (void)what;

        if (ch->state == GRPC_CHANNEL_BACKOFF) {
                ch->state = GRPC_CHANNEL_IDLE;
                if (ch->waiting_head) {
                        ch->not_before_ms = 0;
                        start_connect(ch);
                } else if (ch->on_state)
                        ch->on_state(ch, GRPC_CHANNEL_IDLE, NULL, ch->ctx);
        } else if (ch->state == GRPC_CHANNEL_CONNECTING && ch->delay_pending)
                connect_now(ch);
        else if (ch->state == GRPC_CHANNEL_CONNECTING) {
                const char *detail =
                    fmt("no answer within %lld ms", (long long)ch->connect_timeout_ms);
                struct err why;
                if (!ch->conn) {
                        connect_failed_with(ch, detail);
                        return;
                }
                err_set(&why, ERR_UNAVAILABLE, .msg = "the handshake took too long",
                        .detail = detail);
                grpc_conn_end(ch->conn, &why);
        }
}

/* ---- what callers see ---- */

struct grpc_call *grpc_channel_call(struct grpc_channel *ch, const char *path,
                                    const struct grpc_call_options *options,
                                    const struct grpc_callbacks *callbacks, void *ctx)
{
        static const struct grpc_call_options defaults = { 0 };
        const struct grpc_call_options *o = options ? options : &defaults;
        struct grpc_call *call = grpc_call_new(&ch->host, false, path, strlen(path));

        call->data = ctx;
        /* from an on_close that destroying the channel brought: ended without callbacks */
        if (ch->host.ending) {
                grpc_call_close(call, GRPC_CANCELLED, NULL);
                return call;
        }
        call->on = *callbacks;
        call->wait_for_ready = o->wait_for_ready;
        if (o->max_message_bytes)
                call->max_message_bytes = o->max_message_bytes;
        if (o->max_queued_bytes)
                call->max_queued_bytes = o->max_queued_bytes;
        if (ch->authorization)
                meta_add_outgoing(
                    &call->trailers_out,
                    (struct grpc_metadata[]){
                        GRPC_META("authorization", ch->authorization, strlen(ch->authorization)),
                        GRPC_META_END });
        meta_add_outgoing(&call->trailers_out, o->metadata);
        if (ch->n_waiting >= ch->max_waiting) {
                grpc_call_close(
                    call, GRPC_RESOURCE_EXHAUSTED,
                    fmt("%u calls wait for %s already", ch->n_waiting, target_text(ch)));
                return call;
        }
        if (ch->state == GRPC_CHANNEL_BACKOFF && !o->wait_for_ready) {
                grpc_call_close(call, GRPC_UNAVAILABLE, err_line(&ch->last));
                return call;
        }
        if (o->deadline_ms > 0)
                grpc_call_set_deadline(call, o->deadline_ms);
        wait_add(ch, call);
        if (ch->state == GRPC_CHANNEL_READY)
                start_waiting(ch);
        else if (ch->state == GRPC_CHANNEL_IDLE)
                start_connect(ch);
        return call;
}

void grpc_channel_connect(struct grpc_channel *ch)
{
        ch->not_before_ms = 0;
        if (ch->state == GRPC_CHANNEL_CONNECTING && ch->delay_pending)
                arm(ch, 0);
        else
                start_connect(ch);
}

void grpc_channel_next(struct grpc_channel *ch)
{
        bool lost = ch->state == GRPC_CHANNEL_IDLE ||
                    (ch->state == GRPC_CHANNEL_CONNECTING && ch->delay_pending);
        if (ch->n_targets < 2 || (ch->state != GRPC_CHANNEL_READY && !lost))
                return;
        struct grpc_conn *conn = ch->conn;
        ch->target_at = (ch->target_at + 1) % ch->n_targets;
        if (lost)
                return; /* it connects there when it connects again */
        ch->conn = NULL;
        ch->not_before_ms = 0;
        grpc_conn_goaway(conn);
        set_state(ch, GRPC_CHANNEL_IDLE, NULL);
        if (ch->waiting_head && ch->state == GRPC_CHANNEL_IDLE)
                start_connect(ch);
}

unsigned grpc_channel_targets(const struct grpc_channel *ch)
{
        return ch->n_targets;
}

enum grpc_channel_state grpc_channel_state(const struct grpc_channel *ch)
{
        return ch->state;
}
const char *grpc_channel_target(const struct grpc_channel *ch)
{
        return target_text(ch);
}

/* "host:port" or "host:port,host:port" */
static int parse_targets(struct grpc_channel *ch, const char *text, struct err *err)
{
        for (const char *at = text;; at++) {
                size_t len = strcspn(at, ",");
                char *one = mem_must(len + 1);
                memcpy(one, at, len);
                if (ch->n_targets == TARGETS_MAX) {
                        mem_free(one);
                        return err_set(err, ERR_INVALID, .msg = "there are too many addresses",
                                       .detail = fmt("at most %d", TARGETS_MAX));
                }
                ch->target_texts[ch->n_targets] = one;
                struct addr *addr = &ch->targets[ch->n_targets++];
                int r = addr_parse(one, addr, err);
                if (r < 0)
                        return r;
                if (addr->port == 0)
                        return err_set(err, ERR_INVALID,
                                       .msg = fmt("\"%.100s\" names no port", one));
                at += len;
                if (!*at)
                        return 0;
        }
}

#define OR_DEFAULT(value, fallback) ((value) ? (value) : (fallback))

/* A token that is read on the way is as good as a stolen one: in the clear it goes no further than
 * this machine. */
static int check_token(const struct grpc_channel *ch, struct err *err)
{
        for (unsigned i = 0; ch->authorization && !ch->tls && i < ch->n_targets; i++) {
                const char *host = ch->targets[i].host;
                if (host[0] && !str_case_eq(host, "localhost") && !str_eq(host, "::1") &&
                    !(str_starts(host, "127.") && tls_is_address(host)))
                        return err_set(err, ERR_DENIED,
                                       .msg = fmt("a token is not sent to %s in the clear",
                                                  ch->target_texts[i]),
                                       .hint = "use TLS: --tls-ca FILE, with the CA of the "
                                               "server's certificate (docs/tls.md)");
        }
        return 0;
}

int grpc_channel_create(struct event_base *base, const char *target,
                        const struct grpc_channel_options *options,
                        struct grpc_channel **ret_channel, struct err *err)
{
        static const struct grpc_channel_options defaults = { 0 };
        const struct grpc_channel_options *o = options ? options : &defaults;
        _cleanup_(grpc_channel_destroyp) struct grpc_channel *ch = mem_must(sizeof(*ch));
        ch->host.channel = ch;
        ch->fd = -1;
        ch->server_name = str_empty(o->server_name) ? NULL : mem_strdup(o->server_name);
        ch->host.to_server = o->to_server;
        ch->may_dial = o->may_dial;
        ch->dial_ctx = o->dial_ctx;
        ch->host.node_id = str_empty(o->node_id) ? NULL : mem_strdup(o->node_id);
        if (!str_empty(o->token)) {
                struct str text = STR_INIT;
                str_addf(&text, "Bearer %s", o->token);
                ch->authorization = mem_strdup(str_c(&text));
                str_fini(&text);
        }
        ch->tls = tls_ref(o->tls);
        ch->rng = o->rng;
        if (!ch->rng) {
                rng_seed_system(&ch->own_rng);
                ch->rng = &ch->own_rng;
        }
        ch->host.max_message_bytes = OR_DEFAULT(o->max_message_bytes, GRPC_MESSAGE_MAX_DEFAULT);
        ch->host.max_header_bytes = OR_DEFAULT(o->max_header_bytes, 16 * 1024);
        ch->host.max_queued_bytes = OR_DEFAULT(o->max_queued_bytes, 1024 * 1024);
        ch->host.max_connection_queued_bytes = SIZE_MAX / 2;
        ch->host.keepalive_ms = OR_DEFAULT(o->keepalive_ms, 20000);
        ch->host.keepalive_timeout_ms = OR_DEFAULT(o->keepalive_timeout_ms, 10000);
        ch->max_waiting = OR_DEFAULT(o->max_waiting_calls, 1000);
        ch->connect_timeout_ms = OR_DEFAULT(o->connect_timeout_ms, 10000);
        ch->backoff_min_ms = OR_DEFAULT(o->backoff_min_ms, 500);
        ch->backoff_max_ms = OR_DEFAULT(o->backoff_max_ms, 30000);
        ch->on_state = o->on_state;
        ch->ctx = o->ctx;
        signal(SIGPIPE, SIG_IGN);
        int r = grpc_host_init(&ch->host, base, err);
        if (r < 0 || (r = parse_targets(ch, target, err)) < 0 || (r = check_token(ch, err)) < 0)
                return r;
        ch->timer = evtimer_new(base, on_timer, ch);
        if (!ch->timer)
                return err_set(err, ERR_NOMEM, .msg = "no memory for a channel");
        *ret_channel = TAKE_PTR(ch);
        return 0;
}

void grpc_channel_destroy(struct grpc_channel *ch)
{
        struct err why;

        if (!ch)
                return;
        ch->host.ending = true;
        err_set(&why, ERR_CANCELLED, .msg = "the channel was closed here");
        for (size_t i = 0; i < ch->host.calls.all.len; i++)
                if (ch->host.calls.all.at[i].object)
                        grpc_call_close(ch->host.calls.all.at[i].object, GRPC_CANCELLED, why.msg);
        while (ch->conns)
                grpc_conn_end(ch->conns, &why);
        if (ch->timer)
                stop_connecting(ch);
        grpc_host_fini(&ch->host, GRPC_CANCELLED);
        if (ch->dns)
                evdns_base_free(ch->dns, 0);
        if (ch->timer)
                event_free(ch->timer);
        tls_unref(ch->tls);
        for (unsigned i = 0; i < ch->n_targets; i++)
                mem_free(ch->target_texts[i]);
        mem_free(ch->authorization);
        mem_free(ch->server_name);
        mem_free(ch->host.node_id);
        mem_free(ch);
}
