/* agent/runtimes/cluster_life_test.c: the cluster runtime keeps the promises of runtime.h, against
 * a small child that loses answers when told to.
 *
 * The child is a gRPC server in a thread of its own (opening the runtime waits for it), which holds
 * workloads and does at once what it is told: a workload that is created runs, or waits if no_place
 * is set; one that is deleted goes at the second look.
 */
#include "agent/runtimes/cluster.h"
#include "agent/runtimes/cluster_spec.h"
#include "base/array.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/grpc.h"
#include <event2/event.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Runs the loop until cond holds, which may take long on a busy machine. */
#define UNTIL(base, cond)                                                                          \
        do {                                                                                       \
                int64_t end_ns = clock_mono_ns() + INT64_C(60000000000);                           \
                while (!(cond)) {                                                                  \
                        struct timeval tick = { .tv_usec = 20000 };                                \
                        event_base_loopexit((base), &tick);                                        \
                        event_base_loop((base), EVLOOP_ONCE);                                      \
                        if (clock_mono_ns() > end_ns)                                              \
                                fail_msg("waited in vain for: %s", #cond);                         \
                }                                                                                  \
        } while (0)

struct held {
        Pb__Workload *w;
        int looks;
};

struct child {
        struct event_base *base;
        struct grpc_server *server;
        struct event *tick;
        pthread_t thread;
        pthread_mutex_t lock; /* all of the following */
        bool end, no_place, changed;
        struct arena memory;
        ARRAY(struct held) held;
        uint64_t version;
        /* created so many ticks after its creation was answered with an error */
        const Pb__Workload *late;
        int late_ticks;
        int lose_apply, lose_stop, lose_delete; /* so many are done and not answered */
        int created, deleted, stopped;
        struct grpc_call *watcher;
};

struct rig {
        struct child child;
        struct event_base *base;
        struct runtime *rt;
        int kinds[16];
        struct str words, output;
        bool output_ended;
        int32_t exit_code;
        char last_revision[64];
};

/* ---- the child ---- */

static struct held *find_held(struct child *c, const char *id)
{
        for (size_t i = 0; i < c->held.len; i++)
                if (str_eq(c->held.at[i].w->id, id))
                        return &c->held.at[i];
        return NULL;
}

static void touch(struct child *c, Pb__Workload *w)
{
        w->resource_version = ++c->version;
        c->changed = true;
}

static Pb__Workload *put(struct child *c, const Pb__Workload *from, Pb__Phase__E phase)
{
        Pb__Workload *w = (Pb__Workload *)pb_clone(&c->memory, &from->base);

        w->status = (Pb__WorkloadStatus *)pb_new(&c->memory, &pb__workload_status__descriptor);
        w->status->phase = phase;
        w->status->started_at = 1000;
        *array_push(&c->held) = (struct held){ w, 0 };
        touch(c, w);
        return w;
}

static void answer(struct grpc_call *call, const ProtobufCMessage *m, int *lose)
{
        struct str packed = STR_INIT;

        if (lose && *lose > 0) {
                (*lose)--;
                grpc_call_finish(call, GRPC_UNAVAILABLE, "lost", NULL);
                return;
        }
        pb_pack(&packed, m);
        grpc_call_reply(call, str_c(&packed), packed.len);
        str_fini(&packed);
}

static void on_apply(struct child *c, struct grpc_call *call, const void *data, size_t len)
{
        ProtobufCMessage *m;
        const Pb__ApplyWorkloadRequest *q;
        struct held *h;

        assert_int_equal(
            pb_unpack(&pb__apply_workload_request__descriptor, data, len, &c->memory, &m, NULL), 0);
        q = (const Pb__ApplyWorkloadRequest *)m;
        assert_true(q->create_only);
        if (c->late_ticks > 0 && !c->late) {
                c->late = q->workload;
                grpc_call_finish(call, GRPC_UNAVAILABLE, "lost", NULL);
                return;
        }
        h = find_held(c, q->workload->id);
        if (h && !str_eq(pb_map_get(h->w->annotations, h->w->n_annotations, PARENT_TOKEN),
                         pb_map_get(q->workload->annotations, q->workload->n_annotations,
                                    PARENT_TOKEN))) {
                grpc_call_finish(call, GRPC_ABORTED, "it exists already", NULL);
                return;
        }
        if (!h) {
                c->created++;
                put(c, q->workload, c->no_place ? PB__PHASE__E__Pending : PB__PHASE__E__Running);
                h = find_held(c, q->workload->id);
        }
        answer(call, &h->w->base, &c->lose_apply);
}

static void on_ref(struct child *c, struct grpc_call *call, const void *data, size_t len)
{
        bool delete = str_ends(grpc_call_path(call), "DeleteWorkload"),
             why = str_ends(grpc_call_path(call), "ExplainWorkload");
        Pb__Explanation e = PB__EXPLANATION__INIT;
        ProtobufCMessage *m;
        struct held *h;

        assert_int_equal(pb_unpack(&pb__workload_ref__descriptor, data, len, &c->memory, &m, NULL),
                         0);
        h = find_held(c, ((Pb__WorkloadRef *)m)->id);
        if (h && h->w->desired_state == PB__DESIRED_STATE__E__Deleted && ++h->looks > 1) {
                *h = c->held.at[--c->held.len];
                h = NULL;
        }
        if (!h) {
                grpc_call_finish(call, GRPC_NOT_FOUND, "there is none", NULL);
                return;
        }
        if (delete) {
                c->deleted++;
                h->w->desired_state = PB__DESIRED_STATE__E__Deleted;
                touch(c, h->w);
        }
        e.summary = (char *)(uintptr_t) "0 of 2 nodes can take it";
        answer(call, why ? &e.base : &h->w->base, delete ? &c->lose_delete : NULL);
}

static void on_desired(struct child *c, struct grpc_call *call, const void *data, size_t len)
{
        ProtobufCMessage *m;
        struct held *h;

        assert_int_equal(
            pb_unpack(&pb__set_desired_request__descriptor, data, len, &c->memory, &m, NULL), 0);
        h = find_held(c, ((Pb__SetDesiredRequest *)m)->id);
        assert_non_null(h);
        c->stopped++;
        h->w->desired_state = PB__DESIRED_STATE__E__Stopped;
        h->w->status->phase = PB__PHASE__E__Stopped;
        touch(c, h->w);
        answer(call, &h->w->base, &c->lose_stop);
}

static void on_lists(struct child *c, struct grpc_call *call)
{
        Pb__ListWorkloadsResponse w = PB__LIST_WORKLOADS_RESPONSE__INIT;
        Pb__ListNodesResponse n = PB__LIST_NODES_RESPONSE__INIT;
        Pb__NodeResources amounts = PB__NODE_RESOURCES__INIT;
        Pb__WorkloadType__E type = PB__WORKLOAD_TYPE__E__process;
        Pb__Node node = PB__NODE__INIT, *nodes = &node;

        amounts.cpu_total = 4000;
        amounts.memory_total = 1024;
        node.status = PB__NODE_STATUS__E__Ready;
        node.resources = &amounts;
        node.supported_workload_types = &type;
        node.n_supported_workload_types = 1;
        n.items = &nodes;
        n.n_items = 1;
        w.resource_version = c->version;
        w.items = arena_new_n(&c->memory, Pb__Workload *, c->held.len + 1);
        for (size_t i = 0; i < c->held.len; i++)
                w.items[w.n_items++] = c->held.at[i].w;
        answer(call, str_ends(grpc_call_path(call), "ListNodes") ? &n.base : &w.base, NULL);
}

static void on_logs(struct grpc_call *call)
{
        Pb__LogChunk chunk = PB__LOG_CHUNK__INIT;
        struct str packed = STR_INIT;

        chunk.data.data = (uint8_t *)(uintptr_t) "a line\n";
        chunk.data.len = 7;
        pb_pack(&packed, &chunk.base);
        grpc_call_send(call, str_c(&packed), packed.len);
        str_fini(&packed);
        grpc_call_finish(call, GRPC_OK, NULL, NULL);
}

static void on_request(struct grpc_call *call, const void *data, size_t len)
{
        struct child *c = grpc_call_data(call);
        const char *path = grpc_call_path(call);

        pthread_mutex_lock(&c->lock);
        if (str_ends(path, "ApplyWorkload"))
                on_apply(c, call, data, len);
        else if (str_ends(path, "SetDesired"))
                on_desired(c, call, data, len);
        else if (str_ends(path, "WatchEvents"))
                c->watcher = call;
        else if (str_ends(path, "Logs"))
                on_logs(call);
        else if (str_ends(path, "ListWorkloads") || str_ends(path, "ListNodes"))
                on_lists(c, call);
        else
                on_ref(c, call, data, len);
        pthread_mutex_unlock(&c->lock);
}

static void on_request_closed(struct grpc_call *call, enum grpc_status status)
{
        struct child *c = grpc_call_data(call);

        (void)status;
        if (c->watcher == call)
                c->watcher = NULL;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
        struct child *c = arg;

        (void)fd, (void)what;
        pthread_mutex_lock(&c->lock);
        if (c->late && c->late_ticks > 0 && --c->late_ticks == 0) {
                c->created++;
                put(c, c->late, PB__PHASE__E__Running);
        }
        for (size_t i = 0; c->changed && c->watcher && i < c->held.len; i++) {
                Pb__Event e = PB__EVENT__INIT;
                struct str packed = STR_INIT;

                e.type = PB__EVENT_TYPE__E__WorkloadApplied;
                e.workload_id = c->held.at[i].w->id;
                pb_pack(&packed, &e.base);
                grpc_call_send(c->watcher, str_c(&packed), packed.len);
                str_fini(&packed);
        }
        c->changed = c->changed && !c->watcher;
        if (c->end)
                event_base_loopbreak(c->base);
        pthread_mutex_unlock(&c->lock);
}

static void *child_main(void *arg)
{
        struct child *c = arg;

        event_base_dispatch(c->base);
        return NULL;
}

static void child_open(struct child *c)
{
        static const char *const methods[] = { "ApplyWorkload",   "GetWorkload", "DeleteWorkload",
                                               "ExplainWorkload", "SetDesired",  "ListWorkloads",
                                               "ListNodes",       "WatchEvents", "Logs" };
        struct grpc_server_options opt = { .address = "127.0.0.1:0" };
        struct timeval often = { 0, 20000 };

        c->memory = ARENA_INIT;
        pthread_mutex_init(&c->lock, NULL);
        c->base = event_base_new();
        assert_int_equal(grpc_server_create(c->base, &opt, &c->server, NULL), 0);
        for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
                struct grpc_method m = {
                        .on = { .on_message = on_request, .on_close = on_request_closed }, .ctx = c
                };

                assert_int_equal(
                    grpc_server_add(c->server, fmt("/berth.v1.Control/%s", methods[i]), &m, NULL),
                    0);
        }
        c->tick = event_new(c->base, -1, EV_PERSIST, on_tick, c);
        event_add(c->tick, &often);
        assert_int_equal(pthread_create(&c->thread, NULL, child_main, c), 0);
}

