/* store/etcd.c: the store of several machines: events, records and the head as keys of an etcd
 * cluster.
 *
 * A commit is one transaction that compares the leadership key (it must be the one that this
 * process created) and the head, and then puts events and records and moves the head. So a leader
 * that was paused or cut off can write nothing once somebody else has taken the key (C33), whatever
 * it believes.
 *
 *      <prefix>/meta/leader          who leads; attached to a lease, so it goes away with its
 *                                    holder
 *      <prefix>/meta/head            sequence of the last event, decimal
 *      <prefix>/meta/schema          schema, decimal
 *      <prefix>/meta/checkpoint...   see etcd_keep.c
 *      <prefix>/events/<20 digits>   one event, JSON
 *      <prefix>/events/+<class>/...  events that left the log and are kept apart, likewise
 *      <prefix>/...                  records, JSON (etcd_codec.h)
 *
 * Several commits are under way at a time: etcd_chain.c.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "store/etcd_store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct etcd_store *etcd_self(struct store *s)
{
        return (struct etcd_store *)s;
}

ProtobufCBinaryData etcd_bytes(const char *text)
{
        return (ProtobufCBinaryData){ strlen(text), (uint8_t *)text };
}

char *etcd_key(const struct etcd_store *s, struct arena *a, const char *key)
{
        size_t n = strlen(s->prefix), m = strlen(key);
        char *k = arena_alloc(a, n + m + 1);
        memcpy(k, s->prefix, n);
        memcpy(k + n, key, m);
        return k;
}

char *etcd_event_key(const struct etcd_store *s, struct arena *a, uint64_t seq)
{
        return arena_printf(a, "%s/events/%0*llu", s->prefix, ETCD_SEQ_DIGITS,
                            (unsigned long long)seq);
}

char *etcd_kept_key(const struct etcd_store *s, struct arena *a, enum event_class class,
                    uint64_t seq)
{
        return arena_printf(a, "%s/events/+%s/%0*llu", s->prefix, event_class_name(class),
                            ETCD_SEQ_DIGITS, (unsigned long long)seq);
}

char *etcd_kept_end(const struct etcd_store *s, struct arena *a, enum event_class class)
{
        /* '0' comes after '/' */
        return arena_printf(a, "%s/events/+%s0", s->prefix, event_class_name(class));
}

/* ---- reading ---- */

int etcd_range(struct etcd_store *s, const char *from, size_t from_len, const char *end,
               size_t end_len, int64_t limit, bool backwards, int64_t *revision, struct arena *a,
               Etcd__RangeResponse **ret, struct err *err)
{
        Etcd__RangeRequest r = ETCD__RANGE_REQUEST__INIT;
        r.key = (ProtobufCBinaryData){ from_len, (uint8_t *)from };
        if (end)
                r.range_end = (ProtobufCBinaryData){ end_len, (uint8_t *)end };
        r.limit = limit;
        if (!*revision)
                *revision = s->pinned;
        r.revision = *revision;
        r.sort_order = backwards ? ETCD__SORT_ORDER__E__DESCEND : ETCD__SORT_ORDER__E__NONE;
        ProtobufCMessage *m;
        int e = etcd_call(s->client, "/etcdserverpb.KV/Range", &r.base,
                          &etcd__range_response__descriptor, ETCD_CALL_MS, a, &m, err);
        if (e < 0)
                return e;
        *ret = (Etcd__RangeResponse *)m;
        if (!*revision && (*ret)->header)
                *revision = (*ret)->header->revision;
        return 0;
}

int etcd_get(struct etcd_store *s, const char *key, int64_t *revision, struct arena *a,
             const Etcd__KeyValue **ret_or_null, struct err *err)
{
        Etcd__RangeResponse *r;
        int64_t now = 0;
        int e = etcd_range(s, key, strlen(key), NULL, 0, 1, false, revision ? revision : &now, a,
                           &r, err);
        if (e == 0)
                *ret_or_null = r->n_kvs ? r->kvs[0] : NULL;
        return e;
}

