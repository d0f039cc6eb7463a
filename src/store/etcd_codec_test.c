/* Tests of store/etcd_codec.h: what goes into etcd comes back the same. */
#include "base/mem.h"
#include "events.pb-c.h"
#include "model/badinput.h"
#include "model/pb.h"
#include "store/etcd_codec.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void comes_back(const char *key, const void *data, size_t len, const char *stored_or_null)
{
        struct arena arena = ARENA_INIT;
        _cleanup_(str_finip) struct str value = STR_INIT;
        const void *back;
        size_t back_len;
        etcd_encode(&value, key, data, len);
        if (stored_or_null)
                assert_string_equal(str_c(&value), stored_or_null);
        etcd_decode(&arena, key, str_c(&value), value.len, &back, &back_len);
        assert_int_equal(back_len, len);
        assert_memory_equal(back, data, len);
        arena_fini(&arena);
}

/* R: C1 */
static void records_are_json_and_come_back_the_same(void **state)
{
        struct arena arena = ARENA_INIT;
        (void)state;
        ProtobufCMessage *w = badinput_example(&arena, &pb__workload__descriptor);
        size_t len = protobuf_c_message_get_packed_size(w);
        void *packed = arena_alloc(&arena, len);
        protobuf_c_message_pack(w, packed);
        comes_back("/workloads/web-1", packed, len, NULL);

        Pb__Cluster c = PB__CLUSTER__INIT;
        unsigned char bytes[128];
        c.cluster_id = (char *)"abc";
        c.epoch = UINT64_MAX; /* no number may pass through a double */
        c.schema = 1;
        comes_back("/meta/cluster", bytes, pb__cluster__pack(&c, bytes),
                   "{\"cluster_id\":\"abc\",\"epoch\":18446744073709551615,\"schema\":1}");
        comes_back("/nodes/n1/status", "Ready", 5, "Ready");
        arena_fini(&arena);
}

/* R: A10 */
static void what_is_not_known_is_kept_as_it_is(void **state)
{
        (void)state;
        comes_back("/something/new", "{\"a\":1}", 7, NULL);
        comes_back("/workloads/x", "\xff\xff", 2, NULL); /* does not parse */
        comes_back("/workloads/x", "", 0, NULL);
        /* A field of a newer berth, number 2000: it would be lost in JSON. */
        comes_back("/meta/cluster", "\x0a\x01x\x80\x7d\x01", 6, NULL);
}

/* R: C35 */
static void a_value_that_makes_no_sense_is_given_to_whoever_can_say_so(void **state)
{
        struct arena arena = ARENA_INIT;
        const void *data;
        size_t len;
        (void)state;
        etcd_decode(&arena, "/workloads/x", "{\"id\":7}", 8, &data, &len);
        assert_int_equal(len, 8);
        assert_memory_equal(data, "{\"id\":7}", 8);
        arena_fini(&arena);
}

/* R: A11 */
static void json_is_never_much_larger_than_what_it_says(void **state)
{
        (void)state;
        for (int control = 0; control < 2; control++) {
                _cleanup_(str_finip) struct str value = STR_INIT, packed = STR_INIT;
                _cleanup_(mem_freep) char *text = mem_must(100001);
                Pb__Cluster c = PB__CLUSTER__INIT;
                memset(text, control ? '\1' : 'x', 100000);
                c.cluster_id = text;
                size_t len = pb__cluster__get_packed_size(&c);
                str_reserve(&packed, len);
                pb__cluster__pack(&c, (uint8_t *)packed.buf);
                etcd_encode(&value, "/meta/cluster", packed.buf, len);
                assert_true(value.len <= len + len / 4);
                assert_int_equal(str_c(&value)[0], control ? 0 : '{');
                comes_back("/meta/cluster", packed.buf, len, NULL);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(records_are_json_and_come_back_the_same),
                cmocka_unit_test(what_is_not_known_is_kept_as_it_is),
                cmocka_unit_test(json_is_never_much_larger_than_what_it_says),
                cmocka_unit_test(a_value_that_makes_no_sense_is_given_to_whoever_can_say_so),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
