/* store/retention.c: which events leave the log, what is kept apart of them, and how both are
 * read as one row.
 *
 * The rules are here and the stores only carry them out: a store moves the oldest events of its
 * log in one transaction (prune), and counts, reads and removes what it keeps apart by class. So
 * each class loses its own oldest events only, whatever the others do.
 *
 * Invariants:
 *   (1) Every event that is kept apart is older than the log's floor.
 *   (2) An event is in the log, or kept apart, or gone: it is moved in one transaction.
 */
#include "base/arena.h"
#include "base/array.h"
#include "base/mutant.h"
#include "store/store_ops.h"
#include <string.h>

#define DAY_MS INT64_C(86400000)
#define AGE_STEP_MIN_MS 1000
#define KEPT_PAGE 128
#define FIRST_KEPT (EVENT_LIFECYCLE + 1) /* the class that is never kept apart comes first */

/* ---- what leaves the log ---- */

/* How much longer something may stay than its age says. */
static int64_t age_step_ms(int64_t age_ms)
{
        int64_t step = age_ms / 8;
        return step < AGE_STEP_MIN_MS ? AGE_STEP_MIN_MS : step > DAY_MS ? DAY_MS : step;
}

static bool is_too_old(const struct store_retention *keep, enum event_class class, int64_t at_ms)
{
        return keep->of[class].age_ms > 0 && at_ms > 0 &&
               at_ms < keep->now_ms - keep->of[class].age_ms;
}

/* Up to this sequence there are more than the log may have. */
static uint64_t by_count(const struct store_retention *keep, uint64_t head)
{
        uint64_t n = keep->of[EVENT_LIFECYCLE].events;
        return n == 0 || head <= n ? 0 : head - n;
}

uint64_t store_prune_limit(const struct store_retention *keep, uint64_t head,
                           uint64_t checkpoint_seq)
{
        uint64_t limit = keep->of[EVENT_LIFECYCLE].age_ms ? head : by_count(keep, head);
        if (checkpoint_seq <= 1)
                return 0;
        return limit < checkpoint_seq ? limit : checkpoint_seq - 1;
}

bool store_leaves(const struct store_retention *keep, uint64_t head, uint64_t checkpoint_seq,
                  const struct store_event *e, enum event_class *ret_class)
{
        uint32_t type = 0;
        int64_t at_ms = 0;
        if (e->seq > store_prune_limit(keep, head, checkpoint_seq))
                return false;
        (void)event_front(e->data, e->len, &type, &at_ms);
        if (e->seq > by_count(keep, head) && !is_too_old(keep, EVENT_LIFECYCLE, at_ms))
                return false;
        *ret_class = MUTANT(audit_not_kept) ? EVENT_LIFECYCLE : event_class_of(type);
        if (is_too_old(keep, *ret_class, at_ms))
                *ret_class = EVENT_LIFECYCLE; /* it would go at once */
        return true;
}

/* Whether it is time for the next look, which is a step after the last: the clock may have been
 * put back, and the step may be shorter now. */
static bool is_time(int64_t now_ms, int64_t at_ms, int64_t step_ms)
{
        return now_ms >= at_ms || at_ms - now_ms > step_ms;
}

/* How many of the events that are read are too old. */
struct aged {
        const struct store_retention *keep;
        enum event_class class;
        uint64_t n;
};

static int count_aged(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        struct aged *a = ctx;
        uint32_t type;
        int64_t at_ms;
        if (!event_front(e->data, e->len, &type, &at_ms) || !is_too_old(a->keep, a->class, at_ms))
                return 1;
        a->n++;
        return 0;
}

static struct store_reader *own_reader(struct store *s)
{
        if (!s->reader && store_reader_open(s, &s->reader, NULL) < 0)
                s->reader = NULL; /* the next look does it */
        return s->reader;
}

static bool is_time_for_age(const struct store *s, const struct store_retention *keep)
{
        int64_t age_ms = keep->of[EVENT_LIFECYCLE].age_ms;
        return age_ms && is_time(keep->now_ms, s->checkpoint_again_ms, age_step_ms(age_ms));
}

bool store_wants_checkpoint(struct store *s, const struct store_retention *keep,
                            uint64_t checkpoint_seq, uint64_t n_records)
{
        uint64_t n = keep->of[EVENT_LIFECYCLE].events, head = s->head, past = by_count(keep, head);
        if (head <= checkpoint_seq)
                return false;
        uint64_t covered = checkpoint_seq ? checkpoint_seq - 1 : 0,
                 now = past < covered ? past : covered;
        uint64_t then = past < head - 1 ? past : head - 1, gain = then > now ? then - now : 0;
        if (gain > 0 && gain >= n / 2 && gain >= n_records)
                return true;
        if (!is_time_for_age(s, keep) || !own_reader(s))
                return false;
        struct aged aged = { keep, EVENT_LIFECYCLE, 0 };
        (void)store_reader_event(s->reader, covered + 1, count_aged, &aged, NULL);
        return aged.n > 0;
}

