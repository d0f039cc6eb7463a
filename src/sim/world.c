/* sim/world.c: time, chance, the run, and its verdict. */
#include "sim/world.h"
#include "base/mem.h"
#include "events.pb-c.h"
#include <stdio.h>
#include <string.h>

#define SETTLE_MS (30 * INT64_C(60000)) /* by then everything must have come to rest */

uint32_t sim_at(struct sim *s, int64_t at, struct sim_event ev)
{
        uint32_t slot;
        if (s->free_events.len)
                slot = array_pop(&s->free_events);
        else {
                array_push(&s->events);
                slot = (uint32_t)s->events.len - 1;
        }
        s->events.at[slot] = ev;
        heap_set(&s->heap, slot, at > s->now ? at : s->now);
        return slot;
}

void sim_tick_at(struct sim *s, uint32_t *slot, int64_t at, struct sim_event ev)
{
        if (at == INT64_MAX)
                return;
        if (*slot)
                heap_set(&s->heap, *slot - 1, at > s->now ? at : s->now);
        else
                *slot = sim_at(s, at, ev) + 1;
}

int64_t sim_between(struct sim *s, enum chance from, int64_t low, int64_t high)
{
        return low + (int64_t)rng_below(&s->chance[from], (uint64_t)(high - low + 1));
}

bool sim_chance(struct sim *s, enum chance from, uint32_t per_million)
{
        return rng_chance(&s->chance[from], per_million);
}

void sim_fail(struct sim *s, const char *what, const char *detail)
{
        if (s->result.violations++ == 0)
                err_set(s->err, ERR_FAILED, .msg = what, .detail = detail,
                        .hint = fmt("berth sim with --seed %llu shows it again",
                                    (unsigned long long)s->opt.seed));
}

/* ---- the run ---- */

void sim_event_free(struct sim_event *ev)
{
        if (ev->kind == EV_STORE || ev->kind == EV_ANSWER) {
                sim_ask_free(ev->data);
                return;
        }
        if (ev->kind == EV_TO_AGENT && ev->data) {
                struct letter *l = ev->data;
                if (--l->refs)
                        return;
                arena_fini(&l->memory);
        }
        mem_free(ev->data);
}

static void dispatch_agent(struct sim *s, struct sim_event *ev)
{
        switch (ev->kind) {
        case EV_AGENT_GONE:
                sim_agent_gone(s, ev->node, ev->conn);
                break;
        case EV_CONNECT:
                sim_agent_connect(s, ev->node);
                break;
        case EV_AGENT_TICK:
                sim_agent_tick(s, ev->node);
                break;
        case EV_AGENT_START:
                sim_agent_start(s, ev->node);
                break;
        case EV_LOSE:
                sim_lose(s);
                break;
        case EV_HEAL:
                sim_heal(s, ev->node, ev->value);
                break;
        case EV_TWIN_END:
                sim_machine_crash(s, ev->node);
                s->machines.at[ev->node].off = true;
                break;
        case EV_MONITOR:
                sim_monitor_looks(s, ev->node);
                break;
        case EV_RUNTIME:
                sim_machine_runtime(s, ev->node, ev->value);
                break;
        default: /* EV_TO_AGENT, EV_ACK, EV_LIST */
                sim_agent_message(s, ev);
        }
}

void sim_dispatch(struct sim *s, struct sim_event *ev)
{
        struct server *v = &s->servers[ev->server < SIM_SERVERS ? ev->server : 0];
        switch (ev->kind) {
        case EV_NONE:
                break;
        case EV_SERVER_START:
                sim_server_start(s, v);
                break;
        case EV_SERVER_CRASH:
                if ((v->core || s->opt.servers > 1) && ev->life == v->life && !s->calm) {
                        sim_server_crash(s, v);
                        sim_at(s, s->now + v->crash_down_ms,
                               (struct sim_event){ .kind = EV_SERVER_START, .server = v->number });
                }
                break;
        case EV_STORE:
                sim_store_happens(s, ev);
                break;
        case EV_RESUME:
                sim_server_resume(s, v);
                break;
        case EV_BLIND:
                sim_go_blind(s, v);
                break;
        case EV_STORE_BACK:
                s->away = false;
                memory_set_away(s->disk, false);
                break;
        case EV_FAULT:
                sim_fault(s, ev->value);
                break;
        case EV_CLIENT:
                sim_client_act(s);
                if (!s->calm)
                        sim_at(s,
                               s->now + sim_between(s, CHANCE_CLIENT, 1,
                                                    s->result.requests < s->opt.workloads
                                                        ? 40
                                                        : 2 * s->opt.request_ms),
                               (struct sim_event){ .kind = EV_CLIENT });
                break;
        default:
                if (ev->kind <= EV_HEARD)
                        sim_server_happens(s, ev);
                else
                        dispatch_agent(s, ev);
        }
}

