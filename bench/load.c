/* bench/load.c: submits workloads to a server as fast as it takes them, or at a steady rate, and
 * says how long each took.
 *
 *      load http|grpc ADDRESS WORKLOADS IN_FLIGHT [RATE [PREFIX [EACH]]]
 *
 * http: IN_FLIGHT connections that are kept, one POST /v1/workloads at a time on each. grpc:
 * IN_FLIGHT calls of ApplyWorkload over one channel per 100. A workload counts as done when its
 * answer has come: the server answers only when the workload and its assignment are durable. EACH >
 * 1: so many workloads in each request (POST /v1/workloads:batch, ApplyWorkloads); each of them
 * counts, and IN_FLIGHT is the number of requests. RATE > 0 is an open loop: workload n is due at n
 * / RATE seconds whatever became of the others, and its time runs from then, so a server that falls
 * behind cannot hide it. 0: a closed loop. Every workload has a name and a command of its own. The
 * requests are made before the clock runs: whoever sends them shares the machine with the server,
 * and should take as little of it as can be.
 *
 * Prints one line: done= failed= seconds= rate= p50_us= p99_us= max_us= cpu_us= (of this program,
 * per workload).
 */
#include "api.pb-c.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/pb.h"
#include "net/grpc.h"
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define STREAMS_PER_CHANNEL 100
#define ANSWER_BYTES 16384
#define RESULT_BYTES 1024 /* and so many for each workload beyond the first */
#define EACH_MAX 1000

struct load;
struct slot {
        struct load *load;
        int64_t due_ns;
        bool busy;
        /* http */
        int fd;
        struct event *event;
        size_t got;
        size_t answer_size;
        char *answer;
        uint64_t n; /* workloads that it waits for */
        /* grpc */
        struct grpc_channel *channel;
        bool refused;
};
struct load {
        struct event_base *base;
        bool is_grpc;
        const char *prefix, *address;
        uint64_t total, rate, each;
        struct str requests; /* all of them, one after the other */
        size_t *ends;        /* of each */
        struct rusage before;
        uint64_t started, done, failed;
        int64_t begin_ns, end_ns;
        int64_t *took_ns;
        struct slot **idle;
        size_t n_idle;
};

static void begin(struct load *l, struct slot *s);

static void die(const char *what)
{
        fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
        exit(1);
}

/* Starts what is due on slots that are idle. */
static void feed(struct load *l)
{
        int64_t now = l->rate ? clock_mono_ns() : 0;
        while (l->n_idle > 0 && l->started < l->total) {
                if (l->rate && l->begin_ns + (int64_t)(l->started * 1000000000 / l->rate) > now)
                        return;
                begin(l, l->idle[--l->n_idle]);
        }
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
        (void)fd, (void)what;
        feed(ctx);
}

static void end(struct slot *s, bool ok)
{
        struct load *l = s->load;
        int64_t now = clock_mono_ns();
        s->busy = false;
        for (uint64_t i = 0; i < s->n; i++)
                l->took_ns[l->done++] = now - s->due_ns;
        l->failed += ok ? 0 : s->n;
        l->idle[l->n_idle++] = s;
        if (l->done == l->total) {
                l->end_ns = now;
                event_base_loopbreak(l->base);
                return;
        }
        feed(l);
}

static void name_of(const struct load *l, uint64_t n, char ret[static 64])
{
        snprintf(ret, 64, "%s-%07llu", l->prefix, (unsigned long long)n);
}

/* ---- HTTP ---- */

static void on_readable(evutil_socket_t fd, short what, void *ctx);

static void http_connect(struct slot *s)
{
        static const int on = 1;
        struct sockaddr_storage sa;
        int len = sizeof(sa);
        if (evutil_parse_sockaddr_port(s->load->address, (struct sockaddr *)&sa, &len) < 0)
                die(s->load->address);
        s->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (s->fd < 0 || connect(s->fd, (struct sockaddr *)&sa, (socklen_t)len) < 0)
                die("cannot connect");
        setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        evutil_make_socket_nonblocking(s->fd);
        s->event =
            /* on_readable() takes all that is there */
            event_new(s->load->base, s->fd, EV_READ | EV_PERSIST | EV_ET, on_readable, s);
        event_add(s->event, NULL);
}