int etcd_parse_number(const Etcd__KeyValue *kv, const char *what, uint64_t *ret, struct err *err)
{
        char text[32];
        size_t n = kv ? kv->value.len : 0;
        if (n == 0 || n >= sizeof(text))
                return err_set(err, ERR_CORRUPT, .msg = "a key of the store in etcd makes no sense",
                               .detail = what, .hint = "restore a backup, or use another prefix");
        memcpy(text, kv->value.data, n);
        text[n] = 0;
        if (str_parse_u64(text, ret) < 0 || *ret > INT64_MAX)
                return err_set(err, ERR_CORRUPT, .msg = "a key of the store in etcd makes no sense",
                               .detail = fmt("%s is \"%s\"", what, text),
                               .hint = "restore a backup, or use another prefix");
        return 0;
}

struct loading {
        struct arena memory;
        store_record_fn fn;
        void *ctx;
        struct etcd_cache *cache;
};

static int load_one(void *ctx, const char *key, const Etcd__KeyValue *kv, struct err *err)
{
        struct loading *l = ctx;
        struct store_record r = { .key = key };
        etcd_decode(&l->memory, key, kv->value.data, kv->value.len, &r.data, &r.len);
        if (!r.data)
                r.data = "";
        etcd_cache_load(l->cache, &r);
        int e = l->fn(l->ctx, &r, err);
        arena_reset(&l->memory);
        return e < 0 ? e : 0;
}

static int load(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_head,
                struct err *err)
{
        struct etcd_cache *cache = &etcd_self(base)->cache;
        struct loading l = { .fn = fn, .ctx = ctx, .cache = cache };
        uint64_t head = 0;
        etcd_cache_reset(cache);
        int r = etcd_each_record(etcd_self(base), "loading from etcd", load_one, &l, &head, err);
        arena_fini(&l.memory);
        if (r < 0)
                return r;
        base->head = head;
        etcd_cache_loaded(cache, head);
        if (ret_head)
                *ret_head = head;
        return 0;
}

static void remember(struct store *base, int step, const struct store_record *record, uint64_t head)
{
        struct etcd_cache *cache = &etcd_self(base)->cache;
        if (step < 0)
                etcd_cache_reset(cache);
        else if (step == 0)
                etcd_cache_load(cache, record);
        else
                etcd_cache_loaded(cache, head);
}

/* ---- transactions ---- */

static Etcd__RequestOp *op_new(struct etcd_ops *o)
{
        must(o->n < o->cap, "etcd: more operations than were asked for");
        Etcd__RequestOp *op = arena_new(o->arena, Etcd__RequestOp);
        etcd__request_op__init(op);
        return o->ops[o->n++] = op;
}

void etcd_ops_put(struct etcd_ops *o, const char *key, const void *value, size_t len)
{
        Etcd__RequestOp *op = op_new(o);
        Etcd__PutRequest *put = arena_new(o->arena, Etcd__PutRequest);
        etcd__put_request__init(put);
        put->key = etcd_bytes(key);
        put->value.len = len;
        str_add(&o->values, value, len);
        op->request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_PUT;
        op->request_put = put;
}

void etcd_ops_delete(struct etcd_ops *o, const char *key, const char *end)
{
        Etcd__RequestOp *op = op_new(o);
        Etcd__DeleteRangeRequest *del = arena_new(o->arena, Etcd__DeleteRangeRequest);
        etcd__delete_range_request__init(del);
        del->key = etcd_bytes(key);
        if (end)
                del->range_end = etcd_bytes(end);
        op->request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op->request_delete_range = del;
}

void etcd_ops_fini(struct etcd_ops *o)
{
        str_fini(&o->values);
}

int etcd_err_not_leading(struct err *err, const Etcd__KeyValue *leader)
{
        return err_set(
            err, ERR_CONFLICT, .msg = leader ? "another server leads" : "this server does not lead",
            .detail = leader ? fmt("%.*s", (int)(leader->value.len < 400 ? leader->value.len : 400),
                                   (const char *)leader->value.data)
                             : "the leadership key is not there",
            .hint = "what this server had not committed is dropped; it loads the store anew");
}

