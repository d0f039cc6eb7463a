/* tests/powerloss.c: the power goes at each write boundary of a busy run, and what comes back is
 * the truth. R: A3 A5
 *
 * The batches of a history (history.h) are committed to the embedded store on a file layer that
 * forgets what was not synced (store/lossy_vfs.h). The run is cut at every write, sync and
 * truncation, and the disk is left in three ways: all that was not synced is gone (dropped),
 * arbitrary sectors of it are there (torn), all of it is there (killed: the process died, the
 * machine did not). Then the store is opened again, and
 *
 *   (1) the head h it comes back with lies between the last acknowledged and the last sent, and is
 *       the end of a batch: whole decisions;
 *   (2) the stored events are those of the batches up to h, byte for byte;
 *   (3) a core loaded from the records equals a core that folded the events up to h, in every fact
 *       that core_dump() prints; so does one that took the store's checkpoint and folded the events
 *       since;
 *   (4) core_check() finds no invariant broken before and after INPUT_START;
 *   (5) the batch that was under way is sent again unchanged and goes through, and what follows
 *       does too.
 *
 * The run is restarted in good order every SEGMENT batches, so that a cut is reached from a copy of
 * the files instead of from the beginning.
 *
 * usage: powerloss [--every N] [--cut SEGMENT:OPERATION:WAY] [--seed S] [--events N]
 * Without options one cut in 40 is tried, always the same ones; --every 1 tries all of them. A
 * failure prints its --cut, which repeats it alone.
 */
#include "history.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/lossy_vfs.h"
#include "store/store.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEGMENT 40       /* batches between two restarts in good order */
#define CHECKPOINT_AT 25 /* a checkpoint of the state within each segment */
#define KEEP_EVENTS 700
#define AFTERWARDS 2 /* batches that must go through after the recovery */

enum way { DROPPED, TORN, KILLED, _WAYS };
static const char *const way_names[_WAYS] = { "dropped", "torn", "killed" };

struct run {
        struct history history;
        char **dumps; /* after each batch: what a core that folded the events says */
        uint64_t seed;
        char dir[PATH_MAX - 64], url[PATH_MAX];
        const char *label; /* of the cut being tried */
        uint64_t cuts, longer, failed;
};

static void broken(struct run *r, const char *what, const char *detail)
{
        printf("not ok - %s\n#   %s\n#   again: tests/powerloss --seed %llu --cut %s\n", what,
               detail ? detail : "", (unsigned long long)r->seed, r->label);
        r->failed++;
}

/* ---- what must come back ---- */

static struct core *core_new(void)
{
        struct core_options opt;
        core_options_default(&opt);
        opt.max_batch_ops = 512;
        return core_create(&opt);
}

static char *dump_of(const struct core *core)
{
        struct str text = STR_INIT;
        core_dump(core, &text);
        return str_take(&text);
}

static void fold_history(struct run *r)
{
        struct core *core = core_new();
        struct err err = { 0 };
        r->dumps = mem_must((r->history.batches.len + 1) * sizeof(char *));
        r->dumps[0] = dump_of(core);
        for (size_t b = 0; b < r->history.batches.len; b++) {
                const struct store_batch *batch = &r->history.batches.at[b]->commit;
                for (size_t i = 0; i < batch->n_events; i++)
                        must(core_fold(core, batch->events[i].data, batch->events[i].len, &err) ==
                                 0,
                             "the history folds");
                r->dumps[b + 1] = dump_of(core);
        }
        core_destroy(core);
}

/* How many batches make up this head; -1: it is not the end of one. */
static ssize_t batches_up_to(const struct run *r, uint64_t head)
{
        if (head == 0)
                return 0;
        for (size_t b = 0; b < r->history.batches.len; b++)
                if (r->history.batches.at[b]->commit.new_head == head)
                        return (ssize_t)b + 1;
        return -1;
}

/* ---- looking at what came back ---- */

static int load_one(void *ctx, const struct store_record *record, struct err *err)
{
        return core_load_record(ctx, record->key, record->data, record->len, err);
}

struct comparison {
        struct run *r;
        struct core *core; /* folds */
        size_t batch, at;
        uint64_t seen, wrong;
};