static void child_close(struct child *c)
{
        pthread_mutex_lock(&c->lock);
        c->end = true;
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
        grpc_server_destroy(c->server);
        event_free(c->tick);
        event_base_free(c->base);
        array_fini(&c->held);
        arena_fini(&c->memory);
        pthread_mutex_destroy(&c->lock);
}

/* ---- the runtime's user ---- */

static int count(struct rig *r, const int *at)
{
        int n;

        pthread_mutex_lock(&r->child.lock);
        n = *at;
        pthread_mutex_unlock(&r->child.lock);
        return n;
}

static void set(struct rig *r, int *at, int n)
{
        pthread_mutex_lock(&r->child.lock);
        *at = n;
        pthread_mutex_unlock(&r->child.lock);
}

static size_t held(struct rig *r)
{
        size_t n;

        pthread_mutex_lock(&r->child.lock);
        n = r->child.held.len;
        pthread_mutex_unlock(&r->child.lock);
        return n;
}

static void on_event(void *ctx, const struct runtime_event *ev)
{
        struct rig *r = ctx;

        r->kinds[ev->kind]++;
        if (ev->kind != RUNTIME_PROGRESS)
                str_addf(&r->words, "%s:%d:%llu:%s ", ev->workload_id, (int)ev->kind,
                         (unsigned long long)ev->token.seq, ev->message ? ev->message : "");
        if (ev->revision_id)
                snprintf(r->last_revision, sizeof(r->last_revision), "%s", ev->revision_id);
        r->exit_code = ev->exit_code;
}

