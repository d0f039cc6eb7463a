/* agent/runtimes/container_end.c: how parts are watched, and how units come to their end. What must
 * be proved is asked until the engine answers.
 *
 * A unit of several parts runs while one of them runs and none has failed; when one fails the
 * others are stopped. It has ended well when all have.
 */
#include "agent/runtimes/container_state.h"
#include "agent/runtimes/proc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "model/json.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_AGAIN_MS 50 /* the process has ended, and the engine does not know it yet */
#define LOOKS_FAST 100

/* ---- one part ---- */

static int64_t time_of(const char *text)
{
        int64_t ms = 0;

        return !str_empty(text) && !str_starts(text, "0001-") &&
                       time_parse(text, strlen(text), &ms) == 0
                   ? ms
                   : 0;
}

/* On a network of its own the address stands deeper, below the network's name. */
static void take_address(struct cpart *p, const Ct__NetworkSettings *n, const char *body)
{
        static const char key[] = "\"IPAddress\":\"";
        const char *at = n && !str_empty(n->ipaddress) ? n->ipaddress : "";
        size_t len = strlen(at);

        for (const char *found = body; len == 0 && (found = strstr(found, key));) {
                at = found += strlen(key);
                len = strcspn(at, "\"");
        }
        if (len > 0 && len < sizeof(p->address) && strspn(at, "0123456789abcdefABCDEF.:") >= len)
                snprintf(p->address, sizeof(p->address), "%.*s", (int)len, at);
}

bool part_take(struct cpart *p, const char *body, size_t len)
{
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        const Ct__Container *c;
        bool ok = json_read(&ct__container__descriptor, body, len, API_BODY_MAX,
                            JSON_IGNORE_UNKNOWN, &memory, &m, NULL) == 0;

        c = (const Ct__Container *)m;
        ok = ok && c->state;
        if (ok) {
                const char *status = c->state->status;

                mem_free(p->id);
                p->id = mem_strdup(c->id);
                p->ended = str_eq(status, "exited") || str_eq(status, "stopped") ||
                           str_eq(status, "dead") || str_eq(status, "created") ||
                           str_eq(status, "configured") || str_eq(status, "initialized");
                p->running = !p->ended;
                p->oom = c->state->oomkilled;
                p->exit_code = c->state->exitcode;
                p->pid = c->state->pid;
                p->started_at = time_of(c->state->startedat);
                p->finished_at = time_of(c->state->finishedat);
                take_address(p, c->networksettings, body);
        }
        arena_fini(&memory);
        return ok;
}

void part_gone(struct cpart *p)
{
        p->running = false;
        p->ended = true;
        p->exit_code = -1;
}

static void on_look_again(evutil_socket_t fd, short what, void *arg)
{
        (void)fd, (void)what;
        part_look(arg);
}

static void look_later(struct cpart *p, int64_t ms)
{
        if (!p->again)
                p->again = evtimer_new(p->unit->rt->base, on_look_again, p);
        evtimer_add(p->again, (&(struct timeval){ ms / 1000, (ms % 1000) * 1000 }));
}

static void on_process_end(evutil_socket_t fd, short what, void *arg)
{
        struct cpart *p = arg;

        (void)fd, (void)what;
        event_free(p->pidfd_event);
        p->pidfd_event = NULL;
        p->looks = 0;
        if (!p->call)
                part_look(p);
}

/* Only a process that carries the container's id in its cgroup is the container's: an engine may
 * live in another world of pids. */
static bool is_process_of(int64_t pid, const char *id)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        char part[13];

        if (pid <= 1 || strlen(id) < 12 ||
            file_read(fmt("/proc/%lld/cgroup", (long long)pid), 65536, &text, NULL) < 0)
                return false;
        memcpy(part, id, 12);
        part[12] = 0;
        return strstr(str_c(&text), part) != NULL;
}

void part_watch(struct cpart *p)
{
        if (!p->running || p->pidfd >= 0)
                return;
        if (!is_process_of(p->pid, p->id))
                return; /* the poll finds its end */
        p->pidfd = pidfd_open_for((pid_t)p->pid);
        if (p->pidfd < 0) {
                look_later(p, LOOK_AGAIN_MS);
                return;
        }
        p->pidfd_event = event_new(p->unit->rt->base, p->pidfd, EV_READ, on_process_end, p);
        event_add(p->pidfd_event, NULL);
}

static void on_looked(void *ctx, const struct api_answer *a)
{
        struct cpart *p = ctx;
        bool process_ended = p->pidfd >= 0 && !p->pidfd_event;

        p->call = NULL;
        if (a->status == 404)
                part_gone(p);
        else if (a->status != 200 || !part_take(p, a->body, a->len)) {
                log_warn("a container's state could not be had", LOG_S("workload", p->unit->id),
                         LOG_S("reason", api_problem(a)));
                look_later(p, AGAIN_MS);
                service_watch(p->unit->rt);
                return;
        }
        if (p->running && process_ended) {
                look_later(p, ++p->looks < LOOKS_FAST ? LOOK_AGAIN_MS : AGAIN_MS);
                return;
        }
        part_watch(p);
        unit_judge(p->unit);
}

