/* store/store.h: where events and records are kept for good.
 *
 * A store holds events in one total order (by sequence, from 1), records by key, and the head:
 * the sequence of the last event. One commit appends events and puts or removes records,
 * atomically, if the head is the expected one.
 *
 * The newest events are the log: from its first one, the floor, up to the head, without a gap.
 * Whoever folds or follows needs only that. What has left the log (store_prune()) is gone, or
 * kept apart if its class (model/event.h) has a retention of its own: below the floor events are
 * therefore sparse. A berth from before that knows nothing of what is kept apart, and has a log
 * as it knows it.
 *
 * Invariants, which the conformance suite proves of every store:
 *   (S1) After store_commit() has returned 0 the batch is durable: it survives power loss.
 *   (S2) A commit happens wholly or not at all.
 *   (S3) A commit whose expected head is not the store's head changes nothing (-ERR_CONFLICT), with
 *   one exception: a batch that had already
 *        gone through (head == new_head and the stored last event equals the batch's last event
 *        byte for byte) returns 0.
 *   (S4) Events come back by sequence, exactly as they were given.
 *   (S5) A second process that opens the same store for writing is refused.
 *   (S6) Batches that are under way together settle in the order in which they were submitted, and
 *   one is in the store only if all before it are. (S7) Readers see the log and what is kept apart
 *   as one row, also while events leave the log: none
 *        twice, none left out.
 *
 * Threads: one thread opens, loads and commits (the store thread). A reader has a handle of its own
 * and may live on another thread. Keys are like "/workloads/hello"; values are packed protobuf. See
 * design notes in store/README.md.
 */
#ifndef BERTH_STORE_STORE_H
#define BERTH_STORE_STORE_H

#include "base/commit.h"
#include "base/err.h"
#include "base/macros.h"
#include "model/event.h"

#define STORE_IN_FLIGHT_MAX 16

struct store;
struct store_reader;

/* What a store can take in one commit; the server cuts its batches accordingly. */
struct store_limits {
        size_t max_ops;   /* more are refused */
        size_t max_bytes; /* likewise, of keys and packed values */
        size_t batch_ops,
            /* a batch is cut before it has more operations than this, or when it has more bytes; 0:
             * max_ops, a quarter of max_bytes */
            batch_bytes;
        bool wants_index_records;
        size_t in_flight; /* batches that may be under way at a time: 1 to STORE_IN_FLIGHT_MAX */
        /* events that may be read one by one (store_reader_event()) before a scan is the cheaper
         * way; 0: any number */
        uint32_t hops;
};

struct store_stats {
        uint64_t commits, events, records, bytes;
        int64_t last_commit_us;
        /* events that are kept apart; -1: not known before store_prune() has looked */
        int64_t kept[EVENT_CLASSES];
};

/* url: "sqlite:/path/file.db", a bare path (the same),
 * "etcd://host:2379,host:2379[/prefix][?OPTIONS]",
 * or "memory:" (tests and the simulator: nothing is kept; see store/memory.h). OPTIONS of etcd,
 * with & between them: ca=FILE, cert=FILE, key=FILE, user=NAME, password-file=FILE, in-flight=N.
 * "?vfs=NAME" at the end of a SQLite path, or BERTH_SQLITE_VFS in the environment, chooses SQLite's
 * file layer (tests of lost writes). create: make an empty store (and its folder, 0700) if there is
 * none; an existing one is opened as it is. Without it a missing store is -ERR_NOT_FOUND.
 * -ERR_CONFLICT: held by another process (the detail names its pid), or written by a newer berth.
 * -ERR_CORRUPT: not a store of berth, or damaged. A process that forks must not touch the store in
 * the child; the lock stays with the parent alone. */
int store_open(const char *url, bool create, struct store **ret_store, struct err *err);
void store_close(struct store *s);
static inline void store_closep(struct store **s)
{
        if (*s)
                store_close(*s);
}

/* The store as it is at one moment, to be read (load, checkpoint, events, integrity, copy from),
 * never written; others may go on writing to it meanwhile, and neither waits for the other. Also
 * "backup:FILE", a file made by store_backup(), which is checked as a whole first.
 * -ERR_UNSUPPORTED: memory. */
