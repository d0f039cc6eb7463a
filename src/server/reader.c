/* server/reader.c: answers history jobs from a store reader of its own, so that neither commits nor
 * the io loop wait for a scan. */
#include "server/reader.h"

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "model/json.h"
#include "model/pb.h"
#include "server/shared.h"
#include <string.h>

#define LOOK_UP_EVENTS 64 /* of a scan, between two looks at the time */

struct history_job *history_job_new(enum history_kind kind, uint64_t owner)
{
        struct history_job *job = mem_must(sizeof(*job));
        job->kind = kind;
        job->owner = owner;
        return job;
}

static void waiter_unref(struct history_waiter *w)
{
        if (w && atomic_fetch_sub(&w->refs, 1) == 1)
                mem_free(w);
}

void history_leave(struct history_waiter **waiter)
{
        if (*waiter)
                atomic_store(&(*waiter)->left, true);
        waiter_unref(TAKE_PTR(*waiter));
}

void history_job_free(void *p)
{
        struct history_job *job = p;
        if (!job)
                return;
        waiter_unref(job->waiter);
        str_fini(&job->body);
        array_fini(&job->items);
        arena_fini(&job->memory);
        mem_free(job);
}

/* ---- finding ---- */

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
        return s->found.len >= s->job->limit || s->bytes >= HISTORY_BYTES_MAX ||
               s->looked >= HISTORY_SCAN_MAX;
}

/* (2) */
static bool is_over(const struct history_job *job, struct err *err)
{
        bool left = job->waiter && atomic_load(&job->waiter->left);
        if (!left && (job->deadline_ms == 0 || mono_ms() < job->deadline_ms))
                return false;
        err_set(err, ERR_DEADLINE,
                .msg = left ? "whoever asked has left" : "the events could not be read in time",
                .hint = "ask for fewer at a time, or for newer ones", .retry_after_ms = 1000);
        return true;
}

static int scan_one(void *ctx, const struct store_event *ev, struct err *err)
{
        struct scan *s = ctx;
        struct history_job *job = s->job;
        if (s->looked % LOOK_UP_EVENTS == 0 && is_over(job, err))
                return -(int)err->code;
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
        int r = store_reader_events(reader, job->newest_first ? job->before : job->since,
                                    job->newest_first, scan_one, s, err);
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

struct sequences {
        ARRAY(uint64_t) at;
};

/* The chain goes through events that have left the log. What is kept below it is found by
 * looking at all of it. */
struct below {
        struct scan *scan;
        struct sequences *found;
        uint64_t seen; /* the last one looked at */
        size_t looked;
};

static int look_below(void *ctx, const struct store_event *ev, struct err *err)
{
        struct below *b = ctx;
        const struct history_job *job = b->scan->job;
        struct event_peek peek;
        if (b->looked % LOOK_UP_EVENTS == 0 && is_over(job, err))
                return -(int)err->code;
        if (ev->seq <= job->since || b->looked >= HISTORY_SCAN_MAX)
                return 1;
        b->seen = ev->seq;
        b->looked++;
        if (event_peek(ev->data, ev->len, &peek) && event_matches(&job->filter, &peek))
                *array_push(&b->found->at) = ev->seq;
        return job->newest_first && b->found->at.len > job->limit;
}

/* From the newest event of a workload backwards. -ERR_LIMIT: the chain is too long to be followed.
 * What of it was found backwards is a page by itself. */
static int by_chain(struct store_reader *reader, struct scan *s, struct err *err)
{
        struct history_job *job = s->job;
        struct sequences found = { 0 };
        struct hop hop = { .scan = s };
        size_t most = job->hops ? job->hops : HISTORY_CHAIN_MAX;
        bool cut = false; /* there is more of it, and what is found so far will do */
        int r = 0;
        uint64_t seq = job->chain;
        while (seq > job->since && seq != 0) {
                hop.prev = 0;
                hop.matches = false;
                struct err gone = { 0 };
                r = is_over(job, err) ? -(int)err->code
                                      : store_reader_event(reader, seq, take_hop, &hop, &gone);
                if (r == -ERR_NOT_FOUND) { /* pruned: the chain ends here */
                        struct below below = { s, &found, 0, 0 };
                        r = store_reader_events(
                            reader, job->before && job->before < seq ? job->before : seq, true,
                            look_below, &below, err);
                        if (r == 1 && below.looked >= HISTORY_SCAN_MAX) {
                                cut = job->newest_first;
                                seq = below.seen;
                        }
                        r = r < 0 ? r : below.looked < HISTORY_SCAN_MAX || cut ? 0 : -ERR_LIMIT;
                        break;
                }
                if (r < 0) {
                        if (gone.code != ERR_OK)
                                *err = gone;
                        break;
                }
                if ((job->before == 0 || seq < job->before) && hop.matches)
                        *array_push(&found.at) = seq;
                if (hop.prev >= seq || (job->newest_first && found.at.len > job->limit))
                        break;
                if (++s->looked >= most) {
                        cut = job->newest_first && found.at.len > 0;
                        r = cut ? 0 : -ERR_LIMIT;
                        break;
                }
                seq = hop.prev;
        }
        hop.keep = true;
        size_t i = 0;
        for (; r >= 0 && i < found.at.len && s->found.len < job->limit &&
               s->bytes < HISTORY_BYTES_MAX;
             i++) {
                job->scanned = found.at.at[job->newest_first ? i : found.at.len - 1 - i];
                r = store_reader_event(reader, job->scanned, take_hop, &hop, err);
        }
        s->full = i < found.at.len || cut;
        if (cut && i == found.at.len)
                job->scanned = seq;
        array_fini(&found.at);
        return r < 0 ? r : 0;
}

/* ---- encoding ---- */

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
        /* forwards: pass it as since; backwards: pass it as before, 0 when there is nothing
         * older */
        resp.next_since = s->full ? job->scanned
                          : job->newest_first
                              ? 0
                              : (job->scanned > job->head ? job->scanned : job->head);
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
                *item =
                    (struct history_item){ .seq = f->seq, .type = f->type, .at = job->body.len };
                if (job->json)
                        redact_json(job->level, &pb__event__descriptor, f->data, f->len,
                                    job->json_flags, &job->body);
                else
                        redact_packed(job->level, &pb__event__descriptor, f->data, f->len,
                                      &job->body);
                item->len = job->body.len - item->at;
        }
}

