/* server/persys.c: see persys.h. */
#include "server/persys.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/redact.h"
#include "net/http.h"
#include "server/access.h"
#include "server/io.h"
#include <string.h>

static struct persys *persys_new(const struct door *door)
{
        struct persys *p = mem_must(sizeof(*p));
        p->door = door;
        p->io = door->io;
        p->cluster = p->peer = "";
        return p;
}

void persys_free(struct persys *p)
{
        calls_forget(p->io->calls, p->ticket);
        arena_fini(&p->memory);
        mem_free(p);
}

/* The caller has gone. */
static void drop(struct persys *p)
{
        p->http = NULL;
        p->grpc = NULL;
        if (!p->pushing)
                persys_free(p);
}

/* ---- to the core and back ---- */

static void on_reply(void *ctx, const struct reply *reply)
{
        struct persys *p = ctx;
        p->ticket = 0;
        p->then(p, reply);
}

void persys_ask(struct persys *p, enum input_kind kind, const ProtobufCMessage *msg,
                void (*then)(struct persys *p, const struct reply *reply))
{
        struct err err = { 0 };
        struct call *call = call_new(p->io->calls, p->door->op, &err);
        if (!call) {
                then(p, &(struct reply){ .err = &err });
                return;
        }
        p->then = then;
        p->ticket = call->ticket;
        call->on_reply = on_reply;
        call->ctx = p;
        memcpy(call->request_id, p->request_id, sizeof(call->request_id));
        memcpy(call->actor, p->actor, sizeof(call->actor));
        call->role = p->role;
        call->asked_http = p->http;
        call->asked_grpc = p->grpc;
        call->msg = ring_msg_new(kind);
        call->msg->in.msg = msg ? pb_clone(&call->msg->memory, msg) : NULL;
        call_send(call);
}

ProtobufCMessage *persys_reply(struct persys *p, const struct reply *reply, struct arena *arena)
{
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        if (reply->type &&
            pb_unpack_own(reply->type, reply->data, reply->len, arena, &m, &err) >= 0) {
                redact(redact_level_of(p->role), m);
                return m;
        }
        log_error("a reply of the core cannot be read", LOG_S("op", p->door->op->name),
                  LOG_S("request_id", p->request_id), LOG_E(&err));
        persys_fail(p, GRPC_INTERNAL, "the server could not read its own answer");
        return NULL;
}

/* ---- answers ---- */

/* From here on nobody hears of the end of the request through p. */
static void part(struct persys *p)
{
        if (p->http)
                http_on_close(p->http, NULL, NULL);
        if (p->grpc)
                rpc_set_over(p->grpc, p->door);
}

void persys_answer_json(struct persys *p, const char *text, size_t len)
{
        part(p);
        if (p->http)
                http_reply_json(p->http, 200, text, len);
        p->http = NULL;
        persys_free(p);
}

void persys_answer(struct persys *p, const ProtobufCMessage *response)
{
        struct str out = STR_INIT;
        part(p);
        if (p->grpc) {
                pb_pack(&out, response);
                grpc_call_reply(p->grpc, str_c(&out), out.len);
        } else if (p->http) {
                json_write(&out, response, JSON_PROTO);
                http_reply_json(p->http, 200, str_c(&out), out.len);
        }
        str_fini(&out);
        persys_free(p);
}

static int http_status_of(enum grpc_status status)
{
        switch (status) {
        case GRPC_INVALID_ARGUMENT:
                return 400;
        case GRPC_NOT_FOUND:
                return 404;
        case GRPC_UNAVAILABLE:
        case GRPC_RESOURCE_EXHAUSTED:
        case GRPC_DEADLINE_EXCEEDED:
                return 503;
        default:
                return 500;
        }
}

static void reply_error(struct http_request *req, int status, const char *message)
{
        struct str out = STR_INIT;
        str_adds(&out, "{\"error\":");
        json_write_string(&out, message, strlen(message));
        str_adds(&out, "}");
        struct http_field fields[3] = { HTTP_JSON };
        if (status == 503)
                fields[1] = HTTP_FIELD("Retry-After", "1");
        http_reply(req, status, fields, str_c(&out), out.len);
        str_fini(&out);
}

void persys_fail(struct persys *p, enum grpc_status status, const char *message)
{
        part(p);
        if (p->grpc)
                grpc_call_finish(p->grpc, status, message, NULL);
        else if (p->http)
                reply_error(p->http, http_status_of(status), message);
        persys_free(p);
}

