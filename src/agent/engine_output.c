/* agent/engine_output.c: what leaves the engine and what comes back from disk: records, orders,
 * messages. No decisions here. */
#include "agent/engine.h"
#include "agent/engine_state.h"
#include "base/arena.h"
#include "base/mutant.h"
#include "base/str.h"
#include "base/wire.h"
#include "model/feature.h"
#include "model/pb.h"
#include <stdlib.h>
#include <string.h>

#define DEFINITIONS_BYTES (1 << 20) /* in one message, and one definition more */
#define DEFINITIONS_AT_ONCE 100
#define REPORT_MAX_UNITS 500 /* per message; a complete list is one message whatever its length */

/* ---- statuses ---- */

static Pb__Token *pack_token(struct arena *a, struct unit_token t)
{
        Pb__Token *m = arena_new(a, Pb__Token);

        pb__token__init(m);
        m->epoch = t.epoch;
        m->seq = t.seq;
        return m;
}

static Pb__IntValue *pack_int(struct arena *a, bool has, int64_t v)
{
        Pb__IntValue *m;

        if (!has)
                return NULL;
        m = arena_new(a, Pb__IntValue);
        pb__int_value__init(m);
        m->value = v;
        return m;
}

/* protobuf-c never writes through these, but its fields are char *. */
static char *text(const char *s)
{
        return (char *)(uintptr_t)(s ? s : "");
}

static Pb__UnitStatus *pack_status(struct arena *a, const struct unit *u)
{
        Pb__UnitStatus *m = arena_new(a, Pb__UnitStatus);

        pb__unit_status__init(m);
        m->unit_id = u->id;
        m->revision_id = u->revision;
        m->token = pack_token(a, u->token);
        m->state = u->state;
        m->exit_code = pack_int(a, u->has_exit_code, u->exit_code);
        m->signal = pack_int(a, u->has_signal, u->signal);
        m->reason = u->reason;
        m->message = text(u->message);
        m->started_at = u->started_at;
        m->finished_at = u->finished_at;
        m->type = u->type;
        m->health = text(u->health);
        return m;
}

static Pb__UnitStatus *pack_notice(struct arena *a, const struct notice *n)
{
        Pb__UnitStatus *m = arena_new(a, Pb__UnitStatus);

        pb__unit_status__init(m);
        m->unit_id = n->id;
        m->revision_id = text(n->revision);
        m->token = pack_token(a, n->token);
        m->state = n->state;
        m->reason = n->reason;
        m->message = text(n->message);
        return m;
}

static int by_id(const void *a, const void *b)
{
        return strcmp((*(Pb__UnitStatus *const *)a)->unit_id,
                      (*(Pb__UnitStatus *const *)b)->unit_id);
}

Pb__UnitStatus *engine_status(const struct engine *e, struct arena *arena, const char *workload_id)
{
        const struct unit *u = engine_find(e, workload_id);

        return u ? pack_status(arena, u) : NULL;
}

Pb__UnitStatus **engine_statuses(const struct engine *e, struct arena *a, size_t *ret_n)
{
        Pb__UnitStatus **list = arena_new_n(a, Pb__UnitStatus *, e->n_units + 1);
        size_t n = 0;

        for (size_t i = 0; i < e->units.len; i++)
                if (e->units.at[i])
                        list[n++] = pack_status(a, e->units.at[i]);
        if (n > 1)
                qsort(list, n, sizeof(*list), by_id);
        *ret_n = n;
        return list;
}

/* ---- messages ---- */

struct builder {
        struct engine *e;
        struct arena *a;
        ARRAY(struct engine_order) orders;
        ARRAY(struct engine_packet) packets;
};

static void send_message(struct builder *b, const Pb__AgentMessage *m, bool urgent)
{
        size_t len;
        void *data = pb_pack_arena(b->a, &m->base, &len);

        *array_push(&b->packets) = (struct engine_packet){ data, len, urgent };
}

static Pb__Cursor *pack_cursor(struct arena *a, struct unit_token t)
{
        Pb__Cursor *m = arena_new(a, Pb__Cursor);

        pb__cursor__init(m);
        m->epoch = t.epoch;
        m->seq = t.seq;
        return m;
}

