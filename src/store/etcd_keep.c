/* store/etcd_keep.c: checkpoints of the state, letting old events go, and compaction.
 *
 * A checkpoint is all records as of one sequence, packed into chunks under
 * <prefix>/meta/checkpoint-<slot>/<number>, each put in a transaction of its own that compares the
 * leadership. The last transaction names slot, chunks and sequence in <prefix>/meta/checkpoint;
 * until then the one before stays valid. Events leave the log by ranges up to the checkpoint, in
 * one transaction with what is kept apart of them, a page at a time. etcd keeps every old value
 * until it is compacted: berth asks for that itself, some minutes behind, so that nobody need
 * configure it.
 *
 * A chunk is a row of (length of key, key, length of value, value), lengths as 4 bytes, least
 * significant first; values as they are in etcd.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/etcd_store.h"
#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES (256u << 10)
#define REMOVE_MAX 1024 /* events in one transaction */
#define COMPACT_EVERY_NS (60 * 1000000000LL)

/* ---- the valid checkpoint ---- */

struct checkpoint {
        unsigned long long seq;
        unsigned slot, chunks;
};

static int read_checkpoint(struct etcd_store *s, struct checkpoint *ret, struct err *err)
{
        struct arena a = ARENA_INIT;
        const Etcd__KeyValue *kv;
        int r = etcd_get(s, etcd_key(s, &a, "/meta/checkpoint"), NULL, &a, &kv, err);
        *ret = (struct checkpoint){ 0 };
        if (r == 0 && kv &&
            sscanf(arena_strndup(&a, (const char *)kv->value.data, kv->value.len),
                   "{\"seq\":%llu,\"slot\":%u,\"chunks\":%u}", &ret->seq, &ret->slot,
                   &ret->chunks) != 3)
                r = err_set(err, ERR_CORRUPT, .msg = "the checkpoint in etcd makes no sense",
                            .detail = "/meta/checkpoint");
        arena_fini(&a);
        if (r == 0) {
                s->checkpoint_seq = ret->seq;
                s->checkpoint_known = true;
        }
        return r;
}

static char *chunk_key(struct etcd_store *s, struct arena *a, unsigned slot, unsigned number)
{
        return arena_printf(a, "%s/meta/checkpoint-%u/%08u", s->prefix, slot, number);
}

/* ---- taking one ---- */

struct taking {
        struct etcd_store *s;
        struct str chunk;
        unsigned slot, chunks;
};

static int led_txn(struct etcd_store *s, struct etcd_ops *o, struct arena *a, struct err *err)
{
        Etcd__TxnResponse *t;
        int r = etcd_txn(s, o, NULL, a, &t, err);
        return r < 0 ? r : t->succeeded ? 0 : etcd_err_not_leading(err, NULL);
}

static int put_chunk(struct taking *t, struct err *err)
{
        struct arena a = ARENA_INIT;
        struct etcd_ops o = { .arena = &a, .cap = 1, .ops = arena_new_n(&a, Etcd__RequestOp *, 1) };
        etcd_ops_put(&o, chunk_key(t->s, &a, t->slot, t->chunks++), str_c(&t->chunk), t->chunk.len);
        int r = led_txn(t->s, &o, &a, err);
        etcd_ops_fini(&o);
        arena_fini(&a);
        str_clear(&t->chunk);
        return r;
}

static void add_sized(struct str *out, const void *data, size_t len)
{
        unsigned char size[4] = { (unsigned char)len, (unsigned char)(len >> 8),
                                  (unsigned char)(len >> 16), (unsigned char)(len >> 24) };
        str_add(out, size, sizeof(size));
        str_add(out, data, len);
}

static int take_one(void *ctx, const char *key, const Etcd__KeyValue *kv, struct err *err)
{
        struct taking *t = ctx;
        add_sized(&t->chunk, key, strlen(key));
        add_sized(&t->chunk, kv->value.data, kv->value.len);
        return t->chunk.len < CHUNK_BYTES ? 0 : put_chunk(t, err);
}

