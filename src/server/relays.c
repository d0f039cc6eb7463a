/* server/relays.c: see relays.h. */
#include "server/relays.h"

#include "base/array.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/stream_credit.h"
#include "model/pb.h"
#include "model/validate.h"
#include "net/grpc.h"
#include "net/http.h"
#include "server/access.h"
#include "server/io.h"
#include <event2/event.h>
#include <string.h>

#define SLOT_BITS 16
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
#define RELAYS_MAX 1024
/* given to the network at once; the rest waits in the backlog */
#define SINK_BYTES (1024 * 1024)
#define TOTAL_BYTES (256u * 1024 * 1024) /* for all backlogs together */
/* the user's input is not read while the agent has more than this waiting */
#define AGENT_BYTES (256 * 1024)
#define HELD_MAX (8u * 1024 * 1024) /* of a user's input, while the agent takes none */
#define AGAIN_MS 20
/* an HTTP reader gets its headers after this long, also when nothing was written yet */
#define START_MS 500
#define COMMAND_MAX 256
/* callers and workloads that are remembered: a read of one that is not is told of again */
#define TOLD 4096
#define TOLD_MS 600000
#define COMMAND_SHOWN 512 /* bytes of a command in its event */
#define TERM_MAX 64
#define TERM_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.+-_"

struct chunk {
        void *data;
        size_t len, cost; /* cost: in credit */
};

struct relay {
        const struct door *door; /* first: see io.h */
        uint64_t id;             /* the stream's number on the agent's connection */
        struct io *io;
        const struct op *op;
        struct sink sink;
        bool started;      /* HTTP: headers were sent */
        uint64_t locating; /* ticket of the question where the workload is */
        uint64_t session;  /* 0: not open yet */
        int64_t opened_ms;
        char request_id[65], actor[65], workload[129];
        struct arena memory;
        Pb__LogsRequest *logs;
        Pb__ExecStart *exec;
        bool paused, input_ended;
        ARRAY(struct chunk) backlog; /* of the user */
        size_t backlog_first, backlog_bytes;
        bool ending; /* the agent has said all; closes when the backlog is out */
        /* with an agent that knows credit (StreamCredit) */
        bool by_credit;
        /* of what the agent may send: passed on to the user, and not given back yet */
        int64_t owed;
        int64_t input_credit; /* bytes of input that the agent takes */
        struct str held;      /* input that waits for it */
        bool held_eof;
};

/* That somebody read the logs of something, and when an event told so. */
struct told {
        uint64_t hash;
        int64_t at_ms;
};

struct relays {
        struct io *io;
        struct told told[TOLD];
        ARRAY(struct relay *) slots;
        size_t n;
        uint64_t count;
        struct event *again;
        bool stopped;
};

static void on_again(evutil_socket_t fd, short what, void *ctx);

struct relays *relays_create(struct io *io)
{
        struct relays *rs = mem_must(sizeof(*rs));
        rs->io = io;
        rs->again = evtimer_new(io->base, on_again, rs);
        return rs;
}

static void relay_free(struct relay *r)
{
        struct relays *rs = r->io->relays;
        rs->slots.at[r->id & SLOT_MASK] = NULL;
        rs->n--;
        calls_forget(r->io->calls, r->locating);
        for (size_t i = r->backlog_first; i < r->backlog.len; i++)
                mem_free(r->backlog.at[i].data);
        array_fini(&r->backlog);
        str_fini(&r->held);
        arena_fini(&r->memory);
        mem_free(r);
}

void relays_destroy(struct relays *rs)
{
        if (!rs)
                return;
        for (size_t i = 0; i < rs->slots.len; i++)
                if (rs->slots.at[i])
                        relay_free(rs->slots.at[i]);
        array_fini(&rs->slots);
        event_free(rs->again);
        mem_free(rs);
}

size_t relays_len(const struct relays *rs)
{
        return rs->n;
}

/* Of one caller: all, or those through one agent. */
static size_t relays_by(const struct relays *rs, const char *actor, uint64_t session)
{
        size_t n = 0;
        for (size_t i = 0; i < rs->slots.len; i++) {
                const struct relay *r = rs->slots.at[i];
                n += r && (session == 0 || r->session == session) && str_eq(r->actor, actor);
        }
        return n;
}

