/* server/server.c: starts the threads in order, and ends them in order.
 *
 * Start: store (opens, loads the core), reader, ring (INPUT_START), io (listens). Stop: io drains
 * while the ring and the store go on working for the calls under way; then the ring commits what it
 * has decided; then the reader; the store closes last.
 */
#include "server/server.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/config.h"
#include "model/pb.h"
#include "server/access.h"
#include "server/key.h"
#include "server/plans.h"
#include "server/reader.h"
#include "server/shared.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define IO_QUEUE 4096
#define PUSH_AGAIN_US 1000
#define GRACE_MS 3000 /* beyond shutdown_ms, for the last commits */
#define ADDRESS_AGAIN_MS 1000
#define SETTLE_MS 30000 /* how long a start waits for the first leader */

void server_options_default(struct server_options *opt)
{
        *opt = (struct server_options){
                .http_address = "127.0.0.1:8084",
                .grpc_address = "127.0.0.1:8085",
                .log_level = LOG_INFO,
                .retention = { [EVENT_LIFECYCLE] = { .events = 1000000 },
                               [EVENT_AUDIT] = { .events = 100000 } },
                .request_timeout_ms = 10000,
                .shutdown_ms = 10000,
                .max_inputs = 2048,
                .max_calls = 20000,
                .max_agents = 20000,
                .max_refusals = 20,
                .cert_valid_ms = 30 * 24 * 3600 * INT64_C(1000),
                .max_subscribers = 2000,
                .max_relays_per_agent = 16,
                .max_connections = 20000,
                .max_body_bytes = 1024 * 1024,
                .agent_queue_bytes = 64u * 1024 * 1024,
                .relay_queue_bytes = 16u * 1024 * 1024,
        };
        core_options_default(&opt->core);
}

void retention_from(const Pb__ServerConfig *config, struct store_keep ret[EVENT_CLASSES])
{
        struct server_options defaults;
        const Pb__EventRetention *given = config->retention;
        server_options_default(&defaults);
        memcpy(ret, defaults.retention, sizeof(defaults.retention));
        for (int i = 0; given && i < EVENT_CLASSES; i++) {
                const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(
                    &pb__event_retention__descriptor, event_class_name((enum event_class)i));
                must(f, "every class of events has a key below retention");
                const Pb__EventKeep *keep =
                    *(Pb__EventKeep *const *)((const char *)given + f->offset);
                if (keep && keep->events)
                        ret[i].events = (uint64_t)keep->events->value;
                if (keep)
                        ret[i].age_ms = config_duration_ms(keep->age, ret[i].age_ms);
        }
        if (config->keep_events)
                ret[EVENT_LIFECYCLE].events = (uint64_t)config->keep_events->value;
}

static void set_retention(struct server *s, const struct store_keep keep[EVENT_CLASSES])
{
        for (int i = 0; i < EVENT_CLASSES; i++) {
                atomic_store(&s->retention[i].events, keep[i].events);
                atomic_store(&s->retention[i].age_ms, keep[i].age_ms);
        }
}

/* ---- what the threads share ---- */

int64_t mono_ms(void)
{
        return clock_mono_ns() / 1000000;
}

struct ring_msg *ring_msg_new(enum input_kind kind)
{
        struct ring_msg *m = mem_must(sizeof(*m));
        m->in.kind = kind;
        return m;
}

void ring_msg_free(void *p)
{
        struct ring_msg *m = p;
        if (!m)
                return;
        arena_fini(&m->memory);
        mem_free(m);
}

void io_msg_free(void *p)
{
        struct io_msg *m = p;
        if (!m)
                return;
        core_batch_free(m->batch);
        history_job_free(m->history);
        plan_child_free(m->plan);
        arena_fini(&m->memory);
        mem_free(m);
}

void commit_done_free(void *p)
{
        struct commit_done *d = p;
        if (!d)
                return;
        if (d->core)
                core_destroy(d->core);
        core_batch_free(d->batch);
        mem_free(d);
}

static void commit_job_free(void *p)
{
        struct commit_job *job = p;
        core_batch_free(job->batch);
        mem_free(job);
}

void gate_init(struct gate *g)
{
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_mutex_init(&g->lock, NULL);
        pthread_cond_init(&g->cond, &attr);
        pthread_condattr_destroy(&attr);
        g->open = false;
}

