/* store/etcd_client.c: see etcd_client.h.
 *
 * One thread, one event loop. What other threads want is posted to it; a request
 * is its caller's, and the loop always ends it, since every try has a deadline.
 */
#include "store/etcd_client.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/str.h"
#include "net/grpc.h"
#include "net/tls.h"
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define ENDPOINTS_MAX 16
#define AGAIN_MS 50 /* between two tries of one call */
/* that is taken; who reads much asks for less then (etcd_read.c) */
#define MESSAGE_MAX (64 * 1024 * 1024)
#define TURN_US 1000 /* between two requests that go out in turn */
/* keep-alives under way; more than that means that nobody listens */
#define UNANSWERED_MAX 16

struct etcd_request {
        struct etcd_client *c;
        const char *path;
        struct str request, answer;
        char message[256];
        enum grpc_status status;
        int64_t deadline_ns, allowed_ns;
        int64_t sent_ns; /* the last try, by the steady clock */
        void (*on_end)(void *ctx);
        void *ctx;
        bool done; /* under the client's lock */
        /* the loop's own */
        struct grpc_call *call; /* of the running try */
        unsigned tries;
        uint32_t endpoint;
        bool got;
        enum etcd_turn turn;
        struct etcd_request *next_turn;
        struct event *again;
};

struct post {
        void (*fn)(struct etcd_client *c, void *arg);
        void *arg;
        struct post *next;
};

struct lease {
        struct grpc_channel *channel;
        struct grpc_call *call;
        struct event *timer;
        uint32_t endpoint;
        int64_t id, ttl_seconds;
        int64_t sent_ns[UNANSWERED_MAX];
        unsigned first, n; /* unanswered ones, oldest first */
};

struct watch {
        struct etcd_client *c;
        enum etcd_watch_slot which;
        struct grpc_channel *channel;
        struct grpc_call *call;
        struct event *timer;
        uint32_t endpoint;
        char *key, *end;
        int64_t next_revision;
        etcd_watch_fn fn;
        void *ctx;
};

struct etcd_client {
        struct event_base *base;
        struct event *wake;
        int wake_fd;
        pthread_t thread;
        pthread_mutex_t lock; /* posts, and the end of jobs */
        pthread_cond_t ended;
        struct post *first, **last;
        bool stopping;
        /* the loop's own */
        char *endpoints[ENDPOINTS_MAX];
        struct grpc_channel *channels[ENDPOINTS_MAX];
        uint32_t n_endpoints, current;
        struct tls *tls;
        char *user, *password, *token;
        int64_t try_ms;
        void (*on_beat)(void *ctx, int64_t every_ms);
        void *beat_ctx;
        struct lease lease;
        struct watch watches[_ETCD_WATCH_MAX];
        _Atomic int64_t lease_valid_ns, revision;
        /* requests that go out one after the other */
        struct etcd_request *turn_first, **turn_last;
        struct etcd_request *turn_before; /* the one that was started last; NULL: it has ended */
        int64_t turn_at_ns;               /* and when */
        struct event *turn_timer;
};

static void request_try(struct etcd_request *j);

/* ---- posting ---- */

static void post(struct etcd_client *c, void (*fn)(struct etcd_client *c, void *arg), void *arg)
{
        struct post *p = mem_must(sizeof(*p));
        *p = (struct post){ fn, arg, NULL };
        pthread_mutex_lock(&c->lock);
        *c->last = p;
        c->last = &p->next;
        pthread_mutex_unlock(&c->lock);
        uint64_t one = 1;
        ssize_t r = write(c->wake_fd, &one, sizeof(one)); /* full only if it is awake already */
        (void)r;
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
        struct etcd_client *c = ctx;
        uint64_t n;
        ssize_t r = read(fd, &n, sizeof(n));
        (void)r, (void)what;
        pthread_mutex_lock(&c->lock);
        struct post *p = c->first;
        c->first = NULL;
        c->last = &c->first;
        pthread_mutex_unlock(&c->lock);
        while (p) {
                struct post *next = p->next;
                p->fn(c, p->arg);
                mem_free(p);
                p = next;
        }
}

static void *run(void *ctx)
{
        struct etcd_client *c = ctx;
        event_base_loop(c->base, EVLOOP_NO_EXIT_ON_EMPTY);
        return NULL;
}

/* Waits until a posted function has run to its end. */
struct barrier {
        void (*fn)(struct etcd_client *c, void *arg);
        void *arg;
        bool done;
};

static void pass_barrier(struct etcd_client *c, void *arg)
{
        struct barrier *b = arg;
        if (b->fn)
                b->fn(c, b->arg);
        pthread_mutex_lock(&c->lock);
        b->done = true;
        pthread_cond_broadcast(&c->ended);
        pthread_mutex_unlock(&c->lock);
}

