/* server/ring.c: the thread that owns the core.
 *
 * One turn: hear what the store says, step the reads and then the other inputs that are there (and
 * the tick that is due), cut, hand over, wait.
 *
 * Group commit without waiting: while a commit is under way, inputs go on being stepped and their
 * results pile up in the core; the moment it is done, all of that is cut and committed as the next
 * batch. An idle server therefore commits a single apply at once, and a busy one commits hundreds
 * together. A store that takes several batches at a time gets full ones meanwhile (and what is full
 * depends on how much there is: set_batch_size()); what is not full waits, as it may yet grow,
 * until the one under way will soon be done (is_soon_done()).
 *
 * Invariants:
 *   (R1) At most limits.in_flight batches are under way at the store and NEXT_MAX wait in its
 *   queue. One that is not full follows at most one other. Batches leave in the order in
 *        which they were cut.
 *   (R2) While the store is away nothing is stepped: the state runs ahead of the store by at most
 *   what was decided before. Otherwise it runs ahead by READY_MAX full
 *        batches and one that is being made, besides those at the store (one input is never split,
 *        though, and may make some more): what comes faster waits in its queue, where it can be
 *        refused (A11), and a read never waits for more than these.
 *   (R3) A batch with nothing to commit is released only when no commit is under way.
 *   (R4) Time in which the ring could not listen (frozen, or the whole process stood still) does
 *   not pass for the core: otherwise every node would seem silent
 *        for as long as the store was away. The core's clock stands still, and then catches up by a
 *        quarter faster than real time, so that a heartbeat interval is never stretched to a
 *        silence. It never goes back.
 *   (R6) A server that does not lead steps nothing: it folds what the leader has committed, and
 *   answers reads from that (follow.c). Whatever asks it to decide is refused. (R5) While the store
 *   is away reads are answered from a view of what is committed (view.h), never from the state that
 *   runs ahead of it.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "model/feature.h"
#include "model/pb.h"
#include "server/access.h"
#include "server/facts.h"
#include "server/key.h"
#include "server/plans.h"
#include "server/shared.h"
#include "server/view.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TURN_INPUTS 256 /* decisions asked for per turn, except that one input is never split */
/* such decisions that may wait for the store; beyond, inputs wait in their queue, and then callers
 * are told so */
#define AHEAD_MAX 1024
/* full batches that may wait for the store: with one, ring and store would take turns */
#define READY_MAX 2
/* of them one is in the store's queue: otherwise the store stands still after a commit until the
 * ring has ended its turn */
#define NEXT_MAX 1
#define TURN_READS 128 /* reads, before the others of a turn */
#define READ_AHEAD_MAX 1024
#define TOKEN_AGAIN_MS 1000
/* or less often, so that they never take more than a part in STATS_SHARE of the time: they look at
 * every node */
#define STATS_EVERY_MS 20
#define STATS_SHARE 400
#define STATS_MAX_MS 1000
#define WAIT_MAX_MS 60000
#define DEAF_MS 1000 /* shorter pauses are not worth a lag */
#define AT_STORE_MAX (STORE_IN_FLIGHT_MAX + NEXT_MAX)
#define BATCHES 2         /* see set_batch_size() */
#define ITEM_OPS 6        /* of a workload that is applied and placed, on etcd */
#define BATCH_MIN_OPS 640 /* a hundred workloads: less is quick, and many small commits are not */

struct ring {
        struct server *s;
        struct core *core;
        struct clock clock;
        struct rng rng;
        bool leads;                       /* (R6) */
        size_t in_flight;                 /* batches at the store */
        size_t ops[AT_STORE_MAX], ops_at; /* in each of them, oldest at ops_at */
        size_t ops_there;                 /* in all of them */
        size_t ops_peak;                  /* the most of late, with those that piled up meanwhile */
        /* since when the oldest of them is under way; how long one takes of late */
        int64_t since_ns, usual_ns;
        bool frozen, broken;
        struct ring_msg *config;  /* the newest, for the next term */
        struct view *view;        /* what is committed, while the store is away */
        size_t ahead;             /* decisions asked for since the last batch left */
        void *taken[TURN_INPUTS]; /* from the queue, and stepped up to taken_done */
        size_t n_taken, taken_done;
        /* (R4) */
        int64_t lag_x4;      /* four times what the core's clock lags behind the system's, in ms */
        int64_t clock_ms;    /* the system's clock when it was last read */
        int64_t deaf_since;  /* system clock; 0: listening */
        int64_t awake_by_ms; /* monotonic: when this thread should have run again */
        int64_t stats_at_ms; /* when they were published last */
        int64_t stats_every_ms;
        bool stats_old;
        uint64_t tokens_version; /* published */
        /* monotonic: when the first token is tried again; 0: it is there */
        int64_t token_at_ms;
};

