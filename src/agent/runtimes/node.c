/* agent/runtimes/node.c: see node.h. */
#include "agent/runtimes/node.h"
#include "agent/runtimes/process_usage.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include <assert.h>
#include <string.h>

struct known {
        char *id; /* NULL: free */
        uint32_t row;
};

/* One runtime of this node. */
struct part {
        struct runtime *node;
        struct runtime *rt; /* NULL: it has none, and this is why */
        char why_not[512];
};

struct runtime {
        const struct node_row *rows;
        uint32_t n_rows;
        struct part parts[NODE_RUNTIMES_MAX];
        void (*on_event)(void *ctx, const struct runtime_event *event);
        const char *(*cluster_id)(void *ctx);
        void *ctx;
        ARRAY(struct known) known;
        struct map by_id;
        Pb__WorkloadType__E types[8]; /* ends with 0 */
};

/* ---- which one ---- */

static struct node_wish wish_container(const struct node_options *opt)
{
        const struct container_options *co = &opt->container;

        return (struct node_wish){
                .asked = str_empty(co->engine) ? NULL : co->engine,
                .never = str_eq(co->engine, "none") ? "this agent was told to run none" : NULL,
                .extra = co,
        };
}

static const struct node_row real_rows[] = {
        { .ops = &runtime_process, .units = "processes" },
        { .ops = &runtime_container,
          .units = "containers",
          .may_have_more = true,
          .wish = wish_container,
          .pids = container_pids },
        { 0 },
};

static bool has_type(const Pb__WorkloadType__E *types, Pb__WorkloadType__E type)
{
        while (*types && *types != type)
                types++;
        return *types != 0;
}

static uint32_t row_of_type(const struct runtime *rt, Pb__WorkloadType__E type)
{
        for (uint32_t i = 0; i < rt->n_rows; i++)
                if (has_type(rt->rows[i].ops->types, type))
                        return i;
        return 0;
}

static uint32_t row_of_unknown(const struct runtime *rt)
{
        for (uint32_t i = 1; i < rt->n_rows; i++)
                if (rt->rows[i].may_have_more && rt->parts[i].rt)
                        return i;
        return 0;
}

static uint32_t row_of_unit(const struct runtime *rt, const char *id, uint32_t if_unknown)
{
        uint32_t ix = map_get(&rt->by_id, id, strlen(id));

        return ix == MAP_NONE ? if_unknown : rt->known.at[ix].row;
}

static struct map_key key_of_known(const void *ctx, uint32_t ix)
{
        const struct runtime *rt = ctx;

        return (struct map_key){ rt->known.at[ix].id, strlen(rt->known.at[ix].id) };
}

static void remember(struct runtime *rt, const char *id, uint32_t row)
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
        rt->known.at[ix].row = row;
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

/* ---- what they say ---- */

static void on_part_event(void *ctx, const struct runtime_event *ev)
{
        struct part *p = ctx;
        struct runtime *rt = p->node;
        uint32_t row = (uint32_t)(p - rt->parts);

        if (ev->kind == RUNTIME_REMOVED && row > 0) { /* now its directory */
                rt->rows[0].ops->remove(rt->parts[0].rt, ev->workload_id);
                return;
        }
        if (ev->kind >= RUNTIME_FOUND_RUNNING)
                remember(rt, ev->workload_id, row);
        else if (ev->kind == RUNTIME_REMOVED)
                forget(rt, ev->workload_id);
        rt->on_event(rt->ctx, ev);
}

static const char *cluster_of(void *ctx)
{
        const struct runtime *rt = ((struct part *)ctx)->node;

        return rt->cluster_id ? rt->cluster_id(rt->ctx) : "";
}

/* ---- what they are told ---- */

static void node_start(struct runtime *rt, const struct runtime_start *start)
{
        uint32_t row = row_of_type(rt, start->workload->type);
        struct part *p = &rt->parts[row];

        if (!p->rt) {
                rt->on_event(rt->ctx,
                             &(struct runtime_event){
                                 .kind = RUNTIME_START_FAILED,
                                 .workload_id = start->workload_id,
                                 .token = start->token,
                                 .at_ms = clock_wall_ms(),
                                 .reason = PB__REASON__E__runtime_unavailable,
                                 .message = fmt("runtime not available: %s", p->why_not) });
                return;
        }
        remember(rt, start->workload_id, row);
        rt->rows[row].ops->start(p->rt, start);
}

static void node_stop(struct runtime *rt, const char *workload_id, struct unit_token token,
                      int64_t grace_ms)
{
        uint32_t row = row_of_unit(rt, workload_id, row_of_unknown(rt));

        rt->rows[row].ops->stop(rt->parts[row].rt, workload_id, token, grace_ms);
}

static void node_remove(struct runtime *rt, const char *workload_id)
{
        uint32_t row = row_of_unit(rt, workload_id, row_of_unknown(rt));

        rt->rows[row].ops->remove(rt->parts[row].rt, workload_id);
}

static int node_logs(struct runtime *rt, const char *workload_id, const struct log_options *opt,
                     const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        uint32_t row = row_of_unit(rt, workload_id, 0);

        return rt->rows[row].ops->logs(rt->parts[row].rt, workload_id, opt, sink, ret, err);
}

