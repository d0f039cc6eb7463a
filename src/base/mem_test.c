/* base/mem_test.c: what must hold for memory, above all when there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/base_testlib.h"
#include "base/mem.h"
#include "base/str.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define REGION_BYTES (1 << 20)
#define CHUNK_BYTES 4096
#define REGIONS 16

static void *from_reserve(size_t size)
{
        mem_fail_at(1);
        return mem_must(size);
}

static void memory_is_zeroed_and_never_null(void **state _unused_)
{
        for (size_t size = 0; size < 5000; size += 499) {
                char *p = mem_must(size), *q = mem_try(size);
                assert_non_null(p);
                assert_non_null(q);
                for (size_t i = 0; i < size; i++)
                        assert_true(p[i] == 0 && q[i] == 0);
                mem_free(p);
                mem_free(q);
        }
        assert_null(mem_try(SIZE_MAX));
        mem_free(NULL);
        assert_false(mem_low());
        assert_true(mem_refill());
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

static void the_nth_allocation_fails_once(void **state _unused_)
{
        mem_fail_at(3);
        for (int i = 1; i <= 5; i++) {
                void *p = mem_try(10);
                assert_int_equal(p == NULL, i == 3);
                mem_free(p);
        }
        mem_fail_at(1);
        mem_fail_at(0);
        void *p = mem_try(10);
        assert_non_null(p);
        mem_free(p);
        assert_false(mem_low());
}

/* R: A11 */
static void the_reserve_steps_in_and_says_so(void **state _unused_)
{
        char *p = from_reserve(100);

        assert_true(mem_low());
        for (int i = 0; i < 100; i++)
                assert_int_equal(p[i], 0);
        memset(p, 7, 100);
        mem_free(p);
        /* Freed, but the server goes on refusing until somebody has looked. */
        assert_true(mem_low());
        mem_fail_at(1);
        assert_false(mem_refill());
        assert_true(mem_low());
        assert_true(mem_refill());
        assert_false(mem_low());

        p = from_reserve(CHUNK_BYTES);
        memset(p, 7, CHUNK_BYTES);
        mem_free(p);
        p = from_reserve(CHUNK_BYTES);
        for (int i = 0; i < CHUNK_BYTES; i++)
                assert_int_equal(p[i], 0);
        mem_free(p);
        assert_true(mem_refill());
}

static void a_resize_keeps_the_bytes_wherever_they_lie(void **state _unused_)
{
        char *p = mem_must(1000);

        memset(p, 1, 1000);
        mem_fail_at(1);
        p = mem_must_resize(p, 2000); /* heap to reserve */
        assert_true(mem_low());
        memset(p + 1000, 2, 1000);
        char *q = mem_must_resize(p, CHUNK_BYTES); /* has room where it is */
        assert_ptr_equal(p, q);
        mem_fail_at(1);
        p = mem_must_resize(q, 3 * CHUNK_BYTES);  /* reserve to reserve */
        p = mem_must_resize(p, 20 * CHUNK_BYTES); /* reserve to heap */
        memset(p + 2000, 3, 18 * CHUNK_BYTES);
        p = mem_must_resize(p, 1990); /* in the heap, smaller */
        for (int i = 0; i < 1990; i++)
                assert_int_equal(p[i], i < 1000 ? 1 : 2);
        mem_fail_at(1);
        p = mem_must_resize(p, 10); /* even to shrink may fail */
        for (int i = 0; i < 10; i++)
                assert_int_equal(p[i], 1);
        mem_free(p);
        assert_true(mem_refill());
        mem_free(mem_must_resize(NULL, 0));
}

