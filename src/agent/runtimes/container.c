/* agent/runtimes/container.c: units that are containers of podman or Docker.
 *
 * The engine is asked by its REST API (container_api.h). A container carries the unit's id, token,
 * revision and node as labels, so that whatever happens to the agent, the next one finds what runs
 * and under which token. What a unit needs to be proved gone is asked of the engine, again and
 * again if it must be:
 *
 *      start:  clear what an earlier copy left, (network,) per part: image, create, start, look
 *              any failure: clear everything, then START_FAILED
 *      up:     a pidfd on each part's process tells of its end; then the engine is asked how it
 *              ended. A poll finds what the pidfd cannot.
 *      stop:   every part at once, then look at each; STOPPED when none runs
 *
 * The engine restarts nothing (its policy is "no"): that is the server's. A stopped or ended unit's
 * containers stay, for their output, until the unit is removed or started anew.
 */
#include "agent/runtimes/container.h"
#include "agent/runtimes/container_state.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "model/json.h"
#include <string.h>
#include <unistd.h>

/* ---- units in memory ---- */

static struct map_key key_of_cunit(const void *ctx, uint32_t ix)
{
        const struct runtime *rt = ctx;

        return (struct map_key){ rt->units.at[ix]->id, strlen(rt->units.at[ix]->id) };
}

struct cunit *container_find_unit(const struct runtime *rt, const char *id)
{
        uint32_t ix = map_get(&rt->by_id, id, strlen(id));

        return ix == MAP_NONE ? NULL : rt->units.at[ix];
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
        struct cunit *u = arg;

        (void)fd, (void)what;
        if (u->again)
                u->again(u);
}

struct cunit *cunit_new(struct runtime *rt, const char *id, struct unit_token token,
                        const char *revision, enum cunit_kind kind)
{
        struct cunit *u = mem_must(sizeof(*u));
        char cluster[257];

        u->rt = rt;
        u->id = mem_strdup(id);
        u->revision = mem_strdup(revision ? revision : "");
        mark_cluster(rt, id, cluster);
        u->cluster = mem_strdup(cluster);
        u->token = token;
        u->kind = kind;
        u->timer = evtimer_new(rt->base, on_again, u);
        u->again_ms = AGAIN_MS;
        for (u->ix = 0; u->ix < rt->units.len && rt->units.at[u->ix]; u->ix++)
                ;
        if (u->ix == rt->units.len)
                array_push(&rt->units);
        rt->units.at[u->ix] = u;
        map_put(&rt->by_id, u->ix);
        return u;
}

static void cpart_free(struct cpart *p)
{
        if (p->call)
                api_cancel(p->call);
        if (p->pidfd_event)
                event_free(p->pidfd_event);
        if (p->again)
                event_free(p->again);
        if (p->pidfd >= 0)
                close(p->pidfd);
        mem_free(p->name);
        mem_free(p->part);
        mem_free(p->id);
        mem_free(p);
}

void cunit_clear_parts(struct cunit *u)
{
        for (size_t i = 0; i < u->parts.len; i++)
                cpart_free(u->parts.at[i]);
        array_clear(&u->parts);
        u->cause = NULL;
}

void cunit_free(struct cunit *u)
{
        map_remove(&u->rt->by_id, u->ix);
        u->rt->units.at[u->ix] = NULL;
        if (u->call)
                api_cancel(u->call);
        event_free(u->timer);
        cunit_clear_parts(u);
        array_fini(&u->parts);
        for (size_t i = 0; i < u->trash.len; i++)
                mem_free(u->trash.at[i]);
        array_fini(&u->trash);
        start_free(u->start);
        mem_free(u->message);
        mem_free(u->revision);
        mem_free(u->cluster);
        mem_free(u->id);
        mem_free(u);
}

struct cpart *cpart_new(struct cunit *u, const char *name, const char *part)
{
        struct cpart *p = mem_must(sizeof(*p));

        p->unit = u;
        p->name = mem_strdup(name);
        p->part = mem_strdup(part ? part : "");
        p->id = mem_strdup("");
        p->pidfd = -1;
        *array_push(&u->parts) = p;
        return p;
}

void cunit_again(struct cunit *u, void (*step)(struct cunit *u))
{
        struct timeval wait = { u->again_ms / 1000, (u->again_ms % 1000) * 1000 };

        u->again = step;
        evtimer_add(u->timer, &wait);
        u->again_ms = u->again_ms * 2 > AGAIN_MAX_MS ? AGAIN_MAX_MS : u->again_ms * 2;
        service_watch(u->rt);
}

