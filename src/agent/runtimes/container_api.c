/* agent/runtimes/container_api.c: see container_api.h.
 *
 *      queued --turn--> connecting --> HEAD --> BODY (by length, by chunks, until close) or RAW -->
 *      done
 *
 * A callback may cancel any call, its own too: a call in a callback is only marked, and freed when
 * the callback is back.
 */
#include "agent/runtimes/container_api.h"
#include "base/arena.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "container.pb-c.h"
#include "model/json.h"
#include "net/http_parse.h"
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum stage {
        STAGE_QUEUED,
        STAGE_HEAD,
        STAGE_LENGTH,
        STAGE_CHUNK_SIZE,
        STAGE_CHUNK,
        STAGE_CHUNK_END,
        STAGE_TRAILER,
        STAGE_CLOSE,
        STAGE_RAW
};

struct api_call {
        struct api *api;
        enum stage stage;
        int status;
        uint64_t left; /* of the body or of this chunk */
        struct evbuffer *out;
        struct str body;
        struct bufferevent *bev;
        struct event *timer;
        bool lasts, upgrade, paused, ended, dead, write_eof, in_callback, got_any;
        char error[256]; /* when ended: why there is no answer; "": there is one */
        void (*done)(void *ctx, const struct api_answer *answer);
        bool (*data)(void *ctx, const void *data, size_t len);
        void *ctx;
};

struct api {
        struct event_base *base;
        char *path;
        ARRAY(struct api_call *) calls; /* all of them; those that wait in order */
        size_t n_short, n_long;
};

static void begin(struct api_call *c);

/* ---- life of a call ---- */

static void free_call(struct api_call *c)
{
        struct api *api = c->api;

        for (size_t i = 0; i < api->calls.len; i++)
                if (api->calls.at[i] == c) {
                        memmove(&api->calls.at[i], &api->calls.at[i + 1],
                                (api->calls.len - i - 1) * sizeof(api->calls.at[0]));
                        api->calls.len--;
                        break;
                }
        if (c->stage != STAGE_QUEUED) {
                if (c->lasts)
                        api->n_long--;
                else
                        api->n_short--;
        }
        if (c->bev)
                bufferevent_free(c->bev);
        if (c->timer)
                event_free(c->timer);
        if (c->out)
                evbuffer_free(c->out);
        str_fini(&c->body);
        mem_free(c);
}

static bool may_begin(const struct api *api, const struct api_call *c)
{
        return c->lasts ? api->n_long < API_LONG_MAX : api->n_short < API_CALLS_MAX;
}

static void next_turn(struct api *api)
{
        for (size_t i = 0; i < api->calls.len; i++) {
                struct api_call *c = api->calls.at[i];

                if (c->stage == STAGE_QUEUED && !c->ended && may_begin(api, c)) {
                        begin(c);
                        i = 0;
                }
        }
}

/* The answer is complete, or there is none. From a timer, so that done() never comes from within a
 * caller's own call. */
static void deliver(struct api_call *c)
{
        struct api *api = c->api;
        bool failed = c->error[0] != 0;
        struct api_answer a = { .status = failed ? 0 : c->status,
                                .body = str_c(&c->body),
                                .len = c->body.len,
                                .error = failed ? c->error : NULL };

        c->in_callback = true;
        if (!c->dead)
                c->done(c->ctx, &a);
        free_call(c);
        next_turn(api);
}

static void end_soon(struct api_call *c, const char *error)
{
        struct timeval now = { 0, 0 };

        if (c->ended)
                return;
        c->ended = true;
        snprintf(c->error, sizeof(c->error), "%s", error ? error : "");
        if (c->bev)
                bufferevent_disable(c->bev, EV_READ | EV_WRITE);
        evtimer_add(c->timer, &now);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
        struct api_call *c = arg;

        (void)fd, (void)what;
        if (!c->ended) {
                c->ended = true;
                snprintf(c->error, sizeof(c->error), "the container engine did not answer in time");
        }
        deliver(c);
}

void api_cancel(struct api_call *c)
{
        struct api *api = c->api;

        c->dead = true;
        if (c->in_callback)
                return;
        free_call(c);
        next_turn(api);
}

/* ---- the answer ---- */

