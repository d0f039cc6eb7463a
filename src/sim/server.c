/* sim/server.c: the server's half of the ring: one commit under way, the next accumulates; replies and effects leave after their commit. */
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

/* ---- its clock ----------------------------------------------------------------------------------------------------------------------------- */

/* By the rules of base/clock.h: a wall clock that jumps is followed slowly. */
static int64_t clock_of(struct sim *s)
{
        return s->own_clock ? clock_follow(&s->clock, s->now + s->wall_off_ms, s->now) : s->now;
}

/* By those of the ring: time in which it could not listen does not pass, and is caught up by a quarter faster. */
int64_t sim_server_now(struct sim *s)
{
        int64_t t = clock_of(s), passed = t - s->clock_seen;
        s->clock_seen = t;
        s->lag_x4 = s->lag_x4 > passed ? s->lag_x4 - passed : 0;
        return t - (s->lag_x4 + 3) / 4;
}

void sim_server_clock_jump(struct sim *s, int64_t ms)
{
        if (!s->own_clock) {
                clock_init_at(&s->clock, s->now, s->now);
                s->own_clock = true;
        }
        clock_of(s);
        s->wall_off_ms += ms;
}

static void clock_start(struct sim *s, int64_t newest_ms)
{
        int64_t wall = s->now + s->wall_off_ms;
        clock_init_at(&s->clock, wall > newest_ms ? wall : newest_ms, s->now);
        s->clock_seen = clock_of(s);
        s->lag_x4 = 0;
        s->frozen_since = 0;
}

static void arm_tick(struct sim *s)
{
        int64_t next = core_next_ms(s->core), now = sim_server_now(s);
        if (next != INT64_MAX && !s->frozen_since)
                sim_tick_at(s, &s->tick, s->now + (next > now ? next - now : 0), (struct sim_event){ .kind = EV_SERVER_TICK });
}

void sim_server_tick(struct sim *s)
{
        if (!s->core || s->frozen_since)
                return;
        struct input in = { .kind = INPUT_TICK };
        sim_server_input(s, &in);
}

/* While the store is away nothing is stepped (server/ring.c, R2). */
bool sim_server_hold(struct sim *s, struct sim_event *ev)
{
        if (!s->core || !s->frozen_since)
                return false;
        *array_push(&s->held) = *ev;
        ev->data = NULL;
        return true;
}

static void thaw(struct sim *s)
{
        int64_t t = clock_of(s), lost = t - s->frozen_since;
        s->frozen_since = 0;
        if (lost >= DEAF_MS) {
                s->clock_seen = t;
                s->lag_x4 += lost * 4;
        }
        for (size_t i = 0; i < s->held.len && !sim_failed(s); i++) {
                struct sim_event ev = s->held.at[i];
                s->held.at[i].data = NULL;
                sim_dispatch(s, &ev);
                sim_event_free(&ev);
        }
        for (size_t i = 0; i < s->held.len; i++)
                sim_event_free(&s->held.at[i]);
        array_clear(&s->held);
}

/* ---- start and crash ----------------------------------------------------------------------------------------------------------------------- */

static int load_one(void *ctx, const struct store_record *r, struct err *err)
{
        return core_load_record(ctx, r->key, r->data, r->len, err);
}

static int fold_one(void *ctx, const struct store_event *e, struct err *err)
{
        return core_fold(ctx, e->data, e->len, err);
}

/* Replaying everything costs as much as everything did: not at every start. */
static bool replay_is_due(struct sim *s)
{
        bool now =
            sim_chance(s, CHANCE_SERVER, s->durable < 1000 ? 250000 : 50000); /* drawn in any case: looking more often is the same run */
        return now || s->opt.check_always;
}

void sim_server_start(struct sim *s)
{
        struct err err;
        if (s->core)
                return;
        if (s->away) {
                sim_at(s, s->now + 1000, (struct sim_event){ .kind = EV_SERVER_START });
                return;
        }
        if (memory_open(s->disk, &s->store, &err) < 0) {
                sim_fail(s, "the store does not open", err_line(&err));
                return;
        }
        s->core = core_create(&s->core_opt);
        s->server_life++;
        sim_watch_catch_up(s); /* events of the life before */
        uint64_t head;
        if (store_load(s->store, load_one, s->core, &head, &err) < 0)
                sim_fail(s, "a record does not load", err_line(&err));
        s->durable = head;
        clock_start(s, core_newest_ms(s->core));
        s->server_started = sim_server_now(s);
        struct input in = { .kind = INPUT_START, .head = head };
        sim_server_input(s, &in);
        if (replay_is_due(s))
                sim_server_check_replay(s);
        sim_client_check_kept(s);
}

