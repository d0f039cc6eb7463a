/* agent/runtimes/cluster.c: the runtime's life, what the child has, and how its word is followed.
 *
 * Opening waits for the child: without it neither what this node has nor what runs on it is known,
 * and a guess would make the parent start things twice. From then on the child may come and go.
 * Following is a circle: the whole list of this node's workloads, whose index is where the events
 * begin; the events, which only say whom to look at; and when the stream ends, or after a minute,
 * the list again. A unit that the list does not name, or names with another version, is looked at;
 * what is as it was costs nothing.
 */
#include "agent/runtimes/cluster.h"
#include "agent/runtimes/cluster_state.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "model/pb.h"
#include "model/validate.h"
#include <string.h>
#include <unistd.h>

#define OPEN_AGAIN_US 500000
#define OPEN_SAY_EVERY 20 /* tries */

static void list(struct runtime *rt);
static void ask_nodes(struct runtime *rt);

/* ---- small things that all of it needs ---- */

int64_t cluster_now_ms(void)
{
        return clock_mono_ns() / 1000000 + 1;
}

void cluster_in_ms(struct event *timer, int64_t ms)
{
        struct timeval tv = { ms / 1000, (ms % 1000) * 1000 };

        evtimer_add(timer, &tv);
}

void cluster_emit(struct runtime *rt, const struct runtime_event *ev)
{
        if (!rt->closing)
                rt->on_event(rt->ctx, ev);
}

struct grpc_call *cluster_call(struct runtime *rt, const char *method,
                               const ProtobufCMessage *request,
                               const struct grpc_callbacks *callbacks, void *ctx)
{
        bool stream = str_eq(method, "WatchEvents") || str_eq(method, "Logs");
        struct grpc_call_options opt = { .deadline_ms = stream ? 0 : CALL_MS,
                                         .max_message_bytes = REPLY_MAX_BYTES };
        struct grpc_channel *channel = str_eq(method, "Logs") ? rt->streams_channel : rt->channel;
        struct grpc_call *call =
            grpc_channel_call(channel, fmt(CONTROL "%s", method), &opt, callbacks, ctx);
        struct str packed = STR_INIT;

        pb_pack(&packed, request);
        grpc_call_send(call, str_c(&packed), packed.len);
        grpc_call_half_close(call);
        str_fini(&packed);
        return call;
}

static const char *error_text(const char *packed, size_t len, const char *otherwise)
{
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        const char *text = otherwise;

        if (packed && pb_unpack(&pb__error__descriptor, packed, len, &memory, &m, NULL) == 0) {
                const Pb__Error *e = (const Pb__Error *)m;

                if (!str_empty(e->message))
                        text = str_empty(e->detail) ? fmt("%s", e->message)
                                                    : fmt("%s (%s)", e->message, e->detail);
        }
        arena_fini(&memory);
        return text;
}

const char *cluster_problem(struct grpc_call *call, enum grpc_status status)
{
        size_t len = 0;
        const char *packed = grpc_call_trailer(call, GRPC_ERROR_TRAILER, &len),
                   *message = grpc_call_message(call);

        return error_text(packed, len, str_empty(message) ? grpc_status_name(status) : message);
}

/* ---- following ---- */

static void follow_later(struct runtime *rt)
{
        rt->follow_again_ms = rt->follow_again_ms ? rt->follow_again_ms * 2 : AGAIN_MS;
        if (rt->follow_again_ms > AGAIN_MAX_MS / 2)
                rt->follow_again_ms = AGAIN_MAX_MS / 2;
        cluster_in_ms(rt->follow_timer, rt->follow_again_ms);
}

static void on_follow_timer(evutil_socket_t fd, short what, void *arg)
{
        struct runtime *rt = arg;

        (void)fd, (void)what;
        if (!rt->follow)
                list(rt);
}

/* The minute is over: the stream is closed, which leads to the list. */
static void on_list_timer(evutil_socket_t fd, short what, void *arg)
{
        struct runtime *rt = arg;

        (void)fd, (void)what;
        if (rt->follow && rt->watching)
                grpc_call_cancel(rt->follow);
}

