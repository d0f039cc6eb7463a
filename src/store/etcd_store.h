/* store/etcd_store.h: the etcd store, as its own files see it. */
#ifndef BERTH_STORE_ETCD_STORE_H
#define BERTH_STORE_ETCD_STORE_H

#include "base/array.h"
#include "base/map.h"
#include "store/etcd_client.h"
#include "store/etcd_codec.h"
#include "store/store_ops.h"
#include <pthread.h>

/* etcd's own limit is 128 operations per transaction (--max-txn-ops); one is the head. */
#define ETCD_MAX_OPS 127
#define ETCD_MAX_BYTES (1u << 20)
#define ETCD_PAGE 256     /* keys per answer when much is read */
#define ETCD_CALL_MS 5000 /* one call, all members tried */
#define ETCD_SEQ_DIGITS 20

struct etcd_cache {
        pthread_mutex_t lock;
        ARRAY(struct store_record) records; /* owned */
        struct map by_key;
        uint64_t head;
        _Atomic bool whole; /* loaded, and followed since */
};

struct etcd_store {
        struct store base;
        struct etcd_cache cache;
        struct etcd_client *client;
        char *prefix;
        int64_t led_revision;    /* create_revision of the leadership key while it is ours; 0: we do not lead */
        int64_t next_compact_ns; /* see etcd_keep.c */
        int64_t compact_revision;
        uint64_t checkpoint_seq;
        bool checkpoint_known;
};

struct etcd_store *etcd_self(struct store *s);
ProtobufCBinaryData etcd_bytes(const char *text);
/* prefix + key, in the arena. */
char *etcd_key(const struct etcd_store *s, struct arena *a, const char *key);
char *etcd_event_key(const struct etcd_store *s, struct arena *a, uint64_t seq);

/* One page of [from, end): kvs in key order (or backwards). revision 0: now, and *revision becomes that of the answer. */
int etcd_range(struct etcd_store *s, const char *from, size_t from_len, const char *end, size_t end_len, int64_t limit, bool backwards,
               int64_t *revision, struct arena *a, Etcd__RangeResponse **ret, struct err *err);
int etcd_get(struct etcd_store *s, const char *key, int64_t *revision, struct arena *a, const Etcd__KeyValue **ret_or_null,
             struct err *err);

/* A transaction that is refused unless we lead. ops: puts and deletes. *ret_ok: whether the comparison held. */
struct etcd_ops {
        struct arena *arena;
        Etcd__RequestOp **ops;
        size_t n, cap;
        struct str values; /* all values, one after the other; pointers are set when the transaction is sent */
};
void etcd_ops_put(struct etcd_ops *o, const char *key, const void *value, size_t len);
void etcd_ops_delete(struct etcd_ops *o, const char *key, const char *end_or_null);
void etcd_ops_fini(struct etcd_ops *o);
int etcd_txn(struct etcd_store *s, struct etcd_ops *o, const char *expected_head_or_null, Etcd__RequestOp **failure, size_t n_failure,
             struct arena *a, Etcd__TxnResponse **ret, struct err *err);
int etcd_err_not_leading(struct err *err, const Etcd__KeyValue *leader_or_null);

/* etcd_cache.c */
void etcd_cache_init(struct etcd_cache *c);
void etcd_cache_fini(struct etcd_cache *c);
void etcd_cache_reset(struct etcd_cache *c);
void etcd_cache_load(struct etcd_cache *c, const struct store_record *r);
void etcd_cache_loaded(struct etcd_cache *c, uint64_t head);
void etcd_cache_commit(struct etcd_cache *c, const struct store_batch *b);
int etcd_cache_records(struct etcd_cache *c, store_record_fn fn, void *ctx, uint64_t *ret_head, struct err *err);

/* etcd_keep.c */
int64_t etcd_prune(struct store *base, uint64_t keep_events, uint64_t max_remove, struct err *err);
int etcd_checkpoint(struct store *base, struct err *err);
int etcd_load_checkpoint(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_seq, struct err *err);
int etcd_integrity(struct store *base, struct err *err);
/* Calls fn for every stored value of a record (undecoded) at one revision; *ret_head is the head there. */
typedef int (*etcd_value_fn)(void *ctx, const char *key, const Etcd__KeyValue *kv, struct err *err);
int etcd_each_record(struct etcd_store *s, etcd_value_fn fn, void *ctx, uint64_t *ret_head, struct err *err);
int etcd_first_event(struct etcd_store *s, uint64_t *ret_seq, struct err *err);

/* etcd_read.c */
extern const struct store_ops etcd_ops;
int etcd_reader_open(struct store *base, struct store_reader **ret_reader, struct err *err);
void etcd_reader_close(struct store_reader *base);
int etcd_reader_events(struct store_reader *base, uint64_t since, bool backwards, store_event_fn fn, void *ctx, struct err *err);
int etcd_reader_event(struct store_reader *base, uint64_t seq, store_event_fn fn, void *ctx, struct err *err);
int etcd_reader_records(struct store_reader *base, store_record_fn fn, void *ctx, uint64_t *ret_head, struct err *err);
uint64_t etcd_reader_first(struct store_reader *base);

#endif
