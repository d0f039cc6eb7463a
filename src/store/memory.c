/* store/memory.c: the store that forgets, with faults on demand.
 *
 * Events stand in an array (the first `skip` of them are pruned and their memory is free), records
 * in an array found through a hash map. One lock per disk guards all of it; a reader copies one
 * event at a time under the lock and calls back without it, so a callback may commit.
 */
#include "store/memory.h"

#include "base/array.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/str.h"
#include "store/store_ops.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPS 8192
#define MAX_BYTES (32u << 20)

struct memory_blob {
        char *data;
        size_t len;
};
struct memory_record {
        char *key;
        struct memory_blob value;
};

struct memory_kept {
        uint64_t seq;
        enum event_class class;
        struct memory_blob event;
};

struct memory_disk {
        pthread_mutex_t lock;
        bool open, away;
        int schema;
        uint64_t head, first; /* first: sequence of events.at[skip] */
        ARRAY(struct memory_blob) events;
        size_t skip;
        ARRAY(struct memory_kept) kept; /* events that left the log, of all classes, in order */
        ARRAY(struct memory_record) records;
        struct map by_key;
        uint64_t checkpoint_seq;
        ARRAY(struct memory_record) checkpoint; /* ordered by key */
        uint64_t fault_in;
        enum memory_fault fault;
};

struct memory_store {
        struct store base;
        struct memory_disk *disk;
        bool owns_disk;
};

struct memory_reader {
        struct store_reader base;
        struct memory_disk *disk;
        /* two: what is kept apart is read while an event of the log is being given */
        struct str buf, kept_buf;
};

static struct memory_store *self(struct store *s)
{
        return (struct memory_store *)s;
}

static struct map_key record_key(const void *ctx, uint32_t index)
{
        const struct memory_disk *d = ctx;
        const char *key = d->records.at[index].key;
        return (struct map_key){ key, strlen(key) };
}

/* Empty values get a byte of their own, since a NULL value means "remove". */
static struct memory_blob blob_copy(const void *data, size_t len)
{
        char *p = mem_must(len + 1);
        if (len > 0)
                memcpy(p, data, len);
        return (struct memory_blob){ p, len };
}

static int err_away(struct err *err)
{
        return err_set(err, ERR_UNAVAILABLE, .msg = "the store is away", .detail = "injected fault",
                       .hint = "send the same batch again");
}

static bool is_away(struct memory_disk *d)
{
        pthread_mutex_lock(&d->lock);
        bool away = d->away;
        pthread_mutex_unlock(&d->lock);
        return away;
}

/* ---- disk ---- */

struct memory_disk *memory_disk_create(void)
{
        struct memory_disk *d = mem_must(sizeof(*d));
        pthread_mutex_init(&d->lock, NULL);
        d->schema = STORE_SCHEMA_FIRST;
        d->first = 1;
        map_init(&d->by_key, record_key, d);
        return d;
}

static void checkpoint_clear(struct memory_disk *d)
{
        for (size_t i = 0; i < d->checkpoint.len; i++) {
                mem_free(d->checkpoint.at[i].key);
                mem_free(d->checkpoint.at[i].value.data);
        }
        array_clear(&d->checkpoint);
}

void memory_disk_destroy(struct memory_disk *d)
{
        must(!d->open, "a memory disk is destroyed after its store is closed");
        for (size_t i = d->skip; i < d->events.len; i++)
                mem_free(d->events.at[i].data);
        array_fini(&d->events);
        for (size_t i = 0; i < d->kept.len; i++)
                mem_free(d->kept.at[i].event.data);
        array_fini(&d->kept);
        for (size_t i = 0; i < d->records.len; i++) {
                mem_free(d->records.at[i].key);
                mem_free(d->records.at[i].value.data);
        }
        array_fini(&d->records);
        map_fini(&d->by_key);
        checkpoint_clear(d);
        array_fini(&d->checkpoint);
        pthread_mutex_destroy(&d->lock);
        mem_free(d);
}

void memory_fail_commit(struct memory_disk *d, uint64_t nth, enum memory_fault fault)
{
        pthread_mutex_lock(&d->lock);
        d->fault_in = nth;
        d->fault = fault;
        pthread_mutex_unlock(&d->lock);
}

void memory_set_away(struct memory_disk *d, bool away)
{
        pthread_mutex_lock(&d->lock);
        d->away = away;
        pthread_mutex_unlock(&d->lock);
}

