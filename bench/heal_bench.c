/* bench/heal_bench.c: what it costs when all nodes fall silent and are heard again (C11).
 *
 *   heal_bench NODES UNITS
 *
 * NODES in three zones, UNITS of them hold one unit each. All are silent for 200 s, while what is
 * due is done; then all are heard, each with the list of what it runs, and two more minutes pass.
 * Only the core is measured: steps and the batches that come of them, not the store. Printed: the
 * CPU time per node of either half, and the longest single step.
 */
#include "base/arena.h"
#include "base/mem.h"
#include "core/core.h"
#include "model/validate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define START_MS INT64_C(1767225600000)
#define BEAT_MS 10000

struct bench {
        struct core *c;
        uint32_t nodes;
        int64_t now_ms, longest_ns;
        uint64_t steps, events;
        uint64_t *tokens; /* of the unit on each node; 0: none */
        char (*units)[16];
};

static int64_t cpu_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What agents are told is kept: they say it again when they come back. */
static void take(struct bench *b, const struct core_batch *batch)
{
        b->events += batch->commit.n_events;
        for (size_t i = 0; i < batch->n_effects; i++) {
                const struct effect *e = &batch->effects[i];
                if (e->kind != EFFECT_PLAN_UNIT || !e->session)
                        continue;
                Pb__PlanUnit *u = pb__plan_unit__unpack(NULL, e->len, e->data);
                uint32_t n = (uint32_t)((e->session - 1) % b->nodes);
                b->tokens[n] = u->token->seq;
                snprintf(b->units[n], sizeof(b->units[n]), "%s", u->unit_id);
                pb__plan_unit__free_unpacked(u, NULL);
        }
}

static void step(struct bench *b, struct input *in)
{
        struct core_batch *batches[64];
        size_t n = 0;
        in->now_ms = b->now_ms;
        int64_t t0 = cpu_ns();
        core_step(b->c, in);
        while (n < 64 && (batches[n] = core_cut(b->c)))
                n++;
        int64_t took = cpu_ns() - t0;
        b->longest_ns = took > b->longest_ns ? took : b->longest_ns;
        b->steps++;
        for (size_t i = 0; i < n; i++) {
                take(b, batches[i]);
                core_batch_free(batches[i]);
        }
}

static void settle(struct bench *b)
{
        while (core_next_ms(b->c) <= b->now_ms) {
                struct input in = { .kind = INPUT_TICK };
                step(b, &in);
        }
}

/* Every deadline on the way is met at its time. */
static void pass(struct bench *b, int64_t ms)
{
        int64_t end = b->now_ms + ms;
        for (;;) {
                settle(b);
                int64_t next = core_next_ms(b->c);
                if (next > end)
                        break;
                b->now_ms = next;
        }
        b->now_ms = end;
        settle(b);
}

static void hello(struct bench *b, uint32_t i, uint64_t round)
{
        static Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process };
        Pb__Hello h = PB__HELLO__INIT;
        Pb__Hello__LabelsEntry zone = PB__HELLO__LABELS_ENTRY__INIT, *labels[] = { &zone };
        Pb__Token token = PB__TOKEN__INIT;
        Pb__UnitStatus unit = PB__UNIT_STATUS__INIT, *units[] = { &unit };
        char id[16], in_zone[8];
        snprintf(id, sizeof(id), "n-%06u", i);
        snprintf(in_zone, sizeof(in_zone), "z%u", i % 3);
        zone.key = "zone";
        zone.value = in_zone;
        h.node_id = id;
        h.cpu = 16000;
        h.memory_mb = 65536;
        h.disk_gb = 1000;
        h.labels = labels;
        h.n_labels = 1;
        h.supported_workload_types = types;
        h.n_supported_workload_types = 1;
        if (b->tokens[i]) {
                token.epoch = 1;
                token.seq = b->tokens[i];
                unit.unit_id = b->units[i];
                unit.token = &token;
                unit.state = PB__ACTUAL_STATE__E__Running;
                unit.started_at = b->now_ms;
                h.units = units;
                h.n_units = 1;
        }
        struct input in = { .kind = INPUT_HELLO,
                            .session = round * b->nodes + i + 1,
                            .msg = &h.base };
        step(b, &in);
}