void part_look(struct cpart *p)
{
        _cleanup_(str_finip) struct str path = STR_INIT;

        if (p->call)
                return;
        container_path(&path, p->id[0] ? p->id : p->name, "/json");
        p->call = api_call(p->unit->rt->api, &(struct api_request){ .method = "GET",
                                                                    .path = str_c(&path),
                                                                    .timeout_ms = CALL_MS,
                                                                    .done = on_looked,
                                                                    .ctx = p });
}

/* ---- the end ---- */

static void emit_end(struct cunit *u)
{
        struct runtime *rt = u->rt;
        const struct cpart *p = u->cause ? u->cause : u->parts.len ? u->parts.at[0] : NULL;
        bool has_code = p && p->ended && p->exit_code >= 0,
             by_signal = has_code && p->exit_code > 128 && p->exit_code <= 192;
        enum runtime_event_kind kind =
            u->stop_asked && u->outcome != RUNTIME_REMOVED ? RUNTIME_STOPPED : u->outcome;
        _cleanup_(mem_freep) char *id = mem_strdup(u->id),
                                  *message = u->message ? mem_strdup(u->message) : NULL;
        struct runtime_event ev = { .kind = kind,
                                    .workload_id = id,
                                    .token = u->token,
                                    .at_ms = p && p->finished_at ? p->finished_at : clock_wall_ms(),
                                    .reason = u->reason,
                                    .message = message };

        if (kind == RUNTIME_EXITED || kind == RUNTIME_STOPPED) {
                ev.has_exit_code = has_code;
                ev.exit_code = has_code ? (int32_t)p->exit_code : 0;
                ev.has_signal = by_signal;
                ev.signal = by_signal ? (int32_t)p->exit_code - 128 : 0;
                ev.oom = p && p->oom;
                if (kind == RUNTIME_EXITED && p && p->part[0] && !message)
                        ev.message =
                            fmt(has_code ? "service %s exited with code %d" : "service %s is gone",
                                p->part, ev.exit_code);
                if (kind == RUNTIME_EXITED && p && !has_code && !ev.reason)
                        ev.reason = PB__REASON__E__killed;
                if (kind == RUNTIME_EXITED && p && !has_code && !ev.message)
                        ev.message = "its container was removed by somebody else";
        }
        cunit_free(u);
        container_emit(rt, &ev);
}

static void finish(struct cunit *u);

static void on_pod_stopped(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;

        u->call = NULL;
        if (a->status == 0) {
                cunit_again(u, finish);
                return;
        }
        u->pod_done = true;
        emit_end(u);
}

/* No part runs any more. */
static void finish(struct cunit *u)
{
        _cleanup_(str_finip) struct str path = STR_INIT;

        if (u->kind != CUNIT_POD || u->pod_done) {
                emit_end(u);
                return;
        }
        str_adds(&path, "/v4.0.0/libpod/pods/");
        cunit_name(&path, u, NULL);
        str_adds(&path, "/stop?t=0");
        u->call = api_call(u->rt->api, &(struct api_request){ .method = "POST",
                                                              .path = str_c(&path),
                                                              .timeout_ms = CALL_MS,
                                                              .lasts = true,
                                                              .done = on_pod_stopped,
                                                              .ctx = u });
}

void unit_judge(struct cunit *u)
{
        struct cpart *failed = NULL;
        bool any = false, unknown = false;

        if (u->phase != CUNIT_UP && u->phase != CUNIT_STOPPING)
                return;
        for (size_t i = 0; i < u->parts.len; i++) {
                struct cpart *p = u->parts.at[i];

                any = any || p->running;
                /* listed as ended, and not looked at yet: how is not known */
                unknown = unknown || (!p->running && !p->ended);
                if (!failed && p->ended && (p->exit_code != 0 || p->oom))
                        failed = p;
        }
        if (u->phase == CUNIT_UP && unknown && !failed)
                return;
        if (u->phase == CUNIT_UP) {
                u->outcome = RUNTIME_EXITED;
                u->cause = failed;
        }
        if (!any) {
                u->phase = CUNIT_STOPPING;
                if (!u->call)
                        finish(u);
        } else if (u->phase == CUNIT_UP && failed)
                unit_halt(u);
}

/* ---- stopping ---- */

static void halt(struct cpart *p);

static void on_halt_again(evutil_socket_t fd, short what, void *arg)
{
        (void)fd, (void)what;
        halt(arg);
}

