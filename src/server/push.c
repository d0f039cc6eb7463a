/* server/push.c: see push.h. Nodes and their sessions are here; one node's calls are in
 * push_node.c. */
#include "server/push.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/tls.h"
#include "server/push_node.h"
#include <event2/event.h>
#include <string.h>

#define SLOT_BITS 20 /* of a session; the rest counts, so that none comes twice */
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
#define ANSWER_MS 10000
#define AGAIN_MS 5 /* how soon a full ring is tried again */
#define CHECK_MS 1000
#define AGENT_PORT 50051

struct push {
        struct io *io;
        ARRAY(struct push_node *) nodes; /* by slot; NULL: free */
        ARRAY(uint32_t) free;
        struct map by_id;
        size_t n;
        uint64_t count;
        ARRAY(struct push_node *) flushes;
        struct event *flush, *check;
        struct tls *tls;
        bool stopped;
};

static struct map_key node_key(const void *ctx, uint32_t i)
{
        const struct push *p = ctx;
        return (struct map_key){ p->nodes.at[i]->id, strlen(p->nodes.at[i]->id) };
}

static void on_flush(evutil_socket_t fd, short what, void *ctx);
static void on_check(evutil_socket_t fd, short what, void *ctx);

struct push *push_create(struct io *io)
{
        struct push *p = mem_must(sizeof(*p));
        p->io = io;
        map_init(&p->by_id, node_key, p);
        p->flush = event_new(io->base, -1, 0, on_flush, p);
        p->check = event_new(io->base, -1, EV_PERSIST, on_check, p);
        return p;
}

static void answer(struct push_node *n, const struct push_welcome *welcome, const struct err *err)
{
        push_answer *fn = n->fn;
        n->fn = NULL;
        if (fn)
                fn(n->ctx, welcome, err);
}

/* Its place is free again. Never from inside one of its own calls. */
static void forget(struct push *p, struct push_node *n)
{
        uint32_t slot = map_get(&p->by_id, n->id, strlen(n->id));
        map_remove(&p->by_id, slot);
        p->nodes.at[slot] = NULL;
        *array_push(&p->free) = slot;
        p->n--;
        for (size_t i = 0; i < p->flushes.len; i++)
                if (p->flushes.at[i] == n)
                        p->flushes.at[i--] = p->flushes.at[--p->flushes.len];
        push_node_destroy(n);
}

void push_destroy(struct push *p)
{
        struct err err = { 0 };
        if (!p)
                return;
        err_set(&err, ERR_UNAVAILABLE, .msg = "the server is stopping");
        for (size_t i = 0; i < p->nodes.len; i++)
                if (p->nodes.at[i]) {
                        answer(p->nodes.at[i], NULL, &err);
                        forget(p, p->nodes.at[i]);
                }
        array_fini(&p->nodes);
        array_fini(&p->free);
        array_fini(&p->flushes);
        map_fini(&p->by_id);
        event_free(p->flush);
        event_free(p->check);
        tls_unref(p->tls);
        mem_free(p);
}

/* Calls under way may end; nothing new is begun, and nothing that the agents run is touched. */
void push_stop(struct push *p)
{
        p->stopped = true;
        for (size_t i = 0; i < p->nodes.len; i++)
                if (p->nodes.at[i])
                        push_node_end(p->nodes.at[i]);
}

void push_end_all(struct push *p)
{
        struct err err = { 0 };
        err_set(&err, ERR_UNAVAILABLE, .msg = "this server leads no more", .hint = "register again",
                .retry_after_ms = 1000);
        for (size_t i = 0; i < p->nodes.len; i++)
                if (p->nodes.at[i]) {
                        answer(p->nodes.at[i], NULL, &err);
                        push_node_end(p->nodes.at[i]);
                        forget(p, p->nodes.at[i]);
                }
}

/* With certificates for those who call us, we show ours to those whom we call. */
struct tls *push_tls(struct io *io)
{
        struct push *p = io->push;
        const struct server_options *opt = &io->s->opt;
        if (p->tls || !opt->tls_cert || !opt->tls_ca)
                return p->tls;
        struct tls_options o = { .cert_file = opt->tls_cert,
                                 .key_file = opt->tls_key,
                                 .ca_file = opt->tls_ca };
        struct err err = { 0 };
        if (tls_client_create(&o, &p->tls, &err) < 0)
                log_error("agents cannot be called with TLS", LOG_E(&err));
        return p->tls;
}

