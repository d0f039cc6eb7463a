/* server/openapi.c: the OpenAPI document, from the table of operations and the descriptors of their
 * messages. */
#include "model/openapi.h"
#include "model/json.h"
#include "server/access.h"
#include "server/ops.h"
#include <string.h>

#define SCHEMAS_MAX 64

struct doc {
        struct str *out;
        const ProtobufCMessageDescriptor *types[SCHEMAS_MAX];
        size_t n_types;
        bool first_parameter;
};

static void text(struct str *out, const char *s)
{
        json_write_string(out, s, strlen(s));
}

static void need(struct doc *d, const ProtobufCMessageDescriptor *type)
{
        for (size_t i = 0; i < d->n_types; i++)
                if (d->types[i] == type)
                        return;
        must(d->n_types < SCHEMAS_MAX, "room for every schema of the ops table");
        d->types[d->n_types++] = type;
}

static void reference(struct doc *d, const ProtobufCMessageDescriptor *type)
{
        need(d, type);
        str_addf(d->out, "{\"$ref\":\"#/components/schemas/%s\"}", type->short_name);
}

static void parameter(struct doc *d, const char *name, const char *in, bool required,
                      const char *about)
{
        str_addf(d->out, "%s{\"name\":\"%s\",\"in\":\"%s\",\"required\":%s,",
                 d->first_parameter ? "" : ",", name, in, required ? "true" : "false");
        if (about) {
                str_adds(d->out, "\"description\":");
                text(d->out, about);
                str_addc(d->out, ',');
        }
        str_adds(d->out, "\"schema\":");
        d->first_parameter = false;
}

static int query_parameter(void *ctx, const char *name, const ProtobufCFieldDescriptor *f)
{
        struct doc *d = ctx;
        parameter(d, name, "query", false, NULL);
        switch (f->type) {
        case PROTOBUF_C_TYPE_BOOL:
                str_adds(d->out, "{\"type\":\"boolean\"}}");
                break;
        case PROTOBUF_C_TYPE_STRING:
                str_adds(d->out, "{\"type\":\"string\"}}");
                break;
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_UINT64:
                str_adds(d->out, "{\"type\":\"integer\",\"minimum\":0}}");
                break;
        default:
                str_adds(d->out, "{\"type\":\"integer\"}}");
                break;
        }
        return 0;
}

static void parameters(struct doc *d, const struct op *op)
{
        str_adds(d->out, "\"parameters\":[");
        d->first_parameter = true;
        for (const char *p = strchr(op->path, '{'), *end; p && (end = strchr(p, '}'));
             p = strchr(end, '{')) {
                parameter(d, fmt("%.*s", (int)(end - p - 1), p + 1), "path", true, NULL);
                str_adds(d->out, "{\"type\":\"string\",\"minLength\":1,\"maxLength\":128}}");
        }
        op_each_query(op, query_parameter, d);
        if (strcmp(op->method, "GET") == 0 && (op->kind == OP_CORE || op->kind == OP_CLUSTER ||
                                               op->kind == OP_EVENTS || op->kind == OP_EXPLAIN)) {
                parameter(d, "consistent", "query", false,
                          "Of several servers only the leader answers: everything that was "
                          "acknowledged before is seen");
                str_adds(d->out, "{\"type\":\"boolean\"}}");
        }
        if (op->request &&
            protobuf_c_message_descriptor_get_field_by_name(op->request, "if_match") &&
            strcmp(op->method, "GET") != 0) {
                parameter(
                    d, "If-Match", "header", false,
                    "Only if the object still has this resource_version (its ETag); 409 otherwise");
                str_adds(d->out, "{\"type\":\"string\"}}");
        }
        if (op->kind == OP_WATCH) {
                parameter(d, "Last-Event-ID", "header", false,
                          "Go on after this sequence; wins over since");
                str_adds(d->out, "{\"type\":\"integer\",\"minimum\":0}}");
        }
        str_adds(d->out, "]");
}

