/* server/reader.c: answers history jobs from a store reader of its own, so that neither commits nor the io loop wait for a scan. */
#include "server/reader.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/json.h"
#include "model/pb.h"
#include "server/shared.h"
#include <string.h>

struct history_job *history_job_new(enum history_kind kind, uint64_t owner)
{
        struct history_job *job = mem_must(sizeof(*job));
        job->kind = kind;
        job->owner = owner;
        return job;
}

void history_job_free(void *p)
{
        struct history_job *job = p;
        if (!job)
                return;
        str_fini(&job->body);
        array_fini(&job->items);
        arena_fini(&job->memory);
        mem_free(job);
}

/* ---- finding ------------------------------------------------------------------------------------------------------------------------------- */

/* What was found, packed, in the arena of the scan. */
struct found {
        const void *data;
        size_t len;
        uint64_t seq;
        uint32_t type;
};
struct scan {
        struct history_job *job;
        struct arena memory;
        ARRAY(struct found) found;
        size_t bytes, looked;
        bool full; /* a limit ended it, not the end of the events */
};

static void keep(struct scan *s, const struct store_event *ev, const struct event_peek *peek)
{
        struct found *f = array_push(&s->found);
        f->data = arena_dup(&s->memory, ev->data, ev->len);
        f->len = ev->len;
        f->seq = peek->seq;
        f->type = peek->type;
        s->bytes += ev->len;
}

static bool is_full(const struct scan *s)
{
        return s->found.len >= s->job->limit || s->bytes >= HISTORY_BYTES_MAX || s->looked >= HISTORY_SCAN_MAX;
}

static int scan_one(void *ctx, const struct store_event *ev, struct err *err)
{
        struct scan *s = ctx;
        struct history_job *job = s->job;
        (void)err;
        if (job->newest_first ? ev->seq <= job->since : (job->before > 0 && ev->seq >= job->before))
                return 1;
        s->looked++;
        job->scanned = ev->seq;
        struct event_peek peek;
        if (event_peek(ev->data, ev->len, &peek)) {
                peek.seq = ev->seq;
                if (event_matches(&job->filter, &peek))
                        keep(s, ev, &peek);
        }
        s->full = is_full(s);
        return s->full ? 1 : 0;
}

static int by_scan(struct store_reader *reader, struct scan *s, struct err *err)
{
        struct history_job *job = s->job;
        job->scanned = job->newest_first ? job->before : job->since;
        int r = store_reader_events(reader, job->newest_first ? job->before : job->since, job->newest_first, scan_one, s, err);
        return r < 0 ? r : 0;
}

struct hop {
        struct scan *scan;
        uint64_t prev;
        bool matches, keep;
};

static int take_hop(void *ctx, const struct store_event *ev, struct err *err)
{
        struct hop *h = ctx;
        (void)err;
        struct event_peek peek; /* points into ev, which is gone afterwards */
        if (!event_peek(ev->data, ev->len, &peek))
                return 0;
        peek.seq = ev->seq;
        h->prev = peek.prev;
        h->matches = event_matches(&h->scan->job->filter, &peek);
        if (h->keep)
                keep(h->scan, ev, &peek);
        return 0;
}

/* From the newest event of a workload backwards. -ERR_LIMIT: the chain is too long to be turned round. */
static int by_chain(struct store_reader *reader, struct scan *s, struct err *err)
{
        struct history_job *job = s->job;
        ARRAY(uint64_t) seqs = { 0 };
        struct hop hop = { .scan = s };
        int r = 0;
        for (uint64_t seq = job->chain; seq > job->since && seq != 0;) {
                hop.prev = 0;
                hop.matches = false;
                struct err gone = { 0 };
                r = store_reader_event(reader, seq, take_hop, &hop, &gone);
                if (r == -ERR_NOT_FOUND) {
                        r = 0; /* pruned: the chain ends here */
                        break;
                }
                if (r < 0) {
                        *err = gone;
                        break;
                }
                if ((job->before == 0 || seq < job->before) && hop.matches)
                        *array_push(&seqs) = seq;
                if (hop.prev >= seq || (job->newest_first && seqs.len > job->limit))
                        break;
                if (++s->looked > HISTORY_CHAIN_MAX) {
                        r = -ERR_LIMIT;
                        break;
                }
                seq = hop.prev;
        }
        hop.keep = true;
        size_t i = 0;
        for (; r >= 0 && i < seqs.len && s->found.len < job->limit && s->bytes < HISTORY_BYTES_MAX; i++) {
                uint64_t seq = seqs.at[job->newest_first ? i : seqs.len - 1 - i];
                r = store_reader_event(reader, seq, take_hop, &hop, err);
                job->scanned = seq;
        }
        s->full = i < seqs.len;
        array_fini(&seqs);
        return r < 0 ? r : 0;
}

