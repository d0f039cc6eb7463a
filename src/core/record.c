/* core/record.c: see record.h. */
#include "core/record.h"
#include "base/mem.h"
#include "core/extras.h"
#include "core/state.h"
#include "model/pb.h"
#include <stdlib.h>
#include <string.h>

static const struct record_kind *const kinds[RECORD_KINDS] = {
        [RECORD_CLUSTER] = &cluster_records,     [RECORD_WORKLOAD] = &workload_records,
        [RECORD_NODE] = &node_records,           [RECORD_TOMBSTONE] = &tombstone_records,
        [RECORD_QUOTA] = &quota_records,         [RECORD_ALERT] = &alert_records,
        [RECORD_OUTGOING] = &outgoing_records,   [RECORD_TOKEN] = &token_records,
        [RECORD_ADMISSION] = &admission_records,
};

const struct record_kind *record_kind(enum record kind)
{
        return kinds[kind];
}

typedef ARRAY(char) any_array; /* every ARRAY() is laid out like this one */

static const any_array *table_of(const struct core *c, const struct record_kind *k)
{
        return (const any_array *)(const void *)((const char *)c + k->table);
}

static uint32_t n_slots(const struct core *c, const struct record_kind *k)
{
        return k->size ? (uint32_t)table_of(c, k)->len : 1;
}

static bool *unsaved_at(struct core *c, const struct record_kind *k, uint32_t slot)
{
        char *base = k->size ? table_of(c, k)->at + slot * k->size : (char *)c;
        return (bool *)(base + k->unsaved);
}

/* ---- what is to be written ---- */

size_t text_bytes(const char *text)
{
        return text ? strlen(text) : 0;
}

void record_changed(struct core *c, enum record kind, uint32_t slot, size_t ops, size_t bytes)
{
        bool *unsaved = unsaved_at(c, kinds[kind], slot);
        if (*unsaved || !c->started)
                return;
        *unsaved = true;
        c->out.ops += ops;
        c->out.bytes += bytes;
        *array_push(&c->out.changed[kind]) = slot;
}

void record_removed(struct core *c, enum record kind, const char *name)
{
        if (!c->started)
                return;
        if (!c->out.memory)
                c->out.memory = mem_must(sizeof(struct arena));
        c->out.ops += c->opt.index_records ? 1 + kinds[kind]->n_views : 1;
        struct removed_record *r = array_push(&c->out.removed);
        *r = (struct removed_record){ kind,
                                      record_key(c->out.memory, record_rows[kind].prefix, name) };
        if (c->extras.len)
                extras_drop(c, r->key);
}

/* One for each record of each batch, so without printf. */
char *record_key(struct arena *a, const char *prefix, const char *name)
{
        size_t n = strlen(prefix), len = strlen(name);
        char *key = arena_alloc(a, n + len + 1);
        memcpy(key, prefix, n);
        memcpy(key + n, name, len + 1);
        return key;
}

/* ---- writing ---- */

void record_put(struct store_record **at, const char *key, void *data, size_t len)
{
        *(*at)++ = (struct store_record){ .key = key, .data = data, .len = len };
}

static void put_changed(struct core *c, enum record kind, uint32_t slot, struct arena *a,
                        struct store_record **at)
{
        const struct record_kind *k = kinds[kind];
        bool *unsaved = unsaved_at(c, k, slot);
        const char *name = *unsaved ? k->name(c, slot, a) : NULL;
        *unsaved = false;
        if (name) {
                size_t len;
                void *data = k->pack(c, slot, a, &len);
                record_put(at, record_key(a, record_rows[kind].prefix, name), data, len);
                if (k->views && c->opt.index_records)
                        k->views(c, name, slot, a, at);
        }
        if (k->saved)
                k->saved(c, slot);
}

static int by_key(const void *a, const void *b)
{
        return strcmp(((const struct removed_record *)a)->key,
                      ((const struct removed_record *)b)->key);
}

static void put_removed(struct core *c, struct core_out *o, struct store_record **at)
{
        if (o->removed.len)
                qsort(o->removed.at, o->removed.len, sizeof(*o->removed.at), by_key);
        for (size_t i = 0; i < o->removed.len; i++) {
                const struct removed_record *r = &o->removed.at[i];
                const struct record_kind *k = kinds[r->kind];
                const char *name = r->key + strlen(record_rows[r->kind].prefix);
                /* Removed twice: once is enough. Made again within this batch: its put is the
                 * truth. */
                if ((i && strcmp(r->key, r[-1].key) == 0) || k->find(c, name) != NONE)
                        continue;
                record_put(at, r->key, NULL, 0);
                if (k->views && c->opt.index_records)
                        k->views(c, name, NONE, o->memory, at);
        }
}

