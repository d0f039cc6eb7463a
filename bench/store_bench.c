/* bench/store_bench.c: how many rows per second the store takes, beside a plain append to SQLite in the same run.
 *
 *      store_bench [DIR] [SECONDS]
 *
 * The load is that of scheduling: per workload 2 events of 400 bytes and 2 records of 700 bytes under random keys, half of them new and half replacing
 * older ones. "raw" appends the same number of rows with the same bytes by row id to one SQLite table with the same settings: what SQLite can do at best. Every commit is
 * synced in both. At the end 105,000 records are loaded, checkpointed while commits go on, and a plain write + fdatasync shows what the disk gives.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "store/store.h"
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVENT_BYTES 400
#define RECORD_BYTES 700
#define MAX_BATCH 1024

static char bytes[65536];
static struct rng rng;

static void die(const char *what, const struct err *err)
{
        fprintf(stderr, "store_bench: %s: %s\n", what, err ? err_line(err) : "failed");
        exit(1);
}

static int by_number(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return x < y ? -1 : x > y;
}

struct result {
        double rows_per_s, p50_ms, p99_ms, max_ms;
};

static struct result result_of(double *latencies_ms, size_t n, size_t rows, double seconds)
{
        qsort(latencies_ms, n, sizeof(*latencies_ms), by_number);
        return (struct result){ (double)rows / seconds, latencies_ms[n / 2], latencies_ms[n - 1 - n / 100], latencies_ms[n - 1] };
}

/* ---- the store ---- */

struct load {
        struct store *s;
        uint64_t head, n_keys;
};

static void key_of(char key[40], uint64_t n)
{
        snprintf(key, 40, n & 1 ? "/workloads/w-%016llx" : "/assignments/w-%016llx", (unsigned long long)hash64_mix(n >> 1, 1));
}

static void commit_batch(struct load *l, size_t rows)
{
        static struct store_event events[MAX_BATCH];
        static struct store_record records[MAX_BATCH];
        static char keys[MAX_BATCH][40];
        size_t n_events = rows / 2, n_records = rows - n_events, n_new = (n_records + 1) / 2;
        uint64_t spread = l->n_keys, step = n_records > n_new ? spread / (n_records - n_new) : 0;
        for (size_t i = 0; i < n_events; i++)
                events[i] = (struct store_event){ l->head + 1 + i, bytes + rng_below(&rng, 60000), EVENT_BYTES };
        for (size_t i = 0; i < n_records; i++) {
                /* one old key from each stretch, so that no key comes twice */
                uint64_t n = i < n_new || step == 0 ? l->n_keys++ : (i - n_new) * step + rng_below(&rng, step);
                key_of(keys[i], n);
                records[i] = (struct store_record){ keys[i], bytes + rng_below(&rng, 60000), RECORD_BYTES };
        }
        struct store_batch batch = { l->head, l->head + n_events, events, n_events, records, n_records };
        struct err err = { 0 };
        if (store_commit(l->s, &batch, &err) < 0)
                die("commit", &err);
        l->head += n_events;
}

static struct result run_store(struct load *l, size_t batch, double seconds)
{
        static double latencies_ms[1000000];
        size_t n = 0;
        int64_t start_ns = clock_mono_ns(), now_ns = start_ns;
        while ((double)(now_ns - start_ns) < seconds * 1e9 && n < ARRAY_LEN(latencies_ms)) {
                int64_t before_ns = now_ns;
                commit_batch(l, batch);
                now_ns = clock_mono_ns();
                latencies_ms[n++] = (double)(now_ns - before_ns) / 1e6;
        }
        return result_of(latencies_ms, n, n * batch, (double)(now_ns - start_ns) / 1e9);
}

/* ---- raw SQLite: the same bytes, appended ---- */

