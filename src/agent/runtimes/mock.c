/* agent/runtimes/mock.c: see mock.h. One timer per unit; everything else follows from the seed. */
#include "agent/runtimes/mock.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/str.h"
#include <event2/event.h>
#include <signal.h>
#include <string.h>

enum mock_phase { MOCK_STARTING, MOCK_UP, MOCK_STOPPING };

struct mock_unit {
        struct runtime *rt;
        uint32_t ix;
        char *id;
        struct unit_token token;
        enum mock_phase phase;
        bool is_job, fails, crashes;
        struct rng rng;
        struct event *timer;
};

struct mock_stream {
        struct stream stream; /* first */
        struct runtime *rt;
        struct stream_sink sink;
        struct event *turn;
        char *text;
        bool is_exec;
};

struct runtime {
        struct event_base *base;
        struct mock_options opt;
        void (*on_event)(void *ctx, const struct runtime_event *event);
        void *ctx;
        ARRAY(struct mock_unit *) units; /* NULL: free */
        ARRAY(uint32_t) free_ix;
        struct map by_id;
        ARRAY(struct mock_stream *) streams;
        struct rng rng;
        uint32_t n_units;
};

void mock_options_default(struct mock_options *opt)
{
        *opt = (struct mock_options){
                .seed = 1,
                .start_min_ms = 20,
                .start_max_ms = 200,
                .stop_min_ms = 5,
                .stop_max_ms = 50,
                .job_min_ms = 500,
                .job_max_ms = 5000,
                .cpu_total = 16000,
                .memory_total_mb = 65536,
        };
}

static int64_t between(struct rng *r, int64_t low, int64_t high)
{
        return high > low ? low + (int64_t)rng_below(r, (uint64_t)(high - low + 1)) : low;
}

static struct map_key key_of_mock(const void *ctx, uint32_t ix)
{
        const struct runtime *rt = ctx;

        return (struct map_key){ rt->units.at[ix]->id, strlen(rt->units.at[ix]->id) };
}

static struct mock_unit *mock_find_unit(struct runtime *rt, const char *id)
{
        uint32_t ix = map_get(&rt->by_id, id, strlen(id));

        return ix == MAP_NONE ? NULL : rt->units.at[ix];
}

static void mock_unit_free(struct mock_unit *u)
{
        struct runtime *rt = u->rt;

        map_remove(&rt->by_id, u->ix);
        rt->units.at[u->ix] = NULL;
        *array_push(&rt->free_ix) = u->ix;
        rt->n_units--;
        event_free(u->timer);
        mem_free(u->id);
        mem_free(u);
}

static void in_ms(struct event *timer, int64_t ms)
{
        struct timeval tv = { ms / 1000, (ms % 1000) * 1000 };

        evtimer_add(timer, &tv);
}

/* The unit is gone before anybody is told: the receiver may start it again at once. */
static void mock_end(struct mock_unit *u, struct runtime_event *ev)
{
        struct runtime *rt = u->rt;
        char *id = mem_strdup(u->id);

        ev->workload_id = id;
        ev->token = u->token;
        ev->at_ms = clock_wall_ms();
        mock_unit_free(u);
        rt->on_event(rt->ctx, ev);
        mem_free(id);
}

static void mock_turn(evutil_socket_t fd, short what, void *arg)
{
        struct mock_unit *u = arg;
        const struct mock_options *opt = &u->rt->opt;

        (void)fd, (void)what;
        switch (u->phase) {
        case MOCK_STARTING:
                if (u->fails) {
                        mock_end(u, &(struct runtime_event){
                                        .kind = RUNTIME_START_FAILED,
                                        .reason = PB__REASON__E__start_failed,
                                        .message = "the mock runtime was told to fail" });
                        return;
                }
                u->phase = MOCK_UP;
                if (u->is_job || u->crashes)
                        in_ms(u->timer, between(&u->rng, opt->job_min_ms, opt->job_max_ms));
                u->rt->on_event(u->rt->ctx, &(struct runtime_event){ .kind = RUNTIME_STARTED,
                                                                     .workload_id = u->id,
                                                                     .token = u->token,
                                                                     .at_ms = clock_wall_ms(),
                                                                     .pid = 1 });
                break;
        case MOCK_UP:
                mock_end(u, &(struct runtime_event){ .kind = RUNTIME_EXITED,
                                                     .has_exit_code = true,
                                                     .exit_code = u->crashes ? 1 : 0 });
                break;
        case MOCK_STOPPING:
                mock_end(u, &(struct runtime_event){
                                .kind = RUNTIME_STOPPED, .has_signal = true, .signal = SIGTERM });
                break;
        }
}

