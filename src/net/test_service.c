/* net/test_service.c: the service that tests, the interop test and the benchmark call.
 *
 *   Echo  unary: the request          Sum   client stream: "<messages> <bytes>"
 *   Count "N SIZE": N messages        Chat  bidi: each message back
 *   Hang  never answers               Fail  "STATUS TEXT": that status, with a trailer
 *         berth-error-bin
 *   Meta  x-in and x-in-bin come back as x-out (header) and x-out-trailer (trailer)
 */
#include "net/test_rig.h"

struct count {
        uint32_t left, size;
};
struct sum {
        uint32_t n;
        uint64_t bytes;
};

static struct test_service *service; /* one per process is enough for tests */

static void on_start(struct grpc_call *call)
{
        const struct tls_identity *id = grpc_call_identity(call);

        service->started++;
        if (service->lets_in)
                grpc_call_let_in(call);
        service->last = call;
        service->last_id = grpc_call_id(call);
        service->seen_remaining_ms = grpc_call_remaining_ms(call);
        snprintf(service->seen_peer, sizeof(service->seen_peer), "%s", grpc_call_peer(call));
        snprintf(service->seen_uri, sizeof(service->seen_uri), "%s",
                 id && id->n_uris ? id->uris[0] : "");
        snprintf(service->seen_cn, sizeof(service->seen_cn), "%s", id && id->cn ? id->cn : "");
        grpc_call_set_data(call, NULL);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        service->closed++;
        service->last_status = status;
        if (service->last == call)
                service->last = NULL;
        mem_free(grpc_call_data(call));
}

static void on_half_close(struct grpc_call *call)
{
        (void)call;
        service->half_closed++;
}

static void echo(struct grpc_call *call, const void *data, size_t len)
{
        service->messages++;
        grpc_call_reply(call, data, len);
}

static void sum(struct grpc_call *call, const void *data, size_t len)
{
        struct sum *s = grpc_call_data(call);
        (void)data;
        if (!s) {
                s = mem_must(sizeof(*s));
                grpc_call_set_data(call, s);
        }
        s->n++;
        s->bytes += len;
}

static void sum_end(struct grpc_call *call)
{
        struct sum *s = grpc_call_data(call);
        char text[64];
        int n = snprintf(text, sizeof(text), "%u %llu", s ? s->n : 0,
                         s ? (unsigned long long)s->bytes : 0);
        service->half_closed++;
        grpc_call_reply(call, text, (size_t)n);
}

static void count_more(struct grpc_call *call)
{
        struct count *c = grpc_call_data(call);
        char *text = mem_must(c->size + 1);

        while (c->left > 0) {
                snprintf(text, c->size + 1, "%u", c->left);
                if (grpc_call_send(call, text, c->size) < 0)
                        break;
                c->left--;
                if (grpc_call_queued_bytes(call) > service->most_queued)
                        service->most_queued = grpc_call_queued_bytes(call);
        }
        if (c->left == 0)
                grpc_call_finish(call, GRPC_OK, NULL, NULL);
        mem_free(text);
}

static void count(struct grpc_call *call, const void *data, size_t len)
{
        struct count *c = mem_must(sizeof(*c));
        char text[64] = "";

        memcpy(text, data, len < sizeof(text) ? len : sizeof(text) - 1);
        grpc_call_set_data(call, c);
        sscanf(text, "%u %u", &c->left, &c->size);
        if (c->size > 16 * 1024 * 1024)
                c->size = 16 * 1024 * 1024;
        count_more(call);
}

static void chat(struct grpc_call *call, const void *data, size_t len)
{
        service->messages++;
        grpc_call_send(call, data, len);
}

static void chat_end(struct grpc_call *call)
{
        service->half_closed++;
        grpc_call_finish(call, GRPC_OK, NULL, NULL);
}

static void fail_with(struct grpc_call *call, const void *data, size_t len)
{
        static const char packed[] = "\x0a\x07\x00\xff\x80\x7f";
        _cleanup_(mem_freep) char *text = mem_strndup(data, len);
        char *rest = NULL;
        long status = strtol(text, &rest, 10);

        grpc_call_finish(
            call, (enum grpc_status)status, rest && *rest == ' ' ? rest + 1 : NULL,
            (struct grpc_metadata[]){ GRPC_META(GRPC_ERROR_TRAILER, packed, sizeof(packed)),
                                      GRPC_META_END });
}

static void meta(struct grpc_call *call, const void *data, size_t len)
{
        size_t in_len = 0, bin_len = 0;
        const char *in = grpc_call_header(call, "x-in", &in_len),
                   *bin = grpc_call_header(call, "x-in-bin", &bin_len);

        grpc_call_send_headers(
            call, (struct grpc_metadata[]){ GRPC_META("x-out", in ? in : "", in_len),
                                            GRPC_META("x-out-bin", bin ? bin : "", bin_len),
                                            GRPC_META_END });
        grpc_call_send(call, bin ? bin : "", bin_len);
        grpc_call_finish(call, GRPC_OK, NULL,
                         (struct grpc_metadata[]){ GRPC_META("x-out-trailer", in ? in : "", in_len),
                                                   GRPC_META_END });
        (void)data;
        (void)len;
}

int test_service_add(struct grpc_server *server, struct test_service *s, struct err *err)
{
        static const struct {
                const char *path;
                struct grpc_method method;
        } methods[] = {
                { SERVICE "Echo",
                  { .on = { on_start, echo, on_half_close, NULL, on_close },
                    .unary_request = true } },
                { SERVICE "Sum", { .on = { on_start, sum, sum_end, NULL, on_close } } },
                { SERVICE "Count",
                  { .on = { on_start, count, on_half_close, count_more, on_close },
                    .unary_request = true } },
                { SERVICE "Chat", { .on = { on_start, chat, chat_end, NULL, on_close } } },
                { SERVICE "Hang", { .on = { on_start, NULL, on_half_close, NULL, on_close } } },
                { SERVICE "Fail",
                  { .on = { on_start, fail_with, on_half_close, NULL, on_close },
                    .unary_request = true } },
                { SERVICE "Meta",
                  { .on = { on_start, meta, on_half_close, NULL, on_close },
                    .unary_request = true } },
        };

        service = s;
        for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
                int r = grpc_server_add(server, methods[i].path, &methods[i].method, err);
                if (r < 0)
                        return r;
        }
        return 0;
}
