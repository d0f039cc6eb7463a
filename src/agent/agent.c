/* agent/agent.c: the loop: carries out what the engine orders, and keeps the stream to the server.
 *
 *      server --messages--> engine_message \                          / records to disk
 *      (agent_disk.c) runtime --events---> engine_event    > engine -- one output --<  orders to
 *      the runtime timer -------------> engine_tick    /     per turn of the loop \ messages to the
 *      server
 *
 * Everything that came in during one turn is answered together (the flush event), so reports are
 * coalesced and records are written in batches.
 *
 * What goes to the server is bounded: stream data (logs, exec) stops at STREAM_HIGH_BYTES and
 * waits; reports and heartbeats have the rest of the call's queue, and then the outbox; if even
 * that is full the stream is given up, since the Hello of the next one says everything again.
 */
#include "agent/agent.h"
#include "agent/agent_state.h"
#include "agent/push.h"
#include "agent/runtimes/cluster.h"
#include "agent/runtimes/node.h"
#include "agent/runtimes/proc.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "base/ulid.h"
#include "model/pb.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CALL_QUEUE_BYTES (1024 * 1024)
#define STREAM_HIGH_BYTES (CALL_QUEUE_BYTES / 4) /* on_drain comes below this */
#define OUTBOX_MAX_BYTES (16 * 1024 * 1024)
#define REDIAL_MIN_MS 500
/* well below the silence that makes a node NotReady: a server that is back must not lose nodes that
 * wait to dial */
#define REDIAL_MAX_MS 5000
/* A server that stands still keeps its connections. Where there are others, one of them leads a few
 * seconds later: it must hear this node before its lease, or its patience, ends. The server's loop
 * answers PINGs also while it cannot decide, so this is no trouble for one that is only busy. */
#define PING_AFTER_MS 5000
#define PING_ANSWER_MS 8000
#define FLUSH_ROUNDS 64
#define STOP_SLACK_MS 20000
#define FILES_EVERY_MS 2000
#define DUE_EVERY_MS (3600 * 1000)

static void dial(struct agent *a);

static void in_ms(struct event *timer, int64_t ms)
{
        struct timeval tv = { ms / 1000, (ms % 1000) * 1000 };

        evtimer_add(timer, &tv);
}

/* ---- sending ---- */

static void give_up_stream(struct agent *a, const char *why)
{
        log_warn("the stream to the server is given up", LOG_S("node", a->node_id),
                 LOG_S("reason", why));
        grpc_call_cancel(a->call);
}

static void clear_outbox(struct agent *a)
{
        for (size_t i = 0; i < a->outbox.len; i++)
                mem_free(a->outbox.at[i].data);
        array_clear(&a->outbox);
        a->outbox_bytes = 0;
}

static void send_bytes(struct agent *a, const void *data, size_t len)
{
        int r;

        if (!a->call)
                return;
        r = a->outbox.len ? -ERR_LIMIT : grpc_call_send(a->call, data, len);
        if (r != -ERR_LIMIT)
                return;
        if (a->outbox_bytes + len > OUTBOX_MAX_BYTES) {
                give_up_stream(a, "the server takes nothing any more");
                return;
        }
        *array_push(&a->outbox) = (struct outgoing){ mem_dup(data, len), len };
        a->outbox_bytes += len;
        grpc_call_want_drain(a->call);
}

bool agent_send(struct agent *a, const Pb__AgentMessage *m)
{
        size_t len = pb__agent_message__get_packed_size(m);
        _cleanup_(mem_freep) uint8_t *data = mem_must(len ? len : 1);

        pb__agent_message__pack(m, data);
        send_bytes(a, data, len);
        if (!a->call || (a->outbox.len == 0 && grpc_call_queued_bytes(a->call) < STREAM_HIGH_BYTES))
                return true;
        grpc_call_want_drain(a->call);
        return false;
}

static void on_drain(struct grpc_call *call)
{
        struct agent *a = grpc_call_data(call);
        size_t sent = 0;

        while (sent < a->outbox.len &&
               grpc_call_send(call, a->outbox.at[sent].data, a->outbox.at[sent].len) == 0) {
                a->outbox_bytes -= a->outbox.at[sent].len;
                mem_free(a->outbox.at[sent].data);
                sent++;
        }
        if (sent) {
                memmove(a->outbox.at, a->outbox.at + sent,
                        (a->outbox.len - sent) * sizeof(a->outbox.at[0]));
                a->outbox.len -= sent;
        }
        if (a->outbox.len)
                grpc_call_want_drain(call);
        else
                agent_streams_resume(a);
}