/* Loses everything in memory. The commit under way may have reached the disk, or not. */
void sim_server_crash(struct sim *s)
{
        if (s->committing && s->committing->commit.n_events && sim_chance(s, CHANCE_SERVER, 500000)) {
                struct err err;
                store_commit(s->store, &s->committing->commit, &err);
        }
        core_batch_free(s->committing);
        s->committing = NULL;
        for (size_t i = 0; i < s->queue.len; i++)
                core_batch_free(s->queue.at[i]);
        array_clear(&s->queue);
        for (size_t i = 0; i < s->held.len; i++)
                sim_event_free(&s->held.at[i]);
        array_clear(&s->held);
        core_destroy(s->core);
        s->core = NULL;
        store_close(s->store);
        s->store = NULL;
        s->server_life++;
        s->frozen_since = 0;
        s->crash_at_commit = false;
        s->result.restarts++;
        for (uint32_t n = 0; n < s->machines.len; n++)
                if (s->machines.at[n].conn)
                        sim_at(s, s->now + sim_link_delay(s),
                               (struct sim_event){ .kind = EV_AGENT_GONE, .node = n, .conn = s->machines.at[n].conn });
        sim_client_abandoned(s);
}

/* Records that can be derived from others (core_options.index_records) are not compared. */
static int add_record(void *ctx, const struct store_record *r, struct err *err)
{
        bool view = str_starts(r->key, "/assignments/") || str_starts(r->key, "/retries/") || str_starts(r->key, "/reconciliation/") ||
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
        if (!s->core || s->committing || s->queue.len || s->away || sim_failed(s))
                return;
        struct err err = { 0 };
        struct core *folded = core_create(&s->core_opt), *loaded = core_create(&s->core_opt);
        struct store_reader *reader = NULL;
        uint64_t head = 0;
        bool ok = store_reader_open(s->store, &reader, &err) == 0 && store_reader_events(reader, 0, false, fold_one, folded, &err) >= 0 &&
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
        if (ok && (core_records(folded, add_record, &a, &err) < 0 || store_load(s->store, add_record, &b, &head, &err) < 0 ||
                   a.len != b.len || memcmp(str_c(&a), str_c(&b), a.len) != 0))
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

/* ---- the ring ------------------------------------------------------------------------------------------------------------------------------ */

static void release(struct sim *s, const struct core_batch *b);

static void commit_next(struct sim *s)
{
        if (s->committing || s->queue.len == 0)
                return;
        s->committing = s->queue.at[0];
        memmove(s->queue.at, s->queue.at + 1, (s->queue.len - 1) * sizeof(*s->queue.at));
        s->queue.len--;
        bool nothing = s->committing->commit.n_events == 0;
        if (MUTANT(effects_before_commit))
                release(s, s->committing);
        if (nothing) { /* only to be released in its turn, and this is it */
                struct core_batch *b = s->committing;
                s->committing = NULL;
                if (!MUTANT(effects_before_commit))
                        release(s, b);
                core_batch_free(b);
                return;
        }
        int64_t delay = s->now < s->slow_until        ? sim_between(s, CHANCE_SERVER, 20, 2000)
                        : sim_hit(s, SIM_DELAY, 1000) ? sim_between(s, CHANCE_SERVER, 100, 3000)
                                                      : sim_between(s, CHANCE_SERVER, 0, 3);
        sim_at(s, s->now + delay, (struct sim_event){ .kind = EV_COMMITTED, .value = s->server_life });
        if (s->crash_at_commit && !s->calm)
                sim_at(s, s->now, (struct sim_event){ .kind = EV_SERVER_CRASH, .value = s->server_life });
}

static void cut_all(struct sim *s)
{
        struct core_batch *b;
        do {
                while ((b = core_cut(s->core)))
                        *array_push(&s->queue) = b;
                while (!s->committing && s->queue.len && !sim_failed(s))
                        commit_next(s);
        } while (!s->committing && core_pending_ops(s->core) && !sim_failed(s));
}

/* What changed is looked at after every step; everything, now and then. */
static void check_state(struct sim *s, bool changed)
{
        struct err err = { 0 };
        bool all = s->opt.check_always || (changed && ++s->unchecked >= CHECK_ALL_EVERY);
        if (all)
                s->unchecked = 0;
        if ((all && core_check(s->core, &err) < 0) || (!all && changed && core_check_changed(s->core, &err) < 0))
                sim_fail(s, err.msg, err.detail);
}

void sim_server_input(struct sim *s, struct input *in)
{
        in->now_ms = sim_server_now(s);
        in->random[0] = rng_next(&s->chance[CHANCE_CORE]);
        in->random[1] = rng_next(&s->chance[CHANCE_CORE]);
        in->features = FEATURES_ALL;
        uint64_t head = core_head(s->core);
        core_step(s->core, in);
        s->result.steps++;
        check_state(s, core_head(s->core) != head);
        if (!s->committing) /* what arrives during a commit is decided, and committed with the next */
                cut_all(s);
        arm_tick(s);
}

/* ---- what leaves --------------------------------------------------------------------------------------------------------------------------- */

static struct letter *letter_new(void)
{
        struct letter *l = mem_must(sizeof(*l));
        pb__server_message__init(&l->msg);
        l->refs = 1;
        return l;
}

static void send_letter(struct sim *s, uint64_t session, struct letter *l)
{
        sim_link_to_agent(s, session, (struct sim_event){ .kind = EV_TO_AGENT, .data = l });
}

/* Consecutive plan effects of one stream become one message. */
static size_t send_plan(struct sim *s, const struct core_batch *b, size_t i)
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
                        plan->units[plan->n_units++] = pb__plan_entry__unpack((ProtobufCAllocator *)&alloc, e->len, e->data);
                else if (e != first)
                        break;
                cursor->seq = e->seq;
        }
        if (cursor->seq > s->durable)
                sim_fail(s, "A3: an agent is told what is not durable",
                         fmt("sequence %llu, the store has %llu", (unsigned long long)cursor->seq, (unsigned long long)s->durable));
        plan->cursor = cursor;
        l->msg.plan = plan;
        send_letter(s, first->session, l);
        return i;
}

