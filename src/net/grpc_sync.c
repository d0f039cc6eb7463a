/* net/grpc_sync.c: one call, waited for. For an agent that has no loop yet: it joins, or looks at
 * its cluster. See grpc.h. */
#include "base/mem.h"
#include "net/grpc.h"
#include <event2/event.h>

struct waiting {
        struct event_base *base;
        struct grpc_reply reply;
        unsigned messages;
        bool done;
};

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct waiting *w = grpc_call_data(call);

        if (w->messages++ == 0)
                str_add(&w->reply.data, data, len);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct waiting *w = grpc_call_data(call);
        size_t len = 0;
        const char *error = grpc_call_trailer(call, GRPC_ERROR_TRAILER, &len);

        w->done = true;
        w->reply.status = status;
        w->reply.message = mem_strdup(grpc_call_message(call));
        if (error)
                str_add(&w->reply.error, error, len);
        if (status == GRPC_OK && w->messages != 1) {
                w->reply.status = GRPC_INTERNAL;
                mem_free(w->reply.message);
                w->reply.message = mem_strdup(w->messages ? "more than one answer to a unary call"
                                                          : "no answer to a unary call");
        }
        if (w->reply.status != GRPC_OK)
                str_clear(&w->reply.data);
        event_base_loopbreak(w->base);
}

void grpc_reply_fini(struct grpc_reply *reply)
{
        mem_free(reply->message);
        str_fini(&reply->data);
        str_fini(&reply->error);
        *reply = (struct grpc_reply){ 0 };
}

static void base_freep(struct event_base **base)
{
        if (*base)
                event_base_free(*base);
}

int grpc_call_sync(const char *target, const struct grpc_channel_options *options,
                   const struct grpc_metadata *metadata, const char *path, const void *request,
                   size_t len, int64_t deadline_ms, struct grpc_reply *ret_reply, struct err *err)
{
        static const struct grpc_callbacks on = { .on_message = on_message, .on_close = on_close };
        _cleanup_(base_freep) struct event_base *base = event_base_new();
        _cleanup_(grpc_channel_destroyp) struct grpc_channel *channel = NULL;
        struct waiting w = { .base = base };

        if (!base)
                return err_set(err, ERR_NOMEM, .msg = "no memory for an event loop");
        int r = grpc_channel_create(base, target, options, &channel, err);
        if (r < 0)
                return r;
        struct grpc_call_options o = { .deadline_ms = deadline_ms, .metadata = metadata };
        struct grpc_call *call = grpc_channel_call(channel, path, &o, &on, &w);
        grpc_call_send(call, request, len);
        grpc_call_half_close(call);
        while (!w.done)
                if (event_base_dispatch(base) != 0)
                        break;
        if (!w.done) {
                grpc_channel_destroy(TAKE_PTR(channel)); /* brings on_close, with w still there */
                w.reply.status = GRPC_INTERNAL;
        }
        *ret_reply = w.reply;
        return 0;
}