static void on_child_event(struct grpc_call *call, const void *data, size_t len)
{
        struct runtime *rt = grpc_call_data(call);
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        const char *prefix = rt ? fmt("%s.", rt->node_id) : "";
        struct cunit *u;

        if (rt && pb_unpack(&pb__event__descriptor, data, len, &memory, &m, NULL) == 0) {
                const Pb__Event *e = (const Pb__Event *)m;

                if (!str_empty(e->workload_id) && (u = cluster_unit_of_child(rt, e->workload_id)))
                        cluster_unit_due(u);
                else if (e->type == PB__EVENT_TYPE__E__WorkloadApplied &&
                         str_starts(e->workload_id, prefix))
                        cluster_stray(rt, e->workload_id + strlen(prefix));
        }
        arena_fini(&memory);
}

static void on_watch_closed(struct grpc_call *call, enum grpc_status status)
{
        struct runtime *rt = grpc_call_data(call);

        (void)status;
        if (!rt)
                return;
        rt->follow = NULL;
        rt->watching = false;
        evtimer_del(rt->list_timer);
        if (!rt->closing)
                follow_later(rt);
}

static void watch(struct runtime *rt)
{
        static const struct grpc_callbacks on = { .on_message = on_child_event,
                                                  .on_close = on_watch_closed };
        Pb__ListEventsRequest q = PB__LIST_EVENTS_REQUEST__INIT;

        q.since = rt->since;
        q.follow = true;
        rt->watching = true;
        rt->follow_again_ms = 0;
        rt->follow = cluster_call(rt, "WatchEvents", &q.base, &on, rt);
        cluster_in_ms(rt->list_timer, LIST_MS);
}

static void on_bytes(struct str *to, const void *data, size_t len)
{
        str_clear(to);
        str_add(to, data, len);
}

static void on_list_message(struct grpc_call *call, const void *data, size_t len)
{
        struct runtime *rt = grpc_call_data(call);

        if (rt)
                on_bytes(&rt->follow_reply, data, len);
}

/* The list is a moment old: what may be a stray is asked for once more before it goes. */
static void look_at_stray(struct runtime *rt, const Pb__Workload *w)
{
        const char *id, *revision;
        struct unit_token token;

        if (w->desired_state != PB__DESIRED_STATE__E__Deleted &&
            cluster_is_from(w, rt->node_id, rt->cluster_id ? rt->cluster_id(rt->ctx) : "") &&
            cluster_marks(w, &id, &token, &revision))
                cluster_stray(rt, id);
}

/* One page: whoever has changed is looked at. */
static bool take_page(struct runtime *rt)
{
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        int r = pb_unpack(&pb__list_workloads_response__descriptor, str_c(&rt->follow_reply),
                          rt->follow_reply.len, &memory, &m, NULL);
        const Pb__ListWorkloadsResponse *page = (const Pb__ListWorkloadsResponse *)m;

        if (r == 0) {
                if (str_empty(rt->cursor))
                        rt->since = page->resource_version;
                for (size_t i = 0; i < page->n_items; i++) {
                        struct cunit *u = cluster_unit_of_child(rt, page->items[i]->id);

                        if (!u) {
                                look_at_stray(rt, page->items[i]);
                                continue;
                        }
                        u->round = rt->round;
                        if (u->version != page->items[i]->resource_version)
                                cluster_unit_due(u);
                }
                mem_free(rt->cursor);
                rt->cursor = str_empty(page->next_cursor) ? NULL : mem_strdup(page->next_cursor);
        }
        arena_fini(&memory);
        return r == 0;
}

static void ask_page(struct runtime *rt);