static const char *parent_id(void *ctx)
{
        (void)ctx;
        return "01PARENT";
}

static void rt_open(struct rig *r)
{
        struct cluster_options co = { .address =
                                          fmt("127.0.0.1:%u", grpc_server_port(r->child.server)),
                                      .place_wait_ms = 100 };
        struct runtime_options opt = { .base = r->base,
                                       .node_id = "west",
                                       .on_event = on_event,
                                       .cluster_id = parent_id,
                                       .ctx = r,
                                       .extra = &co };

        assert_int_equal(runtime_cluster.open(&opt, &r->rt, NULL), 0);
        assert_int_equal(runtime_cluster.find(r->rt, NULL), 0);
}

static int setup(void **state)
{
        struct rig *r = mem_must(sizeof(*r));

        r->base = event_base_new();
        child_open(&r->child);
        *state = r;
        return 0;
}

static int teardown(void **state)
{
        struct rig *r = *state;

        if (r->rt)
                runtime_cluster.close(r->rt);
        child_close(&r->child);
        event_base_free(r->base);
        str_fini(&r->words);
        str_fini(&r->output);
        mem_free(r);
        return 0;
}

static void start(struct rig *r, const char *id, uint64_t seq)
{
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;

        w.id = (char *)(uintptr_t)id;
        w.type = PB__WORKLOAD_TYPE__E__process;
        w.revision_id = (char *)(uintptr_t) "rev";
        w.spec = &spec;
        runtime_cluster.start(r->rt, &(struct runtime_start){ .workload_id = id,
                                                              .token = { 1, seq },
                                                              .workload = &w,
                                                              .cluster_id = "01PARENT" });
}