int etcd_checkpoint(struct store *base, struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct checkpoint old;
        int r = read_checkpoint(s, &old, err);
        if (r < 0)
                return r;
        struct taking t = { .s = s, .slot = old.slot ? 0 : 1 };
        struct arena a = ARENA_INIT;
        uint64_t head = 0;
        /* What an earlier, unfinished one left in this slot goes first. */
        struct etcd_ops o = { .arena = &a, .cap = 2, .ops = arena_new_n(&a, Etcd__RequestOp *, 2) };
        etcd_ops_delete(&o, chunk_key(s, &a, t.slot, 0), chunk_key(s, &a, t.slot, 99999999));
        r = led_txn(s, &o, &a, err);
        if (r == 0)
                r = etcd_each_record(s, NULL, take_one, &t, &head, err);
        if (r == 0 && t.chunk.len)
                r = put_chunk(&t, err);
        if (r == 0) {
                o.n = 0;
                str_clear(&o.values);
                const char *value = fmt("{\"seq\":%llu,\"slot\":%u,\"chunks\":%u}",
                                        (unsigned long long)head, t.slot, t.chunks);
                etcd_ops_put(&o, etcd_key(s, &a, "/meta/checkpoint"), value, strlen(value));
                etcd_ops_delete(&o, chunk_key(s, &a, old.slot, 0),
                                chunk_key(s, &a, old.slot, 99999999));
                if (old.slot == t.slot)
                        o.n = 1; /* the first one ever took the slot that "none" names */
                r = led_txn(s, &o, &a, err);
        }
        if (r == 0)
                s->checkpoint_seq = head;
        etcd_ops_fini(&o);
        str_fini(&t.chunk);
        arena_fini(&a);
        return r;
}

/* ---- reading it ---- */

static bool take_sized(const uint8_t **at, size_t *left, const uint8_t **ret, size_t *ret_len)
{
        if (*left < 4)
                return false;
        size_t len = (size_t)(*at)[0] | (size_t)(*at)[1] << 8 | (size_t)(*at)[2] << 16 |
                     (size_t)(*at)[3] << 24;
        if (len > *left - 4)
                return false;
        *ret = *at + 4;
        *ret_len = len;
        *at += 4 + len;
        *left -= 4 + len;
        return true;
}

static int give_chunk(const Etcd__KeyValue *kv, store_record_fn fn, void *ctx, struct err *err)
{
        struct arena a = ARENA_INIT;
        const uint8_t *at = kv->value.data, *key, *value;
        size_t left = kv->value.len, key_len, value_len;
        int r = 0;
        while (r >= 0 && left) {
                if (!take_sized(&at, &left, &key, &key_len) ||
                    !take_sized(&at, &left, &value, &value_len)) {
                        r = err_set(err, ERR_CORRUPT,
                                    .msg = "a chunk of the checkpoint in etcd is damaged",
                                    .detail = "lengths do not add up");
                        break;
                }
                struct store_record record = { .key =
                                                   arena_strndup(&a, (const char *)key, key_len) };
                etcd_decode(&a, record.key, value, value_len, &record.data, &record.len);
                r = fn(ctx, &record, err);
                arena_reset(&a);
        }
        arena_fini(&a);
        return r < 0 ? r : 0;
}

int etcd_load_checkpoint(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_seq,
                         struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct checkpoint c;
        struct arena a = ARENA_INIT;
        int r = read_checkpoint(s, &c, err);
        for (unsigned i = 0; r == 0 && i < c.chunks; i++) {
                const Etcd__KeyValue *kv;
                r = etcd_get(s, chunk_key(s, &a, c.slot, i), NULL, &a, &kv, err);
                if (r == 0 && !kv)
                        r = err_set(err, ERR_CORRUPT,
                                    .msg = "a chunk of the checkpoint in etcd is missing",
                                    .detail = fmt("%u of %u", i, c.chunks));
                if (r == 0)
                        r = give_chunk(kv, fn, ctx, err);
                arena_reset(&a);
        }
        arena_fini(&a);
        if (r == 0 && ret_seq)
                *ret_seq = c.seq;
        return r;
}

/* ---- letting go ---- */

/* Old values are of no use to anybody once everybody has read past them; a minute or two behind is
 * plenty. Nobody waits for it: what fails is done the next time. */
void etcd_compact_now_and_then(struct etcd_store *s)
{
        int64_t now = clock_mono_ns();
        if (now < s->next_compact_ns || !s->led_revision || s->revision <= s->compact_revision)
                return;
        s->next_compact_ns = now + COMPACT_EVERY_NS;
        etcd_request_free(s->compaction);
        s->compaction = NULL;
        if (s->compact_revision) {
                Etcd__CompactionRequest r = ETCD__COMPACTION_REQUEST__INIT;
                struct str packed = STR_INIT;
                r.revision = s->compact_revision; /* where etcd was the last time */
                str_reserve(&packed, 32);
                packed.len = etcd__compaction_request__pack(&r, (uint8_t *)packed.buf);
                s->compaction = etcd_request_send(s->client, "/etcdserverpb.KV/Compact", &packed,
                                                  ETCD_CALL_MS, ETCD_ANY_TIME, NULL, NULL);
        }
        s->compact_revision = s->revision;
}

