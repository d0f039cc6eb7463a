/* bench/json_bench.c: how long one workload record takes as JSON and packed, each way, beside
 * jansson's parse of the same text.
 *
 *      json_bench [RECORDS]     default 100,000
 *
 * Prints nanoseconds of CPU time per record and the ratio to jansson. Nothing is judged here:
 * numbers depend on the machine.
 */
#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/json.h"
#include "model/json_oracle.h"
#include "model/pb.h"
#include "records.pb-c.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char record[] =
    "{\"id\":\"web-frontend-%06u\",\"type\":\"process\",\"revision_id\":\"rev-4810f3404229\","
    "\"desired_state\":\"Running\",\"assigned_"
    "node\":\"node-0042\","
    "\"spec\":{\"command\":[\"/usr/bin/"
    "server\",\"--port\",\"8080\",\"--verbose\"],\"env\":{\"LOG_LEVEL\":\"info\",\"PORT\":\"8080\"}"
    ",\"workdir\":\"/"
    "srv\",\"log_max_kb\":10240},"
    "\"resources\":{\"cpu\":0.25,\"memory_mb\":256,\"disk_gb\":1},\"retry\":{\"max_attempts\":5,"
    "\"base_seconds\":5,\"cap_seconds\":120},"
    "\"status\":{\"actual_state\":\"Running\",\"last_updated\":\"2026-02-17T00:00:00.123Z\","
    "\"phase\":\"Running\",\"started_at\":\"2026-02-"
    "17T00:00:00Z\"},"
    "\"metadata\":{\"created_at\":\"2026-02-16T23:59:59.5Z\",\"last_action\":\"Apply\",\"last_"
    "action_at\":\"2026-02-17T00:00:00Z\"},"
    "\"labels\":{\"app\":\"web\",\"tier\":\"frontend\"},\"node_selector\":{\"zone\":\"a\"},"
    "\"restart\":\"always\",\"stop_grace_seconds\":"
    "10,"
    "\"placement\":{\"node_id\":\"node-0042\",\"score\":412345,\"candidates\":37,\"placed_at\":"
    "\"2026-02-17T00:00:00Z\"},\"token\":{"
    "\"epoch\":1,\"seq\":123456},\"resource_version\":123460}";

static int64_t cpu_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct texts {
        struct str *at;
        unsigned n;
        size_t bytes;
};

static double report(const char *what, const struct texts *t, int64_t start_ns, double jansson_ns)
{
        double ns = (double)(cpu_ns() - start_ns) / t->n;

        printf("%-14s %8.0f ns/record", what, ns);
        if (jansson_ns > 0)
                printf("   %5.1f x faster than jansson's parse", jansson_ns / ns);
        printf("\n");
        return ns;
}

static double bench_jansson(const struct texts *json)
{
        int64_t start = cpu_ns();

        for (unsigned i = 0; i < json->n; i++)
                must(oracle_read(json->at[i].buf, json->at[i].len, NULL), "jansson reads it");
        return report("jansson parse", json, start, 0);
}

static void bench_read(const struct texts *json, ProtobufCMessage **messages, struct arena *arena,
                       double jansson_ns)
{
        struct arena scratch = ARENA_INIT;
        ProtobufCMessage *m;
        int64_t start = cpu_ns();

        for (unsigned i = 0; i < json->n; i++) {
                must(json_read(&pb__workload__descriptor, json->at[i].buf, json->at[i].len,
                               SIZE_MAX, 0, &scratch, &m, NULL) == 0,
                     "it reads");
                arena_reset(&scratch);
        }
        report("json read", json, start, jansson_ns);
        start = cpu_ns();
        for (unsigned i = 0; i < json->n; i++)
                must(json_read(&pb__workload__descriptor, json->at[i].buf, json->at[i].len,
                               SIZE_MAX, 0, arena, &messages[i], NULL) == 0,
                     "it reads");
        report("json read all", json, start, jansson_ns);
        printf("%-14s %8.3f s for %u records of %zu bytes\n", "", (double)(cpu_ns() - start) / 1e9,
               json->n, json->bytes / json->n);
        arena_fini(&scratch);
}

static void bench_packed(const struct texts *json, ProtobufCMessage **messages, double jansson_ns)
{
        struct texts packed = { .at = mem_must(json->n * sizeof(struct str)), .n = json->n };
        struct arena scratch = ARENA_INIT;
        struct str out = STR_INIT;
        ProtobufCMessage *m;
        int64_t start = cpu_ns();

        for (unsigned i = 0; i < json->n; i++) {
                str_clear(&out);
                json_write(&out, messages[i], 0);
        }
        report("json write", json, start, jansson_ns);
        /* the memory first, so that only the work is measured */
        for (unsigned i = 0; i < json->n; i++)
                str_reserve(&packed.at[i], 2048);
        start = cpu_ns();
        for (unsigned i = 0; i < json->n; i++)
                pb_pack(&packed.at[i], messages[i]);
        report("pack", json, start, jansson_ns);
        start = cpu_ns();
        for (unsigned i = 0; i < json->n; i++) {
                must(pb_unpack_own(&pb__workload__descriptor, packed.at[i].buf, packed.at[i].len,
                                   &scratch, &m, NULL) == 0,
                     "it unpacks");
                arena_reset(&scratch);
        }
        report("unpack own", json, start, jansson_ns);
        start = cpu_ns();
        for (unsigned i = 0; i < json->n; i++) {
                must(pb_unpack(&pb__workload__descriptor, packed.at[i].buf, packed.at[i].len,
                               &scratch, &m, NULL) == 0,
                     "it unpacks");
                arena_reset(&scratch);
        }
        report("unpack checked", json, start, jansson_ns);
        start = cpu_ns();
        for (unsigned i = 0; i < json->n; i++) {
                str_clear(&out);
                must(json_write_packed(&out, &pb__workload__descriptor, packed.at[i].buf,
                                       packed.at[i].len, JSON_ZEROS),
                     "it is written");
        }
        report("packed to json", json, start, jansson_ns);
        for (unsigned i = 0; i < json->n; i++)
                str_fini(&packed.at[i]);
        mem_free(packed.at);
        str_fini(&out);
        arena_fini(&scratch);
}

int main(int argc, char **argv)
{
        int64_t n = 100000;
        struct texts json = { 0 };
        struct arena arena = ARENA_INIT;

        if (argc > 2 || (argc == 2 && (str_parse_i64(argv[1], &n) < 0 || n < 1 || n > 1000000))) {
                fprintf(stderr, "usage: json_bench [RECORDS]\n");
                return 2;
        }
        json.n = (unsigned)n;
        json.at = mem_must(json.n * sizeof(struct str));
        for (unsigned i = 0; i < json.n; i++) {
                char *mark;
                str_adds(&json.at[i], record);
                mark = strstr(json.at[i].buf, "%06u");
                memcpy(mark, fmt("%04u", i % 10000), 4);
                json.bytes += json.at[i].len;
        }
        ProtobufCMessage **messages = mem_must(json.n * sizeof(*messages));
        double jansson_ns = bench_jansson(&json);
        bench_read(&json, messages, &arena, jansson_ns);
        bench_packed(&json, messages, jansson_ns);
        for (unsigned i = 0; i < json.n; i++)
                str_fini(&json.at[i]);
        mem_free(json.at);
        mem_free(messages);
        arena_fini(&arena);
        return 0;
}
