/* store/etcd_read.c: reading from the store in etcd: all records at one revision, and events page
 * by page. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/record.h"
#include "store/etcd_store.h"
#include <stdio.h>
#include <string.h>

#define TELL_NS 1000000000LL

/* ---- records ---- */

static bool is_internal(const char *key)
{
        return str_starts(key, "/meta/checkpoint") || str_starts(key, "/meta/servers/") ||
               strcmp(key, "/meta/leader") == 0 || strcmp(key, "/meta/head") == 0 ||
               strcmp(key, "/meta/schema") == 0 || strcmp(key, "/meta/restoring") == 0;
}

/* The i-th of them in the order of keys, in which a store gives its records. */
static const char *prefix_at(size_t i)
{
        for (size_t k = 0; k < n_record_rows; k++) {
                size_t before = 0;
                for (size_t j = 0; j < n_record_rows; j++)
                        before += strcmp(record_rows[j].prefix, record_rows[k].prefix) < 0;
                if (before == i)
                        return record_rows[k].prefix;
        }
        return NULL; /* never: no two are the same */
}

size_t etcd_n_ranges(const struct etcd_store *s)
{
        return s->prefix[0] ? 2 : n_record_rows;
}

void etcd_range_at(const struct etcd_store *s, size_t i, struct arena *a, const char **ret_from,
                   const char **ret_end)
{
        if (s->prefix[0]) { /* around the events */
                *ret_from = etcd_key(s, a, i ? "/events0" : "/");
                *ret_end = etcd_key(s, a, i ? "0" : "/events/");
                return;
        }
        *ret_from = prefix_at(i);
        char *end = arena_strdup(a, *ret_from);
        end[strlen(end) - 1]++; /* '0' comes after '/' */
        *ret_end = end;
}

bool etcd_is_ours(const struct etcd_store *s, const char *key)
{
        if (s->prefix[0])
                return key[0] == '/'; /* not of "/team2" for "/team" */
        for (size_t i = 0; i < n_record_rows; i++)
                if (str_starts(key, record_rows[i].prefix))
                        return true;
        return false;
}

struct segment {
        char from[STORE_MAX_KEY_BYTES + 300];
        size_t from_len;
        const char *end;
        size_t end_len;
};

/* How many keys the next page is asked to have. */
struct pages {
        int64_t limit;
        bool answered; /* etcd was there a moment ago */
};

/* As many as make ETCD_PAGE_BYTES if the next are like these, but not more than twice as many: they
 * may not be. */
static void pages_learn(struct pages *p, const Etcd__RangeResponse *page)
{
        int64_t bytes = 1;
        for (size_t i = 0; i < page->n_kvs; i++)
                bytes += (int64_t)(page->kvs[i]->key.len + page->kvs[i]->value.len);
        int64_t fit = (int64_t)page->n_kvs * ETCD_PAGE_BYTES / bytes,
                most = 2 * p->limit < ETCD_PAGE_MAX ? 2 * p->limit : ETCD_PAGE_MAX;
        if (page->n_kvs)
                p->limit = fit < 1 ? 1 : fit > most ? most : fit;
}

static int page_read(struct etcd_store *s, struct pages *p, const struct segment *g, bool backwards,
                     int64_t *revision, struct arena *a, Etcd__RangeResponse **ret, struct err *err)
{
        for (;;) {
                struct err own = { 0 };
                int r = etcd_range(s, g->from, g->from_len, g->end, g->end_len, p->limit, backwards,
                                   revision, a, ret, &own);
                if (r == 0) {
                        pages_learn(p, *ret);
                        p->answered = true;
                        return 0;
                }
                if (r == -ERR_LIMIT && p->limit > 1)
                        p->limit /= 2;
                /* perhaps it was too much for the time that a call has */
                else if (r == -ERR_UNAVAILABLE && p->answered && p->limit > 1)
                        p->limit = p->limit > ETCD_PAGE ? ETCD_PAGE
                                   : p->limit > 8       ? p->limit / 8
                                                        : 1;
                else {
                        if (err)
                                *err = own;
                        return r;
                }
        }
}