/* ---- carrying out ---- */

static void run_order(struct agent *a, const struct engine_order *o)
{
        Pb__Workload *w;

        switch (o->kind) {
        case ORDER_START:
                w = pb__workload__unpack(NULL, o->len, o->data);
                if (!w) {
                        engine_event(
                            a->engine,
                            &(struct runtime_event){ .kind = RUNTIME_START_FAILED,
                                                     .workload_id = o->workload_id,
                                                     .token = o->token,
                                                     .message = "its definition does not parse" },
                            agent_now(a));
                        return;
                }
                a->ops->start(a->runtime, &(struct runtime_start){
                                              .workload_id = o->workload_id,
                                              .token = o->token,
                                              .workload = w,
                                              .cluster_id = engine_cluster_id(a->engine) });
                pb__workload__free_unpacked(w, NULL);
                break;
        case ORDER_STOP:
                a->ops->stop(a->runtime, o->workload_id, o->token, o->grace_ms);
                break;
        case ORDER_LEASE:
                agent_disk_write_lease(a, o);
                break;
        case ORDER_REMOVE:
                a->ops->remove(a->runtime, o->workload_id);
                break;
        default:
                break;
        }
}

static bool is_record(const struct engine_order *o)
{
        return o->kind == ORDER_PERSIST_UNIT || o->kind == ORDER_PERSIST_AGENT ||
               o->kind == ORDER_FORGET_UNIT;
}

/* Was the record of this START refused by the disk? */
static bool was_not_written(const struct engine_output *out, const bool *failed, size_t n_records,
                            const char *id)
{
        for (size_t i = 0; i < n_records; i++)
                if (failed[i] && out->orders[i].kind == ORDER_PERSIST_UNIT &&
                    str_eq(out->orders[i].workload_id, id))
                        return true;
        return false;
}

static void carry_out(struct agent *a, const struct engine_output *out)
{
        size_t records = 0;
        _cleanup_(mem_freep) bool *failed = NULL;
        bool any_failed = false;
        struct err err = { 0 };

        while (records < out->n_orders && is_record(&out->orders[records]))
                records++;
        if (records && a->data_dir) {
                failed = mem_must(records);
                agent_disk_write(a->data_dir, out->orders, records, failed, &err);
        }
        for (size_t i = 0; failed && i < records; i++) {
                if (!failed[i])
                        continue;
                any_failed = true;
                log_error("a record could not be written", LOG_S("node", a->node_id),
                          LOG_S("workload", out->orders[i].workload_id), LOG_E(&err));
                if (out->orders[i].kind != ORDER_FORGET_UNIT)
                        engine_persist_failed(a->engine, out->orders[i].workload_id, err_line(&err),
                                              agent_now(a));
        }
        for (size_t i = records; i < out->n_orders; i++) {
                const struct engine_order *o = &out->orders[i];

                if (any_failed && o->kind == ORDER_START &&
                    was_not_written(out, failed, records, o->workload_id))
                        continue;
                run_order(a, o);
        }
        for (size_t i = 0; i < out->n_messages; i++)
                send_bytes(a, out->messages[i].data, out->messages[i].len);
}

static void set_tick(struct agent *a)
{
        int64_t next = engine_next_ms(a->engine), wait;

        if (next == INT64_MAX) {
                evtimer_del(a->tick);
                return;
        }
        wait = next - agent_now(a);
        if (wait < 0)
                wait = 0;
        if (wait > 3600000)
                wait = 3600000;
        in_ms(a->tick, wait);
}

static void wake(struct agent *a)
{
        event_active(a->flush, EV_TIMEOUT, 0);
}

void agent_wake(struct agent *a)
{
        wake(a);
}

void agent_is_welcome(struct agent *a)
{
        struct fleet *f = a->fleet;

        a->failures = 0;
        if (a->was_welcome)
                return;
        a->was_welcome = true;
        log_at(f->n_agents > 1 ? LOG_DEBUG : LOG_INFO, "connected", LOG_S("node", a->node_id),
               LOG_S("server", f->opt->server), LOG_S("cluster", engine_cluster_id(a->engine)));
        if (++f->n_ready < f->n_agents)
                return;
        if (f->n_agents > 1)
                log_info("all nodes are connected", LOG_I("nodes", f->n_agents),
                         LOG_S("server", f->opt->server));
        if (!f->ready_told && f->opt->ready_fd > 0) {
                f->ready_told = true;
                if (write(f->opt->ready_fd, "1", 1) != 1)
                        log_debug("nobody waits for this agent to be ready");
        }
}