static void do_and_wait(struct etcd_client *c, void (*fn)(struct etcd_client *c, void *arg),
                        void *arg)
{
        struct barrier b = { fn, arg, false };
        post(c, pass_barrier, &b);
        pthread_mutex_lock(&c->lock);
        while (!b.done)
                pthread_cond_wait(&c->ended, &c->lock);
        pthread_mutex_unlock(&c->lock);
}

/* ---- unary calls ---- */

static struct grpc_channel *channel_make(struct etcd_client *c, uint32_t endpoint)
{
        struct grpc_channel *channel = NULL;
        struct grpc_channel_options opt = { .tls = c->tls,
                                            .max_message_bytes = MESSAGE_MAX,
                                            .max_queued_bytes = 8 * 1024 * 1024,
                                            .connect_timeout_ms = c->try_ms,
                                            .backoff_min_ms = 50,
                                            .backoff_max_ms = 1000 };
        if (grpc_channel_create(c->base, c->endpoints[endpoint], &opt, &channel, NULL) < 0)
                return NULL;
        return channel;
}

static void turn_end(struct etcd_client *c, enum grpc_status status);

static void request_end(struct etcd_request *j, enum grpc_status status, const char *message)
{
        struct etcd_client *c = j->c;
        void (*on_end)(void *ctx) = j->on_end;
        void *ctx = j->ctx;
        if (c->turn_before == j) {
                c->turn_before = NULL;
                turn_end(c, status); /* first of all: etcd waits for the next one */
        }
        if (j->again)
                event_free(j->again);
        j->again = NULL;
        j->call = NULL;
        pthread_mutex_lock(&c->lock);
        j->status = status;
        snprintf(j->message, sizeof(j->message), "%s", message);
        j->done = true;
        pthread_cond_broadcast(&c->ended);
        pthread_mutex_unlock(&c->lock);
        /* From here on it may be gone: only its owner's thread frees it, but that one knows now. */
        if (on_end)
                on_end(ctx);
}

/* Another member may know better, or this one later. What etcd has no code for (a proposal that was
 * dropped because nobody leads) comes as an unknown error: none of those is about the request. */
static bool is_passing(enum grpc_status status, const char *message)
{
        return status == GRPC_UNAVAILABLE || status == GRPC_DEADLINE_EXCEEDED ||
               status == GRPC_CANCELLED || (status == GRPC_UNKNOWN && !strstr(message, "auth")) ||
               strstr(message, "no leader") || strstr(message, "leader changed") ||
               strstr(message, "request timed out") || strstr(message, "too many requests");
}

static void on_again(evutil_socket_t fd, short what, void *ctx)
{
        (void)fd, (void)what;
        request_try(ctx);
}

static void request_later(struct etcd_request *j, enum grpc_status status, const char *message)
{
        struct etcd_client *c = j->c;
        if (j->endpoint == c->current)
                c->current = (c->current + 1) % c->n_endpoints;
        if (clock_mono_ns() + AGAIN_MS * 1000000LL >= j->deadline_ns) {
                request_end(j,
                            status == GRPC_CANCELLED || status == GRPC_UNKNOWN ? GRPC_UNAVAILABLE
                                                                               : status,
                            message);
                return;
        }
        if (!j->again)
                j->again = evtimer_new(c->base, on_again, j);
        j->tries++;
        /* Each member once without a pause. */
        struct timeval tv = { 0, j->tries % c->n_endpoints ? 1000 : AGAIN_MS * 1000 };
        evtimer_add(j->again, &tv);
}

static void unary_message(struct grpc_call *call, const void *data, size_t len)
{
        struct etcd_request *j = grpc_call_data(call);
        if (!j)
                return;
        str_clear(&j->answer);
        str_add(&j->answer, data, len);
        j->got = true;
}

static void unary_close(struct grpc_call *call, enum grpc_status status)
{
        struct etcd_request *j = grpc_call_data(call);
        const char *message = grpc_call_message(call);
        if (!j)
                return;
        j->call = NULL;
        if (status == GRPC_UNAUTHENTICATED && j->c->user && j->c->token) {
                mem_free(j->c->token); /* it has expired, or etcd was restarted */
                j->c->token = NULL;
                request_later(j, status, message);
        } else if (status != GRPC_OK && is_passing(status, message))
                request_later(j, status, message);
        else if (status == GRPC_OK && !j->got)
                request_end(j, GRPC_INTERNAL, "no answer to a unary call");
        else
                request_end(j, status, message);
}

