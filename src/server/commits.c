/* server/commits.c: the thread that owns the store: opens it, loads the core from it, commits,
 * prunes when nothing else is to be done.
 *
 * As many batches are under way as the store takes at a time; they are released in their order,
 * each when it is durable itself. Those whose outcome is unknown are sent again unchanged until
 * they go through or the server gives up at shutdown; the ring is told to freeze meanwhile, and
 * health says degraded (C35). A commit that finds another head is the end of this server's lead:
 * somebody else writes to this store, and what this process holds in memory is no longer true. On a
 * shared store it follows from then on (follow.c); the embedded one has no other, and the process
 * ends.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "model/pb.h"
#include "model/validate.h"
#include "server/key.h"
#include "server/shared.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define RETRY_MIN_MS 50
#define RETRY_MAX_MS 1000
#define PRUNE_EVERY_MS 1000 /* how often retention is looked at */
#define PRUNE_BUSY_MS 10000 /* and at what is too old, while commits go on without a pause */
/* without a change, before it is left alone until the next commit: an idle server does nothing
 * (A6) */
#define PRUNE_LOOKS 15
#define PRUNE_CHUNK 4096 /* events per call: a few milliseconds */
#define BAD_RECORDS_LOGGED 20
#define LEASE_LOOK_MS 250 /* how often a leader looks whether it still leads */

struct commits {
        struct server *s;
        struct store *store;
        uint64_t first_seq; /* oldest event kept, as far as known */
        int64_t prune_at_ms;
        int idle_looks;
        bool overdue;
        bool ages; /* something becomes too old with time, without any commit */
        /* at the store, or about to be: a ring, oldest at `first` */
        struct core_batch *under_way[STORE_IN_FLIGHT_MAX];
        int64_t since_ns[STORE_IN_FLIGHT_MAX];
        size_t first, n;
        bool told, broken; /* that the store fails; for good */
        char told_msg[256];
        int64_t backoff_ms;
        struct err why; /* it leads no more; code 0: it does */
};

/* ---- start ---- */

struct load {
        struct server *s;
        struct core *core;
        uint64_t records, bad;
};

static int load_record(void *ctx, const struct store_record *record, struct err *err)
{
        struct load *l = ctx;
        struct err bad = { 0 };
        (void)err;
        l->records++;
        /* the return value counts all bad ones so far; only a fresh one fills `bad` */
        core_load_record(l->core, record->key, record->data, record->len, &bad);
        if (bad.code != ERR_OK) {
                l->bad++;
                count(&l->s->metrics.bad_records);
                if (l->bad <= BAD_RECORDS_LOGGED)
                        log_error("a stored record cannot be read and is left out",
                                  LOG_S("key", record->key), LOG_E(&bad));
        }
        return 0;
}

static int64_t resident_kb(void)
{
        unsigned long pages = 0, resident = 0;
        FILE *f = fopen("/proc/self/statm", "re");
        if (!f)
                return 0;
        if (fscanf(f, "%lu %lu", &pages, &resident) != 2)
                resident = 0;
        fclose(f);
        return (int64_t)resident * (sysconf(_SC_PAGESIZE) / 1024);
}

int load_core(struct server *s, struct store *store, bool from_memory, struct core **ret_core,
              uint64_t *ret_head, struct err *err)
{
        int64_t t0 = mono_ms();
        struct load load = { .s = s, .core = core_create(&s->opt.core) };
        struct store_reader *reader = NULL;
        int r = 0;
        if (!from_memory)
                r = store_load(store, load_record, &load, ret_head, err);
        else if ((r = store_reader_open(store, &reader, err)) >= 0) {
                r = store_reader_records(reader, load_record, &load, ret_head, err);
                store_reader_close(reader);
        }
        if (r < 0) {
                core_destroy(load.core);
                return r;
        }
        struct core_stats stats;
        core_stats(load.core, &stats);
        log_info("store loaded", LOG_S("store", s->opt.store_url), LOG_I("head", *ret_head),
                 LOG_I("records", load.records), LOG_I("bad_records", load.bad),
                 LOG_I("nodes", stats.nodes), LOG_I("workloads", stats.workloads),
                 LOG_I("took_ms", mono_ms() - t0), LOG_I("resident_kb", resident_kb()));
        *ret_core = load.core;
        return 0;
}

