/* server/sessions.c: see sessions.h. */
#include "server/sessions.h"

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/wire.h"
#include "model/pb.h"
#include "model/validate.h"
#include "net/grpc.h"
#include "server/access.h"
#include "server/io.h"
#include <event2/event.h>
#include <string.h>

#define SLOT_BITS 20 /* of a session id; the rest counts streams, so that no id comes twice */
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
#define AGAIN_MS 5 /* how soon a full ring is tried again */
#define TALK_BURST 256
#define TALK_PER_MS 1
#define TALK_BYTES 2048
#define HELLO_CHECK_MS 1000
#define NODE_ID_SHOWN 129

struct session {
        const struct door *door; /* first: see io.h */
        uint64_t id;
        struct io *io;
        /* NULL: ended; kept only until the core has been told */
        struct grpc_call *call;
        bool greeted;                            /* Hello was taken: the core knows this stream */
        bool gives_credit;                       /* it knows StreamCredit */
        bool ended;                              /* by us: nothing more is read from it */
        char node[NODE_ID_SHOWN];                /* for logs */
        int64_t cert_begins_at, cert_expires_at; /* as the agent says; 0: it has none */
        int64_t hello_by_ms;
        int64_t talk_left, talk_at_ms; /* see may_speak() */
        /* (N1): did not fit into the ring's queue; the stream is paused */
        struct ring_msg *held;
        size_t held_len; /* its bytes, as far as they have yet to be counted */
        /* a plan that is being put together: packed units, as fields of Plan */
        struct str units;
        uint64_t plan_seq;
        bool whole, whole_begun; /* between BEGIN and END; its first message has been sent */
        bool touched;            /* has changes from this batch that were not sent yet */
};

struct sessions {
        struct io *io;
        ARRAY(struct session *) slots;
        ARRAY(uint32_t) free;
        ARRAY(uint32_t) waiting; /* slots whose `held` waits, first come first served */
        ARRAY(uint32_t) touched;
        size_t n;
        uint64_t count;
        struct event *again, *hello;
        bool stopped;
};

static void on_again(evutil_socket_t fd, short what, void *ctx);
static void on_hello_check(evutil_socket_t fd, short what, void *ctx);

struct sessions *sessions_create(struct io *io)
{
        struct sessions *s = mem_must(sizeof(*s));
        s->io = io;
        s->again = evtimer_new(io->base, on_again, s);
        s->hello = event_new(io->base, -1, EV_PERSIST, on_hello_check, s);
        return s;
}

static void session_free(struct sessions *s, struct session *ss)
{
        uint32_t slot = (uint32_t)(ss->id & SLOT_MASK);
        s->slots.at[slot] = NULL;
        *array_push(&s->free) = slot;
        s->n--;
        ring_msg_free(ss->held);
        str_fini(&ss->units);
        mem_free(ss);
}

void sessions_destroy(struct sessions *s)
{
        if (!s)
                return;
        for (size_t i = 0; i < s->slots.len; i++)
                if (s->slots.at[i])
                        session_free(s, s->slots.at[i]);
        array_fini(&s->slots);
        array_fini(&s->free);
        array_fini(&s->waiting);
        array_fini(&s->touched);
        event_free(s->again);
        event_free(s->hello);
        mem_free(s);
}

size_t sessions_len(const struct sessions *s)
{
        return s->n;
}

static struct session *find(const struct sessions *s, uint64_t id)
{
        uint64_t slot = id & SLOT_MASK;
        return id != 0 && slot < s->slots.len && s->slots.at[slot] && s->slots.at[slot]->id == id
                   ? s->slots.at[slot]
                   : NULL;
}

/* ---- to the ring ---- */

static void hold(struct sessions *s, struct session *ss, struct ring_msg *msg)
{
        ss->held = msg;
        if (ss->call)
                grpc_call_pause(ss->call);
        *array_push(&s->waiting) = (uint32_t)(ss->id & SLOT_MASK);
        if (!evtimer_pending(s->again, NULL))
                evtimer_add(s->again, &(struct timeval){ .tv_usec = AGAIN_MS * 1000 });
}

/* Heartbeats and goodbyes may use the queue's priority share: a full ring must not make nodes look
 * silent (A11). */
static bool push(struct session *ss, struct ring_msg *msg)
{
        return io_to_ring(ss->io, msg,
                          msg->in.kind == INPUT_HEARTBEAT || msg->in.kind == INPUT_GONE);
}

