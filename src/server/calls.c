/* server/calls.c: see calls.h. Answers are turned into JSON here, never in the ring. */
#include "server/calls.h"

#include "base/array.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/redact.h"
#include "model/validate.h"
#include "net/grpc.h"
#include "net/http.h"
#include "server/access.h"
#include "server/explained.h"
#include "server/facts.h"
#include "server/forward.h"
#include "server/io.h"
#include "server/join.h"
#include "server/plans.h"
#include "server/reader.h"
#include <event2/event.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

/* changes beyond the first in requests for many that may wait, for each input that may */
#define MORE_PER_INPUT 4
#define LOOK_UP_MS 400 /* how often a call that waits asks whether the store is away */
/* a read that the ring took just before the store went away waits for the commit as well: this
 * long */
#define READ_WAITS_MS 4000
/* of those who need not say who they are there are at most one in so many of all calls (but 8) */
#define STRANGERS 64

struct calls {
        struct io *io;
        ARRAY(struct call *) slots; /* NULL: free */
        ARRAY(uint32_t) free;
        uint32_t generation;
        size_t n;              /* calls, and what they ask for beyond one change each */
        size_t more;           /* that part alone */
        size_t strangers;      /* calls of ops that anybody may ask for */
        struct heap deadlines; /* by slot */
        struct event *timer;
        int64_t timer_ms; /* when it is set to fire; 0: not */
        bool stopped;
        ARRAY(uint64_t) unproved; /* tickets of calls whose answers are held */
};

/* An answer that is there, and may not be given yet: that of the ring, or (history) of the
 * reader. */
struct held {
        struct arena memory;
        struct reply reply;
        struct err err;
        struct history_job *history;
};

static void on_deadline(evutil_socket_t fd, short what, void *ctx);

struct calls *calls_create(struct io *io)
{
        struct calls *c = mem_must(sizeof(*c));
        c->io = io;
        c->timer = evtimer_new(io->base, on_deadline, c);
        return c;
}

void calls_destroy(struct calls *c)
{
        if (!c)
                return;
        for (size_t i = 0; i < c->slots.len; i++)
                if (c->slots.at[i])
                        call_drop(c->slots.at[i]);
        array_fini(&c->slots);
        array_fini(&c->free);
        array_fini(&c->unproved);
        heap_fini(&c->deadlines);
        event_free(c->timer);
        mem_free(c);
}

size_t calls_len(const struct calls *c)
{
        return c->n;
}

/* Changes that are asked for many at a time wait in the same queue, as one input each: what waits
 * is bounded by its changes as well. */
static size_t more_max(const struct calls *c)
{
        return (size_t)c->io->s->opt.max_inputs * MORE_PER_INPUT;
}

bool calls_have_room(const struct calls *c, const struct op *op)
{
        return c->n < c->io->s->opt.max_calls &&
               (op->input != INPUT_APPLY_MANY || c->more < more_max(c));
}

bool calls_are_many(const struct calls *c)
{
        return c->more > more_max(c) / 2;
}

static uint32_t slot_of(uint64_t ticket)
{
        return (uint32_t)(ticket & UINT32_MAX) - 1;
}

static struct call *find(struct calls *c, uint64_t ticket)
{
        uint32_t slot = slot_of(ticket);
        return ticket != 0 && slot < c->slots.len && c->slots.at[slot] &&
                       c->slots.at[slot]->ticket == ticket
                   ? c->slots.at[slot]
                   : NULL;
}

struct call *calls_find(struct calls *c, uint64_t ticket)
{
        return find(c, ticket);
}