static void auth_message(struct grpc_call *call, const void *data, size_t len)
{
        struct etcd_request *j = grpc_call_data(call);
        Etcd__AuthenticateResponse *a =
            j ? etcd__authenticate_response__unpack(NULL, len, data) : NULL;
        if (a && !j->c->token)
                j->c->token = mem_strdup(a->token);
        if (a)
                etcd__authenticate_response__free_unpacked(a, NULL);
}

static void auth_close(struct grpc_call *call, enum grpc_status status)
{
        struct etcd_request *j = grpc_call_data(call);
        if (!j)
                return;
        j->call = NULL;
        if (status == GRPC_OK && j->c->token)
                request_try(j);
        else if (is_passing(status, grpc_call_message(call)))
                request_later(j, status, grpc_call_message(call));
        else
                request_end(j, status == GRPC_OK ? GRPC_UNAUTHENTICATED : status,
                            grpc_call_message(call));
}

static void request_try(struct etcd_request *j)
{
        static const struct grpc_callbacks unary = { .on_message = unary_message,
                                                     .on_close = unary_close };
        static const struct grpc_callbacks auth = { .on_message = auth_message,
                                                    .on_close = auth_close };
        struct etcd_client *c = j->c;
        int64_t left_ms = (j->deadline_ns - clock_mono_ns()) / 1000000;
        if (left_ms <= 0 || c->stopping) {
                request_end(j, GRPC_UNAVAILABLE, "no member of etcd has answered in time");
                return;
        }
        j->endpoint = c->current;
        struct grpc_channel **channel = &c->channels[c->current];
        if (!*channel)
                *channel = channel_make(c, c->current);
        if (!*channel) {
                request_end(j, GRPC_INVALID_ARGUMENT, "an endpoint of etcd is not host:port");
                return;
        }
        if (grpc_channel_state(*channel) == GRPC_CHANNEL_BACKOFF)
                grpc_channel_connect(*channel);
        struct grpc_metadata metadata[] = {
                GRPC_META("token", c->token, c->token ? strlen(c->token) : 0), GRPC_META_END
        };
        struct grpc_call_options opt = { .deadline_ms = left_ms < c->try_ms ? left_ms : c->try_ms,
                                         .max_queued_bytes = 8 * 1024 * 1024 };
        j->got = false;
        if (c->user && !c->token) {
                Etcd__AuthenticateRequest r = ETCD__AUTHENTICATE_REQUEST__INIT;
                r.name = c->user;
                r.password = c->password ? c->password : (char *)"";
                unsigned char packed[1024];
                if (etcd__authenticate_request__get_packed_size(&r) > sizeof(packed)) {
                        request_end(j, GRPC_INVALID_ARGUMENT,
                                    "the user or password for etcd is too long");
                        return;
                }
                size_t len = etcd__authenticate_request__pack(&r, packed);
                struct grpc_call *call = j->call =
                    grpc_channel_call(*channel, "/etcdserverpb.Auth/Authenticate", &opt, &auth, j);
                grpc_call_send(call, packed, len);
                grpc_call_half_close(call);
                return;
        }
        if (c->token)
                opt.metadata = metadata;
        j->sent_ns = clock_steady_ns();
        struct grpc_call *call = j->call = grpc_channel_call(*channel, j->path, &opt, &unary, j);
        grpc_call_send(call, j->request.buf, j->request.len);
        grpc_call_half_close(call);
}

static struct etcd_request *turn_shift(struct etcd_client *c)
{
        struct etcd_request *j = c->turn_first;
        c->turn_first = j->next_turn;
        if (!c->turn_first)
                c->turn_last = &c->turn_first;
        return j;
}

/* etcd gives each call to a thread of its own, and what comes in one burst is taken up in any
 * order. So the next one waits until the one before it has left, and for a moment more. */
static void turn_go(evutil_socket_t fd, short what, void *ctx)
{
        struct etcd_client *c = ctx;
        (void)fd, (void)what;
        while (c->turn_first) {
                struct etcd_request *j = c->turn_first;
                bool leaving = c->turn_before && c->turn_before->call &&
                               grpc_call_queued_bytes(c->turn_before->call) > 0;
                int64_t left_us = TURN_US - (clock_mono_ns() - c->turn_at_ns) / 1000;
                if (j->turn == ETCD_AFTER && c->turn_before)
                        return; /* its end comes back here */
                if (j->turn != ETCD_AFTER && (leaving || left_us > 0)) {
                        struct timeval tv = { 0, left_us > 0 ? left_us : 500 };
                        evtimer_add(c->turn_timer, &tv);
                        return;
                }
                turn_shift(c);
                if (j->turn == ETCD_AFTER) /* its time runs from now */
                        j->deadline_ns = clock_mono_ns() + j->allowed_ns;
                c->turn_before = j;
                c->turn_at_ns = clock_mono_ns();
                request_try(j);
        }
}

