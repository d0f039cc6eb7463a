/* agent/agent_streams.c: logs and exec: between the runtime's streams and the server's.
 *
 * Data goes straight onto the agent's one gRPC stream; when that is backed up the runtime's stream
 * is paused (the file is not read, the command's pipe fills) until there is room again. A request
 * that cannot be served is answered with its error and the end.
 *
 * Each stream has a window in both directions: output waits for the server's credit, so that one
 * slow reader does not fill the connection that all share; input is allowed as the command reads
 * it, so that a slow command makes its writer wait. Servers from before that give no credit and get
 * none.
 */
#include "agent/agent_state.h"
#include "base/log.h"
#include "base/stream_credit.h"
#include <string.h>

#define INPUT_LOOK_MS 10

static struct relay *find_relay(struct agent *a, uint64_t id)
{
        for (size_t i = 0; i < a->relays.len; i++)
                if (a->relays.at[i]->id == id)
                        return a->relays.at[i];
        return NULL;
}

static void drop_relay(struct relay *r)
{
        struct agent *a = r->agent;

        for (size_t i = 0; i < a->relays.len; i++)
                if (a->relays.at[i] == r) {
                        a->relays.at[i] = a->relays.at[--a->relays.len];
                        break;
                }
        mem_free(r);
}

static char *text(const char *s)
{
        return (char *)(uintptr_t)(s ? s : "");
}

static bool send_data(struct relay *r, bool is_stderr, int64_t timestamp_ms, const void *data,
                      size_t len)
{
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        Pb__LogChunk log = PB__LOG_CHUNK__INIT;
        Pb__ExecOutput exec = PB__EXEC_OUTPUT__INIT;
        ProtobufCBinaryData bytes = { len, (uint8_t *)(uintptr_t)data };

        if (r->is_exec) {
                exec.stream_id = r->id;
                exec.is_stderr = is_stderr;
                exec.data = bytes;
                m.exec = &exec;
        } else {
                log.stream_id = r->id;
                log.is_stderr = is_stderr;
                log.data = bytes;
                log.timestamp = timestamp_ms;
                m.log = &log;
        }
        return agent_send(r->agent, &m);
}

static void send_end(struct agent *a, uint64_t id, bool is_exec, bool has_exit_code,
                     int32_t exit_code, const char *error)
{
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        Pb__LogChunk log = PB__LOG_CHUNK__INIT;
        Pb__ExecOutput exec = PB__EXEC_OUTPUT__INIT;
        Pb__IntValue code = PB__INT_VALUE__INIT;

        code.value = exit_code;
        if (is_exec) {
                exec.stream_id = id;
                exec.eof = true;
                exec.error = text(error);
                exec.exit_code = has_exit_code ? &code : NULL;
                m.exec = &exec;
        } else {
                log.stream_id = id;
                log.eof = true;
                log.error = text(error);
                m.log = &log;
        }
        agent_send(a, &m);
}

static bool on_data(void *ctx, bool is_stderr, int64_t timestamp_ms, const void *data, size_t len)
{
        struct relay *r = ctx;

        r->no_room = !send_data(r, is_stderr, timestamp_ms, data, len);
        if (r->by_credit)
                r->credit -= (int64_t)len + STREAM_MESSAGE_COST;
        r->paused = r->no_room || (r->by_credit && r->credit <= 0);
        return !r->paused;
}

/* ---- credit ---- */

static void resume(struct relay *r)
{
        if (!r->paused || r->no_room || (r->by_credit && r->credit <= 0))
                return;
        r->paused = false;
        r->stream->ops->resume(r->stream);
}

static void on_credit(struct agent *a, const Pb__StreamCredit *c)
{
        struct relay *r = find_relay(a, c->stream_id);

        if (!r || !r->by_credit || c->bytes <= 0)
                return;
        r->credit =
            c->bytes < STREAM_CREDIT_MAX - r->credit ? r->credit + c->bytes : STREAM_CREDIT_MAX;
        resume(r);
}

/* Allows as much input as the command has read. True: some of it still waits. */
static bool allow_input(struct relay *r)
{
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        Pb__StreamCredit credit = PB__STREAM_CREDIT__INIT;
        int64_t waiting, allowed;

        if (!r->by_credit || !r->is_exec || !r->stream)
                return false;
        waiting = r->stream->ops->waiting ? (int64_t)r->stream->ops->waiting(r->stream) : 0;
        allowed = r->input_bytes - (waiting < r->input_bytes ? waiting : r->input_bytes) +
                  STREAM_INPUT_WINDOW;
        if (allowed - r->input_credit >= STREAM_INPUT_WINDOW / 4) {
                credit.stream_id = r->id;
                credit.bytes = allowed - r->input_credit;
                r->input_credit = allowed;
                m.credit = &credit;
                agent_send(r->agent, &m);
        }
        return waiting > 0;
}

