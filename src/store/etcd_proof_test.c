/* store/etcd_proof_test.c: a leader knows that it leads because etcd said so lately, and for no
 * other reason. With a real etcd. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/etcd_testkit.h"
#include "store/store.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define PATIENCE_NS (60 * 1000000000LL)
#define TTL_SECONDS 2

static struct etcd_process etcd;
static struct err err;

struct fixture {
        struct etcd_proxy *proxy;
        char prefix[32];
        struct store *s; /* through the proxy, and leads */
        _Atomic unsigned proved;
};

static void note_proof(void *ctx)
{
        struct fixture *f = ctx;
        atomic_fetch_add(&f->proved, 1);
}

static int setup(void **state)
{
        static int number;
        struct fixture *f = mem_must(sizeof(*f));
        snprintf(f->prefix, sizeof(f->prefix), "/p%d", ++number);
        f->proxy = etcd_proxy_start(etcd.port);
        if (store_open(fmt("etcd://127.0.0.1:%d%s", etcd_proxy_port(f->proxy), f->prefix), true,
                       &f->s, &err) < 0 ||
            store_lead(f->s, "test", TTL_SECONDS, 5000, &err) < 0)
                fail_msg("%s", err_line(&err));
        store_on_proved(f->s, note_proof, f);
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;
        etcd_proxy_hold(f->proxy, false, false);
        store_close(f->s);
        etcd_proxy_stop(f->proxy);
        mem_free(f);
        return 0;
}

static void pause_ms(int64_t ms)
{
        nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

#define WAIT_FOR(condition)                                                                        \
        for (int64_t end_ns = clock_mono_ns() + PATIENCE_NS; !(condition); pause_ms(5))            \
                if (clock_mono_ns() > end_ns)                                                      \
        fail_msg("waited for: %s", #condition)

/* Its lease goes on, it has no watch, and it commits nothing that could be refused.  R: C33 C34.
 * Line E1 */
static void a_key_that_was_removed_is_missed_by_an_idle_leader(void **state)
{
        struct fixture *f = *state;
        /* longer than one term: what keeps it leading is asked for again and again */
        pause_ms(TTL_SECONDS * 1500);
        assert_true(store_leads_until_ns(f->s) > clock_steady_ns());
        assert_int_equal(
            system(
                fmt("ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:%d del %s/meta/leader >/dev/null",
                    etcd.port, f->prefix)),
            0);
        WAIT_FOR(store_lead_is_over(f->s));
        assert_int_equal(store_leads_until_ns(f->s), 0);
        assert_int_equal(store_proved_ns(f->s), 0);
}

/* R: C33. Line E1 */
static void a_proof_is_as_old_as_its_question(void **state)
{
        struct fixture *f = *state;
        for (int i = 0; i < 20; i++) {
                int64_t asked_ns = clock_steady_ns();
                assert_true(store_proved_ns(f->s) < asked_ns);
                store_prove(f->s);
                WAIT_FOR(store_proved_ns(f->s) >= asked_ns);
                assert_true(store_proved_ns(f->s) <= clock_steady_ns());
        }
        WAIT_FOR(atomic_load(&f->proved) >= 20);
        /* a commit is one as well */
        struct store_event event = { 1, "event", 5 };
        struct store_batch batch = { 0, 1, &event, 1, NULL, 0, 0 };
        int64_t asked_ns = clock_steady_ns();
        assert_int_equal(store_commit(f->s, &batch, &err), 0);
        assert_true(store_proved_ns(f->s) >= asked_ns);
}

/* What was asked before the answers ceased to come does not count for what is asked then.  R: C33
 * C34. Line E1 */
static void without_answers_nothing_is_proved(void **state)
{
        struct fixture *f = *state;
        etcd_proxy_hold(f->proxy, false, true);
        int64_t held_ns = clock_steady_ns();
        store_prove(f->s);
        WAIT_FOR(store_leads_until_ns(f->s) == 0);
        assert_true(store_proved_ns(f->s) < held_ns);
        WAIT_FOR(store_lead_is_over(f->s));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
                T(a_key_that_was_removed_is_missed_by_an_idle_leader),
                T(a_proof_is_as_old_as_its_question),
                T(without_answers_nothing_is_proved),
#undef T
        };
        if (!etcd_is_installed()) {
                print_message("# etcd is not installed: not tested on it\n");
                return 77;
        }
        etcd_process_start(&etcd);
        int failed = cmocka_run_group_tests(tests, NULL, NULL);
        etcd_process_clean(&etcd);
        return failed;
}