static void run_until(struct sim *s, int64_t end)
{
        while (!sim_failed(s) && heap_next_ms(&s->heap) <= end) {
                s->now = heap_next_ms(&s->heap);
                uint32_t slot = heap_pop(&s->heap);
                struct sim_event ev = s->events.at[slot];
                s->events.at[slot] = (struct sim_event){ 0 };
                *array_push(&s->free_events) = slot;
                sim_dispatch(s, &ev);
                sim_event_free(&ev);
        }
        if (s->now < end)
                s->now = end;
}

/* Everything is repaired, nobody asks anything any more; then the cluster comes to rest: no commit
 * for longer than the slowest of its own habits, which also proves that standing still costs
 * nothing (A6). */
static void calm_down(struct sim *s)
{
        int64_t end = s->now + SETTLE_MS;
        int64_t quiet =
            s->core_opt.list_ms + 2 * s->core_opt.heartbeat_ms + s->core_opt.launch_grace_ms + 5000;
        const char *what = "A6: the cluster does not come to rest",
                   *detail = "it commits on and on, or nobody leads";
        char found[512]; /* fmt() reuses its memory */
        sim_faults_end(s);
        s->quiet_since = s->now;
        if (s->restored) { /* what was forgotten may need an operator's word for ever */
                run_until(s, s->now + 400000);
                return;
        }
        while (!sim_failed(s) && s->now < end) {
                int64_t next = s->quiet_since + quiet;
                run_until(s, next > s->now ? next : s->now + 20000);
                /* A question at the very moment at which something is due anyway would set that
                 * off. */
                struct server *v = sim_leader(s);
                if (sim_failed(s) || !v || s->now - s->quiet_since < quiet ||
                    core_next_ms(v->core) <= sim_server_now(s, v))
                        continue;
                if (sim_is_settled(s, &what, &detail))
                        return;
                snprintf(found, sizeof(found), "%s", detail ? detail : "");
                detail = found;
        }
        if (!sim_failed(s))
                sim_fail(s, what, detail);
}

static void finish(struct sim *s)
{
        struct err err = { 0 };
        if (!sim_failed(s)) {
                sim_server_check_replay(s);
                sim_client_check_kept(s);
        }
        struct server *v = sim_leader(s);
        if (!sim_failed(s) && v && core_check(v->core, &err) < 0)
                sim_fail(s, err.msg, err.detail);
        struct str dump = STR_INIT;
        if (v)
                core_dump(v->core, &dump);
        s->result.hash = hash64_mix(s->result.hash, hash64(str_c(&dump), dump.len));
        str_fini(&dump);
        s->result.simulated_ms = s->now - START_MS;
}

static const char *name_of(const ProtobufCEnumDescriptor *d, int value)
{
        const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(d, value);
        return v ? v->name : "?";
}

void sim_print_event(FILE *f, const void *data, size_t len)
{
        Pb__Event *e = pb__event__unpack(NULL, len, data);
        if (!e)
                return;
        char ts[TIME_TEXT_LEN];
        fprintf(f, "  %llu %s %s workload=%s node=%s reason=%s action=%s %s\n",
                (unsigned long long)e->seq, time_format(ts, e->timestamp),
                name_of(&pb__event_type__e__descriptor, (int)e->type), e->workload_id, e->node_id,
                name_of(&pb__reason__e__descriptor, (int)e->reason), e->action, e->message);
        pb__event__free_unpacked(e, NULL);
}

static void print_last_events(struct sim *s)
{
        for (uint32_t i = 0; i < ARRAY_LEN(s->last); i++) {
                const struct str *l = &s->last[(s->last_at + i) % ARRAY_LEN(s->last)];
                if (l->len)
                        sim_print_event(stderr, l->buf, l->len);
        }
}

/* ---- beginning and end ---- */

static void core_options_of(const struct sim_options *o, struct core_options *c)
{
        core_options_default(c);
        c->heartbeat_ms = o->heartbeat_ms ? o->heartbeat_ms : c->heartbeat_ms;
        c->silence_beats = o->silence_beats ? (int32_t)o->silence_beats : c->silence_beats;
        c->evict_grace_ms = o->evict_grace_ms ? o->evict_grace_ms : c->evict_grace_ms;
        c->launch_grace_ms = o->launch_grace_ms ? o->launch_grace_ms : c->launch_grace_ms;
        c->pass_ms = o->pass_ms ? o->pass_ms : c->pass_ms;
        c->healthy_ms = o->healthy_ms ? o->healthy_ms : c->healthy_ms;
        c->list_ms = o->list_ms ? o->list_ms : c->list_ms;
        c->max_batch_ops = o->batch_ops ? (size_t)o->batch_ops : 512;
        c->index_records = o->index_records;
        c->warrants = (struct warrant_keys){ .has = true, .key = { 's', 'i', 'm' } };
        if (o->exclusive) { /* short, so that they are what is waited for */
                c->lease_ms = c->heartbeat_ms * c->silence_beats;
                c->lease_grace_ms = 3000;
                c->drift_percent = 10;
        }
        c->lead_ms = o->servers > 1 ? LEAD_MS : 0;
        c->evict_per_second =
            o->evict_per_second ? (int32_t)o->evict_per_second : c->evict_per_second;
}