/* Puts a workload into the child as an earlier agent would have left it. */
static Pb__Workload *left_behind_by(struct rig *r, const char *parent, const char *id, uint64_t seq,
                                    Pb__Phase__E phase)
{
        Pb__Workload w = PB__WORKLOAD__INIT, *there;
        Pb__Spec spec = PB__SPEC__INIT;

        w.id = (char *)(uintptr_t)id;
        w.revision_id = (char *)(uintptr_t) "rev";
        w.spec = &spec;
        pthread_mutex_lock(&r->child.lock);
        there = put(&r->child,
                    cluster_child_workload(&r->child.memory, "west",
                                           &(struct runtime_start){ .workload_id = id,
                                                                    .token = { 1, seq },
                                                                    .workload = &w,
                                                                    .cluster_id = parent }),
                    phase);
        pthread_mutex_unlock(&r->child.lock);
        return there;
}

static Pb__Workload *left_behind(struct rig *r, const char *id, uint64_t seq, Pb__Phase__E phase)
{
        return left_behind_by(r, "01PARENT", id, seq, phase);
}

/* R: C37 */
static void a_creation_whose_answer_is_lost_happens_once(void **state)
{
        struct rig *r = *state;

        set(r, &r->child.lose_apply, 2);
        rt_open(r);
        start(r, "api", 4);
        UNTIL(r->base, r->kinds[RUNTIME_STARTED] == 1);
        assert_int_equal(count(r, &r->child.created), 1);
        assert_int_equal(r->kinds[RUNTIME_START_FAILED], 0);
}

/* R: C37 */
static void an_earlier_copy_is_gone_before_a_new_one_is_made(void **state)
{
        struct rig *r = *state;

        rt_open(r);
        left_behind(r, "api", 3, PB__PHASE__E__Failed);
        set(r, &r->child.lose_delete, 1);
        start(r, "api", 4);
        UNTIL(r->base, r->kinds[RUNTIME_STARTED] == 1);
        assert_int_equal(count(r, &r->child.deleted), 1);
        assert_int_equal(count(r, &r->child.created), 1);
        assert_string_equal(str_c(&r->words), "api:1:4: ");
}

/* R: C37 */
static void what_others_have_there_is_left_alone(void **state)
{
        struct rig *r = *state;
        Pb__Workload theirs = PB__WORKLOAD__INIT;

        rt_open(r);
        theirs.id = (char *)(uintptr_t) "west.api";
        pthread_mutex_lock(&r->child.lock);
        put(&r->child, &theirs, PB__PHASE__E__Running);
        pthread_mutex_unlock(&r->child.lock);
        start(r, "api", 4);
        UNTIL(r->base, r->kinds[RUNTIME_START_FAILED] == 1);
        assert_non_null(strstr(str_c(&r->words), "is taken"));
        runtime_cluster.remove(r->rt, "api");
        UNTIL(r->base, r->kinds[RUNTIME_REMOVED] == 1);
        assert_int_equal(count(r, &r->child.deleted) + count(r, &r->child.stopped), 0);
        assert_int_equal(held(r), 1);
}