/* A piece of the body. False: the call is gone or paused. */
static bool take(struct api_call *c, const void *data, size_t len)
{
        if (c->data && c->status >= 100 && c->status < 300) {
                bool more;

                c->in_callback = true;
                more = c->data(c->ctx, data, len);
                c->in_callback = false;
                if (!more && !c->dead) {
                        c->paused = true;
                        bufferevent_disable(c->bev, EV_READ);
                }
                return more && !c->dead;
        }
        if (c->body.len + len > API_BODY_MAX) {
                end_soon(c, "the container engine's answer is too long");
                return false;
        }
        str_add(&c->body, data, len);
        return true;
}

static bool field_is(const char *line, const char *name, const char **ret_value)
{
        size_t n = strlen(name);

        if (strncasecmp(line, name, n) != 0 || line[n] != ':')
                return false;
        line += n + 1;
        while (*line == ' ')
                line++;
        *ret_value = line;
        return true;
}

static void read_head(struct api_call *c, char *head)
{
        char *save = NULL, *line = strtok_r(head, "\r\n", &save);
        const char *value;
        bool chunked = false, has_length = false;

        if (!line || strncmp(line, "HTTP/1.", 7) != 0 || strlen(line) < 12 ||
            (c->status = atoi(line + 9)) < 100 || c->status > 599) {
                end_soon(c, "what answers on the container engine's socket does not speak HTTP");
                return;
        }
        while ((line = strtok_r(NULL, "\r\n", &save))) {
                uint64_t n;

                if (field_is(line, "content-length", &value) && str_parse_u64(value, &n) == 0) {
                        c->left = n;
                        has_length = true;
                } else if (field_is(line, "transfer-encoding", &value))
                        chunked = strcasecmp(value, "chunked") == 0;
        }
        if (c->status == 101 || (c->upgrade && c->status == 200)) {
                c->stage = STAGE_RAW;
                bufferevent_write_buffer(c->bev, c->out); /* what was written meanwhile */
                if (c->write_eof)
                        api_write_eof(c);
        } else if (c->status < 200)
                c->stage = STAGE_HEAD; /* 100: the real one follows */
        else if (c->status == 204 || c->status == 304 || (has_length && !chunked && c->left == 0))
                end_soon(c, NULL);
        else
                c->stage = chunked ? STAGE_CHUNK_SIZE : has_length ? STAGE_LENGTH : STAGE_CLOSE;
}

static bool step_head(struct api_call *c, struct evbuffer *in)
{
        struct evbuffer_ptr end = evbuffer_search(in, "\r\n\r\n", 4, NULL);
        char *head;

        if (end.pos < 0) {
                if (evbuffer_get_length(in) > API_HEAD_MAX)
                        end_soon(c, "the container engine's answer has too long a head");
                return false;
        }
        if (end.pos > API_HEAD_MAX) {
                end_soon(c, "the container engine's answer has too long a head");
                return false;
        }
        head = mem_must((size_t)end.pos + 5);
        evbuffer_remove(in, head, (size_t)end.pos + 4);
        read_head(c, head);
        mem_free(head);
        return true;
}

static bool step_line(struct api_call *c, struct evbuffer *in)
{
        size_t len;
        char *line = evbuffer_readln(in, &len, EVBUFFER_EOL_CRLF);

        if (!line) {
                if (evbuffer_get_length(in) > API_HEAD_MAX)
                        end_soon(c, "the container engine's answer is malformed");
                return false;
        }
        if (c->stage == STAGE_CHUNK_SIZE) {
                int64_t size = http_chunk_size(line, len);

                if (size < 0)
                        end_soon(c, "the container engine's answer is malformed");
                c->left = (uint64_t)size;
                c->stage = size == 0 ? STAGE_TRAILER : STAGE_CHUNK;
        } else if (c->stage == STAGE_CHUNK_END)
                c->stage = STAGE_CHUNK_SIZE;
        else if (len == 0) /* the end of the trailer */
                end_soon(c, NULL);
        free(line);
        return true;
}

static bool step_bytes(struct api_call *c, struct evbuffer *in)
{
        char buf[16384];
        bool bounded = c->stage == STAGE_LENGTH || c->stage == STAGE_CHUNK;
        size_t want = bounded && c->left < sizeof(buf) ? (size_t)c->left : sizeof(buf);
        int n = evbuffer_remove(in, buf, want);

        if (n <= 0)
                return false;
        if (bounded) {
                c->left -= (uint64_t)n;
                if (c->left == 0 && c->stage == STAGE_CHUNK)
                        c->stage = STAGE_CHUNK_END;
                else if (c->left == 0)
                        end_soon(c, NULL);
        }
        return take(c, buf, (size_t)n);
}