static void on_halted(void *ctx, const struct api_answer *a)
{
        struct cpart *p = ctx;

        p->call = NULL;
        if ((a->status >= 200 && a->status < 300) || a->status == 304 || a->status == 404) {
                part_look(p);
                return;
        }
        log_warn("a container could not be stopped, trying on", LOG_S("workload", p->unit->id),
                 LOG_S("reason", api_problem(a)));
        if (p->again)
                event_free(p->again);
        p->again = evtimer_new(p->unit->rt->base, on_halt_again, p);
        evtimer_add(p->again, (&(struct timeval){ AGAIN_MS / 1000, 0 }));
        service_watch(p->unit->rt);
}

static void halt(struct cpart *p)
{
        _cleanup_(str_finip) struct str path = STR_INIT;
        int64_t seconds = (p->unit->grace_ms + 999) / 1000;

        if (p->call)
                api_cancel(p->call);
        container_path(&path, p->id[0] ? p->id : p->name, fmt("/stop?t=%lld", (long long)seconds));
        p->call = api_call(p->unit->rt->api,
                           &(struct api_request){ .method = "POST",
                                                  .path = str_c(&path),
                                                  .timeout_ms = seconds * 1000 + CALL_MS,
                                                  .lasts = true,
                                                  .done = on_halted,
                                                  .ctx = p });
}

void unit_halt(struct cunit *u)
{
        u->phase = CUNIT_STOPPING;
        for (size_t i = 0; i < u->parts.len; i++)
                if (u->parts.at[i]->running)
                        halt(u->parts.at[i]);
        unit_judge(u);
}

/* A unit that is not known here: the engine is asked, for it may know better. */
static void on_listed_for_stop(void *ctx, const struct api_answer *a);

static void list_for_stop(struct cunit *u)
{
        _cleanup_(str_finip) struct str path = STR_INIT;

        container_list_path(u->rt, u->id, &path);
        u->call = api_call(u->rt->api, &(struct api_request){ .method = "GET",
                                                              .path = str_c(&path),
                                                              .timeout_ms = CALL_MS,
                                                              .done = on_listed_for_stop,
                                                              .ctx = u });
}

static void on_listed_for_stop(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;
        struct arena memory = ARENA_INIT;
        const Ct__Listing *list =
            a->status == 200 ? container_read_listing(u->rt, a->body, a->len, &memory) : NULL;

        u->call = NULL;
        if (!list)
                cunit_again(u, list_for_stop);
        else {
                unit_take_parts(u, list);
                unit_halt(u);
        }
        arena_fini(&memory);
}

void container_stop(struct runtime *rt, const char *workload_id, struct unit_token token,
                    int64_t grace_ms)
{
        struct cunit *u = container_find_unit(rt, workload_id);
        bool fresh = !u;

        if (fresh)
                u = cunit_new(rt, workload_id, token, NULL, CUNIT_PLAIN);
        u->stop_asked = true;
        u->grace_ms = grace_ms < 0 ? 0 : grace_ms > INT32_MAX ? INT32_MAX : grace_ms;
        if (fresh) {
                u->phase = CUNIT_STOPPING;
                u->outcome = RUNTIME_STOPPED;
                list_for_stop(u);
        } else if (u->phase == CUNIT_STARTING)
                start_stop(u);
        else if (u->phase == CUNIT_UP && !u->presumed) {
                u->outcome = RUNTIME_STOPPED;
                unit_halt(u);
        }
}

/* ---- removing ---- */

static void clear_next(struct cunit *u);

static void on_network_gone(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;

        u->call = NULL;
        if (a->status >= 500)
                log_warn("a unit's network could not be removed", LOG_S("workload", u->id),
                         LOG_S("reason", api_problem(a)));
        u->cleared(u);
}

static void clear_network(struct cunit *u)
{
        _cleanup_(str_finip) struct str path = STR_INIT;

        /* the new copy takes it over */
        if (u->phase == CUNIT_STARTING && str_eq(u->cluster, u->start->cluster_id)) {
                u->cleared(u);
                return;
        }
        str_adds(&path, "/networks/");
        cunit_name(&path, u, NULL);
        u->call = api_call(u->rt->api, &(struct api_request){ .method = "DELETE",
                                                              .path = str_c(&path),
                                                              .timeout_ms = CALL_MS,
                                                              .done = on_network_gone,
                                                              .ctx = u });
}

static void on_trash_gone(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;

        u->call = NULL;
        if (a->status == 0 || (a->status >= 300 && a->status != 404)) {
                log_warn("a container could not be removed, trying on", LOG_S("workload", u->id),
                         LOG_S("reason", api_problem(a)));
                cunit_again(u, clear_next);
                return;
        }
        if (!u->pod_done && u->trash.len == 0)
                u->pod_done = true;
        else if (u->trash.len)
                mem_free(array_pop(&u->trash));
        clear_next(u);
}

