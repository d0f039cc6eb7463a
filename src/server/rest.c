/* server/rest.c: the HTTP door. One route per row of the ops table, below / and below /v1; all of
 * them end in serve(). */
#include "base/log.h"
#include "base/mem.h"
#include "model/json.h"
#include "net/http.h"
#include "net/tls.h"
#include "server/access.h"
#include "server/forward.h"
#include "server/io.h"
#include "server/key.h"
#include "server/persys.h"
#include "server/reach.h"
#include "server/reader.h"
#include "server/web.h"
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

/* ---- what needs nobody else ---- */

static void add_field(struct str *out, const char *name, const char *text)
{
        str_addf(out, ",\"%s\":", name);
        json_write_string(out, text, strlen(text));
}

/* Who decides: this server, another one, or nobody. */
static void reply_role(struct server *s, struct str *out)
{
        struct leader l;
        bool leads = atomic_load(&s->leads);
        char trouble[512];
        str_addf(out, ",\"role\":\"%s\"", leads ? "leader" : "follower");
        if (key_trouble(s, trouble, sizeof(trouble))[0])
                add_field(out, "cannot_lead", trouble);
        server_leader(s, &l);
        if (leads || !l.name[0])
                return;
        uint64_t head = atomic_load(&s->store_head), have = atomic_load(&s->committed);
        add_field(out, l.known ? "leader" : "last_leader", l.name);
        add_field(out, "leader_http", l.known ? l.http_address : "");
        add_field(out, "leader_grpc", l.known ? l.grpc_address : "");
        str_addf(out, ",\"lag_events\":%llu", (unsigned long long)(head > have ? head - have : 0));
}

/* Always 200: the process lives and answers. What is wrong is in the body (C35). */
static void reply_health(struct io *io, struct http_request *req)
{
        struct server *s = io->s;
        struct str out = STR_INIT;
        char when[TIME_TEXT_LEN];
        char reason[256];
        bool degraded = server_is_degraded(s, reason);
        pthread_mutex_lock(&s->lock);
        bool held = s->stats.braking, paced = s->stats.pacing;
        pthread_mutex_unlock(&s->lock);
        str_addf(&out, "{\"status\":\"%s\",\"mode\":\"%s\"", degraded ? "degraded" : "ok",
                 degraded ? "degraded" : "normal");
        if (degraded) {
                str_adds(&out, ",\"reason\":");
                json_write_string(&out, reason, strlen(reason));
        }
        pthread_mutex_lock(&s->lock);
        if (s->address_problem[0]) {
                str_adds(&out, ",\"warning\":");
                json_write_string(&out, s->address_problem, strlen(s->address_problem));
        }
        pthread_mutex_unlock(&s->lock);
        reply_role(s, &out);
        if (held || paced) /* C11: too many nodes are silent, or a part of a zone */
                str_addf(&out, ",\"eviction\":\"%s\"", held ? "held" : "paced");
        str_addf(&out, ",\"mode_changed_at\":\"%s\",\"head\":%llu,\"version\":\"%s\"}\n",
                 time_format(when, atomic_load(&s->degraded_since_ms)),
                 (unsigned long long)atomic_load(&s->committed), BERTH_VERSION);
        http_reply_json(req, 200, str_c(&out), out.len);
        str_fini(&out);
}