void etcd_txn_pack(struct etcd_store *s, struct etcd_ops *o, const char *expected_head,
                   Etcd__RequestOp **failure, size_t n_failure, struct arena *a, struct str *out)
{
        Etcd__Compare compare[2] = { ETCD__COMPARE__INIT, ETCD__COMPARE__INIT },
                      *compares[] = { &compare[0], &compare[1] };
        Etcd__TxnRequest txn = ETCD__TXN_REQUEST__INIT;
        compare[0].target = ETCD__COMPARE_TARGET__E__CREATE;
        compare[0].key = etcd_bytes(etcd_key(s, a, "/meta/leader"));
        compare[0].target_union_case = ETCD__COMPARE__TARGET_UNION_CREATE_REVISION;
        int64_t led = s->led_revision;
        compare[0].create_revision = led ? led : -1; /* 0 would be true of a key that is absent */
        if (expected_head) {
                compare[1].target = ETCD__COMPARE_TARGET__E__VALUE;
                compare[1].key = etcd_bytes(etcd_key(s, a, "/meta/head"));
                compare[1].target_union_case = ETCD__COMPARE__TARGET_UNION_VALUE;
                compare[1].value = etcd_bytes(expected_head);
        }
        txn.compare = compares;
        txn.n_compare = expected_head ? 2 : 1;
        if (expected_head && MUTANT(etcd_leader_not_compared)) {
                txn.compare = compares + 1;
                txn.n_compare = 1;
        } else if (MUTANT(etcd_commit_not_fenced))
                txn.n_compare = 0;
        uint8_t *value = (uint8_t *)o->values.buf;
        for (size_t i = 0; i < o->n; i++)
                if (o->ops[i]->request_case == ETCD__REQUEST_OP__REQUEST_REQUEST_PUT) {
                        o->ops[i]->request_put->value.data = value;
                        value += o->ops[i]->request_put->value.len;
                }
        txn.success = o->ops;
        txn.n_success = o->n;
        txn.failure = failure;
        txn.n_failure = n_failure;
        size_t len = etcd__txn_request__get_packed_size(&txn);
        str_reserve(out, len);
        etcd__txn_request__pack(&txn, (uint8_t *)out->buf + out->len);
        out->len += len;
}

int etcd_txn(struct etcd_store *s, struct etcd_ops *o, const char *expected_head, struct arena *a,
             Etcd__TxnResponse **ret, struct err *err)
{
        struct str packed = STR_INIT;
        ProtobufCMessage *m;
        etcd_txn_pack(s, o, expected_head, NULL, 0, a, &packed);
        struct etcd_request *request = etcd_request_send(s->client, "/etcdserverpb.KV/Txn", &packed,
                                                         ETCD_CALL_MS, ETCD_ANY_TIME, NULL, NULL);
        etcd_request_wait(request, -1);
        int r = etcd_request_answer(request, &etcd__txn_response__descriptor, a, &m, err);
        int64_t sent_ns = etcd_request_sent_ns(request);
        etcd_request_free(request);
        if (r == 0) {
                *ret = (Etcd__TxnResponse *)m;
                if ((*ret)->succeeded)
                        etcd_proof_note(s, sent_ns);
                if ((*ret)->succeeded && (*ret)->header)
                        etcd_strange_own(s, (*ret)->header->revision);
        }
        return r;
}

Etcd__RequestOp *etcd_get_op(struct arena *a, char *key)
{
        Etcd__RequestOp *op = arena_new(a, Etcd__RequestOp);
        Etcd__RangeRequest *range = arena_new(a, Etcd__RangeRequest);
        etcd__request_op__init(op);
        etcd__range_request__init(range);
        range->key = etcd_bytes(key);
        op->request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_RANGE;
        op->request_range = range;
        return op;
}

const Etcd__KeyValue *etcd_answer_kv(const Etcd__TxnResponse *t, size_t i)
{
        if (i >= t->n_responses ||
            t->responses[i]->response_case != ETCD__RESPONSE_OP__RESPONSE_RESPONSE_RANGE)
                return NULL;
        const Etcd__RangeResponse *r = t->responses[i]->response_range;
        return r && r->n_kvs ? r->kvs[0] : NULL;
}

static int seed(struct store *base, uint64_t head, struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct arena a = ARENA_INIT;
        struct etcd_ops o = { .arena = &a, .cap = 1, .ops = arena_new_n(&a, Etcd__RequestOp *, 1) };
        Etcd__TxnResponse *t;
        const char *text = fmt("%llu", (unsigned long long)head);
        etcd_ops_put(&o, etcd_key(s, &a, "/meta/head"), text, strlen(text));
        int r = etcd_txn(s, &o, "0", &a, &t, err);
        if (r == 0 && !t->succeeded)
                r = etcd_err_not_leading(err, NULL);
        if (r == 0)
                base->head = head;
        etcd_ops_fini(&o);
        arena_fini(&a);
        return r;
}

