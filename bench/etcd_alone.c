/* bench/etcd_alone.c: how fast etcd alone takes the transactions that a server has sent to it.
 *
 *      etcd_alone save HOST:PORT REVISION FILE     every transaction that this etcd has seen, from
 *      its history; those up to REVISION are its past etcd_alone play HOST:PORT FILE IN_FLIGHT PID
 *      into a fresh etcd, which is this process: the past in one go, then, measured, the others
 *      with so many under way
 *
 * etcd keeps every change with the revision that it made, and a transaction is one revision: what
 * is played is the same keys, values and order, with as many comparisons (that always hold, so that
 * no transaction waits for another). They are packed before the clock runs; nothing is decided and
 * nobody asks.
 *
 * save prints: transactions= operations= bytes=
 * play prints: transactions= operations= bytes= seconds= cpu_seconds= etcd_cpu= p50_us= per_s=
 */
#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/etcd_store.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CALL_MS 60000
#define PAST_IN_FLIGHT 8

static void die(const char *what, const struct err *err)
{
        fprintf(stderr, "error: %s: %s\n", what, err ? err_line(err) : "");
        exit(1);
}

static struct etcd_client *connect_to(const char *address)
{
        struct etcd_client_options opt = { .endpoints = address, .try_ms = CALL_MS };
        struct etcd_client *c;
        struct err err = { 0 };
        if (etcd_client_create(&opt, &c, &err) < 0)
                die(address, &err);
        return c;
}

/* ---- save ---- */

struct op {
        char *key, *value; /* value NULL: deleted */
        size_t key_len, value_len;
};

struct saving {
        FILE *out;
        int64_t past, revision, until;
        ARRAY(struct op) ops; /* of this revision */
        uint64_t transactions, operations, bytes;
        pthread_mutex_t lock;
        pthread_cond_t done;
        bool ended;
};

static ProtobufCBinaryData text(const char *s)
{
        return (ProtobufCBinaryData){ strlen(s), (uint8_t *)(uintptr_t)s };
}

static Etcd__RequestOp *request_op(struct arena *a, const struct op *op)
{
        Etcd__RequestOp *r = arena_new(a, Etcd__RequestOp);
        etcd__request_op__init(r);
        ProtobufCBinaryData key = { op->key_len, (uint8_t *)op->key };
        if (op->value) {
                r->request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_PUT;
                r->request_put = arena_new(a, Etcd__PutRequest);
                etcd__put_request__init(r->request_put);
                r->request_put->key = key;
                r->request_put->value =
                    (ProtobufCBinaryData){ op->value_len, (uint8_t *)op->value };
        } else {
                r->request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
                r->request_delete_range = arena_new(a, Etcd__DeleteRangeRequest);
                etcd__delete_range_request__init(r->request_delete_range);
                r->request_delete_range->key = key;
        }
        return r;
}

/* As the store sends it: more operations than etcd takes in a transaction are transactions within
 * one. */
static void add_ops(struct arena *a, Etcd__TxnRequest *txn, const struct op *ops, size_t n)
{
        size_t per_part = etcd_ops_per_part(n),
               parts = n > per_part ? (n + per_part - 1) / per_part : 0;
        txn->n_success = parts ? parts : n;
        txn->success = arena_new_n(a, Etcd__RequestOp *, txn->n_success);
        for (size_t i = 0; i < parts; i++) {
                Etcd__RequestOp *part = txn->success[i] = arena_new(a, Etcd__RequestOp);
                etcd__request_op__init(part);
                part->request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_TXN;
                part->request_txn = arena_new(a, Etcd__TxnRequest);
                etcd__txn_request__init(part->request_txn);
                size_t from = i * per_part;
                add_ops(a, part->request_txn, ops + from,
                        n - from < per_part ? n - from : per_part);
        }
        for (size_t i = 0; !parts && i < n; i++)
                txn->success[i] = request_op(a, &ops[i]);
}