void memory_set_schema(struct memory_disk *d, int schema)
{
        pthread_mutex_lock(&d->lock);
        d->schema = schema;
        pthread_mutex_unlock(&d->lock);
}

/* ---- open and close ---- */

static int disk_claim(struct memory_disk *d, struct err *err)
{
        int r = 0;
        pthread_mutex_lock(&d->lock);
        if (d->away)
                r = err_away(err);
        else if (d->open)
                r = err_set(err, ERR_CONFLICT, .msg = "the store is in use",
                            .detail = "held by this process",
                            .hint = "close the store that has it first");
        else if (d->schema > STORE_SCHEMA)
                r = store_err_newer(err, d->schema);
        else
                d->open = true;
        pthread_mutex_unlock(&d->lock);
        return r;
}

int memory_open(struct memory_disk *d, struct store **ret_store, struct err *err)
{
        int r = disk_claim(d, err);
        if (r < 0)
                return r;
        struct memory_store *s = mem_must(sizeof(*s));
        s->base.ops = &memory_ops;
        s->base.limits =
            (struct store_limits){ .max_ops = MAX_OPS, .max_bytes = MAX_BYTES, .in_flight = 4 };
        s->base.schema = d->schema;
        s->base.head = d->head;
        s->disk = d;
        *ret_store = &s->base;
        return 0;
}

static int open_own(const char *rest, bool create _unused_, struct store **ret_store,
                    struct err *err)
{
        if (*rest)
                return err_set(err, ERR_INVALID, .msg = "a store in memory has no name",
                               .detail = fmt("\"memory:%s\"", rest), .hint = "use memory: alone");
        struct memory_disk *d = memory_disk_create();
        int r = memory_open(d, ret_store, err);
        if (r < 0)
                memory_disk_destroy(d);
        else
                self(*ret_store)->owns_disk = true;
        return r;
}

static void close_store(struct store *base)
{
        struct memory_store *s = self(base);
        pthread_mutex_lock(&s->disk->lock);
        s->disk->open = false;
        pthread_mutex_unlock(&s->disk->lock);
        if (s->owns_disk)
                memory_disk_destroy(s->disk);
        mem_free(s);
}

/* ---- commit ---- */

static void record_remove(struct memory_disk *d, const char *key)
{
        uint32_t i = map_get(&d->by_key, key, strlen(key)), last = (uint32_t)d->records.len - 1;
        if (i == MAP_NONE)
                return;
        map_remove(&d->by_key, i);
        mem_free(d->records.at[i].key);
        mem_free(d->records.at[i].value.data);
        if (i != last) {
                map_remove(&d->by_key, last);
                d->records.at[i] = d->records.at[last];
        }
        d->records.len--;
        if (i != last)
                map_put(&d->by_key, i);
}

static void record_put(struct memory_disk *d, const struct store_record *r)
{
        uint32_t i = map_get(&d->by_key, r->key, strlen(r->key));
        if (i != MAP_NONE) {
                mem_free(d->records.at[i].value.data);
                d->records.at[i].value = blob_copy(r->data, r->len);
                return;
        }
        i = (uint32_t)d->records.len;
        *array_push(&d->records) =
            (struct memory_record){ mem_strdup(r->key), blob_copy(r->data, r->len) };
        map_put(&d->by_key, i);
}

static bool holds_last_event(const struct memory_disk *d, const struct store_batch *b)
{
        if (b->n_events == 0 || d->head != b->new_head || d->events.len == d->skip ||
            MUTANT(commit_resent_refused))
                return false;
        const struct memory_blob *stored = &d->events.at[d->events.len - 1];
        const struct store_event *last = &b->events[b->n_events - 1];
        return stored->len == last->len &&
               (last->len == 0 || memcmp(stored->data, last->data, last->len) == 0);
}

static int commit_locked(struct memory_disk *d, const struct store_batch *b, struct err *err)
{
        if (d->away)
                return err_away(err);
        enum memory_fault fault = MEMORY_FAULT_NONE;
        if (d->fault_in > 0 && --d->fault_in == 0)
                fault = d->fault;
        if (fault == MEMORY_FAULT_BEFORE)
                return err_away(err);
        if (d->head != b->expected_head && !MUTANT(commit_applied_twice) &&
            !MUTANT(head_not_compared))
                return holds_last_event(d, b) ? 0
                                              : store_err_conflict(err, b->expected_head, d->head);
        for (size_t i = 0; i < b->n_events; i++)
                *array_push(&d->events) = blob_copy(b->events[i].data, b->events[i].len);
        for (size_t i = 0; i < b->n_records; i++) {
                if (b->records[i].data)
                        record_put(d, &b->records[i]);
                else
                        record_remove(d, b->records[i].key);
        }
        if (b->schema > d->schema)
                d->schema = b->schema;
        d->head = b->new_head;
        return fault == MEMORY_FAULT_AFTER ? err_away(err) : 0;
}