static int read_schema(struct etcd_store *s, struct arena *a, struct err *err)
{
        const Etcd__KeyValue *kv;
        uint64_t n;
        int r = etcd_get(s, etcd_key(s, a, "/meta/schema"), NULL, a, &kv, err);
        if (r == 0)
                r = etcd_parse_number(kv, "/meta/schema", &n, err);
        if (r == 0 && n > STORE_SCHEMA)
                r = store_err_newer(err, n > INT32_MAX ? INT32_MAX : (int)n);
        if (r == 0)
                s->base.schema = (int)n;
        return r;
}

/* ---- leadership ---- */

/* 1: ours now. 0: somebody else's (the error says whose). */
static int try_to_lead(struct etcd_store *s, const char *who, int64_t lease, struct err *err)
{
        struct arena a = ARENA_INIT;
        Etcd__Compare absent = ETCD__COMPARE__INIT, *compares[] = { &absent };
        Etcd__TxnRequest txn = ETCD__TXN_REQUEST__INIT;
        Etcd__RequestOp put_op = ETCD__REQUEST_OP__INIT, *success[] = { &put_op };
        Etcd__PutRequest put = ETCD__PUT_REQUEST__INIT;
        ProtobufCMessage *m;
        char *key = etcd_key(s, &a, "/meta/leader");
        absent.target = ETCD__COMPARE_TARGET__E__CREATE;
        absent.key = etcd_bytes(key);
        absent.target_union_case = ETCD__COMPARE__TARGET_UNION_CREATE_REVISION;
        put.key = etcd_bytes(key);
        put.value = etcd_bytes(who);
        put.lease = lease;
        put_op.request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_PUT;
        put_op.request_put = &put;
        Etcd__RequestOp *failure[] = { etcd_get_op(&a, key) };
        txn.compare = compares;
        txn.n_compare = 1;
        txn.success = success;
        txn.n_success = 1;
        txn.failure = failure;
        txn.n_failure = 1;
        int r = etcd_call(s->client, "/etcdserverpb.KV/Txn", &txn.base,
                          &etcd__txn_response__descriptor, ETCD_CALL_MS, &a, &m, err);
        if (r == 0) {
                const Etcd__TxnResponse *t = (const Etcd__TxnResponse *)m;
                const Etcd__KeyValue *leader = t->succeeded ? NULL : etcd_answer_kv(t, 0);
                /* the latter: sent twice, and the first had gone through */
                if (t->succeeded || (leader && leader->lease == lease)) {
                        s->led_revision =
                            t->succeeded ? t->header->revision : leader->create_revision;
                        r = 1;
                } else
                        (void)etcd_err_not_leading(err, leader);
        }
        arena_fini(&a);
        return r;
}

/* The key of our own term before, if it is still there: nobody gains from waiting until its lease
 * has run out. */
static void remove_own_key(struct etcd_store *s)
{
        struct arena a = ARENA_INIT;
        Etcd__Compare ours = ETCD__COMPARE__INIT, *compares[] = { &ours };
        Etcd__TxnRequest txn = ETCD__TXN_REQUEST__INIT;
        struct etcd_ops o = { .arena = &a, .cap = 1, .ops = arena_new_n(&a, Etcd__RequestOp *, 1) };
        ProtobufCMessage *m;
        char *key = etcd_key(s, &a, "/meta/leader");
        ours.target = ETCD__COMPARE_TARGET__E__CREATE;
        ours.key = etcd_bytes(key);
        ours.target_union_case = ETCD__COMPARE__TARGET_UNION_CREATE_REVISION;
        ours.create_revision = s->old_revision;
        etcd_ops_delete(&o, key, NULL);
        txn.compare = compares;
        txn.n_compare = 1;
        txn.success = o.ops;
        txn.n_success = 1;
        if (etcd_call(s->client, "/etcdserverpb.KV/Txn", &txn.base, &etcd__txn_response__descriptor,
                      ETCD_CALL_MS, &a, &m, NULL) == 0)
                s->old_revision = 0;
        etcd_ops_fini(&o);
        arena_fini(&a);
}

static void unlead(struct store *base)
{
        struct etcd_store *s = etcd_self(base);
        int64_t led = atomic_exchange(&s->led_revision, 0);
        atomic_store(&s->proof.proved_ns, 0);
        if (led)
                s->old_revision = led;
        etcd_strange_end(s);
        etcd_lease_drop(s->client, false);
}

