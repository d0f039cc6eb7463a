/* server/events.c: see events.h. */
#include "server/events.h"

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/redact.h"
#include "server/access.h"
#include "server/reader.h"
#include "server/shared.h"
#include <event2/event.h>
#include <string.h>

#define LIVE_MAX 4096                /* events kept in memory; a power of two */
#define LIVE_BYTES (8 * 1024 * 1024) /* of events */
/* a subscriber with more than this waiting gets no more for now */
#define QUEUE_BYTES (256 * 1024)
#define CHUNK_EVENTS 500
#define AGAIN_MS 50 /* how often those who wait are looked at */

/* An event as some subscribers get it; made when the first of them wants it, shared by all. */
struct form {
        char *data; /* NULL: nobody wanted it yet */
        size_t len;
};

struct live {
        void *data; /* packed */
        size_t len;
        /* packed[REDACT_NOTHING] is data itself */
        struct form json[_REDACT_LEVELS], packed[_REDACT_LEVELS];
        struct event_peek peek;
};

struct subscriber {
        uint64_t id; /* 0: free */
        struct sink sink;
        struct event_filter filter;
        enum redact_level level; /* what it may not see */
        struct arena memory;
        uint64_t cursor; /* (V1): everything up to here has been sent or did not match */
        bool reading;    /* the reader thread has a job of ours */
        bool waiting;    /* for the client or for the reader's queue; the timer looks again */
        /* asked for everything that is kept, and is still below the log: what is missing there is
         * no gap */
        bool whole;
        /* below the log: from here on some events are no longer kept, and it was not told yet; 0:
         * no such gap */
        uint64_t gap_from;
        struct history_waiter *waiter;
        char request_id[64], actor[65];
};

struct events {
        struct server *s;
        struct event *again;        /* timer; armed while anybody waits */
        struct live live[LIVE_MAX]; /* by sequence modulo LIVE_MAX */
        uint64_t first, head;       /* live: first..head; head is also what was released */
        size_t bytes;
        ARRAY(struct subscriber *) subs;
        uint64_t next_id;
        bool stopped;
};

static void on_again(evutil_socket_t fd, short what, void *ctx);
static void pump(struct events *e, struct subscriber *sub);

struct events *events_create(struct server *s, struct event_base *base, uint64_t head)
{
        struct events *e = mem_must(sizeof(*e));
        e->s = s;
        e->again = evtimer_new(base, on_again, e);
        e->head = head;
        e->first = head + 1;
        return e;
}

static void live_drop(struct events *e)
{
        struct live *l = &e->live[e->first % LIVE_MAX];
        e->bytes -= l->len;
        for (int i = 0; i < _REDACT_LEVELS; i++) {
                e->bytes -= l->json[i].len + l->packed[i].len;
                mem_free(l->json[i].data);
                mem_free(l->packed[i].data);
        }
        mem_free(l->data);
        *l = (struct live){ 0 };
        e->first++;
}

static void sub_free(struct events *e, size_t i)
{
        struct subscriber *sub = e->subs.at[i];
        e->subs.at[i] = e->subs.at[e->subs.len - 1];
        e->subs.len--;
        history_leave(&sub->waiter);
        arena_fini(&sub->memory);
        mem_free(sub);
}

void events_destroy(struct events *e)
{
        if (!e)
                return;
        while (e->subs.len > 0)
                sub_free(e, e->subs.len - 1);
        array_fini(&e->subs);
        while (e->first <= e->head)
                live_drop(e);
        event_free(e->again);
        mem_free(e);
}

size_t events_subscribers(const struct events *e)
{
        return e->subs.len;
}

/* ---- the newest ones ---- */

void events_released(struct events *e, const struct store_batch *batch)
{
        for (size_t i = 0; i < batch->n_events; i++) {
                const struct store_event *ev = &batch->events[i];
                if (ev->seq != e->head + 1) {
                        /* not in sequence (a bug elsewhere): what is kept must have no holes, so
                         * start anew; readers fetch the rest */
                        while (e->first <= e->head)
                                live_drop(e);
                        e->head = ev->seq - 1;
                        e->first = ev->seq;
                }
                while (e->first <= e->head &&
                       (e->head + 1 - e->first >= LIVE_MAX || e->bytes + ev->len > LIVE_BYTES))
                        live_drop(e);
                struct live *l = &e->live[ev->seq % LIVE_MAX];
                l->data = mem_dup(ev->data, ev->len);
                l->len = ev->len;
                if (!event_peek(l->data, l->len, &l->peek))
                        log_error("a committed event cannot be read", LOG_I("seq", ev->seq));
                l->peek.seq = ev->seq;
                e->bytes += ev->len;
                e->head = ev->seq;
        }
        if (batch->n_events == 0)
                return;
        for (size_t i = 0; i < e->subs.len; i++)
                pump(e, e->subs.at[i]);
}