static void end_if_stopped(struct fleet *f)
{
        if (!f->stopping)
                return;
        for (uint32_t i = 0; i < f->n_agents; i++)
                if (!engine_is_idle(f->agents[i]->engine))
                        return;
        event_base_loopbreak(f->base);
}

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
        struct agent *a = arg;
        struct engine_output *out;
        const char *reason;
        int64_t retry_ms;
        int rounds = 0;

        (void)fd, (void)what;
        while (rounds++ < FLUSH_ROUNDS && (out = engine_take(a->engine))) {
                carry_out(a, out);
                engine_output_free(out);
        }
        if (rounds > FLUSH_ROUNDS)
                wake(a); /* others have their turn first */
        if (a->call && engine_is_welcome(a->engine))
                agent_is_welcome(a);
        if (a->call && engine_wants_close(a->engine, &reason, &retry_ms) && a->slow_retry_ms == 0) {
                log_error("the server cannot be used", LOG_S("node", a->node_id),
                          LOG_S("reason", reason), LOG_I("retry_ms", retry_ms));
                a->slow_retry_ms = retry_ms;
                grpc_call_cancel(a->call);
        }
        if (engine_plans_ignored(a->engine) != a->plans_ignored) {
                a->plans_ignored = engine_plans_ignored(a->engine);
                log_warn(
                    "a plan older than the last one was ignored", LOG_S("node", a->node_id),
                    LOG_S(
                        "hint",
                        "was the server's store put back to an older state without a new epoch?"));
        }
        if (a->push)
                agent_push_turn(a);
        set_tick(a);
        end_if_stopped(a->fleet);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
        struct agent *a = arg;
        struct runtime_usage usage;

        (void)fd, (void)what;
        if (engine_is_welcome(a->engine)) {
                agent_usage(a, &usage);
                engine_set_usage(a->engine, &usage);
                agent_look_at_capacity(a);
        }
        engine_tick(a->engine, agent_now(a));
        wake(a);
}

static void log_event(const struct agent *a, const struct runtime_event *ev)
{
        static const char *const what[] = {
                [RUNTIME_STARTED] = "unit started",
                [RUNTIME_START_FAILED] = "unit could not be started",
                [RUNTIME_EXITED] = "unit exited",
                [RUNTIME_STOPPED] = "unit stopped",
                [RUNTIME_REMOVED] = "unit removed",
                [RUNTIME_FOUND_RUNNING] = "unit adopted",
                [RUNTIME_FOUND_EXITED] = "unit had exited",
                [RUNTIME_FOUND_GONE] = "unit ended with the machine",
        };

        log_at(a->ops == &runtime_mock ? LOG_DEBUG : LOG_INFO, what[ev->kind],
               LOG_S("node", a->node_id), LOG_S("workload", ev->workload_id),
               LOG_I("token", ev->token.seq), LOG_I("pid", ev->pid),
               LOG_I("exit_code", ev->has_exit_code ? ev->exit_code : -1),
               LOG_I("signal", ev->signal), LOG_S("message", ev->message ? ev->message : ""));
}

static void on_runtime_event(void *ctx, const struct runtime_event *ev)
{
        struct agent *a = ctx;

        if (ev->kind != RUNTIME_PROGRESS)
                log_event(a, ev);
        engine_event(a->engine, ev, agent_now(a));
        agent_health_event(a, ev);
        wake(a);
}

/* ---- the stream ---- */

static void greet(struct agent *a)
{
        if (!a->call || a->greeted)
                return;
        a->greeted = true;
        a->dialled = grpc_channel_target(a->channel);
        engine_connected(a->engine, agent_now(a));
        wake(a);
}

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct agent *a = grpc_call_data(call);
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *parsed = NULL;
        struct err err = { 0 };

        if (pb_unpack(&pb__server_message__descriptor, data, len, &memory, &parsed, &err) < 0) {
                give_up_stream(a,
                               fmt("a message of the server does not parse: %s", err_line(&err)));
                arena_fini(&memory);
                return;
        }
        Pb__ServerMessage *m = (Pb__ServerMessage *)parsed;
        if (m->log || m->exec || m->exec_input || m->cancel || m->credit) {
                if (engine_is_welcome(a->engine))
                        agent_stream_message(a, m);
        } else {
                engine_message(a->engine, m, agent_now(a));
                wake(a);
        }
        arena_fini(&memory);
}

