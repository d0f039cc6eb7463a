/* core/extras.c: fields of records that a newer berth wrote and this one does not know (A10).
 *
 * While servers of two versions work together, the older one may lead for a while and write records
 * anew. What it does not know it keeps, byte for byte, and writes again with the record; when the
 * record goes, it goes. Usually there is nothing of the kind, and this costs nothing.
 */
#include "core/extras.h"
#include "base/mem.h"
#include "base/wire.h"
#include "core/state.h"
#include <string.h>

static struct map_key extra_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->extras.at[i].key, strlen(c->extras.at[i].key) };
}

void extras_keep(struct core *c, const char *key, const ProtobufCMessage *m)
{
        if (!m || !m->n_unknown_fields)
                return;
        struct str bytes = STR_INIT;
        for (unsigned i = 0; i < m->n_unknown_fields; i++) {
                const ProtobufCMessageUnknownField *f = &m->unknown_fields[i];
                uint8_t tag[VARINT_MAX];
                str_add(&bytes, tag,
                        varint_put(tag, (uint64_t)f->tag << 3 | (unsigned)f->wire_type));
                str_add(&bytes, f->data, f->len); /* with its length, if it has one */
        }
        extras_drop(c, key);
        if (!c->extras_by_key.key_of)
                map_init(&c->extras_by_key, extra_key, c);
        struct extra x = { .key = mem_strdup(key), .len = bytes.len };
        x.data = str_take(&bytes);
        *array_push(&c->extras) = x;
        map_put(&c->extras_by_key, (uint32_t)c->extras.len - 1);
}

void extras_drop(struct core *c, const char *key)
{
        uint32_t i = c->extras_by_key.len ? map_get(&c->extras_by_key, key, strlen(key)) : MAP_NONE;
        if (i == MAP_NONE)
                return;
        uint32_t last = (uint32_t)c->extras.len - 1;
        map_remove(&c->extras_by_key, i);
        if (i != last)
                map_remove(&c->extras_by_key, last);
        mem_free(c->extras.at[i].key);
        mem_free(c->extras.at[i].data);
        c->extras.at[i] = c->extras.at[last];
        c->extras.len--;
        if (i != last)
                map_put(&c->extras_by_key, i);
}

void extras_append(const struct core *c, struct arena *a, struct store_record *r)
{
        uint32_t i = c->extras_by_key.len && r->data
                         ? map_get(&c->extras_by_key, r->key, strlen(r->key))
                         : MAP_NONE;
        if (i == MAP_NONE)
                return;
        const struct extra *x = &c->extras.at[i];
        char *data = arena_alloc(a, r->len + x->len);
        memcpy(data, r->data, r->len);
        memcpy(data + r->len, x->data, x->len);
        r->data = data;
        r->len += x->len;
}

void extras_fini(struct core *c)
{
        while (c->extras.len)
                extras_drop(c, c->extras.at[c->extras.len - 1].key);
        array_fini(&c->extras);
        map_fini(&c->extras_by_key);
}