void persys_fail_err(struct persys *p, const struct err *err)
{
        persys_fail(p, (enum grpc_status)err_grpc_status(err->code), err_line(err));
}

static void set_caller(struct persys *p, const struct caller *who)
{
        memcpy(p->actor, who->actor, sizeof(p->actor));
        p->role = who->role;
}

/* ---- gRPC ---- */

static void grpc_start(struct grpc_call *call)
{
        const struct door *door = rpc_door(call);
        if (door->op->request == &pc__control_message__descriptor) {
                grpc_call_finish(call, GRPC_UNIMPLEMENTED, "ControlStream is not implemented yet",
                                 NULL);
                return;
        }
        struct persys *p = persys_new(door);
        p->grpc = call;
        p->peer = arena_strdup(&p->memory, grpc_call_peer(call));
        struct credentials shown = access_of_grpc(call);
        struct caller who;
        access_caller(door->io->access, &shown, &who);
        io_request_id(door->io, grpc_call_header(call, "x-request-id", NULL), p->request_id);
        set_caller(p, &who);
        grpc_call_set_data(call, p);
}

static void grpc_message(struct grpc_call *call, const void *data, size_t len)
{
        struct persys *p = rpc_data(call);
        struct err err = { 0 };
        if (p && !p->request &&
            pb_unpack(p->door->op->request, data, len, &p->memory, &p->request, &err) < 0)
                persys_fail_err(p, &err);
}

static void grpc_half_close(struct grpc_call *call)
{
        struct persys *p = rpc_data(call);
        if (p && p->request)
                persys_begin(p);
}

static void grpc_close(struct grpc_call *call, enum grpc_status status)
{
        struct persys *p = rpc_data(call);
        rpc_done(call, (int)status);
        if (p)
                drop(p);
}

struct grpc_callbacks persys_callbacks(void)
{
        return (struct grpc_callbacks){ .on_start = grpc_start,
                                        .on_message = grpc_message,
                                        .on_half_close = grpc_half_close,
                                        .on_close = grpc_close };
}

/* ---- HTTP ---- */

/* The body of the one call that has one, what the path names, and the filters of lists; other
 * parameters are for gateways. */
static int decode(struct persys *p, struct http_request *req, struct err *err)
{
        static const char *const filters[] = { "node_id", "status" };
        const struct op *op = p->door->op;
        if (!op->request)
                return 0;
        p->request = pb_new(&p->memory, op->request);
        if (op->request == &pc__apply_workload_request__descriptor) {
                size_t len;
                const char *body = http_body(req, &len);
                return json_read(op->request, body, len, p->io->s->opt.max_body_bytes, JSON_PROTO,
                                 &p->memory, &p->request, err);
        }
        const char *id = http_param(req, "id"),
                   *field = strstr(op->path, "/nodes/") ? "node_id" : "workload_id";
        if (id)
                return json_set_text(p->request, field, id, &p->memory, err);
        for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
                const char *value = http_query(req, filters[i]);
                int rc = value && protobuf_c_message_descriptor_get_field_by_name(op->request,
                                                                                  filters[i])
                             ? json_set_text(p->request, filters[i], value, &p->memory, err)
                             : 0;
                if (rc < 0)
                        return rc;
        }
        return 0;
}

static void on_http_close(struct http_request *req, void *ctx)
{
        (void)req;
        drop(ctx);
}

void persys_http(const struct door *door, struct http_request *req)
{
        struct persys *p = persys_new(door);
        struct err err = { 0 };
        const char *cluster = http_param(req, "cluster_id");
        if (!cluster)
                cluster = http_header(req, "X-Persys-Cluster-ID");
        if (!cluster)
                cluster = http_query(req, "cluster_id");
        p->http = req;
        p->cluster = cluster ? arena_strdup(&p->memory, cluster) : "";
        p->peer = arena_strdup(&p->memory, http_peer(req));
        strncpy(p->request_id, http_request_id(req), sizeof(p->request_id) - 1);
        struct credentials shown = access_of_http(req);
        struct caller who;
        access_caller(p->io->access, &shown, &who);
        set_caller(p, &who);
        http_on_close(req, on_http_close, p);
        if (decode(p, req, &err) < 0)
                persys_fail_err(p, &err);
        else
                persys_begin(p);
}
