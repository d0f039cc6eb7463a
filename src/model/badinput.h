/* model/badinput.h: bad input, made systematically from the descriptors and the rules: every field
 * of a valid example of the wrong type, out of range, too long, unknown, or missing although
 * required. For the tests of REST, gRPC and YAML; not part of the server.
 *
 * Each variant is the example with one thing wrong, and comes with the path that a good error must
 * name.
 */
#ifndef BERTH_MODEL_BADINPUT_H
#define BERTH_MODEL_BADINPUT_H

#include "base/arena.h"
#include <protobuf-c/protobuf-c.h>

struct badinput {
        const char *json; /* one line */
        const char *path; /* expected in err.path */
        /* "wrong type", "out of range", "too long", "too many", "bad text", "unknown field",
         * "missing", "twice" */
        const char *what;
        /* the fault survives in the packed form, so that gRPC can be given it too (a wrong JSON
         * type cannot) */
        bool wire;
        bool yaml; /* it is a fault in YAML too (there 7 is a good text) */
};

/* A valid example with every field that a caller may set, for Workload, Hello and the requests of
 * api.proto; NULL for others. */
ProtobufCMessage *badinput_example(struct arena *arena, const ProtobufCMessageDescriptor *type);
/* All variants of the example (NULL: badinput_example's), in the arena. The number of them. */
size_t badinput_make(struct arena *arena, const ProtobufCMessageDescriptor *type,
                     const ProtobufCMessage *example, struct badinput **ret);
/* The types that have an example, one by one; NULL after the last. */
const ProtobufCMessageDescriptor *badinput_type_at(size_t i);
/* By short name: "Workload". NULL if there is none. */
const ProtobufCMessageDescriptor *badinput_type(const char *short_name);

#endif
