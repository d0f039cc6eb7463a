/* store/copy.c: one store into another, of whatever kind: events, records, checkpoint and head.
 *
 * In the order in which they came about, so that the copy keeps the promises of a store at its end:
 * what is kept apart, events of the log up to the checkpoint, its records, the checkpoint itself,
 * the events since, and then what the records became. Batches are as large as the target takes.
 */
#include "base/arena.h"
#include "base/array.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store.h"
#include <stdlib.h>
#include <string.h>

#define TOLD_EVERY 10000
#define KEPT_AT_ONCE 1000
#define KEPT_BYTES (1u << 20)

struct copying {
        struct store *to;
        struct store_limits limits;
        struct arena memory; /* of the batch being made */
        ARRAY(struct store_event) events;
        ARRAY(struct store_record) records;
        size_t bytes;
        int schema;                   /* of where it comes from */
        uint64_t copied, told, until; /* until: copy events up to this sequence */
        void (*progress)(void *ctx, uint64_t copied);
        void *ctx;
        /* keys of the checkpoint that the records no longer have, found by walking both in order */
        ARRAY(char *) old_keys;
        size_t next_old;
        bool remembering;
};

static int flush(struct copying *c, struct err *err)
{
        uint64_t head = store_head(c->to);
        struct store_batch b = { head,          head + c->events.len, c->events.at, c->events.len,
                                 c->records.at, c->records.len,       c->schema };
        int r = b.n_events + b.n_records ? store_commit(c->to, &b, err) : 0;
        c->copied += b.n_events + b.n_records;
        array_clear(&c->events);
        array_clear(&c->records);
        arena_reset(&c->memory);
        c->bytes = 0;
        if (r == 0 && c->progress && c->copied - c->told >= TOLD_EVERY)
                c->progress(c->ctx, c->told = c->copied);
        return r;
}

/* Room for one more of this many bytes. */
static int make_room(struct copying *c, size_t bytes, struct err *err)
{
        size_t ops = c->events.len + c->records.len;
        int r = ops && (ops + 1 > c->limits.max_ops || c->bytes + bytes > c->limits.max_bytes)
                    ? flush(c, err)
                    : 0;
        c->bytes += bytes;
        return r;
}

/* Never NULL: that would be a removal. */
static void *copy_of(struct copying *c, const void *data, size_t len)
{
        void *copy = arena_alloc(&c->memory, len + !len);
        if (len)
                memcpy(copy, data, len);
        return copy;
}

static int add_event(void *ctx, const struct store_event *e, struct err *err)
{
        struct copying *c = ctx;
        if (e->seq > c->until)
                return 1;
        int r = make_room(c, e->len, err);
        if (r == 0)
                *array_push(&c->events) =
                    (struct store_event){ e->seq, copy_of(c, e->data, e->len), e->len };
        return r;
}

static int flush_kept(struct copying *c, struct err *err)
{
        int r = store_keep_apart(c->to, c->events.at, c->events.len, err);
        c->copied += c->events.len;
        array_clear(&c->events);
        arena_reset(&c->memory);
        c->bytes = 0;
        return r;
}

/* Below the log's floor, which is `until`. */
static int add_kept(void *ctx, const struct store_event *e, struct err *err)
{
        struct copying *c = ctx;
        if (e->seq >= c->until)
                return 1;
        *array_push(&c->events) =
            (struct store_event){ e->seq, copy_of(c, e->data, e->len), e->len };
        c->bytes += e->len;
        return c->events.len < KEPT_AT_ONCE && c->bytes < KEPT_BYTES ? 0 : flush_kept(c, err);
}

static int add_record(struct copying *c, const char *key, const void *data, size_t len,
                      struct err *err)
{
        int r = make_room(c, strlen(key) + len, err);
        if (r == 0)
                *array_push(&c->records) =
                    (struct store_record){ arena_strdup(&c->memory, key),
                                           data ? copy_of(c, data, len) : NULL, len };
        return r;
}