static void turn_fail(struct etcd_client *c, enum grpc_status status)
{
        while (c->turn_first && c->turn_first->turn == ETCD_AFTER)
                request_end(turn_shift(c), status, "the one before it has failed");
}

/* The one that was started last has ended: those that wait for that go, or fail with it. */
static void turn_end(struct etcd_client *c, enum grpc_status status)
{
        if (status != GRPC_OK)
                turn_fail(c, status);
        turn_go(-1, 0, c);
}

static void request_start(struct etcd_client *c, void *arg)
{
        struct etcd_request *j = arg;
        j->tries = 0;
        if (j->turn == ETCD_ANY_TIME) {
                request_try(j);
                return;
        }
        j->next_turn = NULL;
        *c->turn_last = j;
        c->turn_last = &j->next_turn;
        turn_go(-1, 0, c);
}

static void turn_forget(struct etcd_client *c, const struct etcd_request *j)
{
        if (c->turn_before == j)
                c->turn_before = NULL;
        for (struct etcd_request **at = &c->turn_first; *at; at = &(*at)->next_turn)
                if (*at == j) {
                        *at = j->next_turn;
                        if (!*at)
                                c->turn_last = at;
                        return;
                }
}

static int status_err(const struct etcd_request *j, struct err *err)
{
        if (strstr(j->message, "database space exceeded"))
                return err_set(err, ERR_UNAVAILABLE,
                               .msg = "etcd has no space left and takes no writes (NOSPACE)",
                               .detail = j->message,
                               .hint =
                                   "compact and defragment etcd, or raise --quota-backend-bytes; "
                                   "then `etcdctl alarm disarm`. berth goes on by "
                                   "itself");
        if (strstr(j->message, "request is too large") || strstr(j->message, "larger than max"))
                return err_set(
                    err, ERR_LIMIT, .msg = "etcd refuses a request as too large",
                    .detail = j->message,
                    .hint =
                        "raise --max-request-bytes of every member; berth tries again by itself");
        if (strstr(j->message, "larger than the limit"))
                return err_set(err, ERR_LIMIT, .msg = "an answer of etcd is too large",
                               .detail = j->message, .hint = "ask for less at a time");
        switch (j->status) {
        case GRPC_UNAVAILABLE:
        case GRPC_DEADLINE_EXCEEDED:
                return err_set(err, ERR_UNAVAILABLE, .msg = "etcd does not answer",
                               .detail = j->message,
                               .hint = "check that its members run and can be reached; berth tries "
                                       "again by itself");
        case GRPC_PERMISSION_DENIED:
                return err_set(err, ERR_DENIED, .msg = "etcd refuses this user",
                               .detail = j->message,
                               .hint = "grant it readwrite on the prefix of the store's address");
        case GRPC_UNAUTHENTICATED:
                break;
        default:
                if (!strstr(j->message, "authentication failed") &&
                    !strstr(j->message, "user name is empty"))
                        return err_set(err, err_from_grpc_status((int)j->status),
                                       .msg = "etcd refuses a request", .detail = j->message,
                                       .hint = "see the log of etcd");
        }
        return err_set(err, ERR_AUTH, .msg = "etcd refuses this user", .detail = j->message,
                       .hint = "check user, password-file, or cert and key in the store's address");
}

static void request_drop(struct etcd_client *c, void *arg)
{
        struct etcd_request *r = arg;
        bool was_before = c->turn_before == r;
        turn_forget(c, r);
        if (was_before) /* those that wait for its end will not hear of it */
                turn_fail(c, GRPC_CANCELLED);
        if (r->call) {
                grpc_call_set_data(r->call, NULL);
                grpc_call_cancel(r->call);
        }
        if (r->again)
                event_free(r->again);
        str_fini(&r->request);
        str_fini(&r->answer);
        mem_free(r);
}

struct etcd_request *etcd_request_send(struct etcd_client *c, const char *path, struct str *packed,
                                       int64_t deadline_ms, enum etcd_turn turn,
                                       void (*on_end)(void *ctx), void *ctx)
{
        struct etcd_request *r = mem_must(sizeof(*r));
        *r = (struct etcd_request){ .c = c,
                                    .turn = turn,
                                    .path = path,
                                    .request = *packed,
                                    .allowed_ns = deadline_ms * 1000000,
                                    .deadline_ns = clock_mono_ns() + deadline_ms * 1000000,
                                    .on_end = on_end,
                                    .ctx = ctx };
        *packed = (struct str)STR_INIT;
        post(c, request_start, r);
        return r;
}

