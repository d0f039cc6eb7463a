/* server/ops.h: everything a caller can ask for, in one table. Both doors (REST and gRPC) and
 * /openapi.json are made from it, so that they cannot disagree.
 *
 * A row with a path is served over HTTP (below / and below /v1), one with a method over gRPC; most
 * have both. What the two doors do with a request is the same after decoding: one request message,
 * checked and completed by model/validate.h, goes to where `kind` says.
 */
#ifndef BERTH_SERVER_OPS_H
#define BERTH_SERVER_OPS_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "core/core.h"

enum op_kind {
        OP_CORE,    /* an input of the core: op->input */
        OP_CLUSTER, /* the same, completed with what the core does not know */
        OP_EXPLAIN, /* an input of the core, completed with what the stored events tell */
        OP_PLAN,    /* what would happen, by a forked child */
        OP_EVENTS,  /* stored events, by the reader thread */
        OP_WATCH,   /* stored, then live events */
        OP_LOGS,
        OP_EXEC,
        OP_AGENT, /* the stream of an agent */
        OP_HEALTH,
        OP_METRICS,
        OP_OPENAPI,
        OP_PAGE,
        /* the control dialect of others: persys.h. Below /persys/ over HTTP, and no part of the
         * OpenAPI document */
        OP_PERSYS,
        OP_REFLECTION, /* what is served, for tools: reflection.h */
        OP_LOGIN,      /* rest.c: the caller's token becomes a cookie that scripts cannot read; */
        OP_LOGOUT,     /* and is taken away */
        OP_TRUST,      /* join.h: the CAs; */
        OP_JOIN,       /* a certificate by a join token; */
        OP_RENEW,      /* and by another certificate */
        /* an input of the core; the secret is made here, and only its hash goes on */
        OP_TOKEN,
};

/* Who may ask for it (access.h). A row that does not say is an admin's. */
enum op_needs {
        NEEDS_UNSAID,
        NEEDS_NOTHING, /* anybody, without a token or a certificate */
        NEEDS_VIEWER,
        NEEDS_OPERATOR,
        NEEDS_ADMIN,
        NEEDS_NODE, /* an agent, for its own node */
};

struct op {
        const char *name; /* operationId, and the label in metrics */
        enum op_kind kind;
        enum input_kind input;
        const ProtobufCMessageDescriptor *request, *response; /* NULL: none */
        /* REST; path NULL: not served there */
        const char *method, *path;
        /* of success, unless something was created (201) */
        int status;
        /* The field of the request that the body fills; "*": the body is the request, "?": the
         * same, and it may be left out; NULL: there is no body */
        const char *body;
        const char *fixed; /* "field=value": set by the path itself; "" and NULL: nothing */
        const char *rpc;   /* "/berth.v1.Control/ApplyWorkload"; NULL: not served over gRPC */
        const char *tag, *summary;
        const char *media; /* of the response, if it is not JSON */
        enum op_needs needs;
};

extern const struct op ops[];
extern const size_t n_ops;
size_t op_index(const struct op *op);
const char *op_name(size_t index);      /* "" beyond the table */
const char *op_grpc_path(size_t index); /* "/berth.v1.Control/GetNode"; NULL: none */
/* Where it is served as well: below /v1; the foreign ones below each cluster's path. NULL: nowhere
 * else. The pointer is fmt()'s. */
const char *op_second_path(const struct op *op);
/* By method and route pattern (with or without /v1); NULL if none. HEAD counts as GET. */
const struct op *op_by_route(const char *method, const char *pattern);

/* A request over HTTP, as far as it becomes the request message. */
struct op_text {
        const char *(*param)(const void *ctx, const char *name); /* of the path */
        size_t n_query;
        const char *(*query_name)(const void *ctx, size_t i);
        const char *(*query_value)(const void *ctx, size_t i);
        const void *ctx;
        const char *body;
        size_t body_len, max_body_bytes;
        const char *if_match, *if_none_match, *last_event_id; /* headers; NULL: absent */
};
/* Decodes into the arena, checks, completes (model/validate.h). ret_pretty: the caller wants JSON
 * for people. ret_request is NULL for ops without a request message. ERR_INVALID with the path of
 * the bad field or parameter. */
int op_decode_text(const struct op *op, const struct op_text *text, struct arena *arena,
                   ProtobufCMessage **ret_request, bool *ret_pretty, struct err *err);
/* The same from packed bytes. */
int op_decode_packed(const struct op *op, const void *data, size_t len, struct arena *arena,
                     ProtobufCMessage **ret_request, struct err *err);

/* What the body is, as JSON; NULL: there is none. */
const ProtobufCMessageDescriptor *op_body_type(const struct op *op);
static inline bool op_body_is_request(const struct op *op)
{
        return op->body && op->body[0] == '*';
}

/* "resource_version" of a message, or 0. */
uint64_t op_resource_version(const ProtobufCMessage *m);

/* Query parameters that a row takes: fields of the request that come neither from the path nor the
 * body nor are fixed. fn < 0 stops. */
int op_each_query(const struct op *op,
                  int (*fn)(void *ctx, const char *name, const ProtobufCFieldDescriptor *field),
                  void *ctx);

/* The whole OpenAPI 3.1 document. */
void ops_openapi(struct str *out, const char *version);

#endif