void push_reload(struct push *p)
{
        struct err err = { 0 };
        if (p->tls && tls_reload(p->tls, &err) < 0)
                log_error("new certificate files are not used for calls to agents", LOG_E(&err));
}

static struct push_node *by_id(const struct push *p, const char *id)
{
        uint32_t slot = map_get(&p->by_id, id, strlen(id));
        return slot == MAP_NONE ? NULL : p->nodes.at[slot];
}

static struct push_node *by_session(const struct push *p, uint64_t session)
{
        uint64_t slot = session & SLOT_MASK;
        if (!(session & PUSH_SESSION) || slot >= p->nodes.len)
                return NULL;
        struct push_node *n = p->nodes.at[slot];
        return n && (n->session == session || n->asked == session) ? n : NULL;
}

/* ---- to the ring ---- */

void push_wants_flush(struct push_node *n)
{
        struct push *p = n->io->push;
        if (n->flushing)
                return;
        n->flushing = true;
        *array_push(&p->flushes) = n;
        if (!event_pending(p->flush, EV_TIMEOUT, NULL))
                event_active(p->flush, EV_TIMEOUT, 0);
}

static void on_flush(evutil_socket_t fd, short what, void *ctx)
{
        struct push *p = ctx;
        (void)fd;
        (void)what;
        if (queue_is_closed(p->io->s->ring_queue))
                return;
        size_t n = p->flushes.len, kept = 0;
        bool full = false;
        for (size_t i = 0; i < n; i++) {
                struct push_node *node = p->flushes.at[i];
                full = full || !push_node_flush(node);
                if (full)
                        p->flushes.at[kept++] = node;
                else
                        node->flushing = false;
        }
        memmove(p->flushes.at + kept, p->flushes.at + n,
                (p->flushes.len - n) * sizeof(p->flushes.at[0]));
        p->flushes.len -= n - kept;
        if (p->flushes.len > 0)
                event_add(p->flush, &(struct timeval){ .tv_usec = AGAIN_MS * 1000 });
}

/* ---- registration ---- */

/* C39 */
static char *dial_target(const Pb__Hello *h)
{
        if (!str_empty(h->agent_endpoint))
                return mem_strdup(h->agent_endpoint);
        const char *ip = str_empty(h->ip) ? "127.0.0.1" : h->ip;
        return mem_strdup(strchr(ip, ':') ? fmt("[%s]:%d", ip, AGENT_PORT)
                                          : fmt("%s:%d", ip, AGENT_PORT));
}

static struct push_node *node_add(struct push *p, const char *id)
{
        uint32_t slot;
        if (p->free.len > 0) {
                slot = array_pop(&p->free);
        } else {
                slot = (uint32_t)p->nodes.len;
                *array_push(&p->nodes) = NULL;
        }
        p->nodes.at[slot] = push_node_create(p->io, id);
        map_put(&p->by_id, slot);
        p->n++;
        return p->nodes.at[slot];
}

/* (P1) */
int push_register(struct push *p, const Pb__Hello *hello, const char *request_id, push_answer *fn,
                  void *ctx, struct err *err)
{
        struct push_node *n = by_id(p, hello->node_id);
        if (p->stopped)
                return err_set(err, ERR_UNAVAILABLE, .msg = "the server is stopping",
                               .retry_after_ms = 2000);
        if (!n && (p->n >= p->io->s->opt.max_agents || p->n >= SLOT_MASK))
                return err_set(err, ERR_LIMIT, .msg = "too many agents are connected",
                               .retry_after_ms = 5000);
        if (!p->io->leads)
                return io_not_leading(p->io, err);
        bool is_new = !n;
        if (is_new)
                n = node_add(p, hello->node_id);
        uint64_t session = PUSH_SESSION | (++p->count << SLOT_BITS & ~PUSH_SESSION) |
                           map_get(&p->by_id, n->id, strlen(n->id));
        struct ring_msg *msg = ring_msg_new(INPUT_HELLO);
        msg->in.msg = pb_clone(&msg->memory, &hello->base);
        msg->in.session = session;
        msg->in.request_id = arena_strdup(&msg->memory, request_id ? request_id : "");
        msg->in.actor = arena_printf(&msg->memory, "node:%s", hello->node_id);
        if (!io_to_ring(p->io, msg, false)) {
                ring_msg_free(msg);
                if (is_new)
                        forget(p, n);
                return io_too_busy(p->io, err);
        }
        if (n->fn) {
                struct err again = { 0 };
                err_set(&again, ERR_CONFLICT, .msg = "the node registered again meanwhile");
                answer(n, NULL, &again);
        }
        n->asked = session;
        mem_free(n->asked_target);
        n->asked_target = dial_target(hello);
        mem_free(n->asked_caller);
        n->asked_caller = mem_strdup(hello->ip);
        n->fn = fn;
        n->ctx = ctx;
        n->answer_by_ms = mono_ms() + ANSWER_MS;
        if (!event_pending(p->check, EV_TIMEOUT, NULL))
                event_add(p->check, &(struct timeval){ .tv_sec = CHECK_MS / 1000 });
        return 0;
}

