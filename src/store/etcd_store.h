/* store/etcd_store.h: the etcd store, as its own files see it. */
#ifndef BERTH_STORE_ETCD_STORE_H
#define BERTH_STORE_ETCD_STORE_H

#include "base/array.h"
#include "base/map.h"
#include "store/etcd_client.h"
#include "store/etcd_codec.h"
#include "store/store_ops.h"
#include <pthread.h>

/* etcd's own limit is 128 operations per transaction (--max-txn-ops); more become transactions
 * within one transaction, to each of which the limit applies (etcd_chain.c). A large transaction
 * costs etcd and the server less for each operation: 400 instead of 120 took a quarter off, 1,400
 * instead of 400 another sixth. The core cuts a batch when it has more than 1,400 at the latest (it
 * keeps 100 free for the next decision). */
#define ETCD_TXN_OPS 128
#define ETCD_BATCH_OPS (100 + 1400)
#define ETCD_MAX_OPS 1512
/* etcd takes 1.5 MiB (--max-request-bytes). A full batch is 128 KiB packed, and its last workload
 * 512 KiB (WORKLOAD_MAX_BYTES), in its event and in its record: with keys and frames this is less.
 * As JSON it may be more, since control characters become six times as long: such a transaction is
 * packed again with the values as they are (etcd_chain.c). */
#define ETCD_REQUEST_BYTES ((1536u << 10) - (16u << 10))
#define ETCD_MAX_BYTES (1400u << 10)
#define ETCD_BATCH_BYTES (128u << 10)
/* Transactions under way: with large ones a second one gains little (etcd applies one at a time),
 * and may overtake the first. The next one is packed meanwhile, so that it can leave at once. */
#define ETCD_IN_FLIGHT 1
#define ETCD_IN_FLIGHT_MAX 8
/* How much is read at a time (etcd_read.c). etcd counts the rest of the range for every page, so
 * that small ones make a long range quadratic: pages grow until one has about 1 MiB. Records may
 * suddenly be 512 KiB each: what the client does not take (64 MiB, etcd_client.c), or etcd does not
 * have ready in time, is asked for again in less. What the first page has is taken whatever it is,
 * since no value is larger than a request. */
#define ETCD_PAGE 32 /* the first one */
/* etcd puts a page together before it looks at its size, and what follows small records may be
 * large */
#define ETCD_PAGE_MAX 1024
#define ETCD_PAGE_BYTES (1u << 20)
/* events that are read one by one: each is a call, and a page of a thousand is another */
#define ETCD_HOPS 256
#define ETCD_CALL_MS 5000 /* one call, all members tried */
#define ETCD_SEQ_DIGITS 20

struct etcd_cache {
        pthread_mutex_t lock;
        ARRAY(struct store_record) records; /* owned */
        struct map by_key;
        uint64_t head;
        _Atomic bool whole; /* loaded, and followed since */
};

/* Commits under way (etcd_chain.c), oldest first. */
struct etcd_link {
        const struct store_batch *batch;
        struct etcd_request *request; /* the packed transaction; NULL: not sent yet */
        struct str packed;            /* until it is sent */
        bool again;                   /* it was sent again as the oldest one */
};
struct etcd_chain {
        struct etcd_link links[STORE_IN_FLIGHT_MAX];
        size_t first, n;
        /* up to here something was sent whose outcome was never learnt; 0: nothing */
        uint64_t unsure_head;
        size_t max_window;       /* how many may be under way at the most, ... */
        size_t window, in_order; /* ... and now; how many were in order since that changed */
        /* links that were sent again because they came before the one that they follow */
        _Atomic uint64_t again;
};

/* A process that announced itself. */
struct etcd_server {
        char *name, *text;
};
#define ETCD_SERVERS_MAX 64

/* What is heard of the head and of who leads, by a watch. The client's thread writes it, the store
 * thread reads it. */
