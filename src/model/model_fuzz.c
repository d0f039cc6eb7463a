/* model/model_fuzz.c: libFuzzer's door to everything in model/ that reads foreign bytes (clang
 * only: ninja model_fuzz).
 *
 * The first byte chooses the reader and the message type. What is read must survive being written
 * and read again.
 */
#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "events.pb-c.h"
#include "model/canon.h"
#include "model/json.h"
#include "model/manifest.h"
#include "model/pb.h"
#include "model/selector.h"
#include "model/validate.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const types[] = {
        &pb__workload__descriptor,
        &pb__apply_workload_request__descriptor,
        &pb__hello__descriptor,
        &pb__agent_message__descriptor,
        &pb__list_workloads_request__descriptor,
        &pb__event__descriptor,
        &pb__exec_message__descriptor,
        &pb__server_message__descriptor,
        &pb__apply_workloads_request__descriptor,
};

/* Everything that is done with a message once it is in. */
static void use(struct arena *arena, ProtobufCMessage *m)
{
        struct str text = STR_INIT, again = STR_INIT;
        struct err err = { 0 };
        ProtobufCMessage *back;

        pb_pack(&text, m);
        must(pb_unpack(m->descriptor, text.buf, text.len, arena, &back, &err) == 0,
             "what we pack we unpack");
        must(pb_equal(m, back), "packing keeps everything");
        str_clear(&text);
        if (pb_normalise_maps(m, NULL) == 0) {
                canon_json(&text, m);
                if (json_read(m->descriptor, text.buf, text.len, SIZE_MAX, JSON_IGNORE_UNKNOWN,
                              arena, &back, &err) == 0) {
                        canon_json(&again, back);
                        must(str_eq(str_c(&text), str_c(&again)), "the canonical form is stable");
                }
        }
        str_clear(&text);
        yaml_write(&text, m);
        (void)yaml_read(m->descriptor, "fuzz", text.buf, text.len, arena, &back, &err);
        (void)validate_request(m, &err);
        (void)request_normalise(arena, m, &err);
        str_fini(&text);
        str_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        struct manifest manifest;
        struct selector selector;
        ProtobufCMessage *m;

        if (size == 0)
                return 0;
        const ProtobufCMessageDescriptor *type = types[data[0] / 8 % ARRAY_LEN(types)];
        const char *text = (const char *)data + 1;
        size--;
        switch (data[0] % 8) {
        case 0:
        case 1:
                if (json_read(type, text, size, SIZE_MAX, data[0] % 8 ? JSON_IGNORE_UNKNOWN : 0,
                              &arena, &m, &err) == 0)
                        use(&arena, m);
                break;
        case 2:
        case 3:
                if (pb_unpack(type, text, size, &arena, &m, &err) == 0)
                        use(&arena, m);
                break;
        case 4:
                if (pb_unpack_own(type, text, size, &arena, &m, &err) == 0)
                        (void)pb_clone(&arena, m);
                break;
        case 5:
                if (manifest_read("fuzz", text, size, &arena, &manifest, &err) == 0)
                        for (size_t i = 0; i < manifest.n_items; i++)
                                use(&arena, &manifest.items[i].workload->base);
                break;
        case 6:
                if (yaml_read(type, "fuzz", text, size, &arena, &m, &err) == 0)
                        use(&arena, m);
                break;
        default: {
                char *s = mem_strndup(text, size);
                if (selector_parse(&arena, s, &selector, &err) == 0)
                        (void)selector_match(&selector, NULL, 0);
                mem_free(s);
        }
        }
        arena_fini(&arena);
        return 0;
}
