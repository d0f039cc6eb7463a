/* agent/push_register.c: a called agent makes itself known: RegisterNode, then heartbeats, at a
 * server of persys.control.v1.
 *
 *      REGISTER --accepted--> BEAT, every beat_ms, and at once when a unit has changed --any
 *      failure--> REGISTER, after a pause that grows
 */
#include "agent/push_state.h"
#include "base/log.h"
#include "model/json.h"
#include "model/pb.h"
#include "persys_control.pb-c.h"
#include <string.h>

#define CALL_MS 10000
#define BEAT_DEFAULT_MS 10000
/* news wait this long after a heartbeat, so that a storm of them becomes a few */
#define BEAT_NEWS_MS 200
#define STATUSES_MAX 10000

static void retry_in(struct agent_push *p, int64_t ms)
{
        struct timeval tv = { ms / 1000, ms % 1000 * 1000 };

        evtimer_add(p->agent->redial, &tv);
}

static void failed(struct agent_push *p, const char *what, enum grpc_status status,
                   const char *message)
{
        log_at(p->agent->failures == 0 || p->registered ? LOG_WARN : LOG_DEBUG, what,
               LOG_S("node", p->agent->node_id), LOG_S("server", p->agent->fleet->opt->server),
               LOG_S("status", grpc_status_name(status)), LOG_S("message", message));
        p->registered = false;
        retry_in(p, agent_redial_wait_ms(p->agent));
        p->agent->failures++;
}

/* ---- the answers ---- */

static void on_register_message(struct grpc_call *call, const void *data, size_t len)
{
        struct agent_push *p = grpc_call_data(call);
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };

        if (pb_unpack(&pc__register_node_response__descriptor, data, len, &arena, &m, &err) < 0)
                log_warn("the server's answer cannot be read", LOG_S("node", p->agent->node_id),
                         LOG_E(&err));
        else {
                const Pc__RegisterNodeResponse *r = (const Pc__RegisterNodeResponse *)m;

                p->accepted = r->accepted;
                p->beat_ms = r->heartbeat_interval_seconds > 0
                                 ? r->heartbeat_interval_seconds * INT64_C(1000)
                                 : BEAT_DEFAULT_MS;
                if (!r->accepted)
                        log_error("the server refused this agent", LOG_S("node", p->agent->node_id),
                                  LOG_S("reason", r->reason));
        }
        arena_fini(&arena);
}

static void on_register_close(struct grpc_call *call, enum grpc_status status)
{
        struct agent_push *p = grpc_call_data(call);

        p->call = NULL;
        if (p->agent->fleet->stopping)
                return;
        if (status != GRPC_OK || !p->accepted) {
                failed(p, "the agent could not register", status,
                       status == GRPC_OK ? "refused" : grpc_call_message(call));
                return;
        }
        p->registered = true;
        p->agent->failures = 0;
        log_info("registered", LOG_S("node", p->agent->node_id),
                 LOG_S("server", p->agent->fleet->opt->server), LOG_I("heartbeat_ms", p->beat_ms));
        if (!p->welcomed)
                agent_is_welcome(p->agent);
        p->welcomed = true;
        retry_in(p, 0);
}

static void on_beat_close(struct grpc_call *call, enum grpc_status status)
{
        struct agent_push *p = grpc_call_data(call);

        p->call = NULL;
        if (p->agent->fleet->stopping)
                return;
        if (status != GRPC_OK) {
                failed(p, "a heartbeat was not taken; the agent registers again", status,
                       grpc_call_message(call));
                if (status == GRPC_NOT_FOUND) { /* a server that was restarted: at once */
                        p->agent->failures = 0;
                        retry_in(p, 0);
                }
                return;
        }
        p->told_hash = p->sent_hash;
        retry_in(p, p->beat_ms);
        agent_push_turn(p->agent);
}

/* ---- the calls ---- */

static void call_server(struct agent_push *p, const char *path, const ProtobufCMessage *m,
                        const struct grpc_callbacks *callbacks)
{
        struct grpc_call_options o = { .deadline_ms = CALL_MS };
        struct str packed = STR_INIT;

        pb_pack(&packed, m);
        p->call = grpc_channel_call(p->agent->channel, path, &o, callbacks, p);
        grpc_call_send(p->call, str_c(&packed), packed.len);
        grpc_call_half_close(p->call);
        str_fini(&packed);
}

