/* server/reader.h: reading stored events, off the io thread. Internal.
 *
 * The io thread fills a job, sends it (history_send()) and gets it back as IO_HISTORY with the
 * answer in it, already encoded for whoever asked. A job looks at no more than HISTORY_SCAN_MAX
 * events and gives no more than HISTORY_BYTES_MAX; `scanned` says how far it came.
 *
 * One thread reads for everybody, and a job may be many reads of a store that is far away. So
 * nobody can keep it from the others:
 *   (1) A caller has at most HISTORY_SHARE jobs under way. Of those that wait, the next is of the
 *       caller that was served longest ago.
 *   (2) A job ends at its deadline, and when whoever waits for it has left (history_leave()).
 *   (3) A workload's chain of events is followed one by one only as far as the store allows
 *       (store_limits.hops); beyond, the events are scanned, which goes page by page.
 */
#ifndef BERTH_SERVER_READER_H
#define BERTH_SERVER_READER_H

#include "base/arena.h"
#include "base/array.h"
#include "base/str.h"
#include "model/redact.h"
#include "server/filter.h"
#include <stdatomic.h>

#define HISTORY_SCAN_MAX 20000
#define HISTORY_CHAIN_MAX 20000
#define HISTORY_BYTES_MAX (1024 * 1024)
#define HISTORY_JOBS 1024    /* under way at a time */
#define HISTORY_SHARE 64     /* of one caller */
#define HISTORY_CALLERS 1024 /* callers are told apart by as many numbers: two rarely share one */

enum history_kind {
        HISTORY_LIST,  /* a whole ListEventsResponse in body; owner: a call's ticket */
        HISTORY_CHUNK, /* events one by one in items; owner: a subscriber's id */
};

struct history_item {
        uint64_t seq;
        uint32_t type;
        size_t at, len; /* in body */
};

struct history_job {
        enum history_kind kind;
        uint64_t owner;
        bool json; /* else packed */
        unsigned json_flags;
        enum redact_level level; /* what whoever asked may not see */
        struct event_filter filter;
        uint64_t since;  /* events with a larger sequence */
        uint64_t before; /* events with a smaller one; 0: no bound */
        bool newest_first;
        uint32_t limit;
        /* a workload's newest event: follow Event.prev from there instead of scanning; 0: scan */
        uint64_t chain;
        uint32_t hops; /* so far at the most; 0: HISTORY_CHAIN_MAX */
        uint64_t head; /* list: shown in the answer */

        uint32_t caller;     /* below HISTORY_CALLERS */
        int64_t deadline_ms; /* monotonic; 0: none */
        struct history_waiter *waiter;

        const void *explanation; /* packed, in memory: what the answer completes (explained.h) */
        size_t explanation_len;

        struct err err; /* code 0: it worked */
        struct str body;
        ARRAY(struct history_item) items;
        uint64_t scanned; /* everything between where it began and here has been looked at */
        uint64_t first;   /* oldest event kept; 0: none */
        bool end;         /* there was no more */
        struct arena memory;
};
struct history_job *history_job_new(enum history_kind kind, uint64_t owner);
void history_job_free(void *job);

/* Whoever waits for a job: kept by both until both have let go of it. */
struct history_waiter {
        _Atomic unsigned refs;
        _Atomic bool left;
};

struct server;
/* The io thread: sends a job for this caller; the job is taken. -ERR_LIMIT: it has too many under
 * way, or all have; the job is gone then too. *waiter is what history_leave() takes; one that was
 * there is left. */
int history_send(struct server *s, struct history_job *job, const char *actor,
                 struct history_waiter **waiter, struct err *err);
/* The io thread: a job has come back. */
void history_returned(struct server *s, const struct history_job *job);
/* Nobody waits for it any more. *waiter becomes NULL; NULL is fine. */
void history_leave(struct history_waiter **waiter);

struct store_reader;
/* What the reader thread does with each job. */
void history_run(struct store_reader *reader, struct history_job *job);

#endif