/* One agent that talks without end must not fill the queue that all share, nor take the ring's time
 * with long lists and definitions (A11, A13): bursts of TALK_BURST messages, and TALK_PER_MS in the
 * long run, where TALK_BYTES count as another message. That is far more than any agent needs, since
 * it puts all that happened into one report. Whoever is over that is not read from for a while; a
 * large message passes as a whole, and those after it wait the longer. */
static bool may_speak(struct session *ss, const struct ring_msg *msg, size_t len)
{
        int64_t now = mono_ms(), more = (now - ss->talk_at_ms) * TALK_PER_MS;
        ss->talk_at_ms = now;
        ss->talk_left = ss->talk_left + more < TALK_BURST ? ss->talk_left + more : TALK_BURST;
        if (msg->in.kind == INPUT_GONE)
                return true;
        if (ss->talk_left <= 0)
                return false;
        ss->talk_left -= 1 + (int64_t)(len / TALK_BYTES);
        return true;
}

/* (N1) */
static void to_ring(struct session *ss, struct ring_msg *msg, size_t len)
{
        msg->in.session = ss->id;
        must(!ss->held, "(N1) nothing is read from a stream that is held");
        if (may_speak(ss, msg, len)) {
                if (push(ss, msg))
                        return;
                len = 0; /* it has been counted */
        }
        ss->held_len = len;
        hold(ss->io->sessions, ss, msg);
}

/* (N3): the stream has ended. If the ring is full, or still has something of this stream to take,
 * the session stays until it can be said. */
static void say_gone(struct sessions *s, struct session *ss)
{
        if (ss->held)
                return; /* on_again says it afterwards */
        if (ss->greeted) {
                struct ring_msg *msg = ring_msg_new(INPUT_GONE);
                msg->in.session = ss->id;
                if (!push(ss, msg)) {
                        hold(s, ss, msg);
                        return;
                }
        }
        session_free(s, ss);
}

/* What was held, if it can be taken now; false: it waits on. */
static bool take_held(struct sessions *s, struct session *ss, bool closed, bool *full)
{
        bool was_gone = ss->held->in.kind == INPUT_GONE;
        if (!closed && (*full || !may_speak(ss, ss->held, ss->held_len)))
                return false;
        ss->held_len = 0;
        if (closed)
                ring_msg_free(ss->held);
        else if (!push(ss, ss->held)) {
                *full = true;
                return false;
        }
        ss->held = NULL;
        if (ss->call)
                grpc_call_resume(ss->call);
        else if (was_gone || closed)
                session_free(s, ss);
        else
                say_gone(s, ss); /* may hold again: it goes to the end of the list */
        return true;
}

static void on_again(evutil_socket_t fd, short what, void *ctx)
{
        struct sessions *s = ctx;
        (void)fd;
        (void)what;
        bool closed = queue_is_closed(s->io->s->ring_queue), full = false;
        size_t n = s->waiting.len, kept = 0;
        for (size_t i = 0; i < n; i++) {
                uint32_t slot = s->waiting.at[i];
                if (!take_held(s, s->slots.at[slot], closed, &full))
                        s->waiting.at[kept++] = slot;
        }
        memmove(s->waiting.at + kept, s->waiting.at + n,
                (s->waiting.len - n) * sizeof(s->waiting.at[0]));
        s->waiting.len -= n - kept;
        if (s->waiting.len > 0)
                evtimer_add(s->again, &(struct timeval){ .tv_usec = AGAIN_MS * 1000 });
}

/* ---- from the agent ---- */

/* Ends the stream with a sentence; on_close follows. */
static void end(struct session *ss, enum err_code code, const char *why, bool fault)
{
        if (ss->ended || !ss->call)
                return;
        ss->ended = true;
        struct err err = { 0 };
        err_set(&err, code, .msg = why, .retry_after_ms = 1000);
        if (fault) {
                count(&ss->io->s->metrics.agent_streams_closed);
                log_warn("agent stream ended by the server", LOG_S("node", ss->node),
                         LOG_I("session", ss->id), LOG_S("peer", grpc_call_peer(ss->call)),
                         LOG_S("reason", why));
        }
        grpc_finish_err(ss->call, &err, NULL);
}

/* Not this agent: it has been logged and counted where that was found. */
static void refuse(struct session *ss, const struct err *why)
{
        ss->ended = true;
        count(&ss->io->s->metrics.agent_streams_closed);
        grpc_finish_err(ss->call, why, NULL);
}

