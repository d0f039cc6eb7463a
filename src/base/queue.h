/* base/queue.h: a bounded queue of owned pointers between threads.
 *
 * Many producers, one consumer. A full queue says so (queue_push returns false and the caller keeps
 * the item), it never grows. High-priority items (heartbeats, commits' results) have an extra share
 * that the rest cannot fill, and half of the others' (A11). Priority is about room, not order:
 * items leave in the order in which they came. notify, if set, is called by the producer without
 * the lock when the queue turns non-empty (to wake an event loop), and by queue_close(). Destroy a
 * queue only when no thread can push any more.
 */
#ifndef BERTH_BASE_QUEUE_H
#define BERTH_BASE_QUEUE_H

#include "base/macros.h"

struct queue;
struct queue *queue_create(size_t capacity, size_t extra_for_priority, void (*notify)(void *ctx),
                           void *ctx);
void queue_destroy(struct queue *q, void (*free_item)(void *));
bool queue_push(struct queue *q, void *item);
bool queue_push_priority(struct queue *q, void *item);
/* The same without waking anybody: for a producer that pushes many, and promises a queue_wake()
 * soon after. */
bool queue_push_quiet(struct queue *q, void *item, bool priority);
void queue_wake(struct queue *q);
/* Up to max items at once; waits up to timeout_ms for the first (0: not at all, -1: until one comes
 * or the queue is closed). */
size_t queue_pop_many(struct queue *q, void **ret_items, size_t max, int64_t timeout_ms);
/* wakes the consumer; later pushes are refused; what is inside can still be popped */
void queue_close(struct queue *q);
bool queue_is_closed(struct queue *q);
size_t queue_len(struct queue *q);
bool queue_has_room(struct queue *q); /* for an item without priority, at this moment */

#endif