const char *container_cluster(const struct runtime *rt)
{
        const char *id = rt->cluster_id ? rt->cluster_id(rt->ctx) : NULL;

        return id ? id : "";
}

void cunit_name(struct str *out, const struct cunit *u, const char *part)
{
        container_name(out, u->cluster, u->rt->node_id, u->id, part);
}

void container_emit(struct runtime *rt, const struct runtime_event *ev)
{
        rt->on_event(rt->ctx, ev);
}

/* ---- words of the API ---- */

void container_path(struct str *out, const char *name, const char *rest)
{
        str_adds(out, "/containers/");
        api_add_encoded(out, name);
        str_adds(out, rest);
}

void container_list_path(const struct runtime *rt, const char *workload_id, struct str *out)
{
        _cleanup_(str_finip) struct str filter = STR_INIT, value = STR_INIT;

        str_addf(&value, LABEL_NODE "=%s", rt->node_id);
        str_adds(&filter, "{\"label\":[");
        json_write_string(&filter, str_c(&value), value.len);
        if (workload_id) {
                str_clear(&value);
                str_addf(&value, LABEL_WORKLOAD "=%s", workload_id);
                str_addc(&filter, ',');
                json_write_string(&filter, str_c(&value), value.len);
        }
        str_adds(&filter, "]}");
        str_adds(out, "/containers/json?all=1&filters=");
        api_add_encoded(out, str_c(&filter));
}

const Ct__Listing *container_read_listing(const struct runtime *rt, const char *body, size_t len,
                                          struct arena *memory)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        ProtobufCMessage *m = NULL;
        Ct__Listing *list;
        size_t n = 0;

        str_adds(&text, "{\"items\":");
        str_add(&text, body, len);
        str_addc(&text, '}');
        if (json_read(&ct__listing__descriptor, str_c(&text), text.len, API_BODY_MAX,
                      JSON_IGNORE_UNKNOWN, memory, &m, NULL) < 0)
                return NULL;
        list = (Ct__Listing *)m;
        for (size_t i = 0; i < list->n_items; i++)
                if (container_is_ours(rt, list->items[i]))
                        list->items[n++] = list->items[i];
        list->n_items = n;
        return list;
}

const char *container_label(const Ct__Listed *c, const char *key)
{
        for (size_t i = 0; i < c->n_labels; i++)
                if (str_eq(c->labels[i]->key, key))
                        return c->labels[i]->value;
        return NULL;
}

/* ---- the poll ---- */

static bool needs_look(const struct cpart *p, const Ct__Listing *list)
{
        for (size_t i = 0; i < list->n_items; i++) {
                const Ct__Listed *c = list->items[i];

                if (str_eq(c->id, p->id))
                        return !str_eq(c->state, "running") && !str_eq(c->state, "paused");
        }
        return true;
}

static void compare(struct runtime *rt, const Ct__Listing *list)
{
        for (size_t i = 0; i < rt->units.len; i++) {
                struct cunit *u = rt->units.at[i];

                if (!u || u->phase != CUNIT_UP)
                        continue;
                if (u->presumed) {
                        u->presumed = false;
                        if (!unit_take_parts(u, list)) {
                                u->reason = PB__REASON__E__killed;
                                mem_free(u->message);
                                u->message = mem_strdup("its containers were removed while the "
                                                        "container engine was away");
                        }
                        for (size_t k = 0; k < u->parts.len; k++)
                                part_look(u->parts.at[k]);
                        if (u->parts.len == 0)
                                unit_judge(u);
                        continue;
                }
                for (size_t k = 0; k < u->parts.len; k++) {
                        struct cpart *p = u->parts.at[k];

                        if (p->running && !p->call && needs_look(p, list))
                                part_look(p);
                }
        }
}

static void set_poll(struct runtime *rt)
{
        int64_t ms = POLL_MS;

        for (size_t i = 0; i < rt->units.len; i++) {
                const struct cunit *u = rt->units.at[i];

                for (size_t k = 0; u && k < u->parts.len; k++)
                        if (u->parts.at[k]->running && u->parts.at[k]->pidfd < 0)
                                ms = POLL_FAST_MS;
                if (u && u->presumed)
                        ms = POLL_FAST_MS;
        }
        evtimer_add(rt->poll, (&(struct timeval){ ms / 1000, 0 }));
}

static void on_polled(void *ctx, const struct api_answer *a)
{
        struct runtime *rt = ctx;
        struct arena memory = ARENA_INIT;
        const Ct__Listing *list;

        rt->poll_call = NULL;
        if (a->status == 200 && (list = container_read_listing(rt, a->body, a->len, &memory)))
                compare(rt, list);
        else
                service_watch(rt);
        arena_fini(&memory);
        set_poll(rt);
}

