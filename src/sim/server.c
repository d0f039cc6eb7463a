/* sim/server.c: the server's half of the ring: one commit under way, the next accumulates; replies
 * and effects leave after their commit. */
#include "base/mem.h"
#include "base/mutant.h"
#include "model/feature.h"
#include "model/pb.h"
#include "sim/world.h"
#include <stdio.h>
#include <string.h>

#define DEAF_MS 1000 /* as in the ring */
#define CHECK_ALL_EVERY 64

void sim_remember(struct sim *s, const void *data, size_t len)
{
        s->result.hash = hash64_mix(s->result.hash, hash64(data, len));
        s->result.events++;
        if (s->opt.verbose)
                sim_print_event(stdout, data, len);
        struct str *l = &s->last[s->last_at++ % ARRAY_LEN(s->last)];
        str_clear(l);
        str_add(l, data, len);
        sim_watch_event(s, data, len);
}

void sim_sent_unref(struct sent *x)
{
        if (!x || --x->refs)
                return;
        core_batch_free(x->batch);
        mem_free(x);
}

static void later(struct sim *s, const struct server *v, int64_t in_ms, enum event_kind kind)
{
        sim_at(s, s->now + in_ms,
               (struct sim_event){
                   .kind = kind, .server = v->number, .life = v->life, .value = v->commits });
}

/* ---- its clock ---- */

/* By the rules of base/clock.h: a wall clock that jumps is followed slowly. */
static int64_t clock_of(struct sim *s, struct server *v)
{
        return v->own_clock ? clock_follow(&v->clock, s->now + v->wall_off_ms, s->now) : s->now;
}

/* By those of the ring: time in which it could not listen does not pass, and is caught up by a
 * quarter faster. */
int64_t sim_server_now(struct sim *s, struct server *v)
{
        int64_t t = clock_of(s, v), passed = t - v->clock_seen;
        v->clock_seen = t;
        v->lag_x4 = v->lag_x4 > passed ? v->lag_x4 - passed : 0;
        return t - (v->lag_x4 + 3) / 4;
}

void sim_server_clock_jump(struct sim *s, struct server *v, int64_t ms)
{
        if (!v->own_clock) {
                clock_init_at(&v->clock, s->now, s->now);
                v->own_clock = true;
        }
        clock_of(s, v);
        v->wall_off_ms += ms;
}

static void clock_start(struct sim *s, struct server *v, int64_t newest_ms)
{
        int64_t wall = s->now + v->wall_off_ms;
        v->own_clock = v->own_clock || newest_ms > wall; /* another one's may be ahead */
        clock_init_at(&v->clock, wall > newest_ms ? wall : newest_ms, s->now);
        v->clock_seen = clock_of(s, v);
        v->lag_x4 = 0;
        v->frozen_since = 0;
}

static void arm_tick(struct sim *s, struct server *v)
{
        int64_t next = core_next_ms(v->core), now = sim_server_now(s, v);
        if (next != INT64_MAX && !v->frozen_since)
                sim_tick_at(s, &v->tick, s->now + (next > now ? next - now : 0),
                            (struct sim_event){ .kind = EV_SERVER_TICK, .server = v->number });
}

/* While the store is away nothing is stepped (server/ring.c, R2). And one of several servers may
 * stand still before any step: now, or already. */
static bool waits(struct sim *s, struct server *v, struct sim_event *ev)
{
        bool input =
                 ev->kind == EV_TO_SERVER || ev->kind == EV_SERVER_GONE || ev->kind == EV_REQUEST,
             of_lease = ev->kind >= EV_KEEP;
        if (s->opt.servers > 1 && sim_hit(s, SIM_PAUSE, 150)) {
                v->paused_until =
                    s->now +
                    sim_between(s, CHANCE_SERVER, 10,
                                3 * (LEAD_MS + s->core_opt.lease_ms + s->core_opt.lease_grace_ms));
                sim_at(s, v->paused_until,
                       (struct sim_event){ .kind = EV_RESUME, .server = v->number });
                sim_saw(s, SAW_PAUSE);
        }
        bool frozen = v->core && v->frozen_since && input;
        bool stalled =
            s->opt.servers > 1 && !of_lease && (s->now < v->stalled_until || v->held.len);
        if (!frozen && !stalled && s->now >= v->paused_until)
                return false;
        *array_push(&v->held) = *ev;
        ev->data = NULL;
        return true;
}

