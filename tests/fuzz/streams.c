/* What a viewer asks of an event stream, by both doors: the same text in each field of the filter,
 * over HTTP and over gRPC. Then something happens. Whoever asked for everything about the workload
 * that it happens to hears of it, and nothing that the streams keep of their request may be gone by
 * then.
 *
 * The input is five texts with a newline between them: type, workload, node, rule, since. */
#include "fuzz_server.h"

#include "net/grpc.h"
#include <event2/event.h>

#define NAME "planted"
#define PATIENCE_MS 60000

enum { TYPE, WORKLOAD, NODE, RULE, SINCE, FIELDS };

static struct event_base *base;
static struct grpc_channel *channel;
static char mark[32] = "none yet"; /* a label of the change that the streams are waiting for */

struct watch {
        bool accepted, heard, closed;
};

static void on_start(struct grpc_call *call)
{
        ((struct watch *)grpc_call_data(call))->accepted = true;
}

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct watch *w = grpc_call_data(call);
        if (memmem(data, len, mark, strlen(mark)))
                w->heard = true;
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        (void)status;
        ((struct watch *)grpc_call_data(call))->closed = true;
}

static void turn_until(const bool *done, const bool *closed)
{
        for (int i = 0; i < PATIENCE_MS / 10 && !*done && !*closed; i++) {
                event_base_loopexit(base, &(struct timeval){ .tv_usec = 10000 });
                event_base_loop(base, EVLOOP_ONCE);
        }
}

/* Percent-encoded, so that any byte can be in any field. */
static void add_field(struct str *q, const char *name, const char *text)
{
        str_addf(q, "%s%s=", q->len ? "&" : "?", name);
        for (const unsigned char *p = (const unsigned char *)text; *p; p++)
                str_addf(q, "%%%02x", *p);
}

static int open_http(char *const field[FIELDS], struct str *heard)
{
        static const char *const names[FIELDS] = { "type", "workload", "node", "rule", "since" };
        struct str query = STR_INIT, q = STR_INIT;
        for (size_t i = 0; i < FIELDS; i++)
                if (field[i][0])
                        add_field(&query, names[i], field[i]);
        str_addf(&q,
                 "GET /v1/events/stream%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
                 str_c(&query), fuzz_server_admin());
        int fd = fuzz_dial(fuzz_server_port());
        MUST(send(fd, q.buf, q.len, MSG_NOSIGNAL) == (ssize_t)q.len, "sent");
        fuzz_hear(fd, PATIENCE_MS, "\r\n\r\n", heard);
        str_fini(&query);
        str_fini(&q);
        return fd;
}

static struct grpc_call *open_grpc(char *const field[FIELDS], struct watch *w)
{
        static const struct grpc_callbacks on = { .on_start = on_start,
                                                  .on_message = on_message,
                                                  .on_close = on_close };
        struct grpc_call *call =
            grpc_channel_call(channel, "/berth.v1.Control/WatchEvents", NULL, &on, w);
        Pb__ListEventsRequest req = PB__LIST_EVENTS_REQUEST__INIT;
        struct str packed = STR_INIT;
        req.type = field[TYPE];
        req.workload = field[WORKLOAD];
        req.node = field[NODE];
        req.rule = field[RULE];
        req.since = strtoull(field[SINCE], NULL, 10);
        pb_pack(&packed, &req.base);
        grpc_call_send(call, packed.buf, packed.len);
        grpc_call_half_close(call);
        str_fini(&packed);
        turn_until(&w->accepted, &w->closed);
        MUST(w->accepted || w->closed, "a stream is accepted or refused");
        return call;
}

static void start(void)
{
        struct grpc_channel_options opt = { .token = fuzz_server_admin(), .keepalive_ms = -1 };
        struct err err = { 0 };
        base = event_base_new();
        MUST(grpc_channel_create(base, fuzz_server_grpc(), &opt, &channel, &err) == 0, "%s",
             err_line(&err));
}

static void change(void)
{
        static unsigned n;
        struct str answer = STR_INIT;
        snprintf(mark, sizeof(mark), "change-%08u", ++n);
        fuzz_ask("PUT", "/v1/workloads/" NAME,
                 fmt("{\"spec\":{\"command\":[\"x\"]},\"labels\":{\"n\":\"%s\"}}", mark), &answer);
        str_fini(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (fuzz_server_start())
                start();
        char *text = strndup((const char *)data, size), *rest = text, *field[FIELDS];
        for (size_t i = 0; i < FIELDS; i++)
                field[i] = (char *)(rest ? strsep(&rest, "\n") : "");
        struct str heard = STR_INIT;
        struct watch w = { 0 };
        int fd = open_http(field, &heard);
        struct grpc_call *call = open_grpc(field, &w);
        bool served = str_starts(str_c(&heard), "HTTP/1.1 200");
        change();
        bool wants = (!field[WORKLOAD][0] || str_eq(field[WORKLOAD], NAME)) && !field[TYPE][0] &&
                     !field[NODE][0] && !field[RULE][0] && !field[SINCE][0];
        if (wants) {
                MUST(served && w.accepted, "a plain stream is served: %s", str_c(&heard));
                fuzz_hear(fd, PATIENCE_MS, mark, &heard);
                MUST(strstr(str_c(&heard), mark), "HTTP hears of it: %s", str_c(&heard));
                turn_until(&w.heard, &w.closed);
                MUST(w.heard, "gRPC hears of it");
        }
        close(fd);
        if (!w.closed) {
                grpc_call_cancel(call);
                bool never = false;
                turn_until(&never, &w.closed);
        }
        MUST(w.closed, "a cancelled call ends");
        str_fini(&heard);
        free(text);
        return 0;
}