static void find_first_event(struct commits *c)
{
        struct store_reader *reader = NULL;
        struct err ignored = { 0 };
        if (store_reader_open(c->store, &reader, &ignored) >= 0) {
                c->first_seq = store_reader_first(reader);
                store_reader_close(reader);
        }
}

static int open_and_load(struct commits *c, struct err *err)
{
        struct server *s = c->s;
        int r = store_open(s->opt.store_url, true, &c->store, err);
        if (r < 0)
                return r;
        s->store = c->store;
        s->limits = store_limits(c->store);
        if (s->limits.in_flight == 0)
                s->limits.in_flight = 1;
        s->opt.core.index_records |= s->limits.wants_index_records;
        size_t ops = s->limits.batch_ops ? s->limits.batch_ops : s->limits.max_ops;
        if (ops > 0 && s->opt.core.max_batch_ops > ops)
                s->opt.core.max_batch_ops = ops;
        s->opt.core.lead_ms = store_is_shared(c->store) ? LEASE_SECONDS * 1000 : 0;
        size_t bytes = s->limits.batch_bytes ? s->limits.batch_bytes : s->limits.max_bytes / 4;
        if (bytes > 0 && s->opt.core.max_batch_bytes > bytes)
                s->opt.core.max_batch_bytes = bytes;
        r = load_core(s, c->store, false, &s->core, &s->loaded_head, err);
        if (r < 0)
                return r;
        if (!store_is_shared(c->store) && (r = key_take(s, core_key_fingerprint(s->core), err)) < 0)
                return r; /* nobody else could lead */
        /* A shared one is followed until this server may lead: it could not lead sooner, since the
         * others must be told where it listens. */
        atomic_store(&s->leads, !store_is_shared(c->store));
        atomic_store(&s->settled, !store_is_shared(c->store));
        atomic_store(&s->committed, s->loaded_head);
        atomic_store(&s->store_head, s->loaded_head);
        if (store_is_shared(c->store))
                store_remember_begin(c->store); /* it is not told what is folded from now on */
        find_first_event(c);
        return 0;
}

/* ---- commits ---- */

static void tell_ring(struct server *s, enum commit_word word)
{
        struct commit_done *d = mem_must(sizeof(*d));
        d->word = word;
        if (!queue_push(s->done_queue, d))
                mem_free(d);
}

/* The lease has run out by our own clock: somebody else may lead by now, and no commit of ours may
 * go through any more (C33). */
static bool lease_is_over(struct commits *c, struct err *err)
{
        if (!store_lead_is_over(c->store))
                return false;
        err_set(err, ERR_CONFLICT,
                .msg = "the leadership's lease ran out before it could be renewed, or its key was "
                       "taken away",
                .detail = "etcd did not answer, or this process stood still, for longer than the "
                          "lease; or somebody removed /meta/leader; or "
                          "etcd could not be asked whose it is",
                .hint = "what was not committed is dropped; this server follows, and leads again "
                        "when it can");
        server_set_degraded(c->s, true, err->msg); /* until it was heard again: see follow.c */
        return true;
}

static uint64_t batch_bytes(const struct store_batch *b)
{
        uint64_t n = 0;
        for (size_t i = 0; i < b->n_events; i++)
                n += b->events[i].len;
        for (size_t i = 0; i < b->n_records; i++)
                n += strlen(b->records[i].key) + b->records[i].len;
        return n;
}

static bool should_give_up(const struct server *s)
{
        int64_t at = atomic_load(&s->give_up_ms);
        return at > 0 && mono_ms() >= at;
}

/* The store failed. Returns whether what is under way is to be sent again; if so, after a pause. */
static bool is_worth_another_try(struct commits *c, int r, const struct err *err)
{
        struct server *s = c->s;
        if (r == -ERR_CONFLICT || r == -ERR_CORRUPT || r == -ERR_INTERNAL || r == -ERR_INVALID)
                return false;
        count(&s->metrics.commit_failures);
        /* once for each trouble, not for each try */
        if (!c->told || strcmp(c->told_msg, err->msg) != 0) {
                const struct store_batch *b = &c->under_way[c->first]->commit;
                log_error("the store does not take commits; decisions are frozen until it does",
                          LOG_I("head", b->expected_head), LOG_I("events", b->n_events),
                          LOG_I("batches", c->n), LOG_E(err));
                server_set_degraded(s, true, err_line(err));
                if (!c->told) {
                        tell_ring(s, COMMIT_WAITS);
                        c->backoff_ms = RETRY_MIN_MS;
                }
                c->told = true;
                snprintf(c->told_msg, sizeof(c->told_msg), "%s", err->msg);
        }
        if (should_give_up(s) || lease_is_over(c, &c->why))
                return false;
        usleep((useconds_t)c->backoff_ms * 1000);
        c->backoff_ms = c->backoff_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : c->backoff_ms * 2;
        return true;
}

