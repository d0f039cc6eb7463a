/* sim/machine.c: machines: a disk, a runtime whose copies start, end and crash by chance, the real
 * agent's engine, and the link to the server. */
#include "base/mem.h"
#include "base/mutant.h"
#include "base/ulid.h"
#include "model/pb.h"
#include "sim/world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Its size follows from its number, so that a run with fewer machines has the same ones. */
void sim_machine_init(struct sim *s, uint32_t n, uint32_t twin_of)
{
        struct machine *m = array_push(&s->machines);
        struct rng r;
        rng_seed(&r, hash64_mix(s->opt.seed, 5000 + (uint64_t)n));
        snprintf(m->id, sizeof(m->id), "node-%04u", twin_of);
        m->node = twin_of;
        m->off = n != twin_of;
        m->lied = m->off;
        int64_t cores = s->opt.cores_max < 2
                            ? s->opt.cores_max
                            : 2 + (int64_t)rng_below(&r, (uint64_t)s->opt.cores_max - 1);
        m->cpu = 1000 * cores;
        m->memory_mb = 1024 * (4 + (int64_t)rng_below(&r, 61)) * s->opt.cores_max / 16 + 2048;
        m->disk_gb = 5 + (int64_t)rng_below(&r, s->opt.cores_max < 16 ? 60 : 496);
        m->steady = sim_steady_drawn(s, &r);
        m->watched = n % 2 || !s->opt.exclusive;
}

void sim_copy_free(struct copy *c)
{
        mem_free(c->workload_id);
        mem_free(c->revision);
        *c = (struct copy){ 0 };
}

void sim_machine_fini(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        if (m->engine)
                engine_destroy(m->engine);
        for (size_t i = 0; i < m->copies.len; i++)
                sim_copy_free(&m->copies.at[i]);
        for (size_t i = 0; i < m->disk.len; i++) {
                mem_free(m->disk.at[i].id);
                mem_free(m->disk.at[i].data);
        }
        mem_free(m->agent_record);
        array_fini(&m->copies);
        array_fini(&m->disk);
}

struct copy *sim_copy_find(struct machine *m, const char *workload_id)
{
        for (size_t i = 0; i < m->copies.len; i++)
                if (m->copies.at[i].workload_id &&
                    strcmp(m->copies.at[i].workload_id, workload_id) == 0)
                        return &m->copies.at[i];
        return NULL;
}

/* ---- its clock ---- */

/* The fastest is less than the drift faster than the slowest. Only leases ask how fast a clock
 * goes. */
struct steady sim_steady_drawn(const struct sim *s, struct rng *r)
{
        int64_t most = s->opt.exclusive ? s->core_opt.drift_percent * 10000 / 21 * 10 : 0;
        struct steady c = { .ppm =
                                1000000 - most + (int64_t)rng_below(r, (uint64_t)(2 * most + 1)) };
        c.begins = 1 + (int64_t)rng_below(r, 1000000000);
        return c;
}

int64_t sim_steady(const struct steady *c, int64_t now)
{
        return c->begins + (now - START_MS) * c->ppm / 1000000;
}

/* Rounded up: a clock that is asked a moment too late is no fault. */
int64_t sim_true_wait(const struct steady *c, int64_t ms)
{
        return (ms * 1000000 + c->ppm - 1) / c->ppm;
}

int64_t sim_agent_now(struct sim *s, struct machine *m)
{
        int64_t now =
            m->own_clock ? clock_follow(&m->clock, s->now + m->wall_off_ms, s->now) : s->now;
        if (m->engine)
                engine_set_steady(m->engine, now, sim_steady(&m->steady, s->now));
        return now;
}

void sim_agent_clock_jump(struct sim *s, struct machine *m, int64_t ms)
{
        if (!m->own_clock) {
                clock_init_at(&m->clock, s->now, s->now);
                m->own_clock = true;
        }
        sim_agent_now(s, m);
        m->wall_off_ms += ms;
}

static void arm_tick(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        int64_t next = engine_next_ms(m->engine), now = sim_agent_now(s, m);
        if (next != INT64_MAX)
                sim_tick_at(s, &m->tick, s->now + (next > now ? next - now : 0),
                            (struct sim_event){ .kind = EV_AGENT_TICK, .node = n });
}

