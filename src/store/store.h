/* store/store.h: where events and records are kept for good.
 *
 * A store holds events in one total order (by sequence, from 1, without gaps above the pruned prefix), records by key, and the head:
 * the sequence of the last event. One commit appends events and puts or removes records, atomically, if the head is the expected one.
 *
 * Invariants, which the conformance suite proves of every store:
 *   (S1) After store_commit() has returned 0 the batch is durable: it survives power loss.
 *   (S2) A commit happens wholly or not at all.
 *   (S3) A commit whose expected head is not the store's head changes nothing (-ERR_CONFLICT), with one exception: a batch that had already
 *        gone through (head == new_head and the stored last event equals the batch's last event byte for byte) returns 0.
 *   (S4) Events come back by sequence, exactly as they were given.
 *   (S5) A second process that opens the same store for writing is refused.
 *
 * Threads: one thread opens, loads and commits (the store thread). A reader has a handle of its own and may live on another thread.
 * Keys are like "/workloads/hello"; values are packed protobuf. See design notes in store/README.md.
 */
#ifndef BERTH_STORE_STORE_H
#define BERTH_STORE_STORE_H

#include "base/commit.h"
#include "base/err.h"
#include "base/macros.h"

#define STORE_SCHEMA 1

struct store;
struct store_reader;

/* What a store can take in one commit; the server cuts its batches accordingly. */
struct store_limits {
        size_t max_ops;
        size_t max_bytes;
        bool wants_index_records;
};

struct store_stats {
        uint64_t commits, events, records, bytes;
        int64_t last_commit_us;
};

/* url: "sqlite:/path/file.db", a bare path (the same), "etcd://host:2379,host:2379[/prefix][?ca=FILE&cert=FILE&key=FILE&user=NAME&password-file=FILE]", or
 * "memory:" (tests and the simulator: nothing is kept; see store/memory.h).
 * "?vfs=NAME" at the end of a SQLite path, or BERTH_SQLITE_VFS in the environment, chooses SQLite's file layer (tests of lost writes).
 * create: make an empty store (and its folder, 0700) if there is none; an existing one is opened as it is. Without it a missing store is
 * -ERR_NOT_FOUND. -ERR_CONFLICT: held by another process (the detail names its pid), or written by a newer berth. -ERR_CORRUPT: not a store of berth,
 * or damaged. A process that forks must not touch the store in the child; the lock stays with the parent alone. */
int store_open(const char *url, bool create, struct store **ret_store, struct err *err);
void store_close(struct store *s);
static inline void store_closep(struct store **s)
{
        if (*s)
                store_close(*s);
}

struct store_limits store_limits(const struct store *s);
struct store_stats store_stats(struct store *s); /* any thread */
uint64_t store_head(struct store *s);
int store_schema(struct store *s);

/* Calls fn for every record, ordered by key. The record's memory is valid during the call. fn returns < 0 to stop. */
typedef int (*store_record_fn)(void *ctx, const struct store_record *record, struct err *err);
int store_load(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_head, struct err *err);

/* ---- leadership ----
 *
 * A store that several processes reach takes commits only from the one that leads; each commit compares that. The embedded store is led by whoever has it open.
 * who: shown to the others ("berth-1 at 10.0.0.1:8085"). ttl_seconds: how long a leader that says nothing is believed. -ERR_CONFLICT: somebody else leads and went on leading
 * for wait_ms; the detail names them. A leader that lost its place must close the store or lead again, and load anew. */
int store_lead(struct store *s, const char *who, int64_t ttl_seconds, int64_t wait_ms, struct err *err);
/* Until when (clock_mono_ns) nobody else can lead, for certain. INT64_MAX: as long as it is open; 0: not now. Any thread. */
int64_t store_leads_until_ns(struct store *s);
bool store_is_shared(const struct store *s);

/* 0: durable. -ERR_CONFLICT: somebody else moved the head. -ERR_UNAVAILABLE: outcome unknown or store away; send the same batch again. */
int store_commit(struct store *s, const struct store_batch *batch, struct err *err);

/* Only on a store without events: the next event is head + 1. For copies of stores whose first events were pruned. */
int store_seed(struct store *s, uint64_t head, struct err *err);
/* Everything in `from` (events, records, checkpoint, head) into the empty store `to`, of whatever kind. progress (may be NULL) is called now and then with how many events and
 * records were copied. Interrupted, `to` is no store to start a server on; remove it and copy again. */
int store_copy(struct store *from, struct store *to, void (*progress)(void *ctx, uint64_t copied), void *ctx, struct err *err);

/* Take a checkpoint (sequence, copy of all records) and remove events that are older than both it and the newest keep_events. At most
 * max_remove events per call, so that commits are not held up; returns how many were removed, or < 0. Call it again while it returns > 0; 0: nothing to
 * do now. The checkpoint is taken in the background and only when it is worth it (it lets at least keep_events / 2 events go, and no fewer than there are
 * records to copy), so the first call may return 0 and a later one remove: calling every few seconds is cheap and, with nothing new, writes nothing.
 * The newest event always stays. store_checkpoint() takes one now and waits for it. */
int64_t store_prune(struct store *s, uint64_t keep_events, uint64_t max_remove, struct err *err);
int store_checkpoint(struct store *s, struct err *err);
/* The newest checkpoint's records and its sequence (0 and no records if none was ever taken and no event was pruned). */
int store_load_checkpoint(struct store *s, store_record_fn fn, void *ctx, uint64_t *ret_seq, struct err *err);

/* Is the store sound in itself: the file's structure, no gap between events, head = last event, no key twice, and events since the checkpoint
 * complete, so that records = fold(checkpoint, events since) can be checked by the caller (`berth fsck`). Reads everything. -ERR_CORRUPT says what. */
int store_integrity(struct store *s, struct err *err);

int store_reader_open(struct store *s, struct store_reader **ret_reader,
                      struct err *err); /* any thread; then that thread's. Close it before the store */
void store_reader_close(struct store_reader *r);
static inline void store_reader_closep(struct store_reader **r)
{
        if (*r)
                store_reader_close(*r);
}
/* Events with sequence > since (or, backwards, < since; since 0 = from the end), in that order, until fn returns nonzero (returned, if < 0 as failure)
 * or there are no more. Only committed events are seen. */
typedef int (*store_event_fn)(void *ctx, const struct store_event *event, struct err *err);
int store_reader_events(struct store_reader *r, uint64_t since, bool backwards, store_event_fn fn, void *ctx, struct err *err);
int store_reader_event(struct store_reader *r, uint64_t seq, store_event_fn fn, void *ctx, struct err *err); /* -ERR_NOT_FOUND */
/* All records as they are committed, of one moment, in any order, and the head of that moment. */
int store_reader_records(struct store_reader *r, store_record_fn fn, void *ctx, uint64_t *ret_head, struct err *err);
uint64_t store_reader_first(struct store_reader *r); /* smallest sequence still kept; 0: none */

#endif