static int node_exec(struct runtime *rt, const char *workload_id, const struct exec_options *opt,
                     const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        uint32_t row = row_of_unit(rt, workload_id, 0);

        return rt->rows[row].ops->exec(rt->parts[row].rt, workload_id, opt, sink, ret, err);
}

static void node_usage(struct runtime *rt, struct runtime_usage *ret)
{
        pid_list others = { 0 };

        for (uint32_t i = 0; ret->want_own && i < rt->n_rows; i++)
                if (rt->rows[i].pids && rt->parts[i].rt)
                        rt->rows[i].pids(rt->parts[i].rt, &others);
        process_usage_beside(rt->parts[0].rt, &others, ret);
        array_fini(&others);
}

static const char *node_address(struct runtime *rt, const char *workload_id)
{
        uint32_t row = row_of_unit(rt, workload_id, 0);
        const struct runtime_ops *ops = rt->rows[row].ops;

        return ops->address ? ops->address(rt->parts[row].rt, workload_id) : NULL;
}

/* ---- life ---- */

static const Pb__WorkloadType__E *node_types_now(struct runtime *rt)
{
        return rt->types;
}

/* Where the marks of two are in one unit's directory, the first row has the last word. */
static int node_find(struct runtime *rt, struct err *err)
{
        int r = 0;

        for (uint32_t i = rt->n_rows; r == 0 && i-- > 0;)
                if (rt->parts[i].rt)
                        r = rt->rows[i].ops->find(rt->parts[i].rt, err);
        return r;
}

static void node_close(struct runtime *rt)
{
        for (uint32_t i = rt->n_rows; i-- > 0;)
                if (rt->parts[i].rt)
                        rt->rows[i].ops->close(rt->parts[i].rt);
        for (size_t i = 0; i < rt->known.len; i++)
                mem_free(rt->known.at[i].id);
        array_fini(&rt->known);
        map_fini(&rt->by_id);
        mem_free(rt);
}

static int open_part(struct runtime *rt, uint32_t i, const struct runtime_options *opt,
                     struct err *err)
{
        const struct node_row *row = &rt->rows[i];
        struct part *p = &rt->parts[i];
        struct node_wish wish = row->wish ? row->wish(opt->extra) : (struct node_wish){ 0 };
        struct runtime_options theirs = *opt;
        struct err why = { 0 };
        int r;

        if (wish.never) {
                strncpy(p->why_not, wish.never, sizeof(p->why_not) - 1);
                return 0;
        }
        p->node = rt;
        theirs.on_event = on_part_event;
        theirs.cluster_id = cluster_of;
        theirs.ctx = p;
        theirs.extra = wish.extra;
        if (!row->wish)
                return row->ops->open(&theirs, &p->rt, err);
        r = row->ops->open(&theirs, &p->rt, &why);
        if (r == 0)
                return 0;
        strncpy(p->why_not, err_line(&why), sizeof(p->why_not) - 1);
        if (wish.asked) {
                *err = why;
                return err_prefix(err, fmt("--runtime %s does not work here", wish.asked));
        }
        log_at(r == -ERR_NOT_FOUND ? LOG_INFO : LOG_WARN, fmt("this node runs no %s", row->units),
               LOG_S("reason", p->why_not), LOG_S("hint", why.hint));
        return 0;
}

static void add_types(struct runtime *rt, size_t *n, const Pb__WorkloadType__E *types)
{
        for (; *types; types++) {
                assert(*n + 1 < ARRAY_LEN(rt->types));
                rt->types[(*n)++] = *types;
        }
}

static int node_open(const struct runtime_options *opt, struct runtime **ret, struct err *err)
{
        const struct node_options *no = opt->extra;
        struct runtime *rt = mem_must(sizeof(*rt));
        size_t n = 0;
        int r = 0;

        rt->rows = no->rows ? no->rows : real_rows;
        while (rt->rows[rt->n_rows].ops)
                rt->n_rows++;
        assert(rt->n_rows <= NODE_RUNTIMES_MAX);
        rt->on_event = opt->on_event;
        rt->cluster_id = opt->cluster_id;
        rt->ctx = opt->ctx;
        map_init(&rt->by_id, key_of_known, rt);
        for (uint32_t i = 0; r == 0 && i < rt->n_rows; i++)
                r = open_part(rt, i, opt, err);
        if (r < 0) {
                node_close(rt);
                return r;
        }
        for (uint32_t i = 0; i < rt->n_rows; i++)
                if (rt->parts[i].rt)
                        add_types(rt, &n,
                                  rt->rows[i].ops->types_now
                                      ? rt->rows[i].ops->types_now(rt->parts[i].rt)
                                      : rt->rows[i].ops->types);
        *ret = rt;
        return 0;
}

/* Containers have nobody beside the agent who would stop them. */
static const Pb__WorkloadType__E exclusive_types[] = { PB__WORKLOAD_TYPE__E__process, 0 };

const struct runtime_ops runtime_node = {
        .name = "node",
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
