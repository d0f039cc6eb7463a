/* Tests of json_write_packed(): the same text as by unpacking, or none. */
#include "api.pb-c.h"
#include "base/mem.h"
#include "events.pb-c.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/random_message.h"
#include "records.pb-c.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* What etcd keeps as JSON. */
static const ProtobufCMessageDescriptor *const types[] = {
        &pb__event__descriptor,          &pb__workload__descriptor,   &pb__node__descriptor,
        &pb__tombstone__descriptor,      &pb__assignment__descriptor, &pb__retry__descriptor,
        &pb__reconciliation__descriptor, &pb__quota__descriptor,      &pb__outgoing__descriptor,
        &pb__alert__descriptor,          &pb__cluster__descriptor,    &pb__access_token__descriptor,
};

static bool has_unknown(const ProtobufCMessage *m)
{
        bool found = m->n_unknown_fields > 0;
        for (unsigned i = 0; i < m->descriptor->n_fields && !found; i++) {
                const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
                const char *slot = (const char *)m + f->offset;
                if (f->type != PROTOBUF_C_TYPE_MESSAGE)
                        continue;
                if (f->label != PROTOBUF_C_LABEL_REPEATED) {
                        const ProtobufCMessage *sub = *(ProtobufCMessage *const *)slot;
                        found = sub && has_unknown(sub);
                        continue;
                }
                for (size_t k = 0;
                     k < *(const size_t *)((const char *)m + f->quantifier_offset) && !found; k++)
                        found = has_unknown((*(ProtobufCMessage * *const *)slot)[k]);
        }
        return found;
}

/* Whether there was a text. If so it is the one that the long way gives, and no field was lost. */
static bool is_written_the_same(const ProtobufCMessageDescriptor *type, const void *data,
                                size_t len)
{
        _cleanup_(str_finip) struct str text = STR_INIT, expected = STR_INIT;
        struct arena arena = ARENA_INIT;
        struct arena_allocator alloc = arena_allocator(&arena);
        str_adds(&text, "before ");
        str_adds(&expected, "before ");
        bool written = json_write_packed(&text, type, data, len, JSON_ZEROS);
        if (written) {
                ProtobufCMessage *m =
                    protobuf_c_message_unpack(type, (ProtobufCAllocator *)&alloc, len, data);
                assert_non_null(m);
                assert_false(has_unknown(m));
                json_write(&expected, m, JSON_ZEROS);
        }
        assert_int_equal(text.len, strlen(str_c(&text)));
        assert_string_equal(str_c(&text), str_c(&expected));
        arena_fini(&arena);
        return written;
}

/* R: C1 */
static void what_this_program_packs_is_written_without_unpacking(void **state)
{
        static const uint32_t chances[] = { 20000, 200000, 600000, 1000000 };
        struct arena arena = ARENA_INIT;
        struct str packed = STR_INIT;
        struct rng rng;
        unsigned written = 0, rounds = 4000;

        (void)state;
        rng_seed(&rng, 3);
        for (unsigned round = 0; round < rounds; round++) {
                const ProtobufCMessageDescriptor *type = types[rng_below(&rng, ARRAY_LEN(types))];
                str_clear(&packed);
                pb_pack(&packed,
                        random_message(&arena, &rng, type, chances[round % ARRAY_LEN(chances)]));
                written += is_written_the_same(type, str_c(&packed), packed.len);
                arena_reset(&arena);
        }
        /* Where random messages have a zero among an array's enums, or more fields than are looked
         * at, the long way is taken. */
        assert_in_range(written, rounds * 9 / 10, rounds);
        str_fini(&packed);
        arena_fini(&arena);
}

static void bytes_in_any_order_or_damaged_give_the_same_text_or_none(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str packed = STR_INIT;
        struct rng rng;

        (void)state;
        rng_seed(&rng, 4);
        for (int round = 0; round < 30000; round++) {
                const ProtobufCMessageDescriptor *type = types[rng_below(&rng, ARRAY_LEN(types))];
                str_clear(&packed);
                pb_pack(&packed, random_message(&arena, &rng, type, 300000));
                if (rng_below(&rng, 2)) /* the fields of a second one behind those of the first */
                        pb_pack(&packed, random_message(&arena, &rng, type, 50000));
                size_t len = rng_below(&rng, 2) ? packed.len : rng_below(&rng, packed.len + 1);
                uint8_t *bytes = mem_dup(str_c(&packed), len ? len : 1);
                for (uint64_t i = rng_below(&rng, 4); len > 0 && i > 0; i--)
                        bytes[rng_below(&rng, len)] = (uint8_t)rng_next(&rng);
                (void)is_written_the_same(type, bytes, len);
                mem_free(bytes);
                arena_reset(&arena);
        }
        str_fini(&packed);
        arena_fini(&arena);
}