/* Nothing runs: nothing is asked. */
static void on_poll(evutil_socket_t fd, short what, void *arg)
{
        struct runtime *rt = arg;
        _cleanup_(str_finip) struct str path = STR_INIT;
        bool any = false;

        (void)fd, (void)what;
        for (size_t i = 0; i < rt->units.len; i++)
                any = any || (rt->units.at[i] && rt->units.at[i]->phase == CUNIT_UP);
        if (!any || rt->poll_call) {
                set_poll(rt);
                return;
        }
        container_list_path(rt, NULL, &path);
        rt->poll_call = api_call(rt->api, &(struct api_request){ .method = "GET",
                                                                 .path = str_c(&path),
                                                                 .timeout_ms = CALL_MS,
                                                                 .done = on_polled,
                                                                 .ctx = rt });
}

/* ---- life ---- */

static void container_close(struct runtime *rt)
{
        container_streams_close(rt);
        for (size_t i = 0; i < rt->units.len; i++)
                if (rt->units.at[i])
                        cunit_free(rt->units.at[i]);
        array_fini(&rt->units);
        array_fini(&rt->streams);
        map_fini(&rt->by_id);
        if (rt->poll)
                event_free(rt->poll);
        api_destroy(rt->api);
        service_close(rt);
        mem_free(rt->version);
        mem_free(rt->socket);
        mem_free(rt->root);
        mem_free(rt->runroot);
        mem_free(rt->conf);
        mem_free(rt->data_dir);
        mem_free(rt->units_dir);
        mem_free(rt->node_id);
        mem_free(rt);
}

static int container_open(const struct runtime_options *opt, struct runtime **ret, struct err *err)
{
        struct runtime *rt = mem_must(sizeof(*rt));
        int r;

        rt->base = opt->base;
        rt->data_dir = mem_strdup(opt->data_dir);
        rt->units_dir = mem_strdup(fmt("%s/units", opt->data_dir));
        rt->node_id = mem_strdup(opt->node_id ? opt->node_id : "");
        rt->on_event = opt->on_event;
        rt->cluster_id = opt->cluster_id;
        rt->ctx = opt->ctx;
        rt->away_ms = AWAY_MS;
        if (opt->extra && ((const struct container_options *)opt->extra)->away_ms)
                rt->away_ms = ((const struct container_options *)opt->extra)->away_ms;
        map_init(&rt->by_id, key_of_cunit, rt);
        r = dir_make(rt->units_dir, 0750, err);
        if (r == 0)
                r = service_open(rt, opt->extra, err);
        if (r < 0) {
                container_close(rt);
                return r;
        }
        rt->api = api_create(rt->base, rt->socket);
        rt->poll = evtimer_new(rt->base, on_poll, rt);
        set_poll(rt);
        if (rt->usable) {
                rt->types[0] = PB__WORKLOAD_TYPE__E__container;
                rt->types[1] = PB__WORKLOAD_TYPE__E__compose;
        }
        *ret = rt;
        return 0;
}

static const Pb__WorkloadType__E *container_types_now(struct runtime *rt)
{
        return rt->types;
}

static const char *container_address(struct runtime *rt, const char *workload_id)
{
        const struct cunit *u = container_find_unit(rt, workload_id);

        return u && u->parts.len && u->parts.at[0]->address[0] ? u->parts.at[0]->address : NULL;
}

static const Pb__WorkloadType__E container_types[] = { PB__WORKLOAD_TYPE__E__container,
                                                       PB__WORKLOAD_TYPE__E__compose, 0 };

void container_pids(struct runtime *rt, pid_list *out)
{
        for (size_t i = 0; i < rt->units.len; i++)
                for (size_t k = 0; rt->units.at[i] && k < rt->units.at[i]->parts.len; k++)
                        if (rt->units.at[i]->parts.at[k]->running &&
                            rt->units.at[i]->parts.at[k]->pid > 0)
                                *array_push(out) = (pid_t)rt->units.at[i]->parts.at[k]->pid;
}

const struct runtime_ops runtime_container = {
        .name = "container",
        .types = container_types,
        .types_now = container_types_now,
        .open = container_open,
        .close = container_close,
        .find = container_find_all,
        .start = container_start,
        .stop = container_stop,
        .remove = container_remove,
        .logs = container_logs,
        .exec = container_exec,
        .address = container_address,
};
