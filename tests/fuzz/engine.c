/* What a server (or whoever answers at its address), a runtime and a disk say to an agent's engine,
 * in any order: the engine's rules hold after each, and it comes to rest. The orders are carried
 * out as a runtime would, so that starts and stops get their answers.
 *
 * Frames: 0 a message of the server; 1 connected; 2 disconnected; 3 time passes (2 bytes:
 * hundredths of a second); 4 the oldest order that waits is answered (1 byte: how); 5 a unit ends
 * by itself (1 byte: which); 6 a unit's record, 7 the agent's own (both before the boot); 8 a
 * record cannot be written. */
#include "agent/engine.h"
#include "base/array.h"
#include "frames.h"
#include "fuzz.h"

const uint8_t frame_kinds = 9;

const ProtobufCMessageDescriptor *frame_type(const struct frame *f, size_t *ret_offset)
{
        *ret_offset = 0;
        return f->kind == 0   ? &pb__server_message__descriptor
               : f->kind == 6 ? &pb__unit_record__descriptor
               : f->kind == 7 ? &pb__agent_record__descriptor
                              : NULL;
}

struct answer {
        enum runtime_event_kind kind;
        char *id;
        struct unit_token token;
};
struct play {
        struct engine *e;
        struct arena memory;
        int64_t now;
        bool booted;
        ARRAY(struct answer) waiting, running;
};

static void tell(struct play *p, enum runtime_event_kind kind, const struct answer *a, uint8_t how)
{
        struct runtime_event ev = { .kind = kind,
                                    .workload_id = a->id,
                                    .token = a->token,
                                    .revision_id = "rev-1",
                                    .at_ms = p->now,
                                    .pid = 7 };
        ev.has_exit_code = how & 1;
        ev.exit_code = how >> 3;
        ev.has_signal = !(how & 1);
        ev.signal = how & 2 ? 9 : 11;
        ev.oom = how & 4;
        engine_event(p->e, &ev, p->now);
}

static void carry_out(struct play *p, const struct engine_order *o)
{
        enum runtime_event_kind kind = o->kind == ORDER_START  ? RUNTIME_STARTED
                                       : o->kind == ORDER_STOP ? RUNTIME_STOPPED
                                                               : RUNTIME_REMOVED;
        if (o->kind == ORDER_START) {
                struct err err;
                ProtobufCMessage *m;
                MUST(pb_unpack_own(&pb__workload__descriptor, o->data, o->len, &p->memory, &m,
                                   &err) == 0,
                     "a start has a definition");
        } else if (o->kind != ORDER_STOP && o->kind != ORDER_REMOVE)
                return;
        MUST(id_is_valid(o->workload_id), "an id becomes a file's name: \"%s\"", o->workload_id);
        *array_push(&p->waiting) =
            (struct answer){ kind, arena_strdup(&p->memory, o->workload_id), o->token };
}

static void settle(struct play *p)
{
        struct engine_output *out;
        struct err err = { 0 };
        for (int turns = 0; (out = engine_take(p->e)); turns++) {
                MUST(turns < 1000, "the engine comes to rest");
                for (size_t i = 0; i < out->n_orders; i++)
                        carry_out(p, &out->orders[i]);
                for (size_t i = 0; i < out->n_messages; i++) {
                        ProtobufCMessage *m = NULL;
                        MUST(pb_unpack_own(&pb__agent_message__descriptor, out->messages[i].data,
                                           out->messages[i].len, &p->memory, &m, &err) == 0,
                             "%s", err_line(&err));
                }
                engine_output_free(out);
        }
        MUST(engine_check(p->e, &err) >= 0, "%s %s", err_line(&err), err.detail);
        const char *reason;
        int64_t retry_ms;
        if (engine_wants_close(p->e, &reason, &retry_ms)) {
                MUST(retry_ms >= 0, "a wait is not negative");
                engine_disconnected(p->e, p->now);
        }
}

static void answer(struct play *p, uint8_t how)
{
        if (p->waiting.len == 0)
                return;
        struct answer a = p->waiting.at[0];
        memmove(p->waiting.at, p->waiting.at + 1, (p->waiting.len - 1) * sizeof(a));
        p->waiting.len--;
        if (a.kind == RUNTIME_STARTED && how % 5 == 4)
                a.kind = RUNTIME_START_FAILED;
        for (size_t i = 0; i < p->running.len; i++)
                if (str_eq(p->running.at[i].id, a.id)) {
                        p->running.at[i] = p->running.at[--p->running.len];
                        break;
                }
        if (a.kind == RUNTIME_STARTED)
                *array_push(&p->running) = a;
        tell(p, a.kind, &a, how);
}

static void boot(struct play *p)
{
        if (p->booted)
                return;
        p->booted = true;
        engine_booted(p->e, p->now);
        settle(p);
}

static void play(struct play *p, const struct frame *f)
{
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        uint8_t how = f->len ? f->data[0] : 0;
        if (f->kind == 6 || f->kind == 7) {
                if (!p->booted &&
                    (f->kind == 6 ? engine_load_unit(p->e, f->data, f->len, &err)
                                  : engine_load_agent(p->e, f->data, f->len, &err)) < 0)
                        must_explain(&err);
                return;
        }
        boot(p);
        switch (f->kind) {
        case 0:
                if (pb_unpack(&pb__server_message__descriptor, f->data, f->len, &p->memory, &m,
                              &err) == 0)
                        engine_message(p->e, (Pb__ServerMessage *)m, p->now);
                break;
        case 1:
                engine_connected(p->e, p->now);
                break;
        case 2:
                engine_disconnected(p->e, p->now);
                break;
        case 3:
                p->now += f->len >= 2 ? 10 * ((int64_t)how | (int64_t)f->data[1] << 8) : 100;
                engine_tick(p->e, p->now);
                break;
        case 4:
                answer(p, how);
                break;
        case 5:
                if (p->running.len) {
                        size_t i = how % p->running.len;
                        struct answer a = p->running.at[i];
                        p->running.at[i] = p->running.at[--p->running.len];
                        tell(p, RUNTIME_EXITED, &a, how);
                }
                break;
        case 8:
                engine_persist_failed(p->e, how & 1 ? "a" : NULL, "no space", p->now);
                break;
        default:
                return;
        }
        settle(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct frame frames[FRAMES_MAX];
        size_t n = frames_read(data, size, frames);
        static const Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process, 0 };
        struct play p = { .now = INT64_C(1767225600000) };
        p.e = engine_create(&(struct engine_options){ .node_id = "n1",
                                                      .instance = "01",
                                                      .agent_version = "1",
                                                      .agent_endpoint = "",
                                                      .cpu = 4000,
                                                      .memory_mb = 1024,
                                                      .disk_gb = 10,
                                                      .types = types,
                                                      .max_units = 16,
                                                      .max_starting = 2 });
        for (size_t i = 0; i < n; i++)
                play(&p, &frames[i]);
        boot(&p);
        for (int i = 0; i < 40; i++) {
                int64_t next = engine_next_ms(p.e);
                MUST(next > p.now || i < 39, "the engine never rests");
                p.now = next == INT64_MAX || next < p.now ? p.now + 1000
                        : next > p.now + 60000            ? p.now + 60000
                                                          : next;
                engine_tick(p.e, p.now);
                settle(&p);
                answer(&p, (uint8_t)i);
                settle(&p);
        }
        engine_destroy(p.e);
        array_fini(&p.waiting);
        array_fini(&p.running);
        arena_fini(&p.memory);
        return 0;
}