void sim_agent_tick(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        m->tick = 0;
        if (!m->engine)
                return;
        if (m->stalled_until > s->now) {
                sim_tick_at(s, &m->tick, m->stalled_until,
                            (struct sim_event){ .kind = EV_AGENT_TICK, .node = n });
                return;
        }
        if (s->opt.servers > 1 && m->conn && s->now - m->heard > 3 * s->core_opt.heartbeat_ms)
                sim_agent_gone(s, n, m->conn); /* perhaps another server answers */
        engine_tick(m->engine, sim_agent_now(s, m));
        sim_agent_pump(s, n);
}

/* ---- runtime ---- */

static void schedule(struct sim *s, uint32_t n, struct copy *c, int64_t in_ms,
                     enum runtime_event_kind next)
{
        c->life = ++s->lives;
        c->next = next;
        sim_at(s, s->now + in_ms,
               (struct sim_event){ .kind = EV_RUNTIME, .node = n, .value = c->life });
}

static void tell_engine(struct sim *s, uint32_t n, const struct copy *c,
                        enum runtime_event_kind kind)
{
        struct machine *m = &s->machines.at[n];
        if (!m->engine)
                return;
        int64_t now = sim_agent_now(s, m);
        struct runtime_event ev = { .kind = kind,
                                    .workload_id = c->workload_id,
                                    .token = c->token,
                                    .revision_id = c->revision,
                                    .at_ms = now,
                                    .pid = 1000 };
        if (kind == RUNTIME_FOUND_RUNNING)
                ev.at_ms = c->started_at;
        if (kind == RUNTIME_EXITED || kind == RUNTIME_FOUND_EXITED || kind == RUNTIME_STOPPED) {
                ev.has_signal = c->signal != 0;
                ev.signal = c->signal;
                ev.has_exit_code = !c->signal && !c->start_failed;
                ev.exit_code = c->exit_code;
                ev.at_ms = c->ended_at ? c->ended_at : now;
                if (c->lease_expired)
                        ev.reason = PB__REASON__E__lease_expired;
        }
        if (kind == RUNTIME_START_FAILED || c->start_failed) {
                bool mismatch = kind == RUNTIME_START_FAILED && m->cannot_run;
                ev.reason =
                    mismatch ? PB__REASON__E__runtime_unavailable : PB__REASON__E__start_failed;
                ev.message =
                    mismatch ? "simulated: runtime not available" : "simulated: cannot start";
        }
        engine_event(m->engine, &ev, now);
}

/* How a running copy will end by itself, if ever. */
static void schedule_end(struct sim *s, uint32_t n, struct copy *c)
{
        int64_t soon = 2 * HOUR_MS / (s->opt.intensity < 20 ? s->opt.intensity : 20);
        if (c->job) {
                schedule(s, n, c, sim_between(s, CHANCE_RUNTIME, 100, 120000), RUNTIME_EXITED);
                c->exit_code = sim_hit(s, SIM_CRASH, 100000);
                c->signal = 0;
                return;
        }
        if (sim_hit(s, SIM_CRASH, 300000))
                schedule(s, n, c, sim_between(s, CHANCE_RUNTIME, 1000, soon), RUNTIME_EXITED);
        else
                c->next = 0, c->life = 0;
        c->exit_code = 1;
        c->signal = sim_chance(s, CHANCE_RUNTIME, 300000) ? 11 : 0;
}

/* W3: one start per token, ever, anywhere. */
static void note_start(struct sim *s, uint32_t n, struct unit_token t, const char *id)
{
        s->result.starts++;
        if (map_get(&s->started_by, &t, sizeof(t)) != MAP_NONE) {
                if (!s->machines.at[n].lied && !s->items.at[number_of(id)].tainted)
                        sim_fail(s, "W3: a token was started twice",
                                 fmt("%s, sequence %llu", id, (unsigned long long)t.seq));
                return;
        }
        *array_push(&s->started) = t;
        map_put(&s->started_by, (uint32_t)s->started.len - 1);
}

