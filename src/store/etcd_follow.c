/* store/etcd_follow.c: what servers that do not lead hear of the store: where its head is, and who
 * leads.
 *
 * Two keys are watched, not the events themselves: they are small, whatever is written, and the
 * events are read from where they are kept. So nothing is lost when the watch breaks off or its
 * past was compacted away: the two keys are read again. They are also read now and then in silence,
 * in case nobody noticed that a connection is dead.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/str.h"
#include "store/etcd_store.h"
#include <string.h>
#include <time.h>

#define ASK_AGAIN_NS INT64_C(3000000000)
#define ASK_MS 2000
#define ANNOUNCED_SECONDS 10
#define SERVERS "/meta/servers/"
#define END "/meta/servers0" /* behind the head, the leader and those who announced themselves */

void etcd_follow_init(struct etcd_follow *f)
{
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_mutex_init(&f->lock, NULL);
        pthread_cond_init(&f->changed, &attr);
        pthread_condattr_destroy(&attr);
}

static void forget_servers(struct etcd_follow *f)
{
        for (size_t i = 0; i < f->servers.len; i++) {
                mem_free(f->servers.at[i].name);
                mem_free(f->servers.at[i].text);
        }
        array_clear(&f->servers);
}

void etcd_follow_fini(struct etcd_follow *f)
{
        forget_servers(f);
        array_fini(&f->servers);
        mem_free(f->name);
        mem_free(f->text);
        pthread_mutex_destroy(&f->lock);
        pthread_cond_destroy(&f->changed);
}

static char *text_of(const ProtobufCBinaryData *b, size_t skip)
{
        char *text = mem_must(b->len - skip + 1);
        memcpy(text, b->data + skip, b->len - skip);
        return text;
}

/* With the lock held. */
static void take_server(struct etcd_follow *f, const Etcd__KeyValue *kv, size_t skip, bool deleted)
{
        _cleanup_(mem_freep) char *name = text_of(&kv->key, skip);
        size_t i = 0;
        while (i < f->servers.len && strcmp(f->servers.at[i].name, name) != 0)
                i++;
        if (i < f->servers.len) {
                mem_free(f->servers.at[i].name);
                mem_free(f->servers.at[i].text);
                f->servers.at[i] = f->servers.at[--f->servers.len];
        }
        if (!deleted && f->servers.len < ETCD_SERVERS_MAX)
                *array_push(&f->servers) =
                    (struct etcd_server){ TAKE_PTR(name), text_of(&kv->value, 0) };
}

/* With the lock held. */
static void take_kv(struct etcd_store *s, const Etcd__KeyValue *kv, bool deleted)
{
        struct store_news *n = &s->follow.news;
        size_t skip = strlen(s->prefix);
        const char *key = (const char *)kv->key.data + skip;
        size_t len = kv->key.len - skip;
        if (kv->key.len <= skip)
                return;
        if (len == strlen("/meta/head") && memcmp(key, "/meta/head", len) == 0 && !deleted) {
                char digits[32] = "";
                uint64_t head;
                memcpy(digits, kv->value.data,
                       kv->value.len < sizeof(digits) ? kv->value.len : sizeof(digits) - 1);
                if (str_parse_u64(digits, &head) == 0)
                        n->head = head;
        } else if (len == strlen("/meta/leader") && memcmp(key, "/meta/leader", len) == 0) {
                n->led = !deleted;
                if (deleted)
                        return;
                size_t m =
                    kv->value.len < sizeof(n->leader) ? kv->value.len : sizeof(n->leader) - 1;
                n->term = kv->create_revision;
                memcpy(n->leader, kv->value.data, m);
                n->leader[m] = 0;
        } else if (len > strlen(SERVERS) && memcmp(key, SERVERS, strlen(SERVERS)) == 0)
                take_server(&s->follow, kv, skip + strlen(SERVERS), deleted);
}

/* Somebody has taken the leadership key away, by hand or by putting back an older store, while its
 * lease goes on: without a commit this server would not notice, and lead beside the next one.
 * revision: of the event. */
