/* agent/agent_health.c: the health checks of one node's units: tcp, http, or a command inside the
 * unit, on the event loop.
 *
 * health.c says when and what follows; this asks. A check that does not answer in time has failed,
 * and what it opened is closed. At most CHECKS_MAX are under way at once; others wait a little. A
 * changed state goes to the engine, which replaces what is unhealthy.
 */
#include "agent/agent_state.h"
#include "agent/health.h"
#include "base/log.h"
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define CHECKS_MAX 64
#define BUSY_MS 200

struct check {
        struct agent *agent;
        char *id;
        struct unit_token token;
        Pb__Workload *workload; /* its spec.health is what is checked */
        struct health health;
        struct event *timer;
        struct bufferevent *bev; /* tcp and http, while under way */
        struct stream *exec;
        char why[160]; /* the last failure */
};

static const Pb__Health *spec_of(const struct check *c)
{
        return c->workload->spec->health;
}

static void set_timer(struct check *c, int64_t ms)
{
        struct timeval tv = { ms / 1000, (ms % 1000) * 1000 };

        evtimer_add(c->timer, &tv);
}

static void let_go(struct check *c)
{
        if (c->bev)
                bufferevent_free(c->bev);
        c->bev = NULL;
        if (c->exec)
                c->exec->ops->close(c->exec);
        c->exec = NULL;
}

static void drop(struct check *c)
{
        struct agent *a = c->agent;

        for (size_t i = 0; i < a->checks.len; i++)
                if (a->checks.at[i] == c) {
                        a->checks.at[i] = a->checks.at[--a->checks.len];
                        break;
                }
        if (c->health.checking)
                a->n_checking--;
        let_go(c);
        event_free(c->timer);
        pb__workload__free_unpacked(c->workload, NULL);
        mem_free(c->id);
        mem_free(c);
}

static void plan_next(struct check *c)
{
        int64_t next = health_next_ms(&c->health), now = agent_now(c->agent);

        if (next != INT64_MAX)
                set_timer(c, next > now ? next - now : 0);
}

/* The check under way has its answer. */
static void answered(struct check *c, bool ok, const char *why)
{
        struct agent *a = c->agent;
        enum health_state state;
        char text[256];

        if (!c->health.checking)
                return;
        a->n_checking--;
        if (!ok)
                snprintf(c->why, sizeof(c->why), "%s", why);
        let_go(c);
        evtimer_del(c->timer);
        if (!health_result(&c->health, ok, agent_now(a))) {
                plan_next(c);
                return;
        }
        state = c->health.state;
        snprintf(text, sizeof(text), "%d health check%s in a row failed: %s", c->health.failures,
                 c->health.failures == 1 ? "" : "s", c->why);
        log_at(state == HEALTH_HEALTHY ? LOG_INFO : LOG_WARN,
               state == HEALTH_HEALTHY ? "unit is healthy" : "unit is unhealthy",
               LOG_S("node", a->node_id), LOG_S("workload", c->id),
               LOG_S("message", state == HEALTH_HEALTHY ? "" : text));
        plan_next(c);
        engine_health(a->engine, c->id, c->token, state == HEALTH_HEALTHY,
                      state == HEALTH_HEALTHY ? NULL : text, agent_now(a));
        event_active(a->flush, EV_TIMEOUT, 0);
}

/* ---- tcp and http ---- */

static void on_http_line(struct bufferevent *bev, void *arg)
{
        struct check *c = arg;
        char line[64] = "";
        size_t n = evbuffer_get_length(bufferevent_get_input(bev));
        int status = 0;

        evbuffer_copyout(bufferevent_get_input(bev), line,
                         n < sizeof(line) - 1 ? n : sizeof(line) - 1);
        if (n < 12)
                return; /* more will come, or the time is up */
        if (sscanf(line, "HTTP/1.%*1d %3d", &status) != 1)
                answered(c, false, "the answer is not HTTP");
        else
                answered(c, status >= 200 && status < 400, fmt("it answered %d", status));
}

static void on_connection(struct bufferevent *bev, short what, void *arg)
{
        struct check *c = arg;
        const Pb__Health *h = spec_of(c);

        if (what & BEV_EVENT_CONNECTED) {
                if (!h->path || !h->path[0])
                        answered(c, true, NULL);
                else
                        evbuffer_add_printf(bufferevent_get_output(bev),
                                            "GET %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: "
                                            "berth\r\nConnection: close\r\n\r\n",
                                            h->path);
                return;
        }
        answered(c, false,
                 what & BEV_EVENT_ERROR
                     ? fmt("port %d: %s", h->port, strerror(EVUTIL_SOCKET_ERROR()))
                     : "the connection was closed without an answer");
}

/* Where the unit's port is: its own address, a port of this machine that leads to it, or this
 * machine. */
