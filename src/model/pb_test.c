/* Tests of model/pb.h. */
#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/mem.h"
#include "events.pb-c.h"
#include "model/path.h"
#include "model/pb.h"
#include "model/random_message.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const ProtobufCMessageDescriptor *const all_types[] = {
        &pb__workload__descriptor, &pb__event__descriptor, &pb__agent_message__descriptor,
        &pb__explanation__descriptor, &pb__node__descriptor
};

static void every_message_survives_packing_and_copying(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str packed = STR_INIT;
        struct err err = { 0 };
        struct rng rng;

        (void)state;
        rng_seed(&rng, 1);
        for (int round = 0; round < 1000; round++) {
                const ProtobufCMessageDescriptor *type =
                    all_types[rng_below(&rng, ARRAY_LEN(all_types))];
                ProtobufCMessage *m = random_message(&arena, &rng, type, 600000), *back, *copy;
                size_t n;
                str_clear(&packed);
                pb_pack(&packed, m);
                assert_memory_equal(pb_pack_arena(&arena, m, &n), str_c(&packed), packed.len);
                assert_int_equal(n, packed.len);
                if (pb_unpack(type, packed.buf, packed.len, &arena, &back, &err) < 0)
                        fail_msg("round %d: %s", round, err_line(&err));
                copy = pb_clone(&arena, back);
                assert_true(pb_equal(m, back));
                assert_true(pb_equal(copy, m));
                assert_int_equal(pb_unpack_own(type, packed.buf, packed.len, &arena, &back, &err),
                                 0);
                assert_true(pb_equal(copy, back));
                arena_reset(&arena);
        }
        str_fini(&packed);
        arena_fini(&arena);
}

static void assert_same_bytes(struct arena *arena, const ProtobufCMessage *m)
{
        size_t want = protobuf_c_message_get_packed_size(m), n, with_tail;
        uint8_t *by_library = arena_alloc(arena, want + 1), *ours = pb_pack_arena(arena, m, &n);
        uint8_t *longer = pb_pack_before(arena, m, "tail", 4, &with_tail);

        protobuf_c_message_pack(m, by_library);
        assert_int_equal(n, want);
        assert_memory_equal(ours, by_library, n);
        assert_int_equal(with_tail, n + 4);
        assert_memory_equal(longer, by_library, n);
        assert_memory_equal(longer + n, "tail", 4);
}

static void packing_gives_the_bytes_of_the_library(void **state)
{
        static const uint32_t chances[] = { 0, 50000, 600000, 1000000 };
        struct arena arena = ARENA_INIT;
        struct rng rng;

        (void)state;
        rng_seed(&rng, 2);
        for (int round = 0; round < 2000; round++) {
                const ProtobufCMessageDescriptor *type =
                    all_types[rng_below(&rng, ARRAY_LEN(all_types))];
                assert_same_bytes(&arena, random_message(&arena, &rng, type, chances[round % 4]));
                arena_reset(&arena);
        }
        arena_fini(&arena);
}

/* Around the size of the buffer on the stack, and for what this version does not know. */
static void packing_leaves_large_and_foreign_messages_to_the_library(void **state)
{
        struct arena arena = ARENA_INIT;
        Pb__Event e = PB__EVENT__INIT;
        Pb__LogChunk chunk = PB__LOG_CHUNK__INIT;
        char *text = arena_alloc(&arena, 40001);

        (void)state;
        for (size_t len = 16300; len < 16400; len++) {
                memset(text, 'x', len);
                text[len] = '\0';
                e.message = text;
                assert_same_bytes(&arena, &e.base);
        }
        memset(text, 'y', 40000);
        chunk.data = (ProtobufCBinaryData){ 40000, (uint8_t *)text };
        assert_same_bytes(&arena, &chunk.base);
        chunk.data = (ProtobufCBinaryData){ 0, NULL };
        assert_same_bytes(&arena, &chunk.base);
        ProtobufCMessageUnknownField unknown = { .tag = 999,
                                                 .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT,
                                                 .len = 1,
                                                 .data = (uint8_t *)"\x07" };
        e.message = "x";
        e.base.n_unknown_fields = 1;
        e.base.unknown_fields = &unknown;
        assert_same_bytes(&arena, &e.base);
        arena_fini(&arena);
}