struct call *call_new(struct calls *c, const struct op *op, struct err *err)
{
        if (c->stopped) {
                err_set(err, ERR_UNAVAILABLE, .msg = "the server is stopping",
                        .retry_after_ms = 2000);
                return NULL;
        }
        if (c->n >= c->io->s->opt.max_calls) {
                err_set(err, ERR_LIMIT, .msg = "too many calls are under way",
                        .detail = fmt("%zu", c->n), .retry_after_ms = 1000);
                return NULL;
        }
        size_t strangers_max =
            c->io->s->opt.max_calls / STRANGERS > 8 ? c->io->s->opt.max_calls / STRANGERS : 8;
        if (op->needs == NEEDS_NOTHING && c->strangers >= strangers_max) {
                err_set(err, ERR_LIMIT, .msg = "too many calls of strangers are under way",
                        .detail = fmt("%zu", c->strangers), .retry_after_ms = 1000);
                return NULL;
        }
        uint32_t slot;
        if (c->free.len > 0) {
                slot = array_pop(&c->free);
        } else {
                slot = (uint32_t)c->slots.len;
                *array_push(&c->slots) = NULL;
        }
        struct call *call = mem_must(sizeof(*call));
        call->ticket = (uint64_t)++c->generation << 32 | (slot + 1);
        call->door = &c->io->doors[op_index(op)];
        call->io = c->io;
        call->op = op;
        c->slots.at[slot] = call;
        c->n++;
        c->strangers += op->needs == NEEDS_NOTHING;
        return call;
}

static void held_free(struct held *h)
{
        if (!h)
                return;
        history_job_free(h->history);
        arena_fini(&h->memory);
        mem_free(h);
}

void call_drop(struct call *call)
{
        struct calls *c = call->io->calls;
        uint32_t slot = slot_of(call->ticket);
        if (call->http)
                http_on_close(call->http, NULL, NULL);
        if (call->grpc)
                rpc_set_over(call->grpc, call->door);
        heap_unset(&c->deadlines, slot);
        c->slots.at[slot] = NULL;
        *array_push(&c->free) = slot;
        c->n -= 1 + call->more_items;
        c->more -= call->more_items;
        c->strangers -= call->op->needs == NEEDS_NOTHING;
        if (call->secret)
                OPENSSL_cleanse(call->secret, strlen(call->secret));
        mem_free(call->secret);
        joining_free(call->joining);
        ring_msg_free(call->msg);
        history_job_free(call->history);
        held_free(call->held);
        history_leave(&call->reading);
        plans_end(call->io->plans, call);
        mem_free(call);
}

void calls_forget(struct calls *c, uint64_t ticket)
{
        struct call *call = find(c, ticket);
        if (call)
                call_drop(call);
}

/* ---- answers ---- */

void call_fail(struct call *call, const struct err *err)
{
        if (call->on_reply) {
                void (*fn)(void *, const struct reply *) = call->on_reply;
                void *ctx = call->ctx;
                call_drop(call);
                fn(ctx, &(struct reply){ .err = err });
                return;
        }
        struct http_request *http = call->http;
        struct grpc_call *grpc = call->grpc;
        char request_id[65];
        memcpy(request_id, call->request_id, sizeof(request_id));
        call_drop(call);
        if (http)
                http_reply_err(http, 0, err);
        else if (grpc)
                grpc_finish_err(grpc, err, request_id);
}

/* What the core cannot know of ClusterInfo. */
static void complete_cluster(struct io *io, Pb__ClusterInfo *info, struct arena *memory)
{
        struct server *s = io->s;
        info->version = (char *)BERTH_VERSION;
        info->status = (char *)(server_is_degraded(s, NULL) ? "degraded" : "ok");
        info->committed = atomic_load(&s->committed);
        info->started_at = s->started_ms;
        info->commits = (int64_t)counted(&s->metrics.commits);
        info->http_address = s->http_address;
        info->grpc_address = s->grpc_address;
        info->server = server_facts(io, memory);
        server_replicas(io, info, memory);
}

/* What the headers of an answer say of it. */
struct facts {
        uint64_t version;
        const char *id;
        size_t id_len;
};

static struct facts facts_of(const ProtobufCMessage *m)
{
        struct facts f = { .version = op_resource_version(m) };
        if (m->descriptor == &pb__workload__descriptor) {
                f.id = ((const Pb__Workload *)m)->id;
                f.id_len = strlen(f.id);
        }
        return f;
}

/* Most answers need not be unpacked to be written. */
static bool write_unread(struct str *body, const struct reply *reply, struct facts *ret)
{
        str_reserve(body, reply->len * 2 + 64);
        if (!json_write_packed(body, reply->type, reply->data, reply->len, JSON_ZEROS))
                return false;
        ret->version = json_packed_number(reply->type, reply->data, reply->len, "resource_version");
        if (reply->created && reply->type == &pb__workload__descriptor)
                ret->id =
                    json_packed_text(reply->type, reply->data, reply->len, "id", &ret->id_len);
        return true;
}

