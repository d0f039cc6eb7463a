/* sim/leaders_server.c: one of two servers. Every function here is one step, and the process may stand still before each. */
#include "base/mem.h"
#include "base/mutant.h"
#include "model/feature.h"
#include "model/pb.h"
#include "sim/leaders.h"
#include <string.h>

static void later(struct leaders *s, uint32_t r, int64_t in_ms, enum happening kind)
{
        leaders_at(s, s->now + in_ms, (struct what){ .kind = kind, .who = r, .life = s->servers[r].life });
}

static int64_t steady(struct leaders *s, uint32_t r)
{
        return steady_of(&s->servers[r].clock, s->now);
}

/* ---- the store, from here ---- */

void batch_copy_unref(struct batch_copy *c)
{
        if (!c || --c->refs)
                return;
        arena_fini(&c->memory);
        mem_free(c);
}

static struct batch_copy *batch_copy(const struct store_batch *b)
{
        struct batch_copy *c = mem_must(sizeof(*c));
        c->refs = 1;
        c->batch = *b;
        struct store_event *events = arena_new_n(&c->memory, struct store_event, b->n_events + 1);
        struct store_record *records = arena_new_n(&c->memory, struct store_record, b->n_records + 1);
        for (size_t i = 0; i < b->n_events; i++)
                events[i] =
                    (struct store_event){ b->events[i].seq, arena_dup(&c->memory, b->events[i].data, b->events[i].len), b->events[i].len };
        for (size_t i = 0; i < b->n_records; i++)
                records[i] =
                    (struct store_record){ arena_strdup(&c->memory, b->records[i].key),
                                           b->records[i].data ? arena_dup(&c->memory, b->records[i].data, b->records[i].len) : NULL,
                                           b->records[i].len };
        c->batch.events = events;
        c->batch.records = records;
        return c;
}

static enum channel channel_of(enum ask_kind kind)
{
        return kind == ASK_KEEP ? BY_LEASE : kind == ASK_LOAD || kind == ASK_PROVE ? BY_READ : BY_COMMIT;
}

bool leader_is_cut(const struct leaders *s, uint32_t r, enum ask_kind kind)
{
        return s->now < s->servers[r].cut_until[channel_of(kind)];
}

/* What is on the wire arrives, whatever becomes of who sent it. */
void leader_ask(struct leaders *s, uint32_t r, struct ask *a)
{
        struct server *v = &s->servers[r];
        if (leader_is_cut(s, r, a->kind)) {
                batch_copy_unref(a->commit);
                mem_free(a);
                return;
        }
        int64_t delay = chance(s, 20000) ? between(s, 100, 4000) : between(s, 1, 15);
        leaders_at(s, s->now + delay, (struct what){ .kind = AT_STORE, .who = r, .life = v->life, .data = a });
}

static void ask(struct leaders *s, uint32_t r, enum ask_kind kind)
{
        struct ask *a = mem_must(sizeof(*a));
        *a = (struct ask){ .kind = kind, .rev = s->servers[r].rev, .sent_ms = steady(s, r) };
        if (kind == ASK_COMMIT) {
                a->commit = s->servers[r].op;
                a->commit->refs++;
        }
        leader_ask(s, r, a);
}

/* ---- leading ---- */

void leader_stop(struct leaders *s, uint32_t r)
{
        struct server *v = &s->servers[r];
        for (size_t i = 0; i < v->queue.len; i++)
                core_batch_free(v->queue.at[i]);
        array_clear(&v->queue);
        core_batch_free(v->committing);
        v->committing = NULL;
        batch_copy_unref(v->op);
        v->op = NULL;
        for (size_t i = v->out_done; i < v->out.len; i++)
                mem_free(v->out.at[i].data);
        array_clear(&v->out);
        v->out_done = 0;
        v->sending = false;
        if (v->core)
                core_destroy(v->core);
        v->core = NULL;
        v->rev = 0;
        v->leads_until = 0;
        v->proved_ms = INT64_MIN / 2;
        v->asked_ms = INT64_MIN;
        v->tick = 0;
        for (uint64_t c = 1; c < s->conns.len; c++)
                if (s->conns.at[c].server == r && s->conns.at[c].life == v->life && !s->conns.at[c].closed)
                        leaders_at(s, s->now + between(s, 1, 300),
                                   (struct what){ .kind = AT_HANGUP, .who = s->conns.at[c].agent, .conn = c });
        v->life++;
        later(s, r, between(s, 50, 500), AT_KEEP);
}