void history_run(struct store_reader *reader, struct history_job *job)
{
        struct scan s = { .job = job };
        int r;
        if (is_over(job, &job->err))
                return;
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

/* ---- whose turn it is (1) ---- */

int history_send(struct server *s, struct history_job *job, const char *actor,
                 struct history_waiter **waiter, struct err *err)
{
        job->caller = (uint32_t)(hash64(actor, strlen(actor)) % HISTORY_CALLERS);
        job->hops = s->limits.hops;
        if (s->reading[job->caller] >= HISTORY_SHARE || s->n_reading >= HISTORY_JOBS) {
                err_set(err, ERR_LIMIT, .msg = "too many questions about events are under way",
                        .detail = fmt("%u of this caller, %zu in all", s->reading[job->caller],
                                      s->n_reading),
                        .hint = "wait for their answers; an event stream (`berth events --follow`) "
                                "is one question",
                        .retry_after_ms = 1000);
                history_job_free(job);
                return -ERR_LIMIT;
        }
        history_leave(waiter);
        *waiter = job->waiter = mem_must(sizeof(**waiter));
        atomic_store(&job->waiter->refs, 2);
        s->reading[job->caller]++;
        s->n_reading++;
        if (queue_push(s->reader_queue, job))
                return 0;
        history_returned(s, job); /* the server stops */
        history_leave(waiter);
        history_job_free(job);
        return err_set(err, ERR_UNAVAILABLE, .msg = "the server is stopping",
                       .retry_after_ms = 2000);
}

void history_returned(struct server *s, const struct history_job *job)
{
        s->reading[job->caller]--;
        s->n_reading--;
}

struct turns {
        ARRAY(struct history_job *) jobs; /* in the order in which they came */
        uint64_t served[HISTORY_CALLERS]; /* number of its last turn */
        uint64_t turn;
};

/* Takes what has come, and gives the next one; NULL: the server stops. */
static struct history_job *next_job(struct server *s, struct turns *t)
{
        void *items[64];
        size_t n;
        while ((n = queue_pop_many(s->reader_queue, items, ARRAY_LEN(items),
                                   t->jobs.len ? 0 : -1)) > 0)
                for (size_t i = 0; i < n; i++)
                        *array_push(&t->jobs) = items[i];
        if (t->jobs.len == 0)
                return NULL;
        size_t best = 0;
        for (size_t i = 1; i < t->jobs.len; i++)
                if (t->served[t->jobs.at[i]->caller] < t->served[t->jobs.at[best]->caller])
                        best = i;
        struct history_job *job = t->jobs.at[best];
        t->jobs.len--;
        memmove(t->jobs.at + best, t->jobs.at + best + 1,
                (t->jobs.len - best) * sizeof(*t->jobs.at));
        t->served[job->caller] = ++t->turn;
        return job;
}

void *reader_main(void *server)
{
        struct server *s = server;
        struct store_reader *reader = NULL;
        struct err err = { 0 };
        struct history_job *job;
        struct turns *turns = mem_must(sizeof(*turns));
        int r = store_reader_open(s->store, &reader, &err);
        server_started(s, r < 0 ? &err : NULL);
        while (r >= 0 && (job = next_job(s, turns))) {
                history_run(reader, job);
                struct io_msg *msg = mem_must(sizeof(*msg));
                msg->kind = IO_HISTORY;
                msg->history = job;
                if (!server_io_push(s, msg, true))
                        io_msg_free(msg);
        }
        if (reader)
                store_reader_close(reader);
        array_fini(&turns->jobs);
        mem_free(turns);
        return NULL;
}