static void on_start(struct grpc_call *call)
{
        const struct door *door = rpc_door(call);
        struct sessions *s = door->io->sessions;
        if (s->stopped || s->n >= s->io->s->opt.max_agents || s->n >= SLOT_MASK) {
                struct err err = { 0 };
                err_set(&err, s->stopped ? ERR_UNAVAILABLE : ERR_LIMIT,
                        .msg =
                            s->stopped ? "the server is stopping" : "too many agents are connected",
                        .retry_after_ms = 5000);
                grpc_finish_err(call, &err, NULL);
                return;
        }
        if (!s->io->leads) {
                struct err err = { 0 };
                io_not_leading(s->io, &err);
                grpc_finish_err(call, &err, NULL);
                return;
        }
        uint32_t slot;
        if (s->free.len > 0) {
                slot = array_pop(&s->free);
        } else {
                slot = (uint32_t)s->slots.len;
                *array_push(&s->slots) = NULL;
        }
        struct session *ss = mem_must(sizeof(*ss));
        ss->door = door;
        ss->id = ++s->count << SLOT_BITS | slot;
        ss->io = s->io;
        ss->call = call;
        ss->talk_at_ms = mono_ms();
        ss->talk_left = TALK_BURST;
        ss->hello_by_ms = mono_ms() + HELLO_MS;
        s->slots.at[slot] = ss;
        s->n++;
        grpc_call_set_data(call, ss);
        grpc_call_send_headers(call, NULL);
        if (!event_pending(s->hello, EV_TIMEOUT, NULL))
                event_add(s->hello, &(struct timeval){ .tv_sec = HELLO_CHECK_MS / 1000 });
}

/* Runs only while somebody has not said hello yet. */
static void on_hello_check(evutil_socket_t fd, short what, void *ctx)
{
        struct sessions *s = ctx;
        (void)fd;
        (void)what;
        int64_t now = mono_ms();
        bool any = false;
        for (size_t i = 0; i < s->slots.len; i++) {
                struct session *ss = s->slots.at[i];
                if (!ss || ss->greeted || ss->ended || !ss->call)
                        continue;
                any = true;
                if (now > ss->hello_by_ms)
                        end(ss, ERR_DEADLINE, "the first message must be a hello, within 10 s",
                            true);
        }
        if (!any)
                event_del(s->hello);
}

/* "10.0.0.1:4711" and "[::1]:4711" without their port. */
static char *host_of(struct arena *a, const char *peer)
{
        const char *colon = peer ? strrchr(peer, ':') : NULL;
        if (!colon)
                return "";
        bool brackets = peer[0] == '[' && colon > peer + 1 && colon[-1] == ']';
        return brackets ? arena_strndup(a, peer + 1, (size_t)(colon - peer) - 2)
                        : arena_strndup(a, peer, (size_t)(colon - peer));
}