static void keep(struct leaders *s, uint32_t r)
{
        struct server *v = &s->servers[r];
        later(s, r, TTL_MS / 4, AT_KEEP);
        int64_t unproved = steady(s, r) - v->proved_ms;
        if (v->rev && unproved > 2 * TTL_MS && !MUTANT(lead_not_proved) && !MUTANT(lead_by_lease_alone)) {
                leader_stop(s, r);
                return;
        }
        if (v->rev)
                ask(s, r, ASK_KEEP);
        if (v->rev && unproved >= TTL_MS / 8 && !MUTANT(lead_not_proved))
                ask(s, r, ASK_PROVE);
        bool asked = v->asked_ms != INT64_MIN && steady(s, r) - v->asked_ms < 1000;
        if (v->core || asked)
                return;
        v->asked_ms = steady(s, r);
        ask(s, r, v->rev ? ASK_LOAD : ASK_LEAD);
}

static void begin(struct leaders *s, uint32_t r, const struct snapshot *p)
{
        struct server *v = &s->servers[r];
        struct err err = { 0 };
        v->core = core_create(&s->opt);
        for (size_t i = 0; i < p->records.len; i++)
                if (core_load_record(v->core, p->records.at[i].key, p->records.at[i].data, p->records.at[i].len, &err) < 0)
                        leaders_fail(s, "a record does not load", err_line(&err));
        int64_t behind = core_newest_ms(v->core) - (WALL_MS + s->now + v->clock.wall_ahead);
        v->lifted_ms = behind > 0 ? behind : 0;
        s->result->leaders++;
        struct input in = { .kind = INPUT_START, .head = p->head };
        leader_input(s, r, &in);
}

static void answered(struct leaders *s, uint32_t r, struct ask *a)
{
        struct server *v = &s->servers[r];
        if (a->proof && a->rev == v->rev && a->sent_ms > v->proved_ms)
                v->proved_ms = a->sent_ms;
        switch (a->kind) {
        case ASK_LEAD:
                v->asked_ms = INT64_MIN;
                if (!a->ok || v->rev)
                        return;
                v->rev = a->rev;
                v->leads_until = a->sent_ms + TTL_MS;
                v->proved_ms = a->sent_ms;
                v->asked_ms = steady(s, r);
                ask(s, r, ASK_LOAD);
                return;
        case ASK_KEEP:
                if (a->rev != v->rev)
                        return;
                if (!a->ok)
                        leader_stop(s, r);
                else if (a->sent_ms + TTL_MS > v->leads_until)
                        v->leads_until = a->sent_ms + TTL_MS;
                return;
        case ASK_PROVE:
                if (a->rev == v->rev && !a->ok)
                        leader_stop(s, r);
                return;
        case ASK_LOAD:
                v->asked_ms = INT64_MIN;
                if (a->rev != v->rev || v->core)
                        return;
                if (!a->ok)
                        leader_stop(s, r);
                else
                        begin(s, r, a->loaded);
                return;
        case ASK_COMMIT:
                if (a->commit != v->op)
                        return;
                if (!a->ok) {
                        leader_stop(s, r);
                        return;
                }
                batch_copy_unref(v->op);
                v->op = NULL;
                later(s, r, 0, AT_COMMIT);
                return;
        }
}

/* ---- what leaves ---- */

static void push_out(struct server *v, struct message m, const Pb__ServerMessage *msg)
{
        if (msg) {
                m.len = pb__server_message__get_packed_size(msg);
                m.data = mem_must(m.len + 1);
                pb__server_message__pack(msg, m.data);
        }
        *array_push(&v->out) = m;
}

/* Consecutive plan effects of one stream become one message. */
static size_t put_plan(struct server *v, const struct core_batch *b, size_t i)
{
        const struct effect *first = &b->effects[i];
        struct arena memory = ARENA_INIT;
        struct arena_allocator alloc = arena_allocator(&memory);
        Pb__ServerMessage msg = PB__SERVER_MESSAGE__INIT;
        Pb__Plan plan = PB__PLAN__INIT;
        Pb__Cursor cursor = PB__CURSOR__INIT;
        plan.complete = first->kind == EFFECT_PLAN_BEGIN;
        plan.units = arena_new_n(&memory, Pb__PlanEntry *, b->n_effects - i + 1);
        cursor.epoch = b->epoch;
        for (; i < b->n_effects && b->effects[i].session == first->session; i++) {
                const struct effect *e = &b->effects[i];
                if (e->kind == EFFECT_PLAN_END) {
                        plan.last = true;
                        cursor.seq = e->seq;
                        i++;
                        break;
                }
                if (e->kind == EFFECT_PLAN_UNIT)
                        plan.units[plan.n_units++] = pb__plan_entry__unpack((ProtobufCAllocator *)&alloc, e->len, e->data);
                else if (e != first)
                        break;
                cursor.seq = e->seq;
        }
        plan.cursor = &cursor;
        msg.plan = &plan;
        push_out(v, (struct message){ .conn = first->session }, &msg);
        arena_fini(&memory);
        return i;
}

