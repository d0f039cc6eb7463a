/* bench/rpc_bench.c: unary gRPC calls per second over loopback, client and server in a process each.
 *
 *      rpc_bench [CALLS [PAYLOAD_BYTES]]     default 100,000 and 100
 *
 * Prints calls per second, latency and CPU per call on both sides for 1, 64 and 256 calls in flight, and beside them the same number of
 * round trips of the same bytes on a bare TCP socket: what the kernel alone takes. Nothing is judged here: numbers depend on the machine.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "net/test_rig.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct bench {
        struct event_base *base;
        struct grpc_channel *channel;
        char *payload;
        size_t len;
        uint32_t to_start, running, done, failed;
        int64_t *took_us;
};
struct one {
        struct bench *bench;
        int64_t started_ns;
};

static void start_one(struct bench *b, struct one *o);

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct one *o = grpc_call_data(call);
        struct bench *b = o->bench;

        b->took_us[b->done++] = (clock_mono_ns() - o->started_ns) / 1000;
        b->failed += status != GRPC_OK;
        b->running--;
        if (b->to_start > 0)
                start_one(b, o);
        else if (b->running == 0)
                event_base_loopbreak(b->base);
}

static void start_one(struct bench *b, struct one *o)
{
        static const struct grpc_callbacks on = { .on_close = on_close };

        b->to_start--;
        b->running++;
        o->started_ns = clock_mono_ns();
        struct grpc_call *call = grpc_channel_call(b->channel, "/berth.test.Test/Echo", NULL, &on, o);
        grpc_call_send(call, b->payload, b->len);
        grpc_call_half_close(call);
}

static int by_value(const void *a, const void *b)
{
        int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
        return x < y ? -1 : x > y;
}

static double cpu_us(const struct rusage *u)
{
        return 1e6 * (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) + (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

static void on_stop(evutil_socket_t fd, short what, void *base)
{
        (void)fd;
        (void)what;
        event_base_loopbreak(base);
}

/* A child that serves until the pipe closes; its port comes back through out. */
static pid_t serve(int *ret_stop, uint16_t *ret_port)
{
        int stop[2], out[2];
        if (pipe(stop) < 0 || pipe(out) < 0)
                exit(1);
        pid_t pid = fork();
        if (pid == 0) {
                struct grpc_server *server = NULL;
                struct test_service service = { 0 };
                struct event_base *base = event_base_new();
                struct err err;
                close(stop[1]);
                if (grpc_server_create(base, &(struct grpc_server_options){ .address = "127.0.0.1:0", .max_streams = 1000 }, &server,
                                       &err) < 0 ||
                    test_service_add(server, &service, &err) < 0)
                        _exit(1);
                uint16_t port = grpc_server_port(server);
                (void)!write(out[1], &port, sizeof(port));
                struct event *end = event_new(base, stop[0], EV_READ, on_stop, base);
                event_add(end, NULL);
                event_base_dispatch(base);
                event_free(end);
                grpc_server_destroy(server);
                event_base_free(base);
                _exit(0);
        }
        close(stop[0]);
        close(out[1]);
        if (read(out[0], ret_port, sizeof(*ret_port)) != sizeof(*ret_port))
                exit(1);
        close(out[0]);
        *ret_stop = stop[1];
        return pid;
}

static void run(uint32_t calls, size_t len, uint32_t in_flight, double tcp_us)
{
        struct bench b = { .base = event_base_new(), .payload = mem_must(len + 1), .len = len, .to_start = calls };
        struct rusage before, after, child;
        struct err err;
        uint16_t port;
        char target[32];
        int stop;
        pid_t pid = serve(&stop, &port);

        snprintf(target, sizeof(target), "127.0.0.1:%u", port);
        b.took_us = mem_must(sizeof(int64_t) * calls);
        struct one *slots = mem_must(sizeof(*slots) * in_flight);
        if (grpc_channel_create(b.base, target, NULL, &b.channel, &err) < 0)
                exit(1);
        getrusage(RUSAGE_SELF, &before);
        int64_t t0 = clock_mono_ns();
        for (uint32_t i = 0; i < in_flight && b.to_start > 0; i++) {
                slots[i].bench = &b;
                start_one(&b, &slots[i]);
        }
        event_base_dispatch(b.base);
        double seconds = (double)(clock_mono_ns() - t0) / 1e9;
        getrusage(RUSAGE_SELF, &after);
        close(stop);
        wait4(pid, NULL, 0, &child);
        qsort(b.took_us, b.done, sizeof(int64_t), by_value);
        printf("in flight %-4u %8.0f calls/s  p50 %5lld us  p99 %6lld us  CPU us/call: server %.1f, client %.1f", in_flight,
               b.done / seconds, (long long)b.took_us[b.done / 2], (long long)b.took_us[b.done * 99ull / 100], cpu_us(&child) / b.done,
               (cpu_us(&after) - cpu_us(&before)) / b.done);
        printf("  %.2f x a bare TCP round trip%s\n", seconds * 1e6 / b.done / tcp_us, b.failed ? "  SOME FAILED" : "");
        grpc_channel_destroy(b.channel);
        event_base_free(b.base);
        mem_free(b.payload);
        mem_free(b.took_us);
        mem_free(slots);
}

static void copy_back(int fd, size_t len)
{
        char *buf = mem_must(len);
        for (ssize_t n; (n = read(fd, buf, len)) > 0;)
                if (write(fd, buf, (size_t)n) < 0)
                        break;
        mem_free(buf);
}

/* Microseconds per blocking round trip of len bytes each way. */
static double bare_tcp_us(uint32_t trips, size_t len)
{
        static const int on = 1;
        struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
        socklen_t sa_len = sizeof(sa);
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(listener, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(listener, 1) < 0 ||
            getsockname(listener, (struct sockaddr *)&sa, &sa_len) < 0)
                exit(1);
        pid_t pid = fork();
        if (pid == 0) {
                int fd = accept(listener, NULL, NULL);
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
                copy_back(fd, len);
                _exit(0);
        }
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
                exit(1);
        char *buf = mem_must(len);
        int64_t t0 = clock_mono_ns();
        for (uint32_t i = 0; i < trips; i++) {
                if (write(fd, buf, len) < 0)
                        exit(1);
                for (size_t got = 0; got < len;) {
                        ssize_t n = read(fd, buf, len - got);
                        if (n <= 0)
                                exit(1);
                        got += (size_t)n;
                }
        }
        double us = (double)(clock_mono_ns() - t0) / 1e3 / trips;
        close(fd);
        close(listener);
        waitpid(pid, NULL, 0);
        mem_free(buf);
        return us;
}

int main(int argc, char **argv)
{
        uint64_t calls = 100000, len = 100;

        if ((argc > 1 && str_parse_u64(argv[1], &calls) < 0) || (argc > 2 && str_parse_u64(argv[2], &len) < 0) || calls == 0 ||
            calls > 100000000 || len == 0 || len > 1000000) {
                fprintf(stderr, "usage: rpc_bench [CALLS [PAYLOAD_BYTES]]\n");
                return 2;
        }
        double tcp_us = bare_tcp_us((uint32_t)(calls < 20000 ? calls : 20000), len);
        printf("bare TCP, one at a time: %.1f us per round trip of %llu bytes\n", tcp_us, (unsigned long long)len);
        run((uint32_t)(calls < 20000 ? calls : 20000), len, 1, tcp_us);
        run((uint32_t)calls, len, 64, tcp_us);
        run((uint32_t)calls, len, 256, tcp_us);
        return 0;
}