/* C34: at one true instant an exclusive unit has one holder. */
static void check_holder(struct sim *s, uint32_t n, const struct copy *starts)
{
        if (!starts->exclusive)
                return;
        struct client_item *it = &s->items.at[number_of(starts->workload_id)];
        if (it->holder && it->holder != n + 1)
                sim_saw(s, SAW_EXCLUSIVE_MOVE);
        it->holder = n + 1;
        for (uint32_t i = 0; i < s->machines.len; i++) {
                const struct copy *c = sim_copy_find(&s->machines.at[i], starts->workload_id);
                if (i == n || !c || !c->alive || c->doubtful || starts->doubtful)
                        /* what a node that lies does to its own units is nobody's promise */
                        continue;
                /* What was not exclusive in the state that a restore lost has no lease, and is in
                 * no record: docs/fencing.md says so. */
                if (!c->exclusive && s->restored)
                        continue;
                /* It was no longer exclusive when that one was launched: this one has not heard of
                 * it yet, and nothing is promised any more. */
                if (!c->exclusive && unit_token_cmp(starts->token, c->token) < 0)
                        continue;
                sim_fail(s, "C34: an exclusive unit has two holders",
                         fmt("after %lld ms: %s starts on %s with token %llu.%llu, and lives on %s "
                             "with %llu.%llu",
                             (long long)(s->now - START_MS), starts->workload_id,
                             s->machines.at[n].id, (unsigned long long)starts->token.epoch,
                             (unsigned long long)starts->token.seq, s->machines.at[i].id,
                             (unsigned long long)c->token.epoch, (unsigned long long)c->token.seq));
        }
}

struct copy *sim_copy_new(struct machine *m)
{
        for (size_t i = 0; i < m->copies.len; i++)
                if (!m->copies.at[i].workload_id)
                        return &m->copies.at[i];
        return array_push(&m->copies);
}

/* ---- monitors ---- */

static void watch_lease(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        int64_t left = m->lease_until - sim_steady(&m->steady, s->now);
        if (s->opt.exclusive && m->watched)
                sim_tick_at(s, &m->monitor,
                            s->now + (left > 0 ? sim_true_wait(&m->steady, left) : 0),
                            (struct sim_event){ .kind = EV_MONITOR, .node = n });
}

/* Processes of their own: they do not care how their agent is. */
void sim_monitor_looks(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        int64_t now = sim_steady(&m->steady, s->now);
        m->monitor = 0;
        if (MUTANT(monitor_ignores_lease))
                return;
        if (now < m->lease_until) {
                watch_lease(s, n);
                return;
        }
        int64_t left = m->lease_kill > now ? sim_true_wait(&m->steady, m->lease_kill - now) : 0;
        for (size_t i = 0; i < m->copies.len; i++) {
                struct copy *c = &m->copies.at[i];
                if (!c->workload_id || !c->alive || c->exclusive != PB__EXCLUSIVE__E__movable ||
                    c->lease_expired)
                        continue;
                c->lease_expired = true;
                c->signal = 15;
                schedule(s, n, c, sim_between(s, CHANCE_RUNTIME, 0, left),
                         c->stopping ? RUNTIME_STOPPED : RUNTIME_EXITED);
        }
}

static void order_start(struct sim *s, uint32_t n, const struct engine_order *o)
{
        struct machine *m = &s->machines.at[n];
        struct copy *c = sim_copy_find(m, o->workload_id);
        if (c && c->alive) {
                sim_fail(s, "W1: a second copy was started beside a running one", o->workload_id);
                return;
        }
        Pb__Workload *w = pb__workload__unpack(NULL, o->len, o->data);
        if (!w) {
                sim_fail(s, "a start order does not parse", o->workload_id);
                return;
        }
        note_start(s, n, o->token, o->workload_id);
        if (c)
                sim_copy_free(c);
        else
                c = sim_copy_new(m);
        *c = (struct copy){ .workload_id = mem_strdup(o->workload_id),
                            .revision = mem_strdup(w->revision_id),
                            .token = o->token,
                            .exclusive = w->exclusive,
                            .doubtful = n >= s->opt.nodes || s->now < m->doubtful_until,
                            .alive = true,
                            .job = w->restart != PB__RESTART__E__always,
                            .started_at = sim_agent_now(s, m) };
        bool fails = sim_hit(s, SIM_CRASH, 20000) || m->cannot_run;
        schedule(s, n, c, sim_between(s, CHANCE_RUNTIME, 5, 400),
                 fails ? RUNTIME_START_FAILED : RUNTIME_STARTED);
        pb__workload__free_unpacked(w, NULL);
        check_holder(s, n, c);
        watch_lease(s, n);
}

