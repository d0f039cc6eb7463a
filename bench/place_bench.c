/* bench/place_bench.c: placement decisions per second, through core_step with the ledger updated,
 * against a plain scan-and-sort of the same nodes.
 *
 * Both see the same nodes and the same workloads (three resources, a node_selector on every tenth);
 * every choice is compared. The naive one does what a straightforward scheduler does: collect the
 * nodes that fit, sort them by utilisation and id, take the first.
 *
 *   place_bench NODES DECISIONS NAIVE_DECISIONS [FILL]
 *
 * FILL (percent): nodes of nearly one size, each filled that far by one workload before the
 * measurement starts, so that most of them are too full for most workloads. "at_FILL" is then part
 * of the figure's name. decide() is what `bench/run place` counts the instructions of.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/core.h"
#include "model/validate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ZONES 8
#define NODE_CPU 32000 /* with FILL */
#define NODE_MEM_MB 131072

struct plain_node {
        char id[16];
        int zone;
        int64_t cpu, mem, disk, cpu_total, mem_total, disk_total;
        uint64_t utilisation;
};
struct ask {
        int64_t cpu, mem, disk;
        int zone;
};

/* CPU time of this process, not time on the wall: both contenders only compute, and what else runs
 * on the machine is not theirs. */
static int64_t cpu_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct plain_node *nodes;
static uint32_t n_nodes;

static uint64_t plain_utilisation(const struct plain_node *n)
{
        uint64_t one = UINT64_C(1) << 30;
        return (uint64_t)(n->cpu_total - n->cpu) * one / (uint64_t)n->cpu_total +
               (uint64_t)((unsigned __int128)(n->mem_total - n->mem) * one /
                          (uint64_t)n->mem_total);
}

static int by_utilisation(const void *a, const void *b)
{
        const struct plain_node *x = *(struct plain_node *const *)a,
                                *y = *(struct plain_node *const *)b;
        return x->utilisation != y->utilisation ? (x->utilisation < y->utilisation ? -1 : 1)
                                                : strcmp(x->id, y->id);
}

static struct plain_node *plain_place(const struct ask *k)
{
        static struct plain_node **fit;
        uint32_t n = 0;
        if (!fit)
                fit = mem_must(n_nodes * sizeof(*fit));
        for (uint32_t i = 0; i < n_nodes; i++)
                if (nodes[i].cpu >= k->cpu && nodes[i].mem >= k->mem && nodes[i].disk >= k->disk &&
                    (k->zone < 0 || nodes[i].zone == k->zone))
                        fit[n++] = &nodes[i];
        if (!n)
                return NULL;
        qsort(fit, n, sizeof(*fit), by_utilisation);
        return fit[0];
}

static void plain_take(struct plain_node *n, const struct ask *k)
{
        n->cpu -= k->cpu;
        n->mem -= k->mem;
        n->disk -= k->disk;
        n->utilisation = plain_utilisation(n);
}

static void join(struct core *c, uint32_t i)
{
        static Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process };
        Pb__Hello h = PB__HELLO__INIT;
        Pb__Hello__LabelsEntry zone = PB__HELLO__LABELS_ENTRY__INIT, *labels[] = { &zone };
        char text[8];
        snprintf(text, sizeof(text), "z%d", nodes[i].zone);
        zone.key = "zone";
        zone.value = text;
        h.node_id = nodes[i].id;
        h.cpu = nodes[i].cpu_total;
        h.memory_mb = nodes[i].mem_total >> 20;
        h.disk_gb = nodes[i].disk_total >> 30;
        h.labels = labels;
        h.n_labels = 1;
        h.supported_workload_types = types;
        h.n_supported_workload_types = 1;
        struct input in = { .kind = INPUT_HELLO, .now_ms = 1000, .session = i + 1, .msg = &h.base };
        core_step(c, &in);
}

static void drop_batches(struct core *c)
{
        struct core_batch *b;
        while ((b = core_cut(c)))
                core_batch_free(b);
}