static void content(struct doc *d, const struct op *op)
{
        const char *media = op->media ? op->media : "application/json";
        str_addf(d->out, "\"content\":{\"%s\":{\"schema\":", media);
        if (op->media)
                str_adds(d->out, "{\"type\":\"string\"}");
        else if (op->response)
                reference(d, op->response);
        else if (op->kind == OP_HEALTH)
                str_adds(d->out,
                         "{\"type\":\"object\",\"required\":[\"status\",\"mode\"],\"properties\":{"
                         "\"status\":{\"type\":\"string\",\"enum\":["
                         "\"ok\","
                         "\"degraded\"]},\"mode\":{\"type\":\"string\",\"enum\":[\"normal\","
                         "\"degraded\"]},\"reason\":{\"type\":\"string\"},"
                         "\"warning\":{\"type\":\"string\"},"
                         "\"mode_changed_at\":{\"type\":\"string\",\"format\":\"date-time\"}}}");
        else
                str_adds(d->out, "{\"type\":\"object\"}");
        str_adds(d->out, "}}");
}

static void responses(struct doc *d, const struct op *op)
{
        str_addf(d->out, "\"responses\":{\"%d\":{\"description\":\"done\",", op->status);
        content(d, op);
        str_adds(d->out, "}");
        if (op->input == INPUT_APPLY || op->kind == OP_TOKEN) {
                str_adds(d->out, ",\"201\":{\"description\":\"created\",\"headers\":{\"Location\":{"
                                 "\"schema\":{\"type\":\"string\"}}},");
                content(d, op);
                str_adds(d->out, "}");
        }
        str_adds(d->out, ",\"default\":{\"description\":\"failed\",\"content\":{\"application/"
                         "json\":{\"schema\":");
        reference(d, &pb__error__descriptor);
        str_adds(d->out, "}}}}");
}

static void operation(struct doc *d, const struct op *op)
{
        char method[8] = { 0 };
        for (size_t i = 0; op->method[i] && i < sizeof(method) - 1; i++)
                method[i] = (char)(op->method[i] | 0x20);
        str_addf(d->out, "\"%s\":{\"operationId\":\"%s\",\"tags\":[\"%s\"],\"summary\":", method,
                 op->name, op->tag);
        text(d->out, op->summary);
        if (op->needs == NEEDS_NOTHING)
                str_adds(d->out, ",\"security\":[]");
        else
                str_addf(d->out, ",\"x-role\":\"%s\"", access_needs_name(op->needs));
        str_addc(d->out, ',');
        parameters(d, op);
        if (op->body) {
                str_addf(d->out,
                         ",\"requestBody\":{\"required\":%s,\"content\":{\"application/"
                         "json\":{\"schema\":",
                         strcmp(op->body, "?") == 0 ? "false" : "true");
                reference(d, op_body_type(op));
                str_adds(d->out, "}}}");
        }
        str_addc(d->out, ',');
        responses(d, op);
        str_addc(d->out, '}');
}

void ops_openapi(struct str *out, const char *version)
{
        struct doc d = { .out = out };
        str_adds(out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"berth\",\"version\":");
        text(out, version);
        str_adds(out, ",\"license\":{\"name\":\"Apache-2.0\",\"identifier\":\"Apache-2.0\"},"
                      "\"description\":\"The control plane's REST "
                      "API. Every path is also "
                      "served without /v1.\"},\"servers\":[{\"url\":\"/v1\"}],\"paths\":{");
        bool first_path = true;
        for (size_t i = 0; i < n_ops; i++) {
                /* the page is at / alone, and no part of the API */
                if (!ops[i].path || ops[i].kind == OP_PAGE || ops[i].kind == OP_PERSYS)
                        continue;
                bool seen = false;
                for (size_t j = 0; j < i; j++)
                        seen |= str_eq(ops[j].path, ops[i].path);
                if (seen)
                        continue;
                str_addf(out, "%s\"%s\":{", first_path ? "" : ",", ops[i].path);
                first_path = false;
                bool first = true;
                for (size_t j = i; j < n_ops; j++)
                        if (str_eq(ops[j].path, ops[i].path)) {
                                str_adds(out, first ? "" : ",");
                                first = false;
                                operation(&d, &ops[j]);
                        }
                str_adds(out, "}");
        }
        str_adds(out, "},\"components\":{\"schemas\":");
        openapi_schemas(out, d.types, d.n_types);
        str_adds(
            out,
            ",\"securitySchemes\":{\"token\":{\"type\":\"http\",\"scheme\":\"bearer\","
            "\"description\":\"berth token create; x-role of an "
            "operation is the role that it "
            "needs\"},\"certificate\":{\"type\":\"mutualTLS\",\"description\":\"a user's "
            "certificate with a "
            "role: berth ca issue user\"}}},\"security\":[{\"token\":[]},{\"certificate\":[]}]}");
}
