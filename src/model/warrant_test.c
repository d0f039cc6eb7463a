/* model/warrant_test.c: a warrant is good for exactly what it was made for (A13). */
#include "model/warrant.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct warrant_facts facts = { "cluster", "unit", "node", 7, 9, "definition", 10 };

/* R: A13: the bytes are fixed, since agents of any version return them years later. */
static void the_mac_is_the_same_for_ever(void **state)
{
        (void)state;
        static const char expected[] =
            "5bfad905177b2cf27bfeb4c4ca4caa2ceb9fe58f785dec1117df8c11f467da68";
        struct warrant_keys keys = { .has = true };
        uint8_t made[WARRANT_BYTES];
        char hex[2 * WARRANT_BYTES + 1];
        for (int i = 0; i < WARRANT_KEY_BYTES; i++)
                keys.key[i] = (uint8_t)i;
        struct warrants *w = warrants_create(&keys);
        assert_true(warrant_make(w, &facts, made));
        for (size_t i = 0; i < sizeof(made); i++)
                snprintf(hex + 2 * i, 3, "%02x", made[i]);
        assert_string_equal(hex, expected);
        warrants_destroy(w);
}

/* R: A13 */
static void any_other_fact_is_another_warrant(void **state)
{
        (void)state;
        struct warrant_keys keys = { .has = true, .key = { 1 } };
        struct warrants *w = warrants_create(&keys);
        uint8_t made[WARRANT_BYTES];
        assert_true(warrant_make(w, &facts, made));
        assert_true(warrant_is_valid(w, &facts, made, sizeof(made)));
        struct warrant_facts others[] = { facts, facts, facts, facts, facts, facts, facts, facts };
        others[0].cluster_id = "other";
        others[1].unit_id = "other";
        others[2].node_id = "other";
        others[3].epoch = 8;
        others[4].seq = 8;
        others[5].definition = "definitioN";
        others[6].definition_len = 9;
        others[7].unit_id = "uni"; /* a byte moves from one text to the next */
        others[7].node_id = "tnode";
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
                assert_false(warrant_is_valid(w, &others[i], made, sizeof(made)));
        assert_false(warrant_is_valid(w, &facts, made, sizeof(made) - 1));
        assert_false(warrant_is_valid(w, &facts, made, 0));
        made[31] ^= 1;
        assert_false(warrant_is_valid(w, &facts, made, sizeof(made)));
        warrants_destroy(w);
}

/* R: A13 */
static void after_a_rotation_the_key_before_is_still_accepted(void **state)
{
        (void)state;
        struct warrant_keys old = { .has = true, .key = { 1 } },
                            both = { .has = true,
                                     .has_previous = true,
                                     .key = { 2 },
                                     .previous = { 1 } },
                            other = { .has = true, .key = { 3 } };
        struct warrants *w = warrants_create(&old), *x = warrants_create(&both),
                        *y = warrants_create(&other);
        uint8_t made[WARRANT_BYTES], again[WARRANT_BYTES];
        assert_true(warrant_make(w, &facts, made));
        assert_true(warrant_make(x, &facts, again));
        assert_memory_not_equal(made, again, sizeof(made));
        assert_true(warrant_is_valid(x, &facts, made, sizeof(made)));
        assert_true(warrant_is_valid(x, &facts, again, sizeof(again)));
        assert_false(warrant_is_valid(w, &facts, again, sizeof(again)));
        assert_false(warrant_is_valid(y, &facts, made, sizeof(made)));
        warrants_destroy(w);
        warrants_destroy(x);
        warrants_destroy(y);
}

/* R: A13 */
static void without_a_key_none_is_made_and_none_is_valid(void **state)
{
        (void)state;
        uint8_t made[WARRANT_BYTES] = { 0 };
        struct warrants *w = warrants_create(&(struct warrant_keys){ 0 });
        assert_null(w);
        assert_false(warrant_make(w, &facts, made));
        assert_false(warrant_is_valid(w, &facts, made, sizeof(made)));
        warrants_destroy(w);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_mac_is_the_same_for_ever),
                cmocka_unit_test(any_other_fact_is_another_warrant),
                cmocka_unit_test(after_a_rotation_the_key_before_is_still_accepted),
                cmocka_unit_test(without_a_key_none_is_made_and_none_is_valid),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
