/* store/etcd_codec.c: see etcd_codec.h. */
#include "store/etcd_codec.h"
#include "events.pb-c.h"
#include "model/json.h"
#include "records.pb-c.h"
#include <string.h>

#define VALUE_MAX_BYTES (4u << 20)
/* Of larger values JSON may be a quarter longer than they are. Control characters would make it six times as long, and then a transaction with one workload too large for etcd. */
#define JSON_LARGE_BYTES (16u << 10)

static const struct {
        const char *prefix;
        const ProtobufCMessageDescriptor *type;
} kinds[] = {
        { "/events/", &pb__event__descriptor },
        { "/workloads/", &pb__workload__descriptor },
        { "/nodes/", &pb__node__descriptor },
        { "/tombstones/", &pb__tombstone__descriptor },
        { "/assignments/", &pb__assignment__descriptor },
        { "/retries/", &pb__retry__descriptor },
        { "/reconciliation/", &pb__reconciliation__descriptor },
        { "/quotas/", &pb__quota__descriptor },
        { "/outbox/", &pb__outgoing__descriptor },
        { "/tokens/", &pb__access_token__descriptor },
        { "/alerts/", &pb__alert__descriptor },
        { "/admissions/", &pb__admission__descriptor },
        { "/meta/cluster", &pb__cluster__descriptor },
};

static const ProtobufCMessageDescriptor *type_of(const char *key)
{
        for (size_t i = 0; key[0] == '/' && i < ARRAY_LEN(kinds); i++)
                if (key[1] == kinds[i].prefix[1] && str_starts(key, kinds[i].prefix))
                        return kinds[i].type;
        return NULL;
}

static bool is_status_word(const char *key)
{
        return key[0] == '/' && key[1] == 'n' && str_starts(key, "/nodes/") && str_ends(key, "/status");
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

void etcd_decode(struct arena *arena, const char *key, const void *value, size_t value_len, const void **ret_data, size_t *ret_len)
{
        const char *text = value;
        const ProtobufCMessageDescriptor *type = is_status_word(key) ? NULL : type_of(key);
        ProtobufCMessage *m = NULL;
        *ret_data = value;
        *ret_len = value_len;
        if (value_len && text[0] == '\0' && !is_status_word(key)) {
                *ret_data = text + 1;
                *ret_len = value_len - 1;
        } else if (type && json_read(type, text, value_len, VALUE_MAX_BYTES, JSON_IGNORE_UNKNOWN, arena, &m, NULL) == 0) {
                *ret_len = protobuf_c_message_get_packed_size(m);
                void *packed = arena_alloc(arena, *ret_len + 1);
                protobuf_c_message_pack(m, packed);
                *ret_data = packed;
        }
}
