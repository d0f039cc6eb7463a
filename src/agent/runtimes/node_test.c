/* agent/runtimes/node_test.c: several runtimes on one node, told apart by type. Those here only
 * note what they are told. */
#include "agent/runtimes/node.h"
#include "base/mem.h"
#include "base/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct runtime {
        const char *name;
        struct runtime_options opt;
};

static struct str told; /* "vm.start a; container.stop b; " */
static struct str said; /* what the node said: "3 a; " for an event of kind 3 about a */
static char reason[256];
static bool container_broken;

static void note(const struct runtime *rt, const char *what, const char *id)
{
        str_addf(&told, "%s.%s%s%s; ", rt->name, what, id ? " " : "", id ? id : "");
}

static void emit(struct runtime *rt, enum runtime_event_kind kind, const char *id)
{
        rt->opt.on_event(rt->opt.ctx, &(struct runtime_event){ .kind = kind, .workload_id = id });
}

static int fake_open(const char *name, const struct runtime_options *opt, struct runtime **ret)
{
        *ret = mem_must(sizeof(**ret));
        **ret = (struct runtime){ name, *opt };
        note(*ret, "open", NULL);
        return 0;
}

static int open_process(const struct runtime_options *opt, struct runtime **ret, struct err *err)
{
        (void)err;
        return fake_open("process", opt, ret);
}

static int open_vm(const struct runtime_options *opt, struct runtime **ret, struct err *err)
{
        (void)err;
        return fake_open("vm", opt, ret);
}

static int open_container(const struct runtime_options *opt, struct runtime **ret, struct err *err)
{
        assert_string_equal(((const struct container_options *)opt->extra)->socket,
                            "its own options");
        if (container_broken)
                return err_set(err, ERR_UNAVAILABLE, .msg = "no engine");
        return fake_open("container", opt, ret);
}

static void fake_close(struct runtime *rt)
{
        note(rt, "close", NULL);
        mem_free(rt);
}

static int fake_find(struct runtime *rt, struct err *err)
{
        (void)err;
        note(rt, "find", NULL);
        emit(rt, RUNTIME_FOUND_RUNNING, fmt("%s-found", rt->name));
        return 0;
}

static void fake_start(struct runtime *rt, const struct runtime_start *start)
{
        note(rt, "start", start->workload_id);
}

static void fake_stop(struct runtime *rt, const char *id, struct unit_token token, int64_t grace_ms)
{
        (void)token, (void)grace_ms;
        note(rt, "stop", id);
}

static void fake_remove(struct runtime *rt, const char *id)
{
        note(rt, "remove", id);
        emit(rt, RUNTIME_REMOVED, id);
}

static int fake_logs(struct runtime *rt, const char *id, const struct log_options *opt,
                     const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        (void)opt, (void)sink, (void)ret, (void)err;
        note(rt, "logs", id);
        return 0;
}

static int fake_exec(struct runtime *rt, const char *id, const struct exec_options *opt,
                     const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        (void)opt, (void)sink, (void)ret, (void)err;
        note(rt, "exec", id);
        return 0;
}

static const char *fake_address(struct runtime *rt, const char *id)
{
        (void)id;
        return rt->name;
}

#define FAKE(name_, types_, open_)                                                                 \
        {                                                                                          \
                .name = name_, .types = types_, .open = open_, .close = fake_close,                \
                .find = fake_find, .start = fake_start, .stop = fake_stop, .remove = fake_remove,  \
                .logs = fake_logs, .exec = fake_exec                                               \
        }

static const Pb__WorkloadType__E processes[] = { PB__WORKLOAD_TYPE__E__process, 0 };
static const Pb__WorkloadType__E vms[] = { PB__WORKLOAD_TYPE__E__vm, 0 };
static const Pb__WorkloadType__E containers[] = { PB__WORKLOAD_TYPE__E__container,
                                                  PB__WORKLOAD_TYPE__E__compose, 0 };
