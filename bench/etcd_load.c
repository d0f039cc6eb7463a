/* bench/etcd_load.c: how long a server that starts on etcd needs to read everything.
 *
 *      etcd_load [RECORDS [BYTES [RUNS]]]      50000, 100, 5: an etcd of its own on loopback,
 *      filled, then loaded so many times
 *
 * prints for each run: records= bytes= seconds= etcd_cpu=
 */
#include "../src/store/etcd_testkit.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PER_COMMIT 500

static void die(const struct err *err)
{
        fprintf(stderr, "error: %s\n", err_line(err));
        exit(1);
}

static void fill(struct store *s, uint64_t n, size_t bytes)
{
        static char keys[PER_COMMIT][40];
        char *value = mem_must(bytes + 1);
        struct err err = { 0 };
        memset(value, 'v', bytes);
        for (uint64_t i = 0, head = 0; i < n; head++) {
                struct store_record records[PER_COMMIT];
                size_t k = 0;
                for (size_t total = 0; k < PER_COMMIT && i < n && total <= 512 << 10;
                     k++, i++, total += bytes) {
                        snprintf(keys[k], sizeof(keys[k]), "/k/tenant/workload-%08llu",
                                 (unsigned long long)i);
                        records[k] = (struct store_record){ keys[k], value, bytes };
                }
                struct store_event event = { head + 1, "e", 1 };
                if (store_commit(s, &(struct store_batch){ head, head + 1, &event, 1, records, k },
                                 &err) < 0)
                        die(&err);
        }
        mem_free(value);
}

static double cpu_seconds(pid_t pid)
{
        unsigned long user = 0, kernel = 0;
        FILE *f = fopen(fmt("/proc/%d/stat", (int)pid), "r");
        if (f && fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                        &kernel) != 2)
                user = kernel = 0;
        if (f)
                fclose(f);
        return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

struct sum {
        uint64_t records, bytes;
};

static int add(void *ctx, const struct store_record *r, struct err *err _unused_)
{
        struct sum *sum = ctx;
        sum->records++;
        sum->bytes += r->len;
        return 0;
}

int main(int argc, char **argv)
{
        uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 50000;
        size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
        int runs = argc > 3 ? atoi(argv[3]) : 5;
        struct etcd_process etcd = { 0 };
        struct store *s = NULL;
        struct err err = { 0 };
        etcd_process_start(&etcd);
        if (store_open(fmt("etcd://127.0.0.1:%d/bench", etcd.port), true, &s, &err) < 0 ||
            store_lead(s, "bench", 60, 5000, &err) < 0)
                die(&err);
        fill(s, n, bytes);
        for (int i = 0; i < runs; i++) {
                struct sum sum = { 0 };
                uint64_t head;
                double cpu = cpu_seconds(etcd.pid);
                int64_t from_ns = clock_mono_ns();
                if (store_load(s, add, &sum, &head, &err) < 0)
                        die(&err);
                printf("records=%llu bytes=%llu seconds=%.3f etcd_cpu=%.2f\n",
                       (unsigned long long)sum.records, (unsigned long long)sum.bytes,
                       (double)(clock_mono_ns() - from_ns) / 1e9, cpu_seconds(etcd.pid) - cpu);
        }
        store_close(s);
        etcd_process_clean(&etcd);
        return 0;
}