static void on_hello(struct session *ss, struct ring_msg *msg, Pb__AgentMessage *m, size_t len)
{
        if (ss->greeted) {
                ring_msg_free(msg);
                end(ss, ERR_INVALID, "a stream begins with one hello", true);
                return;
        }
        struct err err = { 0 };
        struct credentials shown = access_of_grpc(ss->call);
        if (access_check_node(ss->io->access, &shown, m->hello->node_id, &err) < 0) {
                ring_msg_free(msg);
                refuse(ss, &err);
                return;
        }
        ss->greeted = true;
        ss->gives_credit = m->hello->stream_credit;
        strncpy(ss->node, m->hello->node_id, sizeof(ss->node) - 1);
        log_debug("agent says hello", LOG_S("node", ss->node), LOG_I("session", ss->id),
                  LOG_I("units", m->hello->n_units));
        m->hello->push = false; /* it has a stream: nobody calls it, whatever it says */
        m->hello->ip = host_of(&msg->memory, grpc_call_peer(ss->call));
        access_fill_hello(ss->io->access, &shown, &msg->memory, m->hello);
        msg->in.kind = INPUT_HELLO;
        msg->in.msg = &m->hello->base;
        msg->in.actor = arena_printf(&msg->memory, "node:%s", ss->node);
        to_ring(ss, msg, len);
}

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct session *ss = rpc_data(call);
        if (!ss || ss->ended)
                return;
        struct ring_msg *msg = ring_msg_new(INPUT_HEARTBEAT);
        ProtobufCMessage *pm = NULL;
        struct err err = { 0 };
        if (pb_unpack(&pb__agent_message__descriptor, data, len, &msg->memory, &pm, &err) < 0 ||
            validate_agent_message((Pb__AgentMessage *)pm, &err) < 0) {
                ring_msg_free(msg);
                end(ss, err.code,
                    fmt("%s%s%s: %s", err.msg, err.path[0] ? " at " : "", err.path, err.detail),
                    true);
                return;
        }
        Pb__AgentMessage *m = (Pb__AgentMessage *)pm;
        if (m->hello) {
                on_hello(ss, msg, m, len);
                return;
        }
        if (!ss->greeted) {
                ring_msg_free(msg);
                end(ss, ERR_INVALID, "the first message must be a hello", true);
                return;
        }
        if (m->heartbeat) {
                ss->cert_begins_at = m->heartbeat->certificate_begins_at;
                ss->cert_expires_at = m->heartbeat->certificate_expires_at;
                msg->in.kind = INPUT_HEARTBEAT;
                msg->in.msg = &m->heartbeat->base;
                to_ring(ss, msg, len);
                return;
        }
        if (m->units) {
                msg->in.kind = INPUT_UNITS;
                msg->in.msg = &m->units->base;
                msg->in.actor = arena_printf(&msg->memory, "node:%s", ss->node);
                to_ring(ss, msg, len);
                return;
        }
        if (m->definitions) {
                msg->in.kind = INPUT_DEFINITIONS;
                msg->in.msg = &m->definitions->base;
                msg->in.actor = arena_printf(&msg->memory, "node:%s", ss->node);
                to_ring(ss, msg, len);
                return;
        }
        if (m->log)
                relays_log(ss->io->relays, ss->id, m->log);
        else if (m->exec)
                relays_exec(ss->io->relays, ss->id, m->exec);
        else if (m->credit)
                relays_credit(ss->io->relays, ss->id, m->credit);
        ring_msg_free(msg);
}

static void on_half_close(struct grpc_call *call)
{
        struct session *ss = rpc_data(call);
        if (ss && !ss->ended) {
                ss->ended = true;
                grpc_call_finish(call, GRPC_OK, NULL, NULL);
        }
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct session *ss = rpc_data(call);
        rpc_done(call, (int)status);
        if (!ss)
                return;
        if (ss->greeted)
                log_debug("agent stream ended", LOG_S("node", ss->node), LOG_I("session", ss->id),
                          LOG_S("status", grpc_status_name(status)));
        ss->call = NULL;
        ss->ended = true;
        relays_session_gone(ss->io->relays, ss->id);
        say_gone(ss->io->sessions, ss);
}

struct grpc_callbacks sessions_callbacks(void)
{
        return (struct grpc_callbacks){ .on_start = on_start,
                                        .on_message = on_message,
                                        .on_half_close = on_half_close,
                                        .on_close = on_close };
}

static bool is_due(const struct session *ss, int64_t now_ms)
{
        return now_ms > ss->cert_expires_at - (ss->cert_expires_at - ss->cert_begins_at) / 4;
}

void sessions_certificates(const struct sessions *s, int64_t now_ms, struct agent_certificates *ret)
{
        *ret = (struct agent_certificates){ 0 };
        for (size_t i = 0; i < s->slots.len; i++) {
                const struct session *ss = s->slots.at[i];
                if (!ss || !ss->greeted || ss->ended || ss->cert_expires_at <= 0)
                        continue;
                ret->due += is_due(ss, now_ms);
                size_t at = ret->n < ARRAY_LEN(ret->soonest) ? ret->n : ARRAY_LEN(ret->soonest) - 1;
                if (ret->n == ARRAY_LEN(ret->soonest) &&
                    ret->soonest[at].expires_at <= ss->cert_expires_at)
                        continue;
                for (; at > 0 && ret->soonest[at - 1].expires_at > ss->cert_expires_at; at--)
                        ret->soonest[at] = ret->soonest[at - 1];
                ret->soonest[at].node = ss->node;
                ret->soonest[at].expires_at = ss->cert_expires_at;
                ret->n += ret->n < ARRAY_LEN(ret->soonest);
        }
}

void sessions_stop(struct sessions *s)
{
        s->stopped = true;
        for (size_t i = 0; i < s->slots.len; i++)
                if (s->slots.at[i])
                        end(s->slots.at[i], ERR_UNAVAILABLE, "the server is stopping", false);
}