/* Jittered, and slower with every stream that brought nothing. */
int64_t agent_redial_wait_ms(struct agent *a)
{
        int64_t wait = REDIAL_MIN_MS;

        if (a->slow_retry_ms > 0) {
                wait = a->slow_retry_ms;
                a->slow_retry_ms = 0;
        } else {
                /* of several servers each is asked once before it counts as another failure */
                uint32_t rounds = a->failures / (a->channel ? grpc_channel_targets(a->channel) : 1);
                for (uint32_t i = 0; i < rounds && wait < REDIAL_MAX_MS; i++)
                        wait *= 2;
                if (wait > REDIAL_MAX_MS)
                        wait = REDIAL_MAX_MS;
        }
        return wait / 2 + (int64_t)rng_below(&a->fleet->rng, (uint64_t)wait);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct agent *a = grpc_call_data(call);

        if (!a->fleet->stopping && (engine_is_welcome(a->engine) || a->failures == 0))
                log_at(a->fleet->n_agents > 1 ? LOG_DEBUG : LOG_INFO,
                       "the stream to the server ended", LOG_S("node", a->node_id),
                       LOG_S("status", grpc_status_name(status)),
                       LOG_S("message", grpc_call_message(call)));
        a->call = NULL;
        a->greeted = false;
        a->failures++;
        /* A server that turned us away may not be the one that leads; one that went away surely is
         * not. Only the first of those who share the connection moves it on. */
        if ((status == GRPC_UNAVAILABLE || !engine_is_welcome(a->engine)) &&
            a->dialled == grpc_channel_target(a->channel))
                grpc_channel_next(a->channel);
        clear_outbox(a);
        agent_streams_close(a);
        engine_disconnected(a->engine, agent_now(a));
        wake(a);
        if (a->fleet->stopping)
                return;
        in_ms(a->redial, agent_redial_wait_ms(a));
}

static void on_state(struct grpc_channel *channel, enum grpc_channel_state state,
                     const struct err *why, void *ctx)
{
        struct agent *a = ctx; /* the first of those that share it */
        struct fleet *f = a->fleet;

        (void)channel;
        if (state == GRPC_CHANNEL_READY)
                for (uint32_t i = a->index; i < f->n_agents; i += f->n_channels)
                        greet(f->agents[i]);
        else if (state == GRPC_CHANNEL_BACKOFF && why)
                log_at(a->failures == 0 ? LOG_WARN : LOG_DEBUG, "the server cannot be reached",
                       LOG_S("node", a->node_id), LOG_S("server", a->fleet->opt->server),
                       LOG_E(why));
        if (state == GRPC_CHANNEL_BACKOFF && a->failures == 0)
                a->failures = 1; /* said once */
}

static void dial(struct agent *a)
{
        static const struct grpc_callbacks callbacks = { .on_message = on_message,
                                                         .on_drain = on_drain,
                                                         .on_close = on_close };
        struct grpc_call_options opt = { .wait_for_ready = true };

        if (a->call || a->fleet->stopping)
                return;
        a->call = grpc_channel_call(a->channel, "/berth.v1.Agent/Connect", &opt, &callbacks, a);
        if (grpc_channel_state(a->channel) == GRPC_CHANNEL_READY)
                greet(a);
}

static void on_redial(evutil_socket_t fd, short what, void *arg)
{
        struct agent *a = arg;

        (void)fd, (void)what;
        if (a->push)
                agent_push_dial(a);
        else
                dial(a);
}

/* ---- one node ---- */

static void agent_close(struct agent *a)
{
        if (!a)
                return;
        if (a->channel && a->index < a->fleet->n_channels)
                /* on_close comes from inside, for all that share it */
                grpc_channel_destroy(a->channel);
        a->channel = NULL;
        agent_push_close(a);
        agent_streams_close(a);
        agent_health_close(a);
        if (a->runtime)
                a->ops->close(a->runtime);
        if (a->engine)
                engine_destroy(a->engine);
        if (a->flush)
                event_free(a->flush);
        if (a->tick)
                event_free(a->tick);
        if (a->redial)
                event_free(a->redial);
        if (a->relay_input)
                event_free(a->relay_input);
        if (a->lock_fd >= 0)
                close(a->lock_fd);
        clear_outbox(a);
        array_fini(&a->outbox);
        array_fini(&a->relays);
        mem_free(a->node_id);
        mem_free(a->data_dir);
        mem_free(a);
}