static void consume(struct api_call *c)
{
        struct evbuffer *in = bufferevent_get_input(c->bev);
        bool more = true;

        while (more && !c->dead && !c->paused && !c->ended) {
                switch (c->stage) {
                case STAGE_HEAD:
                        more = step_head(c, in);
                        break;
                case STAGE_CHUNK_SIZE:
                case STAGE_CHUNK_END:
                case STAGE_TRAILER:
                        more = step_line(c, in);
                        break;
                default:
                        more = step_bytes(c, in);
                }
        }
        if (c->dead)
                api_cancel(c);
}

static void on_read(struct bufferevent *bev, void *arg)
{
        (void)bev;
        ((struct api_call *)arg)->got_any = true;
        consume(arg);
}

/* While a call is paused nothing is read, so its end is only seen when all before it was taken. */
static void on_event(struct bufferevent *bev, short what, void *arg)
{
        struct api_call *c = arg;

        (void)bev;
        if (what & BEV_EVENT_CONNECTED || c->ended)
                return;
        if (what & BEV_EVENT_ERROR && !c->got_any) {
                end_soon(c, fmt("the container engine cannot be reached at %s: %s", c->api->path,
                                strerror(EVUTIL_SOCKET_ERROR())));
                return;
        }
        if (c->stage == STAGE_CLOSE || c->stage == STAGE_RAW)
                end_soon(c, NULL);
        else
                end_soon(c,
                         "the container engine closed the connection in the middle of its answer");
}

/* ---- the request ---- */

static void on_drained(struct bufferevent *bev, void *arg)
{
        struct api_call *c = arg;

        if (c->stage == STAGE_RAW && c->write_eof &&
            evbuffer_get_length(bufferevent_get_output(bev)) == 0)
                shutdown(bufferevent_getfd(bev), SHUT_WR);
}

static void begin(struct api_call *c)
{
        struct sockaddr_un to = { .sun_family = AF_UNIX };
        struct api *api = c->api;

        c->stage = STAGE_HEAD;
        if (c->lasts)
                api->n_long++;
        else
                api->n_short++;
        memcpy(to.sun_path, api->path, strlen(api->path) + 1);
        c->bev = bufferevent_socket_new(api->base, -1, BEV_OPT_CLOSE_ON_FREE);
        if (!c->bev) {
                end_soon(c, "no memory for a connection to the container engine");
                return;
        }
        bufferevent_setcb(c->bev, on_read, on_drained, on_event, c);
        bufferevent_write_buffer(c->bev, c->out);
        bufferevent_enable(c->bev, EV_READ | EV_WRITE);
        if (bufferevent_socket_connect(c->bev, (struct sockaddr *)&to, (int)sizeof(to)) < 0)
                end_soon(c, fmt("the container engine cannot be reached at %s: %s", api->path,
                                strerror(errno)));
}

struct api_call *api_call(struct api *api, const struct api_request *rq)
{
        struct api_call *c = mem_must(sizeof(*c));

        c->api = api;
        c->lasts = rq->lasts;
        c->upgrade = rq->upgrade;
        c->done = rq->done;
        c->data = rq->data;
        c->ctx = rq->ctx;
        c->timer = evtimer_new(api->base, on_timer, c);
        c->out = evbuffer_new();
        evbuffer_add_printf(c->out, "%s %s HTTP/1.1\r\nHost: berth\r\n", rq->method, rq->path);
        if (rq->upgrade)
                evbuffer_add_printf(c->out, "Connection: Upgrade\r\nUpgrade: tcp\r\n");
        else
                evbuffer_add_printf(c->out, "Connection: close\r\n");
        if (rq->body || strcmp(rq->method, "POST") == 0)
                evbuffer_add_printf(c->out, "Content-Length: %zu\r\n", rq->len);
        if (rq->body)
                evbuffer_add_printf(c->out, "Content-Type: %s\r\n",
                                    rq->content_type ? rq->content_type : "application/json");
        evbuffer_add(c->out, "\r\n", 2);
        if (rq->body)
                evbuffer_add(c->out, rq->body, rq->len);
        *array_push(&api->calls) = c;
        if (rq->timeout_ms > 0)
                evtimer_add(c->timer, (&(struct timeval){ rq->timeout_ms / 1000,
                                                          (rq->timeout_ms % 1000) * 1000 }));
        if (may_begin(api, c))
                begin(c);
        else if (c->lasts)
                end_soon(c, "too many streams to the container engine are open");
        return c;
}

