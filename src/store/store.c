/* store/store.c: the door. Finds the store for an url, checks batches, counts. */
#include "store/store.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store_ops.h"
#include <stdlib.h>
#include <string.h>

static const struct store_ops *const stores[] = { &sqlite_ops, &memory_ops, &etcd_ops };

/* Length of "name" in "name:rest", 0 for a bare path. "./a:b" and "/a:b" are paths. */
static size_t scheme_len(const char *url)
{
        size_t n = 0;
        while ((url[n] >= 'a' && url[n] <= 'z') || (n > 0 && url[n] >= '0' && url[n] <= '9'))
                n++;
        return url[n] == ':' ? n : 0;
}

int store_open(const char *url, bool create, struct store **ret_store, struct err *err)
{
        if (str_empty(url))
                return err_set(err, ERR_INVALID, .msg = "the store's address is empty",
                               .hint = "give a path, e.g. /var/lib/berth/berth.db");
        size_t n = scheme_len(url);
        if (n == 0)
                return sqlite_ops.open(url, create, ret_store, err);
        for (size_t i = 0; i < ARRAY_LEN(stores); i++)
                if (strlen(stores[i]->scheme) == n && memcmp(stores[i]->scheme, url, n) == 0)
                        return stores[i]->open(url + n + 1, create, ret_store, err);
        return err_set(err, ERR_INVALID, .msg = "unknown kind of store", .detail = fmt("\"%.*s:\" in \"%s\"", (int)n, url, url),
                       .hint = "use sqlite:/path/file.db, a bare path, etcd://host:2379,... or memory:");
}

void store_close(struct store *s)
{
        if (!s)
                return;
        mem_free(s->sorted);
        s->sorted = NULL;
        s->ops->close(s);
}

struct store_limits store_limits(const struct store *s)
{
        return s->limits;
}

struct store_stats store_stats(struct store *s)
{
        return (struct store_stats){
                .commits = s->commits, .events = s->events, .records = s->records, .bytes = s->bytes, .last_commit_us = s->last_commit_us
        };
}

uint64_t store_head(struct store *s)
{
        return s->head;
}
int store_schema(struct store *s)
{
        return s->schema;
}

int store_load(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_head, struct err *err)
{
        return s->ops->load(s, fn, ctx, ret_head, err);
}

int store_lead(struct store *s, const char *who, int64_t ttl_seconds, int64_t wait_ms, struct err *err)
{
        return s->ops->lead ? s->ops->lead(s, who, ttl_seconds, wait_ms, err) : 0;
}

int64_t store_leads_until_ns(struct store *s)
{
        return s->ops->leads_until_ns ? s->ops->leads_until_ns(s) : INT64_MAX;
}

bool store_is_shared(const struct store *s)
{
        return s->ops->lead != NULL;
}

/* ---- commit ---- */

/* A batch that breaks the contract is a bug of the caller, never of a user: the words say what, the code is ERR_INTERNAL. */
static int batch_bug(struct err *err, const char *detail)
{
        return err_set(err, ERR_INTERNAL, .msg = "a batch for the store is malformed", .detail = detail,
                       .hint = "nothing was written; please report this");
}

static int by_key(const void *a, const void *b)
{
        const struct store_record *const *x = a, *const *y = b;
        return strcmp((*x)->key, (*y)->key);
}

static int check_events(const struct store_batch *b, size_t *bytes, struct err *err)
{
        if (b->new_head > INT64_MAX || b->new_head < b->expected_head || b->new_head - b->expected_head != b->n_events)
                return batch_bug(err, fmt("%zu events between head %llu and %llu", b->n_events, (unsigned long long)b->expected_head,
                                          (unsigned long long)b->new_head));
        for (size_t i = 0; i < b->n_events; i++) {
                const struct store_event *e = &b->events[i];
                if (e->seq != b->expected_head + 1 + i)
                        return batch_bug(err, fmt("event %zu has sequence %llu, expected %llu", i, (unsigned long long)e->seq,
                                                  (unsigned long long)(b->expected_head + 1 + i)));
                if (!e->data && e->len > 0)
                        return batch_bug(err, fmt("event %llu has a length and no data", (unsigned long long)e->seq));
                *bytes += e->len;
        }
        return 0;
}

static int check_records(struct store *s, const struct store_batch *b, size_t *bytes, struct err *err)
{
        if (s->sorted_cap < b->n_records) {
                s->sorted = mem_must_resize(s->sorted, b->n_records * sizeof(*s->sorted));
                s->sorted_cap = b->n_records;
        }
        for (size_t i = 0; i < b->n_records; i++) {
                const struct store_record *r = &b->records[i];
                size_t key_bytes = r->key ? strnlen(r->key, STORE_MAX_KEY_BYTES + 1) : 0;
                if (key_bytes == 0 || key_bytes > STORE_MAX_KEY_BYTES)
                        return batch_bug(err,
                                         fmt("record %zu has a key of %zu bytes, allowed are 1 to %d", i, key_bytes, STORE_MAX_KEY_BYTES));
                if (!r->data && r->len > 0)
                        return batch_bug(err, fmt("record %s has a length and no data", r->key));
                *bytes += key_bytes + r->len;
                s->sorted[i] = r;
        }
        if (b->n_records > 1)
                qsort(s->sorted, b->n_records, sizeof(*s->sorted), by_key);
        for (size_t i = 1; i < b->n_records; i++)
                if (strcmp(s->sorted[i - 1]->key, s->sorted[i]->key) == 0)
                        return batch_bug(err, fmt("key %s is there twice", s->sorted[i]->key));
        return 0;
}