void sessions_end_all(struct sessions *s, const char *why)
{
        for (size_t i = 0; i < s->slots.len; i++)
                if (s->slots.at[i])
                        end(s->slots.at[i], ERR_UNAVAILABLE, why, false);
}

/* ---- to the agent ---- */

/* (N2) */
static int send_bytes(struct session *ss, const void *data, size_t len)
{
        if (!ss->call || ss->ended)
                return -ERR_NOT_FOUND;
        if (grpc_call_queued_bytes(ss->call) > ss->io->s->opt.agent_queue_bytes ||
            grpc_call_send(ss->call, data, len) < 0) {
                end(ss, ERR_LIMIT, "the agent does not take what is sent to it", true);
                return -ERR_LIMIT;
        }
        return 0;
}

static int send_message(struct session *ss, const Pb__ServerMessage *m)
{
        struct str packed = STR_INIT;
        pb_pack(&packed, &m->base);
        int r = send_bytes(ss, packed.buf, packed.len);
        str_fini(&packed);
        return r;
}

int sessions_send(struct sessions *s, uint64_t session, const Pb__ServerMessage *m)
{
        struct session *ss = find(s, session);
        return ss ? send_message(ss, m) : -ERR_NOT_FOUND;
}

size_t sessions_queued_bytes(const struct sessions *s, uint64_t session)
{
        struct session *ss = find(s, session);
        return ss && ss->call ? grpc_call_queued_bytes(ss->call) : 0;
}

bool sessions_has(const struct sessions *s, uint64_t session)
{
        struct session *ss = find(s, session);
        return ss && ss->call && !ss->ended;
}

bool sessions_gives_credit(const struct sessions *s, uint64_t session)
{
        struct session *ss = find(s, session);
        return ss && ss->gives_credit;
}

/* Plans are put together from units that the core has packed already: ten thousand agents after a
 * restart cost no unpacking here. The field numbers are those of agent.proto: ServerMessage.plan =
 * 2; Plan: cursor = 1 { epoch = 1, seq = 2 }, complete = 2, last = 3, units = 4. */
static size_t put_number(uint8_t *p, unsigned field, uint64_t v)
{
        if (v == 0)
                return 0;
        p[0] = (uint8_t)(field << 3);
        return 1 + varint_put(p + 1, v);
}

void plan_add_unit(struct str *units, const void *unit, size_t len)
{
        wire_add(units, 4, unit, len); /* Plan.units */
}

void plan_message(struct str *out, uint64_t epoch, uint64_t seq, bool complete, bool last,
                  const void *units, size_t len)
{
        uint8_t cursor[24], plan[48], head[WIRE_HEAD_MAX];
        size_t n_cursor = put_number(cursor, 1, epoch), n_plan, n_head;
        n_cursor += put_number(cursor + n_cursor, 2, seq);
        n_plan = wire_put_head(plan, 1, n_cursor);
        memcpy(plan + n_plan, cursor, n_cursor);
        n_plan += n_cursor;
        n_plan += put_number(plan + n_plan, 2, complete);
        n_plan += put_number(plan + n_plan, 3, last);
        n_head = wire_put_head(head, 2, n_plan + len);
        str_reserve(out, n_head + n_plan + len + 1);
        str_add(out, head, n_head);
        str_add(out, plan, n_plan);
        str_add(out, units, len);
}

static void send_plan(struct session *ss, uint64_t epoch, bool last)
{
        struct str out = STR_INIT;
        plan_message(&out, epoch, ss->plan_seq, ss->whole && !ss->whole_begun, last,
                     str_c(&ss->units), ss->units.len);
        send_bytes(ss, out.buf, out.len);
        str_fini(&out);
        str_fini(&ss->units);
        ss->units = STR_INIT;
        ss->whole_begun = true;
}

/* Before any other message of this stream, and at the end of a batch: changes must not be
 * overtaken. */
static void flush_changes(struct session *ss, uint64_t epoch)
{
        if (ss->touched && !ss->whole && ss->units.len > 0)
                send_plan(ss, epoch, true);
        ss->touched = false;
}

static void add_unit(struct sessions *s, struct session *ss, const struct effect *e, uint64_t epoch)
{
        if (ss->units.len > 0 && ss->units.len + e->len + 16 > PLAN_MESSAGE_BYTES)
                send_plan(ss, epoch, !ss->whole);
        plan_add_unit(&ss->units, e->data, e->len);
        ss->plan_seq = e->seq;
        if (!ss->whole && !ss->touched) {
                ss->touched = true;
                *array_push(&s->touched) = (uint32_t)(ss->id & SLOT_MASK);
        }
}