static void drop_under_way(struct commits *c)
{
        for (; c->n; c->n--, c->first = (c->first + 1) % STORE_IN_FLIGHT_MAX)
                core_batch_free(c->under_way[c->first]);
        c->told = false;
}

/* Nothing can be committed any more: for good, or until this server leads again. */
static void end_for_good(struct commits *c, int r, struct err *err)
{
        struct server *s = c->s;
        if (r == -ERR_CONFLICT && store_is_shared(c->store))
                c->why = *err;
        if (c->why.code != ERR_OK)
                return;
        if (r == -ERR_CONFLICT)
                log_error("another process has written to this store: its head is not where this "
                          "server left it. Stopping, so that nothing "
                          "is decided on a state that is no longer true",
                          LOG_I("expected_head", c->under_way[c->first]->commit.expected_head),
                          LOG_E(err));
        err_prefix(err, "commit");
        server_fatal(s, err);
        tell_ring(s, COMMIT_FAILED);
        store_unlead(c->store); /* before the batches that it was given are gone */
        drop_under_way(c);
        c->broken = true;
}

/* The oldest one is durable: whoever waits for it hears so. */
static void release_oldest(struct commits *c)
{
        struct server *s = c->s;
        struct core_batch *b = c->under_way[c->first];
        histogram_add(&s->metrics.commit, clock_mono_ns() - c->since_ns[c->first]);
        if (c->told) {
                log_info("the store is back", LOG_I("head", b->commit.new_head));
                server_set_degraded(s, false, "");
                c->told = false;
        }
        c->first = (c->first + 1) % STORE_IN_FLIGHT_MAX;
        c->n--;
        count(&s->metrics.commits);
        count_n(&s->metrics.commit_events, b->commit.n_events);
        count_n(&s->metrics.commit_records, b->commit.n_records);
        count_n(&s->metrics.commit_bytes, batch_bytes(&b->commit));
        metrics_writes(&s->metrics, &b->commit);
        atomic_store(&s->committed, b->commit.new_head);
        if (c->first_seq == 0)
                c->first_seq = b->commit.expected_head + 1;
        server_release(s, b);
        tell_ring(s, COMMIT_DONE);
}

/* What the ring has sent goes to the store, as much as may be under way there. */
static void take_jobs(struct commits *c)
{
        void *item;
        while (c->n < c->s->limits.in_flight &&
               queue_pop_many(c->s->store_queue, &item, 1, 0) == 1) {
                struct commit_job *job = item;
                size_t at = (c->first + c->n) % STORE_IN_FLIGHT_MAX;
                if (c->broken)
                        core_batch_free(job->batch);
                else if (job->batch) {
                        c->under_way[at] = job->batch;
                        c->since_ns[at] = clock_mono_ns();
                        c->n++;
                }
                mem_free(job);
        }
}

/* Gives the store what it does not have yet, and hears how the oldest fared. Returns whether
 * something has ended. */
static bool settle(struct commits *c)
{
        struct err err = { 0 };
        int r = c->n ? key_save(c->s, &err) : 0;
        while (r == 0 && store_in_flight(c->store) < c->n)
                r = store_submit(
                    c->store,
                    &c->under_way[(c->first + store_in_flight(c->store)) % STORE_IN_FLIGHT_MAX]
                         ->commit,
                    &err);
        if (r < 0 && store_in_flight(c->store) > 0) {
                /* Those before it are none the worse for it: what is refused is looked at again
                 * when it is the oldest. */
                int older = store_settle(c->store, 0, &err);
                if (older > 0)
                        release_oldest(c);
                if (older >= 0)
                        return older > 0;
                r = older;
        } else if (r == -ERR_LIMIT && store_is_shared(c->store)) {
                /* Nobody could ever commit it, and everybody would wait for it: it is dropped with
                 * the lead, and its caller may or may not send it again. */
                log_error("a decision is larger than the store takes, and is dropped; this server "
                          "follows and leads again",
                          LOG_E(&err));
                c->why = err;
                return true;
        } else if (r == 0 && c->n)
                r = store_settle(c->store, 0, &err);
        if (r > 0 || (r < 0 && MUTANT(reply_before_commit)))
                release_oldest(c);
        else if (r < 0 && !is_worth_another_try(c, r, &err))
                end_for_good(c, r, &err);
        return r != 0;
}

