/* What agents and users say to the core, in any order: messages pass the same checks as in the
 * server, the invariants hold after each, and the events fold to the same state.
 *
 * Frames: 0, 1, 2 a message on that stream; 3 time passes (2 bytes: seconds, little-endian); 4 a
 * stream ends (1 byte: which); 5 to 15 a user asks. */
#include "frames.h"
#include "fuzz.h"
#include "fuzz_core.h"

#define STREAMS 3

static const struct {
        const ProtobufCMessageDescriptor *type;
        enum input_kind kind;
} kinds[] = {
        { &pb__agent_message__descriptor, INPUT_HELLO },
        { &pb__agent_message__descriptor, INPUT_HELLO },
        { &pb__agent_message__descriptor, INPUT_HELLO },
        { NULL, INPUT_TICK },
        { NULL, INPUT_GONE },
        { &pb__apply_workload_request__descriptor, INPUT_APPLY },
        { &pb__workload_ref__descriptor, INPUT_DELETE },
        { &pb__set_desired_request__descriptor, INPUT_DESIRED },
        { &pb__workload_ref__descriptor, INPUT_RETRY },
        { &pb__set_node_wish_request__descriptor, INPUT_NODE_WISH },
        { &pb__node_ref__descriptor, INPUT_NODE_FORGET },
        { &pb__list_workloads_request__descriptor, INPUT_LIST_WORKLOADS },
        { &pb__set_quota_request__descriptor, INPUT_QUOTA_SET },
        { &pb__tenant_ref__descriptor, INPUT_QUOTA_REMOVE },
        { &pb__apply_workloads_request__descriptor, INPUT_APPLY_MANY },
        { &pb__adopt_request__descriptor, INPUT_ADOPT },
};
const uint8_t frame_kinds = ARRAY_LEN(kinds);

const ProtobufCMessageDescriptor *frame_type(const struct frame *f, size_t *ret_offset)
{
        *ret_offset = 0;
        return f->kind < ARRAY_LEN(kinds) ? kinds[f->kind].type : NULL;
}

struct play {
        struct core *core;
        struct arena memory;
        int64_t now;
        uint64_t sessions[STREAMS], last_session;
        bool greeted[STREAMS];
        struct fuzz_event *events;
        size_t n_events;
        bool word; /* an operator has asked to adopt something */
};

static void say(struct play *p, struct input *in)
{
        in->now_ms = p->now;
        in->request_id = "r";
        in->actor = "fuzz";
        fuzz_core_step(p->core, in, &p->memory, &p->events, &p->n_events);
}

static void end_stream(struct play *p, size_t stream)
{
        if (p->greeted[stream])
                say(p, &(struct input){ .kind = INPUT_GONE, .session = p->sessions[stream] });
        p->greeted[stream] = false;
        p->sessions[stream] = ++p->last_session;
}

/* As server/sessions.c does it: what is wrong ends the stream, a hello comes first and once. */
static void from_agent(struct play *p, size_t stream, Pb__AgentMessage *m)
{
        struct err err = { 0 };
        if (validate_agent_message(m, &err) < 0) {
                must_explain(&err);
                end_stream(p, stream);
                return;
        }
        if ((m->hello != NULL) == p->greeted[stream]) {
                end_stream(p, stream);
                if (!m->hello)
                        return;
        }
        struct input in = { .session = p->sessions[stream] };
        if (m->hello) {
                p->greeted[stream] = true;
                in.kind = INPUT_HELLO;
                in.msg = &m->hello->base;
        } else if (m->heartbeat) {
                in.kind = INPUT_HEARTBEAT;
                in.msg = &m->heartbeat->base;
        } else if (m->units) {
                in.kind = INPUT_UNITS;
                in.msg = &m->units->base;
        } else if (m->definitions) {
                in.kind = INPUT_DEFINITIONS;
                in.msg = &m->definitions->base;
        } else
                return;
        say(p, &in);
}

static void play(struct play *p, const struct frame *f)
{
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        if (f->kind >= ARRAY_LEN(kinds))
                return;
        if (f->kind == 3) {
                p->now +=
                    f->len >= 2 ? 1000 * ((int64_t)f->data[0] | (int64_t)f->data[1] << 8) : 100;
                say(p, &(struct input){ .kind = INPUT_TICK });
                return;
        }
        if (f->kind == 4) {
                end_stream(p, f->len ? f->data[0] % STREAMS : 0);
                return;
        }
        if (pb_unpack(kinds[f->kind].type, f->data, f->len, &p->memory, &m, &err) < 0)
                return;
        if (f->kind < STREAMS) {
                from_agent(p, f->kind, (Pb__AgentMessage *)m);
                return;
        }
        if (request_normalise(&p->memory, m, &err) < 0) {
                must_explain(&err);
                return;
        }
        p->word |= kinds[f->kind].kind == INPUT_ADOPT;
        say(p, &(struct input){ .kind = kinds[f->kind].kind, .msg = m, .reply = 1 });
}

/* Nobody has the key: without an operator's word nothing that an agent says becomes a record
 * (A13). */
static void must_not_be_adopted(const struct play *p)
{
        for (size_t i = 0; i < p->n_events; i++) {
                Pb__Event *e = pb__event__unpack(NULL, p->events[i].len, p->events[i].data);
                MUST(e && e->type != PB__EVENT_TYPE__E__WorkloadAdopted,
                     "%s was adopted without a warrant", e ? e->workload_id : "");
                pb__event__free_unpacked(e, NULL);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct frame frames[FRAMES_MAX];
        size_t n = frames_read(data, size, frames);
        struct play p = { .core = fuzz_core_new(), .now = FUZZ_START_MS };
        for (size_t i = 0; i < STREAMS; i++)
                p.sessions[i] = ++p.last_session;
        say(&p, &(struct input){ .kind = INPUT_START });
        for (size_t i = 0; i < n; i++)
                play(&p, &frames[i]);
        for (int i = 0; i < 8; i++) {
                p.now += 15000;
                say(&p, &(struct input){ .kind = INPUT_TICK });
        }
        if (!p.word)
                must_not_be_adopted(&p);
        fuzz_core_replay(p.core, p.events, p.n_events);
        core_destroy(p.core);
        arena_fini(&p.memory);
        return 0;
}