static void clear_reports(struct engine *e)
{
        for (size_t i = 0; i < e->reports.len; i++) {
                struct unit *u = e->units.at[e->reports.at[i]];

                if (u)
                        u->report = false;
        }
        array_clear(&e->reports);
        e->reports_due = false;
}

static void send_hello(struct builder *b)
{
        struct engine *e = b->e;
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        Pb__Hello h = PB__HELLO__INIT;

        h.node_id = e->node_id;
        h.cluster_id = e->cluster_id;
        h.cpu = e->cpu;
        h.memory_mb = e->memory_mb;
        h.disk_gb = e->disk_gb;
        h.supported_workload_types = e->types;
        h.n_supported_workload_types = e->n_types;
        h.exclusive_types = e->exclusive_types;
        h.n_exclusive_types = e->n_exclusive_types;
        h.labels = arena_new_n(b->a, Pb__Hello__LabelsEntry *, e->labels.len + 1);
        for (size_t i = 0; i < e->labels.len; i++) {
                Pb__Hello__LabelsEntry *l = arena_new(b->a, Pb__Hello__LabelsEntry);

                pb__hello__labels_entry__init(l);
                l->key = text(e->labels.at[i].key);
                l->value = text(e->labels.at[i].value);
                h.labels[h.n_labels++] = l;
        }
        h.agent_version = e->version;
        h.instance = e->instance;
        h.agent_endpoint = e->endpoint;
        h.applied = pack_cursor(b->a, e->cursor);
        h.units = engine_statuses(e, b->a, &h.n_units);
        h.protocol = 1;
        h.stream_credit = true;
        char *features[FEATURES];
        h.n_features = features_list(FEATURE_BIT(FEATURE_PROCESS_CAPABILITIES), features);
        h.features = features;
        m.hello = &h;
        send_message(b, &m, true);
        clear_reports(e);
        e->hello_due = false;
}

static void send_heartbeat(struct builder *b)
{
        struct engine *e = b->e;
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        Pb__Heartbeat h = PB__HEARTBEAT__INIT;
        Pb__NodeUsage usage = PB__NODE_USAGE__INIT;

        usage.cpu_used = e->usage.cpu_used;
        usage.memory_used_mb = e->usage.memory_used_mb;
        usage.disk_used_gb = e->usage.disk_used_gb;
        h.usage = e->usage.known ? &usage : NULL; /* 0 would be a lie */
        h.units_hash = engine_units_hash(e);
        h.units_count = (int32_t)e->n_units;
        h.applied = pack_cursor(b->a, e->cursor);
        h.certificate_begins_at = e->certificate_begins_at;
        h.certificate_expires_at = e->certificate_expires_at;
        h.clock_ms = e->beat_clock_ms > 0 ? e->beat_clock_ms : 0;
        m.heartbeat = &h;
        send_message(b, &m, true);
        e->beat_due = false;
}

static void send_units(struct builder *b, bool complete, Pb__UnitStatus **units, size_t n)
{
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        Pb__UnitReport r = PB__UNIT_REPORT__INIT;

        r.complete = complete;
        r.applied = pack_cursor(b->a, b->e->cursor);
        r.units = units;
        r.n_units = n;
        m.units = &r;
        send_message(b, &m, false);
}

/* Notices first: a Missing and a new unit of the same id can be in one output, in that order. */
static void send_changes(struct builder *b)
{
        struct engine *e = b->e;
        size_t total = e->notices.len + e->reports.len, n = 0, at = 0;
        Pb__UnitStatus **list = arena_new_n(b->a, Pb__UnitStatus *, total + 1);

        for (size_t i = 0; i < e->notices.len; i++)
                list[n++] = pack_notice(b->a, &e->notices.at[i]);
        for (size_t i = 0; i < e->reports.len; i++) {
                struct unit *u = e->units.at[e->reports.at[i]];

                if (!u || !u->report)
                        continue;
                u->report = false;
                list[n++] = pack_status(b->a, u);
        }
        array_clear(&e->reports);
        e->reports_due = false;
        for (; at < n; at += REPORT_MAX_UNITS)
                send_units(b, false, list + at,
                           n - at < REPORT_MAX_UNITS ? n - at : REPORT_MAX_UNITS);
        for (size_t i = 0; i < e->notices.len; i++) {
                mem_free(e->notices.at[i].id);
                mem_free(e->notices.at[i].revision);
                mem_free(e->notices.at[i].message);
        }
        array_clear(&e->notices);
}