/* (R4): what time it is for the core. */
static int64_t now_ms(struct ring *r)
{
        int64_t t = clock_now_ms(&r->clock), passed = t - r->clock_ms;
        r->clock_ms = t;
        r->lag_x4 = r->lag_x4 > passed ? r->lag_x4 - passed : 0;
        return t - (r->lag_x4 + 3) / 4;
}

static void lose_time(struct ring *r, int64_t ms)
{
        if (ms < DEAF_MS)
                return;
        log_warn("the server could not listen for a while; the core's clock stood still meanwhile",
                 LOG_I("ms", ms));
        r->clock_ms = clock_now_ms(&r->clock); /* nothing is caught up for this time */
        r->lag_x4 += ms * 4;
}

/* Called at the beginning of each turn. */
static void notice_deafness(struct ring *r, bool listening)
{
        int64_t late = mono_ms() - r->awake_by_ms, t = clock_now_ms(&r->clock);
        if (r->deaf_since == 0) {
                lose_time(r, late); /* suspended, or starved of the processor */
                if (!listening)
                        r->deaf_since = t;
        } else if (listening) {
                lose_time(r, t - r->deaf_since);
                r->deaf_since = 0;
        }
        r->awake_by_ms = mono_ms();
}

/* A store that takes more than one batch works on the next one before that may leave (etcd's is
 * packed), while the callers of the one before hear of it and ask for more. If all that is asked
 * for were in one batch, each would wait for the others. So a batch has half of what was at the
 * store and waiting of late, or BATCH_MIN_OPS: one is under way while the other is made ready.
 * to_come: operations that one input will bring; its caller waits for the last of them, so they
 * should be few batches. */
static void set_batch_size(struct ring *r, size_t to_come)
{
        size_t now = r->ops_there + core_waiting_ops(r->core) + to_come;
        if (now > r->ops_peak)
                r->ops_peak = now;
        else if (to_come == 0)
                r->ops_peak -= r->ops_peak / 16;
        size_t share = r->ops_peak / BATCHES;
        if (r->s->limits.in_flight > 1)
                core_set_batch_ops(r->core, share > BATCH_MIN_OPS ? share : BATCH_MIN_OPS);
}

/* What one commit takes varies, and making the next one ready takes a part of it: at three
 * quarters. */
static int64_t soon_done_ns(const struct ring *r)
{
        return r->since_ns + r->usual_ns / 4 * 3;
}

/* The store would have nothing to do while the next batch is cut and packed. So that is done before
 * the one under way has ended, if there is anything. */
static bool is_soon_done(const struct ring *r)
{
        return r->in_flight == 1 && r->s->limits.in_flight > 1 && core_waiting_ops(r->core) > 0 &&
               clock_mono_ns() >= soon_done_ns(r);
}

static void step(struct ring *r, struct input *in)
{
        if (input_items(in) > 1)
                set_batch_size(r, input_items(in) * ITEM_OPS);
        in->now_ms = now_ms(r);
        in->steady_ms = clock_steady_ms();
        in->random[0] = rng_next(&r->rng);
        in->random[1] = rng_next(&r->rng);
        struct arena a = ARENA_INIT; /* of the names of servers that are too old */
        in->features =
            input_uses_features(in->kind) ? server_features(r->s, &a, &in->lacking) : FEATURES_ALL;
        const struct core_stats *now = core_counts(r->core);
        uint64_t placements = now->placements, events = now->events, passes = now->passes;
        int64_t t0 = clock_mono_ns();
        core_step(r->core, in);
        int64_t took = clock_mono_ns() - t0;
        arena_fini(&a);
        histogram_add(&r->s->metrics.turn, took);
        if (now->events != events || now->passes != passes)
                histogram_add(&r->s->metrics.reconcile, took);
        if (now->placements != placements) /* what a step did besides is small against it */
                histogram_add(&r->s->metrics.placement,
                              took / (int64_t)(now->placements - placements));
        r->ahead += input_items(in);
        r->stats_old = true;
}