static struct relay *relay_new(struct relays *rs, const struct op *op, const struct caller *who,
                               struct err *err)
{
        size_t share = access_share(rs->io->s, RELAYS_MAX);
        if (rs->stopped) {
                err_set(err, ERR_UNAVAILABLE, .msg = "the server is stopping",
                        .retry_after_ms = 2000);
                return NULL;
        }
        if (rs->n >= RELAYS_MAX) {
                err_set(err, ERR_LIMIT, .msg = "too many logs and exec streams are open",
                        .detail = fmt("%d", RELAYS_MAX), .retry_after_ms = 5000);
                return NULL;
        }
        if (relays_by(rs, who->actor, 0) >= share) {
                access_share_used(who, "logs and exec streams", share, err);
                return NULL;
        }
        size_t slot = 0;
        while (slot < rs->slots.len && rs->slots.at[slot])
                slot++;
        if (slot == rs->slots.len)
                *array_push(&rs->slots) = NULL;
        struct relay *r = mem_must(sizeof(*r));
        r->id = ++rs->count << SLOT_BITS | slot;
        r->door = &rs->io->doors[op_index(op)];
        r->io = rs->io;
        r->op = op;
        memcpy(r->actor, who->actor, sizeof(r->actor));
        rs->slots.at[slot] = r;
        rs->n++;
        return r;
}

static struct relay *find(struct relays *rs, uint64_t id, uint64_t session)
{
        uint64_t slot = id & SLOT_MASK;
        struct relay *r = slot < rs->slots.len ? rs->slots.at[slot] : NULL;
        return r && r->id == id && r->session == session && session != 0 ? r : NULL;
}

/* ---- ends ---- */

static void cancel_at_agent(struct relays *rs, uint64_t session, uint64_t id)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__CancelStream cancel = PB__CANCEL_STREAM__INIT;
        cancel.stream_id = id;
        m.cancel = &cancel;
        sessions_send(rs->io->sessions, session, &m);
}

/* The user's side ends, with or without a fault; the relay is gone. */
static void finish(struct relay *r, const struct err *err)
{
        struct sink sink = r->sink;
        char request_id[65];
        memcpy(request_id, r->request_id, sizeof(request_id));
        if (sink.http)
                http_on_close(sink.http, NULL, NULL);
        if (sink.grpc)
                rpc_set_over(sink.grpc, r->door);
        bool failed = err && err->code != ERR_OK, started = r->started;
        if (failed)
                log_info("relay ended", LOG_S("op", r->op->name), LOG_S("workload", r->workload),
                         LOG_S("request_id", request_id), LOG_E(err));
        relay_free(r);
        if (sink.http && !started && failed) {
                http_reply_err(sink.http, 0, err);
                return;
        }
        if (sink.http && !started)
                http_stream_start(
                    sink.http, 200,
                    (struct http_field[]){ HTTP_FIELD("Content-Type", "text/plain; charset=utf-8"),
                                           HTTP_FIELD_END });
        if (sink.http && started && failed) {
                const char *line = fmt("\nberth: the output ends here: %s\n", err->msg);
                http_stream_send(sink.http, line, strlen(line));
        }
        sink_close(&sink, err, request_id);
}

static void finish_with(struct relay *r, bool tell_agent, enum err_code code, const char *msg,
                        const char *hint)
{
        struct err err = { 0 };
        err_set(&err, code, .msg = msg, .hint = hint,
                .retry_after_ms = code == ERR_UNAVAILABLE ? 1000 : 0);
        if (tell_agent && r->session)
                cancel_at_agent(r->io->relays, r->session, r->id);
        finish(r, &err);
}

/* The user has gone; nothing can be sent to it. */
static void user_gone(struct relay *r)
{
        if (r->session)
                cancel_at_agent(r->io->relays, r->session, r->id);
        relay_free(r);
}

void relays_session_gone(struct relays *rs, uint64_t session)
{
        for (size_t i = 0; i < rs->slots.len; i++) {
                struct relay *r = rs->slots.at[i];
                if (r && r->session == session && !r->ending)
                        finish_with(r, false, ERR_UNAVAILABLE,
                                    "the connection to the node's agent was lost",
                                    "try again when the node is back");
        }
}