void etcd_lost_key(struct etcd_store *s, int64_t revision)
{
        int64_t led = s->led_revision;
        if (led && revision > led && !MUTANT(etcd_leader_not_compared) &&
            !MUTANT(etcd_commit_not_fenced) &&
            atomic_compare_exchange_strong(&s->led_revision, &led, 0) && s->base.on_settled)
                s->base.on_settled(s->base.on_settled_ctx); /* whoever commits looks at once */
}

/* With the lock held: what was heard last of the key. */
static void look_at_key(struct etcd_store *s, int64_t revision)
{
        const struct store_news *n = &s->follow.news;
        if (!n->led || n->term != s->led_revision)
                etcd_lost_key(s, revision);
}

/* From the client's thread. */
static void heard(void *ctx, const struct etcd_watch_event *event)
{
        struct etcd_store *s = ctx;
        struct etcd_follow *f = &s->follow;
        pthread_mutex_lock(&f->lock);
        if (event->compacted)
                f->stale = true;
        else if (event->kv && event->revision >= f->revision) {
                take_kv(s, event->kv, event->deleted);
                f->revision = event->revision;
                look_at_key(s, event->revision);
        }
        pthread_cond_signal(&f->changed);
        pthread_mutex_unlock(&f->lock);
}

/* Reads both keys, linearizably. */
static int ask(struct etcd_store *s, int64_t *ret_revision, struct err *err)
{
        struct etcd_follow *f = &s->follow;
        struct arena a = ARENA_INIT;
        Etcd__RangeRequest range = ETCD__RANGE_REQUEST__INIT;
        ProtobufCMessage *m;
        pthread_mutex_lock(&f->lock);
        int64_t before = f->revision;
        pthread_mutex_unlock(&f->lock);
        range.key = etcd_bytes(etcd_key(s, &a, "/meta/head"));
        range.range_end = etcd_bytes(etcd_key(s, &a, END));
        int r = etcd_call(s->client, "/etcdserverpb.KV/Range", &range.base,
                          &etcd__range_response__descriptor, ASK_MS, &a, &m, err);
        if (r == 0) {
                const Etcd__RangeResponse *answer = (const Etcd__RangeResponse *)m;
                int64_t revision = answer->header ? answer->header->revision : 0;
                pthread_mutex_lock(&f->lock);
                /* no etcd forgets what it has said, but one that was put back from a snapshot */
                bool back = revision < before;
                if (back) {
                        f->news.back++;
                        /* the watch waits for a revision that has not come yet */
                        f->begin_again = true;
                }
                if (revision >= f->revision || back) { /* else the watch knows better already */
                        f->news.led = false;
                        forget_servers(f);
                        for (size_t i = 0; i < answer->n_kvs; i++)
                                take_kv(s, answer->kvs[i], false);
                        f->revision = revision;
                        look_at_key(s, revision);
                }
                f->stale = false;
                pthread_mutex_unlock(&f->lock);
                f->asked_ns = clock_mono_ns();
                *ret_revision = revision;
        }
        arena_fini(&a);
        return r;
}

static int begin(struct etcd_store *s, struct err *err)
{
        struct arena a = ARENA_INIT;
        int64_t revision;
        s->follow.revision = 0;
        s->follow.begin_again = false;
        int r = ask(s, &revision, err);
        if (r == 0) {
                etcd_watch_start(s->client, ETCD_WATCH_META, etcd_key(s, &a, "/meta/head"),
                                 etcd_key(s, &a, END), revision + 1, heard, s);
                s->follow.watching = true;
        }
        arena_fini(&a);
        return r;
}

static bool is_other(const struct store_news *a, const struct store_news *b)
{
        return a->head != b->head || a->led != b->led || a->term != b->term;
}

/* A lease of its own keeps the announcement; a new one when it was lost, or used up by an attempt
 * to lead. */
