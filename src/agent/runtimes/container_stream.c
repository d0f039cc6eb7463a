/* agent/runtimes/container_stream.c: the output of a unit's containers, and commands inside them.
 *
 * Output comes from the engine in frames (stream, length, bytes) with a time in front of each line.
 * A unit of several parts gives all of them, each line behind its part's name. Commands go into the
 * unit's first part. The engine does not end a command whose connection closes, so that is done
 * here, by its pid.
 */
#include "agent/runtimes/container_state.h"
#include "base/clock.h"
#include "base/file.h"
#include "model/json.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define EXIT_LOOKS 100
#define EXIT_LOOK_MS 50

/* Frames as the engine sends them: 1 (output) or 2 (errors), three zeros, four bytes of length. */
struct frames {
        unsigned char head[8];
        size_t n_head;
        uint32_t left;
        bool raw, at_start; /* raw: no frames, a terminal's bytes */
        struct str stamp;   /* of the line that begins, while it is incomplete */
};

struct source {
        struct cstream *stream;
        char *name, *prefix; /* prefix "": none */
        struct frames frames;
        struct api_call *call;
        bool line_open; /* the last piece did not end its line */
};

struct cstream {
        struct stream stream; /* first: see the casts */
        struct runtime *rt;
        struct stream_sink sink;
        bool is_exec, paused, closed, killing, in_callback, tty, follow, eof;
        int64_t tail_lines;
        int rows, cols;
        char *id;
        ARRAY(struct source *) sources;
        size_t n_open;
        /* exec */
        char *exec_id, *container;
        struct str body, input;
        struct api_call *call;
        struct event *timer;
        unsigned looks;
        char problem[256];
};

static void source_free(struct source *s)
{
        if (s->call)
                api_cancel(s->call);
        str_fini(&s->frames.stamp);
        mem_free(s->name);
        mem_free(s->prefix);
        mem_free(s);
}

static void stream_free(struct cstream *s)
{
        struct runtime *rt = s->rt;

        for (size_t i = 0; i < rt->streams.len; i++)
                if (rt->streams.at[i] == s) {
                        rt->streams.at[i] = rt->streams.at[--rt->streams.len];
                        break;
                }
        if (s->call)
                api_cancel(s->call);
        if (s->timer)
                event_free(s->timer);
        for (size_t i = 0; i < s->sources.len; i++)
                source_free(s->sources.at[i]);
        array_fini(&s->sources);
        str_fini(&s->body);
        str_fini(&s->input);
        mem_free(s->exec_id);
        mem_free(s->container);
        mem_free(s->id);
        mem_free(s);
}

static void stream_end(struct cstream *s, bool has_code, int32_t code, const char *error)
{
        struct stream_sink sink = s->sink;
        _cleanup_(mem_freep) char *text = error ? mem_strdup(error) : NULL;
        bool silent = s->killing;

        stream_free(s);
        if (!silent)
                sink.end(sink.ctx, has_code, code, text);
}

/* ---- frames ---- */

static void give(struct source *src, bool is_stderr, int64_t at_ms, const void *data, size_t len)
{
        struct cstream *s = src->stream;

        if (s->closed || len == 0)
                return;
        s->in_callback = true;
        if (!s->sink.data(s->sink.ctx, is_stderr, at_ms ? at_ms : clock_wall_ms(), data, len))
                s->paused = true;
        s->in_callback = false;
}

/* The time in front of a log line, cut off: "2026-11-16T05:06:31.388417026Z text". */
static size_t cut_stamp(const char *data, size_t len, int64_t *ret_ms)
{
        const char *space = memchr(data, ' ', len < 64 ? len : 64);

        if (!space || time_parse(data, (size_t)(space - data), ret_ms) < 0)
                return 0;
        return (size_t)(space - data) + 1;
}

static void give_log(struct source *src, bool is_stderr, const char *data, size_t len, bool begins)
{
        int64_t at_ms = 0;

        if (begins) {
                size_t cut = cut_stamp(data, len, &at_ms);

                data += cut;
                len -= cut;
        }
        if (src->prefix[0] && len) {
                struct str line = STR_INIT;

                if (!src->line_open)
                        str_addf(&line, "%s | ", src->prefix);
                str_add(&line, data, len);
                src->line_open = data[len - 1] != '\n';
                give(src, is_stderr, at_ms, str_c(&line), line.len);
                str_fini(&line);
        } else
                give(src, is_stderr, at_ms, data, len);
}

