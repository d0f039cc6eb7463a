/* net/grpc_expect.c: a server's calls whose request is not there yet
 * (grpc_method.first_message_ms).
 *
 * Headers are cheap for whoever sends them. A call that has sent nothing else is ended after a
 * while, whether its client named a deadline or not. Methods have one of a few times, and the calls
 * of one time end in the order in which they began: so a queue for each time is enough, and a timer
 * that runs only while one of them has calls.
 *
 * Invariants:
 *   (1) A call is in the queue of its time from its headers until its first message (unary: the
 *       request's end) or its close.
 *   (2) The timer is armed whenever a queue is not empty.
 */
#include "base/mem.h"
#include "net/grpc_internal.h"
#include <event2/event.h>

enum { TIMES_MAX = 4, LOOK_MS = 500 };

struct queue_of {
        int64_t ms;
        struct grpc_call *head, *tail;
};

struct grpc_expected {
        struct event *timer;
        struct queue_of queues[TIMES_MAX];
        unsigned n;
};

static void look(struct grpc_expected *x)
{
        struct timeval tv = ms_timeval(LOOK_MS);
        bool any = false;

        for (unsigned i = 0; i < x->n; i++)
                any |= x->queues[i].head != NULL;
        if (any && !event_pending(x->timer, EV_TIMEOUT, NULL))
                event_add(x->timer, &tv);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
        struct grpc_expected *x = arg;
        int64_t now = mono_ms();
        (void)fd;
        (void)what;

        for (unsigned i = 0; i < x->n; i++) {
                struct queue_of *q = &x->queues[i];
                while (q->head && now - q->head->began_ns / 1000000 >= q->ms)
                        grpc_call_abort(
                            q->head, GRPC_DEADLINE_EXCEEDED,
                            fmt("the request was not there within %lld s of its headers",
                                (long long)(q->ms / 1000)));
        }
        look(x); /* (2) */
}

int grpc_expected_create(struct grpc_host *host, struct err *err)
{
        host->expected = mem_must(sizeof(*host->expected));
        host->expected->timer = evtimer_new(host->base, on_timer, host->expected);
        return host->expected->timer ? 0 : err_set(err, ERR_NOMEM, .msg = "no memory for a timer");
}

void grpc_expected_destroy(struct grpc_host *host)
{
        if (!host->expected)
                return;
        if (host->expected->timer)
                event_free(host->expected->timer);
        mem_free(host->expected);
        host->expected = NULL;
}

void grpc_expected_end(struct grpc_host *host)
{
        struct grpc_expected *x = host->expected;

        for (unsigned i = 0; i < x->n; i++)
                while (x->queues[i].head)
                        grpc_call_abort(x->queues[i].head, GRPC_UNAVAILABLE, "the server stops");
}

void grpc_call_expect(struct grpc_call *call, int64_t ms)
{
        struct grpc_expected *x = call->host->expected;
        unsigned i = 0;

        while (i < x->n && x->queues[i].ms != ms)
                i++;
        if (i == x->n) {
                must(x->n < TIMES_MAX, "methods wait for their messages for one of four times");
                x->queues[x->n++].ms = ms;
        }
        struct queue_of *q = &x->queues[i];
        call->expected = (uint8_t)(i + 1);
        call->expect_prev = q->tail;
        call->expect_next = NULL;
        if (q->tail)
                q->tail->expect_next = call;
        else
                q->head = call;
        q->tail = call;
        look(x);
}

void grpc_call_arrived(struct grpc_call *call)
{
        if (!call->expected)
                return;
        struct queue_of *q = &call->host->expected->queues[call->expected - 1];
        if (call->expect_prev)
                call->expect_prev->expect_next = call->expect_next;
        else
                q->head = call->expect_next;
        if (call->expect_next)
                call->expect_next->expect_prev = call->expect_prev;
        else
                q->tail = call->expect_prev;
        call->expect_next = call->expect_prev = NULL;
        call->expected = 0;
}
