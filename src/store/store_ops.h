/* store/store_ops.h: what a store implements. Only files of this folder include it.
 *
 * store.c checks every batch before a store sees it (sequences without a hole, no key twice,
 * limits), so that all stores refuse the same mistakes with the same words. A store embeds `struct
 * store` as its first member, likewise `struct store_reader`.
 */
#ifndef BERTH_STORE_STORE_OPS_H
#define BERTH_STORE_STORE_OPS_H

#include "store/store.h"
#include <stdatomic.h>

#define STORE_MAX_KEY_BYTES 1024

/* One that is kept apart; never of EVENT_LIFECYCLE. */
struct store_kept {
        struct store_event event;
        enum event_class class;
};

/* What a prune did. */
struct store_left {
        uint64_t left, kept[EVENT_CLASSES];
};

/* commit, seed, prune, kept_put and checkpoint are NULL in a store that is only read. */
struct store_ops {
        const char *scheme; /* what stands before the colon of an url */

        /* rest: behind the colon */
        int (*open)(const char *rest, bool create, struct store **ret_store, struct err *err);
        void (*close)(struct store *s);
        int (*load)(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_head,
                    struct err *err);
        /* hashes: hash64() of each record's key. No key is there twice. Moves s->head when (and
         * only when) the batch is in the store. Never called with nothing to do. */
        int (*commit)(struct store *s, const struct store_batch *batch, const uint64_t *hashes,
                      struct err *err);
        /* Several at a time, instead of commit: submit takes a batch behind those under way (n of
         * them); settle is for the oldest, as store_settle() says, and moves s->head; take_back
         * forgets all that were submitted and not settled. */
        int (*submit)(struct store *s, const struct store_batch *batch, struct err *err);
        int (*settle)(struct store *s, int64_t wait_ms, struct err *err);
        void (*take_back)(struct store *s);
        /* called only while head is 0 */
        int (*seed)(struct store *s, uint64_t head, struct err *err);
        /* The oldest events of the log leave it, as far as store_leaves() says, in one
         * transaction with what is kept apart of them; asks store_wants_checkpoint() as well.
         * ret: how many left, and how many of them were kept apart. */
        int (*prune)(struct store *s, const struct store_retention *keep, uint64_t max_remove,
                     struct store_left *ret, struct err *err);
        int (*kept_put)(struct store *s, const struct store_kept *events, size_t n,
                        struct err *err);
        int (*kept_count)(struct store *s, enum event_class class, uint64_t *ret, struct err *err);
        /* the oldest; some of them will do */
        int64_t (*kept_remove)(struct store *s, enum event_class class, uint64_t n,
                               struct err *err);
        /* NULL: space is the engine's own concern */
        int (*shrink)(struct store *s, struct err *err);
        int (*checkpoint)(struct store *s, struct err *err);
        int (*load_checkpoint)(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_seq,
                               struct err *err);
        int (*integrity)(struct store *s, struct err *err);

        int (*reader_open)(struct store *s, struct store_reader **ret_reader, struct err *err);
        void (*reader_close)(struct store_reader *r);
        int (*reader_events)(struct store_reader *r, uint64_t since, bool backwards,
                             store_event_fn fn, void *ctx, struct err *err);
        int (*reader_event)(struct store_reader *r, uint64_t seq, store_event_fn fn, void *ctx,
                            struct err *err);
        int (*reader_records)(struct store_reader *r, store_record_fn fn, void *ctx,
                              uint64_t *ret_head, struct err *err);
        uint64_t (*reader_first)(struct store_reader *r);
        /* Of the events that are kept apart, up to max of this class: as reader_events, but for
         * the end. NULL: reader_events has them all. */
        int (*reader_kept)(struct store_reader *r, enum event_class class, uint64_t since,
                           bool backwards, size_t max, store_event_fn fn, void *ctx,
                           struct err *err);