int store_open_moment(const char *url, struct store **ret_store, struct err *err);

struct store_limits store_limits(const struct store *s);
struct store_stats store_stats(struct store *s); /* any thread */
uint64_t store_head(struct store *s);
int store_schema(struct store *s);

/* Calls fn for every record, ordered by key. The record's memory is valid during the call. fn
 * returns < 0 to stop. */
typedef int (*store_record_fn)(void *ctx, const struct store_record *record, struct err *err);
int store_load(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_head, struct err *err);

/* ---- leadership ----
 *
 * A store that several processes reach takes commits only from the one that leads; each commit
 * compares that. The embedded store is led by whoever has it open. who: what the others shall know
 * of it, any text (the server: JSON with its addresses). ttl_seconds: how long a leader that says
 * nothing is believed. -ERR_CONFLICT: somebody else leads and went on leading for wait_ms; the
 * detail names them. A leader that lost its place must close the store or lead again, and load
 * anew. */
int store_lead(struct store *s, const char *who, int64_t ttl_seconds, int64_t wait_ms,
               struct err *err);
/* Until when (clock_steady_ns: a suspended machine has not led meanwhile) what this process grants
 * is covered: its lease holds, and the last proof that the key is its own was sent less than
 * ttl_seconds before. Another one that leads all the same began less than ttl_seconds ago.
 * INT64_MAX: as long as it is open; 0: not now. Any thread. */
int64_t store_leads_until_ns(struct store *s);
/* It leads no more: the lease ran out, the key is another one's, or nothing has proved for long
 * that it is ours. Any thread. */
bool store_lead_is_over(struct store *s);
bool store_is_shared(const struct store *s);
/* When (clock_steady_ns) the youngest proof left that this process leads: until then nobody else
 * can have committed anything. INT64_MAX: nobody else ever can; 0: there is none. Any thread. */
int64_t store_proved_ns(struct store *s);
/* Asks for a younger one and returns at once; fn of store_on_proved() is called, from any thread,
 * when the answer is there, whatever it is. Many who ask at a time are one question. Any thread. */
void store_prove(struct store *s);
void store_on_proved(struct store *s, void (*fn)(void *ctx), void *ctx);
/* Leads no more: no commit goes through until store_lead() was called again, and what is under way
 * is taken back (it may still happen). Nobody is asked, so it also works while the store cannot be
 * reached. */
void store_unlead(struct store *s);
/* The term (see store_news) that this process led before and whose key may still be there; 0: none.
 * store_lead() need not wait for such a one. */
int64_t store_led_term(const struct store *s);
/* The leader of this term is known to be dead: store_lead() takes its place without waiting until
 * its lease has run out. Were it alive after all, it could still commit nothing. */
void store_supersede(struct store *s, int64_t term);

/* ---- following: what a server that does not lead hears of a shared store (the store thread)
 * ---- */

struct store_news {
        uint64_t head;
        bool led;     /* somebody leads now */
        int64_t term; /* of the leadership; another number, another term */
        char leader
            /* what the leader says of itself: `who` of its store_lead(). Of the last one that was
             * heard of, when nobody leads */
            [1024];
        /* how often the store was found to be older than it had been: put back from somewhere */
        unsigned back;
};
/* Until the head or the leadership is another than *news says, or wait_ms have passed; then *news
 * is what is known now. Begin with all zero. The store tells by itself (a watch), and is asked
 * again now and then in case it was not heard. -ERR_UNAVAILABLE: it cannot be reached; *news
 * stays. */
int store_follow(struct store *s, int64_t wait_ms, struct store_news *news, struct err *err);
/* Leads from now on: only who else is there is still heard. store_follow() begins anew. */
void store_follow_end(struct store *s);
/* What the others shall know of this process while it lives: name (a part of a key) and any text.
 * Told from the next store_follow() or store_lead() on. */
void store_announce(struct store *s, const char *name, const char *text);
/* Those who are there now and have announced themselves, in no order. Any thread; fn must be
 * quick. */
void store_each_server(struct store *s, void (*fn)(void *ctx, const char *name, const char *text),
                       void *ctx);