/* ---- retention ---- */

static struct store_retention retention(const struct commits *c)
{
        struct store_retention keep = { .now_ms = clock_wall_ms() };
        for (int i = 0; i < EVENT_CLASSES; i++)
                keep.of[i] = (struct store_keep){ atomic_load(&c->s->retention[i].events),
                                                  atomic_load(&c->s->retention[i].age_ms) };
        return keep;
}

/* How long the thread may sleep before it looks at retention again; -1: until the next commit. */
static int64_t prune_in_ms(const struct commits *c)
{
        if (c->idle_looks >= PRUNE_LOOKS && !c->ages)
                return -1;
        int64_t left = c->prune_at_ms - mono_ms();
        return left > 0 ? left : 0;
}

static void tell_kept(struct commits *c)
{
        struct store_stats stats = store_stats(c->store);
        atomic_store(&c->s->metrics.first_event, c->first_seq);
        for (int i = 0; i < EVENT_CLASSES; i++)
                atomic_store(&c->s->metrics.kept[i], (uint64_t)(stats.kept[i] + 1));
}

/* One chunk. Returns true if there is probably more to remove. */
static bool prune(struct commits *c)
{
        struct err err = { 0 };
        struct store_retention keep = retention(c);
        struct store_pruned done = { 0 };
        int64_t n = store_prune(c->store, &keep, PRUNE_CHUNK, &done, &err),
                again_ms = store_prune_again_ms(&keep);
        if (n < 0)
                log_warn("old events could not be removed", LOG_E(&err));
        c->prune_at_ms = mono_ms() + PRUNE_EVERY_MS;
        c->ages = again_ms > 0;
        c->first_seq += done.left;
        count_n(&c->s->metrics.pruned_events, done.removed);
        tell_kept(c);
        if (n > 0) {
                c->idle_looks = 0;
                return true;
        }
        if (++c->idle_looks == PRUNE_LOOKS && c->ages)
                /* the next ones are as many again: a checkpoint takes its time */
                c->prune_at_ms = mono_ms() + again_ms;
        else if (c->idle_looks > PRUNE_LOOKS && c->ages)
                c->idle_looks = 0;
        return false;
}

/* Space that is unused goes back to the file system while nobody waits for a commit; a busy server
 * uses it again anyway. */
static bool shrink(struct commits *c)
{
        struct err err = { 0 };
        int r = store_shrink(c->store, &err);
        if (r < 0)
                log_warn("unused space of the store could not be given back", LOG_E(&err));
        return r > 0;
}

/* A server that is never idle must prune all the same, or the store grows for ever. */
static void prune_while_busy(struct commits *c)
{
        uint64_t most = atomic_load(&c->s->retention[EVENT_LIFECYCLE].events),
                 head = atomic_load(&c->s->committed);
        int64_t now_ms = mono_ms();
        bool by_age = c->ages && now_ms >= c->prune_at_ms + PRUNE_BUSY_MS;
        c->idle_looks = 0;
        if (c->overdue || by_age ||
            (most > 0 && now_ms >= c->prune_at_ms && head - c->first_seq > 2 * most))
                c->overdue = prune(c);
}

/* ---- what others have done to the records ---- */