static int64_t led_term(const struct store *base)
{
        return ((const struct etcd_store *)base)->old_revision;
}

static void supersede(struct store *base, int64_t term)
{
        etcd_self(base)->old_revision = term;
}

#define LEAD_AGAIN_MS 100

static int lead(struct store *base, const char *who, int64_t ttl_seconds, int64_t wait_ms,
                struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        int64_t lease, end_ns = clock_mono_ns() + wait_ms * 1000000;
        unlead(base);
        store_kept_unknown(base);
        s->chain.unsure_head = 0;
        if (s->old_revision)
                remove_own_key(s);
        int r = etcd_lease_take(s->client, ttl_seconds, ETCD_CALL_MS, &lease, err);
        if (r < 0)
                return r;
        int64_t sent_ns = clock_steady_ns();
        s->proof.term_ns = ttl_seconds * 1000000000;
        while ((r = try_to_lead(s, who, lease, err)) == 0 && clock_mono_ns() < end_ns) {
                nanosleep(&(struct timespec){ .tv_nsec = LEAD_AGAIN_MS * 1000000 }, NULL);
                sent_ns = clock_steady_ns();
        }
        if (r == 1) {
                struct arena a = ARENA_INIT;
                const Etcd__KeyValue *kv;
                uint64_t head;
                etcd_proof_note(s, sent_ns);
                /* What the one before had sent has now either happened or can never happen. */
                r = etcd_get(s, etcd_key(s, &a, "/meta/head"), NULL, &a, &kv, err);
                if (r == 0)
                        r = etcd_parse_number(kv, "/meta/head", &head, err);
                if (r == 0)
                        s->base.head = head;
                /* The one before may have used what this berth does not know, after this one had
                 * opened the store. */
                if (r == 0)
                        r = read_schema(s, &a, err);
                arena_fini(&a);
                etcd_strange_begin(s);
                etcd_say_hello(s, lease);
                return r;
        }
        etcd_lease_drop(s->client, true);
        return r < 0 ? r : -ERR_CONFLICT;
}

/* ---- opening ---- */

struct address {
        char *text; /* cut into pieces */
        const char *endpoints, *prefix, *ca, *cert, *key, *user, *password_file, *in_flight;
};

static int parse_query(struct address *at, char *query, struct err *err)
{
        static const char *const names[] = { "ca",   "cert",          "key",
                                             "user", "password-file", "in-flight" };
        const char **fields[] = { &at->ca,   &at->cert,          &at->key,
                                  &at->user, &at->password_file, &at->in_flight };
        char *save = NULL;
        for (char *word = strtok_r(query, "&", &save); word; word = strtok_r(NULL, "&", &save)) {
                char *equals = strchr(word, '=');
                size_t i = 0;
                if (equals)
                        *equals = 0;
                while (i < ARRAY_LEN(names) && strcmp(names[i], word) != 0)
                        i++;
                if (!equals || i == ARRAY_LEN(names))
                        return err_set(
                            err, ERR_INVALID, .msg = "the address of etcd has an unknown option",
                            .detail = fmt("\"%s\"", word),
                            .hint = "known are ca, cert, key, user, password-file, in-flight");
                *fields[i] = equals + 1;
        }
        return 0;
}

static int parse_address(const char *rest, struct address *at, struct err *err)
{
        if (!str_starts(rest, "//"))
                return err_set(err, ERR_INVALID, .msg = "the address of etcd is malformed",
                               .detail = fmt("\"etcd:%s\"", rest),
                               .hint = "etcd://host:2379,host:2379,host:2379");
        at->text = mem_strdup(rest + 2);
        at->endpoints = at->text;
        at->prefix = "";
        char *query = strchr(at->text, '?'), *slash;
        if (query)
                *query++ = 0;
        if ((slash = strchr(at->text, '/'))) {
                at->prefix = mem_strdup(slash);
                *slash = 0;
        } else
                at->prefix = mem_strdup("");
        size_t n = strlen(at->prefix);
        while (n && at->prefix[n - 1] == '/')
                ((char *)at->prefix)[--n] = 0;
        return query ? parse_query(at, query, err) : 0;
}

static void address_fini(struct address *at)
{
        mem_free((char *)at->prefix);
        mem_free(at->text);
}