int store_commit(struct store *s, const struct store_batch *batch, struct err *err)
{
        size_t bytes = 0, ops = batch->n_events + batch->n_records;
        if (ops > s->limits.max_ops)
                return err_set(err, ERR_LIMIT, .msg = "a batch is too large for the store",
                               .detail = fmt("%zu operations, the limit is %zu", ops, s->limits.max_ops));
        int r = check_events(batch, &bytes, err);
        if (r < 0)
                return r;
        r = check_records(s, batch, &bytes, err);
        if (r < 0)
                return r;
        if (bytes > s->limits.max_bytes)
                return err_set(err, ERR_LIMIT, .msg = "a batch is too large for the store",
                               .detail = fmt("%zu bytes, the limit is %zu", bytes, s->limits.max_bytes));

        if (ops == 0) /* nothing to write: nothing is written (A6) */
                return batch->expected_head == s->head ? 0 : store_err_conflict(err, batch->expected_head, s->head);
        int64_t start_ns = clock_mono_ns();
        r = s->ops->commit(s, batch, s->sorted, err);
        if (r < 0)
                return r;
        s->last_commit_us = (clock_mono_ns() - start_ns) / 1000;
        s->commits++;
        s->events += batch->n_events;
        s->records += batch->n_records;
        s->bytes += bytes;
        return 0;
}

/* ---- the rest is passed on ---- */

int store_seed(struct store *s, uint64_t head, struct err *err)
{
        if (s->head != 0 || head > INT64_MAX)
                return err_set(err, ERR_CONFLICT, .msg = "the store is not empty",
                               .detail = fmt("its head is %llu", (unsigned long long)s->head), .hint = "copy into a new one");
        return head ? s->ops->seed(s, head, err) : 0;
}

int64_t store_prune(struct store *s, uint64_t keep_events, uint64_t max_remove, struct err *err)
{
        return s->ops->prune(s, keep_events, max_remove, err);
}

int store_checkpoint(struct store *s, struct err *err)
{
        return s->ops->checkpoint(s, err);
}

int store_load_checkpoint(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_seq, struct err *err)
{
        return s->ops->load_checkpoint(s, fn, ctx, ret_seq, err);
}

int store_integrity(struct store *s, struct err *err)
{
        return s->ops->integrity(s, err);
}

int store_reader_open(struct store *s, struct store_reader **ret_reader, struct err *err)
{
        return s->ops->reader_open(s, ret_reader, err);
}

void store_reader_close(struct store_reader *r)
{
        if (r)
                r->ops->reader_close(r);
}

int store_reader_events(struct store_reader *r, uint64_t since, bool backwards, store_event_fn fn, void *ctx, struct err *err)
{
        if (since > INT64_MAX) /* sequences fit into 63 bits: beyond them is the end */
                since = INT64_MAX;
        return r->ops->reader_events(r, since, backwards, fn, ctx, err);
}

int store_reader_event(struct store_reader *r, uint64_t seq, store_event_fn fn, void *ctx, struct err *err)
{
        if (seq == 0 || seq > INT64_MAX)
                return store_err_no_event(err, seq);
        return r->ops->reader_event(r, seq, fn, ctx, err);
}

int store_reader_records(struct store_reader *r, store_record_fn fn, void *ctx, uint64_t *ret_head, struct err *err)
{
        return r->ops->reader_records(r, fn, ctx, ret_head, err);
}

uint64_t store_reader_first(struct store_reader *r)
{
        return r->ops->reader_first(r);
}

/* ---- shared by the stores ---- */

int store_err_conflict(struct err *err, uint64_t expected, uint64_t head)
{
        return err_set(err, ERR_CONFLICT, .msg = "the store's head is not where it was left",
                       .detail = fmt("expected %llu, found %llu", (unsigned long long)expected, (unsigned long long)head),
                       .hint = "another process wrote to the store; load it again");
}

int store_err_newer(struct err *err, int schema)
{
        return err_set(err, ERR_CONFLICT, .msg = "the store was written by a newer berth",
                       .detail = fmt("schema %d, this binary knows %d", schema, STORE_SCHEMA),
                       .hint = "upgrade this server, or restore a backup");
}

int store_err_no_event(struct err *err, uint64_t seq)
{
        return err_set(err, ERR_NOT_FOUND, .msg = "no such event", .detail = fmt("sequence %llu", (unsigned long long)seq),
                       .hint = "it may have been removed by retention");
}

uint64_t store_prune_limit(uint64_t head, uint64_t checkpoint_seq, uint64_t keep_events)
{
        if (keep_events == 0)
                keep_events = 1;
        if (checkpoint_seq <= 1 || head <= keep_events)
                return 0;
        uint64_t by_count = head - keep_events;
        return by_count < checkpoint_seq ? by_count : checkpoint_seq - 1;
}

bool store_prune_wants_checkpoint(uint64_t head, uint64_t checkpoint_seq, uint64_t keep_events, uint64_t n_records)
{
        uint64_t now = store_prune_limit(head, checkpoint_seq, keep_events), then = store_prune_limit(head, head, keep_events);
        if (then <= now)
                return false;
        uint64_t gain = then - now;
        return gain >= keep_events / 2 && gain >= n_records;
}
