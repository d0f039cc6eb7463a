/* server/reader.h: reading stored events, off the io thread. Internal.
 *
 * The io thread fills a job, pushes it to server->reader_queue and gets it back as IO_HISTORY with the answer in it, already encoded for whoever asked.
 * A job looks at no more than HISTORY_SCAN_MAX events and gives no more than HISTORY_BYTES_MAX; `scanned` says how far it came.
 */
#ifndef BERTH_SERVER_READER_H
#define BERTH_SERVER_READER_H

#include "base/arena.h"
#include "base/array.h"
#include "base/str.h"
#include "model/redact.h"
#include "server/filter.h"

#define HISTORY_SCAN_MAX 20000
#define HISTORY_CHAIN_MAX 20000
#define HISTORY_BYTES_MAX (1024 * 1024)

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
        uint64_t chain; /* a workload's newest event: follow Event.prev from there instead of scanning; 0: scan */
        uint64_t head;  /* list: shown in the answer */

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

struct store_reader;
/* What the reader thread does with each job. */
void history_run(struct store_reader *reader, struct history_job *job);

#endif
