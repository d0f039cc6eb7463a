/* agent/runtimes/cluster_stream.c: logs and exec, passed through: what the child sends goes to the
 * taker, input goes to the child.
 *
 * A taker that wants no more for now pauses the call, so that the child is slowed down by flow
 * control and nothing piles up here.
 */
#include "agent/runtimes/cluster_state.h"
#include "base/clock.h"
#include "model/pb.h"
#include <string.h>

struct fstream {
        struct stream stream; /* first: see the casts */
        struct runtime *rt;
        struct stream_sink sink;
        struct grpc_call *call;
        bool is_exec, input_ended, finished; /* finished: the child said how it ended */
        bool has_exit_code;
        int32_t exit_code;
        char *problem;
};

static void stream_free(struct fstream *s)
{
        struct runtime *rt = s->rt;

        for (size_t i = 0; i < rt->streams.len; i++)
                if (rt->streams.at[i] == s) {
                        rt->streams.at[i] = rt->streams.at[--rt->streams.len];
                        break;
                }
        if (s->call) {
                grpc_call_set_data(s->call, NULL);
                grpc_call_cancel(s->call);
        }
        mem_free(s->problem);
        mem_free(s);
}

/* ---- from the child ---- */

static void give(struct fstream *s, bool is_stderr, int64_t at_ms, const ProtobufCBinaryData *data)
{
        struct grpc_call *call = s->call;

        if (data->len &&
            !s->sink.data(s->sink.ctx, is_stderr, at_ms > 0 ? at_ms : clock_wall_ms(), data->data,
                          data->len) &&
            grpc_call_data(call))
                grpc_call_pause(call);
}

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct fstream *s = grpc_call_data(call);
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        const char *error = NULL;

        if (!s)
                return;
        if (pb_unpack(s->is_exec ? &pb__exec_output__descriptor : &pb__log_chunk__descriptor, data,
                      len, &memory, &m, NULL) < 0) {
                grpc_call_cancel(call);
        } else if (s->is_exec) {
                const Pb__ExecOutput *out = (const Pb__ExecOutput *)m;

                s->finished = s->finished || out->eof;
                if (out->exit_code) {
                        s->has_exit_code = true;
                        s->exit_code = (int32_t)out->exit_code->value;
                }
                error = out->error;
                if (!str_empty(error) && !s->problem)
                        s->problem = mem_strdup(error);
                give(s, out->is_stderr, 0, &out->data);
        } else {
                const Pb__LogChunk *chunk = (const Pb__LogChunk *)m;

                s->finished = s->finished || chunk->eof;
                if (!str_empty(chunk->error) && !s->problem)
                        s->problem = mem_strdup(chunk->error);
                give(s, chunk->is_stderr, chunk->timestamp, &chunk->data);
        }
        arena_fini(&memory);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct fstream *s = grpc_call_data(call);
        struct stream_sink sink;
        _cleanup_(mem_freep) char *problem = NULL;
        bool has_exit_code;
        int32_t exit_code;

        if (!s)
                return;
        sink = s->sink;
        problem = TAKE_PTR(s->problem);
        if (!problem && status != GRPC_OK && !s->finished)
                problem = mem_strdup(cluster_problem(call, status));
        has_exit_code = s->has_exit_code;
        exit_code = s->exit_code;
        s->call = NULL;
        stream_free(s);
        sink.end(sink.ctx, has_exit_code, exit_code, problem);
}

static const struct grpc_callbacks callbacks = { .on_message = on_message, .on_close = on_close };

/* ---- to the child ---- */

static void stream_resume(struct stream *st)
{
        struct fstream *s = (struct fstream *)st;

        grpc_call_resume(s->call);
}

static bool send_message(struct fstream *s, const Pb__ExecMessage *m)
{
        struct str packed = STR_INIT;
        int r;

        pb_pack(&packed, &m->base);
        r = grpc_call_send(s->call, str_c(&packed), packed.len);
        str_fini(&packed);
        return r != -ERR_LIMIT;
}

static bool send_input(struct fstream *s, const Pb__ExecInput *input)
{
        Pb__ExecMessage m = PB__EXEC_MESSAGE__INIT;

        m.input = (Pb__ExecInput *)(uintptr_t)input;
        return send_message(s, &m);
}