static void order_stop(struct sim *s, uint32_t n, const struct engine_order *o)
{
        struct copy *c = sim_copy_find(&s->machines.at[n], o->workload_id);
        if (!c || !c->alive) {
                struct copy none = { .workload_id = (char *)o->workload_id, .token = o->token };
                if (c)
                        none.exit_code = c->exit_code, none.signal = c->signal;
                tell_engine(s, n, &none, RUNTIME_STOPPED);
                return;
        }
        if (c->stopping && !c->exclusive)
                return;
        int64_t took = sim_chance(s, CHANCE_RUNTIME, c->exclusive ? 400000 : 50000)
                           ? o->grace_ms
                           : sim_between(s, CHANCE_RUNTIME, 1, 800);
        if (c->exclusive && took >= o->grace_ms) /* killed */
                took = sim_true_wait(&s->machines.at[n].steady, o->grace_ms);
        c->stopping = true;
        c->signal = 15;
        schedule(s, n, c, took, RUNTIME_STOPPED);
}

static void order_remove(struct sim *s, uint32_t n, const struct engine_order *o)
{
        struct copy *c = sim_copy_find(&s->machines.at[n], o->workload_id);
        if (c && c->alive) {
                sim_fail(s, "W1: a running copy was removed", o->workload_id);
                return;
        }
        struct copy none = { .workload_id = (char *)o->workload_id, .token = o->token };
        if (c) {
                none.token = c->token;
                sim_copy_free(c);
        }
        tell_engine(s, n, &none, RUNTIME_REMOVED);
}

void sim_machine_runtime(struct sim *s, uint32_t n, uint64_t life)
{
        struct machine *m = &s->machines.at[n];
        struct copy *c = NULL;
        for (size_t i = 0; i < m->copies.len && !c; i++)
                if (m->copies.at[i].workload_id && m->copies.at[i].life == life)
                        c = &m->copies.at[i];
        if (!c || (!c->alive && !c->untold))
                return;
        enum runtime_event_kind kind = c->next;
        /* that is so, whether or not its agent can hear of it */
        if (c->lease_expired && c->alive && kind != RUNTIME_STARTED) {
                c->alive = c->stopping = false;
                c->untold = m->engine;
                c->ended_at = sim_agent_now(s, m);
        }
        if (m->engine && m->stalled_until > s->now) {
                sim_at(s, m->stalled_until,
                       (struct sim_event){ .kind = EV_RUNTIME, .node = n, .value = life });
                return;
        }
        if (s->calm && kind == RUNTIME_EXITED && !c->job)
                return; /* a crash that was to come: there are no more faults */
        if (kind == RUNTIME_STARTED) {
                schedule_end(s, n, c);
                c->start_failed = false;
        } else {
                c->alive = c->stopping = c->untold = false;
                c->ended_at = sim_agent_now(s, m);
                c->start_failed = kind == RUNTIME_START_FAILED;
                c->life = 0;
        }
        tell_engine(s, n, c, kind);
        sim_agent_pump(s, n);
}

/* ---- agent ---- */

static void disk_put(struct machine *m, const char *id, const void *data, size_t len)
{
        struct disk_record *r = NULL;
        for (size_t i = 0; i < m->disk.len; i++)
                if (strcmp(m->disk.at[i].id, id) == 0)
                        r = &m->disk.at[i];
        if (!r) {
                r = array_push(&m->disk);
                r->id = mem_strdup(id);
        }
        mem_free(r->data);
        r->data = mem_dup(data, len + !len);
        r->len = len;
}

void sim_machine_lose_record(struct machine *m, const char *id)
{
        for (size_t i = 0; i < m->disk.len; i++)
                if (strcmp(m->disk.at[i].id, id) == 0) {
                        mem_free(m->disk.at[i].id);
                        mem_free(m->disk.at[i].data);
                        m->disk.at[i] = m->disk.at[--m->disk.len];
                        return;
                }
}