bool etcd_request_wait(struct etcd_request *r, int64_t wait_ms)
{
        struct etcd_client *c = r->c;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += wait_ms / 1000;
        until.tv_nsec += wait_ms % 1000 * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&c->lock);
        while (!r->done && wait_ms) {
                if (wait_ms < 0)
                        pthread_cond_wait(&c->ended, &c->lock);
                else if (pthread_cond_timedwait(&c->ended, &c->lock, &until))
                        break;
        }
        bool done = r->done;
        pthread_mutex_unlock(&c->lock);
        return done;
}

void etcd_request_again(struct etcd_request *r, int64_t deadline_ms)
{
        r->done = false;
        r->allowed_ns = deadline_ms * 1000000;
        r->deadline_ns = clock_mono_ns() + r->allowed_ns;
        post(r->c, request_start, r);
}

int etcd_request_answer(struct etcd_request *r, const ProtobufCMessageDescriptor *answer,
                        struct arena *arena, ProtobufCMessage **ret_answer, struct err *err)
{
        if (r->status != GRPC_OK)
                return status_err(r, err);
        struct arena_allocator alloc = arena_allocator(arena);
        *ret_answer = protobuf_c_message_unpack(answer, (ProtobufCAllocator *)&alloc, r->answer.len,
                                                (const uint8_t *)r->answer.buf);
        if (!*ret_answer)
                return err_set(err, ERR_CORRUPT, .msg = "an answer of etcd does not parse",
                               .detail = r->path);
        return 0;
}

int64_t etcd_request_sent_ns(const struct etcd_request *r)
{
        return r->sent_ns;
}

void etcd_request_free(struct etcd_request *r)
{
        if (r)
                post(r->c, request_drop, r); /* the loop may be at it */
}

int etcd_call(struct etcd_client *c, const char *path, const ProtobufCMessage *request,
              const ProtobufCMessageDescriptor *answer, int64_t deadline_ms, struct arena *arena,
              ProtobufCMessage **ret_answer, struct err *err)
{
        struct str packed = STR_INIT;
        size_t len = protobuf_c_message_get_packed_size(request);
        str_reserve(&packed, len);
        protobuf_c_message_pack(request, (uint8_t *)packed.buf);
        packed.len = len;
        struct etcd_request *r =
            etcd_request_send(c, path, &packed, deadline_ms, ETCD_ANY_TIME, NULL, NULL);
        etcd_request_wait(r, -1);
        int e = etcd_request_answer(r, answer, arena, ret_answer, err);
        etcd_request_free(r);
        return e;
}

/* ---- the lease ---- */

static void lease_close_stream(struct lease *l)
{
        if (l->call) {
                grpc_call_set_data(l->call, NULL);
                grpc_call_cancel(l->call);
        }
        l->call = NULL;
        l->n = 0;
}

static void lease_message(struct grpc_call *call, const void *data, size_t len)
{
        struct etcd_client *c = grpc_call_data(call);
        if (!c)
                return;
        struct lease *l = &c->lease;
        Etcd__LeaseKeepAliveResponse *a = etcd__lease_keep_alive_response__unpack(NULL, len, data);
        if (!a)
                return;
        if (a->header)
                atomic_store(&c->revision, a->header->revision);
        if (a->id == l->id && l->n) {
                int64_t sent = l->sent_ns[l->first];
                l->first = (l->first + 1) % UNANSWERED_MAX;
                l->n--;
                /* etcd has forgotten it: it is lost for good */
                atomic_store(&c->lease_valid_ns, a->ttl > 0 ? sent + a->ttl * 1000000000 : 0);
                if (a->ttl <= 0)
                        l->id = 0;
        }
        etcd__lease_keep_alive_response__free_unpacked(a, NULL);
}

static void lease_closed(struct grpc_call *call, enum grpc_status status)
{
        struct etcd_client *c = grpc_call_data(call);
        (void)status;
        if (!c)
                return;
        c->lease.call = NULL;
        c->lease.n = 0;
        c->lease.endpoint = (c->lease.endpoint + 1) % c->n_endpoints;
}