static size_t send_effect(struct sim *s, const struct core_batch *b, size_t i)
{
        const struct effect *e = &b->effects[i];
        switch (e->kind) {
        case EFFECT_WELCOME: {
                struct letter *l = letter_new();
                struct arena_allocator alloc = arena_allocator(&l->memory);
                l->msg.welcome = pb__welcome__unpack((ProtobufCAllocator *)&alloc, e->len, e->data);
                send_letter(s, e->session, l);
                return i + 1;
        }
        case EFFECT_BEAT:
                sim_link_to_agent(s, e->session,
                                  (struct sim_event){ .kind = EV_ACK,
                                                      .value = (uint64_t)e->value,
                                                      .clock_ms = e->clock_ms,
                                                      .lease_ms = e->lease_ms,
                                                      .stop_ms = e->stop_ms });
                return i + 1;
        case EFFECT_LIST:
                sim_link_to_agent(s, e->session, (struct sim_event){ .kind = EV_LIST });
                return i + 1;
        case EFFECT_DESCRIBE: {
                struct letter *l = letter_new();
                struct arena_allocator alloc = arena_allocator(&l->memory);
                l->msg.describe = pb__describe_units__unpack((ProtobufCAllocator *)&alloc, e->len, e->data);
                send_letter(s, e->session, l);
                return i + 1;
        }
        case EFFECT_CLOSE:
                sim_link_close(s, e->session);
                return i + 1;
        default:
                return send_plan(s, b, i);
        }
}

static void release(struct sim *s, const struct core_batch *b)
{
        for (size_t i = 0; i < b->commit.n_events; i++)
                sim_remember(s, b->commit.events[i].data, b->commit.events[i].len);
        for (size_t i = 0; i < b->n_replies; i++)
                sim_client_reply(s, &b->replies[i]);
        for (size_t i = 0; i < b->n_effects;)
                i = send_effect(s, b, i);
}

void sim_server_committed(struct sim *s)
{
        struct core_batch *b = s->committing;
        struct err err = { 0 };
        if (sim_hit(s, SIM_DISK, 2000))
                memory_fail_commit(s->disk, 1, sim_chance(s, CHANCE_SERVER, 500000) ? MEMORY_FAULT_AFTER : MEMORY_FAULT_BEFORE);
        int r = store_commit(s->store, &b->commit, &err);
        if (r == -ERR_UNAVAILABLE) { /* outcome unknown: the same again */
                if (!s->frozen_since)
                        s->frozen_since = clock_of(s);
                sim_at(s, s->now + (s->away ? 500 : 100), (struct sim_event){ .kind = EV_COMMITTED, .value = s->server_life });
                return;
        }
        if (r < 0) {
                sim_fail(s, "A3: a commit was refused", err_line(&err));
                return;
        }
        s->committing = NULL;
        s->durable = b->commit.new_head;
        s->quiet_since = s->now;
        s->result.commits++;
        if (!MUTANT(effects_before_commit))
                release(s, b);
        core_batch_free(b);
        if (s->frozen_since)
                thaw(s);
        while (!s->committing && s->queue.len && !sim_failed(s))
                commit_next(s);
        if (!s->committing)
                cut_all(s);
        arm_tick(s);
}

/* ---- streams ------------------------------------------------------------------------------------------------------------------------------- */

void sim_server_message(struct sim *s, uint64_t conn, const void *data, size_t len)
{
        const struct conn *c = &s->conns.at[conn];
        bool old = conn < s->machines.at[c->machine].conn;
        if (!s->core || c->server_gone || c->life != s->server_life || (old && !(s->opt.faults & SIM_REORDER)))
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
                sim_server_input(s, &in);
        arena_reset(&s->inbox);
}

void sim_server_gone(struct sim *s, uint64_t conn)
{
        struct conn *c = &s->conns.at[conn];
        if (!s->core || c->server_gone || c->life != s->server_life)
                return;
        c->server_gone = true;
        struct input in = { .kind = INPUT_GONE, .session = conn };
        sim_server_input(s, &in);
}