static void tick(struct ring *r)
{
        struct input in = { .kind = INPUT_TICK };
        step(r, &in);
}

/* ---- leading and following (R6) ---- */

static void hand_over(struct ring *r);
static void publish_stats(struct ring *r);

static void answer_store(struct ring *r, enum ring_word word)
{
        struct commit_job *job = mem_must(sizeof(*job));
        job->word = word;
        while (!queue_push(r->s->store_queue, job)) {
                if (queue_is_closed(r->s->store_queue)) {
                        mem_free(job);
                        return;
                }
                usleep(1000);
        }
}

/* Whoever can read the server's files can always get in (again). */
static void make_first_token(struct ring *r)
{
        char hash[65];
        struct err err = { 0 };
        bool again = r->token_at_ms != 0;
        r->token_at_ms = 0;
        if (!r->s->opt.auth || core_has_admin(r->core, now_ms(r)))
                return;
        if (access_first_token(r->s, hash, &err) < 0) {
                if (!again)
                        log_error("no admin's token could be made; it is tried again", LOG_E(&err));
                r->token_at_ms = r->s->opt.data_dir ? mono_ms() + TOKEN_AGAIN_MS : 0;
                return;
        }
        /* the name may be taken by another role */
        for (int i = 1; i < 10 && !core_has_admin(r->core, now_ms(r)); i++) {
                Pb__CreateTokenRequest q = PB__CREATE_TOKEN_REQUEST__INIT;
                q.name = (char *)(i == 1 ? "admin" : fmt("admin-%d", i));
                q.role = PB__ROLE__E__admin;
                q.hash = hash;
                q.if_no_admin = true;
                struct input in = { .kind = INPUT_TOKEN_CREATE, .msg = &q.base };
                step(r, &in);
        }
}

/* From now on this core decides. */
static void begin(struct ring *r, uint64_t head)
{
        struct server *s = r->s;
        clock_init_system(&r->clock);
        /* the clock was set back while no server ran: (R4) holds all the same */
        if (core_newest_ms(r->core) > clock_now_ms(&r->clock))
                clock_init_at(&r->clock, core_newest_ms(r->core), mono_ms());
        r->clock_ms = clock_now_ms(&r->clock);
        r->awake_by_ms = mono_ms();
        r->lag_x4 = r->deaf_since = 0;
        core_set_key(r->core, &s->opt.core.warrants, s->opt.core.key_fingerprint);
        struct input start = { .kind = INPUT_START, .head = head };
        step(r, &start);
        Pb__ServerConfig none = PB__SERVER_CONFIG__INIT;
        struct input config = { .kind = INPUT_CONFIG,
                                .msg = s->config ? &s->config->base : &none.base };
        if (r->config)
                config.msg = r->config->in.msg;
        step(r, &config);
        make_first_token(r);
        access_publish(s, r->core, &r->tokens_version);
        r->leads = true;
}

static int load_one(void *ctx, const struct store_record *record, struct err *err)
{
        (void)err;
        core_load_record(ctx, record->key, record->data, record->len, NULL);
        return 0;
}

/* For tests: what was folded must be what a load gives. Says so in the log, and ends the process
 * when it is not. */
static void compare_with_load(struct ring *r)
{
        _cleanup_(core_destroyp) struct core *loaded = core_create(&r->s->opt.core);
        _cleanup_(str_finip) struct str a = STR_INIT, b = STR_INIT;
        struct store_reader *reader = NULL;
        struct err err = { 0 };
        uint64_t head = 0;
        int e = store_reader_open(r->s->store, &reader, &err);
        if (e >= 0)
                e = store_reader_records(reader, load_one, loaded, &head, &err);
        if (reader)
                store_reader_close(reader);
        if (e < 0 || head != core_head(r->core))
                return; /* the store is away again, or the lead is lost already */
        core_loaded(loaded, head);
        core_dump(r->core, &a);
        core_dump(loaded, &b);
        must(a.len == b.len && memcmp(str_c(&a), str_c(&b), a.len) == 0,
             "F1: the folded state is not what the records say");
        log_info("the folded state is what the records say", LOG_I("head", head),
                 LOG_I("facts_bytes", a.len));
}