static int open_engine(struct agent *a, const struct str *record, bool mock, struct err *err)
{
        const struct agent_options *opt = a->fleet->opt;
        struct engine_options eo = { .node_id = a->node_id,
                                     .boot_id = mock ? NULL : proc_boot_id(),
                                     .agent_version = BERTH_VERSION,
                                     .agent_endpoint = opt->endpoint,
                                     .types = a->ops->types_now ? a->ops->types_now(a->runtime)
                                                                : a->ops->types,
                                     .exclusive_types = a->ops->exclusive_types,
                                     .labels = opt->labels,
                                     .n_labels = opt->n_labels };
        char instance[ULID_LEN + 1];

        agent_make_ulid(a, instance);
        eo.instance = instance;
        agent_detect(&eo, opt, mock);
        a->offers = (struct node_room){ eo.cpu, eo.memory_mb, eo.disk_gb };
        a->engine = engine_create(&eo);
        if (a->fleet->tls)
                engine_set_certificate(a->engine, tls_begins_at_ms(a->fleet->tls),
                                       tls_expires_at_ms(a->fleet->tls));
        agent_look_at_capacity(a);
        if (record->len && engine_load_agent(a->engine, str_c(record), record->len, err) < 0)
                return err_prefix(err, a->data_dir);
        if (a->data_dir)
                agent_disk_load_lease(a);
        return a->data_dir ? agent_disk_load_units(a, err) : 0;
}

/* Which container engine is wanted, in the words of container_options. */
static const char *engine_wanted(const char *runtime)
{
        return str_eq(runtime, "auto")                                  ? NULL
               : str_eq(runtime, "podman") || str_eq(runtime, "docker") ? runtime
                                                                        : "none";
}

static const char *cluster_of(void *ctx)
{
        const struct agent *a = ctx;

        return a->engine ? engine_cluster_id(a->engine) : "";
}

/* Before the engine is made: what the runtime can do is what the node says of itself. It says
 * nothing before find. */
static int open_runtime(struct agent *a, const struct mock_options *mock, struct err *err)
{
        struct fleet *f = a->fleet;
        struct node_options node = { .container = { .engine = engine_wanted(f->opt->runtime),
                                                    .socket = f->opt->engine_socket,
                                                    .root = f->opt->podman_root,
                                                    .runroot = f->opt->podman_runroot } };
        struct cluster_options cluster = { .address = f->opt->cluster,
                                           .ca_file = f->opt->cluster_tls_ca_file,
                                           .cert_file = f->opt->cluster_tls_cert_file,
                                           .key_file = f->opt->cluster_tls_key_file,
                                           .token_file = f->opt->cluster_token_file,
                                           .server_name = f->opt->cluster_tls_server_name };
        struct runtime_options ro = { .base = f->base,
                                      .data_dir = a->data_dir,
                                      .node_id = a->node_id,
                                      .unit_users = f->opt->unit_users,
                                      .program = f->opt->program,
                                      .on_event = on_runtime_event,
                                      .cluster_id = cluster_of,
                                      .ctx = a,
                                      .extra = mock                         ? (const void *)mock
                                               : a->ops == &runtime_cluster ? (const void *)&cluster
                                                                            : &node };

        return a->ops->open(&ro, &a->runtime, err);
}

static int find_units(struct agent *a, struct err *err)
{
        int r = a->ops->find(a->runtime, err);
        struct runtime_usage first;

        if (r == 0)
                engine_booted(a->engine, agent_now(a));
        for (int i = 0; r == 0 && i < 2; i++)
                agent_usage(a, &first); /* use is told by the difference of two looks */
        return r;
}

static int agent_open(struct fleet *f, const char *node_id, const struct mock_options *mock,
                      struct agent **ret, struct err *err)
{
        const struct agent_options *opt = f->opt;
        struct grpc_channel_options co = { .tls = f->tls,
                                           .token = opt->token,
                                           .server_name = opt->tls_server_name,
                                           .to_server = true,
                                           .rng = &f->rng,
                                           .max_queued_bytes = CALL_QUEUE_BYTES,
                                           .backoff_max_ms = REDIAL_MAX_MS,
                                           .on_state = on_state };
        _cleanup_(str_finip) struct str record = STR_INIT;
        struct agent *a = mem_must(sizeof(*a));
        int r = 0;