        /* NULL: led by whoever has it open. */
        int (*lead)(struct store *s, const char *who, int64_t ttl_seconds, int64_t wait_ms,
                    struct err *err);
        int64_t (*leads_until_ns)(struct store *s);
        bool (*lead_is_over)(struct store *s);
        int64_t (*proved_ns)(struct store *s);
        void (*prove)(struct store *s);
        void (*unlead)(struct store *s);
        int64_t (*led_term)(const struct store *s);
        void (*supersede)(struct store *s, int64_t term);
        int (*follow)(struct store *s, int64_t wait_ms, struct store_news *news, struct err *err);
        void (*follow_end)(struct store *s);
        void (*strange)(struct store *s, store_strange_fn fn, void *ctx);
        void (*announce)(struct store *s, const char *name, const char *text);
        void (*each_server)(struct store *s,
                            void (*fn)(void *ctx, const char *name, const char *text), void *ctx);
        /* step: < 0 forget all, 0 one record, > 0 that was all, as of head. NULL: nothing is kept
         * in memory. */
        void (*remember)(struct store *s, int step, const struct store_record *record,
                         uint64_t head);

        /* NULL: not to be had. */
        int (*open_moment)(const char *rest, struct store **ret_store, struct err *err);
        int (*restore_open)(const char *rest, bool force, struct store **ret_store,
                            struct err *err);
        int (*restore_done)(struct store *s, char **ret_aside, struct err *err);
};

/* One that was submitted and not settled yet. */
struct store_pending {
        const struct store_batch *batch;
        size_t bytes;
        int64_t since_ns;
};

struct store {
        const struct store_ops *ops;
        struct store_limits limits;
        int schema;
        _Atomic uint64_t head;

        _Atomic uint64_t commits, events, records, bytes;
        _Atomic int64_t last_commit_us;

        _Atomic int64_t kept[EVENT_CLASSES]; /* + 1: how many are kept apart; 0: not known */
        int64_t checkpoint_again_ms;         /* when age may ask for another checkpoint */
        /* and when the age of what is kept apart is looked at */
        int64_t kept_again_ms;
        struct store_reader *reader; /* for that; NULL: not needed yet */

        /* scratch: the keys of the batch that was checked last */
        uint64_t *hashes;
        uint32_t *slots;
        size_t n_slots;
        const struct store_batch *checked; /* hashes are of this one */

        struct store_pending pending[STORE_IN_FLIGHT_MAX]; /* a ring, oldest at first_pending */
        size_t first_pending, n_pending;
        void (*on_settled)(void *ctx);
        void *on_settled_ctx;
        /* set after its ctx: the client's thread may be asking already */
        void (*_Atomic on_proved)(void *ctx);
        void *on_proved_ctx;
};

struct store_reader {
        const struct store_ops *ops;
};

extern const struct store_ops sqlite_ops, memory_ops, etcd_ops, backup_ops;

/* Words that every store uses alike. */
int store_err_conflict(struct err *err, uint64_t expected, uint64_t head);
int store_err_only_read(struct err *err);
int store_err_in_use(struct err *err, uint64_t head);
int store_err_newer(struct err *err, int schema);
int store_err_no_event(struct err *err, uint64_t seq);
int store_err_not_empty(struct err *err, const char *where, uint64_t head);

/* Whether this event, the oldest of the log, leaves it, and whether it is kept apart then
 * (*ret_class is another one than EVENT_LIFECYCLE). Never the last event, nor the checkpoint's
 * own: what follows the checkpoint must be there to be folded, and the last event tells whether
 * a batch had gone through (S3). */
bool store_leaves(const struct store_retention *keep, uint64_t head, uint64_t checkpoint_seq,
                  const struct store_event *e, enum event_class *ret_class);
/* Up to which sequence that may be so. 0: no event leaves now, and none need be read. */
uint64_t store_prune_limit(const struct store_retention *keep, uint64_t head,
                           uint64_t checkpoint_seq);
/* Whether a new checkpoint is worth its copy of n_records: one record is copied per event that
 * it lets go, at most; or whether it is time for one because of the log's age. */
bool store_wants_checkpoint(struct store *s, const struct store_retention *keep,
                            uint64_t checkpoint_seq, uint64_t n_records);
/* What is kept apart may have been changed by others, or by something of unknown outcome. */
void store_kept_unknown(struct store *s);

#endif