/* What callers of this dialect may ask for: processes come as containers. */
static char **type_names(struct agent_push *p, struct arena *arena, size_t *ret_n)
{
        const struct engine *e = p->agent->engine;
        char **names = arena_new_n(arena, char *, 4);
        size_t n = 0;

        if (engine_runs(e, PB__WORKLOAD_TYPE__E__container) ||
            engine_runs(e, PB__WORKLOAD_TYPE__E__process))
                names[n++] = "container";
        if (engine_runs(e, PB__WORKLOAD_TYPE__E__compose))
                names[n++] = "compose";
        if (engine_runs(e, PB__WORKLOAD_TYPE__E__vm))
                names[n++] = "vm";
        *ret_n = n;
        return names;
}

static void send_register(struct agent_push *p)
{
        static const struct grpc_callbacks callbacks = { .on_message = on_register_message,
                                                         .on_close = on_register_close };
        const struct agent_options *opt = p->agent->fleet->opt;
        struct arena arena = ARENA_INIT;
        struct engine_options has = { 0 };
        Pc__RegisterNodeRequest *r =
            (Pc__RegisterNodeRequest *)pb_new(&arena, &pc__register_node_request__descriptor);
        Pc__StoragePool pool = PC__STORAGE_POOL__INIT, *pools[] = { &pool };

        agent_detect(&has, opt, p->agent->data_dir == NULL);
        p->agent->offers = (struct node_room){ has.cpu, has.memory_mb, has.disk_gb };
        r->node_id = p->agent->node_id;
        r->agent_version = BERTH_VERSION;
        r->grpc_endpoint = p->endpoint;
        r->cluster_id = (char *)(uintptr_t)engine_cluster_id(p->agent->engine);
        r->capabilities =
            (Pc__NodeCapabilities *)pb_new(&arena, &pc__node_capabilities__descriptor);
        r->capabilities->cpu_total_millicores = has.cpu;
        r->capabilities->memory_total_mb = has.memory_mb;
        pool.name = "root";
        pool.type = "local";
        pool.total_gb = has.disk_gb;
        r->capabilities->storage_pools = pools;
        r->capabilities->n_storage_pools = 1;
        r->capabilities->supported_workload_types =
            type_names(p, &arena, &r->capabilities->n_supported_workload_types);
        for (size_t i = 0; i < opt->n_labels; i++)
                pb_map_set(&arena, &r->base, "labels", opt->labels[i].key, opt->labels[i].value);
        p->accepted = false;
        call_server(p, "/persys.control.v1.AgentControl/RegisterNode", &r->base, &callbacks);
        arena_fini(&arena);
}

static void send_beat(struct agent_push *p)
{
        static const struct grpc_callbacks callbacks = { .on_close = on_beat_close };
        struct arena arena = ARENA_INIT;
        struct runtime_usage usage = { 0 };
        Pc__HeartbeatRequest *r =
            (Pc__HeartbeatRequest *)pb_new(&arena, &pc__heartbeat_request__descriptor);
        size_t n;
        Pb__UnitStatus **all = engine_statuses(p->agent->engine, &arena, &n);

        agent_usage(p->agent, &usage);
        r->node_id = p->agent->node_id;
        r->usage = (Pc__NodeUsage *)pb_new(&arena, &pc__node_usage__descriptor);
        r->usage->cpu_used_millicores = usage.cpu_used;
        r->usage->memory_used_mb = usage.memory_used_mb;
        r->usage->disk_used_gb = usage.disk_used_gb;
        r->workload_statuses = arena_new_n(&arena, Pc__WorkloadStatus *, n + 1);
        for (size_t i = 0; i < n && i < STATUSES_MAX; i++) {
                Pc__WorkloadStatus *s =
                    (Pc__WorkloadStatus *)pb_new(&arena, &pc__workload_status__descriptor);
                const char *state =
                    json_enum_name(&pb__actual_state__e__descriptor, (int)all[i]->state);

                s->workload_id = all[i]->unit_id;
                s->state = (char *)(uintptr_t)(state ? state : "Unknown");
                s->message = all[i]->message;
                r->workload_statuses[r->n_workload_statuses++] = s;
        }
        p->sent_hash = engine_units_hash(p->agent->engine);
        p->beat_at_ms = agent_now(p->agent);
        call_server(p, "/persys.control.v1.AgentControl/Heartbeat", &r->base, &callbacks);
        arena_fini(&arena);
}

void push_dial(struct agent_push *p)
{
        if (p->call || p->agent->fleet->stopping)
                return;
        if (p->registered)
                send_beat(p);
        else
                send_register(p);
}

/* News do not wait for the next heartbeat. */
void agent_push_turn(struct agent *a)
{
        struct agent_push *p = a->push;

        if (!p->registered || p->call || engine_units_hash(a->engine) == p->told_hash)
                return;
        int64_t since = agent_now(a) - p->beat_at_ms;
        retry_in(p, since >= BEAT_NEWS_MS ? 0 : BEAT_NEWS_MS - since);
}