static void save_transaction(struct saving *s)
{
        if (s->ops.len == 0)
                return;
        struct arena a = ARENA_INIT;
        bool past = s->revision <= s->past;
        Etcd__Compare leader = ETCD__COMPARE__INIT, head = ETCD__COMPARE__INIT,
                      *compares[] = { &leader, &head };
        leader.result = head.result = ETCD__COMPARE_RESULT__E__GREATER;
        leader.target = ETCD__COMPARE_TARGET__E__CREATE;
        leader.key = text("/meta/leader");
        leader.target_union_case = ETCD__COMPARE__TARGET_UNION_CREATE_REVISION;
        head.target = ETCD__COMPARE_TARGET__E__VALUE;
        head.key = text("/meta/head");
        head.target_union_case = ETCD__COMPARE__TARGET_UNION_VALUE;
        Etcd__TxnRequest txn = ETCD__TXN_REQUEST__INIT;
        txn.compare = compares;
        txn.n_compare = past ? 0 : 2;
        add_ops(&a, &txn, s->ops.at, s->ops.len);
        uint32_t len = (uint32_t)etcd__txn_request__get_packed_size(&txn),
                 head_of[] = { past, (uint32_t)s->ops.len, len };
        uint8_t *packed = mem_must(len);
        etcd__txn_request__pack(&txn, packed);
        if (fwrite(head_of, sizeof(head_of), 1, s->out) != 1 || fwrite(packed, len, 1, s->out) != 1)
                die("cannot write", NULL);
        if (!past) {
                s->transactions++;
                s->operations += s->ops.len;
                s->bytes += len;
        }
        mem_free(packed);
        for (size_t i = 0; i < s->ops.len; i++) {
                mem_free(s->ops.at[i].key);
                mem_free(s->ops.at[i].value);
        }
        array_clear(&s->ops);
        arena_fini(&a);
}

static void on_change(void *ctx, const struct etcd_watch_event *e)
{
        struct saving *s = ctx;
        if (s->ended)
                return;
        if (e->compacted)
                die("the history of this etcd was compacted", NULL);
        if (e->revision != s->revision)
                save_transaction(s);
        s->revision = e->revision;
        struct op op = { mem_dup(e->kv->key.data, e->kv->key.len),
                         e->deleted ? NULL : mem_dup(e->kv->value.data, e->kv->value.len),
                         e->kv->key.len, e->kv->value.len };
        *array_push(&s->ops) = op;
        /* which is the last one of its transaction */
        if (e->revision < s->until || strncmp(op.key, "/meta/head", op.key_len) != 0)
                return;
        save_transaction(s);
        pthread_mutex_lock(&s->lock);
        s->ended = true;
        pthread_cond_signal(&s->done);
        pthread_mutex_unlock(&s->lock);
}

static void save(const char *address, int64_t revision, const char *file)
{
        struct saving s = { .out = fopen(file, "we"), .past = revision };
        struct etcd_client *c = connect_to(address);
        struct arena a = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m;
        Etcd__RangeRequest get = ETCD__RANGE_REQUEST__INIT;
        if (!s.out)
                die(file, NULL);
        get.key = text("/meta/head");
        if (etcd_call(c, "/etcdserverpb.KV/Range", &get.base, &etcd__range_response__descriptor,
                      CALL_MS, &a, &m, &err) < 0)
                die(address, &err);
        const Etcd__RangeResponse *r = (const Etcd__RangeResponse *)m;
        if (r->n_kvs != 1)
                die("there is no store of berth in this etcd", NULL);
        s.until = r->kvs[0]->mod_revision;
        pthread_mutex_init(&s.lock, NULL);
        pthread_cond_init(&s.done, NULL);
        etcd_watch_start(c, ETCD_WATCH_META, "/", "0", 1, on_change, &s);
        pthread_mutex_lock(&s.lock);
        while (!s.ended)
                pthread_cond_wait(&s.done, &s.lock);
        pthread_mutex_unlock(&s.lock);
        etcd_watch_stop(c, ETCD_WATCH_META);
        etcd_client_destroy(c);
        arena_fini(&a);
        if (fclose(s.out) != 0)
                die(file, NULL);
        printf("transactions=%llu operations=%llu bytes=%llu\n", (unsigned long long)s.transactions,
               (unsigned long long)s.operations, (unsigned long long)s.bytes);
}

/* ---- play ---- */

struct txn {
        struct str packed;
        uint32_t ops;
        struct etcd_request *request;
        int64_t since_ns;
};
static ARRAY(struct txn) past, measured;

