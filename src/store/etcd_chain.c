/* store/etcd_chain.c: commits to etcd, several under way at a time.
 *
 * Each is a transaction that compares the leadership key and the head that the one before it sets,
 * so they can only happen in their order, whatever the network and etcd do with them. etcd handles
 * each call by itself: one may come before the link that it follows, and then its comparison fails.
 * Such a broken link is sent again, unchanged, once all before it are known to be there. Where only
 * one may be under way, the next one is with the client already, which sends it the moment the
 * answer comes.
 *
 * A transaction whose answer was lost is sent again as well. If it had gone through, the comparison
 * fails and the stored event at the batch's new head is its own last event, byte for byte: that is
 * the proof (S3). Only links that were taken back with their outcome unknown may lie behind the
 * head; until they are all accounted for, unsure_head says how far the head may have moved by what
 * is still on its way.
 *
 * Invariants:
 *   (1) links[first] is the oldest; every link expects the head that the one before it sets.
 *   (2) A batch without events does not move the head, so what follows it cannot tell whether it
 *       happened: it is alone under way.
 *   (3) Only the oldest link is judged, when all before it are durable.
 *   (4) If the oldest expects another head than this process knows, it will probably be refused,
 *       and the head that it would set may be the one that is there: nothing is sent behind it
 *       until it is settled.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/wire.h"
#include "store/etcd_store.h"
#include <string.h>

#define WINDOW_GROWS_AFTER 16

static struct etcd_link *link_at(struct etcd_chain *c, size_t i)
{
        return &c->links[(c->first + i) % STORE_IN_FLIGHT_MAX];
}

/* ---- sending ---- */

/* Operations are packed straight from the batch: by way of protobuf-c's structures each would be
 * copied three times, and this is most of what a server does for a commit. TxnRequest{success: 2},
 * RequestOp{request_put: 2, request_delete_range: 3, request_txn: 4}, PutRequest{key: 1, value: 2},
 * DeleteRangeRequest{key: 1}. */
/* Into room that was made before. */
static void put_bytes(struct str *out, const void *data, size_t len)
{
        memcpy(out->buf + out->len, data, len);
        out->len += len;
}

static void put_field(struct str *out, uint32_t number, size_t len)
{
        out->len += wire_put_head((uint8_t *)out->buf + out->len, number, len);
}

/* A field of bytes whose content the caller adds. */
static void add_field(struct str *out, uint32_t number, size_t len)
{
        str_reserve(out, WIRE_HEAD_MAX);
        put_field(out, number, len);
}

static size_t field_size(size_t len)
{
        return 1 + varint_size(len) + len;
}

struct key {
        const char *prefix, *text;
        size_t prefix_len, len;
};

static void add_op(struct str *out, const struct key *k, const struct str *value_or_null)
{
        size_t key_len = k->prefix_len + k->len,
               len = field_size(key_len) + (value_or_null ? field_size(value_or_null->len) : 0);
        str_reserve(out, field_size(field_size(len)));
        put_field(out, 2, field_size(len));
        put_field(out, value_or_null ? 2 : 3, len);
        put_field(out, 1, key_len);
        put_bytes(out, k->prefix, k->prefix_len);
        put_bytes(out, k->text, k->len);
        if (value_or_null) {
                put_field(out, 2, value_or_null->len);
                put_bytes(out, value_or_null->buf, value_or_null->len);
        }
        out->buf[out->len] = 0;
}

/* etcd takes what the outer one has off the limit of the inner ones. */
size_t etcd_ops_per_part(size_t n)
{
        size_t parts = 3; /* the reads of a failure count as well */
        if (n <= ETCD_TXN_OPS)
                return n;
        while (parts * (ETCD_TXN_OPS - parts) < n)
                parts++;
        return ETCD_TXN_OPS - parts;
}

struct packing {
        struct str *out, part, value;
        size_t per_part, in_part;
        bool nested, as_is; /* as_is: no JSON */
        struct key key;
};

static void end_part(struct packing *p)
{
        if (p->nested && p->in_part) {
                add_field(p->out, 2, field_size(p->part.len));
                add_field(p->out, 4, p->part.len);
                str_add(p->out, p->part.buf, p->part.len);
                str_clear(&p->part);
        }
        p->in_part = 0;
}

static void pack_op(struct packing *p, const char *key, size_t key_len, bool is_put)
{
        p->key.text = key;
        p->key.len = key_len;
        add_op(p->nested ? &p->part : p->out, &p->key, is_put ? &p->value : NULL);
        str_clear(&p->value);
        if (++p->in_part == p->per_part)
                end_part(p);
}

static void pack_value(struct packing *p, const char *key, const void *data, size_t len)
{
        if (p->as_is)
                etcd_encode_packed(&p->value, key, data, len);
        else
                etcd_encode(&p->value, key, data, len);
}