static void lease_beat(evutil_socket_t fd, short what, void *ctx)
{
        static const struct grpc_callbacks on = { .on_message = lease_message,
                                                  .on_close = lease_closed };
        struct etcd_client *c = ctx;
        struct lease *l = &c->lease;
        (void)fd, (void)what;
        if (!l->id)
                return;
        /* Two beats without an answer: another member, while there is still time. */
        if (l->call && l->n >= 2) {
                lease_close_stream(l);
                l->endpoint = (l->endpoint + 1) % c->n_endpoints;
        }
        if (!l->call) {
                grpc_channel_destroy(l->channel);
                l->channel = channel_make(c, l->endpoint);
                struct grpc_metadata metadata[] = {
                        GRPC_META("token", c->token, c->token ? strlen(c->token) : 0), GRPC_META_END
                };
                struct grpc_call_options opt = { .metadata = c->token ? metadata : NULL };
                if (l->channel)
                        l->call = grpc_channel_call(
                            l->channel, "/etcdserverpb.Lease/LeaseKeepAlive", &opt, &on, c);
        }
        if (l->call && l->n < UNANSWERED_MAX) {
                Etcd__LeaseKeepAliveRequest r = ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
                unsigned char packed[32];
                r.id = l->id;
                l->sent_ns[(l->first + l->n++) % UNANSWERED_MAX] = clock_steady_ns();
                grpc_call_send(l->call, packed, etcd__lease_keep_alive_request__pack(&r, packed));
        }
        int64_t every_ms = l->ttl_seconds * 1000 / 4;
        struct timeval tv = { every_ms / 1000, every_ms % 1000 * 1000 };
        evtimer_add(l->timer, &tv);
        if (c->on_beat)
                c->on_beat(c->beat_ctx, every_ms);
}

static void lease_begin(struct etcd_client *c, void *arg)
{
        struct lease *given = arg, *l = &c->lease;
        lease_close_stream(l);
        l->id = given->id;
        l->ttl_seconds = given->ttl_seconds;
        l->endpoint = c->current;
        lease_beat(-1, 0, c);
}

static void lease_forget(struct etcd_client *c, void *arg)
{
        (void)arg;
        atomic_store(&c->lease_valid_ns, 0);
        c->lease.id = 0;
        evtimer_del(c->lease.timer);
        lease_close_stream(&c->lease);
}

int etcd_lease_take(struct etcd_client *c, int64_t ttl_seconds, int64_t deadline_ms,
                    int64_t *ret_id, struct err *err)
{
        struct arena arena = ARENA_INIT;
        Etcd__LeaseGrantRequest r = ETCD__LEASE_GRANT_REQUEST__INIT;
        ProtobufCMessage *m;
        r.ttl = ttl_seconds;
        int64_t sent = clock_steady_ns();
        int e = etcd_call(c, "/etcdserverpb.Lease/LeaseGrant", &r.base,
                          &etcd__lease_grant_response__descriptor, deadline_ms, &arena, &m, err);
        if (e == 0) {
                const Etcd__LeaseGrantResponse *a = (const Etcd__LeaseGrantResponse *)m;
                struct lease l = { .id = a->id, .ttl_seconds = a->ttl };
                atomic_store(&c->lease_valid_ns, sent + a->ttl * 1000000000);
                do_and_wait(c, lease_begin, &l);
                *ret_id = a->id;
        }
        arena_fini(&arena);
        return e;
}

void etcd_lease_drop(struct etcd_client *c, bool revoke)
{
        struct arena arena = ARENA_INIT;
        Etcd__LeaseRevokeRequest r = ETCD__LEASE_REVOKE_REQUEST__INIT;
        ProtobufCMessage *m;
        r.id = c->lease.id; /* the loop changes it only to 0 */
        do_and_wait(c, lease_forget, NULL);
        if (r.id && revoke)
                (void)etcd_call(c, "/etcdserverpb.Lease/LeaseRevoke", &r.base,
                                &etcd__lease_revoke_response__descriptor, 1000, &arena, &m, NULL);
        arena_fini(&arena);
}

int64_t etcd_client_revision(struct etcd_client *c)
{
        return atomic_load(&c->revision);
}

int64_t etcd_lease_valid_until_ns(struct etcd_client *c)
{
        int64_t until = atomic_load(&c->lease_valid_ns);
        return until > clock_steady_ns() ? until : 0;
}

/* ---- the watch ---- */

static void watch_later(struct watch *w)
{
        struct timeval tv = { 0, 200000 };
        w->endpoint = (w->endpoint + 1) % w->c->n_endpoints;
        evtimer_add(w->timer, &tv);
}