        a->fleet = f;
        a->index = f->n_agents;
        a->lock_fd = -1;
        a->ops = mock                              ? &runtime_mock
                 : str_eq(opt->runtime, "cluster") ? &runtime_cluster
                                                   : &runtime_node;
        a->flush = event_new(f->base, -1, 0, on_flush, a);
        a->tick = evtimer_new(f->base, on_tick, a);
        a->redial = evtimer_new(f->base, on_redial, a);
        co.ctx = a;
        if (!mock) {
                a->data_dir = mem_strdup(opt->data_dir);
                r = agent_disk_lock(a->data_dir, &a->lock_fd, err);
                if (r == 0)
                        r = agent_disk_read(a->data_dir, &record, err);
                if (r == -ERR_NOT_FOUND)
                        r = 0;
                if (r == 0)
                        r = agent_settle_id(a, node_id, &record, err);
        } else
                a->node_id = mem_strdup(node_id);
        if (r == 0)
                r = open_runtime(a, mock, err);
        if (r == 0)
                r = open_engine(a, &record, mock != NULL, err);
        if (r == 0)
                r = find_units(a, err);
        if (strchr(opt->server, ',')) {
                co.keepalive_ms = PING_AFTER_MS;
                co.keepalive_timeout_ms = PING_ANSWER_MS;
        }
        if (r == 0 && a->index < f->n_channels)
                r = grpc_channel_create(f->base, opt->server, &co, &a->channel, err);
        else if (r == 0)
                a->channel = f->agents[a->index % f->n_channels]->channel;
        if (r == 0 && opt->listen)
                r = agent_push_open(a, err);
        if (r < 0) {
                agent_close(a);
                return r;
        }
        *ret = a;
        return 0;
}

/* ---- the whole process ---- */

static void on_stop_deadline(evutil_socket_t fd, short what, void *arg)
{
        struct fleet *f = arg;

        (void)fd, (void)what;
        log_error("some units could not be stopped in time; they run on");
        event_base_loopbreak(f->base);
}

/* First: leave (and with stop_on_exit stop everything first). Again: leave now. */
static void on_terminate(evutil_socket_t sig, short what, void *arg)
{
        struct fleet *f = arg;
        int64_t grace_ms = 0;

        (void)sig, (void)what;
        if (f->stopping || !f->opt->stop_on_exit) {
                event_base_loopbreak(f->base);
                return;
        }
        f->stopping = true;
        for (uint32_t i = 0; i < f->n_agents; i++) {
                struct agent *a = f->agents[i];

                if (engine_max_grace_ms(a->engine) > grace_ms)
                        grace_ms = engine_max_grace_ms(a->engine);
                engine_suspend(a->engine, agent_now(a));
                if (a->call)
                        grpc_call_cancel(a->call);
                evtimer_del(a->redial);
                wake(a);
        }
        in_ms(f->stop_deadline, grace_ms + STOP_SLACK_MS);
}

/* The log is where somebody may see in time that nobody renews. */
static void tell_if_due(struct fleet *f)
{
        int64_t now_ms = clock_now_ms(&f->clock), left_ms = tls_expires_at_ms(f->tls) - now_ms;
        char when[TIME_TEXT_LEN];

        if (!tls_is_due(f->tls, now_ms) ||
            (f->due_told_at_ms && now_ms - f->due_told_at_ms < DUE_EVERY_MS))
                return;
        f->due_told_at_ms = now_ms;
        log_warn(left_ms > 0 ? "the certificate expires soon" : "the certificate has expired",
                 LOG_S("cert", f->opt->tls_cert_file),
                 LOG_S("expires_at", time_format(when, tls_expires_at_ms(f->tls))),
                 LOG_I("hours_left", left_ms / 3600000),
                 LOG_S("hint", !f->joined
                                   ? "berth ca renew makes a new one; it is taken up within seconds"
                               : left_ms > 0 ? "the server could not renew it; its log says more"
                                             : "start the agent with --join and a token of `berth "
                                               "token create --join --node ID`"));
}

