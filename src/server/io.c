/* server/io.c: the thread of sockets. One libevent loop carries both doors, the agents' streams and
 * the event streams; batches and answers come in through one queue, whose eventfd wakes the loop.
 */
#include "server/io.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/ulid.h"
#include "net/addr.h"
#include "net/grpc.h"
#include "net/http.h"
#include "net/tls.h"
#include "server/access.h"
#include "server/forward.h"
#include "server/join.h"
#include "server/key.h"
#include "server/plans.h"
#include "server/reach.h"
#include "server/reader.h"
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TURN_MESSAGES 64 /* from the queue, before sockets are looked at again */
#define TURN_NS 20000000 /* and no more of them once this much time has passed */
#define ANSWERS_MANY 256 /* answers that wait to be sent; beyond, few changes are looked at */
/* answers that wait to be sent; beyond, no change is taken: answers come before questions (A11) */
#define BACKLOG_MAX 1024
#define FEW_CONNS 8    /* so many connections are looked at in a turn then, ... */
#define FEW_BYTES 1024 /* ... and so much is read of each that carries many calls */
/* to the ring, before it is woken without waiting for the end of the turn */
#define TURN_INPUTS 32
#define FILES_EVERY_MS 2000

/* ---- small things that both doors need ---- */

int io_too_busy(struct io *io, struct err *err)
{
        count(&io->s->metrics.inputs_refused);
        return err_set(err, ERR_LIMIT, .msg = "the server has too much to do",
                       .detail = fmt("%zu calls wait", queue_len(io->s->ring_queue)),
                       .hint = "try again a little later", .retry_after_ms = 1000);
}

int io_store_is_away(struct err *err, bool decided)
{
        return err_set(err, ERR_UNAVAILABLE,
                       .msg = "the store is away: nothing can be changed until it is back",
                       .hint = decided
                                   ? "try again; a change that was sent may still happen, and can "
                                     "be sent again safely. /health says why it is away"
                                   : "try again: nothing was changed. /health says why it is away",
                       .retry_after_ms = 2000);
}

int io_not_leading(struct io *io, struct err *err)
{
        struct leader l;
        server_leader(io->s, &l);
        const char *name = l.name[0] ? l.name : "nobody that this server has heard of";
        if (l.known && !l.is_self)
                return err_set(err, ERR_UNAVAILABLE,
                               .msg = fmt("this server does not lead; %s does", name),
                               .detail = fmt("grpc=%s http=%s", l.grpc_address, l.http_address),
                               .hint = "nothing was changed: ask the leader, or try again",
                               .retry_after_ms = 1000);
        if (atomic_load(&io->s->degraded)) /* nobody can take over without it */
                return io_store_is_away(err, false);
        char trouble[512];
        if (key_trouble(io->s, trouble, sizeof(trouble))[0])
                return err_set(err, ERR_UNAVAILABLE,
                               .msg = "no server leads now, and this one cannot: it does not have "
                                      "the cluster's key",
                               .detail = trouble,
                               .hint = "copy cluster.key from a server that has it (docs/etcd.md); "
                                       "nothing was changed",
                               .retry_after_ms = 5000);
        return err_set(
            err, ERR_UNAVAILABLE, .msg = fmt("no server leads now; the last one was %s", name),
            .hint = "nothing was changed; try again: another server takes over within seconds",
            .retry_after_ms = 1000);
}

static bool is_sane(const char *s, const char *extra)
{
        size_t n = s ? strlen(s) : 0;
        if (n == 0 || n > 64)
                return false;
        for (const char *p = s; *p; p++)
                if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                      (*p >= '0' && *p <= '9') || strchr(extra, *p)))
                        return false;
        return true;
}

void io_request_id(struct io *io, const char *wanted, char ret[static 65])
{
        if (is_sane(wanted, "-_.:"))
                strcpy(ret, wanted);
        else
                ulid_make(ret, clock_wall_ms(), rng_next(&io->rng), rng_next(&io->rng));
}

void io_actor(const struct tls_identity *who, const char *header, char ret[static 65])
{
        const char *name = who ? tls_identity_actor(who) : NULL;
        if (who) /* whatever it is called: a certificate's holder is never whom the header says */
                strcpy(ret, is_sane(name, "-_.:@/ ") ? name : "certificate");
        else
                strcpy(ret, is_sane(header, "-_.:@/") ? header : "anonymous");
}

/* ---- messages to the ring ---- */