static void on_plan(struct sessions *s, struct session *ss, const struct effect *e, uint64_t epoch)
{
        switch (e->kind) {
        case EFFECT_PLAN_BEGIN:
                flush_changes(ss, epoch);
                ss->whole = true;
                ss->whole_begun = false;
                ss->plan_seq = e->seq;
                break;
        case EFFECT_PLAN_END:
                if (e->seq > ss->plan_seq)
                        ss->plan_seq = e->seq;
                send_plan(ss, epoch, true);
                ss->whole = false;
                break;
        default:
                add_unit(s, ss, e, epoch);
                break;
        }
}

static void on_welcome(struct session *ss, const struct effect *e)
{
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *w = NULL;
        struct err err = { 0 };
        if (pb_unpack_own(&pb__welcome__descriptor, e->data, e->len, &arena, &w, &err) < 0) {
                log_error("a welcome of the core cannot be read", LOG_E(&err));
                arena_fini(&arena);
                return;
        }
        Pb__Welcome *welcome = (Pb__Welcome *)w;
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        m.welcome = welcome;
        send_message(ss, &m);
        if (welcome->accepted)
                log_info("agent connected", LOG_S("node", ss->node), LOG_I("session", ss->id),
                         LOG_S("peer", ss->call ? grpc_call_peer(ss->call) : ""));
        else {
                log_warn("agent refused", LOG_S("node", ss->node),
                         LOG_S("reason", welcome->reason));
                end(ss, ERR_FAILED, welcome->reason, false);
        }
        arena_fini(&arena);
}

static void on_effect(struct sessions *s, struct session *ss, const struct effect *e,
                      uint64_t epoch)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__HeartbeatAck beat = PB__HEARTBEAT_ACK__INIT;
        Pb__ListUnits list = PB__LIST_UNITS__INIT;
        switch (e->kind) {
        case EFFECT_PLAN_BEGIN:
        case EFFECT_PLAN_UNIT:
        case EFFECT_PLAN_END:
                on_plan(s, ss, e, epoch);
                return;
        case EFFECT_WELCOME:
                flush_changes(ss, epoch);
                on_welcome(ss, e);
                return;
        case EFFECT_BEAT:
                beat.next_ms = e->value;
                beat.clock_ms = e->clock_ms;
                beat.stop_ms = e->stop_ms;
                /* Asked now, after the commit and after all that may have held this thread up:
                 * while nobody else can lead, nobody else gives away what the agent holds. */
                beat.lease_ms = server_surely_leads(s->io->s) || MUTANT(renewed_without_leadership)
                                    ? e->lease_ms
                                    : 0;
                m.heartbeat = &beat;
                break;
        case EFFECT_LIST:
                m.list = &list;
                break;
        case EFFECT_DESCRIBE: {
                struct arena arena = ARENA_INIT;
                ProtobufCMessage *d = NULL;
                struct err err = { 0 };
                if (pb_unpack_own(&pb__describe_units__descriptor, e->data, e->len, &arena, &d,
                                  &err) == 0) {
                        m.describe = (Pb__DescribeUnits *)d;
                        flush_changes(ss, epoch);
                        send_message(ss, &m);
                } else
                        log_error("a question of the core cannot be read", LOG_E(&err));
                arena_fini(&arena);
                return;
        }
        case EFFECT_WEBHOOK:
                return; /* webhooks.c */
        case EFFECT_CLOSE:
                flush_changes(ss, epoch);
                end(ss, ERR_CONFLICT,
                    e->data ? fmt("%.*s", (int)e->len, (const char *)e->data)
                            : "another stream of this node took its place",
                    e->value == EFFECT_CLOSE_FAULT);
                return;
        }
        flush_changes(ss, epoch);
        send_message(ss, &m);
}

void sessions_effects(struct sessions *s, const struct core_batch *batch)
{
        for (size_t i = 0; i < batch->n_effects; i++) {
                const struct effect *e = &batch->effects[i];
                struct session *ss = find(s, e->session);
                if (ss && ss->call && !ss->ended)
                        on_effect(s, ss, e, batch->epoch);
        }
        for (size_t i = 0; i < s->touched.len; i++) {
                struct session *ss = s->slots.at[s->touched.at[i]];
                if (ss)
                        flush_changes(ss, batch->epoch);
        }
        array_clear(&s->touched);
}
