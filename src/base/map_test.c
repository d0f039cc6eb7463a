/* base/map_test.c: what must hold for the hash map and the hash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* Hashes may end up in the store: these values never change. */
#define HASH_EMPTY 0x466F727DBF5BC98Eu
#define HASH_A 0x1D9BBC0CF282B6BCu
#define HASH_NODE 0x58D6825FBB78F2B9u
#define HASH_TEXT 0x468ABE7A7617B9E2u
#define HASH_MIX 0x7AA2B436E45971D7u

#define KEYS 4000
static char keys[KEYS][24];

static struct map_key key_of(const void *ctx, uint32_t index)
{
        const char(*table)[24] = ctx;

        return (struct map_key){ table[index], strlen(table[index]) };
}

static void name_keys(void)
{
        for (int i = 0; i < KEYS; i++)
                snprintf(keys[i], sizeof(keys[i]), "node-%04d", i);
        keys[0][0] = '\0'; /* the empty key is one too */
}

static void what_was_put_is_found_and_nothing_else(void **state _unused_)
{
        struct map m;

        name_keys();
        map_init(&m, key_of, keys);
        assert_int_equal(map_get(&m, "node-0001", 9), MAP_NONE);
        map_remove(&m, 1);
        for (uint32_t i = 0; i < KEYS; i += 2)
                map_put(&m, i);
        assert_int_equal(map_len(&m), KEYS / 2);
        for (uint32_t i = 0; i < KEYS; i++)
                assert_int_equal(map_get(&m, keys[i], strlen(keys[i])), i % 2 ? MAP_NONE : i);
        assert_int_equal(map_get(&m, "node-0002", 8), MAP_NONE);
        map_clear(&m);
        assert_int_equal(map_len(&m), 0);
        assert_int_equal(map_get(&m, keys[2], strlen(keys[2])), MAP_NONE);
        map_put(&m, 2);
        assert_int_equal(map_get(&m, keys[2], strlen(keys[2])), 2);
        map_fini(&m);
}

static void churn_keeps_the_table_small_and_right(void **state _unused_)
{
        static bool in[KEYS];
        struct map m;
        struct rng rng;
        uint32_t live = 0;

        name_keys();
        rng_seed(&rng, 2);
        map_init(&m, key_of, keys);
        for (int step = 0; step < 300000; step++) {
                uint32_t i = (uint32_t)rng_below(&rng, KEYS);
                assert_int_equal(map_get(&m, keys[i], strlen(keys[i])), in[i] ? i : MAP_NONE);
                if (in[i])
                        map_remove(&m, i);
                else if (live < 700)
                        map_put(&m, i);
                else
                        continue;
                live = in[i] ? live - 1 : live + 1;
                in[i] = !in[i];
                assert_int_equal(map_len(&m), live);
        }
        assert_int_equal(m.cap, 1024);
        map_fini(&m);
}

/* Sums up how far each entry stands from its home. */
static void keys_that_count_up_stay_near_their_home(void **state _unused_)
{
        struct map m;
        uint64_t far = 0;

        name_keys();
        map_init(&m, key_of, keys);
        for (uint32_t i = 0; i < 3072; i++)
                map_put(&m, i);
        assert_int_equal(m.cap, 4096);
        for (uint32_t s = 0; s < m.cap; s++)
                if (m.slots[s].index != MAP_NONE)
                        far += (s - m.slots[s].hash) & (m.cap - 1);
        assert_true(far < 3072 * 3); /* 1.5 each is what chance gives at this load */
        map_fini(&m);
}

static void each_bit_of_the_input_moves_half_of_the_hash(void **state _unused_)
{
        unsigned char data[48];
        struct rng rng;

        rng_seed(&rng, 3);
        for (size_t len = 1; len <= sizeof(data); len++) {
                uint64_t moved = 0, tries = 0;
                for (int round = 0; round < 20; round++) {
                        for (size_t i = 0; i < len; i++)
                                data[i] = (unsigned char)rng_next(&rng);
                        uint64_t h = hash64(data, len);
                        for (size_t bit = 0; bit < len * 8; bit++, tries++) {
                                data[bit / 8] ^= (unsigned char)(1u << bit % 8);
                                int n = __builtin_popcountll(h ^ hash64(data, len));
                                assert_in_range(n, 8, 56);
                                moved += (uint64_t)n;
                                data[bit / 8] ^= (unsigned char)(1u << bit % 8);
                        }
                }
                assert_in_range(moved * 100 / tries, 3000, 3400);
        }
}

static void the_hash_depends_on_the_length_and_reads_no_further(void **state _unused_)
{
        uint64_t seen[200];

        for (size_t len = 0; len < 200; len++) {
                char *exact = mem_must(len); /* the sanitizer watches the end */
                seen[len] = hash64(exact, len);
                mem_free(exact);
                for (size_t i = 0; i < len; i++)
                        assert_true(seen[i] != seen[len]);
        }
        assert_int_equal(hash64(NULL, 0), seen[0]);
}

/* R: A2 */
static void the_hash_is_the_same_everywhere(void **state _unused_)
{
        static const char text[] =
            "the quick brown fox jumps over the lazy dog, twice and once more again";

        assert_true(hash64("", 0) == HASH_EMPTY);
        assert_true(hash64("a", 1) == HASH_A);
        assert_true(hash64("node-1", 6) == HASH_NODE);
        assert_true(hash64(text, strlen(text)) == HASH_TEXT);
        assert_true(hash64_mix(1, 2) == HASH_MIX);
        assert_true(hash64_mix(1, 2) != hash64_mix(2, 1));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_was_put_is_found_and_nothing_else),
                cmocka_unit_test(churn_keeps_the_table_small_and_right),
                cmocka_unit_test(keys_that_count_up_stay_near_their_home),
                cmocka_unit_test(each_bit_of_the_input_moves_half_of_the_hash),
                cmocka_unit_test(the_hash_depends_on_the_length_and_reads_no_further),
                cmocka_unit_test(the_hash_is_the_same_everywhere),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