static void stay_announced(struct etcd_store *s)
{
        struct etcd_follow *f = &s->follow;
        int64_t lease = 0;
        if (!f->name || (f->said_lease && etcd_lease_valid_until_ns(s->client)))
                return;
        if (etcd_lease_take(s->client, ANNOUNCED_SECONDS, ASK_MS, &lease, NULL) == 0)
                etcd_say_hello(s, lease);
}

int etcd_follow(struct store *base, int64_t wait_ms, struct store_news *news, struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct etcd_follow *f = &s->follow;
        int64_t revision, end_ns = clock_mono_ns() + wait_ms * 1000000;
        int r = f->watching && !f->begin_again ? 0 : begin(s, err);
        if (r == 0 && clock_mono_ns() - f->asked_ns > ASK_AGAIN_NS)
                r = ask(s, &revision, err);
        if (r < 0)
                return r;
        stay_announced(s);
        struct timespec until = { .tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000 };
        pthread_mutex_lock(&f->lock);
        while (!f->stale && !is_other(&f->news, news) &&
               pthread_cond_timedwait(&f->changed, &f->lock, &until) == 0)
                ;
        bool stale = f->stale;
        pthread_mutex_unlock(&f->lock);
        if (stale && (r = ask(s, &revision, err)) < 0)
                return r;
        pthread_mutex_lock(&f->lock);
        *news = f->news;
        pthread_mutex_unlock(&f->lock);
        return 0;
}

void etcd_follow_end(struct store *base)
{
        struct etcd_store *s = etcd_self(base);
        struct arena a = ARENA_INIT;
        /* not the head: a leader would hear of every commit of its own */
        if (s->follow.watching && s->led_revision)
                etcd_watch_start(s->client, ETCD_WATCH_META, etcd_key(s, &a, "/meta/leader"),
                                 etcd_key(s, &a, END), s->follow.revision + 1, heard, s);
        else if (s->follow.watching)
                etcd_watch_stop(s->client, ETCD_WATCH_META);
        s->follow.watching = false;
        arena_fini(&a);
}

void etcd_look_again(struct etcd_store *s)
{
        struct etcd_follow *f = &s->follow;
        int64_t revision;
        pthread_mutex_lock(&f->lock);
        bool stale = f->stale;
        pthread_mutex_unlock(&f->lock);
        if (stale)
                (void)ask(s, &revision, NULL); /* what fails is done the next time */
}

/* ---- who is there ---- */

void etcd_announce(struct store *base, const char *name, const char *text)
{
        struct etcd_follow *f = &etcd_self(base)->follow;
        mem_free(f->name);
        mem_free(f->text);
        f->name = mem_strdup(name);
        f->text = mem_strdup(text);
        f->said_lease = 0;
}

void etcd_each_server(struct store *base, void (*fn)(void *ctx, const char *name, const char *text),
                      void *ctx)
{
        struct etcd_follow *f = &etcd_self(base)->follow;
        pthread_mutex_lock(&f->lock);
        for (size_t i = 0; i < f->servers.len; i++)
                fn(ctx, f->servers.at[i].name, f->servers.at[i].text);
        pthread_mutex_unlock(&f->lock);
}

void etcd_say_hello(struct etcd_store *s, int64_t lease)
{
        struct arena a = ARENA_INIT;
        Etcd__PutRequest put = ETCD__PUT_REQUEST__INIT;
        ProtobufCMessage *m;
        if (s->follow.name) {
                put.key =
                    etcd_bytes(etcd_key(s, &a, arena_printf(&a, SERVERS "%s", s->follow.name)));
                put.value = etcd_bytes(s->follow.text);
                put.lease = lease;
                if (etcd_call(s->client, "/etcdserverpb.KV/Put", &put.base,
                              &etcd__put_response__descriptor, ASK_MS, &a, &m, NULL) == 0) {
                        const Etcd__PutResponse *answer = (const Etcd__PutResponse *)m;
                        s->follow.said_lease = lease;
                        etcd_strange_own(s, answer->header ? answer->header->revision : 0);
                }
        }
        arena_fini(&a);
}