void records_collect(struct core *c, struct core_out *o, struct store_record **ret, size_t *ret_n)
{
        struct arena *a = o->memory;
        size_t max = o->removed.len;
        for (int k = 0; k < RECORD_KINDS; k++)
                max += o->changed[k].len;
        struct store_record *first =
            arena_new_n(a, struct store_record, max * RECORDS_PER_SLOT + 1);
        struct store_record *at = first;
        for (int k = 0; k < RECORD_KINDS; k++)
                for (size_t i = 0; i < o->changed[k].len; i++)
                        put_changed(c, (enum record)k, o->changed[k].at[i], a, &at);
        put_removed(c, o, &at);
        for (struct store_record *r = first; c->extras.len && r < at; r++)
                extras_append(c, a, r);
        *ret = first;
        *ret_n = (size_t)(at - first);
}

/* ---- reading ---- */

static int bad_record(struct err *err, const char *key, const char *why)
{
        return err_set(err, ERR_CORRUPT,
                       .msg = "a stored record is left out because it makes no sense",
                       .detail = fmt("%s: %s", key, why), .hint = "run berth fsck");
}

/* RECORD_KINDS: a view, something of the store itself, or of a newer berth. */
static enum record kind_of(const char *key)
{
        int k = 0;
        while (k < RECORD_KINDS && !str_starts(key, record_rows[k].prefix))
                k++;
        if (k == RECORD_KINDS)
                return RECORD_KINDS;
        const char *name = key + strlen(record_rows[k].prefix), *only = record_rows[k].only;
        bool strange = !name[0] || (only && !str_eq(name, only)) ||
                       (k == RECORD_NODE && strchr(name, '/')) ||
                       (k == RECORD_TOMBSTONE && !strchr(name, '/'));
        return strange ? RECORD_KINDS : (enum record)k;
}

enum record record_of_key(struct core *c, const char *key, const char **ret_name)
{
        for (int v = RECORD_KINDS; v < RECORD_VIEWS; v++)
                if (str_starts(key, record_rows[v].prefix)) {
                        *ret_name = key + strlen(record_rows[v].prefix);
                        return RECORD_WORKLOAD;
                }
        if (str_starts(key, "/nodes/") && str_ends(key, "/status"))
                key = arena_strndup(&c->step, key, strlen(key) - strlen("/status"));
        enum record k = kind_of(key);
        *ret_name = k < RECORD_KINDS ? key + strlen(record_rows[k].prefix) : NULL;
        return k;
}

int core_load_record(struct core *c, const char *key, const void *data, size_t len, struct err *err)
{
        must(!c->started, "records are loaded before INPUT_START");
        enum record k = kind_of(key);
        if (k == RECORD_KINDS)
                return 0;
        struct arena_allocator alloc = arena_allocator(&c->step);
        ProtobufCMessage *m =
            protobuf_c_message_unpack(record_rows[k].type, (ProtobufCAllocator *)&alloc, len, data);
        const char *why =
            m ? kinds[k]->load(c, key + strlen(record_rows[k].prefix), m) : "does not parse";
        int r = why ? bad_record(err, key, why) : 0;
        if (r == 0)
                extras_keep(c, key, m);
        arena_reset(&c->step);
        return r;
}

static int by_record_key(const void *a, const void *b)
{
        return strcmp(((const struct store_record *)a)->key, ((const struct store_record *)b)->key);
}

int core_records(const struct core *cc,
                 int (*fn)(void *ctx, const struct store_record *record, struct err *err),
                 void *ctx, struct err *err)
{
        struct core *c = (struct core *)cc; /* packing uses the step's memory, nothing else */
        struct arena a = ARENA_INIT;
        ARRAY(struct store_record) all = { 0 };
        for (int k = 0; k < RECORD_KINDS; k++)
                for (uint32_t i = 0; i < n_slots(c, kinds[k]); i++) {
                        const char *name = kinds[k]->name(c, i, &a);
                        if (!name)
                                continue;
                        struct store_record *r = array_push(&all);
                        r->key = record_key(&a, record_rows[k].prefix, name);
                        r->data = kinds[k]->pack(c, i, &a, &r->len);
                }
        if (all.len)
                qsort(all.at, all.len, sizeof(*all.at), by_record_key);
        int r = 0;
        for (size_t i = 0; c->extras.len && i < all.len; i++)
                extras_append(c, &a, &all.at[i]);
        for (size_t i = 0; i < all.len && r >= 0; i++)
                r = fn(ctx, &all.at[i], err);
        array_fini(&all);
        arena_fini(&a);
        arena_reset(&c->step);
        return r < 0 ? r : 0;
}