/* Every question gets an answer; a unit that is not here, or whose definition was lost, is only its
 * name. */
static Pb__Workload *pack_definition(struct arena *a, const struct engine *e, const char *id)
{
        const struct unit *u = engine_find(e, id);
        struct arena_allocator alloc = arena_allocator(a);
        Pb__Workload *w = u && u->workload ? pb__workload__unpack((ProtobufCAllocator *)&alloc,
                                                                  u->workload_len, u->workload)
                                           : NULL;

        if (!w) {
                w = arena_new(a, Pb__Workload);
                pb__workload__init(w);
                w->id = arena_strdup(a, id);
                return w;
        }
        w->id = arena_strdup(a, id);
        w->revision_id = u->revision;
        w->desired_state = u->desired;
        w->token = pack_token(a, u->token);
        return w;
}

/* (14): as it came. */
static Pb__HeldUnit *pack_held(struct arena *a, struct engine *e, const char *id)
{
        struct unit *u = engine_find(e, id);
        Pb__HeldUnit *m = arena_new(a, Pb__HeldUnit);

        pb__held_unit__init(m);
        m->unit_id = arena_strdup(a, id);
        if (!u || !u->workload)
                return m;
        m->token = pack_token(a, u->token);
        m->desired_state = u->desired;
        m->definition = (ProtobufCBinaryData){ u->workload_len, u->workload };
        m->warrant = (ProtobufCBinaryData){ u->warrant_len, u->warrant };
        return m;
}

static void send_definitions(struct builder *b)
{
        struct engine *e = b->e;
        Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
        size_t bytes = 0;

        if (!e->describe.len)
                return;
        d.units = arena_new_n(b->a, Pb__Workload *, e->describe.len);
        d.held = arena_new_n(b->a, Pb__HeldUnit *, e->describe.len);
        for (size_t i = 0; i < e->describe.len; i++) {
                if (e->describe_held)
                        d.held[d.n_held++] = pack_held(b->a, e, e->describe.at[i]);
                else
                        d.units[d.n_units++] = pack_definition(b->a, e, e->describe.at[i]);
                bytes += e->describe_held ? pb__held_unit__get_packed_size(d.held[d.n_held - 1])
                                          : pb__workload__get_packed_size(d.units[d.n_units - 1]);
                if (bytes >= DEFINITIONS_BYTES || d.n_units + d.n_held >= DEFINITIONS_AT_ONCE ||
                    i + 1 == e->describe.len) {
                        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;

                        m.definitions = &d;
                        send_message(b, &m, false);
                        d.units += d.n_units;
                        d.held += d.n_held;
                        d.n_units = d.n_held = 0;
                        bytes = 0;
                }
        }
        engine_forget_questions(e);
}

static void build_messages(struct builder *b)
{
        struct engine *e = b->e;

        if (!e->connected)
                return;
        if (e->hello_due)
                send_hello(b);
        if (!e->welcome)
                return; /* changes wait for the Welcome */
        bool tell = e->beat_due || e->list_due || e->reports_due || e->notices.len;
        if (tell)
                send_changes(b);
        if (e->beat_due) /* after the changes, which its hash counts already */
                send_heartbeat(b);
        send_definitions(b);
        if (e->list_due) {
                size_t n;
                Pb__UnitStatus **all = engine_statuses(e, b->a, &n);

                send_units(b, true, all, n);
                e->list_due = false;
        }
}

/* ---- records ---- */

/* A field that is packed already, as it stands in the message around it. */
static void *as_field(struct arena *a, unsigned field, const void *data, size_t len,
                      size_t *ret_len)
{
        uint8_t *p = arena_alloc(a, len + WIRE_HEAD_MAX);
        size_t n = wire_put_head(p, field, len);

        memcpy(p + n, data, len);
        *ret_len = n + len;
        return p;
}