/* ---- what is kept apart ---- */

void store_kept_unknown(struct store *s)
{
        for (int i = FIRST_KEPT; i < EVENT_CLASSES; i++)
                s->kept[i] = 0;
}

static int know_kept(struct store *s, struct err *err)
{
        for (int i = FIRST_KEPT; i < EVENT_CLASSES; i++) {
                uint64_t n = 0;
                int r = s->kept[i] ? 0 : s->ops->kept_count(s, (enum event_class)i, &n, err);
                if (r < 0)
                        return r;
                if (!s->kept[i])
                        s->kept[i] = (int64_t)n + 1;
        }
        return 0;
}

/* How many of the oldest of a class must go. */
static uint64_t surplus(struct store *s, const struct store_retention *keep, enum event_class class,
                        bool look_at_age)
{
        uint64_t n = (uint64_t)(s->kept[class] - 1), most = keep->of[class].events;
        if (most && n > most)
                return n - most;
        struct aged aged = { keep, class, 0 };
        if (n && keep->of[class].age_ms && look_at_age && own_reader(s))
                (void)s->ops->reader_kept(s->reader, class, 0, false, KEPT_PAGE, count_aged, &aged,
                                          NULL);
        return aged.n;
}

static int64_t prune_kept(struct store *s, const struct store_retention *keep, uint64_t max_remove,
                          struct err *err)
{
        int64_t step_ms = store_prune_again_ms(keep);
        bool look_at_age = is_time(keep->now_ms, s->kept_again_ms, step_ms);
        int64_t removed = 0;
        int r = know_kept(s, err);
        for (int i = FIRST_KEPT; r == 0 && i < EVENT_CLASSES && (uint64_t)removed < max_remove;
             i++) {
                enum event_class class = (enum event_class)i;
                uint64_t n = surplus(s, keep, class, look_at_age),
                         room = max_remove - (uint64_t)removed;
                if (n == 0)
                        continue;
                int64_t gone = s->ops->kept_remove(s, class, n < room ? n : room, err);
                if (gone < 0)
                        return gone;
                s->kept[i] -= gone;
                removed += gone;
        }
        if (r == 0 && look_at_age && removed == 0)
                s->kept_again_ms = keep->now_ms + step_ms;
        return r < 0 ? r : removed;
}

int64_t store_prune_again_ms(const struct store_retention *keep)
{
        int64_t again = 0;
        for (int i = 0; i < EVENT_CLASSES; i++) {
                int64_t step = keep->of[i].age_ms ? age_step_ms(keep->of[i].age_ms) : 0;
                if (step && (!again || step < again))
                        again = step;
        }
        return again;
}

int64_t store_prune(struct store *s, const struct store_retention *keep, uint64_t max_remove,
                    struct store_pruned *ret, struct err *err)
{
        struct store_left log = { 0 };
        if (ret)
                *ret = (struct store_pruned){ 0 };
        if (!s->ops->prune)
                return store_err_only_read(err);
        int r = max_remove ? s->ops->prune(s, keep, max_remove, &log, err) : 0;
        if (r < 0) {
                store_kept_unknown(s);
                return r;
        }
        if (is_time_for_age(s, keep))
                s->checkpoint_again_ms =
                    keep->now_ms + age_step_ms(keep->of[EVENT_LIFECYCLE].age_ms);
        uint64_t moved = 0;
        for (int i = FIRST_KEPT; i < EVENT_CLASSES; i++) {
                moved += log.kept[i];
                if (s->kept[i])
                        s->kept[i] += (int64_t)log.kept[i];
        }
        int64_t removed =
            max_remove > log.left ? prune_kept(s, keep, max_remove - log.left, err) : 0;
        if (removed < 0)
                store_kept_unknown(s);
        if (ret)
                *ret = (struct store_pruned){ log.left, log.left - moved +
                                                            (removed > 0 ? (uint64_t)removed : 0) };
        return removed < 0 && log.left == 0 ? removed
                                            : (int64_t)log.left + (removed > 0 ? removed : 0);
}

int store_keep_apart(struct store *s, const struct store_event *events, size_t n, struct err *err)
{
        if (!s->ops->kept_put)
                return store_err_only_read(err);
        if (s->head != 0)
                return store_err_in_use(err, s->head);
        struct arena memory = ARENA_INIT;
        struct store_kept *kept = arena_new_n(&memory, struct store_kept, n + 1);
        size_t n_kept = 0;
        for (size_t i = 0; i < n; i++) {
                enum event_class class = event_class_of(event_type(events[i].data, events[i].len));
                if (class != EVENT_LIFECYCLE) /* of a newer berth, which has another class for it */
                        kept[n_kept++] = (struct store_kept){ events[i], class };
        }
        int r = n_kept ? s->ops->kept_put(s, kept, n_kept, err) : 0;
        arena_fini(&memory);
        store_kept_unknown(s);
        return r;
}

/* ---- reading: one row (S7) ---- */

