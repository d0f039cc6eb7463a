/* cli/follow.c: see follow.h. */
#include "cli/follow.h"
#include "cli/progress.h"
#include <poll.h>

#define AGAIN_MS 300

struct following {
        client_message_fn fn;
        void *ctx;
        uint64_t last;
        struct progress progress;
};

static int on_event(void *ctx, const ProtobufCMessage *message, struct err *err)
{
        struct following *f = ctx;
        const Pb__Event *e = (const Pb__Event *)message;
        if (!e)
                return 0;
        if (e->seq <= f->last)
                return 0;
        progress_clear(&f->progress);
        int r = f->fn(f->ctx, message, err);
        if (r == 0)
                f->last = e->seq;
        return r;
}

/* A server that has not come as far as we have seen has another past. */
static int look_at_head(struct cli *cli, struct following *f, struct err *err)
{
        struct arena memory = ARENA_INIT;
        Pb__Empty empty = PB__EMPTY__INIT;
        const Pb__ClusterInfo *c =
            client_call(cli, &memory, "GetCluster", &empty, &pb__cluster_info__descriptor, err);
        if (c && c->head < f->last) {
                progress_note(&f->progress,
                              "the store was put back to an earlier state, or lost: it is at event "
                              "%llu, and %llu was seen; following from there",
                              (unsigned long long)c->head, (unsigned long long)f->last);
                f->last = c->head;
        }
        arena_fini(&memory);
        return c ? 0 : -(int)err->code;
}

int follow_events(struct cli *cli, Pb__ListEventsRequest *q, client_message_fn fn, void *ctx,
                  struct err *err)
{
        struct following f = { .fn = fn, .ctx = ctx, .last = q->since };
        uint64_t tries = 0;
        int r;
        progress_init(&f.progress, cli);
        q->follow = true;
        for (;;) {
                struct err own = { 0 };
                r = tries++ > 0 ? look_at_head(cli, &f, &own) : 0;
                q->since = f.last;
                if (r == 0)
                        r = client_stream(cli, "WatchEvents", q, &pb__event__descriptor, 0,
                                          on_event, &f, &own);
                if (r == CLIENT_INTERRUPTED || (r < 0 && !client_may_pass(&own))) {
                        *err = own;
                        break;
                }
                progress_show(&f.progress, "%s; trying again",
                              r < 0 ? own.msg : "the server has ended the stream");
                (void)poll(NULL, 0, AGAIN_MS);
        }
        progress_clear(&f.progress);
        return r == CLIENT_INTERRUPTED ? 0 : r;
}