static void watch_message(struct grpc_call *call, const void *data, size_t len)
{
        struct watch *w = grpc_call_data(call);
        Etcd__WatchResponse *a = w && w->fn ? etcd__watch_response__unpack(NULL, len, data) : NULL;
        if (!a)
                return;
        if (a->compact_revision) {
                w->next_revision = a->compact_revision + 1;
                w->fn(w->ctx, &(struct etcd_watch_event){ .compacted = true,
                                                          .revision = a->compact_revision });
        }
        for (size_t i = 0; i < a->n_events && w->fn; i++) {
                const Etcd__WatchEvent *e = a->events[i];
                if (!e->kv)
                        continue;
                w->next_revision = e->kv->mod_revision + 1;
                w->fn(w->ctx, &(struct etcd_watch_event){ .kv = e->kv,
                                                          .deleted = e->type == 1,
                                                          .revision = e->kv->mod_revision });
        }
        if (a->fragment && a->n_events > 0)
                /* the rest of that revision is yet to come: if the stream ends before, it comes
                 * again as a whole */
                w->next_revision--;
        if (a->header && a->n_events == 0 && !a->created && !a->canceled &&
            a->header->revision >= w->next_revision)
                /* a word that nothing has happened until there */
                w->next_revision = a->header->revision + 1;
        if (a->canceled)
                grpc_call_cancel(call);
        etcd__watch_response__free_unpacked(a, NULL);
}

static void watch_closed(struct grpc_call *call, enum grpc_status status)
{
        struct watch *w = grpc_call_data(call);
        (void)status;
        if (!w || w->call != call)
                return;
        w->call = NULL;
        if (w->fn)
                watch_later(w);
}

static void watch_open(evutil_socket_t fd, short what, void *ctx)
{
        static const struct grpc_callbacks on = { .on_message = watch_message,
                                                  .on_close = watch_closed };
        struct watch *w = ctx;
        struct etcd_client *c = w->c;
        (void)fd, (void)what;
        if (!w->fn || w->call)
                return;
        grpc_channel_destroy(w->channel);
        w->channel = channel_make(c, w->endpoint);
        if (!w->channel)
                return;
        /* A member that has lost the others ends the watch then, instead of being silent for
         * ever. */
        struct grpc_metadata metadata[] = { GRPC_META("token", c->token,
                                                      c->token ? strlen(c->token) : 0),
                                            GRPC_META("hasleader", "true", 4), GRPC_META_END };
        struct grpc_call_options opt = { .metadata = c->token ? metadata : metadata + 1 };
        if (MUTANT(lead_not_proved))
                opt.metadata = NULL;
        w->call = grpc_channel_call(w->channel, "/etcdserverpb.Watch/Watch", &opt, &on, w);
        Etcd__WatchCreateRequest create = ETCD__WATCH_CREATE_REQUEST__INIT;
        Etcd__WatchRequest r = ETCD__WATCH_REQUEST__INIT;
        create.key = (ProtobufCBinaryData){ strlen(w->key), (uint8_t *)w->key };
        create.range_end = (ProtobufCBinaryData){ strlen(w->end), (uint8_t *)w->end };
        create.start_revision = w->next_revision;
        create.progress_notify = true;
        /* what is far behind gets up to a thousand revisions at once, more than a message may
         * have */
        create.fragment = true;
        r.request_case = ETCD__WATCH_REQUEST__REQUEST_CREATE_REQUEST;
        r.create_request = &create;
        unsigned char packed[2200];
        if (etcd__watch_request__get_packed_size(&r) <= sizeof(packed))
                grpc_call_send(w->call, packed, etcd__watch_request__pack(&r, packed));
}

static void watch_begin(struct etcd_client *c, void *arg)
{
        struct watch *given = arg, *w = &c->watches[given->which];
        w->c = c;
        w->key = given->key;
        w->end = given->end;
        w->next_revision = given->next_revision;
        w->fn = given->fn;
        w->ctx = given->ctx;
        w->endpoint = c->current;
        watch_open(-1, 0, w);
}

static void watch_end(struct etcd_client *c, void *arg)
{
        struct watch *w = &c->watches[*(enum etcd_watch_slot *)arg];
        evtimer_del(w->timer);
        w->fn = NULL;
        if (w->call) {
                grpc_call_set_data(w->call, NULL);
                grpc_call_cancel(w->call);
        }
        w->call = NULL;
        mem_free(w->key);
        mem_free(w->end);
        w->key = w->end = NULL;
}

void etcd_watch_start(struct etcd_client *c, enum etcd_watch_slot which, const char *key,
                      const char *end, int64_t from_revision, etcd_watch_fn fn, void *ctx)
{
        struct watch w = { .which = which,
                           .key = mem_strdup(key),
                           .end = mem_strdup(end),
                           .next_revision = from_revision,
                           .fn = fn,
                           .ctx = ctx };
        etcd_watch_stop(c, which);
        do_and_wait(c, watch_begin, &w);
}

void etcd_watch_stop(struct etcd_client *c, enum etcd_watch_slot which)
{
        do_and_wait(c, watch_end, &which);
}

/* ---- life ---- */