void sim_server_resume(struct sim *s, struct server *v)
{
        struct sim_event *held = v->held.at;
        size_t n = v->held.len;
        v->held.at = NULL;
        v->held.len = v->held.cap = 0;
        for (size_t i = 0; i < n; i++) {
                if (!sim_failed(s))
                        sim_dispatch(s, &held[i]);
                sim_event_free(&held[i]);
        }
        mem_free(held);
}

static void thaw(struct sim *s, struct server *v)
{
        int64_t t = clock_of(s, v), lost = t - v->frozen_since;
        v->frozen_since = 0;
        if (lost >= DEAF_MS) {
                v->clock_seen = t;
                v->lag_x4 += lost * 4;
        }
        sim_server_resume(s, v);
}

/* ---- start and crash ---- */

struct server *sim_leader(struct sim *s)
{
        for (uint32_t i = 0; i < s->opt.servers; i++)
                if (s->servers[i].core && s->servers[i].rev == s->leader)
                        return &s->servers[i];
        return NULL;
}

static int load_one(void *ctx, const struct store_record *r, struct err *err)
{
        return core_load_record(ctx, r->key, r->data, r->len, err);
}

static int fold_one(void *ctx, const struct store_event *e, struct err *err)
{
        return core_fold(ctx, e->data, e->len, err);
}

/* Seldom in a long history: it is read from the beginning. */
static bool replay_is_due(struct sim *s, const struct server *v)
{
        bool now =
            /* drawn in any case: looking more often is the same run */
            sim_chance(s, CHANCE_SERVER, v->durable < 1000 ? 250000 : 50000);
        return now || s->opt.check_always;
}

struct core *sim_server_load(struct sim *s, uint64_t *ret_head)
{
        struct core *core = core_create(&s->core_opt);
        struct err err;
        if (store_load(s->store, load_one, core, ret_head, &err) < 0)
                sim_fail(s, "a record does not load", err_line(&err));
        return core;
}

void sim_server_begin(struct sim *s, struct server *v, struct core *core, uint64_t head)
{
        v->core = core;
        v->durable = head;
        if (s->led_by && s->led_by != v->number + 1)
                sim_saw(s, SAW_LEADER_CHANGE);
        s->led_by = v->number + 1;
        clock_start(s, v, core_newest_ms(core));
        v->started = sim_server_now(s, v);
        struct input in = { .kind = INPUT_START, .head = head };
        sim_server_input(s, v, &in);
        if (replay_is_due(s, v))
                sim_server_check_replay(s);
        sim_client_check_kept(s);
}

void sim_server_start(struct sim *s, struct server *v)
{
        if (v->core)
                return;
        v->down = false;
        if (s->opt.servers > 1) {
                v->life++;
                later(s, v, sim_between(s, CHANCE_SERVER, 0, 300), EV_KEEP);
        } else if (s->away)
                later(s, v, 1000, EV_SERVER_START);
        else {
                uint64_t head;
                struct core *core = sim_server_load(s, &head);
                v->life++;
                sim_server_begin(s, v, core, head);
        }
}

/* What it writes is judged as soon as it is in the store, whoever knows that. */
int sim_server_write(struct sim *s, struct server *v, const struct store_batch *b, struct err *err)
{
        int r = store_commit(s->store, b, err);
        s->server_started = v->started;
        if (!s->away)
                sim_watch_catch_up(s);
        return r;
}