static void read_file(const char *file)
{
        FILE *in = fopen(file, "re");
        uint32_t head[3];
        if (!in)
                die(file, NULL);
        while (fread(head, sizeof(head), 1, in) == 1) {
                struct txn t = { .ops = head[1] };
                str_reserve(&t.packed, head[2]);
                if (fread(t.packed.buf, head[2], 1, in) != 1)
                        die(file, NULL);
                t.packed.len = head[2];
                if (head[0])
                        *array_push(&past) = t;
                else
                        *array_push(&measured) = t;
        }
        fclose(in);
}

static void wait_for(struct txn *t)
{
        struct arena a = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m;
        etcd_request_wait(t->request, -1);
        if (etcd_request_answer(t->request, &etcd__txn_response__descriptor, &a, &m, &err) < 0)
                die("a transaction", &err);
        if (!((Etcd__TxnResponse *)m)->succeeded)
                die("a transaction's comparison failed", NULL);
        t->since_ns = clock_mono_ns() - t->since_ns;
        etcd_request_free(t->request);
        arena_fini(&a);
}

static void play_all(struct etcd_client *c, struct txn *at, size_t n, size_t in_flight)
{
        for (size_t sent = 0, done = 0; done < n; wait_for(&at[done++]))
                for (; sent < n && sent - done < in_flight; sent++) {
                        at[sent].since_ns = clock_mono_ns();
                        at[sent].request =
                            etcd_request_send(c, "/etcdserverpb.KV/Txn", &at[sent].packed, CALL_MS,
                                              false, NULL, NULL);
                }
}

static int by_time(const void *a, const void *b)
{
        const struct txn *x = a, *y = b;
        return (x->since_ns > y->since_ns) - (x->since_ns < y->since_ns);
}

static double cpu_seconds(void)
{
        struct rusage u;
        getrusage(RUSAGE_SELF, &u);
        return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* What another process has used up. */
static double cpu_seconds_of(const char *pid)
{
        unsigned long user = 0, system = 0;
        FILE *in = fopen(fmt("/proc/%s/stat", pid), "re");
        if (!in || fscanf(in, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                          &user, &system) != 2)
                die("cannot read what etcd has used", NULL);
        fclose(in);
        return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static void play(const char *address, const char *file, size_t in_flight, const char *pid)
{
        struct etcd_client *c = connect_to(address);
        uint64_t operations = 0, bytes = 0;
        read_file(file);
        play_all(c, past.at, past.len, PAST_IN_FLIGHT);
        for (size_t i = 0; i < measured.len; i++) {
                operations += measured.at[i].ops;
                bytes += measured.at[i].packed.len;
        }
        double cpu = cpu_seconds(), etcd_cpu = cpu_seconds_of(pid);
        int64_t t0 = clock_mono_ns();
        play_all(c, measured.at, measured.len, in_flight);
        double seconds = (double)(clock_mono_ns() - t0) / 1e9;
        cpu = cpu_seconds() - cpu;
        etcd_cpu = cpu_seconds_of(pid) - etcd_cpu;
        etcd_client_destroy(c);
        qsort(measured.at, measured.len, sizeof(*measured.at), by_time);
        printf("transactions=%zu operations=%llu bytes=%llu seconds=%.3f cpu_seconds=%.3f "
               "etcd_cpu=%.2f p50_us=%.0f per_s=%.1f\n",
               measured.len, (unsigned long long)operations, (unsigned long long)bytes, seconds,
               cpu, etcd_cpu,
               measured.len ? (double)measured.at[measured.len / 2].since_ns / 1e3 : 0,
               (double)measured.len / seconds);
}

int main(int argc, char **argv)
{
        if (argc == 5 && strcmp(argv[1], "save") == 0)
                save(argv[2], atoll(argv[3]), argv[4]);
        else if (argc == 6 && strcmp(argv[1], "play") == 0 && atoll(argv[4]) > 0)
                play(argv[2], argv[3], (size_t)atoll(argv[4]), argv[5]);
        else {
                fprintf(stderr, "error: etcd_alone save HOST:PORT REVISION FILE, or etcd_alone "
                                "play HOST:PORT FILE IN_FLIGHT\n");
                return 2;
        }
        return 0;
}