/* body: the answer's JSON, or empty. */
static void answer_http(struct http_request *http, const struct op *op, const struct reply *reply,
                        const struct facts *f, struct str *body)
{
        _cleanup_(str_finip) struct str etag = STR_INIT, location = STR_INIT;
        struct http_field fields[5] = { HTTP_JSON };
        size_t n = 1;
        if (f->version > 0) {
                str_addc(&etag, '"');
                str_add_u64(&etag, f->version);
                str_addc(&etag, '"');
                fields[n++] = HTTP_FIELD("ETag", str_c(&etag));
        }
        if (reply->created && f->id) {
                str_adds(&location, "/v1/workloads/");
                str_add(&location, f->id, f->id_len);
                fields[n++] = HTTP_FIELD("Location", str_c(&location));
        }
        if (body->len > 0)
                str_addc(body, '\n');
        fields[n] = HTTP_FIELD_END;
        http_reply(http, reply->created ? 201 : op->status, fields, str_c(body), body->len);
}

static void answer(struct call *call, const struct reply *reply)
{
        struct arena arena = ARENA_INIT;
        struct str packed = STR_INIT, body = STR_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        struct http_request *http = call->http;
        struct grpc_call *grpc = call->grpc;
        const struct op *op = call->op;
        bool pretty = call->pretty, is_cluster = op->kind == OP_CLUSTER && !call->forwarded,
             is_token = op->kind == OP_TOKEN && !call->forwarded,
             was_forwarded = call->was_forwarded;
        Pb__CreateTokenResponse made = PB__CREATE_TOKEN_RESPONSE__INIT;
        enum redact_level level = redact_level_of(call->role);
        bool hides = reply->type && redact_finds(level, reply->type, reply->data, reply->len);

        struct facts facts = { 0 };
        bool unread = http && reply->type && !pretty && !is_cluster && !is_token && !hides &&
                      write_unread(&body, reply, &facts);
        if (reply->type && !unread && (http || is_cluster || is_token || hides) &&
            pb_unpack_own(reply->type, reply->data, reply->len, &arena, &m, &err) < 0) {
                log_error("a reply of the core cannot be read", LOG_S("op", op->name),
                          LOG_S("request_id", call->request_id), LOG_E(&err));
                call_fail(call, &err);
                str_fini(&body);
                arena_fini(&arena);
                return;
        }
        redact(level, m);
        if (is_cluster && m)
                complete_cluster(call->io, (Pb__ClusterInfo *)m, &arena);
        if (is_token && m) {
                made.token = (Pb__AccessToken *)m;
                made.secret = arena_strdup(&arena, call->secret ? call->secret : "");
                m = &made.base;
        }
        call_drop(call);
        /* whoever passed this on may have to say it over HTTP */
        if (grpc && was_forwarded && reply->created)
                grpc_call_send_headers(
                    grpc,
                    (struct grpc_metadata[]){ GRPC_META(CREATED_HEADER, "1", 1), GRPC_META_END });
        if (http && m) {
                json_write(&body, m, JSON_ZEROS | (pretty ? JSON_PRETTY : JSON_COMPACT));
                facts = facts_of(m);
        }
        if (http)
                answer_http(http, op, reply, &facts, &body);
        else if (grpc && (is_cluster || is_token || hides) && m) {
                pb_pack(&packed, m);
                grpc_call_reply(grpc, packed.buf, packed.len);
        } else if (grpc)
                grpc_call_reply(grpc, reply->data ? reply->data : "", reply->len);
        str_fini(&packed);
        str_fini(&body);
        arena_fini(&arena);
}

void call_set_caller(struct call *call, const struct caller *who)
{
        memcpy(call->actor, who->actor, sizeof(call->actor));
        call->role = who->role;
}

void call_reply(struct call *call, const struct reply *reply)
{
        if (call->on_reply) {
                void (*fn)(void *, const struct reply *) = call->on_reply;
                void *ctx = call->ctx;
                call_drop(call);
                fn(ctx, reply);
        } else if (reply->err)
                call_fail(call, reply->err);
        else
                answer(call, reply);
}