static struct map_key started_key(const void *ctx, uint32_t i)
{
        const struct sim *s = ctx;
        return (struct map_key){ &s->started.at[i], sizeof(struct unit_token) };
}

static void world_init(struct sim *s)
{
        struct sim_options *o = &s->opt;
        for (size_t i = 0; i < ARRAY_LEN(s->chance); i++)
                rng_seed(&s->chance[i], hash64_mix(o->seed, i + 1));
        for (size_t i = 0; i < ARRAY_LEN(s->hits); i++)
                rng_seed(&s->hits[i], hash64_mix(o->seed, i + 100));
        if (!o->intensity) /* some runs are quiet, some are not */
                o->intensity = sim_chance(s, CHANCE_SERVER, 500000)
                                   ? 1
                                   : (uint32_t)sim_between(s, CHANCE_SERVER, 2, 60);
        o->servers = o->servers ? o->servers : 1;
        o->hostility = o->hostility ? o->hostility : 1;
        o->request_ms = o->request_ms ? o->request_ms : 30000;
        o->cores_max = o->cores_max ? o->cores_max : 16;
        core_options_of(o, &s->core_opt);
        s->end_ms = START_MS + o->hours_ms;
        s->disk = memory_disk_create();
        if (memory_open(s->disk, &s->store, s->err) < 0)
                sim_fail(s, "the store does not open", "");
        s->watch = sim_watch_create();
        map_init(&s->started_by, started_key, s);
        array_push(&s->conns);                             /* stream 0 is none */
        array_reserve(&s->machines, 2 * (size_t)o->nodes); /* with twins; so that none ever moves */
        for (uint32_t n = 0; n < o->nodes; n++)
                sim_machine_init(s, n, n);
        struct rng r;
        rng_seed(&r, hash64_mix(o->seed, 4000));
        for (uint32_t i = 0; i < SIM_SERVERS; i++) {
                s->servers[i].number = i;
                s->servers[i].steady = sim_steady_drawn(s, &r);
                s->servers[i].proved_ms = INT64_MIN / 2;
        }
        s->store_clock = sim_steady_drawn(s, &r);
}

static void world_fini(struct sim *s)
{
        for (uint32_t i = 0; i < SIM_SERVERS; i++) {
                sim_server_crash(s, &s->servers[i]);
                array_fini(&s->servers[i].queue);
                array_fini(&s->servers[i].held);
                array_fini(&s->servers[i].out);
                array_fini(&s->servers[i].unproved);
        }
        for (uint32_t n = 0; n < s->machines.len; n++)
                sim_machine_fini(s, n);
        for (size_t i = 0; i < s->events.len; i++)
                sim_event_free(&s->events.at[i]);
        for (size_t i = 0; i < ARRAY_LEN(s->last); i++)
                str_fini(&s->last[i]);
        heap_fini(&s->heap);
        array_fini(&s->events);
        array_fini(&s->free_events);
        array_fini(&s->plan);
        array_fini(&s->conns);
        array_fini(&s->machines);
        array_fini(&s->items);
        array_fini(&s->requests);
        array_fini(&s->started);
        array_fini(&s->hit_numbers);
        map_fini(&s->started_by);
        arena_fini(&s->inbox);
        arena_fini(&s->lies);
        arena_fini(&s->reply);
        store_close(s->store);
        memory_disk_destroy(s->disk);
        if (s->backup) {
                store_close(s->backup);
                memory_disk_destroy(s->backup_disk);
        }
        sim_watch_destroy(s->watch);
}

int sim_run(const struct sim_options *opt, struct sim_result *ret, struct err *err)
{
        struct sim s = { .opt = *opt, .now = START_MS, .err = err };
        int64_t began = clock_mono_ns();
        sim_options_draw(&s.opt);
        world_init(&s);
        for (uint32_t i = 0; i < s.opt.servers; i++)
                sim_server_start(&s, &s.servers[i]);
        for (uint32_t n = 0; n < s.opt.nodes; n++)
                sim_at(&s, s.now + sim_between(&s, CHANCE_RUNTIME, 0, 2000),
                       (struct sim_event){ .kind = EV_AGENT_START, .node = n });
        sim_at(&s, s.now + 1000, (struct sim_event){ .kind = EV_CLIENT });
        sim_faults_plan(&s);
        run_until(&s, s.end_ms);
        if (!sim_failed(&s))
                calm_down(&s);
        finish(&s);
        s.result.real_ns = clock_mono_ns() - began;
        if (sim_failed(&s) && !opt->quiet)
                print_last_events(&s);
        s.result.planned = (uint32_t)s.plan.len;
        if (opt->want_numbers) {
                s.result.numbers = TAKE_PTR(s.hit_numbers.at);
                s.result.n_numbers = s.hit_numbers.len;
                s.hit_numbers.len = s.hit_numbers.cap = 0;
        }
        *ret = s.result;
        world_fini(&s);
        return 0;
}
