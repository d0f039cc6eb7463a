/* net/test_rig.h: for the tests of src/net: one loop with a gRPC server and clients on it, and
 * probes that record what calls did. */
#ifndef BERTH_NET_TEST_RIG_H
#define BERTH_NET_TEST_RIG_H

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "net/grpc.h"
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Runs the loop until cond holds; fails the test after ten seconds. */
#define UNTIL(base, cond)                                                                          \
        do {                                                                                       \
                int64_t _end = clock_mono_ns() + INT64_C(10000000000);                             \
                while (!(cond)) {                                                                  \
                        struct timeval _tick = { .tv_usec = 20000 };                               \
                        event_base_loopexit((base), &_tick);                                       \
                        event_base_loop((base), EVLOOP_ONCE);                                      \
                        if (clock_mono_ns() > _end)                                                \
                                fail_msg("waited in vain for: %s", #cond);                         \
                }                                                                                  \
        } while (0)

/* Lets the loop run for a while when nothing is expected to happen. */
static inline void settle_ms(struct event_base *base, int64_t ms)
{
        struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
        event_base_loopexit(base, &tv);
        event_base_dispatch(base);
}

/* What a client's call did. */
struct probe {
        struct grpc_call *call;
        bool started, closed;
        enum grpc_status status;
        char message[512];
        uint32_t n; /* messages */
        size_t bytes;
        struct str last;  /* the last message */
        struct str error; /* trailer berth-error-bin */
        char header[64], trailer[64];
        bool pause_each;               /* pause after each message */
        void (*then)(struct probe *p); /* in on_close */
        void *ctx;
};

static inline void probe_start(struct grpc_call *call)
{
        struct probe *p = grpc_call_data(call);
        const char *h = grpc_call_header(call, "x-out", NULL);
        p->started = true;
        snprintf(p->header, sizeof(p->header), "%s", h ? h : "");
}

static inline void probe_message(struct grpc_call *call, const void *data, size_t len)
{
        struct probe *p = grpc_call_data(call);
        p->n++;
        p->bytes += len;
        str_clear(&p->last);
        str_add(&p->last, data, len);
        if (p->pause_each)
                grpc_call_pause(call);
}

static inline void probe_close(struct grpc_call *call, enum grpc_status status)
{
        struct probe *p = grpc_call_data(call);
        size_t len;
        const char *e = grpc_call_trailer(call, GRPC_ERROR_TRAILER, &len),
                   *t = grpc_call_trailer(call, "x-out-trailer", NULL);
        assert_false(p->closed);
        p->closed = true;
        p->status = status;
        p->call = NULL;
        snprintf(p->message, sizeof(p->message), "%s", grpc_call_message(call));
        snprintf(p->trailer, sizeof(p->trailer), "%s", t ? t : "");
        if (e)
                str_add(&p->error, e, len);
        if (p->then)
                p->then(p);
}

static const struct grpc_callbacks probe_callbacks = { .on_start = probe_start,
                                                       .on_message = probe_message,
                                                       .on_close = probe_close };

static inline void probe_fini(struct probe *p)
{
        str_fini(&p->last);
        str_fini(&p->error);
        *p = (struct probe){ 0 };
}

static inline void probe_call(struct probe *p, struct grpc_channel *ch, const char *path,
                              const struct grpc_call_options *o)
{
        p->call = grpc_channel_call(ch, path, o, &probe_callbacks, p);
}

/* A unary call with a text. */
static inline void probe_unary(struct probe *p, struct grpc_channel *ch, const char *path,
                               const char *text, const struct grpc_call_options *o)
{
        probe_call(p, ch, path, o);
        grpc_call_send(p->call, text, strlen(text));
        grpc_call_half_close(p->call);
}

/* ---- a service for tests: see test_service.c ---- */

struct test_service {
        uint32_t started, closed, half_closed, messages;
        enum grpc_status last_status;
        struct grpc_call *last; /* NULL once it is closed */
        uint64_t last_id;
        size_t most_queued;
        char seen_uri[128], seen_cn[64], seen_peer[64];
        int64_t seen_remaining_ms;
        bool lets_in; /* whoever calls */
};
#define SERVICE "/berth.test.Test/"
/* Echo, Sum, Count, Chat, Hang, Fail, Meta under SERVICE. */
int test_service_add(struct grpc_server *server, struct test_service *service, struct err *err);

#endif
