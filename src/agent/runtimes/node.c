/* agent/runtimes/node.c: what a real node runs: processes, and containers if it has an engine that works.
 *
 * A start goes by the workload's type; everything later goes where the unit is. A unit that neither has said anything about may still be known to the engine, so
 * stops of unknown units go there. A removal goes through both: the engine's containers first, then the unit's directory, which belongs to the process
 * runtime.
 */
#include "agent/runtime.h"
#include "agent/runtimes/container.h"
#include "agent/runtimes/process_usage.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include <string.h>

enum side { SIDE_PROCESS, SIDE_CONTAINER };

struct known {
        char *id; /* NULL: free */
        enum side side;
};

struct runtime {
        struct runtime *process, *container; /* container NULL: none */
        char why_not[512];
        void (*on_event)(void *ctx, const struct runtime_event *event);
        const char *(*cluster_id)(void *ctx);
        void *ctx;
        ARRAY(struct known) known;
        struct map by_id;
        Pb__WorkloadType__E types[8];
};

static struct map_key key_of_known(const void *ctx, uint32_t ix)
{
        const struct runtime *rt = ctx;

        return (struct map_key){ rt->known.at[ix].id, strlen(rt->known.at[ix].id) };
}

static void remember(struct runtime *rt, const char *id, enum side side)
{
        uint32_t ix = map_get(&rt->by_id, id, strlen(id));

        if (ix == MAP_NONE) {
                for (ix = 0; ix < rt->known.len && rt->known.at[ix].id; ix++)
                        ;
                if (ix == rt->known.len)
                        array_push(&rt->known);
                rt->known.at[ix].id = mem_strdup(id);
                map_put(&rt->by_id, ix);
        }
        rt->known.at[ix].side = side;
}

static void forget(struct runtime *rt, const char *id)
{
        uint32_t ix = map_get(&rt->by_id, id, strlen(id));

        if (ix == MAP_NONE)
                return;
        map_remove(&rt->by_id, ix);
        mem_free(rt->known.at[ix].id);
        rt->known.at[ix].id = NULL;
}

static bool is_container(const struct runtime *rt, const char *id, bool if_unknown)
{
        uint32_t ix = map_get(&rt->by_id, id, strlen(id));

        return rt->container && (ix == MAP_NONE ? if_unknown : rt->known.at[ix].side == SIDE_CONTAINER);
}

/* ---- what they say ---- */

static void on_process(void *ctx, const struct runtime_event *ev)
{
        struct runtime *rt = ctx;

        if (ev->kind >= RUNTIME_FOUND_RUNNING)
                remember(rt, ev->workload_id, SIDE_PROCESS);
        else if (ev->kind == RUNTIME_REMOVED)
                forget(rt, ev->workload_id);
        rt->on_event(rt->ctx, ev);
}

static void on_container(void *ctx, const struct runtime_event *ev)
{
        struct runtime *rt = ctx;

        if (ev->kind == RUNTIME_REMOVED) { /* now its directory */
                runtime_process.remove(rt->process, ev->workload_id);
                return;
        }
        if (ev->kind >= RUNTIME_FOUND_RUNNING)
                remember(rt, ev->workload_id, SIDE_CONTAINER);
        rt->on_event(rt->ctx, ev);
}

static const char *cluster_of(void *ctx)
{
        const struct runtime *rt = ctx;

        return rt->cluster_id ? rt->cluster_id(rt->ctx) : "";
}

/* ---- what they are told ---- */

static void node_start(struct runtime *rt, const struct runtime_start *start)
{
        Pb__WorkloadType__E type = start->workload->type;
        bool container = type == PB__WORKLOAD_TYPE__E__container || type == PB__WORKLOAD_TYPE__E__compose;

        if (container && !rt->container) {
                rt->on_event(rt->ctx, &(struct runtime_event){ .kind = RUNTIME_START_FAILED,
                                                               .workload_id = start->workload_id,
                                                               .token = start->token,
                                                               .at_ms = clock_wall_ms(),
                                                               .reason = PB__REASON__E__runtime_unavailable,
                                                               .message = fmt("runtime not available: %s", rt->why_not) });
                return;
        }
        remember(rt, start->workload_id, container ? SIDE_CONTAINER : SIDE_PROCESS);
        if (container)
                runtime_container.start(rt->container, start);
        else
                runtime_process.start(rt->process, start);
}

static void node_stop(struct runtime *rt, const char *workload_id, struct unit_token token, int64_t grace_ms)
{
        if (is_container(rt, workload_id, true))
                runtime_container.stop(rt->container, workload_id, token, grace_ms);
        else
                runtime_process.stop(rt->process, workload_id, token, grace_ms);
}

static void node_remove(struct runtime *rt, const char *workload_id)
{
        if (is_container(rt, workload_id, true))
                runtime_container.remove(rt->container, workload_id);
        else
                runtime_process.remove(rt->process, workload_id);
}

