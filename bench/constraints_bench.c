/* bench/constraints_bench.c: placement decisions per second with required constraints, against
 * plain ones in the same run.
 *
 *   constraints_bench NODES DECISIONS APPS
 *
 * Every kind gets a fresh cluster of the same nodes (8 zones, racks of 20) and the same workloads:
 * DECISIONS units of APPS applications in turn. ratio is the rate of the kind to the plain rate.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/core.h"
#include "model/validate.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum kind { PLAIN, AFFINITY, ANTI_AFFINITY, SPREAD, BINPACK, KINDS };
static const char *const names[KINDS] = { "plain", "affinity", "anti_affinity", "spread",
                                          "binpack" };

static int64_t cpu_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void drop_batches(struct core *c)
{
        struct core_batch *b;
        while ((b = core_cut(c)))
                core_batch_free(b);
}

static void join(struct core *c, struct rng *r, uint32_t i)
{
        static Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process };
        Pb__Hello h = PB__HELLO__INIT;
        Pb__Hello__LabelsEntry rack = PB__HELLO__LABELS_ENTRY__INIT,
                               zone = PB__HELLO__LABELS_ENTRY__INIT, *labels[] = { &rack, &zone };
        char id[16], in_rack[16], in_zone[16];
        snprintf(id, sizeof(id), "n-%06u", i);
        snprintf(in_rack, sizeof(in_rack), "r%u", i / 20);
        snprintf(in_zone, sizeof(in_zone), "z%u", i / 20 % 8);
        rack.key = "rack";
        rack.value = in_rack;
        zone.key = "zone";
        zone.value = in_zone;
        h.node_id = id;
        h.cpu = (int64_t)(16 + rng_below(r, 48)) * 1000;
        h.memory_mb = (int64_t)(32 + rng_below(r, 96)) * 1024;
        h.disk_gb = 1000;
        h.labels = labels;
        h.n_labels = 2;
        h.supported_workload_types = types;
        h.n_supported_workload_types = 1;
        struct input in = { .kind = INPUT_HELLO, .now_ms = 1000, .session = i + 1, .msg = &h.base };
        core_step(c, &in);
}

static void constrain(struct arena *a, Pb__Workload *w, enum kind kind, const char *app)
{
        Pb__Affinity *near = arena_new(a, Pb__Affinity);
        Pb__Affinity__MatchEntry *e = arena_new(a, Pb__Affinity__MatchEntry);
        Pb__Spread *s = arena_new(a, Pb__Spread);
        pb__affinity__init(near);
        pb__affinity__match_entry__init(e);
        pb__spread__init(s);
        e->key = "app";
        e->value = (char *)app;
        near->match = arena_new_n(a, Pb__Affinity__MatchEntry *, 1);
        near->match[near->n_match++] = e;
        if (kind == AFFINITY) {
                near->over = "zone";
                w->affinity = arena_new_n(a, Pb__Affinity *, 1);
                w->affinity[w->n_affinity++] = near;
        } else if (kind == ANTI_AFFINITY) {
                w->anti_affinity = arena_new_n(a, Pb__Affinity *, 1);
                w->anti_affinity[w->n_anti_affinity++] = near;
        } else if (kind == SPREAD) {
                s->over = "zone";
                s->max_skew = 1;
                w->spread = arena_new_n(a, Pb__Spread *, 1);
                w->spread[w->n_spread++] = s;
        } else if (kind == BINPACK)
                w->strategy = PB__STRATEGY__E__binpack;
}

static Pb__ApplyWorkloadRequest *request(struct arena *a, struct rng *r, uint32_t i, uint32_t apps,
                                         enum kind kind)
{
        Pb__ApplyWorkloadRequest *req = arena_new(a, Pb__ApplyWorkloadRequest);
        Pb__Workload *w = arena_new(a, Pb__Workload);
        struct err err;
        pb__apply_workload_request__init(req);
        pb__workload__init(w);
        w->spec = arena_new(a, Pb__Spec);
        w->resources = arena_new(a, Pb__Resources);
        pb__spec__init(w->spec);
        pb__resources__init(w->resources);
        w->id = arena_printf(a, "w-%07u", i);
        w->type = PB__WORKLOAD_TYPE__E__process;
        w->spec->command = arena_new_n(a, char *, 1);
        w->spec->command[w->spec->n_command++] = "true";
        w->resources->cpu = (int64_t)(1 + rng_below(r, 4)) * 100;
        w->resources->memory_mb = (int64_t)(1 + rng_below(r, 4)) * 128;
        char *app = arena_printf(a, "app-%u", i % apps);
        Pb__Workload__LabelsEntry *l = arena_new(a, Pb__Workload__LabelsEntry);
        pb__workload__labels_entry__init(l);
        l->key = "app";
        l->value = app;
        w->labels = arena_new_n(a, Pb__Workload__LabelsEntry *, 1);
        w->labels[w->n_labels++] = l;
        constrain(a, w, kind, app);
        if (workload_normalise(a, w, &err) < 0) {
                fprintf(stderr, "%s\n", err_line(&err));
                exit(1);
        }
        req->workload = w;
        return req;
}

static double measure(enum kind kind, uint32_t nodes, uint32_t decisions, uint32_t apps,
                      uint32_t *ret_placed)
{
        struct rng r;
        struct arena a = ARENA_INIT;
        struct core_options opt;
        rng_seed(&r, 42);
        core_options_default(&opt);
        struct core *c = core_create(&opt);
        struct input in = { .kind = INPUT_START, .now_ms = 1000 };
        core_step(c, &in);
        for (uint32_t i = 0; i < nodes; i++)
                join(c, &r, i);
        drop_batches(c);
        Pb__ApplyWorkloadRequest **reqs = mem_must(decisions * sizeof(void *));
        for (uint32_t i = 0; i < decisions; i++)
                reqs[i] = request(&a, &r, i, apps, kind);
        int64_t t0 = cpu_ns();
        for (uint32_t i = 0; i < decisions; i++) {
                struct input apply = { .kind = INPUT_APPLY, .now_ms = 1000, .msg = &reqs[i]->base };
                core_step(c, &apply);
                if ((i & 255) == 0)
                        drop_batches(c);
        }
        double ns = (double)(cpu_ns() - t0) / decisions;
        struct core_stats stats;
        core_stats(c, &stats);
        *ret_placed = stats.workloads - stats.pending;
        drop_batches(c);
        core_destroy(c);
        arena_fini(&a);
        mem_free(reqs);
        return ns;
}

int main(int argc, char **argv)
{
        uint32_t nodes = argc > 1 ? (uint32_t)atoi(argv[1]) : 5000,
                 decisions = argc > 2 ? (uint32_t)atoi(argv[2]) : 20000;
        uint32_t apps = argc > 3 ? (uint32_t)atoi(argv[3]) : 50, placed;
        double plain = 0;
        for (enum kind k = PLAIN; k < KINDS; k++) {
                double ns = measure(k, nodes, decisions, apps, &placed);
                plain = k == PLAIN ? ns : plain;
                printf("constraints %s_%u=%.0f unit=ns ratio=%.3f against=plain rate=%.0f "
                       "placed=%u of=%u\n",
                       names[k], nodes, ns, plain / ns, 1e9 / ns, placed, decisions);
        }
        return 0;
}