static void on_nudge(evutil_socket_t fd, short what, void *ctx)
{
        struct io *io = ctx;
        (void)fd;
        (void)what;
        io->n_quiet = 0;
        queue_wake(io->s->ring_queue);
}

bool io_takes_changes(struct io *io)
{
        return atomic_load(&io->s->answers) <= BACKLOG_MAX;
}

int io_has_no_room(struct io *io, const struct op *op, struct err *err)
{
        bool change = (op->kind == OP_CORE || op->kind == OP_PLAN) && input_is_change(op->input);
        if (!change || (io_takes_changes(io) && queue_has_room(io->s->ring_queue) &&
                        calls_have_room(io->calls, op)))
                return 0;
        return io_too_busy(io, err);
}

/* Fewer new questions while there is much to do: those who only read, and the agents, are in the
 * same loop. */
static void set_intake(struct io *io)
{
        bool few = atomic_load(&io->s->answers) > ANSWERS_MANY ||
                   queue_len(io->s->ring_queue) > io->s->opt.max_inputs / 2 ||
                   calls_are_many(io->calls);
        if (io->http)
                http_server_set_intake(io->http, few ? FEW_CONNS : 0);
        if (io->grpc)
                grpc_server_set_intake(io->grpc, few ? FEW_BYTES : 0);
}

bool io_to_ring(struct io *io, struct ring_msg *msg, bool first)
{
        msg->sent_ms = mono_ms();
        /* What changes nothing overtakes what waits to change something: no answer to that has been
         * given, so nobody can tell. */
        if (input_only_reads(msg->in.kind))
                return queue_push(io->s->read_queue, msg);
        if (!queue_push_quiet(io->s->ring_queue, msg, first))
                return false;
        if (io->n_quiet++ == 0)
                /* behind the sockets that are being served in this turn */
                event_active(io->nudge, EV_WRITE, 0);
        else if (io->n_quiet % TURN_INPUTS == 0)
                queue_wake(io->s->ring_queue);
        return true;
}

/* ---- messages from the other threads ---- */

/* A batch is durable: now it may be known. */
static void release(struct io *io, struct core_batch *batch)
{
        atomic_fetch_sub(&io->s->answers, batch->n_replies);
        events_released(io->events, &batch->commit);
        if (io->leads) /* each event is one line in one server's log */
                eventlog_add(&io->log, &batch->commit);
        bool committed = batch->commit.n_events > 0 || batch->commit.n_records > 0;
        for (size_t i = 0; i < batch->n_replies; i++)
                calls_reply(io->calls, &batch->replies[i], committed);
        sessions_effects(io->sessions, batch);
        push_effects(io->push, batch);
        webhooks_effects(io->webhooks, batch);
}

static void on_drained(void *ctx)
{
        struct io *io = ctx;
        if (--io->draining == 0)
                event_base_loopbreak(io->base);
}

/* A12: no new work, streams are told, calls under way may finish. */
static void stop(struct io *io)
{
        if (io->stopping)
                return;
        io->stopping = true;
        int64_t ms = io->s->opt.shutdown_ms;
        io->draining = (io->http != NULL) + (io->grpc != NULL);
        pthread_mutex_lock(&io->s->lock);
        bool broken = io->s->fatal.code != ERR_OK;
        pthread_mutex_unlock(&io->s->lock);
        if (broken)
                calls_stop(io->calls); /* nothing will be answered any more */
        /* closes its streams itself, so that what was written to them still goes out */
        if (io->http)
                http_server_drain(io->http, ms, on_drained, io);
        events_stop(io->events);
        relays_stop(io->relays);
        forward_stop(io->forward);
        sessions_stop(io->sessions);
        push_stop(io->push);
        webhooks_stop(io->webhooks);
        if (io->grpc)
                grpc_server_drain(io->grpc, ms, on_drained, io);
        if (!io->http && !io->grpc)
                event_base_loopbreak(io->base);
}

/* This server decides from now on, or no more. What agents and callers began with the one before is
 * over: nobody can say how it ends. */
static void change_role(struct io *io, bool leads, uint64_t head)
{
        bool lost = io->leads && !leads;
        io->leads = leads;
        events_at(io->events, head);
        if (!lost)
                return;
        calls_lost(io->calls);
        sessions_end_all(io->sessions, "this server leads no more: connect to the one that does");
        push_end_all(io->push);
        webhooks_drop(io->webhooks);
}