void call_answer(struct call *call, const ProtobufCMessageDescriptor *type, const void *data,
                 size_t len)
{
        answer(call, &(struct reply){
                         .ticket = call->ticket, .type = type, .data = (void *)data, .len = len });
}

static uint64_t newest_event(const ProtobufCMessage *m)
{
        uint64_t changed = op_resource_version(m);
        uint64_t told = m->descriptor == &pb__workload__descriptor
                            ? ((const Pb__Workload *)m)->told_version
                            : 0;
        return told > changed ? told : changed;
}

/* A list of the events of one workload or one node begins at its newest one, which its record
 * names. */
static void answer_chain_start(struct call *call, const struct reply *reply)
{
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        if (!reply->err && reply->type &&
            pb_unpack_own(reply->type, reply->data, reply->len, &arena, &m, NULL) >= 0)
                call->history->chain = newest_event(m);
        arena_fini(&arena);
        call_read(call); /* deleted or never there: the reader scans */
}

/* Why it is so is in the records; how it came to be so is in the events. They may be gone, or the
 * reader busy: the answer is as good as it can be then. */
static void answer_explain(struct call *call, const struct reply *reply)
{
        struct history_job *job = explained_job(call->ticket, reply);
        if (job)
                job->deadline_ms = call->deadline_ms;
        if (job && history_send(call->io->s, job, call->actor, &call->reading, NULL) == 0)
                return; /* its deadline stands */
        answer(call, reply);
}

/* A leader that was replaced does not know it at once; until then it must not say what is so now,
 * nor that a change is made already, or cannot be made. An answer that came with a commit needs no
 * more: the store has compared. Any other waits for a proof that left after its question came: no
 * other can have answered anybody before that question was asked. */
static bool needs_proof(const struct call *call)
{
        return (call->consistent || call->is_change) && store_is_shared(call->io->s->store);
}

static bool is_proved(const struct call *call)
{
        return store_proved_ns(call->io->s->store) >= call->asked_ns;
}

static void hold(struct call *call, struct held *h)
{
        struct calls *c = call->io->calls;
        call->held = h;
        *array_push(&c->unproved) = call->ticket;
        atomic_store(&c->io->s->proof_wanted, true);
        store_prove(c->io->s->store);
}

static struct held *held_reply(const struct reply *reply)
{
        struct held *h = mem_must(sizeof(*h));
        h->reply = *reply;
        if (reply->data)
                h->reply.data = arena_dup(&h->memory, reply->data, reply->len);
        if (reply->err) {
                h->err = *reply->err;
                h->reply.err = &h->err;
        }
        return h;
}

static void fail_unsure(struct call *call)
{
        struct err err = { 0 };
        err_set(&err, ERR_UNAVAILABLE, .msg = "this server cannot be sure that it still leads",
                .hint = call->is_change ? "nothing was changed: send it again" : "ask again",
                .retry_after_ms = 500);
        call_fail(call, &err);
}

static void deliver(struct call *call, const struct reply *reply)
{
        struct io *io = call->io;
        if (call->on_reply) {
                void (*fn)(void *, const struct reply *) = call->on_reply;
                void *ctx = call->ctx;
                call_drop(call);
                fn(ctx, reply);
        } else if (call->op->kind == OP_EVENTS)
                answer_chain_start(call, reply);
        else if (call->op->kind == OP_JOIN || call->op->kind == OP_RENEW)
                join_reply(io->join, call, reply);
        else if (reply->err)
                call_fail(call, reply->err);
        else if (call->op->kind == OP_EXPLAIN)
                answer_explain(call, reply);
        else if (call->op->kind == OP_PLAN)
                plans_barrier(io->plans, call);
        else
                answer(call, reply);
}

void calls_reply(struct calls *c, const struct reply *reply, bool committed)
{
        struct call *call = find(c, reply->ticket);
        if (!call)
                return; /* too late, or the caller has gone */
        if ((committed && call->is_change) || !needs_proof(call) || is_proved(call))
                deliver(call, reply);
        else if (store_lead_is_over(c->io->s->store))
                fail_unsure(call);
        else
                hold(call, held_reply(reply));
}