/* The stored event is the one of the history, and folds. */
static int compare_event(void *ctx, const struct store_event *e, struct err *err)
{
        struct comparison *c = ctx;
        const struct store_batch *b = &c->r->history.batches.at[c->batch]->commit;
        while (c->at >= b->n_events || b->events[c->at].seq < e->seq) {
                if (++c->at >= b->n_events) {
                        if (++c->batch >= c->r->history.batches.len)
                                return -1;
                        b = &c->r->history.batches.at[c->batch]->commit;
                        c->at = 0;
                }
        }
        const struct store_event *want = &b->events[c->at];
        c->wrong +=
            want->seq != e->seq || want->len != e->len || memcmp(want->data, e->data, e->len) != 0;
        c->seen = e->seq;
        return core_fold(c->core, e->data, e->len, err);
}

static void check_folded(struct run *r, struct store *s, uint64_t head, const char *want)
{
        struct comparison c = { .r = r, .core = core_new() };
        struct store_reader *reader = NULL;
        struct err err = { 0 };
        uint64_t seq = 0;
        if (store_load_checkpoint(s, load_one, c.core, &seq, &err) < 0)
                broken(r, "the checkpoint does not load", err_line(&err));
        if (seq)
                core_loaded(c.core, seq);
        c.seen = seq;
        if (store_reader_open(s, &reader, &err) < 0 ||
            store_reader_events(reader, seq, false, compare_event, &c, &err) < 0)
                broken(r, "(2) the stored events do not fold", err_line(&err));
        if (c.wrong)
                broken(r, "(2) stored events are not the ones that were committed",
                       fmt("%llu of them", (unsigned long long)c.wrong));
        if (c.seen != head)
                broken(r, "(2) the last stored event is not the head",
                       fmt("%llu, %llu", (unsigned long long)c.seen, (unsigned long long)head));
        _cleanup_(mem_freep) char *got = dump_of(c.core);
        if (strcmp(got, want) != 0)
                broken(r, "(3) checkpoint and events do not fold to the state", NULL);
        if (reader)
                store_reader_close(reader);
        core_destroy(c.core);
}

static void check_loaded(struct run *r, struct store *s, uint64_t head, const char *want)
{
        struct core *core = core_new();
        struct err err = { 0 };
        uint64_t loaded = 0;
        if (store_load(s, load_one, core, &loaded, &err) < 0)
                broken(r, "(3) a record does not load", err_line(&err));
        core_loaded(core, loaded);
        _cleanup_(mem_freep) char *got = dump_of(core);
        if (strcmp(got, want) != 0)
                broken(r, "(3) the records are not the fold of the events", NULL);
        if (loaded != head)
                broken(r, "(1) the store's heads differ", NULL);
        if (core_check(core, &err) < 0)
                broken(r, err.msg, err.detail);
        struct input in = { .kind = INPUT_START,
                            .head = head,
                            .now_ms = INT64_C(1767312000000),
                            .random = { 1, 2 } };
        core_step(core, &in);
        if (core_check(core, &err) < 0)
                broken(r, err.msg, err.detail);
        core_destroy(core);
}

/* ---- one cut ---- */

static int keep_house(struct store *s, size_t batch, struct err *err)
{
        if (batch % SEGMENT != CHECKPOINT_AT)
                return 0;
        int r = store_checkpoint(s, err);
        if (r == 0)
                r = store_prune(s, STORE_KEEP_LOG(KEEP_EVENTS), 300, NULL, err) < 0 ? -1 : 0;
        return r;
}

/* Commits the batches [first, end). acked: batches that the store acknowledged. False: it
 * failed. */
static bool commit_some(struct run *r, struct store *s, size_t first, size_t end, size_t *acked,
                        size_t *sent, struct err *err)
{
        for (size_t b = first; b < end; b++) {
                *sent = b + 1;
                if (store_commit(s, &r->history.batches.at[b]->commit, err) < 0)
                        return false;
                *acked = b + 1;
                if (keep_house(s, b, err) < 0)
                        return false;
        }
        return true;
}

/* A server's life from here: opens, commits a segment, closes in good order, unless the machine
 * dies. */