/* A message that was cut inside a character would be refused by whoever reads it: a peer, or the
 * store at its next start. R: A9 */
static void text_that_is_not_utf8_is_mended_when_packed(void **state)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        (void)state;
        for (size_t more = 0; more < 100000; more += 50000) { /* on the stack, and larger */
                Pb__Event ev = PB__EVENT__INIT;
                ProtobufCMessage *back = NULL;
                size_t len;
                ev.message = (char *)"cut \xC3";
                ev.node_id = (char *)"caf\xC3\xA9";
                ev.action = arena_bytes(&arena, more + 1);
                memset(ev.action, 'a', more);
                ev.action[more] = '\0';
                void *packed = pb_pack_arena(&arena, &ev.base, &len);
                assert_int_equal(
                    pb_unpack(&pb__event__descriptor, packed, len, &arena, &back, &err), 0);
                assert_string_equal(((Pb__Event *)back)->message, "cut ?");
                assert_string_equal(((Pb__Event *)back)->node_id, "caf\xC3\xA9");
        }
        arena_fini(&arena);
}

static void refuses(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                    const char *path)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m;

        assert_int_equal(pb_unpack(type, data, len, &arena, &m, &err), -ERR_INVALID);
        assert_string_equal(err.path, path);
        arena_fini(&arena);
}

/* R: A9 */
static void foreign_bytes_are_looked_at_first(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str many = STR_INIT;
        ProtobufCMessage *m;

        (void)state;
        assert_int_equal(pb_unpack(&pb__workload__descriptor, NULL, 0, &arena, &m, NULL), 0);
        refuses(&pb__workload__descriptor, "\x0a\x02\xff\xfe", 4, "id"); /* not UTF-8 */
        refuses(&pb__workload__descriptor,
                "\x0a\x03"
                "a\0b",
                5, "id"); /* a NUL */
        refuses(&pb__workload__descriptor,
                "\x0a\x05"
                "ab",
                4, "id");                                        /* cut off */
        refuses(&pb__workload__descriptor, "\x08\x01", 2, "id"); /* a number where text belongs */
        refuses(&pb__workload__descriptor, "\x32\x04\x0a\x02\xff\xff", 6, "spec.command[0]");
        /* a group: unknown wire type */
        refuses(&pb__workload__descriptor, "\x0b", 1, "id");
        /* field 0 */
        refuses(&pb__workload__descriptor, "\x00\x01", 2, "");
        /* endless number */
        refuses(&pb__workload__descriptor, "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12,
                "type");
        /* absurd length */
        refuses(&pb__workload__descriptor, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11,
                "id");
        for (int i = 0; i <= PB_MAX_MESSAGES; i++)
                str_add(&many, "\x62\x00", 2); /* units: one empty message in two bytes */
        refuses(&pb__hello__descriptor, many.buf, many.len, "units[499999]");
        str_fini(&many);
        arena_fini(&arena);
}

/* R: A10 */
static void fields_of_a_newer_peer_are_dropped(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str packed = STR_INIT;
        ProtobufCMessage *m;

        (void)state;
        assert_int_equal(pb_unpack(&pb__workload__descriptor,
                                   "\x0a\x01"
                                   "a\xfa\x3f\x02hi\x32\x03\xf8\x3f\x05",
                                   13, &arena, &m, NULL),
                         0);
        pb_pack(&packed, m);
        assert_int_equal(packed.len, 5); /* id, and an empty spec */
        str_fini(&packed);
        arena_fini(&arena);
}