static void add_workload(struct str *out, const char *id, uint64_t n)
{
        str_addf(out,
                 "{\"id\":\"%s\",\"type\":\"process\",\"spec\":{\"command\":[\"sh\",\"-c\",\"exec "
                 "server --listen 0.0.0.0:%llu --name "
                 "%s\"]},\"resources\":{\"cpu\":0.1,\"memory_mb\":64}}",
                 id, (unsigned long long)(8000 + n % 1000), id);
}

static void http_make(struct load *l, uint64_t first, uint64_t count)
{
        static struct str body;
        char id[64];
        str_clear(&body);
        str_adds(&body, l->each > 1 ? "{\"items\":[" : "");
        for (uint64_t n = first; n < first + count; n++) {
                name_of(l, n, id);
                str_adds(&body, n > first ? "," : "");
                add_workload(&body, id, n);
        }
        str_adds(&body, l->each > 1 ? "]}" : "");
        str_addf(&l->requests,
                 "POST /v1/workloads%s HTTP/1.1\r\nHost: bench\r\nContent-Type: "
                 "application/json\r\nContent-Length: %zu\r\n\r\n",
                 l->each > 1 ? ":batch" : "", body.len);
        str_add(&l->requests, body.buf, body.len);
}

static const char *request_at(const struct load *l, uint64_t first, size_t *ret_len)
{
        uint64_t i = first / l->each;
        size_t begin = i ? l->ends[i - 1] : 0;
        *ret_len = l->ends[i] - begin;
        return l->requests.buf + begin;
}

static void http_send(struct slot *s, uint64_t first)
{
        size_t len;
        const char *request = request_at(s->load, first, &len);
        s->got = 0;
        if (!s->event)
                http_connect(s);
        if (send(s->fd, request, len, MSG_NOSIGNAL) != (ssize_t)len)
                die("cannot send");
}

/* The length of the whole answer, 0 while that is not known. */
static size_t answer_len(const struct slot *s)
{
        const char *head_end = memmem(s->answer, s->got, "\r\n\r\n", 4);
        if (!head_end)
                return 0;
        const char *field =
            memmem(s->answer, (size_t)(head_end - s->answer), "Content-Length: ", 16);
        if (!field)
                return 0;
        return (size_t)(head_end - s->answer) + 4 + (size_t)strtoul(field + 16, NULL, 10);
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
        struct slot *s = ctx;
        (void)what;
        ssize_t n = recv(fd, s->answer + s->got, s->answer_size - s->got, 0);
        if (n < 0 && errno == EAGAIN)
                return;
        if (n <= 0 && !s->busy) { /* a server may close what is idle for long */
                event_free(s->event);
                close(s->fd);
                s->event = NULL;
                return;
        }
        if (n <= 0)
                die("the server closed a connection");
        s->got += (size_t)n;
        size_t len = answer_len(s);
        if (len > s->answer_size) {
                errno = EMSGSIZE;
                die("an answer is too large");
        }
        if (len == 0 || s->got < len)
                return;
        bool ok = memcmp(s->answer, "HTTP/1.1 20", 11) == 0 &&
                  (s->load->each == 1 || !memmem(s->answer, len, "\"outcome\":\"failed\"", 18));
        if (!ok && s->load->failed == 0)
                fprintf(stderr, "%.*s\n", (int)s->got, s->answer);
        end(s, ok);
}

/* ---- gRPC ---- */

/* Some of many may have been refused in an answer that is good as a whole. */
static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct slot *s = grpc_call_data(call);
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        s->refused = s->load->each > 1 && (pb_unpack_own(&pb__apply_workloads_response__descriptor,
                                                         data, len, &arena, &m, NULL) < 0 ||
                                           ((Pb__ApplyWorkloadsResponse *)m)->failed > 0);
        arena_fini(&arena);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct slot *s = grpc_call_data(call);
        if (status != GRPC_OK && s->load->failed == 0)
                fprintf(stderr, "%s: %s\n", grpc_status_name(status), grpc_call_message(call));
        end(s, status == GRPC_OK && !s->refused);
}