static void all_of_the_reserve_can_be_used_again_and_again(void **state _unused_)
{
        static char *blocks[REGION_BYTES / CHUNK_BYTES];

        for (int round = 0; round < 3; round++) {
                for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
                        blocks[i] = from_reserve(CHUNK_BYTES);
                        memset(blocks[i], (int)i, CHUNK_BYTES);
                }
                for (size_t i = 0; i < ARRAY_LEN(blocks); i++)
                        for (int k = 0; k < CHUNK_BYTES; k += 500)
                                assert_int_equal((unsigned char)blocks[i][k], i);
                for (size_t i = 0; i < ARRAY_LEN(blocks); i += 2)
                        mem_free(blocks[i]);
                for (size_t i = 1; i < ARRAY_LEN(blocks); i += 2)
                        mem_free(blocks[i]);
                mem_free(from_reserve(REGION_BYTES)); /* the holes have grown together */
        }
        assert_true(mem_refill());
}

static void a_block_that_stays_does_not_keep_the_reserve_small(void **state _unused_)
{
        char *kept[REGIONS];
        int n = 0;

        do {
                assert_in_range(n, 0, REGIONS - 1);
                kept[n] = from_reserve(REGION_BYTES / 4 * 3);
                memset(kept[n], n, 10);
                n++;
        } while (mem_refill());
        assert_int_equal(n, REGIONS); /* bounded */
        assert_true(mem_low());
        for (int i = 0; i < n; i++) {
                assert_int_equal(kept[i][9], i);
                mem_free(kept[i]);
        }
        assert_true(mem_refill());
        assert_false(mem_low());
        mem_free(from_reserve(REGION_BYTES));
        assert_true(mem_refill());
}

static void small_blocks_that_stay_never_use_it_up(void **state _unused_)
{
        char *kept[REGIONS * 20];

        for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
                kept[i] = from_reserve(10);
                assert_true(mem_refill());
        }
        for (size_t i = 0; i < ARRAY_LEN(kept); i++)
                mem_free(kept[i]);
        assert_true(mem_refill());
}

static void containers_survive_every_failing_allocation(void **state _unused_)
{
        for (uint64_t nth = 1; nth < 12; nth++) {
                ARRAY(uint64_t) numbers = { 0 };
                struct str s = STR_INIT;
                mem_fail_at(nth);
                for (uint64_t i = 0; i < 500; i++) {
                        *array_push(&numbers) = i;
                        str_addf(&s, "%03d,", (int)i);
                }
                for (uint64_t i = 0; i < 500; i++)
                        assert_int_equal(numbers.at[i], i);
                assert_int_equal(s.len, 2000);
                assert_memory_equal(s.buf + 1996, "499,", 5);
                array_fini(&numbers);
                str_fini(&s);
                mem_fail_at(0);
                assert_true(mem_refill());
        }
}

static void use_it_up(void)
{
        for (int i = 0; i <= REGION_BYTES / CHUNK_BYTES; i++)
                from_reserve(1);
}

static void ask_too_much(void)
{
        from_reserve(REGION_BYTES + 1);
}

static void only_an_empty_reserve_ends_the_process(void **state _unused_)
{
        char text[512];

        assert_int_equal(exit_status_of(use_it_up, text, sizeof(text)), 6);
        assert_non_null(strstr(text, "berth: out of memory: 1 bytes"));
        assert_int_equal(exit_status_of(ask_too_much, text, sizeof(text)), 6);
        assert_non_null(strstr(text, "out of memory"));
}

static atomic_int failures;

static void *churn(void *arg)
{
        unsigned char mark = (unsigned char)(uintptr_t)arg;

        for (int i = 0; i < 3000; i++) {
                if (i % 50 == 0)
                        mem_fail_at(1 + (uint64_t)i % 7);
                size_t size = 1 + (size_t)(i * 37 % 9000);
                unsigned char *p = mem_must(size);
                memset(p, mark, size);
                p = mem_must_resize(p, size * 2);
                for (size_t k = 0; k < size; k += 61)
                        if (p[k] != mark)
                                atomic_fetch_add(&failures, 1);
                mem_free(p);
                if (mem_low())
                        mem_refill();
        }
        return NULL;
}