static void take_payload(struct source *src, const char *data, size_t len)
{
        struct frames *f = &src->frames;
        bool is_stderr = f->head[0] == 2;

        if (src->stream->is_exec) {
                give(src, is_stderr, 0, data, len);
                return;
        }
        /* A stamp may be cut by the end of a read: the beginning of a line is kept until there is a
         * space in it. */
        if (f->at_start || f->stamp.len) {
                str_add(&f->stamp, data, len);
                f->at_start = false;
                if (f->left > len && f->stamp.len < 64 && !memchr(f->stamp.buf, ' ', f->stamp.len))
                        return;
                give_log(src, is_stderr, f->stamp.buf, f->stamp.len, true);
                str_clear(&f->stamp);
        } else
                give_log(src, is_stderr, data, len, false);
}

static bool on_frames(void *ctx, const void *bytes, size_t len)
{
        struct source *src = ctx;
        struct frames *f = &src->frames;
        struct cstream *s = src->stream;
        const char *data = bytes;

        if (f->raw) {
                give(src, false, 0, data, len);
                len = 0;
        }
        while (len > 0 && !s->closed) {
                size_t n;

                if (f->left == 0) {
                        f->head[f->n_head++] = (unsigned char)*data++;
                        len--;
                        if (f->n_head < sizeof(f->head))
                                continue;
                        f->n_head = 0;
                        f->at_start = true;
                        f->left = (uint32_t)f->head[4] << 24 | (uint32_t)f->head[5] << 16 |
                                  (uint32_t)f->head[6] << 8 | f->head[7];
                        continue;
                }
                n = len < f->left ? len : f->left;
                take_payload(src, data, n);
                f->left -= (uint32_t)n;
                data += n;
                len -= n;
        }
        if (s->closed) {
                if (src->call)
                        api_cancel(TAKE_PTR(src->call));
                return false;
        }
        return !s->paused;
}

static struct source *source_new(struct cstream *s, const char *name, const char *prefix)
{
        struct source *src = mem_must(sizeof(*src));

        src->stream = s;
        src->name = mem_strdup(name);
        src->prefix = mem_strdup(prefix);
        *array_push(&s->sources) = src;
        s->n_open++;
        return src;
}

/* ---- logs ---- */

static void on_log_done(void *ctx, const struct api_answer *a)
{
        struct source *src = ctx;
        struct cstream *s = src->stream;

        src->call = NULL;
        if (a->status != 200 && !s->problem[0])
                snprintf(s->problem, sizeof(s->problem), "%s", api_problem(a));
        if (--s->n_open == 0)
                stream_end(s, false, 0, s->problem[0] ? s->problem : NULL);
}

static void open_log(struct source *src)
{
        struct cstream *s = src->stream;
        _cleanup_(str_finip) struct str path = STR_INIT;

        container_path(&path, src->name, "/logs?stdout=1&stderr=1&timestamps=1");
        str_addf(&path, "&follow=%d", s->follow);
        if (s->tail_lines >= 0)
                str_addf(&path, "&tail=%lld", (long long)s->tail_lines);
        src->call =
            api_call(s->rt->api, &(struct api_request){ .method = "GET",
                                                        .path = str_c(&path),
                                                        .timeout_ms = s->follow ? 0 : 10 * CALL_MS,
                                                        .lasts = true,
                                                        .done = on_log_done,
                                                        .data = on_frames,
                                                        .ctx = src });
}