/* Loses the core and all that it was about to say. */
void sim_server_stop(struct sim *s, struct server *v)
{
        sim_sent_unref(v->committing);
        v->committing = NULL;
        for (size_t i = 0; i < v->queue.len; i++)
                core_batch_free(v->queue.at[i]);
        array_clear(&v->queue);
        for (size_t i = v->out_done; i < v->out.len; i++)
                sim_event_free(&v->out.at[i]);
        array_clear(&v->out);
        v->out_done = 0;
        for (size_t i = 0; i < v->unproved.len; i++)
                sim_sent_unref(v->unproved.at[i]);
        array_clear(&v->unproved);
        if (v->core) {
                core_destroy(v->core);
                s->result.restarts++;
        }
        v->core = NULL;
        v->life++;
        v->frozen_since = 0;
        v->rev = 0;
        v->leads_until = v->asked_ms = 0;
        v->proved_ms = INT64_MIN / 2;
        for (uint32_t n = 0; n < s->machines.len; n++)
                if (s->machines.at[n].conn &&
                    s->conns.at[s->machines.at[n].conn].server == v->number)
                        sim_at(s, s->now + sim_link_delay(s),
                               (struct sim_event){ .kind = EV_AGENT_GONE,
                                                   .node = n,
                                                   .conn = s->machines.at[n].conn });
        sim_client_abandoned(s, v);
        if (s->opt.servers > 1)
                later(s, v, sim_between(s, CHANCE_SERVER, 50, 500), EV_KEEP);
}

/* Loses everything in memory. The commit under way may have reached the disk, or not; to a shared
 * store it is on its way. */
void sim_server_crash(struct sim *s, struct server *v)
{
        struct err err;
        if (s->opt.servers == 1 && v->committing && sim_chance(s, CHANCE_SERVER, 500000))
                sim_server_write(s, v, &v->committing->batch->commit, &err);
        v->down = s->opt.servers > 1;
        v->paused_until = v->stalled_until = 0;
        v->crash_at_commit = false;
        for (size_t i = 0; i < v->held.len; i++)
                sim_event_free(&v->held.at[i]);
        array_clear(&v->held);
        sim_server_stop(s, v);
}

/* Records that can be derived from others (core_options.index_records) are not compared. */
static int add_record(void *ctx, const struct store_record *r, struct err *err)
{
        bool view = str_starts(r->key, "/assignments/") || str_starts(r->key, "/retries/") ||
                    str_starts(r->key, "/reconciliation/") ||
                    (str_starts(r->key, "/nodes/") && strchr(r->key + strlen("/nodes/"), '/'));
        if (!view) {
                str_adds(ctx, r->key);
                str_add(ctx, r->data, r->len);
        }
        (void)err;
        return 0;
}

/* The fold of all events, a fresh load of the records, and the records themselves say the same. */
void sim_server_check_replay(struct sim *s)
{
        if (s->away || sim_failed(s))
                return;
        struct err err = { 0 };
        struct core *folded = core_create(&s->core_opt), *loaded = core_create(&s->core_opt);
        struct store_reader *reader = NULL;
        uint64_t head = 0;
        bool ok = store_reader_open(s->store, &reader, &err) == 0 &&
                  store_reader_events(reader, 0, false, fold_one, folded, &err) >= 0 &&
                  store_load(s->store, load_one, loaded, &head, &err) == 0;
        if (!ok)
                sim_fail(s, "A2: the stored events do not fold", err_line(&err));
        struct str a = STR_INIT, b = STR_INIT;
        core_loaded(loaded, head);
        core_dump(folded, &a);
        core_dump(loaded, &b);
        const char *fa = str_c(&a), *fb = str_c(&b);
        if (ok && strcmp(fa, fb) != 0) {
                size_t i = 0, line = 0;
                for (; fa[i] && fa[i] == fb[i]; i++)
                        if (fa[i] == '\n')
                                line = i + 1;
                sim_fail(s, "A3: the records are not the fold of the events",
                         fmt("folded: %.300s | records: %.300s", fa + line, fb + line));
        }
        str_clear(&a);
        str_clear(&b);
        if (ok && (core_records(folded, add_record, &a, &err) < 0 ||
                   store_load(s->store, add_record, &b, &head, &err) < 0 || a.len != b.len ||
                   memcmp(str_c(&a), str_c(&b), a.len) != 0))
                sim_fail(s, "A3: a record was not written when the state behind it changed", "");
        if (ok && core_check(folded, &err) < 0)
                sim_fail(s, err.msg, err.detail);
        str_fini(&a);
        str_fini(&b);
        if (reader)
                store_reader_close(reader);
        core_destroy(folded);
        core_destroy(loaded);
}