void gate_fini(struct gate *g)
{
        pthread_mutex_destroy(&g->lock);
        pthread_cond_destroy(&g->cond);
}

void gate_open(void *gate)
{
        struct gate *g = gate;
        pthread_mutex_lock(&g->lock);
        g->open = true;
        pthread_cond_signal(&g->cond);
        pthread_mutex_unlock(&g->lock);
}

void gate_wait(struct gate *g, int64_t timeout_ms)
{
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += (time_t)(timeout_ms / 1000);
        until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        if (until.tv_nsec >= 1000000000) {
                until.tv_sec++;
                until.tv_nsec -= 1000000000;
        }
        pthread_mutex_lock(&g->lock);
        while (!g->open)
                if (timeout_ms < 0)
                        pthread_cond_wait(&g->cond, &g->lock);
                else if (pthread_cond_timedwait(&g->cond, &g->lock, &until) == ETIMEDOUT)
                        break;
        g->open = false;
        pthread_mutex_unlock(&g->lock);
}

static void raise_fd(int fd)
{
        uint64_t one = 1;
        ssize_t n = write(fd, &one, sizeof(one));
        (void)n; /* full: it is raised already */
}

static void wake_io(void *ctx)
{
        struct server *s = ctx;
        raise_fd(s->io_wake_fd);
}

bool server_io_push(struct server *s, struct io_msg *msg, bool wait)
{
        while (!queue_push(s->io_queue, msg)) {
                if (!wait || queue_is_closed(s->io_queue))
                        return false;
                usleep(PUSH_AGAIN_US);
        }
        return true;
}

void server_release(struct server *s, struct core_batch *batch)
{
        atomic_fetch_add(&s->answers, batch->n_replies);
        struct io_msg *msg = mem_must(sizeof(*msg));
        msg->kind = IO_RELEASE;
        msg->batch = batch;
        if (!server_io_push(s, msg, true))
                io_msg_free(msg);
}

bool server_surely_leads(struct server *s)
{
        return s->store && clock_steady_ns() < store_leads_until_ns(s->store);
}

void server_proved(void *server)
{
        struct server *s = server;
        if (atomic_load(&s->proof_wanted))
                raise_fd(s->io_wake_fd);
}

bool server_store_is_away(struct server *s)
{
        int64_t since = atomic_load(&s->commit_since_ms);
        if (since == 0)
                return false;
        int64_t ms = mono_ms() - since;
        return ms >= STORE_STALLED_MS || (ms >= STORE_AWAY_MS && atomic_load(&s->degraded));
}

/* An idle leader commits nothing and so would not notice for a whole lease that nobody answers; its
 * keep-alive does, after one beat or two. */
static bool keep_alive_is_late(struct server *s)
{
        return s->store && store_is_shared(s->store) && atomic_load(&s->leads) &&
               store_leads_until_ns(s->store) - clock_steady_ns() <
                   (LEASE_SECONDS * INT64_C(1000) - KEEP_ALIVE_LATE_MS) * 1000000;
}

bool server_is_degraded(struct server *s, char *ret_reason)
{
        bool degraded = atomic_load(&s->degraded), late = !degraded && keep_alive_is_late(s);
        if (ret_reason && degraded) {
                pthread_mutex_lock(&s->lock);
                memcpy(ret_reason, s->degraded_reason, sizeof(s->degraded_reason));
                pthread_mutex_unlock(&s->lock);
        } else if (ret_reason)
                strcpy(ret_reason, late ? "the store does not answer" : "");
        return degraded || late;
}

void server_set_degraded(struct server *s, bool degraded, const char *reason)
{
        pthread_mutex_lock(&s->lock);
        snprintf(s->degraded_reason, sizeof(s->degraded_reason), "%s", reason);
        pthread_mutex_unlock(&s->lock);
        atomic_store(&s->degraded_since_ms, clock_wall_ms());
        atomic_store(&s->degraded, degraded);
}

void server_tell_role(struct server *s, bool leads, uint64_t head)
{
        atomic_store(&s->leads, leads);
        struct io_msg *msg = mem_must(sizeof(*msg));
        msg->kind = IO_ROLE;
        msg->leads = leads;
        msg->head = head;
        if (!server_io_push(s, msg, true))
                io_msg_free(msg);
}