static void fields_are_written_in_their_own_order(void **state)
{
        struct str packed = STR_INIT, text = STR_INIT;
        Pb__Workload a = PB__WORKLOAD__INIT, b = PB__WORKLOAD__INIT;

        (void)state;
        /* as the core does: what it knows itself, and behind it the definition */
        a.assigned_node = (char *)"n1";
        b.id = (char *)"web \"1\"";
        b.restart = PB__RESTART__E__always;
        pb_pack(&packed, &a.base);
        pb_pack(&packed, &b.base);
        assert_true(json_write_packed(&text, &pb__workload__descriptor, str_c(&packed), packed.len,
                                      JSON_ZEROS));
        assert_string_equal(
            str_c(&text),
            "{\"id\":\"web \\\"1\\\"\",\"assigned_node\":\"n1\",\"restart\":\"always\"}");
        str_fini(&packed);
        str_fini(&text);
}

/* As lists have them: each item in two pieces. */
static void nested_messages_in_pieces_are_written_too(void **state)
{
        struct str item = STR_INIT, packed = STR_INIT, text = STR_INIT;
        Pb__Workload a = PB__WORKLOAD__INIT, b = PB__WORKLOAD__INIT;

        (void)state;
        a.assigned_node = (char *)"n1";
        b.id = (char *)"web";
        pb_pack(&item, &a.base);
        pb_pack(&item, &b.base);
        for (int i = 0; i < 2; i++) {
                str_addc(&packed, 1 << 3 | 2);
                str_addc(&packed, (char)item.len);
                str_add(&packed, item.buf, item.len);
        }
        assert_true(is_written_the_same(&pb__list_workloads_response__descriptor, str_c(&packed),
                                        packed.len));
        assert_true(json_write_packed(&text, &pb__list_workloads_response__descriptor,
                                      str_c(&packed), packed.len, JSON_ZEROS));
        assert_string_equal(str_c(&text), "{\"items\":[{\"id\":\"web\",\"assigned_node\":\"n1\"},{"
                                          "\"id\":\"web\",\"assigned_node\":\"n1\"}]}");
        str_fini(&item);
        str_fini(&packed);
        str_fini(&text);
}

static void single_fields_are_found_in_packed_messages(void **state)
{
        struct str packed = STR_INIT;
        Pb__Workload a = PB__WORKLOAD__INIT, b = PB__WORKLOAD__INIT;
        const ProtobufCMessageDescriptor *type = &pb__workload__descriptor;
        size_t len;

        (void)state;
        a.resource_version = UINT64_MAX;
        b.id = (char *)"web";
        pb_pack(&packed, &a.base);
        pb_pack(&packed, &b.base);
        assert_true(json_packed_number(type, str_c(&packed), packed.len, "resource_version") ==
                    UINT64_MAX);
        assert_memory_equal(json_packed_text(type, str_c(&packed), packed.len, "id", &len), "web",
                            3);
        assert_int_equal(len, 3);
        /* of another kind */
        assert_int_equal(json_packed_number(type, str_c(&packed), packed.len, "id"), 0);
        assert_int_equal(json_packed_number(type, str_c(&packed), packed.len, "no_such_field"), 0);
        for (size_t n = 0; n < packed.len; n++) { /* cut off anywhere */
                uint64_t v = json_packed_number(type, str_c(&packed), n, "resource_version");
                assert_true(v == 0 || v == UINT64_MAX);
                (void)json_packed_text(type, str_c(&packed), n, "id", &len);
                assert_true(len == 0 || len == 3);
        }
        (void)json_packed_text(type, NULL, 0, "id", &len);
        assert_int_equal(len, 0);
        str_fini(&packed);
}

/* R: A10 */
static void what_it_would_lose_is_not_written(void **state)
{
        static const struct {
                const char *bytes;
                size_t len;
        } odd[] = {
                { "\x0a\x01x\x80\x7d\x01", 6 }, /* a field of a newer berth */
                { "\x0a\x01x\x0a\x01y", 6 },    /* twice */
                { "\x0a\x03"
                  "a\0b",
                  5 },
                { "\x0a\x05x", 3 },            /* cut off */
                { "\x0d\x01\x00\x00\x00", 5 }, /* not of its kind */
        };
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(odd); i++)
                assert_false(
                    is_written_the_same(&pb__cluster__descriptor, odd[i].bytes, odd[i].len));
        assert_true(is_written_the_same(&pb__cluster__descriptor, "\x0a\x01x", 3));
        /* empty, and yet there */
        assert_true(is_written_the_same(&pb__cluster__descriptor, "\x0a\x00", 2));
        assert_true(is_written_the_same(&pb__cluster__descriptor, NULL, 0));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_this_program_packs_is_written_without_unpacking),
                cmocka_unit_test(bytes_in_any_order_or_damaged_give_the_same_text_or_none),
                cmocka_unit_test(fields_are_written_in_their_own_order),
                cmocka_unit_test(nested_messages_in_pieces_are_written_too),
                cmocka_unit_test(single_fields_are_found_in_packed_messages),
                cmocka_unit_test(what_it_would_lose_is_not_written),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