static int parse_in_flight(const struct address *at, size_t *ret, struct err *err)
{
        uint64_t n = ETCD_IN_FLIGHT;
        if (at->in_flight &&
            (str_parse_u64(at->in_flight, &n) < 0 || n < 1 || n > ETCD_IN_FLIGHT_MAX))
                return err_set(
                    err, ERR_INVALID, .msg = "the address of etcd has an option with a bad value",
                    .detail = fmt("in-flight=%s", at->in_flight),
                    .hint = fmt("commits under way at a time: 1 to %d", ETCD_IN_FLIGHT_MAX));
        *ret = (size_t)n;
        return 0;
}

static int read_password(const char *file, struct str *out, struct err *err)
{
        int r = file_read(file, 4096, out, err);
        while (r == 0 && out->len &&
               (out->buf[out->len - 1] == '\n' || out->buf[out->len - 1] == '\r'))
                out->buf[--out->len] = 0;
        return r;
}

/* Makes an empty store where there is none; two who do so at once make the same one. */
static int ensure_store(struct etcd_store *s, bool create, struct err *err)
{
        struct arena a = ARENA_INIT;
        const Etcd__KeyValue *schema = NULL;
        uint64_t n = 0;
        char *schema_key = etcd_key(s, &a, "/meta/schema"),
             *head_key = etcd_key(s, &a, "/meta/head");
        int r = etcd_get(s, schema_key, NULL, &a, &schema, err);
        if (r == 0 && !schema) {
                Etcd__Compare absent = ETCD__COMPARE__INIT, *compares[] = { &absent };
                Etcd__TxnRequest txn = ETCD__TXN_REQUEST__INIT;
                struct etcd_ops o = { .arena = &a,
                                      .cap = 2,
                                      .ops = arena_new_n(&a, Etcd__RequestOp *, 2) };
                ProtobufCMessage *m;
                const char *text = fmt("%d", STORE_SCHEMA_FIRST);
                if (!create) {
                        arena_fini(&a);
                        return err_set(err, ERR_NOT_FOUND,
                                       .msg = "there is no store of berth in etcd",
                                       .detail = fmt("prefix \"%s\"", s->prefix),
                                       .hint = "start a server with this address to make one");
                }
                absent.target = ETCD__COMPARE_TARGET__E__CREATE;
                absent.key = etcd_bytes(schema_key);
                absent.target_union_case = ETCD__COMPARE__TARGET_UNION_CREATE_REVISION;
                etcd_ops_put(&o, schema_key, text, strlen(text));
                etcd_ops_put(&o, head_key, "0", 1);
                o.ops[0]->request_put->value.data = (uint8_t *)o.values.buf;
                o.ops[1]->request_put->value.data =
                    (uint8_t *)o.values.buf + o.ops[0]->request_put->value.len;
                txn.compare = compares;
                txn.n_compare = 1;
                txn.success = o.ops;
                txn.n_success = 2;
                r = etcd_call(s->client, "/etcdserverpb.KV/Txn", &txn.base,
                              &etcd__txn_response__descriptor, ETCD_CALL_MS, &a, &m, err);
                etcd_ops_fini(&o);
                if (r == 0)
                        r = etcd_get(s, schema_key, NULL, &a, &schema, err);
        }
        if (r == 0)
                r = etcd_parse_number(schema, "/meta/schema", &n, err);
        if (r == 0 && n > STORE_SCHEMA)
                r = store_err_newer(err, (int)n);
        s->base.schema = (int)n;
        const Etcd__KeyValue *head;
        if (r == 0)
                r = etcd_get(s, head_key, NULL, &a, &head, err);
        if (r == 0)
                r = etcd_parse_number(head, "/meta/head", &n, err);
        s->base.head = n;
        arena_fini(&a);
        return r;
}

static void close_store(struct store *base)
{
        struct etcd_store *s = etcd_self(base);
        etcd_take_back(base);
        etcd_proof_end(s);
        etcd_request_free(s->compaction);
        etcd_client_destroy(s->client);
        etcd_follow_fini(&s->follow);
        etcd_strange_fini(&s->strange);
        etcd_proof_fini(&s->proof);
        etcd_cache_fini(&s->cache);
        mem_free(s->prefix);
        mem_free(s);
}

