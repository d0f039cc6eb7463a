/* Any bytes as packed messages of peers: refused with a message, or unpacked such that validation,
 * JSON and packing hold together. One frame; its kind says which message. */
#include "events.pb-c.h"
#include "frames.h"
#include "fuzz.h"

static const ProtobufCMessageDescriptor *const types[] = {
        &pb__apply_workload_request__descriptor,
        &pb__agent_message__descriptor,
        &pb__list_workloads_request__descriptor,
        &pb__list_events_request__descriptor,
        &pb__set_node_wish_request__descriptor,
        &pb__list_nodes_request__descriptor,
        &pb__workload_ref__descriptor,
        &pb__set_desired_request__descriptor,
        &pb__node_ref__descriptor,
        &pb__logs_request__descriptor,
        &pb__exec_message__descriptor,
        &pb__server_message__descriptor,
        &pb__event__descriptor,
        &pb__error__descriptor,
        &pb__list_nodes_response__descriptor,
        &pb__explanation__descriptor,
        &pb__create_token_request__descriptor,
        &pb__token_ref__descriptor,
        &pb__join_request__descriptor,
        &pb__renew_request__descriptor,
        &pb__certificate__descriptor,
};
const uint8_t frame_kinds = ARRAY_LEN(types);

const ProtobufCMessageDescriptor *frame_type(const struct frame *f, size_t *ret_offset)
{
        *ret_offset = 0;
        return types[f->kind % ARRAY_LEN(types)];
}

static void one(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                struct arena *arena)
{
        struct err err = { 0 };
        ProtobufCMessage *m = NULL, *again = NULL;
        struct str packed = STR_INIT, json = STR_INIT;

        (void)json_write_packed(&json, type, data, size, JSON_ZEROS);
        if (pb_unpack(type, data, size, arena, &m, &err) < 0) {
                must_explain(&err);
        } else {
                pb_pack(&packed, m);
                MUST(pb_unpack(type, str_c(&packed), packed.len, arena, &again, &err) >= 0, "%s",
                     err_line(&err));
                MUST(pb_equal(m, again), "packed and unpacked");
                json_write(&json, m, 0);
                err = (struct err){ 0 };
                if (type == &pb__agent_message__descriptor
                        ? validate_agent_message((const Pb__AgentMessage *)m, &err) < 0
                        : request_normalise(arena, m, &err) < 0)
                        must_explain(&err);
        }
        str_fini(&packed);
        str_fini(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct frame frames[FRAMES_MAX];
        struct arena arena = ARENA_INIT;
        size_t n = frames_read(data, size, frames);
        for (size_t i = 0; i < n && i < 4; i++)
                one(types[frames[i].kind % ARRAY_LEN(types)], frames[i].data, frames[i].len,
                    &arena);
        arena_fini(&arena);
        return 0;
}