static void pick(struct rng *r, uint32_t i, struct ask *k)
{
        k->cpu = (int64_t)(100 + rng_below(r, 8) * 100);
        k->mem = (int64_t)(64 + rng_below(r, 16) * 64) << 20;
        k->disk = (int64_t)rng_below(r, 3) << 30;
        /* every zone once at the start: the first use of a label costs a look at every node, which
         * is no part of a decision */
        k->zone = i < ZONES ? (int)i : i % 10 == 0 ? (int)rng_below(r, ZONES) : -1;
}

/* Requests are made before the clock runs: what is measured is deciding, not parsing. */
static Pb__ApplyWorkloadRequest *request(struct arena *a, uint32_t i, const struct ask *k)
{
        Pb__ApplyWorkloadRequest *req = arena_new(a, Pb__ApplyWorkloadRequest);
        Pb__Workload *w = arena_new(a, Pb__Workload);
        Pb__Spec *spec = arena_new(a, Pb__Spec);
        Pb__Resources *res = arena_new(a, Pb__Resources);
        struct err err;
        pb__apply_workload_request__init(req);
        pb__workload__init(w);
        pb__spec__init(spec);
        pb__resources__init(res);
        w->id = arena_printf(a, "w-%07u", i);
        w->type = PB__WORKLOAD_TYPE__E__process;
        spec->command = arena_new_n(a, char *, 1);
        spec->command[spec->n_command++] = "true";
        res->cpu = k->cpu;
        res->memory_mb = k->mem >> 20;
        res->disk_gb = k->disk >> 30;
        w->spec = spec;
        w->resources = res;
        if (k->zone >= 0) {
                Pb__Workload__NodeSelectorEntry *s = arena_new(a, Pb__Workload__NodeSelectorEntry);
                pb__workload__node_selector_entry__init(s);
                s->key = "zone";
                s->value = arena_printf(a, "z%d", k->zone);
                w->node_selector = arena_new_n(a, Pb__Workload__NodeSelectorEntry *, 1);
                w->node_selector[w->n_node_selector++] = s;
        }
        if (workload_normalise(a, w, &err) < 0) {
                fprintf(stderr, "%s\n", err_line(&err));
                exit(1);
        }
        req->workload = w;
        return req;
}

/* One workload per node that leaves 100 - fill percent or a little more of its cpu and memory. */
static void fill_nodes(struct core *c, struct arena *a, uint32_t fill)
{
        for (uint32_t i = 0; i < n_nodes; i++) {
                struct ask k = { .cpu = (int64_t)NODE_CPU * fill / 100,
                                 .mem = ((int64_t)NODE_MEM_MB * fill / 100) << 20,
                                 .zone = -1 };
                Pb__ApplyWorkloadRequest *req = request(a, 10000000 + i, &k);
                struct input apply = { .kind = INPUT_APPLY, .now_ms = 1000, .msg = &req->base };
                core_step(c, &apply);
                /* which of these equal workloads a node took does not matter, and none has room for
                 * two */
                plain_take(&nodes[i], &k);
                if ((i & 255) == 0)
                        drop_batches(c);
        }
        drop_batches(c);
}

static const char *chosen(struct core *c, struct arena *a, const char *id)
{
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = (char *)id;
        struct input in = {
                .kind = INPUT_GET_WORKLOAD, .now_ms = 1000, .msg = &ref.base, .reply = 1
        };
        core_step(c, &in);
        struct core_batch *b = core_cut(c);
        struct arena_allocator alloc = arena_allocator(a);
        Pb__Workload *w = pb__workload__unpack((ProtobufCAllocator *)&alloc, b->replies[0].len,
                                               b->replies[0].data);
        core_batch_free(b);
        return w->assigned_node;
}

/* What is measured. Not inlined: callgrind counts from its entry to its end. */
__attribute__((noinline)) static void decide(struct core *c, Pb__ApplyWorkloadRequest **reqs,
                                             uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                struct input apply = { .kind = INPUT_APPLY, .now_ms = 1000, .msg = &reqs[i]->base };
                core_step(c, &apply);
                if ((i & 255) == 0)
                        drop_batches(c);
        }
}