/* A store that keeps the committed records in memory (to be read while it is away) is told them by
 * a leader that has folded them from events instead of loading. begin, every record, end. The
 * others do nothing. Any thread, but only one, and before the first commit of a term. */
void store_remember_begin(struct store *s);
void store_remember(struct store *s, const struct store_record *record);
void store_remember_end(struct store *s, uint64_t head);

/* Records that were changed behind the leader's back since the last call: by hand, most likely
 * (data NULL: removed). For the store thread of a leader, every now and then; costs nothing while
 * nobody does that. Stores that nobody else can reach have none. */
typedef void (*store_strange_fn)(void *ctx, const struct store_record *record);
void store_strange(struct store *s, store_strange_fn fn, void *ctx);

/* 0: durable. -ERR_CONFLICT: somebody else moved the head. -ERR_UNAVAILABLE: outcome unknown or
 * store away; send the same batch again. */
int store_commit(struct store *s, const struct store_batch *batch, struct err *err);

/* ---- several commits under way ----
 *
 * store_submit() hands a batch over and does not wait. Up to store_limits().in_flight may be under
 * way, each expecting the head that the one before it sets; more, or a batch that does not follow,
 * is a bug of the caller (-ERR_INTERNAL, -ERR_LIMIT: nothing was taken). The batch and its memory
 * must stay until it is settled or taken back.
 *
 * store_settle() tells the outcome of the oldest. 1: durable. 0: not known within wait_ms (-1:
 * waits as long as it takes), or nothing is under way. < 0: as store_commit(), and all that is
 * under way is taken back. Nothing behind a batch that failed for good is in the store. After
 * -ERR_UNAVAILABLE any number of them, from the first on, may have gone through or do so yet:
 * submit the same batches again in the same order, and each is found to be there or is written.
 *
 * store_on_settled(): fn is called, from any thread, whenever store_settle() may have something new
 * to say. A store that never calls it says everything at once. store_commit() is the simple form,
 * while nothing else is under way. */
int store_submit(struct store *s, const struct store_batch *batch, struct err *err);
int store_settle(struct store *s, int64_t wait_ms, struct err *err);
size_t store_in_flight(const struct store *s);
void store_on_settled(struct store *s, void (*fn)(void *ctx), void *ctx);

/* Only on a store whose log is empty: the next event is head + 1. For copies of stores whose log
 * does not begin with 1. */
int store_seed(struct store *s, uint64_t head, struct err *err);
/* Everything in `from` (events, records, checkpoint, head) into the empty store `to`, of whatever
 * kind. progress (may be NULL) is called now and then with how many events and records were copied.
 * Interrupted, `to` is no store to start a server on; remove it and copy again. */
int store_copy(struct store *from, struct store *to, void (*progress)(void *ctx, uint64_t copied),
               void *ctx, struct err *err);

/* Everything in `from` (a moment, best) into one file with a checksum (store/backup.h says how it
 * looks). Written beside, synced, renamed: the old file or the whole new one. */
struct backup_facts {
        uint64_t head, checkpoint, events, checkpoint_records, records, epoch, bytes;
        int64_t made_at;
        int schema;
        char cluster_id[64], version[64], store[16];
};
int store_backup(struct store *from, const char *path, const char *berth_version, int64_t now_ms,
                 void (*progress)(void *ctx, uint64_t done), void *ctx,
                 struct backup_facts *ret_facts, struct err *err);
/* The facts of a store that store_open_moment("backup:...") gave; NULL for any other. */
const struct backup_facts *store_backup_facts(const struct store *s);

/* Where a restore goes, in three steps: open (an empty store that no server can open by mistake),
 * fill it (store_copy(), store_commit()), done. -ERR_CONFLICT: something is there already, or a
 * server runs on it. force: what is there makes way only when all is done: an embedded store is
 * then PATH.before-TIME (*ret_aside, if not NULL, says so; to be freed); the keys in etcd are
 * removed, so make a backup of them before. store_close() instead of done: an embedded store is as
 * it was; in etcd a half-filled one stays behind, which servers refuse until a restore with
 * force. */
int store_restore_open(const char *url, bool force, struct store **ret_store, struct err *err);
/* closes it, whatever happens */
int store_restore_done(struct store *s, char **ret_aside, struct err *err);