void server_leader(struct server *s, struct leader *ret)
{
        pthread_mutex_lock(&s->lock);
        *ret = s->leader;
        pthread_mutex_unlock(&s->lock);
}

void server_fatal(struct server *s, const struct err *err)
{
        pthread_mutex_lock(&s->lock);
        if (s->fatal.code == ERR_OK)
                s->fatal = *err;
        pthread_mutex_unlock(&s->lock);
        server_stop(s);
}

void server_started(struct server *s, const struct err *err)
{
        pthread_mutex_lock(&s->lock);
        if (err && s->start_err.code == ERR_OK)
                s->start_err = *err;
        s->starting--;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
}

/* ---- start ---- */

/* Starts a thread and waits until it has said whether it could begin. */
static int start_thread(struct server *s, const char *name, void *(*run)(void *),
                        pthread_t *ret_thread, bool *ret_runs, struct err *err)
{
        s->starting = 1;
        int r = pthread_create(ret_thread, NULL, run, s);
        if (r != 0)
                return err_sys(err, r, "a thread cannot be started");
        pthread_setname_np(*ret_thread, name);
        *ret_runs = true;
        pthread_mutex_lock(&s->lock);
        while (s->starting > 0)
                pthread_cond_wait(&s->changed, &s->lock);
        struct err failed = s->start_err;
        pthread_mutex_unlock(&s->lock);
        if (failed.code == ERR_OK)
                return 0;
        if (err)
                *err = failed;
        return -(int)failed.code;
}

static const char *copy(struct server *s, const char *text)
{
        return text ? arena_strdup(&s->memory, text) : NULL;
}

static void copy_options(struct server *s, const struct server_options *opt)
{
        s->opt = *opt;
        s->opt.data_dir = copy(s, opt->data_dir);
        s->opt.store_url = opt->store_url
                               ? copy(s, opt->store_url)
                               : arena_printf(&s->memory, "sqlite:%s/berth.db", opt->data_dir);
        s->opt.http_address = copy(s, opt->http_address);
        s->opt.grpc_address = copy(s, opt->grpc_address);
        s->opt.advertise_http = copy(s, opt->advertise_http);
        s->opt.advertise_grpc = copy(s, opt->advertise_grpc);
        s->opt.tls_cert = copy(s, opt->tls_cert);
        s->opt.tls_key = copy(s, opt->tls_key);
        s->opt.tls_ca = copy(s, opt->tls_ca);
        s->opt.ca_dir = copy(s, opt->ca_dir);
        s->opt.cfssl_url = copy(s, opt->cfssl_url);
        s->opt.cfssl_key_file = copy(s, opt->cfssl_key_file);
        s->opt.cfssl_profile = copy(s, opt->cfssl_profile);
        s->opt.core.version = BERTH_VERSION;
        s->config =
            opt->config ? (const Pb__ServerConfig *)pb_clone(&s->memory, &opt->config->base) : NULL;
        set_retention(s, opt->retention);
}

static char *address_file(const struct server *s)
{
        return s->opt.data_dir ? mem_strdup(fmt("%s/%s", s->opt.data_dir, SERVER_ADDRESS_FILE))
                               : NULL;
}

static int write_address(const struct server *s, struct err *err)
{
        _cleanup_(mem_freep) char *path = address_file(s);
        _cleanup_(str_finip) struct str text = STR_INIT;
        if (!path)
                return 0;
        if (s->http_address[0])
                str_addf(&text, "http=%s\n", s->http_address);
        if (s->grpc_address[0])
                str_addf(&text, "grpc=%s\n", s->grpc_address);
        if (file_write_atomic(path, str_c(&text), text.len, 0644, err) >= 0)
                return 0;
        /* One that a killed server left would send callers to where nobody listens; and its block
         * may be the one that lacks. */
        (void)unlink(path);
        return file_write_atomic(path, str_c(&text), text.len, 0644, err);
}

/* A disk without room is no reason not to serve: who knows the address can read, and the file
 * follows when there is room. */