static int count_records(struct etcd_store *s, uint64_t *ret, struct err *err)
{
        struct arena a = ARENA_INIT;
        Etcd__RangeRequest r = ETCD__RANGE_REQUEST__INIT;
        ProtobufCMessage *m;
        uint64_t n = 0;
        int e = 0;
        for (size_t i = 0; i < etcd_n_ranges(s) && e == 0; i++) {
                const char *from, *end;
                etcd_range_at(s, i, &a, &from, &end);
                r.key = etcd_bytes(from);
                r.range_end = etcd_bytes(end);
                r.count_only = true;
                e = etcd_call(s->client, "/etcdserverpb.KV/Range", &r.base,
                              &etcd__range_response__descriptor, ETCD_CALL_MS, &a, &m, err);
                if (e == 0)
                        n += (uint64_t)((Etcd__RangeResponse *)m)->count;
        }
        arena_fini(&a);
        *ret = n;
        return e;
}

/* The oldest events of the log, and what is to become of them. */
static int move_oldest(struct etcd_store *s, const struct store_retention *keep,
                       uint64_t max_remove, struct arena *a, struct store_left *ret,
                       struct err *err)
{
        struct etcd_ops o = { .arena = a,
                              .cap = ETCD_TXN_OPS,
                              .ops = arena_new_n(a, Etcd__RequestOp *, ETCD_TXN_OPS) };
        struct store_left n = { 0 };
        uint64_t first = 0, last = 0;
        Etcd__RangeResponse *page = NULL;
        int r = etcd_oldest_events(s, (int64_t)(max_remove < REMOVE_MAX ? max_remove : REMOVE_MAX),
                                   a, &page, err);
        for (size_t i = 0;
             r == 0 && i < page->n_kvs && o.n < ETCD_TXN_OPS - 1 && o.values.len < CHUNK_BYTES;
             i++) {
                const Etcd__KeyValue *kv = page->kvs[i];
                struct store_event e = { 0 };
                enum event_class class;
                if (!etcd_seq_of(kv, &e.seq))
                        continue;
                etcd_decode(a, "/events/", kv->value.data, kv->value.len, &e.data, &e.len);
                if (!store_leaves(keep, s->base.head, s->checkpoint_seq, &e, &class))
                        break;
                first = n.left++ ? first : e.seq;
                last = e.seq;
                if (class == EVENT_LIFECYCLE)
                        continue;
                etcd_ops_put(&o, etcd_kept_key(s, a, class, e.seq), kv->value.data, kv->value.len);
                n.kept[class]++;
        }
        if (r == 0 && n.left) {
                etcd_ops_delete(&o, etcd_event_key(s, a, first), etcd_event_key(s, a, last + 1));
                r = led_txn(s, &o, a, err);
        }
        etcd_ops_fini(&o);
        if (r == 0)
                *ret = n;
        return r;
}

int etcd_prune(struct store *base, const struct store_retention *keep, uint64_t max_remove,
               struct store_left *ret, struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct checkpoint c;
        uint64_t records = 0;
        int r = s->checkpoint_known ? 0 : read_checkpoint(s, &c, err);
        etcd_compact_now_and_then(s);
        if (r == 0 && store_wants_checkpoint(base, keep, s->checkpoint_seq, 0)) {
                r = count_records(s, &records, err);
                if (r == 0 && store_wants_checkpoint(base, keep, s->checkpoint_seq, records))
                        r = etcd_checkpoint(base, err);
        }
        if (r < 0 || store_prune_limit(keep, base->head, s->checkpoint_seq) == 0)
                return r;
        struct arena a = ARENA_INIT;
        r = move_oldest(s, keep, max_remove, &a, ret, err);
        arena_fini(&a);
        return r;
}

/* ---- what is kept apart ---- */

int etcd_kept_put(struct store *base, const struct store_kept *events, size_t n, struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct arena a = ARENA_INIT;
        struct str value = STR_INIT;
        int r = 0;
        for (size_t i = 0; r == 0 && i < n;) {
                struct etcd_ops o = { .arena = &a,
                                      .cap = ETCD_TXN_OPS,
                                      .ops = arena_new_n(&a, Etcd__RequestOp *, ETCD_TXN_OPS) };
                for (; i < n && o.n < ETCD_TXN_OPS && o.values.len < CHUNK_BYTES; i++) {
                        str_clear(&value);
                        etcd_encode(&value, "/events/", events[i].event.data, events[i].event.len);
                        etcd_ops_put(&o, etcd_kept_key(s, &a, events[i].class, events[i].event.seq),
                                     str_c(&value), value.len);
                }
                r = led_txn(s, &o, &a, err);
                etcd_ops_fini(&o);
                arena_reset(&a);
        }
        str_fini(&value);
        arena_fini(&a);
        return r;
}