static int remember_one(void *ctx, const struct store_record *record, struct err *err)
{
        (void)err;
        store_remember(ctx, record);
        return 0;
}

static void lead(struct ring *r, uint64_t head)
{
        struct server *s = r->s;
        struct err err = { 0 };
        if (!r->core || core_head(r->core) != head || atomic_load(&s->reload_wanted)) {
                answer_store(r, RING_CANNOT);
                return;
        }
        if (key_take(s, core_key_fingerprint(r->core), &err) < 0) {
                answer_store(r, RING_NO_KEY);
                return;
        }
        if (getenv("BERTH_CHECK_TAKEOVER"))
                compare_with_load(r);
        store_remember_begin(s->store);
        if (core_records(r->core, remember_one, s->store, &err) >= 0)
                store_remember_end(s->store, head);
        begin(r, head);
        answer_store(r, RING_LEADS);
        server_tell_role(s, true, head);
        hand_over(r);
        publish_stats(r);
}

/* Everything that was not committed is dropped: it is no longer true, and nobody was told that it
 * was. */
static void drop_core(struct ring *r)
{
        struct core_batch *b;
        view_close(TAKE_PTR(r->view));
        while (r->core && (b = core_cut(r->core)))
                core_batch_free(b);
        if (r->core)
                core_destroy(r->core);
        r->core = r->s->core = NULL;
        r->frozen = false;
        r->in_flight = r->ops_there = r->ops_peak = 0;
        r->ahead = 0;
}

static void lose(struct ring *r)
{
        struct server *s = r->s;
        r->leads = false;
        atomic_store(&s->commit_since_ms, 0);
        server_tell_role(s, false, atomic_load(&s->committed));
        drop_core(r);
        answer_store(r, RING_DROPPED);
}

static void take_core(struct ring *r, struct core *core, uint64_t head)
{
        drop_core(r);
        r->core = r->s->core = core;
        core_loaded(core, head);
        atomic_store(&r->s->reload_wanted, false);
        key_publish(r->s, core_key_fingerprint(core));
        atomic_store(&r->s->committed, head);
        r->tokens_version = 0; /* another core counts anew */
        access_publish(r->s, core, &r->tokens_version);
        server_tell_role(r->s, false, head);
        r->stats_old = true;
}

static void fold(struct ring *r, struct core_batch *b)
{
        struct server *s = r->s;
        struct err err = { 0 };
        for (size_t i = 0; r->core && i < b->commit.n_events && !atomic_load(&s->reload_wanted);
             i++) {
                if (b->commit.events[i].seq <= core_head(r->core))
                        continue;
                if (core_fold(r->core, b->commit.events[i].data, b->commit.events[i].len, &err) <
                    0) {
                        log_error("an event of the leader cannot be followed; the records are "
                                  "loaded anew",
                                  LOG_I("seq", b->commit.events[i].seq), LOG_E(&err));
                        atomic_store(&s->reload_wanted, true);
                }
        }
        if (!r->core || atomic_load(&s->reload_wanted)) {
                core_batch_free(b);
                return;
        }
        atomic_store(&s->committed, core_head(r->core));
        key_publish(s, core_key_fingerprint(r->core));
        access_publish(s, r->core, &r->tokens_version);
        server_release(s, b);
        r->stats_old = true;
}

static void messages_free(void **msgs, size_t n)
{
        for (size_t i = 0; i < n; i++)
                ring_msg_free(msgs[i]);
}

/* Somebody who asks this server to decide although it does not lead: only those who asked before
 * they could know. */
static void refuse(struct ring *r, struct ring_msg *const *msgs, size_t n)
{
        struct core_batch *b = mem_must(sizeof(*b));
        b->memory = mem_must(sizeof(*b->memory));
        struct err *err = arena_new(b->memory, struct err);
        err_set(err, ERR_UNAVAILABLE,
                .msg = "this server does not lead any more: nothing was changed",
                .hint = "send it again", .retry_after_ms = 1000);
        b->replies = arena_new_n(b->memory, struct reply, n);
        for (size_t i = 0; i < n; i++)
                if (msgs[i]->in.reply)
                        b->replies[b->n_replies++] =
                            (struct reply){ .ticket = msgs[i]->in.reply, .err = err };
        if (b->n_replies > 0)
                server_release(r->s, b);
        else
                core_batch_free(b);
}