static void carry_out(struct sim *s, uint32_t n, const struct engine_order *o)
{
        struct machine *m = &s->machines.at[n];
        switch (o->kind) {
        case ORDER_PERSIST_UNIT:
                disk_put(m, o->workload_id, o->data, o->len);
                break;
        case ORDER_PERSIST_AGENT:
                mem_free(m->agent_record);
                m->agent_record = mem_dup(o->data, o->len + !o->len);
                m->agent_record_len = o->len;
                break;
        case ORDER_FORGET_UNIT:
                sim_machine_lose_record(m, o->workload_id);
                break;
        case ORDER_LEASE:
                m->lease_until = o->until_ms;
                m->lease_kill = o->kill_ms;
                break;
        case ORDER_START:
                order_start(s, n, o);
                break;
        case ORDER_STOP:
                order_stop(s, n, o);
                break;
        case ORDER_REMOVE:
                order_remove(s, n, o);
                break;
        }
}

static bool was_not_written(const struct engine_output *out, const bool *failed, size_t n,
                            const char *id)
{
        for (size_t i = 0; i < n; i++)
                if (failed[i] && out->orders[i].kind == ORDER_PERSIST_UNIT &&
                    strcmp(out->orders[i].workload_id, id) == 0)
                        return true;
        return false;
}

/* False: the agent died in the middle of it. */
static bool carry_out_all(struct sim *s, uint32_t n, const struct engine_output *out)
{
        struct machine *m = &s->machines.at[n];
        bool failed[16] = { 0 }, any = false;
        for (size_t i = 0; i < out->n_orders && !sim_failed(s); i++) {
                const struct engine_order *o = &out->orders[i];
                if (sim_hit(s, SIM_CRASH, 100)) {
                        bool machine = sim_chance(s, CHANCE_RUNTIME, 300000);
                        if (machine)
                                sim_machine_crash(s, n);
                        else
                                sim_agent_crash(s, n);
                        sim_at(s, s->now + sim_between(s, CHANCE_RUNTIME, 200, 20000),
                               (struct sim_event){ .kind = EV_AGENT_START, .node = n });
                        return false;
                }
                if ((o->kind == ORDER_PERSIST_UNIT || o->kind == ORDER_PERSIST_AGENT) &&
                    i < ARRAY_LEN(failed) && sim_hit(s, SIM_DISK, 500)) {
                        failed[i] = any = true;
                        engine_persist_failed(m->engine, o->workload_id,
                                              "simulated: the disk is full", sim_agent_now(s, m));
                        continue;
                }
                if (any && o->kind == ORDER_START &&
                    was_not_written(out, failed, i < ARRAY_LEN(failed) ? i : ARRAY_LEN(failed),
                                    o->workload_id))
                        continue;
                carry_out(s, n, o);
        }
        return true;
}

void sim_agent_pump(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        struct engine_output *out;
        struct err err = { 0 };
        bool acted = false;
        for (int turns = 0; m->engine && (out = engine_take(m->engine)); turns++) {
                acted = acted || out->n_orders;
                if (carry_out_all(s, n, out))
                        for (size_t i = 0; i < out->n_messages; i++)
                                sim_link_to_server(s, n, &out->messages[i]);
                engine_output_free(out);
                if (turns > 1000) {
                        sim_fail(s, "an agent never comes to rest", m->id);
                        return;
                }
        }
        if (!m->engine || sim_failed(s))
                return;
        if ((acted || s->opt.check_always || m->checks++ % 16 == 0) &&
            engine_check(m->engine, &err) < 0)
                sim_fail(s, err.msg, err.detail);
        const char *reason;
        int64_t retry_ms;
        if (m->conn && engine_wants_close(m->engine, &reason, &retry_ms)) {
                if (s->opt.servers == 1)
                        sim_fail(s, "A5: an agent was turned away", reason);
                else
                        /* by one that led before, and does not know what this agent has seen
                         * since */
                        sim_agent_gone(s, n, m->conn);
        }
        arm_tick(s, n);
}