static int endpoints_parse(struct etcd_client *c, const char *text, struct err *err)
{
        char *copy = mem_strdup(text), *save = NULL;
        int r = 0;
        for (char *word = strtok_r(copy, ",", &save); word && r == 0;
             word = strtok_r(NULL, ",", &save)) {
                const char *colon = strrchr(word, ':');
                uint64_t port;
                if (c->n_endpoints == ENDPOINTS_MAX || !colon || colon == word ||
                    str_parse_u64(colon + 1, &port) < 0 || !port || port > 65535)
                        r = err_set(err, ERR_INVALID, .msg = "an endpoint of etcd is not host:port",
                                    .detail = fmt("\"%s\"", word),
                                    .hint = "etcd://host:2379,host:2379,host:2379");
                else
                        c->endpoints[c->n_endpoints++] = mem_strdup(word);
        }
        mem_free(copy);
        if (r == 0 && c->n_endpoints == 0)
                r = err_set(err, ERR_INVALID, .msg = "the store's address names no etcd member",
                            .hint = "etcd://host:2379,host:2379,host:2379");
        return r;
}

static void client_free(struct etcd_client *c)
{
        for (uint32_t i = 0; i < c->n_endpoints; i++) {
                grpc_channel_destroy(c->channels[i]);
                mem_free(c->endpoints[i]);
        }
        grpc_channel_destroy(c->lease.channel);
        for (size_t i = 0; i < _ETCD_WATCH_MAX; i++) {
                grpc_channel_destroy(c->watches[i].channel);
                if (c->watches[i].timer)
                        event_free(c->watches[i].timer);
        }
        struct event *events[] = { c->wake, c->lease.timer, c->turn_timer };
        for (size_t i = 0; i < ARRAY_LEN(events); i++)
                if (events[i])
                        event_free(events[i]);
        if (c->base)
                event_base_free(c->base);
        if (c->wake_fd >= 0)
                close(c->wake_fd);
        tls_unref(c->tls);
        mem_free(c->user);
        mem_free(c->password);
        mem_free(c->token);
        pthread_mutex_destroy(&c->lock);
        pthread_cond_destroy(&c->ended);
        mem_free(c);
}

int etcd_client_create(const struct etcd_client_options *options, struct etcd_client **ret_client,
                       struct err *err)
{
        struct etcd_client *c = mem_must(sizeof(*c));
        *c = (struct etcd_client){
                .wake_fd = -1,
                .last = &c->first,
                .turn_last = &c->turn_first,
                .try_ms = options->try_ms ? options->try_ms : 2000,
                .on_beat = options->on_beat,
                .beat_ctx = options->ctx,
        };
        pthread_mutex_init(&c->lock, NULL);
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&c->ended, &attr);
        pthread_condattr_destroy(&attr);
        int r = endpoints_parse(c, options->endpoints, err);
        if (r == 0 && (options->ca_file || options->cert_file)) {
                struct tls_options tls = { .cert_file = options->cert_file,
                                           .key_file = options->key_file,
                                           .ca_file = options->ca_file };
                r = tls_client_create(&tls, &c->tls, err);
        }
        if (r < 0) {
                client_free(c);
                return r;
        }
        if (options->user) {
                c->user = mem_strdup(options->user);
                c->password = mem_strdup(options->password ? options->password : "");
        }
        c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        struct event_config *config = event_config_new();
        event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
        c->base = event_base_new_with_config(config);
        event_config_free(config);
        if (c->wake_fd < 0 || !c->base) {
                r = err_sys(err, errno, "cannot make an event loop for etcd");
                client_free(c);
                return r;
        }
        c->wake = event_new(c->base, c->wake_fd, EV_READ | EV_PERSIST, on_wake, c);
        c->lease.timer = evtimer_new(c->base, lease_beat, c);
        for (size_t i = 0; i < _ETCD_WATCH_MAX; i++)
                c->watches[i].timer = evtimer_new(c->base, watch_open, &c->watches[i]);
        c->turn_timer = evtimer_new(c->base, turn_go, c);
        event_add(c->wake, NULL);
        int e = pthread_create(&c->thread, NULL, run, c);
        if (e) {
                r = err_sys(err, e, "cannot start a thread for etcd");
                client_free(c);
                return r;
        }
        pthread_setname_np(c->thread, "etcd");
        *ret_client = c;
        return 0;
}

static void client_stop(struct etcd_client *c, void *arg)
{
        (void)arg;
        c->stopping = true;
        event_base_loopbreak(c->base);
}

void etcd_client_destroy(struct etcd_client *c)
{
        if (!c)
                return;
        for (enum etcd_watch_slot i = 0; i < _ETCD_WATCH_MAX; i++)
                etcd_watch_stop(c, i);
        etcd_lease_drop(c, true);
        post(c, client_stop, NULL);
        pthread_join(c->thread, NULL);
        client_free(c);
}