/* The definition goes in as it was packed, without a copy on the way. UnitRecord.plan = 1. */
static void persist_unit(struct builder *b, struct unit *u)
{
        Pb__UnitRecord r = PB__UNIT_RECORD__INIT;
        Pb__PlanEntry plan = PB__PLAN_ENTRY__INIT;
        void *data;
        size_t len = 0;

        plan.unit_id = u->id;
        plan.token = pack_token(b->a, u->token);
        plan.desired_state = u->desired;
        if (u->workload) {
                plan.workload = (ProtobufCBinaryData){ u->workload_len, u->workload };
                plan.warrant = (ProtobufCBinaryData){ u->warrant_len, u->warrant };
        }
        data = pb_pack_arena(b->a, &plan.base, &len);
        data = as_field(b->a, 1, data, len, &len);
        if (u->launched_revision && !MUTANT(launch_forgotten)) {
                r.launched_token = pack_token(b->a, u->launched);
                r.launched_revision = u->launched_revision;
                r.launched_boot = text(u->launched_here ? b->e->boot_id : NULL);
        }
        r.suspended = u->suspended;
        r.status = pack_status(b->a, u);
        data = pb_pack_before(b->a, &r.base, data, len, &len);
        *array_push(&b->orders) = (struct engine_order){ .kind = ORDER_PERSIST_UNIT,
                                                         .workload_id = arena_strdup(b->a, u->id),
                                                         .token = u->token,
                                                         .data = data,
                                                         .len = len };
}

static void persist_agent(struct builder *b)
{
        struct engine *e = b->e;
        Pb__AgentRecord r = PB__AGENT_RECORD__INIT;
        void *data;
        size_t len;

        r.node_id = e->node_id;
        r.cluster_id = e->cluster_id;
        r.applied = pack_cursor(b->a, e->cursor);
        data = pb_pack_arena(b->a, &r.base, &len);
        *array_push(&b->orders) =
            (struct engine_order){ .kind = ORDER_PERSIST_AGENT, .data = data, .len = len };
        e->agent_dirty = false;
}

static void build_runtime_orders(struct builder *b)
{
        struct engine *e = b->e;

        if (e->lease_dirty)
                *array_push(&b->orders) =
                    (struct engine_order){ .kind = ORDER_LEASE,
                                           .until_ms = e->lease_until_ms,
                                           .kill_ms = e->lease_until_ms + e->lease_stop_ms };
        e->lease_dirty = false;
        for (size_t i = 0; i < e->orders.len; i++) {
                struct runtime_order *o = &e->orders.at[i];

                *array_push(&b->orders) =
                    (struct engine_order){ .kind = o->kind,
                                           .workload_id = arena_strdup(b->a, o->id),
                                           .token = o->token,
                                           .grace_ms = o->grace_ms,
                                           .data = o->len ? arena_dup(b->a, o->data, o->len) : NULL,
                                           .len = o->len };
                mem_free(o->id);
                mem_free(o->data);
        }
        array_clear(&e->orders);
}

/* Forgets first (a unit may have come back under the same id), then records, then the agent's
 * cursor (a cursor on disk means that the units of that plan are on disk too), then what the
 * runtime does. */
static void build_orders(struct builder *b)
{
        struct engine *e = b->e;

        if (MUTANT(start_before_persist))
                build_runtime_orders(b);
        for (size_t i = 0; i < e->forgets.len; i++) {
                *array_push(&b->orders) =
                    (struct engine_order){ .kind = ORDER_FORGET_UNIT,
                                           .workload_id = arena_strdup(b->a, e->forgets.at[i]) };
                mem_free(e->forgets.at[i]);
        }
        array_clear(&e->forgets);
        for (size_t i = 0; i < e->dirty.len; i++) {
                struct unit *u = e->units.at[e->dirty.at[i]];

                if (!u || !u->dirty || u->run == RUN_REMOVING)
                        continue; /* engine.c (6): marked again when its files are gone */
                u->dirty = false;
                persist_unit(b, u);
        }
        array_clear(&e->dirty);
        if (e->agent_dirty)
                persist_agent(b);
        build_runtime_orders(b);
}

static bool has_output(const struct engine *e)
{
        if (e->forgets.len || e->dirty.len || e->orders.len || e->agent_dirty || e->lease_dirty)
                return true;
        if (!e->connected)
                return false;
        return e->hello_due || (e->welcome && (e->beat_due || e->list_due || e->reports_due ||
                                               e->notices.len || e->describe.len));
}