/* What the next term begins with. */
static void keep_config(struct ring *r, const struct ring_msg *m)
{
        ring_msg_free(r->config);
        r->config = mem_must(sizeof(*r->config));
        r->config->in.kind = INPUT_CONFIG;
        r->config->in.msg = pb_clone(&r->config->memory, m->in.msg);
}

static void refuse_inputs(struct ring *r)
{
        size_t n;
        while (r->taken_done < r->n_taken ||
               (n = queue_pop_many(r->s->ring_queue, r->taken, TURN_INPUTS, 0)) > 0) {
                if (r->taken_done == r->n_taken) {
                        r->taken_done = 0;
                        r->n_taken = n;
                }
                struct ring_msg **msgs = (struct ring_msg **)r->taken + r->taken_done;
                n = r->n_taken - r->taken_done;
                refuse(r, msgs, n);
                for (size_t i = 0; i < n; i++) {
                        if (msgs[i]->in.kind == INPUT_CONFIG)
                                keep_config(r, msgs[i]);
                        ring_msg_free(msgs[i]);
                }
                r->taken_done = r->n_taken = 0;
        }
}

/* Returns how many were answered. */
static size_t read_followed(struct ring *r)
{
        void *items[TURN_READS];
        size_t n = r->core ? queue_pop_many(r->s->read_queue, items, TURN_READS, 0) : 0;
        struct core_batch *b;
        for (size_t i = 0; i < n; i++) {
                struct ring_msg *m = items[i];
                m->in.now_ms = now_ms(r);
                if (m->in.kind == INPUT_PLAN || m->in.kind == INPUT_LOCATE)
                        refuse(r, &m, 1);
                else
                        core_read(r->core, &m->in);
        }
        while (n > 0 && (b = core_cut(r->core)))
                server_release(r->s, b);
        messages_free(items, n);
        return n;
}

static void note_submitted(struct ring *r, size_t n)
{
        r->ops[(r->ops_at + r->in_flight) % AT_STORE_MAX] = n;
        r->ops_there += n;
        if (r->in_flight++ == 0) {
                atomic_store(&r->s->commit_since_ms, mono_ms());
                r->since_ns = clock_mono_ns();
        }
        set_batch_size(r, 0);
}

static void note_done(struct ring *r)
{
        int64_t now = clock_mono_ns();
        r->usual_ns += (now - r->since_ns - r->usual_ns) / 8;
        r->since_ns = now;
        r->ops_there -= r->ops[r->ops_at];
        r->ops_at = (r->ops_at + 1) % AT_STORE_MAX;
        r->in_flight--;
}

static void hear_store(struct ring *r)
{
        void *items[16];
        size_t n;
        while ((n = queue_pop_many(r->s->done_queue, items, ARRAY_LEN(items), 0)) > 0)
                for (size_t i = 0; i < n; i++) {
                        struct commit_done *d = items[i];
                        if (d->word == COMMIT_LOST)
                                lose(r);
                        else if (d->word == COMMIT_CORE)
                                take_core(r, TAKE_PTR(d->core), d->head);
                        else if (d->word == COMMIT_EVENTS)
                                fold(r, TAKE_PTR(d->batch));
                        else if (d->word == COMMIT_LEAD)
                                lead(r, d->head);
                        else {
                                r->frozen = d->word == COMMIT_WAITS;
                                r->broken |= d->word == COMMIT_FAILED;
                                if (d->word == COMMIT_DONE) {
                                        note_done(r);
                                        atomic_store(&r->s->commit_since_ms,
                                                     r->in_flight ? mono_ms() : 0);
                                        /* (R5): more is committed now */
                                        view_close(TAKE_PTR(r->view));
                                }
                        }
                        commit_done_free(d);
                }
        if (r->broken) {
                r->in_flight = r->ops_there = 0;
                atomic_store(&r->s->commit_since_ms, 0);
        }
}

static bool may_step(const struct ring *r)
{
        return r->leads && !r->frozen && !r->broken && r->ahead < AHEAD_MAX &&
               core_ready_batches(r->core) < READY_MAX;
}