static int commit(struct store *base, const struct store_batch *b, const uint64_t *hashes _unused_,
                  struct err *err)
{
        struct memory_disk *d = self(base)->disk;
        pthread_mutex_lock(&d->lock);
        int r = commit_locked(d, b, err);
        if (r == 0) /* after a fault the head is what the store last heard of, as with a real one */
                base->head = d->head;
        pthread_mutex_unlock(&d->lock);
        return r;
}

/* ---- load, checkpoint, prune ---- */

static int by_key(const void *a, const void *b)
{
        const struct memory_record *x = a, *y = b;
        return strcmp(x->key, y->key);
}

static int give(const struct memory_record *records, size_t n, store_record_fn fn, void *ctx,
                struct err *err)
{
        for (size_t i = 0; i < n; i++) {
                struct store_record r = { records[i].key, records[i].value.data,
                                          records[i].value.len };
                int rc = fn(ctx, &r, err);
                if (rc < 0)
                        return rc;
        }
        return 0;
}

static int load(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_head,
                struct err *err)
{
        struct memory_disk *d = self(base)->disk;
        if (is_away(d))
                return err_away(err);
        /* Only this thread changes records, so the lock is not held while fn runs. */
        _cleanup_(mem_freep) struct memory_record *sorted =
            mem_must((d->records.len + 1) * sizeof(*sorted));
        for (size_t i = 0; i < d->records.len; i++)
                sorted[i] = d->records.at[i];
        qsort(sorted, d->records.len, sizeof(*sorted), by_key);
        int r = give(sorted, d->records.len, fn, ctx, err);
        if (r < 0)
                return r;
        base->head = d->head;
        if (ret_head)
                *ret_head = d->head;
        return 0;
}

static int seed(struct store *base, uint64_t head, struct err *err)
{
        struct memory_disk *d = self(base)->disk;
        if (is_away(d))
                return err_away(err);
        d->head = head;
        base->head = head;
        d->first = head + 1;
        return 0;
}

static int checkpoint(struct store *base, struct err *err)
{
        struct memory_disk *d = self(base)->disk;
        pthread_mutex_lock(&d->lock);
        bool away = d->away;
        if (!away) {
                checkpoint_clear(d);
                for (size_t i = 0; i < d->records.len; i++) {
                        const struct memory_record *r = &d->records.at[i];
                        *array_push(&d->checkpoint) =
                            (struct memory_record){ mem_strdup(r->key),
                                                    blob_copy(r->value.data, r->value.len) };
                }
                if (d->checkpoint.len > 1)
                        qsort(d->checkpoint.at, d->checkpoint.len, sizeof(*d->checkpoint.at),
                              by_key);
                d->checkpoint_seq = d->head;
        }
        pthread_mutex_unlock(&d->lock);
        return away ? err_away(err) : 0;
}

static int load_checkpoint(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_seq,
                           struct err *err)
{
        struct memory_disk *d = self(base)->disk;
        if (is_away(d))
                return err_away(err);
        int r = give(d->checkpoint.at, d->checkpoint.len, fn, ctx, err);
        if (r < 0)
                return r;
        if (ret_seq)
                *ret_seq = d->checkpoint_seq;
        return 0;
}

static int prune(struct store *base, const struct store_retention *keep, uint64_t max_remove,
                 struct store_left *ret, struct err *err)
{
        struct memory_disk *d = self(base)->disk;
        if (store_wants_checkpoint(base, keep, d->checkpoint_seq, d->records.len)) {
                int r = checkpoint(base, err);
                if (r < 0)
                        return r;
        }
        pthread_mutex_lock(&d->lock);
        for (; !d->away && ret->left < max_remove && d->first < d->head;
             ret->left++, d->first++, d->skip++) {
                struct memory_blob *b = &d->events.at[d->skip];
                enum event_class class;
                if (!store_leaves(keep, d->head, d->checkpoint_seq,
                                  &(struct store_event){ d->first, b->data, b->len }, &class))
                        break;
                if (class == EVENT_LIFECYCLE)
                        mem_free(b->data);
                else
                        *array_push(&d->kept) = (struct memory_kept){ d->first, class, *b };
                b->data = NULL;
                ret->kept[class] += class != EVENT_LIFECYCLE;
        }
        if (d->skip > 1024 && d->skip > d->events.len / 2) {
                memmove(d->events.at, d->events.at + d->skip,
                        (d->events.len - d->skip) * sizeof(*d->events.at));
                d->events.len -= d->skip;
                d->skip = 0;
        }
        bool away = d->away;
        pthread_mutex_unlock(&d->lock);
        return away ? err_away(err) : 0;
}