static void threads_share_the_reserve(void **state _unused_)
{
        pthread_t threads[4];

        for (uintptr_t i = 0; i < ARRAY_LEN(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                pthread_join(threads[i], NULL);
        mem_fail_at(0);
        assert_int_equal(failures, 0);
        assert_true(mem_refill());
}

static void *count_failures(void *arg _unused_)
{
        for (int i = 0; i < 1000; i++) {
                void *p = mem_try(1);
                if (!p)
                        atomic_fetch_add(&failures, 1);
                mem_free(p);
        }
        return NULL;
}

static void one_failure_is_injected_whatever_the_threads(void **state _unused_)
{
        pthread_t threads[4];

        failures = 0;
        mem_fail_at(2500);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, count_failures, NULL), 0);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                pthread_join(threads[i], NULL);
        assert_int_equal(failures, 1);
}

struct thing {
        char text[200];
};

static void a_pool_gives_zeroed_objects_and_keeps_a_few(void **state _unused_)
{
        struct mem_pool pool = MEM_POOL(struct thing, 3);
        struct thing *things[5];

        for (int round = 0; round < 3; round++) {
                for (size_t i = 0; i < ARRAY_LEN(things); i++) {
                        things[i] = mem_pool_take(&pool);
                        for (size_t k = 0; k < sizeof(things[i]->text); k++)
                                assert_int_equal(things[i]->text[k], 0);
                        memset(things[i]->text, 'x', sizeof(things[i]->text));
                        for (size_t k = 0; k < i; k++)
                                assert_ptr_not_equal(things[i], things[k]);
                }
                assert_int_equal(pool.n, 0);
                for (size_t i = 0; i < ARRAY_LEN(things); i++)
                        mem_pool_give(&pool, things[i]);
                assert_in_range(pool.n, 0, 3); /* none with the address sanitizer */
        }
        mem_pool_fini(&pool);
        assert_int_equal(pool.n, 0);
        mem_pool_give(&pool, mem_pool_take(&pool)); /* it can be used again */
        mem_pool_fini(&pool);
}

/* What came from the reserve goes back to it, also when the heap has room again by then. */
static void a_pool_keeps_nothing_of_the_reserve(void **state _unused_)
{
        struct mem_pool pool = MEM_POOL(struct thing, 10);

        assert_false(mem_low());
        mem_fail_at(1);
        struct thing *scarce = mem_pool_take(&pool);
        assert_true(mem_low());
        assert_false(mem_may_be_kept(scarce));
        assert_true(mem_refill());
        struct thing *plenty = mem_pool_take(&pool);
        assert_false(mem_may_be_kept(scarce));
        assert_true(mem_may_be_kept(plenty));
        mem_pool_give(&pool, scarce);
        assert_int_equal(pool.n, 0);
        mem_pool_give(&pool, plenty);
        assert_in_range(pool.n, MEM_SPARE(1), 1);
        /* whoever is short of memory gets all of it */
        struct thing *first = mem_pool_take(&pool), *second = mem_pool_take(&pool);
        mem_pool_give(&pool, first);
        mem_fail_at(1);
        void *more = mem_must(100);
        assert_true(mem_low());
        mem_pool_give(&pool, second);
        assert_int_equal(pool.n, 0);
        mem_free(more);
        assert_true(mem_refill());
        mem_pool_fini(&pool);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(memory_is_zeroed_and_never_null),
                cmocka_unit_test(copies_are_exact),
                cmocka_unit_test(the_nth_allocation_fails_once),
                cmocka_unit_test(the_reserve_steps_in_and_says_so),
                cmocka_unit_test(a_resize_keeps_the_bytes_wherever_they_lie),
                cmocka_unit_test(all_of_the_reserve_can_be_used_again_and_again),
                cmocka_unit_test(a_block_that_stays_does_not_keep_the_reserve_small),
                cmocka_unit_test(small_blocks_that_stay_never_use_it_up),
                cmocka_unit_test(containers_survive_every_failing_allocation),
                cmocka_unit_test(only_an_empty_reserve_ends_the_process),
                cmocka_unit_test(threads_share_the_reserve),
                cmocka_unit_test(one_failure_is_injected_whatever_the_threads),
                cmocka_unit_test(a_pool_gives_zeroed_objects_and_keeps_a_few),
                cmocka_unit_test(a_pool_keeps_nothing_of_the_reserve),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