/* ---- encoding ------------------------------------------------------------------------------------------------------------------------------ */

/* As whoever asked may see it. */
static Pb__Event *unpack(const struct history_job *job, struct arena *arena, const struct found *f)
{
        ProtobufCMessage *m = NULL;
        if (pb_unpack_own(&pb__event__descriptor, f->data, f->len, arena, &m, NULL) < 0)
                return NULL;
        redact(job->level, m);
        return (Pb__Event *)m;
}

static void encode_list(struct scan *s)
{
        struct history_job *job = s->job;
        Pb__ListEventsResponse resp = PB__LIST_EVENTS_RESPONSE__INIT;
        Pb__Event **items = arena_new_n(&s->memory, Pb__Event *, s->found.len + 1);
        for (size_t i = 0; i < s->found.len; i++)
                if ((items[resp.n_items] = unpack(job, &s->memory, &s->found.at[i])))
                        resp.n_items++;
        resp.items = items;
        resp.head = job->head;
        /* forwards: pass it as since; backwards: pass it as before, 0 when there is nothing older */
        resp.next_since = s->full ? job->scanned : job->newest_first ? 0 : (job->scanned > job->head ? job->scanned : job->head);
        if (job->before > 0 && !job->newest_first && !s->full)
                resp.next_since = job->before - 1;
        if (job->json)
                json_write(&job->body, &resp.base, job->json_flags);
        else
                pb_pack(&job->body, &resp.base);
}

static void encode_items(struct scan *s)
{
        struct history_job *job = s->job;
        for (size_t i = 0; i < s->found.len; i++) {
                const struct found *f = &s->found.at[i];
                struct history_item *item = array_push(&job->items);
                *item = (struct history_item){ .seq = f->seq, .type = f->type, .at = job->body.len };
                Pb__Event *ev = job->json ? unpack(job, &s->memory, f) : NULL;
                if (ev)
                        json_write(&job->body, &ev->base, job->json_flags);
                else if (!job->json)
                        redact_packed(job->level, &pb__event__descriptor, f->data, f->len, &job->body);
                item->len = job->body.len - item->at;
        }
}

void history_run(struct store_reader *reader, struct history_job *job)
{
        struct scan s = { .job = job };
        int r;
        job->first = store_reader_first(reader);
        if (job->chain > 0) {
                r = by_chain(reader, &s, &job->err);
                if (r == -ERR_LIMIT) {
                        array_clear(&s.found);
                        s.looked = s.bytes = 0;
                        r = by_scan(reader, &s, &job->err);
                }
        } else
                r = by_scan(reader, &s, &job->err);
        if (r < 0 && job->err.code == ERR_OK)
                err_set(&job->err, (enum err_code) - r, .msg = "events cannot be read");
        if (r >= 0) {
                job->err = (struct err){ 0 };
                job->end = !s.full;
                if (job->kind == HISTORY_LIST)
                        encode_list(&s);
                else
                        encode_items(&s);
        }
        array_fini(&s.found);
        arena_fini(&s.memory);
}

void *reader_main(void *server)
{
        struct server *s = server;
        struct store_reader *reader = NULL;
        struct err err = { 0 };
        int r = store_reader_open(s->store, &reader, &err);
        server_started(s, r < 0 ? &err : NULL);
        if (r < 0)
                return NULL;
        for (;;) {
                void *item;
                if (queue_pop_many(s->reader_queue, &item, 1, -1) == 0)
                        break; /* closed and empty */
                struct history_job *job = item;
                history_run(reader, job);
                struct io_msg *msg = mem_must(sizeof(*msg));
                msg->kind = IO_HISTORY;
                msg->history = job;
                if (!server_io_push(s, msg, true))
                        io_msg_free(msg);
        }
        store_reader_close(reader);
        return NULL;
}
