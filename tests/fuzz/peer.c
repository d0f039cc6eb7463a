/* Any bytes as what a gRPC server sends to our client, on a real socket, cut at any place: each
 * call ends once, with a status, and the channel can be used again. The first byte chooses whether
 * a greeting (SETTINGS) comes first, the second how the bytes are cut. */
#include "agent.pb-c.h"
#include "fuzz.h"
#include "net/grpc.h"
#include <arpa/inet.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static struct event_base *base;
static int listener = -1;
static char target[32];
static unsigned open_calls;

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct arena a = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };
        (void)call;
        if (pb_unpack(&pb__server_message__descriptor, data, len, &a, &m, &err) < 0)
                must_explain(&err);
        arena_fini(&a);
}
static void on_close(struct grpc_call *call, enum grpc_status status)
{
        size_t len;
        MUST(open_calls > 0, "a call ends once");
        MUST((int)status >= 0 && (int)status <= 16, "a status that exists: %d", (int)status);
        MUST(str_is_utf8(grpc_call_message(call), strlen(grpc_call_message(call))),
             "the message is text");
        (void)grpc_call_trailer(call, GRPC_ERROR_TRAILER, &len);
        open_calls--;
}

static void start(void)
{
        struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
        socklen_t len = sizeof(sa);
        base = event_base_new();
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        MUST(bind(listener, (struct sockaddr *)&sa, len) == 0 && listen(listener, 8) == 0 &&
                 getsockname(listener, (struct sockaddr *)&sa, &len) == 0,
             "listen");
        snprintf(target, sizeof(target), "127.0.0.1:%u", ntohs(sa.sin_port));
}

static void turn(unsigned times)
{
        for (unsigned i = 0; i < times; i++)
                event_base_loop(base, EVLOOP_NONBLOCK);
}

static void begin_call(struct grpc_channel *channel, bool stream)
{
        static const struct grpc_callbacks on = { .on_message = on_message, .on_close = on_close };
        struct grpc_call *call = grpc_channel_call(
            channel, stream ? "/berth.v1.Agent/Connect" : "/t/C", NULL, &on, NULL);
        open_calls++;
        grpc_call_send(call, "abc", 3);
        if (!stream)
                grpc_call_half_close(call);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char greeting[] = "\x00\x00\x00\x04\x00\x00\x00\x00\x00";
        static const struct linger reset = { .l_onoff = 1 }; /* no TIME_WAIT: ports would run out */
        struct grpc_channel *channel = NULL;
        struct err err;
        if (!base)
                start();
        if (size < 2)
                return 0;
        size_t step = data[1] ? data[1] : size;
        struct grpc_channel_options opt = { .max_message_bytes = 4096,
                                            .max_header_bytes = 4096,
                                            .keepalive_ms = -1 };
        MUST(grpc_channel_create(base, target, &opt, &channel, &err) >= 0, "%s", err_line(&err));
        begin_call(channel, true);
        begin_call(channel, false);
        turn(2);
        int fd = accept(listener, NULL, NULL);
        MUST(fd >= 0, "the channel connects");
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        if (!(data[0] & 1))
                (void)!send(fd, greeting, sizeof(greeting) - 1, MSG_NOSIGNAL);
        turn(3);
        for (size_t at = 2; at < size; at += step) {
                (void)!send(fd, data + at, size - at < step ? size - at : step,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
                turn(1);
        }
        turn(4);
        close(fd);
        turn(4);
        grpc_channel_destroy(channel);
        turn(2);
        MUST(open_calls == 0, "%u calls never ended", open_calls);
        return 0;
}
