/* server/commits.c: the thread that owns the store: opens it, loads the core from it, commits, prunes when nothing else is to be done.
 *
 * A commit whose outcome is unknown is sent again unchanged until it goes through or the server gives up at shutdown; the ring is told to freeze meanwhile,
 * and health says degraded (C35). A commit that finds another head is the end: somebody else writes to this store, and what this process holds in memory
 * is no longer true.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "server/shared.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MIN_MS 50
#define RETRY_MAX_MS 1000
#define PRUNE_EVERY_MS 1000 /* how often retention is looked at */
#define PRUNE_LOOKS 15      /* without a change, before it is left alone until the next commit: an idle server does nothing (A6) */
#define PRUNE_CHUNK 4096    /* events per call: a few milliseconds */
#define BAD_RECORDS_LOGGED 20
#define LEAD_TTL_SECONDS 5
#define LEAD_WAIT_MS 1000

struct commits {
        struct server *s;
        struct store *store;
        uint64_t first_seq; /* oldest event kept, as far as known */
        int64_t prune_at_ms;
        int idle_looks;
        bool overdue;
};

/* ---- start --------------------------------------------------------------------------------------------------------------------------------- */

struct load {
        struct server *s;
        uint64_t records, bad;
};

static int load_record(void *ctx, const struct store_record *record, struct err *err)
{
        struct load *l = ctx;
        struct err bad = { 0 };
        (void)err;
        l->records++;
        /* the return value counts all bad ones so far; only a fresh one fills `bad` */
        core_load_record(l->s->core, record->key, record->data, record->len, &bad);
        if (bad.code != ERR_OK) {
                l->bad++;
                count(&l->s->metrics.bad_records);
                if (l->bad <= BAD_RECORDS_LOGGED)
                        log_error("a stored record cannot be read and is left out", LOG_S("key", record->key), LOG_E(&bad));
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

/* Of a store that several servers share: until this one leads. Nothing is loaded before, since whoever leads now goes on changing it. */
static int lead(struct commits *c, struct err *err)
{
        struct server *s = c->s;
        char who[256];
        int r = -ERR_CONFLICT;
        bool told = false;
        snprintf(who, sizeof(who), "%s", s->opt.grpc_address ? s->opt.grpc_address : "berth");
        while (!atomic_load(&s->stopping)) {
                r = store_lead(c->store, who, LEAD_TTL_SECONDS, LEAD_WAIT_MS, err);
                if (r != -ERR_CONFLICT && r != -ERR_UNAVAILABLE)
                        break;
                if (!told)
                        log_info("waiting until this server may lead", LOG_E(err));
                told = true;
        }
        if (r == 0 && store_is_shared(c->store))
                log_info("this server leads", LOG_S("store", s->opt.store_url), LOG_I("head", store_head(c->store)));
        return r;
}

static int open_and_load(struct commits *c, struct err *err)
{
        struct server *s = c->s;
        int64_t t0 = mono_ms();
        int r = store_open(s->opt.store_url, true, &c->store, err);
        if (r < 0)
                return r;
        s->store = c->store;
        r = lead(c, err);
        if (r < 0)
                return r;
        s->limits = store_limits(c->store);
        s->opt.core.index_records |= s->limits.wants_index_records;
        if (s->limits.max_ops > 0 && s->opt.core.max_batch_ops > s->limits.max_ops)
                s->opt.core.max_batch_ops = s->limits.max_ops;
        s->core = core_create(&s->opt.core);

        struct load load = { .s = s };
        r = store_load(c->store, load_record, &load, &s->loaded_head, err);
        if (r < 0)
                return r;
        atomic_store(&s->committed, s->loaded_head);
        struct core_stats stats;
        core_stats(s->core, &stats);
        log_info("store loaded", LOG_S("store", s->opt.store_url), LOG_I("head", s->loaded_head), LOG_I("records", load.records),
                 LOG_I("bad_records", load.bad), LOG_I("nodes", stats.nodes), LOG_I("workloads", stats.workloads),
                 LOG_I("took_ms", mono_ms() - t0), LOG_I("resident_kb", resident_kb()));

        struct store_reader *reader = NULL;
        struct err ignored = { 0 };
        if (store_reader_open(c->store, &reader, &ignored) >= 0) {
                c->first_seq = store_reader_first(reader);
                store_reader_close(reader);
        }
        return 0;
}

/* ---- commits ------------------------------------------------------------------------------------------------------------------------------- */

static void tell_ring(struct server *s, enum commit_word word)
{
        struct commit_done *d = mem_must(sizeof(*d));
        d->word = word;
        if (!queue_push(s->done_queue, d))
                mem_free(d);
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

/* Until it is durable, or never. */
static int commit_for_good(struct commits *c, const struct store_batch *batch, struct err *err)
{
        struct server *s = c->s;
        int64_t backoff = RETRY_MIN_MS;
        bool told = false;
        for (;;) {
                *err = (struct err){ 0 };
                int64_t t0 = clock_mono_ns();
                int r = store_commit(c->store, batch, err);
                if (r >= 0 || MUTANT(reply_before_commit)) {
                        histogram_add(&s->metrics.commit, clock_mono_ns() - t0);
                        if (told) {
                                log_info("the store is back", LOG_I("head", batch->new_head));
                                server_set_degraded(s, false, "");
                        }
                        return 0;
                }
                if (r == -ERR_CONFLICT || r == -ERR_CORRUPT || r == -ERR_INTERNAL || r == -ERR_INVALID)
                        return r;
                count(&s->metrics.commit_failures);
                if (!told) {
                        log_error("the store does not take commits; decisions are frozen until it does",
                                  LOG_I("head", batch->expected_head), LOG_I("events", batch->n_events), LOG_E(err));
                        server_set_degraded(s, true, err_line(err));
                        tell_ring(s, COMMIT_WAITS);
                        told = true;
                }
                if (should_give_up(s))
                        return r;
                usleep((useconds_t)backoff * 1000);
                backoff = backoff * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : backoff * 2;
        }
}

static bool commit(struct commits *c, struct core_batch *b)
{
        struct server *s = c->s;
        struct err err = { 0 };
        int r = commit_for_good(c, &b->commit, &err);
        if (r < 0) {
                if (r == -ERR_CONFLICT)
                        log_error("another process has written to this store: its head is not where this server left it. Stopping, so that "
                                  "nothing "
                                  "is decided on a state that is no longer true",
                                  LOG_I("expected_head", b->commit.expected_head), LOG_E(&err));
                err_prefix(&err, "commit");
                server_fatal(s, &err);
                tell_ring(s, COMMIT_FAILED);
                core_batch_free(b);
                return false;
        }
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
        return true;
}

/* ---- retention ----------------------------------------------------------------------------------------------------------------------------- */

/* How long the thread may sleep before it looks at retention again; -1: until the next commit. */
static int64_t prune_in_ms(const struct commits *c)
{
        if (atomic_load(&c->s->keep_events) == 0 || c->idle_looks >= PRUNE_LOOKS)
                return -1;
        int64_t left = c->prune_at_ms - mono_ms();
        return left > 0 ? left : 0;
}

/* One chunk. Returns true if there is probably more to remove. */
static bool prune(struct commits *c)
{
        struct err err = { 0 };
        int64_t n = store_prune(c->store, atomic_load(&c->s->keep_events), PRUNE_CHUNK, &err);
        if (n < 0)
                log_warn("old events could not be removed", LOG_E(&err));
        c->prune_at_ms = mono_ms() + PRUNE_EVERY_MS;
        if (n <= 0) {
                c->idle_looks++;
                return false;
        }
        c->idle_looks = 0;
        c->first_seq += (uint64_t)n;
        count_n(&c->s->metrics.pruned_events, (uint64_t)n);
        return true;
}

/* A server that is never idle must prune all the same, or the store grows for ever. */
static void prune_while_busy(struct commits *c)
{
        uint64_t keep = atomic_load(&c->s->keep_events), head = atomic_load(&c->s->committed);
        c->idle_looks = 0;
        if (keep > 0 && (c->overdue || mono_ms() >= c->prune_at_ms) && head - c->first_seq > 2 * keep)
                c->overdue = prune(c);
        else
                c->overdue = false;
}

void *store_main(void *server)
{
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

        bool broken = false;
        for (;;) {
                void *item;
                size_t n = queue_pop_many(s->store_queue, &item, 1, broken ? -1 : prune_in_ms(&c));
                if (n == 0 && queue_is_closed(s->store_queue))
                        break;
                if (n == 0) {
                        /* idle: chunk after chunk, but a commit never waits for more than one */
                        while (prune(&c) && queue_len(s->store_queue) == 0 && !queue_is_closed(s->store_queue))
                                ;
                        continue;
                }
                struct commit_job *job = item;
                if (broken)
                        core_batch_free(job->batch);
                else
                        broken = !commit(&c, job->batch);
                mem_free(job);
                if (!broken)
                        prune_while_busy(&c);
        }
        store_close(c.store);
        s->store = NULL;
        return NULL;
}