static void on_list_closed(struct grpc_call *call, enum grpc_status status)
{
        struct runtime *rt = grpc_call_data(call);

        if (!rt)
                return;
        rt->follow = NULL;
        if (rt->closing)
                return;
        if (status != GRPC_OK || !take_page(rt)) {
                follow_later(rt);
                return;
        }
        if (rt->cursor) {
                ask_page(rt);
                return;
        }
        for (size_t i = 0; i < rt->units.len; i++) {
                struct cunit *u = rt->units.at[i];

                /* which has its own pauses, and is not expected there yet */
                if (u && u->round != rt->round && u->phase != CPHASE_CREATE)
                        cluster_unit_due(u);
        }
        watch(rt);
}

static void ask_page(struct runtime *rt)
{
        static const struct grpc_callbacks on = { .on_message = on_list_message,
                                                  .on_close = on_list_closed };
        Pb__ListWorkloadsRequest q = PB__LIST_WORKLOADS_REQUEST__INIT;
        char selector[256];

        snprintf(selector, sizeof(selector), "%s=%s", PARENT_NODE, rt->node_id);
        q.selector = selector;
        q.limit = PAGE_LIMIT;
        q.cursor = rt->cursor ? rt->cursor : (char *)(uintptr_t) "";
        rt->follow = cluster_call(rt, "ListWorkloads", &q.base, &on, rt);
}

static void list(struct runtime *rt)
{
        mem_free(rt->cursor);
        rt->cursor = NULL;
        rt->round++;
        ask_page(rt);
}

/* ---- what the child has ---- */

static void nodes_later(struct runtime *rt)
{
        mem_free(rt->nodes_cursor);
        rt->nodes_cursor = NULL;
        cluster_in_ms(rt->nodes_timer, NODES_MS);
}

/* More counts at once; less when it lasts. */
static void settle_sum(struct runtime *rt)
{
        const struct runtime_capacity *now = &rt->adding.capacity, *said = &rt->sum.capacity;
        bool less = now->cpu < said->cpu || now->memory_mb < said->memory_mb ||
                    now->disk_gb < said->disk_gb;

        if (less && !rt->less_since_ms)
                rt->less_since_ms = cluster_now_ms();
        if (less && cluster_now_ms() - rt->less_since_ms < SHRINK_MS) {
                rt->sum.usage = rt->adding.usage;
                return;
        }
        rt->less_since_ms = 0;
        /* a node that can run nothing has no amounts; what it could run is as it was */
        if (!rt->adding.nodes)
                memcpy(rt->adding.capacity.types, rt->sum.capacity.types,
                       sizeof(rt->sum.capacity.types));
        rt->sum = rt->adding;
}

static bool add_nodes(struct runtime *rt, const char *data, size_t len)
{
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        int r = pb_unpack(&pb__list_nodes_response__descriptor, data, len, &memory, &m, NULL);
        const Pb__ListNodesResponse *page = (const Pb__ListNodesResponse *)m;

        if (r == 0) {
                for (size_t i = 0; i < page->n_items; i++)
                        cluster_add_node(&rt->adding, page->items[i]);
                mem_free(rt->nodes_cursor);
                rt->nodes_cursor =
                    str_empty(page->next_cursor) ? NULL : mem_strdup(page->next_cursor);
        }
        arena_fini(&memory);
        return r == 0;
}

static void on_nodes_message(struct grpc_call *call, const void *data, size_t len)
{
        struct runtime *rt = grpc_call_data(call);

        if (rt)
                on_bytes(&rt->nodes_reply, data, len);
}

static void on_nodes_closed(struct grpc_call *call, enum grpc_status status)
{
        struct runtime *rt = grpc_call_data(call);

        if (!rt)
                return;
        rt->nodes_call = NULL;
        if (rt->closing)
                return;
        if (status != GRPC_OK || !add_nodes(rt, str_c(&rt->nodes_reply), rt->nodes_reply.len)) {
                nodes_later(rt); /* what was said last stands */
                return;
        }
        if (rt->nodes_cursor) {
                ask_nodes(rt);
                return;
        }
        settle_sum(rt);
        nodes_later(rt);
}

