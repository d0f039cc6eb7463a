/* server/view.c: see view.h. */
#include "server/view.h"

#include "base/log.h"
#include "base/mem.h"

#define TRY_AGAIN_MS 5000

struct view {
        const struct core *live;
        struct core *core; /* NULL: the store cannot be read */
        struct err err;
        int64_t tried_ms;
};

static int load_record(void *ctx, const struct store_record *record, struct err *err)
{
        struct err bad = { 0 };
        (void)err;
        /* a bad one was told of when the server started */
        core_load_record(ctx, record->key, record->data, record->len, &bad);
        return 0;
}

static void load(struct view *v, struct server *s)
{
        struct store_reader *reader = NULL;
        struct core *core = core_create(&s->opt.core);
        uint64_t head = 0;
        int64_t t0 = mono_ms();
        v->err = (struct err){ 0 };
        v->tried_ms = t0;
        int r = store_reader_open(s->store, &reader, &v->err);
        if (r >= 0)
                r = store_reader_records(reader, load_record, core, &head, &v->err);
        if (reader)
                store_reader_close(reader);
        if (r < 0) {
                log_warn("the store takes no commits and cannot be read either", LOG_E(&v->err));
                core_destroy(core);
                return;
        }
        core_view(core, v->live, head);
        v->core = core;
        log_info("the store is away: reads are answered from what is committed",
                 LOG_I("head", head), LOG_I("ahead", core_head(v->live) - head),
                 LOG_I("took_ms", mono_ms() - t0));
}

struct view *view_open(struct server *s, const struct core *live)
{
        struct view *v = mem_must(sizeof(*v));
        v->live = live;
        load(v, s);
        return v;
}

void view_close(struct view *v)
{
        if (!v)
                return;
        if (v->core)
                core_destroy(v->core);
        mem_free(v);
}

static void release(struct server *s, struct core *core)
{
        struct core_batch *b;
        while ((b = core_cut(core))) {
                must(b->commit.n_events == 0 && b->commit.n_records == 0,
                     "R5: a view decides nothing");
                server_release(s, b);
        }
}

static void refuse(struct view *v, struct server *s, struct ring_msg *const *msgs, size_t n)
{
        struct core_batch *b = mem_must(sizeof(*b));
        b->memory = mem_must(sizeof(*b->memory));
        struct err *err = arena_new(b->memory, struct err);
        err_set(err, ERR_UNAVAILABLE, .msg = "the store is away, and cannot be read",
                .detail = err_line(&v->err), .hint = "try again; /health says since when",
                .retry_after_ms = 2000);
        b->replies = arena_new_n(b->memory, struct reply, n);
        for (size_t i = 0; i < n; i++)
                b->replies[b->n_replies++] =
                    (struct reply){ .ticket = msgs[i]->in.reply, .err = err };
        server_release(s, b);
}

void view_answer(struct view *v, struct server *s, struct ring_msg *const *msgs, size_t n,
                 int64_t now_ms)
{
        if (!v->core && mono_ms() - v->tried_ms >= TRY_AGAIN_MS)
                load(v, s);
        if (!v->core) {
                refuse(v, s, msgs, n);
                return;
        }
        for (size_t i = 0; i < n; i++) {
                msgs[i]->in.now_ms = now_ms;
                if (msgs[i]->in.kind == INPUT_PLAN)
                        refuse(v, s, &msgs[i], 1);
                else
                        core_read(v->core, &msgs[i]->in);
        }
        release(s, v->core);
}