/* The containers of the newest token. */
static void take_sources(struct cstream *s, const Ct__Listing *list)
{
        struct unit_token newest = { 0, 0 }, token;

        for (size_t i = 0; i < list->n_items; i++)
                if (token_parse(container_label(list->items[i], LABEL_TOKEN), &token) == 0 &&
                    unit_token_cmp(token, newest) > 0)
                        newest = token;
        for (size_t i = 0; i < list->n_items; i++) {
                const Ct__Listed *c = list->items[i];
                const char *part = container_label(c, LABEL_PART),
                           *name = c->n_names ? c->names[0] : c->id;

                if (token_parse(container_label(c, LABEL_TOKEN), &token) < 0 ||
                    unit_token_cmp(token, newest) != 0)
                        continue;
                if (!container_label(c, LABEL_PARTS))
                        part = pod_part_name(s->rt, s->id, name);
                source_new(s, c->id, part ? part : "");
        }
}

static void on_listed(void *ctx, const struct api_answer *a)
{
        struct cstream *s = ctx;
        struct arena memory = ARENA_INIT;
        const Ct__Listing *list =
            a->status == 200 ? container_read_listing(s->rt, a->body, a->len, &memory) : NULL;

        s->call = NULL;
        if (list)
                take_sources(s, list);
        if (!list || s->sources.len == 0)
                stream_end(s, false, 0,
                           list ? "this unit has no container on this node" : api_problem(a));
        else
                for (size_t i = 0; i < s->sources.len; i++)
                        open_log(s->sources.at[i]);
        arena_fini(&memory);
}

/* ---- exec ---- */

static void kill_command(struct cstream *s, int64_t pid)
{
        _cleanup_(str_finip) struct str text = STR_INIT;

        /* only a process of that container: a pid alone is never trusted */
        if (pid > 1 && strlen(s->container) >= 12 &&
            file_read(fmt("/proc/%lld/cgroup", (long long)pid), 65536, &text, NULL) == 0 &&
            strstr(str_c(&text), fmt("%.12s", s->container)))
                kill((pid_t)pid, SIGKILL);
}

static void ask_exit(struct cstream *s);

static void on_exit_again(evutil_socket_t fd, short what, void *arg)
{
        (void)fd, (void)what;
        ask_exit(arg);
}

static void on_exit_known(void *ctx, const struct api_answer *a)
{
        struct cstream *s = ctx;
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        const Ct__Exec *e = NULL;
        bool running = false;
        int32_t code = 0;

        s->call = NULL;
        if (a->status == 200 && json_read(&ct__exec__descriptor, a->body, a->len, API_BODY_MAX,
                                          JSON_IGNORE_UNKNOWN, &memory, &m, NULL) == 0) {
                e = (const Ct__Exec *)m;
                running = e->running;
                code = (int32_t)e->exitcode;
                if (s->killing && running)
                        kill_command(s, e->pid);
        }
        arena_fini(&memory);
        if (e && running && !s->killing && ++s->looks < EXIT_LOOKS) {
                if (!s->timer)
                        s->timer = evtimer_new(s->rt->base, on_exit_again, s);
                evtimer_add(s->timer, (&(struct timeval){ 0, EXIT_LOOK_MS * 1000 }));
                return;
        }
        stream_end(s, e && !running, code,
                   e ? (s->problem[0] ? s->problem : NULL) : api_problem(a));
}

static void ask_exit(struct cstream *s)
{
        s->call =
            api_call(s->rt->api, &(struct api_request){ .method = "GET",
                                                        .path = fmt("/exec/%s/json", s->exec_id),
                                                        .timeout_ms = CALL_MS,
                                                        .done = on_exit_known,
                                                        .ctx = s });
}

static void on_exec_done(void *ctx, const struct api_answer *a)
{
        struct source *src = ctx;
        struct cstream *s = src->stream;

        src->call = NULL;
        if (a->status >= 300 || a->status == 0)
                stream_end(s, false, 0, api_problem(a));
        else
                ask_exit(s);
}

static void on_ignored(void *ctx, const struct api_answer *a)
{
        (void)ctx, (void)a;
}

static void send_size(struct cstream *s)
{
        if (s->tty && s->exec_id && s->rows > 0 && s->cols > 0)
                api_call(s->rt->api,
                         &(struct api_request){
                             .method = "POST",
                             .path = fmt("/exec/%s/resize?h=%d&w=%d", s->exec_id, s->rows, s->cols),
                             .timeout_ms = CALL_MS,
                             .done = on_ignored });
}