static void reply_metrics(struct io *io, struct http_request *req)
{
        struct server *s = io->s;
        struct core_stats stats;
        struct agent_certificates certs;
        sessions_certificates(io->sessions, clock_wall_ms(), &certs);
        pthread_mutex_lock(&s->lock);
        stats = s->stats;
        pthread_mutex_unlock(&s->lock);
        struct metrics_now now = {
                .core = &stats,
                .head = atomic_load(&s->committed),
                .degraded = server_is_degraded(s, NULL),
                .ring_queue = queue_len(s->ring_queue),
                .io_queue = queue_len(s->io_queue),
                .reader_queue = s->n_reading,
                .calls = calls_len(io->calls),
                .agents = sessions_len(io->sessions),
                .subscribers = events_subscribers(io->events),
                .relays = relays_len(io->relays),
                .op_name = op_name,
                .grpc_name = op_grpc_path,
                .version = BERTH_VERSION,
                .start_time_seconds = (double)s->started_ms / 1000,
                .tls = io->tls,
                .leads = atomic_load(&s->leads),
                .store_head = atomic_load(&s->store_head),
                .forwarded = forward_count(io->forward),
                .agent_certs = &certs,
        };
        struct str out = STR_INIT;
        metrics_render(&s->metrics, &now, &out);
        http_reply(req, 200,
                   (struct http_field[]){
                       HTTP_FIELD("Content-Type", "text/plain; version=0.0.4; charset=utf-8"),
                       HTTP_FIELD_END },
                   str_c(&out), out.len);
        str_fini(&out);
}

static void reply_openapi(struct io *io, struct http_request *req)
{
        if (io->openapi.len == 0)
                ops_openapi(&io->openapi, BERTH_VERSION);
        http_reply(req, 200,
                   (struct http_field[]){ HTTP_JSON, HTTP_FIELD("Access-Control-Allow-Origin", "*"),
                                          HTTP_FIELD_END },
                   str_c(&io->openapi), io->openapi.len);
}

/* ---- event streams ---- */

static void on_stream_close(struct http_request *req, void *ctx)
{
        struct io *io = ctx;
        events_unsubscribe(io->events, (uint64_t)(uintptr_t)http_data(req));
}

static void watch(struct io *io, struct http_request *req, const struct caller *who,
                  const Pb__ListEventsRequest *want)
{
        struct arena arena = ARENA_INIT;
        struct event_filter filter;
        struct err err = { 0 };
        if (event_filter_parse(want, &arena, &filter, &err) < 0 ||
            events_have_room(io->events, who, &err) < 0) {
                http_reply_err(req, 0, &err);
        } else {
                http_sse_start(req, (struct http_field[]){ HTTP_FIELD("X-Accel-Buffering", "no"),
                                                           HTTP_FIELD_END });
                http_on_close(req, on_stream_close, io);
                struct event_subscription sub = { .sink.http = req,
                                                  .filter = &filter,
                                                  .since = want->since,
                                                  .request_id = http_request_id(req),
                                                  .who = who };
                http_set_data(req, (void *)(uintptr_t)events_subscribe(io->events, &sub, &err));
        }
        arena_fini(&arena);
}

/* ---- calls ---- */

static const char *text_param(const void *ctx, const char *name)
{
        return http_param(ctx, name);
}
static const char *text_query_name(const void *ctx, size_t i)
{
        return http_query_name(ctx, i);
}
static const char *text_query_value(const void *ctx, size_t i)
{
        return http_query_value(ctx, i);
}

static int decode(const struct door *door, struct http_request *req, struct arena *arena,
                  ProtobufCMessage **ret_request, bool *ret_pretty, struct err *err)
{
        struct op_text t = {
                .param = text_param,
                .n_query = http_query_count(req),
                .query_name = text_query_name,
                .query_value = text_query_value,
                .ctx = req,
                .max_body_bytes = door->io->s->opt.max_body_bytes,
                .if_match = http_header(req, "If-Match"),
                .if_none_match = http_header(req, "If-None-Match"),
                .last_event_id = http_header(req, "Last-Event-ID"),
        };
        t.body = http_body(req, &t.body_len);
        return op_decode_text(door->op, &t, arena, ret_request, ret_pretty, err);
}

/* A page of another site must not be able to use a browser that happens to reach this server. */
static bool is_foreign_write(const struct http_request *req)
{
        const char *origin = http_header(req, "Origin"), *host = http_header(req, "Host");
        if (!origin || strcmp(http_method(req), "GET") == 0 ||
            strcmp(http_method(req), "HEAD") == 0)
                return false;
        const char *p = strstr(origin, "://");
        return !p || !host || strcmp(p + 3, host) != 0;
}

static void on_call_close(struct http_request *req, void *ctx)
{
        struct call *call = ctx;
        (void)req;
        call->http = NULL;
        call_drop(call);
}