static void pack_event(struct packing *p, const struct store_event *e)
{
        char key[] = "/events/00000000000000000000";
        uint64_t seq = e->seq;
        for (size_t i = sizeof(key) - 2; seq; i--, seq /= 10)
                key[i] = (char)('0' + seq % 10);
        pack_value(p, "/events/", e->data, e->len);
        pack_op(p, key, sizeof(key) - 1, true);
}

static void pack_ops(struct etcd_store *s, const struct store_batch *b, bool as_is, struct str *out)
{
        size_t n = b->n_events + b->n_records + (b->n_events ? 1 : 0) + (b->schema ? 1 : 0);
        struct packing p = { .out = out,
                             .per_part = etcd_ops_per_part(n),
                             .nested = n > ETCD_TXN_OPS,
                             .as_is = as_is,
                             .key = { s->prefix, NULL, strlen(s->prefix), 0 } };
        for (size_t i = 0; i < b->n_events; i++)
                pack_event(&p, &b->events[i]);
        for (size_t i = 0; i < b->n_records; i++) {
                const struct store_record *r = &b->records[i];
                if (r->data)
                        pack_value(&p, r->key, r->data, r->len);
                pack_op(&p, r->key, strlen(r->key), r->data != NULL);
        }
        if (b->schema) {
                str_add_u64(&p.value, (uint64_t)b->schema);
                pack_op(&p, "/meta/schema", strlen("/meta/schema"), true);
        }
        if (b->n_events) {
                str_add_u64(&p.value, b->new_head);
                pack_op(&p, "/meta/head", strlen("/meta/head"), true);
        }
        end_part(&p);
        str_fini(&p.part);
        str_fini(&p.value);
}

static void pack(struct etcd_store *s, const struct store_batch *b, struct str *out)
{
        struct arena a = ARENA_INIT;
        struct etcd_ops none = { .arena = &a };
        char *expected = arena_printf(&a, "%llu", (unsigned long long)b->expected_head);
        Etcd__RequestOp *failure[] = { etcd_get_op(&a, etcd_key(s, &a, "/meta/leader")),
                                       etcd_get_op(&a, etcd_key(s, &a, "/meta/head")),
                                       etcd_get_op(&a, etcd_event_key(s, &a, b->new_head)) };
        etcd_txn_pack(s, &none, expected, failure, ARRAY_LEN(failure), &a, out);
        arena_fini(&a);
        size_t before = out->len;
        pack_ops(s, b, false, out); /* a message's fields may come in any order */
        if (out->len > ETCD_REQUEST_BYTES) {
                out->len = before;
                pack_ops(s, b, true, out);
        }
}

static void on_end(void *ctx)
{
        struct store *base = ctx;
        if (base->on_settled)
                base->on_settled(base->on_settled_ctx);
}

static bool may_send(struct etcd_store *s, size_t i)
{
        struct etcd_chain *c = &s->chain;
        /* (2) */
        return i == 0 || (link_at(c, i)->batch->n_events && link_at(c, i - 1)->batch->n_events &&
                          /* (4) */
                          link_at(c, 0)->batch->expected_head == s->base.head);
}

static void send_what_may_be(struct etcd_store *s)
{
        struct etcd_chain *c = &s->chain;
        size_t under_way = 0;
        bool follows = false; /* the one before it is under way */
        for (size_t i = 0; i < c->n && may_send(s, i); i++) {
                struct etcd_link *l = link_at(c, i);
                enum etcd_turn turn = under_way < c->window ? ETCD_IN_TURN : ETCD_AFTER;
                if (!l->request && turn == ETCD_AFTER &&
                    (c->window > 1 || under_way > 1 || !follows))
                        return;
                if (!l->request)
                        l->request =
                            etcd_request_send(s->client, "/etcdserverpb.KV/Txn", &l->packed,
                                              ETCD_CALL_MS, turn, on_end, &s->base);
                follows = !etcd_request_wait(l->request, 0);
                under_way += follows;
        }
}

int etcd_submit(struct store *base, const struct store_batch *b, struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct etcd_chain *c = &s->chain;
        (void)err;
        must(c->n < STORE_IN_FLIGHT_MAX, "etcd: more commits under way than were allowed");
        struct etcd_link *l = link_at(c, c->n++);
        *l = (struct etcd_link){ .batch = b };
        pack(s, b, &l->packed);
        send_what_may_be(s);
        return 0;
}

void etcd_take_back(struct store *base)
{
        struct etcd_chain *c = &etcd_self(base)->chain;
        for (size_t i = 0; i < c->n; i++) {
                struct etcd_link *l = link_at(c, i);
                if (l->request && l->batch->new_head > c->unsure_head)
                        c->unsure_head = l->batch->new_head;
                etcd_request_free(l->request);
                str_fini(&l->packed);
        }
        c->first = c->n = 0;
}

/* ---- the outcome ---- */