static void on_exec_made(void *ctx, const struct api_answer *a)
{
        struct cstream *s = ctx;
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        const char *body =
            s->tty ? "{\"Detach\":false,\"Tty\":true}" : "{\"Detach\":false,\"Tty\":false}";
        struct source *src;

        s->call = NULL;
        if (a->status != 201 ||
            json_read(&ct__created__descriptor, a->body, a->len, API_BODY_MAX, JSON_IGNORE_UNKNOWN,
                      &memory, &m, NULL) < 0 ||
            strspn(((Ct__Created *)m)->id, "0123456789abcdefABCDEF") !=
                strlen(((Ct__Created *)m)->id)) {
                stream_end(s, false, 0, api_problem(a));
                arena_fini(&memory);
                return;
        }
        s->exec_id = mem_strdup(((Ct__Created *)m)->id);
        arena_fini(&memory);
        src = source_new(s, "", "");
        src->frames.raw = s->tty;
        src->call =
            api_call(s->rt->api, &(struct api_request){ .method = "POST",
                                                        .path = fmt("/exec/%s/start", s->exec_id),
                                                        .body = body,
                                                        .len = strlen(body),
                                                        .lasts = true,
                                                        .upgrade = true,
                                                        .done = on_exec_done,
                                                        .data = on_frames,
                                                        .ctx = src });
        if (s->input.len)
                api_write(src->call, str_c(&s->input), s->input.len);
        str_clear(&s->input);
        if (s->eof)
                api_write_eof(src->call);
        send_size(s);
}

/* ---- the stream's operations ---- */

static void cstream_resume(struct stream *st)
{
        struct cstream *s = (struct cstream *)st;

        s->paused = false;
        for (size_t i = 0; i < s->sources.len; i++)
                if (s->sources.at[i]->call)
                        api_resume(s->sources.at[i]->call);
}

static bool cstream_write(struct stream *st, const void *data, size_t len)
{
        struct cstream *s = (struct cstream *)st;

        if (!s->is_exec || s->eof)
                return true;
        if (s->exec_id)
                return s->sources.len && s->sources.at[0]->call
                           ? api_write(s->sources.at[0]->call, data, len)
                           : true;
        if (s->input.len + len > STREAM_INPUT_MAX)
                return false;
        str_add(&s->input, data, len);
        return true;
}

static void cstream_write_eof(struct stream *st)
{
        struct cstream *s = (struct cstream *)st;

        if (!s->is_exec || s->eof)
                return;
        if (s->tty)
                cstream_write(st, "\004", 1); /* what the end of input is on a terminal */
        s->eof = true;
        if (s->exec_id && !s->tty && s->sources.len && s->sources.at[0]->call)
                api_write_eof(s->sources.at[0]->call);
}

static void cstream_resize(struct stream *st, int rows, int cols)
{
        struct cstream *s = (struct cstream *)st;

        s->rows = rows;
        s->cols = cols;
        send_size(s);
}

static void on_closed(evutil_socket_t fd, short what, void *arg)
{
        struct cstream *s = arg;

        (void)fd, (void)what;
        for (size_t i = 0; i < s->sources.len; i++)
                source_free(s->sources.at[i]);
        array_clear(&s->sources);
        if (s->is_exec && s->exec_id) { /* the command goes too */
                if (s->call)
                        api_cancel(s->call);
                event_free(s->timer);
                s->timer = NULL;
                ask_exit(s);
        } else
                stream_free(s);
}

/* May come from within the sink's data(): what is left is done in the next turn of the loop. */
static void cstream_close(struct stream *st)
{
        struct cstream *s = (struct cstream *)st;

        s->closed = s->killing = true;
        if (!s->in_callback) {
                for (size_t i = 0; i < s->sources.len; i++) {
                        if (s->sources.at[i]->call)
                                api_cancel(s->sources.at[i]->call);
                        s->sources.at[i]->call = NULL;
                }
                if (s->call)
                        api_cancel(s->call);
                s->call = NULL;
        }
        if (s->timer)
                event_free(s->timer);
        s->timer = evtimer_new(s->rt->base, on_closed, s);
        evtimer_add(s->timer, (&(struct timeval){ 0, 0 }));
}