struct engine_output *engine_take(struct engine *e)
{
        struct builder b = { .e = e };
        struct engine_output *out;

        if (!has_output(e))
                return NULL;
        b.a = mem_must(sizeof(*b.a));
        build_orders(&b);
        build_messages(&b);
        if (!b.orders.len && !b.packets.len) { /* entries that no longer counted */
                arena_fini(b.a);
                mem_free(b.a);
                array_fini(&b.orders);
                array_fini(&b.packets);
                return NULL;
        }
        out = mem_must(sizeof(*out));
        out->orders = b.orders.at;
        out->n_orders = b.orders.len;
        out->messages = b.packets.at;
        out->n_messages = b.packets.len;
        out->memory = b.a;
        return out;
}

void engine_output_free(struct engine_output *out)
{
        if (!out)
                return;
        mem_free(out->orders);
        mem_free(out->messages);
        arena_fini(out->memory);
        mem_free(out->memory);
        mem_free(out);
}

/* ---- loading ---- */

int engine_load_agent(struct engine *e, const void *data, size_t len, struct err *err)
{
        Pb__AgentRecord *r = pb__agent_record__unpack(NULL, len, data);

        if (!r)
                return err_set(
                    err, ERR_CORRUPT, .msg = "the agent's record does not parse",
                    .hint = "move it away: the agent then joins as a new node with what it runs");
        unit_set_text(&e->cluster_id, r->cluster_id, 256);
        if (!e->cluster_id)
                e->cluster_id = mem_strdup("");
        if (r->applied)
                e->cursor = (struct unit_token){ r->applied->epoch, r->applied->seq };
        pb__agent_record__free_unpacked(r, NULL);
        return 0;
}

static void load_status(struct unit *u, const Pb__UnitStatus *s)
{
        u->state = s->state ? s->state : PB__ACTUAL_STATE__E__Unknown;
        u->reason = s->reason;
        unit_set_text(&u->message, s->message, MESSAGE_MAX);
        u->has_exit_code = s->exit_code != NULL;
        u->exit_code = s->exit_code ? (int32_t)s->exit_code->value : 0;
        u->has_signal = s->signal != NULL;
        u->signal = s->signal ? (int32_t)s->signal->value : 0;
        u->started_at = s->started_at;
        u->finished_at = s->finished_at;
        u->type = s->type;
}

int engine_load_unit(struct engine *e, const void *data, size_t len, struct err *err)
{
        Pb__UnitRecord *r = pb__unit_record__unpack(NULL, len, data);
        struct arena arena = ARENA_INIT;
        const Pb__Workload *w;
        struct unit *u;

        if (!r || !r->plan || !r->plan->token || !engine_id_is_safe(r->plan->unit_id)) {
                if (r)
                        pb__unit_record__free_unpacked(r, NULL);
                return err_set(err, ERR_CORRUPT, .msg = "a unit's record does not parse");
        }
        if (engine_find(e, r->plan->unit_id) || e->booted) {
                pb__unit_record__free_unpacked(r, NULL);
                return err_set(err, ERR_CONFLICT,
                               .msg = "a unit's record was loaded twice or too late");
        }
        u = engine_unit_new(e, r->plan->unit_id);
        u->token = (struct unit_token){ r->plan->token->epoch, r->plan->token->seq };
        u->desired = r->plan->desired_state;
        if (r->status)
                load_status(u, r->status);
        w = engine_read_definition(&arena, r->plan);
        if (w) /* what it cannot read it does not know */
                engine_take_definition(e, u, r->plan, w);
        arena_fini(&arena);
        if (r->launched_token) {
                u->launched =
                    (struct unit_token){ r->launched_token->epoch, r->launched_token->seq };
                u->launched_revision = mem_strdup(r->launched_revision ? r->launched_revision : "");
                /* a copy that was found without a record: all that is known is what was launched */
                if (!u->workload)
                        unit_set_string(&u->revision, u->launched_revision);
        }
        u->launched_here = str_eq(r->launched_boot ? r->launched_boot : "", e->boot_id);
        u->suspended = r->suspended;
        pb__unit_record__free_unpacked(r, NULL);
        return 0;
}