static size_t put_effect(struct server *v, const struct core_batch *b, size_t i)
{
        const struct effect *e = &b->effects[i];
        struct arena memory = ARENA_INIT;
        struct arena_allocator alloc = arena_allocator(&memory);
        Pb__ServerMessage msg = PB__SERVER_MESSAGE__INIT;
        Pb__ListUnits list = PB__LIST_UNITS__INIT;
        struct message m = { .conn = e->session };
        switch (e->kind) {
        case EFFECT_PLAN_BEGIN:
        case EFFECT_PLAN_UNIT:
        case EFFECT_PLAN_END:
                return put_plan(v, b, i);
        case EFFECT_BEAT:
                m.beat = true;
                m.ack = *e;
                push_out(v, m, NULL);
                break;
        case EFFECT_CLOSE:
                m.close = true;
                push_out(v, m, NULL);
                break;
        case EFFECT_WELCOME:
                msg.welcome = pb__welcome__unpack((ProtobufCAllocator *)&alloc, e->len, e->data);
                push_out(v, m, &msg);
                break;
        case EFFECT_DESCRIBE:
                msg.describe = pb__describe_units__unpack((ProtobufCAllocator *)&alloc, e->len, e->data);
                push_out(v, m, &msg);
                break;
        case EFFECT_LIST:
                msg.list = &list;
                push_out(v, m, &msg);
                break;
        case EFFECT_WEBHOOK:
                break;
        }
        arena_fini(&memory);
        return i + 1;
}

static void released(struct leaders *s, uint32_t r, struct core_batch *b)
{
        struct server *v = &s->servers[r];
        for (size_t i = 0; i < b->n_effects;)
                i = put_effect(v, b, i);
        core_batch_free(b);
        if (!v->sending && v->out_done < v->out.len) {
                v->sending = true;
                later(s, r, between(s, 0, 2), AT_RELEASE);
        }
}

/* The batch at the store went through, or there is none; the next one. */
static void commit_turn(struct leaders *s, uint32_t r)
{
        struct server *v = &s->servers[r];
        if (!v->core)
                return;
        if (v->op) { /* no answer yet: the same again */
                ask(s, r, ASK_COMMIT);
                later(s, r, 400, AT_COMMIT);
                return;
        }
        if (v->committing) {
                s->result->commits++;
                released(s, r, v->committing);
                v->committing = NULL;
        }
        struct core_batch *b;
        while ((b = core_cut(v->core)))
                *array_push(&v->queue) = b;
        size_t done = 0;
        while (done < v->queue.len && !v->committing) {
                b = v->queue.at[done++];
                if (b->commit.n_events)
                        v->committing = b;
                else
                        released(s, r, b);
        }
        if (done)
                memmove(v->queue.at, v->queue.at + done, (v->queue.len - done) * sizeof(*v->queue.at));
        v->queue.len -= done;
        if (!v->committing)
                return;
        v->op = batch_copy(&v->committing->commit);
        later(s, r, between(s, 0, 2), AT_COMMIT);
}

/* The lease of its key holds, and a proof that the key is its own is younger than a term: whoever leads by now began less than a term ago. */
static bool surely_leads(struct leaders *s, uint32_t r)
{
        const struct server *v = &s->servers[r];
        bool proved = steady(s, r) < v->proved_ms + TTL_MS || MUTANT(lead_not_proved) || MUTANT(lead_by_lease_alone);
        return steady(s, r) < v->leads_until && proved;
}

/* Does it still lead? Then the answer goes on the wire: in a step of its own, before which the process may stand still for an hour. */
static void release_turn(struct leaders *s, uint32_t r)
{
        struct server *v = &s->servers[r];
        struct message *m = &v->out.at[v->out_done];
        if (m->beat && !surely_leads(s, r) && !MUTANT(renewed_without_leadership)) {
                m->ack.lease_ms = 0;
                s->result->not_renewed++;
        }
        later(s, r, between(s, 0, 1), AT_SEND);
}

static void put_on_wire(struct leaders *s, uint64_t conn, void *data, size_t len)
{
        struct stream_end *c = &s->conns.at[conn];
        struct node_machine *m = &s->machines[c->agent];
        int64_t at = s->now + (chance(s, 10000) ? between(s, 200, 5000) : between(s, 1, 20));
        if (at <= m->cut_until[c->server])
                at = m->cut_until[c->server] + 1; /* what is sent into a cut wire arrives late */
        if (m->conn == conn)
                at = m->to_agent = at > m->to_agent ? at : m->to_agent + 1;
        leaders_at(s, at, (struct what){ .kind = AT_TO_AGENT, .who = c->agent, .conn = conn, .data = data, .len = len });
}