static void nodes_request(struct runtime *rt, Pb__ListNodesRequest *q)
{
        pb__list_nodes_request__init(q);
        q->limit = PAGE_LIMIT;
        if (rt->nodes_cursor)
                q->cursor = rt->nodes_cursor;
        else
                memset(&rt->adding, 0, sizeof(rt->adding));
}

static void ask_nodes(struct runtime *rt)
{
        static const struct grpc_callbacks on = { .on_message = on_nodes_message,
                                                  .on_close = on_nodes_closed };
        Pb__ListNodesRequest q;

        nodes_request(rt, &q);
        rt->nodes_call = cluster_call(rt, "ListNodes", &q.base, &on, rt);
}

static void on_nodes_timer(evutil_socket_t fd, short what, void *arg)
{
        struct runtime *rt = arg;

        (void)fd, (void)what;
        if (!rt->nodes_call)
                ask_nodes(rt);
}

/* The parent takes no node with nothing at all: one thousandth of a core holds no unit either. */
static void cluster_capacity(struct runtime *rt, struct runtime_capacity *ret)
{
        *ret = rt->sum.capacity;
        if (ret->cpu < 1)
                ret->cpu = 1;
        if (ret->memory_mb < 1)
                ret->memory_mb = 1;
        if (!ret->types[0])
                ret->types[0] = PB__WORKLOAD_TYPE__E__process;
}

static void cluster_usage(struct runtime *rt, struct runtime_usage *ret)
{
        *ret = rt->sum.usage;
}

static const Pb__WorkloadType__E *cluster_types_now(struct runtime *rt)
{
        static const Pb__WorkloadType__E none_yet[] = { PB__WORKLOAD_TYPE__E__process, 0 };

        return rt->sum.capacity.types[0] ? rt->sum.capacity.types : none_yet;
}

/* ---- before the loop runs ---- */

/* One call, made until it is answered. */
static int call_now(struct runtime *rt, const char *method, const ProtobufCMessage *request,
                    struct grpc_reply *ret, struct err *err)
{
        struct grpc_channel_options opt = { .tls = rt->tls,
                                            .token = rt->token,
                                            .server_name = rt->server_name,
                                            .to_server = true,
                                            .max_message_bytes = REPLY_MAX_BYTES };
        struct str packed = STR_INIT;
        int r;

        pb_pack(&packed, request);
        for (unsigned tries = 0;; tries++) {
                r = grpc_call_sync(rt->address, &opt, NULL, fmt(CONTROL "%s", method),
                                   str_c(&packed), packed.len, CALL_MS, ret, err);
                if (r < 0 || ret->status == GRPC_OK)
                        break;
                if (tries % OPEN_SAY_EVERY == 0)
                        log_warn("the cluster cannot be used; waiting for it",
                                 LOG_S("node", rt->node_id), LOG_S("cluster", rt->address),
                                 LOG_S("reason", error_text(str_c(&ret->error), ret->error.len,
                                                            ret->message)));
                grpc_reply_fini(ret);
                usleep(OPEN_AGAIN_US);
        }
        str_fini(&packed);
        return r;
}

static int first_nodes(struct runtime *rt, struct err *err)
{
        Pb__ListNodesRequest q;
        int r;

        do {
                struct grpc_reply reply = { 0 };

                nodes_request(rt, &q);
                r = call_now(rt, "ListNodes", &q.base, &reply, err);
                if (r == 0 && !add_nodes(rt, str_c(&reply.data), reply.data.len))
                        r = err_set(err, ERR_FAILED,
                                    .msg =
                                        fmt("%s does not answer like a berth server", rt->address));
                grpc_reply_fini(&reply);
        } while (r == 0 && rt->nodes_cursor);
        rt->sum = rt->adding;
        return r;
}

