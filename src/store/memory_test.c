/* store/memory_test.c: the faults that the store in memory can play, and that they are what a real
 * store would do. */
#include "store/memory.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct fixture {
        struct memory_disk *disk;
        struct store *s;
        struct err err;
};

static int setup(void **state)
{
        static struct fixture f;
        f = (struct fixture){ .disk = memory_disk_create() };
        assert_int_equal(memory_open(f.disk, &f.s, &f.err), 0);
        *state = &f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;
        store_close(f->s);
        memory_disk_destroy(f->disk);
        return 0;
}

static int commit(struct fixture *f, uint64_t head)
{
        struct store_event event = { head + 1, "e", 1 };
        struct store_record record = { "/a", "1", 1 };
        return store_commit(f->s, &(struct store_batch){ head, head + 1, &event, 1, &record, 1, 0 },
                            &f->err);
}

static void fault_before_leaves_nothing_and_the_batch_goes_through_next_time(void **state)
{
        struct fixture *f = *state;
        memory_fail_commit(f->disk, 2, MEMORY_FAULT_BEFORE);
        assert_int_equal(commit(f, 0), 0);
        assert_int_equal(commit(f, 1), -ERR_UNAVAILABLE);
        assert_int_equal(store_head(f->s), 1);
        store_close(TAKE_PTR(f->s));
        assert_int_equal(memory_open(f->disk, &f->s, &f->err), 0);
        assert_int_equal(store_head(f->s), 1);
        assert_int_equal(commit(f, 1), 0);
        assert_int_equal(commit(f, 2), 0);
}

/* R: A5 C35 */
static void fault_after_leaves_the_batch_and_sending_it_again_says_so(void **state)
{
        struct fixture *f = *state;
        memory_fail_commit(f->disk, 1, MEMORY_FAULT_AFTER);
        assert_int_equal(commit(f, 0), -ERR_UNAVAILABLE);
        assert_int_equal(store_head(f->s), 0); /* as far as the caller knows */
        assert_int_equal(commit(f, 0), 0);
        assert_int_equal(store_head(f->s), 1);
        memory_fail_commit(f->disk, 1, MEMORY_FAULT_AFTER);
        assert_int_equal(commit(f, 1), -ERR_UNAVAILABLE);
        store_close(TAKE_PTR(f->s)); /* the caller died before it could ask again */
        assert_int_equal(memory_open(f->disk, &f->s, &f->err), 0);
        assert_int_equal(store_head(f->s), 2);
}

static int ignore_record(void *ctx _unused_, const struct store_record *r _unused_,
                         struct err *err _unused_)
{
        return 0;
}

/* R: C35 */
static void away_fails_everything_until_it_is_back(void **state)
{
        struct fixture *f = *state;
        assert_int_equal(commit(f, 0), 0);
        memory_set_away(f->disk, true);
        assert_int_equal(commit(f, 1), -ERR_UNAVAILABLE);
        assert_int_equal(store_load(f->s, ignore_record, NULL, NULL, &f->err), -ERR_UNAVAILABLE);
        assert_int_equal(store_checkpoint(f->s, &f->err), -ERR_UNAVAILABLE);
        assert_int_equal(store_prune(f->s, STORE_KEEP_LOG(1), 1, NULL, &f->err), -ERR_UNAVAILABLE);
        memory_set_away(f->disk, false);
        assert_int_equal(commit(f, 1), 0);
}

static void address_memory_gives_a_store_of_its_own(void **state)
{
        struct fixture *f = *state;
        struct store *a = NULL, *b = NULL;
        assert_int_equal(store_open("memory:", false, &a, &f->err), 0);
        assert_int_equal(store_open("memory:", true, &b, &f->err), 0);
        struct store_event event = { 1, "e", 1 };
        assert_int_equal(
            store_commit(a, &(struct store_batch){ 0, 1, &event, 1, NULL, 0, 0 }, &f->err), 0);
        assert_int_equal(store_head(a), 1);
        assert_int_equal(store_head(b), 0);
        store_close(a);
        store_close(b);
}

/* R: A5 */
static void a_chain_whose_outcome_is_unknown_is_sent_again_from_there(void **state)
{
        (void)state;
        for (int fault = MEMORY_FAULT_BEFORE; fault <= MEMORY_FAULT_AFTER; fault++) {
                struct memory_disk *d = memory_disk_create();
                struct store *s = NULL;
                struct err err = { 0 };
                assert_int_equal(memory_open(d, &s, &err), 0);
                struct store_event events[] = { { 1, "a", 1 }, { 2, "b", 1 }, { 3, "c", 1 } };
                struct store_batch batches[] = { { 0, 1, events, 1, NULL, 0, 0 },
                                                 { 1, 2, events + 1, 1, NULL, 0, 0 },
                                                 { 2, 3, events + 2, 1, NULL, 0, 0 } };
                memory_fail_commit(d, 2, (enum memory_fault)fault);
                for (size_t i = 0; i < 3; i++)
                        assert_int_equal(store_submit(s, &batches[i], &err), 0);
                assert_int_equal(store_settle(s, -1, &err), 1);
                assert_int_equal(store_settle(s, -1, &err), -ERR_UNAVAILABLE);
                assert_int_equal(store_in_flight(s), 0);
                for (size_t i = 1; i < 3; i++)
                        assert_int_equal(store_submit(s, &batches[i], &err), 0);
                assert_int_equal(store_settle(s, -1, &err), 1);
                assert_int_equal(store_settle(s, -1, &err), 1);
                assert_int_equal(store_head(s), 3);
                assert_int_equal(store_integrity(s, &err), 0);
                store_close(s);
                memory_disk_destroy(d);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_chain_whose_outcome_is_unknown_is_sent_again_from_there),
                cmocka_unit_test_setup_teardown(
                    fault_before_leaves_nothing_and_the_batch_goes_through_next_time, setup,
                    teardown),
                cmocka_unit_test_setup_teardown(
                    fault_after_leaves_the_batch_and_sending_it_again_says_so, setup, teardown),
                cmocka_unit_test_setup_teardown(away_fails_everything_until_it_is_back, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(address_memory_gives_a_store_of_its_own, setup,
                                                teardown),
        };
        return cmocka_run_group_tests_name("store_memory", tests, NULL, NULL);
}