static void send_turn(struct leaders *s, uint32_t r)
{
        struct server *v = &s->servers[r];
        struct message m = v->out.at[v->out_done++];
        if (m.beat) {
                Pb__ServerMessage msg = PB__SERVER_MESSAGE__INIT;
                Pb__HeartbeatAck ack = PB__HEARTBEAT_ACK__INIT;
                ack.next_ms = m.ack.value;
                ack.clock_ms = m.ack.clock_ms;
                ack.lease_ms = m.ack.lease_ms;
                ack.stop_ms = m.ack.stop_ms;
                msg.heartbeat = &ack;
                m.len = pb__server_message__get_packed_size(&msg);
                m.data = mem_must(m.len + 1);
                pb__server_message__pack(&msg, m.data);
        }
        struct stream_end *c = &s->conns.at[m.conn];
        if (m.close) {
                c->closed = true;
                leaders_at(s, s->now + between(s, 1, 50), (struct what){ .kind = AT_HANGUP, .who = c->agent, .conn = m.conn });
        } else if (!m.conn || c->closed || c->life != v->life)
                mem_free(m.data);
        else
                put_on_wire(s, m.conn, m.data, m.len);
        if (v->out_done < v->out.len)
                later(s, r, between(s, 0, 1), AT_RELEASE);
        else {
                array_clear(&v->out);
                v->out_done = 0;
                v->sending = false;
        }
}

/* ---- inputs ---- */

static void arm_tick(struct leaders *s, uint32_t r, int64_t now)
{
        struct server *v = &s->servers[r];
        int64_t next = core_next_ms(v->core);
        if (next == INT64_MAX)
                return;
        v->tick++;
        leaders_at(s, s->now + (next > now ? next - now : 1),
                   (struct what){ .kind = AT_TICK, .who = r, .life = v->life, .number = v->tick });
}

void leader_input(struct leaders *s, uint32_t r, struct input *in)
{
        struct server *v = &s->servers[r];
        struct err err = { 0 };
        in->now_ms = WALL_MS + s->now + v->clock.wall_ahead + v->lifted_ms;
        in->steady_ms = steady(s, r);
        in->random[0] = rng_next(&s->rng);
        in->random[1] = rng_next(&s->rng);
        in->features = FEATURES_ALL;
        core_step(v->core, in);
        s->result->steps++;
        if (core_check_changed(v->core, &err) < 0)
                leaders_fail(s, err.msg, err.detail);
        if (!v->op && !v->committing)
                later(s, r, between(s, 0, 2), AT_COMMIT);
        arm_tick(s, r, in->now_ms);
}

static void on_message(struct leaders *s, uint32_t r, const struct what *w)
{
        struct server *v = &s->servers[r];
        if (!v->core || s->conns.at[w->conn].closed)
                return;
        struct arena memory = ARENA_INIT;
        struct arena_allocator alloc = arena_allocator(&memory);
        Pb__AgentMessage *m = pb__agent_message__unpack((ProtobufCAllocator *)&alloc, w->len, w->data);
        struct input in = { .session = w->conn };
        leaders_forge(s, s->conns.at[w->conn].agent, m, &memory);
        if (m->hello)
                in.kind = INPUT_HELLO, in.msg = &m->hello->base;
        else if (m->heartbeat)
                in.kind = INPUT_HEARTBEAT, in.msg = &m->heartbeat->base;
        else if (m->units)
                in.kind = INPUT_UNITS, in.msg = &m->units->base;
        else if (m->definitions)
                in.kind = INPUT_DEFINITIONS, in.msg = &m->definitions->base;
        if (in.msg)
                leader_input(s, r, &in);
        arena_fini(&memory);
}

void leader_happens(struct leaders *s, struct what *w)
{
        struct server *v = &s->servers[w->who];
        if (w->life != v->life || v->down)
                return;
        switch (w->kind) {
        case AT_KEEP:
                keep(s, w->who);
                break;
        case AT_ANSWER:
                answered(s, w->who, w->data);
                break;
        case AT_HEARD:
                if (v->rev && w->conn >= v->rev && w->number != v->rev)
                        leader_stop(s, w->who);
                break;
        case AT_INPUT:
                on_message(s, w->who, w);
                break;
        case AT_TICK:
                if (v->core && w->number == v->tick) {
                        struct input in = { .kind = INPUT_TICK };
                        leader_input(s, w->who, &in);
                }
                break;
        case AT_COMMIT:
                commit_turn(s, w->who);
                break;
        case AT_RELEASE:
                release_turn(s, w->who);
                break;
        case AT_SEND:
                send_turn(s, w->who);
                break;
        case AT_CLOSED:
                if (v->core && !s->conns.at[w->conn].closed) {
                        struct input in = { .kind = INPUT_GONE, .session = w->conn };
                        s->conns.at[w->conn].closed = true;
                        leader_input(s, w->who, &in);
                }
                break;
        default:
                break;
        }
}