static const struct runtime_ops fake_process = FAKE("process", processes, open_process);
static const struct runtime_ops fake_vm = FAKE("vm", vms, open_vm);
static struct runtime_ops fake_container = FAKE("container", containers, open_container);

static struct node_wish wish_vm(const struct node_options *opt)
{
        (void)opt;
        return (struct node_wish){ 0 };
}

static struct node_wish wish_container(const struct node_options *opt)
{
        const char *engine = opt->container.engine;

        return (struct node_wish){ engine, str_eq(engine, "none") ? "told to run none" : NULL,
                                   &opt->container };
}

static const struct node_row rows[] = {
        { .ops = &fake_process, .units = "processes" },
        { .ops = &fake_vm, .units = "machines", .wish = wish_vm },
        { .ops = &fake_container,
          .units = "containers",
          .may_have_more = true,
          .wish = wish_container },
        { 0 },
};

static void on_event(void *ctx, const struct runtime_event *ev)
{
        (void)ctx;
        str_addf(&said, "%d %s; ", (int)ev->kind, ev->workload_id);
        snprintf(reason, sizeof(reason), "%s", ev->message ? ev->message : "");
}

static int open_node(const char *engine, struct runtime **ret, struct err *err)
{
        struct node_options no = { .rows = rows,
                                   .container = { .engine = engine, .socket = "its own options" } };

        fake_container.address = fake_address;
        return runtime_node.open(
            &(struct runtime_options){ .data_dir = "/nowhere", .on_event = on_event, .extra = &no },
            ret, err);
}

static struct runtime *must_open(const char *engine)
{
        struct runtime *rt = NULL;
        struct err err = { 0 };

        assert_int_equal(open_node(engine, &rt, &err), 0);
        return rt;
}

static void start(struct runtime *rt, const char *id, Pb__WorkloadType__E type)
{
        Pb__Workload w = PB__WORKLOAD__INIT;

        w.type = type;
        runtime_node.start(rt, &(struct runtime_start){ .workload_id = id, .workload = &w });
}

static void expect(struct str *what, const char *text)
{
        assert_string_equal(str_c(what), text);
        str_clear(what);
}

static int tidy(void **state)
{
        (void)state;
        str_fini(&told);
        str_fini(&said);
        told = said = (struct str)STR_INIT;
        container_broken = false;
        return 0;
}

static void a_start_goes_by_type_and_the_rest_where_the_unit_is(void **state)
{
        struct runtime *rt = must_open(NULL);
        const struct unit_token token = { 1, 1 };

        (void)state;
        expect(&told, "process.open; vm.open; container.open; ");
        start(rt, "p", PB__WORKLOAD_TYPE__E__process);
        start(rt, "v", PB__WORKLOAD_TYPE__E__vm);
        start(rt, "c", PB__WORKLOAD_TYPE__E__container);
        start(rt, "d", PB__WORKLOAD_TYPE__E__compose);
        start(rt, "x", (Pb__WorkloadType__E)99); /* nobody's: the first one says no */
        expect(
            &told,
            "process.start p; vm.start v; container.start c; container.start d; process.start x; ");
        runtime_node.stop(rt, "p", token, 0);
        runtime_node.stop(rt, "v", token, 0);
        runtime_node.stop(rt, "d", token, 0);
        expect(&told, "process.stop p; vm.stop v; container.stop d; ");
        assert_int_equal(runtime_node.logs(rt, "v", NULL, NULL, NULL, NULL), 0);
        assert_int_equal(runtime_node.exec(rt, "c", NULL, NULL, NULL, NULL), 0);
        expect(&told, "vm.logs v; container.exec c; ");
        assert_string_equal(runtime_node.address(rt, "c"), "container");
        assert_null(runtime_node.address(rt, "v"));
        runtime_node.close(rt);
        expect(&told, "container.close; vm.close; process.close; ");
}