void relays_stop(struct relays *rs)
{
        rs->stopped = true;
        for (size_t i = 0; i < rs->slots.len; i++)
                if (rs->slots.at[i])
                        finish_with(rs->slots.at[i], true, ERR_UNAVAILABLE,
                                    "the server is stopping", NULL);
}

static void input_to_agent(struct relay *r, Pb__ExecInput *input);
static void resume_user(struct relay *r);

static void end_input(struct relay *r)
{
        Pb__ExecInput input = PB__EXEC_INPUT__INIT;
        input.eof = true;
        input_to_agent(r, &input);
}

/* ---- opening ---- */

static void look_again(struct relays *rs)
{
        if (!evtimer_pending(rs->again, NULL))
                evtimer_add(rs->again, &(struct timeval){ .tv_usec = AGAIN_MS * 1000 });
}

static size_t relays_of(struct relays *rs, uint64_t session)
{
        size_t n = 0;
        for (size_t i = 0; i < rs->slots.len; i++)
                n += rs->slots.at[i] && rs->slots.at[i]->session == session;
        return n;
}

static int ask_agent(struct relay *r)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__LogRequest log = PB__LOG_REQUEST__INIT;
        Pb__ExecRequest exec = PB__EXEC_REQUEST__INIT;
        if (r->logs) {
                log.stream_id = r->id;
                log.unit_id = r->workload;
                log.follow = r->logs->follow;
                log.tail_lines = r->logs->tail_lines;
                log.credit = r->by_credit ? STREAM_OUTPUT_WINDOW : 0;
                m.log = &log;
        } else {
                exec.stream_id = r->id;
                exec.unit_id = r->workload;
                exec.command = r->exec->command;
                exec.n_command = r->exec->n_command;
                exec.tty = r->exec->tty;
                exec.rows = r->exec->rows;
                exec.cols = r->exec->cols;
                exec.term = r->exec->term;
                exec.credit = r->by_credit ? STREAM_OUTPUT_WINDOW : 0;
                m.exec = &exec;
        }
        return sessions_send(r->io->sessions, r->session, &m);
}

/* One event in ten minutes for each caller and workload: that somebody reads is told, and reading
 * on is not. Nothing waits for it: a read is no less a read while the store is away. */
static void tell_logs(struct relay *r)
{
        struct relays *rs = r->io->relays;
        char key[65 + 129];
        int n = snprintf(key, sizeof(key), "%s %s", r->actor, r->workload);
        uint64_t hash = hash64(key, (size_t)n);
        struct told *t = &rs->told[hash % TOLD];
        int64_t now = mono_ms();
        if ((t->hash == hash && now - t->at_ms < TOLD_MS) || server_store_is_away(r->io->s))
                return;
        struct ring_msg *msg = ring_msg_new(INPUT_ACCESS_NOTE);
        Pb__AccessNote *note = (Pb__AccessNote *)pb_new(&msg->memory, &pb__access_note__descriptor);
        note->type = PB__EVENT_TYPE__E__WorkloadLogsRead;
        note->workload_id = arena_strdup(&msg->memory, r->workload);
        note->message = arena_printf(&msg->memory, "its output was read by %s", r->actor);
        note->actor = arena_strdup(&msg->memory, r->actor);
        msg->in.msg = &note->base;
        if (io_to_ring(r->io, msg, false))
                *t = (struct told){ hash, now };
        else
                ring_msg_free(msg); /* the next read is told of */
}