static void on_files(evutil_socket_t fd, short what, void *arg)
{
        struct fleet *f = arg;
        struct err err = { 0 };
        int r = tls_reload_if_changed(f->tls, &err);

        (void)fd, (void)what;
        if (r != 0)
                for (uint32_t i = 0; i < f->n_agents; i++)
                        agent_push_reload(f->agents[i]);
        if (r < 0)
                log_error("new certificate files are not used; the old ones stay in force",
                          LOG_E(&err));
        else if (r > 0) {
                f->due_told_at_ms = 0;
                for (uint32_t i = 0; i < f->n_agents; i++)
                        engine_set_certificate(f->agents[i]->engine, tls_begins_at_ms(f->tls),
                                               tls_expires_at_ms(f->tls));
                log_info("new certificate files are in use for new connections");
        }
        tell_if_due(f);
}

void agent_look_at_files(struct fleet *f)
{
        on_files(-1, 0, f);
}

static void on_hangup(evutil_socket_t sig, short what, void *arg)
{
        struct fleet *f = arg;

        if (f->tls)
                on_files(sig, what, f);
}

static int check_options(const struct agent_options *opt, bool *ret_mock, struct err *err)
{
        static const char *const known[] = { "auto",   "process", "none",   "podman",
                                             "docker", "mock",    "cluster" };
        bool mock = str_eq(opt->runtime, "mock"), found = str_empty(opt->runtime);

        for (size_t i = 0; i < ARRAY_LEN(known); i++)
                found = found || str_eq(opt->runtime, known[i]);
        if (!found)
                return err_set(err, ERR_INVALID, .msg = fmt("unknown runtime %s", opt->runtime),
                               .hint = "known are auto, process, podman, docker, cluster and mock");
        if (str_eq(opt->runtime, "cluster") != !str_empty(opt->cluster))
                return err_set(
                    err, ERR_INVALID,
                    .msg = str_empty(opt->cluster) ? "the runtime cluster needs the address of one"
                                                   : "a cluster needs the runtime cluster",
                    .hint = "give --runtime cluster and --cluster host:port, or neither");
        if (str_empty(opt->server))
                return err_set(err, ERR_INVALID, .msg = "the agent needs a server",
                               .hint = "give --server host:port");
        if (!mock && str_empty(opt->data_dir))
                return err_set(err, ERR_INVALID, .msg = "the agent needs a data directory",
                               .hint = "give --data DIR");
        if (!mock && opt->nodes > 1)
                return err_set(err, ERR_INVALID,
                               .msg =
                                   "several nodes in one process work with the mock runtime only",
                               .hint = "add --runtime mock");
        if (opt->join && (mock || opt->listen || opt->tls_cert_file))
                return err_set(err, ERR_INVALID,
                               .msg = "--join is for a real node that dials its server and has no "
                                      "certificate of its own",
                               .hint = "agents that are called (--push) need a certificate for "
                                       "servers: berth ca issue node");
        if (opt->nodes > AGENT_MAX_NODES)
                return err_set(err, ERR_INVALID, .msg = "too many nodes",
                               .detail = fmt("at most %d", AGENT_MAX_NODES));
        *ret_mock = mock;
        return 0;
}

static int open_tls(struct fleet *f, struct err *err)
{
        const struct agent_options *opt = f->opt;
        struct tls_options to = { .cert_file = opt->tls_cert_file,
                                  .key_file = opt->tls_key_file,
                                  .ca_file = opt->tls_ca_file };

        int r = opt->tls_ca_file || opt->tls_cert_file ? tls_client_create(&to, &f->tls, err) : 0;

        if (f->tls) {
                f->files = event_new(f->base, -1, EV_PERSIST, on_files, f);
                event_add(f->files, &(struct timeval){ .tv_sec = FILES_EVERY_MS / 1000 });
                tell_if_due(f);
        }
        return r;
}

static int open_agents(struct fleet *f, bool mock, struct err *err)
{
        const struct agent_options *opt = f->opt;
        struct mock_options defaults, one;
        uint32_t n = opt->nodes > 1 ? opt->nodes : 1;
        const char *prefix = opt->node_id ? opt->node_id : "mock";

        mock_options_default(&defaults);
        defaults.seed = opt->seed;
        f->agents = mem_must(sizeof(*f->agents) * n);
        f->n_channels = opt->connections && opt->connections < n ? opt->connections : n;
        for (uint32_t i = 0; i < n; i++) {
                const char *id = !mock   ? opt->node_id
                                 : n > 1 ? fmt("%s-%04u", prefix, i + 1)
                                         : prefix;
                int r;

                one = opt->mock ? *opt->mock : defaults;
                r = agent_open(f, id, mock ? &one : NULL, &f->agents[i], err);
                if (r < 0)
                        return r;
                f->n_agents++;
        }
        /* spread over a second or two: a thousand greetings at once help nobody */
        for (uint32_t i = 0; i < n; i++) {
                wake(f->agents[i]);
                in_ms(f->agents[i]->redial,
                      n > 1 ? (int64_t)rng_below(&f->rng, n < 2000 ? n : 2000) : 0);
        }
        return 0;
}