static size_t cstream_waiting(const struct stream *st)
{
        const struct cstream *s = (const struct cstream *)st;

        return s->input.len + (s->exec_id && s->sources.len && s->sources.at[0]->call
                                   ? api_unsent(s->sources.at[0]->call)
                                   : 0);
}

static const struct stream_ops cstream_ops = { cstream_resume, cstream_write, cstream_write_eof,
                                               cstream_resize, cstream_close, cstream_waiting };

/* ---- opening ---- */

static struct cstream *stream_new(struct runtime *rt, const char *workload_id,
                                  const struct stream_sink *sink, struct err *err)
{
        struct cstream *s;

        if (rt->streams.len >= CSTREAMS_MAX) {
                err_set(err, ERR_LIMIT, .msg = "too many streams are open on this node",
                        .detail = fmt("the limit is %d", CSTREAMS_MAX));
                return NULL;
        }
        s = mem_must(sizeof(*s));
        s->stream.ops = &cstream_ops;
        s->rt = rt;
        s->id = mem_strdup(workload_id);
        s->sink = *sink;
        *array_push(&rt->streams) = s;
        return s;
}

int container_logs(struct runtime *rt, const char *workload_id, const struct log_options *opt,
                   const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        struct cstream *s = stream_new(rt, workload_id, sink, err);
        _cleanup_(str_finip) struct str path = STR_INIT;

        if (!s)
                return -ERR_LIMIT;
        s->follow = opt->follow;
        s->tail_lines = opt->tail_lines;
        container_list_path(rt, workload_id, &path);
        s->call = api_call(rt->api, &(struct api_request){ .method = "GET",
                                                           .path = str_c(&path),
                                                           .timeout_ms = CALL_MS,
                                                           .done = on_listed,
                                                           .ctx = s });
        *ret = &s->stream;
        return 0;
}

int container_exec(struct runtime *rt, const char *workload_id, const struct exec_options *opt,
                   const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        const struct cunit *u = container_find_unit(rt, workload_id);
        const struct cpart *part = NULL;
        _cleanup_(str_finip) struct str path = STR_INIT;
        struct cstream *s;

        for (size_t i = 0; u && u->phase == CUNIT_UP && i < u->parts.len && !part; i++)
                part = u->parts.at[i]->running ? u->parts.at[i] : NULL;
        if (!part)
                return err_set(err, ERR_CONFLICT,
                               .msg = fmt("unit %s is not running on this node", workload_id));
        if (!opt->argv || !opt->argv[0])
                return err_set(err, ERR_INVALID, .msg = "no command was given", .path = "command");
        if (!(s = stream_new(rt, workload_id, sink, err)))
                return -ERR_LIMIT;
        s->is_exec = true;
        s->tty = opt->tty;
        s->rows = opt->rows;
        s->cols = opt->cols;
        s->container = mem_strdup(part->id);
        str_addf(&s->body,
                 "{\"AttachStdin\":true,\"AttachStdout\":true,\"AttachStderr\":true,\"Tty\":%s,",
                 opt->tty ? "true" : "false");
        if (opt->tty && !str_empty(opt->term)) {
                const char *term = fmt("TERM=%s", opt->term);

                str_adds(&s->body, "\"Env\":[");
                json_write_string(&s->body, term, strlen(term));
                str_adds(&s->body, "],");
        }
        str_adds(&s->body, "\"Cmd\":[");
        for (size_t i = 0; opt->argv[i]; i++) {
                if (i)
                        str_addc(&s->body, ',');
                json_write_string(&s->body, opt->argv[i], strlen(opt->argv[i]));
        }
        str_adds(&s->body, "]}");
        container_path(&path, part->id, "/exec");
        s->call = api_call(rt->api, &(struct api_request){ .method = "POST",
                                                           .path = str_c(&path),
                                                           .body = str_c(&s->body),
                                                           .len = s->body.len,
                                                           .timeout_ms = CALL_MS,
                                                           .done = on_exec_made,
                                                           .ctx = s });
        *ret = &s->stream;
        return 0;
}

void container_streams_close(struct runtime *rt)
{
        while (rt->streams.len)
                stream_free(rt->streams.at[0]);
}