static void announce_address(struct server *s)
{
        struct err err = { 0 };
        bool failed_before = !s->address_written && s->address_problem[0];
        s->address_written = write_address(s, &err) >= 0;
        pthread_mutex_lock(&s->lock);
        snprintf(s->address_problem, sizeof(s->address_problem), "%s",
                 s->address_written ? "" : err_line(&err));
        pthread_mutex_unlock(&s->lock);
        if (!s->address_written && !failed_before)
                log_error("where this server listens cannot be written down; it serves all the "
                          "same, and will try again",
                          LOG_S("http", s->http_address), LOG_S("grpc", s->grpc_address),
                          LOG_E(&err));
        else if (s->address_written && failed_before)
                log_info("where this server listens is written down",
                         LOG_S("http", s->http_address));
}

/* How long whoever waits for the end may sleep. */
static int address_wait_ms(struct server *s)
{
        if (!s->address_written && !atomic_load(&s->stopping))
                announce_address(s);
        return s->address_written ? -1 : ADDRESS_AGAIN_MS;
}

/* Of a shared store: until it is known who leads, so that whoever started this server can use it at
 * once. Not for ever: a follower answers reads without a leader as well. */
static void settle(struct server *s)
{
        int64_t until = mono_ms() + SETTLE_MS;
        atomic_store(&s->announced, true);
        while (!atomic_load(&s->settled) && !atomic_load(&s->stopping) && mono_ms() < until)
                usleep(PUSH_AGAIN_US);
}

static int start_all(struct server *s, struct err *err)
{
        int r;
        if (s->opt.data_dir && (r = dir_make(s->opt.data_dir, 0755, err)) < 0)
                return r;
        if ((r = start_thread(s, "store", store_main, &s->store_thread, &s->store_runs, err)) < 0 ||
            (r = start_thread(s, "reader", reader_main, &s->reader_thread, &s->reader_runs, err)) <
                0 ||
            (r = start_thread(s, "ring", ring_main, &s->ring_thread, &s->ring_runs, err)) < 0 ||
            (r = start_thread(s, "io", io_main, &s->io_thread, &s->io_runs, err)) < 0)
                return r;
        s->serving = true;
        settle(s);
        announce_address(s);
        log_info("serving", LOG_S("role", atomic_load(&s->leads) ? "leader" : "follower"),
                 LOG_S("http", s->http_address), LOG_S("grpc", s->grpc_address),
                 LOG_S("store", s->opt.store_url), LOG_I("head", atomic_load(&s->committed)),
                 LOG_S("version", BERTH_VERSION),
                 LOG_I("took_ms", clock_wall_ms() - s->started_ms));
        return 0;
}

int server_start(const struct server_options *opt, struct server **ret_server, struct err *err)
{
        if (!opt->data_dir && !opt->store_url)
                return err_set(err, ERR_INVALID,
                               .msg = "the server needs a data directory or a store");
        signal(SIGPIPE, SIG_IGN); /* a peer that goes away is an error code, not the end */
        signal(SIGXFSZ, SIG_IGN); /* so is a file that may not grow */
        struct server *s = mem_must(sizeof(*s));
        copy_options(s, opt);
        metrics_init(&s->metrics);
        s->started_ms = clock_wall_ms();
        atomic_store(&s->degraded_since_ms, s->started_ms);
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->changed, NULL);
        gate_init(&s->ring_gate);
        gate_init(&s->store_gate);
        s->io_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        s->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        uint32_t inputs = s->opt.max_inputs ? s->opt.max_inputs : 2048;
        s->ring_queue = queue_create(inputs, inputs / 4 + 1024, gate_open, &s->ring_gate);
        s->read_queue = queue_create(inputs, 0, gate_open, &s->ring_gate);
        s->done_queue = queue_create(64, 0, gate_open, &s->ring_gate);
        s->store_queue = queue_create(STORE_IN_FLIGHT_MAX, 0, gate_open, &s->store_gate);
        s->io_queue = queue_create(IO_QUEUE, 0, wake_io, s);
        s->reader_queue = queue_create(HISTORY_JOBS, 0, NULL, NULL);

        int r = s->io_wake_fd < 0 || s->ended_fd < 0
                    ? err_sys(err, errno, "an eventfd cannot be made")
                    : start_all(s, err);
        if (r < 0) {
                server_free(s);
                return r;
        }
        *ret_server = s;
        return 0;
}

const char *server_http_address(const struct server *s)
{
        return s->http_address;
}

const char *server_grpc_address(const struct server *s)
{
        return s->grpc_address;
}

/* ---- stop ---- */