/* R: C37 */
static void stops_and_removals_are_answered_when_the_child_has_proved_them(void **state)
{
        struct rig *r = *state;

        rt_open(r);
        start(r, "api", 4);
        UNTIL(r->base, r->kinds[RUNTIME_STARTED] == 1);
        set(r, &r->child.lose_stop, 1);
        runtime_cluster.stop(r->rt, "api", (struct unit_token){ 1, 4 }, 1000);
        assert_int_equal(r->kinds[RUNTIME_STOPPED], 0);
        UNTIL(r->base, r->kinds[RUNTIME_STOPPED] == 1);
        assert_int_equal(count(r, &r->child.stopped), 1);
        runtime_cluster.stop(r->rt, "api", (struct unit_token){ 1, 4 }, 1000);
        assert_int_equal(r->kinds[RUNTIME_STOPPED], 2); /* nothing of it runs: at once */
        runtime_cluster.remove(r->rt, "api");
        assert_int_equal(r->kinds[RUNTIME_REMOVED], 0);
        UNTIL(r->base, r->kinds[RUNTIME_REMOVED] == 1);
        assert_int_equal(held(r), 0);
        runtime_cluster.remove(r->rt, "api");
        UNTIL(r->base, r->kinds[RUNTIME_REMOVED] == 2);
        assert_int_equal(count(r, &r->child.deleted), 1);
}

/* R: C37 */
static void a_stop_during_a_start_leaves_nothing_running(void **state)
{
        struct rig *r = *state;

        rt_open(r);
        start(r, "api", 4);
        runtime_cluster.stop(r->rt, "api", (struct unit_token){ 1, 4 }, 1000);
        UNTIL(r->base, r->kinds[RUNTIME_STOPPED] == 1);
        assert_int_equal(r->kinds[RUNTIME_STARTED], 0);
        /* it was never made, or was stopped */
        assert_int_equal(count(r, &r->child.stopped), (int)held(r));
}

/* R: C37 */
static void a_creation_that_arrives_late_does_not_outlive_its_removal(void **state)
{
        struct rig *r = *state;

        set(r, &r->child.late_ticks, 50);
        rt_open(r);
        start(r, "api", 4);
        UNTIL(r->base, r->kinds[RUNTIME_PROGRESS] == 1); /* it knows of no answer */
        runtime_cluster.remove(r->rt, "api");
        UNTIL(r->base, r->kinds[RUNTIME_REMOVED] == 1);
        assert_int_equal(count(r, &r->child.created), 1);
        assert_int_equal(held(r), 0);
}

/* Issue 5, D10: the creation lands when the unit has been forgotten. R: C37 */
static void a_creation_that_arrives_when_nobody_waits_is_deleted(void **state)
{
        struct rig *r = *state;

        rt_open(r);
        start(r, "api", 4);
        UNTIL(r->base, r->kinds[RUNTIME_STARTED] == 1);
        runtime_cluster.remove(r->rt, "api");
        UNTIL(r->base, r->kinds[RUNTIME_REMOVED] == 1);
        left_behind(r, "api", 4, PB__PHASE__E__Running);
        UNTIL(r->base, held(r) == 0);
        assert_int_equal(r->kinds[RUNTIME_REMOVED], 1); /* nobody is told */
}

/* Issue 5, D10: a node of another parent with the same name. R: C37 */
static void what_another_parent_has_there_is_no_stray(void **state)
{
        struct rig *r = *state;

        rt_open(r);
        left_behind_by(r, "01OTHER", "theirs", 4, PB__PHASE__E__Running);
        /* its end shows that both were looked at */
        left_behind(r, "stray", 4, PB__PHASE__E__Running);
        UNTIL(r->base, held(r) == 1);
        assert_non_null(find_held(&r->child, "west.theirs"));
        assert_int_equal(count(r, &r->child.deleted), 1);
}

