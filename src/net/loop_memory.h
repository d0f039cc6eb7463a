/* net/loop_memory.h: the event loop's memory comes from base/mem.h.
 *
 * libevent takes some small allocations for granted (a high-water mark follows a NULL pointer), and a timer that could not be added never fires. So its events, callbacks
 * and tables come from mem_must(), which has a reserve behind it; only data in buffers, which peers can make large, may still fail, and libevent reports that.
 */
#ifndef BERTH_NET_LOOP_MEMORY_H
#define BERTH_NET_LOOP_MEMORY_H

/* Once, in main(), before anything else of libevent. */
void loop_memory_setup(void);

#endif