/* Of a class: how many there are, and the keys of the oldest `limit` of them (0: of none). */
static int kept_keys(struct etcd_store *s, enum event_class class, uint64_t limit, struct arena *a,
                     Etcd__RangeResponse **ret, struct err *err)
{
        Etcd__RangeRequest r = ETCD__RANGE_REQUEST__INIT;
        ProtobufCMessage *m = NULL;
        r.key = etcd_bytes(etcd_kept_key(s, a, class, 0));
        r.range_end = etcd_bytes(etcd_kept_end(s, a, class));
        r.count_only = limit == 0;
        r.keys_only = limit > 0;
        r.limit = (int64_t)limit;
        int e = etcd_call(s->client, "/etcdserverpb.KV/Range", &r.base,
                          &etcd__range_response__descriptor, ETCD_CALL_MS, a, &m, err);
        *ret = (Etcd__RangeResponse *)m;
        return e;
}

int etcd_kept_count(struct store *base, enum event_class class, uint64_t *ret, struct err *err)
{
        struct arena a = ARENA_INIT;
        Etcd__RangeResponse *found;
        int r = kept_keys(etcd_self(base), class, 0, &a, &found, err);
        if (r == 0)
                *ret = (uint64_t)found->count;
        arena_fini(&a);
        return r;
}

int64_t etcd_kept_remove(struct store *base, enum event_class class, uint64_t n, struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct arena a = ARENA_INIT;
        Etcd__RangeResponse *found;
        uint64_t last = 0;
        int64_t removed = 0;
        int r = kept_keys(s, class, n < REMOVE_MAX ? n : REMOVE_MAX, &a, &found, err);
        if (r == 0 && found->n_kvs && etcd_seq_of(found->kvs[found->n_kvs - 1], &last)) {
                struct etcd_ops o = { .arena = &a,
                                      .cap = 1,
                                      .ops = arena_new_n(&a, Etcd__RequestOp *, 1) };
                etcd_ops_delete(&o, etcd_kept_key(s, &a, class, 0),
                                etcd_kept_key(s, &a, class, last + 1));
                r = led_txn(s, &o, &a, err);
                removed = (int64_t)found->n_kvs;
                etcd_ops_fini(&o);
        }
        arena_fini(&a);
        return r < 0 ? r : removed;
}

struct looking {
        uint64_t next, floor;
};

static int look_at(void *ctx, const struct store_event *e, struct err *err)
{
        struct looking *l = ctx;
        if (l->next && e->seq != l->next && e->seq > l->floor)
                return err_set(err, ERR_CORRUPT, .msg = "the store lost events",
                               .detail = fmt("%llu follows %llu", (unsigned long long)e->seq,
                                             (unsigned long long)(l->next - 1)),
                               .hint = "restore a backup");
        l->next = e->seq + 1;
        return 0;
}

static int look_at_kept(void *ctx _unused_, const struct store_event *e, struct err *err)
{
        return err_set(err, ERR_CORRUPT,
                       .msg = "an event that is kept apart is not older than the store's log",
                       .detail = fmt("sequence %llu", (unsigned long long)e->seq),
                       .hint = "restore a backup");
}

int etcd_integrity(struct store *base, struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct looking l = { 0 };
        struct checkpoint c;
        struct store_reader *reader;
        uint64_t first = 0;
        int r = read_checkpoint(s, &c, err);
        if (r == 0)
                r = etcd_first_event(s, &first, err);
        if (r < 0)
                return r;
        l.floor = first;
        (void)etcd_reader_open(base, &reader, err);
        r = store_reader_events(reader, 0, false, look_at, &l, err);
        for (int i = EVENT_LIFECYCLE + 1; r == 0 && i < EVENT_CLASSES; i++)
                r = etcd_reader_kept(reader, (enum event_class)i, first ? first - 1 : base->head,
                                     false, 1, look_at_kept, NULL, err);
        etcd_reader_close(reader);
        if (r < 0)
                return r;
        if ((l.next ? l.next - 1 : 0) != base->head || (first && c.seq + 1 < first))
                return err_set(err, ERR_CORRUPT, .msg = "the store lost events",
                               .detail = fmt("events %llu to %llu, head %llu, checkpoint %llu",
                                             (unsigned long long)first,
                                             (unsigned long long)(l.next ? l.next - 1 : 0),
                                             (unsigned long long)base->head, c.seq),
                               .hint = "restore a backup");
        return 0;
}
