/* net/loop_memory.c: see loop_memory.h. */
#include "net/loop_memory.h"

#include "base/mem.h"
#include <event2/event.h>
#include <stdlib.h>

#define SMALL_BYTES 1000 /* events, callbacks, buffer heads, bufferevents; the smallest piece of a buffer's data has 1,024 */

static void *take(size_t size)
{
        return size <= SMALL_BYTES ? mem_must_resize(NULL, size) : mem_try_bytes(size);
}

void loop_memory_setup(void)
{
        event_set_mem_functions(take, mem_must_resize, mem_free);
}