static int drop_old_before(struct copying *c, const char *key, struct err *err)
{
        int r = 0;
        while (r == 0 && c->next_old < c->old_keys.len &&
               (!key || strcmp(c->old_keys.at[c->next_old], key) < 0))
                r = add_record(c, c->old_keys.at[c->next_old++], NULL, 0, err);
        if (r == 0 && key && c->next_old < c->old_keys.len &&
            strcmp(c->old_keys.at[c->next_old], key) == 0)
                c->next_old++;
        return r;
}

static int take_record(void *ctx, const struct store_record *record, struct err *err)
{
        struct copying *c = ctx;
        int r = 0;
        if (c->remembering)
                *array_push(&c->old_keys) = mem_strdup(record->key);
        else
                r = drop_old_before(c, record->key, err);
        return r < 0 ? r : add_record(c, record->key, record->data, record->len, err);
}

static int copy_all(struct store *from, struct copying *c, struct store_reader *reader,
                    struct err *err)
{
        uint64_t checkpoint = 0, head = store_head(from), first = store_reader_first(reader);
        c->until = first ? first : head + 1;
        int r = store_reader_events(reader, 0, false, add_kept, c, err);
        if (r >= 0)
                r = flush_kept(c, err);
        if (r == 0)
                r = store_seed(c->to, first ? first - 1 : head, err);
        if (r < 0)
                return r;
        /* The checkpoint's sequence comes with its records, which are put after the events before
         * it: read it twice. */
        c->remembering = true;
        struct copying nothing = { .to = c->to,
                                   .limits = { SIZE_MAX, SIZE_MAX, false },
                                   .remembering = true };
        r = store_load_checkpoint(from, take_record, &nothing, &checkpoint, err);
        for (size_t i = 0; i < nothing.old_keys.len; i++)
                mem_free(nothing.old_keys.at[i]);
        array_fini(&nothing.old_keys);
        array_fini(&nothing.records);
        arena_fini(&nothing.memory);
        c->until = checkpoint;
        if (r == 0)
                r = store_reader_events(reader, store_head(c->to), false, add_event, c, err);
        if (r >= 0)
                r = flush(c, err);
        if (r == 0 && checkpoint) {
                r = store_load_checkpoint(from, take_record, c, NULL, err);
                if (r == 0)
                        r = flush(c, err);
                if (r == 0)
                        r = store_checkpoint(c->to, err);
        }
        c->remembering = false;
        c->until = head;
        if (r == 0)
                r = store_reader_events(reader, store_head(c->to), false, add_event, c, err);
        if (r >= 0)
                r = flush(c, err);
        if (r == 0)
                r = store_load(from, take_record, c, NULL, err);
        if (r == 0)
                r = drop_old_before(c, NULL, err);
        return r < 0 ? r : flush(c, err);
}

int store_copy(struct store *from, struct store *to, void (*progress)(void *ctx, uint64_t copied),
               void *ctx, struct err *err)
{
        struct copying c = { .to = to,
                             .schema = store_schema(from),
                             .limits = store_limits(to),
                             .progress = progress,
                             .ctx = ctx };
        _cleanup_(store_reader_closep) struct store_reader *reader = NULL;
        int r = store_reader_open(from, &reader, err);
        if (r == 0)
                r = copy_all(from, &c, reader, err);
        if (r == 0 && store_head(to) != store_head(from))
                r = err_set(err, ERR_INTERNAL, .msg = "the copy ends elsewhere than the store",
                            .detail =
                                fmt("head %llu instead of %llu", (unsigned long long)store_head(to),
                                    (unsigned long long)store_head(from)));
        if (r == 0 && progress)
                progress(ctx, c.copied);
        for (size_t i = 0; i < c.old_keys.len; i++)
                mem_free(c.old_keys.at[i]);
        array_fini(&c.old_keys);
        array_fini(&c.events);
        array_fini(&c.records);
        arena_fini(&c.memory);
        return r;
}
