/* server/reflection.c: see reflection.h.
 *
 * The set of descriptors is walked as it is, packed: it is small, asked for by people's tools only,
 * and ours, so its form need not be checked. Field numbers are those of
 * google/protobuf/descriptor.proto:
 *   FileDescriptorSet   file = 1
 *   FileDescriptorProto name = 1, package = 2, dependency = 3, message_type = 4, enum_type = 5,
 *   service = 6
 *   DescriptorProto     name = 1, field = 2, nested_type = 3, enum_type = 4
 *   ServiceDescriptorProto name = 1, method = 2; EnumDescriptorProto name = 1, value = 2; all
 *   below: name = 1
 */
#include "server/reflection.h"

#include "base/arena.h"
#include "base/wire.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "reflection_v1.pb-c.h"
#include "server/io.h"
#include <string.h>

#define FILES_MAX 64

struct slice {
        const unsigned char *at;
        size_t len;
};

/* ---- packed messages ---- */

/* The next field of a message; false at its end. Value is what is inside for those with a length,
 * else empty. */
static bool next_field(struct slice *m, unsigned *ret_field, struct slice *ret_value)
{
        const uint8_t *p = m->at, *end = p + m->len;
        uint64_t tag;
        struct wire_value v;
        if (!varint_take(&p, end, &tag) || !wire_take(&p, end, tag & 7, &v))
                return false;
        *ret_field = (unsigned)(tag >> 3);
        *ret_value =
            (tag & 7) == WIRE_TYPE_BYTES ? (struct slice){ v.at, v.n } : (struct slice){ 0 };
        *m = (struct slice){ p, (size_t)(end - p) };
        return true;
}

static struct slice field(struct slice m, unsigned want)
{
        unsigned f;
        struct slice v;
        while (next_field(&m, &f, &v))
                if (f == want)
                        return v;
        return (struct slice){ 0 };
}