/* ---- the ring ---- */

static void release(struct sim *s, struct server *v, struct sent *x);

static void commit_next(struct sim *s, struct server *v)
{
        if (v->committing || v->queue.len == 0)
                return;
        struct sent *x = mem_must(sizeof(*x));
        *x = (struct sent){ .refs = 1, .batch = v->queue.at[0] };
        memmove(v->queue.at, v->queue.at + 1, (v->queue.len - 1) * sizeof(*v->queue.at));
        v->queue.len--;
        if (x->batch->commit.n_events == 0) { /* only to be released in its turn, and this is it */
                release(s, v, x);
                return;
        }
        if (MUTANT(effects_before_commit)) {
                x->refs++;
                release(s, v, x);
        }
        v->committing = x;
        v->commits++;
        int64_t delay = s->opt.servers > 1            ? sim_between(s, CHANCE_SERVER, 0, 2)
                        : s->now < s->slow_until      ? sim_between(s, CHANCE_SERVER, 20, 2000)
                        : sim_hit(s, SIM_DELAY, 1000) ? sim_between(s, CHANCE_SERVER, 100, 3000)
                                                      : sim_between(s, CHANCE_SERVER, 0, 3);
        later(s, v, delay, EV_COMMIT);
        if (v->crash_at_commit && !s->calm)
                later(s, v, 0, EV_SERVER_CRASH);
}

static void cut_all(struct sim *s, struct server *v)
{
        struct core_batch *b;
        do {
                while ((b = core_cut(v->core)))
                        *array_push(&v->queue) = b;
                while (!v->committing && v->queue.len && !sim_failed(s))
                        commit_next(s, v);
        } while (!v->committing && core_pending_ops(v->core) && !sim_failed(s));
}

/* What changed is looked at after every step; everything, now and then. */
static void check_state(struct sim *s, struct server *v, bool changed)
{
        struct err err = { 0 };
        bool all = s->opt.check_always || (changed && ++v->unchecked >= CHECK_ALL_EVERY);
        if (all)
                v->unchecked = 0;
        if ((all && core_check(v->core, &err) < 0) ||
            (!all && changed && core_check_changed(v->core, &err) < 0))
                sim_fail(s, err.msg, err.detail);
}

void sim_server_input(struct sim *s, struct server *v, struct input *in)
{
        in->now_ms = sim_server_now(s, v);
        in->steady_ms = sim_steady(&v->steady, s->now);
        in->random[0] = rng_next(&s->chance[CHANCE_CORE]);
        in->random[1] = rng_next(&s->chance[CHANCE_CORE]);
        in->features = FEATURES_ALL;
        uint64_t head = core_head(v->core);
        core_step(v->core, in);
        s->result.steps++;
        check_state(s, v, core_head(v->core) != head);
        /* what arrives during a commit is decided, and committed with the next */
        if (!v->committing)
                cut_all(s, v);
        arm_tick(s, v);
}

/* ---- what leaves ---- */

static struct letter *letter_new(void)
{
        struct letter *l = mem_must(sizeof(*l));
        pb__server_message__init(&l->msg);
        l->refs = 1;
        return l;
}

