/* base/order_test.c: what must hold for an ordered set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/order.h"
#include <stdio.h>
#include <string.h>

#define MANY 5000

static char names[MANY][16];

static struct map_key name_of(const void *ctx _unused_, uint32_t i)
{
        return (struct map_key){ names[i], strlen(names[i]) };
}

static void check_order(const struct order *o, const bool *there)
{
        struct order_place p = order_after(o, "", 0);
        const char *last = "";
        size_t n = 0, want = 0;
        for (uint32_t i; (i = order_next(o, &p)) != MAP_NONE; n++) {
                assert_true(there[i]);
                assert_true(strcmp(last, names[i]) < 0);
                last = names[i];
        }
        for (uint32_t i = 0; i < MANY; i++)
                want += there[i];
        assert_int_equal(n, want);
        assert_int_equal(o->len, want);
        for (size_t b = 0; b < o->blocks.len; b++)
                assert_true(o->blocks.at[b]->len > 0 && o->blocks.at[b]->len <= ORDER_BLOCK);
}

/* Each step of each order of arrival leaves everything in order, and every key finds its place. */
static void whatever_comes_and_goes_is_in_order(void **state _unused_)
{
        for (uint64_t seed = 1; seed <= 3; seed++) {
                struct order o;
                static bool there[MANY];
                uint64_t x = seed * 0x9e3779b97f4a7c15u;
                memset(there, 0, sizeof(there));
                order_init(&o, name_of, NULL);
                for (uint32_t i = 0; i < MANY; i++)
                        snprintf(names[i], sizeof(names[i]), "w-%u", i);
                for (int step = 0; step < 60000; step++) {
                        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                        uint32_t i = (uint32_t)(x % MANY);
                        /* it grows, then shrinks to almost nothing */
                        bool add = step < 30000 ? x >> 40 & 3 : !(x >> 40 & 7);
                        if (add && !there[i])
                                order_add(&o, i);
                        else if (!add)
                                order_remove(&o, i);
                        there[i] = add;
                        if (step % 5000 == 0)
                                check_order(&o, there);
                }
                check_order(&o, there);
                for (uint32_t i = 0; i < MANY; i++) {
                        struct order_place p = order_after(&o, names[i], strlen(names[i]));
                        uint32_t next = order_next(&o, &p);
                        assert_true(next == MAP_NONE || strcmp(names[next], names[i]) > 0);
                        for (uint32_t k = 0; next != MAP_NONE && k < 20; k++) {
                                uint32_t other = (uint32_t)((i + k * 97) % MANY);
                                assert_false(there[other] && strcmp(names[other], names[i]) > 0 &&
                                             strcmp(names[other], names[next]) < 0);
                        }
                }
                order_fini(&o);
        }
}

static void ascending_keys_fill_their_blocks(void **state _unused_)
{
        struct order o;
        order_init(&o, name_of, NULL);
        for (uint32_t i = 0; i < MANY; i++) {
                snprintf(names[i], sizeof(names[i]), "w-%05u", i);
                order_add(&o, i);
        }
        assert_int_equal(o.blocks.len, (MANY + ORDER_BLOCK - 1) / ORDER_BLOCK);
        order_fini(&o);
}

static void an_empty_set_has_no_place(void **state _unused_)
{
        struct order o;
        order_init(&o, name_of, NULL);
        struct order_place p = order_after(&o, "x", 1);
        assert_int_equal(order_next(&o, &p), MAP_NONE);
        order_remove(&o, 0);
        order_fini(&o);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(whatever_comes_and_goes_is_in_order),
                cmocka_unit_test(ascending_keys_fill_their_blocks),
                cmocka_unit_test(an_empty_set_has_no_place),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
