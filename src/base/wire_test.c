/* base/wire_test.c: varints and fields, written and read, and what comes of bytes that are
 * wrong. */
#include "base/wire.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void expect(uint64_t v, const char *bytes, size_t len)
{
        uint8_t out[VARINT_MAX];
        const uint8_t *p = out;
        uint64_t back = ~v;

        assert_int_equal(varint_size(v), len);
        assert_int_equal(varint_put(out, v), len);
        assert_memory_equal(out, bytes, len);
        assert_true(varint_take(&p, out + len, &back));
        assert_ptr_equal(p, out + len);
        assert_true(back == v);
}

static void a_number_has_seven_bits_in_each_byte(void **state)
{
        (void)state;
        expect(0, "\x00", 1);
        expect(1, "\x01", 1);
        expect(127, "\x7f", 1);
        expect(128, "\x80\x01", 2);
        expect(300, "\xac\x02", 2);
        expect(16383, "\xff\x7f", 2);
        expect(16384, "\x80\x80\x01", 3);
        expect(UINT32_MAX, "\xff\xff\xff\xff\x0f", 5);
        expect(UINT64_C(1) << 63, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 10);
        expect(UINT64_MAX, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10); /* -1, too */
}

static void every_size_is_read_as_it_was_written(void **state)
{
        (void)state;
        for (unsigned bit = 0; bit < 64; bit++)
                for (int around = -1; around <= 1; around++) {
                        uint64_t v = (UINT64_C(1) << bit) + (uint64_t)(int64_t)around, back = 0;
                        uint8_t out[VARINT_MAX];
                        size_t n = varint_put(out, v);
                        const uint8_t *p = out;

                        assert_int_equal(varint_size(v), n);
                        assert_true(varint_take(&p, out + n, &back) && back == v && p == out + n);
                        for (size_t cut = 0; cut < n; cut++) {
                                p = out;
                                assert_false(varint_take(&p, out + cut, &back));
                                assert_true(p <= out + cut);
                        }
                }
}

static void a_number_ends_after_ten_bytes(void **state)
{
        static const uint8_t long_zero[] = { 0x80, 0x80, 0x80, 0x80, 0x80,
                                             0x80, 0x80, 0x80, 0x80, 0x00 };
        static const uint8_t many_bits[] = { 0xff, 0xff, 0xff, 0xff, 0xff,
                                             0xff, 0xff, 0xff, 0xff, 0x7f };
        static const uint8_t no_end[] = { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                          0x80, 0x80, 0x80, 0x80, 0x00 };
        const uint8_t *p = long_zero;
        uint64_t v = 7;

        (void)state;
        assert_true(varint_take(&p, long_zero + sizeof(long_zero), &v) && v == 0);
        p = many_bits;
        assert_true(varint_take(&p, many_bits + sizeof(many_bits), &v) && v == UINT64_MAX);
        p = no_end;
        v = 7;
        assert_false(varint_take(&p, no_end + sizeof(no_end), &v));
        assert_true(p <= no_end + VARINT_MAX && v == 7);
}

static void a_head_is_a_tag_and_a_length(void **state)
{
        uint8_t out[WIRE_HEAD_MAX];

        (void)state;
        assert_int_equal(wire_put_head(out, 4, 5), 2);
        assert_memory_equal(out, "\x22\x05", 2);
        assert_int_equal(wire_put_head(out, 16, 300), 4);
        assert_memory_equal(out, "\x82\x01\xac\x02", 4);
        assert_int_equal(wire_put_head(out, (1u << 29) - 1, 0), 6);
        assert_memory_equal(out, "\xfa\xff\xff\xff\x0f\x00", 6);
}

static bool take(const char *bytes, size_t len, unsigned type, struct wire_value *ret,
                 size_t *ret_used)
{
        const uint8_t *p = (const uint8_t *)bytes;
        bool r = wire_take(&p, p + len, type, ret);

        *ret_used = (size_t)(p - (const uint8_t *)bytes);
        assert_true(*ret_used <= len);
        return r;
}

static void a_value_is_taken_whole_or_not_at_all(void **state)
{
        struct wire_value v;
        size_t used;

        (void)state;
        assert_true(take("\xac\x02!", 3, WIRE_TYPE_VARINT, &v, &used) && v.n == 300 && used == 2);
        assert_true(take("\x03"
                         "abc!",
                         5, WIRE_TYPE_BYTES, &v, &used) &&
                    v.n == 3 && used == 4);
        assert_memory_equal(v.at, "abc", 3);
        assert_true(take("\x00", 1, WIRE_TYPE_BYTES, &v, &used) && v.n == 0 && used == 1);
        assert_true(take("12345678!", 9, WIRE_TYPE_64BIT, &v, &used) && v.n == 8 && used == 8);
        assert_true(take("1234!", 5, WIRE_TYPE_32BIT, &v, &used) && v.n == 4 && used == 4);
        assert_memory_equal(v.at, "1234", 4);
        assert_false(take("\xac", 1, WIRE_TYPE_VARINT, &v, &used));
        assert_false(take("\x04"
                          "abc",
                          4, WIRE_TYPE_BYTES, &v, &used));
        assert_false(take("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                          "abc",
                          13, WIRE_TYPE_BYTES, &v, &used));
        assert_false(take("1234567", 7, WIRE_TYPE_64BIT, &v, &used));
        assert_false(take("123", 3, WIRE_TYPE_32BIT, &v, &used));
        for (unsigned type = 0; type < 16; type++) /* groups, and what there never was */
                if (type != 0 && type != 1 && type != 2 && type != 5)
                        assert_false(take("12345678", 8, type, &v, &used));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_number_has_seven_bits_in_each_byte),
                cmocka_unit_test(every_size_is_read_as_it_was_written),
                cmocka_unit_test(a_number_ends_after_ten_bytes),
                cmocka_unit_test(a_head_is_a_tag_and_a_length),
                cmocka_unit_test(a_value_is_taken_whole_or_not_at_all),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
