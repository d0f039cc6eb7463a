/* server/reflection.h: what this server serves, for tools that have no .proto files (grpcurl and
 * others): grpc.reflection.v1 and v1alpha, which differ in name only.
 *
 * The descriptors of all services and of everything that they import are part of the binary, made
 * by protoc at build time.
 */
#ifndef BERTH_SERVER_REFLECTION_H
#define BERTH_SERVER_REFLECTION_H

#include "base/str.h"

struct grpc_callbacks;

/* A packed google.protobuf.FileDescriptorSet. */
extern const unsigned char reflection_files[];
extern const size_t reflection_files_len;

/* For both methods ServerReflectionInfo. */
struct grpc_callbacks reflection_callbacks(void);

/* Appends the packed response to one packed request. -1: the request cannot be read. Exposed for
 * its test. */
int reflection_answer(struct str *out, const void *request, size_t len);

#endif
