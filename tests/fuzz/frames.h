/* tests/fuzz/frames.h: an input that is a sequence of messages, and how it is mutated.
 *
 * Bytes that are changed at random almost never stay a message that passes the first check, so the
 * code behind it would see nothing. Inputs of the targets that include this are frames:
 *
 *      kind (1 byte), length (2 bytes, little-endian), data
 *
 * and the mutator changes them as frames: it drops, doubles and swaps some, and changes single
 * fields of the messages in them by their descriptors, with texts that are likely to name something
 * that exists. Now and then it changes plain bytes, so that what does not parse is tried as well.
 */
#ifndef BERTH_TESTS_FRAMES_H
#define BERTH_TESTS_FRAMES_H

#include "base/macros.h"
#include <protobuf-c/protobuf-c.h>

#define FRAMES_MAX 64

struct frame {
        uint8_t kind;
        size_t len;
        const uint8_t *data;
};
/* The frames of an input, at most FRAMES_MAX; what is left over at the end is cut off. They point
 * into data. */
size_t frames_read(const uint8_t *data, size_t size, struct frame frames[FRAMES_MAX]);
/* Appends one to a buffer of cap bytes; false: it does not fit. */
bool frames_add(uint8_t *out, size_t *len, size_t cap, uint8_t kind, const void *data,
                size_t data_len);

/* What each target says: how many kinds there are, which message is in a frame (NULL: plain bytes)
 * and where in it that begins. */
extern const uint8_t frame_kinds;
const ProtobufCMessageDescriptor *frame_type(const struct frame *f, size_t *ret_offset);

#endif