void server_stop(struct server *s)
{
        if (atomic_exchange(&s->stopping, true))
                return;
        atomic_store(&s->give_up_ms, mono_ms() + s->opt.shutdown_ms + GRACE_MS);
        struct io_msg *msg = mem_must(sizeof(*msg));
        msg->kind = IO_STOP;
        /* called from anywhere, so without waiting for room for long: a full queue is being worked
         * on */
        if (!server_io_push(s, msg, true))
                io_msg_free(msg);
        raise_fd(s->ended_fd);
}

static void join(pthread_t thread, bool *runs)
{
        if (*runs)
                pthread_join(thread, NULL);
        *runs = false;
}

static void end_threads(struct server *s)
{
        join(s->io_thread, &s->io_runs);
        queue_close(s->io_queue); /* if io never ran */
        queue_close(s->ring_queue);
        queue_close(s->read_queue);
        gate_open(&s->ring_gate);
        join(s->ring_thread, &s->ring_runs);
        queue_close(s->reader_queue);
        join(s->reader_thread, &s->reader_runs);
        queue_close(s->store_queue);
        join(s->store_thread, &s->store_runs);
}

int server_wait(struct server *s, struct err *err)
{
        struct pollfd p = { .fd = s->ended_fd, .events = POLLIN };
        while (!atomic_load(&s->stopping))
                (void)poll(&p, 1, address_wait_ms(s));
        if (!s->waited) {
                s->waited = true;
                end_threads(s);
                _cleanup_(mem_freep) char *path = address_file(s);
                if (path)
                        (void)unlink(path);
                log_info("stopped", LOG_I("head", atomic_load(&s->committed)),
                         LOG_I("commits", counted(&s->metrics.commits)));
        }
        if (s->fatal.code != ERR_OK) {
                if (err)
                        *err = s->fatal;
                return -(int)s->fatal.code;
        }
        return 0;
}

void server_free(struct server *s)
{
        if (!s)
                return;
        if (s->serving) {
                server_stop(s);
                (void)server_wait(s, NULL);
        } else
                end_threads(s); /* a start that failed */
        if (s->core)
                core_destroy(s->core);
        queue_destroy(s->ring_queue, ring_msg_free);
        queue_destroy(s->read_queue, ring_msg_free);
        queue_destroy(s->done_queue, commit_done_free);
        queue_destroy(s->store_queue, commit_job_free);
        queue_destroy(s->io_queue, io_msg_free);
        queue_destroy(s->reader_queue, history_job_free);
        gate_fini(&s->ring_gate);
        gate_fini(&s->store_gate);
        access_table_free(atomic_exchange(&s->tokens, NULL));
        key_forget_unsaved(s);
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        if (s->io_wake_fd >= 0)
                close(s->io_wake_fd);
        if (s->ended_fd >= 0)
                close(s->ended_fd);
        arena_fini(&s->memory);
        mem_free(s);
}

/* ---- another configuration ---- */

/* fields of ServerConfig from this number on are read at the start only, but for a few */
#define CONFIG_AT_START 20

static bool needs_a_restart(const ProtobufCFieldDescriptor *f)
{
        static const char *const later[] = { "evict_per_second", "operator_labels", "policy",
                                             "retention", "tenant_policies" };
        for (size_t i = 0; i < ARRAY_LEN(later); i++)
                if (str_eq(f->name, later[i]))
                        return false;
        return f->id >= CONFIG_AT_START || str_eq(f->name, "placement");
}

static bool same_field(const ProtobufCFieldDescriptor *f, const Pb__ServerConfig *a,
                       const Pb__ServerConfig *b)
{
        const char *x = (const char *)a + f->offset, *y = (const char *)b + f->offset;
        if (f->type == PROTOBUF_C_TYPE_STRING) {
                const char *p = *(char *const *)x, *q = *(char *const *)y;
                return str_eq(p ? p : "", q ? q : "");
        }
        if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
                const ProtobufCMessage *p = *(ProtobufCMessage *const *)x,
                                       *q = *(ProtobufCMessage *const *)y;
                return p && q ? pb_equal(p, q) : p == q;
        }
        return f->type == PROTOBUF_C_TYPE_BOOL
                   ? *(const protobuf_c_boolean *)x == *(const protobuf_c_boolean *)y
                   : *(const int32_t *)x == *(const int32_t *)y;
}