static void damaged_bytes_do_no_harm(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str packed = STR_INIT;
        struct rng rng;

        (void)state;
        rng_seed(&rng, 2);
        for (int round = 0; round < 10000; round++) {
                const ProtobufCMessageDescriptor *type =
                    all_types[rng_below(&rng, ARRAY_LEN(all_types))];
                ProtobufCMessage *m;
                str_clear(&packed);
                pb_pack(&packed, random_message(&arena, &rng, type, 300000));
                size_t len = rng_below(&rng, 2) ? packed.len : rng_below(&rng, packed.len + 1);
                uint8_t *bytes = mem_dup(str_c(&packed), len ? len : 1);
                for (int i = 0; len > 0 && i < 3; i++)
                        bytes[rng_below(&rng, len)] = (uint8_t)rng_next(&rng);
                if (pb_unpack(type, bytes, len, &arena, &m, NULL) == 0) {
                        (void)pb_normalise_maps(m, NULL);
                        (void)pb_clone(&arena, m);
                }
                (void)pb_unpack_own(type, bytes, len, &arena, &m, NULL);
                mem_free(bytes);
                arena_reset(&arena);
        }
        str_fini(&packed);
        arena_fini(&arena);
}

static void maps_are_kept_in_order(void **state)
{
        struct arena arena = ARENA_INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        struct err err = { 0 };

        (void)state;
        assert_null(pb_map_get(w.labels, w.n_labels, "a"));
        pb_map_set(&arena, &w.base, "labels", "b", "2");
        pb_map_set(&arena, &w.base, "labels", "a", "1");
        pb_map_set(&arena, &w.base, "labels", "c", "3");
        pb_map_set(&arena, &w.base, "labels", "b", "4");
        assert_int_equal(w.n_labels, 3);
        assert_string_equal(w.labels[0]->key, "a");
        assert_string_equal(w.labels[2]->key, "c");
        assert_string_equal(pb_map_get(w.labels, w.n_labels, "b"), "4");
        w.labels[0]->key = (char *)"z";
        assert_int_equal(pb_normalise_maps(&w.base, &err), 0);
        assert_string_equal(w.labels[0]->key, "b");
        assert_string_equal(w.labels[2]->key, "z");
        w.labels[0]->key = (char *)"z";
        assert_int_equal(pb_normalise_maps(&w.base, &err), -ERR_INVALID);
        assert_string_equal(err.path, "labels.z");
        arena_fini(&arena);
}

static void values_are_counted(void **state)
{
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;
        char *command[] = { (char *)"a", (char *)"b" };

        (void)state;
        w.id = (char *)"x";
        spec.n_command = 2;
        spec.command = command;
        assert_int_equal(pb_count(&w.base, &w.base.descriptor->fields[0]), 1);
        assert_int_equal(pb_count(&spec.base, &spec.base.descriptor->fields[0]), 2);
        assert_int_equal(pb_count(&w.base, &w.base.descriptor->fields[1]), 0);
}

static void paths_are_safe_to_print(void **state)
{
        struct path_step top = { .name = "labels", .name_len = 6 },
                         key = { .up = &top, .name = "a\x1b[31m\"\xff\xc3\xa9", .name_len = 10 };
        char buf[PATH_TEXT_LEN], long_name[300];
        struct path_step long_key = { .up = &top,
                                      .name = long_name,
                                      .name_len = sizeof(long_name) },
                         deep[200];

        (void)state;
        assert_string_equal(path_text(NULL, buf), "");
        assert_string_equal(path_text(&key, buf), "labels[\"a?[31m??\xc3\xa9\"]");
        memset(long_name, 'x', sizeof(long_name));
        assert_true(strlen(path_text(&long_key, buf)) < 80);
        for (size_t i = 0; i < ARRAY_LEN(deep); i++)
                deep[i] = (struct path_step){ .up = i ? &deep[i - 1] : NULL, .index = i };
        assert_int_equal(strlen(path_text(&deep[ARRAY_LEN(deep) - 1], buf)), PATH_TEXT_LEN - 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_message_survives_packing_and_copying),
                cmocka_unit_test(packing_gives_the_bytes_of_the_library),
                cmocka_unit_test(packing_leaves_large_and_foreign_messages_to_the_library),
                cmocka_unit_test(foreign_bytes_are_looked_at_first),
                cmocka_unit_test(text_that_is_not_utf8_is_mended_when_packed),
                cmocka_unit_test(fields_of_a_newer_peer_are_dropped),
                cmocka_unit_test(damaged_bytes_do_no_harm),
                cmocka_unit_test(maps_are_kept_in_order),
                cmocka_unit_test(values_are_counted),
                cmocka_unit_test(paths_are_safe_to_print),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