/* As if somebody had applied it; NULL: it is not a workload that could be. */
static Pb__ApplyWorkloadRequest *as_apply(struct ring_msg *msg, const struct store_record *record,
                                          char **problem)
{
        ProtobufCMessage *w = NULL;
        struct err err = { 0 };
        if (!record->data || !str_starts(record->key, "/workloads/"))
                return NULL;
        Pb__ApplyWorkloadRequest *q = (Pb__ApplyWorkloadRequest *)pb_new(
            &msg->memory, &pb__apply_workload_request__descriptor);
        int r =
            pb_unpack(&pb__workload__descriptor, record->data, record->len, &msg->memory, &w, &err);
        if (r >= 0) {
                q->workload = (Pb__Workload *)w;
                if (!str_eq(q->workload->id, record->key + strlen("/workloads/")))
                        r = err_set(&err, ERR_INVALID, .msg = "its id is not the one in its key");
                else
                        r = request_normalise(&msg->memory, &q->base, &err);
        }
        if (r < 0)
                *problem = arena_strdup(&msg->memory, err_line(&err));
        return r < 0 ? NULL : q;
}

/* C1: never in silence. The core decides what becomes of it. */
static void tell_touched(void *ctx, const struct store_record *record)
{
        struct server *s = ctx;
        struct ring_msg *msg = ring_msg_new(INPUT_TOUCHED);
        Pb__TouchedRecord *t =
            (Pb__TouchedRecord *)pb_new(&msg->memory, &pb__touched_record__descriptor);
        count(&s->metrics.records_touched);
        log_warn("a record was changed in the store by hand", LOG_S("key", record->key),
                 LOG_S("how", record->data ? "written" : "removed"));
        t->key = arena_strdup(&msg->memory, record->key);
        t->removed = !record->data;
        t->apply = as_apply(msg, record, &t->problem);
        msg->in.msg = &t->base;
        if (!queue_push_priority(s->ring_queue, msg)) {
                log_error("too much to do: what becomes of that record is not decided",
                          LOG_S("key", record->key));
                ring_msg_free(msg);
        }
}

/* How long to wait for something to do. */
static int64_t wait_ms(const struct commits *c)
{
        int64_t wait = c->n || c->broken ? -1 : prune_in_ms(c);
        return store_is_shared(c->store) && (wait < 0 || wait > LEASE_LOOK_MS) ? LEASE_LOOK_MS
                                                                               : wait;
}

/* Until the server stops, or leads no more (c->why). */
static void run(struct commits *c)
{
        struct server *s = c->s;
        c->why = (struct err){ 0 };
        while (c->why.code == ERR_OK) {
                take_jobs(c);
                if (settle(c)) {
                        if (!c->broken && c->why.code == ERR_OK)
                                prune_while_busy(c);
                        continue;
                }
                if (c->n == 0 && queue_is_closed(s->store_queue) && queue_len(s->store_queue) == 0)
                        break;
                if (lease_is_over(c, &c->why))
                        break;
                store_strange(c->store, tell_touched, s);
                int64_t wait = wait_ms(c);
                if (wait != 0)
                        gate_wait(&s->store_gate, wait);
                if (atomic_exchange(&s->retention_changed, false))
                        c->prune_at_ms = c->idle_looks = 0;
                if (c->n == 0 && !c->broken && prune_in_ms(c) == 0)
                        /* idle: chunk after chunk, but a commit never waits for more than one */
                        while (queue_len(s->store_queue) == 0 && !queue_is_closed(s->store_queue) &&
                               (prune(c) || shrink(c)))
                                ;
        }
}

/* One server of several: follows, leads, follows again. */
static void take_turns(struct commits *c)
{
        while (follow_until_leading(c->s, c->store)) {
                find_first_event(c);
                run(c);
                if (c->why.code == ERR_OK)
                        break;
                store_unlead(c->store); /* before the batches that it was given are gone */
                drop_under_way(c);
                follow_step_down(c->s, c->store, &c->why);
        }
}

/* Everybody waits for the store, so its thread goes before the others of this process, where the
 * machine allows that (as root, or by RLIMIT_NICE). */
static void go_first(void)
{
        (void)setpriority(PRIO_PROCESS, 0, -20); /* of this thread only, on Linux */
}

void *store_main(void *server)
{
        go_first();
        struct commits c = { .s = server };
        struct server *s = server;
        struct err err = { 0 };
        if (open_and_load(&c, &err) < 0) {
                if (c.store)
                        store_close(c.store);
                s->store = NULL;
                server_started(s, &err);
                return NULL;
        }
        server_started(s, NULL);
        store_on_settled(c.store, gate_open, &s->store_gate);
        store_on_proved(c.store, server_proved, s);
        if (store_is_shared(c.store))
                take_turns(&c);
        else
                run(&c);
        store_close(c.store);
        s->store = NULL;
        return NULL;
}