/* What is kept apart comes by class, each in order; a page of each at a time is merged. */
struct kept_page {
        struct arena memory;
        ARRAY(struct store_event) events;
        size_t next;
        bool more; /* the page was full */
};

struct merging {
        struct store_reader *r;
        bool backwards;
        store_event_fn fn;
        void *ctx;
        uint64_t last; /* everything up to here, in the order of reading, was given */
        struct kept_page pages[EVENT_CLASSES];
};

static int take_kept(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        struct kept_page *p = ctx;
        *array_push(&p->events) =
            (struct store_event){ e->seq, arena_dup(&p->memory, e->data, e->len), e->len };
        return 0;
}

static int fetch_kept(struct merging *m, int class, uint64_t from, struct err *err)
{
        struct kept_page *p = &m->pages[class];
        array_clear(&p->events);
        arena_reset(&p->memory);
        p->next = 0;
        int r = m->r->ops->reader_kept(m->r, (enum event_class) class, from, m->backwards,
                                       KEPT_PAGE, take_kept, p, err);
        p->more = r >= 0 && p->events.len == KEPT_PAGE;
        return r < 0 ? r : 0;
}

/* The class whose event is next; -1: none. */
static int next_kept(const struct merging *m)
{
        int best = -1;
        for (int i = FIRST_KEPT; i < EVENT_CLASSES; i++) {
                const struct kept_page *p = &m->pages[i], *b = best < 0 ? NULL : &m->pages[best];
                if (p->next < p->events.len &&
                    (!b || (p->events.at[p->next].seq < b->events.at[b->next].seq) != m->backwards))
                        best = i;
        }
        return best;
}

/* What is kept apart between what was given last and `end`, both left out; end 0: without an
 * end. */
static int give_kept(struct merging *m, uint64_t end, struct err *err)
{
        int r = 0, class = -1;
        if (!m->r->ops->reader_kept)
                return 0;
        for (int i = FIRST_KEPT; r == 0 && i < EVENT_CLASSES; i++)
                r = fetch_kept(m, i, m->last, err);
        while (r == 0 && (class = next_kept(m)) >= 0) {
                struct kept_page *p = &m->pages[class];
                const struct store_event *e = &p->events.at[p->next];
                if (end && (m->backwards ? e->seq <= end : e->seq >= end))
                        break;
                m->last = e->seq;
                r = m->fn(m->ctx, e, err);
                if (r == 0 && ++p->next == p->events.len && p->more)
                        r = fetch_kept(m, class, m->last, err);
        }
        return r;
}

/* The log has no gap but the one below its floor, which may rise between two pages of a reader.
 * What has left the log before this event was read is kept apart by now, if it is kept at all
 * (2). */
static int give_logged(void *ctx, const struct store_event *e, struct err *err)
{
        struct merging *m = ctx;
        int r = m->backwards || e->seq <= m->last + 1 ? 0 : give_kept(m, e->seq, err);
        if (r != 0)
                return r;
        m->last = e->seq;
        return m->fn(m->ctx, e, err);
}

int store_reader_events(struct store_reader *r, uint64_t since, bool backwards, store_event_fn fn,
                        void *ctx, struct err *err)
{
        if (since > INT64_MAX) /* sequences fit into 63 bits: beyond them is the end */
                since = INT64_MAX;
        struct merging m = { .r = r, .backwards = backwards, .fn = fn, .ctx = ctx, .last = since };
        int rc = r->ops->reader_events(r, since, backwards, give_logged, &m, err);
        /* the log is behind us, or there is none */
        if (rc == 0 && (backwards || (m.last == since && r->ops->reader_first(r) == 0)))
                rc = give_kept(&m, 0, err);
        for (int i = FIRST_KEPT; i < EVENT_CLASSES; i++) {
                array_fini(&m.pages[i].events);
                arena_fini(&m.pages[i].memory);
        }
        return rc;
}

struct finding {
        uint64_t seq;
        store_event_fn fn;
        void *ctx;
        bool found;
};

static int find_event(void *ctx, const struct store_event *e, struct err *err)
{
        struct finding *f = ctx;
        if (e->seq != f->seq)
                return 1;
        f->found = true;
        return f->fn(f->ctx, e, err);
}

int store_reader_event(struct store_reader *r, uint64_t seq, store_event_fn fn, void *ctx,
                       struct err *err)
{
        struct err gone = { 0 };
        struct finding f = { seq, fn, ctx, false };
        if (seq == 0 || seq > INT64_MAX)
                return store_err_no_event(err, seq);
        int rc = r->ops->reader_event(r, seq, fn, ctx, &gone);
        for (int i = FIRST_KEPT; rc == -ERR_NOT_FOUND && r->ops->reader_kept && i < EVENT_CLASSES;
             i++) {
                int found = r->ops->reader_kept(r, (enum event_class)i, seq - 1, false, 1,
                                                find_event, &f, err);
                if (found < 0 || f.found)
                        return found;
        }
        if (rc < 0 && err)
                *err = gone;
        return rc;
}
