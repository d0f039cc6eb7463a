/* net/slots.h: ids for short-lived objects, so that another thread can name one without holding a
 * pointer to it.
 *
 * An id is (generation << 32 | index): never 0, and not used again before 2^32 objects have passed
 * through the same slot.
 */
#ifndef BERTH_NET_SLOTS_H
#define BERTH_NET_SLOTS_H

#include "base/array.h"
#include <assert.h>

struct slot {
        void *object;
        uint32_t generation;
};
struct slots {
        ARRAY(struct slot) all;
        ARRAY(uint32_t) unused;
};

static inline uint64_t slots_take(struct slots *s, void *object)
{
        uint32_t ix;

        if (s->unused.len > 0)
                ix = array_pop(&s->unused);
        else {
                ix = (uint32_t)s->all.len;
                (void)array_push(&s->all);
        }
        s->all.at[ix].object = object;
        if (++s->all.at[ix].generation == 0)
                s->all.at[ix].generation = 1;
        return (uint64_t)s->all.at[ix].generation << 32 | ix;
}

/* NULL when the object is gone. */
static inline void *slots_get(const struct slots *s, uint64_t id)
{
        uint32_t ix = (uint32_t)id;

        return ix < s->all.len && s->all.at[ix].generation == id >> 32 ? s->all.at[ix].object
                                                                       : NULL;
}

static inline void slots_drop(struct slots *s, uint64_t id)
{
        uint32_t ix = (uint32_t)id;

        assert(slots_get(s, id));
        s->all.at[ix].object = NULL;
        *array_push(&s->unused) = ix;
}

static inline void slots_fini(struct slots *s)
{
        array_fini(&s->all);
        array_fini(&s->unused);
}

#endif