int main(int argc, char **argv)
{
        n_nodes = argc > 1 ? (uint32_t)atoi(argv[1]) : 10000;
        uint32_t fill = argc > 4 ? (uint32_t)atoi(argv[4]) : 0;
        uint32_t decisions = argc > 2 ? (uint32_t)atoi(argv[2]) : 20000,
                 naive = argc > 3 ? (uint32_t)atoi(argv[3]) : 200;
        struct rng r;
        struct arena a = ARENA_INIT;
        struct core_options opt;
        rng_seed(&r, 42);
        core_options_default(&opt);
        struct core *c = core_create(&opt);
        struct input in = { .kind = INPUT_START, .now_ms = 1000 };
        core_step(c, &in);
        nodes = mem_must(n_nodes * sizeof(*nodes));
        for (uint32_t i = 0; i < n_nodes; i++) {
                struct plain_node *n = &nodes[i];
                snprintf(n->id, sizeof(n->id), "n-%07u", (i * 7919u) % n_nodes);
                n->zone = (int)rng_below(&r, ZONES);
                n->cpu = n->cpu_total = (int64_t)(4 + rng_below(&r, 60)) * 1000;
                n->mem = n->mem_total = (int64_t)(8 + rng_below(&r, 120)) << 30;
                if (fill) {
                        n->cpu = n->cpu_total = NODE_CPU + (int64_t)rng_below(&r, 300);
                        n->mem = n->mem_total = (int64_t)(NODE_MEM_MB + rng_below(&r, 1000)) << 20;
                }
                n->disk = n->disk_total = (int64_t)(100 + rng_below(&r, 900)) << 30;
                join(c, i);
        }
        drop_batches(c);
        if (fill)
                fill_nodes(c, &a, fill);
        uint32_t total = decisions + naive;
        struct ask *asks = mem_must(total * sizeof(*asks));
        Pb__ApplyWorkloadRequest **reqs = mem_must(total * sizeof(void *));
        for (uint32_t i = 0; i < total; i++) {
                pick(&r, i, &asks[i]);
                reqs[i] = request(&a, i, &asks[i]);
        }
        /* first the compared ones: berth decides, then the naive one, and both must agree */
        int64_t naive_ns = 0, ours_ns = 0;
        for (uint32_t i = 0; i < naive; i++) {
                struct input apply = { .kind = INPUT_APPLY, .now_ms = 1000, .msg = &reqs[i]->base };
                int64_t t0 = cpu_ns();
                struct plain_node *n = plain_place(&asks[i]);
                naive_ns += cpu_ns() - t0;
                core_step(c, &apply);
                drop_batches(c);
                const char *ours = chosen(c, &a, reqs[i]->workload->id);
                if (strcmp(n ? n->id : "", ours) != 0) {
                        fprintf(stderr, "error: the choices differ at decision %u: %s, naive %s\n",
                                i, ours, n ? n->id : "none");
                        return 1;
                }
                if (n)
                        plain_take(n, &asks[i]);
        }
        int64_t t0 = cpu_ns();
        decide(c, reqs + naive, decisions);
        ours_ns = cpu_ns() - t0;
        double ours = (double)ours_ns / (decisions ? decisions : 1),
               theirs = (double)naive_ns / (naive ? naive : 1);
        struct core_stats stats;
        core_stats(c, &stats);
        const char *at = fill ? arena_printf(&a, "_at_%u", fill) : "";
        printf("place decision_%u%s=%.0f unit=ns ratio=%.1f against=scan_and_sort naive=%.0f "
               "placed=%u of=%u\n",
               n_nodes, at, ours, theirs / ours, theirs, stats.workloads - stats.pending,
               stats.workloads);
        drop_batches(c);
        core_destroy(c);
        arena_fini(&a);
        mem_free(nodes);
        mem_free(asks);
        mem_free(reqs);
        return 0;
}
