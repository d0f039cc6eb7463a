/* model/random_message.h: messages with random content, made from the descriptors. For property
 * tests. */
#ifndef BERTH_MODEL_RANDOM_MESSAGE_H
#define BERTH_MODEL_RANDOM_MESSAGE_H

#include "base/arena.h"
#include "base/clock.h"
#include <protobuf-c/protobuf-c.h>

/* Every field is set with the given chance; values cover the limits of their types, texts cover
 * control characters, quotes, line breaks and all lengths of UTF-8. Maps are sorted. Times are
 * whole milliseconds within the years 1970 to 9999. */
ProtobufCMessage *random_message(struct arena *arena, struct rng *rng,
                                 const ProtobufCMessageDescriptor *type, uint32_t per_million);
/* A text of up to 40 characters that people (or attackers) could write. */
char *random_text(struct arena *arena, struct rng *rng);

#endif