struct one_workload {
        Pb__Workload w;
        Pb__Spec spec;
        Pb__Resources res;
        char id[64], text[128];
        char *command[3];
};

static Pb__Workload *make(const struct load *l, struct one_workload *o, uint64_t n)
{
        o->w = (Pb__Workload)PB__WORKLOAD__INIT;
        o->spec = (Pb__Spec)PB__SPEC__INIT;
        o->res = (Pb__Resources)PB__RESOURCES__INIT;
        name_of(l, n, o->id);
        snprintf(o->text, sizeof(o->text), "exec server --listen 0.0.0.0:%llu --name %s",
                 (unsigned long long)(8000 + n % 1000), o->id);
        o->command[0] = "sh";
        o->command[1] = "-c";
        o->command[2] = o->text;
        o->w.id = o->id;
        o->w.type = PB__WORKLOAD_TYPE__E__process;
        o->spec.command = o->command;
        o->spec.n_command = ARRAY_LEN(o->command);
        o->res.cpu = 100;
        o->res.memory_mb = 64;
        o->w.spec = &o->spec;
        o->w.resources = &o->res;
        return &o->w;
}

static void grpc_make(struct load *l, uint64_t first, uint64_t count)
{
        static struct one_workload made[EACH_MAX];
        static Pb__Workload *items[EACH_MAX];
        Pb__ApplyWorkloadRequest one = PB__APPLY_WORKLOAD_REQUEST__INIT;
        Pb__ApplyWorkloadsRequest many = PB__APPLY_WORKLOADS_REQUEST__INIT;
        for (uint64_t i = 0; i < count; i++)
                items[i] = make(l, &made[i], first + i);
        one.workload = items[0];
        many.items = items;
        many.n_items = (size_t)count;
        pb_pack(&l->requests, l->each > 1 ? &many.base : &one.base);
}

static void grpc_send(struct slot *s, uint64_t first)
{
        static const struct grpc_callbacks on = { .on_message = on_message, .on_close = on_close };
        bool bulk = s->load->each > 1;
        size_t len;
        const char *request = request_at(s->load, first, &len);
        struct grpc_call *call = grpc_channel_call(s->channel,
                                                   bulk ? "/berth.v1.Control/ApplyWorkloads"
                                                        : "/berth.v1.Control/ApplyWorkload",
                                                   NULL, &on, s);
        grpc_call_send(call, request, len);
        grpc_call_half_close(call);
}

/* ---- the whole ---- */

static void make_all(struct load *l)
{
        l->ends = mem_must((l->total / l->each + 1) * sizeof(*l->ends));
        for (uint64_t n = 0, i = 0; n < l->total; n += l->each, i++) {
                uint64_t left = l->total - n;
                (l->is_grpc ? grpc_make : http_make)(l, n, left < l->each ? left : l->each);
                l->ends[i] = l->requests.len;
        }
        getrusage(RUSAGE_SELF, &l->before);
}

static void begin(struct load *l, struct slot *s)
{
        uint64_t n = l->started, left = l->total - n;
        s->n = left < l->each ? left : l->each;
        l->started += s->n;
        s->busy = true;
        s->due_ns = l->rate ? l->begin_ns + (int64_t)(n * 1000000000 / l->rate) : clock_mono_ns();
        if (l->is_grpc)
                grpc_send(s, n);
        else
                http_send(s, n);
}

static int by_value(const void *a, const void *b)
{
        int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
        return x < y ? -1 : x > y;
}