/* R: C37 */
static void what_fits_nowhere_comes_back_with_the_childs_words(void **state)
{
        struct rig *r = *state;

        pthread_mutex_lock(&r->child.lock);
        r->child.no_place = true;
        pthread_mutex_unlock(&r->child.lock);
        rt_open(r);
        start(r, "wide", 4);
        UNTIL(r->base, r->kinds[RUNTIME_START_FAILED] == 1);
        assert_non_null(strstr(str_c(&r->words), "0 of 2 nodes can take it"));
        assert_int_equal(held(r), 0);
}

/* R: C37 */
static void the_next_agent_finds_everything_by_its_label(void **state)
{
        struct rig *r = *state;

        left_behind(r, "runs", 3, PB__PHASE__E__Running);
        left_behind(r, "comes", 4, PB__PHASE__E__Scheduled);
        left_behind(r, "failed", 5, PB__PHASE__E__Failed);
        left_behind(r, "stopped", 6, PB__PHASE__E__Stopped);
        rt_open(r);
        assert_int_equal(r->kinds[RUNTIME_FOUND_RUNNING], 2);
        assert_int_equal(r->kinds[RUNTIME_FOUND_EXITED], 1);
        assert_int_equal(r->kinds[RUNTIME_FOUND_GONE], 1);
        assert_string_equal(r->last_revision, "rev");
        /* And follows it: one ends, one is deleted by somebody there. */
        pthread_mutex_lock(&r->child.lock);
        find_held(&r->child, "west.runs")->w->status->phase = PB__PHASE__E__Completed;
        touch(&r->child, find_held(&r->child, "west.runs")->w);
        find_held(&r->child, "west.comes")->w->desired_state = PB__DESIRED_STATE__E__Deleted;
        touch(&r->child, find_held(&r->child, "west.comes")->w);
        pthread_mutex_unlock(&r->child.lock);
        UNTIL(r->base, r->kinds[RUNTIME_EXITED] == 2);
        assert_non_null(strstr(str_c(&r->words),
                               "comes:3:4:the cluster that ran it does not know it any more"));
}

static bool on_data(void *ctx, bool is_stderr, int64_t at_ms, const void *data, size_t len)
{
        struct rig *r = ctx;

        (void)is_stderr, (void)at_ms;
        str_add(&r->output, data, len);
        return true;
}

static void on_end(void *ctx, bool has_exit_code, int32_t exit_code, const char *error)
{
        (void)has_exit_code, (void)exit_code;
        assert_null(error);
        ((struct rig *)ctx)->output_ended = true;
}

/* R: C37 */
static void output_passes_through(void **state)
{
        struct rig *r = *state;
        struct stream_sink sink = { on_data, on_end, r };
        struct stream *s;

        left_behind(r, "api", 3, PB__PHASE__E__Running);
        rt_open(r);
        assert_int_equal(
            runtime_cluster.logs(r->rt, "none", &(struct log_options){ 0 }, &sink, &s, NULL),
            -ERR_NOT_FOUND);
        assert_int_equal(runtime_cluster.logs(r->rt, "api",
                                              &(struct log_options){ .tail_lines = -1 }, &sink, &s,
                                              NULL),
                         0);
        UNTIL(r->base, r->output_ended);
        assert_string_equal(str_c(&r->output), "a line\n");
        assert_int_equal(runtime_cluster.logs(r->rt, "api",
                                              &(struct log_options){ .tail_lines = -1 }, &sink, &s,
                                              NULL),
                         0);
        s->ops->close(s); /* and nothing is said any more */
        event_base_loopexit(r->base, &(struct timeval){ .tv_usec = 50000 });
        event_base_dispatch(r->base);
        assert_string_equal(str_c(&r->output), "a line\n");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(a_creation_whose_answer_is_lost_happens_once),
                T(an_earlier_copy_is_gone_before_a_new_one_is_made),
                T(what_others_have_there_is_left_alone),
                T(stops_and_removals_are_answered_when_the_child_has_proved_them),
                T(a_stop_during_a_start_leaves_nothing_running),
                T(a_creation_that_arrives_late_does_not_outlive_its_removal),
                T(a_creation_that_arrives_when_nobody_waits_is_deleted),
                T(what_another_parent_has_there_is_no_stray),
                T(what_fits_nowhere_comes_back_with_the_childs_words),
                T(the_next_agent_finds_everything_by_its_label),
                T(output_passes_through),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