static void step_message(struct ring *r, struct ring_msg *m, int64_t now)
{
        bool refused = input_is_change(m->in.kind) && m->sent_ms <= atomic_load(&r->s->refused_ms);
        if (((m->deadline_ms > 0 && now > m->deadline_ms) || refused) &&
            !MUTANT(expired_input_applied)) {
                /* the caller has been told so by io, and must be able to rely on it as far as we
                 * can help it */
                count(&r->s->metrics.inputs_expired);
        } else {
                if (m->in.kind == INPUT_CONFIG)
                        keep_config(r, m);
                if (m->in.kind == INPUT_PLAN)
                        plan_fork(r->s, r->core, m);
                step(r, &m->in);
        }
}

static size_t step_reads(struct ring *r)
{
        void *items[TURN_READS];
        size_t n = queue_pop_many(r->s->read_queue, items, TURN_READS, 0);
        int64_t now = n > 0 ? mono_ms() : 0;
        for (size_t i = 0; i < n; i++)
                step_message(r, items[i], now);
        messages_free(items, n);
        return n;
}

/* (R5) The state in memory must not be shown, and need not be: what is committed can be. Returns
 * false if there is nothing to answer now. */
static bool read_committed(struct ring *r)
{
        if (!r->in_flight || r->broken || !server_store_is_away(r->s) ||
            queue_len(r->s->read_queue) == 0)
                return false;
        if (!r->view)
                r->view = view_open(r->s, r->core);
        void *items[TURN_READS];
        size_t n = queue_pop_many(r->s->read_queue, items, TURN_READS, 0);
        view_answer(r->view, r->s, (struct ring_msg **)items, n, now_ms(r));
        messages_free(items, n);
        return n > 0;
}

/* Inputs may ask for many decisions each: what one turn does is counted in these, and the rest of
 * what was taken from the queue waits for the next turn. Returns how many decisions were asked
 * for. */
static size_t step_inputs(struct ring *r)
{
        size_t from = r->taken_done, n = 0;
        if (from == r->n_taken) {
                r->n_taken = queue_pop_many(r->s->ring_queue, r->taken, TURN_INPUTS, 0);
                from = r->taken_done = 0;
        }
        int64_t now = r->n_taken > 0 ? mono_ms() : 0;
        while (r->taken_done < r->n_taken && n < TURN_INPUTS && may_step(r)) {
                struct ring_msg *m = r->taken[r->taken_done++];
                n += input_items(&m->in);
                step_message(r, m, now);
        }
        messages_free(r->taken + from, r->taken_done - from);
        return n;
}

static bool has_inputs(const struct ring *r)
{
        return r->taken_done < r->n_taken || queue_len(r->s->ring_queue) > 0;
}

static void submit(struct ring *r, struct core_batch *b)
{
        struct commit_job *job = mem_must(sizeof(*job));
        job->batch = b;
        size_t n = b->commit.n_events + b->commit.n_records;
        if (queue_push(r->s->store_queue, job))
                note_submitted(r, n);
        else {
                mem_free(job);
                core_batch_free(b);
                r->broken = true;
        }
}

/* Sends what may be sent. */
static void hand_over(struct ring *r)
{
        while (r->leads && !r->broken &&
               (r->in_flight == 0 ||
                (r->in_flight < r->s->limits.in_flight + NEXT_MAX &&
                 core_ready_batches(r->core) > 0) ||
                is_soon_done(r))) {
                struct core_batch *b = core_cut(r->core);
                r->ahead = 0;
                if (!b)
                        return;
                if (b->commit.expected_head == b->commit.new_head && b->commit.n_events == 0 &&
                    b->commit.n_records == 0)
                        server_release(r->s, b); /* (R3) */
                else
                        submit(r, b); /* (R1) */
        }
}

static int64_t thread_cpu_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void publish_stats(struct ring *r)
{
        struct core_stats stats;
        if (!r->core)
                return;
        int64_t t0 = thread_cpu_ns();
        core_stats(r->core, &stats);
        int64_t every_ms = (thread_cpu_ns() - t0) * STATS_SHARE / 1000000;
        r->stats_every_ms = every_ms < STATS_EVERY_MS ? STATS_EVERY_MS
                            : every_ms > STATS_MAX_MS ? STATS_MAX_MS
                                                      : every_ms;
        pthread_mutex_lock(&r->s->lock);
        r->s->stats = stats;
        pthread_mutex_unlock(&r->s->lock);
        r->stats_old = false;
        r->stats_at_ms = mono_ms();
}

/* A read adds nothing to commit: it leaves with the batch that is being made, and need not wait
 * until that one has left. */