static int node_logs(struct runtime *rt, const char *workload_id, const struct log_options *opt, const struct stream_sink *sink,
                     struct stream **ret, struct err *err)
{
        return is_container(rt, workload_id, false) ? runtime_container.logs(rt->container, workload_id, opt, sink, ret, err)
                                                    : runtime_process.logs(rt->process, workload_id, opt, sink, ret, err);
}

static int node_exec(struct runtime *rt, const char *workload_id, const struct exec_options *opt, const struct stream_sink *sink,
                     struct stream **ret, struct err *err)
{
        return is_container(rt, workload_id, false) ? runtime_container.exec(rt->container, workload_id, opt, sink, ret, err)
                                                    : runtime_process.exec(rt->process, workload_id, opt, sink, ret, err);
}

static void node_usage(struct runtime *rt, struct runtime_usage *ret)
{
        pid_list containers = { 0 };

        if (ret->want_own && rt->container)
                container_pids(rt->container, &containers);
        process_usage_beside(rt->process, &containers, ret);
        array_fini(&containers);
}

static const char *node_address(struct runtime *rt, const char *workload_id)
{
        return is_container(rt, workload_id, false) ? runtime_container.address(rt->container, workload_id) : NULL;
}

/* ---- life ---- */

static const Pb__WorkloadType__E *node_types_now(struct runtime *rt)
{
        return rt->types;
}

static int node_find(struct runtime *rt, struct err *err)
{
        int r = rt->container ? runtime_container.find(rt->container, err) : 0;

        return r < 0 ? r : runtime_process.find(rt->process, err);
}

static void node_close(struct runtime *rt)
{
        if (rt->container)
                runtime_container.close(rt->container);
        if (rt->process)
                runtime_process.close(rt->process);
        for (size_t i = 0; i < rt->known.len; i++)
                mem_free(rt->known.at[i].id);
        array_fini(&rt->known);
        map_fini(&rt->by_id);
        mem_free(rt);
}

static int open_container(struct runtime *rt, const struct runtime_options *opt, struct err *err)
{
        const struct container_options *co = opt->extra;
        struct runtime_options theirs = *opt;
        struct err why = { 0 };
        bool asked = co && !str_empty(co->engine);
        int r;

        if (asked && str_eq(co->engine, "none")) {
                memcpy(rt->why_not, "this agent was told to run none", sizeof("this agent was told to run none"));
                return 0;
        }
        theirs.on_event = on_container;
        theirs.cluster_id = cluster_of;
        theirs.ctx = rt;
        r = runtime_container.open(&theirs, &rt->container, &why);
        if (r == 0)
                return 0;
        strncpy(rt->why_not, err_line(&why), sizeof(rt->why_not) - 1);
        if (asked) {
                *err = why;
                return err_prefix(err, fmt("--runtime %s does not work here", co->engine));
        }
        log_at(r == -ERR_NOT_FOUND ? LOG_INFO : LOG_WARN, "this node runs no containers", LOG_S("reason", rt->why_not),
               LOG_S("hint", why.hint));
        return 0;
}

static int node_open(const struct runtime_options *opt, struct runtime **ret, struct err *err)
{
        struct runtime *rt = mem_must(sizeof(*rt));
        struct runtime_options theirs = *opt;
        size_t n = 0;
        int r;

        rt->on_event = opt->on_event;
        rt->cluster_id = opt->cluster_id;
        rt->ctx = opt->ctx;
        map_init(&rt->by_id, key_of_known, rt);
        theirs.on_event = on_process;
        theirs.cluster_id = cluster_of;
        theirs.ctx = rt;
        r = runtime_process.open(&theirs, &rt->process, err);
        if (r == 0)
                r = open_container(rt, opt, err);
        if (r < 0) {
                node_close(rt);
                return r;
        }
        for (const Pb__WorkloadType__E *t = runtime_process.types; *t; t++)
                rt->types[n++] = *t;
        for (const Pb__WorkloadType__E *t = rt->container ? runtime_container.types_now(rt->container) : NULL; t && *t; t++)
                rt->types[n++] = *t;
        *ret = rt;
        return 0;
}

static const Pb__WorkloadType__E node_types[] = { PB__WORKLOAD_TYPE__E__process, PB__WORKLOAD_TYPE__E__container,
                                                  PB__WORKLOAD_TYPE__E__compose, 0 };

/* Containers have nobody beside the agent who would stop them. */
static const Pb__WorkloadType__E exclusive_types[] = { PB__WORKLOAD_TYPE__E__process, 0 };

const struct runtime_ops runtime_node = {
        .name = "node",
        .types = node_types,
        .exclusive_types = exclusive_types,
        .types_now = node_types_now,
        .open = node_open,
        .close = node_close,
        .find = node_find,
        .start = node_start,
        .stop = node_stop,
        .remove = node_remove,
        .logs = node_logs,
        .exec = node_exec,
        .usage = node_usage,
        .address = node_address,
};