static void leave(struct sim *s, struct sim_event ev)
{
        if (ev.kind == EV_CLOSE)
                sim_link_close(s, ev.conn);
        else
                sim_link_to_agent(s, ev.conn, ev);
}

/* One of several servers sends in steps, between which it may stand still for an hour. */
static void put(struct sim *s, struct server *v, uint64_t session, struct sim_event ev)
{
        ev.conn = session;
        if (s->opt.servers == 1) {
                leave(s, ev);
                return;
        }
        *array_push(&v->out) = ev;
        if (v->out.len == v->out_done + 1)
                later(s, v, sim_between(s, CHANCE_SERVER, 0, 2), EV_RELEASE);
}

/* Does it still lead? */
static void release_next(struct sim *s, struct server *v)
{
        struct sim_event *ev = &v->out.at[v->out_done];
        if (ev->kind == EV_ACK && ev->lease_ms && !sim_surely_leads(s, v) &&
            !MUTANT(renewed_without_leadership)) {
                ev->lease_ms = 0;
                sim_saw(s, SAW_NOT_RENEWED);
        }
        later(s, v, sim_between(s, CHANCE_SERVER, 0, 1), EV_SEND);
}

static void send_next(struct sim *s, struct server *v)
{
        leave(s, v->out.at[v->out_done++]);
        if (v->out_done < v->out.len) {
                later(s, v, sim_between(s, CHANCE_SERVER, 0, 1), EV_RELEASE);
                return;
        }
        array_clear(&v->out);
        v->out_done = 0;
}

static void send_letter(struct sim *s, struct server *v, uint64_t session, struct letter *l)
{
        put(s, v, session, (struct sim_event){ .kind = EV_TO_AGENT, .data = l });
}

/* Consecutive plan effects of one stream become one message. */
static size_t send_plan(struct sim *s, struct server *v, const struct core_batch *b, size_t i)
{
        struct letter *l = letter_new();
        struct arena_allocator alloc = arena_allocator(&l->memory);
        const struct effect *first = &b->effects[i];
        Pb__Plan *plan = arena_new(&l->memory, Pb__Plan);
        Pb__Cursor *cursor = arena_new(&l->memory, Pb__Cursor);
        pb__plan__init(plan);
        pb__cursor__init(cursor);
        plan->complete = first->kind == EFFECT_PLAN_BEGIN;
        plan->units = arena_new_n(&l->memory, Pb__PlanEntry *, b->n_effects - i + 1);
        cursor->epoch = b->epoch;
        for (; i < b->n_effects && b->effects[i].session == first->session; i++) {
                const struct effect *e = &b->effects[i];
                if (e->kind == EFFECT_PLAN_END) {
                        plan->last = true;
                        cursor->seq = e->seq;
                        i++;
                        break;
                }
                if (e->kind == EFFECT_PLAN_UNIT)
                        plan->units[plan->n_units++] =
                            pb__plan_entry__unpack((ProtobufCAllocator *)&alloc, e->len, e->data);
                else if (e != first)
                        break;
                cursor->seq = e->seq;
        }
        if (cursor->seq > v->durable)
                sim_fail(s, "A3: an agent is told what is not durable",
                         fmt("sequence %llu, the store has %llu", (unsigned long long)cursor->seq,
                             (unsigned long long)v->durable));
        plan->cursor = cursor;
        l->msg.plan = plan;
        send_letter(s, v, first->session, l);
        return i;
}