static void live(struct run *r, size_t segment, size_t *acked, size_t *sent)
{
        struct store *s = NULL;
        struct err err = { 0 };
        size_t first = segment * SEGMENT, end = first + SEGMENT;
        end = end < r->history.batches.len ? end : r->history.batches.len;
        *acked = *sent = first;
        if (store_open(r->url, true, &s, &err) < 0) {
                if (!lossy_is_dead())
                        broken(r, "the store does not open", err_line(&err));
                return;
        }
        if (!commit_some(r, s, first, end, acked, sent, &err) && !lossy_is_dead())
                broken(r, "a commit failed on a sound disk", err_line(&err));
        store_close(s);
}

static void check_recovered(struct run *r, size_t acked, size_t sent)
{
        struct store *s = NULL;
        struct err err = { 0 };
        if (store_open(r->url, true, &s, &err) < 0) {
                broken(r, "the store does not open after the power was lost", err_line(&err));
                return;
        }
        uint64_t head = store_head(s);
        ssize_t whole = batches_up_to(r, head);
        if (whole < (ssize_t)acked || whole > (ssize_t)sent)
                broken(
                    r,
                    whole < 0
                        ? "(1) half a batch came back"
                        : "(1) an acknowledged batch is gone, or one came back that was never sent",
                    fmt("%zd batches, %zu acknowledged, %zu sent", whole, acked, sent));
        else {
                r->longer += (size_t)whole > acked;
                check_loaded(r, s, head, r->dumps[whole]);
                check_folded(r, s, head, r->dumps[whole]);
                if (store_integrity(s, &err) < 0)
                        broken(r, "the store is not sound", err_line(&err));
                size_t end = sent + AFTERWARDS, done = 0, tried = 0;
                end = end < r->history.batches.len ? end : r->history.batches.len;
                /* (5) */
                if (!commit_some(r, s, sent > acked ? acked : sent, end, &done, &tried, &err))
                        broken(r, "(5) the next batches do not go through", err_line(&err));
        }
        store_close(s);
}

/* ---- the files ---- */

static const char *const file_names[] = { "berth.db", "berth.db-wal" };
struct files {
        struct str data[ARRAY_LEN(file_names)];
        bool there[ARRAY_LEN(file_names)];
};

static void files_take(struct run *r, struct files *f)
{
        for (size_t i = 0; i < ARRAY_LEN(file_names); i++) {
                const char *path = fmt("%s/%s", r->dir, file_names[i]);
                str_clear(&f->data[i]);
                f->there[i] = file_exists(path);
                must(!f->there[i] || file_read(path, SIZE_MAX, &f->data[i], NULL) == 0,
                     "the store's files can be read");
        }
}

static void files_put(struct run *r, const struct files *f)
{
        unlink(fmt("%s/berth.db-shm", r->dir));
        for (size_t i = 0; i < ARRAY_LEN(file_names); i++) {
                char path[PATH_MAX];
                snprintf(path, sizeof(path), "%s/%s", r->dir, file_names[i]);
                unlink(path);
                FILE *out = f->there[i] ? fopen(path, "we") : NULL;
                must(!f->there[i] ||
                         (out && fwrite(f->data[i].buf, 1, f->data[i].len, out) == f->data[i].len),
                     "the store's files can be written");
                if (out)
                        fclose(out);
        }
}

static void try_cut(struct run *r, const struct files *from, size_t segment, int64_t operation,
                    enum way way)
{
        char label[64];
        struct rng rng;
        size_t acked, sent;
        snprintf(label, sizeof(label), "%zu:%lld:%s", segment, (long long)operation,
                 way_names[way]);
        r->label = label;
        r->cuts++;
        files_put(r, from);
        lossy_cut(operation);
        live(r, segment, &acked, &sent);
        if (!lossy_is_dead())
                broken(r, "the run ended before its cut: it is not the same run twice", NULL);
        rng_seed(&rng, r->seed ^ (uint64_t)operation << 16 ^ segment);
        if (way == KILLED)
                lossy_forget();
        else
                lossy_power_loss(way == TORN ? &rng : NULL);
        lossy_cut(-1);
        check_recovered(r, acked, sent);
        lossy_forget();
}

/* ---- the run ---- */

struct choice {
        int64_t every;
        bool one;
        size_t segment;
        int64_t operation;
        enum way way;
};