/* The containers one by one, then the pod around them. */
static void clear_next(struct cunit *u)
{
        _cleanup_(str_finip) struct str path = STR_INIT;

        if (u->trash.len)
                container_path(&path, u->trash.at[u->trash.len - 1], "?force=true&v=true");
        else if (!u->pod_done && u->rt->is_podman) {
                str_adds(&path, "/v4.0.0/libpod/pods/");
                cunit_name(&path, u, NULL);
                str_adds(&path, "?force=true");
        } else {
                clear_network(u);
                return;
        }
        u->call = api_call(u->rt->api, &(struct api_request){ .method = "DELETE",
                                                              .path = str_c(&path),
                                                              .timeout_ms = 2 * CALL_MS,
                                                              .lasts = true,
                                                              .done = on_trash_gone,
                                                              .ctx = u });
}

static void list_for_clear(struct cunit *u);

/* The engine did not answer the first question of a start. For a moment: the start failed, and it
 * may be back for the next try. For longer: this node has no such runtime, or else it would be the
 * emptiest one for good, and draw in and fail whatever comes (C25). */
static Pb__Reason__E engine_is_away(struct runtime *rt)
{
        int64_t now = clock_mono_ns() / 1000000;

        service_watch(rt); /* nothing else looks after it while nothing runs */
        if (!rt->away_since_ms || now - rt->away_seen_ms > AWAY_AGO_MS)
                rt->away_since_ms = now;
        rt->away_seen_ms = now;
        return now - rt->away_since_ms >= rt->away_ms ? PB__REASON__E__runtime_unavailable
                                                      : PB__REASON__E__start_failed;
}

static void on_listed_for_clear(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;
        struct arena memory = ARENA_INIT;
        const Ct__Listing *list =
            a->status == 200 ? container_read_listing(u->rt, a->body, a->len, &memory) : NULL;

        u->call = NULL;
        if (!list && u->phase == CUNIT_STARTING) { /* nothing of this copy was made yet */
                u->outcome = RUNTIME_START_FAILED;
                u->reason = engine_is_away(u->rt);
                u->message = mem_strdup(fmt("%sthe container engine does not answer: %s",
                                            u->reason == PB__REASON__E__runtime_unavailable
                                                ? "runtime not available: "
                                                : "",
                                            api_problem(a)));
                emit_end(u);
        } else if (!list) {
                log_warn("the containers of a unit could not be listed, trying on",
                         LOG_S("workload", u->id), LOG_S("reason", api_problem(a)));
                cunit_again(u, list_for_clear);
        } else {
                u->rt->away_since_ms = 0;
                for (size_t i = 0; i < list->n_items; i++)
                        *array_push(&u->trash) = mem_strdup(list->items[i]->id);
                clear_next(u);
        }
        arena_fini(&memory);
}

static void list_for_clear(struct cunit *u)
{
        _cleanup_(str_finip) struct str path = STR_INIT;

        container_list_path(u->rt, u->id, &path);
        u->call = api_call(u->rt->api, &(struct api_request){ .method = "GET",
                                                              .path = str_c(&path),
                                                              .timeout_ms = CALL_MS,
                                                              .done = on_listed_for_clear,
                                                              .ctx = u });
}

void unit_clear(struct cunit *u, void (*then)(struct cunit *u))
{
        u->cleared = then;
        /* not asked for when there was none */
        u->pod_done = u->phase == CUNIT_STARTING && u->kind != CUNIT_POD;
        cunit_clear_parts(u);
        list_for_clear(u);
}

void unit_clear_and_end(struct cunit *u, enum runtime_event_kind outcome, Pb__Reason__E reason,
                        const char *message)
{
        u->phase = CUNIT_CLEARING;
        u->outcome = outcome;
        u->reason = reason;
        mem_free(u->message);
        u->message = mem_strdup(message);
        if (u->call)
                api_cancel(u->call);
        u->call = NULL;
        unit_clear(u, emit_end);
}

static void removed(struct cunit *u)
{
        unlink(fmt("%s/%s/container.state", u->rt->units_dir, u->id));
        emit_end(u);
}

void container_remove(struct runtime *rt, const char *workload_id)
{
        struct cunit *u = container_find_unit(rt, workload_id);

        if (u) {
                if (u->outcome != RUNTIME_REMOVED)
                        log_error("a unit that still runs cannot be removed",
                                  LOG_S("workload", workload_id));
                return;
        }
        u = cunit_new(rt, workload_id, (struct unit_token){ 0, 0 }, NULL, CUNIT_POD);
        u->phase = CUNIT_CLEARING;
        u->outcome = RUNTIME_REMOVED;
        unit_clear(u, removed);
}