static void mock_start(struct runtime *rt, const struct runtime_start *start)
{
        struct mock_unit *u;

        if (mock_find_unit(rt, start->workload_id)) {
                rt->on_event(rt->ctx, &(struct runtime_event){
                                          .kind = RUNTIME_START_FAILED,
                                          .workload_id = start->workload_id,
                                          .token = start->token,
                                          .reason = PB__REASON__E__start_failed,
                                          .message = "an earlier copy of this unit still runs" });
                return;
        }
        u = mem_must(sizeof(*u));
        u->rt = rt;
        u->id = mem_strdup(start->workload_id);
        u->token = start->token;
        u->is_job = start->workload->restart == PB__RESTART__E__never ||
                    start->workload->restart == PB__RESTART__E__on_failure;
        rng_seed(&u->rng, hash64_mix(hash64_mix(rt->opt.seed, hash64(u->id, strlen(u->id))),
                                     start->token.seq));
        u->fails = rng_chance(&u->rng, rt->opt.start_fail_per_million);
        u->crashes = rng_chance(&u->rng, rt->opt.crash_per_million);
        if (rt->free_ix.len)
                u->ix = array_pop(&rt->free_ix);
        else {
                u->ix = (uint32_t)rt->units.len;
                array_push(&rt->units);
        }
        rt->units.at[u->ix] = u;
        map_put(&rt->by_id, u->ix);
        rt->n_units++;
        u->timer = evtimer_new(rt->base, mock_turn, u);
        in_ms(u->timer, between(&u->rng, rt->opt.start_min_ms, rt->opt.start_max_ms));
}

static void mock_stop(struct runtime *rt, const char *workload_id, struct unit_token token,
                      int64_t grace_ms)
{
        struct mock_unit *u = mock_find_unit(rt, workload_id);
        int64_t wait;

        if (!u) {
                rt->on_event(rt->ctx, &(struct runtime_event){ .kind = RUNTIME_STOPPED,
                                                               .workload_id = workload_id,
                                                               .token = token,
                                                               .at_ms = clock_wall_ms() });
                return;
        }
        if (u->phase == MOCK_STOPPING)
                return;
        u->phase = MOCK_STOPPING;
        wait = between(&u->rng, rt->opt.stop_min_ms, rt->opt.stop_max_ms);
        in_ms(u->timer, wait < grace_ms ? wait : grace_ms);
}

static void mock_remove(struct runtime *rt, const char *workload_id)
{
        if (!mock_find_unit(rt, workload_id))
                rt->on_event(rt->ctx, &(struct runtime_event){ .kind = RUNTIME_REMOVED,
                                                               .workload_id = workload_id,
                                                               .at_ms = clock_wall_ms() });
}

static int mock_find(struct runtime *rt, struct err *err)
{
        (void)rt, (void)err;
        return 0;
}

/* Figures that change with every call, so that heartbeats are never the same twice. */
static void mock_usage(struct runtime *rt, struct runtime_usage *ret)
{
        *ret = (struct runtime_usage){
                .known = true,
                .cpu_used =
                    rt->opt.cpu_total * between(&rt->rng, 5, 60) / 100 + between(&rt->rng, 0, 99),
                .memory_used_mb = rt->opt.memory_total_mb * between(&rt->rng, 10, 70) / 100 +
                                  between(&rt->rng, 0, 99),
                .disk_used_gb = between(&rt->rng, 10, 200),
        };
}

/* ---- streams: one line and the end ---- */

static void mock_stream_free(struct mock_stream *s)
{
        struct runtime *rt = s->rt;

        for (size_t i = 0; i < rt->streams.len; i++)
                if (rt->streams.at[i] == s) {
                        rt->streams.at[i] = rt->streams.at[--rt->streams.len];
                        break;
                }
        event_free(s->turn);
        mem_free(s->text);
        mem_free(s);
}

