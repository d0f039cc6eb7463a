/* model/json.h: messages as JSON, straight from the protobuf-c descriptors. No tree in between,
 * either way.
 *
 * The form (see the head of proto/records.proto): snake_case names; times as RFC 3339; cpu in cores
 * with up to 3 decimals; enums by name with '-' for '_'; IntValue as a bare number;
 * map<string,string> as an object; bytes as base64; int64 and uint64 as numbers. What is unset or
 * zero is left out, except inside arrays and, with JSON_ZEROS, what the canonical records of seed
 * 001 name.
 *
 * Messages of foreign packages (persys.*) look as protobuf's own JSON mapping says: no times or
 * cores by name, google.protobuf.Timestamp as RFC 3339 (to the millisecond), enums with their names
 * as they are; camelCase names are read as well. JSON_PROTO is that mapping whole.
 *
 * Reading is strict (RFC 8259, UTF-8 checked, no duplicate keys, nothing after the value, at most
 * JSON_MAX_DEPTH levels and JSON_MAX_MESSAGES objects). An error names the path of the field, what
 * was expected and what was there, and line and column as detail. `null` means that the field is
 * absent. Map entries come out sorted by key.
 *
 * Thread-safe. Side tables per message type are built once, at first use, and kept.
 */
#ifndef BERTH_MODEL_JSON_H
#define BERTH_MODEL_JSON_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include <protobuf-c/protobuf-c.h>

#define JSON_MAX_DEPTH 64
#define JSON_MAX_MESSAGES 500000

enum json_flags {
        JSON_COMPACT = 0,
        JSON_PRETTY = 1 << 0, /* write: two spaces per level */
        /* write: keys in byte order; with nothing else it is the canonical form (model/canon.h) */
        JSON_SORTED = 1 << 1,
        /* write: 64-bit integers as strings; read: both forms are taken (protobuf's own dialect) */
        JSON_INT64_AS_STRING = 1 << 2,
        /* read: skip unknown fields; unknown enum names become unset, numbers are taken */
        JSON_IGNORE_UNKNOWN = 1 << 3,
        /* write: what the canonical records name is there, also when it is zero (shape.c) */
        JSON_ZEROS = 1 << 4,
        JSON_PROTO = JSON_INT64_AS_STRING | JSON_IGNORE_UNKNOWN,
};

/* Appends m. Never fails: text that is not UTF-8 comes out with U+FFFD in place of the bad bytes,
 * so the output is always valid. */
void json_write(struct str *out, const ProtobufCMessage *m, unsigned flags);

/* The same of a message that is still packed, which is what json_write() makes of it first: much
 * less work than to unpack it and write it then. false, and nothing was added: this would lose
 * something (a field that this program does not know, one that is there twice, no message at all);
 * unpack the bytes and see. */
bool json_write_packed(struct str *out, const ProtobufCMessageDescriptor *type, const void *data,
                       size_t len, unsigned flags);
/* A whole number, or a text, of such a message: 0, or "", if it has no such field. */
uint64_t json_packed_number(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                            const char *field);
const char *json_packed_text(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                             const char *field, size_t *ret_len);

/* Reads one message of the given type from text (need not end in NUL), at most max_bytes of it,
 * into the arena. On failure what was allocated stays in the arena until that is reset. Always
 * ERR_INVALID: sending the same again cannot help. */
int json_read(const ProtobufCMessageDescriptor *type, const char *text, size_t len,
              size_t max_bytes, unsigned flags, struct arena *arena, ProtobufCMessage **ret_message,
              struct err *err);

/* Sets one scalar field from bare text, as in a query string ("limit", "50"); in a repeated field
 * it adds an element. The same rules and errors as for JSON; a time may be RFC 3339 or Unix
 * milliseconds, cpu may be "250m". Unknown names get a suggestion. */
int json_set_text(ProtobufCMessage *m, const char *name, const char *text, struct arena *arena,
                  struct err *err);

/* Appends text as a JSON string, with the quotes. */
void json_write_string(struct str *out, const char *text, size_t len);

/* "on-failure" for PB__RESTART__E__on_failure; NULL for 0 and for numbers without a name. Lives for
 * ever. */
const char *json_enum_name(const ProtobufCEnumDescriptor *type, int value);
/* The other way; any_case also takes "running" for Running. 0 or -1. Never gives the value 0. */
int json_enum_value(const ProtobufCEnumDescriptor *type, const char *name, bool any_case,
                    int *ret_value);
/* "a, b, c": all names, for messages. Lives for ever. */
const char *json_enum_list(const ProtobufCEnumDescriptor *type);
/* The name that a mistyped one was meant to be, or NULL. Lives for ever. */
const char *json_enum_suggest(const ProtobufCEnumDescriptor *type, const char *name);

#endif