static double cpu_us_of(const struct rusage *u)
{
        return 1e6 * (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
               (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

static void print(struct load *l)
{
        struct rusage u;
        getrusage(RUSAGE_SELF, &u);
        double cpu_us = cpu_us_of(&u) - cpu_us_of(&l->before);
        double seconds = (double)(l->end_ns - l->begin_ns) / 1e9;
        qsort(l->took_ns, l->done, sizeof(int64_t), by_value);
        printf("done=%llu failed=%llu seconds=%.3f rate=%.0f p50_us=%lld p99_us=%lld max_us=%lld "
               "cpu_us=%.1f\n",
               (unsigned long long)l->done, (unsigned long long)l->failed, seconds,
               (double)l->done / seconds, (long long)(l->took_ns[l->done / 2] / 1000),
               (long long)(l->took_ns[l->done * 99 / 100] / 1000),
               (long long)(l->took_ns[l->done - 1] / 1000), cpu_us / (double)l->done);
}

int main(int argc, char **argv)
{
        uint64_t in_flight = 0;
        struct load l = { .prefix = argc > 6 ? argv[6] : "load", .each = 1 };
        struct grpc_channel **channels = NULL;
        struct err err;
        if (argc < 5 || argc > 8 || str_parse_u64(argv[3], &l.total) < 0 ||
            str_parse_u64(argv[4], &in_flight) < 0 ||
            (argc > 5 && str_parse_u64(argv[5], &l.rate) < 0) ||
            (argc > 7 && str_parse_u64(argv[7], &l.each) < 0) || l.each == 0 || l.each > EACH_MAX ||
            l.total == 0 || in_flight == 0 || l.total > 10000000 || in_flight > 10000 ||
            strlen(l.prefix) > 32) {
                fprintf(
                    stderr,
                    "usage: load http|grpc ADDRESS WORKLOADS IN_FLIGHT [RATE [PREFIX [EACH]]]\n");
                return 2;
        }
        l.address = argv[2];
        l.is_grpc = strcmp(argv[1], "grpc") == 0;
        struct event_config *config = event_config_new();
        event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
        l.base = event_base_new_with_config(config);
        event_config_free(config);
        l.took_ns = mem_must(l.total * sizeof(int64_t));
        l.idle = mem_must(in_flight * sizeof(void *));
        size_t n_channels = (size_t)(in_flight + STREAMS_PER_CHANNEL - 1) / STREAMS_PER_CHANNEL;
        channels = mem_must(n_channels * sizeof(void *));
        for (size_t i = 0; l.is_grpc && i < n_channels; i++)
                if (grpc_channel_create(l.base, argv[2], NULL, &channels[i], &err) < 0) {
                        fprintf(stderr, "error: %s\n", err_line(&err));
                        return 1;
                }
        struct slot *slots = mem_must(in_flight * sizeof(*slots));
        for (size_t i = 0; i < in_flight; i++) {
                slots[i].load = &l;
                slots[i].answer_size = ANSWER_BYTES + (l.each - 1) * RESULT_BYTES;
                slots[i].answer = mem_must(slots[i].answer_size);
                slots[i].channel = channels[i % n_channels];
                if (!l.is_grpc)
                        http_connect(&slots[i]);
                l.idle[l.n_idle++] = &slots[i];
        }
        struct event *tick = event_new(l.base, -1, EV_PERSIST, on_tick, &l);
        if (l.rate)
                event_add(tick, &(struct timeval){ .tv_usec = 500 });
        make_all(&l);
        l.begin_ns = clock_mono_ns();
        feed(&l);
        event_base_dispatch(l.base);
        print(&l);
        event_free(tick);
        for (size_t i = 0; i < in_flight; i++) {
                mem_free(slots[i].answer);
                if (slots[i].event) {
                        event_free(slots[i].event);
                        close(slots[i].fd);
                }
        }
        for (size_t i = 0; i < n_channels; i++)
                grpc_channel_destroy(channels[i]);
        event_base_free(l.base);
        mem_free(slots);
        str_fini(&l.requests);
        mem_free(l.ends);
        mem_free(channels);
        mem_free(l.idle);
        mem_free(l.took_ns);
        return l.failed ? 1 : 0;
}
