/* store/store_ops.h: what a store implements. Only files of this folder include it.
 *
 * store.c checks every batch before a store sees it (sequences without a hole, no key twice, limits), so that all stores refuse the same
 * mistakes with the same words. A store embeds `struct store` as its first member, likewise `struct store_reader`.
 */
#ifndef BERTH_STORE_STORE_OPS_H
#define BERTH_STORE_STORE_OPS_H

#include "store/store.h"
#include <stdatomic.h>

#define STORE_MAX_KEY_BYTES 1024

struct store_ops {
        const char *scheme; /* what stands before the colon of an url */

        int (*open)(const char *rest, bool create, struct store **ret_store, struct err *err); /* rest: behind the colon */
        void (*close)(struct store *s);
        int (*load)(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_head, struct err *err);
        /* sorted: the batch's records by key. Moves s->head when (and only when) the batch is in the store. Never called with nothing to do. */
        int (*commit)(struct store *s, const struct store_batch *batch, const struct store_record *const *sorted, struct err *err);
        int (*seed)(struct store *s, uint64_t head, struct err *err); /* called only while head is 0 */
        int64_t (*prune)(struct store *s, uint64_t keep_events, uint64_t max_remove, struct err *err);
        int (*checkpoint)(struct store *s, struct err *err);
        int (*load_checkpoint)(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_seq, struct err *err);
        int (*integrity)(struct store *s, struct err *err);

        int (*reader_open)(struct store *s, struct store_reader **ret_reader, struct err *err);
        void (*reader_close)(struct store_reader *r);
        int (*reader_events)(struct store_reader *r, uint64_t since, bool backwards, store_event_fn fn, void *ctx, struct err *err);
        int (*reader_event)(struct store_reader *r, uint64_t seq, store_event_fn fn, void *ctx, struct err *err);
        int (*reader_records)(struct store_reader *r, store_record_fn fn, void *ctx, uint64_t *ret_head, struct err *err);
        uint64_t (*reader_first)(struct store_reader *r);

        /* NULL: led by whoever has it open. */
        int (*lead)(struct store *s, const char *who, int64_t ttl_seconds, int64_t wait_ms, struct err *err);
        int64_t (*leads_until_ns)(struct store *s);
};

struct store {
        const struct store_ops *ops;
        struct store_limits limits;
        int schema;
        _Atomic uint64_t head;

        _Atomic uint64_t commits, events, records, bytes;
        _Atomic int64_t last_commit_us;

        const struct store_record **sorted; /* scratch of store_commit() */
        size_t sorted_cap;
};

struct store_reader {
        const struct store_ops *ops;
};

extern const struct store_ops sqlite_ops, memory_ops, etcd_ops;

/* Words that every store uses alike. */
int store_err_conflict(struct err *err, uint64_t expected, uint64_t head);
int store_err_newer(struct err *err, int schema);
int store_err_no_event(struct err *err, uint64_t seq);

/* Which events a prune may remove: all up to the returned sequence. Never the last event, nor the checkpoint's own: what follows the
 * checkpoint must be there to be folded, and the last event tells whether a batch had gone through (S3). */
uint64_t store_prune_limit(uint64_t head, uint64_t checkpoint_seq, uint64_t keep_events);
/* Whether a new checkpoint is worth its copy of n_records: one record is copied per event that it lets go, at most. */
bool store_prune_wants_checkpoint(uint64_t head, uint64_t checkpoint_seq, uint64_t keep_events, uint64_t n_records);

#endif