struct etcd_follow {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool watching, begin_again; /* the store thread's */
        bool stale;                 /* the watch has missed something: ask */
        int64_t revision, asked_ns;
        struct store_news news;
        ARRAY(struct etcd_server) servers;
        /* this process, as it is announced; NULL: it is not. The store thread's */
        char *name, *text;
        int64_t said_lease; /* the lease that the announcement is attached to */
};

/* What others have written (etcd_strange.c). */
struct etcd_found {
        char *key; /* without the prefix */
        struct str value;
        bool deleted;
        int64_t revision, at_ns;
};
#define ETCD_OWN_MAX 16384
struct etcd_strange {
        pthread_mutex_t lock;      /* of own, found, dropped */
        int64_t own[ETCD_OWN_MAX]; /* revisions of our transactions, each at its remainder */
        ARRAY(struct etcd_found) found;
        uint64_t dropped;
        /* the store thread's */
        int64_t last;     /* the newest revision that is accounted for; 0: not leading */
        int64_t gap_from; /* not 0: from here on somebody else may have written */
        int64_t look_until_ns;
};

/* That this process leads (etcd_proof.c). */
/* so long without a proof, and it leads no more: another server may reach what this one does not */
#define ETCD_UNPROVED_TERMS 2
struct etcd_proof {
        pthread_mutex_t lock;         /* of request, again, closed */
        struct etcd_request *request; /* the read that is under way */
        bool again;                   /* and another one after it */
        bool closed;
        /* clock_steady_ns: when the youngest proof was sent; 0: none of this term */
        _Atomic int64_t proved_ns;
        int64_t term_ns;
};

struct etcd_store {
        struct store base;
        struct etcd_cache cache;
        struct etcd_follow follow;
        struct etcd_strange strange;
        struct etcd_proof proof;
        struct etcd_client *client;
        struct etcd_chain chain;
        char *prefix;
        /* not 0: everything is read at this revision (store_open_moment) */
        int64_t pinned;
        /* create_revision of the leadership key while it is ours; 0: we do not lead */
        _Atomic int64_t led_revision;
        /* the same of the term before, if the key may still be there: it is in our own way */
        int64_t old_revision;
        int64_t next_compact_ns;         /* see etcd_keep.c */
        int64_t revision;                /* of etcd, as of the last commit */
        int64_t compact_revision;        /* and when something was compacted last */
        struct etcd_request *compaction; /* under way, or done */
        uint64_t checkpoint_seq;
        bool checkpoint_known;
        int64_t oldest_page; /* how many events etcd_oldest_events() asks for */
};

/* Where our keys are, in order and apart from events: the whole prefix, or, without one, what berth
 * writes itself: others may keep theirs in the same etcd, and those are neither read nor told,
 * backed up or removed. A new kind of record needs its line in etcd_read.c. */
size_t etcd_n_ranges(const struct etcd_store *s);
void etcd_range_at(const struct etcd_store *s, size_t i, struct arena *a, const char **ret_from,
                   const char **ret_end);
bool etcd_is_ours(const struct etcd_store *s, const char *key); /* without the prefix */

struct etcd_store *etcd_self(struct store *s);
ProtobufCBinaryData etcd_bytes(const char *text);
/* prefix + key, in the arena. */
char *etcd_key(const struct etcd_store *s, struct arena *a, const char *key);
char *etcd_event_key(const struct etcd_store *s, struct arena *a, uint64_t seq);
/* Events that are kept apart: below /events/, so that a restore of any berth removes them with
 * the others, and before all digits, so that one that does not know them never comes across
 * them. */
char *etcd_kept_key(const struct etcd_store *s, struct arena *a, enum event_class class,
                    uint64_t seq);
char *etcd_kept_end(const struct etcd_store *s, struct arena *a, enum event_class class);

/* One page of [from, end): kvs in key order (or backwards). revision 0: now, and *revision becomes
 * that of the answer. */
