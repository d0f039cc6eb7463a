/* Any bytes as the JSON of a request, of a record or of an answer: refused with a message, or read
 * such that writing and reading again gives the same message. The first byte says which message. */
#include "events.pb-c.h"
#include "fuzz.h"
#include "persys_control.pb-c.h"

static const ProtobufCMessageDescriptor *const types[] = {
        &pb__workload__descriptor,
        &pb__apply_workload_request__descriptor,
        &pb__workload_ref__descriptor,
        &pb__set_desired_request__descriptor,
        &pb__set_node_wish_request__descriptor,
        &pb__list_workloads_request__descriptor,
        &pb__list_events_request__descriptor,
        &pb__exec_message__descriptor,
        &pb__node__descriptor,
        &pb__event__descriptor,
        &pb__error__descriptor,
        &pb__list_workloads_response__descriptor,
        &pb__explanation__descriptor,
        &pb__hello__descriptor,
        &pb__cluster_info__descriptor,
        &pc__apply_workload_request__descriptor,
        &pc__heartbeat_request__descriptor,
        &pc__get_workload_response__descriptor,
        &pb__create_token_request__descriptor,
        &pb__join_request__descriptor,
        &pb__renew_request__descriptor,
};

static void normalise(ProtobufCMessage *m, struct arena *arena)
{
        struct err err = { 0 };
        if (request_normalise(arena, m, &err) < 0) {
                must_explain(&err);
                return;
        }
        /* Idempotent: what was normalised stays as it is. */
        ProtobufCMessage *copy = pb_clone(arena, m);
        MUST(request_normalise(arena, copy, &err) >= 0, "%s", err_line(&err));
        MUST(pb_equal(m, copy), "normalised twice");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m = NULL, *again = NULL;
        if (size == 0)
                return 0;
        size_t which = data[0] < 'A' ? 0 : (size_t)(data[0] - 'A') % ARRAY_LEN(types);
        const ProtobufCMessageDescriptor *type = types[which];
        /* a client reads what a newer server wrote */
        unsigned flags = data[0] >= 'a' ? JSON_IGNORE_UNKNOWN | JSON_INT64_AS_STRING : 0;

        if (json_read(type, (const char *)data + 1, size - 1, 1024 * 1024, flags, &arena, &m,
                      &err) < 0) {
                must_explain(&err);
        } else {
                json_write(&text, m, flags & JSON_INT64_AS_STRING);
                MUST(json_read(type, str_c(&text), text.len, 16 * 1024 * 1024, flags, &arena,
                               &again, &err) >= 0,
                     "%s: %s", err_line(&err), str_c(&text));
                MUST(pb_equal(m, again), "%s", str_c(&text));
                if (which < 8 || which >= 18)
                        normalise(m, &arena);
        }
        str_fini(&text);
        arena_fini(&arena);
        return 0;
}