static bool stream_write(struct stream *st, const void *data, size_t len)
{
        struct fstream *s = (struct fstream *)st;
        Pb__ExecInput input = PB__EXEC_INPUT__INIT;

        if (!s->is_exec || s->input_ended)
                return true;
        input.data.data = (uint8_t *)(uintptr_t)data;
        input.data.len = len;
        return send_input(s, &input);
}

static void stream_write_eof(struct stream *st)
{
        struct fstream *s = (struct fstream *)st;
        Pb__ExecInput input = PB__EXEC_INPUT__INIT;

        if (!s->is_exec || s->input_ended)
                return;
        s->input_ended = true;
        input.eof = true;
        send_input(s, &input);
}

static void stream_resize(struct stream *st, int rows, int cols)
{
        struct fstream *s = (struct fstream *)st;
        Pb__ExecInput input = PB__EXEC_INPUT__INIT;

        if (!s->is_exec)
                return;
        input.rows = rows;
        input.cols = cols;
        send_input(s, &input);
}

static void stream_close(struct stream *st)
{
        stream_free((struct fstream *)st);
}

static size_t stream_waiting(const struct stream *st)
{
        const struct fstream *s = (const struct fstream *)st;

        return s->call ? grpc_call_queued_bytes(s->call) : 0;
}

static const struct stream_ops fstream_ops = { stream_resume, stream_write, stream_write_eof,
                                               stream_resize, stream_close, stream_waiting };

/* ---- opening ---- */

static struct fstream *stream_new(struct runtime *rt, const struct stream_sink *sink, bool is_exec,
                                  struct err *err)
{
        struct fstream *s;

        if (rt->streams.len >= CLUSTER_STREAMS_MAX) {
                err_set(err, ERR_LIMIT, .msg = "too many streams are open on this node",
                        .detail = fmt("the limit is %d", CLUSTER_STREAMS_MAX));
                return NULL;
        }
        s = mem_must(sizeof(*s));
        s->stream.ops = &fstream_ops;
        s->rt = rt;
        s->sink = *sink;
        s->is_exec = is_exec;
        *array_push(&rt->streams) = s;
        return s;
}

int cluster_logs(struct runtime *rt, const char *workload_id, const struct log_options *opt,
                 const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        Pb__LogsRequest q = PB__LOGS_REQUEST__INIT;
        struct cunit *u = cluster_unit(rt, workload_id);
        struct fstream *s;

        if (!u)
                return err_set(err, ERR_NOT_FOUND,
                               .msg = fmt("this node has no unit %s", workload_id));
        if (!(s = stream_new(rt, sink, false, err)))
                return -ERR_LIMIT;
        q.id = u->child_id;
        q.follow = opt->follow;
        q.tail_lines = opt->tail_lines > 0 ? opt->tail_lines : 0;
        s->call = cluster_call(rt, "Logs", &q.base, &callbacks, s);
        *ret = &s->stream;
        return 0;
}

int cluster_exec(struct runtime *rt, const char *workload_id, const struct exec_options *opt,
                 const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        struct grpc_call_options co = { .max_queued_bytes = STREAM_INPUT_MAX };
        Pb__ExecMessage m = PB__EXEC_MESSAGE__INIT;
        Pb__ExecStart start = PB__EXEC_START__INIT;
        struct cunit *u = cluster_unit(rt, workload_id);
        struct fstream *s;

        if (!u || u->phase == CPHASE_ENDED)
                return err_set(err, ERR_CONFLICT,
                               .msg = fmt("unit %s is not running on this node", workload_id));
        if (!opt->argv || !opt->argv[0])
                return err_set(err, ERR_INVALID, .msg = "no command was given", .path = "command");
        if (!(s = stream_new(rt, sink, true, err)))
                return -ERR_LIMIT;
        start.id = u->child_id;
        start.command = (char **)(uintptr_t)opt->argv;
        while (opt->argv[start.n_command])
                start.n_command++;
        start.tty = opt->tty;
        start.rows = opt->rows;
        start.cols = opt->cols;
        start.term = (char *)(uintptr_t)(opt->term ? opt->term : "");
        m.start = &start;
        s->call = grpc_channel_call(rt->streams_channel, CONTROL "Exec", &co, &callbacks, s);
        send_message(s, &m);
        *ret = &s->stream;
        return 0;
}

void cluster_streams_close(struct runtime *rt)
{
        while (rt->streams.len)
                stream_free(rt->streams.at[0]);
}