/* The stored event is the last one of the batch. */
static bool is_its_event(const struct store_batch *b, const Etcd__KeyValue *kv)
{
        _cleanup_(str_finip) struct str value = STR_INIT;
        const struct store_event *e = &b->events[b->n_events - 1];
        if (kv->value.len > 0 && kv->value.data[0] == 0) /* as it is: see pack() */
                return kv->value.len == e->len + 1 &&
                       memcmp(kv->value.data + 1, e->data, e->len) == 0;
        etcd_encode(&value, "/events/", e->data, e->len);
        return value.len == kv->value.len && memcmp(str_c(&value), kv->value.data, value.len) == 0;
}

/* A link that overtakes another one costs etcd as much as one that counts, and so do those behind
 * it. How often that happens depends on how busy etcd's machine is: each time one fewer may be
 * under way, and after a while without it one more. */
static void set_window(struct etcd_chain *c, bool in_order)
{
        if (!in_order) {
                c->window -= c->window > 1;
                c->in_order = 0;
        } else if (++c->in_order >= WINDOW_GROWS_AFTER && c->window < c->max_window) {
                c->window++;
                c->in_order = 0;
        }
}

/* A link that came before the one that it follows, and those behind it that have failed for the
 * same reason: again, in their order. Those whose answers are still out may yet succeed. */
static void send_again(struct etcd_store *s)
{
        struct etcd_chain *c = &s->chain;
        for (size_t i = 0; i < c->n; i++) {
                struct etcd_link *l = link_at(c, i);
                if (!l->request || !etcd_request_wait(l->request, 0))
                        continue;
                etcd_request_again(l->request, ETCD_CALL_MS);
                c->again++;
        }
        link_at(c, 0)->again = true;
        set_window(c, false);
}

/* The oldest link's comparison failed: do we no longer lead, is the head elsewhere, had this very
 * batch gone through, or did it come too early? 1: it is in the store; 0: sent again. */
static int refused(struct etcd_store *s, struct etcd_link *l, const Etcd__TxnResponse *t,
                   struct err *err)
{
        const Etcd__KeyValue *leader = etcd_answer_kv(t, 0), *last = etcd_answer_kv(t, 2);
        const struct store_batch *b = l->batch;
        uint64_t head;
        int r = etcd_parse_number(etcd_answer_kv(t, 1), "/meta/head", &head, err);
        if (r < 0)
                return r;
        bool leads = s->led_revision && leader && leader->create_revision == s->led_revision;
        /* Also if we no longer lead: it is in the store, and is ours. */
        uint64_t sent_head = s->chain.unsure_head;
        for (size_t i = 0; i < s->chain.n; i++)
                if (link_at(&s->chain, i)->request &&
                    link_at(&s->chain, i)->batch->new_head > sent_head)
                        sent_head = link_at(&s->chain, i)->batch->new_head;
        if (b->n_events && head >= b->new_head && head <= sent_head && last &&
            is_its_event(b, last))
                return 1;
        if (!leads) {
                s->led_revision = 0;
                return etcd_err_not_leading(err, leader);
        }
        if (head < b->expected_head && !l->again) {
                send_again(s);
                return 0;
        }
        return store_err_conflict(err, b->expected_head, head);
}

static int judge(struct etcd_store *s, struct etcd_link *l, struct err *err)
{
        struct arena a = ARENA_INIT;
        ProtobufCMessage *m;
        int r = etcd_request_answer(l->request, &etcd__txn_response__descriptor, &a, &m, err);
        if (r == 0) {
                const Etcd__TxnResponse *t = (const Etcd__TxnResponse *)m;
                if (t->header)
                        s->revision = t->header->revision;
                r = t->succeeded ? 1 : refused(s, l, t, err);
                const Etcd__KeyValue *last = t->succeeded ? NULL : etcd_answer_kv(t, 2);
                if (t->succeeded)
                        etcd_proof_note(s, etcd_request_sent_ns(l->request));
                if (r == 1)
                        etcd_strange_own(s, t->succeeded ? (t->header ? t->header->revision : 0)
                                            : last       ? last->mod_revision
                                                         : 0);
        }
        arena_fini(&a);
        return r;
}

int etcd_settle(struct store *base, int64_t wait_ms, struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct etcd_chain *c = &s->chain;
        struct etcd_link *l = link_at(c, 0);
        int r = 0;
        while (r == 0) {
                if (!etcd_request_wait(l->request, wait_ms))
                        return 0;
                send_what_may_be(s); /* before the answer is read: etcd waits for the next one */
                r = judge(s, l, err);
        }
        if (r < 0)
                return r;
        base->head = l->batch->new_head;
        if (base->head >= c->unsure_head)
                c->unsure_head = 0;
        if (!l->again)
                set_window(c, true);
        struct etcd_link done = *l;
        *l = (struct etcd_link){ 0 };
        c->first = (c->first + 1) % STORE_IN_FLIGHT_MAX;
        c->n--;
        send_what_may_be(s);
        etcd_cache_commit(&s->cache, done.batch);
        etcd_compact_now_and_then(s);
        etcd_request_free(done.request);
        return 1;
}