static void on_located(void *ctx, const struct reply *reply)
{
        struct relay *r = ctx;
        struct relays *rs = r->io->relays;
        r->locating = 0;
        if (reply->err) {
                finish(r, reply->err);
                return;
        }
        if (reply->session & PUSH_SESSION) {
                finish_with(
                    r, false, ERR_UNSUPPORTED,
                    "the agent of the workload's node has no logs and no exec to offer",
                    "it is one that the server calls (persys.agent.v1); look on the node itself");
                return;
        }
        if (!sessions_has(rs->io->sessions, reply->session)) {
                finish_with(r, false, ERR_UNAVAILABLE,
                            "the workload is on no node that is connected now",
                            "see where it is: berth describe");
                return;
        }
        if (relays_of(rs, reply->session) >= rs->io->s->opt.max_relays_per_agent) {
                finish_with(r, false, ERR_LIMIT,
                            "too many logs and exec streams are open on this node",
                            "close some of them");
                return;
        }
        size_t share =
            rs->io->s->opt.auth ? (rs->io->s->opt.max_relays_per_agent + 1) / 2 : SIZE_MAX;
        if (relays_by(rs, r->actor, reply->session) >= share) {
                finish_with(r, false, ERR_LIMIT,
                            fmt("%s has too many logs and exec streams open on this node: %zu",
                                r->actor, share),
                            "close some of them");
                return;
        }
        r->session = reply->session;
        r->opened_ms = mono_ms();
        r->by_credit = sessions_gives_credit(rs->io->sessions, r->session);
        if (ask_agent(r) < 0) {
                r->session = 0;
                finish_with(r, false, ERR_UNAVAILABLE,
                            "the connection to the node's agent was lost",
                            "try again when the node is back");
                return;
        }
        if (r->logs)
                tell_logs(r);
        if (!r->by_credit)
                resume_user(r); /* otherwise with the first credit */
        if (r->exec && r->input_ended)
                end_input(r);
        if (r->sink.http)
                look_again(rs);
}

static char *command_text(const struct relay *r, struct arena *memory)
{
        struct str text = STR_INIT;
        for (size_t i = 0; i < r->exec->n_command && text.len <= COMMAND_SHOWN; i++)
                str_addf(&text, "%s%s", i ? " " : "", r->exec->command[i]);
        size_t len = text.len;
        if (len > COMMAND_SHOWN) /* not inside a character */
                for (len = COMMAND_SHOWN; len > 0 && ((unsigned char)text.buf[len] & 0xc0) == 0x80;)
                        len--;
        char *copy =
            arena_printf(memory, "%.*s%s", (int)len, str_c(&text), len < text.len ? " ..." : "");
        str_fini(&text);
        return copy;
}

static void locate(struct relay *r, const char *workload)
{
        struct err err = { 0 };
        if (!id_is_valid(workload)) {
                err_set(&err, ERR_INVALID, .msg = "not a workload's id", .path = "id",
                        .detail = fmt("\"%.64s\"", workload ? workload : ""));
                finish(r, &err);
                return;
        }
        strncpy(r->workload, workload, sizeof(r->workload) - 1);
        struct call *call = call_new(r->io->calls, r->op, &err);
        if (!call) {
                finish(r, &err);
                return;
        }
        memcpy(call->request_id, r->request_id, sizeof(call->request_id));
        memcpy(call->actor, r->actor, sizeof(call->actor));
        call->on_reply = on_located;
        call->ctx = r;
        if (r->exec) {
                call->msg = ring_msg_new(INPUT_EXEC);
                Pb__ExecNote *note =
                    (Pb__ExecNote *)pb_new(&call->msg->memory, &pb__exec_note__descriptor);
                note->workload_id = arena_strdup(&call->msg->memory, workload);
                note->command = command_text(r, &call->msg->memory);
                call->msg->in.msg = &note->base;
        } else {
                call->msg = ring_msg_new(INPUT_LOCATE);
                Pb__WorkloadRef *ref =
                    (Pb__WorkloadRef *)pb_new(&call->msg->memory, &pb__workload_ref__descriptor);
                ref->id = arena_strdup(&call->msg->memory, workload);
                call->msg->in.msg = &ref->base;
        }
        r->locating = call->ticket;
        call_send(call); /* may already have failed, and r be gone */
}

static void on_http_close(struct http_request *req, void *ctx)
{
        (void)req;
        user_gone(ctx);
}

void relays_http_logs(struct relays *rs, const struct op *op, struct http_request *req,
                      const struct caller *who, const Pb__LogsRequest *want)
{
        struct err err = { 0 };
        struct relay *r = relay_new(rs, op, who, &err);
        if (!r) {
                http_reply_err(req, 0, &err);
                return;
        }
        r->sink.http = req;
        strncpy(r->request_id, http_request_id(req), sizeof(r->request_id) - 1);
        r->logs = (Pb__LogsRequest *)pb_clone(&r->memory, &want->base);
        http_on_close(req, on_http_close, r);
        locate(r, r->logs->id);
}

/* ---- agent to user ---- */

