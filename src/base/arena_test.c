/* base/arena_test.c: what must hold for memory of one step, and for growable arrays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/array.h"

#include <string.h>

static void memory_is_zeroed_aligned_and_apart(void **state _unused_)
{
        struct arena a = ARENA_INIT;

        for (int round = 0; round < 3; round++) {
                char *before = NULL;
                for (size_t size = 0; size < 3000; size += 7) {
                        char *p = arena_alloc(&a, size);
                        assert_int_equal((uintptr_t)p % 16, 0);
                        for (size_t i = 0; i < size; i++)
                                assert_int_equal(p[i], 0);
                        memset(p, 0x5A, size);
                        assert_true(p != before);
                        before = p;
                }
                arena_reset(&a);
        }
        arena_fini(&a);
        assert_null(a.head);
}

static void a_large_request_does_not_waste_the_block(void **state _unused_)
{
        struct arena a = ARENA_INIT;
        char *first = arena_alloc(&a, 16);
        char *large = arena_alloc(&a, 10 << 20);

        memset(large, 1, 10 << 20);
        assert_ptr_equal(arena_alloc(&a, 16), first + 16);
        arena_reset(&a);
        arena_alloc(&a, 10 << 20); /* as the first one */
        arena_reset(&a);
        arena_fini(&a);
}

static void a_reset_keeps_one_small_block(void **state _unused_)
{
        struct arena a = ARENA_INIT;

        for (int i = 0; i < 100; i++)
                arena_alloc(&a, 5000);
        arena_alloc(&a, 1 << 20);
        arena_reset(&a);
        void *kept = arena_alloc(&a, 1);
        for (int round = 0; round < 10; round++) {
                arena_reset(&a);
                assert_ptr_equal(arena_alloc(&a, 1), kept);
                for (int i = 0; i < 100; i++)
                        arena_alloc(&a, 5000);
        }
        arena_fini(&a);
}

static void texts_are_copied(void **state _unused_)
{
        struct arena a = ARENA_INIT;
        char long_text[1000];

        assert_string_equal(arena_strdup(&a, "node"), "node");
        assert_string_equal(arena_strndup(&a, "node", 2), "no");
        assert_string_equal(arena_strndup(&a, "node", 20), "node");
        assert_null(arena_strdup(&a, NULL));
        assert_memory_equal(arena_dup(&a, "a\0b", 3), "a\0b", 3);
        assert_non_null(arena_dup(&a, NULL, 0));
        assert_string_equal(arena_printf(&a, "%s-%d", "n", 7), "n-7");
        memset(long_text, 'x', 999);
        long_text[999] = '\0';
        assert_int_equal(strlen(arena_printf(&a, "%s%s", long_text, long_text)), 1998);
        int *numbers = arena_new_n(&a, int, 10);
        assert_int_equal(numbers[9], 0);
        arena_fini(&a);
}

static void messages_can_live_in_it(void **state _unused_)
{
        struct arena a = ARENA_INIT;
        struct arena_allocator alloc = arena_allocator(&a);
        char *p = alloc.alloc(alloc.data, 100);

        memset(p, 1, 100);
        alloc.free(alloc.data, p);
        assert_int_equal(p[99], 1);
        arena_fini(&a);
}

static void arrays_grow_and_keep_their_elements(void **state _unused_)
{
        ARRAY(int) numbers = { 0 };

        for (int i = 0; i < 1000; i++) {
                int *n = array_push(&numbers);
                assert_int_equal(*n, 0);
                *n = i;
        }
        assert_int_equal(numbers.len, 1000);
        assert_true(numbers.cap >= 1000 && numbers.cap <= 2000);
        assert_int_equal(array_pop(&numbers), 999);
        for (size_t i = 0; i < numbers.len; i++)
                assert_int_equal(numbers.at[i], i);
        array_clear(&numbers);
        assert_int_equal(*array_push(&numbers), 0);
        array_reserve(&numbers, 5000);
        assert_int_equal(numbers.cap, 5000);
        array_fini(&numbers);
        assert_null(numbers.at);
        assert_int_equal(numbers.cap, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(memory_is_zeroed_aligned_and_apart),
                cmocka_unit_test(a_large_request_does_not_waste_the_block),
                cmocka_unit_test(a_reset_keeps_one_small_block),
                cmocka_unit_test(texts_are_copied),
                cmocka_unit_test(messages_can_live_in_it),
                cmocka_unit_test(arrays_grow_and_keep_their_elements),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