/* ?consistent, ?consistent=true, ?consistent=1 */
static bool is_true(const char *value)
{
        return value && !str_eq(value, "false") && !str_eq(value, "0");
}

/* Agents are connected to the leader only, so are their units' outputs. */
static void redirect_logs(struct io *io, struct http_request *req, const Pb__LogsRequest *want)
{
        struct leader l;
        struct err err = { 0 };
        io_not_leading(io, &err);
        server_leader(io->s, &l);
        if (!l.known || l.is_self || !l.http_address[0]) {
                http_reply_err(req, 0, &err);
                return;
        }
        const char *where = fmt("%s://%s/v1/workloads/%s/logs?follow=%s&tail=%lld",
                                io->tls ? "https" : "http", l.http_address, want->id,
                                want->follow ? "true" : "false", (long long)want->tail_lines);
        const char *text = "the leader has the output of workloads: see Location\n";
        http_reply(req, 307,
                   (struct http_field[]){ HTTP_FIELD("Location", where),
                                          HTTP_FIELD("Content-Type", "text/plain; charset=utf-8"),
                                          HTTP_FIELD_END },
                   text, strlen(text));
}

static void begin_call(const struct door *door, struct http_request *req, const struct caller *who,
                       struct ring_msg *msg, const ProtobufCMessage *request, bool pretty)
{
        struct err err = { 0 };
        struct call *call = call_new(door->io->calls, door->op, &err);
        if (!call) {
                ring_msg_free(msg);
                http_reply_err(req, 0, &err);
                return;
        }
        call->http = req;
        call->pretty = pretty;
        call->consistent = is_true(http_query(req, "consistent"));
        strncpy(call->request_id, http_request_id(req), sizeof(call->request_id) - 1);
        call_set_caller(call, who);
        http_on_close(req, on_call_close, call);
        call->msg = msg;
        msg->in.kind = door->op->input;
        msg->in.msg = request;
        if (door->op->kind == OP_EVENTS)
                call_events(call, (const Pb__ListEventsRequest *)request);
        else
                call_send(call);
}

/* The token that this call came with, as a cookie that scripts cannot read and other sites' pages
 * cannot make the browser send. token "": none any more. */
static void reply_cookie(struct io *io, struct http_request *req, const char *token)
{
        const char *cookie = fmt(TOKEN_COOKIE "%s; Path=/; HttpOnly; SameSite=Strict%s%s", token,
                                 io->tls ? "; Secure" : "", token[0] ? "" : "; Max-Age=0");
        http_reply(req, 200,
                   (struct http_field[]){ HTTP_FIELD("Set-Cookie", cookie),
                                          HTTP_FIELD("Content-Type", "application/json"),
                                          HTTP_FIELD("Cache-Control", "no-store"), HTTP_FIELD_END },
                   "{}\n", 3);
}