static bool is(struct slice s, const char *text)
{
        return s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

/* ---- finding ---- */

static bool next_file(struct slice *set, struct slice *ret_file)
{
        unsigned f;
        return next_field(set, &f, ret_file);
}

static struct slice all_files(void)
{
        return (struct slice){ reflection_files, reflection_files_len };
}

static bool file_named(struct slice name, struct slice *ret_file)
{
        for (struct slice set = all_files(), file; next_file(&set, &file);) {
                struct slice n = field(file, 1);
                if (n.len == name.len && memcmp(n.at, name.at, n.len) == 0) {
                        *ret_file = file;
                        return true;
                }
        }
        return false;
}

/* What is left of symbol behind "name" or "name.", NULL if it does not begin so. */
static const char *behind(const char *symbol, struct slice name)
{
        if (name.len == 0)
                return symbol; /* a file without a package */
        if (strncmp(symbol, (const char *)name.at, name.len) != 0)
                return NULL;
        return symbol[name.len] == '\0'  ? symbol + name.len
               : symbol[name.len] == '.' ? symbol + name.len + 1
                                         : NULL;
}

static bool has_member(struct slice item, const char *name)
{
        unsigned f;
        struct slice v;
        while (next_field(&item, &f, &v))
                if (f == 2 && is(field(v, 1), name))
                        return true;
        return false;
}

/* An enum's values are names beside it, not below it. */
static bool enum_declares(struct slice item, const char *symbol)
{
        return is(field(item, 1), symbol) || has_member(item, symbol);
}

/* Does this message or service declare it? Members are its fields or methods. */
static bool declares(struct slice item, const char *symbol, bool is_message, unsigned depth)
{
        const char *rest = behind(symbol, field(item, 1));
        unsigned f;
        struct slice v;
        if (!rest || depth > 16)
                return false;
        if (!rest[0] || has_member(item, rest))
                return true;
        while (is_message && next_field(&item, &f, &v))
                if ((f == 3 && declares(v, rest, true, depth + 1)) ||
                    (f == 4 && enum_declares(v, rest)))
                        return true;
        return false;
}

static bool file_declares(struct slice file, const char *symbol)
{
        const char *rest = behind(symbol, field(file, 2));
        unsigned f;
        struct slice v;
        while (rest && rest[0] && next_field(&file, &f, &v))
                if (f == 5 ? enum_declares(v, rest)
                           : (f == 4 || f == 6) && declares(v, rest, f == 4, 0))
                        return true;
        return false;
}

static bool file_with(const char *symbol, struct slice *ret_file)
{
        for (struct slice set = all_files(); next_file(&set, ret_file);)
                if (file_declares(*ret_file, symbol))
                        return true;
        return false;
}

/* ---- answers ---- */

static void fail(GrV1__ServerReflectionResponse *r, struct arena *a, enum grpc_status status,
                 const char *message)
{
        GrV1__ErrorResponse *e =
            (GrV1__ErrorResponse *)pb_new(a, &gr_v1__error_response__descriptor);
        e->error_code = (int32_t)status;
        e->error_message = arena_strdup(a, message);
        r->message_response_case =
            GR_V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
        r->error_response = e;
}

/* The file and all that it imports, each once, so that no tool has to ask again. */
static void answer_file(GrV1__ServerReflectionResponse *r, struct arena *a, struct slice file)
{
        GrV1__FileDescriptorResponse *d =
            (GrV1__FileDescriptorResponse *)pb_new(a, &gr_v1__file_descriptor_response__descriptor);
        d->file_descriptor_proto = arena_alloc(a, FILES_MAX * sizeof(*d->file_descriptor_proto));
        d->file_descriptor_proto[d->n_file_descriptor_proto++] =
            (ProtobufCBinaryData){ file.len, (uint8_t *)file.at };
        for (size_t i = 0; i < d->n_file_descriptor_proto; i++) {
                struct slice m = { d->file_descriptor_proto[i].data,
                                   d->file_descriptor_proto[i].len },
                             v, import;
                unsigned f;
                while (next_field(&m, &f, &v)) {
                        bool known = f != 3 || !file_named(v, &import) ||
                                     d->n_file_descriptor_proto == FILES_MAX;
                        for (size_t k = 0; !known && k < d->n_file_descriptor_proto; k++)
                                known = d->file_descriptor_proto[k].data == import.at;
                        if (!known)
                                d->file_descriptor_proto[d->n_file_descriptor_proto++] =
                                    (ProtobufCBinaryData){ import.len, (uint8_t *)import.at };
                }
        }
        r->message_response_case =
            GR_V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
        r->file_descriptor_response = d;
}

/* "/berth.v1.Control/GetNode": the services are those of the methods that are served. */
static void answer_services(GrV1__ServerReflectionResponse *r, struct arena *a)
{
        GrV1__ListServiceResponse *list =
            (GrV1__ListServiceResponse *)pb_new(a, &gr_v1__list_service_response__descriptor);
        list->service = arena_alloc(a, n_ops * sizeof(*list->service));
        for (size_t i = 0; i < n_ops; i++) {
                const char *slash = ops[i].rpc ? strrchr(ops[i].rpc, '/') : NULL;
                char *name =
                    slash ? arena_strndup(a, ops[i].rpc + 1, (size_t)(slash - ops[i].rpc) - 1)
                          : NULL;
                bool known = !name;
                for (size_t k = 0; !known && k < list->n_service; k++)
                        known = str_eq(list->service[k]->name, name);
                if (known)
                        continue;
                list->service[list->n_service] =
                    (GrV1__ServiceResponse *)pb_new(a, &gr_v1__service_response__descriptor);
                list->service[list->n_service++]->name = name;
        }
        r->message_response_case =
            GR_V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
        r->list_services_response = list;
}

static void answer_extensions(GrV1__ServerReflectionResponse *r, struct arena *a, const char *type)
{
        struct slice file;
        if (!file_with(type, &file)) {
                fail(r, a, GRPC_NOT_FOUND, fmt("no type %.200s is known here", type));
                return;
        }
        GrV1__ExtensionNumberResponse *e = (GrV1__ExtensionNumberResponse *)pb_new(
            a, &gr_v1__extension_number_response__descriptor);
        e->base_type_name = (char *)type; /* none of ours is extended */
        r->message_response_case =
            GR_V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
        r->all_extension_numbers_response = e;
}

int reflection_answer(struct str *out, const void *request, size_t len)
{
        struct arena a = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        struct slice file;
        if (pb_unpack(&gr_v1__server_reflection_request__descriptor, request, len, &a, &m, NULL) <
            0) {
                arena_fini(&a);
                return -1;
        }
        GrV1__ServerReflectionRequest *q = (GrV1__ServerReflectionRequest *)m;
        GrV1__ServerReflectionResponse *r = (GrV1__ServerReflectionResponse *)pb_new(
            &a, &gr_v1__server_reflection_response__descriptor);
        r->valid_host = q->host;
        r->original_request = q;
        switch (q->message_request_case) {
        case GR_V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
                if (file_named((struct slice){ (unsigned char *)q->file_by_filename,
                                               strlen(q->file_by_filename) },
                               &file))
                        answer_file(r, &a, file);
                else
                        fail(r, &a, GRPC_NOT_FOUND,
                             fmt("no file %.200s is known here", q->file_by_filename));
                break;
        case GR_V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
                if (file_with(q->file_containing_symbol, &file))
                        answer_file(r, &a, file);
                else
                        fail(r, &a, GRPC_NOT_FOUND,
                             fmt("no symbol %.200s is known here", q->file_containing_symbol));
                break;
        case GR_V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
                answer_extensions(r, &a, q->all_extension_numbers_of_type);
                break;
        case GR_V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
                answer_services(r, &a);
                break;
        case GR_V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
                fail(r, &a, GRPC_NOT_FOUND, "no extensions are known here");
                break;
        default:
                fail(r, &a, GRPC_INVALID_ARGUMENT, "the request asks for nothing");
                break;
        }
        pb_pack(out, &r->base);
        arena_fini(&a);
        return 0;
}

/* ---- the stream ---- */

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct str out = STR_INIT;
        if (reflection_answer(&out, data, len) < 0)
                grpc_call_finish(call, GRPC_INVALID_ARGUMENT, "the request cannot be read", NULL);
        else if (grpc_call_send(call, out.buf, out.len) < 0)
                grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "more is asked for than is taken",
                                 NULL);
        str_fini(&out);
}

static void on_half_close(struct grpc_call *call)
{
        grpc_call_finish(call, GRPC_OK, NULL, NULL);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        rpc_done(call, (int)status);
}

struct grpc_callbacks reflection_callbacks(void)
{
        return (struct grpc_callbacks){ .on_message = on_message,
                                        .on_half_close = on_half_close,
                                        .on_close = on_close };
}
