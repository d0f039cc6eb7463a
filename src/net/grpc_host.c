/* net/grpc_host.c: what a server and a channel have in common: the ids of their calls, and the list
 * of calls that the loop must visit.
 *
 * Whatever an owner is told that it did not ask for in the same breath (on_close, on_drain,
 * messages after a resume) comes from such a visit, so that no function of grpc.h calls its caller
 * back from inside.
 *
 * Invariants:
 *   (1) A call is in the list at most once (in_work), and the list holds a reference to it.
 *   (2) on_close is called by drop() alone, once (dropped), and gives up the owner's reference.
 *   (3) After grpc_host_fini() no call refers to the host, not even one that somebody is just
 *       inside of.
 */
#include "net/grpc_internal.h"
#include <event2/event.h>

static void run_work(evutil_socket_t fd, short what, void *arg);

int grpc_host_init(struct grpc_host *host, struct event_base *base, struct err *err)
{
        host->base = base;
        host->work_event = event_new(base, -1, 0, run_work, host);
        if (!host->work_event)
                return err_set(err, ERR_NOMEM, .msg = "no memory for an event");
        return 0;
}

struct grpc_call *grpc_host_call(struct grpc_host *host, uint64_t id)
{
        struct grpc_call *call = slots_get(&host->calls, id);

        return call && !call->closed ? call : NULL;
}

void grpc_call_work(struct grpc_call *call)
{
        struct grpc_host *host = call->host;

        if (call->in_work || !host)
                return;
        call->in_work = true;
        call->work_next = NULL;
        grpc_call_ref(call);
        if (host->work_tail)
                host->work_tail->work_next = call;
        else {
                host->work_head = call;
                event_active(host->work_event, EV_WRITE, 0);
        }
        host->work_tail = call;
}

static void drop(struct grpc_call *call)
{
        struct grpc_host *host = call->host;

        if (call->dropped)
                return;
        call->dropped = true;
        if (call->on.on_close)
                call->on.on_close(call, call->status);
        if (host && call->host) {
                host->n_calls--;
                slots_drop(&host->calls, call->id);
        }
        grpc_call_unref(call); /* the owner's */
}

static void visit(struct grpc_call *call)
{
        if (call->closed) {
                drop(call);
                return;
        }
        if (call->resume_due) {
                call->resume_due = false;
                grpc_call_deliver_held(call);
        }
        if (call->drain_wanted && !call->closed && !call->local_done &&
            grpc_call_queued_bytes(call) <= call->max_queued_bytes / 4) {
                call->drain_wanted = false;
                if (call->on.on_drain)
                        call->on.on_drain(call);
        }
}

/* Visits what is in the list now; what comes in meanwhile waits for the next turn, so that no call
 * can keep the loop busy. */
static void run_work(evutil_socket_t fd, short what, void *arg)
{
        struct grpc_host *host = arg;
        struct grpc_call *call = host->work_head, *last = host->work_tail, *next;
        (void)fd;
        (void)what;

        for (bool more = call; more; call = next) {
                more = call != last;
                next = call->work_next;
                host->work_head = next;
                if (!next)
                        host->work_tail = NULL;
                call->work_next = NULL;
                call->in_work = false;
                visit(call);
                /* an owner may destroy the host in a callback; then the list is gone as well */
                bool host_gone = !call->host;
                grpc_call_unref(call);
                if (host_gone)
                        return;
        }
        if (host->work_head)
                event_active(host->work_event, EV_WRITE, 0);
}

void grpc_host_fini(struct grpc_host *host, enum grpc_status status)
{
        host->ending = true;
        for (size_t i = 0; i < host->calls.all.len; i++) {
                struct grpc_call *call = host->calls.all.at[i].object;
                if (!call || call->dropped) /* dropped: its on_close is what brought us here */
                        continue;
                grpc_call_ref(call);
                grpc_call_close(call, status, "the connection was shut down here");
                drop(call);
                call->host = NULL;
                grpc_call_unref(call);
        }
        /* What is still held by somebody in a callback must not find the host again. */
        while (host->work_head) {
                struct grpc_call *call = host->work_head;
                host->work_head = call->work_next;
                call->in_work = false;
                call->host = NULL;
                grpc_call_unref(call);
        }
        for (size_t i = 0; i < host->calls.all.len; i++) {
                struct grpc_call *call = host->calls.all.at[i].object;
                if (call)
                        call->host = NULL;
        }
        slots_fini(&host->calls);
        if (host->work_event)
                event_free(host->work_event);
        host->work_event = NULL;
}