void events_at(struct events *e, uint64_t head)
{
        if (head <= e->head)
                return;
        while (e->first <= e->head)
                live_drop(e);
        e->head = head;
        e->first = head + 1;
        for (size_t i = 0; i < e->subs.len; i++)
                pump(e, e->subs.at[i]); /* the reader has what lies between */
}

static struct form live_json(const struct live *l, enum redact_level level)
{
        struct str out = STR_INIT;
        redact_json(level, &pb__event__descriptor, l->data, l->len, JSON_COMPACT, &out);
        size_t len = out.len;
        return (struct form){ str_take(&out), len };
}

static struct form live_packed(const struct live *l, enum redact_level level)
{
        struct str out = STR_INIT;
        redact_packed(level, &pb__event__descriptor, l->data, l->len, &out);
        size_t len = out.len;
        return (struct form){ str_take(&out), len };
}

/* The event as this subscriber may see it. Most hold nothing that is hidden from anybody: one form
 * does for all. */
static struct form live_form(struct events *e, struct live *l, const struct subscriber *sub)
{
        enum redact_level level = sub->level;
        bool json = sub->sink.http != NULL;
        if (!redact_finds(level, &pb__event__descriptor, l->data, l->len))
                level = REDACT_NOTHING;
        if (!json && level == REDACT_NOTHING)
                return (struct form){ l->data, l->len };
        struct form *f = json ? &l->json[level] : &l->packed[level];
        if (!f->data) {
                *f = json ? live_json(l, level) : live_packed(l, level);
                e->bytes += f->len;
        }
        return *f;
}

static const char *type_name(uint32_t type)
{
        const char *name = json_enum_name(&pb__event_type__e__descriptor, (int)type);
        return name ? name : "unknown";
}

/* ---- subscribers ---- */

int events_have_room(const struct events *e, const struct caller *who, struct err *err)
{
        uint32_t max = e->s->opt.max_subscribers;
        size_t own = 0, share = access_share(e->s, max);
        if (e->stopped || e->subs.len >= max)
                return err_set(err, e->stopped ? ERR_UNAVAILABLE : ERR_LIMIT,
                               .msg = e->stopped ? "the server is stopping"
                                                 : "too many event streams are open",
                               .detail = fmt("%zu, at most %u", e->subs.len, max),
                               .retry_after_ms = 5000);
        for (size_t i = 0; i < e->subs.len; i++)
                own += str_eq(e->subs.at[i]->actor, who->actor);
        return own < share ? 0 : access_share_used(who, "event streams", share, err);
}

uint64_t events_subscribe(struct events *e, const struct event_subscription *want, struct err *err)
{
        if (events_have_room(e, want->who, err) < 0)
                return 0;
        struct subscriber *sub = mem_must(sizeof(*sub));
        sub->id = ++e->next_id;
        sub->sink = want->sink;
        sub->filter = event_filter_copy(want->filter, &sub->memory);
        sub->cursor = want->since < e->head ? want->since : e->head;
        sub->whole = want->since == 0;
        sub->level = redact_level_of(want->who->role);
        memcpy(sub->actor, want->who->actor, sizeof(sub->actor));
        strncpy(sub->request_id, want->request_id ? want->request_id : "",
                sizeof(sub->request_id) - 1);
        *array_push(&e->subs) = sub;
        pump(e, sub);
        return sub->id;
}

static struct subscriber *find(struct events *e, uint64_t id, size_t *ret_at)
{
        for (size_t i = 0; i < e->subs.len; i++)
                if (e->subs.at[i]->id == id) {
                        if (ret_at)
                                *ret_at = i;
                        return e->subs.at[i];
                }
        return NULL;
}

void events_unsubscribe(struct events *e, uint64_t id)
{
        size_t at;
        if (id != 0 && find(e, id, &at))
                sub_free(e, at);
}

void events_stop(struct events *e)
{
        struct err err = { 0 };
        err_set(&err, ERR_UNAVAILABLE, .msg = "the server is stopping",
                .hint = "connect again and go on after the last event seen",
                .retry_after_ms = 1000);
        e->stopped = true;
        for (size_t i = 0; i < e->subs.len; i++)
                sink_close(&e->subs.at[i]->sink, &err, e->subs.at[i]->request_id);
        while (e->subs.len > 0)
                sub_free(e, e->subs.len - 1);
        evtimer_del(e->again);
}

static void wait_for_room(struct events *e, struct subscriber *sub)
{
        sub->waiting = true;
        if (!evtimer_pending(e->again, NULL))
                evtimer_add(e->again, &(struct timeval){ .tv_usec = AGAIN_MS * 1000 });
}