static void found(struct runtime *rt, const Pb__Workload *w)
{
        struct runtime_event ev = { 0 };
        enum cluster_word word = cluster_read(w, &ev);
        struct cunit *u;
        bool ran;

        if (word == WORD_LEAVES || !cluster_is_ours(w, rt->node_id))
                return; /* whoever wants it gone asks again; whoever wants it back waits for that */
        if (!cluster_marks(w, &ev.workload_id, &ev.token, &ev.revision_id)) {
                log_warn("a workload of the cluster has this node's label and not its other marks; "
                         "it is left alone",
                         LOG_S("workload", w->id));
                return;
        }
        if (cluster_unit(rt, ev.workload_id))
                return;
        ran = word == WORD_ENDED || word == WORD_STOPPED;
        u = cluster_unit_new(rt, ev.workload_id, ev.token, ran ? CPHASE_ENDED : CPHASE_FOLLOW);
        u->up = true;
        ev.kind = word == WORD_ENDED     ? RUNTIME_FOUND_EXITED
                  : word == WORD_STOPPED ? RUNTIME_FOUND_GONE
                                         : RUNTIME_FOUND_RUNNING;
        if (ev.at_ms <= 0)
                ev.at_ms = clock_wall_ms();
        cluster_emit(rt, &ev);
}

static int cluster_find(struct runtime *rt, struct err *err)
{
        Pb__ListWorkloadsRequest q = PB__LIST_WORKLOADS_REQUEST__INIT;
        _cleanup_(mem_freep) char *cursor = mem_strdup(""),
                                  *selector = mem_strdup(fmt("%s=%s", PARENT_NODE, rt->node_id));
        int r;

        q.selector = selector;
        q.limit = PAGE_LIMIT;
        do {
                struct grpc_reply reply = { 0 };
                struct arena memory = ARENA_INIT;
                ProtobufCMessage *m = NULL;

                q.cursor = cursor;
                r = call_now(rt, "ListWorkloads", &q.base, &reply, err);
                if (r == 0)
                        r = pb_unpack(&pb__list_workloads_response__descriptor, str_c(&reply.data),
                                      reply.data.len, &memory, &m, err);
                if (r == 0) {
                        const Pb__ListWorkloadsResponse *page =
                            (const Pb__ListWorkloadsResponse *)m;

                        for (size_t i = 0; i < page->n_items; i++)
                                found(rt, page->items[i]);
                        mem_free(cursor);
                        cursor = mem_strdup(page->next_cursor);
                }
                grpc_reply_fini(&reply);
                arena_fini(&memory);
        } while (r == 0 && !str_empty(cursor));
        if (r == 0) {
                cluster_in_ms(rt->follow_timer, 0);
                cluster_in_ms(rt->nodes_timer, NODES_MS);
        }
        return r;
}

/* ---- life ---- */

static struct map_key key_of_unit(const void *ctx, uint32_t ix)
{
        const struct runtime *rt = ctx;

        return (struct map_key){ rt->units.at[ix]->child_id, strlen(rt->units.at[ix]->child_id) };
}

static void forget_call(struct grpc_call *call)
{
        if (call)
                grpc_call_set_data(call, NULL);
}

static void cluster_close(struct runtime *rt)
{
        rt->closing = true;
        cluster_streams_close(rt);
        for (size_t i = 0; i < rt->units.len; i++)
                if (rt->units.at[i])
                        cluster_unit_free(rt->units.at[i]);
        forget_call(rt->follow);
        forget_call(rt->nodes_call);
        grpc_channel_destroy(rt->streams_channel);
        grpc_channel_destroy(rt->channel);
        if (rt->follow_timer)
                event_free(rt->follow_timer);
        if (rt->list_timer)
                event_free(rt->list_timer);
        if (rt->nodes_timer)
                event_free(rt->nodes_timer);
        tls_unref(rt->tls);
        array_fini(&rt->units);
        array_fini(&rt->free_ix);
        array_fini(&rt->line);
        array_fini(&rt->streams);
        map_fini(&rt->by_child_id);
        str_fini(&rt->follow_reply);
        str_fini(&rt->nodes_reply);
        mem_free(rt->cursor);
        mem_free(rt->nodes_cursor);
        mem_free(rt->address);
        mem_free(rt->server_name);
        mem_free(rt->token);
        mem_free(rt->node_id);
        mem_free(rt);
}