static void deliver_history(struct call *call, struct history_job *job)
{
        struct http_request *http = call->http;
        struct grpc_call *grpc = call->grpc;
        call_drop(call);
        if (http)
                http_reply_json(http, 200, str_c(&job->body), job->body.len);
        else if (grpc)
                grpc_call_reply(grpc, str_c(&job->body), job->body.len);
}

void calls_history(struct calls *c, struct history_job *job)
{
        struct call *call = find(c, job->owner);
        if (call && call->op->kind == OP_EXPLAIN) {
                struct str packed = STR_INIT;
                explained(job, &packed);
                call_answer(call, &pb__explanation__descriptor, packed.buf, packed.len);
                str_fini(&packed);
        } else if (call && job->err.code != ERR_OK)
                call_fail(call, &job->err);
        else if (call && needs_proof(call) && !is_proved(call)) {
                if (store_lead_is_over(c->io->s->store))
                        fail_unsure(call);
                else {
                        struct held *h = mem_must(sizeof(*h));
                        h->history = TAKE_PTR(job);
                        hold(call, h);
                }
        } else if (call)
                deliver_history(call, job);
        history_job_free(job);
}

void calls_proved(struct calls *c)
{
        if (c->unproved.len == 0)
                return;
        /* Those whose question has failed are asked for again with the next keep-alive. */
        size_t n = c->unproved.len, kept = 0;
        for (size_t i = 0; i < n; i++) {
                struct call *call = find(c, c->unproved.at[i]);
                if (!call || !call->held)
                        continue;
                if (!is_proved(call)) {
                        c->unproved.at[kept++] = call->ticket;
                        continue;
                }
                struct held *h = TAKE_PTR(call->held);
                if (h->history)
                        deliver_history(call, h->history);
                else
                        deliver(call, &h->reply);
                held_free(h);
        }
        /* Delivering may have added some, behind. */
        memmove(c->unproved.at + kept, c->unproved.at + n,
                (c->unproved.len - n) * sizeof(*c->unproved.at));
        c->unproved.len -= n - kept;
        atomic_store(&c->io->s->proof_wanted, c->unproved.len > 0);
}

/* ---- sending and deadlines ---- */

static void arm(struct calls *c)
{
        int64_t next = heap_next_ms(&c->deadlines), now = mono_ms();
        if (next == HEAP_NEVER || (c->timer_ms != 0 && c->timer_ms <= next))
                return;
        int64_t wait = next > now ? next - now : 0;
        c->timer_ms = next;
        struct timeval tv = { .tv_sec = wait / 1000, .tv_usec = (wait % 1000) * 1000 };
        evtimer_add(c->timer, &tv);
}

/* The caller's deadline if it has one, else ours. */
static int64_t deadline_of(const struct call *call)
{
        int64_t ms = call->io->s->opt.request_timeout_ms;
        if (call->grpc) {
                int64_t left = grpc_call_remaining_ms(call->grpc);
                if (left != GRPC_NO_DEADLINE && left < ms)
                        ms = left;
        }
        return mono_ms() + ms;
}

/* A call that waits for the ring looks up now and then whether the store is away: then it need not
 * wait until its deadline. */
static void expect(struct call *call, int64_t deadline_ms)
{
        struct calls *c = call->io->calls;
        int64_t now = mono_ms(), look = now + LOOK_UP_MS;
        if (call->deadline_ms == 0) {
                call->sent_ms = now;
                call->asked_ns = clock_steady_ns();
        }
        call->deadline_ms = deadline_ms;
        heap_set(&c->deadlines, slot_of(call->ticket), look < deadline_ms ? look : deadline_ms);
        arm(c);
}

/* All changes that wait are refused at once, so that the ring knows by the time of their sending
 * that they are not to be made any more. */
static void refuse_changes(struct calls *c)
{
        struct err err = { 0 };
        io_store_is_away(&err, true);
        atomic_store(&c->io->s->refused_ms, mono_ms());
        for (size_t i = 0; i < c->slots.len; i++)
                if (c->slots.at[i] && c->slots.at[i]->is_change &&
                    c->slots.at[i]->deadline_ms > 0 && !c->slots.at[i]->forwarded)
                        call_fail(c->slots.at[i], &err);
}

/* The secret stays here until the answer; the core and all behind it know its hash. A join token
 * also says which CA to trust. */
