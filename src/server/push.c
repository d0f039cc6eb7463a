/* server/push.c: see push.h. */
#include "server/push.h"

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/pb.h"
#include "server/io.h"
#include <string.h>

struct push_node {
        char *id;
        uint64_t session;
        /* a registration that waits for the core; fn NULL: none */
        push_answer *fn;
        void *ctx;
};

struct push {
        struct io *io;
        ARRAY(struct push_node) nodes;
        uint64_t count;
        bool stopped;
};

struct push *push_create(struct io *io)
{
        struct push *p = mem_must(sizeof(*p));
        p->io = io;
        return p;
}

static void answer(struct push_node *n, const struct push_welcome *welcome, const struct err *err)
{
        push_answer *fn = n->fn;
        n->fn = NULL;
        if (fn)
                fn(n->ctx, welcome, err);
}

void push_destroy(struct push *p)
{
        struct err err = { 0 };
        if (!p)
                return;
        err_set(&err, ERR_UNAVAILABLE, .msg = "the server is stopping");
        for (size_t i = 0; i < p->nodes.len; i++) {
                answer(&p->nodes.at[i], NULL, &err);
                mem_free(p->nodes.at[i].id);
        }
        array_fini(&p->nodes);
        mem_free(p);
}

size_t push_len(const struct push *p)
{
        return p->nodes.len;
}

void push_stop(struct push *p)
{
        p->stopped = true;
}

static struct push_node *by_id(struct push *p, const char *id)
{
        for (size_t i = 0; i < p->nodes.len; i++)
                if (str_eq(p->nodes.at[i].id, id))
                        return &p->nodes.at[i];
        return NULL;
}

static struct push_node *by_session(struct push *p, uint64_t session)
{
        for (size_t i = 0; i < p->nodes.len; i++)
                if (p->nodes.at[i].session == session)
                        return &p->nodes.at[i];
        return NULL;
}

static void forget(struct push *p, struct push_node *n)
{
        mem_free(n->id);
        *n = p->nodes.at[p->nodes.len - 1];
        p->nodes.len--;
}

/* (P1) */
int push_register(struct push *p, const Pb__Hello *hello, const char *request_id, push_answer *fn, void *ctx, struct err *err)
{
        struct push_node *n = by_id(p, hello->node_id);
        if (p->stopped)
                return err_set(err, ERR_UNAVAILABLE, .msg = "the server is stopping", .retry_after_ms = 2000);
        if (!n && p->nodes.len >= p->io->s->opt.max_agents)
                return err_set(err, ERR_LIMIT, .msg = "too many agents are connected", .retry_after_ms = 5000);
        uint64_t session = PUSH_SESSION | ++p->count;
        struct ring_msg *msg = ring_msg_new(p->io->s, INPUT_HELLO);
        msg->in.msg = pb_clone(&msg->memory, &hello->base);
        msg->in.session = session;
        msg->in.request_id = arena_strdup(&msg->memory, request_id ? request_id : "");
        msg->in.actor = arena_printf(&msg->memory, "node:%s", hello->node_id);
        if (!io_to_ring(p->io, msg, false)) {
                ring_msg_free(msg);
                return io_too_busy(p->io, err);
        }
        if (n && n->fn) {
                struct err again = { 0 };
                err_set(&again, ERR_CONFLICT, .msg = "the node registered again meanwhile");
                answer(n, NULL, &again);
        } else if (!n) {
                n = array_push(&p->nodes);
                *n = (struct push_node){ .id = mem_strdup(hello->node_id) };
        }
        n->session = session;
        n->fn = fn;
        n->ctx = ctx;
        return 0;
}

int push_heartbeat(struct push *p, const char *node_id, const Pb__Heartbeat *beat, Pb__UnitStatus *const *units, size_t n_units,
                   struct err *err)
{
        struct push_node *n = by_id(p, node_id);
        (void)units;
        (void)n_units;
        if (!n)
                return err_set(err, ERR_NOT_FOUND, .msg = "the node is not registered here", .detail = node_id);
        struct ring_msg *msg = ring_msg_new(p->io->s, INPUT_HEARTBEAT);
        msg->in.msg = pb_clone(&msg->memory, &beat->base);
        msg->in.session = n->session;
        if (!io_to_ring(p->io, msg, true)) {
                ring_msg_free(msg);
                return io_too_busy(p->io, err);
        }
        return 0;
}

/* (P2) */
static void on_welcome(struct push *p, struct push_node *n, const struct effect *e)
{
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };
        if (pb_unpack_own(&pb__welcome__descriptor, e->data, e->len, &arena, &m, &err) < 0) {
                answer(n, NULL, &err);
        } else {
                Pb__Welcome *w = (Pb__Welcome *)m;
                struct push_welcome welcome = { w->accepted, w->reason, w->hint, w->heartbeat_ms };
                push_answer *fn = n->fn;
                void *ctx = n->ctx;
                n->fn = NULL;
                if (w->accepted)
                        log_info("agent registered", LOG_S("node", n->id), LOG_I("session", n->session));
                else
                        forget(p, n);
                if (fn)
                        fn(ctx, &welcome, NULL);
        }
        arena_fini(&arena);
}

void push_effects(struct push *p, const struct core_batch *batch)
{
        for (size_t i = 0; i < batch->n_effects; i++) {
                const struct effect *e = &batch->effects[i];
                struct push_node *n = (e->session & PUSH_SESSION) ? by_session(p, e->session) : NULL;
                if (n && e->kind == EFFECT_WELCOME)
                        on_welcome(p, n, e);
                else if (n && e->kind == EFFECT_CLOSE)
                        forget(p, n);
        }
}
