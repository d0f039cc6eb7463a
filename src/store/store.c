/* store/store.c: the door. Finds the store for an url, checks batches, counts. */
#include "store/store.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store_ops.h"
#include <stdlib.h>
#include <string.h>

static const struct store_ops *const stores[] = { &sqlite_ops, &memory_ops, &etcd_ops,
                                                  &backup_ops };

/* Length of "name" in "name:rest", 0 for a bare path. "./a:b" and "/a:b" are paths. */
static size_t scheme_len(const char *url)
{
        size_t n = 0;
        while ((url[n] >= 'a' && url[n] <= 'z') || (n > 0 && url[n] >= '0' && url[n] <= '9'))
                n++;
        return url[n] == ':' ? n : 0;
}

static const struct store_ops *ops_of(const char *url, const char **ret_rest, struct err *err)
{
        if (str_empty(url)) {
                err_set(err, ERR_INVALID, .msg = "the store's address is empty",
                        .hint = "give a path, e.g. /var/lib/berth/berth.db");
                return NULL;
        }
        size_t n = scheme_len(url);
        *ret_rest = n ? url + n + 1 : url;
        if (n == 0)
                return &sqlite_ops;
        for (size_t i = 0; i < ARRAY_LEN(stores); i++)
                if (strlen(stores[i]->scheme) == n && memcmp(stores[i]->scheme, url, n) == 0)
                        return stores[i];
        err_set(err, ERR_INVALID, .msg = "unknown kind of store",
                .detail = fmt("\"%.*s:\" in \"%s\"", (int)n, url, url),
                .hint = "use sqlite:/path/file.db, a bare path, etcd://host:2379,... or memory:");
        return NULL;
}

int store_open(const char *url, bool create, struct store **ret_store, struct err *err)
{
        const char *rest;
        const struct store_ops *ops = ops_of(url, &rest, err);
        return ops ? ops->open(rest, create, ret_store, err) : -ERR_INVALID;
}

int store_open_moment(const char *url, struct store **ret_store, struct err *err)
{
        const char *rest;
        const struct store_ops *ops = ops_of(url, &rest, err);
        if (!ops)
                return -ERR_INVALID;
        if (!ops->open_moment)
                return err_set(
                    err, ERR_UNSUPPORTED, .msg = "a store in memory cannot be read from outside",
                    .detail = url, .hint = "use a server with an embedded store or etcd");
        return ops->open_moment(rest, ret_store, err);
}

int store_restore_open(const char *url, bool force, struct store **ret_store, struct err *err)
{
        const char *rest;
        const struct store_ops *ops = ops_of(url, &rest, err);
        if (!ops)
                return -ERR_INVALID;
        if (!ops->restore_open)
                return err_set(err, ERR_UNSUPPORTED, .msg = "nothing can be restored there",
                               .detail = url, .hint = "give a path, or etcd://host:2379,...");
        return ops->restore_open(rest, force, ret_store, err);
}

static void scratch_free(struct store *s)
{
        store_reader_close(TAKE_PTR(s->reader));
        mem_free(s->hashes);
        mem_free(s->slots);
        s->hashes = NULL;
        s->slots = NULL;
        s->n_slots = 0;
}

int store_restore_done(struct store *s, char **ret_aside, struct err *err)
{
        scratch_free(s);
        return s->ops->restore_done(s, ret_aside, err);
}

void store_close(struct store *s)
{
        if (!s)
                return;
        scratch_free(s);
        s->ops->close(s);
}

struct store_limits store_limits(const struct store *s)
{
        return s->limits;
}