static int make_secret(struct call *call, struct err *err)
{
        Pb__CreateTokenRequest *q = (Pb__CreateTokenRequest *)call->msg->in.msg;
        char hash[65], ca[65] = "";
        bool join = q->role == PB__ROLE__E__join;
        int r = join ? join_ca_hash(call->io->join, ca, err) : 0;
        if (r < 0)
                return r;
        call->secret = mem_must(TOKEN_TEXT_LEN + 1 + sizeof(ca));
        token_make(join ? JOIN_PREFIX : TOKEN_PREFIX, call->secret, hash);
        if (join)
                snprintf(call->secret + TOKEN_TEXT_LEN, 1 + sizeof(ca), ".%s", ca);
        q->hash = arena_strdup(&call->msg->memory, hash);
        q->if_no_admin = false;
        return 0;
}

/* What has to be done before the core is asked. */
static int prepare(struct call *call, struct err *err)
{
        switch (call->op->kind) {
        case OP_TOKEN:
                return make_secret(call, err);
        case OP_JOIN:
        case OP_RENEW:
                return join_begin(call->io->join, call, err);
        default:
                return 0;
        }
}

void call_send(struct call *call)
{
        struct err err = { 0 };
        if (call->op->kind == OP_TRUST) {
                join_trust(call->io->join, call);
                return;
        }
        call->is_change = input_is_change(call->msg->in.kind);
        /* before anything is made of it: the leader does that */
        if (!call->io->leads && forward_wanted(call)) {
                forward_call(call);
                return;
        }
        if (!call->io->leads &&
            /* nobody can pass on the certificate, and a follower can put nothing into the events */
            call->op->kind == OP_RENEW) {
                io_not_leading(call->io, &err);
                call_fail(call, &err);
                return;
        }
        if (prepare(call, &err) < 0) {
                call_fail(call, &err);
                return;
        }
        call->is_change = input_is_change(call->msg->in.kind);
        if ((call->is_change || call->op->kind == OP_PLAN) && server_store_is_away(call->io->s)) {
                io_store_is_away(&err, false);
                call_fail(call, &err);
                return;
        }
        if (call->op->kind == OP_PLAN && plans_begin(call->io->plans, call, &err) < 0) {
                call_fail(call, &err);
                return;
        }
        struct ring_msg *msg = TAKE_PTR(call->msg);
        msg->in.reply = call->ticket;
        msg->in.request_id = arena_strdup(&msg->memory, call->request_id);
        msg->in.actor = arena_strdup(&msg->memory, call->actor);
        msg->deadline_ms = deadline_of(call);
        int64_t deadline = msg->deadline_ms;
        size_t more = input_items(&msg->in) - 1;
        struct calls *c = call->io->calls;
        bool has_room =
            c->n + more <= call->io->s->opt.max_calls && (more == 0 || c->more < more_max(c));
        if (has_room && (!call->is_change || io_takes_changes(call->io)) &&
            io_to_ring(call->io, msg, false)) {
                call->more_items = more;
                c->n += more;
                c->more += more;
                expect(call, deadline);
                return;
        }
        ring_msg_free(msg);
        io_too_busy(call->io, &err);
        call_fail(call, &err);
}

void call_read(struct call *call)
{
        struct history_job *job = TAKE_PTR(call->history);
        job->owner = call->ticket;
        job->head = atomic_load(&call->io->s->committed);
        job->deadline_ms = deadline_of(call);
        int64_t deadline = job->deadline_ms;
        struct err err = { 0 };
        if (history_send(call->io->s, job, call->actor, &call->reading, &err) == 0) {
                expect(call, deadline);
                return;
        }
        count(&call->io->s->metrics.inputs_refused);
        call_fail(call, &err);
}

