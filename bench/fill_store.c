/* bench/fill_store.c: makes a store that looks like a cluster's: nodes that registered, workloads
 * that were placed and run on them.
 *
 *   fill_store STORE NODES WORKLOADS [FINISHED]
 *
 * FINISHED workloads are jobs that have run to their end, on four nodes that run containers only:
 * what else is in the store does not meet them. Everything goes through the core and the store's
 * commits, as in a server; only the agents are made up.
 */
#include "base/arena.h"
#include "base/mem.h"
#include "core/core.h"
#include "model/validate.h"
#include "store/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct core *core;
static struct store *store;
static int64_t now = 1767225600000;

static void die(const struct err *err)
{
        fprintf(stderr, "error: %s\n", err_line(err));
        exit(1);
}

/* Commits what was decided; answers every order to start with "it runs", or "it has ended" for
 * jobs. */
static void settle_down(void)
{
        struct core_batch *b;
        struct err err;
        while ((b = core_cut(core))) {
                if (b->commit.n_events && store_commit(store, &b->commit, &err) < 0)
                        die(&err);
                for (size_t i = 0; i < b->n_effects; i++) {
                        if (b->effects[i].kind != EFFECT_PLAN_UNIT)
                                continue;
                        Pb__PlanUnit *u =
                            pb__plan_unit__unpack(NULL, b->effects[i].len, b->effects[i].data);
                        Pb__UnitStatus status = PB__UNIT_STATUS__INIT, *list[] = { &status };
                        Pb__UnitReport report = PB__UNIT_REPORT__INIT;
                        status.unit_id = u->unit_id;
                        status.token = u->token;
                        status.revision_id = u->workload->revision_id;
                        Pb__IntValue zero = PB__INT_VALUE__INIT;
                        bool ends = u->workload->restart == PB__RESTART__E__never;
                        status.state =
                            ends ? PB__ACTUAL_STATE__E__Stopped : PB__ACTUAL_STATE__E__Running;
                        status.exit_code = ends ? &zero : NULL;
                        status.reason = ends ? PB__REASON__E__exited : PB__REASON__E__none;
                        status.started_at = now;
                        status.finished_at = ends ? now : 0;
                        report.units = list;
                        report.n_units = 1;
                        struct input in = { .kind = INPUT_UNITS,
                                            .now_ms = now,
                                            .session = b->effects[i].session,
                                            .msg = &report.base };
                        core_step(core, &in);
                        pb__plan_unit__free_unpacked(u, NULL);
                }
                core_batch_free(b);
        }
}

static void join(const char *name, uint32_t i, uint64_t session, Pb__WorkloadType__E type)
{
        Pb__WorkloadType__E types[] = { type };
        Pb__Hello h = PB__HELLO__INIT;
        char id[32];
        snprintf(id, sizeof(id), "%s-%05u", name, i);
        h.node_id = id;
        h.cpu = 64000;
        h.memory_mb = 262144;
        h.disk_gb = 1000;
        h.supported_workload_types = types;
        h.n_supported_workload_types = 1;
        h.agent_version = "fill";
        struct input in = {
                .kind = INPUT_HELLO, .now_ms = now, .session = session, .msg = &h.base
        };
        core_step(core, &in);
}

static void apply(const char *name, uint32_t i, bool is_job)
{
        struct arena a = ARENA_INIT;
        struct err err;
        Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;
        Pb__Resources res = PB__RESOURCES__INIT;
        char *command[] = { "sh", "-c",
                            arena_printf(&a, "exec server --listen 0.0.0.0:%u --name service-%u",
                                         8000 + i % 1000, i) };
        w.id = arena_printf(&a, "%s-%06u", name, i);
        w.type = is_job ? PB__WORKLOAD_TYPE__E__container : PB__WORKLOAD_TYPE__E__process;
        if (is_job) {
                w.restart = PB__RESTART__E__never;
                spec.image = "debian:12";
        }
        spec.command = command;
        spec.n_command = 3;
        res.cpu = 100;
        res.memory_mb = 128;
        w.spec = &spec;
        w.resources = &res;
        if (workload_normalise(&a, &w, &err) < 0)
                die(&err);
        req.workload = &w;
        struct input in = { .kind = INPUT_APPLY, .now_ms = now, .msg = &req.base };
        core_step(core, &in);
        arena_fini(&a);
}

static int load_one(void *ctx, const struct store_record *r, struct err *err)
{
        return core_load_record(ctx, r->key, r->data, r->len, err);
}

int main(int argc, char **argv)
{
        if (argc != 4 && argc != 5) {
                fprintf(stderr, "usage: fill_store STORE NODES WORKLOADS [FINISHED]\n");
                return 2;
        }
        struct err err;
        struct core_options opt;
        uint64_t head = 0;
        uint32_t n = (uint32_t)atoi(argv[2]), m = (uint32_t)atoi(argv[3]),
                 finished = argc > 4 ? (uint32_t)atoi(argv[4]) : 0;
        core_options_default(&opt);
        core = core_create(&opt);
        if (store_open(argv[1], true, &store, &err) < 0 ||
            store_load(store, load_one, core, &head, &err) < 0)
                die(&err);
        struct input in = { .kind = INPUT_START,
                            .now_ms = now,
                            .head = head,
                            .random = { 0x1234567890abcdef, 2 } };
        core_step(core, &in);
        for (uint32_t i = 0; i < n; i++)
                join("node", i, i + 1, PB__WORKLOAD_TYPE__E__process);
        for (uint32_t i = 0; i < 4 && finished; i++)
                join("jobs", i, n + i + 1, PB__WORKLOAD_TYPE__E__container);
        settle_down();
        for (uint32_t i = 0; i < finished; i++) {
                apply("job", i, true);
                if (i % 512 == 511)
                        settle_down();
        }
        for (uint32_t i = 0; i < m; i++) {
                apply("service", i, false);
                if (i % 512 == 511)
                        settle_down();
        }
        settle_down();
        struct core_stats st;
        core_stats(core, &st);
        printf("%u nodes, %u workloads, %u running, %u completed, head %llu\n", st.nodes,
               st.workloads, st.by_phase[PB__PHASE__E__Running],
               st.by_phase[PB__PHASE__E__Completed], (unsigned long long)core_head(core));
        store_close(store);
        core_destroy(core);
        return 0;
}