/* The node's name is a label's value in the child, and the beginning of names there. */
static int check_name(const char *node_id, struct err *err)
{
        size_t len = node_id ? strlen(node_id) : 0;

        if (len >= 1 && len <= 63 && id_is_valid(node_id) && !strchr("._-", node_id[len - 1]))
                return 0;
        return err_set(err, ERR_INVALID,
                       .msg = fmt("%.80s cannot be the name of a node that is a cluster",
                                  node_id ? node_id : ""),
                       .detail = "it is a label's value there: at most 63 letters, digits, '-', "
                                 "'_' or '.', ending with a letter or digit",
                       .hint = "give another one with --node-id");
}

static int read_token(struct runtime *rt, const char *path, struct err *err)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        int r = file_read(path, 4096, &text, err);

        if (r < 0)
                return err_prefix(err, "the cluster's token");
        text.buf[strcspn(str_c(&text), " \t\r\n")] = 0;
        rt->token = mem_strdup(text.buf);
        return 0;
}

static int cluster_open(const struct runtime_options *opt, struct runtime **ret, struct err *err)
{
        const struct cluster_options *co = opt->extra;
        struct runtime *rt = mem_must(sizeof(*rt));
        struct tls_options to = { .cert_file = co->cert_file,
                                  .key_file = co->key_file,
                                  .ca_file = co->ca_file };
        int r = check_name(opt->node_id, err);

        rt->base = opt->base;
        rt->node_id = mem_strdup(opt->node_id);
        rt->address = mem_strdup(co->address);
        rt->server_name = mem_strdup(co->server_name);
        rt->place_wait_ms = co->place_wait_ms > 0 ? co->place_wait_ms : PLACE_WAIT_MS;
        rt->on_event = opt->on_event;
        rt->cluster_id = opt->cluster_id;
        rt->ctx = opt->ctx;
        map_init(&rt->by_child_id, key_of_unit, rt);
        rt->follow_timer = evtimer_new(rt->base, on_follow_timer, rt);
        rt->list_timer = evtimer_new(rt->base, on_list_timer, rt);
        rt->nodes_timer = evtimer_new(rt->base, on_nodes_timer, rt);
        if (r == 0 && (co->ca_file || co->cert_file))
                r = tls_client_create(&to, &rt->tls, err);
        if (r == 0 && co->token_file)
                r = read_token(rt, co->token_file, err);
        if (r == 0) {
                struct grpc_channel_options cho = { .tls = rt->tls,
                                                    .token = rt->token,
                                                    .server_name = rt->server_name,
                                                    .to_server = true,
                                                    .backoff_max_ms = AGAIN_MAX_MS / 2,
                                                    .max_message_bytes = REPLY_MAX_BYTES };

                r = grpc_channel_create(rt->base, rt->address, &cho, &rt->channel, err);
                if (r == 0)
                        r = grpc_channel_create(rt->base, rt->address, &cho, &rt->streams_channel,
                                                err);
        }
        if (r == 0)
                r = first_nodes(rt, err);
        if (r < 0) {
                cluster_close(rt);
                return r;
        }
        *ret = rt;
        return 0;
}

static const Pb__WorkloadType__E cluster_types[] = { PB__WORKLOAD_TYPE__E__container,
                                                     PB__WORKLOAD_TYPE__E__compose,
                                                     PB__WORKLOAD_TYPE__E__vm,
                                                     PB__WORKLOAD_TYPE__E__process, 0 };

const struct runtime_ops runtime_cluster = {
        .name = "cluster",
        .types = cluster_types,
        .types_now = cluster_types_now,
        .open = cluster_open,
        .close = cluster_close,
        .find = cluster_find,
        .start = cluster_start,
        .stop = cluster_stop,
        .remove = cluster_remove,
        .logs = cluster_logs,
        .exec = cluster_exec,
        .usage = cluster_usage,
        .capacity = cluster_capacity,
        .checks_health = true,
};