void api_resume(struct api_call *c)
{
        if (!c->paused || c->dead)
                return;
        c->paused = false;
        bufferevent_enable(c->bev, EV_READ);
        if (!c->in_callback)
                consume(c);
}

bool api_write(struct api_call *c, const void *data, size_t len)
{
        struct evbuffer *to = c->stage == STAGE_RAW ? bufferevent_get_output(c->bev) : c->out;

        if (c->ended || c->write_eof)
                return true; /* nobody reads it any more */
        if (evbuffer_get_length(to) + len > API_UNSENT_MAX)
                return false;
        evbuffer_add(to, data, len);
        return true;
}

size_t api_unsent(const struct api_call *c)
{
        return c->ended ? 0
                        : evbuffer_get_length(c->stage == STAGE_RAW ? bufferevent_get_output(c->bev)
                                                                    : c->out);
}

void api_write_eof(struct api_call *c)
{
        c->write_eof = true;
        if (c->stage == STAGE_RAW && !c->ended &&
            evbuffer_get_length(bufferevent_get_output(c->bev)) == 0)
                shutdown(bufferevent_getfd(c->bev), SHUT_WR);
}

/* ---- life ---- */

struct api *api_create(struct event_base *base, const char *socket_path)
{
        struct api *api = mem_must(sizeof(*api));

        must(strlen(socket_path) < sizeof(((struct sockaddr_un *)0)->sun_path),
             "a unix socket's path fits its address");
        api->base = base;
        api->path = mem_strdup(socket_path);
        return api;
}

void api_destroy(struct api *api)
{
        if (!api)
                return;
        while (api->calls.len)
                free_call(api->calls.at[api->calls.len - 1]);
        array_fini(&api->calls);
        mem_free(api->path);
        mem_free(api);
}

/* ---- waited for ---- */

struct waited {
        struct event_base *base;
        int status;
        char *body, error[256];
};

static void on_waited(void *ctx, const struct api_answer *a)
{
        struct waited *w = ctx;

        w->status = a->status;
        w->body = mem_strndup(a->body, a->len);
        if (a->error)
                strncpy(w->error, a->error, sizeof(w->error) - 1);
        event_base_loopbreak(w->base);
}

int api_call_wait(const char *socket_path, const char *method, const char *path, const char *body,
                  int64_t timeout_ms, int *ret_status, char **ret_body, struct err *err)
{
        struct waited w = { .base = event_base_new() };
        struct api *api;

        if (!w.base)
                return err_set(err, ERR_INTERNAL, .msg = "cannot make an event loop");
        api = api_create(w.base, socket_path);
        api_call(api, &(struct api_request){ .method = method,
                                             .path = path,
                                             .body = body,
                                             .len = body ? strlen(body) : 0,
                                             .timeout_ms = timeout_ms,
                                             .done = on_waited,
                                             .ctx = &w });
        event_base_dispatch(w.base);
        api_destroy(api);
        event_base_free(w.base);
        if (w.status == 0) {
                mem_free(w.body);
                return err_set(err, ERR_UNAVAILABLE,
                               .msg = w.error[0] ? w.error : "the container engine did not answer");
        }
        *ret_status = w.status;
        if (ret_body)
                *ret_body = w.body;
        else
                mem_free(w.body);
        return 0;
}

/* ---- words ---- */

const char *api_problem(const struct api_answer *a)
{
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        const char *text;

        if (a->error)
                return a->error;
        if (json_read(&ct__problem__descriptor, a->body, a->len, API_BODY_MAX, JSON_IGNORE_UNKNOWN,
                      &memory, &m, NULL) == 0 &&
            !str_empty(((Ct__Problem *)m)->message))
                text = fmt("%s", ((Ct__Problem *)m)->message);
        else
                text = a->len ? fmt("%.200s", a->body)
                              : fmt("the container engine answered %d", a->status);
        arena_fini(&memory);
        return text;
}

void api_add_encoded(struct str *out, const char *text)
{
        for (; *text; text++) {
                unsigned char ch = (unsigned char)*text;

                if ((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                    (ch >= '0' && ch <= '9') || strchr("-_.~/:@", ch))
                        str_addc(out, (char)ch);
                else
                        str_addf(out, "%%%02X", ch);
        }
}
