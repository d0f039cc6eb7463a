/* cli/client.c: see client.h. One event base and one channel per process; a call turns the loop
 * until it has ended. */
#include "cli/client.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/profile.h"
#include "model/pb.h"
#include "net/grpc.h"
#include <event2/event.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* a page of a list can be large; nobody else is hurt by what we take */
#define MESSAGE_MAX (64 * 1024 * 1024)

struct client {
        struct event_base *base;
        struct grpc_channel *channel;
        struct tls *tls;
        const char *address, *source;
};

/* ---- where the server is ---- */

const char *client_address_file(struct arena *arena, const char *data_dir)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        const char *path = arena_printf(arena, "%s/server.address", data_dir);
        if (file_read(path, 4096, &text, NULL) < 0)
                return NULL;
        for (const char *line = str_c(&text); *line;) {
                size_t len = strcspn(line, "\n");
                if (len > 5 && strncmp(line, "grpc=", 5) == 0)
                        return arena_strndup(arena, line + 5, len - 5);
                line += len + (line[len] == '\n');
        }
        return NULL;
}

/* A host without a port means the usual port; there may be several, separated by commas. */
static const char *with_ports(struct arena *arena, const char *addresses)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        for (const char *at = addresses; *at;) {
                size_t len = strcspn(at, ",");
                const char *one = arena_strndup(arena, at, len), *colon = strrchr(one, ':'),
                           *bracket = strrchr(one, ']');
                str_addf(&out, "%s%s%s", out.len ? "," : "", one,
                         !colon || (bracket && colon < bracket) ? ":8085" : "");
                at += len + (at[len] == ',');
        }
        return arena_strdup(arena, str_c(&out));
}

/* Below the directory that the user stands in: only what is theirs counts. */
static const char *address_here(struct cli *cli, const char **ret_source)
{
        const char *why = NULL;
        *ret_source = "./.berth/server.address";
        if (profile_trusts(&cli->arena, "./.berth", "server.address", &why))
                return client_address_file(&cli->arena, "./.berth");
        if (why) /* said when a server is called: see client_open() */
                cli->distrust = why;
        return NULL;
}

static const char *address_of(struct cli *cli, bool contexts, const char **ret_source)
{
        const char *source = NULL, *address = NULL, *data = getenv("BERTH_DATA"),
                   *env = getenv("BERTH_SERVER");
        Pb__Profile *profile = NULL;
        struct err ignored = { 0 };
        cli->context = NULL;
        cli->distrust = NULL;
        if (!str_empty(cli->common.server)) {
                address = cli->common.server;
                source = str_eq(address, env) ? "BERTH_SERVER" : "--server";
        } else if (!str_empty(data)) {
                address = client_address_file(&cli->arena, data);
                source = arena_printf(&cli->arena, "%s/server.address", data);
        } else {
                if (contexts && profile_read(&cli->arena, &profile, &ignored) < 0)
                        cli->distrust = arena_strdup(&cli->arena, err_line(&ignored));
                cli->context = profile ? profile_find(profile, NULL) : NULL;
                if (cli->context) {
                        address = cli->context->server;
                        source = arena_printf(&cli->arena, "context %s", cli->context->name);
                } else if (!cli->distrust)
                        address = address_here(cli, &source);
        }
        if (!address) {
                address = SERVER_DEFAULT;
                source = "the default";
        }
        address = with_ports(&cli->arena, address);
        if (ret_source)
                *ret_source = source;
        return address;
}

const char *client_address(struct cli *cli, const char **ret_source)
{
        return address_of(cli, true, ret_source);
}

const char *client_address_of_agent(struct cli *cli)
{
        return address_of(cli, false, NULL);
}