/* ---- what is kept apart ---- */

static int kept_put(struct store *base, const struct store_kept *events, size_t n, struct err *err)
{
        struct memory_disk *d = self(base)->disk;
        if (is_away(d))
                return err_away(err);
        pthread_mutex_lock(&d->lock);
        for (size_t i = 0; i < n; i++)
                *array_push(&d->kept) =
                    (struct memory_kept){ events[i].event.seq, events[i].class,
                                          blob_copy(events[i].event.data, events[i].event.len) };
        pthread_mutex_unlock(&d->lock);
        return 0;
}

static int kept_count(struct store *base, enum event_class class, uint64_t *ret, struct err *err)
{
        struct memory_disk *d = self(base)->disk;
        if (is_away(d))
                return err_away(err);
        *ret = 0;
        for (size_t i = 0; i < d->kept.len; i++)
                *ret += d->kept.at[i].class == class;
        return 0;
}

static int64_t kept_remove(struct store *base, enum event_class class, uint64_t n, struct err *err)
{
        struct memory_disk *d = self(base)->disk;
        size_t left = 0;
        uint64_t removed = 0;
        if (is_away(d))
                return err_away(err);
        pthread_mutex_lock(&d->lock);
        for (size_t i = 0; i < d->kept.len; i++) {
                if (d->kept.at[i].class == class && removed < n) {
                        mem_free(d->kept.at[i].event.data);
                        removed++;
                } else
                        d->kept.at[left++] = d->kept.at[i];
        }
        d->kept.len = left;
        pthread_mutex_unlock(&d->lock);
        return (int64_t)removed;
}

static int integrity(struct store *base, struct err *err)
{
        struct memory_disk *d = self(base)->disk;
        if (d->first + (d->events.len - d->skip) != d->head + 1 || d->checkpoint_seq + 1 < d->first)
                return err_set(err, ERR_CORRUPT, .msg = "the store in memory lost events");
        if (d->kept.len && d->kept.at[d->kept.len - 1].seq >= d->first)
                return err_set(err, ERR_CORRUPT,
                               .msg = "the store in memory keeps events apart that are in its log");
        return 0;
}

/* ---- readers ---- */

static int reader_open(struct store *base, struct store_reader **ret_reader,
                       struct err *err _unused_)
{
        struct memory_reader *r = mem_must(sizeof(*r));
        r->base.ops = &memory_ops;
        r->disk = self(base)->disk;
        *ret_reader = &r->base;
        return 0;
}

static void reader_close(struct store_reader *base)
{
        struct memory_reader *r = (struct memory_reader *)base;
        str_fini(&r->buf);
        str_fini(&r->kept_buf);
        mem_free(r);
}

/* Copies event seq into the reader's buffer: 1, 0 if it is not there, or -ERR_UNAVAILABLE. Past the
 * pruned prefix *seq is moved to the first kept. */
static int reader_fetch(struct memory_reader *r, uint64_t *seq, bool forward, struct err *err)
{
        struct memory_disk *d = r->disk;
        int found = 0;
        pthread_mutex_lock(&d->lock);
        if (forward && *seq < d->first)
                *seq = d->first;
        if (d->away) {
                found = err_away(err);
        } else if (*seq >= d->first && *seq <= d->head) {
                const struct memory_blob *e = &d->events.at[d->skip + (*seq - d->first)];
                str_clear(&r->buf);
                str_add(&r->buf, e->data, e->len);
                found = 1;
        }
        pthread_mutex_unlock(&d->lock);
        return found;
}

static int reader_events(struct store_reader *base, uint64_t since, bool backwards,
                         store_event_fn fn, void *ctx, struct err *err)
{
        struct memory_reader *r = (struct memory_reader *)base;
        uint64_t seq = since + 1;
        if (backwards) {
                pthread_mutex_lock(&r->disk->lock);
                seq = since == 0 || since > r->disk->head ? r->disk->head : since - 1;
                pthread_mutex_unlock(&r->disk->lock);
        }
        for (;;) {
                int found = reader_fetch(r, &seq, !backwards, err);
                if (found <= 0)
                        return found;
                struct store_event e = { seq, str_c(&r->buf), r->buf.len };
                int rc = fn(ctx, &e, err);
                if (rc != 0)
                        return rc;
                seq = backwards ? seq - 1 : seq + 1;
        }
}