void sim_agent_start(struct sim *s, uint32_t n)
{
        static const Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process,
                                                     PB__WORKLOAD_TYPE__E__container, 0 };
        static const Pb__WorkloadType__E exclusive[] = { PB__WORKLOAD_TYPE__E__process, 0 };
        struct machine *m = &s->machines.at[n];
        if (m->engine || m->off)
                return;
        m->down = m->cannot_run = false;
        clock_init_at(&m->clock, s->now + m->wall_off_ms, s->now);
        int64_t now = sim_agent_now(s, m);
        char instance[ULID_LEN + 1], boot[16];
        ulid_make(instance, now, n, m->instance++);
        (void)snprintf(boot, sizeof(boot), "boot-%u", m->boots);
        struct engine_label labels[] = { { "zone", sim_zone_of(s, m->node) } };
        struct engine_options opt = { .node_id = m->id,
                                      .instance = instance,
                                      .boot_id = boot,
                                      .agent_version = "sim",
                                      .cpu = m->cpu,
                                      .memory_mb = m->memory_mb,
                                      .disk_gb = m->disk_gb,
                                      .types = types,
                                      .exclusive_types = s->opt.exclusive ? exclusive : NULL,
                                      .labels = labels,
                                      .n_labels = 1 };
        struct err err = { 0 };
        m->engine = engine_create(&opt);
        if (m->lease_until)
                engine_load_lease(m->engine, m->lease_until, m->lease_kill);
        if (m->agent_record &&
            engine_load_agent(m->engine, m->agent_record, m->agent_record_len, &err) < 0)
                sim_fail(s, "an agent's record does not load", err_line(&err));
        for (size_t i = 0; i < m->disk.len; i++)
                if (engine_load_unit(m->engine, m->disk.at[i].data, m->disk.at[i].len, &err) < 0)
                        sim_fail(s, "a unit's record does not load", err_line(&err));
        for (size_t i = 0; i < m->copies.len; i++) {
                struct copy *c = &m->copies.at[i];
                if (c->workload_id)
                        tell_engine(s, n, c,
                                    c->gone    ? RUNTIME_FOUND_GONE
                                    : c->alive ? RUNTIME_FOUND_RUNNING
                                               : RUNTIME_FOUND_EXITED);
        }
        engine_booted(m->engine, now);
        sim_agent_pump(s, n);
        sim_at(s, s->now + sim_between(s, CHANCE_RUNTIME, 10, 500),
               (struct sim_event){ .kind = EV_CONNECT, .node = n });
}

void sim_agent_crash(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        if (!m->engine)
                return;
        engine_destroy(m->engine);
        m->engine = NULL;
        /* the monitor goes on: what was starting runs, what was stopping stops */
        for (size_t i = 0; i < m->copies.len; i++) {
                struct copy *c = &m->copies.at[i];
                /* nobody else would stop it */
                bool alone = !m->watched && c->exclusive == PB__EXCLUSIVE__E__movable;
                c->untold = false;
                if (c->workload_id && c->alive && (c->stopping || alone)) {
                        c->alive = c->stopping = false;
                        c->ended_at = s->now + m->wall_off_ms;
                }
        }
        sim_link_end(s, n);
}

static bool has_record(const struct machine *m, const char *id)
{
        for (size_t i = 0; i < m->disk.len; i++)
                if (strcmp(m->disk.at[i].id, id) == 0)
                        return true;
        return false;
}

void sim_machine_crash(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        sim_agent_crash(s, n);
        m->down = true;
        m->boots++;
        m->lease_until = m->lease_kill = 0;
        for (size_t i = 0; i < m->copies.len; i++) {
                struct copy *c = &m->copies.at[i];
                if (c->workload_id && c->alive && sim_chance(s, CHANCE_RUNTIME, 300000)) {
                        /* What its runtime wrote down was not synced. The agent's record was,
                         * unless somebody took that away. */
                        if (!has_record(m, c->workload_id))
                                sim_forget_start(s, c->token);
                        sim_copy_free(c);
                } else if (c->workload_id && c->alive) {
                        c->alive = false;
                        c->gone = true;
                        c->ended_at = s->now + m->wall_off_ms;
                }
        }
}