static size_t send_effect(struct sim *s, struct server *v, const struct core_batch *b, size_t i)
{
        const struct effect *e = &b->effects[i];
        switch (e->kind) {
        case EFFECT_WELCOME: {
                struct letter *l = letter_new();
                struct arena_allocator alloc = arena_allocator(&l->memory);
                l->msg.welcome = pb__welcome__unpack((ProtobufCAllocator *)&alloc, e->len, e->data);
                send_letter(s, v, e->session, l);
                return i + 1;
        }
        case EFFECT_BEAT:
                put(s, v, e->session,
                    (struct sim_event){ .kind = EV_ACK,
                                        .value = (uint64_t)e->value,
                                        .clock_ms = e->clock_ms,
                                        .lease_ms = e->lease_ms,
                                        .stop_ms = e->stop_ms });
                return i + 1;
        case EFFECT_LIST:
                put(s, v, e->session, (struct sim_event){ .kind = EV_LIST });
                return i + 1;
        case EFFECT_DESCRIBE: {
                struct letter *l = letter_new();
                struct arena_allocator alloc = arena_allocator(&l->memory);
                l->msg.describe =
                    pb__describe_units__unpack((ProtobufCAllocator *)&alloc, e->len, e->data);
                send_letter(s, v, e->session, l);
                return i + 1;
        }
        case EFFECT_CLOSE:
                put(s, v, e->session, (struct sim_event){ .kind = EV_CLOSE });
                return i + 1;
        default:
                return send_plan(s, v, b, i);
        }
}

static void answer(struct sim *s, struct server *v, struct sent *x)
{
        for (size_t i = 0; i < x->batch->n_replies; i++)
                sim_client_reply(s, v, &x->batch->replies[i]);
}

/* A leader that was replaced does not know it at once. What came with a commit was compared; any
 * other answer waits for a proof that left after it was found (server/calls.c). */
static void release(struct sim *s, struct server *v, struct sent *x)
{
        const struct core_batch *b = x->batch;
        bool proved = s->opt.servers == 1 || b->commit.n_events || MUTANT(answer_not_proved);
        if (proved)
                answer(s, v, x);
        for (size_t i = 0; i < b->n_effects;)
                i = send_effect(s, v, b, i);
        if (proved || !b->n_replies) {
                sim_sent_unref(x);
                return;
        }
        x->since = sim_steady(&v->steady, s->now);
        *array_push(&v->unproved) = x;
        sim_ask_store(s, v, ASK_PROVE);
        sim_saw(s, SAW_UNPROVED);
}

void sim_server_proved(struct sim *s, struct server *v)
{
        size_t kept = 0;
        for (size_t i = 0; i < v->unproved.len; i++) {
                struct sent *x = v->unproved.at[i];
                if (v->proved_ms < x->since) {
                        v->unproved.at[kept++] = x;
                        continue;
                }
                answer(s, v, x);
                sim_sent_unref(x);
        }
        v->unproved.len = kept;
}

void sim_server_committed(struct sim *s, struct server *v)
{
        struct sent *x = v->committing;
        v->committing = NULL;
        v->durable = x->batch->commit.new_head;
        s->quiet_since = s->now;
        s->result.commits++;
        if (MUTANT(effects_before_commit))
                sim_sent_unref(x);
        else
                release(s, v, x);
        if (v->frozen_since)
                thaw(s, v);
        while (!v->committing && v->queue.len && !sim_failed(s))
                commit_next(s, v);
        if (!v->committing)
                cut_all(s, v);
        arm_tick(s, v);
}

static void commit(struct sim *s, struct server *v)
{
        struct err err = { 0 };
        if (s->opt.servers > 1) { /* and again, until there is an answer */
                sim_ask_store(s, v, ASK_COMMIT);
                later(s, v, 400, EV_COMMIT);
                return;
        }
        if (sim_hit(s, SIM_DISK, 2000))
                memory_fail_commit(s->disk, 1,
                                   sim_chance(s, CHANCE_SERVER, 500000) ? MEMORY_FAULT_AFTER
                                                                        : MEMORY_FAULT_BEFORE);
        int r = sim_server_write(s, v, &v->committing->batch->commit, &err);
        if (r == -ERR_UNAVAILABLE) { /* outcome unknown: the same again */
                if (!v->frozen_since)
                        v->frozen_since = clock_of(s, v);
                later(s, v, s->away ? 500 : 100, EV_COMMIT);
        } else if (r < 0)
                sim_fail(s, "A3: a commit was refused", err_line(&err));
        else
                sim_server_committed(s, v);
}