static void mock_stream_turn(evutil_socket_t fd, short what, void *arg)
{
        struct mock_stream *s = arg;
        struct stream_sink sink = s->sink;
        char *text = TAKE_PTR(s->text);
        bool is_exec = s->is_exec;

        (void)fd, (void)what;
        mock_stream_free(s);
        sink.data(sink.ctx, false, clock_wall_ms(), text, strlen(text));
        mem_free(text);
        sink.end(sink.ctx, is_exec, 0, NULL);
}

static void mock_stream_nothing(struct stream *s)
{
        (void)s;
}
static bool mock_stream_write(struct stream *s, const void *data, size_t len)
{
        (void)s, (void)data, (void)len;
        return true;
}
static void mock_stream_resize(struct stream *s, int rows, int cols)
{
        (void)s, (void)rows, (void)cols;
}
static void mock_stream_close(struct stream *s)
{
        mock_stream_free((struct mock_stream *)s);
}
static const struct stream_ops mock_stream_ops = { mock_stream_nothing, mock_stream_write,
                                                   mock_stream_nothing, mock_stream_resize,
                                                   mock_stream_close,   NULL };

static int mock_stream_open(struct runtime *rt, const char *id, bool is_exec, const char *text,
                            const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        struct mock_stream *s;

        if (!mock_find_unit(rt, id))
                return err_set(err, ERR_NOT_FOUND, .msg = fmt("this node has no unit %s", id));
        s = mem_must(sizeof(*s));
        s->stream.ops = &mock_stream_ops;
        s->rt = rt;
        s->sink = *sink;
        s->text = mem_strdup(text);
        s->is_exec = is_exec;
        s->turn = evtimer_new(rt->base, mock_stream_turn, s);
        *array_push(&rt->streams) = s;
        in_ms(s->turn, 0);
        *ret = &s->stream;
        return 0;
}

static int mock_logs(struct runtime *rt, const char *workload_id, const struct log_options *opt,
                     const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        (void)opt;
        return mock_stream_open(rt, workload_id, false,
                                fmt("mock unit %s prints nothing\n", workload_id), sink, ret, err);
}

static int mock_exec(struct runtime *rt, const char *workload_id, const struct exec_options *opt,
                     const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        return mock_stream_open(rt, workload_id, true,
                                fmt("mock unit %s did not run %s\n", workload_id,
                                    opt->argv && opt->argv[0] ? opt->argv[0] : ""),
                                sink, ret, err);
}

/* ---- life ---- */

static int mock_open(const struct runtime_options *opt, struct runtime **ret, struct err *err)
{
        struct runtime *rt = mem_must(sizeof(*rt));

        (void)err;
        rt->base = opt->base;
        if (opt->extra)
                rt->opt = *(const struct mock_options *)opt->extra;
        else
                mock_options_default(&rt->opt);
        rt->on_event = opt->on_event;
        rt->ctx = opt->ctx;
        rng_seed(&rt->rng,
                 hash64_mix(rt->opt.seed,
                            opt->node_id ? hash64(opt->node_id, strlen(opt->node_id)) : 0));
        map_init(&rt->by_id, key_of_mock, rt);
        *ret = rt;
        return 0;
}

static void mock_close(struct runtime *rt)
{
        while (rt->streams.len)
                mock_stream_free(rt->streams.at[0]);
        for (size_t i = 0; i < rt->units.len; i++)
                if (rt->units.at[i])
                        mock_unit_free(rt->units.at[i]);
        array_fini(&rt->streams);
        array_fini(&rt->units);
        array_fini(&rt->free_ix);
        map_fini(&rt->by_id);
        mem_free(rt);
}

static const Pb__WorkloadType__E mock_types[] = { PB__WORKLOAD_TYPE__E__container,
                                                  PB__WORKLOAD_TYPE__E__compose,
                                                  PB__WORKLOAD_TYPE__E__vm,
                                                  PB__WORKLOAD_TYPE__E__process, 0 };

const struct runtime_ops runtime_mock = {
        .name = "mock",
        .types = mock_types,
        .exclusive_types = mock_types, /* its units end with it */
        .open = mock_open,
        .close = mock_close,
        .find = mock_find,
        .start = mock_start,
        .stop = mock_stop,
        .remove = mock_remove,
        .logs = mock_logs,
        .exec = mock_exec,
        .usage = mock_usage,
};