static int64_t run_all(struct run *r, const struct choice *want)
{
        struct files before = { 0 }, after = { 0 };
        int64_t total = 0;
        files_take(r, &before);
        for (size_t segment = 0; segment * SEGMENT < r->history.batches.len && !r->failed;
             segment++) {
                size_t acked, sent;
                r->label = "none";
                files_put(r, &before);
                lossy_cut(INT64_MAX);
                live(r, segment, &acked, &sent);
                int64_t operations = lossy_operations();
                lossy_forget();
                files_take(r, &after);
                for (int64_t at = 0; at < operations && !r->failed; at++)
                        for (int way = 0; way < _WAYS && !r->failed; way++)
                                if (want->one ? segment == want->segment && at == want->operation &&
                                                    way == (int)want->way
                                              : (total + at + way) % want->every == 0)
                                        try_cut(r, &before, segment, at, (enum way)way);
                total += operations;
                struct files swap = before;
                before = after;
                after = swap;
        }
        for (size_t i = 0; i < ARRAY_LEN(file_names); i++) {
                str_fini(&before.data[i]);
                str_fini(&after.data[i]);
        }
        return total;
}

static int parse(int argc, char **argv, struct run *r, struct choice *want, uint64_t *events)
{
        for (int i = 1; i < argc; i++) {
                char way[16];
                long long operation;
                const char *v = i + 1 < argc ? argv[++i] : "";
                if (strcmp(argv[i - 1], "--every") == 0 && (want->every = atoll(v)) > 0)
                        continue;
                if (strcmp(argv[i - 1], "--seed") == 0 && (r->seed = strtoull(v, NULL, 10)) > 0)
                        continue;
                if (strcmp(argv[i - 1], "--events") == 0 && (*events = strtoull(v, NULL, 10)) > 0)
                        continue;
                if (strcmp(argv[i - 1], "--cut") == 0 &&
                    sscanf(v, "%zu:%lld:%15s", &want->segment, &operation, way) == 3) {
                        want->operation = operation;
                        for (int w = 0; w < _WAYS; w++)
                                if (strcmp(way, way_names[w]) == 0) {
                                        want->way = (enum way)w;
                                        want->one = true;
                                }
                        if (want->one)
                                continue;
                }
                fprintf(stderr, "usage: powerloss [--every N] [--cut "
                                "SEGMENT:OPERATION:dropped|torn|killed] [--seed S] [--events N]\n");
                return -1;
        }
        return 0;
}

int main(int argc, char **argv)
{
        struct run r = { .seed = 1 };
        struct choice want = { .every = 40 };
        uint64_t events = 2000;
        if (parse(argc, argv, &r, &want, &events) < 0)
                return 2;
        const char *tmp = getenv("TMPDIR");
        log_setup(LOG_ERROR, LOG_FORMAT_LOGFMT, 2); /* a dying disk gives many warnings */
        snprintf(r.dir, sizeof(r.dir), "%s/powerloss-XXXXXX", tmp ? tmp : "/tmp");
        must(mkdtemp(r.dir) != NULL, "a temporary directory");
        snprintf(r.url, sizeof(r.url), "sqlite:%s/berth.db?vfs=lossy", r.dir);
        lossy_register();
        history_make(&r.history, r.seed, events);
        fold_history(&r);
        int64_t began = clock_mono_ns(), boundaries = run_all(&r, &want);
        if (!r.failed && !r.cuts)
                broken(&r, "no such cut", NULL);
        if (!r.failed)
                printf("ok - power lost %llu times (dropped, torn, killed) over %lld write "
                       "boundaries of a run of %llu events in %zu "
                       "batches; in %llu the "
                       "batch under way had made it\n",
                       (unsigned long long)r.cuts, (long long)boundaries,
                       (unsigned long long)r.history.events, r.history.batches.len,
                       (unsigned long long)r.longer);
        printf("1..1\n# %.1f s\n", (double)(clock_mono_ns() - began) / 1e9);
        for (size_t b = 0; b <= r.history.batches.len; b++)
                mem_free(r.dumps[b]);
        mem_free(r.dumps);
        history_fini(&r.history);
        dir_remove(r.dir, NULL);
        return r.failed ? 1 : 0;
}