static int reader_event(struct store_reader *base, uint64_t seq, store_event_fn fn, void *ctx,
                        struct err *err)
{
        struct memory_reader *r = (struct memory_reader *)base;
        uint64_t at = seq;
        int found = reader_fetch(r, &at, false, err);
        if (found < 0)
                return found;
        if (found == 0)
                return store_err_no_event(err, seq);
        struct store_event e = { seq, str_c(&r->buf), r->buf.len };
        return fn(ctx, &e, err);
}

/* Copies the next one of this class after (or before) *at: 1; 0 if there is none. */
static int fetch_kept(struct memory_reader *r, enum event_class class, bool backwards, uint64_t *at,
                      struct err *err)
{
        struct memory_disk *d = r->disk;
        const struct memory_kept *found = NULL;
        pthread_mutex_lock(&d->lock);
        bool away = d->away;
        for (size_t i = 0; i < d->kept.len; i++) {
                const struct memory_kept *k = &d->kept.at[i];
                if (k->class != class || (backwards ? k->seq >= *at : k->seq <= *at))
                        continue;
                found = k;
                if (!backwards)
                        break;
        }
        if (found) {
                *at = found->seq;
                str_clear(&r->kept_buf);
                str_add(&r->kept_buf, found->event.data, found->event.len);
        }
        pthread_mutex_unlock(&d->lock);
        return away ? err_away(err) : found != NULL;
}

static int reader_kept(struct store_reader *base, enum event_class class, uint64_t since,
                       bool backwards, size_t max, store_event_fn fn, void *ctx, struct err *err)
{
        struct memory_reader *r = (struct memory_reader *)base;
        uint64_t at = backwards && since == 0 ? UINT64_MAX : since;
        int found = 0, rc = 0;
        for (size_t i = 0;
             i < max && rc == 0 && (found = fetch_kept(r, class, backwards, &at, err)) > 0; i++)
                rc =
                    fn(ctx, &(struct store_event){ at, str_c(&r->kept_buf), r->kept_buf.len }, err);
        return found < 0 ? found : rc;
}

/* A copy under the lock: the store's own thread may commit while fn runs. */
static int reader_records(struct store_reader *base, store_record_fn fn, void *ctx,
                          uint64_t *ret_head, struct err *err)
{
        struct memory_disk *d = ((struct memory_reader *)base)->disk;
        ARRAY(struct memory_record) copy = { 0 };
        if (is_away(d))
                return err_away(err);
        pthread_mutex_lock(&d->lock);
        for (size_t i = 0; i < d->records.len; i++) {
                const struct memory_record *r = &d->records.at[i];
                *array_push(&copy) =
                    (struct memory_record){ mem_strdup(r->key),
                                            blob_copy(r->value.data, r->value.len) };
        }
        uint64_t head = d->head;
        pthread_mutex_unlock(&d->lock);
        int r = give(copy.at, copy.len, fn, ctx, err);
        for (size_t i = 0; i < copy.len; i++) {
                mem_free(copy.at[i].key);
                mem_free(copy.at[i].value.data);
        }
        array_fini(&copy);
        if (r >= 0)
                *ret_head = head;
        return r < 0 ? r : 0;
}

static uint64_t reader_first(struct store_reader *base)
{
        struct memory_disk *d = ((struct memory_reader *)base)->disk;
        pthread_mutex_lock(&d->lock);
        uint64_t first = d->first <= d->head ? d->first : 0;
        pthread_mutex_unlock(&d->lock);
        return first;
}

const struct store_ops memory_ops = {
        .scheme = "memory",
        .open = open_own,
        .close = close_store,
        .load = load,
        .commit = commit,
        .seed = seed,
        .prune = prune,
        .kept_put = kept_put,
        .kept_count = kept_count,
        .kept_remove = kept_remove,
        .checkpoint = checkpoint,
        .load_checkpoint = load_checkpoint,
        .integrity = integrity,
        .reader_open = reader_open,
        .reader_close = reader_close,
        .reader_events = reader_events,
        .reader_event = reader_event,
        .reader_records = reader_records,
        .reader_first = reader_first,
        .reader_kept = reader_kept,
};