static bool may_read(const struct ring *r)
{
        return r->leads && !r->frozen && !r->broken && r->ahead < AHEAD_MAX + READ_AHEAD_MAX;
}

/* How long until the ring has something to do by itself. */
static int64_t wait_ms(const struct ring *r, int64_t now)
{
        if (!may_step(r)) /* nobody tells us when the store has been away for too long */
                return queue_len(r->s->read_queue) > 0 ? 100 : 1000;
        int64_t next = core_next_ms(r->core);
        int64_t wait = next == INT64_MAX ? WAIT_MAX_MS : next <= now ? 0 : next - now;
        if (r->stats_old && wait > r->stats_every_ms)
                wait = r->stats_every_ms;
        if (r->in_flight == 1 && r->s->limits.in_flight > 1 && core_waiting_ops(r->core) > 0) {
                int64_t soon = (soon_done_ns(r) - clock_mono_ns()) / 1000000;
                wait = wait > soon ? (soon > 0 ? soon : 0) + 1 : wait;
        }
        return wait > WAIT_MAX_MS ? WAIT_MAX_MS : wait;
}

static void turn(struct ring *r)
{
        hear_store(r);
        notice_deafness(r, !r->leads || may_step(r));
        size_t n = 0;
        if (!r->leads) {
                refuse_inputs(r);
                while (read_followed(r) > 0)
                        ;
        }
        while (read_committed(r))
                ;
        if (r->leads && r->in_flight == 0 && r->s->limits.in_flight > 1 &&
            core_waiting_ops(r->core) >= BATCH_MIN_OPS / 4)
                /* the store has nothing to do; what is in the queue comes with the next one */
                hand_over(r);
        if (may_read(r))
                step_reads(r);
        if (may_step(r)) {
                n = step_inputs(r);
                if (r->token_at_ms && mono_ms() >= r->token_at_ms)
                        make_first_token(r);
                if (core_next_ms(r->core) <= now_ms(r))
                        tick(r);
        }
        if (r->core)
                /* before any answer that speaks of it */
                access_publish(r->s, r->core, &r->tokens_version);
        hand_over(r);
        if (n >= TURN_INPUTS && may_step(r))
                return; /* more are probably there */
        if (r->stats_old && mono_ms() - r->stats_at_ms >= r->stats_every_ms)
                publish_stats(r);
        int64_t wait = wait_ms(r, now_ms(r));
        bool more =
            (may_step(r) && has_inputs(r)) || (may_read(r) && queue_len(r->s->read_queue) > 0);
        if (wait > 0 && !more) {
                r->awake_by_ms = mono_ms() + wait;
                gate_wait(&r->s->ring_gate, wait);
        }
}

/* After the stop: what was decided is committed, if the store takes it in time. */
static void finish(struct ring *r)
{
        while (!r->broken && r->leads) {
                hear_store(r);
                size_t n = may_read(r) ? step_reads(r) : 0;
                if (may_step(r))
                        n += step_inputs(r);
                hand_over(r);
                if (n == 0 && !r->in_flight)
                        break;
                if (n == 0)
                        gate_wait(&r->s->ring_gate, 50);
        }
        publish_stats(r);
        if (r->broken)
                log_warn("what was decided and not yet durable is dropped; nobody was told that it "
                         "was done",
                         LOG_I("decided", core_head(r->core)),
                         LOG_I("durable", atomic_load(&r->s->committed)));
        messages_free(r->taken + r->taken_done, r->n_taken - r->taken_done);
        ring_msg_free(r->config);
        drop_core(r);
}

void *ring_main(void *server)
{
        struct server *s = server;
        struct ring *r = mem_must(sizeof(*r));
        r->s = s;
        r->core = s->core;
        clock_init_system(&r->clock);
        rng_seed_system(&r->rng);
        r->clock_ms = clock_now_ms(&r->clock);
        r->awake_by_ms = mono_ms();
        if (atomic_load(&s->leads)) {
                begin(r, s->loaded_head);
                hand_over(r);
        } else {
                core_loaded(r->core, s->loaded_head);
                key_publish(s, core_key_fingerprint(r->core));
                access_publish(s, r->core, &r->tokens_version);
        }
        publish_stats(r);
        server_started(s, NULL);
        while (!queue_is_closed(s->ring_queue))
                turn(r);
        finish(r);
        mem_free(r);
        return NULL;
}
