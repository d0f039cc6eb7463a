/* base/mem_test.c: what must hold for memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base_testlib.h"
#include "base/mem.h"

#include <string.h>

static void memory_is_zeroed_and_never_null(void **state _unused_)
{
        for (size_t size = 0; size < 5000; size += 499) {
                char *p = mem_must(size);
                assert_non_null(p);
                for (size_t i = 0; i < size; i++)
                        assert_int_equal(p[i], 0);
                mem_free(p);
        }
        mem_free(mem_bytes(0));
        mem_free(NULL);
}

static void a_resize_keeps_the_bytes(void **state _unused_)
{
        char *p = mem_must_resize(NULL, 0);

        assert_non_null(p);
        p = mem_must_resize(p, 1000);
        memset(p, 1, 1000);
        p = mem_must_resize(p, 1 << 20);
        p = mem_must_resize(p, 500);
        for (int i = 0; i < 500; i++)
                assert_int_equal(p[i], 1);
        mem_free(p);
}

static void copies_are_exact(void **state _unused_)
{
        _cleanup_(mem_freep) char *a = mem_strdup("node");
        _cleanup_(mem_freep) char *b = mem_strndup("node", 2);
        _cleanup_(mem_freep) char *c = mem_dup("a\0b", 3);
        _cleanup_(mem_freep) char *d = mem_dup(NULL, 0);

        assert_string_equal(a, "node");
        assert_string_equal(b, "no");
        assert_memory_equal(c, "a\0b", 3);
        assert_non_null(d);
        assert_null(mem_strdup(NULL));
        assert_null(mem_strndup(NULL, 3));
}

static void ask_too_much(void)
{
        mem_must(SIZE_MAX);
}

static void grow_too_much(void)
{
        mem_must_resize(mem_must(10), SIZE_MAX);
}

static void no_memory_ends_the_process_with_a_sentence(void **state _unused_)
{
        void (*const ways[])(void) = { ask_too_much, grow_too_much };
        char text[512];

        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
                assert_int_equal(exit_status_of(ways[i], text, sizeof(text)), 6);
                assert_non_null(strstr(text, "berth: out of memory: 18446744073709551615 bytes"));
                assert_non_null(strstr(text, "start it again"));
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(memory_is_zeroed_and_never_null),
                cmocka_unit_test(a_resize_keeps_the_bytes),
                cmocka_unit_test(copies_are_exact),
                cmocka_unit_test(no_memory_ends_the_process_with_a_sentence),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
