/* model/redact.h: what a role may not see in a message (A7, A14).
 *
 * Which fields, and from whom, stands in their rows of rules.c (`.hidden`), so a new message that
 * holds a Spec or an AccessToken is covered by having it. Whatever leaves the server for a caller
 * goes through redact(), or through redact_packed() or redact_json() if it is packed: answers,
 * lists, events, streams, all dialects.
 *
 *      viewers        names of environment variables, no values; none of the texts that may hold
 *                     some (Compose files, Pods, cloud-init); no addresses of webhooks, which often
 *                     are secrets themselves
 *      operators      all of these, but no hashes of tokens
 *      admins         everything
 *
 * Anybody else (a node, a server that speaks for nobody) sees what viewers see. Thread-safe, as the
 * messages are.
 */
#ifndef BERTH_MODEL_REDACT_H
#define BERTH_MODEL_REDACT_H

#include "base/str.h"
#include <protobuf-c/protobuf-c.h>

/* What stands where a value was. Validation refuses it in a definition: what a viewer has saved
 * must not replace the real thing when somebody else applies it. */
#define REDACTED_TEXT "(hidden: viewers see no values)"

/* How much is taken away; more with each. */
enum redact_level { REDACT_NOTHING, REDACT_HASHES, REDACT_VALUES, _REDACT_LEVELS };
enum redact_level redact_level_of(int role); /* Pb__Role__E */

/* Is anything of this type hidden at this level at all? If not, its bytes can be sent as they
 * are. */
bool redact_concerns(enum redact_level level, const ProtobufCMessageDescriptor *type);
/* Does this packed message hold anything that is hidden at this level? Looks at its first level of
 * fields only, so true means "maybe"; false: its bytes can be sent as they are. */
bool redact_finds(enum redact_level level, const ProtobufCMessageDescriptor *type, const void *data,
                  size_t len);
/* Prepares a message for a role, in place. Texts are replaced, never freed: for messages in arenas.
 * What this program does not know (fields of a newer one) is dropped where something is hidden,
 * since nobody can say what it is. */
void redact(enum redact_level level, ProtobufCMessage *m);
/* The same for packed bytes: appends them as the role may see them. false: they cannot be read;
 * nothing is appended. */
bool redact_packed(enum redact_level level, const ProtobufCMessageDescriptor *type,
                   const void *data, size_t len, struct str *out);
/* The same as JSON; flags: enum json_flags. Unpacked only if it must be. */
bool redact_json(enum redact_level level, const ProtobufCMessageDescriptor *type, const void *data,
                 size_t len, unsigned flags, struct str *out);

#endif