static void what_was_found_is_where_it_was_found(void **state)
{
        struct runtime *rt = must_open(NULL);

        (void)state;
        str_clear(&told);
        assert_int_equal(runtime_node.find(rt, NULL), 0);
        expect(&told, "container.find; vm.find; process.find; ");
        expect(&said, "7 container-found; 7 vm-found; 7 process-found; ");
        runtime_node.stop(rt, "vm-found", (struct unit_token){ 1, 1 }, 0);
        runtime_node.stop(rt, "process-found", (struct unit_token){ 1, 1 }, 0);
        expect(&told, "vm.stop vm-found; process.stop process-found; ");
        runtime_node.close(rt);
}

static void an_unknown_unit_may_be_with_an_engine_that_was_away(void **state)
{
        struct runtime *rt = must_open(NULL);

        (void)state;
        str_clear(&told);
        runtime_node.stop(rt, "u", (struct unit_token){ 1, 1 }, 0);
        runtime_node.remove(rt, "u");
        assert_int_equal(runtime_node.logs(rt, "u", NULL, NULL, NULL, NULL), 0);
        expect(&told, "container.stop u; container.remove u; process.remove u; process.logs u; ");
        runtime_node.close(rt);
        rt = must_open("none");
        str_clear(&told);
        runtime_node.stop(rt, "u", (struct unit_token){ 1, 1 }, 0);
        expect(&told, "process.stop u; ");
        runtime_node.close(rt);
}

static void a_removal_ends_with_the_directory(void **state)
{
        struct runtime *rt = must_open(NULL);

        (void)state;
        start(rt, "v", PB__WORKLOAD_TYPE__E__vm);
        str_clear(&told);
        str_clear(&said);
        runtime_node.remove(rt, "v");
        expect(&told, "vm.remove v; process.remove v; ");
        expect(&said, "5 v; ");
        runtime_node.stop(rt, "v", (struct unit_token){ 1, 1 }, 0); /* forgotten */
        expect(&told, "container.stop v; ");
        start(rt, "p", PB__WORKLOAD_TYPE__E__process);
        str_clear(&told);
        runtime_node.remove(rt, "p");
        expect(&told, "process.remove p; ");
        runtime_node.close(rt);
}

/* R: C25 */
static void what_does_not_work_is_not_offered(void **state)
{
        static const Pb__WorkloadType__E all[] = { PB__WORKLOAD_TYPE__E__process,
                                                   PB__WORKLOAD_TYPE__E__vm,
                                                   PB__WORKLOAD_TYPE__E__container,
                                                   PB__WORKLOAD_TYPE__E__compose, 0 };
        struct runtime *rt = must_open(NULL);
        struct err err = { 0 };

        (void)state;
        assert_memory_equal(runtime_node.types_now(rt), all, sizeof(all));
        runtime_node.close(rt);
        container_broken = true;
        rt = must_open(NULL);
        assert_memory_equal(runtime_node.types_now(rt), all, 2 * sizeof(all[0]));
        assert_int_equal(runtime_node.types_now(rt)[2], 0);
        str_clear(&said);
        start(rt, "c", PB__WORKLOAD_TYPE__E__container);
        expect(&said, "2 c; ");
        assert_string_equal(reason, "runtime not available: no engine");
        runtime_node.close(rt);
        rt = must_open("none");
        start(rt, "c", PB__WORKLOAD_TYPE__E__compose);
        assert_string_equal(reason, "runtime not available: told to run none");
        runtime_node.close(rt);
        str_clear(&told);
        assert_int_equal(open_node("podman", &rt, &err), -ERR_UNAVAILABLE);
        assert_non_null(strstr(err_line(&err), "--runtime podman does not work here"));
        expect(&told, "process.open; vm.open; vm.close; process.close; ");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(a_start_goes_by_type_and_the_rest_where_the_unit_is,
                                          tidy),
                cmocka_unit_test_teardown(what_was_found_is_where_it_was_found, tidy),
                cmocka_unit_test_teardown(an_unknown_unit_may_be_with_an_engine_that_was_away,
                                          tidy),
                cmocka_unit_test_teardown(a_removal_ends_with_the_directory, tidy),
                cmocka_unit_test_teardown(what_does_not_work_is_not_offered, tidy),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