static int give_page(struct etcd_store *s, struct segment *g, const Etcd__RangeResponse *page,
                     etcd_value_fn fn, void *ctx, struct arena *a, struct err *err)
{
        size_t skip = strlen(s->prefix);
        for (size_t i = 0; i < page->n_kvs; i++) {
                const Etcd__KeyValue *kv = page->kvs[i];
                if (kv->key.len < skip || kv->key.len - skip > STORE_MAX_KEY_BYTES)
                        continue; /* nobody of us wrote that */
                char *key = arena_strndup(a, (const char *)kv->key.data + skip, kv->key.len - skip);
                int r = is_internal(key) ? 0 : fn(ctx, key, kv, err);
                if (r < 0)
                        return r;
        }
        if (page->n_kvs) { /* on from the key after the last */
                const ProtobufCBinaryData *last = &page->kvs[page->n_kvs - 1]->key;
                g->from_len = last->len < sizeof(g->from) - 1 ? last->len : sizeof(g->from) - 1;
                memcpy(g->from, last->data, g->from_len);
                g->from[g->from_len++] = '\0';
        }
        return 0;
}

/* What is told while it takes long. */
struct loading {
        const char *says_or_null;
        int64_t told_ns, done, of;
};

/* How many there are in the ranges from the i-th on: as the answers to requests for one key each
 * tell. -1: etcd does not say. */
static int64_t count_from(struct etcd_store *s, size_t i, int64_t revision)
{
        struct arena a = ARENA_INIT;
        int64_t n = 0;
        for (; i < etcd_n_ranges(s); i++) {
                const char *from, *end;
                Etcd__RangeResponse *page;
                etcd_range_at(s, i, &a, &from, &end);
                if (etcd_range(s, from, strlen(from), end, strlen(end), 1, false, &revision, &a,
                               &page, NULL) < 0) {
                        n = -1;
                        break; /* the load itself will say what is wrong */
                }
                n += page->count;
        }
        arena_fini(&a);
        return n;
}

static void tell(struct etcd_store *s, struct loading *l, const Etcd__RangeResponse *page,
                 size_t range, int64_t revision)
{
        l->done += (int64_t)page->n_kvs;
        if (!l->says_or_null || clock_mono_ns() - l->told_ns < TELL_NS)
                return;
        if (!l->of) { /* the page's count is of itself and all behind it in its range */
                int64_t others = count_from(s, range + 1, revision);
                l->of = others < 0 ? 0 : l->done + page->count - (int64_t)page->n_kvs + others;
        }
        if (l->of)
                log_info(l->says_or_null, LOG_I("records", l->done), LOG_I("of", l->of));
        l->told_ns = clock_mono_ns();
}

static int each_of(struct etcd_store *s, size_t range, struct loading *l, struct pages *pages,
                   int64_t *revision, etcd_value_fn fn, void *ctx, struct err *err)
{
        struct arena a = ARENA_INIT, names = ARENA_INIT;
        struct segment g = { 0 };
        const char *from;
        bool more = true;
        int r = 0;
        etcd_range_at(s, range, &names, &from, &g.end);
        g.end_len = strlen(g.end);
        g.from_len = strlen(from) < sizeof(g.from) ? strlen(from) : sizeof(g.from);
        memcpy(g.from, from, g.from_len);
        while (r == 0 && more) {
                Etcd__RangeResponse *page;
                r = page_read(s, pages, &g, false, revision, &a, &page, err);
                if (r == 0) {
                        more = page->more && page->n_kvs;
                        r = give_page(s, &g, page, fn, ctx, &a, err);
                        tell(s, l, page, range, *revision);
                }
                arena_reset(&a);
        }
        arena_fini(&names);
        arena_fini(&a);
        return r;
}