static void take(struct io *io, struct io_msg *msg)
{
        struct history_job *job = msg->history;
        switch (msg->kind) {
        case IO_RELEASE:
                release(io, msg->batch);
                break;
        case IO_HISTORY:
                msg->history = NULL;
                history_returned(io->s, job);
                if (job->kind == HISTORY_LIST)
                        calls_history(io->calls, job);
                else
                        events_history(io->events, job);
                break;
        case IO_PLAN:
                plans_take(io->plans, TAKE_PTR(msg->plan));
                break;
        case IO_LEADER:
                forward_leader(io->forward);
                break;
        case IO_ROLE:
                change_role(io, msg->leads, msg->head);
                break;
        case IO_CONFIG:
                webhooks_configure(io->webhooks, msg->config);
                break;
        case IO_STOP:
                stop(io);
                break;
        }
        io_msg_free(msg);
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
        struct io *io = ctx;
        uint64_t n;
        (void)what;
        if (read((int)fd, &n, sizeof(n)) < 0) {
                /* nothing to be read: harmless, the queue says what there is */
        }
        /* One at a time, and not for long: a batch may hold a thousand answers, and whoever only
         * reads must not wait for all that are there (A11). */
        int64_t until_ns = clock_mono_ns() + TURN_NS;
        void *item;
        for (unsigned i = 0; i < TURN_MESSAGES && queue_pop_many(io->s->io_queue, &item, 1, 0) == 1;
             i++) {
                take(io, item);
                if (clock_mono_ns() >= until_ns)
                        break;
        }
        calls_proved(io->calls);
        set_intake(io); /* answers before new questions (A11) */
        if (queue_len(io->s->io_queue) > 0) {
                /* by the descriptor: an event that is activated from inside runs again before any
                 * socket is looked at */
                n = 1;
                if (write((int)fd, &n, sizeof(n)) < 0)
                        event_active(io->wake, EV_READ, 1);
        }
}

/* ---- certificates ---- */

static void on_files(evutil_socket_t fd, short what, void *ctx)
{
        struct io *io = ctx;
        struct err err = { 0 };
        (void)fd;
        (void)what;
        int r = tls_reload_if_changed(io->tls, &err);
        if (r == 0)
                return;
        push_reload(io->push);
        forward_reload(io->forward);
        if (r < 0)
                log_error("new certificate files are not used; the old ones stay in force",
                          LOG_E(&err));
        else
                log_info("new certificate files are in use for new connections",
                         LOG_S("cert", io->s->opt.tls_cert));
}

static int open_tls(struct io *io, struct err *err)
{
        const struct server_options *opt = &io->s->opt;
        if (!opt->tls_cert)
                return 0;
        struct tls_options o = { .cert_file = opt->tls_cert,
                                 .key_file = opt->tls_key,
                                 .ca_file = opt->tls_ca,
                                 .peer = !opt->tls_ca ? TLS_PEER_NONE
                                         /* those without one have a token, or may little */
                                         : opt->auth ? TLS_PEER_OPTIONAL
                                                     : TLS_PEER_REQUIRED };
        int r = tls_server_create(&o, &io->tls, err);
        if (r < 0)
                return r;
        io->files = event_new(io->base, -1, EV_PERSIST, on_files, io);
        event_add(io->files, &(struct timeval){ .tv_sec = FILES_EVERY_MS / 1000 });
        return 0;
}

int io_check_node(struct io *io, const struct tls_identity *who, const char *node_id,
                  const char *peer, struct err *err)
{
        if (!io->tls || !io->s->opt.tls_ca || tls_identity_is_node(who, node_id))
                return 0;
        tls_count_refused(io->tls, TLS_REFUSED_WRONG_NODE);
        log_warn("an agent was refused: its certificate is not that of the node that it says it is",
                 LOG_S("node", node_id), LOG_S("certificate", tls_identity_words(who)),
                 LOG_S("peer", peer), LOG_S("reason", tls_refusal_name(TLS_REFUSED_WRONG_NODE)));
        return err_set(err, ERR_DENIED,
                       .msg = fmt("the certificate is that of %.100s, not of node %.100s",
                                  tls_identity_words(who), node_id),
                       .hint = fmt("give the agent a certificate with the name " TLS_URI_PREFIX
                                   "node/%.100s",
                                   node_id));
}

/* ---- the thread ---- */