static void start_http(struct relay *r)
{
        if (!r->sink.http || r->started)
                return;
        r->started = true;
        http_stream_start(r->sink.http, 200,
                          (struct http_field[]){
                              HTTP_FIELD("Content-Type", "text/plain; charset=utf-8"),
                              HTTP_FIELD("Cache-Control", "no-store"),
                              HTTP_FIELD("X-Content-Type-Options", "nosniff"), HTTP_FIELD_END });
}

static size_t backlog_limit(const struct relays *rs, const struct relay *r)
{
        size_t share = TOTAL_BYTES / (rs->n ? rs->n : 1), most = r->io->s->opt.relay_queue_bytes;
        return share < most ? share : most;
}

/* What has gone to the user may be sent anew. */
static void give_credit(struct relay *r)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__StreamCredit credit = PB__STREAM_CREDIT__INIT;
        if (!r->by_credit || !r->session || r->owed < STREAM_OUTPUT_WINDOW / 4)
                return;
        credit.stream_id = r->id;
        credit.bytes = r->owed;
        r->owed = 0;
        m.credit = &credit;
        /* if it fails the session ends, and relays_session_gone() follows */
        sessions_send(r->io->sessions, r->session, &m);
}

/* Returns false when the relay is gone. size: of the data that the agent counted. */
static bool to_user(struct relay *r, const void *data, size_t len, size_t size)
{
        struct relays *rs = r->io->relays;
        size_t cost = size + STREAM_MESSAGE_COST;
        if (r->backlog.len == r->backlog_first && sink_queued_bytes(&r->sink) < SINK_BYTES) {
                /* if it fails, the user has gone and on_close follows */
                sink_send(&r->sink, data, len);
                r->owed += (int64_t)cost;
                give_credit(r);
                return true;
        }
        if (r->backlog_bytes + len > backlog_limit(rs, r)) {
                finish_with(r, true, ERR_LIMIT, "the output came faster than it was read",
                            "read faster, or ask for less with tail");
                return false;
        }
        *array_push(&r->backlog) = (struct chunk){ mem_dup(data, len), len, cost };
        r->backlog_bytes += len;
        look_again(rs);
        return true;
}

static void drain(struct relay *r)
{
        while (r->backlog_first < r->backlog.len && sink_queued_bytes(&r->sink) < SINK_BYTES) {
                struct chunk *c = &r->backlog.at[r->backlog_first++];
                sink_send(&r->sink, c->data, c->len);
                r->backlog_bytes -= c->len;
                r->owed += (int64_t)c->cost;
                mem_free(c->data);
                c->data = NULL;
        }
        give_credit(r);
        if (r->backlog_first == r->backlog.len) {
                array_clear(&r->backlog);
                r->backlog_first = 0;
        }
}

static void agent_has_ended(struct relay *r)
{
        r->ending = true;
        r->session = 0;
        if (r->backlog.len == r->backlog_first)
                finish(r, NULL);
}

void relays_log(struct relays *rs, uint64_t session, const Pb__LogChunk *chunk)
{
        struct relay *r = find(rs, chunk->stream_id, session);
        if (!r || !r->logs) {
                if (!chunk->eof)
                        cancel_at_agent(rs, session, chunk->stream_id);
                return;
        }
        if (!str_empty(chunk->error)) {
                finish_with(r, false, ERR_FAILED, chunk->error, NULL);
                return;
        }
        if (chunk->data.len > 0) {
                bool alive;
                start_http(r);
                if (r->sink.http)
                        alive = to_user(r, chunk->data.data, chunk->data.len, chunk->data.len);
                else {
                        Pb__LogChunk out = *chunk;
                        struct str packed = STR_INIT;
                        out.stream_id = 0;
                        out.eof = false;
                        pb_pack(&packed, &out.base);
                        alive = to_user(r, packed.buf, packed.len, chunk->data.len);
                        str_fini(&packed);
                }
                if (!alive)
                        return;
        }
        if (chunk->eof)
                agent_has_ended(r);
}