static void fleet_close(struct fleet *f)
{
        f->stopping = true; /* nobody dials any more */
        for (uint32_t i = 0; i < f->n_agents; i++)
                agent_close(f->agents[i]);
        mem_free(f->agents);
        if (f->sigterm)
                event_free(f->sigterm);
        if (f->sigint)
                event_free(f->sigint);
        if (f->sighup)
                event_free(f->sighup);
        if (f->stop_deadline)
                event_free(f->stop_deadline);
        if (f->files)
                event_free(f->files);
        tls_unref(f->tls);
        agent_renewal_stop(f);
        arena_fini(&f->memory);
        if (f->base)
                event_base_free(f->base);
}

/* Which node joins: as agent_settle_id() will find. */
static int node_to_join(struct fleet *f, struct agent_options *opt, struct err *err)
{
        _cleanup_(str_finip) struct str record = STR_INIT;
        Pb__AgentRecord *known = NULL;

        if (opt->node_id)
                return 0;
        if (agent_disk_read(opt->data_dir, &record, NULL) == 0)
                known = pb__agent_record__unpack(NULL, record.len, (const uint8_t *)str_c(&record));
        char *id = known && !str_empty(known->node_id) ? mem_strdup(known->node_id)
                                                       : agent_new_node_id(&f->rng);
        opt->node_id = arena_strdup(&f->memory, id);
        mem_free(id);
        if (known)
                pb__agent_record__free_unpacked(known, NULL);
        return dir_make(opt->data_dir, 0700, err);
}

/* A certificate of our own, if there is one or a token for one. */
static int settle_identity(struct fleet *f, struct agent_options *opt, struct err *err)
{
        int r = 0;

        if (opt->join) {
                r = node_to_join(f, opt, err);
                if (r == 0)
                        r = agent_join(opt, opt->node_id, err);
        }
        if (r == 0)
                f->joined = agent_use_joined(opt, &f->memory);
        return r;
}

int agent_run(const struct agent_options *options, struct err *err)
{
        struct agent_options own = *options, *opt = &own;
        struct fleet f = { .opt = opt };
        struct rlimit files;
        bool mock = false;
        int r = check_options(opt, &mock, err);

        if (r < 0)
                return r;
        signal(SIGPIPE, SIG_IGN);
        if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
                files.rlim_cur = files.rlim_max;
                setrlimit(RLIMIT_NOFILE, &files);
        }
        clock_init_system(&f.clock);
        if (opt->seed && mock)
                rng_seed(&f.rng, opt->seed);
        else
                rng_seed_system(&f.rng);
        f.base = event_base_new();
        if (!f.base)
                return err_set(err, ERR_INTERNAL, .msg = "cannot make an event loop");
        f.stop_deadline = evtimer_new(f.base, on_stop_deadline, &f);
        r = mock ? 0 : settle_identity(&f, opt, err);
        if (r == 0)
                r = open_tls(&f, err);
        if (r == 0)
                r = open_agents(&f, mock, err);
        if (r == 0 && f.joined)
                agent_renewal_start(&f);
        if (r == 0) {
                f.sigterm = evsignal_new(f.base, SIGTERM, on_terminate, &f);
                f.sigint = evsignal_new(f.base, SIGINT, on_terminate, &f);
                f.sighup = evsignal_new(f.base, SIGHUP, on_hangup, &f);
                evsignal_add(f.sigterm, NULL);
                evsignal_add(f.sigint, NULL);
                evsignal_add(f.sighup, NULL);
                log_info("agent started",
                         LOG_S("node", f.n_agents == 1 ? f.agents[0]->node_id : "many"),
                         LOG_I("nodes", f.n_agents),
                         LOG_S("runtime", str_empty(opt->runtime) ? "process" : opt->runtime),
                         LOG_I("units", engine_unit_count(f.agents[0]->engine)));
                event_base_dispatch(f.base);
        }
        fleet_close(&f);
        return r;
}