/* "127.0.0.1:0" and port 43017 -> "127.0.0.1:43017" */
static void real_address(const char *wanted, uint16_t port, char *ret, size_t size)
{
        const char *colon = strrchr(wanted, ':');
        size_t host = colon ? (size_t)(colon - wanted) : strlen(wanted);
        if (host == 0)
                snprintf(ret, size, "0.0.0.0:%u", port);
        else
                snprintf(ret, size, "%.*s:%u", (int)host, wanted, port);
}

bool io_is_loopback(const char *address)
{
        return addr_is_loopback(address);
}

static void say_who_gets_in(const struct server *s)
{
        const struct server_options *opt = &s->opt;
        if (opt->auth && !opt->tls_cert &&
            !(io_is_loopback(opt->http_address) && io_is_loopback(opt->grpc_address)))
                log_warn("tokens travel in the clear: whoever is on the way can read and use them; "
                         "serve TLS (--tls-cert, docs/tls.md)");
        if (!opt->auth && !opt->tls_ca &&
            !(io_is_loopback(opt->http_address) && io_is_loopback(opt->grpc_address)))
                log_warn("anybody who reaches this server may do anything: leave out --auth none "
                         "(docs/access.md), or listen on 127.0.0.1",
                         LOG_S("http", s->http_address), LOG_S("grpc", s->grpc_address));
}

static int io_open(struct io *io, struct err *err)
{
        struct server *s = io->s;
        struct event_config *config = event_config_new();
        event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
        io->base = event_base_new_with_config(config);
        event_config_free(config);
        if (!io->base)
                return err_set(err, ERR_IO, .msg = "no event loop could be made");
        rng_seed_system(&io->rng);
        io->doors = mem_must(n_ops * sizeof(*io->doors));
        for (size_t i = 0; i < n_ops; i++)
                io->doors[i] = (struct door){ .self = &io->doors[i], .io = io, .op = &ops[i] };
        io->access = access_create(io);
        io->leads = atomic_load(&s->leads);
        io->forward = forward_create(io);
        io->calls = calls_create(io);
        io->plans = plans_create(io);
        io->sessions = sessions_create(io);
        io->push = push_create(io);
        io->webhooks = webhooks_create(io);
        webhooks_configure(io->webhooks, s->config);
        io->relays = relays_create(io);
        io->events = events_create(s, io->base, s->loaded_head);
        io->wake = event_new(io->base, s->io_wake_fd, EV_READ | EV_PERSIST, on_wake, io);
        event_add(io->wake, NULL);
        io->nudge = event_new(io->base, -1, 0, on_nudge, io);
        int r = open_tls(io, err);
        if (r < 0 || (r = reach_create(&s->opt, &io->reach, err)) < 0 ||
            (r = join_create(io, &io->join, err)) < 0 || (r = rest_open(io, err)) < 0 ||
            (r = rpc_open(io, err)) < 0)
                return r;
        if (io->http)
                real_address(s->opt.http_address, http_server_port(io->http), s->http_address,
                             sizeof(s->http_address));
        if (io->grpc)
                real_address(s->opt.grpc_address, grpc_server_port(io->grpc), s->grpc_address,
                             sizeof(s->grpc_address));
        say_who_gets_in(s);
        return 0;
}

/* The doors first: what they still hold is dropped through the parts below them. */
static void io_close(struct io *io)
{
        http_server_destroy(io->http);
        grpc_server_destroy(io->grpc);
        forward_destroy(io->forward);
        calls_destroy(io->calls);
        plans_destroy(io->plans);
        relays_destroy(io->relays);
        sessions_destroy(io->sessions);
        push_destroy(io->push);
        webhooks_destroy(io->webhooks);
        events_destroy(io->events);
        access_destroy(io->access);
        join_destroy(io->join);
        reach_destroy(io->reach);
        if (io->wake)
                event_free(io->wake);
        if (io->files)
                event_free(io->files);
        if (io->nudge)
                event_free(io->nudge);
        tls_unref(io->tls);
        if (io->base)
                event_base_free(io->base);
        str_fini(&io->openapi);
        mem_free(io->doors);
        mem_free(io);
}

void *io_main(void *server)
{
        struct server *s = server;
        struct err err = { 0 };
        struct io *io = mem_must(sizeof(*io));
        io->s = s;
        s->io = io;
        int r = io_open(io, &err);
        server_started(s, r < 0 ? &err : NULL);
        if (r >= 0)
                event_base_dispatch(io->base);
        /* From here on nobody waits for this thread: what still comes is freed by whoever sends
         * it. */
        queue_close(s->io_queue);
        io_close(io);
        s->io = NULL;
        return NULL;
}