static void begin_connection(struct check *c)
{
        const Pb__Spec *spec = c->workload->spec;
        struct agent *a = c->agent;
        const char *address = a->ops->address ? a->ops->address(a->runtime, c->id) : NULL;
        int port = spec->health->port, len;
        struct sockaddr_storage to;

        for (size_t i = 0; !address && i < spec->n_ports; i++)
                if (spec->ports[i]->container_port == port && spec->ports[i]->host_port)
                        port = spec->ports[i]->host_port;
        len = (int)sizeof(to);
        if (evutil_parse_sockaddr_port(fmt(address && strchr(address, ':') ? "[%s]:%d" : "%s:%d",
                                           address ? address : "127.0.0.1", port),
                                       (struct sockaddr *)&to, &len) < 0) {
                answered(c, false, "its address cannot be read");
                return;
        }
        c->bev = bufferevent_socket_new(a->fleet->base, -1, BEV_OPT_CLOSE_ON_FREE);
        bufferevent_setcb(c->bev, on_http_line, NULL, on_connection, c);
        bufferevent_enable(c->bev, EV_READ | EV_WRITE);
        if (bufferevent_socket_connect(c->bev, (struct sockaddr *)&to, len) < 0)
                answered(c, false, fmt("port %d: %s", port, strerror(errno)));
}

/* ---- a command ---- */

static bool on_exec_data(void *ctx, bool is_stderr, int64_t timestamp_ms, const void *data,
                         size_t len)
{
        (void)ctx, (void)is_stderr, (void)timestamp_ms, (void)data, (void)len;
        return true;
}

static void on_exec_end(void *ctx, bool has_exit_code, int32_t exit_code, const char *error)
{
        struct check *c = ctx;

        c->exec = NULL; /* it frees itself */
        answered(c, has_exit_code && exit_code == 0 && !error,
                 error           ? error
                 : has_exit_code ? fmt("the command exited with code %d", exit_code)
                                 : "the command was lost");
}

static void begin_command(struct check *c)
{
        const Pb__Health *h = spec_of(c);
        const char **argv = mem_must(sizeof(*argv) * (h->n_command + 1));
        struct exec_options opt = { .argv = argv };
        struct stream_sink sink = { on_exec_data, on_exec_end, c };
        struct err err = { 0 };

        for (size_t i = 0; i < h->n_command; i++)
                argv[i] = h->command[i];
        if (c->agent->ops->exec(c->agent->runtime, c->id, &opt, &sink, &c->exec, &err) < 0)
                answered(c, false, err_line(&err));
        else if (c->exec)
                c->exec->ops->write_eof(c->exec);
        mem_free(argv);
}

/* ---- time ---- */

/* Due, or out of time. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
        struct check *c = arg;
        struct agent *a = c->agent;

        (void)fd, (void)what;
        if (c->health.checking) {
                answered(c, false,
                         fmt("no answer within %lld s", (long long)(c->health.timeout_ms / 1000)));
                return;
        }
        if (a->n_checking >= CHECKS_MAX) {
                set_timer(c, BUSY_MS);
                return;
        }
        if (!health_begin(&c->health, agent_now(a))) {
                plan_next(c);
                return;
        }
        a->n_checking++;
        set_timer(c, c->health.timeout_ms);
        if (spec_of(c)->n_command)
                begin_command(c);
        else
                begin_connection(c);
}

static struct check *find(struct agent *a, const char *id)
{
        for (size_t i = 0; i < a->checks.len; i++)
                if (strcmp(a->checks.at[i]->id, id) == 0)
                        return a->checks.at[i];
        return NULL;
}

static void begin(struct agent *a, const struct runtime_event *ev)
{
        Pb__Workload *w = engine_definition(a->engine, ev->workload_id);
        struct check *c;
        int64_t now = agent_now(a);

        if (!w || !w->spec || !w->spec->health) {
                if (w)
                        pb__workload__free_unpacked(w, NULL);
                return;
        }
        c = mem_must(sizeof(*c));
        c->agent = a;
        c->id = mem_strdup(ev->workload_id);
        c->token = ev->token;
        c->workload = w;
        c->timer = evtimer_new(a->fleet->base, on_timer, c);
        health_init(&c->health, w->spec->health, ev->at_ms > 0 && ev->at_ms < now ? ev->at_ms : now,
                    now);
        *array_push(&a->checks) = c;
        plan_next(c);
}

void agent_health_event(struct agent *a, const struct runtime_event *ev)
{
        struct check *c;

        if (ev->kind == RUNTIME_PROGRESS || a->ops->checks_health)
                return;
        if ((c = find(a, ev->workload_id)) &&
            (ev->kind == RUNTIME_REMOVED || unit_token_cmp(c->token, ev->token) <= 0))
                drop(c);
        if (ev->kind == RUNTIME_STARTED || ev->kind == RUNTIME_FOUND_RUNNING)
                begin(a, ev);
}

void agent_health_close(struct agent *a)
{
        while (a->checks.len)
                drop(a->checks.at[0]);
        array_fini(&a->checks);
}