void relays_exec(struct relays *rs, uint64_t session, const Pb__ExecOutput *out)
{
        struct relay *r = find(rs, out->stream_id, session);
        if (!r || !r->exec) {
                if (!out->eof)
                        cancel_at_agent(rs, session, out->stream_id);
                return;
        }
        if (!str_empty(out->error) && !out->exit_code) {
                finish_with(r, false, ERR_FAILED, out->error, NULL);
                return;
        }
        Pb__ExecOutput copy = *out;
        struct str packed = STR_INIT;
        copy.stream_id = 0;
        pb_pack(&packed, &copy.base);
        bool alive = to_user(r, packed.buf, packed.len, out->data.len);
        str_fini(&packed);
        if (alive && out->eof)
                agent_has_ended(r);
}

/* ---- user to agent ---- */

static void pause_user(struct relay *r)
{
        if (!r->paused && r->sink.grpc) {
                r->paused = true;
                grpc_call_pause(r->sink.grpc);
        }
}

static void resume_user(struct relay *r)
{
        if (r->paused && r->sink.grpc) {
                r->paused = false;
                grpc_call_resume(r->sink.grpc);
        }
}

static void send_input(struct relay *r, Pb__ExecInput *input)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        input->stream_id = r->id;
        m.exec_input = input;
        /* if it fails the session ends, and relays_session_gone() follows */
        sessions_send(r->io->sessions, r->session, &m);
}

/* As much of what is held as the agent takes; the user is read only while nothing is held. */
static void send_held(struct relay *r)
{
        size_t n = r->input_credit < (int64_t)r->held.len ? (size_t)r->input_credit : r->held.len;
        if (n) {
                Pb__ExecInput input = PB__EXEC_INPUT__INIT;
                input.data = (ProtobufCBinaryData){ n, (uint8_t *)r->held.buf };
                r->input_credit -= (int64_t)n;
                send_input(r, &input);
                memmove(r->held.buf, r->held.buf + n, r->held.len - n);
                r->held.len -= n;
        }
        if (!r->held.len && r->held_eof) {
                Pb__ExecInput input = PB__EXEC_INPUT__INIT;
                input.eof = true;
                r->held_eof = false;
                send_input(r, &input);
        }
        if (r->held.len || r->input_credit <= 0)
                pause_user(r);
        else
                resume_user(r);
}

static void input_by_credit(struct relay *r, Pb__ExecInput *input)
{
        if (input->rows > 0 && input->cols > 0) {
                Pb__ExecInput size = PB__EXEC_INPUT__INIT;
                size.rows = input->rows;
                size.cols = input->cols;
                send_input(r, &size);
        }
        /* it is paused: whoever sends so much at once does not care */
        if (r->held.len + input->data.len > HELD_MAX) {
                finish_with(r, true, ERR_LIMIT, "the input came faster than the command reads it",
                            "send it in smaller pieces");
                return;
        }
        str_add(&r->held, input->data.data, input->data.len);
        r->held_eof = r->held_eof || input->eof;
        send_held(r);
}

static void input_to_agent(struct relay *r, Pb__ExecInput *input)
{
        if (!r->session)
                return;
        if (r->by_credit) {
                input_by_credit(r, input);
                return;
        }
        send_input(r, input);
        if (sessions_queued_bytes(r->io->sessions, r->session) > AGENT_BYTES) {
                pause_user(r);
                look_again(r->io->relays);
        }
}

void relays_credit(struct relays *rs, uint64_t session, const Pb__StreamCredit *credit)
{
        struct relay *r = find(rs, credit->stream_id, session);
        if (!r || !r->exec || !r->by_credit || credit->bytes <= 0)
                return; /* it ended while this was on its way */
        r->input_credit = credit->bytes < STREAM_CREDIT_MAX - r->input_credit
                              ? r->input_credit + credit->bytes
                              : STREAM_CREDIT_MAX;
        send_held(r);
}

static void on_again(evutil_socket_t fd, short what, void *ctx)
{
        struct relays *rs = ctx;
        bool more = false;
        int64_t now = mono_ms();
        (void)fd;
        (void)what;
        for (size_t i = 0; i < rs->slots.len; i++) {
                struct relay *r = rs->slots.at[i];
                if (!r)
                        continue;
                if (r->sink.http && !r->started && r->session && now - r->opened_ms >= START_MS)
                        start_http(r);
                bool waits = r->paused && r->session && !r->by_credit; /* for the agent's queue */
                if (waits && sessions_queued_bytes(rs->io->sessions, r->session) < AGENT_BYTES / 2)
                        resume_user(r);
                drain(r);
                if (r->ending && r->backlog.len == r->backlog_first) {
                        finish(r, NULL);
                        continue;
                }
                more |= r->backlog.len > r->backlog_first ||
                        (r->paused && r->session && !r->by_credit) ||
                        (r->sink.http && !r->started && r->session);
        }
        if (more)
                look_again(rs);
}

