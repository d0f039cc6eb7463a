/* tests/fuzz/fuzz_core.c: see fuzz_core.h. */
#include "fuzz_core.h"
#include "model/feature.h"

#include "fuzz.h"

#define EVENTS_MAX 4096

struct core *fuzz_core_new(void)
{
        struct core_options opt;
        core_options_default(&opt);
        opt.max_nodes = 64;
        opt.max_workloads = 256;
        opt.strangers = STRANGERS_ADOPT; /* only with a warrant, which nobody can make here */
        opt.warrants = (struct warrant_keys){ .has = true, .key = { 'f' } };
        return core_create(&opt);
}

void fuzz_core_check(struct core *c, const char *when)
{
        struct err err = { 0 };
        MUST(core_check(c, &err) >= 0, "%s: %s %s", when, err_line(&err), err.detail);
}

void fuzz_core_step(struct core *c, struct input *in, struct arena *a, struct fuzz_event **events,
                    size_t *n_events)
{
        struct core_batch *b;
        in->random[0] = 0x0123456789abcdef;
        in->random[1] = 42;
        in->features = FEATURES_ALL;
        core_step(c, in);
        while ((b = core_cut(c))) {
                for (size_t i = 0; events && i < b->commit.n_events && *n_events < EVENTS_MAX;
                     i++) {
                        const struct store_event *e = &b->commit.events[i];
                        if (!*events)
                                *events = arena_new_n(a, struct fuzz_event, EVENTS_MAX);
                        (*events)[(*n_events)++] =
                            (struct fuzz_event){ arena_dup(a, e->data, e->len), e->len };
                }
                core_batch_free(b);
        }
        fuzz_core_check(c, "after a step");
}

static void step(struct core *c, enum input_kind kind, int64_t now, const ProtobufCMessage *msg)
{
        struct input in = { .kind = kind,
                            .now_ms = now,
                            .msg = msg,
                            .reply = 1,
                            .session = 9,
                            .head = kind == INPUT_START ? core_head(c) : 0 };
        fuzz_core_step(c, &in, NULL, NULL, NULL);
}

static int touch_record(void *ctx, const struct store_record *r, struct err *err)
{
        (void)err;
        (void)ctx;
        MUST(r->key && r->data, "a record has a key and data");
        return 0;
}

static void ask(struct core *c, int64_t now, char *id)
{
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = id;
        step(c, INPUT_GET_WORKLOAD, now, &ref.base);
        step(c, INPUT_EXPLAIN, now, &ref.base);
        step(c, INPUT_RETRY, now, &ref.base);
        Pb__SetDesiredRequest stop = PB__SET_DESIRED_REQUEST__INIT;
        stop.id = id;
        stop.desired_state = PB__DESIRED_STATE__E__Stopped;
        step(c, INPUT_DESIRED, now, &stop.base);
        stop.desired_state = PB__DESIRED_STATE__E__Running;
        step(c, INPUT_DESIRED, now, &stop.base);
        step(c, INPUT_LOCATE, now, &ref.base);
}

void fuzz_core_live(struct core *c, struct arena *a)
{
        static const int64_t waits[] = { 0, 1, 5000, 16000, 31000, 61000, 130000, 400000 };
        int64_t now = FUZZ_START_MS;
        struct err err = { 0 };
        (void)a;
        step(c, INPUT_START, now, NULL);
        Pb__Hello hello = PB__HELLO__INIT;
        Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process,
                                        PB__WORKLOAD_TYPE__E__container };
        hello.node_id = "n1";
        hello.cpu = 8000;
        hello.memory_mb = 16384;
        hello.disk_gb = 100;
        hello.supported_workload_types = types;
        hello.n_supported_workload_types = 2;
        hello.protocol = 1;
        step(c, INPUT_HELLO, now + 1, &hello.base);
        Pb__ListWorkloadsRequest list = PB__LIST_WORKLOADS_REQUEST__INIT;
        list.limit = 100;
        Pb__ListNodesRequest nodes = PB__LIST_NODES_REQUEST__INIT;
        nodes.limit = 100;
        for (size_t i = 0; i < ARRAY_LEN(waits); i++) {
                now += waits[i];
                step(c, INPUT_TICK, now, NULL);
                step(c, INPUT_LIST_WORKLOADS, now, &list.base);
                if (i == 2 || i == 5)
                        ask(c, now, i == 2 ? "a" : "b");
        }
        step(c, INPUT_LIST_NODES, now, &nodes.base);
        step(c, INPUT_CLUSTER, now, NULL);
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = "a";
        step(c, INPUT_DELETE, now, &ref.base);
        Pb__NodeRef node = PB__NODE_REF__INIT;
        node.id = "n2";
        step(c, INPUT_NODE_FORGET, now, &node.base);
        step(c, INPUT_TICK, now + 70000, NULL);
        MUST(core_records(c, touch_record, NULL, &err) >= 0, "%s", err_line(&err));
        struct str dump = STR_INIT;
        core_dump(c, &dump);
        str_fini(&dump);
}

void fuzz_core_replay(struct core *c, const struct fuzz_event *events, size_t n_events)
{
        if (n_events >= EVENTS_MAX)
                return;
        struct core *folded = fuzz_core_new();
        struct err err = { 0 };
        for (size_t i = 0; i < n_events; i++)
                MUST(core_fold(folded, events[i].data, events[i].len, &err) >= 0,
                     "event %zu: %s %s", i, err_line(&err), err.detail);
        struct str x = STR_INIT, y = STR_INIT;
        core_dump(c, &x);
        core_dump(folded, &y);
        MUST(str_eq(str_c(&x), str_c(&y)), "the fold of the events is another state:\n%s\n----\n%s",
             str_c(&x), str_c(&y));
        str_fini(&x);
        str_fini(&y);
        core_destroy(folded);
}