void call_events(struct call *call, const Pb__ListEventsRequest *want)
{
        struct err err = { 0 };
        if (!call->io->leads && call->consistent) {
                call->msg->in.msg = &want->base;
                forward_call(call);
                return;
        }
        struct history_job *job = history_job_new(HISTORY_LIST, call->ticket);
        call->history = job;
        if (event_filter_parse(want, &job->memory, &job->filter, &err) < 0) {
                call_fail(call, &err);
                return;
        }
        job->json = call->http != NULL;
        job->json_flags = JSON_ZEROS | (call->pretty ? JSON_PRETTY : JSON_COMPACT);
        job->level = redact_level_of(call->role);
        job->since = want->since;
        job->before = want->before;
        job->newest_first = want->newest_first;
        job->limit = want->limit > 0 ? (uint32_t)want->limit : LIST_LIMIT_DEFAULT;
        struct ring_msg *msg = TAKE_PTR(call->msg);
        if (job->filter.workload && !atomic_load(&call->io->s->degraded)) {
                Pb__WorkloadRef *ref =
                    (Pb__WorkloadRef *)pb_new(&msg->memory, &pb__workload_ref__descriptor);
                ref->id = arena_strdup(&msg->memory, job->filter.workload);
                msg->in.kind = INPUT_GET_WORKLOAD;
                msg->in.msg = &ref->base;
                call->msg = msg;
                call_send(call);
                return;
        }
        if (job->filter.own_node && !atomic_load(&call->io->s->degraded)) {
                Pb__NodeRef *ref = (Pb__NodeRef *)pb_new(&msg->memory, &pb__node_ref__descriptor);
                ref->id = arena_strdup(&msg->memory, job->filter.node);
                msg->in.kind = INPUT_GET_NODE;
                msg->in.msg = &ref->base;
                call->msg = msg;
                call_send(call);
                return;
        }
        ring_msg_free(msg);
        call_read(call);
}

static void on_deadline(evutil_socket_t fd, short what, void *ctx)
{
        struct calls *c = ctx;
        (void)fd;
        (void)what;
        c->timer_ms = 0;
        int64_t now = mono_ms();
        while (heap_next_ms(&c->deadlines) <= now) {
                struct call *call = c->slots.at[heap_pop(&c->deadlines)];
                struct err err = { 0 };
                bool away = server_store_is_away(c->io->s), late = call->deadline_ms <= now;
                if (call->is_change && away && !late && !call->forwarded) {
                        heap_set(&c->deadlines, slot_of(call->ticket), now + LOOK_UP_MS);
                        refuse_changes(c);
                        continue;
                }
                if (!late && (call->forwarded || !(away && now - call->sent_ms >= READ_WAITS_MS))) {
                        expect(call, call->deadline_ms);
                        continue;
                }
                away |= atomic_load(&c->io->s->degraded);
                if (away && call->is_change)
                        io_store_is_away(&err, true);
                else if (away)
                        err_set(&err, ERR_UNAVAILABLE,
                                .msg = "the store went away before this could be answered",
                                .hint = "ask again", .retry_after_ms = 1000);
                else
                        err_set(&err, ERR_DEADLINE, .msg = "the server did not answer in time",
                                .hint = "try again; a change that was sent may still happen, and "
                                        "can be sent again safely",
                                .retry_after_ms = 1000);
                log_warn("a call was not answered in time", LOG_S("op", call->op->name),
                         LOG_S("request_id", call->request_id));
                call_fail(call, &err);
        }
        arm(c);
}

void calls_lost(struct calls *c)
{
        for (size_t i = 0; i < c->slots.len; i++) {
                struct call *call = c->slots.at[i];
                struct err err = { 0 };
                if (!call || call->deadline_ms == 0 || call->forwarded)
                        continue;
                if (call->is_change)
                        err_set(&err, ERR_UNAVAILABLE,
                                .msg = "this server lost its lead before the change was durable: "
                                       "nobody knows whether it is made",
                                .hint = "look, or send it again: that is safe",
                                .retry_after_ms = 1000);
                else
                        err_set(&err, ERR_UNAVAILABLE,
                                .msg = "this server lost its lead before it could answer",
                                .hint = "ask again", .retry_after_ms = 1000);
                call_fail(call, &err);
        }
}

void call_expect(struct call *call)
{
        call->forwarded = true;
        expect(call, deadline_of(call));
}

void calls_stop(struct calls *c)
{
        struct err err = { 0 };
        err_set(&err, ERR_UNAVAILABLE, .msg = "the server is stopping",
                .hint = "a change that was sent may have happened, and can be sent again safely",
                .retry_after_ms = 2000);
        c->stopped = true;
        for (size_t i = 0; i < c->slots.len; i++)
                if (c->slots.at[i])
                        call_fail(c->slots.at[i], &err);
}