static struct result run_raw(const char *dir, size_t batch, double seconds)
{
        static double latencies_ms[1000000];
        char path[4096];
        sqlite3 *db;
        sqlite3_stmt *put;
        snprintf(path, sizeof(path), "%s/raw-%zu.db", dir, batch);
        if (sqlite3_open(path, &db) != SQLITE_OK ||
            sqlite3_exec(db,
                         "PRAGMA page_size=4096; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=256; PRAGMA "
                         "cache_size=-16384;"
                         "CREATE TABLE t(id INTEGER PRIMARY KEY, data BLOB)",
                         NULL, NULL, NULL) != SQLITE_OK ||
            sqlite3_prepare_v2(db, "INSERT INTO t(data) VALUES(?1)", -1, &put, NULL) != SQLITE_OK)
                die(path, NULL);
        size_t n = 0;
        int64_t start_ns = clock_mono_ns(), now_ns = start_ns;
        while ((double)(now_ns - start_ns) < seconds * 1e9 && n < ARRAY_LEN(latencies_ms)) {
                int64_t before_ns = now_ns;
                sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
                for (size_t i = 0; i < batch; i++) {
                        sqlite3_bind_blob(put, 1, bytes + rng_below(&rng, 60000), i < batch / 2 ? EVENT_BYTES : RECORD_BYTES + 30,
                                          SQLITE_STATIC);
                        sqlite3_step(put);
                        sqlite3_reset(put);
                }
                if (sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
                        die("raw commit", NULL);
                now_ns = clock_mono_ns();
                latencies_ms[n++] = (double)(now_ns - before_ns) / 1e6;
        }
        sqlite3_finalize(put);
        sqlite3_close(db);
        return result_of(latencies_ms, n, n * batch, (double)(now_ns - start_ns) / 1e9);
}

/* ---- the rest ---- */

static int count_record(void *ctx, const struct store_record *r, struct err *err)
{
        (void)err;
        ((uint64_t *)ctx)[0]++;
        ((uint64_t *)ctx)[1] += r->len;
        return 0;
}

static void run_disk(const char *dir)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s/disk", dir);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), n = 0;
        if (fd < 0)
                die(path, NULL);
        int64_t start_ns = clock_mono_ns();
        for (; n < 500; n++)
                if (pwrite(fd, bytes, 4096, (n % 64) * 4096) != 4096 || fdatasync(fd) < 0)
                        die("write", NULL);
        printf("disk: write of 4 KiB + fdatasync: %.2f ms\n", (double)(clock_mono_ns() - start_ns) / 1e6 / n);
        close(fd);
}

static void run_load(struct load *l)
{
        struct err err = { 0 };
        while (l->n_keys < 105000)
                commit_batch(l, MAX_BATCH);
        uint64_t sum[2] = { 0, 0 }, head;
        int64_t start_ns = clock_mono_ns();
        if (store_load(l->s, count_record, sum, &head, &err) < 0)
                die("load", &err);
        printf("load: %llu records of %llu MB in %.0f ms\n", (unsigned long long)sum[0], (unsigned long long)sum[1] / 1000000,
               (double)(clock_mono_ns() - start_ns) / 1e6);
}

static void run_checkpoint(struct load *l)
{
        struct err err = { 0 };
        double max_ms = 0;
        size_t n = 0;
        int64_t removed = 0, start_ns = clock_mono_ns();
        while (removed == 0 && clock_mono_ns() - start_ns < 60000000000LL) {
                int64_t before_ns = clock_mono_ns();
                commit_batch(l, 128);
                n++;
                removed = store_prune(l->s, STORE_KEEP_LOG(1000), 4096, NULL, &err);
                if (removed < 0)
                        die("prune", &err);
                double ms = (double)(clock_mono_ns() - before_ns) / 1e6;
                if (ms > max_ms)
                        max_ms = ms;
        }
        printf("checkpoint of %llu records beside commits: %.0f ms, %zu commits of 128 rows meanwhile, slowest %.1f ms\n",
               (unsigned long long)l->n_keys, (double)(clock_mono_ns() - start_ns) / 1e6, n, max_ms);
}

int main(int argc, char **argv)
{
        const char *base = argc > 1 ? argv[1] : getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
        double seconds = argc > 2 ? atof(argv[2]) : 3;
        char dir[4000], path[4096];
        static const size_t batches[] = { 1, 16, 128, 1024 };
        struct load l = { 0 };
        struct err err = { 0 };
        rng_seed(&rng, 1);
        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (char)rng_next(&rng);
        snprintf(dir, sizeof(dir), "%s/store-bench-XXXXXX", base);
        if (!mkdtemp(dir))
                die(dir, NULL);
        snprintf(path, sizeof(path), "%s/berth.db", dir);
        if (store_open(path, true, &l.s, &err) < 0)
                die("open", &err);
        run_disk(dir);
        while (l.n_keys < 100000) /* the tables are not empty */
                commit_batch(&l, MAX_BATCH);
        printf("%6s %14s %12s %8s %8s %8s   %14s %8s %8s   %s\n", "batch", "store rows/s", "workloads/s", "p50 ms", "p99 ms", "max ms",
               "raw rows/s", "p50 ms", "p99 ms", "ratio");
        for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
                struct result store = run_store(&l, batches[i], seconds), raw = run_raw(dir, batches[i], seconds);
                printf("%6zu %14.0f %12.0f %8.2f %8.2f %8.2f   %14.0f %8.2f %8.2f   %.2f\n", batches[i], store.rows_per_s,
                       store.rows_per_s / 4, store.p50_ms, store.p99_ms, store.max_ms, raw.rows_per_s, raw.p50_ms, raw.p99_ms,
                       store.rows_per_s / raw.rows_per_s);
                fflush(stdout);
        }
        store_close(l.s);
        l = (struct load){ 0 };
        snprintf(path, sizeof(path), "%s/load.db", dir);
        if (store_open(path, true, &l.s, &err) < 0)
                die("open", &err);
        run_load(&l);
        run_checkpoint(&l);
        store_close(l.s);
        if (dir_remove(dir, &err) < 0)
                die("clean up", &err);
        return 0;
}