/* ---- retention ---- */

struct store_keep {
        uint64_t events; /* the newest; 0: any number */
        int64_t age_ms;  /* none that is older; 0: of any age */
};
struct store_retention {
        int64_t now_ms; /* by the clock that events are stamped with */
        /* EVENT_LIFECYCLE is the log, events of all classes: how many it has, how old they may
         * be. The others: what is kept apart of their class beyond the log. */
        struct store_keep of[EVENT_CLASSES];
};
/* The newest n in the log, and everything that is kept apart. */
#define STORE_KEEP_LOG(n) (&(const struct store_retention){ .of[EVENT_LIFECYCLE].events = (n) })

struct store_pruned {
        uint64_t left;    /* events that left the log */
        uint64_t removed; /* events that are gone: from the log, or from what was kept apart */
};
/* Lets events go that retention does not ask for. From the log only those before the checkpoint
 * (a sequence, and a copy of all records as of it): a new one is taken in the background, when
 * it is worth it, that is, when it lets at least half as many events go as the log may have, and
 * no fewer than there are records to copy; for events that are too old, every age / 8 (a day at
 * the most). So the first call may do nothing and a later one something: calling every few
 * seconds is cheap and, with nothing new, writes nothing. The newest event always stays.
 *
 * Returns how many events left the log or were removed, max_remove at the most, so that commits
 * are not held up; call it again while that is more than 0. 0: nothing to do now. ret_or_null:
 * which of the two they did; what was kept apart has left and is not removed. */
int64_t store_prune(struct store *s, const struct store_retention *keep, uint64_t max_remove,
                    struct store_pruned *ret_or_null, struct err *err);
/* How long nothing becomes too old that is not already: whoever has nothing else to do calls
 * store_prune() again then. 0: nothing ever. */
int64_t store_prune_again_ms(const struct store_retention *keep);
/* Copies only: events below the floor that is to be, in order, each by its class. Before
 * store_seed(). */
int store_keep_apart(struct store *s, const struct store_event *events, size_t n, struct err *err);
/* Gives space that is not used any more back to the file system, a few milliseconds' worth per
 * call, once a third of the store is unused; 1: there is more to do, 0: nothing to do now (and
 * nothing was written), or < 0. */
int store_shrink(struct store *s, struct err *err);
int store_checkpoint(struct store *s, struct err *err); /* takes one now and waits for it */
/* The newest checkpoint's records and its sequence (0 and no records if none was ever taken and no
 * event was pruned). */
int store_load_checkpoint(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_seq,
                          struct err *err);

/* Is the store sound in itself: the file's structure, no gap in the log, what is kept apart
 * below its floor, head = last event, no key twice, and events since the checkpoint complete, so
 * that records = fold(checkpoint, events since) can be checked by the caller (`berth fsck`).
 * Reads everything. -ERR_CORRUPT says what. */
int store_integrity(struct store *s, struct err *err);

int store_reader_open(struct store *s, struct store_reader **ret_reader,
                      /* any thread; then that thread's. Close it before the store */
                      struct err *err);
void store_reader_close(struct store_reader *r);
static inline void store_reader_closep(struct store_reader **r)
{
        if (*r)
                store_reader_close(*r);
}
/* Events with sequence > since (or, backwards, < since; since 0 = from the end), in that order,
 * until fn returns nonzero (returned, if < 0 as failure) or there are no more. Only committed
 * events are seen. */
typedef int (*store_event_fn)(void *ctx, const struct store_event *event, struct err *err);
int store_reader_events(struct store_reader *r, uint64_t since, bool backwards, store_event_fn fn,
                        void *ctx, struct err *err);
/* -ERR_NOT_FOUND */
int store_reader_event(struct store_reader *r, uint64_t seq, store_event_fn fn, void *ctx,
                       struct err *err);
/* All records as they are committed, of one moment, in any order, and the head of that moment. */
int store_reader_records(struct store_reader *r, store_record_fn fn, void *ctx, uint64_t *ret_head,
                         struct err *err);
uint64_t store_reader_first(struct store_reader *r); /* the log's floor; 0: there is no event */

#endif