int etcd_each_record(struct etcd_store *s, const char *says, etcd_value_fn fn, void *ctx,
                     uint64_t *ret_head, struct err *err)
{
        struct arena a = ARENA_INIT;
        struct pages pages = { .limit = ETCD_PAGE };
        struct loading l = { .says_or_null = says, .told_ns = clock_mono_ns() };
        int64_t revision = 0;
        const Etcd__KeyValue *head;
        /* The head first: all pages are of the revision at which it was read. */
        int r = etcd_get(s, etcd_key(s, &a, "/meta/head"), &revision, &a, &head, err);
        if (r == 0 && (!head || str_parse_u64(arena_strndup(&a, (const char *)head->value.data,
                                                            head->value.len),
                                              ret_head) < 0))
                r = err_set(err, ERR_CORRUPT, .msg = "the store in etcd has no head",
                            .detail = fmt("prefix \"%s\"", s->prefix),
                            .hint = "restore a backup, or use another prefix");
        pages.answered = r == 0;
        for (size_t i = 0; r == 0 && i < etcd_n_ranges(s); i++)
                r = each_of(s, i, &l, &pages, &revision, fn, ctx, err);
        arena_fini(&a);
        return r;
}

/* ---- events ---- */

struct etcd_reader {
        struct store_reader base;
        struct etcd_store *s;
};

int etcd_reader_open(struct store *base, struct store_reader **ret_reader, struct err *err)
{
        struct etcd_reader *r = mem_must(sizeof(*r));
        (void)err;
        r->base.ops = &etcd_ops;
        r->s = etcd_self(base);
        *ret_reader = &r->base;
        return 0;
}

void etcd_reader_close(struct store_reader *base)
{
        mem_free(base);
}

bool etcd_seq_of(const Etcd__KeyValue *kv, uint64_t *ret)
{
        char digits[ETCD_SEQ_DIGITS + 1];
        if (kv->key.len <= ETCD_SEQ_DIGITS ||
            kv->key.data[kv->key.len - ETCD_SEQ_DIGITS - 1] != '/')
                return false;
        memcpy(digits, kv->key.data + kv->key.len - ETCD_SEQ_DIGITS, ETCD_SEQ_DIGITS);
        digits[ETCD_SEQ_DIGITS] = 0;
        return str_parse_u64(digits, ret) == 0;
}

static int give_event(const Etcd__KeyValue *kv, struct arena *a, store_event_fn fn, void *ctx,
                      uint64_t *seq, struct err *err)
{
        struct store_event e = { 0 };
        if (!etcd_seq_of(kv, &e.seq))
                return 0;
        *seq = e.seq;
        etcd_decode(a, "/events/", kv->value.data, kv->value.len, &e.data, &e.len);
        if (!e.data)
                e.data = "";
        return fn(ctx, &e, err);
}

int etcd_reader_events(struct store_reader *base, uint64_t since, bool backwards, store_event_fn fn,
                       void *ctx, struct err *err)
{
        struct etcd_store *s = ((struct etcd_reader *)base)->s;
        struct arena a = ARENA_INIT;
        struct pages pages = { .limit = ETCD_PAGE };
        bool more = true;
        int r = 0;
        while (r == 0 && more) {
                Etcd__RangeResponse *page;
                int64_t now = 0;
                struct segment g = { .end = backwards && since ? etcd_event_key(s, &a, since)
                                                               : etcd_key(s, &a, "/events0") };
                g.end_len = strlen(g.end);
                g.from_len = (size_t)snprintf(g.from, sizeof(g.from), "%s",
                                              etcd_event_key(s, &a, backwards ? 0 : since + 1));
                r = page_read(s, &pages, &g, backwards, &now, &a, &page, err);
                if (r < 0)
                        break;
                more = page->more && page->n_kvs;
                for (size_t i = 0; i < page->n_kvs && r == 0; i++)
                        r = give_event(page->kvs[i], &a, fn, ctx, &since, err);
                arena_reset(&a);
        }
        arena_fini(&a);
        return r;
}

