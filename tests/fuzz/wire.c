/* Any bytes as what a peer sends to the gRPC or the HTTP server, on a real socket, cut at any
 * place. The servers live on and go on answering. */
#include "fuzz.h"
#include "net/grpc.h"
#include "net/http.h"
#include <event2/event.h>

static struct event_base *base;
static struct grpc_server *grpc;
static struct http_server *http;
static unsigned open_calls;

static void on_start(struct grpc_call *call)
{
        (void)call;
        open_calls++;
}
static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        grpc_call_send(call, data, len);
}
static void on_half_close(struct grpc_call *call)
{
        grpc_call_finish(call, GRPC_OK, NULL, NULL);
}
static void on_close(struct grpc_call *call, enum grpc_status status)
{
        (void)call;
        (void)status;
        open_calls--;
}
static void echo(struct http_request *req, void *ctx)
{
        size_t len;
        const char *body = http_body(req, &len);
        (void)ctx;
        http_reply_json(req, 200, body, len);
}

static void start(void)
{
        struct err err;
        struct grpc_method chat = { .on = { on_start, on_message, on_half_close, NULL, on_close } };

        base = event_base_new();
        if (grpc_server_create(base, &(struct grpc_server_options){ .address = "127.0.0.1:0" },
                               &grpc, &err) < 0 ||
            grpc_server_add(grpc, "/t/C", &chat, &err) < 0 ||
            http_server_create(
                base,
                &(struct http_server_options){ .address = "127.0.0.1:0", .max_body_bytes = 4096 },
                &http, &err) < 0 ||
            http_server_add(http, "POST", "/e/{id}", echo, NULL, &err) < 0 ||
            http_server_add(http, "GET", "/{rest...}", echo, NULL, &err) < 0) {
                fprintf(stderr, "%s\n", err_line(&err));
                abort();
        }
}

static void turn(unsigned times)
{
        for (unsigned i = 0; i < times; i++)
                event_base_loop(base, EVLOOP_NONBLOCK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char greeting[] =
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

        if (!base)
                start();
        if (size < 2)
                return 0;
        bool is_grpc = data[0] & 1;
        size_t step = data[1] ? data[1] : size;
        int fd = fuzz_dial(is_grpc ? grpc_server_port(grpc) : http_server_port(http));
        if (is_grpc && !(data[0] & 2))
                (void)!send(fd, greeting, sizeof(greeting) - 1, MSG_NOSIGNAL);
        for (size_t at = 2; at < size; at += step) {
                (void)!send(fd, data + at, size - at < step ? size - at : step,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
                turn(1);
        }
        turn(4);
        close(fd);
        turn(4);
        for (unsigned i = 0; i < 1000 && (open_calls || http_server_connections(http)); i++)
                turn(1);
        if (open_calls || http_server_connections(http)) {
                fprintf(stderr, "calls or connections outlive their peer\n");
                abort();
        }
        return 0;
}