int etcd_range(struct etcd_store *s, const char *from, size_t from_len, const char *end,
               size_t end_len, int64_t limit, bool backwards, int64_t *revision, struct arena *a,
               Etcd__RangeResponse **ret, struct err *err);
int etcd_get(struct etcd_store *s, const char *key, int64_t *revision, struct arena *a,
             const Etcd__KeyValue **ret_or_null, struct err *err);

/* A transaction that is refused unless we lead. ops: puts and deletes. *ret_ok: whether the
 * comparison held. */
struct etcd_ops {
        struct arena *arena;
        Etcd__RequestOp **ops;
        size_t n, cap;
        /* all values, one after the other; pointers are set when the transaction is sent */
        struct str values;
};
void etcd_ops_put(struct etcd_ops *o, const char *key, const void *value, size_t len);
void etcd_ops_delete(struct etcd_ops *o, const char *key, const char *end_or_null);
void etcd_ops_fini(struct etcd_ops *o);
void etcd_txn_pack(struct etcd_store *s, struct etcd_ops *o, const char *expected_head_or_null,
                   Etcd__RequestOp **failure, size_t n_failure, struct arena *a, struct str *out);
int etcd_txn(struct etcd_store *s, struct etcd_ops *o, const char *expected_head_or_null,
             struct arena *a, Etcd__TxnResponse **ret, struct err *err);
Etcd__RequestOp *etcd_get_op(struct arena *a, char *key);
/* what the i-th get found; NULL: nothing */
const Etcd__KeyValue *etcd_answer_kv(const Etcd__TxnResponse *t, size_t i);
int etcd_parse_number(const Etcd__KeyValue *kv, const char *what, uint64_t *ret, struct err *err);
int etcd_err_not_leading(struct err *err, const Etcd__KeyValue *leader_or_null);

/* etcd_chain.c */
size_t
/* how many of n operations go into each transaction within the transaction; all: there are none
 * within */
etcd_ops_per_part(size_t n);
int etcd_submit(struct store *base, const struct store_batch *batch, struct err *err);
int etcd_settle(struct store *base, int64_t wait_ms, struct err *err);
void etcd_take_back(struct store *base);

/* etcd_cache.c */
void etcd_cache_init(struct etcd_cache *c);
void etcd_cache_fini(struct etcd_cache *c);
void etcd_cache_reset(struct etcd_cache *c);
void etcd_cache_load(struct etcd_cache *c, const struct store_record *r);
void etcd_cache_loaded(struct etcd_cache *c, uint64_t head);
void etcd_cache_commit(struct etcd_cache *c, const struct store_batch *b);
int etcd_cache_records(struct etcd_cache *c, store_record_fn fn, void *ctx, uint64_t *ret_head,
                       struct err *err);

/* etcd_follow.c */
void etcd_follow_init(struct etcd_follow *f);
void etcd_follow_fini(struct etcd_follow *f);
int etcd_follow(struct store *base, int64_t wait_ms, struct store_news *news, struct err *err);
void etcd_follow_end(struct store *base);
/* A leader hears of its own key by the same watch; this asks if the watch has missed something. */
void etcd_look_again(struct etcd_store *s);
void etcd_announce(struct store *base, const char *name, const char *text);
void etcd_each_server(struct store *base, void (*fn)(void *ctx, const char *name, const char *text),
                      void *ctx);
/* Puts the announcement, attached to this lease. Failing is no harm: the next look tries again. */
void etcd_say_hello(struct etcd_store *s, int64_t lease);

/* The key is gone, or another one's, as of this revision. Any thread. */
void etcd_lost_key(struct etcd_store *s, int64_t revision);

