/* tests/fuzz/fuzz_core.h: a core under fuzz: what is done with it once something strange has been
 * loaded or said. */
#ifndef BERTH_TESTS_FUZZ_CORE_H
#define BERTH_TESTS_FUZZ_CORE_H

#include "base/array.h"
#include "core/core.h"
#include "events.pb-c.h"

#define FUZZ_START_MS INT64_C(1767225600000)

struct fuzz_event {
        void *data;
        size_t len;
};

struct core *fuzz_core_new(void);
void fuzz_core_check(struct core *c, const char *when);
/* One input; batches are taken and their events, if wanted, kept in the arena. The invariants hold
 * afterwards. */
void fuzz_core_step(struct core *c, struct input *in, struct arena *a, struct fuzz_event **events,
                    size_t *n_events);
/* Starts it at FUZZ_START_MS and lives through some minutes: a tick, an agent, every kind of
 * question, long silences. */
void fuzz_core_live(struct core *c, struct arena *a);
/* The fold of all events says the same as the core itself (A3). */
void fuzz_core_replay(struct core *c, const struct fuzz_event *events, size_t n_events);

#endif