static int open_tls(struct cli *cli, struct client *c, struct err *err)
{
        const struct common_options *o = &cli->common;
        const Pb__ProfileContext *x = cli->context;
        struct tls_options options = { .ca_file = o->tls_ca,
                                       .cert_file = o->tls_cert,
                                       .key_file = o->tls_key };
        if (x && !o->tls_ca)
                options.ca_file = str_empty(x->tls_ca) ? NULL : x->tls_ca;
        if (x && !o->tls_cert && !str_empty(x->tls_cert)) {
                options.cert_file = x->tls_cert;
                options.key_file = str_empty(x->tls_key) ? NULL : x->tls_key;
        }
        if (!options.ca_file && !options.cert_file && !options.key_file)
                return 0;
        return tls_client_create(&options, &c->tls, err);
}

static int read_token(struct cli *cli, const char *path, const char **ret, struct err *err)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        int r = file_read(path, 4096, &text, err);
        if (r < 0)
                return r;
        *ret = arena_strndup(&cli->arena, str_c(&text), strcspn(str_c(&text), " \t\r\n"));
        return 0;
}

int client_token(struct cli *cli, const char **ret, struct err *err)
{
        const struct common_options *o = &cli->common;
        struct err why = { 0 };
        *ret = str_empty(o->token) ? NULL : o->token;
        if (*ret || str_empty(o->token_file))
                return 0;
        if (read_token(cli, o->token_file, ret, &why) < 0)
                return err_set(err, why.code,
                               .msg = fmt("the token's file %s cannot be read", o->token_file),
                               .detail = err_line(&why));
        return 0;
}

/* The first admin's token, if we may read it, beside the address that we use. */
static const char *token_beside(struct cli *cli, const char *source)
{
        const char *end = strrchr(source, '/'), *token = NULL;
        if (end && str_eq(end, "/server.address"))
                (void)read_token(
                    cli, arena_printf(&cli->arena, "%.*s/admin.token", (int)(end - source), source),
                    &token, NULL);
        return token;
}

int client_open(struct cli *cli, struct event_base **ret_base, struct grpc_channel **ret_channel,
                struct err *err)
{
        if (!cli->client) {
                struct client *c = cli->client = mem_must(sizeof(*c));
                c->address = client_address(cli, &c->source);
                c->base = event_base_new();
                const char *token = NULL;
                int r =
                    cli->distrust
                        ? err_set(err, ERR_DENIED, .msg = "whose server this is cannot be told",
                                  .detail = cli->distrust,
                                  .hint = "say which one: --server ADDRESS, or berth login ADDRESS")
                    : !c->base ? err_set(err, ERR_NOMEM, .msg = "cannot make an event loop")
                               : open_tls(cli, c, err);
                if (r == 0)
                        r = client_token(cli, &token, err);
                if (r == 0 && !token && cli->context)
                        token = str_empty(cli->context->token) ? NULL : cli->context->token;
                else if (r == 0 && !token)
                        token = token_beside(cli, c->source);
                if (r == 0) {
                        struct grpc_channel_options options = { .tls = c->tls,
                                                                .token = token,
                                                                .to_server = true,
                                                                .max_message_bytes = MESSAGE_MAX,
                                                                .connect_timeout_ms =
                                                                    cli->quiet ? 1000 : 0 };
                        r = grpc_channel_create(c->base, c->address, &options, &c->channel, err);
                        if (r < 0 && err->code == ERR_INVALID)
                                err_prefix(err, fmt("server address from %s", c->source));
                }
                if (r < 0) {
                        client_close(cli);
                        return r;
                }
        }
        *ret_base = cli->client->base;
        *ret_channel = cli->client->channel;
        return 0;
}

void client_close(struct cli *cli)
{
        struct client *c = cli->client;
        if (!c)
                return;
        grpc_channel_destroy(c->channel);
        tls_unref(c->tls);
        if (c->base)
                event_base_free(c->base);
        mem_free(c);
        cli->client = NULL;
}

/* ---- what went wrong ---- */

