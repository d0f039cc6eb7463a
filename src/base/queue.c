/* base/queue.c: a ring of pointers under one mutex.
 *
 * The items of a queue leave in the order in which they came, whatever their priority: a heartbeat
 * must not overtake the status that its node sent before it. Priority only opens the last places of
 * the ring.
 *
 * Invariants:
 *   (1) len <= capacity + extra; of these at most capacity have no priority, and at most capacity /
 *       2 + extra have: a burst of the one leaves room for the other.
 *   (2) Every push that makes len go from 0 to 1 is followed by a signal, and by notify without the
 *       lock; after a quiet one, queue_wake() does both.
 */
#include "base/queue.h"

#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

struct queue {
        pthread_mutex_t lock; /* guards all below it */
        pthread_cond_t changed;
        void **items;
        size_t size, capacity; /* size: capacity and extra */
        size_t first, len;
        bool *urgent; /* the item at the same place has priority */
        size_t n_urgent;
        bool closed;
        void (*notify)(void *ctx); /* these two never change */
        void *ctx;
};

struct queue *queue_create(size_t capacity, size_t extra_for_priority, void (*notify)(void *ctx),
                           void *ctx)
{
        must(capacity > 0 && capacity < SIZE_MAX / 4 / sizeof(void *) &&
                 extra_for_priority < SIZE_MAX / 4 / sizeof(void *),
             "a queue has a capacity and fits into memory");
        struct queue *q = mem_must(sizeof(*q));
        pthread_condattr_t attr;

        q->size = capacity + extra_for_priority;
        q->capacity = capacity;
        q->items = mem_must(q->size * sizeof(*q->items));
        q->urgent = mem_must(q->size * sizeof(*q->urgent));
        q->notify = notify;
        q->ctx = ctx;
        pthread_mutex_init(&q->lock, NULL);
        /* Not the wall clock, which may be set back by an hour while we wait. */
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&q->changed, &attr);
        pthread_condattr_destroy(&attr);
        return q;
}

void queue_destroy(struct queue *q, void (*free_item)(void *))
{
        if (!q)
                return;
        for (size_t i = 0; i < q->len && free_item; i++)
                free_item(q->items[(q->first + i) % q->size]);
        pthread_cond_destroy(&q->changed);
        pthread_mutex_destroy(&q->lock);
        mem_free(q->items);
        mem_free(q->urgent);
        mem_free(q);
}

static bool has_room(const struct queue *q, bool urgent)
{
        size_t extra = q->size - q->capacity;
        if (q->len >= q->size)
                return false;
        return urgent ? extra == 0 || q->n_urgent < q->capacity / 2 + extra
                      : q->len - q->n_urgent < q->capacity;
}

static bool push(struct queue *q, void *item, bool urgent, bool quiet)
{
        pthread_mutex_lock(&q->lock);
        bool taken = !q->closed && has_room(q, urgent);
        bool first = taken && q->len == 0 && !quiet;
        if (taken) {
                size_t at = (q->first + q->len) % q->size;
                q->items[at] = item;
                q->urgent[at] = urgent;
                q->n_urgent += urgent;
                q->len++;
        }
        if (first)
                pthread_cond_signal(&q->changed);
        pthread_mutex_unlock(&q->lock);
        if (first && q->notify)
                q->notify(q->ctx);
        return taken;
}

bool queue_push(struct queue *q, void *item)
{
        return push(q, item, false, false);
}

bool queue_push_priority(struct queue *q, void *item)
{
        return push(q, item, true, false);
}

bool queue_push_quiet(struct queue *q, void *item, bool priority)
{
        return push(q, item, priority, true);
}

void queue_wake(struct queue *q)
{
        pthread_mutex_lock(&q->lock);
        bool any = q->len > 0;
        if (any)
                pthread_cond_signal(&q->changed);
        pthread_mutex_unlock(&q->lock);
        if (any && q->notify)
                q->notify(q->ctx);
}

static struct timespec deadline_after(int64_t timeout_ms)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        /* A year is as good as any longer wait, and cannot overflow. */
        if (timeout_ms > INT64_C(365) * 86400000)
                timeout_ms = INT64_C(365) * 86400000;
        t.tv_sec += (time_t)(timeout_ms / 1000);
        t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        if (t.tv_nsec >= 1000000000) {
                t.tv_sec++;
                t.tv_nsec -= 1000000000;
        }
        return t;
}

size_t queue_pop_many(struct queue *q, void **ret_items, size_t max, int64_t timeout_ms)
{
        struct timespec deadline = { 0 };
        size_t n = 0;

        if (timeout_ms > 0)
                deadline = deadline_after(timeout_ms);
        pthread_mutex_lock(&q->lock);
        while (q->len == 0 && !q->closed && timeout_ms != 0) {
                if (timeout_ms < 0)
                        pthread_cond_wait(&q->changed, &q->lock);
                else if (pthread_cond_timedwait(&q->changed, &q->lock, &deadline) == ETIMEDOUT)
                        break;
        }
        for (; n < max && q->len > 0; n++, q->len--) {
                ret_items[n] = q->items[q->first];
                q->n_urgent -= q->urgent[q->first];
                q->first = q->first + 1 == q->size ? 0 : q->first + 1;
        }
        pthread_mutex_unlock(&q->lock);
        return n;
}

void queue_close(struct queue *q)
{
        pthread_mutex_lock(&q->lock);
        bool first = !q->closed;
        q->closed = true;
        pthread_cond_broadcast(&q->changed);
        pthread_mutex_unlock(&q->lock);
        if (first && q->notify)
                q->notify(q->ctx);
}

bool queue_is_closed(struct queue *q)
{
        pthread_mutex_lock(&q->lock);
        bool closed = q->closed;
        pthread_mutex_unlock(&q->lock);
        return closed;
}

bool queue_has_room(struct queue *q)
{
        pthread_mutex_lock(&q->lock);
        bool room = !q->closed && has_room(q, false);
        pthread_mutex_unlock(&q->lock);
        return room;
}

size_t queue_len(struct queue *q)
{
        pthread_mutex_lock(&q->lock);
        size_t len = q->len;
        pthread_mutex_unlock(&q->lock);
        return len;
}
