/* store/etcd_strange.c: records that somebody else changed, e.g. an operator with etcdctl (C1). A
 * leader's only.
 *
 * Every write to etcd moves its revision by one, and the leader knows the revisions of its own
 * transactions. So while nobody else writes, it costs nothing to know that: the revisions follow
 * each other without a gap, and the one that the keep-alive brings is the last of our own. Only a
 * gap makes us look, by a watch over the records from before the gap on, which ends after some
 * seconds without one. What it shows under a revision that is not ours was written by somebody
 * else. A transaction's answer may come after the watch has shown what it did: so nothing is judged
 * while commits are under way, or too early.
 *
 * /alerts and the views before /events (assignments) are not looked at: nobody reads them back but
 * a load.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/etcd_store.h"
#include <string.h>

/* the watch goes on for this long after the last gap */
#define LOOK_NS INT64_C(5000000000)
/* older than this: no answer of ours is still to come for it */
#define SURE_NS (INT64_C(2) * ETCD_CALL_MS * 1000000)
#define FOUND_MAX 256

void etcd_strange_init(struct etcd_strange *t)
{
        pthread_mutex_init(&t->lock, NULL);
}

static void found_fini(struct etcd_found *f)
{
        mem_free(f->key);
        str_fini(&f->value);
}

void etcd_strange_fini(struct etcd_strange *t)
{
        for (size_t i = 0; i < t->found.len; i++)
                found_fini(&t->found.at[i]);
        array_fini(&t->found);
        pthread_mutex_destroy(&t->lock);
}

void etcd_strange_begin(struct etcd_store *s)
{
        struct etcd_strange *t = &s->strange;
        memset(t->own, 0, sizeof(t->own));
        t->last = s->led_revision;
        t->look_until_ns = 0;
}

void etcd_strange_own(struct etcd_store *s, int64_t revision)
{
        struct etcd_strange *t = &s->strange;
        if (revision <= 0)
                return;
        pthread_mutex_lock(&t->lock);
        t->own[revision % ETCD_OWN_MAX] = revision;
        pthread_mutex_unlock(&t->lock);
        if (t->last && revision > t->last + 1 && !t->gap_from)
                t->gap_from = t->last + 1;
        if (revision > t->last)
                t->last = revision;
}

static bool is_own(struct etcd_strange *t, int64_t revision)
{
        return t->own[revision % ETCD_OWN_MAX] == revision;
}

static bool is_record(const char *key)
{
        return !str_starts(key, "/meta/") || strcmp(key, "/meta/cluster") == 0;
}

/* From the client's thread. */
static void seen(void *ctx, const struct etcd_watch_event *event)
{
        struct etcd_store *s = ctx;
        struct etcd_strange *t = &s->strange;
        size_t skip = strlen(s->prefix);
        if (event->compacted) {
                log_warn("etcd was compacted before it could be seen what others wrote",
                         LOG_I("revision", event->revision));
                return;
        }
        if (!event->kv || event->kv->key.len <= skip ||
            event->kv->key.len - skip > STORE_MAX_KEY_BYTES)
                return;
        _cleanup_(mem_freep) char *key = mem_must(event->kv->key.len - skip + 1);
        memcpy(key, event->kv->key.data + skip, event->kv->key.len - skip);
        pthread_mutex_lock(&t->lock);
        if (is_record(key) && etcd_is_ours(s, key) && !is_own(t, event->revision)) {
                if (t->found.len < FOUND_MAX) {
                        struct etcd_found *f = array_push(&t->found);
                        *f = (struct etcd_found){ .key = TAKE_PTR(key),
                                                  .deleted = event->deleted,
                                                  .revision = event->revision,
                                                  .at_ns = clock_mono_ns() };
                        if (!event->deleted)
                                str_add(&f->value, event->kv->value.data, event->kv->value.len);
                } else
                        t->dropped++;
        }
        pthread_mutex_unlock(&t->lock);
}

/* Begins or ends looking. */
static void look(struct etcd_store *s)
{
        struct etcd_strange *t = &s->strange;
        struct arena a = ARENA_INIT;
        int64_t now = clock_mono_ns(), heard = etcd_client_revision(s->client);
        if (!s->chain.n && heard > t->last) {
                t->gap_from = t->gap_from ? t->gap_from : t->last + 1;
                t->last = heard;
                etcd_prove(&s->base); /* what was written may be our own key: not by us */
        }
        if (t->gap_from && !t->look_until_ns) {
                const char *end = s->prefix[0] ? etcd_key(s, &a, "0") : "\x7f";
                etcd_watch_start(s->client, ETCD_WATCH_STRANGE, etcd_key(s, &a, "/events0"), end,
                                 t->gap_from, seen, s);
        }
        if (t->gap_from)
                t->look_until_ns = now + LOOK_NS;
        t->gap_from = 0;
        if (t->look_until_ns && now > t->look_until_ns) {
                etcd_watch_stop(s->client, ETCD_WATCH_STRANGE);
                t->look_until_ns = 0;
        }
        arena_fini(&a);
}

void etcd_strange(struct store *base, store_strange_fn fn, void *ctx)
{
        struct etcd_store *s = etcd_self(base);
        struct etcd_strange *t = &s->strange;
        ARRAY(struct etcd_found) sure = { 0 };
        if (!s->led_revision)
                return;
        etcd_look_again(s);
        look(s);
        int64_t now = clock_mono_ns();
        pthread_mutex_lock(&t->lock);
        size_t kept = 0;
        for (size_t i = 0; i < t->found.len; i++) {
                struct etcd_found *f = &t->found.at[i];
                if (is_own(t, f->revision) || f->revision <= s->led_revision)
                        found_fini(f);
                else if (s->chain.n == 0 || now - f->at_ns > SURE_NS)
                        *array_push(&sure) = *f;
                else
                        t->found.at[kept++] = *f;
        }
        t->found.len = kept;
        uint64_t dropped = t->dropped;
        t->dropped = 0;
        pthread_mutex_unlock(&t->lock);
        if (dropped)
                log_warn("others change records faster than it can be looked into",
                         LOG_I("changes", dropped));
        for (size_t i = 0; i < sure.len; i++) {
                struct arena a = ARENA_INIT;
                struct store_record r = { .key = sure.at[i].key };
                if (!sure.at[i].deleted) {
                        etcd_decode(&a, r.key, sure.at[i].value.buf, sure.at[i].value.len, &r.data,
                                    &r.len);
                        r.data = r.data ? r.data : "";
                }
                fn(ctx, &r);
                arena_fini(&a);
                found_fini(&sure.at[i]);
        }
        array_fini(&sure);
}

void etcd_strange_end(struct etcd_store *s)
{
        if (s->strange.look_until_ns)
                etcd_watch_stop(s->client, ETCD_WATCH_STRANGE);
        s->strange.look_until_ns = s->strange.gap_from = s->strange.last = 0;
}