static bool take_error(struct cli *cli, const void *data, size_t len, int grpc_status,
                       struct err *err)
{
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        bool taken = pb_unpack(&pb__error__descriptor, data, len, &arena, &m, NULL) == 0;
        if (taken) {
                const Pb__Error *e = (const Pb__Error *)m;
                enum err_code code = err_code_from_name(e->code);
                if (code == ERR_OK)
                        code = err_from_grpc_status(grpc_status);
                err_set(err, code, .msg = e->message, .detail = e->detail, .hint = e->hint,
                        .path = e->path, .retry_after_ms = e->retry_after_ms);
                str_empty(e->request_id)
                    ? (void)(cli->request_id[0] = '\0')
                    : (void)__builtin_snprintf(cli->request_id, sizeof(cli->request_id), "%s",
                                               e->request_id);
        }
        arena_fini(&arena);
        return taken;
}

bool client_may_pass(const struct err *err)
{
        return err->code == ERR_UNAVAILABLE || err->code == ERR_LIMIT || err->code == ERR_CANCELLED;
}

/* What to say of a change whose answer did not come. NULL: the call changes nothing. */
static const char *unsure_hint(const char *method)
{
        static const char *const reads[] = { "Get", "List", "Watch", "Explain", "Plan", "Logs" };
        for (size_t i = 0; i < ARRAY_LEN(reads); i++)
                if (str_starts(method, reads[i]))
                        return NULL;
        if (str_starts(method, "Create") || str_starts(method, "Exec"))
                return "what was sent may have happened: look before you repeat it";
        return "what was sent may have happened; it can be sent again safely";
}

static int cannot_reach(struct cli *cli, const char *method, const char *message, struct err *err)
{
        const struct client *c = cli->client;
        bool nobody = str_starts(message, "cannot connect"),
             broke = !nobody && strstr(message, "connection") != NULL;
        bool hangs_up = nobody && (strstr(message, "the connection was lost") ||
                                   strstr(message, "the peer closed the connection"));
        const char *hint =
            "start one with ./run or `berth dev`, or set BERTH_SERVER=host:port (its gRPC address)";
        if (hangs_up && !cli->common.tls_ca)
                hint = "somebody is there and hangs up: a server with TLS wants --tls-ca FILE (or "
                       "BERTH_TLS_CA)";
        else if (broke) /* there was a connection, so that the request may have got through */
                hint = unsure_hint(method) ? unsure_hint(method)
                                           : "it was there a moment ago: try again";
        return err_set(err, ERR_UNAVAILABLE,
                       .msg = broke ? fmt("the server at %s went away", c->address)
                                    : fmt("cannot reach the server at %s", c->address),
                       .detail =
                           fmt("%s%saddress from %s", message, *message ? "; " : "", c->source),
                       .hint = hint);
}

int client_failure(struct cli *cli, struct grpc_call *call, const char *method, int grpc_status,
                   struct err *err)
{
        size_t len = 0;
        const char *packed = grpc_call_trailer(call, GRPC_ERROR_TRAILER, &len),
                   *message = grpc_call_message(call);
        const struct client *c = cli->client;
        struct err ignored;
        if (!err)
                err = &ignored;
        if (packed && take_error(cli, packed, len, grpc_status, err))
                return -(int)err->code;
        if (grpc_status == GRPC_UNAVAILABLE)
                return cannot_reach(cli, method, message ? message : "", err);
        if (grpc_status == GRPC_DEADLINE_EXCEEDED)
                return err_set(err, ERR_DEADLINE,
                               .msg = fmt("the server at %s did not answer in time", c->address),
                               .detail = message,
                               .hint = unsure_hint(method) ? unsure_hint(method) : "try again");
        if (grpc_status == GRPC_UNIMPLEMENTED)
                return err_set(err, ERR_UNSUPPORTED,
                               .msg = fmt("the server at %s does not know this call", c->address),
                               .detail = message,
                               .hint = "is it a berth server, and not older than this command?");
        return err_set(
            err, err_from_grpc_status(grpc_status),
            .msg = str_empty(message)
                       ? fmt("the call failed: %s", grpc_status_name((enum grpc_status)grpc_status))
                       : message);
}

/* ---- calls ---- */

struct pending {
        struct cli *cli;
        struct grpc_call *call; /* NULL: ended */
        const char *method;
        struct err *err;
        struct str message; /* unary: the reply; stream: the message that waits to be taken */
        int result;         /* < 0: failed */
        bool ended, cancelled, interrupted;
        bool has_message, ticked;
};