/* ---- streams ---- */

static void on_message(struct sim *s, struct server *v, uint64_t conn, const void *data, size_t len)
{
        const struct conn *c = &s->conns.at[conn];
        bool old = conn < s->machines.at[c->machine].conn;
        if (!v->core || c->server_gone || c->life != v->life ||
            (old && !(s->opt.faults & SIM_REORDER)))
                return;
        struct arena_allocator alloc = arena_allocator(&s->inbox);
        Pb__AgentMessage *m = pb__agent_message__unpack((ProtobufCAllocator *)&alloc, len, data);
        struct input in = { .session = conn };
        if (m->hello) {
                in.kind = INPUT_HELLO;
                in.msg = &m->hello->base;
        } else if (m->heartbeat) {
                in.kind = INPUT_HEARTBEAT;
                in.msg = &m->heartbeat->base;
        } else if (m->units) {
                in.kind = INPUT_UNITS;
                in.msg = &m->units->base;
        } else if (m->definitions) {
                in.kind = INPUT_DEFINITIONS;
                in.msg = &m->definitions->base;
        }
        if (in.msg)
                sim_server_input(s, v, &in);
        arena_reset(&s->inbox);
}

static void on_gone(struct sim *s, struct server *v, uint64_t conn)
{
        struct conn *c = &s->conns.at[conn];
        if (!v->core || c->server_gone || c->life != v->life)
                return;
        c->server_gone = true;
        struct input in = { .kind = INPUT_GONE, .session = conn };
        sim_server_input(s, v, &in);
}

/* Those who ask know at most who thinks that it leads. */
static uint32_t somebody_who_leads(struct sim *s)
{
        uint32_t first = (uint32_t)sim_between(s, CHANCE_NET, 0, s->opt.servers - 1);
        for (uint32_t i = 0; i < s->opt.servers; i++) {
                uint32_t k = (first + i) % s->opt.servers;
                /* nothing to commit, so nothing to be refused */
                bool avoided = s->now < s->blind_until && k == s->blind;
                if (s->servers[k].core && !avoided)
                        return k;
        }
        return first;
}

void sim_server_happens(struct sim *s, struct sim_event *ev)
{
        if (ev->server == SIM_ANY_SERVER)
                ev->server = somebody_who_leads(s);
        struct server *v = &s->servers[ev->server];
        struct input tick = { .kind = INPUT_TICK };
        if (ev->kind == EV_SERVER_TICK)
                v->tick = 0;
        bool of_a_life = ev->kind == EV_COMMIT || ev->kind >= EV_RELEASE;
        if ((of_a_life && (ev->life != v->life || v->down)) || waits(s, v, ev))
                return;
        switch (ev->kind) {
        case EV_SERVER_TICK:
                if (v->core && !v->frozen_since)
                        sim_server_input(s, v, &tick);
                break;
        case EV_COMMIT:
                if (v->committing && ev->value == v->commits)
                        commit(s, v);
                break;
        case EV_TO_SERVER:
                on_message(s, v, ev->conn, ev->data, ev->len);
                break;
        case EV_SERVER_GONE:
                on_gone(s, v, ev->conn);
                break;
        case EV_REQUEST:
                sim_client_request(s, v, (uint32_t)ev->value);
                break;
        case EV_RELEASE:
                release_next(s, v);
                break;
        case EV_SEND:
                send_next(s, v);
                break;
        case EV_KEEP:
                sim_keep_leading(s, v);
                break;
        case EV_ANSWER:
                sim_answered(s, v, ev->data);
                break;
        default:
                sim_heard_of_leader(s, v, ev->value, ev->conn);
        }
}
