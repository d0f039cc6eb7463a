/* sim/silence.h: a second opinion on who is silent, and whether the server should suspect itself
 * (C11). It shares no code with the core: nothing is counted ahead, everything is looked at again
 * for every question, and it knows only the committed events. Numbers are those of the
 * requirements. */
#ifndef BERTH_SIM_SILENCE_H
#define BERTH_SIM_SILENCE_H

#include "base/str.h"
#include "events.pb-c.h"
#include "sim/world.h"

struct silence;
struct silence *silence_create(void);
void silence_destroy(struct silence *q);
/* What is wrong with this event, given those before it; NULL: nothing. Then it is taken. */
const char *silence_event(struct silence *q, struct sim *s, struct shadow *h, const Pb__Event *e);
/* A unit leaves a lost node because it is lost. by_itself: nobody asked for that now, and it did
 * not wait for a place. */
const char *silence_leaves(struct silence *q, struct sim *s, struct shadow *h, const Pb__Event *e,
                           bool by_itself);

#endif
