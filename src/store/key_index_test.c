/* store/key_index_test.c: what must hold for the index from keys to rows. */
#include "base/clock.h"
#include "store/key_index.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static int64_t only(const struct key_index *x, uint64_t hash)
{
        size_t pos = 0;
        int64_t id = key_index_next(x, hash, &pos);
        if (id > 0)
                assert_int_equal(key_index_next(x, hash, &pos), 0);
        return id;
}

static void empty_index_finds_nothing(void **state _unused_)
{
        struct key_index x = { 0 };
        assert_int_equal(only(&x, 5), 0);
        key_index_remove(&x, 5, 1);
        key_index_fini(&x);
}

static void rows_of_one_hash_are_all_found(void **state _unused_)
{
        struct key_index x = { 0 };
        size_t pos = 0;
        int64_t sum = 0, id;
        for (int64_t i = 1; i <= 10; i++)
                key_index_add(&x, 7, i);
        key_index_add(&x, 8, 100);
        key_index_remove(&x, 7, 4);
        while ((id = key_index_next(&x, 7, &pos)) > 0)
                sum += id;
        assert_int_equal(sum, 55 - 4);
        assert_int_equal(only(&x, 8), 100);
        key_index_fini(&x);
}

static void random_adds_and_removes_agree_with_a_model(void **state _unused_)
{
        enum { N = 5000 };
        struct key_index x = { 0 };
        int64_t *model = calloc(N, sizeof(*model)), next = 1;
        size_t len = 0;
        struct rng rng;
        rng_seed(&rng, 3);
        for (int i = 0; i < 200000; i++) {
                uint64_t k = rng_below(&rng, N), hash = k * 0x9e3779b97f4a7c15u;
                if (model[k]) {
                        key_index_remove(&x, hash, model[k]);
                        model[k] = 0;
                        len--;
                } else {
                        key_index_add(&x, hash, model[k] = next++);
                        len++;
                }
        }
        for (uint64_t k = 0; k < N; k++)
                assert_int_equal(only(&x, k * 0x9e3779b97f4a7c15u), model[k]);
        assert_int_equal(x.len, len);
        assert_true(x.cap <= 16384); /* dead slots are swept out, not grown around */
        key_index_fini(&x);
        free(model);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(empty_index_finds_nothing),
                cmocka_unit_test(rows_of_one_hash_are_all_found),
                cmocka_unit_test(random_adds_and_removes_agree_with_a_model),
        };
        return cmocka_run_group_tests_name("store_key_index", tests, NULL, NULL);
}