static void on_again(evutil_socket_t fd, short what, void *ctx)
{
        struct events *e = ctx;
        (void)fd;
        (void)what;
        for (size_t i = 0; i < e->subs.len; i++)
                if (e->subs.at[i]->waiting) {
                        e->subs.at[i]->waiting = false;
                        pump(e, e->subs.at[i]);
                }
}

/* Asks the reader for what comes after the cursor. */
static void fetch(struct events *e, struct subscriber *sub)
{
        struct history_job *job = history_job_new(HISTORY_CHUNK, sub->id);
        job->json = sub->sink.http != NULL;
        job->json_flags = JSON_COMPACT;
        job->filter = event_filter_copy(&sub->filter, &job->memory);
        job->level = sub->level;
        job->since = sub->cursor;
        /* (V2): the reader may already see more than was released */
        job->before = e->head + 1 + MUTANT(sse_seam);
        job->limit = CHUNK_EVENTS;
        sub->reading = history_send(e->s, job, sub->actor, &sub->waiter, NULL) == 0;
        if (!sub->reading)
                wait_for_room(e, sub);
}

/* Tells the client that a range is gone for good, but for what was sent of it: its end is where
 * the client goes on. */
static int send_gap(struct subscriber *sub, uint64_t to)
{
        uint64_t from = sub->gap_from;
        const char *text =
            fmt("events %llu to %llu are no longer kept%s", (unsigned long long)from,
                (unsigned long long)to, sub->cursor >= from ? ", but for those before this" : "");
        sub->gap_from = 0;
        if (sub->sink.http) {
                const char *json = fmt("{\"from\":%llu,\"to\":%llu,\"message\":\"%s\"}",
                                       (unsigned long long)from, (unsigned long long)to, text);
                return sink_send_event(&sub->sink, to, "gap", json, strlen(json));
        }
        Pb__Event ev = PB__EVENT__INIT; /* a type of 0 and a message */
        ev.seq = to;
        ev.message = (char *)text;
        struct str packed = STR_INIT;
        pb_pack(&packed, &ev.base);
        int r = sink_send_event(&sub->sink, to, "gap", packed.buf, packed.len);
        str_fini(&packed);
        return r;
}

void events_history(struct events *e, struct history_job *job)
{
        struct subscriber *sub = find(e, job->owner, NULL);
        if (!sub || !sink_is_open(&sub->sink)) {
                history_job_free(job);
                return;
        }
        sub->reading = false;
        int r = 0;
        if (job->err.code != ERR_OK) {
                log_warn("history for an event stream cannot be read",
                         LOG_S("request_id", sub->request_id), LOG_E(&job->err));
                wait_for_room(e, sub);
                history_job_free(job);
                return;
        }
        /* no event is left (first is 0): everything up to the released head has been pruned */
        uint64_t first = job->first ? job->first : e->head + 1;
        if (sub->cursor + 1 < first && sub->cursor < e->head && !sub->whole && !sub->gap_from)
                sub->gap_from = sub->cursor + 1;
        for (size_t i = 0; i < job->items.len && r >= 0; i++) {
                const struct history_item *it = &job->items.at[i];
                if (it->len == 0)
                        continue;
                if (sub->gap_from && it->seq >= first)
                        r = send_gap(sub, first - 1);
                if (r >= 0)
                        r = sink_send_event(&sub->sink, it->seq, type_name(it->type),
                                            job->body.buf + it->at, it->len);
                sub->cursor = it->seq;
                count(&e->s->metrics.events_sent);
        }
        uint64_t upto = job->end ? job->before - 1 : job->scanned;
        if (sub->gap_from && upto >= first - 1 && r >= 0)
                r = send_gap(sub, first - 1);
        if (upto > sub->cursor)
                sub->cursor = upto;
        if (sub->cursor >= first)
                sub->whole = false;
        history_job_free(job);
        if (r >= 0)
                pump(e, sub);
}

/* Sends what can be sent now. */
static void pump(struct events *e, struct subscriber *sub)
{
        if (sub->reading || sub->waiting || !sink_is_open(&sub->sink))
                return;
        while (sub->cursor < e->head) {
                if (sink_queued_bytes(&sub->sink) > QUEUE_BYTES) {
                        wait_for_room(e, sub);
                        return;
                }
                if (sub->cursor + 1 < e->first) {
                        fetch(e, sub);
                        return;
                }
                struct live *l = &e->live[(sub->cursor + 1) % LIVE_MAX];
                if (event_matches(&sub->filter, &l->peek)) {
                        struct form f = live_form(e, l, sub);
                        int r = sink_send_event(&sub->sink, l->peek.seq, type_name(l->peek.type),
                                                f.data, f.len);
                        if (r < 0)
                                return; /* its on_close follows */
                        count(&e->s->metrics.events_sent);
                }
                sub->cursor++;
        }
}