static void serve(struct http_request *req, void *ctx)
{
        const struct door *door = ctx;
        struct io *io = door->io;
        struct err err = { 0 };
        if (is_foreign_write(req)) {
                err_set(&err, ERR_DENIED,
                        .msg = "a page of another origin may not change anything here",
                        .detail = http_header(req, "Origin"));
                http_reply_err(req, 0, &err);
                return;
        }
        if (!reach_answers(io->reach, http_header(req, "Host"))) {
                err_set(&err, ERR_DENIED, .msg = "this server is not known by that name",
                        .detail =
                            fmt("the request is for the host \"%.100s\"", http_header(req, "Host")),
                        .hint = "use its address, or a name of its certificate; others are listed "
                                "in allowed_hosts of its configuration");
                http_reply_err(req, 0, &err);
                return;
        }
        struct credentials shown = access_of_http(req);
        struct caller who;
        if (access_check(io->access, door->op, &shown, &who, &err) < 0) {
                http_reply_err(req, 0, &err);
                return;
        }
        if (door->op->kind == OP_PERSYS) {
                persys_http(door, req);
                return;
        }
        if (io_has_no_room(io, door->op, &err) < 0) {
                http_reply_err(req, 0, &err);
                return;
        }
        struct ring_msg *msg = ring_msg_new(INPUT_TICK);
        ProtobufCMessage *request = NULL;
        bool pretty = false;
        if (decode(door, req, &msg->memory, &request, &pretty, &err) < 0) {
                http_reply_err(req, 0, &err);
                ring_msg_free(msg);
                return;
        }
        switch (door->op->kind) {
        case OP_CORE:
        case OP_CLUSTER:
        case OP_EVENTS:
        case OP_PLAN:
        case OP_EXPLAIN:
        case OP_TOKEN:
        case OP_TRUST:
        case OP_JOIN:
        case OP_RENEW:
                begin_call(door, req, &who, msg, request, pretty);
                return;
        case OP_WATCH:
                access_guard_http(io->access, req, &shown);
                watch(io, req, &who, (Pb__ListEventsRequest *)request);
                break;
        case OP_LOGS:
                if (!io->leads) {
                        redirect_logs(io, req, (Pb__LogsRequest *)request);
                        break;
                }
                access_guard_http(io->access, req, &shown);
                relays_http_logs(io->relays, door->op, req, &who, (Pb__LogsRequest *)request);
                break;
        case OP_LOGIN: {
                char token[256];
                reply_cookie(io, req, access_token_of(&shown, token));
                OPENSSL_cleanse(token, sizeof(token));
                break;
        }
        case OP_LOGOUT:
                reply_cookie(io, req, "");
                break;
        case OP_HEALTH:
                reply_health(io, req);
                break;
        case OP_METRICS:
                reply_metrics(io, req);
                break;
        case OP_OPENAPI:
                reply_openapi(io, req);
                break;
        case OP_PAGE:
                web_page(req);
                break;
        case OP_EXEC:
        case OP_AGENT:
        case OP_PERSYS:
        case OP_REFLECTION:
                err_set(&err, ERR_UNSUPPORTED, .msg = "only served over gRPC");
                http_reply_err(req, 0, &err);
                break;
        }
        ring_msg_free(msg);
}

static void on_done(const struct http_request *req, const char *route, int status, int64_t took_us,
                    void *ctx)
{
        struct io *io = ctx;
        const struct op *op = op_by_route(http_method(req), route);
        metrics_http(&io->s->metrics, op ? op_index(op) : METRICS_OPS - 1, status);
        if (!op || (op->kind != OP_WATCH && op->kind != OP_LOGS))
                histogram_add(&io->s->metrics.request, took_us * 1000);
        log_debug("http", LOG_S("method", http_method(req)), LOG_S("path", http_path(req)),
                  LOG_S("op", op ? op->name : ""), LOG_I("status", status), LOG_I("us", took_us),
                  LOG_S("peer", http_peer(req)), LOG_S("request_id", http_request_id(req)));
}

static int add_routes(struct io *io, struct err *err)
{
        for (size_t i = 0; i < n_ops; i++) {
                if (!ops[i].path)
                        continue;
                int r = http_server_add(io->http, ops[i].method, ops[i].path, serve, &io->doors[i],
                                        err);
                const char *second = op_second_path(&ops[i]);
                if (r < 0 || (second && (r = http_server_add(io->http, ops[i].method, second, serve,
                                                             &io->doors[i], err)) < 0))
                        return r;
        }
        return 0;
}

int rest_open(struct io *io, struct err *err)
{
        const struct server_options *opt = &io->s->opt;
        if (!opt->http_address)
                return 0;
        struct http_server_options o = {
                .address = opt->http_address,
                .tls = io->tls,
                .max_body_bytes = opt->max_body_bytes,
                .max_queued_bytes = 4 * 1024 * 1024,
                .max_connections = opt->max_connections,
                .max_per_peer = (opt->max_connections + 1) / 2,
                .on_done = on_done,
                .ctx = io,
        };
        int r = http_server_create(io->base, &o, &io->http, err);
        if (r < 0 || (r = web_open(io->http, err)) < 0)
                return r;
        return add_routes(io, err);
}
