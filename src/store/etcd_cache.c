/* store/etcd_cache.c: the committed records, in memory, for those who ask while etcd cannot be
 * reached (C35).
 *
 * etcd is another machine: when it is away it cannot even be read, unlike a disk that is full. So
 * what was loaded and what was committed since is kept here as well, packed, without the views that
 * are only there for people. It is filled by the store thread and read by others, under one lock.
 */
#include "base/array.h"
#include "base/map.h"
#include "base/mem.h"
#include "model/record.h"
#include "store/etcd_store.h"
#include <string.h>

static struct map_key key_of(const void *ctx, uint32_t i)
{
        const struct etcd_cache *c = ctx;
        return (struct map_key){ c->records.at[i].key, strlen(c->records.at[i].key) };
}

void etcd_cache_init(struct etcd_cache *c)
{
        pthread_mutex_init(&c->lock, NULL);
        map_init(&c->by_key, key_of, c);
}

static void clear(struct etcd_cache *c)
{
        for (size_t i = 0; i < c->records.len; i++) {
                mem_free((char *)c->records.at[i].key);
                mem_free((void *)c->records.at[i].data);
        }
        array_clear(&c->records);
        map_clear(&c->by_key);
}

void etcd_cache_fini(struct etcd_cache *c)
{
        clear(c);
        array_fini(&c->records);
        map_fini(&c->by_key);
        pthread_mutex_destroy(&c->lock);
}

static bool is_view(const char *key)
{
        for (size_t i = RECORD_KINDS; i < RECORD_VIEWS; i++)
                if (str_starts(key, record_rows[i].prefix))
                        return true;
        return str_starts(key, "/nodes/") && str_ends(key, "/status");
}

/* Never NULL: that would be a removal. */
static void *copy_of(const void *data, size_t len)
{
        void *copy = mem_must(len + !len);
        if (len)
                memcpy(copy, data, len);
        return copy;
}

static void put_one(struct etcd_cache *c, const char *key, const void *data, size_t len)
{
        if (is_view(key))
                return;
        uint32_t i = map_get(&c->by_key, key, strlen(key));
        if (i != MAP_NONE) {
                mem_free((void *)c->records.at[i].data);
                c->records.at[i].data = copy_of(data, len);
                c->records.at[i].len = len;
                return;
        }
        *array_push(&c->records) =
            (struct store_record){ mem_strdup(key), copy_of(data, len), len };
        map_put(&c->by_key, (uint32_t)c->records.len - 1);
}

static void remove_one(struct etcd_cache *c, const char *key)
{
        uint32_t i = map_get(&c->by_key, key, strlen(key)), last = (uint32_t)c->records.len - 1;
        if (i == MAP_NONE)
                return;
        map_remove(&c->by_key, i);
        mem_free((char *)c->records.at[i].key);
        mem_free((void *)c->records.at[i].data);
        if (i != last) { /* the last one takes its place */
                map_remove(&c->by_key, last);
                c->records.at[i] = c->records.at[last];
                c->records.len--;
                map_put(&c->by_key, i);
        } else
                c->records.len--;
}

void etcd_cache_reset(struct etcd_cache *c)
{
        pthread_mutex_lock(&c->lock);
        clear(c);
        c->whole = false;
        pthread_mutex_unlock(&c->lock);
}

void etcd_cache_load(struct etcd_cache *c, const struct store_record *r)
{
        pthread_mutex_lock(&c->lock);
        put_one(c, r->key, r->data, r->len);
        pthread_mutex_unlock(&c->lock);
}

void etcd_cache_loaded(struct etcd_cache *c, uint64_t head)
{
        pthread_mutex_lock(&c->lock);
        c->whole = true;
        c->head = head;
        pthread_mutex_unlock(&c->lock);
}

void etcd_cache_commit(struct etcd_cache *c, const struct store_batch *b)
{
        pthread_mutex_lock(&c->lock);
        for (size_t i = 0; c->whole && i < b->n_records; i++)
                if (b->records[i].data)
                        put_one(c, b->records[i].key, b->records[i].data, b->records[i].len);
                else
                        remove_one(c, b->records[i].key);
        c->head = b->new_head;
        pthread_mutex_unlock(&c->lock);
}

int etcd_cache_records(struct etcd_cache *c, store_record_fn fn, void *ctx, uint64_t *ret_head,
                       struct err *err)
{
        int r = 0;
        /* fn only fills a core; a commit waits for it, and there is none while etcd is away */
        pthread_mutex_lock(&c->lock);
        if (!c->whole)
                r = err_set(err, ERR_UNAVAILABLE, .msg = "the store was never loaded",
                            .detail = "etcd does not answer",
                            .hint = "check that its members run and can be reached; berth tries "
                                    "again by itself");
        for (size_t i = 0; r >= 0 && i < c->records.len; i++)
                r = fn(ctx, &c->records.at[i], err);
        if (r >= 0)
                *ret_head = c->head;
        pthread_mutex_unlock(&c->lock);
        return r < 0 ? r : 0;
}
