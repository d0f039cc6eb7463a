/* store/etcd_codec.c: see etcd_codec.h. */
#include "store/etcd_codec.h"
#include "events.pb-c.h"
#include "model/json.h"
#include "model/record.h"
#include <string.h>

#define VALUE_MAX_BYTES (4u << 20)
/* Of larger values JSON may be a quarter longer than they are. Control characters would make it six
 * times as long, and then a transaction with one workload too large for etcd. */
#define JSON_LARGE_BYTES (16u << 10)

static const ProtobufCMessageDescriptor *type_of(const char *key)
{
        if (str_starts(key, "/events/"))
                return &pb__event__descriptor;
        for (size_t i = 0; key[0] == '/' && i < RECORD_VIEWS; i++) {
                const struct record_row *row = &record_rows[i];
                if (key[1] == row->prefix[1] && str_starts(key, row->prefix))
                        return !row->only || str_eq(key + strlen(row->prefix), row->only)
                                   ? row->type
                                   : NULL;
        }
        return NULL;
}

static bool is_status_word(const char *key)
{
        return key[0] == '/' && key[1] == 'n' && str_starts(key, "/nodes/") &&
               str_ends(key, "/status");
}

void etcd_encode_packed(struct str *out, const char *key, const void *data, size_t len)
{
        if (!is_status_word(key))
                str_add(out, "", 1);
        str_add(out, data, len);
}

void etcd_encode(struct str *out, const char *key, const void *data, size_t len)
{
        const ProtobufCMessageDescriptor *type = is_status_word(key) ? NULL : type_of(key);
        size_t before = out->len;
        bool is_json = type && json_write_packed(out, type, data, len, JSON_ZEROS);
        if (is_json && len > JSON_LARGE_BYTES && out->len - before > len + len / 4) {
                out->len = before;
                is_json = false;
        }
        if (!is_json)
                etcd_encode_packed(out, key, data, len);
}

void etcd_decode(struct arena *arena, const char *key, const void *value, size_t value_len,
                 const void **ret_data, size_t *ret_len)
{
        const char *text = value;
        const ProtobufCMessageDescriptor *type = is_status_word(key) ? NULL : type_of(key);
        ProtobufCMessage *m = NULL;
        *ret_data = value;
        *ret_len = value_len;
        if (value_len && text[0] == '\0' && !is_status_word(key)) {
                *ret_data = text + 1;
                *ret_len = value_len - 1;
        } else if (type && json_read(type, text, value_len, VALUE_MAX_BYTES, JSON_IGNORE_UNKNOWN,
                                     arena, &m, NULL) == 0) {
                *ret_len = protobuf_c_message_get_packed_size(m);
                void *packed = arena_alloc(arena, *ret_len + 1);
                protobuf_c_message_pack(m, packed);
                *ret_data = packed;
        }
}