static void say_what_needs_a_restart(const struct server *s, const Pb__ServerConfig *config)
{
        static const Pb__ServerConfig none = PB__SERVER_CONFIG__INIT;
        const ProtobufCMessageDescriptor *d = &pb__server_config__descriptor;
        for (unsigned i = 0; i < d->n_fields; i++)
                if (needs_a_restart(&d->fields[i]) &&
                    !same_field(&d->fields[i], s->config ? s->config : &none, config))
                        log_warn("a changed setting is read at the start only: restart the server "
                                 "to use it",
                                 LOG_S("key", d->fields[i].name));
}

void server_reconfigure(struct server *s, const Pb__ServerConfig *config)
{
        enum log_level level;
        say_what_needs_a_restart(s, config);
        struct store_keep retention[EVENT_CLASSES];
        retention_from(config, retention);
        set_retention(s, retention);
        atomic_store(&s->retention_changed, true);
        gate_open(&s->store_gate);
        if (!str_empty(config->log_level) && log_level_parse(config->log_level, &level) == 0)
                log_set_level(level);
        struct io_msg *to_io = mem_must(sizeof(*to_io));
        to_io->kind = IO_CONFIG;
        to_io->config = (const Pb__ServerConfig *)pb_clone(&to_io->memory, &config->base);
        if (!server_io_push(s, to_io, true))
                io_msg_free(to_io);
        struct ring_msg *to_ring = ring_msg_new(INPUT_CONFIG);
        to_ring->in.msg = pb_clone(&to_ring->memory, &config->base);
        while (!queue_push(s->ring_queue, to_ring)) {
                if (queue_is_closed(s->ring_queue)) {
                        ring_msg_free(to_ring);
                        return;
                }
                usleep(PUSH_AGAIN_US);
        }
}

static void reload(struct server *s)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        Pb__ServerConfig *config = NULL;
        if (s->opt.reload(s->opt.reload_ctx, &arena, &config, &err) < 0)
                log_error("the configuration is wrong; the one before it stays in force",
                          LOG_E(&err));
        else {
                server_reconfigure(s, config);
                log_info("configuration read again", LOG_I("rules", config->n_rules),
                         LOG_I("webhooks", config->n_webhooks));
        }
        arena_fini(&arena);
}

/* ---- the verb ---- */

/* Each agent and each reader of events is a connection. */
static void raise_file_limit(void)
{
        struct rlimit rl;
        if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < rl.rlim_max) {
                rl.rlim_cur = rl.rlim_max < 1048576 ? rl.rlim_max : 1048576;
                (void)setrlimit(RLIMIT_NOFILE, &rl);
        }
}

static void wait_for_signal(struct server *s, int signal_fd)
{
        struct pollfd p[2] = { { .fd = signal_fd, .events = POLLIN },
                               { .fd = s->ended_fd, .events = POLLIN } };
        while (!atomic_load(&s->stopping)) {
                if (poll(p, 2, address_wait_ms(s)) < 0)
                        continue;
                struct signalfd_siginfo info;
                if ((p[0].revents & POLLIN) &&
                    read(signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                        if (info.ssi_signo == SIGHUP) {
                                reload(s);
                                continue;
                        }
                        log_info("stopping", LOG_S("signal", strsignal((int)info.ssi_signo)));
                        server_stop(s);
                }
        }
}

int server_run(const struct server_options *opt, struct err *err)
{
        if (opt->set_log)
                log_setup(opt->log_level, opt->log_format, 2);
        raise_file_limit();
        sigset_t set, old;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        if (opt->reload) /* else it ends the process, as for any program whose terminal goes */
                sigaddset(&set, SIGHUP);
        /* before the threads exist, so that they inherit it */
        pthread_sigmask(SIG_BLOCK, &set, &old);
        _cleanup_(fd_closep) int signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        struct server *s = NULL;
        int r = signal_fd < 0 ? err_sys(err, errno, "signals cannot be waited for")
                              : server_start(opt, &s, err);
        if (r >= 0) {
                wait_for_signal(s, signal_fd);
                /* a second signal ends the process at once, as people expect of Ctrl-C */
                pthread_sigmask(SIG_SETMASK, &old, NULL);
                r = server_wait(s, err);
                server_free(s);
        } else
                pthread_sigmask(SIG_SETMASK, &old, NULL);
        return r;
}