/* ---- the gRPC door ---- */

static void on_start(struct grpc_call *call)
{
        const struct door *door = rpc_door(call);
        struct err err = { 0 };
        char request_id[65];
        struct caller who;
        rpc_caller(door->io, call, request_id, &who);
        struct relay *r = relay_new(door->io->relays, door->op, &who, &err);
        if (!r) {
                grpc_finish_err(call, &err, request_id);
                return;
        }
        grpc_call_set_data(call, r);
        r->sink.grpc = call;
        memcpy(r->request_id, request_id, sizeof(r->request_id));
}

static void on_logs_message(struct grpc_call *call, const void *data, size_t len)
{
        struct relay *r = rpc_data(call);
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        if (!r || r->logs)
                return;
        if (op_decode_packed(r->op, data, len, &r->memory, &m, &err) < 0)
                finish(r, &err);
        else
                r->logs = (Pb__LogsRequest *)m;
}

static void on_logs_half_close(struct grpc_call *call)
{
        struct relay *r = rpc_data(call);
        if (r && r->logs && !r->locating && !r->session)
                locate(r, r->logs->id);
}

static int check_exec_start(const Pb__ExecStart *start, struct err *err)
{
        if (!start)
                return err_set(err, ERR_INVALID, .msg = "the first message must say what to run",
                               .path = "start");
        if (start->n_command == 0 || start->n_command > COMMAND_MAX)
                return err_set(err, ERR_INVALID, .msg = "a command has 1 to 256 words",
                               .path = "start.command", .detail = fmt("%zu", start->n_command));
        if (!str_empty(start->term) && (strlen(start->term) > TERM_MAX ||
                                        strspn(start->term, TERM_LETTERS) != strlen(start->term)))
                return err_set(err, ERR_INVALID, .msg = "not the name of a terminal",
                               .path = "start.term",
                               .detail = fmt("at most %d letters, digits and .+-_", TERM_MAX));
        return 0;
}

static void on_exec_message(struct grpc_call *call, const void *data, size_t len)
{
        struct relay *r = rpc_data(call);
        if (!r)
                return;
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *pm = NULL;
        int rc = pb_unpack(&pb__exec_message__descriptor, data, len, r->exec ? &arena : &r->memory,
                           &pm, &err);
        Pb__ExecMessage *m = (Pb__ExecMessage *)pm;
        if (rc >= 0 && r->exec && m->start)
                rc = err_set(&err, ERR_INVALID, .msg = "only the first message starts",
                             .path = "start");
        if (rc >= 0 && !r->exec)
                rc = check_exec_start(m->start, &err);
        if (rc < 0) {
                if (r->session)
                        cancel_at_agent(r->io->relays, r->session, r->id);
                finish(r, &err);
        } else if (!r->exec) {
                r->exec = m->start;
                pause_user(r); /* until the agent is there to take its input */
                locate(r, r->exec->id);
        } else if (m->input)
                input_to_agent(r, m->input);
        arena_fini(&arena);
}

static void on_exec_half_close(struct grpc_call *call)
{
        struct relay *r = rpc_data(call);
        struct err err = { 0 };
        if (!r || r->input_ended)
                return;
        if (!r->exec) {
                check_exec_start(NULL, &err);
                finish(r, &err);
                return;
        }
        r->input_ended = true;
        end_input(r);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct relay *r = rpc_data(call);
        rpc_done(call, (int)status);
        if (!r)
                return;
        r->sink = (struct sink){ 0 };
        user_gone(r);
}

struct grpc_callbacks relays_callbacks(bool exec)
{
        return (struct grpc_callbacks){
                .on_start = on_start,
                .on_message = exec ? on_exec_message : on_logs_message,
                .on_half_close = exec ? on_exec_half_close : on_logs_half_close,
                .on_close = on_close,
        };
}