struct store_stats store_stats(struct store *s)
{
        struct store_stats stats = { .commits = s->commits,
                                     .events = s->events,
                                     .records = s->records,
                                     .bytes = s->bytes,
                                     .last_commit_us = s->last_commit_us };
        for (int i = 0; i < EVENT_CLASSES; i++)
                stats.kept[i] = s->kept[i] - 1;
        return stats;
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

int store_lead(struct store *s, const char *who, int64_t ttl_seconds, int64_t wait_ms,
               struct err *err)
{
        return s->ops->lead ? s->ops->lead(s, who, ttl_seconds, wait_ms, err) : 0;
}

int64_t store_leads_until_ns(struct store *s)
{
        return s->ops->leads_until_ns ? s->ops->leads_until_ns(s) : INT64_MAX;
}

bool store_lead_is_over(struct store *s)
{
        return s->ops->lead_is_over && s->ops->lead_is_over(s);
}

int64_t store_proved_ns(struct store *s)
{
        return s->ops->proved_ns ? s->ops->proved_ns(s) : INT64_MAX;
}

void store_prove(struct store *s)
{
        if (s->ops->prove)
                s->ops->prove(s);
}

void store_on_proved(struct store *s, void (*fn)(void *ctx), void *ctx)
{
        s->on_proved_ctx = ctx;
        atomic_store(&s->on_proved, fn);
}

bool store_is_shared(const struct store *s)
{
        return s->ops->lead != NULL;
}

void store_unlead(struct store *s)
{
        if (s->n_pending && s->ops->take_back)
                s->ops->take_back(s);
        s->n_pending = 0;
        if (s->ops->unlead)
                s->ops->unlead(s);
}

int64_t store_led_term(const struct store *s)
{
        return s->ops->led_term ? s->ops->led_term(s) : 0;
}

void store_supersede(struct store *s, int64_t term)
{
        if (s->ops->supersede)
                s->ops->supersede(s, term);
}

int store_follow(struct store *s, int64_t wait_ms, struct store_news *news, struct err *err)
{
        if (!s->ops->follow)
                return err_set(
                    err, ERR_UNSUPPORTED,
                    .msg = "this store has one server only: there is nobody to be followed");
        return s->ops->follow(s, wait_ms, news, err);
}

void store_follow_end(struct store *s)
{
        if (s->ops->follow_end)
                s->ops->follow_end(s);
}

void store_strange(struct store *s, store_strange_fn fn, void *ctx)
{
        if (s->ops->strange)
                s->ops->strange(s, fn, ctx);
}

void store_announce(struct store *s, const char *name, const char *text)
{
        if (s->ops->announce)
                s->ops->announce(s, name, text);
}

void store_each_server(struct store *s, void (*fn)(void *ctx, const char *name, const char *text),
                       void *ctx)
{
        if (s->ops->each_server)
                s->ops->each_server(s, fn, ctx);
}

void store_remember_begin(struct store *s)
{
        if (s->ops->remember)
                s->ops->remember(s, -1, NULL, 0);
}

void store_remember(struct store *s, const struct store_record *record)
{
        if (s->ops->remember)
                s->ops->remember(s, 0, record, 0);
}

void store_remember_end(struct store *s, uint64_t head)
{
        if (s->ops->remember)
                s->ops->remember(s, 1, NULL, head);
}

/* ---- commit ---- */

int store_err_only_read(struct err *err)
{
        return err_set(err, ERR_CONFLICT, .msg = "this store is only read",
                       .hint = "nothing was changed");
}

/* A batch that breaks the contract is a bug of the caller, never of a user: the words say what, the
 * code is ERR_INTERNAL. */
static int batch_bug(struct err *err, const char *detail)
{
        return err_set(err, ERR_INTERNAL, .msg = "a batch for the store is malformed",
                       .detail = detail, .hint = "nothing was written; please report this");
}

static int check_events(const struct store_batch *b, size_t *bytes, struct err *err)
{
        if (b->new_head > INT64_MAX || b->new_head < b->expected_head ||
            b->new_head - b->expected_head != b->n_events)
                return batch_bug(err, fmt("%zu events between head %llu and %llu", b->n_events,
                                          (unsigned long long)b->expected_head,
                                          (unsigned long long)b->new_head));
        for (size_t i = 0; i < b->n_events; i++) {
                const struct store_event *e = &b->events[i];
                if (e->seq != b->expected_head + 1 + i)
                        return batch_bug(err, fmt("event %zu has sequence %llu, expected %llu", i,
                                                  (unsigned long long)e->seq,
                                                  (unsigned long long)(b->expected_head + 1 + i)));
                if (!e->data && e->len > 0)
                        return batch_bug(err, fmt("event %llu has a length and no data",
                                                  (unsigned long long)e->seq));
                *bytes += e->len;
        }
        return 0;
}

/* An empty table for n keys: slots hold a record's position + 1, at most half of them are in use.
 * Returns the mask of a slot's number. */
static size_t keys_begin(struct store *s, size_t n)
{
        size_t slots = 16;
        while (slots < 2 * n)
                slots *= 2;
        if (s->n_slots < slots) {
                s->hashes = mem_must_resize(s->hashes, slots / 2 * sizeof(*s->hashes));
                s->slots = mem_must_resize(s->slots, slots * sizeof(*s->slots));
                s->n_slots = slots;
        }
        memset(s->slots, 0, slots * sizeof(*s->slots));
        return slots - 1;
}

static bool key_is_new(struct store *s, const struct store_batch *b, size_t i, size_t mask)
{
        size_t at = s->hashes[i] & mask;
        for (; s->slots[at]; at = (at + 1) & mask) {
                size_t other = s->slots[at] - 1;
                if (s->hashes[other] == s->hashes[i] &&
                    strcmp(b->records[other].key, b->records[i].key) == 0)
                        return false;
        }
        s->slots[at] = (uint32_t)i + 1;
        return true;
}

static int check_records(struct store *s, const struct store_batch *b, size_t *bytes,
                         struct err *err)
{
        size_t mask = keys_begin(s, b->n_records);
        for (size_t i = 0; i < b->n_records; i++) {
                const struct store_record *r = &b->records[i];
                size_t key_bytes = r->key ? strnlen(r->key, STORE_MAX_KEY_BYTES + 1) : 0;
                if (key_bytes == 0 || key_bytes > STORE_MAX_KEY_BYTES)
                        return batch_bug(
                            err, fmt("record %zu has a key of %zu bytes, allowed are 1 to %d", i,
                                     key_bytes, STORE_MAX_KEY_BYTES));
                if (!r->data && r->len > 0)
                        return batch_bug(err, fmt("record %s has a length and no data", r->key));
                *bytes += key_bytes + r->len;
                s->hashes[i] = hash64(r->key, key_bytes);
                if (!key_is_new(s, b, i, mask))
                        return batch_bug(err, fmt("key %s is there twice", r->key));
        }
        return 0;
}

static int check_batch(struct store *s, const struct store_batch *batch, size_t *bytes,
                       struct err *err)
{
        size_t ops = batch->n_events + batch->n_records;
        if (!s->ops->commit && !s->ops->submit)
                return store_err_only_read(err);
        if (ops > s->limits.max_ops)
                return err_set(err, ERR_LIMIT, .msg = "a batch is too large for the store",
                               .detail =
                                   fmt("%zu operations, the limit is %zu", ops, s->limits.max_ops));
        int r = check_events(batch, bytes, err);
        if (r < 0)
                return r;
        s->checked = NULL;
        r = check_records(s, batch, bytes, err);
        if (r < 0)
                return r;
        s->checked = batch;
        if (*bytes > s->limits.max_bytes)
                return err_set(err, ERR_LIMIT, .msg = "a batch is too large for the store",
                               .detail =
                                   fmt("%zu bytes, the limit is %zu", *bytes, s->limits.max_bytes));
        return 0;
}

static struct store_pending *pending_at(struct store *s, size_t i)
{
        return &s->pending[(s->first_pending + i) % STORE_IN_FLIGHT_MAX];
}

static bool is_empty(const struct store_batch *b)
{
        return b->n_events + b->n_records == 0;
}

int store_submit(struct store *s, const struct store_batch *batch, struct err *err)
{
        size_t bytes = 0, max = s->limits.in_flight ? s->limits.in_flight : 1;
        if (s->n_pending >= max || s->n_pending >= STORE_IN_FLIGHT_MAX)
                return batch_bug(err, fmt("%zu are under way already", s->n_pending));
        if (s->n_pending &&
            pending_at(s, s->n_pending - 1)->batch->new_head != batch->expected_head)
                return batch_bug(
                    err, fmt("it expects head %llu, and the one before it sets %llu",
                             (unsigned long long)batch->expected_head,
                             (unsigned long long)pending_at(s, s->n_pending - 1)->batch->new_head));
        int r = check_batch(s, batch, &bytes, err);
        if (r == 0 && s->ops->submit && !is_empty(batch))
                r = s->ops->submit(s, batch, err);
        if (r == 0)
                s->pending[(s->first_pending + s->n_pending++) % STORE_IN_FLIGHT_MAX] =
                    (struct store_pending){ batch, bytes, clock_mono_ns() };
        return r < 0 ? r : 0;
}

/* A store that does one at a time does it when it is asked for the outcome. */
static int commit_now(struct store *s, const struct store_batch *batch, struct err *err)
{
        size_t bytes = 0;
        int r = s->checked == batch ? 0 : check_batch(s, batch, &bytes, err);
        s->checked = NULL; /* the next batch may lie at the same place */
        if (r == 0)
                r = s->ops->commit(s, batch, s->hashes, err);
        return r < 0 ? r : 1;
}

int store_settle(struct store *s, int64_t wait_ms, struct err *err)
{
        if (s->n_pending == 0)
                return 0;
        const struct store_pending p = *pending_at(s, 0);
        int r;
        if (is_empty(p.batch)) /* nothing to write: nothing is written (A6) */
                r = p.batch->expected_head == s->head
                        ? 1
                        : store_err_conflict(err, p.batch->expected_head, s->head);
        else
                r = s->ops->submit ? s->ops->settle(s, wait_ms, err) : commit_now(s, p.batch, err);
        if (r == 0)
                return 0;
        if (r < 0) {
                if (s->ops->take_back)
                        s->ops->take_back(s);
                s->n_pending = 0;
                return r;
        }
        s->first_pending = (s->first_pending + 1) % STORE_IN_FLIGHT_MAX;
        s->n_pending--;
        if (p.batch->schema > s->schema)
                s->schema = p.batch->schema;
        if (!is_empty(p.batch)) {
                s->last_commit_us = (clock_mono_ns() - p.since_ns) / 1000;
                s->commits++;
                s->events += p.batch->n_events;
                s->records += p.batch->n_records;
                s->bytes += p.bytes;
        }
        return 1;
}

size_t store_in_flight(const struct store *s)
{
        return s->n_pending;
}

void store_on_settled(struct store *s, void (*fn)(void *ctx), void *ctx)
{
        s->on_settled_ctx = ctx;
        s->on_settled = fn;
}

int store_commit(struct store *s, const struct store_batch *batch, struct err *err)
{
        if (s->n_pending)
                return batch_bug(err, fmt("%zu others are under way", s->n_pending));
        int r = store_submit(s, batch, err);
        while (r == 0)
                r = store_settle(s, -1, err);
        return r < 0 ? r : 0;
}

/* ---- the rest is passed on ---- */

int store_seed(struct store *s, uint64_t head, struct err *err)
{
        if (!s->ops->seed)
                return store_err_only_read(err);
        if (s->head != 0 || head > INT64_MAX)
                return store_err_in_use(err, s->head);
        return head ? s->ops->seed(s, head, err) : 0;
}

int store_shrink(struct store *s, struct err *err)
{
        return s->ops->shrink ? s->ops->shrink(s, err) : 0;
}

int store_checkpoint(struct store *s, struct err *err)
{
        return !s->ops->checkpoint ? store_err_only_read(err) : s->ops->checkpoint(s, err);
}

int store_load_checkpoint(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_seq,
                          struct err *err)
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

int store_reader_records(struct store_reader *r, store_record_fn fn, void *ctx, uint64_t *ret_head,
                         struct err *err)
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
                       .detail = fmt("expected %llu, found %llu", (unsigned long long)expected,
                                     (unsigned long long)head),
                       .hint = "another process wrote to the store; load it again");
}

int store_err_in_use(struct err *err, uint64_t head)
{
        return err_set(err, ERR_CONFLICT, .msg = "the store is not empty",
                       .detail = fmt("its head is %llu", (unsigned long long)head),
                       .hint = "copy into a new one");
}

int store_err_newer(struct err *err, int schema)
{
        return err_set(err, ERR_CONFLICT, .msg = "the store was written by a newer berth",
                       .detail = fmt("schema %d, this binary knows %d", schema, STORE_SCHEMA),
                       .hint = "upgrade this server, or restore a backup");
}

int store_err_not_empty(struct err *err, const char *where, uint64_t head)
{
        return err_set(err, ERR_CONFLICT, .msg = "there is a store already",
                       .detail = fmt("%s, its head is %llu", where, (unsigned long long)head),
                       .hint = "restore to another path or prefix, or give --force, which keeps "
                               "the old one aside");
}

int store_err_no_event(struct err *err, uint64_t seq)
{
        return err_set(err, ERR_NOT_FOUND, .msg = "no such event",
                       .detail = fmt("sequence %llu", (unsigned long long)seq),
                       .hint = "it may have been removed by retention");
}