static void end_call(struct pending *p, int result)
{
        if (p->cancelled || p->ended)
                return;
        p->result = result;
        p->cancelled = true;
        grpc_call_cancel(p->call);
}

/* Messages are not acted on here but by whoever turns the loop, so that acting on one may be
 * another call. The stream stands still until then. */
static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct pending *p = grpc_call_data(call);
        str_clear(&p->message);
        str_add(&p->message, data, len);
        p->has_message = true;
        grpc_call_pause(call);
}

/* The one message of a unary call. */
static void on_reply(struct grpc_call *call, const void *data, size_t len)
{
        struct pending *p = grpc_call_data(call);
        str_clear(&p->message);
        str_add(&p->message, data, len);
        p->has_message = true;
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct pending *p = grpc_call_data(call);
        p->ended = true;
        p->call = NULL;
        if (!p->cancelled && status != GRPC_OK)
                p->result = client_failure(p->cli, call, p->method, status, p->err);
}

static void on_tick(evutil_socket_t fd _unused_, short what _unused_, void *ctx)
{
        ((struct pending *)ctx)->ticked = true;
}

static void on_interrupt(evutil_socket_t fd _unused_, short what _unused_, void *ctx)
{
        struct pending *p = ctx;
        p->interrupted = true;
        end_call(p, CLIENT_INTERRUPTED);
}

/* `berth events --follow | head -1`: nothing may be written for hours, so the closed pipe must be
 * noticed without writing. */
static void on_output(evutil_socket_t fd, short what _unused_, void *ctx)
{
        struct pollfd p = { .fd = fd };
        if (poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP)))
                on_interrupt(fd, 0, ctx);
}

static struct event *watch_output(struct cli *cli, struct event_base *base, struct pending *p)
{
        struct stat st;
        if (fstat(cli->out.fd, &st) < 0 || !S_ISFIFO(st.st_mode))
                return NULL;
        struct event *e = event_new(base, cli->out.fd, EV_READ | EV_PERSIST, on_output, p);
        event_add(e, NULL);
        return e;
}

static const struct grpc_callbacks unary = { .on_message = on_reply, .on_close = on_close };
static const struct grpc_callbacks streaming = { .on_message = on_message, .on_close = on_close };

static int start(struct cli *cli, struct pending *p, const struct grpc_callbacks *callbacks,
                 const char *method, const void *request, int64_t deadline_ms,
                 struct event_base **ret_base)
{
        struct grpc_channel *channel = NULL;
        int r = client_open(cli, ret_base, &channel, p->err);
        if (r < 0)
                return r;
        _cleanup_(str_finip) struct str packed = STR_INIT;
        pb_pack(&packed, request);
        p->method = method;
        p->call = grpc_channel_call(channel, fmt("/berth.v1.Control/%s", method),
                                    &(struct grpc_call_options){ .deadline_ms = deadline_ms },
                                    callbacks, p);
        if (grpc_call_send(p->call, str_c(&packed), packed.len) == -ERR_LIMIT)
                end_call(p, err_set(p->err, ERR_LIMIT, .msg = "what you send is too large",
                                    .detail = fmt("%zu bytes", packed.len)));
        else
                grpc_call_half_close(p->call);
        return 0;
}

static int unpack(const struct pending *p, const ProtobufCMessageDescriptor *type,
                  struct arena *arena, ProtobufCMessage **ret)
{
        int r = pb_unpack(type, str_c(&p->message), p->message.len, arena, ret, p->err);
        return r < 0 ? err_prefix(p->err, "the server's answer does not make sense") : 0;
}

static void finish(struct pending *p, struct client_request *q, struct arena *arena)
{
        ProtobufCMessage *reply = NULL;
        if (p->result == 0 && !p->has_message)
                err_set(p->err, ERR_INTERNAL, .msg = "the server gave no answer");
        else if (p->result == 0)
                (void)unpack(p, q->reply_type, arena, &reply);
        q->reply = reply;
        str_fini(&p->message);
        *p = (struct pending){ 0 };
}