/* Runs only while somebody waits for the core's word. */
static void on_check(evutil_socket_t fd, short what, void *ctx)
{
        struct push *p = ctx;
        int64_t now = mono_ms();
        bool any = false;
        (void)fd;
        (void)what;
        for (size_t i = 0; i < p->nodes.len; i++) {
                struct push_node *n = p->nodes.at[i];
                struct err late = { 0 };
                if (!n || !n->fn)
                        continue;
                if (now > n->answer_by_ms) {
                        err_set(&late, ERR_DEADLINE, .msg = "the server could not decide in time",
                                .retry_after_ms = 1000);
                        answer(n, NULL, &late);
                } else
                        any = true;
        }
        if (!any)
                event_del(p->check);
}

/* (P2) */
static void on_welcome(struct push *p, struct push_node *n, const struct effect *e)
{
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };
        if (e->session != n->asked)
                return; /* another registration has taken its place meanwhile */
        if (pb_unpack_own(&pb__welcome__descriptor, e->data, e->len, &arena, &m, &err) < 0) {
                n->asked = 0;
                answer(n, NULL, &err);
                arena_fini(&arena);
                return;
        }
        Pb__Welcome *w = (Pb__Welcome *)m;
        struct push_welcome welcome = { w->accepted, w->reason, w->hint, w->heartbeat_ms };
        push_answer *fn = n->fn;
        void *fn_ctx = n->ctx;
        n->fn = NULL;
        n->asked = 0;
        if (w->accepted) {
                log_info("agent registered", LOG_S("node", n->id),
                         LOG_I("session", e->session & ~PUSH_SESSION),
                         LOG_S("endpoint", n->asked_target));
                push_node_begin(n, e->session, n->asked_target, n->asked_caller);
        } else {
                log_warn("agent refused", LOG_S("node", n->id), LOG_S("reason", w->reason));
                if (!n->session)
                        forget(p, n);
        }
        if (fn)
                fn(fn_ctx, &welcome, NULL);
        arena_fini(&arena);
}

/* ---- heartbeats and effects ---- */

int push_heartbeat(struct push *p, const char *node_id, const Pb__Heartbeat *beat,
                   Pb__UnitStatus *const *units, size_t n_units, struct err *err)
{
        struct push_node *n = by_id(p, node_id);
        if (!n || !n->session || p->stopped)
                return err_set(err, ERR_NOT_FOUND, .msg = "the node is not registered here",
                               .detail = node_id);
        struct ring_msg *msg = ring_msg_new(INPUT_HEARTBEAT);
        msg->in.msg = pb_clone(&msg->memory, &beat->base);
        msg->in.session = n->session;
        if (!io_to_ring(p->io, msg, true)) {
                ring_msg_free(msg);
                return io_too_busy(p->io, err);
        }
        push_node_beat(n);
        for (size_t i = 0; i < n_units; i++) /* (P3) */
                push_node_hint(n, units[i]->unit_id, units[i]->state);
        return 0;
}

static void on_close(struct push *p, struct push_node *n, const struct effect *e)
{
        if (e->session != n->session)
                return;
        log_info("agent is no longer called", LOG_S("node", n->id),
                 LOG_S("reason", fmt("%.*s", (int)e->len, (const char *)e->data)));
        push_node_end(n);
        if (!n->asked)
                forget(p, n);
}

void push_effects(struct push *p, const struct core_batch *batch)
{
        for (size_t i = 0; i < batch->n_effects; i++) {
                const struct effect *e = &batch->effects[i];
                struct push_node *n =
                    (e->session & PUSH_SESSION) ? by_session(p, e->session) : NULL;
                if (!n)
                        continue;
                if (e->kind == EFFECT_WELCOME)
                        on_welcome(p, n, e);
                else if (e->kind == EFFECT_CLOSE)
                        on_close(p, n, e);
                else if (e->session == n->session && !p->stopped)
                        push_node_effect(n, e, batch->epoch);
        }
}