static void on_relay_input(evutil_socket_t fd, short what, void *arg)
{
        struct agent *a = arg;
        bool more = false;

        (void)fd, (void)what;
        for (size_t i = 0; i < a->relays.len; i++)
                more = allow_input(a->relays.at[i]) || more;
        if (more)
                evtimer_add(a->relay_input, &(struct timeval){ .tv_usec = INPUT_LOOK_MS * 1000 });
}

static void look_at_input(struct relay *r)
{
        struct agent *a = r->agent;

        if (!allow_input(r))
                return;
        if (!a->relay_input)
                a->relay_input = evtimer_new(a->fleet->base, on_relay_input, a);
        if (!evtimer_pending(a->relay_input, NULL))
                evtimer_add(a->relay_input, &(struct timeval){ .tv_usec = INPUT_LOOK_MS * 1000 });
}

static void on_end(void *ctx, bool has_exit_code, int32_t exit_code, const char *error)
{
        struct relay *r = ctx;

        send_end(r->agent, r->id, r->is_exec, has_exit_code, exit_code, error);
        drop_relay(r);
}

static struct relay *new_relay(struct agent *a, uint64_t id, bool is_exec, int64_t credit)
{
        struct relay *r;

        if (a->relays.len >= RELAYS_MAX || find_relay(a, id)) {
                send_end(a, id, is_exec, false, 0,
                         find_relay(a, id) ? "this stream id is in use"
                                           : "too many streams are open on this node");
                return NULL;
        }
        r = mem_must(sizeof(*r));
        r->agent = a;
        r->id = id;
        r->is_exec = is_exec;
        r->by_credit = credit > 0;
        r->credit = credit < STREAM_CREDIT_MAX ? credit : STREAM_CREDIT_MAX;
        *array_push(&a->relays) = r;
        return r;
}

static void refuse(struct relay *r, const struct err *err)
{
        send_end(r->agent, r->id, r->is_exec, false, 0, err_line(err));
        drop_relay(r);
}

static void on_log(struct agent *a, const Pb__LogRequest *q)
{
        struct log_options opt = { .follow = q->follow,
                                   .tail_lines = q->tail_lines > 0 ? q->tail_lines : -1 };
        struct relay *r = new_relay(a, q->stream_id, false, q->credit);
        struct stream_sink sink = { on_data, on_end, r };
        struct err err = { 0 };

        if (r && a->ops->logs(a->runtime, q->unit_id, &opt, &sink, &r->stream, &err) < 0)
                refuse(r, &err);
}

static void on_exec(struct agent *a, const Pb__ExecRequest *q)
{
        const char **argv = mem_must(sizeof(*argv) * (q->n_command + 1));
        struct exec_options opt = {
                .argv = argv, .tty = q->tty, .rows = q->rows, .cols = q->cols, .term = q->term
        };
        struct relay *r = new_relay(a, q->stream_id, true, q->credit);
        struct stream_sink sink = { on_data, on_end, r };
        struct err err = { 0 };

        for (size_t i = 0; i < q->n_command; i++)
                argv[i] = q->command[i];
        if (r && a->ops->exec(a->runtime, q->unit_id, &opt, &sink, &r->stream, &err) < 0)
                refuse(r, &err);
        else if (r)
                look_at_input(r);
        mem_free(argv);
}

static void on_exec_input(struct agent *a, const Pb__ExecInput *in)
{
        struct relay *r = find_relay(a, in->stream_id);

        if (!r || !r->is_exec)
                return; /* it ended while this was on its way */
        if (in->rows > 0 && in->cols > 0)
                r->stream->ops->resize(r->stream, in->rows, in->cols);
        if (in->data.len && !r->stream->ops->write(r->stream, in->data.data, in->data.len)) {
                r->stream->ops->close(r->stream);
                refuse(r, &(struct err){ .code = ERR_LIMIT,
                                         .msg = "input came faster than the command reads it" });
                return;
        }
        r->input_bytes += (int64_t)in->data.len;
        if (in->eof)
                r->stream->ops->write_eof(r->stream);
        look_at_input(r);
}

void agent_stream_message(struct agent *a, const Pb__ServerMessage *m)
{
        struct relay *r;

        if (m->log)
                on_log(a, m->log);
        else if (m->exec)
                on_exec(a, m->exec);
        else if (m->exec_input)
                on_exec_input(a, m->exec_input);
        else if (m->credit)
                on_credit(a, m->credit);
        else if (m->cancel && (r = find_relay(a, m->cancel->stream_id))) {
                r->stream->ops->close(r->stream);
                drop_relay(r);
        }
}

void agent_streams_close(struct agent *a)
{
        while (a->relays.len) {
                struct relay *r = a->relays.at[0];

                r->stream->ops->close(r->stream);
                drop_relay(r);
        }
}

void agent_streams_resume(struct agent *a)
{
        for (size_t i = 0; i < a->relays.len; i++) {
                struct relay *r = a->relays.at[i];

                r->no_room = false;
                resume(r);
        }
}