/* etcd_proof.c */
void etcd_proof_init(struct etcd_proof *p);
void etcd_proof_fini(struct etcd_proof *p);
void etcd_proof_end(struct etcd_store *s); /* before the client goes */
/* a transaction that was sent then has compared the key. Any thread */
void etcd_proof_note(struct etcd_store *s, int64_t sent_ns);
/* asks unless something has proved it lately */
void etcd_proof_beat(void *store, int64_t every_ms);
void etcd_prove(struct store *base); /* asks in any case; any thread */
int64_t etcd_proved_ns(struct store *base);
int64_t etcd_leads_until_ns(struct store *base);
bool etcd_lead_is_over(struct store *base);

/* etcd_strange.c */
void etcd_strange_init(struct etcd_strange *t);
void etcd_strange_fini(struct etcd_strange *t);
void etcd_strange_begin(struct etcd_store *s); /* leads now */
void etcd_strange_end(struct etcd_store *s);
/* of a transaction of ours; the store thread */
void etcd_strange_own(struct etcd_store *s, int64_t revision);
void etcd_strange(struct store *base, store_strange_fn fn, void *ctx);

/* etcd_keep.c */
void etcd_compact_now_and_then(struct etcd_store *s);
int etcd_prune(struct store *base, const struct store_retention *keep, uint64_t max_remove,
               struct store_left *ret, struct err *err);
int etcd_kept_put(struct store *base, const struct store_kept *events, size_t n, struct err *err);
int etcd_kept_count(struct store *base, enum event_class class, uint64_t *ret, struct err *err);
int64_t etcd_kept_remove(struct store *base, enum event_class class, uint64_t n, struct err *err);
int etcd_checkpoint(struct store *base, struct err *err);
int etcd_load_checkpoint(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_seq,
                         struct err *err);
int etcd_integrity(struct store *base, struct err *err);
/* Calls fn for every stored value of a record (undecoded) at one revision; *ret_head is the head
 * there. If it takes long a line in the log says this about once a second, and how far it is. */
typedef int (*etcd_value_fn)(void *ctx, const char *key, const Etcd__KeyValue *kv, struct err *err);
int etcd_each_record(struct etcd_store *s, const char *says_or_null, etcd_value_fn fn, void *ctx,
                     uint64_t *ret_head, struct err *err);
/* One page of the log's oldest events, up to max of them, in the arena. */
int etcd_oldest_events(struct etcd_store *s, int64_t max, struct arena *a,
                       Etcd__RangeResponse **ret, struct err *err);
/* The sequence at the end of an event's key. */
bool etcd_seq_of(const Etcd__KeyValue *kv, uint64_t *ret);
int etcd_first_event(struct etcd_store *s, uint64_t *ret_seq, struct err *err);

/* etcd_restore.c */
int etcd_restore_open(const char *rest, bool force, struct store **ret_store, struct err *err);
int etcd_restore_done(struct store *base, char **ret_aside, struct err *err);
/* -ERR_CONFLICT: a restore stopped half-way */
int etcd_check_restoring(struct etcd_store *s, struct err *err);

/* etcd.c */
int etcd_open(const char *rest, bool create, bool to_restore, struct store **ret_store,
              struct err *err);

/* etcd_read.c */
extern const struct store_ops etcd_ops;
int etcd_reader_open(struct store *base, struct store_reader **ret_reader, struct err *err);
void etcd_reader_close(struct store_reader *base);
int etcd_reader_events(struct store_reader *base, uint64_t since, bool backwards, store_event_fn fn,
                       void *ctx, struct err *err);
int etcd_reader_event(struct store_reader *base, uint64_t seq, store_event_fn fn, void *ctx,
                      struct err *err);
int etcd_reader_records(struct store_reader *base, store_record_fn fn, void *ctx,
                        uint64_t *ret_head, struct err *err);
uint64_t etcd_reader_first(struct store_reader *base);
int etcd_reader_kept(struct store_reader *base, enum event_class class, uint64_t since,
                     bool backwards, size_t max, store_event_fn fn, void *ctx, struct err *err);

#endif