/* All of them are begun at once; those for which the server allows no stream yet wait in the
 * channel. */
void client_call_many(struct cli *cli, struct arena *arena, struct client_request *requests,
                      size_t n)
{
        struct pending *calls = arena_new_n(arena, struct pending, n);
        struct event_base *base = NULL;

        must(n <= CALLS_AT_ONCE_MAX, "a channel lets no more calls wait");
        for (size_t i = 0; i < n; i++) {
                struct client_request *q = &requests[i];
                q->reply = NULL;
                q->err = (struct err){ 0 };
                calls[i] = (struct pending){ .cli = cli, .err = &q->err };
                int r = start(cli, &calls[i], &unary, q->method, q->request,
                              cli->quiet ? 2000 : CALL_TIMEOUT_MS, &base);
                if (r < 0) { /* there is no call */
                        calls[i].result = r;
                        calls[i].ended = true;
                }
        }
        for (size_t i = 0; i < n; i++) {
                while (!calls[i].ended && event_base_loop(base, EVLOOP_ONCE) == 0)
                        ;
                finish(&calls[i], &requests[i], arena);
        }
}

void *client_call(struct cli *cli, struct arena *arena, const char *method, const void *request,
                  const ProtobufCMessageDescriptor *reply_type, struct err *err)
{
        struct client_request q = { .method = method,
                                    .request = request,
                                    .reply_type = reply_type };
        client_call_many(cli, arena, &q, 1);
        if (!q.reply && err)
                *err = q.err;
        return q.reply;
}

/* Gives fn what has come: a message, or NULL after a silence. */
static void deliver(struct pending *p, const ProtobufCMessageDescriptor *type, struct arena *arena,
                    client_message_fn fn, void *ctx)
{
        ProtobufCMessage *m = NULL;
        int r = 0;
        if (p->has_message) {
                r = unpack(p, type, arena, &m);
                p->has_message = false;
                if (r == 0)
                        r = fn(ctx, m, p->err);
                arena_reset(arena);
        } else if (p->ticked) {
                r = fn(ctx, NULL, p->err);
        }
        p->ticked = false;
        if (r != 0 && p->ended && !p->cancelled) {
                p->result = r; /* the stream ended while fn was busy; what fn says counts */
                p->cancelled = true;
        } else if (r != 0) {
                end_call(p, r);
        }
}

int client_stream(struct cli *cli, const char *method, const void *request,
                  const ProtobufCMessageDescriptor *reply_type, int64_t tick_ms,
                  client_message_fn fn, void *ctx, struct err *err)
{
        struct arena arena = ARENA_INIT;
        struct err own = { 0 };
        struct pending p = { .cli = cli, .err = err ? err : &own };
        struct event_base *base = NULL;
        struct timeval tick_time = { .tv_sec = tick_ms / 1000, .tv_usec = tick_ms % 1000 * 1000 };
        int r = start(cli, &p, &streaming, method, request, 0, &base);
        if (r < 0)
                return r;
        struct event *interrupt = evsignal_new(base, SIGINT, on_interrupt, &p),
                     *terminate = evsignal_new(base, SIGTERM, on_interrupt, &p);
        struct event *tick = event_new(base, -1, EV_PERSIST, on_tick, &p),
                     *output = watch_output(cli, base, &p);
        event_add(interrupt, NULL);
        event_add(terminate, NULL);
        if (tick_ms > 0)
                event_add(tick, &tick_time);
        while (!p.ended && event_base_loop(base, EVLOOP_ONCE) == 0) {
                if ((p.has_message || (p.ticked && !p.ended)) && !p.cancelled)
                        deliver(&p, reply_type, &arena, fn, ctx);
                if (p.call)
                        grpc_call_resume(p.call);
        }
        event_free(tick);
        if (output)
                event_free(output);
        event_free(interrupt);
        event_free(terminate);
        arena_fini(&arena);
        str_fini(&p.message);
        return p.result;
}
