/* model/openapi.h: JSON Schema (as in OpenAPI 3.1) of messages, from the same descriptors and rules
 * that the codec and the validation use, so that what /openapi.json promises is what the server
 * takes. Thread-safe.
 */
#ifndef BERTH_MODEL_OPENAPI_H
#define BERTH_MODEL_OPENAPI_H

#include "base/str.h"
#include <protobuf-c/protobuf-c.h>

/* Appends the schema of one message as a JSON object; nested messages are
 * {"$ref":"#/components/schemas/Name"}. */
void openapi_schema(struct str *out, const ProtobufCMessageDescriptor *type);
/* Appends one JSON object {"Name": schema, ...} with the given types and everything that they refer
 * to, each once, sorted by name. */
void openapi_schemas(struct str *out, const ProtobufCMessageDescriptor *const *types,
                     size_t n_types);

#endif