static void beat(struct bench *b, uint32_t i, uint64_t round)
{
        Pb__Heartbeat m = PB__HEARTBEAT__INIT;
        struct input in = { .kind = INPUT_HEARTBEAT,
                            .session = round * b->nodes + i + 1,
                            .msg = &m.base };
        step(b, &in);
}

/* All heard, each at its own moment of the interval. */
static void live(struct bench *b, int64_t ms, uint64_t round)
{
        for (int64_t end = b->now_ms + ms; b->now_ms < end;) {
                uint32_t done = 0;
                for (int64_t at = 0; at < BEAT_MS; at += 100) {
                        for (; done < (uint64_t)b->nodes * (uint64_t)(at + 100) / BEAT_MS; done++)
                                beat(b, done, round);
                        pass(b, 100);
                }
        }
}

static void apply(struct bench *b, uint32_t units)
{
        struct arena a = ARENA_INIT;
        for (uint32_t i = 0; i < units; i++) {
                struct err err = { 0 };
                Pb__Workload w = PB__WORKLOAD__INIT;
                Pb__Spec spec = PB__SPEC__INIT;
                char *command[] = { "x" };
                Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
                w.id = arena_printf(&a, "w-%u", i);
                w.type = PB__WORKLOAD_TYPE__E__process;
                spec.command = command;
                spec.n_command = 1;
                w.spec = &spec;
                if (workload_normalise(&a, &w, &err) < 0) {
                        fprintf(stderr, "error: %s\n", err_line(&err));
                        exit(1);
                }
                req.workload = &w;
                struct input in = { .kind = INPUT_APPLY, .reply = i + 1, .msg = &req.base };
                step(b, &in);
                arena_reset(&a);
        }
        arena_fini(&a);
        settle(b);
}

int main(int argc, char **argv)
{
        struct bench b = { .now_ms = START_MS };
        uint32_t units = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
        b.nodes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
        if (!b.nodes || b.nodes > 1000000 || units > b.nodes) {
                fprintf(stderr, "usage: heal_bench NODES UNITS\n");
                return 2;
        }
        struct core_options opt;
        core_options_default(&opt);
        b.tokens = mem_must(b.nodes * sizeof(*b.tokens));
        b.units = mem_must(b.nodes * sizeof(*b.units));
        b.c = core_create(&opt);
        struct input start = { .kind = INPUT_START };
        step(&b, &start);
        for (uint32_t i = 0; i < b.nodes; i++)
                hello(&b, i, 0);
        apply(&b, units);
        live(&b, 2 * BEAT_MS, 0);

        b.longest_ns = 0;
        b.steps = b.events = 0;
        int64_t t0 = cpu_ns();
        pass(&b, 200000);
        int64_t silent_ns = cpu_ns() - t0, silent_longest = b.longest_ns;
        uint64_t silent_events = b.events;
        struct core_stats s;
        core_stats(b.c, &s);
        if (!s.braking && units) {
                fprintf(stderr, "error: nothing is held\n");
                return 1;
        }

        b.longest_ns = 0;
        b.events = 0;
        t0 = cpu_ns();
        for (uint32_t i = 0; i < b.nodes; i++) {
                hello(&b, i, 1);
                if (i % 64 == 63) /* as a ring does between its turns */
                        settle(&b);
        }
        live(&b, 120000, 1);
        int64_t heal_ns = cpu_ns() - t0;
        core_stats(b.c, &s);
        if (s.braking || s.evictions || s.nodes_ready != b.nodes) {
                fprintf(stderr, "error: %u of %u nodes are ready, %llu units left\n", s.nodes_ready,
                        b.nodes, (unsigned long long)s.evictions);
                return 1;
        }
        printf("heal nodes=%u silence_us_per_node=%.2f heal_us_per_node=%.2f "
               "longest_silence_ms=%.2f longest_heal_ms=%.2f "
               "silence_events=%llu heal_events=%llu\n",
               b.nodes, (double)silent_ns / 1000 / b.nodes, (double)heal_ns / 1000 / b.nodes,
               (double)silent_longest / 1e6, (double)b.longest_ns / 1e6,
               (unsigned long long)silent_events, (unsigned long long)b.events);
        core_destroy(b.c);
        mem_free(b.tokens);
        mem_free(b.units);
        return 0;
}