int etcd_open(const char *rest, bool create, bool to_restore, struct store **ret_store,
              struct err *err)
{
        struct address at = { 0 };
        _cleanup_(str_finip) struct str password = STR_INIT;
        struct etcd_store *s = NULL;
        size_t in_flight = 0;
        int r = parse_address(rest, &at, err);
        if (r == 0)
                r = parse_in_flight(&at, &in_flight, err);
        if (r == 0 && at.password_file)
                r = read_password(at.password_file, &password, err);
        if (r == 0) {
                struct etcd_client_options opt = { .endpoints = at.endpoints,
                                                   .ca_file = at.ca,
                                                   .cert_file = at.cert,
                                                   .key_file = at.key,
                                                   .user = at.user,
                                                   .password = str_c(&password) };
                s = mem_must(sizeof(*s));
                *s = (struct etcd_store){ .base = { .ops = &etcd_ops,
                                                    .limits = { .max_ops = ETCD_MAX_OPS,
                                                                .max_bytes = ETCD_MAX_BYTES,
                                                                .batch_ops = ETCD_BATCH_OPS,
                                                                .batch_bytes = ETCD_BATCH_BYTES,
                                                                .wants_index_records = true,
                                                                .hops = ETCD_HOPS,
                                                                /* that one is packed meanwhile */
                                                                .in_flight = in_flight + 1 } },
                                          .chain = { .window = in_flight, .max_window = in_flight },
                                          .prefix = mem_strdup(at.prefix) };
                etcd_cache_init(&s->cache);
                etcd_follow_init(&s->follow);
                etcd_strange_init(&s->strange);
                etcd_proof_init(&s->proof);
                opt.on_beat = etcd_proof_beat;
                opt.ctx = s;
                r = etcd_client_create(&opt, &s->client, err);
        }
        if (r == 0)
                r = ensure_store(s, create, err);
        if (r == 0 && !to_restore)
                r = etcd_check_restoring(s, err);
        address_fini(&at);
        if (r < 0) {
                if (s)
                        close_store(&s->base);
                return r;
        }
        *ret_store = &s->base;
        return 0;
}

static int open_store(const char *rest, bool create, struct store **ret_store, struct err *err)
{
        return etcd_open(rest, create, false, ret_store, err);
}

/* Nothing is taken or held in etcd for it: old values are there until they are compacted, a minute
 * or more later. */
static int open_moment(const char *rest, struct store **ret_store, struct err *err)
{
        struct store *store;
        struct arena a = ARENA_INIT;
        const Etcd__KeyValue *head;
        int64_t revision = 0;
        uint64_t n = 0;
        int r = open_store(rest, false, &store, err);
        if (r < 0)
                return r;
        struct etcd_store *s = etcd_self(store);
        r = etcd_get(s, etcd_key(s, &a, "/meta/head"), &revision, &a, &head, err);
        if (r == 0)
                r = etcd_parse_number(head, "/meta/head", &n, err);
        arena_fini(&a);
        if (r < 0) {
                store_close(store);
                return r;
        }
        s->pinned = revision;
        store->head = n;
        *ret_store = store;
        return 0;
}

const struct store_ops etcd_ops = {
        .scheme = "etcd",
        .open = open_store,
        .close = close_store,
        .load = load,
        .submit = etcd_submit,
        .settle = etcd_settle,
        .take_back = etcd_take_back,
        .seed = seed,
        .prune = etcd_prune,
        .kept_put = etcd_kept_put,
        .kept_count = etcd_kept_count,
        .kept_remove = etcd_kept_remove,
        .checkpoint = etcd_checkpoint,
        .load_checkpoint = etcd_load_checkpoint,
        .integrity = etcd_integrity,
        .reader_open = etcd_reader_open,
        .reader_close = etcd_reader_close,
        .reader_events = etcd_reader_events,
        .reader_event = etcd_reader_event,
        .reader_records = etcd_reader_records,
        .reader_first = etcd_reader_first,
        .reader_kept = etcd_reader_kept,
        .lead = lead,
        .leads_until_ns = etcd_leads_until_ns,
        .lead_is_over = etcd_lead_is_over,
        .proved_ns = etcd_proved_ns,
        .prove = etcd_prove,
        .open_moment = open_moment,
        .restore_open = etcd_restore_open,
        .restore_done = etcd_restore_done,
        .unlead = unlead,
        .led_term = led_term,
        .supersede = supersede,
        .follow = etcd_follow,
        .follow_end = etcd_follow_end,
        .strange = etcd_strange,
        .announce = etcd_announce,
        .each_server = etcd_each_server,
        .remember = remember,
};