int etcd_reader_event(struct store_reader *base, uint64_t seq, store_event_fn fn, void *ctx,
                      struct err *err)
{
        struct etcd_store *s = ((struct etcd_reader *)base)->s;
        struct arena a = ARENA_INIT;
        const Etcd__KeyValue *kv;
        int r = etcd_get(s, etcd_event_key(s, &a, seq), NULL, &a, &kv, err);
        if (r == 0)
                r = kv ? give_event(kv, &a, fn, ctx, &seq, err) : store_err_no_event(err, seq);
        arena_fini(&a);
        return r;
}

/* From memory if this process follows the store, else from etcd. */
struct giving {
        store_record_fn fn;
        void *ctx;
        struct arena memory;
};

static int give_record(void *ctx, const char *key, const Etcd__KeyValue *kv, struct err *err)
{
        struct giving *g = ctx;
        struct store_record r = { .key = key };
        etcd_decode(&g->memory, key, kv->value.data, kv->value.len, &r.data, &r.len);
        if (!r.data)
                r.data = "";
        int e = g->fn(g->ctx, &r, err);
        arena_reset(&g->memory);
        return e < 0 ? e : 0;
}

int etcd_reader_records(struct store_reader *base, store_record_fn fn, void *ctx,
                        uint64_t *ret_head, struct err *err)
{
        struct etcd_store *s = ((struct etcd_reader *)base)->s;
        if (s->cache.whole)
                return etcd_cache_records(&s->cache, fn, ctx, ret_head, err);
        struct giving g = { fn, ctx, ARENA_INIT };
        int r = etcd_each_record(s, "loading from etcd", give_record, &g, ret_head, err);
        arena_fini(&g.memory);
        return r;
}

int etcd_reader_kept(struct store_reader *base, enum event_class class, uint64_t since,
                     bool backwards, size_t max, store_event_fn fn, void *ctx, struct err *err)
{
        struct etcd_store *s = ((struct etcd_reader *)base)->s;
        struct arena a = ARENA_INIT;
        Etcd__RangeResponse *page;
        int64_t now = 0;
        uint64_t seq;
        char *from = etcd_kept_key(s, &a, class, backwards ? 0 : since + 1);
        char *end =
            backwards && since ? etcd_kept_key(s, &a, class, since) : etcd_kept_end(s, &a, class);
        int r = etcd_range(s, from, strlen(from), end, strlen(end), (int64_t)max, backwards, &now,
                           &a, &page, err);
        for (size_t i = 0; r == 0 && i < page->n_kvs; i++)
                r = give_event(page->kvs[i], &a, fn, ctx, &seq, err);
        arena_fini(&a);
        return r;
}

int etcd_oldest_events(struct etcd_store *s, int64_t max, struct arena *a,
                       Etcd__RangeResponse **ret, struct err *err)
{
        int64_t now = 0, usual = s->oldest_page ? s->oldest_page : ETCD_PAGE;
        struct pages pages = { .limit = max < usual ? max : usual, .answered = true };
        struct segment g = { .end = etcd_key(s, a, "/events0") };
        g.end_len = strlen(g.end);
        g.from_len = (size_t)snprintf(g.from, sizeof(g.from), "%s", etcd_event_key(s, a, 0));
        int r = page_read(s, &pages, &g, false, &now, a, ret, err);
        if (r == 0)
                s->oldest_page = pages.limit;
        return r;
}

int etcd_first_event(struct etcd_store *s, uint64_t *ret_seq, struct err *err)
{
        struct arena a = ARENA_INIT;
        Etcd__RangeResponse *page;
        int64_t now = 0;
        char *from = etcd_event_key(s, &a, 0), *end = etcd_key(s, &a, "/events0");
        int r = etcd_range(s, from, strlen(from), end, strlen(end), 1, false, &now, &a, &page, err);
        *ret_seq = 0;
        if (r == 0 && page->n_kvs && !etcd_seq_of(page->kvs[0], ret_seq))
                *ret_seq = 0;
        arena_fini(&a);
        return r;
}

uint64_t etcd_reader_first(struct store_reader *base)
{
        uint64_t seq = 0;
        return etcd_first_event(((struct etcd_reader *)base)->s, &seq, NULL) < 0 ? 0 : seq;
}
